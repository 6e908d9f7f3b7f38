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

#include "check.h"

typedef struct build_words {
    const char **data;
    size_t n;
} build_words;

/* Languages of source files: the extension of a file determines its language; --flag may name a language. */
enum language { LANGUAGE_C, LANGUAGE_CPP, LANGUAGE_CUDA, LANGUAGE_ASCENDC, NLANGUAGES };
static const struct {
    const char *extension, *name;
} languages[NLANGUAGES] = { { ".c", "c" }, { ".cpp", "c++" }, { ".cu", "cuda" }, { ".cce", "ascendc" } };
#define SOURCE_EXTENSIONS ".c, .cpp, .cu or .cce"

typedef struct build {
    const cli_args *args;
    const char *home;
    build_words sources, objects;
    build_words not_compiled;         /* files of the folders that are not compiled: they include no header of operators */
    char *out, *folder, *binary_path; /* the binary's path; its folder ("": the current one); its path in the temporary folder */
    build_words cc, cxx;              /* the compilers and their first arguments; cxx for .cpp files only */
    const char *nvcc, *ccec;
    bool uses_language[NLANGUAGES], cached, allow_unknown;
    bool inspects_code, only_libc; /* inspects_code: the kernels' machine code is inspected, since the build is optimized;
                                      only_libc: the binary needs no other library */
    build_words preload;           /* runtimes of sanitizers, which must be in a process from its start */
    bool is_out_named; /* true if the caller gave the output's name, or named one source; else the output is named after the
                          library */
    cli_temp temp;
    int out_folder;          /* the folder of the output, as a descriptor */
    cli_cache cache;         /* --cached: the cache entry that the binary becomes; unused without --cached */
    const char *export_list; /* path of the linker's version script, for C++ and CUDA */
    cli_text dependencies;   /* the output of -MMD: the included files */
    cli_text messages;       /* the compilers' output */
    cli_text report, json;   /* the check's results: operators and kernels */
    double seconds;
    off_t size;
} build;

/* Appends a word, which the list borrows. */
static void build_words_append(build_words *w, const char *s)
{
    w->data = cli_realloc_array(w->data, w->n + 1, sizeof *w->data);
    w->data[w->n++] = s;
}

/* Returns s, which stays allocated until the process ends: a process makes one build. */
static const char *build_keep_forever(char *s) { return s; }

static bool build_has_ending(const char *s, const char *end)
{
    const size_t n = strlen(s), m = strlen(end);
    return n > m && !strcmp(s + n - m, end);
}

/* Returns the language of a source file by its extension; NLANGUAGES: no language has this extension. */
static enum language build_get_language(const char *path)
{
    int i = 0;
    while (i < NLANGUAGES && !build_has_ending(path, languages[i].extension))
        i++;
    return (enum language)i;
}

/* ---- What to compile, and where to --------------------------------------------------------------------------------------- */

/* Adds the operator files of a folder to b->sources, and its other source files to b->not_compiled, each in order of name. Fails
 * if the folder has no operator file. */
static int build_add_operator_files_of_folder(build *b, const char *folder)
{
    cli_sources found;
    cli_text missing = { 0 };
    if (cli_find_sources(b->args, folder, &found, &missing))
        return CLI_FAILED;
    const bool here = !strcmp(folder, "."), none = !found.noperator_files;
    if (none && missing.size)
        cli_fail("no file to build: none of the " SOURCE_EXTENSIONS
                 " files %s%s includes <dovetail_op.h> as far as headers were found; not "
                 "found: %s (name their folder with -I)",
            here ? "here" : "in ", here ? "" : folder, missing.data);
    else if (none)
        cli_fail("no file to build: none of the " SOURCE_EXTENSIONS " files %s%s includes <dovetail_op.h>; 'dovetail new my_ops' "
                 "makes a project",
            here ? "here" : "in ", here ? "" : folder);
    for (size_t i = 0; i < found.noperator_files; i++)
        build_words_append(&b->sources, found.operator_files[i]);
    for (size_t i = 0; i < found.nother_files; i++)
        build_words_append(&b->not_compiled, found.other_files[i]);
    free(found.operator_files);
    free(found.other_files);
    cli_text_free(&missing);
    return none ? CLI_FAILED : CLI_OK;
}

/* Returns a sentence that lists the source files that are not compiled; programs only if `all`. NULL: there are none. The caller
 * frees it. */
static char *build_describe_not_compiled(const build *b, bool with_programs)
{
    cli_text text = { 0 };
    size_t n = 0;
    for (size_t i = 0; i < b->not_compiled.n; i++)
        if (with_programs || !cli_is_program_file(b->not_compiled.data[i]))
            cli_text_appendf(&text, "%s%s", n++ ? ", " : "not compiled: ", b->not_compiled.data[i]);
    if (n)
        cli_text_appendf(
            &text, " (%s not include <dovetail_op.h>; name what belongs to the binary)", n == 1 ? "it does" : "they do");
    return text.data;
}

/* Gathers the sources of the operands, or of the current folder if there are none. Returns a status. */
static int build_gather_all_sources(build *b)
{
    int status = b->args->noperands ? CLI_OK : build_add_operator_files_of_folder(b, ".");
    for (size_t i = 0; i < b->args->noperands && !status; i++) {
        const char *word = b->args->operands[i];
        if (cli_is_repeated_operand(b->args, i))
            continue;
        if (cli_is_folder(word))
            status = build_add_operator_files_of_folder(b, word);
        else
            build_words_append(&b->sources, word);
    }
    return status;
}

/* Returns the kind of a file that is not a regular file, as words for a message. */
static const char *build_describe_file_kind(const struct stat *s)
{
    switch (s->st_mode & S_IFMT) {
    case S_IFDIR: return "a folder";
    case S_IFLNK: return "a symbolic link";
    case S_IFIFO: return "a pipe";
    case S_IFSOCK: return "a socket";
    default: return "a device";
    }
}

/* Checks that every source is a readable regular file of a known language, and records the languages. Returns a status. */
static int build_check_sources(build *b)
{
    for (size_t i = 0; i < b->sources.n; i++) {
        const char *path = b->sources.data[i];
        struct stat s;
        const enum language language = build_get_language(path);
        const bool known = language != NLANGUAGES;
        if (stat(path, &s))
            return cli_fail("'%s': %s%s", path, strerror(errno),
                known ? "" : "; expected a folder, or a file that ends in " SOURCE_EXTENSIONS);
        if (!known)
            return cli_fail_usage(b->args->verb, "'%s': expected a folder, or a file that ends in " SOURCE_EXTENSIONS, path);
        if (!S_ISREG(s.st_mode))
            return cli_fail("'%s': expected a file, found %s", path, build_describe_file_kind(&s));
        if (access(path, R_OK))
            return cli_fail("cannot read '%s': %s", path, strerror(errno));
        b->uses_language[language] = true;
    }
    return CLI_OK;
}

/* Returns the kind of an entry of a folder that a build must not replace, such as "a device"; NULL: a regular file, or no such
 * entry. */
static const char *build_describe_irreplaceable(int folder, const char *name)
{
    struct stat s;
    return fstatat(folder, name, &s, AT_SYMLINK_NOFOLLOW) || S_ISREG(s.st_mode) ? NULL : build_describe_file_kind(&s);
}

/* Fails if the output exists and must not be replaced. name: of the output, in an open folder or from AT_FDCWD. */
static int build_check_replaceable(const build *b, int folder, const char *name)
{
    const char *kind = build_describe_irreplaceable(folder, name);
    return kind ? cli_fail("cannot write '%s': it is %s, and only a regular file is replaced; %sname another with --out", b->out,
                      kind, strcmp(kind, "a device") ? "remove it, or " : "")
                : CLI_OK;
}

/* Sets the path and folder of the output, from --out or the first source. Fails for an output that cannot be written. Returns a
 * status. */
static int build_set_output_path(build *b)
{
    const char *given = cli_find_option_value(b->args, "out");
    struct stat s;
    b->is_out_named = given || b->sources.n == 1;
    if (given) {
        b->out = cli_format("%s", given);
    } else {
        const char *first = b->sources.data[0], *slash = strrchr(first, '/'), *base = slash ? slash + 1 : first;
        b->out = cli_format("%.*s.so", (int)(strrchr(base, '.') - base), base);
    }
    if (b->cached) /* the name is for messages */
        return given ? cli_fail_usage(b->args->verb, "--cached chooses the file itself: it cannot be given with --out") : CLI_OK;
    if (b->out[strlen(b->out) - 1] == '/' || (!stat(b->out, &s) && S_ISDIR(s.st_mode)))
        return cli_fail("cannot write '%s': it is a folder", b->out);
    for (size_t i = 0; i < b->sources.n; i++)
        if (!strcmp(b->out, b->sources.data[i]))
            return cli_fail_usage(b->args->verb, "the output '%s' is one of the sources", b->out);
    const char *slash = strrchr(b->out, '/');
    b->folder = slash ? cli_format("%.*s", slash == b->out ? 1 : (int)(slash - b->out), b->out) : cli_format(".");
    if (stat(b->folder, &s) || !S_ISDIR(s.st_mode))
        return cli_fail("cannot write '%s': there is no folder '%s'", b->out, b->folder);
    return build_check_replaceable(b, AT_FDCWD, b->out);
}

