/* The NSA part of the demo: a decode step over 64K tokens, full attention next to native sparse
 * attention, and the ladder of bench/ladder_nsa.c. Problems are generated lines, so that the bench
 * can run them again. */
#define _POSIX_C_SOURCE 200809L
#include "demo_nsa.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "../bench/ladder_nsa.h"
#include "../bench/probe.h"
#include "commands.h"
#include "compare.h"
#include "cost.h"
#include "demo_text.h"
#include "runner.h"

enum { TOKENS = 65536, MIN_ROUNDS = 3 };
static const double ROUND_SECONDS = 2;
static const double REFERENCE_SECONDS = 0.5;

static const char scenario[] = "s=65536 h=64 hk=1 d=192 dv=128";

enum { FULL, STEP, COMPRESSED, ATTEND, APPEND, N_CALLS };

static const struct {
    const char *title, *op, *words;
} lines[N_CALLS] = {
    {"full causal attention", "attention_decode", "lse=0"},
    {"NSA, the whole decode step", "nsa_decode", ""},
    {"  compressed attention, selection", "nsa_compressed_attention", "sq=1 lse=0"},
    {"  selected and sliding attention", "nsa_attend", "sq=1 lse=0"},
    {"  a token and its block appended", "nsa_append", ""},
};

struct timed {
    struct call call;
    bool open;
    double seconds, flops, bytes, error;
    double share; /* of its threads' time that the process had in the fastest run */
    bool pass;
    int runs;
};

struct nsa_demo {
    const struct ptl_context_options *options;
    struct ptl_context *ctx;
    struct probe *probe;
    int n_threads;
    bool markdown, progress;
    struct timed calls[N_CALLS];
};

