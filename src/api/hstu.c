/* The HSTU calls: every row of the error contract, then the problem as the operators walk it. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "../core/message.h"
#include "../ops/hstu.h"
#include "check.h"
#include "verbose.h"

/* The largest head size. Nothing but scratch memory grows with it. */
enum { MAX_HEAD_DIM = 1024 };

#define TRY(call)                                        \
    do {                                                 \
        enum ptl_status try_status = (call);             \
        if (try_status != PTL_OK) return try_status;     \
    } while (0)

void ptl_hstu_params_init(struct ptl_hstu_params *params) {
    if (!params) return;
    memset(params, 0, sizeof *params);
    params->struct_size = sizeof *params;
    params->max_seqlen_q = params->max_seqlen_k = -1;
    params->alpha = 1.0f;
    params->window_left = -1;
    params->window_right = 0;
    params->target_group_size = 1;
}

/* ---- Tensors ----------------------------------------------------------------------------------- */

static enum ptl_status check_qkv(const struct ptl_hstu_params *a, const struct ptl_tensor *out) {
    const struct ptl_tensor *t[4] = {&a->q, &a->k, &a->v, out};
    static const char *const names[4] = {"q", "k", "v", "out"};
    for (int i = 0; i < 4; i++) TRY(ptl_check_required(names[i], t[i]));
    for (int i = 0; i < 4; i++) {
        TRY(ptl_check_layout(names[i], t[i], 3, 4));
        if (t[i]->ndim != a->q.ndim)
            return ptl_fail(PTL_ERR_SHAPE, "%s: %d axes, but q has %d; all are jagged (3) or dense (4)",
                            names[i], (int)t[i]->ndim, (int)a->q.ndim);
        if (t[i]->dtype != PTL_F32)
            return ptl_fail(PTL_ERR_DTYPE, "%s: %s, expected f32", names[i],
                            ptl_dtype_name(t[i]->dtype));
    }
    const int row = a->q.ndim - 3, head = row + 1, dim = row + 2;
    if (row == 1)
        for (int i = 1; i < 4; i++) TRY(ptl_check_extent(names[i], t[i], 0, a->q.shape[0], "B of q"));
    const int64_t hq = a->q.shape[head], hk = a->k.shape[head];
    if (hq < 1) return ptl_fail(PTL_ERR_SHAPE, "q: %" PRId64 " heads, expected at least 1", hq);
    if (hk < 1) return ptl_fail(PTL_ERR_SHAPE, "k: %" PRId64 " heads, expected at least 1", hk);
    if (hq % hk != 0)
        return ptl_fail(PTL_ERR_SHAPE, "k: %" PRId64 " heads, but q has %" PRId64
                        "; q heads must be a multiple of k heads", hk, hq);
    TRY(ptl_check_extent("v", &a->v, row, a->k.shape[row], "rows of k"));
    TRY(ptl_check_extent("v", &a->v, head, hk, "heads of k"));
    TRY(ptl_check_extent("k", &a->k, dim, a->q.shape[dim], "head size of q"));
    if (a->q.shape[dim] < 1 || a->q.shape[dim] > MAX_HEAD_DIM)
        return ptl_fail(PTL_ERR_SHAPE, "q: head size %" PRId64 ", expected 1 to %d", a->q.shape[dim],
                        MAX_HEAD_DIM);
    if (a->v.shape[dim] < 1 || a->v.shape[dim] > MAX_HEAD_DIM)
        return ptl_fail(PTL_ERR_SHAPE, "v: head size %" PRId64 ", expected 1 to %d", a->v.shape[dim],
                        MAX_HEAD_DIM);
    TRY(ptl_check_extent("out", out, row, a->q.shape[row], "rows of q"));
    TRY(ptl_check_extent("out", out, head, hq, "heads of q"));
    return ptl_check_extent("out", out, dim, a->v.shape[dim], "head size of v");
}

static struct ptl_rows rows_of(const struct ptl_tensor *t) {
    const int row = t->ndim - 3;
    return (struct ptl_rows){t->data, (int64_t)ptl_dtype_bytes(t->dtype), row ? t->stride[0] : 0,
                             t->stride[row], t->stride[row + 1]};
}

/* ---- Sequences ---------------------------------------------------------------------------------- */

