/* The checks of compressing and appending. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "../core/message.h"
#include "check.h"
#include "nsa_check.h"

/* ---- Weights --------------------------------------------------------------------------------- */

static enum ptl_status check_weight(const char *name, const struct ptl_tensor *t, int n_axes,
                                    const struct ptl_nsa_compression *c) {
    TRY(ptl_check_layout(name, t, n_axes, n_axes));
    if (t->dtype != PTL_F32) TRY(ptl_nsa_check_float(name, t, c->dtype, "what is compressed"));
    TRY(ptl_check_extent(name, t, 0, c->block, "block"));
    TRY(ptl_check_extent(name, t, 1, c->n_heads, "heads"));
    return n_axes == 3 ? ptl_check_extent(name, t, 2, c->dim, "head size") : PTL_OK;
}

static enum ptl_status check_weights(const char *w_name, const struct ptl_tensor *w,
                                     const char *pe_name, const struct ptl_tensor *pe,
                                     enum ptl_nsa_mode mode, struct ptl_nsa_compression *c) {
    if (mode != PTL_NSA_MEAN && mode != PTL_NSA_WEIGHTED)
        return ptl_fail(PTL_ERR_PARAM, "mode: %d, expected one of its enum", (int)mode);
    if (mode == PTL_NSA_MEAN && ptl_given(w))
        return ptl_fail(PTL_ERR_PARAM, "%s: given with mode mean", w_name);
    if (mode == PTL_NSA_WEIGHTED) {
        TRY(ptl_check_required(w_name, w));
        TRY(check_weight(w_name, w, 2, c));
        c->w = (struct ptl_rows){w->data, (int64_t)ptl_dtype_bytes(w->dtype), 0, w->stride[0],
                                 w->stride[1]};
        c->w_dtype = w->dtype;
    }
    if (!ptl_given(pe)) return PTL_OK;
    TRY(check_weight(pe_name, pe, 3, c));
    c->pe = ptl_rows_of(pe);
    c->pe_dtype = pe->dtype;
    return PTL_OK;
}

static enum ptl_status check_head(const char *name, const struct ptl_tensor *t,
                                  struct ptl_nsa_compression *c) {
    const int row = t->ndim - 3;
    TRY(ptl_nsa_check_float(name, t, t->dtype, name));
    if (t->shape[row + 1] < 1)
        return ptl_fail(PTL_ERR_SHAPE, "%s: no heads, expected at least 1", name);
    if (t->shape[row + 2] < 1 || t->shape[row + 2] > 512)
        return ptl_fail(PTL_ERR_SHAPE, "%s: head size %" PRId64 ", expected 1 to 512", name,
                        t->shape[row + 2]);
    c->dtype = t->dtype;
    c->n_heads = t->shape[row + 1];
    c->dim = (int)t->shape[row + 2];
    return PTL_OK;
}

/* An array with the type, heads and head size of another. */
static enum ptl_status check_alike(const char *name, const struct ptl_tensor *t, const char *of,
                                   const struct ptl_nsa_compression *c) {
    const int row = t->ndim - 3;
    TRY(ptl_nsa_check_float(name, t, c->dtype, of));
    TRY(ptl_check_extent(name, t, row + 1, c->n_heads, "heads"));
    return ptl_check_extent(name, t, row + 2, c->dim, "head size");
}

/* ---- Compress -------------------------------------------------------------------------------- */

