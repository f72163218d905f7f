/* The error contract of ptl_hstu_forward, the rows about lengths and options: status, sentence,
 * nothing written. Rows about tensors are in api_hstu_tensors.c. */
#include <math.h>
#include <stdio.h>

#include "api_hstu_fixture.h"
#include "api_suites.h"

static struct api_hstu x;
static struct ptl_hstu_params *const p = &x.p;

/* ---- Lengths --------------------------------------------------------------------------------- */

static void row_10_max_seqlen(void) {
    api_hstu_jagged(&x);
    p->max_seqlen_q = 0;
    api_refused(&x, PTL_ERR_PARAM,
                "max_seqlen_q: 0, expected at least 1 (or -1: the longest sequence)");
    p->max_seqlen_q = -2;
    api_refused(&x, PTL_ERR_PARAM,
                "max_seqlen_q: -2, expected at least 1 (or -1: the longest sequence)");
    api_hstu_jagged(&x);
    p->max_seqlen_k = 0;
    api_refused(&x, PTL_ERR_PARAM,
                "max_seqlen_k: 0, expected at least 1 (or -1: the longest sequence)");
}

static void row_11_longer_than_max_seqlen(void) {
    api_hstu_jagged(&x);
    p->max_seqlen_q = 2;
    api_refused(&x, PTL_ERR_SEQLEN, "max_seqlen_q: 2, but a sequence has 3 rows");
    api_hstu_jagged(&x);
    p->max_seqlen_k = 2;
    api_refused(&x, PTL_ERR_SEQLEN, "max_seqlen_k: 2, but a sequence has 3 rows");
}

static void row_12_offsets(void) {
    api_hstu_jagged(&x);
    x.offsets_q[0] = 1;
    api_refused(&x, PTL_ERR_SEQLEN, "seq_offsets_q: begins with 1, expected 0");
    api_hstu_jagged(&x);
    x.offsets_q[0] = -1;
    api_refused(&x, PTL_ERR_SEQLEN, "seq_offsets_q: begins with -1, expected 0");
    api_hstu_jagged(&x);
    x.offsets_q[2] = 2;
    api_refused(&x, PTL_ERR_SEQLEN, "seq_offsets_q: entry 2 is 2, less than 3 before it");
    x.offsets_q[2] = INT64_MIN;
    api_refused(&x, PTL_ERR_SEQLEN,
                "seq_offsets_q: entry 2 is -9223372036854775808, less than 3 before it");
    x.offsets_q[2] = 6;
    api_refused(&x, PTL_ERR_SEQLEN, "seq_offsets_q: ends with 6, more than the 5 rows");
    x.offsets_q[2] = INT64_MAX;
    api_refused(&x, PTL_ERR_SEQLEN,
                "seq_offsets_q: ends with 9223372036854775807, more than the 5 rows");
    api_hstu_jagged(&x);
    p->seq_offsets_q.shape[0] = 0;
    api_refused(&x, PTL_ERR_SHAPE, "seq_offsets_q: empty, expected B + 1 entries");

    api_hstu_jagged(&x);
    api_give_offsets_k(&x);
    x.offsets_k[0] = 2;
    api_refused(&x, PTL_ERR_SEQLEN, "seq_offsets_k: begins with 2, expected 0");
    x.offsets_k[0] = 0;
    x.offsets_k[1] = 6;
    api_refused(&x, PTL_ERR_SEQLEN, "seq_offsets_k: entry 2 is 5, less than 6 before it");
    x.offsets_k[2] = 7;
    api_refused(&x, PTL_ERR_SEQLEN, "seq_offsets_k: ends with 7, more than the 5 rows");
    api_hstu_jagged(&x);
    p->k.shape[0] = p->v.shape[0] = 4;
    api_refused(&x, PTL_ERR_SEQLEN,
                "k: 4 rows, but seq_offsets_q, which serves for k too, ends with 5");

    api_hstu_jagged(&x);
    x.narrow[1] = 6;
    p->seq_offsets_q = ptl_tensor_contiguous(x.narrow, PTL_I32, 1, (const int64_t[]){3});
    api_refused(&x, PTL_ERR_SEQLEN, "seq_offsets_q: entry 2 is 5, less than 6 before it");

    api_hstu_dense(&x);
    x.offsets_q[1] = 3;
    p->seq_offsets_q = api_index(x.offsets_q, 2);
    api_refused(&x, PTL_ERR_PARAM,
                "seq_offsets_q: given, but 4-axis q is the dense layout, which "
                "takes seqused instead");
    api_hstu_dense(&x);
    api_give_offsets_k(&x);
    api_refused(&x, PTL_ERR_PARAM,
                "seq_offsets_k: given, but 4-axis q is the dense layout, which "
                "takes seqused instead");
}

