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

enum { WORKERS = 2, CASE_MS = 2000, QUICK = 24 };

static bool ends_with(const char *s, const char *end)
{
    const size_t n = strlen(s), m = strlen(end);
    return n > m && !strcmp(s + n - m, end);
}

/* ---- Operators to check ---------------------------------------------------------------------------------------------------- */

typedef struct targets {
    check_op *ops;
    size_t n;
    cli_temp temp;            /* binaries that were built for this */
    size_t built;             /* number of binaries that were built into temp */
    const char *const *flags; /* nflags arguments of `dovetail build`, for sources */
    size_t nflags;
} targets;

/* A binary that cannot be loaded is also reported as a result. */
static int add_refused(targets *t, const char *path, const char *why)
{
    t->ops = cli_alloc(t->ops, t->n + 1, sizeof *t->ops);
    why = cli_without_prefix(why);
    const size_t size = strlen(why);
    char *text = cli_format("%.*s", (int)(size && why[size - 1] == '\n' ? size - 1 : size), why);
    t->ops[t->n++] = (check_op){ .name = cli_format("%s", path), .refused = text };
    return CLI_OK;
}

/* Reads the numbers and words of a source file, which the operator is tried with. */
static void read_source(check_op *op, const char *path)
{
    check_constants(op, path);
    op->nwords += check_source_words(path, op->words + op->nwords, CHECK_WORDS - op->nwords);
}

/* Does the same for the files that `undefined` names to the check of the binary which it has built. */
static void read_watched(check_op *op)
{
    const char *const list = getenv("DOVETAIL_NUMBERS_OF");
    char *const files = list ? cli_format("%s", list) : NULL;
    char *rest = files;
    for (char *file = files ? strtok_r(files, "\n", &rest) : NULL; file; file = strtok_r(NULL, "\n", &rest))
        read_source(op, file);
    free(files);
}

/* sources: the operator's source files, ended by NULL, which live as long as the process; NULL: a binary was given. */
static int add_operator(targets *t, dv_operator *op, const char *path, const char *const *sources)
{
    for (size_t i = 0; i < t->n; i++)
        if (t->ops[i].op == op)
            return CLI_OK;
    t->ops = cli_alloc(t->ops, t->n + 1, sizeof *t->ops);
    check_op *added = &t->ops[t->n++];
    if (check_op_init(added, op))
        return cli_fail("%s", dv_last_error());
    added->path = path;
    added->sources = sources;
    added->flags = t->flags;
    for (; sources && *sources; sources++)
        read_source(added, *sources);
    if (!added->sources)
        read_watched(added);
    return CLI_OK;
}

static int add_library(targets *t, const dv_library *lib, const char *const *sources)
{
    for (size_t i = 0; i < dv_library_size(lib); i++)
        if (add_operator(t, dv_library_operator(lib, i), dv_library_path(lib), sources))
            return CLI_FAILED;
    return CLI_OK;
}

/* Returns the name of a sanitizer's runtime that a binary needs and this process does not have; NULL: none. The caller frees
 * it. */
static char *find_missing_sanitizer(const char *path)
{
    cli_elf elf;
    char *found = NULL;
    if (cli_elf_read(path, &elf))
        return NULL;
    for (size_t i = 0; i < elf.nneeded && !found; i++) {
        void *const loaded = cli_is_sanitizer(elf.needed[i]) ? dlopen(elf.needed[i], RTLD_LAZY | RTLD_NOLOAD) : NULL;
        if (cli_is_sanitizer(elf.needed[i]) && !loaded)
            found = cli_format("%s", elf.needed[i]);
        if (loaded)
            dlclose(loaded);
    }
    cli_elf_free(&elf);
    return found;
}

/* Adds a binary that cannot be loaded, with the reason in dv_last_error(). */
static int add_unloadable(targets *t, const char *path)
{
    char *const sanitizer = find_missing_sanitizer(path);
    char *const why = sanitizer
        ? cli_format(
              "%s: it is built with a sanitizer, whose runtime %s must be in a process from its start: check a build without "
              "-fsanitize, whose wrong accesses are found, too",
              path, sanitizer)
        : cli_format("%s", dv_last_error());
    const int status = add_refused(t, path, why);
    free(why);
    free(sanitizer);
    return status;
}

static int add_binary(targets *t, const char *path, const char *const *sources)
{
    dv_library *lib;
    return check_load(path, cli_interrupted, &lib) ? add_unloadable(t, path) : add_library(t, lib, sources);
}

