/* Seeded numbers: a counter hashed by splitmix64, so that any place has its own stream.
 * For test data; not for secrets. */
#ifndef PTL_RANDOM_H
#define PTL_RANDOM_H

#include <stddef.h>
#include <stdint.h>

struct random_stream {
    uint64_t state;
};

/* The stream of a place: same arguments, same numbers. */
struct random_stream random_stream_at(uint64_t seed, uint64_t what, int64_t a, int64_t b,
                                      int64_t c);

uint64_t random_next(struct random_stream *s);
int64_t random_between(struct random_stream *s, int64_t low, int64_t high); /* both included */
double random_unit(struct random_stream *s);                                /* [0, 1) */
double random_normal(struct random_stream *s);                  /* mean 0, deviation 1 */
void random_fill(struct random_stream *s, float *x, int64_t n); /* uniform in [-1, 1) */

#endif
