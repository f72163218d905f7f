/* Walks over the elements of tensors. */
#include "tensor_check.h"

#include <string.h>

#include "../../ref/elements.h"
#include "guard.h"
#include "hstu_check.h"

int64_t tensor_span(const struct ptl_tensor *t) {
    int64_t span = 1;
    for (int axis = 0; axis < t->ndim; axis++) {
        if (t->shape[axis] == 0) return 0;
        span += (t->shape[axis] - 1) * t->stride[axis];
    }
    return t->data ? span : 0;
}

int64_t tensor_elements(const struct ptl_tensor *t) {
    int64_t n = t->data ? 1 : 0;
    for (int axis = 0; axis < t->ndim; axis++) n *= t->shape[axis];
    return n;
}

int64_t tensor_offset(const struct ptl_tensor *t, int64_t i) {
    int64_t at = 0;
    for (int axis = t->ndim - 1; axis >= 0; i /= t->shape[axis--])
        at += i % t->shape[axis] * t->stride[axis];
    return at;
}

static void wipe(const struct ptl_tensor *t, int64_t at) {
    if (t->dtype == PTL_F32) ((uint32_t *)t->data)[at] = GUARD_WORD;
    else ((uint16_t *)t->data)[at] = GUARD_WORD >> 16;
}

void tensor_wipe(const struct ptl_tensor *t) {
    for (int64_t i = tensor_span(t) - 1; i >= 0; i--) wipe(t, i);
}

bool tensor_wiped(const struct ptl_tensor *t) {
    const bool half = t->dtype != PTL_F32;
    for (int64_t i = tensor_span(t) - 1; i >= 0; i--)
        if (half ? ((uint16_t *)t->data)[i] != GUARD_WORD >> 16
                 : ((uint32_t *)t->data)[i] != GUARD_WORD)
            return false;
    return true;
}

void tensor_take(const struct ptl_tensor *t, float *to) {
    const int64_t n = tensor_elements(t);
    const int last = t->ndim - 1;
    const int64_t dim = t->ndim ? t->shape[last] : 1;
    int64_t index[4] = {0, 0, 0, 0};
    for (int64_t done = 0; done < n; done += dim) {
        int64_t at = 0;
        for (int axis = 0; axis < last; axis++) at += index[axis] * t->stride[axis];
        for (int64_t d = 0; d < dim; d++, at++) {
            to[done + d] = t->dtype == PTL_F32 ? ((float *)t->data)[at]
                                               : (float)ref_read(t->dtype, t->data, at);
            wipe(t, at);
        }
        for (int axis = last - 1; axis >= 0; axis--) {
            if (++index[axis] < t->shape[axis]) break;
            index[axis] = 0;
        }
    }
}

struct ptl_tensor tensor_positive(const struct ptl_tensor *t) {
    struct ptl_tensor copy = *t;
    const int64_t n = tensor_span(t);
    if (!t->data) return copy;
    copy.data = test_alloc((size_t)n * ptl_dtype_bytes(t->dtype));
    for (int64_t i = 0; i < n; i++) {
        if (t->dtype == PTL_F32)
            ((uint32_t *)copy.data)[i] = ((const uint32_t *)t->data)[i] & 0x7fffffff;
        else ((uint16_t *)copy.data)[i] = ((const uint16_t *)t->data)[i] & 0x7fff;
    }
    return copy;
}

uint64_t tensor_checksum(uint64_t sum, const struct ptl_tensor *t) {
    const uint8_t *bytes = t->data;
    const size_t n = (size_t)tensor_span(t) * ptl_dtype_bytes(t->dtype);
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        uint64_t word;
        memcpy(&word, bytes + i, 8);
        sum = (sum ^ word) * 0x9e3779b97f4a7c15;
        sum ^= sum >> 29;
    }
    for (; i < n; i++) sum = (sum ^ bytes[i]) * 0x9e3779b97f4a7c15;
    return sum;
}
