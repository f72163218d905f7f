/* The copies around HSTU against plain loops: bit for bit, but for the embedding, which
 * computes. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../ref/jagged.h"
#include "compare_parts.h"
#include "tensors.h"

static void add_copy(struct comparison *result, const char *name, bool same) {
    const struct tally tally = {0, same ? 0 : 1};
    add_part(result, name, &tally, 0.0);
}

/* ---- Appending ------------------------------------------------------------------------------- */

static const char *at(const struct ptl_tensor *t, int64_t i, int64_t j, int64_t k) {
    const int64_t *stride = t->stride;
    const int64_t offset = t->ndim == 4 ? i * stride[0] + j * stride[1] + k * stride[2]
                                        : j * stride[0] + k * stride[1];
    return (const char *)t->data + offset * (int64_t)ptl_dtype_bytes(t->dtype);
}

/* Every new token in its slot; that other slots keep their bits is left to the tests. */
static bool tokens_are_there(const struct ptl_hstu_kv_append_params *a,
                             const struct ptl_tensor *rows, const struct ptl_tensor *pages,
                             int64_t *n_tokens) {
    const int64_t page_size = pages->shape[1], heads = rows->shape[1];
    const size_t bytes = (size_t)rows->shape[2] * ptl_dtype_bytes(rows->dtype);
    *n_tokens = 0;
    for (int64_t b = 0; b + 1 < a->seq_offsets.shape[0]; b++) {
        const int64_t first = index_at(&a->seq_offsets, b);
        const int64_t n = index_at(&a->seq_offsets, b + 1) - first - index_at(&a->num_targets, b);
        for (int64_t x = 0; x < n; x++) {
            const int64_t token = index_at(&a->n_cached, b) + x;
            const int64_t entry = index_at(&a->page_offsets, b) + token / page_size;
            const int64_t page = index_at(&a->page_ids, entry);
            for (int64_t h = 0; h < heads; h++)
                if (memcmp(at(pages, page, token % page_size, h), at(rows, 0, first + x, h),
                           bytes) != 0)
                    return false;
        }
        *n_tokens += n;
    }
    return true;
}

bool compare_append(const struct call *c, double seconds, struct comparison *result) {
    (void)seconds;
    const struct ptl_hstu_kv_append_params *a = &c->append;
    add_copy(result, "k_pages", tokens_are_there(a, &a->k, &a->k_pages, &result->n_rows));
    add_copy(result, "v_pages", tokens_are_there(a, &a->v, &a->v_pages, &result->n_rows));
    result->n_all_rows = result->n_rows;
    return true;
}

/* ---- Jagged copies --------------------------------------------------------------------------- */

bool take_twin(const struct ptl_tensor *t, struct ptl_tensor *twin) {
    *twin = *t;
    if (!t->data) return true;
    void *data = calloc((size_t)n_elements(t) + 1, ptl_dtype_bytes(t->dtype));
    *twin = ptl_tensor_contiguous(data, t->dtype, t->ndim, t->shape);
    return data != NULL;
}

static void compare_twin(struct comparison *result, const char *name, const struct ptl_tensor *t,
                         const struct ptl_tensor *twin) {
    int64_t shape[4] = {1, 1, 1, 1}, stride[4] = {0};
    const int64_t element = (int64_t)ptl_dtype_bytes(t->dtype);
    const char *expected = twin->data;
    bool same = true;
    if (!t->data) return;
    for (int i = 0; i < t->ndim; i++) {
        shape[4 - t->ndim + i] = t->shape[i];
        stride[4 - t->ndim + i] = t->stride[i];
    }
    const size_t bytes = (size_t)(shape[3] * element);
    for (int64_t a = 0; a < shape[0]; a++)
        for (int64_t b = 0; b < shape[1]; b++)
            for (int64_t d = 0; d < shape[2]; d++, expected += bytes) {
                const int64_t offset = a * stride[0] + b * stride[1] + d * stride[2];
                if (memcmp((const char *)t->data + offset * element, expected, bytes) != 0)
                    same = false;
            }
    add_copy(result, name, same);
    result->n_rows += shape[0] * shape[1] * shape[2];
}

