/* Reads the arrays and options of a line into the arguments, as the operator's table of fields
 * says. What they must be is checked by the library. */
#define _POSIX_C_SOURCE 200809L
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "call.h"
#include "npy.h"
#include "problem_line.h"
#include "problem_memory.h"

struct loader {
    struct call *call;
    const struct words *words;
    struct refusal *refusal;
    enum ptl_dtype index_type; /* of the index arrays read: all of a call must be alike, so written
                                  numbers follow it */
};

static void *place_of(const struct loader *l, const struct field *field) {
    return (char *)l->call + field->offset;
}

/* ---- Values ---------------------------------------------------------------------------------- */

static bool is_tensor(enum field_kind kind) {
    return kind == FIELD_ARRAY || kind == FIELD_INDEX || kind == FIELD_TIMES || kind == FIELD_SCALE;
}

static bool read_array(struct loader *l, const struct field *field, const char *path) {
    struct ptl_tensor *t = place_of(l, field);
    if (t->data) return refuse(l->refusal, "%s: given twice, by two names", field->key);
    if (!npy_read(path, t, l->refusal)) return false;
    if (!problem_memory_adopt(l->call->problem.memory, t->data)) {
        free(t->data);
        return refuse(l->refusal, "%s: no memory", path);
    }
    if (field->kind == FIELD_INDEX) l->index_type = t->dtype;
    return true;
}

/* N as an array without axes, or list:a,b,... */
static bool read_numbers(const struct loader *l, const struct field *field, const char *value) {
    const char *rest = after_prefix(value, "list:"), *key = field->key;
    const bool times = field->kind == FIELD_TIMES;
    const enum ptl_dtype dtype = times ? PTL_I64 : l->index_type;
    const int64_t max = dtype == PTL_I32 ? INT32_MAX : INT64_MAX, min = times ? INT64_MIN : 0;
    int64_t *list = NULL, n = 1, one;
    if (times && !rest)
        return refuse(l->refusal, "%s: '%.60s', expected @file.npy or list:a,b,...", key, value);
    if (rest ? !read_integer_list(key, rest, min, max, &list, &n, l->refusal)
             : !read_integer(key, value, min, max, &one, l->refusal))
        return false;
    struct ptl_tensor *t = place_of(l, field);
    const bool ok = call_take(l->call, key, dtype, rest ? 1 : 0, &n, t, l->refusal);
    for (int64_t i = 0; ok && i < n; i++) {
        const int64_t number = rest ? list[i] : one;
        if (dtype == PTL_I32) ((int32_t *)t->data)[i] = (int32_t)number;
        else ((int64_t *)t->data)[i] = number;
    }
    free(list);
    return ok;
}

static bool read_float(const struct loader *l, const char *key, const char *value, float *x) {
    double real;
    if (!read_real(key, value, &real, l->refusal)) return false;
    if (fabs(real) > FLT_MAX)
        return refuse(l->refusal, "%s: '%.60s', expected a number that fits fp32", key, value);
    *x = (float)real;
    return true;
}

static bool read_scale(const struct loader *l, const struct field *field, const char *value) {
    struct ptl_tensor *t = place_of(l, field);
    return call_take(l->call, field->key, PTL_F32, 0, NULL, t, l->refusal) &&
           read_float(l, field->key, value, t->data);
}

static bool read_tensor(struct loader *l, const struct field *field, const char *value) {
    switch (field->kind) {
    case FIELD_ARRAY:
        return refuse(l->refusal, "%s: '%.60s', expected @file.npy", field->key, value);
    case FIELD_SCALE: return read_scale(l, field, value);
    default: return read_numbers(l, field, value);
    }
}

static bool read_option(const struct loader *l, const struct field *field, const char *value) {
    static const char *const dtypes[] = {"f32", "f16", "bf16", NULL};
    struct ptl_hstu_params *a = &l->call->problem.hstu;
    void *place = place_of(l, field);
    struct refusal *r = l->refusal;
    int64_t window[2];
    int choice;
    switch (field->kind) {
    case FIELD_INTEGER: return read_integer(field->key, value, INT64_MIN, INT64_MAX, place, r);
    case FIELD_FLOAT: return read_float(l, field->key, value, place);
    case FIELD_DOUBLE: return read_real(field->key, value, place, r);
    case FIELD_CHOICE: return read_choice(field->key, value, field->names, place, r);
    case FIELD_OUTPUT: return refuse(r, "%s: '%.60s', expected @file.npy", field->key, value);
    case FIELD_DTYPE:
        if (!read_choice(field->key, value, dtypes, &choice, r)) return false;
        *(int *)place = PTL_F32 + choice;
        return true;
    case FIELD_RULE:
    case FIELD_WINDOW:
        if (words_find(l->words, "rule") && words_find(l->words, "window_size"))
            return refuse(r, "window_size: given together with rule, expected one of them");
        if (!(field->kind == FIELD_RULE ? read_rule : read_window)(value, window, r)) return false;
        a->window_left = window[0];
        a->window_right = window[1];
        return true;
    default: return true;
    }
}

/* ---- Words ----------------------------------------------------------------------------------- */

/* Options of the run and of the operator, and the files. */
static bool read_words(struct loader *l, struct run_options *run) {
    for (int i = 0; i < l->words->n; i++) {
        const char *key = l->words->word[i].key, *value = l->words->word[i].value;
        const struct field *field = find_field(l->call->op, key);
        bool known = true;
        if (!field && !read_run_option(run, key, value, &known, l->refusal)) return false;
        if (!known)
            return refuse(l->refusal,
                          "%.60s: unknown key of a line with arrays, see 'pantile help %s'", key,
                          l->call->op->help);
        if (!field) continue;
        if (is_tensor(field->kind)) {
            if (*value == '@' && !read_array(l, field, value + 1)) return false;
        } else if (!read_option(l, field, value)) {
            return false;
        }
    }
    return true;
}

/* Numbers that are written out, once the type of the files is known. */
static bool read_written_numbers(struct loader *l) {
    for (int i = 0; i < l->words->n; i++) {
        const char *value = l->words->word[i].value;
        const struct field *field = find_field(l->call->op, l->words->word[i].key);
        if (field && is_tensor(field->kind) && *value != '@' && !read_tensor(l, field, value))
            return false;
    }
    return true;
}

bool load_arrays(struct call *c, const struct words *w, struct refusal *r) {
    struct loader l = {c, w, r, PTL_I64};
    struct run_options run = {0};
    if (!read_words(&l, &run) || !read_written_numbers(&l)) return false;
    call_set_run(c, &run);
    return true;
}
