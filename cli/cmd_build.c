/* dovetail build: C (and C++, CUDA, AscendC) files in, one operator binary out.
 *
 * The binary is made and checked in a private folder beside the output, and moved into place by one rename: at any time the
 * output is the old binary or the new one. With --cached the output is an entry of the user's cache folder (cache.c), built only
 * if necessary.
 */
#include "cli.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

typedef struct words {
    const char **data;
    size_t n;
} words;

/* A file's extension determines its language; --flag may name a language. */
enum language { C, CPP, CUDA, ASCENDC, NLANGUAGES };
static const struct {
    const char *end, *name;
} languages[NLANGUAGES] = { { ".c", "c" }, { ".cpp", "c++" }, { ".cu", "cuda" }, { ".cce", "ascendc" } };
#define ENDINGS ".c, .cpp, .cu or .cce"

typedef struct build {
    const cli_args *args;
    const char *home;
    words sources, objects;
    words left;                /* files of the folders that are not compiled: they include no header of operators */
    char *out, *folder, *made; /* the binary's path; its folder ("": the current one); its path in the temporary folder */
    words cc, cxx;             /* the compilers and their first arguments; cxx for .cpp files only */
    const char *nvcc, *ccec;
    bool uses[NLANGUAGES], cached, allow_unknown;
    bool warns, only_libc; /* warns: the machine code of kernels is inspected, since it is optimized; only_libc: no other library
                              is needed */
    words preload;         /* runtimes of sanitizers, which must be in a process from its start */
    bool named;            /* the caller gave the output's name; otherwise it is the library's name */
    cli_temp temp;
    int place;             /* the folder of the output, as a descriptor */
    cli_cache cache;       /* where the result is kept; unused if it is not */
    cli_text rules;        /* the output of -MMD: the included files */
    cli_text messages;     /* the compilers' output */
    cli_text report, json; /* the check's results: operators and rows */
    double seconds;
    off_t size;
} build;

static void push(words *w, const char *s)
{
    w->data = cli_alloc(w->data, w->n + 1, sizeof *w->data);
    w->data[w->n++] = s;
}

/* Strings that are never freed: the process makes one build. */
static const char *keep(char *s) { return s; }

static bool ends_with(const char *s, const char *end)
{
    const size_t n = strlen(s), m = strlen(end);
    return n > m && !strcmp(s + n - m, end);
}

/* The language of a file; NLANGUAGES: none. */
static enum language language_of(const char *path)
{
    int i = 0;
    while (i < NLANGUAGES && !ends_with(path, languages[i].end))
        i++;
    return (enum language)i;
}

/* ---- What to compile, and where to --------------------------------------------------------------------------------------- */

/* Adds the operator files of a folder to b->sources, and its other source files to b->left, each in order of name. Fails if the
 * folder has no operator file. */
static int find_sources(build *b, const char *folder)
{
    cli_sources found;
    cli_text missing = { 0 };
    if (cli_find_sources(b->args, folder, &found, &missing))
        return CLI_FAILED;
    const bool here = !strcmp(folder, "."), none = !found.nfiles;
    if (none && missing.size)
        cli_fail("no file to build: none of the " ENDINGS
                 " files %s%s includes <dovetail_op.h> as far as headers were found; not "
                 "found: %s (name their folder with -I)",
            here ? "here" : "in ", here ? "" : folder, missing.data);
    else if (none)
        cli_fail("no file to build: none of the " ENDINGS " files %s%s includes <dovetail_op.h>; 'dovetail new my_ops' "
                 "makes a project",
            here ? "here" : "in ", here ? "" : folder);
    for (size_t i = 0; i < found.nfiles; i++)
        push(&b->sources, found.files[i]);
    for (size_t i = 0; i < found.nothers; i++)
        push(&b->left, found.others[i]);
    free(found.files);
    free(found.others);
    cli_text_free(&missing);
    return none ? CLI_FAILED : CLI_OK;
}

/* Returns a sentence that lists the source files that are not compiled; programs only if `all`. NULL: there are none. The caller
 * frees it. */
static char *describe_left(const build *b, bool all)
{
    cli_text text = { 0 };
    size_t n = 0;
    for (size_t i = 0; i < b->left.n; i++)
        if (all || !cli_is_program_file(b->left.data[i]))
            cli_addf(&text, "%s%s", n++ ? ", " : "not compiled: ", b->left.data[i]);
    if (n)
        cli_addf(&text, " (%s not include <dovetail_op.h>; name what belongs to the binary)", n == 1 ? "it does" : "they do");
    return text.data;
}

/* The named files and folders, or the current folder. */
static int take_sources(build *b)
{
    int status = b->args->nwords ? CLI_OK : find_sources(b, ".");
    for (size_t i = 0; i < b->args->nwords && !status; i++) {
        const char *word = b->args->words[i];
        if (cli_is_repeated(b->args, i))
            continue;
        if (cli_is_folder(word))
            status = find_sources(b, word);
        else
            push(&b->sources, word);
    }
    return status;
}

/* Returns the kind of a file that is no regular file. */
static const char *kind_of(const struct stat *s)
{
    switch (s->st_mode & S_IFMT) {
    case S_IFDIR: return "a folder";
    case S_IFLNK: return "a symbolic link";
    case S_IFIFO: return "a pipe";
    case S_IFSOCK: return "a socket";
    default: return "a device";
    }
}

static int check_sources(build *b)
{
    for (size_t i = 0; i < b->sources.n; i++) {
        const char *path = b->sources.data[i];
        struct stat s;
        const enum language language = language_of(path);
        const bool known = language != NLANGUAGES;
        if (stat(path, &s))
            return cli_fail(
                "'%s': %s%s", path, strerror(errno), known ? "" : "; expected a folder, or a file that ends in " ENDINGS);
        if (!known)
            return cli_usage(b->args->verb, "'%s': expected a folder, or a file that ends in " ENDINGS, path);
        if (!S_ISREG(s.st_mode))
            return cli_fail("'%s': expected a file, found %s", path, kind_of(&s));
        if (access(path, R_OK))
            return cli_fail("cannot read '%s': %s", path, strerror(errno));
        b->uses[language] = true;
    }
    return CLI_OK;
}

/* Returns the kind of a file that a build must not replace; NULL: a regular file, or no file. */
static const char *irreplaceable(int folder, const char *name)
{
    struct stat s;
    return fstatat(folder, name, &s, AT_SYMLINK_NOFOLLOW) || S_ISREG(s.st_mode) ? NULL : kind_of(&s);
}

/* Fails if the output exists and must not be replaced. name: of the output, in an open folder or from AT_FDCWD. */
static int check_replaceable(const build *b, int folder, const char *name)
{
    const char *kind = irreplaceable(folder, name);
    return kind ? cli_fail("cannot write '%s': it is %s, and only a regular file is replaced; %sname another with --out", b->out,
                      kind, strcmp(kind, "a device") ? "remove it, or " : "")
                : CLI_OK;
}

static int choose_output(build *b)
{
    const char *given = cli_get(b->args, "out");
    struct stat s;
    b->named = given || b->sources.n == 1;
    if (given) {
        b->out = cli_format("%s", given);
    } else {
        const char *first = b->sources.data[0], *slash = strrchr(first, '/'), *base = slash ? slash + 1 : first;
        b->out = cli_format("%.*s.so", (int)(strrchr(base, '.') - base), base);
    }
    if (b->cached) /* the name is for messages */
        return given ? cli_usage(b->args->verb, "--cached chooses the file itself: it cannot be given with --out") : CLI_OK;
    if (b->out[strlen(b->out) - 1] == '/' || (!stat(b->out, &s) && S_ISDIR(s.st_mode)))
        return cli_fail("cannot write '%s': it is a folder", b->out);
    for (size_t i = 0; i < b->sources.n; i++)
        if (!strcmp(b->out, b->sources.data[i]))
            return cli_usage(b->args->verb, "the output '%s' is one of the sources", b->out);
    const char *slash = strrchr(b->out, '/');
    b->folder = slash ? cli_format("%.*s", slash == b->out ? 1 : (int)(slash - b->out), b->out) : cli_format(".");
    if (stat(b->folder, &s) || !S_ISDIR(s.st_mode))
        return cli_fail("cannot write '%s': there is no folder '%s'", b->out, b->folder);
    return check_replaceable(b, AT_FDCWD, b->out);
}

