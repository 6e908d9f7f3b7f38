/* libdovetail_torchair: infers shapes and dtypes for GE (CANN's Graph Engine) from an operator's contract, by partial inference.
 * The functions of a dv_ge_node give what GE knows about a node, so this file needs no header of CANN. */
#include "python/dovetail_ge.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The state of one inference, with the memory to which the arguments point. */
typedef struct ge_inference {
    const dv_ge_package *package;
    const dv_ge_node *node;
    dv_operator *op;
    size_t nargs, nresults, next; /* next: the index of GE's output that is appended next */
    bool without_shapes;
    dv_value *args;
    dv_tensor *tensors;
    const dv_tensor **lists; /* the elements of lists of tensors: one pointer for each tensor of the node */
    int64_t *sizes;          /* the tensors' sizes: DV_MAX_NDIM for each tensor of the node */
    void **elements; /* by argument: the owned elements of an attribute that is a list, in Dovetail's types; NULL for others */
} ge_inference;

static pthread_mutex_t package_lock = PTHREAD_MUTEX_INITIALIZER;

/* Loads the binary with the package's operators, which lies beside the package's library, at the first call. Returns the status
 * of that first call each time. */
static int package_load_once(dv_ge_package *p)
{
    Dl_info at;
    char path[4096];
    pthread_mutex_lock(&package_lock);
    if (!p->library && !p->status) {
        const char *slash = dladdr(p->beside, &at) && at.dli_fname ? strrchr(at.dli_fname, '/') : NULL;
        const int folder = slash ? (int)(slash - at.dli_fname) + 1 : 0;
        if (snprintf(path, sizeof path, "%.*s%s", folder, folder ? at.dli_fname : "", p->binary) >= (int)sizeof path)
            p->status = DV_EINVAL;
        else
            p->status = dv_load(path, (dv_library **)&p->library);
        if (p->status == DV_EEXIST) /* the process has loaded these operators already */
            p->status = DV_OK;
    } else if (p->status) {
        (void)dv_fail(p->status, "%s: it could not be loaded", p->binary);
    }
    const int status = p->status;
    pthread_mutex_unlock(&package_lock);
    return status;
}

/* Returns Dovetail's dtype for GE's number of a type; bits 0: the package's table has no such type. */
static dv_dtype package_find_dtype(const dv_ge_package *p, int64_t number)
{
    const dv_dtype unknown = { 0 };
    for (const dv_ge_type *t = p->types; t->name; t++)
        if (t->number == number)
            return dv_dtype_named(t->name)->dtype;
    return unknown;
}

/* Returns GE's number of a dtype; -1: the package's table has no such type, or the dtype is unknown. */
static int32_t package_find_type_number(const dv_ge_package *p, dv_dtype dtype)
{
    const dv_dtype_row *row = dtype.bits ? dv_dtype_find(dtype) : NULL;
    for (const dv_ge_type *t = p->types; row && t->name; t++)
        if (!strcmp(t->name, row->name))
            return t->number;
    return -1;
}

/* True if GE's prototype has an argument of this type as an attribute. python/source.py decides in the same way. */
static bool type_is_attribute(uint32_t type)
{
    switch (type) {
    case DV_FIELD_INT:
    case DV_FIELD_FLOAT:
    case DV_FIELD_SCALAR:
    case DV_FIELD_BOOL:
    case DV_FIELD_STRING:
    case DV_FIELD_DTYPE:
    case DV_FIELD_INTS:
    case DV_FIELD_FLOATS:
    case DV_FIELD_SCALARS:
    case DV_FIELD_BOOLS:
    case DV_FIELD_STRINGS:
    case DV_FIELD_DTYPES: return true;
    default: return false;
    }
}

/* True if GE's prototype has an argument of this type as an input. */
static bool type_is_input(uint32_t type) { return type == DV_FIELD_TENSOR || type == DV_FIELD_TENSORS; }

/* Returns the double with the fewest digits that rounds to this float: 0.1 for 0.100000001490116. GE stores attributes as floats.
 */
static double float_to_shortest_double(double rounded)
{
    char text[32];
    for (int digits = 6; digits < 9; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, rounded);
        if (strtof(text, NULL) == (float)rounded)
            return strtod(text, NULL);
    }
    return rounded;
}

/* True if an optional attribute with this value stands for None: 0, false, "" or an empty list. Every attribute of GE has a value
 * (python/source.py: _absent). */
