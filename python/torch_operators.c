/* Registers pantile's operators with torch, by torch's stable C functions, which are looked up in the
 * libtorch_cpu that the process runs. Knows no operator: Python tells how the arguments of each fill the
 * frame of structs that its C function takes (pantile/_abi.py, pantile/torch/_register.py). */
#include <dlfcn.h>
#include <pantile/base.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Torch's side -------------------------------------------------------------------------------
 * Declarations as in torch/csrc/stable/c/shim.h and torch/csrc/inductor/aoti_torch/c/shim.h. An argument
 * or result is one stack value: a handle that belongs to the callee, a number, or for an optional one the
 * address of a value from operator new. */
typedef uint64_t stack_value;
typedef struct torch_tensor *tensor_handle;
typedef struct torch_list *list_handle;
typedef void kernel_fn(stack_value *stack, uint64_t n_arguments, uint64_t n_results);
typedef void range_fn(int64_t begin, int64_t end, void *arg);

static struct {
    int32_t (*library_fragment)(const char *ns, const char *file, uint32_t line, void **library);
    int32_t (*library_impl)(const char *ns, const char *key, const char *file, uint32_t line,
                            void **library);
    int32_t (*define)(void *library, const char *schema);
    int32_t (*implement)(void *library, const char *name, kernel_fn *fn, uint64_t version);
    int32_t (*data)(tensor_handle tensor, void **data);
    int32_t (*dim)(tensor_handle tensor, int64_t *dim);
    int32_t (*sizes)(tensor_handle tensor, int64_t **sizes);
    int32_t (*strides)(tensor_handle tensor, int64_t **strides);
    int32_t (*dtype)(tensor_handle tensor, int32_t *dtype);
    int32_t (*empty)(int64_t ndim, const int64_t *sizes, const int64_t *strides, int32_t dtype,
                     int32_t device, int32_t device_index, tensor_handle *tensor);
    int32_t (*delete_tensor)(tensor_handle tensor);
    int32_t (*list_size)(list_handle list, size_t *size);
    int32_t (*list_item)(list_handle list, size_t i, stack_value *value);
    int32_t (*delete_list)(list_handle list);
    int32_t (*parallel_for)(int64_t begin, int64_t end, int64_t grain, range_fn *fn, void *arg);
    int32_t (*n_threads)(uint32_t *n_threads);
    void (*check)(bool condition, const char *function, const char *file, uint32_t line,
                  const char *message); /* throws through the callers */
    void (*operator_delete)(void *memory);
} torch;

static const struct {
    const char *name;
    void *address;
} imports[] = {
    {"aoti_torch_library_init_fragment", &torch.library_fragment},
    {"aoti_torch_library_init_impl", &torch.library_impl},
    {"aoti_torch_library_def", &torch.define},
    {"torch_library_impl", &torch.implement},
    {"aoti_torch_get_data_ptr", &torch.data},
    {"aoti_torch_get_dim", &torch.dim},
    {"aoti_torch_get_sizes", &torch.sizes},
    {"aoti_torch_get_strides", &torch.strides},
    {"aoti_torch_get_dtype", &torch.dtype},
    {"aoti_torch_empty_strided", &torch.empty},
    {"aoti_torch_delete_tensor_object", &torch.delete_tensor},
    {"torch_list_size", &torch.list_size},
    {"torch_list_get_item", &torch.list_item},
    {"torch_delete_list", &torch.delete_list},
    {"torch_parallel_for", &torch.parallel_for},
    {"torch_get_num_threads", &torch.n_threads},
    {"aoti_torch_check", &torch.check},
    {"_ZdlPv", &torch.operator_delete},
};

/* Torch's numbers for element types, in the order of enum ptl_dtype; bool is read as u8. */
enum { N_DTYPES = 8 };
static const char *const dtype_names[N_DTYPES] = {NULL,    "float32", "float16", "bfloat16",
                                                  "int32", "int64",   "uint8",   "bool"};
static int32_t torch_dtypes[N_DTYPES];
enum { DEVICE_CPU = 0 };

/* The functions of this version of torch are asked for; newer torch keeps them. */
static const uint64_t torch_version = (uint64_t)2 << 56 | (uint64_t)10 << 48;

/* ---- Python's side ------------------------------------------------------------------------------
 * Mirrored in pantile/torch/_register.py. */
