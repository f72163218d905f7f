/* The operators of HSTU: their words, the outputs they have, and the calls themselves. */
#include "commands.h"
#include "compare.h"
#include "cost.h"
#include "operators.h"

/* ---- Words ----------------------------------------------------------------------------------- */

static const char *const query_or_key[] = {"query", "key", NULL};
static const char *const next_or_own[] = {"next", "own", NULL};

static const struct field hstu_fields[] = {
#define ARRAY(key) FIELD(#key, FIELD_ARRAY, problem.hstu.key)
#define INDEX(key) FIELD(#key, FIELD_INDEX, problem.hstu.key)
#define TIMES(key) FIELD(#key, FIELD_TIMES, problem.hstu.key)
#define INTEGER(key) FIELD(#key, FIELD_INTEGER, problem.hstu.key)
    ARRAY(q),
    ARRAY(k),
    ARRAY(v),
    ARRAY(mask),
    ARRAY(intervals),
    ARRAY(attn_bias),
    ARRAY(pos_table),
    ARRAY(time_table),
    ARRAY(k_pages),
    ARRAY(v_pages),
    INDEX(seq_offsets_q),
    INDEX(seq_offsets_k),
    INDEX(seqused_q),
    INDEX(seqused_k),
    INDEX(num_contexts),
    INDEX(num_targets),
    INDEX(page_offsets),
    INDEX(page_ids),
    INDEX(last_page_lens),
    TIMES(time_thresholds),
    TIMES(timestamps),
    INTEGER(max_seqlen_q),
    INTEGER(max_seqlen_k),
    INTEGER(scaling_seqlen),
    INTEGER(target_group_size),
    INTEGER(min_full_attn_seq_len),
    FIELD("attn_scale", FIELD_SCALE, problem.hstu.attn_scale),
    FIELD("alpha", FIELD_FLOAT, problem.hstu.alpha),
    FIELD("bias_scale", FIELD_FLOAT, problem.hstu.bias_scale),
    CHOICE("bias_rows", problem.hstu.bias_rows, query_or_key),
    CHOICE("time_query", problem.hstu.time_query, next_or_own),
    FIELD("rule", FIELD_RULE, problem.hstu),
    FIELD("window_size", FIELD_WINDOW, problem.hstu),
    FIELD("dtype", FIELD_DTYPE, dtype),
    {0},
#undef ARRAY
#undef INDEX
#undef TIMES
#undef INTEGER
};

static const struct field forward_fields[] = {FIELD("out", FIELD_OUTPUT, problem.hstu.out), {0}};

static const struct field backward_fields[] = {
    FIELD("dout", FIELD_ARRAY, problem.grads.dout),
    FIELD("dq", FIELD_OUTPUT, problem.grads.dq),
    FIELD("dk", FIELD_OUTPUT, problem.grads.dk),
    FIELD("dv", FIELD_OUTPUT, problem.grads.dv),
    FIELD("dbias", FIELD_OUTPUT, problem.grads.dbias),
    FIELD("dpos_table", FIELD_OUTPUT, problem.grads.dpos_table),
    FIELD("dtime_table", FIELD_OUTPUT, problem.grads.dtime_table),
    FIELD("ds", FIELD_OUTPUT, problem.grads.ds),
    {0},
};

/* The pages are read from one file and written to another, or the same: no input changes unless an
 * output names it. */
static const struct field append_fields[] = {
    FIELD("k", FIELD_ARRAY, append.k),
    FIELD("v", FIELD_ARRAY, append.v),
    FIELD("k_pages", FIELD_ARRAY, append.k_pages),
    FIELD("v_pages", FIELD_ARRAY, append.v_pages),
    FIELD("seq_offsets", FIELD_INDEX, append.seq_offsets),
    FIELD("num_targets", FIELD_INDEX, append.num_targets),
    FIELD("n_cached", FIELD_INDEX, append.n_cached),
    FIELD("page_offsets", FIELD_INDEX, append.page_offsets),
    FIELD("page_ids", FIELD_INDEX, append.page_ids),
    FIELD("dtype", FIELD_DTYPE, dtype),
    FIELD("k_pages_out", FIELD_OUTPUT, append.k_pages),
    FIELD("v_pages_out", FIELD_OUTPUT, append.v_pages),
    {0},
};

