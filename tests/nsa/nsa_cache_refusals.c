/* Every refusal of ptl_nsa_compress, ptl_nsa_append and ptl_nsa_decode: the status, a sentence that
 * begins with the argument, nothing written. */
#include <math.h>
#include <string.h>

#include "nsa_compare.h"
#include "nsa_suites.h"

/* Two sequences: 3 tokens become 6, 2 become 5, in 4 pages of 3; l = 2, d = 1, so 2 of 5 blocks
 * were there, and 1 of 4, in 4 pages of 3. H = 2, D = 3, Dv = 2. */
enum { T = 6, H = 2, D = 3, DV = 2, PAGES = 4, PAGE = 3, BLOCK = 2 };

static struct {
    float k[T * H * D], v[T * H * DV], w[BLOCK * H], pe[BLOCK * H * D];
    int64_t old[2], now[2], offsets[3], table[4], table_c[4], slots[2 * 3], lengths[2];
    float q[4 * D], gates[4 * 3], x[5 * H * D];
    int64_t offsets_q[3], offsets_x[3];
    struct {
        float k[PAGES * PAGE * H * D], v[PAGES * PAGE * H * DV];
        float kc[PAGES * PAGE * H * D], vc[PAGES * PAGE * H * DV];
        float y[9 * H * D], out[4 * DV];
        int64_t offsets_y[3];
    } written;
} m;

static struct ptl_nsa_compress_params c;
static struct ptl_nsa_append_params a;
static struct ptl_nsa_params p;
static struct ptl_context *ctx;

static struct ptl_tensor jagged(float *x, int64_t rows, int64_t d) {
    return ptl_tensor_contiguous(x, PTL_F32, 3, (const int64_t[]){rows, H, d});
}

static struct ptl_tensor pages(float *x, int64_t n, int64_t page, int64_t d) {
    return ptl_tensor_contiguous(x, PTL_F32, 4, (const int64_t[]){n, page, H, d});
}

static struct ptl_tensor numbers(int64_t *x, int64_t n) {
    return ptl_tensor_contiguous(x, PTL_I64, 1, &n);
}

static struct ptl_tensor table(int64_t *x, int64_t width) {
    return ptl_tensor_contiguous(x, PTL_I64, 2, (const int64_t[]){2, width});
}

static void begin(void) {
    static const int64_t offsets[3] = {0, 3, 6}, slots[6] = {2, 3, 4, 7, 8, -1};
    memset(&m, 0, sizeof m);
    memset(&m.written, 0xa5, sizeof m.written);
    memcpy(m.offsets, offsets, sizeof offsets);
    memcpy(m.slots, slots, sizeof slots);
    m.old[0] = m.offsets_x[1] = 3;
    m.old[1] = 2;
    m.now[0] = m.lengths[0] = 6;
    m.now[1] = m.lengths[1] = m.offsets_x[2] = 5;
    m.offsets_q[1] = 1;
    m.offsets_q[2] = 2;
    for (int i = 0; i < 4; i++) m.table[i] = m.table_c[i] = 3 - i;
    ctx = hstu_variant(0)->ctx;

    ptl_nsa_compress_params_init(&c);
    c.block = BLOCK;
    c.stride = 1;
    c.x = jagged(m.x, 5, D);
    c.seq_offsets = numbers(m.offsets_x, 3);
    c.y = jagged(m.written.y, 9, D);
    c.seq_offsets_y = numbers(m.written.offsets_y, 3);

    ptl_nsa_append_params_init(&a);
    a.block = BLOCK;
    a.stride = 1;
    a.seqlens_old = numbers(m.old, 2);
    a.seqlens_k = numbers(m.now, 2);
    a.k = jagged(m.k, T, D);
    a.v = jagged(m.v, T, DV);
    a.seq_offsets = numbers(m.offsets, 3);
    a.k_pages = pages(m.written.k, PAGES, PAGE, D);
    a.v_pages = pages(m.written.v, PAGES, PAGE, DV);
    a.page_table = table(m.table, 2);
    a.kc_pages = pages(m.written.kc, PAGES, PAGE, D);
    a.vc_pages = pages(m.written.vc, PAGES, PAGE, DV);
    a.page_table_c = table(m.table_c, 2);

    ptl_nsa_params_init(&p);
    p.block = BLOCK;
    p.stride = 1;
    p.select_block = 2;
    p.q = jagged(m.q, 2, D);
    p.gates = jagged(m.gates, 2, 3);
    p.seq_offsets_q = numbers(m.offsets_q, 3);
    p.seqlens_k = numbers(m.now, 2);
    p.k = a.k_pages;
    p.v = a.v_pages;
    p.page_table = a.page_table;
    p.kc = a.kc_pages;
    p.vc = a.vc_pages;
    p.page_table_c = a.page_table_c;
    p.out = jagged(m.written.out, 2, DV);
}

