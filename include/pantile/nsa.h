/* Native sparse attention (DeepSeek, arXiv 2502.11089) for prefill and decode: compress, compressed
 * attention with importance scores, block selection, selected and sliding attention, gates.
 * Formulas with pictures: docs/nsa.md. Full attention by the same engine: attention.h. */
#ifndef PANTILE_NSA_H
#define PANTILE_NSA_H

#include <pantile/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Which compressed keys give weight to a selection block. With a = select_block / stride and b =
 * block / stride, block j takes keys a j + o .. a j + o + a + b - 2 with the weights of box(a) *
 * box(b) (1 2 2 2 1 for a = 4, b = 2), terms outside left out. The offset o is
 *   OVERLAP  1 - b  a key counts by the tokens it shares with the block
 *   PLUS     0      the paper's first formula read from 0
 *   ASCEND   2 - b  as CANN's kernels compute it: one key later than OVERLAP */
enum ptl_nsa_score { PTL_NSA_OVERLAP = 0, PTL_NSA_PLUS = 1, PTL_NSA_ASCEND = 2 };

/* SUM weighs as above; MAX takes the largest of these keys, unweighted (InfLLM v2). */
enum ptl_nsa_pool { PTL_NSA_POOL_SUM = 0, PTL_NSA_POOL_MAX = 1 };

/* Order of the selected blocks in idx: ascending, or by rank. */
enum ptl_nsa_order { PTL_NSA_ORDER_INDEX = 0, PTL_NSA_ORDER_SCORE = 1 };

enum ptl_nsa_gate_act { PTL_NSA_GATE_NONE = 0, PTL_NSA_GATE_SIGMOID = 1 };

/* MEAN: the mean of the rows of a block. WEIGHTED: their sum with the weights w. */
enum ptl_nsa_mode { PTL_NSA_MEAN = 0, PTL_NSA_WEIGHTED = 1 };

/* Complete compression blocks of s tokens: 0 if s < block, else (s - block) / stride + 1. block and
 * stride must be positive. */
PTL_API int64_t ptl_nsa_compressed_length(int64_t s, int64_t block, int64_t stride);

/* ---- The attention operators --------------------------------------------------------------------
 * One set of arguments for all of them; each function below names the fields it reads and writes.
 * Fill with ptl_nsa_params_init, then set what differs.
 *
 * B sequences; sequence b has S_b tokens and Q_b <= S_b query rows, which are its last ones: row i
 * stands at position t = S_b - Q_b + i. Decode is Q = 1, prefill Q = S, chunks are in between.
 * Query head h belongs to kv head h / G, G = Hq / Hk.
 *
 * Layouts of the rows (q, gates, outputs): jagged [T, Hq, D] with seq_offsets_q, or dense [B, Q,
 * Hq, D]. Of tokens (k, v, k_swa, v_swa): as q, jagged [Tk, Hk, D] or dense [B, S, Hk, D], or, with
 * page_table, [pages, page, Hk, D]. Of compressed keys and values: jagged [Tc, Hk, D] with
 * seq_offsets_kc, dense [B, N, Hk, D], or, with page_table_c, [pages, page, Hk, D], a row for each
 * compressed block. The last axis is contiguous, other strides are free. Types: f32, f16 or bf16,
 * all alike; index tensors i32 or i64, contiguous. A tensor without data is absent. */
struct ptl_nsa_params {
    size_t struct_size; /* set by ptl_nsa_params_init */

    int64_t block;        /* l, tokens that a compressed key stands for; default 32 */
    int64_t stride;       /* d, tokens between them; divides block and select_block; default 16 */
    int64_t select_block; /* l', tokens of a selection block; default 64 */
    int64_t topk;         /* n, blocks that a row and kv head selects, at most; at least n_init +
                             n_local; default 16 */
    int64_t n_init;       /* first blocks, always selected; default 1 */
    int64_t n_local;      /* newest blocks, the row's own included, always selected; default 2 */
    int64_t window;       /* w, sliding window in tokens, the row's own included; 0 switches the
                             branch off; default 512 */
    int64_t dense_len;    /* rows with t + 1 < dense_len attend to all blocks instead of the
                             selected ones; default 0 */
    float scale;          /* multiplies q.k in all branches; default NaN: D^-1/2 */

