/* Intervals are the rule or the mask that they spell out; tables are the dense bias that they spell
 * out; a bias is the same in every type, layout and broadcast that holds its numbers; a bias that
 * drowns a pair is a mask. Bit for bit where nothing else is said. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../ref/elements.h"
#include "../../ref/hstu.h"
#include "hstu_twins.h"
#include "op_suites.h"
#include "tensor_check.h"

#define COUNT(list) ((int)(sizeof(list) / sizeof((list)[0])))

static const char *batch(void) {
    return test_quick() ? "lengths=list:19,1,0,7" : "lengths=list:150,1,0,37,300,96";
}

/* ---- Intervals ------------------------------------------------------------------------------- */

static void causal_intervals(void) {
    static const char *const rest[] = {"h=2 d=24 dv=9", "h=2 hk=1 d=16 dtype=bf16 index=i32",
                                       "d=40 dtype=f16 attn_scale=token view=gap"};
    for (int i = 0; i < COUNT(rest); i++) {
        char rule[MAX_LINE], intervals[MAX_LINE];
        snprintf(rule, sizeof rule, "%s %s rule=causal", batch(), rest[i]);
        snprintf(intervals, sizeof intervals, "%s %s intervals=causal", batch(), rest[i]);
        twins_lines(rule, intervals, TWIN_QKV);
    }
    twins_lines("layout=dense b=3 sq=40 sk=100 d=17 rule=causal",
                "layout=dense b=3 sq=40 sk=100 d=17 intervals=causal", TWIN_QKV);
}

static void rules_as_intervals(void) {
    static const char *const rules[] = {
        "rule=none",
        "rule=local:20,0",
        "rule=local:9,30",
        "rule=local:50,-1",
        "num_contexts=random:40",
        "num_targets=random:60 target_group_size=4",
        "num_contexts=7 num_targets=random:30 window_size=33,0",
        "num_targets=random:20 window_size=25,0 min_full_attn_seq_len=17",
        "mask=random mask_batch=b",
        "mask=random:0.03",
        "intervals=5"};
    for (int i = 0; i < 2 * COUNT(rules); i++) {
        struct problem problem;
        char line[MAX_LINE];
        if (i % 2)
            snprintf(line, sizeof line, "hstu_backward layout=dense b=2 s=%d h=2 d=8 %s",
                     test_quick() ? 12 : 140, rules[i / 2]);
        else
            snprintf(line, sizeof line, "hstu_backward %s h=2 d=8 index=i32 %s", batch(),
                     rules[i / 2]);
        test_case("%s", line);
        if (!hstu_problem(&problem, line)) continue;
        const struct ptl_hstu_params *p = &problem.hstu;
        struct ptl_hstu_params by_intervals = twins_unmasked(p), by_mask = twins_unmasked(p);
        by_intervals.intervals = twins_intervals(p, i / 2 % 2 ? PTL_I32 : PTL_I64);
        by_mask.mask = twins_mask(p);
        twins_backward(p, &problem.grads, &by_intervals, &problem.grads, TWIN_QKV, "intervals");
        twins_backward(p, &problem.grads, &by_mask, &problem.grads, TWIN_QKV, "mask");
        struct ptl_hstu_params forward = *p; /* dout's memory becomes out's */
        forward.out = by_intervals.out = by_mask.out = problem.grads.dout;
        twins_forward(&forward, &by_intervals, "intervals");
        twins_forward(&forward, &by_mask, "mask");
        free(by_intervals.intervals.data);
        free(by_mask.mask.data);
        problem_destroy(&problem);
    }
}

/* ---- Tables ---------------------------------------------------------------------------------- */

