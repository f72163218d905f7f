/* ptl_nsa_select against a full ranking: random importance, many ties, NaN and infinities, any
 * layout, fewer blocks by count. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../../ref/nsa.h"
#include "nsa_compare.h"
#include "nsa_suites.h"
#include "ops/tensor_check.h"

enum kind { ANY, FEW_VALUES, ALL_EQUAL, ASCENDING, DESCENDING, SPECIAL, N_KINDS };

static float number(struct test_random *r, enum kind kind, int64_t j) {
    static const float specials[] = {0.0f, -0.0f, NAN, INFINITY, -INFINITY, 1.0f, 1e-45f, -3.0f};
    switch (kind) {
    case FEW_VALUES: return (float)test_random_int(r, 0, 3) * 0.25f;
    case ALL_EQUAL: return 0.5f;
    case ASCENDING: return (float)j;
    case DESCENDING: return -(float)j;
    case SPECIAL: return specials[test_random_int(r, 0, 7)];
    default: return test_random_float(r);
    }
}

/* The importance of every row, as the library and as the reference reads it. */
static struct ptl_tensor importance_array(struct nsa_problem *x, enum kind kind, int64_t n_blocks,
                                          double **as_doubles) {
    int64_t shape[4], rows = 1;
    const struct ptl_tensor *q = &x->p.q;
    struct test_random r = {x->spec.seed};
    memcpy(shape, q->shape, sizeof shape);
    shape[q->ndim - 2] = x->spec.kv_heads;
    shape[q->ndim - 1] = n_blocks;
    for (int axis = 0; axis < q->ndim - 1; axis++) rows *= shape[axis];
    const struct ptl_tensor t = nsa_array(x, true, PTL_F32, q->ndim, shape, x->spec.gap);
    *as_doubles = test_alloc((size_t)(rows * n_blocks) * sizeof **as_doubles);
    for (int64_t i = 0; i < rows * n_blocks; i++) {
        const float score = number(&r, kind, i % n_blocks);
        ((float *)t.data)[tensor_offset(&t, i)] = score;
        (*as_doubles)[i] = (double)score;
    }
    return t;
}

static void check_selection(struct nsa_problem *x, enum kind kind, int64_t n_blocks) {
    const struct hstu_variant *v;
    struct ptl_nsa_params p = x->p, written;
    struct ref_nsa_result e = {.importance = NULL};
    for (int o = 0; o < NSA_IDX; o++) nsa_output(&p, o)->data = NULL;
    written = p;
    p.importance = importance_array(x, kind, n_blocks, &e.importance);
    const int64_t n = ref_nsa_n_rows(&p) * x->spec.kv_heads;
    e.idx = test_alloc((size_t)(n * p.topk) * sizeof *e.idx);
    e.nsel = test_alloc((size_t)n * sizeof *e.nsel);
    ref_nsa_each_row(&p, ref_nsa_select_row, &e);
    /* the lengths are all that the call may need beside the importance */
    p.q.data = p.k.data = p.v.data = p.kc.data = p.vc.data = p.gates.data = NULL;
    for (int i = 0; (v = hstu_variant(i)) != NULL && !test_case_failed(); i++) {
        struct nsa_results got;
        if (i % 2) p.nsel.data = NULL; /* optional */
        written.nsel = p.nsel;
        nsa_wipe(&written);
        const enum ptl_status status = ptl_nsa_select(v->ctx, &p);
        if (status != PTL_OK) {
            FAIL("%s: %s: %s", v->name, ptl_status_name(status), ptl_message());
            break;
        }
        nsa_take(&written, &got);
        const int32_t *idx = (const int32_t *)(const void *)got.row[NSA_IDX];
        const int32_t *nsel = (const int32_t *)(const void *)got.row[NSA_NSEL];
        for (int64_t at = 0; at < n; at++) {
            if (nsel && nsel[at] != e.nsel[at])
                FAIL("%s: nsel[%d] is %d, expected %d", v->name, (int)at, nsel[at],
                     (int)e.nsel[at]);
            for (int64_t k = 0; k < p.topk; k++)
                if (idx[at * p.topk + k] != e.idx[at * p.topk + k])
                    FAIL("%s: idx[%d, %d] is %d, expected %d", v->name, (int)at, (int)k,
                         idx[at * p.topk + k], (int)e.idx[at * p.topk + k]);
        }
        nsa_results_free(&got);
        p.nsel = x->p.nsel;
    }
    free(e.importance);
    free(e.idx);
    free(e.nsel);
}

