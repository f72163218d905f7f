/* tile_qk_f32, tile_pv_f32, tile_pv_masked_f32: every element is one sum in order in one
 * accumulator, which the tests do again, step by step and rounding for rounding, and in double. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kernel_check.h"
#include "kernel_suites.h"

/* Half the distance from 1 to the next float: the relative error of one rounding. */
#define UNIT 5.9604645e-8

/* Room for any operand here: lines of 64 floats, rows of up to MAX_DIM + 7 floats. */
enum { ROOM = 256 * (MAX_DIM + 8) };

struct operands {
    struct guard panel, rows, result;
};

static struct operands create_operands(void) {
    return (struct operands){guard_create(ROOM * sizeof(float)), guard_create(ROOM * sizeof(float)),
                             guard_create(ROOM * sizeof(float))};
}

static void destroy_operands(struct operands *o) {
    guard_destroy(&o->panel);
    guard_destroy(&o->rows);
    guard_destroy(&o->result);
}

/* Fails unless the bits are alike. Returns false then, so that one wrong block is one message. */
static bool same_bits(float got, float expected, const char *what, int nv, int n_keys, int dim,
                      int line, int lane) {
    if (float_bits(got) == float_bits(expected)) return true;
    FAIL("%s nv=%d n_keys=%d dim=%d: line %d lane %d is %.9g, expected %.9g", what, nv, n_keys, dim,
         line, lane, (double)got, (double)expected);
    return false;
}

/* Fails unless lanes past the used vectors still hold what was there. */
static bool same_unused(const struct ptl_kernels *k, const float *panel, int n, int nv, int n_keys,
                        int dim) {
    for (int line = 0; line < n; line++)
        for (int lane = nv * k->lanes; lane < k->panel; lane++)
            if (float_bits(panel[line * k->panel + lane]) != GUARD_WORD) {
                FAIL("nv=%d n_keys=%d dim=%d: wrote line %d lane %d, an unused vector", nv, n_keys,
                     dim, line, lane);
                return false;
            }
    return true;
}

/* ---- QK -------------------------------------------------------------------------------------- */

static void check_qk_size(const struct ptl_kernels *k, const struct operands *o,
                          struct test_random *r, int nv, int n_keys, int dqk) {
    const ptrdiff_t stride = dqk + test_random_int(r, 0, 7);
    const size_t n_panel = (size_t)(dqk * k->panel), n_s = (size_t)(n_keys * k->panel);
    float *q = guard_floats(&o->panel, n_panel);
    float *keys = guard_floats(&o->rows, (size_t)((n_keys - 1) * stride + dqk));
    float *s = guard_floats(&o->result, n_s);
    kernel_fill_panel(r, k, nv, q, dqk);
    kernel_fill_rows(r, keys, stride, n_keys, dqk);

    k->tile_qk_f32(nv, q, keys, stride, n_keys, dqk, s);

    for (int j = 0; j < n_keys; j++)
        for (int lane = 0; lane < nv * k->lanes; lane++) {
            const float got = s[j * k->panel + lane];
            float sum = 0.0f;
            double exact = 0.0, size = 0.0;
            for (int d = 0; d < dqk; d++) {
                const float a = keys[j * stride + d], b = q[d * k->panel + lane];
                sum = kernel_fma(k, a, b, sum);
                exact += (double)a * (double)b;
                size += fabs((double)a * (double)b);
            }
            if (!same_bits(got, sum, "tile_qk", nv, n_keys, dqk, j, lane)) return;
            if (fabs((double)got - exact) > (dqk + 1) * UNIT * size) {
                FAIL("nv=%d n_keys=%d dqk=%d: s[%d][%d] is %.9g, exactly %.17g", nv, n_keys, dqk, j,
                     lane, (double)got, exact);
                return;
            }
        }
    same_unused(k, s, n_keys, nv, n_keys, dqk);
    CHECK(guard_intact(&o->result, n_s));
}

static void check_qk(const struct ptl_kernels *k) {
    struct operands o = create_operands();
    struct test_random r = {1};
    int dims[MAX_SIZES], counts[MAX_SIZES];
    const int n_dims = kernel_dims(dims), n_counts = kernel_key_counts(k, counts);
    for (int nv = 1; nv <= k->panel / k->lanes; nv++)
        for (int d = 0; d < n_dims; d++)
            for (int c = 0; c < n_counts && !test_case_failed(); c++)
                check_qk_size(k, &o, &r, nv, counts[c], dims[d]);
    destroy_operands(&o);
}

/* ---- PV -------------------------------------------------------------------------------------- */

struct pv_operands {
    float *s, *v, *out;
    ptrdiff_t stride;
    size_t n_out;
    bool first;         /* out is taken as 0, and holds NaN */
    float before[ROOM]; /* out before the call */
};

