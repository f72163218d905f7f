/* Copies of parts of problems, by the reference's idea of what belongs to which row. */
#include "hstu_part.h"

#include <stdlib.h>
#include <string.h>

#include "../../ref/hstu.h"
#include "guard.h"
#include "hstu_check.h"

/* ---- Where rows are -------------------------------------------------------------------------- */

static int64_t index_at(const struct ptl_tensor *t, int64_t i) {
    if (t->ndim == 0) i = 0;
    return t->dtype == PTL_I64 ? ((const int64_t *)t->data)[i] : ((const int32_t *)t->data)[i];
}

/* The place of row i of sequence b among all rows of out in C order, heads not counted. */
static int64_t out_row(const struct ptl_hstu_params *p, int64_t b, int64_t i) {
    return p->q.ndim == 4 ? b * p->q.shape[1] + i : index_at(&p->seq_offsets_q, b) + i;
}

static const char *row_of(const struct ptl_hstu_params *p, const struct ptl_tensor *t, int64_t b,
                          int64_t head, int64_t i) {
    const char *data = t->data;
    const int64_t bytes = (int64_t)ptl_dtype_bytes(t->dtype);
    if (t->ndim == 4)
        return data + bytes * (b * t->stride[0] + i * t->stride[1] + head * t->stride[2]);
    const bool keys = t != &p->q && p->seq_offsets_k.data;
    const int64_t first = index_at(keys ? &p->seq_offsets_k : &p->seq_offsets_q, b);
    return data + bytes * ((first + i) * t->stride[0] + head * t->stride[1]);
}

static int64_t sequence(const struct hstu_selection *s, int64_t n) {
    return s->seqs ? s->seqs[n] : n;
}

static int64_t n_sequences(const struct ptl_hstu_params *whole, const struct hstu_selection *s) {
    return s->seqs ? s->n_seqs : ref_hstu_n_seqs(whole);
}

/* The first query row of sequence b that the part takes. */
static int64_t first_row(const struct ptl_hstu_params *whole, const struct hstu_selection *s,
                         int64_t b) {
    const int64_t uq = ref_hstu_uq(whole, b);
    return s->last_rows > 0 && s->last_rows < uq ? uq - s->last_rows : 0;
}

/* ---- Copies ---------------------------------------------------------------------------------- */

static void *take(struct hstu_part *part, int64_t n, size_t bytes) {
    return part->memory[part->n_memory++] = test_alloc((size_t)n * bytes);
}

static void copy_rows(struct hstu_part *part, const struct ptl_hstu_params *whole,
                      const struct hstu_selection *s, const struct ptl_tensor *from,
                      struct ptl_tensor *to) {
    const bool queries = from == &whole->q;
    const int64_t *shape = from->shape + from->ndim - 3; /* rows, heads, columns */
    const int64_t group = whole->q.shape[from->ndim - 2] / shape[1];
    const int64_t heads = s->head < 0 ? shape[1] : 1, dim = shape[2];
    int64_t rows = 0;
    for (int64_t n = 0; n < n_sequences(whole, s); n++) {
        const int64_t b = sequence(s, n);
        rows += queries ? ref_hstu_uq(whole, b) - first_row(whole, s, b) : ref_hstu_uk(whole, b);
    }
    const size_t row_bytes = (size_t)dim * ptl_dtype_bytes(from->dtype);
    char *at = take(part, rows * heads, row_bytes);
    *to = ptl_tensor_contiguous(at, from->dtype, 3, (const int64_t[]){rows, heads, dim});
    for (int64_t n = 0; n < n_sequences(whole, s); n++) {
        const int64_t b = sequence(s, n);
        const int64_t end = queries ? ref_hstu_uq(whole, b) : ref_hstu_uk(whole, b);
        for (int64_t i = queries ? first_row(whole, s, b) : 0; i < end; i++)
            for (int64_t head = 0; head < heads; head++, at += row_bytes)
                memcpy(at, row_of(whole, from, b, s->head < 0 ? head : s->head / group, i),
                       row_bytes);
    }
}

static void make_offsets(struct hstu_part *part, const struct ptl_hstu_params *whole,
                         const struct hstu_selection *s) {
    const int64_t n_seqs = n_sequences(whole, s), n = n_seqs + 1;
    int64_t *q = take(part, n, sizeof *q), *k = take(part, n, sizeof *k);
    q[0] = k[0] = 0;
    for (int64_t x = 0; x < n_seqs; x++) {
        const int64_t b = sequence(s, x);
        q[x + 1] = q[x] + ref_hstu_uq(whole, b) - first_row(whole, s, b);
        k[x + 1] = k[x] + ref_hstu_uk(whole, b);
    }
    part->p.seq_offsets_q = ptl_tensor_contiguous(q, PTL_I64, 1, &n);
    part->p.seq_offsets_k = ptl_tensor_contiguous(k, PTL_I64, 1, &n);
}

static void copy_specials(struct hstu_part *part, const struct ptl_hstu_params *whole,
                          const struct hstu_selection *s, const struct ptl_tensor *from,
                          struct ptl_tensor *to) {
    const int64_t n = n_sequences(whole, s);
    if (!from->data) return;
    int64_t *data = take(part, n, sizeof *data);
    for (int64_t x = 0; x < n; x++) data[x] = index_at(from, sequence(s, x));
    *to = ptl_tensor_contiguous(data, PTL_I64, 1, &n);
}

