/* HSTU backward: the walk over key tiles and blocks of query rows. The arithmetic is in
 * src/kernels; the gradients of the bias are hstu_dbias.c.
 *
 * A task is one key tile of one sequence and key head. It owns its rows of dk and dv, and for every
 * block of query rows that sees the tile computes five products and the score stage:
 *
 *     S = Q K^T, U = dO V^T    lanes are query rows, as in forward
 *     f = silu(S), dS = silu'(S) * U * s
 *     dV += f^T (s dO), dK += dS^T Q, dQ += dS K    lanes are the columns of a head
 *
 * dq of a block gets contributions from many tiles. They are added straight into dq in the order of
 * the tiles: each block has a turn, the number of the tile that may add next. Tasks are drawn in
 * order, so two threads on one long sequence follow each other through its blocks, one tile apart.
 * Every sum thus has one order, whatever the number of threads, and nothing of size S x S
 * exists. */
#include "hstu_backward.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "../core/arith.h"
#include "hstu_ahead.h"
#include "schedule.h"

enum { MAX_PANELS = PTL_BACKWARD_PANELS };

/* One block of query rows against one key tile. */
struct block {
    const struct ptl_hstu_seq *seq;
    int64_t head, row;
    int n_rows, n_panels;
    int64_t tile, tile_begin; /* number, first column */
    int64_t begin, end;       /* columns that some row sees */
    bool next;                /* the task has another block behind this one, */
    struct ptl_ahead ahead;   /* whose rows these are */
    struct {
        enum ptl_tile_kind kind;
        int n_rows, nv;
        int64_t begin, end;
    } panel[MAX_PANELS];
};

struct scratch {
    float *q_panel, *o_panel;
    float *s, *u;            /* MAX_PANELS score tiles each */
    float *q_rows, *o_rows;  /* the block's rows of q, and of dout times scale, padded */
    float *k_rows, *dk, *dv; /* the tile's rows, padded */
    float *row_sum;          /* MAX_PANELS lines */
    uint64_t *bits;          /* MAX_PANELS times key_tile */
    double *tables;          /* partial table gradients of one head */
    struct ptl_hstu_panel_mask *mask;
    struct ptl_hstu_stage stage;
    int64_t q_stride, o_stride;
};

static struct scratch scratch_at(const struct ptl_backward_plan *plan, char *memory,
                                 size_t *bytes) {
    struct ptl_pieces m = {memory, 0};
    const struct ptl_hstu_problem *p = plan->p;
    const struct ptl_kernels *k = plan->kernels;
    const size_t line = (size_t)k->panel * sizeof(float), tile = (size_t)k->key_tile;
    struct scratch s;
    s.q_stride = ptl_staged_stride(p->dqk);
    s.o_stride = ptl_staged_stride(p->dv);
    const size_t q_row = (size_t)s.q_stride * sizeof(float),
                 o_row = (size_t)s.o_stride * sizeof(float);
    s.q_panel = ptl_take(&m, line * (size_t)p->dqk);
    s.o_panel = ptl_take(&m, line * (size_t)p->dv);
    s.s = ptl_take(&m, MAX_PANELS * tile * line);
    s.u = ptl_take(&m, MAX_PANELS * tile * line);
    s.q_rows = ptl_take(&m, (size_t)plan->block_rows * q_row);
    s.o_rows = ptl_take(&m, (size_t)plan->block_rows * o_row);
    s.k_rows = ptl_take(&m, tile * q_row);
    s.dk = ptl_take(&m, tile * q_row);
    s.dv = ptl_take(&m, tile * o_row);
    s.row_sum = ptl_take(&m, MAX_PANELS * line);
    s.bits = ptl_take(&m, MAX_PANELS * tile * sizeof(uint64_t));
    s.tables = ptl_take(&m, (size_t)ptl_dtables_entries(plan) * sizeof(double));
    s.mask = ptl_take(&m, MAX_PANELS * sizeof *s.mask);
    s.stage = ptl_hstu_stage_at(p, k, ptl_take(&m, ptl_hstu_stage_bytes(p, k)));
    *bytes = ptl_round_up(m.used, 4096) + 64; /* off the page grid */
    return s;
}

static void wait_a_little(int *spins) {
    if (++*spins < 200) {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
    } else {
        sched_yield();
    }
}

void ptl_wait_turn32(_Atomic int32_t *turn, int32_t mine) {
    for (int spins = 0; atomic_load_explicit(turn, memory_order_acquire) != mine;)
        wait_a_little(&spins);
}

