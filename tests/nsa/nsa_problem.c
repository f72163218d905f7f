/* Specs, arrays and their contents. */
#define _GNU_SOURCE
#include "nsa_problem.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "elements.h"
#include "ops/tensor_check.h"

static int64_t max64(int64_t a, int64_t b) {
    return a > b ? a : b;
}

/* ---- Specs ----------------------------------------------------------------------------------- */

void nsa_spec_init(struct nsa_spec *s) {
    memset(s, 0, sizeof *s);
    ptl_nsa_params_init(&s->o);
    s->o.block = 4;
    s->o.stride = 2;
    s->o.select_block = 8;
    s->o.topk = 5;
    s->o.window = 11;
    s->seed = 1;
    s->kv_heads = 1;
    s->group = 2;
    s->d = 8;
    s->dv = 6;
    s->dtype = PTL_F32;
    s->index = PTL_I64;
    s->magnitude = 4.0f;
    s->slack = 1.0;
    nsa_spec_length(s, 40, 40);
}

void nsa_spec_length(struct nsa_spec *s, int64_t n_tokens, int64_t n_queries) {
    s->n_seqs = 1;
    s->seq[0] = (struct nsa_seq){0, n_tokens, n_queries};
}

void nsa_spec_random(struct nsa_spec *s, uint64_t seed, int64_t most) {
    static const int64_t pages[] = {1, 3, 4, 16, 64};
    static const int64_t groups[] = {1, 1, 2, 3, 4, 5, 8, 12};
    static const int64_t dims[] = {1, 2, 3, 4, 7, 8, 9, 16, 17, 24};
    struct test_random random = {seed}, *r = &random;
    nsa_spec_init(s);
    s->seed = seed;
    s->o.stride = test_random_int(r, 1, 4);
    s->o.block = s->o.stride * test_random_int(r, 1, 5);
    s->o.select_block = s->o.stride * test_random_int(r, 1, 6);
    s->o.n_init = test_random_int(r, 0, 2);
    s->o.n_local = test_random_int(r, 0, 3);
    s->o.topk = max64(1, s->o.n_init + s->o.n_local + test_random_int(r, 0, 5));
    s->o.window = test_random_int(r, 0, 3) ? test_random_int(r, 1, most) : 0;
    if (test_random_int(r, 0, 3) == 0) s->o.dense_len = test_random_int(r, 0, most);
    s->o.score = (enum ptl_nsa_score)test_random_int(r, 0, 2);
    s->o.pool = test_random_int(r, 0, 3) ? PTL_NSA_POOL_SUM : PTL_NSA_POOL_MAX;
    s->o.order = (enum ptl_nsa_order)test_random_int(r, 0, 1);
    s->o.gate_act = (enum ptl_nsa_gate_act)test_random_int(r, 0, 1);
    s->dtype = (enum ptl_dtype)test_random_int(r, PTL_F32, PTL_BF16);
    s->index = test_random_int(r, 0, 1) ? PTL_I64 : PTL_I32;
    s->kv_heads = test_random_int(r, 1, 3);
    s->group = groups[test_random_int(r, 0, 7)];
    s->d = dims[test_random_int(r, 0, 9)];
    s->dv = dims[test_random_int(r, 0, 9)];
    if (test_random_int(r, 0, 2) == 0)
        s->o.scale = 2.0f * test_random_float(r) / sqrtf((float)s->d);
    s->layout = (enum nsa_layout)test_random_int(r, 0, 2);
    s->gap = test_random_int(r, 0, 1) * test_random_int(r, 1, 5);
    s->pad = test_random_int(r, 0, 1) * test_random_int(r, 1, 5);
    if (test_random_int(r, 0, 1)) s->page = pages[test_random_int(r, 0, 4)];
    if (test_random_int(r, 0, 1)) s->page_c = pages[test_random_int(r, 0, 4)];
    s->q_cmp = test_random_int(r, 0, 2) == 0;
    s->swa = test_random_int(r, 0, 2) == 0;
    s->mean = test_random_int(r, 0, 3) == 0;
    s->lse_in = test_random_int(r, 0, 5) == 0;
    s->count = test_random_int(r, 0, 3) == 0;
    s->gates_f32 = test_random_int(r, 0, 1);
    s->n_seqs = (int)test_random_int(r, 1, 4);
    for (int b = 0; b < s->n_seqs; b++) {
        const int64_t n =
            test_random_int(r, 0, 3) ? test_random_int(r, 1, most) : test_random_int(r, 0, 2);
        s->seq[b] = (struct nsa_seq){b + 1, n, test_random_int(r, 0, 1) ? n : (n + 1) / 2};
    }
    if (s->layout == NSA_JAGGED) return;
    const int64_t n_queries = test_random_int(r, 0, most / 2);
    for (int b = 0; b < s->n_seqs; b++) {
        s->seq[b].n_tokens = max64(s->seq[b].n_tokens, n_queries);
        s->seq[b].n_queries = n_queries;
    }
}

