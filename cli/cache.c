/* Builds that are kept: `dovetail build --cached`.
 *
 * One folder per user holds, for each key, KEY.deps: the names of the files that the compiler included the last time. The key is
 * a hash of all that is known before compiling (sources, options, compiler, environment, this command). The contents of those
 * files make the state, and KEY-STATE.so is the binary that was made from them. So another header gives another binary under
 * another name, and one that a process has loaded is not touched. KEY-STATE.made is its record: the hash of the binary, then
 * every file that it was made from with the hash of its content. An entry is good when all hashes agree, so files that were cut
 * short, changed or mixed up are built again, and nothing needs fsync. A file of another user is no entry: it is replaced.
 * Readers take no lock. Builders of one key take turns by a lock on KEY.lock: the kernel drops it when its holder dies. */
#include "cli.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { DAY = 24 * 3600, MAX_AGE_SECONDS = 30 * DAY };
#define HASH_CHANGED                                                                                            \
    "changed" /* in place of a hash: the file changed while it was compiled, so the compiled content is unknown \
               */

/* Writes the FNV-1a hash of a text, 128 bits as hexadecimal text. This hash need not resist attacks, since the folder belongs to
 * one user. */
static void cache_hash_text(const cli_text *t, char out[CLI_HASH_SIZE])
{
    const unsigned __int128 prime = ((unsigned __int128)1 << 88) + 0x13b;
    unsigned __int128 h = ((unsigned __int128)0x6c62272e07bb0142u << 64) + 0x62b821756295c58du;
    for (size_t i = 0; i < t->size; i++)
        h = (h ^ (unsigned char)t->data[i]) * prime;
    snprintf(out, CLI_HASH_SIZE, "%016llx%016llx", (unsigned long long)(h >> 64), (unsigned long long)h);
}

/* Writes the hash of the content of a file, which read_file() reads. Returns 0 or errno. */
static int cache_hash_file_read_by(int (*read_file)(const char *path, cli_text *to), const char *path, char out[CLI_HASH_SIZE])
{
    cli_text text = { 0 };
    const int error = read_file(path, &text);
    if (!error)
        cache_hash_text(&text, out);
    cli_text_free(&text);
    return error;
}

int cli_hash_file(const char *path, char out[CLI_HASH_SIZE]) { return cache_hash_file_read_by(cli_read_file, path, out); }

/* ---- The folder ---------------------------------------------------------------------------------------------------------- */

/* Returns the path of the user's cache folder from the environment, which the caller frees; NULL: the environment names none. */
static char *cache_new_user_folder_path(void)
{
    const char *configured = getenv("DOVETAIL_CACHE"), *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (configured && *configured)
        return cli_format("%s", configured);
    if (xdg && *xdg == '/') /* a relative path must be ignored: XDG Base Directory Specification */
        return cli_join_path(xdg, "dovetail");
    if (home && *home == '/')
        return cli_join_path(home, ".cache/dovetail");
    return NULL;
}

/* Makes a new private folder for one process, for builds when other users could change the usual cache folder. Returns its
 * path; NULL: no base folder is safe. The caller removes the folder. */
static char *cache_new_private_folder_path(void)
{
    const char *const bases[] = { getenv("TMPDIR"), getenv("XDG_RUNTIME_DIR"), "/tmp" };
    for (size_t i = 0; i < sizeof bases / sizeof *bases; i++) {
        if (!bases[i] || *bases[i] != '/' || dv_folder_check(bases[i], DV_FOLDER_ANY_ROOT))
            continue;
        char *path = cli_format("%s/" CLI_PRIVATE_FOLDER_PREFIX "XXXXXX", bases[i]);
        if (mkdtemp(path))
            return path;
        free(path);
    }
    return NULL;
}

/* True if a path's last component has the prefix of folders made by cache_new_private_folder_path(). The folder itself is not
 * examined. */
static bool cache_has_private_folder_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return !strncmp(slash ? slash + 1 : path, CLI_PRIVATE_FOLDER_PREFIX, strlen(CLI_PRIVATE_FOLDER_PREFIX));
}

/* Replaces the cache folder by a new private folder of this process, and prints the reason `why`. Returns a status. */
static int cache_use_private_folder(cli_cache *c, const char *why)
{
    char *folder = cache_new_private_folder_path();
    if (!folder)
        return cli_fail("cannot keep builds: %s; name a folder of your own with DOVETAIL_CACHE", why);
    cli_print_note(
        "builds are not kept: %s; this one is in %s, a folder for this process (DOVETAIL_CACHE names another)", why, folder);
    free(c->folder);
    c->folder = folder;
    return CLI_OK;
}

