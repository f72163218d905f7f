/* Three ways to print one row. */
#include "bench_report.h"

#include <math.h>
#include <stdio.h>

#include "runner.h"

static const char *const fields[] = {
    "op",          "problem",   "isa",         "executor",      "threads",
    "min_ms",      "median_ms", "gflops",      "peak_fraction", "bandwidth_fraction",
    "extra_bytes", "error",     "peak_gflops", "read_gbps",     "disturbed"};

enum { N_FIELDS = sizeof fields / sizeof fields[0] };

void report_begin(enum report_format format, int width) {
    if (format == REPORT_CSV)
        for (int i = 0; i < N_FIELDS; i++) printf("%s%c", fields[i], i + 1 < N_FIELDS ? ',' : '\n');
    if (format != REPORT_MD) return;
    printf("| op   | %-*s | isa    | executor | threads |   min ms | median ms | GFLOP/s |  peak | "
           "bandwidth | extra bytes |   error | peak GFLOP/s | read GB/s | disturbed |\n"
           "|:-----|:-",
           width, "problem");
    for (int i = 0; i < width; i++) putchar('-');
    puts("|:-------|:---------|--------:|---------:|----------:|--------:|------:|----------:|"
         "------------:|--------:|-------------:|----------:|:----------|");
}

static void print_csv_text(const char *text) {
    putchar('"');
    for (; *text; text++) {
        if (*text == '"') putchar('"');
        putchar(*text);
    }
    putchar('"');
}

static void print_json_text(const char *text) {
    putchar('"');
    for (; *text; text++) {
        if (*text == '"' || *text == '\\') putchar('\\');
        if ((unsigned char)*text < 0x20) printf("\\u%04x", *text);
        else putchar(*text);
    }
    putchar('"');
}

static void print_md(int width, const struct bench_result *r) {
    printf("| %-4s | %-*s | %-6s | %-8s | %7d | %8.3f | %9.3f | %7.1f | %3.0f %% | %7.0f %% | "
           "%11.0f | "
           "%7.1e | %12.1f | %9.1f | %-9s |\n",
           r->op, width, r->problem, ptl_isa_name(r->isa), executor_name(r->executor), r->threads,
           r->min_ms, r->median_ms, r->gflops, 100.0 * r->peak_fraction,
           100.0 * r->bandwidth_fraction, r->extra_bytes, r->error, r->peak_gflops, r->read_gbps,
           r->disturbed ? "yes" : "no");
}

static void print_csv(const struct bench_result *r) {
    printf("%s,", r->op);
    print_csv_text(r->problem);
    printf(",%s,%s,%d,%.6g,%.6g,%.6g,%.4g,%.4g,%.0f,%.3g,%.6g,%.6g,%s\n", ptl_isa_name(r->isa),
           executor_name(r->executor), r->threads, r->min_ms, r->median_ms, r->gflops,
           r->peak_fraction, r->bandwidth_fraction, r->extra_bytes, r->error, r->peak_gflops,
           r->read_gbps, r->disturbed ? "yes" : "no");
}

static void print_jsonl(const struct bench_result *r) {
    char error[32] = "null"; /* JSON has no infinity */
    if (isfinite(r->error)) snprintf(error, sizeof error, "%.3g", r->error);
    printf("{\"op\": \"%s\", \"problem\": ", r->op);
    print_json_text(r->problem);
    printf(", \"isa\": \"%s\", \"executor\": \"%s\", \"threads\": %d, \"min_ms\": %.6g, "
           "\"median_ms\": %.6g, \"gflops\": %.6g, \"peak_fraction\": %.4g, "
           "\"bandwidth_fraction\": %.4g, \"extra_bytes\": %.0f, \"error\": %s, "
           "\"peak_gflops\": %.6g, \"read_gbps\": %.6g, \"disturbed\": %s}\n",
           ptl_isa_name(r->isa), executor_name(r->executor), r->threads, r->min_ms, r->median_ms,
           r->gflops, r->peak_fraction, r->bandwidth_fraction, r->extra_bytes, error,
           r->peak_gflops, r->read_gbps, r->disturbed ? "true" : "false");
}

void report_result(enum report_format format, int width, const struct bench_result *r) {
    switch (format) {
    case REPORT_MD: print_md(width, r); break;
    case REPORT_CSV: print_csv(r); break;
    case REPORT_JSONL: print_jsonl(r); break;
    }
    fflush(stdout); /* a case may take minutes; show what is done */
}