enum kind {
    TENSOR,
    OPTIONAL_TENSOR,
    DATA, /* an optional tensor, of which the frame takes the address */
    INT,
    ENUM,
    FLOAT,
    OPTIONAL_FLOAT,
    SHAPE,       /* a list of extents for the output at `offset` */
    WANT,        /* whether the output at `offset` is made */
    WANTED_SHAPE /* both: it is made where the list is not empty */
};

struct ptl_torch_argument {
    const char *name;
    int32_t kind;
    int32_t offset; /* in the frame */
};

/* A result: a tensor of the frame. Without a SHAPE argument its shape is that of the tensor at `like`
 * without the last `drop` axes, then the last axis of the tensor at `last` (-1: none). */
enum { MAX_LIKE = 3 };
struct ptl_torch_output {
    int32_t offset;
    int32_t like[MAX_LIKE]; /* the first of them that is given; -1: no more */
    int32_t drop, last;
    int32_t dtype;    /* enum ptl_dtype; 0: that of `like` */
    int32_t argument; /* it is an argument, which is written, and no result */
};

struct ptl_torch_parameter {
    int32_t offset, by_value;
};

/* Bytes of the frame that are the same in two places. */
struct ptl_torch_copy {
    int32_t source, target, bytes;
};

enum {
    MAX_PARAMETERS = 5,
    MAX_COPIES = 12,
    MAX_FRAME = 8192,
    MAX_OUTPUTS = 12,
    MAX_OPERATORS = 64
};

/* Parameters are pointers and integers, which both ABIs here pass alike, in registers. */
typedef enum ptl_status call_fn(intptr_t, intptr_t, intptr_t, intptr_t, intptr_t, intptr_t);

struct ptl_torch_operator {
    const char *name, *schema;
    call_fn *call;
    const void *frame; /* what a call begins with: the defaults */
    const struct ptl_torch_argument *arguments;
    const struct ptl_torch_output *outputs;
    int32_t frame_bytes, n_arguments, n_outputs, n_parameters;
    int32_t wants_context;
    struct ptl_torch_parameter parameters[MAX_PARAMETERS];
    int32_t n_copies;
    struct ptl_torch_copy copies[MAX_COPIES];
};

/* ---- One context for each calling thread --------------------------------------------------------- */

struct range {
    ptl_range_fn fn;
    void *arg;
};

static void run_range(int64_t begin, int64_t end, void *arg) {
    const struct range *range = arg;
    range->fn(range->arg, begin, end);
}

static void torch_parallel_for(void *host, int64_t n, ptl_range_fn fn, void *arg) {
    (void)host;
    struct range range = {fn, arg};
    torch.parallel_for(0, n, 1, run_range, &range);
}

static _Thread_local struct ptl_context *thread_context;
static _Thread_local uint32_t thread_context_threads;
static pthread_key_t context_key;
static pthread_once_t context_once = PTHREAD_ONCE_INIT;

static void destroy_context(void *ctx) {
    ptl_context_destroy(ctx);
}

static void make_context_key(void) {
    pthread_key_create(&context_key, destroy_context);
}

/* torch.set_num_threads may be called at any time. */
static enum ptl_status context_of_thread(struct ptl_context **ctx) {
    uint32_t n_threads = 1;
    torch.n_threads(&n_threads);
    if (thread_context == NULL || n_threads != thread_context_threads) {
        pthread_once(&context_once, make_context_key);
        ptl_context_destroy(thread_context);
        struct ptl_context_options options;
        ptl_context_options_init(&options);
        options.executor = PTL_EXEC_HOST;
        options.num_threads = (int32_t)n_threads;
        options.parallel_for = torch_parallel_for;
        enum ptl_status status = ptl_context_create(&thread_context, &options);
        pthread_setspecific(context_key, thread_context);
        if (status != PTL_OK) return status;
        thread_context_threads = n_threads;
    }
    *ctx = thread_context;
    return PTL_OK;
}

/* ---- A call --------------------------------------------------------------------------------------- */

struct call {
    const struct ptl_torch_operator *op;
    tensor_handle outputs[MAX_OUTPUTS];
    bool wanted[MAX_OUTPUTS];
    list_handle shapes[MAX_OUTPUTS];
    char message[512]; /* empty: nothing was refused */
    _Alignas(16) char frame[MAX_FRAME];
};

