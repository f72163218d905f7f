/* The mask as the library walks it (row spans, what becomes of a tile) against the rule pair by
 * pair: exhaustively for short sequences, at random for tiles of long ones. No arithmetic here. */
#include <stdio.h>
#include <string.h>

#include "../../ref/hstu.h"
#include "hstu_check.h"
#include "op_suites.h"
#include "ops/hstu.h"

/* One sequence and its options, as the library and as the reference see them. */
struct mask_case {
    int64_t uq, uk, left, right, contexts, targets, group, full;
    int64_t offsets_q[2], offsets_k[2];
    struct ptl_hstu_problem problem;
    struct ptl_hstu_params params;
};

static void complete(struct mask_case *c) {
    static const int64_t two = 2;
    memset(&c->problem, 0, sizeof c->problem);
    ptl_hstu_params_init(&c->params);
    c->offsets_q[0] = c->offsets_k[0] = 0;
    c->offsets_q[1] = c->uq;
    c->offsets_k[1] = c->uk;
    c->problem.n_seqs = c->problem.n_q_heads = c->problem.n_k_heads = 1;
    c->problem.q_rows = c->uq;
    c->problem.k_rows = c->uk;
    c->problem.offsets_q = (struct ptl_index){c->offsets_q, true, 1};
    c->problem.offsets_k = (struct ptl_index){c->offsets_k, true, 1};
    c->problem.contexts = (struct ptl_index){&c->contexts, true, 0};
    c->problem.targets = (struct ptl_index){&c->targets, true, 0};
    c->problem.window_left = c->params.window_left = c->left;
    c->problem.window_right = c->params.window_right = c->right;
    c->problem.group = c->params.target_group_size = c->group;
    c->problem.min_full = c->params.min_full_attn_seq_len = c->full;
    c->params.q.ndim = 3;
    c->params.seq_offsets_q = ptl_tensor_contiguous(c->offsets_q, PTL_I64, 1, &two);
    c->params.seq_offsets_k = ptl_tensor_contiguous(c->offsets_k, PTL_I64, 1, &two);
    if (c->contexts) c->params.num_contexts = ptl_tensor_contiguous(&c->contexts, PTL_I64, 0, NULL);
    if (c->targets) c->params.num_targets = ptl_tensor_contiguous(&c->targets, PTL_I64, 0, NULL);
}

static void describe(const struct mask_case *c, const char *what, int64_t i, int64_t j) {
    FAIL("uq=%lld uk=%lld window=%lld,%lld contexts=%lld targets=%lld group=%lld min_full=%lld: %s "
         "row "
         "%lld column %lld",
         (long long)c->uq, (long long)c->uk, (long long)c->left, (long long)c->right,
         (long long)c->contexts, (long long)c->targets, (long long)c->group, (long long)c->full,
         what, (long long)i, (long long)j);
}

/* ---- Row spans ------------------------------------------------------------------------------- */

static void check_spans(struct mask_case *c) {
    complete(c);
    const struct ptl_hstu_seq seq = ptl_hstu_sequence(&c->problem, 0);
    for (int64_t i = 0; i < c->uq; i++) {
        const struct ptl_hstu_span s = ptl_hstu_row_span(&c->problem, &seq, i);
        if (s.end[1] > 0 && (s.end[0] == 0 || s.end[0] >= s.start[1]))
            describe(c, "spans touch or are out of order,", i, s.start[1]);
        for (int64_t j = 0; j < c->uk; j++) {
            const bool in_span =
                (j >= s.start[0] && j < s.end[0]) || (j >= s.start[1] && j < s.end[1]);
            if (in_span == ref_hstu_valid(&c->params, 0, 0, i, j)) continue;
            describe(c, in_span ? "in a span but not valid:" : "valid but in no span:", i, j);
            return;
        }
    }
}

static void spans_of_causal_rules(void) {
    const int longest = test_quick() ? 4 : 7;
    struct mask_case c = {.right = 0};
    for (c.uk = 0; c.uk <= longest; c.uk++)
        for (c.uq = 0; c.uq <= c.uk; c.uq++)
            for (c.left = -1; c.left <= c.uk; c.left++)
                for (c.contexts = 0; c.contexts <= c.uk + 1; c.contexts++)
                    for (c.targets = 0; c.targets <= c.uk; c.targets++)
                        for (c.group = 1; c.group <= (c.targets ? 3 : 1); c.group++)
                            for (c.full = 0; c.full <= (c.left < 0 ? 0 : 4); c.full++)
                                if (!test_case_failed()) check_spans(&c);
}

static void spans_of_windows(void) {
    const int longest = test_quick() ? 5 : 9;
    struct mask_case c = {.group = 1};
    for (c.uk = 0; c.uk <= longest; c.uk++)
        for (c.uq = 0; c.uq <= c.uk; c.uq++)
            for (c.left = -1; c.left <= c.uk; c.left++)
                for (c.right = -1; c.right <= c.uk; c.right++)
                    if (!test_case_failed()) check_spans(&c);
    c.left = c.right = -1; /* only no rule at all takes more queries than keys */
    for (c.uk = 0; c.uk <= longest; c.uk++)
        for (c.uq = 0; c.uq <= longest; c.uq++) check_spans(&c);
}