static int make_temp(targets *t)
{
    const char *const folders[] = { getenv("TMPDIR"), "/tmp", getenv("XDG_RUNTIME_DIR") }; /* as dv_load() chooses */
    for (size_t i = 0; i < sizeof folders / sizeof *folders && !t->temp.path; i++)
        if (folders[i] && *folders[i])
            cli_temp_make(folders[i], &t->temp);
    check_descriptor_private(t->temp.lock, true);
    return t->temp.path ? CLI_OK : cli_fail("cannot make a temporary folder in $TMPDIR, /tmp or $XDG_RUNTIME_DIR");
}

/* Builds the n source files of one library into a temporary folder, as `dovetail build` does. label: the name of the files for
 * messages. */
static int add_sources(targets *t, const char *const *files, size_t n, const char *label)
{
    cli_text output = { 0 };
    if (make_temp(t))
        return CLI_FAILED;
    const char *slash = strrchr(*files, '/'), *name = slash ? slash + 1 : *files;
    const int stem = (int)(strrchr(name, '.') - name);
    char *binary = cli_format("%s/%.*s.so", t->temp.path, stem, name);
    if (!access(binary, F_OK)) { /* another file of this name */
        free(binary);
        binary = cli_format("%s/%zu-%.*s.so", t->temp.path, ++t->built, stem, name);
    }
    enum { HEAD = 6 };
    const char **argv = cli_alloc(NULL, HEAD + t->nflags + n + 2, sizeof *argv);
    const char *const head[HEAD] = { "/proc/self/exe", "build", "-X", "-g1", "-o", binary }; /* -g1: line numbers, for faults */
    memcpy(argv, head, sizeof head);
    memcpy(argv + HEAD, t->flags, t->nflags * sizeof *argv);
    argv[HEAD + t->nflags] = "--";
    const char **const sources = argv + HEAD + t->nflags + 1; /* the list lives as long as the operators */
    bool any_c = false;
    for (size_t i = 0; i < n; i++) {
        sources[i] = files[i];
        any_c |= ends_with(files[i], ".c");
    }
    sources[n] = NULL;
    const int failed = cli_run(argv, NULL, &output);
    const int status = failed ? add_refused(t, label, output.data ? output.data : "it cannot be built")
                              : add_binary(t, binary, any_c ? sources : NULL);
    cli_text_free(&output);
    free(binary);
    return status;
}

/* Adds the library that the operator files of a folder make. *added: false, and nothing is added, if there are none or they
 * define several libraries. */
static int add_folder_sources(targets *t, const cli_args *args, const char *folder, bool *added)
{
    cli_sources found;
    int status = cli_find_sources(args, folder, &found, NULL);
    *added = !status && found.nfiles && cli_is_one_library(found.files, found.nfiles);
    if (*added)
        status = add_sources(t, found.files, found.nfiles, folder);
    else if (!status && found.nfiles)
        cli_note("'%s': its files define several libraries, and are not checked: name the files of one library", folder);
    free(found.files);
    free(found.others);
    return status;
}

/* Is a file that cannot be loaded meant to be an operator binary? It names the symbol of a library then. */
static bool names_library(const char *path)
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
static int add_folder(targets *t, const char *path, int depth, bool has_sources)
{
    struct dirent **names;
    const int n = scandir(path, &names, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        char *full = cli_join(path, names[i]->d_name);
        dv_library *lib;
        if (*names[i]->d_name != '.' && depth && cli_is_folder(full))
            add_folder(t, full, depth - 1, has_sources);
        else if (ends_with(full, ".so") && !check_load(full, cli_interrupted, &lib))
            add_library(t, lib, NULL);
        else if (ends_with(full, ".so") && names_library(full) && !strstr(dv_last_error(), "exports no dovetail_library_") &&
            !(has_sources && strstr(dv_last_error(), " is already ")))
            add_unloadable(t, full);
        free(full);
        free(names[i]);
    }
    if (n >= 0)
        free(names);
    return CLI_OK;
}

/* The folder of an installed Python package; NULL: not found. */
static char *find_package(const char *name)
{
    static const char program[] = "import importlib.util, os, sys\n"
                                  "sys.path.append(os.getcwd())\n"
                                  "try: s = importlib.util.find_spec(sys.argv[1])\n"
                                  "except Exception: s = None\n"
                                  "print(s.submodule_search_locations[0] if s and s.submodule_search_locations else '')\n";
    const char *python = cli_find_program("python3") ? "python3" : "python";
    const char *const argv[] = { python, "-P", "-c", program, name, NULL };
    cli_text output = { 0 };
    const int status = cli_run(argv, NULL, &output);
    const size_t size = output.data ? strcspn(output.data, "\n") : 0;
    char *path = !status && size ? cli_format("%.*s", (int)size, output.data) : NULL;
    cli_text_free(&output);
    return path;
}

