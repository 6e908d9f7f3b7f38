/* Finds the source files of a folder, and which of them are operator files: those that include <dovetail_op.h>, directly or
 * through other headers. */
#include "cli.h"

#include <dirent.h>
#include <errno.h>
#include <glob.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct include_search {
    const char *const *folders; /* folders of -I, then <home>/include */
    size_t nfolders;
    struct {
        dev_t device;
        ino_t inode;
    } *seen; /* the files that were read, each once, since headers may include each other */
    size_t nseen;
    cli_text *missing; /* receives the names of headers that were not found; NULL: none are recorded */
} include_search;

/* Returns the name in an #include directive without its quotes or brackets; NULL: the line is no such directive. *quoted: true if
 * the name was in quotes. The caller frees the name. */
static char *include_parse_name(const char *line, bool *quoted)
{
    line += strspn(line, " \t");
    if (*line != '#' || (line += 1 + strspn(line + 1, " \t"), strncmp(line, "include", 7)))
        return NULL;
    line += 7 + strspn(line + 7, " \t");
    *quoted = *line == '"';
    if (!*quoted && *line != '<')
        return NULL;
    const size_t n = strcspn(line + 1, *quoted ? "\"\n" : ">\n");
    return line[1 + n] == (*quoted ? '"' : '>') ? cli_format("%.*s", (int)n, line + 1) : NULL;
}

/* Returns the path of the file that an #include directive names, or NULL if there is none. A quoted name is searched beside the
 * including file first, then in the folders. The caller frees it. */
static char *include_find_path(const include_search *s, const char *including_file, const char *name, bool quoted)
{
    const char *slash = strrchr(including_file, '/');
    struct stat file;
    for (size_t i = *name == '/' || quoted ? 0 : 1; i <= s->nfolders; i++) {
        char *path = *name == '/' ? cli_format("%s", name)
            : i                   ? cli_format("%s/%s", s->folders[i - 1], name)
                                  : cli_format("%.*s%s", slash ? (int)(slash - including_file) + 1 : 0, including_file, name);
        if (!stat(path, &file) && S_ISREG(file.st_mode))
            return path;
        free(path);
    }
    return NULL;
}

/* Records the file as seen by this search. Returns true if it exists and was not seen before. */
static bool include_try_mark_new_file(include_search *s, const char *path)
{
    struct stat file;
    if (stat(path, &file))
        return false;
    for (size_t i = 0; i < s->nseen; i++)
        if (s->seen[i].inode == file.st_ino && s->seen[i].device == file.st_dev)
            return false;
    s->seen = cli_realloc_array(s->seen, s->nseen + 1, sizeof *s->seen);
    s->seen[s->nseen].device = file.st_dev;
    s->seen[s->nseen++].inode = file.st_ino;
    return true;
}

/* True if a compiler finds a header by itself: one of C++, of the C library or of the compiler. */
static bool include_is_system_header(const char *name)
{
    static const char *const folders[] = { "/usr/include", "/usr/include/*-linux-*", "/usr/local/include",
        "/usr/lib/gcc/*/*/include", "/usr/lib/llvm-*/lib/clang/*/include", "/usr/lib/clang/*/include" };
    bool found = !strchr(name, '.');
    for (size_t i = 0; i < sizeof folders / sizeof *folders && !found; i++) {
        glob_t matches = { 0 };
        char *pattern = cli_format("%s/%s", folders[i], name);
        found = !glob(pattern, GLOB_NOSORT, NULL, &matches);
        globfree(&matches);
        free(pattern);
    }
    return found;
}

/* Records the name of a header that was not found, once. Skips headers that compilers find by themselves. */
static void include_record_missing(include_search *s, const char *name)
{
    if (s->missing && !include_is_system_header(name) && !(s->missing->data && strstr(s->missing->data, name)))
        cli_text_appendf(s->missing, "%s%s", s->missing->size ? ", " : "", name);
}

/* True if a file that is new to this search includes <dovetail_op.h>, directly or through another header. <dovetail.h>, which
 * programs include, does not count. */
static bool include_reaches_operator_header(include_search *s, const char *path)
{
    cli_text text = { 0 };
    bool found = false;
    if (include_try_mark_new_file(s, path) && !cli_read_file(path, &text))
        for (const char *line = text.data; line && !found; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
            bool quoted;
            char *name = include_parse_name(line, &quoted);
            if (name && strcmp(name, "dovetail.h")) {
                char *next = include_find_path(s, path, name, quoted);
                found = !strcmp(name, "dovetail_op.h") || (next && include_reaches_operator_header(s, next));
                if (!found && !next)
                    include_record_missing(s, name);
                free(next);
            }
            free(name);
        }
    cli_text_free(&text);
    return found;
}