static enum ptl_status check_x(const struct ptl_nsa_compress_params *a,
                               struct ptl_nsa_compression *c) {
    const bool paged = ptl_given(&a->page_table);
    TRY(ptl_check_required("x", &a->x));
    TRY(ptl_check_layout("x", &a->x, paged ? 4 : 3, 4));
    TRY(check_head("x", &a->x, c));
    c->from.k = ptl_rows_of(&a->x);
    if (paged) {
        TRY(ptl_check_required("seqlens", &a->seqlens));
        TRY(ptl_nsa_check_index("seqlens", &a->seqlens, 1));
        c->n_seqs = a->seqlens.shape[0];
        TRY(ptl_nsa_check_table("page_table", &a->page_table, c->n_seqs));
        if (a->x.shape[1] < 1) return ptl_fail(PTL_ERR_TABLE, "x: page size 0, expected 1 or more");
        c->from.table = ptl_index_of(&a->page_table);
        c->from.table_width = a->page_table.shape[1];
        c->from.page_size = a->x.shape[1];
    } else if (a->x.ndim == 3) {
        TRY(ptl_check_required("seq_offsets", &a->seq_offsets));
        TRY(ptl_nsa_check_index("seq_offsets", &a->seq_offsets, 1));
        TRY(ptl_check_offsets("seq_offsets", &a->seq_offsets, a->x.shape[0]));
        c->n_seqs = a->seq_offsets.shape[0] - 1;
        c->from.offsets = ptl_index_of(&a->seq_offsets);
    } else {
        c->n_seqs = a->x.shape[0];
        c->dense_len = a->x.shape[1];
    }
    if (ptl_given(&a->seqlens)) {
        TRY(ptl_nsa_check_index("seqlens", &a->seqlens, 1));
        TRY(ptl_check_extent("seqlens", &a->seqlens, 0, c->n_seqs, "number of sequences"));
    }
    const struct ptl_index lens = ptl_index_of(&a->seqlens);
    for (int64_t b = 0; lens.data && b < c->n_seqs; b++) {
        const int64_t n = ptl_index_at(&lens, b), room = paged ? INT64_MAX : ptl_nsa_len(c, b);
        if (n < 0 || n > room)
            return ptl_fail(PTL_ERR_SEQLEN,
                            "seqlens: %" PRId64 " for sequence %" PRId64 ", expected 0 to %" PRId64,
                            n, b, room);
        if (paged)
            TRY(ptl_nsa_check_table_row("page_table", &a->page_table, b, n, a->x.shape[1],
                                        a->x.shape[0]));
    }
    c->lens = lens;
    return PTL_OK;
}

enum ptl_status ptl_nsa_check_compress(const struct ptl_nsa_compress_params *a,
                                       struct ptl_nsa_compression *c) {
    memset(c, 0, sizeof *c);
    if (!a) return ptl_fail(PTL_ERR_NULL, "params: NULL, expected arguments");
    if (a->struct_size != sizeof *a)
        return ptl_fail(PTL_ERR_PARAM,
                        "params.struct_size: %zu, expected %zu; use ptl_nsa_compress_params_init",
                        a->struct_size, sizeof *a);
    TRY(ptl_nsa_check_blocks(a->block, a->stride));
    c->block = a->block;
    c->stride = a->stride;
    TRY(check_x(a, c));
    TRY(check_weights("w", &a->w, "pe", &a->pe, a->mode, c));

    const bool dense = a->x.ndim == 4 && !ptl_given(&a->page_table);
    int64_t total = 0, most = 0;
    for (int64_t b = 0; b < c->n_seqs; b++) {
        total += ptl_nsa_blocks(c, b);
        if (ptl_nsa_blocks(c, b) > most) most = ptl_nsa_blocks(c, b);
    }
    TRY(ptl_check_required("y", &a->y));
    TRY(ptl_check_layout("y", &a->y, dense ? 4 : 3, dense ? 4 : 3));
    TRY(check_alike("y", &a->y, "x", c));
    if (dense) TRY(ptl_check_extent("y", &a->y, 0, c->n_seqs, "number of sequences"));
    if (a->y.shape[dense] < (dense ? most : total))
        return ptl_fail(PTL_ERR_SHAPE, "y: %" PRId64 " rows, expected %" PRId64 " for the blocks",
                        a->y.shape[dense], dense ? most : total);
    TRY(ptl_check_no_self_overlap("y", &a->y));
    const struct ptl_tensor *const in[7] = {&a->x,       &a->w,          &a->pe, &a->seq_offsets,
                                            &a->seqlens, &a->page_table, &a->y};
    static const char *const names[7] = {"x",       "w",          "pe", "seq_offsets",
                                         "seqlens", "page_table", "y"};
    for (int i = 0; i < 6; i++) TRY(ptl_check_no_overlap("y", &a->y, names[i], in[i]));
    c->to.k = ptl_rows_of(&a->y);
    c->packed = !dense;
    if (!ptl_given(&a->seq_offsets_y)) return PTL_OK;
    if (dense) return ptl_fail(PTL_ERR_PARAM, "seq_offsets_y: given, but y is dense");
    TRY(ptl_nsa_check_index("seq_offsets_y", &a->seq_offsets_y, 1));
    TRY(ptl_check_extent("seq_offsets_y", &a->seq_offsets_y, 0, c->n_seqs + 1,
                         "number of sequences + 1"));
    for (int i = 0; i < 7; i++)
        TRY(ptl_check_no_overlap("seq_offsets_y", &a->seq_offsets_y, names[i], in[i]));
    return PTL_OK;
}

