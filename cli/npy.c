/* Reading and writing .npy. The header is a Python dictionary; what is read of that language is the
 * three keys NumPy writes, in any order and spacing, and nothing else. */
#define _POSIX_C_SOURCE 200809L
#include "npy.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "npy.c reads and writes little-endian arrays as they are in memory"
#endif

enum {
    MAX_AXES = 4,
    MAX_HEADER = 1 << 16, /* NumPy writes about 100 bytes, and itself refuses more than 10,000 */
    PREFIX = 8,           /* magic, major and minor version */
    ALIGNMENT = 64        /* of the data in files that we write */
};

static const char magic[6] = {'\x93', 'N', 'U', 'M', 'P', 'Y'};

static const struct {
    char code[3];
    enum ptl_dtype dtype;
} types[] = {{"f4", PTL_F32}, {"f2", PTL_F16}, {"u2", PTL_BF16}, {"i4", PTL_I32},
             {"i8", PTL_I64}, {"u1", PTL_U8},  {"b1", PTL_U8}};

enum { N_TYPES = sizeof types / sizeof types[0] };

/* ---- The header's text ----------------------------------------------------------------------- */

struct scanner {
    const char *at; /* ends with 0 */
    const char *name;
    struct refusal *refusal;
};

static bool broken(const struct scanner *s) {
    return refuse(s->refusal, "%s: its header is no dictionary of descr, fortran_order and shape",
                  s->name);
}

static void skip_blanks(struct scanner *s) {
    while (*s->at == ' ' || *s->at == '\n') s->at++;
}

static bool take_char(struct scanner *s, char wanted) {
    skip_blanks(s);
    if (*s->at != wanted) return false;
    s->at++;
    return true;
}

static bool take_name(struct scanner *s, const char *wanted) {
    skip_blanks(s);
    const char *end = after_prefix(s->at, wanted);
    if (!end) return false;
    s->at = end;
    return true;
}

/* A quoted string of at most 31 characters, none of them a quote or a backslash. */
static bool take_string(struct scanner *s, char text[32]) {
    char quote = '\'';
    if (!take_char(s, quote) && !take_char(s, quote = '"')) return broken(s);
    size_t n = 0;
    for (; *s->at && *s->at != quote && *s->at != '\\' && n < 31; s->at++) text[n++] = *s->at;
    text[n] = 0;
    return take_char(s, quote) || broken(s);
}

static bool take_type(struct scanner *s, struct ptl_tensor *t) {
    char descr[32];
    skip_blanks(s);
    if (*s->at == '[' || *s->at == '(')
        return refuse(s->refusal, "%s: a structured array, expected plain numbers", s->name);
    if (!take_string(s, descr)) return false;
    if (descr[0] == '>')
        return refuse(s->refusal, "%s: big-endian ('%s'), expected little-endian", s->name, descr);
    const bool one_byte =
        strcmp(descr + (descr[0] != 0), "u1") == 0 || strcmp(descr + (descr[0] != 0), "b1") == 0;
    for (int i = 0; i < N_TYPES; i++)
        if ((descr[0] == '<' || (descr[0] == '|' && one_byte)) &&
            strcmp(descr + 1, types[i].code) == 0) {
            t->dtype = types[i].dtype;
            return true;
        }
    if (strcmp(descr, "<f8") == 0)
        return refuse(s->refusal,
                      "%s: float64, expected float32; convert it with astype('float32')", s->name);
    return refuse(s->refusal,
                  "%s: type '%s', expected float32, float16, int32, int64, uint8, bool or uint16 "
                  "(bf16)",
                  s->name, descr);
}

static bool take_order(struct scanner *s) {
    if (take_name(s, "False")) return true;
    if (!take_name(s, "True")) return broken(s);
    return refuse(s->refusal,
                  "%s: Fortran order, expected C order; save np.ascontiguousarray of it", s->name);
}

static bool take_extent(struct scanner *s, int64_t *extent) {
    char *end;
    skip_blanks(s);
    if (*s->at < '0' || *s->at > '9') return broken(s);
    errno = 0;
    const long long n = strtoll(s->at, &end, 10);
    if (errno) return refuse(s->refusal, "%s: an extent above 2^63", s->name);
    s->at = end;
    *extent = n;
    return true;
}

