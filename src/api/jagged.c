/* The jagged calls: every row of the error contract, then the job as the operators walk it. */
#include <pantile/jagged.h>

#include <inttypes.h>
#include <string.h>

#include "../core/message.h"
#include "../ops/jagged.h"
#include "check.h"

/* ---- Sequence lengths ------------------------------------------------------------------------ */

static int64_t number_at(const struct ptl_tensor *t, int64_t i) {
    return t->dtype == PTL_I64 ? ((const int64_t *)t->data)[i] : ((const int32_t *)t->data)[i];
}

enum ptl_status ptl_jagged_complete_cumsum(const struct ptl_tensor *lengths,
                                           const struct ptl_tensor *offsets) {
    enum ptl_dtype index_type = 0;
    if (!lengths) return ptl_fail(PTL_ERR_NULL, "lengths: NULL, expected a tensor");
    if (!offsets) return ptl_fail(PTL_ERR_NULL, "offsets: NULL, expected a tensor");
    TRY(ptl_check_required("lengths", lengths));
    TRY(ptl_check_required("offsets", offsets));
    TRY(ptl_check_index("lengths", lengths, 1, 1, &index_type));
    TRY(ptl_check_index("offsets", offsets, 1, 1, &index_type));
    TRY(ptl_check_extent("offsets", offsets, 0, lengths->shape[0] + 1, "lengths and one more"));
    TRY(ptl_check_no_overlap("offsets", offsets, "lengths", lengths));
    const int64_t n = lengths->shape[0], most = index_type == PTL_I32 ? INT32_MAX : INT64_MAX;
    int64_t sum = 0;
    for (int64_t b = 0; b < n; b++) {
        const int64_t length = number_at(lengths, b);
        if (length < 0)
            return ptl_fail(PTL_ERR_SEQLEN,
                            "lengths: %" PRId64 " for sequence %" PRId64 ", expected 0 or more",
                            length, b);
        if (length > most - sum)
            return ptl_fail(
                PTL_ERR_OVERFLOW, "offsets: the sum exceeds %s at sequence %" PRId64 "%s",
                ptl_dtype_name(index_type), b, index_type == PTL_I32 ? "; i64 would hold it" : "");
        sum += length;
    }
    sum = 0;
    for (int64_t b = 0; b <= n; b++) {
        if (index_type == PTL_I32) ((int32_t *)offsets->data)[b] = (int32_t)sum;
        else ((int64_t *)offsets->data)[b] = sum;
        if (b < n) sum += number_at(lengths, b);
    }
    return PTL_OK;
}

/* ---- Arrays of rows -------------------------------------------------------------------------- */

/* What the arrays of a call have in common; set by the first that says it. */
struct agreed {
    const char *rows_of; /* the array that said what a row is, or NULL */
    enum ptl_dtype dtype;
    int n_axes; /* of a row */
    int64_t extent[2], row_elements;
    const char *seqs_of; /* the array that said how many sequences there are, or NULL */
    int64_t n_seqs;
    enum ptl_dtype index_type;
};

static int64_t row_bytes(const struct agreed *agreed) {
    return agreed->row_elements * (int64_t)ptl_dtype_bytes(agreed->dtype);
}

static bool has_elements(const struct ptl_tensor *t) {
    for (int axis = 0; axis < t->ndim; axis++)
        if (t->shape[axis] == 0) return false;
    return true;
}

