/* The calls of sparse and full attention: check, run under the context's lock, log. */
#include <math.h>
#include <string.h>

#include "../core/message.h"
#include "check.h"
#include "nsa_check.h"
#include "verbose.h"

int64_t ptl_nsa_compressed_length(int64_t s, int64_t block, int64_t stride) {
    return s < block ? 0 : (s - block) / stride + 1;
}

void ptl_nsa_params_init(struct ptl_nsa_params *params) {
    if (!params) return;
    memset(params, 0, sizeof *params);
    params->struct_size = sizeof *params;
    params->block = 32;
    params->stride = 16;
    params->select_block = 64;
    params->topk = 16;
    params->n_init = 1;
    params->n_local = 2;
    params->window = 512;
    params->scale = NAN;
    params->score_dtype = PTL_F32;
}

void ptl_attention_params_init(struct ptl_attention_params *params) {
    if (!params) return;
    memset(params, 0, sizeof *params);
    params->struct_size = sizeof *params;
    params->scale = NAN;
}

void ptl_nsa_compress_params_init(struct ptl_nsa_compress_params *params) {
    if (!params) return;
    memset(params, 0, sizeof *params);
    params->struct_size = sizeof *params;
    params->block = 32;
    params->stride = 16;
}

void ptl_nsa_append_params_init(struct ptl_nsa_append_params *params) {
    if (!params) return;
    memset(params, 0, sizeof *params);
    params->struct_size = sizeof *params;
    params->block = 32;
    params->stride = 16;
}

static enum ptl_status report(const struct ptl_context *ctx, enum ptl_status status) {
    if (status == PTL_ERR_NOMEM)
        ptl_fail(status, "scratch: no memory for %d threads", ctx->executor.n_threads);
    return status;
}

typedef enum ptl_status check_fn(const struct ptl_nsa_params *, struct ptl_nsa_problem *);
typedef enum ptl_status run_fn(struct ptl_context *, const struct ptl_nsa_problem *);

static enum ptl_status no_context(void) {
    return ptl_fail(PTL_ERR_NULL, "ctx: NULL, expected a context");
}

static enum ptl_status call(const char *op, struct ptl_context *ctx,
                            const struct ptl_nsa_params *params, check_fn *check, run_fn *run) {
    struct ptl_nsa_problem problem;
    if (!ctx) return no_context();
    enum ptl_status status = check(params, &problem);
    if (status != PTL_OK) return status;
    pthread_mutex_lock(&ctx->lock);
    const double begin = ptl_verbose_begin();
    status = run(ctx, &problem);
    ptl_verbose_nsa(op, ctx, params, &problem, begin);
    pthread_mutex_unlock(&ctx->lock);
    return report(ctx, status);
}

enum ptl_status ptl_nsa_compressed_attention(struct ptl_context *ctx,
                                             const struct ptl_nsa_params *params) {
    return call("nsa_compressed_attention", ctx, params, ptl_nsa_check_compressed, ptl_nsa_run);
}

enum ptl_status ptl_nsa_select(struct ptl_context *ctx, const struct ptl_nsa_params *params) {
    return call("nsa_select", ctx, params, ptl_nsa_check_select, ptl_nsa_run_select);
}

enum ptl_status ptl_nsa_attend(struct ptl_context *ctx, const struct ptl_nsa_params *params) {
    return call("nsa_attend", ctx, params, ptl_nsa_check_attend, ptl_nsa_run);
}

enum ptl_status ptl_nsa_combine(struct ptl_context *ctx, const struct ptl_nsa_params *params) {
    return call("nsa_combine", ctx, params, ptl_nsa_check_combine, ptl_nsa_run_combine);
}

