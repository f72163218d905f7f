/* Problems whose arrays are files: lines with key=@file.npy words; and the choice between those and
 * generated problems. */
#ifndef PTL_ARRAYS_H
#define PTL_ARRAYS_H

#include "problem.h"
#include "words.h"

struct output {
    char *path; /* owned; NULL: not wanted */
};

/* The problem of a line's words: over the arrays that they name, or generated when they name none.
 * out=@file is taken off into *out. On success problem_destroy and output_free are due. */
bool problem_open(struct problem *p, struct output *out, struct words *w, struct refusal *r);
void output_free(struct output *out);

/* Writes the problem's out to the path, if one is wanted. */
bool output_write(const struct output *out, const struct problem *p, struct refusal *r);

#endif
