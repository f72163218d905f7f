/* FMA peak, read and copy bandwidth. The loops are assembly where a compiler might be too clever
 * or, built for the base architecture, lacks the instruction. */
#define _DEFAULT_SOURCE
#include "probe.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* ---- Loops ----------------------------------------------------------------------------------- */

/* n turns of a loop of independent chains, enough of them for twice the latency of two units. All
 * start from zero and add 2^-20 a turn: no overflow, no subnormal numbers. */
typedef void (*fma_fn)(int64_t n);

struct fma_loop {
    fma_fn run;
    double flops_per_turn;
};

static const float tiny = 0x1p-10f;

#define TIMES_7(X)                                                                                 \
    X("0", "7") X("1", "8") X("2", "9") X("3", "10") X("4", "11") X("5", "12") X("6", "13")
#define TIMES_12(X)                                                                                \
    X("0") X("1") X("2") X("3") X("4") X("5") X("6") X("7") X("8") X("9") X("10") X("11")
#define TIMES_24(X)                                                                                \
    TIMES_12(X)                                                                                    \
    X("12")                                                                                        \
    X("13")                                                                                        \
    X("14")                                                                                        \
    X("15")                                                                                        \
    X("16")                                                                                        \
    X("17") X("18") X("19") X("20") X("21") X("22") X("2"                                          \
                                                      "3")

#if defined(__x86_64__)
#define CLOBBERS                                                                                   \
    "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", \
        "xmm11", "xmm12", "xmm13", "xmm14", "xmm15"

static void fma_scalar(int64_t n) {
#define CLEAR(acc, product) "xorps %%xmm" acc ", %%xmm" acc "\n"
#define STEP(acc, product)                                                                         \
    "movaps %%xmm14, %%xmm" product "\n"                                                           \
    "mulss %%xmm15, %%xmm" product "\n"                                                            \
    "addss %%xmm" product ", %%xmm" acc "\n"
    __asm__ volatile("movss %1, %%xmm14\nmovss %1, %%xmm15\n" TIMES_7(CLEAR) "1:\n" TIMES_7(
                         STEP) "dec %0\njnz 1b\n"
                     : "+r"(n)
                     : "m"(tiny)
                     : CLOBBERS);
#undef CLEAR
#undef STEP
}

static void fma_avx2(int64_t n) {
#define CLEAR(acc) "vxorps %%xmm" acc ", %%xmm" acc ", %%xmm" acc "\n"
#define STEP(acc) "vfmadd231ps %%ymm15, %%ymm14, %%ymm" acc "\n"
    __asm__ volatile("vbroadcastss %1, %%ymm14\nvmovaps %%ymm14, %%ymm15\n" TIMES_12(
                         CLEAR) "1:\n" TIMES_12(STEP) "dec %0\njnz 1b\nvzeroupper\n"
                     : "+r"(n)
                     : "m"(tiny)
                     : CLOBBERS);
#undef STEP
}

static void fma_avx512(int64_t n) {
#define STEP(acc) "vfmadd231ps %%zmm15, %%zmm14, %%zmm" acc "\n"
    __asm__ volatile("vbroadcastss %1, %%zmm14\nvmovaps %%zmm14, %%zmm15\n" TIMES_12(
                         CLEAR) "1:\n" TIMES_12(STEP) "dec %0\njnz 1b\nvzeroupper\n"
                     : "+r"(n)
                     : "m"(tiny)
                     : CLOBBERS);
#undef STEP
}

/* A step adds the products of two pairs. */
static void dot_avx512bf16(int64_t n) {
    static const uint32_t tiny_pair = 0x3a803a80; /* 2^-10 in bf16, twice */
#define STEP(acc) "vdpbf16ps %%zmm15, %%zmm14, %%zmm" acc "\n"
    __asm__ volatile("vpbroadcastd %1, %%zmm14\nvmovaps %%zmm14, %%zmm15\n" TIMES_12(
                         CLEAR) "1:\n" TIMES_12(STEP) "dec %0\njnz 1b\nvzeroupper\n"
                     : "+r"(n)
                     : "m"(tiny_pair)
                     : CLOBBERS);
#undef CLEAR
#undef STEP
}

static struct fma_loop fma_loop_of(enum ptl_isa isa, bool dots) {
    switch (isa) {
    case PTL_ISA_AVX2: return (struct fma_loop){fma_avx2, 12 * 8 * 2};
    case PTL_ISA_AVX512BF16:
        if (!dots) return fma_loop_of(PTL_ISA_AVX512, false);
        return (struct fma_loop){dot_avx512bf16, 12 * 32 * 2};
    case PTL_ISA_AVX512: return (struct fma_loop){fma_avx512, 12 * 16 * 2};
    default: return (struct fma_loop){fma_scalar, 7 * 2};
    }
}

