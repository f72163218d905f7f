/* Products of bf16 pairs: rows_to_pairs_bf16, tile_qk_bf16, lines_to_pairs_bf16, tile_pv_bf16,
 * tile_pv_masked_bf16, on the levels that have them. How an instruction rounds between the two
 * products of a pair is its own business: sums of small integers must be exact, others within a
 * bound against double, and every sum must have the bits of the same sum computed by itself. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "../../ref/elements.h"
#include "core/cpu.h"
#include "kernel_check.h"
#include "kernel_suites.h"

/* Half the distance from 1 to the next float: the relative error of one rounding. */
#define UNIT 5.9604645e-8

/* Room for any operand: lines of 64 floats, rows of up to 2 * (MAX_DIM + 8) halves. */
enum { ROOM = 2 * PTL_MAX_KEY_TILE * (MAX_DIM + 8) };

/* Calls check for the levels that have the kernels; says so when there is none. */
static void each_pair_level(void (*check)(const struct ptl_kernels *k)) {
    int n = 0;
    for (int i = 0; i < test_n_levels(); i++) {
        const struct ptl_kernels *k = ptl_cpu_kernels(test_level(i));
        if (!k->tile_qk_bf16) continue;
        test_case("%s", k->name);
        check(k);
        n++;
    }
    if (n == 0) test_skip("no level with dot products of bf16");
}

/* ---- Halves ---------------------------------------------------------------------------------- */

static double half_value(uint16_t half) {
    return ref_read(PTL_BF16, &half, 0);
}

static uint16_t half_of(double x) {
    uint16_t half;
    ref_write(PTL_BF16, &half, 0, x);
    return half;
}

/* The last n halves before the unmapped page. */
static uint16_t *guard_halves(const struct guard *g, size_t n) {
    const size_t n_floats = (n + 1) / 2;
    return (uint16_t *)(guard_floats(g, n_floats) + n_floats) - n;
}

/* What operands hold: integers from -8 to 8, whose sums are exact, or any numbers of [-1, 1). */
enum content { INTEGERS, NUMBERS };

static uint16_t random_half(struct test_random *r, enum content content) {
    if (content == INTEGERS) return half_of((double)test_random_int(r, -8, 8));
    return half_of((double)test_random_float(r));
}

static void fill_halves(struct test_random *r, enum content content, uint16_t *x, size_t n) {
    for (size_t i = 0; i < n; i++) x[i] = random_half(r, content);
}

/* n lines of pairs, the used vectors. */
static void fill_lines(const struct ptl_kernels *k, struct test_random *r, enum content content,
                       int nv, float *lines, int n) {
    for (int line = 0; line < n; line++)
        fill_halves(r, content, (uint16_t *)(lines + line * k->panel), 2 * (size_t)(nv * k->lanes));
}

/* The first (0) or second (1) of a lane's pair. */
static double pair_value(const float *lines, ptrdiff_t lane, int which) {
    return half_value(((const uint16_t *)lines)[2 * lane + which]);
}

/* ---- rows_to_pairs --------------------------------------------------------------------------- */

static struct guard row_guards[PTL_MAX_KEY_TILE];

static void check_rows_size(const struct ptl_kernels *k, const struct guard *result,
                            struct test_random *r, int n_rows, int n) {
    static const float broken[] = {NAN, INFINITY, -INFINITY};
    const uint16_t *rows[PTL_MAX_KEY_TILE];
    uint16_t *spoilt = NULL;
    for (int i = 0; i < n_rows; i++) {
        uint16_t *row = guard_halves(&row_guards[i], (size_t)n);
        fill_halves(r, NUMBERS, row, (size_t)n);
        row[test_random_int(r, 0, n - 1)] = half_of(i % 2 ? FLT_MAX / 2 : -0.0);
        rows[i] = row;
        if (i == n_rows / 2) spoilt = row + test_random_int(r, 0, n - 1);
    }
    const ptrdiff_t padded = (n + k->lanes - 1) / k->lanes * k->lanes, stride = 2 * padded;
    const size_t n_floats = (size_t)((n_rows + 1) / 2 * padded);
    uint16_t *pairs = (uint16_t *)guard_floats(result, n_floats);

    CHECK(k->rows_to_pairs_bf16(rows, n_rows, n, pairs, stride));

    for (int row = 0; row < (n_rows + 1) / 2 * 2; row++)
        for (int c = 0; c < padded; c++) {
            const uint16_t got = pairs[row / 2 * stride + 2 * c + row % 2];
            const uint16_t expected = row < n_rows && c < n ? rows[row][c] : 0;
            if (got == expected) continue;
            FAIL("n_rows=%d n=%d: row %d column %d is 0x%04x, expected 0x%04x", n_rows, n, row, c,
                 got, expected);
            return;
        }
    *spoilt = half_of((double)broken[test_random_int(r, 0, 2)]);
    if (k->rows_to_pairs_bf16(rows, n_rows, n, pairs, stride))
        FAIL("n_rows=%d n=%d: finite, but one element is not", n_rows, n);
    CHECK(guard_intact(result, n_floats));
}

