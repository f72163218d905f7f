/* Results of the library against the reference in double: all rows, or a sample of them. */
#ifndef PTL_COMPARE_H
#define PTL_COMPARE_H

#include "call.h"

struct comparison {
    int n_parts; /* outputs compared */
    struct {
        const char *name;
        double error; /* max |got - expected| / max |expected|; infinite for a NaN */
        double bound; /* largest error that passes: docs/hstu.md, docs/nsa.md; 0 for copies */
    } parts[CALL_MAX_OUTPUTS];
    int64_t n_rows;     /* rows compared: a row of one head is one */
    int64_t n_all_rows; /* rows there are */
    bool padding_clean; /* every padding row of out is 0 */
};

/* Compares the outputs of a call that was made. Samples when all rows would take the reference more
 * than about `seconds`; the sample depends on the problem alone. False: no memory. */
bool compare_call(const struct call *c, double seconds, struct comparison *result);

/* The same, operator by operator; *result is of nothing yet. */
bool compare_forward(const struct call *c, double seconds, struct comparison *result);
bool compare_backward(const struct call *c, double seconds, struct comparison *result);
bool compare_append(const struct call *c, double seconds, struct comparison *result);
bool compare_resize(const struct call *c, double seconds, struct comparison *result);
bool compare_concat(const struct call *c, double seconds, struct comparison *result);
bool compare_split(const struct call *c, double seconds, struct comparison *result);
bool compare_position_time(const struct call *c, double seconds, struct comparison *result);
bool compare_nsa_compress(const struct call *c, double seconds, struct comparison *result);
bool compare_nsa_append(const struct call *c, double seconds, struct comparison *result);
bool compare_nsa_compressed(const struct call *c, double seconds, struct comparison *result);
bool compare_nsa_select(const struct call *c, double seconds, struct comparison *result);
bool compare_nsa_attend(const struct call *c, double seconds, struct comparison *result);
bool compare_nsa_combine(const struct call *c, double seconds, struct comparison *result);
bool compare_nsa_forward(const struct call *c, double seconds, struct comparison *result);
bool compare_nsa_decode(const struct call *c, double seconds, struct comparison *result);
bool compare_attention(const struct call *c, double seconds, struct comparison *result);

/* The largest of the errors; infinite when padding is not clean. */
double comparison_error(const struct comparison *result);

/* Every error within its bound, and padding clean. */
bool comparison_passes(const struct comparison *result);

#endif
