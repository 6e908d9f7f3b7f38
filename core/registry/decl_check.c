/* Checks the descriptor that a binary exports against the ABI that this runtime knows. Each struct begins with its size. The
 * fields of version 1.0 must exist. Later fields that this runtime knows may be missing, and then read as zero. Bytes behind
 * all known fields must be zero. A struct is read only after its extent was checked. */
#include <stdio.h>

#include "base/error.h"
#include "registry/binary.h"
#include "registry/elf_check.h"

/* Sizes of the structs in version 1.0, up to the end of their last field in that version. Never changed. */
#define END_OF(T, field) (offsetof(T, field) + sizeof(((T *)0)->field))
enum {
    LIBRARY_SIZE_1_0 = END_OF(dv_library_decl, operators),
    OPERATOR_SIZE_1_0 = END_OF(dv_operator_decl, shape),
    FIELD_SIZE_1_0 = END_OF(dv_field_decl, offset),
    KERNEL_SIZE_1_0 = END_OF(dv_kernel_decl, reserved),
    MAX_STRUCT_SIZE = 4096, /* bytes; no struct of any minor version will be larger */
    MAX_OPERATORS = 65536,
    MAX_TABLE_ENTRIES = 4096,
    MAX_STRING_SIZE = 1 << 20,
};

typedef struct decl_checker {
    const char *message_prefix;
    const dv__segment *segments;
    size_t nsegments;
    char context[512];
} decl_checker;

