/* ptl_hstu_kv_append: checks, then a copy of rows shared out among the threads. */
#include <inttypes.h>
#include <stdatomic.h>
#include <string.h>

#include "../core/message.h"
#include "../ops/hstu.h"
#include "check.h"

/* A thread is worth waking for this many bytes; a worker draws rows worth about as many. */
enum { GRAIN_BYTES = 256 << 10 };

struct append_job {
    struct ptl_rows k, v, k_pages, v_pages;
    struct ptl_index offsets, targets, cached, page_offsets, page_ids;
    int64_t n_seqs, n_heads, page_size, dqk, dv;
    int64_t n_rows, rows_per_draw;
    _Atomic int64_t drawn;
};

void ptl_hstu_kv_append_params_init(struct ptl_hstu_kv_append_params *params) {
    if (!params) return;
    memset(params, 0, sizeof *params);
    params->struct_size = sizeof *params;
}

/* New tokens of a sequence. */
static int64_t n_new(const struct append_job *job, int64_t b) {
    return ptl_index_at(&job->offsets, b + 1) - ptl_index_at(&job->offsets, b) -
           ptl_index_at(&job->targets, b);
}

static enum ptl_status check_arrays(const struct ptl_hstu_kv_append_params *a) {
    const struct ptl_tensor *t[4] = {&a->k, &a->v, &a->k_pages, &a->v_pages};
    static const char *const names[4] = {"k", "v", "k_pages", "v_pages"};
    for (int i = 0; i < 4; i++) {
        const int n_axes = i < 2 ? 3 : 4;
        TRY(ptl_check_required(names[i], t[i]));
        TRY(ptl_check_layout(names[i], t[i], n_axes, n_axes));
        if (t[i]->dtype != PTL_F32 && t[i]->dtype != PTL_F16 && t[i]->dtype != PTL_BF16)
            return ptl_fail(PTL_ERR_DTYPE, "%s: %s, expected f32, f16 or bf16", names[i],
                            ptl_dtype_name(t[i]->dtype));
        if (t[i]->dtype != a->k.dtype)
            return ptl_fail(PTL_ERR_DTYPE, "%s: %s, but k is %s; all must be alike", names[i],
                            ptl_dtype_name(t[i]->dtype), ptl_dtype_name(a->k.dtype));
        TRY(ptl_check_extent(names[i], t[i], n_axes - 2, a->k.shape[1], "heads of k"));
    }
    TRY(ptl_check_extent("v", &a->v, 0, a->k.shape[0], "rows of k"));
    TRY(ptl_check_extent("k_pages", &a->k_pages, 3, a->k.shape[2], "head size of k"));
    TRY(ptl_check_extent("v_pages", &a->v_pages, 3, a->v.shape[2], "head size of v"));
    TRY(ptl_check_extent("v_pages", &a->v_pages, 0, a->k_pages.shape[0], "pages of k_pages"));
    TRY(ptl_check_extent("v_pages", &a->v_pages, 1, a->k_pages.shape[1], "page size of k_pages"));
    if (a->k_pages.shape[1] < 1)
        return ptl_fail(PTL_ERR_SHAPE, "k_pages: page size 0, expected 1 or more");
    for (int i = 2; i < 4; i++) {
        TRY(ptl_check_no_self_overlap(names[i], t[i]));
        for (int j = 0; j < i; j++) TRY(ptl_check_no_overlap(names[i], t[i], names[j], t[j]));
    }
    return PTL_OK;
}

static enum ptl_status check_lists(const struct ptl_hstu_kv_append_params *a,
                                   struct append_job *job) {
    enum ptl_dtype type = 0;
    const struct ptl_tensor *t[4] = {&a->seq_offsets, &a->n_cached, &a->page_offsets, &a->page_ids};
    static const char *const names[4] = {"seq_offsets", "n_cached", "page_offsets", "page_ids"};
    for (int i = 0; i < 4; i++) {
        TRY(ptl_check_required(names[i], t[i]));
        TRY(ptl_check_index(names[i], t[i], 1, 1, &type));
    }
    TRY(ptl_check_offsets("seq_offsets", &a->seq_offsets, a->k.shape[0]));
    job->n_seqs = a->seq_offsets.shape[0] - 1;
    TRY(ptl_check_extent("n_cached", &a->n_cached, 0, job->n_seqs, "number of sequences"));
    TRY(ptl_check_extent("page_offsets", &a->page_offsets, 0, job->n_seqs + 1,
                         "entries of seq_offsets"));
    enum ptl_status status =
        ptl_check_offsets("page_offsets", &a->page_offsets, a->page_ids.shape[0]);
    if (status != PTL_OK) return status == PTL_ERR_SEQLEN ? PTL_ERR_TABLE : status;
    TRY(ptl_check_counts("num_targets", &a->num_targets, job->n_seqs, &type));
    TRY(ptl_check_counts("n_cached", &a->n_cached, job->n_seqs, &type));
    job->offsets = ptl_index_of(&a->seq_offsets);
    job->targets = ptl_index_of(&a->num_targets);
    job->cached = ptl_index_of(&a->n_cached);
    job->page_offsets = ptl_index_of(&a->page_offsets);
    job->page_ids = ptl_index_of(&a->page_ids);

    const int64_t page_size = a->k_pages.shape[1];
    for (int64_t b = 0; b < job->n_seqs; b++) {
        const int64_t cached = ptl_index_at(&job->cached, b), rows = n_new(job, b);
        const int64_t first = ptl_index_at(&job->page_offsets, b);
        const int64_t n_pages = ptl_index_at(&job->page_offsets, b + 1) - first;
        if (rows < 0)
            return ptl_fail(PTL_ERR_SEQLEN,
                            "num_targets: %" PRId64 " in sequence %" PRId64
                            ", expected 0 to its %" PRId64 " rows",
                            ptl_index_at(&job->targets, b), b,
                            rows + ptl_index_at(&job->targets, b));
        if (rows == 0) continue;
        if (cached > INT64_MAX - rows || (cached + rows - 1) / page_size >= n_pages)
            return ptl_fail(PTL_ERR_TABLE,
                            "page_ids: %" PRId64 " pages for sequence %" PRId64
                            ", too few for %" PRId64 " cached and %" PRId64 " new tokens",
                            n_pages, b, cached, rows);
        for (int64_t i = cached / page_size; i <= (cached + rows - 1) / page_size; i++) {
            const int64_t id = ptl_index_at(&job->page_ids, first + i);
            if (id < 0 || id >= a->k_pages.shape[0])
                return ptl_fail(PTL_ERR_TABLE,
                                "page_ids: entry %" PRId64 " is %" PRId64
                                ", expected 0 to %" PRId64,
                                first + i, id, a->k_pages.shape[0] - 1);
        }
    }
    return PTL_OK;
}

