/* The ladder of the NSA article over the library's kernels: lanes are the query heads, P is kept as
 * s[key][lane]. Not a library operator: one row that sees every compressed key, no masks, and its
 * first rungs store what need not be stored.
 *
 *   sums      S = Q K^T for all keys, in memory; P = 2^(S - max) in place; out = P V; P transposed
 *             and scaled, the heads summed, and sums of a + b - 1 neighbours with their weights.
 *   product   the same, but the score of a tile is P W, as a product like P V: W is one small
 *             block, the same for every tile, and columns of neighbouring tiles join by adding.
 *   shared    P V and P W in one pass over the tiles, while P is in the cache.
 *   online    one pass: softmax against a running maximum; columns are kept with the maximum of
 *             their tile and rescaled in the end. Threads share the panels of heads.
 *   split     the same for splits of the keys, drawn by the threads, merged in order.
 *
 * All threads work in every pass: on ranges of the keys, but for the softmax of the first three,
 * which goes by panels. Every rung ends with the selection, by ptl_nsa_select. */
#include "ladder_nsa.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../src/ops/nsa_tile.h"
#include "ladder_rungs.h"

enum { TILE = 64, SPLIT = 256, LINE = 64, PREFETCH_STEP = 8, MAX_PANELS = 64, MAX_COLUMNS = 128 };

struct nsa_ladder {
    const struct ladder_nsa_problem *problem;
    const struct ptl_kernels *k;
    struct ptl_context *ctx;
    int d, dv, heads, n_panels, n_threads;
    struct ptl_nsa_panel panels[MAX_PANELS];
    int64_t n, n_tiles, n_splits, n_blocks; /* keys, tiles and splits of them, selection blocks */
    int a, b, n_columns;
    float scale; /* times log2 e */
    const float *kc, *vc;
    int rung;

    float *q;          /* panels */
    float *w;          /* [TILE][n_columns] */
    float *s;          /* [panel][n][lane]: the scores that some rungs store */
    float *m, *z, *o;  /* states: [set][panel] lines, dv of o */
    float *u, *m_tile; /* columns and maxima: [tile][panel] */
    float *tiles;      /* a score tile for each thread */
    float *rows;       /* [heads][n]: P transposed */
    float *score, *out;
    int32_t *idx;
};

/* ---- Places ---------------------------------------------------------------------------------- */

static int line(const struct nsa_ladder *l) {
    return l->k->panel;
}

static float *q_at(const struct nsa_ladder *l, int panel) {
    return l->q + (int64_t)panel * l->d * line(l);
}

static float *s_at(const struct nsa_ladder *l, int panel, int64_t key) {
    return l->s + (panel * l->n + key) * line(l);
}

static float *state_at(const struct nsa_ladder *l, float *of, int64_t set, int panel, int lines) {
    return of + (set * l->n_panels + panel) * lines * line(l);
}

static float *columns_at(const struct nsa_ladder *l, int64_t tile, int panel) {
    return l->u + (tile * l->n_panels + panel) * l->n_columns * line(l);
}

static int64_t n_sets(const struct nsa_ladder *l) {
    return l->n_splits > l->n_threads ? l->n_splits : l->n_threads;
}

/* ---- Stages ---------------------------------------------------------------------------------- */

/* What the next tile will need, fetched a part at a time meanwhile. */
struct fetch {
    const char *at[2], *end[2];
    int64_t lines; /* a part */
};

static struct fetch fetch_of(const struct nsa_ladder *l, int64_t key, int64_t end, bool keys,
                             bool values, int64_t parts) {
    struct fetch f = {{0}, {0}, 0};
    key = min64(key, end);
    const int64_t n = min64(TILE, end - key);
    if (keys) {
        f.at[0] = (const char *)(l->kc + key * l->d);
        f.end[0] = f.at[0] + n * l->d * (int64_t)sizeof(float);
    }
    if (values) {
        f.at[1] = (const char *)(l->vc + key * l->dv);
        f.end[1] = f.at[1] + n * l->dv * (int64_t)sizeof(float);
    }
    f.lines = ((f.end[0] - f.at[0]) + (f.end[1] - f.at[1])) / LINE / parts + 1;
    return f;
}

