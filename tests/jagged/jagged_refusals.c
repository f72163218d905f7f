/* Every refusal of the jagged calls: status, sentence, nothing written. Then what is no error. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "jagged_arrays.h"
#include "jagged_suites.h"

/* Two sequences, of 3 and 2 rows on the left and of 1 and 2 on the right, rows of 2 floats; the
 * dense side has 2 rows each. Whatever the calls write is in `written`. */
static struct {
    float left[16], right[16], dense[16], d[4];
    int64_t left_offsets[3], right_offsets[3], times[5], targets[2], contexts[2], starts[2];
    int32_t narrow[3];
    struct {
        float out[32], left[16], right[16], table[16];
        int64_t offsets[4];
    } written;
} m;

static struct ptl_jagged l, r, dense;          /* inputs */
static struct ptl_jagged ol, orr, od;          /* outputs of their layouts */
static struct ptl_tensor x, out, out5, d, sum; /* [8, 2] in and out, [5, 2], [2, 2] in and out */
static struct ptl_jagged_position_time_params a;
static struct ptl_context *ctx;

static struct ptl_tensor floats(float *data, int64_t n, int64_t columns) {
    return ptl_tensor_contiguous(data, PTL_F32, 2, (const int64_t[]){n, columns});
}

static struct ptl_tensor numbers(int64_t *data, int64_t n) {
    return ptl_tensor_contiguous(data, PTL_I64, 1, &n);
}

static void begin(void) {
    static const int64_t offsets[2][3] = {{0, 3, 5}, {0, 1, 3}};
    memset(&m, 0, sizeof m);
    memset(&m.written, 0xa5, sizeof m.written);
    memcpy(m.left_offsets, offsets[0], sizeof offsets[0]);
    memcpy(m.right_offsets, offsets[1], sizeof offsets[1]);
    for (int i = 0; i < 3; i++) m.narrow[i] = (int32_t)offsets[0][i];
    l = (struct ptl_jagged){floats(m.left, 5, 2), numbers(m.left_offsets, 3)};
    r = (struct ptl_jagged){floats(m.right, 3, 2), numbers(m.right_offsets, 3)};
    dense = (struct ptl_jagged){
        .values = ptl_tensor_contiguous(m.dense, PTL_F32, 3, (const int64_t[]){2, 2, 2})};
    ol = l;
    ol.values.data = m.written.left;
    orr = r;
    orr.values.data = m.written.right;
    od = dense;
    od.values.data = m.written.left;
    x = floats(m.left, 8, 2);
    out = floats(m.written.out, 8, 2);
    out5 = floats(m.written.out, 5, 2);
    d = floats(m.d, 2, 2);
    sum = floats(m.written.table, 2, 2);
    ctx = jagged_context(0);

    ptl_jagged_position_time_init(&a);
    a.seq_offsets = numbers(m.left_offsets, 3);
    a.timestamps = numbers(m.times, 5);
    a.emb = floats(m.left, 5, 2);
    a.dout = a.emb;
    a.pos_w = floats(m.right, 4, 2);
    a.ts_w = floats(m.dense, 3, 2);
    a.out = floats(m.written.out, 5, 2);
    a.demb = a.out;
    a.dpos_w = floats(m.written.table, 4, 2);
    a.dts_w = floats(m.written.left, 3, 2);
}

/* The calls on the arguments above. */
static enum ptl_status resize(void) {
    return ptl_jagged_resize(ctx, &l, PTL_JAGGED_ALIGN_START, NULL, &od);
}
static enum ptl_status resize_jagged(void) {
    return ptl_jagged_resize(ctx, &l, PTL_JAGGED_ALIGN_START, NULL, &orr);
}
static enum ptl_status concat(void) {
    return ptl_jagged_concat(ctx, &l, &r, 0, &out);
}
static enum ptl_status concat_dense(void) {
    return ptl_jagged_concat(ctx, &dense, &r, 0, &out);
}
static enum ptl_status split(void) {
    return ptl_jagged_split(ctx, &x, 0, &ol, &orr);
}
static enum ptl_status replace(void) {
    return ptl_jagged_replace_last(ctx, &l, &r, &out5);
}
static enum ptl_status add(void) {
    return ptl_jagged_broadcast_add(ctx, &l, &d, &out5);
}
static enum ptl_status sum_rows(void) {
    return ptl_jagged_sum(ctx, &l, &sum);
}
static enum ptl_status forward(void) {
    return ptl_jagged_position_time_forward(ctx, &a);
}
static enum ptl_status backward(void) {
    return ptl_jagged_position_time_backward(ctx, &a);
}