/* (), (3,), (3, 4), (3, 4,) */
static bool take_shape(struct scanner *s, struct ptl_tensor *t) {
    int64_t shape[MAX_AXES];
    int n = 0;
    bool comma = true;
    if (!take_char(s, '(')) return broken(s);
    while (!take_char(s, ')')) {
        if (!comma) return broken(s);
        if (n == MAX_AXES)
            return refuse(s->refusal, "%s: more than %d axes, expected at most %d", s->name,
                          MAX_AXES, MAX_AXES);
        if (!take_extent(s, &shape[n++])) return false;
        comma = take_char(s, ',');
    }
    if (n == 1 && !comma) return broken(s); /* (3) is a number */
    *t = ptl_tensor_contiguous(NULL, t->dtype, n, shape);
    return true;
}

static bool read_header(struct scanner *s, struct ptl_tensor *t) {
    enum { DESCR = 1, ORDER = 2, SHAPE = 4 };
    int seen = 0;
    bool comma = true;
    memset(t, 0, sizeof *t);
    if (!take_char(s, '{')) return broken(s);
    while (!take_char(s, '}')) {
        char key[32];
        if (!comma || !take_string(s, key) || !take_char(s, ':')) return broken(s);
        const int part = strcmp(key, "descr") == 0           ? DESCR
                         : strcmp(key, "fortran_order") == 0 ? ORDER
                         : strcmp(key, "shape") == 0         ? SHAPE
                                                             : 0;
        if (part == 0 || (seen & part)) return broken(s);
        seen |= part;
        if (part == DESCR && !take_type(s, t)) return false;
        if (part == ORDER && !take_order(s)) return false;
        if (part == SHAPE && !take_shape(s, t)) return false;
        comma = take_char(s, ',');
    }
    skip_blanks(s);
    return (seen == (DESCR | ORDER | SHAPE) && *s->at == 0) || broken(s);
}

/* ---- Files ----------------------------------------------------------------------------------- */

static bool truncated(const char *name, struct refusal *r) {
    return refuse(r, "%s: ends inside its header", name);
}

/* The header as text with a 0 behind it, to be freed. */
static bool load_header(FILE *f, const char *name, char **text, struct refusal *r) {
    unsigned char prefix[PREFIX], size[4] = {0};
    if (fread(prefix, 1, PREFIX, f) != PREFIX || memcmp(prefix, magic, sizeof magic) != 0)
        return refuse(r, "%s: not a .npy file", name);
    if (prefix[6] < 1 || prefix[6] > 3)
        return refuse(r, "%s: .npy version %d, expected 1 to 3", name, prefix[6]);
    const size_t n_size = prefix[6] == 1 ? 2 : 4;
    if (fread(size, 1, n_size, f) != n_size) return truncated(name, r);
    const size_t n = size[0] | (size_t)size[1] << 8 | (size_t)size[2] << 16 | (size_t)size[3] << 24;
    if (n > MAX_HEADER)
        return refuse(r, "%s: a header of %zu bytes, expected at most %d", name, n, MAX_HEADER);
    *text = calloc(n + 1, 1);
    if (!*text) return refuse(r, "%s: no memory", name);
    if (fread(*text, 1, n, f) == n) {
        if (strlen(*text) == n) return true;
        refuse(r, "%s: a zero byte in its header", name);
    } else {
        truncated(name, r);
    }
    free(*text);
    return false;
}

/* Bytes from here to the end, the position kept; -1: the stream cannot seek. */
static int64_t bytes_left(FILE *f) {
    const off_t here = ftello(f);
    if (here < 0 || fseeko(f, 0, SEEK_END) != 0) return -1;
    const off_t end = ftello(f);
    return fseeko(f, here, SEEK_SET) == 0 ? (int64_t)(end - here) : -1;
}

static bool count_bytes(const struct ptl_tensor *t, int64_t *bytes) {
    *bytes = (int64_t)ptl_dtype_bytes(t->dtype);
    for (int i = 0; i < t->ndim; i++)
        if (__builtin_mul_overflow(*bytes, t->shape[i], bytes)) return false;
    return true;
}

