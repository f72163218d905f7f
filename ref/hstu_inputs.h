/* What the files of the HSTU reference share: reading arguments, and the pieces of the formula.
 * Not for others; they include hstu.h. */
#ifndef PTL_REF_HSTU_INPUTS_H
#define PTL_REF_HSTU_INPUTS_H

#include "elements.h"
#include "hstu.h"

enum { REF_MAX_DIM = 1024 }; /* of a head, as in the library */

/* Rounds what a product, S or f gives. The identity for the reference proper. */
typedef double ref_rounding(double x);
double ref_exactly(double x);
ref_rounding *ref_rounding_of(enum ptl_dtype type);

/* Heads of q, key head of a query head, head sizes. */
struct ref_dims {
    int64_t heads, group, dqk, dv;
};
struct ref_dims ref_hstu_dims(const struct ptl_hstu_params *p);

/* s_i */
double ref_hstu_scale(const struct ptl_hstu_params *p, int64_t b, int64_t i);

/* Keys that lie in pages. */
int64_t ref_hstu_cached(const struct ptl_hstu_params *p, int64_t b);

/* Number of the time table's entry for a pair. */
int64_t ref_hstu_bucket(const struct ptl_hstu_params *p, int64_t b, int64_t i, int64_t j);

/* n elements from one on. */
void ref_read_row(const struct ptl_tensor *t, int64_t offset, int64_t n, double *to);

double ref_dot(const double *a, const double *b, int64_t n);

/* bias_scale, or alpha when it is not given. */
double ref_hstu_beta(const struct ptl_hstu_params *p);

/* S of a pair from the rows of q and k. */
double ref_hstu_score(const struct ptl_hstu_params *p, int64_t b, int64_t head, int64_t i,
                      int64_t j, const double *q, const double *k, ref_rounding *rounded);

double ref_silu(double x);
double ref_dsilu(double x); /* its derivative: 0 at -inf, 1 at +inf */

#endif
