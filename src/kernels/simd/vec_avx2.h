/* Vector layer for AVX2 + FMA + F16C: 8 lanes, 16 registers. */
#include <immintrin.h>

typedef __m256 vf;
typedef __m256 vm; /* all ones or all zeros per lane */

#define V_LANES 8
#define V_PANEL 3
#define V_KEY_TILE 128
#define V_ROWS_3 4 /* 12 accumulators, 3 of the panel, 1 broadcast: all 16 registers */
#define V_ROWS_2 6
#define V_ROWS_1 8

V_INLINE vf v_zero(void) { return _mm256_setzero_ps(); }
V_INLINE vf v_splat(float x) { return _mm256_set1_ps(x); }
V_INLINE vf v_load(const float *p) { return _mm256_loadu_ps(p); }
V_INLINE void v_store(float *p, vf x) { _mm256_storeu_ps(p, x); }
V_INLINE __m256i v_first_n(int n) {
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), lane);
}
V_INLINE vf v_load_n(const float *p, int n) { return _mm256_maskload_ps(p, v_first_n(n)); }
V_INLINE void v_store_n(float *p, vf x, int n) { _mm256_maskstore_ps(p, v_first_n(n), x); }
V_INLINE vf v_add(vf a, vf b) { return _mm256_add_ps(a, b); }
V_INLINE vf v_sub(vf a, vf b) { return _mm256_sub_ps(a, b); }
V_INLINE vf v_mul(vf a, vf b) { return _mm256_mul_ps(a, b); }
V_INLINE vf v_div(vf a, vf b) { return _mm256_div_ps(a, b); }
V_INLINE vf v_fma(vf a, vf b, vf c) { return _mm256_fmadd_ps(a, b, c); }
V_INLINE vf v_max(vf a, vf b) { return _mm256_max_ps(a, b); }
V_INLINE vf v_min(vf a, vf b) { return _mm256_min_ps(a, b); }
V_INLINE vm v_not_less(vf a, vf b) { return _mm256_cmp_ps(a, b, _CMP_NLT_UQ); }
V_INLINE vf v_exp2_scale(vf p, vf t) {
    __m256i n = _mm256_slli_epi32(_mm256_castps_si256(t), 23);
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p), n));
}
V_INLINE vm v_mask(uint32_t bits) {
    const __m256i bit = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    __m256i x = _mm256_and_si256(_mm256_set1_epi32((int)bits), bit);
    return _mm256_castsi256_ps(_mm256_cmpeq_epi32(x, bit));
}
V_INLINE vf v_keep(vm m, vf a) { return _mm256_and_ps(m, a); }
V_INLINE vf v_select(vm m, vf a, vf b) { return _mm256_blendv_ps(b, a, m); }
V_INLINE bool v_all_finite(vf a) { /* x - x is 0 for finite x, NaN otherwise */
    vf z = _mm256_sub_ps(a, a);
    return _mm256_movemask_ps(_mm256_cmp_ps(z, z, _CMP_UNORD_Q)) == 0;
}
V_INLINE void v_transpose(vf *r) {
    vf t[8], u[8];
    for (int i = 0; i < 8; i += 2) {
        t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {
        u[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
        u[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
        u[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
        u[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
    for (int i = 0; i < 4; i++) {
        r[i] = _mm256_permute2f128_ps(u[i], u[i + 4], 0x20);
        r[i + 4] = _mm256_permute2f128_ps(u[i], u[i + 4], 0x31);
    }
}

V_INLINE vf v_from_bf16(const uint16_t *p) {
    __m256i x = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(x, 16));
}
V_INLINE void v_to_bf16(uint16_t *p, vf x) {
    const __m256i bits = _mm256_castps_si256(x);
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    __m256i even = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    __m256i nan = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000)); /* a quiet NaN */
    __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    __m256i y = _mm256_srli_epi32(_mm256_blendv_epi8(even, nan, is_nan), 16);
    y = _mm256_permute4x64_epi64(_mm256_packus_epi32(y, y), 0x08);
    _mm_storeu_si128((__m128i *)p, _mm256_castsi256_si128(y));
}
V_INLINE vf v_from_f16(const uint16_t *p) {
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
}
V_INLINE void v_to_f16(uint16_t *p, vf x) {
    _mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}

typedef struct {
    __m256d low, high;
} vd;

V_INLINE vd vd_load(const double *p) { return (vd){_mm256_loadu_pd(p), _mm256_loadu_pd(p + 4)}; }
V_INLINE void vd_store(double *p, vd a) {
    _mm256_storeu_pd(p, a.low);
    _mm256_storeu_pd(p + 4, a.high);
}
V_INLINE vd vd_add(vd a, vf x) {
    a.low = _mm256_add_pd(a.low, _mm256_cvtps_pd(_mm256_castps256_ps128(x)));
    a.high = _mm256_add_pd(a.high, _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1)));
    return a;
}
V_INLINE void v_stream(float *p, vf x) { _mm256_stream_ps(p, x); }
V_INLINE void v_stream_end(void) { _mm_sfence(); }