#elif defined(__aarch64__)
#define CLOBBERS                                                                                   \
    "cc", "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12", "v13",  \
        "v14", "v15", "v16", "v17", "v18", "v19", "v20", "v21", "v22", "v23", "v30", "v31"

static void fma_scalar(int64_t n) {
#define CLEAR(acc, product) "movi v" acc ".4s, #0\n"
#define STEP(acc, product)                                                                         \
    "fmul s" product ", s30, s31\n"                                                                \
    "fadd s" acc ", s" acc ", s" product "\n"
    __asm__ volatile("ldr s30, %1\nldr s31, %1\n" TIMES_7(CLEAR) "1:\n" TIMES_7(
                         STEP) "subs %0, %0, #1\nb.ne 1b\n"
                     : "+r"(n)
                     : "m"(tiny)
                     : CLOBBERS);
#undef CLEAR
#undef STEP
}

static void fma_neon(int64_t n) {
#define CLEAR(acc) "movi v" acc ".4s, #0\n"
#define STEP(acc) "fmla v" acc ".4s, v30.4s, v31.4s\n"
    __asm__ volatile("ldr s30, %1\ndup v30.4s, v30.s[0]\nmov v31.16b, v30.16b\n" TIMES_24(
                         CLEAR) "1:\n" TIMES_24(STEP) "subs %0, %0, #1\nb.ne 1b\n"
                     : "+r"(n)
                     : "m"(tiny)
                     : CLOBBERS);
#undef CLEAR
#undef STEP
}

static struct fma_loop fma_loop_of(enum ptl_isa isa, bool dots) {
    (void)dots;
    if (isa == PTL_ISA_NEON) return (struct fma_loop){fma_neon, 24 * 4 * 2};
    return (struct fma_loop){fma_scalar, 7 * 2};
}

#else
static void fma_scalar(int64_t n) {
    volatile float multiplier = tiny;
    const float a = multiplier, b = multiplier;
    float acc[8] = {0};
    for (int64_t i = 0; i < n; i++)
        for (int k = 0; k < 8; k++) acc[k] += a * b;
    for (int k = 0; k < 8; k++) multiplier = acc[k];
}

static struct fma_loop fma_loop_of(enum ptl_isa isa, bool dots) {
    (void)isa;
    (void)dots;
    return (struct fma_loop){fma_scalar, 8 * 2};
}
#endif

typedef uint64_t read_vec __attribute__((vector_size(16)));
enum { READ_STEP = 8 * sizeof(read_vec) };

/* Bytes are a multiple of READ_STEP. */
static uint64_t read_all(const char *data, size_t bytes) {
    const read_vec *p = (const read_vec *)data, *end = (const read_vec *)(data + bytes);
    read_vec acc[8] = {{0}};
    for (; p < end; p += 8)
        for (int k = 0; k < 8; k++) acc[k] ^= p[k];
    for (int k = 1; k < 8; k++) acc[0] ^= acc[k];
    return acc[0][0] ^ acc[0][1];
}

/* ---- Threads --------------------------------------------------------------------------------- */

enum { ROUNDS = 6 };

/* Rounds read stretch after stretch, around and around: what a round reads was last read so many
 * bytes ago that no cache holds it. */
static const size_t stretch_bytes = (size_t)64 << 20;

struct probe {
    char *buffer;
    size_t bytes; /* a multiple of a stretch */
    size_t next;  /* where the next measurement begins */
};

/* One measurement. All threads begin a round together; it lasts until the last has ended. */
struct work {
    fma_fn fma; /* NULL: read or copy */
    bool copy;
    int64_t turns;
    const struct probe *probe;
    size_t bytes; /* that a round passes over: read; copied from its first half to its second */
    int n_threads, n_rounds;
    pthread_mutex_t gate; /* held until it is clear whether all threads are there */
    pthread_barrier_t barrier;
};

struct worker {
    struct work *work;
    int index;
    pthread_t thread;
    double begin[ROUNDS], end[ROUNDS];
    volatile uint64_t sink;
};

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *run_worker(void *arg) {
    struct worker *w = arg;
    struct work *work = w->work;
    const size_t share = work->bytes / (work->copy ? 2 : 1) / (size_t)work->n_threads;
    const size_t slice = share / READ_STEP * READ_STEP;
    pthread_mutex_lock(&work->gate);
    const int n_rounds = work->n_rounds;
    pthread_mutex_unlock(&work->gate);
    for (int round = 0; round < n_rounds; round++) {
        const size_t at = (work->probe->next + (size_t)round * work->bytes) % work->probe->bytes;
        char *data = work->probe->buffer + at + (size_t)w->index * slice;
        pthread_barrier_wait(&work->barrier);
        w->begin[round] = now();
        if (work->fma) work->fma(work->turns);
        else if (work->copy) memcpy(data + work->bytes / 2, data, slice);
        else w->sink = read_all(data, slice);
        w->end[round] = now();
    }
    return NULL;
}

