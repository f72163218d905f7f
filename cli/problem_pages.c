/* Keys and values of a problem, and the cache that holds the first of them when they are paged:
 * pages in shuffled order, some of them in no list. What nobody may read stays NaN: free slots,
 * unlisted pages, and the rows of k and v that are in the cache already. */
#include <inttypes.h>

#include "problem_build.h"
#include "tensors.h"

enum { SPARE_PAGES = 2 };

int64_t targets_of(const struct builder *w, int64_t b) {
    return index_at(&w->out->num_targets, b);
}

static int64_t n_pages(const struct builder *w, int64_t b) {
    return (w->seqs[b].cached + w->line->page_size - 1) / w->line->page_size;
}

/* Lists of pages. Every page number from 0 on is somebody's or spare; a shuffle says whose. */
static bool make_lists(struct builder *w, int64_t all) {
    const struct problem_line *p = w->line;
    struct ptl_hstu_params *a = w->out;
    const int64_t n_offsets = p->b + 1, n_ids = all - SPARE_PAGES;
    struct ptl_tensor order;
    struct random_stream s = stream_of(w, OF_PAGES, 0);
    if (!take(w, "page_offsets", p->index, 1, &n_offsets, &a->page_offsets) ||
        !take(w, "page_ids", p->index, 1, &n_ids, &a->page_ids) ||
        !take(w, "last_page_lens", p->index, 1, &p->b, &a->last_page_lens) ||
        !take(w, "page_ids", PTL_I64, 1, &all, &order))
        return false;
    int64_t *ids = order.data, at = 0;
    for (int64_t i = 0; i < all; i++) ids[i] = i;
    for (int64_t i = all - 1; i > 0; i--) {
        const int64_t other = random_between(&s, 0, i), id = ids[i];
        ids[i] = ids[other];
        ids[other] = id;
    }
    for (int64_t b = 0; b <= p->b; b++) {
        if (!put_index(w, "page_offsets", &a->page_offsets, b, at)) return false;
        if (b == p->b) break;
        for (const int64_t end = at + n_pages(w, b); at < end; at++)
            if (!put_index(w, "page_ids", &a->page_ids, at, ids[at])) return false;
        const int64_t last = w->seqs[b].cached - (n_pages(w, b) - 1) * p->page_size;
        if (n_pages(w, b) > 0 && !put_index(w, "last_page_lens", &a->last_page_lens, b, last))
            return false;
    }
    return true;
}

bool make_pages(struct builder *w) {
    const struct problem_line *p = w->line;
    struct ptl_hstu_params *a = w->out;
    int64_t all = SPARE_PAGES;
    for (int64_t b = 0; b < p->b; b++) {
        struct seq *s = &w->seqs[b];
        const int64_t t = targets_of(w, b);
        if (t > s->uk || t > s->uq)
            return refuse(w->refusal,
                          "page_size: %" PRId64 " targets in sequence %" PRId64
                          ", expected at most its %" PRId64 " rows and %" PRId64 " keys",
                          t, b, s->uq, s->uk);
        s->cached = s->uk - t;
        all += n_pages(w, b);
    }
    const struct rows_shape k = {all, p->page_size, p->hk, p->d},
                            v = {all, p->page_size, p->hk, p->dv};
    return make_lists(w, all) && take_rows(w, "k_pages", &k, &a->k_pages) &&
           take_rows(w, "v_pages", &v, &a->v_pages);
}

/* Where key j of sequence b begins, in its array. */
static int64_t key_at(const struct builder *w, const struct ptl_tensor *own,
                      const struct ptl_tensor *pages, int64_t b, int64_t j, int64_t head) {
    const struct seq *s = &w->seqs[b];
    const int64_t *stride = own->stride + own->ndim - 3;
    if (j < s->cached) {
        const struct ptl_hstu_params *a = w->out;
        int64_t at = j / w->line->page_size;
        for (int64_t x = 0; x < b; x++) at += n_pages(w, x);
        const int64_t page = index_at(&a->page_ids, at);
        return page * pages->stride[0] + j % w->line->page_size * pages->stride[1] +
               head * pages->stride[2];
    }
    if (w->line->dense) return b * own->stride[0] + j * stride[0] + head * stride[1];
    const int64_t first = w->line->page_size ? s->first_q + s->uq - s->uk : s->first_k;
    return (first + j) * stride[0] + head * stride[1];
}

void fill_keys(const struct builder *w, enum purpose purpose, const struct ptl_tensor *own,
               const struct ptl_tensor *pages) {
    const int64_t heads = own->shape[own->ndim - 2], dim = own->shape[own->ndim - 1];
    for (int64_t b = 0; b < w->line->b; b++)
        for (int64_t j = 0; j < w->seqs[b].uk; j++)
            for (int64_t head = 0; head < heads; head++) {
                struct random_stream stream = random_stream_at(w->line->seed, purpose, b, j, head);
                fill(&stream, j < w->seqs[b].cached ? pages : own,
                     key_at(w, own, pages, b, j, head), dim);
            }
}
