/* Small valid calls to spoil, and the checks of what then comes back. Contents are of no interest
 * here; results are the business of tests/ops. */
#ifndef PTL_TESTS_API_HSTU_FIXTURE_H
#define PTL_TESTS_API_HSTU_FIXTURE_H

#include <pantile/pantile.h>

#include "harness.h"

/* Everything that a call may get. Two sequences of 3 and 2 rows; jagged q [5, 4, 3] k [5, 2, 3] v
 * [5, 2, 5] out [5, 4, 5], or dense q [2, 3, 4, 3] k [2, 3, 2, 3] v [2, 3, 2, 5] out [2, 3, 4, 5].
 * scaling_seqlen is 8; int64. */
struct api_hstu {
    struct ptl_hstu_params p;
    float q[128], k[128], v[128], out[256], scale[16];
    int64_t offsets_q[8], offsets_k[8], used_q[4], used_k[4], contexts[4], targets[4];
    int32_t narrow[8];
    uint8_t mask[512];
    float bias[512], pos_table[64], time_table[64];
    int64_t thresholds[8], stamps[16], intervals[64];
    float k_pages[128], v_pages[128];
    int64_t page_offsets[4], page_ids[8], last_page_lens[4];

    bool backward; /* which of the two is called */
    struct ptl_hstu_grads g;
    float dout[256], dq[128], dk[128], dv[128], dbias[512], dpos_table[64], dtime_table[64], ds[16];
};

void api_hstu_jagged(struct api_hstu *x);
void api_hstu_dense(struct api_hstu *x);

/* Jagged with v [5, 2, 3] and out [5, 4, 3]; pages of 2 tokens, 6 of them: sequences have 3 and 2
 * cached tokens and a target each. */
void api_hstu_paged(struct api_hstu *x);

/* Jagged, or dense: calls are of ptl_hstu_backward from here on, every gradient is wanted that is
 * there. */
void api_hstu_backward(struct api_hstu *x, bool dense);

/* Tensors over arrays of the fixture. */
struct ptl_tensor api_index(int64_t *data, int64_t n); /* int64 [n] */
struct ptl_tensor api_number(int64_t *data);           /* int64, one number */
void api_give_offsets_k(struct api_hstu *x);           /* {0, 3, 5} */
void api_give_used(struct api_hstu *x, int64_t q0, int64_t q1, int64_t k0, int64_t k1);
void api_give_contexts(struct api_hstu *x, int64_t c0, int64_t c1);
void api_give_targets(struct api_hstu *x, int64_t t0, int64_t t1);
void api_give_mask(struct api_hstu *x, int64_t batch, int64_t heads, int64_t rows, int64_t columns);
void api_give_bias(struct api_hstu *x, int64_t batch, int64_t heads, int64_t rows, int64_t columns);
void api_give_pos_table(struct api_hstu *x);  /* of 7 entries, one for all heads */
void api_give_time_table(struct api_hstu *x); /* of 5 entries; jagged, dense or paged timestamps */
void api_give_intervals(struct api_hstu *x);  /* two pairs */
void api_give_scale(struct api_hstu *x); /* one for each query row, instead of scaling_seqlen */

/* A case of its own: the call is refused with this status and this very sentence, and all is as it
 * was. */
void api_refused(struct api_hstu *x, enum ptl_status status, const char *message);

/* Within a case: the call succeeds. */
void api_accepted(struct api_hstu *x);

#endif