const char *nsa_spec_text(const struct nsa_spec *s) {
    static char text[1024];
    static const char *const layouts[] = {"jagged", "dense", "bhsd"};
    static const char *const types[] = {"", "f32", "f16", "bf16", "i32", "i64"};
    const struct ptl_nsa_params *o = &s->o;
    char *at = text, *const end = text + sizeof text;
#define SAY(...) at += snprintf(at, (size_t)(end - at), __VA_ARGS__)
#define NUMBER(name, value)                                                                        \
    if (value) SAY(" %s=%lld", name, (long long)(value))
    SAY("nsa seed=%llu %s %s %s s=", (unsigned long long)s->seed, types[s->dtype], types[s->index],
        layouts[s->layout]);
    for (int b = 0; b < s->n_seqs; b++)
        SAY("%s%lld/%lld", b ? "," : "", (long long)s->seq[b].n_queries,
            (long long)s->seq[b].n_tokens);
    SAY(" hk=%lld g=%lld d=%lld dv=%lld block=%lld/%lld select=%lld", (long long)s->kv_heads,
        (long long)s->group, (long long)s->d, (long long)s->dv, (long long)o->block,
        (long long)o->stride, (long long)o->select_block);
    SAY(" topk=%lld/%lld/%lld window=%lld magnitude=%g", (long long)o->topk, (long long)o->n_init,
        (long long)o->n_local, (long long)o->window, (double)s->magnitude);
    if (!isnan(o->scale)) SAY(" scale=%g", (double)o->scale);
    NUMBER("dense_len", o->dense_len);
    NUMBER("score", o->score);
    NUMBER("pool", o->pool);
    NUMBER("order", o->order);
    NUMBER("score_dtype", o->score_dtype == PTL_F32 ? 0 : o->score_dtype);
    NUMBER("gate_act", o->gate_act);
    NUMBER("page", s->page);
    NUMBER("page_c", s->page_c);
    NUMBER("pad", s->pad);
    NUMBER("gap", s->gap);
    NUMBER("q_cmp", s->q_cmp);
    NUMBER("swa", s->swa);
    NUMBER("mean", s->mean);
    NUMBER("lse_in", s->lse_in);
    NUMBER("count", s->count);
    NUMBER("gates_f32", s->gates_f32);
    NUMBER("equal_keys", s->equal_keys);
#undef NUMBER
#undef SAY
    return text;
}

/* ---- Memory ---------------------------------------------------------------------------------- */

static void protect(struct nsa_problem *x, int access) {
    for (int i = 0; i < x->n_guards; i++)
        if (x->is_input[i]) mprotect(x->guards[i].memory, x->guards[i].bytes, access);
}

void nsa_unprotect(struct nsa_problem *x) {
    protect(x, PROT_READ | PROT_WRITE);
}
void nsa_protect(struct nsa_problem *x) {
    protect(x, PROT_READ);
}

void nsa_destroy(struct nsa_problem *x) {
    for (int i = 0; i < x->n_guards; i++) guard_destroy(&x->guards[i]);
    x->n_guards = 0;
}

/* Gives the tensor its memory: the span that its strides make; for no elements a place where
 * nothing can be read. */
static void take(struct nsa_problem *x, bool is_input, struct ptl_tensor *t) {
    t->data = x; /* anything: the span of an absent tensor is 0 */
    const size_t bytes = (size_t)tensor_span(t) * ptl_dtype_bytes(t->dtype);
    const size_t words = (bytes + 3) / 4;
    struct guard *g = &x->guards[x->n_guards];
    *g = guard_create(4 * words);
    x->is_input[x->n_guards++] = is_input;
    t->data = (char *)guard_floats(g, words) + (4 * words - bytes);
}

