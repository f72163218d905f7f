/* PTL_ERR_NOMEM: a call whose scratch memory cannot be had, in a child process with little address
 * space. Nothing is written, and the context works again when there is memory. */
#define _GNU_SOURCE
#include <pantile/pantile.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api_suites.h"
#include "memory_limit.h"
#include "ops/tensor_check.h"
#include "problem.h"

enum { RIGHT, NO_LIMIT_HERE, WRONG_STATUS, WRONG_MESSAGE, WRITTEN, NO_RECOVERY };

static void run_all(void *host, int64_t n, ptl_range_fn fn, void *arg) {
    (void)host;
    fn(arg, 0, n);
}

static enum ptl_status call(struct ptl_context *ctx, const struct problem *x) {
    return x->grads.dq.data ? ptl_hstu_backward(ctx, &x->hstu, &x->grads)
                            : ptl_hstu_forward(ctx, &x->hstu);
}

static int call_without_memory(struct ptl_context *ctx, const struct problem *x) {
    const struct ptl_tensor *const outputs[] = {&x->hstu.out, &x->grads.dq,    &x->grads.dk,
                                                &x->grads.dv, &x->grads.dbias, &x->grads.ds};
    for (int i = 0; i < 6; i++) tensor_wipe(outputs[i]);
    if (!limit_memory()) return NO_LIMIT_HERE;
    const enum ptl_status status = call(ctx, x);
    lift_memory_limit();
    if (status != PTL_ERR_NOMEM) return WRONG_STATUS;
    if (strcmp(ptl_message(), "scratch: no memory for 1000 threads") != 0) return WRONG_MESSAGE;
    for (int i = 0; i < 6; i++)
        if (!tensor_wiped(outputs[i])) return WRITTEN;
    return call(ctx, x) == PTL_OK ? RIGHT : NO_RECOVERY;
}

static void check_line(const char *line) {
    static const char *const outcomes[] = {
        "",        "the limit has no effect here", "not PTL_ERR_NOMEM", "another message",
        "written", "the next call fails too"};
    struct ptl_context_options o;
    struct ptl_context *ctx;
    struct problem problem;
    char error[128];
    test_case("%s", line);
#if defined(TEST_ADDRESS_SANITIZER) || defined(TEST_THREAD_SANITIZER)
    test_skip("sanitizers need address space of their own");
    return;
#endif
    ptl_context_options_init(&o);
    o.executor = PTL_EXEC_HOST; /* slots for 1000 threads, without the threads */
    o.num_threads = 1000;
    o.parallel_for = run_all;
    if (!problem_create(&problem, line, 0, error, sizeof error)) {
        FAIL("%s", error);
        return;
    }
    if (ptl_context_create(&ctx, &o) != PTL_OK) FAIL("%s", ptl_message());
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) _exit(call_without_memory(ctx, &problem));
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status)) {
        FAIL("the child did not come back");
    } else if (WEXITSTATUS(status) == NO_LIMIT_HERE) {
        test_skip("%s", outcomes[NO_LIMIT_HERE]);
    } else if (WEXITSTATUS(status) != RIGHT) {
        FAIL("%s",
             outcomes[WEXITSTATUS(status) <= NO_RECOVERY ? WEXITSTATUS(status) : WRONG_STATUS]);
    }
    ptl_context_destroy(ctx);
    problem_destroy(&problem);
}

static void no_memory(void) {
    check_line("hstu s=3000 d=64 dv=256");
    check_line("hstu s=3000 d=64 dtype=bf16 bias=dense");
    check_line("hstu_backward s=3000 d=64 dv=256 ds=1");                /* for tiles */
    check_line("hstu_backward s=9000 d=64 dtype=bf16 rule=local:50,0"); /* for dq */
}

static const struct test tests[] = {
    {"no_memory", no_memory},
};
TEST_SUITE(api_hstu_nomem_suite, "api/hstu", tests);
