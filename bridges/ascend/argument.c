/* Converts a call's values to the parameters of an aclnn function or of a launcher of an AscendC kernel. */
#include <stdlib.h>
#include <string.h>

#include "ascend.h"

/* The parameter that is being converted, and where its objects are stored. */
typedef struct conversion {
    const dv_ascend_framework *f;
    const dv_running_call *call;
    const dv_foreign_arg *parameter;
    dv__acl_objects *objects;
    bool launcher; /* true for a launcher, which gets the address of a tensor's first element in place of an aclTensor */
} conversion;

#define ARGUMENT_FAIL(p, status, ...) (dv_fail(status, __VA_ARGS__), argument_fail_with_name(p, status))

/* Puts the argument's or result's name before the error message that is set. Returns status. */
static int argument_fail_with_name(const conversion *p, int status)
{
    char what[1024];
    strncpy(what, dv_last_error(), sizeof what - 1);
    what[sizeof what - 1] = 0;
    return dv_fail(status, "%s '%s': %s", p->parameter->slot >= (int)dv_operator_nargs(p->call->op) ? "result" : "argument",
        p->parameter->name, what);
}

void dv__acl_objects_destroy(dv__acl_objects *o)
{
    for (size_t i = 0; i < o->n; i++)
        o->entries[i].destroy(o->entries[i].p);
    o->n = 0;
}

#define DEFINE_DESTROYER(name) \
    static int32_t destroy_##name(const void *p) { return dv__acl.aclDestroy##name(p); }
DEFINE_DESTROYER(Tensor)
DEFINE_DESTROYER(TensorList)
DEFINE_DESTROYER(Scalar)
DEFINE_DESTROYER(ScalarList)
DEFINE_DESTROYER(IntArray)
DEFINE_DESTROYER(FloatArray)
DEFINE_DESTROYER(BoolArray)

static int32_t destroy_memory(const void *p)
{
    free((void *)(uintptr_t)p);
    return 0;
}

/* Stores a newly made object as a word, and adds it to those that are destroyed with the call. made NULL: fails with the maker's
 * name. Returns a status. */
static int argument_store_object(
    const conversion *p, const char *maker_name, const void *made, int32_t (*destroy)(const void *), dv__argument_word *word)
{
    if (!made)
        return ARGUMENT_FAIL(p, DV_EKERNEL, "%s failed: %s", maker_name, dv__acl_get_last_message());
    p->objects->entries[p->objects->n++] = (dv__acl_object){ destroy, made };
    word->bits = (uint64_t)(uintptr_t)made;
    return DV_OK;
}

/* ---- Tensors ---- */

/* Returns CANN's number of an element type; -1: CANN has no such type. */
static int argument_get_acl_dtype_number(dv_dtype dtype)
{
    switch (dv_dtype_key(dtype)) {
#define DTYPE(name, number) \
    case DV_DTYPE_##name: return number;
#include "dtypes.def"
#undef DTYPE
    default: return -1;
    }
}

/* Returns the aclFormat of a tensor by its number of dims, as torch_npu does. Only convolutions and similar operators read the
 * format. */
static int32_t argument_choose_acl_format(int32_t ndim)
{
    switch (ndim) {
    case 3: return DV_ACL_FORMAT_NCL;
    case 4: return DV_ACL_FORMAT_NCHW;
    case 5: return DV_ACL_FORMAT_NCDHW;
    default: return DV_ACL_FORMAT_ND;
    }
}

/* True for a format of dense arrays in the order of the dims. All other formats are an NPU's private tilings. */
static bool argument_is_dense_format(int32_t format)
{
    return format == -1 || format == DV_ACL_FORMAT_ND || format == DV_ACL_FORMAT_NCHW || format == DV_ACL_FORMAT_NCL ||
        format == DV_ACL_FORMAT_NCDHW;
}

/* Checks that a kernel can read the tensor: on an NPU, with an element type and a memory format that CANN accepts. original: the
 * tensor as the call's host passed it. Returns a status. */
