/* Jagged arrays: sequences of different lengths laid end to end, the copies between them and
 * padded arrays, and the position and time embedding. Pictures, formulas, the peers' names:
 * docs/jagged.md. */
#ifndef PANTILE_JAGGED_H
#define PANTILE_JAGGED_H

#include <pantile/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A batch of B sequences, in one of two layouts:
 *
 *   jagged  values [T, ...]     sequence b is the rows offsets[b] .. offsets[b+1]-1; offsets has
 *                               B+1 entries, begins with 0, never decreases, ends with at most T.
 *                               Rows behind the last offset are padding: not read, written 0.
 *   dense   values [B, n, ...]  offsets absent: every sequence has n rows.
 *
 * A row is what is left of the shape: none (ids, time stamps), one or two axes. It is
 * contiguous; the strides between rows and between sequences are free, 0 included where an array
 * is only read.
 *
 * Copies take every element type; all arrays of a call are alike. Index tensors (offsets,
 * lengths) are int32 or int64, alike in a call, and contiguous. Outputs may not overlap inputs
 * or each other. B = 0, empty sequences and T = 0 are not errors, and an array without elements
 * needs no memory. */
struct ptl_jagged {
    struct ptl_tensor values;
    struct ptl_tensor offsets; /* absent (data NULL): dense */
};

/* Every function below: PTL_ERR_NULL, DTYPE, LAYOUT, SHAPE, PARAM, SEQLEN, ALIAS, OVERFLOW, NOMEM;
 * ptl_message() tells which argument, and nothing was written. Results are the same bits for any
 * number of threads and at every CPU level. */

/* offsets = 0, l_0, l_0 + l_1, ...: B+1 entries from B lengths, of the same type.
 * A negative length: PTL_ERR_SEQLEN; a sum beyond the type: PTL_ERR_OVERFLOW. Needs no context. */
PTL_API enum ptl_status ptl_jagged_complete_cumsum(const struct ptl_tensor *lengths,
                                                   const struct ptl_tensor *offsets);

/* Which end of a sequence stays where it is when the length changes. */
enum ptl_jagged_align {
    PTL_JAGGED_ALIGN_START = 0, /* first rows on first rows; rows are cut or padded at the end */
    PTL_JAGGED_ALIGN_END = 1    /* last rows on last rows; rows are cut or padded in front */
};

/* Gives every sequence of x the length that out has for it: cut, or filled with pad.
 *
 *     out_b[i] = x_b[i]                    START
 *     out_b[i] = x_b[i + |x_b| - |out_b|]  END          pad where x_b has no such row
 *
 * By the layouts of x and out this is
 *     jagged -> dense   jagged_to_padded_dense; with END, padding in front, or the last n tokens
 *     dense -> jagged   padded_to_jagged (dense_to_jagged)
 *     jagged -> jagged  shorter sequences: the first or last tokens removed
 * and the gradient of each is the same call from out to x, same align, pad NULL.
 *
 * pad points to one element of x's type; NULL: zero. */
PTL_API enum ptl_status ptl_jagged_resize(struct ptl_context *ctx, const struct ptl_jagged *x,
                                          enum ptl_jagged_align align, const void *pad,
                                          const struct ptl_jagged *out);

/* One sequence of each side after the other; with n_prefix > 0, inside the right one:
 *
 *     out_b = right_b[:n], left_b, right_b[n:]        n = min(n_prefix, |right_b|)
 *
 * So left_b, right_b for n_prefix = 0. A dense side puts the same number of rows into every
 * sequence. out is [T, ...]: its sequence b begins at row left_begin[b] + right_begin[b] (for a
 * dense side, begin[b] is b * n); rows behind the last sequence are written 0. The gradient of
 * both sides is ptl_jagged_split of the gradient of out. */
PTL_API enum ptl_status ptl_jagged_concat(struct ptl_context *ctx, const struct ptl_jagged *left,
                                          const struct ptl_jagged *right, int64_t n_prefix,
                                          const struct ptl_tensor *out);

/* The inverse of ptl_jagged_concat, and its gradient: x [T, ...] is laid out as out is there;
 * left and right are written, and say by offsets or n how long their parts are. A side whose
 * values have no data is not wanted (a dense one must still tell its shape). The gradient is
 * ptl_jagged_concat. */
PTL_API enum ptl_status ptl_jagged_split(struct ptl_context *ctx, const struct ptl_tensor *x,
                                         int64_t n_prefix, const struct ptl_jagged *left,
                                         const struct ptl_jagged *right);

/* The last |last_b| rows of every sequence replaced:
 *
 *     out_b = x_b[: |x_b| - |last_b|], last_b        |last_b| <= |x_b|, else PTL_ERR_SEQLEN
 *
 * x is jagged; out is [T, ...] with x's offsets. last->values without data stand for zeros
 * (dense ones must still tell their shape): called so on the gradient of out it makes the
 * gradient of x. That of last is ptl_jagged_resize from out to last, align END. */
PTL_API enum ptl_status ptl_jagged_replace_last(struct ptl_context *ctx, const struct ptl_jagged *x,
                                                const struct ptl_jagged *last,
                                                const struct ptl_tensor *out);

