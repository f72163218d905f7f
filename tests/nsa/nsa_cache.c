/* ptl_nsa_append: caches of pages that grow, go back and fork in random steps, rings, slots. After
 * every step the caches are, bit for bit, what copies of the tokens and ptl_nsa_compress of the
 * whole sequences make. */
#include <stdlib.h>
#include <string.h>

#include "nsa_compare.h"
#include "nsa_suites.h"
#include "ops/tensor_check.h"

enum { N_SEQS = 4, MAX_TOKENS = 90, MAX_PAGES = N_SEQS * (MAX_TOKENS + 2) };

/* Pages of keys or of values, and what they should hold. */
struct pool {
    struct ptl_tensor t, twin; /* [n, page, H, D] */
    enum nsa_what what;
};

/* Which page holds the rows s / page of each sequence; users of each of the n pages. */
struct pages {
    int64_t size, n, table[N_SEQS][MAX_TOKENS];
    int users[MAX_PAGES];
    bool is_ring; /* page b is the ring of sequence b */
};

/* Sequences of tokens with ids: rows of equal ids hold the same numbers. */
struct cache {
    struct nsa_problem x;
    struct test_random r;
    struct ptl_nsa_append_params a; /* its options; the arrays of a step come on top */
    int64_t length[N_SEQS], id[N_SEQS][MAX_TOKENS], next_id;
    struct pages tokens, blocks;
    struct pool k, v, kc, vc;
};

static int64_t n_blocks(const struct cache *c, int64_t n_tokens) {
    return ptl_nsa_compressed_length(n_tokens, c->a.block, c->a.stride);
}

/* ---- Pages ----------------------------------------------------------------------------------- */

static size_t bytes_of(const struct ptl_tensor *t) {
    return (size_t)tensor_span(t) * ptl_dtype_bytes(t->dtype);
}

static void create_pages(struct pages *p, int64_t size) {
    p->size = size;
    p->n = N_SEQS * (MAX_TOKENS / size + 2);
    memset(p->table, 0xff, sizeof p->table);
}

static void create_pool(struct cache *c, struct pool *p, enum nsa_what what,
                        const struct pages *pages, int64_t dim) {
    const struct nsa_spec *s = &c->x.spec;
    const int64_t shape[4] = {pages->n, pages->size, s->kv_heads, dim};
    p->t = nsa_array(&c->x, false, s->dtype, 4, shape, s->gap);
    p->twin = p->t;
    p->twin.data = test_alloc(bytes_of(&p->t));
    p->what = what;
    tensor_wipe(&p->t);
    tensor_wipe(&p->twin);
}

static void check_pool(const struct pool *p, const char *name) {
    if (memcmp(p->t.data, p->twin.data, bytes_of(&p->t)) == 0) return;
    const size_t element = ptl_dtype_bytes(p->t.dtype);
    size_t i = 0;
    while (((char *)p->t.data)[i] == ((char *)p->twin.data)[i]) i++;
    const int64_t at = (int64_t)(i / element);
    FAIL("%s: page %d, row %d, element %d differs", name, (int)(at / p->t.stride[0]),
         (int)(at % p->t.stride[0] / p->t.stride[1]), (int)(at % p->t.stride[1]));
}

static int64_t row_at(const struct ptl_tensor *t, int64_t row, int64_t head) {
    return row / t->shape[1] * t->stride[0] + row % t->shape[1] * t->stride[1] +
           head * t->stride[2];
}

static void copy_page(struct pool *p, int64_t from, int64_t to) {
    const size_t element = ptl_dtype_bytes(p->t.dtype), row = (size_t)p->t.shape[3] * element;
    for (int64_t i = 0; i < p->t.shape[1]; i++)
        for (int64_t h = 0; h < p->t.shape[2]; h++) {
            const size_t a = (size_t)row_at(&p->t, from * p->t.shape[1] + i, h) * element;
            const size_t b = (size_t)row_at(&p->t, to * p->t.shape[1] + i, h) * element;
            memcpy((char *)p->t.data + b, (char *)p->t.data + a, row);
            memcpy((char *)p->twin.data + b, (char *)p->twin.data + a, row);
        }
}

