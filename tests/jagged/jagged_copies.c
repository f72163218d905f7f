/* The copies of jagged arrays against the plain loops of ref/, byte for byte, in random layouts;
 * and the lengths' sums. */
#include <string.h>

#include "jagged.h"
#include "jagged_arrays.h"
#include "jagged_suites.h"

/* One side of a call: jagged with the lengths and perhaps padding rows, or dense with n = length
 * 0. */
static struct ptl_jagged input_side(struct jagged_problem *p, bool dense, const int64_t *lengths) {
    if (dense) return (struct ptl_jagged){.values = jagged_dense_input(p, lengths[0])};
    const int64_t n = jagged_total(p, lengths), padding = test_random_int(&p->random, 0, 2);
    return (struct ptl_jagged){jagged_input(p, n + padding, n), jagged_offsets(p, lengths)};
}

static struct jagged_output output_side(struct jagged_problem *p, bool dense,
                                        const int64_t *lengths, struct ptl_jagged *side,
                                        struct ptl_jagged *twin) {
    struct jagged_output out;
    memset(side, 0, sizeof *side);
    if (dense) {
        out = jagged_dense_output(p, lengths[0]);
    } else {
        out = jagged_output(p, jagged_total(p, lengths) + test_random_int(&p->random, 0, 2));
        side->offsets = jagged_offsets(p, lengths);
    }
    twin->offsets = side->offsets;
    side->values = out.t;
    twin->values = out.twin;
    return out;
}

/* Lengths of a side; those of a dense one are alike. */
static bool random_side(struct jagged_problem *p, int64_t most, int64_t *lengths) {
    const bool dense = test_random_int(&p->random, 0, 2) == 0;
    lengths[0] = 0;
    jagged_lengths(p, most, lengths);
    if (dense) {
        lengths[0] = test_random_int(&p->random, 0, most);
        for (int64_t b = 1; b < p->n_seqs; b++) lengths[b] = lengths[0];
    }
    return dense;
}

/* ---- One problem of each operator ---------------------------------------------------------------
 * `which` and `n` choose the contexts that compute it. */

static void check_resize(struct jagged_problem *p, int64_t most, int which, int n) {
    int64_t from[MAX_SEQS], to[MAX_SEQS];
    struct ptl_jagged out, twin;
    const bool x_dense = random_side(p, most, from);
    const struct ptl_jagged x = input_side(p, x_dense, from);
    const bool out_dense = random_side(p, most, to);
    struct jagged_output o = output_side(p, out_dense, to, &out, &twin);
    const enum ptl_jagged_align align = (enum ptl_jagged_align)test_random_int(&p->random, 0, 1);
    const uint64_t bits = test_random_bits(&p->random);
    const void *pad = test_random_int(&p->random, 0, 2) ? &bits : NULL;
    ref_jagged_resize(&x, align, pad, &twin);
    for (int i = 0; i < n; i++) {
        jagged_reset(&o);
        jagged_ok(ptl_jagged_resize(jagged_context(which + i), &x, align, pad, &out), "resize");
        jagged_compare(&o, "out");
    }
}

static void check_concat(struct jagged_problem *p, int64_t most, int which, int n) {
    int64_t l[MAX_SEQS], r[MAX_SEQS];
    const bool left_dense = random_side(p, most, l), right_dense = random_side(p, most, r);
    const struct ptl_jagged left = input_side(p, left_dense, l);
    const struct ptl_jagged right = input_side(p, right_dense, r);
    const int64_t rows = jagged_total(p, l) + jagged_total(p, r);
    struct jagged_output o = jagged_output(p, rows + test_random_int(&p->random, 0, 2));
    const int64_t prefix = test_random_int(&p->random, 0, 1) * test_random_int(&p->random, 0, most);
    ref_jagged_concat(&left, &right, prefix, &o.twin);
    for (int i = 0; i < n; i++) {
        jagged_reset(&o);
        jagged_ok(ptl_jagged_concat(jagged_context(which + i), &left, &right, prefix, &o.t),
                  "concat");
        jagged_compare(&o, "out");
    }
}

static void check_split(struct jagged_problem *p, int64_t most, int which, int n) {
    int64_t l[MAX_SEQS], r[MAX_SEQS];
    struct ptl_jagged left, left_twin, right, right_twin;
    const bool left_dense = random_side(p, most, l), right_dense = random_side(p, most, r);
    struct jagged_output lo = output_side(p, left_dense, l, &left, &left_twin);
    struct jagged_output ro = output_side(p, right_dense, r, &right, &right_twin);
    const int64_t rows = jagged_total(p, l) + jagged_total(p, r);
    const struct ptl_tensor x = jagged_input(p, rows + test_random_int(&p->random, 0, 2), rows);
    const int64_t prefix = test_random_int(&p->random, 0, 1) * test_random_int(&p->random, 0, most);
    const int64_t unwanted = test_random_int(&p->random, 0, 5);
    if (unwanted < 2) {
        struct ptl_jagged *side = unwanted ? &right : &left,
                          *twin = unwanted ? &right_twin : &left_twin;
        side->values.data = twin->values.data = NULL;
        if (side->offsets.data && test_random_int(&p->random, 0, 1))
            memset(&side->values, 0, sizeof side->values); /* a jagged one needs no shape */
    }
    ref_jagged_split(&x, prefix, &left_twin, &right_twin);
    for (int i = 0; i < n; i++) {
        jagged_reset(&lo);
        jagged_reset(&ro);
        jagged_ok(ptl_jagged_split(jagged_context(which + i), &x, prefix, &left, &right), "split");
        jagged_compare(&lo, "left");
        jagged_compare(&ro, "right");
    }
}

