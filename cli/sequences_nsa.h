/* What NSA arguments say about each sequence and row. For arguments that the library has accepted;
 * it checks nothing. */
#ifndef PTL_SEQUENCES_NSA_H
#define PTL_SEQUENCES_NSA_H

#include "call.h"

/* The arguments of any of the attention operators as one kind, with q and k shaped also where the
 * operator does without (then k has no data). */
struct ptl_nsa_params nsa_shaped(const struct call *c);

/* Tokens that the row at position t sees in each branch; what is off is 0. The selected ones by
 * number: of idx only the width is known before the call. */
struct nsa_tokens {
    int64_t compressed, selected, sliding;
};

struct nsa_tokens nsa_tokens_at(const struct ptl_nsa_params *p, int64_t t);

#endif