static void fill_pv(const struct ptl_kernels *k, const struct operands *o, struct test_random *r,
                    int nv, int n_keys, int dv, struct pv_operands *x) {
    x->stride = dv + test_random_int(r, 0, 7);
    x->n_out = (size_t)(dv * k->panel);
    x->s = guard_floats(&o->panel, (size_t)(n_keys * k->panel));
    x->v = guard_floats(&o->rows, (size_t)((n_keys - 1) * x->stride + dv));
    x->out = guard_floats(&o->result, x->n_out);
    kernel_fill_panel(r, k, nv, x->s, n_keys);
    kernel_fill_rows(r, x->v, x->stride, n_keys, dv);
    x->first = test_random_int(r, 0, 1);
    if (!x->first) kernel_fill_panel(r, k, nv, x->out, dv);
    memcpy(x->before, x->out, x->n_out * sizeof(float));
}

/* Bits at random; now and then a key that all or no lanes see. */
static void fill_mask(struct test_random *r, uint64_t *mask, int n) {
    for (int j = 0; j < n; j++) {
        const int64_t kind = test_random_int(r, 0, 5);
        mask[j] = kind == 0 ? 0 : kind == 1 ? ~(uint64_t)0 : test_random_bits(r);
    }
}

/* out[d][lane] after the call: before + the sum over the keys that mask lets through (NULL:
 * all). */
static bool check_pv_result(const struct ptl_kernels *k, const struct pv_operands *x,
                            const char *what, int nv, int n_keys, int dv, const uint64_t *mask) {
    for (int d = 0; d < dv; d++)
        for (int lane = 0; lane < nv * k->lanes; lane++) {
            const float got = x->out[d * k->panel + lane],
                        before = x->first ? 0.0f : x->before[d * k->panel + lane];
            float sum = 0.0f;
            double exact = (double)before, size = fabs((double)before);
            for (int j = 0; j < n_keys; j++) {
                if (mask && !(mask[j] >> lane & 1)) continue;
                const float a = x->v[j * x->stride + d], b = x->s[j * k->panel + lane];
                sum = kernel_fma(k, a, b, sum);
                exact += (double)a * (double)b;
                size += fabs((double)a * (double)b);
            }
            if (isnan(sum) && isnan(got)) continue;
            if (!same_bits(got, before + sum, what, nv, n_keys, dv, d, lane)) return false;
            if (fabs((double)got - exact) > (n_keys + 2) * UNIT * size) {
                FAIL("%s nv=%d n_keys=%d dv=%d: out[%d][%d] is %.9g, exactly %.17g", what, nv,
                     n_keys, dv, d, lane, (double)got, exact);
                return false;
            }
        }
    return same_unused(k, x->out, dv, nv, n_keys, dv);
}

static void check_pv_size(const struct ptl_kernels *k, const struct operands *o,
                          struct test_random *r, int nv, int n_keys, int dv) {
    static struct pv_operands x;
    fill_pv(k, o, r, nv, n_keys, dv, &x);
    k->tile_pv_f32(nv, x.s, x.v, x.stride, n_keys, dv, x.out, x.first);
    check_pv_result(k, &x, "tile_pv", nv, n_keys, dv, NULL);
    CHECK(guard_intact(&o->result, x.n_out));
}

static void check_pv_masked_size(const struct ptl_kernels *k, const struct operands *o,
                                 struct test_random *r, int nv, int n_keys, int dv) {
    static struct pv_operands x;
    static float plain[ROOM];
    uint64_t mask[256];
    fill_pv(k, o, r, nv, n_keys, dv, &x);
    fill_mask(r, mask, n_keys);

    /* Finite values, scores 0 where the mask is: the same bits as the plain product. */
    for (int j = 0; j < n_keys; j++)
        for (int lane = 0; lane < nv * k->lanes; lane++)
            if (!(mask[j] >> lane & 1)) x.s[j * k->panel + lane] = 0.0f;
    k->tile_pv_f32(nv, x.s, x.v, x.stride, n_keys, dv, x.out, x.first);
    memcpy(plain, x.out, x.n_out * sizeof(float));
    memcpy(x.out, x.before, x.n_out * sizeof(float));
    k->tile_pv_masked_f32(nv, x.s, x.v, x.stride, n_keys, dv, x.out, x.first, mask);
    if (memcmp(plain, x.out, x.n_out * sizeof(float)) != 0)
        FAIL("nv=%d n_keys=%d dv=%d: not the bits of tile_pv", nv, n_keys, dv);
    if (!check_pv_result(k, &x, "tile_pv_masked", nv, n_keys, dv, mask)) return;

    /* A NaN or Inf in v reaches the lanes that see its key and no other. */
    static const float broken[] = {NAN, INFINITY, -INFINITY};
    const int j = (int)test_random_int(r, 0, n_keys - 1), d = (int)test_random_int(r, 0, dv - 1);
    x.v[j * x.stride + d] = broken[test_random_int(r, 0, 2)];
    memcpy(x.out, x.before, x.n_out * sizeof(float));
    k->tile_pv_masked_f32(nv, x.s, x.v, x.stride, n_keys, dv, x.out, x.first, mask);
    for (int lane = 0; lane < nv * k->lanes; lane++)
        for (int e = 0; e < dv; e++) {
            const int at = e * k->panel + lane;
            const bool reached = e == d && (mask[j] >> lane & 1);
            if (reached ? isfinite(x.out[at]) : float_bits(x.out[at]) != float_bits(plain[at])) {
                FAIL("nv=%d n_keys=%d dv=%d: v[%d][%d] not finite; line %d lane %d is %.9g", nv,
                     n_keys, dv, j, d, e, lane, (double)x.out[at]);
                return;
            }
        }
    CHECK(guard_intact(&o->result, x.n_out));
}

