/* The context: which kernels, which threads, whose scratch memory. */
#ifndef PTL_CONTEXT_H
#define PTL_CONTEXT_H

#include <pthread.h>

#include "../kernels/kernels.h"
#include "executor.h"

/* Memory that grows to the largest request and is reused by later calls. */
struct ptl_arena {
    void *data;
    size_t bytes;
};

struct ptl_context {
    pthread_mutex_t lock; /* held through each call */
    const struct ptl_kernels *kernels;
    enum ptl_isa isa;
    struct ptl_executor executor;
    struct ptl_arena plan;    /* task lists: one call, all threads read */
    struct ptl_arena scratch; /* n_workers equal parts, one a slot */
    struct ptl_arena between; /* arrays from one operator to the next, in calls that run several */
};

/* At least `bytes` bytes, 64-byte aligned, contents undefined; NULL when there is no memory. */
void *ptl_arena_reserve(struct ptl_arena *arena, size_t bytes);

/* Memory given out piece by piece, each 64-byte aligned; without a base only counted. */
struct ptl_pieces {
    char *base;
    size_t used;
};

static inline void *ptl_take(struct ptl_pieces *m, size_t bytes) {
    void *p = m->base ? m->base + m->used : NULL;
    m->used += (bytes + 63) / 64 * 64;
    return p;
}

#endif