/* ---- With what ----------------------------------------------------------------------------------------------------------- */

/* Appends the words of a text such as $CC, "ccache gcc", split at spaces without a shell. */
static void build_append_split_words(build_words *words, const char *text)
{
    for (text += strspn(text, " \t\n"); *text; text += strspn(text, " \t\n")) {
        const size_t n = strcspn(text, " \t\n");
        build_words_append(words, build_keep_forever(cli_format("%.*s", (int)n, text)));
        text += n;
    }
}

/* Sets the words of a compiler from the option, the environment variable, or the first of three default names that is on PATH.
 * Fails if there is no such program. Returns a status. */
static int build_choose_compiler(build *b, const char *language_name, const char *option, const char *variable,
    const char *const default_names[3], build_words *words)
{
    const char *given = cli_find_option_value(b->args, option), *env = getenv(variable);
    if (given || (env && env[strspn(env, " \t\n")])) {
        build_append_split_words(words, given ? given : env);
        if (!words->n)
            return cli_fail_usage(b->args->verb, "option '--%s': the name is empty", option);
        if (!cli_is_program_on_path(words->data[0]))
            return cli_fail("no compiler '%s' (from %s%s): no such program on PATH", words->data[0], given ? "--" : "$",
                given ? option : variable);
    }
    for (size_t i = 0; i < 3 && !words->n; i++)
        if (cli_is_program_on_path(default_names[i]))
            build_words_append(words, default_names[i]);
    return words->n ? CLI_OK
                    : cli_fail("no %s compiler: none of %s, %s and %s is on PATH; install one, or name one with $%s or --%s",
                          language_name, default_names[0], default_names[1], default_names[2], variable, option);
}

/* Sets a vendor's compiler from the option of its default name, or to that name. Does nothing if no source has this language.
 * Fails if there is no such program. Returns a status. */
static int build_choose_vendor_compiler(
    build *b, enum language language, const char *name, const char *display_name, const char *toolkit, const char **compiler)
{
    const char *given = cli_find_option_value(b->args, name);
    if (!b->uses_language[language])
        return CLI_OK;
    *compiler = given ? given : name;
    return cli_is_program_on_path(*compiler)
        ? CLI_OK
        : cli_fail("no %s compiler '%s': it is needed for %s files; install %s, or name one with --%s", display_name, *compiler,
              languages[language].extension, toolkit, name);
}

/* Sets the compilers for the languages of all sources. Returns a status. */
static int build_choose_compilers(build *b)
{
    static const char *const c[] = { "cc", "gcc", "clang" }, *const cxx[] = { "c++", "g++", "clang++" };
    int status = build_choose_compiler(b, "C", "cc", "CC", c, &b->cc);
    if (!status && b->uses_language[LANGUAGE_CPP])
        status = build_choose_compiler(b, "C++", "cxx", "CXX", cxx, &b->cxx);
    if (!status)
        status = build_choose_vendor_compiler(b, LANGUAGE_CUDA, "nvcc", "CUDA", "the CUDA toolkit", &b->nvcc);
    return status ? status : build_choose_vendor_compiler(b, LANGUAGE_ASCENDC, "ccec", "AscendC", "the CANN toolkit", &b->ccec);
}

/* Returns a path as a word that no program interprets as an option, a response file or (gcc's driver) a pipe: the path itself,
 * or a text that stays until the process ends. */
static const char *build_get_safe_path_word(const char *path)
{
    const bool is_plain_path = (*path >= 'a' && *path <= 'z') || (*path >= 'A' && *path <= 'Z') ||
        (*path >= '0' && *path <= '9') || strchr("/._", *path);
    return is_plain_path ? path : build_keep_forever(cli_format("./%s", path));
}

/* Returns the flag in an argument of --flag if it is for this language, else NULL: "cuda:-lineinfo" is for CUDA, nvcc's
 * architecture options are for nvcc only, and all other arguments are for all languages. */
static const char *build_find_language_flag(const char *argument, enum language language)
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
            return language == LANGUAGE_CUDA ? argument : NULL;
    }
    return argument;
}

static bool build_has_prefix(const char *s, const char *begin) { return !strncmp(s, begin, strlen(begin)); }

/* True if an argument is for the linker, which reads its arguments in order: libraries resolve only what files before them need.
 */
static bool build_is_linker_flag(const char *argument)
{
    static const char *const endings[] = { ".a", ".o", ".so", ".lds" };
    for (size_t i = 0; *argument != '-' && i < sizeof endings / sizeof *endings; i++)
        if (build_has_ending(argument, endings[i]) || (i == 2 && strstr(argument, ".so.")))
            return true;
    if (!strcmp(argument, "-lineinfo")) /* option of nvcc */
        return false;
    return build_has_prefix(argument, "-l") || build_has_prefix(argument, "-L") || build_has_prefix(argument, "-Wl,") ||
        !strcmp(argument, "-Xlinker");
}

/* Returns the flag if the option with this index is a --flag for the compiler of the language, or, if for_linker, for the linker.
 * NULL: another option, or a flag for another program. */
static const char *build_find_option_flag(const build *b, size_t option_index, enum language language, bool for_linker)
{
    const struct cli_given_option *given = b->args->given_options + option_index;
    const char *value = strcmp(given->option->name, "flag") ? NULL : build_find_language_flag(given->value, language),
               *before = NULL;
    for (size_t k = option_index; value && k-- > 0 && !before;) /* in `-X -Xlinker -X WORD` both words are for the linker */
        if (!strcmp(b->args->given_options[k].option->name, "flag"))
            before = b->args->given_options[k].value;
    const bool follows = before && (!strcmp(before, "-Xlinker") || !strcmp(before, "-L") || !strcmp(before, "-l"));
    const bool of_nvcc = language == LANGUAGE_CUDA && value && value != given->value; /* "cuda:..." */
    return value && (!of_nvcc && (follows || build_is_linker_flag(value))) == for_linker ? value : NULL;
}

/* Appends the options for a compiler in command-line order: -I, -D, and those given by -X. */
static void build_append_compiler_options(build *b, build_words *w, enum language language)
{
    for (size_t i = 0; i < b->args->ngiven_options; i++) {
        const char *name = b->args->given_options[i].option->name, *value = b->args->given_options[i].value;
        if (!strcmp(name, "include"))
            build_words_append(w, "-I"),
                build_words_append(w, build_get_safe_path_word(value)); /* two words, so that the folder may have any name */
        else if (!strcmp(name, "define"))
            build_words_append(w, build_keep_forever(cli_format("-D%s", value)));
        else if (build_find_option_flag(b, i, language, false))
            build_words_append(w, build_find_option_flag(b, i, language, false));
    }
}

/* Appends the arguments for the linker in command-line order: -L, -l, and those given by -X. */
static void build_append_linker_options(const build *b, build_words *w, enum language language)
{
    for (size_t i = 0; i < b->args->ngiven_options; i++) {
        const char *name = b->args->given_options[i].option->name, *value = b->args->given_options[i].value;
        if (!strcmp(name, "library-dir"))
            build_words_append(w, build_keep_forever(cli_format("-L%s", value)));
        else if (!strcmp(name, "library"))
            build_words_append(w, build_keep_forever(cli_format("-l%s", value)));
        else if ((value = build_find_option_flag(b, i, language, true)))
            build_words_append(w,
                language == LANGUAGE_CUDA && build_has_prefix(value, "-Wl,")
                    ? build_keep_forever(cli_format("-Xlinker=%s", value + 4))
                    : value);
    }
}

static void build_words_append_all(build_words *w, const char *const *flags, size_t n)
{
    for (size_t i = 0; i < n; i++)
        build_words_append(w, flags[i]);
}
#define BUILD_WORDS_PUSH(w, ...) \
    build_words_append_all(      \
        w, (const char *const[]){ __VA_ARGS__ }, sizeof((const char *const[]){ __VA_ARGS__ }) / sizeof(const char *))

/* True if a compiler is gcc, by the name of its program, after following links such as /usr/bin/cc. */
static bool build_is_gcc(const char *program)
{
    char *found = cli_find_program_path(program), *path = found ? realpath(found, NULL) : NULL;
    const char *name = path && strrchr(path, '/') ? strrchr(path, '/') + 1 : "";
    const bool is = strstr(name, "gcc") || (strstr(name, "g++") && !strstr(name, "clang"));
    free(path);
    free(found);
    return is;
}

