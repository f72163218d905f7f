/* The checks of the attention calls, sparse and full: every row of the error contract
 * (docs/nsa.md), and on the way the problem as the operators walk it. Nothing is computed here. */
#include "nsa_check.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "../core/arith.h"
#include "../core/message.h"
#include "check.h"

enum { MAX_HEAD_DIM = 512, MAX_ARRAYS = 32 };

/* A call being checked: its arguments, and all its arrays for the check of overlaps. */
struct call {
    const struct ptl_nsa_params *a;
    struct ptl_nsa_problem *p;
    int lead; /* axes before the heads: 1 jagged, 2 dense */
    int64_t extent[2];
    const char *extent_of; /* whose they are */
    struct {
        const char *name;
        const struct ptl_tensor *t;
    } in[MAX_ARRAYS], out[MAX_ARRAYS];
    int n_in, n_out;
};

/* ---- Pieces ---------------------------------------------------------------------------------- */

enum ptl_status ptl_nsa_check_float(const char *name, const struct ptl_tensor *t,
                                    enum ptl_dtype like, const char *like_name) {
    if (t->dtype != PTL_F32 && t->dtype != PTL_F16 && t->dtype != PTL_BF16)
        return ptl_fail(PTL_ERR_DTYPE, "%s: %s, expected f32, f16 or bf16", name,
                        ptl_dtype_name(t->dtype));
    if (t->dtype != like)
        return ptl_fail(PTL_ERR_DTYPE, "%s: %s, but %s is %s; all must be alike", name,
                        ptl_dtype_name(t->dtype), like_name, ptl_dtype_name(like));
    return PTL_OK;
}

static enum ptl_status check_contiguous(const char *name, const struct ptl_tensor *t) {
    int64_t stride = 1;
    for (int i = t->ndim - 1; i >= 0; i--) {
        if (t->shape[i] > 1 && t->stride[i] != stride && !ptl_is_empty(t))
            return ptl_fail(PTL_ERR_LAYOUT,
                            "%s: stride %" PRId64 " on axis %d, expected %" PRId64
                            " (a contiguous array)",
                            name, t->stride[i], i, stride);
        stride *= t->shape[i];
    }
    return PTL_OK;
}

enum ptl_status ptl_nsa_check_blocks(int64_t block, int64_t stride) {
    if (block < 1 || block > INT32_MAX)
        return ptl_fail(PTL_ERR_PARAM, "block: %" PRId64 ", expected 1 to 2^31 - 1", block);
    if (stride < 1 || stride > block || block % stride != 0)
        return ptl_fail(PTL_ERR_PARAM, "stride: %" PRId64 ", expected a divisor of block %" PRId64,
                        stride, block);
    return PTL_OK;
}

enum ptl_status ptl_nsa_check_index(const char *name, const struct ptl_tensor *t, int n_axes) {
    enum ptl_dtype type = 0; /* index tensors need not be alike */
    TRY(ptl_check_index(name, t, n_axes, n_axes, &type));
    return check_contiguous(name, t);
}

enum ptl_status ptl_nsa_check_table(const char *name, const struct ptl_tensor *t, int64_t n_seqs) {
    TRY(ptl_nsa_check_index(name, t, 2));
    return ptl_check_extent(name, t, 0, n_seqs, "number of sequences");
}

enum ptl_status ptl_nsa_check_table_row(const char *name, const struct ptl_tensor *t, int64_t b,
                                        int64_t n_rows, int64_t page_size, int64_t n_pages) {
    const struct ptl_index x = ptl_index_of(t);
    const int64_t width = t->shape[1], used = n_rows / page_size + (n_rows % page_size != 0);
    if (used > width)
        return ptl_fail(PTL_ERR_TABLE,
                        "%s: %" PRId64 " pages for sequence %" PRId64 ", expected %" PRId64
                        " for %" PRId64 " rows",
                        name, width, b, used, n_rows);
    for (int64_t i = 0; i < used; i++) {
        const int64_t id = ptl_index_at(&x, b * width + i);
        if (id < 0 || id >= n_pages)
            return ptl_fail(PTL_ERR_TABLE,
                            "%s: entry %" PRId64 " of sequence %" PRId64 " is %" PRId64
                            ", expected 0 to %" PRId64,
                            name, i, b, id, n_pages - 1);
    }
    return PTL_OK;
}

static void add_in(struct call *c, const char *name, const struct ptl_tensor *t) {
    if (!ptl_given(t)) return;
    c->in[c->n_in].name = name;
    c->in[c->n_in++].t = t;
}

/* An array of query rows: the leading axes of the call, then these. */
static enum ptl_status check_rows(struct call *c, const char *name, const struct ptl_tensor *t,
                                  int n_tail, const int64_t *tail, const char *const *tail_of) {
    TRY(ptl_check_layout(name, t, c->lead + n_tail, c->lead + n_tail));
    for (int i = 0; i < c->lead; i++) TRY(ptl_check_extent(name, t, i, c->extent[i], c->extent_of));
    for (int i = 0; i < n_tail; i++)
        TRY(ptl_check_extent(name, t, c->lead + i, tail[i], tail_of[i]));
    return PTL_OK;
}

