/* 2^t on vectors, by rounding and a polynomial. Range checks are the caller's. */
#ifndef PTL_SIMD_EXP2_H
#define PTL_SIMD_EXP2_H

#include "vec.h"

/* 2^f on [-1/2, 1/2] with relative error 9.3e-8, made by tools/gen_poly.py. */
#define EXP2_C1 0.693147004f
#define EXP2_C2 0.240222469f
#define EXP2_C3 0.0555071086f
#define EXP2_C4 0.00967129134f
#define EXP2_C5 0.00132695213f

/* p[i] = 2^t[i] for n <= 4 vectors at once, t in [-126, 128] or NaN: one vector is a chain of some
 * 50 cycles, so several go through each step side by side. At 128 f is 0, so the result is 1.0 with
 * the exponent raised to that of infinity. t is used up. */
V_INLINE void exp2_bounded(vf *t, vf *p, const int n) {
    vf f[4];
#define EACH UNROLL for (int i = 0; i < n; i++)
    EACH p[i] = v_add(t[i], v_splat(V_ROUND_MAGIC));
    EACH f[i] = v_sub(p[i], v_splat(V_ROUND_MAGIC));
    EACH f[i] = v_sub(t[i], f[i]);
    EACH t[i] = p[i];
    EACH p[i] = v_fma(v_splat(EXP2_C5), f[i], v_splat(EXP2_C4));
    EACH p[i] = v_fma(p[i], f[i], v_splat(EXP2_C3));
    EACH p[i] = v_fma(p[i], f[i], v_splat(EXP2_C2));
    EACH p[i] = v_fma(p[i], f[i], v_splat(EXP2_C1));
    EACH p[i] = v_fma(p[i], f[i], v_splat(1.0f));
    EACH p[i] = v_exp2_scale(p[i], t[i]);
#undef EACH
}

#endif