static struct ptl_index index_of(const struct ptl_tensor *t, int64_t constant) {
    return (struct ptl_index){t->data, t->dtype == PTL_I64, t->ndim == 0 ? 0 : 1, constant};
}

static enum ptl_status check_offsets(const char *name, const struct ptl_tensor *t, int64_t n_rows) {
    const struct ptl_index x = index_of(t, 0);
    const int64_t n = t->shape[0];
    int64_t before = 0;
    if (n < 1) return ptl_fail(PTL_ERR_SHAPE, "%s: empty, expected B + 1 entries", name);
    for (int64_t i = 0; i < n; i++) {
        const int64_t at = ptl_index_at(&x, i);
        if (i == 0 && at != 0)
            return ptl_fail(PTL_ERR_SEQLEN, "%s: begins with %" PRId64 ", expected 0", name, at);
        if (at < before)
            return ptl_fail(PTL_ERR_SEQLEN, "%s: entry %" PRId64 " is %" PRId64 ", less than %" PRId64
                            " before it", name, i, at, before);
        before = at;
    }
    if (before > n_rows)
        return ptl_fail(PTL_ERR_SEQLEN, "%s: ends with %" PRId64 ", more than the %" PRId64 " rows", name,
                        before, n_rows);
    return PTL_OK;
}

/* Offsets, used lengths and numbers of sequences; everything that says which rows exist. */
static enum ptl_status check_sequences(const struct ptl_hstu_params *a, struct ptl_hstu_problem *p,
                                       enum ptl_dtype *index_type) {
    p->dense = a->q.ndim == 4;
    const int row = p->dense ? 1 : 0;
    p->q_rows = a->q.shape[row];
    p->k_rows = a->k.shape[row];
    if (p->dense) {
        if (ptl_given(&a->seq_offsets_q) || ptl_given(&a->seq_offsets_k))
            return ptl_fail(PTL_ERR_PARAM, "%s: given, but 4-axis q is the dense layout, which takes "
                            "seqused instead", ptl_given(&a->seq_offsets_q) ? "seq_offsets_q"
                                                                            : "seq_offsets_k");
        p->n_seqs = a->q.shape[0];
    } else {
        TRY(ptl_check_required("seq_offsets_q", &a->seq_offsets_q));
        TRY(ptl_check_index("seq_offsets_q", &a->seq_offsets_q, 1, 1, index_type));
        TRY(check_offsets("seq_offsets_q", &a->seq_offsets_q, p->q_rows));
        p->n_seqs = a->seq_offsets_q.shape[0] - 1;
        p->offsets_q = p->offsets_k = index_of(&a->seq_offsets_q, 0);
        if (ptl_given(&a->seq_offsets_k)) {
            TRY(ptl_check_index("seq_offsets_k", &a->seq_offsets_k, 1, 1, index_type));
            TRY(ptl_check_extent("seq_offsets_k", &a->seq_offsets_k, 0, p->n_seqs + 1,
                                 "entries of seq_offsets_q"));
            p->offsets_k = index_of(&a->seq_offsets_k, 0);
            TRY(check_offsets("seq_offsets_k", &a->seq_offsets_k, p->k_rows));
        } else {
            const int64_t end = ptl_index_at(&p->offsets_k, p->n_seqs);
            if (end > p->k_rows)
                return ptl_fail(PTL_ERR_SEQLEN, "k: %" PRId64 " rows, but seq_offsets_q, which serves for "
                                "k too, ends with %" PRId64, p->k_rows, end);
        }
    }
    const struct ptl_tensor *used[2] = {&a->seqused_q, &a->seqused_k};
    static const char *const names[2] = {"seqused_q", "seqused_k"};
    struct ptl_index *index[2] = {&p->used_q, &p->used_k};
    for (int side = 0; side < 2; side++) {
        *index[side] = (struct ptl_index){0};
        if (!ptl_given(used[side])) continue;
        TRY(ptl_check_index(names[side], used[side], 1, 1, index_type));
        TRY(ptl_check_extent(names[side], used[side], 0, p->n_seqs, "number of sequences"));
        *index[side] = index_of(used[side], 0);
        const struct ptl_index *offsets = side ? &p->offsets_k : &p->offsets_q;
        for (int64_t b = 0; b < p->n_seqs; b++) {
            const int64_t n = ptl_index_at(index[side], b);
            const int64_t room = p->dense ? (side ? p->k_rows : p->q_rows)
                                          : ptl_index_at(offsets, b + 1) - ptl_index_at(offsets, b);
            if (n < 0 || n > room)
                return ptl_fail(PTL_ERR_SEQLEN, "%s: %" PRId64 " for sequence %" PRId64
                                ", expected 0 to %" PRId64, names[side], n, b, room);
        }
    }
    return PTL_OK;
}

