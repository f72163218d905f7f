/* The checks of the HSTU calls: every row of the error contract (docs/hstu.md), and on the way the
 * problem as the operators walk it. Nothing is computed here. */
#include "hstu_check.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "../core/message.h"
#include "check.h"

/* The largest head size. Nothing but scratch memory grows with it. */
enum { MAX_HEAD_DIM = 1024 };

/* ---- Tensors --------------------------------------------------------------------------------- */

/* out, or dout in the backward pass: the array with the rows of q and the head size of v. */
static enum ptl_status check_qkv(const struct ptl_hstu_params *a, const char *out_name,
                                 const struct ptl_tensor *out) {
    const struct ptl_tensor *t[4] = {&a->q, &a->k, &a->v, out};
    const char *names[4] = {"q", "k", "v", out_name};
    for (int i = 0; i < 4; i++) TRY(ptl_check_required(names[i], t[i]));
    for (int i = 0; i < 4; i++) {
        TRY(ptl_check_layout(names[i], t[i], 3, 4));
        if (t[i]->ndim != a->q.ndim)
            return ptl_fail(PTL_ERR_SHAPE,
                            "%s: %d axes, but q has %d; all are jagged (3) or dense (4)", names[i],
                            (int)t[i]->ndim, (int)a->q.ndim);
        const enum ptl_dtype type = t[i]->dtype;
        if (type != PTL_F32 && type != PTL_F16 && type != PTL_BF16)
            return ptl_fail(PTL_ERR_DTYPE, "%s: %s, expected f32, f16 or bf16", names[i],
                            ptl_dtype_name(type));
        if (type != a->q.dtype)
            return ptl_fail(PTL_ERR_DTYPE, "%s: %s, but q is %s; all must be alike", names[i],
                            ptl_dtype_name(type), ptl_dtype_name(a->q.dtype));
    }
    const int row = a->q.ndim - 3, head = row + 1, dim = row + 2;
    if (row == 1)
        for (int i = 1; i < 4; i++)
            TRY(ptl_check_extent(names[i], t[i], 0, a->q.shape[0], "B of q"));
    const int64_t hq = a->q.shape[head], hk = a->k.shape[head];
    if (hq < 1) return ptl_fail(PTL_ERR_SHAPE, "q: %" PRId64 " heads, expected at least 1", hq);
    if (hk < 1) return ptl_fail(PTL_ERR_SHAPE, "k: %" PRId64 " heads, expected at least 1", hk);
    if (hq % hk != 0)
        return ptl_fail(PTL_ERR_SHAPE,
                        "k: %" PRId64 " heads, but q has %" PRId64
                        "; q heads must be a multiple of k heads",
                        hk, hq);
    TRY(ptl_check_extent("v", &a->v, row, a->k.shape[row], "rows of k"));
    TRY(ptl_check_extent("v", &a->v, head, hk, "heads of k"));
    TRY(ptl_check_extent("k", &a->k, dim, a->q.shape[dim], "head size of q"));
    if (a->q.shape[dim] < 1 || a->q.shape[dim] > MAX_HEAD_DIM)
        return ptl_fail(PTL_ERR_SHAPE, "q: head size %" PRId64 ", expected 1 to %d",
                        a->q.shape[dim], MAX_HEAD_DIM);
    if (a->v.shape[dim] < 1 || a->v.shape[dim] > MAX_HEAD_DIM)
        return ptl_fail(PTL_ERR_SHAPE, "v: head size %" PRId64 ", expected 1 to %d",
                        a->v.shape[dim], MAX_HEAD_DIM);
    TRY(ptl_check_extent(out_name, out, row, a->q.shape[row], "rows of q"));
    TRY(ptl_check_extent(out_name, out, head, hq, "heads of q"));
    return ptl_check_extent(out_name, out, dim, a->v.shape[dim], "head size of v");
}

static bool is_paged(const struct ptl_hstu_params *a) {
    return ptl_given(&a->k_pages) || ptl_given(&a->v_pages) || ptl_given(&a->page_offsets) ||
           ptl_given(&a->page_ids) || ptl_given(&a->last_page_lens);
}

/* ---- Sequences ------------------------------------------------------------------------------- */

