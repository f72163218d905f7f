/* Reads problem lines: a table of keys, then the defaults and what excludes what. Whether the
 * library takes the combination is left to the library. */
#include "problem_line.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { UNSET = -1 }; /* of counts, until the defaults */

/* ---- Kinds of values ------------------------------------------------------------------------- */

/* random | list:a,b,...; an empty value is the list of no sequences */
static bool read_used(const char *key, const char *value, struct seq_numbers *x,
                      struct refusal *r) {
    const char *rest = after_prefix(value, "list:");
    if (strcmp(value, "random") == 0) {
        x->kind = SEQ_RANDOM;
        x->high = LINE_MAX_ROWS;
        return true;
    }
    if (!rest && *value)
        return refuse(r, "%s: '%.60s', expected random or list:a,b,...", key, value);
    x->kind = SEQ_LIST;
    return read_integer_list(key, rest ? rest : value, 0, LINE_MAX_ROWS, &x->list, &x->n, r);
}

/* N | random:max | list:a,b,...; empty as above */
static bool read_special_tokens(const char *key, const char *value, struct seq_numbers *x,
                                struct refusal *r) {
    const char *rest = *value ? after_prefix(value, "list:") : value;
    if (rest) {
        x->kind = SEQ_LIST;
        return read_integer_list(key, rest, 0, LINE_MAX_ROWS, &x->list, &x->n, r);
    }
    if ((rest = after_prefix(value, "random:")) != NULL) {
        x->kind = SEQ_RANDOM;
        return read_integer(key, rest, 0, LINE_MAX_ROWS, &x->high, r);
    }
    x->kind = SEQ_NUMBER;
    return read_integer(key, value, 0, LINE_MAX_ROWS, &x->low, r);
}

bool read_window(const char *value, int64_t window[2], struct refusal *r) {
    return read_integer_pair("window_size", value, "left,right", -1, LINE_MAX_ROWS, window, r);
}

bool read_rule(const char *value, int64_t window[2], struct refusal *r) {
    const char *rest = after_prefix(value, "local:");
    if (rest) return read_integer_pair("rule", rest, "local:W,R", -1, LINE_MAX_ROWS, window, r);
    const bool none = strcmp(value, "none") == 0;
    if (!none && strcmp(value, "causal") != 0)
        return refuse(r, "rule: '%.60s', expected causal, none or local:W,R", value);
    window[0] = -1;
    window[1] = none ? -1 : 0;
    return true;
}

static bool read_mask(struct problem_line *p, const char *value, struct refusal *r) {
    const char *density = after_prefix(value, "random:");
    p->mask = strcmp(value, "causal") == 0 ? MASK_CAUSAL : MASK_RANDOM;
    if (p->mask == MASK_CAUSAL || strcmp(value, "random") == 0) return true;
    if (!density)
        return refuse(r, "mask: '%.60s', expected random, random:density or causal", value);
    if (!read_real("mask", density, &p->mask_density, r)) return false;
    if (p->mask_density >= 0.0 && p->mask_density <= 1.0) return true;
    return refuse(r, "mask: density '%.60s', expected 0 to 1", density);
}

/* causal, or a number of random pairs */
static bool read_intervals(struct problem_line *p, const char *value, struct refusal *r) {
    p->mask = MASK_INTERVALS;
    p->n_intervals = 1;
    p->intervals_causal = strcmp(value, "causal") == 0;
    return p->intervals_causal || read_integer("intervals", value, 0, 1 << 20, &p->n_intervals, r);
}

static bool read_float(const char *key, const char *value, double *x, struct refusal *r) {
    if (!read_real(key, value, x, r)) return false;
    if (fabs(*x) <= FLT_MAX) return true;
    return refuse(r, "%s: '%.60s', expected a number that fits fp32", key, value);
}

