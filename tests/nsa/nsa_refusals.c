/* Every refusal of the attention calls, sparse and full: the status, a sentence that begins with
 * the argument, nothing written. The caches' calls are nsa_cache_refusals.c. */
#include <math.h>
#include <string.h>

#include "nsa_compare.h"
#include "nsa_suites.h"

/* Two sequences of 6 and 5 tokens, the last 3 and 2 of them queries; 4 heads, 2 kv heads, D = 3, Dv
 * = 2; l = 2, d = 1, l' = 2, so 5 and 4 compressed keys and 3 blocks. */
enum { T = 5, HQ = 4, HK = 2, D = 3, DV = 2, TK = 11, TC = 9, NS = 3, TOPK = 4 };

static struct {
    float q[T * HQ * D], k[TK * HK * D], v[TK * HK * DV], kc[TC * HK * D], vc[TC * HK * DV];
    float gates[T * HQ * 3], lse_in[T * HQ], importance[T * HK * NS], branch[T * HQ * DV];
    int64_t offsets_q[3], offsets_k[3], offsets_kc[3], lengths[2], table[2 * 3], count[T * HK];
    int32_t idx[T * HK * TOPK];
    struct {
        float out[4][T * HQ * DV * 2], lse[3][T * HQ], importance[T * HK * NS];
        int32_t idx[T * HK * TOPK], nsel[T * HK];
    } written;
} m;

static struct ptl_nsa_params p;
static struct ptl_attention_params full;
static struct ptl_context *ctx;

static struct ptl_tensor floats(float *x, int64_t rows, int64_t heads, int64_t d) {
    return ptl_tensor_contiguous(x, PTL_F32, 3, (const int64_t[]){rows, heads, d});
}

static struct ptl_tensor pairs(void *x, enum ptl_dtype dtype, int64_t rows, int64_t heads) {
    return ptl_tensor_contiguous(x, dtype, 2, (const int64_t[]){rows, heads});
}

static struct ptl_tensor numbers(int64_t *x, int64_t n) {
    return ptl_tensor_contiguous(x, PTL_I64, 1, &n);
}

/* The arguments of a forward call, all of them right. */
static void begin(void) {
    static const int64_t offsets[3][3] = {{0, 3, 5}, {0, 6, 11}, {0, 5, 9}};
    memset(&m, 0, sizeof m);
    memset(&m.written, 0xa5, sizeof m.written);
    memcpy(m.offsets_q, offsets[0], sizeof offsets[0]);
    memcpy(m.offsets_k, offsets[1], sizeof offsets[1]);
    memcpy(m.offsets_kc, offsets[2], sizeof offsets[2]);
    m.lengths[0] = 6;
    m.lengths[1] = 5;
    for (int i = 0; i < 6; i++) m.table[i] = i % 3;
    ptl_nsa_params_init(&p);
    p.block = p.select_block = 2;
    p.stride = 1;
    p.topk = TOPK;
    p.q = floats(m.q, T, HQ, D);
    p.k = floats(m.k, TK, HK, D);
    p.v = floats(m.v, TK, HK, DV);
    p.kc = floats(m.kc, TC, HK, D);
    p.vc = floats(m.vc, TC, HK, DV);
    p.gates = floats(m.gates, T, HQ, 3);
    p.seq_offsets_q = numbers(m.offsets_q, 3);
    p.seq_offsets_k = numbers(m.offsets_k, 3);
    p.seq_offsets_kc = numbers(m.offsets_kc, 3);
    p.out = floats(m.written.out[0], T, HQ, DV);
    p.out_cmp = floats(m.written.out[1], T, HQ, DV);
    p.out_slc = floats(m.written.out[2], T, HQ, DV);
    p.out_swa = floats(m.written.out[3], T, HQ, DV);
    p.lse_cmp = pairs(m.written.lse[0], PTL_F32, T, HQ);
    p.lse_slc = pairs(m.written.lse[1], PTL_F32, T, HQ);
    p.lse_swa = pairs(m.written.lse[2], PTL_F32, T, HQ);
    p.importance = floats(m.written.importance, T, HK, NS);
    p.idx = floats((float *)(void *)m.written.idx, T, HK, TOPK);
    p.idx.dtype = PTL_I32;
    p.nsel = pairs(m.written.nsel, PTL_I32, T, HK);
    ptl_attention_params_init(&full);
    full.q = p.q;
    full.k = p.k;
    full.v = p.v;
    full.seq_offsets_q = p.seq_offsets_q;
    full.seq_offsets_k = p.seq_offsets_k;
    full.out = p.out;
    full.lse = p.lse_cmp;
    ctx = hstu_variant(0)->ctx;
}