/* ---- With what ----------------------------------------------------------------------------------------------------------- */

/* $CC may hold arguments ("ccache gcc"): split at spaces, no shell. */
static void split_words(words *to, const char *text)
{
    for (text += strspn(text, " \t\n"); *text; text += strspn(text, " \t\n")) {
        const size_t n = strcspn(text, " \t\n");
        push(to, keep(cli_format("%.*s", (int)n, text)));
        text += n;
    }
}

/* From the option, the environment variable, or the first of the three default compilers that exists. */
static int choose_one(build *b, const char *what, const char *option, const char *variable, const char *const known[3], words *to)
{
    const char *given = cli_get(b->args, option), *env = getenv(variable);
    if (given || (env && env[strspn(env, " \t\n")])) {
        split_words(to, given ? given : env);
        if (!to->n)
            return cli_usage(b->args->verb, "option '--%s': the name is empty", option);
        if (!cli_find_program(to->data[0]))
            return cli_fail("no compiler '%s' (from %s%s): no such program on PATH", to->data[0], given ? "--" : "$",
                given ? option : variable);
    }
    for (size_t i = 0; i < 3 && !to->n; i++)
        if (cli_find_program(known[i]))
            push(to, known[i]);
    return to->n ? CLI_OK
                 : cli_fail("no %s compiler: none of %s, %s and %s is on PATH; install one, or name one with $%s or --%s", what,
                       known[0], known[1], known[2], variable, option);
}

/* A vendor's compiler, with a single default name. */
static int choose_vendor(build *b, enum language language, const char *name, const char *what, const char *from, const char **to)
{
    const char *given = cli_get(b->args, name);
    if (!b->uses[language])
        return CLI_OK;
    *to = given ? given : name;
    return cli_find_program(*to) ? CLI_OK
                                 : cli_fail("no %s compiler '%s': it is needed for %s files; install %s, or name one with --%s",
                                       what, *to, languages[language].end, from, name);
}

static int choose_compilers(build *b)
{
    static const char *const c[] = { "cc", "gcc", "clang" }, *const cxx[] = { "c++", "g++", "clang++" };
    int status = choose_one(b, "C", "cc", "CC", c, &b->cc);
    if (!status && b->uses[CPP])
        status = choose_one(b, "C++", "cxx", "CXX", cxx, &b->cxx);
    if (!status)
        status = choose_vendor(b, CUDA, "nvcc", "CUDA", "the CUDA toolkit", &b->nvcc);
    return status ? status : choose_vendor(b, ASCENDC, "ccec", "AscendC", "the CANN toolkit", &b->ccec);
}

/* A name that no program interprets as an option, a response file or (gcc's driver) a pipe. */
static const char *as_file(const char *path)
{
    const bool plain = (*path >= 'a' && *path <= 'z') || (*path >= 'A' && *path <= 'Z') || (*path >= '0' && *path <= '9') ||
        strchr("/._", *path);
    return plain ? path : keep(cli_format("./%s", path));
}

/* An argument of --flag if it is for this language, else NULL: "cuda:-lineinfo" is for CUDA, nvcc's architecture options are for
 * nvcc only, and other arguments are for all languages. */
static const char *flag_for(const char *argument, enum language language)
{
    static const char *const of_nvcc[] = { "-arch", "-gencode", "--gpu-architecture", "--generate-code", "--gpu-code" };
    for (int i = 0; i < NLANGUAGES; i++) {
        const size_t n = strlen(languages[i].name);
        if (!strncmp(argument, languages[i].name, n) && argument[n] == ':')
            return (enum language)i == language ? argument + n + 1 : NULL;
    }
    for (size_t i = 0; i < sizeof of_nvcc / sizeof *of_nvcc; i++) {
        const size_t n = strlen(of_nvcc[i]);
        if (!strncmp(argument, of_nvcc[i], n) && (!argument[n] || argument[n] == '='))
            return language == CUDA ? argument : NULL;
    }
    return argument;
}

static bool begins_with(const char *s, const char *begin) { return !strncmp(s, begin, strlen(begin)); }

/* True if an argument is for the linker, which reads its arguments in order: libraries resolve only what files before them need.
 */
static bool is_for_linker(const char *argument)
{
    static const char *const endings[] = { ".a", ".o", ".so", ".lds" };
    for (size_t i = 0; *argument != '-' && i < sizeof endings / sizeof *endings; i++)
        if (ends_with(argument, endings[i]) || (i == 2 && strstr(argument, ".so.")))
            return true;
    if (!strcmp(argument, "-lineinfo")) /* option of nvcc */
        return false;
    return begins_with(argument, "-l") || begins_with(argument, "-L") || begins_with(argument, "-Wl,") ||
        !strcmp(argument, "-Xlinker");
}

/* Returns the argument of -X if option i of the command line is one for the compilers, or, if `linker`, for the linker. NULL: it
 * is not. */
static const char *flag_at(const build *b, size_t i, enum language language, bool linker)
{
    const struct cli_given *given = b->args->given + i;
    const char *value = strcmp(given->option->name, "flag") ? NULL : flag_for(given->value, language), *before = NULL;
    for (size_t k = i; value && k-- > 0 && !before;) /* -X -Xlinker -X WORD: both words */
        if (!strcmp(b->args->given[k].option->name, "flag"))
            before = b->args->given[k].value;
    const bool follows = before && (!strcmp(before, "-Xlinker") || !strcmp(before, "-L") || !strcmp(before, "-l"));
    const bool of_nvcc = language == CUDA && value && value != given->value; /* "cuda:..." */
    return value && (!of_nvcc && (follows || is_for_linker(value))) == linker ? value : NULL;
}

/* -I, -D and -X in the order given. */
static void push_options(build *b, words *w, enum language language)
{
    for (size_t i = 0; i < b->args->ngiven; i++) {
        const char *name = b->args->given[i].option->name, *value = b->args->given[i].value;
        if (!strcmp(name, "include"))
            push(w, "-I"), push(w, as_file(value)); /* two words: the folder may have any name */
        else if (!strcmp(name, "define"))
            push(w, keep(cli_format("-D%s", value)));
        else if (flag_at(b, i, language, false))
            push(w, flag_at(b, i, language, false));
    }
}

/* Appends the arguments for the linker in command-line order: -L, -l, and those given by -X. */
static void push_libraries(const build *b, words *w, enum language language)
{
    for (size_t i = 0; i < b->args->ngiven; i++) {
        const char *name = b->args->given[i].option->name, *value = b->args->given[i].value;
        if (!strcmp(name, "library-dir"))
            push(w, keep(cli_format("-L%s", value)));
        else if (!strcmp(name, "library"))
            push(w, keep(cli_format("-l%s", value)));
        else if ((value = flag_at(b, i, language, true)))
            push(w, language == CUDA && begins_with(value, "-Wl,") ? keep(cli_format("-Xlinker=%s", value + 4)) : value);
    }
}