/* Offsets, used lengths and numbers of sequences; everything that says which rows exist. */
static enum ptl_status check_sequences(const struct ptl_hstu_params *a, struct ptl_hstu_problem *p,
                                       enum ptl_dtype *index_type) {
    p->dense = a->q.ndim == 4;
    const int row = p->dense ? 1 : 0;
    p->q_rows = a->q.shape[row];
    p->k_rows = a->k.shape[row];
    if (p->dense) {
        if (ptl_given(&a->seq_offsets_q) || ptl_given(&a->seq_offsets_k))
            return ptl_fail(PTL_ERR_PARAM,
                            "%s: given, but 4-axis q is the dense layout, which takes "
                            "seqused instead",
                            ptl_given(&a->seq_offsets_q) ? "seq_offsets_q" : "seq_offsets_k");
        p->n_seqs = a->q.shape[0];
    } else {
        TRY(ptl_check_required("seq_offsets_q", &a->seq_offsets_q));
        TRY(ptl_check_index("seq_offsets_q", &a->seq_offsets_q, 1, 1, index_type));
        TRY(ptl_check_offsets("seq_offsets_q", &a->seq_offsets_q, p->q_rows));
        p->n_seqs = a->seq_offsets_q.shape[0] - 1;
        p->offsets_q = p->offsets_k = ptl_index_of(&a->seq_offsets_q);
        if (ptl_given(&a->seq_offsets_k) && !is_paged(a)) { /* of paged keys: in check_pages */
            TRY(ptl_check_index("seq_offsets_k", &a->seq_offsets_k, 1, 1, index_type));
            TRY(ptl_check_extent("seq_offsets_k", &a->seq_offsets_k, 0, p->n_seqs + 1,
                                 "entries of seq_offsets_q"));
            p->offsets_k = ptl_index_of(&a->seq_offsets_k);
            TRY(ptl_check_offsets("seq_offsets_k", &a->seq_offsets_k, p->k_rows));
        } else {
            const int64_t end = ptl_index_at(&p->offsets_k, p->n_seqs);
            if (end > p->k_rows)
                return ptl_fail(PTL_ERR_SEQLEN,
                                "k: %" PRId64 " rows, but seq_offsets_q, which serves for "
                                "k too, ends with %" PRId64,
                                p->k_rows, end);
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
        *index[side] = ptl_index_of(used[side]);
        const struct ptl_index *offsets = side ? &p->offsets_k : &p->offsets_q;
        for (int64_t b = 0; b < p->n_seqs; b++) {
            const int64_t n = ptl_index_at(index[side], b);
            const int64_t room = p->dense ? (side ? p->k_rows : p->q_rows)
                                          : ptl_index_at(offsets, b + 1) - ptl_index_at(offsets, b);
            if (n < 0 || n > room)
                return ptl_fail(PTL_ERR_SEQLEN,
                                "%s: %" PRId64 " for sequence %" PRId64 ", expected 0 to %" PRId64,
                                names[side], n, b, room);
        }
    }
    return PTL_OK;
}

static enum ptl_status check_max_seqlen(const char *name, int64_t given, bool dense,
                                        int64_t dense_rows, int64_t longest, int64_t *max) {
    *max = dense ? dense_rows : longest;
    if (given == -1) return PTL_OK;
    if (given < 1)
        return ptl_fail(PTL_ERR_PARAM,
                        "%s: %" PRId64 ", expected at least 1 (or -1: the "
                        "longest sequence)",
                        name, given);
    if (longest > given)
        return ptl_fail(PTL_ERR_SEQLEN, "%s: %" PRId64 ", but a sequence has %" PRId64 " rows",
                        name, given, longest);
    *max = given;
    return PTL_OK;
}

/* The cache of the paged layout, and that lengths agree with it. */
static enum ptl_status check_pages(const struct ptl_hstu_params *a, struct ptl_hstu_problem *p,
                                   enum ptl_dtype *index_type) {
    const struct ptl_tensor *t[5] = {&a->k_pages, &a->v_pages, &a->page_offsets, &a->page_ids,
                                     &a->last_page_lens};
    static const char *const names[5] = {"k_pages", "v_pages", "page_offsets", "page_ids",
                                         "last_page_lens"};
    if (!is_paged(a)) return PTL_OK;
    for (int i = 0; i < 5; i++) TRY(ptl_check_required(names[i], t[i]));
    if (p->dense)
        return ptl_fail(PTL_ERR_PARAM, "k_pages: given with 4-axis q; the paged layout is jagged");
    if (ptl_given(&a->seqused_k))
        return ptl_fail(PTL_ERR_PARAM,
                        "seqused_k: given with k_pages, which say the lengths themselves");
    for (int i = 0; i < 2; i++) {
        TRY(ptl_check_layout(names[i], t[i], 4, 4));
        if (t[i]->dtype != a->q.dtype)
            return ptl_fail(PTL_ERR_DTYPE, "%s: %s, but q is %s; all must be alike", names[i],
                            ptl_dtype_name(t[i]->dtype), ptl_dtype_name(a->q.dtype));
        TRY(ptl_check_extent(names[i], t[i], 2, p->n_k_heads, "heads of k"));
        TRY(ptl_check_extent(names[i], t[i], 3, p->dqk, "head size of k"));
    }
    TRY(ptl_check_extent("v", &a->v, 2, p->dqk, "head size of k, as paged keys need"));
    TRY(ptl_check_extent("v_pages", &a->v_pages, 0, a->k_pages.shape[0], "pages of k_pages"));
    TRY(ptl_check_extent("v_pages", &a->v_pages, 1, a->k_pages.shape[1], "page size of k_pages"));
    if (a->k_pages.shape[1] < 1)
        return ptl_fail(PTL_ERR_SHAPE, "k_pages: page size 0, expected 1 or more");
    for (int i = 2; i < 5; i++) TRY(ptl_check_index(names[i], t[i], 1, 1, index_type));
    TRY(ptl_check_extent("page_offsets", &a->page_offsets, 0, p->n_seqs + 1, "sequences + 1"));
    TRY(ptl_check_extent("last_page_lens", &a->last_page_lens, 0, p->n_seqs,
                         "number of sequences"));

    struct ptl_hstu_pages *g = &p->pages;
    g->on = true;
    g->k = (struct ptl_rows){a->k_pages.data, p->k.elem_bytes, a->k_pages.stride[0],
                             a->k_pages.stride[1], a->k_pages.stride[2]};
    g->v = (struct ptl_rows){a->v_pages.data, p->v.elem_bytes, a->v_pages.stride[0],
                             a->v_pages.stride[1], a->v_pages.stride[2]};
    g->page_size = a->k_pages.shape[1];
    g->offsets = ptl_index_of(&a->page_offsets);
    g->ids = ptl_index_of(&a->page_ids);
    g->last_lens = ptl_index_of(&a->last_page_lens);
    int64_t before = 0;
    for (int64_t b = 0; b <= p->n_seqs; b++) {
        const int64_t at = ptl_index_at(&g->offsets, b);
        if ((b == 0 && at != 0) || at < before || at > a->page_ids.shape[0])
            return ptl_fail(PTL_ERR_TABLE,
                            "page_offsets: entry %" PRId64 " is %" PRId64 ", expected from 0 "
                            "on, not decreasing, at most the %" PRId64 " page_ids",
                            b, at, a->page_ids.shape[0]);
        const int64_t last = b > 0 ? ptl_index_at(&g->last_lens, b - 1) : 1;
        if (at > before && (last < 1 || last > g->page_size))
            return ptl_fail(PTL_ERR_TABLE,
                            "last_page_lens: %" PRId64 " for sequence %" PRId64
                            ", expected 1 to %" PRId64,
                            last, b - 1, g->page_size);
        for (; before < at; before++) {
            const int64_t id = ptl_index_at(&g->ids, before);
            if (id < 0 || id >= a->k_pages.shape[0])
                return ptl_fail(PTL_ERR_TABLE,
                                "page_ids: entry %" PRId64 " is %" PRId64
                                ", expected 0 to %" PRId64,
                                before, id, a->k_pages.shape[0] - 1);
        }
    }
    if (ptl_given(&a->seq_offsets_k)) {
        TRY(ptl_check_index("seq_offsets_k", &a->seq_offsets_k, 1, 1, index_type));
        TRY(ptl_check_extent("seq_offsets_k", &a->seq_offsets_k, 0, p->n_seqs + 1,
                             "entries of seq_offsets_q"));
    }
    const struct ptl_index offsets_k = ptl_index_of(&a->seq_offsets_k);
    for (int64_t b = 0; b < p->n_seqs; b++) {
        const int64_t targets =
            ptl_index_at(&p->targets, b); /* before cached + targets is formed */
        const int64_t uq =
            p->used_q.data ? ptl_index_at(&p->used_q, b)
                           : ptl_index_at(&p->offsets_q, b + 1) - ptl_index_at(&p->offsets_q, b);
        if (targets > uq)
            return ptl_fail(PTL_ERR_SEQLEN,
                            "num_targets: %" PRId64 " in sequence %" PRId64
                            ", more than its %" PRId64 " rows of q, which paged keys need",
                            targets, b, uq);
        const struct ptl_hstu_seq s = ptl_hstu_sequence(p, b);
        if (!offsets_k.data) continue;
        const int64_t n = ptl_index_at(&offsets_k, b + 1) - ptl_index_at(&offsets_k, b);
        if (n != s.uk)
            return ptl_fail(PTL_ERR_SEQLEN,
                            "seq_offsets_k: %" PRId64 " keys in sequence %" PRId64
                            ", expected %" PRId64 " (cached + targets)",
                            n, b, s.uk);
    }
    return PTL_OK;
}

/* ---- Mask and scale -------------------------------------------------------------------------- */

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
    TRY(ptl_check_counts("num_contexts", &a->num_contexts, p->n_seqs, index_type));
    TRY(ptl_check_counts("num_targets", &a->num_targets, p->n_seqs, index_type));
    p->contexts = ptl_index_of(&a->num_contexts);
    p->targets = ptl_index_of(&a->num_targets);
    if (ptl_given(&a->num_targets) && a->target_group_size < 1)
        return ptl_fail(PTL_ERR_PARAM, "target_group_size: %" PRId64 ", expected 1 or more",
                        a->target_group_size);
    const char *causal_only = ptl_given(&a->num_contexts)  ? "num_contexts"
                              : ptl_given(&a->num_targets) ? "num_targets"
                              : a->min_full_attn_seq_len   ? "min_full_attn_seq_len"
                                                           : NULL;
    if (causal_only && a->window_right != 0)
        return ptl_fail(PTL_ERR_PARAM,
                        "%s: given with window_right %" PRId64 ", expected window_right 0 "
                        "(causal)",
                        causal_only, a->window_right);
    return PTL_OK;
}

