/* Edge cases: short sequences, more blocks wanted than there are, ties, lists of blocks with holes
 * and nonsense, nothing to do. NaN is in nsa_nonfinite.c. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../../ref/elements.h"
#include "../../ref/nsa.h"
#include "nsa_compare.h"
#include "nsa_suites.h"
#include "ops/tensor_check.h"

#define COUNT(list) ((int)(sizeof(list) / sizeof((list)[0])))

static void fewer_tokens_than_a_block(void) {
    for (int64_t n = 1; n <= 12; n++)
        for (int decode = 0; decode < 2; decode++) {
            struct nsa_spec s;
            nsa_spec_init(&s);
            s.o.block = 10;
            s.o.stride = 5;
            s.o.select_block = 5;
            s.mean = n % 2;
            nsa_spec_length(&s, n, decode ? 1 : n);
            nsa_check_case(&s);
        }
}

static void more_blocks_than_there_are(void) {
    struct nsa_spec s;
    nsa_spec_init(&s);
    s.o.topk = 50;
    nsa_check_case(&s);
    s.o.order = PTL_NSA_ORDER_SCORE;
    nsa_check_case(&s);
    s.o.n_init = 40; /* of which only those exist that begin at or before t */
    nsa_check_case(&s);
    s.o.n_init = 0;
    s.o.n_local = 50;
    nsa_check_case(&s);
    s.o.n_local = 0; /* nothing is forced */
    s.o.topk = 1;
    nsa_check_case(&s);
}

/* A topk that stands for all, where idx is not asked for: no memory for so many. */
static void all_blocks(void) {
    struct nsa_spec s;
    struct nsa_problem x;
    struct nsa_results some, all;
    nsa_spec_init(&s);
    s.o.topk = 40;
    test_case("%s", nsa_spec_text(&s));
    nsa_create(&x, &s);
    if (nsa_run(&x, hstu_variant(0)->ctx, NSA_FORWARD, &some)) {
        x.p.topk = INT32_MAX;
        x.p.idx.data = NULL;
        if (nsa_run(&x, hstu_variant(1)->ctx, NSA_FORWARD, &all)) {
            for (int64_t row = 0; row < 40; row++) nsa_same_rows(&some, row, &all, row, "topk");
            nsa_results_free(&all);
        }
        nsa_results_free(&some);
    }
    nsa_destroy(&x);
}

/* Every key counts the same. */
static void scale_zero(void) {
    struct nsa_spec s;
    nsa_spec_init(&s);
    s.o.scale = 0.0f;
    nsa_check_case(&s);
    nsa_spec_length(&s, 600, 2);
    nsa_check_case(&s);
}

static void windows(void) {
    static const int64_t windows[] = {0, 1, 2, 39, 40, 41, 1000, INT64_MAX};
    for (int i = 0; i < COUNT(windows); i++) {
        struct nsa_spec s;
        nsa_spec_init(&s);
        s.o.window = windows[i];
        nsa_check_case(&s);
        s.swa = true;
        nsa_spec_length(&s, 40, 1);
        nsa_check_case(&s);
    }
}

static void geometry(void) {
    static const int64_t sizes[][3] = {{1, 1, 1}, {4, 4, 4}, {8, 2, 2},  {2, 2, 20},
                                       {3, 1, 1}, {9, 3, 3}, {40, 1, 2}, {5, 5, 45}};
    for (int i = 0; i < COUNT(sizes); i++)
        for (int score = 0; score < 3; score++) {
            struct nsa_spec s;
            nsa_spec_init(&s);
            s.o.block = sizes[i][0];
            s.o.stride = sizes[i][1];
            s.o.select_block = sizes[i][2];
            s.o.score = (enum ptl_nsa_score)score;
            s.o.pool = i % 2 ? PTL_NSA_POOL_SUM : PTL_NSA_POOL_MAX;
            nsa_spec_length(&s, 57, 57);
            nsa_check_case(&s);
        }
}

/* Below dense_len a row attends to all blocks, whatever idx says; it still gets a selection. */
static void dense_lengths(void) {
    static const int64_t lengths[] = {1, 8, 20, 40, 41, 1000};
    for (int i = 0; i < COUNT(lengths); i++) {
        struct nsa_spec s;
        nsa_spec_init(&s);
        s.o.dense_len = lengths[i];
        s.o.topk = 3;
        nsa_check_case(&s);
        nsa_spec_length(&s, 200, 170);
        s.page = 3;
        nsa_check_case(&s);
    }
}