static struct ptl_rows rows_view(const struct call *c, const struct ptl_tensor *t) {
    if (!ptl_given(t)) return (struct ptl_rows){0};
    return (struct ptl_rows){t->data, (int64_t)ptl_dtype_bytes(t->dtype),
                             c->lead == 2 ? t->stride[0] : 0, t->stride[c->lead - 1],
                             t->stride[c->lead]};
}

/* An optional output of query rows. */
static enum ptl_status check_output(struct call *c, const char *name, const struct ptl_tensor *t,
                                    enum ptl_dtype type, int n_tail, const int64_t *tail,
                                    const char *const *tail_of, struct ptl_rows *rows) {
    if (!ptl_given(t)) return PTL_OK;
    TRY(check_rows(c, name, t, n_tail, tail, tail_of));
    if (t->dtype != type)
        return ptl_fail(PTL_ERR_DTYPE, "%s: %s, expected %s", name, ptl_dtype_name(t->dtype),
                        ptl_dtype_name(type));
    TRY(ptl_check_no_self_overlap(name, t));
    c->out[c->n_out].name = name;
    c->out[c->n_out++].t = t;
    *rows = rows_view(c, t);
    return PTL_OK;
}

static enum ptl_status check_overlaps(const struct call *c) {
    for (int i = 0; i < c->n_out; i++) {
        for (int j = 0; j < c->n_in; j++)
            TRY(ptl_check_no_overlap(c->out[i].name, c->out[i].t, c->in[j].name, c->in[j].t));
        for (int j = 0; j < i; j++)
            TRY(ptl_check_no_overlap(c->out[i].name, c->out[i].t, c->out[j].name, c->out[j].t));
    }
    return PTL_OK;
}

/* ---- Numbers --------------------------------------------------------------------------------- */

static enum ptl_status check_params(const struct ptl_nsa_params *a) {
    if (!a) return ptl_fail(PTL_ERR_NULL, "params: NULL, expected arguments");
    if (a->struct_size != sizeof *a)
        return ptl_fail(PTL_ERR_PARAM,
                        "params.struct_size: %zu, expected %zu; use ptl_nsa_params_init",
                        a->struct_size, sizeof *a);
    return PTL_OK;
}

static enum ptl_status check_choice(const char *name, int value, int n) {
    if (value >= 0 && value < n) return PTL_OK;
    return ptl_fail(PTL_ERR_PARAM, "%s: %d, expected one of its enum", name, value);
}

static enum ptl_status check_count(const char *name, int64_t value, int64_t least) {
    if (value >= least) return PTL_OK;
    return ptl_fail(PTL_ERR_PARAM, "%s: %" PRId64 ", expected %" PRId64 " or more", name, value,
                    least);
}

/* What a call reads of the numbers. */
enum { SCORES = 1, SELECTION = 2, BRANCHES = 4, GATES = 8 };

static enum ptl_status check_selection_numbers(const struct ptl_nsa_params *a,
                                               struct ptl_nsa_problem *p) {
    TRY(check_count("n_init", a->n_init, 0));
    TRY(check_count("n_local", a->n_local, 0));
    if (a->topk < 1 || a->topk > INT32_MAX || a->n_init > a->topk ||
        a->n_local > a->topk - a->n_init)
        return ptl_fail(PTL_ERR_PARAM,
                        "topk: %" PRId64
                        ", expected 1 to 2^31 - 1, and at least n_init + n_local = %" PRId64
                        " + %" PRId64,
                        a->topk, a->n_init, a->n_local);
    p->topk = a->topk;
    p->n_init = a->n_init;
    p->n_local = a->n_local;
    p->order = a->order;
    return check_choice("order", (int)a->order, 2);
}

static enum ptl_status check_score_numbers(const struct ptl_nsa_params *a,
                                           struct ptl_nsa_problem *p) {
    TRY(ptl_nsa_check_blocks(a->block, a->stride));
    if (a->select_block % a->stride != 0)
        return ptl_fail(PTL_ERR_PARAM,
                        "select_block: %" PRId64 ", expected a multiple of stride %" PRId64,
                        a->select_block, a->stride);
    TRY(check_choice("score", (int)a->score, 3));
    TRY(check_choice("pool", (int)a->pool, 2));
    if (a->score_dtype != PTL_F32 && a->score_dtype != PTL_F16 && a->score_dtype != PTL_BF16)
        return ptl_fail(PTL_ERR_PARAM, "score_dtype: %s, expected f32, f16 or bf16",
                        ptl_dtype_name(a->score_dtype));
    const int64_t b = a->block / a->stride;
    p->block = a->block;
    p->stride = a->stride;
    p->offset = a->score == PTL_NSA_OVERLAP ? 1 - b : a->score == PTL_NSA_ASCEND ? 2 - b : 0;
    p->pool = a->pool;
    p->score_dtype = a->score_dtype;
    return PTL_OK;
}

