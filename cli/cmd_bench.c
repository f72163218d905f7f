/* pantile bench: times problems one after the other in this process, against what the machine
 * can do at that moment. */
#define _POSIX_C_SOURCE 200809L
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../bench/probe.h"
#include "bench_report.h"
#include "call.h"
#include "commands.h"
#include "compare.h"
#include "cost.h"
#include "cpu_name.h"
#include "options.h"
#include "runner.h"
#include "sweep.h"
#include "timing.h"

static const char help[] =
    "usage: pantile bench LINE [--reps N] [--time SECONDS] [-o md|csv|jsonl]\n"
    "\n"
    "Times the problem of LINE. Comma lists sweep, every combination is a case:\n"
    "\n"
    "  pantile bench hstu b=1 h=1 s=512,1024 d=64,128 isa=avx2,avx512 threads=1,2\n"
    "  pantile bench hstu_backward h=4 s=2048 d=64 dtype=f32,bf16\n"
    "  pantile bench jagged_to_padded b=64 lengths=uniform:16,400 d=128\n"
    "  pantile bench nsa_decode s=8192,65536 h=64 hk=1 d=192 dv=128 cache=cold\n"
    "  pantile bench attention_decode s=65536 h=64 hk=1 d=192 dv=128 cache=cold\n"
    "\n"
    "  --reps N         timed calls; default: as many as fit the time, 3 at least\n"
    "  --time SECONDS   of timed calls, default 1\n"
    "  -o FORMAT        md (a table, default), csv or jsonl\n"
    "\n"
    "min and median ms; GFLOP/s on unmasked work in the fastest call, 2 * (d + dv) for each pair "
    "that\n"
    "the mask lets through, 2 * (3 * d + 2 * dv) for hstu_backward, and for nsa_* and attention "
    "2 * (d +\n"
    "dv) for each token or compressed key that a row and query head attends to; peak, its share of "
    "the\n"
    "FMA peak of the level and threads that ran, which is that of fp32 for f16 and bf16 too, but\n"
    "that of bf16 dot products for hstu with bf16 at the level avx512bf16; bandwidth,\n"
    "the share of the read bandwidth if inputs and outputs (of keys and values those that some row "
    "sees)\n"
    "pass once in that time, and for operators that copy (hstu_kv_append, jagged copies, "
    "position_time,\n"
    "nsa_compress, nsa_append, nsa_select, nsa_combine) the share of the copy bandwidth, bytes "
    "read "
    "and\n"
    "bytes written; extra bytes, the memory above the arguments; the error on sampled rows "
    "against\n"
    "double. Peak and bandwidths are measured before and after each case; when they differ by over "
    "10 %,\n"
    "or median and min by over 15 %, the row is marked disturbed. csv and jsonl name the CPU; "
    "'pantile\n"
    "compare' compares two jsonl files. With cache=cold what was in the "
    "caches\n"
    "is evicted before each call.\n"
    "Exit status: 0, 1 when an error is above the bound, 2 when a line was refused.\n"
    "'pantile help hstu', 'help jagged' and 'help nsa' list the words of a line.\n";

struct settings {
    struct timing timing;
    enum report_format format;
};

static const double sample_seconds = 0.3;

/* ---- Memory ---------------------------------------------------------------------------------- */

/* A line of /proc/self/status in bytes; 0 where there is none. */
static double status_bytes(const char *key) {
    char line[256];
    long long kib = 0;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, key, strlen(key)) == 0) sscanf(line + strlen(key), ": %lld", &kib);
    if (f) fclose(f);
    return 1024.0 * (double)kib;
}

static void reset_peak(void) {
    const int fd = open("/proc/self/clear_refs", O_WRONLY);
    if (fd < 0) return;
    if (write(fd, "5", 1) !=
        1) { /* then the peak is of the whole process, and growth may hide in it */
    }
    close(fd);
}

/* Memory above inputs and output. The context's arenas are all that a call allocates, they never
 * shrink, and their size is exact. The growth of the process counts everything, but by the kernel's
 * coarse counters, and reused heap does not show: it is only believed where it is clearly more. */