/* All logits of a row are the same: all blocks tie but for those at the ends. */
static void ties(void) {
    for (int type = PTL_F32; type <= PTL_BF16; type++)
        for (int order = 0; order < 2; order++) {
            struct nsa_spec s;
            nsa_spec_init(&s);
            s.equal_keys = true;
            s.dtype = (enum ptl_dtype)type;
            s.o.order = (enum ptl_nsa_order)order;
            s.o.topk = 9;
            nsa_spec_length(&s, 300, 60);
            nsa_check_case(&s);
            s.o.pool = PTL_NSA_POOL_MAX;
            nsa_check_case(&s);
        }
}

/* ---- Lists of blocks ------------------------------------------------------------------------- */

enum { WIDTH = 7 };

static const int64_t lists[][WIDTH] = {
    {-1, 0, 1, 2, 3, 4, 5},
    {0, 1, -1, -1, 2, -1, 3},
    {3, 1, 0, 2, -1, -1, -1},
    {2, 2, 2, 2, 2, 2, 2},
    {1, 0, 1, 0, 4, 4, 1},
    {-1, -1, -1, -1, -1, -1, -1},
    {INT32_MIN, 0, INT32_MAX, 1, -2, 1 << 30, 2},
    {1000, 999, 998, 997, 996, 995, 994},
    {0, 1000, 1, 1000, 2, 1000, 3},
    {INT64_MIN, INT64_MAX, 4, (int64_t)1 << 32, 5, -((int64_t)1 << 33), 0},
    {((int64_t)1 << 32) + 1, ((int64_t)1 << 60), 6, 0, 0, 5, INT64_MAX - 7},
};

/* idx of every row and head from the lists; `width` entries of each. */
static struct ptl_tensor listed(struct nsa_problem *x, enum ptl_dtype dtype, int64_t width) {
    int64_t shape[4], n = 1;
    const struct ptl_tensor *q = &x->p.q;
    for (int axis = 0; axis < q->ndim; axis++) shape[axis] = q->shape[axis];
    shape[q->ndim - 2] = x->spec.kv_heads;
    shape[q->ndim - 1] = width;
    for (int axis = 0; axis < q->ndim - 1; axis++) n *= shape[axis];
    const struct ptl_tensor idx = nsa_array(x, true, dtype, q->ndim, shape, 0);
    for (int64_t row = 0; row < n; row++)
        for (int64_t e = 0; e < width; e++) {
            const int64_t entry = lists[row % COUNT(lists)][(e + row / COUNT(lists)) % WIDTH];
            const bool fits = dtype == PTL_I64 || (entry >= INT32_MIN && entry <= INT32_MAX);
            nsa_set_index(&idx, row * width + e, fits ? entry : -5);
        }
    return idx;
}

static void attend_listed(struct nsa_problem *x, const struct ptl_tensor *idx) {
    const int64_t rows = ref_nsa_n_rows(&x->p), heads = x->spec.kv_heads * x->spec.group;
    double *out = test_alloc((size_t)(rows * heads * x->spec.dv) * sizeof *out);
    double *lse = test_alloc((size_t)(rows * heads) * sizeof *lse);
    const struct ref_nsa_result r = {.out_slc = out, .lse_slc = lse};
    struct ptl_nsa_params p = x->p, written;
    const struct hstu_variant *v;
    for (int o = 0; o < NSA_N_OUTPUTS; o++)
        if (o != NSA_OUT_SLC && o != NSA_LSE_SLC) nsa_output(&p, o)->data = NULL;
    written = p;
    p.idx = *idx;
    ref_nsa_each_row(&p, ref_nsa_attend_row, &r);
    for (int i = 0; (v = hstu_variant(i)) != NULL && !test_case_failed(); i++) {
        struct nsa_results got;
        nsa_wipe(&written);
        const enum ptl_status status = ptl_nsa_attend(v->ctx, &p);
        if (status != PTL_OK) {
            FAIL("%s: %s: %s", v->name, ptl_status_name(status), ptl_message());
            break;
        }
        nsa_take(&written, &got);
        for (int64_t at = 0; at < rows * heads; at++) {
            const float z = got.row[NSA_LSE_SLC][at];
            if (lse[at] == -INFINITY ? z != -INFINITY : !(fabs((double)z - lse[at]) <= 2e-5))
                FAIL("%s: lse_slc[%d] is %g, expected %g", v->name, (int)at, (double)z, lse[at]);
            for (int64_t d = 0; d < x->spec.dv; d++) {
                const double e = out[at * x->spec.dv + d];
                const float o = got.row[NSA_OUT_SLC][at * x->spec.dv + d];
                if (lse[at] == -INFINITY ? float_bits(o) != 0
                                         : !(fabs((double)o - e) <= nsa_bound(x->spec.dtype)))
                    FAIL("%s: out_slc[%d, %d] is %g, expected %g", v->name, (int)at, (int)d,
                         (double)o, e);
            }
        }
        nsa_results_free(&got);
    }
    free(out);
    free(lse);
}

