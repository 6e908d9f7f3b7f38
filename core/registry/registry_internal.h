/* Declarations shared by the files of the registry.
 *
 * One lock, the registry's lock, protects all data here that is not atomic: the index of operators, the list of libraries, the
 * named registrations and fallbacks of libraries, and the attachments of operators. The data that a call reads (an operator's
 * table, its kernels, its schema) is immutable once published and lives as long as the operator.
 *
 * A named registration is a library's registration by name, such as an IMPL for "ns::f" on CPU. It becomes an attachment of the
 * operator of that name: at once if the operator exists, else when the operator is defined. An operator's table is computed
 * from its attachments and the fallbacks of all libraries.
 *
 * A removal must not fail, so it must not allocate: each operator holds a spare table for each attachment and fallback that may
 * be removed. */
#ifndef DV_REGISTRY_REGISTRY_INTERNAL_H
#define DV_REGISTRY_REGISTRY_INTERNAL_H

#include "base/error.h"
#include "base/suggest.h"
#include "registry/binary.h"
#include "registry/registry.h"

/* Reads a field of a declaration; `otherwise` if the declaration was compiled with an older header, which lacks the field. */
#define DV__DECL_GET(p, T, field, otherwise) (DV__DECL_HAS(p, T, field) ? (p)->field : (otherwise))

/* ---- slot.c, binding.c ---- */

/* Describes a slot by the schema; fails with DV_EINVAL for a slot that does not exist. */
int dv__slot_describe(const dv__schema *schema, size_t slot, dv_slot_info *out);
/* Parses the name of a kernel with DV_KERNEL_FOREIGN. *out: its argument list, allocated in the arena. Fails with a message. */
int dv__foreign_call_parse(const char *text, const dv__schema *schema, dv__arena *arena, const dv_foreign_call **out);
const char *dv__field_ctype(uint32_t type); /* returns the C type of a field type's field, as "const dv_tensor *" */

/* ---- Attachments of an operator ---- */

enum dv__attachment_kind { DV__ATTACH_KERNELS, DV__ATTACH_BOXED, DV__ATTACH_FALLTHROUGH };

/* The kernels of one declaration, bound to one operator. */
typedef struct dv__kernel_set {
    const dv__kernel *const *kernels;
    size_t nkernels;
} dv__kernel_set;

typedef struct dv__attachment {
    struct dv__attachment *next; /* newest first */
    enum dv__attachment_kind kind;
    const struct dv__named_registration *named_registration; /* the registration that was attached; NULL: the operator's own
                                                                kernels, or the registration was removed */
    uint64_t sequence_number;                                /* sequence number of the registration; a larger one is newer */
    int key;                                                 /* dispatch key, for DV__ATTACH_BOXED and DV__ATTACH_FALLTHROUGH */
    dv_boxed_fn fn;
    void *user;
    dv__kernel_set kernels; /* for DV__ATTACH_KERNELS: all kernels of the declaration, in its order, for any device */
    const char *problem;    /* why the vendor's kernels do not fit the operator and `kernels` is empty; NULL: they fit */
    dv__arena arena;        /* memory of this attachment's kernels; freed with the attachment */
} dv__attachment;

/* A library's registration for an operator by name. The operator need not exist yet. */
typedef struct dv__named_registration {
    struct dv__named_registration *next; /* newest first */
    const dv_library *library;
    uint64_t sequence_number;
    char *name;                   /* "ns::name.overload" */
    const dv_operator_decl *decl; /* the declaration with the kernels; NULL: `fn` or a fallthrough is registered */
    int key;
    bool is_fallthrough;
    dv_boxed_fn fn;
    void *user;
} dv__named_registration;

typedef struct dv__spare_table {
    dv__dispatch_table table; /* the first member, since a table is freed by its address */
    struct dv__spare_table *next;
    size_t capacity;
    const dv__kernel *kernels[]; /* memory of the entries' lists of kernels; `capacity` elements */
} dv__spare_table;

/* An operator's data that only the registry uses, protected by its lock. */
typedef struct dv__registry_record {
    const dv_library *owner; /* the library that defines the operator; NULL: it was unloaded */
    uint64_t sequence_number;
    dv__attachment *attached, *retired;
    size_t nattached,
        nkernels; /* numbers of attached attachments and of all their kernels; nkernels is the least capacity of a table */
    dv__spare_table *spares;
} dv__registry_record;

