/* The error contract of ptl_hstu_backward, the rows that forward does not have, and of
 * ptl_hstu_kv_append: status, sentence, nothing written. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "api_hstu_fixture.h"
#include "api_suites.h"

static struct api_hstu x;
static struct ptl_hstu_params *const p = &x.p;
static struct ptl_hstu_grads *const g = &x.g;

/* ---- Backward -------------------------------------------------------------------------------- */

static void check_message(enum ptl_status got, enum ptl_status status, const char *message) {
    test_case("%s", message);
    if (got != status) FAIL("%s, expected %s", ptl_status_name(got), ptl_status_name(status));
    if (strcmp(ptl_message(), message) != 0) FAIL("it says '%s'", ptl_message());
}

static void grads_null(void) {
    struct ptl_context *ctx;
    if (ptl_context_create(&ctx, NULL) != PTL_OK) {
        FAIL("ptl_context_create: %s", ptl_message());
        return;
    }
    api_hstu_backward(&x, false);
    check_message(ptl_hstu_backward(NULL, p, g), PTL_ERR_NULL, "ctx: NULL, expected a context");
    check_message(ptl_hstu_backward(ctx, NULL, g), PTL_ERR_NULL,
                  "params: NULL, expected arguments");
    check_message(ptl_hstu_backward(ctx, p, NULL), PTL_ERR_NULL, "grads: NULL, expected gradients");
    ptl_context_destroy(ctx);
    test_case("defaults");
    memset(g, 0xa5, sizeof *g);
    ptl_hstu_grads_init(g);
    CHECK(g->struct_size == sizeof *g && !g->dout.data && !g->dq.data && !g->dbias.data &&
          !g->ds.data);
    ptl_hstu_grads_init(NULL);
}

static void struct_sizes(void) {
    char message[100];
    api_hstu_backward(&x, false);
    g->struct_size = 16;
    snprintf(message, sizeof message,
             "grads.struct_size: 16, expected %zu; use ptl_hstu_grads_init", sizeof *g);
    api_refused(&x, PTL_ERR_PARAM, message);
    api_hstu_backward(&x, false);
    p->struct_size = 16;
    snprintf(message, sizeof message,
             "params.struct_size: 16, expected %zu; use ptl_hstu_params_init", sizeof *p);
    api_refused(&x, PTL_ERR_PARAM, message);
}

static void row_1_missing(void) {
    static const char *const names[] = {"q", "k", "v", "seq_offsets_q", "dout", "dq", "dk", "dv"};
    struct ptl_tensor *const tensors[] = {&p->q,    &p->k,  &p->v,  &p->seq_offsets_q,
                                          &g->dout, &g->dq, &g->dk, &g->dv};
    for (int i = 0; i < 8; i++) {
        char message[80];
        api_hstu_backward(&x, false);
        tensors[i]->data = NULL;
        snprintf(message, sizeof message, "%s: missing (data is NULL), expected a tensor",
                 names[i]);
        api_refused(&x, PTL_ERR_NULL, message);
    }
    test_case("out is not looked at");
    api_hstu_backward(&x, false);
    memset(&p->out, 0xa5, sizeof p->out);
    api_accepted(&x);
}

