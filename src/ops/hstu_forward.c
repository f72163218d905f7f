/* HSTU forward: the walk over blocks of query rows and tiles of keys. The arithmetic of a tile is in
 * src/kernels; which columns a row sees is hstu_mask.c.
 *
 * A task is one block of rows of one sequence and head. Its rows are cut into panels; for every key
 * tile, in key order, every panel runs the three stages on it:
 *
 *     QK product -> silu -> PV product
 *
 * All panels of the block use a tile while it is in the cache. Tiles start at multiples of key_tile in
 * the sequence, and a tile's sum is finished before it is added to the output, so an output element is
 * the same sum whatever the block, the panel or the call it was computed in. */
#include <string.h>

#include "hstu.h"
#include "schedule.h"

/* Rows of a block. More rows share a key tile's way from memory; but their panels and a tile should stay
 * in a second-level cache of 512 KiB, and more blocks share out better. */
enum { BLOCK_BYTES = 192 << 10, MAX_BLOCK_ROWS = 384 };

/* Panels of a block: MAX_BLOCK_ROWS over the narrowest panel (4), and the borders. */
enum { MAX_BLOCK_PANELS = MAX_BLOCK_ROWS / 4 + 3 };

struct panel {
    int64_t row;
    int n_rows, nv;
    bool empty; /* no tile has been added to its outputs yet */
};

struct forward_job {
    const struct ptl_hstu_problem *p;
    const struct ptl_kernels *kernels;
    struct ptl_schedule schedule;
    int64_t block_rows;
    char *scratch;
    size_t scratch_bytes; /* per slot */
    size_t q_bytes, o_bytes, s_bytes; /* of one panel, one panel, one tile */
};

/* The scratch memory of a slot, in this order. */
struct forward_scratch {
    float *q_panels, *o_panels, *s;
    uint64_t *bits;
    struct ptl_hstu_panel_mask *masks;
};

static int64_t choose_block_rows(const struct ptl_hstu_problem *p, const struct ptl_kernels *k) {
    int64_t n = BLOCK_BYTES / ((p->dqk + p->dv) * (int64_t)sizeof(float));
    if (n > MAX_BLOCK_ROWS) n = MAX_BLOCK_ROWS;
    return n < k->panel ? k->panel : n / k->panel * k->panel;
}

static size_t round_up(size_t n, size_t unit) {
    return (n + unit - 1) / unit * unit;
}

static int max_panels(const struct forward_job *job) {
    /* up to three regions, each with a remainder of less than a panel */
    return (int)(job->block_rows / job->kernels->panel) + 3;
}

static void size_scratch(struct forward_job *job) {
    const struct ptl_kernels *k = job->kernels;
    const size_t line = (size_t)k->panel * sizeof(float), panels = (size_t)max_panels(job);
    job->q_bytes = round_up((size_t)job->p->dqk * line, 64);
    job->o_bytes = round_up((size_t)job->p->dv * line, 64);
    job->s_bytes = round_up((size_t)k->key_tile * line, 64);
    job->scratch_bytes = round_up(panels * (job->q_bytes + job->o_bytes) + job->s_bytes +
                                      round_up((size_t)k->key_tile * sizeof(uint64_t), 64) +
                                      panels * sizeof(struct ptl_hstu_panel_mask),
                                  4096) + 64; /* off the page grid: slots must not share cache sets */
}

static struct forward_scratch scratch_of(const struct forward_job *job, int slot) {
    struct forward_scratch s;
    const size_t panels = (size_t)max_panels(job);
    char *at = job->scratch + (size_t)slot * job->scratch_bytes;
    s.q_panels = (float *)at;
    at += panels * job->q_bytes;
    s.o_panels = (float *)at;
    at += panels * job->o_bytes;
    s.s = (float *)at;
    at += job->s_bytes;
    s.bits = (uint64_t *)at;
    at += round_up((size_t)job->kernels->key_tile * sizeof(uint64_t), 64);
    s.masks = (struct ptl_hstu_panel_mask *)at;
    return s;
}

/* Cuts rows [row, end) into panels of nearly equal numbers of vectors: 4 vectors are 2 + 2, not 3 + 1,
 * because the product is slow on a single vector. */
