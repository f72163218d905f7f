/* Gradients that must come out the same bit for bit however they are asked for: a sequence in any
 * batch, any layout, outputs in one buffer, a dout without strides. And what follows from the
 * formula: zero in gives zero out, a group's dk is the sum over its heads, what is not wanted
 * changes nothing. */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../ref/hstu.h"
#include "guard.h"
#include "hstu_twins.h"
#include "op_suites.h"
#include "tensor_check.h"

#define COUNT(list) ((int)(sizeof(list) / sizeof((list)[0])))

static const char *const rules[] = {
    "rule=causal",
    "rule=none dtype=bf16",
    "rule=local:20,0 dtype=f16",
    "rule=local:9,30",
    "num_targets=random:60 target_group_size=4",
    "num_contexts=7 num_targets=random:30 window_size=33,0 dtype=bf16",
    "num_targets=random:20 window_size=25,0 min_full_attn_seq_len=17",
    "mask=random mask_batch=b mask_head=h",
    "intervals=3 attn_scale=token",
};

static const char *batch(void) {
    return test_quick() ? "lengths=list:19,1,0,7" : "lengths=list:150,1,0,37,300,96";
}

/* ---- Batches --------------------------------------------------------------------------------- */

static int64_t offset_at(const struct ptl_tensor *t, int64_t b) {
    return t->dtype == PTL_I64 ? ((const int64_t *)t->data)[b] : ((const int32_t *)t->data)[b];
}

/* The one sequence as a view into the arrays of all. */
static void alone(const struct ptl_hstu_params *p, const struct ptl_hstu_grads *g, int64_t b,
                  int64_t offsets[2], struct ptl_hstu_params *one, struct ptl_hstu_grads *grads) {
    const int64_t first = offset_at(&p->seq_offsets_q, b), n = ref_hstu_uq(p, b), two = 2;
    *one = *p;
    *grads = *g;
    offsets[0] = 0;
    offsets[1] = n;
    one->seq_offsets_q = ptl_tensor_contiguous(offsets, PTL_I64, 1, &two);
    struct ptl_tensor *const rows[] = {&one->q,    &one->k,    &one->v,   &grads->dout,
                                       &grads->dq, &grads->dk, &grads->dv};
    for (int i = 0; i < COUNT(rows); i++) {
        rows[i]->data = (char *)rows[i]->data +
                        first * rows[i]->stride[0] * (int64_t)ptl_dtype_bytes(rows[i]->dtype);
        rows[i]->shape[0] = n;
    }
    struct ptl_tensor *const numbers[] = {&one->num_contexts, &one->num_targets};
    for (int i = 0; i < 2; i++)
        if (numbers[i]->data && numbers[i]->ndim == 1) {
            numbers[i]->data = (char *)numbers[i]->data + b * 8;
            numbers[i]->shape[0] = 1;
        }
    if (p->attn_scale.data && p->attn_scale.ndim == 1) {
        one->attn_scale.data = (float *)p->attn_scale.data + first;
        one->attn_scale.shape[0] = n;
    }
    if (p->intervals.data) {
        one->intervals.data = (int64_t *)p->intervals.data + first * p->intervals.stride[0];
        one->intervals.shape[0] = n;
    }
    if (p->mask.data) {
        one->mask.data = (uint8_t *)p->mask.data + b * p->mask.stride[0];
        one->mask.shape[0] = 1;
        one->max_seqlen_q = p->mask.shape[2];
        one->max_seqlen_k = p->mask.shape[3];
    }
}