    struct ptl_tensor q;     /* [T, Hq, D] */
    struct ptl_tensor q_cmp; /* queries of the compressed branch; default q */
    struct ptl_tensor k, v;  /* tokens of the selected branch, [Tk, Hk, D], [Tk, Hk, Dv] */
    struct ptl_tensor k_swa,
        v_swa;                /* tokens of the sliding branch, laid out as k, v; default k, v */
    struct ptl_tensor kc, vc; /* compressed keys and values, [Tc, Hk, D], [Tc, Hk, Dv] */

    struct ptl_tensor seq_offsets_q;  /* jagged q: [B+1], first 0, not decreasing, last T */
    struct ptl_tensor seq_offsets_k;  /* jagged k: [B+1]; default seq_offsets_q */
    struct ptl_tensor seqlens_k;      /* [B]: S_b; default: the rows of k, else of q; required with
                                         page_table */
    struct ptl_tensor page_table;     /* [B, M]: token s is row s % page of page page_table[b, s /
                                         page]; only the first ceil(S_b / page) entries are read */
    struct ptl_tensor seq_offsets_kc; /* jagged kc: [B+1]; sequence b needs
                                         ptl_nsa_compressed_length(S_b) rows */
    struct ptl_tensor page_table_c;   /* [B, Mc]: pages of kc and vc, as page_table */

    enum ptl_nsa_score score; /* default OVERLAP */
    enum ptl_nsa_pool pool;   /* default SUM */
    enum ptl_nsa_order order; /* default INDEX */
    enum ptl_dtype
        score_dtype;          /* f16 or bf16: the probabilities of the compressed branch are rounded
                                   to it before they meet the values and the score; default f32 */
    struct ptl_tensor lse_in; /* f32 [T, Hq]: normalises the compressed branch instead of its own
                                  sum; where -inf, the row's probabilities are 0 */
    struct ptl_tensor count;  /* [T, Hk]: fewer than topk blocks for a row; default topk */
    struct ptl_tensor gates;  /* [T, Hq, 3]: factors of the compressed, selected, sliding branch;
                                  f32 or the type of q */
    enum ptl_nsa_gate_act gate_act; /* default NONE */

    struct ptl_tensor out;                       /* [T, Hq, Dv]: the combined result */
    struct ptl_tensor out_cmp, out_slc, out_swa; /* [T, Hq, Dv]: a branch */
    struct ptl_tensor lse_cmp, lse_slc,
        lse_swa;                  /* f32 [T, Hq]: log of the sum of exp(scale q.k) over
                                                    what the row sees; -inf if nothing */
    struct ptl_tensor importance; /* f32 [T, Hk, Ns], Ns >= ceil(max S_b / select_block) */
    struct ptl_tensor idx;        /* [T, Hk, n]: selected blocks; written as i32 with n = topk, read
                                     with any n, where what is no block of the row is skipped */
    struct ptl_tensor nsel;       /* i32 [T, Hk]: how many of idx are set */
};

PTL_API void ptl_nsa_params_init(struct ptl_nsa_params *params);

/* Attention over the compressed keys, and what follows from its probabilities. Row t sees block i
 * if i stride + block - 1 <= t:
 *
 *     P_i = exp(scale q . kc_i - lse)        out_cmp = sum_i P_i vc_i
 *     importance_j = the sum of P over the G heads of the kv head, pooled to selection blocks
 *     idx = the topk blocks: forced ones, then by importance, then by number
 *
 * Reads q_cmp (else q), kc, vc, lse_in, count and the sequences. Writes those of out_cmp, lse_cmp,
 * importance, idx, nsel that are given, at least one; vc is needed for out_cmp only. With lse_in,
 * lse_cmp is not available. Rows that see nothing: out_cmp 0, lse_cmp -inf, importance 0 (MAX:
 * -inf), and still a selection. idx is filled up with -1.
 *
 * One pass over the keys: the tile of P that meets the values also feeds the score (MAX without
 * lse_in: two passes over kc). No row of P is stored; memory beyond the arguments is O(threads *
 * (tile + G S / select_block)).
 *
 * Result: as for ptl_attention_forward the same bits in any setting. Error: of out_cmp as there, of
 * lse 2e-5 max(1, |lse| / 16), of importance 2e-5 G block / stride.
 * PTL_ERR_NULL, DTYPE, LAYOUT, SHAPE, PARAM, SEQLEN, TABLE, ALIAS, OVERFLOW, NOMEM. */