/* Uses a private folder since the environment names no cache folder. Returns a status. */
static int cache_use_private_for_no_home(cli_cache *c)
{
    const char *home = getenv("HOME");
    char *why = home ? cli_format("HOME is '%s', which is not an absolute path", home) : cli_format("HOME is not set");
    const int status = cache_use_private_folder(c, why);
    free(why);
    return status;
}

/* Checks the cache folder, and uses a private folder if it cannot be made. Fails if other users may write to or replace it, since
 * code that is loaded from it runs with the user's rights. Returns a status. */
static int cache_check_or_replace_folder(cli_cache *c)
{
    if (!c->folder)
        return cache_use_private_for_no_home(c);
    const unsigned any_root = cache_has_private_folder_name(c->folder) ? DV_FOLDER_ANY_ROOT : 0;
    const int status = dv_folder_check(c->folder, DV_FOLDER_MAKE | DV_FOLDER_OWN | any_root);
    if (!status)
        return CLI_OK;
    if (status == DV_EINVAL)
        return cli_fail("cannot keep builds: %s, so what is loaded from there could be another user's; name a folder of your own "
                        "with DOVETAIL_CACHE, or chmod go-w",
            dv_last_error());
    char *why = cli_format("%s", dv_last_error()); /* a copy, since looking for another folder replaces the message */
    const int failed = cache_use_private_folder(c, why);
    free(why);
    return failed;
}

int cli_cache_open(const cli_text *key, cli_cache *out)
{
    *out = (cli_cache){ .folder = cache_new_user_folder_path(), .lock = -1 };
    if (cache_check_or_replace_folder(out))
        return CLI_FAILED;
    cache_hash_text(key, out->key);
    return CLI_OK;
}

void cli_cache_close(cli_cache *c)
{
    if (c->lock >= 0)
        close(c->lock);
    free(c->folder);
    free(c->binary);
    free(c->record);
    *c = (cli_cache){ .lock = -1 };
}

/* ---- Entries ------------------------------------------------------------------------------------------------------------- */

/* Sets a record's modification time to now, unless that was done within a day. The time tells when the entry was last used. */
static void cache_mark_used(const char *record)
{
    struct stat s;
    if (!stat(record, &s) && time(NULL) - s.st_mtime > DAY)
        utimensat(AT_FDCWD, record, NULL, 0);
}

/* Returns "folder/key.suffix", which the caller frees. */
static char *cache_new_entry_path(const cli_cache *c, const char *suffix)
{
    return cli_format("%s/%s.%s", c->folder, c->key, suffix);
}

/* Appends a file's name as written in a line of a record: "\n" stands for a line break, "\\" for a backslash. */
static void cache_append_escaped_name(cli_text *to, const char *name)
{
    for (; *name; name++)
        if (*name == '\n')
            cli_text_append_str(to, "\\n");
        else if (*name == '\\')
            cli_text_append_str(to, "\\\\");
        else
            cli_text_append(to, name, 1);
}

/* Replaces "\n" and "\\" in a line of a record by the characters that they stand for, in place. Returns line. */
static char *cache_unescape_name(char *line)
{
    char *to = line;
    for (const char *from = line; *from; from++)
        *to++ = *from != '\\' || !from[1] ? *from : *++from == 'n' ? '\n' : *from;
    *to = 0;
    return line;
}

/* Returns the content of a file without its last newline, in the memory of `text`; NULL: the file is incomplete or not this
 * user's. */
static char *cache_read_complete_record(const char *path, cli_text *text)
{
    const bool is_complete = !cli_read_trusted_file(path, text) && text->size && text->data[text->size - 1] == '\n';
    if (is_complete)
        text->data[text->size - 1] = 0;
    return is_complete ? text->data : NULL;
}

/* Sets the paths of the entry's binary and record, which contain a hash of the contents of all files that input_names lists.
 * Changes input_names. */
static void cache_set_entry_paths(cli_cache *c, char *input_names)
{
    cli_text state = { 0 };
    char id[CLI_HASH_SIZE], *line;
    while ((line = strsep(&input_names, "\n"))) {
        char found[CLI_HASH_SIZE] = "";
        cli_hash_file(cache_unescape_name(line), found);
        cli_text_appendf(&state, "%s %s", found, line);
        cli_text_append(&state, "", 1); /* a NUL, which no name contains */
    }
    cache_hash_text(&state, id);
    free(c->binary);
    free(c->record);
    c->binary = cli_format("%s/%s-%s.so", c->folder, c->key, id);
    c->record = cli_format("%s/%s-%s.made", c->folder, c->key, id);
    cli_text_free(&state);
}

/* True if the hash in a record's line, "HASH NAME", is that of the file's content; binary: the path of the file in place of NAME,
 * or NULL. */
