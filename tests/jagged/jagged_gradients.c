/* What docs/jagged.md says about gradients and inverses: for a linear f and the g that is said
 * to be its gradient, f(x) . y = x . g(y) for all x and y. With small whole numbers both sides
 * are exact. */
#include <string.h>

#include "elements.h"
#include "jagged_arrays.h"
#include "jagged_suites.h"

static struct jagged_problem p;
static struct ptl_context *ctx;

static void begin(int seed) {
    jagged_begin(&p, (uint64_t)seed, false);
    jagged_float_type(&p);
    p.numbers = p.no_views = true;
    ctx = jagged_context(seed % jagged_n_contexts());
}

static int64_t elements(const struct ptl_tensor *t) {
    int64_t n = t->data ? 1 : 0;
    for (int i = 0; i < t->ndim; i++) n *= t->shape[i];
    return n;
}

/* Both are plain, and without padding rows. */
static double dot(const struct ptl_tensor *a, const struct ptl_tensor *b) {
    double sum = 0.0;
    CHECK(elements(a) == elements(b));
    for (int64_t i = 0; i < elements(a); i++)
        sum += ref_read(a->dtype, a->data, i) * ref_read(b->dtype, b->data, i);
    return sum;
}

static void check_equal(const char *what, double a, double b) {
    if (a != b) FAIL("%s: %.17g and %.17g", what, a, b);
}

static bool same(const struct ptl_tensor *a, const struct ptl_tensor *b) {
    return elements(a) == elements(b) &&
           (elements(a) == 0 ||
            memcmp(a->data, b->data, (size_t)elements(a) * ptl_dtype_bytes(a->dtype)) == 0);
}

/* A side: input and output of one layout. */
struct side {
    bool dense;
    int64_t lengths[MAX_SEQS];
    struct ptl_tensor offsets;
};

static struct side make_side(bool dense, const int64_t *lengths) {
    struct side s = {.dense = dense};
    memcpy(s.lengths, lengths, sizeof s.lengths);
    if (!dense) s.offsets = jagged_offsets(&p, lengths);
    return s;
}

static struct side random_side(void) {
    int64_t lengths[MAX_SEQS] = {0};
    const bool dense = test_random_int(&p.random, 0, 2) == 0;
    jagged_lengths(&p, 7, lengths);
    for (int b = 1; dense && b < MAX_SEQS; b++) lengths[b] = lengths[0];
    return make_side(dense, lengths);
}

static struct ptl_jagged side_input(const struct side *s) {
    const int64_t n = jagged_total(&p, s->lengths);
    return (struct ptl_jagged){
        s->dense ? jagged_dense_input(&p, s->lengths[0]) : jagged_input(&p, n, n), s->offsets};
}

static struct ptl_jagged side_output(const struct side *s) {
    const int64_t n = jagged_total(&p, s->lengths);
    return (struct ptl_jagged){
        s->dense ? jagged_dense_output(&p, s->lengths[0]).t : jagged_output(&p, n).t, s->offsets};
}

enum { N_CASES = 300 };

static int n_cases(void) {
    return test_quick() ? N_CASES / 10 : N_CASES;
}

/* The gradient of resize is resize the other way; there and back with room enough is the
 * identity. */
static void resize(void) {
    for (int i = 0; i < n_cases(); i++) {
        test_case("seed %d", i);
        begin(i);
        const struct side from = random_side(), to = random_side();
        const enum ptl_jagged_align align = (enum ptl_jagged_align)(i % 2);
        const struct ptl_jagged x = side_input(&from), y = side_input(&to);
        const struct ptl_jagged fx = side_output(&to), gy = side_output(&from);
        jagged_ok(ptl_jagged_resize(ctx, &x, align, NULL, &fx), "forward");
        jagged_ok(ptl_jagged_resize(ctx, &y, align, NULL, &gy), "backward");
        check_equal("f(x) . y = x . g(y)", dot(&fx.values, &y.values), dot(&x.values, &gy.values));

        int64_t room[MAX_SEQS];
        for (int b = 0; b < MAX_SEQS; b++) room[b] = 8 + (i % 3);
        const struct side wide = make_side(true, room);
        const struct ptl_jagged padded = side_output(&wide), back = side_output(&from);
        double pad = 0.0;
        ref_write(p.dtype, &pad, 0, 3.0);
        jagged_ok(ptl_jagged_resize(ctx, &x, align, &pad, &padded), "to padded");
        jagged_ok(ptl_jagged_resize(ctx, &padded, align, NULL, &back), "and back");
        CHECK(same(&x.values, &back.values));
    }
}

