/* Names, versions, tensors, messages: the calls of base.h that need no context. */
#include <pantile/pantile.h>
#include <pthread.h>
#include <string.h>

#include "api_suites.h"

static void version(void) {
    CHECK(strcmp(ptl_version(), "0.1.0") == 0);
}

static void status_names(void) {
    static const struct {
        enum ptl_status status;
        const char *name;
    } all[] = {
        {PTL_OK, "PTL_OK"},
        {PTL_ERR_NULL, "PTL_ERR_NULL"},
        {PTL_ERR_DTYPE, "PTL_ERR_DTYPE"},
        {PTL_ERR_LAYOUT, "PTL_ERR_LAYOUT"},
        {PTL_ERR_SHAPE, "PTL_ERR_SHAPE"},
        {PTL_ERR_PARAM, "PTL_ERR_PARAM"},
        {PTL_ERR_SEQLEN, "PTL_ERR_SEQLEN"},
        {PTL_ERR_TABLE, "PTL_ERR_TABLE"},
        {PTL_ERR_ALIAS, "PTL_ERR_ALIAS"},
        {PTL_ERR_OVERFLOW, "PTL_ERR_OVERFLOW"},
        {PTL_ERR_NOMEM, "PTL_ERR_NOMEM"},
        {(enum ptl_status)11, "unknown status"},
        {(enum ptl_status)99, "unknown status"},
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (strcmp(ptl_status_name(all[i].status), all[i].name) != 0)
            FAIL("status %d is '%s', expected '%s'", (int)all[i].status,
                 ptl_status_name(all[i].status), all[i].name);
}

static void isa_names(void) {
    static const char *const names[] = {"auto", "scalar", "avx2", "avx512", "neon", "avx512bf16"};
    for (int i = 0; i < 6; i++) CHECK(strcmp(ptl_isa_name((enum ptl_isa)i), names[i]) == 0);
    CHECK(ptl_isa_name((enum ptl_isa)6) == NULL);
    CHECK(ptl_isa_name((enum ptl_isa)99) == NULL);
    CHECK(ptl_isa_available(PTL_ISA_AUTO));
    CHECK(ptl_isa_available(PTL_ISA_SCALAR));
    CHECK(!ptl_isa_available((enum ptl_isa)99));
}

static void dtype_bytes(void) {
    CHECK(ptl_dtype_bytes(PTL_U8) == 1);
    CHECK(ptl_dtype_bytes(PTL_F16) == 2 && ptl_dtype_bytes(PTL_BF16) == 2);
    CHECK(ptl_dtype_bytes(PTL_F32) == 4 && ptl_dtype_bytes(PTL_I32) == 4);
    CHECK(ptl_dtype_bytes(PTL_I64) == 8);
    CHECK(ptl_dtype_bytes((enum ptl_dtype)0) == 0);
    CHECK(ptl_dtype_bytes((enum ptl_dtype)99) == 0);
}

static void tensor_contiguous(void) {
    float data[24];
    const int64_t shape[4] = {2, 3, 1, 4};
    struct ptl_tensor t = ptl_tensor_contiguous(data, PTL_F32, 4, shape);
    CHECK(t.data == data && t.dtype == PTL_F32 && t.ndim == 4);
    CHECK(t.stride[0] == 12 && t.stride[1] == 4 && t.stride[2] == 4 && t.stride[3] == 1);
    CHECK(memcmp(t.shape, shape, sizeof shape) == 0);
    t = ptl_tensor_contiguous(data, PTL_F32, 0, NULL);
    CHECK(t.data == data && t.ndim == 0);
    t = ptl_tensor_contiguous(data, PTL_F32, 5, shape);
    CHECK(t.data == NULL);
    t = ptl_tensor_contiguous(data, PTL_F32, -1, shape);
    CHECK(t.data == NULL);
}

static void init_null(void) {
    ptl_hstu_params_init(NULL);
    ptl_context_options_init(NULL);
    ptl_context_destroy(NULL);
}

static void params_defaults(void) {
    struct ptl_hstu_params p;
    memset(&p, 0xa5, sizeof p);
    ptl_hstu_params_init(&p);
    CHECK(p.struct_size == sizeof p);
    CHECK(p.alpha == 1.0f);
    CHECK(p.max_seqlen_q == -1 && p.max_seqlen_k == -1);
    CHECK(p.window_left == -1 && p.window_right == 0);
    CHECK(p.target_group_size == 1 && p.min_full_attn_seq_len == 0 && p.scaling_seqlen == 0);
    CHECK(!p.q.data && !p.k.data && !p.v.data && !p.out.data);
    CHECK(!p.seq_offsets_q.data && !p.seq_offsets_k.data && !p.seqused_q.data && !p.seqused_k.data);
    CHECK(!p.num_contexts.data && !p.num_targets.data && !p.mask.data && !p.attn_scale.data);
}

static void *fail_elsewhere(void *arg) {
    bool *as_expected = arg;
    const bool empty = strcmp(ptl_message(), "") == 0; /* this thread has not failed yet */
    const enum ptl_status status = ptl_context_create(NULL, NULL);
    *as_expected = empty && status == PTL_ERR_NULL &&
                   strcmp(ptl_message(), "ctx: NULL, expected where to store the context") == 0;
    return NULL;
}

static void message_is_per_thread(void) {
    pthread_t thread;
    bool as_expected = false;
    CHECK(ptl_hstu_forward(NULL, NULL) == PTL_ERR_NULL);
    CHECK(strcmp(ptl_message(), "ctx: NULL, expected a context") == 0);
    if (pthread_create(&thread, NULL, fail_elsewhere, &as_expected) != 0) {
        FAIL("pthread_create");
        return;
    }
    pthread_join(thread, NULL);
    CHECK(as_expected);
    CHECK(strcmp(ptl_message(), "ctx: NULL, expected a context") == 0);
}

/* The bucket functions of two public models, and what makes no function. */
static void time_thresholds(void) {
    static const int64_t log_starts[] = {2, 2, 3, 4, 5, 7}, sqrt_starts[] = {60, 240, 540};
    int64_t x[128] = {0};
    CHECK(ptl_hstu_time_thresholds(PTL_HSTU_TIME_LOG, 1.0f, 0.301f, 128, x) == PTL_OK);
    for (int i = 0; i < 6; i++) CHECK(x[i] == log_starts[i]);
    for (int i = 1; i < 128; i++) CHECK(x[i] >= x[i - 1]);
    CHECK(x[127] > (int64_t)1 << 55);
    CHECK(ptl_hstu_time_thresholds(PTL_HSTU_TIME_LOG, 1.0f, 10.0f, 8, x) == PTL_OK);
    CHECK(x[3] > 0 && x[3] < INT64_MAX && x[4] == INT64_MAX && x[7] == INT64_MAX); /* e^50 > 2^63 */
    CHECK(ptl_hstu_time_thresholds(PTL_HSTU_TIME_SQRT, 60.0f, 1.0f, 128, x) == PTL_OK);
    for (int i = 0; i < 3; i++) CHECK(x[i] == sqrt_starts[i]);
    CHECK(ptl_hstu_time_thresholds(PTL_HSTU_TIME_SQRT, 60.0f, 1.0f, 0, NULL) == PTL_OK);

    static const struct {
        enum ptl_hstu_time_fn fn;
        float unit, divisor;
        int64_t n;
        enum ptl_status status;
        const char *message;
    } bad[] = {
        {(enum ptl_hstu_time_fn)2, 1.0f, 1.0f, 1, PTL_ERR_PARAM, "fn: 2, expected 0 or 1"},
        {PTL_HSTU_TIME_LOG, 0.0f, 1.0f, 1, PTL_ERR_PARAM,
         "unit: 0, expected a positive finite number"},
        {PTL_HSTU_TIME_LOG, 1.0f, -1.0f, 1, PTL_ERR_PARAM,
         "divisor: -1, expected a positive finite number"},
        {PTL_HSTU_TIME_LOG, 1.0f, 1.0f, -1, PTL_ERR_PARAM, "n: -1, expected 0 or more"},
        {PTL_HSTU_TIME_LOG, 1.0f, 1.0f, 3, PTL_ERR_NULL,
         "thresholds: NULL, expected room for 3 numbers"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        CHECK(ptl_hstu_time_thresholds(bad[i].fn, bad[i].unit, bad[i].divisor, bad[i].n, NULL) ==
              bad[i].status);
        if (strcmp(ptl_message(), bad[i].message) != 0) FAIL("it says '%s'", ptl_message());
    }
}

static const struct test tests[] = {
    {"version", version},
    {"time_thresholds", time_thresholds},
    {"status_names", status_names},
    {"isa_names", isa_names},
    {"dtype_bytes", dtype_bytes},
    {"tensor_contiguous", tensor_contiguous},
    {"init_and_destroy_of_null", init_null},
    {"params_defaults", params_defaults},
    {"message_is_per_thread", message_is_per_thread},
};
TEST_SUITE(api_base_suite, "api", tests);
