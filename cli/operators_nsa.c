/* The operators of NSA and full attention: their words, the outputs they have, and the calls
 * themselves. */
#include <inttypes.h>
#include <string.h>

#include "commands.h"
#include "compare.h"
#include "cost.h"
#include "operators.h"
#include "tensors.h"

/* ---- Words ----------------------------------------------------------------------------------- */

static const char *const scores[] = {"overlap", "plus", "ascend", NULL};
static const char *const pools[] = {"sum", "max", NULL};
static const char *const orders[] = {"index", "score", NULL};
static const char *const gate_acts[] = {"none", "sigmoid", NULL};
static const char *const modes[] = {"mean", "weighted", NULL};

#define ARRAY(key) FIELD(#key, FIELD_ARRAY, nsa.params.key)
#define INDEX(key) FIELD(#key, FIELD_INDEX, nsa.params.key)
#define INTEGER(key) FIELD(#key, FIELD_INTEGER, nsa.params.key)
#define OUTPUT(key) FIELD(#key, FIELD_OUTPUT, nsa.params.key)

static const struct field sequence_fields[] = {
    INDEX(seq_offsets_q),
    INDEX(seq_offsets_k),
    INDEX(seqlens_k),
    FIELD("dtype", FIELD_DTYPE, dtype),
    {0},
};

static const struct field query_fields[] = {
    ARRAY(q),
    FIELD("scale", FIELD_FLOAT, nsa.params.scale),
    {0},
};

static const struct field compressed_fields[] = {
    ARRAY(q_cmp),
    ARRAY(kc),
    ARRAY(vc),
    INDEX(seq_offsets_kc),
    INDEX(page_table_c),
    INTEGER(block),
    INTEGER(stride),
    CHOICE("score", nsa.params.score, scores),
    CHOICE("pool", nsa.params.pool, pools),
    FIELD("score_dtype", FIELD_DTYPE, nsa.params.score_dtype),
    ARRAY(lse_in),
    {0},
};

static const struct field selection_fields[] = {
    INTEGER(select_block), INTEGER(topk), INTEGER(n_init),
    INTEGER(n_local),      INDEX(count),  CHOICE("order", nsa.params.order, orders),
    OUTPUT(idx),           OUTPUT(nsel),  {0},
};

static const struct field compressed_output_fields[] = {
    FIELD("out", FIELD_OUTPUT, nsa.params.out_cmp),
    FIELD("lse", FIELD_OUTPUT, nsa.params.lse_cmp),
    OUTPUT(importance),
    {0},
};

static const struct field importance_fields[] = {ARRAY(importance), {0}};

static const struct field token_fields[] = {
    ARRAY(k),
    ARRAY(v),
    FIELD("k_slc", FIELD_ARRAY, nsa.params.k),
    FIELD("v_slc", FIELD_ARRAY, nsa.params.v),
    ARRAY(k_swa),
    ARRAY(v_swa),
    INDEX(page_table),
    INTEGER(window),
    INTEGER(dense_len),
    {0},
};

static const struct field attend_fields[] = {
    FIELD("idx", FIELD_INDEX, nsa.params.idx),
    INTEGER(select_block),
    OUTPUT(out_slc),
    OUTPUT(lse_slc),
    OUTPUT(out_swa),
    OUTPUT(lse_swa),
    {0},
};

static const struct field combine_fields[] = {
    ARRAY(out_cmp),
    ARRAY(out_slc),
    ARRAY(out_swa),
    {0},
};

static const struct field gate_fields[] = {
    ARRAY(gates),
    CHOICE("gate_act", nsa.params.gate_act, gate_acts),
    OUTPUT(out),
    {0},
};

static const struct field branch_fields[] = {
    OUTPUT(out_cmp), OUTPUT(out_slc), OUTPUT(out_swa),    OUTPUT(lse_cmp),
    OUTPUT(lse_slc), OUTPUT(lse_swa), OUTPUT(importance), {0},
};

#undef ARRAY
#undef INDEX
#undef INTEGER
#undef OUTPUT

