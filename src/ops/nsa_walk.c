/* The walks of a block over keys: which tiles, who sees what of them, what is kept of a tile. The
 * stages themselves are nsa_tile.c. */
#include <math.h>
#include <string.h>

#include "../core/arith.h"
#include "nsa_block.h"

/* One walk over keys: which, for which panels. */
struct walk {
    struct ptl_nsa_block *b;
    struct ptl_nsa_worker *w;
    enum ptl_nsa_phase phase;
    const struct ptl_nsa_store *from;
    const struct ptl_nsa_panel *panels;
    int first, last;   /* of the panels */
    int n_head_panels; /* of panels; the next ones are those of the next head */
    int64_t head;      /* of panel 0 */
    int first_queries; /* where the queries of panel 0 are, */
    int first_states;  /* and its states in a set */
    struct ptl_nsa_states *states;
    int64_t end; /* of all keys */
};

static float *queries_at(const struct walk *x, int panel) {
    return x->w->q_panels + (int64_t)(x->first_queries + panel) * x->b->p->dqk * x->b->k->panel;
}

/* The walk's panels hold the queries of these rows. */
static void load_queries(struct walk *x, const struct ptl_rows *q, int64_t row, int n_rows) {
    struct ptl_nsa_worker *w = x->w;
    const struct ptl_nsa_block *b = x->b;
    const struct ptl_nsa_loaded want = {b, q->data, row, n_rows};
    const struct ptl_nsa_loaded *is = &w->loaded;
    if (is->block != b || is->q != q->data || is->row != row || is->n_rows != n_rows)
        memset(w->has_queries, 0, (size_t)b->n_panels * sizeof *w->has_queries);
    w->loaded = want;
    for (int i = x->first; i < x->last; i++) {
        const int64_t head = x->head + i / x->n_head_panels;
        if (w->has_queries[x->first_queries + i]) continue;
        ptl_nsa_load_panel(b->p, b->k, q, &b->seq, row, head * b->p->group,
                           &x->panels[i % x->n_head_panels], queries_at(x, i), &w->stage);
        w->has_queries[x->first_queries + i] = true;
    }
}

/* Keys [begin, end) of the walk as a tile. */
static void find_tile(const struct walk *x, int64_t begin, int64_t end, struct ptl_nsa_tile *t) {
    const int64_t seq = x->b->seq.index, head = x->head;
    t->n_keys = t->n_runs = 0;
    if (x->phase != PTL_NSA_SLC) {
        ptl_nsa_tile_add(t, x->from, seq, head, begin, end);
        return;
    }
    const struct ptl_nsa_worker *w = x->w;
    int low = 0, high = w->n_list; /* the first range that ends behind begin */
    while (low < high) {
        const int mid = (low + high) / 2;
        if (w->list_end[mid] > begin) high = mid;
        else low = mid + 1;
    }
    for (int i = low; begin < end; i++) {
        const int64_t before = i ? w->list_end[i - 1] : 0, stop = ptl_min64(end, w->list_end[i]);
        const int64_t token = w->list_start[i] + begin - before;
        ptl_nsa_tile_add(t, x->from, seq, head, token, token + stop - begin);
        begin = stop;
    }
}

enum tile_kind { SKIP, FULL, MIXED };

/* Which of the keys [begin, end) the lanes of a panel see; MIXED: as mask words. */
static enum tile_kind mask_panel(const struct walk *x, const struct ptl_nsa_panel *panel,
                                 int64_t begin, int64_t end) {
    const struct ptl_nsa_block *b = x->b;
    const int group = (int)b->p->group;
    const int first = panel->lane / group, last = (panel->lane + panel->n_lanes - 1) / group;
    int64_t low, high, low_last, high_last;
    if (x->phase == PTL_NSA_SLC) return FULL;
    ptl_nsa_row_range(b, x->phase, first, &low, &high);
    ptl_nsa_row_range(b, x->phase, last, &low_last, &high_last);
    if (begin >= high_last || end <= low) return SKIP;
    if (begin >= low_last && end <= high) return FULL;
    uint64_t *bits = x->w->stage.bits;
    memset(bits, 0, (size_t)(end - begin) * sizeof *bits);
    for (int r = first; r <= last; r++) {
        const int from = r * group < panel->lane ? 0 : r * group - panel->lane;
        const int to = (r + 1) * group - panel->lane < panel->n_lanes
                           ? (r + 1) * group - panel->lane
                           : panel->n_lanes;
        const uint64_t lanes = (to == 64 ? 0 : (uint64_t)1 << to) - ((uint64_t)1 << from);
        ptl_nsa_row_range(b, x->phase, r, &low, &high);
        for (int64_t j = ptl_max64(low, begin); j < ptl_min64(high, end); j++)
            bits[j - begin] |= lanes;
    }
    return MIXED;
}

