/* rows_from_bf16, rows_from_f16, rows_to_bf16, rows_to_f16: every half, and every kind of float,
 * against the definition of the types in ref/elements.h; not one element too many. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "../../ref/elements.h"
#include "kernel_check.h"
#include "kernel_suites.h"

enum { MAX_ROWS = 5, MAX_N = 80, MAX_GAP = 7, BATCH = 4096 };

typedef void from_kernel(const uint16_t *x, ptrdiff_t x_stride, int n_rows, int n, float *y,
                         ptrdiff_t y_stride);
typedef void to_kernel(const float *x, ptrdiff_t x_stride, int n_rows, int n, uint16_t *y,
                       ptrdiff_t y_stride);

static from_kernel *from_of(const struct ptl_kernels *k, enum ptl_dtype type) {
    return type == PTL_F16 ? k->rows_from_f16 : k->rows_from_bf16;
}
static to_kernel *to_of(const struct ptl_kernels *k, enum ptl_dtype type) {
    return type == PTL_F16 ? k->rows_to_f16 : k->rows_to_bf16;
}
static const char *name_of(enum ptl_dtype type) {
    return type == PTL_F16 ? "f16" : "bf16";
}

/* ---- Values ---------------------------------------------------------------------------------- */

static void check_from(const struct ptl_kernels *k, enum ptl_dtype type) {
    static uint16_t halves[0x10000];
    static float got[0x10000];
    for (uint32_t u = 0; u < 0x10000; u++) halves[u] = (uint16_t)u;
    from_of(k, type)(halves, 0, 1, 0x10000, got, 0);
    for (uint32_t u = 0; u < 0x10000; u++) {
        const double expected = ref_read(type, halves, u);
        if (isnan(expected) ? isnan(got[u]) && float_bits(got[u]) >> 31 == u >> 15
                            : float_bits(got[u]) == float_bits((float)expected))
            continue;
        FAIL("%s 0x%04x is %.9g, expected %.9g", name_of(type), u, (double)got[u], expected);
        return;
    }
}

/* A batch of floats, given as bits. NaN stays NaN of the same sign, and quiet. */
static void check_to(const struct ptl_kernels *k, enum ptl_dtype type, const uint32_t *bits,
                     int n) {
    float x[BATCH];
    uint16_t got[BATCH];
    const uint16_t quiet = type == PTL_F16 ? 0x7e00 : 0x7fc0;
    memcpy(x, bits, (size_t)n * sizeof *x);
    to_of(k, type)(x, 0, 1, n, got, 0);
    for (int i = 0; i < n; i++) {
        uint16_t expected;
        ref_write(type, &expected, 0, (double)x[i]);
        if (isnan(x[i]) ? (got[i] & quiet) == quiet && got[i] >> 15 == bits[i] >> 31
                        : got[i] == expected)
            continue;
        FAIL("float 0x%08x (%.9g) to %s is 0x%04x, expected 0x%04x", bits[i], (double)x[i],
             name_of(type), got[i], expected);
        return;
    }
}

struct batch {
    const struct ptl_kernels *k;
    enum ptl_dtype type;
    int n;
    uint32_t bits[BATCH];
};

static void put(struct batch *b, uint32_t bits) {
    b->bits[b->n++] = bits;
    if (b->n < BATCH) return;
    if (!test_case_failed()) check_to(b->k, b->type, b->bits, b->n);
    b->n = 0;
}

/* Every half, the points halfway to its neighbours, and the floats around them: ties, and one
 * off. */
static void put_around_halves(struct batch *b) {
    for (uint32_t u = 0; u < 0x8000; u += test_quick() ? 7 : 1) {
        const uint16_t half = (uint16_t)u, next = (uint16_t)(u + 1);
        const double x = ref_read(b->type, &half, 0);
        if (!isfinite(x)) break;
        double above = ref_read(b->type, &next, 0);
        if (!isfinite(above))
            above = 2.0 * x - ref_read(b->type, (uint16_t[]){(uint16_t)(u - 1)}, 0);
        const float middle = (float)((x + above) / 2.0);
        const uint32_t at[2] = {float_bits((float)x), float_bits(middle)};
        for (int i = 0; i < 2; i++)
            for (uint32_t off = 0; off < 3; off++) {
                if (at[i] == 0 && off == 0) continue;
                put(b, at[i] + off - 1);
                put(b, (at[i] + off - 1) | 0x80000000u);
            }
    }
}

static void check_to_values(const struct ptl_kernels *k, enum ptl_dtype type) {
    static const uint32_t special[] = {
        0x00000000, 0x80000000, 0x00000001, 0x80000001, 0x007fffff, 0x00800000, 0x7f7fffff,
        0xff7fffff, 0x7f800000, 0xff800000, 0x7f800001, 0xff800001, 0x7fbfffff, 0x7fc00000,
        0xffc00000, 0x7fffffff, 0xffffffff, 0x7f80ffff, 0x7f810000, 0xff8000ff, 0x477fefff,
        0x477ff000, 0x477ff001, 0x33000000, 0x33000001, 0x32ffffff, 0x387fffff, 0x38800000,
        0x38801000, 0x7f7f7fff, 0x7f7f8000, 0x7f7f8001};
    static struct batch b;
    b = (struct batch){.k = k, .type = type};
    for (size_t i = 0; i < sizeof special / sizeof *special; i++) put(&b, special[i]);
    put_around_halves(&b);
    const uint64_t step = test_quick() ? 1000003 : 9973;
    for (uint64_t u = 0; u < 0x100000000u; u += step) put(&b, (uint32_t)u);
    check_to(k, type, b.bits, b.n);
}

