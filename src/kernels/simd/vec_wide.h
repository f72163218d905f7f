/* An addition to the vector layer for rows.c alone: V_LANES doubles, and stores past the caches.
 *
 *   vd                 V_LANES doubles
 *   vd_load/vd_store   any alignment
 *   vd_add(a, x)       a + x, the floats of x widened
 *   v_stream(p, x)     v_store to an address that is a multiple of a vector; the line does not stay in a
 *                      cache, nor is it read before it is written. A plain store where there is no such
 *   v_stream_end()     orders the streamed stores before what follows */
#ifndef PTL_SIMD_VEC_WIDE_H
#define PTL_SIMD_VEC_WIDE_H

#include "vec.h"

#if defined(PTL_LEVEL_avx2)

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

#elif defined(PTL_LEVEL_avx512)

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

#elif defined(PTL_LEVEL_neon)

typedef struct {
    float64x2_t low, high;
} vd;

V_INLINE vd vd_load(const double *p) { return (vd){vld1q_f64(p), vld1q_f64(p + 2)}; }
V_INLINE void vd_store(double *p, vd a) {
    vst1q_f64(p, a.low);
    vst1q_f64(p + 2, a.high);
}
V_INLINE vd vd_add(vd a, vf x) {
    a.low = vaddq_f64(a.low, vcvt_f64_f32(vget_low_f32(x)));
    a.high = vaddq_f64(a.high, vcvt_high_f64_f32(x));
    return a;
}
V_INLINE void v_stream(float *p, vf x) { v_store(p, x); }
V_INLINE void v_stream_end(void) {}

#else

typedef double vd;

V_INLINE vd vd_load(const double *p) { return *p; }
V_INLINE void vd_store(double *p, vd a) { *p = a; }
V_INLINE vd vd_add(vd a, vf x) { return a + (double)x; }
V_INLINE void v_stream(float *p, vf x) { *p = x; }
V_INLINE void v_stream_end(void) {}

#endif
#endif
