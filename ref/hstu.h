/* HSTU in double and plain loops: what the library must compute. Arguments are those of the library,
 * already known to be valid; the index i counts the query rows of a sequence. */
#ifndef PTL_REF_HSTU_H
#define PTL_REF_HSTU_H

#include <pantile/hstu.h>
#include <stdbool.h>

/* Number of sequences; and the query rows uq and keys uk of one of them. */
int64_t ref_hstu_n_seqs(const struct ptl_hstu_params *p);
int64_t ref_hstu_uq(const struct ptl_hstu_params *p, int64_t b);
int64_t ref_hstu_uk(const struct ptl_hstu_params *p, int64_t b);

/* Whether query row i of sequence b and head a sees key column j. */
bool ref_hstu_valid(const struct ptl_hstu_params *p, int64_t b, int64_t head, int64_t i, int64_t j);

/* One row of out: Dv doubles. */
void ref_hstu_forward_row(const struct ptl_hstu_params *p, int64_t b, int64_t head, int64_t i,
                          double *out);

/* All of out, contiguous in out's shape; padding rows are 0. */
void ref_hstu_forward(const struct ptl_hstu_params *p, double *out);

#endif
