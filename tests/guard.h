/* Arrays that end right before an unmapped page, with a canary in front: a read or write one
 * element too far shows. It allocates and compares; what is in an array is the test's business. */
#ifndef PTL_TESTS_GUARD_H
#define PTL_TESTS_GUARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What untouched memory holds: as a float a quiet NaN that no arithmetic makes. */
#define GUARD_WORD 0x7fe5a5a5u

struct guard {
    char *memory; /* `bytes` bytes, then an unmapped page */
    size_t bytes;
};

/* Exits the process when there is no memory. */
struct guard guard_create(size_t bytes);
void guard_destroy(struct guard *g);

/* The last n_floats floats before the unmapped page; they and the canary in front become
 * GUARD_WORD. */
float *guard_floats(const struct guard *g, size_t n_floats);

/* Whether the canary in front of those n_floats is whole. */
bool guard_intact(const struct guard *g, size_t n_floats);

static inline uint32_t float_bits(float x) {
    union {
        float f;
        uint32_t u;
    } both = {x};
    return both.u;
}

static inline float bits_float(uint32_t u) {
    union {
        uint32_t u;
        float f;
    } both = {u};
    return both.f;
}

#endif
