/* The HSTU calls: check, run under the context's lock, log. */
#include <math.h>
#include <string.h>

#include "../core/message.h"
#include "hstu_check.h"
#include "verbose.h"

void ptl_hstu_params_init(struct ptl_hstu_params *params) {
    if (!params) return;
    memset(params, 0, sizeof *params);
    params->struct_size = sizeof *params;
    params->max_seqlen_q = params->max_seqlen_k = -1;
    params->alpha = 1.0f;
    params->bias_scale = NAN;
    params->window_left = -1;
    params->window_right = 0;
    params->target_group_size = 1;
}

void ptl_hstu_grads_init(struct ptl_hstu_grads *grads) {
    if (!grads) return;
    memset(grads, 0, sizeof *grads);
    grads->struct_size = sizeof *grads;
}

static enum ptl_status report(const struct ptl_context *ctx, enum ptl_status status) {
    if (status == PTL_ERR_NOMEM)
        ptl_fail(status, "scratch: no memory for %d threads", ctx->executor.n_threads);
    return status;
}

enum ptl_status ptl_hstu_forward(struct ptl_context *ctx, const struct ptl_hstu_params *params) {
    struct ptl_hstu_problem problem;
    if (!ctx) return ptl_fail(PTL_ERR_NULL, "ctx: NULL, expected a context");
    enum ptl_status status = ptl_hstu_check_forward(params, &problem);
    if (status != PTL_OK) return status;
    pthread_mutex_lock(&ctx->lock);
    const double begin = ptl_verbose_begin();
    status = ptl_hstu_run_forward(ctx, &problem);
    ptl_verbose_hstu("hstu", ctx, params, &problem, NULL, begin);
    pthread_mutex_unlock(&ctx->lock);
    return report(ctx, status);
}

enum ptl_status ptl_hstu_backward(struct ptl_context *ctx, const struct ptl_hstu_params *params,
                                  const struct ptl_hstu_grads *grads) {
    struct ptl_hstu_problem problem;
    struct ptl_hstu_gradients gradients;
    if (!ctx) return ptl_fail(PTL_ERR_NULL, "ctx: NULL, expected a context");
    enum ptl_status status = ptl_hstu_check_backward(params, grads, &problem, &gradients);
    if (status != PTL_OK) return status;
    pthread_mutex_lock(&ctx->lock);
    const double begin = ptl_verbose_begin();
    status = ptl_hstu_run_backward(ctx, &problem, &gradients);
    ptl_verbose_hstu("hstu_backward", ctx, params, &problem, &gradients, begin);
    pthread_mutex_unlock(&ctx->lock);
    return report(ctx, status);
}
