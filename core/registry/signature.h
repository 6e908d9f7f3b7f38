/* Signatures: a schema in the form for calls, computed once for an operator. Each slot has the type of its value, and the
 * alias sets whose members may share memory. */
#ifndef DV_REGISTRY_SIGNATURE_H
#define DV_REGISTRY_SIGNATURE_H

#include "lang/schema.h"

enum dv__slot_flags {
    DV__SLOT_OPTIONAL = DV_SLOT_OPTIONAL,
    DV__SLOT_ELEMENT_OPTIONAL = DV_SLOT_ELEMENT_OPTIONAL,
    DV__SLOT_WRITES = DV_SLOT_WRITES,
    DV__SLOT_SCALAR = 16, /* the schema's type is Scalar: the value is any number */
    DV__SLOT_LIST = 32,   /* the value is a list, whose length and elements each call checks */
    DV__SLOT_DEFAULT = 64,
    DV__SLOT_TENSORS = 128, /* Tensor[] */
};

typedef struct dv__slot {
    uint8_t value; /* enum dv_value_type of the slot's value; DV_VALUE_DEFAULT: a type that no dv_value can hold */
    uint8_t flags; /* enum dv__slot_flags */
    int16_t alias; /* of a return: index of the argument that it is, or of which it is a view; -1: none, or an argument's slot */
    int32_t fixed_size;  /* N of a list int[N]; -1: no fixed size */
    uint64_t alias_sets; /* bit mask of the slot's alias sets; slots with a common bit may share memory */
} dv__slot;

enum {
    DV__MAX_SLOTS = 128
}; /* largest number of arguments and results of an operator with kernels, a decomposition or a contract */

typedef struct dv__signature {
    uint64_t serial; /* unique among all signatures that the process has made; never 0 */
    uint32_t nargs, nreturns;
    bool writes_arguments;    /* true if some argument is written */
    bool has_device_argument; /* true if an argument has the type Device: it selects the device of a call without tensors */
    bool has_tensor_lists;    /* true if some argument or result is a list of tensors */
    dv__slot slots[];         /* arguments, then returns */
} dv__signature;

/* Makes the signature of a schema, in the arena. Returns a status. */
int dv__signature_make(const dv__schema *schema, dv__arena *arena, const dv__signature **out);

#endif
