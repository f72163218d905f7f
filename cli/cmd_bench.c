/* pantile bench: times problems one after the other in this process, against what the machine
 * can do at that moment. */
#define _POSIX_C_SOURCE 200809L
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "../bench/probe.h"
#include "arrays.h"
#include "bench_report.h"
#include "commands.h"
#include "compare.h"
#include "runner.h"
#include "sequences.h"
#include "sweep.h"

static const char help[] =
    "usage: pantile bench LINE [--reps N] [--time SECONDS] [-o md|csv|jsonl]\n"
    "\n"
    "Times the problem of LINE. Comma lists sweep, every combination is a case:\n"
    "\n"
    "  pantile bench hstu b=1 h=1 s=512,1024 d=64,128 isa=avx2,avx512 threads=1,2\n"
    "\n"
    "  --reps N         timed calls; default: as many as fit the time, 3 at least\n"
    "  --time SECONDS   of timed calls, default 1\n"
    "  -o FORMAT        md (a table, default), csv or jsonl\n"
    "\n"
    "min and median ms; GFLOP/s, 2 * (d + dv) per pair that the mask lets through, in the fastest "
    "call;\n"
    "peak, its share of the FMA peak of the level and threads that ran; bandwidth, the share of "
    "the read\n"
    "bandwidth if q, k, v and out pass once in that time; extra bytes, the memory above them; the "
    "error\n"
    "on sampled rows against double. Peak and bandwidth are measured before and after each case; "
    "when\n"
    "they differ by over 10 %, or median and min by over 15 %, the row is marked disturbed.\n"
    "Exit status: 0, 1 when an error is above the bound, 2 when a line was refused.\n"
    "'pantile help hstu' lists the words of a line.\n";

struct settings {
    int64_t reps; /* 0: by time */
    double seconds;
    enum report_format format;
    struct probe *probe;
};

static const double warm_up_share = 0.1; /* of the time of timed calls */
static const double sample_seconds = 0.3;
enum { MIN_REPS = 3, MAX_REPS = 1000000 };

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

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

/* ---- Time ------------------------------------------------------------------------------------ */

