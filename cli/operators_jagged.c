/* The copies between jagged and padded arrays, and the position and time embedding: their words,
 * the outputs they have, and the calls themselves. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "../ref/elements.h"
#include "commands.h"
#include "compare.h"
#include "cost.h"
#include "npy.h"
#include "operators.h"
#include "tensors.h"

/* ---- Words ----------------------------------------------------------------------------------- */

static const char *const start_or_end[] = {"start", "end", NULL};
static const char *const position_orders[] = {"from_end", "from_start", NULL};
static const char *const time_buckets[] = {"sqrt", "log", NULL};

static const struct field to_padded_fields[] = {
    FIELD("x", FIELD_ARRAY, jagged.x.values),
    FIELD("x.offsets", FIELD_INDEX, jagged.x.offsets),
    FIELD("n", FIELD_INTEGER, jagged.n),
    CHOICE("align", jagged.align, start_or_end),
    FIELD("padding_value", FIELD_DOUBLE, jagged.padding_value),
    FIELD("out", FIELD_OUTPUT, jagged.out.values),
    {0},
};

static const struct field to_jagged_fields[] = {
    FIELD("x", FIELD_ARRAY, jagged.x.values),
    FIELD("out.offsets", FIELD_INDEX, jagged.out.offsets),
    FIELD("rows", FIELD_INTEGER, jagged.rows),
    CHOICE("align", jagged.align, start_or_end),
    FIELD("padding_value", FIELD_DOUBLE, jagged.padding_value),
    FIELD("out", FIELD_OUTPUT, jagged.out.values),
    {0},
};

static const struct field concat_fields[] = {
    FIELD("left", FIELD_ARRAY, jagged.left.values),
    FIELD("left.offsets", FIELD_INDEX, jagged.left.offsets),
    FIELD("right", FIELD_ARRAY, jagged.right.values),
    FIELD("right.offsets", FIELD_INDEX, jagged.right.offsets),
    FIELD("n_prefix", FIELD_INTEGER, jagged.n_prefix),
    FIELD("rows", FIELD_INTEGER, jagged.rows),
    FIELD("out", FIELD_OUTPUT, jagged.out.values),
    {0},
};

static const struct field split_fields[] = {
    FIELD("x", FIELD_ARRAY, jagged.x.values),
    FIELD("left.offsets", FIELD_INDEX, jagged.left.offsets),
    FIELD("left.n", FIELD_INTEGER, jagged.n_left),
    FIELD("right.offsets", FIELD_INDEX, jagged.right.offsets),
    FIELD("right.n", FIELD_INTEGER, jagged.n_right),
    FIELD("n_prefix", FIELD_INTEGER, jagged.n_prefix),
    FIELD("left", FIELD_OUTPUT, jagged.left.values),
    FIELD("right", FIELD_OUTPUT, jagged.right.values),
    {0},
};

static const struct field position_time_fields[] = {
#define ARRAY(key) FIELD(#key, FIELD_ARRAY, position_time.key)
#define INDEX(key) FIELD(#key, FIELD_INDEX, position_time.key)
    INDEX(seq_offsets),
    INDEX(num_targets),
    INDEX(num_contexts),
    INDEX(position_start),
    FIELD("timestamps", FIELD_TIMES, position_time.timestamps),
    ARRAY(pos_w),
    ARRAY(ts_w),
    CHOICE("position_order", position_time.position_order, position_orders),
    CHOICE("time_bucket", position_time.time_bucket, time_buckets),
    FIELD("alpha", FIELD_FLOAT, position_time.alpha),
    {0},
#undef ARRAY
#undef INDEX
};

static const struct field embed_fields[] = {
    FIELD("emb", FIELD_ARRAY, position_time.emb),
    FIELD("out", FIELD_OUTPUT, position_time.out),
    {0},
};

