/* pantile demo: HSTU attention over real users' histories, and the ladder from the naive form to
 * the library's. It makes the problem and prints the table; the rungs are bench/ladder_hstu.c, and
 * the second part of the demo is demo_nsa.c. */
#define _GNU_SOURCE
#include <errno.h>
#include <math.h>
#include <pantile/pantile.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "../bench/ladder_hstu.h"
#include "commands.h"
#include "cpu_name.h"
#include "demo_nsa.h"
#include "demo_text.h"

enum { HEADS = 4, DIM = 64, ROW = HEADS * DIM, MAX_ID = 1000000 };

static const char default_path[] = "build/data/ml-100k.inter";

/* The library's promise against double, by rung; two results in fp32 that keep it differ by at most
 * twice that. */
static const double error_bounds[LADDER_RUNGS] = {5e-6, 5e-6, 5e-6, 5e-6, 5e-6, 2e-3, 1.6e-2};

static const char usage[] =
    "usage: pantile demo [FILE] [--md] [--hstu] [--nsa] [threads=N] [isa=LEVEL]\n"
    "\n"
    "Fused HSTU attention over the histories of ML-100K's 943 users, next to four other ways to\n"
    "compute it, and in fp16 and bf16: time, memory, error. FILE is ml-100k.inter; without it the\n"
    "environment variable PTL_DEMO_DATA names it, else build/data/ml-100k.inter is taken\n"
    "(tools/fetch_ml100k.py puts it there), else histories of sampled lengths.\n"
    "Then NSA: a decode step over 64K seeded keys, next to full attention, and the ways to it.\n"
    "  --hstu      only the first part; --nsa: only the second\n"
    "  --md        print markdown\n"
    "  threads=N   default: all that the process may use\n"
    "  isa=LEVEL   scalar, avx2, avx512, neon or avx512bf16; default: the best here\n";

struct settings {
    const char *path;
    bool must_exist; /* the path was given, not the default */
    bool markdown;
    bool hstu, nsa; /* the parts */
    struct ptl_context_options context;
};

/* ---- Histories ------------------------------------------------------------------------------- */

/* What the users did: items of user b are items[offsets[b] .. offsets[b+1]-1], oldest first. */
struct histories {
    int64_t n_users, n_items; /* items are 0 .. n_items-1 */
    int64_t *offsets;
    int32_t *items;
    bool sampled; /* no real data: seeded lengths */
};

struct event {
    int32_t user, item;
    double time;
    int64_t line;
};

static void free_histories(struct histories *h) {
    free(h->offsets);
    free(h->items);
}

/* By user, then by time, then by place in the file: half of ML-100K's events share their second
 * with another of the same user. */
static int compare_events(const void *a, const void *b) {
    const struct event *x = a, *y = b;
    if (x->user != y->user) return x->user < y->user ? -1 : 1;
    if (x->time != y->time) return x->time < y->time ? -1 : 1;
    return x->line < y->line ? -1 : x->line > y->line;
}

/* The events of a RecBole .inter file: a header line, then user, item, rating, timestamp. */
static int read_events(FILE *f, const char *path, struct event **events, int64_t *n_events) {
    char line[256];
    int64_t n = 0, room = 0, number = 1;
    struct event *all = NULL;
    if (!fgets(line, sizeof line, f) || strncmp(line, "user_id:", 8) != 0)
        return refuse_demo(
            "%s: the first line does not begin with 'user_id:', expected ml-100k.inter", path);
    while (fgets(line, sizeof line, f)) {
        long long user, item;
        double time;
        number++;
        if (sscanf(line, "%lld %lld %*s %lf", &user, &item, &time) != 3 || user < 0 || item < 0 ||
            user >= MAX_ID || item >= MAX_ID) {
            free(all);
            return refuse_demo("%s:%lld: expected user, item, rating and timestamp, ids below %d",
                               path, (long long)number, MAX_ID);
        }
        if (n == room) {
            room = room ? 2 * room : 1 << 17;
            struct event *more = realloc(all, (size_t)room * sizeof *all);
            if (!more) {
                free(all);
                return refuse_demo("no memory for the events");
            }
            all = more;
        }
        all[n++] = (struct event){(int32_t)user, (int32_t)item, time, number};
    }
    if (n == 0) {
        free(all);
        return refuse_demo("%s: no events", path);
    }
    *events = all;
    *n_events = n;
    return 0;
}

