/* The registry's data about an operator that calls read.
 *
 * Registration takes one lock and publishes a new immutable dv__table by one atomic store; calls take no lock. Old tables live as
 * long as the operator. */
#ifndef DV_REGISTRY_REGISTRY_H
#define DV_REGISTRY_REGISTRY_H

#include <stdatomic.h>

#include "base/thread.h"
#include "lang/contract.h"
#include "lang/formula.h"
#include "lang/schema.h"
#include "registry/plan.h"

/* How a frame of one struct layout is filled from a call's values. */
typedef struct dv__bound_field {
    uint16_t slot;
    uint16_t type; /* enum dv_field_type */
    uint32_t offset;
} dv__bound_field;
typedef struct dv__binding {
    uint32_t frame_size, n;
    const dv__bound_field *fields;
} dv__binding;

/* Match a struct's fields with a schema by name (unnamed returns bind in order) and check every type: DV_ESCHEMA names operator,
 * argument, the schema's type and the field's. Every argument needs its field unless partial. Allocates in arena. */
int dv__binding_make(const char *op_name, const dv__schema *schema, const dv_field_decl *const *fields, size_t frame_size,
    bool partial, dv__arena *arena, dv__binding **out);

/* A kernel row with its parsed fields. Immutable. */
typedef struct dv__row {
    const char *name, *provider, *device, *dtypes_text, *isa_text, *when_text, *takes_text; /* "" or NULL when not given */
    int32_t device_type, priority;
    uint32_t isas;                /* dv__isas that it needs */
    const dv__dtype_sets *dtypes; /* NULL: any */
    const dv__predicate *when;    /* NULL: always */
    const dv__takes *takes;       /* for each slot */
    bool takes_all_contiguous;    /* every slot of takes is contiguous, without alignment */
    bool vendor;                  /* from another library than the operator's own */
    const dv__binding *binding;
    dv_kernel_fn run;
    int64_t split;
    uint32_t flags;
    const dv_row_list *list; /* the arguments of the foreign function that a row with DV_KERNEL_LIST names; else NULL */
} dv__row;

enum dv__entry_kind {
    DV__ENTRY_MISSING,
    DV__ENTRY_FALLTHROUGH,
    DV__ENTRY_ROWS,
    DV__ENTRY_BOXED,
    DV__ENTRY_NATIVE,
    DV__ENTRY_CONTRACT /* on Meta, of an operator with a contract or a shape function: results are made, no kernel runs */
};
typedef struct dv__entry {
    enum dv__entry_kind kind;
    const char *from; /* for the dump: "kernel", "default backend kernel", "math kernel", "backend fallback" ... */
    dv_boxed_fn fn;   /* BOXED */
    void *user;
    const dv__row *const *rows; /* ROWS: in the order in which they are tried */
    size_t nrows;
} dv__entry;

typedef struct dv__table {
    dv__entry entries[DV_KEY_RUNTIME_COUNT];
    uint32_t handled;          /* bits of the keys whose entry is not a fallthrough */
    struct dv__table *retired; /* the one that this replaced */
} dv__table;

struct dv_operator {
    atomic_uint refs;
    atomic_bool alive; /* false: its library was unloaded */
    _Atomic(const dv__table *) table;
    char *name;      /* "ns::name.overload" */
    dv__arena arena; /* everything below */
    dv__schema *schema;
    const dv__plan *plan;            /* what calls need of the schema */
    dv__contract *contract;          /* NULL: none */
    dv__native *native;              /* NULL: none */
    dv__formula *gradient, *tangent; /* NULL: none */
    dv__binding *binding;            /* of the declared struct; NULL when registered by hand */
    struct dv__grant *granted; /* while a library is registered: the latest of its attachments to this operator; else NULL */
    dv_operator *functional;   /* of a functional form: the operator that it is made from, with a reference; else NULL */
    dv_shape_fn shape;
    struct {
#define DV__TEXT(name, who) const char *name;
        DV_OPERATOR_TEXTS(DV__TEXT)
#undef DV__TEXT
    } text; /* as declared; NULL: not */
    uint32_t line;
    atomic_uint_fast64_t enabled, disabled; /* how often the policy said so */
    atomic_uint_fast64_t
        policy; /* cached decision: policy generation << 2 | fuses-decision << 1 | decision (registry/policy.c) */
    struct dv__registration *registration; /* registry's own */
};

/* Which instruction sets this processor has (and dv_set_isa allows). */
/* clang-format off */
/* X(key, name, the one that it includes, the processors that can have it: x86-64 'x', aarch64 'a', all '*'), that one first. */
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
typedef uint32_t dv__isas; /* a set: a bit for each, also for those that it includes */
/* The set of the names in a text, separated by spaces, commas or +; NULL or "": base. One with DV__ISA_UNKNOWN if this runtime
 * does not know a name. */
dv__isas dv__isa_parse(const char *names);
int dv__isa_check(const char *names); /* DV_EINVAL: a name of another architecture, or of none */
bool dv__isa_available(dv__isas isas);
dv__isas dv__isa_limit(void); /* changes when dv_set_isa() may change the choice of rows */

/* The thread's guards, and the keys of a call on this device. */
uint32_t dv__keys_of_device(int32_t device_type); /* bits: backend and its autograd key; META for DV_META */
DV__OF_THREAD dv_guard *dv__guards(void);
/* The keys of a call, from those of its tensors and the guards: at most one backend and its autograd key. As in
 * PyTorch the highest backend is taken first (of a CUDA tensor with a CPU scalar CUDA, and AutogradCUDA, never AutogradCPU); a
 * guard adds or takes away what a key does (autograd, or computing), and adds its backend. */
uint32_t dv__keys_of_call(uint32_t keys, dv_guard guards);

/* The policy's decision for one call: true: the operator's own kernels; false: its native form. Counts it. No lock. */
bool dv__policy_decide(dv_operator *op, bool host_fuses);

/* As dv_find(), but looks first in the library that defines `from`, so that a formula calls operators of its own library's
 * version. */
int dv__find_from(const dv_operator *from, const char *name, dv_operator **out);

/* The operator of the base set with ATen's name ("mul"), with a reference for the caller; DV_ENOENT. */
int dv__find_base(const char *name, dv_operator **out);
/* The base set that was loaded for a formula, if it has this content: it is the caller's from now on. Else NULL. */
dv_library *dv__take_base(const char *content);

#endif