static void fetch_part(struct fetch *f) {
    for (int64_t i = 0, x = f->at[0] < f->end[0] ? 0 : 1; i < f->lines; i++) {
        if (f->at[x] >= f->end[x] && ++x == 2) return;
        __builtin_prefetch(f->at[x], 0, 2);
        f->at[x] += LINE;
    }
}

static void qk(const struct nsa_ladder *l, int panel, int64_t key, int n, float *s,
               struct fetch *f) {
    for (int j = 0; j < n; j += PREFETCH_STEP) {
        fetch_part(f);
        l->k->tile_qk_f32(l->panels[panel].nv, q_at(l, panel), l->kc + (key + j) * l->d, l->d,
                          (int)min64(PREFETCH_STEP, n - j), l->d, s + j * line(l));
    }
}

/* out of a tile, o = factor * o + P V; factor NULL: o = P V. */
static void pv(const struct nsa_ladder *l, int panel, int64_t key, int n, const float *p, float *o,
               const float *factor, struct fetch *f) {
    const struct ptl_run run = {l->vc + key * l->dv, n};
    for (int d = 0; d < l->dv; d += PREFETCH_STEP) {
        fetch_part(f);
        l->k->tile_pv_runs_f32(l->panels[panel].nv, p, &run, l->dv, n, d,
                               (int)min64(PREFETCH_STEP, l->dv - d), o, factor);
    }
}

/* The score of a tile by the small block: u = P W. */
static void pw(const struct nsa_ladder *l, int panel, int64_t key, int n, const float *p) {
    l->k->tile_pv_f32(l->panels[panel].nv, p, l->w, l->n_columns, n, l->n_columns,
                      columns_at(l, key / TILE, panel), true);
}

/* Parts of the products of a tile over all panels. */
static int64_t n_parts(const struct nsa_ladder *l, bool keys, bool values) {
    return l->n_panels * ((keys ? TILE : 0) + (values ? l->dv : 0)) / PREFETCH_STEP + 1;
}

/* ---- Ends ------------------------------------------------------------------------------------ */

/* Columns of all tiles, each times 2^(its maximum - the last) / z, the heads summed, tiles joined.
 * Without rescale the maximum of every tile is the last one. */
static void join_columns(const struct nsa_ladder *l, bool rescale) {
    float share[PTL_MAX_PANEL], sum[MAX_COLUMNS];
    memset(l->score, 0, (size_t)(l->n_blocks + l->n_columns) * sizeof *l->score);
    for (int64_t tile = 0; tile < l->n_tiles; tile++) {
        memset(sum, 0, sizeof sum);
        for (int i = 0; i < l->n_panels; i++) {
            const float *m = state_at(l, l->m, 0, i, 1), *z = state_at(l, l->z, 0, i, 1);
            const float *m_tile = rescale ? state_at(l, l->m_tile, tile, i, 1) : m;
            l->k->softmax_share_f32(l->panels[i].nv, m_tile, m, z, share);
            l->k->lines_sum_f32(columns_at(l, tile, i), l->n_columns, 0, l->panels[i].n_lanes,
                                share, sum);
        }
        for (int c = 0; c < l->n_columns; c++) l->score[tile * TILE / l->a + c] += sum[c];
    }
}

static void store_out(const struct nsa_ladder *l) {
    for (int i = 0; i < l->n_panels; i++) {
        float *rows[PTL_MAX_PANEL], scale[PTL_MAX_PANEL];
        for (int lane = 0; lane < l->panels[i].n_lanes; lane++) {
            rows[lane] = l->out + (int64_t)(l->panels[i].lane + lane) * l->dv;
            scale[lane] = 1.0f / state_at(l, l->z, 0, i, 1)[lane];
        }
        l->k->panel_store_f32(state_at(l, l->o, 0, i, l->dv), l->panels[i].n_lanes, l->dv, scale,
                              false, rows);
    }
}

/* ---- Scores in memory ------------------------------------------------------------------------ */

