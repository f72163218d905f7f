/* Argument checks that operators share. */
#include "check.h"

#include <inttypes.h>

#include "../core/message.h"

const char *ptl_dtype_name(enum ptl_dtype dtype) {
    switch (dtype) {
    case PTL_F32: return "f32";
    case PTL_F16: return "f16";
    case PTL_BF16: return "bf16";
    case PTL_I32: return "i32";
    case PTL_I64: return "i64";
    case PTL_U8: return "u8";
    }
    return "unknown";
}

enum ptl_status ptl_check_required(const char *name, const struct ptl_tensor *t) {
    if (ptl_given(t) || ptl_is_empty(t)) return PTL_OK;
    return ptl_fail(PTL_ERR_NULL, "%s: missing (data is NULL), expected a tensor", name);
}

/* Byte offsets of the first and one past the last byte, relative to data. False: not 64-bit. */
static bool byte_range(const struct ptl_tensor *t, int64_t *low, int64_t *high) {
    const int64_t bytes = (int64_t)ptl_dtype_bytes(t->dtype);
    int64_t lo = 0, hi = 0;
    for (int i = 0; i < t->ndim; i++) {
        int64_t reach;
        if (t->shape[i] == 0) {
            *low = *high = 0;
            return true;
        }
        if (__builtin_mul_overflow(t->shape[i] - 1, t->stride[i], &reach)) return false;
        if (__builtin_add_overflow(reach < 0 ? lo : hi, reach, reach < 0 ? &lo : &hi)) return false;
    }
    if (__builtin_add_overflow(hi, 1, &hi)) return false;
    return !__builtin_mul_overflow(lo, bytes, low) && !__builtin_mul_overflow(hi, bytes, high);
}

enum ptl_status ptl_check_layout(const char *name, const struct ptl_tensor *t, int min_ndim,
                                 int max_ndim) {
    int64_t low, high, elements = 1;
    if (t->ndim < min_ndim || t->ndim > max_ndim) {
        if (min_ndim == max_ndim)
            return ptl_fail(PTL_ERR_SHAPE, "%s: %d axes, expected %d", name, (int)t->ndim,
                            min_ndim);
        return ptl_fail(PTL_ERR_SHAPE, "%s: %d axes, expected %d to %d", name, (int)t->ndim,
                        min_ndim, max_ndim);
    }
    if (ptl_dtype_bytes(t->dtype) == 0)
        return ptl_fail(PTL_ERR_DTYPE, "%s: dtype %d, which is none of enum ptl_dtype", name,
                        (int)t->dtype);
    for (int i = 0; i < t->ndim; i++) {
        if (t->shape[i] < 0)
            return ptl_fail(PTL_ERR_SHAPE, "%s: extent %" PRId64 " on axis %d, expected 0 or more",
                            name, t->shape[i], i);
        if (__builtin_mul_overflow(elements, t->shape[i], &elements))
            return ptl_fail(PTL_ERR_OVERFLOW, "%s: more than 2^63 elements", name);
    }
    const int last = t->ndim - 1;
    /* Strides of no elements say nothing; NumPy writes 0 there. */
    if (last >= 0 && elements > 0 && t->shape[last] > 1 && t->stride[last] != 1)
        return ptl_fail(PTL_ERR_LAYOUT, "%s: stride %" PRId64 " on the last axis, expected 1", name,
                        t->stride[last]);
    if (!byte_range(t, &low, &high))
        return ptl_fail(PTL_ERR_OVERFLOW, "%s: extents times strides exceed 64 bits", name);
    return PTL_OK;
}

enum ptl_status ptl_check_extent(const char *name, const struct ptl_tensor *t, int axis, int64_t n,
                                 const char *of) {
    if (t->shape[axis] == n) return PTL_OK;
    return ptl_fail(PTL_ERR_SHAPE, "%s: %" PRId64 " on axis %d, expected %" PRId64 " (%s)", name,
                    t->shape[axis], axis, n, of);
}

