/* The table of one level: every kernel of kernels.def as this level compiled it, or, where it was
 * made over a base level, its own kernels and those of the base. */
#include "kernels.h"
#include "simd/vec.h"

#define PTL_STRING_(x) #x
#define PTL_STRING(x) PTL_STRING_(x)

#ifdef PTL_BASE_LEVEL
#define COMMON_KERNEL(name) PTL_JOIN(name, PTL_BASE_LEVEL)
#define PTL_KERNEL(ret, kernel, args) ret COMMON_KERNEL(kernel) args;
#define PTL_DOT_KERNEL(ret, kernel, args)
#include "kernels.def"
#undef PTL_KERNEL
#else
#define COMMON_KERNEL(name) KERNEL(name)
#endif

const struct ptl_kernels KERNEL(kernels) = {
    .name = PTL_STRING(PTL_LEVEL),
    .lanes = V_LANES,
    .panel = V_PANEL * V_LANES,
    .key_tile = V_KEY_TILE,
#if V_PANEL > 3
    .rows = {V_ROWS_1, V_ROWS_2, V_ROWS_3, V_ROWS_4},
#else
    .rows = {V_ROWS_1, V_ROWS_2, V_ROWS_3},
#endif
#define PTL_KERNEL(ret, kernel, args) .kernel = COMMON_KERNEL(kernel),
#ifdef V_HAS_PAIRS
#define PTL_DOT_KERNEL(ret, kernel, args) .kernel = KERNEL(kernel),
#else
#define PTL_DOT_KERNEL(ret, kernel, args) .kernel = NULL,
#endif
#include "kernels.def"
#undef PTL_KERNEL
};