static int argument_check_tensor(const conversion *p, const dv_tensor *t, const dv_tensor *original)
{
    int32_t format = DV_ACL_FORMAT_ND;
    if (t->device.type != DV_NPU)
        return ARGUMENT_FAIL(p, DV_EDEVICE, "expected a tensor on npu, found one on %s: the kernel cannot read it",
            dv_device_name(t->device.type));
    if (!p->launcher && argument_get_acl_dtype_number(t->dtype) < 0)
        return ARGUMENT_FAIL(p, DV_EDTYPE, "aclnn has no element type %s", dv_dtype_name(t->dtype));
    if (t != original) /* a staging copy, which has no private format */
        return DV_OK;
    const int status = DV__FRAMEWORK_ENTRY(p->f, format)(p->f, p->call->host, t, &format);
    if (status)
        return argument_fail_with_name(p, status);
    if (!argument_is_dense_format(format))
        return ARGUMENT_FAIL(p, DV_ENOTSUP,
            "expected memory in the order of the dims, found the private format %d (29 is FRACTAL_NZ): convert the tensor to ND "
            "first "
            "(torch_npu.npu_format_cast(x, 2))",
            format);
    return DV_OK;
}

/* Returns a new aclTensor for a tensor; NULL: CANN has failed. Its storage begins at the first element and ends with the last. */
static const struct aclTensor *argument_new_acl_tensor(const dv_tensor *t)
{
    int64_t storage = 1;
    for (int32_t i = 0; i < t->ndim; i++)
        storage = t->shape[i] ? storage + (t->shape[i] - 1) * t->strides[i] : storage;
    for (int32_t i = 0; i < t->ndim; i++)
        storage = t->shape[i] ? storage : 0;
    return dv__acl.aclCreateTensor(t->shape, (uint64_t)t->ndim, argument_get_acl_dtype_number(t->dtype), t->strides, 0,
        argument_choose_acl_format(t->ndim), &storage, 1, t->data);
}

/* Passes the tensor of the parameter's slot, as an aclTensor or for a launcher as an address. Returns a status. */
static int argument_pass_tensor(const conversion *p, dv__argument_word *word)
{
    const size_t slot = (size_t)p->parameter->slot;
    const dv_tensor *t = p->call->tensors[slot];
    if (!t)
        return DV_OK; /* None becomes a null pointer */
    const int status = argument_check_tensor(p, t, p->call->args[slot].as.tensor);
    if (p->launcher) {
        word->bits = (uint64_t)(uintptr_t)t->data;
        return status;
    }
    return status ? status : argument_store_object(p, "aclCreateTensor", argument_new_acl_tensor(t), destroy_Tensor, word);
}

/* Passes a list of tensors as an aclTensorList, which owns its aclTensors once it is made. original: the tensors as the call's
 * host passed them. made: memory for list.size pointers. Returns a status. */
static int argument_pass_tensor_list(
    const conversion *p, dv_tensors list, dv_tensors original, const struct aclTensor **made, dv__argument_word *word)
{
    int status = DV_OK;
    size_t n = 0;
    for (; n < list.size && !status; n++) {
        if (!list.data[n])
            status = ARGUMENT_FAIL(p, DV_ENOTSUP, "element %zu is None, and an aclTensorList has no such elements", n);
        else if (!(status = argument_check_tensor(p, list.data[n], original.data[n])) &&
            !(made[n] = argument_new_acl_tensor(list.data[n])))
            status = ARGUMENT_FAIL(p, DV_EKERNEL, "element %zu: aclCreateTensor failed: %s", n, dv__acl_get_last_message());
        if (status)
            break;
    }
    if (!status)
        status = argument_store_object(p, "aclCreateTensorList", dv__acl.aclCreateTensorList(made, n), destroy_TensorList, word);
    while (status && n)
        dv__acl.aclDestroyTensor(made[--n]);
    return status;
}

/* Passes the list of tensors of the parameter's slot as an aclTensorList, which is stored for the launch. None: leaves *word,
 * which is NULL. Returns a status. */
static int argument_pass_tensor_list_of_slot(const conversion *p, dv__argument_word *word)
{
    const size_t slot = (size_t)p->parameter->slot;
    const dv_tensors list = p->call->lists[slot], original = p->call->args[slot].as.tensors;
    if (p->call->args[slot].type == DV_VALUE_NONE)
        return DV_OK;
    const struct aclTensor **made = calloc(list.size + 1, sizeof *made);
    if (!made)
        return ARGUMENT_FAIL(p, DV_ENOMEM, "out of memory");
    const int status = argument_pass_tensor_list(p, list, original, made, word);
    free(made);
    return status;
}

/* ---- Numbers, lists of numbers, texts ---- */

