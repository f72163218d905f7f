/* The edge cases of docs/hstu.md for the backward call, for halves and for pages, one test for each
 * kind of row of the table; scores, inputs and gradients that are not finite; garbage in index
 * arrays. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../ref/elements.h"
#include "../../ref/hstu.h"
#include "guard.h"
#include "hstu_backward_check.h"
#include "op_suites.h"
#include "tensor_check.h"

#define COUNT(list) ((int)(sizeof(list) / sizeof((list)[0])))

static void check_all(const char *const *lines, int n) {
    static const char *const types[] = {"f32", "bf16", "f16"};
    for (int i = 0; i < n; i++)
        for (int t = 0; t < COUNT(types); t++) {
            char line[MAX_LINE];
            snprintf(line, sizeof line, "%s dtype=%s", lines[i], types[t]);
            test_case("%s", line);
            hstu_check_line(line);
        }
}

/* ---- Lengths and options --------------------------------------------------------------------- */

static void lengths(void) {
    static const char *const lines[] = {
        "hstu_backward lengths=list:0,5,0,3,0,0 d=4 h=2 ds=1 bias=dense pad=3",
        "hstu_backward lengths=list:0,4 lengths_k=list:6,9 d=4 "
        "num_targets=list:50,2",
        "hstu_backward layout=dense b=3 s=5 d=4 seqused_q=list:0,5,1 "
        "seqused_k=list:0,5,3 ds=1",
        "hstu_backward sq=4 sk=0 d=3 h=2 rule=none ds=1",
        "hstu_backward layout=dense b=2 sq=4 sk=0 d=3 rule=none",
        "hstu_backward lengths=list:4,3 lengths_k=list:0,3 d=3 rule=none",
        "hstu_backward lengths=list:0,0 lengths_k=list:3,4 d=3 ds=1",
        "hstu_backward lengths=list:0,0,0 d=5 pos_table=1 time_table=1 ds=1",
        "hstu_backward lengths=list:0,0 pad=7 d=5 ds=1",
        "hstu_backward b=0 lengths=uniform:0,0 d=5",
        "hstu_backward layout=dense b=0 s=4 d=5 bias=dense",
        "hstu_backward layout=dense b=3 s=0 d=5",
        "hstu_backward lengths=list:1,1,1,1,1 h=4 hk=2 d=17 bias=dense "
        "bias_batch=b",
        "hstu_backward sq=150 sk=7 d=8 h=2 rule=none pos_table=1",
        "hstu_backward lengths=list:7,200 lengths_k=list:200,7 d=8 rule=none "
        "bias=dense",
        "hstu_backward sq=150 sk=7 d=8 mask=random",
        "hstu_backward sq=40 sk=7 d=8 intervals=2",
        "hstu_backward lengths=list:400,3 d=8 seqused_q=list:1,0 "
        "seqused_k=list:2,0 pad=30 ds=1",
        "hstu lengths=list:0,5,0 lengths_k=list:7,9,0 d=4 page_size=3 pad=3",
        "hstu lengths=list:0,0 lengths_k=list:7,0 d=4 page_size=3",
        "hstu lengths=list:0,3 lengths_k=list:0,3 num_targets=list:0,3 d=4 "
        "page_size=3", /* no cache */
        "hstu b=0 lengths=uniform:0,0 d=4 page_size=3",
    };
    check_all(lines, COUNT(lines));
}