/* The table's gradient is the sum of dbias over the pairs that take the entry. */
static void check_table_gradient(const struct ptl_hstu_params *p, const struct ptl_tensor *table,
                                 const float *grad, const struct ptl_tensor *bias,
                                 const float *dbias, bool by_time) {
    const int64_t n = tensor_elements(table), entries = table->shape[table->ndim - 1];
    double *sum = test_alloc((size_t)n * sizeof *sum), largest = 0.0;
    for (int64_t x = 0; x < n; x++) sum[x] = 0.0;
    for (int64_t b = 0; b < bias->shape[0]; b++)
        for (int64_t h = 0; h < bias->shape[1]; h++)
            for (int64_t i = 0; i < ref_hstu_uq(p, b); i++)
                for (int64_t j = 0; j < ref_hstu_uk(p, b); j++) {
                    struct ptl_hstu_params one =
                        *p; /* asks for the entry by a table of its numbers */
                    const int64_t pos = i + ref_hstu_uk(p, b) - ref_hstu_uq(p, b);
                    int64_t entry = (entries + 1) / 2 - 1 + j - pos;
                    if (by_time) {
                        static float numbers[256];
                        for (int64_t m = 0; m < entries; m++) numbers[m] = (float)m;
                        one.attn_bias.data = one.pos_table.data = NULL;
                        one.time_table = ptl_tensor_contiguous(numbers, PTL_F32, 1, &entries);
                        entry = (int64_t)ref_hstu_bias(&one, b, h, i, j);
                    }
                    if (ref_hstu_valid(p, b, h, i, j))
                        sum[(table->ndim == 2 ? h * entries : 0) + entry] += (double)
                            dbias[((b * bias->shape[1] + h) * bias->shape[2] + i) * bias->shape[3] +
                                  j];
                }
    for (int64_t x = 0; x < n; x++) largest = fmax(largest, fabs(sum[x]));
    for (int64_t x = 0; x < n; x++)
        if (!(fabs((double)grad[x] - sum[x]) <= 2e-5 * largest)) {
            FAIL("entry %lld of the table's gradient is %.9g, dbias adds up to %.9g", (long long)x,
                 (double)grad[x], sum[x]);
            break;
        }
    free(sum);
}

/* exactly: one table, so that nothing is rounded between them. */
static void check_tables(const char *options, bool exactly) {
    struct problem problem;
    char line[MAX_LINE];
    snprintf(line, sizeof line, "hstu_backward %s %s",
             test_quick() ? "b=2 s=14" : "lengths=list:170,0,60", options);
    test_case("%s", line);
    if (!hstu_problem(&problem, line)) return;
    const struct ptl_hstu_params *p = &problem.hstu;
    struct ptl_hstu_params spelt = *p, forward = *p;
    struct ptl_hstu_grads g = problem.grads;
    spelt.attn_bias = twins_bias(p);
    spelt.pos_table.data = spelt.time_table.data = spelt.timestamps.data = NULL;
    spelt.time_thresholds.data = NULL;
    g.dbias = spelt.attn_bias;
    g.dbias.data = test_alloc((size_t)tensor_elements(&g.dbias) * sizeof(float));
    g.dpos_table.data = g.dtime_table.data = NULL;
    if (exactly) twins_backward(p, &problem.grads, &spelt, &g, TWIN_QKV, "spelt out");

    struct hstu_grad_floats tables = hstu_grad_floats_create(&problem.grads),
                            dense = hstu_grad_floats_create(&g);
    const struct hstu_variant *v;
    for (int i = 0; (v = hstu_variant(i)) != NULL; i++) {
        if (!v->first || !hstu_run_backward(p, &problem.grads, v, &tables) ||
            !hstu_run_backward(&spelt, &g, v, &dense))
            continue;
        if (tables.grad[4])
            check_table_gradient(p, &p->pos_table, tables.grad[4], &g.dbias, dense.grad[3], false);
        if (tables.grad[5])
            check_table_gradient(p, &p->time_table, tables.grad[5], &g.dbias, dense.grad[3], true);
    }
    hstu_grad_floats_destroy(&tables);
    hstu_grad_floats_destroy(&dense);

    forward.out = spelt.out = problem.grads.dout;
    if (exactly) twins_forward(&forward, &spelt, "spelt out");
    const double distance = twins_distance(&forward, &spelt);
    if (!(distance <= HSTU_BOUND)) FAIL("the dense bias is %.2g off", distance);
    free(spelt.attn_bias.data);
    free(g.dbias.data);
    problem_destroy(&problem);
}

static void tables_spelt_out(void) {
    check_tables("h=2 d=9 pos_table=1", true);
    check_tables("h=3 hk=1 d=16 pos_table=h rule=none bias_scale=0.3", true);
    check_tables("h=2 d=9 time_table=h thresholds=20", true);
    check_tables("h=2 d=9 time_table=1 thresholds=3 time_query=own times=random", true);
    check_tables("h=2 d=9 pos_table=h time_table=1 num_targets=5", false);
    check_tables("h=2 d=9 pos_table=1 time_table=h bias=dense bias_batch=b bias_head=h", false);
}