/* The part of the tiles that is a thread's. */
static void own_tiles(const struct nsa_ladder *l, int64_t task, int64_t *begin, int64_t *end) {
    *begin = min64(l->n, l->n_tiles * task / l->n_threads * TILE);
    *end = min64(l->n, l->n_tiles * (task + 1) / l->n_threads * TILE);
}

static void score_range(void *job, int64_t task, int slot) {
    const struct nsa_ladder *l = job;
    int64_t begin, end;
    (void)slot;
    own_tiles(l, task, &begin, &end);
    for (int64_t key = begin; key < end; key += TILE) {
        struct fetch f = fetch_of(l, key + TILE, end, true, false, n_parts(l, true, false));
        for (int i = 0; i < l->n_panels; i++)
            qk(l, i, key, (int)min64(TILE, end - key), s_at(l, i, key), &f);
    }
}

static void softmax_panel(void *job, int64_t task, int slot) {
    const struct nsa_ladder *l = job;
    const int i = (int)task;
    float factor[PTL_MAX_PANEL];
    float *m = state_at(l, l->m, 0, i, 1), *z = state_at(l, l->z, 0, i, 1);
    (void)slot;
    for (int lane = 0; lane < line(l); lane++) {
        m[lane] = -INFINITY;
        z[lane] = 0.0f;
    }
    l->k->tile_softmax_f32(l->panels[i].nv, s_at(l, i, 0), (int)l->n, l->scale, NULL, m, z, factor);
}

/* P V of a thread's keys, and from the shared rung on P W. */
static void weigh_range(void *job, int64_t task, int slot) {
    const struct nsa_ladder *l = job;
    float one[PTL_MAX_PANEL];
    int64_t begin, end;
    (void)slot;
    for (int lane = 0; lane < line(l); lane++) one[lane] = 1.0f;
    own_tiles(l, task, &begin, &end);
    for (int64_t key = begin; key < end; key += TILE) {
        struct fetch f = fetch_of(l, key + TILE, end, false, true, n_parts(l, false, true));
        for (int i = 0; i < l->n_panels; i++) {
            const int n = (int)min64(TILE, end - key);
            pv(l, i, key, n, s_at(l, i, key), state_at(l, l->o, task, i, l->dv),
               key == begin ? NULL : one, &f);
            if (l->rung == LADDER_NSA_SHARED) pw(l, i, key, n, s_at(l, i, key));
        }
    }
}

static void product_range(void *job, int64_t task, int slot) {
    const struct nsa_ladder *l = job;
    int64_t begin, end;
    (void)slot;
    own_tiles(l, task, &begin, &end);
    for (int64_t key = begin; key < end; key += TILE)
        for (int i = 0; i < l->n_panels; i++)
            pw(l, i, key, (int)min64(TILE, end - key), s_at(l, i, key));
}

/* P of some keys transposed, times 1 / z, and summed over the heads into the first row. */
static void transpose_range(void *job, int64_t task, int slot) {
    const struct nsa_ladder *l = job;
    int64_t begin, end;
    (void)slot;
    own_tiles(l, task, &begin, &end);
    for (int i = 0; i < l->n_panels; i++) {
        float *rows[PTL_MAX_PANEL], scale[PTL_MAX_PANEL];
        for (int lane = 0; lane < l->panels[i].n_lanes; lane++) {
            rows[lane] = l->rows + (l->panels[i].lane + lane) * l->n + begin;
            scale[lane] = 1.0f / state_at(l, l->z, 0, i, 1)[lane];
        }
        l->k->panel_store_f32(s_at(l, i, begin), l->panels[i].n_lanes, end - begin, scale, false,
                              rows);
    }
    for (int head = 1; head < l->heads; head++)
        l->k->affine_f32(l->rows + begin, l->rows + begin, 1.0f, l->rows + head * l->n + begin,
                         NULL, end - begin);
}

/* The weights of a block are those of a box of b keys, then of a box of a. */
static void sum_blocks(const struct nsa_ladder *l) {
    for (int64_t j = 0; j < l->n_blocks; j++) {
        float sum = 0.0f;
        for (int64_t c = l->a * j; c < l->a * (j + 1); c++)
            for (int64_t i = c - l->b + 1; i <= c; i++)
                if (i >= 0 && i < l->n) sum += l->rows[i];
        l->score[j] = sum;
    }
}

