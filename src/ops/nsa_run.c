/* Work distribution of softmax attention: blocks, which of them are cut into splits, and the order
 * in which workers draw. What a block does is nsa_block.h. */
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#include "../core/arith.h"
#include "nsa_block.h"
#include "schedule.h"

/* Lanes of a block: more share a key tile's way from memory, but queries, sums and two tiles should
 * stay in a second-level cache of 512 KiB. */
enum { BLOCK_BYTES = 192 << 10, MAX_BLOCK_LANES = 192, HEADS_BYTES = 256 << 10 };

/* The order in which units are drawn. Splits of shared blocks come first and last: what is between
 * hides the selection, which one worker does. */
enum { WHOLE = PTL_NSA_PHASES, N_KINDS };
static const int ORDER[N_KINDS] = {PTL_NSA_CMP, PTL_NSA_SWA, WHOLE, PTL_NSA_POOL, PTL_NSA_SLC};

/* States of splits that are added up in order, by whoever has finished one and finds the chain
 * idle: they are in its cache then. */
struct chain {
    _Atomic bool busy;
    int64_t next;          /* the first split that is not in split 0 yet */
    _Atomic bool *is_done; /* of every split */
};

/* A block that several workers compute: a unit is one split, of one row in SLC, and all panels or,
 * where splits are few, one of them. */
struct shared_block {
    struct ptl_nsa_block block;
    int n_groups[PTL_NSA_PHASES]; /* of panels */
    int64_t n_units[PTL_NSA_PHASES];
    struct chain *chains[PTL_NSA_PHASES]; /* for each row and group; POOL: none */
    _Atomic int64_t cmp_left, swa_left, pool_left, all_left; /* units that are not done */
    _Atomic bool merged, selected;
};

struct nsa_job {
    const struct ptl_nsa_problem *p;
    const struct ptl_kernels *k;
    int64_t block_lanes, block_rows;
    double total_cost;
    int n_threads;
    struct shared_block *shared;
    int64_t n_shared, n_units[N_KINDS];
    size_t shared_bytes; /* memory of their blocks */
    struct ptl_schedule whole;
    char *scratch;
    size_t scratch_bytes; /* of a worker, with a whole block */
    _Atomic int64_t drawn;
};

static int64_t choose_block_lanes(const struct ptl_nsa_problem *p, const struct ptl_kernels *k) {
    const int64_t lanes = BLOCK_BYTES / ((p->dqk + p->dv) * (int64_t)sizeof(float));
    return ptl_max64(k->panel, ptl_min64(lanes, MAX_BLOCK_LANES));
}

/* Whether the rows of all kv heads of a token lie side by side: then they are read together,
 * several heads a block, as long as two tiles of them fit the cache. A few bytes out of every row
 * come from memory at a third of its rate. */
static bool is_side_by_side(const struct ptl_nsa_store *s, int dqk, int dv) {
    return s->k.head_stride == dqk && (!s->v.data || s->v.head_stride == dv);
}

static int choose_block_heads(const struct nsa_job *job, int64_t n_rows) {
    const struct ptl_nsa_problem *p = job->p;
    const int64_t tile = PTL_NSA_TILE * (p->dqk + p->dv) * (int64_t)ptl_dtype_bytes(p->dtype);
    int64_t n = ptl_min64(HEADS_BYTES / tile, job->block_lanes / (n_rows * p->group));
    if ((p->has_cmp && !is_side_by_side(&p->cmp, p->dqk, p->dv)) ||
        (p->has_swa && !is_side_by_side(&p->swa, p->dqk, p->dv)))
        n = 1;
    return (int)ptl_max64(1, ptl_min64(n, p->n_k_heads));
}

/* ---- Planning -------------------------------------------------------------------------------- */

/* Calls fn for every block of every sequence and kv head. */
typedef void block_fn(struct nsa_job *job, struct ptl_nsa_block *b);

static void each_block(struct nsa_job *job, block_fn *fn) {
    const struct ptl_nsa_problem *p = job->p;
    for (int64_t s = 0; s < p->n_seqs; s++) {
        const struct ptl_nsa_seq seq = ptl_nsa_sequence(p, s);
        for (int64_t row = 0; row < seq.n_q; row += job->block_rows) {
            const int64_t n = ptl_min64(job->block_rows, seq.n_q - row);
            const int n_heads = choose_block_heads(job, n);
            for (int64_t head = 0; head < p->n_k_heads; head += n_heads) {
                struct ptl_nsa_block b;
                ptl_nsa_block_init(&b, p, job->k, &seq, head,
                                   (int)ptl_min64(n_heads, p->n_k_heads - head), row, (int)n);
                fn(job, &b);
            }
        }
    }
}

