/* Timed calls, for the commands that time: how many, how long, and their times. */
#ifndef PTL_TIMING_H
#define PTL_TIMING_H

#include "call.h"

struct probe;

struct timing {
    int64_t reps;   /* 0: as many as fit the time, 3 at least */
    double seconds; /* of timed calls; a warm-up of a tenth of it comes before, unless cold */
    struct probe *probe;
};

/* --reps and --time as they stand in a line of arguments; NULL: the default. */
bool read_timing(struct timing *t, const char *reps, const char *seconds, struct refusal *r);

struct times {
    double *seconds; /* ascending, to be freed, also after a refusal; zero it before */
    int64_t n, room;
};

/* Calls the operator on the context's threads; cold problems are evicted before each call. */
bool time_calls(const struct timing *t, struct ptl_context *ctx, const struct call *c, int threads,
                struct times *times, struct refusal *r);

#endif