/* One row added to all rows of its sequence: out_b[i] = x_b[i] + d[b], in float. f32, f16 or bf16.
 *
 * d is [B, ...]; out has the layout of x, and may be x itself. The gradient of x is that of out,
 * the gradient of d its ptl_jagged_sum. x->values without data stand for zeros: then out_b[i] =
 * d[b], a copy of any element type, which is also the gradient of ptl_jagged_sum. */
PTL_API enum ptl_status ptl_jagged_broadcast_add(struct ptl_context *ctx,
                                                 const struct ptl_jagged *x,
                                                 const struct ptl_tensor *d,
                                                 const struct ptl_tensor *out);

/* The sum of the rows of every sequence: out[b] = sum over i of x_b[i], 0 for an empty one. f32,
 * f16 or bf16.
 *
 * x as above, out [B, ...]. Summed in double in a fixed order, then rounded to float and to the
 * type. */
PTL_API enum ptl_status ptl_jagged_sum(struct ptl_context *ctx, const struct ptl_jagged *x,
                                       const struct ptl_tensor *out);

/* ---- Position and time embedding
 * ------------------------------------------------------------------ Token x of a sequence of n
 * tokens, the last T of them targets, the first C contexts:
 *
 *     out = alpha * emb + (pos_w[pos] + ts_w[bucket])
 *
 *     FROM_END    pos = x                                     contexts, x < C
 *                 pos = min(top - min(x, top) + C, NP - 1)    the others; top = n - T
 *     FROM_START  pos = min(x + start, top + start, NP - 1)
 *
 *     bucket = clamp(trunc(g(max(time[n-1] - time[x], 1e-6) / 60)), 0, NB)    g = sqrt or log
 *
 * The difference of times is exact; it is rounded to float, then divided; g is rounded to float.
 * The sum is taken in float, in the order of the formula. */

enum ptl_jagged_position_order {
    PTL_JAGGED_POSITION_FROM_END = 0,  /* the last history token is C + 1, targets are C */
    PTL_JAGGED_POSITION_FROM_START = 1 /* the first token is start; targets share one position */
};

enum ptl_jagged_time_bucket {
    PTL_JAGGED_TIME_SQRT = 0, /* g(m) = sqrt(m), m in minutes when times are in seconds */
    PTL_JAGGED_TIME_LOG = 1   /* g(m) = ln(m) */
};

/* Fill with ptl_jagged_position_time_init, then set what differs. */
struct ptl_jagged_position_time_params {
    size_t struct_size; /* set by the init function */

    /* B+1 entries, as in struct ptl_jagged: which rows of the arrays below make up a sequence. */
    struct ptl_tensor seq_offsets;

    struct ptl_tensor num_targets;  /* T: one number (ndim 0) or [B]; default none */
    struct ptl_tensor num_contexts; /* C: likewise; FROM_END only */
    enum ptl_jagged_position_order position_order;
    struct ptl_tensor position_start; /* FROM_START: likewise; tokens that a cache holds already */

    struct ptl_tensor timestamps; /* [rows], i64 or i32; absent: no time term, and no ts_w */
    enum ptl_jagged_time_bucket time_bucket;
    float alpha; /* finite; default 1 */

    /* Rows are as in struct ptl_jagged: contiguous, any stride between them. emb and out, dout and
     * demb are f32, f16 or bf16, alike; the tables, and their gradients, are of that type or f32,
     * alike. Arithmetic is in float.
     *
     * Forward. */
    struct ptl_tensor emb;   /* [rows, E] */
    struct ptl_tensor pos_w; /* [NP, E], NP >= 1 */
    struct ptl_tensor ts_w;  /* [NB + 1, E], NB >= 0 */
    struct ptl_tensor out;   /* [rows, E], written; may be emb itself */

    /* Backward. */
    struct ptl_tensor dout;                /* [rows, E] */
    struct ptl_tensor demb, dpos_w, dts_w; /* written where given; demb may be dout itself */
};

PTL_API void ptl_jagged_position_time_init(struct ptl_jagged_position_time_params *params);

/* Rows behind the last offset are written 0. More targets than tokens, or more contexts than
 * rows of pos_w (in a sequence that has that many tokens): PTL_ERR_SEQLEN. Uses none of the
 * fields under "Backward". */
PTL_API enum ptl_status
ptl_jagged_position_time_forward(struct ptl_context *ctx,
                                 const struct ptl_jagged_position_time_params *params);

/* demb = alpha * dout (0 behind the last offset); dpos_w[p] and dts_w[k] are the sums of dout
 * over the tokens with that position or bucket, 0 for those that no token has. At least one is
 * given. Sums are taken in double in a fixed order and rounded once, so their bits do not depend
 * on the threads. Scratch memory: 32 bytes a row. Uses none of the fields under "Forward"; NP
 * and NB are those of dpos_w, dts_w. */
PTL_API enum ptl_status
ptl_jagged_position_time_backward(struct ptl_context *ctx,
                                  const struct ptl_jagged_position_time_params *params);

#ifdef __cplusplus
}
#endif
#endif
