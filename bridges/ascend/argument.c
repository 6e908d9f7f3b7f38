/* Values of a call to what an aclnn function or a launcher of an AscendC kernel takes. */
#include <stdlib.h>
#include <string.h>

#include "ascend.h"

/* What is being converted, for messages. */
typedef struct place {
    const dv_ascend_framework *f;
    const dv_running *call;
    const dv_row_item *parameter;
    dv__objects *objects;
    bool launcher; /* a tensor is the address of its first element, in the place of an aclTensor */
} place;

#define FAIL(p, status, ...) (dv_fail(status, __VA_ARGS__), fail_in(p, status))

/* Put the argument's name before the message that is set. */
static int fail_in(const place *p, int status)
{
    char what[1024];
    strncpy(what, dv_last_error(), sizeof what - 1);
    what[sizeof what - 1] = 0;
    return dv_fail(status, "%s '%s': %s", p->parameter->slot >= (int)dv_operator_nargs(p->call->op) ? "result" : "argument",
        p->parameter->name, what);
}

void dv__objects_destroy(dv__objects *o)
{
    for (size_t i = 0; i < o->n; i++)
        o->all[i].destroy(o->all[i].p);
    o->n = 0;
}

#define CALL_DESTROYER(name) \
    static int32_t destroy_##name(const void *p) { return dv__acl.aclDestroy##name(p); }
CALL_DESTROYER(Tensor)
CALL_DESTROYER(TensorList)
CALL_DESTROYER(Scalar)
CALL_DESTROYER(ScalarList)
CALL_DESTROYER(IntArray)
CALL_DESTROYER(FloatArray)
CALL_DESTROYER(BoolArray)

static int32_t destroy_memory(const void *p)
{
    free((void *)(uintptr_t)p);
    return 0;
}

/* The object that was just made becomes a word and is destroyed with the others. */
static int put(const place *p, const char *maker, const void *made, int32_t (*destroy)(const void *), dv__word *word)
{
    if (!made)
        return FAIL(p, DV_EKERNEL, "%s failed: %s", maker, dv__acl_message());
    p->objects->all[p->objects->n++] = (dv__object){ destroy, made };
    word->bits = (uint64_t)(uintptr_t)made;
    return DV_OK;
}

/* ---- Tensors ---- */

static int acl_dtype(dv_dtype dtype)
{
    switch (dv_dtype_key(dtype)) {
#define DTYPE(name, number) \
    case DV_DTYPE_##name: return number;
#include "dtypes.def"
#undef DTYPE
    default: return -1;
    }
}

/* torch_npu's rule: convolutions and the like read the format, all else ignores it. */
static int32_t format_of(int32_t ndim)
{
    switch (ndim) {
    case 3: return DV_ACL_FORMAT_NCL;
    case 4: return DV_ACL_FORMAT_NCHW;
    case 5: return DV_ACL_FORMAT_NCDHW;
    default: return DV_ACL_FORMAT_ND;
    }
}

/* Formats that are dense arrays in the order of the dims; others are an NPU's own tilings. */
static bool is_plain(int32_t format)
{
    return format == -1 || format == DV_ACL_FORMAT_ND || format == DV_ACL_FORMAT_NCHW || format == DV_ACL_FORMAT_NCL ||
        format == DV_ACL_FORMAT_NCDHW;
}

static int check_tensor(const place *p, const dv_tensor *t, const dv_tensor *original)
{
    int32_t format = DV_ACL_FORMAT_ND;
    if (t->device.type != DV_NPU)
        return FAIL(p, DV_EDEVICE, "expected a tensor on npu, found one on %s: the kernel cannot read it",
            dv_device_name(t->device.type));
    if (!p->launcher && acl_dtype(t->dtype) < 0)
        return FAIL(p, DV_EDTYPE, "aclnn has no element type %s", dv_dtype_name(t->dtype));
    if (t != original) /* a stand-in, made without a format */
        return DV_OK;
    const int status = DV__FRAMEWORK(p->f, format)(p->f, p->call->host, t, &format);
    if (status)
        return fail_in(p, status);
    if (!is_plain(format))
        return FAIL(p, DV_ENOTSUP,
            "expected memory in the order of the dims, found the private format %d (29 is FRACTAL_NZ): convert the tensor to ND "
            "first "
            "(torch_npu.npu_format_cast(x, 2))",
            format);
    return DV_OK;
}

/* data is the first element: the storage begins there, and ends where the last element does. */
static const struct aclTensor *make_tensor(const dv_tensor *t)
{
    int64_t storage = 1;
    for (int32_t i = 0; i < t->ndim; i++)
        storage = t->shape[i] ? storage + (t->shape[i] - 1) * t->strides[i] : storage;
    for (int32_t i = 0; i < t->ndim; i++)
        storage = t->shape[i] ? storage : 0;
    return dv__acl.aclCreateTensor(
        t->shape, (uint64_t)t->ndim, acl_dtype(t->dtype), t->strides, 0, format_of(t->ndim), &storage, 1, t->data);
}