static double seconds_of(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double now(void) {
    return seconds_of(CLOCK_MONOTONIC);
}

static void evict(void *arg) {
    const struct nsa_demo *d = arg;
    probe_evict(d->probe, d->n_threads);
}

/* ---- Calls ----------------------------------------------------------------------------------- */

static int open_calls(struct nsa_demo *d) {
    for (int i = 0; i < N_CALLS; i++) {
        char sentence[512], line[160];
        struct refusal refusal = {sentence, sizeof sentence};
        struct words w;
        snprintf(line, sizeof line, "%s %s %s", lines[i].op, scenario, lines[i].words);
        if (!words_split(&w, line, &refusal)) return refuse_demo("%s", sentence);
        d->calls[i].open = call_open(&d->calls[i].call, &w, &refusal);
        words_free(&w);
        if (!d->calls[i].open) return refuse_demo("%s", sentence);
    }
    return 0;
}

/* In turn, so that all meet the same disturbances. */
static int time_calls(struct nsa_demo *d) {
    const double begin = now();
    for (int round = 0; round < MIN_ROUNDS || now() - begin < ROUND_SECONDS; round++)
        for (int i = 0; i < N_CALLS; i++) {
            struct timed *t = &d->calls[i];
            evict(d);
            const double cpu = seconds_of(CLOCK_PROCESS_CPUTIME_ID), start = now();
            const enum ptl_status status = t->call.op->run(d->ctx, &t->call);
            const double seconds = now() - start;
            if (status != PTL_OK) return refuse_status(lines[i].op, status);
            if (t->runs++ > 0 && seconds >= t->seconds) continue;
            t->seconds = seconds;
            t->share = (seconds_of(CLOCK_PROCESS_CPUTIME_ID) - cpu) / (seconds * d->n_threads);
        }
    return 0;
}

static int compare_calls(struct nsa_demo *d) {
    for (int i = 0; i < N_CALLS; i++) {
        struct timed *t = &d->calls[i];
        struct comparison comparison;
        if (!compare_call(&t->call, REFERENCE_SECONDS, &comparison))
            return refuse_demo("no memory for the reference");
        const struct cost cost = t->call.op->cost(&t->call);
        t->flops = cost.flops;
        t->bytes = cost.bytes;
        t->error = comparison_error(&comparison);
        t->pass = comparison_passes(&comparison);
    }
    return 0;
}

/* ---- Tables ---------------------------------------------------------------------------------- */

static void print_calls(const struct nsa_demo *d) {
    enum { COLUMNS = 7 };
    static const int widths[COLUMNS] = {-36, 9, 6, 9, 10, 11, 10};
    static const char *const headings[COLUMNS] = {"",        "time",   "runs", "vs full",
                                                  "GFLOP/s", "memory", "error"};
    char cells[COLUMNS][CELL];
    puts("");
    for (int c = 0; c < COLUMNS; c++) snprintf(cells[c], CELL, "%s", headings[c]);
    print_cells(cells, widths, COLUMNS, d->markdown);
    print_rule(COLUMNS, d->markdown);
    for (int i = 0; i < N_CALLS; i++) {
        const struct timed *t = &d->calls[i];
        snprintf(cells[0], CELL, "%s", lines[i].title);
        format_time(cells[1], t->seconds);
        snprintf(cells[2], CELL, "%d", t->runs);
        snprintf(cells[3], CELL, "-");
        if (i <= STEP) format_factor(cells[3], d->calls[FULL].seconds / t->seconds);
        snprintf(cells[4], CELL, "-");
        if (!isnan(t->flops)) snprintf(cells[4], CELL, "%.0f", 1e-9 * t->flops / t->seconds);
        format_bytes(cells[5], (int64_t)t->bytes);
        snprintf(cells[6], CELL, "%.1e", t->error);
        print_cells(cells, widths, COLUMNS, d->markdown);
    }
    puts("");
    print_text(
        "time: the fastest of the runs; before each one everything was evicted from the caches. "
        "GFLOP/s: 2 (192 + 128) for each of 64 heads and each token or compressed key attended. "
        "memory: the keys and values that are read. error: to double, as 'pantile check' has it. "
        "Again: pantile bench nsa_decode %s cache=cold.",
        scenario);
}

static const char *const rung_names[LADDER_NSA_RUNGS] = {"(a) S, P in memory, score by sums",
                                                         "(b) score a product with a block W",
                                                         "(c) a tile of P for values and W",
                                                         "(d) online: nothing stored",
                                                         "(e) online, keys split",
                                                         "(f) ptl_nsa_compressed_attention",
                                                         "(g) selected, sliding: two calls",
                                                         "(h) both in one call"};

static void print_ladder(const struct nsa_demo *d, const struct ladder_nsa_result *r) {
    enum { COLUMNS = 7 };
    static const int widths[COLUMNS] = {-36, 9, 6, 9, 11, 11, 11};
    static const char *const headings[COLUMNS] = {"",          "time", "runs", "vs (a)",
                                                  "above i/o", "out",  "score"};
    char cells[COLUMNS][CELL];
    puts("");
    for (int c = 0; c < COLUMNS; c++) snprintf(cells[c], CELL, "%s", headings[c]);
    print_cells(cells, widths, COLUMNS, d->markdown);
    print_rule(COLUMNS, d->markdown);
    for (int i = 0; i < LADDER_NSA_RUNGS; i++) {
        const struct ladder_nsa_rung *rung = &r->rung[i];
        const int first = i < LADDER_NSA_APART ? LADDER_NSA_SUMS : LADDER_NSA_APART;
        snprintf(cells[0], CELL, "%s", rung_names[i]);
        format_time(cells[1], rung->seconds);
        snprintf(cells[2], CELL, "%d", rung->runs);
        format_factor(cells[3], r->rung[first].seconds / rung->seconds);
        format_bytes(cells[4], rung->above_bytes);
        snprintf(cells[5], CELL, rung->difference == 0 ? "same bits" : "%.1e", rung->difference);
        snprintf(cells[6], CELL, i >= LADDER_NSA_LIBRARY ? "-" : "%.1e", rung->score_difference);
        print_cells(cells, widths, COLUMNS, d->markdown);
    }
    puts("");
    print_text(
        "One decode row over 4095 compressed keys; (a) to (e) are programs of their own over the "
        "library's kernels, and select by ptl_nsa_select. vs (a): (h) to (g). out: the largest "
        "difference to (f), (h) to (g). score: that of the importance, as a part of its sum.");
}

static bool ladder_agrees(const struct ladder_nsa_result *r) {
    bool good = true;
    for (int i = 0; i < LADDER_NSA_RUNGS; i++) {
        const struct ladder_nsa_rung *rung = &r->rung[i];
        if (rung->difference <= 4e-5 && rung->score_difference <= 4e-5 && rung->same_blocks)
            continue;
        printf("MISMATCH: %s: out %.1e, score %.1e, %s blocks\n", rung_names[i], rung->difference,
               rung->score_difference, rung->same_blocks ? "the same" : "other");
        good = false;
    }
    return good;
}

static void print_meaning(const struct nsa_demo *d, const struct ladder_nsa_result *r) {
    char factor[CELL];
    const struct timed *full = &d->calls[FULL], *step = &d->calls[STEP];
    puts("");
    print_text(
        "Here a decode step by NSA is %s faster than one by full attention; it attends to 4095 + "
        "1024 + 512 instead of %d, %.1f times fewer. From sums over stored probabilities to one "
        "pass the compressed branch gains %.2fx, selected and sliding attention %.2fx by being one "
        "call.",
        format_factor(factor, full->seconds / step->seconds), TOKENS, full->flops / step->flops,
        r->rung[LADDER_NSA_SUMS].seconds / r->rung[LADDER_NSA_LIBRARY].seconds,
        r->rung[LADDER_NSA_APART].seconds / r->rung[LADDER_NSA_FUSED].seconds);
    if (full->share < UNDISTURBED || step->share < UNDISTURBED)
        print_text(
            "The machine was busy: even in its fastest runs this process had only %.0f %% of the "
            "time of its threads. The times are too long.",
            100 * fmin(full->share, step->share));
}

/* ---- The part -------------------------------------------------------------------------------- */

static void say(const struct nsa_demo *d, const char *what) {
    if (d->progress) show_progress(what);
}

static int run(struct nsa_demo *d) {
    struct ladder_nsa_result result;
    struct ptl_context_info info = {.struct_size = sizeof info};
    enum ptl_status status = ptl_context_create(&d->ctx, d->options);
    if (status != PTL_OK) return refuse_status("context", status);
    ptl_context_get_info(d->ctx, &info);
    d->n_threads = info.num_threads;
    d->probe = probe_create();
    if (!d->probe) return refuse_demo("no memory for the probe");

    say(d, "64K keys");
    int exit = open_calls(d);
    say(d, "decode steps");
    if (!exit) exit = time_calls(d);
    say(d, "reference");
    if (!exit) exit = compare_calls(d);
    say(d, "");
    if (exit) return exit;
    print_calls(d);
    fflush(stdout);

    const struct ladder_nsa_problem problem = {
        .compressed = &d->calls[COMPRESSED].call.nsa.params,
        .attend = &d->calls[ATTEND].call.nsa.params,
        .n_tokens = TOKENS,
        .seconds = ROUND_SECONDS,
        .before = evict,
        .arg = d,
    };
    say(d, "ladder");
    status = ladder_run_nsa(d->options, &problem, &result);
    say(d, "");
    if (status != PTL_OK) return refuse_status("ladder", status);
    print_ladder(d, &result);
    if (!ladder_agrees(&result)) exit = EXIT_MISMATCH;
    for (int i = 0; i < N_CALLS; i++) {
        if (d->calls[i].pass) continue;
        printf("MISMATCH: %s: error %.1e\n", lines[i].op, d->calls[i].error);
        exit = EXIT_MISMATCH;
    }
    print_meaning(d, &result);
    return exit;
}

int demo_nsa(const struct ptl_context_options *options, bool markdown, bool progress) {
    struct nsa_demo d = {.options = options, .markdown = markdown, .progress = progress};
    printf("\n%sNSA: one token over 64K, fp32, 64 query heads on 1 kv head, D 192 and 128\n\n",
           markdown ? "## " : "");
    print_text(
        "Keys and queries are drawn from a seed, not real ones: topics of some 50 tokens that "
        "resemble each other. Blocks of 32 tokens every 16 are compressed, 16 blocks of 64 "
        "selected, and the last 512 tokens seen.");
    const int exit = run(&d);
    for (int i = 0; i < N_CALLS; i++)
        if (d.calls[i].open) call_close(&d.calls[i].call);
    probe_destroy(d.probe);
    ptl_context_destroy(d.ctx);
    return exit;
}
