/* Rows in, rows out: the transposes between row-major arrays and panels, and the scan for values
 * that are not finite. No arithmetic but the row scale. */
#include "kernels.h"
#include "simd/vec.h"

enum { W = V_PANEL * V_LANES, LINE = 16 /* floats of a cache line */ };

/* A square of V_LANES rows and columns, or the part of it that exists. Whole squares are worth their
 * own code: with the conditions in it the vectors go through memory. */
V_INLINE void load_square(const float *const *rows, const int n_rows, ptrdiff_t d, const int n,
                          float *panel) {
    vf square[V_LANES];
    UNROLL for (int r = 0; r < V_LANES; r++) {
        if (r >= n_rows) square[r] = v_zero();
        else if (n == V_LANES) square[r] = v_load(rows[r] + d);
        else square[r] = v_load_n(rows[r] + d, n);
    }
    v_transpose(square);
    UNROLL for (int r = 0; r < V_LANES; r++) if (r < n) v_store(panel + r * W, square[r]);
}

/* + 0: a row that saw nothing is +0 even where its scale is negative. */
V_INLINE vf scaled(vf x, float scale) {
    return v_add(v_mul(x, v_splat(scale)), v_zero());
}

V_INLINE void store_square(const float *panel, const float *scale, float *const *rows,
                           const int n_rows, ptrdiff_t d, const int n) {
    vf square[V_LANES];
    UNROLL for (int r = 0; r < V_LANES; r++) square[r] = r < n ? v_load(panel + r * W) : v_zero();
    v_transpose(square);
    UNROLL for (int r = 0; r < V_LANES; r++) {
        if (r >= n_rows) continue;
        if (n == V_LANES) v_store(rows[r] + d, scaled(square[r], scale[r]));
        else v_store_n(rows[r] + d, scaled(square[r], scale[r]), n);
    }
}

/* Squares side by side, as many as fill a cache line: a line that is streamed in pieces costs more
 * than it saves. */
V_INLINE void stream_squares(const float *panel, const float *scale, float *const *rows,
                             ptrdiff_t d) {
    vf square[LINE / V_LANES][V_LANES];
    UNROLL for (int k = 0; k < LINE / V_LANES; k++) {
        UNROLL for (int r = 0; r < V_LANES; r++) square[k][r] =
            v_load(panel + (k * V_LANES + r) * W);
        v_transpose(square[k]);
    }
    UNROLL for (int r = 0; r < V_LANES; r++) UNROLL for (int k = 0; k < LINE / V_LANES; k++)
        v_stream(rows[r] + d + k * V_LANES, scaled(square[k][r], scale[r]));
}

static bool begin_lines(float *const *rows, int n_rows) {
    uintptr_t at = 0;
    for (int i = 0; i < n_rows; i++) at |= (uintptr_t)rows[i];
    return at % (LINE * sizeof(float)) == 0;
}

void KERNEL(panel_load_f32)(const float *const *rows, int n_rows, ptrdiff_t n, float *panel) {
    for (int i = 0; i < n_rows; i += V_LANES) {
        ptrdiff_t d = 0;
        const int lanes = n_rows - i < V_LANES ? n_rows - i : V_LANES;
        for (; lanes == V_LANES && d + V_LANES <= n; d += V_LANES)
            load_square(rows + i, V_LANES, d, V_LANES, panel + d * W + i);
        for (; d < n; d += V_LANES)
            load_square(rows + i, lanes, d, n - d < V_LANES ? (int)(n - d) : V_LANES,
                        panel + d * W + i);
    }
}

void KERNEL(panel_store_f32)(const float *panel, int n_rows, ptrdiff_t n, const float *scale,
                             bool stream, float *const *rows) {
    for (int i = 0; i < n_rows; i += V_LANES, panel += V_LANES, scale += V_LANES, rows += V_LANES) {
        const int lanes = n_rows - i < V_LANES ? n_rows - i : V_LANES;
        ptrdiff_t d = 0;
        if (lanes == V_LANES) {
            if (stream && begin_lines(rows, V_LANES))
                for (; d + LINE <= n; d += LINE) stream_squares(panel + d * W, scale, rows, d);
            for (; d + V_LANES <= n; d += V_LANES)
                store_square(panel + d * W, scale, rows, V_LANES, d, V_LANES);
        }
        for (; d < n; d += V_LANES)
            store_square(panel + d * W, scale, rows, lanes, d,
                         n - d < V_LANES ? (int)(n - d) : V_LANES);
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