PTL_API enum ptl_status ptl_nsa_compressed_attention(struct ptl_context *ctx,
                                                     const struct ptl_nsa_params *params);

/* Selection from given importance scores. Candidates of row t are the blocks 0 .. t / select_block;
 * forced ones come first, then higher importance (NaN as -inf), then lower number. The first
 * min(topk, candidates, count) are taken. Reads importance, count and the sequences (seq_offsets_q
 * or the dense shape, seqlens_k or seq_offsets_k); writes idx and, if given, nsel. The number of
 * steps is linear in the number of blocks.
 * PTL_ERR_NULL, DTYPE, LAYOUT, SHAPE, PARAM, SEQLEN, ALIAS, OVERFLOW, NOMEM. */
PTL_API enum ptl_status ptl_nsa_select(struct ptl_context *ctx,
                                       const struct ptl_nsa_params *params);

/* Selected and sliding attention, two softmaxes:
 *
 *     selected: over the tokens <= t of the blocks in idx (an entry that is no block of the row, in
 *               any place, is skipped; a block listed twice counts twice)
 *     sliding:  over the tokens t - window < s <= t
 *
 * Reads q, k, v, k_swa, v_swa, idx (absent: no selected branch), window (0: no sliding branch),
 * dense_len and the sequences. Writes those of out_slc, lse_slc, out_swa, lse_swa that are given. A
 * row whose selection is empty, and a branch that is off: out 0, lse -inf.
 * PTL_ERR_NULL, DTYPE, LAYOUT, SHAPE, PARAM, SEQLEN, TABLE, ALIAS, OVERFLOW, NOMEM. */
PTL_API enum ptl_status ptl_nsa_attend(struct ptl_context *ctx,
                                       const struct ptl_nsa_params *params);

/* out = g0 out_cmp + g1 out_slc + g2 out_swa, g = gates or sigmoid(gates), in fp32, rounded once.
 * Reads gates, out_cmp, out_slc, out_swa (an absent one counts as 0); writes out. A sequence is not
 * needed: all rows are taken. PTL_ERR_NULL, DTYPE, LAYOUT, SHAPE, PARAM, ALIAS, OVERFLOW. */
PTL_API enum ptl_status ptl_nsa_combine(struct ptl_context *ctx,
                                        const struct ptl_nsa_params *params);

/* The four above in one call, selection and branches kept in scratch memory. Reads what they read,
 * but for idx; kc and vc both absent: the mean over each block of k and of v, rounded to their
 * type. Writes out, and those of the other outputs that are given. Equals the composition: bit for
 * bit for f32, else but for the rounding of the branches in between.
 * PTL_ERR_NULL, DTYPE, LAYOUT, SHAPE, PARAM, SEQLEN, TABLE, ALIAS, OVERFLOW, NOMEM. */
PTL_API enum ptl_status ptl_nsa_forward(struct ptl_context *ctx,
                                        const struct ptl_nsa_params *params);

/* ---- Compressed keys and values -------------------------------------------------------------- */

/* Arguments of ptl_nsa_compress. Fill with ptl_nsa_compress_params_init. */
struct ptl_nsa_compress_params {
    size_t struct_size;
    int64_t block;          /* l; default 32 */
    int64_t stride;         /* d, divides block; default 16 */
    enum ptl_nsa_mode mode; /* default MEAN */

