/* The score stage of HSTU: silu in fp32, with the mask by selection. Not the products around it. */
#include "kernels.h"
#include "simd/vec.h"

enum { W = V_PANEL * V_LANES };

/* 2^f on [-1/2, 1/2] as a polynomial of degree 5 with relative error 2.4e-7 / 10: see
 * tools/gen_poly.py, which made the coefficients. */
#define EXP2_C0 1.0f
#define EXP2_C1 0.693147182f
#define EXP2_C2 0.240226462f
#define EXP2_C3 0.0555032901f
#define EXP2_C4 0.00961835496f
#define EXP2_C5 0.00133390294f

/* silu(x) = x / (1 + 2^t), t = -x log2(e).
 * Below x = -87.33 the true value is under 1e-36 in size and 2^t nears the overflow: the result is +0
 * there, -inf included. t is held in [-126, 126.99] so that the exponent arithmetic cannot wrap. NaN
 * passes: v_max and v_min return their second operand for it, and "not less" is true. */
V_INLINE vf v_silu(vf x) {
    vf t = v_mul(x, v_splat(-1.44269504f));
    t = v_min(v_splat(126.0f), v_max(v_splat(-126.0f), t));
    vf shifted = v_add(t, v_splat(V_ROUND_MAGIC));
    vf f = v_sub(t, v_sub(shifted, v_splat(V_ROUND_MAGIC)));
    vf p = v_fma(v_splat(EXP2_C5), f, v_splat(EXP2_C4));
    p = v_fma(p, f, v_splat(EXP2_C3));
    p = v_fma(p, f, v_splat(EXP2_C2));
    p = v_fma(p, f, v_splat(EXP2_C1));
    p = v_fma(p, f, v_splat(EXP2_C0));
    vf e = v_exp2_scale(p, shifted);
    vf y = v_div(x, v_add(e, v_splat(1.0f)));
    return v_keep(v_not_less(x, v_splat(-87.33f)), y);
}

void KERNEL(tile_silu_f32)(int nv, float *s, int n_keys, float alpha, const uint64_t *mask) {
    const vf va = v_splat(alpha);
    if (!mask) {
        for (int j = 0; j < n_keys; j++, s += W)
            for (int v = 0; v < nv; v++) {
                float *p = s + v * V_LANES;
                v_store(p, v_silu(v_mul(va, v_load(p))));
            }
        return;
    }
    for (int j = 0; j < n_keys; j++, s += W)
        for (int v = 0; v < nv; v++) {
            float *p = s + v * V_LANES;
            vm m = v_mask((uint32_t)(mask[j] >> (v * V_LANES)));
            v_store(p, v_keep(m, v_silu(v_mul(va, v_load(p)))));
        }
}
