/* Generated calls. HSTU problems are made by problem.c; the copies around them take their sequences
 * and contents from an HSTU problem of the same words, so that lengths, dtype, view and seed mean
 * the same. */
#define _POSIX_C_SOURCE 200809L
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "call.h"
#include "problem_memory.h"
#include "problem_nsa_line.h"
#include "random.h"
#include "tensors.h"

enum purpose { OF_CACHED = 200, OF_PAGES, OF_TABLES, OF_TIMES }; /* apart from those of problem.c */

/* ---- The HSTU problem behind it -------------------------------------------------------------- */

static void add_word(struct words *w, const char *key, const char *value) {
    if (w->n == WORDS_MAX) return;
    w->word[w->n].key = key;
    w->word[w->n++].value = value;
}

static bool create_problem(struct call *c, const struct words *w, const char *op,
                           struct refusal *r) {
    struct words renamed = *w; /* shares the text, which it does not change */
    if (wants(c, "ds") && !words_find(w, "ds")) add_word(&renamed, "ds", "1");
    renamed.op = op;
    char *line = words_join(&renamed);
    if (!line) return refuse(r, "line: no memory");
    const bool ok = problem_create(&c->problem, line, 0, r->text, r->size);
    free(line);
    if (ok) strcpy(c->problem.op, c->op->name);
    return ok;
}

bool generate_hstu(struct call *c, const struct words *w, struct refusal *r) {
    return create_problem(c, w, c->op->name, r);
}

static bool take_integer(struct words *w, const char *key, int64_t low, int64_t high,
                         int64_t *value, struct refusal *r) {
    const char *text = words_find(w, key);
    if (!text) return true;
    if (!read_integer(key, text, low, high, value, r)) return false;
    words_remove(w, key);
    return true;
}

static bool take_choice(struct words *w, const char *key, const char *const *names, int *choice,
                        struct refusal *r) {
    const char *text = words_find(w, key);
    if (!text) return true;
    if (!read_choice(key, text, names, choice, r)) return false;
    words_remove(w, key);
    return true;
}

static void rename_word(struct words *w, const char *from, const char *to) {
    for (int i = 0; i < w->n; i++)
        if (strcmp(w->word[i].key, from) == 0) w->word[i].key = to;
}

/* ---- Appending to pages ---------------------------------------------------------------------- */

/* Page lists in shuffled order, as after some time of serving. */
static void fill_page_ids(const struct call *c, const struct ptl_tensor *ids) {
    struct random_stream s = random_stream_at(c->problem.seed, OF_PAGES, 0, 0, 0);
    const int64_t n = ids->shape[0];
    for (int64_t i = 0; i < n; i++) put_index_at(ids, i, i);
    for (int64_t i = n - 1; i > 0; i--) {
        const int64_t j = random_between(&s, 0, i), id = index_at(ids, i);
        put_index_at(ids, i, index_at(ids, j));
        put_index_at(ids, j, id);
    }
}

static bool make_pages(struct call *c, int64_t page_size, int64_t cached, bool drawn,
                       struct refusal *r) {
    struct ptl_hstu_kv_append_params *a = &c->append;
    const enum ptl_dtype index = a->seq_offsets.dtype;
    const int64_t n_seqs = a->seq_offsets.shape[0] - 1, n_offsets = n_seqs + 1;
    if (!call_take(c, "n_cached", index, 1, &n_seqs, &a->n_cached, r) ||
        !call_take(c, "page_offsets", index, 1, &n_offsets, &a->page_offsets, r))
        return false;
    int64_t n_pages = 0;
    put_index_at(&a->page_offsets, 0, 0);
    for (int64_t b = 0; b < n_seqs; b++) {
        struct random_stream s = random_stream_at(c->problem.seed, OF_CACHED, b, 0, 0);
        const int64_t n = drawn ? random_between(&s, 0, cached) : cached;
        const int64_t rows = index_at(&a->seq_offsets, b + 1) - index_at(&a->seq_offsets, b);
        put_index_at(&a->n_cached, b, n);
        n_pages += (n + rows + page_size - 1) / page_size;
        put_index_at(&a->page_offsets, b + 1, n_pages);
    }
    const struct ptl_tensor *const rows[2] = {&a->k, &a->v};
    struct ptl_tensor *const pages[2] = {&a->k_pages, &a->v_pages};
    static const char *const names[2] = {"k_pages", "v_pages"};
    for (int i = 0; i < 2; i++) {
        const int64_t shape[4] = {n_pages, page_size, rows[i]->shape[1], rows[i]->shape[2]};
        if (!call_take(c, names[i], rows[i]->dtype, 4, shape, pages[i], r)) return false;
    }
    if (!call_take(c, "page_ids", index, 1, &n_pages, &a->page_ids, r)) return false;
    fill_page_ids(c, &a->page_ids);
    return true;
}

