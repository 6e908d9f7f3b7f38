/* Runs a program's quick steps (contract_quick.h). */
#include "lang/contract_internal.h"
#include "lang/contract_quick.h"

#define IN(x) ((x) >= 0 ? &registers[x] : &constants[-1 - (x)])

DV_INLINE bool tensor_has(const dv__quick *q, const dv_tensor *x, dv__reg *registers)
{
    if (!x)
        return false;
    registers[q->to].tensor = x;
    registers[q->device].device = x->device;
    registers[q->dtype].dtype = x->dtype;
    registers[q->rank].i = x->ndim;
    registers[q->shape].sizes = x->shape;
    registers[q->shape].n = x->ndim;
    return true;
}

static bool run(dv__run *r, const dv__quick *q, const dv__quick *end)
{
    dv__reg *const registers = r->s->registers;
    const dv__reg *const constants = r->program->constants;
    const dv_value *const args = r->args;
    for (; q < end; q++) {
        switch ((enum dv__quick_op)q->op) {
        case DV__QUICK_UNLESS:
            if (!IN(q->a)->i)
                q += q->slot;
            break;
        case DV__QUICK_ARGUMENT_HAS: {
            const dv_value *v = &args[q->slot];
            if (!tensor_has(q, v->type == DV_VALUE_TENSOR ? v->as.tensor : dv__first_tensor(v), registers))
                return false;
            break;
        }
        case DV__QUICK_TENSOR_HAS:
            if (!tensor_has(q, IN(q->a)->tensor, registers))
                return false;
            break;
        case DV__QUICK_AT:
        case DV__QUICK_AT_IS: {
            const int64_t size = dv__size_at(IN(q->a), q->slot);
            if (q->op == DV__QUICK_AT)
                registers[q->to].i = size;
            else if (size != IN(q->b)->i)
                return false;
            break;
        }
        case DV__QUICK_AT_ANY: registers[q->to].i = dv__size_at(IN(q->a), IN(q->b)->i); break;
        case DV__QUICK_STRIDES: {
            const dv_tensor *x = IN(q->a)->tensor;
            if (!x)
                return false;
            registers[q->to].sizes = x->strides;
            registers[q->to].n = x->ndim;
            break;
        }
        case DV__QUICK_SIZES_CHECK:
            if (dv__negative(IN(q->a)))
                return false;
            break;
        case DV__QUICK_INT:
            if (args[q->slot].type != DV_VALUE_INT)
                return false;
            registers[q->to].i = args[q->slot].as.i;
            break;
        case DV__QUICK_PRESENT: registers[q->to].i = dv__is_present(&args[q->slot]); break;
#define TO (&registers[q->to])
#define A IN(q->a)
#define B IN(q->b)
#define C IN(q->c)
#define SIMPLE(id, statement) \
    case DV__QUICK_##id: statement; break;
            DV__SIMPLE_OPS(SIMPLE)
#define ON_INTS(id, test) \
    case DV__QUICK_##id:  \
        if (!(test))      \
            return false; \
        break;
            DV__INT_OPS(ON_INTS)
        case DV__QUICK_COPY: registers[q->to] = *IN(q->a); break;
        case DV__QUICK_BOUND: dv__note_bound(r, q->to); break;
        case DV__QUICK_CHECK:
            if (!IN(q->a)->i)
                return false;
            break;
#define COMPARE_BY(id, test)                                 \
    case DV__QUICK_##id: registers[q->to].i = (test); break; \
    case DV__QUICK_##id##_CHECK:                             \
        if (!(test))                                         \
            return false;                                    \
        break;
#define COMPARE(id, operator) COMPARE_BY(id, IN(q->a)->i operator IN(q->b)->i)
            DV__QUICK_COMPARISONS(COMPARE)
            COMPARE_BY(SAME_DTYPE, dv_dtype_key(IN(q->a)->dtype) == dv_dtype_key(IN(q->b)->dtype))
            COMPARE_BY(SAME_DIMS, dv__same_dims(IN(q->a), IN(q->b)))
            COMPARE_BY(SAME_DEVICE, dv__same_device(IN(q->a)->device, IN(q->b)->device))
        case DV__QUICK_DIMS:
            if (!dv__make_dims(r, q->step) || r->status)
                return false;
            break;
        case DV__QUICK_STEP:
            if (!dv__operate(r, q->step) || r->status)
                return false;
            break;
        case DV__QUICK_EACH:
            if (dv__run_block(r, q->step))
                return false;
            q += q->slot;
            break;
        default: __builtin_unreachable();
        }
    }
    return true;
}

bool dv__run_quick(dv__run *r, uint32_t begin, uint32_t end)
{
    const dv__program *p = r->program;
    return run(r, p->quick + p->quick_at[begin], p->quick + p->quick_at[end]);
}
