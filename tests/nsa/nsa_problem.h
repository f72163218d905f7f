/* NSA problems: arrays in any layout, each before an unmapped page, inputs write protected, all
 * that must not be read a NaN. What a row holds depends on the seed, its sequence's id, its
 * position and head alone, so problems that differ in layout, batch or length hold the same
 * numbers. Running and comparing is nsa_compare.h. */
#ifndef PTL_TESTS_NSA_PROBLEM_H
#define PTL_TESTS_NSA_PROBLEM_H

#include <pantile/attention.h>
#include <pantile/nsa.h>

#include "guard.h"
#include "harness.h"

enum { NSA_MAX_SEQS = 6, NSA_MAX_ARRAYS = 40 };

enum nsa_layout { NSA_JAGGED, NSA_DENSE, NSA_BHSD };

/* Sequence `id`, its first n_tokens tokens, the last n_queries of them as queries. */
struct nsa_seq {
    int64_t id, n_tokens, n_queries;
};

struct nsa_spec {
    uint64_t seed;
    struct ptl_nsa_params o; /* the options; its tensors are absent */
    int n_seqs;
    struct nsa_seq seq[NSA_MAX_SEQS];
    int64_t kv_heads, group, d, dv;
    enum ptl_dtype dtype, index;
    enum nsa_layout layout; /* other than jagged: n_queries alike */
    int64_t page, page_c;   /* 0: not paged */
    int64_t pad;            /* rows of tokens and compressed keys behind those of a sequence */
    int64_t gap;            /* elements between heads and between rows */
    bool q_cmp, swa;        /* own queries of the compressed, own tokens of the sliding branch */
    bool mean;              /* no kc, vc */
    bool lse_in, count, gates_f32;
    bool equal_keys; /* every key of a head is the same */
    float magnitude; /* of q; that of the others is 1 */
    double slack;    /* how much larger than usual errors may be */
};

/* l = 4, d = 2, l' = 8, topk 5, window 11, one sequence of 40 tokens that are all queries, 2 heads
 * for one kv head, D = 8, Dv = 6, f32, jagged. */
void nsa_spec_init(struct nsa_spec *s);

/* One sequence, whole. */
void nsa_spec_length(struct nsa_spec *s, int64_t n_tokens, int64_t n_queries);

/* Random sizes, options and layout; at most `most` tokens a sequence. */
void nsa_spec_random(struct nsa_spec *s, uint64_t seed, int64_t most);

/* The spec as text, for test_case. */
const char *nsa_spec_text(const struct nsa_spec *s);

struct nsa_problem {
    struct nsa_spec spec;
    struct ptl_nsa_params p; /* all inputs and outputs */
    /* Compressed keys and values: those of p, or, for `mean`, room for what ptl_nsa_compress makes
     * of p's tokens. */
    struct ptl_tensor kc, vc, seq_offsets_kc;
    struct guard guards[NSA_MAX_ARRAYS];
    size_t n_words[NSA_MAX_ARRAYS];
    bool is_input[NSA_MAX_ARRAYS];
    int n_guards;
};

void nsa_create(struct nsa_problem *x, const struct nsa_spec *spec);

/* Fails the case when something was written in front of an array. */
void nsa_destroy(struct nsa_problem *x);

/* Inputs may be written from now on, or no longer. */
void nsa_unprotect(struct nsa_problem *x);
void nsa_protect(struct nsa_problem *x);

/* An array of the problem, guarded like the others and full of GUARD_WORD. */
struct ptl_tensor nsa_array(struct nsa_problem *x, bool is_input, enum ptl_dtype dtype, int ndim,
                            const int64_t *shape, int64_t gap);

/* What a row of an array holds: n numbers in [-1, 1) times `magnitude`, rounded to the type. */
enum nsa_what { NSA_Q, NSA_Q_CMP, NSA_K, NSA_V, NSA_K_SWA, NSA_V_SWA, NSA_KC, NSA_VC, NSA_GATES };
void nsa_fill_row(const struct nsa_spec *s, enum nsa_what what, int64_t id, int64_t row,
                  int64_t head, const struct ptl_tensor *t, int64_t at);

/* An input laid out as q, [rows, Hq, last], filled. */
struct ptl_tensor nsa_query_input(struct nsa_problem *x, enum nsa_what what, enum ptl_dtype dtype,
                                  int64_t last);

/* Tensors of tokens or compressed keys: where row `row` of sequence b and head begins. */
int64_t nsa_token_at(const struct nsa_problem *x, const struct ptl_tensor *t, int b, int64_t row,
                     int64_t head);
int64_t nsa_compressed_at(const struct nsa_problem *x, const struct ptl_tensor *t, int b,
                          int64_t row, int64_t head);

/* Every element of such a row becomes that number. */
void nsa_set_row(const struct ptl_tensor *t, int64_t at, double number);

/* Entries of index tensors. */
void nsa_set_index(const struct ptl_tensor *t, int64_t i, int64_t number);

#endif
