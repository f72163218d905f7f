/* The checks that operators share. Each names the argument, its value and what was expected, and
 * returns PTL_OK or has called ptl_fail. */
#ifndef PTL_CHECK_H
#define PTL_CHECK_H

#include <pantile/base.h>
#include <stdbool.h>

#include "../ops/views.h"

#define TRY(call)                                                                                  \
    do {                                                                                           \
        enum ptl_status try_status = (call);                                                       \
        if (try_status != PTL_OK) return try_status;                                               \
    } while (0)

static inline bool ptl_given(const struct ptl_tensor *t) {
    return t->data != NULL;
}

/* An array without elements needs no memory. */
static inline bool ptl_is_empty(const struct ptl_tensor *t) {
    for (int i = 0; i < t->ndim && i < 4; i++)
        if (t->shape[i] == 0) return true;
    return false;
}

/* NULL data: PTL_ERR_NULL, unless an extent is 0. */
enum ptl_status ptl_check_required(const char *name, const struct ptl_tensor *t);

/* Axes, extents (>= 0) and last stride; that every element's offset and the byte size fit 64
 * bits. */
enum ptl_status ptl_check_layout(const char *name, const struct ptl_tensor *t, int min_ndim,
                                 int max_ndim);

/* t's extent on an axis is n, the extent of what is called `of`. */
enum ptl_status ptl_check_extent(const char *name, const struct ptl_tensor *t, int axis, int64_t n,
                                 const char *of);

/* int32 or int64, the same as in *first (set by the first index tensor checked), contiguous. */
enum ptl_status ptl_check_index(const char *name, const struct ptl_tensor *t, int min_ndim,
                                int max_ndim, enum ptl_dtype *first);

/* The contents of an offsets tensor (ptl_check_index has passed, one axis): B + 1 entries, first 0,
 * non-decreasing, last at most n_rows. */
enum ptl_status ptl_check_offsets(const char *name, const struct ptl_tensor *t, int64_t n_rows);

/* An optional number (ndim 0) or one for each sequence: an index tensor, nothing negative. */
enum ptl_status ptl_check_counts(const char *name, const struct ptl_tensor *t, int64_t n_seqs,
                                 enum ptl_dtype *first);

/* No two elements of an output share memory. */
enum ptl_status ptl_check_no_self_overlap(const char *name, const struct ptl_tensor *t);

/* An output and an input do not overlap. Arrays of equal strides are compared element by element
 * (in closed form); rows (axis ndim-3) of equal stride are compared inside a row, so that slices of
 * one wider buffer are told apart; otherwise the byte ranges decide. */
enum ptl_status ptl_check_no_overlap(const char *out_name, const struct ptl_tensor *out,
                                     const char *in_name, const struct ptl_tensor *in);

const char *ptl_dtype_name(enum ptl_dtype dtype);

/* A checked tensor as the operators see it: an index array, or an array whose last axes are rows,
 * heads and a contiguous head (a fourth axis in front: batches, or pages). */
static inline struct ptl_index ptl_index_of(const struct ptl_tensor *t) {
    return (struct ptl_index){t->data, t->dtype == PTL_I64, t->ndim == 0 ? 0 : 1};
}

static inline struct ptl_rows ptl_rows_of(const struct ptl_tensor *t) {
    const int row = t->ndim - 3;
    return (struct ptl_rows){t->data, (int64_t)ptl_dtype_bytes(t->dtype), row ? t->stride[0] : 0,
                             t->stride[row], t->stride[row + 1]};
}

#endif