static void row_14_shapes(void) {
    static const char *const names[] = {"dq", "dk", "dv"}, *const of[] = {"q", "k", "v"};
    struct ptl_tensor *const tensors[] = {&g->dq, &g->dk, &g->dv};
    for (int i = 0; i < 3; i++) {
        char message[80];
        api_hstu_backward(&x, false);
        tensors[i]->ndim = 4;
        snprintf(message, sizeof message, "%s: 4 axes, expected 3", names[i]);
        api_refused(&x, PTL_ERR_SHAPE, message);
        for (int axis = 0; axis < 3; axis++) {
            api_hstu_backward(&x, false);
            const int64_t n = tensors[i]->shape[axis]--;
            snprintf(message, sizeof message, "%s: %d on axis %d, expected %d (%s)", names[i],
                     (int)n - 1, axis, (int)n, of[i]);
            api_refused(&x, PTL_ERR_SHAPE, message);
        }
        api_hstu_backward(&x, false);
        tensors[i]->dtype = PTL_F16;
        snprintf(message, sizeof message, "%s: f16, expected f32 (type of %s)", names[i], of[i]);
        api_refused(&x, PTL_ERR_DTYPE, message);
        api_hstu_backward(&x, false);
        tensors[i]->stride[2] = 2;
        snprintf(message, sizeof message, "%s: stride 2 on the last axis, expected 1", names[i]);
        api_refused(&x, PTL_ERR_LAYOUT, message);
        api_hstu_backward(&x, false);
        tensors[i]->stride[0] = INT64_MAX / 4;
        snprintf(message, sizeof message, "%s: extents times strides exceed 64 bits", names[i]);
        api_refused(&x, PTL_ERR_OVERFLOW, message);
    }
    api_hstu_backward(&x, false);
    g->dout.shape[0] = 4;
    api_refused(&x, PTL_ERR_SHAPE, "dout: 4 on axis 0, expected 5 (rows of q)");
    api_hstu_backward(&x, false);
    g->dout.shape[1] = 2;
    api_refused(&x, PTL_ERR_SHAPE, "dout: 2 on axis 1, expected 4 (heads of q)");
    api_hstu_backward(&x, false);
    g->dout.shape[2] = 3;
    api_refused(&x, PTL_ERR_SHAPE, "dout: 3 on axis 2, expected 5 (head size of v)");
    api_hstu_backward(&x, false);
    g->dout.dtype = PTL_BF16;
    api_refused(&x, PTL_ERR_DTYPE, "dout: bf16, but q is f32; all must be alike");
    api_hstu_backward(&x, true);
    g->dout = ptl_tensor_contiguous(x.dout, PTL_F32, 3, (const int64_t[]){6, 4, 5});
    api_refused(&x, PTL_ERR_SHAPE, "dout: 3 axes, but q has 4; all are jagged (3) or dense (4)");
}

static void row_14_what_is_not_there(void) {
    api_hstu_backward(&x, false);
    api_give_bias(&x, 1, 1, 3, 3);
    p->attn_bias.data = NULL;
    api_refused(&x, PTL_ERR_PARAM, "dbias: asked for without attn_bias");
    api_hstu_backward(&x, false);
    api_give_pos_table(&x);
    p->pos_table.data = NULL;
    api_refused(&x, PTL_ERR_PARAM, "dpos_table: asked for without pos_table");
    api_hstu_backward(&x, false);
    api_give_time_table(&x);
    p->time_table.data = p->timestamps.data = p->time_thresholds.data = NULL;
    api_refused(&x, PTL_ERR_PARAM, "dtime_table: asked for without time_table");
}