static void by_slots(void) {
    a.page_table_c.data = NULL;
    a.slots = table(m.slots, 3);
}

/* Rings in the memory of the pages. */
static void by_rings(void) {
    a.k_pages.data = a.v_pages.data = a.page_table.data = NULL;
    a.k_ring = pages(m.written.k, 2, BLOCK, D);
    a.v_ring = pages(m.written.v, 2, BLOCK, DV);
}

/* x in pages. */
static void paged_x(void) {
    c.x = pages(m.k, 1, PAGE, D);
    c.seq_offsets.data = NULL;
    c.page_table = table(m.table, 2);
    memset(m.table, 0, sizeof m.table);
    c.seqlens = numbers(m.lengths, 2);
}

static void weighted(void) {
    c.mode = a.mode = PTL_NSA_WEIGHTED;
    c.w = a.w_k = a.w_v = ptl_tensor_contiguous(m.w, PTL_F32, 2, (const int64_t[]){BLOCK, H});
    c.pe = a.pe_k = ptl_tensor_contiguous(m.pe, PTL_F32, 3, (const int64_t[]){BLOCK, H, D});
}

static enum ptl_status compress(void) {
    return ptl_nsa_compress(ctx, &c);
}
static enum ptl_status append(void) {
    return ptl_nsa_append(ctx, &a);
}
static enum ptl_status decode(void) {
    return ptl_nsa_decode(ctx, &a, &p);
}

static bool untouched(void) {
    const unsigned char *bytes = (const unsigned char *)&m.written;
    for (size_t i = 0; i < sizeof m.written; i++)
        if (bytes[i] != 0xa5) return false;
    return true;
}

/* A case of its own; afterwards the arguments are whole again. */
static void refused(enum ptl_status got, enum ptl_status status, const char *argument) {
    test_case("%s of %s", ptl_status_name(status), argument);
    if (got != status)
        FAIL("%s (%s), expected %s", ptl_status_name(got), got == PTL_OK ? "" : ptl_message(),
             ptl_status_name(status));
    else if (!nsa_says(argument)) FAIL("it says '%s'", ptl_message());
    if (!untouched()) FAIL("something was written");
    begin();
}

static void accepted(const char *what, enum ptl_status got) {
    test_case("%s", what);
    if (got != PTL_OK) FAIL("%s: %s", ptl_status_name(got), ptl_message());
    begin();
}

static void whole(void) {
    begin();
    accepted("compress", compress());
    weighted();
    accepted("compress with weights", compress());
    paged_x();
    accepted("compress pages", compress());
    accepted("append", append());
    weighted();
    accepted("append with weights", append());
    by_slots();
    accepted("append to slots", append());
    by_rings();
    accepted("append to rings", append());
    a.k.data = a.v.data = a.seq_offsets.data = NULL;
    accepted("tokens are in the pages", append());
    a.kc_pages.data = a.vc_pages.data = a.page_table_c.data = NULL;
    accepted("tokens alone", append());
    a.v.data = a.v_pages.data = a.vc_pages.data = NULL;
    accepted("keys alone", append());
    a.k.data = a.k_pages.data = a.kc_pages.data = NULL;
    accepted("values alone", append());
    accepted("decode", decode());
    m.old[0] = 6;
    m.old[1] = 5;
    a.k = jagged(m.k, 0, D);
    a.v = jagged(m.v, 0, DV);
    m.offsets[1] = m.offsets[2] = 0;
    test_case("no new tokens");
    CHECK(append() == PTL_OK);
    CHECK(untouched());
    begin();
    a.seqlens_old.shape[0] = a.seqlens_k.shape[0] = a.page_table.shape[0] = 0;
    a.page_table_c.shape[0] = 0;
    a.seq_offsets.shape[0] = 1;
    a.k = jagged(m.k, 0, D);
    a.v = jagged(m.v, 0, DV);
    accepted("append for no sequences", append());
    c.seq_offsets.shape[0] = c.seq_offsets_y.shape[0] = 1;
    c.x = jagged(NULL, 0, D);
    c.y = jagged(NULL, 0, D);
    accepted("compress no sequences", compress());
}

