/* Declarations shared by the files of the registry.
 *
 * One lock guards everything that is not atomic here. Under it, and only there: the index of operators, the list of libraries,
 * every library's wishes and fallbacks, every operator's attachments. The data that a call reads (an operator's table, its rows,
 * its schema) is immutable once published and lives as long as the operator.
 *
 * A wish is a library's registration by name, such as an IMPL for "ns::f" on CPU. It becomes an attachment of the operator of
 * that name: at once if the operator exists, else when it is defined. An operator's table is computed from its attachments and
 * the fallbacks of all libraries.
 *
 * Taking away must not fail, so it must not allocate: each operator holds as many spare tables as things could be taken from it.
 */
#ifndef DV_REGISTRY_INTERNAL_H
#define DV_REGISTRY_INTERNAL_H

#include "base/error.h"
#include "base/near.h"
#include "registry/binary.h"
#include "registry/registry.h"

/* A field of a declaration; zero if the declaration is from a header that did not have it yet. */
#define DV__GET(p, T, field, otherwise) (DV__HAS(p, T, field) ? (p)->field : (otherwise))

/* ---- slot.c, binding.c ---- */

int dv__slot_info(const dv__schema *schema, size_t slot, dv_slot_info *out); /* DV_EINVAL past the end */
/* The meaning of the name of a row with DV_KERNEL_LIST. *out and all in it live in the arena; text stays the caller's. */
int dv__row_list_parse(const char *text, const dv__schema *schema, dv__arena *arena, const dv_row_list **out);
const char *dv__field_ctype(uint32_t type); /* "const dv_tensor *" */

/* ---- What is attached to an operator ---- */

enum dv__attachment_kind { DV__ATTACH_ROWS, DV__ATTACH_BOXED, DV__ATTACH_FALLTHROUGH };

/* The rows of one declaration, bound to one operator. */
typedef struct dv__row_set {
    const dv__row *const *rows;
    size_t n;
} dv__row_set;

typedef struct dv__attachment {
    struct dv__attachment *next; /* newest first */
    enum dv__attachment_kind kind;
    const struct dv__wish *wish; /* NULL: the operator's own rows */
    uint64_t seq;                /* newest is highest */
    int key;                     /* BOXED, FALLTHROUGH */
    dv_boxed_fn fn;
    void *user;
    dv__row_set rows;    /* ROWS: as written, any device */
    const char *problem; /* ROWS: why there are no rows: a vendor's kernels that do not fit this declaration */
    dv__arena arena;     /* the rows */
} dv__attachment;

/* A library's registration for an operator by name, whether or not it exists. */
typedef struct dv__wish {
    struct dv__wish *next; /* newest first */
    const dv_library *library;
    uint64_t seq;
    char *name;                   /* "ns::name.overload" */
    const dv_operator_decl *decl; /* rows; NULL: fn */
    int key;
    bool fallthrough;
    dv_boxed_fn fn;
    void *user;
} dv__wish;

typedef struct dv__spare_table {
    dv__table table; /* first: a table is freed by its address */
    struct dv__spare_table *next;
    size_t room;
    const dv__row *rows[]; /* for the entries */
} dv__spare_table;

/* dv_operator.registration. */
typedef struct dv__registration {
    const dv_library *owner; /* NULL once unloaded */
    uint64_t seq;
    dv__attachment *attached, *retired;
    size_t nattached, nrows; /* rows of all attachments, for the size of a table */
    dv__spare_table *spares;
} dv__registration;

struct dv_library {
    dv_library *next; /* newest first */
    int kind, key;
    char *ns, *version, *provider, *label; /* label: for messages: "my_ops", "my_ops 1.2 (/path)" */
    const dv_library_decl *decl;           /* NULL when made by hand */
    dv__binary binary;
    bool loaded; /* from a file: binary is set */
    dv_operator **operators;
    size_t noperators, room;
    dv__wish *wishes;
    struct {
        bool set;
        dv_boxed_fn fn;
        void *user;
    } fallbacks[DV_KEY_RUNTIME_COUNT];
};

/* ---- registry.c: the one registry ---- */

void dv__registry_lock(void);
void dv__registry_unlock(void);
uint64_t dv__registry_next_seq(void);           /* under the lock */
const dv_library *dv__registry_libraries(void); /* under the lock */
/* Under the lock. The newest operator of this full name that is registered, or NULL. */
dv_operator *dv__registry_get(const char *name);
/* Under the lock. The i-th operator of these names, "f" being every overload of f and "f.out" only that one; newest versions
 * only. */
dv_operator *dv__registry_overload(const char *ns, size_t ns_size, const char *name, size_t i);
bool dv__registry_has_namespace(const char *ns, size_t ns_size); /* under the lock */
void dv__registry_near(dv__near *near, const char *ns);          /* under the lock: names without their namespace */
/* Add a library with all its operators, wishes and fallbacks to the registry, or fail and add nothing. Takes the lock. */
int dv__registry_add(dv_library *lib);
/* Remove a library. Cannot fail. Takes the lock. */
void dv__registry_remove(dv_library *lib);
/* Add an operator, wish or fallback to a registered library. These take the lock; on failure nothing has changed and the caller
 * still owns its argument. */
int dv__registry_add_operator(dv_library *lib, dv_operator *op);
int dv__registry_add_wish(dv_library *lib, dv__wish *wish);
int dv__registry_add_fallback(dv_library *lib, int key, dv_boxed_fn fn, void *user);
int dv__operator_not_found(const char *name);                              /* DV_ENOENT, listing what is near */
void dv__registration_free(dv__registration *r, const dv__table *current); /* with all tables and attachments */

/* ---- dispatch.c ---- */

int dv__backend_of(int32_t device_type); /* enum dv_key; DV_KEY_NONE for a device that has none */
/* Compute the operator's table into t, which has room for registration->nrows rows. Under the lock. */
void dv__table_fill(dv__spare_table *t, const dv_operator *op);

/* ---- declare.c: from declaration to operator ---- */

/* An operator with its schema, contract, binding and own rows, not yet its formulas. where: file of the library, for messages. */
int dv__operator_new(const char *ns, const char *schema, const char *tags, dv_operator **out);
int dv__operator_declare(const dv_library *lib, const dv_operator_decl *decl, dv_operator **out);
/* Check its formulas. Call it when all operators of the library are made. */
int dv__operator_formulas(const dv_library *lib, dv_operator *op);
void dv__operator_free(dv_operator *op);
/* The full name of the operator that a declaration in a library of namespace ns refers to; the caller frees it with dv__free().
 */
int dv__declared_name(const char *ns, const dv_operator_decl *decl, char **out);
/* Check that a declaration in a library of kernels has kernels, and no field that only the operator's own library may set. */
int dv__vendor_check(const char *name, const dv_operator_decl *decl);
/* Bind a declaration's rows to an operator. */
int dv__rows_make(
    const dv_operator *op, const dv_operator_decl *decl, const char *provider, bool vendor, dv__arena *arena, dv__row_set *out);
void dv__attachment_free(dv__attachment *a);

/* ---- policy.c, base.c ---- */

int dv__policy_init(void); /* reads the environment once; DV_EINVAL when it is wrong */

#endif
