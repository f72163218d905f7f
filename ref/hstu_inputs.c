/* The arguments of HSTU read one element at a time: rows, scales, biases, the mask rule pair by
 * pair. Not fast, no intervals of the rule: every pair of a row and a column is asked whether it is
 * valid. */
#include "hstu_inputs.h"

#include <math.h>

/* ---- Numbers --------------------------------------------------------------------------------- */

double ref_exactly(double x) {
    return x;
}
static double to_f32(double x) {
    return ref_round(PTL_F32, x);
}
static double to_f16(double x) {
    return ref_round(PTL_F16, x);
}
static double to_bf16(double x) {
    return ref_round(PTL_BF16, x);
}

ref_rounding *ref_rounding_of(enum ptl_dtype type) {
    return type == PTL_F16 ? to_f16 : type == PTL_BF16 ? to_bf16 : to_f32;
}

void ref_read_row(const struct ptl_tensor *t, int64_t offset, int64_t n, double *to) {
    for (int64_t d = 0; d < n; d++) to[d] = ref_read(t->dtype, t->data, offset + d);
}

double ref_dot(const double *a, const double *b, int64_t n) {
    double sum = 0.0;
    for (int64_t d = 0; d < n; d++) sum += a[d] * b[d];
    return sum;
}

/* x / (1 + e^-x), for every double: e^-x would overflow where x is very negative, and -inf / inf is
 * NaN although the limit is 0. */
double ref_silu(double x) {
    if (x == -INFINITY) return 0.0;
    if (x < 0.0) return x * (exp(x) / (1.0 + exp(x)));
    return x / (1.0 + exp(-x));
}

double ref_dsilu(double x) {
    if (isinf(x)) return x > 0.0 ? 1.0 : 0.0;
    const double sigmoid = x < 0.0 ? exp(x) / (1.0 + exp(x)) : 1.0 / (1.0 + exp(-x));
    return sigmoid * (1.0 + x * (1.0 - sigmoid));
}

/* ---- Rows ------------------------------------------------------------------------------------ */

static bool is_dense(const struct ptl_hstu_params *p) {
    return p->q.ndim == 4;
}

static const struct ptl_tensor *offsets_k(const struct ptl_hstu_params *p) {
    return p->seq_offsets_k.data ? &p->seq_offsets_k : &p->seq_offsets_q;
}

struct ref_dims ref_hstu_dims(const struct ptl_hstu_params *p) {
    const int axis = is_dense(p) ? 2 : 1; /* of the heads */
    return (struct ref_dims){p->q.shape[axis], p->q.shape[axis] / p->k.shape[axis],
                             p->q.shape[axis + 1], p->v.shape[axis + 1]};
}

int64_t ref_hstu_n_seqs(const struct ptl_hstu_params *p) {
    return is_dense(p) ? p->q.shape[0] : p->seq_offsets_q.shape[0] - 1;
}

int64_t ref_hstu_uq(const struct ptl_hstu_params *p, int64_t b) {
    if (p->seqused_q.data) return ref_index(&p->seqused_q, b);
    if (is_dense(p)) return p->q.shape[1];
    return ref_index(&p->seq_offsets_q, b + 1) - ref_index(&p->seq_offsets_q, b);
}

static int64_t n_targets(const struct ptl_hstu_params *p, int64_t b) {
    return p->num_targets.data ? ref_index(&p->num_targets, b) : 0;
}

int64_t ref_hstu_cached(const struct ptl_hstu_params *p, int64_t b) {
    if (!p->k_pages.data) return 0;
    const int64_t n = ref_index(&p->page_offsets, b + 1) - ref_index(&p->page_offsets, b);
    return n == 0 ? 0 : (n - 1) * p->k_pages.shape[1] + ref_index(&p->last_page_lens, b);
}

int64_t ref_hstu_uk(const struct ptl_hstu_params *p, int64_t b) {
    if (p->k_pages.data) return ref_hstu_cached(p, b) + n_targets(p, b);
    if (p->seqused_k.data) return ref_index(&p->seqused_k, b);
    if (is_dense(p)) return p->k.shape[1];
    return ref_index(offsets_k(p), b + 1) - ref_index(offsets_k(p), b);
}

