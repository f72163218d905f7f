/* The checks of nsa_check.h. */
#include "nsa_check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../../ref/elements.h"
#include "../../ref/nsa.h"
#include "ops/tensor_check.h"

/* ---- Outputs --------------------------------------------------------------------------------- */

static const char *const names[NSA_N_OUTPUTS] = {"out",     "out_cmp", "out_slc", "out_swa",
                                                 "lse_cmp", "lse_slc", "lse_swa", "importance",
                                                 "idx",     "nsel"};

const char *nsa_output_name(int output) {
    return names[output];
}

struct ptl_tensor *nsa_output(struct ptl_nsa_params *p, int output) {
    struct ptl_tensor *const t[NSA_N_OUTPUTS] = {
        &p->out,     &p->out_cmp, &p->out_slc,    &p->out_swa, &p->lse_cmp,
        &p->lse_slc, &p->lse_swa, &p->importance, &p->idx,     &p->nsel};
    return t[output];
}

/* An output with int32 looked at as floats: only their bits matter to the functions of
 * tensor_check.h. */
static struct ptl_tensor as_floats(struct ptl_nsa_params *p, int output) {
    struct ptl_tensor t = *nsa_output(p, output);
    if (output >= NSA_IDX) t.dtype = PTL_F32;
    return t;
}

static int n_axes_of_row(int output) {
    return output == NSA_NSEL || (output >= NSA_LSE_CMP && output <= NSA_LSE_SWA) ? 1 : 2;
}

static void take_results(struct ptl_nsa_params *p, struct nsa_results *r) {
    for (int o = 0; o < NSA_N_OUTPUTS; o++) {
        const struct ptl_tensor t = as_floats(p, o);
        r->row[o] = NULL;
        if (!t.data) continue;
        r->width[o] = 1;
        for (int axis = t.ndim - n_axes_of_row(o); axis < t.ndim; axis++)
            r->width[o] *= t.shape[axis];
        r->row[o] = test_alloc((size_t)tensor_elements(&t) * sizeof(float));
        tensor_take(&t, r->row[o]);
        if (!tensor_wiped(&t)) FAIL("%s: something between its rows was written", names[o]);
    }
}

void nsa_results_free(struct nsa_results *r) {
    for (int o = 0; o < NSA_N_OUTPUTS; o++) {
        free(r->row[o]);
        r->row[o] = NULL;
    }
}

/* ---- Calls ----------------------------------------------------------------------------------- */

static bool ok(enum ptl_status status, const char *what) {
    if (status != PTL_OK) FAIL("%s: %s: %s", what, ptl_status_name(status), ptl_message());
    return status == PTL_OK;
}

/* The options and sequences of p alone. */
static struct ptl_nsa_params without_tensors(const struct ptl_nsa_params *p) {
    struct ptl_nsa_params bare = *p;
    struct ptl_tensor *const t[] = {&bare.q,      &bare.q_cmp, &bare.k,    &bare.v,
                                    &bare.k_swa,  &bare.v_swa, &bare.kc,   &bare.vc,
                                    &bare.lse_in, &bare.count, &bare.gates};
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) t[i]->data = NULL;
    for (int o = 0; o < NSA_N_OUTPUTS; o++) nsa_output(&bare, o)->data = NULL;
    return bare;
}

/* Where k is dense its shape tells the lengths; a step without k is told them. */
static void tell_lengths(const struct nsa_problem *x, struct ptl_tensor *lengths,
                         int64_t storage[NSA_MAX_SEQS]) {
    for (int b = 0; b < x->spec.n_seqs; b++) storage[b] = x->spec.seq[b].n_tokens;
    *lengths = ptl_tensor_contiguous(storage, PTL_I64, 1, &(int64_t){x->spec.n_seqs});
}

/* ptl_nsa_select on the importance that was just written must give the idx and nsel that were. */
static bool select_again(struct nsa_problem *x, struct ptl_context *ctx, struct ptl_nsa_params s) {
    const struct ptl_tensor idx = s.idx, nsel = s.nsel;
    const size_t idx_bytes = (size_t)tensor_elements(&idx) * 4;
    const size_t nsel_bytes = (size_t)tensor_elements(&nsel) * 4;
    int64_t lengths[NSA_MAX_SEQS];
    tell_lengths(x, &s.seqlens_k, lengths);
    s.importance = x->p.importance;
    s.count = x->p.count;
    s.idx.data = test_alloc(idx_bytes);
    s.nsel.data = test_alloc(nsel_bytes);
    const bool done = ok(ptl_nsa_select(ctx, &s), "ptl_nsa_select");
    if (done && (memcmp(s.idx.data, idx.data, idx_bytes) != 0 ||
                 memcmp(s.nsel.data, nsel.data, nsel_bytes) != 0))
        FAIL("ptl_nsa_select differs from ptl_nsa_compressed_attention");
    free(s.idx.data);
    free(s.nsel.data);
    return done;
}

