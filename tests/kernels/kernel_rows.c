/* copy_stream, affine_f32, add_rows_f32: exact to the bit, the same at every level, at every size
 * and alignment, and not one element too many. */
#include <math.h>
#include <string.h>

#include "kernel_check.h"
#include "kernel_suites.h"

/* ---- copy_stream ----------------------------------------------------------------------------- */

enum { MOST = 400 };

static void check_copy(const struct ptl_kernels *k) {
    struct guard from = guard_create(MOST), to = guard_create(MOST + 128);
    struct test_random r = {1};
    for (int n = 0; n <= MOST - 64; n += test_quick() && n > 8 ? 7 : 1)
        for (int shift = 0; shift < 64; shift += test_quick() ? 5 : 1) {
            char *source = from.memory + from.bytes - n; /* ends at the unmapped page */
            /* begins at every place in a line; ends there too when shift is 0 */
            char *target = to.memory + to.bytes - n - shift;
            for (int i = 0; i < n; i++) source[i] = (char)test_random_bits(&r);
            memset(target - 64, 0x5a, (size_t)(n + 64 + shift));
            k->copy_stream(target, source, n, shift % 2 ? source : NULL);
            k->stream_end();
            bool clean = memcmp(target, source, (size_t)n) == 0;
            for (int i = 1; i <= 64; i++) clean = clean && target[-i] == 0x5a;
            for (int i = 0; i < shift; i++) clean = clean && target[n + i] == 0x5a;
            if (!clean) FAIL("n=%d, %d bytes before a page", n, shift);
        }
    guard_destroy(&from);
    guard_destroy(&to);
}

static void copy_stream(void) {
    kernel_each_level(check_copy);
}

/* ---- affine_f32 ------------------------------------------------------------------------------ */

static void check_affine(const struct ptl_kernels *k) {
    struct guard g[4];
    struct test_random r = {2};
    int dims[MAX_SIZES];
    const int n_dims = kernel_dims(dims);
    for (int i = 0; i < 4; i++) g[i] = guard_create(MAX_DIM * sizeof(float));
    for (int d = 0; d < n_dims; d++)
        for (int terms = 0; terms < 3; terms++)
            for (int in_place = 0; in_place < 2; in_place++) {
                const size_t n = (size_t)dims[d];
                float *x = guard_floats(&g[0], n), *a = guard_floats(&g[1], n);
                float *b = guard_floats(&g[2], n), *out = in_place ? x : guard_floats(&g[3], n);
                float expected[MAX_DIM];
                const float alpha = test_random_float(&r) * 3.0f;
                kernel_fill(&r, x, n);
                kernel_fill(&r, a, n);
                kernel_fill(&r, b, n);
                if (n > 2) x[1] = INFINITY;
                for (size_t i = 0; i < n; i++) {
                    volatile float y = x[i] * alpha; /* rounded before it is added to */
                    expected[i] = terms == 2 ? y + (a[i] + b[i]) : terms == 1 ? y + a[i] : y;
                }
                k->affine_f32(out, x, alpha, terms > 0 ? a : NULL, terms > 1 ? b : NULL,
                              (ptrdiff_t)n);
                if (memcmp(out, expected, n * sizeof(float)) != 0)
                    FAIL("n=%d, %d terms%s", dims[d], terms, in_place ? ", in place" : "");
                CHECK(guard_intact(&g[in_place ? 0 : 3], n));
            }
    for (int i = 0; i < 4; i++) guard_destroy(&g[i]);
}

static void affine(void) {
    kernel_each_level(check_affine);
}

/* ---- add_rows_f32 ---------------------------------------------------------------------------- */

enum { MAX_ROWS = 9 };

static void check_add_rows(const struct ptl_kernels *k) {
    struct guard g[MAX_ROWS], sums = guard_create(MAX_DIM * sizeof(double));
    struct test_random r = {3};
    int dims[MAX_SIZES];
    const int n_dims = kernel_dims(dims);
    for (int i = 0; i < MAX_ROWS; i++) g[i] = guard_create(MAX_DIM * sizeof(float));
    for (int d = 0; d < n_dims; d++)
        for (int n_rows = 0; n_rows <= MAX_ROWS; n_rows++)
            for (int n_next = 0; n_next <= n_rows; n_next += 4) {
                const size_t n = (size_t)dims[d];
                const float *rows[MAX_ROWS];
                double *sum = (double *)(void *)guard_floats(&sums, 2 * n), expected[MAX_DIM];
                for (size_t c = 0; c < n; c++) expected[c] = sum[c] = (double)test_random_float(&r);
                for (int i = 0; i < n_rows; i++) {
                    float *row = guard_floats(&g[i], n);
                    for (size_t c = 0; c < n; c++) {
                        row[c] = ldexpf(test_random_float(&r), (int)test_random_int(&r, -30, 30));
                        expected[c] += (double)row[c];
                    }
                    rows[i] = row;
                }
                k->add_rows_f32(rows, n_rows, rows, n_next, (ptrdiff_t)n, sum);
                if (memcmp(sum, expected, n * sizeof(double)) != 0)
                    FAIL("n=%d n_rows=%d n_next=%d", dims[d], n_rows, n_next);
                CHECK(guard_intact(&sums, 2 * n));
            }
    for (int i = 0; i < MAX_ROWS; i++) guard_destroy(&g[i]);
    guard_destroy(&sums);
}

static void add_rows(void) {
    kernel_each_level(check_add_rows);
}

static const struct test tests[] = {
    {"copy_stream", copy_stream},
    {"affine_f32", affine},
    {"add_rows_f32", add_rows},
};
TEST_SUITE(kernel_rows_suite, "kernels", tests);
