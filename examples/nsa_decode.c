/* Native sparse attention as a server runs it: two prompts are read in chunks, then tokens come one
 * or a few at a time. Keys, values and their compressed forms live in pages, and each step appends
 * to them and attends in one call. Every row of every step has the bits of one call over the whole
 * sequences. Exits 1 if one has not.
 *
 *     cc -Iinclude examples/nsa_decode.c build/libpantile.a -pthread -lm */
#include <pantile/pantile.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { USERS = 2, H = 8, HK = 2, D = 32, DV = 16 };
enum { BLOCK = 16, STRIDE = 8, SELECT = 32, TOPK = 4, WINDOW = 64 };
enum { PAGE = 16, PAGES = 64, TABLE = 32, CHUNK = 128, STEPS = 6, MOST = 400, ROWS = USERS * MOST };

static const int64_t prompt[USERS] = {300, 77};
/* New tokens of each step; in the last but one, a guess of three tokens is taken back to one. */
static const int64_t step[STEPS][USERS] = {{1, 1}, {1, 1}, {4, 1}, {1, 0}, {3, 1}, {1, 1}};

/* The model's output for every token of every user; real ones come from its linear layers. Rows of
 * one user lie together, MOST of them. */
static float q[ROWS * H * D], k[ROWS * HK * D], v[ROWS * HK * DV], gates[ROWS * H * 3];
static float whole[ROWS * H * DV]; /* what one call over everything gives */

/* The caches. Pages are handed out as they become free, so those of a user lie anywhere. */
static float k_pages[PAGES * PAGE * HK * D], v_pages[PAGES * PAGE * HK * DV];
static float kc_pages[PAGES * PAGE * HK * D], vc_pages[PAGES * PAGE * HK * DV];
static int32_t table[USERS][TABLE], table_c[USERS][TABLE], next_page, next_page_c;
static int64_t length[USERS]; /* tokens in the caches */

static struct ptl_context *ctx;

static void must(enum ptl_status status) {
    if (status == PTL_OK) return;
    fprintf(stderr, "%s: %s\n", ptl_status_name(status), ptl_message());
    exit(1);
}

static void fill(float *x, size_t n, uint32_t what, float scale) {
    for (size_t i = 0; i < n; i++) {
        uint32_t y = (uint32_t)i * 4u + what;
        y = (y ^ y >> 16) * 0x45d9f3bu;
        y = (y ^ y >> 16) * 0x45d9f3bu;
        x[i] = scale * ((float)(y >> 8) / 8388608.0f - 1.0f);
    }
}

static struct ptl_tensor rows(float *data, int64_t n, int64_t heads, int64_t dim) {
    const int64_t shape[3] = {n, heads, dim};
    return ptl_tensor_contiguous(data, PTL_F32, 3, shape);
}
static struct ptl_tensor pages(float *data, int64_t dim) {
    const int64_t shape[4] = {PAGES, PAGE, HK, dim};
    return ptl_tensor_contiguous(data, PTL_F32, 4, shape);
}
static struct ptl_tensor numbers(const int64_t *data, int64_t n) {
    return ptl_tensor_contiguous((void *)data, PTL_I64, 1, &n);
}
static struct ptl_tensor lists(int32_t (*data)[TABLE]) {
    const int64_t shape[2] = {USERS, TABLE};
    return ptl_tensor_contiguous(data, PTL_I32, 2, shape);
}

static struct ptl_nsa_params options(void) {
    struct ptl_nsa_params p;
    ptl_nsa_params_init(&p); /* one first and two newest blocks are always selected */
    p.block = BLOCK;
    p.stride = STRIDE;
    p.select_block = SELECT;
    p.topk = TOPK;
    p.window = WINDOW;
    return p;
}

/* Pages for `n` rows; the caller's business, as are freeing and sharing them. */
static void grow(int32_t *list, int64_t n, int32_t *next) {
    for (int64_t i = 0; i * PAGE < n; i++)
        if (list[i] < 0) list[i] = (*next)++ * 37 % PAGES;
}

/* The users' next n tokens: into the caches, and attention for their rows. Returns whether the rows
 * are those of `whole`. */
