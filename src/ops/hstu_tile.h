/* How the rows of q, k, v and out get to the kernels and back: in place where they are floats at
 * one stride and near each other, else widened or gathered in scratch memory, a tile or a panel at
 * a time. */
#ifndef PTL_HSTU_TILE_H
#define PTL_HSTU_TILE_H

#include "hstu.h"

/* Scratch of one worker. Each is there for what the problem needs, else unused. */
struct ptl_hstu_stage {
    /* key_tile rows of ptl_staged_stride(dqk), (dv): a tile that is not in place. Or, in a part of
     * that memory, the same in bf16, of v in pairs. */
    float *k, *v;
    float *row;      /* panel rows of ptl_staged_stride(max(dqk, dv)): halves of q and out */
    float *bias_row; /* panel rows of key_tile floats: bias row by row */
    float *bias;     /* key_tile lines: bias as the score tile lies */
};

/* Bytes of the stage, and its pointers into 64-byte aligned memory (or NULLs). */
size_t ptl_hstu_stage_bytes(const struct ptl_hstu_problem *p, const struct ptl_kernels *k);
struct ptl_hstu_stage ptl_hstu_stage_at(const struct ptl_hstu_problem *p,
                                        const struct ptl_kernels *k, void *memory);

/* Keys or values of columns [begin, end) of one sequence and key head, and the floats between their
 * rows; row 0 is column begin. reused: more than one panel will use them, so that a copy pays where
 * they lie far apart. */
const float *ptl_hstu_load_keys(const struct ptl_hstu_problem *p, const struct ptl_kernels *k,
                                const struct ptl_hstu_seq *seq, int64_t kv_head, int64_t begin,
                                int64_t end, bool reused, const struct ptl_hstu_stage *stage,
                                int64_t *stride);
const float *ptl_hstu_load_values(const struct ptl_hstu_problem *p, const struct ptl_kernels *k,
                                  const struct ptl_hstu_seq *seq, int64_t kv_head, int64_t begin,
                                  int64_t end, bool reused, const struct ptl_hstu_stage *stage,
                                  int64_t *stride);

/* Rows [row, row + n_rows) of q or dout as a panel. */
void ptl_hstu_load_panel(const struct ptl_hstu_problem *p, const struct ptl_kernels *k,
                         const struct ptl_rows *from, const struct ptl_hstu_seq *seq, int64_t head,
                         int64_t row, int n_rows, int dim, float *panel,
                         const struct ptl_hstu_stage *stage);

/* ---- Pairs of bf16, for the products of kernels.h that take them; forward only --------------- */

static inline bool ptl_hstu_takes_pairs(const struct ptl_hstu_problem *p,
                                        const struct ptl_kernels *k) {
    return p->dtype == PTL_BF16 && k->tile_qk_bf16;
}

/* Pairs of columns in a row of q or k; the last one of an odd row has a 0. */
static inline int ptl_hstu_column_pairs(const struct ptl_hstu_problem *p) {
    return (p->dqk + 1) / 2;
}

/* Keys as ptl_hstu_load_keys has them, but in bf16: whole pairs of columns may be read. */
const uint16_t *ptl_hstu_load_keys_bf16(const struct ptl_hstu_problem *p,
                                        const struct ptl_hstu_seq *seq, int64_t kv_head,
                                        int64_t begin, int64_t end,
                                        const struct ptl_hstu_stage *stage, int64_t *stride);

/* Values as pairs of columns begin and begin + 1, and so on; finite says whether all of them
 * are. */
const uint16_t *ptl_hstu_load_value_pairs(const struct ptl_hstu_problem *p,
                                          const struct ptl_kernels *k,
                                          const struct ptl_hstu_seq *seq, int64_t kv_head,
                                          int64_t begin, int64_t end,
                                          const struct ptl_hstu_stage *stage, int64_t *stride,
                                          bool *finite);

/* Rows of q as ptl_hstu_load_panel has them, a pair of columns in each lane of a line. */
void ptl_hstu_load_panel_pairs(const struct ptl_hstu_problem *p, const struct ptl_kernels *k,
                               const struct ptl_hstu_seq *seq, int64_t head, int64_t row,
                               int n_rows, float *panel, const struct ptl_hstu_stage *stage);

/* ---- Out ------------------------------------------------------------------------------------- */

/* A panel to those rows of out, each times its scale. stream: as the kernel has it; floats alone. */
void ptl_hstu_store_panel(const struct ptl_hstu_problem *p, const struct ptl_kernels *k,
                          const struct ptl_hstu_seq *seq, int64_t head, int64_t row, int n_rows,
                          const float *panel, bool stream, const struct ptl_hstu_stage *stage);

/* ---- Bias: hstu_bias.c ----------------------------------------------------------------------- */

static inline bool ptl_hstu_has_bias(const struct ptl_hstu_problem *p) {
    return p->bias.data || p->tables.pos || p->tables.time;
}

/* Floats of the position tables as the kernels read them, reversed and padded, for all heads. */
int64_t ptl_hstu_reversed_floats(const struct ptl_hstu_problem *p);
void ptl_hstu_reverse_tables(const struct ptl_hstu_problem *p, float *reversed);

/* n neighbouring columns whose time falls into one bucket. */
struct ptl_time_run {
    int32_t bucket, n;
};

/* The runs of a panel's rows against one tile, kept from one head to the next. */
struct ptl_time_runs {
    bool known; /* set by ptl_hstu_add_bias; the caller clears it for every tile */
    int32_t n[PTL_MAX_PANEL];
    struct ptl_time_run *run; /* key_tile entries a row */
};

/* Turns products into scores: s = alpha * s + beta * bias, for rows [row, row + n_rows) against
 * columns [begin, end). reversed is what ptl_hstu_reverse_tables wrote; runs may be NULL. */
void ptl_hstu_add_bias(const struct ptl_hstu_problem *p, const struct ptl_kernels *k,
                       const struct ptl_hstu_seq *seq, int64_t head, int64_t row, int n_rows,
                       int nv, int64_t begin, int64_t end, const float *reversed, float *s,
                       struct ptl_time_runs *runs, const struct ptl_hstu_stage *stage);

/* The buckets of a query row against columns [begin, end), as runs; returns how many. ascending is
 * what ptl_hstu_times_ascend says of the columns. */
bool ptl_hstu_times_ascend(const struct ptl_hstu_problem *p, const struct ptl_hstu_seq *seq,
                           int64_t begin, int64_t end);
int ptl_hstu_time_runs(const struct ptl_hstu_problem *p, const struct ptl_hstu_seq *seq,
                       int64_t row, int64_t begin, int64_t end, bool ascending,
                       struct ptl_time_run *runs);

#endif