static double extra_bytes(struct ptl_context *ctx, double growth) {
    static const double blur = 2 << 20;
    struct ptl_context_info info = {.struct_size = sizeof info};
    ptl_context_get_info(ctx, &info);
    const double arenas = (double)info.scratch_bytes;
    return growth > arenas + blur ? growth : arenas;
}

/* ---- One case -------------------------------------------------------------------------------- */

static bool differ(double a, double b, double share) {
    return fabs(a - b) > share * fmax(a, b);
}

static void rate(struct bench_result *result, struct cost cost, const struct times *t,
                 const struct probe_rates *before, const struct probe_rates *after) {
    const double best = fmax(t->seconds[0], 1e-9), median = t->seconds[t->n / 2];
    result->min_ms = 1e3 * best;
    result->median_ms = 1e3 * median;
    result->gflops = 1e-9 * cost.flops / best;
    result->peak_gflops = fmax(before->peak_gflops, after->peak_gflops);
    result->read_gbps = fmax(before->read_gbps, after->read_gbps);
    result->copy_gbps = fmax(before->copy_gbps, after->copy_gbps);
    result->peak_fraction = result->gflops / result->peak_gflops;
    result->bandwidth_fraction =
        1e-9 * cost.bytes / best / (cost.copies ? result->copy_gbps : result->read_gbps);
    result->disturbed = differ(before->peak_gflops, after->peak_gflops, 0.10) ||
                        differ(before->read_gbps, after->read_gbps, 0.10) ||
                        (cost.copies && differ(before->copy_gbps, after->copy_gbps, 0.10)) ||
                        median > 1.15 * best;
}

/* Brings the code of the level into memory, so that it does not count as growth. */
static bool touch_code(const struct call *c, struct refusal *r) {
    static const char *const dtypes[] = {"f32", "f32", "f16", "bf16"};
    struct words w;
    struct call small;
    struct ptl_context_info info;
    char line[64];
    const enum ptl_dtype dtype = call_tensor(c, c->op->rows)->dtype;
    snprintf(line, sizeof line, "%s s=100 d=16 dtype=%s", c->op->name,
             dtype <= PTL_BF16 ? dtypes[dtype] : "f32");
    if (!words_split(&w, line, r)) return false;
    bool ok = call_open(&small, &w, r);
    if (ok) {
        small.problem.isa = c->problem.isa;
        ok = run_call(&small, &info, r);
        call_close(&small);
    }
    words_free(&w);
    return ok;
}

static bool probe(const struct settings *s, const struct ptl_context_info *info, bool dots,
                  struct probe_rates *rates, struct refusal *r) {
    if (probe_measure(s->timing.probe, info->isa, dots, info->num_threads, rates)) return true;
    return refuse(r, "threads: no %d of them for the probe", (int)info->num_threads);
}

static bool measure(const struct settings *s, const struct call *c, struct bench_result *result,
                    bool *pass, struct refusal *r) {
    struct ptl_context *ctx = NULL;
    struct ptl_context_info info = {.struct_size = sizeof info};
    struct probe_rates before, after;
    struct comparison comparison;
    struct times times = {0};
    bool ok = false;
    if (!touch_code(c, r) || !open_context(&c->problem, &ctx, r)) return false;
    ptl_context_get_info(ctx, &info);
    result->isa = info.isa;
    result->executor = info.executor;
    result->threads = info.num_threads;

    reset_peak();
    const double resident = status_bytes("VmRSS");
    if (!call_operator(ctx, c, r)) goto done;
    result->extra_bytes = extra_bytes(ctx, status_bytes("VmHWM") - resident);

    const struct cost cost = c->op->cost(c);
    if (!probe(s, &info, cost.dots, &before, r) ||
        !time_calls(&s->timing, ctx, c, info.num_threads, &times, r) ||
        !probe(s, &info, cost.dots, &after, r))
        goto done;
    if (!compare_call(c, sample_seconds, &comparison)) {
        refuse(r, "reference: no memory");
        goto done;
    }
    rate(result, cost, &times, &before, &after);
    result->error = comparison_error(&comparison);
    *pass = comparison_passes(&comparison);
    ok = true;
done:
    free(times.seconds);
    ptl_context_destroy(ctx);
    return ok;
}