static const struct field embed_backward_fields[] = {
    FIELD("dout", FIELD_ARRAY, position_time.dout),
    FIELD("demb", FIELD_OUTPUT, position_time.demb),
    FIELD("dpos_w", FIELD_OUTPUT, position_time.dpos_w),
    FIELD("dts_w", FIELD_OUTPUT, position_time.dts_w),
    {0},
};

/* ---- Preparing ------------------------------------------------------------------------------- */

/* The last offset, or 0 where the tensor is none; a wrong one is refused by the library. */
static int64_t last_offset(const struct ptl_tensor *t) {
    if (!t->data || t->ndim != 1 || t->shape[0] < 1) return 0;
    const int64_t i = t->shape[0] - 1;
    const int64_t last = t->dtype == PTL_I64   ? ((const int64_t *)t->data)[i]
                         : t->dtype == PTL_I32 ? ((const int32_t *)t->data)[i]
                                               : 0;
    return last > 0 ? last : 0;
}

static int64_t longest(const struct ptl_tensor *offsets) {
    int64_t n = 0;
    struct ptl_tensor part = *offsets;
    for (int64_t b = 1; offsets->data && offsets->ndim == 1 && b < offsets->shape[0]; b++) {
        part.shape[0] = b;
        const int64_t begin = last_offset(&part);
        part.shape[0] = b + 1;
        const int64_t length = last_offset(&part) - begin;
        if (length > n) n = length;
    }
    return n;
}

/* `lead` extents, then those of a row of x, which begins at axis x_lead. */
static bool take_rows(struct call *c, const char *key, const struct ptl_tensor *x, int x_lead,
                      const int64_t *extents, int lead, struct ptl_tensor *t, struct refusal *r) {
    int64_t shape[8];
    const int ndim = lead + x->ndim - x_lead;
    if (ndim > 4) return refuse(r, "%s: more than 4 axes, expected at most 4", key);
    for (int i = 0; i < lead; i++) {
        if (extents[i] < 0)
            return refuse(r, "%s: an extent of %" PRId64 ", expected 0 or more", key, extents[i]);
        shape[i] = extents[i];
    }
    for (int i = x_lead; i < x->ndim; i++) shape[lead + i - x_lead] = x->shape[i];
    return call_take(c, key, x->dtype, ndim, shape, t, r);
}

/* The padding value as an element of x's type; whole numbers only for integers. */
static bool read_padding(struct call *c, struct refusal *r) {
    struct jagged_arguments *a = &c->jagged;
    const double x = a->padding_value;
    const enum ptl_dtype dtype = a->x.values.dtype;
    const bool whole = x == floor(x) && fabs(x) <= 0x1p53;
    const int64_t n = whole ? (int64_t)x : 0;
    if (dtype == PTL_F32 || dtype == PTL_F16 || dtype == PTL_BF16) {
        ref_write(dtype, a->pad, 0, x);
        return true;
    }
    if (!whole || (dtype == PTL_I32 && n != (int32_t)n) || (dtype == PTL_U8 && n != (uint8_t)n))
        return refuse(r, "padding_value: %g does not fit the type of x", x);
    memcpy(a->pad, &n, ptl_dtype_bytes(dtype)); /* little-endian, as npy.c asserts */
    return true;
}

static bool prepare_to_padded(struct call *c, struct refusal *r) {
    struct jagged_arguments *a = &c->jagged;
    const struct ptl_tensor *offsets = &a->x.offsets;
    if (!require("x", &a->x.values, 1, 4, "1 axis or more", r) ||
        !require("x.offsets", offsets, 1, 1, "1 axis", r))
        return false;
    const int64_t n_seqs = offsets->shape[0] > 0 ? offsets->shape[0] - 1 : 0;
    const int64_t extents[2] = {n_seqs, a->n >= 0 ? a->n : longest(offsets)};
    return read_padding(c, r) &&
           take_rows(c, "out", &a->x.values, 1, extents, 2, &a->out.values, r);
}

