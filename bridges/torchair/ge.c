/* libdovetail_torchair: shapes and dtypes for GE, from an operator's contract by partial inference. What GE knows arrives by the
 * functions of a dv_ge_node, so this file needs nothing of CANN. */
#include "python/dovetail_ge.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What one inference borrows from, in one block. */
typedef struct inference {
    const dv_ge_package *package;
    const dv_ge_node *node;
    dv_operator *op;
    size_t nargs, nresults, next; /* next: the output that is filled in now */
    bool without_shapes;
    dv_value *args;
    dv_tensor *tensors;
    const dv_tensor **lists; /* one for each tensor */
    int64_t *sizes;          /* DV_MAX_NDIM for each tensor */
    void **elements;         /* of each argument that is a list, in Dovetail's types */
} inference;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* The package's operators are loaded by the first node that asks. */
static int load(dv_ge_package *p)
{
    Dl_info at;
    char path[4096];
    pthread_mutex_lock(&lock);
    if (!p->library && !p->status) {
        const char *slash = dladdr(p->beside, &at) && at.dli_fname ? strrchr(at.dli_fname, '/') : NULL;
        const int folder = slash ? (int)(slash - at.dli_fname) + 1 : 0;
        if (snprintf(path, sizeof path, "%.*s%s", folder, folder ? at.dli_fname : "", p->binary) >= (int)sizeof path)
            p->status = DV_EINVAL;
        else
            p->status = dv_load(path, (dv_library **)&p->library);
        if (p->status == DV_EEXIST) /* somebody else has loaded it */
            p->status = DV_OK;
    } else if (p->status) {
        (void)dv_fail(p->status, "%s: it could not be loaded", p->binary);
    }
    const int status = p->status;
    pthread_mutex_unlock(&lock);
    return status;
}

static dv_dtype dtype_of(const dv_ge_package *p, int64_t number)
{
    const dv_dtype unknown = { 0 };
    for (const dv_ge_type *t = p->types; t->name; t++)
        if (t->number == number)
            return dv_dtype_named(t->name)->dtype;
    return unknown;
}

static int32_t number_of(const dv_ge_package *p, dv_dtype dtype)
{
    const dv_dtype_row *row = dtype.bits ? dv_dtype_find(dtype) : NULL;
    for (const dv_ge_type *t = p->types; row && t->name; t++)
        if (!strcmp(t->name, row->name))
            return t->number;
    return -1;
}

/* Does the prototype have this argument as an attribute? As python/source.py decides. */
static bool is_attribute(uint32_t type)
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

static bool is_input(uint32_t type) { return type == DV_FIELD_TENSOR || type == DV_FIELD_TENSORS; }

/* The number with the fewest digits that GE rounded to this float: 0.1, where the float is 0.100000001490116. */
static double as_written(double f)
{
    char text[32];
    for (int digits = 6; digits < 9; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, f);
        if (strtof(text, NULL) == (float)f)
            return strtod(text, NULL);
    }
    return f;
}

/* GE has no attribute without a value: does this one stand for None? (python/source.py: _absent) */
static bool may_be_none(const dv_value *v)
{
    switch (v->type) {
    case DV_VALUE_INT: return v->as.i == 0;
    case DV_VALUE_FLOAT: return v->as.f == 0;
    case DV_VALUE_BOOL: return !v->as.b;
    case DV_VALUE_STRING: return !v->as.s.size;
    case DV_VALUE_DTYPE: return !v->as.dtype.bits;
    default: return !v->as.ints.size; /* every list has its size in this place */
    }
}

/* One element of GE's list to *to; how many bytes of GE's it had, or 0: it has no such value here. */
static size_t convert(const inference *a, uint32_t type, const char *from, void *to)
{
    float f;
    int32_t number;
    switch (type) {
    case DV_FIELD_INTS: return memcpy(to, from, sizeof(int64_t)), sizeof(int64_t);
    case DV_FIELD_BOOLS: return *(bool *)to = *from != 0, 1;
    case DV_FIELD_STRINGS: return *(dv_string *)to = (dv_string){ from, strlen(from) }, strlen(from) + 1;
    case DV_FIELD_DTYPES:
        memcpy(&number, from, sizeof number);
        *(dv_dtype *)to = dtype_of(a->package, number);
        return ((dv_dtype *)to)->bits ? sizeof number : 0;
    default:
        memcpy(&f, from, sizeof f);
        if (type == DV_FIELD_FLOATS)
            *(double *)to = as_written((double)f);
        else
            *(dv_scalar *)to = (dv_scalar){ .kind = DV_SCALAR_FLOAT, .as.f = as_written((double)f) };
        return sizeof f;
    }
}