int64_t ref_hstu_query_offset(const struct ptl_hstu_params *p, const struct ptl_tensor *t,
                              int64_t b, int64_t head, int64_t i) {
    if (t->ndim == 4) return b * t->stride[0] + i * t->stride[1] + head * t->stride[2];
    return (ref_index(&p->seq_offsets_q, b) + i) * t->stride[0] + head * t->stride[1];
}

const struct ptl_tensor *ref_hstu_key(const struct ptl_hstu_params *p, bool value, int64_t b,
                                      int64_t kv_head, int64_t j, int64_t *offset) {
    const struct ptl_tensor *own = value ? &p->v : &p->k,
                            *pages = value ? &p->v_pages : &p->k_pages;
    if (own->ndim == 4) {
        *offset = b * own->stride[0] + j * own->stride[1] + kv_head * own->stride[2];
    } else if (!pages->data) {
        *offset = (ref_index(offsets_k(p), b) + j) * own->stride[0] + kv_head * own->stride[1];
    } else if (j >= ref_hstu_cached(p, b)) { /* the targets: the last rows of its own */
        const int64_t i = ref_hstu_uq(p, b) - ref_hstu_uk(p, b) + j;
        *offset = ref_hstu_query_offset(p, own, b, kv_head, i);
    } else {
        const int64_t size = pages->shape[1];
        const int64_t page = ref_index(&p->page_ids, ref_index(&p->page_offsets, b) + j / size);
        *offset =
            page * pages->stride[0] + j % size * pages->stride[1] + kv_head * pages->stride[2];
        return pages;
    }
    return own;
}

double ref_hstu_scale(const struct ptl_hstu_params *p, int64_t b, int64_t i) {
    const struct ptl_tensor *s = &p->attn_scale;
    if (!s->data) return 1.0 / (double)p->scaling_seqlen;
    const float *x = s->data;
    if (s->ndim == 0) return (double)x[0];
    if (s->ndim == 2) return (double)x[b * s->stride[0] + i];
    return (double)x[ref_index(&p->seq_offsets_q, b) + i];
}

/* ---- The mask -------------------------------------------------------------------------------- */

static bool valid_dense(const struct ptl_tensor *mask, int64_t b, int64_t head, int64_t i,
                        int64_t j) {
    if (mask->shape[0] == 1) b = 0;
    if (mask->shape[1] == 1) head = 0;
    const uint8_t *m = mask->data;
    return m[b * mask->stride[0] + head * mask->stride[1] + i * mask->stride[2] + j] != 0;
}

static bool valid_intervals(const struct ptl_hstu_params *p, int64_t b, int64_t i, int64_t j) {
    const struct ptl_tensor *t = &p->intervals;
    const int64_t row = t->ndim == 3 ? b * t->stride[0] + i * t->stride[1]
                                     : (ref_index(&p->seq_offsets_q, b) + i) * t->stride[0];
    for (int64_t g = 0; g < t->shape[t->ndim - 1]; g += 2)
        if (ref_index(t, row + g) <= j && j < ref_index(t, row + g + 1)) return true;
    return false;
}

/* For the window, all contexts stand at position c-1 and all targets at h. */
static int64_t place(int64_t x, int64_t c, int64_t t, int64_t h) {
    if (c > 0 && x < c - 1) x = c - 1;
    if (t > 0 && x > h) x = h;
    return x;
}

static bool valid_rule(const struct ptl_hstu_params *p, int64_t b, int64_t i, int64_t j) {
    const int64_t uq = ref_hstu_uq(p, b), uk = ref_hstu_uk(p, b);
    const int64_t t = n_targets(p, b);
    const int64_t h = uk - t; /* the first target */
    int64_t c = p->num_contexts.data ? ref_index(&p->num_contexts, b) : 0;
    if (c > h) c = h; /* contexts never reach into the targets */

    const int64_t pos = i + uk - uq; /* queries are the last rows of the keys */
    const int64_t left = p->window_left, right = p->window_right;
    const int64_t g = p->target_group_size, full = p->min_full_attn_seq_len;

    if (c > 0 && pos >= 0 && pos < c && j < h) return true;

    const bool not_right = right < 0 || j - pos <= right;
    const bool in_window = left < 0 || place(pos, c, t, h) - place(j, c, t, h) <= left ||
                           (full > 0 && pos >= h - full);
    const bool both_targets = pos >= h && j >= h;
    const bool same_group = !both_targets || (j - h) / g == (pos - h) / g;
    return not_right && in_window && same_group;
}

