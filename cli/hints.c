/* Explains compiler errors. For some mistakes the macros of dovetail_op.h cause errors that mention nothing that the author
 * wrote. Each diagnostic ("...: error: ..." and its notes) is compared with a table. The reported location is the first line of
 * the author's file that the diagnostic mentions, or for kernels the line of DV_KERNEL. Only English messages of gcc and clang
 * are understood.
 */
#include "cli.h"

#include <ctype.h>
#include <stdlib.h>

typedef struct source_location {
    const char *file;
    size_t size;
    long line;
} source_location;

/* Returns a copy of the text without terminal escapes, and with ' in place of typographic quotes. The caller frees it. */
static char *hints_copy_without_escapes(const char *s)
{
    char *out = cli_realloc_array(NULL, strlen(s) + 1, 1), *to = out;
    while (*s) {
        if (s[0] == '\033' && s[1] == '[') {
            for (s += 2; *s && !isalpha((unsigned char)*s); s++)
                ;
            s += *s != 0;
        } else if (!strncmp(s, "\xe2\x80\x98", 3) || !strncmp(s, "\xe2\x80\x99", 3)) {
            *to++ = '\'', s += 3;
        } else {
            *to++ = *s++;
        }
    }
    *to = 0;
    return out;
}

/* Reads the file and line number at the beginning of a line such as "file:12:3: error: ...". Returns false if the line has none.
 */
static bool hints_try_read_location(const char *line, size_t size, source_location *out)
{
    for (size_t i = 1; i + 1 < size; i++) {
        if (line[i] != ':' || !isdigit((unsigned char)line[i + 1]))
            continue;
        char *end;
        const long number = strtol(line + i + 1, &end, 10);
        if (*end == ':') {
            *out = (source_location){ line, i, number };
            return true;
        }
    }
    return false;
}

/* True if the location is in a header dovetail_*.h. */
static bool hints_is_dovetail_header(const source_location *p)
{
    const char *name = p->file + p->size;
    while (name > p->file && name[-1] != '/')
        name--;
    const size_t n = (size_t)(p->file + p->size - name);
    return n > 11 && !memcmp(name, "dovetail_", 9) && !memcmp(name + n - 2, ".h", 2);
}

/* Finds the location in the author's file that a diagnostic mentions: the line that expands `macro`, or else the first one. macro
 * may be NULL. Returns false if the diagnostic mentions only Dovetail's headers. */
static bool hints_try_find_author_location(const char *block, size_t size, const char *macro, source_location *out)
{
    bool found = false;
    char *wanted = cli_format("'%s'", macro ? macro : "");
    for (const char *line = block; line < block + size;) {
        const size_t n = strcspn(line, "\n");
        source_location p;
        if (hints_try_read_location(line, n, &p) && !hints_is_dovetail_header(&p)) {
            const char *names = strstr(line, wanted);
            if (!found || (macro && names && names < line + n)) {
                *out = p;
                found = true;
                if (macro && names && names < line + n)
                    break;
            }
        }
        line += n + (line[n] == '\n');
    }
    free(wanted);
    return found;
}

/* Returns a copy of the next text in quotes '...' at or after `after`; "?": there is none. The caller frees it. */
static char *hints_copy_next_quoted(const char *after)
{
    const char *a = strchr(after, '\'');
    const char *b = a ? strchr(a + 1, '\'') : NULL;
    return b ? cli_format("%.*s", (int)(b - a - 1), a + 1) : cli_format("%s", "?");
}

/* Returns advice which type a field of an operator's struct should have in place of this C type. */
static const char *hints_get_type_advice(const char *type)
{
    static const struct {
        const char *part, *advice;
    } rows[] = { { "char", "a string is a dv_string" },
        { "float *", "a tensor is a const dv_tensor * (read) or a dv_tensor * (written)" },
        { "double *", "a tensor is a const dv_tensor * (read) or a dv_tensor * (written)" },
        { "void *", "a tensor is a const dv_tensor * (read) or a dv_tensor * (written)" },
        { "dv_tensor", "a tensor is a const dv_tensor * (read) or a dv_tensor * (written); a list of them is a dv_tensors" },
        { "float", "a number is a double" }, { "long", "an integer is an int64_t" }, { "int", "an integer is an int64_t" },
        { "short", "an integer is an int64_t" }, { "size_t", "an integer is an int64_t" } };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strstr(type, rows[i].part))
            return rows[i].advice;
    return "DV_FIELD_TYPES in dovetail_op.h lists the types that a field can have";
}