/* The binary that defines a loaded operator. */
static const char *path_of(const dv_operator *op)
{
    dv_library *const *all;
    const size_t n = cli_libraries(&all);
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < dv_library_size(all[i]); k++)
            if (dv_library_operator(all[i], k) == op)
                return dv_library_path(all[i]);
    return NULL;
}

static int add_names(targets *t, const char *word)
{
    dv_operator **found;
    size_t n;
    const int status = cli_find_all(word, &found, &n);
    for (size_t i = 0; !status && i < n; i++)
        if (add_operator(t, found[i], path_of(found[i]), NULL))
            return CLI_FAILED;
    free(found);
    return status;
}

static bool is_word(const char *s) { return !s[strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.")]; }

static int add_target(targets *t, const cli_args *args, const char *word)
{
    if ((ends_with(word, ".c") || cli_is_binary(word)) && access(word, R_OK))
        return cli_fail("cannot read '%s': %s", word, strerror(errno));
    if (cli_is_folder(word)) {
        bool added;
        const int status = add_folder_sources(t, args, word, &added);
        return status ? status : add_folder(t, word, 1, added);
    }
    if (cli_is_source(word))
        return add_sources(t, &word, 1, word);
    if (cli_is_binary(word))
        return add_binary(t, word, NULL);
    char *package = is_word(word) ? find_package(word) : NULL;
    const size_t before = t->n;
    if (package)
        add_folder(t, package, 1, false);
    free(package);
    return t->n > before ? CLI_OK : add_names(t, word);
}

/* Does this option name the operator, with or without its namespace and overload? */
static bool is_named(const struct cli_given *given, const char *full)
{
    const char *name = given->value, *space = strstr(full, "::"), *own = space ? space + 2 : full;
    const size_t size = strcspn(own, ".");
    return !strcmp(given->option->name, "op") &&
        (!strcmp(full, name) || !strcmp(own, name) || (strlen(name) == size && !strncmp(own, name, size)));
}

static int no_operator(const targets *t, const char *name)
{
    cli_text all = { 0 };
    for (size_t i = 0; i < t->n; i++)
        cli_addf(&all, "%s%s", i ? ", " : "", t->ops[i].name);
    const int status = cli_fail("no operator '%s'; there %s %s", name, t->n == 1 ? "is" : "are", t->n ? all.data : "none");
    free(all.data);
    return status;
}

/* Only the operators that --op names. */
static int keep_named(targets *t, const cli_args *args)
{
    for (const struct cli_given *g = args->given; g < args->given + args->ngiven; g++) {
        bool any = strcmp(g->option->name, "op");
        for (size_t i = 0; i < t->n && !any; i++)
            any = is_named(g, t->ops[i].name);
        if (!any)
            return no_operator(t, g->value);
    }
    size_t kept = 0;
    for (size_t i = 0; i < t->n; i++) {
        bool named = false;
        for (size_t g = 0; g < args->ngiven && !named; g++)
            named = is_named(&args->given[g], t->ops[i].name);
        if (named)
            t->ops[kept++] = t->ops[i];
    }
    t->n = kept;
    return CLI_OK;
}

/* ---- Running ------------------------------------------------------------------------------------------------------------- */

/* What is printed while it runs. */
typedef struct shown {
    bool line;  /* on a terminal: what runs now, in one line that is rewritten */
    bool every; /* --verbose: a line for each property that has ended */
} shown;

static void clear(const shown *s)
{
    if (s->line)
        fputs("\r\033[K", stderr);
}

/* A line that is wider than the terminal could not be rewritten. */
static int terminal_width(void)
{
    struct winsize size;
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) || !size.ws_col ? 80 : size.ws_col;
}

static void progress(void *user, size_t done, size_t all, const check_job *job)
{
    const shown *s = user;
    char *what = cli_format(
        "%s of %s%s%s", job->property->name, job->op->name, job->row ? ", row " : "", job->row ? job->row->name : "");
    char *now = job->result->next ? cli_format(" (case %u)", (unsigned)job->result->next) : cli_format("%s", "");
    char *line = cli_format("%zu of %zu: %s%s", done, all, what, now);
    clear(s);
    if (s->every && job->finished)
        fprintf(stderr, "%s: %s%s\n", what, check_outcomes[job->result->outcome], now);
    if (s->line && done < all)
        fprintf(stderr, "%.*s", terminal_width() - 1, line);
    fflush(stderr);
    free(line);
    free(now);
    free(what);
}

static int check_only(const cli_args *args, const char *only)
{
    if (only && !*only)
        return cli_usage(args->verb, "option '--only': expected the name of a property, found nothing");
    for (const char *p = only; p && *p; p += strcspn(p, ","), p += *p == ',') {
        const size_t n = strcspn(p, ",");
        bool known = false;
        for (const check_property *const *c = check_properties; *c; c++)
            known |= strlen((*c)->name) == n && !strncmp((*c)->name, p, n);
        if (known)
            continue;
        cli_text names = { 0 };
        for (const check_property *const *c = check_properties; *c; c++)
            cli_addf(&names, "%s%s", names.size ? ", " : "", (*c)->name);
        return cli_usage(args->verb, "option '--only': there is no property '%.*s'; there are %s", (int)n, p, names.data);
    }
    return CLI_OK;
}

/* Closes a stream of open_memstream() and writes its text to the file at `path`. Frees the text. */
static int write_text(const char *path, FILE *to, char **text, size_t *size)
{
    const bool lost = ferror(to);
    const int error = fclose(to) || lost ? ENOMEM : cli_write_file(path, *text, *size);
    free(*text);
    return error ? cli_fail("cannot write '%s': %s", path, strerror(error)) : CLI_OK;
}

/* A file for each failure: FOLDER/operator.property.row.c and .py. */
static int write_repros(const char *folder, const check_job *jobs, size_t n)
{
    int status = CLI_OK;
    for (size_t i = 0; i < n && !status; i++) {
        if (!check_repro_possible(&jobs[i]))
            continue;
        char *name = check_repro_name(&jobs[i]);
        for (int python = 0; python < 2 && !status; python++) {
            char *path = cli_format("%s/%s.%s", folder, name, python ? "py" : "c"), *text = NULL;
            size_t size = 0;
            FILE *to = open_memstream(&text, &size);
            if (!to) {
                status = cli_fail("cannot write '%s': %s", path, strerror(ENOMEM));
            } else if (python ? check_repro_python(&jobs[i], to) : check_repro_c(&jobs[i], to)) {
                status = write_text(path, to, &text, &size);
            } else {
                fclose(to);
                free(text);
            }
            free(path);
        }
        free(name);
    }
    return status;
}

static int write_junit(const char *path, const targets *t, const check_job *jobs, size_t n)
{
    char *text = NULL;
    size_t size = 0;
    FILE *to = open_memstream(&text, &size);
    if (!to)
        return cli_fail("cannot write '%s': %s", path, strerror(ENOMEM));
    check_report_junit(t->ops, t->n, jobs, n, to);
    return write_text(path, to, &text, &size);
}

/* ---- PyTorch ------------------------------------------------------------------------------------------------------------- */

/* Run `python -m dovetail.torch.check` and return the content of its answer file. NULL: *why has the reason. */
static char *ask_python(const char *python, const char *const *words, const char *answer, char **why)
{
    cli_text output = { 0 }, content = { 0 };
    char *path = cli_own_package();
    const char *argv[12] = { python, "-P", "-m", "dovetail.torch.check" };
    for (size_t i = 0; words[i]; i++)
        argv[i + 4] = words[i];
    setenv("GLIBC_TUNABLES", "glibc.malloc.tcache_count=0", 0); /* or a newer libc does not fill all memory, for `unwritten` */
    const int status = cli_run(argv, path, &output);
    if (status || cli_read_file(answer, &content)) {
        while (output.size && output.data[output.size - 1] == '\n')
            output.data[--output.size] = 0;
        const char *line = output.size ? strrchr(output.data, '\n') : NULL;
        *why = cli_format("%s: %s", python, line ? line + 1 : output.size ? output.data : "it cannot be run");
    }
    cli_text_free(&output);
    free(path);
    return content.data;
}

/* Returns why no Python was found. */
static const char *describe_no_python(void)
{
    return getenv("DOVETAIL_PYTHON") ? "there is no torch: DOVETAIL_PYTHON is empty, which turns these checks off"
                                     : "there is no torch: no Python is installed beside this command, active or on PATH";
}

/* The operators that torch has after a module was imported. */
static int add_foreign(targets *t, const cli_args *args)
{
    const char *const module = cli_get(args, "torch"), *const name = cli_get(args, "op"),
                      *const contract = cli_get(args, "contract");
    char *why = NULL;
    size_t named = 0;
    for (size_t g = 0; g < args->ngiven; g++)
        named += !strcmp(args->given[g].option->name, "op");
    if (named > 1)
        return cli_fail("--torch takes one --op");
    if (make_temp(t))
        return CLI_FAILED;
    char *schemas = cli_join(t->temp.path, "schemas"), *python = cli_find_python();
    if (!python)
        return cli_fail("%s", describe_no_python());
    const char *const words[] = { "--schemas", schemas, module, name, NULL };
    char *text = ask_python(python, words, schemas, &why);
    for (char *line = text, *end; line && (end = strchr(line, '\n')); line = end + 1) {
        *end = 0;
        t->ops = cli_alloc(t->ops, t->n + 1, sizeof *t->ops);
        if (contract && t->n)
            return cli_fail("option '--contract' is for one operator; '%s' are several: name an overload, such as %s.default",
                name ? name : module, name ? name : "ns::f");
        if (check_foreign(cli_format("%s", line), contract, &t->ops[t->n++]))
            return cli_fail("%s", dv_last_error());
    }
    free(text);
    free(schemas);
    free(python);
    return why ? cli_fail("%s", why) : t->n ? CLI_OK : cli_fail("importing '%s' gives torch no operators", module);
}

/* Why check_run() gave no results. */
static int cannot_run(void) { return cli_fail("%s", cli_interrupted() ? "interrupted" : "out of memory"); }

/* Add the checks with torch after the existing jobs. show: print progress. */
static int check_in_torch(
    const cli_args *args, targets *t, const check_options *options, bool show, check_job **jobs, size_t *njobs)
{
    char *answer = NULL, *why = NULL;
    if (!check_wanted(options, "torch"))
        return CLI_OK;
    char *python = cli_find_python(),
         *question = python ? check_torch_question(t->ops, t->n, *jobs, *njobs, options) : calloc(1, 1);
    if (!question || make_temp(t))
        return question ? CLI_FAILED : cannot_run();
    if (!python) {
        why = cli_format("%s", describe_no_python());
    } else if (*question) {
        char *asked = cli_join(t->temp.path, "question"), *answered = cli_join(t->temp.path, "answer");
        char *descriptor = show ? cli_format("%d", dup(STDERR_FILENO)) : cli_format("-1"); /* cli_run() keeps what it prints */
        FILE *to = fopen(asked, "w");
        if (!to || fputs(question, to) < 0 || fclose(to))
            return cli_fail("cannot write '%s': %s", asked, strerror(errno));
        const char *const words[] = { asked, answered, descriptor, cli_get(args, "torch"), NULL };
        answer = ask_python(python, words, answered, &why);
        if (show)
            close(atoi(descriptor));
        free(descriptor);
        free(asked);
        free(answered);
    }
    const int status = check_torch_answer(t->ops, t->n, answer, why, jobs, njobs)
        ? cli_fail("the answer of %s cannot be read", python)
        : CLI_OK;
    free(question);
    free(answer);
    free(python);
    free(why);
    return status;
}

static bool is_listed(const char *word, const char *const *list, size_t n)
{
    size_t i = 0;
    while (i < n && list[i] != word)
        i++;
    return i < n;
}

/* Can a file be written there? Told before the check, not after it. */
static int check_outputs(const char *folder, const char *file)
{
    if (folder && mkdir(folder, 0777) && (errno != EEXIST || !cli_is_folder(folder) || access(folder, W_OK | X_OK)))
        return cli_fail(
            "cannot write programs to the folder '%s': %s", folder, errno == EEXIST ? "it is a file" : strerror(errno));
    const char *slash = file ? strrchr(file, '/') : NULL;
    char *in = slash ? cli_format("%.*s/", (int)(slash - file), file) : cli_format(".");
    const bool there = file && !access(file, F_OK), folder_there = there && cli_is_folder(file);
    const int error = folder_there || !access(there ? file : in, there ? W_OK : W_OK | X_OK) ? 0 : errno;
    free(in);
    return !file || (!folder_there && !error)
        ? CLI_OK
        : cli_fail("cannot write '%s': %s", file, folder_there ? "it is a folder" : strerror(error));
}

/* What its processes need whatever they run. */
static int check_limits(void)
{
    static const struct {
        int resource;
        rlim_t least;
        const char *name, *option;
    } needed[] = { { RLIMIT_AS, (rlim_t)72 << 30, "address space", "-v" }, { RLIMIT_STACK, (rlim_t)1 << 20, "stack", "-s" } };
    struct rlimit limit;
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++) {
        if (getrlimit((unsigned)needed[i].resource, &limit) || limit.rlim_cur >= needed[i].least)
            continue;
        limit.rlim_cur = limit.rlim_max < needed[i].least ? limit.rlim_max : needed[i].least;
        if (setrlimit((unsigned)needed[i].resource, &limit) || limit.rlim_cur < needed[i].least)
            return cli_fail("the %s is limited to %llu kB (ulimit %s), and a check needs %llu (guard pages lie far apart)",
                needed[i].name, (unsigned long long)limit.rlim_cur >> 10, needed[i].option,
                (unsigned long long)needed[i].least >> 10);
    }
    signal(SIGXFSZ, SIG_IGN); /* a write says it then */
    return CLI_OK;
}

