/* tile_bias_f32, rounding for rounding; tile_dsilu_f32 over floats of every size and kind, with and
 * without a mask and a row_sum.
 *
 * Bounds of tile_dsilu, for x = alpha * s rounded to float: s becomes silu(x) as close as tile_silu
 * has it (kernel_silu.c); u becomes silu'(x) * u * scale within 1.5e-6 |u * scale|: silu' is g + f
 * (1 - g), where a rounding of g near 1 counts f times, f <= 17 where 1 - g is not 0 yet. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kernel_check.h"
#include "kernel_suites.h"

enum { MAX_LINES = 128, ROOM = MAX_LINES * PTL_MAX_PANEL };

/* ---- Bias ------------------------------------------------------------------------------------ */

static void check_bias_size(const struct ptl_kernels *k, const struct guard *tile,
                            const struct guard *biases, struct test_random *r, int nv, int n_keys,
                            bool reversed) {
    const size_t n = (size_t)(n_keys * k->panel);
    const int used = nv * k->lanes;
    const size_t n_bias = reversed ? (size_t)(n_keys - 1 + used) : n - (size_t)(k->panel - used);
    float *s = guard_floats(tile, n), *bias = guard_floats(biases, n_bias), before[ROOM];
    const ptrdiff_t step = reversed ? -1 : k->panel;
    const float alpha = test_random_float(r), beta = test_random_float(r);
    kernel_fill_panel(r, k, nv, s, n_keys);
    if (reversed) kernel_fill(r, bias, n_bias);
    else kernel_fill_rows(r, bias, k->panel, n_keys, used);
    if (reversed) bias += n_keys - 1;
    memcpy(before, s, n * sizeof *s);

    k->tile_bias_f32(nv, s, n_keys, alpha, beta, bias, step);

    for (int j = 0; j < n_keys; j++)
        for (int lane = 0; lane < k->panel; lane++) {
            const int at = j * k->panel + lane;
            const uint32_t expected =
                lane < used
                    ? float_bits(kernel_fma(k, beta, bias[j * step + lane], alpha * before[at]))
                    : GUARD_WORD;
            if (float_bits(s[at]) == expected) continue;
            FAIL("nv=%d n_keys=%d step=%d: line %d lane %d is %.9g, expected %.9g", nv, n_keys,
                 (int)step, j, lane, (double)s[at], (double)bits_float(expected));
            return;
        }
    CHECK(guard_intact(tile, n));
}

static void check_bias(const struct ptl_kernels *k) {
    struct guard tile = guard_create(ROOM * sizeof(float)),
                 biases = guard_create(ROOM * sizeof(float));
    struct test_random r = {41};
    int counts[MAX_SIZES];
    const int n_counts = kernel_key_counts(k, counts);
    for (int nv = 1; nv <= k->panel / k->lanes; nv++)
        for (int c = 0; c < n_counts && !test_case_failed(); c++)
            for (int reversed = 0; reversed < 2; reversed++)
                check_bias_size(k, &tile, &biases, &r, nv, counts[c], reversed);
    guard_destroy(&tile);
    guard_destroy(&biases);
}

/* ---- Score stage of backward ----------------------------------------------------------------- */

static double sigmoid(double x) {
    return x < 0.0 ? exp(x) / (1.0 + exp(x)) : 1.0 / (1.0 + exp(-x));
}

static double silu(double x) {
    return x == -INFINITY ? 0.0 : x * sigmoid(x);
}

static double dsilu(double x) {
    if (isinf(x)) return x > 0.0 ? 1.0 : 0.0;
    return sigmoid(x) * (1.0 + x * (1.0 - sigmoid(x)));
}

static bool silu_is(float got, float x) {
    if (isnan(x)) return isnan(got);
    if (isinf(x)) return (double)got == silu((double)x);
    const double relative = 4e-7 + (x < 0.0f ? 8e-8 * -(double)x : 0.0);
    return fabs((double)got - silu((double)x)) <= relative * fabs(silu((double)x)) + 1e-36;
}

static bool dsilu_is(float got, float x, float u, float scale) {
    if (isnan(x) || isnan(u)) return isnan(got);
    if (isinf(u)) return !isfinite(got);
    const double us = (double)(u * scale);
    return fabs((double)got - dsilu((double)x) * us) <= 1.5e-6 * fabs(us) + 1e-36;
}

struct dsilu_case {
    float x[ROOM], u[ROOM]; /* line after line of the used lanes */
    uint64_t mask[MAX_LINES];
};

struct dsilu_guards {
    struct guard s, u, scale, sum;
};

