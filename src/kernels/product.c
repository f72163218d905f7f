/* The two products of a tile, QK and PV: one register block, two ways to walk the second operand.
 * Not the score stage (silu.c), not the transposes (panel.c). */
#include "kernels.h"
#include "simd/vec.h"

enum { W = V_PANEL * V_LANES };

#define UNROLL _Pragma("GCC unroll 16")

/* How a block's sums meet what is in memory. */
enum sink { OVERWRITE, ADD, ADD_TO_ZERO };

/* c[m][lane] = c0 + sum over x of b[m * bm + x * bx] * a[x][lane], for nr rows m and nv vectors of
 * lanes. All but a, b, c, nx and one of the strides are constants where this is inlined, so the sums
 * live in registers: per x it costs nv loads, nr broadcasts and nr * nv multiply-adds. */
V_INLINE void product_block(const int nv, const int nr, const enum sink sink, const float *restrict a,
                            const float *restrict b, ptrdiff_t bm, ptrdiff_t bx, float *restrict c,
                            int nx) {
    vf acc[12][V_PANEL];
    UNROLL for (int m = 0; m < nr; m++)
        UNROLL for (int v = 0; v < nv; v++) acc[m][v] = v_zero();
    _Pragma("GCC unroll 4") for (int x = 0; x < nx; x++) {
        vf line[V_PANEL];
        UNROLL for (int v = 0; v < nv; v++) line[v] = v_load(a + v * V_LANES);
        UNROLL for (int m = 0; m < nr; m++) {
            vf e = v_splat(b[m * bm]);
            UNROLL for (int v = 0; v < nv; v++) acc[m][v] = v_fma(e, line[v], acc[m][v]);
        }
        a += W;
        b += bx;
    }
    UNROLL for (int m = 0; m < nr; m++)
        UNROLL for (int v = 0; v < nv; v++) {
            float *p = c + m * W + v * V_LANES;
            if (sink == ADD) acc[m][v] = v_add(v_load(p), acc[m][v]);
            if (sink == ADD_TO_ZERO) acc[m][v] = v_add(v_zero(), acc[m][v]); /* -0 becomes +0, as in ADD */
            v_store(p, acc[m][v]);
        }
}

/* All nm rows: blocks of nr, then the remainder by halves. */
V_INLINE void product(const int nv, const int nr, const enum sink sink, const float *a, const float *b,
                      ptrdiff_t bm, ptrdiff_t bx, float *c, int nm, int nx) {
    int m = 0;
#define BLOCK(rows)                                                              \
    do {                                                                         \
        product_block(nv, rows, sink, a, b + m * bm, bm, bx, c + m * W, nx);     \
        m += rows;                                                               \
    } while (0)
    while (m + nr <= nm) BLOCK(nr);
    if (nr > 8 && m + 8 <= nm) BLOCK(8);
    if (nr > 4 && m + 4 <= nm) BLOCK(4);
    if (nr > 2 && m + 2 <= nm) BLOCK(2);
    if (m < nm) BLOCK(1);
#undef BLOCK
}

void KERNEL(tile_qk_f32)(int nv, const float *q_panel, const float *k, ptrdiff_t k_stride,
                         int n_keys, int dqk, float *s) {
    switch (nv) {
    case 1: product(1, V_ROWS_1, OVERWRITE, q_panel, k, k_stride, 1, s, n_keys, dqk); break;
    case 2: product(2, V_ROWS_2, OVERWRITE, q_panel, k, k_stride, 1, s, n_keys, dqk); break;
    case 3: product(3, V_ROWS_3, OVERWRITE, q_panel, k, k_stride, 1, s, n_keys, dqk); break;
#if V_PANEL > 3
    case 4: product(4, V_ROWS_4, OVERWRITE, q_panel, k, k_stride, 1, s, n_keys, dqk); break;
#endif
    }
}

void KERNEL(tile_pv_f32)(int nv, const float *s, const float *v, ptrdiff_t v_stride, int n_keys,
                         int dv, float *o_panel, bool first) {
    switch (nv * 2 + first) {
    case 2: product(1, V_ROWS_1, ADD, s, v, 1, v_stride, o_panel, dv, n_keys); break;
    case 3: product(1, V_ROWS_1, ADD_TO_ZERO, s, v, 1, v_stride, o_panel, dv, n_keys); break;
    case 4: product(2, V_ROWS_2, ADD, s, v, 1, v_stride, o_panel, dv, n_keys); break;
    case 5: product(2, V_ROWS_2, ADD_TO_ZERO, s, v, 1, v_stride, o_panel, dv, n_keys); break;
    case 6: product(3, V_ROWS_3, ADD, s, v, 1, v_stride, o_panel, dv, n_keys); break;
    case 7: product(3, V_ROWS_3, ADD_TO_ZERO, s, v, 1, v_stride, o_panel, dv, n_keys); break;
#if V_PANEL > 3
    case 8: product(4, V_ROWS_4, ADD, s, v, 1, v_stride, o_panel, dv, n_keys); break;
    case 9: product(4, V_ROWS_4, ADD_TO_ZERO, s, v, 1, v_stride, o_panel, dv, n_keys); break;
#endif
    }
}

void KERNEL(tile_pv_masked_f32)(int nv, const float *s, const float *v, ptrdiff_t v_stride,
                                int n_keys, int dv, float *o_panel, bool first,
                                const uint64_t *mask) {
    for (int d = 0; d < dv; d++) {
        for (int i = 0; i < nv * V_LANES; i += V_LANES) {
            vf acc = v_zero();
            for (int j = 0; j < n_keys; j++) {
                vf sum = v_fma(v_splat(v[j * v_stride + d]), v_load(s + j * W + i), acc);
                acc = v_select(v_mask((uint32_t)(mask[j] >> i)), sum, acc);
            }
            float *p = o_panel + d * W + i;
            v_store(p, v_add(first ? v_zero() : v_load(p), acc));
        }
    }
}