/* Differences that do not fit int64 have a bucket all the same. */
static void extreme_times(void) {
    static const int64_t times[6] = {INT64_MIN, -1, 0, 1, INT64_MAX, INT64_MIN};
    static const int64_t thresholds[5] = {INT64_MIN, 0, 1, INT64_MAX - 1, INT64_MAX};
    for (int own = 0; own < 2; own++) {
        struct problem problem;
        char line[MAX_LINE];
        snprintf(line, sizeof line,
                 "hstu s=6 d=3 rule=none time_table=1 thresholds=5 time_query=%s",
                 own ? "own" : "next");
        test_case("%s, times and thresholds at the ends of int64", line);
        if (!hstu_problem(&problem, line)) continue;
        memcpy(problem.hstu.timestamps.data, times, sizeof times);
        memcpy(problem.hstu.time_thresholds.data, thresholds, sizeof thresholds);
        hstu_check(&problem.hstu);
        problem_destroy(&problem);
    }
}

/* ---- Dense biases ---------------------------------------------------------------------------- */

/* The same numbers as f32, in the type of q, and each plane of its own. */
static void types_and_broadcasts(void) {
    static const char *const types[] = {"bf16", "f16", "f32"};
    for (int i = 0; i < COUNT(types); i++) {
        struct problem problem;
        char line[MAX_LINE];
        snprintf(line, sizeof line, "hstu_backward %s h=2 d=8 dtype=%s bias=dense bias_dtype=same",
                 batch(), types[i]);
        test_case("%s", line);
        if (!hstu_problem(&problem, line)) continue;
        const struct ptl_hstu_params *p = &problem.hstu;
        struct ptl_hstu_grads g = problem.grads;
        struct ptl_hstu_params wide = *p, broadcast = *p;
        const int64_t n = tensor_elements(&p->attn_bias);
        float *x = test_alloc((size_t)n * sizeof *x);
        for (int64_t k = 0; k < n; k++)
            x[k] = (float)ref_read(p->attn_bias.dtype, p->attn_bias.data, k);
        wide.attn_bias = ptl_tensor_contiguous(x, PTL_F32, 4, p->attn_bias.shape);
        broadcast.attn_bias.shape[0] = ref_hstu_n_seqs(p);
        broadcast.attn_bias.shape[1] = 2;
        broadcast.attn_bias.stride[0] = broadcast.attn_bias.stride[1] = 0;
        g.dbias.data = NULL;
        twins_backward(p, &g, &wide, &g, TWIN_QKV, "bias in f32");
        twins_backward(p, &g, &broadcast, &g, TWIN_QKV, "strides of 0");
        struct ptl_hstu_params forward = *p;
        forward.out = wide.out = broadcast.out = problem.grads.dout;
        twins_forward(&forward, &wide, "bias in f32");
        twins_forward(&forward, &broadcast, "strides of 0");
        free(x);
        problem_destroy(&problem);
    }
}

static void default_scale(void) {
    twins_lines("s=70 h=2 d=8 alpha=0.25 bias=dense pos_table=1",
                "s=70 h=2 d=8 alpha=0.25 bias=dense pos_table=1 bias_scale=0.25",
                TWIN_QKV | TWIN_DBIAS);
}

/* dbias of a broadcast bias is the sum of those of its planes: within rounding. */
static void broadcast_gradient(void) {
    struct problem one, all;
    const char *line = "hstu_backward b=3 s=40 h=2 d=8 bias=dense";
    test_case("%s", line);
    if (!hstu_problem(&one, line)) return;
    if (hstu_problem(&all, "hstu_backward b=3 s=40 h=2 d=8 bias=dense bias_batch=b bias_head=h")) {
        const int64_t n = tensor_elements(&one.hstu.attn_bias);
        for (int64_t plane = 0; plane < 6; plane++) /* the same numbers in every plane */
            memcpy((float *)all.hstu.attn_bias.data + plane * n, one.hstu.attn_bias.data,
                   (size_t)n * sizeof(float));
        struct hstu_grad_floats x = hstu_grad_floats_create(&one.grads),
                                y = hstu_grad_floats_create(&all.grads);
        const struct hstu_variant *v;
        for (int i = 0; (v = hstu_variant(i)) != NULL; i++) {
            if (!v->first || !hstu_run_backward(&one.hstu, &one.grads, v, &x) ||
                !hstu_run_backward(&all.hstu, &all.grads, v, &y))
                continue;
            double worst = 0.0, largest = 0.0;
            for (int64_t k = 0; k < n; k++) {
                double sum = 0.0;
                for (int64_t plane = 0; plane < 6; plane++) sum += (double)y.grad[3][plane * n + k];
                worst = fmax(worst, fabs(sum - (double)x.grad[3][k]));
                largest = fmax(largest, fabs(sum));
            }
            if (!(worst <= 1e-6 * largest)) FAIL("%s: %.2g off", v->name, worst / largest);
        }
        hstu_grad_floats_destroy(&x);
        hstu_grad_floats_destroy(&y);
        problem_destroy(&all);
    }
    problem_destroy(&one);
}

