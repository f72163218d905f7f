/* The position and time embedding against ref/: which rows of the tables are taken, the sum to
 * the bit, the gradients exactly on whole numbers; the same bits in every context. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "elements.h"
#include "jagged.h"
#include "jagged_arrays.h"
#include "jagged_suites.h"
#include "ops/hstu_check.h"

/* A problem and what must come out, in float. */
struct embedding {
    struct jagged_problem p;
    struct ptl_jagged_position_time_params a;
    struct jagged_output out, demb, dpos_w, dts_w;
    int64_t n_rows, n_columns;
};

static int64_t random_int(struct embedding *e, int64_t low, int64_t high) {
    return test_random_int(&e->p.random, low, high);
}

static struct ptl_tensor random_counts(struct embedding *e, const int64_t *counts) {
    struct ptl_tensor t = jagged_indices(e->p.index_type, e->p.n_seqs, counts);
    if (e->p.n_seqs > 0 && random_int(e, 0, 3) == 0) t.ndim = 0; /* the first for all */
    return t;
}

static int64_t count_at(const struct ptl_tensor *t, int64_t b) {
    if (t->ndim == 0) b = 0;
    return t->dtype == PTL_I64 ? ((const int64_t *)t->data)[b] : ((const int32_t *)t->data)[b];
}

/* Times that grow by a step of a size of its own in each sequence, now and then a step back. */
static struct ptl_tensor random_times(struct embedding *e, const int64_t *lengths, int64_t n_rows) {
    const bool wide = random_int(e, 0, 3) > 0;
    int64_t *times = test_alloc((size_t)(n_rows + 1) * sizeof *times), row = 0;
    for (int64_t b = 0; b < e->p.n_seqs; b++) {
        const int size = (int)random_int(e, 0, wide ? 40 : 20);
        int64_t t = wide ? random_int(e, -5000000000, 5000000000) : random_int(e, 0, 1000000);
        for (int64_t x = 0; x < lengths[b]; x++, row++) {
            times[row] = t;
            t += random_int(e, 0, 20) ? random_int(e, 0, (int64_t)1 << size)
                                      : -random_int(e, 0, 100);
        }
    }
    for (; row < n_rows; row++) times[row] = -1;
    const struct ptl_tensor t = jagged_indices(wide ? PTL_I64 : PTL_I32, n_rows, times);
    free(times);
    return t;
}