/* The mean over each block of k or v. */
static bool compress_mean(const struct nsa_problem *x, struct ptl_context *ctx,
                          const struct ptl_tensor *tokens, const struct ptl_tensor *y) {
    const struct ptl_nsa_params *p = &x->p;
    struct ptl_nsa_compress_params c;
    ptl_nsa_compress_params_init(&c);
    c.block = p->block;
    c.stride = p->stride;
    c.x = *tokens;
    c.y = *y;
    if (tokens->ndim == 3)
        c.seq_offsets = p->seq_offsets_k.data ? p->seq_offsets_k : p->seq_offsets_q;
    c.seqlens = p->seqlens_k;
    c.page_table = p->page_table;
    c.seq_offsets_y = x->seq_offsets_kc;
    return ok(ptl_nsa_compress(ctx, &c), "ptl_nsa_compress");
}

/* Each call gets what it reads and writes, and nothing else. */
static bool run_steps(struct nsa_problem *x, struct ptl_context *ctx) {
    const struct ptl_nsa_params *p = &x->p, bare = without_tensors(p);
    int64_t lengths[NSA_MAX_SEQS];
    struct ptl_nsa_params c = bare, a = bare, g = bare;
    if (x->spec.mean &&
        !(compress_mean(x, ctx, &p->k, &x->kc) && compress_mean(x, ctx, &p->v, &x->vc)))
        return false;
    tell_lengths(x, &c.seqlens_k, lengths);
    c.q = p->q_cmp.data ? p->q_cmp : p->q;
    c.kc = x->kc;
    c.vc = x->vc;
    c.seq_offsets_kc = x->seq_offsets_kc;
    c.lse_in = p->lse_in;
    c.count = p->count;
    c.out_cmp = p->out_cmp;
    c.lse_cmp = p->lse_cmp;
    c.importance = p->importance;
    c.idx = p->idx;
    c.nsel = p->nsel;
    if (!ok(ptl_nsa_compressed_attention(ctx, &c), "ptl_nsa_compressed_attention")) return false;

    struct ptl_nsa_params s = bare;
    s.idx = p->idx;
    s.nsel = p->nsel;
    if (!select_again(x, ctx, s)) return false;

    a.q = p->q;
    a.k = p->k;
    a.v = p->v;
    a.k_swa = p->k_swa;
    a.v_swa = p->v_swa;
    a.idx = p->idx;
    a.out_slc = p->out_slc;
    a.lse_slc = p->lse_slc;
    a.out_swa = p->out_swa;
    a.lse_swa = p->lse_swa;
    if (!ok(ptl_nsa_attend(ctx, &a), "ptl_nsa_attend")) return false;

    g.gates = p->gates;
    g.out_cmp = p->out_cmp;
    g.out_slc = p->out_slc;
    g.out_swa = p->out_swa;
    g.out = p->out;
    return ok(ptl_nsa_combine(ctx, &g), "ptl_nsa_combine");
}

bool nsa_run(struct nsa_problem *x, struct ptl_context *ctx, enum nsa_way way,
             struct nsa_results *r) {
    memset(r, 0, sizeof *r);
    for (int o = 0; o < NSA_N_OUTPUTS; o++) {
        const struct ptl_tensor t = as_floats(&x->p, o);
        tensor_wipe(&t);
    }
    const bool done =
        way == NSA_STEPS ? run_steps(x, ctx) : ok(ptl_nsa_forward(ctx, &x->p), "ptl_nsa_forward");
    if (done) take_results(&x->p, r);
    return done;
}

/* ---- The same bits --------------------------------------------------------------------------- */

/* importance has a block for each of the longest sequence: heads of a row are compared one by
 * one. */
