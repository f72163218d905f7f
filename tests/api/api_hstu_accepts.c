/* Calls of ptl_hstu_forward that look odd and are right: nothing to do, absent arrays, views into
 * one buffer, junk where nothing is read. */
#include <math.h>
#include <string.h>

#include "api_hstu_fixture.h"
#include "api_suites.h"

static struct api_hstu x;
static struct ptl_hstu_params *const p = &x.p;

/* The call succeeds and writes nothing. */
static void nothing_happens(void) {
    memset(x.out, 0xa5, sizeof x.out);
    const struct api_hstu before = x;
    api_accepted(&x);
    if (memcmp(&before, &x, sizeof before) != 0) FAIL("something was written");
}

/* The call succeeds and writes finite numbers to the first n floats of out and nothing behind
 * them. */
static void writes(int n) {
    memset(x.out, 0xff, sizeof x.out);
    api_accepted(&x);
    for (int i = 0; i < 256; i++)
        if ((i < n) != (isfinite(x.out[i]) != 0)) {
            FAIL("out[%d] is %g", i, (double)x.out[i]);
            return;
        }
}

static void row_2_no_sequences(void) {
    test_case("jagged, offsets of length 1");
    api_hstu_jagged(&x);
    p->seq_offsets_q.shape[0] = 1;
    p->q.shape[0] = p->k.shape[0] = p->v.shape[0] = p->out.shape[0] = 0;
    nothing_happens();
    test_case("jagged, offsets of length 1, all rows are padding");
    api_hstu_jagged(&x);
    p->seq_offsets_q.shape[0] = 1;
    writes(100);
    test_case("dense, B = 0");
    api_hstu_dense(&x);
    p->q.shape[0] = p->k.shape[0] = p->v.shape[0] = p->out.shape[0] = 0;
    nothing_happens();
}

static void no_rows(void) {
    test_case("jagged, T = 0, data NULL");
    api_hstu_jagged(&x);
    x.offsets_q[1] = x.offsets_q[2] = 0;
    p->q.shape[0] = p->k.shape[0] = p->v.shape[0] = p->out.shape[0] = 0;
    p->q.data = p->k.data = p->v.data = p->out.data = NULL;
    nothing_happens();
    test_case("dense, Sq = 0");
    api_hstu_dense(&x);
    p->q.shape[1] = p->out.shape[1] = 0;
    nothing_happens();
    test_case("dense, Sk = 0, no mask: rows of 0");
    api_hstu_dense(&x);
    p->k.shape[1] = p->v.shape[1] = 0;
    p->k.data = p->v.data = NULL;
    p->window_right = -1;
    writes(120);
    for (int i = 0; i < 120; i++)
        if (x.out[i] != 0.0f) FAIL("out[%d] is %g, expected 0", i, (double)x.out[i]);
    test_case("jagged, no queries, keys without data");
    api_hstu_jagged(&x);
    x.offsets_q[1] = x.offsets_q[2] = 0;
    p->q.shape[0] = p->out.shape[0] = 0;
    api_give_offsets_k(&x);
    nothing_happens();
}

static void targets_beyond_keys_of_empty_queries(void) {
    api_hstu_jagged(&x);
    x.offsets_q[1] = 0; /* no query in sequence 0 */
    x.offsets_q[2] = 2;
    api_give_offsets_k(&x);
    api_give_targets(&x, 100, 2);
    api_give_contexts(&x, 100, 100);
    writes(100); /* 40 of them computed, the rest padding */
}

static void group_size_without_targets(void) {
    api_hstu_jagged(&x);
    p->target_group_size = 0;
    writes(100);
}

static void huge_options(void) {
    test_case("windows");
    api_hstu_jagged(&x);
    p->window_left = p->window_right = INT64_MAX;
    writes(100);
    test_case("contexts, groups, min_full");
    api_hstu_jagged(&x);
    api_give_contexts(&x, INT64_MAX, INT64_MAX);
    api_give_targets(&x, 3, 1);
    p->target_group_size = p->min_full_attn_seq_len = INT64_MAX;
    p->window_left = INT64_MAX;
    writes(100);
    test_case("scaling_seqlen, max_seqlen");
    api_hstu_jagged(&x);
    p->scaling_seqlen = p->max_seqlen_q = p->max_seqlen_k = INT64_MAX;
    writes(100);
}