static void make(struct embedding *e, uint64_t seed, bool wide) {
    int64_t lengths[MAX_SEQS] = {0}, targets[MAX_SEQS] = {0}, contexts[MAX_SEQS], starts[MAX_SEQS];
    memset(e, 0, sizeof *e);
    jagged_begin(&e->p, seed, false);
    jagged_float_type(&e->p);
    const enum ptl_dtype type = e->p.dtype;
    const enum ptl_dtype tables = random_int(e, 0, 1) ? type : PTL_F32;
    e->p.n_axes = 1;
    e->n_columns = e->p.extent[0] = wide ? random_int(e, 3000, 9000) : random_int(e, 0, 9);
    jagged_lengths(&e->p, wide ? 20 : 9, lengths);
    const int64_t n = jagged_total(&e->p, lengths), padding = random_int(e, 0, 2);
    e->n_rows = n + padding;
    ptl_jagged_position_time_init(&e->a);
    e->a.alpha = random_int(e, 0, 3) ? test_random_float(&e->p.random) * 4.0f : 1.0f;
    e->a.seq_offsets = jagged_offsets(&e->p, lengths);

    /* Targets fit into the shortest sequence when one number serves for all. */
    int64_t shortest = INT64_MAX;
    for (int64_t b = 0; b < e->p.n_seqs; b++)
        if (lengths[b] > 0 && lengths[b] < shortest) shortest = lengths[b];
    for (int64_t b = 0; b < e->p.n_seqs; b++) {
        targets[b] = random_int(e, 0, lengths[b]);
        if (b == 0 && shortest < targets[b]) targets[b] = shortest;
        contexts[b] = random_int(e, 0, 5);
        starts[b] = random_int(e, 0, 9) ? random_int(e, 0, 9) : INT32_MAX;
    }
    if (random_int(e, 0, 2)) e->a.num_targets = random_counts(e, targets);
    if (random_int(e, 0, 2) == 0) {
        e->a.position_order = PTL_JAGGED_POSITION_FROM_START;
        if (random_int(e, 0, 2)) e->a.position_start = random_counts(e, starts);
    } else if (random_int(e, 0, 2)) {
        e->a.num_contexts = random_counts(e, contexts);
    }
    e->a.time_bucket = (enum ptl_jagged_time_bucket)random_int(e, 0, 1);
    if (random_int(e, 0, 4)) {
        e->a.timestamps = random_times(e, lengths, e->n_rows);
        e->p.dtype = tables;
        const int64_t n_buckets = random_int(e, 0, 3) ? random_int(e, 1, 12) : 40;
        e->a.ts_w = jagged_input(&e->p, n_buckets, n_buckets);
        e->dts_w = jagged_output(&e->p, n_buckets);
    }
    const int64_t n_positions = random_int(e, 5, 20); /* contexts have positions */
    e->p.numbers = random_int(e, 0, 1);
    e->p.dtype = tables;
    e->a.pos_w = jagged_input(&e->p, n_positions, n_positions);
    e->dpos_w = jagged_output(&e->p, n_positions);
    e->p.dtype = type;
    e->a.emb = jagged_input(&e->p, e->n_rows, n);
    e->out = jagged_output(&e->p, e->n_rows);
    e->p.numbers = true;
    e->a.dout = jagged_input(&e->p, e->n_rows, n);
    e->demb = jagged_output(&e->p, e->n_rows);
    e->a.out = e->out.t;
    e->a.demb = e->demb.t;
    e->a.dpos_w = e->dpos_w.t;
    e->a.dts_w = e->dts_w.t;
}

static double get(const struct ptl_tensor *t, int64_t row, int64_t column) {
    return ref_read(t->dtype, t->data, row * t->stride[0] + column);
}

static void put(const struct ptl_tensor *t, int64_t row, int64_t column, double x) {
    ref_write(t->dtype, t->data, row * t->stride[0] + column, x);
}

static bool token_row(const struct embedding *e, int64_t row, int64_t *b, int64_t *x) {
    for (*b = 0; *b < e->p.n_seqs; ++*b)
        if (row < count_at(&e->a.seq_offsets, *b + 1)) {
            *x = row - count_at(&e->a.seq_offsets, *b);
            return true;
        }
    return false; /* padding */
}

/* A NaN has no bits that anybody promises; everything else has. */
static void compare_floats(const struct embedding *e, const struct jagged_output *got) {
    for (int64_t row = 0; got->low && row < e->n_rows; row++)
        for (int64_t c = 0; c < e->n_columns; c++)
            if (isnan(get(&got->t, row, c)) && isnan(get(&got->twin, row, c)))
                put(&got->t, row, c, NAN), put(&got->twin, row, c, NAN);
    jagged_compare(got, "out");
}

/* The formula in float, step by step, for one token: what the library must compute to the bit. */
static void expect_token(struct embedding *e, int64_t row, int64_t b, int64_t x,
                         const double *exact) {
    const struct ptl_jagged_position_time_params *a = &e->a;
    const int64_t pos = ref_position(a, a->pos_w.shape[0], b, x);
    const int64_t bucket = a->timestamps.data ? ref_time_bucket(a, a->ts_w.shape[0], b, x) : 0;
    for (int64_t c = 0; c < e->n_columns; c++) {
        const float p = (float)get(&a->pos_w, pos, c);
        const float t = a->timestamps.data ? (float)get(&a->ts_w, bucket, c) : 0.0f;
        const float scaled = a->alpha * (float)get(&a->emb, row, c);
        const float tables = a->timestamps.data ? p + t : p, sum = scaled + tables;
        put(&e->out.twin, row, c, (double)sum);
        /* three roundings, against the formula in double */
        const double size = fabs((double)scaled) + fabs((double)p) + fabs((double)t);
        const double error = fabs((double)sum - exact[c]);
        if (size < 3e38 && error > 1.8e-7 * size + 1e-44)
            FAIL("row %d: error %g of %g", (int)row, error, size);
    }
}

