/* Copies between jagged and dense arrays. Every operator here cuts each sequence of one array,
 * the whole, into up to three parts, each a run of rows of a side, or a filling; what differs is
 * where the cuts are, and in which direction the bytes move. No arithmetic. */
#include "../core/arith.h"
#include "jagged.h"

enum { FILLING = -1, MAX_PARTS = 3 };

struct part {
    int side; /* which, or FILLING */
    int64_t first, n;
};

/* The parts of sequence b, in the order of its rows. Returns how many; some may be empty. */
static int parts_of(const struct ptl_jagged_copy *c, int64_t b, struct part *part) {
    const int64_t n0 = ptl_jagged_length(&c->side[0], b);
    if (c->op == PTL_JAGGED_RESIZE) {
        const int64_t n = ptl_jagged_length(&c->whole, b), kept = ptl_min64(n0, n);
        const struct part rows = {0, c->align == PTL_JAGGED_ALIGN_END ? n0 - kept : 0, kept};
        const struct part filling = {FILLING, 0, n - kept};
        part[0] = c->align == PTL_JAGGED_ALIGN_END ? filling : rows;
        part[1] = c->align == PTL_JAGGED_ALIGN_END ? rows : filling;
        return 2;
    }
    const int64_t n1 = ptl_jagged_length(&c->side[1], b);
    if (c->op == PTL_JAGGED_REPLACE_LAST) {
        part[0] = (struct part){0, 0, n0 - n1};
        part[1] = (struct part){c->side[1].data ? 1 : FILLING, 0, n1};
        return 2;
    }
    const int64_t prefix = ptl_min64(c->n_prefix, n1);
    part[0] = (struct part){1, 0, prefix};
    part[1] = (struct part){0, 0, n0};
    part[2] = (struct part){1, prefix, n1 - prefix};
    return 3;
}

/* Rows of the whole before sequence b. */
static int64_t whole_begin(const void *copy, int64_t b) {
    const struct ptl_jagged_copy *c = copy;
    if (c->op == PTL_JAGGED_RESIZE || c->op == PTL_JAGGED_REPLACE_LAST)
        return ptl_jagged_begin(&c->whole, b);
    return ptl_jagged_begin(&c->side[0], b) + ptl_jagged_begin(&c->side[1], b);
}

/* Rows [begin, end) of sequence b; `before` rows of the whole lie before the sequence. */
static void copy_sequence(const struct ptl_jagged_copy *c, int64_t b, int64_t before, int64_t begin,
                          int64_t end) {
    struct part part[MAX_PARTS];
    const int n_parts = parts_of(c, b, part);
    const bool dense = c->op == PTL_JAGGED_RESIZE && !c->whole.offsets.data;
    int64_t at = 0; /* the part's first row in the sequence */
    for (int i = 0; i < n_parts && at < end; at += part[i++].n) {
        const int64_t from = at > begin ? at : begin, to = ptl_min64(at + part[i].n, end);
        if (from >= to) continue;
        char *whole =
            c->whole.data + (dense ? b * c->whole.batch_stride + from * c->whole.row_stride
                                   : (before + from) * c->whole.row_stride);
        if (part[i].side == FILLING) {
            ptl_jagged_fill_rows(&c->writer, whole, c->whole.row_stride, to - from, c->row_bytes,
                                 c->pad, c->elem_bytes);
            continue;
        }
        const struct ptl_jagged_rows *side = &c->side[part[i].side];
        if (!side->data) continue; /* not wanted */
        char *row = ptl_jagged_row(side, b, part[i].first + from - at);
        if (c->op == PTL_JAGGED_SPLIT)
            ptl_jagged_copy_rows(&c->writer, row, side->row_stride, whole, c->whole.row_stride,
                                 to - from, c->row_bytes);
        else
            ptl_jagged_copy_rows(&c->writer, whole, c->whole.row_stride, row, side->row_stride,
                                 to - from, c->row_bytes);
    }
}

/* Zeroes the rows [begin, end) of all padding: that of the whole, then that of the sides. */
static void zero_padding(const struct ptl_jagged_copy *c, int64_t begin, int64_t end) {
    const struct ptl_jagged_rows *rows[3] = {&c->whole, &c->side[0], &c->side[1]};
    const int64_t n[3] = {c->n_padding, c->n_side_padding[0], c->n_side_padding[1]};
    int64_t at = 0;
    for (int i = 0; i < 3; at += n[i++]) {
        const int64_t from = begin > at ? begin - at : 0, to = ptl_min64(end - at, n[i]);
        if (from >= to) continue;
        const int64_t first =
            i == 0 ? whole_begin(c, c->n_seqs) : ptl_jagged_begin(rows[i], c->n_seqs);
        ptl_jagged_fill_rows(&c->writer, rows[i]->data + (first + from) * rows[i]->row_stride,
                             rows[i]->row_stride, to - from, c->row_bytes, NULL, 0);
    }
}

static void copy_range(void *job, int64_t begin, int64_t end) {
    const struct ptl_jagged_copy *c = job;
    int64_t b = ptl_jagged_find(whole_begin, c, c->n_seqs, begin);
    int64_t before = whole_begin(c, b);
    for (; b < c->n_seqs && before < end; b++) {
        const int64_t next = whole_begin(c, b + 1);
        if (next > before)
            copy_sequence(c, b, before, begin > before ? begin - before : 0,
                          ptl_min64(end, next) - before);
        before = next;
    }
    const int64_t all = whole_begin(c, c->n_seqs);
    if (end > all) zero_padding(c, begin > all ? begin - all : 0, end - all);
    ptl_jagged_end_range(&c->writer);
}

void ptl_jagged_run_copy(struct ptl_context *ctx, const struct ptl_jagged_copy *copy) {
    struct ptl_jagged_copy job = *copy;
    if (job.row_bytes == 0) return;
    const int64_t n = whole_begin(&job, job.n_seqs) + job.n_padding + job.n_side_padding[0] +
                      job.n_side_padding[1];
    job.writer = ptl_jagged_writer(ctx, n, job.row_bytes);
    ptl_jagged_for_ranges(ctx, n, 2 * job.row_bytes, copy_range, &job);
}