bool nsa_same_rows(const struct nsa_results *a, int64_t row_a, const struct nsa_results *b,
                   int64_t row_b, const char *what) {
    for (int o = 0; o < NSA_N_OUTPUTS; o++) {
        if (!a->row[o] || !b->row[o]) continue;
        const int64_t heads = o == NSA_IMPORTANCE ? a->width[NSA_NSEL] : 1;
        const int64_t wide_a = a->width[o] / heads, wide_b = b->width[o] / heads;
        const int64_t n = wide_a < wide_b ? wide_a : wide_b;
        for (int64_t h = 0; h < heads; h++) {
            const float *at_a = a->row[o] + (row_a * heads + h) * wide_a;
            const float *at_b = b->row[o] + (row_b * heads + h) * wide_b;
            for (int64_t i = 0; i < n; i++) {
                if (float_bits(at_a[i]) == float_bits(at_b[i])) continue;
                if (o >= NSA_IDX)
                    FAIL("%s: %s of row %lld differs in element %lld: %d and %d", what, names[o],
                         (long long)row_a, (long long)i, (int)float_bits(at_a[i]),
                         (int)float_bits(at_b[i]));
                else
                    FAIL("%s: %s of row %lld differs in element %lld of head %lld: %.9g and %.9g",
                         what, names[o], (long long)row_a, (long long)i, (long long)h,
                         (double)at_a[i], (double)at_b[i]);
                return false;
            }
        }
    }
    return true;
}

static bool same(const struct nsa_problem *x, const struct nsa_results *a,
                 const struct nsa_results *b, const char *what) {
    for (int64_t row = 0; row < ref_nsa_n_rows(&x->p); row++)
        if (!nsa_same_rows(a, row, b, row, what)) return false;
    return true;
}

/* ---- Against the reference ------------------------------------------------------------------- */

/* Of |x - ref|, relative to the largest |ref| where that exceeds `unit`; of the ratio of the
 * norms. */
struct bound {
    double most, norm, unit;
};

static struct bound bound_of(enum ptl_dtype type, double slack) {
    static const double most[] = {2e-5, 3e-3, 2e-2}, norm[] = {3e-6, 1e-3, 5e-3};
    return (struct bound){slack * most[type - PTL_F32], slack * norm[type - PTL_F32], 1.0};
}

/* A running comparison of one output. */
struct errors {
    double most, largest, difference, size; /* the last two are squares of norms */
    int64_t row, at, n;
};

static void add_error(struct errors *e, double got, double expected, int64_t row, int64_t at) {
    const double d = fabs(got - expected);
    e->n++;
    if (isnan(expected) && isnan(got)) return;
    if (isinf(expected) && got == expected) return;
    e->largest = fmax(e->largest, fabs(expected));
    e->difference += d * d;
    e->size += expected * expected;
    if (d <= e->most) return;
    e->most = isnan(d) ? (double)INFINITY : d;
    e->row = row;
    e->at = at;
}

/* Few numbers may all be sums of terms that cancel, and then the ratio of the norms says
 * nothing. */
static void check_errors(const struct errors *e, struct bound bound, const char *what,
                         const char *name) {
    enum { FEW = 64 };
    if (!(e->most <= bound.most * fmax(1.0, e->largest / bound.unit)))
        FAIL("%s: %s is off by %.3g in row %lld, element %lld (the largest is %.3g)", what, name,
             e->most, (long long)e->row, (long long)e->at, e->largest);
    else if (isfinite(bound.norm) && e->n > FEW &&
             !(sqrt(e->difference) <= bound.norm * sqrt(e->size)))
        FAIL("%s: %s: the norm of the error is %.3g of the norm", what, name,
             sqrt(e->difference / e->size));
}

/* The rows that are looked at: all, or as many as take a second or so, the last one always. */
struct sample {
    const struct nsa_problem *x;
    int64_t every;
};

static struct sample sample_of(const struct nsa_problem *x) {
    const struct nsa_spec *s = &x->spec;
    double work = 1.0;
    for (int b = 0; b < s->n_seqs; b++)
        work += (double)s->seq[b].n_queries * (double)s->seq[b].n_tokens;
    work *= (double)(s->kv_heads * s->group * (s->d + s->dv + 8));
    return (struct sample){x, 1 + (int64_t)(work / (test_quick() ? 1e6 : 1e7))};
}

static bool is_sampled(const struct sample *s, int b, int64_t i) {
    return (s->x->spec.seq[b].n_queries - 1 - i) % s->every == 0;
}

static void each_sampled(const struct sample *s, ref_nsa_step *step, const struct ptl_nsa_params *p,
                         const struct ref_nsa_result *r) {
    for (int b = 0; b < s->x->spec.n_seqs; b++)
        for (int64_t i = 0; i < s->x->spec.seq[b].n_queries; i++)
            if (is_sampled(s, b, i)) step(p, b, i, r);
}