static void missing(void) {
    begin();
    refused(ptl_nsa_compress(NULL, &c), PTL_ERR_NULL, "ctx");
    refused(ptl_nsa_compress(ctx, NULL), PTL_ERR_NULL, "params");
    refused(ptl_nsa_append(NULL, &a), PTL_ERR_NULL, "ctx");
    refused(ptl_nsa_append(ctx, NULL), PTL_ERR_NULL, "params");
    refused(ptl_nsa_decode(NULL, &a, &p), PTL_ERR_NULL, "ctx");
    refused(ptl_nsa_decode(ctx, NULL, &p), PTL_ERR_NULL, "params");
    refused(ptl_nsa_decode(ctx, &a, NULL), PTL_ERR_NULL, "params");
    c.x.data = NULL;
    refused(compress(), PTL_ERR_NULL, "x");
    c.y.data = NULL;
    refused(compress(), PTL_ERR_NULL, "y");
    c.seq_offsets.data = NULL;
    refused(compress(), PTL_ERR_NULL, "seq_offsets");
    weighted();
    c.w.data = NULL;
    refused(compress(), PTL_ERR_NULL, "w");
    paged_x();
    c.seqlens.data = NULL;
    refused(compress(), PTL_ERR_NULL, "seqlens");
    a.seqlens_old.data = NULL;
    refused(append(), PTL_ERR_NULL, "seqlens_old");
    a.seqlens_k.data = NULL;
    refused(append(), PTL_ERR_NULL, "seqlens_k");
    a.seq_offsets.data = NULL;
    refused(append(), PTL_ERR_NULL, "seq_offsets");
    a.page_table.data = NULL;
    refused(append(), PTL_ERR_NULL, "page_table");
    a.page_table_c.data = NULL;
    refused(append(), PTL_ERR_NULL, "page_table_c");
    a.k_pages.data = NULL;
    refused(append(), PTL_ERR_NULL, "k_pages");
    a.k_pages.data = a.v_pages.data = NULL;
    refused(append(), PTL_ERR_NULL, "k_pages");
    by_rings();
    a.v.data = NULL;
    refused(append(), PTL_ERR_NULL, "v");
    weighted();
    a.w_v.data = NULL;
    refused(append(), PTL_ERR_NULL, "w_v");
}

static void types_and_layouts(void) {
    begin();
    c.x.dtype = PTL_I32;
    refused(compress(), PTL_ERR_DTYPE, "x");
    c.y.dtype = PTL_F16;
    refused(compress(), PTL_ERR_DTYPE, "y");
    weighted();
    c.w.dtype = PTL_F16;
    refused(compress(), PTL_ERR_DTYPE, "w");
    weighted();
    c.pe.dtype = PTL_BF16;
    refused(compress(), PTL_ERR_DTYPE, "pe");
    c.seq_offsets.dtype = PTL_F32;
    refused(compress(), PTL_ERR_DTYPE, "seq_offsets");
    c.seq_offsets_y.dtype = PTL_U8;
    refused(compress(), PTL_ERR_DTYPE, "seq_offsets_y");
    paged_x();
    c.page_table.dtype = PTL_F32;
    refused(compress(), PTL_ERR_DTYPE, "page_table");
    a.k.dtype = PTL_F16;
    refused(append(), PTL_ERR_DTYPE, "k");
    a.v_pages.dtype = PTL_I64;
    refused(append(), PTL_ERR_DTYPE, "v_pages");
    a.kc_pages.dtype = PTL_BF16;
    refused(append(), PTL_ERR_DTYPE, "kc_pages");
    a.page_table.dtype = PTL_F32;
    refused(append(), PTL_ERR_DTYPE, "page_table");
    by_slots();
    a.slots.dtype = PTL_F32;
    refused(append(), PTL_ERR_DTYPE, "slots");
    a.seqlens_old.dtype = PTL_F16;
    refused(append(), PTL_ERR_DTYPE, "seqlens_old");

    c.x.stride[2] = 2;
    refused(compress(), PTL_ERR_LAYOUT, "x");
    c.y.stride[2] = 2;
    refused(compress(), PTL_ERR_LAYOUT, "y");
    a.v.stride[2] = 3;
    refused(append(), PTL_ERR_LAYOUT, "v");
    a.k_pages.stride[3] = 2;
    refused(append(), PTL_ERR_LAYOUT, "k_pages");
    a.vc_pages.stride[3] = 2;
    refused(append(), PTL_ERR_LAYOUT, "vc_pages");
}