static void check_dsilu_tile(const struct ptl_kernels *k, const struct dsilu_guards *g,
                             struct test_random *r, const struct dsilu_case *c, int nv, int n_keys,
                             float alpha, bool masked, bool summed) {
    const size_t n = (size_t)(n_keys * k->panel);
    const int used = nv * k->lanes;
    float *s = guard_floats(&g->s, n), *u = guard_floats(&g->u, n);
    float *scale = guard_floats(&g->scale, (size_t)used),
          *sum = guard_floats(&g->sum, (size_t)used);
    float expected_sum[PTL_MAX_PANEL];
    kernel_fill(r, scale, (size_t)used);
    kernel_fill(r, sum, (size_t)used);
    memcpy(expected_sum, sum, (size_t)used * sizeof *sum);
    for (int j = 0; j < n_keys; j++) {
        memcpy(s + j * k->panel, c->x + j * used, (size_t)used * sizeof *s);
        memcpy(u + j * k->panel, c->u + j * used, (size_t)used * sizeof *u);
    }

    k->tile_dsilu_f32(nv, s, u, n_keys, alpha, scale, masked ? c->mask : NULL, summed ? sum : NULL);

    for (int j = 0; j < n_keys; j++)
        for (int lane = 0; lane < k->panel; lane++) {
            const float f = s[j * k->panel + lane], d = u[j * k->panel + lane];
            bool ok;
            float x = 0.0f, before = 0.0f;
            const bool seen = !masked || (c->mask[j] >> lane & 1);
            if (lane >= used) {
                ok = float_bits(f) == GUARD_WORD && float_bits(d) == GUARD_WORD;
            } else {
                x = alpha * c->x[j * used + lane];
                before = c->u[j * used + lane];
                ok = seen ? silu_is(f, x) && dsilu_is(d, x, before, scale[lane])
                          : float_bits(f) == 0 && float_bits(d) == 0;
                expected_sum[lane] += seen ? f * before : 0.0f;
            }
            if (ok) continue;
            FAIL("nv=%d n_keys=%d alpha=%g: line %d lane %d %s, x=%.9g u=%.9g scale=%.9g give %.9g "
                 "and "
                 "%.9g, expected %.9g and %.9g",
                 nv, n_keys, (double)alpha, j, lane, seen ? "seen" : "masked", (double)x,
                 (double)before, lane < used ? (double)scale[lane] : 0.0, (double)f, (double)d,
                 silu((double)x),
                 lane < used ? dsilu((double)x) * (double)(before * scale[lane]) : 0.0);
            return;
        }
    for (int lane = 0; lane < used && summed; lane++) {
        if (isnan(sum[lane]) && isnan(expected_sum[lane])) continue;
        if (sum[lane] == expected_sum[lane]) continue;
        FAIL("nv=%d n_keys=%d: row_sum of lane %d is %.9g, expected %.9g", nv, n_keys, lane,
             (double)sum[lane], (double)expected_sum[lane]);
        return;
    }
    CHECK(guard_intact(&g->s, n) && guard_intact(&g->u, n));
}

static struct dsilu_guards create_guards(void) {
    return (struct dsilu_guards){
        guard_create(ROOM * sizeof(float)), guard_create(ROOM * sizeof(float)),
        guard_create(PTL_MAX_PANEL * sizeof(float)), guard_create(PTL_MAX_PANEL * sizeof(float))};
}

static void destroy_guards(struct dsilu_guards *g) {
    guard_destroy(&g->s);
    guard_destroy(&g->u);
    guard_destroy(&g->scale);
    guard_destroy(&g->sum);
}

static struct dsilu_case dsilu_case_now;

/* Floats by their bits, as full tiles. */
static void sweep(const struct ptl_kernels *k, const struct dsilu_guards *g, struct test_random *r,
                  uint32_t first, uint32_t last, uint32_t step, float alpha) {
    struct dsilu_case *c = &dsilu_case_now;
    const int per_tile = k->key_tile * k->panel;
    uint64_t bits = first;
    while (bits <= last && !test_case_failed()) {
        for (int i = 0; i < per_tile; i++, bits += step) {
            c->x[i] = bits_float((uint32_t)(bits <= last ? bits : last));
            c->u[i] = test_random_float(r);
        }
        check_dsilu_tile(k, g, r, c, k->panel / k->lanes, k->key_tile, alpha, false, false);
    }
}

static void check_dsilu_values(const struct ptl_kernels *k) {
    static const float alphas[] = {0.125f, -0.7f, 3e4f, -1e-30f, 0.0f};
    struct dsilu_guards g = create_guards();
    struct test_random r = {42};
    const uint32_t step = test_quick() ? 1000003 : 2003;
    sweep(k, &g, &r, 0x00000000, 0x7fffffff, step, 1.0f);
    sweep(k, &g, &r, 0x80000000, 0xffffffff, step, 1.0f);
    sweep(k, &g, &r, float_bits(0.5f), float_bits(20.0f), test_quick() ? 100003 : 101, 1.0f);
    sweep(k, &g, &r, float_bits(-87.0f), float_bits(-89.0f), test_quick() ? 1009 : 17, 1.0f);
    for (int i = 0; i < 5; i++) {
        sweep(k, &g, &r, 0x00000000, 0x7fffffff, step * 16, alphas[i]);
        sweep(k, &g, &r, 0x80000000, 0xffffffff, step * 16, alphas[i]);
    }
    destroy_guards(&g);
}