static bool untouched(void) {
    const unsigned char *bytes = (const unsigned char *)&m.written;
    for (size_t i = 0; i < sizeof m.written; i++)
        if (bytes[i] != 0xa5) return false;
    return true;
}

/* A case of its own; afterwards the arguments are whole again. */
static void refused(enum ptl_status got, enum ptl_status status, const char *message) {
    test_case("%s", message);
    if (got != status) FAIL("%s, expected %s", ptl_status_name(got), ptl_status_name(status));
    if (got != PTL_OK && strcmp(ptl_message(), message) != 0) FAIL("it says '%s'", ptl_message());
    if (!untouched()) FAIL("something was written");
    begin();
}

static void accepted(const char *what, enum ptl_status got) {
    test_case("%s", what);
    jagged_ok(got, what);
    begin();
}

/* ---- The copies ------------------------------------------------------------------------------ */

static void missing(void) {
    begin();
    ctx = NULL;
    refused(resize(), PTL_ERR_NULL, "ctx: NULL, expected a context");
    refused(ptl_jagged_resize(ctx, NULL, PTL_JAGGED_ALIGN_START, NULL, &od), PTL_ERR_NULL,
            "x: NULL, expected a struct ptl_jagged");
    refused(ptl_jagged_concat(ctx, &l, &r, 0, NULL), PTL_ERR_NULL, "out: NULL, expected a tensor");
    l.values.data = NULL;
    refused(resize(), PTL_ERR_NULL, "x: missing (data is NULL), expected a tensor");
    od.values.data = NULL;
    refused(resize(), PTL_ERR_NULL, "out: missing (data is NULL), expected a tensor");
    r.values.data = NULL;
    refused(concat(), PTL_ERR_NULL, "right: missing (data is NULL), expected a tensor");
    x.data = NULL;
    refused(split(), PTL_ERR_NULL, "x: missing (data is NULL), expected a tensor");
    refused(ptl_jagged_split(ctx, &x, 0, &ol, NULL), PTL_ERR_NULL,
            "right: NULL, expected a struct ptl_jagged");
    l.offsets.data = NULL;
    refused(replace(), PTL_ERR_NULL, "x.offsets: missing (data is NULL), expected a tensor");
    d.data = NULL;
    refused(add(), PTL_ERR_NULL, "d: missing (data is NULL), expected a tensor");
    refused(ptl_jagged_broadcast_add(ctx, &l, &d, NULL), PTL_ERR_NULL,
            "out: NULL, expected a tensor");
    sum.data = NULL;
    refused(sum_rows(), PTL_ERR_NULL, "out: missing (data is NULL), expected a tensor");
}

static void types(void) {
    begin();
    od.values.dtype = PTL_BF16;
    refused(resize(), PTL_ERR_DTYPE, "out: bf16, but x is f32; all must be alike");
    l.values.dtype = (enum ptl_dtype)9;
    refused(resize(), PTL_ERR_DTYPE, "x: dtype 9, which is none of enum ptl_dtype");
    l.offsets.dtype = PTL_F32;
    refused(resize(), PTL_ERR_DTYPE, "x.offsets: f32, expected i32 or i64");
    l.offsets = ptl_tensor_contiguous(m.narrow, PTL_I32, 1, (const int64_t[]){3});
    refused(concat(), PTL_ERR_DTYPE,
            "right.offsets: i64, but another index tensor is i32; all must be alike");
    l.values.dtype = d.dtype = out5.dtype = PTL_I64;
    refused(add(), PTL_ERR_DTYPE, "x: i64, expected f32, f16 or bf16");
    l.values.dtype = sum.dtype = PTL_I32;
    refused(sum_rows(), PTL_ERR_DTYPE, "x: i32, expected f32, f16 or bf16");
}

