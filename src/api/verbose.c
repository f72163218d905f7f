/* What the log lines of all calls share: when, how a line is put together, what ran it. */
#define _GNU_SOURCE
#include "verbose.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

double ptl_verbose_begin(void) {
    const char *wanted = getenv("PTL_VERBOSE");
    struct timespec t;
    if (!wanted || strcmp(wanted, "1") != 0) return -1.0;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

bool ptl_verbose_open(struct ptl_verbose_line *line, double begin) {
    if (begin < 0.0) return false;
    line->ms = 1e3 * (ptl_verbose_begin() - begin);
    line->text = NULL;
    line->f = open_memstream(&line->text, &line->size);
    return line->f != NULL;
}

void ptl_verbose_close(struct ptl_verbose_line *line, const struct ptl_context *ctx) {
    static const char *const executors[] = {"auto", "serial", "pool", "host"};
    fprintf(line->f, " isa=%s executor=%s threads=%d ms=%.3f\n", ptl_isa_name(ctx->isa),
            executors[ctx->executor.kind], ctx->executor.n_threads, line->ms);
    if (fclose(line->f) == 0) fputs(line->text, stderr);
    free(line->text);
}

void ptl_verbose_lengths(FILE *f, const char *key, ptl_verbose_length *length, const void *of,
                         int64_t n) {
    int64_t least = INT64_MAX, most = 0;
    double sum = 0.0;
    fprintf(f, " %s=%s", key, n <= PTL_VERBOSE_LISTED ? "list:" : "summary:");
    for (int64_t i = 0; i < n; i++) {
        const int64_t x = length(of, i);
        if (n <= PTL_VERBOSE_LISTED) fprintf(f, "%s%" PRId64, i ? "," : "", x);
        if (x < least) least = x;
        if (x > most) most = x;
        sum += (double)x;
    }
    if (n > PTL_VERBOSE_LISTED)
        fprintf(f, "%" PRId64 ",%.1f,%" PRId64, least, sum / (double)n, most);
}
