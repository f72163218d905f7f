/* NSA and full attention against the reference: rows, or a sample of them, each with all its heads.
 * A selection is held against the reference's importance, and what follows from it is computed from
 * the selection that the library made, since near ties may fall either way. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../ref/elements.h"
#include "../ref/nsa.h"
#include "compare_parts.h"
#include "cost.h"
#include "sequences_nsa.h"
#include "tensors.h"

/* Per token and head for walking over what is not seen. */
#define WALK_NS 10.0

enum { MIN_ROWS = 3 };

/* By type: f32, f16, bf16; as a part of max(1, the largest |value|). */
static const double out_bounds[] = {0, 2e-5, 3e-3, 2e-2};
static const double lse_bounds[] = {0, 2e-5, 2e-3, 1e-2};
static const double mix_bounds[] = {0, 2e-6, 1e-3, 8e-3}; /* of compressed keys, as out */
static const double importance_bound = 2e-5;              /* of G block / stride, and of idx */
static const double rounded_bound = 1e-2;                 /* with a score_dtype */

/* What is compared row by row. */
enum part { OUT, OUT_CMP, OUT_SLC, OUT_SWA, LSE_CMP, LSE_SLC, LSE_SWA, IMPORTANCE, N_PARTS };

static const struct {
    size_t tensor, expected; /* in struct ptl_nsa_params and struct ref_nsa_result */
    bool lse;
} parts[N_PARTS] = {
#define PART(name, lse)                                                                            \
    { offsetof(struct ptl_nsa_params, name), offsetof(struct ref_nsa_result, name), lse }
    PART(out, false),    PART(out_cmp, false), PART(out_slc, false), PART(out_swa, false),
    PART(lse_cmp, true), PART(lse_slc, true),  PART(lse_swa, true),  PART(importance, false),
#undef PART
};

static const struct ptl_tensor *tensor_of(const struct ptl_nsa_params *p, int part) {
    return (const struct ptl_tensor *)((const char *)p + parts[part].tensor);
}

static double **expected_of(struct ref_nsa_result *r, int part) {
    return (double **)(void *)((char *)r + parts[part].expected);
}

struct check {
    const struct call *c;
    struct ptl_nsa_params p;
    struct ref_nsa_result r;
    struct tally tallies[N_PARTS];
    double idx, nsel; /* errors; negative: not compared */
};

/* ---- Selection ------------------------------------------------------------------------------- */

/* Whether a row's idx is well formed; *n is the number of blocks in it. */
static bool is_selection(const struct ptl_nsa_params *p, const int32_t *idx, int64_t n_candidates,
                         int64_t *n) {
    for (*n = 0; *n < p->topk && idx[*n] >= 0; ++*n) {
        if (idx[*n] >= n_candidates) return false;
        for (int64_t e = 0; e < *n; e++)
            if (idx[e] == idx[*n] || (p->order == PTL_NSA_ORDER_INDEX && idx[e] > idx[*n]))
                return false;
    }
    for (int64_t e = *n; e < p->topk; e++)
        if (idx[e] != -1) return false;
    return true;
}

static bool contains(const int64_t *idx, int64_t n, int64_t j) {
    for (int64_t e = 0; e < n; e++)
        if (idx[e] == j) return true;
    return false;
}

/* By how much the worst block in got falls short of the worst expected one (order SCORE: a block of
 * the one before it), in importance; infinite where no rounding explains it. */
static double shortfall(const struct ptl_nsa_params *p, int64_t t, const double *importance,
                        const int32_t *got, const int64_t *expected) {
    int64_t n, n_expected, worst = -1;
    const int64_t n_candidates = t / p->select_block + 1;
    if (!is_selection(p, got, n_candidates, &n)) return INFINITY;
    for (n_expected = 0; n_expected < p->topk && expected[n_expected] >= 0; n_expected++) {
        const int64_t j = expected[n_expected];
        const int forced = ref_nsa_forced(p, t, j);
        if (worst < 0 || forced < ref_nsa_forced(p, t, worst) ||
            (forced == ref_nsa_forced(p, t, worst) && importance[j] < importance[worst]))
            worst = j;
    }
    if (n != n_expected) return INFINITY;
    double short_by = 0.0;
    for (int64_t e = 0; e < n; e++) {
        const int64_t j = got[e], before = e > 0 ? got[e - 1] : j;
        const bool ranked = p->order == PTL_NSA_ORDER_SCORE;
        if (!contains(expected, n, j)) {
            if (ref_nsa_forced(p, t, j) != ref_nsa_forced(p, t, worst)) return INFINITY;
            short_by = fmax(short_by, importance[worst] - importance[j]);
        }
        if (ranked && ref_nsa_forced(p, t, before) < ref_nsa_forced(p, t, j)) return INFINITY;
        if (ranked && ref_nsa_forced(p, t, before) == ref_nsa_forced(p, t, j) &&
            importance[before] != importance[j])
            short_by = fmax(short_by, importance[j] - importance[before]);
    }
    return short_by;
}

