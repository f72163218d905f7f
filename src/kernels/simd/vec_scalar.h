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
V_INLINE vf v_exp2_scale(vf p, vf t) {
    int32_t n, x;
    memcpy(&n, &t, 4);
    memcpy(&x, &p, 4);
    x = (int32_t)((uint32_t)x + ((uint32_t)n << 23));
    memcpy(&p, &x, 4);
    return p;
}
V_INLINE vm v_not_less(vf a, vf b) { return !(a < b); }
V_INLINE vm v_mask(uint32_t bits) { return bits & 1; }
V_INLINE vm v_mask_and(vm a, vm b) { return a && b; }
V_INLINE vf v_keep(vm m, vf a) { return m ? a : 0.0f; }
V_INLINE vf v_select(vm m, vf a, vf b) { return m ? a : b; }
V_INLINE bool v_all_finite(vf a) { return a - a == 0.0f; }
V_INLINE void v_transpose(vf *r) { (void)r; }
