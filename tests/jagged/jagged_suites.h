/* The suites of this folder. */
#ifndef PTL_TESTS_JAGGED_SUITES_H
#define PTL_TESTS_JAGGED_SUITES_H

#include "harness.h"

extern const struct test_suite jagged_copies_suite;
extern const struct test_suite jagged_sums_suite;
extern const struct test_suite jagged_gradients_suite;
extern const struct test_suite position_time_suite;
extern const struct test_suite jagged_refusals_suite;
extern const struct test_suite jagged_huge_suite;
extern const struct test_suite jagged_nomem_suite;
extern const struct test_suite jagged_bench_suite;

#endif
