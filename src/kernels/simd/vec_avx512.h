/* Vector layer for AVX-512 F, BW, DQ, VL: 16 lanes, 32 registers, mask registers. */
#include <immintrin.h>

typedef __m512 vf;
typedef __mmask16 vm;

#define V_LANES 16
#define V_PANEL 3
#define V_KEY_TILE 96
#define V_ROWS_3 8 /* 24 accumulators, 3 of the panel; broadcasts fold into the multiply-add */
#define V_ROWS_2 12
#define V_ROWS_1 12

V_INLINE vf v_zero(void) { return _mm512_setzero_ps(); }
V_INLINE vf v_splat(float x) { return _mm512_set1_ps(x); }
V_INLINE vf v_load(const float *p) { return _mm512_loadu_ps(p); }
V_INLINE void v_store(float *p, vf x) { _mm512_storeu_ps(p, x); }
V_INLINE __mmask16 v_first_n(int n) { return (__mmask16)((1u << n) - 1u); }
V_INLINE vf v_load_n(const float *p, int n) { return _mm512_maskz_loadu_ps(v_first_n(n), p); }
V_INLINE void v_store_n(float *p, vf x, int n) { _mm512_mask_storeu_ps(p, v_first_n(n), x); }
V_INLINE vf v_add(vf a, vf b) { return _mm512_add_ps(a, b); }
V_INLINE vf v_sub(vf a, vf b) { return _mm512_sub_ps(a, b); }
V_INLINE vf v_mul(vf a, vf b) { return _mm512_mul_ps(a, b); }
V_INLINE vf v_div(vf a, vf b) { return _mm512_div_ps(a, b); }
V_INLINE vf v_fma(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); }
V_INLINE vf v_max(vf a, vf b) { return _mm512_max_ps(a, b); }
V_INLINE vf v_min(vf a, vf b) { return _mm512_min_ps(a, b); }
V_INLINE vm v_not_less(vf a, vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_NLT_UQ); }
V_INLINE vf v_exp2_scale(vf p, vf t) {
    __m512i n = _mm512_slli_epi32(_mm512_castps_si512(t), 23);
    return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(p), n));
}
V_INLINE vm v_mask(uint32_t bits) { return (__mmask16)bits; }
V_INLINE vf v_keep(vm m, vf a) { return _mm512_maskz_mov_ps(m, a); }
V_INLINE vf v_select(vm m, vf a, vf b) { return _mm512_mask_blend_ps(m, b, a); }
V_INLINE bool v_all_finite(vf a) { /* x - x is 0 for finite x, NaN otherwise */
    vf z = _mm512_sub_ps(a, a);
    return _mm512_cmp_ps_mask(z, z, _CMP_UNORD_Q) == 0;
}
V_INLINE void v_transpose(vf *r) {
    vf t[16], u[16];
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
    }
    for (int i = 0; i < 16; i += 4) { /* u[4g + c]: rows 4g..4g+3 of column 4*lane128 + c */
        u[i] = _mm512_shuffle_ps(t[i], t[i + 2], 0x44);
        u[i + 1] = _mm512_shuffle_ps(t[i], t[i + 2], 0xee);
        u[i + 2] = _mm512_shuffle_ps(t[i + 1], t[i + 3], 0x44);
        u[i + 3] = _mm512_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
    for (int c = 0; c < 4; c++) {
        vf even0 = _mm512_shuffle_f32x4(u[c], u[4 + c], 0x88);
        vf even1 = _mm512_shuffle_f32x4(u[8 + c], u[12 + c], 0x88);
        vf odd0 = _mm512_shuffle_f32x4(u[c], u[4 + c], 0xdd);
        vf odd1 = _mm512_shuffle_f32x4(u[8 + c], u[12 + c], 0xdd);
        r[c] = _mm512_shuffle_f32x4(even0, even1, 0x88);
        r[8 + c] = _mm512_shuffle_f32x4(even0, even1, 0xdd);
        r[4 + c] = _mm512_shuffle_f32x4(odd0, odd1, 0x88);
        r[12 + c] = _mm512_shuffle_f32x4(odd0, odd1, 0xdd);
    }
}

V_INLINE vf v_from_bf16(const uint16_t *p) {
    __m512i x = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(x, 16));
}
V_INLINE void v_to_bf16(uint16_t *p, vf x) {
    const __m512i bits = _mm512_castps_si512(x);
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    __m512i even = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    __m512i nan = _mm512_or_si512(bits, _mm512_set1_epi32(0x400000)); /* a quiet NaN */
    __m512i y = _mm512_mask_blend_epi32(_mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), even, nan);
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtepi32_epi16(_mm512_srli_epi32(y, 16)));
}
V_INLINE vf v_from_f16(const uint16_t *p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}
V_INLINE void v_to_f16(uint16_t *p, vf x) {
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}

typedef struct {
    __m512d low, high;
} vd;

V_INLINE vd vd_load(const double *p) { return (vd){_mm512_loadu_pd(p), _mm512_loadu_pd(p + 8)}; }
V_INLINE void vd_store(double *p, vd a) {
    _mm512_storeu_pd(p, a.low);
    _mm512_storeu_pd(p + 8, a.high);
}
V_INLINE vd vd_add(vd a, vf x) {
    a.low = _mm512_add_pd(a.low, _mm512_cvtps_pd(_mm512_castps512_ps256(x)));
    a.high = _mm512_add_pd(a.high, _mm512_cvtps_pd(_mm512_extractf32x8_ps(x, 1)));
    return a;
}
V_INLINE void v_stream(float *p, vf x) { _mm512_stream_ps(p, x); }
V_INLINE void v_stream_end(void) { _mm_sfence(); }