/* Sequence b owns the pages of rows begin .. end-1, of which it is to write; rows before begin keep
 * what they hold. Pages behind are given up. */
static void own_pages(struct cache *c, struct pages *p, struct pool *keys, struct pool *values,
                      int64_t b, int64_t begin, int64_t end) {
    for (int64_t i = 0; i < MAX_TOKENS; i++) {
        int64_t *page = &p->table[b][i];
        if (i * p->size >= end) {
            if (*page >= 0) p->users[*page]--;
            *page = -1;
            continue;
        }
        if ((i + 1) * p->size <= begin || (*page >= 0 && p->users[*page] == 1)) continue;
        int64_t fresh = test_random_int(&c->r, 0, p->n - 1);
        while (p->users[fresh]) fresh = (fresh + 1) % p->n;
        if (*page >= 0) {
            p->users[*page]--;
            copy_page(keys, *page, fresh);
            copy_page(values, *page, fresh);
        }
        p->users[fresh] = 1;
        *page = fresh;
    }
}

static void fork_pages(struct pages *p, int64_t from, int64_t to) {
    for (int64_t i = 0; i < MAX_TOKENS; i++) {
        if (p->table[to][i] >= 0) p->users[p->table[to][i]]--;
        p->table[to][i] = p->table[from][i];
        if (p->table[to][i] >= 0) p->users[p->table[to][i]]++;
    }
}

/* The row of the pool for row i of a sequence; in rings b is the page. */
static int64_t slot_of(const struct pages *p, int64_t b, int64_t i) {
    return (p->is_ring ? b : p->table[b][i / p->size]) * p->size + i % p->size;
}

/* ---- A step ---------------------------------------------------------------------------------- */

/* What changes: tokens old .. new-1 of each sequence are appended. */
struct step {
    struct nsa_problem x; /* its arrays */
    int64_t before[N_SEQS], after[N_SEQS];
};

static void fill_token(const struct cache *c, enum nsa_what what, int64_t b, int64_t s,
                       const struct ptl_tensor *t, int64_t at, int64_t head) {
    nsa_fill_row(&c->x.spec, what, c->id[b][s], 0, head, t, at);
}

static struct ptl_tensor indices(struct step *step, int64_t n, const int64_t *numbers) {
    const struct ptl_tensor t = nsa_array(&step->x, true, step->x.spec.index, 1, &n, 0);
    for (int64_t i = 0; i < n; i++) nsa_set_index(&t, i, numbers[i]);
    return t;
}

static struct ptl_tensor table_of(struct step *step, const struct pages *p) {
    const int64_t shape[2] = {N_SEQS, MAX_TOKENS};
    const struct ptl_tensor t = nsa_array(&step->x, true, step->x.spec.index, 2, shape, 0);
    for (int64_t b = 0; b < N_SEQS; b++)
        for (int64_t i = 0; i < MAX_TOKENS; i++)
            nsa_set_index(&t, b * MAX_TOKENS + i, p->table[b][i]);
    return t;
}

