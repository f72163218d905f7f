/* The register block that every product is made of, and the walk over its rows. Kernels inline it
 * with all but pointers, lengths and some strides constant; it is no kernel itself. */
#ifndef PTL_REGISTER_BLOCK_H
#define PTL_REGISTER_BLOCK_H

#include <limits.h>

#include "kernels.h"
#include "simd/vec.h"

/* What is multiplied: floats, or pairs of bf16 where PTL_PAIRS is defined before this is included.
 * Then a lane of a holds a pair, a value of b is one too, and x counts pairs: two terms of a
 * sum. */
#ifdef PTL_PAIRS
typedef uint16_t element;
enum { PER_LANE = 2 }; /* elements of b that meet a lane of a */

V_INLINE vf splat(const element *p) {
    return v_splat_pair(p);
}
V_INLINE vf multiply_add(vf b, vf a, vf sum) {
    return v_dot(b, a, sum);
}
#else
typedef float element;
enum { PER_LANE = 1 };

V_INLINE vf splat(const element *p) {
    return v_splat(*p);
}
V_INLINE vf multiply_add(vf b, vf a, vf sum) {
    return v_fma(b, a, sum);
}
#endif

/* How a block's sums meet what is in memory; PARTIAL: only the first `width` columns of c exist.
 * RESCALE: c times a factor for each lane, plus the sum. */
enum sink { OVERWRITE, ADD, ADD_TO_ZERO, RESCALE, PARTIAL_ADD, PARTIAL_ADD_TO_ZERO };

/* The operands of c[m][lane] = c0 + sum over x of b(m, x) * a[x][lane]. b comes in parts of `part`
 * values of x, b(m, x) = b[x / part * b_part + m * bm + x % part * bx], or, with runs, in parts of
 * any length that lie anywhere: value y of run r is runs[r].rows[b_offset + m * bm + y * bx]. */
struct operands {
    const float *a;
    const element *b;
    float *c;
    const struct ptl_run *runs;
    const float *factor;
    ptrdiff_t a_step, bm, bx, b_part, b_offset, c_step;
    int part, nx, width;
};

/* nr rows by nv vectors: per x it costs nv loads, nr broadcasts and nr * nv multiply-adds, and the
 * sums live in registers. Nothing else may: one more live vector, a hoisted zero even, spills a
 * sum. */
V_INLINE void register_block(const int nv, const int nr, const enum sink sink, struct operands o) {
    vf acc[12][V_PANEL];
    UNROLL for (int m = 0; m < nr; m++) UNROLL for (int v = 0; v < nv; v++) acc[m][v] = v_zero();
    for (int left = o.nx, n; left > 0; left -= n, o.b += o.b_part) {
        const element *at = o.b;
        n = left < o.part ? left : o.part;
        if (o.runs) {
            at = (const element *)o.runs->rows + o.b_offset;
            n = o.runs++->n;
        }
        UNROLL_4 for (int x = 0; x < n; x++) {
            vf line[V_PANEL];
            UNROLL for (int v = 0; v < nv; v++) line[v] = v_load(o.a + v * V_LANES);
            UNROLL for (int m = 0; m < nr; m++) {
                vf e = splat(at + m * o.bm);
                UNROLL for (int v = 0; v < nv; v++) acc[m][v] = multiply_add(e, line[v], acc[m][v]);
            }
            o.a += o.a_step;
            at += o.bx;
        }
    }
    UNROLL for (int m = 0; m < nr; m++) UNROLL for (int v = 0; v < nv; v++) {
        float *p = o.c + m * o.c_step + v * V_LANES;
        /* 0 + -0 is +0, as when the zero was in memory */
        if (sink == OVERWRITE) v_store(p, acc[m][v]);
        if (sink == ADD) v_store(p, v_add(v_load(p), acc[m][v]));
        if (sink == ADD_TO_ZERO) v_store(p, v_add(v_zero(), acc[m][v]));
        if (sink == RESCALE)
            v_store(p, v_fma(v_load(p), v_load(o.factor + v * V_LANES), acc[m][v]));
        if (sink == PARTIAL_ADD) v_store_n(p, v_add(v_load_n(p, o.width), acc[m][v]), o.width);
        if (sink == PARTIAL_ADD_TO_ZERO) v_store_n(p, v_add(v_zero(), acc[m][v]), o.width);
    }
}

/* All nm rows: blocks of nr, then the remainder by halves. */
V_INLINE void register_rows(const int nv, const int nr, const enum sink sink, struct operands o,
                            int nm) {
#define BLOCK(rows)                                                                                \
    do {                                                                                           \
        register_block(nv, rows, sink, o);                                                         \
        o.b += rows * o.bm;                                                                        \
        o.b_offset += rows * o.bm;                                                                 \
        o.c += rows * o.c_step;                                                                    \
        nm -= rows;                                                                                \
    } while (0)
    while (nm >= nr) BLOCK(nr);
    if (nr > 8 && nm >= 8) BLOCK(8);
    if (nr > 4 && nm >= 4) BLOCK(4);
    if (nr > 2 && nm >= 2) BLOCK(2);
    if (nm > 0) BLOCK(1);
#undef BLOCK
}

#endif