static enum ptl_status check_numbers(struct call *c, int reads) {
    const struct ptl_nsa_params *a = c->a;
    struct ptl_nsa_problem *p = c->p;
    p->block = p->stride = p->select_block = p->topk = 1; /* of what the call does not read */
    p->score_dtype = PTL_F32;
    p->swa_split = PTL_NSA_SPLIT;
    if (reads & (SCORES | SELECTION | BRANCHES)) {
        if (a->select_block < 1 || a->select_block > INT32_MAX)
            return ptl_fail(PTL_ERR_PARAM, "select_block: %" PRId64 ", expected 1 to 2^31 - 1",
                            a->select_block);
        p->select_block = a->select_block;
    }
    if (reads & SCORES) TRY(check_score_numbers(a, p));
    if (reads & SELECTION) TRY(check_selection_numbers(a, p));
    if (reads & BRANCHES) {
        TRY(check_count("window", a->window, 0));
        TRY(check_count("dense_len", a->dense_len, 0));
        p->window = a->window;
        p->dense_len = a->dense_len;
    }
    p->gate_sigmoid = a->gate_act == PTL_NSA_GATE_SIGMOID;
    return reads & GATES ? check_choice("gate_act", (int)a->gate_act, 2) : PTL_OK;
}

static enum ptl_status check_scale(float scale, int64_t dqk, float *to) {
    if (isinf(scale)) return ptl_fail(PTL_ERR_PARAM, "scale: %g, expected a finite number", scale);
    if (isnan(scale)) scale = (float)(1.0 / sqrt((double)dqk));
    *to = scale * 1.44269504f;
    return PTL_OK;
}

/* ---- Query rows and sequences ---------------------------------------------------------------- */

/* The array that gives the leading axes, and with its tail the number of heads. */
static enum ptl_status check_first(struct call *c, const char *name, const struct ptl_tensor *t,
                                   int n_tail) {
    TRY(ptl_check_required(name, t));
    TRY(ptl_check_layout(name, t, 1 + n_tail, 2 + n_tail));
    c->lead = t->ndim - n_tail;
    c->extent[0] = t->shape[0];
    c->extent[1] = t->shape[1];
    c->extent_of = name;
    c->p->dense = c->lead == 2;
    c->p->q_rows = t->shape[c->lead - 1];
    return PTL_OK;
}

static enum ptl_status check_queries(struct call *c, const char *name, const struct ptl_tensor *q) {
    struct ptl_nsa_problem *p = c->p;
    TRY(check_first(c, name, q, 2));
    TRY(ptl_nsa_check_float(name, q, q->dtype, name));
    p->dtype = q->dtype;
    p->n_q_heads = q->shape[c->lead];
    if (p->n_q_heads < 1 || p->n_q_heads > INT32_MAX)
        return ptl_fail(PTL_ERR_SHAPE, "%s: %" PRId64 " heads, expected at least 1", name,
                        p->n_q_heads);
    const int64_t dim = q->shape[c->lead + 1];
    if (dim < 1 || dim > MAX_HEAD_DIM)
        return ptl_fail(PTL_ERR_SHAPE, "%s: head size %" PRId64 ", expected 1 to %d", name, dim,
                        MAX_HEAD_DIM);
    p->dqk = (int)dim;
    add_in(c, name, q);
    return check_scale(c->a->scale, dim, &p->scale);
}

static enum ptl_status check_kv_heads(struct call *c, const char *name, int64_t n) {
    struct ptl_nsa_problem *p = c->p;
    if (n < 1 || p->n_q_heads % n != 0)
        return ptl_fail(PTL_ERR_SHAPE,
                        "%s: %" PRId64 " heads, but q has %" PRId64
                        "; q heads must be a multiple of them",
                        name, n, p->n_q_heads);
    p->n_k_heads = n;
    p->group = p->n_q_heads / n;
    return PTL_OK;
}

