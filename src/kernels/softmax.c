/* The score stage of softmax attention: weights against a running maximum, the states of splits,
 * and the scores of selection blocks. Not the products around it. */
#include <float.h>

#include "kernels.h"
#include "simd/exp2.h"
#include "simd/vec.h"

enum { W = V_PANEL * V_LANES };

#define STEP UNROLL for (int i = 0; i < n; i++)

/* x[i] = 2^x[i], 0 below 2^-126, infinity from 2^128 on; NaN stays. */
V_INLINE void exp2_vectors(vf *x, const int n) {
    vf p[4];
    vm normal[4];
    STEP normal[i] = v_not_less(x[i], v_splat(-126.0f));
    STEP x[i] = v_max(v_splat(-126.0f), x[i]);
    STEP x[i] = v_min(v_splat(128.0f), x[i]);
    exp2_bounded(x, p, n);
    STEP x[i] = v_keep(normal[i], p[i]);
}

V_INLINE vf exp2_vector(vf x) {
    exp2_vectors(&x, 1);
    return x;
}

/* What is subtracted from scores: the maximum, or 0 where nothing was seen, since -inf - -inf is
 * NaN. */
V_INLINE vf reference(vf m) {
    return v_keep(v_not_less(m, v_splat(-FLT_MAX)), m);
}

/* ---- Weights --------------------------------------------------------------------------------- */

/* s = 2^(scale * s - m) for `rows` lines of nv vectors; their sums, line after line, are added to z
 * if it is wanted. */
V_INLINE void weigh_lines(const int nv, const int rows, const bool masked, float *s, vf scale,
                          const vf *m, const uint64_t *mask, vf *z) {
    const int n = nv * rows;
    vf x[4];
    /* scale * s - m by one rounding: m is exactly what is subtracted, however large it is. */
    STEP x[i] = v_fma(scale, v_load(s + i / nv * W + i % nv * V_LANES), m[i % nv]);
    exp2_vectors(x, n);
    STEP {
        if (masked) x[i] = v_keep(v_mask((uint32_t)(mask[i / nv] >> (i % nv * V_LANES))), x[i]);
        v_store(s + i / nv * W + i % nv * V_LANES, x[i]);
        if (z) z[i % nv] = v_add(z[i % nv], x[i]);
    }
}

V_INLINE void weigh_tile(const int nv, const int rows, const bool masked, float *s, int n_keys,
                         float scale, const vf *m, const uint64_t *mask, vf *z) {
    int j = 0;
    for (; j + rows <= n_keys; j += rows)
        weigh_lines(nv, rows, masked, s + j * W, v_splat(scale), m, masked ? mask + j : NULL, z);
    for (; j < n_keys; j++)
        weigh_lines(nv, 1, masked, s + j * W, v_splat(scale), m, masked ? mask + j : NULL, z);
}

/* max[i] = the largest of max[i] and scale * s; NaN is passed over. */
V_INLINE void tile_max(const int nv, const bool masked, const float *s, int n_keys, float scale,
                       const uint64_t *mask, vf *max) {
    for (int j = 0; j < n_keys; j++, s += W) UNROLL for (int i = 0; i < nv; i++) {
            vf x = v_mul(v_splat(scale), v_load(s + i * V_LANES));
            if (masked) x = v_select(v_mask((uint32_t)(mask[j] >> (i * V_LANES))), x, max[i]);
            max[i] = v_max(x, max[i]);
        }
}

V_INLINE void softmax_tile(const int nv, const int rows, const bool masked, float *s, int n_keys,
                           float scale, const uint64_t *mask, float *m, float *z, float *factor) {
    const int n = nv;
    vf old[4], max[4], minus[4], sum[4];
    STEP max[i] = old[i] = v_load(m + i * V_LANES);
    tile_max(nv, masked, s, n_keys, scale, mask, max);
    STEP minus[i] = v_sub(v_zero(), reference(max[i]));
    STEP sum[i] = v_zero();
    weigh_tile(nv, rows, masked, s, n_keys, scale, minus, mask, sum);
    STEP old[i] = v_add(old[i], minus[i]);
    exp2_vectors(old, nv);
    STEP {
        v_store(m + i * V_LANES, max[i]);
        v_store(factor + i * V_LANES, old[i]);
        v_store(z + i * V_LANES, v_fma(v_load(z + i * V_LANES), old[i], sum[i]));
    }
}

void KERNEL(tile_softmax_f32)(int nv, float *s, int n_keys, float scale, const uint64_t *mask,
                              float *m, float *z, float *factor) {
    switch (nv * 2 + (mask != NULL)) {
    case 2: softmax_tile(1, 4, false, s, n_keys, scale, mask, m, z, factor); break;
    case 3: softmax_tile(1, 4, true, s, n_keys, scale, mask, m, z, factor); break;
    case 4: softmax_tile(2, 2, false, s, n_keys, scale, mask, m, z, factor); break;
    case 5: softmax_tile(2, 2, true, s, n_keys, scale, mask, m, z, factor); break;
    case 6: softmax_tile(3, 1, false, s, n_keys, scale, mask, m, z, factor); break;
    case 7: softmax_tile(3, 1, true, s, n_keys, scale, mask, m, z, factor); break;
#if V_PANEL > 3
    case 8: softmax_tile(4, 1, false, s, n_keys, scale, mask, m, z, factor); break;
    case 9: softmax_tile(4, 1, true, s, n_keys, scale, mask, m, z, factor); break;
#endif
    }
}

