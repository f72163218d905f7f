/* CPU levels by our own cpuid and XGETBV (compilers' builtin lists differ), and the thread default.
 * Not a general CPU report: only what decides which kernels run on how many threads. */
#define _GNU_SOURCE
#include "cpu.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "message.h"

#if defined(__x86_64__)
#include <cpuid.h>

static uint64_t read_xcr0(void) {
    uint32_t lo, hi;
    __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
    return (uint64_t)hi << 32 | lo;
}

static int has_bits(uint32_t word, uint32_t bits) {
    return (word & bits) == bits;
}

static int cpu_has(enum ptl_isa isa) {
    uint32_t a, b, c, d, a7, b7, c7, d7;
    if (!__get_cpuid(1, &a, &b, &c, &d)) return 0;
    /* leaf 1 ecx: FMA 12, OSXSAVE 27, AVX 28, F16C 29 */
    if (!has_bits(c, 1u << 12 | 1u << 27 | 1u << 28 | 1u << 29)) return 0;
    const uint64_t xcr0 = read_xcr0();
    if ((xcr0 & 0x6) != 0x6) return 0; /* the system saves XMM and YMM */
    if (!__get_cpuid_count(7, 0, &a7, &b7, &c7, &d7)) return 0;
    if (!has_bits(b7, 1u << 5 | 1u << 8)) return 0; /* AVX2, BMI2 */
    if (isa == PTL_ISA_AVX2) return 1;
    if ((xcr0 & 0xe0) != 0xe0) return 0; /* opmask, ZMM */
    /* F, DQ, BW, VL */
    if (!has_bits(b7, 1u << 16 | 1u << 17 | 1u << 30 | 1u << 31)) return 0;
    if (isa == PTL_ISA_AVX512) return 1;
    if (a7 < 1 || !__get_cpuid_count(7, 1, &a, &b, &c, &d)) return 0;
    return has_bits(a, 1u << 5); /* AVX512_BF16 */
}
#endif

const struct ptl_kernels *ptl_cpu_kernels(enum ptl_isa isa) {
    switch (isa) {
    case PTL_ISA_SCALAR: return &ptl_kernels_scalar;
#if defined(__x86_64__)
    case PTL_ISA_AVX2: return cpu_has(isa) ? &ptl_kernels_avx2 : NULL;
    case PTL_ISA_AVX512: return cpu_has(isa) ? &ptl_kernels_avx512 : NULL;
    case PTL_ISA_AVX512BF16: return cpu_has(isa) ? &ptl_kernels_avx512bf16 : NULL;
#elif defined(__aarch64__)
    case PTL_ISA_NEON: return &ptl_kernels_neon; /* part of the base architecture */
#endif
    default: return NULL;
    }
}

static const enum ptl_isa levels[] = {PTL_ISA_SCALAR, PTL_ISA_AVX2, PTL_ISA_AVX512, PTL_ISA_NEON,
                                      PTL_ISA_AVX512BF16};
enum { N_LEVELS = sizeof levels / sizeof levels[0] };

const char *ptl_isa_name(enum ptl_isa isa) {
    switch (isa) {
    case PTL_ISA_AUTO: return "auto";
    case PTL_ISA_SCALAR: return "scalar";
    case PTL_ISA_AVX2: return "avx2";
    case PTL_ISA_AVX512: return "avx512";
    case PTL_ISA_NEON: return "neon";
    case PTL_ISA_AVX512BF16: return "avx512bf16";
    }
    return NULL;
}

/* The highest level that PTL_CPU lets through. */
static enum ptl_status ceiling(enum ptl_isa *isa) {
    const char *wanted = getenv("PTL_CPU");
    *isa = levels[N_LEVELS - 1];
    if (!wanted || !*wanted) return PTL_OK;
    for (int i = 0; i < N_LEVELS; i++)
        if (strcmp(wanted, ptl_isa_name(levels[i])) == 0) {
            *isa = levels[i];
            return PTL_OK;
        }
    return ptl_fail(PTL_ERR_PARAM,
                    "PTL_CPU: '%s', expected scalar, avx2, avx512, neon or avx512bf16", wanted);
}

