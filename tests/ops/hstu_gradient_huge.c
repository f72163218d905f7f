/* Offsets above 2^31 elements for what hstu_huge.c does not have: halves, biases, tables,
 * intervals, pages, gradients, the cache that is appended to. The numbers must be those of the
 * compact problem, bit for bit. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../ref/elements.h"
#include "hstu_backward_check.h"
#include "op_suites.h"
#include "sparse.h"
#include "tensor_check.h"

static const int64_t big = (int64_t)1 << 31;

/* Elements of a far tensor against floats in C order. */
static void compare(const struct ptl_tensor *far, const float *expected, const char *name,
                    const char *variant) {
    const int64_t n = tensor_elements(far);
    for (int64_t i = 0; i < n; i++) {
        const float got = (float)ref_read(far->dtype, far->data, tensor_offset(far, i));
        if (memcmp(&got, &expected[i], sizeof got) == 0) continue;
        FAIL("%s: %s[%lld] is %.9g, compact %.9g", variant, name, (long long)i, (double)got,
             (double)expected[i]);
        return;
    }
}

/* The far problem (which may share tensors with the compact one) on every variant. */
static void check_far(const struct problem *compact, const struct ptl_hstu_params *p,
                      const struct ptl_hstu_grads *g) {
    const bool backward = compact->grads.dq.data != NULL;
    struct hstu_grad_floats grads = hstu_grad_floats_create(&compact->grads);
    float *out = test_alloc((size_t)(backward ? 1 : hstu_out_floats(p)) * sizeof *out);
    const struct hstu_variant *v;
    for (int i = 0; (v = hstu_variant(i)) != NULL; i++) {
        if (backward ? !hstu_run_backward(&compact->hstu, &compact->grads, v, &grads)
                     : !hstu_run(&compact->hstu, v, out))
            break;
        if ((backward ? ptl_hstu_backward(v->ctx, p, g) : ptl_hstu_forward(v->ctx, p)) != PTL_OK) {
            FAIL("%s: %s", v->name, ptl_message());
            break;
        }
        if (!backward) compare(&p->out, out, "out", v->name);
        for (int k = 0; backward && k < N_GRADS; k++)
            if (grads.grad[k]) compare(hstu_grad(g, k), grads.grad[k], hstu_grad_names[k], v->name);
    }
    hstu_grad_floats_destroy(&grads);
    free(out);
}

static void check_line(const char *line, const int64_t *rows, const int64_t *bias,
                       int64_t head_stride, const int64_t *times, int64_t intervals,
                       const int64_t *pages) {
    struct problem problem;
    struct sparse s = {.n = 0};
    test_case("%s", line);
    if (!hstu_problem(&problem, line)) return;
    struct ptl_hstu_params p = problem.hstu;
    struct ptl_hstu_grads g = problem.grads;
    struct ptl_tensor *const all_rows[] = {&p.q, &p.k, &p.v, &p.out, &g.dout, &g.dq, &g.dk, &g.dv};
    struct ptl_tensor *const biases[] = {&p.attn_bias, &g.dbias};
    struct ptl_tensor *const tables[] = {&p.pos_table, &p.time_table, &g.dpos_table,
                                         &g.dtime_table};
    struct ptl_tensor *const paged[] = {&p.k_pages, &p.v_pages};
    for (int i = 0; rows && i < 8; i++)
        if (all_rows[i]->data) *all_rows[i] = sparse_spread(&s, all_rows[i], rows);
    for (int i = 0; bias && i < 2; i++)
        if (biases[i]->data) *biases[i] = sparse_spread(&s, biases[i], bias);
    for (int i = 0; head_stride && i < 4; i++)
        if (tables[i]->data) *tables[i] = sparse_spread(&s, tables[i], &head_stride);
    if (times) p.timestamps = sparse_spread(&s, &p.timestamps, times);
    if (intervals) p.intervals = sparse_spread(&s, &p.intervals, &intervals);
    for (int i = 0; pages && i < 2; i++) *paged[i] = sparse_spread(&s, paged[i], pages);
    if (s.failed) test_skip("no room for sparse mappings");
    else check_far(&problem, &p, &g);
    sparse_free(&s);
    problem_destroy(&problem);
}

/* Emulators keep a table of all pages, and sanitizers a shadow of them. */
static bool skipped(void) {
    if (test_quick()) test_skip("large mappings, not in a quick run");
    return test_quick();
}

static void far_rows(void) {
    if (skipped()) return;
    const int64_t rows[] = {big / 16, 7}, heads[] = {9, big + 1}, batches[] = {big * 2 + 1, 10, 5};
    check_line("hstu_backward lengths=list:30,7 h=2 d=5 ds=1", rows, NULL, 0, NULL, 0, NULL);
    check_line("hstu_backward lengths=list:30,7 h=2 d=5 dtype=bf16", rows, NULL, 0, NULL, 0, NULL);
    check_line("hstu lengths=list:30,7 h=2 d=5 dtype=f16", rows, NULL, 0, NULL, 0, NULL);
    check_line("hstu_backward lengths=list:30,7 h=3 d=5 dtype=f16", heads, NULL, 0, NULL, 0, NULL);
    check_line("hstu_backward layout=dense b=3 s=20 h=2 d=5", batches, NULL, 0, NULL, 0, NULL);
}

