/* Arrays of a problem, plain or right before a PROT_NONE page. */
#define _DEFAULT_SOURCE
#include "problem_memory.h"

#include <inttypes.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct block {
    struct block *next;
    void *base;
    size_t mapped_bytes; /* 0: from the heap */
};

struct problem_memory {
    bool guard;
    struct block *blocks;
};

struct problem_memory *problem_memory_create(bool guard) {
    struct problem_memory *memory = calloc(1, sizeof *memory);
    if (memory) memory->guard = guard;
    return memory;
}

void problem_memory_destroy(struct problem_memory *memory) {
    if (!memory) return;
    while (memory->blocks) {
        struct block *block = memory->blocks;
        memory->blocks = block->next;
        if (block->mapped_bytes) munmap(block->base, block->mapped_bytes);
        else free(block->base);
        free(block);
    }
    free(memory);
}

static void *take_guarded(struct block *block, size_t bytes) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t usable = (bytes + page - 1) / page * page;
    char *base =
        mmap(NULL, usable + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) return NULL;
    block->base = base;
    block->mapped_bytes = usable + page;
    if (mprotect(base + usable, page, PROT_NONE) != 0) {
        munmap(base, usable + page);
        return NULL;
    }
    return base + usable - bytes;
}

static void *take_plain(struct block *block, size_t bytes) {
    if (posix_memalign(&block->base, 64, bytes ? bytes : 1) != 0) return NULL;
    return block->base;
}

void *problem_memory_take(struct problem_memory *memory, size_t bytes) {
    if (bytes > SIZE_MAX / 2) return NULL;
    struct block *block = calloc(1, sizeof *block);
    if (!block) return NULL;
    void *data = memory->guard ? take_guarded(block, bytes) : take_plain(block, bytes);
    if (!data) {
        free(block);
        return NULL;
    }
    block->next = memory->blocks;
    memory->blocks = block;
    memset(data, 0xff, bytes);
    return data;
}

bool problem_memory_tensor(struct problem_memory *memory, const char *name, enum ptl_dtype dtype,
                           int ndim, const int64_t *shape, struct ptl_tensor *t,
                           struct refusal *r) {
    int64_t bytes = (int64_t)ptl_dtype_bytes(dtype);
    for (int i = 0; i < ndim; i++)
        if (__builtin_mul_overflow(bytes, shape[i], &bytes))
            return refuse(r, "%s: more than 2^63 bytes", name);
    void *data = problem_memory_take(memory, (size_t)bytes);
    if (!data) return refuse(r, "%s: no memory for %" PRId64 " bytes", name, bytes);
    *t = ptl_tensor_contiguous(data, dtype, ndim, shape);
    return true;
}

bool problem_memory_adopt(struct problem_memory *memory, void *data) {
    struct block *block = calloc(1, sizeof *block);
    if (!block) return false;
    block->base = data;
    block->next = memory->blocks;
    memory->blocks = block;
    return true;
}
