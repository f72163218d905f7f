/* The list of suites: `pantile_tests [filter...]` runs them. Nothing else is here. */
#include "harness.h"
#include "kernels/kernel_suites.h"

static const struct test_suite *const suites[] = {
    &kernel_product_suite,
    &kernel_silu_suite,
    &kernel_panel_suite,
};

int main(int argc, char **argv) {
    return test_main(argc, argv, suites, (int)(sizeof suites / sizeof suites[0]));
}