bool generate_kv_append(struct call *c, const struct words *w, struct refusal *r) {
    struct words rest = *w;
    struct ptl_hstu_kv_append_params *a = &c->append;
    int64_t page_size = 32, cached = 0;
    const char *text = words_find(w, "n_cached"),
               *most = text ? after_prefix(text, "random:") : NULL;
    if (!take_integer(&rest, "page_size", 1, LINE_MAX_ROWS, &page_size, r)) return false;
    if (text && !read_integer("n_cached", most ? most : text, 0, LINE_MAX_ROWS, &cached, r))
        return false;
    words_remove(&rest, "n_cached");
    if (!create_problem(c, &rest, "hstu", r)) return false;
    const struct ptl_hstu_params *hstu = &c->problem.hstu;
    if (hstu->k.ndim != 3) return refuse(r, "layout: dense, expected jagged");
    a->k = hstu->k;
    a->v = hstu->v;
    a->seq_offsets = hstu->seq_offsets_k.data ? hstu->seq_offsets_k : hstu->seq_offsets_q;
    a->num_targets = hstu->num_targets;
    return make_pages(c, page_size, cached, most != NULL, r);
}

/* ---- Jagged copies --------------------------------------------------------------------------- */

/* Rows [T, d] of q or k with one head. */
static struct ptl_tensor as_rows(const struct ptl_tensor *t) {
    struct ptl_tensor rows = *t;
    rows.ndim = 2;
    rows.shape[1] = t->shape[2];
    rows.stride[1] = 1;
    return rows;
}

/* n zero rows, or n_seqs times n of them, like those of x. */
static bool take_output(struct call *c, const char *key, const struct ptl_tensor *x, int64_t n_seqs,
                        int64_t n, struct ptl_tensor *t, struct refusal *r) {
    const int64_t shape[3] = {n_seqs, n, x->shape[1]};
    const int skip = n_seqs < 0;
    return call_take(c, key, x->dtype, 3 - skip, shape + skip, t, r);
}

static int64_t longest_of(const struct ptl_tensor *offsets) {
    int64_t n = 0;
    for (int64_t b = 0; b + 1 < offsets->shape[0]; b++) {
        const int64_t length = index_at(offsets, b + 1) - index_at(offsets, b);
        if (length > n) n = length;
    }
    return n;
}

static bool make_resize(struct call *c, bool to_padded, struct refusal *r) {
    struct jagged_arguments *a = &c->jagged;
    const struct ptl_hstu_params *hstu = &c->problem.hstu;
    const struct ptl_jagged jagged = {as_rows(&hstu->q), hstu->seq_offsets_q};
    const int64_t n_seqs = jagged.offsets.shape[0] - 1;
    const int64_t n = a->n >= 0 ? a->n : longest_of(&jagged.offsets);
    *(to_padded ? &a->x : &a->out) = jagged;
    struct ptl_tensor *dense = to_padded ? &a->out.values : &a->x.values;
    return take_output(c, to_padded ? "out" : "x", &jagged.values, n_seqs, n, dense, r);
}

/* left and right, whose rows go into one array or come from it. */
static bool make_sides(struct call *c, struct ptl_tensor *whole, struct refusal *r) {
    struct jagged_arguments *a = &c->jagged;
    const struct ptl_hstu_params *hstu = &c->problem.hstu;
    a->right = (struct ptl_jagged){as_rows(&hstu->q), hstu->seq_offsets_q};
    a->left = (struct ptl_jagged){
        as_rows(&hstu->k), hstu->seq_offsets_k.data ? hstu->seq_offsets_k : hstu->seq_offsets_q};
    const int64_t rows = a->left.values.shape[0] + a->right.values.shape[0];
    return take_output(c, "out", &a->right.values, -1, rows, whole, r);
}

/* Rows of d numbers: as of one head. */
static bool check_one_head(const struct call *c, struct refusal *r) {
    const struct ptl_tensor *q = &c->problem.hstu.q;
    if (q->ndim != 3) return refuse(r, "layout: dense, expected jagged");
    if (q->shape[1] == 1) return true;
    return refuse(r, "h: %" PRId64 ", expected 1; rows have d numbers", q->shape[1]);
}

bool generate_jagged(struct call *c, const struct words *w, struct refusal *r) {
    static const char *const ends[] = {"start", "end", NULL};
    const bool to_padded = strcmp(c->op->name, "jagged_to_padded") == 0;
    const bool to_jagged = strcmp(c->op->name, "padded_to_jagged") == 0;
    struct jagged_arguments *a = &c->jagged;
    struct words rest = *w;
    int align = 0;
    if (to_padded || to_jagged) {
        if (!take_integer(&rest, "n", 0, LINE_MAX_ROWS, &a->n, r) ||
            !take_choice(&rest, "align", ends, &align, r))
            return false;
        a->align = (enum ptl_jagged_align)align;
    } else {
        if (!take_integer(&rest, "n_prefix", 0, INT64_MAX, &a->n_prefix, r)) return false;
        rename_word(&rest, "lengths_left", "lengths_k");
        rename_word(&rest, "lengths_right", "lengths");
        if (!words_find(&rest, "rule")) add_word(&rest, "rule", "none");
    }
    if (!create_problem(c, &rest, "hstu", r)) return false;
    if (!check_one_head(c, r)) return false;
    if (to_padded || to_jagged) return make_resize(c, to_padded, r);
    return make_sides(c, strcmp(c->op->name, "concat_jagged") == 0 ? &a->out.values : &a->x.values,
                      r);
}