/* The new tokens, one sequence after the other, or the last ones of rows alike. */
static struct ptl_tensor new_rows(const struct cache *c, struct step *step, enum nsa_what what,
                                  int64_t dim, bool is_dense) {
    const struct nsa_spec *s = &c->x.spec;
    int64_t total = 0, most = 1, row = 0;
    for (int b = 0; b < N_SEQS; b++) {
        const int64_t n = step->after[b] - step->before[b];
        total += n;
        if (n > most) most = n;
    }
    const int64_t jagged[3] = {total, s->kv_heads, dim},
                  dense[4] = {N_SEQS, most, s->kv_heads, dim};
    const struct ptl_tensor t =
        nsa_array(&step->x, true, s->dtype, is_dense ? 4 : 3, is_dense ? dense : jagged, s->gap);
    for (int b = 0; b < N_SEQS; b++)
        for (int64_t i = step->before[b]; i < step->after[b]; i++, row++)
            for (int64_t h = 0; h < s->kv_heads; h++) {
                const int64_t at = is_dense ? b * t.stride[0] +
                                                  (most - step->after[b] + i) * t.stride[1] +
                                                  h * t.stride[2]
                                            : row * t.stride[0] + h * t.stride[1];
                fill_token(c, what, b, i, &t, at, h);
            }
    return t;
}

/* All blocks of sequence b: ptl_nsa_compress of its tokens. */
static struct ptl_tensor compressed(const struct cache *c, struct step *step,
                                    struct ptl_context *ctx, const struct pool *tokens, int64_t b) {
    const int64_t heads = c->x.spec.kv_heads, dim = tokens->t.shape[3], n = step->after[b];
    const bool is_value = tokens == &c->v;
    const int64_t offsets[2] = {0, n};
    struct ptl_nsa_compress_params p;
    ptl_nsa_compress_params_init(&p);
    p.block = c->a.block;
    p.stride = c->a.stride;
    p.mode = c->a.mode;
    p.x = nsa_array(&step->x, false, tokens->t.dtype, 3, (const int64_t[]){n, heads, dim}, 0);
    p.y = nsa_array(&step->x, false, tokens->t.dtype, 3,
                    (const int64_t[]){n_blocks(c, n), heads, dim}, 0);
    p.seq_offsets = indices(step, 2, offsets);
    p.w = is_value ? c->a.w_v : c->a.w_k;
    p.pe = is_value ? c->a.pe_v : c->a.pe_k;
    for (int64_t s = 0; s < n; s++)
        for (int64_t h = 0; h < heads; h++)
            fill_token(c, tokens->what, b, s, &p.x, (s * heads + h) * dim, h);
    if (ptl_nsa_compress(ctx, &p) != PTL_OK) FAIL("compress: %s", ptl_message());
    return p.y;
}

/* The twins become what the pools should be. skip[b][j]: the j-th new block goes nowhere. */
static void expect(struct cache *c, struct step *step, struct ptl_context *ctx,
                   bool skip[N_SEQS][MAX_TOKENS]) {
    struct pool *const token_pools[2] = {&c->k, &c->v}, *const block_pools[2] = {&c->kc, &c->vc};
    for (int side = 0; side < 2; side++) {
        const struct ptl_tensor *tokens = &token_pools[side]->twin,
                                *blocks = &block_pools[side]->twin;
        const size_t bytes = (size_t)tokens->shape[3] * ptl_dtype_bytes(tokens->dtype);
        for (int64_t b = 0; b < N_SEQS; b++) {
            for (int64_t s = step->before[b]; s < step->after[b]; s++)
                for (int64_t h = 0; h < tokens->shape[2]; h++)
                    fill_token(c, token_pools[side]->what, b, s, tokens,
                               row_at(tokens, slot_of(&c->tokens, b, s), h), h);
            const int64_t first = n_blocks(c, step->before[b]), n = n_blocks(c, step->after[b]);
            if (first == n) continue;
            const struct ptl_tensor y = compressed(c, step, ctx, token_pools[side], b);
            for (int64_t i = first; i < n; i++)
                for (int64_t h = 0; h < blocks->shape[2] && !skip[b][i - first]; h++)
                    memcpy((char *)blocks->data +
                               (size_t)row_at(blocks, slot_of(&c->blocks, b, i), h) *
                                   ptl_dtype_bytes(blocks->dtype),
                           (char *)y.data + (size_t)(i * blocks->shape[2] + h) * bytes, bytes);
        }
    }
}