enum ptl_status ptl_check_index(const char *name, const struct ptl_tensor *t, int min_ndim,
                                int max_ndim, enum ptl_dtype *first) {
    enum ptl_status status = ptl_check_layout(name, t, min_ndim, max_ndim);
    if (status != PTL_OK) return status;
    if (t->dtype != PTL_I32 && t->dtype != PTL_I64)
        return ptl_fail(PTL_ERR_DTYPE, "%s: %s, expected i32 or i64", name,
                        ptl_dtype_name(t->dtype));
    if (*first == 0) *first = t->dtype;
    if (t->dtype != *first)
        return ptl_fail(PTL_ERR_DTYPE, "%s: %s, but another index tensor is %s; all must be alike",
                        name, ptl_dtype_name(t->dtype), ptl_dtype_name(*first));
    return PTL_OK;
}

static int64_t index_at(const struct ptl_tensor *t, int64_t i) {
    return t->dtype == PTL_I64 ? ((const int64_t *)t->data)[i] : ((const int32_t *)t->data)[i];
}

enum ptl_status ptl_check_offsets(const char *name, const struct ptl_tensor *t, int64_t n_rows) {
    int64_t before = 0;
    if (t->shape[0] < 1) return ptl_fail(PTL_ERR_SHAPE, "%s: empty, expected B + 1 entries", name);
    for (int64_t i = 0; i < t->shape[0]; i++) {
        const int64_t at = index_at(t, i);
        if (i == 0 && at != 0)
            return ptl_fail(PTL_ERR_SEQLEN, "%s: begins with %" PRId64 ", expected 0", name, at);
        if (at < before)
            return ptl_fail(PTL_ERR_SEQLEN,
                            "%s: entry %" PRId64 " is %" PRId64 ", less than %" PRId64 " before it",
                            name, i, at, before);
        before = at;
    }
    if (before > n_rows)
        return ptl_fail(PTL_ERR_SEQLEN, "%s: ends with %" PRId64 ", more than the %" PRId64 " rows",
                        name, before, n_rows);
    return PTL_OK;
}

enum ptl_status ptl_check_counts(const char *name, const struct ptl_tensor *t, int64_t n_seqs,
                                 enum ptl_dtype *first) {
    if (!ptl_given(t)) return PTL_OK;
    enum ptl_status status = ptl_check_index(name, t, 0, 1, first);
    if (status == PTL_OK && t->ndim == 1)
        status = ptl_check_extent(name, t, 0, n_seqs, "number of sequences");
    if (status != PTL_OK) return status;
    for (int64_t b = 0; b < (t->ndim ? n_seqs : 1); b++)
        if (index_at(t, b) < 0)
            return ptl_fail(PTL_ERR_SEQLEN,
                            "%s: %" PRId64 " for sequence %" PRId64 ", expected 0 or more", name,
                            index_at(t, b), b);
    return PTL_OK;
}

enum ptl_status ptl_check_no_self_overlap(const char *name, const struct ptl_tensor *t) {
    /* Axes by ascending stride: each must step over all that the finer ones span. Sufficient, and
     * true of every slice and transpose of a plain array. */
    int order[4], n = 0;
    for (int i = 0; i < t->ndim; i++) {
        if (t->shape[i] == 0) return PTL_OK;
        if (t->shape[i] == 1) continue;
        int at = n++;
        for (; at > 0 && t->stride[order[at - 1]] > t->stride[i]; at--) order[at] = order[at - 1];
        order[at] = i;
    }
    int64_t span = 1;
    for (int k = 0; k < n; k++) {
        const int i = order[k];
        if (t->stride[i] < span)
            return ptl_fail(PTL_ERR_ALIAS,
                            "%s: stride %" PRId64 " on axis %d makes elements overlap, expected at "
                            "least %" PRId64,
                            name, t->stride[i], i, span);
        span += (t->shape[i] - 1) * t->stride[i];
    }
    return PTL_OK;
}

static int64_t floor_mod(int64_t a, int64_t n) {
    return ((a % n) + n) % n;
}

/* Two arrays of one element size on one grid of strides: whether some element of one lies on an
 * element of the other, when the second begins `delta` bytes behind the first. Axes come with the
 * largest stride first, and every stride steps over all that the finer ones span, so that along
 * each axis only two differences of indices can be right. */
struct grid {
    int n_axes;
    int64_t stride[4], first[4], second[4]; /* strides in bytes; extents of the two arrays */
    int64_t bytes;
};

