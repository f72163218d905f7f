/* Which block of rows is computed when: longest first, small ones in bunches, drawn from one
 * counter. It orders and hands out; what a block is worth and what is done with it is the
 * operator's. */
#ifndef PTL_SCHEDULE_H
#define PTL_SCHEDULE_H

#include <stdatomic.h>
#include <stdint.h>

/* Costs are multiply-adds; a core does about 10^10 to 10^11 a second. A bunch of small tasks is
 * worth about 20 us of a core, so that drawing it (one shared atomic add) costs nothing; a second
 * thread is worth waking for about as much. */
enum { PTL_WORTH_A_THREAD = 1 << 19, PTL_SCHEDULE_BUCKETS = 4 * 64 };

struct ptl_block {
    int64_t seq, row; /* sequence index, first row */
};

/* The order of blocks is a counting sort by cost, four buckets an octave. Use: begin; count every
 * block; place every block again in the same manner; then workers draw. Every block stands for
 * n_heads tasks of the same cost. */
struct ptl_schedule {
    struct ptl_block *blocks; /* sorted; memory from the caller, n_blocks entries */
    int64_t n_heads, n_tasks;
    double total_cost;
    int64_t count[PTL_SCHEDULE_BUCKETS], next[PTL_SCHEDULE_BUCKETS];
    int64_t grain[PTL_SCHEDULE_BUCKETS], first_chunk[PTL_SCHEDULE_BUCKETS];
    int first, last;               /* buckets in use: first is the cheapest */
    int64_t n_chunks, last_chunks; /* what is drawn at once; the last ones, two a thread */
    _Atomic int64_t drawn;
};

void ptl_schedule_begin(struct ptl_schedule *s, int64_t n_heads);
void ptl_schedule_count(struct ptl_schedule *s, int64_t cost);
int64_t ptl_schedule_n_blocks(const struct ptl_schedule *s);

/* After all counts: the number of workers worth using, 1..n_threads. */
int ptl_schedule_workers(const struct ptl_schedule *s, int n_threads);

void ptl_schedule_order(struct ptl_schedule *s, struct ptl_block *blocks, int n_threads);
void ptl_schedule_place(struct ptl_schedule *s, struct ptl_block block, int64_t cost);

/* The next tasks [*begin, *end), or 0 when none is left. Task t is head t % n_heads of block
 * t / n_heads. */
int ptl_schedule_draw(struct ptl_schedule *s, int64_t *begin, int64_t *end);

/* Likewise, for a worker that is still busy and wants to know what comes next. 0 when what is left
 * is little enough to be shared out by who is idle. */
int ptl_schedule_draw_early(struct ptl_schedule *s, int64_t *begin, int64_t *end);

#endif
