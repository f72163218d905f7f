/* The reference against itself: its gradients against finite differences of its forward pass, its
 * numbers of every half against the definition. The library is not called. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "../../ref/elements.h"
#include "../../ref/hstu.h"
#include "hstu_backward_check.h"
#include "op_suites.h"
#include "tensor_check.h"

static const char *const lines[] = {
    "lengths=list:5,0,3 d=3 dv=2 h=2",
    "lengths=list:5,2 d=2 dv=3 h=4 hk=2 alpha=-0.8 attn_scale=token view=gap",
    "lengths=list:2,3 lengths_k=list:5,4 d=3 h=2 num_contexts=2 num_targets=list:2,1 "
    "attn_scale=token",
    "layout=dense b=2 s=4 d=3 h=3 hk=1 rule=none bias=dense bias_batch=b bias_head=h "
    "attn_scale=token",
    "layout=dense b=3 sq=3 sk=4 d=2 h=2 bias=dense bias_rows=key bias_scale=-0.7 view=bhsd",
    "lengths=list:4,5 d=2 h=2 bias=dense bias_head=h pos_table=1 bias_scale=0.6",
    "lengths=list:4,5 d=2 h=2 bias=dense bias_batch=b pos_table=h time_table=h thresholds=3",
    "lengths=list:6 lengths_k=list:8 d=2 h=2 time_table=1 time_query=own times=random thresholds=6",
    "lengths=list:6,3 d=3 intervals=3 pos_table=1 alpha=2 attn_scale=token",
    "layout=dense b=2 s=5 d=2 mask=random mask_batch=b seqused_q=random seqused_k=random",
    "lengths=list:7 d=2 window_size=2,0 min_full_attn_seq_len=2 num_targets=2 attn_scale=0.3",
};

#define COUNT(list) ((int)(sizeof(list) / sizeof((list)[0])))

/* sum(dout * out) */
static double loss_of(const struct ptl_hstu_params *p, const struct ptl_tensor *dout) {
    struct ptl_hstu_params a = *p;
    const int64_t n = tensor_elements(dout);
    a.out = *dout; /* its shape */
    double *out = test_alloc((size_t)n * sizeof *out), loss = 0.0;
    ref_hstu_forward(&a, out);
    for (int64_t i = 0; i < n; i++)
        if (out[i] != 0.0) loss += out[i] * ref_read(PTL_F32, dout->data, tensor_offset(dout, i));
    free(out);
    return loss;
}

/* Every element of an input moved by a step to both sides. Elements that are not read are NaN, and
 * their gradient is 0. */
static void check_input(const struct ptl_hstu_params *p, const struct ptl_tensor *dout,
                        const struct ptl_tensor *input, const double *grad, const char *name) {
    static const float step = 0x1p-9f;
    double largest = 0.0;
    const int64_t n = tensor_elements(input);
    for (int64_t i = 0; i < n; i++) largest = fmax(largest, fabs(grad[i]));
    for (int64_t i = 0; i < n; i++) {
        float *x = (float *)input->data + tensor_offset(input, i);
        const float before = *x, above = before + step, below = before - step;
        if (isnan(before)) {
            if (grad[i] != 0.0)
                FAIL("%s: element %lld has a gradient but is not read", name, (long long)i);
            continue;
        }
        *x = above;
        const double high = loss_of(p, dout);
        *x = below;
        const double low = loss_of(p, dout);
        *x = before;
        const double slope = (high - low) / ((double)above - (double)below);
        if (!(fabs(slope - grad[i]) <= 1e-5 * fmax(largest, 0.01))) {
            FAIL("%s: element %lld is %.9g, by differences %.9g", name, (long long)i, grad[i],
                 slope);
            return;
        }
    }
}

static void gradients(void) {
    for (int i = 0; i < COUNT(lines); i++) {
        struct problem problem;
        char line[MAX_LINE];
        snprintf(line, sizeof line, "hstu_backward %s ds=1 seed=%d", lines[i], i + 1);
        test_case("%s", line);
        if (!hstu_problem(&problem, line)) continue;
        struct ptl_hstu_params *p = &problem.hstu;
        const struct ptl_tensor *dout = &problem.grads.dout;
        const struct ptl_tensor *const inputs[N_GRADS] = {
            &p->q, &p->k, &p->v, &p->attn_bias, &p->pos_table, &p->time_table, &p->attn_scale};
        struct hstu_grad_doubles x = hstu_expected_gradients(p, &problem.grads, false);
        for (int g = 0; g < N_GRADS; g++)
            if (inputs[g]->data && (g < 6 || inputs[g]->ndim > 0))
                check_input(p, dout, inputs[g], x.grad[g], hstu_grad_names[g]);
        if (p->attn_scale.data && p->attn_scale.ndim == 0) { /* the same number for all rows */
            double sum = 0.0;
            for (int64_t k = 0; k < x.n[6]; k++) sum += x.grad[6][k];
            check_input(p, dout, &p->attn_scale, &sum, "sum of ds");
        }
        hstu_grad_doubles_destroy(&x);
        problem_destroy(&problem);
    }
}

