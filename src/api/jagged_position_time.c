/* The position and time embedding: every row of the error contract, then the problem as the
 * operator walks it. */
#include <pantile/jagged.h>

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "../core/message.h"
#include "../ops/jagged.h"
#include "check.h"

typedef struct ptl_jagged_position_time_params params_type;

void ptl_jagged_position_time_init(struct ptl_jagged_position_time_params *params) {
    if (!params) return;
    memset(params, 0, sizeof *params);
    params->struct_size = sizeof *params;
    params->position_order = PTL_JAGGED_POSITION_FROM_END;
    params->time_bucket = PTL_JAGGED_TIME_SQRT;
    params->alpha = 1.0f;
}

/* What the matrices of a call have in common; -1 and 0 where it is not known yet. */
struct agreed {
    const char *of; /* the array that says how many columns there are: "emb" */
    int64_t rows, columns;
    enum ptl_dtype dtype;
    const char *table; /* the first table, or NULL */
    enum ptl_dtype table_dtype;
};

/* [rows, columns] of a float type. */
static enum ptl_status check_matrix(const char *name, const struct ptl_tensor *t,
                                    struct agreed *agreed, struct ptl_jagged_matrix *m) {
    char of[32];
    TRY(ptl_check_layout(name, t, 2, 2));
    if (t->dtype != PTL_F32 && t->dtype != PTL_F16 && t->dtype != PTL_BF16)
        return ptl_fail(PTL_ERR_DTYPE, "%s: %s, expected f32, f16 or bf16", name,
                        ptl_dtype_name(t->dtype));
    if (agreed->columns < 0) agreed->columns = t->shape[1];
    snprintf(of, sizeof of, "columns of %s", agreed->of);
    TRY(ptl_check_extent(name, t, 1, agreed->columns, of));
    *m = (struct ptl_jagged_matrix){t->data, t->dtype, t->shape[0],
                                    t->stride[0] * (int64_t)ptl_dtype_bytes(t->dtype)};
    return PTL_OK;
}

/* One row for every token: emb, out, dout, demb. */
static enum ptl_status check_rows(const char *name, const struct ptl_tensor *t,
                                  struct agreed *agreed, struct ptl_jagged_matrix *m) {
    char of[32];
    TRY(check_matrix(name, t, agreed, m));
    if (agreed->rows < 0) {
        agreed->rows = t->shape[0];
        agreed->dtype = t->dtype;
    }
    snprintf(of, sizeof of, "rows of %s", agreed->of);
    TRY(ptl_check_extent(name, t, 0, agreed->rows, of));
    if (t->dtype != agreed->dtype)
        return ptl_fail(PTL_ERR_DTYPE, "%s: %s, but %s is %s; both must be alike", name,
                        ptl_dtype_name(t->dtype), agreed->of, ptl_dtype_name(agreed->dtype));
    return PTL_OK;
}

/* pos_w, ts_w and their gradients. */
static enum ptl_status check_table(const char *name, const struct ptl_tensor *t,
                                   struct agreed *agreed, struct ptl_jagged_matrix *m) {
    TRY(check_matrix(name, t, agreed, m));
    if (t->shape[0] < 1) return ptl_fail(PTL_ERR_SHAPE, "%s: no rows, expected at least 1", name);
    if (t->dtype != PTL_F32 && t->dtype != agreed->dtype)
        return ptl_fail(PTL_ERR_DTYPE, "%s: %s, but %s is %s; expected that or f32", name,
                        ptl_dtype_name(t->dtype), agreed->of, ptl_dtype_name(agreed->dtype));
    if (!agreed->table) {
        agreed->table = name;
        agreed->table_dtype = t->dtype;
    }
    if (t->dtype != agreed->table_dtype)
        return ptl_fail(PTL_ERR_DTYPE, "%s: %s, but %s is %s; both must be alike", name,
                        ptl_dtype_name(t->dtype), agreed->table,
                        ptl_dtype_name(agreed->table_dtype));
    return PTL_OK;
}

