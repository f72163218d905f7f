/* Times the jagged operators beside a copy of as many bytes by memcpy, one thread and all:
 * pantile_tests --bench jagged/bench. Checks nothing. */
#define _GNU_SOURCE
#include <pantile/pantile.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "jagged_suites.h"
#include "ops/hstu_check.h"

enum { REPEATS = 7, MAX_B = 1 << 16, MAX_THREADS = 64 };

/* One batch: B sequences of 16 .. 2 * mean - 16 tokens, the last 8 of them targets. */
static struct batch {
    int64_t n_seqs, n, columns;
    int64_t offsets[MAX_B + 1], small_offsets[MAX_B + 1], both_offsets[MAX_B + 1];
    int64_t *times, *ids;
    float *x, *y, *z, *pos_w, *ts_w;
    int64_t most;
} m;

static struct ptl_context *ctx;
static bool alone; /* one thread: its own time counts, not that of others on the machine */

static double seconds(void) {
    struct timespec t;
    if (!alone) return test_seconds();
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static struct ptl_tensor offsets_of(int64_t *offsets) {
    const int64_t n = m.n_seqs + 1;
    return ptl_tensor_contiguous(offsets, PTL_I64, 1, &n);
}

static struct ptl_tensor rows(float *data, int64_t n) {
    return ptl_tensor_contiguous(data, PTL_F32, 2, (const int64_t[]){n, m.columns});
}

static void make(int64_t n_seqs, int64_t mean, int64_t columns) {
    struct test_random r = {3};
    memset(&m, 0, sizeof m);
    m.n_seqs = n_seqs;
    m.columns = columns;
    for (int64_t b = 0; b < n_seqs; b++) {
        const int64_t length = test_random_int(&r, 16, 2 * mean - 16);
        m.offsets[b + 1] = m.offsets[b] + length;
        m.small_offsets[b + 1] = m.small_offsets[b] + 8;
        m.both_offsets[b + 1] = m.offsets[b + 1] + m.small_offsets[b + 1];
        if (length > m.most) m.most = length;
    }
    m.n = m.offsets[n_seqs];
    const int64_t room = (n_seqs * m.most + m.both_offsets[n_seqs]) * columns;
    m.x = test_alloc((size_t)room * sizeof(float));
    m.y = test_alloc((size_t)room * sizeof(float));
    m.z = test_alloc((size_t)(2049 + m.n) * (size_t)columns * sizeof(float));
    m.pos_w = test_alloc((size_t)(2049 * columns) * sizeof(float));
    m.ts_w = test_alloc((size_t)(2049 * columns) * sizeof(float));
    m.times = test_alloc((size_t)m.n * sizeof(int64_t));
    for (int64_t i = 0; i < room; i++) m.x[i] = m.y[i] = 1.0f;
    for (int64_t i = 0; i < (2049 + m.n) * columns; i++) m.z[i] = 1.0f;
    for (int64_t i = 0; i < 2049 * columns; i++) m.pos_w[i] = m.ts_w[i] = 1.0f;
    for (int64_t i = 0, t = 0; i < m.n; i++) m.times[i] = t += test_random_int(&r, 0, 20000);
}

static void destroy(void) {
    free(m.x);
    free(m.y);
    free(m.z);
    free(m.pos_w);
    free(m.ts_w);
    free(m.times);
}

/* ---- The probe ------------------------------------------------------------------------------- */

struct part {
    char *to;
    const char *from;
    size_t bytes;
};

static void *copy_part(void *arg) {
    const struct part *p = arg;
    memcpy(p->to, p->from, p->bytes);
    return NULL;
}

/* Bytes read and written a second by memcpy on so many threads. */
static double copy_rate(size_t bytes, int n_threads) {
    double least = 1e9;
    for (int i = 0; i < REPEATS; i++) {
        pthread_t threads[MAX_THREADS];
        struct part parts[MAX_THREADS];
        const size_t each = bytes / (size_t)n_threads;
        const double begin = seconds();
        for (int k = 0; k < n_threads; k++) {
            parts[k] =
                (struct part){(char *)m.y + (size_t)k * each, (char *)m.x + (size_t)k * each, each};
            if (k > 0) pthread_create(&threads[k], NULL, copy_part, &parts[k]);
        }
        copy_part(&parts[0]);
        for (int k = 1; k < n_threads; k++) pthread_join(threads[k], NULL);
        const double taken = seconds() - begin;
        if (taken < least) least = taken;
    }
    return 2.0 * (double)bytes / least;
}

/* ---- The operators --------------------------------------------------------------------------- */

static enum ptl_status to_padded(void) {
    const struct ptl_jagged x = {rows(m.x, m.n), offsets_of(m.offsets)};
    const struct ptl_jagged out = {
        .values =
            ptl_tensor_contiguous(m.y, PTL_F32, 3, (const int64_t[]){m.n_seqs, m.most, m.columns})};
    return ptl_jagged_resize(ctx, &x, PTL_JAGGED_ALIGN_START, NULL, &out);
}

static enum ptl_status to_jagged(void) {
    const struct ptl_jagged out = {rows(m.y, m.n), offsets_of(m.offsets)};
    const struct ptl_jagged x = {
        .values =
            ptl_tensor_contiguous(m.x, PTL_F32, 3, (const int64_t[]){m.n_seqs, m.most, m.columns})};
    return ptl_jagged_resize(ctx, &x, PTL_JAGGED_ALIGN_START, NULL, &out);
}

static enum ptl_status concat(void) {
    const struct ptl_jagged left = {rows(m.z, 8 * m.n_seqs), offsets_of(m.small_offsets)};
    const struct ptl_jagged right = {rows(m.x, m.n), offsets_of(m.offsets)};
    const struct ptl_tensor out = rows(m.y, m.n + 8 * m.n_seqs);
    return ptl_jagged_concat(ctx, &left, &right, 3, &out);
}

static enum ptl_status split(void) {
    const struct ptl_jagged left = {rows(m.z, 8 * m.n_seqs), offsets_of(m.small_offsets)};
    const struct ptl_jagged right = {rows(m.y, m.n), offsets_of(m.offsets)};
    const struct ptl_tensor x = rows(m.x, m.n + 8 * m.n_seqs);
    return ptl_jagged_split(ctx, &x, 3, &left, &right);
}

static enum ptl_status broadcast_add(void) {
    const struct ptl_jagged x = {rows(m.x, m.n), offsets_of(m.offsets)};
    const struct ptl_tensor d = rows(m.z, m.n_seqs), out = rows(m.y, m.n);
    return ptl_jagged_broadcast_add(ctx, &x, &d, &out);
}

static enum ptl_status sum(void) {
    const struct ptl_jagged x = {rows(m.x, m.n), offsets_of(m.offsets)};
    const struct ptl_tensor out = rows(m.z, m.n_seqs);
    return ptl_jagged_sum(ctx, &x, &out);
}

static struct ptl_jagged_position_time_params embedding(void) {
    struct ptl_jagged_position_time_params a;
    ptl_jagged_position_time_init(&a);
    a.seq_offsets = offsets_of(m.offsets);
    a.timestamps = ptl_tensor_contiguous(m.times, PTL_I64, 1, &m.n);
    a.emb = a.dout = rows(m.x, m.n);
    a.out = a.demb = rows(m.y, m.n);
    a.pos_w = rows(m.pos_w, 2048);
    a.ts_w = rows(m.ts_w, 2049);
    a.alpha = 2.0f;
    return a;
}

static enum ptl_status forward(void) {
    const struct ptl_jagged_position_time_params a = embedding();
    return ptl_jagged_position_time_forward(ctx, &a);
}

static enum ptl_status forward_in_place(void) {
    struct ptl_jagged_position_time_params a = embedding();
    a.out = a.emb;
    return ptl_jagged_position_time_forward(ctx, &a);
}

static enum ptl_status backward(void) {
    struct ptl_jagged_position_time_params a = embedding();
    a.dpos_w = a.pos_w;
    a.dts_w = a.ts_w;
    return ptl_jagged_position_time_backward(ctx, &a);
}

static void report(const char *name, double bytes, double rate, enum ptl_status (*call)(void)) {
    double least = 1e9;
    for (int i = 0; i < REPEATS; i++) {
        const double begin = seconds();
        if (call() != PTL_OK) FAIL("%s: %s", name, ptl_message());
        const double taken = seconds() - begin;
        if (taken < least) least = taken;
    }
    printf("    %-18s %8.3f ms  %6.2f GB/s  %3.0f %% of memcpy\n", name, least * 1e3,
           bytes / least * 1e-9, 100.0 * bytes / least / rate);
}

static void bench_batch(int n_threads) {
    struct ptl_context_options o;
    alone = n_threads == 1;
    ptl_context_options_init(&o);
    o.num_threads = n_threads;
    if (ptl_context_create(&ctx, &o) != PTL_OK) {
        FAIL("%s", ptl_message());
        return;
    }
    const double row = (double)m.columns * sizeof(float), n = (double)m.n,
                 all = (double)(m.n_seqs * m.most);
    const double rate = copy_rate((size_t)(n * row), n_threads), few = 8.0 * (double)m.n_seqs;
    printf("    B=%d T=%d columns=%d threads=%d: memcpy of %.1f MB %.2f GB/s\n", (int)m.n_seqs,
           (int)m.n, (int)m.columns, n_threads, n * row * 1e-6, rate * 1e-9);
    report("to_padded", (n + all) * row, rate, to_padded);
    report("to_jagged", 2 * n * row, rate, to_jagged);
    report("concat", 2 * (n + few) * row, rate, concat);
    report("split", 2 * (n + few) * row, rate, split);
    report("broadcast_add", 2 * n * row, rate, broadcast_add);
    report("sum", n * row, rate, sum);
    report("forward", 2 * n * row, rate, forward);
    report("forward in place", 2 * n * row, rate, forward_in_place);
    report("backward", (4 * n + 4097) * row, rate, backward);
    ptl_context_destroy(ctx);
}

static void bench(void) {
    if (!test_bench()) return;
    static const struct {
        int64_t n_seqs, mean, columns;
    } batches[] = {
        {64, 1000, 512}, {256, 500, 64}, {32, 100, 128}, {2048, 1000, 1}, {50000, 24, 2}};
    struct ptl_context_info info = {.struct_size = sizeof info};
    if (ptl_context_create(&ctx, NULL) != PTL_OK || ptl_context_get_info(ctx, &info) != PTL_OK)
        return;
    ptl_context_destroy(ctx);
    for (size_t i = 0; i < sizeof batches / sizeof batches[0]; i++) {
        make(batches[i].n_seqs, batches[i].mean, batches[i].columns);
        bench_batch(1);
        if (info.num_threads > 1)
            bench_batch(info.num_threads < MAX_THREADS ? info.num_threads : MAX_THREADS);
        destroy();
    }
}

static const struct test tests[] = {{"bench", bench}};
TEST_SUITE(jagged_bench_suite, "jagged/bench", tests);