/* k and v in 3 pages of 3 tokens instead; kc and vc in 3 pages of 3. */
static void paged(void) {
    p.seq_offsets_k.data = p.seq_offsets_kc.data = NULL;
    p.k = ptl_tensor_contiguous(m.k, PTL_F32, 4, (const int64_t[]){3, 3, HK, D});
    p.v = ptl_tensor_contiguous(m.v, PTL_F32, 4, (const int64_t[]){3, 3, HK, DV});
    p.kc = ptl_tensor_contiguous(m.kc, PTL_F32, 4, (const int64_t[]){3, 3, HK, D});
    p.vc = ptl_tensor_contiguous(m.vc, PTL_F32, 4, (const int64_t[]){3, 3, HK, DV});
    p.page_table = p.page_table_c =
        ptl_tensor_contiguous(m.table, PTL_I64, 2, (const int64_t[]){2, 3});
    p.seqlens_k = numbers(m.lengths, 2);
}

static enum ptl_status forward(void) {
    return ptl_nsa_forward(ctx, &p);
}
static enum ptl_status compressed(void) {
    return ptl_nsa_compressed_attention(ctx, &p);
}
static enum ptl_status select_blocks(void) {
    return ptl_nsa_select(ctx, &p);
}
static enum ptl_status attend(void) {
    return ptl_nsa_attend(ctx, &p);
}
static enum ptl_status combine(void) {
    return ptl_nsa_combine(ctx, &p);
}
static enum ptl_status attention(void) {
    return ptl_attention_forward(ctx, &full);
}

/* The inputs that the other calls read where forward writes. */
static void given_importance(void) {
    p.importance.data = m.importance;
}
static void given_idx(void) {
    p.idx.data = m.idx;
}
static void given_branches(void) {
    p.out_cmp.data = p.out_slc.data = p.out_swa.data = m.branch;
}

static bool untouched(void) {
    const unsigned char *bytes = (const unsigned char *)&m.written;
    for (size_t i = 0; i < sizeof m.written; i++)
        if (bytes[i] != 0xa5) return false;
    return true;
}

/* A case of its own; afterwards the arguments are whole again. */
static void refused(enum ptl_status got, enum ptl_status status, const char *argument) {
    test_case("%s of %s", ptl_status_name(status), argument);
    if (got != status)
        FAIL("%s (%s), expected %s", ptl_status_name(got), got == PTL_OK ? "" : ptl_message(),
             ptl_status_name(status));
    else if (!nsa_says(argument)) FAIL("it says '%s'", ptl_message());
    if (!untouched()) FAIL("something was written");
    begin();
}

static void accepted(const char *what, enum ptl_status got) {
    test_case("%s", what);
    if (got != PTL_OK) FAIL("%s: %s", ptl_status_name(got), ptl_message());
    begin();
}

static void whole(void) {
    begin();
    accepted("forward", forward());
    accepted("compressed attention", compressed());
    given_importance();
    accepted("select", select_blocks());
    given_idx();
    accepted("attend", attend());
    given_branches();
    accepted("combine", combine());
    accepted("full attention", attention());
    paged();
    accepted("forward of pages", forward());
    p.kc.data = p.vc.data = p.seq_offsets_kc.data = NULL;
    accepted("forward without kc", forward());
}

