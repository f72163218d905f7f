/* A block's extent and memory. Its walks over keys are nsa_walk.c, what is made of the states that
 * they leave is nsa_finish.c. */
#include "nsa_block.h"

#include <math.h>
#include <string.h>

#include "../core/arith.h"

/* Tokens whose products are kept: as long as they are in a second-level cache, taking them is
 * cheaper than making them. */
enum { MAX_LOGITS = 512 };

struct ptl_nsa_seq ptl_nsa_sequence(const struct ptl_nsa_problem *p, int64_t index) {
    struct ptl_nsa_seq s = {.index = index};
    if (p->dense) {
        s.b = index;
        s.n_q = p->q_rows;
    } else {
        s.q_row = ptl_index_at(&p->offsets_q, index);
        s.n_q = ptl_index_at(&p->offsets_q, index + 1) - s.q_row;
    }
    if (p->lens_k.data) s.n_k = ptl_index_at(&p->lens_k, index);
    else if (p->offsets_k.data)
        s.n_k = ptl_index_at(&p->offsets_k, index + 1) - ptl_index_at(&p->offsets_k, index);
    else s.n_k = p->dense_len_k;
    return s;
}

/* ---- Geometry -------------------------------------------------------------------------------- */

static bool wants_score(const struct ptl_nsa_problem *p) {
    return p->has_cmp && (p->importance.data || p->idx.data || p->nsel.data || p->selects);
}

static int64_t position(const struct ptl_nsa_block *b, int r) {
    return ptl_nsa_position(&b->seq, b->row + r);
}

void ptl_nsa_row_range(const struct ptl_nsa_block *b, enum ptl_nsa_phase phase, int r,
                       int64_t *begin, int64_t *end) {
    const int64_t t = position(b, r);
    if (phase == PTL_NSA_SWA) {
        *begin = b->p->window > t ? 0 : t + 1 - b->p->window;
        *end = t + 1;
    } else {
        *begin = 0;
        *end = ptl_nsa_compressed_length(t + 1, b->p->block, b->p->stride);
    }
}

static int64_t ceil_div(int64_t a, int64_t n) {
    return (a + n - 1) / n;
}

/* Tokens that the selected branch of row r can have. */
static int64_t most_selected(const struct ptl_nsa_block *b, int r) {
    const struct ptl_nsa_problem *p = b->p;
    const int64_t t = position(b, r);
    if (!p->has_slc) return 0;
    if (ptl_nsa_is_dense_row(b, r)) return t + 1;
    const int64_t size = ptl_min64(p->select_block, t + 1);
    return size * (p->selects ? ptl_min64(p->topk, t / p->select_block + 1) : p->n_idx);
}

void ptl_nsa_block_init(struct ptl_nsa_block *b, const struct ptl_nsa_problem *p,
                        const struct ptl_kernels *k, const struct ptl_nsa_seq *seq, int64_t head,
                        int n_heads, int64_t row, int n_rows) {
    int64_t unused, most = 0;
    memset(b, 0, sizeof *b);
    b->p = p;
    b->k = k;
    b->seq = *seq;
    b->head = head;
    b->row = row;
    b->n_heads = n_heads;
    b->n_rows = n_rows;
    b->n_lists = n_heads * n_rows;
    const int lanes = (int)p->group, nv_max = k->panel / k->lanes;
    b->n_head_panels = (int)ceil_div(ceil_div((int64_t)n_rows * lanes, k->lanes), nv_max);
    b->n_panels = n_heads * b->n_head_panels;
    b->n_row_panels = (int)ceil_div(ceil_div(lanes, k->lanes), nv_max);
    if (p->has_cmp) ptl_nsa_row_range(b, PTL_NSA_CMP, n_rows - 1, &unused, &b->n_cmp);
    if (p->has_swa) {
        ptl_nsa_row_range(b, PTL_NSA_SWA, 0, &b->swa_begin, &unused);
        ptl_nsa_row_range(b, PTL_NSA_SWA, n_rows - 1, &unused, &b->swa_end);
    }
    /* Panels of one row are those of the selected branch; more rows would need more memory than a
     * cache has. */
    b->first_logit = b->swa_end;
    if (p->same_tokens && p->has_swa && p->has_slc && n_rows == 1)
        b->first_logit = ptl_max64(b->swa_begin, b->swa_end - MAX_LOGITS);
    for (int r = 0; r < n_rows; r++) most = ptl_max64(most, most_selected(b, r));
    b->n_splits[PTL_NSA_CMP] = ceil_div(b->n_cmp, PTL_NSA_SPLIT);
    b->n_splits[PTL_NSA_SWA] =
        p->has_swa ? ceil_div(b->swa_end, p->swa_split) - b->swa_begin / p->swa_split : 0;
    b->by_probabilities = wants_score(p) && (p->pool == PTL_NSA_POOL_MAX || p->lse_in.data);
    b->by_columns = wants_score(p) && !b->by_probabilities;
    if (b->by_probabilities && !p->lse_in.data)
        b->n_splits[PTL_NSA_POOL] = b->n_splits[PTL_NSA_CMP];
    b->n_splits[PTL_NSA_SLC] = ceil_div(most, PTL_NSA_SPLIT);
    if (wants_score(p)) b->n_score = position(b, n_rows - 1) / p->select_block + 1;
    const int64_t a = p->select_block / p->stride, wide = a + p->block / p->stride - 1;
    b->n_columns = (int)((PTL_NSA_TILE + wide - 1) / a + 1);
}