/* Adds the line "file:line: message", unless it is there already; a location without file adds the message alone. */
static void hints_add_line(cli_hints *to, const source_location *p, const char *message)
{
    cli_text line = { 0 };
    if (p->file)
        cli_text_appendf(&line, "  %.*s:%ld: %s\n", (int)p->size, p->file, p->line, message);
    else
        cli_text_appendf(&line, "  %s\n", message);
    if (!to->text.data || !strstr(to->text.data, line.data)) { /* clang and the linker repeat some errors */
        cli_text_append_str(&to->text, line.data);
        to->nhints++;
    }
    cli_text_free(&line);
}

/* Returns the struct of the operator that is declared at or after a line of the source, as "struct frame" of "DV_OPERATOR(name,
 * struct frame, (". The caller frees it; NULL: no such declaration. */
static char *hints_copy_struct_name(const char *source, long line)
{
    const char *p = source;
    for (long i = 1; i < line && p; i++)
        p = strchr(p, '\n') ? strchr(p, '\n') + 1 : NULL;
    p = p ? strstr(p, "DV_OPERATOR") : NULL;
    const char *a = p ? strchr(p, ',') : NULL, *b = a ? strchr(a + 1, ',') : NULL;
    if (!b)
        return NULL;
    for (a++; a < b && isspace((unsigned char)*a); a++)
        ;
    while (b > a && isspace((unsigned char)b[-1]))
        b--;
    return cli_format("%.*s", (int)(b - a), a);
}

/* True if the declaration of a struct's member has this type, which is compared up to its first '*': "const char *" as "const
 * char". */
static bool hints_member_has_type(const char *member, const char *type)
{
    member += strspn(member, " \t\n{;");
    for (; *type && *type != '*'; type++) {
        if (isspace((unsigned char)*type))
            continue;
        member += strspn(member, " \t\n");
        if (*member++ != *type)
            return false;
    }
    return !isalnum((unsigned char)*member) && *member != '_';
}

/* Finds the line on which the struct of the operator at location p has a member of this type. Returns false if it is not found.
 */
static bool hints_try_find_member_of_type(const source_location *p, const char *type, source_location *out)
{
    cli_text source = { 0 };
    char *path = cli_format("%.*s", (int)p->size, p->file), *frame = NULL;
    bool found = false;
    if (!cli_read_file(path, &source) && (frame = hints_copy_struct_name(source.data, p->line))) {
        for (const char *s = source.data; !found && (s = strstr(s, frame)); s++) {
            const char *body = s + strlen(frame);
            body += strspn(body, " \t\n");
            if (*body != '{')
                continue;
            for (const char *m = body; m && *m && *m != '}' && !found; m = strpbrk(m + 1, ";}"))
                if (hints_member_has_type(m, type)) {
                    long line = 1;
                    for (const char *c = source.data; c < m + strspn(m, " \t\n{;"); c++)
                        line += *c == '\n';
                    *out = (source_location){ p->file, p->size, line };
                    found = true;
                }
        }
    }
    free(frame);
    free(path);
    cli_text_free(&source);
    return found;
}