static int cut_panels(const struct ptl_kernels *k, int64_t row, int64_t end, struct panel *panels) {
    int64_t vectors = (end - row + k->lanes - 1) / k->lanes;
    const int nv_max = k->panel / k->lanes;
    int n = 0;
    for (int64_t left = (vectors + nv_max - 1) / nv_max; left > 0; left--) {
        const int nv = (int)((vectors + left - 1) / left);
        const int64_t rows = (int64_t)nv * k->lanes < end - row ? nv * k->lanes : end - row;
        panels[n++] = (struct panel){row, (int)rows, nv, true};
        row += rows;
        vectors -= nv;
    }
    return n;
}

/* Panels of the block's rows, cut at the borders of contexts and targets too: their rows see other
 * columns than their neighbours, and a panel computes what any of its rows sees. */
static int plan_panels(const struct ptl_kernels *k, const struct ptl_hstu_seq *seq, int64_t row,
                       int64_t end, struct panel *panels) {
    const int64_t off = seq->uk - seq->uq;
    const int64_t borders[3] = {seq->contexts - off, seq->targets ? seq->first_target - off : end, end};
    int n = 0;
    for (int i = 0; i < 3; i++) {
        int64_t stop = borders[i] < end ? borders[i] : end;
        if (stop <= row) continue;
        n += cut_panels(k, row, stop, panels + n);
        row = stop;
    }
    return n;
}

/* Whether v's rows [begin, end) hold no NaN or Inf. */
static bool v_is_finite(const struct ptl_kernels *k, const struct ptl_hstu_problem *p,
                        const struct ptl_hstu_seq *seq, int64_t head, int64_t begin, int64_t end) {
    const float *v = ptl_rows_at(&p->v, seq->b, seq->k_row + begin, head);
    return k->rows_finite_f32(v, p->v.row_stride, (int)(end - begin), p->dv);
}

static void zero_rows(const struct ptl_hstu_problem *p, const struct ptl_hstu_seq *seq, int64_t head,
                      int64_t row, int64_t end) {
    for (; row < end; row++)
        memset(ptl_rows_at(&p->out, seq->b, seq->q_row + row, head), 0,
               (size_t)(p->dv * p->out.elem_bytes));
}

static void load_panel(const struct forward_job *job, const struct ptl_hstu_seq *seq, int64_t head,
                       const struct panel *panel, float *q_panel) {
    const float *rows[PTL_MAX_PANEL];
    for (int i = 0; i < panel->n_rows; i++)
        rows[i] = ptl_rows_at(&job->p->q, seq->b, seq->q_row + panel->row + i, head);
    job->kernels->panel_load_f32(rows, panel->n_rows, job->p->dqk, q_panel);
}

static void store_panel(const struct forward_job *job, const struct ptl_hstu_seq *seq, int64_t head,
                        const struct panel *panel, const float *o_panel) {
    const struct ptl_hstu_problem *p = job->p;
    float *rows[PTL_MAX_PANEL], scale[PTL_MAX_PANEL];
    for (int i = 0; i < panel->n_rows; i++) {
        const int64_t row = seq->q_row + panel->row + i;
        rows[i] = ptl_rows_at(&p->out, seq->b, row, head);
        scale[i] = p->scale_rows.data ? *(float *)ptl_rows_at(&p->scale_rows, seq->b, row, 0) : p->scale;
    }
    job->kernels->panel_store_f32(o_panel, panel->n_rows, p->dv, scale, rows);
}

/* Asks for keys and values of the next tile, some rows at a time, while this one is computed: the rows
 * of one head lie far apart in a jagged array, where the hardware's prefetchers give up, and one burst
 * of requests would hold up the loads behind it. */
struct prefetch {
    const char *k, *v;
    int64_t k_step, v_step, k_bytes, v_bytes;
    int64_t n_rows, part, n_parts; /* part n of n_parts is asked for next */
};

static struct prefetch prefetch_begin(const struct ptl_hstu_problem *p, const struct ptl_hstu_seq *seq,
                                      int64_t head, int64_t begin, int64_t end, int64_t n_parts) {
    struct prefetch f = {
        .k = ptl_rows_at(&p->k, seq->b, seq->k_row + begin, head),
        .v = ptl_rows_at(&p->v, seq->b, seq->k_row + begin, head),
        .k_step = p->k.row_stride * p->k.elem_bytes,
        .v_step = p->v.row_stride * p->v.elem_bytes,
        .k_bytes = p->dqk * p->k.elem_bytes,
        .v_bytes = p->dv * p->v.elem_bytes,
        .n_rows = end > begin ? end - begin : 0,
        .n_parts = n_parts,
    };
    return f;
}