/* Offsets of the query rows, and the lengths of the sequences. k_rows: dense keys, or -1. */
static enum ptl_status check_sequences(struct call *c, int64_t k_rows) {
    const struct ptl_nsa_params *a = c->a;
    struct ptl_nsa_problem *p = c->p;
    const bool paged = ptl_given(&a->page_table);
    if (p->dense) {
        if (ptl_given(&a->seq_offsets_q))
            return ptl_fail(PTL_ERR_PARAM, "seq_offsets_q: given, but %s is dense", c->extent_of);
        p->n_seqs = c->extent[0];
    } else {
        TRY(ptl_check_required("seq_offsets_q", &a->seq_offsets_q));
        TRY(ptl_nsa_check_index("seq_offsets_q", &a->seq_offsets_q, 1));
        TRY(ptl_check_offsets("seq_offsets_q", &a->seq_offsets_q, c->extent[0]));
        p->n_seqs = a->seq_offsets_q.shape[0] - 1;
        add_in(c, "seq_offsets_q", &a->seq_offsets_q);
        p->offsets_q = ptl_index_of(&a->seq_offsets_q);
        if (ptl_index_at(&p->offsets_q, p->n_seqs) != c->extent[0])
            return ptl_fail(PTL_ERR_SEQLEN,
                            "seq_offsets_q: ends with %" PRId64 ", expected the %" PRId64
                            " rows of %s",
                            ptl_index_at(&p->offsets_q, p->n_seqs), c->extent[0], c->extent_of);
    }
    p->dense_len_k = k_rows >= 0 ? k_rows : p->q_rows;
    p->offsets_k = p->offsets_q;
    if (ptl_given(&a->seq_offsets_k)) {
        if (p->dense || paged)
            return ptl_fail(PTL_ERR_PARAM, "seq_offsets_k: given, but k is %s; use seqlens_k",
                            paged ? "paged" : "dense");
        TRY(ptl_nsa_check_index("seq_offsets_k", &a->seq_offsets_k, 1));
        TRY(ptl_check_extent("seq_offsets_k", &a->seq_offsets_k, 0, p->n_seqs + 1,
                             "entries of seq_offsets_q"));
        TRY(ptl_check_offsets("seq_offsets_k", &a->seq_offsets_k, INT64_MAX));
        p->offsets_k = ptl_index_of(&a->seq_offsets_k);
    }
    if (ptl_given(&a->seqlens_k)) {
        TRY(ptl_nsa_check_index("seqlens_k", &a->seqlens_k, 1));
        TRY(ptl_check_extent("seqlens_k", &a->seqlens_k, 0, p->n_seqs, "number of sequences"));
        p->lens_k = ptl_index_of(&a->seqlens_k);
        add_in(c, "seqlens_k", &a->seqlens_k);
    } else if (paged) {
        TRY(ptl_check_required("seqlens_k", &a->seqlens_k));
    }
    for (int64_t b = 0; b < p->n_seqs; b++) {
        const struct ptl_nsa_seq s = ptl_nsa_sequence(p, b);
        const char *name = p->lens_k.data ? "seqlens_k" : "seq_offsets_k";
        if (s.n_k < 0 || s.n_k / p->select_block > INT32_MAX - 1)
            return ptl_fail(PTL_ERR_SEQLEN,
                            "%s: %" PRId64 " tokens in sequence %" PRId64
                            ", expected 0 to 2^31 blocks",
                            name, s.n_k, b);
        if (s.n_q > s.n_k)
            return ptl_fail(PTL_ERR_SEQLEN,
                            "%s: %" PRId64 " tokens in sequence %" PRId64
                            ", fewer than its %" PRId64 " query rows",
                            name, s.n_k, b, s.n_q);
    }
    return PTL_OK;
}

/* ---- Keys and values ------------------------------------------------------------------------- */

struct store_args {
    const char *k_name, *v_name;
    const struct ptl_tensor *k, *v; /* v may be absent when it is optional */
    const char *offsets_name, *table_name;
    const struct ptl_tensor *offsets, *table;
    bool compressed; /* rows are compressed blocks, not tokens */
};

/* Rows that sequence b needs there. */
static int64_t rows_needed(const struct call *c, const struct store_args *x, int64_t b) {
    const int64_t n = ptl_nsa_sequence(c->p, b).n_k;
    return x->compressed ? ptl_nsa_compressed_length(n, c->p->block, c->p->stride) : n;
}

static enum ptl_status check_store_rows(const struct call *c, const struct store_args *x) {
    const struct ptl_nsa_problem *p = c->p;
    const struct ptl_index offsets = ptl_index_of(x->offsets);
    for (int64_t b = 0; b < p->n_seqs; b++) {
        const int64_t need = rows_needed(c, x, b);
        if (ptl_given(x->table)) {
            TRY(ptl_nsa_check_table_row(x->table_name, x->table, b, need, x->k->shape[1],
                                        x->k->shape[0]));
            continue;
        }
        const bool dense = x->k->ndim == 4;
        const int64_t have =
            dense ? x->k->shape[1] : ptl_index_at(&offsets, b + 1) - ptl_index_at(&offsets, b);
        if (have < need)
            return ptl_fail(PTL_ERR_SEQLEN,
                            "%s: %" PRId64 " rows for sequence %" PRId64 ", expected %" PRId64,
                            dense ? x->k_name : x->offsets_name, have, b, need);
    }
    return PTL_OK;
}

/* Tokens are laid out as q or in pages; compressed keys may be jagged or dense beside either. */
static int axes_of_keys(const struct call *c, const struct ptl_tensor *k, bool compressed,
                        bool paged) {
    if (compressed) return paged || k->ndim != 3 ? 4 : 3;
    return paged ? 4 : c->lead + 2;
}

