/* HSTU forward in bf16, by an instruction that adds two products at a time: the two products of a
 * tile, and the pairs that they multiply. QK takes pairs of columns, which lie side by side in q
 * and k; PV takes pairs of keys, for which scores are rounded and the rows of v interleaved. Only
 * for levels that have the instruction; the score stage in between is that of floats (silu.c). */
#define PTL_PAIRS
#include "tile_product.h"

void KERNEL(tile_qk_bf16)(int nv, const float *q_pairs, const uint16_t *k, ptrdiff_t k_stride,
                          int n_keys, int n_pairs, float *s) {
    product_qk(nv, q_pairs, k, k_stride, n_keys, n_pairs, s);
}

void KERNEL(tile_pv_bf16)(int nv, const float *p_pairs, const uint16_t *v_pairs, ptrdiff_t v_stride,
                          int n_keys, int dv, float *o_panel, bool first) {
    product_pv(nv, p_pairs, v_pairs, v_stride, (n_keys + 1) / 2, dv, o_panel, first);
}

/* A term that the mask rejects becomes +0 * +0. It leaves the sum alone as the +0 * v of a finite v
 * does in the plain product. */
void KERNEL(tile_pv_masked_bf16)(int nv, const float *p_pairs, const uint16_t *v_pairs,
                                 ptrdiff_t v_stride, int n_keys, int dv, float *o_panel, bool first,
                                 const uint64_t *mask) {
    for (int d = 0; d < dv; d++) {
        for (int i = 0; i < nv * V_LANES; i += V_LANES) {
            vf acc = v_zero();
            for (int j = 0; j < n_keys; j += 2) {
                const uint64_t second = j + 1 < n_keys ? mask[j + 1] : 0;
                const vf pair = v_splat_pair(v_pairs + j / 2 * v_stride + d * PER_LANE);
                const vf seen = v_keep_pair(v_mask((uint32_t)(mask[j] >> i)),
                                            v_mask((uint32_t)(second >> i)), pair);
                acc = v_dot(seen, v_load(p_pairs + j / 2 * W + i), acc);
            }
            float *p = o_panel + d * W + i;
            v_store(p, v_add(first ? v_zero() : v_load(p), acc));
        }
    }
}

void KERNEL(lines_to_pairs_bf16)(int nv, float *s, int n_keys) {
    for (int j = 0; j < n_keys; j += 2)
        for (int i = 0; i < nv * V_LANES; i += V_LANES) {
            const vf second = j + 1 < n_keys ? v_load(s + (j + 1) * W + i) : v_zero();
            v_store(s + j / 2 * W + i, v_to_pairs(v_load(s + j * W + i), second));
        }
}

/* n halves at x, 0 behind them, as floats; x NULL: zeros. Nothing past them is read. */
V_INLINE vf widen(const uint16_t *x, int n) {
    uint16_t tail[V_LANES] = {0};
    if (x && n >= V_LANES) return v_from_bf16(x);
    if (x) memcpy(tail, x, (size_t)n * sizeof *x);
    return v_from_bf16(tail);
}

bool KERNEL(rows_to_pairs_bf16)(const uint16_t *const *rows, int n_rows, int n, uint16_t *pairs,
                                ptrdiff_t stride) {
    vf sum = v_zero(); /* x - x is 0 or NaN, and NaN stays in a sum */
    for (int r = 0; r < n_rows; r += 2, pairs += stride) {
        const uint16_t *second = r + 1 < n_rows ? rows[r + 1] : NULL;
        for (int c = 0; c < n; c += V_LANES) {
            const vf x = widen(rows[r] + c, n - c), y = widen(second ? second + c : NULL, n - c);
            sum = v_add(sum, v_add(v_sub(x, x), v_sub(y, y)));
            v_store_pairs(pairs + c * PER_LANE, v_to_pairs(x, y));
        }
    }
    return v_all_finite(sum);
}