static void row_14_optional_shapes(void) {
    api_hstu_backward(&x, false);
    api_give_bias(&x, 1, 1, 3, 3);
    g->dbias.ndim = 3;
    api_refused(&x, PTL_ERR_SHAPE, "dbias: 3 axes, expected 4");
    api_give_bias(&x, 1, 1, 3, 3);
    g->dbias.shape[1] = 4;
    api_refused(&x, PTL_ERR_SHAPE, "dbias: 4 on axis 1, expected 1 (attn_bias)");
    api_give_bias(&x, 1, 1, 3, 3);
    g->dbias.dtype = PTL_BF16;
    api_refused(&x, PTL_ERR_DTYPE, "dbias: bf16, expected f32 (type of attn_bias)");
    api_hstu_backward(&x, false);
    api_give_pos_table(&x);
    g->dpos_table.shape[0] = 5;
    api_refused(&x, PTL_ERR_SHAPE, "dpos_table: 5 on axis 0, expected 7 (pos_table)");
    api_hstu_backward(&x, false);
    api_give_time_table(&x);
    g->dtime_table.dtype = PTL_F16;
    api_refused(&x, PTL_ERR_DTYPE, "dtime_table: f16, expected f32 (type of time_table)");
    api_hstu_backward(&x, false);
    g->ds.ndim = 2;
    api_refused(&x, PTL_ERR_SHAPE, "ds: 2 axes, expected 1");
    api_hstu_backward(&x, false);
    g->ds.dtype = PTL_F16;
    api_refused(&x, PTL_ERR_DTYPE, "ds: f16, expected f32");
    api_hstu_backward(&x, false);
    g->ds.shape[0] = 4;
    api_refused(&x, PTL_ERR_SHAPE, "ds: 4 on axis 0, expected 5 (rows of q)");
    api_hstu_backward(&x, true);
    g->ds.shape[0] = 1;
    api_refused(&x, PTL_ERR_SHAPE, "ds: 1 on axis 0, expected 2 (B of q)");
    api_hstu_backward(&x, true);
    g->ds.ndim = 1;
    api_refused(&x, PTL_ERR_SHAPE, "ds: 1 axes, expected 2");
}

static void row_29_overlaps(void) {
    api_hstu_backward(&x, false);
    g->dq.data = x.q + 3;
    api_refused(&x, PTL_ERR_ALIAS, "dq: overlaps q, expected memory of its own");
    api_hstu_backward(&x, false);
    g->dk.data = x.v + 3;
    api_refused(&x, PTL_ERR_ALIAS, "dk: overlaps v, expected memory of its own");
    api_hstu_backward(&x, false);
    g->dv.data = x.dout;
    api_refused(&x, PTL_ERR_ALIAS, "dv: overlaps dout, expected memory of its own");
    api_hstu_backward(&x, false);
    g->dv.data = x.dq + 20;
    api_refused(&x, PTL_ERR_ALIAS, "dv: overlaps dq, expected memory of its own");
    api_hstu_backward(&x, false);
    g->dk.stride[0] = 5;
    api_refused(&x, PTL_ERR_ALIAS,
                "dk: stride 5 on axis 0 makes elements overlap, expected at least 6");
    api_hstu_backward(&x, false);
    g->dq.stride[0] = 0;
    api_refused(&x, PTL_ERR_ALIAS,
                "dq: stride 0 on axis 0 makes elements overlap, expected at least 1");
    api_hstu_backward(&x, false);
    api_give_bias(&x, 1, 1, 3, 3);
    g->dbias.data = x.bias + 2;
    api_refused(&x, PTL_ERR_ALIAS, "dbias: overlaps attn_bias, expected memory of its own");
    api_give_bias(&x, 1, 1, 3, 3);
    g->dbias.stride[2] = 0;
    api_refused(&x, PTL_ERR_ALIAS,
                "dbias: stride 0 on axis 2 makes elements overlap, expected at least 1");
    api_hstu_backward(&x, false);
    api_give_pos_table(&x);
    g->dpos_table.data = x.pos_table;
    api_refused(&x, PTL_ERR_ALIAS, "dpos_table: overlaps pos_table, expected memory of its own");
    api_hstu_backward(&x, false);
    api_give_time_table(&x);
    g->dtime_table.data = x.dk;
    api_refused(&x, PTL_ERR_ALIAS, "dtime_table: overlaps dk, expected memory of its own");
    api_hstu_backward(&x, false);
    g->ds.data = x.dq + 59;
    api_refused(&x, PTL_ERR_ALIAS, "ds: overlaps dq, expected memory of its own");
}

static void row_27b_pages(void) {
    api_hstu_paged(&x);
    const struct ptl_hstu_params paged = *p;
    api_hstu_backward(&x, false);
    *p = paged;
    api_refused(&x, PTL_ERR_PARAM, "k_pages: given, but paged keys have no backward");
}