static void run_stored(struct nsa_ladder *l) {
    ladder_draw(l->ctx, score_range, l, l->n_threads);
    ladder_draw(l->ctx, softmax_panel, l, l->n_panels);
    ladder_draw(l->ctx, weigh_range, l, l->n_threads);
    for (int64_t set = 1; set < l->n_threads; set++)
        for (int i = 0; i < l->n_panels; i++) {
            float *o = state_at(l, l->o, 0, i, l->dv);
            l->k->affine_f32(o, o, 1.0f, state_at(l, l->o, set, i, l->dv), NULL, l->dv * line(l));
        }
    if (l->rung == LADDER_NSA_SUMS) {
        ladder_draw(l->ctx, transpose_range, l, l->n_threads);
        sum_blocks(l);
        return;
    }
    if (l->rung == LADDER_NSA_PRODUCT) ladder_draw(l->ctx, product_range, l, l->n_threads);
    join_columns(l, false);
}

/* ---- One pass -------------------------------------------------------------------------------- */

/* Keys [begin, end) of some panels into a set of states. */
static void walk(const struct nsa_ladder *l, int64_t begin, int64_t end, int64_t set, int first,
                 int last, float *s) {
    float factor[PTL_MAX_PANEL];
    for (int i = first; i < last; i++)
        for (int lane = 0; lane < line(l); lane++) {
            state_at(l, l->m, set, i, 1)[lane] = -INFINITY;
            state_at(l, l->z, set, i, 1)[lane] = 0.0f;
        }
    for (int64_t key = begin; key < end; key += TILE) {
        const int n = (int)min64(TILE, end - key);
        struct fetch f = fetch_of(l, key + TILE, l->n, true, true,
                                  n_parts(l, true, true) * (last - first) / l->n_panels);
        for (int i = first; i < last; i++) {
            const int nv = l->panels[i].nv;
            float *m = state_at(l, l->m, set, i, 1), *z = state_at(l, l->z, set, i, 1);
            qk(l, i, key, n, s, &f);
            l->k->tile_softmax_f32(nv, s, n, l->scale, NULL, m, z, factor);
            pv(l, i, key, n, s, state_at(l, l->o, set, i, l->dv), key == begin ? NULL : factor, &f);
            pw(l, i, key, n, s);
            memcpy(state_at(l, l->m_tile, key / TILE, i, 1), m, (size_t)line(l) * sizeof *m);
        }
    }
}

static float *tile_of(const struct nsa_ladder *l, int slot) {
    return l->tiles + (int64_t)slot * TILE * line(l);
}

static void walk_panel(void *job, int64_t task, int slot) {
    const struct nsa_ladder *l = job;
    walk(l, 0, l->n, 0, (int)task, (int)task + 1, tile_of(l, slot));
}

static void walk_split(void *job, int64_t task, int slot) {
    const struct nsa_ladder *l = job;
    walk(l, task * SPLIT, min64(l->n, (task + 1) * SPLIT), task, 0, l->n_panels, tile_of(l, slot));
}

static void merge_panel(void *job, int64_t task, int slot) {
    const struct nsa_ladder *l = job;
    const int i = (int)task;
    (void)slot;
    for (int64_t set = 1; set < l->n_splits; set++)
        l->k->softmax_fold_f32(l->panels[i].nv, l->dv, state_at(l, l->m, 0, i, 1),
                               state_at(l, l->z, 0, i, 1), state_at(l, l->o, 0, i, l->dv),
                               state_at(l, l->m, set, i, 1), state_at(l, l->z, set, i, 1),
                               state_at(l, l->o, set, i, l->dv));
}

static void run_one_pass(struct nsa_ladder *l) {
    if (l->rung == LADDER_NSA_ONLINE) {
        ladder_draw(l->ctx, walk_panel, l, l->n_panels);
    } else {
        ladder_draw(l->ctx, walk_split, l, l->n_splits);
        ladder_draw(l->ctx, merge_panel, l, l->n_panels);
    }
    join_columns(l, true);
}

