/* The suites of this folder. */
#ifndef PTL_TESTS_API_SUITES_H
#define PTL_TESTS_API_SUITES_H

#include "harness.h"

extern const struct test_suite api_base_suite;
extern const struct test_suite api_context_suite;
extern const struct test_suite api_hstu_tensors_suite;
extern const struct test_suite api_hstu_options_suite;
extern const struct test_suite api_hstu_accepts_suite;
extern const struct test_suite api_hstu_bias_suite;
extern const struct test_suite api_hstu_backward_suite;
extern const struct test_suite api_hstu_nomem_suite;

#endif
