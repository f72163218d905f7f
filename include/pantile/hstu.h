/* HSTU attention, the silu attention of generative recommenders (Zhai et al., arXiv 2402.17152).
 * Formula, masks and layouts with pictures: docs/hstu.md and docs/layouts.md. */
#ifndef PANTILE_HSTU_H
#define PANTILE_HSTU_H

#include <pantile/base.h>

#ifdef __cplusplus
extern "C" {
#endif

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
 * All index tensors of a call are int32 or all are int64; they are contiguous. */
struct ptl_hstu_params {
    size_t struct_size; /* set by ptl_hstu_params_init */

    struct ptl_tensor q, k, v; /* f32 */
    struct ptl_tensor out;     /* f32, written; may not overlap an input */

    /* Rows seq_offsets_q[b] .. seq_offsets_q[b+1]-1 of q and out belong to sequence b: B+1 entries,
     * first 0, non-decreasing, last at most Tq. Jagged only, and required there. seq_offsets_k the
     * same for k and v; absent: seq_offsets_q. Rows past the last offset are padding. */
    struct ptl_tensor seq_offsets_q, seq_offsets_k;

    /* [B]: only the first seqused rows of each sequence exist; the rest is padding. Padding is
     * never read; rows of out there are written 0. Absent: all rows. */
    struct ptl_tensor seqused_q, seqused_k;

    /* Checked against the longest sequence, and the extents of mask. Default -1: the longest
     * sequence (jagged), Sq and Sk (dense). */
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

    /* A dense mask instead of the rule: u8 [B or 1, Hq or 1, max_seqlen_q, max_seqlen_k], nonzero is
     * valid, row i is query row i. Excludes every option of the rule. */
    struct ptl_tensor mask;
};

PTL_API void ptl_hstu_params_init(struct ptl_hstu_params *params);

/* Fused HSTU attention, forward:
 *
 *     out_i = s_i * sum over valid j of silu(alpha * q_i . k_j) * v_j        silu(x) = x / (1 + e^-x)
 *
 * There is no softmax and nothing to save for a backward pass but the inputs. Memory beyond the
 * arguments is O(threads); no S x S array exists. Rows that see nothing, and padding rows, are 0.
 * What the mask rejects is selected out, never multiplied by zero: a NaN behind the mask stays there.
 *
 * Result: the same bits for any number of threads, any batch around a sequence, and any split of
 * its query rows into calls, at one CPU level. Error against double: at most 5e-6 of the largest
 * |out| (docs/hstu.md).
 *
 * PTL_ERR_NULL, DTYPE, LAYOUT, SHAPE, PARAM, SEQLEN, ALIAS, OVERFLOW, NOMEM; ptl_message() tells
 * which argument. B = 0 and empty sequences are not errors. */
PTL_API enum ptl_status ptl_hstu_forward(struct ptl_context *ctx,
                                         const struct ptl_hstu_params *params);

#ifdef __cplusplus
}
#endif
#endif
