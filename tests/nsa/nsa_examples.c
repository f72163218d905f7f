/* Examples worked by hand, with their numbers: geometry, importance, selection, and a whole step.
 * Every variant must give them. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "nsa_compare.h"
#include "nsa_suites.h"

static bool ok(enum ptl_status status, const struct hstu_variant *v) {
    if (status != PTL_OK) FAIL("%s: %s: %s", v->name, ptl_status_name(status), ptl_message());
    return status == PTL_OK;
}

static void check_near(const char *what, const struct hstu_variant *v, const float *got,
                       const double *expected, int n, double bound) {
    for (int i = 0; i < n; i++)
        if (!(fabs((double)got[i] - expected[i]) <= bound))
            FAIL("%s: %s[%d] is %.7g, expected %.7g", v->name, what, i, (double)got[i],
                 expected[i]);
}

static struct ptl_tensor floats(float *x, int64_t rows, int64_t heads, int64_t d) {
    return ptl_tensor_contiguous(x, PTL_F32, 3, (const int64_t[]){rows, heads, d});
}

static struct ptl_tensor numbers(int64_t *x, int64_t n) {
    return ptl_tensor_contiguous(x, PTL_I64, 1, &n);
}

/* ---- Geometry -------------------------------------------------------------------------------- */

static void compressed_length(void) {
    CHECK(ptl_nsa_compressed_length(0, 32, 16) == 0);
    CHECK(ptl_nsa_compressed_length(31, 32, 16) == 0);
    CHECK(ptl_nsa_compressed_length(32, 32, 16) == 1);
    CHECK(ptl_nsa_compressed_length(47, 32, 16) == 1);
    CHECK(ptl_nsa_compressed_length(48, 32, 16) == 2);
    CHECK(ptl_nsa_compressed_length(65536, 32, 16) == 4095);
    CHECK(ptl_nsa_compressed_length(1, 1, 1) == 1);
    CHECK(ptl_nsa_compressed_length(INT64_MAX, 1, 1) == INT64_MAX);
}

/* The rows of a table of positions: what t sees. */
static const struct {
    int64_t t, visible, idx[3], window;
} table[] = {
    {0, 0, {0, -1, -1}, 1},     {30, 0, {0, -1, -1}, 31},  {31, 1, {0, -1, -1}, 32},
    {46, 1, {0, -1, -1}, 47},   {47, 2, {0, -1, -1}, 48},  {63, 3, {0, -1, -1}, 64},
    {64, 3, {0, 1, -1}, 65},    {127, 7, {0, 1, -1}, 128}, {128, 7, {0, 1, 2}, 129},
    {640, 39, {0, 9, 10}, 512},
};