/* What the weights of a panel say about the score. */
static void keep_score(const struct walk *x, int panel, int64_t begin, int n_keys,
                       const struct ptl_softmax_state *state) {
    const struct ptl_nsa_block *b = x->b;
    const struct ptl_nsa_problem *p = b->p;
    const struct ptl_nsa_panel *lanes = &x->panels[panel % x->n_head_panels];
    if (b->by_columns) {
        const int a = (int)(p->select_block / p->stride);
        int count;
        const int64_t first = ptl_nsa_tile_columns(b, begin, n_keys, &count);
        b->k->tile_stencil_f32(lanes->nv, x->w->stage.s, n_keys, a * first + p->offset - begin, a,
                               (int)(p->block / p->stride),
                               ptl_nsa_columns_at(b, begin / PTL_NSA_TILE, panel), count);
        memcpy(ptl_nsa_tile_max_at(b, begin / PTL_NSA_TILE, panel), state->m,
               (size_t)b->k->panel * sizeof(float));
    } else if (b->by_probabilities && (p->lse_in.data || x->phase == PTL_NSA_POOL)) {
        const int group = (int)p->group, list = panel / x->n_head_panels * b->n_rows;
        for (int lane = lanes->lane, n; lane < lanes->lane + lanes->n_lanes; lane += n) {
            n = group - lane % group;
            if (n > lanes->lane + lanes->n_lanes - lane) n = lanes->lane + lanes->n_lanes - lane;
            float *sum = b->probabilities + (list + lane / group) * b->n_cmp + begin;
            if (lane % group == 0) memset(sum, 0, (size_t)n_keys * sizeof *sum);
            b->k->lines_sum_f32(x->w->stage.s, n_keys, lane - lanes->lane, n, NULL, sum);
        }
    }
}

/* Columns of the score, or probabilities, of keys that no lane of the panel sees. */
static void keep_no_score(const struct walk *x, int panel, int64_t begin, int n_keys,
                          const struct ptl_softmax_state *state) {
    memset(x->w->stage.s, 0, (size_t)n_keys * (size_t)x->b->k->panel * sizeof(float));
    keep_score(x, panel, begin, n_keys, state);
}

/* The stages of panel i on a tile. */
static void run_panel(struct walk *x, int i, int64_t begin, int64_t end, int64_t set,
                      struct ptl_nsa_tile *tile, struct ptl_nsa_ahead *ahead) {
    struct ptl_nsa_block *b = x->b;
    const struct ptl_nsa_problem *p = b->p;
    const struct ptl_nsa_stage *stage = &x->w->stage;
    const struct ptl_nsa_panel *panel = &x->panels[i % x->n_head_panels];
    const bool scored = x->phase == PTL_NSA_CMP || x->phase == PTL_NSA_POOL;
    const enum tile_kind kind = mask_panel(x, panel, begin, end);
    struct ptl_softmax_state state = ptl_nsa_state_at(b, x->states, set, x->first_states + i);
    const float *given = NULL;
    if (scored && (p->lse_in.data || x->phase == PTL_NSA_POOL)) given = b->given + i * b->k->panel;
    if (x->phase == PTL_NSA_POOL) state.o = NULL;
    if (kind == SKIP) {
        if (scored) keep_no_score(x, i, begin, tile->n_keys, &state);
        return;
    }
    const int64_t n_logits = b->swa_end - b->first_logit;
    const struct ptl_nsa_logits logits = {
        b->logits + (x->first_states + i) * n_logits * b->k->panel, b->first_logit, b->swa_end};
    const bool known = x->phase == PTL_NSA_SLC && x->w->has_logits;
    state.empty = x->w->empty[i];
    ptl_nsa_tile_scores(p, b->k, tile, panel->nv, queries_at(x, i), known ? &logits : NULL, stage,
                        ahead);
    if (x->phase == PTL_NSA_SWA && n_logits > 0) ptl_nsa_tile_keep(b->k, tile, &logits, stage);
    ptl_nsa_tile_weigh(p, b->k, tile, panel->nv, kind == MIXED ? stage->bits : NULL, given,
                       scored ? p->score_dtype : PTL_F32, &state, stage, ahead);
    x->w->empty[i] = false;
    if (scored) keep_score(x, i, begin, tile->n_keys, &state);
}

