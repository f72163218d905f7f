/* Jagged operators as the formulas of docs/jagged.md are written: row by row, no runs, no parts. */
#include "jagged.h"

#include <math.h>
#include <string.h>

#include "elements.h"

static int64_t index_at(const struct ptl_tensor *t, int64_t i) {
    return t->data ? ref_index(t, i) : 0;
}

static int64_t min64(int64_t a, int64_t b) {
    return a < b ? a : b;
}

int64_t ref_jagged_n_seqs(const struct ptl_jagged *j) {
    return j->offsets.data ? j->offsets.shape[0] - 1 : j->values.shape[0];
}

int64_t ref_jagged_length(const struct ptl_jagged *j, int64_t b) {
    if (!j->offsets.data) return j->values.shape[1];
    return index_at(&j->offsets, b + 1) - index_at(&j->offsets, b);
}

/* ---- Rows ------------------------------------------------------------------------------------ */

/* Row `row` of a tensor whose rows begin after `lead` axes: [T, ...] has one, [B, n, ...] two. */
static char *tensor_row(const struct ptl_tensor *t, int lead, int64_t b, int64_t row) {
    const int64_t elements = (lead == 2 ? b * t->stride[0] : 0) + row * t->stride[lead - 1];
    if (!t->data) return NULL; /* rows of no elements */
    return (char *)t->data + elements * (int64_t)ptl_dtype_bytes(t->dtype);
}

static char *jagged_row(const struct ptl_jagged *j, int64_t b, int64_t i) {
    if (!j->offsets.data) return tensor_row(&j->values, 2, b, i);
    return tensor_row(&j->values, 1, 0, index_at(&j->offsets, b) + i);
}

static int64_t row_elements(const struct ptl_tensor *t, int lead) {
    int64_t n = 1;
    for (int axis = lead; axis < t->ndim; axis++) n *= t->shape[axis];
    return n;
}

static size_t row_bytes(const struct ptl_tensor *t, int lead) {
    return (size_t)row_elements(t, lead) * ptl_dtype_bytes(t->dtype);
}

/* Rows of no elements need no memory, and memcpy wants some. */
static void copy_row(char *to, const char *from, size_t bytes) {
    if (bytes) memcpy(to, from, bytes);
}

static void zero_row(char *to, size_t bytes) {
    if (bytes) memset(to, 0, bytes);
}

static void zero_rows(const struct ptl_tensor *t, int64_t from) {
    for (int64_t row = from; row < t->shape[0]; row++)
        zero_row(tensor_row(t, 1, 0, row), row_bytes(t, 1));
}

static void zero_padding(const struct ptl_jagged *j) {
    if (j->offsets.data) zero_rows(&j->values, index_at(&j->offsets, ref_jagged_n_seqs(j)));
}

/* ---- Copies ---------------------------------------------------------------------------------- */

void ref_jagged_resize(const struct ptl_jagged *x, enum ptl_jagged_align align, const void *pad,
                       const struct ptl_jagged *out) {
    const int lead = out->offsets.data ? 1 : 2;
    const int64_t elements = row_elements(&out->values, lead);
    const size_t elem_bytes = ptl_dtype_bytes(out->values.dtype);
    for (int64_t b = 0; b < ref_jagged_n_seqs(out); b++) {
        const int64_t n = ref_jagged_length(x, b), n_out = ref_jagged_length(out, b);
        for (int64_t i = 0; i < n_out; i++) {
            const int64_t from = align == PTL_JAGGED_ALIGN_END ? i + n - n_out : i;
            char *row = jagged_row(out, b, i);
            if (from >= 0 && from < n) {
                copy_row(row, jagged_row(x, b, from), row_bytes(&out->values, lead));
                continue;
            }
            for (int64_t e = 0; e < elements; e++) {
                if (pad) memcpy(row + (size_t)e * elem_bytes, pad, elem_bytes);
                else memset(row + (size_t)e * elem_bytes, 0, elem_bytes);
            }
        }
    }
    zero_padding(out);
}

/* Where row i of the concatenation is: in the right side when *right, there at the row returned. */
static int64_t concat_source(int64_t n_left, int64_t n_right, int64_t n_prefix, int64_t i,
                             int *right) {
    const int64_t n = min64(n_prefix, n_right);
    *right = i < n || i >= n + n_left;
    return i < n ? i : *right ? i - n_left : i - n;
}

