/* A server keeps the keys and values of its users' histories in pages. Here two users come back:
 * their new events are appended, and candidates are scored against the cache. The scores are those
 * of one call over the whole histories, bit for bit. Exits 1 if they are not.
 *
 *     cc -Iinclude examples/hstu_paged_serving.c build/libpantile.a -pthread -lm */
#include <pantile/pantile.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { USERS = 2, H = 2, D = 16, ROW = H * D, N = 256 };
enum { PAGE_SIZE = 16, PAGES = 12, LIST = 6, MAX_ROWS = 256 };

/* The events of a request: seen before, new since then, and candidates for the next one. */
static const int64_t history[USERS] = {70, 9}, fresh[USERS] = {3, 20}, candidates[USERS] = {5, 4};

/* The model's q, k and v of every token; real ones come from a linear layer. */
struct tokens {
    float q[MAX_ROWS * ROW], k[MAX_ROWS * ROW], v[MAX_ROWS * ROW], out[MAX_ROWS * ROW];
    int64_t offsets[USERS + 1];
};
static struct tokens first, request, whole;

/* The cache. Pages are handed out as they become free, so those of a user lie anywhere. */
static float k_pages[PAGES * PAGE_SIZE * ROW], v_pages[PAGES * PAGE_SIZE * ROW];
static int64_t user_pages[USERS][LIST], n_user_pages[USERS], n_cached[USERS], next_page;

static struct ptl_context *ctx;

static void must(enum ptl_status status) {
    if (status == PTL_OK) return;
    fprintf(stderr, "%s: %s\n", ptl_status_name(status), ptl_message());
    exit(1);
}

static float number(uint32_t user, uint32_t token, uint32_t column, uint32_t what) {
    uint32_t x = ((user * 1009u + token) * 1009u + column) * 4u + what;
    x = (x ^ x >> 16) * 0x45d9f3bu;
    x = (x ^ x >> 16) * 0x45d9f3bu;
    return (float)(x >> 8) / 8388608.0f - 1.0f;
}

/* Tokens from..to of each user, users one behind the other. */
static void fill(struct tokens *t, const int64_t *from, const int64_t *to) {
    int64_t row = 0;
    for (int64_t u = 0; u < USERS; u++) {
        for (int64_t x = from[u]; x < to[u]; x++, row++)
            for (int64_t c = 0; c < ROW; c++) {
                t->q[row * ROW + c] = number((uint32_t)u, (uint32_t)x, (uint32_t)c, 0);
                t->k[row * ROW + c] = number((uint32_t)u, (uint32_t)x, (uint32_t)c, 1);
                t->v[row * ROW + c] = number((uint32_t)u, (uint32_t)x, (uint32_t)c, 2);
            }
        t->offsets[u + 1] = row;
    }
}

static struct ptl_tensor rows(float *data) {
    const int64_t shape[3] = {MAX_ROWS, H, D};
    return ptl_tensor_contiguous(data, PTL_F32, 3, shape);
}
static struct ptl_tensor pages(float *data) {
    const int64_t shape[4] = {PAGES, PAGE_SIZE, H, D};
    return ptl_tensor_contiguous(data, PTL_F32, 4, shape);
}
static struct ptl_tensor numbers(const int64_t *data, int64_t n) {
    return ptl_tensor_contiguous((void *)data, PTL_I64, 1, &n);
}

/* The page lists of all users as the calls take them. */
static int64_t page_offsets[USERS + 1], page_ids[USERS * LIST], last_page_lens[USERS];

static void list_pages(void) {
    int64_t n = 0;
    for (int u = 0; u < USERS; u++) {
        for (int64_t i = 0; i < n_user_pages[u]; i++) page_ids[n++] = user_pages[u][i];
        page_offsets[u + 1] = n;
        last_page_lens[u] = n_cached[u] - (n_user_pages[u] - 1) * PAGE_SIZE;
    }
}

