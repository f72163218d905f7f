/* Makes the arguments of a problem line: lengths drawn, arrays laid out as the view says, contents
 * seeded. A row's contents depend on the seed and its place (sequence, row, head) alone, so lines
 * that differ in layout, view, padding or batch hold the same numbers. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../ref/elements.h"
#include "problem_build.h"
#include "problem_memory.h"
#include "tensors.h"

/* ---- Lengths --------------------------------------------------------------------------------- */

struct random_stream stream_of(const struct builder *w, enum purpose purpose, int64_t b) {
    return random_stream_at(w->line->seed, purpose, b, 0, 0);
}

/* Lengths of one sequence. Drawn ones are made to fit the rule, listed ones are refused. */
static bool draw_lengths(const struct builder *w, int64_t b, struct seq *s) {
    const struct problem_line *p = w->line;
    s->room_q = p->lengths.kind ? draw_number(&p->lengths, stream_of(w, OF_LENGTHS, b), b) : p->sq;
    s->room_k = p->lengths_k.kind ? draw_number(&p->lengths_k, stream_of(w, OF_LENGTHS_K, b), b)
                : p->sk >= 0      ? p->sk
                                  : s->room_q;
    if (w->queries_fit && is_drawn(&p->lengths_k) && s->room_k < s->room_q) s->room_k = s->room_q;

    s->uq = p->seqused_q.kind == SEQ_LIST ? p->seqused_q.list[b] : s->room_q;
    s->uk = p->seqused_k.kind == SEQ_LIST ? p->seqused_k.list[b] : s->room_k;
    const bool drawn_q = p->seqused_q.kind == SEQ_RANDOM;
    if (p->seqused_k.kind == SEQ_RANDOM) {
        struct random_stream stream = stream_of(w, OF_USED_K, b);
        s->uk = random_between(&stream, w->queries_fit && !drawn_q ? least(s->uq, s->room_k) : 0,
                               s->room_k);
    }
    if (drawn_q) {
        struct random_stream stream = stream_of(w, OF_USED_Q, b);
        s->uq = random_between(&stream, 0, w->queries_fit ? least(s->room_q, s->uk) : s->room_q);
    }
    if (s->uq > s->room_q || s->uk > s->room_k)
        return refuse(
            w->refusal, "%s: %" PRId64 " for sequence %" PRId64 ", expected 0 to %" PRId64,
            s->uq > s->room_q ? "seqused_q" : "seqused_k", s->uq > s->room_q ? s->uq : s->uk, b,
            s->uq > s->room_q ? s->room_q : s->room_k);
    if (w->queries_fit && s->uq > s->uk)
        return refuse(w->refusal,
                      "lengths: %" PRId64 " queries in sequence %" PRId64 ", more than its %" PRId64
                      " keys; only rule=none, mask and intervals take that%s",
                      s->uq, b, s->uk,
                      p->time_table || (p->bias && p->bias_rows == PTL_HSTU_BIAS_KEY)
                          ? ", without time_table and bias_rows=key"
                          : "");
    return true;
}

static bool draw_sequences(struct builder *w) {
    const struct problem_line *p = w->line;
    struct seq at = {0};
    w->seqs = calloc((size_t)p->b + 1, sizeof *w->seqs);
    if (!w->seqs) return refuse(w->refusal, "b: no memory for %" PRId64 " sequences", p->b);
    for (int64_t b = 0; b < p->b; b++) {
        w->seqs[b] = at;
        if (!draw_lengths(w, b, &w->seqs[b])) return false;
        at.first_q += w->seqs[b].room_q;
        at.first_k += w->seqs[b].room_k;
    }
    w->seqs[p->b] = at;
    return true;
}

int64_t longest(const struct builder *w, bool keys) {
    int64_t n = 0;
    for (int64_t b = 0; b < w->line->b; b++) {
        const int64_t length = keys ? w->seqs[b].uk : w->seqs[b].uq;
        if (length > n) n = length;
    }
    return n;
}