/* A mask that excludes the rule's options. Paged keys use num_targets for their layout. */
static enum ptl_status check_no_rule(const char *name, const struct ptl_hstu_params *a) {
    const char *other = ptl_given(&a->num_contexts)                    ? "num_contexts"
                        : ptl_given(&a->num_targets) && !is_paged(a)   ? "num_targets"
                        : a->min_full_attn_seq_len                     ? "min_full_attn_seq_len"
                        : a->window_left != -1 || a->window_right != 0 ? "a window"
                                                                       : NULL;
    if (!other) return PTL_OK;
    return ptl_fail(PTL_ERR_PARAM, "%s: given together with %s; it excludes the rule's options",
                    name, other);
}

static enum ptl_status check_dense_mask(const struct ptl_hstu_params *a, struct ptl_hstu_problem *p,
                                        int64_t max_q, int64_t max_k) {
    const struct ptl_tensor *m = &a->mask;
    if (!ptl_given(m)) return PTL_OK;
    TRY(check_no_rule("mask", a));
    TRY(ptl_check_layout("mask", m, 4, 4));
    if (m->dtype != PTL_U8)
        return ptl_fail(PTL_ERR_DTYPE, "mask: %s, expected u8", ptl_dtype_name(m->dtype));
    if (m->shape[0] != 1)
        TRY(ptl_check_extent("mask", m, 0, p->n_seqs, "number of sequences, or 1"));
    if (m->shape[1] != 1) TRY(ptl_check_extent("mask", m, 1, p->n_q_heads, "heads of q, or 1"));
    TRY(ptl_check_extent("mask", m, 2, max_q, "max_seqlen_q"));
    TRY(ptl_check_extent("mask", m, 3, max_k, "max_seqlen_k"));
    p->mask = m->data;
    p->mask_batch_stride = m->shape[0] == 1 ? 0 : m->stride[0];
    p->mask_head_stride = m->shape[1] == 1 ? 0 : m->stride[1];
    p->mask_row_stride = m->stride[2];
    return PTL_OK;
}

