/* What this machine can run: kernel levels, number of threads. */
#ifndef PTL_CPU_H
#define PTL_CPU_H

#include <pantile/base.h>

#include "../kernels/kernels.h"

/* The kernels of a level, or NULL when it is not compiled in or the CPU lacks it. */
const struct ptl_kernels *ptl_cpu_kernels(enum ptl_isa isa);

/* The best level that PTL_CPU allows. PTL_ERR_PARAM when PTL_CPU is set to no level's name. */
enum ptl_status ptl_cpu_best(enum ptl_isa *isa);

/* Threads to use by default: PTL_NUM_THREADS when it is set, else the smaller of the affinity mask
 * and the cgroup quota; 1..1024. PTL_ERR_PARAM when PTL_NUM_THREADS is no number in that range. */
enum ptl_status ptl_cpu_default_threads(int *n_threads);

#endif
