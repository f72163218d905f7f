/* Counting, operator by operator. */
#include "cost.h"

#include <math.h>
#include <string.h>

#include "sequences.h"

static double element_bytes(const struct ptl_tensor *t) {
    return (double)ptl_dtype_bytes(t->dtype);
}

/* Forward: two products over each valid pair; q, k, v, out. Backward: five, as S is computed anew;
 * q, k, v, dout, and the three gradients. */
static struct cost hstu_cost(const struct ptl_hstu_params *a, bool backward) {
    const struct workload w = workload_of(a);
    const int last = a->q.ndim - 1;
    const double dqk = (double)a->q.shape[last], dv = (double)a->v.shape[last];
    const double rows_q = w.rows_q * (double)a->q.shape[last - 1];
    const double rows_k = w.rows_k * (double)a->k.shape[last - 1];
    const double bytes = element_bytes(&a->q);
    if (!backward)
        return (struct cost){false, 2.0 * (dqk + dv) * w.valid_pairs,
                             bytes * (dqk + dv) * (rows_q + rows_k)};
    return (struct cost){false, 2.0 * (3.0 * dqk + 2.0 * dv) * w.valid_pairs,
                         bytes * ((2.0 * dqk + dv) * rows_q + 2.0 * (dqk + dv) * rows_k)};
}

static int64_t index_at(const struct ptl_tensor *t, int64_t i) {
    if (!t->data) return 0;
    if (t->ndim == 0) i = 0;
    return t->dtype == PTL_I64 ? ((const int64_t *)t->data)[i] : ((const int32_t *)t->data)[i];
}

static double append_bytes(const struct ptl_hstu_kv_append_params *a) {
    double tokens = 0.0;
    for (int64_t b = 0; b + 1 < a->seq_offsets.shape[0]; b++)
        tokens += (double)(index_at(&a->seq_offsets, b + 1) - index_at(&a->seq_offsets, b) -
                           index_at(&a->num_targets, b));
    const double row = (double)a->k.shape[1] * (double)(a->k.shape[2] + a->v.shape[2]);
    return 2.0 * tokens * row * element_bytes(&a->k);
}

static double size_of(const struct ptl_tensor *t) {
    double bytes = t->data ? element_bytes(t) : 0.0;
    for (int i = 0; i < t->ndim; i++) bytes *= (double)t->shape[i];
    return bytes;
}

static int64_t length_of(const struct ptl_jagged *j, int64_t b) {
    if (!j->offsets.data) return j->values.shape[1];
    return index_at(&j->offsets, b + 1) - index_at(&j->offsets, b);
}

/* What is written, and the rows of x that go there. */
static double resize_bytes(const struct jagged_arguments *a) {
    const struct ptl_tensor *offsets = a->x.offsets.data ? &a->x.offsets : &a->out.offsets;
    double rows = 0.0;
    for (int64_t b = 0; offsets->data && b + 1 < offsets->shape[0]; b++)
        rows += fmin((double)length_of(&a->x, b), (double)length_of(&a->out, b));
    const struct ptl_tensor *jagged = a->x.offsets.data ? &a->x.values : &a->out.values;
    const double all = (double)jagged->shape[0];
    return size_of(&a->out.values) + (all > 0.0 ? size_of(jagged) / all * rows : 0.0);
}

static double position_time_bytes(const struct ptl_jagged_position_time_params *a) {
    return size_of(&a->emb) + size_of(&a->out) + size_of(&a->dout) + size_of(&a->demb) +
           size_of(&a->dpos_w) + size_of(&a->dts_w) + size_of(&a->timestamps);
}

struct cost cost_of(const struct call *c) {
    const char *op = c->op->name;
    const struct jagged_arguments *a = &c->jagged;
    struct cost cost = {true, NAN, 0.0};
    if (strcmp(op, "hstu") == 0) return hstu_cost(&c->problem.hstu, false);
    if (strcmp(op, "hstu_backward") == 0) return hstu_cost(&c->problem.hstu, true);
    if (strcmp(op, "hstu_kv_append") == 0) cost.bytes = append_bytes(&c->append);
    else if (strcmp(op, "concat_jagged") == 0) cost.bytes = 2.0 * size_of(&a->out.values);
    else if (strcmp(op, "split_jagged") == 0)
        cost.bytes = 2.0 * (size_of(&a->left.values) + size_of(&a->right.values));
    else if (strncmp(op, "position_time", strlen("position_time")) == 0)
        cost.bytes = position_time_bytes(&c->position_time);
    else cost.bytes = resize_bytes(a);
    return cost;
}
