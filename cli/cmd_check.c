/* dovetail check: finds faults of operators before their users do. The checker itself is in check/. */
#include "cli.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

enum { DEFAULT_WORKERS = 2, QUICK_CASES = 24 };

static bool targets_has_ending(const char *s, const char *end)
{
    const size_t n = strlen(s), m = strlen(end);
    return n > m && !strcmp(s + n - m, end);
}

/* ---- Operators to check -------------------------------------------------------------------------------------------------- */

typedef struct targets {
    check_op *ops;
    size_t n;
    cli_temp temp;            /* the temporary folder of the binaries that are built for this check */
    size_t built;             /* number of binaries in temp whose names needed a number */
    const char *const *flags; /* nflags arguments of `dovetail build`, for sources */
    size_t nflags;
    bool in_process; /* --in-process: the operators' code runs in this process */
} targets;

/* Adds a binary or source that cannot be loaded, so that the property "binding" reports the reason. Returns a status. */
static int targets_add_refused_binary(targets *t, const char *path, const char *why)
{
    t->ops = cli_realloc_array(t->ops, t->n + 1, sizeof *t->ops);
    why = cli_skip_error_prefix(why);
    const size_t size = strlen(why);
    char *text = cli_format("%.*s", (int)(size && why[size - 1] == '\n' ? size - 1 : size), why);
    t->ops[t->n++] = (check_op){ .name = cli_format("%s", path), .load_error = text, .build_flags = t->flags };
    return CLI_OK;
}

/* Returns the reason why the first binary or source that is refused cannot be loaded; NULL: none is refused. */
static const char *targets_find_load_error(const targets *t)
{
    const char *error = NULL;
    for (size_t i = 0; i < t->n && !error; i++)
        error = t->ops[i].load_error;
    return error;
}

/* Reads the numbers and words in a source file, which become sizes and strings of the operator's test cases. */
static void targets_read_source_words(check_op *op, const char *path)
{
    check_add_source_sizes(op, path);
    op->nsource_words += check_list_source_strings(
        path, op->source_words + op->nsource_words, CHECK_MAX_SOURCE_WORDS - op->nsource_words);
}

/* Reads the numbers and words of the source files that $DOVETAIL_NUMBERS_OF lists, one in a line, for an operator of a binary
 * whose sources are unknown. */
static void targets_read_words_of_listed_files(check_op *op)
{
    const char *const list = getenv("DOVETAIL_NUMBERS_OF");
    char *const files = list ? cli_format("%s", list) : NULL;
    char *rest = files;
    for (char *file = files ? strtok_r(files, "\n", &rest) : NULL; file; file = strtok_r(NULL, "\n", &rest))
        targets_read_source_words(op, file);
    free(files);
}

/* Adds an operator to those that are checked. sources: its source files, ended by NULL, which live as long as the process; NULL:
 * a binary was given. Returns a status. */
static int targets_add_operator(targets *t, dv_operator *op, const char *path, const char *const *sources)
{
    for (size_t i = 0; i < t->n; i++)
        if (t->ops[i].op == op)
            return CLI_OK;
    t->ops = cli_realloc_array(t->ops, t->n + 1, sizeof *t->ops);
    check_op *added = &t->ops[t->n++];
    if (check_op_init(added, op))
        return cli_fail("%s", dv_last_error());
    added->path = path;
    added->sources = sources;
    added->build_flags = t->flags;
    for (; sources && *sources; sources++)
        targets_read_source_words(added, *sources);
    if (!added->sources)
        targets_read_words_of_listed_files(added);
    return CLI_OK;
}

/* Adds all operators of a library. Returns a status. */
static int targets_add_library(targets *t, const dv_library *lib, const char *const *sources)
{
    for (size_t i = 0; i < dv_library_noperators(lib); i++)
        if (targets_add_operator(t, dv_library_operator(lib, i), dv_library_path(lib), sources))
            return CLI_FAILED;
    return CLI_OK;
}

/* Returns the name of a sanitizer's runtime that a binary needs and this process does not have; NULL: none. The caller frees
 * it. */
static char *targets_new_missing_sanitizer_name(const char *path)
{
    cli_elf elf;
    char *found = NULL;
    if (cli_elf_read(path, &elf))
        return NULL;
    for (size_t i = 0; i < elf.nneeded && !found; i++) {
        void *const loaded = cli_is_sanitizer_runtime(elf.needed[i]) ? dlopen(elf.needed[i], RTLD_LAZY | RTLD_NOLOAD) : NULL;
        if (cli_is_sanitizer_runtime(elf.needed[i]) && !loaded)
            found = cli_format("%s", elf.needed[i]);
        if (loaded)
            dlclose(loaded);
    }
    cli_elf_free(&elf);
    return found;
}

/* Adds a binary that cannot be loaded, with the reason in dv_last_error(). */
static int targets_add_unloadable_binary(targets *t, const char *path)
{
    char *const sanitizer = targets_new_missing_sanitizer_name(path);
    char *const why = sanitizer
        ? cli_format(
              "%s: it is built with a sanitizer, whose runtime %s must be in a process from its start: check a build without "
              "-fsanitize, whose wrong accesses are found, too",
              path, sanitizer)
        : cli_format("%s", dv_last_error());
    const int status = targets_add_refused_binary(t, path, why);
    free(why);
    free(sanitizer);
    return status;
}

/* Gives all signals the actions and the mask that they had before this command. */
static void targets_reset_signals(void)
{
    cli_signals_end();
    signal(SIGXFSZ, SIG_DFL);
}

/* Loads a binary and adds its operators, or adds it as one that cannot be loaded. Returns a status. */
static int targets_add_binary(targets *t, const char *path, const char *const *sources)
{
    dv_library *lib;
    if (t->in_process) /* with --in-process the operator's code runs in this process from here on, so that a signal must end it,
                          and a debugger must get SIGINT */
        targets_reset_signals();
    const int status = t->in_process ? dv_load(path, &lib) : check_load(path, cli_is_interrupted, &lib);
    return status ? targets_add_unloadable_binary(t, path) : targets_add_library(t, lib, sources);
}