static void layouts(void) {
    begin();
    l.values.stride[1] = 2;
    refused(resize(), PTL_ERR_LAYOUT, "x: stride 2 on the last axis, expected 1");
    l.values = ptl_tensor_contiguous(m.left, PTL_F32, 3, (const int64_t[]){2, 2, 2});
    l.values.stride[1] = 3;
    refused(resize(), PTL_ERR_LAYOUT,
            "x: stride 3 on axis 1, expected 2; a row must be contiguous");
}

static void shapes(void) {
    begin();
    l.values.ndim = 4;
    refused(resize(), PTL_ERR_SHAPE, "x: 4 axes, expected 1 to 3");
    dense.values.ndim = 1;
    refused(concat_dense(), PTL_ERR_SHAPE, "left: 1 axes, expected 2 to 4");
    od.values = floats(m.written.left, 2, 2);
    refused(resize(), PTL_ERR_SHAPE, "out: 2 axes, expected 3; rows must be like those of x");
    od.values = ptl_tensor_contiguous(m.written.left, PTL_F32, 3, (const int64_t[]){2, 2, 3});
    refused(resize(), PTL_ERR_SHAPE, "out: 3 on axis 2, expected 2; rows must be like those of x");
    od.values.shape[0] = 1;
    refused(resize(), PTL_ERR_SHAPE, "out: 1 sequences, but x.offsets has 2");
    r.offsets.shape[0] = 2;
    refused(concat_dense(), PTL_ERR_SHAPE, "right.offsets: 1 sequences, but left has 2");
    l.offsets.shape[0] = 0;
    refused(resize(), PTL_ERR_SHAPE, "x.offsets: empty, expected B + 1 entries");
    l.offsets.ndim = 2;
    l.offsets.shape[1] = l.offsets.stride[1] = 1;
    refused(resize(), PTL_ERR_SHAPE, "x.offsets: 2 axes, expected 1");
    l.values.shape[0] = -1;
    refused(resize(), PTL_ERR_SHAPE, "x: extent -1 on axis 0, expected 0 or more");
    out5.shape[0] = 4;
    refused(replace(), PTL_ERR_SHAPE, "out: 4 on axis 0, expected 5 (rows of x)");
    d.shape[0] = 3;
    refused(add(), PTL_ERR_SHAPE, "d: 3 on axis 0, expected 2 (number of sequences)");
    out5.shape[0] = 8;
    refused(add(), PTL_ERR_SHAPE, "out: 8 on axis 0, expected 5 (as x)");
    sum.shape[0] = 3;
    refused(sum_rows(), PTL_ERR_SHAPE, "out: 3 on axis 0, expected 2 (number of sequences)");
}

static void numbers_out_of_range(void) {
    begin();
    refused(ptl_jagged_resize(ctx, &l, (enum ptl_jagged_align)2, NULL, &od), PTL_ERR_PARAM,
            "align: 2, expected PTL_JAGGED_ALIGN_START or PTL_JAGGED_ALIGN_END");
    refused(ptl_jagged_concat(ctx, &l, &r, -1, &out), PTL_ERR_PARAM,
            "n_prefix: -1, expected 0 or more");
    refused(ptl_jagged_split(ctx, &x, -2, &ol, &orr), PTL_ERR_PARAM,
            "n_prefix: -2, expected 0 or more");
}

static void lengths(void) {
    begin();
    m.left_offsets[0] = 1;
    refused(resize(), PTL_ERR_SEQLEN, "x.offsets: begins with 1, expected 0");
    m.left_offsets[1] = 6;
    refused(concat(), PTL_ERR_SEQLEN, "left.offsets: entry 2 is 5, less than 6 before it");
    m.left_offsets[2] = 6;
    refused(replace(), PTL_ERR_SEQLEN, "x.offsets: ends with 6, more than the 5 rows");
    m.right_offsets[2] = 4;
    refused(resize_jagged(), PTL_ERR_SEQLEN, "out.offsets: ends with 4, more than the 3 rows");
    out.shape[0] = 7;
    refused(concat(), PTL_ERR_SEQLEN, "out: 7 rows, but left and right have 8");
    x.shape[0] = 7;
    refused(split(), PTL_ERR_SEQLEN, "x: 7 rows, but left and right have 8");
    m.right_offsets[1] = 3;
    m.left_offsets[1] = 2;
    refused(replace(), PTL_ERR_SEQLEN, "last: 3 rows in sequence 0, more than the 2 rows of x");
    refused(ptl_jagged_replace_last(
                ctx, &l, (struct ptl_jagged[]){{.values = floats(m.right, 2, 2)}}, &out5),
            PTL_ERR_SHAPE, "last: 2 axes, expected 3; rows must be like those of x");
    m.left_offsets[2] = m.right_offsets[2] = INT64_MAX;
    ol.values.data = orr.values.data = NULL;
    refused(split(), PTL_ERR_OVERFLOW, "left, right: together more than 2^63 rows");
    m.left_offsets[2] = 9;
    l.values.data = NULL;
    refused(add(), PTL_ERR_SEQLEN, "x.offsets: ends with 9, more than the 5 rows of out");
}

