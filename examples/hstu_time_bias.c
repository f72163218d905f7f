/* The relative bias of two public recommenders, RecTools' HSTU and torch-rechub's, as position and
 * time tables; each is checked against the same bias written out as a dense array. Exits 1 if they
 * differ.
 *
 *     cc -Iinclude examples/hstu_time_bias.c build/libpantile.a -pthread -lm */
#include <math.h>
#include <pantile/pantile.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { B = 2, T = 60, H = 2, D = 8, ROW = H * D, S = 40 /* the longest sequence */ };
enum { M = 128 /* thresholds: buckets 0 to 128 */, POS = 2 * S - 1 };

static const int64_t offsets[B + 1] = {0, S, T};
static float q[T * ROW], k[T * ROW], v[T * ROW], out[T * ROW], dense_out[T * ROW];
static int64_t stamps[T], thresholds[M]; /* seconds */
static float pos_table[H * POS], time_table[H * (M + 1)], dense[B * H * S * S];

/* ---- Buckets --------------------------------------------------------------------------------- */

/* The models' own arithmetic, in float as they do it. x is a time difference, not negative. */
static float rectools_bucket(int64_t x) {
    return truncf(logf(fmaxf((float)x, 1.0f)) / 0.301f);
}
static float rechub_bucket(int64_t x) { /* time_bucket_fn='sqrt', time_bucket_divisor=1 */
    return truncf(sqrtf(fmaxf((float)x / 60.0f, 1e-6f)) / 1.0f);
}

/* ---- The dense form -------------------------------------------------------------------------- */

static int shared; /* one bias for all heads, else one each */

static void write_dense(float (*bucket)(int64_t), int next) {
    for (int b = 0; b < B; b++)
        for (int h = 0; h < H; h++) {
            const int64_t n = offsets[b + 1] - offsets[b], *t = stamps + offsets[b];
            const float *pos = pos_table + (shared ? 0 : h * POS);
            const float *time = time_table + (shared ? 0 : h * (M + 1));
            for (int64_t i = 0; i < n; i++)
                for (int64_t j = 0; j <= i; j++) {
                    const int64_t query = next && i + 1 < n ? t[i + 1] : t[i];
                    const float m = fminf(bucket(llabs(query - t[j])), (float)M);
                    dense[((b * H + h) * S + i) * S + j] = pos[S - 1 + j - i] + time[(int)m];
                }
        }
}

/* ---- Calls ----------------------------------------------------------------------------------- */

static struct ptl_tensor rows(float *data) {
    const int64_t shape[3] = {T, H, D};
    return ptl_tensor_contiguous(data, PTL_F32, 3, shape);
}

/* [n], or [H, n] where the heads have their own. */
static struct ptl_tensor table(float *data, int64_t n) {
    const int64_t shape[2] = {H, n};
    return ptl_tensor_contiguous(data, PTL_F32, shared ? 1 : 2, shared ? shape + 1 : shape);
}

static struct ptl_hstu_params attention(float *result) {
    const int64_t n_offsets = B + 1;
    struct ptl_hstu_params p;
    ptl_hstu_params_init(&p);
    p.q = rows(q);
    p.k = rows(k);
    p.v = rows(v);
    p.out = rows(result);
    p.seq_offsets_q = ptl_tensor_contiguous((void *)offsets, PTL_I64, 1, &n_offsets);
    p.scaling_seqlen = S;
    return p;
}

/* Both forms through one call each; the largest difference over the largest element. */
static int compare(const char *name, struct ptl_context *ctx, struct ptl_hstu_params p) {
    const int64_t bias_shape[4] = {B, H, S, S}, n_stamps = T, n_thresholds = M;
    struct ptl_hstu_params d = p;
    p.pos_table = table(pos_table, POS);
    p.time_table = table(time_table, M + 1);
    p.time_thresholds = ptl_tensor_contiguous(thresholds, PTL_I64, 1, &n_thresholds);
    p.timestamps = ptl_tensor_contiguous(stamps, PTL_I64, 1, &n_stamps);
    d.attn_bias = ptl_tensor_contiguous(dense, PTL_F32, 4, bias_shape);
    d.out = rows(dense_out);
    write_dense(p.time_query == PTL_HSTU_TIME_NEXT ? rectools_bucket : rechub_bucket,
                p.time_query == PTL_HSTU_TIME_NEXT);
    if (ptl_hstu_forward(ctx, &p) != PTL_OK || ptl_hstu_forward(ctx, &d) != PTL_OK) {
        fprintf(stderr, "%s\n", ptl_message());
        exit(1);
    }
    float difference = 0.0f, largest = 0.0f;
    for (int i = 0; i < T * ROW; i++) {
        difference = fmaxf(difference, fabsf(out[i] - dense_out[i]));
        largest = fmaxf(largest, fabsf(out[i]));
    }
    const int good = difference <= 1e-6f * largest;
    printf("%-12s  thresholds %d, %d, %d, ... %.3g s; tables and dense bias %s\n", name,
           (int)thresholds[0], (int)thresholds[1], (int)thresholds[2], (double)thresholds[M - 1],
           good ? "agree" : "DIFFER");
    return good;
}

int main(void) {
    uint32_t state = 1;
    float *const arrays[] = {q, k, v, pos_table, time_table};
    const int sizes[] = {T * ROW, T * ROW, T * ROW, H * POS, H * (M + 1)};
    for (int a = 0; a < 5; a++)
        for (int i = 0; i < sizes[a]; i++) {
            state = state * 1664525u + 1013904223u;
            arrays[a][i] = (float)(state >> 8) / 8388608.0f - 1.0f;
        }
    for (int i = 0; i < T; i++) { /* gaps from seconds to months */
        state = state * 1664525u + 1013904223u;
        stamps[i] = 1600000000 + (i ? stamps[i - 1] - 1600000000 : 0) + (1 << (state >> 8) % 23);
    }
    struct ptl_context *ctx;
    if (ptl_context_create(&ctx, NULL) != PTL_OK) return 1;

    /* RecTools: one bias for all heads, added to plain q.k; a query has the next event's time. */
    shared = 1;
    ptl_hstu_time_thresholds(PTL_HSTU_TIME_LOG, 1.0f, 0.301f, M, thresholds);
    struct ptl_hstu_params p = attention(out);
    p.time_query = PTL_HSTU_TIME_NEXT; /* t[i+1] - t[j] */
    int good = compare("RecTools", ctx, p);

    /* torch-rechub: a bias for each head, added after q.k was scaled; a query has its own time. */
    shared = 0;
    ptl_hstu_time_thresholds(PTL_HSTU_TIME_SQRT, 60.0f, 1.0f, M, thresholds);
    p = attention(out);
    p.time_query = PTL_HSTU_TIME_OWN; /* t[i] - t[j] */
    p.alpha = 1.0f / sqrtf((float)D);
    p.bias_scale = 1.0f; /* the default would be alpha */
    good &= compare("torch-rechub", ctx, p);
    ptl_context_destroy(ctx);
    return good ? 0 : 1;
}