static void shapes(void) {
    begin();
    c.x = jagged(m.x, 5, 513);
    refused(compress(), PTL_ERR_SHAPE, "x");
    c.x.ndim = 2;
    refused(compress(), PTL_ERR_SHAPE, "x");
    c.y = jagged(m.written.y, 5, D); /* of 2 + 1 */
    accepted("more rows than blocks", compress());
    c.y = jagged(m.written.y, 2, D);
    refused(compress(), PTL_ERR_SHAPE, "y");
    c.y = jagged(m.written.y, 9, D - 1);
    refused(compress(), PTL_ERR_SHAPE, "y");
    c.y.shape[1] = 1;
    refused(compress(), PTL_ERR_SHAPE, "y");
    c.seq_offsets_y.shape[0] = 2;
    refused(compress(), PTL_ERR_SHAPE, "seq_offsets_y");
    weighted();
    c.w.shape[0] = 1;
    refused(compress(), PTL_ERR_SHAPE, "w");
    weighted();
    c.w.shape[1] = 1;
    refused(compress(), PTL_ERR_SHAPE, "w");
    weighted();
    c.pe.shape[2] = D - 1;
    refused(compress(), PTL_ERR_SHAPE, "pe");
    a.k.shape[2] = D - 1;
    refused(append(), PTL_ERR_SHAPE, "k");
    a.v.shape[1] = 1;
    refused(append(), PTL_ERR_SHAPE, "v");
    a.kc_pages.shape[3] = D - 1;
    refused(append(), PTL_ERR_SHAPE, "kc_pages");
    a.seqlens_old.shape[0] = 1;
    refused(append(), PTL_ERR_SHAPE, "seqlens_old");
    a.seq_offsets.shape[0] = 2;
    refused(append(), PTL_ERR_SHAPE, "seq_offsets");
    a.page_table.shape[0] = 1;
    refused(append(), PTL_ERR_SHAPE, "page_table");
    by_rings();
    a.k_ring.shape[1] = 1;
    refused(append(), PTL_ERR_SHAPE, "k_ring");
    by_rings();
    a.v_ring.shape[0] = 1;
    refused(append(), PTL_ERR_SHAPE, "v_ring");
}

static void numbers_out_of_range(void) {
    begin();
    c.block = 0;
    refused(compress(), PTL_ERR_PARAM, "block");
    c.stride = 0;
    refused(compress(), PTL_ERR_PARAM, "stride");
    c.block = 3;
    c.stride = 2;
    refused(compress(), PTL_ERR_PARAM, "stride");
    c.mode = (enum ptl_nsa_mode)2;
    refused(compress(), PTL_ERR_PARAM, "mode");
    weighted();
    c.mode = PTL_NSA_MEAN;
    refused(compress(), PTL_ERR_PARAM, "w");
    c.struct_size = 1;
    refused(compress(), PTL_ERR_PARAM, "params.struct_size");
    a.block = -1;
    refused(append(), PTL_ERR_PARAM, "block");
    a.stride = 4;
    refused(append(), PTL_ERR_PARAM, "stride");
    a.mode = (enum ptl_nsa_mode) - 1;
    refused(append(), PTL_ERR_PARAM, "mode");
    by_slots();
    a.page_table_c = table(m.table_c, 2);
    refused(append(), PTL_ERR_PARAM, "slots");
    by_rings();
    a.k_pages = pages(m.written.k, PAGES, PAGE, D);
    refused(append(), PTL_ERR_PARAM, "k_ring");
    a.struct_size = 1;
    refused(append(), PTL_ERR_PARAM, "params.struct_size");
}