enum form { JAGGED_ROWS, DENSE_ROWS, IN_PAGES, N_FORMS };

/* [N_SEQS, block, H, D] over the first pages. */
static struct ptl_tensor ring_of(const struct pool *p) {
    struct ptl_tensor t = p->t;
    t.shape[0] = N_SEQS;
    return t;
}

static void append(struct cache *c, struct step *step, struct ptl_context *ctx, enum form form,
                   bool by_slots) {
    static bool skip[N_SEQS][MAX_TOKENS];
    const struct nsa_spec *s = &c->x.spec;
    struct ptl_nsa_append_params a = c->a;
    memset(skip, 0, sizeof skip);
    for (int64_t b = 0; b < N_SEQS; b++) {
        if (!c->tokens.is_ring)
            own_pages(c, &c->tokens, &c->k, &c->v, b, step->before[b], step->after[b]);
        own_pages(c, &c->blocks, &c->kc, &c->vc, b, n_blocks(c, step->before[b]),
                  n_blocks(c, step->after[b]));
    }
    a.seqlens_old = indices(step, N_SEQS, step->before);
    a.seqlens_k = indices(step, N_SEQS, step->after);
    if (c->tokens.is_ring) {
        a.k_ring = ring_of(&c->k);
        a.v_ring = ring_of(&c->v);
    } else {
        a.page_table = table_of(step, &c->tokens);
        a.k_pages = c->k.t;
        a.v_pages = c->v.t;
    }
    a.kc_pages = c->kc.t;
    a.vc_pages = c->vc.t;
    if (form != IN_PAGES) {
        a.k = new_rows(c, step, NSA_K, s->d, form == DENSE_ROWS);
        a.v = new_rows(c, step, NSA_V, s->dv, form == DENSE_ROWS);
    }
    if (form == JAGGED_ROWS) {
        int64_t offsets[N_SEQS + 1] = {0};
        for (int b = 0; b < N_SEQS; b++)
            offsets[b + 1] = offsets[b] + step->after[b] - step->before[b];
        a.seq_offsets = indices(step, N_SEQS + 1, offsets);
    }
    if (by_slots) {
        const int64_t shape[2] = {N_SEQS, MAX_TOKENS};
        a.slots = nsa_array(&step->x, true, s->index, 2, shape, 0);
        for (int64_t b = 0; b < N_SEQS; b++)
            for (int64_t j = 0; j < MAX_TOKENS; j++) {
                const int64_t i = n_blocks(c, step->before[b]) + j;
                const bool is_new = i < n_blocks(c, step->after[b]);
                skip[b][j] = is_new && test_random_int(&c->r, 0, 9) == 0;
                nsa_set_index(&a.slots, b * MAX_TOKENS + j,
                              !is_new      ? INT32_MIN
                              : skip[b][j] ? -1
                                           : slot_of(&c->blocks, b, i));
            }
    } else {
        a.page_table_c = table_of(step, &c->blocks);
    }
    expect(c, step, ctx, skip);
    if (form == IN_PAGES) {
        memcpy(c->k.t.data, c->k.twin.data, bytes_of(&c->k.t));
        memcpy(c->v.t.data, c->v.twin.data, bytes_of(&c->v.t));
    }
    nsa_protect(&step->x);
    const enum ptl_status status = ptl_nsa_append(ctx, &a);
    if (status != PTL_OK) FAIL("%s: %s", ptl_status_name(status), ptl_message());
    check_pool(&c->k, "k_pages");
    check_pool(&c->v, "v_pages");
    check_pool(&c->kc, "kc_pages");
    check_pool(&c->vc, "vc_pages");
}

/* ---- Random steps ---------------------------------------------------------------------------- */

