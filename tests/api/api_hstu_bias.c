/* The error contract of the HSTU calls, the rows about intervals, biases, tables and pages: status,
 * sentence, nothing written. And what looks odd and is right. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "api_hstu_fixture.h"
#include "api_suites.h"

static struct api_hstu x;
static struct ptl_hstu_params *const p = &x.p;

/* ---- Intervals ------------------------------------------------------------------------------- */

static void row_16_intervals(void) {
    api_hstu_jagged(&x);
    api_give_intervals(&x);
    p->intervals.ndim = 3;
    api_refused(&x, PTL_ERR_SHAPE, "intervals: 3 axes, expected 2");
    p->intervals.ndim = 1;
    api_refused(&x, PTL_ERR_SHAPE, "intervals: 1 axes, expected 2");
    api_hstu_dense(&x);
    api_give_intervals(&x);
    p->intervals.ndim = 2;
    api_refused(&x, PTL_ERR_SHAPE, "intervals: 2 axes, expected 3");
    api_give_intervals(&x);
    p->intervals.shape[0] = 1;
    api_refused(&x, PTL_ERR_SHAPE, "intervals: 1 on axis 0, expected 2 (B of q)");
    p->intervals.shape[0] = 2;
    p->intervals.shape[1] = 2;
    api_refused(&x, PTL_ERR_SHAPE, "intervals: 2 on axis 1, expected 3 (rows of q)");
    api_hstu_jagged(&x);
    api_give_intervals(&x);
    p->intervals.shape[0] = 4;
    api_refused(&x, PTL_ERR_SHAPE, "intervals: 4 on axis 0, expected 5 (rows of q)");
    api_give_intervals(&x);
    p->intervals.shape[1] = 3;
    api_refused(&x, PTL_ERR_SHAPE,
                "intervals: 3 on the last axis, expected an even number (pairs)");
    api_give_intervals(&x);
    p->intervals.dtype = PTL_F32;
    api_refused(&x, PTL_ERR_DTYPE, "intervals: f32, expected i32 or i64");
    api_give_intervals(&x);
    p->intervals.stride[1] = 2;
    api_refused(&x, PTL_ERR_LAYOUT, "intervals: stride 2 on the last axis, expected 1");
    api_give_intervals(&x);
    p->intervals.stride[0] = INT64_MAX / 4;
    api_refused(&x, PTL_ERR_OVERFLOW, "intervals: extents times strides exceed 64 bits");
}

static void row_17_intervals_and_others(void) {
    api_hstu_jagged(&x);
    api_give_intervals(&x);
    api_give_mask(&x, 1, 1, 3, 3);
    api_refused(&x, PTL_ERR_PARAM, "intervals: given together with mask, expected one of them");
    api_hstu_jagged(&x);
    api_give_intervals(&x);
    api_give_contexts(&x, 0, 0);
    api_refused(&x, PTL_ERR_PARAM,
                "intervals: given together with num_contexts; it excludes the rule's options");
    api_hstu_jagged(&x);
    api_give_intervals(&x);
    api_give_targets(&x, 0, 0);
    api_refused(&x, PTL_ERR_PARAM,
                "intervals: given together with num_targets; it excludes the rule's options");
    api_hstu_jagged(&x);
    api_give_intervals(&x);
    p->min_full_attn_seq_len = 3;
    api_refused(
        &x, PTL_ERR_PARAM,
        "intervals: given together with min_full_attn_seq_len; it excludes the rule's options");
    p->min_full_attn_seq_len = 0;
    p->window_right = -1;
    api_refused(&x, PTL_ERR_PARAM,
                "intervals: given together with a window; it excludes the rule's options");
}

/* ---- Dense bias ------------------------------------------------------------------------------ */

