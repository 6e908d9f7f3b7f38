/* PyTorch's function schemas: parse, print as str(torch._C.parse_schema(s)) does, compare, infer from a struct.
 *
 * A schema lives in one arena with everything that it points to, and never changes after parsing. */
#ifndef DV_LANG_SCHEMA_H
#define DV_LANG_SCHEMA_H

#include "base/memory.h"
#include "base/strbuf.h"

enum dv__type_kind {
#define TYPE(id, ...) DV__TYPE_##id,
#define KIND(id, ...) DV__TYPE_##id,
#include "lang/types.def"
};

typedef struct dv__type {
    enum dv__type_kind kind;
    int64_t fixed_size; /* N of int[N]; -1: another type */
    const char *name;   /* the type's name, as printed; NULL for a type that is made of elems */
    const struct dv__type *const *elems;
    size_t nelems;
} dv__type;

/* A row of types.def, which explains its columns. In rows of kinds that no schema names, the columns about schema types are
 * 0. */
typedef struct dv__type_row {
    const char *json, *text;
    uint8_t field, contract, fake, order; /* an enum dv_field_type, two enum dv__type_kind, a sort key in unions */
    bool can_be_key;
    dv__type type; /* the schema type */
} dv__type_row;
extern const dv__type_row dv__type_rows[]; /* one row for each enum dv__type_kind, by its value */
#define DV__BASE_TYPE(id) (&dv__type_rows[DV__TYPE_##id].type)

/* An alias annotation, (a! -> b|*). An argument without one has NULL. An optional, Tensor(a!)?, has the annotation of its type;
 * a list has one of its own, beside its elements'. */
typedef struct dv__alias {
    bool write;
    const char *const *before, *const *after; /* names of alias sets before and after the call, in the order in which PyTorch
                                                 prints them; "*" is the wildcard */
    size_t nbefore, nafter;
    const struct dv__alias *element; /* the elements' annotation in Tensor(a!)[] (PyTorch's "contained types"); NULL: none */
} dv__alias;

/* The default of an argument, converted to the argument's type if possible. PyTorch accepts int a=1.5, dv__schema_validate()
 * does not. */
typedef struct dv__default {
    bool is_set;
    const char *text; /* the default as PyTorch prints it */
    dv_value value;   /* the default's value; DV_VALUE_NONE for None; lists point into the arena */
} dv__default;

typedef struct dv__argument {
    const char *name; /* "" for an unnamed return */
    const dv__type *type;
    const dv__alias *alias;
    bool kwarg_only;
    dv__default def;
} dv__argument;

typedef struct dv__schema {
    dv__arena arena;
    const char *ns;       /* the namespace; "" if not given */
    const char *name;     /* without namespace and overload */
    const char *overload; /* "" for the default overload */
    const dv__argument *args, *returns;
    size_t nargs, nreturns;
    bool vararg, varret; /* true if the arguments, or the returns, end with '...' */
    uint32_t nstars;     /* number of '*' among the arguments: PyTorch accepts any number */
    const char *text;    /* the schema's canonical text, as PyTorch prints it */
} dv__schema;

/* Parses a schema. Accepts and refuses what torch._C.parse_schema does (exceptions: docs/schema.md). Fails with DV_ESYNTAX, the
 * column and what was expected. */
int dv__schema_parse(const char *text, dv__schema **out);
int dv__schema_parse_in_namespace(
    const char *ns, const char *text, dv__schema **out); /* ns: the namespace if the text has none */
void dv__schema_free(dv__schema *s);                     /* s may be NULL */
void dv__schema_print(const dv__schema *s, dv__strbuf *to);
void dv__type_print(const dv__type *t, dv__strbuf *to);
bool dv__type_has_tensors(const dv__type *t); /* true for Tensor, also inside of ? and [] */
/* True if values of this type (enum dv_value_type) have a size and elements. */
static inline bool dv__value_type_is_list(uint32_t value) { return dv_field_of_value(value)->form == DV_FORM_LIST; }
void dv__schema_json(const dv__schema *s, dv__strbuf *to);
bool dv__schemas_are_equal(const dv__schema *a, const dv__schema *b); /* compares structure, not text */
/* Checks at registration, beyond the grammar: unique argument names, defaults that fit, one '*', valid alias sets.
 * DV_ESCHEMA names the argument. */
int dv__schema_validate(const dv__schema *s);
int dv__schema_check_compatible(const dv__schema *newer,
    const dv__schema *older); /* fails with DV_ESCHEMA and the reason if callers of `older` cannot call `newer` */
/* Infers the schema of an operator that declares none, from its struct and its mutated fields ("a, b", may be NULL). The caller
 * frees *text with dv__free(). */
int dv__schema_infer(const char *name, const dv_field_decl *const *fields, const char *mutates, char **text);

/* Returns the index of the argument with this name; -1: there is none. */
int dv__schema_find_argument_index(const dv__schema *s, const char *name);
/* True if the argument, a tensor or a list, is written: (a!). */
static inline bool dv__argument_is_written(const dv__argument *a)
{
    return a->alias && (a->alias->write || (a->alias->element && a->alias->element->write));
}

#endif
