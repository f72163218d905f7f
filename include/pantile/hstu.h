/* HSTU attention, the silu attention of generative recommenders (Zhai et al., arXiv 2402.17152).
 * Formula, masks and layouts with pictures: docs/hstu.md and docs/layouts.md. */
#ifndef PANTILE_HSTU_H
#define PANTILE_HSTU_H

#include <pantile/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Which row of attn_bias a query row takes. */
enum ptl_hstu_bias_rows { PTL_HSTU_BIAS_QUERY = 0, PTL_HSTU_BIAS_KEY = 1 };

/* Whose time a query row takes for the time table. */
enum ptl_hstu_time_query { PTL_HSTU_TIME_NEXT = 0, PTL_HSTU_TIME_OWN = 1 };

/* Arguments of the HSTU operators. Fill with ptl_hstu_params_init, then set what differs; a field
 * left at its default counts as not given.
 *
 * B sequences; sequence b has uq query rows and uk keys. Its query row i stands at key position
 * p = i + uk - uq: queries are the last uq of the keys. c, t, h = uk - t below: contexts, targets,
 * first target position. A sequence is laid out [ contexts | history | targets ].
 *
 * Layouts, told apart by the number of axes of q, k, v and out (all the same):
 *   jagged  q [Tq, Hq, Dqk]     k [Tk, Hk, Dqk]     v [Tk, Hk, Dv]     out [Tq, Hq, Dv]
 *   dense   q [B, Sq, Hq, Dqk]  k [B, Sk, Hk, Dqk]  v [B, Sk, Hk, Dv]  out [B, Sq, Hq, Dv]
 * Query head a uses key head a / (Hq / Hk). Strides other than the last are free, so slices of one
 * uvqk buffer and transposed [B, H, S, D] arrays are taken as they are.
 *
 * All index tensors of a call are int32 or all are int64, and they are contiguous; intervals may
 * have the other type, time_thresholds and timestamps are always int64. */
struct ptl_hstu_params {
    size_t struct_size; /* set by ptl_hstu_params_init */

    struct ptl_tensor q, k, v; /* f32, f16 or bf16, all alike */
    struct ptl_tensor out;     /* the same type, written; may not overlap an input */

    /* Rows seq_offsets_q[b] .. seq_offsets_q[b+1]-1 of q and out belong to sequence b: B+1 entries,
     * first 0, non-decreasing, last at most Tq. Jagged only, and required there. seq_offsets_k the
     * same for k and v; absent: seq_offsets_q. Rows past the last offset are padding. */
    struct ptl_tensor seq_offsets_q, seq_offsets_k;

    /* [B]: only the first seqused rows of each sequence exist; the rest is padding. Padding is
     * never read; rows of out there are written 0. Absent: all rows. */
    struct ptl_tensor seqused_q, seqused_k;

    /* Checked against the longest sequence. They are also the extents of mask and attn_bias (and of
     * timestamps by position), exactly: set them where those are allocated for more than this
     * batch. Default -1: the longest sequence (jagged), Sq and Sk (dense). */
    int64_t max_seqlen_q, max_seqlen_k;

    float alpha; /* multiplies q.k; any finite number; default 1 */

    /* The factor s on each row of out. Exactly one of the two is given: s = 1 / scaling_seqlen
     * (>= 1; 0, the default, is "not given"), or attn_scale, f32: one number (ndim 0) or one per
     * query row ([Tq], dense [B, Sq]), all finite. */
    int64_t scaling_seqlen;
    struct ptl_tensor attn_scale;

    /* The mask rule. Column j is valid for the row at p when
     *     (window_right < 0 or j <= p + window_right)
     * and (window_left < 0 or r(p) - r(j) <= window_left
     *      or (min_full_attn_seq_len > 0 and p >= h - min_full_attn_seq_len))
     * and (not both are targets, or both are of one group: (j-h)/g == (p-h)/g),
     * or when p is a context row (p < c) and j < h.
     * r(x) places all contexts at c-1 and all targets at h. Contexts, targets and min_full need
     * window_right = 0. Default: causal, window (-1, 0). */
    int64_t window_left, window_right; /* -1: unlimited */
    struct ptl_tensor num_contexts;    /* one number (ndim 0) or [B]; default none */
    struct ptl_tensor num_targets;     /* one number (ndim 0) or [B]; default none */
    int64_t target_group_size;         /* g >= 1; default 1 */
    int64_t min_full_attn_seq_len;     /* last history rows that ignore window_left; default 0 */

