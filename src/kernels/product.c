/* The products of a tile, QK and PV, with query rows as lanes and floats as elements. Not the score
 * stage (silu.c), not the transposes (panel.c), not the products of backward whose lanes are
 * columns (grad.c), not those of bf16 pairs (product_pairs.c). */
#include "tile_product.h"

void KERNEL(tile_qk_f32)(int nv, const float *q_panel, const float *k, ptrdiff_t k_stride,
                         int n_keys, int dqk, float *s) {
    product_qk(nv, q_panel, k, k_stride, n_keys, dqk, s);
}

void KERNEL(tile_pv_f32)(int nv, const float *s, const float *v, ptrdiff_t v_stride, int n_keys,
                         int dv, float *o_panel, bool first) {
    product_pv(nv, s, v, v_stride, n_keys, dv, o_panel, first);
}

V_INLINE void pv_runs(const int nv, const int nr, const enum sink sink, const float *s,
                      const struct ptl_run *runs, ptrdiff_t v_stride, int n_keys, int dv,
                      int column, float *o_panel, const float *factor) {
    register_rows(nv, nr, sink,
                  (struct operands){.a = s,
                                    .c = o_panel + (ptrdiff_t)column * W,
                                    .runs = runs,
                                    .factor = factor,
                                    .a_step = W,
                                    .bm = 1,
                                    .bx = v_stride,
                                    .b_offset = column,
                                    .c_step = W,
                                    .nx = n_keys},
                  dv);
}

void KERNEL(tile_pv_runs_f32)(int nv, const float *s, const struct ptl_run *v, ptrdiff_t v_stride,
                              int n_keys, int column, int n_columns, float *o_panel,
                              const float *factor) {
#define ARGS s, v, v_stride, n_keys, n_columns, column, o_panel, factor
    switch (nv * 2 + (factor == NULL)) {
    case 2: pv_runs(1, V_ROWS_1, RESCALE, ARGS); break;
    case 3: pv_runs(1, V_ROWS_1, ADD_TO_ZERO, ARGS); break;
    case 4: pv_runs(2, V_ROWS_2, RESCALE, ARGS); break;
    case 5: pv_runs(2, V_ROWS_2, ADD_TO_ZERO, ARGS); break;
    case 6: pv_runs(3, V_ROWS_3, RESCALE, ARGS); break;
    case 7: pv_runs(3, V_ROWS_3, ADD_TO_ZERO, ARGS); break;
#if V_PANEL > 3
    case 8: pv_runs(4, V_ROWS_4, RESCALE, ARGS); break;
    case 9: pv_runs(4, V_ROWS_4, ADD_TO_ZERO, ARGS); break;
#endif
    }
#undef ARGS
}

void KERNEL(tile_pv_runs_masked_f32)(int nv, const float *s, const struct ptl_run *v,
                                     ptrdiff_t v_stride, int n_keys, int dv, float *o_panel,
                                     const float *factor, const uint64_t *mask) {
    for (int d = 0; d < dv; d++) {
        for (int i = 0; i < nv * V_LANES; i += V_LANES) {
            vf acc = v_zero();
            const struct ptl_run *run = v;
            for (int j = 0, x = 0; j < n_keys; j++, x++) {
                if (x == run->n) {
                    x = 0;
                    run++;
                }
                vf sum = v_fma(v_splat(run->rows[x * v_stride + d]), v_load(s + j * W + i), acc);
                acc = v_select(v_mask((uint32_t)(mask[j] >> i)), sum, acc);
            }
            float *p = o_panel + d * W + i;
            v_store(p, factor ? v_fma(v_load(p), v_load(factor + i), acc) : v_add(v_zero(), acc));
        }
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