static void prefetch_part(struct prefetch *f) {
    const int64_t end = ++f->part * f->n_rows / f->n_parts;
    for (int64_t j = (f->part - 1) * f->n_rows / f->n_parts; j < end; j++) {
        const char *k = f->k + j * f->k_step, *v = f->v + j * f->v_step;
        for (int64_t x = 0; x < f->k_bytes; x += 64) __builtin_prefetch(k + x, 0, 2);
        for (int64_t x = 0; x < f->v_bytes; x += 64) __builtin_prefetch(v + x, 0, 2);
    }
}

/* Keys or columns of a product between two prefetches: a multiple of every register block. */
enum { STEP = 24 };

static int64_t n_steps(int64_t n) {
    return (n + STEP - 1) / STEP;
}

static void forward_block(const struct forward_job *job, const struct ptl_hstu_seq *seq, int64_t head,
                          int64_t row, int64_t end, const struct forward_scratch *scratch) {
    const struct ptl_hstu_problem *p = job->p;
    const struct ptl_kernels *k = job->kernels;
    const int64_t kv_head = head / (p->n_q_heads / p->n_k_heads);
    const size_t q_floats = job->q_bytes / sizeof(float), o_floats = job->o_bytes / sizeof(float);

    struct panel panels[MAX_BLOCK_PANELS];
    const int n_panels = plan_panels(k, seq, row, end, panels);
    int64_t first = INT64_MAX, last = 0;
    for (int i = 0; i < n_panels; i++) {
        struct ptl_hstu_panel_mask *m = &scratch->masks[i];
        ptl_hstu_panel_mask_init(m, p, seq, head, panels[i].row, panels[i].n_rows);
        if (m->first < first && m->first < m->last) first = m->first;
        if (m->last > last) last = m->last;
        if (m->first < m->last)
            load_panel(job, seq, head, &panels[i], scratch->q_panels + (size_t)i * q_floats);
    }

    if (first < last) first = first / k->key_tile * k->key_tile;
    for (int64_t tile = first; tile < last; tile += k->key_tile) {
        const int64_t tile_end = tile + k->key_tile < seq->uk ? tile + k->key_tile : seq->uk;
        const int64_t next_end = tile_end + k->key_tile < last ? tile_end + k->key_tile : last;
        struct prefetch ahead =
            prefetch_begin(p, seq, kv_head, tile_end, next_end,
                          n_panels * (n_steps(tile_end - tile) + n_steps(p->dv)));
        int finite = -1; /* not known yet; asked only where the mask cuts the tile */
        for (int i = 0; i < n_panels; i++) {
            const int nv = panels[i].nv;
            int64_t j = tile, j_end = tile_end;
            const enum ptl_tile_kind kind = ptl_hstu_tile_mask(&scratch->masks[i], &j, &j_end,
                                                               scratch->bits);
            if (kind == PTL_TILE_SKIP) continue;
            const uint64_t *bits = kind == PTL_TILE_MIXED ? scratch->bits : NULL;
            const float *keys = ptl_rows_at(&p->k, seq->b, seq->k_row + j, kv_head);
            const float *values = ptl_rows_at(&p->v, seq->b, seq->k_row + j, kv_head);
            float *o_panel = scratch->o_panels + (size_t)i * o_floats;
            const int n_keys = (int)(j_end - j);

            for (int x = 0; x < n_keys; x += STEP) {
                prefetch_part(&ahead);
                k->tile_qk_f32(nv, scratch->q_panels + (size_t)i * q_floats, keys + x * p->k.row_stride,
                               p->k.row_stride, n_keys - x < STEP ? n_keys - x : STEP, p->dqk,
                               scratch->s + x * k->panel);
            }
            k->tile_silu_f32(nv, scratch->s, n_keys, p->alpha, bits);
            if (bits && finite < 0) finite = v_is_finite(k, p, seq, kv_head, tile, tile_end);
            if (bits && !finite)
                k->tile_pv_masked_f32(nv, scratch->s, values, p->v.row_stride, n_keys, p->dv, o_panel,
                                      panels[i].empty, bits);
            else
                for (int x = 0; x < p->dv; x += STEP) {
                    prefetch_part(&ahead);
                    k->tile_pv_f32(nv, scratch->s, values + x, p->v.row_stride, n_keys,
                                   p->dv - x < STEP ? p->dv - x : STEP, o_panel + x * k->panel,
                                   panels[i].empty);
                }
            panels[i].empty = false;
        }
    }

    for (int i = 0; i < n_panels; i++) {
        if (panels[i].empty) zero_rows(p, seq, head, panels[i].row, panels[i].row + panels[i].n_rows);
        else store_panel(job, seq, head, &panels[i], scratch->o_panels + (size_t)i * o_floats);
    }
}