static enum ptl_status check_store(struct call *c, const struct store_args *x,
                                   struct ptl_nsa_store *s) {
    struct ptl_nsa_problem *p = c->p;
    const bool paged = ptl_given(x->table);
    const int n_axes = axes_of_keys(c, x->k, x->compressed, paged), row = n_axes - 3;
    const struct ptl_tensor *t[2] = {x->k, x->v};
    const char *names[2] = {x->k_name, x->v_name};
    for (int i = 0; i < 2; i++) {
        if (!ptl_given(t[i]) && i == 1) continue;
        TRY(ptl_check_layout(names[i], t[i], n_axes, n_axes));
        TRY(ptl_nsa_check_float(names[i], t[i], p->dtype, c->extent_of));
        TRY(ptl_check_extent(names[i], t[i], row + 1, p->n_k_heads, "kv heads"));
        for (int axis = 0; i == 1 && axis <= row; axis++)
            TRY(ptl_check_extent(names[1], t[1], axis, t[0]->shape[axis], names[0]));
        add_in(c, names[i], t[i]);
    }
    TRY(ptl_check_extent(x->k_name, x->k, row + 2, p->dqk, "head size of q"));
    if (ptl_given(x->v)) {
        const int64_t dim = x->v->shape[row + 2];
        if (dim < 1 || dim > MAX_HEAD_DIM)
            return ptl_fail(PTL_ERR_SHAPE, "%s: head size %" PRId64 ", expected 1 to %d", x->v_name,
                            dim, MAX_HEAD_DIM);
        if (p->dv == 0) p->dv = (int)dim;
        TRY(ptl_check_extent(x->v_name, x->v, row + 2, p->dv, "head size of the values"));
    }
    s->k = ptl_rows_of(x->k);
    if (ptl_given(x->v)) s->v = ptl_rows_of(x->v);
    if (paged) {
        if (x->k->shape[1] < 1)
            return ptl_fail(PTL_ERR_TABLE, "%s: page size 0, expected 1 or more", x->k_name);
        TRY(ptl_nsa_check_table(x->table_name, x->table, p->n_seqs));
        s->table = ptl_index_of(x->table);
        s->table_width = x->table->shape[1];
        s->page_size = x->k->shape[1];
        add_in(c, x->table_name, x->table);
    } else if (n_axes == 4) {
        TRY(ptl_check_extent(x->k_name, x->k, 0, p->n_seqs, "number of sequences"));
    } else {
        TRY(ptl_check_required(x->offsets_name, x->offsets));
        TRY(ptl_nsa_check_index(x->offsets_name, x->offsets, 1));
        TRY(ptl_check_extent(x->offsets_name, x->offsets, 0, p->n_seqs + 1,
                             "entries of seq_offsets_q"));
        TRY(ptl_check_offsets(x->offsets_name, x->offsets, x->k->shape[0]));
        s->offsets = ptl_index_of(x->offsets);
        add_in(c, x->offsets_name, x->offsets);
    }
    return check_store_rows(c, x);
}

static enum ptl_status check_tokens(struct call *c, const char *k_name, const struct ptl_tensor *k,
                                    const char *v_name, const struct ptl_tensor *v,
                                    struct ptl_nsa_store *s) {
    const struct ptl_nsa_params *a = c->a;
    const bool own = ptl_given(&a->seq_offsets_k);
    TRY(ptl_check_required(k_name, k));
    TRY(ptl_check_required(v_name, v));
    return check_store(c,
                       &(struct store_args){k_name, v_name, k, v,
                                            own ? "seq_offsets_k" : "seq_offsets_q", "page_table",
                                            own ? &a->seq_offsets_k : &a->seq_offsets_q,
                                            &a->page_table, false},
                       s);
}

static enum ptl_status check_compressed_store(struct call *c) {
    const struct ptl_nsa_params *a = c->a;
    TRY(ptl_check_required("kc", &a->kc));
    return check_store(c,
                       &(struct store_args){"kc", "vc", &a->kc, &a->vc, "seq_offsets_kc",
                                            "page_table_c", &a->seq_offsets_kc, &a->page_table_c,
                                            true},
                       &c->p->cmp);
}

/* kv heads and dense length come from the first array of keys that the call has. */
static enum ptl_status check_keys_first(struct call *c, const char *name,
                                        const struct ptl_tensor *k, bool tokens, bool paged) {
    TRY(ptl_check_required(name, k));
    const int n_axes = axes_of_keys(c, k, !tokens, paged);
    TRY(ptl_check_layout(name, k, n_axes, n_axes));
    TRY(check_kv_heads(c, name, k->shape[n_axes - 2]));
    return check_sequences(c, tokens && c->p->dense && !paged ? k->shape[1] : -1);
}

/* ---- Arguments and outputs of the operators -------------------------------------------------- */

static enum ptl_status check_q_cmp(struct call *c) {
    const struct ptl_nsa_params *a = c->a;
    struct ptl_nsa_problem *p = c->p;
    const int64_t tail[2] = {p->n_q_heads, p->dqk};
    static const char *const of[2] = {"heads of q", "head size of q"};
    p->q_cmp = p->q;
    if (!ptl_given(&a->q_cmp) || p->q_cmp.data == a->q_cmp.data) return PTL_OK;
    TRY(check_rows(c, "q_cmp", &a->q_cmp, 2, tail, of));
    TRY(ptl_nsa_check_float("q_cmp", &a->q_cmp, p->dtype, c->extent_of));
    add_in(c, "q_cmp", &a->q_cmp);
    p->q_cmp = rows_view(c, &a->q_cmp);
    return PTL_OK;
}

