/* The pipelined rung of the ladder: the library's walk over jagged rows, causal only, with the
 * three stages of consecutive tiles interleaved. */
#include "ladder_rungs.h"

/* Panels of a block; scalar panels are the narrowest (4 rows). */
enum { MAX_PANELS = BLOCK_ROWS / 4 + 1 };

/* Rows of each stage in a turn: keys of the QK product and of the silu, columns of the PV product;
 * 128 keys and 64 columns are used up at the same time. Measured with AVX2 on one core (Zen 3, CPU
 * time, best of 6 to 60): (8, 4), (16, 8), (24, 12), (48, 24), and (128, 64), which does not
 * interleave at all, do not differ beyond the noise, and none beats the library at lengths 768 and
 * 4096. At 106 all of them take 4 % less, the last too: this walk knows only the causal mask. */
enum { TURN_KEYS = 16, TURN_COLUMNS = 8 };

/* One tile of keys against one panel of rows. */
struct unit {
    int n_vectors, n_keys;
    const float *q_panel, *k, *v;
    float *o_panel, *s;
    const uint64_t *bits; /* NULL: no mask */
    bool first;           /* tile of the sequence */
};

struct panel {
    int64_t row;
    int n_rows, n_vectors;
};

/* Up to BLOCK_ROWS rows of one sequence and head. */
struct task {
    int64_t at; /* of row 0 of the sequence, at the head: in q, k, v and out */
    int64_t row, end;
};

/* What is left to walk of a task. */
struct walk {
    const struct ladder *ladder;
    const struct scratch *scratch;
    const float *k, *v;      /* row 0 of the sequence, at the head */
    const struct task *next; /* the task after it where it is known, else NULL */
    struct panel panels[MAX_PANELS];
    int n_panels, panel; /* the next unit: panel and tile */
    int64_t tile, end;
    int n_units;
    struct ahead ahead;
};

/* What a short task begins with: its rows of q and out, and as many keys and values. */
static struct ahead ahead_of_task(const struct ladder *l, const struct task *t) {
    const int64_t row = t->at + t->row * l->row_floats;
    return (struct ahead){
        .x = {l->p->k + t->at, l->p->v + t->at, l->p->q + row, l->other_out + row},
        .n_rows = t->end - t->row,
    };
}

static bool next_unit(struct walk *w, struct unit *u) {
    const struct ladder *l = w->ladder;
    for (; w->tile < w->end; w->tile += l->kernels->key_tile, w->panel = 0) {
        if (w->panel == 0) {
            const int64_t n_keys = min64(l->kernels->key_tile, w->end - w->tile);
            const int64_t n_parts = w->n_panels * steps(n_keys, TURN_KEYS);
            w->ahead = ladder_ahead(l, w->k, w->v, w->tile, w->end, n_parts);
            if (w->ahead.n_rows == 0 && w->next) w->ahead = ahead_of_task(l, w->next);
            w->ahead.n_parts = n_parts;
        }
        for (; w->panel < w->n_panels; w->panel++) {
            const struct panel *p = &w->panels[w->panel];
            const int64_t seen = p->row + p->n_rows; /* columns that the last row sees */
            if (w->tile >= seen) continue;
            const int slot = w->n_units++ % 3;
            u->n_vectors = p->n_vectors;
            u->n_keys = (int)min64(l->kernels->key_tile, seen - w->tile);
            u->q_panel = w->scratch->q_panels + (size_t)w->panel * ladder_panel_floats(l);
            u->o_panel = w->scratch->o_panels + (size_t)w->panel * ladder_panel_floats(l);
            u->k = w->k + w->tile * l->row_floats;
            u->v = w->v + w->tile * l->row_floats;
            u->s = w->scratch->s[slot];
            u->first = w->tile == 0;
            u->bits = NULL;
            if (w->tile + u->n_keys > p->row + 1) { /* row p->row + i sees column j <= p->row + i */
                for (int j = 0; j < u->n_keys; j++) {
                    const int64_t first = w->tile + j - p->row;
                    w->scratch->bits[slot][j] = first <= 0 ? ~(uint64_t)0 : ~(uint64_t)0 << first;
                }
                u->bits = w->scratch->bits[slot];
            }
            w->panel++;
            return true;
        }
    }
    return false;
}

/* Some rows of each stage in turn until all three units are done; any of them may be NULL. */
static void three_stages(const struct ladder *l, const struct unit *qk, const struct unit *silu,
                         const struct unit *pv, struct ahead *ahead) {
    const struct ptl_kernels *k = l->kernels;
    const int width = k->panel, dim = l->p->dim;
    int a = qk ? 0 : INT32_MAX, b = silu ? 0 : INT32_MAX, c = pv ? 0 : INT32_MAX;
    for (bool more = true; more;) {
        more = false;
        if (qk && a < qk->n_keys) {
            const int n = (int)min64(TURN_KEYS, qk->n_keys - a);
            ladder_prefetch(l, ahead);
            k->tile_qk_f32(qk->n_vectors, qk->q_panel, qk->k + a * l->row_floats, l->row_floats, n,
                           dim, qk->s + a * width);
            a += n;
            more = true;
        }
        if (silu && b < silu->n_keys) {
            const int n = (int)min64(TURN_KEYS, silu->n_keys - b);
            k->tile_silu_f32(silu->n_vectors, silu->s + b * width, n, l->p->alpha,
                             silu->bits ? silu->bits + b : NULL);
            b += n;
            more = true;
        }
        if (pv && c < dim) {
            const int n = (int)min64(TURN_COLUMNS, dim - c);
            ladder_pv_columns(l, pv->n_vectors, pv->s, pv->v + c, pv->n_keys, n,
                              pv->o_panel + c * width, pv->first);
            c += n;
            more = true;
        }
    }
}

