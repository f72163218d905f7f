/* Makes the arguments of a problem line: lengths drawn, arrays laid out as the view says, contents
 * seeded. A row's contents depend on the seed and its place (sequence, row, head) alone, so lines
 * that differ in layout, view, padding or batch hold the same numbers. */
#include "problem.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "problem_line.h"
#include "problem_memory.h"
#include "random.h"

/* What a stream of numbers is for. */
enum purpose {
    OF_Q,
    OF_K,
    OF_V,
    OF_LENGTHS,
    OF_LENGTHS_K,
    OF_USED_Q,
    OF_USED_K,
    OF_CONTEXTS,
    OF_TARGETS,
    OF_SCALE,
    OF_MASK
};

enum { GAP = 5 }; /* floats between rows of view=gap: odd, so that rows are unaligned */

/* Deviation of the logarithm of lognormal lengths: a heavy tail, 5 % are over three times the
 * mean. */
static const double log_deviation = 1.0;

/* One sequence: rows allocated and used, for queries and for keys. */
struct seq {
    int64_t room_q, room_k, uq, uk;
    int64_t first_q, first_k; /* jagged rows before it */
};

struct builder {
    const struct problem_line *line;
    struct ptl_hstu_params *out;
    struct problem_memory *memory;
    struct refusal *refusal;
    struct seq *seqs; /* b of them, and one that ends the rows */
    bool queries_fit; /* the rule needs uq <= uk */
};

/* ---- Lengths --------------------------------------------------------------------------------- */

static struct random_stream stream_of(const struct builder *w, enum purpose purpose, int64_t b) {
    return random_stream_at(w->line->seed, purpose, b, 0, 0);
}

static int64_t draw(const struct builder *w, const struct seq_numbers *x, enum purpose purpose,
                    int64_t b) {
    struct random_stream s = stream_of(w, purpose, b);
    switch (x->kind) {
    case SEQ_NUMBER: return x->low;
    case SEQ_LIST: return x->list[b];
    case SEQ_UNIFORM: return random_between(&s, x->low, x->high);
    case SEQ_RANDOM: return random_between(&s, 0, x->high);
    case SEQ_LOGNORMAL: {
        const double center = log((double)x->low) - 0.5 * log_deviation * log_deviation;
        const double length = floor(exp(center + log_deviation * random_normal(&s)) + 0.5);
        return length < 1.0 ? 1 : length > (double)x->high ? x->high : (int64_t)length;
    }
    case SEQ_ABSENT: break;
    }
    return 0;
}

static bool is_drawn(const struct seq_numbers *x) {
    return x->kind == SEQ_UNIFORM || x->kind == SEQ_LOGNORMAL || x->kind == SEQ_RANDOM;
}

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* Lengths of one sequence. Drawn ones are made to fit the rule, listed ones are refused. */
static bool draw_lengths(const struct builder *w, int64_t b, struct seq *s) {
    const struct problem_line *p = w->line;
    s->room_q = p->lengths.kind ? draw(w, &p->lengths, OF_LENGTHS, b) : p->sq;
    s->room_k = p->lengths_k.kind ? draw(w, &p->lengths_k, OF_LENGTHS_K, b)
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
                      " keys; only rule=none and mask take that",
                      s->uq, b, s->uk);
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

static int64_t longest(const struct builder *w, bool keys) {
    int64_t n = 0;
    for (int64_t b = 0; b < w->line->b; b++) {
        const int64_t length = keys ? w->seqs[b].uk : w->seqs[b].uq;
        if (length > n) n = length;
    }
    return n;
}

/* ---- Arrays ---------------------------------------------------------------------------------- */

/* A contiguous array full of 0xff. */
static bool take(struct builder *w, const char *name, enum ptl_dtype dtype, int ndim,
                 const int64_t *shape, struct ptl_tensor *t) {
    int64_t bytes = (int64_t)ptl_dtype_bytes(dtype);
    for (int i = 0; i < ndim; i++)
        if (__builtin_mul_overflow(bytes, shape[i], &bytes))
            return refuse(w->refusal, "%s: more than 2^63 bytes", name);
    void *data = problem_memory_take(w->memory, (size_t)bytes);
    if (!data) return refuse(w->refusal, "%s: no memory for %" PRId64 " bytes", name, bytes);
    *t = ptl_tensor_contiguous(data, dtype, ndim, shape);
    return true;
}