static bool value_may_stand_for_none(const dv_value *v)
{
    switch (v->type) {
    case DV_VALUE_INT: return v->as.i == 0;
    case DV_VALUE_FLOAT: return v->as.f == 0;
    case DV_VALUE_BOOL: return !v->as.b;
    case DV_VALUE_STRING: return !v->as.s.size;
    case DV_VALUE_DTYPE: return !v->as.dtype.bits;
    default: return !v->as.ints.size; /* all list types of dv_value have their size in the same position */
    }
}

/* Converts the element of GE's list that begins at `bytes`. Returns the element's number of bytes in GE's list; 0: Dovetail has
 * no such value. */
static size_t list_convert_element_and_get_size(const ge_inference *a, uint32_t type, const char *bytes, void *element_out)
{
    float f;
    int32_t number;
    switch (type) {
    case DV_FIELD_INTS: return memcpy(element_out, bytes, sizeof(int64_t)), sizeof(int64_t);
    case DV_FIELD_BOOLS: return *(bool *)element_out = *bytes != 0, 1;
    case DV_FIELD_STRINGS: return *(dv_string *)element_out = (dv_string){ bytes, strlen(bytes) }, strlen(bytes) + 1;
    case DV_FIELD_DTYPES:
        memcpy(&number, bytes, sizeof number);
        *(dv_dtype *)element_out = package_find_dtype(a->package, number);
        return ((dv_dtype *)element_out)->bits ? sizeof number : 0;
    default:
        memcpy(&f, bytes, sizeof f);
        if (type == DV_FIELD_FLOATS)
            *(double *)element_out = float_to_shortest_double((double)f);
        else
            *(dv_scalar *)element_out = (dv_scalar){ .kind = DV_SCALAR_FLOAT, .as.f = float_to_shortest_double((double)f) };
        return sizeof f;
    }
}

/* Converts an attribute that is a list to *out, which stays as it is if GE does not know the attribute or it stands for None.
 * *list_memory receives the elements. Returns false if memory is out. */
static bool inference_try_read_list(
    const ge_inference *a, size_t attribute_index, const dv_slot_info *slot, void **list_memory, dv_value *out)
{
    const dv_field_row *row = dv_field_at(slot->type);
    const size_t size = dv_field_at(row->of)->size;
    size_t n, used = 0;
    const char *from = a->node->list(a->node->context, attribute_index, &n);
    char *to = *list_memory = from ? calloc(n + 1, size) : NULL;
    if (!from || !to)
        return !from;
    for (size_t i = 0, next = 1; i < n && next; i++, used += next)
        if (!(next = list_convert_element_and_get_size(a, slot->type, from + used, to + i * size)))
            return true;
    if (n || !(slot->flags & DV_SLOT_OPTIONAL))
        out->type = row->value, out->as.ints = (dv_ints){ *list_memory, n };
    return true;
}

/* True if the type is a list. */
static bool type_is_list(uint32_t type) { return dv_field_at(type)->form == DV_FORM_LIST; }

/* Converts an attribute that is not a list to *out, which stays as it is if GE does not know the attribute, or if it stands for
 * None. */
static void inference_read_attribute(const ge_inference *a, size_t attribute_index, const dv_slot_info *slot, dv_value *out)
{
    dv_value v = dv_none();
    if (!a->node->attribute(a->node->context, attribute_index, slot->type, &v))
        return;
    if (slot->type == DV_FIELD_DTYPE) {
        const dv_dtype dtype = package_find_dtype(a->package, v.as.i);
        v.type = DV_VALUE_DTYPE;
        v.as.dtype = dtype;
        if (!dtype.bits)
            return;
    } else if (v.type == DV_VALUE_FLOAT) {
        v.as.f = float_to_shortest_double(v.as.f);
    }
    if (!(slot->flags & DV_SLOT_OPTIONAL) || !value_may_stand_for_none(&v))
        *out = v;
}

/* Describes one tensor of an input in a->tensors[tensor_index]; element: the index in an input that is a list. */
static void inference_read_tensor(ge_inference *a, size_t input, size_t element, size_t tensor_index)
{
    int32_t number, ndim;
    int64_t *sizes = a->sizes + tensor_index * DV_MAX_NDIM;
    a->node->tensor(a->node->context, input, element, &number, &ndim, sizes);
    for (int32_t i = 0; i < ndim; i++)
        sizes[i] = sizes[i] < 0 ? -1 : sizes[i];
    if (ndim == DV_GE_WITHOUT_SHAPES)
        a->without_shapes = true, ndim = -1;
    a->tensors[tensor_index] = (dv_tensor){ .ndim = ndim, .dtype = package_find_dtype(a->package, number), .shape = sizes };
    a->lists[tensor_index] = &a->tensors[tensor_index];
}

