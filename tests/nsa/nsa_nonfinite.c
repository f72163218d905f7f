/* NaN and infinities in single rows of the arguments: what sees them becomes what the reference
 * says, what does not is not touched. The reference reads nothing that a row does not see. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "elements.h"
#include "nsa_compare.h"
#include "nsa_suites.h"
#include "ops/tensor_check.h"

enum { N_BASES = 12 };

static void base(struct nsa_spec *s, int n) {
    nsa_spec_init(s);
    s->kv_heads = 2;
    s->group = 1 + n % 3;
    s->dtype = (enum ptl_dtype)(PTL_F32 + n % 3);
    s->swa = n % 2;
    s->page = n % 4 == 3 ? 3 : 0;
    s->o.topk = 4;
    s->o.dense_len = n % 5 == 4 ? 30 : 0;
    s->o.pool = n % 7 == 6 ? PTL_NSA_POOL_MAX : PTL_NSA_POOL_SUM;
    nsa_spec_length(s, 70, n % 3 ? 70 : 33);
}

/* Problem n with row `row` of head 1 of some tensors set to a number; checked as ever. */
static void check_poisoned(int n, int64_t row, double number, const char *what,
                           struct ptl_tensor *(*tensor)(struct nsa_problem *x),
                           int64_t (*at)(const struct nsa_problem *x, const struct ptl_tensor *t,
                                         int b, int64_t row, int64_t head)) {
    struct nsa_spec s;
    struct nsa_problem x;
    base(&s, n);
    nsa_create(&x, &s);
    struct ptl_tensor *t = tensor(&x);
    if (t->data) {
        test_case("%s, %g in row %d of %s", nsa_spec_text(&s), number, (int)row, what);
        nsa_unprotect(&x);
        nsa_set_row(t, at(&x, t, 0, row, 1), number);
        nsa_protect(&x);
        nsa_check_problem(&x);
    }
    nsa_destroy(&x);
}

static struct ptl_tensor *k(struct nsa_problem *x) {
    return &x->p.k;
}
static struct ptl_tensor *v(struct nsa_problem *x) {
    return &x->p.v;
}
static struct ptl_tensor *k_swa(struct nsa_problem *x) {
    return &x->p.k_swa;
}
static struct ptl_tensor *v_swa(struct nsa_problem *x) {
    return &x->p.v_swa;
}
static struct ptl_tensor *kc(struct nsa_problem *x) {
    return &x->p.kc;
}
static struct ptl_tensor *vc(struct nsa_problem *x) {
    return &x->p.vc;
}
static struct ptl_tensor *q(struct nsa_problem *x) {
    return &x->p.q;
}

static int64_t query_at(const struct nsa_problem *x, const struct ptl_tensor *t, int b, int64_t row,
                        int64_t head) {
    (void)x;
    (void)b;
    return row * t->stride[0] + head * t->stride[1];
}

static void tokens(void) {
    for (int n = 0; n < N_BASES; n += test_quick() ? 5 : 1)
        for (int64_t row = n; row < 70; row += test_quick() ? 31 : 13) {
            check_poisoned(n, row, NAN, "k", k, nsa_token_at);
            check_poisoned(n, row, NAN, "v", v, nsa_token_at);
            check_poisoned(n, row, INFINITY, "v", v, nsa_token_at);
            check_poisoned(n, row, NAN, "k_swa", k_swa, nsa_token_at);
            check_poisoned(n, row, -INFINITY, "v_swa", v_swa, nsa_token_at);
        }
}

static void compressed(void) {
    for (int n = 0; n < N_BASES; n += test_quick() ? 5 : 1)
        for (int64_t row = n; row < 34; row += test_quick() ? 17 : 5) {
            check_poisoned(n, row, NAN, "kc", kc, nsa_compressed_at);
            check_poisoned(n, row, NAN, "vc", vc, nsa_compressed_at);
            check_poisoned(n, row, -INFINITY, "vc", vc, nsa_compressed_at);
        }
}

/* A row of NaN ranks its blocks by number. */
static void queries(void) {
    for (int n = 0; n < N_BASES; n += test_quick() ? 5 : 1)
        for (int64_t row = n; row < 33; row += test_quick() ? 17 : 5)
            check_poisoned(n, row, NAN, "q", q, query_at);
}

