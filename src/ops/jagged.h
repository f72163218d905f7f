/* Jagged operators after the checks: what to do, as the workers walk it. Nothing here refuses
 * anything; src/api/jagged.c and jagged_position_time.c have done that. */
#ifndef PTL_OPS_JAGGED_H
#define PTL_OPS_JAGGED_H

#include <pantile/jagged.h>
#include <stdbool.h>

#include "../core/context.h"
#include "views.h"

/* ---- Arrays of rows -------------------------------------------------------------------------- */

/* One side of a call, jagged or dense. Strides are in bytes. */
struct ptl_jagged_rows {
    char *data;               /* NULL: zeros where it is read, not wanted where it is written */
    struct ptl_index offsets; /* jagged; data NULL: dense */
    int64_t n;                /* dense: rows of every sequence */
    int64_t batch_stride;     /* dense */
    int64_t row_stride;
};

/* Rows of the sequences before b. */
static inline int64_t ptl_jagged_begin(const struct ptl_jagged_rows *r, int64_t b) {
    return r->offsets.data ? ptl_index_at(&r->offsets, b) : b * r->n;
}

static inline int64_t ptl_jagged_length(const struct ptl_jagged_rows *r, int64_t b) {
    return r->offsets.data ? ptl_index_at(&r->offsets, b + 1) - ptl_index_at(&r->offsets, b) : r->n;
}

static inline char *ptl_jagged_row(const struct ptl_jagged_rows *r, int64_t b, int64_t i) {
    if (r->offsets.data) return r->data + (ptl_index_at(&r->offsets, b) + i) * r->row_stride;
    return r->data + b * r->batch_stride + i * r->row_stride;
}

/* ---- Sharing out: jagged_walk.c -------------------------------------------------------------- */

/* Calls fn(job, begin, end) for ranges that together are 0 .. n-1, on as many threads as the
 * bytes are worth; unit_bytes is what one of the n moves through memory. */
typedef void (*ptl_jagged_range_fn)(void *job, int64_t begin, int64_t end);
void ptl_jagged_for_ranges(struct ptl_context *ctx, int64_t n, int64_t unit_bytes,
                           ptl_jagged_range_fn fn, void *job);

/* The sequence that row number `row` belongs to, or n_seqs if it lies behind the last one.
 * begin(r, b) counts the rows before sequence b. */
int64_t ptl_jagged_find(int64_t (*begin)(const void *r, int64_t b), const void *r, int64_t n_seqs,
                        int64_t row);

/* How rows are written: through the caches, or past them when the output is larger than what
 * they would hold until somebody reads it. Whoever has streamed ends its range with
 * ptl_jagged_end_range. */
struct ptl_jagged_writer {
    const struct ptl_kernels *kernels;
    bool stream;
};

struct ptl_jagged_writer ptl_jagged_writer(const struct ptl_context *ctx, int64_t n_rows,
                                           int64_t row_bytes);

void ptl_jagged_end_range(const struct ptl_jagged_writer *w);

/* Rows that are computed: each into memory that stage_row names, the row itself or a place in
 * the stage, which is streamed some rows at a time. x is what the row is computed from: it is
 * fetched while the rows before are written. stage_flush comes after the last. */
struct ptl_jagged_stage {
    const struct ptl_jagged_writer *writer;
    char *to; /* where the staged bytes belong */
    int64_t n;
    _Alignas(64) char bytes[8192];
};

void ptl_jagged_stage_begin(struct ptl_jagged_stage *s, const struct ptl_jagged_writer *writer);
char *ptl_jagged_stage_row(struct ptl_jagged_stage *s, char *row, int64_t row_bytes, const char *x);
void ptl_jagged_stage_flush(struct ptl_jagged_stage *s);

/* Copies n rows; from_stride 0 repeats one. */
void ptl_jagged_copy_rows(const struct ptl_jagged_writer *w, char *to, int64_t to_stride,
                          const char *from, int64_t from_stride, int64_t n, int64_t row_bytes);

/* Fills n rows with an element; elem_bytes 0: with zeros. */
void ptl_jagged_fill_rows(const struct ptl_jagged_writer *w, char *to, int64_t to_stride, int64_t n,
                          int64_t row_bytes, const char *element, int64_t elem_bytes);

/* ---- Copies: jagged_copy.c ------------------------------------------------------------------- */

enum ptl_jagged_op {
    PTL_JAGGED_RESIZE,       /* side[0] into whole */
    PTL_JAGGED_CONCAT,       /* side[0] left, side[1] right, into whole */
    PTL_JAGGED_SPLIT,        /* whole into side[0] left, side[1] right */
    PTL_JAGGED_REPLACE_LAST, /* side[0] and the last rows side[1], into whole */
};

