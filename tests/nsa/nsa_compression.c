/* ptl_nsa_compress against the reference: all layouts, types, weights, position encodings, overlaps
 * of blocks; rows behind the blocks are not touched. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../../ref/elements.h"
#include "../../ref/nsa.h"
#include "nsa_compare.h"
#include "nsa_suites.h"
#include "ops/tensor_check.h"

/* y of the spec's keys, with some rows too many, and what else the call takes. */
static struct ptl_nsa_compress_params arguments(struct nsa_problem *x, struct test_random *r) {
    static const enum ptl_dtype index[2] = {PTL_I32, PTL_I64};
    const struct nsa_spec *s = &x->spec;
    struct ptl_nsa_compress_params c;
    int64_t n_blocks = 0, longest = 0;
    ptl_nsa_compress_params_init(&c);
    c.block = s->o.block;
    c.stride = s->o.stride;
    c.mode = (enum ptl_nsa_mode)test_random_int(r, 0, 1);
    c.x = x->p.k;
    if (c.x.ndim == 3)
        c.seq_offsets = x->p.seq_offsets_k.data ? x->p.seq_offsets_k : x->p.seq_offsets_q;
    c.seqlens = x->p.seqlens_k;
    c.page_table = x->p.page_table;
    for (int b = 0; b < s->n_seqs; b++) {
        n_blocks += ptl_nsa_compressed_length(s->seq[b].n_tokens, c.block, c.stride);
        if (s->seq[b].n_tokens > longest) longest = s->seq[b].n_tokens;
    }
    const int64_t more = test_random_int(r, 0, 2);
    const int64_t rows = ptl_nsa_compressed_length(longest, c.block, c.stride);
    const int64_t jagged[3] = {n_blocks + more, s->kv_heads, s->d};
    const int64_t dense[4] = {s->n_seqs, rows + more, s->kv_heads, s->d};
    const bool is_dense = c.x.ndim == 4 && !s->page;
    c.y = nsa_array(x, false, s->dtype, is_dense ? 4 : 3, is_dense ? dense : jagged, s->gap);
    if (!is_dense && test_random_int(r, 0, 1))
        c.seq_offsets_y =
            nsa_array(x, false, index[test_random_int(r, 0, 1)], 1, &(int64_t){s->n_seqs + 1}, 0);
    const int64_t weights[3] = {c.block, s->kv_heads, s->d};
    if (c.mode == PTL_NSA_WEIGHTED) {
        c.w = nsa_array(x, true, test_random_int(r, 0, 1) ? PTL_F32 : s->dtype, 2, weights, s->gap);
        for (int64_t i = 0; i < c.block; i++)
            nsa_fill_row(s, NSA_GATES, 0, i, 0, &c.w, i * c.w.stride[0]);
    }
    if (test_random_int(r, 0, 1)) {
        c.pe =
            nsa_array(x, true, test_random_int(r, 0, 1) ? PTL_F32 : s->dtype, 3, weights, s->gap);
        for (int64_t i = 0; i < c.block; i++)
            for (int64_t h = 0; h < s->kv_heads; h++)
                nsa_fill_row(s, NSA_V, 0, i, h, &c.pe, i * c.pe.stride[0] + h * c.pe.stride[1]);
    }
    return c;
}

/* A copy of an output, with memory of its own. */
static struct ptl_tensor twin_of(const struct ptl_tensor *t) {
    struct ptl_tensor twin = *t;
    if (!t->data) return twin;
    twin.data = test_alloc((size_t)tensor_span(t) * ptl_dtype_bytes(t->dtype));
    return twin;
}

/* Sums in fp32 and one rounding; what the reference does not write must be as it was. */
static void compare(const struct ptl_nsa_compress_params *c, const struct ptl_tensor *expected,
                    const char *what) {
    const double bound = 1e-6 * (double)c->block;
    for (int64_t i = tensor_span(&c->y) - 1; i >= 0; i--) {
        const double got = ref_read(c->y.dtype, c->y.data, i);
        const double e = ref_read(c->y.dtype, expected->data, i);
        if (isnan(e) ? isnan(got) : fabs(got - e) <= bound + 2.0 * hstu_unit(c->y.dtype) * fabs(e))
            continue;
        FAIL("%s: element %d of y is %.9g, expected %.9g", what, (int)i, got, e);
        return;
    }
}

