/* Vector layer for AVX512-BF16: that of AVX-512, and bf16 pairs. The instructions round to nearest
 * even and take numbers below 2^-126 for 0, whatever MXCSR says. */
#include "vec_avx512.h"

#define V_HAS_PAIRS

V_INLINE vf v_splat_pair(const uint16_t *p) {
    int pair;
    memcpy(&pair, p, sizeof pair);
    return _mm512_castsi512_ps(_mm512_set1_epi32(pair));
}

V_INLINE vf v_dot(vf a, vf b, vf c) {
    return _mm512_dpbf16_ps(c, (__m512bh)_mm512_castps_si512(a), (__m512bh)_mm512_castps_si512(b));
}

V_INLINE void v_store_pairs(uint16_t *p, vf pairs) { _mm512_storeu_ps(p, pairs); }

V_INLINE vf v_to_pairs(vf first, vf second) {
    const __m512i halves = (__m512i)_mm512_cvtne2ps_pbh(second, first); /* first below second */
#define PAIR(i) ((16 + (i)) << 16 | (i))
    const __m512i order = _mm512_setr_epi32(PAIR(0), PAIR(1), PAIR(2), PAIR(3), PAIR(4), PAIR(5),
                                            PAIR(6), PAIR(7), PAIR(8), PAIR(9), PAIR(10), PAIR(11),
                                            PAIR(12), PAIR(13), PAIR(14), PAIR(15));
#undef PAIR
    return _mm512_castsi512_ps(_mm512_permutexvar_epi16(order, halves));
}

V_INLINE vf v_keep_pair(vm first, vm second, vf pairs) {
    const __m512i x = _mm512_castps_si512(pairs);
    const __m512i low = _mm512_maskz_and_epi32(first, x, _mm512_set1_epi32(0xffff));
    const __m512i high = _mm512_maskz_and_epi32(second, x, _mm512_set1_epi32((int)0xffff0000));
    return _mm512_castsi512_ps(_mm512_or_si512(low, high));
}
