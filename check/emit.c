/* Programs of a call, in C and Python, for people without the checker: call sites with the contents of their tensors, in a
 * template of programs/. A program needs Dovetail only. @WORD@ in a template is replaced (emit_try_print_word_value()). */
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

/* ---- Contents ---- */

/* Prints a float as check_format_real() does, with "nan" in the spelling of call sites. */
static void emit_print_real_number(double x, dv_dtype dtype, FILE *to)
{
    char text[40];
    fputs(isnan(x) ? "nan" : check_format_real(x, dtype, text, sizeof text), to);
}

/* Prints one element in the notation of call sites. Returns false for an unsigned integer above 2^63 - 1, which call sites cannot
 * express. */
static bool emit_try_print_element(const unsigned char *memory, int64_t index, dv_dtype dtype, FILE *to)
{
    dv_dtype part = dtype;
    if (check_get_component_count_and_dtype(&part) == 2) {
        const double imaginary = check_element_get(memory, 2 * index + 1, part);
        emit_print_real_number(check_element_get(memory, 2 * index, part), part, to);
        fputs(signbit(imaginary) && !isnan(imaginary) ? "" : "+", to);
        emit_print_real_number(imaginary, part, to);
        fputs("j", to);
    } else if (!check_is_integer_dtype(dtype)) {
        emit_print_real_number(check_element_get(memory, index, dtype), dtype, to);
    } else {
        const int64_t x = dtype.bits == 64 ? ((const int64_t *)(const void *)memory)[index]
                                           : (int64_t)check_element_get(memory, index, dtype);
        fprintf(to, "%" PRId64, x);
        return dtype.code != 1 || x >= 0;
    }
    return true;
}

/* Prints the elements of one tensor of the case in row-major order, as " = [1, 2, 3]". Returns false if they are too many or
 * cannot be written. */
static bool emit_try_print_tensor_elements(const check_case *c, size_t tensor_index, FILE *to)
{
    const check_tensor *t = &c->tensors[tensor_index];
    int64_t strides[CHECK_MAX_DIMS], low, high, n, first;
    unsigned char *memory = check_new_tensor_contents(c, tensor_index, &n, &first);
    bool written = memory != NULL;
    check_compute_strides(t, strides, &low, &high);
    fputs(" = [", to);
    for (int64_t k = 0, all = check_tensor_numel(t); k < all && written; k++) {
        int64_t at = first, rest = k;
        for (int32_t d = t->ndim; d-- > 0; rest /= t->shape[d])
            at += rest % t->shape[d] * strides[d];
        fputs(k ? ", " : "", to);
        written = emit_try_print_element(memory, at, t->dtype, to);
    }
    fputs("]", to);
    free(memory);
    return written;
}

/* Prints the text of a call site and inserts the elements after each tensor ("f32[3]" or "f32[3] @ [1]"). A bracket that follows
 * a letter or digit begins a tensor's shape. Returns false if the elements cannot be written. */
static bool emit_try_print_site_with_contents(const check_case *c, const char *site_text, FILE *to)
{
    size_t i = 0;
    char quote = 0;
    bool written = true;
    for (const char *p = site_text; *p && written; p++) {
        const bool begins = !quote && *p == '[' && p > site_text && strchr("0123456789abcdefghijklmnopqrstuvwxyz", p[-1]);
        fputc(*p, to);
        if (quote && *p == '\\' && p[1])
            fputc(*++p, to);
        else if (*p == '"')
            quote = quote ? 0 : '"';
        if (!begins)
            continue;
        size_t n = strcspn(p, "]");
        if (!strncmp(p + n, "] @ [", 5))
            n += 5 + strcspn(p + n + 5, "]");
        fprintf(to, "%.*s", (int)n, p + 1);
        p += n;
        while (i < c->ntensors && !c->tensors[i].present)
            i++;
        written = i < c->ntensors && emit_try_print_tensor_elements(c, i++, to);
    }
    return written;
}

