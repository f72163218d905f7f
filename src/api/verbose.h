/* PTL_VERBOSE=1: one line on stderr for each call, a problem line that run, check and bench
 * take. */
#ifndef PTL_VERBOSE_H
#define PTL_VERBOSE_H

#include "../ops/hstu.h"

/* The time before the call, or a negative number when nothing is to be logged. */
double ptl_verbose_begin(void);

/* Logs a finished call, of backward when g is not NULL; returns at once when begin is negative. */
void ptl_verbose_hstu(const char *op, const struct ptl_context *ctx,
                      const struct ptl_hstu_params *a, const struct ptl_hstu_problem *p,
                      const struct ptl_hstu_gradients *g, double begin);

#endif