/* values [T, ...] (lead 1) or [B, n, ...] (lead 2): rows contiguous, and as agreed. */
static enum ptl_status check_values(const char *name, const struct ptl_tensor *t, int lead,
                                    struct agreed *agreed) {
    int64_t elements = 1;
    TRY(ptl_check_layout(name, t, lead, lead + 2));
    const bool any = has_elements(t);
    for (int axis = t->ndim - 1; axis >= lead; axis--) {
        if (any && t->shape[axis] > 1 && t->stride[axis] != elements)
            return ptl_fail(PTL_ERR_LAYOUT,
                            "%s: stride %" PRId64 " on axis %d, expected %" PRId64
                            "; a row must be contiguous",
                            name, t->stride[axis], axis, elements);
        elements *= t->shape[axis];
    }
    if (!agreed->rows_of) {
        agreed->rows_of = name;
        agreed->dtype = t->dtype;
        agreed->n_axes = t->ndim - lead;
        for (int i = 0; i < agreed->n_axes; i++) agreed->extent[i] = t->shape[lead + i];
        agreed->row_elements = elements;
        return PTL_OK;
    }
    if (t->ndim != lead + agreed->n_axes)
        return ptl_fail(PTL_ERR_SHAPE, "%s: %d axes, expected %d; rows must be like those of %s",
                        name, (int)t->ndim, lead + agreed->n_axes, agreed->rows_of);
    for (int i = 0; i < agreed->n_axes; i++)
        if (t->shape[lead + i] != agreed->extent[i])
            return ptl_fail(PTL_ERR_SHAPE,
                            "%s: %" PRId64 " on axis %d, expected %" PRId64
                            "; rows must be like those of %s",
                            name, t->shape[lead + i], lead + i, agreed->extent[i], agreed->rows_of);
    if (t->dtype != agreed->dtype)
        return ptl_fail(PTL_ERR_DTYPE, "%s: %s, but %s is %s; all must be alike", name,
                        ptl_dtype_name(t->dtype), agreed->rows_of, ptl_dtype_name(agreed->dtype));
    return PTL_OK;
}

static enum ptl_status check_n_seqs(const char *name, int64_t n_seqs, struct agreed *agreed) {
    if (!agreed->seqs_of) {
        agreed->seqs_of = name;
        agreed->n_seqs = n_seqs;
    }
    if (n_seqs != agreed->n_seqs)
        return ptl_fail(PTL_ERR_SHAPE, "%s: %" PRId64 " sequences, but %s has %" PRId64, name,
                        n_seqs, agreed->seqs_of, agreed->n_seqs);
    return PTL_OK;
}

/* The number of axes in front of a row. */
static int lead_of(const struct ptl_jagged *j) {
    return ptl_given(&j->offsets) ? 1 : 2;
}

static struct ptl_jagged_rows rows_of(const struct ptl_jagged *j) {
    const struct ptl_tensor *t = &j->values;
    const int lead = lead_of(j);
    const int64_t bytes = (int64_t)ptl_dtype_bytes(t->dtype);
    struct ptl_jagged_rows r = {.data = t->data};
    if (t->ndim >= lead) { /* else there are no values, and nothing is read from here */
        r.row_stride = t->stride[lead - 1] * bytes;
        if (lead == 2) {
            r.n = t->shape[1];
            r.batch_stride = t->stride[0] * bytes;
        }
    }
    if (lead == 1) r.offsets = (struct ptl_index){j->offsets.data, j->offsets.dtype == PTL_I64, 1};
    return r;
}

/* optional: values without data are taken; only a dense array must still tell its shape then. */
static enum ptl_status check_jagged(const char *name, const char *offsets_name,
                                    const struct ptl_jagged *j, bool optional,
                                    struct agreed *agreed, struct ptl_jagged_rows *rows) {
    if (!j) return ptl_fail(PTL_ERR_NULL, "%s: NULL, expected a struct ptl_jagged", name);
    const struct ptl_tensor *values = &j->values, *offsets = &j->offsets;
    const bool absent = optional && !ptl_given(values);
    if (!absent) TRY(ptl_check_required(name, values));
    if (lead_of(j) == 2) {
        TRY(check_values(name, values, 2, agreed));
        TRY(check_n_seqs(name, values->shape[0], agreed));
    } else {
        if (!absent) TRY(check_values(name, values, 1, agreed));
        TRY(ptl_check_index(offsets_name, offsets, 1, 1, &agreed->index_type));
        TRY(ptl_check_offsets(offsets_name, offsets, absent ? INT64_MAX : values->shape[0]));
        TRY(check_n_seqs(offsets_name, offsets->shape[0] - 1, agreed));
    }
    *rows = rows_of(j);
    return PTL_OK;
}