static int read_histories(FILE *f, const char *path, struct histories *h) {
    struct event *events = NULL;
    int64_t n = 0;
    const int status = read_events(f, path, &events, &n);
    if (status) return status;
    qsort(events, (size_t)n, sizeof *events, compare_events);
    h->offsets = malloc((size_t)(n + 1) * sizeof *h->offsets);
    h->items = malloc((size_t)n * sizeof *h->items);
    if (!h->offsets || !h->items) {
        free(events);
        return refuse_demo("no memory for the histories");
    }
    for (int64_t i = 0; i < n; i++) {
        if (i == 0 || events[i].user != events[i - 1].user) h->offsets[h->n_users++] = i;
        h->items[i] = events[i].item;
        if (events[i].item >= h->n_items) h->n_items = events[i].item + 1;
    }
    h->offsets[h->n_users] = n;
    free(events);
    return 0;
}

/* A number of our own for every (stream, index): splitmix64's output function. */
static uint64_t hash(uint64_t stream, uint64_t index) {
    uint64_t x = (stream << 40) + index + 0x9e3779b97f4a7c15;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    return x ^ x >> 31;
}

/* Mean 0, variance 1, nearly normal: the sum of four 16-bit uniforms, each of variance 2^32 /
 * 12. */
static double normal(uint64_t stream, uint64_t index) {
    uint64_t x = hash(stream, index);
    double sum = 0;
    for (int i = 0; i < 4; i++, x >>= 16) sum += (double)(x & 0xffff) - 32767.5;
    return sum / (65536.0 * 0.57735026919);
}

/* Seeds of what is drawn. */
enum { LENGTHS = 1, ITEMS, VECTORS, WEIGHTS, ARTICLE_ITEMS };

/* As many users as ML-100K, with log-normal lengths of its median 65 and mean 106, cut to its
 * 20..737. */
static int sample_histories(struct histories *h) {
    h->n_users = 943;
    h->n_items = 1682;
    h->sampled = true;
    h->offsets = malloc((size_t)(h->n_users + 1) * sizeof *h->offsets);
    if (!h->offsets) return refuse_demo("no memory for the histories");
    h->offsets[0] = 0;
    for (int64_t b = 0; b < h->n_users; b++) {
        const double length = 65 * exp(0.99 * normal(LENGTHS, (uint64_t)b));
        h->offsets[b + 1] = h->offsets[b] + (int64_t)fmin(737, fmax(20, length));
    }
    h->items = malloc((size_t)h->offsets[h->n_users] * sizeof *h->items);
    if (!h->items) return refuse_demo("no memory for the histories");
    for (int64_t i = 0; i < h->offsets[h->n_users]; i++)
        h->items[i] = (int32_t)(hash(ITEMS, (uint64_t)i) % (uint64_t)h->n_items);
    return 0;
}

static int load_histories(const struct settings *settings, struct histories *h) {
    FILE *f = fopen(settings->path, "r");
    if (!f && settings->must_exist) return refuse_demo("%s: %s", settings->path, strerror(errno));
    if (!f) return sample_histories(h);
    const int status = read_histories(f, settings->path, h);
    fclose(f);
    return status;
}

/* ---- Queries, keys and values ---------------------------------------------------------------- */

/* Every item has a seeded vector; seeded weights make its q, k and v for each head, as a model's
 * one projection does. Entries have variance 1, so q.k / sqrt(DIM) has too. */
