/* Finding operators and words by name, and what families do alike when they prepare outputs. */
#include "operators.h"

#include <string.h>

#include "npy.h"

const struct family *const families[] = {&hstu_family, &jagged_family, &nsa_family, NULL};

const struct family *find_family(const char *name) {
    for (int i = 0; families[i]; i++)
        if (strcmp(families[i]->name, name) == 0) return families[i];
    return NULL;
}

const struct operator* find_operator(const char *name) {
    for (int i = 0; families[i]; i++)
        for (const struct operator* op = families[i]->operators; op->name; op++)
            if (strcmp(op->name, name) == 0) return op;
    return NULL;
}

const struct field *find_field(const struct operator* op, const char *key) {
    for (const struct field *const *table = op->fields; *table; table++)
        for (const struct field *field = *table; field->key; field++)
            if (strcmp(field->key, key) == 0) return field;
    return NULL;
}

bool require(const char *key, const struct ptl_tensor *t, int least, int most, const char *expected,
             struct refusal *r) {
    char text[96];
    if (!t->data) return refuse(r, "%s: missing, expected %s=@file.npy", key, key);
    if (t->ndim >= least && t->ndim <= most) return true;
    return refuse(r, "%s: shape %s, expected %s", key, shape_text(t, text), expected);
}

bool check_dtype(const struct call *c, const char *key, const struct ptl_tensor *t,
                 struct refusal *r) {
    static const char *const names[] = {"", "f32", "f16", "bf16", "i32", "i64", "u8"};
    if (c->dtype == (int)t->dtype) return true;
    if (c->dtype)
        return refuse(r, "%s: %s, but the line says dtype=%s", key, names[t->dtype],
                      names[c->dtype]);
    if (t->dtype != PTL_BF16) return true;
    return refuse(r, "%s: uint16, expected float32 or float16, or dtype=bf16 on the line", key);
}

bool is_due(const struct call *c, const char *key) {
    return c->n_outputs == 0 || wants(c, key);
}

bool take_like(struct call *c, const char *key, const struct ptl_tensor *like, struct ptl_tensor *t,
               struct refusal *r) {
    return call_take(c, key, like->dtype, like->ndim, like->shape, t, r);
}
