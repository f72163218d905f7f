/* The runner behind harness.h: filters, counts, messages, the report of a crash.
 * Tests run one after the other in one process; nothing is retried. */
#define _GNU_SOURCE
#include "harness.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MAX_FILTERS = 16, MAX_PRINTED = 4 };

static const char usage[] =
    "usage: pantile_tests [options] [filter...]\n"
    "  filter       run tests whose name contains it; several: any of them\n"
    "  --list       print the names and stop\n"
    "  --quick      a few small cases of each test, for sanitizers and emulators\n"
    "  --bench      time the kernels instead of checking them\n"
    "  --line TEXT  check one problem line on every level and thread count\n";

static struct {
    bool quick, bench, list;
    const char *line;
    const char *filters[MAX_FILTERS];
    int n_filters;
    int n_passed, n_failed, n_skipped;
} run;

/* The test that runs now, and its current case. */
static struct {
    char name[256];
    char text[4096]; /* of the case; empty: the test is one case */
    bool open, failed, skipped;
    int n_failures, n_cases, n_failed;
} now;

static struct sigaction old_segv, old_bus;

/* ---- Cases ----------------------------------------------------------------------------------- */

static void close_case(void) {
    if (!now.open) return;
    now.open = false;
    now.n_cases++;
    if (now.failed) {
        run.n_failed++;
        now.n_failed++;
    } else if (now.skipped) {
        run.n_skipped++;
    } else {
        run.n_passed++;
    }
}

static void open_case(const char *text) {
    snprintf(now.text, sizeof now.text, "%s", text);
    now.open = true;
    now.failed = now.skipped = false;
    now.n_failures = 0;
}

void test_case(const char *format, ...) {
    char text[sizeof now.text];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (now.text[0] || now.failed || now.skipped) close_case();
    open_case(text);
}

void test_note(const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(now.text, sizeof now.text, format, args);
    va_end(args);
}

void test_fail(const char *file, int line, const char *format, ...) {
    now.failed = true;
    if (now.n_failures++ == MAX_PRINTED) printf("    ... more failures in this case\n");
    if (now.n_failures > MAX_PRINTED) return;
    if (now.n_failures == 1) printf("FAIL  %s\n", now.name);
    if (now.n_failures == 1 && now.text[0]) printf("    %s\n", now.text);
    const char *base = strrchr(file, '/');
    printf("    %s:%d: ", base ? base + 1 : file, line);
    va_list args;
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    printf("\n");
    fflush(stdout);
}

void test_skip(const char *format, ...) {
    now.skipped = true;
    printf("skip  %s: ", now.name);
    va_list args;
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    printf("\n");
}

bool test_case_failed(void) {
    return now.failed;
}
bool test_quick(void) {
    return run.quick;
}
bool test_bench(void) {
    return run.bench;
}
const char *test_line(void) {
    return run.line;
}

/* ---- Levels ---------------------------------------------------------------------------------- */

#if defined(__x86_64__)
static const enum ptl_isa arch_levels[] = {PTL_ISA_SCALAR, PTL_ISA_AVX2, PTL_ISA_AVX512,
                                           PTL_ISA_AVX512BF16};
#elif defined(__aarch64__)
static const enum ptl_isa arch_levels[] = {PTL_ISA_SCALAR, PTL_ISA_NEON};
#else
static const enum ptl_isa arch_levels[] = {PTL_ISA_SCALAR};
#endif
enum { N_ARCH_LEVELS = sizeof arch_levels / sizeof arch_levels[0] };

static enum ptl_isa present[N_ARCH_LEVELS], missing[N_ARCH_LEVELS];
static int n_present, n_missing;

static void find_levels(void) {
    for (int i = 0; i < N_ARCH_LEVELS; i++) {
        if (ptl_isa_available(arch_levels[i])) present[n_present++] = arch_levels[i];
        else missing[n_missing++] = arch_levels[i];
    }
    printf("levels tested:");
    for (int i = 0; i < n_present; i++) printf(" %s", ptl_isa_name(present[i]));
    printf("\n");
    for (int i = 0; i < n_missing; i++)
        printf("NOT TESTED: %s, which this CPU lacks or PTL_CPU excludes\n",
               ptl_isa_name(missing[i]));
}