static void push_all(words *w, const char *const *flags, size_t n)
{
    for (size_t i = 0; i < n; i++)
        push(w, flags[i]);
}
#define PUSH(w, ...) \
    push_all(w, (const char *const[]){ __VA_ARGS__ }, sizeof((const char *const[]){ __VA_ARGS__ }) / sizeof(const char *))

/* gcc, by the name of the program, or of what that is a link to, as /usr/bin/cc often is. */
static bool is_gcc(const char *program)
{
    char *found = cli_program_path(program), *path = found ? realpath(found, NULL) : NULL;
    const char *name = path && strrchr(path, '/') ? strrchr(path, '/') + 1 : "";
    const bool is = strstr(name, "gcc") || (strstr(name, "g++") && !strstr(name, "clang"));
    free(path);
    free(found);
    return is;
}

/* Appends the C or C++ compiler and its flags to a command. */
static void c_command(build *b, words *w, enum language language)
{
    const bool debug = cli_has(b->args, "debug");
    const words *program = language == CPP ? &b->cxx : &b->cc;
    push_all(w, program->data, program->n);
    PUSH(w, language == CPP ? "-std=c++17" : "-std=c11", "-fPIC", "-fvisibility=hidden", "-fno-math-errno", "-fno-trapping-math",
        "-ffp-contract=fast", "-Wall", "-Wextra", "-Wno-unused-parameter");
    push(w, debug ? "-O1" : "-O3");
    if (!debug &&
        is_gcc(program->data[0])) /* or no vectors where a flag of the frame selects: it moves no choice out of long loops */
        push(w, "--param=max-unswitch-insns=100");
    if (debug)
        push(w, "-g");
    if (cli_has(b->args, "werror"))
        push(w, "-Werror");
    if (cli_colors(stderr) && !cli_json)
        push(w, "-fdiagnostics-color=always");
    PUSH(w, "-I", keep(cli_join(b->home, "include")));
    push_options(b, w, language);
}

/* True if an argument of -X begins with one of the strings in `begins`. */
static bool has_flag(const build *b, const char *const *begins, size_t n)
{
    for (size_t i = 0; i < b->args->ngiven; i++)
        for (size_t k = 0; k < n && !strcmp(b->args->given[i].option->name, "flag"); k++) {
            const char *value = b->args->given[i].value, *colon = strchr(value, ':');
            if ((begins_with(value, begins[k]) && !begins_with(value, "-gencode")) ||
                (colon && begins_with(colon + 1, begins[k])))
                return true;
        }
    return false;
}
#define HAS_FLAG(b, ...) \
    has_flag(b, (const char *const[]){ __VA_ARGS__ }, sizeof((const char *const[]){ __VA_ARGS__ }) / sizeof(const char *))

/* True if the compiler or the running binary writes more files for the author: line counts, stack usage, intermediate code. */
static bool leaves_files(const build *b)
{
    return HAS_FLAG(b, "--coverage", "-coverage", "-ftest-coverage", "-fprofile-", "-fstack-usage", "-fcallgraph-info", "-fdump-",
        "-save-temps", "-gsplit-dwarf");
}

/* Appends flags that place the files of leaves_files() beside the binary, named after source file i. There gcov looks for them,
 * as for an object of that name. */
static void push_names(build *b, words *w, size_t i)
{
    const char *path = b->sources.data[i], *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    const char *folder = b->cached ? "." : b->folder; /* the cache is not the author's */
    if (!leaves_files(b))
        return;
    for (size_t k = 0; k < i; k++) {
        const char *other = strrchr(b->sources.data[k], '/');
        if (!strcmp(other ? other + 1 : b->sources.data[k], name)) { /* two files of this name: by path, as gcov -p names them */
            char *flat = cli_format("%s", path);
            for (char *c = flat; (c = strchr(c, '/'));)
                *c = '#';
            name = keep(flat);
        }
    }
    const char *stem = keep(cli_format("%.*s", (int)(strrchr(name, '.') - name), name));
    if (is_gcc(b->cc.data[0])) {
        PUSH(w, "-dumpdir", keep(cli_format("%s/", as_file(folder))), "-dumpbase", name, "-dumpbase-ext", strrchr(name, '.'));
    } else {
        char *real = realpath(folder, NULL);
        for (int data = 0; real && data < 2; data++)
            PUSH(w, "-Xclang",
                keep(cli_format("-coverage-%s-file=%s/%s.%s", data ? "data" : "notes", real, stem, data ? "gcda" : "gcno")));
        free(real);
    }
}

/* True if the compiler inlines functions as in a release build and adds no instrumentation. */
static bool is_optimized(const build *b)
{
    return !cli_has(b->args, "debug") && !HAS_FLAG(b, "-O0", "-O1", "-Og", "-fno-inline", "-pg", "-fsanitize") &&
        !leaves_files(b);
}

/* True unless the binary is for a tool that shows the author's lines: a debugger, profiler or sanitizer. */
static bool is_stripped(const build *b)
{
    return !cli_has(b->args, "debug") && !HAS_FLAG(b, "-g", "-pg", "-fsanitize", "-lineinfo") && !leaves_files(b);
}

/* With --cached each compiler also writes what it included into a file of the temporary folder. */
static const char *rules_path(const build *b, size_t i) { return keep(cli_format("%s/%zu.d", b->temp.path, i)); }

static void push_rules(build *b, words *w, size_t i)
{
    if (b->cached)
        PUSH(w, "-MMD", "-MF", rules_path(b, i));
}

static int read_rules(build *b, size_t i)
{
    const int error = b->cached ? cli_read_file(rules_path(b, i), &b->rules) : 0;
    cli_add(&b->rules, "", 1);
    return error ? cli_fail("the compiler did not say what it included: %s", strerror(error)) : CLI_OK;
}

/* Sources, or their objects. */
static void link_command(build *b, words *w)
{
    const words *files = b->objects.n ? &b->objects : &b->sources;
    const enum language language = b->uses[CPP] ? CPP : C;
    c_command(b, w, language);
    if (b->uses[CPP])
        PUSH(w, "-static-libstdc++", "-static-libgcc"); /* the binary needs libc and libm only */
    if (!b->objects.n)
        push_rules(b, w, 0);
    if (is_stripped(b))
        push(w, "-s");
    PUSH(w, "-shared", "-o", b->made);
    for (size_t i = 0; i < files->n; i++)
        push(w, as_file(files->data[i]));
    PUSH(w, "-Wl,--as-needed", "-Wl,-z,defs", "-Wl,--exclude-libs,ALL");
    push_libraries(b, w, language);
    push(w, "-lm");
}

/* nvcc knows where its runtime is, so it links, with the runtime included statically. */
static void cuda_link_command(build *b, words *w)
{
    PUSH(w, b->nvcc, "-shared", "-cudart", "static", "-o", b->made);
    push_all(w, b->objects.data, b->objects.n);
    PUSH(w, "-Xlinker", is_stripped(b) ? "--as-needed,-z,defs,--exclude-libs,ALL,-s" : "--as-needed,-z,defs,--exclude-libs,ALL");
    push_libraries(b, w, CUDA);
    push(w, "-lm");
}

/* ---- Running ------------------------------------------------------------------------------------------------------------- */

static void show_command(const words *w)
{
    cli_text t = { 0 };
    for (size_t i = 0; w->data[i]; i++) {
        cli_adds(&t, i ? " " : "");
        cli_add_shell(&t, w->data[i]);
    }
    fprintf(stderr, "%s%s%s\n", cli_style(stderr, CLI_DIM), t.data, cli_style(stderr, CLI_PLAIN));
    cli_text_free(&t);
}

/* Returns the words of a message that tell that the output was not replaced. Without a name from the caller the output has the
 * library's name, which is known only after the link. */
