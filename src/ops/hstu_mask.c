/* The HSTU mask as intervals: which columns a row sees, and what that makes of a tile.
 * The rule itself, pair by pair, is written down in ref/hstu.c; this is the form that skips. */
#include <assert.h>
#include <string.h>

#include "../core/arith.h"
#include "hstu.h"

struct ptl_hstu_seq ptl_hstu_sequence(const struct ptl_hstu_problem *p, int64_t index) {
    struct ptl_hstu_seq s = {.index = index};
    if (index == p->n_seqs) { /* jagged: rows of out behind the last sequence */
        s.q_row = ptl_index_at(&p->offsets_q, index);
        s.allocated = p->q_rows - s.q_row;
        return s;
    }
    if (p->dense) {
        s.b = index;
        s.uq = s.allocated = p->q_rows;
        s.uk = p->k_rows;
    } else {
        s.q_row = ptl_index_at(&p->offsets_q, index);
        s.k_row = ptl_index_at(&p->offsets_k, index);
        s.uq = s.allocated = ptl_index_at(&p->offsets_q, index + 1) - s.q_row;
        s.uk = ptl_index_at(&p->offsets_k, index + 1) - s.k_row;
    }
    if (p->used_q.data) s.uq = ptl_index_at(&p->used_q, index);
    if (p->used_k.data) s.uk = ptl_index_at(&p->used_k, index);
    s.targets = ptl_index_at(&p->targets, index);
    if (p->pages.on) {
        const int64_t n_pages =
            ptl_index_at(&p->pages.offsets, index + 1) - ptl_index_at(&p->pages.offsets, index);
        if (n_pages > 0)
            s.cached =
                (n_pages - 1) * p->pages.page_size + ptl_index_at(&p->pages.last_lens, index);
        s.uk = s.cached + s.targets;
        s.k_row = s.q_row + s.uq - s.uk; /* the last of its own rows are the targets */
    }
    s.first_target = s.uk - s.targets;
    s.contexts = ptl_min64(ptl_index_at(&p->contexts, index), s.first_target);
    return s;
}

struct ptl_hstu_span ptl_hstu_row_span(const struct ptl_hstu_problem *p,
                                       const struct ptl_hstu_seq *seq, int64_t i) {
    const int64_t pos = i + seq->uk - seq->uq, w = p->window_left, r = p->window_right;
    const int64_t c = seq->contexts, h = seq->first_target;
    struct ptl_hstu_span s = {{0, 0}, {0, 0}};

    if (r != 0) { /* no contexts, no targets */
        s.start[0] = w < 0 ? 0 : ptl_max64(0, pos - w);
        s.end[0] = r < 0 ? seq->uk : ptl_min64(seq->uk, pos + 1 + ptl_min64(r, seq->uk));
    } else if (pos < 0) {
        return s;
    } else if (pos < c) {
        s.end[0] = h;
    } else {
        /* The window measures from the row's own place; all targets stand at h, all contexts at
         * c-1. */
        const int64_t place = ptl_min64(pos, h);
        const bool free = w < 0 || (p->min_full > 0 && pos >= h - p->min_full);
        if (!free && !(c > 0 && place - w < c)) s.start[0] = ptl_max64(0, place - w);
        s.end[0] = ptl_min64(pos + 1, h);
        if (pos >= h) {
            s.start[1] = h + (pos - h) / p->group * p->group;
            s.end[1] = pos + 1;
        }
    }
    for (int k = 0; k < 2; k++)
        if (s.start[k] >= s.end[k]) s.start[k] = s.end[k] = 0;
    if (s.end[1] > 0 && (s.end[0] == 0 || s.end[0] == s.start[1])) { /* one run of columns */
        if (s.end[0] == 0) s.start[0] = s.start[1];
        s.end[0] = s.end[1];
        s.start[1] = s.end[1] = 0;
    }
    return s;
}

static int64_t span_length(struct ptl_hstu_span s) {
    return s.end[0] - s.start[0] + s.end[1] - s.start[1];
}

int64_t ptl_hstu_estimate_pairs(const struct ptl_hstu_problem *p, const struct ptl_hstu_seq *seq,
                                int64_t row, int64_t n) {
    if (n <= 0) return 0;
    if (p->mask || p->intervals.data) return n * seq->uk;
    int64_t first = span_length(ptl_hstu_row_span(p, seq, row));
    int64_t last = span_length(ptl_hstu_row_span(p, seq, row + n - 1));
    return n * (first + last + 1) / 2;
}

