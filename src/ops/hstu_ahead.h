/* Rows that are needed next, asked for a few at a time between the register blocks of a product:
 * the rows of one head lie far apart in a jagged array, where the hardware's prefetchers give up,
 * and one burst of requests would hold up the loads behind it. */
#ifndef PTL_HSTU_AHEAD_H
#define PTL_HSTU_AHEAD_H

#include "../kernels/kernels.h"
#include "views.h"

struct ptl_ahead {
    struct {
        const char *data;
        int64_t step, bytes, n_rows;
    } array[4];
    int n_arrays;          /* 0: nothing to ask for */
    int64_t part, n_parts; /* part n of n_parts is asked for next */
};

/* Adds n rows of a sequence from `row` on, for head h of the n_heads from `first` on: its part of
 * every row or, where the heads lie side by side, its share of the whole rows. */
void ptl_ahead_rows(struct ptl_ahead *a, const struct ptl_rows *r, int64_t b, int64_t row,
                    int64_t n, int64_t first, int64_t h, int64_t n_heads, int dim);

/* Asks for the next part; n_parts times at most. */
void ptl_ahead_part(struct ptl_ahead *a);

/* Keys or columns of a product between two parts: whole register blocks, about a dozen. With twice
 * as many, what is asked for at once exceeds the misses that a core can have under way, and the
 * loads behind wait. */
int ptl_ahead_step(const struct ptl_kernels *k, int nv);

/* tile_qk_f32 of kernels.h, in such steps. */
void ptl_ahead_qk(struct ptl_ahead *a, const struct ptl_kernels *k, int nv, const float *q_panel,
                  const float *keys, int64_t stride, int n_keys, int dqk, float *s);

/* Parts of a product of n keys or columns. */
static inline int64_t ptl_ahead_parts(const struct ptl_kernels *k, int nv, int64_t n) {
    const int step = ptl_ahead_step(k, nv);
    return (n + step - 1) / step;
}

#endif
