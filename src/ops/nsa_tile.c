/* Runs of a tile, panels of queries, and the stages. The arithmetic is in src/kernels. */
#include "nsa_tile.h"

#include <string.h>

#include "../core/arith.h"

/* Keys or columns of a product between two requests for the next tile: a multiple of every register
 * block, and about the same time for any panel. */
enum { LINE = 64 };

static int step_of(int nv) {
    return nv == 1 ? 8 : nv == 2 ? 6 : 4;
}

static bool is_half(const struct ptl_nsa_problem *p) {
    return p->dtype != PTL_F32;
}

/* ---- Tiles ----------------------------------------------------------------------------------- */

void ptl_nsa_tile_add(struct ptl_nsa_tile *t, const struct ptl_nsa_store *from, int64_t seq,
                      int64_t kv_head, int64_t begin, int64_t end) {
    for (int64_t j = begin, n; j < end; j += n) {
        n = end - j;
        if (from->table.data) n = ptl_min64(n, from->page_size - j % from->page_size);
        t->at[t->n_runs].k = ptl_nsa_store_at(from, &from->k, seq, j, kv_head);
        t->at[t->n_runs].v =
            from->v.data ? ptl_nsa_store_at(from, &from->v, seq, j, kv_head) : NULL;
        t->at[t->n_runs].key = j;
        t->at[t->n_runs++].n = (int)n;
        t->n_keys += (int)n;
    }
}

/* Offsets in floats of the parts of a stage, and the size of all. */
struct parts {
    size_t bits, k, v, row, rounded, end;
};

static struct parts parts_of(const struct ptl_nsa_problem *p, const struct ptl_kernels *k) {
    const size_t tile = PTL_NSA_TILE, panel = (size_t)k->panel;
    const size_t k_row = (size_t)ptl_staged_stride(p->dqk),
                 v_row = (size_t)ptl_staged_stride(p->dv);
    struct parts x;
    x.bits = ptl_round_up(tile * panel, 16);
    x.k = x.bits + tile * 2;
    x.v = x.k + (is_half(p) ? tile * k_row : 0);
    x.row = x.v + (is_half(p) ? tile * v_row : 0);
    x.rounded = x.row + panel * (k_row > v_row ? k_row : v_row);
    x.end = x.rounded + (p->score_dtype != PTL_F32 ? tile * panel / 2 : 0);
    return x;
}

size_t ptl_nsa_stage_bytes(const struct ptl_nsa_problem *p, const struct ptl_kernels *k) {
    return ptl_round_up(parts_of(p, k).end * sizeof(float), 64);
}

struct ptl_nsa_stage ptl_nsa_stage_at(const struct ptl_nsa_problem *p, const struct ptl_kernels *k,
                                      void *memory) {
    const struct parts x = parts_of(p, k);
    float *at = memory;
    if (!at) return (struct ptl_nsa_stage){0};
    return (struct ptl_nsa_stage){at,         (uint64_t *)(at + x.bits),   at + x.k, at + x.v,
                                  at + x.row, (uint16_t *)(at + x.rounded)};
}

void ptl_nsa_tile_load(struct ptl_nsa_tile *t, const struct ptl_nsa_problem *p,
                       const struct ptl_kernels *k, const struct ptl_nsa_store *from, int head,
                       const struct ptl_nsa_stage *stage) {
    const int64_t k_shift = head * from->k.head_stride * from->k.elem_bytes;
    const int64_t v_shift = head * from->v.head_stride * from->v.elem_bytes;
    const bool half = is_half(p);
    t->finite = -1;
    t->k_stride = half ? ptl_staged_stride(p->dqk) : from->k.row_stride;
    t->v_stride = half ? ptl_staged_stride(p->dv) : from->v.row_stride;
    t->n_float_runs = half ? 1 : t->n_runs;
    for (int i = 0, j = 0; i < t->n_runs; j += t->at[i++].n) {
        const int n = t->at[i].n;
        const char *keys = t->at[i].k + k_shift, *values = t->at[i].v ? t->at[i].v + v_shift : NULL;
        if (!half) {
            t->keys[i] = (struct ptl_run){(const float *)keys, n};
            t->values[i] = (struct ptl_run){(const float *)values, n};
            continue;
        }
        ptl_widen_rows(k, p->dtype, keys, from->k.row_stride, n, p->dqk, stage->k + j * t->k_stride,
                       t->k_stride);
        if (values)
            ptl_widen_rows(k, p->dtype, values, from->v.row_stride, n, p->dv,
                           stage->v + j * t->v_stride, t->v_stride);
    }
    if (half) t->values[0] = (struct ptl_run){stage->v, t->n_keys};
}