static const char *describe_unmade(const build *b)
{
    return b->named ? keep(cli_format("'%s' was not %s", b->out, access(b->out, F_OK) ? "made" : "changed"))
                    : "no binary was made";
}

static int run_compiler(build *b, words *w)
{
    char *tmpdir = cli_format("TMPDIR=%s", b->temp.path); /* the compiler's temporary files are removed with this folder */
    const size_t before = b->messages.size;
    push(w, NULL);
    if (cli_has(b->args, "verbose"))
        show_command(w);
    const int status = cli_run(w->data, tmpdir, &b->messages);
    free(tmpdir);
    if (b->messages.size > before)
        cli_write(STDERR_FILENO, b->messages.data + before, b->messages.size - before);
    if (status < 0)
        return cli_fail("cannot run '%s': %s", w->data[0], strerror(-1 - status));
    if (cli_interrupted())
        return CLI_FAILED;
    if (status >= 128)
        return cli_fail("'%s' was killed by signal %d (%s)", w->data[0], status - 128, strsignal(status - 128));
    if (!status)
        return CLI_OK;
    cli_hints hints = { 0 };
    char *left = NULL;
    if (b->messages.data) {
        cli_explain_errors(b->messages.data, &hints);
        left = strstr(b->messages.data, "undefined ") ? describe_left(b, true)
                                                      : NULL; /* at the link: one of them may define it */
    }
    if (hints.count)
        fprintf(stderr, "\n%sWhat is wrong:%s\n%s", cli_style(stderr, CLI_BOLD), cli_style(stderr, CLI_PLAIN), hints.text.data);
    cli_text_free(&hints.text);
    if (left)
        cli_note("%s", left);
    free(left);
    return cli_fail("'%s' failed; %s", w->data[0], describe_unmade(b));
}

/* nvcc passes its arguments to a shell: refuse names with characters that are special there. */
static int check_for_nvcc(const words *w)
{
    for (size_t i = 0; i < w->n && w->data[i]; i++)
        if (w->data[i][strspn(w->data[i], "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./,:@%")])
            return cli_fail(
                "'%s': nvcc passes its arguments to a shell, so only letters, digits and _ - + = . / , : @ %% are safe in them",
                w->data[i]);
    return CLI_OK;
}

static int compile_object(build *b, size_t i)
{
    const char *path = b->sources.data[i], *object = keep(cli_format("%s/%zu.o", b->temp.path, i));
    words w = { 0 };
    const enum language language = language_of(path);
    const bool cuda = language == CUDA;
    if (cuda || language == ASCENDC) {
        PUSH(&w, cuda ? b->nvcc : b->ccec, "-O3", "-std=c++17");
        if (cuda)
            PUSH(&w, "-Xcompiler", "-fPIC,-fvisibility=hidden");
        else
            PUSH(&w, "-fPIC", "-fvisibility=hidden");
        PUSH(&w, "-I", keep(cli_join(b->home, "include")));
        push_options(b, &w, language);
    } else {
        c_command(b, &w, language);
        push_names(b, &w, i);
    }
    push_rules(b, &w, i);
    PUSH(&w, "-c", "-o", object, as_file(path));
    push(&b->objects, object);
    int status = cuda ? check_for_nvcc(&w) : CLI_OK;
    if (!status)
        status = run_compiler(b, &w);
    if (!status)
        status = read_rules(b, i);
    free(w.data);
    return status;
}

/* One C file, or several, by one command. With two compilers, or if several files must list their headers, the files are compiled
 * to objects first.
 */
static int compile(build *b)
{
    words w = { 0 };
    const bool cuda = b->uses[CUDA];
    const bool objects = cuda || b->uses[CPP] || b->uses[ASCENDC] || (b->cached && b->sources.n > 1) || leaves_files(b);
    int status = CLI_OK;
    for (size_t i = 0; objects && i < b->sources.n && !status; i++)
        status = compile_object(b, i);
    if (!status) {
        if (cuda)
            cuda_link_command(b, &w);
        else
            link_command(b, &w);
        status = cuda ? check_for_nvcc(&w) : CLI_OK;
    }
    if (!status)
        status = run_compiler(b, &w);
    if (!status && !objects)
        status = read_rules(b, 0);
    free(w.data);
    return status;
}

/* ---- Checking what came out ---------------------------------------------------------------------------------------------- */

#define STRING_(x) #x
/* clang-format off */
#define STRING(x) STRING_(x)
/* clang-format on */
static const char symbol[] = "dovetail_library_" STRING(DV_ABI_MAJOR);

/* True if a symbol was added by instrumentation: sanitizers, coverage, profiles. */
static bool is_of_instrumentation(const char *name)
{
    static const char *const begins[] = { "__odr_asan", "__asan_", "__tsan_", "__ubsan_", "__msan_", "__hwasan_", "__sanitizer_",
        "__sancov", "__start___sancov", "__stop___sancov", "__llvm_", "__gcov_", "__profd_", "__profc_" };
    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++)
        if (begins_with(name, begins[i]))
            return true;
    return false;
}

bool cli_is_sanitizer(const char *library)
{
    static const char *const begins[] = { "libasan.", "libtsan.", "libubsan.", "liblsan.", "libhwasan.", "libclang_rt." };
    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++)
        if (begins_with(library, begins[i]))
            return true;
    return false;
}

/* Returns the path of a runtime library as the compiler knows it; its name if the compiler does not. */
static const char *find_runtime(const build *b, const char *name)
{
    words w = { 0 };
    cli_text path = { 0 };
    push_all(&w, b->cc.data, b->cc.n);
    PUSH(&w, keep(cli_format("-print-file-name=%s", name)), NULL);
    const int status = cli_run(w.data, NULL, &path);
    const bool found = !status && path.size && *path.data == '/';
    const char *result = found ? keep(cli_format("%.*s", (int)strcspn(path.data, "\n"), path.data))
                               : keep(cli_format("%s", name));
    cli_text_free(&path);
    free(w.data);
    return result;
}

/* Returns the symbol that a C++ compiler made of a function of this name at file scope, or NULL: "_Z6launchjPv" of "launch". */
static const char *find_mangled(const cli_elf *elf, const char *name)
{
    char *begin = cli_format("_Z%zu%s", strlen(name), name);
    const char *found = NULL;
    for (size_t i = 0; i < elf->nsymbols && !found; i++)
        if (begins_with(elf->symbols[i], begin))
            found = elf->symbols[i];
    free(begin);
    return found;
}

/* Fails if an undefined weak symbol of the binary is defined in a linked file as a C++ function, so that extern "C" is
 * missing. */
static int check_file_for_missing(const char *path, const cli_elf *made)
{
    cli_elf file;
    int status = CLI_OK;
    if (cli_elf_read(path, &file))
        return CLI_OK;
    for (size_t i = 0; i < made->nmissing && !status; i++) {
        const char *mangled = find_mangled(&file, made->missing[i]);
        if (mangled)
            status = cli_fail(
                "'%s' is a function of C++ where it is defined ('%s'), and C does not find it: declare it extern \"C\" there",
                made->missing[i], mangled);
    }
    cli_elf_free(&file);
    return status;
}

/* Checks the binary's undefined weak symbols, such as launchers of kernels, against all files that were linked. */
static int check_missing(const build *b, const cli_elf *made)
{
    int status = check_file_for_missing(b->made, made);
    for (size_t i = 0; i < b->objects.n && !status; i++)
        status = check_file_for_missing(b->objects.data[i], made);
    for (size_t i = 0; i < b->args->ngiven && !status; i++) {
        const char *value = flag_at(b, i, b->uses[CPP] ? CPP : C, true);
        if (value && ends_with(value, ".o"))
            status = check_file_for_missing(value, made);
    }
    return status;
}

