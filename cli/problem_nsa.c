/* Makes the arguments of generated NSA lines: lengths drawn, arrays laid out, contents seeded. */
#include "problem_nsa.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "problem_build.h"
#include "tensors.h"

enum { TOPIC = 48, SPARE = 2 }; /* tokens that resemble each other; pages of nobody */

/* q.k / sqrt(d) has a deviation of about 2: one key in 50 carries weight. */
static const float query_scale = 5.0f, topic_scale = 1.0f, token_scale = 0.7f,
                   compressed_scale = 0.2f;

struct sequence_of {
    int64_t q, k, c, old; /* query rows, tokens, compressed keys, tokens before the query rows */
    int64_t first_q, first_k, first_c; /* jagged rows before it */
};

struct maker {
    struct nsa_arguments *a;
    const struct nsa_line *line;
    struct problem_memory *memory;
    struct refusal *refusal;
    struct sequence_of *seqs; /* b of them, and one that ends the rows */
};

static bool take_array(const struct maker *m, const char *name, enum ptl_dtype dtype, int ndim,
                       const int64_t *shape, struct ptl_tensor *t) {
    return problem_memory_tensor(m->memory, name, dtype, ndim, shape, t, m->refusal);
}

static struct random_stream stream_at(const struct maker *m, int purpose, int64_t b, int64_t row,
                                      int64_t head) {
    return random_stream_at(m->line->seed, (uint64_t)purpose, b, row, head);
}

/* ---- Sequences ------------------------------------------------------------------------------- */

static bool draw_sequence(const struct maker *m, int64_t b, struct sequence_of *s) {
    const struct nsa_line *p = m->line;
    const bool drawn = is_drawn(&p->lengths) || is_drawn(&p->lengths_q);
    s->k =
        p->lengths.kind ? draw_number(&p->lengths, stream_at(m, OF_LENGTHS_K, b, 0, 0), b) : p->sk;
    s->q = p->lengths_q.kind ? draw_number(&p->lengths_q, stream_at(m, OF_LENGTHS, b, 0, 0), b)
           : p->sq >= 0      ? p->sq
                             : s->k;
    if (drawn && !p->dense) s->q = least(s->q, s->k);
    if (s->q > s->k)
        return refuse(m->refusal,
                      "%s: %" PRId64 " query rows in sequence %" PRId64 ", more than its %" PRId64
                      " tokens",
                      p->lengths_q.kind ? "lengths_q" : "sq", s->q, b, s->k);
    s->old = s->k - s->q;
    s->c = ptl_nsa_compressed_length(s->k, p->block, p->stride);
    return true;
}

static bool draw_sequences(struct maker *m) {
    struct sequence_of at = {0};
    m->seqs = calloc((size_t)m->line->b + 1, sizeof *m->seqs);
    if (!m->seqs) return refuse(m->refusal, "b: no memory for %" PRId64 " sequences", m->line->b);
    for (int64_t b = 0; b < m->line->b; b++) {
        m->seqs[b] = at;
        if (!draw_sequence(m, b, &m->seqs[b])) return false;
        at.first_q += m->seqs[b].q;
        at.first_k += m->seqs[b].k;
        at.first_c += m->seqs[b].c;
    }
    m->seqs[m->line->b] = at;
    return true;
}

/* Rows of which kind of array. */
enum rows { QUERIES, TOKENS, COMPRESSED };

static int64_t rows_of(const struct sequence_of *s, enum rows rows) {
    return rows == QUERIES ? s->q : rows == TOKENS ? s->k : s->c;
}

static int64_t first_of(const struct sequence_of *s, enum rows rows) {
    return rows == QUERIES ? s->first_q : rows == TOKENS ? s->first_k : s->first_c;
}

static int64_t most_rows(const struct maker *m, enum rows rows) {
    int64_t n = 0;
    for (int64_t b = 0; b < m->line->b; b++)
        if (rows_of(&m->seqs[b], rows) > n) n = rows_of(&m->seqs[b], rows);
    return n;
}