/* A tensor [T, ...] whose sequences the call derives. */
static enum ptl_status check_plain(const char *name, const struct ptl_tensor *t,
                                   struct agreed *agreed) {
    if (!t) return ptl_fail(PTL_ERR_NULL, "%s: NULL, expected a tensor", name);
    TRY(ptl_check_required(name, t));
    return check_values(name, t, 1, agreed);
}

static struct ptl_jagged_rows plain_rows(const struct ptl_tensor *t) {
    return (struct ptl_jagged_rows){
        .data = t->data, .row_stride = t->stride[0] * (int64_t)ptl_dtype_bytes(t->dtype)};
}

/* Rows behind the last sequence of an array that is written. */
static int64_t padding_rows(const struct ptl_jagged *j, const struct ptl_jagged_rows *rows,
                            int64_t n_seqs) {
    if (!rows->data || !rows->offsets.data) return 0;
    return j->values.shape[0] - ptl_jagged_begin(rows, n_seqs);
}

/* ---- Overlap --------------------------------------------------------------------------------- */

/* The tensor as [batches, rows, 1, elements of a row], the form in which rows of a wider buffer are
 * told apart. */
static struct ptl_tensor as_rows(const struct ptl_tensor *t, int lead, int64_t row_elements) {
    struct ptl_tensor r = {.data = t->data, .dtype = t->dtype, .ndim = 4};
    r.shape[0] = lead == 2 ? t->shape[0] : 1;
    r.stride[0] = lead == 2 ? t->stride[0] : 0;
    r.shape[1] = t->shape[lead - 1];
    r.stride[1] = t->stride[lead - 1];
    r.shape[2] = r.stride[2] = r.stride[3] = 1;
    r.shape[3] = row_elements;
    return r;
}

static enum ptl_status check_apart(const char *out_name, const struct ptl_tensor *out, int out_lead,
                                   const char *in_name, const struct ptl_tensor *in, int in_lead,
                                   const struct agreed *agreed) {
    if (!ptl_given(out) || !ptl_given(in)) return PTL_OK;
    const struct ptl_tensor out_rows = as_rows(out, out_lead, agreed->row_elements);
    const struct ptl_tensor in_rows = as_rows(in, in_lead, agreed->row_elements);
    return ptl_check_no_overlap(out_name, &out_rows, in_name, &in_rows);
}

/* An output against an array of the call and its offsets. */
static enum ptl_status check_apart_jagged(const char *out_name, const struct ptl_tensor *out,
                                          int out_lead, const char *name, const char *offsets_name,
                                          const struct ptl_jagged *j, const struct agreed *agreed) {
    TRY(check_apart(out_name, out, out_lead, name, &j->values, lead_of(j), agreed));
    return ptl_check_no_overlap(out_name, out, offsets_name, &j->offsets);
}

/* ---- Copies ---------------------------------------------------------------------------------- */

static enum ptl_status check_context(const struct ptl_context *ctx) {
    if (!ctx) return ptl_fail(PTL_ERR_NULL, "ctx: NULL, expected a context");
    return PTL_OK;
}

static enum ptl_status run_copy(struct ptl_context *ctx, struct ptl_jagged_copy *copy,
                                const struct agreed *agreed) {
    copy->n_seqs = agreed->n_seqs;
    copy->row_bytes = row_bytes(agreed);
    copy->elem_bytes = (int64_t)ptl_dtype_bytes(agreed->dtype);
    pthread_mutex_lock(&ctx->lock);
    ptl_jagged_run_copy(ctx, copy);
    pthread_mutex_unlock(&ctx->lock);
    return PTL_OK;
}