void ptl_wait_turn64(_Atomic int64_t *turn, int64_t mine) {
    for (int spins = 0; atomic_load_explicit(turn, memory_order_acquire) != mine;)
        wait_a_little(&spins);
}

/* ---- Rows ------------------------------------------------------------------------------------ */

/* Rows of an array as floats, padded with zeros to the stride. scale: one factor a row, or NULL. */
static void stage_rows(const struct ptl_backward_plan *plan, const struct ptl_rows *from, int64_t b,
                       int64_t row, int64_t head, int n_rows, int dim, const float *scale,
                       float *to, int64_t stride) {
    for (int i = 0; i < n_rows; i++, to += stride) {
        ptl_widen_rows(plan->kernels, plan->p->dtype, ptl_rows_at(from, b, row + i, head), 0, 1,
                       dim, to, 0);
        memset(to + dim, 0, (size_t)(stride - dim) * sizeof(float));
        if (!scale) continue;
        for (int d = 0; d < dim; d++) to[d] *= scale[i];
    }
}

static void zero_rows(const struct ptl_rows *r, int64_t b, int64_t row, int64_t end,
                      int64_t n_heads, int dim) {
    for (; row < end; row++)
        for (int64_t h = 0; h < n_heads; h++)
            memset(ptl_rows_at(r, b, row, h), 0, (size_t)(dim * r->elem_bytes));
}

static float *dq_row(const struct ptl_backward_plan *plan, const struct ptl_hstu_seq *seq,
                     int64_t head, int64_t row) {
    return ptl_rows_at(&plan->dq, seq->b, seq->q_row + row, head);
}

/* ---- One block ------------------------------------------------------------------------------- */

/* Masks of the block's panels against the tile; false when no row sees a column. */
static bool mask_block(const struct ptl_backward_plan *plan, struct block *b, int64_t tile_end,
                       const struct scratch *s) {
    const struct ptl_kernels *k = plan->kernels;
    b->begin = INT64_MAX;
    b->end = 0;
    for (int i = 0; i < b->n_panels; i++) {
        const int done = i * k->panel;
        const int n = b->n_rows - done < k->panel ? b->n_rows - done : k->panel;
        b->panel[i].n_rows = n;
        b->panel[i].nv = (n + k->lanes - 1) / k->lanes;
        b->panel[i].begin = b->tile_begin;
        b->panel[i].end = tile_end;
        ptl_hstu_panel_mask_init(&s->mask[i], plan->p, b->seq, b->head, b->row + done, n);
        b->panel[i].kind = ptl_hstu_tile_mask(&s->mask[i], &b->panel[i].begin, &b->panel[i].end,
                                              s->bits + i * k->key_tile);
        if (b->panel[i].kind == PTL_TILE_SKIP) continue;
        if (b->panel[i].begin < b->begin) b->begin = b->panel[i].begin;
        if (b->panel[i].end > b->end) b->end = b->panel[i].end;
    }
    return b->begin < b->end;
}

static int64_t block_rows(const struct ptl_backward_plan *plan, const struct ptl_hstu_seq *seq,
                          int64_t row) {
    return ptl_min64(seq->uq - row, plan->block_rows);
}

/* The rows of q, dout and dq of the block behind this one, in as many parts as this one's panels
 * have steps. */
static struct ptl_ahead next_block_ahead(const struct ptl_backward_plan *plan,
                                         const struct block *b, int64_t n_keys) {
    const struct ptl_hstu_problem *p = plan->p;
    const int64_t row = b->row + plan->block_rows, n = block_rows(plan, b->seq, row);
    const int64_t at = b->seq->q_row + row;
    struct ptl_ahead a = {0};
    for (int i = 0; i < b->n_panels; i++)
        a.n_parts += 2 * ptl_ahead_parts(plan->kernels, b->panel[i].nv, n_keys);
    ptl_ahead_rows(&a, &p->q, b->seq->b, at, n, b->head, 0, 1, p->dqk);
    ptl_ahead_rows(&a, &plan->g->dout, b->seq->b, at, n, b->head, 0, 1, p->dv);
    ptl_ahead_rows(&a, &plan->dq, b->seq->b, at, n, b->head, 0, 1, p->dqk);
    return a;
}

/* f and dS of one panel, in the panel's part of s->s and s->u; line 0 is column b->begin. Columns
 * outside the panel's own range are zero lines. */