static void sequence_alone(void) {
    for (int r = 0; r < COUNT(rules); r++) {
        struct problem problem;
        char line[MAX_LINE];
        snprintf(line, sizeof line, "hstu_backward %s h=4 hk=2 d=16 dv=9 %s", batch(), rules[r]);
        test_case("%s", line);
        if (!hstu_problem(&problem, line)) continue;
        const struct ptl_hstu_params *p = &problem.hstu;
        struct hstu_grad_floats whole = hstu_grad_floats_create(&problem.grads);
        const struct hstu_variant *v;
        for (int i = 0; (v = hstu_variant(i)) != NULL; i++) {
            if (!v->first || !hstu_run_backward(p, &problem.grads, v, &whole)) continue;
            for (int64_t b = 0; b < ref_hstu_n_seqs(p); b++) {
                struct ptl_hstu_params one;
                struct ptl_hstu_grads grads;
                int64_t offsets[2];
                char what[80];
                alone(p, &problem.grads, b, offsets, &one, &grads);
                if (offsets[1] == 0) continue;
                struct hstu_grad_floats x = hstu_grad_floats_create(&grads), part = x;
                for (int k = 0; k < 3; k++)
                    part.grad[k] =
                        whole.grad[k] + offset_at(&p->seq_offsets_q, b) * (x.n[k] / offsets[1]);
                snprintf(what, sizeof what, "%s: sequence %lld alone", v->name, (long long)b);
                if (hstu_run_backward(&one, &grads, v, &x)) hstu_same_gradients(&x, &part, what);
                hstu_grad_floats_destroy(&x);
            }
        }
        hstu_grad_floats_destroy(&whole);
        problem_destroy(&problem);
    }
}

/* ---- Layouts --------------------------------------------------------------------------------- */

static void layouts_are_alike(void) {
    static const char *const views[] = {"view=uvqk",
                                        "view=gap",
                                        "view=bhsd",
                                        "index=i32",
                                        "layout=dense",
                                        "layout=dense view=bhsd",
                                        "layout=dense view=uvqk"};
    for (int r = 0; r < COUNT(rules); r++)
        for (int i = 0; i < COUNT(views); i++) {
            char plain[MAX_LINE], view[MAX_LINE];
            const char *rest = "h=2 d=25 dv=8 ds=1 bias=dense bias_head=h";
            const int s = test_quick() ? 11 : 131;
            if (i > 3 && r > 3) continue;
            struct problem a, b;
            snprintf(plain, sizeof plain, "hstu_backward b=2 s=%d %s %s", s, rest, rules[r]);
            snprintf(view, sizeof view, "%s %s", plain, views[i]);
            test_case("%s", view);
            if (!hstu_problem(&a, plain)) continue;
            if (hstu_problem(&b, view)) {
                twins_backward(&a.hstu, &a.grads, &b.hstu, &b.grads,
                               TWIN_QKV | TWIN_DBIAS | TWIN_DS, "plain");
                problem_destroy(&b);
            }
            problem_destroy(&a);
        }
}

/* All gradients in slices of one wide buffer, which also holds what is not theirs. */
static void slices_of_one_buffer(void) {
    for (int half = 0; half < 2; half++) {
        struct problem problem;
        char line[MAX_LINE];
        snprintf(line, sizeof line,
                 "hstu_backward lengths=list:70,0,9 h=2 d=10 dv=7 pad=2 dtype=%s",
                 half ? "bf16" : "f32");
        test_case("%s", line);
        if (!hstu_problem(&problem, line)) continue;
        struct ptl_hstu_grads sliced = problem.grads;
        struct ptl_tensor *const g[3] = {&sliced.dv, &sliced.dk, &sliced.dq};
        const int64_t rows = g[0]->shape[0], width = 100, bytes = half ? 2 : 4;
        char *buffer = test_alloc((size_t)(rows * width * bytes));
        memset(buffer, 0x5a, (size_t)(rows * width * bytes));
        for (int i = 0; i < 3; i++) {
            g[i]->data = buffer + (3 + i * 30) * bytes;
            g[i]->stride[0] = width;
        }
        twins_backward(&problem.hstu, &problem.grads, &problem.hstu, &sliced, TWIN_QKV, "slices");
        /* hstu_run_backward has looked between the slices; here is what lies outside of all
         * three */
        for (int64_t x = 0; x < rows * width; x++)
            if ((x < 3 || x >= (rows - 1) * width + 3 + 2 * 30 + 2 * 10) &&
                buffer[x * bytes] != 0x5a)
                FAIL("column %lld was written", (long long)(x % width));
        free(buffer);
        problem_destroy(&problem);
    }
}