static void check_replace(struct jagged_problem *p, int64_t most, int which, int n) {
    int64_t old[MAX_SEQS], new[MAX_SEQS];
    jagged_lengths(p, most, old);
    int64_t shortest = most;
    for (int64_t b = 0; b < p->n_seqs; b++) {
        new[b] = test_random_int(&p->random, 0, old[b]);
        if (old[b] < shortest) shortest = old[b];
    }
    const bool dense = test_random_int(&p->random, 0, 3) == 0;
    for (int64_t b = 0; dense && b < MAX_SEQS; b++) new[b] = shortest;
    const struct ptl_jagged x = input_side(p, false, old);
    struct ptl_jagged last = input_side(p, dense, new);
    if (test_random_int(&p->random, 0, 3) == 0) {
        last.values.data = NULL;
        if (!dense) memset(&last.values, 0, sizeof last.values);
    }
    struct jagged_output o = jagged_output(p, x.values.shape[0]);
    ref_jagged_replace_last(&x, &last, &o.twin);
    for (int i = 0; i < n; i++) {
        jagged_reset(&o);
        jagged_ok(ptl_jagged_replace_last(jagged_context(which + i), &x, &last, &o.t),
                  "replace_last");
        jagged_compare(&o, "out");
    }
}

static void (*const checks[])(struct jagged_problem *, int64_t, int,
                              int) = {check_resize, check_concat, check_split, check_replace};
static const char *const names[] = {"resize", "concat", "split", "replace_last"};

/* ---- Many of them ---------------------------------------------------------------------------- */

static void random_small(void) {
    const int n = test_quick() ? 400 : 12000, n_contexts = jagged_n_contexts();
    for (int i = 0; i < n; i++) {
        struct jagged_problem p;
        test_case("%s, seed %d", names[i % 4], i);
        jagged_begin(&p, (uint64_t)i, false);
        checks[i % 4](&p, test_random_int(&p.random, 0, 9), i / 4 % n_contexts, 1);
    }
}

/* Rows of 16 KiB and more, so that ranges are a few rows and all threads take part. */
static void random_wide(void) {
    const int n = test_quick() ? 8 : 80;
    for (int i = 0; i < n; i++) {
        struct jagged_problem p;
        test_case("%s, wide rows, seed %d", names[i % 4], i);
        jagged_begin(&p, 1000000u + (uint64_t)i, true);
        checks[i % 4](&p, 9, 0, jagged_n_contexts());
    }
}

/* Outputs too large for the caches are streamed: rows of a megabyte and some bytes. */
static void streamed(void) {
    for (int i = 0; i < 4; i++) {
        struct jagged_problem p;
        test_case("%s, rows of a megabyte, seed %d", names[i % 4], i);
        jagged_begin(&p, 2000000u + (uint64_t)i, true);
        p.n_axes = 1;
        p.extent[0] = ((1 << 20) + 24) / (int64_t)ptl_dtype_bytes(p.dtype) + i;
        p.n_seqs = 4;
        checks[i % 4](&p, 9, i % jagged_n_contexts(), 1);
    }
}

/* ---- Sums of lengths ------------------------------------------------------------------------- */

static void complete_cumsum(void) {
    struct test_random r = {7};
    for (int n = 0; n <= 40; n++)
        for (int wide = 0; wide < 2; wide++) {
            int64_t lengths[40], offsets64[41] = {-1}, sum = 0;
            int32_t lengths32[40], offsets32[41] = {-1};
            for (int b = 0; b < n; b++) {
                lengths[b] = test_random_int(&r, 0, 9);
                lengths32[b] = (int32_t)lengths[b];
            }
            const int64_t shape = n, shape1 = n + 1;
            const enum ptl_dtype dtype = wide ? PTL_I64 : PTL_I32;
            void *from = wide ? (void *)lengths : (void *)lengths32;
            void *to = wide ? (void *)offsets64 : (void *)offsets32;
            const struct ptl_tensor l = ptl_tensor_contiguous(n ? from : NULL, dtype, 1, &shape);
            const struct ptl_tensor o = ptl_tensor_contiguous(to, dtype, 1, &shape1);
            jagged_ok(ptl_jagged_complete_cumsum(&l, &o), "complete_cumsum");
            for (int b = 0; b <= n; b++) {
                CHECK((wide ? offsets64[b] : offsets32[b]) == sum);
                if (b < n) sum += lengths[b];
            }
        }
}

static const struct test tests[] = {
    {"random_small", random_small},
    {"random_wide", random_wide},
    {"streamed", streamed},
    {"complete_cumsum", complete_cumsum},
};
TEST_SUITE(jagged_copies_suite, "jagged/copies", tests);
