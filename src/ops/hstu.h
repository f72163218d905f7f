/* HSTU after the checks: the problem as the operators walk it, its sequences, its mask.
 * Nothing here refuses anything; src/api/hstu_check.c has done that. */
#ifndef PTL_OPS_HSTU_H
#define PTL_OPS_HSTU_H

#include <pantile/hstu.h>
#include <stdbool.h>

#include "../core/context.h"
#include "views.h"

/* A dense bias; strides in elements, 0 where it broadcasts. */
struct ptl_hstu_bias {
    const char *data; /* NULL: none */
    enum ptl_dtype dtype;
    int64_t batch_stride, head_stride, row_stride;
    bool by_key; /* rows are positions, not query rows */
};

/* Bias from tables. */
struct ptl_hstu_tables {
    const float *pos; /* NULL: none; 2 n - 1 entries a head */
    int64_t pos_head_stride, n;
    const float *time; /* NULL: none */
    int64_t time_head_stride;
    const int64_t *thresholds;
    int64_t n_thresholds;
    const int64_t *stamps;
    int64_t stamps_batch_stride; /* 0: beside the rows of k */
    bool stamps_by_row;
    bool query_next;
};

/* The cache of the paged layout. In the rows, batch is the page and row the slot. */
struct ptl_hstu_pages {
    bool on;
    struct ptl_rows k, v;
    int64_t page_size;
    struct ptl_index offsets, ids, last_lens;
};

/* Interval pairs of the query rows; strides in elements. */
struct ptl_hstu_intervals {
    const void *data; /* NULL: none */
    bool wide;        /* int64 */
    int64_t batch_stride, row_stride, n_pairs;
};

struct ptl_hstu_problem {
    bool dense; /* layout */
    enum ptl_dtype dtype;
    int64_t n_seqs, n_q_heads, n_k_heads;
    int64_t q_rows, k_rows; /* Tq, Tk, or Sq, Sk when dense */
    int dqk, dv;
    struct ptl_rows q, k, v, out;
    struct ptl_index offsets_q, offsets_k; /* jagged */
    struct ptl_index used_q, used_k;       /* data NULL: all rows */
    struct ptl_hstu_pages pages;
    float alpha, beta;
    struct ptl_hstu_bias bias;
    struct ptl_hstu_tables tables;

    struct ptl_rows scale_rows; /* data NULL: one scale for all rows */
    float scale;

    /* The rule. Unlimited windows are negative. */
    int64_t window_left, window_right, group, min_full;
    struct ptl_index contexts, targets;

    /* The dense mask, or NULL; strides in bytes, 0 where it broadcasts. */
    const uint8_t *mask;
    int64_t mask_batch_stride, mask_head_stride, mask_row_stride;
    struct ptl_hstu_intervals intervals;
};

/* One sequence, in the terms of docs/hstu.md. Index n_seqs is the padding behind the last
 * offset. */
struct ptl_hstu_seq {
    int64_t b;     /* index of the batch axis: 0 when jagged */
    int64_t index; /* which sequence */
    int64_t q_row,
        k_row; /* its first row in q and out, in k and v; key j >= cached is row k_row + j */
    int64_t allocated; /* rows of out it owns, padding included */
    int64_t uq, uk;
    int64_t cached;       /* keys that lie in pages */
    int64_t contexts;     /* c' = min(c, h) */
    int64_t first_target; /* h */
    int64_t targets;      /* t */
};

struct ptl_hstu_seq ptl_hstu_sequence(const struct ptl_hstu_problem *p, int64_t index);

/* The factor on row i of out. */
static inline float ptl_hstu_scale_of(const struct ptl_hstu_problem *p,
                                      const struct ptl_hstu_seq *seq, int64_t i) {
    if (!p->scale_rows.data) return p->scale;
    return *(const float *)ptl_rows_at(&p->scale_rows, seq->b, seq->q_row + i, 0);
}

/* What a row sees: the columns of two half-open intervals, in order, not touching; empty ones are
 * {0, 0}. */
struct ptl_hstu_span {
    int64_t start[2], end[2];
};

struct ptl_hstu_span ptl_hstu_row_span(const struct ptl_hstu_problem *p,
                                       const struct ptl_hstu_seq *seq, int64_t i);

/* Valid pairs of the rows [row, row + n): exact when the rule is linear in between, else an
 * estimate. For scheduling only. */
int64_t ptl_hstu_estimate_pairs(const struct ptl_hstu_problem *p, const struct ptl_hstu_seq *seq,
                                int64_t row, int64_t n);

/* The mask of one panel: up to PTL_MAX_PANEL rows of one sequence and head. */
struct ptl_hstu_panel_mask {
    int n_rows;
    int64_t first, last; /* every valid column is in [first, last) */
    /* Interval k of every row starts in [min_start, max_start] and ends in [min_end, max_end]; only
     * rows with a nonempty interval count, and all_rows says whether that is every row. */
    struct {
        int64_t min_start, max_start, min_end, max_end;
        bool any, all_rows;
    } bound[2];
    struct ptl_hstu_span row[PTL_MAX_PANEL];
    const uint8_t *dense; /* row 0 of the dense mask, or NULL: then spans are unused */
    int64_t dense_row_stride;
    struct ptl_hstu_intervals intervals; /* from row 0 on; data NULL: none */
};

void ptl_hstu_panel_mask_init(struct ptl_hstu_panel_mask *m, const struct ptl_hstu_problem *p,
                              const struct ptl_hstu_seq *seq, int64_t head, int64_t row,
                              int n_rows);

/* What a panel does with the key tile [begin, end). */
enum ptl_tile_kind { PTL_TILE_SKIP, PTL_TILE_FULL, PTL_TILE_MIXED };

/* Narrows [*begin, *end) to the columns that some row of the panel sees, and says whether all rows
 * see all of them (FULL) or not (MIXED: bits[j - *begin] then has bit i set where row i sees column
 * j). */
enum ptl_tile_kind ptl_hstu_tile_mask(const struct ptl_hstu_panel_mask *m, int64_t *begin,
                                      int64_t *end, uint64_t *bits);

/* What backward reads and writes besides the problem's arrays. */
struct ptl_hstu_gradients {
    struct ptl_rows dout, dq, dk, dv;
    struct ptl_hstu_bias dbias; /* strides as in the problem's bias: 0 where it broadcasts */
    int64_t dbias_shape[4], dbias_stride[4]; /* of the whole tensor */
    float *dpos, *dtime;                     /* NULL: not wanted */
    int64_t dpos_head_stride, dtime_head_stride;
    struct ptl_rows ds; /* data NULL: not wanted */
};

/* The operators. PTL_OK or PTL_ERR_NOMEM. */
enum ptl_status ptl_hstu_run_forward(struct ptl_context *ctx, const struct ptl_hstu_problem *p);
enum ptl_status ptl_hstu_run_backward(struct ptl_context *ctx, const struct ptl_hstu_problem *p,
                                      const struct ptl_hstu_gradients *g);

#endif