static void score_panel(const struct ptl_backward_plan *plan, struct block *b, int i,
                        const float *values, int64_t v_stride, const float *scale,
                        const struct scratch *s) {
    const struct ptl_hstu_problem *p = plan->p;
    const struct ptl_kernels *k = plan->kernels;
    const int64_t w = k->panel;
    float *f = s->s + i * k->key_tile * w, *u = s->u + i * k->key_tile * w;
    int64_t from = b->end, to = b->end; /* a skipped panel is zero lines only */
    if (b->panel[i].kind != PTL_TILE_SKIP) {
        from = b->panel[i].begin;
        to = b->panel[i].end;
    }
    memset(f, 0, (size_t)((from - b->begin) * w) * sizeof(float));
    memset(u, 0, (size_t)((from - b->begin) * w) * sizeof(float));
    memset(f + (to - b->begin) * w, 0, (size_t)((b->end - to) * w) * sizeof(float));
    memset(u + (to - b->begin) * w, 0, (size_t)((b->end - to) * w) * sizeof(float));
    memset(s->row_sum + i * w, 0, (size_t)w * sizeof(float));
    if (from == to) return;

    const int nv = b->panel[i].nv, n_rows = b->panel[i].n_rows, n = (int)(to - from);
    const int64_t row = b->row + i * w;
    f += (from - b->begin) * w;
    u += (from - b->begin) * w;
    ptl_hstu_load_panel(p, k, &p->q, b->seq, b->head, row, n_rows, p->dqk, s->q_panel, &s->stage);
    ptl_hstu_load_panel(p, k, &plan->g->dout, b->seq, b->head, row, n_rows, p->dv, s->o_panel,
                        &s->stage);
    ptl_ahead_qk(&b->ahead, k, nv, s->q_panel, s->k_rows + (from - b->tile_begin) * s->q_stride,
                 s->q_stride, n, p->dqk, f);
    const bool biased = ptl_hstu_has_bias(p);
    if (biased)
        ptl_hstu_add_bias(p, k, b->seq, b->head, row, n_rows, nv, from, to, plan->reversed, f, NULL,
                          &s->stage);
    ptl_ahead_qk(&b->ahead, k, nv, s->o_panel, values + (from - b->tile_begin) * v_stride, v_stride,
                 n, p->dv, u);
    k->tile_dsilu_f32(nv, f, u, n, biased ? 1.0f : p->alpha, scale + i * w,
                      b->panel[i].kind == PTL_TILE_MIXED ? s->bits + i * k->key_tile : NULL,
                      plan->ds ? s->row_sum + i * w : NULL);
}

/* Mask words of every panel for all columns [b->begin, b->end), where mask_block left them for each
 * panel's own range or not at all (FULL). */
static void spread_bits(const struct block *b, int key_tile, uint64_t *bits) {
    for (int i = 0; i < b->n_panels; i++, bits += key_tile) {
        const uint64_t all =
            b->panel[i].n_rows == 64 ? ~(uint64_t)0 : ((uint64_t)1 << b->panel[i].n_rows) - 1;
        const bool skip = b->panel[i].kind == PTL_TILE_SKIP;
        const int64_t from = skip ? b->end : b->panel[i].begin,
                      to = skip ? b->end : b->panel[i].end;
        if (b->panel[i].kind == PTL_TILE_FULL)
            for (int64_t j = from; j < to; j++) bits[j - from] = all;
        memmove(bits + (from - b->begin), bits, (size_t)(to - from) * sizeof *bits);
        memset(bits, 0, (size_t)(from - b->begin) * sizeof *bits);
        memset(bits + (to - b->begin), 0, (size_t)(b->end - to) * sizeof *bits);
    }
}

/* dv and dk of the tile gain what the block's rows give. */
static void add_to_keys(const struct ptl_backward_plan *plan, const struct block *b, bool q_finite,
                        bool o_finite, const struct scratch *s) {
    const struct ptl_hstu_problem *p = plan->p;
    const struct ptl_kernels *k = plan->kernels;
    const int64_t step = (int64_t)k->key_tile * k->panel, at = b->begin - b->tile_begin;
    const int n = (int)(b->end - b->begin);
    float *dv = s->dv + at * s->o_stride, *dk = s->dk + at * s->q_stride;
    if (o_finite)
        k->grad_keys_f32(s->s, step, b->n_rows, n, s->o_rows, s->o_stride, p->dv, dv, s->o_stride);
    else
        k->grad_keys_masked_f32(s->s, step, b->n_rows, n, s->o_rows, s->o_stride, p->dv, dv,
                                s->o_stride, s->bits, k->key_tile);
    if (q_finite)
        k->grad_keys_f32(s->u, step, b->n_rows, n, s->q_rows, s->q_stride, p->dqk, dk, s->q_stride);
    else
        k->grad_keys_masked_f32(s->u, step, b->n_rows, n, s->q_rows, s->q_stride, p->dqk, dk,
                                s->q_stride, s->bits, k->key_tile);
}