/* ---- Rungs ----------------------------------------------------------------------------------- */

static struct ptl_tensor row_of(void *data, enum ptl_dtype dtype, int64_t heads, int64_t last) {
    const int64_t shape[3] = {1, heads, last};
    return ptl_tensor_contiguous(data, dtype, 3, shape);
}

static enum ptl_status select_blocks(struct nsa_ladder *l) {
    struct ptl_nsa_params p = *l->problem->compressed;
    p.importance = row_of(l->score, PTL_F32, 1, l->n_blocks);
    p.idx = row_of(l->idx, PTL_I32, 1, p.topk);
    p.nsel.data = NULL;
    return ptl_nsa_select(l->ctx, &p);
}

static enum ptl_status run_library(struct nsa_ladder *l) {
    struct ptl_nsa_params p = *l->problem->compressed;
    p.out_cmp = row_of(l->out, PTL_F32, l->heads, l->dv);
    p.idx = row_of(l->idx, PTL_I32, 1, p.topk);
    p.lse_cmp.data = p.importance.data = p.nsel.data = NULL;
    return ptl_nsa_compressed_attention(l->ctx, &p);
}

static enum ptl_status run_attend(struct nsa_ladder *l) {
    struct ptl_nsa_params p = *l->problem->attend;
    p.lse_slc.data = p.lse_swa.data = NULL;
    p.out_slc = row_of(l->out, PTL_F32, l->heads, l->dv);
    p.out_swa = row_of(l->out + l->heads * l->dv, PTL_F32, l->heads, l->dv);
    if (l->rung == LADDER_NSA_FUSED) return ptl_nsa_attend(l->ctx, &p);
    struct ptl_nsa_params selected = p, sliding = p;
    selected.window = 0;
    selected.out_swa.data = sliding.idx.data = sliding.out_slc.data = NULL;
    const enum ptl_status status = ptl_nsa_attend(l->ctx, &selected);
    return status == PTL_OK ? ptl_nsa_attend(l->ctx, &sliding) : status;
}

static enum ptl_status run_rung(struct nsa_ladder *l) {
    if (l->rung >= LADDER_NSA_APART) return run_attend(l);
    if (l->rung == LADDER_NSA_LIBRARY) return run_library(l);
    if (l->rung <= LADDER_NSA_SHARED) run_stored(l);
    else run_one_pass(l);
    store_out(l);
    return select_blocks(l);
}

/* ---- Comparing ------------------------------------------------------------------------------- */

/* What the library's rung gives, and that of two calls. */
struct expected {
    float *out, *importance, *attended;
    int32_t *idx;
};

static double largest_difference(const float *x, const float *y, int64_t n, double least_scale) {
    double most = 0.0, scale = least_scale;
    for (int64_t i = 0; i < n; i++) {
        const double difference = fabs((double)x[i] - (double)y[i]);
        scale = fmax(scale, fabs((double)y[i]));
        if (!(difference <= most)) most = isnan(difference) ? INFINITY : difference;
    }
    return most / scale;
}

static void compare_rung(struct nsa_ladder *l, const struct expected *e,
                         struct ladder_nsa_rung *rung) {
    const int64_t n = (int64_t)l->heads * l->dv;
    if (l->rung >= LADDER_NSA_APART) {
        rung->difference = largest_difference(l->out, e->attended, 2 * n, 1.0);
        rung->same_blocks = true;
        return;
    }
    rung->difference = largest_difference(l->out, e->out, n, 1.0);
    if (l->rung != LADDER_NSA_LIBRARY)
        rung->score_difference =
            largest_difference(l->score, e->importance, l->n_blocks, (double)(l->heads * l->b));
    rung->same_blocks =
        memcmp(l->idx, e->idx, (size_t)l->problem->compressed->topk * sizeof *e->idx) == 0;
}

