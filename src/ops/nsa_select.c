/* Selection of blocks by score: a rank for each as one number, and a partial selection. */
#include <math.h>
#include <string.h>

#include "../core/arith.h"
#include "nsa.h"
#include "schedule.h"

/* Larger is earlier: forced, then the score (NaN as -inf), then the smaller number. 1 + 32 + 31
 * bits. */
static uint64_t rank_of(float score, int64_t j, bool forced) {
    uint32_t bits;
    score = isnan(score) ? -INFINITY : score + 0.0f; /* -0 is 0 */
    memcpy(&bits, &score, 4);
    bits = bits >> 31 ? ~bits : bits | 0x80000000u; /* ascending as integers */
    return (uint64_t)forced << 63 | (uint64_t)bits << 31 | (uint64_t)(0x7fffffff - j);
}

static int64_t number_of(uint64_t rank) {
    return 0x7fffffff - (int64_t)(rank & 0x7fffffff);
}

static void swap(uint64_t *a, uint64_t *b) {
    const uint64_t x = *a;
    *a = *b;
    *b = x;
}

/* The k largest of n different numbers to the front, in no order, 0 < k < n: quickselect with the
 * median of three. */
static void largest_first(uint64_t *x, int64_t n, int64_t k) {
    int64_t low = 0, high = n - 1;
    while (low < high) {
        const int64_t mid = low + (high - low) / 2;
        if (x[mid] > x[low]) swap(&x[mid], &x[low]);
        if (x[high] > x[low]) swap(&x[high], &x[low]);
        if (x[high] > x[mid]) swap(&x[high], &x[mid]);
        const uint64_t pivot = x[mid];
        int64_t i = low, j = high;
        while (i <= j) {
            while (x[i] > pivot) i++;
            while (x[j] < pivot) j--;
            if (i <= j) swap(&x[i++], &x[j--]);
        }
        if (k - 1 <= j) high = j;
        else if (k - 1 >= i) low = i;
        else return;
    }
}

/* Heapsort, to descending ranks: few numbers, and no worst case. */
static void sift(uint64_t *x, int64_t i, int64_t n) {
    for (int64_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && x[child + 1] < x[child]) child++;
        if (x[i] <= x[child]) return;
        swap(&x[i], &x[child]);
    }
}

static void sort_descending(uint64_t *x, int64_t n) {
    for (int64_t i = n / 2 - 1; i >= 0; i--) sift(x, i, n);
    for (int64_t end = n - 1; end > 0; end--) {
        swap(&x[0], &x[end]);
        sift(x, 0, end);
    }
}

int ptl_nsa_select_row(const struct ptl_nsa_problem *p, const float *score, int64_t t,
                       int64_t count, uint64_t *keys, int32_t *idx) {
    const int64_t own = t / p->select_block, n = own + 1;
    const int64_t k = ptl_max64(0, ptl_min64(ptl_min64(p->topk, n), count));
    for (int64_t j = 0; j < n; j++)
        keys[j] = rank_of(score[j], j, j < p->n_init || j > own - p->n_local);
    if (k > 0 && k < n) largest_first(keys, n, k);
    if (p->order == PTL_NSA_ORDER_INDEX) /* by number alone: descending ranks, ascending numbers */
        for (int64_t e = 0; e < k; e++) keys[e] &= 0x7fffffff;
    sort_descending(keys, k);
    for (int64_t e = 0; e < p->topk; e++) idx[e] = e < k ? (int32_t)number_of(keys[e]) : -1;
    return (int)k;
}

/* ---- Selection alone ------------------------------------------------------------------------- */

struct select_job {
    const struct ptl_nsa_problem *p;
    char *scratch;
    size_t scratch_bytes;
    int64_t n_rows;
    _Atomic int64_t drawn;
};

enum { ROWS = 16 }; /* drawn at a time */

static void select_worker(void *data, int slot) {
    struct select_job *job = data;
    const struct ptl_nsa_problem *p = job->p;
    uint64_t *keys = (uint64_t *)(job->scratch + (size_t)slot * job->scratch_bytes);
    int32_t *idx = (int32_t *)(keys + p->n_scores);
    int64_t seq_index = 0, before = 0; /* rows of the sequences before */
    for (;;) {
        const int64_t begin =
            ROWS * atomic_fetch_add_explicit(&job->drawn, 1, memory_order_relaxed);
        if (begin >= job->n_rows) return;
        for (int64_t i = begin; i < ptl_min64(begin + ROWS, job->n_rows); i++) {
            struct ptl_nsa_seq seq = ptl_nsa_sequence(p, seq_index);
            while (i - before >= seq.n_q) {
                before += seq.n_q;
                seq = ptl_nsa_sequence(p, ++seq_index);
            }
            const int64_t row = i - before, entry = ptl_nsa_row_number(p, &seq, row);
            for (int64_t h = 0; h < p->n_k_heads; h++) {
                const float *score = ptl_rows_at(&p->importance, seq.b, seq.q_row + row, h);
                const int64_t most =
                    p->count.data ? ptl_index_at(&p->count, entry * p->n_k_heads + h) : p->topk;
                const int n =
                    ptl_nsa_select_row(p, score, ptl_nsa_position(&seq, row), most, keys, idx);
                if (p->idx.data)
                    memcpy(ptl_rows_at(&p->idx, seq.b, seq.q_row + row, h), idx,
                           (size_t)p->topk * sizeof *idx);
                if (p->nsel.data) *(int32_t *)ptl_rows_at(&p->nsel, seq.b, seq.q_row + row, h) = n;
            }
        }
    }
}

enum ptl_status ptl_nsa_run_select(struct ptl_context *ctx, const struct ptl_nsa_problem *p) {
    struct select_job job = {.p = p};
    for (int64_t s = 0; s < p->n_seqs; s++) job.n_rows += ptl_nsa_sequence(p, s).n_q;
    if (job.n_rows == 0 || p->n_k_heads == 0) return PTL_OK;
    const int64_t work =
        job.n_rows * p->n_k_heads * (p->n_scores + p->topk) * 8 / PTL_WORTH_A_THREAD;
    const int n_workers = (int)ptl_max64(1, ptl_min64(ctx->executor.n_threads, work));
    job.scratch_bytes = ptl_round_up(
        (size_t)p->n_scores * sizeof(uint64_t) + (size_t)p->topk * sizeof(int32_t), 64);
    job.scratch = ptl_arena_reserve(&ctx->scratch, (size_t)n_workers * job.scratch_bytes);
    if (!job.scratch) return PTL_ERR_NOMEM;
    ptl_executor_run(&ctx->executor, n_workers, select_worker, &job);
    return PTL_OK;
}