/* False: there is no memory. */
static bool take_list(const inference *a, size_t index, const dv_slot_info *slot, void **kept, dv_value *out)
{
    const dv_field_row *row = dv_field_at(slot->type);
    const size_t size = dv_field_at(row->of)->size;
    size_t n, used = 0;
    const char *from = a->node->list(a->node->context, index, &n);
    char *to = *kept = from ? calloc(n + 1, size) : NULL;
    if (!from || !to)
        return !from;
    for (size_t i = 0, next = 1; i < n && next; i++, used += next)
        if (!(next = convert(a, slot->type, from + used, to + i * size)))
            return true;
    if (n || !(slot->flags & DV_SLOT_OPTIONAL))
        out->type = row->value, out->as.ints = (dv_ints){ *kept, n };
    return true;
}

static bool is_list(uint32_t type) { return dv_field_at(type)->form == DV_FORM_LIST; }

static void take_attribute(const inference *a, size_t index, const dv_slot_info *slot, dv_value *out)
{
    dv_value v = dv_none();
    if (!a->node->attribute(a->node->context, index, slot->type, &v))
        return;
    if (slot->type == DV_FIELD_DTYPE) {
        const dv_dtype dtype = dtype_of(a->package, v.as.i);
        v.type = DV_VALUE_DTYPE;
        v.as.dtype = dtype;
        if (!dtype.bits)
            return;
    } else if (v.type == DV_VALUE_FLOAT) {
        v.as.f = as_written(v.as.f);
    }
    if (!(slot->flags & DV_SLOT_OPTIONAL) || !may_be_none(&v))
        *out = v;
}

static void take_tensor(inference *a, size_t input, size_t k, size_t at)
{
    int32_t number, ndim;
    int64_t *sizes = a->sizes + at * DV_MAX_NDIM;
    a->node->tensor(a->node->context, input, k, &number, &ndim, sizes);
    for (int32_t i = 0; i < ndim; i++)
        sizes[i] = sizes[i] < 0 ? -1 : sizes[i];
    if (ndim == DV_GE_WITHOUT_SHAPES)
        a->without_shapes = true, ndim = -1;
    a->tensors[at] = (dv_tensor){ .ndim = ndim, .dtype = dtype_of(a->package, number), .shape = sizes };
    a->lists[at] = &a->tensors[at];
}

/* All arguments, in the order of the schema. */
static int take_arguments(inference *a)
{
    size_t input = 0, attribute = 0, at = 0;
    for (size_t i = 0; i < a->nargs; i++) {
        dv_slot_info slot;
        const int status = dv_operator_slot(a->op, i, &slot);
        if (status)
            return status;
        dv_value *v = &a->args[i];
        *v = dv_none();
        if (is_input(slot.type)) {
            const size_t n = a->node->count(a->node->context, input);
            if (slot.type == DV_FIELD_TENSOR && n > 1)
                return dv_fail(
                    DV_EINVAL, "%s: argument '%s': expected one tensor, found %zu", dv_operator_name(a->op), slot.name, n);
            for (size_t k = 0; k < n; k++)
                take_tensor(a, input, k, at + k);
            if (slot.type == DV_FIELD_TENSORS)
                v->type = DV_VALUE_TENSORS, v->as.tensors = (dv_tensors){ a->lists + at, n };
            else if (n)
                *v = dv_from_tensor(&a->tensors[at]);
            at += n;
            input++;
        } else if (is_attribute(slot.type)) {
            v->type = DV_VALUE_UNKNOWN;
            if (!is_list(slot.type))
                take_attribute(a, attribute++, &slot, v);
            else if (!take_list(a, attribute++, &slot, &a->elements[i], v))
                return dv_fail(DV_ENOMEM, "out of memory");
        } else {
            v->type = slot.default_text ? DV_VALUE_DEFAULT : DV_VALUE_UNKNOWN;
        }
    }
    return DV_OK;
}

/* Appends GE's next output. sizes: -1 for a size that is unknown. */
static int append_output(inference *a, dv_dtype dtype, int32_t ndim, const int64_t *sizes)
{
    if (!a->node->output(a->node->context, a->next, number_of(a->package, dtype), ndim, sizes))
        return dv_fail(DV_EINVAL, "%s: GE refuses output %zu, of %d dims", dv_operator_name(a->op), a->next, (int)ndim);
    a->next++;
    return DV_OK;
}

static bool known(const dv_range *r) { return r->least == r->most; }

/* Appends an output to GE's node. An unknown rank or size is passed as -1, and so is a size that is only an upper bound. */
static int append_known(inference *a, const dv_known *k)
{
    int64_t sizes[DV_MAX_NDIM];
    const int32_t ndim = known(&k->value) ? (int32_t)k->value.least : -1;
    for (int32_t i = 0; i < ndim; i++)
        sizes[i] = known(&k->sizes[i]) && !(k->flags & DV_SPEC_UNBACKED) ? k->sizes[i].least : -1;
    return append_output(a, k->dtype, ndim, sizes);
}