static void options(void) {
    static const char *const lines[] = {
        "hstu_backward lengths=list:9,1,130 d=8 num_targets=list:9,1,130",
        "hstu_backward lengths=list:9,1,130 d=8 num_targets=list:9,1,130 window_size=2,0 "
        "num_contexts=3",
        "hstu_backward lengths=list:9,130 d=8 num_contexts=500 num_targets=3",
        "hstu_backward lengths=list:9,130 d=8 num_contexts=500 window_size=4,0",
        "hstu_backward lengths=list:20,30,40 d=8 num_contexts=list:4,0,4 num_targets=list:0,5,7",
        "hstu_backward lengths=list:3,1 lengths_k=list:40,20 d=8 num_targets=list:10,15",
        "hstu_backward s=40 d=8 window_size=0,0 num_targets=9 target_group_size=3",
        "hstu_backward s=150 d=8 window_size=1000000,0 num_targets=20 target_group_size=100000",
        "hstu_backward s=150 d=8 window_size=0,0 min_full_attn_seq_len=4000",
        "hstu_backward s=30 d=8 attn_scale=0 ds=1",
        "hstu_backward s=30 d=8 alpha=0 bias=dense bias_scale=1 ds=1",
        "hstu_backward s=30 d=8 alpha=0 bias=dense pos_table=1 ds=1",
        "hstu_backward s=30 d=8 intervals=0 ds=1 bias=dense",
        "hstu_backward s=30 d=8 mask=random:0 ds=1 bias=dense",
        "hstu lengths=list:9,1,30 lengths_k=list:9,1,130 d=8 num_targets=list:9,1,30 page_size=4",
        "hstu lengths=list:9,30 lengths_k=list:9,130 d=8 num_contexts=500 num_targets=3 "
        "page_size=4",
    };
    check_all(lines, COUNT(lines));
}

static void dims(void) {
    static const int sizes[] = {1, 3, 5, 17, 72, 200};
    for (int i = 0; i < 6; i++)
        for (int k = 0; k < 6; k++) {
            char line[MAX_LINE];
            snprintf(line, sizeof line,
                     "hstu_backward lengths=list:%s,3 d=%d dv=%d view=gap dtype=%s",
                     test_quick() ? "9" : "61", sizes[i], sizes[k],
                     (i + k) % 3 == 0   ? "f32"
                     : (i + k) % 3 == 1 ? "bf16"
                                        : "f16");
            test_case("%s", line);
            hstu_check_line(line);
        }
    test_case("head sizes 512 and 1024");
    hstu_check_line("hstu_backward s=9 d=512 dv=1024");
    hstu_check_line("hstu_backward s=9 d=1024 dv=512 dtype=bf16");
}

/* bf16 and f16 at N = 16k with scores of size 1e4: finite, and as good as the bound says. */
static void long_and_large(void) {
    static const char *const lines[] = {
        "hstu sq=40 sk=16384 d=64 alpha=600 dtype=bf16 scaling_seqlen=16384",
        "hstu sq=40 sk=16384 d=64 alpha=600 dtype=f16 scaling_seqlen=16384",
        "hstu_backward sq=20 sk=16384 d=32 alpha=900 dtype=bf16 scaling_seqlen=16384 ds=1"};
    for (int i = 0; i < (test_quick() ? 0 : COUNT(lines)); i++) {
        test_case("%s", lines[i]);
        hstu_check_line(lines[i]);
    }
}

/* ---- Not finite ------------------------------------------------------------------------------ */

/* Scores that are infinite or NaN at some pairs, made so by the bias; and others behind the
 * mask. */
static void scores(void) {
    static const float bad[] = {-INFINITY, INFINITY, NAN};
    static const char *const lines[] = {
        "h=1 s=9 d=3 bias=dense bias_scale=1",
        "h=2 s=140 d=5 bias=dense bias_scale=1 rule=local:30,2",
        "h=2 s=140 d=5 bias=dense bias_head=h bias_scale=2 mask=random dtype=bf16",
        "layout=dense b=2 s=90 d=5 bias=dense bias_scale=1 num_targets=30 dtype=f16"};
    for (int i = 0; i < 2 * COUNT(lines); i++)
        for (int kind = 0; kind < 3; kind++) {
            struct problem problem;
            char line[MAX_LINE];
            snprintf(line, sizeof line, "%s %s%s", i % 2 ? "hstu_backward" : "hstu", lines[i / 2],
                     i % 2 ? " ds=1" : "");
            test_case("%s, bias %g at some pairs", line, (double)bad[kind]);
            if (!hstu_problem(&problem, line)) continue;
            const struct ptl_tensor *t = &problem.hstu.attn_bias;
            struct test_random r = {(uint64_t)i + 1};
            const int64_t n = tensor_elements(t);
            for (int places = 0; places < 6; places++)
                ((float *)t->data)[test_random_int(&r, 0, n - 1)] = bad[kind];
            if (i % 2) hstu_check_backward(&problem.hstu, &problem.grads);
            else hstu_check(&problem.hstu);
            problem_destroy(&problem);
        }
}