int64_t max_rows(const struct builder *w, bool keys) {
    const struct problem_line *p = w->line;
    const int64_t given = keys ? p->max_seqlen_k : p->max_seqlen_q;
    if (given >= 0) return given;
    return p->dense ? (keys ? p->sk : p->sq) : longest(w, keys);
}

/* ---- Arrays ---------------------------------------------------------------------------------- */

bool take(struct builder *w, const char *name, enum ptl_dtype dtype, int ndim, const int64_t *shape,
          struct ptl_tensor *t) {
    return problem_memory_tensor(w->memory, name, dtype, ndim, shape, t, w->refusal);
}

bool take_rows(struct builder *w, const char *name, const struct rows_shape *x,
               struct ptl_tensor *t) {
    const bool dense = x->batch >= 0;
    const int64_t shape[4] = {x->batch, x->rows, x->heads, x->dim};
    const enum ptl_dtype dtype = w->line->dtype;
    const int ndim = dense ? 4 : 3;
    int64_t n_rows, n;
    if (__builtin_mul_overflow(x->rows, dense ? x->batch : 1, &n_rows) ||
        __builtin_mul_overflow(n_rows, x->heads * x->dim + GAP, &n))
        return refuse(w->refusal, "%s: more than 2^63 elements", name);
    n = n_rows * x->heads * x->dim;
    if (w->line->view == VIEW_GAP && n > 0) n += (n_rows - 1) * GAP;
    if (!take(w, name, dtype, 1, &n, t)) return false;
    *t = ptl_tensor_contiguous(t->data, dtype, ndim, shape + 4 - ndim);
    int64_t *stride = t->stride + ndim - 3; /* of rows, heads */
    if (w->line->view == VIEW_GAP) {
        stride[0] += GAP;
        if (dense) t->stride[0] = x->rows * stride[0];
    } else if (w->line->view == VIEW_BHSD) {
        stride[0] = x->dim;
        stride[1] = x->rows * x->dim;
    }
    return true;
}

/* Three arrays as column blocks of one buffer of rows [u | v | q | k]. */
static bool take_uvqk(struct builder *w, const char *name, int64_t rows, struct ptl_tensor *v,
                      struct ptl_tensor *q, struct ptl_tensor *k) {
    const struct problem_line *p = w->line;
    const int64_t width = 2 * p->h * (p->dv + p->d);
    const int64_t shape[2] = {p->dense ? p->b * rows : rows, width};
    struct ptl_tensor buffer;
    if (!take(w, name, p->dtype, 2, shape, &buffer)) return false;
    struct ptl_tensor *const parts[3] = {v, q, k};
    int64_t column = p->h * p->dv;
    for (int i = 0; i < 3; i++) {
        const int64_t dim = i == 0 ? p->dv : p->d;
        const int64_t extents[4] = {p->b, rows, p->h, dim};
        const int ndim = p->dense ? 4 : 3;
        const int64_t begin = buffer.shape[0] > 0 ? column : 0;
        *parts[i] =
            ptl_tensor_contiguous((char *)buffer.data + begin * (int64_t)ptl_dtype_bytes(p->dtype),
                                  p->dtype, ndim, extents + 4 - ndim);
        parts[i]->stride[ndim - 3] = width;
        if (p->dense) parts[i]->stride[0] = rows * width;
        column += p->h * dim;
    }
    return true;
}

void store(const struct ptl_tensor *t, int64_t at, const float *x, int64_t n) {
    if (t->dtype == PTL_F32) memcpy((float *)t->data + at, x, (size_t)n * sizeof *x);
    else
        for (int64_t i = 0; i < n; i++) ref_write(t->dtype, t->data, at + i, (double)x[i]);
}

void fill(struct random_stream *s, const struct ptl_tensor *t, int64_t at, int64_t n) {
    float x[64]; /* even: the stream gives numbers in pairs */
    for (int64_t done = 0; done < n; done += 64) {
        const int64_t count = least(64, n - done);
        random_fill(s, x, count);
        store(t, at + done, x, count);
    }
}

