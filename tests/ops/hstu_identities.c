/* What must come out the same bit for bit however it is asked for: a sequence in any batch, rows in
 * any number of calls, heads together or alone, any layout, the rule or the mask that it means. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../ref/hstu.h"
#include "hstu_check.h"
#include "hstu_part.h"
#include "op_suites.h"

/* Every option of the mask, over sequences on both sides of tiles and panels. */
static const char *const rules[] = {
    "rule=causal",
    "rule=none",
    "rule=local:20,0",
    "rule=local:9,30",
    "rule=local:-1,3",
    "rule=local:50,-1",
    "num_contexts=random:40",
    "num_targets=random:60 target_group_size=4",
    "num_contexts=7 num_targets=random:30 window_size=33,0",
    "num_targets=random:20 window_size=25,0 min_full_attn_seq_len=17",
    "mask=random mask_batch=b mask_head=h",
    "mask=random:0.02 attn_scale=token",
};
/* Products of floats, and where a level has them of bf16 pairs. */
static const char *const types[] = {"f32", "bf16"};
static const char batch[] = "lengths=list:150,1,0,37,300,96";
static const char small_batch[] = "lengths=list:19,1,0,7";

#define COUNT(list) ((int)(sizeof(list) / sizeof((list)[0])))

/* The part of a problem on every level against the whole, within the current case. */
static void check_part(const struct ptl_hstu_params *whole, const struct hstu_selection *s) {
    struct hstu_part part;
    hstu_part_create(&part, whole, s);
    float *whole_out = test_alloc((size_t)hstu_out_floats(whole) * sizeof *whole_out);
    float *part_out = test_alloc((size_t)hstu_out_floats(&part.p) * sizeof *part_out);
    const struct hstu_variant *v;
    for (int i = 0; (v = hstu_variant(i)) != NULL; i++) {
        if (!v->first) continue;
        if (!hstu_run(whole, v, whole_out) || !hstu_run(&part.p, v, part_out)) break;
        hstu_part_compare(&part, part_out, whole, whole_out, s, v->name);
    }
    free(whole_out);
    free(part_out);
    hstu_part_destroy(&part);
}

/* Calls check for a problem of every rule and both types, as a case each; `rest` completes the
 * line. */
static void each_rule(const char *rest, void (*check)(const struct ptl_hstu_params *p)) {
    for (int i = 0; i < 2 * COUNT(rules); i++) {
        struct problem problem;
        char line[MAX_LINE];
        snprintf(line, sizeof line, "hstu %s %s dtype=%s", rules[i / 2], rest, types[i % 2]);
        test_case("%s", line);
        if (!hstu_problem(&problem, line)) continue;
        check(&problem.hstu);
        problem_destroy(&problem);
    }
}

static void each_rule_of_batch(const char *rest, void (*check)(const struct ptl_hstu_params *p)) {
    char all[MAX_LINE];
    snprintf(all, sizeof all, "%s %s", test_quick() ? small_batch : batch, rest);
    each_rule(all, check);
}

/* ---- Rows ------------------------------------------------------------------------------------ */

static void last_rows_alone(const struct ptl_hstu_params *p) {
    static const int64_t counts[] = {1, 2, 13, 40, 97, 149};
    for (int i = 0; i < (test_quick() ? 3 : COUNT(counts)); i++)
        check_part(p, &(struct hstu_selection){.last_rows = counts[i], .head = -1});
}

/* uq < uk: the call for the last rows gives the last rows of the call for all. */
static void delta_q(void) {
    each_rule_of_batch("h=2 d=24 dv=9", last_rows_alone);
}

/* With a dense mask any rows may be asked for: row by row is as all at once. */
static void each_row_alone(const char *type) {
    struct problem problem;
    char line[MAX_LINE];
    snprintf(line, sizeof line, "hstu s=70 d=12 mask=random:0.03 attn_scale=token dtype=%s seed=3",
             type);
    test_case("%s", line);
    if (!hstu_problem(&problem, line)) return;
    const struct ptl_hstu_params *p = &problem.hstu;
    const int64_t dv = p->v.shape[2];
    float *whole_out = test_alloc((size_t)hstu_out_floats(p) * sizeof *whole_out);
    float *row_out = test_alloc((size_t)dv * sizeof *row_out);
    const struct hstu_variant *v;
    for (int i = 0; (v = hstu_variant(i)) != NULL; i++) {
        if (!v->first || !hstu_run(p, v, whole_out)) continue;
        for (int64_t row = 0; row < p->q.shape[0]; row++) {
            const int64_t offsets_q[2] = {0, 1}, offsets_k[2] = {0, p->k.shape[0]}, two = 2;
            struct ptl_hstu_params one = *p;
            one.q.data =
                (char *)p->q.data + row * p->q.stride[0] * (int64_t)ptl_dtype_bytes(p->q.dtype);
            one.attn_scale.data = (float *)p->attn_scale.data + row;
            one.mask.data = (uint8_t *)p->mask.data + row * p->mask.stride[2];
            one.q.shape[0] = one.out.shape[0] = one.attn_scale.shape[0] = one.mask.shape[2] = 1;
            one.seq_offsets_q = ptl_tensor_contiguous((void *)offsets_q, PTL_I64, 1, &two);
            one.seq_offsets_k = ptl_tensor_contiguous((void *)offsets_k, PTL_I64, 1, &two);
            if (hstu_run(&one, v, row_out) &&
                memcmp(row_out, whole_out + row * dv, (size_t)dv * sizeof(float)) != 0)
                FAIL("%s: row %lld alone has other bits than among the others", v->name,
                     (long long)row);
        }
    }
    free(whole_out);
    free(row_out);
    problem_destroy(&problem);
}