/* Multiply-adds, and something for what a block has to load and store. */
static int64_t cost_of(const struct ptl_nsa_block *b) {
    int64_t cost = 8 * b->n_lists * b->p->group * (b->p->dqk + b->p->dv);
    for (int phase = 0; phase < PTL_NSA_PHASES; phase++) cost += ptl_nsa_block_cost(b, phase);
    return cost;
}

static void add_cost(struct nsa_job *job, struct ptl_nsa_block *b) {
    job->total_cost += (double)cost_of(b);
}

/* Whether the others would wait for the block if one worker computed it. */
static bool is_shared(const struct nsa_job *job, const struct ptl_nsa_block *b) {
    return job->n_threads > 1 && 8.0 * job->n_threads * (double)cost_of(b) > job->total_cost;
}

/* Units of a block, and its memory: how many bytes, or, with memory, where. */
static size_t share_block(const struct nsa_job *job, struct shared_block *s, char *memory) {
    struct ptl_nsa_block *b = &s->block;
    struct ptl_pieces m = {memory, ptl_nsa_block_memory(b, memory)};
    for (int phase = 0; phase < PTL_NSA_PHASES; phase++) {
        const int64_t n = b->n_splits[phase];
        const int64_t lists = ptl_nsa_n_lists(b, (enum ptl_nsa_phase)phase);
        /* Probabilities are summed over the panels in order, so these stay together. */
        const bool sums = b->by_probabilities && (phase == PTL_NSA_CMP || phase == PTL_NSA_POOL);
        const bool few = n * lists < 4 * job->n_threads && !sums && b->n_heads == 1;
        s->n_groups[phase] = few ? ptl_nsa_n_panels(b, (enum ptl_nsa_phase)phase) : 1;
        s->n_units[phase] = n * lists * s->n_groups[phase];
        /* Rows that see no compressed key have a selection all the same. */
        if (phase == PTL_NSA_CMP && job->p->has_cmp && n == 0) s->n_units[phase] = 1;
        if (phase == PTL_NSA_POOL) continue;
        const int64_t n_chains = lists * s->n_groups[phase];
        struct chain *chains = ptl_take(&m, (size_t)n_chains * sizeof *chains);
        _Atomic bool *is_done = ptl_take(&m, (size_t)(n_chains * n) * sizeof *is_done);
        for (int64_t i = 0; memory && i < n_chains; i++) {
            atomic_init(&chains[i].busy, false);
            chains[i].next = 0;
            chains[i].is_done = is_done + i * n;
            for (int64_t x = 0; x < n; x++) atomic_init(&chains[i].is_done[x], false);
        }
        s->chains[phase] = chains;
    }
    return m.used;
}

static void count_block(struct nsa_job *job, struct ptl_nsa_block *b) {
    struct ptl_nsa_worker w;
    size_t bytes = ptl_nsa_worker_memory(&w, b, NULL);
    if (is_shared(job, b)) {
        struct shared_block s;
        s.block = *b;
        s.block.shared = true;
        job->n_shared++;
        job->shared_bytes += share_block(job, &s, NULL);
    } else {
        ptl_schedule_count(&job->whole, cost_of(b));
        bytes += ptl_nsa_block_memory(b, NULL);
    }
    if (bytes > job->scratch_bytes) job->scratch_bytes = bytes;
}

static void place_block(struct nsa_job *job, struct ptl_nsa_block *b) {
    if (is_shared(job, b)) {
        struct shared_block *s = &job->shared[job->n_shared++];
        s->block = *b;
        s->block.shared = true;
    } else {
        const int64_t key = b->seq.index * job->p->n_k_heads + b->head;
        ptl_schedule_place(&job->whole, (struct ptl_block){key, b->row}, cost_of(b));
    }
}

static size_t begin_shared(struct nsa_job *job, struct shared_block *s, char *memory) {
    int64_t all = 0;
    const size_t bytes = share_block(job, s, memory);
    for (int phase = 0; phase < PTL_NSA_PHASES; phase++) {
        job->n_units[phase] += s->n_units[phase];
        all += s->n_units[phase];
    }
    atomic_init(&s->cmp_left, s->n_units[PTL_NSA_CMP]);
    atomic_init(&s->swa_left, s->n_units[PTL_NSA_SWA]);
    atomic_init(&s->pool_left, s->n_units[PTL_NSA_POOL]);
    atomic_init(&s->all_left, all);
    atomic_init(&s->merged, false);
    atomic_init(&s->selected, false);
    return bytes;
}

