/* panel_load_f32, panel_store_f32, rows_finite_f32: exact copies, and not one element too many.
 * Every row ends at an unmapped page of its own. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kernel_check.h"
#include "kernel_suites.h"

struct fixture {
    struct guard rows[PTL_MAX_PANEL], panel;
};

static void create_fixture(struct fixture *f) {
    for (int i = 0; i < PTL_MAX_PANEL; i++) f->rows[i] = guard_create(MAX_DIM * sizeof(float));
    f->panel = guard_create(MAX_DIM * PTL_MAX_PANEL * sizeof(float));
}

static void destroy_fixture(struct fixture *f) {
    for (int i = 0; i < PTL_MAX_PANEL; i++) guard_destroy(&f->rows[i]);
    guard_destroy(&f->panel);
}

/* Calls check for every number of rows and every head size. */
static void each_size(const struct ptl_kernels *k, uint64_t seed,
                      void (*check)(const struct ptl_kernels *k, const struct fixture *f,
                                    struct test_random *r, int n_rows, int n)) {
    struct fixture f;
    struct test_random r = {seed};
    int dims[MAX_SIZES];
    const int n_dims = kernel_dims(dims);
    create_fixture(&f);
    for (int n_rows = 1; n_rows <= k->panel; n_rows += test_quick() ? 5 : 1)
        for (int d = 0; d < n_dims && !test_case_failed(); d++) check(k, &f, &r, n_rows, dims[d]);
    destroy_fixture(&f);
}

/* ---- panel_load ------------------------------------------------------------------------------ */

static void check_load_size(const struct ptl_kernels *k, const struct fixture *f,
                            struct test_random *r, int n_rows, int n) {
    const float *rows[PTL_MAX_PANEL];
    for (int i = 0; i < n_rows; i++) {
        float *row = guard_floats(&f->rows[i], (size_t)n);
        kernel_fill(r, row, (size_t)n);
        row[test_random_int(r, 0, n - 1)] =
            bits_float(0xffc12345u); /* a NaN is copied like any bits */
        rows[i] = row;
    }
    const size_t n_panel = (size_t)(n * k->panel);
    float *panel = guard_floats(&f->panel, n_panel);

    k->panel_load_f32(rows, n_rows, n, panel);

    const int used = (n_rows + k->lanes - 1) / k->lanes * k->lanes;
    for (int d = 0; d < n; d++)
        for (int lane = 0; lane < k->panel; lane++) {
            const uint32_t got = float_bits(panel[d * k->panel + lane]);
            const uint32_t expected = lane < n_rows ? float_bits(rows[lane][d])
                                      : lane < used ? 0
                                                    : GUARD_WORD;
            if (got == expected) continue;
            FAIL("n_rows=%d n=%d: panel[%d][%d] is 0x%08x, expected 0x%08x", n_rows, n, d, lane,
                 got, expected);
            return;
        }
    CHECK(guard_intact(&f->panel, n_panel));
}

/* ---- panel_store ----------------------------------------------------------------------------- */

static void check_store_size(const struct ptl_kernels *k, const struct fixture *f,
                             struct test_random *r, int n_rows, int n) {
    const bool stream = test_random_int(r, 0, 1); /* rows begin lines where n is whole lines */
    const int nv = (n_rows + k->lanes - 1) / k->lanes;
    float *panel = guard_floats(&f->panel, (size_t)(n * k->panel));
    kernel_fill_panel(r, k, nv, panel, n);
    float *rows[PTL_MAX_PANEL], scale[PTL_MAX_PANEL];
    for (int i = 0; i < PTL_MAX_PANEL; i++) {
        rows[i] = guard_floats(&f->rows[i], (size_t)n);
        scale[i] = i < n_rows ? test_random_float(r) : NAN;
    }

    k->panel_store_f32(panel, n_rows, n, scale, stream, rows);
    k->stream_end();

    for (int i = 0; i < PTL_MAX_PANEL; i++) {
        for (int d = 0; d < n; d++) {
            const float got = rows[i][d];
            const float expected = i < n_rows ? scale[i] * panel[d * k->panel + i] : 0.0f;
            /* bit for bit, except that the sign of a zero is free */
            if (i < n_rows ? got == expected : float_bits(got) == GUARD_WORD) continue;
            FAIL("n_rows=%d n=%d stream=%d: rows[%d][%d] is %.9g, expected %.9g", n_rows, n, stream,
                 i, d, (double)got, (double)expected);
            return;
        }
        CHECK(guard_intact(&f->rows[i], (size_t)n));
    }
}

/* ---- rows_finite ----------------------------------------------------------------------------- */