static bool put(const struct maker *m, const char *name, const struct ptl_tensor *t, int64_t i,
                int64_t value) {
    if (t->dtype == PTL_I32 && value > INT32_MAX)
        return refuse(m->refusal, "%s: %" PRId64 " does not fit index=i32", name, value);
    put_index_at(t, i, value);
    return true;
}

static bool make_offsets(const struct maker *m, const char *name, enum rows rows,
                         struct ptl_tensor *t) {
    const int64_t n = m->line->b + 1;
    if (!take_array(m, name, m->line->index, 1, &n, t)) return false;
    for (int64_t b = 0; b < n; b++)
        if (!put(m, name, t, b, first_of(&m->seqs[b], rows))) return false;
    return true;
}

static bool make_lengths(const struct maker *m, const char *name, bool old, struct ptl_tensor *t) {
    if (!take_array(m, name, m->line->index, 1, &m->line->b, t)) return false;
    for (int64_t b = 0; b < m->line->b; b++)
        if (!put(m, name, t, b, old ? m->seqs[b].old : m->seqs[b].k)) return false;
    return true;
}

/* Pages for the rows of every sequence, in shuffled order, as after some time of serving. */
static bool make_table(const struct maker *m, const char *name, enum rows rows, int purpose,
                       struct ptl_tensor *t, int64_t *n_pages) {
    const int64_t size = m->line->page_size;
    const int64_t shape[2] = {m->line->b, (most_rows(m, rows) + size - 1) / size};
    struct random_stream s = stream_at(m, purpose, 0, 0, 0);
    struct ptl_tensor order;
    int64_t all = SPARE, at = 0;
    for (int64_t b = 0; b < m->line->b; b++) all += (rows_of(&m->seqs[b], rows) + size - 1) / size;
    if (!take_array(m, name, m->line->index, 2, shape, t) ||
        !take_array(m, name, PTL_I64, 1, &all, &order))
        return false;
    for (int64_t i = 0; i < all; i++) put_index_at(&order, i, i);
    for (int64_t i = all - 1; i > 0; i--) {
        const int64_t other = random_between(&s, 0, i), id = index_at(&order, i);
        put_index_at(&order, i, index_at(&order, other));
        put_index_at(&order, other, id);
    }
    for (int64_t b = 0; b < m->line->b; b++)
        for (int64_t i = 0; i * size < rows_of(&m->seqs[b], rows); i++)
            if (!put(m, name, t, b * shape[1] + i, index_at(&order, at++))) return false;
    *n_pages = all;
    return true;
}

/* ---- Rows ------------------------------------------------------------------------------------ */

static bool take_rows_of(const struct maker *m, const char *name, enum rows rows,
                         enum ptl_dtype dtype, int64_t heads, int64_t dim, struct ptl_tensor *t) {
    const struct nsa_line *p = m->line;
    const int64_t n = p->dense ? most_rows(m, rows) : first_of(&m->seqs[p->b], rows);
    const int64_t shape[4] = {p->b, n, heads, dim};
    return take_array(m, name, dtype, p->dense ? 4 : 3, shape + !p->dense, t);
}

/* Where a row of a head begins; table: of the pages, or NULL. */
static int64_t row_at(const struct maker *m, const struct ptl_tensor *t, enum rows rows,
                      const struct ptl_tensor *table, int64_t b, int64_t row, int64_t head) {
    const int64_t *stride = t->stride + t->ndim - 3;
    int64_t first = 0;
    if (table) {
        const int64_t size = t->shape[1];
        first = index_at(table, b * table->shape[1] + row / size) * t->stride[0];
        row %= size;
    } else {
        first = t->ndim == 4 ? b * t->stride[0] : first_of(&m->seqs[b], rows) * stride[0];
    }
    return first + row * stride[0] + head * stride[1];
}

/* What a row has alone, and what it shares with others. */
static void draw_row(struct random_stream own, float own_scale, struct random_stream shared,
                     float shared_scale, float *x, int64_t dim) {
    float y[LINE_MAX_DIM];
    random_fill(&own, x, dim);
    random_fill(&shared, y, dim);
    for (int64_t d = 0; d < dim; d++) x[d] = own_scale * x[d] + shared_scale * y[d];
}

