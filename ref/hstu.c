/* HSTU in double and plain loops, as the formula and the mask rule are written in docs/hstu.md.
 * Not fast, not tiled, no intervals: every pair of a row and a column is asked whether it is valid. */
#include "hstu.h"

#include <math.h>

/* ---- Reading the arguments ---------------------------------------------------------------------- */

/* Entry i of an index tensor, int32 or int64; one number (ndim 0) serves for every i. */
static int64_t index_at(const struct ptl_tensor *t, int64_t i) {
    if (t->ndim == 0) i = 0;
    return t->dtype == PTL_I64 ? ((const int64_t *)t->data)[i] : ((const int32_t *)t->data)[i];
}

static bool is_dense(const struct ptl_hstu_params *p) {
    return p->q.ndim == 4;
}

static const struct ptl_tensor *offsets_k(const struct ptl_hstu_params *p) {
    return p->seq_offsets_k.data ? &p->seq_offsets_k : &p->seq_offsets_q;
}

/* Where row i of sequence b and head a begins in t, in elements; offsets are those of t's rows. */
static int64_t row_offset(const struct ptl_tensor *t, const struct ptl_tensor *offsets, int64_t b,
                          int64_t head, int64_t i) {
    if (t->ndim == 4) return b * t->stride[0] + i * t->stride[1] + head * t->stride[2];
    return (index_at(offsets, b) + i) * t->stride[0] + head * t->stride[1];
}

static const float *row_at(const struct ptl_tensor *t, const struct ptl_tensor *offsets, int64_t b,
                           int64_t head, int64_t i) {
    return (const float *)t->data + row_offset(t, offsets, b, head, i);
}

int64_t ref_hstu_n_seqs(const struct ptl_hstu_params *p) {
    return is_dense(p) ? p->q.shape[0] : p->seq_offsets_q.shape[0] - 1;
}

int64_t ref_hstu_uq(const struct ptl_hstu_params *p, int64_t b) {
    if (p->seqused_q.data) return index_at(&p->seqused_q, b);
    if (is_dense(p)) return p->q.shape[1];
    return index_at(&p->seq_offsets_q, b + 1) - index_at(&p->seq_offsets_q, b);
}

int64_t ref_hstu_uk(const struct ptl_hstu_params *p, int64_t b) {
    if (p->seqused_k.data) return index_at(&p->seqused_k, b);
    if (is_dense(p)) return p->k.shape[1];
    return index_at(offsets_k(p), b + 1) - index_at(offsets_k(p), b);
}

/* s_i: 1 / scaling_seqlen, one number, or one number for each query row. */
static double row_scale(const struct ptl_hstu_params *p, int64_t b, int64_t i) {
    const struct ptl_tensor *s = &p->attn_scale;
    if (!s->data) return 1.0 / (double)p->scaling_seqlen;
    const float *x = s->data;
    if (s->ndim == 0) return x[0];
    if (s->ndim == 2) return x[b * s->stride[0] + i];
    return x[index_at(&p->seq_offsets_q, b) + i];
}

/* ---- The mask ----------------------------------------------------------------------------------- */

static bool valid_dense(const struct ptl_tensor *mask, int64_t b, int64_t head, int64_t i,
                        int64_t j) {
    if (mask->shape[0] == 1) b = 0;
    if (mask->shape[1] == 1) head = 0;
    const uint8_t *m = mask->data;
    return m[b * mask->stride[0] + head * mask->stride[1] + i * mask->stride[2] + j] != 0;
}

/* For the window, all contexts stand at position c-1 and all targets at h. */
static int64_t place(int64_t x, int64_t c, int64_t t, int64_t h) {
    if (c > 0 && x < c - 1) x = c - 1;
    if (t > 0 && x > h) x = h;
    return x;
}

static bool valid_rule(const struct ptl_hstu_params *p, int64_t b, int64_t i, int64_t j) {
    const int64_t uq = ref_hstu_uq(p, b), uk = ref_hstu_uk(p, b);
    const int64_t t = p->num_targets.data ? index_at(&p->num_targets, b) : 0;
    const int64_t h = uk - t; /* the first target */
    int64_t c = p->num_contexts.data ? index_at(&p->num_contexts, b) : 0;
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
    return valid_rule(p, b, i, j);
}

/* ---- Forward ------------------------------------------------------------------------------------ */

/* x / (1 + e^-x), for every double: e^-x would overflow where x is very negative, and -inf / inf is
 * NaN although the limit is 0. */
static double silu(double x) {
    if (x == -INFINITY) return 0.0;
    if (x < 0.0) return x * (exp(x) / (1.0 + exp(x)));
    return x / (1.0 + exp(-x));
}

void ref_hstu_forward_row(const struct ptl_hstu_params *p, int64_t b, int64_t head, int64_t i,
                          double *out) {
    const int axis = is_dense(p) ? 2 : 1; /* of the heads */
    const int64_t kv_head = head / (p->q.shape[axis] / p->k.shape[axis]);
    const int64_t dqk = p->q.shape[axis + 1], dv = p->v.shape[axis + 1];
    const int64_t uk = ref_hstu_uk(p, b);
    const float *q = row_at(&p->q, &p->seq_offsets_q, b, head, i);

    for (int64_t d = 0; d < dv; d++) out[d] = 0.0;
    for (int64_t j = 0; j < uk; j++) {
        if (!ref_hstu_valid(p, b, head, i, j)) continue;
        const float *k = row_at(&p->k, offsets_k(p), b, kv_head, j);
        const float *v = row_at(&p->v, offsets_k(p), b, kv_head, j);
        double qk = 0.0;
        for (int64_t d = 0; d < dqk; d++) qk += (double)q[d] * (double)k[d];
        const double f = silu((double)p->alpha * qk);
        for (int64_t d = 0; d < dv; d++) out[d] += f * (double)v[d];
    }
    const double s = row_scale(p, b, i);
    for (int64_t d = 0; d < dv; d++) out[d] *= s;
}

void ref_hstu_forward(const struct ptl_hstu_params *p, double *out) {
    int64_t n = 1;
    for (int axis = 0; axis < p->out.ndim; axis++) n *= p->out.shape[axis];
    for (int64_t x = 0; x < n; x++) out[x] = 0.0; /* padding rows, and rows without keys */

    /* out is contiguous here: the same rows in the shape of p->out with its plain strides */
    const struct ptl_tensor plain = ptl_tensor_contiguous(out, PTL_F32, p->out.ndim, p->out.shape);
    const int64_t n_heads = p->q.shape[is_dense(p) ? 2 : 1];
    for (int64_t b = 0; b < ref_hstu_n_seqs(p); b++)
        for (int64_t head = 0; head < n_heads; head++)
            for (int64_t i = 0; i < ref_hstu_uq(p, b); i++)
                ref_hstu_forward_row(p, b, head, i,
                                     out + row_offset(&plain, &p->seq_offsets_q, b, head, i));
}