/* ---- Workers --------------------------------------------------------------------------------- */

/* Where the worker of a whole block is: part is walked. */
struct whole_walk {
    struct ptl_nsa_block block;
    struct ptl_nsa_part part;
};

/* All of a list's splits and panels. */
static struct ptl_nsa_part whole_part(const struct ptl_nsa_block *b, enum ptl_nsa_phase phase,
                                      int list) {
    return (struct ptl_nsa_part){phase, list, 0, b->n_splits[phase], 0, ptl_nsa_n_panels(b, phase)};
}

/* The next list, of the next phase after the last one. */
static bool next_part(const struct ptl_nsa_block *b, struct ptl_nsa_part *part) {
    static const enum ptl_nsa_phase after[PTL_NSA_PHASES] = {
        [PTL_NSA_CMP] = PTL_NSA_POOL, [PTL_NSA_POOL] = PTL_NSA_SWA, [PTL_NSA_SWA] = PTL_NSA_SLC};
    if (part->list + 1 < ptl_nsa_n_lists(b, part->phase))
        *part = whole_part(b, part->phase, part->list + 1);
    else if (part->phase == PTL_NSA_SLC) return false;
    else *part = whole_part(b, after[part->phase], 0);
    return true;
}

static const struct ptl_nsa_store *peek_whole(void *data, struct ptl_nsa_worker *w) {
    struct whole_walk *x = data;
    struct ptl_nsa_part next = x->part;
    while (next_part(&x->block, &next)) {
        if (next.begin == next.end) continue;
        /* before there is a selection, nobody knows its tokens */
        if (next.phase == PTL_NSA_SLC && x->part.phase != PTL_NSA_SWA &&
            x->part.phase != PTL_NSA_SLC)
            return NULL;
        return ptl_nsa_block_peek(&x->block, w, &next);
    }
    return NULL;
}

static void compute_whole(struct nsa_job *job, struct ptl_nsa_worker *w, char *scratch, int64_t i) {
    const struct ptl_nsa_problem *p = job->p;
    const struct ptl_block at = job->whole.blocks[i];
    const struct ptl_nsa_seq seq = ptl_nsa_sequence(p, at.seq / p->n_k_heads);
    const int64_t n = ptl_min64(job->block_rows, seq.n_q - at.row), head = at.seq % p->n_k_heads;
    struct whole_walk x;
    struct ptl_nsa_block *b = &x.block;
    ptl_nsa_block_init(b, p, job->k, &seq, head,
                       (int)ptl_min64(choose_block_heads(job, n), p->n_k_heads - head), at.row,
                       (int)n);
    w->has_logits = b->first_logit < b->swa_end; /* SWA comes before SLC */
    w->peek = peek_whole;
    w->job = &x;
    ptl_nsa_block_memory(b, scratch + ptl_nsa_worker_memory(w, b, scratch));
    x.part = whole_part(b, PTL_NSA_CMP, 0);
    do {
        ptl_nsa_block_walk(b, w, &x.part);
        if (x.part.phase == PTL_NSA_CMP) ptl_nsa_block_normalise(b);
        if (x.part.phase == PTL_NSA_POOL) ptl_nsa_block_select(b, w);
    } while (next_part(b, &x.part));
    ptl_nsa_block_finish(b, w);
    w->loaded.block = NULL; /* the next block may lie where this one did */
}

/* What is waited for is done by units that were drawn before, so it comes, whoever runs. */
static void wait_for(const _Atomic bool *flag) {
    for (int i = 0; !atomic_load_explicit(flag, memory_order_acquire); i++)
        if (i >= 100) sched_yield();
}

static bool was_last(_Atomic int64_t *left) {
    return atomic_fetch_sub_explicit(left, 1, memory_order_acq_rel) == 1;
}

/* What unit number *unit is: a phase of a block, and *unit counts in it; or WHOLE, and it counts
 * the whole blocks; or N_KINDS, there is no such unit. */
static int find_unit(const struct nsa_job *job, int64_t *unit, struct shared_block **s) {
    int i = 0;
    while (i < N_KINDS && *unit >= job->n_units[ORDER[i]]) *unit -= job->n_units[ORDER[i++]];
    if (i == N_KINDS || ORDER[i] == WHOLE) return i == N_KINDS ? N_KINDS : WHOLE;
    *s = job->shared;
    while (*unit >= (*s)->n_units[ORDER[i]]) *unit -= (*s)++->n_units[ORDER[i]];
    return ORDER[i];
}