/* Contents of the query rows that are used. */
static void fill_queries(const struct builder *w, enum purpose purpose,
                         const struct ptl_tensor *t) {
    const int64_t heads = t->shape[t->ndim - 2], dim = t->shape[t->ndim - 1];
    const int64_t *stride = t->stride + t->ndim - 3;
    for (int64_t b = 0; b < w->line->b; b++) {
        const struct seq *s = &w->seqs[b];
        const int64_t first = w->line->dense ? b * t->stride[0] : s->first_q * stride[0];
        for (int64_t i = 0; i < s->uq; i++)
            for (int64_t head = 0; head < heads; head++) {
                struct random_stream stream = random_stream_at(w->line->seed, purpose, b, i, head);
                fill(&stream, t, first + i * stride[0] + head * stride[1], dim);
            }
    }
}

/* Rows of queries, of keys, and the heads and dims of an array. */
static struct rows_shape shape_of(const struct builder *w, bool keys, int64_t heads, int64_t dim) {
    const struct problem_line *p = w->line;
    const struct seq *end = &w->seqs[p->b];
    const bool own = keys && !p->page_size; /* paged keys: new rows lie beside the queries */
    if (p->dense) return (struct rows_shape){p->b, keys ? p->sk : p->sq, heads, dim};
    return (struct rows_shape){-1, (own ? end->first_k : end->first_q) + p->pad, heads, dim};
}

static bool take_qkv(struct builder *w, const char *const names[4], struct ptl_tensor *q,
                     struct ptl_tensor *k, struct ptl_tensor *v) {
    const struct problem_line *p = w->line;
    const struct rows_shape sq = shape_of(w, false, p->h, p->d),
                            sk = shape_of(w, true, p->hk, p->d);
    const struct rows_shape sv = shape_of(w, true, p->hk, p->dv);
    if (p->view != VIEW_UVQK)
        return take_rows(w, names[0], &sq, q) && take_rows(w, names[1], &sk, k) &&
               take_rows(w, names[2], &sv, v);
    for (int64_t b = 0; b <= p->b && !p->page_size; b++)
        if (w->seqs[b].first_q != w->seqs[b].first_k || sq.rows != sk.rows)
            return refuse(w->refusal, "view: uvqk, expected the same rows for queries and keys");
    return take_uvqk(w, names[3], sq.rows, v, q, k);
}

static bool make_qkv(struct builder *w) {
    static const char *const names[4] = {"q", "k", "v", "q, k, v"};
    const struct problem_line *p = w->line;
    struct ptl_hstu_params *a = w->out;
    const struct rows_shape out = shape_of(w, false, p->h, p->dv);
    if (!take_qkv(w, names, &a->q, &a->k, &a->v)) return false;
    if (p->page_size && !make_pages(w)) return false;
    fill_queries(w, OF_Q, &a->q);
    fill_keys(w, OF_K, &a->k, &a->k_pages);
    fill_keys(w, OF_V, &a->v, &a->v_pages);
    return p->backward || take_rows(w, "out", &out, &a->out);
}

/* A gradient with the shape and strides of what it is of. */
static bool take_like(struct builder *w, const char *name, const struct ptl_tensor *of,
                      struct ptl_tensor *t) {
    int64_t n = 1;
    if (!of->data) return true;
    for (int axis = 0; axis < of->ndim; axis++) n += (of->shape[axis] - 1) * of->stride[axis];
    for (int axis = 0; axis < of->ndim; axis++)
        if (of->shape[axis] == 0) n = 0;
    if (!take(w, name, of->dtype, 1, &n, t)) return false;
    void *data = t->data;
    *t = *of;
    t->data = data;
    return true;
}

