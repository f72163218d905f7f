/* Arithmetic on rows: the one formula of the embedding, its gradient, and the broadcast add. In
 * plain C: memory is what these wait for. */
#include "jagged.h"

void ptl_jagged_affine(float *out, const float *x, float alpha, const float *a, const float *b,
                       int64_t n) {
    if (b)
        for (int64_t c = 0; c < n; c++) out[c] = x[c] * alpha + (a[c] + b[c]);
    else if (a)
        for (int64_t c = 0; c < n; c++) out[c] = x[c] * alpha + a[c];
    else
        for (int64_t c = 0; c < n; c++) out[c] = x[c] * alpha;
}

/* ---- Broadcast add ------------------------------------------------------------------------------ */

static int64_t out_begin(const void *broadcast, int64_t b) {
    return ptl_jagged_begin(&((const struct ptl_jagged_broadcast *)broadcast)->out, b);
}

static void add_range(void *job, int64_t begin, int64_t end) {
    const struct ptl_jagged_broadcast *p = job;
    int64_t b = ptl_jagged_find(out_begin, p, p->n_seqs, begin);
    int64_t before = out_begin(p, b);
    for (; b < p->n_seqs && before < end; b++) {
        const int64_t next = out_begin(p, b + 1);
        const float *d = (const float *)(p->d.data + b * p->d.batch_stride);
        for (int64_t g = begin > before ? begin : before; g < next && g < end; g++)
            ptl_jagged_affine((float *)ptl_jagged_row(&p->out, b, g - before),
                              (const float *)ptl_jagged_row(&p->x, b, g - before), 1.0f, d, NULL,
                              p->n_columns);
        before = next;
    }
    const int64_t all = out_begin(p, p->n_seqs), from = begin > all ? begin : all;
    if (from < end)
        ptl_jagged_zero_rows(p->out.data + from * p->out.row_stride, p->out.row_stride, end - from,
                             p->n_columns * (int64_t)sizeof(float));
}

void ptl_jagged_run_broadcast_add(struct ptl_context *ctx, const struct ptl_jagged_broadcast *p) {
    struct ptl_jagged_broadcast job = *p;
    const int64_t row_bytes = p->n_columns * (int64_t)sizeof(float);
    if (row_bytes == 0) return;
    ptl_jagged_for_ranges(ctx, out_begin(p, p->n_seqs) + p->n_padding, 2 * row_bytes, add_range,
                          &job);
}