static void rows_one_by_one(void) {
    for (int i = 0; i < COUNT(types); i++) each_row_alone(types[i]);
}

/* ---- Sequences ------------------------------------------------------------------------------- */

static void each_sequence_alone(const struct ptl_hstu_params *p) {
    for (int64_t b = 0; b < ref_hstu_n_seqs(p); b++)
        check_part(p, &(struct hstu_selection){.seqs = &b, .n_seqs = 1, .head = -1});
}

static void sequence_alone(void) {
    each_rule_of_batch("h=2 hk=1 d=16", each_sequence_alone);
}

static void reversed_and_twice(const struct ptl_hstu_params *p) {
    int64_t order[16], n = 0;
    for (int64_t b = ref_hstu_n_seqs(p) - 1; b >= 0; b--) order[n++] = b;
    check_part(p, &(struct hstu_selection){.seqs = order, .n_seqs = n, .head = -1});
    order[n++] = 0; /* the longest again, at the end */
    check_part(p, &(struct hstu_selection){.seqs = order, .n_seqs = n, .head = -1});
}

static void permuted_batch(void) {
    each_rule_of_batch("h=1 d=33 dv=5", reversed_and_twice);
}

/* ---- Heads ----------------------------------------------------------------------------------- */

static void each_head_alone(const struct ptl_hstu_params *p) {
    for (int64_t head = 0; head < p->q.shape[p->q.ndim - 2]; head++)
        check_part(p, &(struct hstu_selection){.head = head});
}

static void heads_alone(void) {
    each_rule_of_batch("h=6 hk=2 d=20 dv=11", each_head_alone);
}

/* Many short users: their heads are computed together, tile by tile. */
static void short_users(void) {
    each_rule("lengths=list:41,1,0,7,90,33,2,64,5,28 h=6 hk=3 d=20 dv=11", each_head_alone);
}

/* 17 MiB of out, of which the 8.5 of a head are below what is written past the caches. */
static void large_output(void) {
    struct problem problem;
    test_case("b=430 lengths=uniform:1,41 h=2 d=4 dv=256");
    if (!hstu_problem(&problem, "hstu b=430 lengths=uniform:1,41 h=2 d=4 dv=256")) return;
    CHECK(hstu_out_floats(&problem.hstu) > 4 << 20);
    each_head_alone(&problem.hstu);
    problem_destroy(&problem);
}

/* ---- Layouts --------------------------------------------------------------------------------- */

static void as_plain_jagged(const struct ptl_hstu_params *p) {
    check_part(p, &(struct hstu_selection){.head = -1});
}

static void dense_is_jagged(void) {
    each_rule(test_quick() ? "layout=dense b=2 s=17 h=2 d=5" : "layout=dense b=3 s=131 h=2 d=40",
              as_plain_jagged);
    each_rule(test_quick() ? "layout=dense b=2 s=9 d=5 view=bhsd seqused_q=random seqused_k=random"
                           : "layout=dense b=4 s=90 h=3 d=21 dv=64 view=bhsd seqused_q=random "
                             "seqused_k=random index=i32",
              as_plain_jagged);
}

static void uvqk_slices(void) {
    each_rule_of_batch("h=3 d=25 dv=40 view=uvqk pad=3", as_plain_jagged);
}

static void gaps_between_rows(void) {
    each_rule_of_batch("h=2 d=31 view=gap index=i32", as_plain_jagged);
}

static void seqused_truncates(void) {
    each_rule_of_batch("h=2 d=16 seqused_q=random seqused_k=random pad=5", as_plain_jagged);
}

/* ---- Masks ----------------------------------------------------------------------------------- */

static void rule_as_mask(const struct ptl_hstu_params *p) {
    if (p->mask.data) return; /* of these there is nothing to check here */
    check_part(p, &(struct hstu_selection){.head = -1, .rule_as_mask = true});
}

static void mask_is_rule(void) {
    each_rule_of_batch("h=2 hk=1 d=18", rule_as_mask);
}

static const struct test tests[] = {
    {"delta_q_is_last_rows", delta_q},
    {"rows_one_by_one", rows_one_by_one},
    {"sequence_alone_is_sequence_in_batch", sequence_alone},
    {"permuted_batch", permuted_batch},
    {"heads_alone_are_heads_in_group", heads_alone},
    {"heads_alone_are_heads_side_by_side", short_users},
    {"heads_alone_are_heads_of_large_output", large_output},
    {"dense_is_jagged", dense_is_jagged},
    {"uvqk_slices_are_contiguous", uvqk_slices},
    {"gaps_between_rows", gaps_between_rows},
    {"seqused_is_truncated", seqused_truncates},
    {"mask_of_rule_is_rule", mask_is_rule},
};
TEST_SUITE(hstu_identities_suite, "hstu/identities", tests);
