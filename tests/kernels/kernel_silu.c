/* tile_silu_f32 over floats of every size and kind, with and without a mask.
 *
 * Bound, for x = alpha * s rounded to float: |got - silu(x)| <= relative * |silu(x)| + 1e-36 with
 * relative = 4e-7, and 8e-8 |x| more where x < 0: the rounding of x log2(e), half a unit in the
 * last place of a number of that size, stays in the exponential. So it is 1e-6 at x = -8, where
 * silu is -0.0027, and 4e-6 at -45, where it is 1e-18. Below -88 the result is 0. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kernel_check.h"
#include "kernel_suites.h"

enum { MAX_LINES = 128, ROOM = MAX_LINES * PTL_MAX_PANEL };

static double silu(double x) {
    if (x == -INFINITY) return 0.0;
    return x < 0.0 ? x * (exp(x) / (1.0 + exp(x))) : x / (1.0 + exp(-x));
}

static bool within_bound(float got, float x) {
    const double exact = silu((double)x);
    if (isnan(x)) return isnan(got);
    if (isinf(x)) return (double)got == exact;
    const double relative = 4e-7 + (x < 0.0f ? 8e-8 * -(double)x : 0.0);
    return fabs((double)got - exact) <= relative * fabs(exact) + 1e-36;
}

/* One tile of values x[line][lane] for the used lanes, checked lane by lane. mask may be NULL. */
static void check_tile(const struct ptl_kernels *k, const struct guard *g, const float *x, int nv,
                       int n_keys, float alpha, const uint64_t *mask) {
    const size_t n = (size_t)(n_keys * k->panel);
    float *s = guard_floats(g, n);
    for (int j = 0; j < n_keys; j++)
        memcpy(s + j * k->panel, x + j * nv * k->lanes, (size_t)(nv * k->lanes) * sizeof(float));

    k->tile_silu_f32(nv, s, n_keys, alpha, mask);

    for (int j = 0; j < n_keys; j++)
        for (int lane = 0; lane < k->panel; lane++) {
            const float got = s[j * k->panel + lane];
            const float in = alpha * x[j * nv * k->lanes + (lane < nv * k->lanes ? lane : 0)];
            const bool seen = !mask || (mask[j] >> lane & 1);
            if (lane >= nv * k->lanes ? float_bits(got) == GUARD_WORD
                : seen                ? within_bound(got, in)
                                      : float_bits(got) == 0)
                continue;
            FAIL("nv=%d n_keys=%d alpha=%g: line %d lane %d %s, x=%.9g gives %.9g, expected %.9g",
                 nv, n_keys, (double)alpha, j, lane, seen ? "seen" : "masked", (double)in,
                 (double)got, seen ? silu((double)in) : 0.0);
            return;
        }
    CHECK(guard_intact(g, n));
}

/* Floats by their bits: first, first + step, ... up to last, as full tiles. */
static void sweep(const struct ptl_kernels *k, const struct guard *g, uint32_t first, uint32_t last,
                  uint32_t step, float alpha) {
    float x[ROOM];
    const int nv = k->panel / k->lanes, per_tile = k->key_tile * k->panel;
    uint64_t bits = first;
    while (bits <= last && !test_case_failed()) {
        for (int i = 0; i < per_tile; i++, bits += step)
            x[i] = bits_float((uint32_t)(bits <= last ? bits : last));
        check_tile(k, g, x, nv, k->key_tile, alpha, NULL);
    }
}