static void check_dsilu_sizes(const struct ptl_kernels *k) {
    static const float special[] = {
        0.0f,  -0.0f,   1.0f,     -1.27846f, 1e30f,  -1e30f,  INFINITY, -INFINITY, NAN,  -87.33f,
        88.0f, FLT_MAX, -FLT_MAX, FLT_MIN,   1e-45f, -1e-45f, 16.6f,    -2.4f,     0.5f, 30.0f};
    struct dsilu_case *c = &dsilu_case_now;
    struct dsilu_guards g = create_guards();
    struct test_random r = {43};
    int counts[MAX_SIZES];
    const int n_counts = kernel_key_counts(k, counts);
    for (int nv = 1; nv <= k->panel / k->lanes; nv++)
        for (int i = 0; i < n_counts && !test_case_failed(); i++) {
            const int n = counts[i] * nv * k->lanes;
            for (int kind = 0; kind < 4; kind++) {
                for (int x = 0; x < n; x++) { /* kind 3: bad numbers in u as well */
                    c->x[x] =
                        x % 3 ? 20.0f * test_random_float(&r) : special[test_random_int(&r, 0, 19)];
                    c->u[x] = kind == 3 && x % 5 == 0 ? special[test_random_int(&r, 6, 8)]
                                                      : test_random_float(&r);
                }
                for (int j = 0; j < counts[i]; j++)
                    c->mask[j] = j % 5 == 4 ? 0 : j % 5 == 3 ? ~(uint64_t)0 : test_random_bits(&r);
                check_dsilu_tile(k, &g, &r, c, nv, counts[i], kind == 1 ? -0.5f : 1.0f, kind > 0,
                                 kind != 1);
            }
        }
    destroy_guards(&g);
}

/* ---- Timing ---------------------------------------------------------------------------------- */

struct bench_case {
    float x[ROOM], s[ROOM], u[ROOM], scale[PTL_MAX_PANEL];
    uint64_t mask[MAX_LINES];
    bool masked;
};

static void run_bias(const struct ptl_kernels *k, void *arg) {
    struct bench_case *b = arg;
    k->tile_bias_f32(k->panel / k->lanes, b->s, k->key_tile, 0.5f, 0.5f, b->x, k->panel);
}
static void run_dsilu(const struct ptl_kernels *k, void *arg) {
    struct bench_case *b = arg;
    const size_t bytes = (size_t)(k->key_tile * k->panel) * sizeof(float);
    memcpy(b->s, b->x, bytes); /* in the figure too */
    memcpy(b->u, b->x, bytes);
    k->tile_dsilu_f32(k->panel / k->lanes, b->s, b->u, k->key_tile, 0.5f, b->scale,
                      b->masked ? b->mask : NULL, NULL);
}

static void bench_bias(const struct ptl_kernels *k) {
    static struct bench_case b;
    struct test_random r = {44};
    kernel_fill(&r, b.x, ROOM);
    kernel_bench(k, "tile_bias_f32", (double)(k->key_tile * k->panel), "float", run_bias, &b);
}

static void bench_dsilu(const struct ptl_kernels *k) {
    static struct bench_case b;
    struct test_random r = {45};
    kernel_fill(&r, b.x, ROOM);
    kernel_fill(&r, b.scale, PTL_MAX_PANEL);
    for (int j = 0; j < MAX_LINES; j++) b.mask[j] = test_random_bits(&r);
    for (int masked = 0; masked < 2; masked++) {
        b.masked = masked;
        kernel_bench(k, masked ? "tile_dsilu_f32 masked" : "tile_dsilu_f32",
                     (double)(k->key_tile * k->panel), "dsilu", run_dsilu, &b);
    }
}

/* ---- Tests ----------------------------------------------------------------------------------- */

static void tile_bias(void) {
    kernel_each_level(test_bench() ? bench_bias : check_bias);
}
static void dsilu_values(void) {
    kernel_each_level(test_bench() ? bench_dsilu : check_dsilu_values);
}
static void dsilu_sizes(void) {
    if (!test_bench()) kernel_each_level(check_dsilu_sizes);
}

static const struct test tests[] = {
    {"tile_bias_f32", tile_bias},
    {"tile_dsilu_f32", dsilu_values},
    {"tile_dsilu_f32_masks", dsilu_sizes},
};
TEST_SUITE(kernel_score_suite, "kernels", tests);
