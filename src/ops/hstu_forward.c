/* HSTU forward: the walk over blocks of query rows and tiles of keys. The arithmetic of a tile is
 * in src/kernels; which columns a row sees is hstu_mask.c.
 *
 * A task is one block of rows of one sequence and head, or of several heads where they share the
 * look-up of time buckets or long reads. Its rows are cut into panels; for every key tile, in key
 * order, every panel runs the three stages on it:
 *
 *     QK product -> bias, silu -> PV product
 *
 * All panels of the block use a tile while it is in the cache. Tiles start at multiples of key_tile
 * in the sequence, and a tile's sum is finished before it is added to the output, so an output
 * element is the same sum whatever the block, the panel or the call it was computed in. */
#include <string.h>

#include "../core/arith.h"
#include "hstu_ahead.h"
#include "hstu_tile.h"
#include "schedule.h"

/* Rows of a block. More rows share a key tile's way from memory; but their panels and a tile should
 * stay in a second-level cache of 512 KiB, and more blocks share out better. */
enum { BLOCK_BYTES = 192 << 10, MAX_BLOCK_ROWS = 384 };

/* Of the next task, what is asked for before it begins: this and the block under way should stay in
 * that cache together. */
enum { TASK_BYTES = 128 << 10 };

/* Panels of a block: MAX_BLOCK_ROWS over the narrowest panel (4), and the borders. */
enum { MAX_BLOCK_PANELS = MAX_BLOCK_ROWS / 4 + 3 };

struct panel {
    int64_t row;
    int n_rows, nv;
};

/* Rows [row, end) of one sequence and n_heads heads, and padding up to end_allocated. */
struct task {
    struct ptl_hstu_seq seq;
    int64_t head, n_heads, row, end, end_allocated;
};

struct forward_job {
    const struct ptl_hstu_problem *p;
    const struct ptl_kernels *kernels;
    struct ptl_schedule schedule;
    int64_t block_rows, heads_per_task;
    bool pairs;  /* the products are those of bf16 pairs */
    bool stream; /* out is written past the caches */
    char *scratch;
    size_t scratch_bytes;    /* per slot */
    size_t q_bytes, o_bytes; /* of one panel */
    const float *reversed;   /* position tables, or NULL */
};

/* The scratch memory of a slot. */
struct forward_scratch {
    float *q_panels, *o_panels, *s;
    uint64_t *bits;
    struct ptl_hstu_stage stage;
    bool *empty; /* of every panel: no tile has been added to its outputs yet */
    struct ptl_time_runs *runs;
    struct ptl_hstu_panel_mask *masks;
};

static int64_t choose_block_rows(const struct ptl_hstu_problem *p, const struct ptl_kernels *k,
                                 int64_t n_heads) {
    int64_t n = BLOCK_BYTES / ((p->dqk + p->dv) * (int64_t)sizeof(float) * n_heads);
    if (n > MAX_BLOCK_ROWS) n = MAX_BLOCK_ROWS;
    return n < k->panel ? k->panel : n / k->panel * k->panel;
}

/* Whether the keys, and the values, of a token's heads lie side by side. */
static bool adjacent_heads(const struct ptl_hstu_problem *p) {
    return p->k.head_stride == p->dqk && p->v.head_stride == p->dv && !p->pages.on;
}

static int64_t longest_rows(const struct ptl_hstu_problem *p) {
    int64_t most = 0;
    for (int64_t b = 0; b < p->n_seqs; b++) {
        const int64_t n = ptl_hstu_sequence(p, b).uq;
        if (n > most) most = n;
    }
    return most;
}

/* Heads of a task. They share the look-up of time buckets; and where they are side by side, memory
 * is read in long stretches instead of a head's part of every row. That pays when few rows meet
 * each key. More rows in a block pay more when they do not all fit, and so do enough tasks for the
 * threads. */