/* Rows with heads as the view arranges them. */
static bool take_rows(struct builder *w, const char *name, int64_t rows, int64_t heads, int64_t dim,
                      struct ptl_tensor *t) {
    const bool dense = w->line->dense;
    const int64_t shape[4] = {w->line->b, rows, heads, dim};
    const int ndim = dense ? 4 : 3;
    int64_t n_rows, n_floats;
    if (__builtin_mul_overflow(rows, dense ? w->line->b : 1, &n_rows) ||
        __builtin_mul_overflow(n_rows, heads * dim + GAP, &n_floats))
        return refuse(w->refusal, "%s: more than 2^63 floats", name);
    n_floats = n_rows * heads * dim;
    if (w->line->view == VIEW_GAP && n_floats > 0) n_floats += (n_rows - 1) * GAP;
    if (!take(w, name, PTL_F32, 1, &n_floats, t)) return false;
    *t = ptl_tensor_contiguous(t->data, PTL_F32, ndim, shape + 4 - ndim);
    int64_t *stride = t->stride + ndim - 3; /* of rows, heads */
    if (w->line->view == VIEW_GAP) {
        stride[0] += GAP;
        if (dense) t->stride[0] = rows * stride[0];
    } else if (w->line->view == VIEW_BHSD) {
        stride[0] = dim;
        stride[1] = rows * dim;
    }
    return true;
}

/* q, k, v as column blocks of one buffer of rows [u | v | q | k]. */
static bool take_uvqk(struct builder *w, int64_t rows) {
    const struct problem_line *p = w->line;
    const int64_t width = 2 * p->h * (p->dv + p->d);
    const int64_t shape[2] = {p->dense ? p->b * rows : rows, width};
    struct ptl_tensor buffer;
    if (!take(w, "q, k, v", PTL_F32, 2, shape, &buffer)) return false;
    struct ptl_tensor *const parts[3] = {&w->out->v, &w->out->q, &w->out->k};
    int64_t column = p->h * p->dv;
    for (int i = 0; i < 3; i++) {
        const int64_t dim = i == 0 ? p->dv : p->d;
        const int64_t extents[4] = {p->b, rows, p->h, dim};
        const int ndim = p->dense ? 4 : 3;
        const int64_t begin = buffer.shape[0] > 0 ? column : 0;
        *parts[i] =
            ptl_tensor_contiguous((float *)buffer.data + begin, PTL_F32, ndim, extents + 4 - ndim);
        parts[i]->stride[ndim - 3] = width;
        if (p->dense) parts[i]->stride[0] = rows * width;
        column += p->h * dim;
    }
    return true;
}

static float *row_at(const struct ptl_tensor *t, int64_t b, int64_t row, int64_t head) {
    const int64_t *stride = t->stride + t->ndim - 3;
    return (float *)t->data + (t->ndim == 4 ? b * t->stride[0] : 0) + row * stride[0] +
           head * stride[1];
}

/* Contents of the rows that are used. */
static void fill_rows(const struct builder *w, enum purpose purpose, const struct ptl_tensor *t) {
    const bool keys = purpose != OF_Q;
    const int64_t heads = t->shape[t->ndim - 2], dim = t->shape[t->ndim - 1];
    for (int64_t b = 0; b < w->line->b; b++) {
        const struct seq *s = &w->seqs[b];
        const int64_t first = w->line->dense ? 0 : keys ? s->first_k : s->first_q;
        for (int64_t i = 0; i < (keys ? s->uk : s->uq); i++)
            for (int64_t head = 0; head < heads; head++) {
                struct random_stream stream = random_stream_at(w->line->seed, purpose, b, i, head);
                random_fill(&stream, row_at(t, b, first + i, head), dim);
            }
    }
}

static bool make_qkv(struct builder *w) {
    const struct problem_line *p = w->line;
    struct ptl_hstu_params *a = w->out;
    const struct seq *end = &w->seqs[p->b];
    const int64_t rows_q = p->dense ? p->sq : end->first_q + p->pad;
    const int64_t rows_k = p->dense ? p->sk : end->first_k + p->pad;
    if (p->view == VIEW_UVQK) {
        for (int64_t b = 0; b <= p->b; b++)
            if (w->seqs[b].first_q != w->seqs[b].first_k || rows_q != rows_k)
                return refuse(w->refusal,
                              "view: uvqk, expected the same rows for queries and keys");
        if (!take_uvqk(w, rows_q)) return false;
    } else if (!take_rows(w, "q", rows_q, p->h, p->d, &a->q) ||
               !take_rows(w, "k", rows_k, p->hk, p->d, &a->k) ||
               !take_rows(w, "v", rows_k, p->hk, p->dv, &a->v)) {
        return false;
    }
    fill_rows(w, OF_Q, &a->q);
    fill_rows(w, OF_K, &a->k);
    fill_rows(w, OF_V, &a->v);
    return take_rows(w, "out", rows_q, p->h, p->dv, &a->out);
}

