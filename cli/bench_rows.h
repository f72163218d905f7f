/* Results that `pantile bench -o jsonl` wrote, read back for a comparison. */
#ifndef PTL_BENCH_ROWS_H
#define PTL_BENCH_ROWS_H

#include "words.h"

struct bench_row {
    char *line; /* owned; the texts lie in it */
    const char *op, *problem, *isa, *executor;
    const char *cpu; /* NULL: not said */
    int threads;
    double min_ms;
    double peak_fraction; /* NaN: none */
    bool disturbed;
};

struct bench_rows {
    struct bench_row *row;
    int64_t n;
};

/* Fields in any order; those that a comparison does not need are skipped. Zero rows before;
 * bench_rows_free is due in any case. */
bool bench_rows_read(struct bench_rows *rows, const char *path, struct refusal *r);
void bench_rows_free(struct bench_rows *rows);

#endif