struct table {
    float *rows; /* [n_items][q k v][HEADS][DIM] */
};

static bool make_table(struct table *t, int64_t n_items) {
    float *weights = malloc(sizeof(float) * DIM * 3 * ROW);
    t->rows = malloc(sizeof(float) * 3 * ROW * (size_t)n_items);
    if (!weights || !t->rows) {
        free(weights);
        return false;
    }
    for (int i = 0; i < DIM * 3 * ROW; i++)
        weights[i] = (float)(normal(WEIGHTS, (uint64_t)i) / sqrt(DIM));
    for (int64_t item = 0; item < n_items; item++) {
        float *row = t->rows + item * 3 * ROW;
        memset(row, 0, sizeof(float) * 3 * ROW);
        for (int e = 0; e < DIM; e++) {
            const float x = (float)normal(VECTORS, (uint64_t)(item * DIM + e));
            for (int i = 0; i < 3 * ROW; i++) row[i] += x * weights[e * 3 * ROW + i];
        }
    }
    free(weights);
    return true;
}

struct qkv {
    float *q, *k, *v;
};

static void free_qkv(struct qkv *x) {
    free(x->q);
    free(x->k);
    free(x->v);
}

static bool alloc_qkv(struct qkv *x, int64_t n) {
    const size_t bytes = (size_t)n * ROW * sizeof(float);
    x->q = malloc(bytes);
    x->k = malloc(bytes);
    x->v = malloc(bytes);
    return x->q && x->k && x->v;
}

static void embed(const struct table *t, int64_t item, const struct qkv *x, int64_t at) {
    const float *row = t->rows + item * 3 * ROW;
    memcpy(x->q + at * ROW, row, ROW * sizeof(float));
    memcpy(x->k + at * ROW, row + ROW, ROW * sizeof(float));
    memcpy(x->v + at * ROW, row + 2 * ROW, ROW * sizeof(float));
}

/* ---- The machine ----------------------------------------------------------------------------- */

/* Memory that can be had without swapping; 0 when the system does not say. */
static size_t available_bytes(void) {
    char line[256];
    long long kib = 0;
    FILE *f = fopen("/proc/meminfo", "r");
    if (!f) return 0;
    while (fgets(line, sizeof line, f))
        if (sscanf(line, "MemAvailable: %lld", &kib) == 1) break;
    fclose(f);
    size_t bytes = (size_t)kib * 1024;
    unsigned long long limit;
    if ((f = fopen("/sys/fs/cgroup/memory.max", "r")) != NULL) {
        if (fscanf(f, "%llu", &limit) == 1 && limit < bytes) bytes = (size_t)limit;
        fclose(f);
    }
    return bytes;
}

/* ---- Tables ---------------------------------------------------------------------------------- */

enum { COLUMNS = 8 };

static const int widths[COLUMNS] = {-36, 9, 6, 9, 11, 11, 9, 11};

static const char *const rung_names[LADDER_RUNGS] = {"(a) naive, padded, scores in memory",
                                                     "(b) fused, padded, mask an input",
                                                     "(c) fused, padded, mask a rule",
                                                     "(d) the same on jagged rows",
                                                     "(e) (d), three stages interleaved",
                                                     "(f) (d) in fp16",
                                                     "(g) (d) in bf16"};

static double gain(const struct ladder_result *r, int from, int to) {
    return r->rung[from].seconds / r->rung[to].seconds;
}

