/* What a generated line of an NSA operator says, with defaults filled in; nothing is drawn or
 * allocated for it yet. problem_nsa.c makes the arrays. All operators take the same words, so that
 * one scenario is one line, and look at those that concern them. */
#ifndef PTL_PROBLEM_NSA_LINE_H
#define PTL_PROBLEM_NSA_LINE_H

#include <pantile/pantile.h>
#include <stdbool.h>

#include "problem_line.h"

struct nsa_line {
    enum ptl_dtype dtype; /* F32, F16 or BF16 */
    enum ptl_dtype index; /* I32 or I64 */
    int64_t b, h, hk, d, dv;
    int64_t sk;                            /* tokens of each sequence; -1: lengths says it */
    int64_t sq;                            /* its query rows, the last ones; -1: all */
    struct seq_numbers lengths, lengths_q; /* instead of sk and sq */
    bool dense;
    int64_t page_size; /* 0: not paged */

    int64_t block, stride, select_block, topk, n_init, n_local, window, dense_len;
    double scale; /* NaN: not given */
    enum ptl_nsa_score score;
    enum ptl_nsa_pool pool;
    enum ptl_nsa_order order;
    enum ptl_dtype score_dtype;
    enum ptl_nsa_gate_act gate_act;
    enum ptl_nsa_mode mode;
    bool pe, kc, q_cmp, k_swa;                /* optional inputs */
    bool out, lse, importance, idx, branches; /* outputs that may be left out */

    uint64_t seed;
    struct run_options run;
};

/* On success nsa_line_free is due. */
bool nsa_line_read(struct nsa_line *p, const struct words *w, struct refusal *r);
void nsa_line_free(struct nsa_line *p);

#endif