static void check_values(const struct ptl_kernels *k) {
    static const float alphas[] = {0.125f, -0.7f, 3e4f, -1e-30f, 0.0f};
    struct guard g = guard_create(ROOM * sizeof(float));
    const uint32_t step = test_quick() ? 1000003 : 1009;
    sweep(k, &g, 0x00000000, 0x7fffffff, step, 1.0f); /* every exponent, denormals, Inf, NaN */
    sweep(k, &g, 0x80000000, 0xffffffff, step, 1.0f);
    sweep(k, &g, float_bits(-87.0f), float_bits(-88.0f), test_quick() ? 1009 : 3, 1.0f);
    sweep(k, &g, float_bits(86.5f), float_bits(89.0f), test_quick() ? 10007 : 31, 1.0f);
    for (int i = 0; i < 5; i++) {
        sweep(k, &g, 0x00000000, 0x7fffffff, step * 16, alphas[i]);
        sweep(k, &g, 0x80000000, 0xffffffff, step * 16, alphas[i]);
    }
    guard_destroy(&g);
}

static void check_sizes_and_masks(const struct ptl_kernels *k) {
    static const float special[] = {0.0f,     -0.0f,    1.0f,      -1.27846f,  1e30f,
                                    -1e30f,   INFINITY, -INFINITY, NAN,        -87.33f,
                                    -87.34f,  88.0f,    FLT_MAX,   -FLT_MAX,   FLT_MIN,
                                    -FLT_MIN, 1e-45f,   -1e-45f,   -103.9721f, 30.0f};
    struct guard g = guard_create(ROOM * sizeof(float));
    struct test_random r = {5};
    int counts[MAX_SIZES];
    const int n_counts = kernel_key_counts(k, counts);
    for (int nv = 1; nv <= k->panel / k->lanes; nv++)
        for (int c = 0; c < n_counts; c++) {
            float x[ROOM];
            uint64_t mask[MAX_LINES];
            for (int i = 0; i < counts[c] * nv * k->lanes; i++)
                x[i] =
                    i % 3 ? 20.0f * test_random_float(&r)
                          : special[test_random_int(&r, 0, sizeof special / sizeof special[0] - 1)];
            for (int j = 0; j < counts[c]; j++)
                mask[j] = j % 5 == 4 ? 0 : j % 5 == 3 ? ~(uint64_t)0 : test_random_bits(&r);
            check_tile(k, &g, x, nv, counts[c], 1.0f, NULL);
            check_tile(k, &g, x, nv, counts[c], -0.5f, mask);
        }
    guard_destroy(&g);
}

/* ---- Timing ---------------------------------------------------------------------------------- */

struct bench_case {
    float x[ROOM], s[ROOM];
    uint64_t mask[MAX_LINES];
    bool masked;
};

static void run_silu(const struct ptl_kernels *k, void *arg) {
    struct bench_case *b = arg;
    const size_t bytes = (size_t)(k->key_tile * k->panel) * sizeof(float);
    memcpy(b->s, b->x, bytes); /* in the figure too: repeated silu would end in denormals */
    k->tile_silu_f32(k->panel / k->lanes, b->s, k->key_tile, 0.5f, b->masked ? b->mask : NULL);
}

static void bench(const struct ptl_kernels *k) {
    static struct bench_case b;
    struct test_random r = {6};
    kernel_fill(&r, b.x, ROOM);
    for (int j = 0; j < MAX_LINES; j++) b.mask[j] = test_random_bits(&r);
    for (int masked = 0; masked < 2; masked++) {
        char what[80];
        snprintf(what, sizeof what, "tile_silu_f32 n_keys=%d%s", k->key_tile,
                 masked ? " masked" : "");
        b.masked = masked;
        kernel_bench(k, what, (double)(k->key_tile * k->panel), "silu", run_silu, &b);
    }
}

/* ---- Tests ----------------------------------------------------------------------------------- */

static void silu_values(void) {
    kernel_each_level(test_bench() ? bench : check_values);
}
static void silu_sizes_and_masks(void) {
    if (!test_bench()) kernel_each_level(check_sizes_and_masks);
}

static const struct test tests[] = {
    {"tile_silu_f32", silu_values},
    {"tile_silu_f32_masks", silu_sizes_and_masks},
};
TEST_SUITE(kernel_silu_suite, "kernels", tests);
