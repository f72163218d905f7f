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
    double gflops;             /* on unmasked work, in the fastest call; NaN: it only copies */
    double peak_fraction;      /* of peak_gflops */
    double bandwidth_fraction; /* inputs and outputs once, in the fastest call, of read_gbps, or of
                                  copy_gbps where it only copies */
    double extra_bytes;        /* memory above inputs and output */
    double error;              /* max |got - expected| / max |expected| on sampled rows */
    double peak_gflops, read_gbps, copy_gbps;
    bool disturbed; /* the machine was not the same all the time */
    const char *cpu;
};

/* Widths of the longest operator and problem, for the table. */
struct report_widths {
    int op, problem;
};

void report_begin(enum report_format format, const struct report_widths *widths);
void report_result(enum report_format format, const struct report_widths *widths,
                   const struct bench_result *r);

#endif
