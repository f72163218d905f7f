/* The ladder of the HSTU article over the library's tiles. Not a library operator: it takes causal
 * self-attention only, and its first rungs are slow on purpose, but not slower than need be.
 *
 *   naive      padded. The scores of all heads and sequences, (b,n,s,s), are one tensor in memory,
 *              which four passes go over: S = Q K^T; S = silu(alpha S); S = S * mask/N; out = S V.
 *              The mask is a float tensor of the same shape: scores and mask are the 4 of the
 *              article's 4.125 G. The passes work in place, in cache-sized blocks, on all threads,
 *              with the library's products, on memory that was touched before the clock starts.
 *   fused      padded. The same arithmetic tile by tile: the mask is read, the scores are gone.
 *   skipping   padded. ptl_hstu_forward and its causal rule: no mask, nothing above the diagonal.
 *   jagged     ptl_hstu_forward on the sequences as they are, all in one call.
 *   pipelined  jagged, and the three stages interleaved: while tile i has its QK product, tile i-1
 *              has its silu and tile i-2 its PV product, a few rows of each in turn.
 *   f16, bf16  jagged, on q, k and v rounded to that type; out has it, too.
 *
 * The padded rungs take the sequences in batches, in order, each padded to its own longest; copying
 * into the padding is not timed. Scores and mask are stored as the tiles want them: panels of query
 * rows as lanes, one line per key. Rungs are in ladder_padded.c and ladder_pipelined.c; this file
 * climbs: it takes time and memory, and compares results. */
#define _GNU_SOURCE
#include "ladder_hstu.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../ref/hstu.h"
#include "ladder_rungs.h"

/* Fastest of this many runs, fewer when they take long together. */
enum { MAX_RUNS = 5 };
static const double RUNS_SECONDS = 2;

enum { SAMPLES = 1024 };

/* A second or so at the scalar level, 5 to 20 ms at the others. */
static const double PROBE_PAIRS = 2e6;

/* One row whose result is known in double. */
struct sample {
    int64_t seq, row, head;
};