typedef void (*size_check)(const struct ptl_kernels *k, const struct operands *o,
                           struct test_random *r, int nv, int n_keys, int dv);

static void each_pv_size(const struct ptl_kernels *k, uint64_t seed, size_check check) {
    struct operands o = create_operands();
    struct test_random r = {seed};
    int dims[MAX_SIZES], counts[MAX_SIZES];
    const int n_dims = kernel_dims(dims), n_counts = kernel_key_counts(k, counts);
    for (int nv = 1; nv <= k->panel / k->lanes; nv++)
        for (int d = 0; d < n_dims; d++)
            for (int c = 0; c < n_counts && !test_case_failed(); c++)
                check(k, &o, &r, nv, counts[c], dims[d]);
    destroy_operands(&o);
}

static void check_pv(const struct ptl_kernels *k) {
    each_pv_size(k, 2, check_pv_size);
}
static void check_pv_masked(const struct ptl_kernels *k) {
    each_pv_size(k, 3, check_pv_masked_size);
}

/* ---- Timing ---------------------------------------------------------------------------------- */

struct bench_case {
    int nv, n_keys, dim;
    float panel[ROOM], rows[ROOM], out[ROOM];
    uint64_t mask[256];
};

static void run_qk(const struct ptl_kernels *k, void *arg) {
    struct bench_case *b = arg;
    k->tile_qk_f32(b->nv, b->panel, b->rows, b->dim, b->n_keys, b->dim, b->out);
}
static void run_pv(const struct ptl_kernels *k, void *arg) {
    struct bench_case *b = arg;
    k->tile_pv_f32(b->nv, b->panel, b->rows, b->dim, b->n_keys, b->dim, b->out, false);
}
static void run_pv_masked(const struct ptl_kernels *k, void *arg) {
    struct bench_case *b = arg;
    k->tile_pv_masked_f32(b->nv, b->panel, b->rows, b->dim, b->n_keys, b->dim, b->out, false,
                          b->mask);
}

static void bench_product(const struct ptl_kernels *k, const char *name,
                          void (*run)(const struct ptl_kernels *k, void *arg)) {
    static struct bench_case b;
    static const int dims[] = {25, 64, 128};
    struct test_random r = {4};
    kernel_fill(&r, b.panel, ROOM);
    kernel_fill(&r, b.rows, ROOM);
    fill_mask(&r, b.mask, 256);
    for (b.nv = 1; b.nv <= k->panel / k->lanes; b.nv++)
        for (int d = 0; d < 3; d++) {
            char what[80];
            b.n_keys = k->key_tile;
            b.dim = dims[d];
            memset(b.out, 0, sizeof b.out);
            snprintf(what, sizeof what, "%s nv=%d n_keys=%d d=%d", name, b.nv, b.n_keys, b.dim);
            kernel_bench(k, what, 2.0 * b.nv * k->lanes * b.n_keys * b.dim, "flop", run, &b);
        }
}

static void bench_qk(const struct ptl_kernels *k) {
    bench_product(k, "tile_qk_f32", run_qk);
}
static void bench_pv(const struct ptl_kernels *k) {
    bench_product(k, "tile_pv_f32", run_pv);
}
static void bench_pv_masked(const struct ptl_kernels *k) {
    bench_product(k, "tile_pv_masked_f32", run_pv_masked);
}

/* ---- Tests ----------------------------------------------------------------------------------- */

static void tile_qk(void) {
    kernel_each_level(test_bench() ? bench_qk : check_qk);
}
static void tile_pv(void) {
    kernel_each_level(test_bench() ? bench_pv : check_pv);
}
static void tile_pv_masked(void) {
    kernel_each_level(test_bench() ? bench_pv_masked : check_pv_masked);
}

static const struct test tests[] = {
    {"tile_qk_f32", tile_qk},
    {"tile_pv_f32", tile_pv},
    {"tile_pv_masked_f32", tile_pv_masked},
};
TEST_SUITE(kernel_product_suite, "kernels", tests);
