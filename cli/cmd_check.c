/* pantile check: one problem, computed by the library and by the reference in double. */
#include <inttypes.h>
#include <stdio.h>

#include "call.h"
#include "commands.h"
#include "compare.h"
#include "runner.h"

/* What the reference may take; longer problems are sampled. */
static const double reference_seconds = 2.0;

static const char help[] =
    "usage: pantile check LINE\n"
    "\n"
    "Computes the problem of LINE and compares it with plain loops in double. The error is the\n"
    "largest difference over the largest value, of out or of each gradient; all rows are "
    "compared,\n"
    "or a sample when all would take more than about two seconds (of gradients then dq, dk and "
    "dv).\n"
    "Copies are compared bit for bit. Lines are generated problems,\n"
    "\n"
    "  pantile check hstu b=3 h=2 lengths=uniform:0,700 d=64 num_targets=random:8\n"
    "  pantile check hstu_backward h=2 s=300 d=64 dtype=bf16\n"
    "\n"
    "logged calls (PTL_VERBOSE=1), or lines with arrays as for run. 'pantile help hstu' and\n"
    "'pantile help jagged' list the words.\n"
    "Exit status: 0 PASS, 1 FAIL, 2 the line was refused.\n";

static bool passes(const struct comparison *c) {
    return comparison_error(c) <= c->bound;
}

/* "error 1e-07", or for several outputs "dq 1e-07, dk 2e-07". */
static void print_errors(const struct comparison *c) {
    for (int i = 0; i < c->n_parts; i++)
        printf("%s %.2e, ", c->n_parts == 1 ? "error" : c->parts[i].name, c->parts[i].error);
}

static void print_verdict(const struct comparison *c, const struct ptl_context_info *info) {
    printf("%s: ", passes(c) ? "PASS" : "FAIL");
    print_errors(c);
    printf("bound %.3g, ", c->bound);
    if (c->n_rows == c->n_all_rows) printf("all %" PRId64 " rows", c->n_rows);
    else printf("%" PRId64 " of %" PRId64 " rows, sampled", c->n_rows, c->n_all_rows);
    printf("%s; %s, %s, %d thread%s\n", c->padding_clean ? "" : ", padding rows of out are not 0",
           ptl_isa_name(info->isa), executor_name(info->executor), (int)info->num_threads,
           info->num_threads == 1 ? "" : "s");
}

static int check(struct words *w, struct refusal *r) {
    struct call call;
    struct ptl_context_info info;
    struct comparison comparison;
    int status = EXIT_REFUSED;
    if (!call_open(&call, w, r)) return complain(r->text);
    if (!run_call(&call, &info, r) || !call_write(&call, r)) {
        complain(r->text);
    } else if (!compare_call(&call, reference_seconds, &comparison)) {
        complain("reference: no memory");
    } else {
        print_verdict(&comparison, &info);
        status = passes(&comparison) ? EXIT_PASS : EXIT_MISMATCH;
    }
    call_close(&call);
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