static void row_13_bias(void) {
    api_hstu_jagged(&x);
    api_give_bias(&x, 1, 1, 3, 3);
    p->attn_bias.ndim = 3;
    api_refused(&x, PTL_ERR_SHAPE, "attn_bias: 3 axes, expected 4");
    api_give_bias(&x, 3, 1, 3, 3);
    api_refused(&x, PTL_ERR_SHAPE,
                "attn_bias: 3 on axis 0, expected 2 (number of sequences, or 1)");
    api_give_bias(&x, 2, 2, 3, 3);
    api_refused(&x, PTL_ERR_SHAPE, "attn_bias: 2 on axis 1, expected 4 (heads of q, or 1)");
    api_give_bias(&x, 2, 4, 2, 3);
    api_refused(&x, PTL_ERR_SHAPE, "attn_bias: 2 on axis 2, expected 3 (max_seqlen_q)");
    api_give_bias(&x, 2, 4, 3, 4);
    api_refused(&x, PTL_ERR_SHAPE, "attn_bias: 4 on axis 3, expected 3 (max_seqlen_k)");
    p->max_seqlen_k = 6;
    api_refused(&x, PTL_ERR_SHAPE, "attn_bias: 4 on axis 3, expected 6 (max_seqlen_k)");
    api_hstu_jagged(&x);
    api_give_bias(&x, 1, 1, 4, 3);
    p->bias_rows = PTL_HSTU_BIAS_KEY;
    api_refused(&x, PTL_ERR_SHAPE, "attn_bias: 4 on axis 2, expected 3 (max_seqlen_k)");
    p->bias_rows = (enum ptl_hstu_bias_rows)2;
    api_refused(&x, PTL_ERR_PARAM, "bias_rows: 2, expected 0 or 1");
    api_hstu_jagged(&x);
    api_give_bias(&x, 1, 1, 3, 3);
    p->attn_bias.stride[3] = 2;
    api_refused(&x, PTL_ERR_LAYOUT, "attn_bias: stride 2 on the last axis, expected 1");
    api_give_bias(&x, 1, 1, 3, 3);
    p->attn_bias.stride[2] = INT64_MIN / 4;
    api_refused(&x, PTL_ERR_OVERFLOW, "attn_bias: extents times strides exceed 64 bits");
    api_give_bias(&x, 1, 1, 3, 3);
    p->attn_bias.data = x.out + 90;
    api_refused(&x, PTL_ERR_ALIAS, "out: overlaps attn_bias, expected memory of its own");
}

static void row_8_bias_type(void) {
    api_hstu_jagged(&x);
    api_give_bias(&x, 1, 1, 3, 3);
    p->attn_bias.dtype = PTL_F16;
    api_refused(&x, PTL_ERR_DTYPE, "attn_bias: f16, expected f32 or the type of q");
    p->attn_bias.dtype = PTL_U8;
    api_refused(&x, PTL_ERR_DTYPE, "attn_bias: u8, expected f32 or the type of q");
    p->q.dtype = p->k.dtype = p->v.dtype = p->out.dtype = PTL_F16;
    p->attn_bias.dtype = PTL_BF16;
    api_refused(&x, PTL_ERR_DTYPE, "attn_bias: bf16, expected f32 or the type of q");
}

static void row_25_bias_scale(void) {
    api_hstu_jagged(&x);
    p->bias_scale = INFINITY;
    api_refused(&x, PTL_ERR_PARAM, "bias_scale: inf, expected a finite number");
    api_give_bias(&x, 1, 1, 3, 3);
    p->bias_scale = -INFINITY;
    api_refused(&x, PTL_ERR_PARAM, "bias_scale: -inf, expected a finite number");
}

/* Rows by key position need a position for every query. */
static void row_23_bias_rows_by_key(void) {
    api_hstu_jagged(&x);
    api_give_offsets_k(&x);
    x.offsets_k[1] = 2;
    p->window_right = -1;
    api_give_bias(&x, 1, 1, 3, 3);
    api_accepted(&x);
    p->bias_rows = PTL_HSTU_BIAS_KEY;
    api_refused(&x, PTL_ERR_SEQLEN,
                "q: 3 rows in sequence 0, more than its 2 keys; only window (-1, -1), mask and "
                "intervals take that, without time_table and bias_rows KEY");
}

