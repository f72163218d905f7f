/* What the kernel tests share: levels, sizes, one multiply-add as a level rounds it, a
 * stop-watch. */
#ifndef PTL_TESTS_KERNEL_CHECK_H
#define PTL_TESTS_KERNEL_CHECK_H

#include "guard.h"
#include "harness.h"
#include "kernels/kernels.h"

enum { MAX_DIM = 200, MAX_SIZES = 256 };

/* Calls check once for each level, as a case of its own; missing levels are skipped aloud. */
void kernel_each_level(void (*check)(const struct ptl_kernels *k));

/* Head sizes around every vector length; returns how many. */
int kernel_dims(int *dims);

/* Numbers of keys: all up to 27 (every remainder of every register block), and those near a full
 * tile. */
int kernel_key_counts(const struct ptl_kernels *k, int *counts);

/* a * b + c as the level rounds it: once, or twice where it has no fused multiply-add. */
float kernel_fma(const struct ptl_kernels *k, float a, float b, float c);

/* n floats in [-1, 1). */
void kernel_fill(struct test_random *r, float *x, size_t n);

/* n lines of a panel: the used vectors random, the others left as they are (GUARD_WORD, a NaN). */
void kernel_fill_panel(struct test_random *r, const struct ptl_kernels *k, int nv, float *panel,
                       int n);

/* n rows of `wide` random floats at the stride; what is between them is left as it is. */
void kernel_fill_rows(struct test_random *r, float *x, ptrdiff_t stride, int n, int wide);

/* Times run(arg), the least of many, and prints it with the rate of `work` units a call. */
void kernel_bench(const struct ptl_kernels *k, const char *what, double work, const char *unit,
                  void (*run)(const struct ptl_kernels *k, void *arg), void *arg);

#endif
