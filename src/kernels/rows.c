/* Rows of plain matrices: a copy, one formula, a sum. What these wait for is memory; the tiles of
 * attention are elsewhere. Same bits at every level: nothing is fused or reordered. */
#include "kernels.h"
#include "simd/vec.h"

/* Whole cache lines, the borders of the run by plain stores: a line that is streamed in pieces
 * costs more than it saves. */
void KERNEL(copy_stream)(char *to, const char *from, ptrdiff_t n, const char *ahead) {
    enum { LINE = 64, VECTOR = V_LANES * sizeof(float) };
    ptrdiff_t i = (ptrdiff_t)(-(uintptr_t)to % LINE);
    if (i > n) i = n;
    memcpy(to, from, (size_t)i);
    for (; i + LINE <= n; i += LINE) {
        if (ahead) __builtin_prefetch(ahead + i, 0, 3);
        for (int k = 0; k < LINE; k += VECTOR) {
            vf x; /* of any bytes */
            memcpy(&x, from + i + k, VECTOR);
            v_stream((float *)(to + i + k), x);
        }
    }
    memcpy(to + i, from + i, (size_t)(n - i));
}

void KERNEL(stream_end)(void) {
    v_stream_end();
}

/* One loop for each kind of terms. Each vector is read before it is written: out may be x. */
void KERNEL(affine_f32)(float *out, const float *x, float alpha, const float *a, const float *b,
                        ptrdiff_t n) {
    const vf alphas = v_splat(alpha);
    ptrdiff_t i = 0;
    if (b) {
        for (; i + V_LANES <= n; i += V_LANES) {
            const vf terms = v_add(v_load(a + i), v_load(b + i));
            v_store(out + i, v_add(v_mul(v_load(x + i), alphas), terms));
        }
        for (; i < n; i++) out[i] = x[i] * alpha + (a[i] + b[i]);
    } else if (a) {
        for (; i + V_LANES <= n; i += V_LANES)
            v_store(out + i, v_add(v_mul(v_load(x + i), alphas), v_load(a + i)));
        for (; i < n; i++) out[i] = x[i] * alpha + a[i];
    } else {
        for (; i + V_LANES <= n; i += V_LANES) v_store(out + i, v_mul(v_load(x + i), alphas));
        for (; i < n; i++) out[i] = x[i] * alpha;
    }
}

/* ---- Sums of rows ---------------------------------------------------------------------------- */

/* Two vectors of columns: 16 to 32 doubles in registers while the rows pass. Lists of rows jump
 * about in memory, so the next rows are asked for line by line meanwhile: without it rows of 256
 * bytes in random order come at a third of the rate. */
void KERNEL(add_rows_f32)(const float *const *rows, int n_rows, const float *const *next,
                          int n_next, ptrdiff_t n, double *sum) {
    enum { LINE = 16 }; /* floats */
    ptrdiff_t c = 0, asked = 0;
    for (; c + 2 * V_LANES <= n; c += 2 * V_LANES) {
        if (c >= asked) {
            for (int r = 0; r < n_next; r++) __builtin_prefetch(next[r] + c, 0, 3);
            asked += LINE;
        }
        vd low = vd_load(sum + c), high = vd_load(sum + c + V_LANES);
        for (int r = 0; r < n_rows; r++) {
            low = vd_add(low, v_load(rows[r] + c));
            high = vd_add(high, v_load(rows[r] + c + V_LANES));
        }
        vd_store(sum + c, low);
        vd_store(sum + c + V_LANES, high);
    }
    for (int r = 0; r < n_next && asked < n; r++) __builtin_prefetch(next[r] + asked, 0, 3);
    for (; c < n; c++)
        for (int r = 0; r < n_rows; r++) sum[c] += (double)rows[r][c];
}