static void far_biases(void) {
    if (skipped()) return;
    const int64_t strides[] = {big * 4, big + 11, big / 64};
    check_line("hstu_backward b=2 s=20 h=2 d=5 bias=dense bias_batch=b bias_head=h", NULL, strides,
               0, NULL, 0, NULL);
    check_line("hstu_backward b=2 s=20 h=2 d=5 bias=dense bias_dtype=same dtype=bf16", NULL,
               strides, 0, NULL, 0, NULL);
    check_line(
        "hstu b=2 s=20 h=2 d=5 bias=dense bias_batch=b bias_head=h bias_dtype=same dtype=f16", NULL,
        strides, 0, NULL, 0, NULL);
}

static void far_tables(void) {
    if (skipped()) return;
    const int64_t batch[] = {big + 5};
    check_line("hstu_backward layout=dense b=3 s=20 h=3 d=5 pos_table=h time_table=h", NULL, NULL,
               big + 3, batch, 0, NULL);
}

static void far_intervals(void) {
    if (skipped()) return;
    check_line("hstu_backward lengths=list:20,9 h=2 d=5 intervals=3", NULL, NULL, 0, NULL, big / 8,
               NULL);
    check_line("hstu lengths=list:20,9 h=2 d=5 intervals=3 index=i32", NULL, NULL, 0, NULL, big / 8,
               NULL);
}

static void far_pages(void) {
    if (skipped()) return;
    const int64_t pages[] = {big / 4 + 3, big / 128, 9}, heads[] = {100, 20, big + 7};
    check_line(
        "hstu lengths=list:9,4 lengths_k=list:50,30 h=2 d=5 page_size=4 num_targets=list:3,4", NULL,
        NULL, 0, NULL, 0, pages);
    check_line("hstu lengths=list:9,4 lengths_k=list:50,30 h=2 d=5 page_size=4 dtype=bf16", NULL,
               NULL, 0, NULL, 0, heads);
}

/* Page numbers of a contiguous cache beyond 2^31 elements, written by append and read by
 * forward. */
static void far_page_numbers(void) {
    if (skipped()) return;
    enum { DIM = 8, ROWS = 30, PAGE = 4, N_PAGES = 8 };
    struct problem problem;
    struct sparse s = {.n = 0};
    test_case("append and read behind %lld pages", (long long)(big / 16));
    if (!hstu_problem(&problem, "hstu s=30 d=8")) return;
    const int64_t far = big / 16, shape[4] = {far + N_PAGES, PAGE, 1, DIM},
                  bytes = shape[0] * PAGE * DIM * 4;
    int64_t ids[N_PAGES], offsets[2] = {0, N_PAGES}, none = 0, last = ROWS - (N_PAGES - 1) * PAGE;
    for (int i = 0; i < N_PAGES; i++) ids[i] = far + N_PAGES - 1 - i;
    struct ptl_hstu_kv_append_params a;
    ptl_hstu_kv_append_params_init(&a);
    a.k = problem.hstu.k;
    a.v = problem.hstu.v;
    a.k_pages = ptl_tensor_contiguous(sparse_take(&s, bytes), PTL_F32, 4, shape);
    a.v_pages = ptl_tensor_contiguous(sparse_take(&s, bytes), PTL_F32, 4, shape);
    a.seq_offsets = problem.hstu.seq_offsets_q;
    a.n_cached = ptl_tensor_contiguous(&none, PTL_I64, 1, (const int64_t[]){1});
    a.page_offsets = ptl_tensor_contiguous(offsets, PTL_I64, 1, (const int64_t[]){2});
    a.page_ids = ptl_tensor_contiguous(ids, PTL_I64, 1, (const int64_t[]){N_PAGES});
    if (s.failed) {
        test_skip("no room for sparse mappings");
    } else if (ptl_hstu_kv_append(hstu_variant(0)->ctx, &a) != PTL_OK) {
        FAIL("%s", ptl_message());
    } else {
        struct ptl_hstu_params p = problem.hstu;
        p.k_pages = a.k_pages;
        p.v_pages = a.v_pages;
        p.page_offsets = a.page_offsets;
        p.page_ids = a.page_ids;
        p.last_page_lens = ptl_tensor_contiguous(&last, PTL_I64, 1, (const int64_t[]){1});
        check_far(&problem, &p, &problem.grads);
    }
    sparse_free(&s);
    problem_destroy(&problem);
}

static const struct test tests[] = {
    {"far_rows_of_gradients", far_rows},
    {"far_biases", far_biases},
    {"far_tables", far_tables},
    {"far_intervals", far_intervals},
    {"far_pages", far_pages},
    {"far_page_numbers", far_page_numbers},
};
TEST_SUITE(hstu_gradient_huge_suite, "hstu/huge", tests);
