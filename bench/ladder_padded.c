/* The padded rungs of the ladder, naive and fused, and the batches that they work on. The third
 * padded rung is the library's call. */
#include "ladder_rungs.h"

#include <string.h>

/* ---- Batches --------------------------------------------------------------------------------- */

size_t ladder_score_floats(const struct ladder *l, int64_t n_seqs, int64_t n) {
    const int64_t n_panels = steps(n, l->kernels->panel);
    return (size_t)(n_seqs * l->p->n_heads * n_panels * n * l->kernels->panel);
}

int64_t ladder_longest(const struct ladder *l, int64_t first, int64_t n) {
    int64_t longest = 0;
    for (int64_t b = first; b < first + n; b++) {
        const int64_t rows = l->p->offsets[b + 1] - l->p->offsets[b];
        if (rows > longest) longest = rows;
    }
    return longest;
}

/* The first sequence of batch i of n_batches, as equal in number as they can be. */
static int64_t batch_begin(const struct ladder *l, int64_t n_batches, int64_t i) {
    return l->n_seqs * i / n_batches;
}

size_t ladder_largest_batch(const struct ladder *l, int64_t n_batches) {
    size_t largest = 0;
    for (int64_t i = 0; i < n_batches; i++) {
        const int64_t first = batch_begin(l, n_batches, i);
        const int64_t n = batch_begin(l, n_batches, i + 1) - first;
        const size_t bytes =
            2 * sizeof(float) * ladder_score_floats(l, n, ladder_longest(l, first, n));
        if (bytes > largest) largest = bytes;
    }
    return largest;
}

double ladder_padded_pairs(const struct ladder *l, int64_t n_batches) {
    double pairs = 0;
    for (int64_t i = 0; i < n_batches; i++) {
        const int64_t first = batch_begin(l, n_batches, i);
        const int64_t n = batch_begin(l, n_batches, i + 1) - first;
        const double rows = (double)ladder_longest(l, first, n);
        pairs += (double)n * rows * rows;
    }
    return pairs;
}

static int64_t padded_panels(const struct ladder *l) {
    return l->batch.n_seqs * l->p->n_heads * l->batch.n_panels;
}

static size_t panel_scores(const struct ladder *l) { /* the scores of one panel */
    return (size_t)l->batch.n * (size_t)l->kernels->panel;
}

/* mask/N: 1/N on and below the diagonal, else 0, also in the lanes past the last row. */
static void fill_mask(struct ladder *l, int64_t task, char *scratch) {
    (void)scratch;
    const int panel = l->kernels->panel;
    const int64_t row = task % l->batch.n_panels * panel;
    const float on = 1.0f / (float)l->p->scaling_seqlen;
    float *line = l->batch.mask + (size_t)task * panel_scores(l);
    for (int64_t j = 0; j < l->batch.n; j++, line += panel)
        for (int i = 0; i < panel; i++) line[i] = row + i < l->batch.n && j <= row + i ? on : 0.0f;
}

static void touch_scores(struct ladder *l, int64_t task, char *scratch) {
    (void)scratch;
    memset(l->batch.scores + (size_t)task * panel_scores(l), 0, panel_scores(l) * sizeof(float));
}

static void pad(float *to, const float *from, int64_t rows, int64_t n, int64_t row_floats) {
    memcpy(to, from, (size_t)(rows * row_floats) * sizeof(float));
    memset(to + rows * row_floats, 0, (size_t)((n - rows) * row_floats) * sizeof(float));
}

size_t ladder_batch_floats(const struct ladder *l) {
    return (size_t)(l->batch.n_seqs * l->batch.n * l->row_floats);
}

void ladder_aim_at_batch(struct ladder *l, int64_t i) {
    struct padded *b = &l->batch;
    b->first_seq = batch_begin(l, l->result->n_batches, i);
    b->n_seqs = batch_begin(l, l->result->n_batches, i + 1) - b->first_seq;
    b->n = ladder_longest(l, b->first_seq, b->n_seqs);
    b->n_panels = steps(b->n, l->kernels->panel);
}

enum ptl_status ladder_open_batches(struct ladder *l) {
    struct padded *b = &l->batch;
    for (int64_t i = 0; i < l->result->n_batches; i++) {
        ladder_aim_at_batch(l, i);
        const size_t scores = ladder_score_floats(l, b->n_seqs, b->n);
        if (scores > l->memory.score_floats) l->memory.score_floats = scores;
        if (ladder_batch_floats(l) > l->memory.row_floats)
            l->memory.row_floats = ladder_batch_floats(l);
    }
    b->q = ladder_map(l->memory.row_floats);
    b->k = ladder_map(l->memory.row_floats);
    b->v = ladder_map(l->memory.row_floats);
    b->out = ladder_map(l->memory.row_floats);
    b->mask = ladder_map(l->memory.score_floats);
    return b->q && b->k && b->v && b->out && b->mask ? PTL_OK : PTL_ERR_NOMEM;
}