static void check_forward(struct embedding *e, int which, int n_contexts) {
    const struct ptl_jagged_position_time_params *a = &e->a;
    double *exact = test_alloc((size_t)(e->n_rows * e->n_columns + 1) * sizeof *exact);
    ref_position_time_forward(a, exact);
    for (int64_t row = 0; e->out.low && row < e->n_rows; row++) {
        int64_t b, x;
        if (token_row(e, row, &b, &x)) expect_token(e, row, b, x, exact + row * e->n_columns);
        else
            for (int64_t c = 0; c < e->n_columns; c++) put(&e->out.twin, row, c, 0.0);
    }
    for (int i = 0; i < n_contexts; i++) {
        jagged_reset(&e->out);
        jagged_ok(ptl_jagged_position_time_forward(jagged_context(which + i), a), "forward");
        compare_floats(e, &e->out);
    }
    /* in place: out is emb */
    if (e->out.low) {
        struct ptl_jagged_position_time_params in_place = *a;
        jagged_reset(&e->out);
        const size_t elem = ptl_dtype_bytes(a->emb.dtype);
        for (int64_t row = 0; row < e->n_rows; row++)
            memcpy((char *)a->out.data + row * a->out.stride[0] * (int64_t)elem,
                   (char *)a->emb.data + row * a->emb.stride[0] * (int64_t)elem,
                   (size_t)e->n_columns * elem);
        in_place.emb = in_place.out;
        jagged_ok(ptl_jagged_position_time_forward(jagged_context(which), &in_place), "in place");
        compare_floats(e, &e->out);
    }
    free(exact);
}

static void expect_matrix(const struct jagged_output *o, const double *numbers, int64_t n_columns) {
    for (int64_t row = 0; o->low && row < o->twin.shape[0]; row++)
        for (int64_t c = 0; c < n_columns; c++)
            put(&o->twin, row, c, (double)(float)numbers[row * n_columns + c]);
}

static void check_backward(struct embedding *e, int which, int n_contexts) {
    struct ptl_jagged_position_time_params *a = &e->a;
    const int64_t n = e->n_columns;
    double *demb = test_alloc((size_t)(e->n_rows * n + 1) * sizeof *demb);
    double *dpos_w = test_alloc((size_t)(a->dpos_w.shape[0] * n + 1) * sizeof *dpos_w);
    double *dts_w = test_alloc((size_t)(a->dts_w.shape[0] * n + 1) * sizeof *dts_w);
    ref_position_time_backward(a, demb, dpos_w, a->timestamps.data && a->dts_w.data ? dts_w : NULL);
    expect_matrix(&e->demb, demb, n);
    expect_matrix(&e->dpos_w, dpos_w, n);
    if (a->dts_w.data) expect_matrix(&e->dts_w, dts_w, n);
    /* some are not wanted */
    struct jagged_output *outs[3] = {&e->demb, &e->dpos_w, &e->dts_w};
    struct ptl_tensor *tensors[3] = {&a->demb, &a->dpos_w, &a->dts_w};
    const int64_t unwanted = random_int(e, 0, 6); /* 7 is none of them: not drawn */
    for (int k = 0; k < 3; k++)
        if (unwanted >> k & 1) {
            memset(tensors[k], 0, sizeof *tensors[k]);
            if (outs[k]->low) memset(outs[k]->twin_low, 0xa5, outs[k]->bytes);
        }
    if (e->n_rows > 0 && !a->demb.data && !a->dpos_w.data && !a->dts_w.data) n_contexts = 0;
    for (int i = 0; i < n_contexts; i++) {
        for (int k = 0; k < 3; k++) jagged_reset(outs[k]);
        jagged_ok(ptl_jagged_position_time_backward(jagged_context(which + i), a), "backward");
        jagged_compare(&e->demb, "demb");
        jagged_compare(&e->dpos_w, "dpos_w");
        jagged_compare(&e->dts_w, "dts_w");
    }
    free(demb);
    free(dpos_w);
    free(dts_w);
}