static void row_19_per_sequence_arrays(void) {
    api_hstu_jagged(&x);
    api_give_contexts(&x, 1, 1);
    p->num_contexts.shape[0] = 3;
    api_refused(&x, PTL_ERR_SHAPE, "num_contexts: 3 on axis 0, expected 2 (number of sequences)");
    api_hstu_jagged(&x);
    api_give_targets(&x, 1, 1);
    p->num_targets.shape[0] = 1;
    api_refused(&x, PTL_ERR_SHAPE, "num_targets: 1 on axis 0, expected 2 (number of sequences)");
    api_hstu_dense(&x);
    api_give_used(&x, 3, 3, 3, 3);
    p->seqused_q.shape[0] = 1;
    api_refused(&x, PTL_ERR_SHAPE, "seqused_q: 1 on axis 0, expected 2 (number of sequences)");
}

static void row_21_contexts_and_targets(void) {
    api_hstu_jagged(&x);
    api_give_contexts(&x, 0, -1);
    api_refused(&x, PTL_ERR_SEQLEN, "num_contexts: -1 for sequence 1, expected 0 or more");
    api_hstu_jagged(&x);
    api_give_targets(&x, -7, 0);
    api_refused(&x, PTL_ERR_SEQLEN, "num_targets: -7 for sequence 0, expected 0 or more");
    api_hstu_jagged(&x);
    x.contexts[0] = -2;
    p->num_contexts = api_number(x.contexts);
    api_refused(&x, PTL_ERR_SEQLEN, "num_contexts: -2 for sequence 0, expected 0 or more");
    api_hstu_jagged(&x);
    api_give_targets(&x, 3, 3);
    api_refused(&x, PTL_ERR_SEQLEN, "num_targets: 3 in sequence 1, more than its 2 keys");
    api_hstu_jagged(&x);
    x.targets[0] = 4;
    p->num_targets = api_number(x.targets);
    api_refused(&x, PTL_ERR_SEQLEN, "num_targets: 4 in sequence 0, more than its 3 keys");
}

static void row_23_more_queries_than_keys(void) {
    api_hstu_jagged(&x);
    api_give_offsets_k(&x);
    x.offsets_k[1] = 2;
    api_refused(&x, PTL_ERR_SEQLEN,
                "q: 3 rows in sequence 0, more than its 2 keys; only window "
                "(-1, -1), mask and intervals take that, without time_table and bias_rows KEY");
    p->window_left = 4;
    p->window_right = -1;
    api_refused(&x, PTL_ERR_SEQLEN,
                "q: 3 rows in sequence 0, more than its 2 keys; only window "
                "(-1, -1), mask and intervals take that, without time_table and bias_rows KEY");
    api_hstu_dense(&x);
    api_give_used(&x, 1, 3, 1, 0);
    api_refused(&x, PTL_ERR_SEQLEN,
                "q: 3 rows in sequence 1, more than its 0 keys; only window "
                "(-1, -1), mask and intervals take that, without time_table and bias_rows KEY");
}

static void row_24_seqused(void) {
    api_hstu_jagged(&x);
    api_give_used(&x, 4, 2, 3, 2);
    api_refused(&x, PTL_ERR_SEQLEN, "seqused_q: 4 for sequence 0, expected 0 to 3");
    api_give_used(&x, 3, -1, 3, 2);
    api_refused(&x, PTL_ERR_SEQLEN, "seqused_q: -1 for sequence 1, expected 0 to 2");
    api_give_used(&x, 3, 2, 3, 3);
    api_refused(&x, PTL_ERR_SEQLEN, "seqused_k: 3 for sequence 1, expected 0 to 2");
    api_hstu_dense(&x);
    api_give_used(&x, 3, 3, 3, 4);
    api_refused(&x, PTL_ERR_SEQLEN, "seqused_k: 4 for sequence 1, expected 0 to 3");
}