enum ptl_status ptl_attention_forward(struct ptl_context *ctx,
                                      const struct ptl_attention_params *params) {
    struct ptl_nsa_problem problem;
    if (!ctx) return no_context();
    enum ptl_status status = ptl_attention_check(params, &problem);
    if (status != PTL_OK) return status;
    struct ptl_nsa_params options; /* what the line says of them */
    ptl_nsa_params_init(&options);
    options.scale = params->scale;
    options.window = params->window;
    pthread_mutex_lock(&ctx->lock);
    const double begin = ptl_verbose_begin();
    status = ptl_nsa_run(ctx, &problem);
    ptl_verbose_nsa("attention", ctx, &options, &problem, begin);
    pthread_mutex_unlock(&ctx->lock);
    return report(ctx, status);
}

/* ---- The whole operator ---------------------------------------------------------------------- */

/* Means over the blocks of k and of v. */
struct mean {
    struct ptl_nsa_compression keys, values;
};

/* Makes room for them in the context; they become the problem's compressed keys and values. */
static enum ptl_status plan_mean(struct ptl_context *ctx, struct ptl_nsa_problem *p,
                                 struct mean *mean) {
    const int64_t bytes = (int64_t)ptl_dtype_bytes(p->dtype), heads = p->n_k_heads;
    struct ptl_nsa_compression *c = &mean->keys;
    *c = (struct ptl_nsa_compression){.dtype = p->dtype,
                                      .n_seqs = p->n_seqs,
                                      .n_heads = heads,
                                      .block = p->block,
                                      .stride = p->stride,
                                      .dim = p->dqk,
                                      .lens = p->lens_k,
                                      .dense_len = p->dense_len_k,
                                      .from = p->slc,
                                      .packed = true};
    int64_t n = 0;
    for (int64_t b = 0; b < p->n_seqs; b++) n += ptl_nsa_blocks(c, b);

    struct ptl_pieces m = {NULL, 0};
    int64_t *offsets = NULL;
    for (int pass = 0; pass < 2; pass++) {
        offsets = ptl_take(&m, (size_t)(p->n_seqs + 1) * sizeof *offsets);
        p->cmp.k = (struct ptl_rows){NULL, bytes, 0, heads * p->dqk, p->dqk};
        p->cmp.v = (struct ptl_rows){NULL, bytes, 0, heads * p->dv, p->dv};
        p->cmp.k.data = ptl_take(&m, (size_t)(n * heads * p->dqk * bytes));
        p->cmp.v.data = ptl_take(&m, (size_t)(n * heads * p->dv * bytes));
        if (pass == 1) break;
        m = (struct ptl_pieces){ptl_arena_reserve(&ctx->between, m.used), 0};
        if (!m.base) return PTL_ERR_NOMEM;
    }
    offsets[0] = 0;
    for (int64_t b = 0; b < p->n_seqs; b++) offsets[b + 1] = offsets[b] + ptl_nsa_blocks(c, b);
    p->cmp.offsets = (struct ptl_index){offsets, true, 1};
    c->to.k = p->cmp.k;
    mean->values = *c;
    mean->values.from.k = p->slc.v;
    mean->values.to.k = p->cmp.v;
    mean->values.dim = p->dv;
    return PTL_OK;
}

/* Everything that a forward call consists of, in order: append, compress, attend. */
static enum ptl_status run_all(struct ptl_context *ctx, const struct ptl_nsa_compression *append,
                               struct ptl_nsa_problem *p, bool compresses) {
    struct mean mean;
    if (compresses) TRY(plan_mean(ctx, p, &mean));
    const struct ptl_nsa_compression *step[4] = {
        append ? &append[0] : NULL, append ? &append[1] : NULL, compresses ? &mean.keys : NULL,
        compresses ? &mean.values : NULL};
    /* All memory first: what fails has written nothing. */
    for (int i = 0; i < 4; i++)
        if (step[i]) TRY(ptl_nsa_reserve_compression(ctx, step[i]));
    TRY(ptl_nsa_reserve(ctx, p));
    for (int i = 0; i < 4; i++)
        if (step[i]) TRY(ptl_nsa_run_compression(ctx, step[i]));
    return ptl_nsa_run(ctx, p);
}