static void check_values(const struct ptl_kernels *k) {
    for (int t = 0; t < 2; t++) {
        check_from(k, t ? PTL_BF16 : PTL_F16);
        check_to_values(k, t ? PTL_BF16 : PTL_F16);
    }
}

/* ---- Sizes ----------------------------------------------------------------------------------- */

/* n halves that end at the unmapped page, all 0x7fe5 or so. */
static uint16_t *guard_halves(const struct guard *g, size_t n) {
    return (uint16_t *)guard_floats(g, (n + 1) / 2) + n % 2;
}

static void check_size(const struct ptl_kernels *k, enum ptl_dtype type, const struct guard *floats,
                       const struct guard *halves, struct test_random *r, int n_rows, int n) {
    const ptrdiff_t fs = n + test_random_int(r, 0, MAX_GAP),
                    hs = n + test_random_int(r, 0, MAX_GAP);
    const size_t n_floats = (size_t)((n_rows - 1) * fs + n),
                 n_halves = (size_t)((n_rows - 1) * hs + n);
    float *x = guard_floats(floats, n_floats);
    uint16_t *h = guard_halves(halves, n_halves);
    kernel_fill_rows(r, x, fs, n_rows, n);
    uint16_t untouched[MAX_ROWS * (MAX_N + MAX_GAP)];
    memcpy(untouched, h, n_halves * sizeof *h);

    to_of(k, type)(x, fs, n_rows, n, h, hs);
    for (size_t i = 0; i < n_halves; i++) {
        const ptrdiff_t row = (ptrdiff_t)i / hs, column = (ptrdiff_t)i % hs;
        uint16_t expected = untouched[i];
        if (column < n) ref_write(type, &expected, 0, (double)x[row * fs + column]);
        if (h[i] == expected) continue;
        FAIL("to %s, n_rows=%d n=%d: row %d column %d is 0x%04x, expected 0x%04x", name_of(type),
             n_rows, n, (int)row, (int)column, h[i], expected);
        return;
    }
    CHECK(guard_intact(halves, (n_halves + 1) / 2));

    x = guard_floats(floats, n_floats);
    from_of(k, type)(h, hs, n_rows, n, x, fs);
    for (size_t i = 0; i < n_floats; i++) {
        const ptrdiff_t row = (ptrdiff_t)i / fs, column = (ptrdiff_t)i % fs;
        const uint32_t expected =
            column < n ? float_bits((float)ref_read(type, h, row * hs + column)) : GUARD_WORD;
        if (float_bits(x[i]) == expected) continue;
        FAIL("from %s, n_rows=%d n=%d: row %d column %d is 0x%08x, expected 0x%08x", name_of(type),
             n_rows, n, (int)row, (int)column, float_bits(x[i]), expected);
        return;
    }
    CHECK(guard_intact(floats, n_floats));
}

static void check_sizes(const struct ptl_kernels *k) {
    enum { ROOM = MAX_ROWS * (MAX_N + MAX_GAP) * sizeof(float) };
    struct guard floats = guard_create(ROOM), halves = guard_create(ROOM);
    struct test_random r = {31};
    for (int n_rows = 1; n_rows <= MAX_ROWS; n_rows++)
        for (int n = 1; n <= MAX_N && !test_case_failed(); n += test_quick() ? 7 : 1)
            for (int t = 0; t < 2; t++)
                check_size(k, t ? PTL_BF16 : PTL_F16, &floats, &halves, &r, n_rows, n);
    guard_destroy(&floats);
    guard_destroy(&halves);
}

/* ---- Timing ---------------------------------------------------------------------------------- */

struct bench_case {
    enum ptl_dtype type;
    float x[128 * 64];
    uint16_t h[128 * 64];
};

static void run_from(const struct ptl_kernels *k, void *arg) {
    struct bench_case *b = arg;
    from_of(k, b->type)(b->h, 64, k->key_tile, 64, b->x, 64);
}
static void run_to(const struct ptl_kernels *k, void *arg) {
    struct bench_case *b = arg;
    to_of(k, b->type)(b->x, 64, k->key_tile, 64, b->h, 64);
}

static void bench(const struct ptl_kernels *k) {
    static struct bench_case b;
    struct test_random r = {32};
    kernel_fill(&r, b.x, 128 * 64);
    for (int t = 0; t < 4; t++) {
        char what[80];
        b.type = t / 2 ? PTL_BF16 : PTL_F16;
        snprintf(what, sizeof what, "rows_%s_%s rows=%d d=64", t % 2 ? "to" : "from",
                 name_of(b.type), k->key_tile);
        kernel_bench(k, what, (double)(k->key_tile * 64), "float", t % 2 ? run_to : run_from, &b);
    }
}

static void convert_values(void) {
    kernel_each_level(test_bench() ? bench : check_values);
}
static void convert_sizes(void) {
    if (!test_bench()) kernel_each_level(check_sizes);
}

static const struct test tests[] = {
    {"rows_of_halves", convert_values},
    {"rows_of_halves_sizes", convert_sizes},
};
TEST_SUITE(kernel_convert_suite, "kernels", tests);