static bool make_grads(struct builder *w) {
    static const char *const names[4] = {"dq", "dk", "dv", "dq, dk, dv"};
    const struct problem_line *p = w->line;
    const struct ptl_hstu_params *a = w->out;
    struct ptl_hstu_grads *g = &w->problem->grads;
    const struct rows_shape dout = shape_of(w, false, p->h, p->dv);
    const int64_t ds[2] = {p->b, dout.rows};
    ptl_hstu_grads_init(g);
    if (!p->backward) return true;
    if (!take_rows(w, "dout", &dout, &g->dout) || !take_qkv(w, names, &g->dq, &g->dk, &g->dv) ||
        !take_like(w, "dbias", &a->attn_bias, &g->dbias) ||
        !take_like(w, "dpos_table", &a->pos_table, &g->dpos_table) ||
        !take_like(w, "dtime_table", &a->time_table, &g->dtime_table))
        return false;
    fill_queries(w, OF_DOUT, &g->dout);
    return !p->ds || take(w, "ds", PTL_F32, p->dense ? 2 : 1, ds + !p->dense, &g->ds);
}

/* ---- Index arrays ---------------------------------------------------------------------------- */

bool put_index(const struct builder *w, const char *name, struct ptl_tensor *t, int64_t i,
               int64_t value) {
    if (t->dtype == PTL_I64) ((int64_t *)t->data)[i] = value;
    else if (value <= INT32_MAX) ((int32_t *)t->data)[i] = (int32_t)value;
    else return refuse(w->refusal, "%s: %" PRId64 " does not fit index=i32", name, value);
    return true;
}

static bool make_offsets(struct builder *w, const char *name, bool keys, struct ptl_tensor *t) {
    const int64_t n = w->line->b + 1;
    if (!take(w, name, w->line->index, 1, &n, t)) return false;
    for (int64_t b = 0; b < n; b++)
        if (!put_index(w, name, t, b, keys ? w->seqs[b].first_k : w->seqs[b].first_q)) return false;
    return true;
}

static bool make_used(struct builder *w, const char *name, bool keys, struct ptl_tensor *t) {
    if (!take(w, name, w->line->index, 1, &w->line->b, t)) return false;
    for (int64_t b = 0; b < w->line->b; b++)
        if (!put_index(w, name, t, b, keys ? w->seqs[b].uk : w->seqs[b].uq)) return false;
    return true;
}

static bool make_sequences(struct builder *w) {
    const struct problem_line *p = w->line;
    struct ptl_hstu_params *a = w->out;
    const bool own_keys =
        !p->page_size && (p->lengths_k.kind || (p->sk >= 0 && (p->lengths.kind || p->sk != p->sq)));
    if (!p->dense && !make_offsets(w, "seq_offsets_q", false, &a->seq_offsets_q)) return false;
    if (!p->dense && own_keys && !make_offsets(w, "seq_offsets_k", true, &a->seq_offsets_k))
        return false;
    if (p->seqused_q.kind && !make_used(w, "seqused_q", false, &a->seqused_q)) return false;
    return !p->seqused_k.kind || make_used(w, "seqused_k", true, &a->seqused_k);
}

/* num_contexts or num_targets. Drawn targets never exceed the keys. */
static bool make_specials(struct builder *w, const char *name, const struct seq_numbers *x,
                          enum purpose purpose, struct ptl_tensor *t) {
    const bool one = x->kind == SEQ_NUMBER;
    if (x->kind == SEQ_ABSENT) return true;
    if (!take(w, name, w->line->index, one ? 0 : 1, &w->line->b, t)) return false;
    for (int64_t b = 0; b < (one ? 1 : w->line->b); b++) {
        struct seq_numbers fitting = *x;
        if (x->kind == SEQ_RANDOM && purpose == OF_TARGETS)
            fitting.high = least(x->high, w->line->page_size ? least(w->seqs[b].uk, w->seqs[b].uq)
                                                             : w->seqs[b].uk);
        if (!put_index(w, name, t, b, draw_number(&fitting, stream_of(w, purpose, b), b)))
            return false;
    }
    return true;
}

