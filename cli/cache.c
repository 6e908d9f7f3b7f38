/* Builds that are kept: `dovetail build --cached`.
 *
 * One folder per user holds, for each key, KEY.so and its record KEY.made: the hash of the binary, then every file that it was
 * made from with the hash of its content. The key is a hash of all that is known before compiling (sources, options, compiler,
 * environment, this command); the record has the headers, which only the compiler knows. An entry is good when all hashes agree,
 * so files that were cut short, changed or mixed up are built again, and nothing needs fsync. Readers take no lock. Builders of
 * one key take turns by a lock on KEY.lock: the kernel drops it when its holder dies. */
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
#define CHANGED                                                                                                    \
    "changed" /* in place of a hash: the file was written while it was compiled, so what was compiled is not known \
               */

/* FNV-1a, 128 bits: against accidents; the folder is its user's own. */
static void hash(const cli_text *t, char out[CLI_HASH])
{
    const unsigned __int128 prime = ((unsigned __int128)1 << 88) + 0x13b;
    unsigned __int128 h = ((unsigned __int128)0x6c62272e07bb0142u << 64) + 0x62b821756295c58du;
    for (size_t i = 0; i < t->size; i++)
        h = (h ^ (unsigned char)t->data[i]) * prime;
    snprintf(out, CLI_HASH, "%016llx%016llx", (unsigned long long)(h >> 64), (unsigned long long)h);
}

int cli_hash_file(const char *path, char out[CLI_HASH])
{
    cli_text text = { 0 };
    const int error = cli_read_file(path, &text);
    if (!error)
        hash(&text, out);
    cli_text_free(&text);
    return error;
}

/* ---- The folder ---------------------------------------------------------------------------------------------------------- */

static char *choose_folder(void)
{
    const char *own = getenv("DOVETAIL_CACHE"), *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (own && *own)
        return cli_format("%s", own);
    if (xdg && *xdg == '/') /* a relative one is to be ignored: XDG Base Directory Specification */
        return cli_join(xdg, "dovetail");
    if (home && *home == '/')
        return cli_join(home, ".cache/dovetail");
    cli_fail("no folder to keep builds in: HOME is not set; name one with DOVETAIL_CACHE");
    return NULL;
}

static int make_folders(const char *path)
{
    char *part = cli_format("%s", path);
    int error = 0;
    for (char *p = part + 1; !error; p++)
        if (*p == '/' || !*p) {
            const char end = *p;
            *p = 0;
            if (mkdir(part, 0700) && errno != EEXIST)
                error = errno;
            if (!(*p = end))
                break;
        }
    free(part);
    return error ? cli_fail("cannot make the folder '%s' for builds that are kept: %s", path, strerror(error)) : CLI_OK;
}

/* What is loaded from the folder runs as us: nobody else may write there, or put another folder in its place. */
static int check_folder(const char *path)
{
    static const char why[] =
        "so what is loaded from there could be another user's; name a folder of your own with DOVETAIL_CACHE";
    struct stat s, link;
    if (lstat(path, &link) || stat(path, &s))
        return cli_fail("cannot use the folder '%s' for builds that are kept: %s", path, strerror(errno));
    if (!S_ISDIR(s.st_mode))
        return cli_fail("cannot keep builds in '%s': it is not a folder", path);
    if (link.st_uid != geteuid() || s.st_uid != geteuid())
        return cli_fail("the folder '%s' belongs to user %lu, %s", path,
            (unsigned long)(s.st_uid != geteuid() ? s.st_uid : link.st_uid), why);
    if (s.st_mode & (S_IWGRP | S_IWOTH))
        return cli_fail("others than its user may write to the folder '%s' (mode %03o), %s, or chmod go-w", path,
            (unsigned)(s.st_mode & 0777), why);
    char *real = realpath(path, NULL);
    int status = CLI_OK;
    for (char *slash = real; !status && real && (slash = strrchr(real, '/')) && slash != real;) {
        *slash = 0;
        if (!stat(real, &s) && (s.st_mode & S_IWOTH) && !(s.st_mode & S_ISVTX))
            status = cli_fail("everybody may write to '%s', in which the folder '%s' lies, %s", real, path, why);
    }
    free(real);
    return status;
}

