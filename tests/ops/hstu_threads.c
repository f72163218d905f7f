/* Contexts under concurrency: one for each thread, one for all, through a fork, through growing and
 * shrinking problems. What is computed is checked by bits against a serial run. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "guard.h"
#include "hstu_check.h"
#include "op_suites.h"

/* Small, large enough for several threads, odd. */
static const char *const lines[] = {
    "hstu lengths=list:9,0,3 h=2 d=5",
    "hstu lengths=list:300,200,1 h=2 d=32 num_contexts=3 num_targets=random:50",
    "hstu s=130 h=3 hk=1 d=72 dv=17 rule=local:40,0",
    "hstu layout=dense b=4 s=97 h=2 d=48 mask=random",
};
enum { N_LINES = sizeof lines / sizeof lines[0], N_THREADS = 4 };

/* A problem of each line and the bits that it must give. */
struct expectations {
    struct problem problem[N_LINES];
    float *out[N_LINES];
};

static enum ptl_isa best_level(void) {
    return test_level(test_n_levels() - 1);
}

static bool expect(struct expectations *e) {
    const struct hstu_variant *serial;
    for (int i = 0; (serial = hstu_variant(i)) != NULL; i++)
        if (serial->first && serial->isa == best_level()) break;
    for (int i = 0; i < N_LINES; i++) {
        if (!hstu_problem(&e->problem[i], lines[i])) return false;
        e->out[i] = test_alloc((size_t)hstu_out_floats(&e->problem[i].hstu) * sizeof(float));
        if (!hstu_run(&e->problem[i].hstu, serial, e->out[i])) return false;
    }
    return true;
}

static void forget(struct expectations *e) {
    for (int i = 0; i < N_LINES; i++) {
        free(e->out[i]);
        problem_destroy(&e->problem[i]);
    }
}

static struct ptl_context *create(enum ptl_executor_kind executor, int n_threads) {
    struct ptl_context_options o;
    struct ptl_context *ctx = NULL;
    ptl_context_options_init(&o);
    o.isa = best_level();
    o.executor = executor;
    o.num_threads = n_threads;
    if (ptl_context_create(&ctx, &o) != PTL_OK) FAIL("ptl_context_create: %s", ptl_message());
    return ctx;
}

/* Calls line i with an out of its own; true when it gives the expected bits. Safe in any thread. */
static bool call(struct ptl_context *ctx, const struct expectations *e, int i) {
    const size_t n = (size_t)hstu_out_floats(&e->problem[i].hstu);
    struct ptl_hstu_params p = e->problem[i].hstu;
    float *out = test_alloc(n * sizeof *out);
    for (size_t x = 0; x < n; x++) out[x] = bits_float(GUARD_WORD);
    p.out = ptl_tensor_contiguous(out, PTL_F32, p.out.ndim, p.out.shape);
    const bool ok =
        ptl_hstu_forward(ctx, &p) == PTL_OK && memcmp(out, e->out[i], n * sizeof *out) == 0;
    free(out);
    return ok;
}

/* ---- Threads --------------------------------------------------------------------------------- */

struct caller {
    pthread_t thread;
    struct ptl_context *ctx;
    const struct expectations *e;
    int first, calls, n_wrong;
};

static void *call_often(void *arg) {
    struct caller *c = arg;
    for (int n = 0; n < c->calls; n++) c->n_wrong += !call(c->ctx, c->e, (c->first + n) % N_LINES);
    return NULL;
}

/* Some threads that call at once. ctx NULL: each with a pool of its own. */
static void run_callers(struct ptl_context *ctx, const struct expectations *e) {
    struct caller callers[N_THREADS];
    int started = 0;
    for (int i = 0; i < N_THREADS; i++) {
        callers[i] = (struct caller){.ctx = ctx ? ctx : create(PTL_EXEC_POOL, 2),
                                     .e = e,
                                     .first = i,
                                     .calls = test_quick() ? 4 : 60};
        if (!callers[i].ctx ||
            pthread_create(&callers[i].thread, NULL, call_often, &callers[i]) != 0) {
            FAIL("thread %d did not start", i);
            break;
        }
        started++;
    }
    for (int i = 0; i < started; i++) {
        pthread_join(callers[i].thread, NULL);
        if (!ctx) ptl_context_destroy(callers[i].ctx);
        if (callers[i].n_wrong)
            FAIL("thread %d: %d of %d calls went wrong", i, callers[i].n_wrong, callers[i].calls);
    }
}

static void context_of_each_thread(void) {
    struct expectations e;
    if (!expect(&e)) return;
    run_callers(NULL, &e);
    forget(&e);
}

static void context_of_all_threads(void) {
    static const int n_threads[] = {1, 2, 7};
    struct expectations e;
    if (!expect(&e)) return;
    for (int i = 0; i < 3; i++) {
        test_case("%d threads", n_threads[i]);
        struct ptl_context *ctx = create(PTL_EXEC_POOL, n_threads[i]);
        if (ctx) run_callers(ctx, &e);
        ptl_context_destroy(ctx);
    }
    forget(&e);
}