/* Writes to stdout, whose reader may be slow or may not read at all. Gives up half a second after a signal. Returns 0 or
 * errno. */
static int print_text(const char *data, size_t size)
{
    const double patience = 0.5;
    double told = 0;
    while (size) {
        struct pollfd p = { .fd = STDOUT_FILENO, .events = POLLOUT };
        const bool ready = poll(&p, 1, 50) > 0;
        if (!ready && told > 0 && cli_now() - told > patience)
            return EINTR;
        if (cli_interrupted() && told <= 0)
            told = cli_now();
        const ssize_t n = ready ? write(STDOUT_FILENO, data, size < PIPE_BUF ? size : PIPE_BUF) : 0;
        if (n < 0 && errno != EINTR && errno != EAGAIN)
            return errno;
        data += n > 0 ? n : 0;
        size -= n > 0 ? (size_t)n : 0;
    }
    return 0;
}

static int print_report(const targets *t, const check_job *jobs, size_t njobs, const check_options *options, double seconds)
{
    char *text = NULL;
    size_t size = 0;
    FILE *to = open_memstream(&text, &size);
    if (!to)
        return ENOMEM;
    if (cli_json)
        check_report_json(t->ops, t->n, jobs, njobs, options, seconds, to);
    else
        check_report_table(t->ops, t->n, jobs, njobs, cli_colors(stdout), to);
    fflush(stdout);
    const int error = fclose(to) ? ENOMEM : print_text(text, size);
    free(text);
    return error;
}