/* Appends the first rows of every user to the cache, all but the last n_targets. */
static void append(struct tokens *t, const int64_t *n_new, const int64_t *n_targets) {
    struct ptl_hstu_kv_append_params p;
    for (int u = 0; u < USERS; u++)
        while (n_user_pages[u] * PAGE_SIZE < n_cached[u] + n_new[u])
            user_pages[u][n_user_pages[u]++] = next_page++ * 5 % PAGES;
    list_pages();
    ptl_hstu_kv_append_params_init(&p);
    p.k = rows(t->k);
    p.v = rows(t->v);
    p.seq_offsets = numbers(t->offsets, USERS + 1);
    if (n_targets) p.num_targets = numbers(n_targets, USERS);
    p.n_cached = numbers(n_cached, USERS);
    p.k_pages = pages(k_pages);
    p.v_pages = pages(v_pages);
    p.page_offsets = numbers(page_offsets, USERS + 1);
    p.page_ids = numbers(page_ids, USERS * LIST);
    must(ptl_hstu_kv_append(ctx, &p));
    for (int u = 0; u < USERS; u++) n_cached[u] += n_new[u];
    list_pages();
}

/* N is fixed: the same for every call, whatever its lengths, so that the scores agree. */
static struct ptl_hstu_params attention(struct tokens *t) {
    struct ptl_hstu_params p;
    ptl_hstu_params_init(&p);
    p.q = rows(t->q);
    p.k = rows(t->k);
    p.v = rows(t->v);
    p.out = rows(t->out);
    p.seq_offsets_q = numbers(t->offsets, USERS + 1);
    p.num_targets = numbers(candidates, USERS);
    p.alpha = 0.25f;
    p.scaling_seqlen = N;
    return p;
}

int main(void) {
    int64_t none[USERS] = {0}, seen[USERS], all[USERS];
    int same = 1;
    for (int u = 0; u < USERS; u++) {
        seen[u] = history[u] + fresh[u];
        all[u] = seen[u] + candidates[u];
    }
    must(ptl_context_create(&ctx, NULL));

    /* Prefill: the first visit. Its outputs are not needed here, only its keys and values. */
    fill(&first, none, history);
    append(&first, history, NULL);

    /* The request: rows are [ new events | candidates ]. The new events go to the cache; the call
     * then finds all history there and takes only the candidates' keys from its own rows. */
    fill(&request, history, all);
    append(&request, fresh, candidates);
    struct ptl_hstu_params p = attention(&request);
    p.k_pages = pages(k_pages);
    p.v_pages = pages(v_pages);
    p.page_offsets = numbers(page_offsets, USERS + 1);
    p.page_ids = numbers(page_ids, USERS * LIST);
    p.last_page_lens = numbers(last_page_lens, USERS);
    must(ptl_hstu_forward(ctx, &p));

    /* The same without a cache: every row of every user. */
    fill(&whole, none, all);
    p = attention(&whole);
    must(ptl_hstu_forward(ctx, &p));

    for (int u = 0; u < USERS; u++) {
        const int64_t n = request.offsets[u + 1] - request.offsets[u];
        const float *cached = request.out + request.offsets[u] * ROW;
        const float *uncached = whole.out + (whole.offsets[u + 1] - n) * ROW;
        const int equal = memcmp(cached, uncached, (size_t)(n * ROW) * sizeof(float)) == 0;
        same &= equal;
        printf("user %d: pages", u);
        for (int64_t i = 0; i < n_user_pages[u]; i++) printf(" %d", (int)user_pages[u][i]);
        printf(", %d cached events, %d candidates; %s\n", (int)n_cached[u], (int)candidates[u],
               equal ? "the bits of the uncached call" : "NOT the bits of the uncached call");
        for (int64_t c = n - candidates[u]; c < n; c++) {
            float score = 0.0f; /* a model would put its head here */
            for (int x = 0; x < ROW; x++) score += cached[c * ROW + x];
            printf("    candidate %d: %9.6f\n", (int)(c - (n - candidates[u])), (double)score);
        }
    }
    ptl_context_destroy(ctx);
    return same ? 0 : 1;
}