    /* A dense mask instead of the rule: u8 [B or 1, Hq or 1, max_seqlen_q, max_seqlen_k], nonzero
     * is valid, row i is query row i. Excludes every option of the rule. */
    struct ptl_tensor mask;

    /* Intervals instead of the rule, shared by the heads: [Tq, 2G] (dense [B, Sq, 2G]), i32 or i64.
     * Column j is valid when s <= j < e for one of the G pairs (s, e) of the query row. Pairs may
     * overlap, be empty or reach outside the sequence. Excludes every option of the rule. */
    struct ptl_tensor intervals;

    /* Bias before silu: S = alpha * q.k + bias_scale * bias. Both forms may be given; they add up.
     *
     * attn_bias, f32 or the type of q: [B or 1, Hq or 1, R, max_seqlen_k]. Row i of the queries
     * takes row i (bias_rows QUERY, R = max_seqlen_q) or row p (KEY, R = max_seqlen_k; needs uq <=
     * uk). Entries outside a sequence are not read. */
    struct ptl_tensor attn_bias;
    float bias_scale; /* default NaN: alpha */
    enum ptl_hstu_bias_rows bias_rows;

    /* The table form, which costs O(N) memory. pos_table, f32 [2N-1] or [Hq, 2N-1]: a pair (p, j)
     * takes entry N-1 + j - p; N is at least the longest sequence. time_table, f32 [M+1] or [Hq,
     * M+1]: it takes the entry whose number is how many of the M ascending time_thresholds (i64
     * [M]) are <= |dt|, dt = time of the query - time of the key. timestamps, i64: [Tk] beside the
     * rows of k, or [B, max_seqlen_k] by key position (dense and paged layouts). The query's time
     * is that of its own position (OWN) or of the next one (NEXT, the last repeats itself). Time
     * needs uq <= uk. */
    struct ptl_tensor pos_table, time_table, time_thresholds, timestamps;
    enum ptl_hstu_time_query time_query;

    /* Paged keys: jagged q, k, v, and a cache k_pages, v_pages [pages, page_size, Hk, Dqk | Dv].
     * The page list of sequence b is page_ids[page_offsets[b] .. page_offsets[b+1]-1], its last
     * page holds last_page_lens[b] tokens. Its keys are the cached tokens in page order, then the
     * last num_targets[b] of its own rows of k and v, which are addressed by seq_offsets_q; the
     * other rows of k and v are not read. uk = cached + targets. seq_offsets_k, when given, must
     * agree with uk. Slots behind last_page_lens and pages not listed are not read. Needs Dv =
     * Dqk. */
    struct ptl_tensor k_pages, v_pages;
    struct ptl_tensor page_offsets, page_ids, last_page_lens; /* index tensors: [B+1], [.], [B] */
};

PTL_API void ptl_hstu_params_init(struct ptl_hstu_params *params);

/* The bucket functions of public models: bucket(x) = trunc(fn(x / unit) / divisor) for x = |dt|,
 * where LOG is log(max(x, 1)) and SQRT the square root. */
enum ptl_hstu_time_fn { PTL_HSTU_TIME_LOG = 0, PTL_HSTU_TIME_SQRT = 1 };

/* time_thresholds for n + 1 buckets: thresholds[k-1], k = 1..n, is the smallest x whose bucket is
 * at least k; buckets above n count as n. x is rounded to fp32 and everything after computed in
 * fp32, as the models' code does. Thresholds beyond int64 become INT64_MAX. unit and divisor are
 * positive and finite. PTL_ERR_NULL, PTL_ERR_PARAM. */
PTL_API enum ptl_status ptl_hstu_time_thresholds(enum ptl_hstu_time_fn fn, float unit,
                                                 float divisor, int64_t n, int64_t *thresholds);

/* Fused HSTU attention, forward:
 *
 *     out_i = s_i * sum over valid j of silu(S_ij) * v_j        silu(x) = x / (1 + e^-x)
 *     S_ij  = alpha * q_i . k_j + bias_scale * bias_ij
 *
 * There is no softmax and nothing to save for a backward pass but the inputs. Memory beyond the
 * arguments is O(threads); no S x S array exists. Rows that see nothing, and padding rows, are 0.
 * What the mask rejects is selected out, never multiplied by zero: a NaN behind the mask stays
 * there.
 *
 * Sums, S and silu are in fp32 for every type; out is rounded once.
 *
 * Result: the same bits for any number of threads, any batch around a sequence, any split of its
 * query rows into calls, paged or not, at one CPU level. Error against double: at most 5e-6 of the
 * largest |out| for f32, 2e-3 for f16, 1.6e-2 for bf16 (docs/hstu.md).
 *
 * PTL_ERR_NULL, DTYPE, LAYOUT, SHAPE, PARAM, SEQLEN, TABLE, ALIAS, OVERFLOW, NOMEM; ptl_message()
 * tells which argument. B = 0 and empty sequences are not errors. */
