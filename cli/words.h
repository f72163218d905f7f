/* A line of key=value words, and single values read from it, refusing with one sentence. It
 * knows no keys: which words an operator takes is the business of problem_line.c and arrays.c. */
#ifndef PTL_WORDS_H
#define PTL_WORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Where the sentence of a refusal goes. */
struct refusal {
    char *text;
    size_t size;
};

/* Writes the sentence and returns false. */
bool refuse(struct refusal *r, const char *format, ...) __attribute__((format(printf, 2, 3)));

enum { WORDS_MAX = 64 };

struct words {
    char *text; /* owned; keys, values and op point into it */
    const char *op;
    int n;
    struct {
        const char *key, *value;
    } word[WORDS_MAX];
};

/* The words of a line, or of arguments: several are a word each, blanks and all; a single one is
 * a line. Refuses a word without '=', a repeated key, too many words. On success words_free is
 * due. */
bool words_split(struct words *w, const char *line, struct refusal *r);
bool words_of_arguments(struct words *w, int n, char *const *arguments, struct refusal *r);
void words_free(struct words *w);

/* One line again, to be freed; NULL: no memory. */
char *words_join(const struct words *w);

/* The value of a key, or NULL. */
const char *words_find(const struct words *w, const char *key);
void words_remove(struct words *w, const char *key);

/* Whole text as a number; key is for the sentence. */
bool read_integer(const char *key, const char *text, int64_t low, int64_t high, int64_t *value,
                  struct refusal *r);
bool read_real(const char *key, const char *text, double *value, struct refusal *r);

/* Two numbers "a,b". form is what was expected: "left,right". */
bool read_integer_pair(const char *key, const char *text, const char *form, int64_t low,
                       int64_t high, int64_t value[2], struct refusal *r);

/* Numbers "a,b,c"; "" is no number. *list is to be freed, NULL when *n is 0. */
bool read_integer_list(const char *key, const char *text, int64_t low, int64_t high, int64_t **list,
                       int64_t *n, struct refusal *r);

/* The index of text among names (NULL ends them). */
bool read_choice(const char *key, const char *text, const char *const *names, int *choice,
                 struct refusal *r);

/* The rest of text behind prefix, or NULL. */
const char *after_prefix(const char *text, const char *prefix);

#endif