enum ptl_status ptl_nsa_forward(struct ptl_context *ctx, const struct ptl_nsa_params *params) {
    struct ptl_nsa_problem problem;
    bool compresses;
    if (!ctx) return no_context();
    enum ptl_status status = ptl_nsa_check_forward(params, &problem, &compresses);
    if (status != PTL_OK) return status;
    pthread_mutex_lock(&ctx->lock);
    const double begin = ptl_verbose_begin();
    status = run_all(ctx, NULL, &problem, compresses);
    ptl_verbose_nsa("nsa_forward", ctx, params, &problem, begin);
    pthread_mutex_unlock(&ctx->lock);
    return report(ctx, status);
}

/* ---- Compression ----------------------------------------------------------------------------- */

enum ptl_status ptl_nsa_compress(struct ptl_context *ctx,
                                 const struct ptl_nsa_compress_params *params) {
    struct ptl_nsa_compression c;
    if (!ctx) return no_context();
    enum ptl_status status = ptl_nsa_check_compress(params, &c);
    if (status != PTL_OK) return status;
    pthread_mutex_lock(&ctx->lock);
    const double begin = ptl_verbose_begin();
    status = ptl_nsa_run_compression(ctx, &c);
    ptl_verbose_compression("nsa_compress", ctx, &c, begin);
    pthread_mutex_unlock(&ctx->lock);
    if (status != PTL_OK) return report(ctx, status);
    const struct ptl_tensor *y = &params->seq_offsets_y;
    int64_t at = 0;
    for (int64_t b = 0; ptl_given(y) && b <= c.n_seqs; b++) {
        if (y->dtype == PTL_I64) ((int64_t *)y->data)[b] = at;
        else ((int32_t *)y->data)[b] = (int32_t)at;
        if (b < c.n_seqs) at += ptl_nsa_blocks(&c, b);
    }
    return PTL_OK;
}

enum ptl_status ptl_nsa_append(struct ptl_context *ctx,
                               const struct ptl_nsa_append_params *params) {
    struct ptl_nsa_compression side[2]; /* keys, values */
    if (!ctx) return no_context();
    enum ptl_status status = ptl_nsa_check_append(params, &side[0], &side[1]);
    if (status != PTL_OK) return status;
    pthread_mutex_lock(&ctx->lock);
    const double begin = ptl_verbose_begin();
    for (int i = 0; i < 2 && status == PTL_OK; i++)
        status = ptl_nsa_reserve_compression(ctx, &side[i]);
    for (int i = 0; i < 2 && status == PTL_OK; i++) status = ptl_nsa_run_compression(ctx, &side[i]);
    ptl_verbose_compression("nsa_append", ctx, &side[side[0].n_seqs == 0], begin);
    pthread_mutex_unlock(&ctx->lock);
    return report(ctx, status);
}

enum ptl_status ptl_nsa_decode(struct ptl_context *ctx, const struct ptl_nsa_append_params *append,
                               const struct ptl_nsa_params *params) {
    struct ptl_nsa_compression side[2]; /* keys, values */
    struct ptl_nsa_problem problem;
    bool compresses;
    if (!ctx) return no_context();
    enum ptl_status status = ptl_nsa_check_append(append, &side[0], &side[1]);
    if (status == PTL_OK) status = ptl_nsa_check_forward(params, &problem, &compresses);
    if (status == PTL_OK) status = ptl_nsa_check_step(append, params);
    if (status != PTL_OK) return status;
    pthread_mutex_lock(&ctx->lock);
    const double begin = ptl_verbose_begin();
    status = run_all(ctx, side, &problem, compresses);
    ptl_verbose_nsa("nsa_decode", ctx, params, &problem, begin);
    pthread_mutex_unlock(&ctx->lock);
    return report(ctx, status);
}