static void compare_output(const struct sample *s, const struct nsa_results *r, int output,
                           const double *expected, struct bound bound, const char *what) {
    struct errors e = {.most = 0.0};
    if (!r->row[output]) return;
    for (int b = 0; b < s->x->spec.n_seqs; b++)
        for (int64_t i = 0; i < s->x->spec.seq[b].n_queries; i++) {
            if (!is_sampled(s, b, i)) continue;
            const int64_t row = ref_nsa_row(&s->x->p, b, i), n = r->width[output];
            for (int64_t at = 0; at < n; at++)
                add_error(&e, (double)r->row[output][row * n + at], expected[row * n + at], row,
                          at);
        }
    check_errors(&e, bound, what, names[output]);
}

/* The selection of one row and kv head, n entries, against the reference's importance. */
static void compare_selection(const struct nsa_problem *x, int64_t t, const int32_t *idx,
                              const int64_t *expected, const double *importance, int32_t nsel,
                              double tau, const char *what) {
    const struct ptl_nsa_params *p = &x->p;
    double least = INFINITY; /* of the reference's free choices */
    int64_t n = 0, n_forced = 0, n_forced_expected = 0;
    for (int64_t e = 0; e < p->topk && expected[e] >= 0; e++) {
        n++;
        if (ref_nsa_forced(p, t, expected[e])) n_forced_expected++;
        else least = fmin(least, importance[expected[e]]);
    }
    if (nsel != n)
        FAIL("%s: nsel is %d at t = %lld, expected %lld", what, nsel, (long long)t, (long long)n);
    for (int64_t e = 0; e < p->topk; e++) {
        if (e >= n ? idx[e] != -1 : idx[e] < 0 || idx[e] > t / p->select_block) {
            FAIL("%s: idx[%lld] is %d at t = %lld, of %lld blocks", what, (long long)e, idx[e],
                 (long long)t, (long long)n);
            return;
        }
        if (e >= n) continue;
        n_forced += ref_nsa_forced(p, t, idx[e]);
        for (int64_t f = 0; f < e; f++)
            if (idx[f] == idx[e])
                FAIL("%s: block %d twice at t = %lld", what, idx[e], (long long)t);
        if (p->order == PTL_NSA_ORDER_INDEX && e > 0 && idx[e] < idx[e - 1])
            FAIL("%s: idx does not ascend at t = %lld", what, (long long)t);
        if (!ref_nsa_forced(p, t, idx[e]) && !(importance[idx[e]] >= least - tau))
            FAIL(
                "%s: block %d of importance %.9g is taken at t = %lld, the least of others is %.9g",
                what, idx[e], importance[idx[e]], (long long)t, least);
    }
    if (n_forced != n_forced_expected)
        FAIL("%s: %lld forced blocks at t = %lld, expected %lld", what, (long long)n_forced,
             (long long)t, (long long)n_forced_expected);
}

/* The product's idx by the rule; and exactly, given the importance that the product wrote. */
static void compare_selections(const struct sample *s, const struct nsa_results *r,
                               struct ref_nsa_result *e, struct bound bound, const char *what) {
    const struct ptl_nsa_params *p = &s->x->p;
    const int64_t heads = s->x->spec.kv_heads, n = p->topk, n_blocks = ref_nsa_n_blocks(p);
    const double *importance = e->importance;
    int64_t *by_reference = e->idx;
    const int64_t n_rows = ref_nsa_n_rows(p);
    double *written = test_alloc((size_t)(n_rows * heads * n_blocks) * sizeof *written);
    int64_t *by_written = test_alloc((size_t)(n_rows * heads * n) * sizeof *by_written);
    for (int64_t i = 0; i < n_rows * heads * n_blocks; i++)
        written[i] = (double)r->row[NSA_IMPORTANCE][i];
    each_sampled(s, ref_nsa_select_row, p, e);
    const struct ref_nsa_result again = {.importance = written, .idx = by_written};
    each_sampled(s, ref_nsa_select_row, p, &again);

    for (int b = 0; b < s->x->spec.n_seqs; b++)
        for (int64_t i = 0; i < s->x->spec.seq[b].n_queries && !test_case_failed(); i++)
            for (int64_t h = 0; h < heads && is_sampled(s, b, i); h++) {
                const int64_t at = ref_nsa_row(p, b, i) * heads + h;
                const int64_t t = s->x->spec.seq[b].n_tokens - s->x->spec.seq[b].n_queries + i;
                const int32_t *idx = (const int32_t *)(const void *)r->row[NSA_IDX] + at * n;
                const int32_t *nsel = (const int32_t *)(const void *)r->row[NSA_NSEL] + at;
                double largest = 0.0;
                for (int64_t j = 0; j < n_blocks; j++)
                    largest = fmax(largest, importance[at * n_blocks + j]);
                compare_selection(s->x, t, idx, by_reference + at * n, importance + at * n_blocks,
                                  *nsel, bound.most * fmax(1.0, largest / bound.unit), what);
                for (int64_t k = 0; k < n; k++)
                    if (idx[k] != by_written[at * n + k])
                        FAIL("%s: idx[%lld] is %d at t = %lld, by its own importance %lld", what,
                             (long long)k, idx[k], (long long)t, (long long)by_written[at * n + k]);
            }
    free(written);
    free(by_written);
}