static int check(const cli_args *args, targets *t, check_options *options)
{
    check_job *jobs;
    size_t njobs, failed = 0;
    shown show = { isatty(STDERR_FILENO) && !cli_json, cli_has(args, "verbose") };
    const double begin = cli_now();
    int status = CLI_OK;
    const char *programs = cli_get(args, "repro");
    if (check_limits() || check_outputs(programs, cli_get(args, "junit")))
        return CLI_FAILED;
    size_t nfiles;
    const char **files = cli_one_library(args, args->nwords, &nfiles);
    if (files)
        status = add_sources(t, files, nfiles, *files);
    for (size_t i = 0; i < args->nwords && !status; i++)
        if (!cli_is_repeated(args, i) && !is_listed(args->words[i], files, nfiles))
            status = add_target(t, args, args->words[i]);
    free(files);
    if (!status && cli_has(args, "torch"))
        status = add_foreign(t, args);
    else if (!status && cli_has(args, "op"))
        status = keep_named(t, args);
    if (!status && !t->n)
        status = cli_fail("there is no operator to check: a folder must hold the source files of one library ('dovetail build "
                          "FOLDER' says which it "
                          "finds), or binaries (.so)");
    for (size_t i = 0; i < t->n && !status && !check_wanted(options, "binding"); i++)
        if (t->ops[i].refused) /* else "binding" reports it */
            status = cli_fail("%s", t->ops[i].refused);
    if (status)
        return status;
    options->progress = progress;
    options->user = &show;
    const int failure = check_run(t->ops, cli_has(args, "torch") ? 0 : t->n, options, &jobs, &njobs);
    clear(&show);
    if (failure)
        return cannot_run();
    if (show.line && check_wanted(options, "torch"))
        fputs("torch", stderr);
    if (options->seconds > 0) /* the remaining time; end at once if there is none */
        options->seconds = options->seconds > cli_now() - begin ? options->seconds - (cli_now() - begin) : 0.001;
    if (!cli_interrupted() && check_in_torch(args, t, options, show.line, &jobs, &njobs))
        return CLI_FAILED;
    clear(&show);
    for (size_t i = 0; i < njobs; i++)
        failed += jobs[i].result->outcome == CHECK_FAIL;
    const int error = print_report(t, jobs, njobs, options, cli_now() - begin);
    if (error && error != EPIPE && error != EINTR)
        return cli_fail("cannot write to standard output: %s", strerror(error));
    if (error == EPIPE) /* SIGPIPE waits for the end of this */
        return CLI_FAILED;
    if (cli_has(args, "junit"))
        status = write_junit(cli_get(args, "junit"), t, jobs, njobs);
    if (cli_interrupted()) /* with the results so far */
        return cli_fail("interrupted");
    if (!status && programs)
        status = write_repros(programs, jobs, njobs);
    else if (failed && !cli_json && !programs)
        puts("a program for each failure, in C and in Python: --repro FOLDER");
    for (size_t i = 0; i < t->n; i++)
        failed += check_report_unmade(&t->ops[i], jobs, njobs) != NULL;
    return failed ? CLI_FAILED : status;
}

