/* The checks of hstu_backward_check.h. */
#include "hstu_backward_check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../ref/elements.h"
#include "../../ref/hstu.h"
#include "guard.h"
#include "tensor_check.h"

const char *const hstu_grad_names[N_GRADS] = {"dq",         "dk",          "dv", "dbias",
                                              "dpos_table", "dtime_table", "ds"};

const struct ptl_tensor *hstu_grad(const struct ptl_hstu_grads *g, int i) {
    const struct ptl_tensor *const all[N_GRADS] = {
        &g->dq, &g->dk, &g->dv, &g->dbias, &g->dpos_table, &g->dtime_table, &g->ds};
    return all[i];
}

double hstu_grad_bound(enum ptl_dtype type) {
    return type == PTL_F32 ? 1e-5 : hstu_bound(type);
}

struct hstu_grad_floats hstu_grad_floats_create(const struct ptl_hstu_grads *g) {
    struct hstu_grad_floats x = {{0}, {0}};
    for (int i = 0; i < N_GRADS; i++) {
        if (!hstu_grad(g, i)->data) continue;
        x.n[i] = tensor_elements(hstu_grad(g, i));
        x.grad[i] = test_alloc((size_t)x.n[i] * sizeof(float));
    }
    return x;
}

void hstu_grad_floats_destroy(struct hstu_grad_floats *x) {
    for (int i = 0; i < N_GRADS; i++) free(x->grad[i]);
}

bool hstu_run_backward(const struct ptl_hstu_params *p, const struct ptl_hstu_grads *g,
                       const struct hstu_variant *v, struct hstu_grad_floats *got) {
    for (int i = 0; i < N_GRADS; i++) tensor_wipe(hstu_grad(g, i));
    const enum ptl_status status = ptl_hstu_backward(v->ctx, p, g);
    if (status != PTL_OK) {
        FAIL("%s: %s: %s", v->name, ptl_status_name(status), ptl_message());
        return false;
    }
    for (int i = 0; i < N_GRADS; i++)
        if (got->grad[i]) tensor_take(hstu_grad(g, i), got->grad[i]);
    for (int i = 0; i < N_GRADS; i++) {
        if (tensor_wiped(hstu_grad(g, i))) continue;
        FAIL("%s: wrote between the rows of %s", v->name, hstu_grad_names[i]);
        return false;
    }
    return true;
}

struct hstu_grad_doubles hstu_expected_gradients(const struct ptl_hstu_params *p,
                                                 const struct ptl_hstu_grads *g, bool low) {
    struct hstu_grad_doubles x = {{0}, {0}};
    for (int i = 0; i < N_GRADS; i++) {
        if (!hstu_grad(g, i)->data) continue;
        x.n[i] = tensor_elements(hstu_grad(g, i));
        x.grad[i] = test_alloc((size_t)x.n[i] * sizeof(double));
    }
    const struct ref_hstu_grads out = {x.grad[0], x.grad[1], x.grad[2], x.grad[3],
                                       x.grad[4], x.grad[5], x.grad[6]};
    (low ? ref_hstu_backward_low : ref_hstu_backward)(p, &g->dout, &out);
    return x;
}

void hstu_grad_doubles_destroy(struct hstu_grad_doubles *x) {
    for (int i = 0; i < N_GRADS; i++) free(x->grad[i]);
}

/* ---- Comparing ------------------------------------------------------------------------------- */

/* Largest elements of the gradients if nothing cancelled. */
static void sizes_without_signs(const struct ptl_hstu_params *p, const struct ptl_hstu_grads *g,
                                double most[N_GRADS]) {
    struct ptl_hstu_params a = hstu_positive(p);
    struct ptl_hstu_grads up = *g;
    up.dout = tensor_positive(&g->dout);
    struct hstu_grad_doubles x = hstu_expected_gradients(&a, &up, false);
    for (int i = 0; i < N_GRADS; i++) {
        most[i] = 0.0;
        for (int64_t k = 0; k < x.n[i]; k++) most[i] = fmax(most[i], fabs(x.grad[i][k]));
    }
    hstu_grad_doubles_destroy(&x);
    free(up.dout.data);
    hstu_positive_free(&a);
}

static void fail_at(const struct ptl_tensor *t, int i, const char *what, int64_t at, double got,
                    double expected, const char *why) {
    const int64_t dim = t->shape[t->ndim - 1], heads = t->ndim > 2 ? t->shape[t->ndim - 2] : 1;
    FAIL("%s: %s row %lld head %lld column %lld is %.9g, expected %.9g%s", what, hstu_grad_names[i],
         (long long)(at / dim / heads), (long long)(at / dim % heads), (long long)(at % dim), got,
         expected, why);
}

