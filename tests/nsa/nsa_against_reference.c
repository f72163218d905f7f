/* The attention operators against the reference: random problems, every group size, head sizes,
 * types, lengths around the edges of tiles, large logits. */
#include "nsa_check.h"
#include "nsa_suites.h"

#define COUNT(list) ((int)(sizeof(list) / sizeof((list)[0])))

static void random_problems(void) {
    struct nsa_spec s;
    for (uint64_t seed = 1; seed <= (test_quick() ? 12 : 300); seed++) {
        nsa_spec_random(&s, seed, seed % 10 == 0 ? 200 : 60);
        nsa_check_case(&s);
    }
}

/* G heads for a kv head: fewer, as many and more than there are lanes, and no divisors of them. */
static void group_sizes(void) {
    static const int64_t groups[] = {1, 2, 3, 5, 7, 8, 12, 16, 24, 25, 48, 64, 96, 128};
    for (int i = 0; i < COUNT(groups); i++)
        for (int64_t kv_heads = 1; kv_heads <= 2; kv_heads++) {
            struct nsa_spec s;
            nsa_spec_init(&s);
            s.group = groups[i];
            s.kv_heads = kv_heads;
            s.d = 9;
            s.page = kv_heads == 1 ? 16 : 0;
            nsa_spec_length(&s, 70, kv_heads == 1 ? 1 : 7);
            nsa_check_case(&s);
        }
}

static void head_sizes(void) {
    static const int64_t dims[] = {1, 3, 17, 72, 192, 128, 512};
    for (int i = 0; i < COUNT(dims); i++)
        for (int k = 0; k < COUNT(dims); k++) {
            struct nsa_spec s;
            nsa_spec_init(&s);
            s.d = dims[i];
            s.dv = dims[k];
            s.gap = (i + k) % 2;
            s.dtype = (enum ptl_dtype)(PTL_F32 + (i + 2 * k) % 3);
            nsa_spec_length(&s, test_quick() ? 21 : 45, 3);
            nsa_check_case(&s);
        }
}

/* The sizes of the paper, and of MiniCPM4: maximum, no own sum, own queries. */
static void sizes_of_models(void) {
    static const enum ptl_dtype types[] = {PTL_F32, PTL_F16, PTL_BF16};
    for (int i = 0; i < 3; i++) {
        struct nsa_spec s;
        nsa_spec_init(&s);
        ptl_nsa_params_init(&s.o);
        s.dtype = types[i];
        s.group = 16;
        s.d = 24;
        s.dv = 16;
        s.page = 64;
        s.page_c = 16;
        nsa_spec_length(&s, test_quick() ? 700 : 2100, 2);
        nsa_check_case(&s);
        s.o.pool = PTL_NSA_POOL_MAX;
        s.o.n_local = 9;
        s.o.window = 0;
        s.q_cmp = s.lse_in = true;
        nsa_check_case(&s);
    }
}

/* Lists of keys that end at, before and behind the edges of tiles and splits: tokens, and, with a
 * stride of 1, compressed keys. */
static void tile_edges(void) {
    static const int64_t edges[] = {64, 128, 192, 256, 384, 512, 768, 1024, 4096};
    for (int i = 0; i < COUNT(edges) - test_quick() * 3; i++)
        for (int64_t n = edges[i] - 1; n <= edges[i] + 2; n++) {
            struct nsa_spec s;
            nsa_spec_init(&s);
            s.d = 4;
            s.dv = 3;
            s.o.stride = 1;
            s.o.block = 2;
            s.o.select_block = 16;
            s.o.window = edges[i];
            s.o.topk = n % 2 ? 8 : edges[i] / 16 + 2;
            s.page = n % 3 ? 16 : 0;
            nsa_spec_length(&s, n, 3);
            nsa_check_case(&s);
        }
}

/* More of them in a prefill, where rows of one panel end in different tiles. */
static void prefill_over_edges(void) {
    struct nsa_spec s;
    nsa_spec_init(&s);
    s.d = 3;
    s.dv = 5;
    s.o.stride = 1;
    s.o.block = 3;
    s.o.select_block = 5;
    s.o.window = 130;
    s.o.topk = 30;
    nsa_spec_length(&s, test_quick() ? 140 : 530, test_quick() ? 140 : 530);
    nsa_check_case(&s);
    s.group = 3;
    s.kv_heads = 2;
    s.o.select_block = 64;
    s.o.block = 70;
    s.dtype = PTL_BF16;
    nsa_check_case(&s);
}

/* The probabilities are rounded before they are used. */
static void low_scores(void) {
    for (int type = PTL_F16; type <= PTL_BF16; type++)
        for (int own = 0; own < 2; own++) {
            struct nsa_spec s;
            nsa_spec_init(&s);
            s.o.score_dtype = (enum ptl_dtype)type;
            s.dtype = own ? (enum ptl_dtype)type : PTL_F32;
            s.group = 5;
            nsa_spec_length(&s, 333, 40);
            nsa_check_case(&s);
        }
}

/* exp of these would overflow; only the largest logits of a row count. */
static void large_logits(void) {
    for (int type = PTL_F32; type <= PTL_BF16; type++)
        for (int negative = 0; negative < 2; negative++) {
            struct nsa_spec s;
            nsa_spec_init(&s);
            s.dtype = (enum ptl_dtype)type;
            s.magnitude = 1e4f;
            s.o.scale = negative ? -1.0f : 1.0f;
            s.slack = 1e3; /* rounding errors of the logits are errors of the exponent */
            nsa_spec_length(&s, 150, 30);
            nsa_check_case(&s);
        }
}

static const struct test tests[] = {
    {"random_problems", random_problems}, {"group_sizes", group_sizes},
    {"head_sizes", head_sizes},           {"sizes_of_models", sizes_of_models},
    {"tile_edges", tile_edges},           {"prefill_over_edges", prefill_over_edges},
    {"low_scores", low_scores},           {"large_logits", large_logits},
};
TEST_SUITE(nsa_reference_suite, "nsa", tests);
