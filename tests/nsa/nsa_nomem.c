/* PTL_ERR_NOMEM of the attention calls, in a child process with little address space: nothing is
 * written, and the context works again when there is memory. */
#define _GNU_SOURCE
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "memory_limit.h"
#include "nsa_compare.h"
#include "nsa_suites.h"
#include "ops/tensor_check.h"

enum { RIGHT, NO_LIMIT_HERE, WRONG_STATUS, WRONG_MESSAGE, WRITTEN, NO_RECOVERY, N_OUTCOMES };

static void run_all(void *host, int64_t n, ptl_range_fn fn, void *arg) {
    (void)host;
    fn(arg, 0, n);
}

static struct ptl_context *ctx;
static struct nsa_problem x;

static enum ptl_status forward(void) {
    return ptl_nsa_forward(ctx, &x.p);
}
static enum ptl_status compressed(void) {
    return ptl_nsa_compressed_attention(ctx, &x.p);
}
static enum ptl_status attend(void) {
    struct ptl_nsa_params p = x.p;
    p.idx.data = NULL;
    return ptl_nsa_attend(ctx, &p);
}
static enum ptl_status attention(void) {
    struct ptl_attention_params a;
    ptl_attention_params_init(&a);
    a.q = x.p.q;
    a.k = x.p.k;
    a.v = x.p.v;
    a.seq_offsets_q = x.p.seq_offsets_q;
    a.seq_offsets_k = x.p.seq_offsets_k;
    a.out = x.p.out;
    a.lse = x.p.lse_swa;
    return ptl_attention_forward(ctx, &a);
}

/* kc is room for the means of k. */
static enum ptl_status compress(void) {
    struct ptl_nsa_compress_params c;
    ptl_nsa_compress_params_init(&c);
    c.block = x.p.block;
    c.stride = x.p.stride;
    c.x = x.p.k;
    c.y = x.kc;
    c.seq_offsets = x.p.seq_offsets_k;
    return ptl_nsa_compress(ctx, &c);
}

static int call_without_memory(enum ptl_status (*call)(void)) {
    nsa_wipe(&x.p);
    if (x.spec.mean) tensor_wipe(&x.kc);
    if (!limit_memory()) return NO_LIMIT_HERE;
    const enum ptl_status status = call();
    lift_memory_limit();
    if (status != PTL_ERR_NOMEM) return WRONG_STATUS;
    if (!nsa_says("scratch")) return WRONG_MESSAGE;
    for (int o = 0; o < NSA_IDX; o++)
        if (nsa_output(&x.p, o)->data && !tensor_wiped(nsa_output(&x.p, o))) return WRITTEN;
    if (x.spec.mean && !tensor_wiped(&x.kc)) return WRITTEN;
    return call() == PTL_OK ? RIGHT : NO_RECOVERY;
}

static void in_child(const char *name, enum ptl_status (*call)(void)) {
    static const char *const outcomes[N_OUTCOMES] = {
        "",        "the limit has no effect here", "not PTL_ERR_NOMEM", "another message",
        "written", "the next call fails too"};
    int status = 0;
    test_case("%s: %s", name, nsa_spec_text(&x.spec));
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) _exit(call_without_memory(call));
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
    o.executor = PTL_EXEC_HOST; /* slots for 1000 threads, without the threads */
    o.num_threads = 1000;
    o.parallel_for = run_all;
    for (int n = 0; n < 4; n++) {
        struct nsa_spec s;
        nsa_spec_init(&s);
        s.d = s.dv = n / 2 ? 512 : 64;
        s.dtype = n % 2 ? PTL_BF16 : PTL_F32;
        s.mean = n / 2;
        s.o.block = s.mean ? 32 : 4;
        nsa_spec_length(&s, 3000, 300);
        if (ptl_context_create(&ctx, &o) != PTL_OK) {
            FAIL("%s", ptl_message());
            return;
        }
        nsa_create(&x, &s);
        in_child("forward", forward);
        if (s.mean) in_child("compress", compress);
        else in_child("compressed attention", compressed);
        in_child("attend", attend);
        in_child("full attention", attention);
        nsa_destroy(&x);
        ptl_context_destroy(ctx);
    }
}

static const struct test tests[] = {{"no_memory", no_memory}};
TEST_SUITE(nsa_nomem_suite, "nsa", tests);