/* One gradient. small: the size below which errors need no explanation. */
static bool compare_one(const struct ptl_hstu_params *p, const struct ptl_hstu_grads *g, int i,
                        const float *got, const double *expected, int64_t n, const char *what) {
    const struct ptl_tensor *t = hstu_grad(g, i);
    const double bound = hstu_grad_bound(p->q.dtype);
    double worst = 0.0, largest = 0.0;
    int64_t worst_at = 0;
    for (int64_t k = 0; k < n; k++) {
        const double e = expected[k], as_type = ref_round(t->dtype, e);
        if (e == 0.0 ? got[k] == 0.0f
                     : !isfinite(as_type) && (isnan(e) ? isnan(got[k]) : got[k] == (float)as_type))
            continue;
        if (e == 0.0 || !isfinite(as_type)) {
            fail_at(t, i, what, k, (double)got[k], e, "");
            return false;
        }
        const double error = isfinite(got[k]) ? fabs((double)got[k] - e) : INFINITY;
        largest = fmax(largest, fabs(e));
        if (error > worst) {
            worst = error;
            worst_at = k;
        }
    }
    if (worst <= bound * largest) return true;
    /* Few elements may all be sums of terms that cancel; so may those of a table. */
    double sizes[N_GRADS];
    sizes_without_signs(p, g, sizes);
    if ((n < 64 * t->shape[t->ndim - 1] || i > 2) && worst <= 0.2 * bound * sizes[i]) return true;
    char why[80];
    snprintf(why, sizeof why, ": an error of %.2g of the largest element", worst / largest);
    fail_at(t, i, what, worst_at, (double)got[worst_at], expected[worst_at], why);
    return false;
}

bool hstu_compare_gradients(const struct ptl_hstu_params *p, const struct ptl_hstu_grads *g,
                            const struct hstu_grad_floats *got,
                            const struct hstu_grad_doubles *expected, const char *what) {
    bool ok = true;
    for (int i = 0; i < N_GRADS; i++)
        if (got->grad[i])
            ok = compare_one(p, g, i, got->grad[i], expected->grad[i], got->n[i], what) && ok;
    return ok;
}

bool hstu_same_gradients(const struct hstu_grad_floats *a, const struct hstu_grad_floats *b,
                         const char *what) {
    bool ok = true;
    for (int i = 0; i < N_GRADS; i++) {
        if (!a->grad[i] || !b->grad[i]) continue;
        if (a->n[i] == b->n[i] &&
            memcmp(a->grad[i], b->grad[i], (size_t)a->n[i] * sizeof(float)) == 0)
            continue;
        int64_t k = 0;
        while (k < a->n[i] && float_bits(a->grad[i][k]) == float_bits(b->grad[i][k])) k++;
        FAIL("%s: %s differs, element %lld is %.9g and %.9g", what, hstu_grad_names[i],
             (long long)k, (double)a->grad[i][k], (double)b->grad[i][k]);
        ok = false;
    }
    return ok;
}

/* Halves: at most five times the error of a plain evaluation, which is taken to be one rounding at
 * least. */
static void compare_with_plain(const struct ptl_hstu_params *p, const struct ptl_hstu_grads *g,
                               const struct hstu_grad_floats *got,
                               const struct hstu_grad_doubles *expected, const char *what) {
    struct hstu_grad_doubles plain = hstu_expected_gradients(p, g, true);
    for (int i = 0; i < N_GRADS; i++) {
        double ours = 0.0, theirs = 0.0, largest = 0.0;
        for (int64_t k = 0; k < got->n[i]; k++) {
            const double e = expected->grad[i][k];
            if (!isfinite(ref_round(hstu_grad(g, i)->dtype, e))) continue;
            largest = fmax(largest, fabs(e));
            ours = fmax(ours, fabs((double)got->grad[i][k] - e));
            theirs = fmax(theirs, fabs(plain.grad[i][k] - e));
        }
        theirs = fmax(theirs, hstu_unit(p->q.dtype) * largest);
        if (!(ours <= 5.0 * theirs))
            FAIL("%s: %s has error %.2g, plain evaluation %.2g, of the largest element", what,
                 hstu_grad_names[i], ours / largest, theirs / largest);
    }
    hstu_grad_doubles_destroy(&plain);
}

void hstu_check_backward(const struct ptl_hstu_params *p, const struct ptl_hstu_grads *g) {
    struct hstu_grad_floats first = hstu_grad_floats_create(g), got = hstu_grad_floats_create(g);
    const uint64_t sum = tensor_checksum(hstu_inputs_checksum(p), &g->dout);
    struct hstu_grad_doubles expected = hstu_expected_gradients(p, g, false);
    const struct hstu_variant *v;
    for (int i = 0; (v = hstu_variant(i)) != NULL; i++) {
        if (v->first) {
            if (!hstu_run_backward(p, g, v, &first)) break;
            if (hstu_compare_gradients(p, g, &first, &expected, v->name) && p->q.dtype != PTL_F32)
                compare_with_plain(p, g, &first, &expected, v->name);
        } else {
            if (!hstu_run_backward(p, g, v, &got)) break;
            hstu_same_gradients(&first, &got, v->name);
        }
    }
    if (tensor_checksum(hstu_inputs_checksum(p), &g->dout) != sum) FAIL("an input was written");
    hstu_grad_doubles_destroy(&expected);
    hstu_grad_floats_destroy(&first);
    hstu_grad_floats_destroy(&got);
}
