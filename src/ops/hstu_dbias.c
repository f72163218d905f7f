/* Gradients of the bias: dense, summed over the axes that it broadcasts, and of the two tables. The
 * order of the sums is that of the tasks; the turns are kept by hstu_backward.c. */
#include <string.h>

#include "hstu_backward.h"

bool ptl_dbias_broadcasts(const struct ptl_hstu_problem *p, const struct ptl_hstu_gradients *g) {
    return (g->dbias.batch_stride == 0 && p->n_seqs > 1) ||
           (g->dbias.head_stride == 0 && p->n_q_heads > 1);
}

/* Offset of an element of dbias: in the output, or in the plan's contiguous copy. */
static int64_t dbias_offset(const struct ptl_backward_plan *plan, const struct ptl_hstu_seq *seq,
                            int64_t head, int64_t row, int64_t column) {
    const struct ptl_hstu_gradients *g = plan->g;
    if (!plan->dbias)
        return seq->index * g->dbias.batch_stride + head * g->dbias.head_stride +
               row * g->dbias.row_stride + column;
    const int64_t *shape = g->dbias_shape;
    const int64_t b = shape[0] == 1 ? 0 : seq->index, h = shape[1] == 1 ? 0 : head;
    return ((b * shape[1] + h) * shape[2] + row) * shape[3] + column;
}

void ptl_dbias_add(const struct ptl_backward_plan *plan, const struct ptl_hstu_seq *seq,
                   int64_t head, const struct ptl_ds_tile *t, const struct ptl_hstu_stage *stage) {
    const struct ptl_kernels *k = plan->kernels;
    const struct ptl_hstu_gradients *g = plan->g;
    const int64_t n = t->end - t->begin;
    float *rows[PTL_MAX_PANEL] = {0}, beta[PTL_MAX_PANEL];
    for (int i = 0; i < t->n_rows; i++) {
        rows[i] = stage->bias_row + i * n;
        beta[i] = plan->p->beta;
    }
    k->panel_store_f32(t->ds, t->n_rows, n, beta, false, rows);
    const bool add = plan->bias_turn != NULL;
    const int64_t bytes = (int64_t)ptl_dtype_bytes(g->dbias.dtype);
    const int64_t first = g->dbias.by_key ? t->row + seq->uk - seq->uq : t->row;
    for (int i = 0; i < t->n_rows; i++) {
        const int64_t at = dbias_offset(plan, seq, head, first + i, t->begin);
        if (add) {
            float *sum = plan->dbias ? plan->dbias + at : (float *)g->dbias.data + at;
            for (int64_t j = 0; j < n; j++) sum[j] += rows[i][j];
        } else {
            ptl_narrow_rows(k, g->dbias.dtype, rows[i], 0, 1, (int)n,
                            (char *)g->dbias.data + at * bytes, 0);
        }
    }
}

/* Calls for every row of the dbias tensor: its place in the output and in a contiguous copy. */
static void each_row(const struct ptl_backward_plan *plan, bool finish) {
    const struct ptl_hstu_gradients *g = plan->g;
    const int64_t *n = g->dbias_shape, *stride = g->dbias_stride;
    const int64_t bytes = (int64_t)ptl_dtype_bytes(g->dbias.dtype);
    int64_t row = 0;
    for (int64_t b = 0; b < n[0]; b++)
        for (int64_t h = 0; h < n[1]; h++)
            for (int64_t i = 0; i < n[2]; i++, row++) {
                char *out =
                    (char *)g->dbias.data + bytes * (b * stride[0] + h * stride[1] + i * stride[2]);
                const float *sum = plan->dbias + row * n[3];
                if (!finish) memset(out, 0, (size_t)(n[3] * bytes));
                else ptl_narrow_rows(plan->kernels, g->dbias.dtype, sum, 0, 1, (int)n[3], out, 0);
            }
}

void ptl_dbias_begin(const struct ptl_backward_plan *plan) {
    const int64_t *n = plan->g->dbias_shape;
    if (!plan->g->dbias.data) return;
    if (plan->dbias) memset(plan->dbias, 0, (size_t)(n[0] * n[1] * n[2] * n[3]) * sizeof(float));
    else each_row(plan, false);
}

/* ---- Tables ---------------------------------------------------------------------------------- */

static int64_t pos_entries(const struct ptl_backward_plan *plan) {
    return plan->g->dpos ? 2 * plan->p->tables.n - 1 : 0;
}