static void check_rows(const struct ptl_kernels *k) {
    struct test_random r = {31};
    struct guard result = guard_create(ROOM * sizeof(float));
    int dims[MAX_SIZES];
    const int n_dims = kernel_dims(dims);
    for (int i = 0; i < PTL_MAX_KEY_TILE; i++) row_guards[i] = guard_create(MAX_DIM * 2);
    for (int d = 0; d < n_dims; d++)
        for (int n_rows = 1; n_rows <= k->key_tile && !test_case_failed();
             n_rows += n_rows < 8 ? 1 : 29)
            check_rows_size(k, &result, &r, n_rows, dims[d]);
    for (int i = 0; i < PTL_MAX_KEY_TILE; i++) guard_destroy(&row_guards[i]);
    guard_destroy(&result);
}

/* ---- lines_to_pairs -------------------------------------------------------------------------- */

static float random_score(struct test_random *r) {
    static const uint32_t special[] = {0x00000000, 0x80000000, 0x7f800000, 0xff800000, 0x7fc00000,
                                       0xffc12345, 0x7f7f7fff, 0x3f808000, 0x3f818000, 0x3f808001,
                                       0x3f807fff, 0xbf808000, 0xbf818000, 0x00800000};
    const int64_t kind = test_random_int(r, 0, 31);
    if (kind < 14) return bits_float(special[kind]);
    return ldexpf(test_random_float(r), (int)test_random_int(r, -60, 60));
}

static void check_lines(const struct ptl_kernels *k) {
    struct test_random r = {32};
    static float before[PTL_MAX_KEY_TILE * PTL_MAX_PANEL];
    struct guard g = guard_create(sizeof before);
    int counts[MAX_SIZES];
    const int n_counts = kernel_key_counts(k, counts);
    for (int nv = 1; nv <= k->panel / k->lanes; nv++)
        for (int c = 0; c < n_counts && !test_case_failed(); c++) {
            const int n_keys = counts[c];
            const size_t n = (size_t)(n_keys * k->panel);
            float *s = guard_floats(&g, n);
            for (int j = 0; j < n_keys; j++)
                for (int i = 0; i < nv * k->lanes; i++) s[j * k->panel + i] = random_score(&r);
            memcpy(before, s, n * sizeof *s);

            k->lines_to_pairs_bf16(nv, s, n_keys);

            for (int j = 0; j < (n_keys + 1) / 2 * 2; j++)
                for (int i = 0; i < k->panel; i++) {
                    const size_t at = (size_t)(j / 2 * k->panel + i);
                    const uint16_t got = ((const uint16_t *)(s + at))[j % 2];
                    const float x = j < n_keys ? before[j * k->panel + i] : 0.0f;
                    if (i >= nv * k->lanes ? float_bits(s[at]) == GUARD_WORD
                        : isnan(x)         ? isnan(half_value(got))
                                           : got == half_of((double)x))
                        continue;
                    FAIL("nv=%d n_keys=%d: key %d lane %d is 0x%04x, of %.9g", nv, n_keys, j, i,
                         got, (double)x);
                    j = n_keys;
                    break;
                }
            CHECK(guard_intact(&g, n));
        }
    guard_destroy(&g);
}

/* ---- Products -------------------------------------------------------------------------------- */

struct operands {
    struct guard panel, rows, result;
};

/* Fails unless got is exactly, or within the roundings of n terms, what was expected. */
static bool near(enum content content, float got, double exact, double size, int n,
                 const char *what, int nv, int n_keys, int dim, int line, int lane) {
    const double bound = content == INTEGERS ? 0.0 : (n + 1) * UNIT * size;
    if (fabs((double)got - exact) <= bound) return true;
    FAIL("%s nv=%d n_keys=%d dim=%d: line %d lane %d is %.9g, exactly %.17g", what, nv, n_keys, dim,
         line, lane, (double)got, exact);
    return false;
}

static bool same(float got, float alone, const char *what, int nv, int n_keys, int dim, int line,
                 int lane) {
    if (float_bits(got) == float_bits(alone)) return true;
    FAIL("%s nv=%d n_keys=%d dim=%d: line %d lane %d is %.9g, by itself %.9g", what, nv, n_keys,
         dim, line, lane, (double)got, (double)alone);
    return false;
}