static const struct field compress_fields[] = {
    FIELD("x", FIELD_ARRAY, nsa.compress.x),
    FIELD("seq_offsets", FIELD_INDEX, nsa.compress.seq_offsets),
    FIELD("seqlens", FIELD_INDEX, nsa.compress.seqlens),
    FIELD("page_table", FIELD_INDEX, nsa.compress.page_table),
    FIELD("block", FIELD_INTEGER, nsa.compress.block),
    FIELD("stride", FIELD_INTEGER, nsa.compress.stride),
    CHOICE("mode", nsa.compress.mode, modes),
    FIELD("w", FIELD_ARRAY, nsa.compress.w),
    FIELD("pe", FIELD_ARRAY, nsa.compress.pe),
    FIELD("dtype", FIELD_DTYPE, dtype),
    FIELD("y", FIELD_OUTPUT, nsa.compress.y),
    FIELD("seq_offsets_y", FIELD_OUTPUT, nsa.compress.seq_offsets_y),
    {0},
};

/* Caches are read from one file and written to another, or the same, as by hstu_kv_append. */
static const struct field append_fields[] = {
    FIELD("seqlens_old", FIELD_INDEX, nsa.append.seqlens_old),
    FIELD("k", FIELD_ARRAY, nsa.append.k),
    FIELD("v", FIELD_ARRAY, nsa.append.v),
    FIELD("k_pages", FIELD_ARRAY, nsa.append.k_pages),
    FIELD("v_pages", FIELD_ARRAY, nsa.append.v_pages),
    FIELD("page_table", FIELD_INDEX, nsa.append.page_table),
    FIELD("kc_pages", FIELD_ARRAY, nsa.append.kc_pages),
    FIELD("vc_pages", FIELD_ARRAY, nsa.append.vc_pages),
    FIELD("page_table_c", FIELD_INDEX, nsa.append.page_table_c),
    FIELD("block", FIELD_INTEGER, nsa.append.block),
    FIELD("stride", FIELD_INTEGER, nsa.append.stride),
    CHOICE("mode", nsa.append.mode, modes),
    FIELD("w_k", FIELD_ARRAY, nsa.append.w_k),
    FIELD("w_v", FIELD_ARRAY, nsa.append.w_v),
    FIELD("pe_k", FIELD_ARRAY, nsa.append.pe_k),
    FIELD("pe_v", FIELD_ARRAY, nsa.append.pe_v),
    FIELD("k_pages_out", FIELD_OUTPUT, nsa.append.k_pages),
    FIELD("v_pages_out", FIELD_OUTPUT, nsa.append.v_pages),
    FIELD("kc_pages_out", FIELD_OUTPUT, nsa.append.kc_pages),
    FIELD("vc_pages_out", FIELD_OUTPUT, nsa.append.vc_pages),
    {0},
};

/* What nsa_append has, and nsa_decode has not or by other names. */
static const struct field append_alone_fields[] = {
    FIELD("seqlens_k", FIELD_INDEX, nsa.append.seqlens_k),
    FIELD("seq_offsets", FIELD_INDEX, nsa.append.seq_offsets),
    FIELD("k_ring", FIELD_ARRAY, nsa.append.k_ring),
    FIELD("v_ring", FIELD_ARRAY, nsa.append.v_ring),
    FIELD("slots", FIELD_INDEX, nsa.append.slots),
    FIELD("dtype", FIELD_DTYPE, dtype),
    FIELD("k_ring_out", FIELD_OUTPUT, nsa.append.k_ring),
    FIELD("v_ring_out", FIELD_OUTPUT, nsa.append.v_ring),
    {0},
};

/* The same for nsa_decode: keys and values are those of its caches. */
static const struct field decode_fields[] = {
    FIELD("q", FIELD_ARRAY, nsa.params.q),
    FIELD("q_cmp", FIELD_ARRAY, nsa.params.q_cmp),
    FIELD("k_swa", FIELD_ARRAY, nsa.params.k_swa),
    FIELD("v_swa", FIELD_ARRAY, nsa.params.v_swa),
    FIELD("seq_offsets_q", FIELD_INDEX, nsa.params.seq_offsets_q),
    FIELD("seqlens_k", FIELD_INDEX, nsa.params.seqlens_k),
    FIELD("scale", FIELD_FLOAT, nsa.params.scale),
    FIELD("window", FIELD_INTEGER, nsa.params.window),
    FIELD("dense_len", FIELD_INTEGER, nsa.params.dense_len),
    CHOICE("score", nsa.params.score, scores),
    CHOICE("pool", nsa.params.pool, pools),
    FIELD("score_dtype", FIELD_DTYPE, nsa.params.score_dtype),
    FIELD("dtype", FIELD_DTYPE, dtype),
    {0},
};

