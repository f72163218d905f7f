/* Runs calls: contexts as they ask for, single calls, and the parallel_for behind executor=host,
 * the simplest that a host could bring. It times nothing. */
#ifndef PTL_RUNNER_H
#define PTL_RUNNER_H

#include "call.h"
#include "words.h"

/* The context that the problem's isa, executor and threads ask for; to be destroyed. */
bool open_context(const struct problem *p, struct ptl_context **ctx, struct refusal *r);

/* Calls the operator once. */
bool call_operator(struct ptl_context *ctx, const struct call *c, struct refusal *r);

/* The same in a context of its own, and what ran. */
bool run_call(const struct call *c, struct ptl_context_info *info, struct refusal *r);

/* Each of 0..n-1 on a thread of its own for the time of the call; the caller takes the last.
 * host is not used. */
void host_parallel_for(void *host, int64_t n, ptl_range_fn fn, void *arg);

/* "pool" */
const char *executor_name(enum ptl_executor_kind kind);

#endif