/* --seeds A..B */
static int get_seeds(const cli_args *args, check_options *options)
{
    enum { MOST_SEEDS = 1000 };
    unsigned long long first, last;
    char end;
    const char *given = cli_get(args, "seeds");
    if (!given)
        return CLI_OK;
    if (cli_has(args, "seed"))
        return cli_usage(args->verb, "option '--seeds': expected no '--seed' beside it");
    if (sscanf(given, "%llu..%llu%c", &first, &last, &end) != 2 || last < first || last - first >= MOST_SEEDS)
        return cli_usage(
            args->verb, "option '--seeds': expected A..B, as 1..20, of at most %d seeds, found '%s'", MOST_SEEDS, given);
    options->seed = first;
    options->last_seed = last;
    return CLI_OK;
}

static int check_once(const cli_args *args, check_options *options)
{
    targets t = { .temp.lock = -1, .flags = cli_build_arguments(args) };
    while (t.flags[t.nflags])
        t.nflags++;
    cli_signals_begin();
    check_contain_begin();
    cli_exits_at_once = true; /* destructors of libraries may do anything */
    const int status = check(args, &t, options);
    check_contained_end_all();
    cli_temp_remove(&t.temp);
    cli_signals_end();
    return status;
}

/* ---- Watching ------------------------------------------------------------------------------------------------------------ */