/* ---- Tables ---------------------------------------------------------------------------------- */

static void position_table(void) {
    api_hstu_jagged(&x);
    api_give_pos_table(&x);
    p->pos_table.ndim = 3;
    api_refused(&x, PTL_ERR_SHAPE, "pos_table: 3 axes, expected 1 to 2");
    p->pos_table.ndim = 0;
    api_refused(&x, PTL_ERR_SHAPE, "pos_table: 0 axes, expected 1 to 2");
    api_give_pos_table(&x);
    p->pos_table.dtype = PTL_BF16;
    api_refused(&x, PTL_ERR_DTYPE, "pos_table: bf16, expected f32");
    p->pos_table = ptl_tensor_contiguous(x.pos_table, PTL_F32, 2, (const int64_t[]){2, 7});
    api_refused(&x, PTL_ERR_SHAPE, "pos_table: 2 on axis 0, expected 4 (heads of q)");
    api_give_pos_table(&x);
    p->pos_table.shape[0] = 6;
    api_refused(&x, PTL_ERR_SHAPE,
                "pos_table: 6 entries, expected 2N - 1 with N at least the longest sequence, 3");
    p->pos_table.shape[0] = 3;
    api_refused(&x, PTL_ERR_SHAPE,
                "pos_table: 3 entries, expected 2N - 1 with N at least the longest sequence, 3");
    api_give_pos_table(&x);
    p->pos_table.stride[0] = 2;
    api_refused(&x, PTL_ERR_LAYOUT, "pos_table: stride 2 on the last axis, expected 1");
    api_give_pos_table(&x);
    p->pos_table.data = x.out;
    api_refused(&x, PTL_ERR_ALIAS, "out: overlaps pos_table, expected memory of its own");
    test_case("as long as the longest sequence, for each head");
    p->pos_table = ptl_tensor_contiguous(x.pos_table, PTL_F32, 2, (const int64_t[]){4, 5});
    api_accepted(&x);
}

static void time_table(void) {
    api_hstu_jagged(&x);
    api_give_time_table(&x);
    p->time_table.data = NULL;
    api_refused(&x, PTL_ERR_PARAM, "timestamps: given without time_table");
    p->timestamps.data = NULL;
    api_refused(&x, PTL_ERR_PARAM, "time_thresholds: given without time_table");
    api_give_time_table(&x);
    p->time_thresholds.data = NULL;
    api_refused(&x, PTL_ERR_NULL, "time_thresholds: missing (data is NULL), expected a tensor");
    api_give_time_table(&x);
    p->timestamps.data = NULL;
    api_refused(&x, PTL_ERR_NULL, "timestamps: missing (data is NULL), expected a tensor");
    api_give_time_table(&x);
    p->time_table.dtype = PTL_F16;
    api_refused(&x, PTL_ERR_DTYPE, "time_table: f16, expected f32");
    api_give_time_table(&x);
    p->time_table.ndim = 0;
    api_refused(&x, PTL_ERR_SHAPE, "time_table: 0 axes, expected 1 to 2");
    p->time_table = ptl_tensor_contiguous(x.time_table, PTL_F32, 2, (const int64_t[]){3, 5});
    api_refused(&x, PTL_ERR_SHAPE, "time_table: 3 on axis 0, expected 4 (heads of q)");
    api_give_time_table(&x);
    p->time_table.shape[0] = 4;
    api_refused(&x, PTL_ERR_SHAPE, "time_table: 4 on axis 0, expected 5 (time_thresholds + 1)");
    api_give_time_table(&x);
    p->time_query = (enum ptl_hstu_time_query)2;
    api_refused(&x, PTL_ERR_PARAM, "time_query: 2, expected 0 or 1");
}