/* Explains an error about the type of a _Generic: a struct's field or a kernel's function has a type that no schema type has. */
static void hints_explain_generic_error(const char *block, size_t size, const char *message, cli_hints *out)
{
    source_location p = { 0 };
    char *type = hints_copy_next_quoted(message), *text;
    const char *frame = strstr(type, "dv_context *, const struct "), *loose = strstr(type, "dv_context *, struct ");
    if (!strstr(type, "(*)(")) {
        hints_try_find_author_location(block, size, "DV_OPERATOR", &p);
        source_location member = p;
        if (p.file)
            hints_try_find_member_of_type(&p, type, &member);
        text = cli_format("a field of an operator's struct has the type '%s': %s", type, hints_get_type_advice(type));
        hints_add_line(out, &member, text);
    } else {
        hints_try_find_author_location(block, size, "DV_KERNEL", &p);
        if (frame && !strncmp(type, "int (*)(", 8))
            text = cli_format(
                "this kernel's function takes 'const %.*s *', which is not the struct that the kernel names: a kernel "
                "serves the operator "
                "whose struct it takes",
                (int)strcspn(frame + 20, ")*") - 1, frame + 20);
        else if (loose && !strncmp(type, "int (*)(", 8))
            text = cli_format(
                "the kernel must take its struct as const: 'const %.*s *'", (int)strcspn(loose + 14, ")*") - 1, loose + 14);
        else
            text = cli_format(
                "the kernel has the type '%s': expected 'static int kernel(dv_context *ctx, const struct ... *a)'", type);
        hints_add_line(out, &p, text);
    }
    free(text);
    free(type);
}

#define HINT_PART(name, who) " ." #name
#define HINT_OPERATOR_PARTS DV_OPERATOR_TEXTS(HINT_PART) " .kernels .shape"
#define KERNEL_PARTS \
    "a kernel has no such member; after the function it may have .isa .when .takes .provider .split .priority .flags"
/* Explanations for errors in the line of DV_ELEMENTWISE. */
#define HINT_MACRO "DV_ELEMENTWISE"
#define HINT_VECTORS "the line is compiled for vectors, too: "
#define HINT_OR_PLAIN "; or use " HINT_MACRO "_SCALAR, which takes all of C"
#define HINT_SELECT HINT_VECTORS "write dv_select(x > 0, a, b) instead of `if` or x > 0 ? a : b" HINT_OR_PLAIN
#define HINT_NUMBER "the line is compiled for float and double: write (dv_number)0.1, or (dv_number)frame.scale"
#define HINT_BROADCAST                                                                                                  \
    HINT_VECTORS                                                                                                        \
    "write dv_splat(0), or dv_splat(frame.scale), for a number as a result or a variable; a function must be one that " \
    "dovetail_elementwise.h lists"
#define HINT_FUNCTION                                                                                                   \
    HINT_VECTORS                                                                                                        \
    "call only what dovetail_elementwise.h lists, such as dv_exp(x), and choose by an attribute with frame.flag ? x : " \
    "y" HINT_OR_PLAIN
#define HINT_TENSOR_FIELD \
    "a list of " HINT_MACRO " names a field that is not a tensor: an attribute is written frame.scale in the line"

#define HINT_NO_FIELD "a list of " HINT_MACRO " names a field that the struct does not have"
#define HINT_CONST_INPUT "an input cannot be changed: declare a dv_real, or list it among the results, too"
#define HINT_NO_VECTOR_FORM \
    HINT_VECTORS "this cannot be done with vectors (a comparison as a number: dv_real m = x > 0)" HINT_OR_PLAIN
#define HINT_NOT HINT_VECTORS "write (x > 0) == 0 for !(x > 0)" HINT_OR_PLAIN
#define HINT_FRAME "frame is the struct itself: write frame.scale"

/* A row for a macro whose name changed in this version. */
#define HINT_RENAMED(OLD, NEW) { "expected ", OLD "(", NULL, OLD " is now " NEW }

