/* Offsets above 2^31 elements, on every axis: small problems laid out in sparse mappings. The
 * numbers must be those of the compact problem, bit for bit. */
#include <string.h>

#include "nsa_compare.h"
#include "nsa_suites.h"
#include "ops/sparse.h"
#include "ops/tensor_check.h"

static const int64_t big = (int64_t)1 << 31;

/* The same elements in both. */
static bool same_elements(const struct ptl_tensor *a, const struct ptl_tensor *b) {
    const int64_t bytes = (int64_t)ptl_dtype_bytes(a->dtype);
    for (int64_t i = 0; i < tensor_elements(a); i++)
        if (memcmp((char *)a->data + tensor_offset(a, i) * bytes,
                   (char *)b->data + tensor_offset(b, i) * bytes, (size_t)bytes) != 0)
            return false;
    return true;
}

/* Arrays of three and four axes are moved apart, the others stay. */
static void spread(struct sparse *s, struct ptl_tensor *t, const int64_t stride[3]) {
    if (t->data && t->ndim >= 3 && t->dtype <= PTL_BF16) *t = sparse_spread(s, t, stride);
}

static void check_far(const struct nsa_spec *spec, const int64_t stride[3]) {
    struct nsa_problem x;
    struct sparse s = {.n = 0};
    const struct hstu_variant *v;
    test_case("%s strides %lld %lld %lld", nsa_spec_text(spec), (long long)stride[0],
              (long long)stride[1], (long long)stride[2]);
    nsa_create(&x, spec);
    struct ptl_nsa_params far = x.p;
    struct ptl_tensor *const t[] = {&far.q,       &far.k,     &far.v,         &far.kc,
                                    &far.vc,      &far.out,   &far.out_cmp,   &far.out_slc,
                                    &far.out_swa, &far.gates, &far.importance};
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) spread(&s, t[i], stride);
    if (s.failed) test_skip("no room for sparse mappings");
    for (int i = 0; !s.failed && (v = hstu_variant(i)) != NULL; i++) {
        if (ptl_nsa_forward(v->ctx, &x.p) != PTL_OK || ptl_nsa_forward(v->ctx, &far) != PTL_OK) {
            FAIL("%s: %s", v->name, ptl_message());
            break;
        }
        for (int o = 0; o < NSA_IDX; o++)
            if (!same_elements(nsa_output(&x.p, o), nsa_output(&far, o)))
                FAIL("%s: %s: not the bits of the compact problem", v->name, nsa_output_name(o));
    }
    sparse_free(&s);
    nsa_destroy(&x);
}

/* Emulators keep a table of all pages, and sanitizers a shadow of them. */
static bool skipped(void) {
    if (test_quick()) test_skip("large mappings, not in a quick run");
    return test_quick();
}

static void far_rows(void) {
    struct nsa_spec s;
    if (skipped()) return;
    nsa_spec_init(&s);
    nsa_spec_length(&s, 20, 9);
    check_far(&s, (const int64_t[]){big / 8 + 1, 16, 0});
    s.kv_heads = 2;
    check_far(&s, (const int64_t[]){9, big + 1, 0}); /* heads */
}

static void far_batches(void) {
    struct nsa_spec s;
    if (skipped()) return;
    nsa_spec_init(&s);
    s.layout = NSA_DENSE;
    s.n_seqs = 3;
    for (int b = 0; b < 3; b++) s.seq[b] = (struct nsa_seq){b, 20, 5};
    check_far(&s, (const int64_t[]){big * 2 + 1, 32, 16});
    check_far(&s, (const int64_t[]){big * 2 + 1, big / 16, 16});
}

static void far_pages(void) {
    struct nsa_spec s;
    if (skipped()) return;
    nsa_spec_init(&s);
    s.layout = NSA_DENSE; /* of the rows; four axes as the pages */
    s.page = 7;
    s.page_c = 3;
    nsa_spec_length(&s, 20, 5);
    check_far(&s, (const int64_t[]){big + 1, 32, 16});
    check_far(&s, (const int64_t[]){big + 1, big / 8, 16});
}

/* x and y of ptl_nsa_compress with rows and heads apart. */
static void far_blocks(void) {
    struct nsa_spec s;
    struct nsa_problem x;
    struct sparse memory = {.n = 0};
    const struct hstu_variant *v;
    if (skipped()) return;
    nsa_spec_init(&s);
    nsa_create(&x, &s);
    struct ptl_nsa_compress_params c, far;
    ptl_nsa_compress_params_init(&c);
    c.block = s.o.block;
    c.stride = s.o.stride;
    c.x = x.p.k;
    c.y = nsa_array(&x, false, s.dtype, 3, (const int64_t[]){19, s.kv_heads, s.d}, 0);
    c.seq_offsets = x.p.seq_offsets_q;
    far = c;
    spread(&memory, &far.x, (const int64_t[]){big / 8 + 1, 16, 0});
    spread(&memory, &far.y, (const int64_t[]){big / 4 + 1, 16, 0});
    if (memory.failed) test_skip("no room for sparse mappings");
    for (int i = 0; !memory.failed && (v = hstu_variant(i)) != NULL; i++) {
        if (ptl_nsa_compress(v->ctx, &c) != PTL_OK || ptl_nsa_compress(v->ctx, &far) != PTL_OK)
            FAIL("%s: %s", v->name, ptl_message());
        else if (!same_elements(&c.y, &far.y)) FAIL("%s: not the same bits", v->name);
    }
    sparse_free(&memory);
    nsa_destroy(&x);
}

static const struct test tests[] = {
    {"far_rows", far_rows},
    {"far_batches", far_batches},
    {"far_pages", far_pages},
    {"far_blocks", far_blocks},
};
TEST_SUITE(nsa_huge_suite, "nsa/huge", tests);
