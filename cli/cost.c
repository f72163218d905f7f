/* Costs of HSTU and of the copies around it. */
#include "cost.h"

#include <math.h>

#include "sequences.h"
#include "tensors.h"

static double element_bytes(const struct ptl_tensor *t) {
    return (double)ptl_dtype_bytes(t->dtype);
}

/* ---- HSTU ------------------------------------------------------------------------------------ */

/* Products over each valid pair, and bytes of the rows of queries and of keys. */
static struct cost hstu_cost(const struct ptl_hstu_params *a, double pair_dims, double query_dims,
                             double key_dims) {
    const struct workload w = workload_of(a);
    const int last = a->q.ndim - 1;
    const double rows_q = w.rows_q * (double)a->q.shape[last - 1];
    const double rows_k = w.rows_k * (double)a->k.shape[last - 1];
    return (struct cost){.flops = 2.0 * pair_dims * w.valid_pairs,
                         .bytes = element_bytes(&a->q) * (query_dims * rows_q + key_dims * rows_k)};
}

static double dqk_of(const struct ptl_hstu_params *a) {
    return (double)a->q.shape[a->q.ndim - 1];
}

static double dv_of(const struct ptl_hstu_params *a) {
    return (double)a->v.shape[a->v.ndim - 1];
}

/* Two products; q, k, v, out. */
struct cost cost_forward(const struct call *c) {
    const struct ptl_hstu_params *a = &c->problem.hstu;
    const double dims = dqk_of(a) + dv_of(a);
    struct cost cost = hstu_cost(a, dims, dims, dims);
    cost.dots = a->q.dtype == PTL_BF16;
    return cost;
}

/* Five products, as S is computed anew; q, k, v, dout, and the three gradients. */
struct cost cost_backward(const struct call *c) {
    const struct ptl_hstu_params *a = &c->problem.hstu;
    const double dqk = dqk_of(a), dv = dv_of(a);
    return hstu_cost(a, 3.0 * dqk + 2.0 * dv, 2.0 * dqk + dv, 2.0 * (dqk + dv));
}

struct cost cost_append(const struct call *c) {
    const struct ptl_hstu_kv_append_params *a = &c->append;
    double tokens = 0.0;
    for (int64_t b = 0; b + 1 < a->seq_offsets.shape[0]; b++)
        tokens += (double)(index_at(&a->seq_offsets, b + 1) - index_at(&a->seq_offsets, b) -
                           index_at(&a->num_targets, b));
    const double row = (double)a->k.shape[1] * (double)(a->k.shape[2] + a->v.shape[2]);
    return cost_of_copy(2.0 * tokens * row * element_bytes(&a->k));
}

/* ---- Jagged copies --------------------------------------------------------------------------- */

static int64_t length_of(const struct ptl_jagged *j, int64_t b) {
    if (!j->offsets.data) return j->values.shape[1];
    return index_at(&j->offsets, b + 1) - index_at(&j->offsets, b);
}

/* What is written, and the rows of x that go there. */
struct cost cost_resize(const struct call *c) {
    const struct jagged_arguments *a = &c->jagged;
    const struct ptl_tensor *offsets = a->x.offsets.data ? &a->x.offsets : &a->out.offsets;
    double rows = 0.0;
    for (int64_t b = 0; offsets->data && b + 1 < offsets->shape[0]; b++)
        rows += fmin((double)length_of(&a->x, b), (double)length_of(&a->out, b));
    const struct ptl_tensor *jagged = a->x.offsets.data ? &a->x.values : &a->out.values;
    const double all = (double)jagged->shape[0];
    return cost_of_copy(n_bytes(&a->out.values) + (all > 0.0 ? n_bytes(jagged) / all * rows : 0.0));
}

struct cost cost_concat(const struct call *c) {
    return cost_of_copy(2.0 * n_bytes(&c->jagged.out.values));
}

struct cost cost_split(const struct call *c) {
    return cost_of_copy(2.0 * (n_bytes(&c->jagged.left.values) + n_bytes(&c->jagged.right.values)));
}

struct cost cost_position_time(const struct call *c) {
    const struct ptl_jagged_position_time_params *a = &c->position_time;
    return cost_of_copy(n_bytes(&a->emb) + n_bytes(&a->out) + n_bytes(&a->dout) +
                        n_bytes(&a->demb) + n_bytes(&a->dpos_w) + n_bytes(&a->dts_w) +
                        n_bytes(&a->timestamps));
}