/* Pair g of row i, cut to the columns [begin, end). */
static void interval_pair(const struct ptl_hstu_panel_mask *m, int i, int64_t g, int64_t begin,
                          int64_t end, int64_t *a, int64_t *b) {
    const int64_t at = i * m->intervals.row_stride + 2 * g;
    const int64_t start = m->intervals.wide ? ((const int64_t *)m->intervals.data)[at]
                                            : ((const int32_t *)m->intervals.data)[at];
    const int64_t stop = m->intervals.wide ? ((const int64_t *)m->intervals.data)[at + 1]
                                           : ((const int32_t *)m->intervals.data)[at + 1];
    *a = ptl_max64(start, begin);
    *b = ptl_min64(stop, end);
}

void ptl_hstu_panel_mask_init(struct ptl_hstu_panel_mask *m, const struct ptl_hstu_problem *p,
                              const struct ptl_hstu_seq *seq, int64_t head, int64_t row,
                              int n_rows) {
    assert(n_rows >= 1 && n_rows <= PTL_MAX_PANEL);
    m->n_rows = n_rows;
    m->dense = NULL;
    m->intervals.data = NULL;
    if (p->mask) {
        m->dense = p->mask + seq->index * p->mask_batch_stride + head * p->mask_head_stride +
                   row * p->mask_row_stride;
        m->dense_row_stride = p->mask_row_stride;
        m->first = 0;
        m->last = seq->uk;
        return;
    }
    m->first = INT64_MAX;
    m->last = 0;
    if (p->intervals.data) {
        const int64_t bytes = p->intervals.wide ? 8 : 4;
        m->intervals = p->intervals;
        m->intervals.data = (const char *)p->intervals.data +
                            bytes * (seq->b * p->intervals.batch_stride +
                                     (seq->q_row + row) * p->intervals.row_stride);
        for (int i = 0; i < n_rows; i++)
            for (int64_t g = 0; g < m->intervals.n_pairs; g++) {
                int64_t start, end;
                interval_pair(m, i, g, 0, seq->uk, &start, &end);
                if (start >= end) continue;
                m->first = ptl_min64(m->first, start);
                m->last = ptl_max64(m->last, end);
            }
        if (m->last == 0) m->first = 0;
        return;
    }
    memset(m->bound, 0, sizeof m->bound);
    int n_with[2] = {0, 0};
    for (int i = 0; i < n_rows; i++) {
        m->row[i] = ptl_hstu_row_span(p, seq, row + i);
        for (int k = 0; k < 2; k++) {
            const int64_t start = m->row[i].start[k], end = m->row[i].end[k];
            if (end == 0) continue;
            if (n_with[k]++ == 0) {
                m->bound[k].min_start = m->bound[k].max_start = start;
                m->bound[k].min_end = m->bound[k].max_end = end;
            }
            m->bound[k].min_start = ptl_min64(m->bound[k].min_start, start);
            m->bound[k].max_start = ptl_max64(m->bound[k].max_start, start);
            m->bound[k].min_end = ptl_min64(m->bound[k].min_end, end);
            m->bound[k].max_end = ptl_max64(m->bound[k].max_end, end);
            m->first = ptl_min64(m->first, start);
            m->last = ptl_max64(m->last, end);
        }
    }
    for (int k = 0; k < 2; k++) {
        m->bound[k].any = n_with[k] > 0;
        m->bound[k].all_rows = n_with[k] == n_rows;
    }
    if (m->last == 0) m->first = 0;
}

/* Bits from intervals: every end of an interval toggles its row's bit, and a running XOR over the
 * columns turns toggles into runs. O(rows + columns). */
static void bits_from_spans(const struct ptl_hstu_panel_mask *m, int64_t begin, int64_t end,
                            uint64_t *bits) {
    memset(bits, 0, (size_t)(end - begin) * sizeof *bits);
    for (int i = 0; i < m->n_rows; i++)
        for (int k = 0; k < 2; k++) {
            const int64_t a = ptl_max64(m->row[i].start[k], begin),
                          b = ptl_min64(m->row[i].end[k], end);
            if (a >= b) continue;
            bits[a - begin] ^= (uint64_t)1 << i;
            if (b < end) bits[b - begin] ^= (uint64_t)1 << i;
        }
    uint64_t run = 0;
    for (int64_t j = 0; j < end - begin; j++) bits[j] = run ^= bits[j];
}

/* The tile for interval pairs: narrowed, and full when every row has a pair that covers it. Pair by
 * pair the toggles make runs as in bits_from_spans; a union is the OR of the pairs' runs. */
