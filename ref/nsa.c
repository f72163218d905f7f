/* The attention operators as the formulas of docs/nsa.md are written, row by row: no tiles, no
 * running maximum, every probability of a row in one array. */
#include "nsa.h"

#include <math.h>
#include <stdlib.h>

#include "elements.h"
#include "nsa_rows.h"

static int64_t min64(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static void *allocate(int64_t n, size_t bytes) {
    void *memory = calloc(n > 0 ? (size_t)n : 1, bytes);
    if (!memory) abort();
    return memory;
}

/* ---- Sequences and sizes --------------------------------------------------------------------- */

static int is_dense(const struct ptl_nsa_params *p) {
    return p->q.ndim == 4;
}

static const struct ptl_tensor *offsets_k(const struct ptl_nsa_params *p) {
    return p->seq_offsets_k.data ? &p->seq_offsets_k : &p->seq_offsets_q;
}

static int64_t length(const struct ptl_tensor *offsets, int64_t b) {
    return ref_index(offsets, b + 1) - ref_index(offsets, b);
}

int64_t ref_nsa_n_seqs(const struct ptl_nsa_params *p) {
    return is_dense(p) ? p->q.shape[0] : p->seq_offsets_q.shape[0] - 1;
}

int64_t ref_nsa_n_queries(const struct ptl_nsa_params *p, int64_t b) {
    return is_dense(p) ? p->q.shape[1] : length(&p->seq_offsets_q, b);
}

int64_t ref_nsa_n_tokens(const struct ptl_nsa_params *p, int64_t b) {
    if (p->seqlens_k.data) return ref_index(&p->seqlens_k, b);
    if (!is_dense(p)) return length(offsets_k(p), b);
    return p->k.data ? p->k.shape[1] : p->q.shape[1];
}

int64_t ref_nsa_n_rows(const struct ptl_nsa_params *p) {
    return is_dense(p) ? p->q.shape[0] * p->q.shape[1] : p->q.shape[0];
}

int64_t ref_nsa_row(const struct ptl_nsa_params *p, int64_t b, int64_t i) {
    return is_dense(p) ? b * p->q.shape[1] + i : ref_index(&p->seq_offsets_q, b) + i;
}

int64_t ref_nsa_n_blocks(const struct ptl_nsa_params *p) {
    if (p->importance.data) return p->importance.shape[p->importance.ndim - 1];
    int64_t most = 0;
    for (int64_t b = 0; b < ref_nsa_n_seqs(p); b++)
        if (ref_nsa_n_tokens(p, b) > most) most = ref_nsa_n_tokens(p, b);
    return (most + p->select_block - 1) / p->select_block;
}

int64_t ref_nsa_n_visible(const struct ptl_nsa_params *p, int64_t t) {
    return t + 1 < p->block ? 0 : (t + 1 - p->block) / p->stride + 1;
}

/* Where a row stands in its sequence. */
static int64_t position(const struct ptl_nsa_params *p, int64_t b, int64_t i) {
    return ref_nsa_n_tokens(p, b) - ref_nsa_n_queries(p, b) + i;
}

static int64_t n_heads(const struct ptl_nsa_params *p) {
    return p->q.shape[p->q.ndim - 2];
}

static double scale(const struct ptl_nsa_params *p) {
    return isnan(p->scale) ? 1.0 / sqrt((double)p->q.shape[p->q.ndim - 1]) : (double)p->scale;
}

/* ---- Rows ------------------------------------------------------------------------------------ */

/* Rows laid out as q: q, q_cmp, gates. */
static struct ref_rows query_rows(const struct ptl_nsa_params *p, const struct ptl_tensor *t,
                                  int64_t b) {
    return ref_rows(t, &p->seq_offsets_q, NULL, b);
}

static struct ref_rows token_rows(const struct ptl_nsa_params *p, const struct ptl_tensor *t,
                                  int64_t b) {
    return ref_rows(t, offsets_k(p), &p->page_table, b);
}

static struct ref_rows compressed_rows(const struct ptl_nsa_params *p, const struct ptl_tensor *t,
                                       int64_t b) {
    return ref_rows(t, &p->seq_offsets_kc, &p->page_table_c, b);
}

/* ---- Softmax attention of one row and head --------------------------------------------------- */

/* The n keys of a sequence and how often each is seen; those seen 0 times are not read. */
struct seen {
    struct ref_rows keys, values; /* values.t->data may be NULL */
    int64_t n, kv_head;
    const int64_t *times;
};

static double dot(const struct ptl_tensor *a, int64_t at_a, const struct ptl_tensor *b,
                  int64_t at_b, int64_t n) {
    double sum = 0.0;
    for (int64_t d = 0; d < n; d++)
        sum += ref_read(a->dtype, a->data, at_a + d) * ref_read(b->dtype, b->data, at_b + d);
    return sum;
}

/* prob[k] = times * exp(scale q.k - lse), and lse; *given normalises instead where it is not
 * NULL. */
static double probabilities(const struct seen *x, double scale, const struct ref_rows *q, int64_t i,
                            int64_t head, const double *given, double *prob) {
    const int64_t d = q->t->shape[q->t->ndim - 1], q_at = ref_row_at(q, i, head);
    double most = -INFINITY, sum = 0.0;
    for (int64_t k = 0; k < x->n; k++) {
        prob[k] = -INFINITY;
        if (x->times[k] == 0) continue;
        prob[k] = scale * dot(q->t, q_at, x->keys.t, ref_row_at(&x->keys, k, x->kv_head), d);
        most = fmax(most, prob[k]);
    }
    if (isinf(most)) most = 0.0; /* nothing is seen, or the sum is infinite anyway */
    for (int64_t k = 0; k < x->n; k++)
        if (x->times[k]) sum += (double)x->times[k] * exp(prob[k] - most);
    const double lse = given ? *given : sum == 0.0 ? -INFINITY : most + log(sum);
    for (int64_t k = 0; k < x->n; k++)
        prob[k] =
            x->times[k] == 0 || lse == -INFINITY ? 0.0 : (double)x->times[k] * exp(prob[k] - lse);
    return lse;
}

/* out = sum prob[k] v_k over what is seen; a row whose lse is -inf sees nothing. */
static void weigh_values(const struct seen *x, const double *prob, double lse, int64_t dv,
                         double *out) {
    const struct ptl_tensor *v = x->values.t;
    for (int64_t d = 0; d < dv; d++) out[d] = 0.0;
    for (int64_t k = 0; k < x->n && lse != -INFINITY; k++) {
        if (x->times[k] == 0) continue;
        const int64_t at = ref_row_at(&x->values, k, x->kv_head);
        for (int64_t d = 0; d < dv; d++) out[d] += prob[k] * ref_read(v->dtype, v->data, at + d);
    }
}

/* ---- Compressed attention -------------------------------------------------------------------- */

/* importance[j] from the probabilities of the group: the keys from a j + o on with the weights of
 * box(a) * box(b), or the largest of them. */
static void pool(const struct ptl_nsa_params *p, const double *group, int64_t n_visible,
                 int64_t n_blocks, double *importance) {
    const int64_t a = p->select_block / p->stride, b = p->block / p->stride;
    const int64_t o = p->score == PTL_NSA_OVERLAP ? 1 - b : p->score == PTL_NSA_PLUS ? 0 : 2 - b;
    for (int64_t j = 0; j < n_blocks; j++) {
        double sum = 0.0, most = -INFINITY;
        for (int64_t k = 0; k < a + b - 1; k++) {
            const int64_t c = a * j + o + k;
            const int64_t weight = min64(min64(k + 1, a + b - 1 - k), min64(a, b));
            if (c < 0 || c >= n_visible) continue;
            sum += (double)weight * group[c];
            most = fmax(most, group[c]);
        }
        importance[j] = p->pool == PTL_NSA_POOL_MAX ? most : sum;
    }
}

static double lse_in(const struct ptl_nsa_params *p, int64_t b, int64_t i, int64_t head) {
    const struct ptl_tensor *t = &p->lse_in;
    const int64_t at =
        is_dense(p) ? b * t->stride[0] + i * t->stride[1] : ref_nsa_row(p, b, i) * t->stride[0];
    return (double)((const float *)t->data)[at + head];
}

void ref_nsa_compressed_row(const struct ptl_nsa_params *p, int64_t b, int64_t i,
                            const struct ref_nsa_result *r) {
    const int64_t heads = n_heads(p), kv_heads = p->kc.shape[p->kc.ndim - 2];
    const int64_t dv = p->vc.data ? p->vc.shape[p->vc.ndim - 1] : 0;
    const int64_t n = ref_nsa_n_visible(p, position(p, b, i)), group = heads / kv_heads;
    const int64_t row = ref_nsa_row(p, b, i), n_blocks = ref_nsa_n_blocks(p);
    const struct ref_rows q = query_rows(p, p->q_cmp.data ? &p->q_cmp : &p->q, b);
    int64_t *once = allocate(n, sizeof *once);
    double *prob = allocate(n, sizeof *prob), *sum = allocate(n, sizeof *sum);
    for (int64_t c = 0; c < n; c++) once[c] = 1;

    for (int64_t head = 0; head < heads; head++) {
        const struct seen x = {compressed_rows(p, &p->kc, b), compressed_rows(p, &p->vc, b), n,
                               head / group, once};
        const double given = p->lse_in.data ? lse_in(p, b, i, head) : NAN;
        const double lse =
            probabilities(&x, scale(p), &q, i, head, p->lse_in.data ? &given : NULL, prob);
        if (r->lse_cmp) r->lse_cmp[row * heads + head] = lse;
        if (r->out_cmp) weigh_values(&x, prob, lse, dv, r->out_cmp + (row * heads + head) * dv);

        for (int64_t c = 0; c < n; c++) sum[c] = prob[c] + (head % group ? sum[c] : 0.0);
        if (r->importance && head % group == group - 1)
            pool(p, sum, n, n_blocks, r->importance + (row * kv_heads + head / group) * n_blocks);
    }
    free(once);
    free(prob);
    free(sum);
}

/* ---- Selection ------------------------------------------------------------------------------- */

int ref_nsa_forced(const struct ptl_nsa_params *p, int64_t t, int64_t j) {
    return j < p->n_init || j > t / p->select_block - p->n_local;
}

/* Whether block j is taken before block i. */
static int is_better(const struct ptl_nsa_params *p, int64_t t, const double *importance, int64_t j,
                     int64_t i) {
    const int forced_j = ref_nsa_forced(p, t, j), forced_i = ref_nsa_forced(p, t, i);
    const double score_j = isnan(importance[j]) ? -INFINITY : importance[j];
    const double score_i = isnan(importance[i]) ? -INFINITY : importance[i];
    if (forced_j != forced_i) return forced_j;
    if (score_j != score_i) return score_j > score_i;
    return j < i;
}

void ref_nsa_select_row(const struct ptl_nsa_params *p, int64_t b, int64_t i,
                        const struct ref_nsa_result *r) {
    const int64_t n_blocks = ref_nsa_n_blocks(p), row = ref_nsa_row(p, b, i);
    const int64_t kv_heads = p->k.shape[p->k.ndim - 2];
    const int64_t t = position(p, b, i), n_candidates = t / p->select_block + 1;

    for (int64_t head = 0; head < kv_heads; head++) {
        const double *importance = r->importance + (row * kv_heads + head) * n_blocks;
        int64_t *idx = r->idx + (row * kv_heads + head) * p->topk;
        int64_t most = min64(p->topk, n_candidates), n = 0;
        if (p->count.data) most = min64(most, ref_index(&p->count, row * kv_heads + head));
        for (int64_t e = 0; e < p->topk; e++) idx[e] = -1;
        for (int64_t j = 0; j < n_candidates; j++) {
            int64_t rank = 0; /* blocks that are better */
            for (int64_t other = 0; other < n_candidates; other++)
                rank += is_better(p, t, importance, other, j);
            if (rank >= most) continue;
            idx[p->order == PTL_NSA_ORDER_SCORE ? rank : n] = j;
            n++;
        }
        if (r->nsel) r->nsel[row * kv_heads + head] = n;
    }
}

/* ---- Selected and sliding attention ---------------------------------------------------------- */

/* How often the row sees each of the tokens 0 .. t. */
static void count_selected(const struct ptl_nsa_params *p, int64_t row, int64_t kv_head,
                           int64_t kv_heads, int64_t t, int64_t *times) {
    const int64_t size = p->select_block;
    const int64_t width = p->idx.data ? p->idx.shape[p->idx.ndim - 1] : 0;
    const int is_all = t + 1 < p->dense_len;
    for (int64_t s = 0; s <= t; s++) times[s] = is_all;
    for (int64_t e = 0; e < width && !is_all; e++) {
        const int64_t j = ref_index(&p->idx, (row * kv_heads + kv_head) * width + e);
        if (j < 0 || j > t / size) continue;
        for (int64_t s = j * size; s < min64((j + 1) * size, t + 1); s++) times[s]++;
    }
}

static void attend_branch(const struct ptl_nsa_params *p, const struct seen *x,
                          const struct ref_rows *q, int64_t i, int64_t head, int64_t at,
                          double *out, double *lse) {
    const int64_t dv = p->v.shape[p->v.ndim - 1];
    double *prob = allocate(x->n, sizeof *prob);
    const double sum = probabilities(x, scale(p), q, i, head, NULL, prob);
    if (lse) lse[at] = sum;
    if (out) weigh_values(x, prob, sum, dv, out + at * dv);
    free(prob);
}

void ref_nsa_attend_row(const struct ptl_nsa_params *p, int64_t b, int64_t i,
                        const struct ref_nsa_result *r) {
    const int64_t heads = n_heads(p), kv_heads = p->k.shape[p->k.ndim - 2];
    const int64_t t = position(p, b, i), row = ref_nsa_row(p, b, i);
    const struct ref_rows q = query_rows(p, &p->q, b);
    const struct ptl_tensor *k_swa = p->k_swa.data ? &p->k_swa : &p->k;
    const struct ptl_tensor *v_swa = p->v_swa.data ? &p->v_swa : &p->v;
    int64_t *times = allocate(t + 1, sizeof *times);

    for (int64_t head = 0; head < heads; head++) {
        const int64_t kv_head = head / (heads / kv_heads), at = row * heads + head;
        if (r->out_slc || r->lse_slc) {
            const struct seen x = {token_rows(p, &p->k, b), token_rows(p, &p->v, b), t + 1, kv_head,
                                   times};
            count_selected(p, row, kv_head, kv_heads, t, times);
            attend_branch(p, &x, &q, i, head, at, r->out_slc, r->lse_slc);
        }
        if (r->out_swa || r->lse_swa) {
            const struct seen x = {token_rows(p, k_swa, b), token_rows(p, v_swa, b), t + 1, kv_head,
                                   times};
            for (int64_t s = 0; s <= t; s++) times[s] = s > t - p->window;
            attend_branch(p, &x, &q, i, head, at, r->out_swa, r->lse_swa);
        }
    }
    free(times);
}

/* ---- The whole ------------------------------------------------------------------------------- */

void ref_nsa_combine_row(const struct ptl_nsa_params *p, int64_t b, int64_t i,
                         const struct ref_nsa_result *r) {
    const double *const branches[3] = {r->out_cmp, r->out_slc, r->out_swa};
    const int64_t heads = n_heads(p), dv = p->v.shape[p->v.ndim - 1];
    const int64_t row = ref_nsa_row(p, b, i);
    const struct ref_rows gates = query_rows(p, &p->gates, b);
    for (int64_t head = 0; head < heads; head++)
        for (int64_t d = 0; d < dv; d++) {
            double sum = 0.0;
            for (int branch = 0; branch < 3; branch++) {
                const int64_t at = ref_row_at(&gates, i, head) + branch;
                double g = ref_read(p->gates.dtype, p->gates.data, at);
                if (p->gate_act == PTL_NSA_GATE_SIGMOID) g = 1.0 / (1.0 + exp(-g));
                if (branches[branch]) sum += g * branches[branch][(row * heads + head) * dv + d];
            }
            r->out[(row * heads + head) * dv + d] = sum;
        }
}

void ref_nsa_each_row(const struct ptl_nsa_params *p, ref_nsa_step *step,
                      const struct ref_nsa_result *r) {
    for (int64_t b = 0; b < ref_nsa_n_seqs(p); b++)
        for (int64_t i = 0; i < ref_nsa_n_queries(p, b); i++) step(p, b, i, r);
}

/* kc or vc when none are given, and the offsets of their rows. */
static struct ptl_tensor compressed_of(const struct ptl_nsa_params *p, const struct ptl_tensor *x,
                                       const struct ptl_tensor *offsets) {
    const int64_t heads = x->shape[x->ndim - 2], dim = x->shape[x->ndim - 1];
    int64_t n = 0;
    for (int64_t b = 0; b < ref_nsa_n_seqs(p); b++)
        n += ref_nsa_n_visible(p, ref_nsa_n_tokens(p, b) - 1);
    void *data = allocate(n * heads * dim, ptl_dtype_bytes(x->dtype));
    const struct ptl_nsa_compress_params c = {
        .block = p->block,
        .stride = p->stride,
        .x = *x,
        .y = ptl_tensor_contiguous(data, x->dtype, 3, (const int64_t[]){n, heads, dim}),
        .seq_offsets = *offsets_k(p),
        .seqlens = p->seqlens_k,
        .page_table = p->page_table,
        .seq_offsets_y = *offsets,
    };
    ref_nsa_compress(&c);
    return c.y;
}

void ref_nsa_forward(const struct ptl_nsa_params *p, const struct ref_nsa_result *r) {
    struct ptl_nsa_params own = *p;
    const int64_t n_seqs = ref_nsa_n_seqs(p);
    int64_t *offsets = allocate(n_seqs + 1, sizeof *offsets);
    if (!p->kc.data) {
        own.seq_offsets_kc = ptl_tensor_contiguous(offsets, PTL_I64, 1, &(int64_t){n_seqs + 1});
        own.kc = compressed_of(p, &p->k, &own.seq_offsets_kc);
        own.vc = compressed_of(p, &p->v, &own.seq_offsets_kc);
        own.page_table_c.data = NULL;
    }
    ref_nsa_each_row(&own, ref_nsa_compressed_row, r);
    if (!p->idx.data) {
        const int64_t shape[3] = {ref_nsa_n_rows(p), p->k.shape[p->k.ndim - 2], p->topk};
        ref_nsa_each_row(&own, ref_nsa_select_row, r);
        own.idx = ptl_tensor_contiguous(r->idx, PTL_I64, 3, shape);
    }
    ref_nsa_each_row(&own, ref_nsa_attend_row, r);
    ref_nsa_each_row(&own, ref_nsa_combine_row, r);
    if (!p->kc.data) {
        free(own.kc.data);
        free(own.vc.data);
    }
    free(offsets);
}

void ref_attention_forward(const struct ptl_attention_params *p, double *out, double *lse) {
    const struct ref_nsa_result r = {.out_swa = out, .lse_swa = lse};
    const struct ptl_nsa_params sliding = {
        .window = p->window ? p->window : INT64_MAX,
        .scale = p->scale,
        .q = p->q,
        .k = p->k,
        .v = p->v,
        .seq_offsets_q = p->seq_offsets_q,
        .seq_offsets_k = p->seq_offsets_k,
        .seqlens_k = p->seqlens_k,
        .page_table = p->page_table,
    };
    ref_nsa_each_row(&sliding, ref_nsa_attend_row, &r);
}
