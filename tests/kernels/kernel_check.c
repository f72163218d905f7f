/* Helpers of the kernel tests; the tests themselves are kernel_product.c, _silu.c and _panel.c. */
#include "kernel_check.h"

#include <math.h>
#include <stdio.h>

#include "core/cpu.h"

void kernel_each_level(void (*check)(const struct ptl_kernels *k)) {
    for (int i = 0; i < test_n_levels(); i++) {
        const struct ptl_kernels *k = ptl_cpu_kernels(test_level(i));
        test_case("%s", k->name);
        check(k);
    }
    for (int i = 0; i < test_n_missing_levels() && !test_bench(); i++) {
        test_case("%s", ptl_isa_name(test_missing_level(i)));
        test_skip("%s", ptl_isa_name(test_missing_level(i)));
    }
}

int kernel_dims(int *dims) {
    static const int all[] = {1,  2,  3,  5,  7,  8,  9,  15,  16,
                              17, 25, 31, 32, 33, 64, 72, 128, MAX_DIM};
    static const int few[] = {1, 3, 8, 17, 33};
    const int *from = test_quick() ? few : all;
    const int n = (int)(test_quick() ? sizeof few : sizeof all) / (int)sizeof *all;
    for (int i = 0; i < n; i++) dims[i] = from[i];
    return n;
}

int kernel_key_counts(const struct ptl_kernels *k, int *counts) {
    int n = 0;
    if (test_quick()) {
        static const int few[] = {1, 2, 5, 11, 27};
        for (; n < (int)(sizeof few / sizeof few[0]); n++) counts[n] = few[n];
        return n;
    }
    for (int x = 1; x <= 27; x++) counts[n++] = x;
    for (int x = k->key_tile - 12; x <= k->key_tile; x++) counts[n++] = x;
    return n;
}

float kernel_fma(const struct ptl_kernels *k, float a, float b, float c) {
    if (k != &ptl_kernels_scalar) return fmaf(a, b, c);
    volatile float product = a * b; /* volatile: the compiler may not fuse it with the addition */
    return product + c;
}

void kernel_fill(struct test_random *r, float *x, size_t n) {
    for (size_t i = 0; i < n; i++) x[i] = test_random_float(r);
}

void kernel_fill_panel(struct test_random *r, const struct ptl_kernels *k, int nv, float *panel,
                       int n) {
    for (int line = 0; line < n; line++)
        kernel_fill(r, panel + (size_t)line * (size_t)k->panel, (size_t)(nv * k->lanes));
}

void kernel_fill_rows(struct test_random *r, float *x, ptrdiff_t stride, int n, int wide) {
    for (int row = 0; row < n; row++) kernel_fill(r, x + row * stride, (size_t)wide);
}

void kernel_bench(const struct ptl_kernels *k, const char *what, double work, const char *unit,
                  void (*run)(const struct ptl_kernels *k, void *arg), void *arg) {
    enum { SAMPLES = 50 };
    int calls = 1;
    double least = INFINITY;
    for (int i = 0; i < SAMPLES; i++) {
        const double begin = test_seconds();
        for (int c = 0; c < calls; c++) run(k, arg);
        const double taken = test_seconds() - begin;
        if (taken < 2e-4 && i < SAMPLES / 2) calls *= 2; /* long enough for the clock */
        else if (taken / calls < least) least = taken / calls;
    }
    printf("    %-8s %-44s %10.1f ns  %8.2f G%s/s\n", k->name, what, least * 1e9,
           work / least * 1e-9, unit);
}
