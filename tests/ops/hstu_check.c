/* The checks of hstu_check.h. */
#include "hstu_check.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../ref/hstu.h"
#include "guard.h"

void *test_alloc(size_t bytes) {
    void *memory = malloc(bytes ? bytes : 1);
    if (memory) return memory;
    perror("test_alloc");
    exit(2);
}

/* ---- Variants ----------------------------------------------------------------------------------- */

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

static const struct {
    enum ptl_executor_kind kind;
    int threads;
    const char *name;
} ways[] = {
    {PTL_EXEC_SERIAL, 1, "serial"},
    {PTL_EXEC_POOL, 2, "pool of 2"},
    {PTL_EXEC_POOL, 7, "pool of 7"},
    {PTL_EXEC_HOST, 3, "host with 3"},
};
enum { N_WAYS = sizeof ways / sizeof ways[0] };

static bool create_variant(struct hstu_variant *v, enum ptl_isa isa, int way) {
    struct ptl_context_options o;
    ptl_context_options_init(&o);
    o.isa = isa;
    o.executor = ways[way].kind;
    o.num_threads = ways[way].threads;
    o.parallel_for = host_parallel_for;
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

/* ---- Memory of tensors -------------------------------------------------------------------------- */

/* Elements from the first to the last, gaps included; strides are not negative here. */
static int64_t span_of(const struct ptl_tensor *t) {
    int64_t span = 1;
    for (int axis = 0; axis < t->ndim; axis++) {
        if (t->shape[axis] == 0) return 0;
        span += (t->shape[axis] - 1) * t->stride[axis];
    }
    return t->data ? span : 0;
}

static uint64_t checksum(uint64_t sum, const struct ptl_tensor *t) {
    const uint8_t *bytes = t->data;
    const size_t n = (size_t)span_of(t) * ptl_dtype_bytes(t->dtype);
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        uint64_t word;
        memcpy(&word, bytes + i, 8);
        sum = (sum ^ word) * 0x9e3779b97f4a7c15;
        sum ^= sum >> 29;
    }
    for (; i < n; i++) sum = (sum ^ bytes[i]) * 0x9e3779b97f4a7c15;
    return sum;
}

static uint64_t inputs_checksum(const struct ptl_hstu_params *p) {
    const struct ptl_tensor *const inputs[] = {
        &p->q,         &p->k,         &p->v,          &p->seq_offsets_q, &p->seq_offsets_k,
        &p->seqused_q, &p->seqused_k, &p->attn_scale, &p->num_contexts,  &p->num_targets,
        &p->mask};
    uint64_t sum = 1;
    for (size_t i = 0; i < sizeof inputs / sizeof inputs[0]; i++) sum = checksum(sum, inputs[i]);
    return sum;
}

int64_t hstu_out_floats(const struct ptl_hstu_params *p) {
    int64_t n = 1;
    for (int axis = 0; axis < p->out.ndim; axis++) n *= p->out.shape[axis];
    return n;
}

/* Moves the elements of a float tensor to `to` in C order, leaving GUARD_WORD behind. */
static void take_elements(const struct ptl_tensor *t, float *to) {
    const int64_t n = span_of(t) ? 1 : 0, dim = t->shape[t->ndim - 1];
    const int64_t outer = t->ndim == 4 ? t->shape[0] : n;
    const int64_t *shape = t->shape + t->ndim - 3, *stride = t->stride + t->ndim - 3;
    for (int64_t b = 0; b < outer * n; b++)
        for (int64_t row = 0; row < shape[0]; row++)
            for (int64_t head = 0; head < shape[1]; head++) {
                uint32_t *from = (uint32_t *)t->data + (t->ndim == 4 ? b * t->stride[0] : 0) +
                                 row * stride[0] + head * stride[1];
                memcpy(to, from, (size_t)dim * sizeof(float));
                for (int64_t d = 0; d < dim; d++) from[d] = GUARD_WORD;
                to += dim;
            }
}

/* ---- Running and comparing ---------------------------------------------------------------------- */

