/* What a problem line says, with defaults filled in; nothing is drawn or allocated for it yet.
 * problem.c makes the arrays. */
#ifndef PTL_PROBLEM_LINE_H
#define PTL_PROBLEM_LINE_H

#include <pantile/pantile.h>
#include <stdbool.h>

#include "seq_numbers.h"
#include "words.h"

/* The keys that say how a call runs, not what it computes: isa executor threads cache ms. Generated
 * problems and array lines share them. */
struct run_options {
    int threads; /* 0: the default */
    enum ptl_isa isa;
    enum ptl_executor_kind executor;
    bool cold;
};

enum line_mask { MASK_RULE, MASK_RANDOM, MASK_CAUSAL, MASK_INTERVALS };
enum line_scale { SCALE_SEQLEN, SCALE_NUMBER, SCALE_TOKEN };
enum line_view { VIEW_PLAIN, VIEW_UVQK, VIEW_BHSD, VIEW_GAP };

struct problem_line {
    char op[32];
    bool backward;        /* op is hstu_backward */
    enum ptl_dtype dtype; /* F32, F16 or BF16 */
    int64_t b, h, hk, d, dv;
    int64_t sq, sk; /* -1: the lengths say it */
    int64_t pad;    /* rows behind the last sequence */
    bool dense;
    enum ptl_dtype index; /* I32 or I64 */
    struct seq_numbers lengths, lengths_k, seqused_q, seqused_k;

    int64_t window_left, window_right, target_group_size, min_full_attn_seq_len;
    struct seq_numbers num_contexts, num_targets;
    int64_t max_seqlen_q, max_seqlen_k; /* -1: not given */
    enum line_mask mask;
    double mask_density;
    int64_t mask_batch, mask_head; /* 1, or b and h */
    int64_t n_intervals;           /* pairs of a row */
    bool intervals_causal;

    bool bias;                     /* a dense one */
    int64_t bias_batch, bias_head; /* 1, or b and h */
    enum ptl_hstu_bias_rows bias_rows;
    bool bias_same_dtype;          /* as q; else f32 */
    double bias_scale;             /* NaN: not given */
    int64_t pos_table, time_table; /* tables: 0, 1 or h */
    int64_t thresholds;            /* of the time table */
    enum ptl_hstu_time_query time_query;
    bool times_random;

    int64_t page_size; /* 0: keys are not paged */
    bool ds;           /* backward: the gradient of the scale is wanted */

    double alpha;
    enum line_scale scale;
    double attn_scale;
    int64_t scaling_seqlen; /* 0: the longest query length, at least 1 */

    enum line_view view;
    uint64_t seed;
    struct run_options run;
};

/* On success problem_line_free is due. */
bool problem_line_parse(struct problem_line *p, const char *line, struct refusal *r);
void problem_line_free(struct problem_line *p);

/* *known: whether the key is one of them. */
bool read_run_option(struct run_options *o, const char *key, const char *value, bool *known,
                     struct refusal *r);

/* rule=causal|none|local:W,R and window_size=left,right as {left, right}. */
bool read_rule(const char *value, int64_t window[2], struct refusal *r);
bool read_window(const char *value, int64_t window[2], struct refusal *r);

#endif
