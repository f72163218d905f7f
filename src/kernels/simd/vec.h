/* The vector layer: picks the vec_<isa>.h of the level that this file is being compiled for.
 * Kernels use only what every vec_*.h offers; it is not a general SIMD library.
 *
 *   vf              V_LANES floats           vm        a yes or no per lane
 *   v_load/v_store  V_LANES floats, any alignment; *_n: the first n (1..V_LANES), nothing past them
 *   v_fma(a,b,c)    a*b + c, one rounding where the level has fused multiply-add
 *   v_max(a,b)      b where either is NaN    v_min likewise
 *   v_not_less(a,b) yes where a >= b, and where either is NaN
 *   v_exp2_scale(p, t)  p * 2^n, where t = n + V_ROUND_MAGIC came from adding the magic number
 *   v_mask(bits)    lane i from bit i        v_keep(m, a)  a where m, else +0
 *   v_from_bf16(p), v_to_bf16(p, x)  V_LANES halves at p, rounded to nearest even; f16 likewise
 *   vd              V_LANES doubles; vd_load, vd_store; vd_add(a, x) adds the floats of x, widened
 *   v_stream(p, x)  v_store to a multiple of a vector, past the caches: the line is not read
 *                   before it is written. A plain store where there is no such
 *   v_stream_end()  orders the streamed stores before what follows
 *   v_transpose(r)  the V_LANES x V_LANES square in r[0..V_LANES-1], in place
 *
 * A level with V_HAS_PAIRS has besides, for product_pairs.c:
 *   v_splat_pair(p) the pair of bf16 at p in every lane, the first in the lower half
 *   v_dot(a,b,c)    c plus both products of the pairs in a and b
 *   v_to_pairs(a,b) the floats of a and of b rounded, as pairs (a, b); NaN stays NaN
 *   v_keep_pair(m,n,a)  of each pair the first where m, the second where n, else +0
 *   v_store_pairs(p,a)  V_LANES pairs to p
 *
 * Tile shapes, tuned per level (docs/performance.md):
 *   V_PANEL     vectors of a full panel: a panel is V_PANEL * V_LANES query rows
 *   V_KEY_TILE  keys per tile; partial sums over a tile are added to the output in tile order
 *   V_ROWS_n    rows of the product's register block when the panel has n vectors */
#ifndef PTL_SIMD_VEC_H
#define PTL_SIMD_VEC_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define V_INLINE static inline __attribute__((always_inline))

/* Loops with constant bounds over arrays of vectors are unrolled, so that the arrays become
 * registers; clang does not know gcc's spelling, and loses a factor of five without its own. */
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#define UNROLL_4 _Pragma("clang loop unroll_count(4)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#define UNROLL_4 _Pragma("GCC unroll 4")
#endif

/* Adding 1.5 * 2^23 to |x| < 2^22 rounds x to an integer, which is then in the low mantissa
 * bits. */
#define V_ROUND_MAGIC 12582912.0f

#if defined(PTL_LEVEL_avx2)
#include "vec_avx2.h"
#elif defined(PTL_LEVEL_avx512)
#include "vec_avx512.h"
#elif defined(PTL_LEVEL_avx512bf16)
#include "vec_avx512bf16.h"
#elif defined(PTL_LEVEL_neon)
#include "vec_neon.h"
#else
#ifndef PTL_LEVEL_scalar
#define PTL_LEVEL_scalar
#endif
#include "vec_scalar.h"
#endif

#endif