/* ---- Tiles ----------------------------------------------------------------------------------- */

static void check_tile(struct mask_case *c, int64_t row, int n_rows, int64_t begin, int64_t end) {
    static struct ptl_hstu_panel_mask panel;
    uint64_t bits[512];
    const struct ptl_hstu_seq seq = ptl_hstu_sequence(&c->problem, 0);
    int64_t from = begin, to = end;
    ptl_hstu_panel_mask_init(&panel, &c->problem, &seq, 0, row, n_rows);
    const enum ptl_tile_kind kind = ptl_hstu_tile_mask(&panel, &from, &to, bits);
    if (from < begin || to > end) describe(c, "a tile that grew,", row, from);
    for (int i = 0; i < n_rows; i++)
        for (int64_t j = begin; j < end; j++) {
            const bool valid = ref_hstu_valid(&c->params, 0, 0, row + i, j);
            if (valid && (j < panel.first || j >= panel.last))
                describe(c, "outside of first and last:", row + i, j);
            const bool taken = kind != PTL_TILE_SKIP && j >= from && j < to &&
                               (kind == PTL_TILE_FULL || (bits[j - from] >> i & 1));
            if (taken == valid) continue;
            describe(c, taken ? "taken but not valid:" : "valid but not taken:", row + i, j);
            return;
        }
    for (int64_t j = from; kind == PTL_TILE_MIXED && j < to; j++)
        if (n_rows < 64 && bits[j - from] >> n_rows)
            describe(c, "a bit of no row,", row + n_rows, j);
}

static void tiles_of_rules(void) {
    struct test_random r = {11};
    for (int n = 0; n < (test_quick() ? 100 : 3000) && !test_case_failed(); n++) {
        struct mask_case c = {.group = test_random_int(&r, 1, 5)};
        const bool causal = test_random_int(&r, 0, 3) > 0;
        c.uk = test_random_int(&r, 1, 300);
        c.uq = test_random_int(&r, 1, c.uk);
        c.left = test_random_int(&r, 0, 1) ? -1 : test_random_int(&r, 0, 100);
        c.right = causal ? 0 : test_random_int(&r, -1, 60);
        c.contexts = causal ? test_random_int(&r, 0, 40) * test_random_int(&r, 0, 1) : 0;
        c.targets = causal ? test_random_int(&r, 0, c.uk) * test_random_int(&r, 0, 1) : 0;
        c.full = causal ? test_random_int(&r, 0, 30) * test_random_int(&r, 0, 1) : 0;
        complete(&c);
        for (int tile = 0; tile < 4; tile++) {
            const int64_t row = test_random_int(&r, 0, c.uq - 1),
                          begin = test_random_int(&r, 0, c.uk - 1);
            const int64_t rows = c.uq - row < PTL_MAX_PANEL ? c.uq - row : PTL_MAX_PANEL;
            const int64_t columns = c.uk - begin < 128 ? c.uk - begin : 128;
            check_tile(&c, row, (int)test_random_int(&r, 1, rows), begin,
                       begin + test_random_int(&r, 1, columns));
        }
    }
}

static void tiles_of_dense_masks(void) {
    enum { ROWS = 70, COLUMNS = 141 };
    static uint8_t mask[ROWS * COLUMNS];
    struct test_random r = {12};
    for (int n = 0; n < (test_quick() ? 50 : 1000) && !test_case_failed(); n++) {
        struct mask_case c = {.uq = ROWS, .uk = COLUMNS, .left = -1, .group = 1};
        const int64_t kind = test_random_int(&r, 0, 3); /* all, none, few, half of them */
        for (int i = 0; i < ROWS * COLUMNS; i++) {
            const int64_t x = test_random_int(&r, 0, 255);
            mask[i] = (uint8_t)(kind == 0   ? x | 1
                                : kind == 1 ? 0
                                : kind == 2 ? x * (x < 4)
                                            : x * (x & 1));
        }
        complete(&c);
        c.problem.mask = mask;
        c.problem.mask_row_stride = COLUMNS;
        c.params.mask =
            ptl_tensor_contiguous(mask, PTL_U8, 4, (const int64_t[]){1, 1, ROWS, COLUMNS});
        const int64_t row = test_random_int(&r, 0, ROWS - 1),
                      begin = test_random_int(&r, 0, COLUMNS - 1);
        const int64_t rows = ROWS - row < PTL_MAX_PANEL ? ROWS - row : PTL_MAX_PANEL;
        check_tile(&c, row, (int)test_random_int(&r, 1, rows), begin,
                   test_random_int(&r, begin + 1, COLUMNS));
    }
}

static const struct test tests[] = {
    {"spans_of_causal_rules", spans_of_causal_rules},
    {"spans_of_windows", spans_of_windows},
    {"tiles_of_rules", tiles_of_rules},
    {"tiles_of_dense_masks", tiles_of_dense_masks},
};
TEST_SUITE(hstu_intervals_suite, "hstu/intervals", tests);