static struct ptl_nsa_part part_of(const struct shared_block *s, int phase, int64_t unit) {
    const struct ptl_nsa_block *b = &s->block;
    const int n_groups = s->n_groups[phase], group = (int)(unit % n_groups);
    const int n_panels = ptl_nsa_n_panels(b, (enum ptl_nsa_phase)phase) / n_groups;
    const int64_t n = b->n_splits[phase], split = unit / n_groups;
    if (n == 0) return (struct ptl_nsa_part){.phase = (enum ptl_nsa_phase)phase};
    return (struct ptl_nsa_part){
        (enum ptl_nsa_phase)phase, (int)(split / n),      split % n, split % n + 1,
        group * n_panels,          (group + 1) * n_panels};
}

/* The unit that is to be drawn next, if nobody else comes first. */
static const struct ptl_nsa_store *peek(void *data, struct ptl_nsa_worker *w) {
    const struct nsa_job *job = data;
    struct shared_block *s;
    int64_t unit = atomic_load_explicit(&job->drawn, memory_order_relaxed);
    const int kind = find_unit(job, &unit, &s);
    if (kind >= PTL_NSA_PHASES) return NULL;
    const struct ptl_nsa_part part = part_of(s, kind, unit);
    if (kind == PTL_NSA_SLC && job->p->selects &&
        !atomic_load_explicit(&s->selected, memory_order_acquire))
        return NULL;
    return part.begin < part.end ? ptl_nsa_block_peek(&s->block, w, &part) : NULL;
}

/* Adds up what can be added: from the next split on, as far as they are done. */
static void advance_chain(struct shared_block *s, struct chain *c,
                          const struct ptl_nsa_part *part) {
    const int64_t n = s->block.n_splits[part->phase];
    for (; c->next < n; c->next++) {
        if (!atomic_load_explicit(&c->is_done[c->next], memory_order_acquire)) return;
        if (c->next > 0) ptl_nsa_block_fold(&s->block, part, c->next);
    }
}

static void add_split(struct shared_block *s, const struct ptl_nsa_part *part, int64_t group) {
    const int phase = part->phase;
    struct chain *c = &s->chains[phase][part->list * s->n_groups[phase] + group];
    atomic_store_explicit(&c->is_done[part->begin], true, memory_order_release);
    if (atomic_exchange_explicit(&c->busy, true, memory_order_acquire)) return;
    advance_chain(s, c, part);
    atomic_store_explicit(&c->busy, false, memory_order_release);
}

/* When all splits are done: what nobody has added. */
static void add_rest(struct shared_block *s, int phase) {
    const int n_groups = s->n_groups[phase];
    for (int64_t i = 0; i < ptl_nsa_n_lists(&s->block, (enum ptl_nsa_phase)phase) * n_groups; i++) {
        const int64_t unit = i / n_groups * s->block.n_splits[phase] * n_groups + i % n_groups;
        const struct ptl_nsa_part part = part_of(s, phase, unit);
        if (part.begin < part.end) advance_chain(s, &s->chains[phase][i], &part);
    }
}

static void compute_part(struct nsa_job *job, struct ptl_nsa_worker *w, char *scratch,
                         struct shared_block *s, int phase, int64_t unit) {
    struct ptl_nsa_block *b = &s->block;
    const struct ptl_nsa_part part = part_of(s, phase, unit);
    bool scores = false;
    if (w->loaded.block != b) ptl_nsa_worker_memory(w, b, scratch);
    w->peek = peek;
    w->job = job;
    if (phase == PTL_NSA_POOL) wait_for(&s->merged);
    if (phase == PTL_NSA_SLC && job->p->selects) wait_for(&s->selected);
    w->has_logits = b->first_logit < b->swa_end &&
                    atomic_load_explicit(&s->swa_left, memory_order_acquire) == 0;
    ptl_nsa_block_walk(b, w, &part);
    if (phase == PTL_NSA_SWA) was_last(&s->swa_left);
    if (phase != PTL_NSA_POOL && part.begin < part.end)
        add_split(s, &part, unit % s->n_groups[phase]);
    if (phase == PTL_NSA_CMP && was_last(&s->cmp_left)) {
        add_rest(s, PTL_NSA_CMP);
        ptl_nsa_block_normalise(b);
        atomic_store_explicit(&s->merged, true, memory_order_release);
        scores = s->n_units[PTL_NSA_POOL] == 0;
    }
    if (phase == PTL_NSA_POOL) scores = was_last(&s->pool_left);
    if (scores) {
        ptl_nsa_block_select(b, w);
        atomic_store_explicit(&s->selected, true, memory_order_release);
    }
    if (was_last(&s->all_left)) {
        add_rest(s, PTL_NSA_SWA);
        add_rest(s, PTL_NSA_SLC);
        ptl_nsa_block_finish(b, w);
    }
}