/* Rows that forward has are there for backward too; a few of each kind. */
static void rows_of_forward(void) {
    api_hstu_backward(&x, false);
    x.offsets_q[2] = 6;
    api_refused(&x, PTL_ERR_SEQLEN, "seq_offsets_q: ends with 6, more than the 5 rows");
    api_hstu_backward(&x, false);
    p->k.shape[1] = 3;
    api_refused(&x, PTL_ERR_SHAPE,
                "k: 3 heads, but q has 4; q heads must be a multiple of k heads");
    api_hstu_backward(&x, false);
    p->scaling_seqlen = 0;
    api_refused(&x, PTL_ERR_PARAM,
                "scaling_seqlen, attn_scale: neither given, expected exactly one");
    api_hstu_backward(&x, false);
    p->alpha = NAN;
    api_refused(&x, PTL_ERR_PARAM, "alpha: nan, expected a finite number");
    api_hstu_backward(&x, false);
    api_give_bias(&x, 1, 1, 2, 3);
    api_refused(&x, PTL_ERR_SHAPE, "attn_bias: 2 on axis 2, expected 3 (max_seqlen_q)");
}

/* ---- Right although odd ---------------------------------------------------------------------- */

static void backward_accepts(void) {
    test_case("jagged");
    api_hstu_backward(&x, false);
    api_accepted(&x);
    test_case("dense");
    api_hstu_backward(&x, true);
    api_accepted(&x);
    test_case("dout with strides of 0");
    api_hstu_backward(&x, false);
    g->dout.stride[0] = g->dout.stride[1] = 0;
    api_accepted(&x);
    test_case("dq, dk, dv in one buffer of rows of 40");
    static float buffer[5 * 40];
    api_hstu_backward(&x, false);
    g->dq.data = buffer;
    g->dk.data = buffer + 12;
    g->dv.data = buffer + 18;
    g->dq.stride[0] = g->dk.stride[0] = g->dv.stride[0] = 40;
    api_accepted(&x);
    test_case("no sequences, no rows");
    api_hstu_backward(&x, false);
    p->seq_offsets_q.shape[0] = 1;
    p->q.shape[0] = p->k.shape[0] = p->v.shape[0] = g->dout.shape[0] = 0;
    g->dq.shape[0] = g->dk.shape[0] = g->dv.shape[0] = g->ds.shape[0] = 0;
    const struct api_hstu before = x;
    api_accepted(&x);
    if (memcmp(&before, &x, sizeof x) != 0) FAIL("something was written");
}

/* ---- Appending ------------------------------------------------------------------------------- */

static struct append {
    struct ptl_hstu_kv_append_params a;
    float k[64], v[64], k_pages[128], v_pages[128];
    int64_t offsets[4], targets[2], cached[2], page_offsets[4], page_ids[4];
    int32_t narrow[4];
} y;

/* Two sequences of 3 and 2 rows, one target in the first; 1 and 0 tokens cached; pages of 2
 * tokens. */
static void append_init(void) {
    static const int64_t offsets[3] = {0, 3, 5}, page_offsets[3] = {0, 2, 3}, ids[3] = {4, 0, 5};
    struct ptl_hstu_kv_append_params *a = &y.a;
    memset(&y, 0, sizeof y);
    ptl_hstu_kv_append_params_init(a);
    memcpy(y.offsets, offsets, sizeof offsets);
    memcpy(y.page_offsets, page_offsets, sizeof page_offsets);
    memcpy(y.page_ids, ids, sizeof ids);
    y.targets[0] = y.cached[0] = 1;
    for (int i = 0; i < 64; i++) y.k[i] = y.v[i] = (float)(i + 1);
    a->k = ptl_tensor_contiguous(y.k, PTL_F32, 3, (const int64_t[]){5, 2, 3});
    a->v = ptl_tensor_contiguous(y.v, PTL_F32, 3, (const int64_t[]){5, 2, 4});
    a->k_pages = ptl_tensor_contiguous(y.k_pages, PTL_F32, 4, (const int64_t[]){6, 2, 2, 3});
    a->v_pages = ptl_tensor_contiguous(y.v_pages, PTL_F32, 4, (const int64_t[]){6, 2, 2, 4});
    a->seq_offsets = api_index(y.offsets, 3);
    a->num_targets = api_index(y.targets, 2);
    a->n_cached = api_index(y.cached, 2);
    a->page_offsets = api_index(y.page_offsets, 3);
    a->page_ids = api_index(y.page_ids, 3);
}

