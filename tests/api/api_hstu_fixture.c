/* Building and calling the fixture of api_hstu_fixture.h. */
#include "api_hstu_fixture.h"

#include <string.h>

static void init(struct api_hstu *x) {
    memset(x, 0, sizeof *x);
    ptl_hstu_params_init(&x->p);
    ptl_hstu_grads_init(&x->g);
    x->p.scaling_seqlen = 8;
    for (int i = 0; i < 128; i++)
        x->q[i] = x->k[i] = x->v[i] = x->k_pages[i] = x->v_pages[i] = 0.25f;
    for (int i = 0; i < 256; i++) x->dout[i] = 0.5f;
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

void api_hstu_paged(struct api_hstu *x) {
    static const int64_t offsets[3] = {0, 2, 3}, ids[3] = {4, 0, 5}, last[2] = {1, 2};
    const int64_t shape[4] = {6, 2, 2, 3};
    api_hstu_jagged(x);
    x->p.v = ptl_tensor_contiguous(x->v, PTL_F32, 3, (const int64_t[]){5, 2, 3});
    x->p.out = ptl_tensor_contiguous(x->out, PTL_F32, 3, (const int64_t[]){5, 4, 3});
    x->p.k_pages = ptl_tensor_contiguous(x->k_pages, PTL_F32, 4, shape);
    x->p.v_pages = ptl_tensor_contiguous(x->v_pages, PTL_F32, 4, shape);
    memcpy(x->page_offsets, offsets, sizeof offsets);
    memcpy(x->page_ids, ids, sizeof ids);
    memcpy(x->last_page_lens, last, sizeof last);
    x->p.page_offsets = api_index(x->page_offsets, 3);
    x->p.page_ids = api_index(x->page_ids, 3);
    x->p.last_page_lens = api_index(x->last_page_lens, 2);
    api_give_targets(x, 1, 1);
}

void api_hstu_backward(struct api_hstu *x, bool dense) {
    (dense ? api_hstu_dense : api_hstu_jagged)(x);
    x->backward = true;
    x->g.dout = x->p.out;
    x->g.dout.data = x->dout;
    x->g.dq = x->p.q;
    x->g.dq.data = x->dq;
    x->g.dk = x->p.k;
    x->g.dk.data = x->dk;
    x->g.dv = x->p.v;
    x->g.dv.data = x->dv;
    x->g.ds = ptl_tensor_contiguous(x->ds, PTL_F32, dense ? 2 : 1, (const int64_t[]){2, 3});
    if (!dense) x->g.ds.shape[0] = 5;
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

void api_give_bias(struct api_hstu *x, int64_t batch, int64_t heads, int64_t rows,
                   int64_t columns) {
    x->p.attn_bias =
        ptl_tensor_contiguous(x->bias, PTL_F32, 4, (const int64_t[]){batch, heads, rows, columns});
    x->g.dbias = x->p.attn_bias;
    x->g.dbias.data = x->backward ? x->dbias : NULL;
}

void api_give_pos_table(struct api_hstu *x) {
    x->p.pos_table = ptl_tensor_contiguous(x->pos_table, PTL_F32, 1, (const int64_t[]){7});
    x->g.dpos_table = x->p.pos_table;
    x->g.dpos_table.data = x->backward ? x->dpos_table : NULL;
}

void api_give_time_table(struct api_hstu *x) {
    const bool by_row = x->p.q.ndim == 3 && !x->p.k_pages.data;
    const int64_t shape[2] = {2, x->p.k_pages.data ? 4 : 3}, rows = 5;
    for (int i = 0; i < 8; i++) x->thresholds[i] = i * i;
    for (int i = 0; i < 16; i++) x->stamps[i] = 10 * i;
    x->p.time_table = ptl_tensor_contiguous(x->time_table, PTL_F32, 1, (const int64_t[]){5});
    x->p.time_thresholds = ptl_tensor_contiguous(x->thresholds, PTL_I64, 1, (const int64_t[]){4});
    x->p.timestamps =
        ptl_tensor_contiguous(x->stamps, PTL_I64, by_row ? 1 : 2, by_row ? &rows : shape);
    x->g.dtime_table = x->p.time_table;
    x->g.dtime_table.data = x->backward ? x->dtime_table : NULL;
}

void api_give_intervals(struct api_hstu *x) {
    const bool dense = x->p.q.ndim == 4;
    const int64_t shape[3] = {2, dense ? 3 : 5, 4};
    for (int i = 0; i < 64; i++) x->intervals[i] = i % 4;
    x->p.intervals = ptl_tensor_contiguous(x->intervals, PTL_I64, dense ? 3 : 2, shape + !dense);
}

void api_give_scale(struct api_hstu *x) {
    const bool dense = x->p.q.ndim == 4;
    const int64_t shape[2] = {2, dense ? 3 : 5};
    x->p.scaling_seqlen = 0;
    x->p.attn_scale = ptl_tensor_contiguous(x->scale, PTL_F32, dense ? 2 : 1, shape + !dense);
}

static enum ptl_status call(const struct api_hstu *x) {
    static struct ptl_context *ctx; /* one for all: refusals leave nothing behind in it */
    if (!ctx && ptl_context_create(&ctx, NULL) != PTL_OK) {
        FAIL("ptl_context_create: %s", ptl_message());
        return PTL_OK;
    }
    return x->backward ? ptl_hstu_backward(ctx, &x->p, &x->g) : ptl_hstu_forward(ctx, &x->p);
}

void api_refused(struct api_hstu *x, enum ptl_status status, const char *message) {
    test_case("%s", message);
    memset(x->out, 0xa5, sizeof x->out);
    memset(x->dq, 0xa5, sizeof x->dq);
    memset(x->dk, 0xa5, sizeof x->dk);
    memset(x->dv, 0xa5, sizeof x->dv);
    const struct api_hstu before = *x;
    const enum ptl_status got = call(x);
    if (got != status) FAIL("%s, expected %s", ptl_status_name(got), ptl_status_name(status));
    if (got != PTL_OK && strcmp(ptl_message(), message) != 0) FAIL("it says '%s'", ptl_message());
    if (memcmp(&before, x, sizeof before) != 0) FAIL("something was written");
}

void api_accepted(struct api_hstu *x) {
    const enum ptl_status got = call(x);
    if (got != PTL_OK) FAIL("%s: %s", ptl_status_name(got), ptl_message());
}
