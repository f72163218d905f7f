/* Options of a command that take a value, "--reps 5". They are taken out of the arguments; what
 * their values mean is read elsewhere. */
#ifndef PTL_OPTIONS_H
#define PTL_OPTIONS_H

#include "words.h"

struct option {
    const char *name;  /* NULL ends a list */
    const char *value; /* NULL: not given; of several the last */
};

/* argv[0] is the command, for the sentence. What is no option moves to argv[1] and on; returns how
 * many these are, or -1 with a refusal. A lone "-" is no option. */
int take_options(int argc, char **argv, struct option *options, struct refusal *r);

#endif