static void copy_token(const struct append_job *job, int64_t b, int64_t x) {
    const int64_t token = ptl_index_at(&job->cached, b) + x, slot = token % job->page_size;
    const int64_t row = ptl_index_at(&job->offsets, b) + x;
    const int64_t at = ptl_index_at(&job->page_offsets, b) + token / job->page_size;
    const int64_t page = ptl_index_at(&job->page_ids, at);
    for (int64_t h = 0; h < job->n_heads; h++) {
        memcpy(ptl_rows_at(&job->k_pages, page, slot, h), ptl_rows_at(&job->k, 0, row, h),
               (size_t)(job->dqk * job->k.elem_bytes));
        memcpy(ptl_rows_at(&job->v_pages, page, slot, h), ptl_rows_at(&job->v, 0, row, h),
               (size_t)(job->dv * job->v.elem_bytes));
    }
}

/* Draws ranges of rows of k; rows that are targets are passed over. */
static void append_worker(void *arg, int slot) {
    struct append_job *job = arg;
    (void)slot;
    for (;;) {
        int64_t row = atomic_fetch_add(&job->drawn, job->rows_per_draw);
        if (row >= job->n_rows) return;
        const int64_t end =
            row + job->rows_per_draw < job->n_rows ? row + job->rows_per_draw : job->n_rows;
        int64_t low = 0, high = job->n_seqs - 1; /* the sequence that holds the row */
        while (low < high) {
            const int64_t mid = (low + high) / 2;
            if (ptl_index_at(&job->offsets, mid + 1) > row) high = mid;
            else low = mid + 1;
        }
        for (int64_t b = low; row < end; row++) {
            while (ptl_index_at(&job->offsets, b + 1) <= row) b++;
            const int64_t x = row - ptl_index_at(&job->offsets, b);
            if (x < n_new(job, b)) copy_token(job, b, x);
        }
    }
}

enum ptl_status ptl_hstu_kv_append(struct ptl_context *ctx,
                                   const struct ptl_hstu_kv_append_params *params) {
    struct append_job job = {0};
    if (!ctx) return ptl_fail(PTL_ERR_NULL, "ctx: NULL, expected a context");
    if (!params) return ptl_fail(PTL_ERR_NULL, "params: NULL, expected arguments");
    if (params->struct_size != sizeof *params)
        return ptl_fail(PTL_ERR_PARAM,
                        "params.struct_size: %zu, expected %zu; use ptl_hstu_kv_append_params_init",
                        params->struct_size, sizeof *params);
    TRY(check_arrays(params));
    TRY(check_lists(params, &job));
    job.k = ptl_rows_of(&params->k);
    job.v = ptl_rows_of(&params->v);
    job.k_pages = ptl_rows_of(&params->k_pages);
    job.v_pages = ptl_rows_of(&params->v_pages);
    job.n_heads = params->k.shape[1];
    job.page_size = params->k_pages.shape[1];
    job.dqk = params->k.shape[2];
    job.dv = params->v.shape[2];
    job.n_rows = ptl_index_at(&job.offsets, job.n_seqs);
    const int64_t row_bytes = job.n_heads * (job.dqk + job.dv) * job.k.elem_bytes;
    job.rows_per_draw = row_bytes > 0 && row_bytes < GRAIN_BYTES ? GRAIN_BYTES / row_bytes : 1;

    pthread_mutex_lock(&ctx->lock);
    int64_t n_workers = job.n_rows / job.rows_per_draw;
    if (n_workers > ctx->executor.n_threads) n_workers = ctx->executor.n_threads;
    if (job.n_rows > 0)
        ptl_executor_run(&ctx->executor, n_workers < 1 ? 1 : (int)n_workers, append_worker, &job);
    pthread_mutex_unlock(&ctx->lock);
    return PTL_OK;
}
