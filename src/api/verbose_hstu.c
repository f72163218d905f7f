/* PTL_VERBOSE=1: HSTU calls as problem lines on stderr. Contents of arrays are not logged, only
 * shapes and options. */
#include <inttypes.h>
#include <math.h>

#include "check.h"
#include "verbose.h"

static void print_list(FILE *f, const char *key, const struct ptl_index *x, int64_t n) {
    fprintf(f, " %s=", key);
    if (x->stride == 0) {
        fprintf(f, "%" PRId64, ptl_index_at(x, 0));
        return;
    }
    for (int64_t i = 0; i < n; i++) fprintf(f, "%s%" PRId64, i ? "," : "list:", ptl_index_at(x, i));
}

static int64_t length_between(const void *offsets, int64_t i) {
    const struct ptl_index *x = offsets;
    return ptl_index_at(x, i + 1) - ptl_index_at(x, i);
}

static void print_lengths(FILE *f, const char *key, const struct ptl_index *offsets, int64_t n) {
    ptl_verbose_lengths(f, key, length_between, offsets, n);
}

/* The keys of all sequences as one list, where no array holds them: the paged layout. */
static void print_keys(FILE *f, const struct ptl_hstu_problem *p) {
    if (p->n_seqs > PTL_VERBOSE_LISTED) return;
    for (int64_t b = 0; b < p->n_seqs; b++)
        fprintf(f, "%s%" PRId64, b ? "," : " lengths_k=list:", ptl_hstu_sequence(p, b).uk);
    if (p->n_seqs == 0) fprintf(f, " lengths_k=list:");
    fprintf(f, " page_size=%" PRId64, p->pages.page_size);
}

/* What lies over the pairs: mask, intervals or rule. */
static void print_mask(FILE *f, const struct ptl_hstu_params *a, const struct ptl_hstu_problem *p) {
    if (p->intervals.data) {
        fprintf(f, " intervals=%" PRId64, p->intervals.n_pairs);
    } else if (p->mask) {
        fprintf(f, " mask=random");
        if (a->mask.shape[0] > 1) fprintf(f, " mask_batch=b");
        if (a->mask.shape[1] > 1) fprintf(f, " mask_head=h");
    } else {
        fprintf(f, " window_size=%" PRId64 ",%" PRId64, p->window_left, p->window_right);
    }
}

static void print_bias(FILE *f, const struct ptl_hstu_params *a, const struct ptl_hstu_problem *p) {
    if (p->bias.data) {
        fprintf(f, " bias=dense");
        if (a->attn_bias.shape[0] > 1) fprintf(f, " bias_batch=b");
        if (a->attn_bias.shape[1] > 1) fprintf(f, " bias_head=h");
        if (p->bias.by_key) fprintf(f, " bias_rows=key");
        if (p->bias.dtype != PTL_F32) fprintf(f, " bias_dtype=same");
    }
    if (p->tables.pos) fprintf(f, " pos_table=%s", p->tables.pos_head_stride ? "h" : "1");
    if (p->tables.time)
        fprintf(f, " time_table=%s thresholds=%" PRId64 " time_query=%s",
                p->tables.time_head_stride ? "h" : "1", p->tables.n_thresholds,
                p->tables.query_next ? "next" : "own");
    if (!isnan(a->bias_scale)) fprintf(f, " bias_scale=%.9g", (double)a->bias_scale);
}

void ptl_verbose_hstu(const char *op, const struct ptl_context *ctx,
                      const struct ptl_hstu_params *a, const struct ptl_hstu_problem *p,
                      const struct ptl_hstu_gradients *g, double begin) {
    struct ptl_verbose_line line;
    if (!ptl_verbose_open(&line, begin)) return;
    FILE *f = line.f;
    const bool listed = p->n_seqs <= PTL_VERBOSE_LISTED;
    fprintf(f, "%s layout=%s b=%" PRId64 " h=%" PRId64 " hk=%" PRId64, op,
            p->dense ? "dense" : "jagged", p->n_seqs, p->n_q_heads, p->n_k_heads);
    if (p->dense) {
        fprintf(f, " sq=%" PRId64 " sk=%" PRId64, p->q_rows, p->k_rows);
    } else {
        print_lengths(f, "lengths", &p->offsets_q, p->n_seqs);
        if (p->pages.on) print_keys(f, p);
        else if (a->seq_offsets_k.data) print_lengths(f, "lengths_k", &p->offsets_k, p->n_seqs);
    }
    fprintf(f, " d=%d dv=%d dtype=%s", p->dqk, p->dv, ptl_dtype_name(p->dtype));
    if (p->used_q.data && listed) print_list(f, "seqused_q", &p->used_q, p->n_seqs);
    if (p->used_k.data && listed) print_list(f, "seqused_k", &p->used_k, p->n_seqs);
    print_mask(f, a, p);
    if (p->contexts.data && (listed || !p->contexts.stride))
        print_list(f, "num_contexts", &p->contexts, p->n_seqs);
    if (p->targets.data && (listed || !p->targets.stride)) {
        print_list(f, "num_targets", &p->targets, p->n_seqs);
        fprintf(f, " target_group_size=%" PRId64, p->group);
    }
    if (p->min_full) fprintf(f, " min_full_attn_seq_len=%" PRId64, p->min_full);
    print_bias(f, a, p);
    fprintf(f, " alpha=%.9g", p->alpha);
    if (p->scale_rows.data) fprintf(f, " attn_scale=token");
    else if (a->attn_scale.data) fprintf(f, " attn_scale=%.9g", p->scale);
    else fprintf(f, " scaling_seqlen=%" PRId64, a->scaling_seqlen);
    if (g && g->ds.data) fprintf(f, " ds=1");
    ptl_verbose_close(&line, ctx);
}