static void refuse(struct call *c, const char *format, ...) {
    if (c->message[0] != '\0') return;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(c->message, sizeof c->message, format, arguments);
    va_end(arguments);
}

static void *at(struct call *c, int32_t offset) {
    return c->frame + offset;
}

static int output_at(const struct call *c, int32_t offset) {
    int i = 0;
    while (c->op->outputs[i].offset != offset) i++;
    return i;
}

/* An empty tensor of torch has no memory, but is not absent. */
static char no_elements;

/* Dense tensors on the CPU only: for others torch's dispatcher finds no kernel. */
static void describe(struct call *c, const char *name, tensor_handle tensor,
                     struct ptl_tensor *out) {
    int32_t dtype;
    int64_t ndim, *sizes, *strides;
    torch.dtype(tensor, &dtype);
    torch.dim(tensor, &ndim);
    int type = 1;
    while (type < N_DTYPES && torch_dtypes[type] != dtype) type++;
    if (type == N_DTYPES) {
        refuse(c,
               "%s: an element type that is none of float32, float16, bfloat16, int32, int64, "
               "uint8, bool",
               name);
        return;
    }
    if (ndim > 4) {
        refuse(c, "%s: %d axes, expected at most 4", name, (int)ndim);
        return;
    }
    torch.sizes(tensor, &sizes);
    torch.strides(tensor, &strides);
    torch.data(tensor, &out->data);
    if (out->data == NULL) out->data = &no_elements;
    out->dtype = type == PTL_U8 + 1 ? PTL_U8 : (enum ptl_dtype)type;
    out->ndim = (int32_t)ndim;
    memcpy(out->shape, sizes, (size_t)ndim * sizeof *sizes);
    memcpy(out->stride, strides, (size_t)ndim * sizeof *strides);
}

static void write_float(struct call *c, int32_t offset, stack_value value) {
    double number;
    memcpy(&number, &value, sizeof number);
    *(float *)at(c, offset) = (float)number;
}

static void take_wanted_shape(struct call *c, int output, list_handle shape) {
    size_t n = 0;
    torch.list_size(shape, &n);
    c->shapes[output] = shape;
    c->wanted[output] = n > 0;
}

/* Writes an argument into the frame. */
static void take(struct call *c, const struct ptl_torch_argument *a, stack_value value) {
    const stack_value *optional = (const stack_value *)value;
    switch ((enum kind)a->kind) {
    case TENSOR: describe(c, a->name, (tensor_handle)value, at(c, a->offset)); break;
    case OPTIONAL_TENSOR:
        if (optional) describe(c, a->name, (tensor_handle)*optional, at(c, a->offset));
        break;
    case DATA:
        if (optional) torch.data((tensor_handle)*optional, at(c, a->offset));
        break;
    case INT: *(int64_t *)at(c, a->offset) = (int64_t)value; break;
    case ENUM: *(int *)at(c, a->offset) = (int)(int64_t)value; break;
    case FLOAT: write_float(c, a->offset, value); break;
    case OPTIONAL_FLOAT:
        if (optional) write_float(c, a->offset, *optional);
        break;
    case SHAPE: c->shapes[output_at(c, a->offset)] = (list_handle)value; break;
    case WANT: c->wanted[output_at(c, a->offset)] = value != 0; break;
    case WANTED_SHAPE: take_wanted_shape(c, output_at(c, a->offset), (list_handle)value); break;
    }
}

/* Frees what came with an argument. */
static void release(const struct ptl_torch_argument *a, stack_value value) {
    stack_value *optional = (stack_value *)value;
    switch ((enum kind)a->kind) {
    case TENSOR: torch.delete_tensor((tensor_handle)value); break;
    case OPTIONAL_TENSOR:
    case DATA:
        if (optional) torch.delete_tensor((tensor_handle)*optional);
        if (optional) torch.operator_delete(optional);
        break;
    case OPTIONAL_FLOAT:
        if (optional) torch.operator_delete(optional);
        break;
    case SHAPE:
    case WANTED_SHAPE: torch.delete_list((list_handle)value); break;
    case INT:
    case ENUM:
    case FLOAT:
    case WANT: break;
    }
}