/* Makes the temporary folder of this check, unless it exists. Returns a status. */
static int targets_make_temp_folder(targets *t)
{
    const char *const folders[] = { getenv("TMPDIR"), "/tmp", getenv("XDG_RUNTIME_DIR") }; /* as dv_load() chooses */
    for (size_t i = 0; i < sizeof folders / sizeof *folders && !t->temp.path; i++)
        if (folders[i] && *folders[i])
            cli_temp_make(folders[i], &t->temp);
    check_mark_descriptor_private(t->temp.lock, true);
    return t->temp.path ? CLI_OK : cli_fail("cannot make a temporary folder in $TMPDIR, /tmp or $XDG_RUNTIME_DIR");
}

/* True if an argument of the build is about warnings, as -X -Wall. Words for the linker, -Wl,WORD, are not. */
static bool targets_asks_for_warnings(const targets *t)
{
    bool any = false;
    for (size_t i = 0; i < t->nflags; i++) {
        const char *flag = strstr(t->flags[i], "-W");
        any |= flag && flag[2] && flag[3] != ',';
    }
    return any;
}

/* Builds the n source files of one library into a temporary folder, as `dovetail build` does. label: the name of the files for
 * messages. Without an option about warnings the build gives none: they would hide the reason why it fails. */
static int targets_add_sources(targets *t, const char *const *files, size_t n, const char *label)
{
    cli_text output = { 0 };
    if (targets_make_temp_folder(t))
        return CLI_FAILED;
    const char *slash = strrchr(*files, '/'), *name = slash ? slash + 1 : *files;
    const int stem = (int)(strrchr(name, '.') - name);
    char *binary = cli_format("%s/%.*s.so", t->temp.path, stem, name);
    if (!access(binary, F_OK)) { /* another file of this name */
        free(binary);
        binary = cli_format("%s/%zu-%.*s.so", t->temp.path, ++t->built, stem, name);
    }
    enum { HEAD_WORDS = 8 };
    const char **argv = cli_realloc_array(NULL, HEAD_WORDS + t->nflags + n + 2, sizeof *argv);
    const char *const warnings = targets_asks_for_warnings(t) ? "-Wall" : "-w"; /* dovetail build has -Wall itself */
    const char *const head[HEAD_WORDS] = { cli_find_command(), "build", "-X", "-g1", "-X", warnings, "-o",
        binary }; /* -g1 adds line numbers, with which faults are reported */
    memcpy(argv, head, sizeof head);
    memcpy(argv + HEAD_WORDS, t->flags, t->nflags * sizeof *argv);
    argv[HEAD_WORDS + t->nflags] = "--";
    const char **const sources = argv + HEAD_WORDS + t->nflags + 1; /* the list lives as long as the operators */
    bool any_c = false;
    for (size_t i = 0; i < n; i++) {
        sources[i] = files[i];
        any_c |= targets_has_ending(files[i], ".c");
    }
    sources[n] = NULL;
    const int failed = cli_run_program(argv, NULL, &output);
    const int status = failed ? targets_add_refused_binary(t, label, output.data ? output.data : "it cannot be built")
                              : targets_add_binary(t, binary, any_c ? sources : NULL);
    cli_text_free(&output);
    free(binary);
    return status;
}

/* Adds the library that the operator files of a folder make. *added: false, and nothing is added, if there are none or they
 * define several libraries. */
static int targets_add_folder_sources(targets *t, const cli_args *args, const char *folder, bool *added)
{
    cli_sources found;
    int status = cli_find_sources(args, folder, &found, NULL);
    *added = !status && found.noperator_files && cli_is_one_library(found.operator_files, found.noperator_files);
    if (*added)
        status = targets_add_sources(t, found.operator_files, found.noperator_files, folder);
    else if (!status && found.noperator_files)
        cli_print_note("'%s': its files define several libraries, and are not checked: name the files of one library", folder);
    free(found.operator_files);
    free(found.other_files);
    return status;
}

/* True if a file that cannot be loaded is meant to be an operator binary: it contains the name of a library's symbol. */
static bool targets_is_operator_binary(const char *path)
{
    static const char symbol[] = "dovetail_library_";
    struct stat file;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    const bool regular = fd >= 0 && !fstat(fd, &file) && S_ISREG(file.st_mode) && file.st_size > 0;
    void *all = regular ? mmap(NULL, (size_t)file.st_size, PROT_READ, MAP_PRIVATE, fd, 0) : MAP_FAILED;
    const bool found = all != MAP_FAILED && memmem(all, (size_t)file.st_size, symbol, sizeof symbol - 1);
    if (all != MAP_FAILED)
        munmap(all, (size_t)file.st_size);
    if (fd >= 0)
        close(fd);
    return found;
}

/* Adds operator binaries in a folder and one level below. Skips other shared objects. has_sources: binaries of libraries that
 * are defined already are skipped too, as those that were built from the folder's sources. */
static int targets_add_folder(targets *t, const char *path, int levels, bool has_sources)
{
    struct dirent **names;
    const int n = scandir(path, &names, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        char *full = cli_join_path(path, names[i]->d_name);
        dv_library *lib;
        if (*names[i]->d_name != '.' && levels && cli_is_folder(full))
            targets_add_folder(t, full, levels - 1, has_sources);
        else if (targets_has_ending(full, ".so") && !check_load(full, cli_is_interrupted, &lib))
            targets_add_library(t, lib, NULL);
        else if (targets_has_ending(full, ".so") && targets_is_operator_binary(full) &&
            !strstr(dv_last_error(), "exports no dovetail_library_") && !(has_sources && strstr(dv_last_error(), " is already ")))
            targets_add_unloadable_binary(t, full);
        free(full);
        free(names[i]);
    }
    if (n >= 0)
        free(names);
    return CLI_OK;
}

/* Returns the folder of an installed Python package, which the caller frees; NULL: not found. */
static char *targets_find_package_folder(const char *name)
{
    static const char program[] = "import importlib.util, os, sys\n"
                                  "sys.path.append(os.getcwd())\n"
                                  "try: s = importlib.util.find_spec(sys.argv[1])\n"
                                  "except Exception: s = None\n"
                                  "print(s.submodule_search_locations[0] if s and s.submodule_search_locations else '')\n";
    const char *python = cli_is_program_on_path("python3") ? "python3" : "python";
    const char *const argv[] = { python, "-P", "-c", program, name, NULL };
    cli_text output = { 0 };
    const int status = cli_run_program(argv, NULL, &output);
    const size_t size = output.data ? strcspn(output.data, "\n") : 0;
    char *path = !status && size ? cli_format("%.*s", (int)size, output.data) : NULL;
    cli_text_free(&output);
    return path;
}