static double *doubles(int64_t n) {
    double *x = test_alloc((size_t)n * sizeof *x);
    for (int64_t i = 0; i < n; i++) x[i] = 0.0;
    return x;
}

/* kc and vc are there; r's idx is what the reference attends to. */
static void compare_to(const struct sample *s, const struct ptl_nsa_params *p,
                       const struct nsa_results *r, struct ref_nsa_result *e, const char *what) {
    const struct nsa_spec *spec = &s->x->spec;
    const bool is_low = p->score_dtype != PTL_F32;
    const enum ptl_dtype coarser = is_low && spec->dtype != PTL_BF16 ? p->score_dtype : spec->dtype;
    const struct bound out = bound_of(coarser, spec->slack);
    const struct bound lse = {2e-5 * spec->slack, INFINITY, INFINITY};
    const double unit = (double)(spec->group * (p->block / p->stride));
    const struct bound importance = {(is_low ? 1e-2 : 2e-5) * unit * spec->slack, INFINITY, unit};
    const int64_t shape[3] = {ref_nsa_n_rows(p), spec->kv_heads, p->topk};
    struct ptl_nsa_params given = *p;
    given.idx = ptl_tensor_contiguous(r->row[NSA_IDX], PTL_I32, 3, shape);
    each_sampled(s, ref_nsa_compressed_row, p, e);
    compare_output(s, r, NSA_OUT_CMP, e->out_cmp, out, what);
    compare_output(s, r, NSA_LSE_CMP, e->lse_cmp, lse, what);
    compare_output(s, r, NSA_IMPORTANCE, e->importance, importance, what);
    compare_selections(s, r, e, importance, what);
    each_sampled(s, ref_nsa_attend_row, &given, e);
    compare_output(s, r, NSA_OUT_SLC, e->out_slc, out, what);
    compare_output(s, r, NSA_LSE_SLC, e->lse_slc, lse, what);
    compare_output(s, r, NSA_OUT_SWA, e->out_swa, out, what);
    compare_output(s, r, NSA_LSE_SWA, e->lse_swa, lse, what);
    each_sampled(s, ref_nsa_combine_row, p, e);
    compare_output(s, r, NSA_OUT, e->out, out, what);
}

void nsa_compare(struct nsa_problem *x, const struct nsa_results *r, const char *what) {
    struct ptl_nsa_params p = x->p;
    const struct sample s = sample_of(x);
    const int64_t rows = ref_nsa_n_rows(&p), heads = x->spec.kv_heads * x->spec.group;
    const int64_t n_out = rows * heads * x->spec.dv, n_lse = rows * heads;
    const int64_t n_kv = rows * x->spec.kv_heads;
    struct ref_nsa_result e = {doubles(n_out),
                               doubles(n_out),
                               doubles(n_out),
                               doubles(n_out),
                               doubles(n_lse),
                               doubles(n_lse),
                               doubles(n_lse),
                               doubles(n_kv * ref_nsa_n_blocks(&p)),
                               test_alloc((size_t)(n_kv * p.topk) * sizeof(int64_t)),
                               NULL};
    p.kc = x->kc;
    p.vc = x->vc;
    p.seq_offsets_kc = x->seq_offsets_kc;
    compare_to(&s, &p, r, &e, what);
    double *const all[] = {e.out_cmp, e.out_slc, e.out_swa, e.out,
                           e.lse_cmp, e.lse_slc, e.lse_swa, e.importance};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
    free(e.idx);
}

/* ---- The whole check ------------------------------------------------------------------------- */

/* The steps round the branches to halves before they combine them: not the bits of forward, but as
 * near. Takes out away, so that the rest can be compared. */
