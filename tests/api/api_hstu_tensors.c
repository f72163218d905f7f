/* The error contract of ptl_hstu_forward, the rows about tensors: status, sentence, nothing
 * written. Rows about lengths and options are in api_hstu_options.c. */
#include <math.h>
#include <stdio.h>

#include "api_hstu_fixture.h"
#include "api_suites.h"

static struct api_hstu x;
static struct ptl_hstu_params *const p = &x.p;

/* ---- Tensors --------------------------------------------------------------------------------- */

static void row_1_null(void) {
    static const char *const names[] = {"q", "k", "v", "out", "seq_offsets_q"};
    struct ptl_tensor *const tensors[] = {&p->q, &p->k, &p->v, &p->out, &p->seq_offsets_q};
    for (int i = 0; i < 5; i++) {
        char message[80];
        api_hstu_jagged(&x);
        tensors[i]->data = NULL;
        snprintf(message, sizeof message, "%s: missing (data is NULL), expected a tensor",
                 names[i]);
        api_refused(&x, PTL_ERR_NULL, message);
    }
}

static void row_3_offsets_of_different_length(void) {
    api_hstu_jagged(&x);
    api_give_offsets_k(&x);
    p->seq_offsets_k.shape[0] = 2;
    api_refused(&x, PTL_ERR_SHAPE,
                "seq_offsets_k: 2 on axis 0, expected 3 (entries of seq_offsets_q)");
}

static void row_4_axes(void) {
    api_hstu_jagged(&x);
    p->q.ndim = 2;
    api_refused(&x, PTL_ERR_SHAPE, "q: 2 axes, expected 3 to 4");
    p->q.ndim = 5;
    api_refused(&x, PTL_ERR_SHAPE, "q: 5 axes, expected 3 to 4");
    p->q.ndim = -1;
    api_refused(&x, PTL_ERR_SHAPE, "q: -1 axes, expected 3 to 4");

    api_hstu_jagged(&x);
    p->k = ptl_tensor_contiguous(x.k, PTL_F32, 4, (const int64_t[]){2, 3, 2, 3});
    api_refused(&x, PTL_ERR_SHAPE, "k: 4 axes, but q has 3; all are jagged (3) or dense (4)");
    api_hstu_dense(&x);
    p->out = ptl_tensor_contiguous(x.out, PTL_F32, 3, (const int64_t[]){6, 4, 5});
    api_refused(&x, PTL_ERR_SHAPE, "out: 3 axes, but q has 4; all are jagged (3) or dense (4)");

    api_hstu_jagged(&x);
    p->seq_offsets_q = ptl_tensor_contiguous(x.offsets_q, PTL_I64, 2, (const int64_t[]){1, 3});
    api_refused(&x, PTL_ERR_SHAPE, "seq_offsets_q: 2 axes, expected 1");
    p->seq_offsets_q.ndim = 0;
    api_refused(&x, PTL_ERR_SHAPE, "seq_offsets_q: 0 axes, expected 1");

    api_hstu_jagged(&x);
    api_give_used(&x, 3, 2, 3, 2);
    p->seqused_k.ndim = 0;
    api_refused(&x, PTL_ERR_SHAPE, "seqused_k: 0 axes, expected 1");
    api_hstu_jagged(&x);
    api_give_targets(&x, 1, 1);
    p->num_targets.ndim = 2;
    api_refused(&x, PTL_ERR_SHAPE, "num_targets: 2 axes, expected 0 to 1");

    api_hstu_jagged(&x);
    p->v.shape[0] = -5;
    api_refused(&x, PTL_ERR_SHAPE, "v: extent -5 on axis 0, expected 0 or more");
    api_hstu_dense(&x);
    p->v.shape[0] = 1;
    api_refused(&x, PTL_ERR_SHAPE, "v: 1 on axis 0, expected 2 (B of q)");
}

static void row_5_heads(void) {
    api_hstu_jagged(&x);
    p->q.shape[1] = 0;
    api_refused(&x, PTL_ERR_SHAPE, "q: 0 heads, expected at least 1");
    api_hstu_jagged(&x);
    p->k.shape[1] = 0;
    api_refused(&x, PTL_ERR_SHAPE, "k: 0 heads, expected at least 1");
    p->k.shape[1] = 3;
    api_refused(&x, PTL_ERR_SHAPE,
                "k: 3 heads, but q has 4; q heads must be a multiple of k heads");
    p->k.shape[1] = 8;
    api_refused(&x, PTL_ERR_SHAPE,
                "k: 8 heads, but q has 4; q heads must be a multiple of k heads");
}

static void row_6_k_and_v(void) {
    api_hstu_jagged(&x);
    p->v.shape[1] = 1;
    api_refused(&x, PTL_ERR_SHAPE, "v: 1 on axis 1, expected 2 (heads of k)");
    api_hstu_jagged(&x);
    p->v.shape[0] = 4;
    api_refused(&x, PTL_ERR_SHAPE, "v: 4 on axis 0, expected 5 (rows of k)");
    api_hstu_dense(&x);
    p->v.shape[1] = 4;
    api_refused(&x, PTL_ERR_SHAPE, "v: 4 on axis 1, expected 3 (rows of k)");
}

