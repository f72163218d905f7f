/* Rows in, rows out: the transposes between row-major arrays and panels, and the scan for values
 * that are not finite. No arithmetic but the row scale. */
#include "kernels.h"
#include "simd/vec.h"

enum { W = V_PANEL * V_LANES };

void KERNEL(panel_load_f32)(const float *const *rows, int n_rows, ptrdiff_t n, float *panel) {
    for (int i = 0; i < n_rows; i += V_LANES) {
        const int lanes = n_rows - i < V_LANES ? n_rows - i : V_LANES;
        for (ptrdiff_t d = 0; d < n; d += V_LANES) {
            const int wide = n - d < V_LANES ? (int)(n - d) : V_LANES;
            vf square[V_LANES];
            for (int r = 0; r < V_LANES; r++) {
                if (r >= lanes) square[r] = v_zero();
                else if (wide == V_LANES) square[r] = v_load(rows[i + r] + d);
                else square[r] = v_load_n(rows[i + r] + d, wide);
            }
            v_transpose(square);
            for (int r = 0; r < wide; r++) v_store(panel + (d + r) * W + i, square[r]);
        }
    }
}

void KERNEL(panel_store_f32)(const float *panel, int n_rows, ptrdiff_t n, const float *scale,
                             float *const *rows) {
    for (int i = 0; i < n_rows; i += V_LANES) {
        const int lanes = n_rows - i < V_LANES ? n_rows - i : V_LANES;
        for (ptrdiff_t d = 0; d < n; d += V_LANES) {
            const int wide = n - d < V_LANES ? (int)(n - d) : V_LANES;
            vf square[V_LANES];
            for (int r = 0; r < V_LANES; r++)
                square[r] = r < wide ? v_load(panel + (d + r) * W + i) : v_zero();
            v_transpose(square);
            for (int r = 0; r < lanes; r++) {
                /* + 0: a row that saw nothing is +0 even where its scale is negative. */
                vf x = v_add(v_mul(square[r], v_splat(scale[i + r])), v_zero());
                if (wide == V_LANES) v_store(rows[i + r] + d, x);
                else v_store_n(rows[i + r] + d, x, wide);
            }
        }
    }
}

bool KERNEL(rows_finite_f32)(const float *x, ptrdiff_t stride, int n_rows, int n) {
    vf sum = v_zero(); /* x - x is 0 or NaN, and NaN stays in a sum */
    for (int r = 0; r < n_rows; r++, x += stride) {
        int d = 0;
        for (; d + V_LANES <= n; d += V_LANES) {
            vf e = v_load(x + d);
            sum = v_add(sum, v_sub(e, e));
        }
        if (d < n) {
            vf e = v_load_n(x + d, n - d);
            sum = v_add(sum, v_sub(e, e));
        }
    }
    return v_all_finite(sum);
}