PTL_API enum ptl_status ptl_hstu_forward(struct ptl_context *ctx,
                                         const struct ptl_hstu_params *params);

/* Gradients of ptl_hstu_forward. Fill with ptl_hstu_grads_init, then set the tensors. */
struct ptl_hstu_grads {
    size_t struct_size; /* set by ptl_hstu_grads_init */

    struct ptl_tensor dout; /* in: gradient of out, its shape and type; strides of 0 are fine */
    struct ptl_tensor dq, dk, dv; /* out: shapes and type of q, k, v; padding rows become 0 */

    /* Optional outputs, absent by default. dbias: shape and type of attn_bias, all of it written,
     * summed over the axes that attn_bias broadcasts. dpos_table, dtime_table: f32, shapes of the
     * tables. ds, f32: gradient of a per-row scale, [Tq] (dense [B, Sq]), whichever form of the
     * scale was given. */
    struct ptl_tensor dbias, dpos_table, dtime_table, ds;
};

PTL_API void ptl_hstu_grads_init(struct ptl_hstu_grads *grads);

/* HSTU attention, backward. params as for forward (params->out is not used); with f = silu(S):
 *
 *     dP_ij = s_i dO_i . v_j        dS_ij = dP_ij silu'(S_ij)        for valid (i, j)
 *     dq_i = alpha sum_j dS_ij k_j      dk_j = alpha sum_i dS_ij q_i     dv_j = sum_i s_i f_ij dO_i
 *     dbias_ij = bias_scale dS_ij       ds_i = sum over heads and j of f_ij dO_i . v_j
 *
 * dk and dv are summed over the query heads of a group. Everything is computed anew from the
 * inputs. Outputs may be strided (slices of one buffer) but may not overlap inputs or each other.
 * Paged keys have no backward.
 *
 * Memory beyond the arguments: O(threads), O(Tq) bookkeeping; for f16 and bf16 also dq in fp32.
 * Result: deterministic, the same bits for any number of threads. Error against double: at most
 * 1e-5 of the largest entry of each gradient for f32, 2e-3 for f16, 1.6e-2 for bf16. A zero dout
 * gives exact zeros.
 *
 * PTL_ERR_NULL, DTYPE, LAYOUT, SHAPE, PARAM, SEQLEN, ALIAS, OVERFLOW, NOMEM. */
PTL_API enum ptl_status ptl_hstu_backward(struct ptl_context *ctx,
                                          const struct ptl_hstu_params *params,
                                          const struct ptl_hstu_grads *grads);

/* Arguments of ptl_hstu_kv_append. Fill with ptl_hstu_kv_append_params_init, then set the
 * tensors. */
struct ptl_hstu_kv_append_params {
    size_t struct_size; /* set by ptl_hstu_kv_append_params_init */

    struct ptl_tensor k, v; /* new rows, jagged: [T, Hk, Dqk], [T, Hk, Dv]; f32, f16 or bf16 */
    struct ptl_tensor
        seq_offsets; /* [B+1]: rows of k and v, as seq_offsets_q of ptl_hstu_forward */
    struct ptl_tensor
        num_targets;            /* one number or [B]: the last rows are not appended; default 0 */
    struct ptl_tensor n_cached; /* [B]: tokens already in the cache */
    struct ptl_tensor k_pages,
        v_pages; /* written: [pages, page_size, Hk, Dqk | Dv], the type of k */
    struct ptl_tensor page_offsets, page_ids; /* page lists, long enough for the new tokens */
};

PTL_API void ptl_hstu_kv_append_params_init(struct ptl_hstu_kv_append_params *params);

/* Copies new history into a paged cache: row x of sequence b, x < rows - num_targets, becomes token
 * n_cached[b] + x, which lives in slot token % page_size of page page_ids[page_offsets[b] + token /
 * page_size]. Every other slot keeps its bits. The caller's lists give each token written a slot of
 * its own.
 *
 * PTL_ERR_NULL, DTYPE, LAYOUT, SHAPE, PARAM, SEQLEN, TABLE (a page id out of range, or a list too
 * short), ALIAS, OVERFLOW. */
PTL_API enum ptl_status ptl_hstu_kv_append(struct ptl_context *ctx,
                                           const struct ptl_hstu_kv_append_params *params);

#ifdef __cplusplus
}
#endif
#endif
