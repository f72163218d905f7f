/* Helpers for identities: running pairs of problems, spelling out masks and biases. */
#include "hstu_twins.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../ref/hstu.h"
#include "guard.h"
#include "tensor_check.h"

void twins_forward(const struct ptl_hstu_params *a, const struct ptl_hstu_params *b,
                   const char *what) {
    const int64_t n = hstu_out_floats(a);
    float *x = test_alloc((size_t)n * sizeof *x), *y = test_alloc((size_t)n * sizeof *y);
    const struct hstu_variant *v;
    for (int i = 0; (v = hstu_variant(i)) != NULL; i++) {
        if (!v->first) continue;
        if (!hstu_run(a, v, x) || !hstu_run(b, v, y)) break;
        int64_t k = 0;
        while (k < n && float_bits(x[k]) == float_bits(y[k])) k++;
        if (k < n)
            FAIL("%s: %s: element %lld is %.9g and %.9g", v->name, what, (long long)k, (double)x[k],
                 (double)y[k]);
    }
    free(x);
    free(y);
}

void twins_backward(const struct ptl_hstu_params *a, const struct ptl_hstu_grads *ga,
                    const struct ptl_hstu_params *b, const struct ptl_hstu_grads *gb,
                    unsigned which, const char *what) {
    struct hstu_grad_floats x = hstu_grad_floats_create(ga), y = hstu_grad_floats_create(gb);
    const struct hstu_variant *v;
    for (int i = 0; (v = hstu_variant(i)) != NULL; i++) {
        struct hstu_grad_floats compared = x;
        char text[160];
        if (!v->first) continue;
        if (!hstu_run_backward(a, ga, v, &x) || !hstu_run_backward(b, gb, v, &y)) break;
        for (int k = 0; k < N_GRADS; k++)
            if (!(which >> k & 1)) compared.grad[k] = NULL;
        snprintf(text, sizeof text, "%s: %s", v->name, what);
        hstu_same_gradients(&compared, &y, text);
    }
    hstu_grad_floats_destroy(&x);
    hstu_grad_floats_destroy(&y);
}

void twins_lines(const char *a, const char *b, unsigned which) {
    for (int backward = 0; backward < 2; backward++) {
        struct problem p, q;
        char line_a[MAX_LINE], line_b[MAX_LINE];
        const char *op = backward ? "hstu_backward" : "hstu";
        snprintf(line_a, sizeof line_a, "%s %s", op, a);
        snprintf(line_b, sizeof line_b, "%s %s", op, b);
        if (backward && !which) break;
        test_case("%s", line_b);
        if (!hstu_problem(&p, line_a)) continue;
        if (hstu_problem(&q, line_b)) {
            if (backward) twins_backward(&p.hstu, &p.grads, &q.hstu, &q.grads, which, line_a);
            else twins_forward(&p.hstu, &q.hstu, line_a);
            problem_destroy(&q);
        }
        problem_destroy(&p);
    }
}

double twins_distance(const struct ptl_hstu_params *a, const struct ptl_hstu_params *b) {
    const int64_t n = hstu_out_floats(a);
    float *x = test_alloc((size_t)n * sizeof *x), *y = test_alloc((size_t)n * sizeof *y);
    double worst = 0.0, largest = 0.0;
    const struct hstu_variant *v;
    for (int i = 0; (v = hstu_variant(i)) != NULL; i++) {
        if (!v->first || !hstu_run(a, v, x) || !hstu_run(b, v, y)) continue;
        for (int64_t k = 0; k < n; k++) {
            const double d = fabs((double)x[k] - (double)y[k]);
            largest = fmax(largest, fabs((double)y[k]));
            worst = isnan(d) ? INFINITY : fmax(worst, d);
        }
    }
    free(x);
    free(y);
    return largest > 0.0 ? worst / largest : worst;
}

/* ---- Masks and biases spelled out ------------------------------------------------------------ */

static int64_t longest(const struct ptl_hstu_params *p, bool keys) {
    int64_t n = 0;
    if (p->q.ndim == 4) return keys ? p->k.shape[1] : p->q.shape[1];
    for (int64_t b = 0; b < ref_hstu_n_seqs(p); b++) {
        const int64_t length = keys ? ref_hstu_uk(p, b) : ref_hstu_uq(p, b);
        if (length > n) n = length;
    }
    return n;
}

struct ptl_tensor twins_mask(const struct ptl_hstu_params *p) {
    const int64_t shape[4] = {ref_hstu_n_seqs(p), p->q.shape[p->q.ndim - 2], longest(p, false),
                              longest(p, true)};
    const int64_t n = shape[0] * shape[1] * shape[2] * shape[3];
    uint8_t *m = test_alloc((size_t)n);
    memset(m, 0xff, (size_t)n);
    for (int64_t b = 0; b < shape[0]; b++)
        for (int64_t h = 0; h < shape[1]; h++)
            for (int64_t i = 0; i < ref_hstu_uq(p, b); i++)
                for (int64_t j = 0; j < ref_hstu_uk(p, b); j++)
                    m[((b * shape[1] + h) * shape[2] + i) * shape[3] + j] =
                        ref_hstu_valid(p, b, h, i, j);
    return ptl_tensor_contiguous(m, PTL_U8, 4, shape);
}