/* Returns the path of the binary that defines a loaded operator; NULL: no binary that this command loaded. */
static const char *targets_find_binary_path_of(const dv_operator *op)
{
    dv_library *const *all;
    const size_t n = cli_list_libraries(&all);
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < dv_library_noperators(all[i]); k++)
            if (dv_library_operator(all[i], k) == op)
                return dv_library_path(all[i]);
    return NULL;
}

/* Adds the operators that a word of the command line names. Returns a status. */
static int targets_add_by_name(targets *t, const char *word)
{
    dv_operator **found;
    size_t n;
    const int status = cli_find_operators(word, &found, &n);
    for (size_t i = 0; !status && i < n; i++)
        if (targets_add_operator(t, found[i], targets_find_binary_path_of(found[i]), NULL))
            return CLI_FAILED;
    free(found);
    return status;
}

/* True if a text may be the name of a Python package: letters, digits, '_' and '.' only. */
static bool targets_is_package_name(const char *s)
{
    return !s[strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.")];
}

/* Adds the operators of one operand: a source, binary, folder, Python package or the name of an operator. Returns a status. */
static int targets_add_operand(targets *t, const cli_args *args, const char *word)
{
    if ((targets_has_ending(word, ".c") || cli_is_binary_operand(word)) && access(word, R_OK))
        return cli_fail("cannot read '%s': %s", word, strerror(errno));
    if (cli_is_folder(word)) {
        bool added;
        const int status = targets_add_folder_sources(t, args, word, &added);
        return status ? status : targets_add_folder(t, word, 1, added);
    }
    if (cli_is_source_operand(word))
        return targets_add_sources(t, &word, 1, word);
    if (cli_is_binary_operand(word))
        return targets_add_binary(t, word, NULL);
    char *package = targets_is_package_name(word) ? targets_find_package_folder(word) : NULL;
    const size_t before = t->n;
    if (package)
        targets_add_folder(t, package, 1, false);
    free(package);
    return t->n > before ? CLI_OK : targets_add_by_name(t, word);
}

/* True if the option is --op and names the operator, with or without namespace and overload. */
static bool targets_is_selected_by(const struct cli_given_option *given, const char *full_name)
{
    const char *name = given->value, *space = strstr(full_name, "::"), *local_name = space ? space + 2 : full_name;
    const size_t size = strcspn(local_name, ".");
    return !strcmp(given->option->name, "op") &&
        (!strcmp(full_name, name) || !strcmp(local_name, name) || (strlen(name) == size && !strncmp(local_name, name, size)));
}

/* Prints that no operator has this name, with the names of all operators. Returns CLI_FAILED. */
static int targets_fail_unknown_operator(const targets *t, const char *name)
{
    cli_text all = { 0 };
    for (size_t i = 0; i < t->n; i++)
        cli_text_appendf(&all, "%s%s", i ? ", " : "", t->ops[i].name);
    const int status = cli_fail("no operator '%s'; there %s %s", name, t->n == 1 ? "is" : "are", t->n ? all.data : "none");
    free(all.data);
    return status;
}

/* Removes all operators that no --op names. Fails if an --op names none. Returns a status. */
static int targets_keep_selected(targets *t, const cli_args *args)
{
    for (const struct cli_given_option *g = args->given_options; g < args->given_options + args->ngiven_options; g++) {
        bool any = strcmp(g->option->name, "op");
        for (size_t i = 0; i < t->n && !any; i++)
            any = targets_is_selected_by(g, t->ops[i].name);
        if (!any)
            return targets_fail_unknown_operator(t, g->value);
    }
    size_t nselected = 0;
    for (size_t i = 0; i < t->n; i++) {
        bool named = false;
        for (size_t g = 0; g < args->ngiven_options && !named; g++)
            named = targets_is_selected_by(&args->given_options[g], t->ops[i].name);
        if (named)
            t->ops[nselected++] = t->ops[i];
    }
    t->n = nselected;
    return CLI_OK;
}

/* ---- Running ------------------------------------------------------------------------------------------------------------- */

/* The kind of progress that is printed to stderr while checks run. */
typedef struct progress_display {
    bool line;           /* stderr is a terminal: the running check is shown in one line that is rewritten */
    bool every_property; /* --verbose: each finished check of a property gets a line */
} progress_display;

/* Clears the line of progress on the terminal, if it is in use. */
static void progress_clear_line(const progress_display *s)
{
    if (s->line)
        fputs("\r\033[K", stderr);
}

/* Returns the number of columns of the terminal, 80 if unknown. A wider line could not be rewritten. */
static int progress_get_terminal_width(void)
{
    struct winsize size;
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) || !size.ws_col ? 80 : size.ws_col;
}

/* Shows the job that runs or has finished. For check_options.progress; user: the progress_display. */
static void progress_print_job(void *user, size_t ndone, size_t njobs, const check_job *job)
{
    const progress_display *s = user;
    char *what = cli_format(
        "%s of %s%s%s", job->property->name, job->op->name, check_get_kernel_label(job), job->kernel ? job->kernel->name : "");
    char *now = job->result->cases_begun ? cli_format(" (case %u)", (unsigned)job->result->cases_begun) : cli_format("%s", "");
    char *line = cli_format("%zu of %zu: %s%s", ndone, njobs, what, now);
    progress_clear_line(s);
    if (s->every_property && job->finished)
        fprintf(stderr, "%s: %s%s\n", what, check_outcomes[job->result->outcome], now);
    if (s->line && ndone < njobs)
        fprintf(stderr, "%.*s", progress_get_terminal_width() - 1, line);
    fflush(stderr);
    free(line);
    free(now);
    free(what);
}

/* Checks that each name in the value of --only is a property. Returns CLI_OK, or CLI_USAGE with the message printed. */
static int cmd_check_check_property_names(const cli_args *args, const char *only)
{
    if (only && !*only)
        return cli_fail_usage(args->verb, "option '--only': expected the name of a property, found nothing");
    for (const char *p = only; p && *p; p += strcspn(p, ","), p += *p == ',') {
        const size_t n = strcspn(p, ",");
        bool known = false;
        for (const check_property *const *c = check_properties; *c; c++)
            known |= strlen((*c)->name) == n && !strncmp((*c)->name, p, n);
        if (known)
            continue;
        cli_text names = { 0 };
        for (const check_property *const *c = check_properties; *c; c++)
            cli_text_appendf(&names, "%s%s", names.size ? ", " : "", (*c)->name);
        return cli_fail_usage(args->verb, "option '--only': there is no property '%.*s'; there are %s", (int)n, p, names.data);
    }
    return CLI_OK;
}