/* dq and ds of the block's rows, in the block's turn. masked: the bits have been spread. */
static void add_to_rows(const struct ptl_backward_plan *plan, const struct block *b, bool any,
                        bool masked, const struct ptl_block_hull *hull, _Atomic int32_t *turn,
                        const struct scratch *s) {
    const struct ptl_hstu_problem *p = plan->p;
    const struct ptl_kernels *k = plan->kernels;
    const bool first = b->tile == hull->first, last = b->tile == hull->last;
    const int64_t w = k->panel, rows_per_head = p->dense ? p->n_seqs * p->q_rows : p->q_rows;
    ptl_wait_turn32(turn, (int32_t)b->tile);
    for (int i = 0; i < b->n_panels; i++) {
        const int64_t row = b->row + i * w;
        float *dq = dq_row(plan, b->seq, b->head, row);
        if (any && b->panel[i].kind != PTL_TILE_SKIP) {
            const int64_t from = b->panel[i].begin, at = from - b->begin;
            const float *u = s->u + i * k->key_tile * w + at * w;
            const float *keys = s->k_rows + (from - b->tile_begin) * s->q_stride;
            const int n = (int)(b->panel[i].end - from);
            if (masked)
                k->grad_rows_masked_f32(u, b->panel[i].n_rows, n, keys, s->q_stride, p->dqk, dq,
                                        plan->dq.row_stride, first, s->bits + i * k->key_tile + at);
            else
                k->grad_rows_f32(u, b->panel[i].n_rows, n, keys, s->q_stride, p->dqk, dq,
                                 plan->dq.row_stride, first);
        } else if (first) {
            for (int r = 0; r < b->panel[i].n_rows; r++)
                memset(dq + r * plan->dq.row_stride, 0, (size_t)p->dqk * sizeof(float));
        }
        for (int r = 0; r < b->panel[i].n_rows; r++) {
            if (plan->ds) {
                float *sum = plan->ds + b->head * rows_per_head + ptl_flat_row(p, b->seq, row + r);
                *sum = (first ? 0.0f : *sum) + (any ? s->row_sum[i * w + r] : 0.0f);
            }
            if (!last) continue;
            float *x = dq_row(plan, b->seq, b->head, row + r);
            for (int d = 0; d < p->dqk; d++) x[d] *= p->alpha;
            if (p->dtype != PTL_F32)
                ptl_narrow_rows(
                    k, p->dtype, x, 0, 1, p->dqk,
                    ptl_rows_at(&plan->g->dq, b->seq->b, b->seq->q_row + row + r, b->head), 0);
        }
    }
    atomic_store_explicit(turn, (int32_t)b->tile + 1, memory_order_release);
}

static void backward_block(const struct ptl_backward_plan *plan, struct block *b, int64_t tile_end,
                           const float *values, int64_t v_stride, bool k_finite,
                           const struct ptl_block_hull *hull, _Atomic int32_t *turn,
                           const struct scratch *s) {
    const struct ptl_hstu_problem *p = plan->p;
    const struct ptl_kernels *k = plan->kernels;
    float scale[MAX_PANELS * PTL_MAX_PANEL] = {0};
    const bool any = mask_block(plan, b, tile_end, s);
    bool masked_rows = false;
    if (any) {
        bool cut = false; /* some pair of the block and [begin, end) is masked */
        for (int i = 0; i < b->n_rows; i++) scale[i] = ptl_hstu_scale_of(p, b->seq, b->row + i);
        stage_rows(plan, &p->q, b->seq->b, b->seq->q_row + b->row, b->head, b->n_rows, p->dqk, NULL,
                   s->q_rows, s->q_stride);
        stage_rows(plan, &plan->g->dout, b->seq->b, b->seq->q_row + b->row, b->head, b->n_rows,
                   p->dv, scale, s->o_rows, s->o_stride);
        if (b->next) b->ahead = next_block_ahead(plan, b, tile_end - b->tile_begin);
        for (int i = 0; i < b->n_panels; i++) {
            score_panel(plan, b, i, values, v_stride, scale, s);
            cut = cut || b->panel[i].kind != PTL_TILE_FULL || b->panel[i].begin != b->begin ||
                  b->panel[i].end != b->end;
        }
        const bool q_finite = !cut || k->rows_finite_f32(s->q_rows, s->q_stride, b->n_rows, p->dqk);
        const bool o_finite = !cut || k->rows_finite_f32(s->o_rows, s->o_stride, b->n_rows, p->dv);
        masked_rows = cut && !k_finite;
        if (!q_finite || !o_finite || masked_rows) spread_bits(b, k->key_tile, s->bits);
        add_to_keys(plan, b, q_finite, o_finite, s);
    }
    add_to_rows(plan, b, any, masked_rows, hull, turn, s);
    for (int i = 0; any && i < b->n_panels; i++) {
        if (b->panel[i].kind == PTL_TILE_SKIP) continue;
        const int64_t line = i * k->key_tile + b->panel[i].begin - b->begin;
        const struct ptl_ds_tile t = {.ds = s->u + line * k->panel,
                                      .row = b->row + i * k->panel,
                                      .begin = b->panel[i].begin,
                                      .end = b->panel[i].end,
                                      .n_rows = b->panel[i].n_rows};
        if (plan->g->dbias.data) ptl_dbias_add(plan, b->seq, b->head, &t, &s->stage);
        if (plan->tables) ptl_dtables_add(plan, b->seq, &t, s->tables, &s->stage);
    }
}