static bool read_attn_scale(struct problem_line *p, const char *value, struct refusal *r) {
    p->scale = strcmp(value, "token") == 0 ? SCALE_TOKEN : SCALE_NUMBER;
    if (p->scale == SCALE_TOKEN) return true;
    return read_real("attn_scale", value, &p->attn_scale, r);
}

bool read_run_option(struct run_options *o, const char *key, const char *value, bool *known,
                     struct refusal *r) {
    static const char *const isas[] = {"auto", "scalar",     "avx2", "avx512",
                                       "neon", "avx512bf16", NULL};
    static const char *const executors[] = {"auto", "serial", "pool", "host", NULL};
    static const char *const caches[] = {"hot", "cold", NULL};
    int choice = 0;
    int64_t threads;
    *known = true;
    if (strcmp(key, "threads") == 0) {
        if (!read_integer(key, value, 0, 1024, &threads, r)) return false;
        o->threads = (int)threads;
    } else if (strcmp(key, "isa") == 0) {
        if (!read_choice(key, value, isas, &choice, r)) return false;
        o->isa = (enum ptl_isa)choice;
    } else if (strcmp(key, "executor") == 0) {
        if (!read_choice(key, value, executors, &choice, r)) return false;
        o->executor = (enum ptl_executor_kind)choice;
    } else if (strcmp(key, "cache") == 0) {
        if (!read_choice(key, value, caches, &choice, r)) return false;
        o->cold = choice == 1;
    } else if (strcmp(key, "ms") != 0) { /* of logged lines; not part of the problem */
        *known = false;
    }
    return true;
}

/* ---- Keys ------------------------------------------------------------------------------------ */