static void tally_selection(struct check *k, int64_t b, int64_t i) {
    const struct ptl_nsa_params *p = &k->p;
    const int64_t kv_heads = p->k.shape[p->k.ndim - 2], row = ref_nsa_row(p, b, i);
    const int64_t t = ref_nsa_n_tokens(p, b) - ref_nsa_n_queries(p, b) + i;
    const int64_t n_blocks = ref_nsa_n_blocks(p);
    for (int64_t at = row * kv_heads; at < (row + 1) * kv_heads; at++) {
        if (p->idx.data)
            k->idx = fmax(k->idx, shortfall(p, t, k->r.importance + at * n_blocks,
                                            (const int32_t *)p->idx.data + at * p->topk,
                                            k->r.idx + at * p->topk));
        if (p->nsel.data)
            k->nsel = fmax(k->nsel, index_at(&p->nsel, at) == k->r.nsel[at] ? 0.0 : INFINITY);
    }
}

/* ---- Rows ------------------------------------------------------------------------------------ */

/* Numbers of a row of q in a part. */
static int64_t row_size(const struct ptl_nsa_params *p, int part) {
    const struct ptl_tensor *q = &p->q;
    if (part == IMPORTANCE) return p->k.shape[p->k.ndim - 2] * ref_nsa_n_blocks(p);
    const int64_t heads = q->shape[q->ndim - 2];
    const struct ptl_tensor *v = p->v.data ? &p->v : &p->vc;
    return parts[part].lse ? heads : heads * (v->data ? v->shape[v->ndim - 1] : 0);
}

/* Room for all rows: what is not touched costs nothing. Without values there is no output. */
static bool open_check(struct check *k, const struct call *c, const struct ptl_nsa_params *p) {
    const int64_t rows = ref_nsa_n_rows(p), kv_heads = p->k.shape[p->k.ndim - 2];
    *k = (struct check){.c = c, .p = *p, .idx = -1.0, .nsel = -1.0};
    bool ok = true;
    for (int part = 0; part < N_PARTS; part++) {
        double **expected = expected_of(&k->r, part);
        const int64_t n = row_size(p, part);
        if (n > 0) *expected = calloc((size_t)(rows * n) + 1, sizeof **expected);
        ok = ok && (n == 0 || *expected);
    }
    k->r.idx = calloc((size_t)(rows * kv_heads * p->topk) + 1, sizeof *k->r.idx);
    k->r.nsel = calloc((size_t)(rows * kv_heads) + 1, sizeof *k->r.nsel);
    return ok && k->r.idx && k->r.nsel;
}

static void close_check(struct check *k) {
    for (int part = 0; part < N_PARTS; part++) free(*expected_of(&k->r, part));
    free(k->r.idx);
    free(k->r.nsel);
}

static void tally_parts(struct check *k, int64_t b, int64_t i) {
    const int64_t row = ref_nsa_row(&k->p, b, i);
    for (int part = 0; part < N_PARTS; part++) {
        const struct ptl_tensor *t = tensor_of(&k->p, part);
        const int64_t n = row_size(&k->p, part), at = row * n;
        if (t->data) tally_row(&k->tallies[part], t, at, *expected_of(&k->r, part) + at, n);
    }
}

/* How lines of the operator call an output; NULL: it has no such output. */
static const char *name_of(const struct call *c, size_t tensor) {
    for (const struct field *const *table = c->op->fields; *table; table++)
        for (const struct field *field = *table; field->key; field++)
            if (field->offset == tensor && field->kind == FIELD_OUTPUT) return field->key;
    return NULL;
}

