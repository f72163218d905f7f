/* Paged keys: the same bits as contiguous ones for every page size and every split of the history,
 * filled by ptl_hstu_kv_append in any number of calls. That NaN in free slots stays out is part of
 * every problem. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../ref/elements.h"
#include "../../ref/hstu.h"
#include "guard.h"
#include "hstu_twins.h"
#include "op_suites.h"
#include "tensor_check.h"

static const int page_sizes[] = {1, 3, 16, 64, 128};

#define COUNT(list) ((int)(sizeof(list) / sizeof((list)[0])))

static void paged_is_contiguous(void) {
    static const char *const options[] = {
        "d=24 h=2",
        "d=17 h=4 hk=2 dtype=bf16 index=i32 num_targets=list:9,0,1,3 target_group_size=2",
        "d=8 h=1 dtype=f16 num_targets=list:9,0,0,12 num_contexts=5 window_size=30,0",
        "d=8 h=2 rule=none view=gap bias=dense bias_head=h bias_rows=key",
        "d=5 h=3 rule=local:40,3 attn_scale=token",
        "d=8 h=2 mask=random mask_batch=b view=bhsd",
        "d=8 h=2 intervals=4 pos_table=h time_table=1 times=random dtype=bf16",
        ("d=40 h=1 num_targets=list:9,0,2,1 time_table=1 time_query=own window_size=50,0 "
         "min_full_attn_seq_len=9"),
    };
    for (int i = 0; i < COUNT(options); i++)
        for (int s = 0; s < COUNT(page_sizes); s++) {
            char plain[MAX_LINE], paged[MAX_LINE];
            const char *lengths = test_quick()
                                      ? "lengths=list:9,0,2,12 lengths_k=list:19,4,2,40"
                                      : "lengths=list:31,0,7,150 lengths_k=list:201,4,9,300";
            snprintf(plain, sizeof plain, "%s %s", lengths, options[i]);
            snprintf(paged, sizeof paged, "%s page_size=%d", plain, page_sizes[s]);
            twins_lines(plain, paged, 0);
        }
}

/* What may not be read holds infinities as well as NaN. */
static void infinite_slots(void) {
    struct problem problem;
    const char *line =
        "hstu lengths=list:40,9 lengths_k=list:150,33 d=9 h=2 page_size=7 num_targets=list:5,9";
    test_case("%s", line);
    if (!hstu_problem(&problem, line)) return;
    struct ptl_hstu_params *p = &problem.hstu;
    struct ptl_tensor *const t[4] = {&p->k, &p->v, &p->k_pages, &p->v_pages};
    for (int i = 0; i < 4; i++) {
        float *x = t[i]->data;
        for (int64_t k = tensor_span(t[i]) - 1; k >= 0; k--)
            if (isnan(x[k])) x[k] = k % 3 ? INFINITY : -INFINITY;
    }
    hstu_check(p);
    problem_destroy(&problem);
}

static void key_offsets_that_agree(void) {
    struct problem problem;
    const char *line =
        "hstu lengths=list:4,9 lengths_k=list:50,33 d=9 page_size=7 num_targets=list:2,9";
    test_case("%s seq_offsets_k=0,50,83", line);
    if (!hstu_problem(&problem, line)) return;
    int64_t offsets[3] = {0, 50, 83};
    struct ptl_hstu_params given = problem.hstu;
    given.seq_offsets_k = ptl_tensor_contiguous(offsets, PTL_I64, 1, (const int64_t[]){3});
    twins_forward(&problem.hstu, &given, "seq_offsets_k given");
    problem_destroy(&problem);
}

/* ---- Appending ------------------------------------------------------------------------------- */

/* A cache with room for every sequence, its pages in descending order, all NaN. */
struct cache {
    struct ptl_tensor k, v;
    int64_t page_size, n_seqs, room; /* pages of each sequence */
    int64_t *offsets, *ids;
};