static void thresholds_and_timestamps(void) {
    api_hstu_jagged(&x);
    api_give_time_table(&x);
    p->time_thresholds.dtype = PTL_I32;
    api_refused(&x, PTL_ERR_DTYPE, "time_thresholds: i32, expected i64");
    api_give_time_table(&x);
    p->time_thresholds.ndim = 2;
    api_refused(&x, PTL_ERR_SHAPE, "time_thresholds: 2 axes, expected 1");
    api_give_time_table(&x);
    x.thresholds[2] = 0;
    api_refused(&x, PTL_ERR_PARAM,
                "time_thresholds: entry 2 is 0, less than 1 before it, expected ascending");
    api_give_time_table(&x);
    p->timestamps.dtype = PTL_F32;
    api_refused(&x, PTL_ERR_DTYPE, "timestamps: f32, expected i64");
    api_give_time_table(&x);
    p->timestamps.ndim = 3;
    api_refused(&x, PTL_ERR_SHAPE, "timestamps: 3 axes, expected 1 to 2");
    api_give_time_table(&x);
    p->timestamps.shape[0] = 4;
    api_refused(&x, PTL_ERR_SHAPE, "timestamps: 4 on axis 0, expected 5 (rows of k)");
    api_hstu_dense(&x);
    api_give_time_table(&x);
    p->timestamps.shape[0] = 3;
    api_refused(&x, PTL_ERR_SHAPE, "timestamps: 3 on axis 0, expected 2 (number of sequences)");
    api_give_time_table(&x);
    p->timestamps.shape[1] = 4;
    api_refused(&x, PTL_ERR_SHAPE, "timestamps: 4 on axis 1, expected 3 (max_seqlen_k)");
    p->timestamps = ptl_tensor_contiguous(x.stamps, PTL_I64, 1, (const int64_t[]){6});
    api_refused(&x, PTL_ERR_SHAPE,
                "timestamps: 1 axis, expected [B, max_seqlen_k] with dense or paged keys");
    api_hstu_paged(&x);
    api_give_time_table(&x);
    p->timestamps = ptl_tensor_contiguous(x.stamps, PTL_I64, 1, (const int64_t[]){5});
    api_refused(&x, PTL_ERR_SHAPE,
                "timestamps: 1 axis, expected [B, max_seqlen_k] with dense or paged keys");
    api_hstu_jagged(&x);
    api_give_time_table(&x);
    api_give_offsets_k(&x);
    x.offsets_k[1] = 2;
    p->window_right = -1;
    api_refused(&x, PTL_ERR_SEQLEN,
                "q: 3 rows in sequence 0, more than its 2 keys; only window (-1, -1), mask and "
                "intervals take that, without time_table and bias_rows KEY");
}

/* ---- Pages ----------------------------------------------------------------------------------- */

static void pages_missing(void) {
    static const char *const names[] = {"k_pages", "v_pages", "page_offsets", "page_ids",
                                        "last_page_lens"};
    struct ptl_tensor *const tensors[] = {&p->k_pages, &p->v_pages, &p->page_offsets, &p->page_ids,
                                          &p->last_page_lens};
    for (int i = 0; i < 5; i++) {
        char message[80];
        api_hstu_paged(&x);
        tensors[i]->data = NULL;
        snprintf(message, sizeof message, "%s: missing (data is NULL), expected a tensor",
                 names[i]);
        api_refused(&x, PTL_ERR_NULL, message);
    }
    test_case("all are there");
    api_hstu_paged(&x);
    api_accepted(&x);
}

static void pages_and_others(void) {
    api_hstu_paged(&x);
    const struct ptl_hstu_params paged = *p;
    api_hstu_dense(&x);
    p->k_pages = paged.k_pages;
    p->v_pages = paged.v_pages;
    p->page_offsets = paged.page_offsets;
    p->page_ids = paged.page_ids;
    p->last_page_lens = paged.last_page_lens;
    api_refused(&x, PTL_ERR_PARAM, "k_pages: given with 4-axis q; the paged layout is jagged");
    api_hstu_paged(&x);
    x.used_k[0] = x.used_k[1] = 1;
    p->seqused_k = api_index(x.used_k, 2);
    api_refused(&x, PTL_ERR_PARAM,
                "seqused_k: given with k_pages, which say the lengths themselves");
}