static void overlaps(void) {
    begin();
    od.values.data = m.left + 4;
    refused(resize(), PTL_ERR_ALIAS, "out: overlaps x, expected memory of its own");
    out.data = m.left;
    refused(concat(), PTL_ERR_ALIAS, "out: overlaps left, expected memory of its own");
    out.data = m.right;
    refused(concat(), PTL_ERR_ALIAS, "out: overlaps right, expected memory of its own");
    out5.data = m.right_offsets;
    refused(replace(), PTL_ERR_ALIAS, "out: overlaps last.offsets, expected memory of its own");
    orr.values.data = m.written.left + 8;
    refused(split(), PTL_ERR_ALIAS, "right: overlaps left, expected memory of its own");
    ol.values.data = m.left;
    refused(split(), PTL_ERR_ALIAS, "left: overlaps x, expected memory of its own");
    ol.values.data = m.right_offsets;
    refused(split(), PTL_ERR_ALIAS, "left: overlaps right.offsets, expected memory of its own");
    out.stride[0] = 1;
    refused(concat(), PTL_ERR_ALIAS,
            "out: stride 1 on axis 1 makes elements overlap, expected at least 8");
    out5 = floats(m.left + 2, 5, 2); /* x, one row on */
    refused(add(), PTL_ERR_ALIAS, "out: overlaps x, expected memory of its own");
    sum.data = m.left;
    refused(sum_rows(), PTL_ERR_ALIAS, "out: overlaps x, expected memory of its own");
    d.data = m.written.out + 4;
    refused(add(), PTL_ERR_ALIAS, "out: overlaps d, expected memory of its own");
}

static void cumsum(void) {
    int64_t n = 2;
    int32_t narrow[3] = {INT32_MAX, 1, 0};
    begin();
    const struct ptl_tensor offsets = numbers(m.written.offsets, 3);
    struct ptl_tensor lengths_ = numbers(m.targets, 2);
    refused(ptl_jagged_complete_cumsum(NULL, &offsets), PTL_ERR_NULL,
            "lengths: NULL, expected a tensor");
    refused(ptl_jagged_complete_cumsum(&lengths_, NULL), PTL_ERR_NULL,
            "offsets: NULL, expected a tensor");
    m.targets[1] = -1;
    refused(ptl_jagged_complete_cumsum(&lengths_, &offsets), PTL_ERR_SEQLEN,
            "lengths: -1 for sequence 1, expected 0 or more");
    m.targets[0] = INT64_MAX;
    m.targets[1] = 1;
    refused(ptl_jagged_complete_cumsum(&lengths_, &offsets), PTL_ERR_OVERFLOW,
            "offsets: the sum exceeds i64 at sequence 1");
    struct ptl_tensor narrow_offsets = offsets;
    narrow_offsets.dtype = PTL_I32;
    lengths_ = ptl_tensor_contiguous(narrow, PTL_I32, 1, &n);
    refused(ptl_jagged_complete_cumsum(&lengths_, &narrow_offsets), PTL_ERR_OVERFLOW,
            "offsets: the sum exceeds i32 at sequence 1; i64 would hold it");
    refused(ptl_jagged_complete_cumsum(&lengths_, &offsets), PTL_ERR_DTYPE,
            "offsets: i64, but another index tensor is i32; all must be alike");
    lengths_ = numbers(m.targets, 1);
    refused(ptl_jagged_complete_cumsum(&lengths_, &offsets), PTL_ERR_SHAPE,
            "offsets: 3 on axis 0, expected 2 (lengths and one more)");
    lengths_ = numbers(m.written.offsets, 2);
    refused(ptl_jagged_complete_cumsum(&lengths_, &offsets), PTL_ERR_ALIAS,
            "offsets: overlaps lengths, expected memory of its own");
}

