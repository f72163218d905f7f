/* The bias of a score tile: from a dense array, from a position table, from a time table. All but
 * the position table are gathered row by row and then transposed as a panel is. */
#include "hstu_tile.h"

int64_t ptl_hstu_reversed_floats(const struct ptl_hstu_problem *p) {
    if (!p->tables.pos) return 0;
    const int64_t n_tables = p->tables.pos_head_stride ? p->n_q_heads : 1;
    return n_tables * (2 * p->tables.n - 1 + PTL_MAX_PANEL);
}

/* Lane i of a panel at position p takes table entry N-1 + j - p - i: in a reversed table that is
 * ascending in i, one load a vector. Lanes without a row read the padding. */
void ptl_hstu_reverse_tables(const struct ptl_hstu_problem *p, float *reversed) {
    if (!p->tables.pos) return;
    const int64_t n_tables = p->tables.pos_head_stride ? p->n_q_heads : 1, n = 2 * p->tables.n - 1;
    for (int64_t h = 0; h < n_tables; h++, reversed += n + PTL_MAX_PANEL) {
        const float *table = p->tables.pos + h * p->tables.pos_head_stride;
        for (int64_t x = 0; x < n; x++) reversed[x] = table[n - 1 - x];
        for (int64_t x = n; x < n + PTL_MAX_PANEL; x++) reversed[x] = 0.0f;
    }
}

static const int64_t *stamps_of(const struct ptl_hstu_problem *p, const struct ptl_hstu_seq *seq) {
    const struct ptl_hstu_tables *t = &p->tables;
    return t->stamps_by_row ? t->stamps + seq->k_row
                            : t->stamps + seq->index * t->stamps_batch_stride;
}

/* |a - b| as an unsigned number: exact for all int64. */
static uint64_t distance(int64_t a, int64_t b) {
    return a > b ? (uint64_t)a - (uint64_t)b : (uint64_t)b - (uint64_t)a;
}

static bool reaches(const struct ptl_hstu_tables *t, int64_t bucket, uint64_t dt) {
    const int64_t threshold = t->thresholds[bucket - 1];
    return threshold <= 0 || (uint64_t)threshold <= dt;
}

/* Number of thresholds <= dt, by bisection. */
static int64_t bucket_of(const struct ptl_hstu_tables *t, uint64_t dt) {
    int64_t low = 0, high = t->n_thresholds;
    while (low < high) {
        const int64_t mid = low + (high - low + 1) / 2;
        if (reaches(t, mid, dt)) low = mid;
        else high = mid - 1;
    }
    return low;
}

/* The distances of a bucket: low .. low + width - 1. */
struct range {
    uint64_t low, width;
};

static struct range range_of(const struct ptl_hstu_tables *t, int64_t bucket) {
    const int64_t from = bucket > 0 ? t->thresholds[bucket - 1] : 0;
    const uint64_t low = from > 0 ? (uint64_t)from : 0;
    if (bucket == t->n_thresholds) return (struct range){low, UINT64_MAX - low + (low > 0)};
    const int64_t to = t->thresholds[bucket];
    return (struct range){low, to > 0 ? (uint64_t)to - low : 0};
}

static bool in_range(struct range r, uint64_t dt) {
    return dt - r.low < r.width; /* below low the difference wraps and is large */
}

/* The end of the run that begins at j where equal buckets at both ends of a stretch mean equal
 * buckets in between: all that is left, or doubling steps and then halving ones. */
static int64_t run_end(const int64_t *stamps, int64_t query, struct range r, int64_t j,
                       int64_t end) {
    if (in_range(r, distance(query, stamps[end - 1]))) return end;
    int64_t step = 8, inside = j; /* inside: the last column known to be in the run */
    while (inside + step < end && in_range(r, distance(query, stamps[inside + step]))) {
        inside += step;
        step *= 2;
    }
    for (step /= 2; step > 0; step /= 2)
        if (inside + step < end && in_range(r, distance(query, stamps[inside + step])))
            inside += step;
    return inside + 1;
}

