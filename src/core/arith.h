/* The few lines of integer arithmetic that everybody needs. */
#ifndef PTL_ARITH_H
#define PTL_ARITH_H

#include <stddef.h>
#include <stdint.h>

static inline int64_t ptl_min64(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static inline int64_t ptl_max64(int64_t a, int64_t b) {
    return a > b ? a : b;
}

static inline size_t ptl_round_up(size_t n, size_t unit) {
    return (n + unit - 1) / unit * unit;
}

#endif
