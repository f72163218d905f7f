/* The checks of hstu_check.h. */
#include "hstu_check.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../ref/elements.h"
#include "../../ref/hstu.h"
#include "guard.h"
#include "hstu_backward_check.h"
#include "tensor_check.h"

void *test_alloc(size_t bytes) {
    void *memory = malloc(bytes ? bytes : 1);
    if (memory) return memory;
    perror("test_alloc");
    exit(2);
}

/* ---- Variants -------------------------------------------------------------------------------- */

struct host_range {
    ptl_range_fn fn;
    void *arg;
    int64_t begin, end;
};

static void *run_host_range(void *arg) {
    struct host_range *r = arg;
    r->fn(r->arg, r->begin, r->end);
    return NULL;
}

/* A host that starts a thread for each index but the last, which it runs itself. */
static void host_parallel_for(void *host, int64_t n, ptl_range_fn fn, void *arg) {
    enum { MOST = 8 };
    pthread_t threads[MOST];
    struct host_range ranges[MOST];
    (void)host;
    int64_t begin = 0, started = 0;
    for (; begin < n - 1 && started < MOST; begin++, started++) {
        ranges[started] = (struct host_range){fn, arg, begin, begin + 1};
        if (pthread_create(&threads[started], NULL, run_host_range, &ranges[started]) != 0) break;
    }
    fn(arg, begin, n);
    for (int64_t i = 0; i < started; i++) pthread_join(threads[i], NULL);
}

/* One range after the other, on one thread: whoever waits for a later range waits forever. */
static void host_one_by_one(void *host, int64_t n, ptl_range_fn fn, void *arg) {
    (void)host;
    for (int64_t i = 0; i < n; i++) fn(arg, i, i + 1);
}

static const struct {
    enum ptl_executor_kind kind;
    int threads;
    const char *name;
    ptl_parallel_for_fn parallel_for;
} ways[] = {
    {PTL_EXEC_SERIAL, 1, "serial", NULL},
    {PTL_EXEC_POOL, 2, "pool of 2", NULL},
    {PTL_EXEC_POOL, 7, "pool of 7", NULL},
    {PTL_EXEC_HOST, 3, "host with 3", host_parallel_for},
    {PTL_EXEC_HOST, 5, "serial host", host_one_by_one},
};
enum { N_WAYS = sizeof ways / sizeof ways[0] };

static bool create_variant(struct hstu_variant *v, enum ptl_isa isa, int way) {
    struct ptl_context_options o;
    ptl_context_options_init(&o);
    o.isa = isa;
    o.executor = ways[way].kind;
    o.num_threads = ways[way].threads;
    o.parallel_for = ways[way].parallel_for;
    v->isa = isa;
    v->first = way == 0;
    snprintf(v->name, sizeof v->name, "%s %s", ptl_isa_name(isa), ways[way].name);
    if (ptl_context_create(&v->ctx, &o) == PTL_OK) return true;
    FAIL("%s: %s", v->name, ptl_message());
    return false;
}

const struct hstu_variant *hstu_variant(int i) {
    static struct hstu_variant variants[MAX_VARIANTS];
    if (i >= test_n_levels() * N_WAYS) return NULL;
    struct hstu_variant *v = &variants[i];
    if (!v->ctx && !create_variant(v, test_level(i / N_WAYS), i % N_WAYS)) return NULL;
    return v;
}

/* ---- Arguments ------------------------------------------------------------------------------- */

double hstu_bound(enum ptl_dtype type) {
    return type == PTL_F32 ? HSTU_BOUND : type == PTL_F16 ? 2e-3 : 1.6e-2;
}

double hstu_unit(enum ptl_dtype type) {
    return type == PTL_F32 ? 0x1p-24 : type == PTL_F16 ? 0x1p-11 : 0x1p-8;
}

uint64_t hstu_inputs_checksum(const struct ptl_hstu_params *p) {
    const struct ptl_tensor *const inputs[] = {&p->q,
                                               &p->k,
                                               &p->v,
                                               &p->seq_offsets_q,
                                               &p->seq_offsets_k,
                                               &p->seqused_q,
                                               &p->seqused_k,
                                               &p->attn_scale,
                                               &p->num_contexts,
                                               &p->num_targets,
                                               &p->mask,
                                               &p->intervals,
                                               &p->attn_bias,
                                               &p->pos_table,
                                               &p->time_table,
                                               &p->timestamps,
                                               &p->k_pages,
                                               &p->v_pages,
                                               &p->page_offsets,
                                               &p->page_ids,
                                               &p->last_page_lens,
                                               &p->time_thresholds};
    uint64_t sum = 1;
    for (size_t i = 0; i < sizeof inputs / sizeof inputs[0]; i++)
        sum = tensor_checksum(sum, inputs[i]);
    return sum;
}

