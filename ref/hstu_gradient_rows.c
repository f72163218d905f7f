/* Rows of the gradients: the sums of docs/hstu.md, one index held fixed. */
#include "hstu_gradient_rows.h"

#include "hstu_inputs.h"

struct pair {
    double q[REF_MAX_DIM], k[REF_MAX_DIM], v[REF_MAX_DIM], upper[REF_MAX_DIM];
};

static void read_query(const struct ptl_hstu_params *p, const struct ptl_tensor *dout, int64_t b,
                       int64_t head, int64_t i, struct pair *x) {
    const struct ref_dims dims = ref_hstu_dims(p);
    ref_read_row(&p->q, ref_hstu_query_offset(p, &p->q, b, head, i), dims.dqk, x->q);
    ref_read_row(dout, ref_hstu_query_offset(p, dout, b, head, i), dims.dv, x->upper);
}

static void read_key(const struct ptl_hstu_params *p, int64_t b, int64_t kv_head, int64_t j,
                     struct pair *x) {
    const struct ref_dims dims = ref_hstu_dims(p);
    int64_t at;
    const struct ptl_tensor *keys = ref_hstu_key(p, false, b, kv_head, j, &at);
    ref_read_row(keys, at, dims.dqk, x->k);
    const struct ptl_tensor *values = ref_hstu_key(p, true, b, kv_head, j, &at);
    ref_read_row(values, at, dims.dv, x->v);
}

/* S of the pair, and dS. */
static double score_gradient(const struct ptl_hstu_params *p, int64_t b, int64_t head, int64_t i,
                             int64_t j, const struct pair *x, double *score) {
    *score = ref_hstu_score(p, b, head, i, j, x->q, x->k, ref_exactly);
    const double dp = ref_dot(x->upper, x->v, ref_hstu_dims(p).dv);
    return ref_hstu_scale(p, b, i) * dp * ref_dsilu(*score);
}

void ref_hstu_dq_row(const struct ptl_hstu_params *p, const struct ptl_tensor *dout, int64_t b,
                     int64_t head, int64_t i, double *dq) {
    const struct ref_dims dims = ref_hstu_dims(p);
    struct pair x;
    double score;
    read_query(p, dout, b, head, i, &x);
    for (int64_t d = 0; d < dims.dqk; d++) dq[d] = 0.0;
    for (int64_t j = 0; j < ref_hstu_uk(p, b); j++) {
        if (!ref_hstu_valid(p, b, head, i, j)) continue;
        read_key(p, b, head / dims.group, j, &x);
        const double ds = (double)p->alpha * score_gradient(p, b, head, i, j, &x, &score);
        for (int64_t d = 0; d < dims.dqk; d++) dq[d] += ds * x.k[d];
    }
}

void ref_hstu_dkv_row(const struct ptl_hstu_params *p, const struct ptl_tensor *dout, int64_t b,
                      int64_t kv_head, int64_t j, double *dk, double *dv) {
    const struct ref_dims dims = ref_hstu_dims(p);
    struct pair x;
    double score;
    read_key(p, b, kv_head, j, &x);
    for (int64_t d = 0; d < dims.dqk; d++) dk[d] = 0.0;
    for (int64_t d = 0; d < dims.dv; d++) dv[d] = 0.0;
    for (int64_t head = kv_head * dims.group; head < (kv_head + 1) * dims.group; head++)
        for (int64_t i = 0; i < ref_hstu_uq(p, b); i++) {
            if (!ref_hstu_valid(p, b, head, i, j)) continue;
            read_query(p, dout, b, head, i, &x);
            const double ds = (double)p->alpha * score_gradient(p, b, head, i, j, &x, &score);
            const double sf = ref_hstu_scale(p, b, i) * ref_silu(score);
            for (int64_t d = 0; d < dims.dqk; d++) dk[d] += ds * x.q[d];
            for (int64_t d = 0; d < dims.dv; d++) dv[d] += sf * x.upper[d];
        }
}
