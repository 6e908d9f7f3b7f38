/* Loads binaries and finds the operators named on a command line. */
#include "cli.h"

#include <dirent.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static dv_library **libraries;
static size_t nlibraries;

static bool ends_with(const char *s, const char *end)
{
    const size_t n = strlen(s), m = strlen(end);
    return n > m && !strcmp(s + n - m, end);
}

bool cli_is_folder(const char *path)
{
    struct stat s;
    return !stat(path, &s) && S_ISDIR(s.st_mode);
}

static bool is_same_file(const char *a, const char *b)
{
    struct stat file, other;
    return !stat(a, &file) && !stat(b, &other) && file.st_ino == other.st_ino && file.st_dev == other.st_dev;
}

bool cli_is_repeated(const cli_args *args, size_t i)
{
    bool found = false;
    for (size_t k = 0; k < i; k++)
        found = found || is_same_file(args->words[k], args->words[i]);
    return found;
}

/* True if a folder holds a file that ends like a source file. */
static bool holds_sources(const char *folder)
{
    DIR *dir = cli_is_folder(folder) ? opendir(folder) : NULL;
    bool found = false;
    for (struct dirent *e; dir && !found && (e = readdir(dir));)
        found = *e->d_name != '.' && cli_ends_as_source(e->d_name);
    if (dir)
        closedir(dir);
    return found;
}

/* True if the word ends like a source file and has a '/' or names a file. An operator's overload may end so, too: "f.c". */
static bool is_source_file(const char *word)
{
    return cli_ends_as_source(word) && !cli_is_folder(word) && (strchr(word, '/') || !access(word, F_OK));
}

bool cli_is_source(const char *word) { return is_source_file(word) || holds_sources(word); }

/* True if the word is a call site, "ns::op(...)", and no file. */
static bool is_site(const char *word) { return strchr(word, '(') && ends_with(word, ")") && access(word, F_OK); }

bool cli_is_binary(const char *word)
{
    return !is_site(word) && (strchr(word, '/') || ends_with(word, ".so") || cli_is_source(word));
}

size_t cli_count_binaries(const cli_args *args)
{
    size_t n = 0;
    while (n < args->nwords && cli_is_binary(args->words[n]))
        n++;
    return n;
}

static int load(const char *path, bool shipped)
{
    dv_library *lib;
    if (dv_load(path, &lib)) {
        if (!shipped)
            return cli_fail("%s", dv_last_error());
        cli_note("a shipped binary is skipped: %s", dv_last_error());
        return CLI_FAILED;
    }
    libraries = cli_alloc(libraries, nlibraries + 1, sizeof *libraries);
    libraries[nlibraries++] = lib;
    return CLI_OK;
}

/* True if a binary was loaded from this file. */
static bool is_loaded(const char *path)
{
    bool found = false;
    for (size_t i = 0; i < nlibraries; i++)
        found = found || is_same_file(path, dv_library_path(libraries[i]));
    return found;
}

/* Builds sources as one library in the user's cache folder. Returns the path of the binary, and receives its messages; the caller
 * frees both. NULL: the build failed. */
static char *build(const cli_args *args, const char *const *sources, size_t nsources, cli_text *output)
{
    const char *const *options = cli_build_arguments(args);
    size_t n = 3, noptions = 0;
    while (options[noptions])
        noptions++;
    const char **argv = cli_alloc(NULL, noptions + nsources + 5, sizeof *argv);
    argv[0] = "/proc/self/exe", argv[1] = "build", argv[2] = "--cached";
    for (size_t i = 0; i < noptions; i++)
        argv[n++] = options[i];
    argv[n++] = "--";
    for (size_t i = 0; i < nsources; i++)
        argv[n++] = sources[i];
    argv[n] = NULL;
    const int status = cli_run(argv, NULL, output);
    while (output->size && output->data[output->size - 1] == '\n')
        output->data[--output->size] = 0;
    char *line = output->size ? strrchr(output->data, '\n') : NULL, *path = NULL; /* the last line is the binary's path */
    if (!status && output->size)
        path = cli_format("%s", line ? line + 1 : output->data);
    if (path)
        *(line ? line : output->data) = 0;
    free(argv);
    return path;
}

static int load_sources(const cli_args *args, const char *const *sources, size_t n)
{
    cli_text messages = { 0 };
    char *built = build(args, sources, n, &messages);
    const char *text = messages.data ? messages.data : "", *more = n > 1 ? " and the other files were" : " was";
    if (*text && (built || !cli_json)) /* the answer in JSON has the reason in it */
        fprintf(stderr, "%s\n", text);
    const int status = built ? load(built, false)
        : cli_json           ? cli_fail("'%s'%s not built: %s", *sources, more, cli_without_prefix(text))
                             : cli_fail("'%s'%s not built", *sources, more);
    cli_text_free(&messages);
    free(built);
    return status;
}

const char **cli_one_library(const cli_args *args, size_t n, size_t *nfiles)
{
    const char **files = cli_alloc(NULL, n + 1, sizeof *files);
    *nfiles = 0;
    for (size_t i = 0; i < n; i++)
        if (is_source_file(args->words[i]) && !cli_is_repeated(args, i))
            files[(*nfiles)++] = args->words[i];
    if (*nfiles > 1 && cli_is_one_library(files, *nfiles))
        return files;
    free(files);
    *nfiles = 0;
    return NULL;
}