/* ---- One task -------------------------------------------------------------------------------- */

/* Broadcast dbias: the pair (sequence, head) may add to a slice's tile and block after the pairs
 * before it. Sequences are in the order of their keys, so all those before ours have this tile. */
struct bias_turns {
    _Atomic int32_t *turn; /* of block 0; NULL: no broadcast */
    int32_t mine;
    int64_t n; /* blocks of the longest sequence */
};

static struct bias_turns bias_turns_of(const struct ptl_backward_plan *plan, int64_t place,
                                       int64_t seq_index, int64_t head, int64_t tile) {
    struct bias_turns t = {0};
    if (!plan->bias_turn) return t;
    const struct ptl_hstu_problem *p = plan->p;
    const bool by_seq = plan->g->dbias.batch_stride != 0, by_head = plan->g->dbias.head_stride != 0;
    t.n = plan->most_blocks;
    const int64_t slice =
        (by_seq ? seq_index * (by_head ? p->n_q_heads : 1) : 0) + (by_head ? head : 0);
    t.turn = plan->bias_turn + (slice * plan->most_tiles + tile) * t.n;
    t.mine = (int32_t)((by_seq ? 0 : place * (by_head ? 1 : p->n_q_heads)) + (by_head ? 0 : head));
    return t;
}

static bool sees(const struct ptl_block_hull *hull, int64_t tile) {
    return hull->first <= tile && tile <= hull->last;
}

static void backward_task(struct ptl_backward_plan *plan, int64_t number, const struct scratch *s) {
    const struct ptl_hstu_problem *p = plan->p;
    const struct ptl_kernels *k = plan->kernels;
    int64_t low = 0, high = p->n_seqs - 1; /* the sequence whose tasks end behind this one */
    while (low < high) {
        const int64_t mid = (low + high) / 2;
        if (plan->task_end[mid] > number) high = mid;
        else low = mid + 1;
    }
    const struct ptl_hstu_seq seq = ptl_hstu_sequence(p, plan->order[low]);
    const int64_t n_tiles = (seq.uk + k->key_tile - 1) / k->key_tile;
    const int64_t within = number - (low ? plan->task_end[low - 1] : 0);
    const int64_t kv_head = within / n_tiles, tile = within % n_tiles;
    const int64_t begin = tile * k->key_tile;
    const int64_t end = begin + k->key_tile < seq.uk ? begin + k->key_tile : seq.uk;
    const int64_t group = p->n_q_heads / p->n_k_heads, n_keys = end - begin;

    int64_t v_stride;
    const float *values =
        ptl_hstu_load_values(p, k, &seq, kv_head, begin, end, true, &s->stage, &v_stride);
    stage_rows(plan, &p->k, seq.b, seq.k_row + begin, kv_head, (int)n_keys, p->dqk, NULL, s->k_rows,
               s->q_stride);
    const bool k_finite = k->rows_finite_f32(s->k_rows, s->q_stride, (int)n_keys, p->dqk);
    memset(s->dk, 0, (size_t)(n_keys * s->q_stride) * sizeof(float));
    memset(s->dv, 0, (size_t)(n_keys * s->o_stride) * sizeof(float));

    for (int64_t head = kv_head * group; head < (kv_head + 1) * group; head++) {
        const struct bias_turns turns = bias_turns_of(plan, low, seq.index, head, tile);
        const int64_t n_blocks = plan->first_block[seq.index + 1] - plan->first_block[seq.index];
        for (int64_t i = 0; i < n_blocks || (turns.turn && i < turns.n); i++) {
            if (turns.turn) ptl_wait_turn32(&turns.turn[i], turns.mine);
            const int64_t at = plan->first_block[seq.index] + i;
            if (i < n_blocks && sees(&plan->hulls[at], tile)) {
                struct block b = {.seq = &seq,
                                  .head = head,
                                  .row = i * plan->block_rows,
                                  .tile = tile,
                                  .tile_begin = begin};
                b.n_rows = (int)block_rows(plan, &seq, b.row);
                b.n_panels = (b.n_rows + k->panel - 1) / k->panel;
                b.next = i + 1 < n_blocks && sees(&plan->hulls[at + 1], tile);
                backward_block(plan, &b, end, values, v_stride, k_finite, &plan->hulls[at],
                               &plan->dq_turn[head * plan->n_blocks + at], s);
            }
            if (turns.turn)
                atomic_store_explicit(&turns.turn[i], turns.mine + 1, memory_order_release);
        }
        if (plan->tables) {
            const int64_t mine = number * group + (head - kv_head * group);
            ptl_wait_turn64(&plan->table_turn, mine);
            ptl_dtables_merge(plan, &seq, head, s->tables);
            atomic_store_explicit(&plan->table_turn, mine + 1, memory_order_release);
        }
    }

    for (int64_t j = 0; j < n_keys; j++) {
        float *dk = s->dk + j * s->q_stride;
        for (int d = 0; d < p->dqk; d++) dk[d] *= p->alpha;
        ptl_narrow_rows(k, p->dtype, dk, 0, 1, p->dqk,
                        ptl_rows_at(&plan->g->dk, seq.b, seq.k_row + begin + j, kv_head), 0);
        ptl_narrow_rows(k, p->dtype, s->dv + j * s->o_stride, 0, 1, p->dv,
                        ptl_rows_at(&plan->g->dv, seq.b, seq.k_row + begin + j, kv_head), 0);
    }
}