static enum ptl_status expect(struct nsa_ladder *l, const struct expected *e) {
    struct ptl_nsa_params p = *l->problem->compressed;
    const int64_t n = (int64_t)l->heads * l->dv;
    p.out_cmp = row_of(e->out, PTL_F32, l->heads, l->dv);
    p.importance = row_of(e->importance, PTL_F32, 1, l->n_blocks);
    p.idx = row_of(e->idx, PTL_I32, 1, p.topk);
    p.lse_cmp.data = p.nsel.data = NULL;
    enum ptl_status status = ptl_nsa_compressed_attention(l->ctx, &p);
    l->rung = LADDER_NSA_APART;
    if (status == PTL_OK) status = run_attend(l);
    memcpy(e->attended, l->out, (size_t)(2 * n) * sizeof *l->out);
    return status;
}

/* ---- The climb ------------------------------------------------------------------------------- */

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int64_t scratch_of(struct ptl_context *ctx) {
    struct ptl_context_info info = {.struct_size = sizeof info};
    return ptl_context_get_info(ctx, &info) == PTL_OK ? (int64_t)info.scratch_bytes : 0;
}

static int64_t above_bytes(const struct nsa_ladder *l) {
    const int64_t lines = (int64_t)l->n_panels * line(l);
    const int64_t columns = lines * l->n_tiles * (l->n_columns + 1);
    const int64_t state = lines * (l->dv + 2);
    switch (l->rung) {
    case LADDER_NSA_SUMS:
        return 4 * (lines * l->n + state * l->n_threads + (int64_t)l->heads * l->n);
    case LADDER_NSA_PRODUCT:
    case LADDER_NSA_SHARED: return 4 * (lines * l->n + state * l->n_threads + columns);
    case LADDER_NSA_ONLINE: return 4 * (state + columns);
    case LADDER_NSA_SPLIT: return 4 * (state * l->n_splits + columns);
    default: return scratch_of(l->ctx);
    }
}

static enum ptl_status time_once(struct nsa_ladder *l, struct ladder_nsa_rung *rung) {
    if (l->problem->before) l->problem->before(l->problem->arg);
    const double begin = now();
    const enum ptl_status status = run_rung(l);
    const double seconds = now() - begin;
    if (rung->runs++ == 0 || seconds < rung->seconds) rung->seconds = seconds;
    return status;
}

/* In turn, so that all meet the same disturbances. The library's rungs have a context of their own,
 * to show their own memory. */
static enum ptl_status climb(struct nsa_ladder *l, struct ptl_context *own,
                             struct ptl_context *libraries[2], const struct expected *e,
                             struct ladder_nsa_result *r) {
    const double begin = now();
    for (int round = 0; round < 3 || now() - begin < l->problem->seconds; round++)
        for (l->rung = 0; l->rung < LADDER_NSA_RUNGS; l->rung++) {
            struct ladder_nsa_rung *rung = &r->rung[l->rung];
            l->ctx = l->rung < LADDER_NSA_LIBRARY    ? own
                     : l->rung == LADDER_NSA_LIBRARY ? libraries[0]
                                                     : libraries[1];
            const enum ptl_status status = time_once(l, rung);
            if (status != PTL_OK) return status;
            if (round > 0) continue;
            compare_rung(l, e, rung);
            rung->above_bytes = above_bytes(l);
        }
    return PTL_OK;
}

static float *floats(struct ptl_pieces *m, int64_t n) {
    return ptl_take(m, (size_t)n * sizeof(float));
}

/* Gives everything its place in the memory of m, or counts it. */
static void place(struct nsa_ladder *l, struct expected *e, struct ptl_pieces *m) {
    const int64_t lines = (int64_t)l->n_panels * line(l), n = (int64_t)l->heads * l->dv;
    l->q = floats(m, lines * l->d);
    l->w = floats(m, (int64_t)TILE * l->n_columns);
    l->s = floats(m, lines * l->n);
    l->m = floats(m, lines * n_sets(l));
    l->z = floats(m, lines * n_sets(l));
    l->o = floats(m, lines * n_sets(l) * l->dv);
    l->u = floats(m, lines * l->n_tiles * l->n_columns);
    l->m_tile = floats(m, lines * l->n_tiles);
    l->tiles = floats(m, (int64_t)l->ctx->executor.n_threads * TILE * line(l));
    l->rows = floats(m, (int64_t)l->heads * l->n);
    l->score = floats(m, l->n_blocks + l->n_columns);
    l->out = floats(m, 2 * n);
    l->idx = ptl_take(m, (size_t)l->problem->compressed->topk * sizeof *l->idx);
    e->out = floats(m, n);
    e->importance = floats(m, l->n_blocks);
    e->attended = floats(m, 2 * n);
    e->idx = ptl_take(m, (size_t)l->problem->compressed->topk * sizeof *e->idx);
}

