/* broadcast_add and sum against ref/: the addition exactly, the sum within one rounding of a double
 * sum; the same bits in every context. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "elements.h"
#include "guard.h"
#include "jagged.h"
#include "jagged_arrays.h"
#include "jagged_suites.h"
#include "ops/hstu_check.h"

static int64_t random_lengths(struct jagged_problem *p, bool dense, int64_t most,
                              int64_t *lengths) {
    lengths[0] = 0;
    jagged_lengths(p, most, lengths);
    for (int64_t b = 1; dense && b < p->n_seqs; b++) lengths[b] = lengths[0];
    return jagged_total(p, lengths);
}

static struct ptl_jagged random_x(struct jagged_problem *p, bool dense, const int64_t *lengths,
                                  int64_t padding) {
    const int64_t n = jagged_total(p, lengths);
    if (dense) return (struct ptl_jagged){.values = jagged_dense_input(p, lengths[0])};
    return (struct ptl_jagged){jagged_input(p, n + padding, n), jagged_offsets(p, lengths)};
}

static void begin(struct jagged_problem *p, uint64_t seed, bool wide) {
    jagged_begin(p, seed, wide);
    jagged_float_type(p); /* a wide row of u8 elements becomes longer */
    p->numbers = test_random_int(&p->random, 0, 1);
    for (int i = 0; wide && i < p->n_axes; i++) p->extent[i] = p->extent[i] % 8192 + 1;
}

/* Puts numbers that are no floats into the twin's elements: those that arithmetic must give. */
static void expect_rows(const struct ptl_tensor *twin, int lead, int64_t b, int64_t row, int64_t n,
                        const double *numbers) {
    const int64_t at = (lead == 2 ? b * twin->stride[0] : 0) + row * twin->stride[lead - 1];
    for (int64_t c = 0; c < n; c++) ref_write(twin->dtype, twin->data, at + c, numbers[c]);
}

static void check_broadcast_add(struct jagged_problem *p, int64_t most, int which, int n_contexts) {
    int64_t lengths[MAX_SEQS];
    const bool dense = test_random_int(&p->random, 0, 1);
    const int lead = dense ? 2 : 1;
    const int64_t padding = dense ? 0 : test_random_int(&p->random, 0, 2);
    p->numbers = true; /* a sum of random bits may be a NaN whose bits nobody promises */
    const int64_t n_rows = random_lengths(p, dense, most, lengths), n = jagged_row_elements(p);
    struct ptl_jagged x = random_x(p, dense, lengths, padding);
    const struct ptl_tensor d = jagged_input(p, p->n_seqs, p->n_seqs);
    struct jagged_output o =
        dense ? jagged_dense_output(p, lengths[0]) : jagged_output(p, n_rows + padding);
    double *expected = test_alloc((size_t)((n_rows + padding) * n + 1) * sizeof *expected);
    ref_jagged_broadcast_add(&x, &d, expected);
    for (int64_t row = 0; o.low && row < n_rows + padding; row++) {
        const int64_t b = dense ? row / lengths[0] : 0;
        expect_rows(&o.twin, lead, b, dense ? row % lengths[0] : row, n, expected + row * n);
    }
    for (int i = 0; i < n_contexts; i++) {
        jagged_reset(&o);
        jagged_ok(ptl_jagged_broadcast_add(jagged_context(which + i), &x, &d, &o.t),
                  "broadcast_add");
        jagged_compare(&o, "out");
    }
    /* in place: out is x */
    if (o.low) {
        struct jagged_output copy = o;
        const struct ptl_jagged in_place = {o.t, x.offsets};
        jagged_reset(&copy);
        for (int64_t row = 0; row < n_rows; row++) {
            const int64_t b = dense ? row / lengths[0] : 0, i = dense ? row % lengths[0] : row;
            for (int64_t c = 0; c < n; c++) expected[c] = jagged_number(&x.values, lead, b, i, c);
            expect_rows(&copy.t, lead, b, i, n, expected);
        }
        jagged_ok(ptl_jagged_broadcast_add(jagged_context(which), &in_place, &d, &o.t), "in place");
        jagged_compare(&o, "out in place");
    }
    free(expected);
}

/* Without x: any element type, copies. */
static void check_broadcast(struct jagged_problem *p, int64_t most, int which, int n_contexts) {
    int64_t lengths[MAX_SEQS];
    const bool dense = test_random_int(&p->random, 0, 1);
    const int64_t n_rows = random_lengths(p, dense, most, lengths);
    const int64_t padding = dense ? 0 : test_random_int(&p->random, 0, 2);
    struct jagged_output o =
        dense ? jagged_dense_output(p, lengths[0]) : jagged_output(p, n_rows + padding);
    const struct ptl_tensor d = jagged_input(p, p->n_seqs, p->n_seqs);
    struct ptl_jagged x = {0}, whole = {o.twin, x.offsets}, rows = {.values = d};
    if (dense) x.values = o.t;
    else x.offsets = whole.offsets = jagged_offsets(p, lengths);
    x.values.data = NULL;
    /* d as a dense array whose rows all are the same */
    rows.values.ndim++;
    for (int axis = d.ndim; axis > 0; axis--) {
        rows.values.shape[axis] = d.shape[axis - 1];
        rows.values.stride[axis] = d.stride[axis - 1];
    }
    rows.values.shape[0] = p->n_seqs;
    rows.values.stride[0] = d.stride[0];
    rows.values.shape[1] = most;
    rows.values.stride[1] = 0;
    ref_jagged_resize(&rows, PTL_JAGGED_ALIGN_START, NULL, &whole);
    for (int i = 0; i < n_contexts; i++) {
        jagged_reset(&o);
        jagged_ok(ptl_jagged_broadcast_add(jagged_context(which + i), &x, &d, &o.t), "broadcast");
        jagged_compare(&o, "out");
    }
}

