/* What must be the same bits: a decoded token and its row of a prefill, any split into chunks and
 * steps, pages, layouts, a sequence alone, heads alone, a call with fewer outputs. And what follows
 * from the formula of the importance. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "nsa_compare.h"
#include "nsa_suites.h"

#define COUNT(list) ((int)(sizeof(list) / sizeof((list)[0])))

/* Flavours: sizes and options that take different ways through the library. */
enum { N_FLAVOURS = 7 };

static void flavour(struct nsa_spec *s, int n) {
    nsa_spec_init(s);
    switch (n) {
    case 1: /* l > l', an own sliding branch */
        s->dtype = PTL_BF16;
        s->kv_heads = 2;
        s->group = 3;
        s->o.block = 6;
        s->o.select_block = 4;
        s->o.score = PTL_NSA_PLUS;
        s->o.order = PTL_NSA_ORDER_SCORE;
        s->q_cmp = s->swa = true;
        break;
    case 2:
        s->dtype = PTL_F16;
        s->o.block = 8;
        s->o.stride = 4;
        s->o.select_block = 12;
        s->o.dense_len = 20;
        s->o.gate_act = PTL_NSA_GATE_SIGMOID;
        s->mean = true;
        break;
    case 3:
        s->group = 16;
        s->d = 17;
        s->o.stride = s->o.block;
        s->o.score = PTL_NSA_ASCEND;
        s->count = s->gates_f32 = true;
        break;
    case 4:
        s->o.pool = PTL_NSA_POOL_MAX;
        s->lse_in = true;
        s->o.window = 0;
        break;
    case 5: /* many compressed keys, some tiles of each branch */
        s->o.block = 3;
        s->o.stride = 1;
        s->o.select_block = 16;
        s->o.topk = 20;
        s->o.window = 200;
        s->d = 4;
        break;
    case 6: /* many kv heads, some of them together */
        s->kv_heads = 7;
        s->d = 5;
        s->dv = 3;
        break;
    }
}

static int64_t flavour_length(int n) {
    return test_quick() ? 45 : n == 5 ? 420 : 130;
}

/* ---- Rows ------------------------------------------------------------------------------------ */

static void decode_is_a_row_of_prefill(void) {
    for (int n = 0; n < N_FLAVOURS; n++) {
        struct nsa_spec s, part;
        struct nsa_whole w;
        const int64_t length = flavour_length(n);
        flavour(&s, n);
        nsa_spec_length(&s, length, length);
        test_case("%s", nsa_spec_text(&s));
        nsa_whole_create(&w, &s);
        for (int64_t t = 0; t < length && w.ok && !test_case_failed(); t++) {
            part = s;
            part.page = t % 3 == 1 ? 16 : 0;
            part.page_c = t % 3 == 2 ? 4 : 0;
            nsa_spec_length(&part, t + 1, 1);
            if (nsa_same_part(&w, &part, (int)t) != 1) FAIL("row %d was not compared", (int)t);
        }
        nsa_whole_destroy(&w);
    }
}

/* Every length from 1 to 1100 decoded: the bits of the prefill, and the numbers of the
 * reference. */
static void every_length(void) {
    struct nsa_spec s, part;
    struct nsa_whole w;
    struct nsa_problem x;
    struct nsa_results r;
    const int64_t longest = test_quick() ? 150 : 1100;
    nsa_spec_init(&s);
    s.d = 3;
    s.dv = 2;
    s.o.window = 70;
    nsa_spec_length(&s, longest, longest);
    test_case("%s", nsa_spec_text(&s));
    nsa_whole_create(&w, &s);
    for (int64_t length = 1; length <= longest && w.ok && !test_case_failed(); length++) {
        part = s;
        nsa_spec_length(&part, length, 1);
        part.page = 1 + length % 9;
        nsa_same_part(&w, &part, (int)length);
        nsa_create(&x, &part);
        const struct hstu_variant *v = hstu_variant((int)length % 2); /* serial, a pool of 2 */
        if (nsa_run(&x, v->ctx, NSA_FORWARD, &r)) {
            nsa_compare(&x, &r, v->name);
            nsa_results_free(&r);
        }
        if (test_case_failed()) FAIL("length %d", (int)length);
        nsa_destroy(&x);
    }
    nsa_whole_destroy(&w);
}

