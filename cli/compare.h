/* A result of the library against the reference in double: all rows, or a sample of them.
 * It judges nothing; the bound is here for those who do. */
#ifndef PTL_COMPARE_H
#define PTL_COMPARE_H

#include "problem.h"

/* Largest error that passes: docs/hstu.md. */
#define HSTU_ERROR_BOUND 5e-6

struct comparison {
    double error;       /* max |got - expected| / max |expected|; infinite for a NaN */
    int64_t n_rows;     /* rows compared: a query row of one head is one */
    int64_t n_all_rows; /* rows there are */
    bool padding_clean; /* every padding row of out is 0 */
};

/* Compares p's out, which was computed. Samples when all rows would take the reference more than
 * about `seconds`; the sample depends on the problem alone. False: no memory. */
bool compare_hstu(const struct problem *p, double seconds, struct comparison *c);

#endif