/* ---- Programs ---- */

/* Prints a character of a string literal, with a backslash before a quote or backslash. A newline is printed as "\n". */
static void emit_print_escaped_character(char letter, FILE *to)
{
    if (letter == '"' || letter == '\\' || letter == '\n')
        fputc('\\', to);
    fputc(letter == '\n' ? 'n' : letter, to);
}

/* Prints a text as adjacent string literals of about 100 characters, which C and Python spell alike, and a comma. */
static void emit_print_wrapped_string_literals(const char *text, FILE *to)
{
    enum { LITERAL_WIDTH = 100 };
    size_t width = 0;
    fputs("    \"", to);
    for (; *text; text++, width++) {
        if (width > LITERAL_WIDTH && *text == ' ') {
            fputs("\"\n    \"", to);
            width = 0;
        }
        emit_print_escaped_character(*text, to);
    }
    fputs("\",\n", to);
}

/* Prints the call site of a case, with elements, as string literals. Returns false if it cannot be written. */
static bool emit_try_print_call_site(const check_op *op, const check_case *c, FILE *to)
{
    static check_values v;
    dv_site *site = NULL;
    char *text = NULL, *full = NULL;
    size_t size;
    check_values_init_without_data(&v, c, (dv_device){ DV_CPU, 0 });
    FILE *memory = open_memstream(&full, &size);
    bool written = memory && !dv_site_new(op->op, v.values, c->nargs, &site) && !dv_site_print(site, &text) &&
        emit_try_print_site_with_contents(c, text, memory);
    if (memory)
        fclose(memory);
    if (written)
        emit_print_wrapped_string_literals(full, to);
    dv_site_free(site);
    dv_free(text);
    free(full);
    return written;
}

/* Returns the file name at the end of a path; "my_ops.so" if the path is NULL. */
static const char *emit_get_file_name(const char *path)
{
    const char *slash = path ? strrchr(path, '/') : NULL;
    return slash ? slash + 1 : path ? path : "my_ops.so";
}

/* Prints a text as one string literal, valid in C and Python. */
static void emit_print_string_literal(const char *text, FILE *to)
{
    fputs("\"", to);
    for (; *text; text++)
        emit_print_escaped_character(*text, to);
    fputs("\"", to);
}

/* True if a path's file name ends in ".c". */
static bool emit_is_c_file_path(const char *path)
{
    const char *name = emit_get_file_name(path);
    const size_t n = strlen(name);
    return n > 2 && !strcmp(name + n - 2, ".c");
}

/* Prints the first `size` characters of a path, and an extension, as one word of a shell command. A path that begins with '-'
 * gets "./", and that of a program to run without a '/', too. */
static void emit_print_shell_path(const char *path, size_t size, const char *extension, bool is_run, FILE *to)
{
    char word[PATH_MAX + 16];
    snprintf(word, sizeof word, "%s%.*s%s", *path == '-' || (is_run && !strchr(path, '/')) ? "./" : "",
        (int)(size < PATH_MAX ? size : PATH_MAX), path, extension);
    check_print_shell_text(word, to);
}

/* Prints a path as one word of a shell command, with "./" before a path that begins with '-'. */
static void emit_print_shell_file(const char *path, FILE *to) { emit_print_shell_path(path, strlen(path), "", false, to); }

/* Prints the compiler arguments for a C file: its path alone if it ends in ".c", else with "-x c" before it. */
static void emit_print_compiler_arguments_for_c_file(const char *path, FILE *to)
{
    const bool is_known = emit_is_c_file_path(path);
    fputs(is_known ? "" : "-x c ", to);
    emit_print_shell_file(path, to);
    fputs(is_known ? "" : " -x none", to);
}

/* Prints the path of the program to compile a C file to: without ".c", else with ".out" appended. is_run: as a command. */
static void emit_print_c_program_path(const char *path, bool is_run, FILE *to)
{
    const bool has_ending = emit_is_c_file_path(path);
    emit_print_shell_path(path, strlen(path) - (has_ending ? 2 : 0), has_ending ? "" : ".out", is_run, to);
}