static void copy_scale(struct hstu_part *part, const struct ptl_hstu_params *whole,
                       const struct hstu_selection *s) {
    const struct ptl_tensor *from = &whole->attn_scale;
    if (!from->data || from->ndim == 0) return; /* a number stays as it is */
    const int64_t n = part->p.q.shape[0];
    float *to = take(part, n, sizeof *to);
    part->p.attn_scale = ptl_tensor_contiguous(to, PTL_F32, 1, &n);
    for (int64_t x = 0; x < n_sequences(whole, s); x++) {
        const int64_t b = sequence(s, x);
        for (int64_t i = first_row(whole, s, b); i < ref_hstu_uq(whole, b); i++)
            *to++ =
                ((const float *)
                     from->data)[from->ndim == 2 ? b * from->stride[0] + i : out_row(whole, b, i)];
    }
}

/* A mask of its own for each sequence and head of the part, with junk where no row or column is. */
static void make_mask(struct hstu_part *part, const struct ptl_hstu_params *whole,
                      const struct hstu_selection *s) {
    const int64_t n_seqs = n_sequences(whole, s), n_heads = part->p.q.shape[1];
    int64_t rows = 0, columns = 0;
    for (int64_t x = 0; x < n_seqs; x++) {
        const int64_t b = sequence(s, x), uq = ref_hstu_uq(whole, b) - first_row(whole, s, b);
        if (uq > rows) rows = uq;
        if (ref_hstu_uk(whole, b) > columns) columns = ref_hstu_uk(whole, b);
    }
    const int64_t shape[4] = {n_seqs, n_heads, rows, columns};
    uint8_t *to = take(part, n_seqs * n_heads * rows * columns, 1);
    memset(to, 0xff, (size_t)(n_seqs * n_heads * rows * columns));
    for (int64_t x = 0; x < n_seqs; x++) {
        const int64_t b = sequence(s, x), first = first_row(whole, s, b);
        for (int64_t head = 0; head < n_heads; head++, to += rows * columns)
            for (int64_t i = first; i < ref_hstu_uq(whole, b); i++)
                for (int64_t j = 0; j < ref_hstu_uk(whole, b); j++)
                    to[(i - first) * columns + j] =
                        ref_hstu_valid(whole, b, s->head < 0 ? head : s->head, i, j);
    }
    part->p.mask = ptl_tensor_contiguous(part->memory[part->n_memory - 1], PTL_U8, 4, shape);
}

void hstu_part_create(struct hstu_part *part, const struct ptl_hstu_params *whole,
                      const struct hstu_selection *s) {
    part->p = *whole;
    part->n_memory = 0;
    struct ptl_hstu_params *p = &part->p;
    p->seqused_q.data = p->seqused_k.data = NULL;
    p->max_seqlen_q = p->max_seqlen_k = -1;
    copy_rows(part, whole, s, &whole->q, &p->q);
    copy_rows(part, whole, s, &whole->k, &p->k);
    copy_rows(part, whole, s, &whole->v, &p->v);
    const int64_t shape[3] = {p->q.shape[0], p->q.shape[1], p->v.shape[2]};
    void *out = take(part, shape[0] * shape[1] * shape[2], ptl_dtype_bytes(whole->out.dtype));
    p->out = ptl_tensor_contiguous(out, whole->out.dtype, 3, shape);
    make_offsets(part, whole, s);
    copy_specials(part, whole, s, &whole->num_contexts, &p->num_contexts);
    copy_specials(part, whole, s, &whole->num_targets, &p->num_targets);
    copy_scale(part, whole, s);
    if (whole->mask.data || s->rule_as_mask) make_mask(part, whole, s);
    if (s->rule_as_mask) {
        p->window_left = -1;
        p->window_right = 0;
        p->min_full_attn_seq_len = 0;
        p->num_contexts.data = p->num_targets.data = NULL;
    }
}

void hstu_part_destroy(struct hstu_part *part) {
    for (int i = 0; i < part->n_memory; i++) free(part->memory[i]);
}

void hstu_part_compare(const struct hstu_part *part, const float *part_out,
                       const struct ptl_hstu_params *whole, const float *whole_out,
                       const struct hstu_selection *s, const char *what) {
    const int64_t n_heads = part->p.q.shape[1], dv = part->p.v.shape[2];
    const int64_t whole_heads = whole->q.shape[whole->q.ndim - 2];
    for (int64_t x = 0; x < n_sequences(whole, s); x++) {
        const int64_t b = sequence(s, x);
        for (int64_t i = first_row(whole, s, b); i < ref_hstu_uq(whole, b); i++)
            for (int64_t head = 0; head < n_heads; head++, part_out += dv) {
                const int64_t whole_head = s->head < 0 ? head : s->head;
                const float *expected =
                    whole_out + (out_row(whole, b, i) * whole_heads + whole_head) * dv;
                if (memcmp(part_out, expected, (size_t)dv * sizeof(float)) == 0) continue;
                int64_t d = 0;
                while (float_bits(part_out[d]) == float_bits(expected[d])) d++;
                FAIL("%s: sequence %lld row %lld head %lld column %lld is %.9g, in the whole %.9g",
                     what, (long long)b, (long long)i, (long long)whole_head, (long long)d,
                     (double)part_out[d], (double)expected[d]);
                return;
            }
    }
}
