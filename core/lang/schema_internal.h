/* The tables of the schema language, shared by the schema_*.c files. */
#ifndef DV_LANG_SCHEMA_INTERNAL_H
#define DV_LANG_SCHEMA_INTERNAL_H

#include "lang/lexer.h"
#include "lang/schema.h"

/* X(PyTorch's number, name in a schema): the element types of PyTorch that DV_DTYPES lacks: quantised ones and raw bits. */
/* clang-format off */
#define DV__OTHER_SCALAR_TYPES(X)                                                                                             \
    X(12, "qint8") X(13, "quint8") X(14, "qint32") X(16, "quint4x2") X(17, "quint2x4") X(18, "bits1x8") X(19, "bits2x4")      \
    X(20, "bits4x2") X(21, "bits8") X(22, "bits16") X(32, "uint3") X(34, "uint5") X(35, "uint6") X(36, "uint7") X(39, "int3") \
    X(41, "int5") X(42, "int6") X(43, "int7")
/* clang-format on */

/* X(PyTorch's name, DLPack's number or 0): the types of devices that a schema may name */
/* clang-format off */
#define DV__DEVICES(X)                                                                                                        \
    X("cpu", 1) X("cuda", 2) X("ipu", 0) X("xpu", 14) X("mkldnn", 0) X("opengl", 0) X("opencl", 4) X("ideep", 0) X("hip", 10) \
    X("ve", 0) X("fpga", 0) X("maia", 17) X("xla", 0) X("lazy", 0) X("vulkan", 7) X("mps", 8) X("meta", DV_META) X("hpu", 0)  \
    X("mtia", 0) X("privateuseone", DV_NPU)
/* clang-format on */

/* The keywords of TorchScript: no name in a schema can be one of them. */
/* clang-format off */
#define DV__SCHEMA_KEYWORDS(X)                                                                                                \
    X("def") X("if") X("else") X("elif") X("while") X("return") X("is") X("True") X("False") X("None") X("and") X("or")       \
    X("not") X("global") X("for") X("in") X("raise") X("assert") X("break") X("continue") X("del") X("pass") X("class")       \
    X("import") X("with") X("as") X("Ellipsis") X("NoneType")
/* clang-format on */

/* ---- schema_default.c ---------------------------------------------------------------------------------------------------- */

/* Parses the default at the lexer's current token, for an argument of this type. As in PyTorch's parser, int a=1.5 is accepted
 * here. Returns a status. */
int dv__default_parse(dv__lexer *lx, dv__arena *arena, const dv__type *type, dv__default *out);
/* True if the default has a value of the type. */
bool dv__default_fits_type(const dv__default *def, const dv__type *type);
void dv__float_print(double d, dv__strbuf *to); /* prints as PyTorch does: 1., 0.5, 1e+20 */
void dv__float_json(double d, dv__strbuf *to);

/* ---- schema_type.c ------------------------------------------------------------------------------------------------------- */

/* Parses the type and alias annotation at the current token, up to the "[" of a list with a size, int[3]. Returns a status. */
int dv__type_parse(dv__lexer *lx, dv__arena *arena, unsigned *next_alias_id, const dv__type **type, const dv__alias **alias);
/* Parses the alias annotation (a!) or ! at the current token; *out is NULL if there is none. Returns a status. */
int dv__alias_parse(dv__lexer *lx, dv__arena *arena, unsigned *next_alias_id, dv__alias **out);
/* Returns "; did you mean 'float'?" for the name of a type that does not exist, or "". */
const char *dv__type_print_hint(const char *name, char *buffer, size_t size);
const dv__type *dv__type_strip_lists_and_optionals(const dv__type *t); /* returns the type without any ? and [] around it */
bool dv__type_is_type_variable(const dv__type *t); /* true for a name in lower case: PyTorch reads it as a type variable */
dv__type *dv__type_new_container(dv__arena *arena, enum dv__type_kind kind, const dv__type *elem, int64_t fixed_size);
/* Makes the annotation of an element part of its container's, as in Tensor(a)[](b). Returns a status. */
int dv__alias_wrap_element(dv__arena *arena, const dv__alias *element, dv__alias **container);
bool dv__aliases_are_equal(const dv__alias *a, const dv__alias *b); /* NULL is fine */
bool dv__types_are_equal(const dv__type *a, const dv__type *b);
bool dv__type_is_subtype(const dv__type *sub,
    const dv__type *super); /* true if PyTorch's isSubtypeOf() holds for the types as its interpreter sees them */
/* Parses a name: an identifier that is not a keyword. *out is in the arena. expected: noun for the message. Returns a
 * status. */
int dv__schema_parse_name(dv__lexer *lx, dv__arena *arena, const char *expected, const char **out);

/* A growing array of n elements in an arena. */
typedef struct dv__vec {
    void *data;
    size_t n, capacity;
} dv__vec;
void *dv__vec_push(dv__vec *v, dv__arena *arena, size_t element_size); /* returns a zeroed new element; NULL: out of memory */

#endif