/* Contexts come and go, used or not. */
static void created_and_destroyed(void) {
    struct expectations e;
    if (!expect(&e)) return;
    for (int n = 0; n < (test_quick() ? 3 : 100); n++) {
        struct ptl_context *ctx = create(PTL_EXEC_POOL, 1 + n % 5);
        if (n % 3 && !call(ctx, &e, n % N_LINES)) FAIL("context %d", n);
        ptl_context_destroy(ctx);
    }
    forget(&e);
}

/* ---- Executors ------------------------------------------------------------------------------- */

/* A host may run the ranges one after the other, backwards, or several indices at once. */
static void one_by_one_backwards(void *host, int64_t n, ptl_range_fn fn, void *arg) {
    (void)host;
    for (int64_t i = n - 1; i >= 0; i--) fn(arg, i, i + 1);
}

static void all_in_one_range(void *host, int64_t n, ptl_range_fn fn, void *arg) {
    ++*(int *)host;
    fn(arg, 0, n);
}

static void host_executors(void) {
    static const ptl_parallel_for_fn hosts[] = {one_by_one_backwards, all_in_one_range};
    struct expectations e;
    int n_calls = 0;
    if (!expect(&e)) return;
    for (int h = 0; h < 2; h++) {
        struct ptl_context_options o;
        struct ptl_context *ctx;
        ptl_context_options_init(&o);
        o.isa = best_level();
        o.executor = PTL_EXEC_HOST;
        o.num_threads = 5;
        o.parallel_for = hosts[h];
        o.host = &n_calls;
        test_case("%s", h ? "all in one range" : "one by one backwards");
        if (ptl_context_create(&ctx, &o) != PTL_OK) {
            FAIL("%s", ptl_message());
            continue;
        }
        for (int i = 0; i < N_LINES; i++)
            if (!call(ctx, &e, i)) FAIL("%s", lines[i]);
        ptl_context_destroy(ctx);
    }
    CHECK(n_calls > 0);
    forget(&e);
}

/* ---- Reuse ----------------------------------------------------------------------------------- */

static size_t scratch_bytes(struct ptl_context *ctx) {
    struct ptl_context_info info = {.struct_size = sizeof info};
    CHECK(ptl_context_get_info(ctx, &info) == PTL_OK);
    return info.scratch_bytes;
}

static void growing_and_shrinking(void) {
    struct expectations e;
    if (!expect(&e)) return;
    struct ptl_context *ctx = create(PTL_EXEC_POOL, 3);
    size_t most = scratch_bytes(ctx);
    CHECK(most == 0);
    for (int n = 0; n < 3 * N_LINES; n++) {
        if (!call(ctx, &e, n * 5 % N_LINES)) FAIL("call %d: %s", n, lines[n * 5 % N_LINES]);
        const size_t now = scratch_bytes(ctx);
        if (now < most || now == 0) FAIL("call %d: %zu bytes of scratch after %zu", n, now, most);
        if (n >= N_LINES && now != most) FAIL("call %d: scratch still grows", n);
        most = now;
    }
    ptl_context_destroy(ctx);
    forget(&e);
}

/* ---- Fork ------------------------------------------------------------------------------------ */

/* Every line in a child, by a context of before the fork and by a new one; true when all is
 * right. */
static bool right_in_child(struct ptl_context *ctx, const struct expectations *e) {
    fflush(NULL);
    const pid_t child = fork();
    if (child < 0) return false;
    if (child == 0) {
        alarm(120); /* a hang ends as a failure */
        bool ok = true;
        struct ptl_context *other = create(PTL_EXEC_POOL, 3);
        for (int i = 0; i < N_LINES; i++) ok = ok && call(ctx, e, i) && call(other, e, i);
        ptl_context_destroy(ctx);
        ptl_context_destroy(other);
        _exit(ok ? 0 : 1);
    }
    int status = 0;
    return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static void fork_between_calls(void) {
    struct expectations e;
#ifdef TEST_THREAD_SANITIZER
    test_skip("ThreadSanitizer has no threads after a fork");
    return;
#endif
    if (!expect(&e)) return;
    struct ptl_context *ctx = create(PTL_EXEC_POOL, 4);
    CHECK(right_in_child(ctx, &e)); /* no thread was started yet */
    for (int n = 0; n < (test_quick() ? 1 : 5); n++) {
        for (int i = 0; i < N_LINES; i++) CHECK(call(ctx, &e, i));
        CHECK(right_in_child(ctx, &e));
        for (int i = 0; i < N_LINES; i++)
            CHECK(call(ctx, &e, i)); /* the parent's threads live on */
    }
    ptl_context_destroy(ctx);
    forget(&e);
}

static const struct test tests[] = {
    {"context_of_each_thread", context_of_each_thread},
    {"context_of_all_threads", context_of_all_threads},
    {"created_and_destroyed", created_and_destroyed},
    {"host_executors", host_executors},
    {"growing_and_shrinking", growing_and_shrinking},
    {"fork_between_calls", fork_between_calls},
};
TEST_SUITE(threads_suite, "threads", tests);