static void check_compress(struct nsa_problem *x, struct test_random *r) {
    struct ptl_nsa_compress_params c = arguments(x, r), by_reference = c;
    const struct hstu_variant *v;
    struct ptl_tensor first = twin_of(&c.y);
    const size_t bytes = (size_t)tensor_span(&c.y) * ptl_dtype_bytes(c.y.dtype);
    by_reference.y = twin_of(&c.y);
    by_reference.seq_offsets_y = twin_of(&c.seq_offsets_y);
    nsa_protect(x);
    tensor_wipe(&by_reference.y);
    ref_nsa_compress(&by_reference);
    for (int i = 0; (v = hstu_variant(i)) != NULL && !test_case_failed(); i++) {
        tensor_wipe(&c.y);
        const enum ptl_status status = ptl_nsa_compress(v->ctx, &c);
        if (status != PTL_OK) {
            FAIL("%s: %s: %s", v->name, ptl_status_name(status), ptl_message());
            break;
        }
        if (v->first) {
            compare(&c, &by_reference.y, v->name);
            memcpy(first.data, c.y.data, bytes);
        } else if (memcmp(first.data, c.y.data, bytes) != 0) {
            FAIL("%s: not the bits of serial", v->name);
        }
        for (int b = 0; c.seq_offsets_y.data && b <= x->spec.n_seqs; b++)
            if (ref_index(&c.seq_offsets_y, b) != ref_index(&by_reference.seq_offsets_y, b))
                FAIL("%s: seq_offsets_y[%d] is %d", v->name, b,
                     (int)ref_index(&c.seq_offsets_y, b));
    }
    free(first.data);
    free(by_reference.y.data);
    free(by_reference.seq_offsets_y.data);
}

static void random_problems(void) {
    for (uint64_t seed = 1; seed <= (test_quick() ? 20 : 400); seed++) {
        struct nsa_spec s;
        struct nsa_problem x;
        struct test_random r = {seed};
        nsa_spec_random(&s, seed, 90);
        if (seed % 5 == 0) s.o.block = s.o.stride * test_random_int(&r, 6, 16);
        test_case("%s", nsa_spec_text(&s));
        nsa_create(&x, &s);
        check_compress(&x, &r);
        nsa_destroy(&x);
    }
}

static void head_sizes(void) {
    for (int64_t d = 1; d <= 512; d += d < 40 ? 1 : 59) {
        struct nsa_spec s;
        struct nsa_problem x;
        struct test_random r = {(uint64_t)d};
        nsa_spec_init(&s);
        s.d = d;
        s.dtype = (enum ptl_dtype)(PTL_F32 + d % 3);
        test_case("%s", nsa_spec_text(&s));
        nsa_create(&x, &s);
        check_compress(&x, &r);
        nsa_destroy(&x);
    }
}

/* The sizes of the paper, and enough of it for several threads. */
static void default_sizes(void) {
    struct nsa_spec s;
    struct nsa_problem x;
    for (int n = 0; n < (test_quick() ? 1 : 6); n++) {
        struct test_random r = {(uint64_t)n};
        nsa_spec_init(&s);
        ptl_nsa_params_init(&s.o);
        s.dtype = (enum ptl_dtype)(PTL_F32 + n % 3);
        s.page = n % 2 ? 64 : 0;
        s.d = 192;
        s.kv_heads = 4;
        nsa_spec_length(&s, 2000 + n, 1);
        test_case("%s", nsa_spec_text(&s));
        nsa_create(&x, &s);
        check_compress(&x, &r);
        nsa_destroy(&x);
    }
}

static const struct test tests[] = {
    {"random_problems", random_problems},
    {"head_sizes", head_sizes},
    {"default_sizes", default_sizes},
};
TEST_SUITE(nsa_compression_suite, "nsa/compression", tests);
