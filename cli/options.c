/* Command lines: one table of options serves parsing, help and the check that docs/command.md is complete. */
#include "cli.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>

extern const cli_verb verb_build;

static const cli_option common[] = {
    { 'h', "help", NULL, "show this help" },
    { 0, "color", "WHEN", "colours: auto (only on a terminal, the default), always, never; NO_COLOR turns auto off" },
    { 0 },
};

static const cli_option *find_long(const cli_verb *verb, const char *name, size_t size)
{
    const cli_option *const tables[] = { verb->options, verb->builds ? cli_build_options : NULL, common };
    for (size_t t = 0; t < 3; t++)
        for (const cli_option *o = tables[t]; o && o->name; o++)
            if (strlen(o->name) == size && !memcmp(o->name, name, size))
                return o;
    return NULL;
}

static const cli_option *find_letter(const cli_verb *verb, char letter)
{
    const cli_option *const tables[] = { verb->options, verb->builds ? cli_build_options : NULL, common };
    for (size_t t = 0; t < 3; t++)
        for (const cli_option *o = tables[t]; o && o->name; o++)
            if (o->letter == letter)
                return o;
    return NULL;
}

/* How many letters differ, whatever their case. */
static size_t distance(const char *a, const char *b)
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

const char *cli_nearest(const char *word, const char *const *names, size_t n)
{
    const char *best = NULL;
    size_t least = strlen(word) / 3 + 2; /* a third of the letters may be wrong */
    for (size_t i = 0; i < n; i++) {
        const size_t d = distance(word, names[i]);
        if (d < least)
            least = d, best = names[i];
    }
    return best;
}

static int unknown(const cli_verb *verb, const char *word, size_t size)
{
    const char *names[64];
    size_t n = 0;
    for (const cli_option *o = verb->options; o && o->name && n < 40; o++)
        names[n++] = o->name;
    for (const cli_option *o = cli_build_options; verb->builds && o->name; o++)
        names[n++] = o->name;
    for (const cli_option *o = common; o->name; o++)
        names[n++] = o->name;
    char *name = cli_format("%.*s", (int)size, word);
    const char *near = cli_nearest(name, names, n);
    if (near)
        return cli_usage(verb, "unknown option '--%s' (did you mean '--%s'?)", name, near);
    return cli_usage(verb, "unknown option '--%s'", name);
}

static int give(cli_args *args, const cli_option *option, const char *value)
{
    args->given = cli_alloc(args->given, args->ngiven + 1, sizeof *args->given);
    args->given[args->ngiven++] = (struct cli_given){ option, value };
    if (!strcmp(option->name, "json"))
        cli_json = true;
    if (!strcmp(option->name, "color") && cli_set_color(value))
        return cli_usage(args->verb, "option '--color': expected auto, always or never, found '%s'", value);
    return CLI_OK;
}

static int parse_long(cli_args *args, const char *word, char **argv, int argc, int *i)
{
    const char *equals = strchr(word, '=');
    const size_t size = equals ? (size_t)(equals - word) : strlen(word);
    const cli_option *o = find_long(args->verb, word, size);
    if (!o)
        return unknown(args->verb, word, size);
    if (!o->value && equals)
        return cli_usage(args->verb, "option '--%s' takes no value", o->name);
    if (o->value && !equals && ++*i >= argc)
        return cli_usage(args->verb, "option '--%s' needs a value: --%s %s", o->name, o->name, o->value);
    return give(args, o, !o->value ? NULL : equals ? equals + 1 : argv[*i]);
}

static int parse_letters(cli_args *args, const char *letters, char **argv, int argc, int *i)
{
    for (; *letters; letters++) {
        const cli_option *o = find_letter(args->verb, *letters);
        if (!o)
            return cli_usage(args->verb, "unknown option '-%c'", *letters);
        if (o->value) {
            if (!letters[1] && ++*i >= argc)
                return cli_usage(args->verb, "option '-%c' needs a value: -%c %s", o->letter, o->letter, o->value);
            return give(args, o, letters[1] ? letters + 1 : argv[*i]);
        }
        const int status = give(args, o, NULL);
        if (status)
            return status;
    }
    return CLI_OK;
}