static int64_t choose_heads(const struct ptl_hstu_problem *p, const struct ptl_kernels *k,
                            int n_threads) {
    const int64_t group = p->n_q_heads / p->n_k_heads;
    if (p->tables.time) return p->n_q_heads;
    if (p->n_k_heads == 1 || !adjacent_heads(p)) return 1;
    const int64_t longest = longest_rows(p);
    for (int64_t n = p->n_k_heads; n > 1; n--)
        if (p->n_k_heads % n == 0 && longest <= choose_block_rows(p, k, n * group) &&
            p->n_seqs * (p->n_k_heads / n) >= 8 * n_threads)
            return n * group;
    return 1;
}

static int max_panels(const struct forward_job *job) {
    /* up to three regions, each with a remainder of less than a panel */
    return (int)(job->block_rows / job->kernels->panel) + 3;
}

/* The scratch of a slot; without memory only its size. */
static struct forward_scratch scratch_at(const struct forward_job *job, char *memory,
                                         size_t *bytes) {
    const struct ptl_kernels *k = job->kernels;
    const struct ptl_hstu_problem *p = job->p;
    const size_t line = (size_t)k->panel * sizeof(float), tile = (size_t)k->key_tile;
    const size_t rows = (size_t)max_panels(job), panels = rows * (size_t)job->heads_per_task;
    struct ptl_pieces m = {memory, 0};
    struct forward_scratch s;
    s.q_panels = ptl_take(&m, panels * job->q_bytes);
    s.o_panels = ptl_take(&m, panels * job->o_bytes);
    s.s = ptl_take(&m, tile * line);
    s.bits = ptl_take(&m, tile * sizeof(uint64_t));
    s.stage = ptl_hstu_stage_at(p, k, ptl_take(&m, ptl_hstu_stage_bytes(p, k)));
    s.empty = ptl_take(&m, panels * sizeof *s.empty);
    s.masks = ptl_take(&m, panels * sizeof *s.masks);
    s.runs = ptl_take(&m, p->tables.time ? rows * sizeof *s.runs : 0);
    for (size_t i = 0; p->tables.time && i < rows; i++) {
        struct ptl_time_run *run = ptl_take(&m, (size_t)k->panel * tile * sizeof *run);
        if (memory) s.runs[i].run = run;
    }
    *bytes =
        ptl_round_up(m.used, 4096) + 64; /* off the page grid: slots must not share cache sets */
    return s;
}

/* Cuts rows [row, end) into panels of nearly equal numbers of vectors: 4 vectors are 2 + 2, not 3 +
 * 1, because the product is slow on a single vector. */
