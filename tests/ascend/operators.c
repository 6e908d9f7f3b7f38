/* The operators of the stand-in: libopapi.so, and with -DVENDOR=n a vendor's libcust_opapi.so. */
#include "stand_in.h"

#define API STAND_IN
#define LAUNCH(name)                                                                         \
    API int32_t name(void *workspace, uint64_t size, struct aclOpExecutor *e, void *stream); \
    API int32_t name(void *workspace, uint64_t size, struct aclOpExecutor *e, void *stream)  \
    {                                                                                        \
        return stand_in_launch(#name, workspace, size, e, stream);                           \
    }

static float *at(const stand_in_tensor *t, int64_t index)
{
    int64_t offset = 0;
    for (size_t i = t->ndim; i-- > 0; index /= t->sizes[i])
        offset += index % t->sizes[i] * t->strides[i];
    return t->data + offset;
}

static int64_t numel(const stand_in_tensor *t)
{
    int64_t n = 1;
    for (size_t i = 0; i < t->ndim; i++)
        n *= t->sizes[i];
    return n;
}

#ifdef VENDOR
static void add_custom(const stand_in_values *v)
{
    const stand_in_tensor *x = &v->tensors[0], *y = &v->tensors[1], *z = &v->tensors[2];
    for (int64_t i = 0, n = numel(z); i < n; i++)
        *at(z, i) = *at(x, i) + *at(y, i) + (VENDOR - 1) * 100;
}

API int32_t aclnnAddCustomGetWorkspaceSize(
    const struct aclTensor *x, const struct aclTensor *y, const struct aclTensor *z, uint64_t *size, struct aclOpExecutor **out);
API int32_t aclnnAddCustomGetWorkspaceSize(
    const struct aclTensor *x, const struct aclTensor *y, const struct aclTensor *z, uint64_t *size, struct aclOpExecutor **out)
{
    struct aclOpExecutor *e = stand_in_begin("aclnnAddCustom", add_custom);
    stand_in_take_tensor(e, "x", x, false);
    stand_in_take_tensor(e, "y", y, false);
    stand_in_take_tensor(e, "z", z, false);
    return stand_in_done(e, 1000, size, out);
}
LAUNCH(aclnnAddCustom)

#else
static void add(const stand_in_values *v)
{
    const stand_in_tensor *x = &v->tensors[0], *y = &v->tensors[1], *z = &v->tensors[2];
    for (int64_t i = 0, n = numel(z); i < n; i++)
        *at(z, i) = *at(x, i) + (float)v->sum * *at(y, i);
}

API int32_t aclnnAddGetWorkspaceSize(const struct aclTensor *self, const struct aclTensor *other, const struct aclScalar *alpha,
    const struct aclTensor *out, uint64_t *size, struct aclOpExecutor **executor);
API int32_t aclnnAddGetWorkspaceSize(const struct aclTensor *self, const struct aclTensor *other, const struct aclScalar *alpha,
    const struct aclTensor *out, uint64_t *size, struct aclOpExecutor **executor)
{
    struct aclOpExecutor *e = stand_in_begin("aclnnAdd", add);
    stand_in_take_tensor(e, "self", self, false);
    stand_in_take_tensor(e, "other", other, false);
    stand_in_take_scalar(e, "alpha", alpha);
    stand_in_take_tensor(e, "out", out, false);
    return stand_in_done(e, 0, size, executor);
}
LAUNCH(aclnnAdd)

static void scale(const stand_in_values *v)
{
    for (int64_t i = 0, n = numel(v->tensors); i < n; i++)
        *at(v->tensors, i) *= (float)v->sum;
}

API int32_t aclnnInplaceScaleGetWorkspaceSize(const struct aclTensor *x, double by, uint64_t *size, struct aclOpExecutor **out);
API int32_t aclnnInplaceScaleGetWorkspaceSize(const struct aclTensor *x, double by, uint64_t *size, struct aclOpExecutor **out)
{
    struct aclOpExecutor *e = stand_in_begin("aclnnInplaceScale", scale);
    stand_in_take_tensor(e, "xRef", x, false);
    stand_in_take_number(e, "by", by);
    return stand_in_done(e, 50000, size, out);
}
LAUNCH(aclnnInplaceScale)

/* What torch_npu calls for x * 1 and for a copy between layouts. */
static void muls(const stand_in_values *v)
{
    for (int64_t i = 0, n = numel(&v->tensors[1]); i < n; i++)
        *at(&v->tensors[1], i) = (float)v->sum * *at(&v->tensors[0], i);
}

API int32_t aclnnMulsGetWorkspaceSize(const struct aclTensor *self, const struct aclScalar *other, const struct aclTensor *out,
    uint64_t *size, struct aclOpExecutor **executor);
API int32_t aclnnMulsGetWorkspaceSize(const struct aclTensor *self, const struct aclScalar *other, const struct aclTensor *out,
    uint64_t *size, struct aclOpExecutor **executor)
{
    struct aclOpExecutor *e = stand_in_begin("aclnnMuls", muls);
    stand_in_take_tensor(e, "self", self, false);
    stand_in_take_scalar(e, "other", other);
    stand_in_take_tensor(e, "out", out, false);
    return stand_in_done(e, 0, size, executor);
}
LAUNCH(aclnnMuls)

static void mul(const stand_in_values *v)
{
    for (int64_t i = 0, n = numel(&v->tensors[2]); i < n; i++)
        *at(&v->tensors[2], i) = *at(&v->tensors[0], i) * *at(&v->tensors[1], i);
}

API int32_t aclnnMulGetWorkspaceSize(const struct aclTensor *self, const struct aclTensor *other, const struct aclTensor *out,
    uint64_t *size, struct aclOpExecutor **executor);
API int32_t aclnnMulGetWorkspaceSize(const struct aclTensor *self, const struct aclTensor *other, const struct aclTensor *out,
    uint64_t *size, struct aclOpExecutor **executor)
{
    struct aclOpExecutor *e = stand_in_begin("aclnnMul", mul);
    stand_in_take_tensor(e, "self", self, false);
    stand_in_take_tensor(e, "other", other, false);
    stand_in_take_tensor(e, "out", out, false);
    return stand_in_done(e, 0, size, executor);
}
LAUNCH(aclnnMul)

static void copy(const stand_in_values *v)
{
    for (int64_t i = 0, n = numel(&v->tensors[0]); i < n; i++)
        *at(&v->tensors[0], i) = *at(&v->tensors[1], i);
}

API int32_t aclnnInplaceCopyGetWorkspaceSize(
    const struct aclTensor *to, const struct aclTensor *from, uint64_t *size, struct aclOpExecutor **executor);
API int32_t aclnnInplaceCopyGetWorkspaceSize(
    const struct aclTensor *to, const struct aclTensor *from, uint64_t *size, struct aclOpExecutor **executor)
{
    struct aclOpExecutor *e = stand_in_begin("aclnnInplaceCopy", copy);
    stand_in_take_tensor(e, "selfRef", to, false);
    stand_in_take_tensor(e, "src", from, false);
    return stand_in_done(e, 0, size, executor);
}
LAUNCH(aclnnInplaceCopy)

/* Every type of parameter, integers and floats mixed, more than there are registers. out = x + the tensors + the numbers. */
static void mixed(const stand_in_values *v)
{
    const stand_in_tensor *out = &v->tensors[v->ntensors - 1];
    for (int64_t i = 0, n = numel(out); i < n; i++) {
        *at(out, i) = (float)v->sum;
        for (size_t k = 0; k + 1 < v->ntensors; k++)
            if (v->tensors[k].data)
                *at(out, i) += *at(&v->tensors[k], i);
    }
}

#define MIXED_PARAMETERS                                                                                                        \
    const struct aclTensor *x, const struct aclTensor *y, const struct aclTensorList *more, int64_t n, double eps, float slope, \
        bool flag, const char *mode, const struct aclIntArray *ints, const struct aclFloatArray *floats,                        \
        const struct aclBoolArray *bools, const struct aclScalar *scalar, int32_t dtype, double b, double c, double d, float f, \
        double g, double h, double i, float j, int64_t k, int8_t narrow, const struct aclTensor *out, uint64_t *size,           \
        struct aclOpExecutor **executor
API int32_t aclnnMixedGetWorkspaceSize(MIXED_PARAMETERS);
API int32_t aclnnMixedGetWorkspaceSize(MIXED_PARAMETERS)
{
    struct aclOpExecutor *e = stand_in_begin("aclnnMixed", mixed);
    stand_in_take_tensor(e, "x", x, false);
    stand_in_take_tensor(e, "y", y, true);
    stand_in_take_tensors(e, "more", more);
    stand_in_take_number(e, "n", (double)n);
    stand_in_take_number(e, "eps", eps);
    stand_in_take_number(e, "slope", (double)slope);
    stand_in_take_number(e, "flag", flag);
    stand_in_take_text(e, "mode", mode);
    stand_in_take_ints(e, "ints", ints);
    stand_in_take_floats(e, "floats", floats);
    stand_in_take_bools(e, "bools", bools);
    stand_in_take_scalar(e, "scalar", scalar);
    stand_in_take_number(e, "dtype", dtype);
    stand_in_take_number(e, "b", b);
    stand_in_take_number(e, "c", c);
    stand_in_take_number(e, "d", d);
    stand_in_take_number(e, "f", (double)f);
    stand_in_take_number(e, "g", g);
    stand_in_take_number(e, "h", h);
    stand_in_take_number(e, "i", i);
    stand_in_take_number(e, "j", (double)j);
    stand_in_take_number(e, "k", (double)k);
    stand_in_take_number(e, "narrow", narrow);
    stand_in_take_tensor(e, "out", out, false);
    return stand_in_done(e, 64, size, executor);
}
LAUNCH(aclnnMixed)
#endif
