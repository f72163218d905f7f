/* What HSTU arguments say about each sequence: which rows it owns and uses, how many pairs it sees.
 * For arguments that the library has accepted; it checks nothing. */
#ifndef PTL_SEQUENCES_H
#define PTL_SEQUENCES_H

#include <pantile/pantile.h>
#include <stdbool.h>

struct sequence {
    int64_t batch;        /* index on the batch axis; 0 when jagged */
    int64_t first_q;      /* its first row of q and out */
    int64_t room_q;       /* rows of out that it owns, padding included */
    int64_t uq, uk;       /* rows that exist */
    int64_t contexts;     /* c' = min(c, h) */
    int64_t targets;      /* t */
    int64_t first_target; /* h */
};

int64_t n_sequences(const struct ptl_hstu_params *a);
int64_t n_query_heads(const struct ptl_hstu_params *a);

/* Index n_sequences is the padding behind the last offset: room_q rows, none of them used. */
struct sequence sequence_at(const struct ptl_hstu_params *a, int64_t b);

/* Sums over sequences. Doubles: 2^53 is exact enough for rates, and these do not overflow. */
struct workload {
    double rows_q, rows_k; /* used */
    double all_pairs;      /* rows times keys, all query heads */
    double valid_pairs;    /* those that the mask lets through, all query heads */
};

struct workload workload_of(const struct ptl_hstu_params *a);

#endif
