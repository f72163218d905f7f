/* Contexts: options, what they turn into, and the environment variables PTL_CPU,
 * PTL_NUM_THREADS. */
#define _DEFAULT_SOURCE
#include <pantile/pantile.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api_suites.h"

/* Sets a variable (NULL: removes it) and remembers what it was. */
struct saved_variable {
    const char *name;
    char *value;
};

static struct saved_variable set_variable(const char *name, const char *value) {
    const char *before = getenv(name);
    struct saved_variable saved = {name, before ? strdup(before) : NULL};
    if (value) setenv(name, value, 1);
    else unsetenv(name);
    return saved;
}

static void restore_variable(struct saved_variable *saved) {
    if (saved->value) setenv(saved->name, saved->value, 1);
    else unsetenv(saved->name);
    free(saved->value);
}

static void check_refused(const struct ptl_context_options *options, enum ptl_status status,
                          const char *message) {
    struct ptl_context *ctx = (struct ptl_context *)&status; /* not NULL: must become NULL */
    const enum ptl_status got = ptl_context_create(&ctx, options);
    if (got != status)
        FAIL("%s, expected %s: %s", ptl_status_name(got), ptl_status_name(status), message);
    if (strcmp(ptl_message(), message) != 0) FAIL("'%s', expected '%s'", ptl_message(), message);
    if (ctx) FAIL("a context after '%s'", message);
}

static void options_refused(void) {
    struct ptl_context_options o;
    char message[128];
    struct saved_variable saved = set_variable("PTL_CPU", NULL);

    test_case("ctx NULL");
    CHECK(ptl_context_create(NULL, NULL) == PTL_ERR_NULL);
    CHECK(strcmp(ptl_message(), "ctx: NULL, expected where to store the context") == 0);

    test_case("struct_size");
    ptl_context_options_init(&o);
    o.struct_size = 8;
    snprintf(message, sizeof message,
             "options.struct_size: 8, expected %zu; use ptl_context_options_init", sizeof o);
    check_refused(&o, PTL_ERR_PARAM, message);

    test_case("executor");
    ptl_context_options_init(&o);
    o.executor = (enum ptl_executor_kind)4;
    check_refused(&o, PTL_ERR_PARAM, "options.executor: 4, expected 0 to 3");

    test_case("num_threads");
    ptl_context_options_init(&o);
    o.num_threads = -1;
    check_refused(&o, PTL_ERR_PARAM, "options.num_threads: -1, expected 0 to 1024");
    o.num_threads = 1025;
    check_refused(&o, PTL_ERR_PARAM, "options.num_threads: 1025, expected 0 to 1024");

    test_case("parallel_for");
    ptl_context_options_init(&o);
    o.executor = PTL_EXEC_HOST;
    check_refused(&o, PTL_ERR_NULL, "options.parallel_for: missing, PTL_EXEC_HOST needs it");

    test_case("isa unknown");
    ptl_context_options_init(&o);
    o.isa = (enum ptl_isa)6;
    check_refused(&o, PTL_ERR_PARAM, "options.isa: 6, expected 0 to 5");

    test_case("isa of another machine");
    ptl_context_options_init(&o);
#if defined(__aarch64__)
    o.isa = PTL_ISA_AVX2;
    check_refused(&o, PTL_ERR_PARAM, "options.isa: avx2, which this CPU lacks or PTL_CPU excludes");
#else
    o.isa = PTL_ISA_NEON;
    check_refused(&o, PTL_ERR_PARAM, "options.isa: neon, which this CPU lacks or PTL_CPU excludes");
#endif
    restore_variable(&saved);
}

/* What a context created with o turns out to be. */
static bool describe(const struct ptl_context_options *o, struct ptl_context_info *info) {
    struct ptl_context *ctx;
    if (ptl_context_create(&ctx, o) != PTL_OK) {
        FAIL("ptl_context_create: %s", ptl_message());
        return false;
    }
    info->struct_size = sizeof *info;
    const enum ptl_status status = ptl_context_get_info(ctx, info);
    ptl_context_destroy(ctx);
    CHECK(status == PTL_OK);
    return status == PTL_OK;
}

static void options_taken(void) {
    struct ptl_context_options o;
    struct ptl_context_info info;

    test_case("defaults");
    if (describe(NULL, &info)) {
        CHECK(info.executor == PTL_EXEC_SERIAL || info.executor == PTL_EXEC_POOL);
        CHECK((info.executor == PTL_EXEC_POOL) == (info.num_threads > 1));
        CHECK(info.isa != PTL_ISA_AUTO && ptl_isa_available(info.isa));
        CHECK(info.num_threads >= 1 && info.num_threads <= 1024);
        CHECK(info.scratch_bytes == 0);
    }
    test_case("one thread is serial");
    ptl_context_options_init(&o);
    o.num_threads = 1;
    if (describe(&o, &info)) CHECK(info.executor == PTL_EXEC_SERIAL && info.num_threads == 1);

    test_case("seven threads are a pool");
    o.num_threads = 7;
    if (describe(&o, &info)) CHECK(info.executor == PTL_EXEC_POOL && info.num_threads == 7);

    test_case("serial ignores num_threads");
    o.executor = PTL_EXEC_SERIAL;
    if (describe(&o, &info)) CHECK(info.executor == PTL_EXEC_SERIAL && info.num_threads == 1);

    test_case("each level");
    ptl_context_options_init(&o);
    for (int i = 0; i < test_n_levels(); i++) {
        o.isa = test_level(i);
        if (describe(&o, &info)) CHECK(info.isa == test_level(i));
    }
}