/* ---- Append ---------------------------------------------------------------------------------- */

/* The arguments of one side, keys or values, and what they are called. */
struct side {
    const struct ptl_tensor *rows, *pages, *ring, *compressed, *w, *pe;
    const char *rows_name, *pages_name, *ring_name, *compressed_name, *w_name, *pe_name;
};

static struct side side_of(const struct ptl_nsa_append_params *a, bool values) {
    if (values)
        return (struct side){&a->v, &a->v_pages, &a->v_ring, &a->vc_pages, &a->w_v, &a->pe_v,
                             "v",   "v_pages",   "v_ring",   "vc_pages",   "w_v",   "pe_v"};
    return (struct side){&a->k, &a->k_pages, &a->k_ring, &a->kc_pages, &a->w_k, &a->pe_k,
                         "k",   "k_pages",   "k_ring",   "kc_pages",   "w_k",   "pe_k"};
}

static enum ptl_status check_lengths(const struct ptl_nsa_append_params *a,
                                     struct ptl_nsa_compression *c) {
    TRY(ptl_check_required("seqlens_old", &a->seqlens_old));
    TRY(ptl_check_required("seqlens_k", &a->seqlens_k));
    TRY(ptl_nsa_check_index("seqlens_old", &a->seqlens_old, 1));
    TRY(ptl_nsa_check_index("seqlens_k", &a->seqlens_k, 1));
    c->n_seqs = a->seqlens_k.shape[0];
    TRY(ptl_check_extent("seqlens_old", &a->seqlens_old, 0, c->n_seqs, "entries of seqlens_k"));
    c->lens = ptl_index_of(&a->seqlens_k);
    c->lens_old = ptl_index_of(&a->seqlens_old);
    for (int64_t b = 0; b < c->n_seqs; b++) {
        const int64_t old = ptl_index_at(&c->lens_old, b), n = ptl_index_at(&c->lens, b);
        if (old < 0 || n < old)
            return ptl_fail(PTL_ERR_SEQLEN,
                            "seqlens_k: %" PRId64 " for sequence %" PRId64
                            " after seqlens_old %" PRId64
                            ", expected no less, and nothing negative",
                            n, b, old);
    }
    return PTL_OK;
}

static enum ptl_status check_new_rows(const struct ptl_nsa_append_params *a, const struct side *s,
                                      struct ptl_nsa_compression *c) {
    const struct ptl_tensor *t = s->rows;
    if (!ptl_given(t)) return PTL_OK;
    TRY(ptl_check_layout(s->rows_name, t, 3, 4));
    TRY(check_alike(s->rows_name, t, "the cache", c));
    c->rows = ptl_rows_of(t);
    if (t->ndim == 4) {
        TRY(ptl_check_extent(s->rows_name, t, 0, c->n_seqs, "number of sequences"));
        c->dense_rows = t->shape[1];
    } else {
        TRY(ptl_check_required("seq_offsets", &a->seq_offsets));
        TRY(ptl_nsa_check_index("seq_offsets", &a->seq_offsets, 1));
        TRY(ptl_check_extent("seq_offsets", &a->seq_offsets, 0, c->n_seqs + 1,
                             "entries of seqlens_k + 1"));
        TRY(ptl_check_offsets("seq_offsets", &a->seq_offsets, t->shape[0]));
        c->offsets_rows = ptl_index_of(&a->seq_offsets);
    }
    for (int64_t b = 0; b < c->n_seqs; b++) {
        const int64_t n = ptl_nsa_len(c, b) - ptl_index_at(&c->lens_old, b);
        const int64_t have = t->ndim == 4 ? c->dense_rows
                                          : ptl_index_at(&c->offsets_rows, b + 1) -
                                                ptl_index_at(&c->offsets_rows, b);
        if (have < n || (t->ndim == 3 && have != n))
            return ptl_fail(PTL_ERR_SEQLEN,
                            "%s: %" PRId64 " rows for sequence %" PRId64 ", expected %" PRId64
                            " (seqlens_k - seqlens_old)",
                            s->rows_name, have, b, n);
    }
    return PTL_OK;
}

