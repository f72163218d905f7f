/* A block: a few query rows of one sequence, for one kv head or for several whose keys lie side by
 * side, and all that is computed for them. Its
 * branches can be walked split by split, in order by one worker or one split each by several; the
 * bits are the same. Who does it when is nsa_run.c. */
#ifndef PTL_NSA_BLOCK_H
#define PTL_NSA_BLOCK_H

#include "nsa_tile.h"

/* What is walked in splits. POOL is a second walk over the compressed keys, for pooling by maximum,
 * which needs final probabilities. */
enum ptl_nsa_phase { PTL_NSA_CMP, PTL_NSA_SWA, PTL_NSA_POOL, PTL_NSA_SLC, PTL_NSA_PHASES };

/* The states of all panels, once for each split (or twice: a sum and the split at work). */
struct ptl_nsa_states {
    float *at;
    int n_panels, n_sets;
};

struct ptl_nsa_block {
    const struct ptl_nsa_problem *p;
    const struct ptl_kernels *k;
    struct ptl_nsa_seq seq;
    int64_t head, row; /* the first */
    int n_heads, n_rows;
    int n_lists; /* n_heads * n_rows: a row and kv head has one selection; head by head */
    bool shared; /* each split has its states */
    int n_head_panels, n_row_panels;           /* of one head and all rows, of one head and row */
    int n_panels;                              /* of all heads, head by head */
    struct ptl_nsa_panel *panels, *row_panels; /* of one head */

    /* Keys that some row sees: compressed 0 .. n_cmp-1, sliding swa_begin .. swa_end-1. */
    int64_t n_cmp, swa_begin, swa_end;
    int64_t n_splits[PTL_NSA_PHASES];    /* SLC: of one list, at most */
    struct ptl_nsa_states cmp, swa, slc; /* slc: n_row_panels for every list */

    /* How scores come about: from columns of the tiles, or from head-summed probabilities, where
     * these have to be final when they are made. */
    bool by_columns, by_probabilities;
    float *columns, *m_tile; /* score columns and maxima: for every tile and panel */
    int n_columns;           /* lines of a tile and panel, at most */
    /* Products of the sliding branch that the selected one may take: tokens [first_logit, swa_end),
     * none if that is empty; lines of every panel. */
    int64_t first_logit;
    float *logits;
    float *given;         /* lines of every panel: what normalises the scores, log base 2 */
    float *probabilities; /* summed over the heads of a kv head: n_cmp of every list */
    float *score;         /* n_score of every list */
    int64_t n_score;
    int32_t *idx; /* topk of every list */
};

/* Which rows a worker has loaded something of. */
struct ptl_nsa_loaded {
    const struct ptl_nsa_block *block;
    const void *q;
    int64_t row, n_rows;
};

/* What a worker has for itself. */
struct ptl_nsa_worker {
    struct ptl_nsa_stage stage;
    struct ptl_nsa_tile tiles[2]; /* the one at work and the next */
    int tile;                     /* which is which */
    float *q_panels;
    bool *empty;         /* of every panel */
    float *branch[3];    /* rows of floats for the heads of every list: cmp, slc, swa */
    float *sum;          /* one score tile's columns of every list */
    uint64_t *keys;      /* ranks of a selection */
    int64_t *list_start; /* token ranges of a selection: where they begin, */
    int64_t *list_end;   /* and how many tokens there are up to their end */
    int n_list;
    struct ptl_nsa_loaded loaded;             /* whose queries the panels hold */
    const struct ptl_nsa_block *listed_block; /* whose list this is */
    int listed;
    bool *has_queries; /* of every panel */
    bool has_logits;   /* all those of the block that is at work */

    /* The tile that this worker will probably want after its last split, into tiles[tile]; where it
     * is from, or NULL when nobody knows. */
    const struct ptl_nsa_store *(*peek)(void *job, struct ptl_nsa_worker *w);
    void *job;
};

/* Which block, without memory, not shared. */
void ptl_nsa_block_init(struct ptl_nsa_block *b, const struct ptl_nsa_problem *p,
                        const struct ptl_kernels *k, const struct ptl_nsa_seq *seq, int64_t head,
                        int n_heads, int64_t row, int n_rows);

