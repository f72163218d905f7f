/* RLIMIT_AS a little above what is mapped, and the heap's free pieces used up: earlier tests leave
 * some. */
#include "memory_limit.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

enum { MORE = 1 << 20 };

bool limit_memory(void) {
    long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f || fscanf(f, "%ld", &pages) != 1) return false;
    fclose(f);
    struct rlimit limit;
    if (getrlimit(RLIMIT_AS, &limit) != 0) return false;
    limit.rlim_cur = (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE) + MORE;
    if (setrlimit(RLIMIT_AS, &limit) != 0) return false;
    if (mmap(NULL, 2 * MORE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED)
        return false;
    void *volatile piece;
    for (size_t bytes = MORE; bytes >= 4096; bytes /= 2) {
        do {
            piece = malloc(bytes);
        } while (piece);
    }
    return true;
}

void lift_memory_limit(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_AS, &limit) != 0) return;
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_AS, &limit);
}