/* Appends the C or C++ compiler and its flags to a command. */
static void build_append_c_command(build *b, build_words *w, enum language language)
{
    const bool debug = cli_has_option(b->args, "debug");
    const build_words *program = language == LANGUAGE_CPP ? &b->cxx : &b->cc;
    build_words_append_all(w, program->data, program->n);
    BUILD_WORDS_PUSH(w, language == LANGUAGE_CPP ? "-std=c++17" : "-std=c11", "-fPIC", "-fvisibility=hidden", "-fno-math-errno",
        "-fno-trapping-math", "-ffp-contract=fast", "-Wall", "-Wextra", "-Wno-unused-parameter");
    build_words_append(w, debug ? "-O1" : "-O3");
    if (!debug && build_is_gcc(program->data[0])) /* otherwise gcc does not vectorize a loop with a choice by a flag of the frame,
                                                     since it moves no choice out of long loops */
        build_words_append(w, "--param=max-unswitch-insns=100");
    if (debug)
        build_words_append(w, "-g");
    if (cli_has_option(b->args, "werror"))
        build_words_append(w, "-Werror");
    if (cli_has_color(stderr) && !cli_json_output)
        build_words_append(w, "-fdiagnostics-color=always");
    BUILD_WORDS_PUSH(w, "-I", build_keep_forever(cli_join_path(b->home, "include")));
    build_append_compiler_options(b, w, language);
}

/* True if an argument of some -X begins with one of n strings. */
static bool build_has_flag_prefix(const build *b, const char *const *begins, size_t n)
{
    for (size_t i = 0; i < b->args->ngiven_options; i++)
        for (size_t k = 0; k < n && !strcmp(b->args->given_options[i].option->name, "flag"); k++) {
            const char *value = b->args->given_options[i].value, *colon = strchr(value, ':');
            if ((build_has_prefix(value, begins[k]) && !build_has_prefix(value, "-gencode")) ||
                (colon && build_has_prefix(colon + 1, begins[k])))
                return true;
        }
    return false;
}
#define BUILD_HAS_FLAG(b, ...) \
    build_has_flag_prefix(     \
        b, (const char *const[]){ __VA_ARGS__ }, sizeof((const char *const[]){ __VA_ARGS__ }) / sizeof(const char *))

/* True if the compiler or the running binary writes more files for the author: line counts, stack usage, intermediate code. */
static bool build_makes_side_files(const build *b)
{
    return BUILD_HAS_FLAG(b, "--coverage", "-coverage", "-ftest-coverage", "-fprofile-", "-fstack-usage", "-fcallgraph-info",
        "-fdump-", "-save-temps", "-gsplit-dwarf");
}

/* Appends flags that place the files of build_makes_side_files() beside the binary, named after source file i. There gcov looks
 * for them, as for an object of that name. */
static void build_append_side_file_flags(build *b, build_words *w, size_t source_index)
{
    const char *path = b->sources.data[source_index], *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    const char *folder = b->cached
        ? "."
        : b->folder; /* with --cached the current folder, since the author does not look into the cache */
    if (!build_makes_side_files(b))
        return;
    for (size_t k = 0; k < source_index; k++) {
        const char *other = strrchr(b->sources.data[k], '/');
        if (!strcmp(other ? other + 1 : b->sources.data[k],
                name)) { /* two sources have this name: the file is named by its path, as by gcov -p */
            char *flat = cli_format("%s", path);
            for (char *c = flat; (c = strchr(c, '/'));)
                *c = '#';
            name = build_keep_forever(flat);
        }
    }
    const char *stem = build_keep_forever(cli_format("%.*s", (int)(strrchr(name, '.') - name), name));
    if (build_is_gcc(b->cc.data[0])) {
        BUILD_WORDS_PUSH(w, "-dumpdir", build_keep_forever(cli_format("%s/", build_get_safe_path_word(folder))), "-dumpbase",
            name, "-dumpbase-ext", strrchr(name, '.'));
    } else {
        char *real = realpath(folder, NULL);
        for (int data = 0; real && data < 2; data++)
            BUILD_WORDS_PUSH(w, "-Xclang",
                build_keep_forever(
                    cli_format("-coverage-%s-file=%s/%s.%s", data ? "data" : "notes", real, stem, data ? "gcda" : "gcno")));
        free(real);
    }
}

/* True if the compiler inlines functions as in a release build and adds no instrumentation: no --debug, -O0, -O1, -Og, -pg or
 * sanitizer. */
static bool build_is_plain_release(const build *b)
{
    return !cli_has_option(b->args, "debug") && !BUILD_HAS_FLAG(b, "-O0", "-O1", "-Og", "-fno-inline", "-pg", "-fsanitize") &&
        !build_makes_side_files(b);
}

/* True unless the binary is for a tool that shows the author's lines: a debugger, profiler or sanitizer. */
static bool build_is_stripped(const build *b)
{
    return !cli_has_option(b->args, "debug") && !BUILD_HAS_FLAG(b, "-g", "-pg", "-fsanitize", "-lineinfo") &&
        !build_makes_side_files(b);
}

/* Returns the path of the file to which, with --cached, a compiler writes the names of included files. */
static const char *build_make_dependency_path(const build *b, size_t i)
{
    return build_keep_forever(cli_format("%s/%zu.d", b->temp.path, i));
}

/* Appends, with --cached, the flags for a list of the files that a source includes. */
static void build_append_dependency_flags(build *b, build_words *w, size_t source_index)
{
    if (b->cached)
        BUILD_WORDS_PUSH(w, "-MMD", "-MF", build_make_dependency_path(b, source_index));
}

/* Adds, with --cached, the list of the files that a source includes to b->dependencies. Returns a status. */
static int build_collect_dependencies(build *b, size_t source_index)
{
    const int error = b->cached ? cli_read_file(build_make_dependency_path(b, source_index), &b->dependencies) : 0;
    cli_text_append(&b->dependencies, "", 1);
    return error ? cli_fail("the compiler did not say what it included: %s", strerror(error)) : CLI_OK;
}

#define BUILD_STRING_(x) #x
/* clang-format off */
#define BUILD_STRING(x) BUILD_STRING_(x)
/* clang-format on */
static const char library_symbol[] = "dovetail_library_" BUILD_STRING(DV_ABI_MAJOR);

/* Writes a version script for the linker, which exports only the symbol that DV_LIBRARY defines: templates of the C++ standard
 * library stay visible in spite of -fvisibility=hidden. Returns a status. */
static int build_write_export_list(build *b)
{
    char *text = cli_format("{ global: %s; local: *; };\n", library_symbol);
    b->export_list = build_keep_forever(cli_format("%s/exports.map", b->temp.path));
    const int error = cli_write_file(b->export_list, text, strlen(text));
    free(text);
    return error ? cli_fail("cannot write '%s': %s", b->export_list, strerror(error)) : CLI_OK;
}

/* Appends the command that links the objects, or compiles and links the sources if there are no objects. */
static void build_append_link_command(build *b, build_words *w)
{
    const build_words *files = b->objects.n ? &b->objects : &b->sources;
    const enum language language = b->uses_language[LANGUAGE_CPP] ? LANGUAGE_CPP : LANGUAGE_C;
    build_append_c_command(b, w, language);
    if (b->uses_language[LANGUAGE_CPP]) {
        BUILD_WORDS_PUSH(w, "-static-libstdc++", "-static-libgcc"); /* the binary needs libc and libm only */
        build_words_append(w, build_keep_forever(cli_format("-Wl,--version-script=%s", b->export_list)));
    }
    if (!b->objects.n)
        build_append_dependency_flags(b, w, 0);
    if (build_is_stripped(b))
        build_words_append(w, "-s");
    BUILD_WORDS_PUSH(w, "-shared", "-o", b->binary_path);
    for (size_t i = 0; i < files->n; i++)
        build_words_append(w, build_get_safe_path_word(files->data[i]));
    BUILD_WORDS_PUSH(w, "-Wl,--as-needed", "-Wl,-z,defs", "-Wl,--exclude-libs,ALL");
    build_append_linker_options(b, w, language);
    build_words_append(w, "-lm");
}

/* Appends the command by which nvcc links the objects, with CUDA's runtime included statically: nvcc knows where the runtime is.
 */
static void build_append_cuda_link_command(build *b, build_words *w)
{
    BUILD_WORDS_PUSH(w, b->nvcc, "-shared", "-cudart", "static", "-o", b->binary_path);
    build_words_append_all(w, b->objects.data, b->objects.n);
    BUILD_WORDS_PUSH(w, "-Xlinker", build_keep_forever(cli_format("--version-script=%s", b->export_list)), "-Xlinker",
        build_is_stripped(b) ? "--as-needed,-z,defs,--exclude-libs,ALL,-s" : "--as-needed,-z,defs,--exclude-libs,ALL");
    build_append_linker_options(b, w, LANGUAGE_CUDA);
    build_words_append(w, "-lm");
}