static void row_27_page_shapes(void) {
    api_hstu_paged(&x);
    p->k.shape[0] = p->v.shape[0] = 2;
    api_refused(&x, PTL_ERR_SEQLEN,
                "k: 2 rows, but seq_offsets_q, which serves for k too, ends with 5");
    api_hstu_paged(&x);
    p->k_pages.dtype = PTL_F16;
    api_refused(&x, PTL_ERR_DTYPE, "k_pages: f16, but q is f32; all must be alike");
    api_hstu_paged(&x);
    p->v_pages.ndim = 3;
    api_refused(&x, PTL_ERR_SHAPE, "v_pages: 3 axes, expected 4");
    api_hstu_paged(&x);
    p->k_pages.shape[2] = 1;
    api_refused(&x, PTL_ERR_SHAPE, "k_pages: 1 on axis 2, expected 2 (heads of k)");
    api_hstu_paged(&x);
    p->v_pages.shape[3] = 2;
    api_refused(&x, PTL_ERR_SHAPE, "v_pages: 2 on axis 3, expected 3 (head size of k)");
    api_hstu_paged(&x);
    p->v_pages.shape[0] = 5;
    api_refused(&x, PTL_ERR_SHAPE, "v_pages: 5 on axis 0, expected 6 (pages of k_pages)");
    api_hstu_paged(&x);
    p->v_pages.shape[1] = 1;
    api_refused(&x, PTL_ERR_SHAPE, "v_pages: 1 on axis 1, expected 2 (page size of k_pages)");
    api_hstu_paged(&x);
    p->k_pages.shape[1] = p->v_pages.shape[1] = 0;
    api_refused(&x, PTL_ERR_SHAPE, "k_pages: page size 0, expected 1 or more");
    api_hstu_paged(&x);
    p->k_pages.stride[3] = 2;
    api_refused(&x, PTL_ERR_LAYOUT, "k_pages: stride 2 on the last axis, expected 1");
    api_hstu_paged(&x);
    p->k_pages.data = x.out;
    api_refused(&x, PTL_ERR_ALIAS, "out: overlaps k_pages, expected memory of its own");
    api_hstu_paged(&x); /* row 27b */
    p->v = ptl_tensor_contiguous(x.v, PTL_F32, 3, (const int64_t[]){5, 2, 5});
    p->out = ptl_tensor_contiguous(x.out, PTL_F32, 3, (const int64_t[]){5, 4, 5});
    api_refused(&x, PTL_ERR_SHAPE,
                "v: 5 on axis 2, expected 3 (head size of k, as paged keys need)");
}