/* With q = 0 every logit is 0, and lse is the logarithm of the number of keys that a row sees. */
static void table_of_positions(void) {
    enum { S = 641 };
    static float zeros[S], q[S], gates[3 * S], out[S], importance[S * 11], lse[3][S];
    static int32_t idx[S * 3], nsel[S];
    int64_t offsets[2] = {0, S}, offsets_kc[2] = {0, 39};
    struct ptl_nsa_params p;
    const struct hstu_variant *v;
    ptl_nsa_params_init(&p);
    p.topk = 3;
    p.q = floats(q, S, 1, 1);
    p.k = p.v = floats(zeros, S, 1, 1);
    p.kc = p.vc = floats(zeros, 39, 1, 1);
    p.seq_offsets_q = numbers(offsets, 2);
    p.seq_offsets_kc = numbers(offsets_kc, 2);
    p.lse_cmp = ptl_tensor_contiguous(lse[0], PTL_F32, 2, (const int64_t[]){S, 1});
    p.lse_slc = ptl_tensor_contiguous(lse[1], PTL_F32, 2, (const int64_t[]){S, 1});
    p.lse_swa = ptl_tensor_contiguous(lse[2], PTL_F32, 2, (const int64_t[]){S, 1});
    p.importance = floats(importance, S, 1, 11);
    p.idx = ptl_tensor_contiguous(idx, PTL_I32, 3, (const int64_t[]){S, 1, 3});
    p.nsel = ptl_tensor_contiguous(nsel, PTL_I32, 2, (const int64_t[]){S, 1});

    p.gates = floats(gates, S, 1, 3);
    p.out = floats(out, S, 1, 1);
    for (int i = 0; (v = hstu_variant(i)) != NULL; i++) {
        if (!ok(ptl_nsa_forward(v->ctx, &p), v)) return;
        for (size_t row = 0; row < sizeof table / sizeof *table; row++) {
            const int64_t t = table[row].t;
            int64_t n = 0, selected = 0;
            for (int e = 0; e < 3; e++) {
                const int64_t j = table[row].idx[e];
                if (idx[3 * t + e] != j)
                    FAIL("%s: idx[%d] of t = %d is %d, expected %d", v->name, e, (int)t,
                         idx[3 * t + e], (int)j);
                n += j >= 0;
                selected += j < 0 ? 0 : 64 * (j + 1) <= t + 1 ? 64 : t + 1 - 64 * j;
            }
            if (nsel[t] != n) FAIL("%s: nsel of t = %d is %d", v->name, (int)t, nsel[t]);
            const double counts[3] = {(double)table[row].visible, (double)selected,
                                      (double)table[row].window};
            for (int b = 0; b < 3; b++)
                if (fabs(exp((double)lse[b][t]) - counts[b]) > 1e-3 * fmax(1.0, counts[b]))
                    FAIL("%s: branch %d of t = %d sees %g keys, expected %g", v->name, b, (int)t,
                         exp((double)lse[b][t]), counts[b]);
        }
    }
}

/* ---- Importance ------------------------------------------------------------------------------ */

/* One query of one head at S - 1 over n compressed keys of given exp(s): d = 1, q = 1, scale 1. */
static bool importance_of(const struct hstu_variant *v, int64_t s, const double *weights, int n,
                          enum ptl_nsa_score score, enum ptl_nsa_pool pool, float *importance,
                          float *lse) {
    float one = 1.0f, kc[16];
    int64_t offsets_q[2] = {0, 1}, offsets_kc[2] = {0, n}, length[1] = {s};
    const int64_t n_blocks = (s + 63) / 64;
    struct ptl_nsa_params p;
    ptl_nsa_params_init(&p);
    for (int i = 0; i < n; i++) kc[i] = (float)log(weights[i]);
    p.scale = 1.0f;
    p.score = score;
    p.pool = pool;
    p.q = floats(&one, 1, 1, 1);
    p.kc = floats(kc, n, 1, 1);
    p.seq_offsets_q = numbers(offsets_q, 2);
    p.seq_offsets_kc = numbers(offsets_kc, 2);
    p.seqlens_k = numbers(length, 1);
    p.importance = floats(importance, 1, 1, n_blocks);
    if (lse) p.lse_cmp = ptl_tensor_contiguous(lse, PTL_F32, 2, (const int64_t[]){1, 1});
    return ok(ptl_nsa_compressed_attention(v->ctx, &p), v);
}

static void variants_of_the_score(void) {
    static const double weights[9] = {.10, .20, .05, .05, .10, .10, .20, .10, .10};
    static const struct {
        enum ptl_nsa_score score;
        enum ptl_nsa_pool pool;
        double expected[3];
    } variants[] = {
        {PTL_NSA_OVERLAP, PTL_NSA_POOL_SUM, {.75, .95, .30}},
        {PTL_NSA_PLUS, PTL_NSA_POOL_SUM, {.80, 1.00, .10}},
        {PTL_NSA_ASCEND, PTL_NSA_POOL_SUM, {.80, 1.00, .10}},
        {PTL_NSA_OVERLAP, PTL_NSA_POOL_MAX, {.20, .20, .10}},
    };
    const struct hstu_variant *v;
    for (int i = 0; (v = hstu_variant(i)) != NULL; i++)
        for (int n = 0; n < 4; n++) {
            float importance[3];
            if (importance_of(v, 160, weights, 9, variants[n].score, variants[n].pool, importance,
                              NULL))
                check_near("importance", v, importance, variants[n].expected, 3, 2e-6);
        }
}