static void lengths_tables_and_slots(void) {
    begin();
    m.offsets_x[0] = 1;
    refused(compress(), PTL_ERR_SEQLEN, "seq_offsets");
    m.offsets_x[1] = -1;
    refused(compress(), PTL_ERR_SEQLEN, "seq_offsets");
    m.offsets_x[2] = 6;
    refused(compress(), PTL_ERR_SEQLEN, "seq_offsets");
    c.seqlens = numbers(m.lengths, 2); /* 6 of 3 rows */
    refused(compress(), PTL_ERR_SEQLEN, "seqlens");
    m.old[0] = 7;
    refused(append(), PTL_ERR_SEQLEN, "seqlens_k");
    m.old[0] = -1;
    refused(append(), PTL_ERR_SEQLEN, "seqlens_k");
    m.offsets[1] = 2; /* of 3 new tokens */
    refused(append(), PTL_ERR_SEQLEN, "k");
    m.offsets[0] = 1;
    refused(append(), PTL_ERR_SEQLEN, "seq_offsets");
    a.k = ptl_tensor_contiguous(m.k, PTL_F32, 4, (const int64_t[]){2, 2, H, D});
    refused(append(), PTL_ERR_SEQLEN, "k");

    paged_x();
    m.table[1] = 1;
    refused(compress(), PTL_ERR_TABLE, "page_table");
    paged_x();
    m.lengths[0] = 7;
    refused(compress(), PTL_ERR_TABLE, "page_table");
    m.table[3] = PAGES;
    refused(append(), PTL_ERR_TABLE, "page_table");
    m.table[0] = -1;
    refused(append(), PTL_ERR_TABLE, "page_table");
    a.page_table = table(m.table, 1);
    refused(append(), PTL_ERR_TABLE, "page_table");
    m.table_c[1] = -1;
    refused(append(), PTL_ERR_TABLE, "page_table_c");
    a.page_table_c = table(m.table_c, 1);
    refused(append(), PTL_ERR_TABLE, "page_table_c");
    by_slots();
    m.slots[1] = PAGES * PAGE;
    refused(append(), PTL_ERR_TABLE, "slots");
    by_slots();
    m.slots[4] = -2;
    refused(append(), PTL_ERR_TABLE, "slots");
    by_slots();
    m.slots[4] = m.slots[0];
    refused(append(), PTL_ERR_TABLE, "slots");
    by_slots();
    a.slots = table(m.slots, 2);
    refused(append(), PTL_ERR_TABLE, "slots");
    by_slots();
    m.slots[0] = m.slots[1] = -1;
    accepted("-1 twice", append());
}

static void overlaps(void) {
    begin();
    c.y.data = m.x;
    refused(compress(), PTL_ERR_ALIAS, "y");
    weighted();
    c.y.data = m.w;
    refused(compress(), PTL_ERR_ALIAS, "y");
    c.y.stride[0] = 0;
    refused(compress(), PTL_ERR_ALIAS, "y");
    c.y.data = m.offsets_x;
    refused(compress(), PTL_ERR_ALIAS, "y");
    c.seq_offsets_y.data = m.written.y;
    refused(compress(), PTL_ERR_ALIAS, "seq_offsets_y");
    c.seq_offsets_y.data = m.offsets_x;
    refused(compress(), PTL_ERR_ALIAS, "seq_offsets_y");
    a.k_pages.data = m.k;
    refused(append(), PTL_ERR_ALIAS, "k_pages");
    a.v_pages.data = m.written.k;
    refused(append(), PTL_ERR_ALIAS, "v_pages");
    a.kc_pages.data = m.written.k;
    refused(append(), PTL_ERR_ALIAS, "kc_pages");
    a.vc_pages.stride[0] = 0;
    refused(append(), PTL_ERR_ALIAS, "vc_pages");
    a.k_pages.data = m.table;
    refused(append(), PTL_ERR_ALIAS, "k_pages");
}

static void sizes_beyond_64_bits(void) {
    begin();
    c.x.stride[0] = INT64_MAX / 2;
    refused(compress(), PTL_ERR_OVERFLOW, "x");
    a.k_pages.shape[0] = INT64_MAX / 2;
    refused(append(), PTL_ERR_OVERFLOW, "k_pages");
}

/* A step whose second half is wrong leaves the caches as they were. */
static void both_halves_of_a_step(void) {
    begin();
    p.gates.data = NULL;
    refused(decode(), PTL_ERR_NULL, "gates");
    p.topk = 0;
    refused(decode(), PTL_ERR_PARAM, "topk");
    p.out.data = m.written.k;
    refused(decode(), PTL_ERR_ALIAS, "out");
    m.offsets_q[1] = 3;
    refused(decode(), PTL_ERR_SEQLEN, "seq_offsets_q");
    p.out.data = m.k; /* the new tokens */
    refused(decode(), PTL_ERR_ALIAS, "out");
    p.q.data = m.written.k; /* append would write what forward reads */
    refused(decode(), PTL_ERR_ALIAS, "k_pages");
    a.k.data = NULL;
    a.k_pages.data = NULL;
    refused(decode(), PTL_ERR_NULL, "k_pages");
}

static const struct test tests[] = {
    {"whole", whole},
    {"missing", missing},
    {"types_and_layouts", types_and_layouts},
    {"shapes", shapes},
    {"numbers_out_of_range", numbers_out_of_range},
    {"lengths_tables_and_slots", lengths_tables_and_slots},
    {"overlaps", overlaps},
    {"sizes_beyond_64_bits", sizes_beyond_64_bits},
    {"both_halves_of_a_step", both_halves_of_a_step},
};
TEST_SUITE(nsa_cache_refusals_suite, "nsa/cache_refusals", tests);
