/* The suites of this folder. */
#ifndef PTL_TESTS_OP_SUITES_H
#define PTL_TESTS_OP_SUITES_H

#include "harness.h"

extern const struct test_suite hstu_lines_suite;
extern const struct test_suite hstu_intervals_suite;
extern const struct test_suite hstu_edges_suite;
extern const struct test_suite hstu_identities_suite;
extern const struct test_suite hstu_nonfinite_suite;
extern const struct test_suite hstu_huge_suite;
extern const struct test_suite threads_suite;

#endif