/* Fails unless lanes past the used vectors still hold what was there. */
static bool same_unused(const struct ptl_kernels *k, const float *lines, int n, int nv) {
    for (int line = 0; line < n; line++)
        for (int lane = nv * k->lanes; lane < k->panel; lane++)
            if (float_bits(lines[line * k->panel + lane]) != GUARD_WORD) {
                FAIL("nv=%d: wrote line %d lane %d, an unused vector", nv, line, lane);
                return false;
            }
    return true;
}

static void check_qk_size(const struct ptl_kernels *k, const struct operands *o,
                          struct test_random *r, enum content content, int nv, int n_keys,
                          int n_pairs) {
    const ptrdiff_t stride = 2 * n_pairs + test_random_int(r, 0, 7); /* odd ones too */
    const size_t n_s = (size_t)(n_keys * k->panel);
    float *q = guard_floats(&o->panel, (size_t)(n_pairs * k->panel));
    uint16_t *keys = guard_halves(&o->rows, (size_t)((n_keys - 1) * stride + 2 * n_pairs));
    float *s = guard_floats(&o->result, n_s), alone[PTL_MAX_PANEL];
    fill_lines(k, r, content, nv, q, n_pairs);
    for (int j = 0; j < n_keys; j++) /* NaN in the gaps */
        fill_halves(r, content, keys + j * stride, 2 * (size_t)n_pairs);

    k->tile_qk_bf16(nv, q, keys, stride, n_keys, n_pairs, s);

    for (int j = 0; j < n_keys; j++)
        for (int lane = 0; lane < nv * k->lanes; lane++) {
            double exact = 0.0, size = 0.0;
            for (int d = 0; d < 2 * n_pairs; d++) {
                const double term = half_value(keys[j * stride + d]) *
                                    pair_value(q + d / 2 * k->panel, lane, d % 2);
                exact += term;
                size += fabs(term);
            }
            if (lane % k->lanes == 0)
                k->tile_qk_bf16(1, q + lane, keys + j * stride, stride, 1, n_pairs, alone);
            const float got = s[j * k->panel + lane];
            if (!near(content, got, exact, size, 2 * n_pairs, "tile_qk_bf16", nv, n_keys,
                      2 * n_pairs, j, lane) ||
                !same(got, alone[lane % k->lanes], "tile_qk_bf16", nv, n_keys, 2 * n_pairs, j,
                      lane))
                return;
        }
    same_unused(k, s, n_keys, nv);
    CHECK(guard_intact(&o->result, n_s));
}

struct pv_operands {
    float *p, *out;
    uint16_t *v;
    ptrdiff_t stride;
    size_t n_out;
    bool first;         /* out is taken as 0, and holds NaN */
    float before[ROOM]; /* out before the call */
};

/* Pairs with a 0 for the key that the last of an odd number lacks. */
static void fill_pv(const struct ptl_kernels *k, const struct operands *o, struct test_random *r,
                    enum content content, int nv, int n_keys, int dv, struct pv_operands *x) {
    const int n = (n_keys + 1) / 2;
    x->stride = 2 * (dv + test_random_int(r, 0, 7));
    x->n_out = (size_t)(dv * k->panel);
    x->p = guard_floats(&o->panel, (size_t)(n * k->panel));
    x->v = guard_halves(&o->rows, (size_t)((n - 1) * x->stride + 2 * dv));
    x->out = guard_floats(&o->result, x->n_out);
    fill_lines(k, r, content, nv, x->p, n);
    for (int j = 0; j < n; j++) fill_halves(r, content, x->v + j * x->stride, 2 * (size_t)dv);
    for (int i = 0; n_keys % 2 && i < nv * k->lanes; i++)
        ((uint16_t *)(x->p + (n - 1) * k->panel))[2 * i + 1] = 0;
    for (int d = 0; n_keys % 2 && d < dv; d++) x->v[(n - 1) * x->stride + 2 * d + 1] = 0;
    x->first = test_random_int(r, 0, 1);
    for (int d = 0; d < dv && !x->first; d++)
        for (int i = 0; i < nv * k->lanes; i++)
            x->out[d * k->panel + i] = (float)half_value(random_half(r, content));
    memcpy(x->before, x->out, x->n_out * sizeof *x->out);
}

