/* What becomes of a block's states: final sums, scores, the selection, and the caller's arrays. */
#include <math.h>
#include <string.h>

#include "../core/arith.h"
#include "nsa_block.h"

static const float LOG_2 = 0.69314718056f;

void ptl_nsa_block_normalise(struct ptl_nsa_block *b) {
    if (b->n_splits[PTL_NSA_POOL] == 0) return;
    for (int i = 0; i < b->n_panels; i++) {
        const struct ptl_softmax_state s = ptl_nsa_state_at(b, &b->cmp, 0, i);
        for (int lane = 0; lane < b->panels[i % b->n_head_panels].n_lanes; lane++)
            b->given[i * b->k->panel + lane] =
                s.z[lane] == 0.0f ? INFINITY : s.m[lane] + log2f(s.z[lane]);
    }
}

/* ---- Scores ---------------------------------------------------------------------------------- */

/* Columns of every tile times what the final sums make of them, the heads added up in order. */
static void score_columns(struct ptl_nsa_block *b, struct ptl_nsa_worker *w) {
    const int group = (int)b->p->group;
    float share[PTL_MAX_PANEL];
    memset(b->score, 0, (size_t)(b->n_lists * b->n_score) * sizeof *b->score);
    for (int64_t i0 = 0; i0 < b->n_cmp; i0 += PTL_NSA_TILE) {
        int count;
        const int64_t first =
            ptl_nsa_tile_columns(b, i0, ptl_min64(PTL_NSA_TILE, b->n_cmp - i0), &count);
        memset(w->sum, 0, (size_t)(b->n_lists * b->n_columns) * sizeof *w->sum);
        for (int i = 0; i < b->n_panels; i++) {
            const struct ptl_softmax_state s = ptl_nsa_state_at(b, &b->cmp, 0, i);
            const struct ptl_nsa_panel *panel = &b->panels[i % b->n_head_panels];
            const int begin = panel->lane, end = begin + panel->n_lanes;
            const int list = i / b->n_head_panels * b->n_rows;
            const int64_t tile = i0 / PTL_NSA_TILE;
            b->k->softmax_share_f32(panel->nv, ptl_nsa_tile_max_at(b, tile, i), s.m, s.z, share);
            for (int lane = begin, n; lane < end; lane += n) {
                n = group - lane % group < end - lane ? group - lane % group : end - lane;
                b->k->lines_sum_f32(ptl_nsa_columns_at(b, tile, i), count, lane - begin, n, share,
                                    w->sum + (list + lane / group) * b->n_columns);
            }
        }
        for (int list = 0; list < b->n_lists; list++)
            for (int c = 0; c < count; c++)
                b->score[list * b->n_score + first + c] += w->sum[list * b->n_columns + c];
    }
}

/* Head-summed probabilities pooled to blocks. */
static void score_probabilities(struct ptl_nsa_block *b) {
    const struct ptl_nsa_problem *p = b->p;
    const int64_t a = p->select_block / p->stride, c = p->block / p->stride, wide = a + c - 1;
    for (int list = 0; list < b->n_lists; list++) {
        const float *prob = b->probabilities + list * b->n_cmp;
        int64_t begin, n; /* keys that the row sees */
        ptl_nsa_row_range(b, PTL_NSA_CMP, list % b->n_rows, &begin, &n);
        for (int64_t j = 0; j < b->n_score; j++) {
            const bool max = p->pool == PTL_NSA_POOL_MAX;
            float x = max ? -INFINITY : 0.0f;
            for (int64_t s = 0; s < wide; s++) {
                const int64_t i = a * j + p->offset + s;
                if (i < 0 || i >= n) continue;
                const int64_t weight = ptl_min64(ptl_min64(s + 1, wide - s), ptl_min64(a, c));
                if (!max) x += (float)weight * prob[i];
                else if (!(prob[i] <= x)) x = prob[i]; /* NaN too */
            }
            b->score[list * b->n_score + j] = x;
        }
    }
}

void ptl_nsa_block_select(struct ptl_nsa_block *b, struct ptl_nsa_worker *w) {
    const struct ptl_nsa_problem *p = b->p;
    if (b->n_score == 0) return;
    if (b->by_probabilities) score_probabilities(b);
    else score_columns(b, w);
    for (int list = 0; list < b->n_lists; list++) {
        const float *score = b->score + list * b->n_score;
        const int64_t i = b->row + list % b->n_rows, head = b->head + list / b->n_rows;
        const int64_t row = b->seq.q_row + i, t = ptl_nsa_position(&b->seq, i);
        if (p->importance.data) {
            float *out = ptl_rows_at(&p->importance, b->seq.b, row, head);
            const int64_t n = t / p->select_block + 1;
            memcpy(out, score, (size_t)n * sizeof *out);
            for (int64_t j = n; j < p->n_scores; j++)
                out[j] = p->pool == PTL_NSA_POOL_MAX ? -INFINITY : 0.0f;
        }
        if (!p->selects && !p->idx.data && !p->nsel.data) continue;
        const int64_t entry = ptl_nsa_row_number(p, &b->seq, i) * p->n_k_heads + head;
        const int64_t most = p->count.data ? ptl_index_at(&p->count, entry) : p->topk;
        int32_t *idx = b->idx + list * p->topk;
        const int n = ptl_nsa_select_row(p, score, t, most, w->keys, idx);
        if (p->idx.data)
            memcpy(ptl_rows_at(&p->idx, b->seq.b, row, head), idx, (size_t)p->topk * sizeof *idx);
        if (p->nsel.data) *(int32_t *)ptl_rows_at(&p->nsel, b->seq.b, row, head) = n;
    }
}