static void check_sum(struct jagged_problem *p, int64_t most, int which, int n_contexts) {
    int64_t lengths[MAX_SEQS];
    const bool dense = test_random_int(&p->random, 0, 1);
    random_lengths(p, dense, most, lengths);
    p->numbers = true;
    const struct ptl_jagged x = random_x(p, dense, lengths, 1);
    struct jagged_output o = jagged_output(p, p->n_seqs);
    const int64_t n = jagged_row_elements(p);
    double *expected = test_alloc((size_t)(p->n_seqs * n + 1) * sizeof *expected);
    ref_jagged_sum(&x, expected);
    for (int64_t b = 0; o.low && b < p->n_seqs; b++)
        expect_rows(&o.twin, 1, 0, b, n, expected + b * n);
    for (int i = 0; i < n_contexts; i++) {
        jagged_reset(&o);
        jagged_ok(ptl_jagged_sum(jagged_context(which + i), &x, &o.t), "sum");
        jagged_compare(&o, "out");
    }
    free(expected);
}

static void (*const checks[])(struct jagged_problem *, int64_t, int, int) = {check_broadcast_add,
                                                                             check_sum};
static const char *const names[] = {"broadcast_add", "sum"};

static void random_small(void) {
    const int n = test_quick() ? 200 : 4000, n_contexts = jagged_n_contexts();
    for (int i = 0; i < n; i++) {
        struct jagged_problem p;
        test_case("%s, seed %d", i % 3 == 2 ? "broadcast" : names[i % 3], i);
        if (i % 3 == 2) {
            jagged_begin(&p, (uint64_t)i, false);
            check_broadcast(&p, 9, i / 3 % n_contexts, 1);
        } else {
            begin(&p, (uint64_t)i, false);
            checks[i % 3](&p, 9, i / 3 % n_contexts, 1);
        }
    }
}

static void random_wide(void) {
    const int n = test_quick() ? 4 : 40;
    for (int i = 0; i < n; i++) {
        struct jagged_problem p;
        test_case("%s, wide rows, seed %d", i % 3 == 2 ? "broadcast" : names[i % 3], i);
        if (i % 3 == 2) {
            jagged_begin(&p, 1000000u + (uint64_t)i, true);
            check_broadcast(&p, 9, 0, jagged_n_contexts());
        } else {
            begin(&p, 1000000u + (uint64_t)i, true);
            checks[i % 3](&p, 9, 0, jagged_n_contexts());
        }
    }
}

/* Sequences of many pieces: float inputs of mixed size and sign, whose float sum would be far
 * off. */
static void long_sums(void) {
    enum { N_SEQS = 5, COLUMNS = 3 };
    static const int64_t lengths[N_SEQS] = {511, 512, 513, 0, 40000};
    struct test_random r = {11};
    int64_t offsets[N_SEQS + 1] = {0};
    for (int b = 0; b < N_SEQS; b++) offsets[b + 1] = offsets[b] + lengths[b];
    const int64_t n = offsets[N_SEQS], n_offsets = N_SEQS + 1;
    float *values = test_alloc((size_t)(n * COLUMNS) * sizeof *values), out[N_SEQS * COLUMNS];
    float first[N_SEQS * COLUMNS];
    double expected[N_SEQS * COLUMNS];
    for (int64_t i = 0; i < n * COLUMNS; i++)
        values[i] = ldexpf(test_random_float(&r), (int)test_random_int(&r, -12, 12));
    const struct ptl_jagged x = {
        ptl_tensor_contiguous(values, PTL_F32, 2, (const int64_t[]){n, COLUMNS}),
        ptl_tensor_contiguous(offsets, PTL_I64, 1, &n_offsets)};
    const struct ptl_tensor o =
        ptl_tensor_contiguous(out, PTL_F32, 2, (const int64_t[]){N_SEQS, COLUMNS});
    ref_jagged_sum(&x, expected);
    for (int i = 0; jagged_context(i); i++) {
        test_case("context %d", i);
        jagged_ok(ptl_jagged_sum(jagged_context(i), &x, &o), "sum");
        for (int k = 0; k < N_SEQS * COLUMNS; k++)
            if (fabs((double)out[k] - expected[k]) > 1e-7 * fabs(expected[k]) + 1e-9)
                FAIL("out[%d] is %.9g, expected %.9g", k, (double)out[k], expected[k]);
        if (i == 0) memcpy(first, out, sizeof out);
        CHECK(memcmp(first, out, sizeof out) == 0);
    }
    free(values);
}

static const struct test tests[] = {
    {"random_small", random_small},
    {"random_wide", random_wide},
    {"long_sums", long_sums},
};
TEST_SUITE(jagged_sums_suite, "jagged/sums", tests);
