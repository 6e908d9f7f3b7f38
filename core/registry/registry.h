/* The registry's data about an operator that calls read.
 *
 * Registration takes one lock and publishes a new immutable dv__dispatch_table by one atomic store; calls take no lock. Old
 * tables live as long as the operator. */
#ifndef DV_REGISTRY_REGISTRY_H
#define DV_REGISTRY_REGISTRY_H

#include <stdatomic.h>

#include "base/tls.h"
#include "lang/contract.h"
#include "lang/formula.h"
#include "lang/schema.h"
#include "registry/signature.h"

/* One field of a struct, and the slot from whose value it is filled. */
typedef struct dv__bound_field {
    uint16_t slot;
    uint16_t type; /* enum dv_field_type of the field */
    uint32_t offset;
} dv__bound_field;
typedef struct dv__binding {
    uint32_t frame_size, n;
    const dv__bound_field *fields;
} dv__binding;

/* Matches a struct's fields with a schema: by name, then unnamed returns in order. Checks the types. Unless
 * may_lack_arguments, each argument needs a field. *out: the struct binding, allocated in the arena. Fails with DV_ESCHEMA;
 * the message names the argument and both types. */
int dv__binding_make(const char *op_name, const dv__schema *schema, const dv_field_decl *const *fields, size_t frame_size,
    bool may_lack_arguments, dv__arena *arena, dv__binding **out);

/* A kernel with its parsed fields. Immutable. */
typedef struct dv__kernel {
    const char *name, *provider, *device, *dtypes_text, *isa_text, *when_text,
        *takes_text; /* texts of the declaration; "" or NULL: not given */
    int32_t device_type, priority;
    uint32_t isas;                    /* mask of the instruction sets that the kernel needs, a dv__isas */
    const dv__dtype_sets *dtypes;     /* the dtypes that the kernel accepts; NULL: all */
    const dv__predicate *when;        /* the predicate; NULL: none */
    const dv__accepted_layout *takes; /* by slot: the layout that the kernel accepts */
    bool takes_all_contiguous;        /* true if the kernel accepts contiguous tensors only, in every slot, without alignment */
    bool is_from_vendor;              /* true if another library than the operator's own registered the kernel */
    const dv__binding *binding;
    dv_kernel_fn run;
    int64_t split;
    uint32_t flags;
    const dv_foreign_call
        *foreign_call; /* the arguments of the foreign function, for a kernel with DV_KERNEL_FOREIGN; else NULL */
} dv__kernel;

enum dv__dispatch_entry_kind {
    DV__ENTRY_MISSING,
    DV__ENTRY_FALLTHROUGH,
    DV__ENTRY_KERNELS,
    DV__ENTRY_BOXED,
    DV__ENTRY_DECOMPOSITION,
    DV__ENTRY_CONTRACT /* for Meta: the contract or shape function gives the results, and no kernel runs */
};
typedef struct dv__dispatch_entry {
    enum dv__dispatch_entry_kind kind;
    const char *from; /* what registered the entry, for the printed table: "kernel", "default backend kernel", "math kernel",
                       * "backend fallback"
                       * ... */
    dv_boxed_fn fn;   /* the boxed function, for DV__ENTRY_BOXED */
    void *user;
    const dv__kernel *const *kernels; /* the kernels, in the order in which they are tried, for DV__ENTRY_KERNELS */
    size_t nkernels;
} dv__dispatch_entry;

typedef struct dv__dispatch_table {
    dv__dispatch_entry entries[DV_KEY_RUNTIME_COUNT];
    uint32_t handled_keys;              /* bit mask of the dispatch keys whose entry is not a fallthrough */
    struct dv__dispatch_table *retired; /* the table that this table replaced; freed with the operator */
} dv__dispatch_table;

struct dv_operator {
    atomic_uint refs;
    atomic_bool alive; /* true while the operator's library is registered; false: it was unloaded, or not registered yet */
    _Atomic(const dv__dispatch_table *) table;
    char *name;      /* "ns::name.overload" */
    dv__arena arena; /* memory of the fields below */
    dv__schema *schema;
    const dv__signature *signature;   /* the schema's slots in the form that calls use */
    dv__contract *contract;           /* NULL: none */
    dv__decomposition *decomposition; /* NULL: none */
    dv__formula *gradient, *tangent;  /* NULL: none */
    dv__binding *binding;             /* the binding of the declared struct; NULL: the operator has no declaration */
    struct dv__pending_attachment
        *pending;                    /* the newest attachment to this operator of a library that is being registered; else NULL */
    dv_operator *functional_form_of; /* of a functional form: the operator that it calls, with a reference; else NULL */
    dv_shape_fn shape;
    struct {
#define DV__TEXT(name, who) const char *name;
        DV_OPERATOR_TEXTS(DV__TEXT)
#undef DV__TEXT
    } text; /* the texts of the declaration; NULL: not declared */
    uint32_t line;
    atomic_uint_fast64_t enabled_calls,
        disabled_calls;                /* numbers of calls for which the policy chose the kernels, and the decomposition */
    atomic_uint_fast64_t policy_cache; /* policy generation << 2 | decision for hosts that fuse << 1 | decision for other hosts
                                        * (registry/policy.c); 0: not decided yet */
    struct dv__registry_record *registry_record; /* data that only the registry uses, protected by its lock */
};