/* True if a change of the file is one of what is checked: a binary, a source or a header. */
static bool is_watched(const char *path, bool only_headers)
{
    return ends_with(path, ".h") || (!only_headers && (ends_with(path, ".so") || cli_ends_as_source(path)));
}

/* Returns a number that changes with a file, or with the watched files of a folder. */
static uint64_t state_of(const char *path, bool only_headers, int depth)
{
    struct stat s;
    struct dirent **names;
    uint64_t state = 0;
    if (stat(path, &s))
        return 0;
    if (!S_ISDIR(s.st_mode))
        return ((uint64_t)s.st_ino * 31 + (uint64_t)s.st_size) * 31 + (uint64_t)s.st_mtim.tv_sec * 1000000007 +
            (uint64_t)s.st_mtim.tv_nsec;
    const int n = depth ? scandir(path, &names, NULL, alphasort) : -1;
    for (int i = 0; i < n; i++) {
        char *full = cli_join(path, names[i]->d_name);
        if (*names[i]->d_name != '.' && (is_watched(full, only_headers) || cli_is_folder(full)))
            state = state * 31 + state_of(full, only_headers, depth - 1);
        free(full);
        free(names[i]);
    }
    if (n >= 0)
        free(names);
    return state;
}

static uint64_t state_of_all(const cli_args *args)
{
    uint64_t state = cli_has(args, "torch") ? state_of(cli_get(args, "torch"), true, 0) : 0;
    for (size_t i = 0; i < args->nwords; i++) {
        const char *word = args->words[i], *slash = strrchr(word, '/');
        state = state * 31 + state_of(word, false, 2);
        char *folder = slash ? cli_format("%.*s/", (int)(slash - word), word) : cli_format(".");
        if (cli_ends_as_source(word))
            state = state * 31 + state_of(folder, true, 1);
        free(folder);
    }
    for (size_t i = 0; i < args->ngiven; i++)
        if (!strcmp(args->given[i].option->name, "include"))
            state = state * 31 + state_of(args->given[i].value, true, 1);
    return state;
}

static void doze(void) { nanosleep(&(struct timespec){ .tv_nsec = 100 * 1000 * 1000 }, NULL); }

/* Check in a child, again after each change, until a signal ends it. */
static int watch(const cli_args *args, check_options *options)
{
    cli_signals_begin();
    for (;;) {
        const uint64_t state = state_of_all(args);
        fflush(NULL);
        const pid_t child = fork();
        if (child == 0) {
            prctl(PR_SET_PDEATHSIG, SIGTERM);
            cli_signals_end();
            return check_once(args, options);
        }
        for (bool told = false; child > 0 && waitpid(child, NULL, WNOHANG) == 0; doze())
            if (cli_interrupted() && !told)
                told = !kill(child, SIGTERM);
        if (child > 0 && !cli_interrupted())
            fputs("dovetail: checked; waits for a change (Ctrl-C ends it)\n", stderr);
        while (child > 0 && !cli_interrupted() && state_of_all(args) == state)
            doze();
        for (uint64_t last = state; child > 0 && !cli_interrupted() && state_of_all(args) != last;
            doze()) /* until it is complete */
            last = state_of_all(args);
        if (child > 0 && !cli_interrupted())
            continue;
        cli_signals_end();
        return cli_fail("%s", child < 0 ? strerror(errno) : "interrupted");
    }
}

