/* Elements of float tensors of any type and strides: filled, taken out as floats, watched for
 * writes between them. What the numbers are is the business of others. */
#ifndef PTL_TESTS_TENSOR_CHECK_H
#define PTL_TESTS_TENSOR_CHECK_H

#include <pantile/pantile.h>
#include <stdbool.h>

/* Elements from the first to the last, gaps included; 0 for an absent tensor. Strides are not
 * negative here. */
int64_t tensor_span(const struct ptl_tensor *t);

int64_t tensor_elements(const struct ptl_tensor *t);

/* Where element number i in C order is. */
int64_t tensor_offset(const struct ptl_tensor *t, int64_t i);

/* The whole span becomes GUARD_WORD, halves its upper half: a NaN that no arithmetic makes. */
void tensor_wipe(const struct ptl_tensor *t);

/* Whether the whole span is as tensor_wipe left it. */
bool tensor_wiped(const struct ptl_tensor *t);

/* Moves the elements to `to` in C order, leaving wiped ones behind. */
void tensor_take(const struct ptl_tensor *t, float *to);

/* A copy of the tensor's span, every element with its sign cleared; data is malloc'd, or NULL for
 * an absent tensor. */
struct ptl_tensor tensor_positive(const struct ptl_tensor *t);

/* Mixes the bytes of the span into a sum. */
uint64_t tensor_checksum(uint64_t sum, const struct ptl_tensor *t);

#endif
