/* The edge cases of docs/hstu.md that concern the forward call in fp32, one test for each row of
 * the table. NaN behind the mask is in hstu_nonfinite.c, arrays above 2^31 elements in
 * hstu_huge.c. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "guard.h"
#include "hstu_check.h"
#include "op_suites.h"

static void check(const char *line) {
    test_case("%s", line);
    hstu_check_line(line);
}

/* The outputs of a line on one variant, malloc'd; NULL with the case failed. */
static float *run_line(const char *line, const struct hstu_variant *v, int64_t *n) {
    struct problem problem;
    if (!hstu_problem(&problem, line)) return NULL;
    *n = hstu_out_floats(&problem.hstu);
    float *out = test_alloc((size_t)*n * sizeof *out);
    const bool ok = hstu_run(&problem.hstu, v, out);
    problem_destroy(&problem);
    if (ok) return out;
    free(out);
    return NULL;
}

/* Both lines are right, and give the same bits on each level. */
static void check_same(const char *line, const char *other) {
    check(line);
    check(other);
    const struct hstu_variant *v;
    for (int i = 0; (v = hstu_variant(i)) != NULL; i++) {
        int64_t n = 0, n_other = 0;
        if (!v->first) continue;
        float *a = run_line(line, v, &n), *b = run_line(other, v, &n_other);
        if (a && b && (n != n_other || memcmp(a, b, (size_t)n * sizeof *a) != 0))
            FAIL("%s: not the bits of '%s'", v->name, line);
        free(a);
        free(b);
    }
}

/* All outputs are 0 on every variant. */
static void check_zeros(const char *line) {
    check(line);
    const struct hstu_variant *v;
    for (int i = 0; (v = hstu_variant(i)) != NULL; i++) {
        int64_t n = 0;
        float *out = run_line(line, v, &n);
        for (int64_t x = 0; out && x < n; x++)
            if (out[x] != 0.0f) {
                FAIL("%s: out[%lld] is %g, expected 0", v->name, (long long)x, (double)out[x]);
                break;
            }
        free(out);
    }
}

static void empty_sequence(void) {
    check("hstu lengths=list:5,0,3 d=4 num_contexts=list:2,9,1 num_targets=list:1,7,1");
    check("hstu lengths=list:0,0,3,0 d=4 h=2");
    check("hstu lengths=list:0,4 lengths_k=list:6,9 d=4 num_targets=list:50,2");
    check("hstu layout=dense b=3 s=5 d=4 seqused_q=list:0,5,1 seqused_k=list:0,5,3");
}

static void queries_without_keys(void) {
    check_zeros("hstu sq=4 sk=0 d=3 h=2 rule=none");
    check_zeros("hstu layout=dense b=2 sq=4 sk=0 d=3 rule=none");
    check("hstu lengths=list:4,3 lengths_k=list:0,3 d=3 rule=none");
    check_zeros("hstu sq=4 sk=0 d=3 mask=random");
}

static void all_sequences_empty(void) {
    check("hstu lengths=list:0,0,0 d=5");
    check("hstu b=0 lengths=uniform:0,0 d=5");
    check("hstu layout=dense b=0 s=4 d=5");
    check("hstu layout=dense b=3 s=0 d=5");
    check_zeros("hstu lengths=list:0,0 pad=7 d=5"); /* nothing but padding */
}

static void length_one(void) {
    check("hstu s=1 d=7 attn_scale=0.5");
    check("hstu lengths=list:1,1,1,1,1 h=4 hk=2 d=64");
    /* by hand: q = k = 1, 3 of them, alpha = 1: silu(3) v / 2 */
    struct ptl_hstu_params p;
    float q[3] = {1.0f, 1.0f, 1.0f}, v[2] = {4.0f, -1.0f}, out[2], scale = 0.5f, got[2];
    int64_t offsets[2] = {0, 1};
    ptl_hstu_params_init(&p);
    p.q = p.k = ptl_tensor_contiguous(q, PTL_F32, 3, (const int64_t[]){1, 1, 3});
    p.v = ptl_tensor_contiguous(v, PTL_F32, 3, (const int64_t[]){1, 1, 2});
    p.out = ptl_tensor_contiguous(out, PTL_F32, 3, (const int64_t[]){1, 1, 2});
    p.seq_offsets_q = ptl_tensor_contiguous(offsets, PTL_I64, 1, (const int64_t[]){2});
    p.attn_scale = ptl_tensor_contiguous(&scale, PTL_F32, 0, NULL);
    test_case("by hand");
    const double silu3 = 3.0 / (1.0 + exp(-3.0));
    const struct hstu_variant *variant;
    for (int i = 0; (variant = hstu_variant(i)) != NULL; i++)
        if (hstu_run(&p, variant, got) && (fabs((double)got[0] - 2.0 * silu3) > 2e-6 ||
                                           fabs((double)got[1] + 0.5 * silu3) > 1e-6))
            FAIL("%s: %.9g %.9g, expected %.9g %.9g", variant->name, (double)got[0], (double)got[1],
                 2.0 * silu3, -0.5 * silu3);
}