/* Sets all arguments of the operator from the node's inputs and attributes; others are unknown or have their defaults. Returns a
 * status. */
static int inference_read_arguments(ge_inference *a)
{
    size_t input = 0, attribute = 0, at = 0;
    for (size_t i = 0; i < a->nargs; i++) {
        dv_slot_info slot;
        const int status = dv_operator_slot(a->op, i, &slot);
        if (status)
            return status;
        dv_value *v = &a->args[i];
        *v = dv_none();
        if (type_is_input(slot.type)) {
            const size_t n = a->node->count(a->node->context, input);
            if (slot.type == DV_FIELD_TENSOR && n > 1)
                return dv_fail(
                    DV_EINVAL, "%s: argument '%s': expected one tensor, found %zu", dv_operator_name(a->op), slot.name, n);
            for (size_t k = 0; k < n; k++)
                inference_read_tensor(a, input, k, at + k);
            if (slot.type == DV_FIELD_TENSORS)
                v->type = DV_VALUE_TENSORS, v->as.tensors = (dv_tensors){ a->lists + at, n };
            else if (n)
                *v = dv_from_tensor(&a->tensors[at]);
            at += n;
            input++;
        } else if (type_is_attribute(slot.type)) {
            v->type = DV_VALUE_UNKNOWN;
            if (!type_is_list(slot.type))
                inference_read_attribute(a, attribute++, &slot, v);
            else if (!inference_try_read_list(a, attribute++, &slot, &a->elements[i], v))
                return dv_fail(DV_ENOMEM, "out of memory");
        } else {
            v->type = slot.default_text ? DV_VALUE_DEFAULT : DV_VALUE_UNKNOWN;
        }
    }
    return DV_OK;
}

/* Sets GE's next output to a dtype and a shape. ndim -1 and sizes of -1 are unknown. Returns a status. */
static int inference_append_output(ge_inference *a, dv_dtype dtype, int32_t ndim, const int64_t *sizes)
{
    if (!a->node->output(a->node->context, a->next, package_find_type_number(a->package, dtype), ndim, sizes))
        return dv_fail(DV_EINVAL, "%s: GE refuses output %zu, of %d dims", dv_operator_name(a->op), a->next, (int)ndim);
    a->next++;
    return DV_OK;
}

/* True if the range has one value, so that the number is known. */
static bool range_is_exact(const dv_range *r) { return r->least == r->most; }

/* Sets GE's next output to what is known about a tensor. An unknown rank or size is passed as -1, and so is a size that is only
 * an upper bound. Returns a status. */
static int inference_append_known_output(ge_inference *a, const dv_partial_spec *spec)
{
    int64_t sizes[DV_MAX_NDIM];
    const int32_t ndim = range_is_exact(&spec->value) ? (int32_t)spec->value.least : -1;
    for (int32_t i = 0; i < ndim; i++)
        sizes[i] = range_is_exact(&spec->sizes[i]) && !(spec->flags & DV_SPEC_UNBACKED) ? spec->sizes[i].least : -1;
    return inference_append_output(a, spec->dtype, ndim, sizes);
}

/* Sets an output for each written argument: the argument's new value, which GE's prototype names like the input. Returns a
 * status. */
static int inference_append_written_arguments(ge_inference *a, const dv_partial *p)
{
    int status = DV_OK;
    for (size_t i = 0; i < a->nargs && !status; i++) {
        dv_slot_info slot;
        dv_partial_spec argument;
        status = dv_operator_slot(a->op, i, &slot);
        if (!status && (slot.flags & DV_SLOT_WRITES) && a->args[i].type == DV_VALUE_TENSOR &&
            !(status = dv_partial_get(p, DV_PARTIAL_ARGUMENT, i, 0, &argument)))
            status = inference_append_known_output(a, &argument);
    }
    return status;
}

/* Returns how many of the node's outputs are left for this result, if each present result after it has one output. */
static size_t inference_count_outputs_left(const ge_inference *a, const dv_partial *p, size_t result)
{
    const size_t total = a->node->noutputs(a->node->context);
    size_t assigned = a->next;
    for (size_t r = result + 1; r < a->nresults; r++) {
        dv_slot_info slot;
        dv_partial_spec k;
        assigned += !dv_operator_slot(a->op, a->nargs + r, &slot) && !(slot.flags & DV_SLOT_WRITES) &&
            !dv_partial_get(p, DV_PARTIAL_RESULT, r, 0, &k) && k.present.most;
    }
    return total > assigned ? total - assigned : 0;
}

