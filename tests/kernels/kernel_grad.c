/* grad_keys_f32, grad_rows_f32 and their masked forms: every element is one sum in order in one
 * accumulator, done again here step by step and rounding for rounding, and in double. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kernel_check.h"
#include "kernel_suites.h"

#define UNIT 5.9604645e-8 /* the relative error of one rounding */

enum {
    PANELS = 4,
    ROOM = 256 * (MAX_DIM + 32),
    S_ROOM = PANELS * 128 * PTL_MAX_PANEL,
    MAX_MASK = PANELS * (128 + 3)
};

struct operands {
    struct guard s, a, c;
};

/* One call. For grad_keys m counts keys and x rows, for grad_rows m counts rows and x keys. */
struct grad_case {
    const struct ptl_kernels *k;
    bool keys, first;
    int n_rows, n_keys, n;
    ptrdiff_t a_stride, c_stride, panel_step, mask_step;
    float *s, *a, *c;
    size_t n_c;
    uint64_t mask[MAX_MASK];
    float before[ROOM];
};

static int round_up(int n, int unit) {
    return (n + unit - 1) / unit * unit;
}

static float s_at(const struct grad_case *g, int i, int j) {
    const int w = g->k->panel;
    return g->s[i / w * g->panel_step + j * w + i % w];
}

static bool seen(const struct grad_case *g, int i, int j) {
    const int w = g->k->panel;
    return g->mask[(g->keys ? i / w * g->mask_step : 0) + j] >> (i % w) & 1;
}

static void fill(struct grad_case *g, const struct operands *o, struct test_random *r) {
    const int padded = round_up(g->n, g->k->lanes), w = g->k->panel;
    const int n_panels = (g->n_rows + w - 1) / w, nm = g->keys ? g->n_keys : g->n_rows;
    const int nx = g->keys ? g->n_rows : g->n_keys;
    g->a_stride = padded + test_random_int(r, 0, 7);
    g->c_stride = g->keys ? padded + test_random_int(r, 0, 7) : g->n + test_random_int(r, 0, 7);
    g->panel_step = (ptrdiff_t)g->n_keys * w + test_random_int(r, 0, 1) * w;
    g->mask_step = g->n_keys + test_random_int(r, 0, 3);
    g->n_c = (size_t)((nm - 1) * g->c_stride + (g->keys ? padded : g->n));
    /* s ends with the last row's lane of the last line: no more may be read */
    g->s = guard_floats(&o->s, (size_t)((n_panels - 1) * g->panel_step + (g->n_keys - 1) * w +
                                        (g->n_rows - 1) % w + 1));
    g->a = guard_floats(&o->a, (size_t)((nx - 1) * g->a_stride + padded));
    g->c = guard_floats(&o->c, g->n_c);
    for (int i = 0; i < g->n_rows; i++)
        for (int j = 0; j < g->n_keys; j++)
            g->s[i / w * g->panel_step + j * w + i % w] = test_random_float(r);
    kernel_fill_rows(r, g->a, g->a_stride, nx, padded);
    g->first = !g->keys && test_random_int(r, 0, 1);
    if (!g->first) kernel_fill_rows(r, g->c, g->c_stride, nm, g->keys ? padded : g->n);
    memcpy(g->before, g->c, g->n_c * sizeof(float));
    for (int x = 0; x < MAX_MASK; x++) {
        const int64_t kind = test_random_int(r, 0, 5);
        g->mask[x] = kind == 0 ? 0 : kind == 1 ? ~(uint64_t)0 : test_random_bits(r);
    }
}