static int decl_fail(const decl_checker *c, int status, const char *format, ...) DV__PRINTF(3, 4);
static int decl_fail(const decl_checker *c, int status, const char *format, ...)
{
    char what[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    return dv_fail(status, "%s: %s%s", c->message_prefix, c->context, what);
}

/* Returns how many bytes from p on may be read: those up to the end of the segment that holds p. SIZE_MAX if no segments are
 * given; 0 for NULL or an address outside all segments. */
static size_t decl_count_readable_bytes(const decl_checker *c, const void *p)
{
    const char *at = p;
    for (size_t i = 0; i < c->nsegments; i++)
        if (at >= c->segments[i].start && at < c->segments[i].start + c->segments[i].size)
            return (size_t)(c->segments[i].start + c->segments[i].size - at);
    return p && !c->nsegments ? SIZE_MAX : 0;
}

static int decl_check_pointer(const decl_checker *c, const char *name_for_message, const void *p, size_t size, size_t alignment)
{
    if (!p)
        return decl_fail(c, DV_EBINARY, "%s is NULL", name_for_message);
    if ((uintptr_t)p % alignment || decl_count_readable_bytes(c, p) < size)
        return decl_fail(c, DV_EBINARY, "corrupt: %s points outside the binary", name_for_message);
    return DV_OK;
}

static int decl_check_string(const decl_checker *c, const char *name_for_message, const char *s)
{
    if (!s)
        return DV_OK;
    size_t capacity = decl_count_readable_bytes(c, s);
    if (!capacity)
        return decl_fail(c, DV_EBINARY, "corrupt: %s points outside the binary", name_for_message);
    if (capacity > MAX_STRING_SIZE)
        capacity = MAX_STRING_SIZE;
    return memchr(s, 0, capacity) ? DV_OK : decl_fail(c, DV_EBINARY, "corrupt: %s does not end", name_for_message);
}

/* Fails unless the struct p begins with its size in bytes, the size is at least min_size, and all its bytes may be read. */
static int decl_check_size(const decl_checker *c, const char *type_name, const void *p, size_t min_size)
{
    uint32_t size;
    int status = decl_check_pointer(c, type_name, p, sizeof size, _Alignof(void *));
    if (status)
        return status;
    memcpy(&size, p, sizeof size);
    if (size < min_size)
        return decl_fail(
            c, DV_EABI, "%s has %u bytes, ABI 1.0 has %zu: an unfinished or corrupt binary", type_name, size, min_size);
    if (size > MAX_STRUCT_SIZE || decl_count_readable_bytes(c, p) < size)
        return decl_fail(c, DV_EBINARY, "corrupt: %s of %u bytes", type_name, size);
    return DV_OK;
}

/* Fails with DV_EABI unless the bytes of the struct p from known_size on are zero. The size of p must have been checked
 * before. */
static int decl_check_unknown_tail_is_zero(const decl_checker *c, const char *type_name, const void *p, size_t known_size)
{
    uint32_t size;
    memcpy(&size, p, sizeof size);
    for (size_t i = known_size; i < size; i++)
        if (((const unsigned char *)p)[i])
            return decl_fail(c, DV_EABI, "%s uses byte %zu, this runtime (ABI %d.%d) knows %zu: a newer dovetail is needed",
                type_name, i, DV_ABI_MAJOR, DV_ABI_MINOR, known_size);
    return DV_OK;
}

static int decl_check_struct(const decl_checker *c, const char *type_name, const void *p, size_t min_size, size_t known_size)
{
    const int status = decl_check_size(c, type_name, p, min_size);
    return status ? status : decl_check_unknown_tail_is_zero(c, type_name, p, known_size);
}

/* Validates a NULL-terminated table of at most max_entries pointers; `table` NULL is an empty one. *nentries: its length.
 * Returns a status. */
static int decl_check_pointer_table(
    const decl_checker *c, const char *name_for_message, const void *const *table, size_t max_entries, size_t *nentries)
{
    *nentries = 0;
    if (!table)
        return DV_OK;
    int status = decl_check_pointer(c, name_for_message, table, sizeof *table, _Alignof(void *));
    if (status)
        return status;
    const size_t capacity = decl_count_readable_bytes(c, table) / sizeof *table;
    while (*nentries < capacity && *nentries <= max_entries && table[*nentries])
        ++*nentries;
    if (*nentries > max_entries)
        return decl_fail(
            c, DV_EBINARY, "%s has more than %zu entries: is its closing NULL missing?", name_for_message, max_entries);
    return *nentries < capacity ? DV_OK : decl_fail(c, DV_EBINARY, "corrupt: %s does not end", name_for_message);
}

/* ---- Fields, kernels, operators ------------------------------------------------------------------------------------------ */

static int decl_check_field(const decl_checker *c, const dv_operator_decl *op, size_t field_index, const dv_field_decl *f)
{
    int status = decl_check_struct(c, "dv_field_decl", f, FIELD_SIZE_1_0, sizeof *f);
    if (!status && !f->name)
        status = decl_fail(c, DV_EBINARY, "field %zu has no name", field_index);
    if (!status)
        status = decl_check_string(c, "the name of a field", f->name);
    if (status)
        return status;
    const dv_field_row *type_row = dv_field_at(f->type);
    if (!type_row->size)
        return decl_fail(c, DV_EABI, "field '%s' has type number %u, which this runtime (ABI %d.%d) does not know", f->name,
            f->type, DV_ABI_MAJOR, DV_ABI_MINOR);
    if (f->offset % type_row->alignment || f->offset > op->frame_size || op->frame_size - f->offset < type_row->size)
        return decl_fail(c, DV_EBINARY, "field '%s' (%zu bytes at %zu) is not inside its struct of %u bytes", f->name,
            type_row->size, f->offset, op->frame_size);
    return DV_OK;
}

static int decl_check_kernel(const decl_checker *c, size_t kernel_index, const dv_kernel_decl *k)
{
    int status = decl_check_struct(c, "dv_kernel_decl", k, KERNEL_SIZE_1_0, sizeof *k);
    if (status)
        return status;
    const struct {
        const char *what, *s;
    } strings[] = { { "the name of a kernel", k->name }, { "the device of a kernel", k->device },
        { "the dtypes of a kernel", k->dtypes }, { "the isa of a kernel", k->isa }, { "when of a kernel", k->when },
        { "takes of a kernel", k->takes }, { "the provider of a kernel", k->provider } };
    for (size_t s = 0; s < sizeof strings / sizeof *strings; s++)
        if ((status = decl_check_string(c, strings[s].what, strings[s].s)))
            return status;
    const char *name = k->name ? k->name : "(unnamed)";
    if (!k->run)
        return DV_OK; /* a kernel without a function is ignored */
    if (k->flags & ~(uint32_t)(DV_KERNEL_REFERENCE | DV_KERNEL_FOREIGN) || k->reserved)
        return decl_fail(c, DV_EABI, "kernel %zu, '%s': flags %#x are not known to this runtime (ABI %d.%d)", kernel_index, name,
            k->flags, DV_ABI_MAJOR, DV_ABI_MINOR);
    if (k->split < 0)
        return decl_fail(
            c, DV_EBINARY, "kernel %zu, '%s': .split is %lld, expected 0 or more", kernel_index, name, (long long)k->split);
    return DV_OK;
}

static int decl_check_operator(decl_checker *c, size_t operator_index, const dv_operator_decl *op)
{
    size_t n;
    snprintf(c->context, sizeof c->context, "operator %zu: ", operator_index);
    int status = decl_check_size(c, "dv_operator_decl", op, OPERATOR_SIZE_1_0);
    if (!status && !op->name)
        status = decl_fail(c, DV_EBINARY, "it has no name");
    if (!status)
        status = decl_check_string(c, "its name", op->name);
    if (status)
        return status;
    snprintf(c->context, sizeof c->context, "operator %.200s: ", op->name);
    if ((status = decl_check_unknown_tail_is_zero(c, "dv_operator_decl", op, sizeof *op)))
        return status;
#define CHECK_TEXT(name, who)                                 \
    if ((status = decl_check_string(c, "." #name, op->name))) \
        return status;
    DV_OPERATOR_TEXTS(CHECK_TEXT)
#undef CHECK_TEXT
    if (op->flags)
        return decl_fail(
            c, DV_EABI, "flags %#x are not known to this runtime (ABI %d.%d)", op->flags, DV_ABI_MAJOR, DV_ABI_MINOR);
    if (op->frame_size > 1 << 20)
        return decl_fail(c, DV_EBINARY, "a struct of %u bytes", op->frame_size);
    if ((status = decl_check_pointer_table(c, ".fields", (const void *const *)op->fields, MAX_TABLE_ENTRIES, &n)))
        return status;
    for (size_t j = 0; j < n; j++)
        if ((status = decl_check_field(c, op, j, op->fields[j])))
            return status;
    if ((status = decl_check_pointer_table(c, ".kernels", (const void *const *)op->kernels, MAX_TABLE_ENTRIES, &n)))
        return status;
    for (size_t j = 0; j < n; j++)
        if ((status = decl_check_kernel(c, j, op->kernels[j])))
            return status;
    return DV_OK;
}

int dv__loaded_library_check_abi(
    const dv_library_decl *decl, const char *message_prefix, const dv__segment *segments, size_t nsegments)
{
    decl_checker c = { .message_prefix = message_prefix, .segments = segments, .nsegments = nsegments };
    size_t n;
    int status = decl_check_struct(&c, "dv_library_decl", decl, LIBRARY_SIZE_1_0, sizeof *decl);
    if (!status && !decl->name)
        status = decl_fail(&c, DV_EBINARY, "the library has no name");
    if (!status)
        status = decl_check_string(&c, "the library's name", decl->name);
    if (!status)
        status = decl_check_string(&c, "the library's version", decl->version);
    if (!status)
        status = decl_check_string(&c, "the library's provider", decl->provider);
    if (status)
        return status;
    if (decl->kind > DV_LIBRARY_IMPL || decl->reserved)
        return decl_fail(
            &c, DV_EABI, "library kind %u is not known to this runtime (ABI %d.%d)", decl->kind, DV_ABI_MAJOR, DV_ABI_MINOR);
    if ((status = decl_check_pointer_table(
             &c, "the table of operators", (const void *const *)decl->operators, MAX_OPERATORS, &n)))
        return status;
    for (size_t i = 0; i < n; i++)
        if ((status = decl_check_operator(&c, i, decl->operators[i])))
            return status;
    return DV_OK;
}

int dv__static_library_check_abi(const dv_library_decl *decl, const char *message_prefix)
{
    return dv__loaded_library_check_abi(decl, message_prefix, NULL, 0);
}
