/* What a row of the NSA operators sees, counted by the formulas of docs/nsa.md. */
#include "sequences_nsa.h"

#include "tensors.h"

static struct ptl_nsa_params of_attention(const struct ptl_attention_params *a) {
    struct ptl_nsa_params p;
    ptl_nsa_params_init(&p);
    p.window = a->window ? a->window : INT64_MAX;
    p.scale = a->scale;
    p.q = a->q;
    p.k = a->k;
    p.v = a->v;
    p.seq_offsets_q = a->seq_offsets_q;
    p.seq_offsets_k = a->seq_offsets_k;
    p.seqlens_k = a->seqlens_k;
    p.page_table = a->page_table;
    p.out_swa = a->out;
    p.lse_swa = a->lse;
    return p;
}

struct ptl_nsa_params nsa_shaped(const struct call *c) {
    struct ptl_nsa_params p =
        c->nsa.attention.q.data ? of_attention(&c->nsa.attention) : c->nsa.params;
    if (!p.q.data) p.q = p.q_cmp.data ? p.q_cmp : p.importance;
    if (!p.k.data) {
        p.k = p.kc.data ? p.kc : p.importance;
        p.k.data = NULL;
    }
    return p;
}

struct nsa_tokens nsa_tokens_at(const struct ptl_nsa_params *p, int64_t t) {
    const int64_t size = p->select_block, n = t / size + 1, k = least(p->topk, n);
    const int64_t last = p->n_local > 0 ? t % size + 1 : size; /* of the row's own block */
    struct nsa_tokens x = {
        .compressed = ptl_nsa_compressed_length(t + 1, p->block, p->stride),
        .selected = k == n ? t + 1 : (k - 1) * size + last,
        .sliding = least(p->window, t + 1),
    };
    if (t + 1 < p->dense_len) x.selected = t + 1;
    return x;
}