static double clock_seconds(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double now(void) {
    return clock_seconds(CLOCK_MONOTONIC);
}

/* The fastest of some runs: its time, and the CPU time of all threads in it. */
struct timing {
    double seconds, cpu_seconds;
    double begin, cpu_begin;
    int runs;
};

static void begin_run(struct timing *t) {
    t->cpu_begin = clock_seconds(CLOCK_PROCESS_CPUTIME_ID);
    t->begin = now();
}

static void end_run(struct timing *t) {
    const double seconds = now() - t->begin;
    if (t->runs++ > 0 && seconds >= t->seconds) return;
    t->seconds = seconds;
    t->cpu_seconds = clock_seconds(CLOCK_PROCESS_CPUTIME_ID) - t->cpu_begin;
}

/* ---- What the process really holds ----------------------------------------------------------- */

/* A line of the process status, -1 if unknown. */
static int64_t status_bytes(const char *key) {
    char line[256];
    long long kib = -1;
    FILE *f = fopen("/proc/self/status", "r");
    if (!f) return -1;
    while (kib < 0 && fgets(line, sizeof line, f))
        if (strncmp(line, key, strlen(key)) == 0 && sscanf(line + strlen(key), "%lld", &kib) != 1)
            break;
    fclose(f);
    return kib < 0 ? -1 : (int64_t)kib * 1024;
}

/* Starts a new high-water mark of resident memory; returns what is resident now, -1 if unknown. */
static int64_t begin_resident(void) {
    FILE *f = fopen("/proc/self/clear_refs", "w");
    if (!f) return -1;
    const bool cleared = fputs("5", f) >= 0;
    if (fclose(f) != 0 || !cleared) return -1;
    return status_bytes("VmRSS:");
}

/* Growths add up: a batch after the first only shows what it needs beyond those before it. */
static void end_resident(struct ladder_rung *rung, int64_t begin) {
    const int64_t peak = begin < 0 ? -1 : status_bytes("VmHWM:");
    if (peak < 0) rung->resident_bytes = -1;
    else if (rung->resident_bytes >= 0) rung->resident_bytes += peak - begin;
}

/* ---- The library's rungs --------------------------------------------------------------------- */

static struct ptl_tensor jagged_tensor(const struct ladder *l, const float *data) {
    const int64_t shape[3] = {l->p->offsets[l->n_seqs], l->p->n_heads, l->p->dim};
    return ptl_tensor_contiguous((void *)(uintptr_t)data, PTL_F32, 3, shape);
}

static struct ptl_hstu_params jagged_params(const struct ladder *l, float *out) {
    struct ptl_hstu_params a;
    const int64_t n = l->n_seqs + 1;
    ptl_hstu_params_init(&a);
    a.q = jagged_tensor(l, l->p->q);
    a.k = jagged_tensor(l, l->p->k);
    a.v = jagged_tensor(l, l->p->v);
    a.out = jagged_tensor(l, out);
    a.seq_offsets_q = ptl_tensor_contiguous((void *)(uintptr_t)l->p->offsets, PTL_I64, 1, &n);
    a.alpha = l->p->alpha;
    a.scaling_seqlen = l->p->scaling_seqlen;
    return a;
}

static struct ptl_hstu_params padded_params(const struct ladder *l) {
    const struct padded *b = &l->batch;
    const int64_t shape[4] = {b->n_seqs, b->n, l->p->n_heads, l->p->dim};
    struct ptl_hstu_params a;
    ptl_hstu_params_init(&a);
    a.q = ptl_tensor_contiguous(b->q, PTL_F32, 4, shape);
    a.k = ptl_tensor_contiguous(b->k, PTL_F32, 4, shape);
    a.v = ptl_tensor_contiguous(b->v, PTL_F32, 4, shape);
    a.out = ptl_tensor_contiguous(b->out, PTL_F32, 4, shape);
    a.alpha = l->p->alpha;
    a.scaling_seqlen = l->p->scaling_seqlen;
    return a;
}

static int64_t held_by(struct ptl_context *ctx) {
    struct ptl_context_info info = {.struct_size = sizeof info};
    return ptl_context_get_info(ctx, &info) == PTL_OK ? (int64_t)info.scratch_bytes : 0;
}

/* ---- Errors ---------------------------------------------------------------------------------- */

static uint64_t mix(uint64_t x) { /* splitmix64 */
    x += 0x9e3779b97f4a7c15;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    return x ^ x >> 31;
}

/* Rows drawn evenly from all, and the last row of the longest sequence. */
static void draw_samples(struct ladder *l) {
    const int64_t total = l->p->offsets[l->n_seqs];
    int64_t longest = 0;
    for (int64_t b = 1; b < l->n_seqs; b++)
        if (l->p->offsets[b + 1] - l->p->offsets[b] >
            l->p->offsets[longest + 1] - l->p->offsets[longest])
            longest = b;
    for (int i = 0; i < SAMPLES; i++) {
        const int64_t row =
            i == 0 ? l->p->offsets[longest + 1] - 1 : (int64_t)(mix((uint64_t)i) % (uint64_t)total);
        int64_t lo = 0, hi = l->n_seqs; /* offsets[lo] <= row < offsets[hi] */
        while (hi - lo > 1) {
            const int64_t middle = (lo + hi) / 2;
            if (l->p->offsets[middle] <= row) lo = middle;
            else hi = middle;
        }
        l->samples[i] =
            (struct sample){lo, row - l->p->offsets[lo],
                            (int64_t)(mix((uint64_t)i << 32) % (uint64_t)l->p->n_heads)};
    }
}

static void expect_sample(struct ladder *l, int64_t task, char *scratch) {
    (void)scratch;
    const struct sample *s = &l->samples[task];
    ref_hstu_forward_row(&l->expect, s->seq, s->head, s->row, l->expected + task * l->p->dim);
}

static void expect_samples(struct ladder *l, const struct ptl_hstu_params *a) {
    l->expect = *a;
    draw_samples(l);
    ladder_sweep(l, expect_sample, SAMPLES);
    l->largest_expected = 0;
    for (int64_t i = 0; i < (int64_t)SAMPLES * l->p->dim; i++)
        l->largest_expected = fmax(l->largest_expected, fabs(l->expected[i]));
}

/* NaN counts as the worst error: it must not hide in a comparison. */
static double worse(double a, double b) {
    return isnan(b) || b > a ? (isnan(b) ? INFINITY : b) : a;
}

/* Compares sequences [first, first + n) in out. padded is the length they are padded to, the
 * first of them being the first in out; 0: the jagged layout of all. */
static void compare(struct ladder *l, struct ladder_rung *rung, const float *out, int64_t first,
                    int64_t n, int64_t padded) {
    const int dim = l->p->dim;
    for (int64_t b = first; b < first + n; b++) {
        const int64_t rows = l->p->offsets[b + 1] - l->p->offsets[b];
        const float *x = out + (padded ? (b - first) * padded : l->p->offsets[b]) * l->row_floats;
        const float *y = l->out + l->p->offsets[b] * l->row_floats;
        double most = 0;
        for (int64_t i = 0; i < rows * l->row_floats; i++)
            most = worse(most, fabs((double)x[i] - (double)y[i]));
        rung->difference = worse(rung->difference, most / l->largest_out);
    }
    for (int i = 0; i < SAMPLES; i++) {
        const struct sample *s = &l->samples[i];
        if (s->seq < first || s->seq >= first + n) continue;
        const int64_t row = (padded ? (s->seq - first) * padded : l->p->offsets[s->seq]) + s->row;
        const float *x = out + row * l->row_floats + s->head * dim;
        for (int d = 0; d < dim; d++)
            rung->error = worse(rung->error, fabs((double)x[d] - l->expected[i * dim + d]) /
                                                 l->largest_expected);
    }
}

/* ---- Climbing -------------------------------------------------------------------------------- */

static void say(const struct ladder *l, const char *what) {
    if (l->limits->progress) l->limits->progress(what);
}

static double seen_pairs(const struct ladder *l, int64_t n_seqs) {
    double pairs = 0;
    for (int64_t b = 0; b < n_seqs; b++) {
        const double rows = (double)(l->p->offsets[b + 1] - l->p->offsets[b]);
        pairs += rows * (rows + 1) / 2;
    }
    return pairs;
}

/* The rung is as fast as this, on top of what it took for other batches. */
static void add_timing(const struct ladder *l, struct ladder_rung *rung, const struct timing *t) {
    const double cpu_seconds = rung->share * rung->seconds * l->n_threads + t->cpu_seconds;
    rung->seconds += t->seconds;
    rung->share = cpu_seconds / (rung->seconds * l->n_threads);
    if (rung->runs == 0 || t->runs < rung->runs) rung->runs = t->runs;
}

/* Jagged and pipelined in turn, so that both meet the same disturbances. Called before the padded
 * rungs and after them: what disturbs the machine for seconds should not decide between the
 * rungs. */
static enum ptl_status climb_jagged(struct ladder *l, struct ptl_context *ctx,
                                    struct timing timing[2]) {
    struct ladder_rung *jagged = &l->result->rung[LADDER_JAGGED];
    struct ladder_rung *pipelined = &l->result->rung[LADDER_PIPELINED];
    const struct ptl_hstu_params a = jagged_params(l, l->out);
    const double begin = now();
    say(l, "jagged");
    for (int run = 0; run < MAX_RUNS && (run == 0 || now() - begin < RUNS_SECONDS); run++) {
        const bool first = timing[0].runs == 0;
        int64_t resident = first ? begin_resident() : -1;
        begin_run(&timing[0]);
        const enum ptl_status status = ptl_hstu_forward(ctx, &a);
        end_run(&timing[0]);
        if (status != PTL_OK) return status;
        if (first) end_resident(jagged, resident);

        if (first) resident = begin_resident();
        begin_run(&timing[1]);
        ladder_run_pipelined(l);
        end_run(&timing[1]);
        if (first) end_resident(pipelined, resident);
    }
    jagged->seconds = pipelined->seconds = 0;
    jagged->runs = pipelined->runs = 0;
    add_timing(l, jagged, &timing[0]);
    add_timing(l, pipelined, &timing[1]);
    jagged->above_bytes = held_by(ctx);
    pipelined->above_bytes = (int64_t)((size_t)l->n_threads * l->slot_bytes) +
                             ladder_count_blocks(l) * (int64_t)sizeof(struct ptl_block);
    const int64_t io_bytes = 4 * l->p->offsets[l->n_seqs] * l->row_floats * (int64_t)sizeof(float);
    jagged->total_bytes = io_bytes + jagged->above_bytes;
    pipelined->total_bytes = io_bytes + pipelined->above_bytes;
    return PTL_OK;
}

static void most64(int64_t *most, int64_t x) {
    if (x > *most) *most = x;
}

/* After a batch's runs: its time, memory and errors go into the rung; out is made unlike any
 * result. */
static void finish_batch(struct ladder *l, struct ladder_rung *rung, const struct timing *t,
                         size_t above, size_t mask) {
    const struct padded *b = &l->batch;
    add_timing(l, rung, t);
    most64(&rung->above_bytes, (int64_t)above);
    most64(&rung->total_bytes,
           (int64_t)(above + mask + 4 * ladder_batch_floats(l) * sizeof(float)));
    compare(l, rung, b->out, b->first_seq, b->n_seqs, b->n);
    memset(b->out, 0xff, ladder_batch_floats(l) * sizeof(float));
}

/* Up to MAX_RUNS runs within the time; one in any case. */
static bool run_again(const struct timing *t, double begin, double seconds) {
    return t->runs == 0 || (t->runs < MAX_RUNS && now() - begin < seconds);
}

/* The three padded rungs on the batch aimed at. */
static enum ptl_status climb_batch(struct ladder *l, struct ptl_context *ctx, double seconds) {
    struct ladder_rung *rungs = l->result->rung;
    const size_t mask = ladder_score_floats(l, l->batch.n_seqs, l->batch.n) * sizeof(float);
    const size_t of_threads = (size_t)l->n_threads * l->slot_bytes;
    int64_t resident;

    say(l, "padding");
    ladder_fill_batch(l);

    say(l, "naive");
    resident = begin_resident();
    enum ptl_status status = ladder_open_scores(l);
    if (status != PTL_OK) return status;
    struct timing t = {0};
    for (double begin = now(); run_again(&t, begin, seconds);) {
        begin_run(&t);
        ladder_run_naive(l);
        end_run(&t);
    }
    end_resident(&rungs[LADDER_NAIVE], resident);
    finish_batch(l, &rungs[LADDER_NAIVE], &t, mask + of_threads, mask);

    say(l, "fused");
    resident = begin_resident();
    t = (struct timing){0};
    for (double begin = now(); run_again(&t, begin, seconds);) {
        begin_run(&t);
        ladder_run_fused(l);
        end_run(&t);
    }
    end_resident(&rungs[LADDER_FUSED], resident);
    finish_batch(l, &rungs[LADDER_FUSED], &t, of_threads, mask);

    say(l, "skipping");
    const struct ptl_hstu_params a = padded_params(l);
    resident = begin_resident();
    t = (struct timing){0};
    for (double begin = now(); run_again(&t, begin, seconds);) {
        begin_run(&t);
        status = ptl_hstu_forward(ctx, &a);
        end_run(&t);
        if (status != PTL_OK) return status;
    }
    end_resident(&rungs[LADDER_SKIPPING], resident);
    finish_batch(l, &rungs[LADDER_SKIPPING], &t, (size_t)held_by(ctx), 0);
    return PTL_OK;
}

static enum ptl_status climb_padded(struct ladder *l, struct ptl_context *ctx) {
    struct ladder_result *r = l->result;
    r->n_batches = 1;
    while (r->n_batches < l->n_seqs &&
           ladder_largest_batch(l, r->n_batches) > l->limits->padded_bytes)
        r->n_batches++;
    if (ladder_largest_batch(l, r->n_batches) > l->limits->padded_bytes) return PTL_ERR_NOMEM;
    r->padded_pairs = ladder_padded_pairs(l, r->n_batches);
    const int64_t longest = ladder_longest(l, 0, l->n_seqs);
    r->whole_naive_bytes =
        (int64_t)(2 * sizeof(float) * ladder_score_floats(l, l->n_seqs, longest)) +
        4 * l->n_seqs * longest * l->row_floats * (int64_t)sizeof(float) +
        (int64_t)((size_t)l->n_threads * l->slot_bytes);

    enum ptl_status status = ladder_open_batches(l);
    for (int64_t i = 0; i < r->n_batches && status == PTL_OK; i++) {
        ladder_aim_at_batch(l, i);
        most64(&r->batch_seqs, l->batch.n_seqs);
        status = climb_batch(l, ctx, RUNS_SECONDS / (double)r->n_batches);
    }
    ladder_close_batches(l);
    return status;
}

/* ---- Half precisions ------------------------------------------------------------------------- */

static enum ptl_status time_half(struct ladder *l, const struct ptl_hstu_params *a,
                                 struct ladder_rung *rung) {
    struct ptl_context *ctx = NULL; /* its own, to show its own memory */
    struct timing t = {0};
    enum ptl_status status = ptl_context_create(&ctx, l->options);
    const double begin = now();
    const int64_t resident = begin_resident();
    while (status == PTL_OK && run_again(&t, begin, RUNS_SECONDS / 2)) {
        begin_run(&t);
        status = ptl_hstu_forward(ctx, a);
        end_run(&t);
    }
    end_resident(rung, resident);
    if (status == PTL_OK) {
        add_timing(l, rung, &t);
        rung->above_bytes = held_by(ctx);
    }
    ptl_context_destroy(ctx);
    return status;
}

/* The jagged rung on rounded inputs. The last rung: it takes other_out for its result as floats,
 * and the samples' results for those of the rounded inputs. */
static enum ptl_status climb_half(struct ladder *l, enum ptl_dtype dtype,
                                  struct ladder_rung *rung) {
    const int64_t rows = l->p->offsets[l->n_seqs], n = rows * l->row_floats;
    const ptrdiff_t stride = l->row_floats;
    const bool f16 = dtype == PTL_F16;
    const float *const inputs[3] = {l->p->q, l->p->k, l->p->v};
    struct ptl_hstu_params a = jagged_params(l, NULL);
    struct ptl_tensor *const tensors[4] = {&a.q, &a.k, &a.v, &a.out};
    uint16_t *halves = (uint16_t *)(void *)ladder_map((size_t)(2 * n));
    if (!halves) return PTL_ERR_NOMEM;
    say(l, f16 ? "fp16" : "bf16");
    for (int i = 0; i < 4; i++) {
        tensors[i]->data = halves + i * n;
        tensors[i]->dtype = dtype;
        for (int64_t row = 0; i < 3 && row < rows; row++)
            (f16 ? l->kernels->rows_to_f16
                 : l->kernels->rows_to_bf16)(inputs[i] + row * stride, stride, 1, (int)stride,
                                             halves + i * n + row * stride, stride);
    }
    memset(halves + 3 * n, 0xff, (size_t)n * sizeof *halves);
    const enum ptl_status status = time_half(l, &a, rung);
    if (status == PTL_OK) {
        rung->total_bytes = 4 * n * (int64_t)sizeof *halves + rung->above_bytes;
        expect_samples(l, &a);
        for (int64_t row = 0; row < rows; row++)
            (f16 ? l->kernels->rows_from_f16
                 : l->kernels->rows_from_bf16)(halves + 3 * n + row * stride, stride, 1,
                                               (int)stride, l->other_out + row * stride, stride);
        compare(l, rung, l->other_out, 0, l->n_seqs, 0);
    }
    ladder_unmap((float *)(void *)halves, (size_t)(2 * n));
    return status;
}

/* ---- The climb ------------------------------------------------------------------------------- */

/* Causal pairs of a head that the library computes in a second, by the first sequences alone. */
static enum ptl_status probe_rate(struct ladder *l, double *rate) {
    const int64_t all = l->n_seqs;
    for (l->n_seqs = 1; l->n_seqs < all && seen_pairs(l, l->n_seqs) < PROBE_PAIRS;) l->n_seqs++;
    const struct ptl_hstu_params a = jagged_params(l, l->out);
    struct timing t = {0};
    enum ptl_status status = PTL_OK;
    while (status == PTL_OK && t.runs < 2) { /* the first starts threads and touches memory */
        begin_run(&t);
        status = ptl_hstu_forward(l->ctx, &a);
        end_run(&t);
    }
    *rate = seen_pairs(l, l->n_seqs) / t.seconds;
    l->n_seqs = all;
    return status;
}

/* Sequences that the whole ladder can take in the time: the naive form counts three times its
 * products, the others by their repetitions. */
static int64_t affordable(const struct ladder *l, double rate) {
    int64_t n = l->n_seqs;
    for (;;) {
        const double longest = (double)ladder_longest(l, 0, n);
        const double padded = (double)n * longest * longest / rate;
        const double seen = seen_pairs(l, n) / rate;
        const double need = 3 * padded + fmax(1.1 * padded, RUNS_SECONDS) +
                            fmax(0.6 * padded, RUNS_SECONDS) + 2 * fmax(2 * seen, RUNS_SECONDS) +
                            2 * fmax(seen, RUNS_SECONDS / 2);
        if (n == 1 || need <= l->limits->seconds) return n;
        n = n * 7 / 8;
    }
}

static enum ptl_status climb(struct ladder *l, struct ptl_context *jagged_ctx,
                             struct ptl_context *padded_ctx) {
    double rate;
    say(l, "probing");
    enum ptl_status status = probe_rate(l, &rate);
    if (status != PTL_OK) return status;
    l->n_seqs = affordable(l, rate);

    struct timing timing[2] = {{0}};
    status = climb_jagged(l, jagged_ctx, timing);
    if (status != PTL_OK) return status;
    l->result->n_seqs = l->n_seqs;
    l->result->seen_pairs = seen_pairs(l, l->n_seqs);
    l->result->sampled_rows = SAMPLES;

    say(l, "reference");
    const struct ptl_hstu_params a = jagged_params(l, l->out);
    expect_samples(l, &a);
    for (int64_t i = 0; i < l->p->offsets[l->n_seqs] * l->row_floats; i++)
        l->largest_out = fmaxf(l->largest_out, fabsf(l->out[i]));
    compare(l, &l->result->rung[LADDER_JAGGED], l->out, 0, l->n_seqs, 0);
    compare(l, &l->result->rung[LADDER_PIPELINED], l->other_out, 0, l->n_seqs, 0);
    status = climb_padded(l, padded_ctx);
    if (status == PTL_OK) status = climb_jagged(l, jagged_ctx, timing);
    if (status == PTL_OK) status = climb_half(l, PTL_F16, &l->result->rung[LADDER_F16]);
    return status == PTL_OK ? climb_half(l, PTL_BF16, &l->result->rung[LADDER_BF16]) : status;
}

static size_t out_floats(const struct ladder *l) {
    return (size_t)(l->p->offsets[l->p->n_seqs] * l->row_floats);
}

static enum ptl_status open_ladder(struct ladder *l) {
    l->kernels = l->ctx->kernels;
    l->n_threads = l->ctx->executor.n_threads;
    l->row_floats = l->p->n_heads * l->p->dim;
    l->slot_bytes = ladder_scratch_bytes(l);
    l->out = ladder_map(out_floats(l));
    l->other_out = ladder_map(out_floats(l));
    l->scratch = aligned_alloc(64, (size_t)l->n_threads * l->slot_bytes);
    l->blocks = malloc((size_t)(ladder_count_blocks(l) + 1) * sizeof *l->blocks);
    l->samples = malloc(SAMPLES * sizeof *l->samples);
    l->expected = malloc((size_t)SAMPLES * (size_t)l->p->dim * sizeof *l->expected);
    if (!l->out || !l->other_out || !l->scratch || !l->blocks || !l->samples || !l->expected)
        return PTL_ERR_NOMEM;
    memset(l->out, 0xff, out_floats(l) * sizeof(float));
    memset(l->other_out, 0xff, out_floats(l) * sizeof(float));
    return PTL_OK;
}

static void close_ladder(struct ladder *l) {
    ladder_unmap(l->out, out_floats(l));
    ladder_unmap(l->other_out, out_floats(l));
    free(l->scratch);
    free(l->blocks);
    free(l->samples);
    free(l->expected);
}

enum ptl_status ladder_run_hstu(const struct ptl_context_options *options,
                                const struct ladder_problem *problem,
                                const struct ladder_limits *limits, struct ladder_result *result) {
    struct ladder l = {.p = problem,
                       .limits = limits,
                       .result = result,
                       .n_seqs = problem->n_seqs,
                       .options = options};
    /* One context each, so that each shows its own memory. */
    struct ptl_context *jagged = NULL, *padded = NULL;
    memset(result, 0, sizeof *result);
    enum ptl_status status = ptl_context_create(&l.ctx, options);
    if (status == PTL_OK) status = ptl_context_create(&jagged, options);
    if (status == PTL_OK) status = ptl_context_create(&padded, options);
    if (status == PTL_OK) status = open_ladder(&l);
    if (status == PTL_OK) status = climb(&l, jagged, padded);
    close_ladder(&l);
    ptl_context_destroy(padded);
    ptl_context_destroy(jagged);
    ptl_context_destroy(l.ctx);
    return status;
}