static void print_ladder(const struct ladder_result *r, bool markdown) {
    static const char *const headings[COLUMNS] = {"",      "time",      "runs",  "vs (a)",
                                                  "total", "above i/o", "error", "vs (d)"};
    char cells[COLUMNS][CELL];
    puts("");
    for (int c = 0; c < COLUMNS; c++) snprintf(cells[c], CELL, "%s", headings[c]);
    print_cells(cells, widths, COLUMNS, markdown);
    print_rule(COLUMNS, markdown);
    for (int i = 0; i < LADDER_RUNGS; i++) {
        const struct ladder_rung *rung = &r->rung[i];
        snprintf(cells[0], CELL, "%s", rung_names[i]);
        format_time(cells[1], rung->seconds);
        snprintf(cells[2], CELL, "%d", rung->runs);
        format_factor(cells[3], gain(r, LADDER_NAIVE, i));
        format_bytes(cells[4], rung->total_bytes);
        format_bytes(cells[5], rung->above_bytes);
        snprintf(cells[6], CELL, "%.1e", rung->error);
        if (i == LADDER_JAGGED) snprintf(cells[7], CELL, "-");
        else
            snprintf(cells[7], CELL, rung->difference == 0 ? "same bits" : "%.1e",
                     rung->difference);
        print_cells(cells, widths, COLUMNS, markdown);
    }
    puts("");
}

/* How the padded rungs went about it, and what the process was seen to allocate. */
static void print_batches(const struct ladder_result *r, const char *what) {
    char whole[CELL], grown[CELL], rest[CELL];
    const double flops = r->seen_pairs * HEADS * 4 * DIM;
    if (r->n_batches > 1)
        print_text(
            "(a) to (c) take the %s in %lld batches of up to %lld, each padded to its longest; the "
            "bytes are those of the largest batch. In one batch (a) would need %s.",
            what, (long long)r->n_batches, (long long)r->batch_seqs,
            format_bytes(whole, r->whole_naive_bytes));
    print_text(
        "The padded squares hold %.1f times the pairs that count. (d) does %.0f GFLOP/s on those.",
        r->padded_pairs / r->seen_pairs, flops / r->rung[LADDER_JAGGED].seconds * 1e-9);
    int64_t most = 0;
    for (int i = LADDER_NAIVE; i < LADDER_RUNGS; i++) {
        if (r->rung[i].resident_bytes < 0) return;
        if (i > LADDER_NAIVE && r->rung[i].resident_bytes > most) most = r->rung[i].resident_bytes;
    }
    print_text("The process was seen to grow by %s in (a) and by at most %s in any other rung.",
               format_bytes(grown, r->rung[LADDER_NAIVE].resident_bytes), format_bytes(rest, most));
}

/* The least share of its threads' time that the process had in a rung. */
static double least_share(const struct ladder_result *r) {
    double least = 1;
    for (int i = 0; i < LADDER_RUNGS; i++) least = fmin(least, r->rung[i].share);
    return least;
}

static double most_share(const struct ladder_result *r) {
    double most = 0;
    for (int i = 0; i < LADDER_RUNGS; i++) most = fmax(most, r->rung[i].share);
    return fmin(most, 1);
}

static void print_disturbance(const struct ladder_result *r) {
    if (least_share(r) < UNDISTURBED)
        print_text(
            "The machine was busy: even in its fastest runs this process had only %.0f %% to "
            "%.0f %% of the time of its threads. The times are too long.",
            100 * least_share(r), 100 * most_share(r));
}

static void print_legend(int64_t rows) {
    puts("");
    print_text(
        "time: the fastest of the runs, on memory that was touched before. total: q, k, v and out, "
        "the mask of (a) and (b), which is one float for each score as in the article, and what is "
        "allocated above these (above i/o). error: the largest difference to double arithmetic on "
        "%lld rows; vs (d): to (d) on all rows; both as a part of the largest |out|. (f) and (g) "
        "take "
        "q, k and v rounded to fp16 and bf16, sum in fp32 and round out: their error is to double "
        "on "
        "the rounded numbers, vs (d) is what all the rounding costs.",
        (long long)rows);
}

