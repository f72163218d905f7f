/* Lines as calls: the operator's name looked up, output words taken off, and the rest left to
 * arrays.c or generate.c. */
#define _POSIX_C_SOURCE 200809L
#include "call.h"

#include <stdlib.h>
#include <string.h>

#include "npy.h"
#include "problem_memory.h"

struct ptl_tensor *call_tensor(const struct call *c, size_t offset) {
    return (struct ptl_tensor *)((uintptr_t)c + offset);
}

bool call_take(struct call *c, const char *name, enum ptl_dtype dtype, int ndim,
               const int64_t *shape, struct ptl_tensor *t, struct refusal *r) {
    return problem_memory_tensor(c->problem.memory, name, dtype, ndim, shape, t, r);
}

void call_set_run(struct call *c, const struct run_options *run) {
    c->problem.threads = run->threads;
    c->problem.isa = run->isa;
    c->problem.executor = run->executor;
    c->problem.cold = run->cold;
}

/* ---- Outputs --------------------------------------------------------------------------------- */

static void free_outputs(struct call *c) {
    for (int i = 0; i < c->n_outputs; i++) free(c->outputs[i].path);
    c->n_outputs = 0;
}

/* A number stays: dv= and ds= are words of generated lines, too. */
static bool take_output(struct call *c, const struct field *field, struct words *w,
                        struct refusal *r) {
    const char *path = words_find(w, field->key);
    if (field->kind != FIELD_OUTPUT || !path || *path != '@') return true;
    if (!path[1]) return refuse(r, "%s: '@', expected @file.npy", field->key);
    struct output *output = &c->outputs[c->n_outputs];
    *output = (struct output){field->key, field->offset, strdup(path + 1)};
    if (!output->path) return refuse(r, "%s: no memory", field->key);
    c->n_outputs++;
    words_remove(w, field->key);
    return true;
}

static bool take_outputs(struct call *c, struct words *w, struct refusal *r) {
    for (const struct field *const *table = c->op->fields; *table; table++)
        for (const struct field *field = *table; field->key; field++)
            if (!take_output(c, field, w, r)) return false;
    return true;
}

/* Optional outputs exist only where their arguments do. */
static bool check_outputs(const struct call *c, struct refusal *r) {
    for (int i = 0; i < c->n_outputs; i++)
        if (!call_tensor(c, c->outputs[i].tensor)->data)
            return refuse(r, "%s: asked for, but this line has no such output", c->outputs[i].key);
    return true;
}

bool wants(const struct call *c, const char *key) {
    for (int i = 0; i < c->n_outputs; i++)
        if (strcmp(c->outputs[i].key, key) == 0) return true;
    return false;
}

bool call_write(const struct call *c, struct refusal *r) {
    for (int i = 0; i < c->n_outputs; i++)
        if (!npy_write(c->outputs[i].path, call_tensor(c, c->outputs[i].tensor), r)) return false;
    return true;
}

/* ---- Lines ----------------------------------------------------------------------------------- */

static bool names_arrays(const struct words *w) {
    for (int i = 0; i < w->n; i++)
        if (w->word[i].value[0] == '@') return true;
    return false;
}

static bool open_arrays(struct call *c, const struct words *w, struct refusal *r) {
    strcpy(c->problem.op, c->op->name);
    c->problem.seed = 1;
    c->problem.memory = problem_memory_create(false);
    if (!c->problem.memory) return refuse(r, "line: no memory");
    return load_arrays(c, w, r) && c->op->prepare(c, r);
}

bool call_open(struct call *c, struct words *w, struct refusal *r) {
    memset(c, 0, sizeof *c);
    c->op = find_operator(w->op);
    if (!c->op) return refuse(r, "'%.60s': unknown operator, see 'pantile help'", w->op);
    c->op->init(c);
    if (take_outputs(c, w, r) && (names_arrays(w) ? open_arrays : c->op->generate)(c, w, r) &&
        check_outputs(c, r))
        return true;
    call_close(c);
    return false;
}

void call_close(struct call *c) {
    free_outputs(c);
    problem_destroy(&c->problem);
}