static bool prepare_to_jagged(struct call *c, struct refusal *r) {
    struct jagged_arguments *a = &c->jagged;
    if (!require("x", &a->x.values, 2, 4, "2 axes or more", r) ||
        !require("out.offsets", &a->out.offsets, 1, 1, "1 axis", r))
        return false;
    const int64_t rows = a->rows >= 0 ? a->rows : last_offset(&a->out.offsets);
    return read_padding(c, r) && take_rows(c, "out", &a->x.values, 2, &rows, 1, &a->out.values, r);
}

/* Rows of both sides. False: more than 2^63. */
static bool count_rows(const struct jagged_arguments *a, int64_t *rows) {
    const struct ptl_jagged *const sides[2] = {&a->left, &a->right};
    *rows = 0;
    for (int i = 0; i < 2; i++) {
        const struct ptl_jagged *side = sides[i];
        int64_t n = last_offset(&side->offsets);
        if (!side->offsets.data &&
            __builtin_mul_overflow(side->values.shape[0], side->values.shape[1], &n))
            return false;
        if (__builtin_add_overflow(*rows, n, rows)) return false;
    }
    return true;
}

static bool check_side(const char *key, const struct ptl_jagged *side, struct refusal *r) {
    if (side->offsets.data) return require(key, &side->values, 1, 4, "1 axis or more", r);
    return require(key, &side->values, 2, 4, "2 axes or more, as it has no offsets", r);
}

static bool prepare_concat(struct call *c, struct refusal *r) {
    struct jagged_arguments *a = &c->jagged;
    int64_t rows;
    if (!check_side("left", &a->left, r) || !check_side("right", &a->right, r)) return false;
    if (!count_rows(a, &rows)) return refuse(r, "left, right: together more than 2^63 rows");
    if (a->rows >= 0) rows = a->rows;
    return take_rows(c, "out", &a->left.values, a->left.offsets.data ? 1 : 2, &rows, 1,
                     &a->out.values, r);
}

/* A side of the split: jagged by its offsets, or n rows for each sequence. One that is not due
 * keeps its shape, without data. */
static bool prepare_side(struct call *c, const char *key, struct ptl_jagged *side, int64_t n,
                         int64_t n_seqs, struct refusal *r) {
    const struct ptl_tensor *x = &c->jagged.x.values;
    const int64_t extents[2] = {side->offsets.data ? last_offset(&side->offsets) : n_seqs, n};
    if (!side->offsets.data && n < 0)
        return refuse(r, "%s.offsets: missing, expected %s.offsets or %s.n", key, key, key);
    if (side->offsets.data && n >= 0)
        return refuse(r, "%s.n: given together with %s.offsets, expected one of them", key, key);
    if (!take_rows(c, key, x, 1, extents, side->offsets.data ? 1 : 2, &side->values, r))
        return false;
    if (!is_due(c, key)) side->values.data = NULL;
    return true;
}

static bool prepare_split(struct call *c, struct refusal *r) {
    struct jagged_arguments *a = &c->jagged;
    if (!require("x", &a->x.values, 1, 4, "1 axis or more", r)) return false;
    const struct ptl_tensor *offsets = a->left.offsets.data ? &a->left.offsets : &a->right.offsets;
    if (!require("left.offsets", offsets, 1, 1, "1 axis", r)) return false;
    const int64_t n_seqs = offsets->shape[0] > 0 ? offsets->shape[0] - 1 : 0;
    return prepare_side(c, "left", &a->left, a->n_left, n_seqs, r) &&
           prepare_side(c, "right", &a->right, a->n_right, n_seqs, r);
}

static bool prepare_embed(struct call *c, struct refusal *r) {
    struct ptl_jagged_position_time_params *a = &c->position_time;
    return require("emb", &a->emb, 2, 2, "2 axes", r) && take_like(c, "out", &a->emb, &a->out, r);
}