/* Every gradient against what it was where the reference says that nothing changed, else not finite
 * where the reference is not. */
static void compare_spoilt(const struct ptl_hstu_grads *g, const struct hstu_grad_doubles *old,
                           const struct hstu_grad_doubles *new,
                           const struct hstu_grad_floats *before,
                           const struct hstu_grad_floats *got, const char *name) {
    for (int i = 0; i < N_GRADS; i++)
        for (int64_t k = 0; k < got->n[i]; k++) {
            const double e = new->grad[i][k];
            const float x = got->grad[i][k];
            const double as_type = ref_round(hstu_grad(g, i)->dtype, e);
            if (e == old->grad[i][k] ? float_bits(x) == float_bits(before->grad[i][k])
                : isnan(e)           ? isnan(x)
                : isinf(as_type)     ? (double)x == as_type
                                     : isfinite(x))
                continue;
            FAIL("%s: %s[%lld] is %g, was %g, expected %g", name, hstu_grad_names[i], (long long)k,
                 (double)x, (double)before->grad[i][k], e);
            return;
        }
}

static void spoil(struct problem *problem, const struct ptl_tensor *t, struct test_random *r) {
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    const struct ptl_hstu_params *p = &problem->hstu;
    const struct ptl_hstu_grads *g = &problem->grads;
    struct hstu_grad_floats before = hstu_grad_floats_create(g), got = hstu_grad_floats_create(g);
    struct hstu_grad_doubles old = hstu_expected_gradients(p, g, false);
    const int64_t n = tensor_elements(t);
    for (int places = 0; places < (test_quick() ? 3 : 8); places++) {
        int64_t at = tensor_offset(t, test_random_int(r, 0, n - 1));
        while (isnan(ref_read(t->dtype, t->data, at))) /* a row that is not used */
            at = tensor_offset(t, test_random_int(r, 0, n - 1));
        const double kept = ref_read(t->dtype, t->data, at);
        const struct hstu_variant *v;
        for (int i = 0; (v = hstu_variant(i)) != NULL; i++) {
            if (!v->first) continue;
            const bool ok = hstu_run_backward(p, g, v, &before);
            ref_write(t->dtype, t->data, at, (double)bad[places % 3]);
            struct hstu_grad_doubles new = hstu_expected_gradients(p, g, false);
            if (ok && hstu_run_backward(p, g, v, &got))
                compare_spoilt(g, &old, &new, &before, &got, v->name);
            hstu_grad_doubles_destroy(&new);
            ref_write(t->dtype, t->data, at, kept);
        }
    }
    hstu_grad_doubles_destroy(&old);
    hstu_grad_floats_destroy(&before);
    hstu_grad_floats_destroy(&got);
}

static void inputs(void) {
    static const char *const lines[] = {
        "d=9 dv=20 h=2 rule=causal",
        "d=9 dv=20 h=2 rule=none ds=1",
        "d=9 dv=20 h=2 hk=1 rule=local:17,0 bias=dense",
        "d=9 dv=20 h=4 hk=2 num_contexts=13 num_targets=random:70 target_group_size=3 dtype=bf16",
        "d=9 dv=20 h=2 mask=random mask_batch=b mask_head=h ds=1",
        "d=9 dv=20 h=2 mask=random:0.02 attn_scale=token dtype=f16",
        "d=9 dv=20 h=2 intervals=3 view=gap pos_table=1",
    };
    struct test_random r = {22};
    for (int i = 0; i < COUNT(lines); i++)
        for (int which = 0; which < 4; which++) {
            static const char *const names[] = {"q", "k", "v", "dout"};
            struct problem problem;
            char line[MAX_LINE];
            snprintf(line, sizeof line, "hstu_backward %s %s",
                     test_quick() ? "lengths=list:13,5" : "lengths=list:150,40", lines[i]);
            test_case("%s, bad numbers in %s", line, names[which]);
            if (!hstu_problem(&problem, line)) continue;
            const struct ptl_tensor *const t[4] = {&problem.hstu.q, &problem.hstu.k,
                                                   &problem.hstu.v, &problem.grads.dout};
            spoil(&problem, t[which], &r);
            problem_destroy(&problem);
        }
}

