/* Tensor values. */
#include <pantile/base.h>
#include <string.h>

struct ptl_tensor ptl_tensor_contiguous(void *data, enum ptl_dtype dtype, int32_t ndim,
                                        const int64_t *shape) {
    struct ptl_tensor t;
    memset(&t, 0, sizeof t);
    if (ndim < 0 || ndim > 4) return t;
    t.data = data;
    t.dtype = dtype;
    t.ndim = ndim;
    uint64_t stride = 1; /* unsigned: absurd shapes wrap here and are refused by the call */
    for (int i = ndim - 1; i >= 0; i--) {
        t.shape[i] = shape[i];
        t.stride[i] = (int64_t)stride;
        stride *= (uint64_t)shape[i];
    }
    return t;
}

size_t ptl_dtype_bytes(enum ptl_dtype dtype) {
    switch (dtype) {
    case PTL_U8: return 1;
    case PTL_F16:
    case PTL_BF16: return 2;
    case PTL_F32:
    case PTL_I32: return 4;
    case PTL_I64: return 8;
    }
    return 0;
}