/* ---- Scale ----------------------------------------------------------------------------------- */

static bool make_scale(struct builder *w) {
    const struct problem_line *p = w->line;
    struct ptl_hstu_params *a = w->out;
    const int64_t rows = p->dense ? p->sq : w->seqs[p->b].first_q + p->pad;
    const int64_t shape[2] = {p->b, rows};
    const int64_t n = longest(w, false) > 0 ? longest(w, false) : 1;
    if (p->scale == SCALE_SEQLEN) {
        a->scaling_seqlen = p->scaling_seqlen ? p->scaling_seqlen : n;
        return true;
    }
    const int ndim = p->scale == SCALE_NUMBER ? 0 : p->dense ? 2 : 1;
    if (!take(w, "attn_scale", PTL_F32, ndim, shape + (ndim == 1), &a->attn_scale)) return false;
    float *scale = a->attn_scale.data;
    if (ndim == 0) *scale = (float)p->attn_scale;
    for (int64_t b = 0; ndim > 0 && b < p->b; b++) {
        const struct seq *s = &w->seqs[b];
        struct random_stream stream = stream_of(w, OF_SCALE, b);
        float *row = scale + (p->dense ? b * rows : s->first_q);
        random_fill(&stream, row, s->uq);
        for (int64_t i = 0; i < s->uq; i++) row[i] *= 2.0f / (float)n;
    }
    return true;
}

/* ---- Problems -------------------------------------------------------------------------------- */

static bool build(struct builder *w) {
    const struct problem_line *p = w->line;
    struct ptl_hstu_params *a = w->out;
    ptl_hstu_params_init(a);
    a->alpha = (float)p->alpha;
    a->bias_scale = (float)p->bias_scale;
    a->bias_rows = p->bias_rows;
    a->time_query = p->time_query;
    a->max_seqlen_q = p->max_seqlen_q;
    a->max_seqlen_k = p->max_seqlen_k;
    a->window_left = p->window_left;
    a->window_right = p->window_right;
    a->target_group_size = p->target_group_size;
    a->min_full_attn_seq_len = p->min_full_attn_seq_len;
    return draw_sequences(w) &&
           make_specials(w, "num_contexts", &p->num_contexts, OF_CONTEXTS, &a->num_contexts) &&
           make_specials(w, "num_targets", &p->num_targets, OF_TARGETS, &a->num_targets) &&
           make_qkv(w) && make_sequences(w) && make_mask(w) && make_intervals(w) && make_bias(w) &&
           make_tables(w) && make_scale(w) && make_grads(w);
}

bool problem_create(struct problem *p, const char *line, unsigned flags, char *error,
                    size_t error_size) {
    struct refusal refusal = {error, error_size};
    struct problem_line parsed;
    memset(p, 0, sizeof *p);
    if (!problem_line_parse(&parsed, line, &refusal)) return false;
    p->memory = problem_memory_create(flags & PROBLEM_GUARD);
    if (!p->memory) {
        problem_line_free(&parsed);
        return refuse(&refusal, "problem: no memory");
    }
    strcpy(p->op, parsed.op);
    p->threads = parsed.run.threads;
    p->isa = parsed.run.isa;
    p->executor = parsed.run.executor;
    p->cold = parsed.run.cold;
    p->seed = parsed.seed;

    struct builder w = {
        .line = &parsed, .problem = p, .out = &p->hstu, .memory = p->memory, .refusal = &refusal};
    w.queries_fit =
        (parsed.mask == MASK_RULE && (parsed.window_left >= 0 || parsed.window_right >= 0)) ||
        parsed.time_table || (parsed.bias && parsed.bias_rows == PTL_HSTU_BIAS_KEY);
    const bool ok = build(&w);
    free(w.seqs);
    problem_line_free(&parsed);
    if (!ok) problem_destroy(p);
    return ok;
}

void problem_destroy(struct problem *p) {
    problem_memory_destroy(p->memory);
    memset(p, 0, sizeof *p);
}
