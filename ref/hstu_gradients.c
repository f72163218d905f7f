/* HSTU backward in double and plain loops: the gradients of sum(dout * out), pair by pair. A pair
 * that the mask rejects is passed over, so nothing of it can leak. */
#include "hstu.h"
#include "hstu_inputs.h"

static int64_t n_elements(const struct ptl_tensor *t) {
    int64_t n = 1;
    for (int axis = 0; axis < t->ndim; axis++) n *= t->shape[axis];
    return n;
}

static void zero(double *x, int64_t n) {
    for (int64_t i = 0; x && i < n; i++) x[i] = 0.0;
}

static void round_all(double *x, int64_t n, double factor, ref_rounding *rounded) {
    for (int64_t i = 0; i < n; i++) x[i] = rounded(factor * rounded(x[i]));
}

/* The contiguous tensor with the shape of t; only its strides are of use. */
static struct ptl_tensor plain(const struct ptl_tensor *t) {
    return ptl_tensor_contiguous(t->data, t->dtype, t->ndim, t->shape);
}

static int64_t n_query_rows(const struct ptl_hstu_params *p) {
    return p->q.ndim == 4 ? p->q.shape[0] * p->q.shape[1] : p->q.shape[0];
}

/* Row i of sequence b among all query rows. */
static int64_t query_row(const struct ptl_hstu_params *p, int64_t b, int64_t i) {
    return p->q.ndim == 4 ? b * p->q.shape[1] + i : ref_index(&p->seq_offsets_q, b) + i;
}

static int64_t dbias_at(const struct ptl_hstu_params *p, int64_t b, int64_t head, int64_t i,
                        int64_t j) {
    const int64_t *n = p->attn_bias.shape;
    const int64_t row =
        p->bias_rows == PTL_HSTU_BIAS_KEY ? i + ref_hstu_uk(p, b) - ref_hstu_uq(p, b) : i;
    return (((n[0] == 1 ? 0 : b) * n[1] + (n[1] == 1 ? 0 : head)) * n[2] + row) * n[3] + j;
}

/* What dS of a pair gives the tables. */
static void add_to_tables(const struct ptl_hstu_params *p, const struct ref_hstu_grads *g,
                          int64_t b, int64_t head, int64_t i, int64_t j, double x) {
    if (g->dpos_table) {
        const struct ptl_tensor *t = &p->pos_table;
        const int64_t entries = t->shape[t->ndim - 1], n = (entries + 1) / 2;
        const int64_t pos = i + ref_hstu_uk(p, b) - ref_hstu_uq(p, b);
        g->dpos_table[(t->ndim == 2 ? head * entries : 0) + n - 1 + j - pos] += x;
    }
    if (g->dtime_table) {
        const struct ptl_tensor *t = &p->time_table;
        const int64_t entries = t->shape[t->ndim - 1];
        g->dtime_table[(t->ndim == 2 ? head * entries : 0) + ref_hstu_bucket(p, b, i, j)] += x;
    }
}

/* Everything that one query row gives. */
static void backward_row(const struct ptl_hstu_params *p, const struct ptl_tensor *dout,
                         const struct ref_hstu_grads *g, int64_t b, int64_t head, int64_t i,
                         ref_rounding *rounded) {
    const struct ref_dims dims = ref_hstu_dims(p);
    const int64_t uk = ref_hstu_uk(p, b), kv_head = head / dims.group;
    const double s = ref_hstu_scale(p, b, i), beta = ref_hstu_beta(p);
    double q[REF_MAX_DIM], k[REF_MAX_DIM], v[REF_MAX_DIM], upper[REF_MAX_DIM];
    ref_read_row(&p->q, ref_hstu_query_offset(p, &p->q, b, head, i), dims.dqk, q);
    ref_read_row(dout, ref_hstu_query_offset(p, dout, b, head, i), dims.dv, upper);
    const struct ptl_tensor q_plain = plain(&p->q);
    double *dq = g->dq + ref_hstu_query_offset(p, &q_plain, b, head, i);

    struct ptl_hstu_params outputs = *p; /* rows of dk and dv lie as those of contiguous k and v */
    outputs.k = plain(&p->k);
    outputs.v = plain(&p->v);
    for (int64_t j = 0; j < uk; j++) {
        int64_t at;
        if (!ref_hstu_valid(p, b, head, i, j)) continue;
        const struct ptl_tensor *keys = ref_hstu_key(p, false, b, kv_head, j, &at);
        ref_read_row(keys, at, dims.dqk, k);
        const struct ptl_tensor *values = ref_hstu_key(p, true, b, kv_head, j, &at);
        ref_read_row(values, at, dims.dv, v);
        const double x = ref_hstu_score(p, b, head, i, j, q, k, rounded);
        const double f = rounded(ref_silu(x)), dp = rounded(ref_dot(upper, v, dims.dv));
        const double dscore = rounded(s * dp * ref_dsilu(x)), sf = rounded(s * f);

        ref_hstu_key(&outputs, false, b, kv_head, j, &at);
        for (int64_t d = 0; d < dims.dqk; d++) {
            dq[d] += dscore * k[d];
            g->dk[at + d] += dscore * q[d];
        }
        ref_hstu_key(&outputs, true, b, kv_head, j, &at);
        for (int64_t d = 0; d < dims.dv; d++) g->dv[at + d] += sf * upper[d];
        if (g->ds) g->ds[query_row(p, b, i)] += f * dp;
        if (g->dbias) g->dbias[dbias_at(p, b, head, i, j)] += beta * dscore;
        add_to_tables(p, g, b, head, i, j, beta * dscore);
    }
}

static void backward(const struct ptl_hstu_params *p, const struct ptl_tensor *dout,
                     const struct ref_hstu_grads *g, ref_rounding *rounded) {
    zero(g->dq, n_elements(&p->q));
    zero(g->dk, n_elements(&p->k));
    zero(g->dv, n_elements(&p->v));
    zero(g->dbias, n_elements(&p->attn_bias));
    zero(g->dpos_table, n_elements(&p->pos_table));
    zero(g->dtime_table, n_elements(&p->time_table));
    zero(g->ds, n_query_rows(p));
    for (int64_t b = 0; b < ref_hstu_n_seqs(p); b++)
        for (int64_t head = 0; head < ref_hstu_dims(p).heads; head++)
            for (int64_t i = 0; i < ref_hstu_uq(p, b); i++)
                backward_row(p, dout, g, b, head, i, rounded);
    round_all(g->dq, n_elements(&p->q), (double)p->alpha, rounded);
    round_all(g->dk, n_elements(&p->k), (double)p->alpha, rounded);
    round_all(g->dv, n_elements(&p->v), 1.0, rounded);
    if (g->dbias && p->attn_bias.dtype == p->q.dtype)
        round_all(g->dbias, n_elements(&p->attn_bias), 1.0, rounded);
}

void ref_hstu_backward(const struct ptl_hstu_params *p, const struct ptl_tensor *dout,
                       const struct ref_hstu_grads *g) {
    backward(p, dout, g, ref_exactly);
}

void ref_hstu_backward_low(const struct ptl_hstu_params *p, const struct ptl_tensor *dout,
                           const struct ref_hstu_grads *g) {
    backward(p, dout, g, ref_rounding_of(p->q.dtype));
}
