/* PTL_ERR_NOMEM of the calls that need scratch memory, in a child process with little address
 * space: nothing is written, and the context works again when there is memory. */
#define _GNU_SOURCE
#include <pantile/pantile.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "jagged_suites.h"
#include "memory_limit.h"
#include "ops/hstu_check.h"

enum { RIGHT, NO_LIMIT_HERE, WRONG_STATUS, WRONG_MESSAGE, WRITTEN, NO_RECOVERY, N_OUTCOMES };
enum { T = 200000, N_TABLE = 100 };

static struct ptl_context *ctx;
static float *dout, written[2 * T];
static int64_t offsets[T + 1];

/* One sequence of T tokens; its lists take 16 bytes a token. */
static enum ptl_status backward(void) {
    struct ptl_jagged_position_time_params a;
    ptl_jagged_position_time_init(&a);
    offsets[1] = T;
    a.seq_offsets = ptl_tensor_contiguous(offsets, PTL_I64, 1, (const int64_t[]){2});
    a.dout = ptl_tensor_contiguous(dout, PTL_F32, 2, (const int64_t[]){T, 1});
    a.demb = ptl_tensor_contiguous(written, PTL_F32, 2, (const int64_t[]){T, 1});
    a.dpos_w = ptl_tensor_contiguous(written + T, PTL_F32, 2, (const int64_t[]){N_TABLE, 1});
    return ptl_jagged_position_time_backward(ctx, &a);
}

/* T sequences of one token: a plan for each. */
static enum ptl_status sum(void) {
    for (int64_t b = 0; b <= T; b++) offsets[b] = b;
    const struct ptl_jagged x = {
        ptl_tensor_contiguous(dout, PTL_F32, 2, (const int64_t[]){T, 1}),
        ptl_tensor_contiguous(offsets, PTL_I64, 1, (const int64_t[]){T + 1})};
    const struct ptl_tensor out =
        ptl_tensor_contiguous(written, PTL_F32, 2, (const int64_t[]){T, 1});
    return ptl_jagged_sum(ctx, &x, &out);
}

static int call_without_memory(enum ptl_status (*call)(void), const char *message) {
    for (int i = 0; i < 2 * T; i++) written[i] = 7.0f;
    if (!limit_memory()) return NO_LIMIT_HERE;
    const enum ptl_status status = call();
    lift_memory_limit();
    if (status != PTL_ERR_NOMEM) return WRONG_STATUS;
    if (strcmp(ptl_message(), message) != 0) return WRONG_MESSAGE;
    for (int i = 0; i < 2 * T; i++)
        if (written[i] != 7.0f) return WRITTEN;
    return call() == PTL_OK ? RIGHT : NO_RECOVERY;
}

static void in_child(enum ptl_status (*call)(void), const char *message) {
    static const char *const outcomes[N_OUTCOMES] = {
        "",        "the limit has no effect here", "not PTL_ERR_NOMEM", "another message",
        "written", "the next call fails too"};
    int status = 0;
    test_case("%s", message);
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) _exit(call_without_memory(call, message));
    if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status))
        FAIL("the child crashed");
    else if (WEXITSTATUS(status) == NO_LIMIT_HERE) test_skip("%s", outcomes[NO_LIMIT_HERE]);
    else if (WEXITSTATUS(status) != RIGHT && WEXITSTATUS(status) < N_OUTCOMES)
        FAIL("%s", outcomes[WEXITSTATUS(status)]);
}

static void no_memory(void) {
#if defined(TEST_ADDRESS_SANITIZER) || defined(TEST_THREAD_SANITIZER)
    test_skip("sanitizers need address space of their own");
    return;
#endif
    struct ptl_context_options o;
    ptl_context_options_init(&o);
    o.executor = PTL_EXEC_SERIAL;
    if (ptl_context_create(&ctx, &o) != PTL_OK) {
        FAIL("%s", ptl_message());
        return;
    }
    dout = test_alloc(T * sizeof *dout);
    memset(dout, 0, T * sizeof *dout);
    in_child(backward, "scratch: no memory for the lists of 200000 tokens");
    in_child(sum, "scratch: no memory for the partial sums");
    free(dout);
    ptl_context_destroy(ctx);
}

static const struct test tests[] = {{"no_memory", no_memory}};
TEST_SUITE(jagged_nomem_suite, "jagged", tests);
