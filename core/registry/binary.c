/* Loading an operator binary.
 *
 * What its headers name is read once; everything else works on that copy, so a file that changes meanwhile does no harm. Content
 * that passed the checks is written to a private file named by a hash of it and loaded from there: the loader knows files by name
 * and inode and would give the old code for a new file under an old name. Content that was loaded before is not loaded again.
 * Nothing good is ever unmapped: kernels may still run, and threads may hold pointers.
 *
 * The private files stay, for debuggers, which read symbols from them; those that nobody used for a week are removed. Where no
 * directory can hold code (mounted noexec, read-only), the content lives in a memory file, whose descriptor stays open because
 * its number is its name to the loader. */
#include "registry/binary.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/memory.h"
#include "registry/digest.h"
#include "registry/elf_check.h"

enum { KEEP_SECONDS = 7 * 24 * 3600 };

/* The binaries loaded so far. The list only grows; guarded by lock. */
typedef struct loaded {
    struct loaded *next;
    const dv_library_decl *decl;
    size_t size;
    char id[33];
} loaded;
static loaded *all;
/* Recursive: a binary's own initialiser, which runs while it is loaded, may fork or load another. */
static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void before_fork(void) { pthread_mutex_lock(&lock); } /* so that a child does not inherit it held */
static void after_fork(void) { pthread_mutex_unlock(&lock); }
static void in_child(void) { lock = (pthread_mutex_t)PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP; } /* its owner is not this thread */
static void at_start(void) { pthread_atfork(before_fork, after_fork, in_child); }

typedef struct content {
    unsigned char *data;
    size_t size;
    char id[33];
} content;

/* ---- Content ------------------------------------------------------------------------------------------------------------- */

/* FNV-1a, 128 bits. */
static void hash(content *c)
{
    const unsigned __int128 prime = ((unsigned __int128)1 << 88) + 0x13b;
    unsigned __int128 h = ((unsigned __int128)0x6c62272e07bb0142u << 64) + 0x62b821756295c58du;
    for (size_t i = 0; i < c->size; i++)
        h = (h ^ c->data[i]) * prime;
    snprintf(c->id, sizeof c->id, "%016llx%016llx", (unsigned long long)(h >> 64), (unsigned long long)h);
}

static int io_error(const char *what, const char *path)
{
    return dv_fail(DV_EIO, "%s: cannot %s: %s", path, what, strerror(errno));
}

/* Read n bytes at this offset of the file, fewer at its end. -1 with errno set. */
static ssize_t read_at(int fd, unsigned char *data, size_t n, size_t at)
{
    size_t done = 0;
    while (done < n) {
        const ssize_t more = pread(fd, data + done, n - done, (off_t)(at + done));
        if (more < 0 && errno == EINTR)
            continue;
        if (more < 0)
            return -1;
        if (more == 0)
            break;
        done += (size_t)more;
    }
    return (ssize_t)done;
}

typedef struct source {
    int fd;
    const char *path;
} source;

/* For dv__elf_extent(). A file that is shorter by now gives zeros: the checks will tell. */
static int read_part(void *user, uint64_t at, void *to, size_t n)
{
    const source *s = user;
    memset(to, 0, n);
    return read_at(s->fd, to, n, (size_t)at) < 0 ? io_error("read", s->path) : DV_OK;
}

/* Reads the binary in an open file, if its headers are those of one. Call dv__free(c->data) in every case. */
static int read_all(int fd, const char *path, content *c)
{
    struct stat st;
    size_t n;
    c->data = NULL;
    c->size = 0;
    if (fstat(fd, &st))
        return io_error("read", path);
    if (!S_ISREG(st.st_mode))
        return dv_fail(DV_EIO, "%s: not a file", path);
    const int status = dv__elf_extent(read_part, &(source){ fd, path }, (size_t)st.st_size, path, &n);
    if (status)
        return status;
    if (!(c->data = dv__alloc(n)))
        return DV_ENOMEM;
    const ssize_t size = read_at(fd, c->data, n, 0);
    c->size = size < 0 ? 0 : (size_t)size;
    return size < 0 ? io_error("read", path) : DV_OK;
}

static int write_all(int fd, const unsigned char *data, size_t size)
{
    while (size) {
        const ssize_t n = write(fd, data, size);
        if (n < 0 && errno != EINTR)
            return -1;
        data += n > 0 ? n : 0;
        size -= n > 0 ? (size_t)n : 0;
    }
    return 0;
}

/* ---- The private directory ----------------------------------------------------------------------------------------------- */