static void check_finite(const struct ptl_kernels *k) {
    static const float finite[] = {FLT_MAX, -FLT_MAX, FLT_MIN, 1e-45f, -0.0f};
    static const float broken[] = {NAN, INFINITY, -INFINITY};
    struct guard g = guard_create(128 * (MAX_DIM + 8) * sizeof(float));
    struct test_random r = {9};
    int dims[MAX_SIZES];
    const int n_dims = kernel_dims(dims);
    for (int d = 0; d < n_dims; d++)
        for (int n_rows = 1; n_rows <= k->key_tile; n_rows += n_rows < 4     ? 1
                                                              : test_quick() ? 61
                                                                             : 7) {
            const int n = dims[d];
            const ptrdiff_t stride = n + test_random_int(&r, 0, 7); /* NaN in the gaps */
            float *x = guard_floats(&g, (size_t)((n_rows - 1) * stride + n));
            kernel_fill_rows(&r, x, stride, n_rows, n);
            for (int i = 0; i < 5; i++)
                x[test_random_int(&r, 0, n_rows - 1) * stride + test_random_int(&r, 0, n - 1)] =
                    finite[i];
            if (!k->rows_finite_f32(x, stride, n_rows, n))
                FAIL("n_rows=%d n=%d stride=%d: false, but all are finite", n_rows, n, (int)stride);
            for (int column = 0; column < n; column++) {
                float *at = &x[test_random_int(&r, 0, n_rows - 1) * stride + column];
                const float before = *at;
                *at = broken[column % 3];
                if (k->rows_finite_f32(x, stride, n_rows, n))
                    FAIL("n_rows=%d n=%d stride=%d: true, but column %d has %g", n_rows, n,
                         (int)stride, column, (double)*at);
                *at = before;
            }
        }
    guard_destroy(&g);
}

/* ---- Timing ---------------------------------------------------------------------------------- */

struct bench_case {
    int n;
    float panel[MAX_DIM * PTL_MAX_PANEL], array[PTL_MAX_PANEL * MAX_DIM], keys[128 * MAX_DIM];
    float scale[PTL_MAX_PANEL];
    float *rows[PTL_MAX_PANEL];
};

static void run_load(const struct ptl_kernels *k, void *arg) {
    struct bench_case *b = arg;
    k->panel_load_f32((const float *const *)b->rows, k->panel, b->n, b->panel);
}
static void run_store(const struct ptl_kernels *k, void *arg) {
    struct bench_case *b = arg;
    k->panel_store_f32(b->panel, k->panel, b->n, b->scale, false, b->rows);
}
static void run_finite(const struct ptl_kernels *k, void *arg) {
    struct bench_case *b = arg;
    volatile bool finite = k->rows_finite_f32(b->keys, b->n, k->key_tile, b->n);
    (void)finite;
}

static void bench_panel(const struct ptl_kernels *k, const char *name, bool keys,
                        void (*run)(const struct ptl_kernels *k, void *arg)) {
    static struct bench_case b;
    static const int dims[] = {25, 64, 128};
    for (int d = 0; d < 3; d++) {
        char what[80];
        b.n = dims[d];
        const int n_rows = keys ? k->key_tile : k->panel;
        for (int i = 0; i < PTL_MAX_PANEL; i++) b.rows[i] = b.array + i * b.n;
        snprintf(what, sizeof what, "%s rows=%d d=%d", name, n_rows, b.n);
        kernel_bench(k, what, (double)(n_rows * b.n), "float", run, &b);
    }
}

static void bench_load(const struct ptl_kernels *k) {
    bench_panel(k, "panel_load_f32", false, run_load);
}
static void bench_store(const struct ptl_kernels *k) {
    bench_panel(k, "panel_store_f32", false, run_store);
}
static void bench_finite(const struct ptl_kernels *k) {
    bench_panel(k, "rows_finite_f32", true, run_finite);
}

/* ---- Tests ----------------------------------------------------------------------------------- */

static void check_load(const struct ptl_kernels *k) {
    each_size(k, 7, check_load_size);
}
static void check_store(const struct ptl_kernels *k) {
    each_size(k, 8, check_store_size);
}

static void panel_load(void) {
    kernel_each_level(test_bench() ? bench_load : check_load);
}
static void panel_store(void) {
    kernel_each_level(test_bench() ? bench_store : check_store);
}
static void rows_finite(void) {
    kernel_each_level(test_bench() ? bench_finite : check_finite);
}

static const struct test tests[] = {
    {"panel_load_f32", panel_load},
    {"panel_store_f32", panel_store},
    {"rows_finite_f32", rows_finite},
};
TEST_SUITE(kernel_panel_suite, "kernels", tests);
