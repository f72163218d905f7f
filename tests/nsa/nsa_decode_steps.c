/* ptl_nsa_decode: steps of one and more tokens from an empty cache on, some of them taken back,
 * give the bits of one prefill. */
#include <string.h>

#include "nsa_compare.h"
#include "nsa_suites.h"
#include "ops/tensor_check.h"

/* Rows t .. t+n-1 of a jagged array. */
static struct ptl_tensor rows(struct ptl_tensor t, int64_t first, int64_t n) {
    if (!t.data) return t;
    t.data = (char *)t.data + first * t.stride[0] * (int64_t)ptl_dtype_bytes(t.dtype);
    t.shape[0] = n;
    return t;
}

static struct ptl_tensor numbers(int64_t *x, int64_t n) {
    return ptl_tensor_contiguous(x, PTL_I64, 1, &n);
}

/* Tokens t .. t+n-1 of the prefill become part of y's caches and are answered. `wrong` tokens of
 * another sequence are appended in their place. */
static bool decode(const struct nsa_problem *prefill, struct nsa_problem *y,
                   struct ptl_context *ctx, int64_t t, int64_t n, bool wrong) {
    int64_t offsets[2] = {0, n}, old[1] = {t}, length[1] = {t + n};
    struct ptl_nsa_params p = y->p;
    struct ptl_nsa_append_params a;
    p.q = rows(p.q, t, n);
    p.q_cmp = rows(p.q_cmp, t, n);
    p.gates = rows(p.gates, t, n);
    p.count = rows(p.count, t, n);
    for (int o = 0; o < NSA_N_OUTPUTS; o++) *nsa_output(&p, o) = rows(*nsa_output(&y->p, o), t, n);
    p.seq_offsets_q = numbers(offsets, 2);
    p.seqlens_k = numbers(length, 1);

    ptl_nsa_append_params_init(&a);
    a.block = p.block;
    a.stride = p.stride;
    a.seqlens_old = numbers(old, 1);
    a.seqlens_k = numbers(length, 1);
    a.seq_offsets = numbers(offsets, 2);
    a.k = rows(prefill->p.k, wrong ? 0 : t, n);
    a.v = rows(prefill->p.v, wrong ? 0 : t, n);
    a.k_pages = p.k;
    a.v_pages = p.v;
    a.page_table = p.page_table;
    a.kc_pages = p.kc;
    a.vc_pages = p.vc;
    a.page_table_c = p.page_table_c;
    const enum ptl_status status = ptl_nsa_decode(ctx, &a, &p);
    if (status != PTL_OK) FAIL("%s: %s", ptl_status_name(status), ptl_message());
    return status == PTL_OK;
}

static void check_steps(const struct nsa_spec *s, int64_t most) {
    struct nsa_spec paged = *s, whole = *s;
    struct nsa_whole w;
    whole.mean = true;
    paged.page = 1 + (int64_t)s->seed % 7;
    paged.page_c = 1 + (int64_t)s->seed % 3;
    test_case("%s, steps of 1 to %d", nsa_spec_text(&paged), (int)most);
    nsa_whole_create(&w, &whole);
    for (int level = 0; level < test_n_levels() && w.ok; level++) {
        struct test_random r = {s->seed};
        struct nsa_problem y;
        struct nsa_results got;
        nsa_create(&y, &paged);
        nsa_unprotect(&y);
        struct ptl_tensor *const caches[4] = {&y.p.k, &y.p.v, &y.p.kc, &y.p.vc};
        for (int i = 0; i < 4; i++) tensor_wipe(caches[i]);
        nsa_wipe(&y.p);
        const int64_t length = s->seq[0].n_tokens;
        for (int64_t t = 0, n; t < length && !test_case_failed(); t += n) {
            n = test_random_int(&r, 1, most);
            if (n > length - t) n = length - t;
            struct ptl_context *ctx = nsa_variant(level, (int)t)->ctx;
            if (test_random_int(&r, 0, 3) == 0 && !decode(&w.x, &y, ctx, t, n, true)) break;
            if (!decode(&w.x, &y, ctx, t, n, false)) break;
        }
        nsa_take(&y.p, &got);
        for (int64_t row = 0; row < length && !test_case_failed(); row++)
            nsa_same_rows(&w.results[level], row, &got, row, ptl_isa_name(test_level(level)));
        nsa_results_free(&got);
        nsa_destroy(&y);
    }
    nsa_whole_destroy(&w);
}

static void steps(void) {
    static const int64_t most[] = {1, 2, 4, 8, 40};
    for (uint64_t seed = 1; seed <= (test_quick() ? 5 : 20); seed++) {
        struct nsa_spec s;
        const int64_t length = 60 + (int64_t)seed * 3;
        nsa_spec_random(&s, seed, 60);
        s.layout = NSA_JAGGED;
        s.swa = s.lse_in = false;
        s.pad = 0;
        s.page = 0;
        nsa_spec_length(&s, length, length);
        check_steps(&s, most[seed % 5]);
    }
}

static const struct test tests[] = {{"steps", steps}};
TEST_SUITE(nsa_decode_suite, "nsa/decode", tests);