static void row_7_head_sizes(void) {
    api_hstu_jagged(&x);
    p->k.shape[2] = 2;
    api_refused(&x, PTL_ERR_SHAPE, "k: 2 on axis 2, expected 3 (head size of q)");
    api_hstu_jagged(&x);
    p->q.shape[2] = p->k.shape[2] = 0;
    api_refused(&x, PTL_ERR_SHAPE, "q: head size 0, expected 1 to 1024");
    p->q.shape[2] = p->k.shape[2] = 1025;
    api_refused(&x, PTL_ERR_SHAPE, "q: head size 1025, expected 1 to 1024");
    api_hstu_jagged(&x);
    p->v.shape[2] = 0;
    api_refused(&x, PTL_ERR_SHAPE, "v: head size 0, expected 1 to 1024");
    p->v.shape[2] = 4000;
    api_refused(&x, PTL_ERR_SHAPE, "v: head size 4000, expected 1 to 1024");

    api_hstu_jagged(&x);
    p->out.shape[0] = 4;
    api_refused(&x, PTL_ERR_SHAPE, "out: 4 on axis 0, expected 5 (rows of q)");
    api_hstu_jagged(&x);
    p->out.shape[1] = 2;
    api_refused(&x, PTL_ERR_SHAPE, "out: 2 on axis 1, expected 4 (heads of q)");
    api_hstu_jagged(&x);
    p->out.shape[2] = 3; /* Dqk instead of Dv */
    api_refused(&x, PTL_ERR_SHAPE, "out: 3 on axis 2, expected 5 (head size of v)");
}

static void row_8_dtypes(void) {
    api_hstu_jagged(&x);
    p->q.dtype = PTL_F16;
    api_refused(&x, PTL_ERR_DTYPE, "k: f32, but q is f16; all must be alike");
    api_hstu_jagged(&x);
    p->k.dtype = PTL_BF16;
    api_refused(&x, PTL_ERR_DTYPE, "k: bf16, but q is f32; all must be alike");
    api_hstu_jagged(&x);
    p->v.dtype = PTL_I32;
    api_refused(&x, PTL_ERR_DTYPE, "v: i32, expected f32, f16 or bf16");
    api_hstu_jagged(&x);
    p->out.dtype = PTL_U8;
    api_refused(&x, PTL_ERR_DTYPE, "out: u8, expected f32, f16 or bf16");
    p->out.dtype = (enum ptl_dtype)99;
    api_refused(&x, PTL_ERR_DTYPE, "out: dtype 99, which is none of enum ptl_dtype");
    api_hstu_jagged(&x);
    api_give_mask(&x, 1, 1, 3, 3);
    p->mask.dtype = PTL_F32;
    api_refused(&x, PTL_ERR_DTYPE, "mask: f32, expected u8");
    api_hstu_jagged(&x);
    api_give_scale(&x);
    p->attn_scale.dtype = PTL_I64;
    api_refused(&x, PTL_ERR_DTYPE, "attn_scale: i64, expected f32");
}

static void row_9_index_dtypes(void) {
    static const char *const names[] = {"seq_offsets_k", "seqused_q", "seqused_k", "num_contexts",
                                        "num_targets"};
    struct ptl_tensor *const tensors[] = {&p->seq_offsets_k, &p->seqused_q, &p->seqused_k,
                                          &p->num_contexts, &p->num_targets};
    api_hstu_jagged(&x);
    p->seq_offsets_q.dtype = PTL_F32;
    api_refused(&x, PTL_ERR_DTYPE, "seq_offsets_q: f32, expected i32 or i64");
    for (int i = 0; i < 5; i++) {
        char message[120];
        api_hstu_jagged(&x);
        *tensors[i] = api_index(x.offsets_k, i == 0 ? 3 : 2);
        tensors[i]->dtype = PTL_F32;
        snprintf(message, sizeof message, "%s: f32, expected i32 or i64", names[i]);
        api_refused(&x, PTL_ERR_DTYPE, message);
        tensors[i]->dtype = PTL_I32;
        snprintf(message, sizeof message,
                 "%s: i32, but another index tensor is i64; all must be alike", names[i]);
        api_refused(&x, PTL_ERR_DTYPE, message);
    }
    api_hstu_dense(&x);
    api_give_contexts(&x, 1, 1);
    p->num_targets = ptl_tensor_contiguous(x.narrow, PTL_I32, 0, NULL);
    api_refused(&x, PTL_ERR_DTYPE,
                "num_targets: i32, but another index tensor is i64; all must be alike");
}