static enum ptl_status check_intervals(const struct ptl_hstu_params *a,
                                       struct ptl_hstu_problem *p) {
    const struct ptl_tensor *t = &a->intervals;
    if (!ptl_given(t)) return PTL_OK;
    TRY(check_no_rule("intervals", a));
    if (ptl_given(&a->mask))
        return ptl_fail(PTL_ERR_PARAM, "intervals: given together with mask, expected one of them");
    const int n_axes = p->dense ? 3 : 2;
    TRY(ptl_check_layout("intervals", t, n_axes, n_axes));
    if (t->dtype != PTL_I32 && t->dtype != PTL_I64)
        return ptl_fail(PTL_ERR_DTYPE, "intervals: %s, expected i32 or i64",
                        ptl_dtype_name(t->dtype));
    if (p->dense) TRY(ptl_check_extent("intervals", t, 0, p->n_seqs, "B of q"));
    TRY(ptl_check_extent("intervals", t, n_axes - 2, p->q_rows, "rows of q"));
    if (t->shape[n_axes - 1] % 2 != 0)
        return ptl_fail(PTL_ERR_SHAPE,
                        "intervals: %" PRId64 " on the last axis, expected an even number "
                        "(pairs)",
                        t->shape[n_axes - 1]);
    p->intervals =
        (struct ptl_hstu_intervals){t->data, t->dtype == PTL_I64, p->dense ? t->stride[0] : 0,
                                    t->stride[n_axes - 2], t->shape[n_axes - 1] / 2};
    return PTL_OK;
}

/* ---- Bias ------------------------------------------------------------------------------------ */

