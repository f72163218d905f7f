/* PTL_VERBOSE=1: calls of sparse and full attention as problem lines on stderr. Contents of arrays
 * are not logged, only shapes and options. */
#include <inttypes.h>
#include <math.h>

#include "check.h"
#include "verbose.h"

/* Combining takes all rows, whatever sequences they are of: they are logged as one. */
static bool has_sequences(const struct ptl_nsa_problem *p) {
    return p->dense || p->offsets_q.data;
}

static int64_t tokens_of(const void *p, int64_t i) {
    const struct ptl_nsa_problem *x = p;
    return has_sequences(x) && x->n_k_heads ? ptl_nsa_sequence(x, i).n_k : x->q_rows;
}

static int64_t rows_of(const void *p, int64_t i) {
    const struct ptl_nsa_problem *x = p;
    return has_sequences(x) ? ptl_nsa_sequence(x, i).n_q : x->q_rows;
}

static const char *layout_of(bool dense) {
    return dense ? "dense" : "jagged";
}

void ptl_verbose_nsa(const char *op, const struct ptl_context *ctx, const struct ptl_nsa_params *a,
                     const struct ptl_nsa_problem *p, double begin) {
    static const char *const scores[] = {"overlap", "plus", "ascend"};
    struct ptl_verbose_line line;
    if (!ptl_verbose_open(&line, begin)) return;
    FILE *f = line.f;
    fprintf(f, "%s layout=%s b=%" PRId64 " h=%" PRId64 " hk=%" PRId64, op, layout_of(p->dense),
            p->n_seqs, p->n_q_heads, p->n_k_heads ? p->n_k_heads : 1);
    ptl_verbose_lengths(f, "lengths", tokens_of, p, p->n_seqs);
    if (p->dense) fprintf(f, " sq=%" PRId64, p->q_rows);
    else ptl_verbose_lengths(f, "lengths_q", rows_of, p, p->n_seqs);
    fprintf(f, " d=%d", p->dqk ? p->dqk : p->dv ? p->dv : 1);
    if (p->dv) fprintf(f, " dv=%d", p->dv);
    if (p->dtype) fprintf(f, " dtype=%s", ptl_dtype_name(p->dtype));
    const int64_t page_size = p->slc.page_size   ? p->slc.page_size
                              : p->swa.page_size ? p->swa.page_size
                                                 : p->cmp.page_size;
    if (page_size) fprintf(f, " page_size=%" PRId64, page_size);
    if (!isnan(a->scale)) fprintf(f, " scale=%.9g", (double)a->scale);
    fprintf(f, " window=%" PRId64, a->window);
    if (p->has_cmp || p->has_slc || p->importance.data)
        fprintf(f,
                " block=%" PRId64 " stride=%" PRId64 " select_block=%" PRId64 " topk=%" PRId64
                " n_init=%" PRId64 " n_local=%" PRId64 " dense_len=%" PRId64
                " score=%s pool=%s order=%s score_dtype=%s gate_act=%s",
                a->block, a->stride, a->select_block, a->topk, a->n_init, a->n_local, a->dense_len,
                scores[a->score], a->pool == PTL_NSA_POOL_MAX ? "max" : "sum",
                a->order == PTL_NSA_ORDER_SCORE ? "score" : "index", ptl_dtype_name(a->score_dtype),
                a->gate_act == PTL_NSA_GATE_SIGMOID ? "sigmoid" : "none");
    if (a->kc.data && p->has_slc) fprintf(f, " kc=1");
    if (a->q_cmp.data && a->q_cmp.data != a->q.data) fprintf(f, " q_cmp=1");
    if (a->k_swa.data && !p->same_tokens) fprintf(f, " k_swa=1");
    ptl_verbose_close(&line, ctx);
}

static int64_t length_of(const void *c, int64_t i) {
    return ptl_nsa_len(c, i);
}

static int64_t new_rows_of(const void *c, int64_t i) {
    const struct ptl_nsa_compression *x = c;
    return ptl_nsa_len(c, i) - ptl_index_at(&x->lens_old, i);
}

void ptl_verbose_compression(const char *op, const struct ptl_context *ctx,
                             const struct ptl_nsa_compression *c, double begin) {
    struct ptl_verbose_line line;
    if (c->n_seqs == 0 || !ptl_verbose_open(&line, begin)) return;
    FILE *f = line.f;
    fprintf(f, "%s b=%" PRId64 " hk=%" PRId64, op, c->n_seqs, c->n_heads);
    ptl_verbose_lengths(f, "lengths", length_of, c, c->n_seqs);
    if (c->lens_old.data) ptl_verbose_lengths(f, "lengths_q", new_rows_of, c, c->n_seqs);
    fprintf(f, " d=%d dtype=%s block=%" PRId64 " stride=%" PRId64 " mode=%s", c->dim,
            ptl_dtype_name(c->dtype), c->block, c->stride, c->w.data ? "weighted" : "mean");
    if (c->pe.data) fprintf(f, " pe=1");
    if (c->from.page_size) fprintf(f, " page_size=%" PRId64, c->from.page_size);
    ptl_verbose_close(&line, ctx);
}