static void random_small(void) {
    const int n = test_quick() ? 200 : 5000, n_contexts = jagged_n_contexts();
    static struct embedding e;
    for (int i = 0; i < n; i++) {
        test_case("seed %d", i);
        make(&e, (uint64_t)i, false);
        check_forward(&e, i % n_contexts, 1);
        check_backward(&e, i % n_contexts, 1);
    }
}

static void random_wide(void) {
    const int n = test_quick() ? 4 : 40;
    static struct embedding e;
    for (int i = 0; i < n; i++) {
        test_case("wide rows, seed %d", i);
        make(&e, 1000000u + (uint64_t)i, true);
        check_forward(&e, 0, jagged_n_contexts());
        check_backward(&e, 0, jagged_n_contexts());
    }
}

/* ---- Gradients of long batches --------------------------------------------------------------- */

/* Thousands of tokens in few rows of the tables, real numbers: near the double sums, and the
 * same bits in every context. In place too. */
static void long_sums(void) {
    enum { N = 20000, E = 5, NP = 3, NB1 = 2 };
    struct test_random r = {5};
    float *dout = test_alloc(N * E * sizeof *dout), *demb = test_alloc(N * E * sizeof *demb);
    int64_t *times = test_alloc(N * sizeof *times), offsets[4] = {0, 7000, 7001, N};
    float dpos[NP * E], dts[NB1 * E], first[(NP + NB1) * E];
    double pos[NP * E], ts[NB1 * E];
    for (int i = 0; i < N * E; i++) dout[i] = test_random_float(&r);
    for (int i = 0; i < N; i++) times[i] = i;
    struct ptl_jagged_position_time_params a;
    ptl_jagged_position_time_init(&a);
    a.seq_offsets = ptl_tensor_contiguous(offsets, PTL_I64, 1, (const int64_t[]){4});
    a.timestamps = ptl_tensor_contiguous(times, PTL_I64, 1, (const int64_t[]){N});
    a.dout = ptl_tensor_contiguous(dout, PTL_F32, 2, (const int64_t[]){N, E});
    a.dpos_w = ptl_tensor_contiguous(dpos, PTL_F32, 2, (const int64_t[]){NP, E});
    a.dts_w = ptl_tensor_contiguous(dts, PTL_F32, 2, (const int64_t[]){NB1, E});
    a.alpha = 0.7f;
    ref_position_time_backward(&a, NULL, pos, ts);
    for (int i = 0; jagged_context(i); i++) {
        test_case("context %d", i);
        memcpy(demb, dout, N * E * sizeof *demb);
        a.dout.data = a.demb.data = demb;
        a.demb = a.dout;
        jagged_ok(ptl_jagged_position_time_backward(jagged_context(i), &a), "backward");
        for (int k = 0; k < NP * E; k++)
            CHECK(fabs((double)dpos[k] - pos[k]) <= 1e-7 * fabs(pos[k]) + 1e-9);
        for (int k = 0; k < NB1 * E; k++)
            CHECK(fabs((double)dts[k] - ts[k]) <= 1e-7 * fabs(ts[k]) + 1e-9);
        for (int k = 0; k < N * E; k++) CHECK(demb[k] == 0.7f * dout[k]);
        if (i == 0) memcpy(first, dpos, sizeof dpos), memcpy(first + NP * E, dts, sizeof dts);
        CHECK(memcmp(first, dpos, sizeof dpos) == 0 &&
              memcmp(first + NP * E, dts, sizeof dts) == 0);
    }
    free(dout);
    free(demb);
    free(times);
}