static struct cache cache_create(enum ptl_dtype type, int64_t n_seqs, int64_t most,
                                 int64_t page_size, int64_t heads, int64_t dim) {
    struct cache c = {.page_size = page_size, .n_seqs = n_seqs};
    c.room = (most + page_size - 1) / page_size + 1;
    const int64_t n_pages = n_seqs * c.room + 3, shape[4] = {n_pages, page_size, heads, dim};
    const size_t bytes = (size_t)(n_pages * page_size * heads * dim) * ptl_dtype_bytes(type);
    c.offsets = test_alloc((size_t)(n_seqs + 1) * sizeof *c.offsets);
    c.ids = test_alloc((size_t)(n_seqs * c.room) * sizeof *c.ids);
    for (int64_t b = 0; b <= n_seqs; b++) c.offsets[b] = b * c.room;
    for (int64_t i = 0; i < n_seqs * c.room; i++) c.ids[i] = n_pages - 2 - i;
    c.k = ptl_tensor_contiguous(test_alloc(bytes), type, 4, shape);
    c.v = ptl_tensor_contiguous(test_alloc(bytes), type, 4, shape);
    memset(c.k.data, 0xff, bytes);
    memset(c.v.data, 0xff, bytes);
    return c;
}

static void cache_destroy(struct cache *c) {
    free(c->k.data);
    free(c->v.data);
    free(c->offsets);
    free(c->ids);
}

static bool append(struct ptl_context *ctx, struct cache *c, const struct ptl_tensor *k,
                   const struct ptl_tensor *v, int64_t *offsets, int64_t *targets,
                   int64_t *cached) {
    struct ptl_hstu_kv_append_params a;
    const int64_t n = c->n_seqs, n1 = n + 1, n_ids = n * c->room;
    ptl_hstu_kv_append_params_init(&a);
    a.k = *k;
    a.v = *v;
    a.seq_offsets = ptl_tensor_contiguous(offsets, PTL_I64, 1, &n1);
    a.num_targets = ptl_tensor_contiguous(targets, PTL_I64, 1, &n);
    a.n_cached = ptl_tensor_contiguous(cached, PTL_I64, 1, &n);
    a.k_pages = c->k;
    a.v_pages = c->v;
    a.page_offsets = ptl_tensor_contiguous(c->offsets, PTL_I64, 1, &n1);
    a.page_ids = ptl_tensor_contiguous(c->ids, PTL_I64, 1, &n_ids);
    if (ptl_hstu_kv_append(ctx, &a) == PTL_OK) return true;
    FAIL("append: %s", ptl_message());
    return false;
}

enum { N_SEQS = 3 };

/* Rows [begin, end) of every sequence of t, in a contiguous array of their own. */
static struct ptl_tensor some_rows(const struct ptl_tensor *t, const int64_t *offsets,
                                   const int64_t *begin, const int64_t *end, int64_t *new_offsets) {
    const size_t row_bytes = (size_t)(t->shape[1] * t->shape[2]) * ptl_dtype_bytes(t->dtype);
    new_offsets[0] = 0;
    for (int b = 0; b < N_SEQS; b++) new_offsets[b + 1] = new_offsets[b] + end[b] - begin[b];
    const int64_t shape[3] = {new_offsets[N_SEQS], t->shape[1], t->shape[2]};
    char *to = test_alloc((size_t)shape[0] * row_bytes), *at = to;
    for (int b = 0; b < N_SEQS; b++)
        for (int64_t i = begin[b]; i < end[b]; i++, at += row_bytes)
            memcpy(at, (char *)t->data + (size_t)(offsets[b] + i) * row_bytes, row_bytes);
    return ptl_tensor_contiguous(to, t->dtype, 3, shape);
}

/* The whole in one call; then its last rows against a cache that was filled in steps. Rows of the
 * cached history are NaN in the call's k and v. */