/* Panels of nearly equal numbers of vectors, as the library cuts them. */
static int cut_panels(const struct ptl_kernels *k, int64_t row, int64_t end, struct panel *panels) {
    int64_t vectors = (end - row + k->lanes - 1) / k->lanes;
    const int most = k->panel / k->lanes;
    int n = 0;
    for (int64_t left = (vectors + most - 1) / most; left > 0; left--) {
        const int nv = (int)((vectors + left - 1) / left);
        const int rows = (int)min64((int64_t)nv * k->lanes, end - row);
        panels[n++] = (struct panel){row, rows, nv};
        row += rows;
        vectors -= nv;
    }
    return n;
}

static void pipelined_task(struct ladder *l, const struct task *task, const struct task *next,
                           const struct scratch *scratch) {
    const struct ptl_kernels *k = l->kernels;
    struct walk w = {.ladder = l,
                     .scratch = scratch,
                     .k = l->p->k + task->at,
                     .v = l->p->v + task->at,
                     .next = next,
                     .end = task->end};
    w.n_panels = cut_panels(k, task->row, task->end, w.panels);

    for (int i = 0; i < w.n_panels; i++) {
        const float *rows[PTL_MAX_PANEL];
        for (int r = 0; r < w.panels[i].n_rows; r++)
            rows[r] = l->p->q + task->at + (w.panels[i].row + r) * l->row_floats;
        k->panel_load_f32(rows, w.panels[i].n_rows, l->p->dim,
                          scratch->q_panels + (size_t)i * ladder_panel_floats(l));
    }

    struct unit ring[3], *qk, *silu = NULL, *pv = NULL;
    for (int turn = 0;; turn++) {
        qk = &ring[turn % 3];
        if (!next_unit(&w, qk)) qk = NULL;
        if (!qk && !silu && !pv) break;
        three_stages(l, qk, silu, pv, &w.ahead);
        pv = silu;
        silu = qk;
    }

    float scale[PTL_MAX_PANEL];
    for (int r = 0; r < PTL_MAX_PANEL; r++) scale[r] = 1.0f / (float)l->p->scaling_seqlen;
    for (int i = 0; i < w.n_panels; i++) {
        float *rows[PTL_MAX_PANEL];
        for (int r = 0; r < w.panels[i].n_rows; r++)
            rows[r] = l->other_out + task->at + (w.panels[i].row + r) * l->row_floats;
        k->panel_store_f32(scratch->o_panels + (size_t)i * ladder_panel_floats(l),
                           w.panels[i].n_rows, l->p->dim, scale, false, rows);
    }
}

struct pipelined_job {
    struct ladder *ladder;
    struct ptl_schedule schedule;
};

static struct task task_at(const struct pipelined_job *job, int64_t index) {
    const struct ladder *l = job->ladder;
    const struct ptl_block block = job->schedule.blocks[index / l->p->n_heads];
    const int64_t first = l->p->offsets[block.seq], length = l->p->offsets[block.seq + 1] - first;
    return (struct task){.at = first * l->row_floats + index % l->p->n_heads * l->p->dim,
                         .row = block.row,
                         .end = min64(block.row + BLOCK_ROWS, length)};
}

static void pipelined_worker(void *arg, int slot) {
    struct pipelined_job *job = arg;
    struct ladder *l = job->ladder;
    const struct scratch scratch = ladder_scratch_at(l, l->scratch + (size_t)slot * l->slot_bytes);
    int64_t task, end;
    while (ptl_schedule_draw(&job->schedule, &task, &end))
        for (; task < end; task++) {
            const struct task this = task_at(job, task);
            struct task next;
            if (task + 1 < end) next = task_at(job, task + 1);
            pipelined_task(l, &this, task + 1 < end ? &next : NULL, &scratch);
        }
}

/* Counts or places every block; the longest first, as in the library. */
static void each_block(struct ladder *l, struct ptl_schedule *s, bool place) {
    for (int64_t seq = 0; seq < l->n_seqs; seq++) {
        const int64_t length = l->p->offsets[seq + 1] - l->p->offsets[seq];
        for (int64_t row = 0; row < length; row += BLOCK_ROWS) {
            const int64_t n = min64(BLOCK_ROWS, length - row);
            const int64_t cost = (n * (2 * row + n + 1) / 2 + 8 * n) * 2 * l->p->dim;
            if (place) ptl_schedule_place(s, (struct ptl_block){seq, row}, cost);
            else ptl_schedule_count(s, cost);
        }
    }
}

int64_t ladder_count_blocks(const struct ladder *l) {
    int64_t n = 0;
    for (int64_t seq = 0; seq < l->n_seqs; seq++)
        n += (l->p->offsets[seq + 1] - l->p->offsets[seq] + BLOCK_ROWS - 1) / BLOCK_ROWS;
    return n;
}

void ladder_run_pipelined(struct ladder *l) {
    struct pipelined_job job = {.ladder = l};
    ptl_schedule_begin(&job.schedule, l->p->n_heads);
    each_block(l, &job.schedule, false);
    ptl_schedule_order(&job.schedule, l->blocks, l->n_threads);
    each_block(l, &job.schedule, true);
    ptl_executor_run(&l->ctx->executor, ptl_schedule_workers(&job.schedule, l->n_threads),
                     pipelined_worker, &job);
}