static enum ptl_status check_dense_bias(const struct ptl_hstu_params *a, struct ptl_hstu_problem *p,
                                        int64_t max_q, int64_t max_k) {
    const struct ptl_tensor *t = &a->attn_bias;
    if (!ptl_given(t)) return PTL_OK;
    TRY(ptl_check_layout("attn_bias", t, 4, 4));
    if (t->dtype != PTL_F32 && t->dtype != p->dtype)
        return ptl_fail(PTL_ERR_DTYPE, "attn_bias: %s, expected f32 or the type of q",
                        ptl_dtype_name(t->dtype));
    if (a->bias_rows != PTL_HSTU_BIAS_QUERY && a->bias_rows != PTL_HSTU_BIAS_KEY)
        return ptl_fail(PTL_ERR_PARAM, "bias_rows: %d, expected 0 or 1", (int)a->bias_rows);
    const bool by_key = a->bias_rows == PTL_HSTU_BIAS_KEY;
    if (t->shape[0] != 1)
        TRY(ptl_check_extent("attn_bias", t, 0, p->n_seqs, "number of sequences, or 1"));
    if (t->shape[1] != 1)
        TRY(ptl_check_extent("attn_bias", t, 1, p->n_q_heads, "heads of q, or 1"));
    TRY(ptl_check_extent("attn_bias", t, 2, by_key ? max_k : max_q,
                         by_key ? "max_seqlen_k" : "max_seqlen_q"));
    TRY(ptl_check_extent("attn_bias", t, 3, max_k, "max_seqlen_k"));
    p->bias = (struct ptl_hstu_bias){t->data,
                                     t->dtype,
                                     t->shape[0] == 1 ? 0 : t->stride[0],
                                     t->shape[1] == 1 ? 0 : t->stride[1],
                                     t->stride[2],
                                     by_key};
    return PTL_OK;
}

static enum ptl_status check_table(const char *name, const struct ptl_tensor *t, int64_t n_heads) {
    TRY(ptl_check_layout(name, t, 1, 2));
    if (t->dtype != PTL_F32)
        return ptl_fail(PTL_ERR_DTYPE, "%s: %s, expected f32", name, ptl_dtype_name(t->dtype));
    if (t->ndim == 2) TRY(ptl_check_extent(name, t, 0, n_heads, "heads of q"));
    return PTL_OK;
}

static enum ptl_status check_times(const char *name, const struct ptl_tensor *t, int max_ndim) {
    TRY(ptl_check_required(name, t));
    TRY(ptl_check_layout(name, t, 1, max_ndim));
    if (t->dtype != PTL_I64)
        return ptl_fail(PTL_ERR_DTYPE, "%s: %s, expected i64", name, ptl_dtype_name(t->dtype));
    return PTL_OK;
}

static enum ptl_status check_tables(const struct ptl_hstu_params *a, struct ptl_hstu_problem *p,
                                    int64_t longest, int64_t max_k) {
    struct ptl_hstu_tables *t = &p->tables;
    if (ptl_given(&a->pos_table)) {
        TRY(check_table("pos_table", &a->pos_table, p->n_q_heads));
        const int64_t entries = a->pos_table.shape[a->pos_table.ndim - 1];
        if (entries % 2 == 0 || (entries + 1) / 2 < longest)
            return ptl_fail(PTL_ERR_SHAPE,
                            "pos_table: %" PRId64 " entries, expected 2N - 1 with N at least "
                            "the longest sequence, %" PRId64,
                            entries, longest);
        t->pos = a->pos_table.data;
        t->n = (entries + 1) / 2;
        t->pos_head_stride = a->pos_table.ndim == 2 ? a->pos_table.stride[0] : 0;
    }
    if (!ptl_given(&a->time_table)) {
        if (ptl_given(&a->time_thresholds) || ptl_given(&a->timestamps))
            return ptl_fail(PTL_ERR_PARAM, "%s: given without time_table",
                            ptl_given(&a->timestamps) ? "timestamps" : "time_thresholds");
        return PTL_OK;
    }
    TRY(check_table("time_table", &a->time_table, p->n_q_heads));
    TRY(check_times("time_thresholds", &a->time_thresholds, 1));
    TRY(check_times("timestamps", &a->timestamps, 2));
    if (a->time_query != PTL_HSTU_TIME_NEXT && a->time_query != PTL_HSTU_TIME_OWN)
        return ptl_fail(PTL_ERR_PARAM, "time_query: %d, expected 0 or 1", (int)a->time_query);
    t->n_thresholds = a->time_thresholds.shape[0];
    TRY(ptl_check_extent("time_table", &a->time_table, a->time_table.ndim - 1, t->n_thresholds + 1,
                         "time_thresholds + 1"));
    t->thresholds = a->time_thresholds.data;
    for (int64_t i = 1; i < t->n_thresholds; i++)
        if (t->thresholds[i] < t->thresholds[i - 1])
            return ptl_fail(PTL_ERR_PARAM,
                            "time_thresholds: entry %" PRId64 " is %" PRId64 ", less than %" PRId64
                            " before it, expected ascending",
                            i, t->thresholds[i], t->thresholds[i - 1]);
    t->stamps = a->timestamps.data;
    t->stamps_by_row = a->timestamps.ndim == 1;
    if (t->stamps_by_row) {
        if (p->dense || p->pages.on)
            return ptl_fail(PTL_ERR_SHAPE,
                            "timestamps: 1 axis, expected [B, max_seqlen_k] with dense or "
                            "paged keys");
        TRY(ptl_check_extent("timestamps", &a->timestamps, 0, p->k_rows, "rows of k"));
    } else {
        TRY(ptl_check_extent("timestamps", &a->timestamps, 0, p->n_seqs, "number of sequences"));
        TRY(ptl_check_extent("timestamps", &a->timestamps, 1, max_k, "max_seqlen_k"));
        t->stamps_batch_stride = a->timestamps.stride[0];
    }
    t->time = a->time_table.data;
    t->time_head_stride = a->time_table.ndim == 2 ? a->time_table.stride[0] : 0;
    t->query_next = a->time_query == PTL_HSTU_TIME_NEXT;
    return PTL_OK;
}