static enum ptl_status check_max_seqlen(const char *name, int64_t given, bool dense, int64_t dense_rows,
                                        int64_t longest, int64_t *max) {
    *max = dense ? dense_rows : longest;
    if (given == -1) return PTL_OK;
    if (given < 1) return ptl_fail(PTL_ERR_PARAM, "%s: %" PRId64 ", expected at least 1 (or -1: the "
                                   "longest sequence)", name, given);
    if (longest > given)
        return ptl_fail(PTL_ERR_SEQLEN, "%s: %" PRId64 ", but a sequence has %" PRId64 " rows", name,
                        given, longest);
    *max = given;
    return PTL_OK;
}

/* ---- Mask and scale ----------------------------------------------------------------------------- */

static enum ptl_status check_per_seq(const char *name, const struct ptl_tensor *t, int64_t n_seqs,
                                     struct ptl_index *index, enum ptl_dtype *index_type) {
    *index = (struct ptl_index){0};
    if (!ptl_given(t)) return PTL_OK;
    TRY(ptl_check_index(name, t, 0, 1, index_type));
    if (t->ndim == 1) TRY(ptl_check_extent(name, t, 0, n_seqs, "number of sequences"));
    *index = index_of(t, 0);
    for (int64_t b = 0; b < (t->ndim ? n_seqs : 1); b++)
        if (ptl_index_at(index, b) < 0)
            return ptl_fail(PTL_ERR_SEQLEN, "%s: %" PRId64 " for sequence %" PRId64
                            ", expected 0 or more", name, ptl_index_at(index, b), b);
    return PTL_OK;
}

static enum ptl_status check_rule(const struct ptl_hstu_params *a, struct ptl_hstu_problem *p,
                                  enum ptl_dtype *index_type) {
    p->window_left = a->window_left;
    p->window_right = a->window_right;
    p->group = a->target_group_size;
    p->min_full = a->min_full_attn_seq_len;
    if (a->window_left < -1)
        return ptl_fail(PTL_ERR_PARAM, "window_left: %" PRId64 ", expected -1 (unlimited) or more",
                        a->window_left);
    if (a->window_right < -1)
        return ptl_fail(PTL_ERR_PARAM, "window_right: %" PRId64 ", expected -1 (unlimited) or more",
                        a->window_right);
    if (a->min_full_attn_seq_len < 0)
        return ptl_fail(PTL_ERR_PARAM, "min_full_attn_seq_len: %" PRId64 ", expected 0 or more",
                        a->min_full_attn_seq_len);
    TRY(check_per_seq("num_contexts", &a->num_contexts, p->n_seqs, &p->contexts, index_type));
    TRY(check_per_seq("num_targets", &a->num_targets, p->n_seqs, &p->targets, index_type));
    if (ptl_given(&a->num_targets) && a->target_group_size < 1)
        return ptl_fail(PTL_ERR_PARAM, "target_group_size: %" PRId64 ", expected 1 or more",
                        a->target_group_size);
    const char *causal_only = ptl_given(&a->num_contexts)  ? "num_contexts"
                              : ptl_given(&a->num_targets) ? "num_targets"
                              : a->min_full_attn_seq_len   ? "min_full_attn_seq_len"
                                                           : NULL;
    if (causal_only && a->window_right != 0)
        return ptl_fail(PTL_ERR_PARAM, "%s: given with window_right %" PRId64 ", expected window_right 0 "
                        "(causal)", causal_only, a->window_right);
    return PTL_OK;
}

