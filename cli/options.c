/* Parses command lines. One table of options serves parsing, help and the test that docs/command.md is complete. */
#include "cli.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>

const cli_option cli_build_options[] = {
    { 'I', "include", "FOLDER", "also look for headers there" },
    { 'D', "define", "NAME[=VALUE]", "define a macro" },
    { 'L', "library-dir", "FOLDER", "also look for libraries there" },
    { 'l', "library", "NAME", "link this library" },
    { 'X', "flag", "ARGUMENT", "give the compilers one more argument (-X -march=native), or one language's (-X cuda:-lineinfo)" },
    { 0, "cc", "PROGRAM", "the C compiler (default: $CC, else the first of cc, gcc, clang)" },
    { 0, "nvcc", "PROGRAM", "the CUDA compiler for .cu files (default: nvcc)" },
    { 0, "cxx", "PROGRAM", "the C++ compiler for .cpp files (default: $CXX, else the first of c++, g++, clang++)" },
    { 0, "ccec", "PROGRAM", "the AscendC compiler for .cce files (default: ccec)" },
    { 0, "allow-unknown", NULL, "let tags and instruction sets pass that this version does not know" },
    { 'g', "debug", NULL, "for a debugger: -O1 -g, not stripped" },
    { 0 },
};

static const cli_option common_options[] = {
    { 'h', "help", NULL, "show this help" },
    { 0, "color", "WHEN", "colours: auto (only on a terminal, the default), always, never; NO_COLOR turns auto off" },
    { 0 },
};

/* Returns the verb's option whose long name is the first `size` letters of name; NULL: the verb has no such option. */
static const cli_option *options_find_by_name(const cli_verb *verb, const char *name, size_t size)
{
    const cli_option *const tables[] = { verb->options, verb->builds_sources ? cli_build_options : NULL, common_options };
    for (size_t t = 0; t < 3; t++)
        for (const cli_option *o = tables[t]; o && o->name; o++)
            if (strlen(o->name) == size && !memcmp(o->name, name, size))
                return o;
    return NULL;
}

/* Returns the verb's option of this letter; NULL: the verb has no such option. */
static const cli_option *options_find_by_letter(const cli_verb *verb, char letter)
{
    const cli_option *const tables[] = { verb->options, verb->builds_sources ? cli_build_options : NULL, common_options };
    for (size_t t = 0; t < 3; t++)
        for (const cli_option *o = tables[t]; o && o->name; o++)
            if (o->letter == letter)
                return o;
    return NULL;
}

/* Returns the number of letters to change, add or remove that make a out of b, whatever their case. */
static size_t options_edit_distance(const char *a, const char *b)
{
    size_t row[64];
    const size_t n = strlen(b);
    if (n >= 63)
        return SIZE_MAX;
    for (size_t j = 0; j <= n; j++)
        row[j] = j;
    for (size_t i = 0; a[i]; i++) {
        size_t diagonal = row[0];
        row[0] = i + 1;
        for (size_t j = 0; j < n; j++) {
            const size_t above = row[j + 1], change = diagonal + (tolower((unsigned char)a[i]) != tolower((unsigned char)b[j]));
            const size_t gap = (above < row[j] ? above : row[j]) + 1;
            row[j + 1] = change < gap ? change : gap;
            diagonal = above;
        }
    }
    return row[n];
}

const char *cli_find_nearest_name(const char *word, const char *const *names, size_t n)
{
    const char *best = NULL;
    size_t best_distance = strlen(word) / 3 + 2; /* names in which more than a third of the letters differ are not similar */
    for (size_t i = 0; i < n; i++) {
        const size_t d = options_edit_distance(word, names[i]);
        if (d < best_distance)
            best_distance = d, best = names[i];
    }
    return best;
}

/* Prints that the verb has no option of this name, with the most similar option. Returns CLI_USAGE. */
static int options_fail_unknown_option(const cli_verb *verb, const char *word, size_t size)
{
    const char *names[64];
    size_t n = 0;
    for (const cli_option *o = verb->options; o && o->name && n < 40; o++)
        names[n++] = o->name;
    for (const cli_option *o = cli_build_options; verb->builds_sources && o->name; o++)
        names[n++] = o->name;
    for (const cli_option *o = common_options; o->name; o++)
        names[n++] = o->name;
    char *name = cli_format("%.*s", (int)size, word);
    const char *near = cli_find_nearest_name(name, names, n);
    if (near)
        return cli_fail_usage(verb, "unknown option '--%s' (did you mean '--%s'?)", name, near);
    return cli_fail_usage(verb, "unknown option '--%s'", name);
}

/* Appends an option to the given ones; value NULL: the option takes none. --json and --color take effect at once. Returns CLI_OK;
 * CLI_USAGE, with the message printed, for a wrong --color. */
static int options_append_given(cli_args *args, const cli_option *option, const char *value)
{
    args->given_options = cli_realloc_array(args->given_options, args->ngiven_options + 1, sizeof *args->given_options);
    args->given_options[args->ngiven_options++] = (struct cli_given_option){ option, value };
    if (!strcmp(option->name, "json"))
        cli_begin_json_output();
    if (!strcmp(option->name, "color") && cli_set_color(value))
        return cli_fail_usage(args->verb, "option '--color': expected auto, always or never, found '%s'", value);
    return CLI_OK;
}

/* Parses "--name", "--name=value" or "--name value"; *index: of the word in argv, moved past a value. Returns CLI_OK, or
 * CLI_USAGE with the message printed. */