static enum ptl_status check_bias(const struct ptl_hstu_params *a, struct ptl_hstu_problem *p,
                                  int64_t longest, int64_t max_q, int64_t max_k) {
    TRY(check_dense_bias(a, p, max_q, max_k));
    TRY(check_tables(a, p, longest, max_k));
    p->beta = isnan(a->bias_scale) ? a->alpha : a->bias_scale;
    if (!isfinite(p->beta))
        return ptl_fail(PTL_ERR_PARAM, "bias_scale: %g, expected a finite number", a->bias_scale);
    return PTL_OK;
}

/* ---- Lengths, scale, memory ------------------------------------------------------------------ */

/* Lengths against each other, sequence by sequence. */
static enum ptl_status check_lengths(const struct ptl_hstu_params *a,
                                     const struct ptl_hstu_problem *p, int64_t *longest_q,
                                     int64_t *longest_k) {
    /* rows of a bias by key, and times, are those of the queries' positions */
    const bool by_position = ptl_given(&a->time_table) ||
                             (ptl_given(&a->attn_bias) && a->bias_rows == PTL_HSTU_BIAS_KEY);
    const bool any_uq = !by_position && (ptl_given(&a->mask) || ptl_given(&a->intervals) ||
                                         (p->window_left < 0 && p->window_right < 0));
    *longest_q = *longest_k = 0;
    for (int64_t b = 0; b < p->n_seqs; b++) {
        const struct ptl_hstu_seq s = ptl_hstu_sequence(p, b);
        if (s.uq > *longest_q) *longest_q = s.uq;
        if (s.uk > *longest_k) *longest_k = s.uk;
        if (s.uq > s.uk && !any_uq)
            return ptl_fail(PTL_ERR_SEQLEN,
                            "q: %" PRId64 " rows in sequence %" PRId64 ", more than its %" PRId64
                            " keys; only window (-1, -1), mask and intervals take that, without "
                            "time_table and bias_rows KEY",
                            s.uq, b, s.uk);
        if (s.targets > s.uk && s.uq > 0)
            return ptl_fail(PTL_ERR_SEQLEN,
                            "num_targets: %" PRId64 " in sequence %" PRId64
                            ", more than its %" PRId64 " keys",
                            s.targets, b, s.uk);
    }
    return PTL_OK;
}

static enum ptl_status check_scale(const struct ptl_hstu_params *a, struct ptl_hstu_problem *p) {
    const struct ptl_tensor *s = &a->attn_scale;
    const bool given = ptl_given(s) || ptl_is_empty(s);
    if (given == (a->scaling_seqlen != 0))
        return ptl_fail(PTL_ERR_PARAM, "scaling_seqlen, attn_scale: %s given, expected exactly one",
                        given ? "both" : "neither");
    p->scale_rows = (struct ptl_rows){0};
    if (!given) {
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
                return ptl_fail(PTL_ERR_PARAM,
                                "attn_scale: %g for row %" PRId64 " of sequence %" PRId64
                                ", expected finite numbers",
                                x, i, b);
        }
    }
    return PTL_OK;
}

struct named {
    const char *name;
    const struct ptl_tensor *t;
};