/* ---- What a decoded token does not see ------------------------------------------------------- */

static bool is_selected(const struct nsa_problem *x, const struct nsa_results *r, int64_t head,
                        int64_t s) {
    const int64_t n = x->p.topk;
    const int32_t *idx = (const int32_t *)(const void *)r->row[NSA_IDX];
    for (int64_t e = 0; e < n; e++)
        if (idx[head * n + e] == s / x->p.select_block) return true;
    return false;
}

/* All tokens that are neither selected nor in the window become NaN, or infinite: not a bit
 * changes. */
static void unseen_tokens(void) {
    for (int n = 0; n < 9; n++) {
        struct nsa_spec s;
        struct nsa_problem x;
        struct nsa_results before, after;
        base(&s, n);
        s.o.dense_len = 0;
        s.o.topk = 6;
        nsa_spec_length(&s, test_quick() ? 200 : 900, 1);
        test_case("%s", nsa_spec_text(&s));
        const int64_t t = s.seq[0].n_tokens - 1;
        nsa_create(&x, &s);
        for (int i = 0; hstu_variant(i) != NULL && !test_case_failed(); i++) {
            struct ptl_context *ctx = hstu_variant(i)->ctx;
            if (!nsa_run(&x, ctx, NSA_FORWARD, &before)) break;
            nsa_unprotect(&x);
            for (int64_t row = 0; row <= t; row++)
                for (int64_t h = 0; h < s.kv_heads; h++) {
                    const double number = row % 2 ? (double)NAN : (double)INFINITY;
                    const bool is_selection = is_selected(&x, &before, h, row);
                    const bool in_window = row > t - s.o.window;
                    struct ptl_tensor *const all[4] = {&x.p.k, &x.p.v, &x.p.k_swa, &x.p.v_swa};
                    for (int i_t = 0; i_t < 4; i_t++) {
                        const bool is_seen = i_t > 1 ? in_window
                                             : s.swa ? is_selection
                                                     : is_selection || in_window;
                        if (all[i_t]->data && !is_seen)
                            nsa_set_row(all[i_t], nsa_token_at(&x, all[i_t], 0, row, h), number);
                    }
                }
            nsa_protect(&x);
            if (!nsa_run(&x, ctx, NSA_FORWARD, &after)) break;
            nsa_same_rows(&before, 0, &after, 0, hstu_variant(i)->name);
            nsa_results_free(&before);
            nsa_results_free(&after);
        }
        nsa_destroy(&x);
    }
}

/* Keys and values behind the last query of a longer cache: what a chunk does not see yet. */
static void later_rows(void) {
    for (int n = 0; n < 9; n++) {
        struct nsa_spec s;
        struct nsa_problem x;
        base(&s, n);
        s.page = n % 2 ? 16 : 0;
        s.page_c = n % 2 ? 5 : 0;
        s.layout = n % 2 ? NSA_JAGGED : NSA_DENSE;
        s.pad = 40;
        test_case("%s", nsa_spec_text(&s));
        nsa_create(&x, &s);
        nsa_unprotect(&x);
        struct ptl_tensor *const all[6] = {&x.p.k,     &x.p.v,  &x.p.k_swa,
                                           &x.p.v_swa, &x.p.kc, &x.p.vc};
        for (int i = 0; i < 6; i++) /* what is NaN becomes infinite */
            for (int64_t at = tensor_span(all[i]) - 1; at >= 0; at--) {
                const struct ptl_tensor *t = all[i];
                if (isnan(ref_read(t->dtype, t->data, at)))
                    ref_write(t->dtype, t->data, at, at % 2 ? INFINITY : -INFINITY);
            }
        nsa_protect(&x);
        nsa_check_problem(&x);
        nsa_destroy(&x);
    }
}

static const struct test tests[] = {
    {"tokens", tokens},         {"compressed", compressed},
    {"queries", queries},       {"unseen_tokens", unseen_tokens},
    {"later_rows", later_rows},
};
TEST_SUITE(nsa_nonfinite_suite, "nsa/nonfinite", tests);