static int check_symbols(build *b)
{
    cli_elf elf;
    int status = CLI_OK;
    bool found = false;
    if (cli_elf_read(b->made, &elf))
        return CLI_OK; /* loading it says what is wrong with it */
    if ((status = check_missing(b, &elf))) {
        cli_elf_free(&elf);
        return status;
    }
    cli_text others = { 0 };
    b->only_libc = true;
    b->warns = is_optimized(b);
    for (size_t i = 0; i < elf.nsymbols; i++) {
        if (!strcmp(elf.symbols[i], symbol))
            found = true;
        else if (!is_of_instrumentation(elf.symbols[i]))
            cli_addf(&others, "%s%s", others.size ? ", " : "", elf.symbols[i]);
    }
    if (!found)
        status = cli_fail("the binary exports no '%s': end one of the files with DV_LIBRARY(name, &dv_op_...)", symbol);
    else if (others.size)
        status = cli_fail(
            "the binary exports %s besides '%s': make it static, or drop its visibility attribute", others.data, symbol);
    cli_adds(&b->json, "\"needs\": [");
    for (size_t i = 0; i < elf.nneeded; i++) {
        cli_adds(&b->json, i ? ", " : "");
        cli_add_json(&b->json, elf.needed[i]);
        b->only_libc &= begins_with(elf.needed[i], "libc.") || begins_with(elf.needed[i], "libm.");
        if (cli_is_sanitizer(elf.needed[i]))
            push(&b->preload, find_runtime(b, elf.needed[i]));
    }
    cli_adds(&b->json, "]");
    cli_text_free(&others);
    cli_elf_free(&elf);
    return status;
}

static void put(int fd, const char *s)
{
    for (size_t n = strlen(s); n;) {
        const ssize_t done = write(fd, s, n);
        if (done < 0 && errno != EINTR)
            return;
        s += done > 0 ? done : 0;
        n -= done > 0 ? (size_t)done : 0;
    }
}

static void put_part(int fd, const char *s)
{
    put(fd, s);
    while (write(fd, "", 1) < 0 && errno == EINTR)
        ;
}

static bool same_row(const dv_kernel_decl *a, const char *device, const char *dtypes)
{
    return a->run && !strcmp(a->device ? a->device : "", device) && !strcmp(a->dtypes ? a->dtypes : "", dtypes);
}

/* "cpu f32 [avx512 avx2 base], cpu bf16 [...]": each device and dtypes once. */
static void describe_rows(const dv_operator_decl *op, cli_text *to)
{
    const dv_kernel_decl *const *rows = op->kernels;
    for (size_t i = 0; rows && rows[i]; i++) {
        const char *device = rows[i]->device ? rows[i]->device : "", *dtypes = rows[i]->dtypes ? rows[i]->dtypes : "";
        bool seen = !rows[i]->run;
        for (size_t k = 0; k < i && !seen; k++)
            seen = same_row(rows[k], device, dtypes);
        if (seen)
            continue;
        cli_addf(to, "%s%s %s [", to->size ? ", " : "", device, *dtypes ? dtypes : "any");
        for (size_t k = i, n = 0; rows[k]; k++)
            if (same_row(rows[k], device, dtypes))
                cli_addf(to, "%s%s", n++ ? " " : "", rows[k]->isa ? rows[k]->isa : "base");
        cli_adds(to, "]");
    }
    if (!to->size)
        cli_adds(to,
            op->native                                          ? "native form only"
                : op->contract && strstr(op->contract, "view(") ? "a view: it needs no kernel"
                                                                : "no kernel and no native form: it cannot run");
}

static void json_rows(const dv_kernel_decl *const *rows, cli_text *to)
{
    size_t n = 0;
    cli_adds(to, "[");
    for (size_t i = 0; rows && rows[i]; i++) {
        const char *const values[] = { rows[i]->name, rows[i]->device, rows[i]->dtypes, rows[i]->isa };
        static const char *const names[] = { "name", "device", "dtypes", "isa" };
        if (!rows[i]->run)
            continue;
        cli_adds(to, n++ ? ", {" : "{");
        for (size_t k = 0; k < 4; k++) {
            cli_addf(to, "%s\"%s\": ", k ? ", " : "", names[k]);
            if (values[k])
                cli_add_json(to, values[k]);
            else
                cli_adds(to, "null");
        }
        cli_adds(to, "}");
    }
    cli_adds(to, "]");
}

/* The name under which an operator is registered: the schema's, which has precedence over the macro's. */
static char *registered_name(const dv_library_decl *lib, const dv_operator_decl *op)
{
    const char *name = op->schema ? op->schema + strspn(op->schema, " \t\n") : op->name;
    const char *colons = strstr(name, "::");
    const int n = (int)strcspn(name, "( \t\n");
    return colons && colons < name + n ? cli_format("%.*s", n, name) : cli_format("%s::%.*s", lib->name, n, name);
}

enum { INSPECT_UNLOADABLE = 1, INSPECT_REFUSED = 3 };

/* The library's message with "file:line: " of the declaration concerned, and with the binary's final name. lib: NULL
 * when the binary cannot be loaded at all. */
static void put_refusal(const build *b, const dv_library_decl *lib, int fd)
{
    const char *message = dv_last_error();
    const dv_operator_decl *about = NULL;
    size_t longest = 0;
    for (size_t i = 0; lib && lib->operators[i]; i++) {
        const dv_operator_decl *op = lib->operators[i]; /* a schema that does not parse: the macro's name */
        char *const names[] = { registered_name(lib, op), cli_format("%s::%s", lib->name, op->name) };
        for (size_t k = 0; k < 2; k++) {
            const size_t n = strlen(names[k]);
            for (const char *at = message; (at = strstr(at, names[k])); at += n)
                if (n > longest && at[n] != '_' && !(at[n] >= 'a' && at[n] <= 'z') && !(at[n] >= '0' && at[n] <= '9'))
                    about = op, longest = n;
            free(names[k]);
        }
    }
    cli_text text = { 0 };
    if (about)
        cli_addf(&text, "%s:%u: ", about->file, about->line);
    char *real = realpath(b->made, NULL);
    while (*message) {
        const size_t made = strlen(b->made), full = real ? strlen(real) : 0;
        const size_t n = full && !strncmp(message, real, full) ? full : !strncmp(message, b->made, made) ? made : 0;
        cli_add(&text, n ? b->out : message, n ? strlen(b->out) : 1);
        message += n ? n : 1;
    }
    put(fd, text.data);
}

/* ---- Names that this version knows ---- */

static const char *const known_tags[] = {
#define TAG(name) #name,
#include "../bridges/torch/tags.def"
#undef TAG
    "out", "autocast_lower", "autocast_f32"
};
#define KNOWN(names) names, sizeof names / sizeof *names

static int refuse_unknown(
    const dv_operator_decl *op, const char *what, const char *name, const char *const *known, size_t n, int fd)
{
    for (size_t i = 0; i < n; i++)
        if (!strcmp(name, known[i]))
            return 0;
    const char *near = cli_nearest(name, known, n);
    char *message = cli_format("%s:%u: operator %s: unknown %s '%s'%s%s%s; --allow-unknown lets names of newer versions pass",
        op->file, op->line, op->name, what, name, near ? " (did you mean '" : "", near ? near : "", near ? "'?)" : "");
    put(fd, message);
    return INSPECT_REFUSED;
}