/* Heads resemble each other. */
static void fill_queries_of(const struct maker *m, int purpose, float scale,
                            const struct ptl_tensor *t) {
    float x[LINE_MAX_DIM];
    const int64_t heads = t->shape[t->ndim - 2], dim = t->shape[t->ndim - 1];
    for (int64_t b = 0; b < m->line->b; b++)
        for (int64_t i = 0; i < m->seqs[b].q; i++)
            for (int64_t head = 0; head < heads; head++) {
                const int64_t row = m->seqs[b].old + i;
                draw_row(stream_at(m, purpose, b, row, head), 0.6f * scale,
                         stream_at(m, purpose, b, row, -1), 0.8f * scale, x, dim);
                store(t, row_at(m, t, QUERIES, NULL, b, i, head), x, dim);
            }
}

/* Rows `begin` to `end` of a sequence, at `to` (row 0 of t is row `first` of the sequence). */
static void fill_rows(const struct maker *m, int purpose, const struct ptl_tensor *t,
                      enum rows rows, const struct ptl_tensor *table, int64_t b, int64_t begin,
                      int64_t end, int64_t first) {
    float x[LINE_MAX_DIM];
    const int64_t heads = t->shape[t->ndim - 2], dim = t->shape[t->ndim - 1];
    const bool is_key = purpose == OF_K || purpose == OF_KC || purpose == OF_K_SWA;
    const bool compressed = purpose == OF_KC || purpose == OF_VC;
    for (int64_t row = begin; row < end; row++)
        for (int64_t head = 0; head < heads; head++) {
            if (is_key) {
                const int64_t token = compressed ? row * m->line->stride : row;
                draw_row(stream_at(m, purpose, b, row, head),
                         compressed ? compressed_scale : token_scale,
                         stream_at(m, OF_TOPICS, b, token / TOPIC, head), topic_scale, x, dim);
            } else {
                struct random_stream s = stream_at(m, purpose, b, row, head);
                random_fill(&s, x, dim);
            }
            store(t, row_at(m, t, rows, table, b, row - first, head), x, dim);
        }
}

/* Pages, or rows as the layout has them, for tokens or compressed keys, with contents. Of caches
 * that nsa_append will complete only what is there before (old). */
static bool make_rows(const struct maker *m, const char *name, int purpose, enum rows rows,
                      const struct ptl_tensor *table, int64_t n_pages, bool old, int64_t dim,
                      struct ptl_tensor *t) {
    const struct nsa_line *p = m->line;
    const int64_t pages[4] = {n_pages, p->page_size, p->hk, dim};
    if (table ? !take_array(m, name, p->dtype, 4, pages, t)
              : !take_rows_of(m, name, rows, p->dtype, p->hk, dim, t))
        return false;
    for (int64_t b = 0; b < p->b; b++) {
        const struct sequence_of *s = &m->seqs[b];
        const int64_t n_old =
            rows == TOKENS ? s->old : ptl_nsa_compressed_length(s->old, p->block, p->stride);
        fill_rows(m, purpose, t, rows, table, b, 0, old ? n_old : rows_of(s, rows), 0);
    }
    return true;
}

/* The tokens of the query rows alone, as nsa_append takes them. */
static bool make_new_tokens(const struct maker *m, const char *name, int purpose, int64_t dim,
                            struct ptl_tensor *t) {
    if (!take_rows_of(m, name, QUERIES, m->line->dtype, m->line->hk, dim, t)) return false;
    for (int64_t b = 0; b < m->line->b; b++)
        fill_rows(m, purpose, t, QUERIES, NULL, b, m->seqs[b].old, m->seqs[b].k, m->seqs[b].old);
    return true;
}

/* ---- Arguments ------------------------------------------------------------------------------- */