static void run_tile(struct walk *x, int64_t begin, int64_t end, int64_t set,
                     struct ptl_nsa_tile *tile, const struct ptl_nsa_tile *next,
                     const struct ptl_nsa_store *next_from) {
    const struct ptl_nsa_block *b = x->b;
    const int n_heads = (x->last - x->first + x->n_head_panels - 1) / x->n_head_panels;
    const int n_panels = n_heads > 1 ? x->n_head_panels : x->last - x->first;
    struct ptl_nsa_ahead ahead = ptl_nsa_ahead_of(
        next, b->p, next_from, n_heads, x->panels + x->first % x->n_head_panels, n_panels);
    for (int i = x->first; i < x->last; i++) {
        if (i == x->first || i % x->n_head_panels == 0)
            ptl_nsa_tile_load(tile, b->p, b->k, x->from, i / x->n_head_panels, &x->w->stage);
        run_panel(x, i, begin, end, set, tile, &ahead);
    }
}

/* Keys [begin, end), one split, into a set of states. known: w->tiles[w->tile] is its first tile.
 */
static void run_split(struct walk *x, int64_t begin, int64_t end, int64_t set, bool *known) {
    struct ptl_nsa_block *b = x->b;
    struct ptl_nsa_worker *w = x->w;
    for (int i = x->first; i < x->last; i++) {
        w->empty[i] = true;
        if (x->phase == PTL_NSA_POOL) continue;
        const struct ptl_softmax_state s = ptl_nsa_state_at(b, x->states, set, x->first_states + i);
        for (int lane = 0; lane < b->k->panel; lane++) {
            /* weights that are normalised already keep no maximum: their states just add up */
            s.m[lane] = x->phase == PTL_NSA_CMP && b->p->lse_in.data ? 0.0f : -INFINITY;
            s.z[lane] = 0.0f;
        }
    }
    for (int64_t at = begin, stop; at < end; at = stop) {
        stop = ptl_min64(end, at / PTL_NSA_TILE * PTL_NSA_TILE + PTL_NSA_TILE);
        const int64_t next_stop = ptl_min64(x->end, stop + PTL_NSA_TILE);
        struct ptl_nsa_tile *tile = &w->tiles[w->tile], *next = NULL;
        if (!*known) find_tile(x, at, stop, tile);
        w->tile ^= 1;
        *known = stop < next_stop;
        const struct ptl_nsa_store *next_from = x->from;
        if (*known) find_tile(x, stop, next_stop, next = &w->tiles[w->tile]);
        else if (w->peek && (next_from = w->peek(w->job, w)) != NULL) next = &w->tiles[w->tile];
        run_tile(x, at, stop, set, tile, next, next_from);
    }
    for (int i = x->first; i < x->last && x->phase != PTL_NSA_POOL; i++) {
        const struct ptl_softmax_state s = ptl_nsa_state_at(b, x->states, set, x->first_states + i);
        if (w->empty[i] && s.o) memset(s.o, 0, (size_t)(b->p->dv * b->k->panel) * sizeof(float));
    }
}

static void fold(const struct ptl_nsa_block *b, const struct ptl_nsa_states *s, int64_t from,
                 int panel, int nv) {
    const struct ptl_softmax_state x = ptl_nsa_state_at(b, s, 0, panel);
    const struct ptl_softmax_state y = ptl_nsa_state_at(b, s, from, panel);
    b->k->softmax_fold_f32(nv, x.o ? b->p->dv : 0, x.m, x.z, x.o, y.m, y.z, y.o);
}

/* Splits [begin, end) of a walk whose split s has the keys from `first` on, cut at multiples of
 * `size`. */
static void run_splits(struct walk *x, int64_t first, int64_t size, int64_t begin, int64_t end) {
    const struct ptl_nsa_block *b = x->b;
    const int64_t all = x->end;
    bool known = false;
    if (b->shared) x->end = ptl_min64(all, (first / size + end) * size);
    for (int64_t s = begin; s < end; s++) {
        const int64_t at = first / size + s; /* counted from key 0 */
        const int64_t from = ptl_max64(first, at * size), to = ptl_min64(all, (at + 1) * size);
        if (b->shared) {
            run_split(x, from, to, s, &known);
        } else if (s == 0 || from < to) {
            run_split(x, from, to, s == 0 ? 0 : 1, &known);
            for (int i = x->first; s > 0 && x->phase != PTL_NSA_POOL && i < x->last; i++)
                fold(b, x->states, 1, x->first_states + i, x->panels[i % x->n_head_panels].nv);
        }
    }
}