int cli_cache_open(const cli_text *key, cli_cache *out)
{
    char id[CLI_HASH];
    *out = (cli_cache){ .folder = choose_folder(), .lock = -1 };
    if (!out->folder || make_folders(out->folder) || check_folder(out->folder))
        return CLI_FAILED;
    hash(key, id);
    out->binary = cli_format("%s/%s.so", out->folder, id);
    out->record = cli_format("%s/%s.made", out->folder, id);
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

/* The time of a record says when it was used last; once a day is enough. */
static void mark_used(const char *record)
{
    struct stat s;
    if (!stat(record, &s) && time(NULL) - s.st_mtime > DAY)
        utimensat(AT_FDCWD, record, NULL, 0);
}

/* Does a line of a record, "HASH NAME", say what the file has? */
static bool agrees(char *line, const char *binary)
{
    char found[CLI_HASH], *name = strchr(line, ' ');
    if (!name)
        return false;
    *name++ = 0;
    return !cli_hash_file(binary ? binary : name, found) && !strcmp(found, line);
}

bool cli_cache_find(const cli_cache *c)
{
    cli_text record = { 0 };
    bool good = !cli_read_file(c->record, &record) && record.size && record.data[record.size - 1] == '\n';
    char *rest = record.data, *line;
    for (size_t i = 0; good && (line = strsep(&rest, "\n")) && *line; i++)
        good = agrees(line, i ? NULL : c->binary);
    cli_text_free(&record);
    if (good)
        mark_used(c->record);
    return good;
}

/* A lock on the file of this name; -1 with errno set. Whoever swept it away meanwhile left us a file without a name: again. */
static int lock_name(const char *path, int how)
{
    for (;;) {
        struct stat a, b;
        const int fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (fd < 0)
            return -1;
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

/* The file of the same entry with another suffix. */
static char *with_suffix(const char *path, const char *suffix)
{
    return cli_format("%.*s%s", (int)(strrchr(path, '.') - path), path, suffix);
}

int cli_cache_lock(cli_cache *c)
{
    char *path = with_suffix(c->binary, ".lock");
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

static void add_dependency(cli_text *record, const char *path, const struct timespec *started)
{
    char found[CLI_HASH];
    cli_addf(record, "%s %s\n", cli_hash_file(path, found) || written_since(path, started) ? CHANGED : found, path);
}

/* The words after the colon of what -MMD wrote: a backslash before a space, '#' or the end of a line is not part of a name, '$'
 * is doubled. */
static void add_dependencies(cli_text *record, const char *rules, const struct timespec *started)
{
    cli_text word = { 0 };
    bool target = true; /* what comes next is left of the colon */
    for (const char *p = rules;; p++) {
        const bool goes_on = p[0] == '\\' && p[1] == '\n';
        if (goes_on) {
            p++;
        } else if (p[0] == '\\' && (p[1] == ' ' || p[1] == '#')) {
            cli_add(&word, ++p, 1);
            continue;
        } else if (p[0] == '$' && p[1] == '$') {
            p++;
            cli_adds(&word, "$");
            continue;
        } else if (*p && *p != ' ' && *p != '\t' && *p != '\n') {
            cli_add(&word, p, 1);
            continue;
        }
        if (word.size && target)
            target = word.data[word.size - 1] != ':';
        else if (word.size)
            add_dependency(record, word.data, started);
        word.size = 0;
        target = target || (*p == '\n' && !goes_on);
        if (!*p)
            break;
    }
    cli_text_free(&word);
}

/* All at once or not at all. temporary: a name in the same folder. */
static int replace_file(const char *temporary, const char *path, const cli_text *content)
{
    FILE *f = fopen(temporary, "wbe");
    const bool written = f && fwrite(content->data, 1, content->size, f) == content->size;
    if ((f && fclose(f)) || !written || rename(temporary, path))
        return cli_fail("cannot write '%s': %s", path, strerror(errno));
    return CLI_OK;
}

int cli_cache_keep(const cli_cache *c, const char *made, const cli_text *rules, const char *const *more, size_t nmore)
{
    cli_text record = { 0 };
    char found[CLI_HASH], *temporary = cli_format("%s.made", made);
    const int error = cli_hash_file(made, found);
    int status = error ? cli_fail("cannot read '%s': %s", made, strerror(error)) : CLI_OK;
    cli_addf(&record, "%s the binary\n", found);
    add_dependencies(&record, rules->data ? rules->data : "", &c->started);
    for (size_t i = 0; i < nmore; i++)
        add_dependency(&record, more[i], &c->started);
    if (!status && rename(made, c->binary))
        status = cli_fail("cannot write '%s': %s", c->binary, strerror(errno));
    if (!status)
        status = replace_file(temporary, c->record, &record);
    cli_text_free(&record);
    free(temporary);
    return status;
}

/* ---- What nobody uses goes ----------------------------------------------------------------------------------------------- */

/* An entry goes with its lock held, unless somebody builds it just now. */
static void remove_entry(const char *lock)
{
    static const char *const suffixes[] = { ".made", ".so", ".lock" };
    const int fd = lock_name(lock, LOCK_EX | LOCK_NB);
    for (size_t i = 0; fd >= 0 && i < sizeof suffixes / sizeof *suffixes; i++) {
        char *path = with_suffix(lock, suffixes[i]);
        unlink(path);
        free(path);
    }
    if (fd >= 0)
        close(fd);
}

/* Once a day, by whoever builds. The time of the file "swept" says when it was done last. */
void cli_cache_sweep(const cli_cache *c)
{
    char *swept = cli_join(c->folder, "swept");
    struct stat s;
    const time_t now = time(NULL);
    const bool due = stat(swept, &s) || now - s.st_mtime > DAY;
    const int fd = due ? open(swept, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600) : -1;
    DIR *dir = fd >= 0 && !futimens(fd, NULL) ? opendir(c->folder) : NULL;
    for (struct dirent *e; dir && (e = readdir(dir));) {
        const size_t n = strlen(e->d_name);
        if (n < 6 || strcmp(e->d_name + n - 5, ".lock")) /* every entry has one, also of a build that failed */
            continue;
        char *lock = cli_join(c->folder, e->d_name), *record = with_suffix(lock, ".made");
        if ((!stat(record, &s) || !stat(lock, &s)) && now - s.st_mtime > KEEP_SECONDS)
            remove_entry(lock);
        free(lock);
        free(record);
    }
    if (dir)
        closedir(dir);
    if (fd >= 0)
        close(fd);
    free(swept);
}