/* ---- Position and time ----------------------------------------------------------------------- */

static void embedding_tensors(void) {
    begin();
    ctx = NULL;
    refused(forward(), PTL_ERR_NULL, "ctx: NULL, expected a context");
    refused(ptl_jagged_position_time_forward(ctx, NULL), PTL_ERR_NULL,
            "params: NULL, expected arguments");
    refused(ptl_jagged_position_time_backward(ctx, NULL), PTL_ERR_NULL,
            "params: NULL, expected arguments");
    a.struct_size = 8;
    char text[128];
    snprintf(text, sizeof text,
             "params.struct_size: 8, expected %zu; use ptl_jagged_position_time_init", sizeof a);
    refused(forward(), PTL_ERR_PARAM, text);
    a.emb.data = NULL;
    refused(forward(), PTL_ERR_NULL, "emb: missing (data is NULL), expected a tensor");
    a.out.data = NULL;
    refused(forward(), PTL_ERR_NULL, "out: missing (data is NULL), expected a tensor");
    a.pos_w.data = NULL;
    refused(forward(), PTL_ERR_NULL, "pos_w: missing (data is NULL), expected a tensor");
    a.ts_w.data = NULL;
    refused(forward(), PTL_ERR_NULL, "ts_w: missing (data is NULL), expected a tensor");
    a.seq_offsets.data = NULL;
    refused(forward(), PTL_ERR_NULL, "seq_offsets: missing (data is NULL), expected a tensor");
    a.dout.data = NULL;
    refused(backward(), PTL_ERR_NULL, "dout: missing (data is NULL), expected a tensor");
    a.demb.data = a.dpos_w.data = a.dts_w.data = NULL;
    refused(backward(), PTL_ERR_NULL, "demb, dpos_w, dts_w: all missing, expected at least one");

    a.emb.dtype = PTL_U8;
    refused(forward(), PTL_ERR_DTYPE, "emb: u8, expected f32, f16 or bf16");
    a.emb.dtype = PTL_BF16;
    refused(forward(), PTL_ERR_DTYPE, "out: f32, but emb is bf16; both must be alike");
    a.ts_w.dtype = PTL_I32;
    refused(forward(), PTL_ERR_DTYPE, "ts_w: i32, expected f32, f16 or bf16");
    a.dpos_w.dtype = PTL_F16;
    refused(backward(), PTL_ERR_DTYPE, "dpos_w: f16, but dout is f32; expected that or f32");
    a.emb.dtype = a.out.dtype = a.ts_w.dtype = PTL_BF16;
    refused(forward(), PTL_ERR_DTYPE, "ts_w: bf16, but pos_w is f32; both must be alike");
    a.timestamps.dtype = PTL_F32;
    refused(forward(), PTL_ERR_DTYPE, "timestamps: f32, expected i32 or i64");
    a.num_targets = ptl_tensor_contiguous(m.narrow, PTL_I32, 1, (const int64_t[]){2});
    refused(forward(), PTL_ERR_DTYPE,
            "num_targets: i32, but another index tensor is i64; all must be alike");

    a.pos_w.stride[1] = 2;
    refused(forward(), PTL_ERR_LAYOUT, "pos_w: stride 2 on the last axis, expected 1");

    a.emb.ndim = 3;
    refused(forward(), PTL_ERR_SHAPE, "emb: 3 axes, expected 2");
    a.out.shape[0] = 4;
    refused(forward(), PTL_ERR_SHAPE, "out: 4 on axis 0, expected 5 (rows of emb)");
    a.out.shape[1] = 1;
    refused(forward(), PTL_ERR_SHAPE, "out: 1 on axis 1, expected 2 (columns of emb)");
    a.pos_w.shape[1] = 1;
    refused(forward(), PTL_ERR_SHAPE, "pos_w: 1 on axis 1, expected 2 (columns of emb)");
    a.pos_w.shape[0] = 0;
    refused(forward(), PTL_ERR_SHAPE, "pos_w: no rows, expected at least 1");
    a.ts_w.shape[0] = 0;
    refused(forward(), PTL_ERR_SHAPE, "ts_w: no rows, expected at least 1");
    a.timestamps.shape[0] = 4;
    refused(forward(), PTL_ERR_SHAPE, "timestamps: 4 on axis 0, expected 5 (rows of emb)");
    a.timestamps.shape[0] = 4;
    refused(backward(), PTL_ERR_SHAPE, "timestamps: 4 on axis 0, expected 5 (rows of dout)");
    a.demb.shape[0] = 6;
    refused(backward(), PTL_ERR_SHAPE, "demb: 6 on axis 0, expected 5 (rows of dout)");
    a.num_targets = numbers(m.targets, 1);
    refused(forward(), PTL_ERR_SHAPE, "num_targets: 1 on axis 0, expected 2 (number of sequences)");
}