struct ptl_tensor nsa_array(struct nsa_problem *x, bool is_input, enum ptl_dtype dtype, int ndim,
                            const int64_t *shape, int64_t gap) {
    struct ptl_tensor t = ptl_tensor_contiguous(NULL, dtype, ndim, shape);
    for (int axis = ndim - 2; axis >= 0; axis--)
        t.stride[axis] = t.stride[axis + 1] * shape[axis + 1] + gap;
    take(x, is_input, &t);
    return t;
}

/* ---- Contents -------------------------------------------------------------------------------- */

static struct test_random stream(const struct nsa_spec *s, int64_t what, int64_t id, int64_t row,
                                 int64_t head) {
    const int64_t key[4] = {what, id, row, head};
    struct test_random r = {s->seed};
    for (int i = 0; i < 4; i++) r.state = test_random_bits(&r) ^ (uint64_t)key[i];
    return r;
}

void nsa_fill_row(const struct nsa_spec *s, enum nsa_what what, int64_t id, int64_t row,
                  int64_t head, const struct ptl_tensor *t, int64_t at) {
    const bool is_key = what == NSA_K || what == NSA_KC || what == NSA_K_SWA;
    struct test_random r = stream(s, what, id, s->equal_keys && is_key ? 0 : row, head);
    const float magnitude = what == NSA_Q || what == NSA_Q_CMP ? s->magnitude : 1.0f;
    for (int64_t d = 0; d < t->shape[t->ndim - 1]; d++)
        ref_write(t->dtype, t->data, at + d, (double)(magnitude * test_random_float(&r)));
}

void nsa_set_row(const struct ptl_tensor *t, int64_t at, double number) {
    for (int64_t d = 0; d < t->shape[t->ndim - 1]; d++)
        ref_write(t->dtype, t->data, at + d, number);
}

void nsa_set_index(const struct ptl_tensor *t, int64_t i, int64_t number) {
    if (t->dtype == PTL_I64) ((int64_t *)t->data)[i] = number;
    else ((int32_t *)t->data)[i] = (int32_t)number;
}

static struct ptl_tensor index_array(struct nsa_problem *x, int ndim, const int64_t *shape) {
    return nsa_array(x, true, x->spec.index, ndim, shape, 0);
}

static int64_t n_compressed(const struct nsa_problem *x, int b) {
    return ptl_nsa_compressed_length(x->spec.seq[b].n_tokens, x->p.block, x->p.stride);
}

/* B + 1 offsets of parts of these lengths. */
static struct ptl_tensor offsets_array(struct nsa_problem *x, const int64_t *lengths) {
    const struct ptl_tensor t = index_array(x, 1, &(int64_t){x->spec.n_seqs + 1});
    int64_t at = 0;
    nsa_set_index(&t, 0, 0);
    for (int b = 0; b < x->spec.n_seqs; b++) nsa_set_index(&t, b + 1, at += lengths[b]);
    return t;
}

/* ---- Rows of queries: q, gates, outputs ------------------------------------------------------ */

static int64_t n_rows(const struct nsa_spec *s) {
    int64_t n = 0;
    for (int b = 0; b < s->n_seqs; b++) n += s->seq[b].n_queries;
    return n;
}

/* [rows, heads, last] or [B, Q, heads, last]; a last extent of 0: no such axis. Index tensors are
 * contiguous. */
static struct ptl_tensor query_array(struct nsa_problem *x, bool is_input, enum ptl_dtype dtype,
                                     int64_t heads, int64_t last, int64_t gap) {
    const struct nsa_spec *s = &x->spec;
    const int64_t n_queries = s->n_seqs ? s->seq[0].n_queries : 0;
    const int64_t jagged[3] = {n_rows(s), heads, last},
                  dense[4] = {s->n_seqs, n_queries, heads, last};
    const int ndim = (s->layout == NSA_JAGGED ? 2 : 3) + (last > 0);
    if (s->layout != NSA_BHSD || last == 0 || dtype >= PTL_I32)
        return nsa_array(x, is_input, dtype, ndim, s->layout == NSA_JAGGED ? jagged : dense, gap);
    const int64_t bhsd[4] = {s->n_seqs, heads, n_queries, last};
    struct ptl_tensor t = nsa_array(x, is_input, dtype, 4, bhsd, gap);
    const int64_t stride = t.stride[1];
    memcpy(t.shape, dense, sizeof dense);
    t.stride[1] = t.stride[2];
    t.stride[2] = stride;
    return t;
}

