/* Contexts: options checked, level and executor chosen, arenas owned. */
#include "../core/context.h"

#include <stdlib.h>
#include <string.h>

#include "../core/cpu.h"
#include "../core/message.h"

#define STRING_(x) #x
#define STRING(x) STRING_(x)

const char *ptl_version(void) {
    return STRING(PTL_VERSION_MAJOR) "." STRING(PTL_VERSION_MINOR) "." STRING(PTL_VERSION_PATCH);
}

void ptl_context_options_init(struct ptl_context_options *options) {
    if (!options) return;
    memset(options, 0, sizeof *options);
    options->struct_size = sizeof *options;
}

static enum ptl_status check_options(const struct ptl_context_options *o) {
    if (o->struct_size != sizeof *o)
        return ptl_fail(PTL_ERR_PARAM,
                        "options.struct_size: %zu, expected %zu; use ptl_context_options_init",
                        o->struct_size, sizeof *o);
    if (o->executor < PTL_EXEC_AUTO || o->executor > PTL_EXEC_HOST)
        return ptl_fail(PTL_ERR_PARAM, "options.executor: %d, expected 0 to 3", (int)o->executor);
    if (o->num_threads < 0 || o->num_threads > 1024)
        return ptl_fail(PTL_ERR_PARAM, "options.num_threads: %d, expected 0 to 1024",
                        (int)o->num_threads);
    if (o->executor == PTL_EXEC_HOST && !o->parallel_for)
        return ptl_fail(PTL_ERR_NULL, "options.parallel_for: missing, PTL_EXEC_HOST needs it");
    if (!ptl_isa_name(o->isa))
        return ptl_fail(PTL_ERR_PARAM, "options.isa: %d, expected 0 to 5", (int)o->isa);
    return PTL_OK;
}

enum ptl_status ptl_context_create(struct ptl_context **ctx,
                                   const struct ptl_context_options *options) {
    if (!ctx) return ptl_fail(PTL_ERR_NULL, "ctx: NULL, expected where to store the context");
    *ctx = NULL;
    struct ptl_context_options o;
    ptl_context_options_init(&o);
    if (options) {
        enum ptl_status status = check_options(options);
        if (status != PTL_OK) return status;
        o = *options;
    }

    int n_threads = o.num_threads;
    if (o.executor == PTL_EXEC_SERIAL) {
        n_threads = 1;
    } else if (n_threads == 0) {
        enum ptl_status status = ptl_cpu_default_threads(&n_threads);
        if (status != PTL_OK) return status;
    }
    enum ptl_isa isa = o.isa;
    if (isa == PTL_ISA_AUTO) {
        enum ptl_status status = ptl_cpu_best(&isa);
        if (status != PTL_OK) return status;
    } else if (!ptl_isa_available(isa)) {
        return ptl_fail(PTL_ERR_PARAM, "options.isa: %s, which this CPU lacks or PTL_CPU excludes",
                        ptl_isa_name(isa));
    }

    struct ptl_context *c = calloc(1, sizeof *c);
    if (!c) return ptl_fail(PTL_ERR_NOMEM, "context: no memory");
    c->isa = isa;
    c->kernels = ptl_cpu_kernels(isa);
    c->executor.kind = o.executor;
    if (o.executor == PTL_EXEC_AUTO)
        c->executor.kind = n_threads > 1 ? PTL_EXEC_POOL : PTL_EXEC_SERIAL;
    c->executor.n_threads = n_threads;
    c->executor.parallel_for = o.parallel_for;
    c->executor.host = o.host;
    enum ptl_status status = ptl_executor_open(&c->executor);
    if (status != PTL_OK) {
        free(c);
        return status;
    }
    pthread_mutex_init(&c->lock, NULL);
    *ctx = c;
    return PTL_OK;
}

void ptl_context_destroy(struct ptl_context *ctx) {
    if (!ctx) return;
    ptl_executor_close(&ctx->executor);
    pthread_mutex_destroy(&ctx->lock);
    free(ctx->plan.data);
    free(ctx->scratch.data);
    free(ctx->between.data);
    free(ctx);
}

enum ptl_status ptl_context_get_info(struct ptl_context *ctx, struct ptl_context_info *info) {
    if (!ctx) return ptl_fail(PTL_ERR_NULL, "ctx: NULL, expected a context");
    if (!info) return ptl_fail(PTL_ERR_NULL, "info: NULL, expected where to store it");
    if (info->struct_size != sizeof *info)
        return ptl_fail(PTL_ERR_PARAM, "info.struct_size: %zu, expected %zu", info->struct_size,
                        sizeof *info);
    pthread_mutex_lock(&ctx->lock);
    info->executor = ctx->executor.kind;
    info->isa = ctx->isa;
    info->num_threads = ctx->executor.n_threads;
    info->scratch_bytes = ctx->plan.bytes + ctx->scratch.bytes + ctx->between.bytes;
    pthread_mutex_unlock(&ctx->lock);
    return PTL_OK;
}

void *ptl_arena_reserve(struct ptl_arena *arena, size_t bytes) {
    if (bytes <= arena->bytes && arena->data) return arena->data;
    if (bytes > SIZE_MAX - 4096) return NULL;
    bytes = (bytes + 4095) / 4096 * 4096 + (bytes == 0 ? 4096 : 0);
    free(arena->data);
    arena->bytes = 0;
    arena->data = aligned_alloc(64, bytes);
    if (arena->data) arena->bytes = bytes;
    return arena->data;
}