int64_t ptl_nsa_block_cost(const struct ptl_nsa_block *b, enum ptl_nsa_phase phase) {
    const struct ptl_nsa_problem *p = b->p;
    const int64_t lanes = b->n_lists * p->group;
    switch (phase) {
    case PTL_NSA_CMP: return b->n_cmp * lanes * (p->dqk + (p->cmp.v.data ? p->dv : 0));
    case PTL_NSA_SWA: return (b->swa_end - b->swa_begin) * lanes * (p->dqk + p->dv);
    case PTL_NSA_POOL: return b->n_splits[phase] ? b->n_cmp * lanes * p->dqk : 0;
    case PTL_NSA_SLC: return b->n_splits[phase] * PTL_NSA_SPLIT * lanes * (p->dqk + p->dv);
    case PTL_NSA_PHASES: break;
    }
    return 0;
}

int64_t ptl_nsa_tile_columns(const struct ptl_nsa_block *b, int64_t i0, int64_t n, int *count) {
    const struct ptl_nsa_problem *p = b->p;
    const int64_t a = p->select_block / p->stride, wide = a + p->block / p->stride - 1;
    /* Block j takes keys a j + offset .. a j + offset + wide - 1. */
    const int64_t low = i0 - p->offset - wide + 1, high = i0 + n - 1 - p->offset;
    const int64_t first = low <= 0 ? 0 : ceil_div(low, a);
    const int64_t last = high < 0 ? -1 : ptl_min64(high / a, b->n_score - 1);
    *count = last < first ? 0 : (int)(last - first + 1);
    return first;
}

/* ---- Memory ---------------------------------------------------------------------------------- */

static size_t panel_floats(const struct ptl_nsa_block *b) {
    return (size_t)b->k->panel * (size_t)(2 + b->p->dv);
}

static struct ptl_nsa_states take_states(struct ptl_pieces *m, const struct ptl_nsa_block *b,
                                         int n_panels, int64_t n_splits) {
    const int64_t sets = b->shared ? n_splits : ptl_min64(n_splits, 2);
    struct ptl_nsa_states s = {NULL, n_panels, (int)sets};
    s.at = ptl_take(m, (size_t)sets * (size_t)n_panels * panel_floats(b) * sizeof(float));
    return s;
}