static void check_split(const struct ptl_hstu_params *whole, const struct hstu_variant *v,
                        const float *expected, struct test_random *r, int64_t page_size) {
    const int64_t *offsets = whole->seq_offsets_q.data, *targets = whole->num_targets.data;
    int64_t begin[N_SEQS], end[N_SEQS], history[N_SEQS], cached[N_SEQS],
        none[N_SEQS] = {0, 0, 0}, part_offsets[N_SEQS + 1], most = 0;
    for (int b = 0; b < N_SEQS; b++) {
        end[b] = offsets[b + 1] - offsets[b];
        history[b] = end[b] - targets[b];
        if (history[b] > most) most = history[b];
    }
    struct cache c =
        cache_create(whole->q.dtype, N_SEQS, most, page_size, whole->k.shape[1], whole->k.shape[2]);
    const int steps = (int)test_random_int(r, 1, 4);
    memset(cached, 0, sizeof cached);
    for (int s = 0; s <= steps;
         s++) { /* the last step appends the rest, with the targets behind it */
        int64_t stop[N_SEQS], new_offsets[N_SEQS + 1];
        for (int b = 0; b < N_SEQS; b++)
            stop[b] = s < steps ? test_random_int(r, cached[b], history[b]) : end[b];
        struct ptl_tensor k = some_rows(&whole->k, offsets, cached, stop, new_offsets);
        struct ptl_tensor values = some_rows(&whole->v, offsets, cached, stop, new_offsets);
        append(v->ctx, &c, &k, &values, new_offsets, s < steps ? none : (int64_t *)targets, cached);
        for (int b = 0; b < N_SEQS; b++) cached[b] = s < steps ? stop[b] : history[b];
        free(k.data);
        free(values.data);
    }

    /* The call for the rows from `begin` on. */
    int64_t page_offsets[N_SEQS + 1] = {0}, last[N_SEQS];
    int64_t *ids = test_alloc((size_t)(N_SEQS * c.room) * sizeof *ids);
    for (int b = 0; b < N_SEQS; b++) {
        const int64_t pages = (history[b] + page_size - 1) / page_size;
        begin[b] = test_random_int(r, 0, history[b]);
        memcpy(ids + page_offsets[b], c.ids + b * c.room, (size_t)pages * sizeof *ids);
        page_offsets[b + 1] = page_offsets[b] + pages;
        last[b] = history[b] - (pages - 1) * page_size;
    }
    struct ptl_hstu_params p = *whole;
    p.q = some_rows(&whole->q, offsets, begin, end, part_offsets);
    p.k = some_rows(&whole->k, offsets, begin, end, part_offsets);
    p.v = some_rows(&whole->v, offsets, begin, end, part_offsets);
    const size_t row_bytes = (size_t)(p.k.stride[0]) * ptl_dtype_bytes(p.k.dtype);
    for (int b = 0; b < N_SEQS; b++)
        for (int64_t i = part_offsets[b]; i < part_offsets[b + 1] - targets[b]; i++) {
            memset((char *)p.k.data + (size_t)i * row_bytes, 0xff, row_bytes);
            memset((char *)p.v.data + (size_t)i * row_bytes, 0xff, row_bytes);
        }
    p.out = ptl_tensor_contiguous(test_alloc((size_t)tensor_elements(&p.q) * 4), p.q.dtype, 3,
                                  p.q.shape);
    p.seq_offsets_q =
        ptl_tensor_contiguous(part_offsets, PTL_I64, 1, (const int64_t[]){N_SEQS + 1});
    p.k_pages = c.k;
    p.v_pages = c.v;
    p.page_offsets = ptl_tensor_contiguous(page_offsets, PTL_I64, 1, (const int64_t[]){N_SEQS + 1});
    p.page_ids = ptl_tensor_contiguous(ids, PTL_I64, 1, &page_offsets[N_SEQS]);
    p.last_page_lens = ptl_tensor_contiguous(last, PTL_I64, 1, (const int64_t[]){N_SEQS});
    const int64_t n = hstu_out_floats(&p), row = p.q.shape[1] * p.q.shape[2];
    float *got = test_alloc((size_t)n * sizeof *got);
    if (hstu_run(&p, v, got))
        for (int b = 0; b < N_SEQS; b++)
            if (memcmp(got + part_offsets[b] * row, expected + (offsets[b] + begin[b]) * row,
                       (size_t)((end[b] - begin[b]) * row) * sizeof *got) != 0)
                FAIL("%s: page_size=%lld, sequence %d from row %lld on: not the bits of the whole",
                     v->name, (long long)page_size, b, (long long)begin[b]);
    free(got);
    free(p.out.data);
    free(p.q.data);
    free(p.k.data);
    free(p.v.data);
    free(ids);
    cache_destroy(&c);
}