int cli_parse(const cli_verb *verb, int argc, char **argv, cli_args *out)
{
    bool options = true;
    memset(out, 0, sizeof *out);
    out->verb = verb;
    out->words = cli_alloc(NULL, (size_t)argc + 1, sizeof *out->words);
    for (int i = 0; i < argc; i++) {
        const char *s = argv[i];
        int status = CLI_OK;
        if (!options || s[0] != '-' || !s[1] || (s[1] >= '0' && s[1] <= '9') || s[1] == '.')
            out->words[out->nwords++] = s;
        else if (!strcmp(s, "--"))
            options = false;
        else if (s[1] == '-')
            status = parse_long(out, s + 2, argv, argc, &i);
        else
            status = parse_letters(out, s + 1, argv, argc, &i);
        if (status)
            return status;
    }
    return CLI_OK;
}

const char *cli_get(const cli_args *args, const char *option)
{
    for (size_t i = args->ngiven; i-- > 0;)
        if (!strcmp(args->given[i].option->name, option))
            return args->given[i].value;
    return NULL;
}

bool cli_has(const cli_args *args, const char *option)
{
    for (size_t i = 0; i < args->ngiven; i++)
        if (!strcmp(args->given[i].option->name, option))
            return true;
    return false;
}

int cli_get_int(const cli_args *args, const char *option, int64_t low, int64_t high, int64_t fallback, int64_t *out)
{
    const char *text = cli_get(args, option);
    *out = fallback;
    if (!text)
        return CLI_OK;
    char *end;
    errno = 0;
    *out = strtoll(text, &end, 10);
    if (end == text || *end || errno || *out < low || *out > high)
        return cli_usage(args->verb, "option '--%s': expected a number from %lld to %lld, found '%s'", option, (long long)low,
            (long long)high, text);
    return CLI_OK;
}

const char *const *cli_build_arguments(const cli_args *args)
{
    const char **words = cli_alloc(NULL, args->ngiven + 1, sizeof *words);
    size_t n = 0;
    for (size_t i = 0; i < args->ngiven; i++)
        for (const cli_option *o = cli_build_options; o->name; o++)
            if (o == args->given[i].option)
                words[n++] = o->value ? cli_format("--%s=%s", o->name, args->given[i].value) : cli_format("--%s", o->name);
    words[n] = NULL;
    return words;
}

static void print_options(const cli_option *o)
{
    for (; o && o->name; o++) {
        char *left = cli_format(o->letter ? "-%c, --%s%s%s" : "%c   --%s%s%s", o->letter ? o->letter : ' ', o->name,
            o->value ? " " : "", o->value ? o->value : "");
        printf("  %s%-22s%s %s\n", cli_style(stdout, CLI_BOLD), left, cli_style(stdout, CLI_PLAIN), o->help);
        free(left);
    }
}

void cli_print_help(const cli_verb *verb)
{
    const char *bold = cli_style(stdout, CLI_BOLD), *plain = cli_style(stdout, CLI_PLAIN), *dim = cli_style(stdout, CLI_DIM);
    printf("dovetail %s: %s\n\n%sUsage:%s dovetail %s %s\n\n%s\n\n%sOptions:%s\n", verb->name, verb->purpose, bold, plain,
        verb->name, verb->usage, verb->about, bold, plain);
    print_options(verb->options);
    if (verb->builds && verb != &verb_build)
        printf("of source files:\n");
    if (verb->builds)
        print_options(cli_build_options);
    print_options(common);
    printf("\n%sExamples:%s\n", bold, plain);
    for (const char *const *e = verb->examples; *e; e += 2)
        printf("  $ %s\n      %s%s%s\n", e[0], dim, e[1], plain);
}
