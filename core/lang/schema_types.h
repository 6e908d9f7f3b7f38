/* The tables of the schema language, shared by the schema_*.c files. */
#ifndef DV_LANG_SCHEMA_TYPES_H
#define DV_LANG_SCHEMA_TYPES_H

#include "lang/lexer.h"
#include "lang/schema.h"

/* X(word in a schema, enum dv__type_kind, as PyTorch prints it). OTHER: a frame cannot hold it. */
#define DV__BASE_TYPES(X)                            \
    X("Tensor", TENSOR, "Tensor")                    \
    X("int", INT, "int")                             \
    X("DeviceIndex", INT, "int")                     \
    X("ConstQuantizerPtr", INT, "int")               \
    X("SymInt", SYMINT, "SymInt")                    \
    X("float", FLOAT, "float")                       \
    X("bool", BOOL, "bool")                          \
    X("SymBool", SYMBOOL, "SymBool")                 \
    X("str", STR, "str")                             \
    X("Scalar", SCALAR, "Scalar")                    \
    X("complex", COMPLEX, "complex")                 \
    X("ScalarType", SCALAR_TYPE, "ScalarType")       \
    X("Device", DEVICE, "Device")                    \
    X("Layout", LAYOUT, "Layout")                    \
    X("MemoryFormat", MEMORY_FORMAT, "MemoryFormat") \
    X("Generator", GENERATOR, "Generator")           \
    X("Storage", OTHER, "Storage")                   \
    X("QScheme", OTHER, "QScheme")                   \
    X("Quantizer", OTHER, "Quantizer")               \
    X("Stream", OTHER, "Stream")                     \
    X("None", OTHER, "NoneType")                     \
    X("NoneType", OTHER, "NoneType")                 \
    X("Capsule", OTHER, "Capsule")                   \
    X("PyObject", OTHER, "PyObject")                 \
    X("Any", OTHER, "Any")                           \
    X("AnyClassType", OTHER, "AnyClassType")         \
    X("AnyEnumType", OTHER, "AnyEnumType")

/* X(PyTorch's number, name in a schema): the element types of PyTorch that DV_DTYPES has not, quantised ones and raw bits. */
/* clang-format off */
#define DV__OTHER_SCALAR_TYPES(X)                                                                                             \
    X(12, "qint8") X(13, "quint8") X(14, "qint32") X(16, "quint4x2") X(17, "quint2x4") X(18, "bits1x8") X(19, "bits2x4")      \
    X(20, "bits4x2") X(21, "bits8") X(22, "bits16") X(32, "uint3") X(34, "uint5") X(35, "uint6") X(36, "uint7") X(39, "int3") \
    X(41, "int5") X(42, "int6") X(43, "int7")
/* clang-format on */

/* X(PyTorch's name, DLPack's number or 0 when it has none) */
/* clang-format off */
#define DV__DEVICES(X)                                                                                                        \
    X("cpu", 1) X("cuda", 2) X("ipu", 0) X("xpu", 14) X("mkldnn", 0) X("opengl", 0) X("opencl", 4) X("ideep", 0) X("hip", 10) \
    X("ve", 0) X("fpga", 0) X("maia", 17) X("xla", 0) X("lazy", 0) X("vulkan", 7) X("mps", 8) X("meta", DV_META) X("hpu", 0)  \
    X("mtia", 0) X("privateuseone", DV_NPU)
/* clang-format on */

/* Words that TorchScript's lexer keeps for itself: no name in a schema can be one of them. */
/* clang-format off */
#define DV__SCHEMA_KEYWORDS(X)                                                                                                \
    X("def") X("if") X("else") X("elif") X("while") X("return") X("is") X("True") X("False") X("None") X("and") X("or")       \
    X("not") X("global") X("for") X("in") X("raise") X("assert") X("break") X("continue") X("del") X("pass") X("class")       \
    X("import") X("with") X("as") X("Ellipsis") X("NoneType")
/* clang-format on */

/* ---- schema_default.c ---- */

/* The default at the lexer's current token, for an argument of this type: as PyTorch's parser, so int a=1.5 is fine here. */
int dv__default_parse(dv__lexer *lx, dv__arena *arena, const dv__type *type, dv__default *out);
/* Does the value fit the type? (For validation.) */
bool dv__default_fits(const dv__default *def, const dv__type *type);
void dv__float_print(double d, dv__text *to); /* as PyTorch does: 1., 0.5, 1e+20 */
void dv__float_json(double d, dv__text *to);

/* ---- schema_type.c ---- */

/* Type and alias annotation at the current token, without int[3]'s size. */
int dv__type_parse(dv__lexer *lx, dv__arena *arena, unsigned *fresh, const dv__type **type, const dv__alias **alias);
/* (a!) or ! at the current token; *out is NULL when there is none. */
int dv__alias_parse(dv__lexer *lx, dv__arena *arena, unsigned *fresh, dv__alias **out);
/* Returns "; did you mean 'float'?" for the name of a type that does not exist, or "". */
const char *dv__type_hint(const char *name, char *buffer, size_t size);
const dv__type *dv__type_bare(const dv__type *t); /* without ? and [] */
bool dv__type_is_unknown(const dv__type *t);      /* true for a name in lower case: PyTorch reads it as a type variable */
dv__type *dv__type_wrap(dv__arena *arena, enum dv__type_kind kind, const dv__type *elem, int64_t fixed_size);
/* A list in the sense of Tensor(a)[](b): the element's annotation becomes part of the container's. */
int dv__alias_contain(dv__arena *arena, const dv__alias *element, dv__alias **container);
bool dv__alias_equal(const dv__alias *a, const dv__alias *b); /* NULL is fine */
bool dv__type_equal(const dv__type *a, const dv__type *b);
bool dv__type_is_subtype(
    const dv__type *sub, const dv__type *super); /* PyTorch's isSubtypeOf, on what arguments look like to it */
/* A name: an identifier that is not a keyword. *out is in the arena. what: for the message. */
int dv__schema_name(dv__lexer *lx, dv__arena *arena, const char *what, const char **out);

/* A growing array in an arena. */
typedef struct dv__vec {
    void *data;
    size_t n, room;
} dv__vec;
void *dv__vec_add(dv__vec *v, dv__arena *arena, size_t size); /* a zeroed new element; NULL: out of memory */

#endif
