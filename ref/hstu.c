/* HSTU forward in double and plain loops, as the formula is written in docs/hstu.md: not fast, not
 * tiled. Reading the arguments is hstu_inputs.c. */
#include "hstu.h"

#include "hstu_inputs.h"

static void forward_row(const struct ptl_hstu_params *p, int64_t b, int64_t head, int64_t i,
                        double *out, ref_rounding *rounded) {
    const struct ref_dims dims = ref_hstu_dims(p);
    const int64_t uk = ref_hstu_uk(p, b), kv_head = head / dims.group;
    double q[REF_MAX_DIM], k[REF_MAX_DIM], v[REF_MAX_DIM];
    ref_read_row(&p->q, ref_hstu_query_offset(p, &p->q, b, head, i), dims.dqk, q);

    for (int64_t d = 0; d < dims.dv; d++) out[d] = 0.0;
    for (int64_t j = 0; j < uk; j++) {
        int64_t at;
        if (!ref_hstu_valid(p, b, head, i, j)) continue;
        const struct ptl_tensor *keys = ref_hstu_key(p, false, b, kv_head, j, &at);
        ref_read_row(keys, at, dims.dqk, k);
        const struct ptl_tensor *values = ref_hstu_key(p, true, b, kv_head, j, &at);
        ref_read_row(values, at, dims.dv, v);
        const double f = rounded(ref_silu(ref_hstu_score(p, b, head, i, j, q, k, rounded)));
        for (int64_t d = 0; d < dims.dv; d++) out[d] += f * v[d];
    }
    const double s = ref_hstu_scale(p, b, i);
    for (int64_t d = 0; d < dims.dv; d++) out[d] = rounded(s * rounded(out[d]));
}

static void forward(const struct ptl_hstu_params *p, double *out, ref_rounding *rounded) {
    int64_t n = 1;
    for (int axis = 0; axis < p->out.ndim; axis++) n *= p->out.shape[axis];
    for (int64_t x = 0; x < n; x++) out[x] = 0.0; /* padding rows, and rows without keys */

    /* out is contiguous here: the same rows in the shape of p->out with its plain strides */
    const struct ptl_tensor plain = ptl_tensor_contiguous(out, PTL_F32, p->out.ndim, p->out.shape);
    const int64_t n_heads = ref_hstu_dims(p).heads;
    for (int64_t b = 0; b < ref_hstu_n_seqs(p); b++)
        for (int64_t head = 0; head < n_heads; head++)
            for (int64_t i = 0; i < ref_hstu_uq(p, b); i++)
                forward_row(p, b, head, i, out + ref_hstu_query_offset(p, &plain, b, head, i),
                            rounded);
}

void ref_hstu_forward_row(const struct ptl_hstu_params *p, int64_t b, int64_t head, int64_t i,
                          double *out) {
    forward_row(p, b, head, i, out, ref_exactly);
}

void ref_hstu_forward(const struct ptl_hstu_params *p, double *out) {
    forward(p, out, ref_exactly);
}

void ref_hstu_forward_low(const struct ptl_hstu_params *p, double *out) {
    forward(p, out, ref_rounding_of(p->q.dtype));
}