static bool cache_is_hash_current(char *line, const char *binary)
{
    char found[CLI_HASH_SIZE], *name = strchr(line, ' ');
    if (!name)
        return false;
    *name++ = 0;
    const int error = binary ? cache_hash_file_read_by(cli_read_trusted_file, binary, found)
                             : cli_hash_file(cache_unescape_name(name), found);
    return !error && !strcmp(found, line);
}

/* Sets the entry's paths from the list of inputs. Returns true if the entry's record is complete and has the hashes of the binary
 * and of all inputs. */
static bool cache_try_entry_of_inputs(cli_cache *c, char *input_names)
{
    cli_text text = { 0 };
    cache_set_entry_paths(c, input_names);
    char *rest = cache_read_complete_record(c->record, &text), *line;
    bool good = rest;
    for (size_t i = 0; good && (line = strsep(&rest, "\n")); i++)
        good = cache_is_hash_current(line, i ? NULL : c->binary);
    cli_text_free(&text);
    return good;
}

bool cli_cache_has_current_binary(cli_cache *c)
{
    cli_text text = { 0 };
    char *path = cache_new_entry_path(c, "deps"), *deps = cache_read_complete_record(path, &text);
    const bool good = deps && cache_try_entry_of_inputs(c, deps);
    if (good) {
        cache_mark_used(path);
        cache_mark_used(c->record);
    }
    cli_text_free(&text);
    free(path);
    return good;
}

/* Opens or makes the file and locks it. Returns its descriptor, or -1 with errno set. A file that another process removed
 * meanwhile is made again. */
static int cache_open_locked(const char *path, int flock_mode)
{
    for (;;) {
        struct stat a, b;
        const int fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (fd < 0)
            return -1;
        if (!fstat(fd, &a) && a.st_uid != geteuid()) { /* the file is another user's, who could hold the lock for ever */
            close(fd);
            if (unlink(path))
                return -1;
            continue;
        }
        int failed;
        while ((failed = flock(fd, flock_mode)) && errno == EINTR)
            ;
        if (!failed && !fstat(fd, &a) && !stat(path, &b) && a.st_ino == b.st_ino)
            return fd;
        close(fd);
        if (failed)
            return -1;
    }
}

int cli_cache_lock(cli_cache *c)
{
    char *path = cache_new_entry_path(c, "lock");
    c->lock = cache_open_locked(path, LOCK_EX);
    const int status = c->lock < 0 ? cli_fail("cannot lock '%s': %s", path, strerror(errno)) : CLI_OK;
    free(path);
    clock_gettime(CLOCK_REALTIME, &c->locked_since);
    return status;
}

/* True if the file was modified at or after this time. */
static bool cache_is_modified_since(const char *path, const struct timespec *time)
{
    struct stat s;
    return !stat(path, &s) &&
        (s.st_mtim.tv_sec > time->tv_sec || (s.st_mtim.tv_sec == time->tv_sec && s.st_mtim.tv_nsec >= time->tv_nsec));
}

/* The input files of a binary: the lines for its record, with hashes, and the lines for the file of names. */
typedef struct cache_inputs {
    cli_text record, names;
    const struct timespec *locked_since;
} cache_inputs;

/* Adds an input file with the hash of its content; a file that was modified since the build began gets HASH_CHANGED. */
static void cache_add_input(cache_inputs *m, const char *path)
{
    char found[CLI_HASH_SIZE];
    cli_text_appendf(
        &m->record, "%s ", cli_hash_file(path, found) || cache_is_modified_since(path, m->locked_since) ? HASH_CHANGED : found);
    cache_append_escaped_name(&m->record, path);
    cli_text_append_str(&m->record, "\n");
    cache_append_escaped_name(&m->names, path);
    cli_text_append_str(&m->names, "\n");
}

/* Adds the names after the colon of the one rule that a compiler's -MMD wrote. A backslash before a space or '#' is not part of a
 * name, '$' is doubled, and a backslash after a space continues the line. Any other newline but the last is part of a name. */
static void cache_add_inputs_of_rule(cache_inputs *m, const char *rule)
{
    cli_text word = { 0 };
    bool target = true; /* the next word is left of the colon */
    size_t n = strlen(rule);
    n -= n && rule[n - 1] == '\n';
    for (size_t i = 0; i <= n; i++) {
        const char *p = rule + i;
        const bool goes_on = i + 1 < n && p[0] == '\\' && p[1] == '\n' && !word.size;
        if (i < n && p[0] == '\\' && (p[1] == ' ' || p[1] == '#')) {
            cli_text_append(&word, p + 1, 1);
            i++;
        } else if (i < n && p[0] == '$' && p[1] == '$') {
            cli_text_append_str(&word, "$");
            i++;
        } else if (i < n && !goes_on && *p != ' ' && *p != '\t') {
            cli_text_append(&word, p, 1);
        } else {
            if (word.size && !target)
                cache_add_input(m, word.data);
            target = target && !(word.size && word.data[word.size - 1] == ':');
            word.size = 0;
            i += goes_on;
        }
    }
    cli_text_free(&word);
}