static enum ptl_status check_options(const params_type *a) {
    if (a->position_order != PTL_JAGGED_POSITION_FROM_END &&
        a->position_order != PTL_JAGGED_POSITION_FROM_START)
        return ptl_fail(PTL_ERR_PARAM,
                        "position_order: %d, expected PTL_JAGGED_POSITION_FROM_END or "
                        "PTL_JAGGED_POSITION_FROM_START",
                        (int)a->position_order);
    if (a->time_bucket != PTL_JAGGED_TIME_SQRT && a->time_bucket != PTL_JAGGED_TIME_LOG)
        return ptl_fail(PTL_ERR_PARAM,
                        "time_bucket: %d, expected PTL_JAGGED_TIME_SQRT or PTL_JAGGED_TIME_LOG",
                        (int)a->time_bucket);
    if (a->position_order == PTL_JAGGED_POSITION_FROM_START && ptl_given(&a->num_contexts))
        return ptl_fail(PTL_ERR_PARAM,
                        "num_contexts: given with PTL_JAGGED_POSITION_FROM_START, where contexts "
                        "count like other tokens");
    if (a->position_order == PTL_JAGGED_POSITION_FROM_END && ptl_given(&a->position_start))
        return ptl_fail(PTL_ERR_PARAM,
                        "position_start: given with PTL_JAGGED_POSITION_FROM_END, expected "
                        "PTL_JAGGED_POSITION_FROM_START");
    if (!isfinite(a->alpha))
        return ptl_fail(PTL_ERR_PARAM, "alpha: %g, expected a finite number", a->alpha);
    return PTL_OK;
}

/* Offsets and what is counted per sequence; rows is the number of rows of the array `rows_of`. */
static enum ptl_status check_sequences(const params_type *a, struct ptl_position_time *p,
                                       const char *rows_of) {
    enum ptl_dtype index_type = 0;
    TRY(ptl_check_required("seq_offsets", &a->seq_offsets));
    TRY(ptl_check_index("seq_offsets", &a->seq_offsets, 1, 1, &index_type));
    TRY(ptl_check_offsets("seq_offsets", &a->seq_offsets, p->n_rows));
    p->n_seqs = a->seq_offsets.shape[0] - 1;
    TRY(ptl_check_counts("num_targets", &a->num_targets, p->n_seqs, &index_type));
    TRY(ptl_check_counts("num_contexts", &a->num_contexts, p->n_seqs, &index_type));
    TRY(ptl_check_counts("position_start", &a->position_start, p->n_seqs, &index_type));
    p->offsets = ptl_index_of(&a->seq_offsets);
    if (ptl_given(&a->num_targets)) p->targets = ptl_index_of(&a->num_targets);
    if (ptl_given(&a->num_contexts)) p->contexts = ptl_index_of(&a->num_contexts);
    if (ptl_given(&a->position_start)) p->starts = ptl_index_of(&a->position_start);
    for (int64_t b = 0; b < p->n_seqs; b++) {
        const int64_t n = ptl_index_at(&p->offsets, b + 1) - ptl_index_at(&p->offsets, b);
        const int64_t targets = ptl_index_at(&p->targets, b);
        if (n > 0 && targets > n)
            return ptl_fail(PTL_ERR_SEQLEN,
                            "num_targets: %" PRId64 " in sequence %" PRId64
                            ", more than its %" PRId64 " tokens",
                            targets, b, n);
    }
    if (!ptl_given(&a->timestamps)) return PTL_OK;
    enum ptl_dtype time_type = 0; /* times are data: their type need not be that of the indices */
    TRY(ptl_check_index("timestamps", &a->timestamps, 1, 1, &time_type));
    TRY(ptl_check_extent("timestamps", &a->timestamps, 0, p->n_rows, rows_of));
    p->times = ptl_index_of(&a->timestamps);
    return PTL_OK;
}