static struct ptl_context *append_context(void) {
    static struct ptl_context *ctx;
    if (!ctx && ptl_context_create(&ctx, NULL) != PTL_OK) FAIL("%s", ptl_message());
    return ctx;
}

static void append_refused(enum ptl_status status, const char *message) {
    const struct append before = y;
    check_message(ptl_hstu_kv_append(append_context(), &y.a), status, message);
    if (memcmp(&before, &y, sizeof y) != 0) FAIL("something was written");
}

static void append_missing(void) {
    static const char *const names[] = {"k",           "v",        "k_pages",      "v_pages",
                                        "seq_offsets", "n_cached", "page_offsets", "page_ids"};
    struct ptl_hstu_kv_append_params *a = &y.a;
    struct ptl_tensor *const tensors[] = {
        &a->k,           &a->v,        &a->k_pages,      &a->v_pages,
        &a->seq_offsets, &a->n_cached, &a->page_offsets, &a->page_ids};
    for (int i = 0; i < 8; i++) {
        char message[80];
        append_init();
        tensors[i]->data = NULL;
        snprintf(message, sizeof message, "%s: missing (data is NULL), expected a tensor",
                 names[i]);
        append_refused(PTL_ERR_NULL, message);
    }
    append_init();
    check_message(ptl_hstu_kv_append(NULL, a), PTL_ERR_NULL, "ctx: NULL, expected a context");
    check_message(ptl_hstu_kv_append(append_context(), NULL), PTL_ERR_NULL,
                  "params: NULL, expected arguments");
    char message[120];
    a->struct_size = 8;
    snprintf(message, sizeof message,
             "params.struct_size: 8, expected %zu; use ptl_hstu_kv_append_params_init", sizeof *a);
    append_refused(PTL_ERR_PARAM, message);
    ptl_hstu_kv_append_params_init(NULL);
}