enum ptl_status ladder_open_scores(struct ladder *l) {
    if (!l->batch.scores) l->batch.scores = ladder_map(l->memory.score_floats);
    if (!l->batch.scores) return PTL_ERR_NOMEM;
    ladder_sweep(l, touch_scores, padded_panels(l));
    return PTL_OK;
}

void ladder_close_batches(struct ladder *l) {
    struct padded *b = &l->batch;
    ladder_unmap(b->q, l->memory.row_floats);
    ladder_unmap(b->k, l->memory.row_floats);
    ladder_unmap(b->v, l->memory.row_floats);
    ladder_unmap(b->out, l->memory.row_floats);
    ladder_unmap(b->mask, l->memory.score_floats);
    ladder_unmap(b->scores, l->memory.score_floats);
    memset(b, 0, sizeof *b);
}

void ladder_fill_batch(struct ladder *l) {
    const struct padded *b = &l->batch;
    for (int64_t i = 0; i < b->n_seqs; i++) {
        const int64_t row = l->p->offsets[b->first_seq + i];
        const int64_t rows = l->p->offsets[b->first_seq + i + 1] - row;
        const int64_t to = i * b->n * l->row_floats, from = row * l->row_floats;
        pad(b->q + to, l->p->q + from, rows, b->n, l->row_floats);
        pad(b->k + to, l->p->k + from, rows, b->n, l->row_floats);
        pad(b->v + to, l->p->v + from, rows, b->n, l->row_floats);
    }
    memset(b->out, 0xff, ladder_batch_floats(l) * sizeof(float));
    ladder_sweep(l, fill_mask, padded_panels(l));
}

/* ---- Rungs ----------------------------------------------------------------------------------- */

/* Up to BLOCK_ROWS rows of one padded sequence and head, in full panels but for the last. */
struct padded_block {
    const float *q, *k, *v; /* row 0 of the sequence, at the head */
    float *out;
    int64_t first_panel;
    int n_panels;
    size_t scores; /* where the first panel's scores start */
};

static int64_t panels_per_block(const struct ladder *l) {
    return BLOCK_ROWS / l->kernels->panel;
}

static int64_t blocks_per_head(const struct ladder *l) {
    return steps(l->batch.n_panels, panels_per_block(l));
}

static int64_t padded_blocks(const struct ladder *l) {
    return l->batch.n_seqs * l->p->n_heads * blocks_per_head(l);
}

static struct padded_block padded_block_at(const struct ladder *l, int64_t task) {
    const struct padded *b = &l->batch;
    const int64_t per_head = blocks_per_head(l), pair = task / per_head;
    const int64_t seq = pair / l->p->n_heads, head = pair % l->p->n_heads;
    const int64_t at = seq * b->n * l->row_floats + head * l->p->dim;
    struct padded_block r = {b->q + at, b->k + at, b->v + at, b->out + at, 0, 0, 0};
    r.first_panel = task % per_head * panels_per_block(l);
    r.n_panels = (int)min64(panels_per_block(l), b->n_panels - r.first_panel);
    r.scores = (size_t)(pair * b->n_panels + r.first_panel) * panel_scores(l);
    return r;
}

static int panel_rows(const struct ladder *l, int64_t panel) {
    return (int)min64(l->kernels->panel, l->batch.n - panel * l->kernels->panel);
}

static int panel_vectors(const struct ladder *l, int64_t panel) {
    return (panel_rows(l, panel) + l->kernels->lanes - 1) / l->kernels->lanes;
}

static void load_block(const struct ladder *l, const struct padded_block *b, float *q_panels) {
    for (int i = 0; i < b->n_panels; i++) {
        const int64_t panel = b->first_panel + i;
        const float *rows[PTL_MAX_PANEL];
        for (int r = 0; r < panel_rows(l, panel); r++)
            rows[r] = b->q + (panel * l->kernels->panel + r) * l->row_floats;
        l->kernels->panel_load_f32(rows, panel_rows(l, panel), l->p->dim,
                                   q_panels + (size_t)i * ladder_panel_floats(l));
    }
}

static void store_block(const struct ladder *l, const struct padded_block *b,
                        const float *o_panels) {
    float ones[PTL_MAX_PANEL];
    for (int r = 0; r < PTL_MAX_PANEL; r++) ones[r] = 1.0f;
    for (int i = 0; i < b->n_panels; i++) {
        const int64_t panel = b->first_panel + i;
        float *rows[PTL_MAX_PANEL];
        for (int r = 0; r < panel_rows(l, panel); r++)
            rows[r] = b->out + (panel * l->kernels->panel + r) * l->row_floats;
        l->kernels->panel_store_f32(o_panels + (size_t)i * ladder_panel_floats(l),
                                    panel_rows(l, panel), l->p->dim, ones, false, rows);
    }
}