/* A dout with strides of 0 is the dout that it stands for. */
static void broadcast_dout(void) {
    static const char *const lines[] = {
        "hstu_backward lengths=list:150,3,20 h=3 d=9 dv=20 ds=1",
        "hstu_backward layout=dense b=2 s=70 h=2 d=9 dv=5 dtype=f16",
        "hstu_backward s=60 h=4 hk=2 d=8 dtype=bf16 rule=none"};
    for (int i = 0; i < COUNT(lines); i++) {
        struct problem problem;
        test_case("%s", lines[i]);
        if (!hstu_problem(&problem, lines[i])) continue;
        struct ptl_hstu_grads broadcast = problem.grads;
        const struct ptl_tensor *full = &problem.grads.dout;
        const size_t dim_bytes = (size_t)full->shape[full->ndim - 1] * ptl_dtype_bytes(full->dtype);
        const int64_t n_rows = tensor_elements(full) / full->shape[full->ndim - 1];
        for (int64_t r = 1; r < n_rows; r++)
            memcpy((char *)full->data + (size_t)r * dim_bytes, full->data, dim_bytes);
        for (int axis = 0; axis < full->ndim - 1; axis++) broadcast.dout.stride[axis] = 0;
        twins_backward(&problem.hstu, &problem.grads, &problem.hstu, &broadcast, TWIN_QKV | TWIN_DS,
                       "strides of 0");
        problem_destroy(&problem);
    }
}

/* ---- Formula --------------------------------------------------------------------------------- */

static void zero_dout(void) {
    static const char *const lines[] = {
        "hstu_backward lengths=list:150,0,20 h=4 hk=2 d=9 ds=1 bias=dense pos_table=h time_table=1",
        ("hstu_backward b=2 s=70 h=2 d=9 dtype=bf16 ds=1 bias=dense bias_dtype=same bias_batch=b "
         "num_targets=9"),
        "hstu_backward layout=dense b=2 s=70 h=2 d=9 dtype=f16 mask=random",
    };
    for (int i = 0; i < COUNT(lines); i++) {
        struct problem problem;
        test_case("%s", lines[i]);
        if (!hstu_problem(&problem, lines[i])) continue;
        const struct ptl_tensor *dout = &problem.grads.dout;
        memset(dout->data, 0, (size_t)tensor_span(dout) * ptl_dtype_bytes(dout->dtype));
        struct hstu_grad_floats x = hstu_grad_floats_create(&problem.grads);
        const struct hstu_variant *v;
        for (int w = 0; (v = hstu_variant(w)) != NULL; w++) {
            if (!hstu_run_backward(&problem.hstu, &problem.grads, v, &x)) break;
            for (int g = 0; g < N_GRADS; g++)
                for (int64_t k = 0; k < x.n[g]; k++)
                    if (x.grad[g][k] != 0.0f) {
                        FAIL("%s: %s[%lld] is %g", v->name, hstu_grad_names[g], (long long)k,
                             (double)x.grad[g][k]);
                        break;
                    }
        }
        hstu_grad_floats_destroy(&x);
        problem_destroy(&problem);
    }
}

/* Key heads repeated for each query head: dq is the same bit for bit, dk and dv add up to the
 * group's. */