bool npy_read_stream(FILE *f, const char *name, struct ptl_tensor *t, struct refusal *r) {
    char *text;
    int64_t bytes;
    if (!load_header(f, name, &text, r)) return false;
    struct scanner s = {text, name, r};
    const bool understood = read_header(&s, t);
    free(text);
    if (!understood) return false;
    if (!count_bytes(t, &bytes)) return refuse(r, "%s: more than 2^63 bytes", name);
    const int64_t left = bytes_left(f);
    if (left < 0) return refuse(r, "%s: cannot seek, expected a regular file", name);
    if (left < bytes)
        return refuse(r, "%s: truncated, %" PRId64 " of %" PRId64 " bytes of data", name, left,
                      bytes);
    if (left > bytes)
        return refuse(r, "%s: %" PRId64 " bytes behind its data, expected none", name,
                      left - bytes);
    if (posix_memalign(&t->data, ALIGNMENT, bytes ? (size_t)bytes : 1) != 0)
        return refuse(r, "%s: no memory for %" PRId64 " bytes", name, bytes);
    if (fread(t->data, 1, (size_t)bytes, f) == (size_t)bytes) return true;
    free(t->data);
    return refuse(r, "%s: cannot be read", name);
}

bool npy_read(const char *path, struct ptl_tensor *t, struct refusal *r) {
    FILE *f = fopen(path, "rb");
    if (!f) return refuse(r, "%s: %s", path, strerror(errno));
    const bool ok = npy_read_stream(f, path, t, r);
    fclose(f);
    return ok;
}

const char *type_text(enum ptl_dtype dtype) {
    switch (dtype) {
    case PTL_F32: return "float32";
    case PTL_F16: return "float16";
    case PTL_BF16: return "uint16 (bf16)";
    case PTL_I32: return "int32";
    case PTL_I64: return "int64";
    case PTL_U8: return "uint8";
    }
    return "unknown type";
}

const char *shape_text(const struct ptl_tensor *t, char text[96]) {
    int n = 0;
    for (int i = 0; i < t->ndim; i++)
        n += snprintf(text + n, 96 - (size_t)n, "%s%" PRId64, i ? ", " : "(", t->shape[i]);
    snprintf(text + n, 96 - (size_t)n, "%s", t->ndim == 0 ? "()" : t->ndim == 1 ? ",)" : ")");
    return text;
}

/* Magic, version 1.0, length, dictionary, and spaces up to a multiple of ALIGNMENT. */
static bool write_header(FILE *f, const struct ptl_tensor *t) {
    char shape[96], text[256];
    const char *code = "f4";
    for (int i = N_TYPES - 1; i >= 0; i--)
        if (types[i].dtype == t->dtype) code = types[i].code;
    const int n =
        snprintf(text, sizeof text, "{'descr': '%c%s', 'fortran_order': False, 'shape': %s, }",
                 t->dtype == PTL_U8 ? '|' : '<', code, shape_text(t, shape));
    const int used = PREFIX + 2 + n + 1;
    const int padding = (ALIGNMENT - used % ALIGNMENT) % ALIGNMENT;
    const int size = n + padding + 1;
    const unsigned char prefix[4] = {1, 0, (unsigned char)(size & 0xff),
                                     (unsigned char)(size >> 8)};
    fwrite(magic, 1, sizeof magic, f);
    fwrite(prefix, 1, sizeof prefix, f);
    return fprintf(f, "%s%*s\n", text, padding, "") > 0;
}

/* The data row by row of the last axis. */
static bool write_data(FILE *f, const struct ptl_tensor *t) {
    const size_t element = ptl_dtype_bytes(t->dtype);
    int64_t shape[4] = {1, 1, 1, 1}, stride[4] = {0, 0, 0, 0};
    for (int i = 0; i < t->ndim; i++) {
        shape[4 - t->ndim + i] = t->shape[i];
        stride[4 - t->ndim + i] = t->stride[i];
        if (t->shape[i] == 0) return true;
    }
    for (int64_t a = 0; a < shape[0]; a++)
        for (int64_t b = 0; b < shape[1]; b++)
            for (int64_t c = 0; c < shape[2]; c++) {
                const int64_t at = a * stride[0] + b * stride[1] + c * stride[2];
                if (fwrite((const char *)t->data + (int64_t)element * at, element, (size_t)shape[3],
                           f) != (size_t)shape[3])
                    return false;
            }
    return true;
}

bool npy_write_stream(FILE *f, const struct ptl_tensor *t) {
    return write_header(f, t) && write_data(f, t);
}

bool npy_write(const char *path, const struct ptl_tensor *t, struct refusal *r) {
    errno = 0;
    FILE *f = fopen(path, "wb");
    if (!f) return refuse(r, "%s: %s", path, strerror(errno));
    const bool written = npy_write_stream(f, t);
    const bool closed = fclose(f) == 0;
    if (written && closed) return true;
    return refuse(r, "%s: %s", path, errno ? strerror(errno) : "cannot be written");
}
