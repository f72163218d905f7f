/* Rows of bf16 and f16 to and from rows of float. The products know floats only; halves are widened
 * tile by tile. One rounding, to nearest even. */
#include "kernels.h"
#include "simd/vec.h"

typedef vf from_fn(const uint16_t *p);
typedef void to_fn(uint16_t *p, vf x);

/* The tail of a row goes through a buffer: nothing past the row is touched. */
V_INLINE void widen_rows(from_fn *from, const uint16_t *x, ptrdiff_t x_stride, int n_rows, int n,
                         float *y, ptrdiff_t y_stride) {
    for (int r = 0; r < n_rows; r++, x += x_stride, y += y_stride) {
        int d = 0;
        for (; d + V_LANES <= n; d += V_LANES) v_store(y + d, from(x + d));
        if (d < n) {
            uint16_t tail[V_LANES] = {0};
            memcpy(tail, x + d, (size_t)(n - d) * sizeof *x);
            v_store_n(y + d, from(tail), n - d);
        }
    }
}

V_INLINE void narrow_rows(to_fn *to, const float *x, ptrdiff_t x_stride, int n_rows, int n,
                          uint16_t *y, ptrdiff_t y_stride) {
    for (int r = 0; r < n_rows; r++, x += x_stride, y += y_stride) {
        int d = 0;
        for (; d + V_LANES <= n; d += V_LANES) to(y + d, v_load(x + d));
        if (d < n) {
            uint16_t tail[V_LANES];
            to(tail, v_load_n(x + d, n - d));
            memcpy(y + d, tail, (size_t)(n - d) * sizeof *y);
        }
    }
}

void KERNEL(rows_from_bf16)(const uint16_t *x, ptrdiff_t x_stride, int n_rows, int n, float *y,
                            ptrdiff_t y_stride) {
    widen_rows(v_from_bf16, x, x_stride, n_rows, n, y, y_stride);
}

void KERNEL(rows_from_f16)(const uint16_t *x, ptrdiff_t x_stride, int n_rows, int n, float *y,
                           ptrdiff_t y_stride) {
    widen_rows(v_from_f16, x, x_stride, n_rows, n, y, y_stride);
}

void KERNEL(rows_to_bf16)(const float *x, ptrdiff_t x_stride, int n_rows, int n, uint16_t *y,
                          ptrdiff_t y_stride) {
    narrow_rows(v_to_bf16, x, x_stride, n_rows, n, y, y_stride);
}

void KERNEL(rows_to_f16)(const float *x, ptrdiff_t x_stride, int n_rows, int n, uint16_t *y,
                         ptrdiff_t y_stride) {
    narrow_rows(v_to_f16, x, x_stride, n_rows, n, y, y_stride);
}