enum ptl_status ptl_jagged_resize(struct ptl_context *ctx, const struct ptl_jagged *x,
                                  enum ptl_jagged_align align, const void *pad,
                                  const struct ptl_jagged *out) {
    struct ptl_jagged_copy copy = {.op = PTL_JAGGED_RESIZE, .align = align};
    struct agreed agreed = {0};
    TRY(check_context(ctx));
    TRY(check_jagged("x", "x.offsets", x, false, &agreed, &copy.side[0]));
    TRY(check_jagged("out", "out.offsets", out, false, &agreed, &copy.whole));
    if (align != PTL_JAGGED_ALIGN_START && align != PTL_JAGGED_ALIGN_END)
        return ptl_fail(PTL_ERR_PARAM,
                        "align: %d, expected PTL_JAGGED_ALIGN_START or PTL_JAGGED_ALIGN_END",
                        (int)align);
    TRY(ptl_check_no_self_overlap("out", &out->values));
    TRY(check_apart_jagged("out", &out->values, lead_of(out), "x", "x.offsets", x, &agreed));
    TRY(ptl_check_no_overlap("out", &out->values, "out.offsets", &out->offsets));
    if (pad) memcpy(copy.pad, pad, ptl_dtype_bytes(agreed.dtype));
    copy.n_padding = padding_rows(out, &copy.whole, agreed.n_seqs);
    return run_copy(ctx, &copy, &agreed);
}

/* The rows of both sides together; false: not 64-bit. */
static bool sum_rows(const struct ptl_jagged_copy *copy, int64_t n_seqs, int64_t *rows) {
    return !__builtin_add_overflow(ptl_jagged_begin(&copy->side[0], n_seqs),
                                   ptl_jagged_begin(&copy->side[1], n_seqs), rows);
}

static enum ptl_status check_prefix(int64_t n_prefix) {
    if (n_prefix >= 0) return PTL_OK;
    return ptl_fail(PTL_ERR_PARAM, "n_prefix: %" PRId64 ", expected 0 or more", n_prefix);
}

static enum ptl_status check_whole_rows(const char *name, const struct ptl_tensor *whole,
                                        const struct ptl_jagged_copy *copy, int64_t n_seqs,
                                        int64_t *rows) {
    if (!sum_rows(copy, n_seqs, rows))
        return ptl_fail(PTL_ERR_OVERFLOW, "left, right: together more than 2^63 rows");
    if (*rows > whole->shape[0])
        return ptl_fail(PTL_ERR_SEQLEN, "%s: %" PRId64 " rows, but left and right have %" PRId64,
                        name, whole->shape[0], *rows);
    return PTL_OK;
}

enum ptl_status ptl_jagged_concat(struct ptl_context *ctx, const struct ptl_jagged *left,
                                  const struct ptl_jagged *right, int64_t n_prefix,
                                  const struct ptl_tensor *out) {
    struct ptl_jagged_copy copy = {.op = PTL_JAGGED_CONCAT, .n_prefix = n_prefix};
    struct agreed agreed = {0};
    int64_t n_rows;
    TRY(check_context(ctx));
    TRY(check_jagged("left", "left.offsets", left, false, &agreed, &copy.side[0]));
    TRY(check_jagged("right", "right.offsets", right, false, &agreed, &copy.side[1]));
    TRY(check_plain("out", out, &agreed));
    TRY(check_prefix(n_prefix));
    TRY(check_whole_rows("out", out, &copy, agreed.n_seqs, &n_rows));
    TRY(ptl_check_no_self_overlap("out", out));
    TRY(check_apart_jagged("out", out, 1, "left", "left.offsets", left, &agreed));
    TRY(check_apart_jagged("out", out, 1, "right", "right.offsets", right, &agreed));
    copy.whole = plain_rows(out);
    copy.n_padding = out->shape[0] - n_rows;
    return run_copy(ctx, &copy, &agreed);
}

