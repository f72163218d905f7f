/* NaN and Inf in single rows of q, k, v: they reach the outputs that the mask lets them reach and
 * leave every other bit alone, in mixed tiles too. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../ref/elements.h"
#include "../../ref/hstu.h"
#include "hstu_check.h"
#include "op_suites.h"

/* Masks that cut tiles in every way. */
static const char *const jagged[] = {
    "d=9 dv=20 h=2 rule=causal",
    "d=9 dv=20 h=2 rule=none",
    "d=9 dv=20 h=2 hk=1 rule=local:17,0",
    "d=9 dv=20 h=2 rule=local:30,12",
    "d=9 dv=20 h=4 hk=2 num_contexts=13 num_targets=random:70 target_group_size=3",
    "d=9 dv=20 h=2 num_contexts=3 num_targets=random:70 window_size=20,0 min_full_attn_seq_len=9",
    "d=9 dv=20 h=2 mask=random mask_batch=b mask_head=h",
    "d=9 dv=20 h=2 mask=random:0.02 attn_scale=token",
    "d=9 dv=20 h=2 num_targets=random:20 view=gap",
};
static const char *const dense[] = {
    "d=9 dv=20 h=2 hk=1 seqused_q=list:140,3,90 seqused_k=list:140,90,90",
};
/* Sequences over several tiles and within one; fewer queries than keys in the last jagged line. */
static const char lengths[] = "lengths=list:150,40,300";
static const char delta_lengths[] = "lengths=list:11,5,40 lengths_k=list:150,40,300";
static const char few_lengths[] = "lengths=list:33,5,12";
static const char few_delta_lengths[] = "lengths=list:3,5,2 lengths_k=list:33,5,12";

#define COUNT(list) ((int)(sizeof(list) / sizeof((list)[0])))

enum { MAX_PLACES = 12 };

/* Row i of sequence b and head, in q or in k and v. */
static void *row_at(const struct ptl_hstu_params *p, const struct ptl_tensor *t, int64_t b,
                    int64_t head, int64_t i) {
    const int64_t bytes = (int64_t)ptl_dtype_bytes(t->dtype);
    if (t->ndim == 4)
        return (char *)t->data +
               bytes * (b * t->stride[0] + i * t->stride[1] + head * t->stride[2]);
    const bool keys = t != &p->q && p->seq_offsets_k.data;
    const int64_t *offsets = keys ? p->seq_offsets_k.data : p->seq_offsets_q.data;
    return (char *)t->data + bytes * ((offsets[b] + i) * t->stride[0] + head * t->stride[1]);
}

static int64_t out_at(const struct ptl_hstu_params *p, int64_t b, int64_t head, int64_t i) {
    const int64_t heads = p->q.shape[p->q.ndim - 2], dv = p->v.shape[p->v.ndim - 1];
    const int64_t row =
        p->q.ndim == 4 ? b * p->q.shape[1] + i : ((const int64_t *)p->seq_offsets_q.data)[b] + i;
    return (row * heads + head) * dv;
}

/* Whether the output may differ from what it was before: row i of sequence b and head sees the
 * spoilt row (b0, head0, j0) of k or v, or is the spoilt row of q. */
static bool reached(const struct ptl_hstu_params *p, const struct ptl_tensor *t,
                    const int64_t spoilt[3], int64_t b, int64_t head, int64_t i) {
    const int64_t group = p->q.shape[p->q.ndim - 2] / p->k.shape[p->k.ndim - 2];
    if (b != spoilt[0]) return false;
    if (t == &p->q) return head == spoilt[1] && i == spoilt[2];
    return head / group == spoilt[1] && ref_hstu_valid(p, b, head, i, spoilt[2]);
}

/* Every output against what it was, or against the reference where the spoilt row reaches it. */
static void compare_all(const struct ptl_hstu_params *p, const struct ptl_tensor *t,
                        const int64_t spoilt[3], const float *before, const float *got,
                        const char *name) {
    const int64_t heads = p->q.shape[p->q.ndim - 2], dv = p->v.shape[p->v.ndim - 1];
    double *expected = test_alloc((size_t)dv * sizeof *expected);
    for (int64_t b = 0; b < ref_hstu_n_seqs(p); b++)
        for (int64_t head = 0; head < heads; head++)
            for (int64_t i = 0; i < ref_hstu_uq(p, b); i++) {
                const int64_t at = out_at(p, b, head, i);
                if (!reached(p, t, spoilt, b, head, i)) {
                    if (memcmp(got + at, before + at, (size_t)dv * sizeof *got) == 0) continue;
                    FAIL("%s: sequence %lld head %lld row %lld changed, but does not see it", name,
                         (long long)b, (long long)head, (long long)i);
                    free(expected);
                    return;
                }
                ref_hstu_forward_row(p, b, head, i, expected);
                for (int64_t d = 0; d < dv; d++)
                    if (isnan(expected[d])   ? !isnan(got[at + d])
                        : isinf(expected[d]) ? (double)got[at + d] != expected[d]
                                             : !isfinite(got[at + d])) {
                        FAIL("%s: sequence %lld head %lld row %lld column %lld is %g, expected %g",
                             name, (long long)b, (long long)head, (long long)i, (long long)d,
                             (double)got[at + d], expected[d]);
                        free(expected);
                        return;
                    }
            }
    free(expected);
}

