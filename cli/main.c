/* The command `dovetail`: finds the verb on the command line and runs it. */
#include "cli.h"

#include <stdlib.h>
#include <unistd.h>

#define DECLARE(verb) extern const cli_verb verb_##verb;
CLI_VERBS(DECLARE)
#define VERB_POINTER(verb) &verb_##verb,
static const cli_verb *const verbs[] = { CLI_VERBS(VERB_POINTER) };
enum { NVERBS = sizeof verbs / sizeof *verbs };

/* Prints the list of verbs to stdout. */
static void main_print_overview(void)
{
    const char *bold = cli_get_escape_code(stdout, CLI_BOLD), *reset = cli_get_escape_code(stdout, CLI_STYLE_NONE),
               *dim = cli_get_escape_code(stdout, CLI_DIM);
    printf(
        "dovetail %s: write an operator once, in C; use it everywhere\n\n%sUsage:%s dovetail <command> [options] [arguments]\n\n"
        "%sCommands:%s\n",
        dv_version(), bold, reset, bold, reset);
    for (size_t i = 0; i < NVERBS; i++)
        printf("  %s%-8s%s %s\n", bold, verbs[i]->name, reset, verbs[i]->purpose);
    printf("\n%sOptions:%s\n"
           "  %s-h, --help%s       this text; 'dovetail <command> --help' for one command, with examples\n"
           "  %s-V, --version%s    the version of the library that is running\n"
           "  %s    --home%s       the folder that holds include/, lib/ and ops/ (DOVETAIL_HOME sets it)\n"
           "  %s    --cflags%s     what a C program needs to compile against dovetail.h\n"
           "  %s    --libs%s       what it needs to link\n",
        bold, reset, bold, reset, bold, reset, bold, reset, bold, reset, bold, reset);
    printf("\n%sStart here:%s\n  $ dovetail new my_ops\n      %smakes an operator project from nothing; its README has the next "
           "steps%s\n"
           "\nExit codes: 0 done, 1 it failed, 2 wrong usage. Colour only on a terminal (NO_COLOR, --color WHEN).\n",
        bold, reset, dim, reset);
}

/* Returns the verb of this name; NULL: there is none. */
static const cli_verb *main_find_verb(const char *name)
{
    for (size_t i = 0; i < NVERBS; i++)
        if (!strcmp(verbs[i]->name, name))
            return verbs[i];
    return NULL;
}

/* Prints that no verb has this name, with the most similar verb. Returns CLI_USAGE. */
static int main_fail_unknown_verb(const char *name)
{
    const char *names[NVERBS];
    for (size_t i = 0; i < NVERBS; i++)
        names[i] = verbs[i]->name;
    const char *near = cli_find_nearest_name(name, names, NVERBS);
    if (near)
        return cli_fail_usage(NULL, "unknown command '%s' (did you mean '%s'?)", name, near);
    return cli_fail_usage(NULL, "unknown command '%s'", name);
}

/* Prints the compiler's flags of --cflags, --libs or both, as one line for a shell's $(...). A word is quoted only if necessary;
 * such a line is for eval. Returns an exit status. */
static int main_print_flags(int argc, char **argv)
{
    static const struct {
        const char *option, *before, *after;
    } words[] = { { "--cflags", "-I", "/include" }, { "--libs", "-L", "/lib" }, { "--libs", "-Wl,-rpath,", "/lib" },
        { "--libs", "-ldovetail", NULL }, { "--libs", "-lm", NULL } };
    cli_text line = { 0 };
    const char *home = cli_find_home();
    if (!home)
        return CLI_FAILED;
    for (int i = 0; i < argc; i++) {
        if (strcmp(argv[i], "--cflags") && strcmp(argv[i], "--libs"))
            return cli_fail_usage(NULL, "expected --cflags or --libs, found '%s'", argv[i]);
        for (size_t k = 0; k < sizeof words / sizeof *words; k++) {
            if (strcmp(argv[i], words[k].option))
                continue;
            char *word = cli_format("%s%s%s", words[k].before, words[k].after ? home : "", words[k].after ? words[k].after : "");
            cli_text_append_str(&line, line.size ? " " : "");
            cli_text_append_shell_word(&line, word);
            free(word);
        }
    }
    puts(line.data);
    cli_text_free(&line);
    return CLI_OK;
}

static pid_t main_pid;

/* A handler for atexit(): reports that a library has called exit(), since main() itself ends the process by _exit(). Does nothing
 * in a forked process. */
static void main_report_exit_of_library(void)
{
    if (getpid() != main_pid)
        return;
    cli_fail("a library has ended the process, by exit()");
    _exit(CLI_FAILED);
}

/* Parses the arguments after the verb and runs the verb. Returns an exit status. */
static int main_run_verb(const cli_verb *verb, int argc, char **argv)
{
    cli_args args;
    main_pid = getpid();
    atexit(main_report_exit_of_library);
    for (int i = 0; i < argc && strcmp(argv[i], "--"); i++)
        if (!strcmp(argv[i], "--help") ||
            !strcmp(argv[i], "-h")) { /* --help has effect even if the rest of the command line is wrong */
            cli_print_help(verb);
            return CLI_OK;
        }
    int status = cli_parse_args(verb, argc, argv, &args);
    if (!status)
        status = verb->run_verb(&args);
    free(args.operands);
    free(args.given_options);
    return status;
}

/* Runs the command. Returns an exit status. */
static int main_run(int argc, char **argv)
{
    int i = 1;
    if (i < argc && !strncmp(argv[i], "--color=", 8)) {
        if (cli_set_color(argv[i] + 8))
            return cli_fail_usage(NULL, "option '--color': expected auto, always or never, found '%s'", argv[i] + 8);
        i++;
    }
    if (i >= argc) {
        main_print_overview();
        return CLI_USAGE;
    }
    const char *word = argv[i];
    if (!strcmp(word, "-h") || !strcmp(word, "--help") || !strcmp(word, "help")) {
        const cli_verb *verb = i + 1 < argc ? main_find_verb(argv[i + 1]) : NULL;
        if (i + 1 < argc && !verb)
            return main_fail_unknown_verb(argv[i + 1]);
        if (verb)
            cli_print_help(verb);
        else
            main_print_overview();
        return CLI_OK;
    }
    if (!strcmp(word, "-V") || !strcmp(word, "--version")) {
        printf("dovetail %s\n", dv_version());
        return CLI_OK;
    }
    if (!strcmp(word, "--home")) {
        const char *home = cli_find_home();
        return home ? puts(home), CLI_OK : CLI_FAILED;
    }
    if (!strcmp(word, "--cflags") || !strcmp(word, "--libs"))
        return main_print_flags(argc - i, argv + i);
    if (!strcmp(word, CLI_INSPECT_ARGUMENT) && argc - i == 5)
        cli_inspect_binary(argv + i + 1);
    if (word[0] == '-')
        return cli_fail_usage(NULL, "unknown option '%s'", word);
    const cli_verb *verb = main_find_verb(word);
    return verb ? main_run_verb(verb, argc - i - 1, argv + i + 1) : main_fail_unknown_verb(word);
}

/* Ends by _exit(): destructors and atexit() handlers of loaded libraries do not run, since they may wait or change the status. */
int main(int argc, char **argv)
{
    int status = main_run(argc, argv);
    if (!cli_try_flush_output()) { /* output that could not be written, as on a full disk, is a failure */
        fputs("dovetail: error: cannot write to standard output\n", stderr);
        status = CLI_FAILED;
    }
    _exit(status);
}
