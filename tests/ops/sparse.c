/* Sparse mappings by mmap without reservation. */
#define _GNU_SOURCE
#include "sparse.h"

#include <string.h>
#include <sys/mman.h>

#include "tensor_check.h"

void *sparse_take(struct sparse *s, int64_t bytes) {
    void *memory = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        s->failed = true;
        return NULL;
    }
    s->memory[s->n] = memory;
    s->bytes[s->n++] = (size_t)bytes;
    return memory;
}

void sparse_free(struct sparse *s) {
    for (int i = 0; i < s->n; i++) munmap(s->memory[i], s->bytes[i]);
    s->n = 0;
}

struct ptl_tensor sparse_spread(struct sparse *s, const struct ptl_tensor *t,
                                const int64_t *stride) {
    struct ptl_tensor far = *t;
    const int64_t bytes = (int64_t)ptl_dtype_bytes(t->dtype), n = tensor_elements(t);
    int64_t span = 1;
    for (int axis = 0; axis < t->ndim; axis++) {
        far.stride[axis] = axis < t->ndim - 1 ? stride[axis] : 1;
        span += (t->shape[axis] - 1) * far.stride[axis];
    }
    far.data = sparse_take(s, span * bytes);
    for (int64_t i = 0; far.data && i < n; i++)
        memcpy((char *)far.data + tensor_offset(&far, i) * bytes,
               (char *)t->data + tensor_offset(t, i) * bytes, (size_t)bytes);
    return far;
}
