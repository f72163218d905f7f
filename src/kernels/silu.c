/* The score stage of HSTU: bias, then silu, in fp32, with the mask by selection. Not the products
 * around it. */
#include <float.h>

#include "kernels.h"
#include "simd/exp2.h"
#include "simd/vec.h"

enum { W = V_PANEL * V_LANES };

#define STEP UNROLL for (int i = 0; i < n; i++)

/* p[i] = 1 + e^-x[i] = 1 + 2^t, t = -x log2(e), for n vectors at once. t is held in [-126, 128]:
 * below, 1 + 2^t is 1. NaN passes, as v_max and v_min return their second operand for it. */
V_INLINE void one_plus_exp(const vf *x, vf *p, const int n) {
    vf t[4];
    STEP t[i] = v_mul(x[i], v_splat(-1.44269504f));
    STEP t[i] = v_max(v_splat(-126.0f), t[i]);
    STEP t[i] = v_min(v_splat(128.0f), t[i]);
    exp2_bounded(t, p, n);
    STEP p[i] = v_add(p[i], v_splat(1.0f));
}

/* x[i] = silu(x[i]) = x / (1 + e^-x). Of -inf the quotient would be -inf / inf: the numerator stops
 * at the largest finite number, and the result is -0. */
V_INLINE void silu_vectors(vf *x, const int n) {
    vf p[4];
    one_plus_exp(x, p, n);
    STEP x[i] = v_max(v_splat(-FLT_MAX), x[i]);
    STEP x[i] = v_div(x[i], p[i]);
}

/* `rows` lines of nv vectors; masked is a constant where this is inlined. */
V_INLINE void silu_lines(const int nv, const int rows, const bool masked, float *s, vf alpha,
                         const uint64_t *mask) {
    vf x[4];
    UNROLL for (int i = 0; i < rows * nv; i++) x[i] =
        v_mul(alpha, v_load(s + i / nv * W + i % nv * V_LANES));
    silu_vectors(x, rows * nv);
    UNROLL for (int i = 0; i < rows * nv; i++) {
        if (masked) x[i] = v_keep(v_mask((uint32_t)(mask[i / nv] >> (i % nv * V_LANES))), x[i]);
        v_store(s + i / nv * W + i % nv * V_LANES, x[i]);
    }
}

V_INLINE void silu_tile(const int nv, const int rows, const bool masked, float *s, int n_keys,
                        float alpha, const uint64_t *mask) {
    const vf va = v_splat(alpha);
    int j = 0;
    for (; j + rows <= n_keys; j += rows)
        silu_lines(nv, rows, masked, s + j * W, va, masked ? mask + j : NULL);
    for (; j < n_keys; j++) silu_lines(nv, 1, masked, s + j * W, va, masked ? mask + j : NULL);
}

void KERNEL(tile_silu_f32)(int nv, float *s, int n_keys, float alpha, const uint64_t *mask) {
    switch (nv * 2 + (mask != NULL)) {
    case 2: silu_tile(1, 4, false, s, n_keys, alpha, mask); break;
    case 3: silu_tile(1, 4, true, s, n_keys, alpha, mask); break;
    case 4: silu_tile(2, 2, false, s, n_keys, alpha, mask); break;
    case 5: silu_tile(2, 2, true, s, n_keys, alpha, mask); break;
    case 6: silu_tile(3, 1, false, s, n_keys, alpha, mask); break;
    case 7: silu_tile(3, 1, true, s, n_keys, alpha, mask); break;
#if V_PANEL > 3
    case 8: silu_tile(4, 1, false, s, n_keys, alpha, mask); break;
    case 9: silu_tile(4, 1, true, s, n_keys, alpha, mask); break;
#endif
    }
}

/* s becomes f = x g with g = 1 / (1 + e^-x), x = alpha s; u becomes f'(x) u scale, f' = g + f (1 -
 * g). In f' x is held finite, so that f'(-inf) = 0 and f'(+inf) = 1. */
V_INLINE void dsilu_line(const int nv, float *s, float *u, vf alpha, const float *scale,
                         const uint64_t *mask, float *row_sum) {
    const int n = nv;
    vf x[4], g[4], f[4], d[4];
    STEP x[i] = v_mul(alpha, v_load(s + i * V_LANES));
    one_plus_exp(x, g, n);
    STEP g[i] = v_div(v_splat(1.0f), g[i]);
    STEP x[i] = v_max(v_splat(-FLT_MAX), x[i]);
    STEP f[i] = v_mul(x[i], g[i]);
    STEP d[i] = v_mul(v_min(v_splat(FLT_MAX), x[i]), g[i]);
    STEP d[i] = v_fma(d[i], v_sub(v_splat(1.0f), g[i]), g[i]);
    STEP x[i] = v_load(u + i * V_LANES);
    STEP d[i] = v_mul(d[i], v_mul(x[i], v_load(scale + i * V_LANES)));
    STEP g[i] = v_mul(f[i], x[i]);
    if (mask) {
        STEP {
            const vm m = v_mask((uint32_t)(*mask >> (i * V_LANES)));
            f[i] = v_keep(m, f[i]);
            d[i] = v_keep(m, d[i]);
            g[i] = v_keep(m, g[i]);
        }
    }
    STEP v_store(s + i * V_LANES, f[i]);
    STEP v_store(u + i * V_LANES, d[i]);
    if (row_sum) {
        STEP v_store(row_sum + i * V_LANES, v_add(v_load(row_sum + i * V_LANES), g[i]));
    }
}

void KERNEL(tile_dsilu_f32)(int nv, float *s, float *u, int n_keys, float alpha, const float *scale,
                            const uint64_t *mask, float *row_sum) {
    const vf va = v_splat(alpha);
    for (int j = 0; j < n_keys; j++, s += W, u += W) {
        const uint64_t *m = mask ? mask + j : NULL;
        switch (nv) {
        case 1: dsilu_line(1, s, u, va, scale, m, row_sum); break;
        case 2: dsilu_line(2, s, u, va, scale, m, row_sum); break;
        case 3: dsilu_line(3, s, u, va, scale, m, row_sum); break;
#if V_PANEL > 3
        case 4: dsilu_line(4, s, u, va, scale, m, row_sum); break;
#endif
        }
    }
}

void KERNEL(tile_bias_f32)(int nv, float *s, int n_keys, float alpha, float beta, const float *bias,
                           ptrdiff_t step) {
    const vf va = v_splat(alpha), vb = v_splat(beta);
    for (int j = 0; j < n_keys; j++, s += W, bias += step)
        for (int i = 0; i < nv * V_LANES; i += V_LANES)
            v_store(s + i, v_fma(vb, v_load(bias + i), v_mul(va, v_load(s + i))));
}
