/* pantile compare: two files of bench results, problem by problem. It times nothing. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "bench_rows.h"
#include "commands.h"
#include "options.h"

static const char help[] =
    "usage: pantile compare OLD NEW [--fail-slower PERCENT]\n"
    "\n"
    "Compares two files that 'pantile bench -o jsonl' wrote:\n"
    "\n"
    "  pantile bench hstu h=4 s=512,2048 d=64 threads=1 -o jsonl > old.jsonl\n"
    "  pantile compare old.jsonl new.jsonl --fail-slower 5%\n"
    "\n"
    "  --fail-slower PERCENT  exit status 1 when a problem is slower by more than this\n"
    "\n"
    "The change is that of the share of the FMA peak where both have one, so that a CPU which\n"
    "clocks lower today is no loss, else that of the fastest call. It is called slower or faster\n"
    "beyond PERCENT, 5 when not given. A problem that stands in a file several times counts by\n"
    "its fastest undisturbed line. Not judged, and marked, is what was measured on another CPU,\n"
    "level, number of threads or executor, what is disturbed, and what only one file has.\n"
    "Exit status: 0, 1 slower with --fail-slower, 2 when a file was refused or nothing was "
    "judged.\n";

static const double default_percent = 5.0;

static bool same(const char *a, const char *b) {
    return strcmp(a ? a : "", b ? b : "") == 0;
}

static bool same_problem(const struct bench_row *a, const struct bench_row *b) {
    return same(a->op, b->op) && same(a->problem, b->problem);
}

/* What keeps two rows of one problem apart; NULL: nothing. */
static const char *difference(const struct bench_row *a, const struct bench_row *b) {
    if (!same(a->cpu, b->cpu)) return "another CPU";
    if (!same(a->isa, b->isa)) return "another isa";
    if (a->threads != b->threads) return "other threads";
    if (!same(a->executor, b->executor)) return "another executor";
    return NULL;
}

static bool better(const struct bench_row *a, const struct bench_row *b) {
    return a->disturbed == b->disturbed ? a->min_ms < b->min_ms : b->disturbed;
}

/* The best row of x's problem measured as x was; else, with *reason, the best that was not; NULL:
 * the problem is not there. */
static const struct bench_row *counterpart(const struct bench_rows *rows, const struct bench_row *x,
                                           const char **reason) {
    const struct bench_row *best = NULL;
    *reason = NULL;
    for (int64_t i = 0; i < rows->n; i++) {
        const struct bench_row *row = &rows->row[i];
        if (!same_problem(row, x)) continue;
        const char *apart = difference(row, x);
        const bool takes = !best || (!apart == !*reason ? better(row, best) : !apart);
        if (!takes) continue;
        best = row;
        *reason = apart;
    }
    return best;
}

/* Whether x speaks for its problem in its file. */
static bool counts(const struct bench_rows *rows, const struct bench_row *x) {
    const char *reason;
    return counterpart(rows, x, &reason) == x;
}

/* How much longer the new row takes, in percent. */
static double change(const struct bench_row *old, const struct bench_row *new) {
    if (old->peak_fraction > 0.0 && new->peak_fraction > 0.0)
        return 100.0 * (old->peak_fraction / new->peak_fraction - 1.0);
    return 100.0 * (new->min_ms / old->min_ms - 1.0);
}

struct summary {
    int64_t slower, same, faster, not_judged;
};

static void print_row(const struct bench_row *x, const struct bench_row *old,
                      const struct bench_row *new, const char *percent, const char *verdict) {
    printf("| %s | %s | %s | %d |", x->op, x->problem, x->isa, x->threads);
    for (int i = 0; i < 2; i++) {
        const struct bench_row *row = i ? new : old;
        if (row) printf(" %.3f |", row->min_ms);
        else fputs(" - |", stdout);
    }
    printf(" %s | %s |\n", percent, verdict);
}

static void judge(const struct bench_row *old, const struct bench_row *new, double limit,
                  struct summary *sum) {
    char percent[32];
    const double x = change(old, new);
    snprintf(percent, sizeof percent, "%+.1f %%", x);
    int64_t *count = x > limit ? &sum->slower : x < -limit ? &sum->faster : &sum->same;
    const char *verdict = count == &sum->slower ? "slower"
                          : count == &sum->same ? "same"
                                                : "faster";
    if (old->disturbed || new->disturbed) {
        count = &sum->not_judged;
        verdict = "disturbed";
    }
    ++*count;
    print_row(new, old, new, percent, verdict);
}

static void compare_rows(const struct bench_rows *old, const struct bench_rows *new, double limit,
                         struct summary *sum) {
    const char *reason;
    puts("| op | problem | isa | threads | old ms | new ms | change | |\n"
         "|:---|:--------|:----|--------:|-------:|-------:|-------:|:-|");
    for (int64_t i = 0; i < new->n; i++) {
        const struct bench_row *x = &new->row[i];
        if (!counts(new, x)) continue;
        const struct bench_row *before = counterpart(old, x, &reason);
        if (before && !reason) {
            judge(before, x, limit, sum);
        } else {
            sum->not_judged++;
            print_row(x, before, x, "-", before ? reason : "only new");
        }
    }
    for (int64_t i = 0; i < old->n; i++) {
        const struct bench_row *x = &old->row[i];
        if (!counts(old, x) || counterpart(new, x, &reason)) continue;
        sum->not_judged++;
        print_row(x, x, NULL, "-", "only old");
    }
    printf("\n%" PRId64 " slower, %" PRId64 " same, %" PRId64 " faster, %" PRId64 " not judged\n",
           sum->slower, sum->same, sum->faster, sum->not_judged);
}

static bool read_percent(const char *text, double *percent, struct refusal *r) {
    char number[32];
    snprintf(number, sizeof number, "%.*s", (int)strcspn(text, "%"), text);
    if (read_real("--fail-slower", number, percent, r) && *percent >= 0.0) return true;
    return refuse(r, "--fail-slower: '%.30s', expected a percentage from 0 on", text);
}

static int compare_main(int argc, char **argv) {
    char sentence[512];
    struct refusal refusal = {sentence, sizeof sentence};
    struct option options[] = {{"--fail-slower", NULL}, {NULL, NULL}};
    struct bench_rows old = {0}, new = {0};
    struct summary sum = {0};
    double limit = default_percent;
    const int n = take_options(argc, argv, options, &refusal);
    if (n < 0) return complain(sentence);
    if (n != 2) return complain("compare: expected two files, see 'pantile help compare'");
    if (options[0].value && !read_percent(options[0].value, &limit, &refusal))
        return complain(sentence);

    const bool ok =
        bench_rows_read(&old, argv[1], &refusal) && bench_rows_read(&new, argv[2], &refusal);
    if (ok) compare_rows(&old, &new, limit, &sum);
    bench_rows_free(&old);
    bench_rows_free(&new);
    if (!ok) return complain(sentence);
    if (sum.slower + sum.same + sum.faster == 0) return complain("compare: nothing was judged");
    return options[0].value && sum.slower ? EXIT_MISMATCH : EXIT_PASS;
}

const struct command compare_command = {"compare", "two outputs of bench, old and new", help,
                                        compare_main};