static void steps_of_some_tokens(void) {
    for (int n = 0; n < N_FLAVOURS; n++) {
        struct nsa_spec s, part;
        struct nsa_whole w;
        const int64_t length = flavour_length(n);
        flavour(&s, n);
        nsa_spec_length(&s, length, length);
        test_case("%s", nsa_spec_text(&s));
        nsa_whole_create(&w, &s);
        for (int64_t end = 8, step = 1; end <= length && w.ok && !test_case_failed();
             end += 3, step = step % 8 + 1) {
            part = s;
            part.page = 3;
            nsa_spec_length(&part, end, step);
            if (nsa_same_part(&w, &part, (int)end) != step) FAIL("rows were not compared");
        }
        nsa_whole_destroy(&w);
    }
}

static void chunks_at_every_split(void) {
    for (int n = 0; n < N_FLAVOURS; n++) {
        struct nsa_spec s, part;
        struct nsa_whole w;
        const int64_t length = test_quick() ? 30 : n == 5 ? 300 : 70;
        flavour(&s, n);
        nsa_spec_length(&s, length, length);
        test_case("%s", nsa_spec_text(&s));
        nsa_whole_create(&w, &s);
        for (int64_t split = 0; split <= length && w.ok && !test_case_failed();
             split += n == 5 ? 13 : 1) {
            part = s;
            nsa_spec_length(&part, split, split);
            nsa_same_part(&w, &part, (int)split);
            nsa_spec_length(&part, length, length - split);
            nsa_same_part(&w, &part, (int)split + 1);
        }
        nsa_whole_destroy(&w);
    }
}

/* ---- Layouts --------------------------------------------------------------------------------- */

/* Sequences of several kinds in one call: prefill, chunk, decode, empty. */
static void mixed_batch(struct nsa_spec *s) {
    static const struct nsa_seq seqs[5] = {
        {1, 50, 50}, {2, 77, 20}, {3, 0, 0}, {4, 61, 1}, {5, 13, 0}};
    s->n_seqs = 5;
    memcpy(s->seq, seqs, sizeof seqs);
}

static void pages_of_any_size(void) {
    static const int64_t pages[] = {1, 3, 16, 64, 128, 256};
    for (int n = 0; n < N_FLAVOURS; n++) {
        struct nsa_spec s, part;
        struct nsa_whole w;
        flavour(&s, n);
        mixed_batch(&s);
        test_case("%s", nsa_spec_text(&s));
        nsa_whole_create(&w, &s);
        for (int i = 0; i < COUNT(pages) && w.ok && !test_case_failed(); i++)
            for (int which = 1; which < 4; which++) {
                part = s;
                part.page = which & 1 ? pages[i] : 0;
                part.page_c = which & 2 && !s.mean ? pages[(i + which) % COUNT(pages)] : 0;
                part.index = which == 1 ? PTL_I32 : PTL_I64;
                if (nsa_same_part(&w, &part, i) != 71) FAIL("rows were not compared");
            }
        nsa_whole_destroy(&w);
    }
}

static void layouts(void) {
    for (int n = 0; n < N_FLAVOURS; n++) {
        struct nsa_spec s, part;
        struct nsa_whole w;
        flavour(&s, n);
        s.n_seqs = 3;
        for (int b = 0; b < 3; b++) s.seq[b] = (struct nsa_seq){b, 40 + 9 * b, 21};
        test_case("%s", nsa_spec_text(&s));
        nsa_whole_create(&w, &s);
        for (int i = 0; i < 12 && w.ok && !test_case_failed(); i++) {
            part = s;
            part.layout = (enum nsa_layout)(i % 3);
            part.gap = i / 3 % 2 ? 3 : 0;
            part.pad = i / 6 ? 5 : 0;
            if (nsa_same_part(&w, &part, i) != 63) FAIL("rows were not compared");
        }
        nsa_whole_destroy(&w);
    }
}