static void embedding_options(void) {
    begin();
    a.position_order = (enum ptl_jagged_position_order)2;
    refused(forward(), PTL_ERR_PARAM,
            "position_order: 2, expected PTL_JAGGED_POSITION_FROM_END or "
            "PTL_JAGGED_POSITION_FROM_START");
    a.time_bucket = (enum ptl_jagged_time_bucket)5;
    refused(forward(), PTL_ERR_PARAM,
            "time_bucket: 5, expected PTL_JAGGED_TIME_SQRT or PTL_JAGGED_TIME_LOG");
    a.num_contexts = numbers(m.contexts, 2);
    a.position_order = PTL_JAGGED_POSITION_FROM_START;
    refused(forward(), PTL_ERR_PARAM,
            "num_contexts: given with PTL_JAGGED_POSITION_FROM_START, where contexts count like "
            "other tokens");
    a.position_start = numbers(m.starts, 2);
    refused(forward(), PTL_ERR_PARAM,
            "position_start: given with PTL_JAGGED_POSITION_FROM_END, expected "
            "PTL_JAGGED_POSITION_FROM_START");
    a.alpha = INFINITY;
    refused(forward(), PTL_ERR_PARAM, "alpha: inf, expected a finite number");
    a.alpha = -INFINITY;
    refused(backward(), PTL_ERR_PARAM, "alpha: -inf, expected a finite number");
    a.timestamps.data = NULL;
    refused(forward(), PTL_ERR_PARAM, "ts_w: given without timestamps, expected both or neither");
    a.timestamps.data = NULL;
    refused(backward(), PTL_ERR_PARAM, "dts_w: given without timestamps, expected both");

    m.left_offsets[2] = 6;
    refused(forward(), PTL_ERR_SEQLEN, "seq_offsets: ends with 6, more than the 5 rows");
    a.num_targets = numbers(m.targets, 2);
    m.targets[1] = 3;
    refused(forward(), PTL_ERR_SEQLEN, "num_targets: 3 in sequence 1, more than its 2 tokens");
    a.num_targets = numbers(m.targets, 2);
    m.targets[0] = -1;
    refused(backward(), PTL_ERR_SEQLEN, "num_targets: -1 for sequence 0, expected 0 or more");
    a.num_contexts = numbers(m.contexts, 2);
    m.contexts[0] = 3;
    a.pos_w.shape[0] = 2;
    refused(forward(), PTL_ERR_SEQLEN,
            "num_contexts: 3 in sequence 0, more than the 2 rows of pos_w");
    a.num_contexts = numbers(m.contexts, 2);
    m.contexts[0] = 3;
    a.dpos_w.shape[0] = 2;
    refused(backward(), PTL_ERR_SEQLEN,
            "num_contexts: 3 in sequence 0, more than the 2 rows of dpos_w");
    a.position_order = PTL_JAGGED_POSITION_FROM_START;
    a.position_start = numbers(m.starts, 2);
    m.starts[1] = -4;
    refused(forward(), PTL_ERR_SEQLEN, "position_start: -4 for sequence 1, expected 0 or more");

    a.out.data = m.left + 2;
    refused(forward(), PTL_ERR_ALIAS, "out: overlaps emb, expected memory of its own");
    a.out.data = m.right;
    refused(forward(), PTL_ERR_ALIAS, "out: overlaps pos_w, expected memory of its own");
    a.out.data = m.times;
    refused(forward(), PTL_ERR_ALIAS, "out: overlaps timestamps, expected memory of its own");
    a.out.stride[0] = 0;
    refused(forward(), PTL_ERR_ALIAS,
            "out: stride 0 on axis 0 makes elements overlap, expected at least 1");
    a.dts_w.data = m.written.table + 4;
    refused(backward(), PTL_ERR_ALIAS, "dts_w: overlaps dpos_w, expected memory of its own");
    a.dpos_w.data = m.left;
    refused(backward(), PTL_ERR_ALIAS, "dpos_w: overlaps dout, expected memory of its own");
}

