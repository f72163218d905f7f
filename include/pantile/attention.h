/* Full causal softmax attention, by the engine of the sparse one (nsa.h): the baseline to compare
 * with, and the answer for short sequences. */
#ifndef PANTILE_ATTENTION_H
#define PANTILE_ATTENTION_H

#include <pantile/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Arguments of ptl_attention_forward. Fill with ptl_attention_params_init, then set the tensors.
 *
 * B sequences; sequence b has S_b keys and Q_b <= S_b query rows, which are its last ones: row i
 * stands at position t = S_b - Q_b + i. Decode is Q = 1, prefill Q = S, chunks are in between.
 *
 *   jagged  q [T, Hq, D]     k [Tk, Hk, D]     v [Tk, Hk, Dv]     out [T, Hq, Dv]    lse [T, Hq]
 *   dense   q [B, Q, Hq, D]  k [B, S, Hk, D]   v [B, S, Hk, Dv]   out [B, Q, Hq, Dv] lse [B, Q, Hq]
 *   paged   k [pages, page, Hk, D], v [pages, page, Hk, Dv] and page_table; q jagged or dense
 *
 * Query head h uses key head h / (Hq / Hk). Strides other than the last are free. Each index tensor
 * is i32 or i64 and contiguous. */
struct ptl_attention_params {
    size_t struct_size; /* set by ptl_attention_params_init */

    struct ptl_tensor q, k, v; /* f32, f16 or bf16, all alike; D and Dv 1..512 */
    struct ptl_tensor out;     /* the same type; may not overlap an input */
    struct ptl_tensor lse;     /* optional output, f32: log of the sum of exp(scale q.k) */

    struct ptl_tensor seq_offsets_q; /* jagged q: [B+1], first 0, not decreasing, last T */
    struct ptl_tensor seq_offsets_k; /* jagged k: [B+1]; default seq_offsets_q */
    struct ptl_tensor seqlens_k;     /* [B]: S_b; default the rows of k, required when paged */
    struct ptl_tensor
        page_table; /* [B, M]: token s is row s % page of page page_table[b, s / page];
                                     only the first ceil(S_b / page) entries are read */

    float scale;    /* finite; default NaN: D^-1/2 */
    int64_t window; /* the last keys that a row sees, its own included; default 0: all */
};

PTL_API void ptl_attention_params_init(struct ptl_attention_params *params);

/* out_t = sum over t - window < s <= t of softmax(scale q_t . k_s) v_s.
 *
 * Keys are walked in tiles with a running maximum; sums are in fp32 for every type, out is rounded
 * once. Memory beyond the arguments is O(threads), in decode also O(S / 1024).
 *
 * Result: the same bits for any number of threads, any batch, any split of the rows into calls,
 * paged or not, at one CPU level. Error against double, of max(1, the largest |out|): at most 2e-5
 * for f32, 3e-3 for f16, 2e-2 for bf16.
 *
 * PTL_ERR_NULL, DTYPE, LAYOUT, SHAPE, PARAM, SEQLEN, TABLE, ALIAS, OVERFLOW, NOMEM. */
PTL_API enum ptl_status ptl_attention_forward(struct ptl_context *ctx,
                                              const struct ptl_attention_params *params);

#ifdef __cplusplus
}
#endif
#endif
