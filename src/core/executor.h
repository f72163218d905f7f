/* Runs one function on several threads: serially, on the context's own pool, or through the host's
 * parallel_for. It knows nothing of what runs; workers share out the work among themselves. */
#ifndef PTL_EXECUTOR_H
#define PTL_EXECUTOR_H

#include <pantile/base.h>

/* One worker: draws work until there is none. slot is 0..n_workers-1, no two at a time alike. */
typedef void (*ptl_worker_fn)(void *job, int slot);

struct ptl_pool;

struct ptl_executor {
    enum ptl_executor_kind kind; /* never AUTO */
    int n_threads;
    ptl_parallel_for_fn parallel_for;
    void *host;
    struct ptl_pool *pool; /* POOL only; its threads start at the first run that needs them */
};

enum ptl_status ptl_executor_open(struct ptl_executor *executor);
void ptl_executor_close(struct ptl_executor *executor);

/* Calls fn(job, slot) on up to n_workers threads and returns when all calls have returned. Not
 * every slot need run: a worker that comes when the work is done may be left out, slot 0 never. */
void ptl_executor_run(struct ptl_executor *executor, int n_workers, ptl_worker_fn fn, void *job);

#endif
