/* What the machine can do at this moment: multiply-adds a second at a CPU level, bytes read and
 * copied a second. A bench prints its results as shares of these; it is not a benchmark of its
 * own. */
#ifndef PTL_BENCH_PROBE_H
#define PTL_BENCH_PROBE_H

#include <pantile/base.h>
#include <stdbool.h>

struct probe; /* a buffer larger than the caches */

/* NULL: no memory. */
struct probe *probe_create(void);
void probe_destroy(struct probe *probe);

struct probe_rates {
    double peak_gflops; /* of independent multiply-adds on registers, two flops each */
    double read_gbps;   /* 10^9 bytes a second */
    double copy_gbps;   /* by memcpy; a byte copied counts twice, as read and as written */
};

/* All rates with n_threads at once, best of several rounds; takes 0.1 to 0.3 s. The level must be
 * available. The scalar level has no fused operation: a multiply and an add. The multiply-adds are
 * of fp32; with `dots`, dot products of bf16 pairs where the level has them. False: no threads. */
bool probe_measure(struct probe *probe, enum ptl_isa isa, bool dots, int n_threads,
                   struct probe_rates *rates);

/* Reads the buffer on n_threads, so that what was in the caches no longer is. */
bool probe_evict(struct probe *probe, int n_threads);

#endif