static void int32_indices(void) {
    api_hstu_jagged(&x);
    p->seq_offsets_q = ptl_tensor_contiguous(x.narrow, PTL_I32, 1, (const int64_t[]){3});
    p->seq_offsets_k = ptl_tensor_contiguous(x.narrow, PTL_I32, 1, (const int64_t[]){3});
    p->num_contexts = ptl_tensor_contiguous(x.narrow + 1, PTL_I32, 0, NULL);
    writes(100);
}

static void strides_of_extent_one(void) {
    api_hstu_jagged(&x);
    p->q = ptl_tensor_contiguous(x.q, PTL_F32, 3, (const int64_t[]){5, 4, 1});
    p->k = ptl_tensor_contiguous(x.k, PTL_F32, 3, (const int64_t[]){5, 1, 1});
    p->v = ptl_tensor_contiguous(x.v, PTL_F32, 3, (const int64_t[]){5, 1, 5});
    p->q.stride[2] = 77; /* of no consequence: the extent is 1 */
    p->k.stride[1] = p->k.stride[2] = -3;
    writes(100);
}

static void broadcast_strides(void) {
    api_hstu_jagged(&x);
    p->q.stride[0] = p->k.stride[0] = p->v.stride[0] = 0; /* the same row for all */
    p->k.stride[1] = 0;
    writes(100);
    test_case("negative strides");
    api_hstu_jagged(&x);
    p->k.data = x.k + 4 * 6;
    p->k.stride[0] = -6;
    writes(100);
}

/* Rows of 40: [out 20 | q 12 | unused 8], and of 20: [v 10 | k 6 | unused 4]. */
static void slices_of_one_buffer(void) {
    static float buffer[5 * 40];
    api_hstu_jagged(&x);
    p->out.data = buffer;
    p->q.data = buffer + 20;
    p->out.stride[0] = p->q.stride[0] = 40;
    api_accepted(&x);
    test_case("dense, batches of whole rows");
    api_hstu_dense(&x);
    p->out.data = x.out;
    p->q.data = x.out + 20;
    p->out.stride[1] = p->q.stride[1] = 40;
    p->out.stride[0] = p->q.stride[0] = 120;
    api_accepted(&x);
}

static void max_seqlen_of_dense(void) {
    test_case("larger than the arrays");
    api_hstu_dense(&x);
    p->max_seqlen_q = p->max_seqlen_k = 1000;
    writes(120);
    test_case("smaller than the arrays, but not than the sequences");
    api_hstu_dense(&x);
    api_give_used(&x, 2, 1, 2, 2);
    p->max_seqlen_q = p->max_seqlen_k = 2;
    writes(120);
}

static void ignored_scale_in_padding(void) {
    api_hstu_jagged(&x);
    api_give_scale(&x);
    api_give_used(&x, 1, 1, 3, 2);
    x.scale[1] = x.scale[2] = x.scale[4] = NAN;
    writes(100);
}

static const struct test tests[] = {
    {"row_2_no_sequences", row_2_no_sequences},
    {"no_rows", no_rows},
    {"targets_beyond_keys_of_empty_queries", targets_beyond_keys_of_empty_queries},
    {"group_size_without_targets", group_size_without_targets},
    {"huge_options", huge_options},
    {"int32_indices", int32_indices},
    {"strides_of_extent_one", strides_of_extent_one},
    {"broadcast_and_negative_strides", broadcast_strides},
    {"slices_of_one_buffer", slices_of_one_buffer},
    {"max_seqlen_of_dense", max_seqlen_of_dense},
    {"nan_scale_in_padding", ignored_scale_in_padding},
};
TEST_SUITE(api_hstu_accepts_suite, "api/hstu", tests);
