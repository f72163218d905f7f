/* The products of the backward pass whose lanes are the columns of a head: gradients of keys and values
 * (sums over query rows) and of query rows (sums over keys). The other two products of backward are those
 * of forward (product.c). */
#include "kernels.h"
#include "simd/vec.h"

enum { W = V_PANEL * V_LANES };

#define UNROLL _Pragma("GCC unroll 16")

/* c[m][d] = (first ? 0 : c) + sum over parts and x of b[part * b_part + m * bm + x * bx] * a[x][d], for
 * nr rows m and nv vectors of columns; a runs on through the parts. partial: only the first `width`
 * columns of c exist. */
V_INLINE void grad_block(const int nv, const int nr, const bool partial, const float *restrict a,
                         ptrdiff_t a_stride, const float *restrict b, ptrdiff_t bm, ptrdiff_t bx,
                         ptrdiff_t b_part, ptrdiff_t part, int nx, float *restrict c,
                         ptrdiff_t c_stride, int width, bool first) {
    vf acc[12][V_PANEL];
    UNROLL for (int m = 0; m < nr; m++)
        UNROLL for (int v = 0; v < nv; v++) acc[m][v] = v_zero();
    for (; nx > 0; nx -= (int)part, b += b_part) {
        const float *at = b;
        const int n = nx < part ? nx : (int)part;
        _Pragma("GCC unroll 4") for (int x = 0; x < n; x++) {
            vf line[V_PANEL];
            UNROLL for (int v = 0; v < nv; v++) line[v] = v_load(a + v * V_LANES);
            UNROLL for (int m = 0; m < nr; m++) {
                vf e = v_splat(at[m * bm]);
                UNROLL for (int v = 0; v < nv; v++) acc[m][v] = v_fma(e, line[v], acc[m][v]);
            }
            a += a_stride;
            at += bx;
        }
    }
    static const float zeros[V_LANES];
    UNROLL for (int m = 0; m < nr; m++)
        UNROLL for (int v = 0; v < nv; v++) {
            float *p = c + m * c_stride + v * V_LANES;
            const float *from = first ? zeros : p;
            if (partial) v_store_n(p, v_add(v_load_n(from, width), acc[m][v]), width);
            else v_store(p, v_add(v_load(from), acc[m][v]));
        }
}

/* All nm rows of one group of nv vectors. */
V_INLINE void grad_group(const int nv, const int nr, const bool partial, const float *a,
                         ptrdiff_t a_stride, const float *b, ptrdiff_t bm, ptrdiff_t bx,
                         ptrdiff_t b_part, ptrdiff_t part, int nx, float *c, ptrdiff_t c_stride,
                         int width, bool first, int nm) {
    int m = 0;
#define BLOCK(rows)                                                                             \
    do {                                                                                        \
        grad_block(nv, rows, partial, a, a_stride, b + m * bm, bm, bx, b_part, part, nx,        \
                   c + m * c_stride, c_stride, width, first);                                   \
        m += rows;                                                                              \
    } while (0)
    while (m + nr <= nm) BLOCK(nr);
    if (nr > 8 && m + 8 <= nm) BLOCK(8);
    if (nr > 4 && m + 4 <= nm) BLOCK(4);
    if (nr > 2 && m + 2 <= nm) BLOCK(2);
    if (m < nm) BLOCK(1);
#undef BLOCK
}

/* All n columns: groups of three vectors, or two and two rather than three and one. whole: c's rows are
 * padded, so the last vector may be written in full. */
V_INLINE void grad_columns(const bool whole, const float *a, ptrdiff_t a_stride, const float *b,
                           ptrdiff_t bm, ptrdiff_t bx, ptrdiff_t b_part, ptrdiff_t part, int nx,
                           float *c, ptrdiff_t c_stride, int n, bool first, int nm) {
    int left = whole ? (n + V_LANES - 1) / V_LANES : n / V_LANES;
    const int tail = whole ? 0 : n % V_LANES;
#define GROUP(nv, nr, partial)                                                                   \
    do {                                                                                         \
        grad_group(nv, nr, partial, a, a_stride, b, bm, bx, b_part, part, nx, c, c_stride, tail, \
                   first, nm);                                                                   \
        a += nv * V_LANES;                                                                       \
        c += nv * V_LANES;                                                                       \
    } while (0)
    while (left > 0) {
        if (left == 1) {
            GROUP(1, V_ROWS_1, false);
            left -= 1;
        } else if (left == 2 || left == 4) {
            GROUP(2, V_ROWS_2, false);
            left -= 2;
        } else {
            GROUP(3, V_ROWS_3, false);
            left -= 3;
        }
    }
    if (tail) GROUP(1, V_ROWS_1, true);
#undef GROUP
}

void KERNEL(grad_keys_f32)(const float *s, ptrdiff_t panel_step, int n_rows, int n_keys,
                           const float *a, ptrdiff_t a_stride, int n, float *c, ptrdiff_t c_stride) {
    grad_columns(true, a, a_stride, s, W, 1, panel_step, W, n_rows, c, c_stride, n, false, n_keys);
}

void KERNEL(grad_rows_f32)(const float *s, int n_rows, int n_keys, const float *a, ptrdiff_t a_stride,
                           int n, float *c, ptrdiff_t c_stride, bool first) {
    grad_columns(false, a, a_stride, s, 1, W, 0, n_keys > 0 ? n_keys : 1, n_keys, c, c_stride, n, first,
                 n_rows);
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
                                  ptrdiff_t a_stride, int n, float *c, ptrdiff_t c_stride, bool first,
                                  const uint64_t *mask) {
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