/* Replaces a file by renaming a completely written one, so that readers see the old or the new file. temporary: a path in the
 * same folder; after a failure it may stay there. Returns a status. */
static int cache_replace_file(const char *temporary, const char *path, const cli_text *content)
{
    FILE *f = fopen(temporary, "wbe");
    const bool written = f && fwrite(content->data, 1, content->size, f) == content->size;
    if ((f && fclose(f)) || !written || rename(temporary, path))
        return cli_fail("cannot write '%s': %s", path, strerror(errno));
    return CLI_OK;
}

int cli_cache_store(
    cli_cache *c, const char *new_binary, const cli_text *dependency_rules, const char *const *other_inputs, size_t nother_inputs)
{
    cache_inputs m = { .locked_since = &c->locked_since };
    char found[CLI_HASH_SIZE], *temporary = cli_format("%s.made", new_binary), *deps = cache_new_entry_path(c, "deps");
    const int error = cli_hash_file(new_binary, found);
    int status = error ? cli_fail("cannot read '%s': %s", new_binary, strerror(error)) : CLI_OK;
    cli_text_appendf(&m.record, "%s the binary\n", found);
    for (size_t at = 0; at < dependency_rules->size; at += strlen(dependency_rules->data + at) + 1)
        cache_add_inputs_of_rule(&m, dependency_rules->data + at);
    for (size_t i = 0; i < nother_inputs; i++)
        cache_add_input(&m, other_inputs[i]);
    if (!status)
        status = cache_replace_file(temporary, deps, &m.names);
    if (m.names.size)
        m.names.data[m.names.size - 1] = 0;
    cache_set_entry_paths(c, m.names.data);
    if (!status && rename(new_binary, c->binary))
        status = cli_fail("cannot write '%s': %s", c->binary, strerror(errno));
    if (!status)
        status = cache_replace_file(temporary, c->record, &m.record);
    cli_text_free(&m.record);
    cli_text_free(&m.names);
    free(temporary);
    free(deps);
    return status;
}

/* ---- Removal of unused entries ------------------------------------------------------------------------------------------- */

/* Returns the modification time of the first of two files, stem + suffix, that exists; 0: neither exists. */
static time_t cache_get_first_mtime(const char *folder, const char *stem, const char *const suffixes[2])
{
    time_t t = 0;
    for (size_t i = 0; i < 2 && !t; i++) {
        struct stat s;
        char *path = cli_format("%s/%s%s", folder, stem, suffixes[i]);
        t = stat(path, &s) ? 0 : s.st_mtime;
        free(path);
    }
    return t;
}

/* Removes both files of a stem if they were not used for MAX_AGE_SECONDS. A process that builds the same key prevents this by its
 * lock. */
static void cache_remove_if_old(const cli_cache *c, const char *file_stem, const char *const suffixes[2], time_t now)
{
    if (now - cache_get_first_mtime(c->folder, file_stem, suffixes) <= MAX_AGE_SECONDS)
        return;
    char *lock = cli_format("%s/%.*s.lock", c->folder, (int)strcspn(file_stem, "-"), file_stem);
    const int fd = cache_open_locked(lock, LOCK_EX | LOCK_NB);
    for (size_t i = 0; fd >= 0 && i < 2; i++) {
        char *path = cli_format("%s/%s%s", c->folder, file_stem, suffixes[i]);
        unlink(path);
        free(path);
    }
    if (fd >= 0)
        close(fd);
    free(lock);
}

/* The modification time of the file "swept" in the folder is the time of the last removal. */
void cli_cache_remove_unused(const cli_cache *c)
{
    char *swept = cli_join_path(c->folder, "swept");
    struct stat s;
    const time_t now = time(NULL);
    const bool due = stat(swept, &s) || now - s.st_mtime > DAY;
    const int fd = due ? open(swept, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600) : -1;
    DIR *dir = fd >= 0 && !futimens(fd, NULL) ? opendir(c->folder) : NULL;
    for (struct dirent *e; dir && (e = readdir(dir));) {
        static const char *const entry[2] = { ".made", ".so" }, *const of_key[2] = { ".deps", ".lock" };
        char *dot = strrchr(e->d_name, '.');
        const bool is_entry = dot && !strcmp(dot, ".so"), is_key = dot && !strcmp(dot, ".lock");
        if (!is_entry &&
            !is_key) /* a stem is found by its .so or .lock file; every key has a lock file, even after a failed build */
            continue;
        *dot = 0;
        cache_remove_if_old(c, e->d_name, is_entry ? entry : of_key, now);
    }
    if (dir)
        closedir(dir);
    if (fd >= 0)
        close(fd);
    free(swept);
}
