/* What lies over the pairs of a problem: dense masks, intervals, dense biases, tables and times.
 * Entries that no pair of a sequence has stay 0xff. */
#include <math.h>

#include "problem_build.h"

enum { FAR_OUT = 3 }; /* intervals reach so far outside the sequence */

static const int64_t longest_time =
    2000000; /* random times and the last threshold: a few weeks in s */

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* ---- Masks ----------------------------------------------------------------------------------- */

/* The mask of what sequence b sees, into its plane of the batch and head axes. Every nonzero
 * byte is valid, so valid ones are drawn from 1 to 255. */
static void fill_mask(struct builder *w, int64_t b, int64_t head, uint8_t *plane) {
    const struct ptl_tensor *m = &w->out->mask;
    const struct seq *s = &w->seqs[b];
    const int64_t plane_b = m->shape[0] == 1 ? 0 : b;
    for (int64_t i = 0; i < least(s->uq, m->shape[2]); i++) {
        struct random_stream stream = random_stream_at(w->line->seed, OF_MASK, plane_b, head, i);
        for (int64_t j = 0; j < least(s->uk, m->shape[3]); j++) {
            const double unit = random_unit(&stream);
            const bool valid = w->line->mask == MASK_CAUSAL ? j <= i + s->uk - s->uq
                                                            : unit < w->line->mask_density;
            plane[i * m->shape[3] + j] = valid ? (uint8_t)(1 + (int)(254.0 * unit)) : 0;
        }
    }
}

bool make_mask(struct builder *w) {
    const struct problem_line *p = w->line;
    struct ptl_hstu_params *a = w->out;
    if (p->mask != MASK_RANDOM && p->mask != MASK_CAUSAL) return true;
    const int64_t max_q = max_rows(w, false), max_k = max_rows(w, true);
    const int64_t shape[4] = {p->mask_batch, p->mask_head, max_q, max_k};
    if (!take(w, "mask", PTL_U8, 4, shape, &a->mask)) return false;
    for (int64_t b = 0; b < p->b; b++) {
        const struct seq *s = &w->seqs[b], *first = &w->seqs[0];
        if (p->mask == MASK_CAUSAL && shape[0] == 1 && s->uk - s->uq != first->uk - first->uq)
            return refuse(w->refusal,
                          "mask_batch: 1 with mask=causal, but sequences differ in keys less "
                          "queries, expected mask_batch=b");
        for (int64_t head = 0; head < shape[1]; head++) {
            const int64_t plane = (shape[0] == 1 ? 0 : b) * shape[1] + head;
            fill_mask(w, b, head, (uint8_t *)a->mask.data + plane * max_q * max_k);
        }
    }
    return true;
}

bool make_intervals(struct builder *w) {
    const struct problem_line *p = w->line;
    struct ptl_tensor *t = &w->out->intervals;
    if (p->mask != MASK_INTERVALS) return true;
    const int64_t rows = p->dense ? p->sq : w->seqs[p->b].first_q + p->pad;
    const int64_t shape[3] = {p->b, rows, 2 * p->n_intervals};
    const int ndim = p->dense ? 3 : 2;
    if (!take(w, "intervals", p->index, ndim, shape + 3 - ndim, t)) return false;
    for (int64_t b = 0; b < p->b; b++) {
        const struct seq *s = &w->seqs[b];
        for (int64_t i = 0; i < s->uq; i++) {
            struct random_stream stream = random_stream_at(p->seed, OF_INTERVALS, b, i, 0);
            const int64_t at = ((p->dense ? b * rows : s->first_q) + i) * shape[2];
            for (int64_t x = 0; x < shape[2]; x++) {
                const int64_t end = p->intervals_causal
                                        ? (x ? i + s->uk - s->uq + 1 : 0)
                                        : random_between(&stream, -FAR_OUT, s->uk + FAR_OUT);
                if (!put_index(w, "intervals", t, at + x, end)) return false;
            }
        }
    }
    return true;
}

/* ---- Biases ---------------------------------------------------------------------------------- */

