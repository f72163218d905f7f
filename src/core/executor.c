/* The three executors. The pool is pool.c. */
#include "executor.h"

#include "pool.h"

enum ptl_status ptl_executor_open(struct ptl_executor *executor) {
    executor->pool = NULL;
    if (executor->kind != PTL_EXEC_POOL) return PTL_OK;
    return ptl_pool_create(&executor->pool);
}

void ptl_executor_close(struct ptl_executor *executor) {
    ptl_pool_destroy(executor->pool);
    executor->pool = NULL;
}

struct host_job {
    ptl_worker_fn fn;
    void *job;
};

static void run_range(void *arg, int64_t begin, int64_t end) {
    struct host_job *h = arg;
    for (int64_t slot = begin; slot < end; slot++) h->fn(h->job, (int)slot);
}

void ptl_executor_run(struct ptl_executor *executor, int n_workers, ptl_worker_fn fn, void *job) {
    if (n_workers > executor->n_threads) n_workers = executor->n_threads;
    if (n_workers > 1 && executor->kind == PTL_EXEC_HOST) {
        struct host_job h = {fn, job};
        executor->parallel_for(executor->host, n_workers, run_range, &h);
    } else if (n_workers > 1 && executor->kind == PTL_EXEC_POOL) {
        ptl_pool_run(executor->pool, n_workers, fn, job);
    } else {
        fn(job, 0);
    }
}