/* The token ranges of a list: the blocks that idx names and that are blocks of the row. */
static void list_tokens(const struct ptl_nsa_block *b, struct ptl_nsa_worker *w, int list) {
    const struct ptl_nsa_problem *p = b->p;
    if (w->listed_block == b && w->listed == list) return;
    const int r = list % b->n_rows;
    const int64_t t = ptl_nsa_position(&b->seq, b->row + r);
    const int64_t entry =
        ptl_nsa_row_number(p, &b->seq, b->row + r) * p->n_k_heads + b->head + list / b->n_rows;
    const int64_t n = p->selects ? p->topk : p->n_idx;
    int64_t total = 0;
    w->n_list = 0;
    w->listed_block = b;
    w->listed = list;
    if (ptl_nsa_is_dense_row(b, r)) {
        w->list_start[0] = 0;
        w->list_end[w->n_list++] = t + 1;
        return;
    }
    for (int64_t e = 0; e < n; e++) {
        const int64_t j =
            p->selects ? b->idx[list * p->topk + e] : ptl_index_at(&p->idx_in, entry * n + e);
        if (j < 0 || j > t / p->select_block) continue;
        w->list_start[w->n_list] = j * p->select_block;
        total += ptl_min64(p->select_block, t + 1 - j * p->select_block);
        w->list_end[w->n_list++] = total;
    }
}

/* Which keys a phase walks; those of SLC are known when the row's list is there. */
static struct walk walk_of(struct ptl_nsa_block *b, struct ptl_nsa_worker *w,
                           const struct ptl_nsa_part *part) {
    struct walk x = {.b = b,
                     .w = w,
                     .phase = part->phase,
                     .first = part->first,
                     .last = part->last,
                     .head = b->head,
                     .panels = b->panels,
                     .n_head_panels = b->n_head_panels};
    switch (part->phase) {
    case PTL_NSA_CMP:
    case PTL_NSA_POOL:
        x.from = &b->p->cmp;
        x.states = &b->cmp;
        x.end = b->n_cmp;
        break;
    case PTL_NSA_SWA:
        x.from = &b->p->swa;
        x.states = &b->swa;
        x.end = b->swa_end;
        break;
    case PTL_NSA_SLC:
    case PTL_NSA_PHASES:
        x.from = &b->p->slc;
        x.states = &b->slc;
        x.panels = b->row_panels;
        x.n_head_panels = b->n_row_panels;
        x.head += part->list / b->n_rows;
        x.first_queries = part->list / b->n_rows * b->n_row_panels;
        x.first_states = part->list * b->n_row_panels;
        x.end = w->n_list ? w->list_end[w->n_list - 1] : 0;
        break;
    }
    return x;
}

void ptl_nsa_block_walk(struct ptl_nsa_block *b, struct ptl_nsa_worker *w,
                        const struct ptl_nsa_part *part) {
    const struct ptl_nsa_problem *p = b->p;
    if (part->begin >= part->end) return;
    if (part->phase == PTL_NSA_SLC) list_tokens(b, w, part->list);
    struct walk x = walk_of(b, w, part);
    if (part->phase == PTL_NSA_SLC) {
        load_queries(&x, &p->q, b->row + part->list % b->n_rows, 1);
        run_splits(&x, 0, PTL_NSA_SPLIT, part->begin, part->end);
    } else if (part->phase == PTL_NSA_SWA) {
        load_queries(&x, &p->q, b->row, b->n_rows);
        run_splits(&x, b->swa_begin, p->swa_split, part->begin, part->end);
    } else {
        load_queries(&x, &p->q_cmp, b->row, b->n_rows);
        run_splits(&x, 0, PTL_NSA_SPLIT, part->begin, part->end);
    }
}

const struct ptl_nsa_store *ptl_nsa_block_peek(struct ptl_nsa_block *b, struct ptl_nsa_worker *w,
                                               const struct ptl_nsa_part *part) {
    const int64_t size = part->phase == PTL_NSA_SWA ? b->p->swa_split : PTL_NSA_SPLIT;
    const int64_t first = part->phase == PTL_NSA_SWA ? b->swa_begin : 0;
    const int64_t at = ptl_max64(first, (first / size + part->begin) * size);
    if (part->phase == PTL_NSA_SLC) list_tokens(b, w, part->list);
    const struct walk x = walk_of(b, w, part);
    if (at >= x.end) return NULL;
    find_tile(&x, at, ptl_min64(x.end, at / PTL_NSA_TILE * PTL_NSA_TILE + PTL_NSA_TILE),
              &w->tiles[w->tile]);
    return x.from;
}

void ptl_nsa_block_fold(struct ptl_nsa_block *b, const struct ptl_nsa_part *part, int64_t split) {
    const bool selected = part->phase == PTL_NSA_SLC;
    const struct ptl_nsa_states *s = selected                     ? &b->slc
                                     : part->phase == PTL_NSA_SWA ? &b->swa
                                                                  : &b->cmp;
    const struct ptl_nsa_panel *panels = selected ? b->row_panels : b->panels;
    const int n = selected ? b->n_row_panels : b->n_head_panels;
    const int first = selected ? part->list * b->n_row_panels : 0;
    for (int i = part->first; i < part->last; i++) fold(b, s, split, first + i, panels[i % n].nv);
}
