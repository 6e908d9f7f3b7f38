/* The arguments of a case as values for dv_call(), without data. */
#include <string.h>
#include <sys/mman.h>

#include "check.h"

enum { INACCESSIBLE_BYTES = 1 << 30 };

/* Middle of a reserved, inaccessible range: the data address of tensors without contents. Reading it faults. */
static char *inaccessible_middle;

bool check_is_inaccessible_data(const void *address)
{
    return inaccessible_middle && (const char *)address >= inaccessible_middle - INACCESSIBLE_BYTES &&
        (const char *)address < inaccessible_middle + INACCESSIBLE_BYTES;
}

/* Returns the data address for tensors without contents, and reserves the inaccessible range around it at the first call. Returns
 * NULL if that fails. */
static void *case_values_reserve_inaccessible_address(void)
{
    void *p = inaccessible_middle
        ? NULL
        : mmap(NULL, 2 * (size_t)INACCESSIBLE_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p && p != MAP_FAILED)
        inaccessible_middle = (char *)p + INACCESSIBLE_BYTES;
    return inaccessible_middle;
}

/* Sets one dv_tensor of v from the case's tensor: shape, strides and dtype, with an inaccessible data address (NULL on Meta). */
static void case_values_set_tensor_without_data(check_values *v, const check_case *c, size_t tensor_index, dv_device device)
{
    int64_t low, high;
    const check_tensor *t = &c->tensors[tensor_index];
    check_compute_strides(t, v->strides[tensor_index], &low, &high);
    v->tensors[tensor_index] = (dv_tensor){ .data = device.type == DV_META ? NULL : case_values_reserve_inaccessible_address(),
        .device = device,
        .ndim = t->ndim,
        .dtype = t->dtype,
        .shape = t->shape,
        .strides = v->strides[tensor_index] };
}

const char *check_value_get_string(const check_value *v, uint32_t index)
{
    const char *s = v->string;
    while (index-- > 0)
        s += strlen(s) + 1;
    return s;
}

/* Returns one element of a list of scalars. */
static dv_scalar case_values_get_list_scalar(const check_value *v, uint32_t index)
{
    dv_scalar s;
    memset(&s, 0, sizeof s);
    s.kind = (uint32_t)v->ints[index];
    if (s.kind == DV_SCALAR_INT)
        s.as.i = (int64_t)v->floats[index];
    else if (s.kind == DV_SCALAR_BOOL)
        s.as.b = v->floats[index] > 0;
    else
        s.as.f = v->floats[index];
    return s;
}

void check_values_init_without_data(check_values *v, const check_case *c, dv_device device)
{
    for (size_t i = 0; i < c->ntensors; i++)
        case_values_set_tensor_without_data(v, c, i, device);
    for (size_t i = 0; i < c->nargs; i++) {
        const check_value *a = &c->args[i];
        dv_value *to = &v->values[i];
        memset(to, 0, sizeof *to);
        to->type = a->type;
        switch (a->type) {
        case DV_VALUE_TENSOR:
            *to = dv_from_tensor(c->tensors[a->first_tensor].present ? &v->tensors[a->first_tensor] : NULL);
            break;
        case DV_VALUE_TENSORS:
            for (uint32_t k = 0; k < a->count; k++)
                v->list_tensors[a->first_tensor + k] = c->tensors[a->first_tensor + k].present ? &v->tensors[a->first_tensor + k]
                                                                                               : NULL;
            to->as.tensors = (dv_tensors){ &v->list_tensors[a->first_tensor], a->count };
            break;
        case DV_VALUE_STRING: *to = dv_from_string(a->string); break;
        case DV_VALUE_INTS: to->as.ints = (dv_ints){ a->ints, a->count }; break;
        case DV_VALUE_FLOATS: to->as.floats = (dv_floats){ a->floats, a->count }; break;
        case DV_VALUE_BOOLS:
            for (uint32_t k = 0; k < a->count; k++)
                v->bools[i][k] = a->ints[k] != 0;
            to->as.bools = (dv_bools){ v->bools[i], a->count };
            break;
        case DV_VALUE_STRINGS:
            for (uint32_t k = 0; k < a->count; k++)
                v->strings[i][k] = dv_from_string(check_value_get_string(a, k)).as.s;
            to->as.strings = (dv_strings){ v->strings[i], a->count };
            break;
        case DV_VALUE_SCALARS:
            for (uint32_t k = 0; k < a->count; k++)
                v->scalars[i][k] = case_values_get_list_scalar(a, k);
            to->as.scalars = (dv_scalars){ v->scalars[i], a->count };
            break;
        default: memcpy(&to->as, &a->as, sizeof a->as);
        }
    }
}
