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
extern const struct test_suite hstu_options_suite;
extern const struct test_suite hstu_reference_suite;
extern const struct test_suite hstu_bias_suite;
extern const struct test_suite hstu_paged_suite;
extern const struct test_suite hstu_backward_suite;
extern const struct test_suite hstu_faults_suite;
extern const struct test_suite hstu_gradient_huge_suite;
extern const struct test_suite threads_suite;

#endif