/* Sets an output for each tensor of a result that is a list. Returns a status. */
static int inference_append_list_result(ge_inference *a, const dv_partial *p, size_t result, const dv_partial_spec *list)
{
    const size_t n = range_is_exact(&list->value) ? (size_t)list->value.least : inference_count_outputs_left(a, p, result);
    int status = DV_OK;
    for (size_t k = 0; k < n && !status; k++) {
        dv_partial_spec element;
        status = dv_partial_get(p, DV_PARTIAL_ELEMENT, result, k, &element);
        if (!status)
            status = inference_append_known_output(a, &element);
    }
    return status;
}

/* Assumes that each tensor has at least one dim, unless no call would be possible then. GE asks for dtypes without shapes, but a
 * promoted dtype depends on which inputs have no dims, since in torch a 0-d tensor counts less. */
static void inference_assume_dims(const ge_inference *a, dv_partial *p)
{
    dv_partial_spec k = dv_partial_spec_unknown();
    k.value.least = 1;
    for (size_t i = 0; i < a->nargs; i++)
        if (a->args[i].type == DV_VALUE_TENSOR)
            (void)dv_partial_set(p, DV_PARTIAL_ARGUMENT, i, 0, &k);
        else if (a->args[i].type == DV_VALUE_TENSORS)
            for (size_t e = 0; e < a->args[i].as.tensors.size; e++)
                (void)dv_partial_set(p, DV_PARTIAL_ARGUMENT, i, e, &k);
    dv_clear_error();
}

/* Sets all outputs of the node, and fails if the node has another number of outputs. Returns a status. */
static int inference_append_results(ge_inference *a, const dv_partial *p)
{
    int status = inference_append_written_arguments(a, p);
    for (size_t r = 0; r < a->nresults && !status; r++) {
        dv_slot_info slot;
        dv_partial_spec result;
        status = dv_operator_slot(a->op, a->nargs + r, &slot);
        if (status || (slot.flags & DV_SLOT_WRITES))
            continue;
        status = dv_partial_get(p, DV_PARTIAL_RESULT, r, 0, &result);
        if (!status && slot.type == DV_FIELD_TENSORS)
            status = inference_append_list_result(a, p, r, &result);
        else if (!status &&
            (range_is_exact(&result.present) ? result.present.least == 1 : inference_count_outputs_left(a, p, r) != 0))
            status = inference_append_known_output(a, &result);
    }
    const size_t expected = a->node->noutputs(a->node->context);
    if (!status && a->next != expected)
        status = dv_fail(DV_EINVAL, "%s: the node has %zu outputs, expected %zu", dv_operator_name(a->op), expected, a->next);
    return status;
}

/* Allocates the arrays of an inference for all tensors of the node. Returns a status. */
static int inference_allocate(ge_inference *a)
{
    size_t input = 0, n = 1;
    for (size_t i = 0; i < a->nargs; i++) {
        dv_slot_info slot;
        const int status = dv_operator_slot(a->op, i, &slot);
        if (status)
            return status;
        if (type_is_input(slot.type))
            n += a->node->count(a->node->context, input++);
    }
    a->args = calloc(a->nargs + 1, sizeof *a->args);
    a->tensors = calloc(n, sizeof *a->tensors);
    a->lists = calloc(n, sizeof *a->lists);
    a->sizes = calloc(n, DV_MAX_NDIM * sizeof *a->sizes);
    a->elements = calloc(a->nargs + 1, sizeof *a->elements);
    return a->args && a->tensors && a->lists && a->sizes && a->elements ? DV_OK : dv_fail(DV_ENOMEM, "out of memory");
}

int dv_ge_infer(dv_ge_package *package, const char *op_name, const dv_ge_node *node)
{
    ge_inference a = { .package = package, .node = node };
    dv_partial *p = NULL;
    int status = package_load_once(package);
    if (!status)
        status = dv_find(op_name, &a.op);
    if (status)
        return status;
    a.nargs = dv_operator_nargs(a.op);
    a.nresults = dv_operator_nresults(a.op);
    status = inference_allocate(&a);
    if (!status)
        status = inference_read_arguments(&a);
    if (!status)
        status = dv_partial_new(a.op, a.args, a.nargs, &p);
    if (!status && a.without_shapes)
        inference_assume_dims(&a, p);
    if (!status)
        status = inference_append_results(&a, p);
    dv_partial_free(p);
    free(a.args);
    free(a.tensors);
    free((void *)a.lists);
    free(a.sizes);
    for (size_t i = 0; a.elements && i < a.nargs; i++)
        free(a.elements[i]);
    free(a.elements);
    dv_operator_unref(a.op);
    return status;
}