/* Names of operators and packages are no files that could be watched. */
static int check_watch(const cli_args *args)
{
    const char *module = cli_get(args, "torch");
    for (size_t i = 0; cli_has(args, "watch") && i <= args->nwords; i++) {
        const char *word = i < args->nwords ? args->words[i] : module;
        if (word && access(word, F_OK))
            return cli_usage(args->verb, "option '--watch': expected files and folders, found '%s'", word);
    }
    return CLI_OK;
}

static int run(const cli_args *args)
{
    check_options options = { .workers = WORKERS, .only = cli_get(args, "only"), .interrupted = cli_interrupted };
    int64_t seed, seconds, case_ms, cases;
    if (cli_has(args, "torch") ? args->nwords > 0 : cli_has(args, "contract"))
        return cli_usage(args->verb, "option '--torch' takes no other target, and '--contract' needs '--torch'");
    if (!args->nwords && !cli_has(args, "torch"))
        return cli_usage(args->verb, "expected a binary, a C file, a folder, a package or the name of an operator");
    if (cli_get_int(args, "seed", 0, INT64_MAX, 1, &seed) || cli_get_int(args, "time", 1, 1000000, 0, &seconds) ||
        cli_get_int(args, "case-ms", 8, 1000000, CASE_MS, &case_ms) ||
        cli_get_int(args, "cases", 1, CHECK_MOST_CASES, cli_has(args, "quick") ? QUICK : 0, &cases) ||
        cli_get_int(args, "max-elements", 1, INT64_C(1) << 28, CHECK_MOST_ELEMENTS, &check_most_elements) ||
        check_only(args, options.only) || get_seeds(args, &options) || check_watch(args))
        return CLI_USAGE;
    options.seed = options.last_seed ? options.seed : (uint64_t)seed;
    options.cases = (uint32_t)cases;
    options.seconds = (double)seconds;
    options.case_ms = (int)case_ms;
    return cli_has(args, "watch") ? watch(args, &options) : check_once(args, &options);
}

static const cli_option options[] = {
    { 0, "op", "NAME", "only this operator, and those of further --op" },
    { 0, "only", "PROPERTY,...", "only these properties" },
    { 0, "torch", "MODULE", "check torch operators that this Python module or library (.so) brings, whoever wrote them" },
    { 0, "contract", "TEXT", "with --torch and --op: the contract that inputs are made from" },
    { 0, "seed", "N", "other contents of the same cases (default 1)" },
    { 0, "seeds", "A..B", "each case with the contents of each of these seeds" },
    { 0, "cases", "N", "so many cases of a row instead of those that its plan needs (at most 200)" },
    { 0, "quick", NULL, "24 cases" },
    { 0, "max-elements", "N", "no tensor of more elements (default 400000)" },
    { 0, "time", "SECONDS", "begin nothing new after this time" },
    { 0, "case-ms", "N", "processor time that a case may take before it counts as endless (default 2000)" },
    { 0, "repro", "FOLDER", "write a C program and a Python script for each failure there" },
    { 0, "junit", "FILE", "also write the results as JUnit's XML" },
    { 0, "watch", NULL, "check again whenever a file changes, until Ctrl-C" },
    { 'v', "verbose", NULL, "a line on stderr for each property that has ended" },
    { 0, "json", NULL, "the results as one JSON document, with those programs" },
    { 0 },
};

static const char *const examples[] = { "dovetail check my_ops.so", "every operator of a binary",
    "dovetail check my_ops.c --only memory", "one property; the file is built first", "dovetail check .",
    "the library whose source files lie in this folder", "dovetail check my_ops.so --repro broken",
    "a C program and a Python script for each failure, in the folder broken",
    "dovetail check --torch my_extension --op my_ops::gelu", "an operator of torch's that was not written with Dovetail",
    "dovetail check --json my_ops.so", "for programs", NULL };

const cli_verb verb_check = {
    .name = "check",
    .purpose = "find what is wrong with operators before their users do",
    .usage = "[options] FILE.so | FILE.c | FOLDER | PACKAGE | NAMESPACE::OPERATOR ... | --torch MODULE",
    .about =
        "Makes inputs from what each operator declares, and runs it on them until it finds a case that breaks the\n"
        "declaration: it may not crash, touch memory that is not its own, leave results unwritten, write what it does not\n"
        "declare, or give other shapes than its contract says. Each kernel row is checked by itself, in processes that may\n"
        "crash. Says pass, fail with the smallest case found, or not checked and why (docs/check.md). With a Python that has\n"
        "torch ($DOVETAIL_PYTHON, the one it is installed in, the active environment's, or the first on PATH), torch is asked\n"
        "as well.",
    .options = options,
    .builds = true,
    .examples = examples,
    .run = run,
};
