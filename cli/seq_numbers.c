/* Reading and drawing numbers for sequences. */
#include "seq_numbers.h"

#include <math.h>

/* Deviation of the logarithm of lognormal lengths: a heavy tail, 5 % are over three times the
 * mean. */
static const double log_deviation = 1.0;

bool read_lengths(const char *key, const char *value, struct seq_numbers *x, struct refusal *r) {
    const char *rest;
    int64_t pair[2];
    if ((rest = after_prefix(value, "list:")) != NULL) {
        x->kind = SEQ_LIST;
        return read_integer_list(key, rest, 0, LINE_MAX_ROWS, &x->list, &x->n, r);
    }
    if (after_prefix(value, "summary:"))
        return refuse(
            r, "%s: a summary cannot be run again, expected list:, uniform: or lognormal:", key);
    if ((rest = after_prefix(value, "uniform:")) != NULL) {
        x->kind = SEQ_UNIFORM;
        if (!read_integer_pair(key, rest, "uniform:lo,hi", 0, LINE_MAX_ROWS, pair, r)) return false;
        if (pair[0] > pair[1])
            return refuse(r, "%s: '%.60s', expected uniform:lo,hi with lo at most hi", key, value);
    } else if ((rest = after_prefix(value, "lognormal:")) != NULL) {
        x->kind = SEQ_LOGNORMAL;
        if (!read_integer_pair(key, rest, "lognormal:mean,max", 1, LINE_MAX_ROWS, pair, r))
            return false;
    } else {
        return refuse(r,
                      "%s: '%.60s', expected uniform:lo,hi or lognormal:mean,max or list:a,b,...",
                      key, value);
    }
    x->low = pair[0];
    x->high = pair[1];
    return true;
}

int64_t draw_number(const struct seq_numbers *x, struct random_stream s, int64_t b) {
    switch (x->kind) {
    case SEQ_NUMBER: return x->low;
    case SEQ_LIST: return x->list[b];
    case SEQ_UNIFORM: return random_between(&s, x->low, x->high);
    case SEQ_RANDOM: return random_between(&s, 0, x->high);
    case SEQ_LOGNORMAL: {
        const double center = log((double)x->low) - 0.5 * log_deviation * log_deviation;
        const double length = floor(exp(center + log_deviation * random_normal(&s)) + 0.5);
        return length < 1.0 ? 1 : length > (double)x->high ? x->high : (int64_t)length;
    }
    case SEQ_ABSENT: break;
    }
    return 0;
}

bool is_drawn(const struct seq_numbers *x) {
    return x->kind == SEQ_UNIFORM || x->kind == SEQ_LOGNORMAL || x->kind == SEQ_RANDOM;
}
