/* Runs a fuzz target without libFuzzer: its seeds, then seeded mutations of them, the same on every
 * machine; or the files that are named. It sees no coverage: sanitizers and FUZZ_REQUIRE judge.
 *
 *     fuzz_npy [-n MUTATIONS] [FILE...] */
#include <string.h>

#include "fuzz.h"
#include "random.h"

enum { MAX_INPUT = 4096, MAX_STEPS = 8 };

struct input {
    uint8_t bytes[MAX_INPUT];
    size_t size;
};

static struct random_stream stream;

static size_t below(size_t n) {
    return n ? (size_t)(random_next(&stream) % n) : 0;
}

static void insert(struct input *x, size_t at, const char *bytes, size_t n) {
    if (x->size + n > MAX_INPUT) return;
    memmove(x->bytes + at + n, x->bytes + at, x->size - at);
    memcpy(x->bytes + at, bytes, n);
    x->size += n;
}

static void erase(struct input *x, size_t at, size_t n) {
    if (n > x->size - at) n = x->size - at;
    memmove(x->bytes + at, x->bytes + at + n, x->size - at - n);
    x->size -= n;
}

static void mutate(struct input *x) {
    static const char likely[] = "0123456789,:=-.()'{} \n<|fiu";
    const struct fuzz_seed *other = &fuzz_seeds[below((size_t)n_fuzz_seeds)];
    const size_t at = below(x->size + 1), from = below(other->size);
    switch (below(6)) {
    case 0:
        if (at < x->size) x->bytes[at] ^= (uint8_t)(1u << below(8));
        break;
    case 1:
        if (at < x->size) x->bytes[at] = (uint8_t)likely[below(sizeof likely - 1)];
        break;
    case 2: erase(x, at, 1 + below(8)); break;
    case 3: x->size = at; break;
    case 4: insert(x, at, other->bytes + from, below(other->size - from + 1)); break;
    case 5: insert(x, at, likely + below(sizeof likely - 1), 1); break;
    }
}

static void run_mutations(long n) {
    static struct input x;
    for (long i = 0; i < n; i++) {
        stream = random_stream_at(1, 0, i, 0, 0);
        const struct fuzz_seed *seed = &fuzz_seeds[below((size_t)n_fuzz_seeds)];
        memcpy(x.bytes, seed->bytes, seed->size);
        x.size = seed->size;
        for (size_t steps = 1 + below(MAX_STEPS); steps > 0; steps--) mutate(&x);
        LLVMFuzzerTestOneInput(x.bytes, x.size);
    }
}

static int run_file(const char *path) {
    static struct input x;
    FILE *f = fopen(path, "rb");
    if (!f) {
        perror(path);
        return 2;
    }
    x.size = fread(x.bytes, 1, MAX_INPUT, f);
    fclose(f);
    return LLVMFuzzerTestOneInput(x.bytes, x.size);
}

int main(int argc, char **argv) {
    long n = 100000;
    int first_file = 1;
    if (argc > 2 && strcmp(argv[1], "-n") == 0) {
        n = strtol(argv[2], NULL, 10);
        first_file = 3;
    }
    for (int i = first_file; i < argc; i++)
        if (run_file(argv[i]) != 0) return 2;
    if (first_file < argc) return 0;
    for (int i = 0; i < n_fuzz_seeds; i++)
        LLVMFuzzerTestOneInput((const uint8_t *)fuzz_seeds[i].bytes, fuzz_seeds[i].size);
    run_mutations(n);
    printf("%d seeds, %ld mutations\n", n_fuzz_seeds, n);
    return 0;
}
