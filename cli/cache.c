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

enum { DAY = 24 * 3600, KEEP_SECONDS = 30 * DAY };
#define CHANGED                                                                                                 \
    "changed" /* in place of a hash: the file changed while it was compiled, so the compiled content is unknown \
               */

/* FNV-1a, 128 bits. It only has to detect accidents, since the folder belongs to one user. */
static void hash(const cli_text *t, char out[CLI_HASH])
{
    const unsigned __int128 prime = ((unsigned __int128)1 << 88) + 0x13b;
    unsigned __int128 h = ((unsigned __int128)0x6c62272e07bb0142u << 64) + 0x62b821756295c58du;
    for (size_t i = 0; i < t->size; i++)
        h = (h ^ (unsigned char)t->data[i]) * prime;
    snprintf(out, CLI_HASH, "%016llx%016llx", (unsigned long long)(h >> 64), (unsigned long long)h);
}

static int hash_by(int (*read)(const char *path, cli_text *to), const char *path, char out[CLI_HASH])
{
    cli_text text = { 0 };
    const int error = read(path, &text);
    if (!error)
        hash(&text, out);
    cli_text_free(&text);
    return error;
}

int cli_hash_file(const char *path, char out[CLI_HASH]) { return hash_by(cli_read_file, path, out); }

/* ---- The folder ---------------------------------------------------------------------------------------------------------- */

/* NULL when the environment names none. */
static char *choose_folder(void)
{
    const char *own = getenv("DOVETAIL_CACHE"), *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (own && *own)
        return cli_format("%s", own);
    if (xdg && *xdg == '/') /* a relative path must be ignored: XDG Base Directory Specification */
        return cli_join(xdg, "dovetail");
    if (home && *home == '/')
        return cli_join(home, ".cache/dovetail");
    return NULL;
}

/* If other users could change the usual folder, the build uses a new private folder. The caller removes it. */
static char *make_private_folder(void)
{
    const char *const bases[] = { getenv("TMPDIR"), getenv("XDG_RUNTIME_DIR"), "/tmp" };
    for (size_t i = 0; i < sizeof bases / sizeof *bases; i++) {
        if (!bases[i] || *bases[i] != '/' || dv_folder_check(bases[i], DV_FOLDER_ANY_ROOT))
            continue;
        char *path = cli_format("%s/" CLI_PRIVATE_FOLDER "XXXXXX", bases[i]);
        if (mkdtemp(path))
            return path;
        free(path);
    }
    return NULL;
}

static bool is_private_folder(const char *path)
{
    const char *slash = strrchr(path, '/');
    return !strncmp(slash ? slash + 1 : path, CLI_PRIVATE_FOLDER, strlen(CLI_PRIVATE_FOLDER));
}

static int use_private_folder(cli_cache *c, const char *why)
{
    char *folder = make_private_folder();
    if (!folder)
        return cli_fail("cannot keep builds: %s; name a folder of your own with DOVETAIL_CACHE", why);
    cli_note("builds are not kept: %s; this one is in %s, a folder for this process (DOVETAIL_CACHE names another)", why, folder);
    free(c->folder);
    c->folder = folder;
    return CLI_OK;
}

static int use_private_without_home(cli_cache *c)
{
    const char *home = getenv("HOME");
    char *why = home ? cli_format("HOME is '%s', which is not an absolute path", home) : cli_format("HOME is not set");
    const int status = use_private_folder(c, why);
    free(why);
    return status;
}

/* Code loaded from the folder runs with the user's rights: nobody else may write there or replace the folder. */
static int open_folder(cli_cache *c)
{
    if (!c->folder)
        return use_private_without_home(c);
    const unsigned any_root = is_private_folder(c->folder) ? DV_FOLDER_ANY_ROOT : 0;
    const int status = dv_folder_check(c->folder, DV_FOLDER_MAKE | DV_FOLDER_OWN | any_root);
    if (!status)
        return CLI_OK;
    if (status == DV_EINVAL)
        return cli_fail("cannot keep builds: %s, so what is loaded from there could be another user's; name a folder of your own "
                        "with DOVETAIL_CACHE, or chmod go-w",
            dv_last_error());
    char *why = cli_format("%s", dv_last_error()); /* a copy: looking for another folder may fail as well */
    const int failed = use_private_folder(c, why);
    free(why);
    return failed;
}