static void lists_with_holes(void) {
    for (int64_t width = 0; width <= WIDTH; width++)
        for (int type = PTL_I32; type <= PTL_I64; type++)
            for (int n = 0; n < 3; n++) {
                struct nsa_spec s;
                struct nsa_problem x;
                nsa_spec_init(&s);
                s.kv_heads = 2;
                s.page = n == 1 ? 3 : 0;
                s.layout = n == 2 ? NSA_BHSD : NSA_JAGGED;
                s.dtype = n == 1 ? PTL_BF16 : PTL_F32;
                s.n_seqs = 2;
                s.seq[0] = (struct nsa_seq){1, 44, 44};
                s.seq[1] = (struct nsa_seq){2, 60, 44};
                test_case("%s idx=%s width=%d", nsa_spec_text(&s), type == PTL_I32 ? "i32" : "i64",
                          (int)width);
                nsa_create(&x, &s);
                const struct ptl_tensor idx = listed(&x, (enum ptl_dtype)type, width);
                attend_listed(&x, &idx);
                nsa_destroy(&x);
            }
}

/* ---- Nothing to see -------------------------------------------------------------------------- */

/* exp(-inf) of everything: as if the row saw nothing. */
static void logits_of_minus_infinity(void) {
    struct nsa_spec s;
    struct nsa_problem x;
    struct nsa_results r;
    const struct hstu_variant *v;
    nsa_spec_init(&s);
    s.d = 1;
    test_case("%s", nsa_spec_text(&s));
    nsa_create(&x, &s);
    nsa_unprotect(&x);
    for (int64_t i = tensor_span(&x.p.q) - 1; i >= 0; i--) ((float *)x.p.q.data)[i] = 1.0f;
    for (int64_t i = tensor_span(&x.p.k) - 1; i >= 0; i--) ((float *)x.p.k.data)[i] = -INFINITY;
    for (int64_t i = tensor_span(&x.p.kc) - 1; i >= 0; i--) ((float *)x.p.kc.data)[i] = -INFINITY;
    for (int i = 0; (v = hstu_variant(i)) != NULL; i++) {
        if (!nsa_run(&x, v->ctx, NSA_FORWARD, &r)) break;
        for (int o = 0; o < NSA_IDX; o++)
            for (int64_t at = 0; at < 40 * r.width[o]; at++) {
                const bool is_lse = o >= NSA_LSE_CMP && o <= NSA_LSE_SWA;
                const float got = r.row[o][at];
                if (is_lse ? got != -INFINITY : got != 0.0f) {
                    FAIL("%s: %s[%d] is %g", v->name, nsa_output_name(o), (int)at, (double)got);
                    break;
                }
            }
        nsa_results_free(&r);
    }
    nsa_destroy(&x);
}

/* A branch that is off: its gate may be anything. */
static void gates_of_branches_that_are_off(void) {
    struct nsa_spec s;
    struct nsa_problem x;
    const struct hstu_variant *v;
    nsa_spec_init(&s);
    s.o.window = 0;
    s.gates_f32 = true;
    test_case("%s", nsa_spec_text(&s));
    nsa_create(&x, &s);
    nsa_unprotect(&x);
    for (int64_t i = 2; i < tensor_elements(&x.p.gates); i += 3) ((float *)x.p.gates.data)[i] = NAN;
    nsa_protect(&x);
    for (int i = 0; (v = hstu_variant(i)) != NULL && !test_case_failed(); i++) {
        struct nsa_results r;
        if (!nsa_run(&x, v->ctx, NSA_FORWARD, &r)) break;
        for (int64_t at = 0; at < 40 * r.width[NSA_OUT]; at++)
            if (!isfinite(r.row[NSA_OUT][at])) {
                FAIL("%s: out[%d] is %g", v->name, (int)at, (double)r.row[NSA_OUT][at]);
                break;
            }
        nsa_results_free(&r);
    }
    nsa_destroy(&x);
}

static double *read_all(const struct ptl_tensor *t) {
    const int64_t n = tensor_elements(t);
    double *x = t->data ? test_alloc((size_t)n * sizeof *x) : NULL;
    for (int64_t i = 0; i < n; i++) x[i] = ref_read(t->dtype, t->data, tensor_offset(t, i));
    return x;
}

