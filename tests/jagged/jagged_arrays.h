/* Arrays for the jagged tests: any layout, every array in front of an unmapped page, inputs
 * write protected, and for every output a twin that the reference writes, so that all bytes are
 * compared, those between the rows included. What is computed is the business of the tests. */
#ifndef PTL_TESTS_JAGGED_ARRAYS_H
#define PTL_TESTS_JAGGED_ARRAYS_H

#include <pantile/pantile.h>

#include "harness.h"

enum { MAX_SEQS = 8 };

/* What the arrays of a problem have in common, and the random numbers it is made of. */
struct jagged_problem {
    struct test_random random;
    enum ptl_dtype dtype, index_type;
    int n_axes; /* of a row */
    int64_t extent[2], n_seqs;
    bool numbers;  /* small whole numbers instead of any bytes: their sums are exact */
    bool no_views; /* plain arrays: no gaps between rows, no other strides */
};

/* Begins a problem: the arrays of the last one are gone. `wide` rows are of 16 to 64 KiB, so
 * that the work is cut into many ranges; the others have at most 20 elements. */
void jagged_begin(struct jagged_problem *p, uint64_t seed, bool wide);

/* Arithmetic: one of the float types instead. */
void jagged_float_type(struct jagged_problem *p);

/* B random lengths from 0 to most. */
void jagged_lengths(struct jagged_problem *p, int64_t most, int64_t *lengths);

int64_t jagged_total(const struct jagged_problem *p, const int64_t *lengths);

/* B + 1 offsets; guarded, write protected. */
struct ptl_tensor jagged_offsets(struct jagged_problem *p, const int64_t *lengths);

/* B or n numbers of the index type, or of another; guarded, write protected. */
struct ptl_tensor jagged_indices(enum ptl_dtype dtype, int64_t n, const int64_t *numbers);

/* [n_rows, ...] with random strides. Elements are random; from row n_real on they are 0xff
 * (NaN). */
struct ptl_tensor jagged_input(struct jagged_problem *p, int64_t n_rows, int64_t n_real);

/* [B, n, ...] likewise. */
struct ptl_tensor jagged_dense_input(struct jagged_problem *p, int64_t n);

/* An output full of 0xa5, and the twin of the same layout. */
struct jagged_output {
    struct ptl_tensor t, twin;
    char *low; /* first byte of the image; it reaches to the unmapped page, a canary in front */
    char *twin_low;
    size_t bytes;
};

struct jagged_output jagged_output(struct jagged_problem *p, int64_t n_rows);
struct jagged_output jagged_dense_output(struct jagged_problem *p, int64_t n);

/* Fills the output (not the twin) with 0xa5 again. */
void jagged_reset(struct jagged_output *out);

/* Fails the case unless every byte of the output is that of its twin. */
void jagged_compare(const struct jagged_output *out, const char *name);

/* Element i of row `row` (of sequence b when lead is 2) as a number. */
double jagged_number(const struct ptl_tensor *t, int lead, int64_t b, int64_t row, int64_t i);

/* Elements of a row. */
int64_t jagged_row_elements(const struct jagged_problem *p);

/* Contexts: all levels times serial, pools of 2 and 7, a host's threads. NULL ends them. */
struct ptl_context *jagged_context(int i);
int jagged_n_contexts(void);

/* Fails the case when the call did not return PTL_OK. */
void jagged_ok(enum ptl_status status, const char *what);

#endif