static void sequence_alone(void) {
    for (int n = 0; n < N_FLAVOURS; n++) {
        struct nsa_spec s, part;
        struct nsa_whole w;
        flavour(&s, n);
        mixed_batch(&s);
        test_case("%s", nsa_spec_text(&s));
        nsa_whole_create(&w, &s);
        for (int b = 0; b < s.n_seqs && w.ok; b++) {
            part = s;
            part.n_seqs = 1;
            part.seq[0] = s.seq[b];
            if (nsa_same_part(&w, &part, b) != s.seq[b].n_queries) FAIL("rows were not compared");
        }
        part = s;
        for (int b = 0; b < s.n_seqs; b++) part.seq[b] = s.seq[s.n_seqs - 1 - b];
        if (w.ok && nsa_same_part(&w, &part, 1) != 71) FAIL("rows were not compared");
        nsa_whole_destroy(&w);
    }
}

static void heads_alone(void) {
    for (int n = 0; n < N_FLAVOURS; n++) {
        struct nsa_spec s, part;
        struct nsa_whole w;
        flavour(&s, n);
        s.kv_heads += 2;
        mixed_batch(&s);
        test_case("%s", nsa_spec_text(&s));
        nsa_whole_create(&w, &s);
        for (int64_t heads = 1; heads < s.kv_heads && w.ok; heads++) {
            part = s;
            part.kv_heads = heads;
            if (nsa_same_part(&w, &part, (int)heads) != 71) FAIL("rows were not compared");
        }
        nsa_whole_destroy(&w);
    }
}

/* ---- Fewer outputs --------------------------------------------------------------------------- */

typedef enum ptl_status operator(struct ptl_context *ctx, const struct ptl_nsa_params *p);

/* `call` with those outputs alone writes what all of them together held. idx, if not NULL, is
 * read. */
static void call_with(const struct nsa_results *all, operator* call,
                      const struct ptl_nsa_params *inputs, const struct ptl_tensor *idx,
                      unsigned outputs, const char *what) {
    struct ptl_nsa_params p = *inputs, written;
    struct nsa_results r;
    for (int o = 0; o < NSA_N_OUTPUTS; o++)
        if (!(outputs >> o & 1)) nsa_output(&p, o)->data = NULL;
    written = p;
    if (idx) p.idx = *idx;
    nsa_wipe(&written);
    const enum ptl_status status = call(hstu_variant(0)->ctx, &p);
    if (status != PTL_OK) {
        FAIL("%s: %s: %s", what, ptl_status_name(status), ptl_message());
        return;
    }
    nsa_take(&written, &r);
    for (int64_t row = 0; row < p.q.shape[0]; row++)
        if (!nsa_same_rows(all, row, &r, row, what)) break;
    nsa_results_free(&r);
}

static void fewer_outputs(void) {
    for (int n = 0; n < N_FLAVOURS; n++) {
        struct nsa_spec s;
        struct nsa_problem x;
        struct nsa_results all;
        flavour(&s, n);
        nsa_spec_length(&s, 90, 33);
        test_case("%s", nsa_spec_text(&s));
        nsa_create(&x, &s);
        if (!nsa_run(&x, hstu_variant(0)->ctx, NSA_FORWARD, &all)) {
            nsa_destroy(&x);
            continue;
        }
        call_with(&all, ptl_nsa_forward, &x.p, NULL, 1u << NSA_OUT, "out alone");
        call_with(&all, ptl_nsa_forward, &x.p, NULL, 1u << NSA_OUT | 1u << NSA_IDX, "out and idx");
        call_with(&all, ptl_nsa_forward, &x.p, NULL, 1u << NSA_OUT | 1u << NSA_LSE_SLC,
                  "out and lse_slc");
        static const int scores[] = {NSA_OUT_CMP, NSA_LSE_CMP, NSA_IMPORTANCE, NSA_IDX, NSA_NSEL};
        struct ptl_nsa_params p = x.p;
        for (int i = 0; i < COUNT(scores) && !s.mean; i++) {
            if (!nsa_output(&p, scores[i])->data) continue;
            p.vc = x.p.vc;
            call_with(&all, ptl_nsa_compressed_attention, &p, NULL, 1u << scores[i],
                      nsa_output_name(scores[i]));
            p.vc.data = NULL;
            if (i > 0)
                call_with(&all, ptl_nsa_compressed_attention, &p, NULL, 1u << scores[i],
                          "without values");
        }
        nsa_results_free(&all);
        nsa_destroy(&x);
    }
}