void KERNEL(tile_weights_f32)(int nv, float *s, int n_keys, float scale, const uint64_t *mask,
                              const float *m) {
    for (int i = 0; i < nv; i++) {
        const vf minus = v_sub(v_zero(), v_load(m + i * V_LANES));
        for (int j = 0; j < n_keys; j++) {
            float *x = s + j * W + i * V_LANES;
            vf p = exp2_vector(v_fma(v_splat(scale), v_load(x), minus));
            if (mask) p = v_keep(v_mask((uint32_t)(mask[j] >> (i * V_LANES))), p);
            v_store(x, p);
        }
    }
}

/* ---- States ---------------------------------------------------------------------------------- */

void KERNEL(softmax_fold_f32)(int nv, int dv, float *m, float *z, float *o, const float *m2,
                              const float *z2, const float *o2) {
    for (int i = 0; i < nv * V_LANES; i += V_LANES) {
        const vf a = v_load(m + i), b = v_load(m2 + i), max = v_max(a, b);
        const vf fa = exp2_vector(v_sub(a, reference(max)));
        const vf fb = exp2_vector(v_sub(b, reference(max)));
        v_store(m + i, max);
        v_store(z + i, v_fma(v_load(z + i), fa, v_mul(v_load(z2 + i), fb)));
        for (int d = 0; d < dv; d++) {
            float *x = o + d * W + i;
            v_store(x, v_fma(v_load(x), fa, v_mul(v_load(o2 + d * W + i), fb)));
        }
    }
}

void KERNEL(softmax_share_f32)(int nv, const float *m_tile, const float *m, const float *z,
                               float *share) {
    for (int i = 0; i < nv * V_LANES; i += V_LANES) {
        const vf sum = v_load(z + i);
        vf f = exp2_vector(v_sub(v_load(m_tile + i), reference(v_load(m + i))));
        f = v_div(f, sum);
        /* 0 / 0 where nothing was seen; a sum that is NaN stays */
        v_store(share + i, v_keep(v_not_less(sum, v_splat(FLT_MIN)), f));
    }
}

/* ---- Scores of selection blocks -------------------------------------------------------------- */

V_INLINE int least(int a, int b) {
    return a < b ? a : b;
}

/* One column of nv vectors: places [begin, end) of its stencil, place 0 being line `first`. */
V_INLINE void stencil_column(const int nv, const float *p, ptrdiff_t first, int begin, int end,
                             int length, int most, float *u) {
    const int n = nv;
    vf sum[4];
    STEP sum[i] = v_zero();
    for (int x = begin; x < end; x++) {
        const vf weight = v_splat((float)least(least(x + 1, length - x), most));
        STEP sum[i] = v_fma(weight, v_load(p + (first + x) * W + i * V_LANES), sum[i]);
    }
    STEP v_store(u + i * V_LANES, sum[i]);
}

void KERNEL(tile_stencil_f32)(int nv, const float *p, int n_keys, ptrdiff_t first, int a, int b,
                              float *u, int n_columns) {
    const int length = a + b - 1, most = least(a, b);
    for (int c = 0; c < n_columns; c++, u += W, first += a) {
        const int begin = first < 0 ? (int)-first : 0;
        const int end = n_keys - first < length ? (int)(n_keys - first) : length;
        switch (nv) {
        case 1: stencil_column(1, p, first, begin, end, length, most, u); break;
        case 2: stencil_column(2, p, first, begin, end, length, most, u); break;
        case 3: stencil_column(3, p, first, begin, end, length, most, u); break;
#if V_PANEL > 3
        case 4: stencil_column(4, p, first, begin, end, length, most, u); break;
#endif
        }
    }
}

/* V_LANES columns at once: transposed, they are lanes, and the lanes of u come one after the other,
 * whichever panel they lie in. */
void KERNEL(lines_sum_f32)(const float *u, int n_columns, int lane, int n_lanes,
                           const float *factor, float *sum) {
    for (int c = 0; c < n_columns; c += V_LANES, u += V_LANES * W) {
        const int n = n_columns - c < V_LANES ? n_columns - c : V_LANES;
        vf total = v_load_n(sum + c, n);
        for (int i = lane / V_LANES * V_LANES; i < lane + n_lanes; i += V_LANES) {
            vf square[V_LANES];
            for (int x = 0; x < V_LANES; x++) {
                square[x] = x < n ? v_load(u + x * W + i) : v_zero();
                if (factor) square[x] = v_mul(square[x], v_load(factor + i));
            }
            v_transpose(square);
            for (int x = 0; x < V_LANES; x++)
                if (i + x >= lane && i + x < lane + n_lanes) total = v_add(total, square[x]);
        }
        v_store_n(sum + c, total, n);
    }
}

void KERNEL(weigh_rows_f32)(const float *const *rows, const float *w, int n_rows, ptrdiff_t n,
                            float *out) {
    for (ptrdiff_t c = 0; c < n; c += V_LANES) {
        const int wide = n - c < V_LANES ? (int)(n - c) : V_LANES;
        vf sum = v_zero();
        for (int r = 0; r < n_rows; r++) {
            vf x = wide == V_LANES ? v_load(rows[r] + c) : v_load_n(rows[r] + c, wide);
            sum = v_fma(v_splat(w[r]), x, sum);
        }
        v_store_n(out + c, sum, wide);
    }
}