static const struct ptl_tensor *like(struct call *c, const struct ptl_torch_output *o) {
    for (int i = 0; i < MAX_LIKE && o->like[i] >= 0; i++) {
        const struct ptl_tensor *t = at(c, o->like[i]);
        if (t->data != NULL) return t;
    }
    return at(c, o->like[0]);
}

static const char *argument_at(const struct call *c, int32_t offset) {
    int i = 0;
    while (c->op->arguments[i].offset != offset) i++;
    return c->op->arguments[i].name;
}

/* The output's shape in the frame, in C order. False: too many axes. */
static bool shape_output(struct call *c, int i) {
    const struct ptl_torch_output *o = &c->op->outputs[i];
    const struct ptl_tensor *model = like(c, o);
    struct ptl_tensor *out = at(c, o->offset);
    int64_t shape[4];
    int32_t ndim = 0;
    if (c->shapes[i] != NULL) {
        size_t n = 0;
        torch.list_size(c->shapes[i], &n);
        for (; (size_t)ndim < n && ndim < 4; ndim++) {
            stack_value extent;
            torch.list_item(c->shapes[i], (size_t)ndim, &extent);
            shape[ndim] = (int64_t)extent;
        }
        if ((size_t)ndim < n) return false;
    } else {
        for (; ndim < model->ndim - o->drop; ndim++) shape[ndim] = model->shape[ndim];
        const struct ptl_tensor *last = o->last < 0 ? NULL : at(c, o->last);
        if (last != NULL && last->ndim > 0) {
            if (ndim == 4) return false;
            shape[ndim++] = last->shape[last->ndim - 1];
        }
    }
    const enum ptl_dtype dtype = o->dtype ? (enum ptl_dtype)o->dtype : model->dtype;
    *out = ptl_tensor_contiguous(&no_elements, dtype, ndim, shape);
    return true;
}

static void make_output(struct call *c, int i) {
    if (c->op->outputs[i].argument) return;
    struct ptl_tensor *out = at(c, c->op->outputs[i].offset);
    if (!c->wanted[i]) { /* an empty one stands for it, and the frame has none */
        const int64_t zero = 0, one = 1;
        torch.empty(1, &zero, &one, torch_dtypes[PTL_F32], DEVICE_CPU, 0, &c->outputs[i]);
        return;
    }
    const struct ptl_torch_output *o = &c->op->outputs[i];
    if (like(c, o)->data == NULL && (c->shapes[i] == NULL || o->dtype == 0)) {
        refuse(c, "%s: missing, but a result is shaped like it", argument_at(c, o->like[0]));
        return;
    }
    if (!shape_output(c, i)) {
        refuse(c, "result %d: more than 4 axes", i);
        return;
    }
    for (int axis = 0; axis < out->ndim; axis++)
        if (out->shape[axis] < 0) refuse(c, "result %d: a negative extent on axis %d", i, axis);
    if (c->message[0] != '\0') return;
    if (torch.empty(out->ndim, out->shape, out->stride, torch_dtypes[out->dtype], DEVICE_CPU, 0,
                    &c->outputs[i]) != 0) {
        refuse(c, "result %d: no memory", i);
        return;
    }
    void *data;
    torch.data(c->outputs[i], &data);
    if (data != NULL) out->data = data;
}

static void call_function(struct call *c) {
    const struct ptl_torch_operator *op = c->op;
    for (int i = 0; i < op->n_copies; i++)
        memcpy(at(c, op->copies[i].target), at(c, op->copies[i].source),
               (size_t)op->copies[i].bytes);
    intptr_t p[MAX_PARAMETERS + 1] = {0};
    int n = 0;
    enum ptl_status status = PTL_OK;
    if (op->wants_context) {
        struct ptl_context *ctx = NULL;
        status = context_of_thread(&ctx);
        p[n++] = (intptr_t)ctx;
    }
    for (int i = 0; i < op->n_parameters; i++) {
        const struct ptl_torch_parameter *parameter = &op->parameters[i];
        p[n++] = parameter->by_value ? *(intptr_t *)at(c, parameter->offset)
                                     : (intptr_t)at(c, parameter->offset);
    }
    if (status == PTL_OK) status = op->call(p[0], p[1], p[2], p[3], p[4], p[5]);
    if (status != PTL_OK) refuse(c, "%s", ptl_message());
}