/* True if a source file includes <dovetail_op.h>. missing (or NULL) receives the names of headers that were not found. */
static bool include_is_operator_file(const char *path, const char *const *folders, size_t nfolders, cli_text *missing)
{
    include_search s = { .folders = folders, .nfolders = nfolders, .missing = missing };
    const bool found = include_reaches_operator_header(&s, path);
    free(s.seen);
    return found;
}

bool cli_is_program_file(const char *path)
{
    cli_text text = { 0 };
    const bool found = !cli_read_file(path, &text) && (strstr(text.data, " main(") || strstr(text.data, "\nmain("));
    cli_text_free(&text);
    return found;
}

bool cli_has_source_extension(const char *name)
{
    static const char *const ends[] = { ".c", ".cpp", ".cu", ".cce" };
    const size_t n = strlen(name);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (n > strlen(ends[i]) && !strcmp(name + n - strlen(ends[i]), ends[i]))
            return true;
    return false;
}

bool cli_defines_library(const char *path)
{
    static const char macro[] = "DV_LIBRARY";
    cli_text text = { 0 };
    bool found = false;
    if (!cli_read_file(path, &text))
        for (const char *line = text.data; line && !found; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
            line += strspn(line, " \t");
            found = !strncmp(line, macro, sizeof macro - 1);
        }
    cli_text_free(&text);
    return found;
}

bool cli_is_one_library(const char *const *files, size_t n)
{
    size_t libraries = 0;
    for (size_t i = 0; i < n; i++)
        libraries += cli_defines_library(files[i]);
    return libraries <= 1;
}

static int include_compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Returns the include path: --include folders and -I flags in command-line order, then Dovetail's headers, which are home's. The
 * caller frees the list, and not its strings. */
static const char **include_list_folders(const cli_args *args, const char *headers, size_t *n)
{
    const char **folders = cli_realloc_array(NULL, args->ngiven_options + 1, sizeof *folders);
    *n = 0;
    for (size_t i = 0; i < args->ngiven_options; i++) {
        const char *name = args->given_options[i].option->name, *value = args->given_options[i].value;
        if (!strcmp(name, "include"))
            folders[(*n)++] = value;
        else if (!strcmp(name, "flag") && !strncmp(value, "-I", 2) && value[2])
            folders[(*n)++] = value + 2;
    }
    folders[(*n)++] = headers;
    return folders;
}

static void include_append_file(const char ***files, size_t *n, const char *path)
{
    *files = cli_realloc_array(*files, *n + 1, sizeof **files);
    (*files)[(*n)++] = path;
}

int cli_find_sources(const cli_args *args, const char *folder, cli_sources *out, cli_text *missing)
{
    const char *home = cli_find_home();
    DIR *dir = home ? opendir(folder) : NULL;
    *out = (cli_sources){ 0 };
    if (!dir)
        return home ? cli_fail("cannot read the folder '%s': %s", folder, strerror(errno)) : CLI_FAILED;
    size_t nfolders;
    char *headers = cli_join_path(home, "include");
    const char **folders = include_list_folders(args, headers, &nfolders);
    int status = CLI_OK;
    for (struct dirent *e; !status && (e = readdir(dir));) {
        if (!cli_has_source_extension(e->d_name) || *e->d_name == '.')
            continue;
        char *path = cli_format("%s/%s", folder, e->d_name);
        struct stat file;
        if (!stat(path, &file) && S_ISREG(file.st_mode)) {
            const bool found = include_is_operator_file(path, folders, nfolders, missing);
            include_append_file(found ? &out->operator_files : &out->other_files,
                found ? &out->noperator_files : &out->nother_files, cli_join_path(folder, e->d_name));
            if (access(path, R_OK))
                status = cli_fail("cannot read '%s': %s", path, strerror(errno));
        }
        free(path);
    }
    closedir(dir);
    free(folders);
    free(headers);
    if (out->noperator_files)
        qsort(out->operator_files, out->noperator_files, sizeof *out->operator_files, include_compare_names);
    if (out->nother_files)
        qsort(out->other_files, out->nother_files, sizeof *out->other_files, include_compare_names);
    return status;
}
