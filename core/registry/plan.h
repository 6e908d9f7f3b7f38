/* What a call needs to know of a schema, computed once when the operator is made: for each slot its type and what it may share
 * memory with.
 */
#ifndef DV_REGISTRY_PLAN_H
#define DV_REGISTRY_PLAN_H

#include "lang/schema.h"

enum dv__plan_flags {
    DV__SLOT_OPTIONAL = DV_SLOT_OPTIONAL,
    DV__SLOT_ELEMENT_OPTIONAL = DV_SLOT_ELEMENT_OPTIONAL,
    DV__SLOT_WRITES = DV_SLOT_WRITES,
    DV__SLOT_SCALAR = 16, /* Scalar: any number */
    DV__SLOT_LIST = 32,   /* must be looked at: length, elements */
    DV__SLOT_DEFAULT = 64,
    DV__SLOT_TENSORS = 128, /* Tensor[] */
};

typedef struct dv__slot {
    uint8_t value;      /* enum dv_value_type of its value; DV_VALUE_DEFAULT: no dv_value can hold it */
    uint8_t flags;      /* enum dv__plan_flags */
    int16_t alias;      /* of a return: the argument that it is, or is a view of; else -1 */
    int32_t fixed_size; /* of int[N]; else -1 */
    uint64_t sets;      /* alias sets by number: slots that share one may share memory */
} dv__slot;

enum { DV__MAX_SLOTS = 128 }; /* of operators with kernel rows, native forms or contracts */

typedef struct dv__plan {
    uint64_t serial; /* unique among all plans that the process has made; never 0 */
    uint32_t nargs, nreturns;
    bool writes;      /* through any argument */
    bool has_device;  /* an argument of type Device selects the device */
    bool has_lists;   /* of tensors, among arguments or results */
    dv__slot slots[]; /* arguments, then returns */
} dv__plan;

int dv__plan_make(const dv__schema *schema, dv__arena *arena, const dv__plan **out);

#endif
