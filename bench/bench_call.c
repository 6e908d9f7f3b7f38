/* What a call costs: C to C through dv_call, checks included, results given, against a call by function pointer.
 *
 *     bench_call [--quick]      one JSON object a line, for bench/run.py
 *
 * Beside it, when it is installed (pip install apache-tvm-ffi in .venv, or DOVETAIL_TVM_FFI=/path/of/libtvm_ffi.so), tvm-ffi's
 * packed call to the same loop, through its function object; it checks nothing but what the callee checks.
 *
 * Best of many repetitions of many calls: the machine is shared, and the best is what the code takes. Allocations are counted. */
#define DV_STATIC 1
#include <dlfcn.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "dovetail.h"

/* The work is small on purpose: what is measured is the way to it. */
struct add_mul {
    const dv_tensor *a, *b;
    dv_tensor *out;
};
static int add_mul_f32(dv_context *ctx, const struct add_mul *x)
{
    const float *a = x->a->data, *b = x->b->data;
    float *out = x->out->data;
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(x->out); i < n; i++)
        out[i] = a[i] * b[i] + a[i];
    return DV_OK;
}
DV_OPERATOR(add_mul, struct add_mul, (a, b, out), .schema = "add_mul(Tensor a, Tensor b) -> Tensor out",
    .contract = "a[*s]:T, b[*s]:T -> out[*s]:T; parallel(*s)",
    .kernels = DV_KERNELS(DV_KERNEL(struct add_mul, "cpu", "f32", add_mul_f32, .split = 4096)));

struct scaled {
    const dv_tensor *x, *weight;
    double eps;
    dv_opt_int group;
    dv_tensor *out;
};
static int scaled_f32(dv_context *ctx, const struct scaled *a)
{
    const float *x = a->x->data, *w = a->weight->data;
    float *out = a->out->data;
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->out), d = a->weight->shape[0]; i < n; i++)
        out[i] = x[i] * w[i % d] + (float)a->eps;
    return DV_OK;
}
DV_OPERATOR(scaled, struct scaled, (x, weight, eps, group, out),
    .schema = "scaled(Tensor x, Tensor weight, float eps=1e-6, *, int? group=None) -> Tensor out",
    .contract = "x[*s d]:T, weight[d]:T -> out[*s d]:T; parallel(*s)",
    .kernels = DV_KERNELS(DV_KERNEL(struct scaled, "cpu", "f32", scaled_f32, .isa = "avx512"),
        DV_KERNEL(struct scaled, "cpu", "f32", scaled_f32, .isa = "avx2"), DV_KERNEL(struct scaled, "cpu", "f32", scaled_f32)));

DV_LIBRARY(bench_call, &dv_op_add_mul, &dv_op_scaled);

/* ---- tvm-ffi's C ABI, as far as a packed call needs it ---- */

typedef struct tvm_any {
    int32_t type;
    uint32_t zero;
    union {
        int64_t i;
        void *p;
    } as;
} tvm_any;
typedef int (*tvm_safe_call)(void *self, const tvm_any *args, int32_t nargs, tvm_any *result);
enum { TVM_NONE = 0, TVM_DLTENSOR_POINTER = 7 };

static int tvm_add_mul(void *self, const tvm_any *args, int32_t nargs, tvm_any *result)
{
    (void)self, (void)result;
    if (nargs != 3)
        return -1;
    for (int i = 0; i < 3; i++)
        if (args[i].type != TVM_DLTENSOR_POINTER)
            return -1;
    const struct add_mul frame = { args[0].as.p, args[1].as.p, args[2].as.p };
    return add_mul_f32(NULL, &frame);
}

static int (*tvm_call)(void *function, tvm_any *args, int32_t nargs, tvm_any *result);

/* A function object around it, or NULL. */
static void *tvm_function(void)
{
    const char *path = getenv("DOVETAIL_TVM_FFI");
    glob_t found;
    if (!path && !glob(SOURCE_DIR "/.venv/lib/python3*/site-packages/tvm_ffi/lib/libtvm_ffi.so", 0, NULL, &found))
        path = found.gl_pathv[0];
    void *lib = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL, *function = NULL;
    int (*create)(void *self, tvm_safe_call call, void (*deleter)(void *), void **out);
    if (!lib)
        return NULL;
    *(void **)&create = dlsym(lib, "TVMFFIFunctionCreate");
    *(void **)&tvm_call = dlsym(lib, "TVMFFIFunctionCall");
    return create && tvm_call && !create(NULL, tvm_add_mul, NULL, &function) ? function : NULL;
}