static void check_pv_size(const struct ptl_kernels *k, const struct operands *o,
                          struct test_random *r, enum content content, int nv, int n_keys, int dv) {
    static struct pv_operands x;
    float alone[PTL_MAX_PANEL];
    fill_pv(k, o, r, content, nv, n_keys, dv, &x);
    k->tile_pv_bf16(nv, x.p, x.v, x.stride, n_keys, dv, x.out, x.first);
    for (int d = 0; d < dv; d++)
        for (int lane = 0; lane < nv * k->lanes; lane++) {
            const size_t at = (size_t)(d * k->panel + lane);
            double exact = x.first ? 0.0 : (double)x.before[at], size = fabs(exact);
            for (int j = 0; j < n_keys; j++) {
                const double term = half_value(x.v[j / 2 * x.stride + 2 * d + j % 2]) *
                                    pair_value(x.p + j / 2 * k->panel, lane, j % 2);
                exact += term;
                size += fabs(term);
            }
            if (lane % k->lanes == 0) {
                memcpy(alone, x.before + at, (size_t)k->lanes * sizeof *alone);
                k->tile_pv_bf16(1, x.p + lane, x.v + 2 * d, x.stride, n_keys, 1, alone, x.first);
            }
            if (!near(content, x.out[at], exact, size, n_keys + 1, "tile_pv_bf16", nv, n_keys, dv,
                      d, lane) ||
                !same(x.out[at], alone[lane % k->lanes], "tile_pv_bf16", nv, n_keys, dv, d, lane))
                return;
        }
    same_unused(k, x.out, dv, nv);
    CHECK(guard_intact(&o->result, x.n_out));
}

/* Bits at random; now and then a key that all or no lanes see. */
static void fill_mask(struct test_random *r, uint64_t *mask, int n) {
    for (int j = 0; j < n; j++) {
        const int64_t kind = test_random_int(r, 0, 5);
        mask[j] = kind == 0 ? 0 : kind == 1 ? ~(uint64_t)0 : test_random_bits(r);
    }
}

static void check_masked_size(const struct ptl_kernels *k, const struct operands *o,
                              struct test_random *r, enum content content, int nv, int n_keys,
                              int dv) {
    static struct pv_operands x;
    static float plain[ROOM];
    static const float broken[] = {NAN, INFINITY, -INFINITY};
    uint64_t mask[PTL_MAX_KEY_TILE];
    fill_pv(k, o, r, content, nv, n_keys, dv, &x);
    fill_mask(r, mask, n_keys);

    /* Finite values, scores 0 where the mask is: the same bits as the plain product. */
    for (int j = 0; j < n_keys; j++)
        for (int lane = 0; lane < nv * k->lanes; lane++)
            if (!(mask[j] >> lane & 1)) ((uint16_t *)(x.p + j / 2 * k->panel + lane))[j % 2] = 0;
    k->tile_pv_bf16(nv, x.p, x.v, x.stride, n_keys, dv, x.out, x.first);
    memcpy(plain, x.out, x.n_out * sizeof *plain);
    memcpy(x.out, x.before, x.n_out * sizeof *plain);
    k->tile_pv_masked_bf16(nv, x.p, x.v, x.stride, n_keys, dv, x.out, x.first, mask);
    if (memcmp(plain, x.out, x.n_out * sizeof *plain) != 0)
        FAIL("nv=%d n_keys=%d dv=%d: not the bits of tile_pv_bf16", nv, n_keys, dv);

    /* A NaN or Inf in v reaches the lanes that see its key and no other. */
    const int j = (int)test_random_int(r, 0, n_keys - 1), d = (int)test_random_int(r, 0, dv - 1);
    x.v[j / 2 * x.stride + 2 * d + j % 2] = half_of((double)broken[test_random_int(r, 0, 2)]);
    memcpy(x.out, x.before, x.n_out * sizeof *plain);
    k->tile_pv_masked_bf16(nv, x.p, x.v, x.stride, n_keys, dv, x.out, x.first, mask);
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
    same_unused(k, x.out, dv, nv);
    CHECK(guard_intact(&o->result, x.n_out));
}

static void each_size(const struct ptl_kernels *k, uint64_t seed,
                      void (*check)(const struct ptl_kernels *k, const struct operands *o,
                                    struct test_random *r, enum content content, int nv, int n_keys,
                                    int dim)) {
    struct operands o = {guard_create(ROOM * sizeof(float)), guard_create(ROOM * sizeof(float)),
                         guard_create(ROOM * sizeof(float))};
    struct test_random r = {seed};
    int dims[MAX_SIZES], counts[MAX_SIZES];
    const int n_dims = kernel_dims(dims), n_counts = kernel_key_counts(k, counts);
    for (int nv = 1; nv <= k->panel / k->lanes; nv++)
        for (int d = 0; d < n_dims; d++)
            for (int c = 0; c < n_counts && !test_case_failed(); c++)
                check(k, &o, &r, (d + c) % 2 ? NUMBERS : INTEGERS, nv, counts[c], dims[d]);
    guard_destroy(&o.panel);
    guard_destroy(&o.rows);
    guard_destroy(&o.result);
}