static void backward_worker(void *arg, int slot) {
    struct ptl_backward_plan *plan = arg;
    size_t bytes;
    const struct scratch s =
        scratch_at(plan, plan->scratch + (size_t)slot * plan->scratch_bytes, &bytes);
    memset(s.tables, 0, (size_t)ptl_dtables_entries(plan) * sizeof(double));
    for (;;) {
        const int64_t task = atomic_fetch_add_explicit(&plan->next_task, 1, memory_order_relaxed);
        if (task >= plan->n_tasks) return;
        backward_task(plan, task, &s);
    }
}

/* ---- The plan -------------------------------------------------------------------------------- */

struct by_keys {
    int64_t uk, index;
};

static int compare_keys(const void *a, const void *b) {
    const struct by_keys *x = a, *y = b;
    if (x->uk != y->uk) return x->uk > y->uk ? -1 : 1;
    return x->index < y->index ? -1 : 1;
}

static void find_hull(const struct ptl_backward_plan *plan, const struct ptl_hstu_seq *seq,
                      int64_t row, struct ptl_block_hull *hull) {
    struct ptl_hstu_panel_mask m;
    const int64_t end = row + plan->block_rows < seq->uq ? row + plan->block_rows : seq->uq;
    int64_t first = INT64_MAX, last = 0;
    for (; row < end; row += plan->kernels->panel) {
        const int n = (int)(end - row < plan->kernels->panel ? end - row : plan->kernels->panel);
        ptl_hstu_panel_mask_init(&m, plan->p, seq, 0, row, n);
        if (m.first >= m.last) continue;
        if (m.first < first) first = m.first;
        if (m.last > last) last = m.last;
    }
    hull->first = first < last ? (int32_t)(first / plan->kernels->key_tile) : 1;
    hull->last = first < last ? (int32_t)((last - 1) / plan->kernels->key_tile) : 0;
}

