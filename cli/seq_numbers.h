/* One number for each sequence of a generated problem, as a line says it: all alike, listed or
 * drawn. What it counts, lengths or targets, is the line's business. */
#ifndef PTL_SEQ_NUMBERS_H
#define PTL_SEQ_NUMBERS_H

#include <stdbool.h>
#include <stdint.h>

#include "random.h"
#include "words.h"

/* Numbers of rows fit 64 bits under these limits; sizes of arrays are checked when they are
 * made. */
enum { LINE_MAX_SEQS = 1 << 24, LINE_MAX_HEADS = 1 << 16, LINE_MAX_DIM = 1 << 12 };
#define LINE_MAX_ROWS ((int64_t)1 << 36)

enum seq_kind {
    SEQ_ABSENT,
    SEQ_NUMBER,    /* N, the same for all */
    SEQ_LIST,      /* list:a,b,... */
    SEQ_UNIFORM,   /* uniform:lo,hi, both included */
    SEQ_LOGNORMAL, /* lognormal:mean,max */
    SEQ_RANDOM     /* random, or random:max: from 0 to max or what fits */
};

/* One number per sequence. */
struct seq_numbers {
    enum seq_kind kind;
    int64_t low, high; /* number: low; lognormal: mean and max; random: high */
    int64_t *list;     /* owned */
    int64_t n;
};

/* uniform:lo,hi | lognormal:mean,max | list:a,b,... */
bool read_lengths(const char *key, const char *value, struct seq_numbers *x, struct refusal *r);

/* The number of sequence b, whose stream is s; 0 when absent. */
int64_t draw_number(const struct seq_numbers *x, struct random_stream s, int64_t b);

/* Such numbers are made to fit what else the line says; listed ones are refused. */
bool is_drawn(const struct seq_numbers *x);

#endif
