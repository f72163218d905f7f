/* Fuzz target: any text as a problem line, parsed; and, where the problem is small, made. The
 * library is not called: whether it takes the problem is tested elsewhere. */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "problem.h"
#include "problem_line.h"

/* Rows of all sequences that may be asked for, an upper bound; -1: too many. */
static int64_t rows_asked(const struct problem_line *p, const struct seq_numbers *lengths,
                          int64_t each) {
    int64_t rows = 0;
    if (p->b > 64 || p->pad > 100) return -1;
    for (int64_t b = 0; b < p->b; b++) {
        const int64_t n = lengths->kind == SEQ_LIST ? lengths->list[b]
                          : lengths->kind           ? lengths->high
                                                    : each;
        if (n > 200) return -1;
        rows += n;
    }
    return rows + p->pad;
}

static bool is_small(const struct problem_line *p) {
    const int64_t q = rows_asked(p, &p->lengths, p->sq), k = rows_asked(p, &p->lengths_k, p->sk);
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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char sentence[512] = "";
    struct refusal refusal = {sentence, sizeof sentence};
    struct problem_line parsed;
    char *line = malloc(size + 1);
    FUZZ_REQUIRE(line);
    memcpy(line, data, size);
    line[size] = 0;
    if (problem_line_parse(&parsed, line, &refusal)) {
        const bool small = is_small(&parsed);
        problem_line_free(&parsed);
        if (small) make(line);
    } else {
        FUZZ_REQUIRE(sentence[0]);
    }
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
    SEED("list:"),
    SEED("random:"),
    SEED("9223372036854775807"),
    SEED("-1"),
    SEED("1e999"),
};
const int n_fuzz_seeds = sizeof fuzz_seeds / sizeof fuzz_seeds[0];
