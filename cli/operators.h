/* What the families of operators share: the shape of their tables, and preparing outputs. For
 * operators*.c and those who look operators up by family. */
#ifndef PTL_OPERATORS_H
#define PTL_OPERATORS_H

#include "call.h"

/* Operators that one page of help covers. */
struct family {
    const char *name; /* topic of pantile help */
    const char *help;
    const struct operator* operators; /* one without a name ends them */
};

extern const struct family hstu_family, jagged_family, nsa_family;
extern const struct family *const families[]; /* NULL ends them */

/* NULL: there is none of that name. */
const struct family *find_family(const char *name);

#define FIELD(key, kind, member)                                                                   \
    { key, kind, offsetof(struct call, member), NULL }
#define CHOICE(key, member, names)                                                                 \
    { key, FIELD_CHOICE, offsetof(struct call, member), names }

/* Arrays that outputs are laid out by must be there, with enough axes to tell. */
bool require(const char *key, const struct ptl_tensor *t, int least, int most, const char *expected,
             struct refusal *r);

/* uint16 may be anything; that it is bf16 must be said. */
bool check_dtype(const struct call *c, const char *key, const struct ptl_tensor *t,
                 struct refusal *r);

/* An output that can be left out is computed when the line names it, or names none. */
bool is_due(const struct call *c, const char *key);

bool take_like(struct call *c, const char *key, const struct ptl_tensor *like, struct ptl_tensor *t,
               struct refusal *r);

#endif