/* Adds the explanation of one diagnostic by the first row of the table that fits, if any. */
static void hints_explain_diagnostic(const char *block, size_t size, const char *message, cli_hints *out)
{
    static const struct {
        const char *pattern, *also, *macro, *advice;
    } rows[] = {
        { "has no member named", "dv_operator_decl", NULL, "an operator has no such member; it has" HINT_OPERATOR_PARTS },
        { "does not refer to any field", "dv_operator_decl", NULL, "an operator has no such member; it has" HINT_OPERATOR_PARTS },
        { "has no member named", "dv_kernel_decl", NULL, KERNEL_PARTS },
        { "does not refer to any field", "dv_kernel_decl", NULL, KERNEL_PARTS },
        { "no member named", "DV__FIELD", "DV_OPERATOR", "the list of fields names one that the struct does not have" },
        { "incomplete", "DV_OPERATOR", "DV_OPERATOR",
            "the struct that the declaration names does not exist (or is defined further down)" },
        { "'dv_op_", "undeclared", NULL, "the library lists an operator that has no DV_OPERATOR above it" },
        { "invalid type argument of '->'", HINT_MACRO, HINT_MACRO, HINT_FRAME },
        { "is not a pointer; did you mean", HINT_MACRO, HINT_MACRO, HINT_FRAME },
        { "has no member named", "DV__OF_FRAME", HINT_MACRO, HINT_NO_FIELD },
        { "no member named", "DV__OF_FRAME", HINT_MACRO, HINT_NO_FIELD },
        { "read-only variable", HINT_MACRO, HINT_MACRO, HINT_CONST_INPUT },
        { "const-qualified type", HINT_MACRO, HINT_MACRO, HINT_CONST_INPUT },
        { "when assigning to type 'dv_real'", HINT_MACRO, HINT_MACRO, HINT_BROADCAST }, /* gcc */
        { "when initializing type 'dv_real'", HINT_MACRO, HINT_MACRO, HINT_BROADCAST },
        { "assigning to 'dv_real'", HINT_MACRO, HINT_MACRO, HINT_BROADCAST }, /* clang */
        { "initializing 'dv_real'", HINT_MACRO, HINT_MACRO, HINT_BROADCAST },
        { "cannot convert value to a vector", HINT_MACRO, HINT_MACRO, HINT_BROADCAST },
        { "initializing type 'const dv_tensor", HINT_MACRO, HINT_MACRO, HINT_TENSOR_FIELD }, /* gcc */
        { "initializing 'const dv_tensor", HINT_MACRO, HINT_MACRO, HINT_TENSOR_FIELD },      /* clang */
        { "incompatible type", HINT_MACRO, HINT_MACRO, HINT_FUNCTION },
        { "of type-generic function", HINT_MACRO, HINT_MACRO, HINT_FUNCTION },                   /* gcc, of <tgmath.h> */
        { "'__tg_promote' is unavailable", HINT_MACRO, HINT_MACRO, HINT_FUNCTION },              /* clang */
        { "where scalar is required", HINT_MACRO, HINT_MACRO, HINT_SELECT },                     /* gcc */
        { "where arithmetic or pointer type is required", HINT_MACRO, HINT_MACRO, HINT_SELECT }, /* clang, of ?: */
        { "requires expression of scalar type", HINT_MACRO, HINT_MACRO, HINT_SELECT },           /* of `if` */
        { "logical expression with vector", HINT_MACRO, HINT_MACRO, HINT_SELECT },               /* of && */
        { "to vector", HINT_MACRO, HINT_MACRO, HINT_NUMBER },                                    /* gcc */
        { "between scalar type", HINT_MACRO, HINT_MACRO, HINT_NUMBER },                          /* clang */
        { "may change value", HINT_MACRO, HINT_MACRO, HINT_NUMBER },                             /* with -Wconversion */
        { "vector", HINT_MACRO, HINT_MACRO, HINT_NO_VECTOR_FORM },
        { "unary exclamation mark", HINT_MACRO, HINT_MACRO, HINT_NOT },
        { "to unary expression", HINT_MACRO, HINT_MACRO, HINT_NOT }, /* clang */
        { "to binary expression", HINT_MACRO, HINT_MACRO, HINT_NO_VECTOR_FORM },
        { "non-floating-point argument", HINT_MACRO, HINT_MACRO, HINT_NO_VECTOR_FORM },
        { "aggregate value used", HINT_MACRO, HINT_MACRO, HINT_NO_VECTOR_FORM },
        { "unknown type name 'dv_", "", NULL,
            "Dovetail has no type of this name: the table of docs/schema.md has the field type of each schema type" },
        HINT_RENAMED("DV_BF16_ROW", "DV_BF16_KERNEL"),
        HINT_RENAMED("DV_ELEMENTWISE_PLAIN", "DV_ELEMENTWISE_SCALAR"),
        HINT_RENAMED("DV_ELEMENTWISE_ROWS", "DV_ELEMENTWISE_KERNELS"),
        HINT_RENAMED("DV_ISAS", "DV_ISA_VARIANTS"),
        HINT_RENAMED("DV_ISAS_LOOP", "DV_ISA_VARIANTS_LOOP"),
        HINT_RENAMED("DV_ISAS_OF", "DV_ISA_VARIANTS_OF"),
        HINT_RENAMED("DV_ISA_ROWS", "DV_ISA_KERNELS"),
        HINT_RENAMED("DV_VARIANT_ROWS", "DV_VARIANT_KERNELS"),
        { "implicit declaration of function 'DV_", "", NULL, "there is no such macro: is <dovetail_op.h> included?" },
        { "target specific option mismatch", "", NULL,
            "this intrinsic needs its instruction set on the function: write DV_TARGET_AVX2 (or DV_TARGET_AVX512) before it" },
        { "requires target feature", "", NULL,
            "this intrinsic needs its instruction set on the function: write DV_TARGET_AVX2 (or DV_TARGET_AVX512) before it" },
        { "dovetail_op.h: No such file", "", NULL,
            "the header was not found: DOVETAIL_HOME names the folder that holds include/" },
    };
    source_location p = { 0 };
    const char *end = block + size;
    const char *generic = strstr(message, "_Generic' selector of type");
    generic = generic && generic < end ? generic + 9 : strstr(message, "controlling expression type");
    if (generic && generic < message + strcspn(message, "\n")) {
        hints_explain_generic_error(block, size, generic, out);
        return;
    }
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *a = strstr(message, rows[i].pattern), *b = strstr(block, rows[i].also);
        if (a && a < message + strcspn(message, "\n") && b && b < end) {
            hints_try_find_author_location(block, size, rows[i].macro, &p);
            hints_add_line(out, &p, rows[i].advice);
            return;
        }
    }
}