int cli_load(const cli_args *args, size_t n, bool names)
{
    size_t nfiles;
    const char **files = cli_one_library(args, n, &nfiles);
    int status = files ? load_sources(args, files, nfiles) : CLI_OK;
    for (size_t i = 0; i < n && !status; i++) {
        const char *const word = args->words[i];
        if ((names && !cli_is_binary(word)) || (files && is_source_file(word)) || cli_is_repeated(args, i))
            continue;
        status = is_source_file(word) || cli_is_folder(word) ? load_sources(args, &word, 1) : load(word, false);
    }
    free(files);
    return status;
}

size_t cli_libraries(dv_library *const **out)
{
    *out = libraries;
    return nlibraries;
}

static int by_name(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

void cli_load_shipped(void)
{
    static bool done;
    const char *home = done ? NULL : cli_home();
    done = true;
    if (!home)
        return;
    char *folder = cli_join(home, "ops"), **names = NULL;
    size_t n = 0;
    DIR *dir = opendir(folder);
    for (struct dirent *e; dir && (e = readdir(dir));)
        if (*e->d_name != '.' && cli_is_binary(e->d_name) &&
            strcmp(e->d_name, "base.so")) { /* the runtime loads the base set itself */
            names = cli_alloc(names, n + 1, sizeof *names);
            names[n++] = cli_join(folder, e->d_name);
        }
    if (dir)
        closedir(dir);
    if (n)
        qsort(names, n, sizeof *names, by_name);
    for (size_t i = 0; i < n; i++) {
        if (!is_loaded(names[i]))
            load(names[i], true);
        free(names[i]);
    }
    free(names);
    free(folder);
}

typedef struct search {
    const char *word;
    dv_operator **found;
    size_t n;
} search;

static bool means(const char *word, const char *name)
{
    const size_t n = strlen(word);
    const char *space = strstr(name, "::");
    if (!strncmp(name, word, n) && (!name[n] || name[n] == '.' || !strncmp(name + n, "::", 2)))
        return true;
    return space && !strstr(word, "::") && !strncmp(space + 2, word, n) && (!space[2 + n] || space[2 + n] == '.');
}

static int collect(void *user, dv_operator *op)
{
    search *s = user;
    if (!s->word || means(s->word, dv_operator_name(op))) {
        s->found = cli_alloc(s->found, s->n + 1, sizeof *s->found);
        s->found[s->n++] = dv_operator_ref(op);
    }
    return 0;
}

int cli_find_all(const char *word, dv_operator ***out, size_t *n)
{
    search s = { .word = word };
    *out = NULL;
    *n = 0;
    dv_each_operator(collect, &s);
    if (!s.n) {
        cli_load_shipped();
        dv_each_operator(collect, &s);
    }
    if (!s.n) {
        dv_operator *op;
        return dv_find(word, &op) ? cli_fail("%s", dv_last_error()) : cli_fail("no operator '%s'", word);
    }
    *out = s.found;
    *n = s.n;
    return CLI_OK;
}

/* Finds the operator that a word means. Returns CLI_OK; or CLI_FAILED, with the message printed, if not exactly one is found. */
static int find_one(const char *word, dv_operator **out)
{
    dv_operator **found;
    size_t n;
    *out = NULL;
    const int status = cli_find_all(word, &found, &n);
    if (status)
        return status;
    for (size_t i = 0; i < n; i++) /* an exact name wins over its overloads */
        if (n == 1 || !strcmp(dv_operator_name(found[i]), word))
            *out = found[i];
    cli_text names = { 0 };
    for (size_t i = 0; i < n; i++)
        cli_addf(&names, "%s%s", i ? ", " : "", dv_operator_name(found[i]));
    free(found);
    const int failed = *out ? CLI_OK : cli_fail("'%s' means %zu operators: %s", word, n, names.data);
    cli_text_free(&names);
    return failed;
}

int cli_site(const cli_args *args, size_t first, dv_site **out)
{
    *out = NULL;
    if (first >= args->nwords)
        return cli_usage(args->verb, "expected the name of an operator");
    const char *word = args->words[first];
    const size_t size = is_site(word) ? strcspn(word, "(") : strlen(word);
    char *name = cli_format("%.*s", (int)size, word);
    dv_operator *op;
    cli_text t = { 0 };
    int status = find_one(name, &op);
    if (!status && word[size] && first + 1 < args->nwords)
        status = cli_usage(args->verb, "'%s' is a whole call: expected no argument after it", word);
    if (!status) {
        cli_addf(&t, "%s%s", dv_operator_name(op), word[size] ? word + size : "(");
        for (size_t i = first + 1; i < args->nwords; i++)
            cli_addf(&t, "%s%s", i > first + 1 ? ", " : "", args->words[i]);
        cli_adds(&t, word[size] ? "" : ")");
        status = dv_site_parse(t.data, out) ? cli_usage(args->verb, "%s", dv_last_error()) : CLI_OK;
    }
    cli_text_free(&t);
    free(name);
    return status;
}

void cli_print_site(const dv_site *s)
{
    const size_t n = strlen(dv_operator_name(dv_site_operator(s)));
    char *text;
    if (!dv_site_print(s, &text))
        printf("%s%.*s%s%s\n", cli_style(stdout, CLI_BOLD), (int)n, text, cli_style(stdout, CLI_PLAIN), text + n);
    dv_free(text);
}
