/* Runs NSA problems on every level, thread count and executor, and holds the results to the
 * reference and to each other. Where the problems come from is the business of the tests. */
#ifndef PTL_TESTS_NSA_CHECK_H
#define PTL_TESTS_NSA_CHECK_H

#include "nsa_problem.h"
#include "ops/hstu_check.h"

enum nsa_output {
    NSA_OUT,
    NSA_OUT_CMP,
    NSA_OUT_SLC,
    NSA_OUT_SWA,
    NSA_LSE_CMP,
    NSA_LSE_SLC,
    NSA_LSE_SWA,
    NSA_IMPORTANCE,
    NSA_IDX,
    NSA_NSEL,
    NSA_N_OUTPUTS
};

/* The tensor of an output, and its name. */
struct ptl_tensor *nsa_output(struct ptl_nsa_params *p, int output);
const char *nsa_output_name(int output);

/* What a call wrote: for each output rows of `width` floats (idx, nsel: int32 as they are), NULL
 * where not asked for. */
struct nsa_results {
    float *row[NSA_N_OUTPUTS];
    int64_t width[NSA_N_OUTPUTS];
};

enum nsa_way {
    NSA_FORWARD, /* ptl_nsa_forward */
    NSA_STEPS    /* compressed attention, selection once more, attend, combine */
};

/* Calls the library on outputs full of GUARD_WORD and takes the results, to be freed. False, with
 * the case failed, when a call fails or anything else was written. */
bool nsa_run(struct nsa_problem *x, struct ptl_context *ctx, enum nsa_way way,
             struct nsa_results *r);
void nsa_results_free(struct nsa_results *r);

/* Fails the case unless the rows are the same bits, NaN and all; what both have is compared. */
bool nsa_same_rows(const struct nsa_results *a, int64_t row_a, const struct nsa_results *b,
                   int64_t row_b, const char *what);

/* Fails the case unless the results are within the bounds of the reference, the selection by the
 * rule of docs/nsa.md. Of many rows some are looked at. */
void nsa_compare(struct nsa_problem *x, const struct nsa_results *r, const char *what);

/* All of it: every variant, forward against the reference, variants of a level alike bit for bit,
 * the steps as forward. */
void nsa_check(const struct nsa_spec *s);

/* The same as a case of its own. */
void nsa_check_case(const struct nsa_spec *s);

/* A problem, and its results on each level. */
struct nsa_whole {
    struct nsa_problem x;
    struct nsa_results results[8];
    bool ok;
};

void nsa_whole_create(struct nsa_whole *w, const struct nsa_spec *s);
void nsa_whole_destroy(struct nsa_whole *w);

/* Runs the part on each level, by its variant number `n` modulo their count, and fails the case
 * unless every row that both have, by sequence id and position, has the same bits. Returns how many
 * rows were compared. */
int64_t nsa_same_part(const struct nsa_whole *w, const struct nsa_spec *part, int n);

#endif
