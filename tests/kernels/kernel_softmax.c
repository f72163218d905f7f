/* The kernels of softmax attention: PV over runs and the sums in order, rounding for rounding; the
 * score stage, states of splits and the stencil against double. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kernel_check.h"
#include "kernel_suites.h"

/* Half the distance from 1 to the next float; and the relative error of 2^x, x in [-126, 128],
 * which the polynomial has (9.3e-8) and its steps add to. */
#define UNIT 5.9604645e-8
#define EXP2_ERROR 4e-7

enum { KEYS = 128, LINES = 256, ROOM = LINES * PTL_MAX_PANEL, MAX_ARRAYS = 8 };

/* Guarded arrays, taken one after the other by each case. */
struct arrays {
    struct guard g[MAX_ARRAYS];
    size_t n[MAX_ARRAYS];
    int used;
};

static struct arrays create_arrays(void) {
    struct arrays a = {.used = 0};
    for (int i = 0; i < MAX_ARRAYS; i++) a.g[i] = guard_create(ROOM * sizeof(float));
    return a;
}

static void destroy_arrays(struct arrays *a) {
    for (int i = 0; i < MAX_ARRAYS; i++) guard_destroy(&a->g[i]);
}

static float *take(struct arrays *a, size_t n) {
    a->n[a->used] = n;
    return guard_floats(&a->g[a->used++], n);
}

/* n lines; the used vectors random, the others GUARD_WORD. */
static float *take_lines(struct arrays *a, struct test_random *r, const struct ptl_kernels *k,
                         int nv, int n) {
    float *lines = take(a, (size_t)(n * k->panel));
    kernel_fill_panel(r, k, nv, lines, n);
    return lines;
}

/* Nothing in front of the arrays, and nothing in their unused vectors, was written. */
static void end_case(struct arrays *a) {
    for (int i = 0; i < a->used; i++) CHECK(guard_intact(&a->g[i], a->n[i]));
    a->used = 0;
}

static bool unused_is_whole(const struct ptl_kernels *k, int nv, const float *lines, int n) {
    for (int line = 0; line < n; line++)
        for (int lane = nv * k->lanes; lane < k->panel; lane++)
            if (float_bits(lines[line * k->panel + lane]) != GUARD_WORD) return false;
    return true;
}

/* Bits at random; now and then a key that all or no lanes see. */
static void fill_mask(struct test_random *r, uint64_t *mask, int n) {
    for (int j = 0; j < n; j++) {
        const int64_t kind = test_random_int(r, 0, 5);
        mask[j] = kind == 0 ? 0 : kind == 1 ? ~(uint64_t)0 : test_random_bits(r);
    }
}

static bool near(float got, double expected, double relative, double absolute) {
    if (isnan(expected)) return isnan(got);
    if (isinf(expected)) return (double)got == expected;
    return fabs((double)got - expected) <= relative * fabs(expected) + absolute;
}

/* ---- PV over runs ---------------------------------------------------------------------------- */

enum { MAX_RUNS = KEYS };

/* Cuts n rows at random into runs, each in a place of its own. */
static int cut(struct test_random *r, const float *rows, ptrdiff_t stride, int n, int most,
               struct ptl_run *runs, float *copies) {
    int n_runs = 0;
    for (int at = 0; at < n; n_runs++) {
        int length = (int)test_random_int(r, 1, most);
        if (length > n - at) length = n - at;
        const ptrdiff_t place = (n - at - length) * stride; /* in reversed order */
        memcpy(copies + place, rows + at * stride, (size_t)(length * stride) * sizeof *rows);
        runs[n_runs] = (struct ptl_run){copies + place, length};
        at += length;
    }
    return n_runs;
}