/* Closes a stream of open_memstream() and writes its text to the file at `path`. Frees the text. Returns a status. */
static int report_write_text(const char *path, FILE *to, char **text, size_t *size)
{
    const bool lost = ferror(to);
    const int error = fclose(to) || lost ? ENOMEM : cli_write_file(path, *text, *size);
    free(*text);
    return error ? cli_fail("cannot write '%s': %s", path, strerror(error)) : CLI_OK;
}

/* Writes the report of all jobs to a file in JUnit's XML. Returns a status. */
static int report_write_junit(const char *path, const targets *t, const check_job *jobs, size_t n)
{
    char *text = NULL;
    size_t size = 0;
    FILE *to = open_memstream(&text, &size);
    if (!to)
        return cli_fail("cannot write '%s': %s", path, strerror(ENOMEM));
    check_report_print_junit(t->ops, t->n, jobs, n, to);
    return report_write_text(path, to, &text, &size);
}

/* ---- PyTorch ------------------------------------------------------------------------------------------------------------- */

/* Runs `python -m dovetail.torch.check ARGUMENTS` and returns the content of the file that this program has written at
 * answer_path. NULL: *why_failed has the reason. The caller frees both. */
static char *torch_run_check_module(const char *python, const char *const *arguments, const char *answer_path, char **why_failed)
{
    cli_text output = { 0 }, content = { 0 };
    char *path = cli_make_python_path();
    const char *argv[12] = { python, "-P", "-m", "dovetail.torch.check" };
    for (size_t i = 0; arguments[i]; i++)
        argv[i + 4] = arguments[i];
    setenv("GLIBC_TUNABLES", "glibc.malloc.tcache_count=0",
        0); /* without this a newer libc does not fill all new memory, as the property `unwritten` needs */
    const int status = cli_run_program(argv, path, &output);
    if (status || cli_read_file(answer_path, &content)) {
        while (output.size && output.data[output.size - 1] == '\n')
            output.data[--output.size] = 0;
        const char *line = output.size ? strrchr(output.data, '\n') : NULL;
        *why_failed = cli_format("%s: %s", python, line ? line + 1 : output.size ? output.data : "it cannot be run");
    }
    cli_text_free(&output);
    free(path);
    return content.data;
}

/* Returns the reason why there is no Python with torch, as text for a message. */
static const char *torch_describe_no_python(void)
{
    return getenv("DOVETAIL_PYTHON") ? "there is no torch: DOVETAIL_PYTHON is empty, which turns these checks off"
                                     : "there is no torch: no Python is installed beside this command, active or on PATH";
}

/* Adds the operators that torch has after the module of --torch was imported. Returns a status. */
static int torch_add_operators(targets *t, const cli_args *args)
{
    const char *const module = cli_find_option_value(args, "torch"), *const name = cli_find_option_value(args, "op"),
                      *const contract = cli_find_option_value(args, "contract");
    char *why = NULL;
    size_t named = 0;
    for (size_t g = 0; g < args->ngiven_options; g++)
        named += !strcmp(args->given_options[g].option->name, "op");
    if (named > 1)
        return cli_fail("--torch takes one --op");
    if (targets_make_temp_folder(t))
        return CLI_FAILED;
    char *schemas = cli_join_path(t->temp.path, "schemas"), *python = cli_new_python_path();
    if (!python)
        return cli_fail("%s", torch_describe_no_python());
    const char *const words[] = { "--schemas", schemas, module, name, NULL };
    char *text = torch_run_check_module(python, words, schemas, &why);
    for (char *line = text, *end; line && (end = strchr(line, '\n')); line = end + 1) {
        *end = 0;
        t->ops = cli_realloc_array(t->ops, t->n + 1, sizeof *t->ops);
        if (contract && t->n)
            return cli_fail("option '--contract' is for one operator; '%s' are several: name an overload, such as %s.default",
                name ? name : module, name ? name : "ns::f");
        check_op *op = &t->ops[t->n++];
        if (check_op_init_torch(cli_format("%s", line), contract, op))
            return cli_fail("%s", dv_last_error());
        op->module = module;
        op->given_contract = contract;
    }
    free(text);
    free(schemas);
    free(python);
    return why ? cli_fail("%s", why) : t->n ? CLI_OK : cli_fail("importing '%s' gives torch no operators", module);
}

/* Prints the reason why check_run_jobs() has no results: an interruption, or memory is out. Returns CLI_FAILED. */
static int cmd_check_fail_no_results(void) { return cli_fail("%s", cli_is_interrupted() ? "interrupted" : "out of memory"); }

/* Runs the checks of the property "torch" in Python, and appends their results to the jobs. Does nothing if the property is not
 * selected. Returns a status. */
static int torch_run_checks(
    const cli_args *args, targets *t, const check_options *options, bool shows_progress, check_job **jobs, size_t *njobs)
{
    char *answer = NULL, *why = NULL;
    if (!check_is_selected_property(options, "torch"))
        return CLI_OK;
    char *python = cli_new_python_path(),
         *question = python ? check_torch_new_request(t->ops, t->n, *jobs, *njobs, options) : calloc(1, 1);
    if (!question || targets_make_temp_folder(t))
        return question ? CLI_FAILED : cmd_check_fail_no_results();
    if (!python) {
        why = cli_format("%s", torch_describe_no_python());
    } else if (*question) {
        char *asked = cli_join_path(t->temp.path, "question"), *answered = cli_join_path(t->temp.path, "answer");
        char *descriptor = shows_progress
            ? cli_format("%d", dup(STDERR_FILENO))
            : cli_format("-1"); /* without progress: cli_run_program() captures what the program prints */
        FILE *to = fopen(asked, "w");
        if (!to || fputs(question, to) < 0 || fclose(to))
            return cli_fail("cannot write '%s': %s", asked, strerror(errno));
        const char *const words[] = { asked, answered, descriptor, cli_find_option_value(args, "torch"), NULL };
        answer = torch_run_check_module(python, words, answered, &why);
        if (shows_progress)
            close(atoi(descriptor));
        free(descriptor);
        free(asked);
        free(answered);
    }
    const int status = check_torch_add_results(t->ops, t->n, options, answer, why, jobs, njobs)
        ? cli_fail("the answer of %s cannot be read", python)
        : CLI_OK;
    free(question);
    free(answer);
    free(python);
    free(why);
    return status;
}

