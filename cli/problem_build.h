/* What the files that make a problem share: problem.c has sequences, rows and index arrays,
 * problem_bias.c masks, biases and tables, problem_pages.c the cache. Not for others. */
#ifndef PTL_PROBLEM_BUILD_H
#define PTL_PROBLEM_BUILD_H

#include "problem.h"
#include "problem_line.h"
#include "random.h"

/* What a stream of numbers is for. The order is part of every problem's contents. */
enum purpose {
    OF_Q,
    OF_K,
    OF_V,
    OF_LENGTHS,
    OF_LENGTHS_K,
    OF_USED_Q,
    OF_USED_K,
    OF_CONTEXTS,
    OF_TARGETS,
    OF_SCALE,
    OF_MASK,
    OF_INTERVALS,
    OF_BIAS,
    OF_POS_TABLE,
    OF_TIME_TABLE,
    OF_TIMES,
    OF_PAGES,
    OF_DOUT,
    OF_Q_CMP,
    OF_K_SWA,
    OF_V_SWA,
    OF_KC,
    OF_VC,
    OF_TOPICS,
    OF_PAGES_C,
    OF_WEIGHTS,
    OF_GATES,
    OF_BRANCHES,
    OF_IMPORTANCE = OF_BRANCHES + 3
};

enum { GAP = 5 }; /* elements between rows of view=gap: odd, so that rows are unaligned */

/* One sequence: rows allocated and used, for queries and for keys. */
struct seq {
    int64_t room_q, room_k, uq, uk;
    int64_t first_q, first_k; /* jagged rows before it */
    int64_t cached;           /* keys in pages */
};

struct builder {
    const struct problem_line *line;
    struct problem *problem;
    struct ptl_hstu_params *out; /* the problem's */
    struct problem_memory *memory;
    struct refusal *refusal;
    struct seq *seqs; /* b of them, and one that ends the rows */
    bool queries_fit; /* the rule needs uq <= uk */
};

/* Rows with heads: `batch` times `rows` of them, or jagged (batch -1). */
struct rows_shape {
    int64_t batch, rows, heads, dim;
};

struct random_stream stream_of(const struct builder *w, enum purpose purpose, int64_t b);
int64_t longest(const struct builder *w, bool keys);

/* Extents of what is indexed by query row and by key. */
int64_t max_rows(const struct builder *w, bool keys);

/* A contiguous array full of 0xff. */
bool take(struct builder *w, const char *name, enum ptl_dtype dtype, int ndim, const int64_t *shape,
          struct ptl_tensor *t);

/* Rows of the problem's type as the view arranges them. */
bool take_rows(struct builder *w, const char *name, const struct rows_shape *shape,
               struct ptl_tensor *t);

/* n numbers into elements from `at` on, rounded to t's type. */
void store(const struct ptl_tensor *t, int64_t at, const float *x, int64_t n);

/* n seeded numbers in [-1, 1) from element `at` on, rounded to t's type. */
void fill(struct random_stream *s, const struct ptl_tensor *t, int64_t at, int64_t n);

bool put_index(const struct builder *w, const char *name, struct ptl_tensor *t, int64_t i,
               int64_t value);

bool make_mask(struct builder *w);
bool make_intervals(struct builder *w);
bool make_bias(struct builder *w);
bool make_tables(struct builder *w);

/* Targets of sequence b, after num_targets was made. */
int64_t targets_of(const struct builder *w, int64_t b);

/* The cache, and contents of keys and values: in pages up to seq.cached, in k and v behind it. */
bool make_pages(struct builder *w);
void fill_keys(const struct builder *w, enum purpose purpose, const struct ptl_tensor *own,
               const struct ptl_tensor *pages);

#endif
