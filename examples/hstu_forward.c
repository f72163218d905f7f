/* HSTU attention over the histories of two users, 5 and 3 events long, in one call. */
#include <math.h>
#include <pantile/pantile.h>
#include <stdio.h>

enum { T = 8, H = 2, D = 4, N = 8 };

int main(void) {
    static float q[T * H * D], k[T * H * D], v[T * H * D], out[T * H * D];
    int64_t offsets[] = {0, 5, 8}; /* user 0 owns rows 0 to 4, user 1 rows 5 to 7 */
    for (int i = 0; i < T * H * D; i++) {
        q[i] = (float)(i % 5) - 2.0f;
        k[i] = (float)(i % 7) - 2.0f;
        v[i] = (float)(i % 3) + 1.0f;
    }
    const int64_t shape[] = {T, H, D}, n_offsets = 3;
    struct ptl_hstu_params p;
    ptl_hstu_params_init(&p); /* causal, no bias, alpha 1 */
    p.q = ptl_tensor_contiguous(q, PTL_F32, 3, shape);
    p.k = ptl_tensor_contiguous(k, PTL_F32, 3, shape);
    p.v = ptl_tensor_contiguous(v, PTL_F32, 3, shape);
    p.out = ptl_tensor_contiguous(out, PTL_F32, 3, shape);
    p.seq_offsets_q = ptl_tensor_contiguous(offsets, PTL_I64, 1, &n_offsets);
    p.alpha = 0.5f;
    p.scaling_seqlen = N; /* rows of out are divided by it */

    struct ptl_context *ctx;
    if (ptl_context_create(&ctx, NULL) != PTL_OK || ptl_hstu_forward(ctx, &p) != PTL_OK) {
        fprintf(stderr, "%s\n", ptl_message());
        return 1;
    }
    ptl_context_destroy(ctx);

    /* The first event of user 1 (row 5, head 0) sees only itself: out = silu(alpha q.k) v / N. */
    float x = 0.0f, error = 0.0f, *row = out + 5 * H * D;
    for (int d = 0; d < D; d++) x += 0.5f * q[5 * H * D + d] * k[5 * H * D + d];
    for (int d = 0; d < D; d++)
        error = fmaxf(error, fabsf(row[d] - x / (1.0f + expf(-x)) * v[5 * H * D + d] / N));
    printf("row 5, head 0: %.5f %.5f %.5f %.5f\n", row[0], row[1], row[2], row[3]);
    return error < 1e-6f ? 0 : 1;
}
