/* dovetail_ascend.h: kernels that call aclnn operators of CANN, the software of Ascend's NPUs, or launchers of AscendC
 * kernels (docs/ascend.md).
 *
 *     DV_OPERATOR(my_op, struct my_op, (self, other, result), .schema = "my_op(Tensor self, Tensor other) -> Tensor", ...
 *         .kernels = DV_KERNELS(DV_ACLNN("f32 f16", "AddCustom", "self, other, result")));
 *
 * The kernel calls aclnnAddCustomGetWorkspaceSize(self, other, result, &size, &executor), then aclnnAddCustom(workspace, size,
 * executor, stream). No header of CANN is needed, and no library until the first call. Names and constants are checked when the
 * operator's library is loaded, so also by `dovetail build`. The list has, in aclnn's order:
 *
 *     x                 an argument or result by its name in the schema (result, result0, result1... where it has none)
 *     float(eps)        converted to a C type that aclnn's function takes: float, double, int64_t or bool
 *     scalar(alpha)     as an aclScalar
 *     2, 0.5, true, "ND", none, scalar(1)    constants; none is a null pointer
 *     dim or -1         a constant where the argument is None
 *
 * An empty list stands for: tensors, then all other arguments, then results, each in the schema's order. Without a converter int
 * is int64_t, float is double, bool is bool, str is char *, ScalarType is aclDataType, Scalar is aclScalar *, and lists are
 * aclTensorList *, aclIntArray *, aclFloatArray *, aclBoolArray * and aclScalarList *. A tensor that is None is a null pointer.
 * Further fields of the kernel may follow: DV_ACLNN("f32", "AddCustom", "", .priority = 1, .takes = "strided(self)").
 *
 * A launcher is a C function that puts one kernel on a stream: void f(uint32_t blockDim, void *l2ctrl, void *stream, ...).
 *
 *     #include "my_custom_op.h"
 *     DV_ASCENDC_LAUNCHER(MyCustomOpKernelEntry)
 *     ... .kernels = DV_KERNELS(DV_ASCENDC("i32", MyCustomOpKernelEntry, 8, "input, output, param1, param2")));
 *
 * blockDim is a number or an argument (8, blocks, blocks or 8), l2ctrl is NULL, the stream is the framework's current one. The
 * list has the parameters after these three, all of them. A tensor is the address of its first element, None is NULL; numbers are
 * as above. Where the launcher was declared __attribute__((weak)) and is not linked, calls say so.
 */
#ifndef DOVETAIL_ASCEND_H
#define DOVETAIL_ASCEND_H

#include "dovetail_op.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The functions that dv_query(ctx, "dovetail.aclnn") gives once libdovetail_ascend is open. run(): runs the aclnn operator
 * that the kernel's name states; launch(): calls a launcher. Both return a status. */
typedef struct dv_aclnn {
    uint32_t size;
    uint32_t reserved;
    int (*run)(dv_context *ctx);
    int (*launch)(dv_context *ctx, void (*launcher)(void));
} dv_aclnn;

static inline int dv__aclnn(dv_context *ctx, const void *frame)
{
    const dv_aclnn *aclnn = (const dv_aclnn *)dv_query(ctx, "dovetail.aclnn");
    (void)frame; /* the kernel's argument list names arguments of the schema, and the runtime has read it at load */
    return aclnn ? aclnn->run(ctx)
                 : dv_error(ctx, DV_ENOTSUP,
                       "aclnn kernels need libdovetail_ascend: call dv_ascend_open() in C, dovetail.ascend.open() in Python");
}

#define DV_ACLNN(DTYPES, NAME, LIST, ...)                    \
    &(const dv_kernel_decl){ .size = sizeof(dv_kernel_decl), \
        .name = "aclnn" NAME "(" LIST ")",                   \
        .device = "npu",                                     \
        .dtypes = DTYPES,                                    \
        .run = dv__aclnn,                                    \
        .flags = DV_KERNEL_FOREIGN,                          \
        __VA_ARGS__ }

static inline int dv__ascendc(dv_context *ctx, const char *name, void (*launcher)(void))
{
    const dv_aclnn *aclnn = (const dv_aclnn *)dv_query(ctx, "dovetail.aclnn");
    if (!launcher)
        return dv_error(ctx, DV_ENOENT,
            "no launcher %s in this binary: build it with the file that has it (dovetail build my_ops.c my_kernel.cce); "
            "in C++ it must be extern \"C\"",
            name);
    if (!aclnn || aclnn->size < sizeof *aclnn)
        return dv_error(ctx, DV_ENOTSUP,
            "launchers of AscendC kernels need libdovetail_ascend%s: "
            "call dv_ascend_open() in C, dovetail.ascend.open() in Python",
            aclnn ? " of this version" : "");
    return aclnn->launch(ctx, launcher);
}