static enum ptl_status check_dense_mask(const struct ptl_hstu_params *a, struct ptl_hstu_problem *p,
                                        int64_t max_q, int64_t max_k) {
    p->mask = NULL;
    if (!ptl_given(&a->mask)) return PTL_OK;
    const char *other = ptl_given(&a->num_contexts)                       ? "num_contexts"
                        : ptl_given(&a->num_targets)                      ? "num_targets"
                        : a->min_full_attn_seq_len                        ? "min_full_attn_seq_len"
                        : a->window_left != -1 || a->window_right != 0    ? "a window"
                                                                          : NULL;
    if (other)
        return ptl_fail(PTL_ERR_PARAM, "mask: given together with %s; a dense mask excludes the rule's "
                        "options", other);
    const struct ptl_tensor *m = &a->mask;
    TRY(ptl_check_layout("mask", m, 4, 4));
    if (m->dtype != PTL_U8)
        return ptl_fail(PTL_ERR_DTYPE, "mask: %s, expected u8", ptl_dtype_name(m->dtype));
    if (m->shape[0] != 1) TRY(ptl_check_extent("mask", m, 0, p->n_seqs, "number of sequences, or 1"));
    if (m->shape[1] != 1) TRY(ptl_check_extent("mask", m, 1, p->n_q_heads, "heads of q, or 1"));
    TRY(ptl_check_extent("mask", m, 2, max_q, "max_seqlen_q"));
    TRY(ptl_check_extent("mask", m, 3, max_k, "max_seqlen_k"));
    p->mask = m->data;
    p->mask_batch_stride = m->shape[0] == 1 ? 0 : m->stride[0];
    p->mask_head_stride = m->shape[1] == 1 ? 0 : m->stride[1];
    p->mask_row_stride = m->stride[2];
    return PTL_OK;
}

/* Lengths against each other, sequence by sequence. */
static enum ptl_status check_lengths(const struct ptl_hstu_params *a, const struct ptl_hstu_problem *p,
                                     int64_t *longest_q, int64_t *longest_k) {
    const bool any_uq = ptl_given(&a->mask) || (p->window_left < 0 && p->window_right < 0);
    *longest_q = *longest_k = 0;
    for (int64_t b = 0; b < p->n_seqs; b++) {
        const struct ptl_hstu_seq s = ptl_hstu_sequence(p, b);
        if (s.uq > *longest_q) *longest_q = s.uq;
        if (s.uk > *longest_k) *longest_k = s.uk;
        if (s.uq > s.uk && !any_uq)
            return ptl_fail(PTL_ERR_SEQLEN, "q: %" PRId64 " rows in sequence %" PRId64 ", more than its %"
                            PRId64 " keys; only window (-1, -1) and a dense mask take that", s.uq, b,
                            s.uk);
        if (s.targets > s.uk && s.uq > 0)
            return ptl_fail(PTL_ERR_SEQLEN, "num_targets: %" PRId64 " in sequence %" PRId64
                            ", more than its %" PRId64 " keys", s.targets, b, s.uk);
    }
    return PTL_OK;
}

static enum ptl_status check_scale(const struct ptl_hstu_params *a, struct ptl_hstu_problem *p) {
    const struct ptl_tensor *s = &a->attn_scale;
    p->alpha = a->alpha;
    if (!isfinite(a->alpha)) return ptl_fail(PTL_ERR_PARAM, "alpha: %g, expected a finite number", a->alpha);
    if (ptl_given(s) == (a->scaling_seqlen != 0))
        return ptl_fail(PTL_ERR_PARAM, "scaling_seqlen, attn_scale: %s given, expected exactly one",
                        ptl_given(s) ? "both" : "neither");
    p->scale_rows = (struct ptl_rows){0};
    if (!ptl_given(s)) {
        if (a->scaling_seqlen < 1)
            return ptl_fail(PTL_ERR_PARAM, "scaling_seqlen: %" PRId64 ", expected 1 or more",
                            a->scaling_seqlen);
        p->scale = (float)(1.0 / (double)a->scaling_seqlen);
        return PTL_OK;
    }
    TRY(ptl_check_layout("attn_scale", s, 0, 2));
    if (s->dtype != PTL_F32)
        return ptl_fail(PTL_ERR_DTYPE, "attn_scale: %s, expected f32", ptl_dtype_name(s->dtype));
    if (s->ndim == 0) {
        p->scale = *(const float *)s->data;
        if (!isfinite(p->scale))
            return ptl_fail(PTL_ERR_PARAM, "attn_scale: %g, expected a finite number", p->scale);
        return PTL_OK;
    }
    if (s->ndim != (p->dense ? 2 : 1))
        return ptl_fail(PTL_ERR_SHAPE, "attn_scale: %d axes, expected 0 or %d", (int)s->ndim,
                        p->dense ? 2 : 1);
    if (p->dense) TRY(ptl_check_extent("attn_scale", s, 0, p->n_seqs, "B of q"));
    TRY(ptl_check_extent("attn_scale", s, s->ndim - 1, p->q_rows, "rows of q"));
    p->scale_rows = (struct ptl_rows){s->data, sizeof(float), p->dense ? s->stride[0] : 0, 1, 0};
    for (int64_t b = 0; b < p->n_seqs; b++) {
        const struct ptl_hstu_seq seq = ptl_hstu_sequence(p, b);
        for (int64_t i = 0; i < seq.uq; i++) {
            const float x = *(const float *)ptl_rows_at(&p->scale_rows, seq.b, seq.q_row + i, 0);
            if (!isfinite(x))
                return ptl_fail(PTL_ERR_PARAM, "attn_scale: %g for row %" PRId64 " of sequence %" PRId64
                                ", expected finite numbers", x, i, b);
        }
    }
    return PTL_OK;
}