/* ---- Preparing ------------------------------------------------------------------------------- */

static bool check_qkv(struct call *c, struct refusal *r) {
    static const char axes[] = "3 axes (jagged) or 4 (dense)";
    const struct ptl_hstu_params *a = &c->problem.hstu;
    return require("q", &a->q, 3, 4, axes, r) && require("k", &a->k, 3, 4, axes, r) &&
           require("v", &a->v, 3, 4, axes, r) && check_dtype(c, "q", &a->q, r);
}

/* out is [.., Hq, Dv] with the axes of q. */
static bool prepare_forward(struct call *c, struct refusal *r) {
    struct ptl_hstu_params *a = &c->problem.hstu;
    if (!check_qkv(c, r)) return false;
    struct ptl_tensor shape = a->q;
    shape.shape[a->q.ndim - 1] = a->v.shape[a->v.ndim - 1];
    return take_like(c, "out", &shape, &a->out, r);
}

static bool prepare_backward(struct call *c, struct refusal *r) {
    const struct ptl_hstu_params *a = &c->problem.hstu;
    struct ptl_hstu_grads *g = &c->problem.grads;
    if (!check_qkv(c, r) || !require("dout", &g->dout, 0, 4, "", r)) return false;
    const struct {
        const char *key;
        bool wanted;
        const struct ptl_tensor *like;
        struct ptl_tensor *t;
    } outputs[] = {
        {"dq", true, &a->q, &g->dq},
        {"dk", true, &a->k, &g->dk},
        {"dv", true, &a->v, &g->dv},
        {"dbias", is_due(c, "dbias"), &a->attn_bias, &g->dbias},
        {"dpos_table", is_due(c, "dpos_table"), &a->pos_table, &g->dpos_table},
        {"dtime_table", is_due(c, "dtime_table"), &a->time_table, &g->dtime_table},
    };
    for (size_t i = 0; i < sizeof outputs / sizeof outputs[0]; i++)
        if (outputs[i].wanted && outputs[i].like->data &&
            !take_like(c, outputs[i].key, outputs[i].like, outputs[i].t, r))
            return false;
    return !wants(c, "ds") || call_take(c, "ds", PTL_F32, a->q.ndim - 2, a->q.shape, &g->ds, r);
}

static bool prepare_append(struct call *c, struct refusal *r) {
    struct ptl_hstu_kv_append_params *a = &c->append;
    return require("k", &a->k, 3, 3, "3 axes", r) && check_dtype(c, "k", &a->k, r);
}

/* ---- Calls ----------------------------------------------------------------------------------- */

static void init_hstu(struct call *c) {
    ptl_hstu_params_init(&c->problem.hstu);
    ptl_hstu_grads_init(&c->problem.grads);
}

static void init_append(struct call *c) {
    ptl_hstu_kv_append_params_init(&c->append);
}

static enum ptl_status run_forward(struct ptl_context *ctx, const struct call *c) {
    return ptl_hstu_forward(ctx, &c->problem.hstu);
}

static enum ptl_status run_backward(struct ptl_context *ctx, const struct call *c) {
    return ptl_hstu_backward(ctx, &c->problem.hstu, &c->problem.grads);
}

static enum ptl_status run_append(struct ptl_context *ctx, const struct call *c) {
    return ptl_hstu_kv_append(ctx, &c->append);
}

static const struct operator operators[] = {
    {"hstu",
     "hstu",
     {hstu_fields, forward_fields},
     init_hstu,
     prepare_forward,
     generate_hstu,
     run_forward,
     compare_forward,
     cost_forward,
     "out",
     offsetof(struct call, problem.hstu.q)},
    {"hstu_backward",
     "hstu",
     {hstu_fields, backward_fields},
     init_hstu,
     prepare_backward,
     generate_hstu,
     run_backward,
     compare_backward,
     cost_backward,
     "dq",
     offsetof(struct call, problem.hstu.q)},
    {"hstu_kv_append",
     "hstu",
     {append_fields},
     init_append,
     prepare_append,
     generate_kv_append,
     run_append,
     compare_append,
     cost_append,
     "k_pages_out",
     offsetof(struct call, append.k)},
    {0},
};

const struct family hstu_family = {"hstu", hstu_help, operators};