/* True if the list contains this very pointer. */
static bool cmd_check_has_pointer(const char *pointer, const char *const *list, size_t n)
{
    size_t i = 0;
    while (i < n && list[i] != pointer)
        i++;
    return i < n;
}

/* Checks, before the check runs, that a file can be written; file NULL: nothing to check. Returns a status. */
static int cmd_check_require_writable(const char *file)
{
    const char *slash = file ? strrchr(file, '/') : NULL;
    char *in = slash ? cli_format("%.*s/", (int)(slash - file), file) : cli_format(".");
    const bool exists = file && !access(file, F_OK), folder_there = exists && cli_is_folder(file);
    const int error = folder_there || !access(exists ? file : in, exists ? W_OK : W_OK | X_OK) ? 0 : errno;
    free(in);
    return !file || (!folder_there && !error)
        ? CLI_OK
        : cli_fail("cannot write '%s': %s", file, folder_there ? "it is a folder" : strerror(error));
}

/* Raises this process's limits of address space and stack to what every check needs, and ignores SIGXFSZ. Fails if a limit is too
 * low. Returns a status. */
static int cmd_check_raise_limits(void)
{
    static const struct {
        int resource;
        rlim_t minimum;
        const char *name, *option;
    } needed[] = { { RLIMIT_AS, (rlim_t)72 << 30, "address space", "-v" }, { RLIMIT_STACK, (rlim_t)1 << 20, "stack", "-s" } };
    struct rlimit limit;
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++) {
        if (getrlimit((unsigned)needed[i].resource, &limit) || limit.rlim_cur >= needed[i].minimum)
            continue;
        limit.rlim_cur = limit.rlim_max < needed[i].minimum ? limit.rlim_max : needed[i].minimum;
        if (setrlimit((unsigned)needed[i].resource, &limit) || limit.rlim_cur < needed[i].minimum)
            return cli_fail("the %s is limited to %llu kB (ulimit %s), and a check needs %llu (guard pages lie far apart)",
                needed[i].name, (unsigned long long)limit.rlim_cur >> 10, needed[i].option,
                (unsigned long long)needed[i].minimum >> 10);
    }
    signal(SIGXFSZ, SIG_IGN); /* a write beyond the limit of a file's size then fails with an error */
    return CLI_OK;
}

/* Writes the report to stdout, or to where the JSON document goes. Its reader may be slow, or may not read at all: gives up half
 * a second after a signal. Returns 0 or errno. */
static int report_print_text(const char *data, size_t size)
{
    const double patience = 0.5;
    double interrupted_at = 0;
    while (size) {
        struct pollfd p = { .fd = cli_get_document_descriptor(), .events = POLLOUT };
        const bool ready = poll(&p, 1, 50) > 0;
        if (!ready && interrupted_at > 0 && cli_get_seconds() - interrupted_at > patience)
            return EINTR;
        if (cli_is_interrupted() && interrupted_at <= 0)
            interrupted_at = cli_get_seconds();
        const ssize_t n = ready ? write(p.fd, data, size < PIPE_BUF ? size : PIPE_BUF) : 0;
        if (n < 0 && errno != EINTR && errno != EAGAIN)
            return errno;
        data += n > 0 ? n : 0;
        size -= n > 0 ? (size_t)n : 0;
    }
    return 0;
}

/* Prints the report to stdout, as a table or as JSON. Returns 0 or errno. */
static int report_print_all(const targets *t, const check_job *jobs, size_t njobs, const check_options *options, double seconds)
{
    char *text = NULL;
    size_t size = 0;
    FILE *to = open_memstream(&text, &size);
    if (!to)
        return ENOMEM;
    if (cli_json_output)
        check_report_print_json(t->ops, t->n, jobs, njobs, options, seconds, to);
    else
        check_report_print_table(t->ops, t->n, jobs, njobs, cli_has_color(stdout), to);
    fflush(stdout);
    const int error = fclose(to) ? ENOMEM : report_print_text(text, size);
    free(text);
    return error;
}

/* ---- Repeating one check ------------------------------------------------------------------------------------------------- */

/* Parses the key of --case into *given; "@FILE" means the key in a file. If the key names an operator, only this operator stays
 * among the targets. Returns a status. The strings live as long as the process. */
static int repeat_read_key(const cli_args *args, targets *t, check_repeat *given)
{
    const char *key = cli_find_option_value(args, "case");
    cli_text file = { 0 };
    if (*key == '@') {
        const int error = cli_read_file(key + 1, &file);
        if (error)
            return cli_fail("cannot read '%s': %s", key + 1, strerror(error));
        key = file.data ? file.data : "";
    }
    const bool is_key = !check_key_parse(key, t->ops, t->n, given);
    if (given->property != &check_property_binding && targets_find_load_error(t)) /* it explains an operator that is not there */
        return cli_fail("%s", targets_find_load_error(t));
    if (!is_key)
        return cli_fail_usage(args->verb, "option '--case': %s", dv_last_error());
    if (given->op) { /* the other operators are left out of the report */
        t->ops[0] = *given->op;
        t->n = 1;
        given->op = t->ops;
    }
    return CLI_OK;
}

/* Returns the command that repeats the check of a key, with more_options at its end. The caller frees it; NULL: memory is out. */
static char *repeat_new_command(const check_repeat *given, const check_options *options, const char *more_options)
{
    const check_job job = { .op = given->op,
        .kernel = given->kernel,
        .property = given->property,
        .seed = options->seed,
        .last_seed = options->last_seed,
        .max_cases = options->max_cases,
        .case_ms = options->case_ms,
        .key = check_repeat_new_key(given) };
    char *command = NULL;
    size_t size = 0;
    FILE *to = open_memstream(&command, &size);
    if (to) {
        check_job_print_command(&job, more_options, to);
        fclose(to);
    }
    free(job.key);
    return command;
}

