/* What a fuzz target offers: libFuzzer's entry, and seeds for fuzz_main.c, which runs it
 * without. */
#ifndef PTL_FUZZ_H
#define PTL_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

struct fuzz_seed {
    const char *bytes;
    size_t size;
};

/* Whole inputs first; short ones also serve as words to splice in. */
extern const struct fuzz_seed fuzz_seeds[];
extern const int n_fuzz_seeds;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A broken promise ends the process, whatever NDEBUG says. */
#define FUZZ_REQUIRE(condition)                                                                    \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

#endif