static void nsa_worker(void *data, int slot) {
    struct nsa_job *job = data;
    char *scratch = job->scratch + (size_t)slot * job->scratch_bytes;
    struct ptl_nsa_worker w;
    w.loaded.block = NULL;
    for (;;) {
        struct shared_block *s;
        int64_t unit = atomic_fetch_add_explicit(&job->drawn, 1, memory_order_relaxed);
        const int kind = find_unit(job, &unit, &s);
        if (kind == N_KINDS) return;
        if (kind == WHOLE) compute_whole(job, &w, scratch, unit);
        else compute_part(job, &w, scratch, s, kind, unit);
    }
}

/* Costs, counts and memory; n_workers 0: there is nothing to do. */
static enum ptl_status plan(struct ptl_context *ctx, const struct ptl_nsa_problem *p,
                            struct nsa_job *job, int *n_workers) {
    /* not cleared as a whole: the schedule is 8 KiB */
    job->p = p;
    job->k = ctx->kernels;
    job->block_lanes = choose_block_lanes(p, job->k);
    job->block_rows = ptl_max64(1, job->block_lanes / p->group);
    job->total_cost = 0.0;
    job->shared = NULL;
    job->n_shared = 0;
    job->shared_bytes = job->scratch_bytes = 0;
    memset(job->n_units, 0, sizeof job->n_units);
    atomic_init(&job->drawn, 0);
    ptl_schedule_begin(&job->whole, 1);

    *n_workers = 0;
    each_block(job, add_cost);
    if (job->total_cost == 0.0) return PTL_OK;
    const double worth = job->total_cost / PTL_WORTH_A_THREAD;
    job->n_threads = ctx->executor.n_threads;
    if (worth < job->n_threads) job->n_threads = worth < 1.0 ? 1 : (int)worth;
    each_block(job, count_block);
    job->n_units[WHOLE] = job->whole.n_tasks;

    struct ptl_pieces m = {NULL, 0};
    for (int pass = 0; pass < 2; pass++) {
        job->whole.blocks = ptl_take(&m, (size_t)job->whole.n_tasks * sizeof(struct ptl_block));
        job->shared = ptl_take(&m, (size_t)job->n_shared * sizeof *job->shared);
        if (pass == 1) break;
        m = (struct ptl_pieces){ptl_arena_reserve(&ctx->plan, m.used + job->shared_bytes), 0};
        if (!m.base) return PTL_ERR_NOMEM;
    }
    ptl_schedule_order(&job->whole, job->whole.blocks, job->n_threads);
    job->n_shared = 0;
    each_block(job, place_block);
    for (int64_t i = 0; i < job->n_shared; i++)
        m.used += begin_shared(job, &job->shared[i], m.base + m.used);

    int64_t n_units = 0;
    for (int i = 0; i < N_KINDS; i++) n_units += job->n_units[i];
    *n_workers = (int)ptl_min64(job->n_threads, n_units);
    job->scratch_bytes = ptl_round_up(job->scratch_bytes, 4096) + 64; /* not on one cache set */
    job->scratch = ptl_arena_reserve(&ctx->scratch, (size_t)*n_workers * job->scratch_bytes);
    return job->scratch ? PTL_OK : PTL_ERR_NOMEM;
}

enum ptl_status ptl_nsa_reserve(struct ptl_context *ctx, const struct ptl_nsa_problem *p) {
    struct nsa_job job;
    int n_workers;
    return plan(ctx, p, &job, &n_workers);
}

enum ptl_status ptl_nsa_run(struct ptl_context *ctx, const struct ptl_nsa_problem *p) {
    struct nsa_job job;
    int n_workers;
    if (plan(ctx, p, &job, &n_workers) != PTL_OK) return PTL_ERR_NOMEM;
    if (n_workers > 0) ptl_executor_run(&ctx->executor, n_workers, nsa_worker, &job);
    return PTL_OK;
}
