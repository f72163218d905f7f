/* A tile of keys for softmax attention and the three stages of a panel on it. Which tiles there
 * are, and what becomes of the states, is nsa_block.c. */
#ifndef PTL_NSA_TILE_H
#define PTL_NSA_TILE_H

#include "nsa.h"

/* Up to PTL_NSA_TILE keys: runs of rows at one stride, first where the caller's arrays have them,
 * then as floats. */
struct ptl_nsa_tile {
    int n_keys, n_runs;
    struct {
        const char *k, *v;
        int64_t key; /* number of the first key in its store */
        int n;
    } at[PTL_NSA_TILE];
    struct ptl_run keys[PTL_NSA_TILE], values[PTL_NSA_TILE];
    int n_float_runs;
    int64_t k_stride, v_stride; /* floats */
    int finite;                 /* whether the values are; -1: not asked yet */
};

/* Appends keys [begin, end) of a sequence and kv head to the tile. */
void ptl_nsa_tile_add(struct ptl_nsa_tile *t, const struct ptl_nsa_store *from, int64_t seq,
                      int64_t kv_head, int64_t begin, int64_t end);

/* Scratch of one worker for the stages. */
struct ptl_nsa_stage {
    float *s;          /* a score tile */
    uint64_t *bits;    /* mask words of it */
    float *k, *v;      /* halves: the tile as floats */
    float *row;        /* panel rows of the larger head size */
    uint16_t *rounded; /* score_dtype: a score tile in it */
};

size_t ptl_nsa_stage_bytes(const struct ptl_nsa_problem *p, const struct ptl_kernels *k);
struct ptl_nsa_stage ptl_nsa_stage_at(const struct ptl_nsa_problem *p, const struct ptl_kernels *k,
                                      void *memory);

/* Makes the runs floats, those of the kv head that many behind the one the tile was found for. */
void ptl_nsa_tile_load(struct ptl_nsa_tile *t, const struct ptl_nsa_problem *p,
                       const struct ptl_kernels *k, const struct ptl_nsa_store *from, int head,
                       const struct ptl_nsa_stage *stage);

/* Some (row, head) pairs of a block: lanes lane .. lane + n_lanes - 1, row by row. */
struct ptl_nsa_panel {
    int lane, n_lanes, nv;
};

/* Cuts n_lanes into panels of nearly equal numbers of vectors; returns how many. */
int ptl_nsa_cut_panels(const struct ptl_kernels *k, int n_lanes, struct ptl_nsa_panel *panels);

/* q of the panel's lanes, whose lane 0 is head `head` of row `row`, transposed. */
void ptl_nsa_load_panel(const struct ptl_nsa_problem *p, const struct ptl_kernels *k,
                        const struct ptl_rows *q, const struct ptl_nsa_seq *seq, int64_t row,
                        int64_t head, const struct ptl_nsa_panel *panel, float *q_panel,
                        const struct ptl_nsa_stage *stage);

/* An online softmax of one panel: lines of its lanes. o has dv lines, or is NULL. */
struct ptl_softmax_state {
    float *m, *z, *o;
    bool empty; /* no tile yet: o is not to be read */
};

/* Asks for the rows of a tile, a few lines at a time, while the one before it is computed: one
 * burst of requests would hold up the loads behind it. Of n_heads heads, which lie side by side,
 * n_panels panels each. */
struct ptl_nsa_ahead {
    const struct ptl_nsa_tile *tile; /* NULL: nothing */
    int64_t k_step, v_step, k_bytes, v_bytes;
    int lines_per_part;
    int run, row;         /* of the segment that comes next; rows of v count behind those of k */
    const char *at, *end; /* the rest of this segment: a row, or rows without gaps between */
};

struct ptl_nsa_ahead ptl_nsa_ahead_of(const struct ptl_nsa_tile *t, const struct ptl_nsa_problem *p,
                                      const struct ptl_nsa_store *from, int n_heads,
                                      const struct ptl_nsa_panel *panels, int n_panels);

/* QK products of a panel that are kept from one branch for the next: lines of keys [begin, end). */
struct ptl_nsa_logits {
    float *lines;
    int64_t begin, end;
};

/* QK product of a panel into stage->s. known: products to be taken from there, or NULL. */
void ptl_nsa_tile_scores(const struct ptl_nsa_problem *p, const struct ptl_kernels *k,
                         const struct ptl_nsa_tile *t, int nv, const float *q_panel,
                         const struct ptl_nsa_logits *known, const struct ptl_nsa_stage *stage,
                         struct ptl_nsa_ahead *ahead);

/* Keeps what stage->s holds of these keys. */
void ptl_nsa_tile_keep(const struct ptl_kernels *k, const struct ptl_nsa_tile *t,
                       const struct ptl_nsa_logits *to, const struct ptl_nsa_stage *stage);

/* The other two stages. bits: mask words or NULL. given: NULL, or what normalises the scores (log
 * base 2) instead of a running maximum; then state->m and z are left alone. rounded: the type whose
 * precision the weights keep. stage->s keeps the weights. */
void ptl_nsa_tile_weigh(const struct ptl_nsa_problem *p, const struct ptl_kernels *k,
                        struct ptl_nsa_tile *t, int nv, const uint64_t *bits, const float *given,
                        enum ptl_dtype rounded, struct ptl_softmax_state *state,
                        const struct ptl_nsa_stage *stage, struct ptl_nsa_ahead *ahead);

#endif