static long allocations;
static void *count_alloc(void *user, size_t size)
{
    (void)user;
    allocations++;
    return malloc(size);
}
static void *count_realloc(void *user, void *p, size_t size)
{
    (void)user;
    allocations++;
    return realloc(p, size);
}
static void count_free(void *user, void *p)
{
    (void)user;
    free(p);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

enum { CALLS = 5000 };
#define BEST(result, statement)                          \
    do {                                                 \
        result = 1e30;                                   \
        for (int r = 0; r < repetitions; r++) {          \
            const double begin = now();                  \
            for (int k = 0; k < CALLS; k++)              \
                statement;                               \
            const double each = (now() - begin) / CALLS; \
            result = each < result ? each : result;      \
        }                                                \
    } while (0)

static void row(const char *what, const char *peer, double ours, double theirs, const char *goal)
{
    printf("{\"what\": \"C to C: %s\", \"peer\": \"%s\", \"ours\": %.1f, \"theirs\": ", what, theirs > 0 ? peer : "", ours);
    printf(theirs > 0 ? "%.1f" : "null", theirs);
    printf(", \"unit\": \"ns\", \"goal\": \"%s\", \"higher\": false}\n", goal ? goal : "");
}

static int die(void)
{
    fprintf(stderr, "bench_call: %s\n", dv_last_error());
    return 1;
}

int main(int argc, char **argv)
{
    const int repetitions = argc > 1 && !strcmp(argv[1], "--quick") ? 40 : 300;
    const dv_allocator counting = { count_alloc, count_realloc, count_free, NULL };
    dv_library *lib;
    dv_operator *add_mul, *scaled;
    dv_set_allocator(&counting);
    if (dv_load_static(&dv_library_bench_call, &lib) || dv_find("bench_call::add_mul", &add_mul) ||
        dv_find("bench_call::scaled", &scaled))
        return die();

    float a[4] = { 1, 2, 3, 4 }, b[4] = { 5, 6, 7, 8 }, out[4];
    const int64_t shape[1] = { 4 };
    const dv_dtype f32 = { 2, 32, 1 };
    const dv_device cpu = { DV_CPU, 0 };
    int64_t strides[1];
    dv_tensor ta, tb, tout;
    if (dv_tensor_init(&ta, a, f32, cpu, 1, shape, NULL, strides) || dv_tensor_init(&tb, b, f32, cpu, 1, shape, NULL, strides) ||
        dv_tensor_init(&tout, out, f32, cpu, 1, shape, NULL, strides))
        return die();
    const dv_value args[2] = { dv_from_tensor(&ta), dv_from_tensor(&tb) };
    dv_value result = dv_from_tensor(&tout);
    struct add_mul frame = { &ta, &tb, &tout };
    int failed = 0;

    int (*volatile direct)(dv_context *, const struct add_mul *) = add_mul_f32;
    double by_pointer, by_call, changing, by_frame, with_defaults, making;
    BEST(by_pointer, failed |= direct(NULL, &frame));
    failed |= dv_call(add_mul, args, 2, &result, 1, NULL);
    void *const function = tvm_function();
    double packed = 0;
    if (function) {
        tvm_any packed_args[3], none;
        memset(packed_args, 0, sizeof packed_args);
        memset(&none, 0, sizeof none);
        for (int i = 0; i < 3; i++)
            packed_args[i].type = TVM_DLTENSOR_POINTER;
        packed_args[0].as.p = &ta, packed_args[1].as.p = &tb, packed_args[2].as.p = &tout;
        BEST(packed, failed |= tvm_call(function, packed_args, 3, &none));
    }
    BEST(by_call, failed |= dv_call(add_mul, args, 2, &result, 1, NULL));
    const long before = allocations;
    for (int k = 0; k < 1000; k++)
        failed |= dv_call(add_mul, args, 2, &result, 1, NULL);
    const long made = allocations - before;
    /* Sizes that were never seen before: [0, 1], [0, 2], [0, 3]... */
    int64_t odd[2] = { 0, 0 }, odd_strides[2] = { 0, 1 };
    dv_tensor tx = ta, ty = tb, tz = tout;
    tx.ndim = ty.ndim = tz.ndim = 2;
    tx.shape = ty.shape = tz.shape = odd;
    tx.strides = ty.strides = tz.strides = odd_strides;
    const dv_value odd_args[2] = { dv_from_tensor(&tx), dv_from_tensor(&ty) };
    dv_value odd_result = dv_from_tensor(&tz);
    BEST(changing, {
        odd_strides[0] = ++odd[1];
        failed |= dv_call(add_mul, odd_args, 2, &odd_result, 1, NULL);
    });
    BEST(by_frame, failed |= dv_call_frame(add_mul, &frame, sizeof frame, DV_FIELDS(struct add_mul, a, b, out), NULL));
    BEST(with_defaults, failed |= dv_call(scaled, args, 2, &result, 1, NULL));
    BEST(making, {
        dv_value fresh = dv_default();
        failed |= dv_call(add_mul, args, 2, &fresh, 1, NULL);
        dv_tensor_unref((dv_tensor *)(uintptr_t)fresh.as.tensor);
    });
    if (failed)
        return die();
    row("f(a, b, out) by function pointer", "", by_pointer, 0, NULL);
    row("dv_call(f), result given, checks included", "the function itself", by_call, by_pointer, "<= 60");
    if (packed > 0)
        row("dv_call(f), result given, checks included", "tvm-ffi, packed call, no checks", by_call, packed, NULL);
    row("dv_call(f), sizes change at each call", "the function itself", changing, by_pointer, "<= 130");
    row("dv_call_frame(f), result given", "the function itself", by_frame, by_pointer, NULL);
    row("dv_call(f) with two defaults and three rows", "the function itself", with_defaults, by_pointer, NULL);
    row("dv_call(f), result allocated and freed", "the function itself", making, by_pointer, NULL);
    printf("{\"what\": \"allocations in 1,000 dv_calls, result given\", \"peer\": \"\", \"ours\": %ld, \"theirs\": null, "
           "\"unit\": \"\", "
           "\"goal\": \"<= 0\", \"higher\": false}\n",
        made);
    dv_operator_unref(add_mul);
    dv_operator_unref(scaled);
    dv_library_free(lib);
    return 0;
}