static int options_parse_long_option(cli_args *args, const char *word, char **argv, int argc, int *index)
{
    const char *equals = strchr(word, '=');
    const size_t size = equals ? (size_t)(equals - word) : strlen(word);
    const cli_option *o = options_find_by_name(args->verb, word, size);
    if (!o)
        return options_fail_unknown_option(args->verb, word, size);
    if (!o->value && equals)
        return cli_fail_usage(args->verb, "option '--%s' takes no value", o->name);
    if (o->value && !equals && ++*index >= argc)
        return cli_fail_usage(args->verb, "option '--%s' needs a value: --%s %s", o->name, o->name, o->value);
    return options_append_given(args, o, !o->value ? NULL : equals ? equals + 1 : argv[*index]);
}

/* Parses the letters after one dash, the last of which may have a value; *index: of the word in argv, moved past a value. Returns
 * CLI_OK, or CLI_USAGE with the message printed. */
static int options_parse_short_options(cli_args *args, const char *letters, char **argv, int argc, int *index)
{
    for (; *letters; letters++) {
        const cli_option *o = options_find_by_letter(args->verb, *letters);
        if (!o)
            return cli_fail_usage(args->verb, "unknown option '-%c'", *letters);
        if (o->value) {
            if (!letters[1] && ++*index >= argc)
                return cli_fail_usage(args->verb, "option '-%c' needs a value: -%c %s", o->letter, o->letter, o->value);
            return options_append_given(args, o, letters[1] ? letters + 1 : argv[*index]);
        }
        const int status = options_append_given(args, o, NULL);
        if (status)
            return status;
    }
    return CLI_OK;
}

int cli_parse_args(const cli_verb *verb, int argc, char **argv, cli_args *out)
{
    bool options = true;
    memset(out, 0, sizeof *out);
    out->verb = verb;
    out->operands = cli_realloc_array(NULL, (size_t)argc + 1, sizeof *out->operands);
    for (int i = 0; i < argc; i++) {
        const char *s = argv[i];
        int status = CLI_OK;
        if (!options || s[0] != '-' || !s[1] || (s[1] >= '0' && s[1] <= '9') || s[1] == '.')
            out->operands[out->noperands++] = s;
        else if (!strcmp(s, "--"))
            options = false;
        else if (s[1] == '-')
            status = options_parse_long_option(out, s + 2, argv, argc, &i);
        else
            status = options_parse_short_options(out, s + 1, argv, argc, &i);
        if (status)
            return status;
    }
    return CLI_OK;
}

const char *cli_find_option_value(const cli_args *args, const char *option)
{
    for (size_t i = args->ngiven_options; i-- > 0;)
        if (!strcmp(args->given_options[i].option->name, option))
            return args->given_options[i].value;
    return NULL;
}

bool cli_has_option(const cli_args *args, const char *option)
{
    for (size_t i = 0; i < args->ngiven_options; i++)
        if (!strcmp(args->given_options[i].option->name, option))
            return true;
    return false;
}

int cli_parse_option_int(const cli_args *args, const char *option, int64_t low, int64_t high, int64_t fallback, int64_t *out)
{
    const char *text = cli_find_option_value(args, option);
    *out = fallback;
    if (!text)
        return CLI_OK;
    char *end;
    errno = 0;
    *out = strtoll(text, &end, 10);
    if (end == text || *end || errno || *out < low || *out > high)
        return cli_fail_usage(args->verb, "option '--%s': expected a number from %lld to %lld, found '%s'", option,
            (long long)low, (long long)high, text);
    return CLI_OK;
}

const char *const *cli_list_build_args(const cli_args *args)
{
    const char **words = cli_realloc_array(NULL, args->ngiven_options + 1, sizeof *words);
    size_t n = 0;
    for (size_t i = 0; i < args->ngiven_options; i++)
        for (const cli_option *o = cli_build_options; o->name; o++)
            if (o == args->given_options[i].option)
                words[n++] = o->value ? cli_format("--%s=%s", o->name, args->given_options[i].value)
                                      : cli_format("--%s", o->name);
    words[n] = NULL;
    return words;
}

/* Prints the help lines of an array of options that ends with a NULL name. NULL: prints nothing. */
static void options_print_help_lines(const cli_option *options)
{
    for (const cli_option *o = options; o && o->name; o++) {
        char *left = cli_format(o->letter ? "-%c, --%s%s%s" : "%c   --%s%s%s", o->letter ? o->letter : ' ', o->name,
            o->value ? " " : "", o->value ? o->value : "");
        printf("  %s%-22s%s %s\n", cli_get_escape_code(stdout, CLI_BOLD), left, cli_get_escape_code(stdout, CLI_STYLE_NONE),
            o->help);
        free(left);
    }
}

void cli_print_help(const cli_verb *verb)
{
    const char *bold = cli_get_escape_code(stdout, CLI_BOLD), *reset = cli_get_escape_code(stdout, CLI_STYLE_NONE),
               *dim = cli_get_escape_code(stdout, CLI_DIM);
    printf("dovetail %s: %s\n\n%sUsage:%s dovetail %s %s\n\n%s\n\n%sOptions:%s\n", verb->name, verb->purpose, bold, reset,
        verb->name, verb->usage, verb->about, bold, reset);
    options_print_help_lines(verb->options);
    if (verb->builds_sources && strcmp(verb->name, "build") != 0)
        printf("of source files:\n");
    if (verb->builds_sources)
        options_print_help_lines(cli_build_options);
    options_print_help_lines(common_options);
    printf("\n%sExamples:%s\n", bold, reset);
    for (const char *const *e = verb->examples; *e; e += 2)
        printf("  $ %s\n      %s%s%s\n", e[0], dim, e[1], reset);
}
