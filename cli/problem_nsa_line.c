/* Reads generated lines of NSA operators: tables of keys, then the defaults. Whether the library
 * takes the combination is left to the library. */
#include "problem_nsa_line.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { UNSET = -1, DECODE_PAGE = 64 };

#define PLACE(p, offset, type) ((type *)((char *)(p) + (offset)))

static const struct {
    const char *key;
    size_t offset; /* of an int64_t */
    int64_t low, high;
} counts[] = {
#define COUNT(key, low, high)                                                                      \
    { #key, offsetof(struct nsa_line, key), low, high }
    COUNT(b, 0, LINE_MAX_SEQS),
    COUNT(h, 1, LINE_MAX_HEADS),
    COUNT(hk, 1, LINE_MAX_HEADS),
    COUNT(d, 1, LINE_MAX_DIM),
    COUNT(dv, 1, LINE_MAX_DIM),
    COUNT(sk, 0, LINE_MAX_ROWS),
    COUNT(sq, 0, LINE_MAX_ROWS),
    COUNT(page_size, 0, LINE_MAX_ROWS),
    COUNT(block, 1, LINE_MAX_ROWS),
    COUNT(stride, 1, LINE_MAX_ROWS),
    COUNT(select_block, 1, LINE_MAX_ROWS),
    COUNT(topk, 0, LINE_MAX_ROWS),
    COUNT(n_init, 0, LINE_MAX_ROWS),
    COUNT(n_local, 0, LINE_MAX_ROWS),
    COUNT(window, 0, LINE_MAX_ROWS),
    COUNT(dense_len, 0, LINE_MAX_ROWS),
#undef COUNT
    {"s", offsetof(struct nsa_line, sk), 0, LINE_MAX_ROWS},
};

static const char *const dtypes[] = {"f32", "f16", "bf16", NULL};
static const char *const indexes[] = {"i32", "i64", NULL};
static const char *const scores[] = {"overlap", "plus", "ascend", NULL};
static const char *const pools[] = {"sum", "max", NULL};
static const char *const orders[] = {"index", "score", NULL};
static const char *const gate_acts[] = {"none", "sigmoid", NULL};
static const char *const modes[] = {"mean", "weighted", NULL};

static const struct {
    const char *key;
    size_t offset; /* of an enum */
    const char *const *names;
    int first; /* the enumerator of names[0] */
} choices[] = {
#define CHOICE(key, names, first)                                                                  \
    { #key, offsetof(struct nsa_line, key), names, first }
    CHOICE(dtype, dtypes, PTL_F32), CHOICE(index, indexes, PTL_I32),
    CHOICE(score, scores, 0),       CHOICE(pool, pools, 0),
    CHOICE(order, orders, 0),       CHOICE(score_dtype, dtypes, PTL_F32),
    CHOICE(gate_act, gate_acts, 0), CHOICE(mode, modes, 0),
#undef CHOICE
};

static const struct {
    const char *key;
    size_t offset; /* of a bool */
} switches[] = {
#define SWITCH(key)                                                                                \
    { #key, offsetof(struct nsa_line, key) }
    SWITCH(pe),  SWITCH(kc),  SWITCH(q_cmp),      SWITCH(k_swa),    SWITCH(out),
    SWITCH(lse), SWITCH(idx), SWITCH(importance), SWITCH(branches),
#undef SWITCH
};

enum {
    N_COUNTS = sizeof counts / sizeof counts[0],
    N_CHOICES = sizeof choices / sizeof choices[0]
};
enum { N_SWITCHES = sizeof switches / sizeof switches[0] };

static bool read_layout(struct nsa_line *p, const char *value, struct refusal *r) {
    static const char *const layouts[] = {"jagged", "dense", NULL};
    int choice = 0;
    if (!read_choice("layout", value, layouts, &choice, r)) return false;
    p->dense = choice == 1;
    return true;
}

static bool read_word(struct nsa_line *p, const char *key, const char *value, const char *op,
                      struct refusal *r) {
    static const char *const off_on[] = {"0", "1", NULL};
    int choice = 0;
    int64_t seed;
    bool known;
    for (int i = 0; i < N_COUNTS; i++)
        if (strcmp(key, counts[i].key) == 0)
            return read_integer(key, value, counts[i].low, counts[i].high,
                                PLACE(p, counts[i].offset, int64_t), r);
    for (int i = 0; i < N_CHOICES; i++)
        if (strcmp(key, choices[i].key) == 0) {
            if (!read_choice(key, value, choices[i].names, &choice, r)) return false;
            *PLACE(p, choices[i].offset, int) = choices[i].first + choice;
            return true;
        }
    for (int i = 0; i < N_SWITCHES; i++)
        if (strcmp(key, switches[i].key) == 0) {
            if (!read_choice(key, value, off_on, &choice, r)) return false;
            *PLACE(p, switches[i].offset, bool) = choice == 1;
            return true;
        }
    if (!read_run_option(&p->run, key, value, &known, r)) return false;
    if (known) return true;
    if (strcmp(key, "lengths") == 0) return read_lengths(key, value, &p->lengths, r);
    if (strcmp(key, "lengths_q") == 0) return read_lengths(key, value, &p->lengths_q, r);
    if (strcmp(key, "layout") == 0) return read_layout(p, value, r);
    if (strcmp(key, "scale") == 0) return read_real(key, value, &p->scale, r);
    if (strcmp(key, "seed") != 0)
        return refuse(r, "%.60s: unknown key of %s, see 'pantile help nsa'", key, op);
    if (!read_integer(key, value, 0, INT64_MAX, &seed, r)) return false;
    p->seed = (uint64_t)seed;
    return true;
}

/* ---- Defaults -------------------------------------------------------------------------------- */

static void fill_in(struct nsa_line *p, const char *op) {
    const bool pages = strcmp(op, "nsa_append") == 0 || strcmp(op, "nsa_decode") == 0;
    const bool attention = strncmp(op, "attention", strlen("attention")) == 0;
    memset(p, 0, sizeof *p);
    p->dtype = p->score_dtype = PTL_F32;
    p->index = PTL_I32;
    p->b = p->h = p->hk = p->d = p->dv = p->sk = p->sq = UNSET;
    if (pages || strcmp(op, "attention_decode") == 0) p->sq = 1;
    if (pages) p->page_size = DECODE_PAGE;
    p->block = 32;
    p->stride = 16;
    p->select_block = 64;
    p->topk = 16;
    p->n_init = 1;
    p->n_local = 2;
    p->window = attention ? 0 : 512;
    p->scale = NAN;
    p->out = p->lse = p->idx = true;
    p->seed = 1;
}

static bool exclude(const struct words *w, const char *a, const char *b, struct refusal *r) {
    if (!words_find(w, a) || !words_find(w, b)) return true;
    return refuse(r, "%s: given together with %s, expected one of them", a, b);
}

static bool check_list(const char *key, const struct seq_numbers *x, int64_t b, struct refusal *r) {
    if (x->kind != SEQ_LIST || x->n == b) return true;
    return refuse(r, "%s: %" PRId64 " numbers, expected %" PRId64 " (b)", key, x->n, b);
}

static bool complete(struct nsa_line *p, const struct words *w, struct refusal *r) {
    if (!exclude(w, "sk", "s", r) || !exclude(w, "lengths", "s", r) ||
        !exclude(w, "lengths", "sk", r) || !exclude(w, "lengths_q", "sq", r))
        return false;
    if (p->d == UNSET) return refuse(r, "d: missing, expected the head size");
    if (p->sk == UNSET && p->lengths.kind == SEQ_ABSENT)
        return refuse(r, "s: missing, expected s or lengths, the tokens of each sequence");
    if (p->dense && p->lengths_q.kind)
        return refuse(r, "lengths_q: given with layout=dense, expected sq");
    if (p->dense && p->sq == UNSET && p->lengths.kind)
        return refuse(r, "sq: missing, expected it with lengths and layout=dense");
    if (p->dv == UNSET) p->dv = p->d;
    if (p->h == UNSET) p->h = p->hk == UNSET ? 1 : p->hk;
    if (p->hk == UNSET) p->hk = p->h;
    if (p->h % p->hk != 0)
        return refuse(r, "hk: %" PRId64 ", expected a divisor of h, which is %" PRId64, p->hk,
                      p->h);
    if (p->b == UNSET) p->b = p->lengths.kind == SEQ_LIST ? p->lengths.n : 1;
    if (p->b > LINE_MAX_SEQS)
        return refuse(r, "lengths: %" PRId64 " numbers, expected at most %d", p->b, LINE_MAX_SEQS);
    return check_list("lengths", &p->lengths, p->b, r) &&
           check_list("lengths_q", &p->lengths_q, p->b, r);
}

bool nsa_line_read(struct nsa_line *p, const struct words *w, struct refusal *r) {
    fill_in(p, w->op);
    bool ok = true;
    for (int i = 0; i < w->n && ok; i++)
        ok = read_word(p, w->word[i].key, w->word[i].value, w->op, r);
    if (ok && complete(p, w, r)) return true;
    nsa_line_free(p);
    return false;
}

void nsa_line_free(struct nsa_line *p) {
    free(p->lengths.list);
    free(p->lengths_q.list);
    p->lengths.list = p->lengths_q.list = NULL;
}