/* Columns of one wider buffer are apart, although their ranges are not. */
static void slices_of_one_buffer(void) {
    static float wide[T * HQ * 20];
    begin();
    struct ptl_tensor *const t[] = {&p.q, &p.gates, &p.out, &p.out_cmp, &p.out_slc, &p.out_swa};
    int64_t at = 0;
    for (int i = 0; i < 6; i++) {
        t[i]->data = wide + at;
        t[i]->stride[0] = HQ * 20;
        at += HQ * t[i]->shape[2];
    }
    accepted("rows of one buffer", forward());
    at = 0;
    for (int i = 0; i < 6; i++) {
        t[i]->data = wide + at;
        t[i]->stride[0] = HQ * 20;
        t[i]->stride[1] = 20;
        at += t[i]->shape[2];
    }
    accepted("heads of one buffer", forward());
}

static void missing(void) {
    begin();
    refused(ptl_nsa_forward(NULL, &p), PTL_ERR_NULL, "ctx");
    refused(ptl_nsa_forward(ctx, NULL), PTL_ERR_NULL, "params");
    refused(ptl_nsa_compressed_attention(NULL, &p), PTL_ERR_NULL, "ctx");
    refused(ptl_nsa_compressed_attention(ctx, NULL), PTL_ERR_NULL, "params");
    refused(ptl_nsa_select(NULL, &p), PTL_ERR_NULL, "ctx");
    refused(ptl_nsa_select(ctx, NULL), PTL_ERR_NULL, "params");
    refused(ptl_nsa_attend(NULL, &p), PTL_ERR_NULL, "ctx");
    refused(ptl_nsa_attend(ctx, NULL), PTL_ERR_NULL, "params");
    refused(ptl_nsa_combine(NULL, &p), PTL_ERR_NULL, "ctx");
    refused(ptl_nsa_combine(ctx, NULL), PTL_ERR_NULL, "params");
    refused(ptl_attention_forward(NULL, &full), PTL_ERR_NULL, "ctx");
    refused(ptl_attention_forward(ctx, NULL), PTL_ERR_NULL, "params");

    struct ptl_tensor *const needed[] = {&p.q, &p.k, &p.v, &p.gates, &p.out, &p.seq_offsets_q};
    static const char *const names[] = {"q", "k", "v", "gates", "out", "seq_offsets_q"};
    for (int i = 0; i < 6; i++) {
        needed[i]->data = NULL;
        refused(forward(), PTL_ERR_NULL, names[i]);
    }
    p.kc.data = NULL;
    refused(forward(), PTL_ERR_NULL, "kc");
    p.vc.data = NULL;
    refused(forward(), PTL_ERR_NULL, "vc");
    p.seq_offsets_kc.data = NULL;
    refused(forward(), PTL_ERR_NULL, "seq_offsets_kc");
    paged();
    p.seqlens_k.data = NULL;
    refused(forward(), PTL_ERR_NULL, "seqlens_k");
    p.k_swa = p.k;
    refused(forward(), PTL_ERR_NULL, "v_swa");
    p.v_swa = p.v;
    refused(forward(), PTL_ERR_NULL, "k_swa");

    p.q.data = NULL;
    refused(compressed(), PTL_ERR_NULL, "q");
    p.kc.data = NULL;
    refused(compressed(), PTL_ERR_NULL, "kc");
    p.vc.data = NULL;
    refused(compressed(), PTL_ERR_NULL, "vc");
    p.out_cmp.data = p.lse_cmp.data = p.importance.data = p.idx.data = p.nsel.data = NULL;
    refused(compressed(), PTL_ERR_NULL, "out_cmp");

    p.importance.data = NULL;
    refused(select_blocks(), PTL_ERR_NULL, "importance");
    given_importance();
    p.idx.data = NULL;
    refused(select_blocks(), PTL_ERR_NULL, "idx");
    given_importance();
    p.seq_offsets_q.data = NULL;
    refused(select_blocks(), PTL_ERR_NULL, "seq_offsets_q");

    given_idx();
    p.out_slc.data = p.lse_slc.data = p.out_swa.data = p.lse_swa.data = NULL;
    refused(attend(), PTL_ERR_NULL, "out_slc");
    given_idx();
    p.k.data = NULL;
    refused(attend(), PTL_ERR_NULL, "k");
    given_branches();
    p.gates.data = NULL;
    refused(combine(), PTL_ERR_NULL, "gates");
    given_branches();
    p.out.data = NULL;
    refused(combine(), PTL_ERR_NULL, "out");

    full.q.data = NULL;
    refused(attention(), PTL_ERR_NULL, "q");
    full.k.data = NULL;
    refused(attention(), PTL_ERR_NULL, "k");
    full.v.data = NULL;
    refused(attention(), PTL_ERR_NULL, "v");
    full.out.data = NULL;
    refused(attention(), PTL_ERR_NULL, "out");
    full.seq_offsets_q.data = NULL;
    refused(attention(), PTL_ERR_NULL, "seq_offsets_q");
}

