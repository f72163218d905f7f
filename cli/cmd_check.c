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
    "largest difference over the largest value, of each output; all rows are compared, or a "
    "sample\n"
    "when all would take more than about two seconds (of gradients then dq, dk and dv). Copies "
    "are\n"
    "compared bit for bit. Of a selection the error is by how much a block that was taken falls "
    "short of\n"
    "those that should have been. Lines are generated problems,\n"
    "\n"
    "  pantile check hstu b=3 h=2 lengths=uniform:0,700 d=64 num_targets=random:8\n"
    "  pantile check hstu_backward h=2 s=300 d=64 dtype=bf16\n"
    "  pantile check nsa_decode b=2 h=8 hk=2 s=3000 d=64 page_size=16\n"
    "\n"
    "logged calls (PTL_VERBOSE=1), or lines with arrays as for run. 'pantile help hstu', 'help "
    "jagged'\n"
    "and 'help nsa' list the words.\n"
    "Exit status: 0 PASS, 1 FAIL, 2 the line was refused.\n";

static bool one_bound(const struct comparison *c) {
    for (int i = 1; i < c->n_parts; i++)
        if (c->parts[i].bound != c->parts[0].bound) return false;
    return true;
}

/* "error 1e-07, bound 5e-06", or for several outputs "dq 1e-07, dk 2e-07, bound 1e-05", or where
 * their bounds differ "out 1e-07 of 2e-05, lse 2e-07 of 1e-05". */
static void print_errors(const struct comparison *c) {
    const bool one = one_bound(c);
    for (int i = 0; i < c->n_parts; i++) {
        printf("%s %.2e", c->n_parts == 1 ? "error" : c->parts[i].name, c->parts[i].error);
        if (!one) printf(" of %.3g", c->parts[i].bound);
        fputs(", ", stdout);
    }
    if (one && c->n_parts > 0) printf("bound %.3g, ", c->parts[0].bound);
}

static void print_verdict(const struct comparison *c, const struct ptl_context_info *info) {
    printf("%s: ", comparison_passes(c) ? "PASS" : "FAIL");
    print_errors(c);
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
        status = comparison_passes(&comparison) ? EXIT_PASS : EXIT_MISMATCH;
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
