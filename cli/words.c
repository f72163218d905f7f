/* Lines of key=value words, and the numbers in them. */
#define _POSIX_C_SOURCE 200809L
#include "words.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool refuse(struct refusal *r, const char *format, ...) {
    va_list args;
    va_start(args, format);
    if (r->size > 0) vsnprintf(r->text, r->size, format, args);
    va_end(args);
    return false;
}

const char *after_prefix(const char *text, const char *prefix) {
    const size_t n = strlen(prefix);
    return strncmp(text, prefix, n) == 0 ? text + n : NULL;
}

/* ---- Lines ----------------------------------------------------------------------------------- */

static bool add_word(struct words *w, char *word, struct refusal *r) {
    char *equals = strchr(word, '=');
    if (!equals || equals == word)
        return refuse(r, "'%.60s': expected a word of the form key=value", word);
    *equals = 0;
    if (words_find(w, word)) return refuse(r, "%.60s: given twice, expected once", word);
    if (w->n == WORDS_MAX) return refuse(r, "%.60s: more than %d words", word, WORDS_MAX);
    w->word[w->n].key = word;
    w->word[w->n].value = equals + 1;
    w->n++;
    return true;
}

bool words_split(struct words *w, const char *line, struct refusal *r) {
    static const char blanks[] = " \t\r\n";
    char *rest;
    memset(w, 0, sizeof *w);
    w->text = strdup(line);
    if (!w->text) return refuse(r, "line: no memory");
    w->op = strtok_r(w->text, blanks, &rest);
    if (!w->op) {
        refuse(r, "line: empty, expected an operator and key=value words");
        goto fail;
    }
    for (char *word; (word = strtok_r(NULL, blanks, &rest)) != NULL;)
        if (!add_word(w, word, r)) goto fail;
    return true;
fail:
    words_free(w);
    return false;
}

bool words_of_arguments(struct words *w, int n, char *const *arguments, struct refusal *r) {
    if (n < 2) return words_split(w, n == 1 ? arguments[0] : "", r);
    size_t size = 0;
    for (int i = 0; i < n; i++) size += strlen(arguments[i]) + 1;
    memset(w, 0, sizeof *w);
    w->text = malloc(size);
    if (!w->text) return refuse(r, "line: no memory");
    char *at = w->text;
    for (int i = 0; i < n; i++) {
        char *word = at;
        at = stpcpy(at, arguments[i]) + 1;
        if (i == 0) {
            w->op = word;
        } else if (!add_word(w, word, r)) {
            words_free(w);
            return false;
        }
    }
    return true;
}

char *words_join(const struct words *w) {
    size_t size = strlen(w->op) + 1;
    for (int i = 0; i < w->n; i++) size += strlen(w->word[i].key) + strlen(w->word[i].value) + 2;
    char *line = malloc(size);
    if (!line) return NULL;
    char *at = stpcpy(line, w->op);
    for (int i = 0; i < w->n; i++) {
        if (at != line) *at++ = ' ';
        at = stpcpy(stpcpy(stpcpy(at, w->word[i].key), "="), w->word[i].value);
    }
    return line;
}

void words_free(struct words *w) {
    free(w->text);
    memset(w, 0, sizeof *w);
}

const char *words_find(const struct words *w, const char *key) {
    for (int i = 0; i < w->n; i++)
        if (strcmp(w->word[i].key, key) == 0) return w->word[i].value;
    return NULL;
}

void words_remove(struct words *w, const char *key) {
    for (int i = 0; i < w->n; i++)
        if (strcmp(w->word[i].key, key) == 0) {
            w->n--;
            memmove(&w->word[i], &w->word[i + 1], (size_t)(w->n - i) * sizeof w->word[0]);
            return;
        }
}

/* ---- Values ---------------------------------------------------------------------------------- */

/* The number at *text, which ends at `stop`; moves *text there. */
static bool scan_integer(const char **text, char stop, int64_t low, int64_t high, int64_t *value) {
    char *end;
    const char first = **text;
    if (first != '-' && (first < '0' || first > '9')) return false; /* strtoll would skip blanks */
    errno = 0;
    const long long x = strtoll(*text, &end, 10);
    if (errno || end == *text || (*end != stop && *end != 0) || x < low || x > high) return false;
    *text = end;
    *value = x;
    return true;
}

bool read_integer(const char *key, const char *text, int64_t low, int64_t high, int64_t *value,
                  struct refusal *r) {
    const char *at = text;
    if (scan_integer(&at, 0, low, high, value)) return true;
    return refuse(r, "%s: '%.60s', expected a whole number from %" PRId64 " to %" PRId64, key, text,
                  low, high);
}

bool read_real(const char *key, const char *text, double *value, struct refusal *r) {
    char *end;
    const bool begins = *text && strchr("-.0123456789", *text);
    *value = begins ? strtod(text, &end) : 0.0;
    if (begins && end != text && *end == 0 && isfinite(*value)) return true;
    return refuse(r, "%s: '%.60s', expected a finite number", key, text);
}

bool read_integer_pair(const char *key, const char *text, const char *form, int64_t low,
                       int64_t high, int64_t value[2], struct refusal *r) {
    const char *at = text;
    if (scan_integer(&at, ',', low, high, &value[0]) && *at++ == ',' &&
        scan_integer(&at, 0, low, high, &value[1]))
        return true;
    return refuse(r, "%s: '%.60s', expected %s, whole numbers from %" PRId64 " to %" PRId64, key,
                  text, form, low, high);
}

bool read_integer_list(const char *key, const char *text, int64_t low, int64_t high, int64_t **list,
                       int64_t *n, struct refusal *r) {
    int64_t count = *text ? 1 : 0;
    for (const char *c = text; *c; c++) count += *c == ',';
    *n = 0;
    *list = NULL;
    if (count == 0) return true;
    int64_t *numbers = malloc((size_t)count * sizeof *numbers);
    if (!numbers) return refuse(r, "%s: no memory for %" PRId64 " numbers", key, count);
    const char *at = text;
    for (int64_t i = 0; i < count; i++) {
        const bool last = i == count - 1;
        if (!scan_integer(&at, ',', low, high, &numbers[i]) || *at++ != (last ? 0 : ',')) {
            free(numbers);
            return refuse(r,
                          "%s: '%.60s', expected whole numbers from %" PRId64 " to %" PRId64
                          " with commas between",
                          key, text, low, high);
        }
    }
    *list = numbers;
    *n = count;
    return true;
}

bool read_choice(const char *key, const char *text, const char *const *names, int *choice,
                 struct refusal *r) {
    char all[200] = "";
    for (int i = 0; names[i]; i++) {
        if (strcmp(text, names[i]) == 0) {
            *choice = i;
            return true;
        }
        const size_t used = strlen(all);
        snprintf(all + used, sizeof all - used, "%s%s",
                 i == 0         ? ""
                 : names[i + 1] ? ", "
                                : " or ",
                 names[i]);
    }
    return refuse(r, "%s: '%.60s', expected %s", key, text, all);
}
