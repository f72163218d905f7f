/* The memory of a problem: arrays that are freed together, filled with 0xff (NaN as float, -1 as
 * integer) until somebody says what they hold, and on wish followed by an unmapped page. */
#ifndef PTL_PROBLEM_MEMORY_H
#define PTL_PROBLEM_MEMORY_H

#include <pantile/base.h>
#include <stdbool.h>

#include "words.h"

struct problem_memory;

/* NULL: no memory. guard: every array ends right before a page that cannot be touched. */
struct problem_memory *problem_memory_create(bool guard);
void problem_memory_destroy(struct problem_memory *memory);

/* An array, aligned to 64 bytes, or to what its size is a multiple of when guarded. Never NULL for
 * 0 bytes; NULL when there is no memory. */
void *problem_memory_take(struct problem_memory *memory, size_t bytes);

/* The same as a contiguous tensor; name is for the sentence of a refusal. */
bool problem_memory_tensor(struct problem_memory *memory, const char *name, enum ptl_dtype dtype,
                           int ndim, const int64_t *shape, struct ptl_tensor *t, struct refusal *r);

/* Takes over an array from malloc; contents are kept, no guard. False: no memory, still the
 * caller's. */
bool problem_memory_adopt(struct problem_memory *memory, void *data);

#endif
