/* Guarded memory by mmap and mprotect. */
#define _GNU_SOURCE
#include "guard.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { CANARY_FLOATS = 64 };

struct guard guard_create(size_t bytes) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    struct guard g;
    g.bytes = (bytes + CANARY_FLOATS * sizeof(float) + page - 1) / page * page;
    g.memory =
        mmap(NULL, g.bytes + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (g.memory == MAP_FAILED || mprotect(g.memory + g.bytes, page, PROT_NONE) != 0) {
        perror("guard_create");
        exit(2);
    }
    return g;
}

void guard_destroy(struct guard *g) {
    munmap(g->memory, g->bytes + (size_t)sysconf(_SC_PAGESIZE));
    g->memory = NULL;
}

static uint32_t *tail(const struct guard *g, size_t n_floats) {
    return (uint32_t *)(g->memory + g->bytes) - n_floats;
}

float *guard_floats(const struct guard *g, size_t n_floats) {
    uint32_t *word = tail(g, n_floats) - CANARY_FLOATS;
    for (size_t i = 0; i < n_floats + CANARY_FLOATS; i++) word[i] = GUARD_WORD;
    return (float *)tail(g, n_floats);
}

bool guard_intact(const struct guard *g, size_t n_floats) {
    const uint32_t *word = tail(g, n_floats) - CANARY_FLOATS;
    for (size_t i = 0; i < CANARY_FLOATS; i++)
        if (word[i] != GUARD_WORD) return false;
    return true;
}
