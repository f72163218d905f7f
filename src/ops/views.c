/* Rows of any float type to floats and back: which kernel a type takes. */
#include "views.h"

#include <string.h>

void ptl_widen_rows(const struct ptl_kernels *k, enum ptl_dtype type, const void *x,
                    int64_t x_stride, int n_rows, int n, float *y, int64_t y_stride) {
    switch (type) {
    case PTL_BF16: k->rows_from_bf16(x, x_stride, n_rows, n, y, y_stride); break;
    case PTL_F16: k->rows_from_f16(x, x_stride, n_rows, n, y, y_stride); break;
    default:
        for (int r = 0; r < n_rows; r++)
            memcpy(y + r * y_stride, (const float *)x + r * x_stride, (size_t)n * sizeof(float));
    }
}

void ptl_narrow_rows(const struct ptl_kernels *k, enum ptl_dtype type, const float *x,
                     int64_t x_stride, int n_rows, int n, void *y, int64_t y_stride) {
    switch (type) {
    case PTL_BF16: k->rows_to_bf16(x, x_stride, n_rows, n, y, y_stride); break;
    case PTL_F16: k->rows_to_f16(x, x_stride, n_rows, n, y, y_stride); break;
    default:
        for (int r = 0; r < n_rows; r++)
            memcpy((float *)y + r * y_stride, x + r * x_stride, (size_t)n * sizeof(float));
    }
}