/* ---- Mask, rule, scale ----------------------------------------------------------------------- */

static void row_16_mask_shape(void) {
    api_hstu_jagged(&x);
    api_give_mask(&x, 1, 1, 3, 3);
    p->mask.ndim = 3;
    api_refused(&x, PTL_ERR_SHAPE, "mask: 3 axes, expected 4");
    api_give_mask(&x, 3, 1, 3, 3);
    api_refused(&x, PTL_ERR_SHAPE, "mask: 3 on axis 0, expected 2 (number of sequences, or 1)");
    api_give_mask(&x, 2, 2, 3, 3);
    api_refused(&x, PTL_ERR_SHAPE, "mask: 2 on axis 1, expected 4 (heads of q, or 1)");
    api_give_mask(&x, 2, 4, 2, 3);
    api_refused(&x, PTL_ERR_SHAPE, "mask: 2 on axis 2, expected 3 (max_seqlen_q)");
    api_give_mask(&x, 2, 4, 3, 4);
    api_refused(&x, PTL_ERR_SHAPE, "mask: 4 on axis 3, expected 3 (max_seqlen_k)");
    p->max_seqlen_k = 6;
    api_refused(&x, PTL_ERR_SHAPE, "mask: 4 on axis 3, expected 6 (max_seqlen_k)");
}

static void row_17_mask_and_rule(void) {
    api_hstu_jagged(&x);
    api_give_mask(&x, 1, 1, 3, 3);
    api_give_contexts(&x, 0, 0);
    api_refused(&x, PTL_ERR_PARAM,
                "mask: given together with num_contexts; it excludes "
                "the rule's options");
    api_hstu_jagged(&x);
    api_give_mask(&x, 1, 1, 3, 3);
    api_give_targets(&x, 0, 0);
    api_refused(&x, PTL_ERR_PARAM,
                "mask: given together with num_targets; it excludes "
                "the rule's options");
    api_hstu_jagged(&x);
    api_give_mask(&x, 1, 1, 3, 3);
    p->min_full_attn_seq_len = 1;
    api_refused(&x, PTL_ERR_PARAM,
                "mask: given together with min_full_attn_seq_len; "
                "it excludes the rule's options");
    p->min_full_attn_seq_len = 0;
    p->window_left = 0;
    api_refused(&x, PTL_ERR_PARAM,
                "mask: given together with a window; it excludes the rule's options");
    p->window_left = p->window_right = -1;
    api_refused(&x, PTL_ERR_PARAM,
                "mask: given together with a window; it excludes the rule's options");
}

static void row_18_not_causal(void) {
    api_hstu_jagged(&x);
    api_give_contexts(&x, 1, 1);
    p->window_right = 1;
    api_refused(&x, PTL_ERR_PARAM,
                "num_contexts: given with window_right 1, expected window_right 0 (causal)");
    p->window_right = -1;
    api_refused(&x, PTL_ERR_PARAM,
                "num_contexts: given with window_right -1, expected window_right 0 (causal)");
    api_hstu_jagged(&x);
    api_give_targets(&x, 1, 1);
    p->window_right = 2;
    api_refused(&x, PTL_ERR_PARAM,
                "num_targets: given with window_right 2, expected window_right 0 (causal)");
    api_hstu_jagged(&x);
    p->min_full_attn_seq_len = 1;
    p->window_right = -1;
    api_refused(
        &x, PTL_ERR_PARAM,
        "min_full_attn_seq_len: given with window_right -1, expected window_right 0 (causal)");
}

static void row_20_group_size(void) {
    api_hstu_jagged(&x);
    api_give_targets(&x, 1, 1);
    p->target_group_size = 0;
    api_refused(&x, PTL_ERR_PARAM, "target_group_size: 0, expected 1 or more");
    p->target_group_size = -3;
    api_refused(&x, PTL_ERR_PARAM, "target_group_size: -3, expected 1 or more");
}

static void row_22_windows(void) {
    api_hstu_jagged(&x);
    p->window_left = -2;
    api_refused(&x, PTL_ERR_PARAM, "window_left: -2, expected -1 (unlimited) or more");
    api_hstu_jagged(&x);
    p->window_right = -5;
    api_refused(&x, PTL_ERR_PARAM, "window_right: -5, expected -1 (unlimited) or more");
    api_hstu_jagged(&x);
    p->min_full_attn_seq_len = -1;
    api_refused(&x, PTL_ERR_PARAM, "min_full_attn_seq_len: -1, expected 0 or more");
}