static void append_shapes(void) {
    struct ptl_hstu_kv_append_params *a = &y.a;
    append_init();
    a->k.ndim = 4;
    append_refused(PTL_ERR_SHAPE, "k: 4 axes, expected 3");
    append_init();
    a->v_pages.ndim = 3;
    append_refused(PTL_ERR_SHAPE, "v_pages: 3 axes, expected 4");
    append_init();
    a->v.shape[0] = 4;
    append_refused(PTL_ERR_SHAPE, "v: 4 on axis 0, expected 5 (rows of k)");
    append_init();
    a->v.shape[1] = 1;
    append_refused(PTL_ERR_SHAPE, "v: 1 on axis 1, expected 2 (heads of k)");
    append_init();
    a->k_pages.shape[2] = 1;
    append_refused(PTL_ERR_SHAPE, "k_pages: 1 on axis 2, expected 2 (heads of k)");
    append_init();
    a->k_pages.shape[3] = 2;
    append_refused(PTL_ERR_SHAPE, "k_pages: 2 on axis 3, expected 3 (head size of k)");
    append_init();
    a->v_pages.shape[3] = 3;
    append_refused(PTL_ERR_SHAPE, "v_pages: 3 on axis 3, expected 4 (head size of v)");
    append_init();
    a->v_pages.shape[0] = 5;
    append_refused(PTL_ERR_SHAPE, "v_pages: 5 on axis 0, expected 6 (pages of k_pages)");
    append_init();
    a->v_pages.shape[1] = 1;
    append_refused(PTL_ERR_SHAPE, "v_pages: 1 on axis 1, expected 2 (page size of k_pages)");
    append_init();
    a->k_pages.shape[1] = a->v_pages.shape[1] = 0;
    append_refused(PTL_ERR_SHAPE, "k_pages: page size 0, expected 1 or more");
    append_init();
    a->k.dtype = PTL_I32;
    append_refused(PTL_ERR_DTYPE, "k: i32, expected f32, f16 or bf16");
    append_init();
    a->v_pages.dtype = PTL_F16;
    append_refused(PTL_ERR_DTYPE, "v_pages: f16, but k is f32; all must be alike");
    append_init();
    a->v.stride[2] = 2;
    append_refused(PTL_ERR_LAYOUT, "v: stride 2 on the last axis, expected 1");
    append_init();
    a->k_pages.stride[0] = INT64_MAX / 4;
    append_refused(PTL_ERR_OVERFLOW, "k_pages: extents times strides exceed 64 bits");
    append_init();
    a->k_pages.stride[0] = 0;
    append_refused(PTL_ERR_ALIAS,
                   "k_pages: stride 0 on axis 0 makes elements overlap, expected at least 1");
    append_init();
    a->k_pages.data = y.k;
    append_refused(PTL_ERR_ALIAS, "k_pages: overlaps k, expected memory of its own");
    append_init();
    a->v_pages.data = y.k_pages + 3;
    append_refused(PTL_ERR_ALIAS, "v_pages: overlaps k_pages, expected memory of its own");
}

static void append_lists(void) {
    struct ptl_hstu_kv_append_params *a = &y.a;
    append_init();
    y.offsets[0] = 1;
    append_refused(PTL_ERR_SEQLEN, "seq_offsets: begins with 1, expected 0");
    append_init();
    y.offsets[2] = 6;
    append_refused(PTL_ERR_SEQLEN, "seq_offsets: ends with 6, more than the 5 rows");
    append_init();
    a->page_ids = ptl_tensor_contiguous(y.narrow, PTL_I32, 1, (const int64_t[]){3});
    append_refused(PTL_ERR_DTYPE,
                   "page_ids: i32, but another index tensor is i64; all must be alike");
    append_init();
    a->n_cached.dtype = PTL_F32;
    append_refused(PTL_ERR_DTYPE, "n_cached: f32, expected i32 or i64");
    append_init();
    a->n_cached.ndim = 0;
    append_refused(PTL_ERR_SHAPE, "n_cached: 0 axes, expected 1");
    append_init();
    a->n_cached.shape[0] = 1;
    append_refused(PTL_ERR_SHAPE, "n_cached: 1 on axis 0, expected 2 (number of sequences)");
    append_init();
    y.cached[1] = -1;
    append_refused(PTL_ERR_SEQLEN, "n_cached: -1 for sequence 1, expected 0 or more");
    append_init();
    a->page_offsets.shape[0] = 2;
    append_refused(PTL_ERR_SHAPE, "page_offsets: 2 on axis 0, expected 3 (entries of seq_offsets)");
    append_init();
    y.page_offsets[2] = 4;
    append_refused(PTL_ERR_TABLE, "page_offsets: ends with 4, more than the 3 rows");
    append_init();
    y.targets[1] = 3;
    append_refused(PTL_ERR_SEQLEN, "num_targets: 3 in sequence 1, expected 0 to its 2 rows");
    append_init();
    y.targets[1] = -3;
    append_refused(PTL_ERR_SEQLEN, "num_targets: -3 for sequence 1, expected 0 or more");
    append_init();
    y.cached[0] = 3;
    append_refused(PTL_ERR_TABLE,
                   "page_ids: 2 pages for sequence 0, too few for 3 cached and 2 new tokens");
    y.cached[0] = INT64_MAX;
    append_refused(PTL_ERR_TABLE,
                   "page_ids: 2 pages for sequence 0, too few for 9223372036854775807 "
                   "cached and 2 new tokens");
    append_init();
    y.page_ids[1] = 6;
    append_refused(PTL_ERR_TABLE, "page_ids: entry 1 is 6, expected 0 to 5");
    y.page_ids[1] = -1;
    append_refused(PTL_ERR_TABLE, "page_ids: entry 1 is -1, expected 0 to 5");
}

