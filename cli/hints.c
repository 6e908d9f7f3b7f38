/* Explains compiler errors: for some mistakes the macros of dovetail_op.h cause errors that mention nothing the author wrote.
 * Each diagnostic ("...: error: ..." and its notes) is matched with a table; the place shown is the first line of the author's
 * file that it mentions, or, for kernels, the line of DV_KERNEL. Works on the English messages of gcc and clang.
 */
#include "cli.h"

#include <ctype.h>
#include <stdlib.h>

typedef struct place {
    const char *file;
    size_t size;
    long line;
} place;

/* Remove terminal escapes, and replace typographic quotes by plain ones. */
static char *plain_text(const char *s)
{
    char *out = cli_alloc(NULL, strlen(s) + 1, 1), *to = out;
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

/* "file:12:3: error: ..." at the beginning of a line. */
static bool read_place(const char *line, size_t size, place *out)
{
    for (size_t i = 1; i + 1 < size; i++) {
        if (line[i] != ':' || !isdigit((unsigned char)line[i + 1]))
            continue;
        char *end;
        const long number = strtol(line + i + 1, &end, 10);
        if (*end == ':') {
            *out = (place){ line, i, number };
            return true;
        }
    }
    return false;
}

static bool own_header(const place *p)
{
    const char *name = p->file + p->size;
    while (name > p->file && name[-1] != '/')
        name--;
    const size_t n = (size_t)(p->file + p->size - name);
    return n > 11 && !memcmp(name, "dovetail_", 9) && !memcmp(name + n - 2, ".h", 2);
}

/* The place in the author's file for a diagnostic; `macro`: prefer the line that expands it. */
static bool author_place(const char *block, size_t size, const char *macro, place *out)
{
    bool found = false;
    char *wanted = cli_format("'%s'", macro ? macro : "");
    for (const char *line = block; line < block + size;) {
        const size_t n = strcspn(line, "\n");
        place p;
        if (read_place(line, n, &p) && !own_header(&p)) {
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

static char *quoted(const char *after)
{
    const char *a = strchr(after, '\'');
    const char *b = a ? strchr(a + 1, '\'') : NULL;
    return b ? cli_format("%.*s", (int)(b - a - 1), a + 1) : cli_format("%s", "?");
}

/* What a C type should have been. */
static const char *better_type(const char *type)
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

static void say(cli_hints *to, const place *p, const char *message)
{
    cli_text line = { 0 };
    if (p->file)
        cli_addf(&line, "  %.*s:%ld: %s\n", (int)p->size, p->file, p->line, message);
    else
        cli_addf(&line, "  %s\n", message);
    if (!to->text.data || !strstr(to->text.data, line.data)) { /* clang and the linker repeat themselves */
        cli_adds(&to->text, line.data);
        to->count++;
    }
    cli_text_free(&line);
}

/* The struct that the declaration at this line of the author's file uses: "DV_OPERATOR(name, struct frame, (". */
static char *frame_at(const char *source, long line)
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

/* Does the member declaration that begins here have this type? Compared by its first words ("const char *" by "const char"). */
static bool declares(const char *member, const char *type)
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

/* The line on which the struct of the declaration at p has a member of this type. */
static bool member_place(const place *p, const char *type, place *out)
{
    cli_text source = { 0 };
    char *path = cli_format("%.*s", (int)p->size, p->file), *frame = NULL;
    bool found = false;
    if (!cli_read_file(path, &source) && (frame = frame_at(source.data, p->line))) {
        for (const char *s = source.data; !found && (s = strstr(s, frame)); s++) {
            const char *body = s + strlen(frame);
            body += strspn(body, " \t\n");
            if (*body != '{')
                continue;
            for (const char *m = body; m && *m && *m != '}' && !found; m = strpbrk(m + 1, ";}"))
                if (declares(m, type)) {
                    long line = 1;
                    for (const char *c = source.data; c < m + strspn(m, " \t\n{;"); c++)
                        line += *c == '\n';
                    *out = (place){ p->file, p->size, line };
                    found = true;
                }
        }
    }
    free(frame);
    free(path);
    cli_text_free(&source);
    return found;
}

static void explain_generic(const char *block, size_t size, const char *message, cli_hints *out)
{
    place p = { 0 };
    char *type = quoted(message), *text;
    const char *frame = strstr(type, "dv_context *, const struct "), *loose = strstr(type, "dv_context *, struct ");
    if (!strstr(type, "(*)(")) {
        author_place(block, size, "DV_OPERATOR", &p);
        place member = p;
        if (p.file)
            member_place(&p, type, &member);
        text = cli_format("a field of an operator's struct has the type '%s': %s", type, better_type(type));
        say(out, &member, text);
    } else {
        author_place(block, size, "DV_KERNEL", &p);
        if (frame && !strncmp(type, "int (*)(", 8))
            text = cli_format("this row's kernel takes 'const %.*s *', which is not the struct that the row names: a kernel "
                              "serves the operator "
                              "whose struct it takes",
                (int)strcspn(frame + 20, ")*") - 1, frame + 20);
        else if (loose && !strncmp(type, "int (*)(", 8))
            text = cli_format(
                "the kernel must take its struct as const: 'const %.*s *'", (int)strcspn(loose + 14, ")*") - 1, loose + 14);
        else
            text = cli_format(
                "the kernel has the type '%s': expected 'static int kernel(dv_context *ctx, const struct ... *a)'", type);
        say(out, &p, text);
    }
    free(text);
    free(type);
}

#define PART(name, who) " ." #name
#define OPERATOR_PARTS DV_OPERATOR_TEXTS(PART) " .kernels .shape"
#define ROW_PARTS \
    "a kernel row has no such member; after the function it may have .isa .when .takes .provider .split .priority .flags"
/* Of the line of DV_ELEMENTWISE. */
#define LINE "DV_ELEMENTWISE"
#define VECTORS "the line is compiled for vectors, too: "
#define PLAIN "; or use " LINE "_PLAIN, which takes all of C"
#define SELECT VECTORS "write dv_select(x > 0, a, b) instead of `if` or x > 0 ? a : b" PLAIN
#define NUMBER "the line is compiled for float and double: write (dv_number)0.1, or (dv_number)frame.scale"
#define ALL                                                                                                                 \
    VECTORS "write dv_all(0), or dv_all(frame.scale), for a number as a result or a variable; a function must be one that " \
            "dovetail_elementwise.h lists"
#define FUNCTION                                                                                                                \
    VECTORS "call only what dovetail_elementwise.h lists, such as dv_exp(x), and choose by an attribute with frame.flag ? x : " \
            "y" PLAIN
#define TENSORS "a list of " LINE " names a field that is not a tensor: an attribute is written frame.scale in the line"

#define FIELD "a list of " LINE " names a field that the struct does not have"
#define INPUT "an input cannot be changed: declare a dv_real, or list it among the results, too"
#define NONE VECTORS "this cannot be done with vectors (a comparison as a number: dv_real m = x > 0)" PLAIN
#define NOT VECTORS "write (x > 0) == 0 for !(x > 0)" PLAIN
#define STRUCT "frame is the struct itself: write frame.scale"

static void explain_block(const char *block, size_t size, const char *message, cli_hints *out)
{
    static const struct {
        const char *pattern, *also, *macro, *advice;
    } rows[] = {
        { "has no member named", "dv_operator_decl", NULL, "an operator has no such member; it has" OPERATOR_PARTS },
        { "does not refer to any field", "dv_operator_decl", NULL, "an operator has no such member; it has" OPERATOR_PARTS },
        { "has no member named", "dv_kernel_decl", NULL, ROW_PARTS },
        { "does not refer to any field", "dv_kernel_decl", NULL, ROW_PARTS },
        { "no member named", "DV__FIELD", "DV_OPERATOR", "the list of fields names one that the struct does not have" },
        { "incomplete", "DV_OPERATOR", "DV_OPERATOR",
            "the struct that the declaration names does not exist (or is defined further down)" },
        { "'dv_op_", "undeclared", NULL, "the library lists an operator that has no DV_OPERATOR above it" },
        { "invalid type argument of '->'", LINE, LINE, STRUCT },
        { "is not a pointer; did you mean", LINE, LINE, STRUCT },
        { "has no member named", "DV__OF_FRAME", LINE, FIELD },
        { "no member named", "DV__OF_FRAME", LINE, FIELD },
        { "read-only variable", LINE, LINE, INPUT },
        { "const-qualified type", LINE, LINE, INPUT },
        { "when assigning to type 'dv_real'", LINE, LINE, ALL }, /* gcc */
        { "when initializing type 'dv_real'", LINE, LINE, ALL },
        { "assigning to 'dv_real'", LINE, LINE, ALL }, /* clang */
        { "initializing 'dv_real'", LINE, LINE, ALL },
        { "cannot convert value to a vector", LINE, LINE, ALL },
        { "initializing type 'const dv_tensor", LINE, LINE, TENSORS }, /* gcc */
        { "initializing 'const dv_tensor", LINE, LINE, TENSORS },      /* clang */
        { "incompatible type", LINE, LINE, FUNCTION },
        { "of type-generic function", LINE, LINE, FUNCTION },                   /* gcc, of <tgmath.h> */
        { "'__tg_promote' is unavailable", LINE, LINE, FUNCTION },              /* clang */
        { "where scalar is required", LINE, LINE, SELECT },                     /* gcc */
        { "where arithmetic or pointer type is required", LINE, LINE, SELECT }, /* clang, of ?: */
        { "requires expression of scalar type", LINE, LINE, SELECT },           /* of `if` */
        { "logical expression with vector", LINE, LINE, SELECT },               /* of && */
        { "to vector", LINE, LINE, NUMBER },                                    /* gcc */
        { "between scalar type", LINE, LINE, NUMBER },                          /* clang */
        { "may change value", LINE, LINE, NUMBER },                             /* with -Wconversion */
        { "vector", LINE, LINE, NONE },
        { "unary exclamation mark", LINE, LINE, NOT },
        { "to unary expression", LINE, LINE, NOT }, /* clang */
        { "to binary expression", LINE, LINE, NONE },
        { "non-floating-point argument", LINE, LINE, NONE },
        { "aggregate value used", LINE, LINE, NONE },
        { "unknown type name 'dv_", "", NULL,
            "Dovetail has no type of this name: the table of docs/schema.md has the field type of each schema type" },
        { "implicit declaration of function 'DV_", "", NULL, "there is no such macro: is <dovetail_op.h> included?" },
        { "target specific option mismatch", "", NULL,
            "this intrinsic needs its instruction set on the function: write DV_TARGET_AVX2 (or DV_TARGET_AVX512) before it" },
        { "requires target feature", "", NULL,
            "this intrinsic needs its instruction set on the function: write DV_TARGET_AVX2 (or DV_TARGET_AVX512) before it" },
        { "dovetail_op.h: No such file", "", NULL,
            "the header was not found: DOVETAIL_HOME names the folder that holds include/" },
    };
    place p = { 0 };
    const char *end = block + size;
    const char *generic = strstr(message, "_Generic' selector of type");
    generic = generic && generic < end ? generic + 9 : strstr(message, "controlling expression type");
    if (generic && generic < message + strcspn(message, "\n")) {
        explain_generic(block, size, generic, out);
        return;
    }
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *a = strstr(message, rows[i].pattern), *b = strstr(block, rows[i].also);
        if (a && a < message + strcspn(message, "\n") && b && b < end) {
            author_place(block, size, rows[i].macro, &p);
            say(out, &p, rows[i].advice);
            return;
        }
    }
}

static void explain_linker(const char *text, cli_hints *out)
{
    const place nowhere = { 0 };
    const char *undefined = strstr(text, "undefined reference to ");
    if (strstr(text, "multiple definition of") && strstr(text, "dovetail_library_"))
        say(out, &nowhere,
            "two of the files have a DV_LIBRARY: a binary holds one library; name the files that belong together, or list all "
            "operators in one DV_LIBRARY");
    if (undefined) {
        undefined += strlen("undefined reference to ") + 1;
        char *name = cli_format("%.*s", (int)strcspn(undefined, "'\n"), undefined);
        char *message = cli_format(
            "nothing defines '%s': name the file that does, or its library with -l; a file of C++ must declare it extern \"C\"",
            name);
        if (!strncmp(name, "dv_op_", 6))
            say(out, &nowhere, "DV_LIBRARY lists an operator that none of these files declares: name the file that does");
        else if (!strncmp(name, "__", 2) && strstr(name, "san_"))
            say(out, &nowhere,
                "clang does not link a sanitizer's runtime into a library: add -X -shared-libsan, and begin the program with "
                "that "
                "runtime in LD_PRELOAD");
        else
            say(out, &nowhere, message);
        free(message);
        free(name);
    }
}

void cli_explain_errors(const char *messages, cli_hints *out)
{
    char *text = plain_text(messages);
    for (const char *line = text, *block = NULL, *message = NULL;;) {
        const size_t n = strcspn(line, "\n");
        const char *error = strstr(line, "error: "), *warning = strstr(line, "warning: ");
        const bool begins = (error && error < line + n) || (warning && warning < line + n) || !*line;
        if (begins && block) {
            explain_block(block, (size_t)(line - block), message, out);
            block = NULL;
        }
        if (!*line)
            break;
        if (error && error < line + n)
            block = line, message = error;
        line += n + (line[n] == '\n');
    }
    explain_linker(text, out);
    free(text);
}