/* Rows that no task reaches: padding, sequences without keys, blocks that see nothing. */
static void zero_unreached(const struct ptl_backward_plan *plan) {
    const struct ptl_hstu_problem *p = plan->p;
    const struct ptl_hstu_gradients *g = plan->g;
    int64_t k_end = 0;
    for (int64_t i = 0; i < p->n_seqs + (p->dense ? 0 : 1); i++) {
        const struct ptl_hstu_seq seq = ptl_hstu_sequence(p, i);
        zero_rows(&g->dq, seq.b, seq.q_row + seq.uq, seq.q_row + seq.allocated, p->n_q_heads,
                  p->dqk);
        if (i == p->n_seqs) break;
        const int64_t room = p->dense ? p->k_rows : ptl_index_at(&p->offsets_k, i + 1) - seq.k_row;
        k_end = seq.k_row + room;
        zero_rows(&g->dk, seq.b, seq.k_row + seq.uk, k_end, p->n_k_heads, p->dqk);
        zero_rows(&g->dv, seq.b, seq.k_row + seq.uk, k_end, p->n_k_heads, p->dv);
        for (int64_t at = plan->first_block[i]; at < plan->first_block[i + 1]; at++) {
            if (plan->hulls[at].first <= plan->hulls[at].last) continue;
            const int64_t row = (at - plan->first_block[i]) * plan->block_rows;
            const int64_t end = row + plan->block_rows < seq.uq ? row + plan->block_rows : seq.uq;
            zero_rows(&g->dq, seq.b, seq.q_row + row, seq.q_row + end, p->n_q_heads, p->dqk);
        }
    }
    if (!p->dense) {
        zero_rows(&g->dk, 0, k_end, p->k_rows, p->n_k_heads, p->dqk);
        zero_rows(&g->dv, 0, k_end, p->k_rows, p->n_k_heads, p->dv);
    }
}

/* ds of a row is the sum of its heads, in order. Rows without a block stay at the zero they were
 * given. */
static void finish_ds(const struct ptl_backward_plan *plan) {
    const struct ptl_hstu_problem *p = plan->p;
    const int64_t n_rows = p->dense ? p->n_seqs * p->q_rows : p->q_rows;
    for (int64_t row = 0; row < n_rows; row++) {
        float sum = 0.0f;
        for (int64_t h = 0; h < p->n_q_heads; h++) sum += plan->ds[h * n_rows + row];
        *(float *)ptl_rows_at(&plan->g->ds, p->dense ? row / p->q_rows : 0,
                              p->dense ? row % p->q_rows : row, 0) = sum;
    }
}

/* Everything of O(Tq) in one piece of the plan arena. */
static bool lay_out(struct ptl_context *ctx, struct ptl_backward_plan *plan) {
    const struct ptl_hstu_problem *p = plan->p;
    const size_t n_seqs = (size_t)p->n_seqs, n_blocks = (size_t)plan->n_blocks;
    const size_t n_rows = (size_t)(p->dense ? p->n_seqs * p->q_rows : p->q_rows);
    const size_t heads = (size_t)p->n_q_heads;
    const bool half = p->dtype != PTL_F32;
    const bool by_seq = plan->g->dbias.batch_stride != 0, by_head = plan->g->dbias.head_stride != 0;
    const bool broadcast = plan->g->dbias.data && ptl_dbias_broadcasts(p, plan->g);
    size_t n_turns = 0, n_bias = 0;
    if (broadcast) {
        n_turns = (size_t)((by_seq ? p->n_seqs : 1) * (by_head ? p->n_q_heads : 1) *
                           plan->most_tiles * plan->most_blocks);
        if (plan->g->dbias.dtype != PTL_F32)
            n_bias = (size_t)(plan->g->dbias_shape[0] * plan->g->dbias_shape[1] *
                              plan->g->dbias_shape[2] * plan->g->dbias_shape[3]);
    }
    plan->dq.elem_bytes = sizeof(float);
    plan->dq.head_stride = p->dqk;
    plan->dq.row_stride = p->n_q_heads * p->dqk;
    plan->dq.batch_stride = p->dense ? p->q_rows * plan->dq.row_stride : 0;
    struct ptl_pieces m = {NULL, 0};
    for (int pass = 0; pass < 2; pass++) { /* first how much, then where */
        plan->order = ptl_take(&m, n_seqs * sizeof *plan->order);
        plan->task_end = ptl_take(&m, n_seqs * sizeof *plan->task_end);
        plan->first_block = ptl_take(&m, (n_seqs + 1) * sizeof *plan->first_block);
        plan->hulls = ptl_take(&m, n_blocks * sizeof *plan->hulls);
        plan->dq_turn = ptl_take(&m, heads * n_blocks * sizeof *plan->dq_turn);
        plan->bias_turn = ptl_take(&m, n_turns * sizeof *plan->bias_turn);
        plan->reversed = ptl_take(&m, (size_t)ptl_hstu_reversed_floats(p) * sizeof(float));
        plan->tables = ptl_take(&m, (size_t)ptl_dtables_total(plan) * sizeof(double));
        plan->ds = ptl_take(&m, plan->g->ds.data ? heads * n_rows * sizeof(float) : 0);
        plan->dq.data = ptl_take(&m, half ? n_rows * heads * (size_t)p->dqk * sizeof(float) : 0);
        plan->dbias = ptl_take(&m, n_bias * sizeof(float));
        struct by_keys *sorted = ptl_take(&m, n_seqs * sizeof *sorted); /* last: used only here */
        if (pass == 0) {
            m.base = ptl_arena_reserve(&ctx->plan, m.used);
            m.used = 0;
            if (!m.base) return false;
            continue;
        }
        for (int64_t b = 0; b < p->n_seqs; b++)
            sorted[b] = (struct by_keys){ptl_hstu_sequence(p, b).uk, b};
        qsort(sorted, n_seqs, sizeof *sorted, compare_keys);
        for (int64_t b = 0; b < p->n_seqs; b++) plan->order[b] = sorted[b].index;
    }
    for (size_t i = 0; i < n_turns; i++) atomic_init(&plan->bias_turn[i], 0);
    if (n_turns == 0) plan->bias_turn = NULL;
    if (ptl_dtables_total(plan) == 0) plan->tables = NULL;
    else memset(plan->tables, 0, (size_t)ptl_dtables_total(plan) * sizeof(double));
    if (!plan->g->ds.data) plan->ds = NULL;
    else memset(plan->ds, 0, heads * n_rows * sizeof(float));
    if (!half) plan->dq = plan->g->dq;
    if (n_bias == 0) plan->dbias = NULL;
    ptl_hstu_reverse_tables(p, (float *)plan->reversed);
    return true;
}