static enum ptl_status check_aliases(const struct ptl_hstu_params *a, const char *name,
                                     const struct ptl_tensor *out) {
    const struct {
        const char *name;
        const struct ptl_tensor *t;
    } inputs[] = {
        {"q", &a->q}, {"k", &a->k}, {"v", &a->v}, {"mask", &a->mask}, {"attn_scale", &a->attn_scale},
        {"seq_offsets_q", &a->seq_offsets_q}, {"seq_offsets_k", &a->seq_offsets_k},
        {"seqused_q", &a->seqused_q}, {"seqused_k", &a->seqused_k},
        {"num_contexts", &a->num_contexts}, {"num_targets", &a->num_targets},
    };
    TRY(ptl_check_no_self_overlap(name, out));
    for (size_t i = 0; i < sizeof inputs / sizeof inputs[0]; i++)
        TRY(ptl_check_no_overlap(name, out, inputs[i].name, inputs[i].t));
    return PTL_OK;
}

static enum ptl_status check(const struct ptl_hstu_params *a, struct ptl_hstu_problem *p) {
    enum ptl_dtype index_type = 0;
    int64_t longest_q, longest_k, max_q, max_k;
    if (!a) return ptl_fail(PTL_ERR_NULL, "params: NULL, expected arguments");
    if (a->struct_size != sizeof *a)
        return ptl_fail(PTL_ERR_PARAM, "params.struct_size: %zu, expected %zu; use ptl_hstu_params_init",
                        a->struct_size, sizeof *a);
    memset(p, 0, sizeof *p);
    TRY(check_qkv(a, &a->out));
    p->q = rows_of(&a->q);
    p->k = rows_of(&a->k);
    p->v = rows_of(&a->v);
    p->out = rows_of(&a->out);
    const int head = a->q.ndim - 2;
    p->n_q_heads = a->q.shape[head];
    p->n_k_heads = a->k.shape[head];
    p->dqk = (int)a->q.shape[head + 1];
    p->dv = (int)a->v.shape[head + 1];
    TRY(check_sequences(a, p, &index_type));
    TRY(check_rule(a, p, &index_type));
    TRY(check_lengths(a, p, &longest_q, &longest_k));
    TRY(check_max_seqlen("max_seqlen_q", a->max_seqlen_q, p->dense, p->q_rows, longest_q, &max_q));
    TRY(check_max_seqlen("max_seqlen_k", a->max_seqlen_k, p->dense, p->k_rows, longest_k, &max_k));
    TRY(check_dense_mask(a, p, max_q, max_k));
    TRY(check_scale(a, p));
    return check_aliases(a, "out", &a->out);
}

enum ptl_status ptl_hstu_forward(struct ptl_context *ctx, const struct ptl_hstu_params *params) {
    struct ptl_hstu_problem problem;
    if (!ctx) return ptl_fail(PTL_ERR_NULL, "ctx: NULL, expected a context");
    TRY(check(params, &problem));
    pthread_mutex_lock(&ctx->lock);
    const double begin = ptl_verbose_begin();
    enum ptl_status status = ptl_hstu_run_forward(ctx, &problem);
    ptl_verbose_hstu("hstu", ctx, params, &problem, begin);
    pthread_mutex_unlock(&ctx->lock);
    if (status == PTL_ERR_NOMEM) ptl_fail(status, "scratch: no memory for %d threads", ctx->executor.n_threads);
    return status;
}
