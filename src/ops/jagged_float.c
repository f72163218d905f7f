/* Rows of f32, f16 and bf16 as floats: arithmetic is in float, halves are widened and rounded a
 * block of columns at a time. */
#include "jagged.h"

enum { BLOCK = 512 }; /* columns: buffers of 2 KiB */

const float *ptl_jagged_widen(const struct ptl_kernels *k, enum ptl_dtype type, const char *row,
                              int64_t first, int64_t n, float *buffer) {
    if (type == PTL_F32) return (const float *)row + first;
    ptl_widen_rows(k, type, (const uint16_t *)row + first, n, 1, (int)n, buffer, n);
    return buffer;
}

void ptl_jagged_narrow(const struct ptl_kernels *k, const float *x, enum ptl_dtype type, char *row,
                       int64_t first, int64_t n) {
    char *to = row + first * (int64_t)ptl_dtype_bytes(type);
    ptl_narrow_rows(k, type, x, n, 1, (int)n, to, n);
}

void ptl_jagged_affine(const struct ptl_kernels *k, enum ptl_dtype type, char *out, const char *x,
                       float alpha, enum ptl_dtype terms_type, const char *a, const char *b,
                       int64_t n) {
    if (type == PTL_F32 && terms_type == PTL_F32) {
        k->affine_f32((float *)out, (const float *)x, alpha, (const float *)a, (const float *)b, n);
        return;
    }
    float x_block[BLOCK], a_block[BLOCK], b_block[BLOCK], out_block[BLOCK];
    for (int64_t first = 0; first < n; first += BLOCK) {
        const int64_t left = n - first, now = left < BLOCK ? left : BLOCK;
        const float *terms[2] = {NULL, NULL};
        if (a) terms[0] = ptl_jagged_widen(k, terms_type, a, first, now, a_block);
        if (b) terms[1] = ptl_jagged_widen(k, terms_type, b, first, now, b_block);
        float *to = type == PTL_F32 ? (float *)out + first : out_block;
        k->affine_f32(to, ptl_jagged_widen(k, type, x, first, now, x_block), alpha, terms[0],
                      terms[1], now);
        if (type != PTL_F32) ptl_jagged_narrow(k, to, type, out, first, now);
    }
}