static void any_split(void) {
    static const char *const options[] = {
        "d=12 h=2 num_targets=list:9,0,1",
        "d=8 h=4 hk=2 dtype=bf16 num_targets=list:20,0,1 target_group_size=3 num_contexts=4",
        "d=8 h=1 dtype=f16 num_targets=list:5,0,1 window_size=30,0",
    };
    struct test_random r = {77};
    for (int i = 0; i < COUNT(options); i++) {
        struct problem problem;
        char line[MAX_LINE];
        snprintf(line, sizeof line, "hstu lengths=list:%s %s", test_quick() ? "25,0,2" : "230,0,41",
                 options[i]);
        test_case("%s", line);
        if (!hstu_problem(&problem, line)) continue;
        float *expected = test_alloc((size_t)hstu_out_floats(&problem.hstu) * sizeof *expected);
        const struct hstu_variant *v;
        for (int n = 0; (v = hstu_variant(n)) != NULL; n++) {
            if (!hstu_run(&problem.hstu, v, expected)) break;
            for (int s = 0; s < COUNT(page_sizes); s++)
                check_split(&problem.hstu, v, expected, &r, page_sizes[s]);
        }
        free(expected);
        problem_destroy(&problem);
    }
}

/* Every slot against what a plain copy puts there; the others keep their bits. */
static void check_append(struct test_random *r, enum ptl_dtype type, const struct hstu_variant *v) {
    const int64_t heads = test_random_int(r, 1, 3), dqk = test_random_int(r, 1, 40);
    const int64_t dv = test_random_int(r, 1, 40), page_size = test_random_int(r, 1, 9);
    int64_t offsets[N_SEQS + 1] = {0}, targets[N_SEQS], cached[N_SEQS], most = 0;
    for (int b = 0; b < N_SEQS; b++) {
        const int64_t rows = test_random_int(r, 0, 1) * test_random_int(r, 0, 60);
        offsets[b + 1] = offsets[b] + rows;
        targets[b] = test_random_int(r, 0, rows);
        cached[b] = test_random_int(r, 0, 20);
        if (cached[b] + rows > most) most = cached[b] + rows;
    }
    struct cache c = cache_create(type, N_SEQS, most, page_size, heads, dqk),
                 d = cache_create(type, N_SEQS, most, page_size, heads, dv);
    free(c.v.data);
    c.v = d.v; /* of the head size of v */
    d.v.data = NULL;
    const int64_t k_shape[3] = {offsets[N_SEQS] + 2, heads, dqk},
                  v_shape[3] = {k_shape[0], heads, dv};
    struct ptl_tensor k = ptl_tensor_contiguous(NULL, type, 3, k_shape);
    struct ptl_tensor values = ptl_tensor_contiguous(NULL, type, 3, v_shape);
    k.stride[0] += 3; /* rows apart */
    const size_t bytes = ptl_dtype_bytes(type);
    const int64_t n_k = k_shape[0] * k.stride[0], n_v = v_shape[0] * values.stride[0];
    k.data = test_alloc((size_t)n_k * bytes);
    values.data = test_alloc((size_t)n_v * bytes);
    for (int64_t i = 0; i < n_k; i++) ref_write(type, k.data, i, (double)test_random_float(r));
    for (int64_t i = 0; i < n_v; i++) ref_write(type, values.data, i, (double)test_random_float(r));

    const size_t k_bytes = (size_t)tensor_elements(&c.k) * bytes,
                 v_bytes = (size_t)tensor_elements(&c.v) * bytes;
    char *k_expected = test_alloc(k_bytes), *v_expected = test_alloc(v_bytes);
    memcpy(k_expected, c.k.data, k_bytes);
    memcpy(v_expected, c.v.data, v_bytes);
    for (int b = 0; b < N_SEQS; b++)
        for (int64_t x = 0; x < offsets[b + 1] - offsets[b] - targets[b]; x++) {
            const int64_t token = cached[b] + x;
            const int64_t slot =
                c.ids[b * c.room + token / page_size] * page_size + token % page_size;
            memcpy(k_expected + (size_t)(slot * heads * dqk) * bytes,
                   (char *)k.data + (size_t)((offsets[b] + x) * k.stride[0]) * bytes,
                   (size_t)(heads * dqk) * bytes);
            memcpy(v_expected + (size_t)(slot * heads * dv) * bytes,
                   (char *)values.data + (size_t)((offsets[b] + x) * values.stride[0]) * bytes,
                   (size_t)(heads * dv) * bytes);
        }
    if (append(v->ctx, &c, &k, &values, offsets, targets, cached) &&
        (memcmp(c.k.data, k_expected, k_bytes) != 0 || memcmp(c.v.data, v_expected, v_bytes) != 0))
        FAIL("%s: page_size=%lld rows=%lld,%lld,%lld: slots differ", v->name, (long long)page_size,
             (long long)offsets[1], (long long)(offsets[2] - offsets[1]),
             (long long)(offsets[3] - offsets[2]));
    free(k_expected);
    free(v_expected);
    free(k.data);
    free(values.data);
    cache_destroy(&c);
    cache_destroy(&d);
}

