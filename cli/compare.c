/* Which comparison an operator has, and HSTU forward. */
#include "compare.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../ref/elements.h"
#include "../ref/hstu.h"
#include "compare_parts.h"
#include "random.h"
#include "sequences.h"

enum { OF_SAMPLE = 100 };

/* ---- Shared ---------------------------------------------------------------------------------- */

void tally_row(struct tally *tally, const struct ptl_tensor *t, int64_t at, const double *expected,
               int64_t n) {
    for (int64_t d = 0; d < n; d++) {
        const double got = ref_read(t->dtype, t->data, at + d);
        const double difference = got == expected[d] ? 0.0 : fabs(got - expected[d]);
        if (isfinite(expected[d]) && fabs(expected[d]) > tally->largest)
            tally->largest = fabs(expected[d]);
        if (isnan(difference)) tally->worst = INFINITY;
        else if (difference > tally->worst) tally->worst = difference;
    }
}

void add_part(struct comparison *result, const char *name, const struct tally *tally,
              double bound) {
    result->parts[result->n_parts].name = name;
    result->parts[result->n_parts].bound = bound;
    result->parts[result->n_parts++].error = tally->worst == 0.0    ? 0.0
                                             : tally->largest > 0.0 ? tally->worst / tally->largest
                                                                    : INFINITY;
}

int64_t rows_within(double all, double seconds, int64_t n_all, int64_t enough) {
    if (all <= seconds) return n_all;
    int64_t n = (int64_t)((double)n_all * (seconds / all));
    if (n < enough) n = enough;
    return n < n_all ? n : n_all;
}

int64_t pick_row(uint64_t seed, int64_t k, int64_t n, int64_t n_all) {
    if (n >= n_all) return k;
    const int64_t quotient = n_all / n, rest = n_all % n; /* n_all * k would overflow */
    const int64_t begin = quotient * k + rest * k / n;
    const int64_t end = quotient * (k + 1) + rest * (k + 1) / n;
    struct random_stream s = random_stream_at(seed, OF_SAMPLE, k, n, 0);
    if (k == 0) return 0;
    if (k == n - 1) return n_all - 1;
    return random_between(&s, begin, end - 1);
}

/* ---- Forward --------------------------------------------------------------------------------- */

static bool padding_is_clean(const struct ptl_hstu_params *a) {
    const int64_t dv = a->out.shape[a->out.ndim - 1];
    for (int64_t b = 0; b <= n_sequences(a); b++) {
        const struct sequence s = sequence_at(a, b);
        for (int64_t i = s.uq; i < s.room_q; i++)
            for (int64_t head = 0; head < n_query_heads(a); head++) {
                const int64_t at = ref_hstu_query_offset(a, &a->out, b, head, i);
                for (int64_t d = 0; d < dv; d++)
                    if (!(ref_read(a->out.dtype, a->out.data, at + d) == 0.0)) return false;
            }
    }
    return true;
}

bool compare_forward(const struct call *c, double seconds, struct comparison *result) {
    static const double bounds[] = {0, 5e-6, 2e-3, 1.6e-2}; /* f32, f16, bf16 */
    const struct problem *p = &c->problem;
    const struct ptl_hstu_params *a = &p->hstu;
    const int last = a->q.ndim - 1;
    const int64_t dv = a->out.shape[last], heads = n_query_heads(a);
    const struct workload w = workload_of(a);
    const double elements = (double)(a->q.shape[last] + dv);
    const double all = 1e-9 * (w.all_pairs * ASK_NS + w.valid_pairs * elements * ELEMENT_NS);
    const int64_t n_all = (int64_t)w.rows_q * heads,
                  n = rows_within(all, seconds, n_all, MIN_SAMPLE);
    struct tally tally = {0};
    double *expected = malloc((size_t)dv * sizeof *expected);
    if (!expected) return false;
    int64_t done = 0, before = 0;
    for (int64_t b = 0; b < n_sequences(a) && done < n; b++) {
        const int64_t end = before + sequence_at(a, b).uq * heads;
        for (int64_t row; done < n && (row = pick_row(p->seed, done, n, n_all)) < end; done++) {
            const int64_t i = (row - before) / heads, head = (row - before) % heads;
            ref_hstu_forward_row(a, b, head, i, expected);
            tally_row(&tally, &a->out, ref_hstu_query_offset(a, &a->out, b, head, i), expected, dv);
        }
        before = end;
    }
    free(expected);
    add_part(result, "out", &tally, bounds[a->q.dtype]);
    result->n_rows = n;
    result->n_all_rows = n_all;
    result->padding_clean = padding_is_clean(a);
    return true;
}

/* ---- Operators ------------------------------------------------------------------------------- */

bool compare_call(const struct call *c, double seconds, struct comparison *result) {
    memset(result, 0, sizeof *result);
    result->padding_clean = true;
    return c->op->compare(c, seconds, result);
}

double comparison_error(const struct comparison *result) {
    double worst = result->padding_clean ? 0.0 : INFINITY;
    for (int i = 0; i < result->n_parts; i++) worst = fmax(worst, result->parts[i].error);
    return worst;
}

bool comparison_passes(const struct comparison *result) {
    for (int i = 0; i < result->n_parts; i++)
        if (!(result->parts[i].error <= result->parts[i].bound)) return false;
    return result->padding_clean;
}