static void run(const struct ptl_torch_operator *op, stack_value *stack) {
    struct call c;
    c.op = op;
    c.message[0] = '\0';
    memcpy(c.frame, op->frame, (size_t)op->frame_bytes);
    for (int i = 0; i < op->n_outputs; i++) {
        c.outputs[i] = NULL;
        c.shapes[i] = NULL;
        c.wanted[i] = true;
    }
    for (int i = 0; i < op->n_arguments; i++) take(&c, &op->arguments[i], stack[i]);
    for (int i = 0; i < op->n_outputs && c.message[0] == '\0'; i++) make_output(&c, i);
    if (c.message[0] == '\0') call_function(&c);
    for (int i = 0; i < op->n_arguments; i++) release(&op->arguments[i], stack[i]);
    if (c.message[0] != '\0') {
        for (int i = 0; i < op->n_outputs; i++)
            if (c.outputs[i] != NULL) torch.delete_tensor(c.outputs[i]);
        torch.check(false, op->name, __FILE__, __LINE__, c.message);
    }
    for (int i = 0, n = 0; i < op->n_outputs; i++)
        if (c.outputs[i] != NULL) stack[n++] = (stack_value)c.outputs[i];
}

/* ---- Registration -------------------------------------------------------------------------------
 * A kernel has no argument of its own that would say which operator it is: there is one for each. */
static struct ptl_torch_operator operators[MAX_OPERATORS];
static int n_operators;

#define KERNEL(n)                                                                                  \
    static void kernel_##n(stack_value *stack, uint64_t n_arguments, uint64_t n_results) {         \
        (void)n_arguments, (void)n_results;                                                        \
        run(&operators[n], stack);                                                                 \
    }
#define EIGHT(X, t) X(t##0) X(t##1) X(t##2) X(t##3) X(t##4) X(t##5) X(t##6) X(t##7)
#define ALL(X)                                                                                     \
    EIGHT(X, 00)                                                                                   \
    EIGHT(X, 01) EIGHT(X, 02) EIGHT(X, 03) EIGHT(X, 04) EIGHT(X, 05) EIGHT(X, 06) EIGHT(X, 07)
ALL(KERNEL) /* 000 to 077, in octal */
#define NAME(n) kernel_##n,
static kernel_fn *const kernels[MAX_OPERATORS] = {ALL(NAME)};

static const char *find_torch(void) {
    static const char library[] = "libtorch_cpu.so";
    void *handle = dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
    if (handle == NULL) return library;
    for (size_t i = 0; i < sizeof imports / sizeof *imports; i++) {
        void *symbol = dlsym(handle, imports[i].name);
        if (symbol == NULL) return imports[i].name;
        memcpy(imports[i].address, &symbol, sizeof symbol);
    }
    for (int type = 1; type < N_DTYPES; type++) {
        char name[64];
        snprintf(name, sizeof name, "aoti_torch_dtype_%s", dtype_names[type]);
        int32_t (*number)(void);
        void *symbol = dlsym(handle, name);
        if (symbol == NULL) return "an element type";
        memcpy(&number, &symbol, sizeof symbol);
        torch_dtypes[type] = number();
    }
    return NULL;
}

/* Defines the operators in the namespace `ns` for the CPU. NULL, or what is missing. The operators'
 * memory stays the caller's and must stay. Not to be called from two threads at once. */
PTL_API const char *ptl_torch_register(const char *ns, const struct ptl_torch_operator *ops,
                                       int32_t n);

const char *ptl_torch_register(const char *ns, const struct ptl_torch_operator *ops, int32_t n) {
    const char *missing = find_torch();
    if (missing != NULL) return missing;
    void *definitions, *kernels_cpu;
    if (torch.library_fragment(ns, __FILE__, __LINE__, &definitions) != 0 ||
        torch.library_impl(ns, "CPU", __FILE__, __LINE__, &kernels_cpu) != 0)
        return "a library for operators";
    for (int i = 0; i < n; i++) {
        if (n_operators == MAX_OPERATORS || ops[i].frame_bytes > MAX_FRAME)
            return "room for operators";
        operators[n_operators] = ops[i];
        if (torch.define(definitions, ops[i].schema) != 0 ||
            torch.implement(kernels_cpu, ops[i].name, kernels[n_operators], torch_version) != 0)
            return ops[i].name;
        n_operators++;
    }
    return NULL;
}