enum ptl_status ptl_cpu_best(enum ptl_isa *isa) {
    enum ptl_isa top;
    enum ptl_status status = ceiling(&top);
    if (status != PTL_OK) return status;
    *isa = PTL_ISA_SCALAR;
    for (int i = 0; i < N_LEVELS && levels[i] <= top; i++)
        if (ptl_cpu_kernels(levels[i])) *isa = levels[i];
    return PTL_OK;
}

int ptl_isa_available(enum ptl_isa isa) {
    enum ptl_isa top;
    if (isa == PTL_ISA_AUTO) return 1;
    return ceiling(&top) == PTL_OK && isa <= top && ptl_cpu_kernels(isa) != NULL;
}

/* The CPU quota of one cgroup folder, rounded up; 0 when it has none. */
static int read_quota(const char *folder) {
    char path[4200];
    long long quota = -1, period = 0;
    snprintf(path, sizeof path, "%s/cpu.max", folder); /* v2: "200000 100000" or "max 100000" */
    FILE *f = fopen(path, "r");
    if (f) {
        if (fscanf(f, "%lld %lld", &quota, &period) != 2) quota = -1;
        fclose(f);
    } else { /* v1 */
        snprintf(path, sizeof path, "%s/cpu.cfs_quota_us", folder);
        if ((f = fopen(path, "r")) != NULL) {
            if (fscanf(f, "%lld", &quota) != 1) quota = -1;
            fclose(f);
        }
        snprintf(path, sizeof path, "%s/cpu.cfs_period_us", folder);
        if ((f = fopen(path, "r")) != NULL) {
            if (fscanf(f, "%lld", &period) != 1) period = 0;
            fclose(f);
        }
    }
    if (quota <= 0 || period <= 0) return 0;
    long long n = (quota + period - 1) / period;
    return n > 1024 ? 1024 : (int)n;
}

/* The smallest quota on the way from this process's cgroup to the root; 0: none. */
static int cgroup_quota(void) {
    int best = read_quota("/sys/fs/cgroup/cpu"); /* v1, and a container's own view */
    char line[4096], folder[4160];
    FILE *f = fopen("/proc/self/cgroup", "r");
    if (!f) return best;
    while (fgets(line, sizeof line, f)) {
        if (strncmp(line, "0::", 3) != 0) continue;
        line[strcspn(line, "\n")] = 0;
        snprintf(folder, sizeof folder, "/sys/fs/cgroup%s", line + 3);
        while (strlen(folder) >= strlen("/sys/fs/cgroup")) {
            int n = read_quota(folder);
            if (n > 0 && (best == 0 || n < best)) best = n;
            char *slash = strrchr(folder, '/');
            if (!slash) break;
            *slash = 0;
        }
    }
    fclose(f);
    return best;
}

static int affinity_count(void) {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
    return 1024; /* more CPUs than a cpu_set_t holds */
}

enum ptl_status ptl_cpu_default_threads(int *n_threads) {
    const char *wanted = getenv("PTL_NUM_THREADS");
    if (wanted && *wanted) {
        char *end;
        errno = 0;
        long n = strtol(wanted, &end, 10);
        if (errno || *end || n < 1 || n > 1024)
            return ptl_fail(PTL_ERR_PARAM, "PTL_NUM_THREADS: '%s', expected 1 to 1024", wanted);
        *n_threads = (int)n;
        return PTL_OK;
    }
    int n = affinity_count(), quota = cgroup_quota();
    if (quota > 0 && quota < n) n = quota;
    *n_threads = n < 1 ? 1 : n > 1024 ? 1024 : n;
    return PTL_OK;
}
