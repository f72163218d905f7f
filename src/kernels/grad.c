/* The products of the backward pass whose lanes are the columns of a head: gradients of keys and
 * values (sums over query rows) and of query rows (sums over keys). The other two products of
 * backward are those of forward (product.c). */
#include "register_block.h"

enum { W = V_PANEL * V_LANES };

/* All n columns, in groups of three vectors, or two and two rather than three and one, and a
 * tail. */
V_INLINE void columns(const enum sink sink, const enum sink tail_sink, struct operands o, int n,
                      int nm) {
    int left = n / V_LANES;
    o.width = n % V_LANES;
#define GROUP(nv, nr, how)                                                                         \
    do {                                                                                           \
        register_rows(nv, nr, how, o, nm);                                                         \
        o.a += nv * V_LANES;                                                                       \
        o.c += nv * V_LANES;                                                                       \
    } while (0)
    while (left > 0) {
        if (left == 1) {
            GROUP(1, V_ROWS_1, sink);
            left -= 1;
        } else if (left == 2 || left == 4) {
            GROUP(2, V_ROWS_2, sink);
            left -= 2;
        } else {
            GROUP(3, V_ROWS_3, sink);
            left -= 3;
        }
    }
    if (o.width) GROUP(1, V_ROWS_1, tail_sink);
#undef GROUP
}

void KERNEL(grad_keys_f32)(const float *s, ptrdiff_t panel_step, int n_rows, int n_keys,
                           const float *a, ptrdiff_t a_stride, int n, float *c,
                           ptrdiff_t c_stride) {
    const int padded = (n + V_LANES - 1) / V_LANES * V_LANES;
    columns(ADD, PARTIAL_ADD,
            (struct operands){.a = a,
                              .b = s,
                              .c = c,
                              .a_step = a_stride,
                              .bm = W,
                              .bx = 1,
                              .b_part = panel_step,
                              .c_step = c_stride,
                              .part = W,
                              .nx = n_rows},
            padded, n_keys);
}

void KERNEL(grad_rows_f32)(const float *s, int n_rows, int n_keys, const float *a,
                           ptrdiff_t a_stride, int n, float *c, ptrdiff_t c_stride, bool first) {
    const struct operands o = {.a = a,
                               .b = s,
                               .c = c,
                               .a_step = a_stride,
                               .bm = 1,
                               .bx = W,
                               .c_step = c_stride,
                               .part = INT_MAX,
                               .nx = n_keys};
    if (first) columns(ADD_TO_ZERO, PARTIAL_ADD_TO_ZERO, o, n, n_rows);
    else columns(ADD, PARTIAL_ADD, o, n, n_rows);
}

void KERNEL(grad_keys_masked_f32)(const float *s, ptrdiff_t panel_step, int n_rows, int n_keys,
                                  const float *a, ptrdiff_t a_stride, int n, float *c,
                                  ptrdiff_t c_stride, const uint64_t *mask, ptrdiff_t mask_step) {
    for (int j = 0; j < n_keys; j++)
        for (int d = 0; d < n; d += V_LANES) {
            vf acc = v_zero();
            for (int i = 0; i < n_rows; i++) {
                if (!(mask[i / W * mask_step + j] >> (i % W) & 1)) continue;
                const vf e = v_splat(s[i / W * panel_step + j * W + i % W]);
                acc = v_fma(e, v_load(a + i * a_stride + d), acc);
            }
            float *p = c + j * c_stride + d;
            v_store(p, v_add(v_load(p), acc));
        }
}

void KERNEL(grad_rows_masked_f32)(const float *s, int n_rows, int n_keys, const float *a,
                                  ptrdiff_t a_stride, int n, float *c, ptrdiff_t c_stride,
                                  bool first, const uint64_t *mask) {
    for (int i = 0; i < n_rows; i++)
        for (int d = 0; d < n; d += V_LANES) {
            const int width = n - d < V_LANES ? n - d : V_LANES;
            vf acc = v_zero();
            for (int j = 0; j < n_keys; j++) {
                if (!(mask[j] >> i & 1)) continue;
                acc = v_fma(v_splat(s[j * W + i]), v_load(a + j * a_stride + d), acc);
            }
            float *p = c + i * c_stride + d;
            v_store_n(p, v_add(first ? v_zero() : v_load_n(p, width), acc), width);
        }
}
