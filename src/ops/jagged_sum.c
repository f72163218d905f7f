/* Sums of rows: of every sequence, or of the rows that a list names. The rows of a sum are cut
 * into pieces of a fixed number; a piece is summed in double, row after row, and pieces are
 * added in their order. So a sum is the same bits whoever computes which piece, and long sums
 * share out. */
#include <string.h>

#include "jagged.h"

enum {
    PIECE_ROWS = 512,
    ROWS_AT_A_TIME = 8, /* more would be more streams than prefetchers follow */
    BLOCK_COLUMNS = 512 /* accumulators: 4 KiB, a part of the first-level cache */
};

struct ptl_jagged_piece {
    int which;           /* sum[which] */
    bool last;           /* of its sum */
    int64_t row;         /* of out */
    int64_t begin, end;  /* of the sum's rows */
    int64_t partial;     /* where its sum goes; -1: it is the only piece, straight to out */
    int64_t cost_before; /* rows read and written by the pieces before it */
};

static int64_t rows_of_sum(const struct ptl_jagged_sum *s, int64_t r) {
    return s->start ? s->start[r + 1] - s->start[r] : ptl_jagged_length(&s->x, r);
}

size_t ptl_jagged_sums_plan_bytes(int64_t n_sums, int64_t n_rows) {
    return (size_t)(n_sums + n_rows / PIECE_ROWS) * sizeof(struct ptl_jagged_piece);
}

size_t ptl_jagged_sums_plan(struct ptl_jagged_sums *s, void *memory) {
    s->pieces = memory;
    s->n_pieces = s->n_partials = s->total_cost = 0;
    for (int t = 0; t < s->n; t++)
        for (int64_t r = 0; r < s->sum[t]->n_sums; r++) {
            const int64_t n = rows_of_sum(s->sum[t], r);
            int64_t begin = 0;
            do { /* a sum of no rows has one piece too: it writes zeros */
                const int64_t end = n - begin > PIECE_ROWS ? begin + PIECE_ROWS : n;
                const int64_t partial = n > PIECE_ROWS ? s->n_partials++ : -1;
                s->pieces[s->n_pieces++] =
                    (struct ptl_jagged_piece){t, end == n, r, begin, end, partial, s->total_cost};
                s->total_cost += end - begin + 1;
                begin = end;
            } while (begin < n);
        }
    return (size_t)s->n_partials * (size_t)s->sum[0]->n_columns * sizeof(double);
}

/* The rows of a piece. */
struct source {
    const char *data;
    int64_t row_stride;
    const int64_t *order; /* NULL: one after the other */
};

static struct source source_of(const struct ptl_jagged_sum *s, const struct ptl_jagged_piece *p) {
    if (s->order)
        return (struct source){s->x.data, s->x.row_stride, s->order + s->start[p->row] + p->begin};
    return (struct source){ptl_jagged_row(&s->x, p->row, p->begin), s->x.row_stride, NULL};
}

static const char *row_of(const struct source *s, int64_t i) {
    return s->data + (s->order ? s->order[i] : i) * s->row_stride;
}

/* sum += the rows of the piece, at n columns from `first` on. */
static void add_rows(const struct ptl_kernels *k, const struct source *s, int64_t n_rows,
                     int64_t first, int64_t n, double *sum) {
    const float *rows[2][ROWS_AT_A_TIME];
    int n_now = 0, n_next = 0, now = 0;
    for (int64_t i = 0; i < n_rows || n_now > 0;) {
        for (n_next = 0; n_next < ROWS_AT_A_TIME && i < n_rows; n_next++)
            rows[!now][n_next] = (const float *)row_of(s, i++) + first;
        if (n_now) k->add_rows_f32(rows[now], n_now, rows[!now], n_next, n, sum);
        now = !now;
        n_now = n_next;
    }
}

/* The same of halves: some rows are widened, then added, while the next are on their way. */
static void add_half_rows(const struct ptl_kernels *k, const struct source *s, enum ptl_dtype type,
                          int64_t n_rows, int64_t first, int64_t n, double *sum) {
    float widened[ROWS_AT_A_TIME][BLOCK_COLUMNS];
    const float *rows[ROWS_AT_A_TIME];
    for (int64_t i = 0; i < n_rows; i += ROWS_AT_A_TIME) {
        int n_now = 0;
        for (; n_now < ROWS_AT_A_TIME && i + n_now < n_rows; n_now++) {
            const int64_t ahead = i + n_now + ROWS_AT_A_TIME;
            if (ahead < n_rows)
                for (int64_t c = 0; c < n; c += 32)
                    __builtin_prefetch((const uint16_t *)row_of(s, ahead) + first + c, 0, 3);
            rows[n_now] = ptl_jagged_widen(k, type, row_of(s, i + n_now), first, n, widened[n_now]);
        }
        k->add_rows_f32(rows, n_now, NULL, 0, n, sum);
    }
}