/* ---- Times ----------------------------------------------------------------------------------- */

struct bench_case {
    float lines[ROOM], out[ROOM];
    uint16_t rows[2 * ROOM];
    const uint16_t *row[PTL_MAX_KEY_TILE];
    int nv, n_keys, dim;
};

static void run_qk(const struct ptl_kernels *k, void *arg) {
    struct bench_case *b = arg;
    k->tile_qk_bf16(b->nv, b->lines, b->rows, b->dim, b->n_keys, b->dim / 2, b->out);
}
static void run_pv(const struct ptl_kernels *k, void *arg) {
    struct bench_case *b = arg;
    k->tile_pv_bf16(b->nv, b->lines, b->rows, 2 * b->dim, b->n_keys, b->dim, b->out, false);
}
static void run_rows(const struct ptl_kernels *k, void *arg) {
    struct bench_case *b = arg;
    k->rows_to_pairs_bf16(b->row, b->n_keys, b->dim, (uint16_t *)b->out, 2 * b->dim);
}
static void run_lines(const struct ptl_kernels *k, void *arg) {
    struct bench_case *b = arg;
    memcpy(b->out, b->lines, (size_t)(b->n_keys * k->panel) * sizeof *b->out);
    k->lines_to_pairs_bf16(b->nv, b->out, b->n_keys);
}

/* The rates of making pairs are those of the product that the pairs are for, so that they show its
 * share of the time. */
static void bench(const struct ptl_kernels *k, const char *name,
                  void (*run)(const struct ptl_kernels *k, void *arg)) {
    static struct bench_case b;
    static const int dims[] = {32, 64, 128};
    struct test_random r = {35};
    fill_halves(&r, NUMBERS, (uint16_t *)b.lines, 2 * ROOM);
    fill_halves(&r, NUMBERS, b.rows, 2 * ROOM);
    b.n_keys = k->key_tile;
    for (b.nv = 1; b.nv <= k->panel / k->lanes; b.nv++)
        for (int d = 0; d < 3; d++) {
            char what[80];
            b.dim = dims[d];
            memset(b.out, 0, sizeof b.out);
            for (int j = 0; j < b.n_keys; j++) b.row[j] = b.rows + j * b.dim;
            snprintf(what, sizeof what, "%s nv=%d n_keys=%d d=%d", name, b.nv, b.n_keys, b.dim);
            kernel_bench(k, what, 2.0 * b.nv * k->lanes * b.n_keys * b.dim, "flop", run, &b);
        }
}

static void bench_qk(const struct ptl_kernels *k) {
    bench(k, "tile_qk_bf16", run_qk);
}
static void bench_pv(const struct ptl_kernels *k) {
    bench(k, "tile_pv_bf16", run_pv);
}
static void bench_rows(const struct ptl_kernels *k) {
    bench(k, "rows_to_pairs_bf16", run_rows);
}
static void bench_lines(const struct ptl_kernels *k) {
    bench(k, "lines_to_pairs_bf16 and a copy", run_lines);
}

/* ---- Tests ----------------------------------------------------------------------------------- */

static void check_qk(const struct ptl_kernels *k) {
    each_size(k, 33, check_qk_size);
}
static void check_pv(const struct ptl_kernels *k) {
    each_size(k, 34, check_pv_size);
}
static void check_masked(const struct ptl_kernels *k) {
    each_size(k, 36, check_masked_size);
}

static void rows_to_pairs(void) {
    each_pair_level(test_bench() ? bench_rows : check_rows);
}
static void lines_to_pairs(void) {
    each_pair_level(test_bench() ? bench_lines : check_lines);
}
static void tile_qk(void) {
    each_pair_level(test_bench() ? bench_qk : check_qk);
}
static void tile_pv(void) {
    each_pair_level(test_bench() ? bench_pv : check_pv);
}
static void tile_pv_masked(void) {
    if (!test_bench()) each_pair_level(check_masked);
}

static const struct test tests[] = {
    {"rows_to_pairs_bf16", rows_to_pairs},
    {"lines_to_pairs_bf16", lines_to_pairs},
    {"tile_qk_bf16", tile_qk},
    {"tile_pv_bf16", tile_pv},
    {"tile_pv_masked_bf16", tile_pv_masked},
};
TEST_SUITE(kernel_pairs_suite, "kernels", tests);