static void only_targets(void) {
    check("hstu lengths=list:9,1,130 d=8 num_targets=list:9,1,130");
    check("hstu lengths=list:9,1,130 d=8 num_targets=list:9,1,130 target_group_size=4");
    check("hstu lengths=list:9,1,130 d=8 num_targets=list:9,1,130 window_size=2,0 num_contexts=3");
}

static void contexts_beyond_history(void) {
    check("hstu lengths=list:9,130 d=8 num_contexts=9 num_targets=3");     /* c >= h */
    check("hstu lengths=list:9,130 d=8 num_contexts=500 num_targets=3");   /* c > uk */
    check("hstu lengths=list:9,130 d=8 num_contexts=500 window_size=4,0"); /* all are contexts */
    check("hstu lengths=list:9,130 d=8 num_contexts=500 num_targets=list:9,130");
}

static void some_without_contexts_or_targets(void) {
    check("hstu lengths=list:20,30,40 d=8 num_contexts=list:0,4,0 num_targets=list:5,0,0");
    check("hstu lengths=list:20,30,40 d=8 num_contexts=list:4,0,4 num_targets=list:0,5,7 "
          "window_size=6,0 target_group_size=2");
}

static void more_targets_than_queries(void) {
    check("hstu lengths=list:3,1 lengths_k=list:40,20 d=8 num_targets=list:10,15");
    check("hstu lengths=list:3,1 lengths_k=list:40,20 d=8 num_targets=list:10,15 "
          "target_group_size=4 num_contexts=2 window_size=5,0");
}

static void window_zero(void) {
    check("hstu s=40 d=8 window_size=0,0");
    check("hstu s=40 d=8 window_size=0,0 num_targets=9 target_group_size=3");
    check("hstu s=40 d=8 window_size=0,0 num_contexts=5");
}

static void window_beyond_sequence(void) {
    check_same("hstu s=150 d=8 rule=causal", "hstu s=150 d=8 window_size=150,0");
    check_same("hstu s=150 d=8 rule=causal num_contexts=3 num_targets=20",
               "hstu s=150 d=8 window_size=1000000,0 num_contexts=3 num_targets=20");
    check_same("hstu s=150 d=8 rule=none", "hstu s=150 d=8 window_size=150,150");
}

static void min_full_beyond_history(void) {
    check_same("hstu s=150 d=8 num_targets=20", "hstu s=150 d=8 num_targets=20 window_size=5,0 "
                                                "min_full_attn_seq_len=130");
    check_same("hstu s=150 d=8", "hstu s=150 d=8 window_size=0,0 min_full_attn_seq_len=4000");
}

static void one_target_group(void) {
    check_same("hstu s=150 d=8 num_targets=20 target_group_size=20",
               "hstu s=150 d=8 num_targets=20 target_group_size=100000");
    check_same("hstu s=60 d=8 rule=causal", "hstu s=60 d=8 num_targets=60 target_group_size=60");
}

static void more_queries_than_keys(void) {
    check("hstu sq=150 sk=7 d=8 h=2 rule=none");
    check("hstu lengths=list:7,200 lengths_k=list:200,7 d=8 rule=none");
    check("hstu sq=150 sk=7 d=8 mask=random");
}

static void scale_or_alpha_zero(void) {
    check_zeros("hstu s=30 d=8 attn_scale=0");
    check_zeros("hstu s=30 d=8 alpha=0");
    check_zeros("hstu s=30 d=8 alpha=0 attn_scale=-2");
}

static void odd_dims(void) {
    static const int dims[] = {1, 3, 5, 17, 72, 200};
    for (int i = 0; i < 6; i++)
        for (int k = 0; k < 6; k++) {
            char line[MAX_LINE];
            snprintf(line, sizeof line, "hstu lengths=list:%s,3 d=%d dv=%d view=gap",
                     test_quick() ? "9" : "61", dims[i], dims[k]);
            check(line);
        }
    check("hstu s=33 d=512 dv=512");
    check("hstu s=9 d=1024 dv=1024");
}

static void offsets_repeat_at_the_end(void) {
    check("hstu lengths=list:5,6,0,0,0,0 d=8 h=2");
    check("hstu lengths=list:0,0,0,6 d=8 h=2 index=i32");
}

static void used_lengths_and_padding(void) {
    check("hstu lengths=list:50,60,3 d=8 h=2 seqused_q=list:0,59,3 seqused_k=list:0,60,3 pad=9");
    check("hstu lengths=list:400,3 d=8 seqused_q=list:1,0 seqused_k=list:2,0 pad=300");
    check("hstu layout=dense b=2 s=300 d=8 h=2 seqused_q=list:7,0 seqused_k=list:7,0 view=bhsd");
}

