/* Which lines a part asks for. */
#include "hstu_ahead.h"

void ptl_ahead_rows(struct ptl_ahead *a, const struct ptl_rows *r, int64_t b, int64_t row,
                    int64_t n, int64_t first, int64_t h, int64_t n_heads, int dim) {
    const int i = a->n_arrays++;
    const bool whole = r->head_stride == dim;
    const int64_t begin = whole ? n * h / n_heads : 0, end = whole ? n * (h + 1) / n_heads : n;
    a->array[i].data = ptl_rows_at(r, b, row + begin, whole ? first : first + h);
    a->array[i].step = r->row_stride * r->elem_bytes;
    a->array[i].bytes = (whole ? n_heads : 1) * dim * r->elem_bytes;
    a->array[i].n_rows = end - begin;
}

void ptl_ahead_part(struct ptl_ahead *a) {
    for (int i = 0; i < a->n_arrays; i++) {
        const int64_t n = a->array[i].n_rows;
        const int64_t begin = a->part * n / a->n_parts, end = (a->part + 1) * n / a->n_parts;
        for (int64_t j = begin; j < end; j++) {
            const char *row = a->array[i].data + j * a->array[i].step;
            for (int64_t x = 0; x < a->array[i].bytes; x += 64) __builtin_prefetch(row + x, 0, 2);
        }
    }
    a->part++;
}

int ptl_ahead_step(const struct ptl_kernels *k, int nv) {
    const int rows = k->rows[nv - 1];
    return (12 + rows - 1) / rows * rows;
}

void ptl_ahead_qk(struct ptl_ahead *a, const struct ptl_kernels *k, int nv, const float *q_panel,
                  const float *keys, int64_t stride, int n_keys, int dqk, float *s) {
    const int step = ptl_ahead_step(k, nv);
    for (int x = 0; x < n_keys; x += step) {
        const int n = n_keys - x < step ? n_keys - x : step;
        ptl_ahead_part(a);
        k->tile_qk_f32(nv, q_panel, keys + x * stride, stride, n, dqk, s + x * k->panel);
    }
}
