/* HSTU in double and plain loops: what the library must compute. Arguments are those of the
 * library, already known to be valid; the index i counts the query rows of a sequence, j its
 * keys. */
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

/* All biases of a pair, before bias_scale. */
double ref_hstu_bias(const struct ptl_hstu_params *p, int64_t b, int64_t head, int64_t i,
                     int64_t j);

/* Where row i of sequence b and head begins in a tensor shaped as q or out, in elements. */
int64_t ref_hstu_query_offset(const struct ptl_hstu_params *p, const struct ptl_tensor *t,
                              int64_t b, int64_t head, int64_t i);

/* The tensor and the element where key (or value) j of sequence b and key head begins. */
const struct ptl_tensor *ref_hstu_key(const struct ptl_hstu_params *p, bool value, int64_t b,
                                      int64_t kv_head, int64_t j, int64_t *offset);

/* One row of out: Dv doubles. */
void ref_hstu_forward_row(const struct ptl_hstu_params *p, int64_t b, int64_t head, int64_t i,
                          double *out);

/* All of out, contiguous in out's shape; padding rows are 0. */
void ref_hstu_forward(const struct ptl_hstu_params *p, double *out);

/* Gradients, contiguous in the shapes of q, k, v, attn_bias, the tables, and the query rows. NULL:
 * not wanted. */
struct ref_hstu_grads {
    double *dq, *dk, *dv, *dbias, *dpos_table, *dtime_table, *ds;
};

/* Writes all that is wanted; 0 where nothing arrives. */
void ref_hstu_backward(const struct ptl_hstu_params *p, const struct ptl_tensor *dout,
                       const struct ref_hstu_grads *g);

/* The same two as a plain evaluation in the type of q would have it: S, f(S) and the result of
 * every product are rounded to that type. Sums are double here where they would be fp32, which
 * makes it a little better than plain. What the library's error is held against. */
void ref_hstu_forward_low(const struct ptl_hstu_params *p, double *out);
void ref_hstu_backward_low(const struct ptl_hstu_params *p, const struct ptl_tensor *dout,
                           const struct ref_hstu_grads *g);

#endif