/* Writes a program of the key's call to the file that `option` names; emit() writes its text. Returns a status. */
static int repeat_write_program(const cli_args *args, const char *option, const check_repeat *given, const check_options *options,
    bool (*emit)(const check_repeat *, const char *, const char *, FILE *))
{
    const char *path = cli_find_option_value(args, option);
    char *text = NULL, *command = repeat_new_command(given, options, "");
    size_t size = 0;
    FILE *to = command ? open_memstream(&text, &size) : NULL;
    if (!to)
        return cli_fail("cannot write '%s': %s", path, strerror(ENOMEM));
    const bool written = emit(given, command, path, to);
    free(command);
    if (written)
        return report_write_text(path, to, &text, &size);
    fclose(to);
    free(text);
    return cli_fail("option '--%s': expected a call with tensors of at most 1 MB, of elements that a call site can hold", option);
}

/* Writes the programs of --emit-c and --emit-python. Fails for a key without a call. Returns a status. */
static int repeat_write_programs(const cli_args *args, const check_repeat *given, const check_options *options)
{
    if (!given->repeats_one_case)
        return cli_fail("option '--case': expected a key with a call, for a program");
    int status = CLI_OK;
    if (cli_has_option(args, "emit-c"))
        status = repeat_write_program(args, "emit-c", given, options, check_try_emit_c);
    if (cli_has_option(args, "emit-python") && !status)
        status = repeat_write_program(args, "emit-python", given, options, check_try_emit_python);
    return status;
}

/* Writes the Python script of the first job with torch that failed to the file of --emit-python. Returns a status. */
static int torch_write_failure_script(const cli_args *args, const check_job *jobs, size_t njobs)
{
    const char *path = cli_find_option_value(args, "emit-python");
    for (size_t i = 0; i < njobs; i++) {
        const char *text = jobs[i].external_python;
        const int error = text && path ? cli_write_file(path, text, strlen(text)) : 0;
        if (text && path)
            return error ? cli_fail("cannot write '%s': %s", path, strerror(error)) : CLI_OK;
    }
    return cli_fail("%s", path ? "the check with torch does not fail" : "option '--emit-c': expected a check without torch");
}

/* Prints the command line with which gdb runs the check of the key. */
static void repeat_print_debugger_command(const check_repeat *given, const check_options *options)
{
    char *command = given->op ? repeat_new_command(given, options, " --in-process") : NULL;
    if (command && !cli_json_output)
        printf("gdb --args %s\n", command);
    fflush(stdout);
    free(command);
}

/* Removes the jobs that are not of the key's operator and kernel. *njobs: the number of jobs, which becomes that of the remaining
 * ones. */
static void repeat_remove_other_jobs(const check_repeat *given, check_job *jobs, size_t *njobs)
{
    size_t kept = 0;
    for (size_t i = 0; i < *njobs; i++)
        if ((!given->op || jobs[i].op == given->op) &&
            (!*given->kernel_name || (jobs[i].kernel && !strcmp(jobs[i].kernel->name, given->kernel_name))))
            jobs[kept++] = jobs[i];
    *njobs = kept;
}

/* Gathers the targets, runs all checks of the command line and prints the report. Returns CLI_OK only if every check passed. */
static int cmd_check_run_targets(const cli_args *args, targets *t, check_options *options)
{
    static check_repeat given;
    check_job *jobs;
    size_t njobs;
    progress_display show = { isatty(STDERR_FILENO) && !cli_json_output, cli_has_option(args, "verbose") };
    const double begin = cli_get_seconds();
    int status = CLI_OK;
    if (cmd_check_raise_limits() || cmd_check_require_writable(cli_find_option_value(args, "junit")) ||
        cmd_check_require_writable(cli_find_option_value(args, "emit-c")) ||
        cmd_check_require_writable(cli_find_option_value(args, "emit-python")))
        return CLI_FAILED;
    size_t nfiles;
    const char **files = cli_gather_library_sources(args, args->noperands, &nfiles);
    if (files)
        status = targets_add_sources(t, files, nfiles, *files);
    for (size_t i = 0; i < args->noperands && !status; i++)
        if (!cli_is_repeated_operand(args, i) && !cmd_check_has_pointer(args->operands[i], files, nfiles))
            status = targets_add_operand(t, args, args->operands[i]);
    free(files);
    if (!status && cli_has_option(args, "torch"))
        status = torch_add_operators(t, args);
    else if (!status && cli_has_option(args, "op"))
        status = targets_keep_selected(t, args);
    if (!status && !t->n)
        status = cli_fail("there is no operator to check: a folder must hold the source files of one library ('dovetail build "
                          "FOLDER' says which it "
                          "finds), or binaries (.so)");
    if (!status && cli_has_option(args, "case")) {
        status = repeat_read_key(args, t, &given);
        options->repeat = &given;
        options->only_properties = given.property ? given.property->name : NULL;
    }
    if (!status && !check_is_selected_property(options, "binding") && targets_find_load_error(t)) /* else "binding" reports it */
        status = cli_fail("%s", targets_find_load_error(t));
    if (status)
        return status;
    const bool emits = cli_has_option(args, "emit-c") || cli_has_option(args, "emit-python");
    if (emits && given.property != &check_property_torch)
        return repeat_write_programs(args, &given, options);
    if (t->in_process)
        repeat_print_debugger_command(&given, options);
    options->progress = progress_print_job;
    options->user_data = &show;
    const size_t nops = cli_has_option(args, "torch") ? 0 : t->n;
    const int failure = t->in_process ? check_run_jobs_in_process(t->ops, nops, options, &jobs, &njobs)
                                      : check_run_jobs(t->ops, nops, options, &jobs, &njobs);
    progress_clear_line(&show);
    if (failure)
        return cmd_check_fail_no_results();
    if (show.line && check_is_selected_property(options, "torch"))
        fputs("torch", stderr);
    if (options->max_seconds > 0) /* the checks with torch get the remaining time; without any they end at once */
        options->max_seconds = options->max_seconds > cli_get_seconds() - begin
            ? options->max_seconds - (cli_get_seconds() - begin)
            : 0.001;
    if (!cli_is_interrupted() && torch_run_checks(args, t, options, show.line, &jobs, &njobs))
        return CLI_FAILED;
    progress_clear_line(&show);
    if (options->repeat && given.property == &check_property_torch)
        repeat_remove_other_jobs(&given, jobs, &njobs);
    if (emits)
        return torch_write_failure_script(args, jobs, njobs);
    const bool interrupted = cli_is_interrupted(); /* a later signal ends the command, but the report is whole */
    options->interrupted = interrupted ? cli_is_interrupted : NULL;
    const int error = report_print_all(t, jobs, njobs, options, cli_get_seconds() - begin);
    if (error && error != EPIPE && error != EINTR)
        return cli_fail("cannot write to standard output: %s", strerror(error));
    if (error == EPIPE) /* SIGPIPE is pending, and takes effect in cli_signals_end() */
        return CLI_FAILED;
    if (cli_has_option(args, "junit"))
        status = report_write_junit(cli_find_option_value(args, "junit"), t, jobs, njobs);
    if (interrupted) /* the report above has the results so far */
        return cli_fail("interrupted");
    return check_report_is_ok(t->ops, t->n, jobs, njobs) ? status : CLI_FAILED;
}