/* A misspelt name would have no effect and go unnoticed. */
static int check_names(const dv_operator_decl *op, int fd)
{
    static const char separators[] = " ,+\t\n";
    const char *isas[32];
    size_t nisas = 0;
    int status = 0;
    while (nisas < 32 && (isas[nisas] = dv_isa_at(nisas)))
        nisas++;
    for (const char *at = op->tags ? op->tags : ""; *(at += strspn(at, separators)) && !status; at += strcspn(at, separators))
        status = refuse_unknown(op, "tag", keep(cli_format("%.*s", (int)strcspn(at, separators), at)), KNOWN(known_tags), fd);
    for (size_t i = 0; op->kernels && op->kernels[i] && !status; i++)
        for (const char *at = op->kernels[i]->run && op->kernels[i]->isa ? op->kernels[i]->isa : "";
            *(at += strspn(at, separators)) && !status; at += strcspn(at, separators))
            status = refuse_unknown(
                op, "instruction set", keep(cli_format("%.*s", (int)strcspn(at, separators), at)), isas, nisas, fd);
    return status;
}

/* A contract that contradicts itself: refused here, as every call would be. */
static int check_contract(const dv_operator_decl *decl, dv_operator *op, int fd)
{
    const size_t nargs = dv_operator_nargs(op), nresults = dv_operator_nresults(op);
    dv_value *args = calloc(nargs + 1, sizeof *args);
    dv_known *results = calloc(nresults + 1, sizeof *results);
    int status = 0;
    for (size_t i = 0; args && i < nargs; i++)
        args[i].type = DV_VALUE_UNKNOWN;
    if (args && results && decl->contract && dv_infer_partial(op, args, nargs, results, nresults)) {
        char *message = cli_format("%s:%u: no call fits the contract, since its parts exclude each other (? is any value): %s",
            decl->file, decl->line, dv_last_error());
        put(fd, message);
        status = INSPECT_REFUSED;
    }
    free(results);
    free(args);
    return status;
}

static bool is_base(const dv_kernel_decl *row) { return !row->isa || !*row->isa || !strcmp(row->isa, "base"); }

/* Appends warnings about kernels for vector instruction sets whose loops are compiled for the base set, as in a function that is
 * not inlined. */
static void warn_of_base_code(const build *b, const dv_library_decl *lib, cli_text *to)
{
    cli_code *code = NULL;
    for (size_t i = 0; lib->operators[i]; i++) {
        const dv_operator_decl *op = lib->operators[i];
        const void **others = NULL;
        size_t nothers = 0, n = 0;
        cli_text names = { 0 };
        for (size_t k = 0; op->kernels && op->kernels[k]; k++)
            if (op->kernels[k]->run && is_base(op->kernels[k])) {
                others = cli_alloc(others, nothers + 1, sizeof *others);
                memcpy(&others[nothers++], &op->kernels[k]->run, sizeof *others);
            }
        for (size_t k = 0; op->kernels && op->kernels[k]; k++) {
            const dv_kernel_decl *row = op->kernels[k];
            const void *entry;
            memcpy(&entry, &row->run, sizeof entry);
            if (!entry || is_base(row) || (row->device && strcmp(row->device, "cpu")) ||
                (!code && !(code = cli_code_open(entry))))
                continue;
            if (cli_code_is_base(code, entry, others, nothers, b->only_libc))
                cli_addf(&names, "%s%s (%s)", n++ ? ", " : "", row->name ? row->name : "?", row->isa);
        }
        if (n)
            cli_addf(to,
                "%s:%u: warning: operator %s: %s %s: the loops are compiled for the base instruction set, none has an "
                "instruction "
                "of AVX. What a kernel calls or passes on is compiled for the kernel's set only if it is inlined: make the "
                "function "
                "with the loop DV_INLINE, and cut the work by .split instead of dv_parallel_for(); or compile that function for "
                "each "
                "set, by DV_ISAS_LOOP, DV_TARGET_AVX2 or DV_TARGET_AVX512\n",
                op->file, op->line, op->name, n == 1 ? "kernel" : "kernels", names.data);
        cli_text_free(&names);
        free(others);
    }
    cli_code_close(code);
}

/* Loads a copy of a file that is made in memory. Returns the handle of dlopen(), or NULL. */
static void *open_copy(const char *path)
{
    cli_text content = { 0 };
    void *handle = NULL;
    const int fd = cli_read_file(path, &content) ? -1 : memfd_create("dovetail", MFD_CLOEXEC);
    if (fd >= 0 && write(fd, content.data, content.size) == (ssize_t)content.size) {
        char *name = cli_format("/proc/self/fd/%d", fd);
        handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
        free(name);
    }
    cli_text_free(&content);
    return handle;
}

/* Loads the binary; if its disk is mounted noexec, loads a copy. Returns NULL on failure. *why: the loader's message, which the
 * caller frees. */
static void *open_binary(const char *path, char **why)
{
    struct statvfs disk;
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    const char *message = handle ? NULL : dlerror();
    *why = cli_format("%s", message ? message : "the loader finds no declaration in it");
    return handle || statvfs(path, &disk) || !(disk.f_flag & ST_NOEXEC) ? handle : open_copy(path);
}

/* Replaces this child process by one that loads the sanitizers' runtimes at its start, as they demand. Returns only on
 * failure. */
static int inspect_preloaded(const build *b, int fd)
{
    const char *given = getenv("LD_PRELOAD");
    cli_text preload = { 0 };
    for (size_t i = 0; i < b->preload.n; i++)
        cli_addf(&preload, "%s%s", i ? ":" : "", b->preload.data[i]);
    if (given && *given)
        cli_addf(&preload, ":%s", given);
    setenv("LD_PRELOAD", preload.data, 1);
    personality(ADDR_NO_RANDOMIZE); /* gcc's runtimes up to 13 crash at some addresses; may be refused */
    fcntl(fd, F_SETFD, 0);
    execl("/proc/self/exe", "dovetail", CLI_INSPECT, keep(cli_format("%d", fd)), b->made, b->out, b->allow_unknown ? "1" : "0",
        (char *)NULL);
    put(fd, strerror(errno));
    return INSPECT_UNLOADABLE;
}

/* In a child process: the binary may crash. Writes the library's name, the report and the JSON, a NUL between them; or the error.
 */
static int inspect(void *user, int fd)
{
    const build *b = user;
    if (b->preload.n)
        return inspect_preloaded(b, fd);
    close(b->cache.lock); /* a process that the binary starts must not hold them */
    close(b->temp.lock);
    char *why;
    void *handle = open_binary(b->made, &why);
    const dv_library_decl *lib = handle ? dlsym(handle, symbol) : NULL;
    dv_library *registered;
    if (dv_load(b->made, &registered)) {
        put_refusal(b, lib, fd);
        return INSPECT_REFUSED;
    }
    if (!lib) {
        put(fd, why);
        return INSPECT_UNLOADABLE;
    }
    for (size_t i = 0; lib->operators[i] && !b->allow_unknown; i++)
        if (check_names(lib->operators[i], fd))
            return INSPECT_REFUSED;
    for (size_t i = 0; i < dv_library_size(registered); i++)
        if (check_contract(lib->operators[i], dv_library_operator(registered, i), fd))
            return INSPECT_REFUSED;
    cli_text text = { 0 }, json = { 0 }, warnings = { 0 };
    int width = 0;
    if (b->warns)
        warn_of_base_code(b, lib, &warnings);
    for (size_t i = 0; lib->operators[i]; i++) {
        char *name = registered_name(lib, lib->operators[i]);
        width = (int)strlen(name) > width ? (int)strlen(name) : width;
        free(name);
    }
    cli_adds(&json, "\"library\": ");
    cli_add_json(&json, lib->name);
    cli_adds(&json, ", \"operators\": [");
    for (size_t i = 0; lib->operators[i]; i++) {
        const dv_operator_decl *op = lib->operators[i];
        char *name = registered_name(lib, op);
        cli_text rows = { 0 };
        describe_rows(op, &rows);
        cli_addf(&text, "  %-*s  %s\n", width, name, rows.data);
        cli_adds(&json, i ? ", {\"name\": " : "{\"name\": ");
        cli_add_json(&json, name);
        cli_adds(&json, ", \"file\": ");
        cli_add_json(&json, op->file);
        cli_addf(&json, ", \"line\": %u, \"kernels\": ", op->line);
        json_rows(op->kernels, &json);
        cli_adds(&json, "}");
        cli_text_free(&rows);
        free(name);
    }
    cli_adds(&json, "]");
    put_part(fd, lib->name);
    put_part(fd, text.data ? text.data : "");
    put_part(fd, warnings.data ? warnings.data : "");
    put(fd, json.data);
    return 0;
}

