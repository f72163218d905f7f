/* Sparse and full softmax attention after the checks: the problem as the operators walk it.
 * Nothing here refuses anything; src/api/nsa_check.c has done that. */
#ifndef PTL_OPS_NSA_H
#define PTL_OPS_NSA_H

#include <pantile/nsa.h>
#include <stdbool.h>

#include "../core/context.h"
#include "views.h"

/* Where the keys and values of a branch lie, whatever they stand for: jagged (offsets), dense
 * (batch strides) or paged (then batch is the page, row the slot). */
struct ptl_nsa_store {
    struct ptl_rows k, v;     /* data NULL: absent */
    struct ptl_index offsets; /* jagged only */
    struct ptl_index table;   /* paged only */
    int64_t table_width, page_size;
};

/* Splits of a branch, in keys: where states begin anew (docs/architecture.md). */
enum {
    PTL_NSA_TILE = 64,
    PTL_NSA_SPLIT = 256,       /* compressed, selected and sliding */
    PTL_ATTENTION_SPLIT = 1024 /* full attention: a long decode should not leave many states */
};

struct ptl_nsa_problem {
    enum ptl_dtype dtype;
    int64_t n_seqs, n_q_heads, n_k_heads, group;
    int dqk, dv;

    bool dense;                 /* layout of the query rows */
    int64_t q_rows;             /* dense: Q */
    struct ptl_index offsets_q; /* jagged */
    struct ptl_index lens_k;    /* data NULL: offsets_k, or when dense dense_len_k */
    struct ptl_index offsets_k;
    int64_t dense_len_k; /* dense k: S */

    int64_t block, stride, select_block, topk, n_init, n_local, window, dense_len;
    int64_t offset; /* of the stencil */
    float scale;    /* times log2 e */
    int64_t swa_split;
    enum ptl_nsa_pool pool;
    enum ptl_nsa_order order;
    enum ptl_dtype score_dtype;

    struct ptl_rows q, q_cmp;
    struct ptl_nsa_store cmp, slc, swa;
    bool has_cmp, has_slc, has_swa; /* branches to compute */
    bool same_tokens;               /* slc and swa are one store */
    bool selects;                   /* idx of the selected branch comes from the compressed one */

    struct ptl_rows lse_in;  /* data NULL: own sum */
    struct ptl_index count;  /* [T, Hk]; data NULL: topk */
    struct ptl_index idx_in; /* [T, Hk, n_idx] */
    int64_t n_idx;
    struct ptl_rows gates; /* data NULL: no combined output */
    enum ptl_dtype gates_dtype;
    bool gate_sigmoid;

    /* Outputs; data NULL: not wanted. Arrays without a head size are rows of one element. */
    struct ptl_rows out, out_cmp, out_slc, out_swa, lse_cmp, lse_slc, lse_swa;
    struct ptl_rows importance, idx, nsel;
    int64_t n_scores; /* Ns of importance */
};

/* One sequence. */
struct ptl_nsa_seq {
    int64_t index;
    int64_t b, q_row; /* of the query rows: batch index (dense) or first row (jagged) */
    int64_t n_q, n_k; /* Q_b, S_b */
};

struct ptl_nsa_seq ptl_nsa_sequence(const struct ptl_nsa_problem *p, int64_t index);

/* Query row i stands at this position. */
static inline int64_t ptl_nsa_position(const struct ptl_nsa_seq *seq, int64_t i) {
    return seq->n_k - seq->n_q + i;
}

/* Its number counted over all rows: the index of [T, Hk] and [T, Hk, n] index tensors. */
static inline int64_t ptl_nsa_row_number(const struct ptl_nsa_problem *p,
                                         const struct ptl_nsa_seq *seq, int64_t i) {
    return (p->dense ? seq->b * p->q_rows : 0) + seq->q_row + i;
}

/* ---- Selection: nsa_select.c ----------------------------------------------------------------- */

/* The blocks of a row at position t with these scores of blocks 0 .. t / select_block, at most
 * `count` of them, to idx[0 .. topk-1], filled up with -1; returns how many. keys: memory for t /
 * select_block + 1 numbers. */