static void check_pv_runs_size(const struct ptl_kernels *k, struct arrays *a, struct test_random *r,
                               int nv, int n_keys, int dv) {
    static float expected[ROOM];
    static struct ptl_run runs[MAX_RUNS];
    const ptrdiff_t stride = dv + test_random_int(r, 0, 3);
    float *s = take_lines(a, r, k, nv, n_keys), *o = take_lines(a, r, k, nv, dv);
    float *masked = take_lines(a, r, k, nv, dv), *factor = take_lines(a, r, k, nv, 1);
    float *v = take(a, (size_t)(n_keys * stride)), *copies = take(a, (size_t)(n_keys * stride));
    const bool first = test_random_int(r, 0, 1);
    const int column = (int)test_random_int(r, 0, dv - 1);
    const int n_columns = (int)test_random_int(r, 1, dv - column);
    uint64_t mask[KEYS];
    kernel_fill(r, v, (size_t)(n_keys * stride));
    fill_mask(r, mask, n_keys);
    for (int j = 0; j < n_keys; j++)
        for (int lane = 0; lane < nv * k->lanes; lane++)
            if (!(mask[j] >> lane & 1)) s[j * k->panel + lane] = 0.0f;
    memcpy(masked, o, (size_t)(dv * k->panel) * sizeof *o);
    for (int d = 0; d < dv; d++)
        for (int lane = 0; lane < k->panel; lane++) {
            const int at = d * k->panel + lane;
            float sum = 0.0f;
            for (int j = 0; j < n_keys; j++)
                sum = kernel_fma(k, v[j * stride + d], s[j * k->panel + lane], sum);
            expected[at] = lane >= nv * k->lanes ? o[at]
                           : first               ? 0.0f + sum
                                                 : kernel_fma(k, o[at], factor[lane], sum);
        }
    cut(r, v, stride, n_keys, n_keys > 8 ? n_keys / 2 : 3, runs, copies);
    k->tile_pv_runs_f32(nv, s, runs, stride, n_keys, column, n_columns, o, first ? NULL : factor);
    for (int at = 0; at < dv * k->panel; at++) {
        const int d = at / k->panel;
        const float e = d < column || d >= column + n_columns ? masked[at] : expected[at];
        if (float_bits(o[at]) == float_bits(e)) continue;
        FAIL("nv=%d n_keys=%d dv=%d: column %d lane %d is %.9g, expected %.9g", nv, n_keys, dv, d,
             at % k->panel, (double)o[at], (double)e);
        break;
    }
    /* NaN where nobody looks */
    for (int j = 0; j < n_keys; j++)
        for (int lane = 0; lane < nv * k->lanes; lane++)
            if (!(mask[j] >> lane & 1)) s[j * k->panel + lane] = NAN;
    k->tile_pv_runs_masked_f32(nv, s, runs, stride, n_keys, dv, masked, first ? NULL : factor,
                               mask);
    for (int at = 0; at < dv * k->panel; at++)
        if (float_bits(masked[at]) != float_bits(expected[at])) {
            FAIL("masked nv=%d n_keys=%d dv=%d: column %d lane %d is %.9g, expected %.9g", nv,
                 n_keys, dv, at / k->panel, at % k->panel, (double)masked[at],
                 (double)expected[at]);
            break;
        }
    end_case(a);
}

static void check_pv_runs(const struct ptl_kernels *k) {
    static const int keys[] = {1, 2, 3, 5, 8, 31, 64, 100, KEYS};
    static const int dims[] = {1, 2, 3, 7, 12, 17, 33, 64, 128};
    struct arrays a = create_arrays();
    struct test_random r = {61};
    for (int nv = 1; nv <= k->panel / k->lanes; nv++)
        for (int i = 0; i < 9; i++)
            for (int d = 0; d < (test_quick() ? 5 : 9) && !test_case_failed(); d++)
                check_pv_runs_size(k, &a, &r, nv, keys[i], dims[d]);
    destroy_arrays(&a);
}

static void pv_runs(void) {
    kernel_each_level(check_pv_runs);
}

/* ---- The score stage ------------------------------------------------------------------------- */

/* Scores of a kind: ordinary, large, or with infinities and NaN. */
static float score(struct test_random *r, int kind) {
    static const float special[] = {NAN, -INFINITY, 0.0f, -1e5f, 1.0f, -3.0f};
    if (kind == 2 && test_random_int(r, 0, 3) == 0) return special[test_random_int(r, 0, 5)];
    if (kind == 3) return -INFINITY;
    return test_random_float(r) * (kind == 1 ? 3e4f : 8.0f);
}

