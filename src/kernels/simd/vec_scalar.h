/* Vector layer, one float wide: what the kernels mean, in plain C. Not for speed. */
typedef float vf;
typedef bool vm;

#define V_LANES 1
#define V_PANEL 4
#define V_KEY_TILE 128
#define V_ROWS_4 4
#define V_ROWS_3 4
#define V_ROWS_2 4
#define V_ROWS_1 4

V_INLINE vf v_zero(void) { return 0.0f; }
V_INLINE vf v_splat(float x) { return x; }
V_INLINE vf v_load(const float *p) { return *p; }
V_INLINE void v_store(float *p, vf x) { *p = x; }
V_INLINE vf v_load_n(const float *p, int n) { return n > 0 ? *p : 0.0f; }
V_INLINE void v_store_n(float *p, vf x, int n) {
    if (n > 0) *p = x;
}
V_INLINE vf v_add(vf a, vf b) { return a + b; }
V_INLINE vf v_sub(vf a, vf b) { return a - b; }
V_INLINE vf v_mul(vf a, vf b) { return a * b; }
V_INLINE vf v_div(vf a, vf b) { return a / b; }
V_INLINE vf v_fma(vf a, vf b, vf c) { return a * b + c; }
V_INLINE vf v_max(vf a, vf b) { return a > b ? a : b; }
V_INLINE vf v_min(vf a, vf b) { return a < b ? a : b; }
V_INLINE vm v_not_less(vf a, vf b) { return !(a < b); }
V_INLINE vf v_exp2_scale(vf p, vf t) {
    int32_t n, x;
    memcpy(&n, &t, 4);
    memcpy(&x, &p, 4);
    x = (int32_t)((uint32_t)x + ((uint32_t)n << 23));
    memcpy(&p, &x, 4);
    return p;
}
V_INLINE vm v_mask(uint32_t bits) { return bits & 1; }
V_INLINE vf v_keep(vm m, vf a) { return m ? a : 0.0f; }
V_INLINE vf v_select(vm m, vf a, vf b) { return m ? a : b; }
V_INLINE bool v_all_finite(vf a) { return a - a == 0.0f; }
V_INLINE void v_transpose(vf *r) { (void)r; }

V_INLINE vf v_from_bf16(const uint16_t *p) {
    const uint32_t bits = (uint32_t)*p << 16;
    float x;
    memcpy(&x, &bits, 4);
    return x;
}
V_INLINE void v_to_bf16(uint16_t *p, vf x) {
    uint32_t bits;
    memcpy(&bits, &x, 4);
    if (x != x) *p = (uint16_t)(bits >> 16 | 0x40); /* a quiet NaN */
    else *p = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
/* f16 has 10 mantissa bits and a bias of 15. Multiplying by 2^112 moves the exponent to float's
 * bias, subnormals included; the exponent of infinity and NaN is set afterwards. */
V_INLINE vf v_from_f16(const uint16_t *p) {
    uint32_t bits = (uint32_t)(*p & 0x7fff) << 13;
    float x;
    memcpy(&x, &bits, 4);
    x *= 0x1p112f;
    memcpy(&bits, &x, 4);
    if ((*p & 0x7c00) == 0x7c00) bits |= 0x7f800000;
    bits |= (uint32_t)(*p & 0x8000) << 16;
    memcpy(&x, &bits, 4);
    return x;
}
V_INLINE void v_to_f16(uint16_t *p, vf x) {
    uint32_t bits;
    memcpy(&bits, &x, 4);
    const uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    bits &= 0x7fffffff;
    if (bits > 0x7f800000) {
        *p = (uint16_t)(sign | 0x7e00 | (bits >> 13 & 0x3ff));
    } else if (bits >= 0x477ff000) { /* from 65520 on: infinity */
        *p = sign | 0x7c00;
    } else if (bits < 0x38800000) { /* below 2^-14: the addition rounds to a multiple of 2^-24 */
        float y;
        memcpy(&y, &bits, 4);
        y += 0.5f;
        memcpy(&bits, &y, 4);
        *p = (uint16_t)(sign | (bits - 0x3f000000));
    } else {
        bits -= 112u << 23;
        *p = (uint16_t)(sign | (bits + 0xfff + (bits >> 13 & 1)) >> 13);
    }
}

typedef double vd;

V_INLINE vd vd_load(const double *p) { return *p; }
V_INLINE void vd_store(double *p, vd a) { *p = a; }
V_INLINE vd vd_add(vd a, vf x) { return a + (double)x; }
V_INLINE void v_stream(float *p, vf x) { *p = x; }
V_INLINE void v_stream_end(void) {}