static void selection(const struct nsa_spec *s, enum kind kind) {
    struct nsa_problem x;
    int64_t longest = 0;
    test_case("%s kind=%d", nsa_spec_text(s), kind);
    nsa_create(&x, s);
    for (int b = 0; b < s->n_seqs; b++)
        if (s->seq[b].n_tokens > longest) longest = s->seq[b].n_tokens;
    const int64_t n_blocks = (longest + s->o.select_block - 1) / s->o.select_block;
    if (!x.p.seqlens_k.data && s->layout != NSA_JAGGED) { /* no k to tell */
        x.p.seqlens_k = nsa_array(&x, true, s->index, 1, &(int64_t){s->n_seqs}, 0);
        for (int b = 0; b < s->n_seqs; b++) nsa_set_index(&x.p.seqlens_k, b, s->seq[b].n_tokens);
    }
    check_selection(&x, kind, n_blocks + s->gap);
    nsa_destroy(&x);
}

static void random_scores(void) {
    for (uint64_t seed = 1; seed <= (test_quick() ? 20 : 300); seed++) {
        struct nsa_spec s;
        nsa_spec_random(&s, seed, 120);
        s.d = s.dv = 1;
        s.o.topk += (int64_t)(seed % 4) * 9;
        selection(&s, (enum kind)(seed % N_KINDS));
    }
}

/* One row with many blocks: around powers of two, few and many wanted. */
static void many_blocks(void) {
    static const int64_t counts[] = {1,   2,   3,   15,   16,   17,   31,  32,  33,
                                     63,  64,  65,  127,  128,  255,  256, 257, 511,
                                     512, 513, 700, 1000, 1023, 1024, 1025};
    static const int64_t wanted[] = {3, 4, 16, 33, 64, 500};
    const int n_counts = (int)(sizeof counts / sizeof *counts);
    for (int i = 0; i < n_counts; i += test_quick() ? 6 : 1)
        for (int k = 0; k < 6; k++) {
            struct nsa_spec s;
            nsa_spec_init(&s);
            s.seed = (uint64_t)(i * 6 + k);
            s.d = s.dv = s.group = 1;
            s.o.select_block = 2;
            s.o.topk = wanted[k];
            s.o.order = (enum ptl_nsa_order)(k % 2);
            s.count = k == 4;
            nsa_spec_length(&s, 2 * counts[i] - i % 2, 2 - i % 2);
            selection(&s, (enum kind)((i + k) % N_KINDS));
        }
}

/* Enough of them for several threads. */
static void many_rows(void) {
    for (int kind = 0; kind < N_KINDS; kind++) {
        struct nsa_spec s;
        nsa_spec_init(&s);
        s.seed = (uint64_t)kind;
        s.d = s.dv = s.group = 1;
        s.kv_heads = 2;
        s.o.select_block = 4;
        s.o.topk = 12;
        s.n_seqs = 5;
        for (int b = 0; b < 5; b++)
            s.seq[b] = (struct nsa_seq){b, b == 2 ? 0 : 400, b == 2 ? 0 : 100 + 70 * b};
        selection(&s, (enum kind)kind);
    }
}

static const struct test tests[] = {
    {"random_scores", random_scores},
    {"many_blocks", many_blocks},
    {"many_rows", many_rows},
};
TEST_SUITE(nsa_selection_suite, "nsa/selection", tests);