static bool grids_meet(const struct grid *g, int axis, int64_t delta) {
    if (axis >= g->n_axes || axis >= 4) return delta > -g->bytes && delta < g->bytes;
    const int64_t down = (delta - floor_mod(delta, g->stride[axis])) / g->stride[axis];
    for (int64_t steps = down; steps <= down + 1; steps++)
        if (steps >= 1 - g->second[axis] && steps <= g->first[axis] - 1 &&
            grids_meet(g, axis + 1, delta - steps * g->stride[axis]))
            return true;
    return false;
}

/* False when the two are not on one grid. */
static bool one_grid(const struct ptl_tensor *a, const struct ptl_tensor *b, struct grid *g) {
    g->bytes = (int64_t)ptl_dtype_bytes(a->dtype);
    g->n_axes = 0;
    if (a->ndim != b->ndim || g->bytes != (int64_t)ptl_dtype_bytes(b->dtype)) return false;
    for (int i = 0; i < a->ndim && i < 4; i++) {
        if (a->shape[i] == 1 && b->shape[i] == 1) continue;
        const int64_t stride = (a->shape[i] == 1 ? b : a)->stride[i];
        if (stride <= 0 || (b->shape[i] > 1 && b->stride[i] != stride)) return false;
        int at = g->n_axes++;
        for (; at > 0 && g->stride[at - 1] < stride * g->bytes; at--) {
            g->stride[at] = g->stride[at - 1];
            g->first[at] = g->first[at - 1];
            g->second[at] = g->second[at - 1];
        }
        g->stride[at] = stride * g->bytes;
        g->first[at] = a->shape[i];
        g->second[at] = b->shape[i];
    }
    int64_t span = g->bytes;
    for (int i = g->n_axes - 1; i >= 0; i--) {
        if (g->stride[i] < span) return false;
        span += ((g->first[i] > g->second[i] ? g->first[i] : g->second[i]) - 1) * g->stride[i];
    }
    return true;
}

enum ptl_status ptl_check_no_overlap(const char *out_name, const struct ptl_tensor *out,
                                     const char *in_name, const struct ptl_tensor *in) {
    int64_t out_low, out_high, in_low, in_high;
    if (!in->data || !out->data) return PTL_OK;
    byte_range(out, &out_low, &out_high);
    byte_range(in, &in_low, &in_high);
    const uintptr_t o = (uintptr_t)out->data, i = (uintptr_t)in->data;
    if (out_low == out_high || in_low == in_high) return PTL_OK;
    if (o + (uintptr_t)out_high <= i + (uintptr_t)in_low ||
        i + (uintptr_t)in_high <= o + (uintptr_t)out_low)
        return PTL_OK;

    struct grid grid;
    if (one_grid(out, in, &grid) && !grids_meet(&grid, 0, (int64_t)(i - o))) return PTL_OK;

    /* Ranges meet. If both have rows of one stride, and what is inside a row stays inside it, and
     * batches are whole rows apart, then only the places within a row matter. */
    const int row = out->ndim - 3;
    if (row >= 0 && in->ndim == out->ndim) {
        const int64_t out_bytes = (int64_t)ptl_dtype_bytes(out->dtype);
        const int64_t in_bytes = (int64_t)ptl_dtype_bytes(in->dtype);
        const int64_t pitch = out->stride[row] * out_bytes;
        const struct ptl_tensor *both[2] = {out, in};
        int64_t width[2] = {0, 0};
        bool inside = pitch > 0 && in->stride[row] * in_bytes == pitch;
        for (int k = 0; k < 2 && inside; k++) {
            const struct ptl_tensor *t = both[k];
            const int64_t bytes = (int64_t)ptl_dtype_bytes(t->dtype);
            const int64_t heads = t->shape[row + 1], head_stride = t->stride[row + 1];
            inside = head_stride >= 0 || heads == 1;
            width[k] =
                (heads > 1 ? (heads - 1) * head_stride : 0) * bytes + t->shape[row + 2] * bytes;
            inside = inside && width[k] <= pitch;
            if (row > 0 && t->shape[0] > 1) inside = inside && t->stride[0] * bytes % pitch == 0;
        }
        if (inside) {
            const int64_t shift =
                floor_mod((int64_t)(i - o), pitch); /* where in's row begins in out's */
            if (shift >= width[0] && shift + width[1] <= pitch) return PTL_OK;
        }
    }
    return ptl_fail(PTL_ERR_ALIAS, "%s: overlaps %s, expected memory of its own", out_name,
                    in_name);
}
