/* Numbers of the float types as doubles: what an element means, and what a double becomes as one.
 * Entries of index tensors. Written from the definition of the types, apart from the library's
 * conversions. */
#ifndef PTL_REF_ELEMENTS_H
#define PTL_REF_ELEMENTS_H

#include <pantile/base.h>

/* Element `at` of an array of f32, f16 or bf16; exact. */
double ref_read(enum ptl_dtype type, const void *data, int64_t at);

/* The number of the type nearest to x, ties to even; infinity from halfway past the largest on. */
double ref_round(enum ptl_dtype type, double x);

/* Stores ref_round(type, x); NaN becomes a quiet NaN. */
void ref_write(enum ptl_dtype type, void *data, int64_t at, double x);

/* Entry i of an index tensor, int32 or int64; one number (ndim 0) serves for every i. */
int64_t ref_index(const struct ptl_tensor *t, int64_t i);

#endif