/* Seconds of the fastest round. */
static double fastest(const struct worker *workers, int n, int n_rounds) {
    double best = -1.0;
    for (int round = 0; round < n_rounds; round++) {
        double begin = workers[0].begin[round], end = workers[0].end[round];
        for (int i = 1; i < n; i++) {
            if (workers[i].begin[round] < begin) begin = workers[i].begin[round];
            if (workers[i].end[round] > end) end = workers[i].end[round];
        }
        if (best < 0.0 || end - begin < best) best = end - begin;
    }
    return best;
}

/* Runs all rounds; seconds of the fastest, or negative: the threads could not be had. */
static double run(struct work *work) {
    const int n = work->n_threads;
    struct worker *workers = calloc((size_t)n, sizeof *workers);
    if (!workers) return -1.0;
    if (pthread_barrier_init(&work->barrier, NULL, (unsigned)n) != 0) {
        free(workers);
        return -1.0;
    }
    pthread_mutex_init(&work->gate, NULL);
    pthread_mutex_lock(&work->gate);
    int started = 1; /* the caller is number 0 */
    for (int i = 0; i < n; i++) workers[i] = (struct worker){.work = work, .index = i};
    while (started < n &&
           pthread_create(&workers[started].thread, NULL, run_worker, &workers[started]) == 0)
        started++;
    if (started < n) work->n_rounds = 0;
    pthread_mutex_unlock(&work->gate);
    run_worker(&workers[0]);
    for (int i = 1; i < started; i++) pthread_join(workers[i].thread, NULL);
    const double best = fastest(workers, n, work->n_rounds);
    pthread_mutex_destroy(&work->gate);
    pthread_barrier_destroy(&work->barrier);
    free(workers);
    return best;
}

/* ---- Measurements ---------------------------------------------------------------------------- */

/* Turns that take about the time of a round. */
static int64_t calibrate(const struct probe *probe, fma_fn fma) {
    static const double round_seconds = 8e-3;
    for (int64_t turns = 1 << 12;; turns *= 4) {
        struct work work = {
            .fma = fma, .turns = turns, .probe = probe, .n_threads = 1, .n_rounds = 1};
        const double seconds = run(&work);
        if (seconds < 0.0) return 1;
        if (seconds > round_seconds / 8)
            return 1 + (int64_t)((double)turns * (round_seconds / seconds));
    }
}

bool probe_measure(struct probe *probe, enum ptl_isa isa, bool dots, int n_threads,
                   struct probe_rates *rates) {
    const struct fma_loop loop = fma_loop_of(isa, dots);
    struct work fma = {.fma = loop.run, .probe = probe, .n_threads = n_threads, .n_rounds = ROUNDS};
    struct work read = {.probe = probe, .n_threads = n_threads, .n_rounds = ROUNDS};
    struct work copy = {.copy = true, .probe = probe, .n_threads = n_threads, .n_rounds = ROUNDS};
    read.bytes = copy.bytes = stretch_bytes;
    fma.turns = calibrate(probe, loop.run);
    const double fma_seconds = run(&fma), read_seconds = run(&read), copy_seconds = run(&copy);
    if (fma_seconds <= 0.0 || read_seconds <= 0.0 || copy_seconds <= 0.0) return false;
    rates->peak_gflops =
        1e-9 * (double)fma.turns * loop.flops_per_turn * (double)n_threads / fma_seconds;
    rates->read_gbps = 1e-9 * (double)stretch_bytes / read_seconds;
    rates->copy_gbps = 1e-9 * (double)stretch_bytes / copy_seconds;
    probe->next = (probe->next + ROUNDS * stretch_bytes) % probe->bytes;
    return true;
}

bool probe_evict(struct probe *probe, int n_threads) {
    struct work read = {.probe = probe, .n_threads = n_threads, .n_rounds = 1};
    probe->next = 0;
    read.bytes = probe->bytes;
    return run(&read) >= 0.0;
}

/* Twice the last cache, 128 to 512 MiB. One thread touches it first, as with the arrays of a
 * problem: on a machine with several memories both are in the same one. */
struct probe *probe_create(void) {
    long cache = 0;
    size_t bytes = 2 * stretch_bytes;
#ifdef _SC_LEVEL3_CACHE_SIZE
    cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
#endif
    while (cache > 0 && bytes < 8 * stretch_bytes && bytes < 2 * (size_t)cache) bytes *= 2;
    struct probe *probe = calloc(1, sizeof *probe);
    if (!probe) return NULL;
    probe->bytes = bytes;
    probe->buffer = aligned_alloc(64, bytes);
    if (!probe->buffer) {
        free(probe);
        return NULL;
    }
    memset(probe->buffer, 1, bytes);
    return probe;
}

void probe_destroy(struct probe *probe) {
    if (!probe) return;
    free(probe->buffer);
    free(probe);
}
