/* Seeded streams of numbers (splitmix64, Steele, Lea and Flood 2014). */
#include "random.h"

#include <math.h>

static const uint64_t step = 0x9e3779b97f4a7c15u; /* 2^64 / golden ratio, odd */

static uint64_t mix(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

uint64_t random_next(struct random_stream *s) {
    s->state += step;
    return mix(s->state);
}

struct random_stream random_stream_at(uint64_t seed, uint64_t what, int64_t a, int64_t b,
                                      int64_t c) {
    uint64_t x = mix(seed + step);
    x = mix(x ^ (what + step));
    x = mix(x ^ ((uint64_t)a * step + 1));
    x = mix(x ^ ((uint64_t)b * step + 2));
    x = mix(x ^ ((uint64_t)c * step + 3));
    return (struct random_stream){x};
}

int64_t random_between(struct random_stream *s, int64_t low, int64_t high) {
    const uint64_t n = (uint64_t)high - (uint64_t)low + 1;
    return (int64_t)((uint64_t)low + (n ? random_next(s) % n : random_next(s)));
}

double random_unit(struct random_stream *s) {
    return (double)(random_next(s) >> 11) * 0x1p-53;
}

double random_normal(struct random_stream *s) {
    const double radius = sqrt(-2.0 * log(1.0 - random_unit(s)));
    return radius * cos(6.283185307179586 * random_unit(s));
}

static float to_float(uint32_t bits24) {
    return (float)bits24 * 0x1p-23f - 1.0f;
}

void random_fill(struct random_stream *s, float *x, int64_t n) {
    for (int64_t i = 0; i + 1 < n; i += 2) {
        const uint64_t r = random_next(s);
        x[i] = to_float((uint32_t)(r & 0xffffff));
        x[i + 1] = to_float((uint32_t)(r >> 40));
    }
    if (n % 2) x[n - 1] = to_float((uint32_t)(random_next(s) >> 40));
}