static int cut_panels(const struct ptl_kernels *k, int64_t row, int64_t end, struct panel *panels) {
    int64_t vectors = (end - row + k->lanes - 1) / k->lanes;
    const int nv_max = k->panel / k->lanes;
    int n = 0;
    for (int64_t left = (vectors + nv_max - 1) / nv_max; left > 0; left--) {
        const int nv = (int)((vectors + left - 1) / left);
        const int64_t rows = (int64_t)nv * k->lanes < end - row ? nv * k->lanes : end - row;
        panels[n++] = (struct panel){row, (int)rows, nv};
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
    const int64_t borders[3] = {seq->contexts - off, seq->targets ? seq->first_target - off : end,
                                end};
    int n = 0;
    for (int i = 0; i < 3; i++) {
        int64_t stop = borders[i] < end ? borders[i] : end;
        if (stop <= row) continue;
        n += cut_panels(k, row, stop, panels + n);
        row = stop;
    }
    return n;
}

static void zero_rows(const struct ptl_hstu_problem *p, const struct ptl_hstu_seq *seq,
                      int64_t head, int64_t row, int64_t end) {
    for (; row < end; row++)
        memset(ptl_rows_at(&p->out, seq->b, seq->q_row + row, head), 0,
               (size_t)(p->dv * p->out.elem_bytes));
}

/* The keys and values [begin, end), for head h of the task. */
static struct ptl_ahead keys_ahead(const struct ptl_hstu_problem *p, const struct task *t,
                                   int64_t h, int64_t begin, int64_t end) {
    const int64_t group = p->n_q_heads / p->n_k_heads, first = t->head / group;
    const int64_t n_heads = (t->head + t->n_heads - 1) / group + 1 - first;
    struct ptl_ahead a = {0};
    if (p->pages.on || h >= n_heads) return a;
    ptl_ahead_rows(&a, &p->k, t->seq.b, t->seq.k_row + begin, end - begin, first, h, n_heads,
                   p->dqk);
    ptl_ahead_rows(&a, &p->v, t->seq.b, t->seq.k_row + begin, end - begin, first, h, n_heads,
                   p->dv);
    return a;
}

/* What a task begins with: rows of q and out, and as many keys and values; of all that it has when
 * it is short, else no more than the caches have room for beside the task before. */
static struct ptl_ahead task_ahead(const struct forward_job *job, const struct task *t, int64_t h) {
    const struct ptl_hstu_problem *p = job->p;
    const int64_t row_bytes = 2 * (p->dqk + p->dv) * p->q.elem_bytes * t->n_heads;
    const int64_t most = TASK_BYTES / row_bytes;
    const int64_t n = t->end - t->row < most ? t->end - t->row : most;
    struct ptl_ahead a = keys_ahead(p, t, h, 0, n < t->seq.uk ? n : t->seq.uk);
    ptl_ahead_rows(&a, &p->q, t->seq.b, t->seq.q_row + t->row, n, t->head, h, t->n_heads, p->dqk);
    if (!job->stream)
        ptl_ahead_rows(&a, &p->out, t->seq.b, t->seq.q_row + t->row, n, t->head, h, t->n_heads,
                       p->dv);
    return a;
}

/* A task while it is computed. Its heads go through every tile together, panel by panel; numbers of
 * panels count them head by head. */
struct block {
    const struct forward_job *job;
    const struct task *task, *next; /* next: the task after this one where it is known, else NULL */
    const struct forward_scratch *scratch;
    struct panel panels[MAX_BLOCK_PANELS];
    int n_panels;        /* of one head */
    int64_t first, last; /* all columns that some row sees */
};

static float *q_panel(const struct block *b, int64_t h, int i) {
    return b->scratch->q_panels + (size_t)(h * b->n_panels + i) * (b->job->q_bytes / sizeof(float));
}

static float *o_panel(const struct block *b, int64_t h, int i) {
    return b->scratch->o_panels + (size_t)(h * b->n_panels + i) * (b->job->o_bytes / sizeof(float));
}

static struct ptl_hstu_panel_mask *mask_of(const struct block *b, int64_t h, int i) {
    return &b->scratch->masks[h * b->n_panels + i];
}

/* Masks and q of every panel. */
static void begin_block(struct block *b) {
    const struct ptl_hstu_problem *p = b->job->p;
    const struct ptl_hstu_seq *seq = &b->task->seq;
    b->n_panels = plan_panels(b->job->kernels, seq, b->task->row, b->task->end, b->panels);
    b->first = INT64_MAX;
    b->last = 0;
    for (int64_t h = 0; h < b->task->n_heads; h++)
        for (int i = 0; i < b->n_panels; i++) {
            struct ptl_hstu_panel_mask *m = mask_of(b, h, i);
            const struct panel *panel = &b->panels[i];
            ptl_hstu_panel_mask_init(m, p, seq, b->task->head + h, panel->row, panel->n_rows);
            b->scratch->empty[h * b->n_panels + i] = true;
            if (m->first >= m->last) continue;
            if (m->first < b->first) b->first = m->first;
            if (m->last > b->last) b->last = m->last;
            if (b->job->pairs)
                ptl_hstu_load_panel_pairs(p, b->job->kernels, seq, b->task->head + h, panel->row,
                                          panel->n_rows, q_panel(b, h, i), &b->scratch->stage);
            else
                ptl_hstu_load_panel(p, b->job->kernels, &p->q, seq, b->task->head + h, panel->row,
                                    panel->n_rows, p->dqk, q_panel(b, h, i), &b->scratch->stage);
        }
}

/* Keys and values of one tile for one head of the block. */
struct tile {
    int64_t begin, end, head; /* head counts from the task's first */
    const float *keys, *values;
    const uint16_t *keys_bf16, *value_pairs; /* instead of these where job->pairs */
    int64_t k_stride, v_stride;
    int finite; /* whether the values are; -1: not asked yet */
    struct ptl_ahead ahead;
};

static void load_tile(const struct block *b, int64_t kv_head, struct tile *t) {
    const struct ptl_hstu_problem *p = b->job->p;
    const struct ptl_kernels *k = b->job->kernels;
    const struct ptl_hstu_seq *seq = &b->task->seq;
    const struct ptl_hstu_stage *stage = &b->scratch->stage;
    t->finite = -1;
    if (b->job->pairs) {
        bool finite;
        t->keys_bf16 =
            ptl_hstu_load_keys_bf16(p, seq, kv_head, t->begin, t->end, stage, &t->k_stride);
        t->value_pairs = ptl_hstu_load_value_pairs(p, k, seq, kv_head, t->begin, t->end, stage,
                                                   &t->v_stride, &finite);
        t->finite = finite;
    } else {
        const bool reused = b->n_panels > 1;
        t->keys =
            ptl_hstu_load_keys(p, k, seq, kv_head, t->begin, t->end, reused, stage, &t->k_stride);
        t->values =
            ptl_hstu_load_values(p, k, seq, kv_head, t->begin, t->end, reused, stage, &t->v_stride);
    }
}

/* Columns [*begin, *end) of a tile and what completes the pairs of keys at both ends: a column that
 * no row sees. Pairs begin at even columns of the tile, whatever the panel sees of it. */
static enum ptl_tile_kind complete_pairs(const struct tile *t, enum ptl_tile_kind kind,
                                         int64_t *begin, int64_t *end, uint64_t *bits) {
    const int64_t n = *end - *begin;
    const bool before = (*begin - t->begin) % 2 != 0;
    const bool behind = (*end - t->begin) % 2 != 0 && *end < t->end;
    if (!before && !behind) return kind;
    if (kind == PTL_TILE_FULL) memset(bits, 0xff, (size_t)n * sizeof *bits);
    if (before) {
        memmove(bits + 1, bits, (size_t)n * sizeof *bits);
        bits[0] = 0;
    }
    if (behind) bits[before + n] = 0;
    *begin -= before;
    *end += behind;
    return PTL_TILE_MIXED;
}

/* The scores' products of panel i with n_keys keys from row `first` of the tile on. */
static void multiply_keys(const struct block *b, struct tile *t, int i, int64_t first, int n_keys) {
    const struct forward_job *job = b->job;
    const struct ptl_kernels *k = job->kernels;
    const int nv = b->panels[i].nv, step = ptl_ahead_step(k, nv);
    const float *q = q_panel(b, t->head, i);
    if (!job->pairs) {
        ptl_ahead_qk(&t->ahead, k, nv, q, t->keys + first * t->k_stride, t->k_stride, n_keys,
                     job->p->dqk, b->scratch->s);
        return;
    }
    for (int x = 0; x < n_keys; x += step) {
        const int n = n_keys - x < step ? n_keys - x : step;
        ptl_ahead_part(&t->ahead);
        k->tile_qk_bf16(nv, q, t->keys_bf16 + (first + x) * t->k_stride, t->k_stride, n,
                        ptl_hstu_column_pairs(job->p), b->scratch->s + x * k->panel);
    }
}

/* Adds the weighted values of those keys to the panel's outputs. bits, or NULL, has the mask. */
static void multiply_values(const struct block *b, struct tile *t, int i, int64_t first, int n_keys,
                            const uint64_t *bits) {
    const struct forward_job *job = b->job;
    const struct ptl_kernels *k = job->kernels;
    const int nv = b->panels[i].nv, dv = job->p->dv, step = ptl_ahead_step(k, nv);
    const int64_t stride = t->v_stride;
    float *s = b->scratch->s, *o = o_panel(b, t->head, i);
    const float *v = job->pairs ? NULL : t->values + first * stride;
    const uint16_t *pairs = job->pairs ? t->value_pairs + first / 2 * stride : NULL;
    bool *empty = &b->scratch->empty[t->head * b->n_panels + i];

    if (job->pairs) k->lines_to_pairs_bf16(nv, s, n_keys);
    if (bits && t->finite < 0)
        t->finite = k->rows_finite_f32(t->values, stride, (int)(t->end - t->begin), dv);
    if (bits && !t->finite && job->pairs)
        k->tile_pv_masked_bf16(nv, s, pairs, stride, n_keys, dv, o, *empty, bits);
    else if (bits && !t->finite)
        k->tile_pv_masked_f32(nv, s, v, stride, n_keys, dv, o, *empty, bits);
    else
        for (int x = 0; x < dv; x += step) {
            const int n = dv - x < step ? dv - x : step;
            ptl_ahead_part(&t->ahead);
            if (job->pairs)
                k->tile_pv_bf16(nv, s, pairs + 2 * x, stride, n_keys, n, o + x * k->panel, *empty);
            else k->tile_pv_f32(nv, s, v + x, stride, n_keys, n, o + x * k->panel, *empty);
        }
    *empty = false;
}

/* The three stages of panel i on a tile. */
static void run_panel(const struct block *b, struct tile *t, int i) {
    const struct forward_job *job = b->job;
    const struct ptl_hstu_problem *p = job->p;
    const struct ptl_kernels *k = job->kernels;
    const struct forward_scratch *scratch = b->scratch;
    const struct panel *panel = &b->panels[i];
    int64_t j = t->begin, j_end = t->end;
    enum ptl_tile_kind kind = ptl_hstu_tile_mask(mask_of(b, t->head, i), &j, &j_end, scratch->bits);
    if (kind == PTL_TILE_SKIP) return;
    if (job->pairs) kind = complete_pairs(t, kind, &j, &j_end, scratch->bits);
    const uint64_t *bits = kind == PTL_TILE_MIXED ? scratch->bits : NULL;
    const int n_keys = (int)(j_end - j);

    multiply_keys(b, t, i, j - t->begin, n_keys);
    const bool biased = ptl_hstu_has_bias(p);
    if (biased) {
        struct ptl_time_runs *runs = p->tables.time ? &scratch->runs[i] : NULL;
        ptl_hstu_add_bias(p, k, &b->task->seq, b->task->head + t->head, panel->row, panel->n_rows,
                          panel->nv, j, j_end, job->reversed, scratch->s, runs, &scratch->stage);
    }
    k->tile_silu_f32(panel->nv, scratch->s, n_keys, biased ? 1.0f : p->alpha, bits);
    multiply_values(b, t, i, j - t->begin, n_keys, bits);
}

/* Steps of all panels on a tile of n keys. */
static int64_t n_parts(const struct block *b, int64_t n) {
    const struct ptl_kernels *k = b->job->kernels;
    int64_t parts = 0;
    for (int i = 0; i < b->n_panels; i++)
        parts += ptl_ahead_parts(k, b->panels[i].nv, n) +
                 ptl_ahead_parts(k, b->panels[i].nv, b->job->p->dv);
    return parts;
}

static void run_tiles(struct block *b) {
    const struct ptl_hstu_problem *p = b->job->p;
    const struct ptl_kernels *k = b->job->kernels;
    const int64_t group = p->n_q_heads / p->n_k_heads;
    if (b->first >= b->last) return;
    for (int64_t tile = b->first / k->key_tile * k->key_tile; tile < b->last; tile += k->key_tile) {
        for (int i = 0; p->tables.time && i < b->n_panels; i++) b->scratch->runs[i].known = false;
        for (int64_t h = 0; h < b->task->n_heads; h++) {
            const int64_t kv_head = (b->task->head + h) / group;
            struct tile t = {.begin = tile, .head = h};
            t.end = tile + k->key_tile < b->last ? tile + k->key_tile : b->last;
            const int64_t next_end = t.end + k->key_tile < b->last ? t.end + k->key_tile : b->last;
            if (t.end < next_end) t.ahead = keys_ahead(p, b->task, h, t.end, next_end);
            else if (b->next) t.ahead = task_ahead(b->job, b->next, h);
            t.ahead.n_parts = n_parts(b, t.end - tile);
            load_tile(b, kv_head, &t);
            for (int i = 0; i < b->n_panels; i++) run_panel(b, &t, i);
        }
    }
}

static void finish_block(struct block *b) {
    const struct ptl_hstu_problem *p = b->job->p;
    const struct ptl_hstu_seq *seq = &b->task->seq;
    for (int64_t h = 0; h < b->task->n_heads; h++)
        for (int i = 0; i < b->n_panels; i++) {
            const struct panel *panel = &b->panels[i];
            if (b->scratch->empty[h * b->n_panels + i]) {
                zero_rows(p, seq, b->task->head + h, panel->row, panel->row + panel->n_rows);
                continue;
            }
            ptl_hstu_store_panel(p, b->job->kernels, seq, b->task->head + h, panel->row,
                                 panel->n_rows, o_panel(b, h, i), b->job->stream,
                                 &b->scratch->stage);
        }
}

static struct task task_at(const struct forward_job *job, int64_t index) {
    const struct ptl_block block = job->schedule.blocks[index / job->schedule.n_heads];
    struct task t = {.seq = ptl_hstu_sequence(job->p, block.seq), .row = block.row};
    t.n_heads = job->heads_per_task;
    t.head = index % job->schedule.n_heads * t.n_heads;
    t.end_allocated = t.row + job->block_rows;
    if (t.end_allocated > t.seq.allocated) t.end_allocated = t.seq.allocated;
    t.end = t.end_allocated < t.seq.uq ? t.end_allocated : t.seq.uq;
    if (t.end < t.row) t.end = t.row;
    return t;
}

static void forward_worker(void *arg, int slot) {
    struct forward_job *job = arg;
    size_t bytes;
    const struct forward_scratch scratch =
        scratch_at(job, job->scratch + (size_t)slot * job->scratch_bytes, &bytes);
    struct ptl_schedule *schedule = &job->schedule;
    int64_t index, end, next_index, next_end = 0; /* next_end 0: not drawn yet */
    while (next_end || ptl_schedule_draw(schedule, &next_index, &next_end)) {
        index = next_index;
        end = next_end;
        for (next_end = 0; index < end; index++) {
            struct task task = task_at(job, index), next;
            bool more = index + 1 < end;
            if (more) {
                next = task_at(job, index + 1);
            } else if (ptl_schedule_draw_early(schedule, &next_index, &next_end)) {
                next = task_at(job, next_index);
                more = true;
            }
            if (task.row < task.end) {
                struct block b; /* not cleared: begin_block sets the rest */
                b.job = job;
                b.task = &task;
                b.next = more && next.row < next.end ? &next : NULL;
                b.scratch = &scratch;
                begin_block(&b);
                run_tiles(&b);
                finish_block(&b);
            }
            for (int64_t h = 0; h < task.n_heads; h++)
                zero_rows(job->p, &task.seq, task.head + h, task.end, task.end_allocated);
        }
    }
    if (job->stream) job->kernels->stream_end();
}

/* Multiply-adds of a block and head, with something for its loads and stores. */
static int64_t block_cost(const struct forward_job *job, const struct ptl_hstu_seq *seq,
                          int64_t row) {
    const struct ptl_hstu_problem *p = job->p;
    int64_t n = seq->allocated - row < job->block_rows ? seq->allocated - row : job->block_rows;
    int64_t real = seq->uq - row < n ? seq->uq - row : n;
    return (ptl_hstu_estimate_pairs(p, seq, row, real) + 8 * n) * (p->dqk + p->dv) *
           job->heads_per_task;
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

static double out_bytes(const struct ptl_hstu_problem *p) {
    const double n_rows = (double)p->q_rows * (double)(p->dense ? p->n_seqs : 1);
    return n_rows * (double)p->n_q_heads * (double)p->dv * (double)p->out.elem_bytes;
}

enum ptl_status ptl_hstu_run_forward(struct ptl_context *ctx, const struct ptl_hstu_problem *p) {
    const int n_threads = ctx->executor.n_threads;
    struct forward_job
        job; /* not cleared: the schedule is 8 KiB, and small calls count in microseconds */
    job.p = p;
    job.kernels = ctx->kernels;
    job.heads_per_task = choose_heads(p, ctx->kernels, n_threads);
    job.block_rows = choose_block_rows(p, ctx->kernels, job.heads_per_task);
    job.pairs = ptl_hstu_takes_pairs(p, ctx->kernels);
    job.stream = p->dtype == PTL_F32 && out_bytes(p) >= PTL_STREAM_BYTES;
    const int q_lines = job.pairs ? ptl_hstu_column_pairs(p) : p->dqk;
    job.q_bytes = ptl_round_up((size_t)q_lines * (size_t)ctx->kernels->panel * sizeof(float), 64);
    job.o_bytes = ptl_round_up((size_t)p->dv * (size_t)ctx->kernels->panel * sizeof(float), 64);

    for (;;) {
        ptl_schedule_begin(&job.schedule, p->n_q_heads / job.heads_per_task);
        each_block(&job, false);
        /* Few long blocks leave threads idle at the end: cut them until there are eight a
         * thread. */
        const int64_t half = job.block_rows / 2 / ctx->kernels->panel * ctx->kernels->panel;
        if (half == 0 || job.schedule.n_tasks >= 8 * n_threads ||
            ptl_schedule_workers(&job.schedule, n_threads) == 1)
            break;
        job.block_rows = half;
    }
    if (job.schedule.n_tasks == 0) return PTL_OK;

    const size_t block_bytes =
        ptl_round_up((size_t)ptl_schedule_n_blocks(&job.schedule) * sizeof(struct ptl_block), 64);
    const size_t table_bytes = (size_t)ptl_hstu_reversed_floats(p) * sizeof(float);
    char *plan = ptl_arena_reserve(&ctx->plan, block_bytes + table_bytes);
    if (!plan) return PTL_ERR_NOMEM;
    struct ptl_block *blocks = (struct ptl_block *)plan;
    ptl_hstu_reverse_tables(p, (float *)(plan + block_bytes));
    job.reversed = (const float *)(plan + block_bytes);
    ptl_schedule_order(&job.schedule, blocks, n_threads);
    each_block(&job, true);
    const int n_workers = ptl_schedule_workers(&job.schedule, n_threads);

    scratch_at(&job, NULL, &job.scratch_bytes);
    job.scratch = ptl_arena_reserve(&ctx->scratch, (size_t)n_workers * job.scratch_bytes);
    if (!job.scratch) return PTL_ERR_NOMEM;
    ptl_executor_run(&ctx->executor, n_workers, forward_worker, &job);
    return PTL_OK;
}