/* ---- Position and time embedding ------------------------------------------------------------- */

static bool take_table(struct call *c, const char *key, int64_t rows, int64_t columns, bool filled,
                       struct ptl_tensor *t, struct refusal *r) {
    const int64_t shape[2] = {rows, columns};
    struct random_stream s = random_stream_at(c->problem.seed, OF_TABLES, rows, 0, 0);
    if (!call_take(c, key, PTL_F32, 2, shape, t, r)) return false;
    if (filled) random_fill(&s, t->data, rows * columns);
    return true;
}

/* Minutes to hours between the events of a sequence. */
static bool make_times(struct call *c, struct refusal *r) {
    struct ptl_jagged_position_time_params *a = &c->position_time;
    const int64_t rows = c->problem.hstu.q.shape[0];
    struct random_stream s = random_stream_at(c->problem.seed, OF_TIMES, 0, 0, 0);
    if (!call_take(c, "timestamps", PTL_I64, 1, &rows, &a->timestamps, r)) return false;
    int64_t now = 1700000000;
    for (int64_t i = 0; i < rows; i++)
        ((int64_t *)a->timestamps.data)[i] = now += random_between(&s, 0, 20000);
    return true;
}

bool generate_position_time(struct call *c, const struct words *w, struct refusal *r) {
    static const char *const orders[] = {"from_end", "from_start", NULL};
    static const char *const buckets[] = {"sqrt", "log", NULL};
    const bool backward = strcmp(c->op->name, "position_time_backward") == 0;
    struct ptl_jagged_position_time_params *a = &c->position_time;
    struct words rest = *w;
    int64_t n_positions = 8192, n_buckets = 2048;
    int order = 0, bucket = 0;
    if (!take_integer(&rest, "positions", 1, LINE_MAX_ROWS, &n_positions, r) ||
        !take_integer(&rest, "buckets", 0, LINE_MAX_ROWS, &n_buckets, r) ||
        !take_choice(&rest, "position_order", orders, &order, r) ||
        !take_choice(&rest, "time_bucket", buckets, &bucket, r) ||
        !create_problem(c, &rest, "hstu", r))
        return false;
    const struct ptl_hstu_params *hstu = &c->problem.hstu;
    if (!check_one_head(c, r)) return false;
    const struct ptl_tensor x = as_rows(&hstu->q), out = as_rows(&hstu->out);
    a->seq_offsets = hstu->seq_offsets_q;
    a->num_targets = hstu->num_targets;
    a->num_contexts = hstu->num_contexts;
    a->position_order = (enum ptl_jagged_position_order)order;
    a->time_bucket = (enum ptl_jagged_time_bucket)bucket;
    a->alpha = hstu->alpha;
    *(backward ? &a->dout : &a->emb) = x;
    *(backward ? &a->demb : &a->out) = out;
    return take_table(c, "pos_w", n_positions, x.shape[1], !backward,
                      backward ? &a->dpos_w : &a->pos_w, r) &&
           take_table(c, "ts_w", n_buckets + 1, x.shape[1], !backward,
                      backward ? &a->dts_w : &a->ts_w, r) &&
           make_times(c, r);
}

/* ---- NSA ------------------------------------------------------------------------------------- */

/* Outputs that are off unless the line asks for them, or names them. */
static void switch_on(const struct call *c, struct nsa_line *line) {
    static const char *const branches[] = {"out_cmp", "out_slc", "out_swa",
                                           "lse_cmp", "lse_slc", "lse_swa"};
    line->importance |= wants(c, "importance");
    for (size_t i = 0; i < sizeof branches / sizeof branches[0]; i++)
        line->branches |= wants(c, branches[i]);
}

bool generate_nsa(struct call *c, const struct words *w, struct refusal *r) {
    struct nsa_line line;
    if (!nsa_line_read(&line, w, r)) return false;
    strcpy(c->problem.op, c->op->name);
    c->problem.seed = line.seed;
    call_set_run(c, &line.run);
    switch_on(c, &line);
    c->problem.memory = problem_memory_create(false);
    const bool ok = c->problem.memory
                        ? nsa_problem_make(&c->nsa, w->op, &line, c->problem.memory, r)
                        : refuse(r, "line: no memory");
    nsa_line_free(&line);
    return ok;
}
