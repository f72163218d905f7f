/* How jagged work is shared out: ranges of rows of about equal bytes, drawn from one counter.
 * What is done with a row is the operator's. */
#include <stdatomic.h>
#include <string.h>

#include "jagged.h"

/* A range takes some 10 us of a core: drawing it costs nothing, and the last ranges end close
 * together. A second thread is worth waking for about twice as much. */
enum { RANGE_BYTES = 128 << 10, WORKER_BYTES = 256 << 10 };

struct walk {
    int64_t n, per_range;
    ptl_jagged_range_fn fn;
    void *job;
    _Atomic int64_t drawn;
};

static void draw_ranges(void *arg, int slot) {
    struct walk *w = arg;
    (void)slot;
    for (;;) {
        const int64_t begin =
            atomic_fetch_add_explicit(&w->drawn, 1, memory_order_relaxed) * w->per_range;
        if (begin >= w->n) return;
        w->fn(w->job, begin, w->n - begin < w->per_range ? w->n : begin + w->per_range);
    }
}

void ptl_jagged_for_ranges(struct ptl_context *ctx, int64_t n, int64_t unit_bytes,
                           ptl_jagged_range_fn fn, void *job) {
    if (n <= 0) return;
    struct walk w = {.n = n, .fn = fn, .job = job};
    const double workers = (double)n * (double)unit_bytes / WORKER_BYTES;
    int n_workers = workers < ctx->executor.n_threads ? (int)workers : ctx->executor.n_threads;
    w.per_range = RANGE_BYTES / (unit_bytes > 0 ? unit_bytes : 1);
    if (w.per_range < 1) w.per_range = 1;
    if (n <= w.per_range || n_workers <= 1) {
        fn(job, 0, n);
        return;
    }
    ptl_executor_run(&ctx->executor, n_workers, draw_ranges, &w);
}

int64_t ptl_jagged_find(int64_t (*begin)(const void *r, int64_t b), const void *r, int64_t n_seqs,
                        int64_t row) {
    int64_t
        low = 0,
        high =
            n_seqs; /* begin(low) <= row, or low is 0; row < begin(high + 1), or high is n_seqs */
    while (low < high) {
        const int64_t b = low + (high - low) / 2;
        if (begin(r, b + 1) <= row) low = b + 1;
        else high = b;
    }
    return low;
}

/* ---- Writing rows ---------------------------------------------------------------------------- */

/* Runs shorter than MIN_RUN are copied faster by memcpy. */
enum { MIN_RUN = 512, PAGE = 4096 };

/* Rows are computed into the stage and streamed from there in turns, longer rows one by one.
 * Short turns keep reads and writes going at the same time: 8 KiB reached 16 GB/s where 2 KiB
 * reached 18, and 20 with the next rows asked for during the writes (the embedding's formula,
 * rows of 2 KiB, Zen 3). */
enum { STAGE_BYTES = 2048 };

struct ptl_jagged_writer ptl_jagged_writer(const struct ptl_context *ctx, int64_t n_rows,
                                           int64_t row_bytes) {
    return (struct ptl_jagged_writer){ctx->kernels,
                                      (double)n_rows * (double)row_bytes >= PTL_STREAM_BYTES};
}

void ptl_jagged_end_range(const struct ptl_jagged_writer *w) {
    if (w->stream) w->kernels->stream_end();
}

static void copy_run(const struct ptl_jagged_writer *w, char *to, const char *from, int64_t n) {
    if (w->stream && n >= MIN_RUN) w->kernels->copy_stream(to, from, n, NULL);
    else memcpy(to, from, (size_t)n);
}

void ptl_jagged_copy_rows(const struct ptl_jagged_writer *w, char *to, int64_t to_stride,
                          const char *from, int64_t from_stride, int64_t n, int64_t row_bytes) {
    if (to_stride == row_bytes && from_stride == row_bytes) {
        copy_run(w, to, from, n * row_bytes);
        return;
    }
    for (; n > 0; n--, to += to_stride, from += from_stride) copy_run(w, to, from, row_bytes);
}

void ptl_jagged_stage_begin(struct ptl_jagged_stage *s, const struct ptl_jagged_writer *writer) {
    s->writer = writer;
    s->n = 0;
}

static void flush(struct ptl_jagged_stage *s, const char *ahead) {
    if (s->n < MIN_RUN) memcpy(s->to, s->bytes, (size_t)s->n);
    else s->writer->kernels->copy_stream(s->to, s->bytes, s->n, ahead);
    s->n = 0;
}

char *ptl_jagged_stage_row(struct ptl_jagged_stage *s, char *row, int64_t row_bytes,
                           const char *x) {
    if (!s->writer->stream || row_bytes > (int64_t)sizeof s->bytes) return row;
    if (s->n && (s->n + row_bytes > STAGE_BYTES || row != s->to + s->n)) flush(s, x);
    if (s->n == 0) s->to = row;
    s->n += row_bytes;
    return s->bytes + s->n - row_bytes;
}

void ptl_jagged_stage_flush(struct ptl_jagged_stage *s) {
    if (s->n) flush(s, NULL);
}

static bool is_zero(const char *x, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        if (x[i]) return false;
    return true;
}

/* One run of n bytes from a page that holds the element over and over. */
static void fill_run(const struct ptl_jagged_writer *w, char *to, int64_t n, const char *page) {
    for (; n > PAGE; n -= PAGE, to += PAGE) copy_run(w, to, page, PAGE);
    copy_run(w, to, page, n);
}

void ptl_jagged_fill_rows(const struct ptl_jagged_writer *w, char *to, int64_t to_stride, int64_t n,
                          int64_t row_bytes, const char *element, int64_t elem_bytes) {
    char page[PAGE];
    const bool zero = is_zero(element, elem_bytes);
    int64_t run = row_bytes;
    if (to_stride == row_bytes) {
        run = n * row_bytes;
        n = run > 0;
    }
    if (zero && !(w->stream && run >= MIN_RUN)) {
        for (; n > 0; n--, to += to_stride) memset(to, 0, (size_t)run);
        return;
    }
    const int64_t used = run < PAGE ? run : PAGE;
    if (zero) {
        memset(page, 0, (size_t)used);
    } else if (used > 0) { /* what is filled already is copied behind itself */
        memcpy(page, element, (size_t)elem_bytes);
        for (int64_t done = elem_bytes; done < used; done *= 2)
            memcpy(page + done, page, (size_t)(done < used - done ? done : used - done));
    }
    for (; n > 0; n--, to += to_stride) fill_run(w, to, run, page);
}