/* Rounds a row's sums, at n columns from `first` on. */
static void store(const struct ptl_kernels *k, const struct ptl_jagged_sum *of, int64_t row,
                  int64_t first, int64_t n, const double *sum) {
    float rounded[BLOCK_COLUMNS];
    for (int64_t c = 0; c < n; c++) rounded[c] = (float)sum[c];
    ptl_jagged_narrow(k, rounded, of->out_type, of->out + row * of->out_stride, first, n);
}

static void sum_piece(const struct ptl_jagged_sums *s, const struct ptl_jagged_piece *p) {
    const struct ptl_jagged_sum *of = s->sum[p->which];
    const struct source source = source_of(of, p);
    double sum[BLOCK_COLUMNS];
    for (int64_t first = 0; first < of->n_columns; first += BLOCK_COLUMNS) {
        const int64_t left = of->n_columns - first, n = left < BLOCK_COLUMNS ? left : BLOCK_COLUMNS;
        memset(sum, 0, (size_t)n * sizeof sum[0]);
        if (of->x_type == PTL_F32) add_rows(s->kernels, &source, p->end - p->begin, first, n, sum);
        else add_half_rows(s->kernels, &source, of->x_type, p->end - p->begin, first, n, sum);
        if (p->partial < 0) store(s->kernels, of, p->row, first, n, sum);
        else
            memcpy(s->partials + p->partial * of->n_columns + first, sum,
                   (size_t)n * sizeof sum[0]);
    }
}

/* The first piece whose cost begins at `cost` or later. */
static int64_t find_piece(const struct ptl_jagged_sums *s, int64_t cost) {
    int64_t low = 0, high = s->n_pieces;
    while (low < high) {
        const int64_t i = low + (high - low) / 2;
        if (s->pieces[i].cost_before < cost) low = i + 1;
        else high = i;
    }
    return low;
}

/* A range is one of costs, so that it is worth the same whatever its pieces are. */
static void sum_range(void *job, int64_t begin, int64_t end) {
    const struct ptl_jagged_sums *s = job;
    for (int64_t i = find_piece(s, begin); i < s->n_pieces && s->pieces[i].cost_before < end; i++)
        sum_piece(s, &s->pieces[i]);
}

/* Sums of several pieces: each belongs to its last piece. */
static void merge_range(void *job, int64_t begin, int64_t end) {
    const struct ptl_jagged_sums *s = job;
    double sum[BLOCK_COLUMNS];
    for (int64_t i = begin; i < end; i++) {
        const struct ptl_jagged_piece *last = &s->pieces[i];
        if (last->partial < 0 || !last->last) continue;
        const struct ptl_jagged_sum *of = s->sum[last->which];
        const int64_t n_before = last->begin / PIECE_ROWS;
        const double *partials = s->partials + (last->partial - n_before) * of->n_columns;
        for (int64_t first = 0; first < of->n_columns; first += BLOCK_COLUMNS) {
            const int64_t left = of->n_columns - first,
                          n = left < BLOCK_COLUMNS ? left : BLOCK_COLUMNS;
            memcpy(sum, partials + first, (size_t)n * sizeof sum[0]);
            for (int64_t k = 1; k <= n_before; k++)
                for (int64_t c = 0; c < n; c++) sum[c] += partials[k * of->n_columns + first + c];
            store(s->kernels, of, last->row, first, n, sum);
        }
    }
}

void ptl_jagged_sums_run(struct ptl_context *ctx, struct ptl_jagged_sums *s, void *scratch) {
    if (s->n_pieces == 0 || s->sum[0]->n_columns == 0) return;
    const int64_t row_bytes = s->sum[0]->n_columns * (int64_t)ptl_dtype_bytes(s->sum[0]->x_type);
    s->partials = scratch;
    s->kernels = ctx->kernels;
    ptl_jagged_for_ranges(ctx, s->total_cost, row_bytes, sum_range, s);
    if (s->n_partials) {
        const double bytes = 2.0 * (double)s->n_partials * (double)row_bytes;
        ptl_jagged_for_ranges(ctx, s->n_pieces, (int64_t)(bytes / (double)s->n_pieces) + 1,
                              merge_range, s);
    }
}

enum ptl_status ptl_jagged_run_sum(struct ptl_context *ctx, const struct ptl_jagged_sum *sum) {
    struct ptl_jagged_sums sums = {.sum = {sum}, .n = 1};
    const int64_t n_rows = ptl_jagged_begin(&sum->x, sum->n_sums);
    void *plan = ptl_arena_reserve(&ctx->plan, ptl_jagged_sums_plan_bytes(sum->n_sums, n_rows));
    if (!plan) return PTL_ERR_NOMEM;
    void *scratch = ptl_arena_reserve(&ctx->scratch, ptl_jagged_sums_plan(&sums, plan));
    if (!scratch) return PTL_ERR_NOMEM;
    ptl_jagged_sums_run(ctx, &sums, scratch);
    return PTL_OK;
}