/* ---- Elements -------------------------------------------------------------------------------- */

static void known_halves(void) {
    static const struct {
        enum ptl_dtype type;
        uint16_t bits;
        double x;
    } known[] = {
        {PTL_F16, 0x0001, 0x1p-24},    {PTL_F16, 0x03ff, 0x1.ff8p-15},
        {PTL_F16, 0x0400, 0x1p-14},    {PTL_F16, 0x3c00, 1.0},
        {PTL_F16, 0xc000, -2.0},       {PTL_F16, 0x3555, 0x1.554p-2},
        {PTL_F16, 0x7bff, 65504.0},    {PTL_F16, 0x7c00, INFINITY},
        {PTL_F16, 0xfc00, -INFINITY},  {PTL_BF16, 0x0001, 0x1p-133},
        {PTL_BF16, 0x0080, 0x1p-126},  {PTL_BF16, 0x3f80, 1.0},
        {PTL_BF16, 0xc049, -0x1.92p1}, {PTL_BF16, 0x7f7f, 0x1.fep127},
        {PTL_BF16, 0x7f80, INFINITY},  {PTL_BF16, 0xff80, -INFINITY},
    };
    for (int i = 0; i < COUNT(known); i++)
        if (ref_read(known[i].type, &known[i].bits, 0) != known[i].x)
            FAIL("0x%04x is %g, expected %g", known[i].bits,
                 ref_read(known[i].type, &known[i].bits, 0), known[i].x);
    CHECK(ref_round(PTL_F16, 65519.0) == 65504.0 && ref_round(PTL_F16, 65520.0) == INFINITY);
    CHECK(ref_round(PTL_F16, 0x1p-25) == 0.0 && ref_round(PTL_F16, 0x1.8p-24) == 0x1p-23);
    CHECK(ref_round(PTL_F16, 1.0 + 0x1p-11) == 1.0 &&
          ref_round(PTL_F16, 1.0 + 0x3p-11) == 1.0 + 0x1p-9);
    CHECK(ref_round(PTL_BF16, 1.0 + 0x1p-8) == 1.0 &&
          ref_round(PTL_BF16, -1.0 - 0x3p-8) == -1.0 - 0x1p-6);
    CHECK(ref_round(PTL_BF16, 0x1.ffp127) == INFINITY &&
          ref_round(PTL_BF16, 0x1.fefp127) == 0x1.fep127);
    CHECK(isnan(ref_round(PTL_F16, NAN)) && ref_round(PTL_BF16, -INFINITY) == -INFINITY);
}

/* Every half is a fixed point; halves ascend with their bits. */
static void all_halves(void) {
    for (int t = 0; t < 2; t++) {
        const enum ptl_dtype type = t ? PTL_BF16 : PTL_F16;
        for (uint32_t u = 0; u < 0x10000; u++) {
            const uint16_t bits = (uint16_t)u, next = (uint16_t)(u + 1);
            uint16_t back = 0;
            const double x = ref_read(type, &bits, 0);
            ref_write(type, &back, 0, x);
            if (isnan(x) ? !isnan(ref_read(type, &back, 0)) : back != bits)
                FAIL("0x%04x is %g, which is written 0x%04x", bits, x, back);
            if (u < 0x7fff && !isnan(ref_read(type, &next, 0)) && !(x < ref_read(type, &next, 0)))
                FAIL("0x%04x is not below its successor", bits);
        }
    }
}

/* Halves change what a plain evaluation gives by something of the size of their roundings. */
static void plain_evaluation(void) {
    static const char *const types[] = {"bf16", "f16"};
    for (int t = 0; t < 2; t++) {
        struct problem problem;
        char line[MAX_LINE];
        snprintf(line, sizeof line, "hstu s=60 d=32 rule=none dtype=%s", types[t]);
        test_case("%s", line);
        if (!hstu_problem(&problem, line)) continue;
        const int64_t n = hstu_out_floats(&problem.hstu);
        double *exact = test_alloc((size_t)n * sizeof *exact),
               *low = test_alloc((size_t)n * sizeof *low);
        double error = 0.0, largest = 0.0;
        ref_hstu_forward(&problem.hstu, exact);
        ref_hstu_forward_low(&problem.hstu, low);
        for (int64_t i = 0; i < n; i++) {
            error = fmax(error, fabs(low[i] - exact[i]));
            largest = fmax(largest, fabs(exact[i]));
        }
        const double unit = hstu_unit(problem.hstu.q.dtype);
        if (!(error >= 0.2 * unit * largest && error <= 4.0 * unit * largest))
            FAIL("error %.2g of the largest element, one rounding is %.2g", error / largest, unit);
        free(exact);
        free(low);
        problem_destroy(&problem);
    }
}

static const struct test tests[] = {
    {"gradients_by_differences", gradients},
    {"known_halves", known_halves},
    {"all_halves", all_halves},
    {"plain_evaluation", plain_evaluation},
};
TEST_SUITE(hstu_reference_suite, "hstu/reference", tests);
