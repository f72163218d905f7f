/* Jagged operators in plain loops: what the library must compute. Arguments are those of the
 * library, already known to be valid. Copies move bytes; arithmetic is in double. */
#ifndef PTL_REF_JAGGED_H
#define PTL_REF_JAGGED_H

#include <pantile/jagged.h>

/* Number of sequences, and the rows of one of them. */
int64_t ref_jagged_n_seqs(const struct ptl_jagged *j);
int64_t ref_jagged_length(const struct ptl_jagged *j, int64_t b);

/* These write what the library writes, padding rows included, and no other byte. */
void ref_jagged_resize(const struct ptl_jagged *x, enum ptl_jagged_align align, const void *pad,
                       const struct ptl_jagged *out);
void ref_jagged_concat(const struct ptl_jagged *left, const struct ptl_jagged *right,
                       int64_t n_prefix, const struct ptl_tensor *out);
void ref_jagged_split(const struct ptl_tensor *x, int64_t n_prefix, const struct ptl_jagged *left,
                      const struct ptl_jagged *right);
void ref_jagged_replace_last(const struct ptl_jagged *x, const struct ptl_jagged *last,
                             const struct ptl_tensor *out);

/* out is contiguous: the rows of x's values (out's shape), or B rows. */
void ref_jagged_broadcast_add(const struct ptl_jagged *x, const struct ptl_tensor *d, double *out);
void ref_jagged_sum(const struct ptl_jagged *x, double *out);

/* The rows of the tables that token x of sequence b takes; tables of n_positions, n_buckets
 * rows. */
int64_t ref_position(const struct ptl_jagged_position_time_params *p, int64_t n_positions,
                     int64_t b, int64_t x);
int64_t ref_time_bucket(const struct ptl_jagged_position_time_params *p, int64_t n_buckets,
                        int64_t b, int64_t x);

/* Contiguous results; padding rows are 0. Backward: NULL where not wanted. */
void ref_position_time_forward(const struct ptl_jagged_position_time_params *p, double *out);
void ref_position_time_backward(const struct ptl_jagged_position_time_params *p, double *demb,
                                double *dpos_w, double *dts_w);

#endif