/* ---- Index arrays ---------------------------------------------------------------------------- */

static bool put_index(const struct builder *w, const char *name, struct ptl_tensor *t, int64_t i,
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
    const bool own_keys = p->lengths_k.kind || (p->sk >= 0 && (p->lengths.kind || p->sk != p->sq));
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
            fitting.high = least(x->high, w->seqs[b].uk);
        if (!put_index(w, name, t, b, draw(w, &fitting, purpose, b))) return false;
    }
    return true;
}

/* ---- Mask and scale -------------------------------------------------------------------------- */

/* The mask of what sequence b sees, into its plane of the batch and head axes. Every nonzero
 * byte is valid, so valid ones are drawn from 1 to 255. */
static void fill_mask(struct builder *w, int64_t b, int64_t head, uint8_t *plane) {
    const struct ptl_tensor *m = &w->out->mask;
    const struct seq *s = &w->seqs[b];
    const int64_t plane_b = m->shape[0] == 1 ? 0 : b;
    for (int64_t i = 0; i < least(s->uq, m->shape[2]); i++) {
        struct random_stream stream = random_stream_at(w->line->seed, OF_MASK, plane_b, head, i);
        for (int64_t j = 0; j < least(s->uk, m->shape[3]); j++) {
            const double unit = random_unit(&stream);
            const bool valid = w->line->mask == MASK_CAUSAL ? j <= i + s->uk - s->uq
                                                            : unit < w->line->mask_density;
            plane[i * m->shape[3] + j] = valid ? (uint8_t)(1 + (int)(254.0 * unit)) : 0;
        }
    }
}

static bool make_mask(struct builder *w) {
    const struct problem_line *p = w->line;
    struct ptl_hstu_params *a = w->out;
    if (p->mask == MASK_RULE) return true;
    const int64_t max_q = p->max_seqlen_q >= 0 ? p->max_seqlen_q
                          : p->dense           ? p->sq
                                               : longest(w, false);
    const int64_t max_k = p->max_seqlen_k >= 0 ? p->max_seqlen_k
                          : p->dense           ? p->sk
                                               : longest(w, true);
    const int64_t shape[4] = {p->mask_batch, p->mask_head, max_q, max_k};
    if (!take(w, "mask", PTL_U8, 4, shape, &a->mask)) return false;
    for (int64_t b = 0; b < p->b; b++) {
        const struct seq *s = &w->seqs[b], *first = &w->seqs[0];
        if (p->mask == MASK_CAUSAL && shape[0] == 1 && s->uk - s->uq != first->uk - first->uq)
            return refuse(w->refusal,
                          "mask_batch: 1 with mask=causal, but sequences differ in keys less "
                          "queries, expected mask_batch=b");
        for (int64_t head = 0; head < shape[1]; head++) {
            const int64_t plane = (shape[0] == 1 ? 0 : b) * shape[1] + head;
            fill_mask(w, b, head, (uint8_t *)a->mask.data + plane * max_q * max_k);
        }
    }
    return true;
}

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
    a->max_seqlen_q = p->max_seqlen_q;
    a->max_seqlen_k = p->max_seqlen_k;
    a->window_left = p->window_left;
    a->window_right = p->window_right;
    a->target_group_size = p->target_group_size;
    a->min_full_attn_seq_len = p->min_full_attn_seq_len;
    return draw_sequences(w) && make_qkv(w) && make_sequences(w) &&
           make_specials(w, "num_contexts", &p->num_contexts, OF_CONTEXTS, &a->num_contexts) &&
           make_specials(w, "num_targets", &p->num_targets, OF_TARGETS, &a->num_targets) &&
           make_mask(w) && make_scale(w);
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

    struct builder w = {.line = &parsed, .out = &p->hstu, .memory = p->memory, .refusal = &refusal};
    w.queries_fit =
        parsed.mask == MASK_RULE && (parsed.window_left >= 0 || parsed.window_right >= 0);
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
