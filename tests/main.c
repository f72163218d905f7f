/* The list of suites: `pantile_tests [filter...]` runs them. Nothing else is here. */
#include "api/api_suites.h"
#include "harness.h"
#include "jagged/jagged_suites.h"
#include "kernels/kernel_suites.h"
#include "nsa/nsa_suites.h"
#include "ops/op_suites.h"

static const struct test_suite *const suites[] = {
    &api_base_suite,         &api_context_suite,        &api_hstu_tensors_suite,
    &api_hstu_options_suite, &api_hstu_accepts_suite,   &api_hstu_nomem_suite,
    &api_hstu_bias_suite,    &api_hstu_backward_suite,  &kernel_product_suite,
    &kernel_silu_suite,      &kernel_panel_suite,       &kernel_convert_suite,
    &kernel_score_suite,     &kernel_grad_suite,        &kernel_rows_suite,
    &kernel_softmax_suite,   &hstu_intervals_suite,     &hstu_edges_suite,
    &hstu_nonfinite_suite,   &hstu_huge_suite,          &hstu_gradient_huge_suite,
    &threads_suite,          &hstu_lines_suite,         &hstu_identities_suite,
    &hstu_options_suite,     &hstu_reference_suite,     &hstu_bias_suite,
    &hstu_paged_suite,       &hstu_backward_suite,      &hstu_faults_suite,
    &jagged_copies_suite,    &jagged_sums_suite,        &jagged_gradients_suite,
    &position_time_suite,    &jagged_refusals_suite,    &jagged_huge_suite,
    &jagged_nomem_suite,     &jagged_bench_suite,       &nsa_examples_suite,
    &nsa_reference_suite,    &nsa_identities_suite,     &nsa_edges_suite,
    &nsa_nonfinite_suite,    &nsa_selection_suite,      &nsa_compression_suite,
    &full_attention_suite,   &nsa_cache_suite,          &nsa_decode_suite,
    &nsa_refusals_suite,     &nsa_cache_refusals_suite, &nsa_nomem_suite,
    &nsa_huge_suite,         &nsa_threads_suite,        &kernel_pairs_suite,
};

int main(int argc, char **argv) {
    return test_main(argc, argv, suites, (int)(sizeof suites / sizeof suites[0]));
}
