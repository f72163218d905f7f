/* Compressed blocks of rows, and appending rows to a cache: weighted sums of a few rows each,
 * shared out among the workers. */
#include <stdatomic.h>
#include <string.h>

#include "../core/arith.h"
#include "nsa.h"
#include "schedule.h"

enum { CHUNK = 64 }; /* rows or blocks of one sequence and head that are drawn together */

struct compression_job {
    const struct ptl_nsa_compression *c;
    const struct ptl_kernels *k;
    int64_t *first_chunk; /* of every sequence, heads counted; n_seqs + 1 */
    int64_t chunk;
    struct ptl_index packed; /* offsets of packed blocks */
    char *scratch;
    size_t scratch_bytes;
    _Atomic int64_t drawn;
};

struct compression_scratch {
    const float **rows; /* block + 1 */
    float *weights;     /* block + 1 */
    float *pe;          /* the weighted sum of pe */
    float *out;
    float *wide; /* halves: block rows */
};

static struct compression_scratch scratch_at(const struct ptl_nsa_compression *c, char *memory,
                                             size_t *bytes) {
    const size_t n = (size_t)c->block + 1, stride = (size_t)ptl_staged_stride(c->dim);
    struct ptl_pieces m = {memory, 0};
    struct compression_scratch s;
    s.rows = ptl_take(&m, n * sizeof *s.rows);
    s.weights = ptl_take(&m, n * sizeof *s.weights);
    s.pe = ptl_take(&m, stride * sizeof *s.pe);
    s.out = ptl_take(&m, stride * sizeof *s.out);
    const bool halves = c->dtype != PTL_F32 || (c->pe.data && c->pe_dtype != PTL_F32);
    s.wide = ptl_take(&m, halves ? n * stride * sizeof *s.wide : 0);
    *bytes = m.used;
    return s;
}

/* ---- Rows ------------------------------------------------------------------------------------ */

static int64_t n_new_rows(const struct ptl_nsa_compression *c, int64_t b) {
    return ptl_nsa_len(c, b) - ptl_index_at(&c->lens_old, b);
}

static int64_t n_new_blocks(const struct ptl_nsa_compression *c, int64_t b) {
    return ptl_nsa_blocks(c, b) - ptl_nsa_blocks_old(c, b);
}

static const void *row_of(const struct ptl_nsa_compression *c, int64_t b, int64_t row,
                          int64_t head) {
    return ptl_nsa_store_at(&c->from, &c->from.k, b, c->ring ? row % c->block : row, head);
}

static void copy_row(const struct ptl_nsa_compression *c, int64_t b, int64_t row, int64_t head) {
    const int64_t x = row - ptl_index_at(&c->lens_old, b); /* among the new ones */
    const void *from = c->offsets_rows.data
                           ? ptl_rows_at(&c->rows, 0, ptl_index_at(&c->offsets_rows, b) + x, head)
                           : ptl_rows_at(&c->rows, b, c->dense_rows - n_new_rows(c, b) + x, head);
    memcpy((void *)row_of(c, b, row, head), from, (size_t)(c->dim * c->from.k.elem_bytes));
}

/* ---- Blocks ---------------------------------------------------------------------------------- */

/* Weights of a head, and what pe adds to every block. */
static void begin_head(const struct compression_job *job, const struct compression_scratch *s,
                       int64_t head) {
    const struct ptl_nsa_compression *c = job->c;
    const int64_t stride = ptl_staged_stride(c->dim);
    for (int64_t r = 0; r < c->block; r++) {
        s->weights[r] = 1.0f / (float)c->block;
        if (c->w.data)
            ptl_widen_rows(job->k, c->w_dtype, ptl_rows_at(&c->w, 0, r, head), 0, 1, 1,
                           &s->weights[r], 0);
    }
    if (!c->pe.data) return;
    for (int64_t r = 0; r < c->block; r++) {
        s->rows[r] = ptl_rows_at(&c->pe, 0, r, head);
        if (c->pe_dtype == PTL_F32) continue;
        ptl_widen_rows(job->k, c->pe_dtype, s->rows[r], 0, 1, c->dim, s->wide + r * stride, 0);
        s->rows[r] = s->wide + r * stride;
    }
    job->k->weigh_rows_f32(s->rows, s->weights, (int)c->block, c->dim, s->pe);
}

