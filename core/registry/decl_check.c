/* The descriptor that a binary exports, checked against the ABI that this runtime knows.
 *
 * Each struct begins with its size. The fields of version 1.0 must exist; later fields that this runtime knows may be missing,
 * and then read as zero; bytes beyond those must be zero. Nothing is read before its extent was checked. */
#include <stdio.h>

#include "base/error.h"
#include "registry/binary.h"
#include "registry/elf_check.h"

/* Sizes of version 1.0: up to the end of what was the last field then. Frozen. */
#define END_OF(T, field) (offsetof(T, field) + sizeof(((T *)0)->field))
enum {
    FIRST_LIBRARY = END_OF(dv_library_decl, operators),
    FIRST_OPERATOR = END_OF(dv_operator_decl, shape),
    FIRST_FIELD = END_OF(dv_field_decl, offset),
    FIRST_KERNEL = END_OF(dv_kernel_decl, reserved),
    LARGEST = 4096, /* no struct of any minor will be larger */
    MOST_OPERATORS = 65536,
    MOST_ROWS = 4096,
    LONGEST_STRING = 1 << 20,
};

typedef struct checker {
    const char *where;
    const dv__span *spans;
    size_t nspans;
    char context[512];
} checker;

static int fail(const checker *c, int status, const char *format, ...) DV__PRINTF(3, 4);
static int fail(const checker *c, int status, const char *format, ...)
{
    char what[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    return dv_fail(status, "%s: %s%s", c->where, c->context, what);
}

/* How many bytes from p may be read; without spans, everything. */
static size_t readable(const checker *c, const void *p)
{
    const char *at = p;
    for (size_t i = 0; i < c->nspans; i++)
        if (at >= c->spans[i].start && at < c->spans[i].start + c->spans[i].size)
            return (size_t)(c->spans[i].start + c->spans[i].size - at);
    return p && !c->nspans ? SIZE_MAX : 0;
}

static int check_pointer(const checker *c, const char *what, const void *p, size_t size, size_t alignment)
{
    if (!p)
        return fail(c, DV_EBINARY, "%s is NULL", what);
    if ((uintptr_t)p % alignment || readable(c, p) < size)
        return fail(c, DV_EBINARY, "corrupt: %s points outside the binary", what);
    return DV_OK;
}

static int check_string(const checker *c, const char *what, const char *s)
{
    if (!s)
        return DV_OK;
    size_t room = readable(c, s);
    if (!room)
        return fail(c, DV_EBINARY, "corrupt: %s points outside the binary", what);
    if (room > LONGEST_STRING)
        room = LONGEST_STRING;
    return memchr(s, 0, room) ? DV_OK : fail(c, DV_EBINARY, "corrupt: %s does not end", what);
}

/* Check that p begins with its size, which is at least `first`. */
static int check_size(const checker *c, const char *type, const void *p, size_t first)
{
    uint32_t size;
    int status = check_pointer(c, type, p, sizeof size, _Alignof(void *));
    if (status)
        return status;
    memcpy(&size, p, sizeof size);
    if (size < first)
        return fail(c, DV_EABI, "%s has %u bytes, ABI 1.0 has %zu: an unfinished or corrupt binary", type, size, first);
    if (size > LARGEST || readable(c, p) < size)
        return fail(c, DV_EBINARY, "corrupt: %s of %u bytes", type, size);
    return DV_OK;
}

/* Check that the bytes of p beyond those that this runtime knows are zero. p's size was checked before. */
static int check_tail(const checker *c, const char *type, const void *p, size_t known)
{
    uint32_t size;
    memcpy(&size, p, sizeof size);
    for (size_t i = known; i < size; i++)
        if (((const unsigned char *)p)[i])
            return fail(c, DV_EABI, "%s uses byte %zu, this runtime (ABI %d.%d) knows %zu: a newer dovetail is needed", type, i,
                DV_ABI_MAJOR, DV_ABI_MINOR, known);
    return DV_OK;
}

static int check_struct(const checker *c, const char *type, const void *p, size_t first, size_t known)
{
    const int status = check_size(c, type, p, first);
    return status ? status : check_tail(c, type, p, known);
}

/* Check a NULL-terminated table and set *n to its length. */
static int check_table(const checker *c, const char *what, const void *const *table, size_t most, size_t *n)
{
    *n = 0;
    if (!table)
        return DV_OK;
    int status = check_pointer(c, what, table, sizeof *table, _Alignof(void *));
    if (status)
        return status;
    const size_t room = readable(c, table) / sizeof *table;
    while (*n < room && *n <= most && table[*n])
        ++*n;
    if (*n > most)
        return fail(c, DV_EBINARY, "%s has more than %zu entries: is its closing NULL missing?", what, most);
    return *n < room ? DV_OK : fail(c, DV_EBINARY, "corrupt: %s does not end", what);
}

/* ---- Fields, kernels, operators ------------------------------------------------------------------------------------------ */

static int check_field(const checker *c, const dv_operator_decl *op, size_t i, const dv_field_decl *f)
{
    int status = check_struct(c, "dv_field_decl", f, FIRST_FIELD, sizeof *f);
    if (!status && !f->name)
        status = fail(c, DV_EBINARY, "field %zu has no name", i);
    if (!status)
        status = check_string(c, "the name of a field", f->name);
    if (status)
        return status;
    const dv_field_row *row = dv_field_at(f->type);
    if (!row->size)
        return fail(c, DV_EABI, "field '%s' has type number %u, which this runtime (ABI %d.%d) does not know", f->name, f->type,
            DV_ABI_MAJOR, DV_ABI_MINOR);
    if (f->offset % row->alignment || f->offset > op->frame_size || op->frame_size - f->offset < row->size)
        return fail(c, DV_EBINARY, "field '%s' (%zu bytes at %zu) is not inside its struct of %u bytes", f->name, row->size,
            f->offset, op->frame_size);
    return DV_OK;
}

static int check_kernel(const checker *c, size_t i, const dv_kernel_decl *k)
{
    int status = check_struct(c, "dv_kernel_decl", k, FIRST_KERNEL, sizeof *k);
    if (status)
        return status;
    const struct {
        const char *what, *s;
    } strings[] = { { "the name of a kernel row", k->name }, { "the device of a kernel row", k->device },
        { "the dtypes of a kernel row", k->dtypes }, { "the isa of a kernel row", k->isa }, { "when of a kernel row", k->when },
        { "takes of a kernel row", k->takes }, { "the provider of a kernel row", k->provider } };
    for (size_t s = 0; s < sizeof strings / sizeof *strings; s++)
        if ((status = check_string(c, strings[s].what, strings[s].s)))
            return status;
    const char *name = k->name ? k->name : "(unnamed)";
    if (!k->run)
        return DV_OK; /* ignored */
    if (k->flags & ~(uint32_t)(DV_KERNEL_REFERENCE | DV_KERNEL_LIST) || k->reserved)
        return fail(c, DV_EABI, "kernel row %zu, '%s': flags %#x are not known to this runtime (ABI %d.%d)", i, name, k->flags,
            DV_ABI_MAJOR, DV_ABI_MINOR);
    if (k->split < 0)
        return fail(c, DV_EBINARY, "kernel row %zu, '%s': .split is %lld, expected 0 or more", i, name, (long long)k->split);
    return DV_OK;
}

static int check_operator(checker *c, size_t i, const dv_operator_decl *op)
{
    size_t n;
    snprintf(c->context, sizeof c->context, "operator %zu: ", i);
    int status = check_size(c, "dv_operator_decl", op, FIRST_OPERATOR);
    if (!status && !op->name)
        status = fail(c, DV_EBINARY, "it has no name");
    if (!status)
        status = check_string(c, "its name", op->name);
    if (status)
        return status;
    snprintf(c->context, sizeof c->context, "operator %.200s: ", op->name);
    if ((status = check_tail(c, "dv_operator_decl", op, sizeof *op)))
        return status;
#define TEXT(name, who)                                  \
    if ((status = check_string(c, "." #name, op->name))) \
        return status;
    DV_OPERATOR_TEXTS(TEXT)
#undef TEXT
    if (op->flags)
        return fail(c, DV_EABI, "flags %#x are not known to this runtime (ABI %d.%d)", op->flags, DV_ABI_MAJOR, DV_ABI_MINOR);
    if (op->frame_size > 1 << 20)
        return fail(c, DV_EBINARY, "a struct of %u bytes", op->frame_size);
    if ((status = check_table(c, ".fields", (const void *const *)op->fields, MOST_ROWS, &n)))
        return status;
    for (size_t j = 0; j < n; j++)
        if ((status = check_field(c, op, j, op->fields[j])))
            return status;
    if ((status = check_table(c, ".kernels", (const void *const *)op->kernels, MOST_ROWS, &n)))
        return status;
    for (size_t j = 0; j < n; j++)
        if ((status = check_kernel(c, j, op->kernels[j])))
            return status;
    return DV_OK;
}

int dv__decl_check(const dv_library_decl *decl, const char *where, const dv__span *spans, size_t nspans)
{
    checker c = { .where = where, .spans = spans, .nspans = nspans };
    size_t n;
    int status = check_struct(&c, "dv_library_decl", decl, FIRST_LIBRARY, sizeof *decl);
    if (!status && !decl->name)
        status = fail(&c, DV_EBINARY, "the library has no name");
    if (!status)
        status = check_string(&c, "the library's name", decl->name);
    if (!status)
        status = check_string(&c, "the library's version", decl->version);
    if (!status)
        status = check_string(&c, "the library's provider", decl->provider);
    if (status)
        return status;
    if (decl->kind > DV_LIBRARY_IMPL || decl->reserved)
        return fail(
            &c, DV_EABI, "library kind %u is not known to this runtime (ABI %d.%d)", decl->kind, DV_ABI_MAJOR, DV_ABI_MINOR);
    if ((status = check_table(&c, "the table of operators", (const void *const *)decl->operators, MOST_OPERATORS, &n)))
        return status;
    for (size_t i = 0; i < n; i++)
        if ((status = check_operator(&c, i, decl->operators[i])))
            return status;
    return DV_OK;
}

int dv__library_decl_check(const dv_library_decl *decl, const char *where) { return dv__decl_check(decl, where, NULL, 0); }