/* Gives the block its memory, or, without memory, says how many bytes that is. */
size_t ptl_nsa_block_memory(struct ptl_nsa_block *b, char *memory);

/* The scratch of a worker while it is at this block, likewise. */
size_t ptl_nsa_worker_memory(struct ptl_nsa_worker *w, const struct ptl_nsa_block *b, char *memory);

/* The state of a panel in a set; without o where the branch has no values. */
static inline struct ptl_softmax_state ptl_nsa_state_at(const struct ptl_nsa_block *b,
                                                        const struct ptl_nsa_states *s, int64_t set,
                                                        int panel) {
    const int line = b->k->panel;
    float *m = s->at + (set * s->n_panels + panel) * line * (2 + b->p->dv);
    float *o = s == &b->cmp && !b->p->cmp.v.data ? NULL : m + 2 * line;
    return (struct ptl_softmax_state){m, m + line, o, false};
}

/* Score columns of a tile of compressed keys and a panel, and the maximum they refer to. */
static inline float *ptl_nsa_columns_at(const struct ptl_nsa_block *b, int64_t tile, int panel) {
    return b->columns + (tile * b->n_panels + panel) * b->n_columns * b->k->panel;
}

static inline float *ptl_nsa_tile_max_at(const struct ptl_nsa_block *b, int64_t tile, int panel) {
    return b->m_tile + (tile * b->n_panels + panel) * b->k->panel;
}

/* The first selection block to which n compressed keys from key i0 on count, and how many there
 * are. */
int64_t ptl_nsa_tile_columns(const struct ptl_nsa_block *b, int64_t i0, int64_t n, int *count);

static inline bool ptl_nsa_is_dense_row(const struct ptl_nsa_block *b, int r) {
    return ptl_nsa_position(&b->seq, b->row + r) + 1 < b->p->dense_len;
}

/* Keys that row r sees in a walk over a range: [*begin, *end). Neither end falls as r rises. */
void ptl_nsa_row_range(const struct ptl_nsa_block *b, enum ptl_nsa_phase phase, int r,
                       int64_t *begin, int64_t *end);

/* Multiply-adds of one phase, about. */
int64_t ptl_nsa_block_cost(const struct ptl_nsa_block *b, enum ptl_nsa_phase phase);

/* A part of a phase: splits [begin, end), for SLC those of one list, and panels [first, last). */
struct ptl_nsa_part {
    enum ptl_nsa_phase phase;
    int list; /* SLC only */
    int64_t begin, end;
    int first, last;
};

/* Lists that are walked one by one, and panels of such a walk. */
static inline int ptl_nsa_n_lists(const struct ptl_nsa_block *b, enum ptl_nsa_phase phase) {
    return phase == PTL_NSA_SLC ? b->n_lists : 1;
}

static inline int ptl_nsa_n_panels(const struct ptl_nsa_block *b, enum ptl_nsa_phase phase) {
    return phase == PTL_NSA_SLC ? b->n_row_panels : b->n_panels;
}

void ptl_nsa_block_walk(struct ptl_nsa_block *b, struct ptl_nsa_worker *w,
                        const struct ptl_nsa_part *part);

/* Its first tile, for w->peek: where it is from, or NULL. Of SLC only when there is a selection. */
const struct ptl_nsa_store *ptl_nsa_block_peek(struct ptl_nsa_block *b, struct ptl_nsa_worker *w,
                                               const struct ptl_nsa_part *part);

/* In a shared block: adds the states of a split to those of split 0, which hold all before it. */
void ptl_nsa_block_fold(struct ptl_nsa_block *b, const struct ptl_nsa_part *part, int64_t split);

/* When the states of CMP are final; after POOL, if there is any: scores and selection; when all
 * states are final: results to the caller's arrays. */
void ptl_nsa_block_normalise(struct ptl_nsa_block *b);
void ptl_nsa_block_select(struct ptl_nsa_block *b, struct ptl_nsa_worker *w);
void ptl_nsa_block_finish(struct ptl_nsa_block *b, struct ptl_nsa_worker *w);

#endif