static struct ptl_tensor query_input(struct nsa_problem *x, enum nsa_what what,
                                     enum ptl_dtype dtype, int64_t last) {
    const struct nsa_spec *s = &x->spec;
    const struct ptl_tensor t = query_array(x, true, dtype, s->kv_heads * s->group, last, s->gap);
    int64_t row = 0;
    for (int b = 0; b < s->n_seqs; b++)
        for (int64_t i = 0; i < s->seq[b].n_queries; i++, row++)
            for (int64_t h = 0; h < s->kv_heads * s->group; h++) {
                const int64_t first =
                    t.ndim == 4 ? b * t.stride[0] + i * t.stride[1] : row * t.stride[0];
                nsa_fill_row(s, what, s->seq[b].id, s->seq[b].n_tokens - s->seq[b].n_queries + i, h,
                             &t, first + h * t.stride[t.ndim - 2]);
            }
    return t;
}

/* count and lse_in: a number for each row and head. */
static void fill_numbers(struct nsa_problem *x, const struct ptl_tensor *t, bool is_count) {
    const struct nsa_spec *s = &x->spec;
    const int64_t heads = t->shape[t->ndim - 1];
    int64_t at = 0;
    for (int b = 0; b < s->n_seqs; b++)
        for (int64_t i = 0; i < s->seq[b].n_queries; i++)
            for (int64_t h = 0; h < heads; h++, at++) {
                struct test_random r = stream(s, is_count ? 100 : 101, s->seq[b].id,
                                              s->seq[b].n_tokens - s->seq[b].n_queries + i, h);
                if (is_count) nsa_set_index(t, at, test_random_int(&r, 0, s->o.topk + 1));
                else if (test_random_int(&r, 0, 7) == 0) ((float *)t->data)[at] = -INFINITY;
                else ((float *)t->data)[at] = 3.0f + test_random_float(&r);
            }
}

/* ---- Rows of tokens and of compressed keys --------------------------------------------------- */

enum { PRIME = 7919 }; /* no divisor of a number of pages */

static int64_t n_pages(int64_t n, int64_t page) {
    return (n + page - 1) / page;
}

/* Shuffled pages, more than are used; entries behind the last used one are no pages. */
static struct ptl_tensor table_array(struct nsa_problem *x, const int64_t *lengths, int64_t page,
                                     int64_t *n_all) {
    const struct nsa_spec *s = &x->spec;
    int64_t widest = 0, n = 2;
    for (int b = 0; b < s->n_seqs; b++) {
        widest = max64(widest, n_pages(lengths[b], page));
        n += n_pages(lengths[b], page);
    }
    const int64_t shape[2] = {s->n_seqs, widest + 1};
    const struct ptl_tensor t = index_array(x, 2, shape);
    int64_t at = 0;
    for (int b = 0; b < s->n_seqs; b++)
        for (int64_t m = 0; m < shape[1]; m++) {
            const bool is_used = m < n_pages(lengths[b], page);
            const int64_t shuffled = (++at * PRIME + 1) % n;
            nsa_set_index(&t, b * shape[1] + m, is_used ? shuffled : INT32_MIN);
            at -= !is_used;
        }
    *n_all = n;
    return t;
}

/* Rows of sequences of `lengths` in the layout of the spec, with `pad` more behind each. */
static struct ptl_tensor key_array(struct nsa_problem *x, const int64_t *lengths, int64_t page,
                                   int64_t n_all, int64_t dim) {
    const struct nsa_spec *s = &x->spec;
    int64_t total = 0, most = 0;
    for (int b = 0; b < s->n_seqs; b++) {
        total += lengths[b] + s->pad;
        most = max64(most, lengths[b] + s->pad);
    }
    const int64_t paged[4] = {n_all, page, s->kv_heads, dim}, jagged[3] = {total, s->kv_heads, dim},
                  dense[4] = {s->n_seqs, most, s->kv_heads, dim},
                  bhsd[4] = {s->n_seqs, s->kv_heads, most, dim};
    if (page) return nsa_array(x, true, s->dtype, 4, paged, s->gap);
    if (s->layout == NSA_JAGGED) return nsa_array(x, true, s->dtype, 3, jagged, s->gap);
    if (s->layout == NSA_DENSE) return nsa_array(x, true, s->dtype, 4, dense, s->gap);
    struct ptl_tensor t = nsa_array(x, true, s->dtype, 4, bhsd, s->gap);
    const int64_t stride = t.stride[1];
    memcpy(t.shape, dense, sizeof dense);
    t.stride[1] = t.stride[2];
    t.stride[2] = stride;
    return t;
}

