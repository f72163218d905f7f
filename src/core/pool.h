/* The built-in thread pool: short spin, then park; usable again in a forked child. */
#ifndef PTL_POOL_H
#define PTL_POOL_H

#include "executor.h"

enum ptl_status ptl_pool_create(struct ptl_pool **pool);
void ptl_pool_destroy(struct ptl_pool *pool); /* NULL is allowed */

/* As ptl_executor_run; n_workers >= 2. If threads cannot be started the others do the work. */
void ptl_pool_run(struct ptl_pool *pool, int n_workers, ptl_worker_fn fn, void *job);

#endif