static void *place_of(const struct compression_job *job, int64_t b, int64_t i, int64_t head) {
    const struct ptl_nsa_compression *c = job->c;
    if (c->slots.data) {
        const int64_t j = i - ptl_nsa_blocks_old(c, b);
        const int64_t slot = ptl_index_at(&c->slots, b * c->slots_width + j);
        return slot < 0 ? NULL
                        : ptl_rows_at(&c->to.k, slot / c->slots_page, slot % c->slots_page, head);
    }
    if (c->packed) return ptl_rows_at(&c->to.k, 0, ptl_index_at(&job->packed, b) + i, head);
    return (void *)ptl_nsa_store_at(&c->to, &c->to.k, b, i, head);
}

static void compress_block(const struct compression_job *job, const struct compression_scratch *s,
                           int64_t b, int64_t i, int64_t head) {
    const struct ptl_nsa_compression *c = job->c;
    const int64_t stride = ptl_staged_stride(c->dim);
    int n = (int)c->block;
    void *to = place_of(job, b, i, head);
    if (!to) return;
    for (int r = 0; r < n; r++) {
        s->rows[r] = row_of(c, b, i * c->stride + r, head);
        if (c->dtype == PTL_F32) continue;
        ptl_widen_rows(job->k, c->dtype, s->rows[r], 0, 1, c->dim, s->wide + r * stride, 0);
        s->rows[r] = s->wide + r * stride;
    }
    if (c->pe.data) {
        s->rows[n] = s->pe;
        s->weights[n++] = 1.0f;
    }
    job->k->weigh_rows_f32(s->rows, s->weights, n, c->dim, s->out);
    ptl_narrow_rows(job->k, c->dtype, s->out, 0, 1, c->dim, to, 0);
}

/* ---- Workers --------------------------------------------------------------------------------- */

/* The next chunk [*begin, *end) of the new rows or blocks of a sequence and head. */
static bool draw_chunk(struct compression_job *job,
                       int64_t (*count)(const struct ptl_nsa_compression *, int64_t), int64_t *b,
                       int64_t *head, int64_t *begin, int64_t *end) {
    const struct ptl_nsa_compression *c = job->c;
    const int64_t x = atomic_fetch_add_explicit(&job->drawn, 1, memory_order_relaxed);
    int64_t low = 0, high = c->n_seqs - 1;
    if (x >= job->first_chunk[c->n_seqs]) return false;
    while (low < high) {
        const int64_t mid = (low + high) / 2;
        if (job->first_chunk[mid + 1] > x) high = mid;
        else low = mid + 1;
    }
    *b = low;
    *head = (x - job->first_chunk[low]) % c->n_heads;
    *begin = (x - job->first_chunk[low]) / c->n_heads * job->chunk;
    *end = ptl_min64(*begin + job->chunk, count(c, low));
    return true;
}

static void copy_worker(void *data, int slot) {
    struct compression_job *job = data;
    int64_t b, head, begin, end;
    (void)slot;
    while (draw_chunk(job, n_new_rows, &b, &head, &begin, &end))
        for (int64_t x = begin; x < end; x++)
            copy_row(job->c, b, ptl_index_at(&job->c->lens_old, b) + x, head);
}

static void block_worker(void *data, int slot) {
    struct compression_job *job = data;
    size_t unused;
    const struct compression_scratch s =
        scratch_at(job->c, job->scratch + (size_t)slot * job->scratch_bytes, &unused);
    int64_t b, head, begin, end;
    while (draw_chunk(job, n_new_blocks, &b, &head, &begin, &end)) {
        const int64_t old = ptl_nsa_blocks_old(job->c, b);
        begin_head(job, &s, head);
        for (int64_t x = begin; x < end; x++) compress_block(job, &s, b, old + x, head);
    }
}

