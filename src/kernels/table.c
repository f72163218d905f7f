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
#define PTL_KERNEL(ret, kernel, args) .kernel = KERNEL(kernel),
#include "kernels.def"
#undef PTL_KERNEL
};
