/* Reads flat JSON objects, one a line, cutting each line into its texts. No general JSON: what
 * holds objects or lists is refused. */
#define _POSIX_C_SOURCE 200809L
#include "bench_rows.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct value {
    const char *text; /* NULL: a number */
    double number;    /* NaN: null; true is 1 */
};

static bool skip(char **at, char c) {
    *at += strspn(*at, " \t\r\n");
    if (**at != c) return false;
    (*at)++;
    return true;
}

/* Undoes the escapes where the text lies. */
static bool take_text(char **at, const char **text) {
    if (!skip(at, '"')) return false;
    char *to = *at;
    *text = to;
    for (char *from = to; *from; from++) {
        unsigned code;
        if (*from == '"') {
            *to = 0;
            *at = from + 1;
            return true;
        }
        if (*from == '\\' && *++from == 'u') {
            if (sscanf(from + 1, "%4x", &code) != 1) return false;
            *to++ = (char)code; /* bench writes control characters so, nothing else */
            from += 4;
        } else {
            *to++ = *from;
        }
    }
    return false;
}

static bool take_value(char **at, struct value *v) {
    static const struct {
        const char *name;
        double number;
    } words[] = {{"null", NAN}, {"true", 1.0}, {"false", 0.0}};
    *at += strspn(*at, " \t\r\n");
    *v = (struct value){0};
    if (**at == '"') return take_text(at, &v->text);
    for (int i = 0; i < 3; i++) {
        const char *rest = after_prefix(*at, words[i].name);
        if (!rest) continue;
        v->number = words[i].number;
        *at += rest - *at;
        return true;
    }
    char *end;
    v->number = strtod(*at, &end);
    const bool ok = end != *at;
    *at = end;
    return ok;
}

static void set(struct bench_row *row, const char *key, const struct value *v) {
    const struct {
        const char *key, **text;
    } texts[] = {{"op", &row->op},
                 {"problem", &row->problem},
                 {"isa", &row->isa},
                 {"executor", &row->executor},
                 {"cpu", &row->cpu}};
    for (int i = 0; i < 5; i++)
        if (strcmp(key, texts[i].key) == 0) *texts[i].text = v->text;
    if (v->text) return;
    if (strcmp(key, "threads") == 0) row->threads = (int)v->number;
    if (strcmp(key, "min_ms") == 0) row->min_ms = v->number;
    if (strcmp(key, "peak_fraction") == 0) row->peak_fraction = v->number;
    if (strcmp(key, "disturbed") == 0) row->disturbed = v->number == 1.0;
}

static bool read_row(struct bench_row *row) {
    char *at = row->line;
    bool more = skip(&at, '{');
    while (more) {
        const char *key;
        struct value v;
        if (!take_text(&at, &key) || !skip(&at, ':') || !take_value(&at, &v)) return false;
        set(row, key, &v);
        more = skip(&at, ',');
    }
    return skip(&at, '}') && row->op && row->problem && row->isa && row->executor &&
           row->threads > 0 && row->min_ms > 0.0;
}

static bool add_line(struct bench_rows *rows, const char *line) {
    struct bench_row *more = realloc(rows->row, (size_t)(rows->n + 1) * sizeof *more);
    if (!more) return false;
    rows->row = more;
    more[rows->n] = (struct bench_row){.line = strdup(line), .peak_fraction = NAN};
    return more[rows->n++].line != NULL;
}

bool bench_rows_read(struct bench_rows *rows, const char *path, struct refusal *r) {
    char *line = NULL;
    size_t size = 0;
    bool ok = true;
    FILE *f = fopen(path, "r");
    if (!f) return refuse(r, "%s: %s", path, strerror(errno));
    for (int n = 1; ok && getline(&line, &size, f) >= 0; n++) {
        if (line[strspn(line, " \t\r\n")] == 0) continue;
        ok = add_line(rows, line) || refuse(r, "%s: no memory", path);
        if (ok && !read_row(&rows->row[rows->n - 1]))
            ok = refuse(r, "%s:%d: not a line of 'pantile bench -o jsonl'", path, n);
    }
    free(line);
    fclose(f);
    if (ok && rows->n == 0) return refuse(r, "%s: no results in it", path);
    return ok;
}

void bench_rows_free(struct bench_rows *rows) {
    for (int64_t i = 0; i < rows->n; i++) free(rows->row[i].line);
    free(rows->row);
}