/* An output too large for the caches is streamed, unless it is emb itself: then it is not, and
 * must be the same. Rows with and without gaps, at an odd address. */
static void streamed(void) {
    enum { N = 9500, E = 501, NP = 40 };
    const size_t floats = (size_t)N * (E + 3);
    float *emb = test_alloc(floats * sizeof *emb), *out = test_alloc((floats + 1) * sizeof *out);
    float *pos = test_alloc(NP * E * sizeof *pos);
    int64_t offsets[4] = {0, 100, 5000, N - 7};
    struct test_random r = {9};
    for (size_t i = 0; i < floats; i++) emb[i] = test_random_float(&r);
    for (size_t i = 0; i < NP * E; i++) pos[i] = test_random_float(&r);
    struct ptl_jagged_position_time_params a, in_place;
    ptl_jagged_position_time_init(&a);
    a.seq_offsets = ptl_tensor_contiguous(offsets, PTL_I64, 1, (const int64_t[]){4});
    a.pos_w = ptl_tensor_contiguous(pos, PTL_F32, 2, (const int64_t[]){NP, E});
    a.alpha = 1.5f;
    for (int gap = 0; gap < 4; gap += 3)
        for (int i = 0; i < 4; i++) {
            test_case("gap of %d, context %d", gap, i);
            a.emb = ptl_tensor_contiguous(emb, PTL_F32, 2, (const int64_t[]){N, E});
            a.out = ptl_tensor_contiguous(out + 1, PTL_F32, 2, (const int64_t[]){N, E});
            a.out.stride[0] += gap;
            for (size_t k = 0; k <= floats; k++) out[k] = 7.0f;
            jagged_ok(ptl_jagged_position_time_forward(jagged_context(i), &a), "streamed");
            in_place = a;
            in_place.out = in_place.emb;
            float *copy = test_alloc((size_t)N * E * sizeof *copy);
            memcpy(copy, emb, (size_t)N * E * sizeof *copy);
            in_place.out.data = in_place.emb.data = copy;
            jagged_ok(ptl_jagged_position_time_forward(jagged_context(i), &in_place), "in place");
            CHECK(out[0] == 7.0f);
            for (int64_t row = 0; row < N; row++) {
                const float *got = (const float *)a.out.data + row * a.out.stride[0];
                CHECK(memcmp(got, copy + row * E, E * sizeof *got) == 0);
                for (int k = 0; row < N - 1 && k < gap; k++) CHECK(got[E + k] == 7.0f);
            }
            free(copy);
        }
    free(emb);
    free(out);
    free(pos);
}

/* ---- Time buckets ---------------------------------------------------------------------------- */

enum { MAX_TIMES = 4096 };

/* Two tokens a sequence, the time between them given: the bucket that the library takes is the
 * number that it adds. */
static void buckets_of(const int64_t *dt, int n, enum ptl_jagged_time_bucket how, int64_t n_buckets,
                       int64_t *bucket) {
    static float emb[2 * MAX_TIMES], out[2 * MAX_TIMES];
    static int64_t offsets[MAX_TIMES + 1], times[2 * MAX_TIMES];
    float zero[1] = {0.0f}, *table = test_alloc((size_t)n_buckets * sizeof *table);
    for (int64_t k = 0; k < n_buckets; k++) table[k] = (float)k;
    for (int b = 0; b <= n; b++) offsets[b] = 2 * b;
    for (int b = 0; b < n; b++) {
        times[2 * b] = 1700000000 - dt[b];
        times[2 * b + 1] = 1700000000;
    }
    struct ptl_jagged_position_time_params a;
    ptl_jagged_position_time_init(&a);
    a.time_bucket = how;
    a.seq_offsets = ptl_tensor_contiguous(offsets, PTL_I64, 1, (const int64_t[]){n + 1});
    a.timestamps = ptl_tensor_contiguous(times, PTL_I64, 1, (const int64_t[]){2 * n});
    a.emb = ptl_tensor_contiguous(emb, PTL_F32, 2, (const int64_t[]){2 * n, 1});
    a.out = ptl_tensor_contiguous(out, PTL_F32, 2, (const int64_t[]){2 * n, 1});
    a.pos_w = ptl_tensor_contiguous(zero, PTL_F32, 2, (const int64_t[]){1, 1});
    a.ts_w = ptl_tensor_contiguous(table, PTL_F32, 2, (const int64_t[]){n_buckets, 1});
    jagged_ok(ptl_jagged_position_time_forward(jagged_context(0), &a), "forward");
    for (int b = 0; b < n; b++) {
        bucket[b] = (int64_t)out[2 * b];
        CHECK(out[2 * b + 1] == 0.0f);
    }
    free(table);
}

