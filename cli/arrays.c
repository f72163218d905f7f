/* Reads the arrays that a line names and makes arguments of them. What they must be is checked
 * by the library; here only what it takes to lay out `out`. */
#define _POSIX_C_SOURCE 200809L
#include "arrays.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "npy.h"
#include "problem_line.h"
#include "problem_memory.h"

struct loader {
    struct problem *p;
    const struct words *words;
    struct refusal *refusal;
};

/* ---- Keys ------------------------------------------------------------------------------------ */

/* Only `numbers` ones may also be written out: a number, or list:a,b,... */
static const struct {
    const char *key;
    size_t offset; /* of a tensor in the arguments */
    bool numbers;
} tensors[] = {
#define TENSOR(key, numbers)                                                                       \
    { #key, offsetof(struct ptl_hstu_params, key), numbers }
    TENSOR(q, false),
    TENSOR(k, false),
    TENSOR(v, false),
    TENSOR(mask, false),
    TENSOR(attn_scale, false), /* one real number: read_attn_scale */
    TENSOR(seq_offsets_q, true),
    TENSOR(seq_offsets_k, true),
    TENSOR(seqused_q, true),
    TENSOR(seqused_k, true),
    TENSOR(num_contexts, true),
    TENSOR(num_targets, true),
#undef TENSOR
};

enum { N_TENSORS = sizeof tensors / sizeof tensors[0] };

static const struct {
    const char *key;
    size_t offset; /* of an int64_t in the arguments */
} integers[] = {
#define INTEGER(key)                                                                               \
    { #key, offsetof(struct ptl_hstu_params, key) }
    INTEGER(max_seqlen_q),      INTEGER(max_seqlen_k),          INTEGER(scaling_seqlen),
    INTEGER(target_group_size), INTEGER(min_full_attn_seq_len),
#undef INTEGER
};

enum { N_INTEGERS = sizeof integers / sizeof integers[0] };

static struct ptl_tensor *tensor_of(const struct loader *l, int i) {
    return (struct ptl_tensor *)((char *)&l->p->hstu + tensors[i].offset);
}

/* ---- Values ---------------------------------------------------------------------------------- */

static bool read_array(const struct loader *l, const char *path, struct ptl_tensor *t) {
    if (!npy_read(path, t, l->refusal)) return false;
    if (problem_memory_adopt(l->p->memory, t->data)) return true;
    free(t->data);
    return refuse(l->refusal, "%s: no memory", path);
}

static bool take_array(const struct loader *l, const char *key, enum ptl_dtype dtype, int ndim,
                       const int64_t *shape, struct ptl_tensor *t) {
    int64_t bytes = (int64_t)ptl_dtype_bytes(dtype);
    for (int i = 0; i < ndim; i++)
        if (__builtin_mul_overflow(bytes, shape[i], &bytes))
            return refuse(l->refusal, "%s: more than 2^63 bytes", key);
    void *data = problem_memory_take(l->p->memory, (size_t)bytes);
    if (!data) return refuse(l->refusal, "%s: no memory for %" PRId64 " bytes", key, bytes);
    *t = ptl_tensor_contiguous(data, dtype, ndim, shape);
    return true;
}

/* The type of the index arrays that were read: all of a call must be alike, so numbers follow
 * it. */
static enum ptl_dtype index_type(const struct loader *l) {
    for (int i = 0; i < N_TENSORS; i++)
        if (tensors[i].numbers && tensor_of(l, i)->data) return tensor_of(l, i)->dtype;
    return PTL_I64;
}

/* N as an array without axes, or list:a,b,... */
static bool read_numbers(const struct loader *l, const char *key, const char *value,
                         enum ptl_dtype dtype, struct ptl_tensor *t) {
    const char *rest = after_prefix(value, "list:");
    const int64_t max = dtype == PTL_I32 ? INT32_MAX : INT64_MAX;
    int64_t *list = NULL, n = 1, one;
    if (rest ? !read_integer_list(key, rest, 0, max, &list, &n, l->refusal)
             : !read_integer(key, value, 0, max, &one, l->refusal))
        return false;
    const bool ok = take_array(l, key, dtype, rest ? 1 : 0, &n, t);
    for (int64_t i = 0; ok && i < n; i++) {
        const int64_t number = rest ? list[i] : one;
        if (dtype == PTL_I32) ((int32_t *)t->data)[i] = (int32_t)number;
        else ((int64_t *)t->data)[i] = number;
    }
    free(list);
    return ok;
}

static bool read_attn_scale(const struct loader *l, const char *value) {
    double scale;
    if (!read_real("attn_scale", value, &scale, l->refusal)) return false;
    if (!take_array(l, "attn_scale", PTL_F32, 0, NULL, &l->p->hstu.attn_scale)) return false;
    *(float *)l->p->hstu.attn_scale.data = (float)scale;
    return true;
}

/* ---- Words ----------------------------------------------------------------------------------- */

static bool read_arrays(const struct loader *l) {
    for (int i = 0; i < N_TENSORS; i++) {
        const char *value = words_find(l->words, tensors[i].key);
        if (value && *value == '@' && !read_array(l, value + 1, tensor_of(l, i))) return false;
    }
    const enum ptl_dtype dtype = index_type(l);
    for (int i = 0; i < N_TENSORS; i++) {
        const char *key = tensors[i].key, *value = words_find(l->words, key);
        if (!value || *value == '@') continue;
        if (strcmp(key, "attn_scale") == 0) {
            if (!read_attn_scale(l, value)) return false;
        } else if (!tensors[i].numbers) {
            return refuse(l->refusal, "%s: '%.60s', expected @file.npy as for q", key, value);
        } else if (!read_numbers(l, key, value, dtype, tensor_of(l, i))) {
            return false;
        }
    }
    return true;
}

static bool is_tensor(const char *key) {
    for (int i = 0; i < N_TENSORS; i++)
        if (strcmp(key, tensors[i].key) == 0) return true;
    return false;
}

static bool read_option(const struct loader *l, struct run_options *run, const char *key,
                        const char *value) {
    static const char *const dtypes[] = {"f32", NULL};
    struct ptl_hstu_params *a = &l->p->hstu;
    int64_t window[2];
    double alpha;
    int choice;
    bool known;
    if (is_tensor(key)) return true;
    if (!read_run_option(run, key, value, &known, l->refusal)) return false;
    if (known) return true;
    for (int i = 0; i < N_INTEGERS; i++)
        if (strcmp(key, integers[i].key) == 0)
            return read_integer(key, value, INT64_MIN, INT64_MAX,
                                (int64_t *)((char *)a + integers[i].offset), l->refusal);
    if (strcmp(key, "dtype") == 0) return read_choice(key, value, dtypes, &choice, l->refusal);
    if (strcmp(key, "rule") == 0 || strcmp(key, "window_size") == 0) {
        if (words_find(l->words, "rule") && words_find(l->words, "window_size"))
            return refuse(l->refusal,
                          "window_size: given together with rule, expected one of them");
        if (!(*key == 'r' ? read_rule : read_window)(value, window, l->refusal)) return false;
        a->window_left = window[0];
        a->window_right = window[1];
        return true;
    }
    if (strcmp(key, "alpha") == 0) {
        if (!read_real(key, value, &alpha, l->refusal)) return false;
        a->alpha = (float)alpha;
        return true;
    }
    return refuse(l->refusal, "%.60s: unknown key of a line with arrays, see 'pantile help hstu'",
                  key);
}

/* out is [.., Hq, Dv] with the axes of q. */
static bool make_out(const struct loader *l) {
    struct ptl_hstu_params *a = &l->p->hstu;
    const struct ptl_tensor *const required[3] = {&a->q, &a->k, &a->v};
    static const char *const names[3] = {"q", "k", "v"};
    char text[96];
    for (int i = 0; i < 3; i++) {
        if (!required[i]->data)
            return refuse(l->refusal, "%s: missing, expected %s=@file.npy", names[i], names[i]);
        if (required[i]->ndim != 3 && required[i]->ndim != 4)
            return refuse(l->refusal, "%s: shape %s, expected 3 axes (jagged) or 4 (dense)",
                          names[i], shape_text(required[i], text));
    }
    int64_t shape[4];
    memcpy(shape, a->q.shape, sizeof shape);
    shape[a->q.ndim - 1] = a->v.shape[a->v.ndim - 1];
    return take_array(l, "out", PTL_F32, a->q.ndim, shape, &a->out);
}

static bool load(const struct loader *l) {
    struct run_options run = {0};
    ptl_hstu_params_init(&l->p->hstu);
    for (int i = 0; i < l->words->n; i++)
        if (!read_option(l, &run, l->words->word[i].key, l->words->word[i].value)) return false;
    l->p->threads = run.threads;
    l->p->isa = run.isa;
    l->p->executor = run.executor;
    l->p->cold = run.cold;
    return read_arrays(l) && make_out(l);
}

/* ---- Lines ----------------------------------------------------------------------------------- */

static bool array_problem_create(struct problem *p, const struct words *w, struct refusal *r) {
    const struct loader loader = {p, w, r};
    memset(p, 0, sizeof *p);
    if (strcmp(w->op, "hstu") != 0)
        return refuse(r, "'%.60s': unknown operator, expected hstu", w->op);
    strcpy(p->op, "hstu");
    p->seed = 1;
    p->memory = problem_memory_create(false);
    if (!p->memory) return refuse(r, "problem: no memory");
    if (load(&loader)) return true;
    problem_destroy(p);
    return false;
}

static bool take_output(struct words *w, struct output *out, struct refusal *r) {
    const char *path = words_find(w, "out");
    out->path = NULL;
    if (!path) return true;
    if (*path != '@' || !path[1]) return refuse(r, "out: '%.60s', expected @file.npy", path);
    out->path = strdup(path + 1);
    if (!out->path) return refuse(r, "out: no memory");
    words_remove(w, "out");
    return true;
}

static bool names_arrays(const struct words *w) {
    for (int i = 0; i < w->n; i++)
        if (w->word[i].value[0] == '@') return true;
    return false;
}

bool problem_open(struct problem *p, struct output *out, struct words *w, struct refusal *r) {
    bool ok = false;
    if (!take_output(w, out, r)) return false;
    if (names_arrays(w)) {
        ok = array_problem_create(p, w, r);
    } else {
        char *line = words_join(w);
        ok = line ? problem_create(p, line, 0, r->text, r->size) : refuse(r, "line: no memory");
        free(line);
    }
    if (!ok) output_free(out);
    return ok;
}

void output_free(struct output *out) {
    free(out->path);
    out->path = NULL;
}

bool output_write(const struct output *out, const struct problem *p, struct refusal *r) {
    return !out->path || npy_write(out->path, &p->hstu.out, r);
}