static double exp2_of(double x) {
    if (x >= 128.0) return INFINITY;
    return x < -126.0 ? 0.0 : exp2(x); /* what would be no normal number is 0 */
}

/* The relative error of 2^(scale * s - m), where the exponent is rounded once or twice. */
static double error_of(float scale, float s, double m) {
    return EXP2_ERROR + UNIT * (isfinite(s) ? fabs((double)scale * (double)s) : 0.0) +
           UNIT * (isfinite(m) ? fabs(m) : 0.0);
}

static void check_lane(const struct ptl_kernels *k, const float *before, const float *after,
                       const uint64_t *mask, int n_keys, int lane, float scale, const float old[2],
                       const float now[3]) {
    float m = old[0];
    double sum = 0.0;
    for (int j = 0; j < n_keys; j++) {
        const float x = scale * before[j * k->panel + lane];
        if ((!mask || (mask[j] >> lane & 1)) && x > m) m = x;
    }
    const double reference = isinf(m) ? 0.0 : (double)m;
    for (int j = 0; j < n_keys; j++) {
        const int at = j * k->panel + lane;
        const bool is_seen = !mask || (mask[j] >> lane & 1);
        const double x = (double)scale * (double)before[at] - reference;
        const double e = is_seen ? exp2_of(x) : 0.0;
        sum += e;
        if (!is_seen ? float_bits(after[at]) != 0
                     : !near(after[at], e, error_of(scale, before[at], reference), 1.2e-38))
            FAIL("s[%d][%d] of %.9g is %.9g, expected %.9g", j, lane, (double)before[at],
                 (double)after[at], e);
    }
    const double factor = old[0] == -INFINITY ? 0.0 : exp2_of((double)old[0] - reference);
    if (float_bits(now[0]) != float_bits(m))
        FAIL("m of lane %d is %.9g, expected %.9g", lane, (double)now[0], (double)m);
    const double relative = error_of(1.0f, old[0], reference);
    if (!near(now[2], factor, relative, 1.2e-38))
        FAIL("factor of lane %d is %.9g, expected %.9g", lane, (double)now[2], factor);
    if (!near(now[1], factor * (double)old[1] + sum, relative + (n_keys + 2) * UNIT, 1e-37))
        FAIL("z of lane %d is %.9g, expected %.9g", lane, (double)now[1],
             factor * (double)old[1] + sum);
}

static void check_softmax_size(const struct ptl_kernels *k, struct arrays *a, struct test_random *r,
                               int nv, int n_keys, int kind) {
    static float before[ROOM];
    uint64_t mask[KEYS];
    const uint64_t *given = test_random_int(r, 0, 1) ? mask : NULL;
    const float some = test_random_float(r);
    const float scale = kind == 0 ? some : kind == 1 ? 1.0f : fabsf(some); /* -inf stays so */
    float *s = take_lines(a, r, k, nv, n_keys), *m = take_lines(a, r, k, nv, 1);
    float *z = take_lines(a, r, k, nv, 1), *factor = take_lines(a, r, k, nv, 1);
    float old[PTL_MAX_PANEL][2];
    fill_mask(r, mask, n_keys);
    for (int lane = 0; lane < nv * k->lanes; lane++) {
        const bool first = test_random_int(r, 0, 1);
        for (int j = 0; j < n_keys; j++) s[j * k->panel + lane] = score(r, kind);
        m[lane] = old[lane][0] = first ? -INFINITY : score(r, kind == 1);
        z[lane] = old[lane][1] = first ? 0.0f : 1.0f + (float)test_random_int(r, 0, 100);
    }
    memcpy(before, s, (size_t)(n_keys * k->panel) * sizeof *s);
    k->tile_softmax_f32(nv, s, n_keys, scale, given, m, z, factor);
    for (int lane = 0; lane < nv * k->lanes && !test_case_failed(); lane++) {
        const float now[3] = {m[lane], z[lane], factor[lane]};
        check_lane(k, before, s, given, n_keys, lane, scale, old[lane], now);
    }
    CHECK(unused_is_whole(k, nv, s, n_keys));
    CHECK(unused_is_whole(k, nv, m, 1) && unused_is_whole(k, nv, z, 1));
    CHECK(unused_is_whole(k, nv, factor, 1));
    end_case(a);
}

