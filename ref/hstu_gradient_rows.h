/* Single rows of the HSTU gradients in double, for problems whose whole gradients would take the
 * reference too long. The whole is hstu_gradients.c. */
#ifndef PTL_REF_HSTU_GRADIENT_ROWS_H
#define PTL_REF_HSTU_GRADIENT_ROWS_H

#include <pantile/hstu.h>

/* The row of dq of query row i and a query head: Dqk doubles. */
void ref_hstu_dq_row(const struct ptl_hstu_params *p, const struct ptl_tensor *dout, int64_t b,
                     int64_t head, int64_t i, double *dq);

/* The rows of dk and dv of key j and a key head: Dqk and Dv doubles. */
void ref_hstu_dkv_row(const struct ptl_hstu_params *p, const struct ptl_tensor *dout, int64_t b,
                      int64_t kv_head, int64_t j, double *dk, double *dv);

#endif