void cli_inspect(char **argv)
{
    build b = {
        .made = argv[1], .out = argv[2], .allow_unknown = *argv[3] == '1', .cache = { .lock = -1 }, .temp = { NULL, -1, -1 }
    };
    syscall(SYS_exit_group, inspect(&b, atoi(argv[0]))); /* past the sanitizers' _exit() and search for leaks */
    abort();
}

static int check_binary(build *b)
{
    cli_text out = { 0 };
    int status = check_symbols(b);
    if (status)
        return status;
    const int code = cli_run_function(inspect, b, &out);
    if (cli_interrupted())
        status = CLI_FAILED;
    else if (code >= 128)
        status = cli_fail("the binary crashed while it was loaded (signal %d, %s)", code - 128, strsignal(code - 128));
    else if (code == INSPECT_REFUSED)
        status = cli_fail("%s", out.data);
    else if (code)
        status = cli_fail("the binary was built but cannot be used: %s", out.size ? out.data : "it could not be checked");
    else {
        const char *report = out.data + strlen(out.data) + 1, *warnings = report + strlen(report) + 1;
        cli_adds(&b->report, report);
        cli_adds(&b->messages, warnings);
        cli_addf(&b->json, ", %s", warnings + strlen(warnings) + 1);
        fputs(warnings, stderr);
        if (*warnings && cli_has(b->args, "werror"))
            status = cli_fail("warnings are errors; %s", describe_unmade(b));
        if (!b->named) {
            free(b->out);
            b->out = cli_format("%s.so", out.data);
        }
    }
    cli_text_free(&out);
    return status;
}

/* ---- Keeping it: the entry of the user's folder -------------------------------------------------------------------------- */

/* A compiler by its file, as make looks at files: running it to ask its version takes as long as all the rest. */
static void add_program(cli_text *key, const char *name)
{
    char *path = cli_program_path(name), *real = path ? realpath(path, NULL) : NULL;
    struct stat s;
    if (real && !stat(real, &s))
        cli_addf(key, "program %s %lld %lld.%09ld\n", real, (long long)s.st_size, (long long)s.st_mtim.tv_sec, s.st_mtim.tv_nsec);
    free(real);
    free(path);
}

static void add_environment(cli_text *key)
{
    static const char *const names[] = { "CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH", "COMPILER_PATH",
        "GCC_EXEC_PREFIX", "SOURCE_DATE_EPOCH", "NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS", "CUDA_HOME" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *value = getenv(names[i]);
        cli_addf(key, "%s=%s\n", names[i], value ? value : "");
    }
}

/* Everything known before compiling that determines the binary. */
static void add_key(build *b, cli_text *key)
{
    char here[PATH_MAX], found[CLI_HASH];
    cli_addf(key, "dovetail %s in %s from %s\n", dv_version(), getcwd(here, sizeof here) ? here : "", b->home);
    add_program(key, "/proc/self/exe"); /* its flags and checks */
    for (size_t i = 0; i < b->cc.n; i++) {
        cli_addf(key, "cc %s\n", b->cc.data[i]);
        add_program(key, b->cc.data[i]);
    }
    for (size_t i = 0; i < b->cxx.n; i++) {
        cli_addf(key, "c++ %s\n", b->cxx.data[i]);
        add_program(key, b->cxx.data[i]);
    }
    if (b->nvcc)
        add_program(key, b->nvcc);
    if (b->ccec)
        add_program(key, b->ccec);
    for (size_t i = 0; i < b->args->ngiven; i++) {
        const char *name = b->args->given[i].option->name, *value = b->args->given[i].value;
        if (!strcmp(name, "json") || !strcmp(name, "verbose"))
            continue;
        cli_addf(key, "--%s=%s\n", name, value ? value : "");
    }
    if (strstr(key->data, "=native")) { /* -march, -mtune */
        cli_text cpus = { 0 };
        const char *flags = cli_read_file("/proc/cpuinfo", &cpus) ? NULL : strstr(cpus.data, "flags");
        cli_addf(key, "this machine: %.*s\n", flags ? (int)strcspn(flags, "\n") : 0, flags ? flags : "");
        cli_text_free(&cpus);
    }
    add_environment(key);
    for (size_t i = 0; i < b->sources.n; i++)
        cli_addf(key, "source %s %s\n", b->sources.data[i], cli_hash_file(b->sources.data[i], found) ? "" : found);
}

/* Files beside sources and headers that are named in the options: libraries of the folders given, and what -X names. */
static void find_linked(const build *b, words *to)
{
    words all = { 0 };
    push_libraries(b, &all, b->uses[CUDA] ? CUDA : b->uses[CPP] ? CPP : C);
    for (size_t i = 0; i < all.n; i++) {
        const char *word = all.data[i];
        if (*word != '-' && !access(word, R_OK))
            push(to, word);
        for (size_t k = 0; begins_with(word, "-l") && k < all.n; k++)
            for (size_t s = 0; begins_with(all.data[k], "-L") && s < 2; s++) {
                const char *path = word[2] == ':' ? keep(cli_format("%s/%s", all.data[k] + 2, word + 3))
                                                  : keep(cli_format("%s/lib%s%s", all.data[k] + 2, word + 2, s ? ".a" : ".so"));
                if (!access(path, R_OK))
                    push(to, path);
            }
    }
    for (size_t i = 0; i < b->args->ngiven; i++) { /* headers, scripts: -X -include -X FILE */
        const char *value = b->args->given[i].value;
        if (!strcmp(b->args->given[i].option->name, "flag") && *value != '-' && !is_for_linker(value) && !access(value, R_OK))
            push(to, value);
    }
    free(all.data);
}

static int keep_binary(build *b)
{
    words linked = { 0 };
    struct stat s;
    b->size = stat(b->made, &s) ? 0 : s.st_size;
    find_linked(b, &linked);
    const int status = cli_interrupted() ? CLI_FAILED : cli_cache_keep(&b->cache, b->made, &b->rules, linked.data, linked.n);
    free(linked.data);
    return status;
}

/* ---- Putting it in place ------------------------------------------------------------------------------------------------- */