/* The maximum, or what takes its place, is given. */
static void check_weights_size(const struct ptl_kernels *k, struct arrays *a, struct test_random *r,
                               int nv, int n_keys, int kind) {
    static float before[ROOM];
    uint64_t mask[KEYS];
    const uint64_t *given = test_random_int(r, 0, 1) ? mask : NULL;
    const float scale = test_random_float(r);
    float *s = take_lines(a, r, k, nv, n_keys), *m = take_lines(a, r, k, nv, 1);
    fill_mask(r, mask, n_keys);
    for (int lane = 0; lane < nv * k->lanes; lane++) {
        for (int j = 0; j < n_keys; j++) s[j * k->panel + lane] = score(r, kind == 2);
        m[lane] = test_random_int(r, 0, 5) ? 9.0f + test_random_float(r) : INFINITY;
    }
    memcpy(before, s, (size_t)(n_keys * k->panel) * sizeof *s);
    k->tile_weights_f32(nv, s, n_keys, scale, given, m);
    for (int at = 0; at < n_keys * k->panel; at++) {
        const int lane = at % k->panel;
        if (lane >= nv * k->lanes) continue;
        const bool is_seen = !given || (mask[at / k->panel] >> lane & 1);
        const double x = (double)scale * (double)before[at] - (double)m[lane];
        const double relative = error_of(scale, before[at], (double)m[lane]);
        const double e = is_seen ? exp2_of(x) : 0.0;
        if (near(s[at], e, relative, 1.2e-38) && (is_seen || float_bits(s[at]) == 0)) continue;
        FAIL("weights: s[%d][%d] is %.9g, expected %.9g", at / k->panel, lane, (double)s[at], e);
        break;
    }
    CHECK(unused_is_whole(k, nv, s, n_keys));
    end_case(a);
}

static void check_scores(const struct ptl_kernels *k) {
    static const int keys[] = {1, 2, 3, 4, 5, 7, 33, 64, KEYS};
    struct arrays a = create_arrays();
    struct test_random r = {62};
    for (int nv = 1; nv <= k->panel / k->lanes; nv++)
        for (int i = 0; i < 9; i++)
            for (int n = 0; n < (test_quick() ? 8 : 40) && !test_case_failed(); n++) {
                test_note("%s nv=%d n_keys=%d case %d", k->name, nv, keys[i], n);
                check_softmax_size(k, &a, &r, nv, keys[i], n % 4);
                check_weights_size(k, &a, &r, nv, keys[i], n % 3);
            }
    destroy_arrays(&a);
}

static void softmax(void) {
    kernel_each_level(check_scores);
}

/* ---- States ---------------------------------------------------------------------------------- */

/* A state of some keys: m, z at least 1, a sum; or of none. */
static void fill_state(const struct ptl_kernels *k, struct test_random *r, int nv, float *m,
                       float *z, float *o, int dv) {
    for (int lane = 0; lane < nv * k->lanes; lane++) {
        const bool is_empty = test_random_int(r, 0, 3) == 0;
        m[lane] = is_empty ? -INFINITY : score(r, (int)test_random_int(r, 0, 1));
        z[lane] = is_empty ? 0.0f : 1.0f + 50.0f * fabsf(test_random_float(r));
        for (int d = 0; d < dv && is_empty; d++) o[d * k->panel + lane] = 0.0f;
    }
}