static enum ptl_status check_lse_in(struct call *c) {
    const struct ptl_nsa_params *a = c->a;
    static const char *const of[1] = {"heads of q"};
    if (!ptl_given(&a->lse_in)) return PTL_OK;
    TRY(check_rows(c, "lse_in", &a->lse_in, 1, &c->p->n_q_heads, of));
    if (a->lse_in.dtype != PTL_F32)
        return ptl_fail(PTL_ERR_DTYPE, "lse_in: %s, expected f32", ptl_dtype_name(a->lse_in.dtype));
    if (ptl_given(&a->lse_cmp))
        return ptl_fail(PTL_ERR_PARAM, "lse_cmp: given with lse_in, which takes its place");
    add_in(c, "lse_in", &a->lse_in);
    c->p->lse_in = rows_view(c, &a->lse_in);
    return PTL_OK;
}

static enum ptl_status check_count_array(struct call *c) {
    const struct ptl_nsa_params *a = c->a;
    static const char *const of[1] = {"kv heads"};
    if (!ptl_given(&a->count)) return PTL_OK;
    TRY(check_rows(c, "count", &a->count, 1, &c->p->n_k_heads, of));
    TRY(ptl_nsa_check_index("count", &a->count, c->lead + 1));
    add_in(c, "count", &a->count);
    c->p->count = ptl_index_of(&a->count);
    c->p->count.stride = 1;
    return PTL_OK;
}

static enum ptl_status check_scores_extent(struct call *c, const struct ptl_tensor *t) {
    const int64_t n = t->shape[c->lead + 1];
    for (int64_t b = 0; b < c->p->n_seqs; b++) {
        const struct ptl_nsa_seq s = ptl_nsa_sequence(c->p, b);
        const int64_t need = s.n_q ? (s.n_k - 1) / c->p->select_block + 1 : 0;
        if (n < need)
            return ptl_fail(PTL_ERR_SHAPE,
                            "importance: %" PRId64 " blocks on the last axis, expected %" PRId64
                            " for sequence %" PRId64,
                            n, need, b);
    }
    c->p->n_scores = n;
    return PTL_OK;
}

static enum ptl_status check_selection_outputs(struct call *c) {
    const struct ptl_nsa_params *a = c->a;
    struct ptl_nsa_problem *p = c->p;
    const int64_t idx[2] = {p->n_k_heads, p->topk};
    static const char *const of[2] = {"kv heads", "topk"};
    TRY(check_output(c, "idx", &a->idx, PTL_I32, 2, idx, of, &p->idx));
    if (!ptl_given(&a->idx)) { /* room for as many as there are is enough */
        int64_t most = 1;
        for (int64_t b = 0; b < p->n_seqs; b++)
            most = ptl_max64(most, ptl_nsa_sequence(p, b).n_k / p->select_block + 1);
        p->topk = ptl_min64(p->topk, most);
    }
    return check_output(c, "nsel", &a->nsel, PTL_I32, 1, idx, of, &p->nsel);
}

static enum ptl_status check_compressed_outputs(struct call *c) {
    const struct ptl_nsa_params *a = c->a;
    struct ptl_nsa_problem *p = c->p;
    static const char *const of[2] = {"heads of q", "head size of the values"};
    static const char *const score_of[2] = {"kv heads", "blocks"};
    const int64_t rows[2] = {p->n_q_heads, p->dv};
    if (ptl_given(&a->out_cmp) && p->dv == 0)
        return ptl_fail(PTL_ERR_NULL, "vc: missing, but out_cmp is given");
    TRY(check_output(c, "out_cmp", &a->out_cmp, p->dtype, 2, rows, of, &p->out_cmp));
    TRY(check_output(c, "lse_cmp", &a->lse_cmp, PTL_F32, 1, rows, of, &p->lse_cmp));
    if (ptl_given(&a->importance)) {
        TRY(ptl_check_layout("importance", &a->importance, c->lead + 2, c->lead + 2));
        const int64_t score[2] = {p->n_k_heads, a->importance.shape[c->lead + 1]};
        TRY(check_output(c, "importance", &a->importance, PTL_F32, 2, score, score_of,
                         &p->importance));
        TRY(check_scores_extent(c, &a->importance));
    }
    return check_selection_outputs(c);
}

static enum ptl_status check_branch_outputs(struct call *c) {
    const struct ptl_nsa_params *a = c->a;
    struct ptl_nsa_problem *p = c->p;
    static const char *const of[2] = {"heads of q", "head size of the values"};
    const int64_t rows[2] = {p->n_q_heads, p->dv};
    TRY(check_output(c, "out_slc", &a->out_slc, p->dtype, 2, rows, of, &p->out_slc));
    TRY(check_output(c, "lse_slc", &a->lse_slc, PTL_F32, 1, rows, of, &p->lse_slc));
    TRY(check_output(c, "out_swa", &a->out_swa, p->dtype, 2, rows, of, &p->out_swa));
    return check_output(c, "lse_swa", &a->lse_swa, PTL_F32, 1, rows, of, &p->lse_swa);
}

/* k, v and where the sliding branch has its own, k_swa, v_swa. */
static enum ptl_status check_both_tokens(struct call *c) {
    const struct ptl_nsa_params *a = c->a;
    struct ptl_nsa_problem *p = c->p;
    TRY(check_tokens(c, "k", &a->k, "v", &a->v, &p->slc));
    p->swa = p->slc;
    p->same_tokens = true;
    if (!ptl_given(&a->k_swa) && !ptl_given(&a->v_swa)) return PTL_OK;
    p->same_tokens = false;
    return check_tokens(c, "k_swa", &a->k_swa, "v_swa", &a->v_swa, &p->swa);
}