static const struct field attention_fields[] = {
#define ARRAY(key) FIELD(#key, FIELD_ARRAY, nsa.attention.key)
#define INDEX(key) FIELD(#key, FIELD_INDEX, nsa.attention.key)
    ARRAY(q),
    ARRAY(k),
    ARRAY(v),
    INDEX(seq_offsets_q),
    INDEX(seq_offsets_k),
    INDEX(seqlens_k),
    INDEX(page_table),
    FIELD("scale", FIELD_FLOAT, nsa.attention.scale),
    FIELD("window", FIELD_INTEGER, nsa.attention.window),
    FIELD("dtype", FIELD_DTYPE, dtype),
    FIELD("out", FIELD_OUTPUT, nsa.attention.out),
    FIELD("lse", FIELD_OUTPUT, nsa.attention.lse),
    {0},
#undef ARRAY
#undef INDEX
};

/* ---- Preparing ------------------------------------------------------------------------------- */

static const char row_axes[] = "3 axes (jagged) or 4 (dense)";

/* An output with the rows of q: [.., heads, last], or [.., heads] when last is -1. */
static bool take_rows(struct call *c, const char *key, const struct ptl_tensor *q,
                      enum ptl_dtype dtype, int64_t heads, int64_t last, struct ptl_tensor *t,
                      struct refusal *r) {
    struct ptl_tensor x = *q;
    x.shape[q->ndim - 2] = heads;
    x.shape[q->ndim - 1] = last;
    return call_take(c, key, dtype, q->ndim - (last < 0), x.shape, t, r);
}

static int64_t last_axis(const struct ptl_tensor *t) {
    return t->shape[t->ndim - 1];
}

static int64_t heads_of(const struct ptl_tensor *t) {
    return t->shape[t->ndim - 2];
}

/* The longest sequence; of wrong lengths some number, as the library will refuse them. */
static int64_t longest(const struct ptl_nsa_params *a) {
    const struct ptl_tensor *offsets =
        a->seq_offsets_k.data ? &a->seq_offsets_k : &a->seq_offsets_q;
    int64_t n = 0;
    if (a->seqlens_k.data && a->seqlens_k.ndim == 1) {
        for (int64_t b = 0; b < a->seqlens_k.shape[0]; b++) n = most(n, index_at(&a->seqlens_k, b));
        return n;
    }
    if (a->q.ndim == 4) return a->k.data && a->k.ndim == 4 ? a->k.shape[1] : a->q.shape[1];
    for (int64_t b = 0; offsets->data && offsets->ndim == 1 && b + 1 < offsets->shape[0]; b++)
        n = most(n, index_at(offsets, b + 1) - index_at(offsets, b));
    return n;
}

/* importance is written when it is named; idx and nsel when they are due. */
static bool take_selection(struct call *c, const struct ptl_tensor *rows, int64_t kv_heads,
                           struct refusal *r) {
    struct ptl_nsa_params *a = &c->nsa.params;
    return (!is_due(c, "idx") ||
            take_rows(c, "idx", rows, PTL_I32, kv_heads, most(a->topk, 0), &a->idx, r)) &&
           (!is_due(c, "nsel") || take_rows(c, "nsel", rows, PTL_I32, kv_heads, -1, &a->nsel, r));
}

static bool take_importance(struct call *c, int64_t kv_heads, struct refusal *r) {
    struct ptl_nsa_params *a = &c->nsa.params;
    const int64_t size = most(a->select_block, 1), tokens = longest(a);
    const int64_t n = tokens / size + (tokens % size != 0);
    return take_rows(c, "importance", &a->q, PTL_F32, kv_heads, n, &a->importance, r);
}

static bool take_lse(struct call *c, const char *key, struct ptl_tensor *t, struct refusal *r) {
    const struct ptl_tensor *q = &c->nsa.params.q;
    return take_rows(c, key, q, PTL_F32, heads_of(q), -1, t, r);
}