struct ptl_nsa_ahead ptl_nsa_ahead_of(const struct ptl_nsa_tile *t, const struct ptl_nsa_problem *p,
                                      const struct ptl_nsa_store *from, int n_heads,
                                      const struct ptl_nsa_panel *panels, int n_panels) {
    if (!t) return (struct ptl_nsa_ahead){0};
    const int64_t bytes = from->k.elem_bytes;
    struct ptl_nsa_ahead a = {
        .tile = t,
        .k_step = from->k.row_stride * bytes,
        .v_step = from->v.row_stride * bytes,
        .k_bytes = n_heads * p->dqk * bytes,
        .v_bytes = from->v.data ? n_heads * p->dv * bytes : 0,
    };
    int64_t parts = 0;
    for (int i = 0; i < n_panels; i++)
        parts += n_heads * ((PTL_NSA_TILE + (a.v_bytes ? p->dv : 0)) / step_of(panels[i].nv) + 1);
    const int64_t lines = (a.k_bytes + LINE - 1) / LINE + (a.v_bytes + LINE - 1) / LINE;
    a.lines_per_part = (int)((t->n_keys * lines + parts - 1) / parts);
    return a;
}

static bool next_segment(struct ptl_nsa_ahead *a) {
    if (a->run == a->tile->n_runs) return false;
    const int n = a->tile->at[a->run].n;
    const bool values = a->row >= n;
    const int64_t step = values ? a->v_step : a->k_step, bytes = values ? a->v_bytes : a->k_bytes;
    const int rows = step == bytes ? n : 1, row = values ? a->row - n : a->row;
    a->at = (values ? a->tile->at[a->run].v : a->tile->at[a->run].k) + row * step;
    a->end = a->at + rows * bytes;
    a->row += rows;
    if (a->row < (a->v_bytes ? 2 * n : n)) return true;
    a->row = 0;
    a->run++;
    return true;
}

static void ask(struct ptl_nsa_ahead *a) {
    for (int i = 0; i < a->lines_per_part; i++) {
        if (a->at >= a->end && !next_segment(a)) return;
        __builtin_prefetch(a->at, 0, 2);
        a->at += LINE;
    }
}

/* ---- Panels ---------------------------------------------------------------------------------- */

int ptl_nsa_cut_panels(const struct ptl_kernels *k, int n_lanes, struct ptl_nsa_panel *panels) {
    const int nv_max = k->panel / k->lanes;
    int vectors = (n_lanes + k->lanes - 1) / k->lanes, n = 0, lane = 0;
    for (int left = (vectors + nv_max - 1) / nv_max; left > 0; left--) {
        const int nv = (vectors + left - 1) / left;
        const int lanes = nv * k->lanes < n_lanes - lane ? nv * k->lanes : n_lanes - lane;
        panels[n++] = (struct ptl_nsa_panel){lane, lanes, nv};
        lane += lanes;
        vectors -= nv;
    }
    return n;
}

void ptl_nsa_load_panel(const struct ptl_nsa_problem *p, const struct ptl_kernels *k,
                        const struct ptl_rows *q, const struct ptl_nsa_seq *seq, int64_t row,
                        int64_t head, const struct ptl_nsa_panel *panel, float *q_panel,
                        const struct ptl_nsa_stage *stage) {
    const float *rows[PTL_MAX_PANEL];
    const int64_t stride = ptl_staged_stride(p->dqk);
    for (int i = 0; i < panel->n_lanes; i++) {
        const int64_t lane = panel->lane + i;
        const void *x =
            ptl_rows_at(q, seq->b, seq->q_row + row + lane / p->group, head + lane % p->group);
        rows[i] = x;
        if (!is_half(p)) continue;
        ptl_widen_rows(k, p->dtype, x, 0, 1, p->dqk, stage->row + i * stride, stride);
        rows[i] = stage->row + i * stride;
    }
    k->panel_load_f32(rows, panel->n_lanes, p->dqk, q_panel);
}

