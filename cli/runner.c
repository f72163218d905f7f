/* Contexts for problems, and a parallel_for of plain pthreads. */
#include "runner.h"

#include <pthread.h>
#include <stdlib.h>

struct range {
    ptl_range_fn fn;
    void *arg;
    int64_t begin, end;
    pthread_t thread;
};

static void *run_range(void *arg) {
    struct range *range = arg;
    range->fn(range->arg, range->begin, range->end);
    return NULL;
}

void host_parallel_for(void *host, int64_t n, ptl_range_fn fn, void *arg) {
    struct range *ranges = n > 1 ? calloc((size_t)n, sizeof *ranges) : NULL;
    int64_t started = 0;
    (void)host;
    for (; ranges && started < n - 1; started++) {
        struct range *range = &ranges[started];
        *range = (struct range){.fn = fn, .arg = arg, .begin = started, .end = started + 1};
        if (pthread_create(&range->thread, NULL, run_range, range) != 0) break;
    }
    fn(arg, started, n); /* what found no thread, too */
    for (int64_t i = 0; i < started; i++) pthread_join(ranges[i].thread, NULL);
    free(ranges);
}

bool open_context(const struct problem *p, struct ptl_context **ctx, struct refusal *r) {
    struct ptl_context_options options;
    ptl_context_options_init(&options);
    options.num_threads = p->threads;
    options.isa = p->isa;
    options.executor = p->executor;
    if (p->executor == PTL_EXEC_HOST) options.parallel_for = host_parallel_for;
    if (ptl_context_create(ctx, &options) == PTL_OK) return true;
    return refuse(r, "%s", ptl_message());
}

bool call_operator(struct ptl_context *ctx, const struct call *c, struct refusal *r) {
    if (c->op->run(ctx, c) == PTL_OK) return true;
    return refuse(r, "%s", ptl_message());
}

bool run_call(const struct call *c, struct ptl_context_info *info, struct refusal *r) {
    struct ptl_context *ctx;
    if (!open_context(&c->problem, &ctx, r)) return false;
    const bool ok = call_operator(ctx, c, r);
    info->struct_size = sizeof *info;
    ptl_context_get_info(ctx, info);
    ptl_context_destroy(ctx);
    return ok;
}

const char *executor_name(enum ptl_executor_kind kind) {
    switch (kind) {
    case PTL_EXEC_AUTO: return "auto";
    case PTL_EXEC_SERIAL: return "serial";
    case PTL_EXEC_POOL: return "pool";
    case PTL_EXEC_HOST: return "host";
    }
    return "unknown";
}