/* Puts bad numbers into one row at a time, then takes them out again. */
static void spoil(struct ptl_hstu_params *p, struct ptl_tensor *t, struct test_random *r,
                  const struct hstu_variant *v, const float *before, float *got) {
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    float saved[64];
    const int64_t heads = t->shape[t->ndim - 2], dim = t->shape[t->ndim - 1];
    for (int n = 0; n < (test_quick() ? 3 : MAX_PLACES); n++) {
        const int64_t b = test_random_int(r, 0, ref_hstu_n_seqs(p) - 1);
        const int64_t length = t == &p->q ? ref_hstu_uq(p, b) : ref_hstu_uk(p, b);
        const int64_t spoilt[3] = {b, test_random_int(r, 0, heads - 1),
                                   n == 0 ? length - 1 : test_random_int(r, 0, length - 1)};
        void *row = row_at(p, t, b, spoilt[1], spoilt[2]);
        const size_t bytes = (size_t)dim * ptl_dtype_bytes(t->dtype);
        memcpy(saved, row, bytes);
        const double x = (double)bad[n % 3];
        const bool whole_row = test_random_int(r, 0, 1);
        for (int64_t d = 0; whole_row && d < dim; d++) ref_write(t->dtype, row, d, x);
        ref_write(t->dtype, row, test_random_int(r, 0, dim - 1), x);
        if (hstu_run(p, v, got)) compare_all(p, t, spoilt, before, got, v->name);
        memcpy(row, saved, bytes);
    }
}

static void each_line(struct ptl_tensor *(*which)(struct ptl_hstu_params *p)) {
    struct test_random r = {21};
    for (int n = 0; n < 2 * (COUNT(jagged) + (test_quick() ? 0 : COUNT(dense))); n++) {
        struct problem problem;
        char line[MAX_LINE];
        const int i = n / 2;
        const char *type = n % 2 ? "bf16" : "f32";
        const bool delta = i == COUNT(jagged) - 1;
        if (i < COUNT(jagged))
            snprintf(line, sizeof line, "hstu %s %s dtype=%s",
                     test_quick() ? (delta ? few_delta_lengths : few_lengths)
                                  : (delta ? delta_lengths : lengths),
                     jagged[i], type);
        else
            snprintf(line, sizeof line, "hstu layout=dense b=3 s=140 %s dtype=%s",
                     dense[i - COUNT(jagged)], type);
        test_case("%s", line);
        if (!hstu_problem(&problem, line)) continue;
        struct ptl_hstu_params *p = &problem.hstu;
        const size_t bytes = (size_t)hstu_out_floats(p) * sizeof(float);
        float *before = test_alloc(bytes), *got = test_alloc(bytes);
        const struct hstu_variant *v;
        for (int x = 0; (v = hstu_variant(x)) != NULL; x++) {
            if (!v->first || !hstu_run(p, v, before)) continue;
            spoil(p, which(p), &r, v, before, got);
        }
        free(before);
        free(got);
        problem_destroy(&problem);
    }
}

static struct ptl_tensor *the_q(struct ptl_hstu_params *p) {
    return &p->q;
}
static struct ptl_tensor *the_k(struct ptl_hstu_params *p) {
    return &p->k;
}
static struct ptl_tensor *the_v(struct ptl_hstu_params *p) {
    return &p->v;
}

static void in_q(void) {
    each_line(the_q);
}
static void in_k(void) {
    each_line(the_k);
}
static void in_v(void) {
    each_line(the_v);
}

/* Whatever a masked key holds, nobody sees it: every row of k and v that no query sees becomes
 * NaN. */
static void in_unseen_keys_of(const char *type) {
    struct problem problem;
    char line[MAX_LINE];
    snprintf(line, sizeof line,
             "hstu sq=5 sk=300 h=1 d=9 dv=20 num_targets=40 target_group_size=3 window_size=50,0 "
             "dtype=%s",
             type);
    test_case("%s", line);
    if (!hstu_problem(&problem, line)) return;
    struct ptl_hstu_params *p = &problem.hstu;
    const size_t n = (size_t)hstu_out_floats(p);
    float *before = test_alloc(n * sizeof *before), *got = test_alloc(n * sizeof *got);
    const struct hstu_variant *v;
    for (int x = 0; (v = hstu_variant(x)) != NULL; x++) {
        if (!v->first || !hstu_run(p, v, before)) continue;
        struct ptl_hstu_params spoilt = *p;
        const int64_t rows = p->k.shape[0], dk = p->k.shape[2], dv = p->v.shape[2];
        const size_t bytes = ptl_dtype_bytes(p->k.dtype);
        void *k = test_alloc((size_t)(rows * dk) * bytes);
        void *values = test_alloc((size_t)(rows * dv) * bytes);
        memcpy(k, p->k.data, (size_t)(rows * dk) * bytes);
        memcpy(values, p->v.data, (size_t)(rows * dv) * bytes);
        for (int64_t j = 0; j < rows; j++) {
            bool seen = false;
            for (int64_t i = 0; i < ref_hstu_uq(p, 0); i++)
                seen = seen || ref_hstu_valid(p, 0, 0, i, j);
            for (int64_t d = 0; d < dk && !seen; d++) ref_write(p->k.dtype, k, j * dk + d, NAN);
            for (int64_t d = 0; d < dv && !seen; d++)
                ref_write(p->v.dtype, values, j * dv + d, NAN);
        }
        spoilt.k.data = k;
        spoilt.v.data = values;
        if (hstu_run(&spoilt, v, got) && memcmp(before, got, n * sizeof *got) != 0)
            FAIL("%s: NaN in keys that nobody sees changed the result", v->name);
        free(k);
        free(values);
    }
    free(before);
    free(got);
    problem_destroy(&problem);
}

static void in_all_unseen_keys(void) {
    in_unseen_keys_of("f32");
    in_unseen_keys_of("bf16");
}

static const struct test tests[] = {
    {"in_q", in_q},
    {"in_k", in_k},
    {"in_v", in_v},
    {"in_all_unseen_keys", in_all_unseen_keys},
};
TEST_SUITE(hstu_nonfinite_suite, "hstu/nonfinite", tests);
