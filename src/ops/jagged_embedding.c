/* The position and time embedding: which rows of the two tables a token takes, the sum forward,
 * and the two scattered sums backward. */
#include <math.h>
#include <string.h>

#include "../core/arith.h"
#include "jagged.h"

/* ---- Which rows of the tables a token takes -------------------------------------------------- */

struct sequence {
    int64_t row, n; /* first row, tokens */
    int64_t top;    /* n - T: the first target */
    int64_t contexts, start;
    int64_t last_time;
};

static struct sequence sequence_at(const struct ptl_position_time *p, int64_t b) {
    struct sequence s = {.row = ptl_index_at(&p->offsets, b)};
    s.n = ptl_index_at(&p->offsets, b + 1) - s.row;
    if (s.n == 0) return s;
    s.top = s.n - ptl_index_at(&p->targets, b);
    /* Capped where more makes no difference, so that sums of them cannot overflow. */
    s.contexts = ptl_min64(ptl_index_at(&p->contexts, b), s.n);
    s.start = ptl_min64(ptl_index_at(&p->starts, b), p->pos_w.n_rows);
    if (p->times.data) s.last_time = ptl_index_at(&p->times, s.row + s.n - 1);
    return s;
}

static int64_t position(const struct ptl_position_time *p, const struct sequence *s, int64_t x) {
    if (x < s->contexts) return x;
    const int64_t from_start = ptl_min64(x, s->top);
    return ptl_min64(p->position_order == PTL_JAGGED_POSITION_FROM_START
                         ? from_start + s->start
                         : s->top - from_start + s->contexts,
                     p->pos_w.n_rows - 1);
}

/* The steps of the formula in the precision that it names, each rounded once: the square root is by
 * IEEE 754, and the logarithm is taken in double because those of single precision differ between
 * libraries. */
static int64_t time_bucket(const struct ptl_position_time *p, const struct sequence *s, int64_t x) {
    int64_t dt;
    if (__builtin_sub_overflow(s->last_time, ptl_index_at(&p->times, s->row + x), &dt))
        dt = s->last_time < 0 ? INT64_MIN : INT64_MAX;
    const float minutes = (dt > 0 ? (float)dt : 1e-6f) / 60.0f;
    const float g =
        p->time_bucket == PTL_JAGGED_TIME_LOG ? (float)log((double)minutes) : sqrtf(minutes);
    return g < 0.0f ? 0 : ptl_min64((int64_t)g, p->ts_w.n_rows - 1);
}

/* Calls fn for the rows [begin, end), one sequence or the padding (index n_seqs) at a time; x
 * counts from the sequence's first row. */
typedef void (*tokens_fn)(void *job, const struct sequence *s, bool padding, int64_t x,
                          int64_t x_end);

static int64_t seq_begin(const void *p, int64_t b) {
    return ptl_index_at(&((const struct ptl_position_time *)p)->offsets, b);
}

static void each_sequence(const struct ptl_position_time *p, int64_t begin, int64_t end,
                          tokens_fn fn, void *job) {
    int64_t b = ptl_jagged_find(seq_begin, p, p->n_seqs, begin);
    for (; b < p->n_seqs && begin < end; b++) {
        const struct sequence s = sequence_at(p, b);
        const int64_t stop = ptl_min64(s.row + s.n, end);
        if (begin < stop) fn(job, &s, false, begin - s.row, stop - s.row);
        if (begin < stop) begin = stop;
    }
    const struct sequence padding = {0};
    if (begin < end) fn(job, &padding, true, begin, end);
}

static char *row_of(const struct ptl_jagged_matrix *m, int64_t row) {
    return m->data + row * m->row_stride;
}

static int64_t row_bytes_of(const struct ptl_position_time *p) {
    return p->n_columns * (int64_t)ptl_dtype_bytes(p->x.type);
}

static struct ptl_jagged_writer writer_of(const struct ptl_context *ctx,
                                          const struct ptl_position_time *p) {
    struct ptl_jagged_writer w = ptl_jagged_writer(ctx, p->n_rows, row_bytes_of(p));
    if (p->x.data == p->out.data) w.stream = false; /* its lines are in the cache */
    return w;
}

/* ---- Forward --------------------------------------------------------------------------------- */