static void grouped_heads(void) {
    struct problem grouped, repeated;
    const char *line = "hstu_backward lengths=list:150,20 h=6 hk=2 d=16 dv=9";
    test_case("%s", line);
    if (!hstu_problem(&grouped, line)) return;
    if (hstu_problem(&repeated, "hstu_backward lengths=list:150,20 h=6 d=16 dv=9")) {
        for (int side = 0; side < 2; side++) {
            const struct ptl_tensor *from = side ? &grouped.hstu.v : &grouped.hstu.k;
            const struct ptl_tensor *to = side ? &repeated.hstu.v : &repeated.hstu.k;
            const int64_t dim = from->shape[2];
            for (int64_t row = 0; row < from->shape[0]; row++)
                for (int64_t h = 0; h < 6; h++)
                    memcpy((float *)to->data + row * to->stride[0] + h * dim,
                           (float *)from->data + row * from->stride[0] + h / 3 * dim,
                           (size_t)dim * sizeof(float));
        }
        twins_backward(&grouped.hstu, &grouped.grads, &repeated.hstu, &repeated.grads, TWIN_DQ,
                       "repeated");
        struct hstu_grad_floats x = hstu_grad_floats_create(&grouped.grads),
                                y = hstu_grad_floats_create(&repeated.grads);
        const struct hstu_variant *v;
        for (int i = 0; (v = hstu_variant(i)) != NULL; i++) {
            if (!v->first || !hstu_run_backward(&grouped.hstu, &grouped.grads, v, &x) ||
                !hstu_run_backward(&repeated.hstu, &repeated.grads, v, &y))
                continue;
            for (int g = 1; g < 3; g++) {
                const int64_t dim = g == 1 ? 16 : 9;
                double worst = 0.0, largest = 0.0;
                for (int64_t k = 0; k < x.n[g]; k++) {
                    const int64_t row = k / dim / 2, h = k / dim % 2, d = k % dim;
                    double sum = 0.0;
                    for (int64_t q = 0; q < 3; q++)
                        sum += (double)y.grad[g][(row * 6 + h * 3 + q) * dim + d];
                    worst = fmax(worst, fabs(sum - (double)x.grad[g][k]));
                    largest = fmax(largest, fabs(sum));
                }
                if (!(worst <= hstu_grad_bound(PTL_F32) * largest))
                    FAIL("%s: %s is %.2g off the sum", v->name, hstu_grad_names[g],
                         worst / largest);
            }
        }
        hstu_grad_floats_destroy(&x);
        hstu_grad_floats_destroy(&y);
        problem_destroy(&repeated);
    }
    problem_destroy(&grouped);
}

/* Optional gradients left out change nothing in the others. */
static void what_is_not_wanted(void) {
    static const char *const lines[] = {
        "hstu_backward lengths=list:150,0,20 h=2 d=9 ds=1 bias=dense pos_table=h time_table=1",
        "hstu_backward lengths=list:150,0,20 h=2 d=9 ds=1 bias=dense bias_batch=b bias_head=h "
        "dtype=bf16"};
    for (int i = 0; i < COUNT(lines); i++)
        for (int left_out = 3; left_out < N_GRADS; left_out++) {
            struct problem problem;
            test_case("%s without %s", lines[i], hstu_grad_names[left_out]);
            if (!hstu_problem(&problem, lines[i])) continue;
            struct ptl_hstu_grads fewer = problem.grads;
            ((struct ptl_tensor *)hstu_grad(&fewer, left_out))->data = NULL;
            twins_backward(&problem.hstu, &problem.grads, &problem.hstu, &fewer, 127,
                           "all of them");
            problem_destroy(&problem);
        }
}

