/* dovetail: finds the verb and hands over. */
#include "cli.h"

#include <stdlib.h>
#include <unistd.h>

#define DECLARE(verb) extern const cli_verb verb_##verb;
CLI_VERBS(DECLARE)
#define ROW(verb) &verb_##verb,
static const cli_verb *const verbs[] = { CLI_VERBS(ROW) };
enum { NVERBS = sizeof verbs / sizeof *verbs };

static void print_overview(void)
{
    const char *bold = cli_style(stdout, CLI_BOLD), *plain = cli_style(stdout, CLI_PLAIN), *dim = cli_style(stdout, CLI_DIM);
    printf(
        "dovetail %s: write an operator once, in C; use it everywhere\n\n%sUsage:%s dovetail <command> [options] [arguments]\n\n"
        "%sCommands:%s\n",
        dv_version(), bold, plain, bold, plain);
    for (size_t i = 0; i < NVERBS; i++)
        printf("  %s%-8s%s %s\n", bold, verbs[i]->name, plain, verbs[i]->purpose);
    printf("\n%sOptions:%s\n"
           "  %s-h, --help%s       this text; 'dovetail <command> --help' for one command, with examples\n"
           "  %s-V, --version%s    the version of the library that is running\n"
           "  %s    --home%s       the folder that holds include/, lib/ and ops/ (DOVETAIL_HOME sets it)\n"
           "  %s    --cflags%s     what a C program needs to compile against dovetail.h\n"
           "  %s    --libs%s       what it needs to link\n",
        bold, plain, bold, plain, bold, plain, bold, plain, bold, plain, bold, plain);
    printf("\n%sStart here:%s\n  $ dovetail new my_ops\n      %smakes an operator project from nothing; its README has the next "
           "steps%s\n"
           "\nExit codes: 0 done, 1 it failed, 2 wrong usage. Colour only on a terminal (NO_COLOR, --color WHEN).\n",
        bold, plain, dim, plain);
}

static const cli_verb *find_verb(const char *name)
{
    for (size_t i = 0; i < NVERBS; i++)
        if (!strcmp(verbs[i]->name, name))
            return verbs[i];
    return NULL;
}

static int unknown_verb(const char *name)
{
    const char *names[NVERBS];
    for (size_t i = 0; i < NVERBS; i++)
        names[i] = verbs[i]->name;
    const char *near = cli_nearest(name, names, NVERBS);
    if (near)
        return cli_usage(NULL, "unknown command '%s' (did you mean '%s'?)", name, near);
    return cli_usage(NULL, "unknown command '%s'", name);
}

/* --cflags, --libs or both: one line for $(...). A word is quoted only if it must be (then the line is for eval). */
static int print_flags(int argc, char **argv)
{
    static const struct {
        const char *option, *before, *after;
    } words[] = { { "--cflags", "-I", "/include" }, { "--libs", "-L", "/lib" }, { "--libs", "-Wl,-rpath,", "/lib" },
        { "--libs", "-ldovetail", NULL }, { "--libs", "-lm", NULL } };
    cli_text line = { 0 };
    const char *home = cli_home();
    if (!home)
        return CLI_FAILED;
    for (int i = 0; i < argc; i++) {
        if (strcmp(argv[i], "--cflags") && strcmp(argv[i], "--libs"))
            return cli_usage(NULL, "expected --cflags or --libs, found '%s'", argv[i]);
        for (size_t k = 0; k < sizeof words / sizeof *words; k++) {
            if (strcmp(argv[i], words[k].option))
                continue;
            char *word = cli_format("%s%s%s", words[k].before, words[k].after ? home : "", words[k].after ? words[k].after : "");
            cli_adds(&line, line.size ? " " : "");
            cli_add_shell(&line, word);
            free(word);
        }
    }
    puts(line.data);
    cli_text_free(&line);
    return CLI_OK;
}

static int run_verb(const cli_verb *verb, int argc, char **argv)
{
    cli_args args;
    for (int i = 0; i < argc && strcmp(argv[i], "--"); i++)
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) { /* help wins over whatever else is wrong */
            cli_print_help(verb);
            return CLI_OK;
        }
    int status = cli_parse(verb, argc, argv, &args);
    if (!status)
        status = verb->run(&args);
    free(args.words);
    free(args.given);
    return status;
}

static int run(int argc, char **argv)
{
    int i = 1;
    if (i < argc && !strncmp(argv[i], "--color=", 8)) {
        if (cli_set_color(argv[i] + 8))
            return cli_usage(NULL, "option '--color': expected auto, always or never, found '%s'", argv[i] + 8);
        i++;
    }
    if (i >= argc) {
        print_overview();
        return CLI_USAGE;
    }
    const char *word = argv[i];
    if (!strcmp(word, "-h") || !strcmp(word, "--help") || !strcmp(word, "help")) {
        const cli_verb *verb = i + 1 < argc ? find_verb(argv[i + 1]) : NULL;
        if (i + 1 < argc && !verb)
            return unknown_verb(argv[i + 1]);
        if (verb)
            cli_print_help(verb);
        else
            print_overview();
        return CLI_OK;
    }
    if (!strcmp(word, "-V") || !strcmp(word, "--version")) {
        printf("dovetail %s\n", dv_version());
        return CLI_OK;
    }
    if (!strcmp(word, "--home")) {
        const char *home = cli_home();
        return home ? puts(home), CLI_OK : CLI_FAILED;
    }
    if (!strcmp(word, "--cflags") || !strcmp(word, "--libs"))
        return print_flags(argc - i, argv + i);
    if (!strcmp(word, CLI_INSPECT) && argc - i == 5)
        cli_inspect(argv + i + 1);
    if (word[0] == '-')
        return cli_usage(NULL, "unknown option '%s'", word);
    const cli_verb *verb = find_verb(word);
    return verb ? run_verb(verb, argc - i - 1, argv + i + 1) : unknown_verb(word);
}

bool cli_exits_at_once;

int main(int argc, char **argv)
{
    const int status = run(argc, argv);
    if (fflush(stdout) || ferror(stdout)) { /* a full disk must not look like success */
        fputs("dovetail: error: cannot write to standard output\n", stderr);
        if (cli_exits_at_once)
            _exit(CLI_FAILED);
        return CLI_FAILED;
    }
    if (cli_exits_at_once)
        _exit(status);
    return status;
}