static void row_26_last_axis(void) {
    static const char *const names[] = {"q",         "k",          "v", "out", "seq_offsets_q",
                                        "seqused_q", "num_targets"};
    struct ptl_tensor *const tensors[] = {
        &p->q, &p->k, &p->v, &p->out, &p->seq_offsets_q, &p->seqused_q, &p->num_targets};
    for (int i = 0; i < 7; i++) {
        char message[80];
        api_hstu_jagged(&x);
        if (i == 5) api_give_used(&x, 1, 1, 1, 1);
        if (i == 6) api_give_targets(&x, 1, 1);
        tensors[i]->stride[tensors[i]->ndim - 1] = 2;
        snprintf(message, sizeof message, "%s: stride 2 on the last axis, expected 1", names[i]);
        api_refused(&x, PTL_ERR_LAYOUT, message);
    }
    api_hstu_jagged(&x);
    p->q.stride[2] = 0;
    api_refused(&x, PTL_ERR_LAYOUT, "q: stride 0 on the last axis, expected 1");
    api_hstu_jagged(&x);
    api_give_mask(&x, 1, 1, 3, 3);
    p->mask.stride[3] = -1;
    api_refused(&x, PTL_ERR_LAYOUT, "mask: stride -1 on the last axis, expected 1");
    api_hstu_jagged(&x);
    api_give_scale(&x);
    p->attn_scale.stride[0] = 3;
    api_refused(&x, PTL_ERR_LAYOUT, "attn_scale: stride 3 on the last axis, expected 1");
}

static void row_28_overflow(void) {
    api_hstu_jagged(&x);
    p->q.shape[0] = (int64_t)1 << 61;
    api_refused(&x, PTL_ERR_OVERFLOW, "q: more than 2^63 elements");
    api_hstu_jagged(&x);
    p->k.stride[0] = INT64_MAX / 2;
    api_refused(&x, PTL_ERR_OVERFLOW, "k: extents times strides exceed 64 bits");
    api_hstu_jagged(&x);
    p->v.stride[1] = INT64_MAX - 10;
    api_refused(&x, PTL_ERR_OVERFLOW, "v: extents times strides exceed 64 bits");
    api_hstu_jagged(&x);
    p->out.stride[0] = INT64_MAX / 8; /* fits as elements, not as bytes */
    api_refused(&x, PTL_ERR_OVERFLOW, "out: extents times strides exceed 64 bits");
    api_hstu_jagged(&x);
    p->q.stride[0] = INT64_MIN / 2;
    api_refused(&x, PTL_ERR_OVERFLOW, "q: extents times strides exceed 64 bits");
}

static void row_29_overlap(void) {
    api_hstu_jagged(&x);
    p->v = p->out;
    p->v.shape[1] = 2;
    api_refused(&x, PTL_ERR_ALIAS, "out: overlaps v, expected memory of its own");
    api_hstu_jagged(&x);
    p->q.data = x.out + 99; /* the last element of out */
    api_refused(&x, PTL_ERR_ALIAS, "out: overlaps q, expected memory of its own");
    api_hstu_jagged(&x);
    p->k.data = x.out + 1; /* rows of another stride, between the rows of out */
    api_refused(&x, PTL_ERR_ALIAS, "out: overlaps k, expected memory of its own");

    /* Columns of one buffer of rows of 32: q takes 12, out 20 of them; one column too near. */
    api_hstu_jagged(&x);
    p->q.stride[0] = p->out.stride[0] = 32;
    p->q.data = x.out;
    p->out.data = x.out + 11;
    api_refused(&x, PTL_ERR_ALIAS, "out: overlaps q, expected memory of its own");
    p->q.data = x.out + 21; /* the end of a row reaches into the next row of out */
    p->out.data = x.out;
    api_refused(&x, PTL_ERR_ALIAS, "out: overlaps q, expected memory of its own");

    api_hstu_jagged(&x);
    api_give_mask(&x, 1, 1, 3, 3);
    p->mask.data = x.out + 7;
    api_refused(&x, PTL_ERR_ALIAS, "out: overlaps mask, expected memory of its own");

    api_hstu_jagged(&x);
    p->out.stride[0] = 0;
    api_refused(&x, PTL_ERR_ALIAS,
                "out: stride 0 on axis 0 makes elements overlap, expected at least 1");
    api_hstu_jagged(&x);
    p->out.stride[1] = 4;
    api_refused(&x, PTL_ERR_ALIAS,
                "out: stride 4 on axis 1 makes elements overlap, expected at least 5");
    api_hstu_dense(&x);
    p->out.stride[0] = 59;
    api_refused(&x, PTL_ERR_ALIAS,
                "out: stride 59 on axis 0 makes elements overlap, expected at least 60");
}

static const struct test tests[] = {
    {"row_1_null", row_1_null},
    {"row_3_offsets_of_different_length", row_3_offsets_of_different_length},
    {"row_4_axes", row_4_axes},
    {"row_5_heads", row_5_heads},
    {"row_6_k_and_v", row_6_k_and_v},
    {"row_7_head_sizes", row_7_head_sizes},
    {"row_8_dtypes", row_8_dtypes},
    {"row_9_index_dtypes", row_9_index_dtypes},
    {"row_26_last_axis", row_26_last_axis},
    {"row_28_overflow", row_28_overflow},
    {"row_29_overlap", row_29_overlap},
};
TEST_SUITE(api_hstu_tensors_suite, "api/hstu", tests);