static void multiply(float *restrict s, const float *restrict mask, size_t n) {
    for (size_t i = 0; i < n; i++) s[i] *= mask[i];
}

static void naive_qk(struct ladder *l, int64_t task, char *memory) {
    const int tile = l->kernels->key_tile;
    const struct padded_block b = padded_block_at(l, task);
    const struct scratch scratch = ladder_scratch_at(l, memory);
    load_block(l, &b, scratch.q_panels);
    for (int64_t j = 0; j < l->batch.n; j += tile) {
        const int n_keys = (int)min64(tile, l->batch.n - j);
        struct ahead ahead =
            ladder_ahead(l, b.k, NULL, j, l->batch.n, b.n_panels * steps(n_keys, STEP));
        for (int i = 0; i < b.n_panels; i++)
            ladder_qk(l, panel_vectors(l, b.first_panel + i),
                      scratch.q_panels + (size_t)i * ladder_panel_floats(l),
                      b.k + j * l->row_floats, n_keys,
                      l->batch.scores + b.scores + (size_t)i * panel_scores(l) +
                          j * l->kernels->panel,
                      &ahead);
    }
}

static void naive_silu(struct ladder *l, int64_t task, char *scratch) {
    (void)scratch;
    l->kernels->tile_silu_f32(panel_vectors(l, task % l->batch.n_panels),
                              l->batch.scores + (size_t)task * panel_scores(l), (int)l->batch.n,
                              l->p->alpha, NULL);
}

static void naive_multiply(struct ladder *l, int64_t task, char *scratch) {
    (void)scratch;
    const size_t at = (size_t)task * panel_scores(l);
    multiply(l->batch.scores + at, l->batch.mask + at, panel_scores(l));
}

static void naive_pv(struct ladder *l, int64_t task, char *memory) {
    const int tile = l->kernels->key_tile;
    const struct padded_block b = padded_block_at(l, task);
    const struct scratch scratch = ladder_scratch_at(l, memory);
    for (int64_t j = 0; j < l->batch.n; j += tile) {
        struct ahead ahead =
            ladder_ahead(l, NULL, b.v, j, l->batch.n, b.n_panels * steps(l->p->dim, STEP));
        for (int i = 0; i < b.n_panels; i++)
            ladder_pv(l, panel_vectors(l, b.first_panel + i),
                      l->batch.scores + b.scores + (size_t)i * panel_scores(l) +
                          j * l->kernels->panel,
                      b.v + j * l->row_floats, (int)min64(tile, l->batch.n - j),
                      scratch.o_panels + (size_t)i * ladder_panel_floats(l), j == 0, &ahead);
    }
    store_block(l, &b, scratch.o_panels);
}

void ladder_run_naive(struct ladder *l) {
    ladder_sweep(l, naive_qk, padded_blocks(l));
    ladder_sweep(l, naive_silu, padded_panels(l));
    ladder_sweep(l, naive_multiply, padded_panels(l));
    ladder_sweep(l, naive_pv, padded_blocks(l));
}

static void fused_block(struct ladder *l, int64_t task, char *memory) {
    const int tile = l->kernels->key_tile, width = l->kernels->panel;
    const struct padded_block b = padded_block_at(l, task);
    const struct scratch scratch = ladder_scratch_at(l, memory);
    float *s = scratch.s[0];
    load_block(l, &b, scratch.q_panels);
    for (int64_t j = 0; j < l->batch.n; j += tile) {
        const int n_keys = (int)min64(tile, l->batch.n - j);
        struct ahead ahead =
            ladder_ahead(l, b.k, b.v, j, l->batch.n,
                         b.n_panels * (steps(n_keys, STEP) + steps(l->p->dim, STEP)));
        for (int i = 0; i < b.n_panels; i++) {
            const int nv = panel_vectors(l, b.first_panel + i);
            ladder_qk(l, nv, scratch.q_panels + (size_t)i * ladder_panel_floats(l),
                      b.k + j * l->row_floats, n_keys, s, &ahead);
            l->kernels->tile_silu_f32(nv, s, n_keys, l->p->alpha, NULL);
            multiply(s, l->batch.mask + b.scores + (size_t)i * panel_scores(l) + j * width,
                     (size_t)n_keys * (size_t)width);
            ladder_pv(l, nv, s, b.v + j * l->row_floats, n_keys,
                      scratch.o_panels + (size_t)i * ladder_panel_floats(l), j == 0, &ahead);
        }
    }
    store_block(l, &b, scratch.o_panels);
}

void ladder_run_fused(struct ladder *l) {
    ladder_sweep(l, fused_block, padded_blocks(l));
}