static bool agrees(const struct ladder_result *r) {
    bool good = true;
    for (int i = 0; i < LADDER_RUNGS; i++) {
        const bool rounded = i == LADDER_F16 || i == LADDER_BF16; /* then (d) is another problem */
        if (r->rung[i].error <= error_bounds[i] &&
            (rounded || r->rung[i].difference <= 2 * error_bounds[i]))
            continue;
        printf("MISMATCH: %s: error %.1e, expected at most %.1e\n", rung_names[i], r->rung[i].error,
               error_bounds[i]);
        good = false;
    }
    return good;
}

/* Two sentences. */
static void print_meaning(const struct ladder_result *real, const struct ladder_result *article) {
    char factor[CELL], naive[CELL], jagged[CELL], tall[CELL], flat[CELL], change[CELL];
    puts("");
    print_text(
        "On these histories one jagged call computes what the naive form does %s faster and with "
        "%s above inputs and output instead of %s: %.1fx by keeping the scores in cache, %.1fx "
        "by skipping what the mask hides, %.1fx by not computing padding.",
        format_factor(factor, gain(real, LADDER_NAIVE, LADDER_JAGGED)),
        format_bytes(jagged, real->rung[LADDER_JAGGED].above_bytes),
        format_bytes(naive, real->rung[LADDER_NAIVE].above_bytes),
        gain(real, LADDER_NAIVE, LADDER_FUSED), gain(real, LADDER_FUSED, LADDER_SKIPPING),
        gain(real, LADDER_SKIPPING, LADDER_JAGGED));

    const double interleaved = gain(article, LADDER_JAGGED, LADDER_PIPELINED) - 1;
    const bool told = article->rung[LADDER_JAGGED].share >= UNDISTURBED &&
                      article->rung[LADDER_PIPELINED].share >= UNDISTURBED;
    if (!told) snprintf(change, CELL, "was not to be judged on a machine so busy");
    else if (fabs(interleaved) < 0.03) snprintf(change, CELL, "changes the time by less than 3 %%");
    else
        snprintf(change, CELL, "%s %.0f %%", interleaved > 0 ? "gains" : "loses",
                 100 * fabs(interleaved));
    print_text("At the article's shape, where no row is padding, the factor is %.1f and the memory "
               "%s instead of %s, and interleaving the three stages %s%s.",
               gain(article, LADDER_NAIVE, LADDER_JAGGED),
               format_bytes(flat, article->rung[LADDER_JAGGED].above_bytes),
               format_bytes(tall, article->rung[LADDER_NAIVE].above_bytes), change,
               told && interleaved < 0.03
                   ? ": all three run on the same vector units of a core, so the schedule "
                     "has no idle unit to fill"
                   : "");
}

/* ---- The two problems ------------------------------------------------------------------------ */

/* The whole demo should take less than two minutes, also on a slow or busy machine; memory that is
 * touched for the first time can cost as much as all arithmetic, hence the modest batches. */
static struct ladder_limits limits_now(void) {
    static time_t begin;
    if (!begin) begin = time(NULL);
    const double elapsed = difftime(time(NULL), begin);
    const size_t most = (size_t)5 << 29, available = available_bytes();
    struct ladder_limits limits = {.padded_bytes = most,
                                   .seconds = fmin(40, fmax(10, 80 - elapsed))};
    if (available && available / 2 < most) limits.padded_bytes = available / 2;
    if (isatty(STDERR_FILENO)) limits.progress = show_progress;
    return limits;
}

static int climb(const struct settings *settings, const struct qkv *x, const int64_t *offsets,
                 int64_t n_seqs, int64_t longest, const char *what, struct ladder_result *result) {
    const struct ladder_problem problem = {.n_seqs = n_seqs,
                                           .offsets = offsets,
                                           .n_heads = HEADS,
                                           .dim = DIM,
                                           .q = x->q,
                                           .k = x->k,
                                           .v = x->v,
                                           .alpha = 0.125f,
                                           .scaling_seqlen = longest};
    const struct ladder_limits limits = limits_now();
    const enum ptl_status status = ladder_run_hstu(&settings->context, &problem, &limits, result);
    if (limits.progress) show_progress("");
    return status == PTL_OK ? 0 : refuse_status(what, status);
}

