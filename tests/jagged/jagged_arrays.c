/* Memory and contents of the jagged tests' arrays. */
#define _GNU_SOURCE
#include "jagged_arrays.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "elements.h"
#include "guard.h"
#include "ops/hstu_check.h"

enum { CANARY = 64, MAX_ARRAYS = 16, SMALL_BYTES = 64 << 10 };

/* Small arrays live in slots that stay; large ones come and go. */
static struct {
    struct guard small[MAX_ARRAYS], large[MAX_ARRAYS];
    char *twins[MAX_ARRAYS];
    int n_small, n_large, n_twins;
} pool;

static void release(void) {
    for (int i = 0; i < pool.n_small; i++)
        mprotect(pool.small[i].memory, pool.small[i].bytes, PROT_READ | PROT_WRITE);
    for (int i = 0; i < pool.n_large; i++) guard_destroy(&pool.large[i]);
    for (int i = 0; i < pool.n_twins; i++) free(pool.twins[i]);
    pool.n_small = pool.n_large = pool.n_twins = 0;
}

/* Room for an array of that size; the array ends where the room does. */
static struct guard take(size_t bytes) {
    if (pool.n_small == MAX_ARRAYS || pool.n_large == MAX_ARRAYS) abort();
    if (bytes + CANARY > SMALL_BYTES)
        return pool.large[pool.n_large++] = guard_create(bytes + CANARY);
    if (!pool.small[pool.n_small].memory) pool.small[pool.n_small] = guard_create(SMALL_BYTES);
    return pool.small[pool.n_small++];
}

static void protect(const struct guard *g) {
    mprotect(g->memory, g->bytes, PROT_READ);
}

/* ---- Problems -------------------------------------------------------------------------------- */

static int64_t below(struct jagged_problem *p, int64_t n) {
    return test_random_int(&p->random, 0, n - 1);
}

static int64_t row_elements(const struct jagged_problem *p) {
    int64_t n = 1;
    for (int i = 0; i < p->n_axes; i++) n *= p->extent[i];
    return n;
}

void jagged_float_type(struct jagged_problem *p) {
    static const enum ptl_dtype types[] = {PTL_F32, PTL_F16, PTL_BF16};
    p->dtype = types[below(p, 3)];
}

int64_t jagged_row_elements(const struct jagged_problem *p) {
    return row_elements(p);
}

void jagged_begin(struct jagged_problem *p, uint64_t seed, bool wide) {
    static const enum ptl_dtype dtypes[] = {PTL_F32, PTL_F16, PTL_BF16, PTL_I32, PTL_I64, PTL_U8};
    release();
    memset(p, 0, sizeof *p);
    p->random.state = seed;
    p->dtype = dtypes[below(p, 6)];
    p->index_type = below(p, 2) ? PTL_I32 : PTL_I64;
    p->n_axes = wide ? 1 + (int)below(p, 2) : (int)below(p, 3);
    p->n_seqs = below(p, MAX_SEQS + 1);
    if (wide) {
        const int64_t elements =
            test_random_int(&p->random, 16 << 10, 64 << 10) / (int64_t)ptl_dtype_bytes(p->dtype);
        p->extent[0] = p->n_axes == 1 ? elements : 3;
        p->extent[1] = elements / 3;
    } else {
        p->extent[0] = test_random_int(&p->random, below(p, 20) ? 1 : 0, 5);
        p->extent[1] = test_random_int(&p->random, 1, 4);
    }
}

void jagged_lengths(struct jagged_problem *p, int64_t most, int64_t *lengths) {
    const bool all_empty = below(p, 20) == 0;
    for (int64_t b = 0; b < p->n_seqs; b++)
        lengths[b] = all_empty || below(p, 4) == 0 ? 0 : test_random_int(&p->random, 0, most);
}

int64_t jagged_total(const struct jagged_problem *p, const int64_t *lengths) {
    int64_t total = 0;
    for (int64_t b = 0; b < p->n_seqs; b++) total += lengths[b];
    return total;
}

struct ptl_tensor jagged_indices(enum ptl_dtype dtype, int64_t n, const int64_t *numbers) {
    const size_t bytes = (size_t)n * ptl_dtype_bytes(dtype);
    const struct guard g = take(bytes);
    char *data = g.memory + g.bytes - bytes;
    for (int64_t i = 0; i < n; i++) {
        if (dtype == PTL_I64) ((int64_t *)data)[i] = numbers[i];
        else ((int32_t *)data)[i] = (int32_t)numbers[i];
    }
    protect(&g);
    return ptl_tensor_contiguous(data, dtype, 1, &n);
}

struct ptl_tensor jagged_offsets(struct jagged_problem *p, const int64_t *lengths) {
    int64_t offsets[MAX_SEQS + 1] = {0};
    for (int64_t b = 0; b < p->n_seqs; b++) offsets[b + 1] = offsets[b] + lengths[b];
    return jagged_indices(p->index_type, p->n_seqs + 1, offsets);
}

/* ---- Layouts --------------------------------------------------------------------------------- */