void ref_jagged_concat(const struct ptl_jagged *left, const struct ptl_jagged *right,
                       int64_t n_prefix, const struct ptl_tensor *out) {
    int64_t row = 0;
    for (int64_t b = 0; b < ref_jagged_n_seqs(left); b++) {
        const int64_t n_left = ref_jagged_length(left, b), n_right = ref_jagged_length(right, b);
        for (int64_t i = 0; i < n_left + n_right; i++) {
            int of_right;
            const int64_t from = concat_source(n_left, n_right, n_prefix, i, &of_right);
            copy_row(tensor_row(out, 1, 0, row++), jagged_row(of_right ? right : left, b, from),
                     row_bytes(out, 1));
        }
    }
    zero_rows(out, row);
}

void ref_jagged_split(const struct ptl_tensor *x, int64_t n_prefix, const struct ptl_jagged *left,
                      const struct ptl_jagged *right) {
    int64_t row = 0;
    for (int64_t b = 0; b < ref_jagged_n_seqs(left); b++) {
        const int64_t n_left = ref_jagged_length(left, b), n_right = ref_jagged_length(right, b);
        for (int64_t i = 0; i < n_left + n_right; i++, row++) {
            int of_right;
            const int64_t to = concat_source(n_left, n_right, n_prefix, i, &of_right);
            const struct ptl_jagged *side = of_right ? right : left;
            if (side->values.data)
                copy_row(jagged_row(side, b, to), tensor_row(x, 1, 0, row), row_bytes(x, 1));
        }
    }
    if (left->values.data) zero_padding(left);
    if (right->values.data) zero_padding(right);
}

void ref_jagged_replace_last(const struct ptl_jagged *x, const struct ptl_jagged *last,
                             const struct ptl_tensor *out) {
    int64_t row = 0;
    for (int64_t b = 0; b < ref_jagged_n_seqs(x); b++) {
        const int64_t n = ref_jagged_length(x, b), kept = n - ref_jagged_length(last, b);
        for (int64_t i = 0; i < n; i++, row++) {
            char *to = tensor_row(out, 1, 0, row);
            if (i < kept) copy_row(to, jagged_row(x, b, i), row_bytes(out, 1));
            else if (last->values.data)
                copy_row(to, jagged_row(last, b, i - kept), row_bytes(out, 1));
            else zero_row(to, row_bytes(out, 1));
        }
    }
    zero_rows(out, row);
}

/* ---- One row for each sequence --------------------------------------------------------------- */

void ref_jagged_broadcast_add(const struct ptl_jagged *x, const struct ptl_tensor *d, double *out) {
    const int lead = x->offsets.data ? 1 : 2;
    const int64_t n_columns = row_elements(d, 1);
    const int64_t n_rows = lead == 1 ? x->values.shape[0] : x->values.shape[0] * x->values.shape[1];
    int64_t row = 0;
    for (int64_t b = 0; b < ref_jagged_n_seqs(x); b++) {
        const char *d_b = tensor_row(d, 1, 0, b);
        for (int64_t i = 0; i < ref_jagged_length(x, b); i++, row++) {
            const char *x_bi = jagged_row(x, b, i);
            for (int64_t c = 0; c < n_columns; c++)
                out[row * n_columns + c] = ref_read(d->dtype, x_bi, c) + ref_read(d->dtype, d_b, c);
        }
    }
    for (int64_t at = row * n_columns; at < n_rows * n_columns; at++) out[at] = 0.0;
}

void ref_jagged_sum(const struct ptl_jagged *x, double *out) {
    const int64_t n_columns = row_elements(&x->values, x->offsets.data ? 1 : 2);
    for (int64_t b = 0; b < ref_jagged_n_seqs(x); b++)
        for (int64_t c = 0; c < n_columns; c++) {
            double sum = 0.0;
            for (int64_t i = 0; i < ref_jagged_length(x, b); i++)
                sum += ref_read(x->values.dtype, jagged_row(x, b, i), c);
            out[b * n_columns + c] = sum;
        }
}

/* ---- Position and time embedding ------------------------------------------------------------- */

static double element(const struct ptl_tensor *t, int64_t row, int64_t column) {
    return ref_read(t->dtype, tensor_row(t, 1, 0, row), column);
}