/* Seconds around every border of the square root: 60 k^2 is exact in float here, so the border
 * is where it is on paper. */
static void sqrt_borders(void) {
    int64_t dt[3 * 512], bucket[3 * 512];
    for (int64_t k = 1; k <= 512; k++)
        for (int i = 0; i < 3; i++) dt[3 * (k - 1) + i] = 60 * k * k + i - 1;
    buckets_of(dt, 3 * 512, PTL_JAGGED_TIME_SQRT, 2049, bucket);
    for (int64_t k = 1; k <= 512; k++)
        for (int i = 0; i < 3; i++) {
            const int64_t got = bucket[3 * (k - 1) + i];
            if (got != (i == 0 ? k - 1 : k))
                FAIL("dt %d: bucket %d", (int)dt[3 * (k - 1) + i], (int)got);
        }
}

/* Around 60 e^k, which is no whole number. A logarithm within half a float's step below k rounds
 * to k: a millionth of the border away it does not. */
static void log_borders(void) {
    enum { N = 16 };
    int64_t dt[3 * N], bucket[3 * N];
    for (int k = 1; k <= N; k++) {
        const long double border = 60.0L * expl((long double)k);
        for (int i = 0; i < 3; i++) {
            const long double near = border * (1.0L + (i - 1) * 1e-6L);
            dt[3 * (k - 1) + i] = (int64_t)(i == 0 ? floorl(near) : ceill(near));
        }
    }
    buckets_of(dt, 3 * N, PTL_JAGGED_TIME_LOG, 2049, bucket);
    for (int k = 1; k <= N; k++)
        for (int i = 0; i < 3; i++) {
            const int64_t got = bucket[3 * (k - 1) + i];
            if (got != (i == 0 ? k - 1 : k))
                FAIL("dt %d: bucket %d", (int)dt[3 * (k - 1) + i], (int)got);
        }
}

/* Known values, clamps, and times that do not grow. */
static void known_buckets(void) {
    static const struct {
        int64_t dt, n_buckets, sqrt, log;
    } known[] = {
        {0, 2049, 0, 0},
        {1, 2049, 0, 0},
        {-1, 2049, 0, 0},
        {-1000000, 2049, 0, 0},
        {59, 2049, 0, 0},
        {60, 2049, 1, 0},
        {3600, 2049, 7, 4},
        {86400, 2049, 37, 7},
        {31536000, 2049, 724, 13},
        {31536000, 8, 7, 7},
        {1600000000, 2049, 2048, 17},
        {1, 1, 0, 0},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        int64_t bucket;
        test_case("dt %d, %d buckets", (int)known[i].dt, (int)known[i].n_buckets);
        buckets_of(&known[i].dt, 1, PTL_JAGGED_TIME_SQRT, known[i].n_buckets, &bucket);
        CHECK(bucket == known[i].sqrt);
        buckets_of(&known[i].dt, 1, PTL_JAGGED_TIME_LOG, known[i].n_buckets, &bucket);
        CHECK(bucket == known[i].log);
    }
}