/* Open a directory that only this user can enter and nobody else can replace, and make it if it is missing; -1: not possible
 * here. */
static int open_private(const char *base, char *path, size_t room)
{
    struct stat st;
    if (!base || *base != '/' || dv_folder_check(base, 0) ||
        (size_t)snprintf(path, room, "%s/dovetail-%lu", base, (unsigned long)geteuid()) >= room)
        return -1;
    if (mkdir(path, 0700) && errno != EEXIST)
        return -1;
    const int dir = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (dir >= 0 && !fstat(dir, &st) && st.st_uid == geteuid() && !(st.st_mode & 077))
        return dir;
    if (dir >= 0)
        close(dir);
    return -1;
}

static void remove_old(int dir)
{
    const int fd = dup(dir);
    DIR *list = fd < 0 ? NULL : fdopendir(fd);
    const time_t now = time(NULL);
    struct stat st;
    if (!list) {
        if (fd >= 0)
            close(fd);
        return;
    }
    rewinddir(list);
    for (struct dirent *e; (e = readdir(list));)
        if (e->d_name[0] != '.' && !fstatat(dir, e->d_name, &st, AT_SYMLINK_NOFOLLOW) && S_ISREG(st.st_mode) &&
            now - st.st_mtime > KEEP_SECONDS)
            unlinkat(dir, e->d_name, 0);
    closedir(list);
}

/* True if a file of this user with exactly this content exists; marks it as used. Files of another owner do not count, because
 * they could be changed afterwards. */
static bool already(int dir, const char *name, const content *c)
{
    struct stat st;
    content old;
    const int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return false;
    bool same = !fstat(fd, &st) && st.st_uid == geteuid() && !(st.st_mode & 022);
    same = !read_all(fd, name, &old) && same && old.size == c->size && !memcmp(old.data, c->data, c->size);
    dv__free(old.data);
    same = same && !futimens(fd, NULL);
    close(fd);
    return same;
}

static int put_file(int dir, const char *name, const content *c)
{
    static unsigned counter; /* under lock */
    char draft[64];
    snprintf(draft, sizeof draft, "new-%ld-%u", (long)getpid(), counter++);
    unlinkat(dir, draft, 0);
    const int fd = openat(dir, draft, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0700);
    if (fd < 0)
        return -1;
    const int bad = write_all(fd, c->data, c->size);
    if (close(fd) || bad || renameat(dir, draft, dir, name)) {
        unlinkat(dir, draft, 0);
        return -1;
    }
    remove_old(dir);
    return 0;
}

/* Load the content from a private file; NULL: not possible here. */
static void *load_file(const char *base, const content *c)
{
    char path[4096], name[64];
    void *handle = NULL;
    const int dir = open_private(base, path, sizeof path - sizeof name);
    if (dir < 0)
        return NULL;
    snprintf(name, sizeof name, "%s.so", c->id);
    if (already(dir, name, c) || !put_file(dir, name, c)) {
        const size_t n = strlen(path);
        snprintf(path + n, sizeof path - n, "/%s", name);
        handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (!handle)
            unlinkat(dir, name, 0);
    }
    close(dir);
    return handle;
}

static void *load_memory(const content *c)
{
    char path[64];
    const int fd = memfd_create(c->id, MFD_CLOEXEC);
    if (fd < 0)
        return NULL;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    void *handle = write_all(fd, c->data, c->size) ? NULL : dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!handle)
        close(fd);
    return handle;
}

/* ---- Loading ------------------------------------------------------------------------------------------------------------- */

static void *load(const content *c, const char *where)
{
    char why[1024] = "";
    const char *bases[] = { getenv("TMPDIR"), "/tmp", getenv("XDG_RUNTIME_DIR") };
    dlerror();
    for (size_t i = 0; i <= sizeof bases / sizeof *bases; i++) {
        void *handle = i < sizeof bases / sizeof *bases ? load_file(bases[i], c) : load_memory(c);
        if (handle)
            return handle;
        const char *e = dlerror(); /* "path: undefined symbol: f": leave the path out */
        if (e && !*why) {
            const char *colon = strstr(e, ": ");
            snprintf(why, sizeof why, "%s", colon && strchr(e, '/') && strchr(e, '/') < colon ? colon + 2 : e);
        }
    }
    dv_fail(DV_EBINARY, "%s: not a usable operator binary: %s", where, *why ? why : "no private directory to load it from");
    return NULL;
}

