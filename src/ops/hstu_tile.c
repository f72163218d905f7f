/* Rows to tiles and panels. Conversions and transposes are kernels; this finds the rows. */
#include "hstu_tile.h"

#include <string.h>

#include "../core/arith.h"

static bool is_half(const struct ptl_hstu_problem *p) {
    return p->dtype != PTL_F32;
}

/* Rows of one head that are further apart than this, with more than as much of others in between,
 * share so few sets of the caches that a tile of them does not stay there. */
enum { FAR_BYTES = 1024 };

static bool far_apart(const struct ptl_rows *r, int dim) {
    const int64_t stride = r->row_stride < 0 ? -r->row_stride : r->row_stride;
    return stride > 2 * dim && stride * r->elem_bytes > FAR_BYTES;
}

/* Offsets in floats of the parts of a stage, and the size of all. */
struct parts {
    size_t v, row, bias_row, bias, end;
};

static struct parts parts_of(const struct ptl_hstu_problem *p, const struct ptl_kernels *k) {
    const size_t tile = (size_t)k->key_tile, panel = (size_t)k->panel;
    const bool staged = is_half(p) || p->pages.on, biased = ptl_hstu_has_bias(p);
    struct parts x;
    x.v = staged || far_apart(&p->k, p->dqk) ? tile * (size_t)ptl_staged_stride(p->dqk) : 0;
    x.row = x.v;
    if (staged || far_apart(&p->v, p->dv)) x.row += tile * (size_t)ptl_staged_stride(p->dv);
    x.bias_row = x.row;
    if (is_half(p))
        x.bias_row += panel * (size_t)ptl_staged_stride(p->dqk > p->dv ? p->dqk : p->dv);
    x.bias = x.bias_row + (biased ? ptl_round_up(panel * tile, 16) : 0);
    x.end = x.bias + (biased ? panel * tile : 0);
    return x;
}

size_t ptl_hstu_stage_bytes(const struct ptl_hstu_problem *p, const struct ptl_kernels *k) {
    return ptl_round_up(parts_of(p, k).end * sizeof(float), 64);
}

struct ptl_hstu_stage ptl_hstu_stage_at(const struct ptl_hstu_problem *p,
                                        const struct ptl_kernels *k, void *memory) {
    const struct parts x = parts_of(p, k);
    float *at = memory;
    if (!at) return (struct ptl_hstu_stage){0};
    return (struct ptl_hstu_stage){at, at + x.v, at + x.row, at + x.bias_row, at + x.bias};
}

/* The longest run of keys from column j on, at most to end, that lie at one stride. */
static const void *key_run(const struct ptl_hstu_problem *p, const struct ptl_hstu_seq *seq,
                           const struct ptl_rows *own, const struct ptl_rows *pages,
                           int64_t kv_head, int64_t j, int64_t end, int64_t *n, int64_t *stride) {
    if (j >= seq->cached) {
        *n = end - j;
        *stride = own->row_stride;
        return ptl_rows_at(own, seq->b, seq->k_row + j, kv_head);
    }
    const int64_t slot = j % p->pages.page_size;
    const int64_t at = ptl_index_at(&p->pages.offsets, seq->index) + j / p->pages.page_size;
    *n = p->pages.page_size - slot;
    if (*n > seq->cached - j) *n = seq->cached - j;
    if (*n > end - j) *n = end - j;
    *stride = pages->row_stride;
    return ptl_rows_at(pages, ptl_index_at(&p->pages.ids, at), slot, kv_head);
}

static const float *load_rows(const struct ptl_hstu_problem *p, const struct ptl_kernels *k,
                              const struct ptl_hstu_seq *seq, const struct ptl_rows *own,
                              const struct ptl_rows *pages, int64_t kv_head, int64_t begin,
                              int64_t end, bool reused, int dim, float *staged, int64_t *stride) {
    int64_t n;
    const void *run = key_run(p, seq, own, pages, kv_head, begin, end, &n, stride);
    const bool copied = is_half(p) || (reused && far_apart(own, dim));
    if (!copied && n == end - begin) return run;
    const int64_t to_stride = ptl_staged_stride(dim);
    for (int64_t j = begin; j < end; j += n) {
        run = key_run(p, seq, own, pages, kv_head, j, end, &n, stride);
        ptl_widen_rows(k, p->dtype, run, *stride, (int)n, dim, staged + (j - begin) * to_stride,
                       to_stride);
    }
    *stride = to_stride;
    return staged;
}

const float *ptl_hstu_load_keys(const struct ptl_hstu_problem *p, const struct ptl_kernels *k,
                                const struct ptl_hstu_seq *seq, int64_t kv_head, int64_t begin,
                                int64_t end, bool reused, const struct ptl_hstu_stage *stage,
                                int64_t *stride) {
    return load_rows(p, k, seq, &p->k, &p->pages.k, kv_head, begin, end, reused, p->dqk, stage->k,
                     stride);
}

const float *ptl_hstu_load_values(const struct ptl_hstu_problem *p, const struct ptl_kernels *k,
                                  const struct ptl_hstu_seq *seq, int64_t kv_head, int64_t begin,
                                  int64_t end, bool reused, const struct ptl_hstu_stage *stage,
                                  int64_t *stride) {
    return load_rows(p, k, seq, &p->v, &p->pages.v, kv_head, begin, end, reused, p->dv, stage->v,
                     stride);
}

