/* Sequences of HSTU arguments, and the pairs they see, counted row by row from the rule's intervals
 * (docs/hstu.md), from intervals, or byte by byte from a dense mask. */
#include "sequences.h"

#include "tensors.h"

static bool is_dense(const struct ptl_hstu_params *a) {
    return a->q.ndim == 4;
}

int64_t n_sequences(const struct ptl_hstu_params *a) {
    return is_dense(a) ? a->q.shape[0] : a->seq_offsets_q.shape[0] - 1;
}

int64_t n_query_heads(const struct ptl_hstu_params *a) {
    return a->q.shape[a->q.ndim - 2];
}

/* Keys in pages. */
static int64_t cached(const struct ptl_hstu_params *a, int64_t b) {
    const int64_t n = index_at(&a->page_offsets, b + 1) - index_at(&a->page_offsets, b);
    return n == 0 ? 0 : (n - 1) * a->k_pages.shape[1] + index_at(&a->last_page_lens, b);
}

struct sequence sequence_at(const struct ptl_hstu_params *a, int64_t b) {
    struct sequence s = {0};
    const bool behind = b == n_sequences(a);
    if (is_dense(a)) {
        if (behind) return s;
        s.batch = b;
        s.room_q = a->q.shape[1];
        s.uk = a->k.shape[1];
    } else {
        const struct ptl_tensor *offsets_k =
            a->seq_offsets_k.data ? &a->seq_offsets_k : &a->seq_offsets_q;
        s.first_q = index_at(&a->seq_offsets_q, b);
        s.room_q = (behind ? a->q.shape[0] : index_at(&a->seq_offsets_q, b + 1)) - s.first_q;
        if (behind) return s;
        s.uk = index_at(offsets_k, b + 1) - index_at(offsets_k, b);
    }
    s.uq = a->seqused_q.data ? index_at(&a->seqused_q, b) : s.room_q;
    if (a->seqused_k.data) s.uk = index_at(&a->seqused_k, b);
    s.targets = a->num_targets.data ? index_at(&a->num_targets, b) : 0;
    if (a->k_pages.data) s.uk = cached(a, b) + s.targets;
    s.first_target = s.uk - s.targets;
    s.contexts = a->num_contexts.data ? least(index_at(&a->num_contexts, b), s.first_target) : 0;
    return s;
}

/* ---- Pairs ----------------------------------------------------------------------------------- */

/* Columns that the row at position p sees by a rule with window_right = 0. */
static int64_t causal_columns(const struct ptl_hstu_params *a, const struct sequence *s,
                              int64_t p) {
    const int64_t c = s->contexts, h = s->first_target, w = a->window_left;
    const bool unlimited =
        w < 0 || (a->min_full_attn_seq_len > 0 && p >= h - a->min_full_attn_seq_len);
    const int64_t place = least(p, h); /* targets measure the window from h */
    const int64_t from = unlimited || (c > 0 && place - w < c) ? 0 : most(0, place - w);
    if (p < 0) return 0;
    if (p < c) return h;
    if (p < h) return p + 1 - from;
    return most(0, h - from) + 1 + (p - h) % a->target_group_size;
}

static int64_t rule_columns(const struct ptl_hstu_params *a, const struct sequence *s, int64_t p) {
    if (a->window_right == 0) return causal_columns(a, s, p);
    const int64_t from = a->window_left < 0 ? 0 : most(0, p - a->window_left);
    const int64_t end = a->window_right < 0 ? s->uk : least(s->uk, p + a->window_right + 1);
    return most(0, end - from);
}

static double mask_pairs(const struct ptl_hstu_params *a, const struct sequence *s, int64_t b,
                         int64_t head) {
    const struct ptl_tensor *m = &a->mask;
    const uint8_t *plane = (const uint8_t *)m->data + (m->shape[0] == 1 ? 0 : b * m->stride[0]) +
                           (m->shape[1] == 1 ? 0 : head * m->stride[1]);
    int64_t pairs = 0;
    for (int64_t i = 0; i < s->uq; i++)
        for (int64_t j = 0; j < s->uk; j++) pairs += plane[i * m->stride[2] + j] != 0;
    return (double)pairs;
}

/* Columns in the union of a row's intervals: the next covered column, then the end of what covers
 * it. */
static int64_t interval_columns(const struct ptl_tensor *t, int64_t row, int64_t uk) {
    const int64_t n = t->shape[t->ndim - 1];
    int64_t columns = 0, at = 0;
    while (at < uk) {
        int64_t begin = uk, end = at;
        for (int64_t x = row; x < row + n; x += 2) {
            const int64_t from = most(index_at(t, x), at), to = least(index_at(t, x + 1), uk);
            if (from >= to || from > begin) continue;
            end = from < begin ? to : most(end, to);
            begin = from;
        }
        columns += most(0, end - begin);
        at = most(end, begin);
        if (begin == uk) break;
    }
    return columns;
}

static int64_t row_columns(const struct ptl_hstu_params *a, const struct sequence *s, int64_t i) {
    const struct ptl_tensor *t = &a->intervals;
    if (!t->data) return rule_columns(a, s, i + s->uk - s->uq);
    const int64_t row =
        t->ndim == 3 ? s->batch * t->stride[0] + i * t->stride[1] : (s->first_q + i) * t->stride[0];
    return interval_columns(t, row, s->uk);
}

static double valid_pairs(const struct ptl_hstu_params *a, const struct sequence *s, int64_t b) {
    const double heads = (double)n_query_heads(a);
    double pairs = 0.0;
    if (a->mask.data) {
        const int64_t planes = a->mask.shape[1];
        for (int64_t head = 0; head < planes; head++) pairs += mask_pairs(a, s, b, head);
        return pairs * heads / (double)planes;
    }
    for (int64_t i = 0; i < s->uq; i++) pairs += (double)row_columns(a, s, i);
    return pairs * heads;
}

struct workload workload_of(const struct ptl_hstu_params *a) {
    struct workload w = {0};
    for (int64_t b = 0; b < n_sequences(a); b++) {
        const struct sequence s = sequence_at(a, b);
        w.rows_q += (double)s.uq;
        w.rows_k += (double)s.uk;
        w.all_pairs += (double)s.uq * (double)s.uk * (double)n_query_heads(a);
        w.valid_pairs += valid_pairs(a, &s, b);
    }
    return w;
}