struct dv_library {
    dv_library *next; /* newest first */
    int kind, key;
    char *ns, *version, *provider, *label; /* label: the library's name in messages, as "my_ops 1.2 from /path" */
    const dv_library_decl *decl; /* the binary's or the linked descriptor; NULL: the library was made by dv_library_new() */
    dv__binary binary;
    bool is_from_file; /* true if the library was loaded from a file, and `binary` is set */
    dv_operator **operators;
    size_t noperators, capacity;
    dv__named_registration *named_registrations;
    struct {
        bool is_set;
        dv_boxed_fn fn;
        void *user;
    } fallbacks[DV_KEY_RUNTIME_COUNT];
};

/* ---- registry.c: the one registry ---- */

void dv__registry_lock(void);
void dv__registry_unlock(void);
uint64_t dv__registry_next_seq(void); /* returns a sequence number larger than all before; requires the lock */
/* Returns the newest library, from which ->next leads to the older ones; NULL: none; requires the lock. */
const dv_library *dv__registry_find_newest_library(void);
/* Returns the newest registered operator of this full name; NULL: none. Requires the lock. */
dv_operator *dv__registry_find_newest(const char *name);
/* Returns operator number overload_index, in alphabetical order, of the overloads that `name` means in a namespace; NULL:
 * there are not so many. "f" means every overload of f, the unnamed one first; "f.out" only that overload. Of each overload,
 * the newest version counts. Requires the lock. */
dv_operator *dv__registry_find_overload(const char *ns, size_t ns_size, const char *name, size_t overload_index);
bool dv__registry_has_namespace(const char *ns, size_t ns_size); /* requires the lock */
/* Adds the names of a namespace's operators, without the namespace, to the suggestions. Requires the lock. */
void dv__registry_suggest_names_of(dv__suggestions *suggestions, const char *ns);
/* Adds a library with all its operators, named registrations and fallbacks to the registry. After a failure nothing was added.
 * Takes the lock. */
int dv__registry_add(dv_library *lib);
/* Removes a library. Never fails. Takes the lock. */
void dv__registry_remove(dv_library *lib);
/* dv__registry_add_operator(), dv__registry_add_named() and dv__registry_add_fallback() add one item to a registered
 * library. They take the lock. After a failure nothing has changed, and the caller still owns the operator or registration. */
int dv__registry_add_operator(dv_library *lib, dv_operator *op);
int dv__registry_add_named(dv_library *lib, dv__named_registration *named_registration);
int dv__registry_add_fallback(dv_library *lib, int key, dv_boxed_fn fn, void *user);
int dv__fail_operator_not_found(const char *name); /* returns DV_ENOENT; the message lists similar names */
/* Frees an operator's record with all its tables and attachments. published_table: the table in use, from which the replaced
 * ones are linked; NULL: none. */
void dv__registry_record_free(dv__registry_record *record, const dv__dispatch_table *published_table);

/* ---- dispatch.c ---- */

/* Returns the backend key of a device, enum dv_key; DV_KEY_NONE for a device that has none. */
int dv__backend_key_of_device(int32_t device_type);
/* Computes the operator's dispatch table into `table`, whose capacity is at least registry_record->nkernels. Requires the
 * lock. */
void dv__dispatch_table_fill(dv__spare_table *table, const dv_operator *op);

/* ---- declare.c: from declaration to operator ---- */

/* dv__operator_new() makes an operator from a schema alone; dv__operator_declare() from a declaration, with its contract,
 * struct binding and kernels. Formulas are parsed later, by dv__operator_parse_formulas(). Both return a status. */
int dv__operator_new(const char *ns, const char *schema, const char *tags, dv_operator **out);
int dv__operator_declare(const dv_library *lib, const dv_operator_decl *decl, dv_operator **out);
/* Parses and checks an operator's formulas. Must be called after all operators of the library are made, since formulas may name
 * them. */
int dv__operator_parse_formulas(const dv_library *lib, dv_operator *op);
/* Frees an operator; dv_operator_unref() calls it for the last reference. */
void dv__operator_free(dv_operator *op);
/* Makes the full name of the operator to which a declaration in a library of namespace ns refers. The caller frees *out with
 * dv__free(). Returns a status. */
int dv__operator_make_full_name(const char *ns, const dv_operator_decl *decl, char **out);
/* Fails unless a declaration in a library of kernels has kernels, and no field that only the operator's own library may set. */
int dv__vendor_decl_check(const char *name, const dv_operator_decl *decl);
/* Binds a declaration's kernels to an operator. *out: the kernels, allocated in the arena. Fails if they do not fit the
 * operator. */
int dv__kernels_make(const dv_operator *op, const dv_operator_decl *decl, const char *provider, bool is_vendor, dv__arena *arena,
    dv__kernel_set *out);
void dv__attachment_free(dv__attachment *a);

/* ---- policy.c, base_set.c ---- */

int dv__policy_init(void); /* reads the policy of the environment at the first call; fails with DV_EINVAL if it is invalid */

#endif