/* Enough tiles and blocks for many threads that follow each other, on one head and on several. */
static void many_threads(void) {
    static const char *const lines[] = {
        "hstu_backward s=1500 d=8 ds=1 bias=dense",
        "hstu_backward s=1100 h=3 hk=1 d=8 ds=1 dtype=bf16 pos_table=h time_table=1",
        "hstu_backward lengths=list:700,30,900,0,257 h=2 d=16 rule=none bias=dense bias_dtype=same "
        "dtype=f16",
        "hstu_backward lengths=list:400,900,17,600 h=2 d=8 num_targets=random:200 "
        "window_size=300,0"};
    static const char *const few[] = {
        "hstu_backward s=500 d=4 ds=1 bias=dense",
        "hstu_backward lengths=list:300,30,257 h=2 hk=1 d=4 dtype=bf16 pos_table=h time_table=1"};
    for (int i = 0; i < (test_quick() ? COUNT(few) : COUNT(lines)); i++) {
        struct problem problem;
        const char *line = test_quick() ? few[i] : lines[i];
        test_case("%s", line);
        if (!hstu_problem(&problem, line)) continue;
        struct hstu_grad_floats first = hstu_grad_floats_create(&problem.grads),
                                got = hstu_grad_floats_create(&problem.grads);
        const struct hstu_variant *v;
        for (int w = 0; (v = hstu_variant(w)) != NULL; w++) {
            if (strncmp(v->name, "scalar", 6) == 0 && test_n_levels() > 1) continue;
            for (int times = 0; times < (v->first ? 1 : 3); times++)
                if (hstu_run_backward(&problem.hstu, &problem.grads, v, v->first ? &first : &got) &&
                    !v->first)
                    hstu_same_gradients(&first, &got, v->name);
        }
        hstu_grad_floats_destroy(&first);
        hstu_grad_floats_destroy(&got);
        problem_destroy(&problem);
    }
}

struct caller {
    pthread_t thread;
    int n_wrong;
};

/* Gradients of a problem of its own, on a context of its own, again and again. Safe in any
 * thread. */
static void *call_often(void *arg) {
    static const char line[] =
        "hstu_backward lengths=list:200,40 h=2 d=8 bias=dense pos_table=h dtype=bf16";
    struct caller *c = arg;
    struct problem problem;
    struct ptl_context_options o;
    struct ptl_context *ctx;
    char error[128];
    ptl_context_options_init(&o);
    o.num_threads = 2;
    o.executor = PTL_EXEC_POOL;
    c->n_wrong = 1;
    if (!problem_create(&problem, line, 0, error, sizeof error)) return NULL;
    if (ptl_context_create(&ctx, &o) == PTL_OK) {
        struct hstu_grad_floats first = hstu_grad_floats_create(&problem.grads);
        c->n_wrong = 0;
        for (int n = 0; n < (test_quick() ? 4 : 20); n++) {
            if (ptl_hstu_backward(ctx, &problem.hstu, &problem.grads) != PTL_OK) c->n_wrong++;
            for (int i = 0; i < N_GRADS; i++) {
                if (!first.grad[i]) continue;
                const struct ptl_tensor *t = hstu_grad(&problem.grads, i);
                float *got = test_alloc((size_t)first.n[i] * sizeof *got);
                tensor_take(t, got);
                if (n == 0) memcpy(first.grad[i], got, (size_t)first.n[i] * sizeof *got);
                else
                    c->n_wrong += memcmp(first.grad[i], got, (size_t)first.n[i] * sizeof *got) != 0;
                free(got);
            }
        }
        hstu_grad_floats_destroy(&first);
        ptl_context_destroy(ctx);
    }
    problem_destroy(&problem);
    return NULL;
}

static void contexts_at_once(void) {
    struct caller callers[4];
    int started = 0;
    for (; started < 4; started++)
        if (pthread_create(&callers[started].thread, NULL, call_often, &callers[started]) != 0)
            break;
    CHECK(started == 4);
    for (int i = 0; i < started; i++) {
        pthread_join(callers[i].thread, NULL);
        if (callers[i].n_wrong) FAIL("thread %d: %d calls went wrong", i, callers[i].n_wrong);
    }
}

static const struct test tests[] = {
    {"sequence_alone_is_sequence_in_batch", sequence_alone},
    {"layouts_are_alike", layouts_are_alike},
    {"slices_of_one_buffer", slices_of_one_buffer},
    {"broadcast_dout", broadcast_dout},
    {"zero_dout", zero_dout},
    {"grouped_heads", grouped_heads},
    {"what_is_not_wanted", what_is_not_wanted},
    {"many_threads", many_threads},
    {"contexts_at_once", contexts_at_once},
};
TEST_SUITE(hstu_backward_suite, "hstu/backward", tests);