int ptl_nsa_select_row(const struct ptl_nsa_problem *p, const float *score, int64_t t,
                       int64_t count, uint64_t *keys, int32_t *idx);

/* ---- The operators. PTL_OK or PTL_ERR_NOMEM; after reserve the same run cannot fail. --------- */

enum ptl_status ptl_nsa_reserve(struct ptl_context *ctx, const struct ptl_nsa_problem *p);
enum ptl_status ptl_nsa_run(struct ptl_context *ctx, const struct ptl_nsa_problem *p);
enum ptl_status ptl_nsa_run_select(struct ptl_context *ctx, const struct ptl_nsa_problem *p);
enum ptl_status ptl_nsa_run_combine(struct ptl_context *ctx, const struct ptl_nsa_problem *p);

/* gates g0, g1, g2 of one row and head applied to the rows of three branches (NULL: off). */
void ptl_nsa_combine_row(const struct ptl_nsa_problem *p, const struct ptl_kernels *k,
                         const void *gates, const float *const *branches, float *out);

/* Row `row` of a sequence in a store. */
static inline const void *ptl_nsa_store_at(const struct ptl_nsa_store *s, const struct ptl_rows *r,
                                           int64_t seq, int64_t row, int64_t head) {
    if (s->table.data) {
        const int64_t at = seq * s->table_width + row / s->page_size;
        return ptl_rows_at(r, ptl_index_at(&s->table, at), row % s->page_size, head);
    }
    if (s->offsets.data) return ptl_rows_at(r, 0, ptl_index_at(&s->offsets, seq) + row, head);
    return ptl_rows_at(r, seq, row, head);
}

/* ---- Compression: nsa_compress.c ------------------------------------------------------------- */

/* Rows to compressed blocks, of keys or of values (the k of the stores). Rows of a sequence from
 * lens_old[b] on are new, and so are the blocks they complete. */
struct ptl_nsa_compression {
    enum ptl_dtype dtype;
    int64_t n_seqs, n_heads, block, stride;
    int dim;
    struct ptl_index lens,
        lens_old;              /* lens_old data NULL: 0; lens data NULL: all rows of `from`, */
    int64_t dense_len;         /* so many each when it is dense */
    struct ptl_nsa_store from; /* dense with ring: row s in slot s % block */
    bool ring;

    /* New rows, to be copied to `from` first; data NULL: they are there. */
    struct ptl_rows rows;
    struct ptl_index offsets_rows; /* jagged */
    int64_t dense_rows;            /* dense: the last ones of so many are new */

    /* Where blocks go: a store; slots: the j-th new block of a sequence to row slots[j] of pages. k
     * data NULL: nowhere. packed: sequence after sequence, offsets are to be made. */
    struct ptl_nsa_store to;
    bool packed;
    struct ptl_index slots; /* [B, slots_width] */
    int64_t slots_width, slots_page;

    struct ptl_rows w, pe; /* row r of a head; data NULL: mean, none */
    enum ptl_dtype w_dtype, pe_dtype;
};

static inline int64_t ptl_nsa_blocks_old(const struct ptl_nsa_compression *c, int64_t b) {
    return ptl_nsa_compressed_length(ptl_index_at(&c->lens_old, b), c->block, c->stride);
}

static inline int64_t ptl_nsa_len(const struct ptl_nsa_compression *c, int64_t b) {
    const struct ptl_index *offsets = &c->from.offsets;
    if (c->lens.data) return ptl_index_at(&c->lens, b);
    if (offsets->data) return ptl_index_at(offsets, b + 1) - ptl_index_at(offsets, b);
    return c->dense_len;
}

static inline int64_t ptl_nsa_blocks(const struct ptl_nsa_compression *c, int64_t b) {
    return ptl_nsa_compressed_length(ptl_nsa_len(c, b), c->block, c->stride);
}

enum ptl_status ptl_nsa_reserve_compression(struct ptl_context *ctx,
                                            const struct ptl_nsa_compression *c);
enum ptl_status ptl_nsa_run_compression(struct ptl_context *ctx,
                                        const struct ptl_nsa_compression *c);

#endif
