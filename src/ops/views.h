/* The caller's arrays as the operators see them: rows with heads, index arrays, rows of halves.
 * Where they come from is checked in src/api; what is computed on them is not here. */
#ifndef PTL_VIEWS_H
#define PTL_VIEWS_H

#include <pantile/base.h>
#include <stdbool.h>

#include "../kernels/kernels.h"

/* Rows of an array with heads, jagged or dense; strides in elements. */
struct ptl_rows {
    char *data;
    int64_t elem_bytes;
    int64_t batch_stride, row_stride, head_stride; /* batch_stride 0: jagged */
};

static inline void *ptl_rows_at(const struct ptl_rows *r, int64_t b, int64_t row, int64_t head) {
    return r->data +
           r->elem_bytes * (b * r->batch_stride + row * r->row_stride + head * r->head_stride);
}

/* An output of this size would push out everything else, and itself, before it is read again: it is
 * written past the caches. Not reading it first saves a third of the traffic of a copy; below, the
 * next operator finds it in the cache. */
enum { PTL_STREAM_BYTES = 16 << 20 };

/* An int32 or int64 array; stride 0 repeats one number; data NULL is all zeros. */
struct ptl_index {
    const void *data;
    bool wide; /* int64 */
    int64_t stride;
};

static inline int64_t ptl_index_at(const struct ptl_index *x, int64_t i) {
    if (!x->data) return 0;
    i *= x->stride;
    return x->wide ? ((const int64_t *)x->data)[i] : ((const int32_t *)x->data)[i];
}

/* Floats between the rows of a staged tile of row length n: off the powers of two, so that rows do
 * not fall into one cache set. */
static inline int64_t ptl_staged_stride(int n) {
    return (n + 15) / 16 * 16 + 16;
}

/* Rows of n elements of f32, f16 or bf16 to rows of floats, and back with one rounding; strides in
 * elements. */
void ptl_widen_rows(const struct ptl_kernels *k, enum ptl_dtype type, const void *x,
                    int64_t x_stride, int n_rows, int n, float *y, int64_t y_stride);
void ptl_narrow_rows(const struct ptl_kernels *k, enum ptl_dtype type, const float *x,
                     int64_t x_stride, int n_rows, int n, void *y, int64_t y_stride);

#endif