/* ---- Instruction sets (isa.c) ---- */
/* clang-format off */
/* X(key, name, included set, architecture: x86-64 'x', aarch64 'a', all '*'). An included set stands before the sets that
 * include it. */
#define DV__ISAS(X)                           \
    X(BASE, "base", BASE, '*')                \
    X(AVX2, "avx2", BASE, 'x')                \
    X(AVX512, "avx512", AVX2, 'x')            \
    X(AVXVNNI, "avxvnni", AVX2, 'x')          \
    X(AVX512VNNI, "avx512vnni", AVX512, 'x')  \
    X(AVX512BF16, "avx512bf16", AVX512, 'x')  \
    X(AMXBF16, "amx-bf16", AVX512BF16, 'x')   \
    X(AMXINT8, "amx-int8", AVX512VNNI, 'x')   \
    X(NEON, "neon", BASE, 'a')                \
    X(SVE, "sve", NEON, 'a')
/* clang-format on */
enum dv__isa {
#define DV__ISA(key, name, includes, processor) DV__ISA_##key,
    DV__ISAS(DV__ISA)
#undef DV__ISA
        DV__ISA_UNKNOWN
};
typedef uint32_t dv__isas; /* bit mask of enum dv__isa; with each instruction set, the bits of the sets that it includes */
/* Returns the instruction sets named in a text, separated by spaces, commas or +; NULL or "": BASE. A name that this runtime
 * does not know sets the bit of DV__ISA_UNKNOWN. */
dv__isas dv__isa_mask_of_names(const char *names);
/* Fails with DV_EINVAL for an unknown name, or for an instruction set of another architecture. */
int dv__isa_check_architecture(const char *names);
bool dv__isa_is_available(dv__isas isas); /* true if the processor has these sets, and DOVETAIL_ISA and dv_set_isa() allow them */
/* Returns the mask of the sets that dv_set_isa() allows; after a change another kernel may be selected. */
dv__isas dv__isa_limit(void);

/* ---- Dispatch keys (dispatch.c) ---- */
/* Returns the bit mask of a device's dispatch keys: its backend and the backend's autograd key; for DV_META only Meta; for
 * an unknown device 0. */
uint32_t dv__dispatch_keys_of_device(int32_t device_type);
DV__TLS_ACCESSOR dv_guard *dv__guards(void); /* returns this thread's guards */
/* Returns the dispatch keys of a call, at most one backend and its autograd key, from the keys of its tensors and the
 * guards. As in PyTorch, the highest backend is chosen: a CUDA tensor with a CPU scalar gives CUDA and AutogradCUDA. Guards
 * then include or exclude the backend key or the autograd key; an included autograd key also adds its backend to the choice. */
uint32_t dv__dispatch_keys_of_call(uint32_t tensor_keys, dv_guard guards);

/* Returns the policy's decision for one call and counts it. True: the operator's kernels run; false: its decomposition.
 * host_fuses: the host's compiler fuses decompositions. Takes no lock, unless the decision is not cached. */
bool dv__policy_decide_if_enabled(dv_operator *op, bool host_fuses);

/* Finds an operator as dv_find() does, but first in the library of `caller`, so that a formula calls operators of its own
 * library's version. *out: a new reference. */
int dv__find_for_operator(const dv_operator *caller, const char *name, dv_operator **out);

/* Finds the operator of the base set with ATen's name ("mul"), and loads the base set first if necessary. *out: a new
 * reference. Fails with DV_ENOENT. */
int dv__find_base_operator(const char *name, dv_operator **out);
/* Returns the base set if a formula loaded it and its binary has this content_id (dv__binary.id); the caller owns it from
 * now on. Otherwise, and at later calls, returns NULL. */
dv_library *dv__take_unclaimed_base_set(const char *content_id);

#endif