static void append_copies(void) {
    static const enum ptl_dtype types[] = {PTL_F32, PTL_F16, PTL_BF16};
    struct test_random r = {78};
    const struct hstu_variant *v;
    for (int i = 0; (v = hstu_variant(i)) != NULL; i++) {
        test_case("%s", v->name);
        for (int n = 0; n < (test_quick() ? 10 : 200); n++) check_append(&r, types[n % 3], v);
    }
}

/* Enough rows for every thread. */
static void append_much(void) {
    enum { ROWS = 3000, DIM = 64, HEADS = 2 };
    const int64_t shape[3] = {ROWS, HEADS, DIM};
    int64_t offsets[N_SEQS + 1] = {0, 1000, 1000, ROWS}, targets[N_SEQS] = {7, 0, 0},
                             cached[N_SEQS] = {5, 0, 333};
    struct cache one = cache_create(PTL_F32, N_SEQS, 3400, 16, HEADS, DIM);
    float *x = test_alloc(sizeof(float) * ROWS * HEADS * DIM);
    struct test_random r = {79};
    for (int64_t i = 0; i < ROWS * HEADS * DIM; i++) x[i] = test_random_float(&r);
    struct ptl_tensor k = ptl_tensor_contiguous(x, PTL_F32, 3, shape);
    const size_t bytes = (size_t)tensor_elements(&one.k) * sizeof(float);
    const struct hstu_variant *v;
    for (int i = 0; (v = hstu_variant(i)) != NULL; i++) {
        struct cache c = cache_create(PTL_F32, N_SEQS, 3400, 16, HEADS, DIM);
        append(v->ctx, i ? &c : &one, &k, &k, offsets, targets, cached);
        if (i &&
            (memcmp(c.k.data, one.k.data, bytes) != 0 || memcmp(c.v.data, one.v.data, bytes) != 0))
            FAIL("%s: not the slots of serial", v->name);
        cache_destroy(&c);
    }
    cache_destroy(&one);
    free(x);
}

static const struct test tests[] = {
    {"paged_is_contiguous", paged_is_contiguous},
    {"infinite_slots", infinite_slots},
    {"key_offsets_that_agree", key_offsets_that_agree},
    {"any_split_of_the_history", any_split},
    {"append_copies", append_copies},
    {"append_much", append_much},
};
TEST_SUITE(hstu_paged_suite, "hstu/paged", tests);