static void add_parts(struct check *k, struct comparison *result) {
    const struct ptl_nsa_params *p = &k->p;
    const int64_t kv_heads = p->k.shape[p->k.ndim - 2];
    const double group = (double)(p->q.shape[p->q.ndim - 2] / kv_heads);
    const bool summed = p->pool == PTL_NSA_POOL_SUM;
    const double whole = group * (summed ? (double)(p->block / p->stride) : 1.0);
    const double rounded = p->score_dtype == PTL_F32 ? 0.0 : rounded_bound;
    for (int part = 0; part < N_PARTS; part++) {
        const size_t tensor = offsetof(struct call, nsa.params) + parts[part].tensor;
        struct tally *tally = &k->tallies[part];
        const char *name = name_of(k->c, tensor);
        double bound = out_bounds[p->q.dtype];
        if (!tensor_of(p, part)->data || !name) continue;
        if (part == IMPORTANCE) {
            tally->largest = whole;
            bound = importance_bound;
        } else {
            if (parts[part].lse) bound = lse_bounds[p->q.dtype];
            tally->largest = fmax(1.0, tally->largest);
        }
        add_part(result, name, tally, fmax(bound, rounded));
    }
    if (k->idx >= 0.0) {
        const struct tally tally = {whole, k->idx};
        add_part(result, "idx", &tally, fmax(importance_bound, rounded));
    }
    if (k->nsel >= 0.0) {
        const struct tally tally = {1.0, k->nsel};
        add_part(result, "nsel", &tally, 0.0);
    }
}

/* Seconds that the reference takes for all rows. */
static double all_seconds(const struct ptl_nsa_params *p, double flops) {
    const double heads = (double)p->q.shape[p->q.ndim - 2];
    double tokens = 0.0;
    for (int64_t b = 0; b < ref_nsa_n_seqs(p); b++)
        tokens += (double)ref_nsa_n_queries(p, b) * (double)ref_nsa_n_tokens(p, b);
    return 1e-9 * (ELEMENT_NS * 0.5 * flops + WALK_NS * heads * tokens);
}

typedef void row_fn(struct check *k, int64_t b, int64_t i);

/* Compares the rows of the call's outputs, each made by `compute` in the reference first. */
static bool compare_rows(const struct call *c, const struct ptl_nsa_params *p, double seconds,
                         row_fn *compute, struct comparison *result) {
    struct check k;
    int64_t n_all = 0, done = 0, before = 0;
    if (!open_check(&k, c, p)) {
        close_check(&k);
        return false;
    }
    for (int64_t b = 0; b < ref_nsa_n_seqs(p); b++) n_all += ref_nsa_n_queries(p, b);
    const double flops = c->op->cost(c).flops;
    const int64_t n =
        rows_within(all_seconds(p, isnan(flops) ? 0.0 : flops), seconds, n_all, MIN_ROWS);
    for (int64_t b = 0; b < ref_nsa_n_seqs(p) && done < n; b++) {
        const int64_t end = before + ref_nsa_n_queries(p, b);
        for (int64_t i; done < n && (i = pick_row(c->problem.seed, done, n, n_all)) < end; done++) {
            compute(&k, b, i - before);
            tally_parts(&k, b, i - before);
        }
        before = end;
    }
    add_parts(&k, result);
    result->n_rows += n;
    result->n_all_rows += n_all;
    close_check(&k);
    return true;
}

/* ---- Operators on rows ----------------------------------------------------------------------- */

static void compressed_row(struct check *k, int64_t b, int64_t i) {
    ref_nsa_compressed_row(&k->p, b, i, &k->r);
    if (!k->p.idx.data && !k->p.nsel.data) return;
    ref_nsa_select_row(&k->p, b, i, &k->r);
    tally_selection(k, b, i);
}

bool compare_nsa_compressed(const struct call *c, double seconds, struct comparison *result) {
    const struct ptl_nsa_params p = nsa_shaped(c);
    return compare_rows(c, &p, seconds, compressed_row, result);
}

static void attend_row(struct check *k, int64_t b, int64_t i) {
    ref_nsa_attend_row(&k->p, b, i, &k->r);
}

bool compare_nsa_attend(const struct call *c, double seconds, struct comparison *result) {
    const struct ptl_nsa_params p = nsa_shaped(c);
    return compare_rows(c, &p, seconds, attend_row, result);
}

