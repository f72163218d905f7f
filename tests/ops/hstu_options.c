/* Halves, intervals, biases, tables, pages and gradients on problem lines: every pair of options,
 * thousands of small random ones. The options of the rule alone, in f32, are hstu_lines.c. */
#include <stdio.h>
#include <string.h>

#include "hstu_check.h"
#include "op_suites.h"
#include "pairwise.h"

enum factor { LAYOUT, LENGTH, MASK, BIAS, DTYPE, HEADS, DIMS, SCALE, N_FACTORS };

static const char *const layouts[] = {
    "jagged",
    "jagged view=gap index=i32 pad=3",
    "jagged view=uvqk pad=2",
    "jagged view=bhsd",
    "jagged-delta view=gap",
    "jagged seqused_q=random seqused_k=random pad=1 index=i32",
    "dense",
    "dense view=bhsd seqused_q=random seqused_k=random index=i32",
    "dense view=uvqk",
    "dense-delta view=gap",
    /* forward only */
    "paged page_size=1",
    "paged page_size=3 view=gap index=i32 pad=4",
    "paged page_size=16 view=bhsd",
    "paged page_size=64 seqused_q=random",
    "paged page_size=128 view=uvqk index=i32",
};
enum { N_UNPAGED = 10 };
static const char *const masks[] = {
    "intervals=causal",
    "intervals=1",
    "intervals=4",
    "intervals=0",
    "rule=causal",
    "rule=none",
    "rule=local:7,0",
    "rule=local:3,4",
    "rule=local:60,-1",
    "num_targets=random:40 target_group_size=3",
    "num_contexts=4 num_targets=random:20 window_size=9,0",
    "num_targets=random:5 window_size=16,0 min_full_attn_seq_len=10",
    "mask=random:0.05 mask_batch=b mask_head=h",
    "mask=causal mask_batch=b",
};
static const char *const biases[] = {
    "",
    "bias=dense",
    "pos_table=1",
    "time_table=1 thresholds=128",
    "bias=dense bias_batch=b bias_head=h bias_rows=key",
    "bias=dense bias_head=h bias_dtype=same bias_scale=-0.7",
    "bias=dense bias_batch=b bias_rows=key bias_dtype=same",
    "pos_table=h bias_scale=0.5",
    "time_table=h thresholds=5 time_query=own times=random",
    "time_table=1 thresholds=0 time_query=own",
    "pos_table=h time_table=h times=random",
    "bias=dense bias_batch=b pos_table=1 time_table=h time_query=own bias_scale=0",
    "bias=dense bias_head=h pos_table=1 time_table=1",
};
static const char *const dtypes[] = {"dtype=f32", "dtype=bf16", "dtype=f16"};
static const char *const heads[] = {"h=1", "h=2", "h=4 hk=2", "h=3 hk=1"};
static const char *const scales[] = {"", "attn_scale=token alpha=0.7",
                                     "attn_scale=-0.01 alpha=-0.3", "scaling_seqlen=4096 alpha=1"};
static const int dims[][2] = {{3, 3},   {1, 17}, {8, 8},    {25, 64},
                              {64, 64}, {72, 1}, {128, 33}, {200, 200}};
/* Around the tiles of 96 keys (AVX-512) and 128 (others), and the blocks of 64 to 192 rows. */
static const int lengths[] = {0, 1, 17, 95, 97, 128, 129, 193, 300};

#define COUNT(list) ((int)(sizeof(list) / sizeof((list)[0])))

static bool is_dense(const char *layout) {
    return strncmp(layout, "dense", 5) == 0;
}

static bool is_paged(const char *layout) {
    return strncmp(layout, "paged", 5) == 0;
}

static bool is_delta(const char *layout) {
    return strstr(layout, "-delta") != NULL;
}

static bool goes_together(int fa, int a, int fb, int b) {
    if (fa != LAYOUT) return true;
    if (fb == HEADS) return !(strstr(layouts[a], "uvqk") && strstr(heads[b], "hk"));
    if (fb == DIMS) return !is_paged(layouts[a]) || dims[b][0] == dims[b][1];
    return true;
}

/* Sequences of the layout whose longest is n. */
static int print_layout(char *line, size_t size, const char *layout, int n) {
    const char *options = layout + strcspn(layout, " ");
    if (is_dense(layout) && is_delta(layout))
        return snprintf(line, size, "layout=dense b=2 sq=%d sk=%d%s", (n + 3) / 4, n, options);
    if (is_dense(layout)) return snprintf(line, size, "layout=dense b=2 s=%d%s", n, options);
    if (is_delta(layout) || is_paged(layout))
        return snprintf(line, size, "lengths=list:%d,0,%d,%d lengths_k=list:%d,3,%d,%d%s",
                        (n + 3) / 4, n / 3, n > 0, n, n / 3, n, options);
    return snprintf(line, size, "lengths=list:%d,%d,0,%d%s", n, n / 3, n > 0, options);
}