static int pass_tensor(const place *p, dv__word *word)
{
    const size_t slot = (size_t)p->parameter->slot;
    const dv_tensor *t = p->call->tensors[slot];
    if (!t)
        return DV_OK; /* None: a null pointer */
    const int status = check_tensor(p, t, p->call->args[slot].as.tensor);
    if (p->launcher) {
        word->bits = (uint64_t)(uintptr_t)t->data;
        return status;
    }
    return status ? status : put(p, "aclCreateTensor", make_tensor(t), destroy_Tensor, word);
}

/* A list owns its tensors once it is made. original: the list as the call's host gave it. */
static int make_list(const place *p, dv_tensors list, dv_tensors original, const struct aclTensor **made, dv__word *word)
{
    int status = DV_OK;
    size_t n = 0;
    for (; n < list.size && !status; n++) {
        if (!list.data[n])
            status = FAIL(p, DV_ENOTSUP, "element %zu is None, and an aclTensorList has no such elements", n);
        else if (!(status = check_tensor(p, list.data[n], original.data[n])) && !(made[n] = make_tensor(list.data[n])))
            status = FAIL(p, DV_EKERNEL, "element %zu: aclCreateTensor failed: %s", n, dv__acl_message());
        if (status)
            break;
    }
    if (!status)
        status = put(p, "aclCreateTensorList", dv__acl.aclCreateTensorList(made, n), destroy_TensorList, word);
    while (status && n)
        dv__acl.aclDestroyTensor(made[--n]);
    return status;
}

static int pass_tensors(const place *p, dv__word *word)
{
    const size_t slot = (size_t)p->parameter->slot;
    const dv_tensors list = p->call->lists[slot], original = p->call->args[slot].as.tensors;
    if (p->call->args[slot].type == DV_VALUE_NONE)
        return DV_OK;
    const struct aclTensor **made = calloc(list.size + 1, sizeof *made);
    if (!made)
        return FAIL(p, DV_ENOMEM, "out of memory");
    const int status = make_list(p, list, original, made, word);
    free(made);
    return status;
}

/* ---- Numbers, lists of numbers, texts ---- */

static double as_double(const dv_value *v)
{
    return v->type == DV_VALUE_INT ? (double)v->as.i : v->type == DV_VALUE_BOOL ? (double)v->as.b : v->as.f;
}

static const struct aclScalar *make_scalar(uint32_t type, const void *value)
{
    union {
        int64_t i;
        double f;
        bool b;
        dv_complex c;
    } copy; /* CANN takes a pointer that is not const */
    size_t size = sizeof copy.c;
    int32_t dtype = DV_ACL_c128;
    switch (type) {
    case DV_VALUE_INT: size = sizeof copy.i, dtype = DV_ACL_i64; break;
    case DV_VALUE_FLOAT: size = sizeof copy.f, dtype = DV_ACL_f64; break;
    case DV_VALUE_BOOL: size = sizeof copy.b, dtype = DV_ACL_bool; break;
    default: break;
    }
    memcpy(&copy, value, size);
    return dv__acl.aclCreateScalar(&copy, dtype);
}

static int pass_scalars(const place *p, dv_scalars list, dv__word *word)
{
    static const uint32_t types[] = { 0, DV_VALUE_INT, DV_VALUE_FLOAT, DV_VALUE_BOOL, DV_VALUE_COMPLEX };
    if (!dv__acl.aclCreateScalarList || !dv__acl.aclDestroyScalarList)
        return FAIL(p, DV_ENOTSUP, "this CANN has no aclScalarList");
    const struct aclScalar **made = calloc(list.size + 1, sizeof *made);
    int status = made ? DV_OK : FAIL(p, DV_ENOMEM, "out of memory");
    size_t n = 0;
    for (; !status && n < list.size; n++)
        if (!(made[n] = make_scalar(types[list.data[n].kind], &list.data[n].as))) {
            status = FAIL(p, DV_EKERNEL, "element %zu: aclCreateScalar failed: %s", n, dv__acl_message());
            break;
        }
    if (!status)
        status = put(p, "aclCreateScalarList", dv__acl.aclCreateScalarList(made, n), destroy_ScalarList, word);
    while (status && n)
        dv__acl.aclDestroyScalar(made[--n]);
    free(made);
    return status;
}

/* aclFloatArray has elements of 32 bits. */
static int pass_floats(const place *p, dv_floats list, dv__word *word)
{
    float *narrow = calloc(list.size + 1, sizeof *narrow);
    if (!narrow)
        return FAIL(p, DV_ENOMEM, "out of memory");
    for (size_t i = 0; i < list.size; i++)
        narrow[i] = (float)list.data[i];
    const int status = put(p, "aclCreateFloatArray", dv__acl.aclCreateFloatArray(narrow, list.size), destroy_FloatArray, word);
    free(narrow);
    return status;
}