bool make_bias(struct builder *w) {
    const struct problem_line *p = w->line;
    struct ptl_tensor *t = &w->out->attn_bias;
    if (!p->bias) return true;
    const bool by_key = p->bias_rows == PTL_HSTU_BIAS_KEY;
    const enum ptl_dtype dtype = p->bias_same_dtype ? p->dtype : PTL_F32;
    const int64_t shape[4] = {p->bias_batch, p->bias_head, max_rows(w, by_key), max_rows(w, true)};
    const int64_t gap = p->view == VIEW_GAP ? GAP : 0;
    const int64_t room[4] = {shape[0], shape[1], shape[2], shape[3] + gap};
    if (!take(w, "attn_bias", dtype, 4, room, t)) return false;
    t->shape[3] = shape[3]; /* strides stay those with the gap */
    for (int64_t b = 0; b < p->b; b++)
        for (int64_t head = 0; head < shape[1]; head++) {
            const struct seq *s = &w->seqs[b];
            const int64_t plane_b = shape[0] == 1 ? 0 : b, first = by_key ? s->uk - s->uq : 0;
            for (int64_t row = first; row < first + s->uq; row++) {
                struct random_stream stream =
                    random_stream_at(p->seed, OF_BIAS, plane_b, head, row);
                fill(&stream, t, plane_b * t->stride[0] + head * t->stride[1] + row * t->stride[2],
                     s->uk);
            }
        }
    return true;
}

static bool make_table(struct builder *w, const char *name, enum purpose purpose, int64_t tables,
                       int64_t entries, struct ptl_tensor *t) {
    const int64_t shape[2] = {tables, entries};
    const int ndim = tables == 1 ? 1 : 2;
    if (!take(w, name, PTL_F32, ndim, shape + 2 - ndim, t)) return false;
    for (int64_t head = 0; head < tables; head++) {
        struct random_stream s = random_stream_at(w->line->seed, purpose, head, 0, 0);
        fill(&s, t, head * entries, entries);
    }
    return true;
}

/* Ascending, from below 1 (twice, when there are many) to longest_time. */
static bool make_thresholds(struct builder *w) {
    struct ptl_tensor *t = &w->out->time_thresholds;
    const int64_t n = w->line->thresholds;
    if (!take(w, "time_thresholds", PTL_I64, 1, &n, t)) return false;
    for (int64_t i = 0; i < n; i++)
        ((int64_t *)t->data)[i] =
            (int64_t)exp(log((double)longest_time) * (double)(i + 1) / (double)(n + 1));
    return true;
}

/* Of every key. Ascending ones come in bursts, some in the same second. */
static bool make_times(struct builder *w) {
    const struct problem_line *p = w->line;
    struct ptl_tensor *t = &w->out->timestamps;
    const bool by_row = !p->dense && !p->page_size;
    const int64_t shape[2] = {p->b, max_rows(w, true)}, rows = w->seqs[p->b].first_k + p->pad;
    if (!take(w, "timestamps", PTL_I64, by_row ? 1 : 2, by_row ? &rows : shape, t)) return false;
    for (int64_t b = 0; b < p->b; b++) {
        struct random_stream s = stream_of(w, OF_TIMES, b);
        int64_t *row = (int64_t *)t->data + (by_row ? w->seqs[b].first_k : b * shape[1]);
        int64_t time = 1700000000;
        for (int64_t j = 0; j < w->seqs[b].uk; j++) {
            const int64_t step = random_between(&s, 0, 3);
            time += step == 0 ? 0 : random_between(&s, 0, step == 3 ? longest_time / 20 : 100);
            row[j] = p->times_random ? random_between(&s, -longest_time, longest_time) : time;
        }
    }
    return true;
}

bool make_tables(struct builder *w) {
    const struct problem_line *p = w->line;
    struct ptl_hstu_params *a = w->out;
    const int64_t lq = longest(w, false), lk = longest(w, true);
    const int64_t n = (lq > lk ? lq : lk) + 2; /* more than the sequences need */
    if (p->pos_table &&
        !make_table(w, "pos_table", OF_POS_TABLE, p->pos_table, 2 * n - 1, &a->pos_table))
        return false;
    if (!p->time_table) return true;
    return make_table(w, "time_table", OF_TIME_TABLE, p->time_table, p->thresholds + 1,
                      &a->time_table) &&
           make_thresholds(w) && make_times(w);
}