enum { N_SIGNED = 8 };
static void signed_tensors(struct ptl_hstu_params *p, struct ptl_tensor *t[N_SIGNED]) {
    struct ptl_tensor *const all[N_SIGNED] = {&p->q,         &p->k,         &p->v,
                                              &p->k_pages,   &p->v_pages,   &p->attn_bias,
                                              &p->pos_table, &p->time_table};
    memcpy(t, all, sizeof all);
}

struct ptl_hstu_params hstu_positive(const struct ptl_hstu_params *p) {
    struct ptl_hstu_params a = *p;
    struct ptl_tensor *t[N_SIGNED];
    signed_tensors(&a, t);
    for (int i = 0; i < N_SIGNED; i++) *t[i] = tensor_positive(t[i]);
    a.alpha = fabsf(p->alpha);
    a.bias_scale = fabsf(p->bias_scale);
    return a;
}

void hstu_positive_free(struct ptl_hstu_params *p) {
    struct ptl_tensor *t[N_SIGNED];
    signed_tensors(p, t);
    for (int i = 0; i < N_SIGNED; i++) free(t[i]->data);
}

int64_t hstu_out_floats(const struct ptl_hstu_params *p) {
    int64_t n = 1;
    for (int axis = 0; axis < p->out.ndim; axis++) n *= p->out.shape[axis];
    return n;
}

/* ---- Running and comparing ------------------------------------------------------------------- */

bool hstu_problem(struct problem *problem, const char *line) {
    char error[256];
    if (problem_create(problem, line, PROBLEM_GUARD, error, sizeof error)) return true;
    FAIL("%s: %s", line, error);
    return false;
}

bool hstu_run(const struct ptl_hstu_params *p, const struct hstu_variant *v, float *got) {
    tensor_wipe(&p->out);
    const enum ptl_status status = ptl_hstu_forward(v->ctx, p);
    if (status != PTL_OK) {
        FAIL("%s: %s: %s", v->name, ptl_status_name(status), ptl_message());
        return false;
    }
    tensor_take(&p->out, got);
    if (tensor_wiped(&p->out)) return true;
    FAIL("%s: wrote between the rows of out", v->name);
    return false;
}

/* For each row of out in C order (heads not counted), whether a query stands there. */
static bool *live_rows(const struct ptl_hstu_params *p) {
    const bool dense = p->q.ndim == 4;
    const int64_t rows = dense ? p->q.shape[0] * p->q.shape[1] : p->q.shape[0];
    bool *live = test_alloc((size_t)rows);
    memset(live, 0, (size_t)rows);
    int64_t at = 0;
    for (int64_t b = 0; b < ref_hstu_n_seqs(p); b++) {
        struct ptl_hstu_params all = *p; /* to learn the allocated length */
        all.seqused_q.data = NULL;
        for (int64_t i = 0; i < ref_hstu_uq(p, b); i++) live[at + i] = true;
        at += ref_hstu_uq(&all, b);
    }
    return live;
}

/* The largest element of out if nothing cancelled: what rounding errors grow from. */
static double size_without_signs(const struct ptl_hstu_params *p) {
    struct ptl_hstu_params a = hstu_positive(p);
    const int64_t n = hstu_out_floats(p);
    double *out = test_alloc((size_t)n * sizeof *out), most = 0.0;
    ref_hstu_forward(&a, out);
    for (int64_t i = 0; i < n; i++) most = fmax(most, fabs(out[i]));
    hstu_positive_free(&a);
    free(out);
    return most;
}

/* Where got is not what was expected, in a sentence. */
static void fail_at(const struct ptl_hstu_params *p, const char *what, int64_t at, double got,
                    double expected, const char *why) {
    const int64_t dv = p->out.shape[p->out.ndim - 1], heads = p->out.shape[p->out.ndim - 2];
    FAIL("%s: out row %lld head %lld column %lld is %.9g, expected %.9g%s", what,
         (long long)(at / dv / heads), (long long)(at / dv % heads), (long long)(at % dv), got,
         expected, why);
}