enum ptl_status ptl_hstu_run_backward(struct ptl_context *ctx, const struct ptl_hstu_problem *p,
                                      const struct ptl_hstu_gradients *g) {
    struct ptl_backward_plan plan = {.p = p, .g = g, .kernels = ctx->kernels};
    const int64_t key_tile = ctx->kernels->key_tile;
    plan.block_rows = PTL_BACKWARD_PANELS * ctx->kernels->panel;
    int64_t n_tiles = 0;
    double pairs = 0.0;
    for (int64_t b = 0; b < p->n_seqs; b++) {
        const struct ptl_hstu_seq seq = ptl_hstu_sequence(p, b);
        const int64_t blocks = (seq.uq + plan.block_rows - 1) / plan.block_rows;
        const int64_t tiles = (seq.uk + key_tile - 1) / key_tile;
        plan.n_blocks += blocks;
        n_tiles += tiles;
        if (blocks > plan.most_blocks) plan.most_blocks = blocks;
        if (tiles > plan.most_tiles) plan.most_tiles = tiles;
        pairs += (double)ptl_hstu_estimate_pairs(p, &seq, 0, seq.uq);
    }
    plan.n_tasks = n_tiles * p->n_k_heads;
    if (!lay_out(ctx, &plan)) return PTL_ERR_NOMEM;

    int n_workers = ctx->executor.n_threads;
    const double worth =
        2.5 * pairs * (double)(p->dqk + p->dv) * (double)p->n_q_heads / PTL_WORTH_A_THREAD;
    if (worth < n_workers) n_workers = worth < 1.0 ? 1 : (int)worth;
    if (plan.n_tasks < n_workers) n_workers = plan.n_tasks < 1 ? 1 : (int)plan.n_tasks;
    scratch_at(&plan, NULL, &plan.scratch_bytes);
    plan.scratch = ptl_arena_reserve(&ctx->scratch, (size_t)n_workers * plan.scratch_bytes);
    if (!plan.scratch) return PTL_ERR_NOMEM;

    int64_t at = 0, end = 0;
    for (int64_t b = 0; b < p->n_seqs; b++) {
        const struct ptl_hstu_seq seq = ptl_hstu_sequence(p, b);
        plan.first_block[b] = at;
        for (int64_t row = 0; row < seq.uq; row += plan.block_rows)
            find_hull(&plan, &seq, row, &plan.hulls[at++]);
    }
    plan.first_block[p->n_seqs] = at;
    for (int64_t i = 0; i < p->n_seqs; i++) {
        const struct ptl_hstu_seq seq = ptl_hstu_sequence(p, plan.order[i]);
        end += (seq.uk + key_tile - 1) / key_tile * p->n_k_heads;
        plan.task_end[i] = end;
    }
    for (int64_t h = 0; h < p->n_q_heads; h++)
        for (int64_t i = 0; i < plan.n_blocks; i++)
            atomic_init(&plan.dq_turn[h * plan.n_blocks + i], plan.hulls[i].first);

    zero_unreached(&plan);
    ptl_dbias_begin(&plan);
    if (plan.n_tasks > 0) ptl_executor_run(&ctx->executor, n_workers, backward_worker, &plan);
    if (plan.ds) finish_ds(&plan);
    ptl_dbias_finish(&plan);
    return PTL_OK;
}