/* ---- Running ------------------------------------------------------------------------------------------------------------- */

/* Prints a command to stderr, as a line for a shell. */
static void build_print_command(const build_words *w)
{
    cli_text t = { 0 };
    for (size_t i = 0; w->data[i]; i++) {
        cli_text_append_str(&t, i ? " " : "");
        cli_text_append_shell_word(&t, w->data[i]);
    }
    fprintf(stderr, "%s%s%s\n", cli_get_escape_code(stderr, CLI_DIM), t.data, cli_get_escape_code(stderr, CLI_STYLE_NONE));
    cli_text_free(&t);
}

/* Returns words for a message which say that the output was not made or changed. Without a name from the caller the output has
 * the library's name, which is known only after the link. */
static const char *build_describe_not_replaced(const build *b)
{
    return b->is_out_named ? build_keep_forever(cli_format("'%s' was not %s", b->out, access(b->out, F_OK) ? "made" : "changed"))
                           : "no binary was made";
}

/* Runs a compiler, shows its messages and explanations of its errors. Returns a status; an interruption counts as a failure. */
static int build_run_compiler(build *b, build_words *w)
{
    char *tmpdir = cli_format("TMPDIR=%s", b->temp.path); /* the compiler's temporary files are removed with this folder */
    const size_t before = b->messages.size;
    build_words_append(w, NULL);
    if (cli_has_option(b->args, "verbose"))
        build_print_command(w);
    const int status = cli_run_program(w->data, tmpdir, &b->messages);
    free(tmpdir);
    if (b->messages.size > before)
        cli_write_all(STDERR_FILENO, b->messages.data + before, b->messages.size - before);
    if (status < 0)
        return cli_fail("cannot run '%s': %s", w->data[0], strerror(-1 - status));
    if (cli_is_interrupted())
        return CLI_FAILED;
    if (status >= 128)
        return cli_fail("'%s' was killed by signal %d (%s)", w->data[0], status - 128, strsignal(status - 128));
    if (!status)
        return CLI_OK;
    cli_hints hints = { 0 };
    char *left = NULL;
    if (b->messages.data) {
        cli_add_hints(b->messages.data, &hints);
        left = strstr(b->messages.data, "undefined ")
            ? build_describe_not_compiled(b, true)
            : NULL; /* an error of the linker: a file that was not compiled may define the symbol */
    }
    if (hints.nhints)
        fprintf(stderr, "\n%sWhat is wrong:%s\n%s", cli_get_escape_code(stderr, CLI_BOLD),
            cli_get_escape_code(stderr, CLI_STYLE_NONE), hints.text.data);
    cli_text_free(&hints.text);
    if (left)
        cli_print_note("%s", left);
    free(left);
    return cli_fail("'%s' failed; %s", w->data[0], build_describe_not_replaced(b));
}

/* Fails if a word of nvcc's command has characters that are special in a shell, since nvcc passes its arguments to one. Returns a
 * status. */
static int build_check_nvcc_words(const build_words *w)
{
    for (size_t i = 0; i < w->n && w->data[i]; i++)
        if (w->data[i][strspn(w->data[i], "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./,:@%")])
            return cli_fail(
                "'%s': nvcc passes its arguments to a shell, so only letters, digits and _ - + = . / , : @ %% are safe in them",
                w->data[i]);
    return CLI_OK;
}

/* Compiles one source to an object in the temporary folder, and adds the object to b->objects. Returns a status. */
static int build_compile_object(build *b, size_t source_index)
{
    const char *path = b->sources.data[source_index],
               *object = build_keep_forever(cli_format("%s/%zu.o", b->temp.path, source_index));
    build_words w = { 0 };
    const enum language language = build_get_language(path);
    const bool cuda = language == LANGUAGE_CUDA;
    if (cuda || language == LANGUAGE_ASCENDC) {
        BUILD_WORDS_PUSH(&w, cuda ? b->nvcc : b->ccec, "-O3", "-std=c++17");
        if (cuda)
            BUILD_WORDS_PUSH(&w, "-Xcompiler", "-fPIC,-fvisibility=hidden");
        else
            BUILD_WORDS_PUSH(&w, "-fPIC", "-fvisibility=hidden");
        BUILD_WORDS_PUSH(&w, "-I", build_keep_forever(cli_join_path(b->home, "include")));
        build_append_compiler_options(b, &w, language);
    } else {
        build_append_c_command(b, &w, language);
        build_append_side_file_flags(b, &w, source_index);
    }
    build_append_dependency_flags(b, &w, source_index);
    BUILD_WORDS_PUSH(&w, "-c", "-o", object, build_get_safe_path_word(path));
    build_words_append(&b->objects, object);
    int status = cuda ? build_check_nvcc_words(&w) : CLI_OK;
    if (!status)
        status = build_run_compiler(b, &w);
    if (!status)
        status = build_collect_dependencies(b, source_index);
    free(w.data);
    return status;
}

/* Compiles and links all sources to the binary. C files need one command; with two compilers, or if several files must list their
 * headers, the files are compiled to objects first. Returns a status. */
static int build_compile_and_link(build *b)
{
    build_words w = { 0 };
    const bool cuda = b->uses_language[LANGUAGE_CUDA];
    const bool objects = cuda || b->uses_language[LANGUAGE_CPP] || b->uses_language[LANGUAGE_ASCENDC] ||
        (b->cached && b->sources.n > 1) || build_makes_side_files(b);
    int status = CLI_OK;
    for (size_t i = 0; objects && i < b->sources.n && !status; i++)
        status = build_compile_object(b, i);
    if (!status && (cuda || b->uses_language[LANGUAGE_CPP]))
        status = build_write_export_list(b);
    if (!status) {
        if (cuda)
            build_append_cuda_link_command(b, &w);
        else
            build_append_link_command(b, &w);
        status = cuda ? build_check_nvcc_words(&w) : CLI_OK;
    }
    if (!status)
        status = build_run_compiler(b, &w);
    if (!status && !objects)
        status = build_collect_dependencies(b, 0);
    free(w.data);
    return status;
}

/* ---- Checking what came out ---------------------------------------------------------------------------------------------- */

/* True if a symbol was added by instrumentation: sanitizers, coverage, profiles. */
static bool build_is_instrumentation_symbol(const char *name)
{
    static const char *const begins[] = { "__odr_asan", "__asan_", "__tsan_", "__ubsan_", "__msan_", "__hwasan_", "__sanitizer_",
        "__sancov", "__start___sancov", "__stop___sancov", "__llvm_", "__gcov_", "__profd_", "__profc_" };
    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++)
        if (build_has_prefix(name, begins[i]))
            return true;
    return false;
}

bool cli_is_sanitizer_runtime(const char *library)
{
    static const char *const begins[] = { "libasan.", "libtsan.", "libubsan.", "liblsan.", "libhwasan.", "libclang_rt." };
    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++)
        if (build_has_prefix(library, begins[i]))
            return true;
    return false;
}

/* Returns the path of a runtime library, which the C compiler is asked for; the library's name if the compiler does not know it.
 */
static const char *build_find_runtime_path(const build *b, const char *name)
{
    build_words w = { 0 };
    cli_text path = { 0 };
    build_words_append_all(&w, b->cc.data, b->cc.n);
    BUILD_WORDS_PUSH(&w, build_keep_forever(cli_format("-print-file-name=%s", name)), NULL);
    const int status = cli_run_program(w.data, NULL, &path);
    const bool found = !status && path.size && *path.data == '/';
    const char *result = found ? build_keep_forever(cli_format("%.*s", (int)strcspn(path.data, "\n"), path.data))
                               : build_keep_forever(cli_format("%s", name));
    cli_text_free(&path);
    free(w.data);
    return result;
}

/* Returns the symbol of an object file that a C++ compiler made of a function of this C name: "_Z6launchjPv" for "launch". NULL:
 * the file has none. */
static const char *build_find_mangled_symbol(const cli_elf *elf, const char *c_name)
{
    char *begin = cli_format("_Z%zu%s", strlen(c_name), c_name);
    const char *found = NULL;
    for (size_t i = 0; i < elf->nsymbols && !found; i++)
        if (build_has_prefix(elf->symbols[i], begin))
            found = elf->symbols[i];
    free(begin);
    return found;
}

/* Fails if an undefined weak symbol of the binary is defined in a linked file as a C++ function, so that extern "C" is
 * missing. */