static void measure(struct nsa_ladder *l) {
    const struct ptl_nsa_params *p = l->problem->compressed;
    const double scale = isnan(p->scale) ? 1.0 / sqrt((double)p->q.shape[2]) : (double)p->scale;
    l->k = l->ctx->kernels;
    l->heads = (int)p->q.shape[1];
    l->d = (int)p->q.shape[2];
    l->dv = (int)p->vc.shape[2];
    l->n = p->kc.shape[0];
    l->kc = p->kc.data;
    l->vc = p->vc.data;
    l->a = (int)(p->select_block / p->stride);
    l->b = (int)(p->block / p->stride);
    l->n_tiles = (l->n + TILE - 1) / TILE;
    l->n_splits = (l->n + SPLIT - 1) / SPLIT;
    l->n_threads = l->ctx->executor.n_threads;
    if (l->n_threads > l->n_tiles) l->n_threads = (int)l->n_tiles;
    l->n_blocks = (l->problem->n_tokens + p->select_block - 1) / p->select_block;
    l->n_columns = TILE / l->a + (l->b - 2 + l->a) / l->a;
    l->scale = (float)(scale * 1.4426950408889634);
    l->n_panels = ptl_nsa_cut_panels(l->k, l->heads, l->panels);
    assert(TILE % l->a == 0 && l->n_columns <= MAX_COLUMNS && l->n_panels <= MAX_PANELS);
}

/* Queries as panels, and W: key r of a tile gives 1 to the columns of keys r .. r + b - 1. */
static void fill(struct nsa_ladder *l) {
    const float *q = l->problem->compressed->q.data, *rows[PTL_MAX_PANEL];
    for (int i = 0; i < l->n_panels; i++) {
        for (int lane = 0; lane < l->panels[i].n_lanes; lane++)
            rows[lane] = q + (int64_t)(l->panels[i].lane + lane) * l->d;
        l->k->panel_load_f32(rows, l->panels[i].n_lanes, l->d, q_at(l, i));
    }
    memset(l->w, 0, (size_t)(TILE * l->n_columns) * sizeof *l->w);
    for (int r = 0; r < TILE; r++)
        for (int x = r; x < r + l->b; x++) l->w[r * l->n_columns + x / l->a] += 1.0f;
}

enum ptl_status ladder_run_nsa(const struct ptl_context_options *options,
                               const struct ladder_nsa_problem *problem,
                               struct ladder_nsa_result *result) {
    struct nsa_ladder l = {.problem = problem};
    struct ptl_context *own = NULL, *libraries[2] = {NULL, NULL};
    struct expected e;
    struct ptl_pieces m = {NULL, 0};
    memset(result, 0, sizeof *result);
    enum ptl_status status = ptl_context_create(&own, options);
    for (int i = 0; i < 2 && status == PTL_OK; i++)
        status = ptl_context_create(&libraries[i], options);
    if (status != PTL_OK) goto done;
    l.ctx = own;
    measure(&l);
    place(&l, &e, &m);
    m.base = aligned_alloc(64, m.used);
    m.used = 0;
    status = m.base ? PTL_OK : PTL_ERR_NOMEM;
    if (status != PTL_OK) goto done;
    place(&l, &e, &m);
    fill(&l);
    status = expect(&l, &e);
    if (status == PTL_OK) status = climb(&l, own, libraries, &e, result);
done:
    free(m.base);
    ptl_context_destroy(libraries[1]);
    ptl_context_destroy(libraries[0]);
    ptl_context_destroy(own);
    return status;
}
