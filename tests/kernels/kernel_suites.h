/* The suites of this folder. */
#ifndef PTL_TESTS_KERNEL_SUITES_H
#define PTL_TESTS_KERNEL_SUITES_H

#include "harness.h"

extern const struct test_suite kernel_product_suite;
extern const struct test_suite kernel_silu_suite;
extern const struct test_suite kernel_panel_suite;
extern const struct test_suite kernel_convert_suite;
extern const struct test_suite kernel_score_suite;
extern const struct test_suite kernel_grad_suite;
extern const struct test_suite kernel_rows_suite;
extern const struct test_suite kernel_softmax_suite;
extern const struct test_suite kernel_pairs_suite;

#endif