static bool make_queries(const struct maker *m, const char *name, int purpose,
                         struct ptl_tensor *t) {
    if (!take_rows_of(m, name, QUERIES, m->line->dtype, m->line->h, m->line->d, t)) return false;
    fill_queries_of(m, purpose, query_scale, t);
    return true;
}

static bool make_positions(const struct maker *m) {
    struct ptl_nsa_params *a = &m->a->params;
    if (!m->line->dense && !make_offsets(m, "seq_offsets_q", QUERIES, &a->seq_offsets_q))
        return false;
    return make_lengths(m, "seqlens_k", false, &a->seqlens_k);
}

static bool make_keys(const struct maker *m, bool old) {
    const struct nsa_line *p = m->line;
    struct ptl_nsa_params *a = &m->a->params;
    const struct ptl_tensor *table = p->page_size ? &a->page_table : NULL;
    int64_t n_pages = 0;
    if (table && !make_table(m, "page_table", TOKENS, OF_PAGES, &a->page_table, &n_pages))
        return false;
    if (!table && !p->dense && !make_offsets(m, "seq_offsets_k", TOKENS, &a->seq_offsets_k))
        return false;
    if (!make_rows(m, "k", OF_K, TOKENS, table, n_pages, old, p->d, &a->k) ||
        !make_rows(m, "v", OF_V, TOKENS, table, n_pages, old, p->dv, &a->v))
        return false;
    return !p->k_swa ||
           (make_rows(m, "k_swa", OF_K_SWA, TOKENS, table, n_pages, false, p->d, &a->k_swa) &&
            make_rows(m, "v_swa", OF_V_SWA, TOKENS, table, n_pages, false, p->dv, &a->v_swa));
}

static bool make_compressed(const struct maker *m, bool old, bool values) {
    const struct nsa_line *p = m->line;
    struct ptl_nsa_params *a = &m->a->params;
    const struct ptl_tensor *table = p->page_size ? &a->page_table_c : NULL;
    int64_t n_pages = 0;
    if (table && !make_table(m, "page_table_c", COMPRESSED, OF_PAGES_C, &a->page_table_c, &n_pages))
        return false;
    if (!table && !p->dense && !make_offsets(m, "seq_offsets_kc", COMPRESSED, &a->seq_offsets_kc))
        return false;
    if (!make_rows(m, "kc", OF_KC, COMPRESSED, table, n_pages, old, p->d, &a->kc)) return false;
    return !values || make_rows(m, "vc", OF_VC, COMPRESSED, table, n_pages, old, p->dv, &a->vc);
}

static bool take_out(const struct maker *m, const char *name, struct ptl_tensor *t) {
    return take_rows_of(m, name, QUERIES, m->line->dtype, m->line->h, m->line->dv, t);
}

static bool take_lse(const struct maker *m, const char *name, struct ptl_tensor *t) {
    const struct nsa_line *p = m->line;
    const int64_t rows = p->dense ? most_rows(m, QUERIES) : m->seqs[p->b].first_q;
    const int64_t shape[3] = {p->b, rows, p->h};
    return take_array(m, name, PTL_F32, p->dense ? 3 : 2, shape + !p->dense, t);
}

static bool take_selection(const struct maker *m, bool nsel) {
    const struct nsa_line *p = m->line;
    struct ptl_nsa_params *a = &m->a->params;
    const int64_t rows = p->dense ? most_rows(m, QUERIES) : m->seqs[p->b].first_q;
    const int64_t shape[4] = {p->b, rows, p->hk, p->topk};
    const int skip = !p->dense;
    return take_array(m, "idx", PTL_I32, 4 - skip, shape + skip, &a->idx) &&
           (!nsel || take_array(m, "nsel", PTL_I32, 3 - skip, shape + skip, &a->nsel));
}

static int64_t n_blocks(const struct maker *m) {
    return (most_rows(m, TOKENS) + m->line->select_block - 1) / m->line->select_block;
}

static bool take_importance(const struct maker *m) {
    return take_rows_of(m, "importance", QUERIES, PTL_F32, m->line->hk, n_blocks(m),
                        &m->a->params.importance);
}