/* Paged keys take targets with any mask. */
static const char *extra_targets(const char *layout, const char *mask) {
    return is_paged(layout) && (*mask == 'm' || *mask == 'i') ? "num_targets=random:7" : "";
}

static const char *op; /* of the lines now */

static void check_combination(const int *choice) {
    static int index;
    char line[MAX_LINE], layout[256];
    const char *mask = masks[choice[MASK]];
    print_layout(layout, sizeof layout, layouts[choice[LAYOUT]], lengths[choice[LENGTH]]);
    index++;
    snprintf(line, sizeof line, "%s %s %s %s d=%d dv=%d %s %s %s %s%s seed=%d", op, layout,
             heads[choice[HEADS]], dtypes[choice[DTYPE]], dims[choice[DIMS]][0],
             dims[choice[DIMS]][1], mask, extra_targets(layouts[choice[LAYOUT]], mask),
             biases[choice[BIAS]], scales[choice[SCALE]],
             strcmp(op, "hstu") != 0 && index % 2 ? " ds=1" : "", index);
    test_case("%s", line);
    hstu_check_line(line);
}

/* The choices in quick runs are the first few of some lists. */
static void pairs_of(const char *operator, int n_layouts) {
    struct pairwise p = {.n_factors = N_FACTORS, .allowed = goes_together};
    op = operator;
    p.n_choices[LAYOUT] = n_layouts;
    p.n_choices[LENGTH] = test_quick() ? 3 : COUNT(lengths);
    p.n_choices[MASK] = test_quick() ? 5 : COUNT(masks);
    p.n_choices[BIAS] = test_quick() ? 5 : COUNT(biases);
    p.n_choices[DTYPE] = COUNT(dtypes);
    p.n_choices[HEADS] = test_quick() ? 3 : COUNT(heads);
    p.n_choices[DIMS] = test_quick() ? 3 : COUNT(dims);
    p.n_choices[SCALE] = test_quick() ? 2 : COUNT(scales);
    const int n_given_up = pairwise_cover(&p, 1, check_combination);
    if (n_given_up) FAIL("%d pairs of options are in no problem", n_given_up);
}

static void pairs_forward(void) {
    pairs_of("hstu", COUNT(layouts));
}
static void pairs_backward(void) {
    pairs_of("hstu_backward", N_UNPAGED);
}

/* ---- Random small problems ------------------------------------------------------------------- */

static const char *one_of(struct test_random *r, const char *const *list, int n) {
    return list[test_random_int(r, 0, n - 1)];
}

static void random_line(struct test_random *r, int seed, int n_layouts, char *line, size_t size) {
    const int longest = test_quick() ? 15 : 30;
    char layout[256];
    const char *view = one_of(r, layouts, n_layouts), *mask = one_of(r, masks, COUNT(masks));
    const char *options = view + strcspn(view, " ");
    const int n = (int)test_random_int(r, 0, longest), d = (int)test_random_int(r, 1, longest);
    if (is_dense(view) || is_delta(view)) print_layout(layout, sizeof layout, view, n);
    else
        snprintf(layout, sizeof layout, "b=%d lengths=uniform:0,%d%s%s",
                 (int)test_random_int(r, 0, 4), n, is_paged(view) ? " lengths_k=uniform:0,40" : "",
                 options);
    snprintf(line, size, "%s %s %s %s d=%d dv=%d %s %s %s %s%s seed=%d", op, layout,
             one_of(r, heads, strstr(view, "uvqk") ? 2 : COUNT(heads)),
             one_of(r, dtypes, COUNT(dtypes)), d,
             is_paged(view) ? d : (int)test_random_int(r, 1, longest), mask,
             extra_targets(view, mask), one_of(r, biases, COUNT(biases)),
             one_of(r, scales, COUNT(scales)),
             strcmp(op, "hstu") != 0 && test_random_int(r, 0, 1) ? " ds=1" : "", seed);
}

static void random_of(const char *operator, int n, int n_layouts) {
    enum { PER_CASE = 100 };
    struct test_random r = {2025};
    op = operator;
    for (int i = 0; i < n; i++) {
        char line[MAX_LINE];
        if (i % PER_CASE == 0) test_case("problems %d and on", i);
        random_line(&r, i, n_layouts, line, sizeof line);
        test_note("%s", line);
        hstu_check_line(line);
    }
}

static void random_forward(void) {
    random_of("hstu", test_quick() ? 100 : 3000, COUNT(layouts));
}
static void random_backward(void) {
    random_of("hstu_backward", test_quick() ? 100 : 2000, N_UNPAGED);
}

static const struct test tests[] = {
    {"pairs_of_options", pairs_forward},
    {"random_problems", random_forward},
    {"backward_pairs_of_options", pairs_backward},
    {"backward_random_problems", random_backward},
};
TEST_SUITE(hstu_options_suite, "hstu/options", tests);