/* Contexts take the positions 0, 1, ..: the table must have them. */
static enum ptl_status check_contexts(const struct ptl_position_time *p, const char *table_name) {
    if (!p->contexts.data) return PTL_OK;
    for (int64_t b = 0; b < p->n_seqs; b++) {
        const int64_t n = ptl_index_at(&p->offsets, b + 1) - ptl_index_at(&p->offsets, b);
        const int64_t contexts = ptl_index_at(&p->contexts, b);
        if (n > p->pos_w.n_rows && contexts > p->pos_w.n_rows)
            return ptl_fail(PTL_ERR_SEQLEN,
                            "num_contexts: %" PRId64 " in sequence %" PRId64
                            ", more than the %" PRId64 " rows of %s",
                            contexts, b, p->pos_w.n_rows, table_name);
    }
    return PTL_OK;
}

static enum ptl_status check_params(struct ptl_context *ctx, const params_type *a) {
    if (!ctx) return ptl_fail(PTL_ERR_NULL, "ctx: NULL, expected a context");
    if (!a) return ptl_fail(PTL_ERR_NULL, "params: NULL, expected arguments");
    if (a->struct_size != sizeof *a)
        return ptl_fail(PTL_ERR_PARAM,
                        "params.struct_size: %zu, expected %zu; use ptl_jagged_position_time_init",
                        a->struct_size, sizeof *a);
    return check_options(a);
}

/* Rows of a matrix as [1, rows, 1, columns], the form in which slices of one buffer are told
 * apart. */
static struct ptl_tensor as_rows(const struct ptl_tensor *t) {
    struct ptl_tensor r = *t;
    if (t->ndim != 2) return r;
    r.ndim = 4;
    r.shape[0] = r.shape[2] = 1;
    r.shape[1] = t->shape[0];
    r.shape[3] = t->shape[1];
    r.stride[0] = 0;
    r.stride[1] = t->stride[0];
    r.stride[2] = r.stride[3] = 1;
    return r;
}

static bool same_matrix(const struct ptl_tensor *a, const struct ptl_tensor *b) {
    return a->data == b->data && a->shape[0] == b->shape[0] && a->shape[1] == b->shape[1] &&
           (a->shape[0] <= 1 || a->stride[0] == b->stride[0]);
}

struct named {
    const char *name;
    const struct ptl_tensor *t;
};

/* outs[0] may be ins[0] itself. */
static enum ptl_status check_overlaps(const params_type *a, const struct named *outs, int n_outs,
                                      const struct named *ins, int n_ins) {
    const struct named indices[] = {
        {"seq_offsets", &a->seq_offsets},   {"num_targets", &a->num_targets},
        {"num_contexts", &a->num_contexts}, {"position_start", &a->position_start},
        {"timestamps", &a->timestamps},
    };
    for (int o = 0; o < n_outs; o++) {
        if (!ptl_given(outs[o].t)) continue;
        const struct ptl_tensor out = as_rows(outs[o].t);
        TRY(ptl_check_no_self_overlap(outs[o].name, outs[o].t));
        for (int i = 0; i < n_ins; i++) {
            const struct ptl_tensor in = as_rows(ins[i].t);
            if (o == 0 && i == 0 && same_matrix(outs[o].t, ins[i].t)) continue;
            TRY(ptl_check_no_overlap(outs[o].name, &out, ins[i].name, &in));
        }
        for (size_t i = 0; i < sizeof indices / sizeof indices[0]; i++)
            TRY(ptl_check_no_overlap(outs[o].name, outs[o].t, indices[i].name, indices[i].t));
        for (int k = 0; k < o; k++) {
            const struct ptl_tensor other = as_rows(outs[k].t);
            if (ptl_given(outs[k].t))
                TRY(ptl_check_no_overlap(outs[o].name, &out, outs[k].name, &other));
        }
    }
    return PTL_OK;
}

static void fill_problem(const params_type *a, struct ptl_position_time *p) {
    p->position_order = a->position_order;
    p->time_bucket = a->time_bucket;
    p->alpha = a->alpha;
}