static void check_fold_size(const struct ptl_kernels *k, struct arrays *a, struct test_random *r,
                            int nv, int dv) {
    static float before[ROOM], old_m[PTL_MAX_PANEL], old_z[PTL_MAX_PANEL];
    float *m = take_lines(a, r, k, nv, 1), *z = take_lines(a, r, k, nv, 1);
    float *o = take_lines(a, r, k, nv, dv), *m2 = take_lines(a, r, k, nv, 1);
    float *z2 = take_lines(a, r, k, nv, 1), *o2 = take_lines(a, r, k, nv, dv);
    float *share = take_lines(a, r, k, nv, 1);
    fill_state(k, r, nv, m, z, o, dv);
    fill_state(k, r, nv, m2, z2, o2, dv);
    memcpy(before, o, (size_t)(dv * k->panel) * sizeof *o);
    memcpy(old_m, m, (size_t)k->panel * sizeof *m);
    memcpy(old_z, z, (size_t)k->panel * sizeof *z);
    k->softmax_fold_f32(nv, dv, m, z, o, m2, z2, o2);
    k->softmax_share_f32(nv, old_m, m, z, share);
    for (int lane = 0; lane < nv * k->lanes; lane++) {
        const double max = fmax((double)old_m[lane], (double)m2[lane]);
        const double reference = isinf(max) ? 0.0 : max;
        const double fa = exp2_of((double)old_m[lane] - reference);
        const double fb = exp2_of((double)m2[lane] - reference);
        const double sum = fa * (double)old_z[lane] + fb * (double)z2[lane];
        const double relative = error_of(1.0f, old_m[lane], 0.0) + error_of(1.0f, m2[lane], 0.0);
        if ((double)m[lane] != max) FAIL("fold: m is %.9g", (double)m[lane]);
        if (!near(z[lane], sum, relative, 0.0))
            FAIL("fold: z is %.9g, expected %.9g", (double)z[lane], sum);
        if (!near(share[lane], sum == 0.0 ? 0.0 : fa / sum, relative, 1.2e-38))
            FAIL("share is %.9g, expected %.9g", (double)share[lane], fa / sum);
        for (int d = 0; d < dv; d++) {
            const int at = d * k->panel + lane;
            const double x = fa * (double)before[at], y = fb * (double)o2[at];
            if (!near(o[at], x + y, 0.0, relative * (fabs(x) + fabs(y)) + 1e-37))
                FAIL("fold: o[%d][%d] is %.9g, expected %.9g", d, lane, (double)o[at], x + y);
        }
    }
    CHECK(unused_is_whole(k, nv, o, dv) && unused_is_whole(k, nv, share, 1));
    CHECK(unused_is_whole(k, nv, m, 1) && unused_is_whole(k, nv, z, 1));
    end_case(a);
}

static void check_states(const struct ptl_kernels *k) {
    struct arrays a = create_arrays();
    struct test_random r = {63};
    for (int nv = 1; nv <= k->panel / k->lanes; nv++)
        for (int dv = 0; dv < (test_quick() ? 9 : 40) && !test_case_failed(); dv++)
            check_fold_size(k, &a, &r, nv, dv);
    destroy_arrays(&a);
}

static void states(void) {
    kernel_each_level(check_states);
}

/* ---- Scores of blocks ------------------------------------------------------------------------ */

static void check_stencil_size(const struct ptl_kernels *k, struct arrays *arrays,
                               struct test_random *r, int nv) {
    const int n_keys = (int)test_random_int(r, 1, KEYS);
    const int a = (int)test_random_int(r, 1, 9), b = (int)test_random_int(r, 1, 9);
    const int n_columns = (int)test_random_int(r, 1, n_keys / a + 3);
    const int first = (int)test_random_int(r, -a - b, a + 3);
    float *p = take_lines(arrays, r, k, nv, n_keys), *u = take_lines(arrays, r, k, nv, n_columns);
    k->tile_stencil_f32(nv, p, n_keys, first, a, b, u, n_columns);
    for (int c = 0; c < n_columns && !test_case_failed(); c++)
        for (int lane = 0; lane < nv * k->lanes; lane++) {
            double sum = 0.0, size = 0.0;
            for (int m = 0; m < a; m++)
                for (int n = 0; n < b; n++) { /* box(a) * box(b), term by term */
                    const int key = first + a * c + m + n;
                    if (key < 0 || key >= n_keys) continue;
                    sum += (double)p[key * k->panel + lane];
                    size += fabs((double)p[key * k->panel + lane]);
                }
            if (near(u[c * k->panel + lane], sum, 0.0, (a + b) * UNIT * size)) continue;
            FAIL("n_keys=%d first=%d a=%d b=%d: column %d lane %d is %.9g, expected %.9g", n_keys,
                 first, a, b, c, lane, (double)u[c * k->panel + lane], sum);
            break;
        }
    CHECK(unused_is_whole(k, nv, u, n_columns));
    end_case(arrays);
}