static void row_27_page_lists(void) {
    static int32_t narrow[3] = {4, 0, 5};
    api_hstu_paged(&x);
    p->page_ids = ptl_tensor_contiguous(narrow, PTL_I32, 1, (const int64_t[]){3});
    api_refused(&x, PTL_ERR_DTYPE,
                "page_ids: i32, but another index tensor is i64; all must be alike");
    api_hstu_paged(&x);
    p->last_page_lens.dtype = PTL_F32;
    api_refused(&x, PTL_ERR_DTYPE, "last_page_lens: f32, expected i32 or i64");
    api_hstu_paged(&x);
    p->page_offsets.shape[0] = 2;
    api_refused(&x, PTL_ERR_SHAPE, "page_offsets: 2 on axis 0, expected 3 (sequences + 1)");
    api_hstu_paged(&x);
    p->last_page_lens.shape[0] = 1;
    api_refused(&x, PTL_ERR_SHAPE, "last_page_lens: 1 on axis 0, expected 2 (number of sequences)");
    api_hstu_paged(&x);
    x.page_offsets[0] = 1;
    api_refused(
        &x, PTL_ERR_TABLE,
        "page_offsets: entry 0 is 1, expected from 0 on, not decreasing, at most the 3 page_ids");
    api_hstu_paged(&x);
    x.page_offsets[2] = 1;
    api_refused(
        &x, PTL_ERR_TABLE,
        "page_offsets: entry 2 is 1, expected from 0 on, not decreasing, at most the 3 page_ids");
    x.page_offsets[2] = INT64_MAX;
    api_refused(
        &x, PTL_ERR_TABLE,
        "page_offsets: entry 2 is 9223372036854775807, expected from 0 on, not decreasing, at "
        "most the 3 page_ids");
    api_hstu_paged(&x);
    x.page_ids[1] = 6;
    api_refused(&x, PTL_ERR_TABLE, "page_ids: entry 1 is 6, expected 0 to 5");
    x.page_ids[1] = -1;
    api_refused(&x, PTL_ERR_TABLE, "page_ids: entry 1 is -1, expected 0 to 5");
    api_hstu_paged(&x);
    x.last_page_lens[0] = 0;
    api_refused(&x, PTL_ERR_TABLE, "last_page_lens: 0 for sequence 0, expected 1 to 2");
    api_hstu_paged(&x);
    x.last_page_lens[1] = 3;
    api_refused(&x, PTL_ERR_TABLE, "last_page_lens: 3 for sequence 1, expected 1 to 2");
}

static void row_27b_page_lengths(void) {
    api_hstu_paged(&x);
    api_give_targets(&x, 4, 1);
    api_refused(&x, PTL_ERR_SEQLEN,
                "num_targets: 4 in sequence 0, more than its 3 rows of q, which paged keys need");
    api_hstu_paged(&x);
    api_give_offsets_k(&x);
    api_refused(&x, PTL_ERR_SEQLEN,
                "seq_offsets_k: 3 keys in sequence 0, expected 4 (cached + targets)");
    p->seq_offsets_k.shape[0] = 2;
    api_refused(&x, PTL_ERR_SHAPE,
                "seq_offsets_k: 2 on axis 0, expected 3 (entries of seq_offsets_q)");
    test_case("lengths that agree, in other rows than those of k");
    api_hstu_paged(&x);
    api_give_offsets_k(&x);
    x.offsets_k[1] = 4;
    x.offsets_k[2] = 7;
    api_accepted(&x);
    test_case("no pages for a sequence: its last_page_len is not looked at");
    api_hstu_paged(&x);
    x.page_offsets[1] = 0;
    x.page_offsets[2] = 2;
    x.last_page_lens[0] = -77;
    x.last_page_lens[1] = 1;
    api_give_targets(&x, 3, 0);
    api_accepted(&x);
    test_case("page_ids that no list reaches");
    api_hstu_paged(&x);
    x.page_offsets[2] = 2;
    x.page_ids[2] = -5;
    api_give_targets(&x, 1, 2);
    api_accepted(&x);
    test_case("targets and a mask");
    api_hstu_paged(&x);
    api_give_mask(&x, 1, 1, 3, 4);
    api_accepted(&x);
}

static const struct test tests[] = {
    {"row_16_intervals", row_16_intervals},
    {"row_17_intervals_and_others", row_17_intervals_and_others},
    {"row_13_bias", row_13_bias},
    {"row_8_bias_type", row_8_bias_type},
    {"row_25_bias_scale", row_25_bias_scale},
    {"row_23_bias_rows_by_key", row_23_bias_rows_by_key},
    {"position_table", position_table},
    {"time_table", time_table},
    {"thresholds_and_timestamps", thresholds_and_timestamps},
    {"pages_missing", pages_missing},
    {"pages_and_others", pages_and_others},
    {"row_27_page_shapes", row_27_page_shapes},
    {"row_27_page_lists", row_27_page_lists},
    {"row_27b_page_lengths", row_27b_page_lengths},
};
TEST_SUITE(api_hstu_bias_suite, "api/hstu", tests);