static enum ptl_status check_aliases(const struct ptl_hstu_params *a, const char *name,
                                     const struct ptl_tensor *out) {
    const struct named inputs[] = {
        {"q", &a->q},
        {"k", &a->k},
        {"v", &a->v},
        {"mask", &a->mask},
        {"attn_scale", &a->attn_scale},
        {"seq_offsets_q", &a->seq_offsets_q},
        {"seq_offsets_k", &a->seq_offsets_k},
        {"seqused_q", &a->seqused_q},
        {"seqused_k", &a->seqused_k},
        {"num_contexts", &a->num_contexts},
        {"num_targets", &a->num_targets},
        {"intervals", &a->intervals},
        {"attn_bias", &a->attn_bias},
        {"pos_table", &a->pos_table},
        {"time_table", &a->time_table},
        {"time_thresholds", &a->time_thresholds},
        {"timestamps", &a->timestamps},
        {"k_pages", &a->k_pages},
        {"v_pages", &a->v_pages},
        {"page_offsets", &a->page_offsets},
        {"page_ids", &a->page_ids},
        {"last_page_lens", &a->last_page_lens},
    };
    TRY(ptl_check_no_self_overlap(name, out));
    for (size_t i = 0; i < sizeof inputs / sizeof inputs[0]; i++)
        TRY(ptl_check_no_overlap(name, out, inputs[i].name, inputs[i].t));
    return PTL_OK;
}

/* All but the outputs. */
static enum ptl_status check_inputs(const struct ptl_hstu_params *a, const char *out_name,
                                    const struct ptl_tensor *out, struct ptl_hstu_problem *p) {
    enum ptl_dtype index_type = 0;
    int64_t longest_q, longest_k, max_q, max_k;
    memset(p, 0, sizeof *p);
    TRY(check_qkv(a, out_name, out));
    p->dtype = a->q.dtype;
    p->q = ptl_rows_of(&a->q);
    p->k = ptl_rows_of(&a->k);
    p->v = ptl_rows_of(&a->v);
    const int head = a->q.ndim - 2;
    p->n_q_heads = a->q.shape[head];
    p->n_k_heads = a->k.shape[head];
    p->dqk = (int)a->q.shape[head + 1];
    p->dv = (int)a->v.shape[head + 1];
    TRY(check_sequences(a, p, &index_type));
    TRY(check_rule(a, p, &index_type));
    TRY(check_pages(a, p, &index_type));
    TRY(check_lengths(a, p, &longest_q, &longest_k));
    TRY(check_max_seqlen("max_seqlen_q", a->max_seqlen_q, p->dense, p->q_rows, longest_q, &max_q));
    TRY(check_max_seqlen("max_seqlen_k", a->max_seqlen_k, p->dense, p->k_rows, longest_k, &max_k));
    TRY(check_dense_mask(a, p, max_q, max_k));
    TRY(check_intervals(a, p));
    p->alpha = a->alpha;
    if (!isfinite(p->alpha))
        return ptl_fail(PTL_ERR_PARAM, "alpha: %g, expected a finite number", p->alpha);
    TRY(check_bias(a, p, longest_q > longest_k ? longest_q : longest_k, max_q, max_k));
    return check_scale(a, p);
}

static enum ptl_status check_params(const struct ptl_hstu_params *a) {
    if (!a) return ptl_fail(PTL_ERR_NULL, "params: NULL, expected arguments");
    if (a->struct_size != sizeof *a)
        return ptl_fail(PTL_ERR_PARAM,
                        "params.struct_size: %zu, expected %zu; use ptl_hstu_params_init",
                        a->struct_size, sizeof *a);
    return PTL_OK;
}

enum ptl_status ptl_hstu_check_forward(const struct ptl_hstu_params *a,
                                       struct ptl_hstu_problem *p) {
    TRY(check_params(a));
    TRY(check_inputs(a, "out", &a->out, p));
    p->out = ptl_rows_of(&a->out);
    return check_aliases(a, "out", &a->out);
}

/* ---- Backward -------------------------------------------------------------------------------- */

/* A gradient has the shape and type of what it is the gradient of. */
static enum ptl_status check_like(const char *name, const struct ptl_tensor *t, const char *of_name,
                                  const struct ptl_tensor *of) {
    TRY(ptl_check_layout(name, t, of->ndim, of->ndim));
    if (t->dtype != of->dtype)
        return ptl_fail(PTL_ERR_DTYPE, "%s: %s, expected %s (type of %s)", name,
                        ptl_dtype_name(t->dtype), ptl_dtype_name(of->dtype), of_name);
    for (int i = 0; i < of->ndim; i++) TRY(ptl_check_extent(name, t, i, of->shape[i], of_name));
    return PTL_OK;
}