/* Defines the kernel function of a launcher. It stands at file scope, after the launcher's declaration. */
#define DV_ASCENDC_LAUNCHER(LAUNCHER)                                    \
    static int dv__launch_##LAUNCHER(dv_context *ctx, const void *frame) \
    {                                                                    \
        (void)frame;                                                     \
        return dv__ascendc(ctx, #LAUNCHER, (void (*)(void))LAUNCHER);    \
    }

#define DV_ASCENDC(DTYPES, LAUNCHER, BLOCKS, LIST, ...)              \
    &(const dv_kernel_decl){ .size = sizeof(dv_kernel_decl),         \
        .name = #LAUNCHER "(" DV__LAUNCH_TEXT(BLOCKS) ", " LIST ")", \
        .device = "npu",                                             \
        .dtypes = DTYPES,                                            \
        .run = dv__launch_##LAUNCHER,                                \
        .flags = DV_KERNEL_FOREIGN,                                  \
        __VA_ARGS__ }
#define DV__LAUNCH_TEXT(X) DV__LAUNCH_TEXT_(X)
#define DV__LAUNCH_TEXT_(X) #X

/* ---- For programs and bridges: libdovetail_ascend ----------------------------------------------------------------------- */

#if defined(__GNUC__) || defined(__clang__)
#define DV_ASCEND_API __attribute__((visibility("default")))
#else
#define DV_ASCEND_API
#endif

struct dv_host;

/* What the framework that owns the NPU does for a call. Set size; a NULL entry has a default. Every entry returns a status
 * and may set a message by dv_fail(). Each gets a pointer to this struct: embed the struct in a larger one to reach your own
 * data. */
typedef struct dv_ascend_framework {
    uint32_t size;
    uint32_t reserved;
    const char *name;
    /* Gives the aclrtStream on which calls for this device run now. Default: the stream of the call's dv_host. */
    int (*stream)(const struct dv_ascend_framework *f, dv_device device, void **out);
    /* Gives memory for one kernel that this call's task is about to put on this stream. Later work on the stream may use the
     * same memory; the memory is never given back. Default: one block for each stream, which grows. */
    int (*workspace)(const struct dv_ascend_framework *f, void *stream, uint64_t bytes, void **out);
    /* Runs task(arg) in the order in which the framework puts work on this stream: now, or later on another thread. The task
     * runs exactly once if this function returns DV_OK, and never otherwise. task() returns aclnn's status. Default: runs
     * now. */
    int (*enqueue)(const struct dv_ascend_framework *f, void *stream, const char *name, int (*task)(void *arg), void *arg);
    /* Gives the number of the aclFormat in which a tensor's memory is laid out; t is the tensor that the call's host made.
     * Default: ND. */
    int (*format)(const struct dv_ascend_framework *f, const struct dv_host *host, const dv_tensor *t, int32_t *out);
} dv_ascend_framework;

/* Opens CANN's libraries and makes aclnn kernels work in this process. framework: borrowed until dv_ascend_close(); NULL: a
 * C program without a framework. A second call replaces the framework. DV_ENOENT: the message has the places where the
 * libraries were searched. */
DV_ASCEND_API int dv_ascend_open(const dv_ascend_framework *framework);
/* Does as dv_ascend_open(), with torch_npu as the framework, which the process must have loaded: its current stream, its
 * workspaces, its task queue, the formats of its tensors. DV_EABI: this torch_npu lacks a function that is needed. */
DV_ASCEND_API int dv_ascend_open_torch(void);
/* Returns a host for dv_call() with tensors on an NPU: memory of aclrtMalloc, and one stream for each device. The host's
 * free_tensor frees the tensors that a call makes. NULL before dv_ascend_open(). */
DV_ASCEND_API const struct dv_host *dv_ascend_host(void);
/* Waits for all work on the stream that dv_ascend_host() has for this device. Returns a status. */
DV_ASCEND_API int dv_ascend_wait(int32_t device);
/* Frees the streams of dv_ascend_host() and the default workspaces, after waiting for their work. No function of this
 * library may run at the same time. Returns a status. */
DV_ASCEND_API int dv_ascend_close(void);

#ifdef __cplusplus
}
#endif
#endif