static bool prepare_compressed(struct call *c, struct refusal *r) {
    struct ptl_nsa_params *a = &c->nsa.params;
    if (!a->q.data) a->q = a->q_cmp;
    if (!require("q", &a->q, 3, 4, row_axes, r) || !require("kc", &a->kc, 3, 4, row_axes, r) ||
        (a->vc.data && !require("vc", &a->vc, 3, 4, row_axes, r)) || !check_dtype(c, "q", &a->q, r))
        return false;
    const int64_t kv_heads = heads_of(&a->kc);
    const bool out = a->vc.data && is_due(c, "out"), lse = !a->lse_in.data && is_due(c, "lse");
    return (!out || take_rows(c, "out", &a->q, a->q.dtype, heads_of(&a->q), last_axis(&a->vc),
                              &a->out_cmp, r)) &&
           (!lse || take_lse(c, "lse", &a->lse_cmp, r)) &&
           (!is_due(c, "importance") || take_importance(c, kv_heads, r)) &&
           take_selection(c, &a->q, kv_heads, r);
}

static bool prepare_select(struct call *c, struct refusal *r) {
    struct ptl_nsa_params *a = &c->nsa.params;
    return require("importance", &a->importance, 3, 4, row_axes, r) &&
           take_selection(c, &a->importance, heads_of(&a->importance), r);
}

/* out and lse of a branch, when they are due. */
static bool take_branch(struct call *c, const char *const keys[2], struct ptl_tensor *out,
                        struct ptl_tensor *lse, struct refusal *r) {
    const struct ptl_nsa_params *a = &c->nsa.params;
    return (!is_due(c, keys[0]) ||
            take_rows(c, keys[0], &a->q, a->q.dtype, heads_of(&a->q), last_axis(&a->v), out, r)) &&
           (!is_due(c, keys[1]) || take_lse(c, keys[1], lse, r));
}

static const char *const cmp_keys[2] = {"out_cmp", "lse_cmp"},
                         *const slc_keys[2] = {"out_slc", "lse_slc"},
                         *const swa_keys[2] = {"out_swa", "lse_swa"};

static bool check_qkv(const struct call *c, struct refusal *r) {
    const struct ptl_nsa_params *a = &c->nsa.params;
    return require("q", &a->q, 3, 4, row_axes, r) && require("k", &a->k, 3, 4, row_axes, r) &&
           require("v", &a->v, 3, 4, row_axes, r) && check_dtype(c, "q", &a->q, r);
}

static bool prepare_attend(struct call *c, struct refusal *r) {
    struct ptl_nsa_params *a = &c->nsa.params;
    if (!check_qkv(c, r)) return false;
    return (!a->idx.data || take_branch(c, slc_keys, &a->out_slc, &a->lse_slc, r)) &&
           (a->window == 0 || take_branch(c, swa_keys, &a->out_swa, &a->lse_swa, r));
}

static bool prepare_combine(struct call *c, struct refusal *r) {
    struct ptl_nsa_params *a = &c->nsa.params;
    const struct ptl_tensor *x = a->out_cmp.data   ? &a->out_cmp
                                 : a->out_slc.data ? &a->out_slc
                                                   : &a->out_swa;
    return require("out_cmp", x, 3, 4, row_axes, r) && check_dtype(c, "out_cmp", x, r) &&
           take_like(c, "out", x, &a->out, r);
}

/* idx always: it says what the rest is to be compared with. */
static bool prepare_outputs(struct call *c, struct refusal *r) {
    struct ptl_nsa_params *a = &c->nsa.params;
    const int64_t kv_heads = heads_of(&a->k);
    return take_rows(c, "out", &a->q, a->q.dtype, heads_of(&a->q), last_axis(&a->v), &a->out, r) &&
           take_rows(c, "idx", &a->q, PTL_I32, kv_heads, most(a->topk, 0), &a->idx, r) &&
           (!wants(c, "nsel") || take_rows(c, "nsel", &a->q, PTL_I32, kv_heads, -1, &a->nsel, r)) &&
           (!wants(c, "importance") || take_importance(c, kv_heads, r)) &&
           (c->n_outputs == 0 || (take_branch(c, cmp_keys, &a->out_cmp, &a->lse_cmp, r) &&
                                  take_branch(c, slc_keys, &a->out_slc, &a->lse_slc, r) &&
                                  take_branch(c, swa_keys, &a->out_swa, &a->lse_swa, r)));
}