enum ptl_status ptl_jagged_split(struct ptl_context *ctx, const struct ptl_tensor *x,
                                 int64_t n_prefix, const struct ptl_jagged *left,
                                 const struct ptl_jagged *right) {
    struct ptl_jagged_copy copy = {.op = PTL_JAGGED_SPLIT, .n_prefix = n_prefix};
    struct agreed agreed = {0};
    int64_t n_rows;
    TRY(check_context(ctx));
    TRY(check_plain("x", x, &agreed));
    TRY(check_jagged("left", "left.offsets", left, true, &agreed, &copy.side[0]));
    TRY(check_jagged("right", "right.offsets", right, true, &agreed, &copy.side[1]));
    TRY(check_prefix(n_prefix));
    TRY(check_whole_rows("x", x, &copy, agreed.n_seqs, &n_rows));
    const struct ptl_jagged *side[2] = {left, right};
    static const char *const names[2] = {"left", "right"};
    for (int i = 0; i < 2; i++) {
        const struct ptl_tensor *out = &side[i]->values;
        if (!ptl_given(out)) continue;
        TRY(ptl_check_no_self_overlap(names[i], out));
        TRY(check_apart(names[i], out, lead_of(side[i]), "x", x, 1, &agreed));
        TRY(ptl_check_no_overlap(names[i], out, "left.offsets", &left->offsets));
        TRY(ptl_check_no_overlap(names[i], out, "right.offsets", &right->offsets));
        copy.n_side_padding[i] = padding_rows(side[i], &copy.side[i], agreed.n_seqs);
    }
    TRY(check_apart("right", &right->values, lead_of(right), "left", &left->values, lead_of(left),
                    &agreed));
    copy.whole = plain_rows(x);
    return run_copy(ctx, &copy, &agreed);
}

enum ptl_status ptl_jagged_replace_last(struct ptl_context *ctx, const struct ptl_jagged *x,
                                        const struct ptl_jagged *last,
                                        const struct ptl_tensor *out) {
    struct ptl_jagged_copy copy = {.op = PTL_JAGGED_REPLACE_LAST};
    struct agreed agreed = {0};
    TRY(check_context(ctx));
    if (x) TRY(ptl_check_required("x.offsets", &x->offsets));
    TRY(check_jagged("x", "x.offsets", x, false, &agreed, &copy.side[0]));
    TRY(check_jagged("last", "last.offsets", last, true, &agreed, &copy.side[1]));
    TRY(check_plain("out", out, &agreed));
    TRY(ptl_check_extent("out", out, 0, x->values.shape[0], "rows of x"));
    for (int64_t b = 0; b < agreed.n_seqs; b++) {
        const int64_t n = ptl_jagged_length(&copy.side[0], b);
        const int64_t n_last = ptl_jagged_length(&copy.side[1], b);
        if (n_last > n)
            return ptl_fail(PTL_ERR_SEQLEN,
                            "last: %" PRId64 " rows in sequence %" PRId64 ", more than the %" PRId64
                            " rows of x",
                            n_last, b, n);
    }
    TRY(ptl_check_no_self_overlap("out", out));
    TRY(check_apart_jagged("out", out, 1, "x", "x.offsets", x, &agreed));
    TRY(check_apart_jagged("out", out, 1, "last", "last.offsets", last, &agreed));
    copy.whole = plain_rows(out);
    copy.whole.offsets = copy.side[0].offsets;
    copy.n_padding = out->shape[0] - ptl_jagged_begin(&copy.whole, agreed.n_seqs);
    return run_copy(ctx, &copy, &agreed);
}

/* ---- One row for each sequence --------------------------------------------------------------- */

static enum ptl_status check_float(const struct agreed *agreed) {
    if (agreed->dtype == PTL_F32 || agreed->dtype == PTL_F16 || agreed->dtype == PTL_BF16)
        return PTL_OK;
    return ptl_fail(PTL_ERR_DTYPE, "%s: %s, expected f32, f16 or bf16", agreed->rows_of,
                    ptl_dtype_name(agreed->dtype));
}

/* Whether out and x are one array. */
static bool same_array(const struct ptl_tensor *out, const struct ptl_tensor *x) {
    if (out->data != x->data || out->ndim != x->ndim) return false;
    for (int i = 0; i < x->ndim; i++)
        if (out->shape[i] != x->shape[i] || (x->shape[i] > 1 && out->stride[i] != x->stride[i]))
            return false;
    return true;
}