static const struct {
    const char *key;
    size_t offset; /* of an int64_t */
    int64_t low, high;
} counts[] = {
#define COUNT(key, low, high)                                                                      \
    { #key, offsetof(struct problem_line, key), low, high }
    COUNT(b, 0, LINE_MAX_SEQS),
    COUNT(h, 1, LINE_MAX_HEADS),
    COUNT(hk, 1, LINE_MAX_HEADS),
    COUNT(sq, 0, LINE_MAX_ROWS),
    COUNT(sk, 0, LINE_MAX_ROWS),
    COUNT(d, 1, LINE_MAX_DIM),
    COUNT(dv, 1, LINE_MAX_DIM),
    COUNT(pad, 0, LINE_MAX_ROWS),
    COUNT(max_seqlen_q, 1, LINE_MAX_ROWS),
    COUNT(max_seqlen_k, 1, LINE_MAX_ROWS),
    COUNT(scaling_seqlen, 1, INT64_MAX),
    COUNT(target_group_size, 1, INT64_MAX),
    COUNT(min_full_attn_seq_len, 0, INT64_MAX),
    COUNT(thresholds, 0, 1 << 20),
    COUNT(page_size, 1, LINE_MAX_ROWS),
#undef COUNT
};

static const struct {
    const char *key;
    size_t offset; /* of a struct seq_numbers */
    bool (*read)(const char *key, const char *value, struct seq_numbers *x, struct refusal *r);
} per_seq[] = {
#define PER_SEQ(key, read)                                                                         \
    { #key, offsetof(struct problem_line, key), read }
    PER_SEQ(lengths, read_lengths),
    PER_SEQ(lengths_k, read_lengths),
    PER_SEQ(seqused_q, read_used),
    PER_SEQ(seqused_k, read_used),
    PER_SEQ(num_contexts, read_special_tokens),
    PER_SEQ(num_targets, read_special_tokens),
#undef PER_SEQ
};

/* 1, or all of them: the letter of that count, or its number (checked when it is known). */
static bool read_broadcast(const char *key, const char *letter, const char *value, int64_t *count,
                           struct refusal *r) {
    *count = UNSET;
    return strcmp(value, letter) == 0 || read_integer(key, value, 0, INT64_MAX, count, r);
}

/* 1, or a table for each head. */
static const struct {
    const char *key, *letter;
    size_t offset; /* of an int64_t */
} broadcasts[] = {
#define BROADCAST(key, letter)                                                                     \
    { #key, letter, offsetof(struct problem_line, key) }
    BROADCAST(mask_batch, "b"), BROADCAST(mask_head, "h"), BROADCAST(bias_batch, "b"),
    BROADCAST(bias_head, "h"),  BROADCAST(pos_table, "h"), BROADCAST(time_table, "h"),
#undef BROADCAST
};

/* Keys whose value is one of some words. */
static bool read_option_word(struct problem_line *p, const char *key, const char *value,
                             bool *known, struct refusal *r) {
    static const char *const dtypes[] = {"f32", "f16", "bf16", NULL};
    static const char *const layouts[] = {"jagged", "dense", NULL};
    static const char *const views[] = {"plain", "uvqk", "bhsd", "gap", NULL};
    static const char *const indexes[] = {"i64", "i32", NULL};
    static const char *const biases[] = {"dense", NULL};
    static const char *const bias_rows[] = {"query", "key", NULL};
    static const char *const bias_dtypes[] = {"f32", "same", NULL};
    static const char *const queries[] = {"next", "own", NULL};
    static const char *const times[] = {"ascending", "random", NULL};
    static const char *const wanted[] = {"0", "1", NULL};
    static const struct {
        const char *key;
        const char *const *words;
    } options[] = {{"dtype", dtypes},
                   {"layout", layouts},
                   {"view", views},
                   {"index", indexes},
                   {"bias", biases},
                   {"bias_rows", bias_rows},
                   {"bias_dtype", bias_dtypes},
                   {"time_query", queries},
                   {"times", times},
                   {"ds", wanted}};
    size_t i = 0;
    int choice = 0;
    while (i < sizeof options / sizeof options[0] && strcmp(key, options[i].key) != 0) i++;
    *known = i < sizeof options / sizeof options[0];
    if (!*known) return true;
    if (!read_choice(key, value, options[i].words, &choice, r)) return false;
    switch (i) {
    case 0: p->dtype = choice == 0 ? PTL_F32 : choice == 1 ? PTL_F16 : PTL_BF16; break;
    case 1: p->dense = choice == 1; break;
    case 2: p->view = (enum line_view)choice; break;
    case 3: p->index = choice == 1 ? PTL_I32 : PTL_I64; break;
    case 4: p->bias = true; break;
    case 5: p->bias_rows = (enum ptl_hstu_bias_rows)choice; break;
    case 6: p->bias_same_dtype = choice == 1; break;
    case 7: p->time_query = (enum ptl_hstu_time_query)choice; break;
    case 8: p->times_random = choice == 1; break;
    default: p->ds = choice == 1;
    }
    return true;
}

static bool read_word(struct problem_line *p, const char *key, const char *value,
                      struct refusal *r) {
    int64_t window[2], seed;
    bool known;

    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        if (strcmp(key, counts[i].key) == 0)
            return read_integer(key, value, counts[i].low, counts[i].high,
                                (int64_t *)((char *)p + counts[i].offset), r);
    for (size_t i = 0; i < sizeof per_seq / sizeof per_seq[0]; i++)
        if (strcmp(key, per_seq[i].key) == 0)
            return per_seq[i].read(key, value,
                                   (struct seq_numbers *)((char *)p + per_seq[i].offset), r);
    for (size_t i = 0; i < sizeof broadcasts / sizeof broadcasts[0]; i++)
        if (strcmp(key, broadcasts[i].key) == 0)
            return read_broadcast(key, broadcasts[i].letter, value,
                                  (int64_t *)((char *)p + broadcasts[i].offset), r);
    if (!read_run_option(&p->run, key, value, &known, r)) return false;
    if (known) return true;
    if (!read_option_word(p, key, value, &known, r)) return false;
    if (known) return true;

    if (strcmp(key, "s") == 0) {
        if (!read_integer(key, value, 0, LINE_MAX_ROWS, &p->sq, r)) return false;
        p->sk = p->sq;
    } else if (strcmp(key, "rule") == 0 || strcmp(key, "window_size") == 0) {
        if (!(*key == 'r' ? read_rule : read_window)(value, window, r)) return false;
        p->window_left = window[0];
        p->window_right = window[1];
    } else if (strcmp(key, "mask") == 0) {
        return read_mask(p, value, r);
    } else if (strcmp(key, "intervals") == 0) {
        return read_intervals(p, value, r);
    } else if (strcmp(key, "alpha") == 0) {
        return read_float(key, value, &p->alpha, r);
    } else if (strcmp(key, "bias_scale") == 0) {
        return read_float(key, value, &p->bias_scale, r);
    } else if (strcmp(key, "attn_scale") == 0) {
        return read_attn_scale(p, value, r);
    } else if (strcmp(key, "seed") == 0) {
        if (!read_integer(key, value, 0, INT64_MAX, &seed, r)) return false;
        p->seed = (uint64_t)seed;
    } else {
        return refuse(r, "%.60s: unknown key, see 'pantile help %s'", key, p->op);
    }
    return true;
}

/* ---- Defaults and exclusions ----------------------------------------------------------------- */

static bool exclude(const struct words *w, const char *a, const char *b, struct refusal *r) {
    if (!words_find(w, a) || !words_find(w, b)) return true;
    return refuse(r, "%s: given together with %s, expected one of them", a, b);
}

static bool check_exclusions(const struct problem_line *p, const struct words *w,
                             struct refusal *r) {
    static const char *const pairs[][2] = {
        {"sq", "s"},
        {"sk", "s"},
        {"lengths", "s"},
        {"lengths", "sq"},
        {"lengths_k", "sk"},
        {"window_size", "rule"},
        {"rule", "mask"},
        {"window_size", "mask"},
        {"intervals", "mask"},
        {"rule", "intervals"},
        {"window_size", "intervals"},
        {"seqused_k", "page_size"},
        {"attn_scale", "scaling_seqlen"},
    };
    static const char *const jagged_only[] = {"lengths", "lengths_k", "pad", "page_size"};
    static const char *const needs[][2] = {
        {"bias_batch", "bias"},  {"bias_head", "bias"},        {"bias_rows", "bias"},
        {"bias_dtype", "bias"},  {"thresholds", "time_table"}, {"time_query", "time_table"},
        {"times", "time_table"},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++)
        if (!exclude(w, pairs[i][0], pairs[i][1], r)) return false;
    for (size_t i = 0; i < sizeof needs / sizeof needs[0]; i++)
        if (words_find(w, needs[i][0]) && !words_find(w, needs[i][1]))
            return refuse(r, "%s: given without %s", needs[i][0], needs[i][1]);
    for (int i = 0; i < 4; i++)
        if (p->dense && words_find(w, jagged_only[i]))
            return refuse(r,
                          "%s: given with layout=dense, expected layout=jagged (dense takes sq, sk "
                          "and seqused)",
                          jagged_only[i]);
    if (p->ds && !p->backward) return refuse(r, "ds: given with %s, expected hstu_backward", p->op);
    if (p->page_size && p->backward)
        return refuse(r, "page_size: given with hstu_backward, expected hstu");
    if (p->mask != MASK_RANDOM && p->mask != MASK_CAUSAL &&
        (words_find(w, "mask_batch") || words_find(w, "mask_head")))
        return refuse(r, "%s: given without mask, expected mask=random or mask=causal",
                      words_find(w, "mask_batch") ? "mask_batch" : "mask_head");
    return true;
}

static bool check_list_sizes(const struct problem_line *p, struct refusal *r) {
    for (size_t i = 0; i < sizeof per_seq / sizeof per_seq[0]; i++) {
        const struct seq_numbers *x = (const void *)((const char *)p + per_seq[i].offset);
        if (x->kind == SEQ_LIST && x->n != p->b)
            return refuse(r, "%s: %" PRId64 " numbers, expected %" PRId64 " (b)", per_seq[i].key,
                          x->n, p->b);
    }
    return true;
}

static bool resolve_broadcast(const char *key, int64_t *count, int64_t all, struct refusal *r) {
    if (*count == UNSET) *count = all;
    if (*count == 1 || *count == all) return true;
    if (all <= 1) return refuse(r, "%s: %" PRId64 ", expected 1", key, *count);
    return refuse(r, "%s: %" PRId64 ", expected 1 or %" PRId64, key, *count, all);
}

static bool complete(struct problem_line *p, const struct words *w, struct refusal *r) {
    if (!check_exclusions(p, w, r)) return false;
    if (p->d == UNSET) return refuse(r, "d: missing, expected the head size");
    if (p->dv == UNSET) p->dv = p->d;
    if (p->hk == UNSET) p->hk = p->h;
    if (p->h % p->hk != 0)
        return refuse(r, "hk: %" PRId64 ", expected a divisor of h, which is %" PRId64, p->hk,
                      p->h);
    if (p->sq == UNSET && p->lengths.kind == SEQ_ABSENT)
        return refuse(r, "s: missing, expected s, sq and sk, or lengths");
    if (p->sk == UNSET && p->lengths_k.kind == SEQ_ABSENT && p->lengths.kind == SEQ_ABSENT)
        p->sk = p->sq;
    if (p->b == UNSET) p->b = p->lengths.kind == SEQ_LIST ? p->lengths.n : 1;
    if (p->b > LINE_MAX_SEQS)
        return refuse(r, "lengths: %" PRId64 " numbers, expected at most %d", p->b, LINE_MAX_SEQS);
    if (isnan(p->alpha)) p->alpha = 1.0 / sqrt((double)p->d);
    if (p->view == VIEW_UVQK && p->hk != p->h)
        return refuse(r, "view: uvqk with hk=%" PRId64 ", expected hk equal to h", p->hk);
    for (size_t i = 0; i < sizeof broadcasts / sizeof broadcasts[0]; i++) {
        int64_t *count = (int64_t *)((char *)p + broadcasts[i].offset);
        if (*count != 0 || words_find(w, broadcasts[i].key))
            if (!resolve_broadcast(broadcasts[i].key, count,
                                   broadcasts[i].letter[0] == 'b' ? p->b : p->h, r))
                return false;
    }
    return check_list_sizes(p, r);
}

bool problem_line_parse(struct problem_line *p, const char *line, struct refusal *r) {
    struct words w;
    memset(p, 0, sizeof *p);
    if (!words_split(&w, line, r)) return false;
    p->backward = strcmp(w.op, "hstu_backward") == 0;
    if (strcmp(w.op, "hstu") != 0 && !p->backward) {
        refuse(r, "'%.60s': unknown operator, expected hstu or hstu_backward", w.op);
        goto fail;
    }
    strcpy(p->op, w.op);
    p->dtype = PTL_F32;
    p->h = p->mask_batch = p->mask_head = p->bias_batch = p->bias_head = 1;
    p->thresholds = 8;
    p->bias_scale = NAN;
    p->b = p->hk = p->d = p->dv = p->sq = p->sk = UNSET;
    p->index = PTL_I64;
    p->window_left = p->max_seqlen_q = p->max_seqlen_k = -1;
    p->target_group_size = 1;
    p->mask_density = 0.5;
    p->alpha = NAN;
    p->seed = 1;
    for (int i = 0; i < w.n; i++)
        if (!read_word(p, w.word[i].key, w.word[i].value, r)) goto fail;
    if (!complete(p, &w, r)) goto fail;
    words_free(&w);
    return true;
fail:
    words_free(&w);
    problem_line_free(p);
    return false;
}

void problem_line_free(struct problem_line *p) {
    for (size_t i = 0; i < sizeof per_seq / sizeof per_seq[0]; i++) {
        struct seq_numbers *x = (void *)((char *)p + per_seq[i].offset);
        free(x->list);
        x->list = NULL;
    }
}