/* A ring forgets: a block is compressed as soon as its last row has come. */
static void ring_worker(void *data, int slot) {
    struct compression_job *job = data;
    const struct ptl_nsa_compression *c = job->c;
    size_t unused;
    const struct compression_scratch s =
        scratch_at(c, job->scratch + (size_t)slot * job->scratch_bytes, &unused);
    int64_t b, head, begin, end;
    while (draw_chunk(job, n_new_rows, &b, &head, &begin, &end)) {
        begin_head(job, &s, head);
        for (int64_t row = ptl_index_at(&c->lens_old, b); row < ptl_nsa_len(c, b); row++) {
            copy_row(c, b, row, head);
            const int64_t over = row + 1 - c->block;
            if (c->to.k.data && over >= 0 && over % c->stride == 0)
                compress_block(job, &s, b, over / c->stride, head);
        }
    }
}

static void run_pass(struct ptl_context *ctx, struct compression_job *job, int64_t chunk,
                     int64_t (*count)(const struct ptl_nsa_compression *, int64_t), int64_t cost,
                     ptl_worker_fn worker) {
    const struct ptl_nsa_compression *c = job->c;
    int64_t n = 0, items = 0;
    job->chunk = chunk;
    for (int64_t b = 0; b < c->n_seqs; b++) {
        job->first_chunk[b] = n;
        n += (count(c, b) + chunk - 1) / chunk * c->n_heads;
        items += count(c, b) * c->n_heads;
    }
    job->first_chunk[c->n_seqs] = n;
    atomic_init(&job->drawn, 0);
    const int64_t worth = items * cost / PTL_WORTH_A_THREAD;
    const int64_t n_workers = ptl_min64(ptl_min64(n, ctx->executor.n_threads), worth);
    if (n > 0) ptl_executor_run(&ctx->executor, n_workers < 1 ? 1 : (int)n_workers, worker, job);
}

/* Memory of a run: chunks, packed offsets, scratch. */
static enum ptl_status reserve(struct ptl_context *ctx, struct compression_job *job) {
    const struct ptl_nsa_compression *c = job->c;
    int64_t *plan = ptl_arena_reserve(&ctx->plan, 2 * (size_t)(c->n_seqs + 1) * sizeof *plan);
    scratch_at(c, NULL, &job->scratch_bytes);
    job->scratch =
        ptl_arena_reserve(&ctx->scratch, (size_t)ctx->executor.n_threads * job->scratch_bytes);
    if (!plan || !job->scratch) return PTL_ERR_NOMEM;
    job->first_chunk = plan;
    job->packed = (struct ptl_index){plan + c->n_seqs + 1, true, 1};
    for (int64_t b = 0, n = 0; b <= c->n_seqs; b++) {
        plan[c->n_seqs + 1 + b] = n;
        if (b < c->n_seqs) n += ptl_nsa_blocks(c, b);
    }
    return PTL_OK;
}

static bool is_nothing(const struct ptl_nsa_compression *c) {
    return c->n_seqs == 0 || c->n_heads == 0;
}

enum ptl_status ptl_nsa_reserve_compression(struct ptl_context *ctx,
                                            const struct ptl_nsa_compression *c) {
    struct compression_job job = {.c = c, .k = ctx->kernels};
    return is_nothing(c) ? PTL_OK : reserve(ctx, &job);
}

enum ptl_status ptl_nsa_run_compression(struct ptl_context *ctx,
                                        const struct ptl_nsa_compression *c) {
    struct compression_job job = {.c = c, .k = ctx->kernels};
    if (is_nothing(c)) return PTL_OK;
    if (reserve(ctx, &job) != PTL_OK) return PTL_ERR_NOMEM;
    if (c->ring) {
        run_pass(ctx, &job, INT64_MAX / 2, n_new_rows, c->dim, ring_worker);
        return PTL_OK;
    }
    if (c->rows.data) run_pass(ctx, &job, CHUNK, n_new_rows, c->dim, copy_worker);
    if (c->to.k.data) run_pass(ctx, &job, CHUNK, n_new_blocks, c->dim * c->block, block_worker);
    return PTL_OK;
}