/* Selected and sliding attention: each alone, and by single outputs. */
static void branches_alone(void) {
    static const unsigned outputs[] = {1u << NSA_OUT_SLC,
                                       1u << NSA_OUT_SWA,
                                       1u << NSA_LSE_SLC,
                                       1u << NSA_LSE_SWA,
                                       1u << NSA_OUT_SLC | 1u << NSA_OUT_SWA,
                                       1u << NSA_OUT_SLC | 1u << NSA_LSE_SWA};
    for (int n = 0; n < N_FLAVOURS; n++) {
        struct nsa_spec s;
        struct nsa_problem x;
        struct nsa_results all;
        flavour(&s, n);
        nsa_spec_length(&s, 90, 33);
        test_case("%s", nsa_spec_text(&s));
        nsa_create(&x, &s);
        if (nsa_run(&x, hstu_variant(0)->ctx, NSA_FORWARD, &all)) {
            struct ptl_tensor idx = x.p.idx;
            idx.data = all.row[NSA_IDX];
            for (int i = 0; i < COUNT(outputs); i++)
                call_with(&all, ptl_nsa_attend, &x.p, &idx, outputs[i], "attend");
            nsa_results_free(&all);
        }
        nsa_destroy(&x);
    }
}

/* ---- The formula of the importance ----------------------------------------------------------- */

/* OVERLAP: the importance of all blocks sums up to G block / stride where anything is seen, and no
 * later block has any. */
static void sum_of_the_importance(void) {
    for (uint64_t seed = 1000; seed < (test_quick() ? 1010 : 1100); seed++) {
        struct nsa_spec s;
        struct nsa_problem x;
        struct nsa_results r;
        nsa_spec_random(&s, seed, 150);
        s.o.score = PTL_NSA_OVERLAP;
        s.o.pool = PTL_NSA_POOL_SUM;
        s.lse_in = false;
        s.layout = NSA_JAGGED;
        test_case("%s", nsa_spec_text(&s));
        nsa_create(&x, &s);
        if (!nsa_run(&x, hstu_variant(seed % 2 ? 0 : 1)->ctx, NSA_FORWARD, &r)) {
            nsa_destroy(&x);
            continue;
        }
        const double whole = (double)(s.group * (s.o.block / s.o.stride));
        const int64_t n_blocks = r.width[NSA_IMPORTANCE] / s.kv_heads;
        const float *importance = r.row[NSA_IMPORTANCE];
        for (int b = 0; b < s.n_seqs; b++)
            for (int64_t i = 0; i < s.seq[b].n_queries; i++)
                for (int64_t h = 0; h < s.kv_heads; h++, importance += n_blocks) {
                    const int64_t t = s.seq[b].n_tokens - s.seq[b].n_queries + i;
                    double sum = 0.0;
                    for (int64_t j = 0; j < n_blocks; j++) {
                        sum += (double)importance[j];
                        if (j > t / s.o.select_block && importance[j] != 0.0f)
                            FAIL("t = %d: block %d has %g", (int)t, (int)j, (double)importance[j]);
                    }
                    const double expected = t + 1 >= s.o.block ? whole : 0.0;
                    if (fabs(sum - expected) > 2e-5 * whole)
                        FAIL("t = %d: the sum is %.9g, expected %g", (int)t, sum, expected);
                }
        nsa_results_free(&r);
        nsa_destroy(&x);
    }
}

static const struct test tests[] = {
    {"decode_is_a_row_of_prefill", decode_is_a_row_of_prefill},
    {"every_length", every_length},
    {"steps_of_some_tokens", steps_of_some_tokens},
    {"chunks_at_every_split", chunks_at_every_split},
    {"pages_of_any_size", pages_of_any_size},
    {"layouts", layouts},
    {"sequence_alone", sequence_alone},
    {"heads_alone", heads_alone},
    {"fewer_outputs", fewer_outputs},
    {"branches_alone", branches_alone},
    {"sum_of_the_importance", sum_of_the_importance},
};
TEST_SUITE(nsa_identities_suite, "nsa/identities", tests);
