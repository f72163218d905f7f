/* PTL_VERBOSE=1: one line on stderr for each call, a problem line that run, check and bench
 * take. */
#ifndef PTL_VERBOSE_H
#define PTL_VERBOSE_H

#include <stdio.h>

#include "../ops/hstu.h"
#include "../ops/nsa.h"

/* The time before the call, or a negative number when nothing is to be logged. */
double ptl_verbose_begin(void);

/* These log a finished call and return at once when begin is negative. g: NULL for forward. */
void ptl_verbose_hstu(const char *op, const struct ptl_context *ctx,
                      const struct ptl_hstu_params *a, const struct ptl_hstu_problem *p,
                      const struct ptl_hstu_gradients *g, double begin);
void ptl_verbose_nsa(const char *op, const struct ptl_context *ctx, const struct ptl_nsa_params *a,
                     const struct ptl_nsa_problem *p, double begin);
void ptl_verbose_compression(const char *op, const struct ptl_context *ctx,
                             const struct ptl_nsa_compression *c, double begin);

/* ---- For them -------------------------------------------------------------------------------- */

/* A line is put together first and written at once, so that threads' lines do not mix. */
struct ptl_verbose_line {
    FILE *f;
    char *text;
    size_t size;
    double ms;
};

bool ptl_verbose_open(struct ptl_verbose_line *line, double begin);

/* Ends the line with what ran, and writes it. */
void ptl_verbose_close(struct ptl_verbose_line *line, const struct ptl_context *ctx);

/* Lengths of n sequences: list:3,5 or, of more than PTL_VERBOSE_LISTED, summary:min,mean,max. */
enum { PTL_VERBOSE_LISTED = 64 };
typedef int64_t ptl_verbose_length(const void *of, int64_t i);
void ptl_verbose_lengths(FILE *f, const char *key, ptl_verbose_length *length, const void *of,
                         int64_t n);

#endif