/* ---- Stages ---------------------------------------------------------------------------------- */

void ptl_nsa_tile_scores(const struct ptl_nsa_problem *p, const struct ptl_kernels *k,
                         const struct ptl_nsa_tile *t, int nv, const float *q_panel,
                         const struct ptl_nsa_logits *known, const struct ptl_nsa_stage *stage,
                         struct ptl_nsa_ahead *ahead) {
    const int step = step_of(nv);
    float *s = stage->s;
    for (int i = 0, j = 0; i < t->n_runs; j += t->at[i++].n) {
        const float *keys = is_half(p) ? stage->k + j * t->k_stride : t->keys[i].rows;
        for (int x = 0, n; x < t->at[i].n; x += n, s += n * k->panel) {
            const int64_t key = t->at[i].key + x;
            n = t->at[i].n - x < step ? t->at[i].n - x : step;
            ask(ahead);
            if (known && key >= known->begin && key + n <= known->end)
                memcpy(s, known->lines + (key - known->begin) * k->panel,
                       (size_t)(n * k->panel) * sizeof *s);
            else k->tile_qk_f32(nv, q_panel, keys + x * t->k_stride, t->k_stride, n, p->dqk, s);
        }
    }
}

void ptl_nsa_tile_keep(const struct ptl_kernels *k, const struct ptl_nsa_tile *t,
                       const struct ptl_nsa_logits *to, const struct ptl_nsa_stage *stage) {
    const float *s = stage->s;
    for (int i = 0; i < t->n_runs; s += t->at[i++].n * k->panel) {
        const int64_t begin = ptl_max64(t->at[i].key, to->begin);
        const int64_t n = ptl_min64(t->at[i].key + t->at[i].n, to->end) - begin;
        if (n > 0)
            memcpy(to->lines + (begin - to->begin) * k->panel,
                   s + (begin - t->at[i].key) * k->panel, (size_t)(n * k->panel) * sizeof *s);
    }
}

static bool values_finite(const struct ptl_nsa_problem *p, const struct ptl_kernels *k,
                          struct ptl_nsa_tile *t) {
    if (t->finite < 0) {
        t->finite = 1;
        for (int i = 0; i < t->n_float_runs; i++)
            t->finite &= k->rows_finite_f32(t->values[i].rows, t->v_stride, t->values[i].n, p->dv);
    }
    return t->finite;
}

void ptl_nsa_tile_weigh(const struct ptl_nsa_problem *p, const struct ptl_kernels *k,
                        struct ptl_nsa_tile *t, int nv, const uint64_t *bits, const float *given,
                        enum ptl_dtype rounded, struct ptl_softmax_state *state,
                        const struct ptl_nsa_stage *stage, struct ptl_nsa_ahead *ahead) {
    float factor[PTL_MAX_PANEL];
    if (given) {
        for (int i = 0; i < k->panel; i++) factor[i] = 1.0f;
        k->tile_weights_f32(nv, stage->s, t->n_keys, p->scale, bits, given);
    } else {
        k->tile_softmax_f32(nv, stage->s, t->n_keys, p->scale, bits, state->m, state->z, factor);
    }
    if (rounded != PTL_F32) {
        const int n = nv * k->lanes;
        ptl_narrow_rows(k, rounded, stage->s, k->panel, t->n_keys, n, stage->rounded, n);
        ptl_widen_rows(k, rounded, stage->rounded, n, t->n_keys, n, stage->s, k->panel);
    }
    const float *rescale = state->empty ? NULL : factor;
    if (state->o && bits && !values_finite(p, k, t)) {
        k->tile_pv_runs_masked_f32(nv, stage->s, t->values, t->v_stride, t->n_keys, p->dv, state->o,
                                   rescale, bits);
    } else if (state->o) {
        const int step = step_of(nv);
        for (int x = 0; x < p->dv; x += step) {
            ask(ahead);
            k->tile_pv_runs_f32(nv, stage->s, t->values, t->v_stride, t->n_keys, x,
                                p->dv - x < step ? p->dv - x : step, state->o, rescale);
        }
    }
    state->empty = false;
}