static void check_combine(struct nsa_problem *x, const struct ptl_nsa_params *p) {
    const int64_t n = tensor_elements(&p->out), dv = x->spec.dv;
    const double bound = nsa_bound(x->spec.dtype);
    double *expected = test_alloc((size_t)n * sizeof *expected);
    const struct ref_nsa_result e = {.out_cmp = read_all(&p->out_cmp),
                                     .out_slc = read_all(&p->out_slc),
                                     .out_swa = read_all(&p->out_swa),
                                     .out = expected};
    struct ptl_nsa_params written = {.out = p->out};
    const struct hstu_variant *v;
    ref_nsa_each_row(&x->p, ref_nsa_combine_row, &e);
    for (int i = 0; (v = hstu_variant(i)) != NULL && !test_case_failed(); i++) {
        struct nsa_results got;
        nsa_wipe(&written);
        const enum ptl_status status = ptl_nsa_combine(v->ctx, p);
        if (status != PTL_OK) FAIL("%s: %s: %s", v->name, ptl_status_name(status), ptl_message());
        nsa_take(&written, &got);
        for (int64_t at = 0; at < n; at++)
            if (!(fabs((double)got.row[NSA_OUT][at] - expected[at]) <= bound)) {
                FAIL("%s: row %d: %g, expected %g", v->name, (int)(at / dv),
                     (double)got.row[NSA_OUT][at], expected[at]);
                break;
            }
        nsa_results_free(&got);
    }
    free(expected);
    free(e.out_cmp);
    free(e.out_slc);
    free(e.out_swa);
}

/* combine with each subset of the branches, f32 and halves, any strides; nothing else is given. */
static void subsets_of_branches(void) {
    static const enum nsa_what what[3] = {NSA_V, NSA_V_SWA, NSA_VC};
    for (int subset = 0; subset < 8; subset++)
        for (int n = 0; n < 12; n++) {
            struct nsa_spec s;
            struct nsa_problem x;
            struct ptl_nsa_params p;
            nsa_spec_init(&s);
            s.dtype = (enum ptl_dtype)(PTL_F32 + n % 3);
            s.gap = n / 3 % 2;
            s.layout = (enum nsa_layout)(subset % 3);
            s.gates_f32 = n % 2;
            s.dv = n + 1;
            test_case("%s, branches %d", nsa_spec_text(&s), subset);
            nsa_create(&x, &s);
            ptl_nsa_params_init(&p);
            p.gate_act = x.p.gate_act = (enum ptl_nsa_gate_act)(n / 6);
            p.gates = x.p.gates;
            p.out = x.p.out;
            for (int branch = 0; branch < 3; branch++)
                if (subset >> branch & 1)
                    *nsa_output(&p, NSA_OUT_CMP + branch) =
                        nsa_query_input(&x, what[branch], s.dtype, s.dv);
            check_combine(&x, &p);
            nsa_destroy(&x);
        }
}

/* ---- Nothing to do --------------------------------------------------------------------------- */

static void nothing_to_do(void) {
    for (int layout = NSA_JAGGED; layout <= NSA_BHSD; layout++)
        for (int page = 0; page < 2; page++)
            for (int mean = 0; mean < 2; mean++) {
                struct nsa_spec s;
                nsa_spec_init(&s);
                s.layout = (enum nsa_layout)layout;
                s.page = page ? 16 : 0;
                s.page_c = page && !mean ? 4 : 0;
                s.mean = mean;
                s.n_seqs = 0; /* B = 0 */
                nsa_check_case(&s);
                nsa_spec_length(&s, 0, 0); /* T = 0 */
                nsa_check_case(&s);
                nsa_spec_length(&s, 30, 0); /* no queries */
                nsa_check_case(&s);
                s.n_seqs = 3; /* some without */
                for (int b = 0; b < 3; b++)
                    s.seq[b] = (struct nsa_seq){b, 20 * b, layout == NSA_JAGGED ? 7 * b : 0};
                nsa_check_case(&s);
            }
}

static const struct test tests[] = {
    {"fewer_tokens_than_a_block", fewer_tokens_than_a_block},
    {"more_blocks_than_there_are", more_blocks_than_there_are},
    {"all_blocks", all_blocks},
    {"scale_zero", scale_zero},
    {"windows", windows},
    {"geometry", geometry},
    {"dense_lengths", dense_lengths},
    {"ties", ties},
    {"lists_with_holes", lists_with_holes},
    {"logits_of_minus_infinity", logits_of_minus_infinity},
    {"gates_of_branches_that_are_off", gates_of_branches_that_are_off},
    {"subsets_of_branches", subsets_of_branches},
    {"nothing_to_do", nothing_to_do},
};
TEST_SUITE(nsa_edges_suite, "nsa/edges", tests);