static void append_accepts(void) {
    struct ptl_hstu_kv_append_params *a = &y.a;
    test_case("plain");
    append_init();
    if (ptl_hstu_kv_append(append_context(), a) != PTL_OK) FAIL("%s", ptl_message());
    CHECK(y.k_pages[(4 * 2 + 1) * 6] == 1.0f); /* token 1 of sequence 0: page 4, slot 1 */
    CHECK(y.k_pages[0] == 7.0f);               /* token 2: page 0, slot 0 */
    CHECK(y.k_pages[5 * 2 * 6 + 5] == 24.0f);  /* token 0 of sequence 1, its last element */
    CHECK(y.k_pages[4 * 2 * 6] == 0.0f);       /* what was cached stays */
    test_case("one array for keys and values, [pages, 2, page_size, H, D]");
    append_init();
    float cache[6][2][2][2][3] = {{{{{0}}}}};
    a->v = a->k; /* one head size */
    a->v.data = y.v;
    a->k_pages = a->v_pages = ptl_tensor_contiguous(cache, PTL_F32, 4, (int64_t[]){6, 2, 2, 3});
    a->k_pages.stride[0] = a->v_pages.stride[0] = 2 * 2 * 2 * 3;
    a->v_pages.data = cache[0][1];
    if (ptl_hstu_kv_append(append_context(), a) != PTL_OK) FAIL("%s", ptl_message());
    CHECK(cache[4][0][1][0][0] == y.k[0] && cache[4][1][1][0][0] == y.v[0]);
    a->v_pages.data = &cache[0][1][0][0][0] - 1; /* the last element of a page of keys */
    append_refused(PTL_ERR_ALIAS, "v_pages: overlaps k_pages, expected memory of its own");
    test_case("nothing new: lists are not looked at");
    append_init();
    y.targets[0] = 3;
    y.targets[1] = 2;
    y.cached[0] = INT64_MAX;
    y.page_ids[0] = -9;
    const struct append before = y;
    if (ptl_hstu_kv_append(append_context(), a) != PTL_OK) FAIL("%s", ptl_message());
    if (memcmp(&before, &y, sizeof y) != 0) FAIL("something was written");
    test_case("no sequences");
    append_init();
    a->seq_offsets.shape[0] = a->page_offsets.shape[0] = 1;
    a->n_cached.shape[0] = a->num_targets.shape[0] = 0;
    if (ptl_hstu_kv_append(append_context(), a) != PTL_OK) FAIL("%s", ptl_message());
}

static const struct test tests[] = {
    {"backward_grads_null", grads_null},
    {"backward_struct_sizes", struct_sizes},
    {"backward_row_1_missing", row_1_missing},
    {"backward_row_14_shapes", row_14_shapes},
    {"backward_row_14_what_is_not_there", row_14_what_is_not_there},
    {"backward_row_14_optional_shapes", row_14_optional_shapes},
    {"backward_row_29_overlaps", row_29_overlaps},
    {"backward_row_27b_pages", row_27b_pages},
    {"backward_rows_of_forward", rows_of_forward},
    {"backward_accepts", backward_accepts},
    {"append_missing", append_missing},
    {"append_shapes", append_shapes},
    {"append_lists", append_lists},
    {"append_accepts", append_accepts},
};
TEST_SUITE(api_hstu_backward_suite, "api/hstu", tests);
