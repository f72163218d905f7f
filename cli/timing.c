/* Warm-up, then calls one by one between two readings of the monotonic clock. */
#define _POSIX_C_SOURCE 200809L
#include "timing.h"

#include <stdlib.h>
#include <time.h>

#include "../bench/probe.h"
#include "runner.h"

static const double default_seconds = 1.0;
static const double warm_up_share = 0.1; /* of the time of timed calls */
enum { MIN_REPS = 3, MAX_REPS = 1000000 };

bool read_timing(struct timing *t, const char *reps, const char *seconds, struct refusal *r) {
    t->reps = 0;
    t->seconds = default_seconds;
    return (!reps || read_integer("--reps", reps, 1, MAX_REPS, &t->reps, r)) &&
           (!seconds || read_real("--time", seconds, &t->seconds, r));
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int compare_doubles(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static bool add_time(struct times *t, double seconds) {
    if (t->n == t->room) {
        const int64_t room = t->room ? 2 * t->room : 64;
        double *more = realloc(t->seconds, (size_t)room * sizeof *more);
        if (!more) return false;
        t->seconds = more;
        t->room = room;
    }
    t->seconds[t->n++] = seconds;
    return true;
}

/* spent: in calls; elapsed: with what is between them, which is long where caches are evicted. */
static bool enough(const struct timing *t, const struct times *times, double spent,
                   double elapsed) {
    if (t->reps) return times->n >= t->reps;
    return times->n >= MAX_REPS ||
           (times->n >= MIN_REPS && (spent >= t->seconds || elapsed >= 10.0 * t->seconds));
}

bool time_calls(const struct timing *t, struct ptl_context *ctx, const struct call *c, int threads,
                struct times *times, struct refusal *r) {
    const double start = now();
    while (!c->problem.cold && now() - start < warm_up_share * t->seconds)
        if (!call_operator(ctx, c, r)) return false;
    for (double spent = 0.0; !enough(t, times, spent, now() - start);) {
        if (c->problem.cold && !probe_evict(t->probe, threads))
            return refuse(r, "threads: none to be had");
        const double begin = now();
        if (!call_operator(ctx, c, r)) return false;
        const double seconds = now() - begin;
        spent += seconds;
        if (!add_time(times, seconds)) return refuse(r, "times: no memory");
    }
    qsort(times->seconds, (size_t)times->n, sizeof *times->seconds, compare_doubles);
    return true;
}