static void check_lines_sum_size(const struct ptl_kernels *k, struct arrays *a,
                                 struct test_random *r, int n_columns) {
    const int lane = (int)test_random_int(r, 0, k->panel - 1);
    const int n_lanes = (int)test_random_int(r, 1, k->panel - lane);
    /* whole vectors of a line are read */
    float *u = take_lines(a, r, k, k->panel / k->lanes, n_columns), expected[LINES];
    float *factor = take_lines(a, r, k, k->panel / k->lanes, 1);
    float *sum = take(a, (size_t)n_columns);
    const bool has_factor = test_random_int(r, 0, 1);
    kernel_fill(r, sum, (size_t)n_columns);
    for (int c = 0; c < n_columns; c++) {
        volatile float total = sum[c]; /* volatile: two roundings a term */
        for (int x = lane; x < lane + n_lanes; x++) {
            volatile float term = u[c * k->panel + x];
            if (has_factor) term = term * factor[x];
            total = total + term;
        }
        expected[c] = total;
    }
    k->lines_sum_f32(u, n_columns, lane, n_lanes, has_factor ? factor : NULL, sum);
    if (memcmp(sum, expected, (size_t)n_columns * sizeof *sum) != 0)
        FAIL("lines_sum of %d columns, lanes %d to %d", n_columns, lane, lane + n_lanes - 1);
    end_case(a);
}

static void check_weigh_rows_size(const struct ptl_kernels *k, struct arrays *a,
                                  struct test_random *r, int n) {
    enum { MOST = 64 };
    const int n_rows = (int)test_random_int(r, 0, MOST);
    const float *rows[MOST];
    float *x = take(a, (size_t)(n_rows * n)), *w = take(a, (size_t)n_rows);
    float *out = take(a, (size_t)n), expected[LINES];
    kernel_fill(r, x, (size_t)(n_rows * n));
    kernel_fill(r, w, (size_t)n_rows);
    for (int i = 0; i < n_rows; i++) rows[i] = x + (n_rows - 1 - i) * n;
    for (int c = 0; c < n; c++) {
        expected[c] = 0.0f;
        for (int i = 0; i < n_rows; i++) expected[c] = kernel_fma(k, w[i], rows[i][c], expected[c]);
    }
    k->weigh_rows_f32(rows, w, n_rows, n, out);
    if (memcmp(out, expected, (size_t)n * sizeof *out) != 0)
        FAIL("weigh_rows of %d rows of %d", n_rows, n);
    end_case(a);
}

static void check_columns(const struct ptl_kernels *k) {
    struct arrays a = create_arrays();
    struct test_random r = {64};
    for (int n = 0; n < (test_quick() ? 50 : 400) && !test_case_failed(); n++)
        check_stencil_size(k, &a, &r, 1 + n % (k->panel / k->lanes));
    for (int n = 1; n < (test_quick() ? 20 : 100) && !test_case_failed(); n++) {
        check_lines_sum_size(k, &a, &r, n);
        check_weigh_rows_size(k, &a, &r, n);
    }
    destroy_arrays(&a);
}

static void columns(void) {
    kernel_each_level(check_columns);
}

static const struct test tests[] = {
    {"tile_pv_runs", pv_runs},
    {"tile_softmax", softmax},
    {"softmax_fold", states},
    {"tile_stencil", columns},
};
TEST_SUITE(kernel_softmax_suite, "kernels", tests);
