/* Longest-first order by counting sort, and bunches of small tasks. */
#include "schedule.h"

#include <string.h>

enum { BUNCH = PTL_WORTH_A_THREAD, MAX_GRAIN = 256 };

/* The leading bits of the cost as a float: monotonic, four buckets an octave. */
static int bucket_of(int64_t cost) {
    float x = (float)(cost < 1 ? 1 : cost);
    uint32_t bits;
    memcpy(&bits, &x, 4);
    return (int)(bits >> 21) - 127 * 4;
}

void ptl_schedule_begin(struct ptl_schedule *s, int64_t n_heads) {
    memset(s->count, 0, sizeof s->count); /* the other arrays are set where they are used */
    s->n_heads = n_heads;
    s->n_tasks = 0;
    s->total_cost = 0.0;
    atomic_init(&s->drawn, 0);
    s->first = PTL_SCHEDULE_BUCKETS;
    s->last = -1;
}

void ptl_schedule_count(struct ptl_schedule *s, int64_t cost) {
    const int b = bucket_of(cost);
    s->count[b]++;
    s->n_tasks += s->n_heads;
    s->total_cost += (double)cost * (double)s->n_heads;
    if (b < s->first) s->first = b;
    if (b > s->last) s->last = b;
}

int64_t ptl_schedule_n_blocks(const struct ptl_schedule *s) {
    return s->n_tasks / s->n_heads;
}

int ptl_schedule_workers(const struct ptl_schedule *s, int n_threads) {
    double n = s->total_cost / BUNCH;
    if (n > (double)s->n_tasks) n = (double)s->n_tasks;
    return n >= n_threads ? n_threads : n < 1 ? 1 : (int)n;
}

void ptl_schedule_order(struct ptl_schedule *s, struct ptl_block *blocks, int n_threads) {
    s->blocks = blocks;
    int64_t at = 0, chunk = 0;
    for (int b = s->last; b >= s->first; b--) {
        s->next[b] = at;
        at += s->count[b];
        const int64_t n = s->count[b] * s->n_heads;
        const double cost = (double)((int64_t)1 << b / 4); /* the octave's lower end */
        int64_t grain = cost >= BUNCH ? 1 : (int64_t)(BUNCH / cost);
        if (grain > MAX_GRAIN) grain = MAX_GRAIN;
        if (grain > n / (4 * n_threads)) grain = n / (4 * n_threads);
        s->grain[b] = grain < 1 ? 1 : grain;
        s->first_chunk[b] = chunk;
        chunk += (n + s->grain[b] - 1) / s->grain[b];
    }
    s->n_chunks = chunk;
    s->last_chunks = 2 * n_threads;
}

void ptl_schedule_place(struct ptl_schedule *s, struct ptl_block block, int64_t cost) {
    s->blocks[s->next[bucket_of(cost)]++] = block;
}

int ptl_schedule_draw(struct ptl_schedule *s, int64_t *begin, int64_t *end) {
    const int64_t chunk = atomic_fetch_add_explicit(&s->drawn, 1, memory_order_relaxed);
    int64_t done = 0; /* tasks of the dearer buckets */
    for (int b = s->last; b >= s->first; b--) {
        const int64_t n = s->count[b] * s->n_heads;
        const int64_t from = (chunk - s->first_chunk[b]) * s->grain[b];
        if (from < n) {
            *begin = done + from;
            *end = done + (from + s->grain[b] < n ? from + s->grain[b] : n);
            return 1;
        }
        done += n;
    }
    return 0;
}

int ptl_schedule_draw_early(struct ptl_schedule *s, int64_t *begin, int64_t *end) {
    const int64_t drawn = atomic_load_explicit(&s->drawn, memory_order_relaxed);
    return drawn + s->last_chunks < s->n_chunks && ptl_schedule_draw(s, begin, end);
}
