/* The table of one level: every kernel of kernels.def as this level compiled it. */
#include "kernels.h"
#include "simd/vec.h"

#define PTL_STRING_(x) #x
#define PTL_STRING(x) PTL_STRING_(x)

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
#define PTL_KERNEL(ret, kernel, args) .kernel = KERNEL(kernel),
#include "kernels.def"
#undef PTL_KERNEL
};