int test_n_levels(void) {
    return n_present;
}
enum ptl_isa test_level(int i) {
    return present[i];
}
int test_n_missing_levels(void) {
    return n_missing;
}
enum ptl_isa test_missing_level(int i) {
    return missing[i];
}

/* ---- Random numbers, time -------------------------------------------------------------------- */

/* splitmix64 (Steele, Lea, Flood 2014). */
uint64_t test_random_bits(struct test_random *r) {
    uint64_t x = r->state += 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
}

int64_t test_random_int(struct test_random *r, int64_t low, int64_t high) {
    return low + (int64_t)(test_random_bits(r) % (uint64_t)(high - low + 1));
}

float test_random_float(struct test_random *r) {
    return (float)(test_random_bits(r) >> 40) * (2.0f / 16777216.0f) - 1.0f;
}

double test_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- The run --------------------------------------------------------------------------------- */

static void write_text(const char *text) {
    if (write(STDOUT_FILENO, text, strlen(text)) < 0) return;
}

/* Names the test, then lets the fault happen again under the previous handler (a sanitizer's, or
 * none), which ends the process. */
static void report_crash(int signal_number) {
    write_text("\nCRASH (a read or write outside its array?) in ");
    write_text(now.name);
    write_text("\n    ");
    write_text(now.text);
    write_text("\n");
    sigaction(signal_number, signal_number == SIGBUS ? &old_bus : &old_segv, NULL);
}

static void watch_crashes(void) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = report_crash;
    sigaction(SIGSEGV, &action, &old_segv);
    sigaction(SIGBUS, &action, &old_bus);
}

static bool selected(const char *name) {
    const size_t n = strlen(name);
    const bool is_line = n > 5 && strcmp(name + n - 5, "/line") == 0;
    if (is_line || run.line) return is_line && run.line;
    for (int i = 0; i < run.n_filters; i++)
        if (strstr(name, run.filters[i])) return true;
    return run.n_filters == 0;
}

static bool read_arguments(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--quick") == 0) run.quick = true;
        else if (strcmp(argv[i], "--bench") == 0) run.bench = true;
        else if (strcmp(argv[i], "--list") == 0) run.list = true;
        else if (strcmp(argv[i], "--line") == 0 && i + 1 < argc) run.line = argv[++i];
        else if (argv[i][0] == '-' || run.n_filters == MAX_FILTERS) return false;
        else run.filters[run.n_filters++] = argv[i];
    }
    return true;
}

static void run_test(const char *name, const struct test *test) {
    snprintf(now.name, sizeof now.name, "%s", name);
    now.n_cases = now.n_failed = 0;
    fflush(stdout);
    const double begin = test_seconds();
    open_case("");
    test->run();
    close_case();
    printf("%s  %s: %d case%s, %.2f s\n", now.n_failed ? "FAIL" : "ok  ", name, now.n_cases,
           now.n_cases == 1 ? "" : "s", test_seconds() - begin);
}

int test_main(int argc, char **argv, const struct test_suite *const *suites, int n_suites) {
    if (!read_arguments(argc, argv)) {
        fputs(usage, stderr);
        return 2;
    }
    if (!run.list) find_levels();
    watch_crashes();
    for (int s = 0; s < n_suites; s++)
        for (int i = 0; i < suites[s]->n_tests; i++) {
            char name[sizeof now.name];
            snprintf(name, sizeof name, "%s/%s", suites[s]->theme, suites[s]->tests[i].name);
            if (!selected(name)) continue;
            if (run.list) puts(name);
            else run_test(name, &suites[s]->tests[i]);
        }
    if (run.list) return 0;
    printf("%d passed, %d failed", run.n_passed, run.n_failed);
    if (run.n_skipped) printf(", %d skipped", run.n_skipped);
    printf("\n");
    if (run.n_passed + run.n_failed + run.n_skipped == 0) return 2; /* no test of that name */
    return run.n_failed ? 1 : 0;
}