/* Weights and encodings for both sides, where wanted. */
static void create_weights(struct cache *c) {
    const struct nsa_spec *s = &c->x.spec;
    struct ptl_tensor *const w[2] = {&c->a.w_k, &c->a.w_v}, *const pe[2] = {&c->a.pe_k, &c->a.pe_v};
    for (int side = 0; side < 2; side++) {
        const int64_t shape[3] = {c->a.block, s->kv_heads, side ? s->dv : s->d};
        *w[side] = nsa_array(&c->x, true, PTL_F32, 2, shape, 0);
        *pe[side] = nsa_array(&c->x, true, s->dtype, 3, shape, 0);
        for (int64_t i = 0; i < c->a.block; i++) {
            nsa_fill_row(s, NSA_GATES, side, i, 0, w[side], i * shape[1]);
            for (int64_t h = 0; h < shape[1]; h++)
                nsa_fill_row(s, NSA_VC, side, i, h, pe[side], (i * shape[1] + h) * shape[2]);
        }
    }
}

static void create_cache(struct cache *c, const struct nsa_spec *s) {
    memset(c, 0, sizeof *c);
    c->x.spec = *s;
    c->r.state = s->seed;
    ptl_nsa_append_params_init(&c->a);
    c->a.block = s->o.block;
    c->a.stride = s->o.stride;
    create_pages(&c->tokens, s->page);
    create_pages(&c->blocks, s->page_c);
    create_pool(c, &c->k, NSA_K, &c->tokens, s->d);
    create_pool(c, &c->v, NSA_V, &c->tokens, s->dv);
    create_pool(c, &c->kc, NSA_KC, &c->blocks, s->d);
    create_pool(c, &c->vc, NSA_VC, &c->blocks, s->dv);
    if (!s->mean) {
        c->a.mode = PTL_NSA_WEIGHTED;
        create_weights(c);
    }
}

static void destroy_cache(struct cache *c) {
    struct pool *const pools[4] = {&c->k, &c->v, &c->kc, &c->vc};
    for (int i = 0; i < 4; i++) free(pools[i]->twin.data);
    nsa_destroy(&c->x);
}

/* What happens to each sequence: nothing, some tokens, many, or first a step back or a fork of
 * another one. */
static void choose(struct cache *c, struct step *step) {
    for (int64_t b = 0; b < N_SEQS; b++) {
        const int64_t action = test_random_int(&c->r, 0, 9);
        if (action == 0 && c->length[b] > 0) { /* back */
            c->length[b] = test_random_int(&c->r, 0, c->length[b]);
        } else if (action == 1) { /* fork */
            const int64_t from = (b + test_random_int(&c->r, 1, N_SEQS - 1)) % N_SEQS;
            c->length[b] = c->length[from];
            memcpy(c->id[b], c->id[from], sizeof c->id[b]);
            fork_pages(&c->tokens, from, b);
            fork_pages(&c->blocks, from, b);
        }
    }
    for (int64_t b = 0; b < N_SEQS; b++) {
        static const int64_t most[] = {0, 1, 1, 1, 4, 4, 30};
        int64_t n = test_random_int(&c->r, 0, most[test_random_int(&c->r, 0, 6)]);
        if (c->length[b] + n > MAX_TOKENS) c->length[b] = n = 0; /* a new sequence */
        step->before[b] = c->length[b];
        step->after[b] = c->length[b] + n;
        for (int64_t s = step->before[b]; s < step->after[b]; s++) c->id[b][s] = ++c->next_id;
        c->length[b] = step->after[b];
    }
}

static void random_steps(const struct nsa_spec *s, int level, int n_steps) {
    struct cache c;
    test_case("%s, %s", nsa_spec_text(s), ptl_isa_name(test_level(level)));
    create_cache(&c, s);
    for (int n = 0; n < n_steps && !test_case_failed(); n++) {
        struct step step;
        memset(&step, 0, sizeof step);
        step.x.spec = *s;
        choose(&c, &step);
        append(&c, &step, nsa_variant(level, n)->ctx,
               (enum form)test_random_int(&c.r, 0, N_FORMS - 1), test_random_int(&c.r, 0, 3) == 0);
        if (test_case_failed()) FAIL("in step %d", n);
        nsa_destroy(&step.x);
    }
    destroy_cache(&c);
}

