/* Small things about numbers and tensors that the command's files share. For arguments that are
 * known to be valid. */
#ifndef PTL_TENSORS_H
#define PTL_TENSORS_H

#include <pantile/base.h>

static inline int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static inline int64_t most(int64_t a, int64_t b) {
    return a > b ? a : b;
}

/* Entry i of an index array; of one without axes, its number; 0 where it is absent. */
static inline int64_t index_at(const struct ptl_tensor *t, int64_t i) {
    if (!t->data) return 0;
    if (t->ndim == 0) i = 0;
    return t->dtype == PTL_I64 ? ((const int64_t *)t->data)[i] : ((const int32_t *)t->data)[i];
}

static inline void put_index_at(const struct ptl_tensor *t, int64_t i, int64_t value) {
    if (t->dtype == PTL_I64) ((int64_t *)t->data)[i] = value;
    else ((int32_t *)t->data)[i] = (int32_t)value;
}

/* 0 where it is absent. */
static inline int64_t n_elements(const struct ptl_tensor *t) {
    int64_t n = t->data ? 1 : 0;
    for (int axis = 0; axis < t->ndim; axis++) n *= t->shape[axis];
    return n;
}

/* As a double: sizes are counted, not allocated. */
static inline double n_bytes(const struct ptl_tensor *t) {
    double n = t->data ? (double)ptl_dtype_bytes(t->dtype) : 0.0;
    for (int axis = 0; axis < t->ndim; axis++) n *= (double)t->shape[axis];
    return n;
}

#endif
