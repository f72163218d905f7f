/* Fuzz target: any text as a problem line of HSTU and as one of NSA, parsed; and, where the problem
 * is small, made. The operators are not called: whether they take the problem is tested
 * elsewhere. */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "problem.h"
#include "problem_line.h"
#include "problem_nsa.h"

/* Rows of all sequences that may be asked for, an upper bound; -1: too many. */
static int64_t rows_asked(int64_t n_seqs, int64_t pad, const struct seq_numbers *lengths,
                          int64_t each) {
    int64_t rows = 0;
    if (n_seqs > 64 || pad > 100) return -1;
    for (int64_t b = 0; b < n_seqs; b++) {
        const int64_t n = lengths->kind == SEQ_LIST ? lengths->list[b]
                          : lengths->kind           ? lengths->high
                                                    : each;
        if (n > 200) return -1;
        rows += n;
    }
    return rows + pad;
}

static bool is_small(const struct problem_line *p) {
    const int64_t q = rows_asked(p->b, p->pad, &p->lengths, p->sq);
    const int64_t k = rows_asked(p->b, p->pad, &p->lengths_k, p->sk);
    return q >= 0 && k >= 0 && q < 1000 && k < 1000 && p->h <= 8 && p->d <= 64 && p->dv <= 64 &&
           p->max_seqlen_q <= 300 && p->max_seqlen_k <= 300 && p->n_intervals <= 16 &&
           p->thresholds <= 300 && p->page_size <= 300;
}

static void make(const char *line) {
    char sentence[512] = "";
    struct problem problem;
    if (problem_create(&problem, line, PROBLEM_GUARD, sentence, sizeof sentence)) {
        FUZZ_REQUIRE(problem.hstu.q.data && (problem.hstu.out.data || problem.grads.dq.data));
        problem_destroy(&problem);
    } else {
        FUZZ_REQUIRE(sentence[0]);
    }
}

static void try_hstu(const char *line) {
    char sentence[512] = "";
    struct refusal refusal = {sentence, sizeof sentence};
    struct problem_line parsed;
    if (problem_line_parse(&parsed, line, &refusal)) {
        const bool small = is_small(&parsed);
        problem_line_free(&parsed);
        if (small) make(line);
    } else {
        FUZZ_REQUIRE(sentence[0]);
    }
}

/* ---- NSA ------------------------------------------------------------------------------------- */

static bool is_small_nsa(const struct nsa_line *p) {
    const int64_t k = rows_asked(p->b, 0, &p->lengths, p->sk);
    const int64_t q = rows_asked(p->b, 0, &p->lengths_q, p->sq);
    return k >= 0 && q >= 0 && k < 1000 && q < 1000 && p->h <= 8 && p->hk <= 8 && p->d <= 64 &&
           p->dv <= 64 && p->topk <= 64 && p->page_size <= 300 && p->block <= 300;
}

static void make_nsa(const char *op, const struct nsa_line *line) {
    char sentence[512] = "";
    struct refusal refusal = {sentence, sizeof sentence};
    struct nsa_arguments arguments;
    struct problem_memory *memory = problem_memory_create(true);
    FUZZ_REQUIRE(memory);
    if (!nsa_problem_make(&arguments, op, line, memory, &refusal)) FUZZ_REQUIRE(sentence[0]);
    problem_memory_destroy(memory);
}

static void try_nsa(const char *line) {
    char sentence[512] = "";
    struct refusal refusal = {sentence, sizeof sentence};
    struct words w;
    struct nsa_line parsed;
    if (!words_split(&w, line, &refusal)) {
        FUZZ_REQUIRE(sentence[0]);
        return;
    }
    if (nsa_line_read(&parsed, &w, &refusal)) {
        if (is_small_nsa(&parsed)) make_nsa(w.op, &parsed);
        nsa_line_free(&parsed);
    } else {
        FUZZ_REQUIRE(sentence[0]);
    }
    words_free(&w);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *line = malloc(size + 1);
    FUZZ_REQUIRE(line);
    memcpy(line, data, size);
    line[size] = 0;
    try_hstu(line);
    try_nsa(line);
    free(line);
    return 0;
}

/* ---- Seeds ----------------------------------------------------------------------------------- */

#define SEED(text)                                                                                 \
    { text, sizeof text - 1 }

const struct fuzz_seed fuzz_seeds[] = {
    SEED("hstu b=3 h=4 hk=2 s=37 d=20 dv=12 view=bhsd"),
    SEED("hstu b=5 h=2 lengths=uniform:0,70 d=8 pad=9 view=gap index=i32"),
    SEED("hstu b=5 h=2 lengths=lognormal:40,100 d=8 lengths_k=uniform:0,90 attn_scale=token"),
    SEED("hstu h=2 lengths=list:0,1,2,3,64 d=8 sk=65 alpha=-1e-3 scaling_seqlen=7"),
    SEED("hstu b=5 sq=9 sk=20 d=8 num_targets=random:9 num_contexts=list:1,2,3,4,5 "
         "target_group_size=3 window_size=5,0 min_full_attn_seq_len=2"),
    SEED("hstu b=2 s=20 d=8 seqused_q=random seqused_k=list:20,20 layout=dense seed=5"),
    SEED("hstu b=2 s=20 d=8 mask=random:0.5 mask_batch=b mask_head=h max_seqlen_q=33"),
    SEED("hstu b=2 s=20 d=8 rule=local:4,3 threads=3 isa=scalar executor=host cache=cold ms=0.125"),
    SEED("hstu b=2 h=2 s=20 d=8 view=uvqk rule=none attn_scale=0.5 max_seqlen_k=40"),
    SEED("nsa_compress b=3 hk=2 lengths=list:0,31,100 d=12 page_size=7 mode=weighted pe=1"),
    SEED("nsa_append b=3 hk=2 lengths=list:5,31,100 sq=4 d=12 dv=8 page_size=1 index=i64"),
    SEED("nsa_compressed_attention h=6 hk=2 b=2 s=100 sq=9 d=12 page_size=5 importance=1 "
         "score=ascend order=score score_dtype=bf16 lse=0"),
    SEED("nsa_select hk=2 s=90 sq=50 d=1 topk=40 n_init=3 n_local=5 select_block=2 layout=dense"),
    SEED("nsa_attend h=4 hk=2 b=2 lengths=list:9,30 sq=8 d=16 layout=dense dtype=f16 window=20 "
         "idx=0 dense_len=5"),
    SEED("nsa_combine h=4 s=50 d=16 dv=8 b=2 gate_act=sigmoid"),
    SEED("nsa_forward h=3 hk=1 b=3 lengths=uniform:1,90 lengths_q=lognormal:9,20 d=24 dv=12 "
         "branches=1 kc=1 q_cmp=1 k_swa=1 block=8 stride=4 select_block=1 pool=max scale=-0.5"),
    SEED("nsa_decode h=6 hk=2 b=3 lengths=list:1,9,90 d=24 dv=12 topk=0 seed=7"),
    SEED("attention_decode b=2 h=8 hk=4 lengths=lognormal:30,90 d=16 dtype=bf16"),
    SEED("list:"),
    SEED("random:"),
    SEED("9223372036854775807"),
    SEED("-1"),
    SEED("1e999"),
};
const int n_fuzz_seeds = sizeof fuzz_seeds / sizeof fuzz_seeds[0];