static int compare_doubles(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

struct times {
    double *seconds;
    int64_t n, room;
};

static bool add_time(struct times *t, double seconds) {
    if (t->n == t->room) {
        const int64_t room = t->room ? 2 * t->room : 64;
        double *more = realloc(t->seconds, (size_t)room * sizeof *more);
        if (!more) return false;
        t->seconds = more;
        t->room = room;
    }
    t->seconds[t->n++] = seconds;
    return true;
}

static bool enough(const struct settings *s, const struct times *t, double spent) {
    if (s->reps) return t->n >= s->reps;
    return t->n >= MAX_REPS || (t->n >= MIN_REPS && spent >= s->seconds);
}

static bool time_calls(const struct settings *s, struct ptl_context *ctx, const struct problem *p,
                       int threads, struct times *t, struct refusal *r) {
    const double start = now();
    while (!p->cold && now() - start < warm_up_share * s->seconds)
        if (!call_operator(ctx, p, r)) return false;
    for (double spent = 0.0; !enough(s, t, spent);) {
        if (p->cold && !probe_evict(s->probe, threads)) return refuse(r, "threads: none to be had");
        const double begin = now();
        if (!call_operator(ctx, p, r)) return false;
        const double seconds = now() - begin;
        spent += seconds;
        if (!add_time(t, seconds)) return refuse(r, "times: no memory");
    }
    qsort(t->seconds, (size_t)t->n, sizeof *t->seconds, compare_doubles);
    return true;
}

/* ---- One case -------------------------------------------------------------------------------- */

static bool differ(double a, double b, double share) {
    return fabs(a - b) > share * fmax(a, b);
}

static void rate(struct bench_result *result, const struct problem *p, const struct times *t,
                 const struct probe_rates *before, const struct probe_rates *after) {
    const struct ptl_hstu_params *a = &p->hstu;
    const struct workload w = workload_of(a);
    const int last = a->q.ndim - 1;
    const double dims = (double)(a->q.shape[last] + a->v.shape[last]);
    const double best = fmax(t->seconds[0], 1e-9), median = t->seconds[t->n / 2];
    const double bytes =
        sizeof(float) * dims *
        (w.rows_q * (double)a->q.shape[last - 1] + w.rows_k * (double)a->k.shape[last - 1]);
    result->min_ms = 1e3 * best;
    result->median_ms = 1e3 * median;
    result->gflops = 2e-9 * dims * w.valid_pairs / best;
    result->peak_gflops = fmax(before->peak_gflops, after->peak_gflops);
    result->read_gbps = fmax(before->read_gbps, after->read_gbps);
    result->peak_fraction = result->gflops / result->peak_gflops;
    result->bandwidth_fraction = 1e-9 * bytes / best / result->read_gbps;
    result->disturbed = differ(before->peak_gflops, after->peak_gflops, 0.10) ||
                        differ(before->read_gbps, after->read_gbps, 0.10) || median > 1.15 * best;
}

/* Brings the code of the level into memory, so that it does not count as growth. */
static bool touch_code(const struct problem *p, struct refusal *r) {
    struct problem small;
    struct ptl_context_info info;
    if (!problem_create(&small, "hstu s=100 d=16", 0, r->text, r->size)) return false;
    small.isa = p->isa;
    const bool ok = run_problem(&small, &info, r);
    problem_destroy(&small);
    return ok;
}

static bool probe(const struct settings *s, const struct ptl_context_info *info,
                  struct probe_rates *rates, struct refusal *r) {
    if (probe_measure(s->probe, info->isa, info->num_threads, rates)) return true;
    return refuse(r, "threads: no %d of them for the probe", (int)info->num_threads);
}

static bool measure(const struct settings *s, const struct problem *p, struct bench_result *result,
                    struct refusal *r) {
    struct ptl_context *ctx = NULL;
    struct ptl_context_info info = {.struct_size = sizeof info};
    struct probe_rates before, after;
    struct comparison comparison;
    struct times times = {0};
    bool ok = false;
    if (!touch_code(p, r) || !open_context(p, &ctx, r)) return false;
    ptl_context_get_info(ctx, &info);
    result->isa = info.isa;
    result->executor = info.executor;
    result->threads = info.num_threads;

    reset_peak();
    const double resident = status_bytes("VmRSS");
    if (!call_operator(ctx, p, r)) goto done;
    result->extra_bytes = extra_bytes(ctx, status_bytes("VmHWM") - resident);

    if (!probe(s, &info, &before, r) || !time_calls(s, ctx, p, info.num_threads, &times, r) ||
        !probe(s, &info, &after, r))
        goto done;
    if (!compare_hstu(p, sample_seconds, &comparison)) {
        refuse(r, "reference: no memory");
        goto done;
    }
    rate(result, p, &times, &before, &after);
    result->error = comparison.padding_clean ? comparison.error : INFINITY;
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

static int bench_case(const struct settings *s, struct words *w, int width, struct refusal *r) {
    struct problem p;
    struct output out;
    struct bench_result result = {.op = w->op};
    bool ok = false;
    char *text = problem_text(w);
    if (!text) return complain("line: no memory");
    result.problem = text;
    if (problem_open(&p, &out, w, r)) {
        ok = measure(s, &p, &result, r) && output_write(&out, &p, r);
        problem_destroy(&p);
        output_free(&out);
    }
    clear_progress();
    if (ok) report_result(s->format, width, &result);
    free(text);
    if (!ok) return complain(r->text);
    return result.error <= HSTU_ERROR_BOUND ? EXIT_PASS : EXIT_MISMATCH;
}

static int bench_all(const struct settings *s, const struct words *w, struct refusal *r) {
    const int64_t n = sweep_count(w);
    int worst = EXIT_PASS;
    if (n < 0) {
        refuse(r, "line: stands for more than %d cases", SWEEP_MAX);
        return complain(r->text);
    }
    const int width = longest_problem(w, n);
    report_begin(s->format, width);
    for (int64_t i = 0; i < n; i++) {
        struct words one;
        if (!sweep_line(w, i, &one, r)) return complain(r->text);
        char *text = problem_text(&one);
        show_progress(i, n, text ? text : "");
        free(text);
        const int status = bench_case(s, &one, width, r);
        if (status > worst) worst = status;
        words_free(&one);
    }
    return worst;
}

/* Takes the options out of the arguments; *n is what remains. */
static bool take_options(int argc, char **argv, struct settings *s, char **rest, int *n,
                         struct refusal *r) {
    static const char *const formats[] = {"md", "csv", "jsonl", NULL};
    int format = 0;
    *n = 0;
    for (int i = 1; i < argc; i++) {
        const char *option = argv[i];
        if (*option != '-') {
            rest[(*n)++] = argv[i];
            continue;
        }
        if (strcmp(option, "--reps") != 0 && strcmp(option, "--time") != 0 &&
            strcmp(option, "-o") != 0)
            return refuse(r, "'%.60s': unknown option, see 'pantile help bench'", option);
        if (++i == argc)
            return refuse(r, "%s: nothing behind it, see 'pantile help bench'", option);
        if (strcmp(option, "--reps") == 0) {
            if (!read_integer(option, argv[i], 1, MAX_REPS, &s->reps, r)) return false;
        } else if (strcmp(option, "--time") == 0) {
            if (!read_real(option, argv[i], &s->seconds, r)) return false;
        } else {
            if (!read_choice(option, argv[i], formats, &format, r)) return false;
        }
    }
    s->format = (enum report_format)format;
    return true;
}

static int bench_main(int argc, char **argv) {
    char sentence[1024] = "";
    struct refusal refusal = {sentence, sizeof sentence};
    struct settings settings = {.seconds = 1.0};
    struct words w;
    int n;
    char **rest = malloc((size_t)argc * sizeof *rest);
    if (!rest) return complain("line: no memory");
    const bool ok = take_options(argc, argv, &settings, rest, &n, &refusal) &&
                    words_of_arguments(&w, n, rest, &refusal);
    free(rest);
    if (!ok) return complain(sentence);
    int status;
    settings.probe = probe_create();
    if (settings.probe) status = bench_all(&settings, &w, &refusal);
    else status = complain("probe: no memory");
    probe_destroy(settings.probe);
    words_free(&w);
    return status;
}

const struct command bench_command = {"bench", "time problems against the machine's peak", help,
                                      bench_main};