static int64_t key_at(const struct ptl_tensor *t, const struct ptl_tensor *table,
                      const struct ptl_tensor *offsets, int b, int64_t row, int64_t head) {
    if (t->ndim == 3) return (ref_index(offsets, b) + row) * t->stride[0] + head * t->stride[1];
    int64_t outer = b;
    if (table->data) {
        outer = ref_index(table, b * table->shape[1] + row / t->shape[1]);
        row %= t->shape[1];
    }
    return outer * t->stride[0] + row * t->stride[1] + head * t->stride[2];
}

int64_t nsa_token_at(const struct nsa_problem *x, const struct ptl_tensor *t, int b, int64_t row,
                     int64_t head) {
    const struct ptl_tensor *offsets =
        x->p.seq_offsets_k.data ? &x->p.seq_offsets_k : &x->p.seq_offsets_q;
    return key_at(t, &x->p.page_table, offsets, b, row, head);
}

int64_t nsa_compressed_at(const struct nsa_problem *x, const struct ptl_tensor *t, int b,
                          int64_t row, int64_t head) {
    return key_at(t, &x->p.page_table_c, &x->p.seq_offsets_kc, b, row, head);
}

static void fill_tokens(struct nsa_problem *x, const struct ptl_tensor *t, enum nsa_what what) {
    const struct nsa_spec *s = &x->spec;
    for (int b = 0; b < s->n_seqs; b++)
        for (int64_t row = 0; row < s->seq[b].n_tokens; row++)
            for (int64_t h = 0; h < s->kv_heads; h++)
                nsa_fill_row(s, what, s->seq[b].id, row, h, t, nsa_token_at(x, t, b, row, h));
}

static void fill_compressed(struct nsa_problem *x, const struct ptl_tensor *t, enum nsa_what what) {
    const struct nsa_spec *s = &x->spec;
    for (int b = 0; b < s->n_seqs; b++)
        for (int64_t row = 0; row < n_compressed(x, b); row++)
            for (int64_t h = 0; h < s->kv_heads; h++)
                nsa_fill_row(s, what, s->seq[b].id, row, h, t, nsa_compressed_at(x, t, b, row, h));
}

/* ---- Problems -------------------------------------------------------------------------------- */

static void create_queries(struct nsa_problem *x) {
    const struct nsa_spec *s = &x->spec;
    int64_t lengths[NSA_MAX_SEQS];
    for (int b = 0; b < s->n_seqs; b++) lengths[b] = s->seq[b].n_queries;
    if (s->layout == NSA_JAGGED) x->p.seq_offsets_q = offsets_array(x, lengths);
    x->p.q = query_input(x, NSA_Q, s->dtype, s->d);
    if (s->q_cmp) x->p.q_cmp = query_input(x, NSA_Q_CMP, s->dtype, s->d);
    x->p.gates = query_input(x, NSA_GATES, s->gates_f32 ? PTL_F32 : s->dtype, 3);
    if (s->count) {
        x->p.count = query_array(x, true, s->index, s->kv_heads, 0, 0);
        fill_numbers(x, &x->p.count, true);
    }
    if (s->lse_in) {
        x->p.lse_in = query_array(x, true, PTL_F32, s->kv_heads * s->group, 0, 0);
        fill_numbers(x, &x->p.lse_in, false);
    }
}

static void create_tokens(struct nsa_problem *x) {
    const struct nsa_spec *s = &x->spec;
    int64_t lengths[NSA_MAX_SEQS], padded[NSA_MAX_SEQS], n_all = 0;
    bool is_prefill = s->layout == NSA_JAGGED && !s->page && !s->pad;
    bool is_alike = s->layout != NSA_JAGGED && !s->page && !s->pad;
    for (int b = 0; b < s->n_seqs; b++) {
        lengths[b] = s->seq[b].n_tokens;
        padded[b] = lengths[b] + s->pad;
        is_prefill = is_prefill && lengths[b] == s->seq[b].n_queries;
        is_alike = is_alike && lengths[b] == lengths[0];
    }
    if (s->page) x->p.page_table = table_array(x, lengths, s->page, &n_all);
    else if (s->layout == NSA_JAGGED && !is_prefill) x->p.seq_offsets_k = offsets_array(x, padded);
    if (s->page || s->pad || (s->layout != NSA_JAGGED && !is_alike)) {
        x->p.seqlens_k = index_array(x, 1, &(int64_t){s->n_seqs});
        for (int b = 0; b < s->n_seqs; b++) nsa_set_index(&x->p.seqlens_k, b, lengths[b]);
    }
    struct ptl_tensor *const t[4] = {&x->p.k, &x->p.v, &x->p.k_swa, &x->p.v_swa};
    static const enum nsa_what what[4] = {NSA_K, NSA_V, NSA_K_SWA, NSA_V_SWA};
    for (int i = 0; i < (s->swa ? 4 : 2); i++) {
        *t[i] = key_array(x, lengths, s->page, n_all, i % 2 ? s->dv : s->d);
        fill_tokens(x, t[i], what[i]);
    }
}

