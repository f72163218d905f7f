/* pantile: what every operator shares. Status codes, tensors, contexts, the CPU report.
 * Operators are declared in their own headers (hstu.h); pantile.h includes them all. */
#ifndef PANTILE_BASE_H
#define PANTILE_BASE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(PTL_BUILDING) && defined(__GNUC__)
#define PTL_API __attribute__((visibility("default")))
#else
#define PTL_API
#endif

#define PTL_VERSION_MAJOR 0
#define PTL_VERSION_MINOR 1
#define PTL_VERSION_PATCH 0

/* "0.1.0": the version of the library that runs, which may differ from the header's. */
PTL_API const char *ptl_version(void);

/* ---- Status -------------------------------------------------------------------------------------
 * Every call that can fail returns one of these. On anything but PTL_OK nothing was written. */
enum ptl_status {
    PTL_OK = 0,
    PTL_ERR_NULL = 1,     /* a required pointer or tensor is missing */
    PTL_ERR_DTYPE = 2,    /* an element type that the argument does not take */
    PTL_ERR_LAYOUT = 3,   /* the last axis is not contiguous */
    PTL_ERR_SHAPE = 4,    /* extents that do not fit together */
    PTL_ERR_PARAM = 5,    /* a number out of range, or options that exclude each other */
    PTL_ERR_SEQLEN = 6,   /* offsets or lengths that make no sequences */
    PTL_ERR_TABLE = 7,    /* page tables that point outside the pages */
    PTL_ERR_ALIAS = 8,    /* an output overlaps an input or itself */
    PTL_ERR_OVERFLOW = 9, /* sizes whose product does not fit 64 bits */
    PTL_ERR_NOMEM = 10    /* scratch memory or threads could not be had */
};

/* "PTL_ERR_SHAPE"; "unknown status" for any other number. Never NULL. */
PTL_API const char *ptl_status_name(enum ptl_status status);

/* One sentence about the last failed call of the calling thread: the argument, its value, what was
 * expected. Empty when none failed yet. Valid until this thread's next failing call. */
PTL_API const char *ptl_message(void);

/* ---- Tensors ------------------------------------------------------------------------------------
 * A tensor is a value that describes the caller's memory; pantile keeps none of it after a call. */
enum ptl_dtype { PTL_F32 = 1, PTL_F16 = 2, PTL_BF16 = 3, PTL_I32 = 4, PTL_I64 = 5, PTL_U8 = 6 };

struct ptl_tensor {
    void *data;           /* NULL: the tensor is absent (an optional argument not given) */
    enum ptl_dtype dtype; /* element type */
    int32_t ndim;         /* 0 (one number) to 4 */
    int64_t shape[4];     /* extents, outermost first */
    int64_t stride[4];    /* in elements; the last one must be 1 where its extent exceeds 1 */
};

/* The tensor over `data` in C order: strides filled in. ndim outside 0..4 gives an absent
 * tensor. */
PTL_API struct ptl_tensor ptl_tensor_contiguous(void *data, enum ptl_dtype dtype, int32_t ndim,
                                                const int64_t *shape);

/* Bytes of one element; 0 for an unknown type. */
PTL_API size_t ptl_dtype_bytes(enum ptl_dtype dtype);

/* ---- CPU levels ---------------------------------------------------------------------------------
 * Kernels exist once per level. A context takes the highest level that the CPU and the operating
 * system support and that the environment variable PTL_CPU (a level's name) does not exclude. */
enum ptl_isa {
    PTL_ISA_AUTO = 0,
    PTL_ISA_SCALAR = 1,
    PTL_ISA_AVX2 = 2,      /* AVX2, FMA, F16C */
    PTL_ISA_AVX512 = 3,    /* AVX-512 F, BW, DQ, VL */
    PTL_ISA_NEON = 4,      /* AArch64 Advanced SIMD */
    PTL_ISA_AVX512BF16 = 5 /* PTL_ISA_AVX512, and bf16 dot products in ptl_hstu_forward */
};

PTL_API const char *ptl_isa_name(enum ptl_isa isa); /* "avx2"; NULL for an unknown number */
PTL_API int ptl_isa_available(enum ptl_isa isa);    /* 1 if a context may ask for it here */

/* ---- Contexts -----------------------------------------------------------------------------------
 * A context owns the threads and the scratch memory that calls use. Calls on one context are
 * serialised by a lock; a server gives each calling thread its own. A context may be used in a
 * forked child unless another thread was inside a call on it during the fork. */
struct ptl_context;

enum ptl_executor_kind {
    PTL_EXEC_AUTO = 0,   /* POOL when more than one thread is to be used, else SERIAL */
    PTL_EXEC_SERIAL = 1, /* the calling thread alone */
    PTL_EXEC_POOL = 2,   /* the context's own threads, started at the first call that needs them */
    PTL_EXEC_HOST = 3    /* the caller's parallel_for */
};

/* Runs fn(arg, begin, end) for ranges that together cover 0..n-1, on any threads, and returns when
 * all are done. Ranges may also run one after the other. */
typedef void (*ptl_range_fn)(void *arg, int64_t begin, int64_t end);
typedef void (*ptl_parallel_for_fn)(void *host, int64_t n, ptl_range_fn fn, void *arg);

struct ptl_context_options {
    size_t struct_size;               /* set by ptl_context_options_init */
    enum ptl_executor_kind executor;  /* default AUTO */
    int32_t num_threads;              /* default 0: PTL_NUM_THREADS, else the affinity mask or the
                                         cgroup's CPU quota, whichever is smaller; at most 1024 */
    enum ptl_isa isa;                 /* default AUTO */
    ptl_parallel_for_fn parallel_for; /* HOST only; default NULL */
    void *host;                       /* HOST only: handed to parallel_for */
};

PTL_API void ptl_context_options_init(struct ptl_context_options *options);

/* Creates a context. options may be NULL (all defaults). On success *ctx is to be given to
 * ptl_context_destroy; on failure it is NULL.
 * PTL_ERR_NULL, PTL_ERR_PARAM, PTL_ERR_NOMEM. */
PTL_API enum ptl_status ptl_context_create(struct ptl_context **ctx,
                                           const struct ptl_context_options *options);

/* Ends the context's threads and frees its memory. NULL is allowed. No call may be running on
 * it. */
PTL_API void ptl_context_destroy(struct ptl_context *ctx);

struct ptl_context_info {
    size_t struct_size;              /* set by the caller to sizeof(struct ptl_context_info) */
    enum ptl_executor_kind executor; /* what runs: never AUTO */
    enum ptl_isa isa;                /* what runs: never AUTO */
    int32_t num_threads;  /* threads that a large enough call uses, the caller included */
    size_t scratch_bytes; /* scratch memory held now */
};

/* PTL_ERR_NULL. */
PTL_API enum ptl_status ptl_context_get_info(struct ptl_context *ctx,
                                             struct ptl_context_info *info);

#ifdef __cplusplus
}
#endif
#endif