static void call(struct grad_case *g, bool masked) {
    const struct ptl_kernels *k = g->k;
    memcpy(g->c, g->before, g->n_c * sizeof(float));
    if (g->keys && masked)
        k->grad_keys_masked_f32(g->s, g->panel_step, g->n_rows, g->n_keys, g->a, g->a_stride, g->n,
                                g->c, g->c_stride, g->mask, g->mask_step);
    else if (g->keys)
        k->grad_keys_f32(g->s, g->panel_step, g->n_rows, g->n_keys, g->a, g->a_stride, g->n, g->c,
                         g->c_stride);
    else if (masked)
        k->grad_rows_masked_f32(g->s, g->n_rows, g->n_keys, g->a, g->a_stride, g->n, g->c,
                                g->c_stride, g->first, g->mask);
    else
        k->grad_rows_f32(g->s, g->n_rows, g->n_keys, g->a, g->a_stride, g->n, g->c, g->c_stride,
                         g->first);
}

/* What a whole vector may write stands in the padding of grad_keys' rows; nothing else is
 * touched. */
static bool is_free(const struct grad_case *g, size_t at) {
    const ptrdiff_t column = (ptrdiff_t)at % g->c_stride;
    return g->keys && column >= g->n && column < round_up(g->n, g->k->lanes);
}

static bool check_result(const struct grad_case *g, const char *what, bool masked) {
    const int nx = g->keys ? g->n_rows : g->n_keys;
    for (size_t at = 0; at < g->n_c; at++) {
        const int m = (int)((ptrdiff_t)at / g->c_stride), d = (int)((ptrdiff_t)at % g->c_stride);
        if (is_free(g, at)) continue;
        if (d >= g->n) {
            if (float_bits(g->c[at]) == float_bits(g->before[at])) continue;
            FAIL("%s n_rows=%d n_keys=%d n=%d: wrote behind row %d", what, g->n_rows, g->n_keys,
                 g->n, m);
            return false;
        }
        const float before = g->first ? 0.0f : g->before[at];
        float sum = 0.0f;
        double exact = (double)before, size = fabs((double)before);
        for (int x = 0; x < nx; x++) {
            const int i = g->keys ? x : m, j = g->keys ? m : x;
            if (masked && !seen(g, i, j)) continue;
            const float e = s_at(g, i, j), a = g->a[x * g->a_stride + d];
            sum = kernel_fma(g->k, e, a, sum);
            exact += (double)e * (double)a;
            size += fabs((double)e * (double)a);
        }
        if (isnan(sum) && isnan(g->c[at])) continue;
        if (float_bits(g->c[at]) == float_bits(before + sum) &&
            (!isfinite(sum) || fabs((double)g->c[at] - exact) <= (nx + 2) * UNIT * size))
            continue;
        FAIL("%s n_rows=%d n_keys=%d n=%d: c[%d][%d] is %.9g, expected %.9g, exactly %.17g", what,
             g->n_rows, g->n_keys, g->n, m, d, (double)g->c[at], (double)(before + sum), exact);
        return false;
    }
    return true;
}

static void check_size(struct grad_case *g, const struct operands *o, struct test_random *r) {
    static float plain[ROOM];
    const int w = g->k->panel, nx = g->keys ? g->n_rows : g->n_keys;
    fill(g, o, r);
    call(g, false);
    if (!check_result(g, "plain", false)) return;

    /* Finite, and 0 where the mask is: the same bits masked. */
    for (int i = 0; i < g->n_rows; i++)
        for (int j = 0; j < g->n_keys; j++)
            if (!seen(g, i, j)) g->s[i / w * g->panel_step + j * w + i % w] = 0.0f;
    call(g, false);
    memcpy(plain, g->c, g->n_c * sizeof(float));
    call(g, true);
    for (size_t at = 0; at < g->n_c; at++)
        if (!is_free(g, at) && float_bits(plain[at]) != float_bits(g->c[at])) {
            FAIL("n_rows=%d n_keys=%d n=%d: masked, not the bits of plain", g->n_rows, g->n_keys,
                 g->n);
            return;
        }

    /* Bad numbers in a row of a, seen by some. */
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    g->a[test_random_int(r, 0, nx - 1) * g->a_stride + test_random_int(r, 0, g->n - 1)] =
        bad[test_random_int(r, 0, 2)];
    call(g, true);
    check_result(g, "masked", true);
    CHECK(guard_intact(&o->c, g->n_c) &&
          guard_intact(&o->a, (size_t)((nx - 1) * g->a_stride + round_up(g->n, g->k->lanes))));
}

