/* The failure message of the calling thread, and the one way to fail. */
#ifndef PTL_MESSAGE_H
#define PTL_MESSAGE_H

#include <pantile/base.h>

/* Stores the sentence and returns the status: `return ptl_fail(PTL_ERR_SHAPE, "k: ...", ...)`. */
enum ptl_status ptl_fail(enum ptl_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
