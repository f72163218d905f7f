/* What a call costs at least: arithmetic on unmasked work, and the bytes of its inputs and
 * outputs. */
#ifndef PTL_COST_H
#define PTL_COST_H

#include <math.h>

#include "call.h"

struct cost {
    bool copies;  /* it only moves bytes: the copy bandwidth is its limit */
    bool dots;    /* its products are dot products of bf16 where the level has them */
    double flops; /* NaN when it copies */
    double bytes; /* arrays of rows passed over once; small tables and index arrays do not count */
};

static inline struct cost cost_of_copy(double bytes) {
    return (struct cost){.copies = true, .flops = NAN, .bytes = bytes};
}

/* Operator by operator. */
struct cost cost_forward(const struct call *c);
struct cost cost_backward(const struct call *c);
struct cost cost_append(const struct call *c);
struct cost cost_resize(const struct call *c);
struct cost cost_concat(const struct call *c);
struct cost cost_split(const struct call *c);
struct cost cost_position_time(const struct call *c);
struct cost cost_nsa_compress(const struct call *c);
struct cost cost_nsa_append(const struct call *c);
struct cost cost_nsa_compressed(const struct call *c);
struct cost cost_nsa_select(const struct call *c);
struct cost cost_nsa_attend(const struct call *c);
struct cost cost_nsa_combine(const struct call *c);
struct cost cost_nsa_forward(const struct call *c);
struct cost cost_nsa_decode(const struct call *c);
struct cost cost_attention(const struct call *c);

#endif