static void row_25_scale(void) {
    api_hstu_jagged(&x);
    p->scaling_seqlen = 0;
    api_refused(&x, PTL_ERR_PARAM,
                "scaling_seqlen, attn_scale: neither given, expected exactly one");
    p->scaling_seqlen = -1;
    api_refused(&x, PTL_ERR_PARAM, "scaling_seqlen: -1, expected 1 or more");
    api_hstu_jagged(&x);
    api_give_scale(&x);
    p->scaling_seqlen = 5;
    api_refused(&x, PTL_ERR_PARAM, "scaling_seqlen, attn_scale: both given, expected exactly one");

    api_hstu_jagged(&x);
    p->alpha = NAN;
    api_refused(&x, PTL_ERR_PARAM, "alpha: nan, expected a finite number");
    p->alpha = -INFINITY;
    api_refused(&x, PTL_ERR_PARAM, "alpha: -inf, expected a finite number");

    api_hstu_jagged(&x);
    api_give_scale(&x);
    x.scale[4] = INFINITY;
    api_refused(&x, PTL_ERR_PARAM,
                "attn_scale: inf for row 1 of sequence 1, expected finite numbers");
    api_hstu_dense(&x);
    api_give_scale(&x);
    x.scale[3] = -INFINITY;
    api_refused(&x, PTL_ERR_PARAM,
                "attn_scale: -inf for row 0 of sequence 1, expected finite numbers");
    api_hstu_jagged(&x);
    api_give_scale(&x);
    p->attn_scale.ndim = 0;
    x.scale[0] = INFINITY;
    api_refused(&x, PTL_ERR_PARAM, "attn_scale: inf, expected a finite number");

    api_hstu_jagged(&x);
    api_give_scale(&x);
    p->attn_scale.shape[0] = 4;
    api_refused(&x, PTL_ERR_SHAPE, "attn_scale: 4 on axis 0, expected 5 (rows of q)");
    p->attn_scale = ptl_tensor_contiguous(x.scale, PTL_F32, 2, (const int64_t[]){1, 5});
    api_refused(&x, PTL_ERR_SHAPE, "attn_scale: 2 axes, expected 0 or 1");
    p->attn_scale.ndim = 3;
    api_refused(&x, PTL_ERR_SHAPE, "attn_scale: 3 axes, expected 0 to 2");
    api_hstu_dense(&x);
    api_give_scale(&x);
    p->attn_scale.shape[0] = 1;
    api_refused(&x, PTL_ERR_SHAPE, "attn_scale: 1 on axis 0, expected 2 (B of q)");
    p->attn_scale = ptl_tensor_contiguous(x.scale, PTL_F32, 1, (const int64_t[]){6});
    api_refused(&x, PTL_ERR_SHAPE, "attn_scale: 1 axes, expected 0 or 2");
}

static void struct_size(void) {
    char message[100];
    api_hstu_jagged(&x);
    p->struct_size = 16;
    snprintf(message, sizeof message,
             "params.struct_size: 16, expected %zu; use ptl_hstu_params_init", sizeof *p);
    api_refused(&x, PTL_ERR_PARAM, message);
}

static const struct test tests[] = {
    {"row_10_max_seqlen", row_10_max_seqlen},
    {"row_11_longer_than_max_seqlen", row_11_longer_than_max_seqlen},
    {"row_12_offsets", row_12_offsets},
    {"row_16_mask_shape", row_16_mask_shape},
    {"row_17_mask_and_rule", row_17_mask_and_rule},
    {"row_18_not_causal", row_18_not_causal},
    {"row_19_per_sequence_arrays", row_19_per_sequence_arrays},
    {"row_20_group_size", row_20_group_size},
    {"row_21_contexts_and_targets", row_21_contexts_and_targets},
    {"row_22_windows", row_22_windows},
    {"row_23_more_queries_than_keys", row_23_more_queries_than_keys},
    {"row_24_seqused", row_24_seqused},
    {"row_25_scale", row_25_scale},
    {"struct_size", struct_size},
};
TEST_SUITE(api_hstu_options_suite, "api/hstu", tests);