struct ptl_jagged_copy {
    struct ptl_jagged_writer writer; /* set by the run */
    enum ptl_jagged_op op;
    int64_t n_seqs, row_bytes;
    struct ptl_jagged_rows whole; /* CONCAT, SPLIT: only data and row_stride */
    struct ptl_jagged_rows side[2];
    enum ptl_jagged_align align; /* RESIZE */
    int64_t n_prefix;            /* CONCAT, SPLIT */
    int64_t elem_bytes;
    char pad[8];               /* RESIZE: one element */
    int64_t n_padding;         /* rows of whole behind the last sequence, if it is written */
    int64_t n_side_padding[2]; /* SPLIT: the same of the sides */
};

void ptl_jagged_run_copy(struct ptl_context *ctx, const struct ptl_jagged_copy *copy);

/* ---- Rows of the float types: jagged_float.c ------------------------------------------------- */

/* n elements of a row of f32, f16 or bf16, from column `first` on, as floats: those of the row, or
 * widened into the buffer. */
const float *ptl_jagged_widen(const struct ptl_kernels *k, enum ptl_dtype type, const char *row,
                              int64_t first, int64_t n, float *buffer);

/* And back, rounded to the type. */
void ptl_jagged_narrow(const struct ptl_kernels *k, const float *x, enum ptl_dtype type, char *row,
                       int64_t first, int64_t n);

/* out[c] = alpha * x[c] + (a[c] + b[c]) in float, rounded to the type; a and b, of a type of their
 * own, may be absent as in affine_f32. out may be x. */
void ptl_jagged_affine(const struct ptl_kernels *k, enum ptl_dtype type, char *out, const char *x,
                       float alpha, enum ptl_dtype terms_type, const char *a, const char *b,
                       int64_t n);

/* ---- One row added to a sequence: jagged_broadcast.c ----------------------------------------- */

struct ptl_jagged_broadcast {
    struct ptl_jagged_writer writer; /* set by the run */
    enum ptl_dtype type;             /* of all three */
    int64_t n_seqs, n_columns;
    struct ptl_jagged_rows x, d, out; /* d: dense, one row a sequence */
    int64_t n_padding;
};

void ptl_jagged_run_broadcast_add(struct ptl_context *ctx, const struct ptl_jagged_broadcast *p);

/* ---- Sums of rows: jagged_sum.c -------------------------------------------------------------- */

/* Row r of out is the sum of rows of x: those of sequence r, or, with order, the rows
 * order[start[r]] .. order[start[r + 1] - 1]. */
struct ptl_jagged_sum {
    int64_t n_sums, n_columns;
    struct ptl_jagged_rows x;
    const int64_t *start, *order; /* NULL: sequences; else the offsets of x are not used */
    char *out;
    int64_t out_stride;
    enum ptl_dtype x_type, out_type; /* f32, f16, bf16 */
};

/* Up to two tables of sums, of equal numbers of columns, computed together. */
struct ptl_jagged_sums {
    const struct ptl_jagged_sum *sum[2];
    int n;
    struct ptl_jagged_piece *pieces; /* runs of rows that are summed at a time */
    int64_t n_pieces, n_partials, total_cost;
    double *partials;
    const struct ptl_kernels *kernels; /* this and partials are set by the run */
};

/* Bytes that the plan of n_sums sums of n_rows rows in all needs at most. */
size_t ptl_jagged_sums_plan_bytes(int64_t n_sums, int64_t n_rows);

/* Fills in the plan, in memory of that size; sum and n are set. Returns the bytes of scratch memory
 * that the run needs. */
size_t ptl_jagged_sums_plan(struct ptl_jagged_sums *s, void *memory);

void ptl_jagged_sums_run(struct ptl_context *ctx, struct ptl_jagged_sums *s, void *scratch);

/* The sum of every sequence. PTL_OK or PTL_ERR_NOMEM. */
enum ptl_status ptl_jagged_run_sum(struct ptl_context *ctx, const struct ptl_jagged_sum *sum);

/* ---- Position and time embedding: jagged_embedding.c ----------------------------------------- */

/* Rows of a plain matrix of f32, f16 or bf16. */
struct ptl_jagged_matrix {
    char *data; /* NULL: absent */
    enum ptl_dtype type;
    int64_t n_rows, row_stride;
};

struct ptl_position_time {
    struct ptl_jagged_writer writer;   /* set by the run */
    int64_t n_seqs, n_rows, n_columns; /* n_rows with the padding */
    struct ptl_index offsets, targets, contexts, starts;
    struct ptl_index times; /* one per row; data NULL: no time term */
    enum ptl_jagged_position_order position_order;
    enum ptl_jagged_time_bucket time_bucket;
    float alpha;
    struct ptl_jagged_matrix x, out;      /* emb and out; dout and demb: of one type */
    struct ptl_jagged_matrix pos_w, ts_w; /* backward: dpos_w and dts_w; of one type */
};

void ptl_position_time_run_forward(struct ptl_context *ctx, const struct ptl_position_time *p);

/* PTL_OK or PTL_ERR_NOMEM. */
enum ptl_status ptl_position_time_run_backward(struct ptl_context *ctx,
                                               const struct ptl_position_time *p);

#endif