static enum ptl_status check_gates(struct call *c) {
    const struct ptl_nsa_params *a = c->a;
    struct ptl_nsa_problem *p = c->p;
    const int64_t gates[2] = {p->n_q_heads, 3}, rows[2] = {p->n_q_heads, p->dv};
    static const char *const gates_of[2] = {"heads of q", "branches"};
    static const char *const of[2] = {"heads of q", "head size of the values"};
    TRY(ptl_check_required("gates", &a->gates));
    TRY(check_rows(c, "gates", &a->gates, 2, gates, gates_of));
    if (a->gates.dtype != PTL_F32)
        TRY(ptl_nsa_check_float("gates", &a->gates, p->dtype, c->extent_of));
    add_in(c, "gates", &a->gates);
    p->gates = rows_view(c, &a->gates);
    p->gates_dtype = a->gates.dtype;
    TRY(ptl_check_required("out", &a->out));
    return check_output(c, "out", &a->out, p->dtype, 2, rows, of, &p->out);
}

/* ---- The operators --------------------------------------------------------------------------- */

static enum ptl_status begin_check(struct call *c, const struct ptl_nsa_params *a,
                                   struct ptl_nsa_problem *p, int reads) {
    TRY(check_params(a));
    memset(c, 0, sizeof *c);
    memset(p, 0, sizeof *p);
    c->a = a;
    c->p = p;
    return check_numbers(c, reads);
}

enum ptl_status ptl_nsa_check_compressed(const struct ptl_nsa_params *a,
                                         struct ptl_nsa_problem *p) {
    struct call c;
    TRY(begin_check(&c, a, p, SCORES | SELECTION));
    const bool own = ptl_given(&a->q_cmp);
    TRY(check_queries(&c, own ? "q_cmp" : "q", own ? &a->q_cmp : &a->q));
    p->q = p->q_cmp = rows_view(&c, own ? &a->q_cmp : &a->q);
    TRY(check_keys_first(&c, "kc", &a->kc, false, ptl_given(&a->page_table_c)));
    TRY(check_compressed_store(&c));
    p->has_cmp = true;
    TRY(check_lse_in(&c));
    TRY(check_count_array(&c));
    TRY(check_compressed_outputs(&c));
    if (c.n_out == 0)
        return ptl_fail(PTL_ERR_NULL, "out_cmp: missing, and so are lse_cmp, importance, idx and "
                                      "nsel; expected at least one");
    /* Values that nothing is made of are not read. */
    if (!p->out_cmp.data) p->cmp.v.data = NULL;
    return check_overlaps(&c);
}

enum ptl_status ptl_nsa_check_select(const struct ptl_nsa_params *a, struct ptl_nsa_problem *p) {
    struct call c;
    TRY(begin_check(&c, a, p, SELECTION));
    TRY(check_first(&c, "importance", &a->importance, 2));
    if (a->importance.dtype != PTL_F32)
        return ptl_fail(PTL_ERR_DTYPE, "importance: %s, expected f32",
                        ptl_dtype_name(a->importance.dtype));
    p->n_q_heads = p->n_k_heads = a->importance.shape[c.lead];
    p->group = 1;
    TRY(check_sequences(&c, -1));
    TRY(check_scores_extent(&c, &a->importance));
    add_in(&c, "importance", &a->importance);
    p->importance = rows_view(&c, &a->importance);
    TRY(check_count_array(&c));
    TRY(ptl_check_required("idx", &a->idx));
    TRY(check_selection_outputs(&c));
    return check_overlaps(&c);
}

enum ptl_status ptl_nsa_check_attend(const struct ptl_nsa_params *a, struct ptl_nsa_problem *p) {
    struct call c;
    TRY(begin_check(&c, a, p, BRANCHES));
    TRY(check_queries(&c, "q", &a->q));
    p->q = p->q_cmp = rows_view(&c, &a->q);
    TRY(check_keys_first(&c, "k", &a->k, true, ptl_given(&a->page_table)));
    TRY(check_both_tokens(&c));
    if (ptl_given(&a->idx)) {
        TRY(ptl_check_layout("idx", &a->idx, c.lead + 2, c.lead + 2));
        const int64_t tail[2] = {p->n_k_heads, a->idx.shape[c.lead + 1]};
        static const char *const of[2] = {"kv heads", "blocks"};
        TRY(check_rows(&c, "idx", &a->idx, 2, tail, of));
        TRY(ptl_nsa_check_index("idx", &a->idx, c.lead + 2));
        add_in(&c, "idx", &a->idx);
        p->idx_in = ptl_index_of(&a->idx);
        p->n_idx = tail[1];
    }
    TRY(check_branch_outputs(&c));
    if (c.n_out == 0)
        return ptl_fail(PTL_ERR_NULL, "out_slc: missing, and so are lse_slc, out_swa and lse_swa; "
                                      "expected at least one");
    p->has_slc = ptl_given(&a->idx) && (p->out_slc.data || p->lse_slc.data);
    p->has_swa = p->window > 0 && (p->out_swa.data || p->lse_swa.data);
    return check_overlaps(&c);
}

