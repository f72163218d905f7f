/* One row at a time, whatever the layout. */
#include "nsa_rows.h"

#include <stddef.h>

#include "elements.h"

struct ref_rows ref_rows(const struct ptl_tensor *t, const struct ptl_tensor *offsets,
                         const struct ptl_tensor *table, int64_t b) {
    const int is_jagged = t->data && t->ndim == 3;
    return (struct ref_rows){t, table && table->data ? table : NULL, b,
                             is_jagged ? ref_index(offsets, b) : 0};
}

int64_t ref_row_at(const struct ref_rows *r, int64_t row, int64_t head) {
    const struct ptl_tensor *t = r->t;
    if (t->ndim == 3) return (r->begin + row) * t->stride[0] + head * t->stride[1];
    if (!r->table) return r->b * t->stride[0] + row * t->stride[1] + head * t->stride[2];
    const int64_t size = t->shape[1];
    const int64_t page = ref_index(r->table, r->b * r->table->shape[1] + row / size);
    return page * t->stride[0] + row % size * t->stride[1] + head * t->stride[2];
}