enum ptl_status ptl_jagged_broadcast_add(struct ptl_context *ctx, const struct ptl_jagged *x,
                                         const struct ptl_tensor *d, const struct ptl_tensor *out) {
    struct ptl_jagged_broadcast p = {0};
    struct agreed agreed = {0};
    TRY(check_context(ctx));
    TRY(check_jagged("x", "x.offsets", x, true, &agreed, &p.x));
    TRY(check_plain("d", d, &agreed));
    TRY(ptl_check_extent("d", d, 0, agreed.n_seqs, "number of sequences"));
    if (!out) return ptl_fail(PTL_ERR_NULL, "out: NULL, expected a tensor");
    TRY(ptl_check_required("out", out));
    const int lead = lead_of(x);
    TRY(check_values("out", out, lead, &agreed));
    const struct ptl_jagged whole = {*out, x->offsets};
    p.out = rows_of(&whole);
    if (ptl_given(&x->values) || lead == 2)
        for (int i = 0; i < lead; i++)
            TRY(ptl_check_extent("out", out, i, x->values.shape[i], "as x"));
    else if (ptl_jagged_begin(&p.out, agreed.n_seqs) > out->shape[0])
        return ptl_fail(PTL_ERR_SEQLEN,
                        "x.offsets: ends with %" PRId64 ", more than the %" PRId64 " rows of out",
                        ptl_jagged_begin(&p.out, agreed.n_seqs), out->shape[0]);
    TRY(ptl_check_no_self_overlap("out", out));
    if (!same_array(out, &x->values))
        TRY(check_apart("out", out, lead, "x", &x->values, lead, &agreed));
    TRY(ptl_check_no_overlap("out", out, "x.offsets", &x->offsets));
    TRY(check_apart("out", out, lead, "d", d, 1, &agreed));
    p.n_padding = padding_rows(&whole, &p.out, agreed.n_seqs);

    if (!ptl_given(&x->values)) { /* a copy, from a dense array whose rows all are d[b] */
        struct ptl_jagged_copy copy = {
            .op = PTL_JAGGED_RESIZE, .whole = p.out, .n_padding = p.n_padding};
        copy.side[0] = (struct ptl_jagged_rows){
            .data = d->data, .n = INT64_MAX, .batch_stride = plain_rows(d).row_stride};
        return run_copy(ctx, &copy, &agreed);
    }
    TRY(check_float(&agreed));
    p.type = agreed.dtype;
    p.n_seqs = agreed.n_seqs;
    p.n_columns = agreed.row_elements;
    p.d =
        (struct ptl_jagged_rows){.data = d->data, .n = 1, .batch_stride = plain_rows(d).row_stride};
    pthread_mutex_lock(&ctx->lock);
    ptl_jagged_run_broadcast_add(ctx, &p);
    pthread_mutex_unlock(&ctx->lock);
    return PTL_OK;
}

enum ptl_status ptl_jagged_sum(struct ptl_context *ctx, const struct ptl_jagged *x,
                               const struct ptl_tensor *out) {
    struct ptl_jagged_sum sum = {0};
    struct agreed agreed = {0};
    TRY(check_context(ctx));
    TRY(check_jagged("x", "x.offsets", x, false, &agreed, &sum.x));
    TRY(check_plain("out", out, &agreed));
    TRY(check_float(&agreed));
    TRY(ptl_check_extent("out", out, 0, agreed.n_seqs, "number of sequences"));
    TRY(ptl_check_no_self_overlap("out", out));
    TRY(check_apart_jagged("out", out, 1, "x", "x.offsets", x, &agreed));
    sum.n_sums = agreed.n_seqs;
    sum.n_columns = agreed.row_elements;
    sum.out = out->data;
    sum.out_stride = plain_rows(out).row_stride;
    sum.x_type = sum.out_type = agreed.dtype;
    pthread_mutex_lock(&ctx->lock);
    enum ptl_status status = ptl_jagged_run_sum(ctx, &sum);
    pthread_mutex_unlock(&ctx->lock);
    if (status == PTL_ERR_NOMEM) ptl_fail(status, "scratch: no memory for the partial sums");
    return status;
}