int ptl_hstu_time_runs(const struct ptl_hstu_problem *p, const struct ptl_hstu_seq *seq,
                       int64_t row, int64_t begin, int64_t end, bool ascending,
                       struct ptl_time_run *runs) {
    const struct ptl_hstu_tables *t = &p->tables;
    const int64_t *stamps = stamps_of(p, seq);
    int64_t pos = row + seq->uk - seq->uq;
    if (t->query_next && pos + 1 < seq->uk) pos++;
    const int64_t query = stamps[pos];
    /* |dt| rises or falls along the tile unless the query's time is inside. */
    const bool smooth = ascending && (query >= stamps[end - 1] || query <= stamps[begin]);
    int n = 0;
    for (int64_t j = begin; j < end;) {
        const int64_t b = bucket_of(t, distance(query, stamps[j]));
        const struct range r = range_of(t, b);
        int64_t stop = j + 1;
        if (smooth) stop = run_end(stamps, query, r, j, end);
        else
            while (stop < end && in_range(r, distance(query, stamps[stop]))) stop++;
        runs[n++] = (struct ptl_time_run){(int32_t)b, (int32_t)(stop - j)};
        j = stop;
    }
    return n;
}

bool ptl_hstu_times_ascend(const struct ptl_hstu_problem *p, const struct ptl_hstu_seq *seq,
                           int64_t begin, int64_t end) {
    const int64_t *stamps = stamps_of(p, seq);
    bool ascending = true;
    for (int64_t j = begin + 1; j < end; j++) ascending = ascending && stamps[j - 1] <= stamps[j];
    return ascending;
}

static void time_rows(const struct ptl_hstu_problem *p, const struct ptl_kernels *k,
                      const struct ptl_hstu_seq *seq, int64_t head, int64_t row, int n_rows,
                      int64_t begin, int64_t end, struct ptl_time_runs *known, float *rows) {
    const float *table = p->tables.time + head * p->tables.time_head_stride;
    const bool look = !known || !known->known;
    const bool ascending = look && ptl_hstu_times_ascend(p, seq, begin, end);
    struct ptl_time_run own[PTL_MAX_KEY_TILE];
    for (int i = 0; i < n_rows; i++) {
        struct ptl_time_run *runs = known ? known->run + (int64_t)i * k->key_tile : own;
        int32_t n =
            look ? ptl_hstu_time_runs(p, seq, row + i, begin, end, ascending, runs) : known->n[i];
        if (known) known->n[i] = n;
        for (int32_t r = 0; r < n; r++) {
            const float value = table[runs[r].bucket];
            for (int32_t x = 0; x < runs[r].n; x++) *rows++ = value;
        }
    }
    if (known) known->known = true;
}

void ptl_hstu_add_bias(const struct ptl_hstu_problem *p, const struct ptl_kernels *k,
                       const struct ptl_hstu_seq *seq, int64_t head, int64_t row, int n_rows,
                       int nv, int64_t begin, int64_t end, const float *reversed, float *s,
                       struct ptl_time_runs *runs, const struct ptl_hstu_stage *stage) {
    const float *rows[PTL_MAX_PANEL];
    const int n = (int)(end - begin);
    float alpha = p->alpha; /* once, with the first of the biases */
    if (p->bias.data) {
        const int64_t first = p->bias.by_key ? row + seq->uk - seq->uq : row;
        const int64_t bytes = (int64_t)ptl_dtype_bytes(p->bias.dtype);
        for (int i = 0; i < n_rows; i++) {
            const void *x = p->bias.data + bytes * (seq->index * p->bias.batch_stride +
                                                    head * p->bias.head_stride +
                                                    (first + i) * p->bias.row_stride + begin);
            float *y = stage->bias_row + (int64_t)i * n;
            rows[i] = p->bias.dtype == PTL_F32 ? x : y;
            if (rows[i] == y) ptl_widen_rows(k, p->bias.dtype, x, 0, 1, n, y, 0);
        }
        k->panel_load_f32(rows, n_rows, n, stage->bias);
        k->tile_bias_f32(nv, s, n, alpha, p->beta, stage->bias, k->panel);
        alpha = 1.0f;
    }
    if (p->tables.pos) {
        const int64_t n_entries = 2 * p->tables.n - 1;
        if (p->tables.pos_head_stride) reversed += head * (n_entries + PTL_MAX_PANEL);
        const int64_t pos = row + seq->uk - seq->uq;
        k->tile_bias_f32(nv, s, n, alpha, p->beta, reversed + p->tables.n - 1 + pos - begin, -1);
        alpha = 1.0f;
    }
    if (p->tables.time) {
        time_rows(p, k, seq, head, row, n_rows, begin, end, runs, stage->bias_row);
        for (int i = 0; i < n_rows; i++) rows[i] = stage->bias_row + (int64_t)i * n;
        k->panel_load_f32(rows, n_rows, n, stage->bias);
        k->tile_bias_f32(nv, s, n, alpha, p->beta, stage->bias, k->panel);
    }
}