bool hstu_problem(struct problem *problem, const char *line) {
    char error[256];
    if (problem_create(problem, line, PROBLEM_GUARD, error, sizeof error)) return true;
    FAIL("%s: %s", line, error);
    return false;
}

bool hstu_run(const struct ptl_hstu_params *p, const struct hstu_variant *v, float *got) {
    uint32_t *out = p->out.data;
    const int64_t span = span_of(&p->out);
    for (int64_t i = 0; i < span; i++) out[i] = GUARD_WORD;

    const enum ptl_status status = ptl_hstu_forward(v->ctx, p);
    if (status != PTL_OK) {
        FAIL("%s: %s: %s", v->name, ptl_status_name(status), ptl_message());
        return false;
    }
    take_elements(&p->out, got);
    for (int64_t i = 0; i < span; i++)
        if (out[i] != GUARD_WORD) {
            FAIL("%s: wrote between the rows of out, %lld floats from its start", v->name,
                 (long long)i);
            return false;
        }
    return true;
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

/* A copy of a float tensor with its strides, every element made positive. */
static struct ptl_tensor positive(const struct ptl_tensor *t) {
    struct ptl_tensor copy = *t;
    const int64_t n = span_of(t);
    float *to = test_alloc((size_t)n * sizeof *to);
    for (int64_t i = 0; i < n; i++) to[i] = fabsf(((const float *)t->data)[i]);
    copy.data = to;
    return copy;
}

/* The largest element of out if nothing cancelled: what rounding errors grow from. */
static double size_without_signs(const struct ptl_hstu_params *p) {
    struct ptl_hstu_params a = *p;
    const int64_t n = hstu_out_floats(p);
    double *out = test_alloc((size_t)n * sizeof *out), most = 0.0;
    a.q = positive(&p->q);
    a.k = positive(&p->k);
    a.v = positive(&p->v);
    a.alpha = fabsf(p->alpha);
    ref_hstu_forward(&a, out);
    for (int64_t i = 0; i < n; i++) most = fmax(most, fabs(out[i]));
    free(a.q.data);
    free(a.k.data);
    free(a.v.data);
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
        if (!isfinite((float)e)) {
            ok = isnan(e) ? isnan(got[i]) : got[i] == (float)e;
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
    if (!ok || worst <= HSTU_BOUND * largest) return ok;
    /* The scores of a handful of rows may all happen to be near 0, sums of terms that cancel: then
     * errors are small against the terms, not against what is left. */
    if (n_live < 64 * dv && worst <= 1e-6 * size_without_signs(p)) return true;
    char why[80];
    snprintf(why, sizeof why, ": an error of %.2g of the largest element", worst / largest);
    fail_at(p, what, worst_at, (double)got[worst_at], expected[worst_at], why);
    return false;
}

/* ---- The whole check ---------------------------------------------------------------------------- */

void hstu_check(const struct ptl_hstu_params *p) {
    const int64_t n = hstu_out_floats(p);
    double *expected = test_alloc((size_t)n * sizeof *expected);
    float *first = test_alloc((size_t)n * sizeof *first),
          *got = test_alloc((size_t)n * sizeof *got);
    const uint64_t sum = inputs_checksum(p);
    ref_hstu_forward(p, expected);

    const struct hstu_variant *v;
    for (int i = 0; (v = hstu_variant(i)) != NULL; i++) {
        if (v->first) {
            if (!hstu_run(p, v, first)) break;
            hstu_compare(p, first, expected, v->name);
        } else {
            if (!hstu_run(p, v, got)) break;
            if (memcmp(first, got, (size_t)n * sizeof *got) != 0)
                FAIL("%s: not the bits of serial", v->name);
        }
    }
    if (inputs_checksum(p) != sum) FAIL("an input was written");
    free(expected);
    free(first);
    free(got);
}

void hstu_check_line(const char *line) {
    struct problem problem;
    if (!hstu_problem(&problem, line)) return;
    hstu_check(&problem.hstu);
    problem_destroy(&problem);
}