static int advance(const int64_t *n) {
    static float new_q[ROWS * H * D], new_k[ROWS * HK * D], new_v[ROWS * HK * DV];
    static float new_gates[ROWS * H * 3], out[ROWS * H * DV];
    int64_t offsets[USERS + 1] = {0}, now[USERS];
    for (int u = 0; u < USERS; u++) {
        const size_t to = (size_t)offsets[u], from = (size_t)(u * MOST + length[u]);
        const size_t count = (size_t)n[u] * sizeof(float);
        memcpy(new_q + to * H * D, q + from * H * D, count * H * D);
        memcpy(new_k + to * HK * D, k + from * HK * D, count * HK * D);
        memcpy(new_v + to * HK * DV, v + from * HK * DV, count * HK * DV);
        memcpy(new_gates + to * H * 3, gates + from * H * 3, count * H * 3);
        offsets[u + 1] = offsets[u] + n[u];
        now[u] = length[u] + n[u];
        grow(table[u], now[u], &next_page);
        grow(table_c[u], ptl_nsa_compressed_length(now[u], BLOCK, STRIDE), &next_page_c);
    }
    const int64_t all = offsets[USERS];

    struct ptl_nsa_append_params a;
    ptl_nsa_append_params_init(&a);
    a.block = BLOCK;
    a.stride = STRIDE;
    a.seqlens_old = numbers(length, USERS);
    a.seqlens_k = numbers(now, USERS);
    a.k = rows(new_k, all, HK, D);
    a.v = rows(new_v, all, HK, DV);
    a.seq_offsets = numbers(offsets, USERS + 1);
    a.k_pages = pages(k_pages, D);
    a.v_pages = pages(v_pages, DV);
    a.page_table = lists(table);
    a.kc_pages = pages(kc_pages, D);
    a.vc_pages = pages(vc_pages, DV);
    a.page_table_c = lists(table_c);

    struct ptl_nsa_params p = options();
    p.q = rows(new_q, all, H, D);
    p.gates = rows(new_gates, all, H, 3);
    p.out = rows(out, all, H, DV);
    p.seq_offsets_q = a.seq_offsets;
    p.seqlens_k = a.seqlens_k;
    p.k = a.k_pages;
    p.v = a.v_pages;
    p.page_table = a.page_table;
    p.kc = a.kc_pages;
    p.vc = a.vc_pages;
    p.page_table_c = a.page_table_c;
    must(ptl_nsa_decode(ctx, &a, &p));

    int same = 1;
    for (int u = 0; u < USERS; u++) {
        const float *expected = whole + (u * MOST + length[u]) * H * DV;
        same &=
            memcmp(out + offsets[u] * H * DV, expected, (size_t)n[u] * H * DV * sizeof(float)) == 0;
        length[u] = now[u];
    }
    return same;
}

/* Every row of every user in one call, without caches. */
static void compute_whole(void) {
    const int64_t offsets[USERS + 1] = {0, MOST, 2 * MOST};
    struct ptl_nsa_params p = options();
    p.q = rows(q, ROWS, H, D);
    p.k = rows(k, ROWS, HK, D);
    p.v = rows(v, ROWS, HK, DV);
    p.gates = rows(gates, ROWS, H, 3);
    p.out = rows(whole, ROWS, H, DV);
    p.seq_offsets_q = numbers(offsets, USERS + 1);
    must(ptl_nsa_forward(ctx, &p));
}

int main(void) {
    int good = 1;
    must(ptl_context_create(&ctx, NULL));
    fill(q, sizeof q / sizeof *q, 0, 2.0f);
    fill(k, sizeof k / sizeof *k, 1, 1.0f);
    fill(v, sizeof v / sizeof *v, 2, 1.0f);
    fill(gates, sizeof gates / sizeof *gates, 3, 1.0f);
    memset(table, 0xff, sizeof table); /* -1: no page yet */
    memset(table_c, 0xff, sizeof table_c);
    compute_whole();

    /* Prefill, in chunks: the short prompt is done while the long one still runs. */
    for (int busy = 1; busy;) {
        int64_t n[USERS];
        busy = 0;
        for (int u = 0; u < USERS; u++) {
            n[u] = prompt[u] - length[u] < CHUNK ? prompt[u] - length[u] : CHUNK;
            busy |= length[u] + n[u] < prompt[u];
        }
        const int same = advance(n);
        good &= same;
        printf("prefill: %3d and %2d tokens; %s\n", (int)length[0], (int)length[1],
               same ? "the bits of one call" : "NOT the bits of one call");
    }

    /* Decode. */
    for (int i = 0; i < STEPS; i++) {
        const int same = advance(step[i]);
        good &= same;
        printf("step %d: %d and %d more; %s\n", i, (int)step[i][0], (int)step[i][1],
               same ? "the bits of one call" : "NOT the bits of one call");
        if (i == STEPS - 2)
            length[0] -= 2; /* two guesses were wrong: the next ones overwrite them */
    }
    ptl_context_destroy(ctx);
    return good ? 0 : 1;
}