/* One row of q and three keys of size 1, so that the scores are q * k. */
static void check_scores(float q, const float k[3], const float v[3], double expected) {
    struct ptl_hstu_params p;
    float out, got, scale = 1.0f;
    int64_t offsets_q[2] = {0, 1}, offsets_k[2] = {0, 3};
    ptl_hstu_params_init(&p);
    p.q = ptl_tensor_contiguous(&q, PTL_F32, 3, (const int64_t[]){1, 1, 1});
    p.k = ptl_tensor_contiguous((void *)k, PTL_F32, 3, (const int64_t[]){3, 1, 1});
    p.v = ptl_tensor_contiguous((void *)v, PTL_F32, 3, (const int64_t[]){3, 1, 1});
    p.out = ptl_tensor_contiguous(&out, PTL_F32, 3, (const int64_t[]){1, 1, 1});
    p.seq_offsets_q = ptl_tensor_contiguous(offsets_q, PTL_I64, 1, (const int64_t[]){2});
    p.seq_offsets_k = ptl_tensor_contiguous(offsets_k, PTL_I64, 1, (const int64_t[]){2});
    p.attn_scale = ptl_tensor_contiguous(&scale, PTL_F32, 0, NULL);
    test_case("q %g, k %g %g %g, v %g %g %g", (double)q, (double)k[0], (double)k[1], (double)k[2],
              (double)v[0], (double)v[1], (double)v[2]);
    const struct hstu_variant *variant;
    for (int i = 0; (variant = hstu_variant(i)) != NULL; i++)
        if (hstu_run(&p, variant, &got) &&
            !(isnan(expected)   ? isnan(got)
              : isinf(expected) ? (double)got == expected
                                : fabs((double)got - expected) <= 1e-6 * fabs(expected)))
            FAIL("%s: %g, expected %g", variant->name, (double)got, expected);
}

static double silu(double x) {
    return x / (1.0 + exp(-x));
}

static void scores_not_finite(void) {
    const float ones[3] = {1.0f, 1.0f, 1.0f};
    const double rest = 2.0 * silu(1.0);
    check_scores(1.0f, (const float[3]){-INFINITY, 1.0f, 1.0f}, ones, rest);
    check_scores(-INFINITY, ones, ones, 0.0);
    check_scores(1.0f, (const float[3]){INFINITY, 1.0f, 1.0f}, ones, INFINITY);
    check_scores(1.0f, (const float[3]){INFINITY, 1.0f, 1.0f}, (const float[3]){-2.0f, 1.0f, 1.0f},
                 -INFINITY);
    check_scores(1.0f, (const float[3]){NAN, 1.0f, 1.0f}, ones, NAN);
    check_scores(1.0f, (const float[3]){INFINITY, 1.0f, 1.0f}, (const float[3]){0.0f, 1.0f, 1.0f},
                 NAN);
    check_scores(1.0f, ones, (const float[3]){1.0f, INFINITY, 1.0f}, INFINITY);
    check_scores(1.0f, ones, (const float[3]){1.0f, INFINITY, -INFINITY}, NAN);
    check_scores(1.0f, ones, (const float[3]){1.0f, 1.0f, NAN}, NAN);
}

static void overflow_of_qk(void) {
    const float ones[3] = {1.0f, 1.0f, 1.0f};
    check_scores(1e30f, (const float[3]){1e30f, 0.0f, 0.0f}, ones, INFINITY);
    check_scores(1e30f, (const float[3]){-1e30f, 1e-30f, 0.0f}, ones, silu(1.0));
    check_scores(1e20f, (const float[3]){1e10f, 0.0f, 0.0f}, ones, 1e30); /* no overflow yet */
    check_scores(1e20f, (const float[3]){-1e10f, 1e-20f, 0.0f}, ones, silu(1.0));
}

static const struct test tests[] = {
    {"empty_sequence", empty_sequence},
    {"queries_without_keys", queries_without_keys},
    {"all_sequences_empty", all_sequences_empty},
    {"length_one", length_one},
    {"only_targets", only_targets},
    {"contexts_beyond_history", contexts_beyond_history},
    {"some_without_contexts_or_targets", some_without_contexts_or_targets},
    {"more_targets_than_queries", more_targets_than_queries},
    {"window_zero", window_zero},
    {"window_beyond_sequence", window_beyond_sequence},
    {"min_full_beyond_history", min_full_beyond_history},
    {"one_target_group", one_target_group},
    {"more_queries_than_keys", more_queries_than_keys},
    {"scale_or_alpha_zero", scale_or_alpha_zero},
    {"odd_dims", odd_dims},
    {"offsets_repeat_at_the_end", offsets_repeat_at_the_end},
    {"used_lengths_and_padding", used_lengths_and_padding},
    {"scores_not_finite", scores_not_finite},
    {"overflow_of_qk", overflow_of_qk},
};
TEST_SUITE(hstu_edges_suite, "hstu/edges", tests);
