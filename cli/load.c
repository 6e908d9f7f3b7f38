/* Loads binaries and finds the operators named on a command line. */
#include "cli.h"

#include <dirent.h>
#include <stdlib.h>
#include <unistd.h>

static dv_library **libraries;
static size_t nlibraries;

static bool load_has_ending(const char *s, const char *end)
{
    const size_t n = strlen(s), m = strlen(end);
    return n > m && !strcmp(s + n - m, end);
}

/* True if a folder holds a file that ends like a source file. */
static bool load_has_sources(const char *folder)
{
    DIR *dir = cli_is_folder(folder) ? opendir(folder) : NULL;
    bool found = false;
    for (struct dirent *e; dir && !found && (e = readdir(dir));)
        found = *e->d_name != '.' && cli_has_source_extension(e->d_name);
    if (dir)
        closedir(dir);
    return found;
}

/* True if the word ends like a source file and has a '/' or names a file. An operator's overload may end so, too: "f.c". */
static bool load_is_source_file(const char *word)
{
    return cli_has_source_extension(word) && !cli_is_folder(word) && (strchr(word, '/') || !access(word, F_OK));
}

bool cli_is_source_operand(const char *word) { return load_is_source_file(word) || load_has_sources(word); }

/* True if the word is a call site, "ns::op(...)", and no file. */
static bool load_is_call_site(const char *word) { return strchr(word, '(') && load_has_ending(word, ")") && access(word, F_OK); }

bool cli_is_binary_operand(const char *word)
{
    return !load_is_call_site(word) && (strchr(word, '/') || load_has_ending(word, ".so") || cli_is_source_operand(word));
}

size_t cli_count_binary_operands(const cli_args *args)
{
    size_t n = 0;
    while (n < args->noperands && cli_is_binary_operand(args->operands[n]))
        n++;
    return n;
}

/* Loads a binary and adds it to the loaded libraries. Returns CLI_OK; CLI_FAILED with the message printed. only_notes_failure:
 * the message is a note, not an error, since the binary is a shipped one. */
static int load_binary_file(const char *path, bool only_notes_failure)
{
    dv_library *lib;
    if (dv_load(path, &lib)) {
        if (!only_notes_failure)
            return cli_fail("%s", dv_last_error());
        cli_print_note("a shipped binary is skipped: %s", dv_last_error());
        return CLI_FAILED;
    }
    libraries = cli_realloc_array(libraries, nlibraries + 1, sizeof *libraries);
    libraries[nlibraries++] = lib;
    return CLI_OK;
}

/* True if one of the first nbinaries binaries was loaded from this file. */
static bool load_is_already_loaded(const char *path, size_t nbinaries)
{
    bool found = false;
    for (size_t i = 0; i < nbinaries; i++)
        found = found || cli_is_same_file(path, dv_library_path(libraries[i]));
    return found;
}

/* Builds sources as one library in the user's cache folder. Returns the path of the binary, and the build's messages in *output;
 * the caller frees both. NULL: the build failed. */
static char *load_build_cached_binary(const cli_args *args, const char *const *sources, size_t nsources, cli_text *output)
{
    const char *const *options = cli_list_build_args(args);
    size_t n = 3, noptions = 0;
    while (options[noptions])
        noptions++;
    const char **argv = cli_realloc_array(NULL, noptions + nsources + 5, sizeof *argv);
    argv[0] = cli_find_command(), argv[1] = "build", argv[2] = "--cached";
    for (size_t i = 0; i < noptions; i++)
        argv[n++] = options[i];
    argv[n++] = "--";
    for (size_t i = 0; i < nsources; i++)
        argv[n++] = sources[i];
    argv[n] = NULL;
    const int status = cli_run_program(argv, NULL, output);
    while (output->size && output->data[output->size - 1] == '\n')
        output->data[--output->size] = 0;
    char *line = output->size ? strrchr(output->data, '\n') : NULL,
         *path = NULL; /* the last line of the build's output is the binary's path */
    if (!status && output->size)
        path = cli_format("%s", line ? line + 1 : output->data);
    if (path)
        *(line ? line : output->data) = 0;
    free(argv);
    return path;
}

/* Builds n sources as one library, prints the build's messages and loads the binary. Returns a status. */
static int load_sources_as_library(const cli_args *args, const char *const *sources, size_t n)
{
    cli_text messages = { 0 };
    char *built = load_build_cached_binary(args, sources, n, &messages);
    const char *text = messages.data ? messages.data : "", *more = n > 1 ? " and the other files were" : " was";
    if (*text && (built || !cli_json_output)) /* with --json a failed build's messages are in the JSON document */
        fprintf(stderr, "%s\n", text);
    const int status = built ? load_binary_file(built, false)
        : cli_json_output    ? cli_fail("'%s'%s not built: %s", *sources, more, cli_skip_error_prefix(text))
                             : cli_fail("'%s'%s not built", *sources, more);
    cli_text_free(&messages);
    free(built);
    return status;
}

const char **cli_gather_library_sources(const cli_args *args, size_t n, size_t *nfiles)
{
    const char **files = cli_realloc_array(NULL, n + 1, sizeof *files);
    *nfiles = 0;
    for (size_t i = 0; i < n; i++)
        if (load_is_source_file(args->operands[i]) && !cli_is_repeated_operand(args, i))
            files[(*nfiles)++] = args->operands[i];
    if (*nfiles > 1 && cli_is_one_library(files, *nfiles))
        return files;
    free(files);
    *nfiles = 0;
    return NULL;
}