/* Scores with ties, as rounded ones have them. */
static bool make_importance(const struct maker *m) {
    const struct ptl_tensor *t = &m->a->params.importance;
    if (!take_importance(m)) return false;
    struct random_stream s = stream_at(m, OF_IMPORTANCE, 0, 0, 0);
    float *x = t->data;
    random_fill(&s, x, n_elements(t));
    for (int64_t i = 0; i < n_elements(t); i++) x[i] = floorf(256.0f * x[i]) / 256.0f;
    return true;
}

/* A selection as it might be: first and newest blocks, and one from each of equal stretches of the
 * others. */
static void fill_selection(const struct maker *m, const struct ptl_tensor *idx, int64_t b,
                           int64_t i, int64_t head) {
    const struct nsa_line *p = m->line;
    struct random_stream s = stream_at(m, OF_IMPORTANCE, b, i, head);
    const int64_t at = row_at(m, idx, QUERIES, NULL, b, i, head);
    const int64_t n = (m->seqs[b].old + i) / p->select_block + 1, k = least(p->topk, n);
    const int64_t first = least(p->n_init, k), last = least(p->n_local, k - first);
    const int64_t middle = k - first - last, others = n - first - last;
    for (int64_t e = 0; e < p->topk; e++) put_index_at(idx, at + e, -1);
    for (int64_t e = 0; e < first; e++) put_index_at(idx, at + e, e);
    for (int64_t e = 0; e < middle; e++)
        put_index_at(idx, at + first + e,
                     first +
                         random_between(&s, others * e / middle, others * (e + 1) / middle - 1));
    for (int64_t e = 0; e < last; e++) put_index_at(idx, at + first + middle + e, n - last + e);
}

static bool make_selection(const struct maker *m) {
    if (!take_selection(m, false)) return false;
    for (int64_t b = 0; b < m->line->b; b++)
        for (int64_t i = 0; i < m->seqs[b].q; i++)
            for (int64_t head = 0; head < m->line->hk; head++)
                fill_selection(m, &m->a->params.idx, b, i, head);
    return true;
}

static bool make_gates(const struct maker *m) {
    if (!take_rows_of(m, "gates", QUERIES, PTL_F32, m->line->h, 3, &m->a->params.gates))
        return false;
    fill_queries_of(m, OF_GATES, 1.0f, &m->a->params.gates);
    return true;
}

static bool take_branches(const struct maker *m) {
    struct ptl_nsa_params *a = &m->a->params;
    return take_out(m, "out_cmp", &a->out_cmp) && take_out(m, "out_slc", &a->out_slc) &&
           take_out(m, "out_swa", &a->out_swa);
}

static bool take_sums(const struct maker *m) {
    struct ptl_nsa_params *a = &m->a->params;
    return take_lse(m, "lse_cmp", &a->lse_cmp) && take_lse(m, "lse_slc", &a->lse_slc) &&
           take_lse(m, "lse_swa", &a->lse_swa);
}

/* Weights near 1 / block, and encodings; dim of the encodings. */
static bool make_mixture(const struct maker *m, const char *const names[2], int64_t dim,
                         struct ptl_tensor *w, struct ptl_tensor *pe) {
    const struct nsa_line *p = m->line;
    const int64_t shape[3] = {p->block, p->hk, dim};
    struct random_stream s = stream_at(m, OF_WEIGHTS, 0, dim, 0);
    if (p->mode == PTL_NSA_WEIGHTED) {
        if (!take_array(m, names[0], PTL_F32, 2, shape, w)) return false;
        float *x = w->data;
        random_fill(&s, x, n_elements(w));
        for (int64_t i = 0; i < n_elements(w); i++) x[i] = (1.0f + 0.5f * x[i]) / (float)p->block;
    }
    if (!p->pe) return true;
    if (!take_array(m, names[1], PTL_F32, 3, shape, pe)) return false;
    fill(&s, pe, 0, n_elements(pe));
    return true;
}

/* ---- Operators ------------------------------------------------------------------------------- */

