/* The contracts of the kernels: what one block of arithmetic reads, writes and assumes.
 * Which kernels exist is listed in kernels.def; bodies are in this folder, one file per theme.
 *
 * The tiles. A panel holds up to `panel` query rows as lanes, one column of the problem per line:
 *
 *     q_panel[d][lane]    the rows of q, transposed          dqk lines
 *     s[j][lane]          scores, then their silu            one line per key of the tile
 *     o_panel[d][lane]    the rows of out, transposed        dv lines
 *
 * Every line is `panel` floats long whatever the number of rows; a panel or tile begins on 64
 * bytes. `nv` (1 .. panel/lanes) says how many vectors of a line are in use: nv * lanes >= n_rows.
 * Kernels write and may read all used vectors, so lanes past n_rows hold finite junk. Keys and
 * values are read in place, one element at a time against nv vectors of lanes: their rows need not
 * lie densely.
 *
 * Masks are one uint64_t per key: bit `lane` says that the row sees the key.
 *
 * Where a level multiplies bf16 pairs, a lane of a line may hold a pair in its 32 bits, the first
 * in the lower half: q_pairs[c][lane] = (q[2 c], q[2 c + 1]), and a score tile becomes
 * p_pairs[j][lane] = (s[2 j], s[2 j + 1]). Pairs in arrays are neighbouring elements, and strides
 * count elements.
 *
 * Each result element is one sum in key (or dqk) order in one accumulator, whatever nv, n_rows or
 * the register block: that is why results do not depend on how rows are grouped. */
#ifndef PTL_KERNELS_H
#define PTL_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bounds on every level's panel (the bits of a mask word) and key_tile. */
enum { PTL_MAX_PANEL = 64, PTL_MAX_KEY_TILE = 128 };

/* n rows of values at one stride; a tile may consist of several such. */
struct ptl_run {
    const float *rows;
    int n;
};

struct ptl_kernels {
    const char *name; /* the level: "avx2" */
    int lanes;        /* floats per vector */
    int panel;        /* floats per line of a panel: the most query rows a panel takes */
    int key_tile;     /* keys per tile; tiles start at multiples of it in every sequence */
    int rows[4];      /* keys or columns of a product's register block with nv vectors, at nv - 1 */
#define PTL_KERNEL(ret, kernel, args) ret(*kernel) args;
#include "kernels.def"
#undef PTL_KERNEL
};

extern const struct ptl_kernels ptl_kernels_scalar;
extern const struct ptl_kernels ptl_kernels_avx2;
extern const struct ptl_kernels ptl_kernels_avx512;
extern const struct ptl_kernels ptl_kernels_avx512bf16;
extern const struct ptl_kernels ptl_kernels_neon;

/* In a kernel's source, KERNEL(tile_qk) is ptl_tile_qk_avx2 when compiled for avx2. */
#define PTL_JOIN_(a, b) ptl_##a##_##b
#define PTL_JOIN(a, b) PTL_JOIN_(a, b)
#ifndef PTL_LEVEL
#define PTL_LEVEL scalar
#endif
#define KERNEL(name) PTL_JOIN(name, PTL_LEVEL)

/* Every source sees the declarations of its level, so that a definition cannot disagree with the
 * list. */
#define PTL_KERNEL(ret, kernel, args) ret KERNEL(kernel) args;
#include "kernels.def"
#undef PTL_KERNEL

#endif