/* A copy that lives as long as the call's other objects, which may be longer than the caller's text. */
static int pass_text(const place *p, dv_string s, dv__word *word)
{
    char *copy = malloc(s.size + 1);
    if (copy) {
        memcpy(copy, s.data, s.size);
        copy[s.size] = 0;
    }
    return put(p, "malloc", copy, destroy_memory, word);
}

static int pass_dtype(const place *p, dv_dtype dtype, dv__word *word)
{
    const int number = acl_dtype(dtype);
    word->bits = (uint64_t)number;
    return number < 0 ? FAIL(p, DV_EDTYPE, "aclnn has no element type %s", dv_dtype_name(dtype)) : DV_OK;
}

static int pass_number(const place *p, const dv_value *v, dv__word *word)
{
    const uint32_t type = p->parameter->type;
    const double d = v->type == DV_VALUE_COMPLEX ? 0 : as_double(v);
    const float f = (float)d;
    word->fp = type == DV_FIELD_FLOAT;
    if (v->type == DV_VALUE_COMPLEX || (type == DV_FIELD_INT && v->type == DV_VALUE_FLOAT))
        return FAIL(p, DV_ETYPE, "expected %s for this parameter", type == DV_FIELD_INT ? "an integer" : "a real number");
    if (word->fp && p->parameter->narrow)
        memcpy(&word->bits, &f, sizeof f); /* the low half: both processors are little-endian */
    else if (word->fp)
        memcpy(&word->bits, &d, sizeof d);
    else
        word->bits = type == DV_FIELD_BOOL ? d != 0 : v->type == DV_VALUE_BOOL ? v->as.b : (uint64_t)v->as.i;
    return DV_OK;
}

static int pass_value(const place *p, const dv_value *v, dv__word *word)
{
    switch (p->parameter->type) {
    case DV_FIELD_SCALAR: return put(p, "aclCreateScalar", make_scalar(v->type, &v->as), destroy_Scalar, word);
    case DV_FIELD_SCALARS: return pass_scalars(p, v->as.scalars, word);
    case DV_FIELD_INTS:
        return put(p, "aclCreateIntArray", dv__acl.aclCreateIntArray(v->as.ints.data, v->as.ints.size), destroy_IntArray, word);
    case DV_FIELD_FLOATS: return pass_floats(p, v->as.floats, word);
    case DV_FIELD_BOOLS:
        return put(
            p, "aclCreateBoolArray", dv__acl.aclCreateBoolArray(v->as.bools.data, v->as.bools.size), destroy_BoolArray, word);
    case DV_FIELD_STRING: return pass_text(p, v->as.s, word);
    case DV_FIELD_DTYPE: return pass_dtype(p, v->as.dtype, word);
    default: return pass_number(p, v, word);
    }
}

static bool is_word(uint32_t type)
{
    return type == DV_FIELD_INT || type == DV_FIELD_FLOAT || type == DV_FIELD_BOOL || type == DV_FIELD_DTYPE;
}

static int pass(const place *p, dv__word *word)
{
    const dv_row_item *a = p->parameter;
    *word = (dv__word){ 0, false };
    if (a->type == DV_FIELD_TENSOR)
        return pass_tensor(p, word);
    if (a->type == DV_FIELD_TENSORS)
        return pass_tensors(p, word);
    if (!a->type)
        return DV_OK;
    const dv_value *v = a->slot < 0 ? &a->constant : &p->call->args[a->slot];
    if (v->type == DV_VALUE_NONE)
        v = &a->constant;
    if (v->type != DV_VALUE_NONE && v->type != DV_VALUE_DEFAULT)
        return pass_value(p, v, word);
    if (is_word(a->type))
        return FAIL(p, DV_ENOTSUP,
            "it is None, and this parameter is a number: write '%s or %s', with the right constant, in the row's list", a->name,
            a->type == DV_FIELD_DTYPE                          ? "f32"
                : p->launcher && a == &p->call->list->items[0] ? "8"
                                                               : "0");
    return DV_OK;
}

int dv__aclnn_arguments(const dv_ascend_framework *f, const dv_running *call, dv__word *words, dv__objects *objects)
{
    place p = { f, call, NULL, objects, false };
    int status = DV_OK;
    for (size_t i = 0; i < call->list->n && !status; i++) {
        p.parameter = &call->list->items[i];
        status = pass(&p, &words[i]);
    }
    return status;
}

int dv__launcher_arguments(
    const dv_ascend_framework *f, const dv_running *call, void *stream, dv__word *words, dv__objects *objects)
{
    place p = { f, call, NULL, objects, true };
    int status = DV_OK;
    for (size_t i = 0; i < call->list->n && !status; i++) {
        dv__word *word = &words[i ? i + 2 : 0];
        p.parameter = &call->list->items[i];
        if (!(status = pass(&p, word)) && !i && (!word->bits || word->bits > UINT32_MAX))
            status = FAIL(
                &p, DV_EINVAL, "blockDim: expected an integer from 1 to %u, found %lld", UINT32_MAX, (long long)word->bits);
    }
    words[1] = (dv__word){ 0, false };
    words[2] = (dv__word){ (uint64_t)(uintptr_t)stream, false };
    return status;
}