bool ref_hstu_valid(const struct ptl_hstu_params *p, int64_t b, int64_t head, int64_t i,
                    int64_t j) {
    if (p->mask.data) return valid_dense(&p->mask, b, head, i, j);
    if (p->intervals.data) return valid_intervals(p, b, i, j);
    return valid_rule(p, b, i, j);
}

/* ---- Bias ------------------------------------------------------------------------------------ */

static double dense_bias(const struct ptl_hstu_params *p, int64_t b, int64_t head, int64_t i,
                         int64_t j) {
    const struct ptl_tensor *t = &p->attn_bias;
    const int64_t row =
        p->bias_rows == PTL_HSTU_BIAS_KEY ? i + ref_hstu_uk(p, b) - ref_hstu_uq(p, b) : i;
    if (t->shape[0] == 1) b = 0;
    if (t->shape[1] == 1) head = 0;
    return ref_read(t->dtype, t->data,
                    b * t->stride[0] + head * t->stride[1] + row * t->stride[2] + j);
}

static int64_t time_of(const struct ptl_hstu_params *p, int64_t b, int64_t j) {
    const struct ptl_tensor *t = &p->timestamps;
    return ((const int64_t *)
                t->data)[t->ndim == 2 ? b * t->stride[0] + j : ref_index(offsets_k(p), b) + j];
}

int64_t ref_hstu_bucket(const struct ptl_hstu_params *p, int64_t b, int64_t i, int64_t j) {
    const int64_t uk = ref_hstu_uk(p, b), *threshold = p->time_thresholds.data;
    int64_t pos = i + uk - ref_hstu_uq(p, b), bucket = 0;
    if (p->time_query == PTL_HSTU_TIME_NEXT && pos < uk - 1) pos++;
    const int64_t query = time_of(p, b, pos), key = time_of(p, b, j);
    const uint64_t dt =
        query > key ? (uint64_t)query - (uint64_t)key : (uint64_t)key - (uint64_t)query;
    for (int64_t m = 0; m < p->time_thresholds.shape[0]; m++)
        if (threshold[m] <= 0 || (uint64_t)threshold[m] <= dt) bucket++;
    return bucket;
}

static double table_entry(const struct ptl_tensor *t, int64_t head, int64_t entry) {
    return (double)((const float *)t->data)[(t->ndim == 2 ? head * t->stride[0] : 0) + entry];
}

double ref_hstu_bias(const struct ptl_hstu_params *p, int64_t b, int64_t head, int64_t i,
                     int64_t j) {
    double bias = 0.0;
    if (p->attn_bias.data) bias += dense_bias(p, b, head, i, j);
    if (p->pos_table.data) {
        const int64_t n = (p->pos_table.shape[p->pos_table.ndim - 1] + 1) / 2;
        const int64_t pos = i + ref_hstu_uk(p, b) - ref_hstu_uq(p, b);
        bias += table_entry(&p->pos_table, head, n - 1 + j - pos);
    }
    if (p->time_table.data) bias += table_entry(&p->time_table, head, ref_hstu_bucket(p, b, i, j));
    return bias;
}

double ref_hstu_beta(const struct ptl_hstu_params *p) {
    return isnan(p->bias_scale) ? (double)p->alpha : (double)p->bias_scale;
}

double ref_hstu_score(const struct ptl_hstu_params *p, int64_t b, int64_t head, int64_t i,
                      int64_t j, const double *q, const double *k, ref_rounding *rounded) {
    const double qk = rounded(ref_dot(q, k, ref_hstu_dims(p).dqk));
    if (!p->attn_bias.data && !p->pos_table.data && !p->time_table.data)
        return rounded((double)p->alpha * qk);
    return rounded((double)p->alpha * qk + ref_hstu_beta(p) * ref_hstu_bias(p, b, head, i, j));
}