static void compare_halves(const struct nsa_problem *x, const struct nsa_results *forward,
                           struct nsa_results *steps, const char *what) {
    struct errors e = {.most = 0.0};
    const int64_t n = steps->width[NSA_OUT];
    for (int64_t i = 0; i < ref_nsa_n_rows(&x->p) * n; i++)
        add_error(&e, (double)steps->row[NSA_OUT][i], (double)forward->row[NSA_OUT][i], i / n,
                  i % n);
    check_errors(&e, bound_of(x->spec.dtype, x->spec.slack), what, "out of the steps");
    free(steps->row[NSA_OUT]);
    steps->row[NSA_OUT] = NULL;
}

void nsa_check(const struct nsa_spec *spec) {
    struct nsa_problem x;
    struct nsa_results first = {.row = {NULL}}, forward, steps;
    const struct hstu_variant *v;
    nsa_create(&x, spec);
    for (int i = 0; (v = hstu_variant(i)) != NULL && !test_case_failed(); i++) {
        /* the steps first: they make the kc that forward is held to */
        if (!nsa_run(&x, v->ctx, NSA_STEPS, &steps)) break;
        if (nsa_run(&x, v->ctx, NSA_FORWARD, &forward)) {
            if (spec->dtype != PTL_F32) compare_halves(&x, &forward, &steps, v->name);
            same(&x, &forward, &steps, v->name);
            if (v->first) {
                nsa_compare(&x, &forward, v->name);
                nsa_results_free(&first);
                first = forward;
            } else {
                same(&x, &first, &forward, v->name);
                nsa_results_free(&forward);
            }
        }
        nsa_results_free(&steps);
    }
    nsa_results_free(&first);
    nsa_destroy(&x);
}

void nsa_check_case(const struct nsa_spec *s) {
    test_case("%s", nsa_spec_text(s));
    nsa_check(s);
}

/* ---- Parts of a problem ---------------------------------------------------------------------- */

/* Variant n modulo their count of a level. */
static const struct hstu_variant *variant_of(int level, int n) {
    int first = 0, count = 0;
    const struct hstu_variant *v;
    for (int i = 0; (v = hstu_variant(i)) != NULL; i++) {
        if (v->isa != test_level(level)) continue;
        if (count++ == 0) first = i;
    }
    return count ? hstu_variant(first + n % count) : NULL;
}

void nsa_whole_create(struct nsa_whole *w, const struct nsa_spec *s) {
    nsa_create(&w->x, s);
    w->ok = true;
    for (int level = 0; level < test_n_levels(); level++)
        w->ok = nsa_run(&w->x, variant_of(level, 0)->ctx, NSA_FORWARD, &w->results[level]) && w->ok;
}

void nsa_whole_destroy(struct nsa_whole *w) {
    for (int level = 0; level < test_n_levels(); level++) nsa_results_free(&w->results[level]);
    nsa_destroy(&w->x);
}

/* The row of w with that sequence and position, or -1. */
static int64_t find_row(const struct nsa_problem *x, int64_t id, int64_t t) {
    for (int b = 0; b < x->spec.n_seqs; b++) {
        const struct nsa_seq *q = &x->spec.seq[b];
        const int64_t i = t - (q->n_tokens - q->n_queries);
        if (q->id == id && i >= 0 && t < q->n_tokens) return ref_nsa_row(&x->p, b, i);
    }
    return -1;
}

int64_t nsa_same_part(const struct nsa_whole *w, const struct nsa_spec *part, int n) {
    struct nsa_problem x;
    int64_t n_compared = 0;
    nsa_create(&x, part);
    for (int level = 0; level < test_n_levels() && w->ok && !test_case_failed(); level++) {
        const struct hstu_variant *v = variant_of(level, n);
        struct nsa_results r;
        if (!nsa_run(&x, v->ctx, NSA_FORWARD, &r)) break;
        n_compared = 0;
        for (int b = 0; b < part->n_seqs; b++)
            for (int64_t i = 0; i < part->seq[b].n_queries; i++) {
                const int64_t t = part->seq[b].n_tokens - part->seq[b].n_queries + i;
                const int64_t row = find_row(&w->x, part->seq[b].id, t);
                if (row < 0) continue;
                n_compared++;
                if (!nsa_same_rows(&w->results[level], row, &r, ref_nsa_row(&x.p, b, i), v->name))
                    break;
            }
        if (test_case_failed()) FAIL("it was %s", nsa_spec_text(part));
        nsa_results_free(&r);
    }
    nsa_destroy(&x);
    return n_compared;
}