static void types(void) {
    begin();
    struct ptl_tensor *const all[] = {&p.k,     &p.v,   &p.kc,      &p.vc,      &p.q_cmp,  &p.k_swa,
                                      &p.v_swa, &p.out, &p.out_cmp, &p.out_slc, &p.out_swa};
    static const char *const names[] = {"k",     "v",   "kc",      "vc",      "q_cmp",  "k_swa",
                                        "v_swa", "out", "out_cmp", "out_slc", "out_swa"};
    for (int i = 0; i < 11; i++) {
        p.q_cmp = p.q;
        p.q_cmp.data = m.branch; /* of another size, but it is not read */
        p.k_swa = p.k;
        p.v_swa = p.v;
        all[i]->dtype = PTL_BF16;
        refused(forward(), PTL_ERR_DTYPE, names[i]);
    }
    p.q.dtype = PTL_I32;
    refused(forward(), PTL_ERR_DTYPE, "q");
    p.q.dtype = (enum ptl_dtype)77;
    refused(forward(), PTL_ERR_DTYPE, "q");
    p.q.dtype = PTL_U8;
    refused(compressed(), PTL_ERR_DTYPE, "q");
    p.gates.dtype = PTL_F16;
    refused(forward(), PTL_ERR_DTYPE, "gates");
    p.lse_cmp.dtype = PTL_F16;
    refused(forward(), PTL_ERR_DTYPE, "lse_cmp");
    p.lse_slc.dtype = PTL_BF16;
    refused(forward(), PTL_ERR_DTYPE, "lse_slc");
    p.importance.dtype = PTL_F16;
    refused(forward(), PTL_ERR_DTYPE, "importance");
    p.idx.dtype = PTL_I64;
    refused(forward(), PTL_ERR_DTYPE, "idx");
    p.nsel.dtype = PTL_F32;
    refused(forward(), PTL_ERR_DTYPE, "nsel");
    p.seq_offsets_q.dtype = PTL_F32;
    refused(forward(), PTL_ERR_DTYPE, "seq_offsets_q");
    p.seq_offsets_k.dtype = PTL_U8;
    refused(forward(), PTL_ERR_DTYPE, "seq_offsets_k");
    p.seq_offsets_kc.dtype = PTL_F16;
    refused(forward(), PTL_ERR_DTYPE, "seq_offsets_kc");
    paged();
    p.page_table.dtype = PTL_F32;
    refused(forward(), PTL_ERR_DTYPE, "page_table");
    paged();
    p.page_table_c.dtype = PTL_F32;
    refused(forward(), PTL_ERR_DTYPE, "page_table_c");
    paged();
    p.seqlens_k.dtype = PTL_F32;
    refused(forward(), PTL_ERR_DTYPE, "seqlens_k");
    p.count = pairs(m.count, PTL_F32, T, HK);
    refused(forward(), PTL_ERR_DTYPE, "count");
    p.lse_in = pairs(m.lse_in, PTL_F16, T, HQ);
    p.lse_cmp.data = NULL;
    refused(forward(), PTL_ERR_DTYPE, "lse_in");
    given_importance();
    p.importance.dtype = PTL_BF16;
    refused(select_blocks(), PTL_ERR_DTYPE, "importance");
    given_idx();
    p.idx.dtype = PTL_F32;
    refused(attend(), PTL_ERR_DTYPE, "idx");
    given_branches();
    p.out_slc.dtype = PTL_F16;
    refused(combine(), PTL_ERR_DTYPE, "out_slc");
    full.v.dtype = PTL_F16;
    refused(attention(), PTL_ERR_DTYPE, "v");
    full.out.dtype = PTL_F16;
    refused(attention(), PTL_ERR_DTYPE, "out");
    full.lse.dtype = PTL_F16;
    refused(attention(), PTL_ERR_DTYPE, "lse");
}

