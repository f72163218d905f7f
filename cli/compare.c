/* Rows of out against the reference. A sample is one row from each of equal stretches of all rows,
 * first and last included, so that every part of every long sequence is met. */
#include "compare.h"

#include <math.h>
#include <stdlib.h>

#include "../ref/hstu.h"
#include "random.h"
#include "sequences.h"

/* Nanoseconds of the reference on one 3.2 GHz Zen 3 core: per pair for the question whether it is
 * valid, per valid pair and element for the arithmetic (1.5 with keys in cache, 3.2 from L3). */
static const double ask_ns = 13.0, element_ns = 3.0;

enum { OF_SAMPLE = 100, MIN_SAMPLE = 16 };

static int64_t rows_within(const struct ptl_hstu_params *a, double seconds, int64_t n_all) {
    const struct workload w = workload_of(a);
    const int last = a->q.ndim - 1;
    const double elements = (double)(a->q.shape[last] + a->v.shape[last]);
    const double all = 1e-9 * (w.all_pairs * ask_ns + w.valid_pairs * elements * element_ns);
    if (all <= seconds) return n_all;
    const int64_t n = (int64_t)((double)n_all * (seconds / all));
    return n < MIN_SAMPLE ? MIN_SAMPLE : n;
}

/* Row number k of n picked among n_all. */
static int64_t pick(const struct problem *p, int64_t k, int64_t n, int64_t n_all) {
    if (n >= n_all) return k;
    const int64_t quotient = n_all / n, rest = n_all % n; /* n_all * k would overflow */
    const int64_t begin = quotient * k + rest * k / n;
    const int64_t end = quotient * (k + 1) + rest * (k + 1) / n;
    struct random_stream s = random_stream_at(p->seed, OF_SAMPLE, k, n, 0);
    if (k == 0) return 0;
    if (k == n - 1) return n_all - 1;
    return random_between(&s, begin, end - 1);
}

static void compare_row(const struct problem *p, const struct sequence *s, int64_t b, int64_t row,
                        double *expected, double *largest, double *worst) {
    const struct ptl_hstu_params *a = &p->hstu;
    const int64_t heads = n_query_heads(a), dv = a->out.shape[a->out.ndim - 1];
    const int64_t i = row / heads, head = row % heads;
    const float *got = out_row(a, s, i, head);
    ref_hstu_forward_row(a, b, head, i, expected);
    for (int64_t d = 0; d < dv; d++) {
        const double difference = fabs((double)got[d] - expected[d]);
        if (fabs(expected[d]) > *largest) *largest = fabs(expected[d]);
        if (isnan(difference)) *worst = INFINITY;
        else if (difference > *worst) *worst = difference;
    }
}

static bool padding_is_clean(const struct ptl_hstu_params *a) {
    const int64_t dv = a->out.shape[a->out.ndim - 1];
    for (int64_t b = 0; b <= n_sequences(a); b++) {
        const struct sequence s = sequence_at(a, b);
        for (int64_t i = s.uq; i < s.room_q; i++)
            for (int64_t head = 0; head < n_query_heads(a); head++) {
                const float *got = out_row(a, &s, i, head);
                for (int64_t d = 0; d < dv; d++)
                    if (!(got[d] == 0.0f)) return false;
            }
    }
    return true;
}

bool compare_hstu(const struct problem *p, double seconds, struct comparison *c) {
    const struct ptl_hstu_params *a = &p->hstu;
    double *expected = malloc((size_t)a->out.shape[a->out.ndim - 1] * sizeof *expected);
    if (!expected) return false;
    double largest = 0.0, worst = 0.0;
    int64_t n_all = 0, done = 0, before = 0;
    for (int64_t b = 0; b < n_sequences(a); b++) n_all += sequence_at(a, b).uq * n_query_heads(a);
    int64_t n = rows_within(a, seconds, n_all);
    if (n > n_all) n = n_all;
    for (int64_t b = 0; b < n_sequences(a) && done < n; b++) {
        const struct sequence s = sequence_at(a, b);
        const int64_t end = before + s.uq * n_query_heads(a);
        for (int64_t row; done < n && (row = pick(p, done, n, n_all)) < end; done++)
            compare_row(p, &s, b, row - before, expected, &largest, &worst);
        before = end;
    }
    free(expected);
    c->error = worst == 0.0 ? 0.0 : largest > 0.0 ? worst / largest : INFINITY;
    c->n_rows = n;
    c->n_all_rows = n_all;
    c->padding_clean = padding_is_clean(a);
    return true;
}