    struct ptl_tensor x; /* jagged [T, H, D], dense [B, S, H, D], or [pages, page, H, D] */
    struct ptl_tensor y; /* written, the type of x: jagged [T', H, D], T' >= the sum of the blocks,
                            sequence after sequence; dense [B, N, H, D], N >= the blocks of S */
    struct ptl_tensor seq_offsets;   /* jagged x: [B+1] */
    struct ptl_tensor seqlens;       /* [B]; default all rows; required with page_table */
    struct ptl_tensor page_table;    /* [B, M] of a paged x; y is then jagged */
    struct ptl_tensor seq_offsets_y; /* optional output, jagged y: [B+1], i32 or i64 */
    struct ptl_tensor w;             /* WEIGHTED only: [block, H], f32 or the type of x */
    struct ptl_tensor pe; /* optional [block, H, D], f32 or the type of x: added to the rows */
};

PTL_API void ptl_nsa_compress_params_init(struct ptl_nsa_compress_params *params);

/* y_i = sum over r < block of w_r (x_{i stride + r} + pe_r), for every complete block i of every
 * sequence; MEAN: w_r = 1 / block. Sums in fp32, one rounding. Rows of y behind them are not
 * touched. PTL_ERR_NULL, DTYPE, LAYOUT, SHAPE, PARAM, SEQLEN, TABLE, ALIAS, OVERFLOW, NOMEM. */
PTL_API enum ptl_status ptl_nsa_compress(struct ptl_context *ctx,
                                         const struct ptl_nsa_compress_params *params);

/* Arguments of ptl_nsa_append. Fill with ptl_nsa_append_params_init. Everything about keys has a
 * twin for values; either may be absent. */
struct ptl_nsa_append_params {
    size_t struct_size;
    int64_t block, stride;  /* as above */
    enum ptl_nsa_mode mode; /* as above */

    struct ptl_tensor seqlens_old; /* [B]: tokens before */
    struct ptl_tensor seqlens_k;   /* [B]: tokens after */

    /* The new tokens seqlens_old[b] .. seqlens_k[b]-1 of each sequence: jagged [T, H, D] with
     * seq_offsets, or dense [B, Q, H, D] (the last ones of Q). Absent: they lie in the pages
     * already. */
    struct ptl_tensor k, v;
    struct ptl_tensor seq_offsets; /* [B+1] */

    /* Where tokens live: the cache [pages, page, H, D] with page_table [B, M], written when k, v
     * are given; or, where no raw tokens are kept, a ring [B, block, H, D]: token s in slot s %
     * block. */
    struct ptl_tensor k_pages, v_pages, page_table;
    struct ptl_tensor k_ring, v_ring;

    /* Where compressed blocks go: pages [pages, page, H, D] with page_table_c [B, Mc], block i in
     * row i % page of page page_table_c[b, i / page]; or slots [B, M]: the j-th block completed by
     * this call goes to row slots[b, j] of the pages taken as one array, -1: nowhere. Absent:
     * none. */
    struct ptl_tensor kc_pages, vc_pages, page_table_c, slots;
    struct ptl_tensor w_k, w_v, pe_k, pe_v; /* as w and pe above */
};

PTL_API void ptl_nsa_append_params_init(struct ptl_nsa_append_params *params);

/* Appends new tokens to the cache and compresses the blocks that they complete: none, one or many
 * of a sequence, blocks N(seqlens_old) .. N(seqlens_k)-1. Every other slot keeps its bits. To go
 * back, pass a smaller seqlens_old next time; to fork, copy the row of the page table.
 * A block gets the same bits here and from ptl_nsa_compress.
 * PTL_ERR_NULL, DTYPE, LAYOUT, SHAPE, PARAM, SEQLEN, TABLE (also for slots out of range, or the
 * same slot twice), ALIAS, OVERFLOW, NOMEM. */
PTL_API enum ptl_status ptl_nsa_append(struct ptl_context *ctx,
                                       const struct ptl_nsa_append_params *params);

/* One decode step: ptl_nsa_append, then ptl_nsa_forward over the caches it has written. All
 * arguments of both are checked before anything is written. */
PTL_API enum ptl_status ptl_nsa_decode(struct ptl_context *ctx,
                                       const struct ptl_nsa_append_params *append,
                                       const struct ptl_nsa_params *params);

#ifdef __cplusplus
}
#endif
#endif