/* Sets the seeds of --seeds A..B, if given. Returns CLI_OK, or CLI_USAGE with the message printed. */
static int cmd_check_set_seeds(const cli_args *args, check_options *options)
{
    enum { MAX_SEEDS = 1000 };
    unsigned long long first, last;
    char end;
    const char *given = cli_find_option_value(args, "seeds");
    if (!given)
        return CLI_OK;
    if (cli_has_option(args, "seed"))
        return cli_fail_usage(args->verb, "option '--seeds': expected no '--seed' beside it");
    if (sscanf(given, "%llu..%llu%c", &first, &last, &end) != 2 || last < first || last - first >= MAX_SEEDS)
        return cli_fail_usage(
            args->verb, "option '--seeds': expected A..B, as 1..20, of at most %d seeds, found '%s'", MAX_SEEDS, given);
    options->seed = first;
    options->last_seed = last;
    return CLI_OK;
}

/* Runs the checks of the command line once, with signals deferred. Returns an exit status. */
static int cmd_check_run_once(const cli_args *args, check_options *options)
{
    targets t = { .temp.lock = -1, .flags = cli_list_build_args(args), .in_process = cli_has_option(args, "in-process") };
    while (t.flags[t.nflags])
        t.nflags++;
    cli_signals_begin();
    check_contain_init();
    const int status = cmd_check_run_targets(args, &t, options);
    check_kill_all_descendants();
    cli_temp_remove(&t.temp);
    cli_signals_end();
    return status;
}

/* ---- Watching ------------------------------------------------------------------------------------------------------------ */

/* True if --watch repeats the check when this file changes: a binary, source or header; headers_only: a header. */
static bool watch_is_watched_file(const char *path, bool headers_only)
{
    return targets_has_ending(path, ".h") ||
        (!headers_only && (targets_has_ending(path, ".so") || cli_has_source_extension(path)));
}

/* Returns a hash of the size and time of a file, or of the watched files in a folder and `levels` - 1 levels below; 0: the path
 * does not exist. */
static uint64_t watch_hash_state(const char *path, bool only_headers, int levels)
{
    struct stat s;
    struct dirent **names;
    uint64_t state = 0;
    if (stat(path, &s))
        return 0;
    if (!S_ISDIR(s.st_mode))
        return ((uint64_t)s.st_ino * 31 + (uint64_t)s.st_size) * 31 + (uint64_t)s.st_mtim.tv_sec * 1000000007 +
            (uint64_t)s.st_mtim.tv_nsec;
    const int n = levels ? scandir(path, &names, NULL, alphasort) : -1;
    for (int i = 0; i < n; i++) {
        char *full = cli_join_path(path, names[i]->d_name);
        if (*names[i]->d_name != '.' && (watch_is_watched_file(full, only_headers) || cli_is_folder(full)))
            state = state * 31 + watch_hash_state(full, only_headers, levels - 1);
        free(full);
        free(names[i]);
    }
    if (n >= 0)
        free(names);
    return state;
}

/* Returns a hash that changes if any file changes that the operands, --include folders or --torch name. */
static uint64_t watch_hash_operand_states(const cli_args *args)
{
    uint64_t state = cli_has_option(args, "torch") ? watch_hash_state(cli_find_option_value(args, "torch"), true, 0) : 0;
    for (size_t i = 0; i < args->noperands; i++) {
        const char *word = args->operands[i], *slash = strrchr(word, '/');
        state = state * 31 + watch_hash_state(word, false, 2);
        char *folder = slash ? cli_format("%.*s/", (int)(slash - word), word) : cli_format(".");
        if (cli_has_source_extension(word))
            state = state * 31 + watch_hash_state(folder, true, 1);
        free(folder);
    }
    for (size_t i = 0; i < args->ngiven_options; i++)
        if (!strcmp(args->given_options[i].option->name, "include"))
            state = state * 31 + watch_hash_state(args->given_options[i].value, true, 1);
    return state;
}

static void watch_sleep(void) { nanosleep(&(struct timespec){ .tv_nsec = 100 * 1000 * 1000 }, NULL); }

/* Runs the checks in a child process, again after each change of a watched file, until a signal comes. Returns CLI_FAILED. */
static int watch_run(const cli_args *args, check_options *options)
{
    cli_signals_begin();
    for (;;) {
        const uint64_t state = watch_hash_operand_states(args);
        fflush(NULL);
        const pid_t child = fork();
        if (child == 0) {
            prctl(PR_SET_PDEATHSIG, SIGTERM);
            cli_signals_end();
            return cmd_check_run_once(args, options);
        }
        for (bool interrupted_at = false; child > 0 && waitpid(child, NULL, WNOHANG) == 0; watch_sleep())
            if (cli_is_interrupted() && !interrupted_at)
                interrupted_at = !kill(child, SIGTERM);
        if (child > 0 && !cli_is_interrupted())
            fputs("dovetail: checked; waits for a change (Ctrl-C ends it)\n", stderr);
        while (child > 0 && !cli_is_interrupted() && watch_hash_operand_states(args) == state)
            watch_sleep();
        for (uint64_t last = state; child > 0 && !cli_is_interrupted() && watch_hash_operand_states(args) != last;
            watch_sleep()) /* wait until files stop changing */
            last = watch_hash_operand_states(args);
        if (child > 0 && !cli_is_interrupted())
            continue;
        cli_signals_end();
        return cli_fail("%s", child < 0 ? strerror(errno) : "interrupted");
    }
}

/* Checks that options are not given beside --case if its key decides them, and that options which need a key have one. Returns
 * CLI_OK, or CLI_USAGE with the message printed. */