struct ptl_tensor twins_bias(const struct ptl_hstu_params *p) {
    const int64_t shape[4] = {ref_hstu_n_seqs(p), p->q.shape[p->q.ndim - 2], longest(p, false),
                              longest(p, true)};
    const int64_t n = shape[0] * shape[1] * shape[2] * shape[3];
    float *x = test_alloc((size_t)n * sizeof *x);
    for (int64_t i = 0; i < n; i++) x[i] = NAN;
    for (int64_t b = 0; b < shape[0]; b++)
        for (int64_t h = 0; h < shape[1]; h++)
            for (int64_t i = 0; i < ref_hstu_uq(p, b); i++)
                for (int64_t j = 0; j < ref_hstu_uk(p, b); j++)
                    x[((b * shape[1] + h) * shape[2] + i) * shape[3] + j] =
                        (float)ref_hstu_bias(p, b, h, i, j);
    return ptl_tensor_contiguous(x, PTL_F32, 4, shape);
}

/* Pairs of one row from what it sees: runs, the last ones first, some cut in two that overlap, some
 * that reach outside; what is left of the room is empty. n NULL: only counted. */
static int64_t row_pairs(const struct ptl_hstu_params *p, int64_t b, int64_t i,
                         struct test_random *r, int64_t *pairs) {
    const int64_t uk = ref_hstu_uk(p, b);
    int64_t n = 0;
    for (int64_t end = uk; end > 0;) {
        int64_t begin = end;
        while (begin > 0 && ref_hstu_valid(p, b, 0, i, begin - 1)) begin--;
        if (begin == end) {
            end--;
            continue;
        }
        const bool cut = end - begin > 2;
        const int64_t middle = begin + (end - begin) / 2;
        if (pairs) {
            pairs[2 * n] = cut ? middle - 1 : begin == 0 ? -test_random_int(r, 0, 5) : begin;
            pairs[2 * n + 1] = end == uk ? end + test_random_int(r, 0, 5) : end;
            if (cut) {
                pairs[2 * n + 2] = begin == 0 ? -test_random_int(r, 0, 5) : begin;
                pairs[2 * n + 3] = middle;
            }
        }
        n += 1 + cut;
        end = begin;
    }
    return n;
}

struct ptl_tensor twins_intervals(const struct ptl_hstu_params *p, enum ptl_dtype type) {
    const bool dense = p->q.ndim == 4;
    const int64_t rows = dense ? p->q.shape[1] : p->q.shape[0];
    struct test_random r = {5};
    int64_t most = 0;
    for (int64_t b = 0; b < ref_hstu_n_seqs(p); b++)
        for (int64_t i = 0; i < ref_hstu_uq(p, b); i++) {
            const int64_t n = row_pairs(p, b, i, &r, NULL);
            if (n > most) most = n;
        }
    const int64_t shape[3] = {dense ? p->q.shape[0] : 1, rows, 2 * (most + 1)};
    const int64_t n = shape[0] * shape[1] * shape[2];
    int64_t *x = test_alloc((size_t)n * sizeof *x);
    for (int64_t i = 0; i < n; i++)
        x[i] = test_random_int(&r, 0, 100) * (i % 2 ? -1 : 1); /* empty */
    for (int64_t b = 0; b < ref_hstu_n_seqs(p); b++)
        for (int64_t i = 0; i < ref_hstu_uq(p, b); i++) {
            const int64_t first = dense ? b * rows
                                        : (p->seq_offsets_q.dtype == PTL_I64
                                               ? ((const int64_t *)p->seq_offsets_q.data)[b]
                                               : ((const int32_t *)p->seq_offsets_q.data)[b]);
            row_pairs(p, b, i, &r,
                      x + (first + i) * shape[2] + 2 * (i % 2)); /* all but the first pair */
        }
    if (type == PTL_I32)
        for (int64_t i = 0; i < n; i++) ((int32_t *)x)[i] = (int32_t)x[i];
    return ptl_tensor_contiguous(x, type, dense ? 3 : 2, shape + !dense);
}

struct ptl_hstu_params twins_unmasked(const struct ptl_hstu_params *p) {
    struct ptl_hstu_params a = *p;
    a.window_left = -1;
    a.window_right = 0;
    a.min_full_attn_seq_len = 0;
    a.num_contexts.data = a.mask.data = a.intervals.data = NULL;
    if (!p->k_pages.data) a.num_targets.data = NULL;
    return a;
}