/* ---- No errors ------------------------------------------------------------------------------- */

static void nothing_to_do(void) {
    const struct ptl_tensor none = floats(NULL, 0, 2);
    begin();
    l.offsets.shape[0] = r.offsets.shape[0] = 1; /* B = 0 */
    l.values = r.values = none;
    accepted("concat of no sequences", ptl_jagged_concat(ctx, &l, &r, 3, &none));
    memset(m.left_offsets, 0, sizeof m.left_offsets);
    l.values = none;
    accepted("all sequences empty", ptl_jagged_resize(ctx, &l, PTL_JAGGED_ALIGN_END, NULL, &od));
    dense.values = ptl_tensor_contiguous(NULL, PTL_F32, 3, (const int64_t[]){2, 0, 2});
    accepted("a dense side of no rows", concat_dense());
    l.values = ptl_tensor_contiguous(NULL, PTL_F32, 3, (const int64_t[]){5, 0, 4});
    memset(l.values.stride, 0, sizeof l.values.stride);
    out = floats(m.written.out, 5, 0);
    out.ndim = 3;
    out.shape[2] = 4;
    memset(out.stride, 0, sizeof out.stride);
    r.values = ptl_tensor_contiguous(NULL, PTL_F32, 3, (const int64_t[]){3, 0, 4});
    accepted("strides of no elements", ptl_jagged_replace_last(ctx, &l, &r, &out));
    l.values = floats(NULL, 5, 0);
    od.values = ptl_tensor_contiguous(NULL, PTL_F32, 3, (const int64_t[]){2, 2, 0});
    accepted("rows of no elements", resize());
    ol.values.data = orr.values.data = NULL;
    accepted("a split of which nothing is wanted", split());
    a.emb = a.out = none;
    a.timestamps = numbers(NULL, 0);
    a.seq_offsets.shape[0] = 1;
    accepted("an embedding of no tokens", forward());
    a.dout = a.demb = none;
    a.dpos_w.data = a.dts_w.data = a.timestamps.data = NULL;
    a.seq_offsets.shape[0] = 1;
    accepted("the gradient of no tokens", backward());
    a.num_targets = a.num_contexts = numbers(m.targets, 2);
    m.left_offsets[1] = 5;
    m.targets[1] = 100;
    accepted("any counts in an empty sequence", forward());
    a.timestamps.data = NULL;
    memset(&a.ts_w, 0, sizeof a.ts_w);
    accepted("positions alone", forward());
}

/* Columns of one wider buffer are apart, although their ranges are not. */
static void slices_of_one_buffer(void) {
    static float wide[8 * 6];
    begin();
    l.values = floats(wide, 5, 2);
    r.values = floats(wide + 2, 3, 2);
    out = floats(wide + 4, 8, 2);
    l.values.stride[0] = r.values.stride[0] = out.stride[0] = 6;
    accepted("concat inside one buffer", concat());
    ol.values = floats(wide, 5, 2);
    orr.values = floats(wide + 2, 3, 2);
    x = floats(wide + 4, 8, 2);
    ol.values.stride[0] = orr.values.stride[0] = x.stride[0] = 6;
    accepted("split inside one buffer", split());
    a.emb = floats(wide, 5, 2);
    a.out = floats(wide + 3, 5, 2);
    a.emb.stride[0] = a.out.stride[0] = 6;
    accepted("embedding inside one buffer", forward());
}

static const struct test tests[] = {
    {"missing", missing},
    {"types", types},
    {"layouts", layouts},
    {"shapes", shapes},
    {"numbers_out_of_range", numbers_out_of_range},
    {"lengths", lengths},
    {"overlaps", overlaps},
    {"cumsum", cumsum},
    {"embedding_tensors", embedding_tensors},
    {"embedding_options", embedding_options},
    {"nothing_to_do", nothing_to_do},
    {"slices_of_one_buffer", slices_of_one_buffer},
};
TEST_SUITE(jagged_refusals_suite, "jagged/refusals", tests);