/* `out` by the reference and by the library. */
static bool compare_out(const struct call *c, struct comparison *result,
                        void (*compute)(const struct jagged_arguments *a, struct ptl_jagged *out)) {
    struct ptl_jagged out = c->jagged.out;
    const bool ok = take_twin(&c->jagged.out.values, &out.values);
    if (ok) compute(&c->jagged, &out);
    if (ok) compare_twin(result, "out", &c->jagged.out.values, &out.values);
    free(out.values.data);
    result->n_all_rows = result->n_rows;
    return ok;
}

static void resize(const struct jagged_arguments *a, struct ptl_jagged *out) {
    ref_jagged_resize(&a->x, a->align, a->pad, out);
}

bool compare_resize(const struct call *c, double seconds, struct comparison *result) {
    (void)seconds;
    return compare_out(c, result, resize);
}

static void concat(const struct jagged_arguments *a, struct ptl_jagged *out) {
    ref_jagged_concat(&a->left, &a->right, a->n_prefix, &out->values);
}

bool compare_concat(const struct call *c, double seconds, struct comparison *result) {
    (void)seconds;
    return compare_out(c, result, concat);
}

bool compare_split(const struct call *c, double seconds, struct comparison *result) {
    const struct jagged_arguments *a = &c->jagged;
    struct ptl_jagged left = a->left, right = a->right;
    (void)seconds;
    bool ok = take_twin(&a->left.values, &left.values);
    ok = take_twin(&a->right.values, &right.values) && ok;
    if (ok) {
        ref_jagged_split(&a->x.values, a->n_prefix, &left, &right);
        compare_twin(result, "left", &a->left.values, &left.values);
        compare_twin(result, "right", &a->right.values, &right.values);
    }
    free(left.values.data);
    free(right.values.data);
    result->n_all_rows = result->n_rows;
    return ok;
}

/* ---- Position and time embedding ------------------------------------------------------------- */

static bool take_doubles(const struct ptl_tensor *t, double **x) {
    *x = t->data ? calloc((size_t)n_elements(t) + 1, sizeof **x) : NULL;
    return !t->data || *x;
}

static void compare_matrix(struct comparison *result, const char *name, const struct ptl_tensor *t,
                           double *expected) {
    struct tally tally = {0};
    if (!t->data) return;
    for (int64_t i = 0; i < t->shape[0]; i++)
        tally_row(&tally, t, i * t->stride[0], expected + i * t->shape[1], t->shape[1]);
    add_part(result, name, &tally, 1e-6);
    result->n_rows += t->shape[0];
}

bool compare_position_time(const struct call *c, double seconds, struct comparison *result) {
    (void)seconds;
    const struct ptl_jagged_position_time_params *a = &c->position_time;
    const bool backward = a->dout.data != NULL;
    double *out, *demb, *dpos_w, *dts_w;
    bool ok = take_doubles(&a->out, &out);
    ok = take_doubles(&a->demb, &demb) && ok;
    ok = take_doubles(&a->dpos_w, &dpos_w) && ok;
    ok = take_doubles(&a->dts_w, &dts_w) && ok;
    if (ok && backward) ref_position_time_backward(a, demb, dpos_w, dts_w);
    if (ok && !backward) ref_position_time_forward(a, out);
    if (ok) {
        compare_matrix(result, "out", &a->out, out);
        compare_matrix(result, "demb", &a->demb, demb);
        compare_matrix(result, "dpos_w", &a->dpos_w, dpos_w);
        compare_matrix(result, "dts_w", &a->dts_w, dts_w);
    }
    free(out);
    free(demb);
    free(dpos_w);
    free(dts_w);
    result->n_all_rows = result->n_rows;
    return ok;
}
