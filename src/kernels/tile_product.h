/* The two products of a tile, QK and PV, over whatever elements register_block.h multiplies: what
 * product.c and product_pairs.c have in common. It is no kernel itself. */
#ifndef PTL_TILE_PRODUCT_H
#define PTL_TILE_PRODUCT_H

#include "register_block.h"

enum { W = V_PANEL * V_LANES };

V_INLINE void product(const int nv, const int nr, const enum sink sink, const float *a,
                      const element *b, ptrdiff_t bm, ptrdiff_t bx, float *c, int nm, int nx) {
    register_rows(nv, nr, sink,
                  (struct operands){.a = a,
                                    .b = b,
                                    .c = c,
                                    .a_step = W,
                                    .bm = bm,
                                    .bx = bx,
                                    .c_step = W,
                                    .part = INT_MAX,
                                    .nx = nx},
                  nm);
}

/* s[j] = sum over d of k(j, d) * q_panel[d], d < n lines. */
V_INLINE void product_qk(int nv, const float *q_panel, const element *k, ptrdiff_t k_stride,
                         int n_keys, int n, float *s) {
#define ARGS OVERWRITE, q_panel, k, k_stride, PER_LANE, s, n_keys, n
    switch (nv) {
    case 1: product(1, V_ROWS_1, ARGS); break;
    case 2: product(2, V_ROWS_2, ARGS); break;
    case 3: product(3, V_ROWS_3, ARGS); break;
#if V_PANEL > 3
    case 4: product(4, V_ROWS_4, ARGS); break;
#endif
    }
#undef ARGS
}

/* o_panel[d] += sum over j of v(j, d) * s[j], j < n lines, d < dv. */
V_INLINE void product_pv(int nv, const float *s, const element *v, ptrdiff_t v_stride, int n,
                         int dv, float *o_panel, bool first) {
#define ARGS s, v, PER_LANE, v_stride, o_panel, dv, n
    switch (nv * 2 + first) {
    case 2: product(1, V_ROWS_1, ADD, ARGS); break;
    case 3: product(1, V_ROWS_1, ADD_TO_ZERO, ARGS); break;
    case 4: product(2, V_ROWS_2, ADD, ARGS); break;
    case 5: product(2, V_ROWS_2, ADD_TO_ZERO, ARGS); break;
    case 6: product(3, V_ROWS_3, ADD, ARGS); break;
    case 7: product(3, V_ROWS_3, ADD_TO_ZERO, ARGS); break;
#if V_PANEL > 3
    case 8: product(4, V_ROWS_4, ADD, ARGS); break;
    case 9: product(4, V_ROWS_4, ADD_TO_ZERO, ARGS); break;
#endif
    }
#undef ARGS
}

#endif
