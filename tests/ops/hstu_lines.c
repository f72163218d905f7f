/* HSTU forward on problem lines: every pair of options, long sequences, thousands of small random
 * ones. Each is run on every level, thread count and executor and held to the reference
 * (hstu_check.h). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../ref/hstu.h"
#include "hstu_check.h"
#include "op_suites.h"
#include "pairwise.h"

/* ---- Every pair of options ------------------------------------------------------------------- */

enum factor { LAYOUT, LENGTH, MASK, HEADS, DQK, DV, SCALE, N_FACTORS };

static const char *const masks[] = {
    "rule=causal",
    "rule=none",
    "rule=local:7,0",
    "rule=local:0,0",
    "rule=local:3,4",
    "rule=local:-1,5",
    "rule=local:60,-1",
    "num_contexts=random:9",
    "num_targets=random:11",
    "num_targets=random:40 target_group_size=3",
    "num_contexts=4 num_targets=random:20 window_size=9,0",
    "num_targets=random:5 window_size=16,0 min_full_attn_seq_len=10",
    "mask=random",
    "mask=random:0.05 mask_batch=b mask_head=h",
    "mask=causal mask_batch=b",
};
static const char *const layouts[] = {
    "jagged",
    "jagged view=gap index=i32 pad=3",
    "jagged view=uvqk pad=2",
    "jagged view=bhsd index=i32",
    "jagged-delta view=gap",
    "jagged seqused_q=random seqused_k=random pad=1",
    "dense",
    "dense view=bhsd seqused_q=random seqused_k=random index=i32",
    "dense view=uvqk",
    "dense-delta view=gap",
};
static const char *const heads[] = {"h=1", "h=2", "h=4 hk=2", "h=3 hk=1"};
static const char *const scales[] = {"", "attn_scale=token alpha=0.7",
                                     "attn_scale=-0.01 alpha=-0.3", "scaling_seqlen=4096 alpha=1"};
static const int dims[] = {1, 3, 8, 25, 48, 64, 72, 128, 200, 256};
static const int values_dims[] = {0, 1, 17, 64, 200}; /* 0: as Dqk */
/* Around the tiles of 96 keys (AVX-512) and 128 (others), and across several. */
static const int lengths[] = {0, 1, 2, 95, 96, 97, 127, 128, 129, 400};

#define COUNT(list) ((int)(sizeof(list) / sizeof((list)[0])))

static bool is_dense(const char *layout) {
    return strncmp(layout, "dense", 5) == 0;
}

static bool is_delta(const char *layout) {
    return strstr(layout, "-delta") != NULL;
}

static bool goes_together(int fa, int a, int fb, int b) {
    /* one buffer of u, v, q, k has as many heads of each */
    return !(fa == LAYOUT && fb == HEADS && strstr(layouts[a], "uvqk") && strstr(heads[b], "hk"));
}

/* Sequences of the layout whose longest is n. */
static int print_layout(char *line, size_t size, const char *layout, int n) {
    const char *options = layout + strcspn(layout, " ");
    if (is_dense(layout) && is_delta(layout))
        return snprintf(line, size, "layout=dense b=2 sq=%d sk=%d%s", (n + 3) / 4, n, options);
    if (is_dense(layout)) return snprintf(line, size, "layout=dense b=2 s=%d%s", n, options);
    if (is_delta(layout))
        return snprintf(line, size, "lengths=list:%d,0,%d,%d lengths_k=list:%d,3,%d,%d%s",
                        (n + 3) / 4, n / 3, n > 0, n, n / 3, n, options);
    return snprintf(line, size, "lengths=list:%d,%d,0,%d%s", n, n / 3, n > 0, options);
}

static void check_combination(const int *choice) {
    static int index;
    char line[MAX_LINE], layout[256];
    print_layout(layout, sizeof layout, layouts[choice[LAYOUT]], lengths[choice[LENGTH]]);
    const int dqk = dims[choice[DQK]], dv = values_dims[choice[DV]];
    snprintf(line, sizeof line, "hstu %s %s d=%d dv=%d %s %s seed=%d", layout, heads[choice[HEADS]],
             dqk, dv ? dv : dqk, masks[choice[MASK]], scales[choice[SCALE]], ++index);
    test_case("%s", line);
    hstu_check_line(line);
}

/* Quick runs take the first choices of the lists that begin with small ones. */
static void pairs_of_options(void) {
    struct pairwise p = {.n_factors = N_FACTORS, .allowed = goes_together};
    p.n_choices[LAYOUT] = COUNT(layouts);
    p.n_choices[LENGTH] = test_quick() ? 4 : COUNT(lengths);
    p.n_choices[MASK] = COUNT(masks);
    p.n_choices[HEADS] = test_quick() ? 3 : COUNT(heads);
    p.n_choices[DQK] = test_quick() ? 3 : COUNT(dims);
    p.n_choices[DV] = test_quick() ? 3 : COUNT(values_dims);
    p.n_choices[SCALE] = test_quick() ? 2 : COUNT(scales);
    const int n_given_up = pairwise_cover(&p, 1, check_combination);
    if (n_given_up) FAIL("%d pairs of options are in no problem", n_given_up);
}

/* ---- Random small problems ------------------------------------------------------------------- */

