/* What the ladder's own rungs share; see ladder_rungs.h. No rung is in here. */
#define _GNU_SOURCE
#include "ladder_rungs.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>

float *ladder_map(size_t n) {
    const size_t bytes = round_up(n * sizeof(float), 4096);
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return NULL;
#ifdef MADV_HUGEPAGE
    madvise(p, bytes, MADV_HUGEPAGE);
#endif
    return p;
}

void ladder_unmap(float *p, size_t n) {
    if (p) munmap(p, round_up(n * sizeof(float), 4096));
}

struct draw {
    ladder_draw_fn fn;
    void *job;
    int64_t n_tasks;
    _Atomic int64_t next;
};

static void draw_tasks(void *arg, int slot) {
    struct draw *d = arg;
    for (int64_t task; (task = atomic_fetch_add(&d->next, 1)) < d->n_tasks;)
        d->fn(d->job, task, slot);
}

void ladder_draw(struct ptl_context *ctx, ladder_draw_fn fn, void *job, int64_t n_tasks) {
    struct draw d = {.fn = fn, .job = job, .n_tasks = n_tasks};
    ptl_executor_run(&ctx->executor, ctx->executor.n_threads, draw_tasks, &d);
}

struct sweep {
    struct ladder *ladder;
    ladder_task_fn fn;
};

static void sweep_task(void *job, int64_t task, int slot) {
    const struct sweep *s = job;
    s->fn(s->ladder, task, s->ladder->scratch + (size_t)slot * s->ladder->slot_bytes);
}

void ladder_sweep(struct ladder *l, ladder_task_fn fn, int64_t n_tasks) {
    struct sweep s = {l, fn};
    ladder_draw(l->ctx, sweep_task, &s, n_tasks);
}

static size_t tile_floats(const struct ladder *l) {
    return (size_t)l->kernels->key_tile * (size_t)l->kernels->panel;
}

size_t ladder_panel_floats(const struct ladder *l) { /* of q and of out */
    return (size_t)l->p->dim * (size_t)l->kernels->panel;
}

static size_t max_panels(const struct ladder *l) {
    return (size_t)(BLOCK_ROWS / l->kernels->panel) + 1;
}

struct scratch ladder_scratch_at(const struct ladder *l, char *at) {
    struct scratch s;
    s.q_panels = (float *)at;
    s.o_panels = s.q_panels + max_panels(l) * ladder_panel_floats(l);
    s.s[0] = s.o_panels + max_panels(l) * ladder_panel_floats(l);
    for (int i = 1; i < 3; i++) s.s[i] = s.s[i - 1] + tile_floats(l);
    s.bits[0] = (uint64_t *)(s.s[2] + tile_floats(l));
    for (int i = 1; i < 3; i++) s.bits[i] = s.bits[i - 1] + l->kernels->key_tile;
    return s;
}

size_t ladder_scratch_bytes(const struct ladder *l) {
    return round_up((2 * max_panels(l) * ladder_panel_floats(l) + 3 * tile_floats(l)) *
                            sizeof(float) +
                        3 * (size_t)l->kernels->key_tile * sizeof(uint64_t),
                    4096) +
           64;
}

struct ahead ladder_ahead(const struct ladder *l, const float *k, const float *v, int64_t j,
                          int64_t end, int64_t n_parts) {
    const int64_t next = j + l->kernels->key_tile;
    struct ahead a = {.n_parts = n_parts};
    if (next >= end) return a;
    a.n_rows = min64(l->kernels->key_tile, end - next);
    if (k) a.x[0] = k + next * l->row_floats;
    if (v) a.x[1] = v + next * l->row_floats;
    return a;
}

void ladder_prefetch(const struct ladder *l, struct ahead *a) {
    const int64_t begin = a->part * a->n_rows / a->n_parts,
                  end = ++a->part * a->n_rows / a->n_parts;
    for (int64_t j = begin; j < end; j++)
        for (int i = 0; i < 4; i++)
            for (int d = 0; a->x[i] && d < l->p->dim; d += 16)
                __builtin_prefetch(a->x[i] + j * l->row_floats + d, 0, 2);
}

void ladder_qk(const struct ladder *l, int nv, const float *q_panel, const float *k, int n_keys,
               float *s, struct ahead *ahead) {
    for (int j = 0; j < n_keys; j += STEP) {
        ladder_prefetch(l, ahead);
        l->kernels->tile_qk_f32(nv, q_panel, k + j * l->row_floats, l->row_floats,
                                (int)min64(STEP, n_keys - j), l->p->dim, s + j * l->kernels->panel);
    }
}

void ladder_pv_columns(const struct ladder *l, int nv, const float *s, const float *v, int n_keys,
                       int n, float *o_panel, bool first) {
    l->kernels->tile_pv_f32(nv, s, v, l->row_floats, n_keys, n, o_panel, first);
}

void ladder_pv(const struct ladder *l, int nv, const float *s, const float *v, int n_keys,
               float *o_panel, bool first, struct ahead *ahead) {
    for (int d = 0; d < l->p->dim; d += STEP) {
        ladder_prefetch(l, ahead);
        ladder_pv_columns(l, nv, s, v + d, n_keys, (int)min64(STEP, l->p->dim - d),
                          o_panel + d * l->kernels->panel, first);
    }
}