static void forward_worker(void *arg, int slot) {
    struct forward_job *job = arg;
    const struct forward_scratch scratch = scratch_of(job, slot);
    int64_t task, end;
    while (ptl_schedule_draw(&job->schedule, &task, &end))
        for (; task < end; task++) {
            const struct ptl_block block = job->schedule.blocks[task / job->schedule.n_heads];
            const int64_t head = task % job->schedule.n_heads;
            const struct ptl_hstu_seq seq = ptl_hstu_sequence(job->p, block.seq);
            int64_t stop = block.row + job->block_rows;
            if (stop > seq.allocated) stop = seq.allocated;
            const int64_t real = stop < seq.uq ? stop : seq.uq;
            if (block.row < real) forward_block(job, &seq, head, block.row, real, &scratch);
            zero_rows(job->p, &seq, head, block.row > real ? block.row : real, stop);
        }
}

/* Multiply-adds of a block and head, with something for its loads and stores. */
static int64_t block_cost(const struct forward_job *job, const struct ptl_hstu_seq *seq, int64_t row) {
    const struct ptl_hstu_problem *p = job->p;
    int64_t n = seq->allocated - row < job->block_rows ? seq->allocated - row : job->block_rows;
    int64_t real = seq->uq - row < n ? seq->uq - row : n;
    return (ptl_hstu_estimate_pairs(p, seq, row, real) + 8 * n) * (p->dqk + p->dv);
}

/* Calls count or place for every block of every sequence, the padding included. */
static void each_block(struct forward_job *job, bool place) {
    const int64_t n = job->p->n_seqs + (job->p->dense ? 0 : 1);
    for (int64_t b = 0; b < n; b++) {
        const struct ptl_hstu_seq seq = ptl_hstu_sequence(job->p, b);
        for (int64_t row = 0; row < seq.allocated; row += job->block_rows) {
            const int64_t cost = block_cost(job, &seq, row);
            if (place) ptl_schedule_place(&job->schedule, (struct ptl_block){b, row}, cost);
            else ptl_schedule_count(&job->schedule, cost);
        }
    }
}

enum ptl_status ptl_hstu_run_forward(struct ptl_context *ctx, const struct ptl_hstu_problem *p) {
    const int n_threads = ctx->executor.n_threads;
    struct forward_job job = {.p = p, .kernels = ctx->kernels, .block_rows = choose_block_rows(p, ctx->kernels)};

    for (;;) {
        ptl_schedule_begin(&job.schedule, p->n_q_heads);
        each_block(&job, false);
        /* Few long blocks leave threads idle at the end: cut them until there are eight a thread. */
        const int64_t half = job.block_rows / 2 / ctx->kernels->panel * ctx->kernels->panel;
        if (half == 0 || job.schedule.n_tasks >= 8 * n_threads ||
            ptl_schedule_workers(&job.schedule, n_threads) == 1)
            break;
        job.block_rows = half;
    }
    if (job.schedule.n_tasks == 0) return PTL_OK;

    struct ptl_block *blocks = ptl_arena_reserve(
        &ctx->plan, (size_t)ptl_schedule_n_blocks(&job.schedule) * sizeof(struct ptl_block));
    if (!blocks) return PTL_ERR_NOMEM;
    ptl_schedule_order(&job.schedule, blocks, n_threads);
    each_block(&job, true);
    const int n_workers = ptl_schedule_workers(&job.schedule, n_threads);

    size_scratch(&job);
    job.scratch = ptl_arena_reserve(&ctx->scratch, (size_t)n_workers * job.scratch_bytes);
    if (!job.scratch) return PTL_ERR_NOMEM;
    ptl_executor_run(&ctx->executor, n_workers, forward_worker, &job);
    return PTL_OK;
}