/* Prints what @WORD@ of a template stands for; nothing for an unknown word. Returns false if the tensors of a call cannot be
 * written out. */
static bool emit_try_print_word_value(
    const char *word, const check_repeat *repeat, const char *repeat_command, const char *script_path, FILE *to)
{
    const check_op *op = repeat->op;
    if (!strcmp(word, "TITLE")) {
        fprintf(to, "A call of %s%s%s.", op->name, repeat->kernel ? ", kernel " : "", repeat->kernel ? repeat->kernel->name : "");
    } else if (!strcmp(word, "BINARY")) {
        emit_print_shell_file(op->sources || !op->path ? emit_get_file_name(op->path) : op->path, to);
    } else if (!strcmp(word, "BINARY_LITERAL")) {
        emit_print_string_literal(emit_get_file_name(op->path), to);
    } else if (!strcmp(word, "FILE")) {
        emit_print_shell_file(script_path, to);
    } else if (!strcmp(word, "C_FILE")) {
        emit_print_compiler_arguments_for_c_file(script_path, to);
    } else if (!strcmp(word, "PROGRAM")) {
        emit_print_c_program_path(script_path, false, to);
    } else if (!strcmp(word, "RUN_PROGRAM")) {
        emit_print_c_program_path(script_path, true, to);
    } else if (!strcmp(word, "BUILD") && op->sources) {
        fputs("dovetail build", to);
        check_print_build_arguments(op, to);
        fputs(" -o ", to);
        emit_print_shell_file(emit_get_file_name(op->path), to);
        fputs(" && ", to);
    } else if (!strcmp(word, "COMMAND")) {
        fputs(repeat_command, to);
    } else if (!strcmp(word, "CALLS")) {
        return (!repeat->has_preceding_case || emit_try_print_call_site(op, &repeat->preceding_case, to)) &&
            emit_try_print_call_site(op, &repeat->repeated_case, to);
    } else if (!strcmp(word, "NARGS")) {
        fprintf(to, "%zu", op->nargs);
    } else if (!strcmp(word, "NRESULTS")) {
        fprintf(to, "%zu", op->nresults);
    } else if (!strcmp(word, "KERNEL")) {
        fprintf(to, "%d", repeat->kernel ? (int)repeat->kernel->hook_index : 0);
    }
    for (size_t i = 0; i < op->nargs; i++) {
        if (!(op->slots[i].flags & DV_SLOT_WRITES))
            continue;
        if (!strcmp(word, "WRITTEN"))
            fprintf(to, "%zu, ", i);
        else if (!strcmp(word, "WRITTEN_NAMES"))
            fprintf(to, "\"%s\", ", op->slots[i].name);
    }
    return true;
}

/* Prints a template of programs/ with each @WORD@ replaced. Returns false if one cannot be written. */
static bool emit_try_print_filled_template(
    const char *template_name, const check_repeat *repeat, const char *repeat_command, const char *script_path, FILE *to)
{
    char word[24];
    bool written = true;
    for (const char *p = check_find_program_text(template_name); *p && written; p++) {
        int n = 0;
        if (sscanf(p, "@%20[A-Z_]@%n", word, &n) == 1 && n) {
            written = emit_try_print_word_value(word, repeat, repeat_command, script_path, to);
            p += n - 1;
        } else {
            fputc(*p, to);
        }
    }
    return written;
}

bool check_try_emit_c(const check_repeat *repeat, const char *repeat_command, const char *script_path, FILE *to)
{
    return emit_try_print_filled_template("call.c.in", repeat, repeat_command, script_path, to);
}

bool check_try_emit_python(const check_repeat *repeat, const char *repeat_command, const char *script_path, FILE *to)
{
    return emit_try_print_filled_template("call.py.in", repeat, repeat_command, script_path, to);
}
