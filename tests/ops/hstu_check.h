/* Runs an HSTU problem on every level, thread count and executor, and holds the results to the
 * reference and to each other. Where the problems come from is the business of the tests. */
#ifndef PTL_TESTS_HSTU_CHECK_H
#define PTL_TESTS_HSTU_CHECK_H

#include <pantile/pantile.h>

#include "harness.h"
#include "problem.h"

enum { MAX_LINE = 1024, MAX_VARIANTS = 64 };

/* The bound on max |got - expected| / max |expected| of a problem in f32, and of any type. */
#define HSTU_BOUND 5e-6
double hstu_bound(enum ptl_dtype type);

/* Half the distance from 1 to the next number of the type: the relative error of one rounding. */
double hstu_unit(enum ptl_dtype type);

/* One way to run: its context lives as long as the process and sees every problem, so that it
 * grows, shrinks and is reused. */
struct hstu_variant {
    enum ptl_isa isa;
    bool first; /* of its level: serial, what the others must equal bit for bit */
    char name[32];
    struct ptl_context *ctx;
};

/* For each level: serial; pool of 2 and of 7 threads; the host's threads (3); a host that runs the
 * ranges of 5 one after the other. NULL ends them. */
const struct hstu_variant *hstu_variant(int i);

/* The problem of a line, every array before an unmapped page. Fails the case and returns false when
 * the line is wrong. */
bool hstu_problem(struct problem *problem, const char *line);

int64_t hstu_out_floats(const struct ptl_hstu_params *p);

/* Calls the library with out full of GUARD_WORD; copies out's elements to `got` in C order, as
 * floats. False, with the case failed, when the call fails or anything between the elements was
 * written. */
bool hstu_run(const struct ptl_hstu_params *p, const struct hstu_variant *v, float *got);

/* Fails the case unless got is within the bound of the reference: NaN where it is NaN, infinite
 * where it is infinite in the type, +0 in rows of padding. `what` begins the sentence. */
bool hstu_compare(const struct ptl_hstu_params *p, const float *got, const double *expected,
                  const char *what);

/* Sum over the bytes of all inputs. */
uint64_t hstu_inputs_checksum(const struct ptl_hstu_params *p);

/* The same arguments without signs: what they give is the size that rounding errors grow from.
 * Memory is freed by the other. */
struct ptl_hstu_params hstu_positive(const struct ptl_hstu_params *p);
void hstu_positive_free(struct ptl_hstu_params *p);

/* All of it: every variant against the reference, halves also against twice the error of a plain
 * evaluation in halves, variants of a level alike bit for bit, inputs unchanged. */
void hstu_check(const struct ptl_hstu_params *p);

/* The same for a line, forward or backward, within the current case. */
void hstu_check_line(const char *line);

/* malloc that ends the process when there is no memory. */
void *test_alloc(size_t bytes);

#endif