static bool make_compress(struct maker *m) {
    static const char *const names[2] = {"w", "pe"};
    const struct nsa_line *p = m->line;
    struct ptl_nsa_compress_params *c = &m->a->compress;
    const bool jagged = !p->dense || p->page_size;
    const int64_t rows = jagged ? m->seqs[p->b].first_c : most_rows(m, COMPRESSED);
    const int64_t shape[4] = {p->b, rows, p->hk, p->d}, n_offsets = p->b + 1;
    if (!make_positions(m) || !make_keys(m, false)) return false;
    c->x = m->a->params.k;
    c->seqlens = m->a->params.seqlens_k;
    c->page_table = m->a->params.page_table;
    c->seq_offsets = m->a->params.seq_offsets_k;
    return take_array(m, "y", p->dtype, jagged ? 3 : 4, shape + jagged, &c->y) &&
           (!jagged ||
            take_array(m, "seq_offsets_y", p->index, 1, &n_offsets, &c->seq_offsets_y)) &&
           make_mixture(m, names, p->d, &c->w, &c->pe);
}

/* Caches before the query rows' tokens, and these. */
static bool make_append(struct maker *m) {
    static const char *const of_keys[2] = {"w_k", "pe_k"}, *const of_values[2] = {"w_v", "pe_v"};
    const struct nsa_line *p = m->line;
    const struct ptl_nsa_params *a = &m->a->params;
    struct ptl_nsa_append_params *c = &m->a->append;
    if (!p->page_size) return refuse(m->refusal, "page_size: 0, expected 1 or more (a cache)");
    if (!make_positions(m) || !make_keys(m, true) || !make_compressed(m, true, true) ||
        !make_new_tokens(m, "k", OF_K, p->d, &c->k) || !make_new_tokens(m, "v", OF_V, p->dv, &c->v))
        return false;
    c->seq_offsets = a->seq_offsets_q;
    c->seqlens_k = a->seqlens_k;
    c->k_pages = a->k;
    c->v_pages = a->v;
    c->page_table = a->page_table;
    c->kc_pages = a->kc;
    c->vc_pages = a->vc;
    c->page_table_c = a->page_table_c;
    return make_lengths(m, "seqlens_old", true, &c->seqlens_old) &&
           make_mixture(m, of_keys, p->d, &c->w_k, &c->pe_k) &&
           make_mixture(m, of_values, p->dv, &c->w_v, &c->pe_v);
}

static bool make_compressed_attention(struct maker *m) {
    const struct nsa_line *p = m->line;
    struct ptl_nsa_params *a = &m->a->params;
    return make_positions(m) && make_queries(m, "q", OF_Q, &a->q) &&
           make_compressed(m, false, p->out) && (!p->out || take_out(m, "out", &a->out_cmp)) &&
           (!p->lse || take_lse(m, "lse", &a->lse_cmp)) && (!p->importance || take_importance(m)) &&
           (!p->idx || take_selection(m, true));
}

static bool make_select(struct maker *m) {
    return make_positions(m) && make_importance(m) && take_selection(m, true);
}

static bool make_attend(struct maker *m) {
    const struct nsa_line *p = m->line;
    struct ptl_nsa_params *a = &m->a->params;
    if (!make_positions(m) || !make_queries(m, "q", OF_Q, &a->q) || !make_keys(m, false))
        return false;
    if (p->idx && (!make_selection(m) || !take_out(m, "out_slc", &a->out_slc) ||
                   (p->lse && !take_lse(m, "lse_slc", &a->lse_slc))))
        return false;
    return !p->window || (take_out(m, "out_swa", &a->out_swa) &&
                          (!p->lse || take_lse(m, "lse_swa", &a->lse_swa)));
}

static bool make_combine(struct maker *m) {
    struct ptl_nsa_params *a = &m->a->params;
    struct ptl_tensor *const branches[3] = {&a->out_cmp, &a->out_slc, &a->out_swa};
    if (!make_gates(m) || !take_branches(m) || !take_out(m, "out", &a->out)) return false;
    for (int i = 0; i < 3; i++) fill_queries_of(m, OF_BRANCHES + i, 1.0f, branches[i]);
    return true;
}