/* ---- Garbage --------------------------------------------------------------------------------- */

/* Index arrays with a wild number or two: the call refuses it or takes it, and never reads or
 * writes outside its arrays, which end at unmapped pages. */
static void garbage(void) {
    static const char *const lines[] = {
        "hstu lengths=list:9,0,30 lengths_k=list:20,4,33 d=5 num_targets=list:2,0,1 "
        "num_contexts=list:1,2,3",
        "hstu_backward lengths=list:9,0,30 lengths_k=list:20,4,33 d=5 rule=none ds=1 index=i32 "
        "pos_table=1",
        "hstu lengths=list:9,0,30 lengths_k=list:20,4,33 d=5 num_targets=list:2,0,1 page_size=4 "
        "time_table=1",
        "hstu lengths=list:9,0,30 lengths_k=list:20,4,33 d=5 page_size=4 index=i32 bias=dense",
        "hstu_backward layout=dense b=3 s=20 d=5 seqused_q=random seqused_k=random rule=none",
        "hstu_backward lengths=list:20,3 d=5 intervals=3 time_table=1",
        "hstu lengths=list:20,3 d=5 intervals=2 index=i32",
    };
    static const int64_t wild[] = {-1,        0,         1,         7,         1000,
                                   INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, (int64_t)1 << 40};
    struct test_random r = {99};
    int n_taken = 0;
    for (int i = 0; i < COUNT(lines); i++) {
        test_case("%s", lines[i]);
        for (int n = 0; n < (test_quick() ? 20 : 300); n++) {
            struct problem problem;
            if (!hstu_problem(&problem, lines[i])) break;
            struct ptl_hstu_params *p = &problem.hstu;
            struct ptl_tensor *const arrays[] = {
                &p->seq_offsets_q,  &p->seq_offsets_k, &p->seqused_q,    &p->seqused_k,
                &p->num_contexts,   &p->num_targets,   &p->page_offsets, &p->page_ids,
                &p->last_page_lens, &p->intervals,     &p->timestamps,   &p->time_thresholds};
            for (int64_t changes = test_random_int(&r, 1, 3); changes > 0;) {
                const struct ptl_tensor *t = arrays[test_random_int(&r, 0, COUNT(arrays) - 1)];
                if (tensor_elements(t) == 0) continue;
                const int64_t at = test_random_int(&r, 0, tensor_elements(t) - 1);
                const int64_t x = wild[test_random_int(&r, 0, COUNT(wild) - 1)];
                if (t->dtype == PTL_I64) ((int64_t *)t->data)[at] = x;
                else ((int32_t *)t->data)[at] = (int32_t)x;
                changes--;
            }
            struct ptl_context *ctx = hstu_variant(n % 2)->ctx;
            const enum ptl_status status = problem.grads.dq.data
                                               ? ptl_hstu_backward(ctx, p, &problem.grads)
                                               : ptl_hstu_forward(ctx, p);
            n_taken += status == PTL_OK;
            problem_destroy(&problem);
        }
    }
    CHECK(n_taken > 0);
}

static const struct test tests[] = {
    {"lengths", lengths},
    {"options", options},
    {"dims", dims},
    {"long_and_large", long_and_large},
    {"scores_not_finite", scores},
    {"inputs_not_finite", inputs},
    {"garbage_in_index_arrays", garbage},
};
TEST_SUITE(hstu_faults_suite, "hstu/gradient_edges", tests);