static int build_check_undefined_in_file(const char *path, const cli_elf *binary)
{
    cli_elf file;
    int status = CLI_OK;
    if (cli_elf_read(path, &file))
        return CLI_OK;
    for (size_t i = 0; i < binary->nundefined_weak && !status; i++) {
        const char *mangled = build_find_mangled_symbol(&file, binary->undefined_weak[i]);
        if (mangled)
            status = cli_fail(
                "'%s' is a function of C++ where it is defined ('%s'), and C does not find it: declare it extern \"C\" there",
                binary->undefined_weak[i], mangled);
    }
    cli_elf_free(&file);
    return status;
}

/* Checks the binary's undefined weak symbols, such as launchers of kernels, against all files that were linked. */
static int build_check_undefined_symbols(const build *b, const cli_elf *binary)
{
    int status = build_check_undefined_in_file(b->binary_path, binary);
    for (size_t i = 0; i < b->objects.n && !status; i++)
        status = build_check_undefined_in_file(b->objects.data[i], binary);
    for (size_t i = 0; i < b->args->ngiven_options && !status; i++) {
        const char *value = build_find_option_flag(b, i, b->uses_language[LANGUAGE_CPP] ? LANGUAGE_CPP : LANGUAGE_C, true);
        if (value && build_has_ending(value, ".o"))
            status = build_check_undefined_in_file(value, binary);
    }
    return status;
}

/* Checks the binary's symbols: it must export exactly the library's symbol, and no launcher may lack extern "C". Records what
 * else the inspection needs. Returns a status. */
static int build_check_symbols(build *b)
{
    cli_elf elf;
    int status = CLI_OK;
    bool found = false;
    if (cli_elf_read(b->binary_path, &elf))
        return CLI_OK; /* loading the binary reports what is wrong with it */
    if ((status = build_check_undefined_symbols(b, &elf))) {
        cli_elf_free(&elf);
        return status;
    }
    cli_text others = { 0 };
    b->only_libc = true;
    b->inspects_code = build_is_plain_release(b);
    for (size_t i = 0; i < elf.nsymbols; i++) {
        if (!strcmp(elf.symbols[i], library_symbol))
            found = true;
        else if (!build_is_instrumentation_symbol(elf.symbols[i]))
            cli_text_appendf(&others, "%s%s", others.size ? ", " : "", elf.symbols[i]);
    }
    if (!found)
        status = cli_fail("the binary exports no '%s': end one of the files with DV_LIBRARY(name, &dv_op_...)", library_symbol);
    else if (others.size)
        status = cli_fail(
            "the binary exports %s besides '%s': make it static, or drop its visibility attribute", others.data, library_symbol);
    cli_text_append_str(&b->json, "\"needs\": [");
    for (size_t i = 0; i < elf.nneeded; i++) {
        cli_text_append_str(&b->json, i ? ", " : "");
        cli_text_append_json(&b->json, elf.needed[i]);
        b->only_libc &= build_has_prefix(elf.needed[i], "libc.") || build_has_prefix(elf.needed[i], "libm.");
        if (cli_is_sanitizer_runtime(elf.needed[i]))
            build_words_append(&b->preload, build_find_runtime_path(b, elf.needed[i]));
    }
    cli_text_append_str(&b->json, "]");
    cli_text_free(&others);
    cli_elf_free(&elf);
    return status;
}

/* Writes a text to fd; an error is ignored, since the reader then finds an incomplete answer. */
static void inspect_write_text(int fd, const char *s)
{
    for (size_t n = strlen(s); n;) {
        const ssize_t done = write(fd, s, n);
        if (done < 0 && errno != EINTR)
            return;
        s += done > 0 ? done : 0;
        n -= done > 0 ? (size_t)done : 0;
    }
}

/* Writes a text and a NUL to fd. */
static void inspect_write_text_and_nul(int fd, const char *s)
{
    inspect_write_text(fd, s);
    while (write(fd, "", 1) < 0 && errno == EINTR)
        ;
}

/* True if the kernel has a function, and exactly this device and these dtypes. */
static bool inspect_is_same_kernel(const dv_kernel_decl *a, const char *device, const char *dtypes)
{
    return a->run && !strcmp(a->device ? a->device : "", device) && !strcmp(a->dtypes ? a->dtypes : "", dtypes);
}

/* Appends an operator's kernels as "cpu f32 [avx512 avx2 base], cpu bf16 [...]": each pair of device and dtypes once. */
static void inspect_append_kernels_text(const dv_operator_decl *op, cli_text *to)
{
    const dv_kernel_decl *const *rows = op->kernels;
    for (size_t i = 0; rows && rows[i]; i++) {
        const char *device = rows[i]->device ? rows[i]->device : "", *dtypes = rows[i]->dtypes ? rows[i]->dtypes : "";
        bool seen = !rows[i]->run;
        for (size_t k = 0; k < i && !seen; k++)
            seen = inspect_is_same_kernel(rows[k], device, dtypes);
        if (seen)
            continue;
        cli_text_appendf(to, "%s%s %s [", to->size ? ", " : "", device, *dtypes ? dtypes : "any");
        for (size_t k = i, n = 0; rows[k]; k++)
            if (inspect_is_same_kernel(rows[k], device, dtypes))
                cli_text_appendf(to, "%s%s", n++ ? " " : "", rows[k]->isa ? rows[k]->isa : "base");
        cli_text_append_str(to, "]");
    }
    if (!to->size)
        cli_text_append_str(to,
            op->native                                          ? "decomposition only"
                : op->contract && strstr(op->contract, "view(") ? "a view: it needs no kernel"
                                                                : "no kernel and no decomposition: it cannot run");
}

/* Appends the operator's kernels as a JSON array of objects. */
static void inspect_append_kernels_json(const dv_kernel_decl *const *rows, cli_text *to)
{
    size_t n = 0;
    cli_text_append_str(to, "[");
    for (size_t i = 0; rows && rows[i]; i++) {
        const char *const values[] = { rows[i]->name, rows[i]->device, rows[i]->dtypes, rows[i]->isa };
        static const char *const names[] = { "name", "device", "dtypes", "isa" };
        if (!rows[i]->run)
            continue;
        cli_text_append_str(to, n++ ? ", {" : "{");
        for (size_t k = 0; k < 4; k++) {
            cli_text_appendf(to, "%s\"%s\": ", k ? ", " : "", names[k]);
            if (values[k])
                cli_text_append_json(to, values[k]);
            else
                cli_text_append_str(to, "null");
        }
        cli_text_append_str(to, "}");
    }
    cli_text_append_str(to, "]");
}

/* Returns the full name under which an operator is registered. The schema's name has precedence over the macro's. */
static char *inspect_get_registered_name(const dv_library_decl *lib, const dv_operator_decl *op)
{
    const char *name = op->schema ? op->schema + strspn(op->schema, " \t\n") : op->name;
    const char *colons = strstr(name, "::");
    const int n = (int)strcspn(name, "( \t\n");
    return colons && colons < name + n ? cli_format("%.*s", n, name) : cli_format("%s::%.*s", lib->name, n, name);
}

enum { INSPECT_UNLOADABLE = 1, INSPECT_REFUSED = 3 };

/* Writes the reason why the library was refused to fd, with "file:line: " of the declaration concerned, and with the binary's
 * final name. lib NULL: the binary cannot be loaded at all. */
