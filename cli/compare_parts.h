/* What the comparisons of the operators share; for compare*.c. */
#ifndef PTL_COMPARE_PARTS_H
#define PTL_COMPARE_PARTS_H

#include "compare.h"

/* Nanoseconds of the reference on one 3.2 GHz Zen 3 core: per pair for the question whether it is
 * valid, per valid pair and element for the arithmetic (1.5 with keys in cache, 3.2 from L3). */
#define ASK_NS 13.0
#define ELEMENT_NS 3.0

enum { MIN_SAMPLE = 16 }; /* rows of a head */

/* Differences met so far. */
struct tally {
    double largest, worst; /* |expected|, |got - expected| */
};

/* n elements of t from `at` on. */
void tally_row(struct tally *tally, const struct ptl_tensor *t, int64_t at, const double *expected,
               int64_t n);

void add_part(struct comparison *result, const char *name, const struct tally *tally, double bound);

/* How many of n_all rows to compare when all take `all` seconds; not fewer than `enough`. */
int64_t rows_within(double all, double seconds, int64_t n_all, int64_t enough);

/* Row number k of n picked among n_all: one from each of equal stretches, first and last included,
 * so that every part of every long sequence is met. */
int64_t pick_row(uint64_t seed, int64_t k, int64_t n, int64_t n_all);

/* An array like t, contiguous, of zeros; data is to be freed, and NULL where t has none. */
bool take_twin(const struct ptl_tensor *t, struct ptl_tensor *twin);

#endif
