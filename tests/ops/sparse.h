/* Tensors whose elements lie gigabytes apart, in mappings of which only the pages that hold one
 * exist. */
#ifndef PTL_TESTS_SPARSE_H
#define PTL_TESTS_SPARSE_H

#include <pantile/pantile.h>
#include <stdbool.h>
#include <stddef.h>

enum { SPARSE_MAX_MAPPINGS = 24 };

struct sparse {
    void *memory[SPARSE_MAX_MAPPINGS];
    size_t bytes[SPARSE_MAX_MAPPINGS];
    int n;
    bool failed; /* the system had no room */
};

/* Zeros that take no memory until they are touched; NULL (and failed) when the system has no
 * room. */
void *sparse_take(struct sparse *s, int64_t bytes);
void sparse_free(struct sparse *s);

/* The same tensor with other strides (of all axes but the last). */
struct ptl_tensor sparse_spread(struct sparse *s, const struct ptl_tensor *t,
                                const int64_t *stride);

#endif