/* Removing the first k tokens, then the last one: the positions that are left. */
static void remove_tokens(void) {
    for (int i = 0; i < n_cases(); i++) {
        test_case("seed %d", i);
        begin(i);
        p.n_axes = 0;
        int64_t lengths[MAX_SEQS] = {0}, fewer[MAX_SEQS] = {0}, row = 0;
        jagged_lengths(&p, 7, lengths);
        const int64_t k = test_random_int(&p.random, 0, 3);
        for (int b = 0; b < MAX_SEQS; b++) fewer[b] = lengths[b] > k ? lengths[b] - k : 0;
        const struct side all = make_side(false, lengths), few = make_side(false, fewer);
        const struct ptl_jagged x = side_input(&all), y = side_output(&few);
        for (int last = 0; last < 2; last++) {
            jagged_ok(ptl_jagged_resize(
                          ctx, &x, last ? PTL_JAGGED_ALIGN_START : PTL_JAGGED_ALIGN_END, NULL, &y),
                      last ? "last removed" : "first removed");
            row = 0;
            int64_t begin_b = 0;
            for (int b = 0; b < p.n_seqs; begin_b += lengths[b++])
                for (int64_t t = last ? 0 : k; t < lengths[b] - (last ? k : 0); t++)
                    CHECK(jagged_number(&y.values, 1, 0, row++, 0) ==
                          jagged_number(&x.values, 1, 0, begin_b + t, 0));
            CHECK(row == jagged_total(&p, fewer));
        }
    }
}

/* split(concat) is the identity, concat(split) too, and each is the gradient of the other. */
static void concat_and_split(void) {
    for (int i = 0; i < n_cases(); i++) {
        test_case("seed %d", i);
        begin(i);
        const struct side left = random_side(), right = random_side();
        const int64_t n = jagged_total(&p, left.lengths) + jagged_total(&p, right.lengths);
        const int64_t prefix = i % 4;
        const struct ptl_jagged l = side_input(&left), r = side_input(&right);
        const struct ptl_jagged gl = side_output(&left), gr = side_output(&right);
        const struct ptl_tensor y = jagged_input(&p, n, n), fx = jagged_output(&p, n).t;
        jagged_ok(ptl_jagged_concat(ctx, &l, &r, prefix, &fx), "concat");
        jagged_ok(ptl_jagged_split(ctx, &y, prefix, &gl, &gr), "split");
        check_equal("f(l, r) . y = l . gl(y) + r . gr(y)", dot(&fx, &y),
                    dot(&l.values, &gl.values) + dot(&r.values, &gr.values));

        const struct ptl_jagged l2 = side_output(&left), r2 = side_output(&right);
        const struct ptl_tensor y2 = jagged_output(&p, n).t;
        jagged_ok(ptl_jagged_split(ctx, &fx, prefix, &l2, &r2), "split of concat");
        CHECK(same(&l.values, &l2.values) && same(&r.values, &r2.values));
        jagged_ok(ptl_jagged_concat(ctx, &gl, &gr, prefix, &y2), "concat of split");
        CHECK(same(&y, &y2));
    }
}

static void replace_last(void) {
    for (int i = 0; i < n_cases(); i++) {
        test_case("seed %d", i);
        begin(i);
        int64_t lengths[MAX_SEQS] = {0}, fewer[MAX_SEQS] = {0};
        jagged_lengths(&p, 7, lengths);
        for (int b = 0; b < MAX_SEQS; b++) fewer[b] = test_random_int(&p.random, 0, lengths[b]);
        const struct side all = make_side(false, lengths), few = make_side(false, fewer);
        const struct ptl_jagged x = side_input(&all), last = side_input(&few), y = side_input(&all);
        const struct ptl_jagged fx = side_output(&all), gx = side_output(&all),
                                gl = side_output(&few);
        const struct ptl_jagged zeros = {.offsets = last.offsets};
        jagged_ok(ptl_jagged_replace_last(ctx, &x, &last, &fx.values), "forward");
        jagged_ok(ptl_jagged_replace_last(ctx, &y, &zeros, &gx.values), "gradient of x");
        jagged_ok(ptl_jagged_resize(ctx, &y, PTL_JAGGED_ALIGN_END, NULL, &gl), "gradient of last");
        check_equal("f(x, l) . y = x . gx(y) + l . gl(y)", dot(&fx.values, &y.values),
                    dot(&x.values, &gx.values) + dot(&last.values, &gl.values));
    }
}

/* The sum is the gradient of the broadcast row, and the broadcast alone that of the sum. */
static void broadcast_and_sum(void) {
    for (int i = 0; i < n_cases(); i++) {
        test_case("seed %d", i);
        begin(i);
        const struct side s = random_side();
        const struct ptl_jagged y = side_input(&s), out = side_output(&s);
        struct ptl_jagged no_x = y;
        no_x.values.data = NULL;
        const struct ptl_tensor d = jagged_input(&p, p.n_seqs, p.n_seqs);
        const struct ptl_tensor sum = jagged_output(&p, p.n_seqs).t;
        jagged_ok(ptl_jagged_broadcast_add(ctx, &no_x, &d, &out.values), "broadcast");
        jagged_ok(ptl_jagged_sum(ctx, &y, &sum), "sum");
        check_equal("broadcast(d) . y = d . sum(y)", dot(&out.values, &y.values), dot(&d, &sum));
    }
}

static const struct test tests[] = {
    {"resize", resize},
    {"remove_tokens", remove_tokens},
    {"concat_and_split", concat_and_split},
    {"replace_last", replace_last},
    {"broadcast_and_sum", broadcast_and_sum},
};
TEST_SUITE(jagged_gradients_suite, "jagged/gradients", tests);
