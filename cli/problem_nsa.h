/* Arguments of the NSA operators, and those of generated lines. It computes nothing. */
#ifndef PTL_PROBLEM_NSA_H
#define PTL_PROBLEM_NSA_H

#include "problem_memory.h"
#include "problem_nsa_line.h"

/* Each operator has its own; nsa_decode takes params and append. */
struct nsa_arguments {
    struct ptl_nsa_params params;
    struct ptl_nsa_compress_params compress;
    struct ptl_nsa_append_params append;
    struct ptl_attention_params attention;
};

void nsa_arguments_init(struct nsa_arguments *a);

/* Makes the arguments of an operator over arrays in memory. What must not be read (rows behind a
 * sequence, free slots, pages of nobody, entries of tables behind the last page) is NaN or 0xff.
 *
 * Keys come in topics of some 50 tokens that resemble each other, so that compressed keys differ
 * and a softmax is neither flat nor a single key. A row's contents depend on the seed and its place
 * alone: layouts and pages hold the same numbers. Compressed keys are drawn, not computed. */
bool nsa_problem_make(struct nsa_arguments *a, const char *op, const struct nsa_line *line,
                      struct problem_memory *memory, struct refusal *r);

#endif