static void get_info_refused(void) {
    struct ptl_context *ctx;
    struct ptl_context_info info = {0};
    char message[64];
    CHECK(ptl_context_get_info(NULL, &info) == PTL_ERR_NULL);
    CHECK(strcmp(ptl_message(), "ctx: NULL, expected a context") == 0);
    if (ptl_context_create(&ctx, NULL) != PTL_OK) {
        FAIL("ptl_context_create: %s", ptl_message());
        return;
    }
    CHECK(ptl_context_get_info(ctx, NULL) == PTL_ERR_NULL);
    CHECK(strcmp(ptl_message(), "info: NULL, expected where to store it") == 0);
    snprintf(message, sizeof message, "info.struct_size: 0, expected %zu", sizeof info);
    CHECK(ptl_context_get_info(ctx, &info) == PTL_ERR_PARAM);
    CHECK(strcmp(ptl_message(), message) == 0);
    ptl_context_destroy(ctx);
}

static void ptl_cpu(void) {
    struct ptl_context_options o;
    struct ptl_context_info info;

    test_case("PTL_CPU=sse9");
    struct saved_variable saved = set_variable("PTL_CPU", "sse9");
    check_refused(NULL, PTL_ERR_PARAM,
                  "PTL_CPU: 'sse9', expected scalar, avx2, avx512, neon or avx512bf16");
    CHECK(!ptl_isa_available(PTL_ISA_SCALAR));

    test_case("PTL_CPU=SCALAR");
    setenv("PTL_CPU", "SCALAR", 1);
    check_refused(NULL, PTL_ERR_PARAM,
                  "PTL_CPU: 'SCALAR', expected scalar, avx2, avx512, neon or avx512bf16");

    test_case("PTL_CPU=scalar");
    setenv("PTL_CPU", "scalar", 1);
    if (describe(NULL, &info)) CHECK(info.isa == PTL_ISA_SCALAR);
    CHECK(!ptl_isa_available(PTL_ISA_AVX2) && !ptl_isa_available(PTL_ISA_NEON));
    ptl_context_options_init(&o);
    o.isa = PTL_ISA_AVX2;
    check_refused(&o, PTL_ERR_PARAM, "options.isa: avx2, which this CPU lacks or PTL_CPU excludes");

    test_case("PTL_CPU empty");
    setenv("PTL_CPU", "", 1);
    if (describe(NULL, &info)) CHECK(info.isa != PTL_ISA_AUTO);

    test_case("the best level by default");
    restore_variable(&saved);
    if (describe(NULL, &info)) CHECK(info.isa == test_level(test_n_levels() - 1));
}

static void ptl_num_threads(void) {
    static const char *const bad[] = {"0", "-1", "1025", "4x", "two", "99999999999999999999"};
    struct ptl_context_options o;
    struct ptl_context_info info;
    char message[128];
    struct saved_variable saved = set_variable("PTL_NUM_THREADS", NULL);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        test_case("PTL_NUM_THREADS=%s", bad[i]);
        setenv("PTL_NUM_THREADS", bad[i], 1);
        snprintf(message, sizeof message, "PTL_NUM_THREADS: '%s', expected 1 to 1024", bad[i]);
        check_refused(NULL, PTL_ERR_PARAM, message);
    }
    test_case("PTL_NUM_THREADS=3");
    setenv("PTL_NUM_THREADS", "3", 1);
    if (describe(NULL, &info)) CHECK(info.num_threads == 3 && info.executor == PTL_EXEC_POOL);

    test_case("num_threads goes before PTL_NUM_THREADS");
    ptl_context_options_init(&o);
    o.num_threads = 2;
    if (describe(&o, &info)) CHECK(info.num_threads == 2);

    test_case("PTL_NUM_THREADS empty");
    setenv("PTL_NUM_THREADS", "", 1);
    if (describe(NULL, &info)) CHECK(info.num_threads >= 1);
    restore_variable(&saved);
}

static const struct test tests[] = {
    {"options_refused", options_refused},   {"options_taken", options_taken},
    {"get_info_refused", get_info_refused}, {"ptl_cpu", ptl_cpu},
    {"ptl_num_threads", ptl_num_threads},
};
TEST_SUITE(api_context_suite, "api", tests);
