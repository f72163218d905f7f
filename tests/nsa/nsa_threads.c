/* Calls large enough for several threads: blocks that are cut into splits, many whole blocks, both
 * at once. Each on every executor, more than once, and against the reference. */
#include <string.h>

#include "nsa_compare.h"
#include "nsa_suites.h"

static void large(struct nsa_spec *s) {
    nsa_spec_init(s);
    s->group = 16;
    s->d = 32;
    s->dv = 24;
    s->o.block = 4;
    s->o.stride = 2;
    s->o.select_block = 16;
    s->o.topk = 40;
    s->o.window = 700;
    s->page = 64;
    s->page_c = 16;
    nsa_spec_length(s, test_quick() ? 2500 : 6000, 1);
}

/* One token: all threads work at its splits. */
static void one_token(void) {
    for (int n = 0; n < (test_quick() ? 4 : 8); n++) {
        struct nsa_spec s;
        large(&s);
        s.o.pool = n == 1 || n == 2 ? PTL_NSA_POOL_MAX : PTL_NSA_POOL_SUM;
        s.lse_in = n == 2 || n == 3;
        s.mean = n == 4;
        s.swa = n == 5;
        s.dtype = n == 6 ? PTL_BF16 : PTL_F32;
        s.group = n == 7 ? 100 : 16; /* several panels */
        nsa_check_case(&s);
    }
}

/* A few rows, and most of the tokens are selected. */
static void few_rows(void) {
    for (int64_t rows = 2; rows < (test_quick() ? 3 : 9); rows += 3) {
        struct nsa_spec s;
        large(&s);
        const int64_t length = test_quick() ? 1000 : 3000;
        s.o.dense_len = length;
        s.o.topk = 200;
        nsa_spec_length(&s, length, rows);
        nsa_check_case(&s);
        s.kv_heads = 3;
        s.group = 5;
        nsa_check_case(&s);
    }
}

/* One long sequence among short ones, prefill among decode. */
static void unequal_batch(void) {
    static const struct nsa_seq seqs[6] = {{1, 5000, 1}, {2, 40, 40}, {3, 1, 1},
                                           {4, 900, 3},  {5, 70, 20}, {6, 2000, 2}};
    for (int n = test_quick(); n < 3 - test_quick(); n++) {
        struct nsa_spec s;
        large(&s);
        s.kv_heads = 1 + 4 * n;
        s.group = 9;
        s.o.pool = n == 2 ? PTL_NSA_POOL_MAX : PTL_NSA_POOL_SUM;
        s.n_seqs = 6;
        memcpy(s.seq, seqs, sizeof seqs);
        if (test_quick()) s.seq[0].n_tokens = s.seq[5].n_tokens = 800;
        nsa_check_case(&s);
    }
}

static void prefill(void) {
    for (int n = 0; n < 2; n++) {
        struct nsa_spec s;
        large(&s);
        s.group = n ? 3 : 8;
        s.d = s.dv = 8;
        s.o.topk = 8;
        s.o.window = 60;
        nsa_spec_length(&s, test_quick() ? 200 : 900, test_quick() ? 200 : 900);
        nsa_check_case(&s);
    }
}

/* The same call again and again: whoever comes first changes no bit. */
static void again(void) {
    struct nsa_spec s;
    struct nsa_whole w;
    large(&s);
    nsa_spec_length(&s, 4000, 2);
    test_case("%s", nsa_spec_text(&s));
    nsa_whole_create(&w, &s);
    for (int n = 0; n < (test_quick() ? 5 : 40) && w.ok && !test_case_failed(); n++)
        nsa_same_part(&w, &s, n);
    nsa_whole_destroy(&w);
}

static const struct test tests[] = {
    {"one_token", one_token}, {"few_rows", few_rows}, {"unequal_batch", unequal_batch},
    {"prefill", prefill},     {"again", again},
};
TEST_SUITE(nsa_threads_suite, "nsa/threads", tests);
