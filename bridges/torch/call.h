/* One operator in torch, and one call of it. */
#ifndef DV_TORCH_CALL_H
#define DV_TORCH_CALL_H

#include "shims.h"

/* One argument or result, as the stack carries it. */
struct dv__torch_slot {
    const char *name;       /* borrowed from the operator */
    uint8_t field;          /* enum dv_field_type of the plain input, as the stack carries it */
    uint8_t packed;         /* of a twin: what it stands for (a Scalar that comes as numbers); 0: what it is */
    bool optional, element_optional;
    bool writes;            /* a result is written where it is given: out= */
    int32_t alias;          /* of a result: the argument that it aliases, or -1 */
};

/* Immutable once published to a trampoline, and never freed: a call may be on its way when the library is unregistered. */
struct dv__torch_op {
    const struct dv__torch_shims *t;
    dv_operator *op; /* a reference */
    const char *name;
    bool mutates;
    size_t nargs, nresults;
    struct dv__torch_slot slots[]; /* arguments, then results: in this order they are the arguments of the out= overload */
};

/* Can the shims carry this slot? NULL: yes; else what stands in the way, for the message. */
const char *dv__torch_cannot_carry(const struct dv__torch_shims *t, const dv_slot_info *info, bool result);
/* What a twin's argument has instead, as python/twin.py packs it; 0: nothing can stand for this type. */
uint8_t dv__torch_packs_as(uint8_t field);

/* The schema of a twin, for this name; the caller frees it. NULL: out of memory, no error set. */
char *dv__torch_twin_schema(const struct dv__torch_op *o, const char *local);

/* Run one call: takes the stack's nargs arguments and leaves its results, or throws a c10::Error with our message. More arguments
 * than the operator has: it was called by its out= overload. */
void dv__torch_call(const struct dv__torch_op *op, uint64_t *stack, uint64_t nargs);

#endif