/* Appends an output for each written argument: its new value, named like the input. */
static int append_written(inference *a, const dv_partial *p)
{
    int status = DV_OK;
    for (size_t i = 0; i < a->nargs && !status; i++) {
        dv_slot_info slot;
        dv_known argument;
        status = dv_operator_slot(a->op, i, &slot);
        if (!status && (slot.flags & DV_SLOT_WRITES) && a->args[i].type == DV_VALUE_TENSOR &&
            !(status = dv_partial_get(p, DV_PARTIAL_ARGUMENT, i, 0, &argument)))
            status = append_known(a, &argument);
    }
    return status;
}

/* How many outputs are left for this result, if each one after it has one. */
static size_t outputs_left(const inference *a, const dv_partial *p, size_t result)
{
    const size_t there = a->node->noutputs(a->node->context);
    size_t taken = a->next;
    for (size_t r = result + 1; r < a->nresults; r++) {
        dv_slot_info slot;
        dv_known k;
        taken += !dv_operator_slot(a->op, a->nargs + r, &slot) && !(slot.flags & DV_SLOT_WRITES) &&
            !dv_partial_get(p, DV_PARTIAL_RESULT, r, 0, &k) && k.present.most;
    }
    return there > taken ? there - taken : 0;
}

/* Appends an output for each tensor of a result that is a list. */
static int append_list(inference *a, const dv_partial *p, size_t result, const dv_known *list)
{
    const size_t n = known(&list->value) ? (size_t)list->value.least : outputs_left(a, p, result);
    int status = DV_OK;
    for (size_t k = 0; k < n && !status; k++) {
        dv_known element;
        status = dv_partial_get(p, DV_PARTIAL_ELEMENT, result, k, &element);
        if (!status)
            status = append_known(a, &element);
    }
    return status;
}

/* A promoted dtype depends on which inputs have no dims (in torch a 0-d tensor counts less). GE asks for dtypes without shapes,
 * so tensors are taken to have dims, wherever a call is left then. */
static void assume_dims(const inference *a, dv_partial *p)
{
    dv_known k = dv_unknown();
    k.value.least = 1;
    for (size_t i = 0; i < a->nargs; i++)
        if (a->args[i].type == DV_VALUE_TENSOR)
            (void)dv_partial_set(p, DV_PARTIAL_ARGUMENT, i, 0, &k);
        else if (a->args[i].type == DV_VALUE_TENSORS)
            for (size_t e = 0; e < a->args[i].as.tensors.size; e++)
                (void)dv_partial_set(p, DV_PARTIAL_ARGUMENT, i, e, &k);
    dv_clear_error();
}

/* Appends all outputs of the node, and fails if the node has another number of them. */
static int append_results(inference *a, const dv_partial *p)
{
    int status = append_written(a, p);
    for (size_t r = 0; r < a->nresults && !status; r++) {
        dv_slot_info slot;
        dv_known result;
        status = dv_operator_slot(a->op, a->nargs + r, &slot);
        if (status || (slot.flags & DV_SLOT_WRITES))
            continue;
        status = dv_partial_get(p, DV_PARTIAL_RESULT, r, 0, &result);
        if (!status && slot.type == DV_FIELD_TENSORS)
            status = append_list(a, p, r, &result);
        else if (!status && (known(&result.present) ? result.present.least == 1 : outputs_left(a, p, r) != 0))
            status = append_known(a, &result);
    }
    const size_t expected = a->node->noutputs(a->node->context);
    if (!status && a->next != expected)
        status = dv_fail(DV_EINVAL, "%s: the node has %zu outputs, expected %zu", dv_operator_name(a->op), expected, a->next);
    return status;
}

static int allocate(inference *a)
{
    size_t input = 0, n = 1;
    for (size_t i = 0; i < a->nargs; i++) {
        dv_slot_info slot;
        const int status = dv_operator_slot(a->op, i, &slot);
        if (status)
            return status;
        if (is_input(slot.type))
            n += a->node->count(a->node->context, input++);
    }
    a->args = calloc(a->nargs + 1, sizeof *a->args);
    a->tensors = calloc(n, sizeof *a->tensors);
    a->lists = calloc(n, sizeof *a->lists);
    a->sizes = calloc(n, DV_MAX_NDIM * sizeof *a->sizes);
    a->elements = calloc(a->nargs + 1, sizeof *a->elements);
    return a->args && a->tensors && a->lists && a->sizes && a->elements ? DV_OK : dv_fail(DV_ENOMEM, "out of memory");
}

int dv_ge_infer(dv_ge_package *package, const char *op, const dv_ge_node *node)
{
    inference a = { .package = package, .node = node };
    dv_partial *p = NULL;
    int status = load(package);
    if (!status)
        status = dv_find(op, &a.op);
    if (status)
        return status;
    a.nargs = dv_operator_nargs(a.op);
    a.nresults = dv_operator_nresults(a.op);
    status = allocate(&a);
    if (!status)
        status = take_arguments(&a);
    if (!status)
        status = dv_partial_new(a.op, a.args, a.nargs, &p);
    if (!status && a.without_shapes)
        assume_dims(&a, p);
    if (!status)
        status = append_results(&a, p);
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
