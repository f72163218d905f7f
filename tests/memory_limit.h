/* A process that can get no more memory, for the tests of PTL_ERR_NOMEM. For forked children: what
 * is taken is not given back. */
#ifndef TESTS_MEMORY_LIMIT_H
#define TESTS_MEMORY_LIMIT_H

#include <stdbool.h>

/* Leaves about 1 MiB of address space and no free heap above 4 KiB pieces; false where that has no
 * effect. */
bool limit_memory(void);
void lift_memory_limit(void);

#endif