/* ---- Results --------------------------------------------------------------------------------- */

/* Where a head of a list is in an array of query rows. */
static void *place_of(const struct ptl_nsa_block *b, const struct ptl_rows *r, int64_t lane) {
    const int64_t group = b->p->group, list = lane / group;
    return ptl_rows_at(r, b->seq.b, b->seq.q_row + b->row + list % b->n_rows,
                       (b->head + list / b->n_rows) * group + lane % group);
}

/* A branch's rows as floats, list by list; its lse and its output where they are wanted. */
static void store_branch(const struct ptl_nsa_block *b, const struct ptl_nsa_states *s,
                         const struct ptl_nsa_panel *panels, int n_panels, int lanes_apart,
                         const struct ptl_rows *out, const struct ptl_rows *lse, float *to) {
    const struct ptl_nsa_problem *p = b->p;
    const bool normalised = s == &b->cmp && p->lse_in.data;
    for (int i = 0; i < s->n_panels; i++) {
        const struct ptl_nsa_panel *panel = &panels[i % n_panels];
        const struct ptl_softmax_state x = ptl_nsa_state_at(b, s, 0, i);
        const int first = i / n_panels * lanes_apart + panel->lane;
        float *rows[PTL_MAX_PANEL] = {0}, scale[PTL_MAX_PANEL] = {0};
        for (int lane = 0; lane < panel->n_lanes; lane++) {
            rows[lane] = to + (int64_t)(first + lane) * p->dv;
            scale[lane] = normalised ? 1.0f : x.z[lane] == 0.0f ? 0.0f : 1.0f / x.z[lane];
        }
        if (x.o) b->k->panel_store_f32(x.o, panel->n_lanes, p->dv, scale, false, rows);
        for (int lane = 0; lane < panel->n_lanes; lane++) {
            /* nothing but weights of 0: also 0 times infinity is nothing */
            if (x.o && scale[lane] == 0.0f) memset(rows[lane], 0, (size_t)p->dv * sizeof(float));
            if (out->data)
                ptl_narrow_rows(b->k, p->dtype, rows[lane], 0, 1, p->dv,
                                place_of(b, out, first + lane), 0);
            if (lse->data)
                *(float *)place_of(b, lse, first + lane) =
                    x.z[lane] == 0.0f ? -INFINITY : x.m[lane] * LOG_2 + logf(x.z[lane]);
        }
    }
}

/* The same where the branch saw no key at all, or is off. */
static void store_nothing(const struct ptl_nsa_block *b, const struct ptl_rows *out,
                          const struct ptl_rows *lse, float *to) {
    const struct ptl_nsa_problem *p = b->p;
    memset(to, 0, (size_t)(b->n_lists * p->group * p->dv) * sizeof *to);
    for (int64_t lane = 0; lane < b->n_lists * p->group; lane++) {
        if (out->data) memset(place_of(b, out, lane), 0, (size_t)(p->dv * out->elem_bytes));
        if (lse->data) *(float *)place_of(b, lse, lane) = -INFINITY;
    }
}

void ptl_nsa_block_finish(struct ptl_nsa_block *b, struct ptl_nsa_worker *w) {
    const struct ptl_nsa_problem *p = b->p;
    const struct {
        const struct ptl_nsa_states *states;
        const struct ptl_nsa_panel *panels;
        int n_panels, lanes_apart;
        bool on;
        const struct ptl_rows *out, *lse;
    } branch[3] = {
        {&b->cmp, b->panels, b->n_head_panels, b->n_rows * (int)p->group, p->has_cmp, &p->out_cmp,
         &p->lse_cmp},
        {&b->slc, b->row_panels, b->n_row_panels, (int)p->group, p->has_slc, &p->out_slc,
         &p->lse_slc},
        {&b->swa, b->panels, b->n_head_panels, b->n_rows * (int)p->group, p->has_swa, &p->out_swa,
         &p->lse_swa},
    };
    for (int i = 0; i < 3; i++) {
        if (branch[i].states->n_sets == 0) {
            if (branch[i].on || branch[i].out->data || branch[i].lse->data)
                store_nothing(b, branch[i].out, branch[i].lse, w->branch[i]);
            continue;
        }
        store_branch(b, branch[i].states, branch[i].panels, branch[i].n_panels,
                     branch[i].lanes_apart, branch[i].out, branch[i].lse, w->branch[i]);
    }
    if (!p->out.data) return;
    for (int64_t lane = 0; lane < b->n_lists * p->group; lane++) {
        const float *const rows[3] = {p->has_cmp ? w->branch[0] + lane * p->dv : NULL,
                                      p->has_slc ? w->branch[1] + lane * p->dv : NULL,
                                      p->has_swa ? w->branch[2] + lane * p->dv : NULL};
        float *out = w->stage.row;
        ptl_nsa_combine_row(p, b->k, place_of(b, &p->gates, lane), rows, out);
        ptl_narrow_rows(b->k, p->dtype, out, 0, 1, p->dv, place_of(b, &p->out, lane), 0);
    }
}
