/* Where the rows of a sequence are: jagged, dense or paged. Shared by the files of the NSA
 * reference; not for others. */
#ifndef PTL_REF_NSA_ROWS_H
#define PTL_REF_NSA_ROWS_H

#include <pantile/base.h>

/* The rows of sequence b in [T, H, D] from `begin` on, in [B, S, H, D], or, with a table, in
 * [pages, page, H, D]. */
struct ref_rows {
    const struct ptl_tensor *t, *table;
    int64_t b, begin;
};

/* `offsets` are read for [T, H, D] only; a table that is NULL or has no data is none. */
struct ref_rows ref_rows(const struct ptl_tensor *t, const struct ptl_tensor *offsets,
                         const struct ptl_tensor *table, int64_t b);

/* Where a row of a head begins, in elements. */
int64_t ref_row_at(const struct ref_rows *r, int64_t row, int64_t head);

#endif
