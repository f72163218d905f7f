/* Arrays in NumPy's .npy files, versions 1 to 3: little-endian, C order, at most four axes.
 * A file is distrusted until its header and its length agree. */
#ifndef PTL_NPY_H
#define PTL_NPY_H

#include <pantile/base.h>
#include <stdbool.h>
#include <stdio.h>

#include "words.h"

/* The file as a contiguous tensor; t->data is to be freed, and is not NULL even for 0 elements.
 * float32, float16, int32, int64, uint8 and bool (as u8), uint16 (the bits of bf16). */
bool npy_read(const char *path, struct ptl_tensor *t, struct refusal *r);

/* The same from a stream that can seek; name is for the sentence. */
bool npy_read_stream(FILE *f, const char *name, struct ptl_tensor *t, struct refusal *r);

/* Writes version 1.0 in C order whatever the strides; the last axis is contiguous. */
bool npy_write(const char *path, const struct ptl_tensor *t, struct refusal *r);

/* The same into a stream. */
bool npy_write_stream(FILE *f, const struct ptl_tensor *t);

/* "float32"; bf16 is "uint16 (bf16)". */
const char *type_text(enum ptl_dtype dtype);

/* "(3, 4)", as NumPy prints shapes. */
const char *shape_text(const struct ptl_tensor *t, char text[96]);

#endif