static void random_line(struct test_random *r, int seed, char *line, size_t size) {
    const int longest = test_quick() ? 20 : 40;
    char layout[256];
    const char *view = layouts[test_random_int(r, 0, COUNT(layouts) - 1)];
    const char *options = view + strcspn(view, " ");
    const int n = (int)test_random_int(r, 0, longest);
    if (is_dense(view) || is_delta(view)) print_layout(layout, sizeof layout, view, n);
    else
        snprintf(layout, sizeof layout, "b=%d lengths=uniform:0,%d%s",
                 (int)test_random_int(r, 0, 4), n, options);
    const char *head = heads[test_random_int(r, 0, strstr(view, "uvqk") ? 1 : COUNT(heads) - 1)];
    snprintf(line, size, "hstu %s %s d=%d dv=%d %s %s seed=%d", layout, head,
             (int)test_random_int(r, 1, longest), (int)test_random_int(r, 1, longest),
             masks[test_random_int(r, 0, COUNT(masks) - 1)],
             scales[test_random_int(r, 0, COUNT(scales) - 1)], seed);
}

static void random_problems(void) {
    enum { PER_CASE = 100 };
    const int n = test_quick() ? 100 : 4000;
    struct test_random r = {2024};
    for (int i = 0; i < n; i++) {
        char line[MAX_LINE];
        if (i % PER_CASE == 0) test_case("problems %d and on", i);
        random_line(&r, i, line, sizeof line);
        test_note("%s", line);
        hstu_check_line(line);
    }
}

/* ---- Long sequences -------------------------------------------------------------------------- */

/* Some rows of the sequence: the first, the last, and others at random. */
static void compare_rows(const struct ptl_hstu_params *p, const float *out, const char *name) {
    enum { ROWS = 24 };
    struct test_random r = {7};
    const int axis = p->q.ndim - 2;
    const int64_t n_heads = p->q.shape[axis], dv = p->v.shape[axis + 1], uq = ref_hstu_uq(p, 0);
    double *row = test_alloc((size_t)dv * sizeof *row), largest = 0.0, worst = 0.0;
    int64_t worst_row = 0;
    for (int n = 0; n < ROWS; n++) {
        const int64_t i = n == 0 ? 0 : n == 1 ? uq - 1 : test_random_int(&r, 0, uq - 1);
        const int64_t head = test_random_int(&r, 0, n_heads - 1);
        ref_hstu_forward_row(p, 0, head, i, row);
        for (int64_t d = 0; d < dv; d++) {
            const double error = fabs(row[d] - (double)out[(i * n_heads + head) * dv + d]);
            largest = fmax(largest, fabs(row[d]));
            if (!(error <= worst)) {
                worst = error;
                worst_row = i;
            }
        }
    }
    if (!(worst <= HSTU_BOUND * largest))
        FAIL("%s: row %lld is off by %.2g of the largest element", name, (long long)worst_row,
             worst / largest);
    free(row);
}

static void check_long(const char *line) {
    struct problem problem;
    test_case("%s", line);
    if (!hstu_problem(&problem, line)) return;
    const struct ptl_hstu_params *p = &problem.hstu;
    const int64_t n = hstu_out_floats(p);
    float *first = test_alloc((size_t)n * sizeof *first),
          *got = test_alloc((size_t)n * sizeof *got);
    const struct hstu_variant *v;
    for (int i = 0; (v = hstu_variant(i)) != NULL; i++) {
        if (v->first) {
            if (hstu_run(p, v, first)) compare_rows(p, first, v->name);
        } else if (strstr(v->name, "pool of 7")) {
            if (hstu_run(p, v, got) && memcmp(first, got, (size_t)n * sizeof *got) != 0)
                FAIL("%s: not the bits of serial", v->name);
        }
    }
    free(first);
    free(got);
    problem_destroy(&problem);
}

static void long_sequences(void) {
    static const char *const lines[] = {
        "hstu s=5000 d=16 rule=causal",
        "hstu s=5000 d=8 dv=3 rule=none",
        "hstu s=5000 h=2 hk=1 d=20 num_contexts=12 num_targets=300 window_size=1000,0 view=gap",
        "hstu layout=dense s=5000 d=7 mask=random:0.3 attn_scale=token",
        "hstu sq=2000 sk=20480 d=8 rule=causal",
        "hstu s=20480 d=40 num_targets=100 window_size=200,0 min_full_attn_seq_len=64 index=i32",
        "hstu sq=128 sk=20480 h=2 d=64 num_targets=128 target_group_size=3 view=bhsd",
    };
    if (test_quick()) {
        check_long("hstu s=600 d=8 num_contexts=3 num_targets=30 window_size=100,0");
        return;
    }
    for (int i = 0; i < COUNT(lines); i++) check_long(lines[i]);
}

/* ---- One line -------------------------------------------------------------------------------- */

static void one_line(void) {
    test_case("%s", test_line());
    hstu_check_line(test_line());
}

static const struct test tests[] = {
    {"pairs_of_options", pairs_of_options},
    {"random_problems", random_problems},
    {"long_sequences", long_sequences},
    {"line", one_line},
};
TEST_SUITE(hstu_lines_suite, "hstu", tests);