size_t ptl_nsa_block_memory(struct ptl_nsa_block *b, char *memory) {
    const struct ptl_nsa_problem *p = b->p;
    const size_t lines = (size_t)b->n_panels, line = (size_t)b->k->panel * sizeof(float);
    const size_t lists = (size_t)b->n_lists, tiles = (size_t)ceil_div(b->n_cmp, PTL_NSA_TILE);
    struct ptl_pieces m = {memory, 0};
    b->panels = ptl_take(&m, (size_t)b->n_head_panels * sizeof *b->panels);
    b->row_panels = ptl_take(&m, (size_t)b->n_row_panels * sizeof *b->row_panels);
    b->cmp = take_states(&m, b, b->n_panels, b->n_splits[PTL_NSA_CMP]);
    b->swa = take_states(&m, b, b->n_panels, b->n_splits[PTL_NSA_SWA]);
    b->slc = take_states(&m, b, b->n_row_panels * b->n_lists, b->n_splits[PTL_NSA_SLC]);
    b->columns = ptl_take(&m, b->by_columns ? tiles * lines * (size_t)b->n_columns * line : 0);
    b->m_tile = ptl_take(&m, b->by_columns ? tiles * lines * line : 0);
    b->logits = ptl_take(&m, lines * line * (size_t)(b->swa_end - b->first_logit));
    b->given = ptl_take(&m, b->by_probabilities || p->lse_in.data ? lines * line : 0);
    b->probabilities =
        ptl_take(&m, b->by_probabilities ? lists * (size_t)b->n_cmp * sizeof(float) : 0);
    b->score = ptl_take(&m, lists * (size_t)b->n_score * sizeof(float));
    b->idx = ptl_take(&m, p->has_cmp ? lists * (size_t)p->topk * sizeof *b->idx : 0);
    if (memory) {
        ptl_nsa_cut_panels(b->k, b->n_rows * (int)p->group, b->panels);
        ptl_nsa_cut_panels(b->k, (int)p->group, b->row_panels);
        for (int i = 0; p->lse_in.data && i < b->n_panels; i++) {
            const struct ptl_nsa_panel *panel = &b->panels[i % b->n_head_panels];
            for (int x = 0; x < panel->n_lanes; x++) {
                const int64_t lane = panel->lane + x, head = b->head + i / b->n_head_panels;
                const float lse = *(const float *)ptl_rows_at(
                    &p->lse_in, b->seq.b, b->seq.q_row + b->row + lane / p->group,
                    head * p->group + lane % p->group);
                /* -inf saw nothing: its weights are 0 */
                b->given[i * b->k->panel + x] = lse == -INFINITY ? INFINITY : lse * 1.44269504f;
            }
        }
    }
    return m.used;
}

size_t ptl_nsa_worker_memory(struct ptl_nsa_worker *w, const struct ptl_nsa_block *b,
                             char *memory) {
    const struct ptl_nsa_problem *p = b->p;
    const size_t panels = (size_t)ptl_max64(b->n_panels, b->n_row_panels * b->n_heads);
    const size_t lanes = (size_t)b->n_lists * (size_t)p->group;
    const size_t n_list = (size_t)ptl_max64(1, p->selects ? p->topk : p->n_idx);
    struct ptl_pieces m = {memory, 0};
    struct ptl_nsa_stage stage =
        ptl_nsa_stage_at(p, b->k, ptl_take(&m, ptl_nsa_stage_bytes(p, b->k)));
    float *q = ptl_take(&m, panels * (size_t)p->dqk * (size_t)b->k->panel * sizeof(float));
    bool *empty = ptl_take(&m, panels * sizeof *empty);
    bool *has_queries = ptl_take(&m, panels * sizeof *has_queries);
    float *branch[3];
    for (int i = 0; i < 3; i++) branch[i] = ptl_take(&m, lanes * (size_t)p->dv * sizeof(float));
    float *sum = ptl_take(&m, (size_t)b->n_lists * (size_t)ptl_max64(b->n_columns, PTL_NSA_TILE) *
                                  sizeof(float));
    uint64_t *keys = ptl_take(&m, (size_t)b->n_score * sizeof *keys);
    int64_t *start = ptl_take(&m, n_list * sizeof *start);
    int64_t *end = ptl_take(&m, n_list * sizeof *end);
    if (memory) {
        w->stage = stage;
        w->q_panels = q;
        w->empty = empty;
        w->has_queries = has_queries;
        memcpy(w->branch, branch, sizeof branch);
        w->sum = sum;
        w->keys = keys;
        w->list_start = start;
        w->list_end = end;
        w->loaded.block = w->listed_block = NULL;
        w->tile = 0;
    }
    return m.used;
}