void ptl_hstu_load_panel(const struct ptl_hstu_problem *p, const struct ptl_kernels *k,
                         const struct ptl_rows *from, const struct ptl_hstu_seq *seq, int64_t head,
                         int64_t row, int n_rows, int dim, float *panel,
                         const struct ptl_hstu_stage *stage) {
    const float *rows[PTL_MAX_PANEL];
    const int64_t stride = ptl_staged_stride(dim);
    for (int i = 0; i < n_rows; i++) {
        const void *x = ptl_rows_at(from, seq->b, seq->q_row + row + i, head);
        rows[i] = x;
        if (!is_half(p)) continue;
        ptl_widen_rows(k, p->dtype, x, 0, 1, dim, stage->row + i * stride, stride);
        rows[i] = stage->row + i * stride;
    }
    k->panel_load_f32(rows, n_rows, dim, panel);
}

/* A row of bf16 whose length becomes even. */
static void copy_pairs(uint16_t *to, const uint16_t *row, int n) {
    memcpy(to, row, (size_t)n * sizeof *row);
    if (n % 2) to[n] = 0;
}

const uint16_t *ptl_hstu_load_keys_bf16(const struct ptl_hstu_problem *p,
                                        const struct ptl_hstu_seq *seq, int64_t kv_head,
                                        int64_t begin, int64_t end,
                                        const struct ptl_hstu_stage *stage, int64_t *stride) {
    int64_t n;
    const uint16_t *run = key_run(p, seq, &p->k, &p->pages.k, kv_head, begin, end, &n, stride);
    if (p->dqk % 2 == 0 && n == end - begin) return run;
    uint16_t *staged = (uint16_t *)stage->k;
    const int64_t to_stride = ptl_staged_stride(p->dqk);
    for (int64_t j = begin; j < end; j += n) {
        run = key_run(p, seq, &p->k, &p->pages.k, kv_head, j, end, &n, stride);
        for (int64_t x = 0; x < n; x++)
            copy_pairs(staged + (j - begin + x) * to_stride, run + x * *stride, p->dqk);
    }
    *stride = to_stride;
    return staged;
}

const uint16_t *ptl_hstu_load_value_pairs(const struct ptl_hstu_problem *p,
                                          const struct ptl_kernels *k,
                                          const struct ptl_hstu_seq *seq, int64_t kv_head,
                                          int64_t begin, int64_t end,
                                          const struct ptl_hstu_stage *stage, int64_t *stride,
                                          bool *finite) {
    const uint16_t *rows[PTL_MAX_KEY_TILE];
    int64_t n, row_stride;
    for (int64_t j = begin; j < end; j += n) {
        const uint16_t *run = key_run(p, seq, &p->v, &p->pages.v, kv_head, j, end, &n, &row_stride);
        for (int64_t x = 0; x < n; x++) rows[j - begin + x] = run + x * row_stride;
    }
    uint16_t *pairs = (uint16_t *)stage->v;
    *stride = 2 * ptl_staged_stride(p->dv);
    *finite = k->rows_to_pairs_bf16(rows, (int)(end - begin), p->dv, pairs, *stride);
    return pairs;
}

void ptl_hstu_load_panel_pairs(const struct ptl_hstu_problem *p, const struct ptl_kernels *k,
                               const struct ptl_hstu_seq *seq, int64_t head, int64_t row,
                               int n_rows, float *panel, const struct ptl_hstu_stage *stage) {
    const float *rows[PTL_MAX_PANEL];
    const int64_t stride = ptl_staged_stride(p->dqk);
    for (int i = 0; i < n_rows; i++) {
        float *pairs = stage->row + i * stride;
        copy_pairs((uint16_t *)pairs, ptl_rows_at(&p->q, seq->b, seq->q_row + row + i, head),
                   p->dqk);
        rows[i] = pairs;
    }
    k->panel_load_f32(rows, n_rows, ptl_hstu_column_pairs(p), panel); /* moves bits alone */
}

void ptl_hstu_store_panel(const struct ptl_hstu_problem *p, const struct ptl_kernels *k,
                          const struct ptl_hstu_seq *seq, int64_t head, int64_t row, int n_rows,
                          const float *panel, bool stream, const struct ptl_hstu_stage *stage) {
    float *rows[PTL_MAX_PANEL] = {0}, scale[PTL_MAX_PANEL] = {0};
    const int64_t stride = ptl_staged_stride(p->dv);
    for (int i = 0; i < n_rows; i++) {
        rows[i] = is_half(p) ? stage->row + i * stride
                             : ptl_rows_at(&p->out, seq->b, seq->q_row + row + i, head);
        scale[i] = ptl_hstu_scale_of(p, seq, row + i);
    }
    k->panel_store_f32(panel, n_rows, p->dv, scale, stream, rows);
    for (int i = 0; is_half(p) && i < n_rows; i++)
        ptl_narrow_rows(k, p->dtype, rows[i], 0, 1, p->dv,
                        ptl_rows_at(&p->out, seq->b, seq->q_row + row + i, head), 0);
}
