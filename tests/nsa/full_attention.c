/* ptl_attention_forward: against the reference, and what must be the same bits. */
#include <math.h>
#include <stdlib.h>

#include "../../ref/nsa.h"
#include "nsa_compare.h"
#include "nsa_suites.h"

/* The arguments of full attention over a problem's q, k, v. */
static struct ptl_attention_params arguments(const struct nsa_problem *x) {
    struct ptl_attention_params a;
    ptl_attention_params_init(&a);
    a.q = x->p.q;
    a.k = x->p.k;
    a.v = x->p.v;
    a.out = x->p.out_swa;
    a.lse = x->p.lse_swa;
    a.seq_offsets_q = x->p.seq_offsets_q;
    a.seq_offsets_k = x->p.seq_offsets_k;
    a.seqlens_k = x->p.seqlens_k;
    a.page_table = x->p.page_table;
    a.scale = x->p.scale;
    a.window = x->p.window;
    return a;
}

/* Runs it; the results are those of the sliding branch, the other outputs are not given. */
static bool run(const struct nsa_problem *x, struct ptl_context *ctx, struct nsa_results *r) {
    const struct ptl_attention_params a = arguments(x);
    struct ptl_nsa_params written = {.out_swa = x->p.out_swa, .lse_swa = x->p.lse_swa};
    nsa_wipe(&written);
    const enum ptl_status status = ptl_attention_forward(ctx, &a);
    if (status != PTL_OK) FAIL("%s: %s", ptl_status_name(status), ptl_message());
    else nsa_take(&written, r);
    return status == PTL_OK;
}

static void check_near(const struct nsa_problem *x, const float *got, const double *expected,
                       int64_t n, double bound, const char *what) {
    for (int64_t i = 0; i < n; i++) {
        const double e = expected[i], g = (double)got[i];
        if (isnan(e) ? isnan(g) : isinf(e) ? g == e : fabs(g - e) <= bound * x->spec.slack)
            continue;
        FAIL("%s[%d] is %.9g, expected %.9g", what, (int)i, g, e);
        return;
    }
}

static void check_problem(const struct nsa_problem *x) {
    const int64_t heads = x->spec.kv_heads * x->spec.group, n = ref_nsa_n_rows(&x->p) * heads;
    double *out = test_alloc((size_t)(n * x->spec.dv) * sizeof *out);
    double *lse = test_alloc((size_t)n * sizeof *lse);
    const struct ptl_attention_params a = arguments(x);
    const struct hstu_variant *v;
    struct nsa_results first = {.row = {NULL}}, got;
    ref_attention_forward(&a, out, lse);
    for (int i = 0; (v = hstu_variant(i)) != NULL && !test_case_failed(); i++) {
        if (!run(x, v->ctx, &got)) break;
        if (v->first) {
            check_near(x, got.row[NSA_OUT_SWA], out, n * x->spec.dv, nsa_bound(x->spec.dtype),
                       "out");
            check_near(x, got.row[NSA_LSE_SWA], lse, n, 2e-5, "lse");
            nsa_results_free(&first);
            first = got;
            continue;
        }
        for (int64_t row = 0; row < ref_nsa_n_rows(&x->p); row++)
            if (!nsa_same_rows(&first, row, &got, row, v->name)) break;
        nsa_results_free(&got);
    }
    nsa_results_free(&first);
    free(out);
    free(lse);
}

static void check(const struct nsa_spec *s) {
    struct nsa_problem x;
    test_case("%s", nsa_spec_text(s));
    nsa_create(&x, s);
    check_problem(&x);
    nsa_destroy(&x);
}

static void random_problems(void) {
    for (uint64_t seed = 1; seed <= (test_quick() ? 20 : 200); seed++) {
        struct nsa_spec s;
        nsa_spec_random(&s, seed, seed % 10 ? 60 : 300);
        if (seed % 2) s.o.window = 0;
        check(&s);
    }
}

static void lengths_around_tiles(void) {
    static const int64_t edges[] = {64, 128, 256, 384, 512, 1024, 2048, 4096};
    for (int i = 0; i < (test_quick() ? 5 : 8); i++)
        for (int64_t n = edges[i] - 1; n <= edges[i] + 1; n++)
            for (int window = 0; window < 2; window++) {
                struct nsa_spec s;
                nsa_spec_init(&s);
                s.d = 5;
                s.dv = 3;
                s.page = n % 2 ? 16 : 0;
                s.o.window = window * (edges[i] / 2 + 1);
                nsa_spec_length(&s, n, 3);
                check(&s);
            }
}