/* The weights of box(a) * box(b): one key has all the probability, key after key. */
static void weights_of_the_stencil(void) {
    static const double all_1[5] = {1, 2, 2, 2, 1};
    const struct hstu_variant *v;
    for (int i = 0; (v = hstu_variant(i)) != NULL; i++)
        for (int key = 0; key < 9; key++) {
            double weights[9], expected[3];
            float importance[3];
            for (int c = 0; c < 9; c++) weights[c] = c == key ? 1.0 : 1e-30;
            for (int j = 0; j < 3; j++) {
                const int at = key - (4 * j - 1);
                expected[j] = at >= 0 && at < 5 ? all_1[at] : 0.0;
            }
            if (importance_of(v, 160, weights, 9, PTL_NSA_OVERLAP, PTL_NSA_POOL_SUM, importance,
                              NULL))
                check_near("importance", v, importance, expected, 3, 1e-6);
        }
}

static void two_tiles(void) {
    static const double weights[8] = {1, 2, .5, .5, 4, 1, 2, 1};
    static const double expected[3] = {.625, 1.2917, .0833}, expected_lse[1] = {2.4849};
    const struct hstu_variant *v;
    for (int i = 0; (v = hstu_variant(i)) != NULL; i++) {
        float importance[3], lse;
        if (!importance_of(v, 144, weights, 8, PTL_NSA_OVERLAP, PTL_NSA_POOL_SUM, importance, &lse))
            return;
        check_near("importance", v, importance, expected, 3, 5e-5);
        check_near("lse", v, &lse, expected_lse, 1, 5e-5);
    }
}

/* ---- Selection ------------------------------------------------------------------------------- */

static void check_selection(int64_t own, const float *importance, enum ptl_nsa_order order,
                            int64_t count, const int32_t *expected, int32_t n) {
    const struct hstu_variant *v;
    int64_t offsets[2] = {0, 1}, length[1] = {own * 64 + 5};
    int32_t idx[4], nsel;
    struct ptl_nsa_params p;
    ptl_nsa_params_init(&p);
    p.topk = 4;
    p.order = order;
    p.importance = floats((float *)importance, 1, 1, own + 1);
    p.seq_offsets_q = numbers(offsets, 2);
    p.seqlens_k = numbers(length, 1);
    p.idx = ptl_tensor_contiguous(idx, PTL_I32, 3, (const int64_t[]){1, 1, 4});
    p.nsel = ptl_tensor_contiguous(&nsel, PTL_I32, 2, (const int64_t[]){1, 1});
    if (count >= 0) p.count = ptl_tensor_contiguous(&count, PTL_I64, 2, (const int64_t[]){1, 1});
    for (int i = 0; (v = hstu_variant(i)) != NULL; i++) {
        memset(idx, 0x55, sizeof idx);
        if (!ok(ptl_nsa_select(v->ctx, &p), v)) return;
        if (memcmp(idx, expected, sizeof idx) != 0 || nsel != n)
            FAIL("%s: %d %d %d %d, %d of them; expected %d %d %d %d, %d", v->name, idx[0], idx[1],
                 idx[2], idx[3], nsel, expected[0], expected[1], expected[2], expected[3], n);
    }
}

