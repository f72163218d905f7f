/* Gates: the three branches of a row become one. */
#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "../core/arith.h"
#include "nsa.h"
#include "schedule.h"

void ptl_nsa_combine_row(const struct ptl_nsa_problem *p, const struct ptl_kernels *k,
                         const void *gates, const float *const *branches, float *out) {
    float g[3], weight[3];
    const float *rows[3];
    int n = 0;
    ptl_widen_rows(k, p->gates_dtype, gates, 0, 1, 3, g, 0);
    for (int i = 0; i < 3; i++) {
        if (!branches[i]) continue;
        weight[n] = p->gate_sigmoid ? 1.0f / (1.0f + expf(-g[i])) : g[i];
        rows[n++] = branches[i];
    }
    k->weigh_rows_f32(rows, weight, n, p->dv, out);
}

/* ---- The operator alone ---------------------------------------------------------------------- */

struct combine_job {
    const struct ptl_nsa_problem *p;
    const struct ptl_kernels *k;
    char *scratch;
    size_t scratch_bytes;
    int64_t n_rows;
    _Atomic int64_t drawn;
};

enum { ROWS = 8 }; /* drawn at a time */

static void combine_rows(const struct combine_job *job, int64_t row, float *scratch) {
    const struct ptl_nsa_problem *p = job->p;
    const struct ptl_rows *from[3] = {&p->out_cmp, &p->out_slc, &p->out_swa};
    const int64_t b = p->dense ? row / p->q_rows : 0, x = p->dense ? row % p->q_rows : row;
    for (int64_t h = 0; h < p->n_q_heads; h++) {
        const float *rows[3] = {NULL};
        for (int i = 0; i < 3; i++) {
            if (!from[i]->data) continue;
            float *to = scratch + (i + 1) * ptl_staged_stride(p->dv);
            ptl_widen_rows(job->k, p->dtype, ptl_rows_at(from[i], b, x, h), 0, 1, p->dv, to, 0);
            rows[i] = to;
        }
        ptl_nsa_combine_row(p, job->k, ptl_rows_at(&p->gates, b, x, h), rows, scratch);
        ptl_narrow_rows(job->k, p->dtype, scratch, 0, 1, p->dv, ptl_rows_at(&p->out, b, x, h), 0);
    }
}

static void combine_worker(void *data, int slot) {
    struct combine_job *job = data;
    float *scratch = (float *)(job->scratch + (size_t)slot * job->scratch_bytes);
    for (;;) {
        const int64_t row = ROWS * atomic_fetch_add_explicit(&job->drawn, 1, memory_order_relaxed);
        if (row >= job->n_rows) return;
        for (int64_t i = row; i < ptl_min64(row + ROWS, job->n_rows); i++)
            combine_rows(job, i, scratch);
    }
}

enum ptl_status ptl_nsa_run_combine(struct ptl_context *ctx, const struct ptl_nsa_problem *p) {
    struct combine_job job = {.p = p, .k = ctx->kernels};
    job.n_rows = p->dense ? p->n_seqs * p->q_rows : p->q_rows;
    if (job.n_rows == 0) return PTL_OK;
    const int64_t work = job.n_rows * p->n_q_heads * p->dv * 8 / PTL_WORTH_A_THREAD;
    const int n_workers = (int)ptl_max64(1, ptl_min64(ctx->executor.n_threads, work));
    job.scratch_bytes = ptl_round_up(4 * (size_t)ptl_staged_stride(p->dv) * sizeof(float), 64);
    job.scratch = ptl_arena_reserve(&ctx->scratch, (size_t)n_workers * job.scratch_bytes);
    if (!job.scratch) return PTL_ERR_NOMEM;
    ptl_executor_run(&ctx->executor, n_workers, combine_worker, &job);
    return PTL_OK;
}