static void create_compressed(struct nsa_problem *x) {
    const struct nsa_spec *s = &x->spec;
    int64_t lengths[NSA_MAX_SEQS], padded[NSA_MAX_SEQS], n_all = 0;
    for (int b = 0; b < s->n_seqs; b++) {
        lengths[b] = n_compressed(x, b);
        padded[b] = lengths[b] + s->pad;
    }
    if (s->page_c) x->p.page_table_c = table_array(x, lengths, s->page_c, &n_all);
    else if (s->layout == NSA_JAGGED) x->p.seq_offsets_kc = offsets_array(x, padded);
    x->p.kc = key_array(x, lengths, s->page_c, n_all, s->d);
    x->p.vc = key_array(x, lengths, s->page_c, n_all, s->dv);
    fill_compressed(x, &x->p.kc, NSA_KC);
    fill_compressed(x, &x->p.vc, NSA_VC);
    x->kc = x->p.kc;
    x->vc = x->p.vc;
    x->seq_offsets_kc = x->p.seq_offsets_kc;
}

/* Rows for the blocks of all that x has of a sequence, one sequence after the other or dense. */
static void create_means(struct nsa_problem *x) {
    const struct nsa_spec *s = &x->spec;
    int64_t n_blocks = 0, most = 0;
    for (int b = 0; b < s->n_seqs; b++) {
        n_blocks += n_compressed(x, b);
        most = max64(most, s->seq[b].n_tokens + s->pad);
    }
    most = ptl_nsa_compressed_length(most, x->p.block, x->p.stride);
    struct ptl_tensor *const t[2] = {&x->kc, &x->vc};
    for (int i = 0; i < 2; i++) {
        const int64_t dim = i ? s->dv : s->d;
        const int64_t jagged[3] = {n_blocks, s->kv_heads, dim},
                      dense[4] = {s->n_seqs, most, s->kv_heads, dim};
        const bool is_dense = !s->page && s->layout != NSA_JAGGED;
        *t[i] = nsa_array(x, false, s->dtype, is_dense ? 4 : 3, is_dense ? dense : jagged, s->gap);
    }
    if (s->page || s->layout == NSA_JAGGED)
        x->seq_offsets_kc = nsa_array(x, false, s->index, 1, &(int64_t){s->n_seqs + 1}, 0);
}

static void create_outputs(struct nsa_problem *x) {
    const struct nsa_spec *s = &x->spec;
    const int64_t heads = s->kv_heads * s->group;
    struct ptl_nsa_params *p = &x->p;
    struct ptl_tensor *const out[4] = {&p->out, &p->out_cmp, &p->out_slc, &p->out_swa};
    struct ptl_tensor *const lse[3] = {&p->lse_cmp, &p->lse_slc, &p->lse_swa};
    int64_t longest = 0;
    for (int b = 0; b < s->n_seqs; b++) longest = max64(longest, s->seq[b].n_tokens);
    const int64_t n_blocks = (longest + p->select_block - 1) / p->select_block;
    for (int i = 0; i < 4; i++) *out[i] = query_array(x, false, s->dtype, heads, s->dv, s->gap);
    for (int i = s->lse_in; i < 3; i++) *lse[i] = query_array(x, false, PTL_F32, heads, 0, s->gap);
    p->importance =
        query_array(x, false, PTL_F32, s->kv_heads, max64(1, n_blocks + s->gap), s->gap);
    p->idx = query_array(x, false, PTL_I32, s->kv_heads, p->topk, 0);
    p->nsel = query_array(x, false, PTL_I32, s->kv_heads, 0, 0);
}

void nsa_create(struct nsa_problem *x, const struct nsa_spec *spec) {
    memset(x, 0, sizeof *x);
    x->spec = *spec;
    x->p = spec->o;
    create_queries(x);
    create_tokens(x);
    if (spec->mean) create_means(x);
    else create_compressed(x);
    create_outputs(x);
    nsa_protect(x);
}
