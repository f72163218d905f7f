/* Sparse and full softmax attention in double and plain loops: what the library must compute.
 * Arguments are those of the library, already known to be valid; q must be given, also where the
 * library does without. b counts sequences, i the query rows of one, t is a row's position, s a
 * token, c a compressed key, j a selection block. */
#ifndef PTL_REF_NSA_H
#define PTL_REF_NSA_H

#include <pantile/attention.h>
#include <pantile/nsa.h>

/* Number of sequences; S_b and Q_b of one. */
int64_t ref_nsa_n_seqs(const struct ptl_nsa_params *p);
int64_t ref_nsa_n_tokens(const struct ptl_nsa_params *p, int64_t b);
int64_t ref_nsa_n_queries(const struct ptl_nsa_params *p, int64_t b);

/* Rows of q, all sequences together, those between sequences included; the number of a row in
 * q. */
int64_t ref_nsa_n_rows(const struct ptl_nsa_params *p);
int64_t ref_nsa_row(const struct ptl_nsa_params *p, int64_t b, int64_t i);

/* ceil(max S_b / select_block), or as many as p->importance has. */
int64_t ref_nsa_n_blocks(const struct ptl_nsa_params *p);

/* Compressed keys that position t sees: V(t). */
int64_t ref_nsa_n_visible(const struct ptl_nsa_params *p, int64_t t);

/* Whether a selection block is taken in any case. */
int ref_nsa_forced(const struct ptl_nsa_params *p, int64_t t, int64_t j);

/* Results, contiguous, a row for each row of q. A step reads what the steps before it have left
 * here, and writes those of its own that are not NULL. */
struct ref_nsa_result {
    double *out_cmp, *out_slc, *out_swa, *out; /* [rows, Hq, Dv] */
    double *lse_cmp, *lse_slc, *lse_swa;       /* [rows, Hq] */
    double *importance;                        /* [rows, Hk, ref_nsa_n_blocks] */
    int64_t *idx;                              /* [rows, Hk, topk], -1 behind the last */
    int64_t *nsel;                             /* [rows, Hk] */
};

/* One row of one step, all heads. score_dtype is not modelled. */
typedef void ref_nsa_step(const struct ptl_nsa_params *p, int64_t b, int64_t i,
                          const struct ref_nsa_result *r);

ref_nsa_step ref_nsa_compressed_row; /* out_cmp, lse_cmp, importance */
ref_nsa_step ref_nsa_select_row;     /* idx, nsel from r->importance */
ref_nsa_step ref_nsa_attend_row;     /* out_slc, lse_slc from p->idx; out_swa, lse_swa */
ref_nsa_step ref_nsa_combine_row;    /* out from r's branches, NULL as 0 */

/* A step for every row of every sequence. */
void ref_nsa_each_row(const struct ptl_nsa_params *p, ref_nsa_step *step,
                      const struct ref_nsa_result *r);

/* All steps for all rows. All of r must be there but for nsel and the lse. With p->idx that
 * selection is used, and r->idx is not written. */
void ref_nsa_forward(const struct ptl_nsa_params *p, const struct ref_nsa_result *r);

/* out [rows, Hq, Dv], lse [rows, Hq] or NULL. */
void ref_attention_forward(const struct ptl_attention_params *p, double *out, double *lse);

/* Writes y and seq_offsets_y as the library does. */
void ref_nsa_compress(const struct ptl_nsa_compress_params *p);

/* Writes pages, rings and compressed pages as the library does. */
void ref_nsa_append(const struct ptl_nsa_append_params *p);

#endif
