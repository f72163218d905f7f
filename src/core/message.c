/* Status names and the thread's last failure message. */
#include "message.h"

#include <stdarg.h>
#include <stdio.h>

static _Thread_local char last_message[512];

enum ptl_status ptl_fail(enum ptl_status status, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(last_message, sizeof last_message, format, args);
    va_end(args);
    return status;
}

const char *ptl_message(void) {
    return last_message;
}

const char *ptl_status_name(enum ptl_status status) {
    switch (status) {
    case PTL_OK: return "PTL_OK";
    case PTL_ERR_NULL: return "PTL_ERR_NULL";
    case PTL_ERR_DTYPE: return "PTL_ERR_DTYPE";
    case PTL_ERR_LAYOUT: return "PTL_ERR_LAYOUT";
    case PTL_ERR_SHAPE: return "PTL_ERR_SHAPE";
    case PTL_ERR_PARAM: return "PTL_ERR_PARAM";
    case PTL_ERR_SEQLEN: return "PTL_ERR_SEQLEN";
    case PTL_ERR_TABLE: return "PTL_ERR_TABLE";
    case PTL_ERR_ALIAS: return "PTL_ERR_ALIAS";
    case PTL_ERR_OVERFLOW: return "PTL_ERR_OVERFLOW";
    case PTL_ERR_NOMEM: return "PTL_ERR_NOMEM";
    }
    return "unknown status";
}