enum ptl_status
ptl_jagged_position_time_forward(struct ptl_context *ctx,
                                 const struct ptl_jagged_position_time_params *params) {
    const params_type *a = params;
    struct agreed agreed = {.of = "emb", .rows = -1, .columns = -1};
    struct ptl_position_time p = {0};
    TRY(check_params(ctx, a));
    TRY(ptl_check_required("emb", &a->emb));
    TRY(ptl_check_required("pos_w", &a->pos_w));
    TRY(ptl_check_required("out", &a->out));
    TRY(check_rows("emb", &a->emb, &agreed, &p.x));
    TRY(check_rows("out", &a->out, &agreed, &p.out));
    TRY(check_table("pos_w", &a->pos_w, &agreed, &p.pos_w));
    p.n_rows = agreed.rows;
    p.n_columns = agreed.columns;
    if (ptl_given(&a->timestamps)) {
        TRY(ptl_check_required("ts_w", &a->ts_w));
        TRY(check_table("ts_w", &a->ts_w, &agreed, &p.ts_w));
    } else if (ptl_given(&a->ts_w) && p.n_rows > 0) {
        return ptl_fail(PTL_ERR_PARAM, "ts_w: given without timestamps, expected both or neither");
    }
    TRY(check_sequences(a, &p, "rows of emb"));
    TRY(check_contexts(&p, "pos_w"));
    const struct named outs[] = {{"out", &a->out}};
    const struct named ins[] = {{"emb", &a->emb}, {"pos_w", &a->pos_w}, {"ts_w", &a->ts_w}};
    TRY(check_overlaps(a, outs, 1, ins, 3));
    fill_problem(a, &p);

    pthread_mutex_lock(&ctx->lock);
    ptl_position_time_run_forward(ctx, &p);
    pthread_mutex_unlock(&ctx->lock);
    return PTL_OK;
}

enum ptl_status
ptl_jagged_position_time_backward(struct ptl_context *ctx,
                                  const struct ptl_jagged_position_time_params *params) {
    const params_type *a = params;
    struct agreed agreed = {.of = "dout", .rows = -1, .columns = -1};
    struct ptl_position_time p = {0};
    TRY(check_params(ctx, a));
    TRY(ptl_check_required("dout", &a->dout));
    TRY(check_rows("dout", &a->dout, &agreed, &p.x));
    p.n_rows = agreed.rows;
    p.n_columns = agreed.columns;
    if (!ptl_given(&a->demb) && !ptl_given(&a->dpos_w) && !ptl_given(&a->dts_w) && p.n_rows > 0)
        return ptl_fail(PTL_ERR_NULL, "demb, dpos_w, dts_w: all missing, expected at least one");
    if (ptl_given(&a->demb)) TRY(check_rows("demb", &a->demb, &agreed, &p.out));
    if (ptl_given(&a->dpos_w)) TRY(check_table("dpos_w", &a->dpos_w, &agreed, &p.pos_w));
    if (ptl_given(&a->dts_w)) {
        TRY(check_table("dts_w", &a->dts_w, &agreed, &p.ts_w));
        if (!ptl_given(&a->timestamps) && p.n_rows > 0)
            return ptl_fail(PTL_ERR_PARAM, "dts_w: given without timestamps, expected both");
    }
    TRY(check_sequences(a, &p, "rows of dout"));
    if (ptl_given(&a->dpos_w)) TRY(check_contexts(&p, "dpos_w"));
    const struct named outs[] = {{"demb", &a->demb}, {"dpos_w", &a->dpos_w}, {"dts_w", &a->dts_w}};
    const struct named ins[] = {{"dout", &a->dout}};
    TRY(check_overlaps(a, outs, 3, ins, 1));
    fill_problem(a, &p);

    pthread_mutex_lock(&ctx->lock);
    enum ptl_status status = ptl_position_time_run_backward(ctx, &p);
    pthread_mutex_unlock(&ctx->lock);
    if (status == PTL_ERR_NOMEM)
        ptl_fail(status, "scratch: no memory for the lists of %" PRId64 " tokens", p.n_rows);
    return status;
}
