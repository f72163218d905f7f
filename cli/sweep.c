/* Sweeps by counting in mixed radix: one digit per list. */
#define _POSIX_C_SOURCE 200809L
#include "sweep.h"

#include <stdlib.h>
#include <string.h>

static int64_t n_choices(const char *key, const char *value) {
    int64_t n = 1;
    if (strcmp(key, "window_size") == 0 || strpbrk(value, ":@")) return 1;
    for (; *value; value++) n += *value == ',';
    return n;
}

int64_t sweep_count(const struct words *w) {
    int64_t n = 1;
    for (int i = 0; i < w->n; i++) {
        n *= n_choices(w->word[i].key, w->word[i].value);
        if (n > SWEEP_MAX) return -1;
    }
    return n;
}

/* "key=" and entry number `choice` of the value; to be freed. */
static char *chosen_word(const char *key, const char *value, int64_t n, int64_t choice) {
    for (; choice > 0; choice--) value = strchr(value, ',') + 1;
    const size_t length = n > 1 ? strcspn(value, ",") : strlen(value), key_length = strlen(key);
    char *word = malloc(key_length + length + 2);
    if (!word) return NULL;
    memcpy(word, key, key_length);
    word[key_length] = '=';
    memcpy(word + key_length + 1, value, length);
    word[key_length + 1 + length] = 0;
    return word;
}

bool sweep_line(const struct words *w, int64_t index, struct words *one, struct refusal *r) {
    char *arguments[WORDS_MAX + 1] = {0};
    bool ok = (arguments[0] = strdup(w->op)) != NULL;
    for (int i = w->n - 1; i >= 0 && ok; i--) {
        const int64_t n = n_choices(w->word[i].key, w->word[i].value);
        arguments[i + 1] = chosen_word(w->word[i].key, w->word[i].value, n, index % n);
        ok = arguments[i + 1] != NULL;
        index /= n;
    }
    ok = ok ? words_of_arguments(one, w->n + 1, arguments, r) : refuse(r, "line: no memory");
    for (int i = 0; i <= w->n; i++) free(arguments[i]);
    return ok;
}
