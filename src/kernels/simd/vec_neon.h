/* Vector layer for AArch64 Advanced SIMD: 4 lanes, 32 registers. */
#include <arm_neon.h>

typedef float32x4_t vf;
typedef uint32x4_t vm;

#define V_LANES 4
#define V_PANEL 3
#define V_KEY_TILE 128
#define V_ROWS_3 8
#define V_ROWS_2 8
#define V_ROWS_1 8

V_INLINE vf v_zero(void) { return vdupq_n_f32(0.0f); }
V_INLINE vf v_splat(float x) { return vdupq_n_f32(x); }
V_INLINE vf v_load(const float *p) { return vld1q_f32(p); }
V_INLINE void v_store(float *p, vf x) { vst1q_f32(p, x); }
V_INLINE vf v_load_n(const float *p, int n) {
    float t[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    memcpy(t, p, (size_t)n * sizeof(float));
    return vld1q_f32(t);
}
V_INLINE void v_store_n(float *p, vf x, int n) {
    float t[4];
    vst1q_f32(t, x);
    memcpy(p, t, (size_t)n * sizeof(float));
}
V_INLINE vf v_add(vf a, vf b) { return vaddq_f32(a, b); }
V_INLINE vf v_sub(vf a, vf b) { return vsubq_f32(a, b); }
V_INLINE vf v_mul(vf a, vf b) { return vmulq_f32(a, b); }
V_INLINE vf v_div(vf a, vf b) { return vdivq_f32(a, b); }
V_INLINE vf v_fma(vf a, vf b, vf c) { return vfmaq_f32(c, a, b); }
V_INLINE vm v_mask(uint32_t bits) {
    static const uint32_t bit[4] = {1, 2, 4, 8};
    return vtstq_u32(vdupq_n_u32(bits), vld1q_u32(bit));
}
V_INLINE vf v_keep(vm m, vf a) {
    return vreinterpretq_f32_u32(vandq_u32(m, vreinterpretq_u32_f32(a)));
}
V_INLINE vf v_select(vm m, vf a, vf b) { return vbslq_f32(m, a, b); }
V_INLINE vf v_max(vf a, vf b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }
V_INLINE vf v_min(vf a, vf b) { return vbslq_f32(vcltq_f32(a, b), a, b); }
V_INLINE vm v_not_less(vf a, vf b) { return vmvnq_u32(vcltq_f32(a, b)); }
V_INLINE vf v_exp2_scale(vf p, vf t) {
    int32x4_t n = vshlq_n_s32(vreinterpretq_s32_f32(t), 23);
    return vreinterpretq_f32_s32(vaddq_s32(vreinterpretq_s32_f32(p), n));
}
V_INLINE bool v_all_finite(vf a) { /* x - x is 0 for finite x, NaN otherwise */
    vf z = vsubq_f32(a, a);
    return vminvq_u32(vceqq_f32(z, z)) != 0;
}
V_INLINE void v_transpose(vf *r) {
    float32x4x2_t a = vtrnq_f32(r[0], r[1]), b = vtrnq_f32(r[2], r[3]);
    r[0] = vcombine_f32(vget_low_f32(a.val[0]), vget_low_f32(b.val[0]));
    r[1] = vcombine_f32(vget_low_f32(a.val[1]), vget_low_f32(b.val[1]));
    r[2] = vcombine_f32(vget_high_f32(a.val[0]), vget_high_f32(b.val[0]));
    r[3] = vcombine_f32(vget_high_f32(a.val[1]), vget_high_f32(b.val[1]));
}

V_INLINE vf v_from_bf16(const uint16_t *p) {
    return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p), 16));
}
V_INLINE void v_to_bf16(uint16_t *p, vf x) {
    const uint32x4_t bits = vreinterpretq_u32_f32(x);
    uint32x4_t odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
    uint32x4_t even = vaddq_u32(bits, vaddq_u32(odd, vdupq_n_u32(0x7fff)));
    uint32x4_t nan = vorrq_u32(bits, vdupq_n_u32(0x400000)); /* a quiet NaN */
    vst1_u16(p, vshrn_n_u32(vbslq_u32(vceqq_f32(x, x), even, nan), 16));
}
V_INLINE vf v_from_f16(const uint16_t *p) {
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)));
}
V_INLINE void v_to_f16(uint16_t *p, vf x) { vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32(x))); }

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
