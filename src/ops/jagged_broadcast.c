/* One row added to all rows of its sequence. */
#include "jagged.h"

static int64_t out_begin(const void *broadcast, int64_t b) {
    return ptl_jagged_begin(&((const struct ptl_jagged_broadcast *)broadcast)->out, b);
}

static void add_range(void *job, int64_t begin, int64_t end) {
    const struct ptl_jagged_broadcast *p = job;
    int64_t b = ptl_jagged_find(out_begin, p, p->n_seqs, begin);
    int64_t before = out_begin(p, b);
    const int64_t row_bytes = p->n_columns * (int64_t)ptl_dtype_bytes(p->type);
    struct ptl_jagged_stage stage;
    ptl_jagged_stage_begin(&stage, &p->writer);
    for (; b < p->n_seqs && before < end; b++) {
        const int64_t next = out_begin(p, b + 1);
        const char *d = p->d.data + b * p->d.batch_stride;
        const int64_t first = begin > before ? begin : before, last = next < end ? next : end;
        if (first < last) {
            char *out = ptl_jagged_row(&p->out, b, first - before);
            const char *x = ptl_jagged_row(&p->x, b, first - before);
            for (int64_t row = first; row < last; row++) {
                ptl_jagged_affine(p->writer.kernels, p->type,
                                  ptl_jagged_stage_row(&stage, out, row_bytes, x), x, 1.0f, p->type,
                                  d, NULL, p->n_columns);
                out += p->out.row_stride;
                x += p->x.row_stride;
            }
        }
        before = next;
    }
    const int64_t all = out_begin(p, p->n_seqs), from = begin > all ? begin : all;
    if (from < end)
        ptl_jagged_fill_rows(&p->writer, p->out.data + from * p->out.row_stride, p->out.row_stride,
                             end - from, row_bytes, NULL, 0);
    ptl_jagged_stage_flush(&stage);
    ptl_jagged_end_range(&p->writer);
}

void ptl_jagged_run_broadcast_add(struct ptl_context *ctx, const struct ptl_jagged_broadcast *p) {
    struct ptl_jagged_broadcast job = *p;
    const int64_t n = out_begin(p, p->n_seqs) + p->n_padding;
    const int64_t row_bytes = p->n_columns * (int64_t)ptl_dtype_bytes(p->type);
    if (row_bytes == 0) return;
    job.writer = ptl_jagged_writer(ctx, n, row_bytes);
    if (p->x.data == p->out.data) job.writer.stream = false; /* its lines are in the cache */
    ptl_jagged_for_ranges(ctx, n, 2 * row_bytes, add_range, &job);
}
