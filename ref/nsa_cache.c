/* Compressed keys and the caches of decode, block by block and token by token. */
#include <stddef.h>

#include "elements.h"
#include "nsa.h"
#include "nsa_rows.h"

/* How the rows of a block become one. */
struct mixture {
    int64_t block, stride;
    enum ptl_nsa_mode mode;
    const struct ptl_tensor *w, *pe; /* [block, H], [block, H, D]; no data: none */
};

static int64_t n_blocks(const struct mixture *m, int64_t n_tokens) {
    return n_tokens < m->block ? 0 : (n_tokens - m->block) / m->stride + 1;
}

/* y_i of head h at `to` of y. Token s is in row s, or, in a ring, in row s % block. */
static void mix_block(const struct mixture *m, const struct ref_rows *x, int is_ring, int64_t i,
                      int64_t h, const struct ptl_tensor *y, int64_t to) {
    for (int64_t d = 0; d < y->shape[y->ndim - 1]; d++) {
        double sum = 0.0;
        for (int64_t r = 0; r < m->block; r++) {
            const int64_t s = i * m->stride + r;
            const int64_t at = ref_row_at(x, is_ring ? s % m->block : s, h);
            double u = ref_read(x->t->dtype, x->t->data, at + d), w = 1.0 / (double)m->block;
            if (m->pe->data)
                u += ref_read(m->pe->dtype, m->pe->data,
                              r * m->pe->stride[0] + h * m->pe->stride[1] + d);
            if (m->mode == PTL_NSA_WEIGHTED)
                w = ref_read(m->w->dtype, m->w->data, r * m->w->stride[0] + h);
            sum += w * u;
        }
        ref_write(y->dtype, y->data, to + d, sum);
    }
}

/* ---- compress -------------------------------------------------------------------------------- */

static int64_t n_tokens(const struct ptl_nsa_compress_params *p, int64_t b) {
    if (p->seqlens.data) return ref_index(&p->seqlens, b);
    if (p->x.ndim == 4) return p->x.shape[1];
    return ref_index(&p->seq_offsets, b + 1) - ref_index(&p->seq_offsets, b);
}

static int64_t n_seqs(const struct ptl_nsa_compress_params *p) {
    if (p->page_table.data) return p->page_table.shape[0];
    return p->x.ndim == 4 ? p->x.shape[0] : p->seq_offsets.shape[0] - 1;
}

static void write_index(const struct ptl_tensor *t, int64_t i, int64_t x) {
    if (t->dtype == PTL_I64) ((int64_t *)t->data)[i] = x;
    else ((int32_t *)t->data)[i] = (int32_t)x;
}

void ref_nsa_compress(const struct ptl_nsa_compress_params *p) {
    const struct mixture m = {p->block, p->stride, p->mode, &p->w, &p->pe};
    int64_t begin = 0; /* rows of y before those of the sequence */
    if (p->seq_offsets_y.data) write_index(&p->seq_offsets_y, 0, 0);
    for (int64_t b = 0; b < n_seqs(p); b++) {
        const struct ref_rows x = ref_rows(&p->x, &p->seq_offsets, &p->page_table, b);
        const struct ref_rows y = {&p->y, NULL, b, begin};
        const int64_t n = n_blocks(&m, n_tokens(p, b));
        for (int64_t i = 0; i < n; i++)
            for (int64_t h = 0; h < p->y.shape[p->y.ndim - 2]; h++)
                mix_block(&m, &x, 0, i, h, &p->y, ref_row_at(&y, i, h));
        begin += n;
        if (p->seq_offsets_y.data) write_index(&p->seq_offsets_y, b + 1, begin);
    }
}

/* ---- append ---------------------------------------------------------------------------------- */

/* The arguments that concern keys, or those that concern values. */
struct side {
    const struct ptl_tensor *fresh, *pages, *ring, *compressed, *w, *pe;
};

/* Where block i of the sequence goes, the j-th of this call; -1: nowhere. */
static int64_t slot_at(const struct ptl_nsa_append_params *p, const struct ptl_tensor *compressed,
                       int64_t b, int64_t i, int64_t j, int64_t h) {
    const int64_t size = compressed->shape[1];
    if (!p->slots.data) {
        const struct ref_rows rows = {compressed, &p->page_table_c, b, 0};
        return ref_row_at(&rows, i, h);
    }
    const int64_t slot = ref_index(&p->slots, b * p->slots.shape[1] + j);
    return slot < 0 ? -1
                    : slot / size * compressed->stride[0] + slot % size * compressed->stride[1] +
                          h * compressed->stride[2];
}

static void copy_row(const struct ptl_tensor *to, int64_t to_at, const struct ptl_tensor *from,
                     int64_t from_at) {
    for (int64_t d = 0; d < to->shape[to->ndim - 1]; d++)
        ref_write(to->dtype, to->data, to_at + d, ref_read(from->dtype, from->data, from_at + d));
}

/* Token s of head h and sequence b arrives, and the block that ends with it is made. */
static void append_token(const struct ptl_nsa_append_params *p, const struct side *x, int64_t b,
                         int64_t s, int64_t h) {
    const struct mixture m = {p->block, p->stride, p->mode, x->w, x->pe};
    const int64_t old = ref_index(&p->seqlens_old, b), len = ref_index(&p->seqlens_k, b);
    const int is_ring = x->ring->data != NULL;
    const struct ref_rows cache = {is_ring ? x->ring : x->pages, is_ring ? NULL : &p->page_table, b,
                                   0};
    if (x->fresh->data) {
        const struct ref_rows fresh = ref_rows(x->fresh, &p->seq_offsets, NULL, b);
        const int64_t first = x->fresh->ndim == 4 ? x->fresh->shape[1] - (len - old) : 0;
        copy_row(cache.t, ref_row_at(&cache, is_ring ? s % p->block : s, h), x->fresh,
                 ref_row_at(&fresh, first + s - old, h));
    }
    const int64_t i = n_blocks(&m, s + 1) - 1;
    if (!x->compressed->data || i + 1 == n_blocks(&m, s)) return;
    const int64_t to = slot_at(p, x->compressed, b, i, i - n_blocks(&m, old), h);
    if (to >= 0) mix_block(&m, &cache, is_ring, i, h, x->compressed, to);
}

void ref_nsa_append(const struct ptl_nsa_append_params *p) {
    const struct side sides[2] = {
        {&p->k, &p->k_pages, &p->k_ring, &p->kc_pages, &p->w_k, &p->pe_k},
        {&p->v, &p->v_pages, &p->v_ring, &p->vc_pages, &p->w_v, &p->pe_v},
    };
    for (int side = 0; side < 2; side++) {
        const struct side *x = &sides[side];
        const struct ptl_tensor *cache = x->ring->data ? x->ring : x->pages;
        if (!cache->data) continue;
        for (int64_t b = 0; b < p->seqlens_k.shape[0]; b++)
            for (int64_t s = ref_index(&p->seqlens_old, b); s < ref_index(&p->seqlens_k, b); s++)
                for (int64_t h = 0; h < cache->shape[2]; h++) append_token(p, x, b, s, h);
    }
}