static void check(const struct ptl_kernels *k, bool keys) {
    static struct grad_case g;
    struct operands o = {guard_create(S_ROOM * 2 * sizeof(float)),
                         guard_create(ROOM * sizeof(float)), guard_create(ROOM * sizeof(float))};
    struct test_random r = {51};
    int dims[MAX_SIZES], counts[MAX_SIZES];
    const int n_dims = kernel_dims(dims), n_counts = kernel_key_counts(k, counts);
    g.k = k;
    g.keys = keys;
    for (int d = 0; d < n_dims; d++)
        for (int c = 0; c < n_counts && !test_case_failed(); c++) {
            const int most = keys ? PANELS * k->panel : k->panel;
            const int rows[] = {1, 2 + c % 7, k->panel - 1, k->panel, most - 1, most};
            for (int i = 0; i < (keys ? 6 : 4); i++) {
                if (i != c % 6 && i != d % 6 && !test_quick()) continue; /* two of them each time */
                g.n_rows = rows[i] < 1 ? 1 : rows[i] > most ? most : rows[i];
                g.n_keys = counts[c];
                g.n = dims[d];
                check_size(&g, &o, &r);
            }
        }
    guard_destroy(&o.s);
    guard_destroy(&o.a);
    guard_destroy(&o.c);
}

static void check_keys(const struct ptl_kernels *k) {
    check(k, true);
}
static void check_rows(const struct ptl_kernels *k) {
    check(k, false);
}

/* ---- Timing ---------------------------------------------------------------------------------- */

struct bench_case {
    int n;
    float s[S_ROOM], a[ROOM], c[ROOM];
};

static void run_keys(const struct ptl_kernels *k, void *arg) {
    struct bench_case *b = arg;
    k->grad_keys_f32(b->s, k->key_tile * k->panel, PANELS * k->panel, k->key_tile, b->a, b->n + 16,
                     b->n, b->c, b->n + 16);
}
static void run_rows(const struct ptl_kernels *k, void *arg) {
    struct bench_case *b = arg;
    k->grad_rows_f32(b->s, k->panel, k->key_tile, b->a, b->n + 16, b->n, b->c, b->n + 16, false);
}

static void bench(const struct ptl_kernels *k, bool keys) {
    static struct bench_case b;
    static const int dims[] = {32, 64, 128};
    struct test_random r = {52};
    kernel_fill(&r, b.s, S_ROOM);
    kernel_fill(&r, b.a, ROOM);
    for (int d = 0; d < 3; d++) {
        char what[80];
        b.n = dims[d];
        memset(b.c, 0, sizeof b.c);
        const int rows = keys ? PANELS * k->panel : k->panel;
        snprintf(what, sizeof what, "%s rows=%d keys=%d d=%d",
                 keys ? "grad_keys_f32" : "grad_rows_f32", rows, k->key_tile, b.n);
        kernel_bench(k, what, 2.0 * rows * k->key_tile * b.n, "flop", keys ? run_keys : run_rows,
                     &b);
    }
}

static void bench_keys(const struct ptl_kernels *k) {
    bench(k, true);
}
static void bench_rows(const struct ptl_kernels *k) {
    bench(k, false);
}

static void grad_keys(void) {
    kernel_each_level(test_bench() ? bench_keys : check_keys);
}
static void grad_rows(void) {
    kernel_each_level(test_bench() ? bench_rows : check_rows);
}

static const struct test tests[] = {
    {"grad_keys_f32", grad_keys},
    {"grad_rows_f32", grad_rows},
};
TEST_SUITE(kernel_grad_suite, "kernels", tests);
