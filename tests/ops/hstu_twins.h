/* Two ways to ask for the same: their results must be alike bit for bit on every level.
 * What the two ways are is the business of the tests. */
#ifndef PTL_TESTS_HSTU_TWINS_H
#define PTL_TESTS_HSTU_TWINS_H

#include "hstu_backward_check.h"

/* Which gradients: bit i is hstu_grad_names[i]. */
enum { TWIN_DQ = 1, TWIN_DK = 2, TWIN_DV = 4, TWIN_DBIAS = 8, TWIN_QKV = 7, TWIN_DS = 64 };

/* Fails the case unless out has the same bits; its elements are compared in C order. */
void twins_forward(const struct ptl_hstu_params *a, const struct ptl_hstu_params *b,
                   const char *what);

/* The same for gradients. */
void twins_backward(const struct ptl_hstu_params *a, const struct ptl_hstu_grads *ga,
                    const struct ptl_hstu_params *b, const struct ptl_hstu_grads *gb,
                    unsigned which, const char *what);

/* Both, for two lines whose op is left out. */
void twins_lines(const char *a, const char *b, unsigned which);

/* Largest |a - b| over largest |b|, forward, over all levels. */
double twins_distance(const struct ptl_hstu_params *a, const struct ptl_hstu_params *b);

/* A dense mask [B, H, max_q, max_k], and intervals with empty, overlapping and unordered pairs,
 * that say what the arguments' mask says (the intervals for a mask that all heads share). To be
 * freed. */
struct ptl_tensor twins_mask(const struct ptl_hstu_params *p);
struct ptl_tensor twins_intervals(const struct ptl_hstu_params *p, enum ptl_dtype type);

/* The same arguments without any mask option: what intervals and masks are given to. */
struct ptl_hstu_params twins_unmasked(const struct ptl_hstu_params *p);

/* A dense bias [B, H, max_q, max_k] of f32 that adds up all biases of the arguments. To be
 * freed. */
struct ptl_tensor twins_bias(const struct ptl_hstu_params *p);

#endif
