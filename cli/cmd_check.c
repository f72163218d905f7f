/* pantile check: one problem, computed by the library and by the reference in double. */
#include <inttypes.h>
#include <stdio.h>

#include "arrays.h"
#include "commands.h"
#include "compare.h"
#include "runner.h"

/* What the reference may take; longer problems are sampled. */
static const double reference_seconds = 2.0;

static const char help[] =
    "usage: pantile check LINE\n"
    "\n"
    "Computes the problem of LINE and compares it with plain loops in double. The error is the "
    "largest\n"
    "difference over the largest |out|; all rows are compared, or a sample when all would take "
    "more\n"
    "than about two seconds. Lines are generated problems,\n"
    "\n"
    "  pantile check hstu b=3 h=2 lengths=uniform:0,700 d=64 num_targets=random:8\n"
    "\n"
    "logged calls (PTL_VERBOSE=1), or lines with arrays as for run. 'pantile help hstu' lists the "
    "words.\n"
    "Exit status: 0 PASS, 1 FAIL, 2 the line was refused.\n";

static void print_verdict(const struct comparison *c, const struct ptl_context_info *info) {
    const bool pass = c->error <= HSTU_ERROR_BOUND && c->padding_clean;
    printf("%s: error %.2e, bound %.0e, ", pass ? "PASS" : "FAIL", c->error, HSTU_ERROR_BOUND);
    if (c->n_rows == c->n_all_rows) printf("all %" PRId64 " rows", c->n_rows);
    else printf("%" PRId64 " of %" PRId64 " rows, sampled", c->n_rows, c->n_all_rows);
    printf("%s; %s, %s, %d thread%s\n", c->padding_clean ? "" : ", padding rows of out are not 0",
           ptl_isa_name(info->isa), executor_name(info->executor), (int)info->num_threads,
           info->num_threads == 1 ? "" : "s");
}

static int check(struct words *w, struct refusal *r) {
    struct problem p;
    struct output out;
    struct ptl_context_info info;
    struct comparison c;
    int status = EXIT_REFUSED;
    if (!problem_open(&p, &out, w, r)) return complain(r->text);
    if (!run_problem(&p, &info, r) || !output_write(&out, &p, r)) {
        complain(r->text);
    } else if (!compare_hstu(&p, reference_seconds, &c)) {
        complain("reference: no memory");
    } else {
        print_verdict(&c, &info);
        status = c.error <= HSTU_ERROR_BOUND && c.padding_clean ? EXIT_PASS : EXIT_MISMATCH;
    }
    problem_destroy(&p);
    output_free(&out);
    return status;
}

static int check_main(int argc, char **argv) {
    char sentence[1024];
    struct refusal refusal = {sentence, sizeof sentence};
    struct words w;
    if (!words_of_arguments(&w, argc - 1, argv + 1, &refusal)) return complain(sentence);
    const int status = check(&w, &refusal);
    words_free(&w);
    return status;
}

const struct command check_command = {"check", "compute and compare with double", help, check_main};