/* Adds explanations of the linker's errors: undefined references and several libraries. */
static void hints_explain_linker_errors(const char *text, cli_hints *out)
{
    const source_location nowhere = { 0 };
    const char *undefined = strstr(text, "undefined reference to ");
    if (strstr(text, "multiple definition of") && strstr(text, "dovetail_library_"))
        hints_add_line(out, &nowhere,
            "two of the files have a DV_LIBRARY: a binary holds one library; name the files that belong together, or list all "
            "operators in one DV_LIBRARY");
    if (undefined) {
        undefined += strlen("undefined reference to ") + 1;
        char *name = cli_format("%.*s", (int)strcspn(undefined, "'\n"), undefined);
        char *message = cli_format(
            "nothing defines '%s': name the file that does, or its library with -l; a file of C++ must declare it extern \"C\"",
            name);
        if (!strncmp(name, "dv_op_", 6))
            hints_add_line(
                out, &nowhere, "DV_LIBRARY lists an operator that none of these files declares: name the file that does");
        else if (!strncmp(name, "__", 2) && strstr(name, "san_"))
            hints_add_line(out, &nowhere,
                "clang does not link a sanitizer's runtime into a library: add -X -shared-libsan, and begin the program with "
                "that "
                "runtime in LD_PRELOAD");
        else
            hints_add_line(out, &nowhere, message);
        free(message);
        free(name);
    }
}

void cli_add_hints(const char *messages, cli_hints *out)
{
    char *text = hints_copy_without_escapes(messages);
    for (const char *line = text, *block = NULL, *message = NULL;;) {
        const size_t n = strcspn(line, "\n");
        const char *error = strstr(line, "error: "), *warning = strstr(line, "warning: ");
        const bool begins = (error && error < line + n) || (warning && warning < line + n) || !*line;
        if (begins && block) {
            hints_explain_diagnostic(block, (size_t)(line - block), message, out);
            block = NULL;
        }
        if (!*line)
            break;
        if (error && error < line + n)
            block = line, message = error;
        line += n + (line[n] == '\n');
    }
    hints_explain_linker_errors(text, out);
    free(text);
}