/* The tables are not read; they tell the shapes of their gradients. */
static bool prepare_embed_backward(struct call *c, struct refusal *r) {
    struct ptl_jagged_position_time_params *a = &c->position_time;
    if (!require("dout", &a->dout, 2, 2, "2 axes", r)) return false;
    if (is_due(c, "demb") && !take_like(c, "demb", &a->dout, &a->demb, r)) return false;
    const bool pos = a->pos_w.data && is_due(c, "dpos_w"), ts = a->ts_w.data && is_due(c, "dts_w");
    return (!pos || take_like(c, "dpos_w", &a->pos_w, &a->dpos_w, r)) &&
           (!ts || take_like(c, "dts_w", &a->ts_w, &a->dts_w, r));
}

/* ---- Calls ----------------------------------------------------------------------------------- */

static void init_jagged(struct call *c) {
    c->jagged.n = c->jagged.rows = c->jagged.n_left = c->jagged.n_right = -1;
}

static void init_position_time(struct call *c) {
    ptl_jagged_position_time_init(&c->position_time);
}

static enum ptl_status run_resize(struct ptl_context *ctx, const struct call *c) {
    const struct jagged_arguments *a = &c->jagged;
    return ptl_jagged_resize(ctx, &a->x, a->align, a->pad, &a->out);
}

static enum ptl_status run_concat(struct ptl_context *ctx, const struct call *c) {
    const struct jagged_arguments *a = &c->jagged;
    return ptl_jagged_concat(ctx, &a->left, &a->right, a->n_prefix, &a->out.values);
}

static enum ptl_status run_split(struct ptl_context *ctx, const struct call *c) {
    const struct jagged_arguments *a = &c->jagged;
    return ptl_jagged_split(ctx, &a->x.values, a->n_prefix, &a->left, &a->right);
}

static enum ptl_status run_embed(struct ptl_context *ctx, const struct call *c) {
    return ptl_jagged_position_time_forward(ctx, &c->position_time);
}

static enum ptl_status run_embed_backward(struct ptl_context *ctx, const struct call *c) {
    return ptl_jagged_position_time_backward(ctx, &c->position_time);
}

static const struct operator operators[] = {
    {"jagged_to_padded",
     "jagged",
     {to_padded_fields},
     init_jagged,
     prepare_to_padded,
     generate_jagged,
     run_resize,
     compare_resize,
     cost_resize,
     "out",
     offsetof(struct call, jagged.x.values)},
    {"padded_to_jagged",
     "jagged",
     {to_jagged_fields},
     init_jagged,
     prepare_to_jagged,
     generate_jagged,
     run_resize,
     compare_resize,
     cost_resize,
     "out",
     offsetof(struct call, jagged.x.values)},
    {"concat_jagged",
     "jagged",
     {concat_fields},
     init_jagged,
     prepare_concat,
     generate_jagged,
     run_concat,
     compare_concat,
     cost_concat,
     "out",
     offsetof(struct call, jagged.left.values)},
    {"split_jagged",
     "jagged",
     {split_fields},
     init_jagged,
     prepare_split,
     generate_jagged,
     run_split,
     compare_split,
     cost_split,
     "left",
     offsetof(struct call, jagged.x.values)},
    {"position_time",
     "jagged",
     {position_time_fields, embed_fields},
     init_position_time,
     prepare_embed,
     generate_position_time,
     run_embed,
     compare_position_time,
     cost_position_time,
     "out",
     offsetof(struct call, position_time.emb)},
    {"position_time_backward",
     "jagged",
     {position_time_fields, embed_backward_fields},
     init_position_time,
     prepare_embed_backward,
     generate_position_time,
     run_embed_backward,
     compare_position_time,
     cost_position_time,
     "demb",
     offsetof(struct call, position_time.dout)},
    {0},
};

const struct family jagged_family = {"jagged", jagged_help, operators};