/* A bias of -inf or of the lowest float, which some use as a mask, silences a pair: the same
 * numbers as by a mask (the sign of a zero is free). The smallest float does nothing. */
static void biases_as_masks(void) {
    static const float lows[] = {-INFINITY, -FLT_MAX};
    for (int i = 0; i < 4; i++) {
        struct problem problem;
        const char *line =
            i < 2 ? "hstu_backward b=2 s=140 d=8 h=2 rule=none bias=dense bias_scale=1 ds=1"
                  : "hstu_backward b=2 s=50 d=8 rule=none bias=dense bias_scale=0.5";
        test_case("%s, low %g", line, (double)lows[i % 2]);
        if (!hstu_problem(&problem, line)) continue;
        struct ptl_hstu_params *p = &problem.hstu, masked = *p;
        struct test_random r = {(uint64_t)i + 3};
        const int64_t n = tensor_elements(&p->attn_bias);
        float *kept = test_alloc((size_t)n * sizeof *kept), *x = p->attn_bias.data;
        uint8_t *mask = test_alloc((size_t)n);
        memcpy(kept, x, (size_t)n * sizeof *kept);
        for (int64_t k = 0; k < n; k++) {
            mask[k] = (uint8_t)test_random_int(&r, 0, 1);
            if (!mask[k]) x[k] = lows[i % 2];
        }
        masked = twins_unmasked(&masked);
        masked.attn_bias.data = kept;
        masked.mask = ptl_tensor_contiguous(mask, PTL_U8, 4, p->attn_bias.shape);
        hstu_check_backward(p, &problem.grads);
        struct hstu_grad_floats a = hstu_grad_floats_create(&problem.grads),
                                b = hstu_grad_floats_create(&problem.grads);
        const struct hstu_variant *v;
        for (int w = 0; (v = hstu_variant(w)) != NULL; w++) {
            if (!v->first || !hstu_run_backward(p, &problem.grads, v, &a) ||
                !hstu_run_backward(&masked, &problem.grads, v, &b))
                continue;
            for (int g = 0; g < N_GRADS; g++)
                for (int64_t k = 0; k < a.n[g]; k++)
                    if (a.grad[g][k] != b.grad[g][k]) {
                        FAIL("%s: %s[%lld] is %.9g, by a mask %.9g", v->name, hstu_grad_names[g],
                             (long long)k, (double)a.grad[g][k], (double)b.grad[g][k]);
                        break;
                    }
        }
        hstu_grad_floats_destroy(&a);
        hstu_grad_floats_destroy(&b);
        masked.out = p->out = problem.grads.dout;
        CHECK(twins_distance(p, &masked) == 0.0);
        free(kept);
        free(mask);
        problem_destroy(&problem);
    }
    struct problem tiny, none;
    test_case("a bias of the smallest float");
    if (!hstu_problem(&tiny, "hstu s=60 d=8 bias=dense")) return;
    if (hstu_problem(&none, "hstu s=60 d=8")) {
        for (int64_t k = 0; k < 3600; k++) ((float *)tiny.hstu.attn_bias.data)[k] = 1e-45f;
        hstu_check(&tiny.hstu);
        if (!(twins_distance(&tiny.hstu, &none.hstu) <= 1e-6)) FAIL("it made a difference");
        problem_destroy(&none);
    }
    problem_destroy(&tiny);
}

static const struct test tests[] = {
    {"causal_intervals_are_the_rule", causal_intervals},
    {"rules_as_intervals_and_masks", rules_as_intervals},
    {"tables_spelt_out", tables_spelt_out},
    {"extreme_times", extreme_times},
    {"types_and_broadcasts", types_and_broadcasts},
    {"default_scale_is_alpha", default_scale},
    {"gradient_of_a_broadcast_bias", broadcast_gradient},
    {"biases_as_masks", biases_as_masks},
};
TEST_SUITE(hstu_bias_suite, "hstu/bias", tests);