/* Differences beyond int64 saturate. */
static void extreme_times(void) {
    int64_t times[4] = {INT64_MIN, INT64_MAX, INT64_MAX, INT64_MIN}, offsets[3] = {0, 2, 4};
    float emb[4] = {0}, out[4], pos[1] = {0}, ts[2] = {1, 2};
    struct ptl_jagged_position_time_params a;
    ptl_jagged_position_time_init(&a);
    a.seq_offsets = ptl_tensor_contiguous(offsets, PTL_I64, 1, (const int64_t[]){3});
    a.timestamps = ptl_tensor_contiguous(times, PTL_I64, 1, (const int64_t[]){4});
    a.emb = ptl_tensor_contiguous(emb, PTL_F32, 2, (const int64_t[]){4, 1});
    a.out = ptl_tensor_contiguous(out, PTL_F32, 2, (const int64_t[]){4, 1});
    a.pos_w = ptl_tensor_contiguous(pos, PTL_F32, 2, (const int64_t[]){1, 1});
    a.ts_w = ptl_tensor_contiguous(ts, PTL_F32, 2, (const int64_t[]){2, 1});
    for (int how = 0; how < 2; how++) {
        a.time_bucket = (enum ptl_jagged_time_bucket)how;
        jagged_ok(ptl_jagged_position_time_forward(jagged_context(0), &a), "forward");
        CHECK(out[0] == 2 && out[1] == 1 && out[2] == 1 && out[3] == 1);
    }
}

/* ---- Positions, by hand ---------------------------------------------------------------------- */

static void known_positions(void) {
    /* 2 contexts, 3 of history, 2 targets; then the same tokens in a table of 4 rows */
    static const int expected[4][7] = {
        {0, 1, 5, 4, 3, 2, 2}, /* from the end */
        {0, 1, 3, 3, 3, 2, 2},
        {0, 1, 2, 3, 4, 5, 5}, /* from the start */
        {3, 3, 3, 3, 3, 3, 3}, /* after 3 cached tokens */
    };
    int64_t offsets[2] = {0, 7}, two = 2, three = 3;
    float emb[7] = {0}, out[7], pos[20];
    for (int i = 0; i < 20; i++) pos[i] = (float)i;
    for (int i = 0; i < 4; i++) {
        struct ptl_jagged_position_time_params a;
        test_case("row %d", i);
        ptl_jagged_position_time_init(&a);
        a.seq_offsets = ptl_tensor_contiguous(offsets, PTL_I64, 1, (const int64_t[]){2});
        a.num_targets = ptl_tensor_contiguous(&two, PTL_I64, 0, NULL);
        if (i < 2) a.num_contexts = a.num_targets;
        else a.position_order = PTL_JAGGED_POSITION_FROM_START;
        if (i == 3) a.position_start = ptl_tensor_contiguous(&three, PTL_I64, 0, NULL);
        a.emb = ptl_tensor_contiguous(emb, PTL_F32, 2, (const int64_t[]){7, 1});
        a.out = ptl_tensor_contiguous(out, PTL_F32, 2, (const int64_t[]){7, 1});
        a.pos_w = ptl_tensor_contiguous(pos, PTL_F32, 2, (const int64_t[]){i % 2 ? 4 : 20, 1});
        jagged_ok(ptl_jagged_position_time_forward(jagged_context(0), &a), "forward");
        for (int x = 0; x < 7; x++)
            if (out[x] != (float)expected[i][x])
                FAIL("x=%d: position %g, expected %d", x, (double)out[x], expected[i][x]);
    }
}

static const struct test tests[] = {
    {"random_small", random_small},
    {"random_wide", random_wide},
    {"streamed", streamed},
    {"long_sums", long_sums},
    {"sqrt_borders", sqrt_borders},
    {"log_borders", log_borders},
    {"known_buckets", known_buckets},
    {"extreme_times", extreme_times},
    {"known_positions", known_positions},
};
TEST_SUITE(position_time_suite, "jagged/position_time", tests);