static enum ptl_status check_cache(const struct ptl_nsa_append_params *a, const struct side *s,
                                   struct ptl_nsa_compression *c) {
    const bool ring = ptl_given(s->ring);
    const struct ptl_tensor *t = ring ? s->ring : s->pages;
    const char *name = ring ? s->ring_name : s->pages_name;
    if (ring && ptl_given(s->pages))
        return ptl_fail(PTL_ERR_PARAM, "%s: given with %s; tokens live in one of them", name,
                        s->pages_name);
    TRY(ptl_check_layout(name, t, 4, 4));
    TRY(check_head(name, t, c));
    c->from.k = ptl_rows_of(t);
    c->ring = ring;
    if (ring) {
        TRY(ptl_check_extent(name, t, 0, c->n_seqs, "number of sequences"));
        TRY(ptl_check_extent(name, t, 1, c->block, "block"));
        return ptl_check_required(s->rows_name, s->rows);
    }
    if (t->shape[1] < 1)
        return ptl_fail(PTL_ERR_TABLE, "%s: page size 0, expected 1 or more", name);
    TRY(ptl_check_required("page_table", &a->page_table));
    TRY(ptl_nsa_check_table("page_table", &a->page_table, c->n_seqs));
    for (int64_t b = 0; b < c->n_seqs; b++)
        TRY(ptl_nsa_check_table_row("page_table", &a->page_table, b, ptl_nsa_len(c, b), t->shape[1],
                                    t->shape[0]));
    c->from.table = ptl_index_of(&a->page_table);
    c->from.table_width = a->page_table.shape[1];
    c->from.page_size = t->shape[1];
    return PTL_OK;
}