/* Loads a needed library that the binary searches beside itself ($ORIGIN), as in a wheel that auditwheel repaired. The loader
 * would not find it beside the private copy of the binary. It takes a library that is loaded already. */
static void load_beside(void *user, const char *name, const char *search)
{
    static const char *const origins[] = { "$ORIGIN", "${ORIGIN}" };
    const char *binary = user, *slash = strrchr(binary, '/');
    char path[PATH_MAX];
    for (const char *at = search; *at; at += strcspn(at, ":"), at += *at == ':')
        for (size_t i = 0; i < 2; i++) {
            const size_t n = strlen(origins[i]), length = strcspn(at, ":");
            if (length < n || strncmp(at, origins[i], n) || (length > n && at[n] != '/'))
                continue;
            const int made = snprintf(
                path, sizeof path, "%.*s%.*s/%s", (int)(slash - binary), binary, (int)(length - n), at + n, name);
            if (made > 0 && (size_t)made < sizeof path && !access(path, R_OK) && dlopen(path, RTLD_NOW | RTLD_LOCAL))
                return;
        }
}

/* Checks and loads a binary that is not loaded yet. The caller holds the lock. where: for messages; absolute: the file's path. */
static int load_new(const content *c, const char *where, char *absolute, const dv_library_decl **out)
{
    dv__span spans[64];
    struct link_map *map;
    int status = dv__elf_check(c->data, c->size, where);
    if (!status)
        status = dv__digest_check(c->data, where);
    if (status)
        return status;
    loaded *entry = dv__calloc(1, sizeof *entry);
    if (!entry)
        return DV_ENOMEM;
    dv__elf_needed(c->data, c->size, load_beside, absolute);
    void *handle = load(c, where);
    if (!handle) {
        dv__free(entry);
        return DV_EBINARY;
    }
    entry->decl = dlsym(handle, "dovetail_library_1");
    if (!entry->decl || dlinfo(handle, RTLD_DI_LINKMAP, &map))
        status = dv_fail(DV_EBINARY, "%s: not a usable operator binary: the loader finds no dovetail_library_1", where);
    else
        status = dv__decl_check(
            entry->decl, where, spans, dv__elf_spans(c->data, (const char *)map->l_addr, spans, sizeof spans / sizeof *spans));
    if (status) {
        dlclose(handle);
        dv__free(entry);
        return status;
    }
    memcpy(entry->id, c->id, sizeof entry->id);
    entry->size = c->size;
    entry->next = all;
    all = entry;
    *out = entry->decl;
    return DV_OK;
}

/* dv__free(c->data) in every case. */
static int read_content(const char *path, content *c)
{
    c->data = NULL;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return io_error("open", path);
    const int status = read_all(fd, path, c);
    close(fd);
    if (!status)
        hash(c);
    return status;
}

int dv_file_content(const char *path, char out[33])
{
    content c;
    DV__REQUIRE(path, "path");
    DV__REQUIRE(out, "room for the hash");
    const int status = read_content(path, &c);
    if (!status)
        memcpy(out, c.id, sizeof c.id);
    dv__free(c.data);
    return status;
}

int dv_file_stamp(const char *path, uint64_t *at, unsigned char stamp[DV__STAMP])
{
    content c;
    int status = read_content(path, &c);
    if (!status)
        status = dv__elf_check(c.data, c.size, path);
    if (!status)
        status = dv__digest_make(c.data, path, at, stamp);
    dv__free(c.data);
    return status;
}

int dv__binary_open(const char *path, dv__binary *out)
{
    content c;
    memset(out, 0, sizeof *out);
    char absolute[PATH_MAX];
    if (!realpath(path, absolute))
        return io_error("open", path);
    int status = read_content(path, &c);
    if (!status && !(out->path = dv__strdup(absolute)))
        status = DV_ENOMEM;
    if (status)
        goto fail;
    pthread_once(&once, at_start);
    pthread_mutex_lock(&lock);
    for (const loaded *l = all; l && !out->decl; l = l->next)
        if (l->size == c.size && !strcmp(l->id, c.id))
            out->decl = l->decl;
    status = out->decl ? DV_OK : load_new(&c, path, absolute, &out->decl);
    pthread_mutex_unlock(&lock);
    if (status)
        goto fail;
    memcpy(out->id, c.id, sizeof out->id);
    dv__free(c.data);
    return DV_OK;
fail:
    dv__free(c.data);
    dv__binary_deinit(out);
    return status;
}

void dv__binary_deinit(dv__binary *b)
{
    dv__free(b->path);
    memset(b, 0, sizeof *b);
}