static void grow_go_back_fork(void) {
    static const struct {
        int64_t block, stride, page, page_c, kv_heads, d, dv, gap;
        bool mean;
    } caches[] = {{4, 2, 3, 4, 2, 5, 3, 0, true},
                  {6, 6, 1, 1, 1, 1, 8, 0, false},
                  {8, 2, 16, 3, 2, 8, 8, 3, false},
                  {5, 1, 7, 16, 1, 3, 4, 1, true},
                  {32, 16, 16, 2, 1, 16, 8, 0, true}};
    for (size_t n = 0; n < sizeof caches / sizeof *caches; n++)
        for (int level = 0; level < test_n_levels(); level++) {
            struct nsa_spec s;
            nsa_spec_init(&s);
            s.seed = 10 * n + (uint64_t)level;
            s.o.block = caches[n].block;
            s.o.stride = caches[n].stride;
            s.page = caches[n].page;
            s.page_c = caches[n].page_c;
            s.kv_heads = caches[n].kv_heads;
            s.d = caches[n].d;
            s.dv = caches[n].dv;
            s.gap = caches[n].gap;
            s.mean = caches[n].mean;
            s.dtype = (enum ptl_dtype)(PTL_F32 + n % 3);
            s.index = n % 2 ? PTL_I32 : PTL_I64;
            random_steps(&s, level, test_quick() ? 60 : n == 0 ? 1000 : 300);
        }
}

/* ---- Rings ----------------------------------------------------------------------------------- */

/* No tokens are kept but the last `block`: the blocks are those of whole sequences all the same. */
static void rings(void) {
    static const struct {
        int64_t block, stride, most;
    } steps[] = {{4, 2, 1}, {4, 2, 3}, {6, 2, 40}, {5, 5, 12}, {8, 1, 4}, {1, 1, 3}};
    for (size_t n = 0; n < sizeof steps / sizeof *steps; n++)
        for (int level = 0; level < test_n_levels(); level++) {
            struct nsa_spec s;
            struct cache c;
            nsa_spec_init(&s);
            s.seed = n;
            s.o.block = steps[n].block;
            s.o.stride = steps[n].stride;
            s.page = steps[n].block; /* the ring of a sequence is a page */
            s.page_c = 3;
            s.kv_heads = 2;
            s.dtype = (enum ptl_dtype)(PTL_F32 + n % 3);
            s.mean = n % 2;
            test_case("%s, %s", nsa_spec_text(&s), ptl_isa_name(test_level(level)));
            create_cache(&c, &s);
            c.tokens.is_ring = true;
            for (int i = 0; i < 30 && !test_case_failed(); i++) {
                struct step step;
                memset(&step, 0, sizeof step);
                step.x.spec = s;
                for (int64_t b = 0; b < N_SEQS; b++) {
                    int64_t more = test_random_int(&c.r, 0, steps[n].most);
                    if (c.length[b] + more > MAX_TOKENS) more = 0;
                    step.before[b] = c.length[b];
                    step.after[b] = c.length[b] += more;
                    for (int64_t t = step.before[b]; t < step.after[b]; t++)
                        c.id[b][t] = ++c.next_id;
                }
                append(&c, &step, nsa_variant(level, i)->ctx, i % 3 ? JAGGED_ROWS : DENSE_ROWS,
                       i % 4 == 0);
                if (test_case_failed()) FAIL("in step %d", i);
                nsa_destroy(&step.x);
            }
            destroy_cache(&c);
        }
}

static const struct test tests[] = {
    {"grow_go_back_fork", grow_go_back_fork},
    {"rings", rings},
};
TEST_SUITE(nsa_cache_suite, "nsa/cache", tests);
