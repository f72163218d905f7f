/* Gradient descent on HSTU attention with a position table: forward, loss, backward, step. The
 * gradients are first checked against finite differences. Exits 1 if they disagree or the loss does
 * not fall.
 *
 *     cc -Iinclude examples/hstu_training_step.c build/libpantile.a -pthread -lm */
#include <math.h>
#include <pantile/pantile.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* Three users with 40, 0 and 23 events; 2 query heads, 1 key head; a table for 40 events. */
enum { B = 3, T = 63, HQ = 2, HK = 1, D = 8, DV = 6, MAX_LEN = 40 };
enum { N_Q = T * HQ * D, N_K = T * HK * D, N_V = T * HK * DV, N_OUT = T * HQ * DV };
enum { N_TABLE = HQ * (2 * MAX_LEN - 1) };

static const int64_t offsets[B + 1] = {0, 40, 40, 63};
static float q[N_Q], k[N_K], v[N_V], table[N_TABLE], out[N_OUT], wanted[N_OUT];
static float dq[N_Q], dk[N_K], dv[N_V], dtable[N_TABLE], dout[N_OUT];

/* What is learned, and where its gradient goes. */
static const struct {
    const char *name;
    float *value, *gradient;
    int n;
} tensors[] = {
    {"q", q, dq, N_Q},
    {"k", k, dk, N_K},
    {"v", v, dv, N_V},
    {"pos_table", table, dtable, N_TABLE},
};
enum { N_TENSORS = sizeof tensors / sizeof tensors[0] };

static struct ptl_context *ctx;
static struct ptl_hstu_params params;
static struct ptl_hstu_grads grads;

static struct ptl_tensor rows(float *data, int64_t heads, int64_t dim) {
    const int64_t shape[3] = {T, heads, dim};
    return ptl_tensor_contiguous(data, PTL_F32, 3, shape);
}

static struct ptl_tensor tables(float *data) {
    const int64_t shape[2] = {HQ, 2 * MAX_LEN - 1};
    return ptl_tensor_contiguous(data, PTL_F32, 2, shape);
}

static void set_up(void) {
    const int64_t n_offsets = B + 1;
    ptl_hstu_params_init(&params);
    params.q = rows(q, HQ, D);
    params.k = rows(k, HK, D);
    params.v = rows(v, HK, DV);
    params.out = rows(out, HQ, DV);
    params.seq_offsets_q = ptl_tensor_contiguous((void *)offsets, PTL_I64, 1, &n_offsets);
    params.alpha = 1.0f / sqrtf((float)D);
    params.scaling_seqlen = MAX_LEN;
    params.pos_table = tables(table);
    params.bias_scale = 1.0f; /* S = alpha q.k + bias, not alpha (q.k + bias) */

    ptl_hstu_grads_init(&grads);
    grads.dout = rows(dout, HQ, DV);
    grads.dq = rows(dq, HQ, D);
    grads.dk = rows(dk, HK, D);
    grads.dv = rows(dv, HK, DV);
    grads.dpos_table = tables(dtable);
}

static void must(enum ptl_status status) {
    if (status == PTL_OK) return;
    fprintf(stderr, "%s: %s\n", ptl_status_name(status), ptl_message());
    exit(1);
}

/* Half the squared distance from what is wanted; its gradient is out - wanted. */
static double loss(void) {
    double sum = 0.0;
    must(ptl_hstu_forward(ctx, &params));
    for (int i = 0; i < N_OUT; i++) {
        dout[i] = out[i] - wanted[i];
        sum += 0.5 * (double)dout[i] * (double)dout[i];
    }
    return sum;
}

/* In [-1, 1), the same on every machine. */
static float uniform(void) {
    static uint32_t state = 1;
    state = state * 1664525u + 1013904223u;
    return (float)(state >> 8) / 8388608.0f - 1.0f;
}

/* The slope of the loss along a random direction: the gradient's, and that of two losses nearby. */
static int check_gradient(int which) {
    const int n = tensors[which].n;
    float *x = tensors[which].value;
    const float step = 0.01f;
    double slope = 0.0;
    float *direction = malloc((size_t)n * sizeof *direction), *at = malloc((size_t)n * sizeof *at);
    if (!direction || !at) exit(1);
    loss();
    must(ptl_hstu_backward(ctx, &params, &grads));
    for (int i = 0; i < n; i++) {
        direction[i] = uniform();
        at[i] = x[i];
        slope += (double)tensors[which].gradient[i] * (double)direction[i];
    }
    for (int i = 0; i < n; i++) x[i] = at[i] + step * direction[i];
    const double above = loss();
    for (int i = 0; i < n; i++) x[i] = at[i] - step * direction[i];
    const double below = loss();
    for (int i = 0; i < n; i++) x[i] = at[i];
    free(direction);
    free(at);
    const double measured = (above - below) / (2.0 * (double)step);
    const int good = fabs(slope - measured) <= 1e-3 * (fabs(slope) + 0.01);
    printf("d loss / d %-9s  backward %9.5f  differences %9.5f  %s\n", tensors[which].name, slope,
           measured, good ? "ok" : "WRONG");
    return good;
}

int main(void) {
    int good = 1;
    for (int t = 0; t < N_TENSORS; t++)
        for (int i = 0; i < tensors[t].n; i++) tensors[t].value[i] = uniform();
    for (int i = 0; i < N_OUT; i++) wanted[i] = uniform();
    must(ptl_context_create(&ctx, NULL));
    set_up();
    for (int t = 0; t < N_TENSORS; t++) good &= check_gradient(t);

    const double before = loss();
    for (int round = 0; round < 20; round++) {
        loss();
        must(ptl_hstu_backward(ctx, &params, &grads));
        for (int t = 0; t < N_TENSORS; t++)
            for (int i = 0; i < tensors[t].n; i++)
                tensors[t].value[i] -= 0.5f * tensors[t].gradient[i];
    }
    const double after = loss();
    printf("loss after 20 steps: %.2f, before: %.2f\n", after, before);
    ptl_context_destroy(ctx);
    return good && after < 0.9 * before ? 0 : 1;
}