static int publish(build *b)
{
    struct stat s;
    struct statvfs disk;
    const char *slash = strrchr(b->out, '/'), *name = slash ? slash + 1 : b->out;
    if (cli_interrupted() || check_replaceable(b, b->place, name)) /* again: it may have changed meanwhile */
        return CLI_FAILED;
    const int fd = open(b->made, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    const int error = fd < 0 || fstat(fd, &s) ? errno : cli_replace(fd, b->place, name);
    if (fd >= 0)
        close(fd);
    if (cli_interrupted())
        return CLI_FAILED;
    if (error)
        return cli_fail("cannot write '%s': %s", b->out, strerror(error));
    b->size = s.st_size;
    if (!fstatvfs(b->place, &disk) && disk.f_flag & ST_NOEXEC)
        cli_note(
            "'%s' is on a disk that is mounted noexec: dovetail loads it through a private copy, other loaders cannot", b->out);
    return CLI_OK;
}

static void print_result(const build *b)
{
    const char *out = b->cached ? b->cache.binary : b->out;
    char *left = b->json.data ? describe_left(b, false) : NULL; /* the binary was built, not found in the cache */
    if (left)
        cli_note("%s", left);
    free(left);
    if (cli_json) {
        cli_text t = { 0 };
        cli_adds(&t, "{\"ok\": true, \"out\": ");
        cli_add_json(&t, out);
        if (b->json.data) { /* the binary was built, not found in the cache */
            cli_addf(
                &t, ", \"bytes\": %lld, \"seconds\": %.4f, %s, \"messages\": ", (long long)b->size, b->seconds, b->json.data);
            cli_add_json(&t, b->messages.data ? b->messages.data : "");
            cli_adds(&t, ", \"not_compiled\": [");
            for (size_t i = 0; i < b->left.n; i++) {
                cli_adds(&t, i ? ", " : "");
                cli_add_json(&t, b->left.data[i]);
            }
            cli_adds(&t, "]");
        }
        cli_adds(&t, "}");
        puts(t.data);
        cli_text_free(&t);
        return;
    }
    if (b->cached) {
        puts(out);
        return;
    }
    char size[16];
    cli_bytes(size, (double)b->size);
    printf("%s%s%s  %s  %.2f s\n%s", cli_style(stdout, CLI_BOLD), b->out, cli_style(stdout, CLI_PLAIN), size, b->seconds,
        b->report.data ? b->report.data : "");
}

static void tell(const build *b)
{
    const char *level = getenv("DOVETAIL_DEBUG");
    cli_text t = { 0 };
    for (size_t i = 0; i < b->sources.n; i++)
        cli_addf(&t, " %s", b->sources.data[i]);
    if (level && atoi(level) >= 1)
        cli_note("building%s", t.data ? t.data : "");
    cli_text_free(&t);
}

/* Writes the digest into the new binary. Skips a file that can have none: the check of the binary reports the reason. */
static int write_digest(const build *b)
{
    const int fd = open(b->made, O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
    const int error = fd < 0 ? errno : cli_stamp(b->made, fd);
    if (fd >= 0)
        close(fd);
    return error && error != ENOEXEC ? cli_fail("cannot write '%s': %s", b->made, strerror(error)) : CLI_OK;
}

static int make(build *b)
{
    const double start = cli_now();
    int status = CLI_FAILED;
    cli_signals_begin();
    b->place = cli_open_folder(as_file(b->folder));
    if (b->place < 0 || cli_temp_make(as_file(b->folder), &b->temp)) {
        cli_fail(errno == EPERM
                ? "cannot build in folder '%s', in which others may rename files, nor in a folder for temporary files: "
                  "%s; name a folder of your own with TMPDIR"
                : "cannot write in folder '%s': %s",
            b->folder, strerror(errno));
        goto done;
    }
    b->made = cli_join(b->temp.path, "out.so");
    status = compile(b);
    if (!status)
        status = write_digest(b);
    if (!status)
        status = check_binary(b);
    if (!status)
        status = b->cached ? keep_binary(b) : publish(b);
    b->seconds = cli_now() - start;
done:
    cli_temp_remove(&b->temp);
    if (b->place >= 0)
        close(b->place);
    cli_signals_end();
    return status;
}

/* Nothing is built if the entry is good, before or after waiting for another process that builds it. */
static int make_cached(build *b)
{
    cli_text key = { 0 };
    umask(umask(0) | S_IWGRP | S_IWOTH); /* the loader trusts what is kept: others may not write to it */
    add_key(b, &key);
    int status = cli_cache_open(&key, &b->cache);
    cli_text_free(&key);
    if (status || cli_cache_find(&b->cache) || (status = cli_cache_lock(&b->cache)) || cli_cache_find(&b->cache))
        return status;
    b->folder = cli_format("%s", b->cache.folder);
    cli_cache_sweep(&b->cache);
    tell(b);
    return make(b);
}

/* Renews the digest of each binary that is given by --restamp. Nothing is built. */
static int renew_digests(const cli_args *args)
{
    int status = CLI_OK;
    if (args->nwords)
        return cli_usage(args->verb, "'%s': with --restamp nothing is built; give each binary a --restamp", args->words[0]);
    cli_signals_begin();
    for (size_t i = 0; i < args->ngiven && !status; i++)
        if (!strcmp(args->given[i].option->name, "restamp"))
            status = cli_restamp(args->given[i].value);
    cli_signals_end();
    if (!status && cli_json)
        puts("{\"ok\": true}");
    return status;
}

static int run(const cli_args *args)
{
    if (cli_has(args, "restamp"))
        return renew_digests(args);
    build b = { .args = args,
        .temp = { NULL, -1, -1 },
        .place = -1,
        .cached = cli_has(args, "cached"),
        .allow_unknown = cli_has(args, "allow-unknown"),
        .cache = { .lock = -1 } };
    const char *out = cli_get(args, "out");
    if (out && !*out)
        return cli_usage(args->verb, "option '--out': the name is empty");
    int status = (b.home = cli_home()) ? take_sources(&b) : CLI_FAILED;
    if (!status)
        status = check_sources(&b);
    if (!status)
        status = choose_output(&b);
    if (!status)
        status = choose_compilers(&b);
    if (!status)
        status = b.cached ? make_cached(&b) : make(&b);
    if (!status)
        print_result(&b);
    cli_cache_close(&b.cache);
    free(b.sources.data);
    free(b.objects.data);
    free(b.left.data);
    free(b.cc.data);
    free(b.cxx.data);
    free(b.out);
    free(b.folder);
    free(b.made);
    cli_text_free(&b.rules);
    cli_text_free(&b.messages);
    cli_text_free(&b.report);
    cli_text_free(&b.json);
    return status;
}

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

static const cli_option options[] = {
    { 'o', "out", "FILE",
        "the binary to write (default: the file's name with .so, in this folder; of several files, the library's)" },
    { 0, "cached", NULL, "keep the binary in the user's cache folder, print its path; built only if something changed" },
    { 0, "restamp", "FILE", "build nothing: renew the digest in a binary that strip, patchelf or auditwheel has changed" },
    { 'W', "werror", NULL, "warnings are errors" },
    { 'v', "verbose", NULL, "show the commands that are run" },
    { 0, "json", NULL, "print the result as JSON" },
    { 0 },
};

static const char *const examples[] = { "dovetail build",
    "builds the operator files of this folder: those that include <dovetail_op.h>, themselves or by other headers",
    "dovetail build my_ops.c -o my_ops.so", "names the file and the binary", "dovetail build --json my_ops.c",
    "the same, with the result as JSON: operators, kernel rows, size, time", "dovetail build --cached my_ops.c",
    "prints the path of a binary that is kept: in $DOVETAIL_CACHE, else ~/.cache/dovetail", NULL };

const cli_verb verb_build = {
    .name = "build",
    .purpose = "compile operators into one binary that every host can load",
    .usage = "[options] [FILE.c | FILE.cpp | FILE.cu | FILE.cce | FOLDER ...]",
    .about =
        "Compiles and links the files, checks that the binary exports exactly one symbol, loads it as a host would, so that a\n"
        "mistake in a declaration shows here, and only then replaces the old binary, in one step. An interrupted or a\n"
        "concurrent build never leaves a broken binary. No shell is involved: any file name is safe.\n"
        "Instruction sets need no flags: DV_VARIANTS makes rows for AVX2 and AVX-512, and the best is chosen at run time.",
    .options = options,
    .builds = true,
    .examples = examples,
    .run = run,
};