/* The shape, and strides with gaps; inputs may also repeat a row or run backwards. */
static struct ptl_tensor lay_out(struct jagged_problem *p, int lead, int64_t n, bool input) {
    struct ptl_tensor t = {.dtype = p->dtype, .ndim = lead + p->n_axes};
    int64_t stride = 1;
    if (lead == 2) t.shape[0] = p->n_seqs;
    t.shape[lead - 1] = n;
    for (int axis = t.ndim - 1; axis >= lead; axis--) {
        t.shape[axis] = p->extent[axis - lead];
        t.stride[axis] = stride;
        stride *= t.shape[axis];
    }
    const bool free_rows = p->n_axes > 0 && !p->no_views; /* else the rows are the last axis */
    if (free_rows && below(p, 2)) stride += test_random_int(&p->random, 0, 3);
    t.stride[lead - 1] = free_rows && input && below(p, 8) == 0   ? 0
                         : free_rows && input && below(p, 8) == 0 ? -stride
                                                                  : stride;
    if (lead == 2) t.stride[0] = stride * n + (p->no_views ? 0 : below(p, 3));
    return t;
}

/* Elements below data, and from data on. */
static void spans(const struct ptl_tensor *t, int64_t *below_data, int64_t *above) {
    *below_data = 0;
    *above = 1;
    for (int axis = 0; axis < t->ndim; axis++) {
        const int64_t reach = (t->shape[axis] - 1) * t->stride[axis];
        if (t->shape[axis] == 0) {
            *below_data = *above = 0;
            return;
        }
        *(reach < 0 ? below_data : above) += reach < 0 ? -reach : reach;
    }
}

static int64_t offset_of(const struct ptl_tensor *t, int lead, int64_t b, int64_t row) {
    return (lead == 2 ? b * t->stride[0] : 0) + row * t->stride[lead - 1];
}

static void fill_row(struct jagged_problem *p, char *row) {
    const int64_t n = row_elements(p);
    if (p->numbers && (p->dtype == PTL_F32 || p->dtype == PTL_F16 || p->dtype == PTL_BF16)) {
        for (int64_t i = 0; i < n; i++) ref_write(p->dtype, row, i, (double)(below(p, 17) - 8));
        return;
    }
    const size_t bytes = (size_t)n * ptl_dtype_bytes(p->dtype);
    for (size_t i = 0; i < bytes; i += 8) {
        const uint64_t bits = test_random_bits(&p->random);
        memcpy(row + i, &bits, bytes - i < 8 ? bytes - i : 8);
    }
}

static struct ptl_tensor input(struct jagged_problem *p, int lead, int64_t n, int64_t n_real) {
    struct ptl_tensor t = lay_out(p, lead, n, true);
    int64_t low, high;
    spans(&t, &low, &high);
    if (high == 0) return t; /* no elements: no data either */
    const size_t elem = ptl_dtype_bytes(t.dtype), bytes = (size_t)(low + high) * elem;
    const struct guard g = take(bytes);
    memset(g.memory + g.bytes - bytes, 0xff, bytes);
    t.data = g.memory + g.bytes - (size_t)high * elem;
    for (int64_t b = 0; b < (lead == 2 ? p->n_seqs : 1); b++)
        for (int64_t row = 0; row < n_real; row++)
            fill_row(p, (char *)t.data + offset_of(&t, lead, b, row) * (int64_t)elem);
    protect(&g);
    return t;
}

struct ptl_tensor jagged_input(struct jagged_problem *p, int64_t n_rows, int64_t n_real) {
    return input(p, 1, n_rows, n_real);
}

struct ptl_tensor jagged_dense_input(struct jagged_problem *p, int64_t n) {
    return input(p, 2, n, n);
}

static struct jagged_output output(struct jagged_problem *p, int lead, int64_t n) {
    struct jagged_output out = {.t = lay_out(p, lead, n, false)};
    int64_t low, high;
    spans(&out.t, &low, &high);
    out.twin = out.t;
    if (high == 0) return out;
    const size_t bytes = (size_t)high * ptl_dtype_bytes(out.t.dtype);
    const struct guard g = take(bytes);
    out.t.data = g.memory + g.bytes - bytes;
    out.low = (char *)out.t.data - CANARY;
    out.bytes = bytes + CANARY;
    out.twin_low = pool.twins[pool.n_twins++] = test_alloc(out.bytes);
    out.twin.data = out.twin_low + CANARY;
    memset(out.twin_low, 0xa5, out.bytes);
    jagged_reset(&out);
    return out;
}

struct jagged_output jagged_output(struct jagged_problem *p, int64_t n_rows) {
    return output(p, 1, n_rows);
}

struct jagged_output jagged_dense_output(struct jagged_problem *p, int64_t n) {
    return output(p, 2, n);
}

void jagged_reset(struct jagged_output *out) {
    if (out->low) memset(out->low, 0xa5, out->bytes);
}

void jagged_compare(const struct jagged_output *out, const char *name) {
    if (!out->low || memcmp(out->low, out->twin_low, out->bytes) == 0) return;
    size_t i = 0;
    while (out->low[i] == out->twin_low[i]) i++;
    FAIL("%s: byte %td is 0x%02x, expected 0x%02x", name, (ptrdiff_t)i - CANARY,
         (unsigned char)out->low[i], (unsigned char)out->twin_low[i]);
}

double jagged_number(const struct ptl_tensor *t, int lead, int64_t b, int64_t row, int64_t i) {
    return ref_read(t->dtype, t->data, offset_of(t, lead, b, row) + i);
}

/* ---- Contexts -------------------------------------------------------------------------------- */

struct ptl_context *jagged_context(int i) {
    const struct hstu_variant *v = hstu_variant(i);
    return v ? v->ctx : NULL;
}

int jagged_n_contexts(void) {
    int n = 0;
    while (jagged_context(n)) n++;
    return n;
}

void jagged_ok(enum ptl_status status, const char *what) {
    if (status != PTL_OK) FAIL("%s: %s: %s", what, ptl_status_name(status), ptl_message());
}