/* Returns an int, bool or float value as a double. */
static double argument_value_as_double(const dv_value *v)
{
    return v->type == DV_VALUE_INT ? (double)v->as.i : v->type == DV_VALUE_BOOL ? (double)v->as.b : v->as.f;
}

/* Returns a new aclScalar for a number; type: enum dv_value_type. NULL: CANN has failed. */
static const struct aclScalar *argument_new_acl_scalar(uint32_t type, const void *value)
{
    union {
        int64_t i;
        double f;
        bool b;
        dv_complex c;
    } copy; /* a copy, since CANN's parameter is not const */
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

/* Passes a list of Scalars as an aclScalarList. Returns a status. */
static int argument_pass_scalars(const conversion *p, dv_scalars list, dv__argument_word *word)
{
    static const uint32_t types[] = { 0, DV_VALUE_INT, DV_VALUE_FLOAT, DV_VALUE_BOOL, DV_VALUE_COMPLEX };
    if (!dv__acl.aclCreateScalarList || !dv__acl.aclDestroyScalarList)
        return ARGUMENT_FAIL(p, DV_ENOTSUP, "this CANN has no aclScalarList");
    const struct aclScalar **made = calloc(list.size + 1, sizeof *made);
    int status = made ? DV_OK : ARGUMENT_FAIL(p, DV_ENOMEM, "out of memory");
    size_t n = 0;
    for (; !status && n < list.size; n++)
        if (!(made[n] = argument_new_acl_scalar(types[list.data[n].kind], &list.data[n].as))) {
            status = ARGUMENT_FAIL(p, DV_EKERNEL, "element %zu: aclCreateScalar failed: %s", n, dv__acl_get_last_message());
            break;
        }
    if (!status)
        status = argument_store_object(p, "aclCreateScalarList", dv__acl.aclCreateScalarList(made, n), destroy_ScalarList, word);
    while (status && n)
        dv__acl.aclDestroyScalar(made[--n]);
    free(made);
    return status;
}

/* Passes a list of floats as an aclFloatArray, whose elements have 32 bits. Returns a status. */
static int argument_pass_floats(const conversion *p, dv_floats list, dv__argument_word *word)
{
    float *narrow = calloc(list.size + 1, sizeof *narrow);
    if (!narrow)
        return ARGUMENT_FAIL(p, DV_ENOMEM, "out of memory");
    for (size_t i = 0; i < list.size; i++)
        narrow[i] = (float)list.data[i];
    const int status = argument_store_object(
        p, "aclCreateFloatArray", dv__acl.aclCreateFloatArray(narrow, list.size), destroy_FloatArray, word);
    free(narrow);
    return status;
}

/* Passes a copy of a text, which lives as long as the call's objects; the caller's text may be freed earlier. Returns a status.
 */
static int argument_pass_text(const conversion *p, dv_string s, dv__argument_word *word)
{
    char *copy = malloc(s.size + 1);
    if (copy) {
        memcpy(copy, s.data, s.size);
        copy[s.size] = 0;
    }
    return argument_store_object(p, "malloc", copy, destroy_memory, word);
}

static int argument_pass_dtype(const conversion *p, dv_dtype dtype, dv__argument_word *word)
{
    const int number = argument_get_acl_dtype_number(dtype);
    word->bits = (uint64_t)number;
    return number < 0 ? ARGUMENT_FAIL(p, DV_EDTYPE, "aclnn has no element type %s", dv_dtype_name(dtype)) : DV_OK;
}

static int argument_pass_number(const conversion *p, const dv_value *v, dv__argument_word *word)
{
    const uint32_t type = p->parameter->type;
    const double d = v->type == DV_VALUE_COMPLEX ? 0 : argument_value_as_double(v);
    const float f = (float)d;
    word->is_floating = type == DV_FIELD_FLOAT;
    if (v->type == DV_VALUE_COMPLEX || (type == DV_FIELD_INT && v->type == DV_VALUE_FLOAT))
        return ARGUMENT_FAIL(
            p, DV_ETYPE, "expected %s for this parameter", type == DV_FIELD_INT ? "an integer" : "a real number");
    if (word->is_floating && p->parameter->narrow)
        memcpy(&word->bits, &f, sizeof f); /* a float is the low half of a word: both supported processors are little-endian */
    else if (word->is_floating)
        memcpy(&word->bits, &d, sizeof d);
    else
        word->bits = type == DV_FIELD_BOOL ? d != 0 : v->type == DV_VALUE_BOOL ? v->as.b : (uint64_t)v->as.i;
    return DV_OK;
}

static int argument_pass_value(const conversion *p, const dv_value *v, dv__argument_word *word)
{
    switch (p->parameter->type) {
    case DV_FIELD_SCALAR:
        return argument_store_object(p, "aclCreateScalar", argument_new_acl_scalar(v->type, &v->as), destroy_Scalar, word);
    case DV_FIELD_SCALARS: return argument_pass_scalars(p, v->as.scalars, word);
    case DV_FIELD_INTS:
        return argument_store_object(
            p, "aclCreateIntArray", dv__acl.aclCreateIntArray(v->as.ints.data, v->as.ints.size), destroy_IntArray, word);
    case DV_FIELD_FLOATS: return argument_pass_floats(p, v->as.floats, word);
    case DV_FIELD_BOOLS:
        return argument_store_object(
            p, "aclCreateBoolArray", dv__acl.aclCreateBoolArray(v->as.bools.data, v->as.bools.size), destroy_BoolArray, word);
    case DV_FIELD_STRING: return argument_pass_text(p, v->as.s, word);
    case DV_FIELD_DTYPE: return argument_pass_dtype(p, v->as.dtype, word);
    default: return argument_pass_number(p, v, word);
    }
}

/* True if a parameter of this type is passed as a number, so that it cannot be None. */
static bool argument_is_number_type(uint32_t type)
{
    return type == DV_FIELD_INT || type == DV_FIELD_FLOAT || type == DV_FIELD_BOOL || type == DV_FIELD_DTYPE;
}

/* Converts the value of one parameter of the kernel's list to *word. Returns a status. */
static int argument_pass_parameter(const conversion *p, dv__argument_word *word)
{
    const dv_foreign_arg *a = p->parameter;
    *word = (dv__argument_word){ 0, false };
    if (a->type == DV_FIELD_TENSOR)
        return argument_pass_tensor(p, word);
    if (a->type == DV_FIELD_TENSORS)
        return argument_pass_tensor_list_of_slot(p, word);
    if (!a->type)
        return DV_OK;
    const dv_value *v = a->slot < 0 ? &a->constant : &p->call->args[a->slot];
    if (v->type == DV_VALUE_NONE)
        v = &a->constant;
    if (v->type != DV_VALUE_NONE && v->type != DV_VALUE_DEFAULT)
        return argument_pass_value(p, v, word);
    if (argument_is_number_type(a->type))
        return ARGUMENT_FAIL(p, DV_ENOTSUP,
            "it is None, and this parameter is a number: write '%s or %s', with the right constant, in the kernel's list",
            a->name,
            a->type == DV_FIELD_DTYPE                          ? "f32"
                : p->launcher && a == &p->call->list->items[0] ? "8"
                                                               : "0");
    return DV_OK;
}

int dv__aclnn_fill_arguments(
    const dv_ascend_framework *f, const dv_running_call *call, dv__argument_word *words, dv__acl_objects *objects)
{
    conversion p = { f, call, NULL, objects, false };
    int status = DV_OK;
    for (size_t i = 0; i < call->list->n && !status; i++) {
        p.parameter = &call->list->items[i];
        status = argument_pass_parameter(&p, &words[i]);
    }
    return status;
}

int dv__launcher_fill_arguments(
    const dv_ascend_framework *f, const dv_running_call *call, void *stream, dv__argument_word *words, dv__acl_objects *objects)
{
    conversion p = { f, call, NULL, objects, true };
    int status = DV_OK;
    for (size_t i = 0; i < call->list->n && !status; i++) {
        dv__argument_word *word = &words[i ? i + 2 : 0];
        p.parameter = &call->list->items[i];
        if (!(status = argument_pass_parameter(&p, word)) && !i && (!word->bits || word->bits > UINT32_MAX))
            status = ARGUMENT_FAIL(
                &p, DV_EINVAL, "blockDim: expected an integer from 1 to %u, found %lld", UINT32_MAX, (long long)word->bits);
    }
    words[1] = (dv__argument_word){ 0, false };
    words[2] = (dv__argument_word){ (uint64_t)(uintptr_t)stream, false };
    return status;
}
