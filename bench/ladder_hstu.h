/* The ladder of the HSTU article: five ways to compute the same causal HSTU attention, each a
 * program of our own over the library's tiles and threads, and the library's own in two half
 * precisions. For comparing; nothing here is part of the library. */
#ifndef PTL_BENCH_LADDER_HSTU_H
#define PTL_BENCH_LADDER_HSTU_H

#include <pantile/pantile.h>

/* Sequences one after the other; q, k and v are [offsets[n_seqs], n_heads, dim], contiguous. */
struct ladder_problem {
    int64_t n_seqs;
    const int64_t *offsets; /* n_seqs + 1 */
    int64_t n_heads;
    int dim;
    const float *q, *k, *v;
    float alpha;
    int64_t scaling_seqlen;
};

struct ladder_limits {
    size_t padded_bytes; /* scores and mask of one padded batch stay below this */
    double seconds;      /* aim for the whole ladder; fewer sequences when it would take longer */
    void (*progress)(const char *what); /* or NULL */
};

enum {
    LADDER_NAIVE,
    LADDER_FUSED,
    LADDER_SKIPPING,
    LADDER_JAGGED,
    LADDER_PIPELINED,
    LADDER_F16,
    LADDER_BF16,
    LADDER_RUNGS
};

struct ladder_rung {
    double seconds; /* the fastest of `runs`; padded rungs: summed over the batches */
    double share;   /* of its threads' time that the process had then; below 1 others ran, too */
    int runs;
    /* Of the largest batch. above_bytes is what the rung allocates beyond q, k, v, out and its mask
     * input; resident_bytes is by how much the process really grew meanwhile, -1 when not known. */
    int64_t total_bytes, above_bytes, resident_bytes;
    /* Largest difference to double on sampled rows, and to the jagged rung on all rows; both over
     * the largest |out| of these rows. The half rungs take rounded q, k and v: double does, too, so
     * error is theirs and difference what the rounding costs in all. */
    double error, difference;
};

struct ladder_result {
    struct ladder_rung rung[LADDER_RUNGS];
    int64_t n_seqs;                /* sequences that took part */
    int64_t n_batches, batch_seqs; /* of the padded rungs; batch_seqs in the largest */
    double seen_pairs,
        padded_pairs;          /* (query, key) pairs of one head: causal, and padded squares */
    int64_t whole_naive_bytes; /* total_bytes of the naive rung if one batch held everything */
    int64_t sampled_rows;
};

/* Climbs the ladder; sequences beyond result->n_seqs were left out for want of time.
 * PTL_ERR_NOMEM: not even one sequence fits. Other statuses are those of the library. */
enum ptl_status ladder_run_hstu(const struct ptl_context_options *options,
                                const struct ladder_problem *problem,
                                const struct ladder_limits *limits, struct ladder_result *result);

#endif
