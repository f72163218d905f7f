/* A problem is one line of key=value words: what run, check, bench and the tests compute on.
 * This makes the arguments and their seeded contents from the line; it computes nothing. */
#ifndef PTL_PROBLEM_H
#define PTL_PROBLEM_H

#include <pantile/pantile.h>
#include <stdbool.h>

enum problem_flags {
    PROBLEM_GUARD = 1 /* every array ends right before an unmapped page */
};

struct problem_memory; /* what the problem owns */

struct problem {
    char op[32];                 /* "hstu", "hstu_backward" */
    struct ptl_hstu_params hstu; /* complete arguments over the problem's own memory */
    struct ptl_hstu_grads grads; /* those of hstu_backward */
    int threads;                 /* 0: the default */
    enum ptl_isa isa;            /* AUTO unless the line says */
    enum ptl_executor_kind executor;
    uint64_t seed;
    bool cold; /* cache=cold: evict the inputs between timed calls */
    struct problem_memory *memory;
};

/* Builds the problem of the line. On failure returns false with one sentence in error, nothing to
 * destroy. Everything that must not be read (padding rows, gaps between strided rows, mask entries
 * outside a sequence) is NaN or 0xff. */
bool problem_create(struct problem *p, const char *line, unsigned flags, char *error,
                    size_t error_size);
void problem_destroy(struct problem *p);

#endif
