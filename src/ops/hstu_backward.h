/* What the files of the HSTU backward pass share: the plan of a call and the order of its sums. */
#ifndef PTL_HSTU_BACKWARD_H
#define PTL_HSTU_BACKWARD_H

#include <stdatomic.h>

#include "hstu_tile.h"

/* Panels of a block of query rows. The sums over query rows that make dk and dv run over a block in
 * registers, so a longer block touches the accumulators in memory less often. */
enum { PTL_BACKWARD_PANELS = 4 };

/* Key tiles [first, last] that a block of query rows sees; first > last: none. */
struct ptl_block_hull {
    int32_t first, last;
};

struct ptl_backward_plan {
    const struct ptl_hstu_problem *p;
    const struct ptl_hstu_gradients *g;
    const struct ptl_kernels *kernels;
    int64_t block_rows;

    /* Sequences with the most keys first; task numbers where each one's tasks end. */
    int64_t *order, *task_end;
    int64_t n_tasks;
    _Atomic int64_t next_task;

    /* Blocks of all sequences in a row; first_block[seq] is where a sequence's begin. */
    int64_t *first_block, n_blocks;
    int64_t most_blocks, most_tiles; /* of one sequence */
    struct ptl_block_hull *hulls;

    /* Turns: the number of the tile, pair or task that may add next. */
    _Atomic int32_t *dq_turn;   /* [head][block] */
    _Atomic int32_t *bias_turn; /* broadcast dbias: [slice][tile][block of a sequence] */
    _Atomic int64_t table_turn;

    struct ptl_rows dq; /* in fp32: the caller's, or where that has halves [row][head][dqk] */
    float *ds;          /* per head: [head][row] */
    float *dbias;       /* halves, broadcast: in fp32, laid out as contiguous dbias */
    double *tables;     /* sums of dpos, then dtime, for all heads or one */
    const float *reversed;

    char *scratch;
    size_t scratch_bytes; /* per worker */
};

/* Row of the jagged array, or of the dense one taken as [B * Sq]. */
static inline int64_t ptl_flat_row(const struct ptl_hstu_problem *p, const struct ptl_hstu_seq *seq,
                                   int64_t row) {
    return seq->b * p->q_rows + seq->q_row + row;
}

/* Waits until *turn is `mine`. The tasks before ours have been drawn by running workers (tasks are
 * drawn in order), so this ends; and a host that runs workers one after the other never waits. */
void ptl_wait_turn32(_Atomic int32_t *turn, int32_t mine);
void ptl_wait_turn64(_Atomic int64_t *turn, int64_t mine);

/* ---- Gradients of the bias: hstu_dbias.c ----------------------------------------------------- */

/* One panel's dS, as the score tile lies: lines of columns [begin, end). */
struct ptl_ds_tile {
    const float *ds;
    int64_t row, begin, end;
    int n_rows;
};

bool ptl_dbias_broadcasts(const struct ptl_hstu_problem *p, const struct ptl_hstu_gradients *g);

/* Adds (or, without broadcast, writes) beta * dS to dbias. */
void ptl_dbias_add(const struct ptl_backward_plan *plan, const struct ptl_hstu_seq *seq,
                   int64_t head, const struct ptl_ds_tile *t, const struct ptl_hstu_stage *stage);

/* Adds beta * dS to a worker's partial tables (dpos reversed as ptl_hstu_reverse_tables has it,
 * then dtime). */
void ptl_dtables_add(const struct ptl_backward_plan *plan, const struct ptl_hstu_seq *seq,
                     const struct ptl_ds_tile *t, double *partial,
                     const struct ptl_hstu_stage *stage);

/* Moves a head's partial tables to the plan's sums, and zeroes them. */
void ptl_dtables_merge(struct ptl_backward_plan *plan, const struct ptl_hstu_seq *seq, int64_t head,
                       double *partial);

/* Doubles of one head's tables, and of the plan's sums. */
int64_t ptl_dtables_entries(const struct ptl_backward_plan *plan);
int64_t ptl_dtables_total(const struct ptl_backward_plan *plan);

/* Before the tasks: zeroes. After them: rounds the sums to where they belong. */
void ptl_dbias_begin(const struct ptl_backward_plan *plan);
void ptl_dbias_finish(const struct ptl_backward_plan *plan);

#endif