/* n numbers of row i from `at` on as doubles. */
static void read_row(const struct ptl_tensor *t, int64_t at, int64_t n, double *x) {
    for (int64_t d = 0; t->data && d < n; d++) x[d] = ref_read(t->dtype, t->data, at + d);
}

static void combine_row(struct check *k, int64_t b, int64_t i) {
    const struct ptl_nsa_params *p = &k->c->nsa.params;
    const int64_t n = row_size(&k->p, OUT), at = ref_nsa_row(&k->p, b, i) * n;
    read_row(&p->out_cmp, at, n, k->r.out_cmp + at);
    read_row(&p->out_slc, at, n, k->r.out_slc + at);
    read_row(&p->out_swa, at, n, k->r.out_swa + at);
    ref_nsa_combine_row(&k->p, b, i, &k->r);
}

/* Rows without sequences: all are of one. */
bool compare_nsa_combine(const struct call *c, double seconds, struct comparison *result) {
    struct ptl_nsa_params p = c->nsa.params;
    const int64_t offsets[2] = {0, p.out.shape[0]}, n_offsets = 2;
    p.q = p.k = p.v = p.out;
    p.seqlens_k.data = NULL;
    p.seq_offsets_q = ptl_tensor_contiguous((void *)(uintptr_t)offsets, PTL_I64, 1, &n_offsets);
    return compare_rows(c, &p, seconds, combine_row, result);
}

/* The selection of given scores is exact: any difference is an error. */
static void select_row(struct check *k, int64_t b, int64_t i) {
    const struct ptl_nsa_params *p = &k->p;
    const int64_t n = row_size(p, IMPORTANCE), at = ref_nsa_row(p, b, i) * n;
    const int64_t kv_heads = p->k.shape[p->k.ndim - 2], row = ref_nsa_row(p, b, i) * kv_heads;
    read_row(&k->c->nsa.params.importance, at, n, k->r.importance + at);
    ref_nsa_select_row(p, b, i, &k->r);
    for (int64_t e = row * p->topk; p->idx.data && e < (row + kv_heads) * p->topk; e++)
        k->idx = fmax(k->idx, index_at(&p->idx, e) == k->r.idx[e] ? 0.0 : INFINITY);
    for (int64_t e = row; p->nsel.data && e < row + kv_heads; e++)
        k->nsel = fmax(k->nsel, index_at(&p->nsel, e) == k->r.nsel[e] ? 0.0 : INFINITY);
}

bool compare_nsa_select(const struct call *c, double seconds, struct comparison *result) {
    struct ptl_nsa_params p = nsa_shaped(c);
    return compare_rows(c, &p, seconds, select_row, result);
}

static void forward_row(struct check *k, int64_t b, int64_t i) {
    compressed_row(k, b, i);
    ref_nsa_attend_row(&k->p, b, i, &k->r);
    ref_nsa_combine_row(&k->p, b, i, &k->r);
}

/* The mean over each block of k or of v, as nsa_forward takes where no kc, vc are given; data is to
 * be freed. */
static bool mean_of(const struct ptl_nsa_params *p, const struct ptl_tensor *x,
                    const struct ptl_tensor *offsets, struct ptl_tensor *y) {
    struct ptl_nsa_compress_params c;
    int64_t n = 0;
    for (int64_t b = 0; b < ref_nsa_n_seqs(p); b++)
        n += ref_nsa_n_visible(p, ref_nsa_n_tokens(p, b) - 1);
    const int64_t shape[3] = {n, x->shape[x->ndim - 2], x->shape[x->ndim - 1]};
    const size_t elements = (size_t)(n * shape[1] * shape[2]) + 1;
    *y = ptl_tensor_contiguous(calloc(elements, ptl_dtype_bytes(x->dtype)), x->dtype, 3, shape);
    if (!y->data) return false;
    ptl_nsa_compress_params_init(&c);
    c.block = p->block;
    c.stride = p->stride;
    c.x = *x;
    c.y = *y;
    c.seq_offsets = p->seq_offsets_k.data ? p->seq_offsets_k : p->seq_offsets_q;
    c.seqlens = p->seqlens_k;
    c.page_table = p->page_table;
    c.seq_offsets_y = *offsets;
    ref_nsa_compress(&c);
    return true;
}