static enum ptl_status check_optional(const char *name, const struct ptl_tensor *t,
                                      const char *of_name, const struct ptl_tensor *of) {
    if (!ptl_given(t)) return PTL_OK;
    if (!ptl_given(of)) return ptl_fail(PTL_ERR_PARAM, "%s: asked for without %s", name, of_name);
    return check_like(name, t, of_name, of);
}

static enum ptl_status check_ds(const struct ptl_tensor *t, struct ptl_hstu_problem *p,
                                struct ptl_hstu_gradients *g) {
    if (!ptl_given(t)) return PTL_OK;
    const int n_axes = p->dense ? 2 : 1;
    TRY(ptl_check_layout("ds", t, n_axes, n_axes));
    if (t->dtype != PTL_F32)
        return ptl_fail(PTL_ERR_DTYPE, "ds: %s, expected f32", ptl_dtype_name(t->dtype));
    if (p->dense) TRY(ptl_check_extent("ds", t, 0, p->n_seqs, "B of q"));
    TRY(ptl_check_extent("ds", t, n_axes - 1, p->q_rows, "rows of q"));
    g->ds = (struct ptl_rows){t->data, sizeof(float), p->dense ? t->stride[0] : 0, 1, 0};
    return PTL_OK;
}

enum ptl_status ptl_hstu_check_backward(const struct ptl_hstu_params *a,
                                        const struct ptl_hstu_grads *d, struct ptl_hstu_problem *p,
                                        struct ptl_hstu_gradients *g) {
    TRY(check_params(a));
    if (!d) return ptl_fail(PTL_ERR_NULL, "grads: NULL, expected gradients");
    if (d->struct_size != sizeof *d)
        return ptl_fail(PTL_ERR_PARAM,
                        "grads.struct_size: %zu, expected %zu; use ptl_hstu_grads_init",
                        d->struct_size, sizeof *d);
    if (is_paged(a))
        return ptl_fail(PTL_ERR_PARAM, "k_pages: given, but paged keys have no backward");
    memset(g, 0, sizeof *g);
    TRY(check_inputs(a, "dout", &d->dout, p));
    TRY(ptl_check_required("dq", &d->dq));
    TRY(ptl_check_required("dk", &d->dk));
    TRY(ptl_check_required("dv", &d->dv));
    TRY(check_like("dq", &d->dq, "q", &a->q));
    TRY(check_like("dk", &d->dk, "k", &a->k));
    TRY(check_like("dv", &d->dv, "v", &a->v));
    TRY(check_optional("dbias", &d->dbias, "attn_bias", &a->attn_bias));
    TRY(check_optional("dpos_table", &d->dpos_table, "pos_table", &a->pos_table));
    TRY(check_optional("dtime_table", &d->dtime_table, "time_table", &a->time_table));
    TRY(check_ds(&d->ds, p, g));

    const struct named outputs[] = {{"dq", &d->dq},
                                    {"dk", &d->dk},
                                    {"dv", &d->dv},
                                    {"dbias", &d->dbias},
                                    {"dpos_table", &d->dpos_table},
                                    {"dtime_table", &d->dtime_table},
                                    {"ds", &d->ds}};
    for (size_t i = 0; i < sizeof outputs / sizeof outputs[0]; i++) {
        if (!ptl_given(outputs[i].t)) continue;
        TRY(check_aliases(a, outputs[i].name, outputs[i].t));
        TRY(ptl_check_no_overlap(outputs[i].name, outputs[i].t, "dout", &d->dout));
        for (size_t j = 0; j < i; j++)
            TRY(ptl_check_no_overlap(outputs[i].name, outputs[i].t, outputs[j].name, outputs[j].t));
    }

    g->dout = ptl_rows_of(&d->dout);
    g->dq = ptl_rows_of(&d->dq);
    g->dk = ptl_rows_of(&d->dk);
    g->dv = ptl_rows_of(&d->dv);
    if (ptl_given(&d->dbias)) {
        const struct ptl_tensor *t = &d->dbias;
        g->dbias = (struct ptl_hstu_bias){t->data,
                                          t->dtype,
                                          t->shape[0] == 1 ? 0 : t->stride[0],
                                          t->shape[1] == 1 ? 0 : t->stride[1],
                                          t->stride[2],
                                          p->bias.by_key};
        memcpy(g->dbias_shape, t->shape, sizeof t->shape);
        memcpy(g->dbias_stride, t->stride, sizeof t->stride);
    }
    g->dpos = d->dpos_table.data;
    g->dpos_head_stride = d->dpos_table.ndim == 2 ? d->dpos_table.stride[0] : 0;
    g->dtime = d->dtime_table.data;
    g->dtime_head_stride = d->dtime_table.ndim == 2 ? d->dtime_table.stride[0] : 0;
    return PTL_OK;
}