static bool prepare_forward(struct call *c, struct refusal *r) {
    return check_qkv(c, r) && prepare_outputs(c, r);
}

/* Blocks of all sequences, one behind the other. */
static int64_t jagged_blocks(const struct ptl_nsa_compress_params *a) {
    const struct ptl_tensor *t = a->seqlens.data ? &a->seqlens : &a->seq_offsets;
    int64_t n = 0;
    if (!t->data || t->ndim != 1) return 0;
    for (int64_t b = 0; b + !a->seqlens.data < t->shape[0]; b++)
        n += ptl_nsa_compressed_length(index_at(t, b + !a->seqlens.data) -
                                           (a->seqlens.data ? 0 : index_at(t, b)),
                                       a->block, a->stride);
    return n;
}

static bool prepare_compress(struct call *c, struct refusal *r) {
    struct ptl_nsa_compress_params *a = &c->nsa.compress;
    const struct ptl_tensor *x = &a->x;
    if (!require("x", x, 3, 4, row_axes, r) || !check_dtype(c, "x", x, r)) return false;
    const bool dense = x->ndim == 4 && !a->page_table.data;
    const bool sizes = a->block > 0 && a->stride > 0; /* or the library refuses them */
    const int64_t n = !sizes  ? 0
                      : dense ? ptl_nsa_compressed_length(x->shape[1], a->block, a->stride)
                              : jagged_blocks(a);
    const int64_t shape[4] = {x->shape[0], n, heads_of(x), last_axis(x)};
    const struct ptl_tensor *lengths = a->seq_offsets.data ? &a->seq_offsets : &a->seqlens;
    const int64_t n_offsets = lengths->data ? lengths->shape[0] + !a->seq_offsets.data : 1;
    return call_take(c, "y", x->dtype, dense ? 4 : 3, shape + !dense, &a->y, r) &&
           (!wants(c, "seq_offsets_y") || dense ||
            call_take(c, "seq_offsets_y", lengths->dtype, 1, &n_offsets, &a->seq_offsets_y, r));
}

static bool prepare_append(struct call *c, struct refusal *r) {
    const struct ptl_nsa_append_params *a = &c->nsa.append;
    const struct ptl_tensor *x = a->k_pages.data ? &a->k_pages : &a->k_ring;
    return !x->data || check_dtype(c, "k_pages", x, r);
}

static bool prepare_decode(struct call *c, struct refusal *r) {
    struct ptl_nsa_append_params *append = &c->nsa.append;
    struct ptl_nsa_params *a = &c->nsa.params;
    if (!require("q", &a->q, 3, 4, row_axes, r) || !check_dtype(c, "q", &a->q, r) ||
        !require("k_pages", &append->k_pages, 4, 4, "4 axes", r) ||
        !require("v_pages", &append->v_pages, 4, 4, "4 axes", r))
        return false;
    append->seqlens_k = a->seqlens_k;
    append->seq_offsets = a->seq_offsets_q;
    a->k = append->k_pages;
    a->v = append->v_pages;
    a->page_table = append->page_table;
    a->kc = append->kc_pages;
    a->vc = append->vc_pages;
    a->page_table_c = append->page_table_c;
    a->block = append->block;
    a->stride = append->stride;
    return prepare_outputs(c, r);
}

static bool prepare_attention(struct call *c, struct refusal *r) {
    struct ptl_attention_params *a = &c->nsa.attention;
    if (!require("q", &a->q, 3, 4, row_axes, r) || !require("k", &a->k, 3, 4, row_axes, r) ||
        !require("v", &a->v, 3, 4, row_axes, r) || !check_dtype(c, "q", &a->q, r))
        return false;
    const int64_t heads = heads_of(&a->q);
    return take_rows(c, "out", &a->q, a->q.dtype, heads, last_axis(&a->v), &a->out, r) &&
           (!is_due(c, "lse") || take_rows(c, "lse", &a->q, PTL_F32, heads, -1, &a->lse, r));
}

/* ---- Calls ----------------------------------------------------------------------------------- */

static void init(struct call *c) {
    nsa_arguments_init(&c->nsa);
}

static enum ptl_status run_compress(struct ptl_context *ctx, const struct call *c) {
    return ptl_nsa_compress(ctx, &c->nsa.compress);
}

static enum ptl_status run_append(struct ptl_context *ctx, const struct call *c) {
    return ptl_nsa_append(ctx, &c->nsa.append);
}