static void inspect_report_load_error(const build *b, const dv_library_decl *lib, int fd)
{
    const char *message = dv_last_error();
    const dv_operator_decl *about = NULL;
    size_t longest = 0;
    for (size_t i = 0; lib && lib->operators[i]; i++) {
        const dv_operator_decl *op = lib->operators[i]; /* if the schema does not parse, the macro's name is used */
        char *const names[] = { inspect_get_registered_name(lib, op), cli_format("%s::%s", lib->name, op->name) };
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
        cli_text_appendf(&text, "%s:%u: ", about->file, about->line);
    char *real = realpath(b->binary_path, NULL);
    while (*message) {
        const size_t made = strlen(b->binary_path), full = real ? strlen(real) : 0;
        const size_t n = full && !strncmp(message, real, full) ? full : !strncmp(message, b->binary_path, made) ? made : 0;
        cli_text_append(&text, n ? b->out : message, n ? strlen(b->out) : 1);
        message += n ? n : 1;
    }
    inspect_write_text(fd, text.data);
}

/* ---- Names that this version knows ---- */

static const char *const known_tags[] = {
#define TAG(name) #name,
#include "../bridges/torch/tags.def"
#undef TAG
    "out", "autocast_lower", "autocast_f32"
};
#define NAMES_AND_COUNT(names) names, sizeof names / sizeof *names

/* Checks that `name`, of the kind `what`, is one of n known names. Returns 0; or INSPECT_REFUSED, with a message and the nearest
 * known name written to fd. */
static int inspect_check_known_name(
    const dv_operator_decl *op, const char *what, const char *name, const char *const *known, size_t n, int fd)
{
    for (size_t i = 0; i < n; i++)
        if (!strcmp(name, known[i]))
            return 0;
    const char *near = cli_find_nearest_name(name, known, n);
    char *message = cli_format("%s:%u: operator %s: unknown %s '%s'%s%s%s; --allow-unknown lets names of newer versions pass",
        op->file, op->line, op->name, what, name, near ? " (did you mean '" : "", near ? near : "", near ? "'?)" : "");
    inspect_write_text(fd, message);
    return INSPECT_REFUSED;
}

/* Checks the names of an operator's tags and instruction sets, since a misspelt name would have no effect. Returns 0; or
 * INSPECT_REFUSED, with a message written to fd. */
static int inspect_check_names(const dv_operator_decl *op, int fd)
{
    static const char separators[] = " ,+\t\n";
    const char *isas[32];
    size_t nisas = 0;
    int status = 0;
    while (nisas < 32 && (isas[nisas] = dv_isa_at(nisas)))
        nisas++;
    for (const char *at = op->tags ? op->tags : ""; *(at += strspn(at, separators)) && !status; at += strcspn(at, separators))
        status = inspect_check_known_name(
            op, "tag", build_keep_forever(cli_format("%.*s", (int)strcspn(at, separators), at)), NAMES_AND_COUNT(known_tags), fd);
    for (size_t i = 0; op->kernels && op->kernels[i] && !status; i++)
        for (const char *at = op->kernels[i]->run && op->kernels[i]->isa ? op->kernels[i]->isa : "";
            *(at += strspn(at, separators)) && !status; at += strcspn(at, separators))
            status = inspect_check_known_name(
                op, "instruction set", build_keep_forever(cli_format("%.*s", (int)strcspn(at, separators), at)), isas, nisas, fd);
    return status;
}

/* Checks that some call can fit the contract: a contract that contradicts itself would refuse every call. Returns 0; or
 * INSPECT_REFUSED, with a message written to fd. */
static int inspect_check_contract(const dv_operator_decl *decl, dv_operator *op, int fd)
{
    const size_t nargs = dv_operator_nargs(op), nresults = dv_operator_nresults(op);
    dv_value *args = calloc(nargs + 1, sizeof *args);
    dv_partial_spec *results = calloc(nresults + 1, sizeof *results);
    int status = 0;
    for (size_t i = 0; args && i < nargs; i++)
        args[i].type = DV_VALUE_UNKNOWN;
    if (args && results && decl->contract && dv_infer_partial(op, args, nargs, results, nresults)) {
        char *message = cli_format("%s:%u: no call fits the contract, since its parts exclude each other (? is any value): %s",
            decl->file, decl->line, dv_last_error());
        inspect_write_text(fd, message);
        status = INSPECT_REFUSED;
    }
    free(results);
    free(args);
    return status;
}

/* True if the kernel is for the base instruction set. */
static bool inspect_is_base_kernel(const dv_kernel_decl *row) { return !row->isa || !*row->isa || !strcmp(row->isa, "base"); }

/* Appends warnings about kernels for vector instruction sets whose loops are compiled for the base set, as in a function that is
 * not inlined. */
static void inspect_append_base_code_warnings(const build *b, const dv_library_decl *lib, cli_text *to)
{
    cli_machine_code *code = NULL;
    for (size_t i = 0; lib->operators[i]; i++) {
        const dv_operator_decl *op = lib->operators[i];
        const void **others = NULL;
        size_t nothers = 0, n = 0;
        cli_text names = { 0 };
        for (size_t k = 0; op->kernels && op->kernels[k]; k++)
            if (op->kernels[k]->run && inspect_is_base_kernel(op->kernels[k])) {
                others = cli_realloc_array(others, nothers + 1, sizeof *others);
                memcpy(&others[nothers++], &op->kernels[k]->run, sizeof *others);
            }
        for (size_t k = 0; op->kernels && op->kernels[k]; k++) {
            const dv_kernel_decl *row = op->kernels[k];
            const void *entry;
            memcpy(&entry, &row->run, sizeof entry);
            if (!entry || inspect_is_base_kernel(row) || (row->device && strcmp(row->device, "cpu")) ||
                (!code && !(code = cli_machine_code_open(entry))))
                continue;
            if (cli_machine_code_is_base(code, entry, others, nothers, b->only_libc))
                cli_text_appendf(&names, "%s%s (%s)", n++ ? ", " : "", row->name ? row->name : "?", row->isa);
        }
        if (n)
            cli_text_appendf(to,
                "%s:%u: warning: operator %s: %s %s: the loops are compiled for the base instruction set, none has an "
                "instruction "
                "of AVX. What a kernel calls or passes on is compiled for the kernel's set only if it is inlined: make the "
                "function "
                "with the loop DV_INLINE, and cut the work by .split instead of dv_parallel_for(); or compile that function for "
                "each "
                "set, by DV_ISA_VARIANTS_LOOP, DV_TARGET_AVX2 or DV_TARGET_AVX512\n",
                op->file, op->line, op->name, n == 1 ? "kernel" : "kernels", names.data);
        cli_text_free(&names);
        free(others);
    }
    cli_machine_code_close(code);
}

/* Loads a copy of a file that is made in memory. Returns the handle of dlopen(), or NULL. */
static void *inspect_open_memory_copy(const char *path)
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
static void *inspect_open_binary(const char *path, char **why)
{
    struct statvfs disk;
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    const char *message = handle ? NULL : dlerror();
    *why = cli_format("%s", message ? message : "the loader finds no declaration in it");
    return handle || statvfs(path, &disk) || !(disk.f_flag & ST_NOEXEC) ? handle : inspect_open_memory_copy(path);
}

/* Replaces this child process by one that loads the sanitizers' runtimes at its start, as they demand. Returns only on
 * failure. */
static int inspect_restart_with_runtimes(const build *b, int fd)
{
    const char *given = getenv("LD_PRELOAD");
    cli_text preload = { 0 };
    for (size_t i = 0; i < b->preload.n; i++)
        cli_text_appendf(&preload, "%s%s", i ? ":" : "", b->preload.data[i]);
    if (given && *given)
        cli_text_appendf(&preload, ":%s", given);
    setenv("LD_PRELOAD", preload.data, 1);
    personality(ADDR_NO_RANDOMIZE); /* gcc's runtimes up to 13 crash at some addresses; may be refused */
    fcntl(fd, F_SETFD, 0);
    execl(cli_find_command(), "dovetail", CLI_INSPECT_ARGUMENT, build_keep_forever(cli_format("%d", fd)), b->binary_path, b->out,
        b->allow_unknown ? "1" : "0", (char *)NULL);
    inspect_write_text(fd, strerror(errno));
    return INSPECT_UNLOADABLE;
}

/* Loads and checks the binary; runs in a child process, since the binary may crash. Writes to fd the library's name, the report,
 * warnings and JSON, with a NUL between them; or the error. Returns 0, INSPECT_UNLOADABLE or INSPECT_REFUSED. */
static int inspect_binary_in_child(void *user, int fd)
{
    const build *b = user;
    if (b->preload.n)
        return inspect_restart_with_runtimes(b, fd);
    close(b->cache.lock); /* a process that the binary starts must not inherit these descriptors */
    close(b->temp.lock);
    char *why;
    check_deny_signals_to(getppid());
    void *handle = inspect_open_binary(b->binary_path, &why);
    const dv_library_decl *lib = handle ? dlsym(handle, library_symbol) : NULL;
    dv_library *registered;
    if (dv_load(b->binary_path, &registered)) {
        inspect_report_load_error(b, lib, fd);
        return INSPECT_REFUSED;
    }
    if (!lib) {
        inspect_write_text(fd, why);
        return INSPECT_UNLOADABLE;
    }
    for (size_t i = 0; lib->operators[i] && !b->allow_unknown; i++)
        if (inspect_check_names(lib->operators[i], fd))
            return INSPECT_REFUSED;
    for (size_t i = 0; i < dv_library_noperators(registered); i++)
        if (inspect_check_contract(lib->operators[i], dv_library_operator(registered, i), fd))
            return INSPECT_REFUSED;
    cli_text text = { 0 }, json = { 0 }, warnings = { 0 };
    int width = 0;
    if (b->inspects_code)
        inspect_append_base_code_warnings(b, lib, &warnings);
    for (size_t i = 0; lib->operators[i]; i++) {
        char *name = inspect_get_registered_name(lib, lib->operators[i]);
        width = (int)strlen(name) > width ? (int)strlen(name) : width;
        free(name);
    }
    cli_text_append_str(&json, "\"library\": ");
    cli_text_append_json(&json, lib->name);
    cli_text_append_str(&json, ", \"operators\": [");
    for (size_t i = 0; lib->operators[i]; i++) {
        const dv_operator_decl *op = lib->operators[i];
        char *name = inspect_get_registered_name(lib, op);
        cli_text rows = { 0 };
        inspect_append_kernels_text(op, &rows);
        cli_text_appendf(&text, "  %-*s  %s\n", width, name, rows.data);
        cli_text_append_str(&json, i ? ", {\"name\": " : "{\"name\": ");
        cli_text_append_json(&json, name);
        cli_text_append_str(&json, ", \"file\": ");
        cli_text_append_json(&json, op->file);
        cli_text_appendf(&json, ", \"line\": %u, \"kernels\": ", op->line);
        inspect_append_kernels_json(op->kernels, &json);
        cli_text_append_str(&json, "}");
        cli_text_free(&rows);
        free(name);
    }
    cli_text_append_str(&json, "]");
    inspect_write_text_and_nul(fd, lib->name);
    inspect_write_text_and_nul(fd, text.data ? text.data : "");
    inspect_write_text_and_nul(fd, warnings.data ? warnings.data : "");
    inspect_write_text(fd, json.data);
    return 0;
}

void cli_inspect_binary(char **words)
{
    build b = { .binary_path = words[1],
        .out = words[2],
        .allow_unknown = *words[3] == '1',
        .cache = { .lock = -1 },
        .temp = { NULL, -1, -1 } };
    syscall(SYS_exit_group,
        inspect_binary_in_child(&b, atoi(words[0]))); /* ends the process without the sanitizers' _exit() and search for leaks */
    abort();
}

/* Checks the binary's symbols, then loads and checks it in another process, and stores the report. Prints warnings and the error.
 * Returns a status. */
static int build_check_binary(build *b)
{
    cli_text out = { 0 };
    int status = build_check_symbols(b);
    if (status)
        return status;
    const int code = cli_run_in_child(inspect_binary_in_child, b, &out);
    if (cli_is_interrupted())
        status = CLI_FAILED;
    else if (code >= 128)
        status = cli_fail("the binary crashed while it was loaded (signal %d, %s)", code - 128, strsignal(code - 128));
    else if (code == INSPECT_REFUSED)
        status = cli_fail("%s", out.data);
    else if (code || !out.size)
        status = cli_fail("the binary was built but cannot be used: %s",
            out.size   ? out.data
                : code ? "it could not be checked"
                       : "it ends the process while it is loaded, by exit(0)");
    else {
        const char *report = out.data + strlen(out.data) + 1, *warnings = report + strlen(report) + 1;
        cli_text_append_str(&b->report, report);
        cli_text_append_str(&b->messages, warnings);
        cli_text_appendf(&b->json, ", %s", warnings + strlen(warnings) + 1);
        fputs(warnings, stderr);
        if (*warnings && cli_has_option(b->args, "werror"))
            status = cli_fail("warnings are errors; %s", build_describe_not_replaced(b));
        if (!b->is_out_named) {
            free(b->out);
            b->out = cli_format("%s.so", out.data);
        }
    }
    cli_text_free(&out);
    return status;
}

/* ---- Keeping it: the entry of the user's folder -------------------------------------------------------------------------- */

/* Appends a compiler to the key by the path, size and time of its file: to run it for its version would take as long as all other
 * steps. */
static void key_append_program(cli_text *key, const char *name)
{
    char *path = cli_find_program_path(name), *real = path ? realpath(path, NULL) : NULL;
    struct stat s;
    if (real && !stat(real, &s))
        cli_text_appendf(
            key, "program %s %lld %lld.%09ld\n", real, (long long)s.st_size, (long long)s.st_mtim.tv_sec, s.st_mtim.tv_nsec);
    free(real);
    free(path);
}

/* Appends the environment variables that compilers read to the cache's key. */
static void key_append_environment(cli_text *key)
{
    static const char *const names[] = { "CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH", "COMPILER_PATH",
        "GCC_EXEC_PREFIX", "SOURCE_DATE_EPOCH", "NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS", "CUDA_HOME" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *value = getenv(names[i]);
        cli_text_appendf(key, "%s=%s\n", names[i], value ? value : "");
    }
}

/* Appends everything that is known before compiling and determines the binary to the cache's key. */
static void key_append_all_inputs(build *b, cli_text *key)
{
    char here[PATH_MAX], found[CLI_HASH_SIZE];
    cli_text_appendf(key, "dovetail %s in %s from %s\n", dv_version(), getcwd(here, sizeof here) ? here : "", b->home);
    key_append_program(key, cli_find_command()); /* its flags and checks */
    for (size_t i = 0; i < b->cc.n; i++) {
        cli_text_appendf(key, "cc %s\n", b->cc.data[i]);
        key_append_program(key, b->cc.data[i]);
    }
    for (size_t i = 0; i < b->cxx.n; i++) {
        cli_text_appendf(key, "c++ %s\n", b->cxx.data[i]);
        key_append_program(key, b->cxx.data[i]);
    }
    if (b->nvcc)
        key_append_program(key, b->nvcc);
    if (b->ccec)
        key_append_program(key, b->ccec);
    for (size_t i = 0; i < b->args->ngiven_options; i++) {
        const char *name = b->args->given_options[i].option->name, *value = b->args->given_options[i].value;
        if (!strcmp(name, "json") || !strcmp(name, "verbose"))
            continue;
        cli_text_appendf(key, "--%s=%s\n", name, value ? value : "");
    }
    if (strstr(key->data, "=native")) { /* -march, -mtune */
        cli_text cpus = { 0 };
        const char *flags = cli_read_file("/proc/cpuinfo", &cpus) ? NULL : strstr(cpus.data, "flags");
        cli_text_appendf(key, "this machine: %.*s\n", flags ? (int)strcspn(flags, "\n") : 0, flags ? flags : "");
        cli_text_free(&cpus);
    }
    key_append_environment(key);
    for (size_t i = 0; i < b->sources.n; i++)
        cli_text_appendf(key, "source %s %s\n", b->sources.data[i], cli_hash_file(b->sources.data[i], found) ? "" : found);
}

/* Adds to `to` the files besides sources and headers that determine the binary: libraries in the folders of -L, and files that -X
 * names.
 */
static void build_add_linked_files(const build *b, build_words *to)
{
    build_words all = { 0 };
    build_append_linker_options(b, &all,
        b->uses_language[LANGUAGE_CUDA]      ? LANGUAGE_CUDA
            : b->uses_language[LANGUAGE_CPP] ? LANGUAGE_CPP
                                             : LANGUAGE_C);
    for (size_t i = 0; i < all.n; i++) {
        const char *word = all.data[i];
        if (*word != '-' && !access(word, R_OK))
            build_words_append(to, word);
        for (size_t k = 0; build_has_prefix(word, "-l") && k < all.n; k++)
            for (size_t s = 0; build_has_prefix(all.data[k], "-L") && s < 2; s++) {
                const char *path = word[2] == ':'
                    ? build_keep_forever(cli_format("%s/%s", all.data[k] + 2, word + 3))
                    : build_keep_forever(cli_format("%s/lib%s%s", all.data[k] + 2, word + 2, s ? ".a" : ".so"));
                if (!access(path, R_OK))
                    build_words_append(to, path);
            }
    }
    for (size_t i = 0; i < b->args->ngiven_options; i++) { /* headers, scripts: -X -include -X FILE */
        const char *value = b->args->given_options[i].value;
        if (!strcmp(b->args->given_options[i].option->name, "flag") && *value != '-' && !build_is_linker_flag(value) &&
            !access(value, R_OK))
            build_words_append(to, value);
    }
    free(all.data);
}

/* Moves the binary into the cache entry. Returns a status. */
static int build_move_to_cache(build *b)
{
    build_words linked = { 0 };
    struct stat s;
    b->size = stat(b->binary_path, &s) ? 0 : s.st_size;
    build_add_linked_files(b, &linked);
    const int status = cli_is_interrupted() ? CLI_FAILED
                                            : cli_cache_store(&b->cache, b->binary_path, &b->dependencies, linked.data, linked.n);
    free(linked.data);
    return status;
}

/* ---- Putting it in place ------------------------------------------------------------------------------------------------- */

/* Moves the binary to the output's path. Returns a status. */
static int build_move_to_output(build *b)
{
    struct stat s;
    struct statvfs disk;
    const char *slash = strrchr(b->out, '/'), *name = slash ? slash + 1 : b->out;
    if (cli_is_interrupted() ||
        build_check_replaceable(b, b->out_folder, name)) /* checked a second time: the output may have changed since */
        return CLI_FAILED;
    const int fd = open(b->binary_path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    const int error = fd < 0 || fstat(fd, &s) ? errno : cli_replace_file(fd, b->out_folder, name);
    if (fd >= 0)
        close(fd);
    if (cli_is_interrupted())
        return CLI_FAILED;
    if (error)
        return cli_fail("cannot write '%s': %s", b->out, strerror(error));
    b->size = s.st_size;
    if (!fstatvfs(b->out_folder, &disk) && disk.f_flag & ST_NOEXEC)
        cli_print_note(
            "'%s' is on a disk that is mounted noexec: dovetail loads it through a private copy, other loaders cannot", b->out);
    return CLI_OK;
}

/* Prints the operators of the binary and its path, or the JSON document. */
static void build_print_result(const build *b)
{
    const char *out = b->cached ? b->cache.binary : b->out;
    char *left = b->json.data ? build_describe_not_compiled(b, false) : NULL; /* the binary was built, not found in the cache */
    if (left)
        cli_print_note("%s", left);
    free(left);
    if (cli_json_output) {
        cli_text t = { 0 };
        cli_text_append_str(&t, "{\"ok\": true, \"out\": ");
        cli_text_append_json(&t, out);
        if (b->json.data) { /* the binary was built, not found in the cache */
            cli_text_appendf(
                &t, ", \"bytes\": %lld, \"seconds\": %.4f, %s, \"messages\": ", (long long)b->size, b->seconds, b->json.data);
            cli_text_append_json(&t, b->messages.data ? b->messages.data : "");
            cli_text_append_str(&t, ", \"not_compiled\": [");
            for (size_t i = 0; i < b->not_compiled.n; i++) {
                cli_text_append_str(&t, i ? ", " : "");
                cli_text_append_json(&t, b->not_compiled.data[i]);
            }
            cli_text_append_str(&t, "]");
        }
        cli_text_append_str(&t, "}");
        cli_print_document(t.data);
        cli_text_free(&t);
        return;
    }
    if (b->cached) {
        puts(out);
        return;
    }
    char size[16];
    cli_format_bytes(size, (double)b->size);
    printf("%s%s%s  %s  %.2f s\n%s", cli_get_escape_code(stdout, CLI_BOLD), b->out, cli_get_escape_code(stdout, CLI_STYLE_NONE),
        size, b->seconds, b->report.data ? b->report.data : "");
}

/* Prints which sources are built, if DOVETAIL_DEBUG is 1 or more. */
static void build_print_sources_for_debug(const build *b)
{
    const char *level = getenv("DOVETAIL_DEBUG");
    cli_text t = { 0 };
    for (size_t i = 0; i < b->sources.n; i++)
        cli_text_appendf(&t, " %s", b->sources.data[i]);
    if (level && atoi(level) >= 1)
        cli_print_note("building%s", t.data ? t.data : "");
    cli_text_free(&t);
}

/* Writes the digest into the new binary. Skips a file that can have none: the check of the binary reports the reason. */
static int build_write_digest(const build *b)
{
    const int fd = open(b->binary_path, O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
    const int error = fd < 0 ? errno : cli_write_digest(b->binary_path, fd);
    if (fd >= 0)
        close(fd);
    return error && error != ENOEXEC ? cli_fail("cannot write '%s': %s", b->binary_path, strerror(error)) : CLI_OK;
}

/* Compiles, checks and places the binary. Returns a status. */
static int build_make_binary(build *b)
{
    const double start = cli_get_seconds();
    int status = CLI_FAILED;
    cli_signals_begin();
    b->out_folder = cli_open_folder(build_get_safe_path_word(b->folder));
    if (b->out_folder < 0 || cli_temp_make(build_get_safe_path_word(b->folder), &b->temp)) {
        cli_fail(errno == EPERM
                ? "cannot build in folder '%s', in which others may rename files, nor in a folder for temporary files: "
                  "%s; name a folder of your own with TMPDIR"
                : "cannot write in folder '%s': %s",
            b->folder, strerror(errno));
        goto done;
    }
    b->binary_path = cli_join_path(b->temp.path, "out.so");
    status = build_compile_and_link(b);
    if (!status)
        status = build_write_digest(b);
    if (!status)
        status = build_check_binary(b);
    if (!status)
        status = b->cached ? build_move_to_cache(b) : build_move_to_output(b);
    b->seconds = cli_get_seconds() - start;
done:
    cli_temp_remove(&b->temp);
    if (b->out_folder >= 0)
        close(b->out_folder);
    cli_signals_end();
    return status;
}

/* Builds the cache entry's binary, unless the entry is up to date, also after waiting for another process that built it. Returns
 * a status. */
static int build_make_cached_binary(build *b)
{
    cli_text key = { 0 };
    umask(umask(0) | S_IWGRP | S_IWOTH); /* the loader trusts cached binaries, so other users must not be able to write to them */
    key_append_all_inputs(b, &key);
    int status = cli_cache_open(&key, &b->cache);
    cli_text_free(&key);
    if (status || cli_cache_has_current_binary(&b->cache) || (status = cli_cache_lock(&b->cache)) ||
        cli_cache_has_current_binary(&b->cache))
        return status;
    b->folder = cli_format("%s", b->cache.folder);
    cli_cache_remove_unused(&b->cache);
    build_print_sources_for_debug(b);
    return build_make_binary(b);
}

/* Renews the digest of each binary that is given by --restamp. Nothing is built. */
static int build_renew_digests(const cli_args *args)
{
    int status = CLI_OK;
    if (args->noperands)
        return cli_fail_usage(
            args->verb, "'%s': with --restamp nothing is built; give each binary a --restamp", args->operands[0]);
    cli_signals_begin();
    for (size_t i = 0; i < args->ngiven_options && !status; i++)
        if (!strcmp(args->given_options[i].option->name, "restamp"))
            status = cli_renew_digest(args->given_options[i].value);
    cli_signals_end();
    if (!status && cli_json_output)
        cli_print_document("{\"ok\": true}");
    return status;
}

static int cmd_build_run(const cli_args *args)
{
    if (cli_has_option(args, "restamp"))
        return build_renew_digests(args);
    build b = { .args = args,
        .temp = { NULL, -1, -1 },
        .out_folder = -1,
        .cached = cli_has_option(args, "cached"),
        .allow_unknown = cli_has_option(args, "allow-unknown"),
        .cache = { .lock = -1 } };
    const char *out = cli_find_option_value(args, "out");
    if (out && !*out)
        return cli_fail_usage(args->verb, "option '--out': the name is empty");
    int status = (b.home = cli_find_home()) ? build_gather_all_sources(&b) : CLI_FAILED;
    if (!status)
        status = build_check_sources(&b);
    if (!status)
        status = build_set_output_path(&b);
    if (!status)
        status = build_choose_compilers(&b);
    if (!status)
        status = b.cached ? build_make_cached_binary(&b) : build_make_binary(&b);
    if (!status)
        build_print_result(&b);
    cli_cache_close(&b.cache);
    free(b.sources.data);
    free(b.objects.data);
    free(b.not_compiled.data);
    free(b.cc.data);
    free(b.cxx.data);
    free(b.out);
    free(b.folder);
    free(b.binary_path);
    cli_text_free(&b.dependencies);
    cli_text_free(&b.messages);
    cli_text_free(&b.report);
    cli_text_free(&b.json);
    return status;
}

static const cli_option build_options[] = {
    { 'o', "out", "FILE",
        "the binary to write (default: the file's name with .so, in this folder; of several files, the library's)" },
    { 0, "cached", NULL, "keep the binary in the user's cache folder, print its path; built only if something changed" },
    { 0, "restamp", "FILE", "build nothing: renew the digest in a binary that strip, patchelf or auditwheel has changed" },
    { 'W', "werror", NULL, "warnings are errors" },
    { 'v', "verbose", NULL, "show the commands that are run" },
    { 0, "json", NULL, "print the result as JSON" },
    { 0 },
};

static const char *const build_examples[] = { "dovetail build",
    "builds the operator files of this folder: those that include <dovetail_op.h>, themselves or by other headers",
    "dovetail build my_ops.c -o my_ops.so", "names the file and the binary", "dovetail build --json my_ops.c",
    "the same, with the result as JSON: operators, kernels, size, time", "dovetail build --cached my_ops.c",
    "prints the path of a binary that is kept: in $DOVETAIL_CACHE, else ~/.cache/dovetail", NULL };

const cli_verb verb_build = {
    .name = "build",
    .purpose = "compile operators into one binary that every host can load",
    .usage = "[options] [FILE.c | FILE.cpp | FILE.cu | FILE.cce | FOLDER ...]",
    .about =
        "Compiles and links the files, checks that the binary exports exactly one symbol, loads it as a host would, so that a\n"
        "mistake in a declaration shows here, and only then replaces the old binary, in one step. An interrupted or a\n"
        "concurrent build never leaves a broken binary. No shell is involved: any file name is safe.\n"
        "Instruction sets need no flags: DV_VARIANTS makes kernels for AVX2 and AVX-512, and the best is chosen at run time.",
    .options = build_options,
    .builds_sources = true,
    .examples = build_examples,
    .run_verb = cmd_build_run,
};