bool compare_nsa_forward(const struct call *c, double seconds, struct comparison *result) {
    struct ptl_nsa_params p = nsa_shaped(c);
    if (p.kc.data) return compare_rows(c, &p, seconds, forward_row, result);
    if (p.q.dtype != PTL_F32) p.score_dtype = p.q.dtype; /* means may round to their neighbours */
    const int64_t n_offsets = ref_nsa_n_seqs(&p) + 1;
    int64_t *offsets = calloc((size_t)n_offsets, sizeof *offsets);
    p.seq_offsets_kc = ptl_tensor_contiguous(offsets, PTL_I64, 1, &n_offsets);
    p.page_table_c.data = NULL;
    bool ok = offsets && mean_of(&p, &p.k, &p.seq_offsets_kc, &p.kc);
    ok = ok && mean_of(&p, &p.v, &p.seq_offsets_kc, &p.vc);
    ok = ok && compare_rows(c, &p, seconds, forward_row, result);
    free(p.kc.data);
    free(p.vc.data);
    free(offsets);
    return ok;
}

/* ---- Full attention -------------------------------------------------------------------------- */

/* One head of t, as an array of its own. */
static struct ptl_tensor one_head(const struct ptl_tensor *t, int64_t head) {
    struct ptl_tensor x = *t;
    const int64_t at = head * t->stride[t->ndim - 2] * (int64_t)ptl_dtype_bytes(t->dtype);
    x.data = (char *)t->data + at;
    x.shape[t->ndim - 2] = 1;
    return x;
}

/* A row of one head at a time: a long one takes the reference tens of milliseconds. */
bool compare_attention(const struct call *c, double seconds, struct comparison *result) {
    const struct ptl_nsa_params all = nsa_shaped(c);
    const struct ptl_tensor *out = &c->nsa.attention.out, *lse = &c->nsa.attention.lse;
    const int64_t heads = all.q.shape[all.q.ndim - 2], group = heads / all.k.shape[all.k.ndim - 2];
    const int64_t dv = all.v.shape[all.v.ndim - 1], rows = ref_nsa_n_rows(&all);
    const struct ref_nsa_result r = {
        .out_swa = calloc((size_t)(rows * dv) + 1, sizeof(double)),
        .lse_swa = calloc((size_t)rows + 1, sizeof(double)),
    };
    struct tally of_out = {0}, of_lse = {0};
    int64_t n_all = 0, done = 0, before = 0;
    for (int64_t b = 0; b < ref_nsa_n_seqs(&all); b++) n_all += ref_nsa_n_queries(&all, b) * heads;
    const double flops = c->op->cost(c).flops;
    const int64_t n = rows_within(all_seconds(&all, flops), seconds, n_all, MIN_SAMPLE);
    const bool ok = r.out_swa && r.lse_swa;
    for (int64_t b = 0; ok && b < ref_nsa_n_seqs(&all) && done < n; b++) {
        const int64_t end = before + ref_nsa_n_queries(&all, b) * heads;
        for (int64_t x; done < n && (x = pick_row(c->problem.seed, done, n, n_all)) < end; done++) {
            const int64_t i = (x - before) / heads, head = (x - before) % heads;
            const int64_t row = ref_nsa_row(&all, b, i), at = row * heads + head;
            struct ptl_nsa_params p = all;
            p.q = one_head(&all.q, head);
            p.k = one_head(&all.k, head / group);
            p.v = one_head(&all.v, head / group);
            ref_nsa_attend_row(&p, b, i, &r);
            tally_row(&of_out, out, at * dv, r.out_swa + row * dv, dv);
            if (lse->data) tally_row(&of_lse, lse, at, r.lse_swa + row, 1);
        }
        before = end;
    }
    free(r.out_swa);
    free(r.lse_swa);
    of_out.largest = fmax(1.0, of_out.largest);
    of_lse.largest = fmax(1.0, of_lse.largest);
    add_part(result, "out", &of_out, out_bounds[all.q.dtype]);
    if (lse->data) add_part(result, "lse", &of_lse, lse_bounds[all.q.dtype]);
    result->n_rows = n;
    result->n_all_rows = n_all;
    return ok;
}

/* ---- Compressed keys and caches -------------------------------------------------------------- */