static void layouts(void) {
    begin();
    struct ptl_tensor *const all[] = {&p.q,       &p.k,       &p.v,         &p.kc,
                                      &p.vc,      &p.gates,   &p.out,       &p.out_cmp,
                                      &p.out_slc, &p.out_swa, &p.importance};
    static const char *const names[] = {
        "q", "k", "v", "kc", "vc", "gates", "out", "out_cmp", "out_slc", "out_swa", "importance"};
    for (int i = 0; i < 11; i++) {
        all[i]->stride[2] = 2;
        refused(forward(), PTL_ERR_LAYOUT, names[i]);
    }
    p.lse_swa.stride[1] = 2;
    refused(forward(), PTL_ERR_LAYOUT, "lse_swa");
    p.seq_offsets_q.stride[0] = 2;
    refused(forward(), PTL_ERR_LAYOUT, "seq_offsets_q");
    paged();
    p.page_table.stride[0] = 4; /* index tensors are contiguous */
    refused(forward(), PTL_ERR_LAYOUT, "page_table");
    given_idx();
    p.idx.stride[0] = 9;
    refused(attend(), PTL_ERR_LAYOUT, "idx");
    p.count = pairs(m.count, PTL_I64, T, HK);
    p.count.stride[0] = 3;
    refused(forward(), PTL_ERR_LAYOUT, "count");
    full.k.stride[2] = -1;
    refused(attention(), PTL_ERR_LAYOUT, "k");
}