int cli_load_binaries(const cli_args *args, size_t n, bool may_name_operators)
{
    size_t nfiles;
    const char **files = cli_gather_library_sources(args, n, &nfiles);
    int status = files ? load_sources_as_library(args, files, nfiles) : CLI_OK;
    for (size_t i = 0; i < n && !status; i++) {
        const char *const word = args->operands[i];
        if ((may_name_operators && !cli_is_binary_operand(word)) || (files && load_is_source_file(word)) ||
            cli_is_repeated_operand(args, i))
            continue;
        status = load_is_source_file(word) || cli_is_folder(word) ? load_sources_as_library(args, &word, 1)
                                                                  : load_binary_file(word, false);
    }
    free(files);
    return status;
}

size_t cli_list_libraries(dv_library *const **out)
{
    *out = libraries;
    return nlibraries;
}

/* Comparison for qsort() of strings. */
static int load_compare_names(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

void cli_load_shipped(void)
{
    static bool done;
    const char *home = done ? NULL : cli_find_home();
    done = true;
    if (!home)
        return;
    char *folder = cli_join_path(home, "ops"), **names = NULL;
    const size_t named = nlibraries; /* binaries that were loaded before: the user may have named a shipped one */
    size_t n = 0;
    DIR *dir = opendir(folder);
    for (struct dirent *e; dir && (e = readdir(dir));)
        if (*e->d_name != '.' && cli_is_binary_operand(e->d_name) &&
            strcmp(e->d_name, "base.so")) { /* the runtime loads the base set itself */
            names = cli_realloc_array(names, n + 1, sizeof *names);
            names[n++] = cli_join_path(folder, e->d_name);
        }
    if (dir)
        closedir(dir);
    if (n)
        qsort(names, n, sizeof *names, load_compare_names);
    for (size_t i = 0; i < n; i++) {
        if (!load_is_already_loaded(names[i], named))
            load_binary_file(names[i], true);
        free(names[i]);
    }
    free(names);
    free(folder);
}

typedef struct operator_search {
    const char *word;
    dv_operator **found;
    size_t n;
} operator_search;

/* True if a word of the command line stands for the operator of this full name. */
static bool load_matches_name(const char *word, const char *name)
{
    const size_t n = strlen(word);
    const char *space = strstr(name, "::");
    if (!strncmp(name, word, n) && (!name[n] || name[n] == '.' || !strncmp(name + n, "::", 2)))
        return true;
    return space && !strstr(word, "::") && !strncmp(space + 2, word, n) && (!space[2 + n] || space[2 + n] == '.');
}

/* For dv_for_each_operator(): adds the operator to the search `user` if its word matches. Returns 0, so that all are visited. */
static int load_collect_operator(void *user, dv_operator *op)
{
    operator_search *s = user;
    if (!s->word || load_matches_name(s->word, dv_operator_name(op))) {
        s->found = cli_realloc_array(s->found, s->n + 1, sizeof *s->found);
        s->found[s->n++] = dv_operator_ref(op);
    }
    return 0;
}

int cli_find_operators(const char *word, dv_operator ***out, size_t *nfound)
{
    operator_search s = { .word = word };
    *out = NULL;
    *nfound = 0;
    dv_for_each_operator(load_collect_operator, &s);
    if (!s.n) {
        cli_load_shipped();
        dv_for_each_operator(load_collect_operator, &s);
    }
    if (!s.n) {
        dv_operator *op;
        return dv_find(word, &op) ? cli_fail("%s", dv_last_error()) : cli_fail("no operator '%s'", word);
    }
    *out = s.found;
    *nfound = s.n;
    return CLI_OK;
}

/* Finds the operator that a word means. Returns CLI_OK; or CLI_FAILED, with the message printed, if not exactly one is found. */
static int load_find_one_operator(const char *word, dv_operator **out)
{
    dv_operator **found;
    size_t n;
    *out = NULL;
    const int status = cli_find_operators(word, &found, &n);
    if (status)
        return status;
    for (size_t i = 0; i < n; i++) /* the operator with exactly this name is preferred to its overloads */
        if (n == 1 || !strcmp(dv_operator_name(found[i]), word))
            *out = found[i];
    cli_text names = { 0 };
    for (size_t i = 0; i < n; i++)
        cli_text_appendf(&names, "%s%s", i ? ", " : "", dv_operator_name(found[i]));
    free(found);
    const int failed = *out ? CLI_OK : cli_fail("'%s' means %zu operators: %s", word, n, names.data);
    cli_text_free(&names);
    return failed;
}

int cli_make_call_site(const cli_args *args, size_t first_operand, dv_site **out)
{
    *out = NULL;
    if (first_operand >= args->noperands)
        return cli_fail_usage(args->verb, "expected the name of an operator");
    const char *word = args->operands[first_operand];
    const size_t size = load_is_call_site(word) ? strcspn(word, "(") : strlen(word);
    char *name = cli_format("%.*s", (int)size, word);
    dv_operator *op;
    cli_text t = { 0 };
    int status = load_find_one_operator(name, &op);
    if (!status && word[size] && first_operand + 1 < args->noperands)
        status = cli_fail_usage(args->verb, "'%s' is a whole call: expected no argument after it", word);
    if (!status) {
        cli_text_appendf(&t, "%s%s", dv_operator_name(op), word[size] ? word + size : "(");
        for (size_t i = first_operand + 1; i < args->noperands; i++)
            cli_text_appendf(&t, "%s%s", i > first_operand + 1 ? ", " : "", args->operands[i]);
        cli_text_append_str(&t, word[size] ? "" : ")");
        status = dv_site_parse(t.data, out) ? cli_fail_usage(args->verb, "%s", dv_last_error()) : CLI_OK;
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
        printf("%s%.*s%s%s\n", cli_get_escape_code(stdout, CLI_BOLD), (int)n, text, cli_get_escape_code(stdout, CLI_STYLE_NONE),
            text + n);
    dv_free(text);
}
