/* A stranger's program: one HSTU call over two sequences, checked against the formula by hand. */
#include <math.h>
#include <pantile/pantile.h>
#include <stdio.h>

enum { T = 5, D = 3 };

static int ends[2] = {2, T};

static float silu(float x) {
    return x / (1 + expf(-x));
}

int main(void) {
    float q[T * D], k[T * D], v[T * D], out[T * D];
    int32_t offsets[3] = {0, 2, T};
    for (int i = 0; i < T * D; i++) {
        q[i] = (float)(i % 5) - 2;
        k[i] = (float)(i % 7) / 3 - 1;
        v[i] = (float)(i % 4) + 1;
    }
    const int64_t shape[3] = {T, 1, D}, n_offsets = 3;
    struct ptl_hstu_params p;
    ptl_hstu_params_init(&p);
    p.q = ptl_tensor_contiguous(q, PTL_F32, 3, shape);
    p.k = ptl_tensor_contiguous(k, PTL_F32, 3, shape);
    p.v = ptl_tensor_contiguous(v, PTL_F32, 3, shape);
    p.out = ptl_tensor_contiguous(out, PTL_F32, 3, shape);
    p.seq_offsets_q = ptl_tensor_contiguous(offsets, PTL_I32, 1, &n_offsets);
    p.scaling_seqlen = 4;

    struct ptl_context *ctx;
    if (ptl_context_create(&ctx, NULL) != PTL_OK || ptl_hstu_forward(ctx, &p) != PTL_OK) {
        fprintf(stderr, "%s\n", ptl_message());
        return 1;
    }
    ptl_context_destroy(ctx);

    for (int i = 0; i < T; i++)
        for (int d = 0; d < D; d++) {
            float want = 0;
            for (int j = i < ends[0] ? 0 : ends[0]; j <= i; j++) {
                float score = 0;
                for (int e = 0; e < D; e++) score += q[i * D + e] * k[j * D + e];
                want += silu(score) * v[j * D + d] / 4;
            }
            if (!(fabsf(want - out[i * D + d]) < 1e-5f)) {
                fprintf(stderr, "out[%d][%d] = %g, want %g\n", i, d, (double)out[i * D + d],
                        (double)want);
                return 1;
            }
        }
    printf("pantile %s\n", ptl_version());
    return 0;
}