static void shapes(void) {
    begin();
    p.q.ndim = 2;
    refused(forward(), PTL_ERR_SHAPE, "q");
    p.k.ndim = 4;
    refused(forward(), PTL_ERR_SHAPE, "k");
    p.q = floats(m.q, T, 3, D);
    refused(forward(), PTL_ERR_SHAPE, "k"); /* 3 heads for 2 */
    p.q = floats(m.q, T, 0, D);
    refused(forward(), PTL_ERR_SHAPE, "q");
    p.k = floats(m.k, TK, 0, D);
    refused(forward(), PTL_ERR_SHAPE, "k");
    p.q = floats(m.q, T, HQ, 0);
    refused(forward(), PTL_ERR_SHAPE, "q");
    p.q = floats(m.q, T, HQ, 513);
    refused(forward(), PTL_ERR_SHAPE, "q");
    p.v = floats(m.v, TK, HK, 513);
    refused(forward(), PTL_ERR_SHAPE, "v");
    p.v = floats(m.v, TK, HK, 0);
    refused(forward(), PTL_ERR_SHAPE, "v");
    p.k = floats(m.k, TK, HK, D - 1);
    refused(forward(), PTL_ERR_SHAPE, "k");
    p.v = floats(m.v, TK - 1, HK, DV);
    refused(forward(), PTL_ERR_SHAPE, "v");
    p.v = floats(m.v, TK, 1, DV);
    refused(forward(), PTL_ERR_SHAPE, "v");
    p.kc = floats(m.kc, TC, 1, D);
    refused(forward(), PTL_ERR_SHAPE, "kc");
    p.kc = floats(m.kc, TC, HK, D + 1);
    refused(forward(), PTL_ERR_SHAPE, "kc");
    p.vc = floats(m.vc, TC, HK, DV - 1);
    refused(forward(), PTL_ERR_SHAPE, "vc");
    p.vc = floats(m.vc, TC - 1, HK, DV);
    refused(forward(), PTL_ERR_SHAPE, "vc");
    p.q_cmp = floats(m.q, T - 1, HQ, D);
    p.q_cmp.data = m.branch;
    refused(forward(), PTL_ERR_SHAPE, "q_cmp");
    p.k_swa = floats(m.k, TK, HK, D - 1);
    p.v_swa = p.v;
    refused(forward(), PTL_ERR_SHAPE, "k_swa");
    p.k_swa = p.k;
    p.v_swa = floats(m.v, TK, HK, DV - 1);
    refused(forward(), PTL_ERR_SHAPE, "v_swa");
    p.gates = floats(m.gates, T, HQ, 2);
    refused(forward(), PTL_ERR_SHAPE, "gates");
    p.gates.shape[1] = HQ - 1;
    refused(forward(), PTL_ERR_SHAPE, "gates");
    struct ptl_tensor *const out[] = {&p.out, &p.out_cmp, &p.out_slc, &p.out_swa};
    static const char *const names[] = {"out", "out_cmp", "out_slc", "out_swa"};
    for (int i = 0; i < 4; i++)
        for (int axis = 0; axis < 3; axis++) {
            out[i]->shape[axis]--;
            refused(forward(), PTL_ERR_SHAPE, names[i]);
        }
    p.lse_slc.shape[0]--;
    refused(forward(), PTL_ERR_SHAPE, "lse_slc");
    p.importance = floats(m.written.importance, T, HK, NS - 1);
    refused(forward(), PTL_ERR_SHAPE, "importance");
    p.idx.shape[2] = TOPK - 1;
    refused(forward(), PTL_ERR_SHAPE, "idx");
    p.nsel.shape[1] = 1;
    refused(forward(), PTL_ERR_SHAPE, "nsel");
    p.count = pairs(m.count, PTL_I64, T - 1, HK);
    refused(forward(), PTL_ERR_SHAPE, "count");
    p.lse_in = pairs(m.lse_in, PTL_F32, T, HQ - 1);
    p.lse_cmp.data = NULL;
    refused(forward(), PTL_ERR_SHAPE, "lse_in");
    p.seq_offsets_k.shape[0] = 2;
    refused(forward(), PTL_ERR_SHAPE, "seq_offsets_k");
    p.seq_offsets_kc.shape[0] = 2;
    refused(forward(), PTL_ERR_SHAPE, "seq_offsets_kc");
    paged();
    p.seqlens_k.shape[0] = 1;
    refused(forward(), PTL_ERR_SHAPE, "seqlens_k");
    paged();
    p.page_table.shape[0] = 1;
    refused(forward(), PTL_ERR_SHAPE, "page_table");
    given_importance();
    p.importance.shape[2] = NS - 1;
    refused(select_blocks(), PTL_ERR_SHAPE, "importance");
    given_idx();
    p.idx.shape[1] = 1;
    refused(attend(), PTL_ERR_SHAPE, "idx");
    given_branches();
    p.out_swa.shape[2] = 1;
    refused(combine(), PTL_ERR_SHAPE, "out_swa");
    full.out.shape[2] = 1;
    refused(attention(), PTL_ERR_SHAPE, "out");
    full.q = floats(m.q, T, 3, D);
    refused(attention(), PTL_ERR_SHAPE, "k");
}

