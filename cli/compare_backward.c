/* Gradients of HSTU against the reference: all of all of them, or rows of dq, dk and dv where that
 * would take too long. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../ref/hstu.h"
#include "../ref/hstu_gradient_rows.h"
#include "compare_parts.h"
#include "sequences.h"
#include "tensors.h"

/* ---- All of it ------------------------------------------------------------------------------- */

static double *expected_of(const struct ptl_tensor *t) {
    return t->data ? calloc((size_t)n_elements(t) + 1, sizeof(double)) : NULL;
}

/* `expected` is contiguous. */
static void compare_all(struct comparison *result, const char *name, const struct ptl_tensor *t,
                        const double *expected, double bound) {
    int64_t shape[4] = {1, 1, 1, 1}, stride[4] = {0};
    struct tally tally = {0};
    for (int i = 0; i < t->ndim; i++) {
        shape[4 - t->ndim + i] = t->shape[i];
        stride[4 - t->ndim + i] = t->stride[i];
    }
    for (int64_t a = 0; a < shape[0]; a++)
        for (int64_t b = 0; b < shape[1]; b++)
            for (int64_t c = 0; c < shape[2]; c++, expected += shape[3])
                tally_row(&tally, t, a * stride[0] + b * stride[1] + c * stride[2], expected,
                          shape[3]);
    add_part(result, name, &tally, bound);
}

static bool compare_gradients(const struct problem *p, double bound, struct comparison *result) {
    const struct ptl_hstu_grads *g = &p->grads;
    const struct ref_hstu_grads expected = {
        expected_of(&g->dq),    expected_of(&g->dk),         expected_of(&g->dv),
        expected_of(&g->dbias), expected_of(&g->dpos_table), expected_of(&g->dtime_table),
        expected_of(&g->ds)};
    const struct {
        const char *name;
        const struct ptl_tensor *t;
        double *expected;
    } parts[] = {{"dq", &g->dq, expected.dq},
                 {"dk", &g->dk, expected.dk},
                 {"dv", &g->dv, expected.dv},
                 {"dbias", &g->dbias, expected.dbias},
                 {"dpos_table", &g->dpos_table, expected.dpos_table},
                 {"dtime_table", &g->dtime_table, expected.dtime_table},
                 {"ds", &g->ds, expected.ds}};
    enum { N = sizeof parts / sizeof parts[0] };
    bool ok = true;
    for (int i = 0; i < N; i++)
        if (parts[i].t->data && !parts[i].expected) ok = false;
    if (ok) ref_hstu_backward(&p->hstu, &g->dout, &expected);
    for (int i = 0; i < N; i++) {
        if (ok && parts[i].t->data)
            compare_all(result, parts[i].name, parts[i].t, parts[i].expected, bound);
        free(parts[i].expected);
    }
    return ok;
}

/* ---- A sample -------------------------------------------------------------------------------- */

static void sample_queries(const struct problem *p, int64_t n, int64_t n_all, double bound,
                           double *expected, struct comparison *result) {
    const struct ptl_hstu_params *a = &p->hstu;
    const int64_t heads = n_query_heads(a), dqk = a->q.shape[a->q.ndim - 1];
    const struct ptl_tensor *dq = &p->grads.dq;
    struct tally tally = {0};
    int64_t done = 0, before = 0;
    for (int64_t b = 0; b < n_sequences(a) && done < n; b++) {
        const int64_t end = before + sequence_at(a, b).uq * heads;
        for (int64_t row; done < n && (row = pick_row(p->seed, done, n, n_all)) < end; done++) {
            const int64_t i = (row - before) / heads, head = (row - before) % heads;
            ref_hstu_dq_row(a, &p->grads.dout, b, head, i, expected);
            tally_row(&tally, dq, ref_hstu_query_offset(a, dq, b, head, i), expected, dqk);
        }
        before = end;
    }
    add_part(result, "dq", &tally, bound);
}

static void sample_keys(const struct problem *p, int64_t n, int64_t n_all, double bound,
                        double *expected, struct comparison *result) {
    const struct ptl_hstu_params *a = &p->hstu;
    const int64_t heads = a->k.shape[a->k.ndim - 2];
    const int64_t dqk = a->k.shape[a->k.ndim - 1], dv = a->v.shape[a->v.ndim - 1];
    const struct ptl_hstu_grads *g = &p->grads;
    struct tally of_dk = {0}, of_dv = {0};
    struct ptl_hstu_params outputs = *a; /* rows of dk and dv are found as those of k and v */
    outputs.k = g->dk;
    outputs.v = g->dv;
    int64_t done = 0, before = 0, at;
    for (int64_t b = 0; b < n_sequences(a) && done < n; b++) {
        const int64_t end = before + sequence_at(a, b).uk * heads;
        for (int64_t row; done < n && (row = pick_row(p->seed, done, n, n_all)) < end; done++) {
            const int64_t j = (row - before) / heads, head = (row - before) % heads;
            ref_hstu_dkv_row(a, &g->dout, b, head, j, expected, expected + dqk);
            ref_hstu_key(&outputs, false, b, head, j, &at);
            tally_row(&of_dk, &g->dk, at, expected, dqk);
            ref_hstu_key(&outputs, true, b, head, j, &at);
            tally_row(&of_dv, &g->dv, at, expected + dqk, dv);
        }
        before = end;
    }
    add_part(result, "dk", &of_dk, bound);
    add_part(result, "dv", &of_dv, bound);
}

/* ---- Either ---------------------------------------------------------------------------------- */

bool compare_backward(const struct call *c, double seconds, struct comparison *result) {
    static const double bounds[] = {0, 1e-5, 2e-3, 1.6e-2}; /* f32, f16, bf16 */
    const struct problem *p = &c->problem;
    const struct ptl_hstu_params *a = &p->hstu;
    const int last = a->q.ndim - 1;
    const double dqk = (double)a->q.shape[last], dv = (double)a->v.shape[last];
    const struct workload w = workload_of(a);
    const double ask = w.all_pairs * ASK_NS, element = w.valid_pairs * ELEMENT_NS;
    const double all = 1e-9 * (ask + element * (3.0 * dqk + 2.0 * dv));
    const int64_t n_queries = (int64_t)w.rows_q * n_query_heads(a);
    const double bound = bounds[a->q.dtype];
    const int64_t n_keys = (int64_t)w.rows_k * a->k.shape[last - 1];
    result->n_rows = result->n_all_rows = n_queries + n_keys;
    if (all <= seconds) return compare_gradients(p, bound, result);

    const double dq_all = 1e-9 * (ask + element * (2.0 * dqk + dv));
    const int64_t n_q = rows_within(dq_all, 0.5 * seconds, n_queries, MIN_SAMPLE);
    const int64_t n_k = rows_within(all, 0.5 * seconds, n_keys, MIN_SAMPLE);
    double *expected = malloc((size_t)(dqk + dv) * sizeof *expected);
    if (!expected) return false;
    result->n_rows = n_q + n_k;
    sample_queries(p, n_q, n_queries, bound, expected, result);
    sample_keys(p, n_k, n_keys, bound, expected, result);
    free(expected);
    return true;
}
