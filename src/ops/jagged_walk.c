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

void ptl_jagged_zero_rows(char *row, int64_t row_stride, int64_t n, int64_t row_bytes) {
    if (row_stride == row_bytes) {
        memset(row, 0, (size_t)(n * row_bytes));
        return;
    }
    for (; n > 0; n--, row += row_stride) memset(row, 0, (size_t)row_bytes);
}