enum ptl_status ptl_nsa_check_combine(const struct ptl_nsa_params *a, struct ptl_nsa_problem *p) {
    struct call c;
    TRY(begin_check(&c, a, p, GATES));
    TRY(check_first(&c, "out", &a->out, 2));
    TRY(ptl_nsa_check_float("out", &a->out, a->out.dtype, "out"));
    p->dtype = a->out.dtype;
    p->n_q_heads = a->out.shape[c.lead];
    if (a->out.shape[c.lead + 1] < 1 || a->out.shape[c.lead + 1] > MAX_HEAD_DIM)
        return ptl_fail(PTL_ERR_SHAPE, "out: head size %" PRId64 ", expected 1 to %d",
                        a->out.shape[c.lead + 1], MAX_HEAD_DIM);
    p->dv = (int)a->out.shape[c.lead + 1];
    p->n_seqs = p->dense ? c.extent[0] : 1;
    const struct ptl_tensor *t[3] = {&a->out_cmp, &a->out_slc, &a->out_swa};
    static const char *const names[3] = {"out_cmp", "out_slc", "out_swa"};
    struct ptl_rows *rows[3] = {&p->out_cmp, &p->out_slc, &p->out_swa};
    const int64_t tail[2] = {p->n_q_heads, p->dv};
    static const char *const of[2] = {"heads of out", "head size of out"};
    for (int i = 0; i < 3; i++) {
        if (!ptl_given(t[i])) continue;
        TRY(check_rows(&c, names[i], t[i], 2, tail, of));
        TRY(ptl_nsa_check_float(names[i], t[i], p->dtype, "out"));
        add_in(&c, names[i], t[i]);
        *rows[i] = rows_view(&c, t[i]);
    }
    TRY(check_gates(&c));
    return check_overlaps(&c);
}

enum ptl_status ptl_nsa_check_forward(const struct ptl_nsa_params *a, struct ptl_nsa_problem *p,
                                      bool *compresses) {
    struct call c;
    TRY(begin_check(&c, a, p, SCORES | SELECTION | BRANCHES | GATES));
    *compresses = !ptl_given(&a->kc) && !ptl_given(&a->vc);
    TRY(check_queries(&c, "q", &a->q));
    p->q = rows_view(&c, &a->q);
    TRY(check_q_cmp(&c));
    TRY(check_keys_first(&c, "k", &a->k, true, ptl_given(&a->page_table)));
    TRY(check_both_tokens(&c));
    if (!*compresses) {
        TRY(ptl_check_required("vc", &a->vc));
        TRY(check_compressed_store(&c));
    }
    p->has_cmp = p->has_slc = p->selects = true;
    p->has_swa = p->window > 0;
    TRY(check_lse_in(&c));
    TRY(check_count_array(&c));
    TRY(check_compressed_outputs(&c));
    TRY(check_branch_outputs(&c));
    TRY(check_gates(&c));
    return check_overlaps(&c);
}

enum ptl_status ptl_attention_check(const struct ptl_attention_params *a,
                                    struct ptl_nsa_problem *p) {
    struct ptl_nsa_params s; /* the sliding branch of sparse attention */
    if (!a) return ptl_fail(PTL_ERR_NULL, "params: NULL, expected arguments");
    if (a->struct_size != sizeof *a)
        return ptl_fail(PTL_ERR_PARAM,
                        "params.struct_size: %zu, expected %zu; use ptl_attention_params_init",
                        a->struct_size, sizeof *a);
    TRY(check_count("window", a->window, 0));
    ptl_nsa_params_init(&s);
    s.scale = a->scale;
    s.window = a->window ? a->window : INT64_MAX;
    s.q = a->q;
    s.k = a->k;
    s.v = a->v;
    s.seq_offsets_q = a->seq_offsets_q;
    s.seq_offsets_k = a->seq_offsets_k;
    s.seqlens_k = a->seqlens_k;
    s.page_table = a->page_table;

    struct call c;
    TRY(begin_check(&c, &s, p, BRANCHES));
    p->swa_split = PTL_ATTENTION_SPLIT;
    TRY(check_queries(&c, "q", &s.q));
    p->q = p->q_cmp = rows_view(&c, &s.q);
    TRY(check_keys_first(&c, "k", &s.k, true, ptl_given(&s.page_table)));
    TRY(check_tokens(&c, "k", &s.k, "v", &s.v, &p->swa));
    static const char *const of[2] = {"heads of q", "head size of v"};
    const int64_t rows[2] = {p->n_q_heads, p->dv};
    TRY(ptl_check_required("out", &a->out));
    TRY(check_output(&c, "out", &a->out, p->dtype, 2, rows, of, &p->out_swa));
    TRY(check_output(&c, "lse", &a->lse, PTL_F32, 1, rows, of, &p->lse_swa));
    p->has_swa = true;
    return check_overlaps(&c);
}