static enum ptl_tile_kind tile_of_intervals(const struct ptl_hstu_panel_mask *m, int64_t *begin,
                                            int64_t *end, uint64_t *bits) {
    int64_t first = INT64_MAX, last = 0, a, b;
    for (int i = 0; i < m->n_rows; i++)
        for (int64_t g = 0; g < m->intervals.n_pairs; g++) {
            interval_pair(m, i, g, *begin, *end, &a, &b);
            if (a >= b) continue;
            first = ptl_min64(first, a);
            last = ptl_max64(last, b);
        }
    if (first >= last) return PTL_TILE_SKIP;
    *begin = first;
    *end = last;
    int n_full = 0;
    for (int i = 0; i < m->n_rows; i++)
        for (int64_t g = 0; g < m->intervals.n_pairs; g++) {
            interval_pair(m, i, g, first, last, &a, &b);
            if (a > first || b < last) continue;
            n_full++;
            break;
        }
    if (n_full == m->n_rows) return PTL_TILE_FULL;

    uint64_t toggles[PTL_MAX_KEY_TILE];
    const int64_t n = last - first;
    memset(bits, 0, (size_t)n * sizeof *bits);
    for (int64_t g = 0; g < m->intervals.n_pairs; g++) {
        memset(toggles, 0, (size_t)n * sizeof *toggles);
        for (int i = 0; i < m->n_rows; i++) {
            interval_pair(m, i, g, first, last, &a, &b);
            if (a >= b) continue;
            toggles[a - first] ^= (uint64_t)1 << i;
            if (b < last) toggles[b - first] ^= (uint64_t)1 << i;
        }
        uint64_t run = 0;
        for (int64_t j = 0; j < n; j++) bits[j] |= run ^= toggles[j];
    }
    return PTL_TILE_MIXED;
}

/* 0x01 in every byte of x that is not zero. */
static uint64_t nonzero_bytes(uint64_t x) {
    const uint64_t low7 = 0x7f7f7f7f7f7f7f7f;
    return ((((x & low7) + low7) | x) >> 7) & 0x0101010101010101;
}

/* Bits from the dense mask: eight rows by eight columns at a time, one byte of each mask word.
 * The words are little-endian, as every machine that pantile runs on. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "mask words are assembled bytewise");
static void bits_from_dense(const struct ptl_hstu_panel_mask *m, int64_t begin, int64_t end,
                            uint64_t *bits) {
    const int64_t n = end - begin;
    memset(bits, 0, (size_t)n * sizeof *bits);
    for (int g = 0; g * 8 < m->n_rows; g++) {
        uint8_t *out = (uint8_t *)bits + g;
        const int rows = m->n_rows - g * 8 < 8 ? m->n_rows - g * 8 : 8;
        const uint8_t *in = m->dense + g * 8 * m->dense_row_stride + begin;
        for (int64_t j = 0; j < n; j += 8) {
            const size_t wide = n - j < 8 ? (size_t)(n - j) : 8;
            uint64_t square = 0;
            for (int i = 0; i < rows; i++) {
                uint64_t x = 0;
                if (wide == 8) memcpy(&x, in + i * m->dense_row_stride + j, 8);
                else memcpy(&x, in + i * m->dense_row_stride + j, wide);
                square |= nonzero_bytes(x) << i;
            }
            for (size_t x = 0; x < wide; x++)
                out[(j + (int64_t)x) * 8] = (uint8_t)(square >> (8 * x));
        }
    }
}

enum ptl_tile_kind ptl_hstu_tile_mask(const struct ptl_hstu_panel_mask *m, int64_t *begin,
                                      int64_t *end, uint64_t *bits) {
    if (m->dense) {
        bits_from_dense(m, *begin, *end, bits);
        const uint64_t all = m->n_rows == 64 ? ~(uint64_t)0 : ((uint64_t)1 << m->n_rows) - 1;
        uint64_t any = 0, every = all;
        for (int64_t j = 0; j < *end - *begin; j++) {
            any |= bits[j];
            every &= bits[j];
        }
        return any == 0 ? PTL_TILE_SKIP : every == all ? PTL_TILE_FULL : PTL_TILE_MIXED;
    }
    if (m->intervals.data) return tile_of_intervals(m, begin, end, bits);
    int64_t a = INT64_MAX, b = 0;
    bool full = false;
    for (int k = 0; k < 2; k++) {
        if (!m->bound[k].any) continue;
        const int64_t ka = ptl_max64(m->bound[k].min_start, *begin);
        const int64_t kb = ptl_min64(m->bound[k].max_end, *end);
        if (ka >= kb) continue;
        a = ptl_min64(a, ka);
        b = ptl_max64(b, kb);
        full = full || (m->bound[k].all_rows && m->bound[k].max_start <= *begin &&
                        m->bound[k].min_end >= *end);
    }
    if (a >= b) return PTL_TILE_SKIP;
    if (full) return PTL_TILE_FULL;
    *begin = a;
    *end = b;
    for (int k = 0; k < 2 && !full; k++)
        full = m->bound[k].all_rows && m->bound[k].max_start <= a && m->bound[k].min_end >= b;
    if (full) return PTL_TILE_FULL;
    bits_from_spans(m, a, b, bits);
    return PTL_TILE_MIXED;
}
