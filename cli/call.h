/* A call of the library as a line describes it: which operator, its arguments complete over memory
 * of its own, and the files that outputs go to. It computes nothing. */
#ifndef PTL_CALL_H
#define PTL_CALL_H

#include <pantile/pantile.h>
#include <stdbool.h>

#include "problem.h"
#include "problem_nsa.h"
#include "words.h"

/* Arguments of the four copies between jagged and padded arrays. */
struct jagged_arguments {
    struct ptl_jagged x, out, left, right; /* those that the operator has */
    enum ptl_jagged_align align;
    double padding_value;
    char pad[8]; /* the same as an element */
    int64_t n_prefix;
    int64_t n, rows, n_left, n_right; /* extents of dense sides and of outputs; -1: not given */
};

enum { CALL_MAX_OUTPUTS = 16 };

struct output {
    const char *key;
    size_t tensor; /* its offset in struct call */
    char *path;    /* owned */
};

struct call {
    const struct operator* op;
    struct problem problem; /* memory and run options of any call; hstu and hstu_backward */
    int dtype;              /* of the word dtype=; 0: none */
    struct ptl_hstu_kv_append_params append;
    struct jagged_arguments jagged;
    struct ptl_jagged_position_time_params position_time;
    struct nsa_arguments nsa;
    int n_outputs; /* the ones that the line names */
    struct output outputs[CALL_MAX_OUTPUTS];
};

/* The call of a line's words: over the arrays that they name, or generated when they name none.
 * Takes output words off w. On success call_close is due. */
bool call_open(struct call *c, struct words *w, struct refusal *r);
void call_close(struct call *c);

/* Writes the outputs that the line named. */
bool call_write(const struct call *c, struct refusal *r);

struct ptl_tensor *call_tensor(const struct call *c, size_t offset);

/* How it is to run. */
void call_set_run(struct call *c, const struct run_options *run);

/* A contiguous array in the call's memory, full of 0xff. */
bool call_take(struct call *c, const char *name, enum ptl_dtype dtype, int ndim,
               const int64_t *shape, struct ptl_tensor *t, struct refusal *r);

/* ---- Operators ------------------------------------------------------------------------------- */

enum field_kind {
    FIELD_ARRAY,   /* struct ptl_tensor: a file */
    FIELD_INDEX,   /* struct ptl_tensor: a file, N or list:a,b,...; the latter of the files' type */
    FIELD_TIMES,   /* struct ptl_tensor: a file, or list:a,b,... of int64 */
    FIELD_SCALE,   /* struct ptl_tensor: a file, or a real number */
    FIELD_INTEGER, /* int64_t */
    FIELD_FLOAT,   /* float */
    FIELD_DOUBLE,  /* double */
    FIELD_CHOICE,  /* an enum from 0 on, by names */
    FIELD_DTYPE,   /* int: f32, f16, bf16 */
    FIELD_RULE,    /* window_left and window_right of struct ptl_hstu_params, as rule= */
    FIELD_WINDOW,  /* the same, as window_size= */
    FIELD_OUTPUT   /* struct ptl_tensor: a file that is written */
};

/* What a word of a line with arrays sets. */
struct field {
    const char *key; /* NULL ends a table */
    enum field_kind kind;
    size_t offset; /* in struct call */
    const char *const *names;
};

enum { OPERATOR_MAX_TABLES = 7 };

struct comparison;
struct cost;

struct operator{
    const char *name;                                    /* NULL ends a table */
    const char *help;                                    /* topic of pantile help */
    const struct field *fields[OPERATOR_MAX_TABLES + 1]; /* NULL ends them */
    void (*init)(struct call * c);                       /* defaults */
    /* Array lines: checks what it takes to lay out the outputs, and does. */
    bool (*prepare)(struct call * c, struct refusal * r);
    bool (*generate)(struct call * c, const struct words *w, struct refusal *r);
    enum ptl_status (*run)(struct ptl_context * ctx, const struct call *c);
    /* With the reference, after a run: compare.h. What a run costs: cost.h. */
    bool (*compare)(const struct call *c, double seconds, struct comparison *result);
    struct cost (*cost)(const struct call *c);
    const char *result; /* the output to name when a line names none */
    size_t rows;        /* the tensor in struct call whose type the kernels run on */
};

/* NULL: there is none of that name. */
const struct operator* find_operator(const char *name);
const struct field *find_field(const struct operator* op, const char *key);

/* Whether the line names the output. */
bool wants(const struct call *c, const char *key);

/* arrays.c: the arguments of a line with arrays. */
bool load_arrays(struct call *c, const struct words *w, struct refusal *r);

/* generate.c: those of a generated line. */
bool generate_hstu(struct call *c, const struct words *w, struct refusal *r);
bool generate_kv_append(struct call *c, const struct words *w, struct refusal *r);
bool generate_jagged(struct call *c, const struct words *w, struct refusal *r);
bool generate_position_time(struct call *c, const struct words *w, struct refusal *r);
bool generate_nsa(struct call *c, const struct words *w, struct refusal *r);

#endif
