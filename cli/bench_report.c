/* Three ways to print one row. */
#include "bench_report.h"

#include <math.h>
#include <stdio.h>

#include "runner.h"

static const char *const fields[] = {
    "op",          "problem",   "isa",           "executor",           "threads",     "min_ms",
    "median_ms",   "gflops",    "peak_fraction", "bandwidth_fraction", "extra_bytes", "error",
    "peak_gflops", "read_gbps", "copy_gbps",     "disturbed",          "cpu"};

enum { N_FIELDS = sizeof fields / sizeof fields[0] };

static void print_dashes(int n) {
    for (int i = 0; i < n; i++) putchar('-');
}

void report_begin(enum report_format format, const struct report_widths *widths) {
    if (format == REPORT_CSV)
        for (int i = 0; i < N_FIELDS; i++) printf("%s%c", fields[i], i + 1 < N_FIELDS ? ',' : '\n');
    if (format != REPORT_MD) return;
    printf(
        "| %-*s | %-*s | isa    | executor | threads |   min ms | median ms | GFLOP/s |  peak | "
        "bandwidth | extra bytes |   error | peak GFLOP/s | read GB/s | copy GB/s | disturbed |\n"
        "|:-",
        widths->op, "op", widths->problem, "problem");
    print_dashes(widths->op);
    printf("|:-");
    print_dashes(widths->problem);
    puts("|:-------|:---------|--------:|---------:|----------:|--------:|------:|----------:|"
         "------------:|--------:|-------------:|----------:|----------:|:----------|");
}

/* The number, or what stands for none. */
static const char *number(char text[32], const char *format, double x, const char *none) {
    snprintf(text, 32, "%s", none);
    if (!isnan(x)) snprintf(text, 32, format, x);
    return text;
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

static void print_md(const struct report_widths *widths, const struct bench_result *r) {
    char gflops[32], peak[32];
    printf("| %-*s | %-*s | %-6s | %-8s | %7d | %8.3f | %9.3f | %7s | %5s | %7.0f %% | %11.0f | "
           "%7.1e | %12.1f | %9.1f | %9.1f | %-9s |\n",
           widths->op, r->op, widths->problem, r->problem, ptl_isa_name(r->isa),
           executor_name(r->executor), r->threads, r->min_ms, r->median_ms,
           number(gflops, "%.1f", r->gflops, "-"),
           number(peak, "%.0f %%", 100.0 * r->peak_fraction, "-"), 100.0 * r->bandwidth_fraction,
           r->extra_bytes, r->error, r->peak_gflops, r->read_gbps, r->copy_gbps,
           r->disturbed ? "yes" : "no");
}

static void print_csv(const struct bench_result *r) {
    char gflops[32], peak[32];
    printf("%s,", r->op);
    print_csv_text(r->problem);
    printf(",%s,%s,%d,%.6g,%.6g,%s,%s,%.4g,%.0f,%.3g,%.6g,%.6g,%.6g,%s,", ptl_isa_name(r->isa),
           executor_name(r->executor), r->threads, r->min_ms, r->median_ms,
           number(gflops, "%.6g", r->gflops, ""), number(peak, "%.4g", r->peak_fraction, ""),
           r->bandwidth_fraction, r->extra_bytes, r->error, r->peak_gflops, r->read_gbps,
           r->copy_gbps, r->disturbed ? "yes" : "no");
    print_csv_text(r->cpu);
    putchar('\n');
}

static void print_jsonl(const struct bench_result *r) {
    char error[32], gflops[32], peak[32];
    printf("{\"op\": \"%s\", \"problem\": ", r->op);
    print_json_text(r->problem);
    printf(", \"isa\": \"%s\", \"executor\": \"%s\", \"threads\": %d, \"min_ms\": %.6g, "
           "\"median_ms\": %.6g, \"gflops\": %s, \"peak_fraction\": %s, "
           "\"bandwidth_fraction\": %.4g, \"extra_bytes\": %.0f, \"error\": %s, "
           "\"peak_gflops\": %.6g, \"read_gbps\": %.6g, \"copy_gbps\": %.6g, \"disturbed\": %s, "
           "\"cpu\": ",
           ptl_isa_name(r->isa), executor_name(r->executor), r->threads, r->min_ms, r->median_ms,
           number(gflops, "%.6g", r->gflops, "null"),
           number(peak, "%.4g", r->peak_fraction, "null"), r->bandwidth_fraction, r->extra_bytes,
           /* JSON has no infinity */
           number(error, "%.3g", isfinite(r->error) ? r->error : NAN, "null"), r->peak_gflops,
           r->read_gbps, r->copy_gbps, r->disturbed ? "true" : "false");
    print_json_text(r->cpu);
    puts("}");
}

void report_result(enum report_format format, const struct report_widths *widths,
                   const struct bench_result *r) {
    switch (format) {
    case REPORT_MD: print_md(widths, r); break;
    case REPORT_CSV: print_csv(r); break;
    case REPORT_JSONL: print_jsonl(r); break;
    }
    fflush(stdout); /* a case may take minutes; show what is done */
}