/* What nsa_forward and nsa_decode have besides their keys. */
static bool make_outputs(struct maker *m) {
    const struct nsa_line *p = m->line;
    struct ptl_nsa_params *a = &m->a->params;
    return make_queries(m, "q", OF_Q, &a->q) &&
           (!p->q_cmp || make_queries(m, "q_cmp", OF_Q_CMP, &a->q_cmp)) && make_gates(m) &&
           take_out(m, "out", &a->out) && (!p->idx || take_selection(m, false)) &&
           (!p->importance || take_importance(m)) &&
           (!p->branches || (take_branches(m) && take_sums(m)));
}

static bool make_forward(struct maker *m) {
    return make_positions(m) && make_keys(m, false) &&
           (!m->line->kc || make_compressed(m, false, true)) && make_outputs(m);
}

static bool make_decode(struct maker *m) {
    return make_append(m) && make_outputs(m);
}

static bool make_attention(struct maker *m) {
    const struct ptl_nsa_params *a = &m->a->params;
    struct ptl_attention_params *c = &m->a->attention;
    if (!make_positions(m) || !make_queries(m, "q", OF_Q, &c->q) || !make_keys(m, false))
        return false;
    c->k = a->k;
    c->v = a->v;
    c->seq_offsets_q = a->seq_offsets_q;
    c->seq_offsets_k = a->seq_offsets_k;
    c->seqlens_k = a->seqlens_k;
    c->page_table = a->page_table;
    return take_out(m, "out", &c->out) && (!m->line->lse || take_lse(m, "lse", &c->lse));
}

static const struct {
    const char *op;
    bool (*make)(struct maker *m);
} makers[] = {
    {"nsa_compress", make_compress},
    {"nsa_append", make_append},
    {"nsa_compressed_attention", make_compressed_attention},
    {"nsa_select", make_select},
    {"nsa_attend", make_attend},
    {"nsa_combine", make_combine},
    {"nsa_forward", make_forward},
    {"nsa_decode", make_decode},
    {"attention", make_attention},
    {"attention_decode", make_attention},
};

/* ---- Problems -------------------------------------------------------------------------------- */

void nsa_arguments_init(struct nsa_arguments *a) {
    ptl_nsa_params_init(&a->params);
    ptl_nsa_compress_params_init(&a->compress);
    ptl_nsa_append_params_init(&a->append);
    ptl_attention_params_init(&a->attention);
}

static void set_options(struct nsa_arguments *a, const struct nsa_line *p) {
    a->params.block = a->compress.block = a->append.block = p->block;
    a->params.stride = a->compress.stride = a->append.stride = p->stride;
    a->compress.mode = a->append.mode = p->mode;
    a->params.select_block = p->select_block;
    a->params.topk = p->topk;
    a->params.n_init = p->n_init;
    a->params.n_local = p->n_local;
    a->params.window = a->attention.window = p->window;
    a->params.dense_len = p->dense_len;
    a->params.scale = a->attention.scale = (float)p->scale;
    a->params.score = p->score;
    a->params.pool = p->pool;
    a->params.order = p->order;
    a->params.score_dtype = p->score_dtype;
    a->params.gate_act = p->gate_act;
}

bool nsa_problem_make(struct nsa_arguments *a, const char *op, const struct nsa_line *line,
                      struct problem_memory *memory, struct refusal *r) {
    struct maker m = {.a = a, .line = line, .memory = memory, .refusal = r};
    size_t i = 0;
    while (i < sizeof makers / sizeof makers[0] && strcmp(makers[i].op, op) != 0) i++;
    if (i == sizeof makers / sizeof makers[0]) return refuse(r, "'%.60s': no operator of NSA", op);
    nsa_arguments_init(a);
    set_options(a, line);
    const bool ok = draw_sequences(&m) && makers[i].make(&m);
    free(m.seqs);
    return ok;
}
