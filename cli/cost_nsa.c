/* Costs of the NSA operators and of full attention. Arithmetic is 2 (D + Dv) for each token that a
 * row and query head attends to, in whichever branch; scores, selection and compression do not
 * count. Bytes are those of the keys and values that some row sees, once, of q and of outputs. */
#include <math.h>

#include "../ref/nsa.h"
#include "cost.h"
#include "sequences_nsa.h"
#include "tensors.h"

enum branches { COMPRESSED = 1, SELECTED = 2, SLIDING = 4 };

static double last_of(const struct ptl_tensor *t) {
    return t->data ? (double)t->shape[t->ndim - 1] : 0.0;
}

/* Tokens of the blocks that a given selection names, of those that begin at or before t; the mean
 * of the kv heads. */
static double selected_by(const struct ptl_nsa_params *p, int64_t row, int64_t t) {
    const int64_t heads = p->k.shape[p->k.ndim - 2], width = p->idx.shape[p->idx.ndim - 1];
    const int64_t size = p->select_block;
    int64_t tokens = 0;
    for (int64_t e = row * heads * width; e < (row + 1) * heads * width; e++) {
        const int64_t j = index_at(&p->idx, e);
        if (j < 0 || j > t / size) continue;
        tokens += j == t / size ? t % size + 1 : size;
    }
    return (double)tokens / (double)heads;
}

static struct cost attention_cost(const struct ptl_nsa_params *p, unsigned branches, bool given) {
    const double d = last_of(&p->q), dv = last_of(p->v.data ? &p->v : &p->vc);
    const double dims = d + (p->v.data || p->out_cmp.data ? dv : 0.0);
    const double heads = (double)p->q.shape[p->q.ndim - 2];
    const double kv_heads = (double)p->k.shape[p->k.ndim - 2];
    double attended = 0.0, read = 0.0;
    for (int64_t b = 0; b < ref_nsa_n_seqs(p); b++) {
        const int64_t n = ref_nsa_n_queries(p, b), tokens = ref_nsa_n_tokens(p, b);
        double selected = 0.0;
        struct nsa_tokens x = {0};
        for (int64_t i = 0; i < n; i++) {
            const int64_t t = tokens - n + i;
            x = nsa_tokens_at(p, t);
            if (branches & COMPRESSED) attended += (double)x.compressed;
            if (branches & SELECTED)
                selected += given && t + 1 >= p->dense_len ? selected_by(p, ref_nsa_row(p, b, i), t)
                                                           : (double)x.selected;
            if (branches & SLIDING) attended += (double)x.sliding;
        }
        attended += selected;
        const double window = n > 0 && branches & SLIDING
                                  ? fmin((double)tokens, (double)x.sliding + (double)(n - 1))
                                  : 0.0;
        if (branches & COMPRESSED) read += (double)x.compressed;
        if (p->k_swa.data) read += fmin((double)tokens, selected) + window;
        else read += fmin((double)tokens, selected + window);
    }
    const double bytes = (double)ptl_dtype_bytes(p->q.dtype);
    return (struct cost){.flops = 2.0 * dims * heads * attended,
                         .bytes = bytes * kv_heads * dims * read + n_bytes(&p->q) +
                                  n_bytes(&p->out) + n_bytes(&p->out_cmp) + n_bytes(&p->out_slc) +
                                  n_bytes(&p->out_swa)};
}

struct cost cost_nsa_compressed(const struct call *c) {
    const struct ptl_nsa_params p = nsa_shaped(c);
    return attention_cost(&p, COMPRESSED, false);
}

struct cost cost_nsa_attend(const struct call *c) {
    const struct ptl_nsa_params p = nsa_shaped(c);
    const bool selected = p.out_slc.data || p.lse_slc.data;
    return attention_cost(&p, (selected ? SELECTED : 0) | (p.window > 0 ? SLIDING : 0),
                          p.idx.data != NULL);
}

struct cost cost_attention(const struct call *c) {
    const struct ptl_nsa_params p = nsa_shaped(c);
    return attention_cost(&p, SLIDING, false);
}

/* Without compressed keys it reads all tokens to make them. */
struct cost cost_nsa_forward(const struct call *c) {
    const struct ptl_nsa_params p = nsa_shaped(c);
    struct cost cost = attention_cost(&p, COMPRESSED | SELECTED | SLIDING, false);
    if (!p.kc.data) cost.bytes += n_bytes(&p.k) + n_bytes(&p.v);
    return cost;
}

/* ---- Caches and copies ----------------------------------------------------------------------- */

struct cost cost_nsa_compress(const struct call *c) {
    return cost_of_copy(n_bytes(&c->nsa.compress.x) + n_bytes(&c->nsa.compress.y));
}

/* New tokens read and written, and the rows of the blocks that they complete. */
struct cost cost_nsa_append(const struct call *c) {
    const struct ptl_nsa_append_params *a = &c->nsa.append;
    const struct ptl_tensor *k = a->k_pages.data ? &a->k_pages : &a->k_ring,
                            *v = a->v_pages.data ? &a->v_pages : &a->v_ring;
    const double row = (double)(k->data ? k->shape[2] : v->shape[2]) * (last_of(k) + last_of(v)) *
                       (double)ptl_dtype_bytes(k->data ? k->dtype : v->dtype);
    double rows = 0.0;
    for (int64_t b = 0; b < a->seqlens_k.shape[0]; b++) {
        const int64_t now = index_at(&a->seqlens_k, b), old = index_at(&a->seqlens_old, b);
        const int64_t blocks = ptl_nsa_compressed_length(now, a->block, a->stride) -
                               ptl_nsa_compressed_length(old, a->block, a->stride);
        rows += 2.0 * (double)(now - old) + (double)blocks * (double)(a->block + 1);
    }
    return cost_of_copy(rows * row);
}

struct cost cost_nsa_decode(const struct call *c) {
    struct cost cost = cost_nsa_forward(c);
    cost.bytes += cost_nsa_append(c).bytes;
    return cost;
}

struct cost cost_nsa_select(const struct call *c) {
    const struct ptl_nsa_params *p = &c->nsa.params;
    return cost_of_copy(n_bytes(&p->importance) + n_bytes(&p->idx) + n_bytes(&p->nsel));
}

struct cost cost_nsa_combine(const struct call *c) {
    const struct ptl_nsa_params *p = &c->nsa.params;
    return cost_of_copy(n_bytes(&p->out_cmp) + n_bytes(&p->out_slc) + n_bytes(&p->out_swa) +
                        n_bytes(&p->gates) + n_bytes(&p->out));
}
