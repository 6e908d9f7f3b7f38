/* Detection of operator files: source files that include <dovetail_op.h>, directly or through other headers. */
#include "cli.h"

#include <stdlib.h>
#include <sys/stat.h>

typedef struct include_search {
    const char *const *folders; /* folders of -I, then <home>/include */
    size_t nfolders;
    struct {
        dev_t device;
        ino_t inode;
    } *seen; /* the files that were read: headers may include each other */
    size_t nseen;
} include_search;

/* Returns the name in an #include directive without its quotes or brackets; NULL if the line is none. *quoted: true if the name
 * was in quotes. The caller frees the name. */
static char *include_name(const char *line, bool *quoted)
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
static char *include_path(const include_search *s, const char *from, const char *name, bool quoted)
{
    const char *slash = strrchr(from, '/');
    struct stat file;
    for (size_t i = *name == '/' || quoted ? 0 : 1; i <= s->nfolders; i++) {
        char *path = *name == '/' ? cli_format("%s", name)
            : i                   ? cli_format("%s/%s", s->folders[i - 1], name)
                                  : cli_format("%.*s%s", slash ? (int)(slash - from) + 1 : 0, from, name);
        if (!stat(path, &file) && S_ISREG(file.st_mode))
            return path;
        free(path);
    }
    return NULL;
}

/* True if the file exists and this search has not seen it before. Records the file as seen. */
static bool include_is_new(include_search *s, const char *path)
{
    struct stat file;
    if (stat(path, &file))
        return false;
    for (size_t i = 0; i < s->nseen; i++)
        if (s->seen[i].inode == file.st_ino && s->seen[i].device == file.st_dev)
            return false;
    s->seen = cli_alloc(s->seen, s->nseen + 1, sizeof *s->seen);
    s->seen[s->nseen].device = file.st_dev;
    s->seen[s->nseen++].inode = file.st_ino;
    return true;
}

/* True if a file that is new to this search includes <dovetail_op.h>, directly or through another header. <dovetail.h>, which
 * programs include, does not count. */
static bool include_reaches_operators(include_search *s, const char *path)
{
    cli_text text = { 0 };
    bool found = false;
    if (include_is_new(s, path) && !cli_read_file(path, &text))
        for (const char *line = text.data; line && !found; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
            bool quoted;
            char *name = include_name(line, &quoted);
            if (name && strcmp(name, "dovetail.h")) {
                char *next = include_path(s, path, name, quoted);
                found = !strcmp(name, "dovetail_op.h") || (next && include_reaches_operators(s, next));
                free(next);
            }
            free(name);
        }
    cli_text_free(&text);
    return found;
}

bool cli_is_operator_file(const char *path, const char *const *folders, size_t nfolders)
{
    include_search s = { .folders = folders, .nfolders = nfolders };
    const bool found = include_reaches_operators(&s, path);
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
