/* PyTorch's function schemas: parse, print as str(torch._C.parse_schema(s)) does, compare, infer from a struct.
 *
 * A schema and all that it points to live in one arena and are immutable after parsing. */
#ifndef DV_LANG_SCHEMA_H
#define DV_LANG_SCHEMA_H

#include "base/memory.h"
#include "base/text.h"

/* X(name, JSON name, the field type that holds it; 0: none does). A LIST and an OPTIONAL have elems[0], a TUPLE elems. OTHER is
 * everything that a frame cannot hold (Storage, Stream, Dict, Union, Future, t, __torch__.X...): name is its text. */
/* clang-format off */
#define DV__TYPE_KINDS(X)                                                                                                     \
    X(TENSOR, "tensor", DV_FIELD_TENSOR) X(INT, "int", DV_FIELD_INT) X(SYMINT, "symint", DV_FIELD_INT)                        \
    X(FLOAT, "float", DV_FIELD_FLOAT) X(SYMFLOAT, "symfloat", DV_FIELD_FLOAT) X(BOOL, "bool", DV_FIELD_BOOL)                  \
    X(SYMBOOL, "symbool", DV_FIELD_BOOL) X(STR, "str", DV_FIELD_STRING) X(SCALAR, "scalar", DV_FIELD_SCALAR)                  \
    X(COMPLEX, "complex", DV_FIELD_COMPLEX) X(SCALAR_TYPE, "dtype", DV_FIELD_DTYPE) X(DEVICE, "device", DV_FIELD_DEVICE)      \
    X(LAYOUT, "layout", DV_FIELD_LAYOUT) X(MEMORY_FORMAT, "memory_format", DV_FIELD_MEMORY_FORMAT)                            \
    X(GENERATOR, "generator", DV_FIELD_GENERATOR) X(LIST, "list", 0) X(OPTIONAL, "optional", 0) X(TUPLE, "tuple", 0)          \
    X(OTHER, "other", 0)
/* clang-format on */

enum dv__type_kind {
#define DV__TYPE_KIND(name, json, field) DV__TYPE_##name,
    DV__TYPE_KINDS(DV__TYPE_KIND)
#undef DV__TYPE_KIND
};

typedef struct dv__type {
    enum dv__type_kind kind;
    int64_t fixed_size; /* of LIST: N of int[N], else -1 */
    const char *name;   /* of OTHER: as printed */
    const struct dv__type *const *elems;
    size_t nelems;
} dv__type;

/* (a! -> b|*). NULL in an argument: no annotation. The optional in Tensor(a!)? has no level of its own; a list has. */
typedef struct dv__alias {
    bool write;
    const char *const *before, *const *after; /* set names, in the order in which torch prints them; "*" is the wildcard */
    size_t nbefore, nafter;
    const struct dv__alias *element; /* of Tensor(a!)[]: torch's "contained types"; NULL: none */
} dv__alias;

/* A default, converted to the argument's type if possible (torch accepts int a=1.5; dv__schema_validate() does not). */
typedef struct dv__default {
    bool has;
    const char *text; /* as torch prints it */
    dv_value value;   /* DV_VALUE_NONE for None; lists point into the arena */
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
    const char *ns;       /* "" when not given */
    const char *name;     /* without namespace and overload */
    const char *overload; /* "" for the default one */
    const dv__argument *args, *returns;
    size_t nargs, nreturns;
    bool vararg, varret; /* ... */
    uint32_t stars;      /* how many times '*' stood among the arguments: torch takes any number */
    const char *text;    /* canonical, as torch prints it */
} dv__schema;

/* Accepts and refuses what torch._C.parse_schema does (exceptions: docs/schema.md). DV_ESYNTAX: column and what was expected. */
int dv__schema_parse(const char *text, dv__schema **out);
int dv__schema_parse_in(const char *ns, const char *text, dv__schema **out); /* ns: where the text has no namespace */
void dv__schema_free(dv__schema *s);                                         /* NULL is fine */
void dv__schema_print(const dv__schema *s, dv__text *to);
void dv__type_print(const dv__type *t, dv__text *to);
uint32_t dv__type_field(const dv__type *t); /* enum dv_field_type; 0: no field holds this type alone */
bool dv__is_list(uint32_t value);           /* do values of this type (enum dv_value_type) have a size and elements? */
void dv__schema_json(const dv__schema *s, dv__text *to);
bool dv__schema_equal(const dv__schema *a, const dv__schema *b); /* structure, not text */
/* Checks at registration, beyond the grammar: unique argument names, defaults that fit, one '*', valid alias sets.
 * DV_ESCHEMA names the argument. */
int dv__schema_validate(const dv__schema *s);
int dv__schema_check_compatible(const dv__schema *newer, const dv__schema *older); /* DV_ESCHEMA with the reason */
/* Infer the schema of an operator that declares none, from its struct and its mutated fields ("a, b", may be NULL). The caller
 * frees *text with dv__free(). */
int dv__schema_infer(const char *name, const dv_field_decl *const *fields, const char *mutates, char **text);

/* Index of the argument, or -1. A return's index is nargs + i in what this project calls slots. */
int dv__schema_arg(const dv__schema *s, const char *name);
/* Is this argument written, (a!)? For lists too. */
static inline bool dv__argument_writes(const dv__argument *a)
{
    return a->alias && (a->alias->write || (a->alias->element && a->alias->element->write));
}

#endif