static int compare(const void *a, const void *b) {
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static enum ptl_status check_slots(const struct ptl_nsa_append_params *a,
                                   const struct ptl_tensor *pages, struct ptl_nsa_compression *c) {
    int64_t total = 0, n = 0;
    TRY(ptl_nsa_check_table("slots", &a->slots, c->n_seqs));
    c->slots = ptl_index_of(&a->slots);
    c->slots_width = a->slots.shape[1];
    c->slots_page = pages->shape[1];
    for (int64_t b = 0; b < c->n_seqs; b++) {
        const int64_t count = ptl_nsa_blocks(c, b) - ptl_nsa_blocks_old(c, b);
        if (count > c->slots_width)
            return ptl_fail(PTL_ERR_TABLE,
                            "slots: %" PRId64 " for sequence %" PRId64 ", expected %" PRId64
                            " for its new blocks",
                            c->slots_width, b, count);
        total += count;
    }
    if (total == 0) return PTL_OK;
    int64_t *used = malloc((size_t)total * sizeof *used);
    if (!used) return ptl_fail(PTL_ERR_NOMEM, "slots: no memory to compare %" PRId64, total);
    enum ptl_status status = PTL_OK;
    for (int64_t b = 0; b < c->n_seqs && status == PTL_OK; b++)
        for (int64_t j = 0; j < ptl_nsa_blocks(c, b) - ptl_nsa_blocks_old(c, b); j++) {
            const int64_t slot = ptl_index_at(&c->slots, b * c->slots_width + j);
            if (slot < -1 || slot / c->slots_page >= pages->shape[0]) {
                status = ptl_fail(PTL_ERR_TABLE,
                                  "slots: %" PRId64 " for sequence %" PRId64
                                  ", expected -1 or a row of the %" PRId64 " pages",
                                  slot, b, pages->shape[0]);
                break;
            }
            if (slot >= 0) used[n++] = slot;
        }
    if (status == PTL_OK) qsort(used, (size_t)n, sizeof *used, compare);
    for (int64_t i = 1; i < n && status == PTL_OK; i++)
        if (used[i] == used[i - 1])
            status = ptl_fail(PTL_ERR_TABLE, "slots: %" PRId64 " twice, expected each at most once",
                              used[i]);
    free(used);
    return status;
}

static enum ptl_status check_compressed(const struct ptl_nsa_append_params *a, const struct side *s,
                                        struct ptl_nsa_compression *c) {
    const struct ptl_tensor *t = s->compressed;
    if (!ptl_given(t)) return PTL_OK;
    TRY(ptl_check_layout(s->compressed_name, t, 4, 4));
    TRY(check_alike(s->compressed_name, t, "the cache", c));
    if (t->shape[1] < 1)
        return ptl_fail(PTL_ERR_TABLE, "%s: page size 0, expected 1 or more", s->compressed_name);
    c->to.k = ptl_rows_of(t);
    if (ptl_given(&a->slots) && ptl_given(&a->page_table_c))
        return ptl_fail(PTL_ERR_PARAM, "slots: given with page_table_c; expected one of them");
    if (ptl_given(&a->slots)) return check_slots(a, t, c);
    TRY(ptl_check_required("page_table_c", &a->page_table_c));
    TRY(ptl_nsa_check_table("page_table_c", &a->page_table_c, c->n_seqs));
    for (int64_t b = 0; b < c->n_seqs; b++)
        TRY(ptl_nsa_check_table_row("page_table_c", &a->page_table_c, b, ptl_nsa_blocks(c, b),
                                    t->shape[1], t->shape[0]));
    c->to.table = ptl_index_of(&a->page_table_c);
    c->to.table_width = a->page_table_c.shape[1];
    c->to.page_size = t->shape[1];
    return PTL_OK;
}

/* c->n_seqs 0 and nothing else: the side is absent. */
static enum ptl_status check_side(const struct ptl_nsa_append_params *a, const struct side *s,
                                  struct ptl_nsa_compression *c) {
    memset(c, 0, sizeof *c);
    if (!ptl_given(s->pages) && !ptl_given(s->ring)) {
        if (ptl_given(s->rows) || ptl_given(s->compressed))
            return ptl_fail(PTL_ERR_NULL, "%s: missing, but %s is given", s->pages_name,
                            ptl_given(s->rows) ? s->rows_name : s->compressed_name);
        return PTL_OK;
    }
    c->block = a->block;
    c->stride = a->stride;
    TRY(check_lengths(a, c));
    TRY(check_cache(a, s, c));
    TRY(check_new_rows(a, s, c));
    TRY(check_compressed(a, s, c));
    return check_weights(s->w_name, s->w, s->pe_name, s->pe, a->mode, c);
}

static enum ptl_status check_append_overlaps(const struct ptl_nsa_append_params *a) {
    const struct ptl_tensor *out[6];
    const struct ptl_tensor *const in[] = {&a->k,           &a->v,         &a->w_k,
                                           &a->w_v,         &a->pe_k,      &a->pe_v,
                                           &a->seqlens_old, &a->seqlens_k, &a->seq_offsets,
                                           &a->page_table,  &a->slots,     &a->page_table_c};
    const char *names[6];
    static const char *const in_names[] = {
        "k",           "v",         "w_k",         "w_v",        "pe_k",  "pe_v",
        "seqlens_old", "seqlens_k", "seq_offsets", "page_table", "slots", "page_table_c"};
    int n = 0;
    for (int values = 0; values < 2; values++) {
        const struct side s = side_of(a, values);
        const struct ptl_tensor *t[3] = {s.pages, s.ring, s.compressed};
        const char *const t_names[3] = {s.pages_name, s.ring_name, s.compressed_name};
        for (int i = 0; i < 3; i++)
            if (ptl_given(t[i])) {
                out[n] = t[i];
                names[n++] = t_names[i];
            }
    }
    for (int i = 0; i < n; i++) {
        TRY(ptl_check_no_self_overlap(names[i], out[i]));
        for (size_t j = 0; j < sizeof in / sizeof *in; j++)
            TRY(ptl_check_no_overlap(names[i], out[i], in_names[j], in[j]));
        for (int j = 0; j < i; j++) TRY(ptl_check_no_overlap(names[i], out[i], names[j], out[j]));
    }
    return PTL_OK;
}

enum ptl_status ptl_nsa_check_append(const struct ptl_nsa_append_params *a,
                                     struct ptl_nsa_compression *keys,
                                     struct ptl_nsa_compression *values) {
    if (!a) return ptl_fail(PTL_ERR_NULL, "params: NULL, expected arguments");
    if (a->struct_size != sizeof *a)
        return ptl_fail(PTL_ERR_PARAM,
                        "params.struct_size: %zu, expected %zu; use ptl_nsa_append_params_init",
                        a->struct_size, sizeof *a);
    TRY(ptl_nsa_check_blocks(a->block, a->stride));
    const struct side k = side_of(a, false), v = side_of(a, true);
    if (!ptl_given(k.pages) && !ptl_given(k.ring) && !ptl_given(v.pages) && !ptl_given(v.ring))
        return ptl_fail(PTL_ERR_NULL, "k_pages: missing, and so are v_pages, k_ring and v_ring; "
                                      "expected at least one");
    TRY(check_side(a, &k, keys));
    TRY(check_side(a, &v, values));
    return check_append_overlaps(a);
}

/* ---- Decode ---------------------------------------------------------------------------------- */

struct named {
    const char *name;
    const struct ptl_tensor *t;
};

static enum ptl_status check_apart(const struct named *out, int n_out, const struct named *in,
                                   int n_in) {
    for (int i = 0; i < n_out; i++)
        for (int j = 0; j < n_in; j++)
            TRY(ptl_check_no_overlap(out[i].name, out[i].t, in[j].name, in[j].t));
    return PTL_OK;
}

enum ptl_status ptl_nsa_check_step(const struct ptl_nsa_append_params *a,
                                   const struct ptl_nsa_params *p) {
    const struct named caches[] = {{"k_pages", &a->k_pages},   {"v_pages", &a->v_pages},
                                   {"k_ring", &a->k_ring},     {"v_ring", &a->v_ring},
                                   {"kc_pages", &a->kc_pages}, {"vc_pages", &a->vc_pages}};
    const struct named read_later[] = {{"q", &p->q},
                                       {"q_cmp", &p->q_cmp},
                                       {"gates", &p->gates},
                                       {"count", &p->count},
                                       {"lse_in", &p->lse_in},
                                       {"seq_offsets_q", &p->seq_offsets_q},
                                       {"seqlens_k", &p->seqlens_k},
                                       {"page_table", &p->page_table},
                                       {"page_table_c", &p->page_table_c}};
    const struct named outputs[] = {{"out", &p->out},         {"out_cmp", &p->out_cmp},
                                    {"out_slc", &p->out_slc}, {"out_swa", &p->out_swa},
                                    {"lse_cmp", &p->lse_cmp}, {"lse_slc", &p->lse_slc},
                                    {"lse_swa", &p->lse_swa}, {"importance", &p->importance},
                                    {"idx", &p->idx},         {"nsel", &p->nsel}};
    const struct named appended[] = {{"k", &a->k},        {"v", &a->v},       {"w_k", &a->w_k},
                                     {"w_v", &a->w_v},    {"pe_k", &a->pe_k}, {"pe_v", &a->pe_v},
                                     {"slots", &a->slots}};
#define N(list) (int)(sizeof(list) / sizeof(list)[0])
    TRY(check_apart(caches, N(caches), read_later, N(read_later)));
    TRY(check_apart(outputs, N(outputs), caches, N(caches)));
    return check_apart(outputs, N(outputs), appended, N(appended));
#undef N
}