static void embed_tokens(void *job, const struct sequence *s, bool padding, int64_t x,
                         int64_t x_end) {
    const struct ptl_position_time *p = job;
    const int64_t row_bytes = row_bytes_of(p);
    if (padding) {
        ptl_jagged_fill_rows(&p->writer, row_of(&p->out, x), p->out.row_stride, x_end - x,
                             row_bytes, NULL, 0);
        return;
    }
    struct ptl_jagged_stage stage;
    ptl_jagged_stage_begin(&stage, &p->writer);
    /* Nothing is looked up or fetched ahead: positions run down the table, buckets repeat, and
     * doing so measured 10 to 20 % slower. */
    for (; x < x_end; x++) {
        const char *row = row_of(&p->x, s->row + x);
        ptl_jagged_affine(p->writer.kernels, p->x.type,
                          ptl_jagged_stage_row(&stage, row_of(&p->out, s->row + x), row_bytes, row),
                          row, p->alpha, p->pos_w.type, row_of(&p->pos_w, position(p, s, x)),
                          p->times.data ? row_of(&p->ts_w, time_bucket(p, s, x)) : NULL,
                          p->n_columns);
    }
    ptl_jagged_stage_flush(&stage);
}

static void embed_range(void *job, int64_t begin, int64_t end) {
    each_sequence(job, begin, end, embed_tokens, job);
    ptl_jagged_end_range(&((struct ptl_position_time *)job)->writer);
}

void ptl_position_time_run_forward(struct ptl_context *ctx, const struct ptl_position_time *p) {
    struct ptl_position_time job = *p;
    if (p->n_columns == 0) return;
    job.writer = writer_of(ctx, p);
    ptl_jagged_for_ranges(ctx, p->n_rows, 2 * row_bytes_of(p), embed_range, &job);
}

/* ---- Backward -----------------------------------------------------------------------------------
 * A row of a table gets the sum over its tokens. A counting sort lists them, and keeps them in the
 * order of the rows; jagged_sum.c adds them up in that order. */

struct table {
    int64_t n_rows;
    int64_t *key;   /* of every token: its row of the table */
    int64_t *start; /* n_rows + 1 */
    int64_t *order; /* tokens, by key */
};

struct backward {
    const struct ptl_position_time *p;
    int64_t n_tokens;
    struct table pos, time; /* n_rows 0: not wanted */
};

static void key_tokens(void *job, const struct sequence *s, bool padding, int64_t x,
                       int64_t x_end) {
    const struct backward *w = job;
    (void)padding; /* only tokens are asked for */
    for (; x < x_end; x++) {
        if (w->pos.n_rows) w->pos.key[s->row + x] = position(w->p, s, x);
        if (w->time.n_rows) w->time.key[s->row + x] = time_bucket(w->p, s, x);
    }
}

static void key_range(void *job, int64_t begin, int64_t end) {
    each_sequence(((struct backward *)job)->p, begin, end, key_tokens, job);
}

static void sort_table(struct table *t, int64_t n_tokens) {
    /* start[k + 1] counts, then is where the next token of key k goes, at last where they end. */
    memset(t->start, 0, (size_t)(t->n_rows + 1) * sizeof *t->start);
    for (int64_t x = 0; x < n_tokens; x++)
        if (t->key[x] + 2 <= t->n_rows) t->start[t->key[x] + 2]++;
    for (int64_t k = 2; k <= t->n_rows; k++) t->start[k] += t->start[k - 1];
    for (int64_t x = 0; x < n_tokens; x++) t->order[t->start[t->key[x] + 1]++] = x;
}

static void sort_range(void *job, int64_t begin, int64_t end) {
    struct backward *w = job;
    for (; begin < end; begin++) {
        struct table *t = begin == 0 ? &w->pos : &w->time;
        if (t->n_rows) sort_table(t, w->n_tokens);
    }
}

