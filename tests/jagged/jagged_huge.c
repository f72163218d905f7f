/* Offsets above 2^31 elements and 2^32 bytes, in sparse mappings of which only the touched pages
 * exist. */
#define _GNU_SOURCE
#include <stdint.h>
#include <sys/mman.h>

#include "jagged_arrays.h"
#include "jagged_suites.h"

/* Zeros that take no memory until they are touched; NULL when the system has no room. */
static void *take_sparse(int64_t bytes) {
    void *memory = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

/* Rows of 2^20 floats apart: sequence 1 begins 4096 rows, 2^32 floats, behind sequence 0. Only
 * the first two columns are the array's. */
static void far_rows(void) {
    enum { N = 4100, FIRST = 4096, APART = 1 << 20 };
    const int64_t bytes = (int64_t)N * APART * (int64_t)sizeof(float), n_offsets = 3;
    int64_t offsets[3] = {0, FIRST, N};
    float *far = take_sparse(bytes), got[2 * 2 * 2];
    if (!far) {
        test_skip("no address space");
        return;
    }
    for (int64_t i = 0; i < 4; i++) far[(FIRST + i) * APART] = (float)i + 1.0f;
    struct ptl_jagged x = {
        {.data = far, .dtype = PTL_F32, .ndim = 2, .shape = {N, 2}, .stride = {APART, 1}},
        ptl_tensor_contiguous(offsets, PTL_I64, 1, &n_offsets)};
    struct ptl_jagged out = {
        .values = ptl_tensor_contiguous(got, PTL_F32, 3, (const int64_t[]){2, 2, 2})};
    struct ptl_context *ctx = jagged_context(0);

    test_case("read beyond 2^32 elements");
    jagged_ok(ptl_jagged_resize(ctx, &x, PTL_JAGGED_ALIGN_END, NULL, &out), "resize");
    CHECK(got[0] == 0 && got[2] == 0 && got[4] == 3 && got[5] == 0 && got[6] == 4);

    test_case("written beyond 2^32 elements");
    out.values.shape[1] = 1;
    out.values.stride[0] = 2;
    got[2] = 7;
    got[3] = 8;
    struct ptl_jagged last = {x.values, x.offsets};
    last.values.data =
        far + (int64_t)(N - 3) * APART; /* three rows, the last of which is in sequence 1 */
    last.values.shape[0] = 3;
    offsets[1] = 2;
    offsets[2] = 3;
    jagged_ok(ptl_jagged_resize(ctx, &out, PTL_JAGGED_ALIGN_START, NULL, &last), "resize");
    CHECK(far[(int64_t)(N - 1) * APART] == 7 && far[(int64_t)(N - 1) * APART + 1] == 8);

    test_case("a sum beyond 2^32 elements");
    offsets[1] = FIRST;
    offsets[2] = FIRST + 1;
    const struct ptl_tensor sum = ptl_tensor_contiguous(got, PTL_F32, 2, (const int64_t[]){2, 2});
    jagged_ok(ptl_jagged_sum(ctx, &x, &sum), "sum");
    CHECK(got[0] == 0 && got[1] == 0 && got[2] == 1 && got[3] == 0);

    test_case("an embedding beyond 2^32 elements");
    float table[2] = {0.5f, 0.25f};
    struct ptl_jagged_position_time_params a;
    ptl_jagged_position_time_init(&a);
    a.seq_offsets = ptl_tensor_contiguous(offsets, PTL_I64, 1, &n_offsets);
    a.emb = a.out = x.values;
    a.pos_w = ptl_tensor_contiguous(table, PTL_F32, 2, (const int64_t[]){1, 2});
    offsets[1] = offsets[2] = N;
    jagged_ok(ptl_jagged_position_time_forward(ctx, &a), "forward");
    CHECK(far[(int64_t)(N - 1) * APART] == 7.5f && far[(int64_t)(N - 1) * APART + 1] == 8.25f);
    munmap(far, (size_t)bytes);
}

/* More than 2^32 rows of one byte, all read from one page. */
static void many_rows(void) {
    const int64_t n = ((int64_t)1 << 32) + 10, n_offsets = 3;
    int64_t offsets[3] = {0, n - 2, n};
    uint8_t *far = take_sparse(n), got[6];
    if (!far) {
        test_skip("no address space");
        return;
    }
    for (int i = 0; i < 4; i++) far[n - 4 + i] = (uint8_t)(i + 1);
    const struct ptl_jagged x = {ptl_tensor_contiguous(far, PTL_U8, 1, &n),
                                 ptl_tensor_contiguous(offsets, PTL_I64, 1, &n_offsets)};
    const struct ptl_jagged out = {
        .values = ptl_tensor_contiguous(got, PTL_U8, 2, (const int64_t[]){2, 3})};
    const uint8_t pad = 9;
    jagged_ok(ptl_jagged_resize(jagged_context(0), &x, PTL_JAGGED_ALIGN_END, &pad, &out), "resize");
    CHECK(got[0] == 0 && got[1] == 1 && got[2] == 2 && got[3] == 9 && got[4] == 3 && got[5] == 4);
    munmap(far, (size_t)n);
}

static const struct test tests[] = {
    {"far_rows", far_rows},
    {"many_rows", many_rows},
};
TEST_SUITE(jagged_huge_suite, "jagged/huge", tests);
