/* The ladder of the NSA article: five ways to get compressed attention, its scores and the
 * selection for one decode row, each a program of our own over the library's kernels and threads,
 * and the library's own; then selected and sliding attention in two calls and in one. For
 * comparing; nothing here is part of the library. */
#ifndef PTL_BENCH_LADDER_NSA_H
#define PTL_BENCH_LADDER_NSA_H

#include <pantile/pantile.h>
#include <stdbool.h>

/* One row of one sequence on one kv head, f32, jagged, score OVERLAP, pool SUM; select_block /
 * stride divides 64. */
struct ladder_nsa_problem {
    const struct ptl_nsa_params *compressed; /* q, kc, vc contiguous; outputs are not looked at */
    const struct ptl_nsa_params *attend;     /* complete, with both branches */
    int64_t n_tokens;                        /* of the sequence */
    double seconds;                          /* aim for the whole ladder */
    void (*before)(void *arg);               /* called before every timed run; or NULL */
    void *arg;
};

enum {
    LADDER_NSA_SUMS,    /* scores in memory: S, P, out, and the score by sums over P transposed */
    LADDER_NSA_PRODUCT, /* the same, the score a product of P and one small block W, by tiles */
    LADDER_NSA_SHARED,  /* while a tile of P is in the cache it meets the values and W */
    LADDER_NSA_ONLINE,  /* one pass: no scores in memory, columns rescaled in the end */
    LADDER_NSA_SPLIT,   /* the same, the keys split among the threads, states merged */
    LADDER_NSA_LIBRARY, /* ptl_nsa_compressed_attention */
    LADDER_NSA_APART,   /* ptl_nsa_attend for the selected, then for the sliding branch */
    LADDER_NSA_FUSED,   /* once for both */
    LADDER_NSA_RUNGS
};

struct ladder_nsa_rung {
    double seconds; /* the fastest of `runs` */
    int runs;
    int64_t above_bytes; /* memory beyond the arguments */
    /* Largest difference of out to the library's rung (fused: to apart), of max(1, |out|); of the
     * scores, as a part of their sum; and whether the same blocks are selected. */
    double difference, score_difference;
    bool same_blocks;
};

struct ladder_nsa_result {
    struct ladder_nsa_rung rung[LADDER_NSA_RUNGS];
};

/* Statuses are those of the library; PTL_ERR_NOMEM. */
enum ptl_status ladder_run_nsa(const struct ptl_context_options *options,
                               const struct ladder_nsa_problem *problem,
                               struct ladder_nsa_result *result);

#endif