/* Contiguous arrays, element by element; what has the same bits, NaN too, is the same. */
static void compare_mixed(struct comparison *result, const char *name, const struct ptl_tensor *t,
                          const struct ptl_tensor *expected, double bound) {
    enum { STEP = 1024 };
    struct tally tally = {0};
    const size_t bytes = ptl_dtype_bytes(t->dtype);
    const char *got = t->data, *other = expected->data;
    for (int64_t n = n_elements(t), i = 0; i < n; i += STEP) {
        const int64_t end = i + STEP < n ? i + STEP : n;
        if (memcmp(got + (size_t)i * bytes, other + (size_t)i * bytes, (size_t)(end - i) * bytes) ==
            0)
            continue;
        for (int64_t x = i; x < end; x++) {
            const double number = ref_read(expected->dtype, expected->data, x);
            if (memcmp(got + (size_t)x * bytes, other + (size_t)x * bytes, bytes) != 0)
                tally_row(&tally, t, x, &number, 1);
        }
    }
    tally.largest = fmax(1.0, tally.largest);
    add_part(result, name, &tally, bound);
}

bool compare_nsa_compress(const struct call *c, double seconds, struct comparison *result) {
    struct ptl_nsa_compress_params p = c->nsa.compress;
    struct ptl_tensor offsets;
    (void)seconds;
    bool ok = take_twin(&c->nsa.compress.y, &p.y);
    ok = take_twin(&c->nsa.compress.seq_offsets_y, &offsets) && ok;
    p.seq_offsets_y = offsets;
    if (ok) {
        ref_nsa_compress(&p);
        compare_mixed(result, "y", &c->nsa.compress.y, &p.y, mix_bounds[p.x.dtype]);
        struct tally of_offsets = {0};
        for (int64_t b = 0; b < n_elements(&offsets); b++)
            if (index_at(&offsets, b) != index_at(&c->nsa.compress.seq_offsets_y, b))
                of_offsets.worst = INFINITY;
        if (offsets.data) add_part(result, "seq_offsets_y", &of_offsets, 0.0);
    }
    free(p.y.data);
    free(offsets.data);
    result->n_rows = result->n_all_rows = p.y.shape[p.y.ndim - 3];
    return ok;
}

/* The caches as the library left them, the new tokens and blocks written once more by the
 * reference; that other slots keep their bits is left to the tests. */
bool compare_nsa_append(const struct call *c, double seconds, struct comparison *result) {
    const struct ptl_nsa_append_params *a = &c->nsa.append;
    struct ptl_nsa_append_params twin = *a;
    const struct {
        const char *name;
        const struct ptl_tensor *t;
        struct ptl_tensor *twin;
        bool mixed;
    } caches[] = {
        {"k_pages", &a->k_pages, &twin.k_pages, false},
        {"v_pages", &a->v_pages, &twin.v_pages, false},
        {"k_ring", &a->k_ring, &twin.k_ring, false},
        {"v_ring", &a->v_ring, &twin.v_ring, false},
        {"kc_pages", &a->kc_pages, &twin.kc_pages, true},
        {"vc_pages", &a->vc_pages, &twin.vc_pages, true},
    };
    enum { N = sizeof caches / sizeof caches[0] };
    bool ok = true;
    (void)seconds;
    for (int i = 0; i < N; i++) ok = take_twin(caches[i].t, caches[i].twin) && ok;
    for (int i = 0; i < N && ok; i++)
        if (caches[i].t->data)
            memcpy(caches[i].twin->data, caches[i].t->data,
                   (size_t)n_elements(caches[i].t) * ptl_dtype_bytes(caches[i].t->dtype));
    if (ok) ref_nsa_append(&twin);
    for (int i = 0; i < N; i++) {
        if (ok && caches[i].t->data)
            compare_mixed(result, caches[i].name, caches[i].t, caches[i].twin,
                          caches[i].mixed ? mix_bounds[caches[i].t->dtype] : 0.0);
        free(caches[i].twin->data);
    }
    for (int64_t b = 0; b < a->seqlens_k.shape[0]; b++)
        result->n_rows += index_at(&a->seqlens_k, b) - index_at(&a->seqlens_old, b);
    result->n_all_rows = result->n_rows;
    return ok;
}

bool compare_nsa_decode(const struct call *c, double seconds, struct comparison *result) {
    if (!compare_nsa_append(c, seconds, result)) return false;
    result->n_rows = result->n_all_rows = 0;
    return compare_nsa_forward(c, seconds, result);
}