static int compare_lengths(const void *a, const void *b) {
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

/* Shortest, middle and longest history. */
static bool length_range(const struct histories *h, int64_t range[3]) {
    int64_t *lengths = malloc((size_t)h->n_users * sizeof *lengths);
    if (!lengths) return false;
    for (int64_t b = 0; b < h->n_users; b++) lengths[b] = h->offsets[b + 1] - h->offsets[b];
    qsort(lengths, (size_t)h->n_users, sizeof *lengths, compare_lengths);
    range[0] = lengths[0];
    range[1] = lengths[h->n_users / 2];
    range[2] = lengths[h->n_users - 1];
    free(lengths);
    return true;
}

static void print_histories(const struct settings *settings, const struct histories *h,
                            const int64_t range[3]) {
    char events[CELL];
    const char *mark = settings->markdown ? "### " : "";
    format_count(events, h->offsets[h->n_users]);
    if (h->sampled) {
        printf("%sSampled histories: %lld users, %s events\n\n", mark, (long long)h->n_users,
               events);
        print_text("There is no %s (tools/fetch_ml100k.py downloads it), so lengths are drawn from "
                   "a seed, log-normal like ML-100K's: %lld to %lld, median %lld.",
                   settings->path, (long long)range[0], (long long)range[2], (long long)range[1]);
        return;
    }
    const bool known = h->n_users == 943 && h->offsets[h->n_users] == 100000;
    printf("%s%s: %lld users, %s events\n\n", mark, known ? "ML-100K" : settings->path,
           (long long)h->n_users, events);
    print_text("Real histories in order of time, %lld to %lld long, median %lld.",
               (long long)range[0], (long long)range[2], (long long)range[1]);
}

static int run_histories(const struct settings *settings, const struct histories *h,
                         const struct table *table, struct ladder_result *result) {
    int64_t range[3];
    struct qkv x = {0};
    const int64_t n = h->offsets[h->n_users];
    int status = EXIT_REFUSED;
    if (!length_range(h, range) || !alloc_qkv(&x, n)) {
        refuse_demo("no memory for %lld events", (long long)n);
        goto done;
    }
    for (int64_t i = 0; i < n; i++) embed(table, h->items[i], &x, i);
    print_histories(settings, h, range);
    status = climb(settings, &x, h->offsets, h->n_users, range[2], "histories", result);
    if (status) goto done;
    print_ladder(result, settings->markdown);
    if (result->n_seqs < h->n_users)
        print_text("To stay short, only the first %lld users took part.",
                   (long long)result->n_seqs);
    print_batches(result, "users");
    print_disturbance(result);
done:
    free_qkv(&x);
    return status;
}

/* (16,4,4096,64), the rows being random items of the same table. */
static int run_article(const struct settings *settings, const struct table *table, int64_t n_items,
                       struct ladder_result *result) {
    enum { B = 16, S = 4096 };
    int64_t offsets[B + 1];
    struct qkv x = {0};
    int status = EXIT_REFUSED;
    if (!alloc_qkv(&x, B * S)) {
        refuse_demo("no memory for the article's shape");
        goto done;
    }
    for (int b = 0; b <= B; b++) offsets[b] = (int64_t)b * S;
    for (int64_t i = 0; i < B * S; i++)
        embed(table, (int64_t)(hash(ARTICLE_ITEMS, (uint64_t)i) % (uint64_t)n_items), &x, i);
    status = climb(settings, &x, offsets, B, S, "article's shape", result);
    if (status) goto done;
    printf("\n%sThe article's shape: (b,n,s,d) = (%lld,%d,%d,%d)%s\n",
           settings->markdown ? "### " : "", (long long)result->n_seqs, HEADS, S, DIM,
           result->n_seqs < B ? ", b scaled down from 16 to stay short" : "");
    print_ladder(result, settings->markdown);
    print_batches(result, "sequences");
    print_disturbance(result);
done:
    free_qkv(&x);
    return status;
}

/* ---- The command ----------------------------------------------------------------------------- */

static int parse(int argc, char **argv, struct settings *s) {
    const char *from_environment = getenv("PTL_DEMO_DATA");
    s->path = from_environment && *from_environment ? from_environment : default_path;
    s->must_exist = s->path != default_path;
    for (int i = 1; i < argc; i++) {
        const char *a = argv[i];
        if (strcmp(a, "--md") == 0) {
            s->markdown = true;
        } else if (strcmp(a, "--hstu") == 0) {
            s->hstu = true;
        } else if (strcmp(a, "--nsa") == 0) {
            s->nsa = true;
        } else if (strncmp(a, "threads=", 8) == 0) {
            char *end;
            const long n = strtol(a + 8, &end, 10);
            if (!a[8] || *end || n < 1 || n > 1024)
                return refuse_demo("threads: '%s', expected 1 to 1024", a + 8);
            s->context.num_threads = (int32_t)n;
        } else if (strncmp(a, "isa=", 4) == 0) {
            int isa = PTL_ISA_SCALAR;
            while (ptl_isa_name(isa) && strcmp(ptl_isa_name(isa), a + 4) != 0) isa++;
            if (!ptl_isa_name(isa))
                return refuse_demo("isa: '%s', expected scalar, avx2, avx512, neon or avx512bf16",
                                   a + 4);
            s->context.isa = isa;
        } else if (a[0] == '-' || strchr(a, '=')) {
            return refuse_demo("'%s' is no option; pantile demo --help lists them", a);
        } else {
            s->path = a;
            s->must_exist = true;
        }
    }
    return 0;
}

static int print_machine(const struct settings *settings) {
    char name[128];
    struct ptl_context *ctx;
    struct ptl_context_info info = {.struct_size = sizeof info};
    const enum ptl_status status = ptl_context_create(&ctx, &settings->context);
    if (status != PTL_OK) return refuse_status("context", status);
    ptl_context_get_info(ctx, &info);
    ptl_context_destroy(ctx);
    cpu_name(name);
    print_text("pantile %s on %s, level %s, %d thread%s", ptl_version(), name,
               ptl_isa_name(info.isa), (int)info.num_threads, info.num_threads == 1 ? "" : "s");
    return 0;
}

static int demo_hstu(const struct settings *settings, const struct histories *h) {
    struct table table = {0};
    struct ladder_result real, article;
    int status = 0;
    if (!make_table(&table, h->n_items)) status = refuse_demo("no memory for the item table");
    if (!status) {
        printf("\n%sHSTU attention forward, fp32 but for (f) and (g), causal, %d heads of %d\n\n",
               settings->markdown ? "## " : "", HEADS, DIM);
        status = run_histories(settings, h, &table, &real);
    }
    fflush(stdout);
    if (!status) status = run_article(settings, &table, h->n_items, &article);
    if (!status) {
        print_legend(real.sampled_rows);
        if (!agrees(&real) || !agrees(&article)) status = EXIT_MISMATCH;
        print_meaning(&real, &article);
    }
    free(table.rows);
    return status;
}

int demo_main(int argc, char **argv) {
    struct settings settings = {0};
    struct histories h = {0};
    ptl_context_options_init(&settings.context);
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            fputs(usage, stdout);
            return 0;
        }

    int status = parse(argc, argv, &settings);
    const bool all = !settings.hstu && !settings.nsa;
    if (!status && (all || settings.hstu)) status = load_histories(&settings, &h);
    if (!status) status = print_machine(&settings);
    if (!status && (all || settings.hstu)) status = demo_hstu(&settings, &h);
    fflush(stdout);
    if (!status && (all || settings.nsa))
        status = demo_nsa(&settings.context, settings.markdown, isatty(STDERR_FILENO));
    free_histories(&h);
    return status;
}
