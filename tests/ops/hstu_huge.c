/* Offsets above 2^31 elements, on every axis: small problems laid out in sparse mappings, of which
 * only the pages that hold a row exist. The numbers must be those of the compact problem, bit for
 * bit. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hstu_check.h"
#include "op_suites.h"
#include "sparse.h"

/* Element (i0, i1, i2, 0) of a tensor; three axes are taken as four with the first of extent 1. */
static char *element(const struct ptl_tensor *t, int64_t i0, int64_t i1, int64_t i2) {
    const int axis = t->ndim - 3;
    int64_t at = i1 * t->stride[axis] + i2 * t->stride[axis + 1];
    if (axis) at += i0 * t->stride[0];
    return (char *)t->data + at * (int64_t)ptl_dtype_bytes(t->dtype);
}

static void copy_elements(const struct ptl_tensor *from, const struct ptl_tensor *to) {
    const int axis = to->ndim - 3;
    const size_t bytes = (size_t)to->shape[axis + 2] * ptl_dtype_bytes(to->dtype);
    for (int64_t i0 = 0; i0 < (axis ? to->shape[0] : 1); i0++)
        for (int64_t i1 = 0; i1 < to->shape[axis]; i1++)
            for (int64_t i2 = 0; i2 < to->shape[axis + 1]; i2++)
                memcpy(element(to, i0, i1, i2), element(from, i0, i1, i2), bytes);
}

/* The far problem gives the compact one's results on every level and with several threads. */
static void check_far(const struct ptl_hstu_params *compact, const struct ptl_hstu_params *far) {
    const size_t n = (size_t)hstu_out_floats(compact);
    float *expected = test_alloc(n * sizeof *expected), *got = test_alloc(n * sizeof *got);
    const struct ptl_tensor plain =
        ptl_tensor_contiguous(got, PTL_F32, far->out.ndim, far->out.shape);
    const struct hstu_variant *v;
    for (int i = 0; (v = hstu_variant(i)) != NULL; i++) {
        if (!hstu_run(compact, v, expected)) break;
        if (ptl_hstu_forward(v->ctx, far) != PTL_OK) {
            FAIL("%s: %s", v->name, ptl_message());
            break;
        }
        copy_elements(&far->out, &plain);
        if (memcmp(expected, got, n * sizeof *got) != 0)
            FAIL("%s: not the bits of the compact problem", v->name);
    }
    free(expected);
    free(got);
}

/* q, k, v, out of the line's problem with these strides; a mask with strides of its own. */
static void check_strides(const char *line, const int64_t *stride, const int64_t *mask_stride) {
    struct problem problem;
    struct sparse s = {.n = 0};
    test_case("%s strides %lld %lld %lld", line, (long long)stride[0], (long long)stride[1],
              (long long)stride[2]);
    if (!hstu_problem(&problem, line)) return;
    struct ptl_hstu_params far = problem.hstu;
    far.q = sparse_spread(&s, &problem.hstu.q, stride);
    far.k = sparse_spread(&s, &problem.hstu.k, stride);
    far.v = sparse_spread(&s, &problem.hstu.v, stride);
    far.out = sparse_spread(&s, &problem.hstu.out, stride);
    if (mask_stride) far.mask = sparse_spread(&s, &problem.hstu.mask, mask_stride);
    if (s.failed) test_skip("no room for sparse mappings");
    else check_far(&problem.hstu, &far);
    sparse_free(&s);
    problem_destroy(&problem);
}

/* Emulators keep a table of all pages, and sanitizers a shadow of them. */
static bool skipped(void) {
    if (test_quick()) test_skip("large mappings, not in a quick run");
    return test_quick();
}

static const int64_t big = (int64_t)1 << 31;

static void far_rows(void) {
    if (skipped()) return;
    check_strides("hstu lengths=list:30,7 h=2 d=5", (const int64_t[]){big / 16, 7, 0}, NULL);
    check_strides("hstu lengths=list:3,2 h=2 d=5", (const int64_t[]){big + 3, 7, 0}, NULL);
}

static void far_heads(void) {
    if (skipped()) return;
    check_strides("hstu lengths=list:30,7 h=3 d=5", (const int64_t[]){9, big + 1, 0}, NULL);
}

static void far_batches(void) {
    if (skipped()) return;
    check_strides("hstu layout=dense b=3 s=20 h=2 d=5", (const int64_t[]){big * 2 + 1, 10, 5},
                  NULL);
    check_strides("hstu layout=dense b=3 s=20 h=2 d=5 rule=none",
                  (const int64_t[]){big * 2 + 1, big / 32, 5}, NULL);
}

static void far_mask(void) {
    if (skipped()) return;
    const int64_t rows[3] = {200, 10, 5};
    check_strides("hstu layout=dense b=2 s=20 h=2 d=5 mask=random mask_batch=b mask_head=h", rows,
                  (const int64_t[]){big * 4 + 4096, big + 64, big / 8});
}

/* The live sequence lies behind one with no query and n_rows keys; arrays are contiguous. */
static void check_far_keys(int64_t n_rows, int64_t dim, const char *index) {
    struct problem problem;
    struct sparse s = {.n = 0};
    char line[MAX_LINE];
    snprintf(line, sizeof line, "hstu lengths=list:0,40 lengths_k=list:0,40 d=%d index=%s",
             (int)dim, index);
    test_case("%s behind %lld keys", line, (long long)n_rows);
    if (!hstu_problem(&problem, line)) return;
    struct ptl_hstu_params far = problem.hstu;
    const int64_t shape[3] = {n_rows + 40, 1, dim}, bytes = (n_rows + 40) * dim * 4;
    far.k = ptl_tensor_contiguous(sparse_take(&s, bytes), PTL_F32, 3, shape);
    far.v = ptl_tensor_contiguous(sparse_take(&s, bytes), PTL_F32, 3, shape);
    int64_t wide[3] = {0, n_rows, n_rows + 40};
    int32_t narrow[3] = {0, (int32_t)n_rows, (int32_t)n_rows + 40};
    far.seq_offsets_k.data = far.seq_offsets_k.dtype == PTL_I64 ? (void *)wide : (void *)narrow;
    if (s.failed) {
        test_skip("no room for sparse mappings");
    } else {
        memcpy(element(&far.k, 0, n_rows, 0), problem.hstu.k.data, (size_t)(40 * dim * 4));
        memcpy(element(&far.v, 0, n_rows, 0), problem.hstu.v.data, (size_t)(40 * dim * 4));
        check_far(&problem.hstu, &far);
    }
    sparse_free(&s);
    problem_destroy(&problem);
}

static void far_keys(void) {
    if (skipped()) return;
    check_far_keys(big / 4, 8, "i32");      /* 2^32 elements */
    check_far_keys(big - 41, 3, "i32");     /* the last row that int32 reaches */
    check_far_keys(big * 2 + 12, 2, "i64"); /* more than 2^32 rows */
}

static const struct test tests[] = {
    {"far_rows", far_rows}, {"far_heads", far_heads}, {"far_batches", far_batches},
    {"far_mask", far_mask}, {"far_keys", far_keys},
};
TEST_SUITE(hstu_huge_suite, "hstu/huge", tests);