static int64_t n_tokens(const struct ptl_jagged_position_time_params *p, int64_t b) {
    return index_at(&p->seq_offsets, b + 1) - index_at(&p->seq_offsets, b);
}

int64_t ref_position(const struct ptl_jagged_position_time_params *p, int64_t n_positions,
                     int64_t b, int64_t x) {
    const int64_t top = n_tokens(p, b) - index_at(&p->num_targets, b);
    if (p->position_order == PTL_JAGGED_POSITION_FROM_START) {
        const int64_t start = index_at(&p->position_start, b);
        return min64(min64(x + start, top + start), n_positions - 1);
    }
    const int64_t contexts = index_at(&p->num_contexts, b);
    if (x < contexts) return x;
    return min64(top - min64(x, top) + contexts, n_positions - 1);
}

int64_t ref_time_bucket(const struct ptl_jagged_position_time_params *p, int64_t n_buckets,
                        int64_t b, int64_t x) {
    const int64_t first = index_at(&p->seq_offsets, b), last = first + n_tokens(p, b) - 1;
    const int64_t dt = index_at(&p->timestamps, last) - index_at(&p->timestamps, first + x);
    const float minutes = fmaxf((float)dt, 1e-6f) / 60.0f;
    /* Both roundings are those of a correctly rounded float function: double and long double carry
     * enough bits. */
    const float g = p->time_bucket == PTL_JAGGED_TIME_LOG ? (float)logl((long double)minutes)
                                                          : (float)sqrt((double)minutes);
    const double k = trunc((double)g);
    return k < 0.0 ? 0 : k > (double)(n_buckets - 1) ? n_buckets - 1 : (int64_t)k;
}

void ref_position_time_forward(const struct ptl_jagged_position_time_params *p, double *out) {
    const int64_t n_seqs = p->seq_offsets.shape[0] - 1, n_columns = p->emb.shape[1];
    for (int64_t at = 0; at < p->emb.shape[0] * n_columns; at++) out[at] = 0.0;
    for (int64_t b = 0; b < n_seqs; b++)
        for (int64_t x = 0; x < n_tokens(p, b); x++) {
            const int64_t row = index_at(&p->seq_offsets, b) + x;
            const int64_t pos = ref_position(p, p->pos_w.shape[0], b, x);
            const int64_t bucket =
                p->timestamps.data ? ref_time_bucket(p, p->ts_w.shape[0], b, x) : 0;
            for (int64_t c = 0; c < n_columns; c++)
                out[row * n_columns + c] =
                    (double)p->alpha * element(&p->emb, row, c) +
                    (element(&p->pos_w, pos, c) +
                     (p->timestamps.data ? element(&p->ts_w, bucket, c) : 0.0));
        }
}

void ref_position_time_backward(const struct ptl_jagged_position_time_params *p, double *demb,
                                double *dpos_w, double *dts_w) {
    const int64_t n_seqs = p->seq_offsets.shape[0] - 1, n_columns = p->dout.shape[1];
    const int64_t n_positions = p->dpos_w.shape[0], n_buckets = p->dts_w.shape[0];
    for (int64_t at = 0; demb && at < p->dout.shape[0] * n_columns; at++) demb[at] = 0.0;
    for (int64_t at = 0; dpos_w && at < n_positions * n_columns; at++) dpos_w[at] = 0.0;
    for (int64_t at = 0; dts_w && at < n_buckets * n_columns; at++) dts_w[at] = 0.0;
    for (int64_t b = 0; b < n_seqs; b++)
        for (int64_t x = 0; x < n_tokens(p, b); x++) {
            const int64_t row = index_at(&p->seq_offsets, b) + x;
            const int64_t position = dpos_w ? ref_position(p, n_positions, b, x) : 0;
            const int64_t bucket = dts_w ? ref_time_bucket(p, n_buckets, b, x) : 0;
            for (int64_t c = 0; c < n_columns; c++) {
                const double dout = element(&p->dout, row, c);
                if (demb) demb[row * n_columns + c] = (double)p->alpha * dout;
                if (dpos_w) dpos_w[position * n_columns + c] += dout;
                if (dts_w) dts_w[bucket * n_columns + c] += dout;
            }
        }
}