static void selections(void) {
    static const float five[5] = {.1f, .9f, .5f, 0.0f, 0.0f}, two[2] = {.5f, .5f};
    static const float ties[5] = {0}, unknown[5] = {0.0f, NAN, -1.0f, 0.0f, 0.0f};
    check_selection(4, five, PTL_NSA_ORDER_INDEX, -1, (const int32_t[]){0, 1, 3, 4}, 4);
    check_selection(4, five, PTL_NSA_ORDER_SCORE, -1, (const int32_t[]){0, 3, 4, 1}, 4);
    check_selection(1, two, PTL_NSA_ORDER_INDEX, -1, (const int32_t[]){0, 1, -1, -1}, 2);
    check_selection(4, ties, PTL_NSA_ORDER_INDEX, -1, (const int32_t[]){0, 1, 3, 4}, 4);
    check_selection(4, ties, PTL_NSA_ORDER_SCORE, -1, (const int32_t[]){0, 3, 4, 1}, 4);
    check_selection(4, unknown, PTL_NSA_ORDER_INDEX, -1, (const int32_t[]){0, 2, 3, 4}, 4);
    check_selection(4, five, PTL_NSA_ORDER_INDEX, 2, (const int32_t[]){0, 3, -1, -1}, 2);
    check_selection(4, five, PTL_NSA_ORDER_INDEX, 0, (const int32_t[]){-1, -1, -1, -1}, 0);
    check_selection(4, five, PTL_NSA_ORDER_INDEX, 9, (const int32_t[]){0, 1, 3, 4}, 4);
}

/* ---- A whole step ---------------------------------------------------------------------------- */

static void tiny_step(void) {
    float q[2] = {1, 0}, k[10] = {1, 0, 0, 1, 2, 0, 0, 0, 1, 1}, values[5] = {1, 2, 3, 4, 5};
    float gates[3] = {1, 1, 1}, out, branch[3], lse[3], importance[3];
    int32_t idx[2];
    int64_t offsets_q[2] = {0, 1}, offsets_k[2] = {0, 5};
    const int64_t one[2] = {1, 1};
    struct ptl_nsa_params p;
    const struct hstu_variant *v;
    ptl_nsa_params_init(&p);
    p.block = p.select_block = p.topk = p.window = 2;
    p.stride = p.n_local = 1;
    p.n_init = 0;
    p.scale = 1.0f;
    p.q = floats(q, 1, 1, 2);
    p.k = floats(k, 5, 1, 2);
    p.v = floats(values, 5, 1, 1);
    p.gates = floats(gates, 1, 1, 3);
    p.seq_offsets_q = numbers(offsets_q, 2);
    p.seq_offsets_k = numbers(offsets_k, 2);
    p.out = floats(&out, 1, 1, 1);
    p.out_cmp = floats(&branch[0], 1, 1, 1);
    p.out_slc = floats(&branch[1], 1, 1, 1);
    p.out_swa = floats(&branch[2], 1, 1, 1);
    p.lse_cmp = ptl_tensor_contiguous(&lse[0], PTL_F32, 2, one);
    p.lse_slc = ptl_tensor_contiguous(&lse[1], PTL_F32, 2, one);
    p.lse_swa = ptl_tensor_contiguous(&lse[2], PTL_F32, 2, one);
    p.importance = floats(importance, 1, 1, 3);
    p.idx = ptl_tensor_contiguous(idx, PTL_I32, 3, (const int64_t[]){1, 1, 2});
    for (int i = 0; (v = hstu_variant(i)) != NULL; i++) {
        if (!ok(ptl_nsa_forward(v->ctx, &p), v)) return;
        check_near("importance", v, importance, (const double[]){.6888, 1.1225, .1888}, 3, 6e-5);
        check_near("lse", v, lse, (const double[]){2.1672, 2.4076, log(1.0 + exp(1.0))}, 3, 6e-5);
        check_near("branch", v, branch, (const double[]){3.0, 3.5795, 4.7311}, 3, 6e-5);
        check_near("out", v, &out, (const double[]){11.3105}, 1, 1e-4);
        if (idx[0] != 1 || idx[1] != 2) FAIL("%s: idx %d %d", v->name, idx[0], idx[1]);
    }
}

static const struct test tests[] = {
    {"compressed_length", compressed_length},
    {"table_of_positions", table_of_positions},
    {"variants_of_the_score", variants_of_the_score},
    {"weights_of_the_stencil", weights_of_the_stencil},
    {"two_tiles", two_tiles},
    {"selections", selections},
    {"tiny_step", tiny_step},
};
TEST_SUITE(nsa_examples_suite, "nsa/examples", tests);