static void numbers_out_of_range(void) {
    begin();
    struct {
        int64_t *number, bad[3];
        const char *name;
    } const rows[] = {
        {&p.block, {0, -1, INT64_MIN}, "block"},
        {&p.stride, {0, -1, 3}, "stride"},
        {&p.select_block, {0, -2, INT64_MIN}, "select_block"},
        {&p.topk, {0, -1, 2}, "topk"},
        {&p.n_init, {-1, INT64_MIN, -5}, "n_init"},
        {&p.n_local, {-1, INT64_MIN, -5}, "n_local"},
        {&p.window, {-1, INT64_MIN, -5}, "window"},
        {&p.dense_len, {-1, INT64_MIN, -5}, "dense_len"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int n = 0; n < 3; n++) {
            *rows[i].number = rows[i].bad[n];
            refused(forward(), PTL_ERR_PARAM, rows[i].name);
        }
    p.block = 3; /* stride does not divide it, or select_block */
    p.stride = 2;
    refused(forward(), PTL_ERR_PARAM, "stride");
    p.block = p.stride = 4;
    p.select_block = 6;
    refused(forward(), PTL_ERR_PARAM, "select_block");
    p.n_init = INT64_MAX;
    p.n_local = INT64_MAX;
    refused(forward(), PTL_ERR_PARAM, "topk");
    p.scale = INFINITY;
    refused(forward(), PTL_ERR_PARAM, "scale");
    p.scale = -INFINITY;
    refused(compressed(), PTL_ERR_PARAM, "scale");
    p.score = (enum ptl_nsa_score)3;
    refused(forward(), PTL_ERR_PARAM, "score");
    p.pool = (enum ptl_nsa_pool)2;
    refused(forward(), PTL_ERR_PARAM, "pool");
    p.order = (enum ptl_nsa_order)2;
    refused(forward(), PTL_ERR_PARAM, "order");
    p.gate_act = (enum ptl_nsa_gate_act)2;
    refused(forward(), PTL_ERR_PARAM, "gate_act");
    p.score_dtype = PTL_I32;
    refused(forward(), PTL_ERR_PARAM, "score_dtype");
    p.lse_in = pairs(m.lse_in, PTL_F32, T, HQ);
    refused(forward(), PTL_ERR_PARAM, "lse_cmp");
    p.struct_size = 8;
    refused(forward(), PTL_ERR_PARAM, "params.struct_size");
    full.struct_size = 0;
    refused(attention(), PTL_ERR_PARAM, "params.struct_size");
    full.window = -1;
    refused(attention(), PTL_ERR_PARAM, "window");
    full.scale = INFINITY;
    refused(attention(), PTL_ERR_PARAM, "scale");
}

static void lengths(void) {
    begin();
    m.offsets_q[0] = 1;
    refused(forward(), PTL_ERR_SEQLEN, "seq_offsets_q");
    m.offsets_q[1] = 6;
    refused(forward(), PTL_ERR_SEQLEN, "seq_offsets_q");
    m.offsets_q[2] = 4;
    refused(forward(), PTL_ERR_SEQLEN, "seq_offsets_q");
    m.offsets_q[2] = 6;
    refused(forward(), PTL_ERR_SEQLEN, "seq_offsets_q");
    m.offsets_k[0] = 1;
    refused(forward(), PTL_ERR_SEQLEN, "seq_offsets_k");
    m.offsets_k[1] = -1;
    refused(forward(), PTL_ERR_SEQLEN, "seq_offsets_k");
    m.offsets_k[2] = 12;
    refused(forward(), PTL_ERR_SEQLEN, "seq_offsets_k");
    m.offsets_k[1] = 2; /* fewer than the 3 queries */
    refused(forward(), PTL_ERR_SEQLEN, "seq_offsets_k");
    m.offsets_kc[1] = 4; /* of 5 */
    refused(forward(), PTL_ERR_SEQLEN, "seq_offsets_kc");
    m.offsets_kc[2] = 8;
    refused(forward(), PTL_ERR_SEQLEN, "seq_offsets_kc");
    m.offsets_kc[2] = 10;
    refused(forward(), PTL_ERR_SEQLEN, "seq_offsets_kc");
    p.seqlens_k = numbers(m.lengths, 2);
    m.lengths[0] = 7; /* more than there are */
    refused(forward(), PTL_ERR_SEQLEN, "seq_offsets_k");
    p.seqlens_k = numbers(m.lengths, 2);
    m.lengths[1] = 1; /* fewer than the 2 queries */
    refused(forward(), PTL_ERR_SEQLEN, "seqlens_k");
    paged();
    m.lengths[0] = -1;
    refused(forward(), PTL_ERR_SEQLEN, "seqlens_k");
    full.seqlens_k = numbers(m.lengths, 2);
    m.lengths[1] = 1;
    refused(attention(), PTL_ERR_SEQLEN, "seqlens_k");
    given_importance();
    m.offsets_q[1] = -1;
    refused(select_blocks(), PTL_ERR_SEQLEN, "seq_offsets_q");
}

static void tables(void) {
    begin();
    paged();
    m.table[1] = 3;
    refused(attend(), PTL_ERR_TABLE, "page_table");
    paged();
    m.table[3] = -1;
    refused(attend(), PTL_ERR_TABLE, "page_table");
    paged();
    p.page_table = ptl_tensor_contiguous(m.table, PTL_I64, 2, (const int64_t[]){2, 1});
    refused(forward(), PTL_ERR_TABLE, "page_table");
    paged();
    p.k.shape[1] = p.v.shape[1] = 0;
    refused(forward(), PTL_ERR_TABLE, "k");
    paged();
    m.table[4] = 3;
    refused(compressed(), PTL_ERR_TABLE, "page_table_c");
    paged();
    p.page_table_c = ptl_tensor_contiguous(m.table, PTL_I64, 2, (const int64_t[]){2, 1});
    refused(compressed(), PTL_ERR_TABLE, "page_table_c");
    paged();
    p.kc.shape[1] = p.vc.shape[1] = 0;
    refused(compressed(), PTL_ERR_TABLE, "kc");
    paged();
    full.k = p.k;
    full.v = p.v;
    full.page_table = p.page_table;
    full.seqlens_k = p.seqlens_k;
    full.seq_offsets_k.data = NULL;
    m.table[0] = 17;
    refused(attention(), PTL_ERR_TABLE, "page_table");
    paged();
    m.table[2] = m.table[5] = INT32_MIN; /* not used */
    accepted("garbage behind the last page", forward());
}

static void overlaps(void) {
    begin();
    struct ptl_tensor *const in[] = {&p.q, &p.k, &p.v, &p.kc, &p.vc, &p.gates};
    for (int i = 0; i < 6; i++) {
        p.out.data = in[i]->data;
        refused(forward(), PTL_ERR_ALIAS, "out");
    }
    struct ptl_tensor *const out[] = {&p.out_cmp, &p.out_slc, &p.out_swa,   &p.lse_cmp,
                                      &p.lse_slc, &p.lse_swa, &p.importance};
    static const char *const names[] = {"out_cmp", "out_slc", "out_swa",   "lse_cmp",
                                        "lse_slc", "lse_swa", "importance"};
    for (int i = 0; i < 7; i++) {
        out[i]->data = m.k;
        refused(forward(), PTL_ERR_ALIAS, names[i]);
        out[i]->data = p.out.data;
        refused(forward(), PTL_ERR_ALIAS, "out");
    }
    p.out.stride[0] = 0;
    refused(forward(), PTL_ERR_ALIAS, "out");
    p.idx.data = m.written.importance;
    refused(forward(), PTL_ERR_ALIAS, "idx");
    given_branches();
    p.out.data = m.branch;
    refused(combine(), PTL_ERR_ALIAS, "out");
    given_importance();
    p.idx.data = m.importance;
    refused(select_blocks(), PTL_ERR_ALIAS, "idx");
    full.out.data = m.v;
    refused(attention(), PTL_ERR_ALIAS, "out");
    full.lse.data = full.out.data;
    refused(attention(), PTL_ERR_ALIAS, "lse");
    p.out.data = m.offsets_q;
    refused(forward(), PTL_ERR_ALIAS, "out");
    paged();
    p.out.data = m.table;
    refused(forward(), PTL_ERR_ALIAS, "out");
}

static void sizes_beyond_64_bits(void) {
    begin();
    p.k.shape[0] = INT64_MAX / 2;
    refused(forward(), PTL_ERR_OVERFLOW, "k");
    p.q.stride[0] = INT64_MAX;
    refused(forward(), PTL_ERR_OVERFLOW, "q");
    full.v.stride[0] = INT64_MAX / 4;
    refused(attention(), PTL_ERR_OVERFLOW, "v");
}

static const struct test tests[] = {
    {"whole", whole},
    {"slices_of_one_buffer", slices_of_one_buffer},
    {"missing", missing},
    {"types", types},
    {"layouts", layouts},
    {"shapes", shapes},
    {"numbers_out_of_range", numbers_out_of_range},
    {"lengths", lengths},
    {"tables", tables},
    {"overlaps", overlaps},
    {"sizes_beyond_64_bits", sizes_beyond_64_bits},
};
TEST_SUITE(nsa_refusals_suite, "nsa/refusals", tests);