bool hstu_compare(const struct ptl_hstu_params *p, const float *got, const double *expected,
                  const char *what) {
    const int64_t dv = p->out.shape[p->out.ndim - 1], heads = p->out.shape[p->out.ndim - 2];
    const int64_t n = hstu_out_floats(p);
    bool *live = live_rows(p), ok = true;
    double largest = 0.0, worst = 0.0;
    int64_t worst_at = 0, n_live = 0;
    for (int64_t i = 0; i < n && ok; i++) {
        const double e = expected[i];
        if (!live[i / dv / heads]) {
            ok = float_bits(got[i]) == 0;
            if (!ok) fail_at(p, what, i, (double)got[i], 0.0, ", in a row of padding");
            continue;
        }
        n_live++;
        if (!isfinite(ref_round(p->out.dtype, e))) {
            ok = isnan(e) ? isnan(got[i]) : got[i] == (float)ref_round(p->out.dtype, e);
            if (!ok) fail_at(p, what, i, (double)got[i], e, "");
            continue;
        }
        const double error = isfinite(got[i]) ? fabs((double)got[i] - e) : INFINITY;
        largest = fmax(largest, fabs(e));
        if (error > worst) {
            worst = error;
            worst_at = i;
        }
    }
    free(live);
    const double bound = hstu_bound(p->out.dtype);
    if (!ok || worst <= bound * largest) return ok;
    /* The scores of a handful of rows may all happen to be near 0, sums of terms that cancel: then
     * errors are small against the terms, not against what is left. */
    if (n_live < 64 * dv && worst <= 0.2 * bound * size_without_signs(p)) return true;
    char why[80];
    snprintf(why, sizeof why, ": an error of %.2g of the largest element", worst / largest);
    fail_at(p, what, worst_at, (double)got[worst_at], expected[worst_at], why);
    return false;
}

/* ---- The whole check ------------------------------------------------------------------------- */

/* Halves: at most twice the error of a plain evaluation, which is taken to be one rounding at least
 * (a handful of numbers may happen to be rounded well). */
static void compare_with_plain(const struct ptl_hstu_params *p, const float *got,
                               const double *expected, const char *what) {
    const int64_t n = hstu_out_floats(p);
    double *plain = test_alloc((size_t)n * sizeof *plain);
    double ours = 0.0, theirs = 0.0, largest = 0.0;
    ref_hstu_forward_low(p, plain);
    for (int64_t i = 0; i < n; i++) {
        if (!isfinite(ref_round(p->out.dtype, expected[i]))) continue;
        largest = fmax(largest, fabs(expected[i]));
        ours = fmax(ours, fabs((double)got[i] - expected[i]));
        theirs = fmax(theirs, fabs(plain[i] - expected[i]));
    }
    theirs = fmax(theirs, hstu_unit(p->out.dtype) * largest);
    if (!(ours <= 2.0 * theirs))
        FAIL("%s: error %.2g, plain evaluation %.2g, of the largest element", what, ours / largest,
             theirs / largest);
    free(plain);
}

void hstu_check(const struct ptl_hstu_params *p) {
    const int64_t n = hstu_out_floats(p);
    double *expected = test_alloc((size_t)n * sizeof *expected);
    float *first = test_alloc((size_t)n * sizeof *first),
          *got = test_alloc((size_t)n * sizeof *got);
    const uint64_t sum = hstu_inputs_checksum(p);
    ref_hstu_forward(p, expected);

    const struct hstu_variant *v;
    for (int i = 0; (v = hstu_variant(i)) != NULL; i++) {
        if (v->first) {
            if (!hstu_run(p, v, first)) break;
            if (hstu_compare(p, first, expected, v->name) && p->q.dtype != PTL_F32)
                compare_with_plain(p, first, expected, v->name);
        } else {
            if (!hstu_run(p, v, got)) break;
            if (memcmp(first, got, (size_t)n * sizeof *got) != 0)
                FAIL("%s: not the bits of serial", v->name);
        }
    }
    if (hstu_inputs_checksum(p) != sum) FAIL("an input was written");
    free(expected);
    free(first);
    free(got);
}

void hstu_check_line(const char *line) {
    struct problem problem;
    if (!hstu_problem(&problem, line)) return;
    if (problem.grads.dq.data) hstu_check_backward(&problem.hstu, &problem.grads);
    else hstu_check(&problem.hstu);
    problem_destroy(&problem);
}