int cli_cache_open(const cli_text *key, cli_cache *out)
{
    *out = (cli_cache){ .folder = choose_folder(), .lock = -1 };
    if (open_folder(out))
        return CLI_FAILED;
    hash(key, out->key);
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

/* A record's modification time is its last use; updating it once a day is enough. */
static void mark_used(const char *record)
{
    struct stat s;
    if (!stat(record, &s) && time(NULL) - s.st_mtime > DAY)
        utimensat(AT_FDCWD, record, NULL, 0);
}

static char *file_of_key(const cli_cache *c, const char *suffix) { return cli_format("%s/%s.%s", c->folder, c->key, suffix); }

/* A name as written in a line: "\n" for a line break, "\\" for a backslash. */
static void add_name(cli_text *to, const char *name)
{
    for (; *name; name++)
        if (*name == '\n')
            cli_adds(to, "\\n");
        else if (*name == '\\')
            cli_adds(to, "\\\\");
        else
            cli_add(to, name, 1);
}

static char *read_name(char *line)
{
    char *to = line;
    for (const char *from = line; *from; from++)
        *to++ = *from != '\\' || !from[1] ? *from : *++from == 'n' ? '\n' : *from;
    *to = 0;
    return line;
}

/* Returns the text of a complete file of this user, without its last newline; else NULL. text holds the memory. */
static char *read_lines(const char *path, cli_text *text)
{
    const bool whole = !cli_read_own_file(path, text) && text->size && text->data[text->size - 1] == '\n';
    if (whole)
        text->data[text->size - 1] = 0;
    return whole ? text->data : NULL;
}

/* Set the names of the entry, from the contents of the files listed in deps. */
static void name_entry(cli_cache *c, char *deps)
{
    cli_text state = { 0 };
    char id[CLI_HASH], *line;
    while ((line = strsep(&deps, "\n"))) {
        char found[CLI_HASH] = "";
        cli_hash_file(read_name(line), found);
        cli_addf(&state, "%s %s", found, line);
        cli_add(&state, "", 1); /* which no name holds */
    }
    hash(&state, id);
    free(c->binary);
    free(c->record);
    c->binary = cli_format("%s/%s-%s.so", c->folder, c->key, id);
    c->record = cli_format("%s/%s-%s.made", c->folder, c->key, id);
    cli_text_free(&state);
}

/* Does the hash in a record's line, "HASH NAME", fit the file? */
static bool agrees(char *line, const char *binary)
{
    char found[CLI_HASH], *name = strchr(line, ' ');
    if (!name)
        return false;
    *name++ = 0;
    const int error = binary ? hash_by(cli_read_own_file, binary, found) : cli_hash_file(read_name(name), found);
    return !error && !strcmp(found, line);
}

static bool find_entry(cli_cache *c, char *deps)
{
    cli_text text = { 0 };
    name_entry(c, deps);
    char *rest = read_lines(c->record, &text), *line;
    bool good = rest;
    for (size_t i = 0; good && (line = strsep(&rest, "\n")); i++)
        good = agrees(line, i ? NULL : c->binary);
    cli_text_free(&text);
    return good;
}

bool cli_cache_find(cli_cache *c)
{
    cli_text text = { 0 };
    char *path = file_of_key(c, "deps"), *deps = read_lines(path, &text);
    const bool good = deps && find_entry(c, deps);
    if (good) {
        mark_used(path);
        mark_used(c->record);
    }
    cli_text_free(&text);
    free(path);
    return good;
}

/* Lock the file of this name; -1 with errno set. If another process has removed the file meanwhile, try again. */
static int lock_name(const char *path, int how)
{
    for (;;) {
        struct stat a, b;
        const int fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (fd < 0)
            return -1;
        if (!fstat(fd, &a) && a.st_uid != geteuid()) { /* its owner could hold the lock for ever */
            close(fd);
            if (unlink(path))
                return -1;
            continue;
        }
        int failed;
        while ((failed = flock(fd, how)) && errno == EINTR)
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
    char *path = file_of_key(c, "lock");
    c->lock = lock_name(path, LOCK_EX);
    const int status = c->lock < 0 ? cli_fail("cannot lock '%s': %s", path, strerror(errno)) : CLI_OK;
    free(path);
    clock_gettime(CLOCK_REALTIME, &c->started);
    return status;
}

static bool written_since(const char *path, const struct timespec *t)
{
    struct stat s;
    return !stat(path, &s) &&
        (s.st_mtim.tv_sec > t->tv_sec || (s.st_mtim.tv_sec == t->tv_sec && s.st_mtim.tv_nsec >= t->tv_nsec));
}

/* The inputs of a binary: the lines of its record, and the names alone. */
typedef struct made_from {
    cli_text record, names;
    const struct timespec *started;
} made_from;

static void add_dependency(made_from *m, const char *path)
{
    char found[CLI_HASH];
    cli_addf(&m->record, "%s ", cli_hash_file(path, found) || written_since(path, m->started) ? CHANGED : found);
    add_name(&m->record, path);
    cli_adds(&m->record, "\n");
    add_name(&m->names, path);
    cli_adds(&m->names, "\n");
}

/* The words after the colon of the one rule that -MMD wrote: a backslash before a space or '#' is not part of a name, '$' is
 * doubled, a backslash after a space goes on with the next line. Any other end of a line but the last is part of a name. */
static void add_dependencies(made_from *m, const char *rule)
{
    cli_text word = { 0 };
    bool target = true; /* what comes next is left of the colon */
    size_t n = strlen(rule);
    n -= n && rule[n - 1] == '\n';
    for (size_t i = 0; i <= n; i++) {
        const char *p = rule + i;
        const bool goes_on = i + 1 < n && p[0] == '\\' && p[1] == '\n' && !word.size;
        if (i < n && p[0] == '\\' && (p[1] == ' ' || p[1] == '#')) {
            cli_add(&word, p + 1, 1);
            i++;
        } else if (i < n && p[0] == '$' && p[1] == '$') {
            cli_adds(&word, "$");
            i++;
        } else if (i < n && !goes_on && *p != ' ' && *p != '\t') {
            cli_add(&word, p, 1);
        } else {
            if (word.size && !target)
                add_dependency(m, word.data);
            target = target && !(word.size && word.data[word.size - 1] == ':');
            word.size = 0;
            i += goes_on;
        }
    }
    cli_text_free(&word);
}

/* Write the file completely or not at all. temporary: a name in the same folder. */
static int replace_file(const char *temporary, const char *path, const cli_text *content)
{
    FILE *f = fopen(temporary, "wbe");
    const bool written = f && fwrite(content->data, 1, content->size, f) == content->size;
    if ((f && fclose(f)) || !written || rename(temporary, path))
        return cli_fail("cannot write '%s': %s", path, strerror(errno));
    return CLI_OK;
}

int cli_cache_keep(cli_cache *c, const char *made, const cli_text *rules, const char *const *more, size_t nmore)
{
    made_from m = { .started = &c->started };
    char found[CLI_HASH], *temporary = cli_format("%s.made", made), *deps = file_of_key(c, "deps");
    const int error = cli_hash_file(made, found);
    int status = error ? cli_fail("cannot read '%s': %s", made, strerror(error)) : CLI_OK;
    cli_addf(&m.record, "%s the binary\n", found);
    for (size_t at = 0; at < rules->size; at += strlen(rules->data + at) + 1)
        add_dependencies(&m, rules->data + at);
    for (size_t i = 0; i < nmore; i++)
        add_dependency(&m, more[i]);
    if (!status)
        status = replace_file(temporary, deps, &m.names);
    if (m.names.size)
        m.names.data[m.names.size - 1] = 0;
    name_entry(c, m.names.data);
    if (!status && rename(made, c->binary))
        status = cli_fail("cannot write '%s': %s", c->binary, strerror(errno));
    if (!status)
        status = replace_file(temporary, c->record, &m.record);
    cli_text_free(&m.record);
    cli_text_free(&m.names);
    free(temporary);
    free(deps);
    return status;
}

/* ---- What nobody uses goes ----------------------------------------------------------------------------------------------- */

/* The modification time of the first of these files that exists. */
static time_t used(const char *folder, const char *stem, const char *const suffixes[2])
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

/* Remove the files of one stem with the lock of their key held, unless a process is building it. */
static void remove_old(const cli_cache *c, const char *stem, const char *const suffixes[2], time_t now)
{
    if (now - used(c->folder, stem, suffixes) <= KEEP_SECONDS)
        return;
    char *lock = cli_format("%s/%.*s.lock", c->folder, (int)strcspn(stem, "-"), stem);
    const int fd = lock_name(lock, LOCK_EX | LOCK_NB);
    for (size_t i = 0; fd >= 0 && i < 2; i++) {
        char *path = cli_format("%s/%s%s", c->folder, stem, suffixes[i]);
        unlink(path);
        free(path);
    }
    if (fd >= 0)
        close(fd);
    free(lock);
}

/* Done once a day, by any build. The modification time of the file "swept" is the last time. */
void cli_cache_sweep(const cli_cache *c)
{
    char *swept = cli_join(c->folder, "swept");
    struct stat s;
    const time_t now = time(NULL);
    const bool due = stat(swept, &s) || now - s.st_mtime > DAY;
    const int fd = due ? open(swept, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600) : -1;
    DIR *dir = fd >= 0 && !futimens(fd, NULL) ? opendir(c->folder) : NULL;
    for (struct dirent *e; dir && (e = readdir(dir));) {
        static const char *const entry[2] = { ".made", ".so" }, *const of_key[2] = { ".deps", ".lock" };
        char *dot = strrchr(e->d_name, '.');
        const bool is_entry = dot && !strcmp(dot, ".so"), is_key = dot && !strcmp(dot, ".lock");
        if (!is_entry && !is_key) /* every key has a lock file, even after a failed build */
            continue;
        *dot = 0;
        remove_old(c, e->d_name, is_entry ? entry : of_key, now);
    }
    if (dir)
        closedir(dir);
    if (fd >= 0)
        close(fd);
    free(swept);
}
