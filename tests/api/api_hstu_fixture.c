/* Building and calling the fixture of api_hstu_fixture.h. */
#include "api_hstu_fixture.h"

#include <string.h>

static void init(struct api_hstu *x) {
    memset(x, 0, sizeof *x);
    ptl_hstu_params_init(&x->p);
    x->p.scaling_seqlen = 8;
    for (int i = 0; i < 128; i++) x->q[i] = x->k[i] = x->v[i] = 0.25f;
    for (int i = 0; i < 16; i++) x->scale[i] = 0.125f;
    for (int i = 0; i < 8; i++) x->narrow[i] = i < 2 ? 3 * i : 5; /* offsets 0, 3, 5, 5, ... */
}

struct ptl_tensor api_index(int64_t *data, int64_t n) {
    return ptl_tensor_contiguous(data, PTL_I64, 1, &n);
}

struct ptl_tensor api_number(int64_t *data) {
    return ptl_tensor_contiguous(data, PTL_I64, 0, NULL);
}

void api_hstu_jagged(struct api_hstu *x) {
    init(x);
    x->p.q = ptl_tensor_contiguous(x->q, PTL_F32, 3, (const int64_t[]){5, 4, 3});
    x->p.k = ptl_tensor_contiguous(x->k, PTL_F32, 3, (const int64_t[]){5, 2, 3});
    x->p.v = ptl_tensor_contiguous(x->v, PTL_F32, 3, (const int64_t[]){5, 2, 5});
    x->p.out = ptl_tensor_contiguous(x->out, PTL_F32, 3, (const int64_t[]){5, 4, 5});
    x->offsets_q[1] = 3;
    x->offsets_q[2] = 5;
    x->p.seq_offsets_q = api_index(x->offsets_q, 3);
}

void api_hstu_dense(struct api_hstu *x) {
    init(x);
    x->p.q = ptl_tensor_contiguous(x->q, PTL_F32, 4, (const int64_t[]){2, 3, 4, 3});
    x->p.k = ptl_tensor_contiguous(x->k, PTL_F32, 4, (const int64_t[]){2, 3, 2, 3});
    x->p.v = ptl_tensor_contiguous(x->v, PTL_F32, 4, (const int64_t[]){2, 3, 2, 5});
    x->p.out = ptl_tensor_contiguous(x->out, PTL_F32, 4, (const int64_t[]){2, 3, 4, 5});
}

void api_give_offsets_k(struct api_hstu *x) {
    x->offsets_k[0] = 0;
    x->offsets_k[1] = 3;
    x->offsets_k[2] = 5;
    x->p.seq_offsets_k = api_index(x->offsets_k, 3);
}

void api_give_used(struct api_hstu *x, int64_t q0, int64_t q1, int64_t k0, int64_t k1) {
    x->used_q[0] = q0;
    x->used_q[1] = q1;
    x->used_k[0] = k0;
    x->used_k[1] = k1;
    x->p.seqused_q = api_index(x->used_q, 2);
    x->p.seqused_k = api_index(x->used_k, 2);
}

void api_give_contexts(struct api_hstu *x, int64_t c0, int64_t c1) {
    x->contexts[0] = c0;
    x->contexts[1] = c1;
    x->p.num_contexts = api_index(x->contexts, 2);
}

void api_give_targets(struct api_hstu *x, int64_t t0, int64_t t1) {
    x->targets[0] = t0;
    x->targets[1] = t1;
    x->p.num_targets = api_index(x->targets, 2);
}

void api_give_mask(struct api_hstu *x, int64_t batch, int64_t heads, int64_t rows,
                   int64_t columns) {
    x->p.mask =
        ptl_tensor_contiguous(x->mask, PTL_U8, 4, (const int64_t[]){batch, heads, rows, columns});
}

void api_give_scale(struct api_hstu *x) {
    const bool dense = x->p.q.ndim == 4;
    const int64_t shape[2] = {2, dense ? 3 : 5};
    x->p.scaling_seqlen = 0;
    x->p.attn_scale = ptl_tensor_contiguous(x->scale, PTL_F32, dense ? 2 : 1, shape + !dense);
}

static enum ptl_status call(const struct ptl_hstu_params *p) {
    static struct ptl_context *ctx; /* one for all: refusals leave nothing behind in it */
    if (!ctx && ptl_context_create(&ctx, NULL) != PTL_OK) {
        FAIL("ptl_context_create: %s", ptl_message());
        return PTL_OK;
    }
    return ptl_hstu_forward(ctx, p);
}

void api_refused(struct api_hstu *x, enum ptl_status status, const char *message) {
    test_case("%s", message);
    memset(x->out, 0xa5, sizeof x->out);
    const struct api_hstu before = *x;
    const enum ptl_status got = call(&x->p);
    if (got != status) FAIL("%s, expected %s", ptl_status_name(got), ptl_status_name(status));
    if (got != PTL_OK && strcmp(ptl_message(), message) != 0) FAIL("it says '%s'", ptl_message());
    if (memcmp(&before, x, sizeof before) != 0) FAIL("something was written");
}

void api_accepted(struct api_hstu *x) {
    const enum ptl_status got = call(&x->p);
    if (got != PTL_OK) FAIL("%s: %s", ptl_status_name(got), ptl_message());
}