static void group_sizes(void) {
    static const int64_t groups[] = {1, 2, 3, 5, 7, 8, 12, 16, 24, 25, 48, 64, 96, 128};
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i += test_quick() ? 3 : 1) {
        struct nsa_spec s;
        nsa_spec_init(&s);
        s.group = groups[i];
        s.kv_heads = 1 + (int64_t)i % 2;
        s.dtype = (enum ptl_dtype)(PTL_F32 + i % 3);
        s.d = i % 4 ? 16 : 192;
        s.o.window = 0;
        nsa_spec_length(&s, 90, i % 2 ? 90 : 1);
        check(&s);
    }
}

/* Rows of a part are those of the whole. */
static void same_part(const struct nsa_problem *whole, const struct nsa_spec *part, int n) {
    struct nsa_problem x;
    nsa_create(&x, part);
    for (int level = 0; level < test_n_levels(); level++) {
        const struct hstu_variant *serial = nsa_variant(level, 0), *v = nsa_variant(level, n);
        struct nsa_results a, b;
        const int64_t first = part->seq[0].n_tokens - part->seq[0].n_queries;
        if (!run(whole, serial->ctx, &a)) break;
        if (run(&x, v->ctx, &b)) {
            for (int64_t i = 0; i < part->seq[0].n_queries; i++)
                if (!nsa_same_rows(&a, first + i, &b, i, v->name)) break;
            nsa_results_free(&b);
        }
        nsa_results_free(&a);
    }
    nsa_destroy(&x);
}

static void chunks_and_decode(void) {
    for (int n = 0; n < 6; n++) {
        const int64_t length = test_quick() ? 40 : 300;
        struct nsa_spec s, part;
        struct nsa_problem whole;
        nsa_spec_init(&s);
        s.o.window = n % 3 == 2 ? 33 : 0;
        s.dtype = (enum ptl_dtype)(PTL_F32 + n % 3);
        s.group = n + 1;
        nsa_spec_length(&s, length, length);
        test_case("%s", nsa_spec_text(&s));
        nsa_create(&whole, &s);
        for (int64_t end = 1; end <= length && !test_case_failed(); end += 7) {
            static const int64_t pages[] = {0, 1, 3, 16, 64, 128, 256};
            part = s;
            part.page = pages[end % 7];
            nsa_spec_length(&part, end, end % 3 ? 1 : end / 2);
            same_part(&whole, &part, (int)end);
        }
        nsa_destroy(&whole);
    }
}

/* A window as long as the sequence, and a selection of all blocks: the same attention, but for the
 * order of the sums. */
static void branches_that_see_all(void) {
    for (int n = 0; n < 6; n++) {
        struct nsa_spec s;
        struct nsa_problem x;
        struct nsa_results sparse, full;
        nsa_spec_init(&s);
        s.dtype = (enum ptl_dtype)(PTL_F32 + n % 3);
        if (n < 3) s.o.dense_len = 1000;
        else s.o.topk = 40;
        s.o.window = 300;
        nsa_spec_length(&s, 300, 40);
        test_case("%s", nsa_spec_text(&s));
        nsa_create(&x, &s);
        if (nsa_run(&x, hstu_variant(0)->ctx, NSA_FORWARD, &sparse)) {
            if (run(&x, hstu_variant(0)->ctx, &full)) {
                const int64_t rows = 40 * 2;
                for (int64_t i = 0; i < rows * s.dv; i++) {
                    const double e = (double)full.row[NSA_OUT_SWA][i];
                    const double bound = 2.0 * nsa_bound(s.dtype);
                    if (fabs((double)sparse.row[NSA_OUT_SWA][i] - e) > bound ||
                        fabs((double)sparse.row[NSA_OUT_SLC][i] - e) > bound)
                        FAIL("element %d is %g, %g and %g", (int)i, e,
                             (double)sparse.row[NSA_OUT_SWA][i],
                             (double)sparse.row[NSA_OUT_SLC][i]);
                }
                nsa_results_free(&full);
            }
            nsa_results_free(&sparse);
        }
        nsa_destroy(&x);
    }
}

static void large_logits(void) {
    struct nsa_spec s;
    nsa_spec_init(&s);
    s.magnitude = 1e4f;
    s.o.scale = 1.0f;
    s.o.window = 0;
    s.slack = 1e3;
    nsa_spec_length(&s, 200, 30);
    check(&s);
}

static const struct test tests[] = {
    {"random_problems", random_problems},
    {"lengths_around_tiles", lengths_around_tiles},
    {"group_sizes", group_sizes},
    {"chunks_and_decode", chunks_and_decode},
    {"branches_that_see_all", branches_that_see_all},
    {"large_logits", large_logits},
};
TEST_SUITE(full_attention_suite, "attention", tests);
