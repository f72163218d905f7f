/* The suites of this folder. */
#ifndef PTL_TESTS_NSA_SUITES_H
#define PTL_TESTS_NSA_SUITES_H

#include "harness.h"

extern const struct test_suite nsa_reference_suite;
extern const struct test_suite nsa_examples_suite;
extern const struct test_suite nsa_identities_suite;
extern const struct test_suite nsa_edges_suite;
extern const struct test_suite nsa_nonfinite_suite;
extern const struct test_suite nsa_selection_suite;
extern const struct test_suite nsa_compression_suite;
extern const struct test_suite nsa_cache_suite;
extern const struct test_suite nsa_refusals_suite;
extern const struct test_suite nsa_nomem_suite;
extern const struct test_suite full_attention_suite;

#endif
