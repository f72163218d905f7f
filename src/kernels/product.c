/* The two products of a tile, QK and PV: one register block, two ways to walk the second operand.
 * Not the score stage (silu.c), not the transposes (panel.c). */
#include "kernels.h"
#include "simd/vec.h"

enum { W = V_PANEL * V_LANES };

#define UNROLL _Pragma("GCC unroll 16")

/* What becomes of the sums: QK overwrites; PV adds to what is there, or to zero for the first tile. */
struct sink {
    float *c;
    bool first;
    const uint64_t *mask; /* PV over a mixed tile: the lanes' bits for each key; else NULL */
};

/* The block again, leaving out the terms that the mask rejects: for values that are not finite, since
 * 0 * NaN is NaN. The other lanes get the same bits as from the block's own sums. */
static void masked_block(int nv, int nr, const float *a, const float *b, ptrdiff_t bm, ptrdiff_t bx,
                         int nx, struct sink out) {
    for (int m = 0; m < nr; m++)
        for (int i = 0; i < nv * V_LANES; i += V_LANES) {
            vf acc = v_zero();
            for (int x = 0; x < nx; x++) {
                vf sum = v_fma(v_splat(b[m * bm + x * bx]), v_load(a + x * W + i), acc);
                acc = v_select(v_mask((uint32_t)(out.mask[x] >> i)), sum, acc);
            }
            float *p = out.c + m * W + i;
            v_store(p, v_add(out.first ? v_zero() : v_load(p), acc));
        }
}

/* c[m][lane] = c0 + sum over x of b[m * bm + x * bx] * a[x][lane], for nr rows m and nv vectors of
 * lanes. nr, nv and one of the strides are constants where this is inlined, so the sums live in
 * registers: per x it costs nv loads, nr broadcasts and nr * nv multiply-adds. */
V_INLINE void product_block(const int nv, const int nr, const bool add, const float *restrict a,
                            const float *restrict b, ptrdiff_t bm, ptrdiff_t bx, int nx,
                            struct sink out) {
    vf acc[12][V_PANEL];
    const float *line_at = a, *b_at = b;
    UNROLL for (int m = 0; m < nr; m++)
        UNROLL for (int v = 0; v < nv; v++) acc[m][v] = v_zero();
    _Pragma("GCC unroll 4") for (int x = 0; x < nx; x++) {
        vf line[V_PANEL];
        UNROLL for (int v = 0; v < nv; v++) line[v] = v_load(line_at + v * V_LANES);
        UNROLL for (int m = 0; m < nr; m++) {
            vf e = v_splat(b_at[m * bm]);
            UNROLL for (int v = 0; v < nv; v++) acc[m][v] = v_fma(e, line[v], acc[m][v]);
        }
        line_at += W;
        b_at += bx;
    }
    if (add && out.mask) {
        vf probe = v_zero(); /* x - x is 0 or NaN, and NaN stays in a sum */
        UNROLL for (int m = 0; m < nr; m++)
            UNROLL for (int v = 0; v < nv; v++)
                probe = v_add(probe, v_sub(acc[m][v], acc[m][v]));
        if (!v_all_finite(probe)) {
            masked_block(nv, nr, a, b, bm, bx, nx, out);
            return;
        }
    }
    UNROLL for (int m = 0; m < nr; m++)
        UNROLL for (int v = 0; v < nv; v++) {
            float *p = out.c + m * W + v * V_LANES;
            if (add) acc[m][v] = v_add(out.first ? v_zero() : v_load(p), acc[m][v]);
            v_store(p, acc[m][v]);
        }
}

/* All nm rows: blocks of nr, then the remainder by halves. */
V_INLINE void product(const int nv, const int nr, const bool add, const float *a, const float *b,
                      ptrdiff_t bm, ptrdiff_t bx, int nm, int nx, struct sink out) {
    int m = 0;
#define BLOCK(rows)                                                       \
    do {                                                                  \
        product_block(nv, rows, add, a, b + m * bm, bm, bx, nx, out);     \
        m += rows;                                                        \
        out.c += rows * W;                                                \
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
    const struct sink out = {s, false, NULL};
    switch (nv) {
    case 1: product(1, V_ROWS_1, false, q_panel, k, k_stride, 1, n_keys, dqk, out); break;
    case 2: product(2, V_ROWS_2, false, q_panel, k, k_stride, 1, n_keys, dqk, out); break;
    case 3: product(3, V_ROWS_3, false, q_panel, k, k_stride, 1, n_keys, dqk, out); break;
#if V_PANEL > 3
    case 4: product(4, V_ROWS_4, false, q_panel, k, k_stride, 1, n_keys, dqk, out); break;
#endif
    }
}

void KERNEL(tile_pv_f32)(int nv, const float *s, const float *v, ptrdiff_t v_stride, int n_keys,
                         int dv, float *o_panel, bool first, const uint64_t *mask) {
    const struct sink out = {o_panel, first, mask};
    switch (nv) {
    case 1: product(1, V_ROWS_1, true, s, v, 1, v_stride, dv, n_keys, out); break;
    case 2: product(2, V_ROWS_2, true, s, v, 1, v_stride, dv, n_keys, out); break;
    case 3: product(3, V_ROWS_3, true, s, v, 1, v_stride, dv, n_keys, out); break;
#if V_PANEL > 3
    case 4: product(4, V_ROWS_4, true, s, v, 1, v_stride, dv, n_keys, out); break;
#endif
    }
}