static enum ptl_status run_compressed(struct ptl_context *ctx, const struct call *c) {
    return ptl_nsa_compressed_attention(ctx, &c->nsa.params);
}

static enum ptl_status run_select(struct ptl_context *ctx, const struct call *c) {
    return ptl_nsa_select(ctx, &c->nsa.params);
}

static enum ptl_status run_attend(struct ptl_context *ctx, const struct call *c) {
    return ptl_nsa_attend(ctx, &c->nsa.params);
}

static enum ptl_status run_combine(struct ptl_context *ctx, const struct call *c) {
    return ptl_nsa_combine(ctx, &c->nsa.params);
}

static enum ptl_status run_forward(struct ptl_context *ctx, const struct call *c) {
    return ptl_nsa_forward(ctx, &c->nsa.params);
}

static enum ptl_status run_decode(struct ptl_context *ctx, const struct call *c) {
    return ptl_nsa_decode(ctx, &c->nsa.append, &c->nsa.params);
}

static enum ptl_status run_attention(struct ptl_context *ctx, const struct call *c) {
    return ptl_attention_forward(ctx, &c->nsa.attention);
}

#define NSA_Q offsetof(struct call, nsa.params.q)
#define ATTENTION_Q offsetof(struct call, nsa.attention.q)

static const struct operator operators[] = {
    {"nsa_compress",
     "nsa",
     {compress_fields},
     init,
     prepare_compress,
     generate_nsa,
     run_compress,
     compare_nsa_compress,
     cost_nsa_compress,
     "y",
     offsetof(struct call, nsa.compress.x)},
    {"nsa_append",
     "nsa",
     {append_fields, append_alone_fields},
     init,
     prepare_append,
     generate_nsa,
     run_append,
     compare_nsa_append,
     cost_nsa_append,
     "kc_pages_out",
     offsetof(struct call, nsa.append.k_pages)},
    {"nsa_compressed_attention",
     "nsa",
     {sequence_fields, query_fields, compressed_fields, selection_fields, compressed_output_fields},
     init,
     prepare_compressed,
     generate_nsa,
     run_compressed,
     compare_nsa_compressed,
     cost_nsa_compressed,
     "out",
     NSA_Q},
    {"nsa_select",
     "nsa",
     {sequence_fields, importance_fields, selection_fields},
     init,
     prepare_select,
     generate_nsa,
     run_select,
     compare_nsa_select,
     cost_nsa_select,
     "idx",
     offsetof(struct call, nsa.params.importance)},
    {"nsa_attend",
     "nsa",
     {sequence_fields, query_fields, token_fields, attend_fields},
     init,
     prepare_attend,
     generate_nsa,
     run_attend,
     compare_nsa_attend,
     cost_nsa_attend,
     "out_slc",
     NSA_Q},
    {"nsa_combine",
     "nsa",
     {sequence_fields, combine_fields, gate_fields},
     init,
     prepare_combine,
     generate_nsa,
     run_combine,
     compare_nsa_combine,
     cost_nsa_combine,
     "out",
     offsetof(struct call, nsa.params.out)},
    {"nsa_forward",
     "nsa",
     {sequence_fields, query_fields, token_fields, compressed_fields, selection_fields, gate_fields,
      branch_fields},
     init,
     prepare_forward,
     generate_nsa,
     run_forward,
     compare_nsa_forward,
     cost_nsa_forward,
     "out",
     NSA_Q},
    {"nsa_decode",
     "nsa",
     {decode_fields, append_fields, selection_fields, gate_fields, branch_fields},
     init,
     prepare_decode,
     generate_nsa,
     run_decode,
     compare_nsa_decode,
     cost_nsa_decode,
     "out",
     NSA_Q},
    {"attention",
     "nsa",
     {attention_fields},
     init,
     prepare_attention,
     generate_nsa,
     run_attention,
     compare_attention,
     cost_attention,
     "out",
     ATTENTION_Q},
    {"attention_decode",
     "nsa",
     {attention_fields},
     init,
     prepare_attention,
     generate_nsa,
     run_attention,
     compare_attention,
     cost_attention,
     "out",
     ATTENTION_Q},
    {0},
};

const struct family nsa_family = {"nsa", nsa_help, operators};