static int64_t time_entries(const struct ptl_backward_plan *plan) {
    return plan->g->dtime ? plan->p->tables.n_thresholds + 1 : 0;
}

int64_t ptl_dtables_entries(const struct ptl_backward_plan *plan) {
    return pos_entries(plan) + time_entries(plan);
}

int64_t ptl_dtables_total(const struct ptl_backward_plan *plan) {
    const int64_t heads = plan->p->n_q_heads;
    return pos_entries(plan) * (plan->g->dpos_head_stride ? heads : 1) +
           time_entries(plan) * (plan->g->dtime_head_stride ? heads : 1);
}

void ptl_dtables_add(const struct ptl_backward_plan *plan, const struct ptl_hstu_seq *seq,
                     const struct ptl_ds_tile *t, double *partial,
                     const struct ptl_hstu_stage *stage) {
    const struct ptl_hstu_problem *p = plan->p;
    const struct ptl_kernels *k = plan->kernels;
    const int64_t n = t->end - t->begin, pos = t->row + seq->uk - seq->uq;
    if (plan->g->dpos) { /* entry N-1 + j - p - i, reversed: ascending in i */
        for (int64_t j = 0; j < n; j++) {
            double *sum = partial + p->tables.n - 1 + pos - t->begin - j;
            const float *ds = t->ds + j * k->panel;
            for (int i = 0; i < t->n_rows; i++) sum[i] += (double)ds[i];
        }
    }
    if (!plan->g->dtime) return;
    double *sums = partial + pos_entries(plan);
    float *rows[PTL_MAX_PANEL] = {0}, one[PTL_MAX_PANEL];
    struct ptl_time_run runs[PTL_MAX_KEY_TILE];
    const bool ascending = ptl_hstu_times_ascend(p, seq, t->begin, t->end);
    for (int i = 0; i < t->n_rows; i++) {
        rows[i] = stage->bias_row + i * n;
        one[i] = 1.0f;
    }
    k->panel_store_f32(t->ds, t->n_rows, n, one, false, rows);
    for (int i = 0; i < t->n_rows; i++) {
        const int n_runs =
            ptl_hstu_time_runs(p, seq, t->row + i, t->begin, t->end, ascending, runs);
        const float *ds = rows[i];
        for (int r = 0; r < n_runs; r++) { /* one addition to memory a run */
            double sum = 0.0;
            for (int32_t x = 0; x < runs[r].n; x++) sum += (double)*ds++;
            sums[runs[r].bucket] += sum;
        }
    }
}

void ptl_dtables_merge(struct ptl_backward_plan *plan, const struct ptl_hstu_seq *seq, int64_t head,
                       double *partial) {
    const struct ptl_hstu_problem *p = plan->p;
    const int64_t n_pos = pos_entries(plan), n_time = time_entries(plan);
    const int64_t pos_heads = plan->g->dpos_head_stride ? p->n_q_heads : 1;
    double *pos = plan->tables + (plan->g->dpos_head_stride ? head * n_pos : 0);
    double *time =
        plan->tables + n_pos * pos_heads + (plan->g->dtime_head_stride ? head * n_time : 0);
    if (n_pos) { /* the entries that this sequence can touch */
        const int64_t longest = seq->uq > seq->uk ? seq->uq : seq->uk;
        for (int64_t x = p->tables.n - longest; x < p->tables.n - 1 + longest; x++) {
            pos[x] += partial[x];
            partial[x] = 0.0;
        }
    }
    for (int64_t x = 0; x < n_time; x++) {
        time[x] += partial[n_pos + x];
        partial[n_pos + x] = 0.0;
    }
}

void ptl_dbias_finish(const struct ptl_backward_plan *plan) {
    const struct ptl_hstu_gradients *g = plan->g;
    const double beta = (double)plan->p->beta, *sum = plan->tables;
    if (plan->dbias) each_row(plan, true);
    const int64_t n_pos = pos_entries(plan), n_time = time_entries(plan);
    const int64_t heads = plan->p->n_q_heads;
    for (int64_t h = 0; n_pos && h < (g->dpos_head_stride ? heads : 1); h++, sum += n_pos)
        for (int64_t x = 0; x < n_pos; x++)
            g->dpos[h * g->dpos_head_stride + x] = (float)(beta * sum[n_pos - 1 - x]);
    for (int64_t h = 0; n_time && h < (g->dtime_head_stride ? heads : 1); h++, sum += n_time)
        for (int64_t x = 0; x < n_time; x++)
            g->dtime[h * g->dtime_head_stride + x] = (float)(beta * sum[x]);
}
