/* The NSA part of the demo. */
#ifndef PTL_DEMO_NSA_H
#define PTL_DEMO_NSA_H

#include <pantile/pantile.h>
#include <stdbool.h>

/* Prints it; returns the exit status. progress: on stderr. */
int demo_nsa(const struct ptl_context_options *options, bool markdown, bool progress);

#endif