static int cmd_check_check_case_options(const cli_args *args)
{
    static const char *const said[] = { "only", "time", "watch", NULL },
                             *const need[] = { "in-process", "emit-c", "emit-python", NULL };
    if (cli_has_option(args, "repro"))
        return cli_fail_usage(args->verb,
            "option '--repro' is gone: each failure shows the command that repeats it (--case); with it "
            "'--emit-c FILE' or '--emit-python FILE' writes a program of the call");
    for (const char *const *o = said; *o; o++)
        if (cli_has_option(args, "case") && cli_has_option(args, *o))
            return cli_fail_usage(args->verb, "option '--case': expected no '--%s' beside it", *o);
    for (const char *const *o = need; *o; o++)
        if (!cli_has_option(args, "case") && cli_has_option(args, *o))
            return cli_fail_usage(args->verb, "option '--%s': expected '--case KEY' beside it", *o);
    return CLI_OK;
}

/* Checks, with --watch, that every operand is a file or folder: names of operators and packages cannot be watched. Returns CLI_OK
 * or CLI_USAGE. */
static int watch_check_operands(const cli_args *args)
{
    const char *module = cli_find_option_value(args, "torch");
    for (size_t i = 0; cli_has_option(args, "watch") && i <= args->noperands; i++) {
        const char *word = i < args->noperands ? args->operands[i] : module;
        if (word && access(word, F_OK))
            return cli_fail_usage(args->verb, "option '--watch': expected files and folders, found '%s'", word);
    }
    return CLI_OK;
}

static int cmd_check_run(const cli_args *args)
{
    check_options options = {
        .max_workers = DEFAULT_WORKERS, .only_properties = cli_find_option_value(args, "only"), .interrupted = cli_is_interrupted
    };
    int64_t seed, seconds, case_ms, cases;
    check_command_path = cli_find_command();
    if (cli_has_option(args, "torch") ? args->noperands > 0 : cli_has_option(args, "contract"))
        return cli_fail_usage(args->verb, "option '--torch' takes no other target, and '--contract' needs '--torch'");
    if (!args->noperands && !cli_has_option(args, "torch"))
        return cli_fail_usage(args->verb, "expected a binary, a C file, a folder, a package or the name of an operator");
    if (cli_parse_option_int(args, "seed", 0, INT64_MAX, 1, &seed) ||
        cli_parse_option_int(args, "time", 1, 1000000, 0, &seconds) ||
        cli_parse_option_int(args, "case-ms", 8, 1000000, CHECK_CASE_MS, &case_ms) ||
        cli_parse_option_int(args, "cases", 1, CHECK_MAX_CASES, cli_has_option(args, "quick") ? QUICK_CASES : 0, &cases) ||
        cli_parse_option_int(args, "max-elements", 1, INT64_C(1) << 28, CHECK_DEFAULT_MAX_ELEMENTS, &check_max_elements) ||
        cmd_check_check_property_names(args, options.only_properties) || cmd_check_set_seeds(args, &options) ||
        watch_check_operands(args) || cmd_check_check_case_options(args))
        return CLI_USAGE;
    options.seed = options.last_seed ? options.seed : (uint64_t)seed;
    options.max_cases = (uint32_t)cases;
    options.max_seconds = (double)seconds;
    options.case_ms = (int)case_ms;
    return cli_has_option(args, "watch") ? watch_run(args, &options) : cmd_check_run_once(args, &options);
}

static const cli_option check_options_table[] = {
    { 0, "op", "NAME", "only this operator, and those of further --op" },
    { 0, "only", "PROPERTY,...", "only these properties" },
    { 0, "torch", "MODULE", "check torch operators that this Python module or library (.so) brings, whoever wrote them" },
    { 0, "contract", "TEXT", "with --torch and --op: the contract that inputs are made from" },
    { 0, "seed", "N", "other contents of the same cases (default 1)" },
    { 0, "seeds", "A..B", "each case with the contents of each of these seeds" },
    { 0, "cases", "N", "so many cases of a kernel instead of those that its plan needs (at most 200)" },
    { 0, "quick", NULL, "24 cases" },
    { 0, "max-elements", "N", "no tensor of more elements (default 400000)" },
    { 0, "time", "SECONDS", "begin nothing new after this time" },
    { 0, "case-ms", "N", "processor time of a call, in ms; a case that takes longer is left out (default 2000)" },
    { 0, "case", "KEY", "only the check of this key, which a failure shows; @FILE: the key is in this file" },
    { 0, "in-process", NULL, "with --case: without other processes, for gdb, valgrind and rr" },
    { 0, "emit-c", "FILE", "with --case: write a C program of the call, and check nothing" },
    { 0, "emit-python", "FILE", "with --case: write a Python script of the call, and check nothing" },
    { 0, "repro", "FOLDER", "gone: see --case" },
    { 0, "junit", "FILE", "also write the results as JUnit's XML" },
    { 0, "watch", NULL, "check again whenever a file changes, until Ctrl-C" },
    { 'v', "verbose", NULL, "a line on stderr for each property that has ended" },
    { 0, "json", NULL, "the results as one JSON document" },
    { 0 },
};

static const char *const check_examples[] = { "dovetail check my_ops.so", "every operator of a binary",
    "dovetail check my_ops.c --only memory", "one property; the file is built first", "dovetail check .",
    "checks the library that is built from the source files in this folder", "dovetail check my_ops.so --case KEY",
    "one failure again, with the key that it shows", "dovetail check --torch my_extension --op my_ops::gelu",
    "an operator of torch's that was not written with Dovetail", "dovetail check --json my_ops.so", "for programs", NULL };

const cli_verb verb_check = {
    .name = "check",
    .purpose = "find what is wrong with operators before their users do",
    .usage = "[options] FILE.so | FILE.c | FOLDER | PACKAGE | NAMESPACE::OPERATOR ... | --torch MODULE",
    .about =
        "Makes inputs from what each operator declares, and runs it on them until it finds a case that breaks the\n"
        "declaration: it may not crash, touch memory that is not its own, leave results unwritten, write what it does not\n"
        "declare, or give other shapes than its contract says. Each kernel is checked by itself, in processes that may\n"
        "crash. Says pass, fail with the smallest case found, or not checked and why (docs/check.md). With a Python that has\n"
        "torch ($DOVETAIL_PYTHON, the one it is installed in, the active environment's, or the first on PATH), torch is asked\n"
        "as well.",
    .options = check_options_table,
    .builds_sources = true,
    .examples = check_examples,
    .run_verb = cmd_check_run,
};
