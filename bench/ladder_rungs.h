/* What the ladder's own rungs share: the problem as they walk it, threads, scratch memory, and
 * the products with their prefetch. The order of the climb, its clock and its checks are
 * ladder_hstu.c. */
#ifndef PTL_BENCH_LADDER_RUNGS_H
#define PTL_BENCH_LADDER_RUNGS_H

#include <stdbool.h>

#include "../src/core/context.h"
#include "../src/ops/schedule.h"
#include "ladder_hstu.h"

/* As in the library: rows that share the way of a key tile from memory, and keys or columns of a
 * product between two prefetches. */
enum { BLOCK_ROWS = 384, STEP = 24 };

/* A batch of sequences, padded to n rows each. Tensors are [n_seqs, n, n_heads, dim]. */
struct padded {
    int64_t first_seq, n_seqs, n;
    int64_t n_panels; /* of one sequence and head */
    float *q, *k, *v, *out;
    float *mask, *scores; /* [n_seqs, n_heads, n_panels, n, panel] */
};

/* The memory of q, k, v, out and of mask, scores: that of the largest batch, kept for the
 * others. */
struct padded_memory {
    size_t row_floats, score_floats;
};

struct ladder {
    const struct ladder_problem *p;
    const struct ladder_limits *limits;
    struct ladder_result *result;
    const struct ptl_context_options *options;
    struct ptl_context *ctx; /* kernels and threads of our own rungs */
    const struct ptl_kernels *kernels;
    int n_threads;
    int64_t row_floats; /* from one row of a sequence to the next */
    int64_t n_seqs;     /* that take part */
    char *scratch;      /* slot_bytes for each thread */
    size_t slot_bytes;
    struct padded batch;
    struct padded_memory memory;
    float *out;               /* of the jagged rung */
    float *other_out;         /* of the pipelined rung */
    float largest_out;        /* |out| */
    struct ptl_block *blocks; /* of the pipelined rung */
    struct sample *samples;   /* rows known in double: */
    double *expected;         /* [sampled_rows, dim], from these: */
    struct ptl_hstu_params expect;
    double largest_expected;
};

/* ---- Padded rungs: ladder_padded.c ----------------------------------------------------------- */

/* The longest of n_seqs sequences; the scores of as many padded to n. */
int64_t ladder_longest(const struct ladder *l, int64_t first, int64_t n_seqs);
size_t ladder_score_floats(const struct ladder *l, int64_t n_seqs, int64_t n);

/* If there were n_batches: bytes of scores and mask of the largest, pairs of all padded squares. */
size_t ladder_largest_batch(const struct ladder *l, int64_t n_batches);
double ladder_padded_pairs(const struct ladder *l, int64_t n_batches);

/* Memory for any of the result->n_batches, but for the scores: those belong to the naive rung, and
 * are mapped and touched by ladder_open_scores. PTL_ERR_NOMEM. */
enum ptl_status ladder_open_batches(struct ladder *l);
enum ptl_status ladder_open_scores(struct ladder *l);
void ladder_close_batches(struct ladder *l);

/* Makes batch i the current one; fills it: rows, padding, mask. */
void ladder_aim_at_batch(struct ladder *l, int64_t i);
void ladder_fill_batch(struct ladder *l);
size_t ladder_batch_floats(const struct ladder *l); /* of its q; k, v and out are as large */

void ladder_run_naive(struct ladder *l);
void ladder_run_fused(struct ladder *l);

/* ---- The pipelined rung: ladder_pipelined.c -------------------------------------------------- */

int64_t ladder_count_blocks(const struct ladder *l); /* entries of l->blocks */
void ladder_run_pipelined(struct ladder *l);

/* ---- Shared: ladder_rungs.c ------------------------------------------------------------------ */

/* Calls fn for every task, on all threads of the context, drawn from one counter. */
typedef void (*ladder_draw_fn)(void *job, int64_t task, int slot);
void ladder_draw(struct ptl_context *ctx, ladder_draw_fn fn, void *job, int64_t n_tasks);

/* One task of a sweep, with the scratch memory of its thread. */
typedef void (*ladder_task_fn)(struct ladder *l, int64_t task, char *scratch);

/* Runs all tasks on all threads, drawn from one counter. */
void ladder_sweep(struct ladder *l, ladder_task_fn fn, int64_t n_tasks);

/* The scratch memory of a thread: the panels of a block, three tiles of scores and their masks. */
struct scratch {
    float *q_panels, *o_panels, *s[3];
    uint64_t *bits[3];
};

size_t ladder_scratch_bytes(const struct ladder *l);
struct scratch ladder_scratch_at(const struct ladder *l, char *memory);
size_t ladder_panel_floats(const struct ladder *l); /* of one panel of q or of out */

/* Large tensors: zeros on huge pages. NULL: no memory. */
float *ladder_map(size_t n_floats);
void ladder_unmap(float *p, size_t n_floats);

/* Rows that are needed next, to be prefetched a few at a time, as the library does. */
struct ahead {
    const float *x[4]; /* the first row of up to four arrays; NULL: none */
    int64_t n_rows, part, n_parts;
};

/* The keys or values after the tile at j, of `end`; k or v may be NULL. */
struct ahead ladder_ahead(const struct ladder *l, const float *k, const float *v, int64_t j,
                          int64_t end, int64_t n_parts);
void ladder_prefetch(const struct ladder *l, struct ahead *a);

/* The products of one tile; ladder_qk and ladder_pv prefetch a part every STEP keys or columns. */
void ladder_qk(const struct ladder *l, int nv, const float *q_panel, const float *k, int n_keys,
               float *s, struct ahead *ahead);
void ladder_pv(const struct ladder *l, int nv, const float *s, const float *v, int n_keys,
               float *o_panel, bool first, struct ahead *ahead);

/* n columns of the PV product, from where v and o_panel point. */
void ladder_pv_columns(const struct ladder *l, int nv, const float *s, const float *v, int n_keys,
                       int n, float *o_panel, bool first);

static inline int64_t min64(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static inline int64_t steps(int64_t n, int64_t step) {
    return (n + step - 1) / step;
}

static inline size_t round_up(size_t n, size_t unit) {
    return (n + unit - 1) / unit * unit;
}

#endif
