/* Results of the bench as a markdown table, CSV or JSON lines. It only prints. */
#ifndef PTL_BENCH_REPORT_H
#define PTL_BENCH_REPORT_H

#include <pantile/pantile.h>
#include <stdbool.h>

enum report_format { REPORT_MD, REPORT_CSV, REPORT_JSONL };

struct bench_result {
    const char *op;
    const char *problem; /* the line without what has a column of its own */
    enum ptl_isa isa;
    enum ptl_executor_kind executor;
    int threads;
    double min_ms, median_ms;
    double gflops;             /* on unmasked work, in the fastest call */
    double peak_fraction;      /* of peak_gflops */
    double bandwidth_fraction; /* q, k, v and out once, in the fastest call, of read_gbps */
    double extra_bytes;        /* memory above inputs and output */
    double error;              /* max |got - expected| / max |expected| on sampled rows */
    double peak_gflops, read_gbps;
    bool disturbed; /* the machine was not the same all the time */
};

/* width: of the longest problem, for the table. */
void report_begin(enum report_format format, int width);
void report_result(enum report_format format, int width, const struct bench_result *r);

#endif