/* ---- All cases ------------------------------------------------------------------------------- */

/* The line without operator and what has a column of its own; to be freed. */
static char *problem_text(const struct words *w) {
    struct words rest = *w; /* shares the text, which it does not change */
    rest.op = "";
    words_remove(&rest, "isa");
    words_remove(&rest, "executor");
    words_remove(&rest, "threads");
    return words_join(&rest);
}

static int longest_problem(const struct words *w, int64_t n) {
    int longest = (int)strlen("problem");
    for (int64_t i = 0; i < n; i++) {
        char sentence[64];
        struct refusal refusal = {sentence, sizeof sentence};
        struct words one;
        if (!sweep_line(w, i, &one, &refusal)) continue;
        char *text = problem_text(&one);
        if (text && (int)strlen(text) > longest) longest = (int)strlen(text);
        free(text);
        words_free(&one);
    }
    return longest;
}

static void show_progress(int64_t i, int64_t n, const char *problem) {
    if (!isatty(STDERR_FILENO)) return;
    fprintf(stderr, "\r\033[K[%lld/%lld] %.60s", (long long)i + 1, (long long)n, problem);
    fflush(stderr);
}

static void clear_progress(void) {
    if (isatty(STDERR_FILENO)) fputs("\r\033[K", stderr);
}

static int bench_case(const struct settings *s, struct words *w, const struct report_widths *widths,
                      struct refusal *r) {
    struct call c;
    char cpu[128];
    struct bench_result result = {.op = w->op, .cpu = cpu_name(cpu)};
    bool ok = false, pass = false;
    char *text = problem_text(w);
    if (!text) return complain("line: no memory");
    result.problem = text;
    if (call_open(&c, w, r)) {
        ok = measure(s, &c, &result, &pass, r) && call_write(&c, r);
        call_close(&c);
    }
    clear_progress();
    if (ok) report_result(s->format, widths, &result);
    free(text);
    if (!ok) return complain(r->text);
    return pass ? EXIT_PASS : EXIT_MISMATCH;
}

static int bench_all(const struct settings *s, const struct words *w, struct refusal *r) {
    const int64_t n = sweep_count(w);
    int worst = EXIT_PASS;
    if (n < 0) {
        refuse(r, "line: stands for more than %d cases", SWEEP_MAX);
        return complain(r->text);
    }
    const struct report_widths widths = {(int)strlen(w->op), longest_problem(w, n)};
    report_begin(s->format, &widths);
    for (int64_t i = 0; i < n; i++) {
        struct words one;
        if (!sweep_line(w, i, &one, r)) return complain(r->text);
        char *text = problem_text(&one);
        show_progress(i, n, text ? text : "");
        free(text);
        const int status = bench_case(s, &one, &widths, r);
        if (status > worst) worst = status;
        words_free(&one);
    }
    return worst;
}

static bool read_options(struct settings *s, const struct option *options, struct refusal *r) {
    static const char *const formats[] = {"md", "csv", "jsonl", NULL};
    int format = 0;
    if (!read_timing(&s->timing, options[0].value, options[1].value, r) ||
        (options[2].value && !read_choice("-o", options[2].value, formats, &format, r)))
        return false;
    s->format = (enum report_format)format;
    return true;
}

static int bench_main(int argc, char **argv) {
    char sentence[1024] = "";
    struct refusal refusal = {sentence, sizeof sentence};
    struct option options[] = {{"--reps", NULL}, {"--time", NULL}, {"-o", NULL}, {NULL, NULL}};
    struct settings settings;
    struct words w;
    const int n = take_options(argc, argv, options, &refusal);
    if (n < 0 || !read_options(&settings, options, &refusal) ||
        !words_of_arguments(&w, n, argv + 1, &refusal))
        return complain(sentence);
    int status;
    settings.timing.probe = probe_create();
    if (settings.timing.probe) status = bench_all(&settings, &w, &refusal);
    else status = complain("probe: no memory");
    probe_destroy(settings.timing.probe);
    words_free(&w);
    return status;
}

const struct command bench_command = {"bench", "time problems against the machine's peak", help,
                                      bench_main};
