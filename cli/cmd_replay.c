/* pantile replay: times logged calls again. The arrays are generated as the lines describe them;
 * what was in them is not logged. */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../bench/probe.h"
#include "commands.h"
#include "options.h"
#include "runner.h"
#include "timing.h"

static const char help[] =
    "usage: pantile replay LINE | @FILE [--reps N] [--time SECONDS]\n"
    "\n"
    "Runs calls again that PTL_VERBOSE=1 logged, on the level, executor and threads of the line:\n"
    "\n"
    "  PTL_VERBOSE=1 ./server 2> calls.log\n"
    "  pantile replay @calls.log\n"
    "  pantile replay \"$(grep hstu_backward calls.log | head -1)\"\n"
    "\n"
    "  --reps N         timed calls of each; default: as many as fit the time, 3 at least\n"
    "  --time SECONDS   of timed calls of each, default 1\n"
    "\n"
    "What else stands in the file is skipped. Calls that are the same but for their time are one\n"
    "row; old and new ms are those of the fastest. A logged call may have met cold caches, a "
    "replayed\n"
    "one finds them warm unless the line says cache=cold. Contents are drawn from a seed. Lines "
    "of more\n"
    "than 64 sequences have only a summary of their lengths and are refused.\n"
    "Exit status: 0, 2 when a line was refused.\n";

struct logged {
    char *line; /* owned; without the time */
    double ms;  /* of the fastest */
    int64_t n;
};

struct log {
    struct logged *call;
    int64_t n;
};

static void log_free(struct log *log) {
    for (int64_t i = 0; i < log->n; i++) free(log->call[i].line);
    free(log->call);
}

/* Takes the line over, also when it fails. */
static bool add_call(struct log *log, char *line, double ms, struct refusal *r) {
    struct logged *more = NULL;
    for (int64_t i = 0; line && i < log->n; i++) {
        struct logged *call = &log->call[i];
        if (strcmp(call->line, line) != 0) continue;
        free(line);
        if (ms < call->ms) call->ms = ms;
        call->n++;
        return true;
    }
    if (line) more = realloc(log->call, (size_t)(log->n + 1) * sizeof *more);
    if (!more) {
        free(line);
        return refuse(r, "line: no memory");
    }
    log->call = more;
    more[log->n++] = (struct logged){line, ms, 1};
    return true;
}

static bool add_words(struct log *log, struct words *w, struct refusal *r) {
    double ms;
    const char *value = words_find(w, "ms");
    if (!value) return refuse(r, "ms: not in the line, expected a logged call");
    if (!read_real("ms", value, &ms, r)) return false;
    words_remove(w, "ms");
    return add_call(log, words_join(w), ms, r);
}

static bool is_call(const char *line) {
    char op[64];
    return sscanf(line, "%63s", op) == 1 && find_operator(op) && strstr(line, " ms=");
}

static bool read_log(struct log *log, const char *path, struct refusal *r) {
    char *line = NULL;
    size_t size = 0;
    bool ok = true;
    FILE *f = fopen(path, "r");
    if (!f) return refuse(r, "%s: %s", path, strerror(errno));
    while (ok && getline(&line, &size, f) >= 0) {
        struct words w;
        if (!is_call(line)) continue;
        ok = words_split(&w, line, r);
        if (!ok) break;
        ok = add_words(log, &w, r);
        words_free(&w);
    }
    free(line);
    fclose(f);
    if (ok && log->n == 0) return refuse(r, "%s: no logged call in it", path);
    return ok;
}

static bool read_arguments(struct log *log, int n, char *const *arguments, struct refusal *r) {
    struct words w;
    const char *path = n == 1 ? after_prefix(arguments[0], "@") : NULL;
    if (path) return read_log(log, path, r);
    if (!words_of_arguments(&w, n, arguments, r)) return false;
    const bool ok = add_words(log, &w, r);
    words_free(&w);
    return ok;
}

static bool replay(const struct timing *t, const struct logged *logged, struct refusal *r) {
    struct words w;
    struct call c;
    struct ptl_context *ctx;
    struct ptl_context_info info = {.struct_size = sizeof info};
    struct times times = {0};
    if (!words_split(&w, logged->line, r)) return false;
    bool ok = call_open(&c, &w, r);
    words_free(&w);
    if (!ok) return false;
    ok = open_context(&c.problem, &ctx, r);
    if (ok) {
        ptl_context_get_info(ctx, &info);
        ok = time_calls(t, ctx, &c, info.num_threads, &times, r);
        ptl_context_destroy(ctx);
    }
    call_close(&c);
    if (ok) {
        const double ms = 1e3 * times.seconds[0];
        printf("| %5" PRId64 " | %9.3f | %9.3f | %9.2f | %s |\n", logged->n, logged->ms, ms,
               logged->ms > 0.0 ? ms / logged->ms : 0.0, logged->line);
        fflush(stdout);
    }
    free(times.seconds);
    return ok;
}

static int replay_all(const struct timing *t, const struct log *log, struct refusal *r) {
    int status = EXIT_PASS;
    puts("| calls |    old ms |    new ms | new / old | call |\n"
         "|------:|----------:|----------:|----------:|:-----|");
    for (int64_t i = 0; i < log->n; i++)
        if (!replay(t, &log->call[i], r)) status = complain(r->text);
    return status;
}

static int replay_main(int argc, char **argv) {
    char sentence[1024];
    struct refusal refusal = {sentence, sizeof sentence};
    struct option options[] = {{"--reps", NULL}, {"--time", NULL}, {NULL, NULL}};
    struct timing timing;
    struct log log = {0};
    int status = EXIT_REFUSED;
    const int n = take_options(argc, argv, options, &refusal);
    if (n < 0 || !read_timing(&timing, options[0].value, options[1].value, &refusal))
        return complain(sentence);
    timing.probe = probe_create();
    if (!timing.probe) return complain("probe: no memory");
    if (read_arguments(&log, n, argv + 1, &refusal)) status = replay_all(&timing, &log, &refusal);
    else complain(sentence);
    log_free(&log);
    probe_destroy(timing.probe);
    return status;
}

const struct command replay_command = {"replay", "time logged calls again, old and new", help,
                                       replay_main};