static void scale_range(void *job, int64_t begin, int64_t end) {
    const struct ptl_position_time *p = job;
    const int64_t row_bytes = row_bytes_of(p);
    const int64_t tokens = ptl_min64(ptl_index_at(&p->offsets, p->n_seqs), end);
    struct ptl_jagged_stage stage;
    ptl_jagged_stage_begin(&stage, &p->writer);
    for (; begin < tokens; begin++) {
        const char *row = row_of(&p->x, begin);
        ptl_jagged_affine(p->writer.kernels, p->x.type,
                          ptl_jagged_stage_row(&stage, row_of(&p->out, begin), row_bytes, row), row,
                          p->alpha, PTL_F32, NULL, NULL, p->n_columns);
    }
    ptl_jagged_stage_flush(&stage);
    if (begin < end)
        ptl_jagged_fill_rows(&p->writer, row_of(&p->out, begin), p->out.row_stride, end - begin,
                             row_bytes, NULL, 0);
    ptl_jagged_end_range(&p->writer);
}

/* Takes the next n numbers of the plan's memory, or only counts them where there is none yet. */
static int64_t *take(int64_t **memory, int64_t n) {
    int64_t *at = *memory;
    *memory += n;
    return at;
}

static void lay_out(struct table *t, const struct ptl_jagged_matrix *m, int64_t n_tokens,
                    int64_t **memory) {
    t->n_rows = m->data ? m->n_rows : 0;
    if (t->n_rows == 0) return;
    t->key = take(memory, n_tokens);
    t->start = take(memory, t->n_rows + 1);
    t->order = take(memory, n_tokens);
}

static struct ptl_jagged_sum sum_of(const struct ptl_position_time *p, const struct table *t,
                                    const struct ptl_jagged_matrix *m) {
    return (struct ptl_jagged_sum){
        .n_sums = t->n_rows,
        .n_columns = p->n_columns,
        .x = {.data = p->x.data, .row_stride = p->x.row_stride},
        .start = t->start,
        .order = t->order,
        .out = m->data,
        .out_stride = m->row_stride,
        .x_type = p->x.type,
        .out_type = m->type,
    };
}

enum ptl_status ptl_position_time_run_backward(struct ptl_context *ctx,
                                               const struct ptl_position_time *p) {
    struct backward w = {.p = p, .n_tokens = ptl_index_at(&p->offsets, p->n_seqs)};
    const int64_t row_bytes = row_bytes_of(p);
    if (p->n_columns == 0) return PTL_OK;

    const int n_tables = (p->pos_w.data != NULL) + (p->ts_w.data != NULL);
    if (n_tables) {
        const int64_t n_sums =
            (p->pos_w.data ? p->pos_w.n_rows : 0) + (p->ts_w.data ? p->ts_w.n_rows : 0);
        const size_t pieces_bytes = ptl_jagged_sums_plan_bytes(n_sums, n_tables * w.n_tokens);
        const size_t numbers = (size_t)(n_sums + n_tables + 2 * n_tables * w.n_tokens);
        char *plan = ptl_arena_reserve(&ctx->plan, pieces_bytes + numbers * sizeof(int64_t));
        if (!plan) return PTL_ERR_NOMEM;
        int64_t *memory = (int64_t *)(plan + pieces_bytes);
        lay_out(&w.pos, &p->pos_w, w.n_tokens, &memory);
        lay_out(&w.time, &p->ts_w, w.n_tokens, &memory);
        ptl_jagged_for_ranges(ctx, w.n_tokens, 128, key_range, &w); /* some 10 ns a token */
        ptl_jagged_for_ranges(ctx, 2, 32 * w.n_tokens, sort_range, &w);

        const struct ptl_jagged_sum pos = sum_of(p, &w.pos, &p->pos_w);
        const struct ptl_jagged_sum time = sum_of(p, &w.time, &p->ts_w);
        struct ptl_jagged_sums sums = {0};
        if (w.pos.n_rows) sums.sum[sums.n++] = &pos;
        if (w.time.n_rows) sums.sum[sums.n++] = &time;
        void *scratch = ptl_arena_reserve(&ctx->scratch, ptl_jagged_sums_plan(&sums, plan));
        if (!scratch) return PTL_ERR_NOMEM;
        ptl_jagged_sums_run(ctx, &sums, scratch);
    }
    if (p->out.data) { /* last: it may be dout itself */
        struct ptl_position_time job = *p;
        job.writer = writer_of(ctx, p);
        ptl_jagged_for_ranges(ctx, p->n_rows, 2 * row_bytes, scale_range, &job);
    }
    return PTL_OK;
}
