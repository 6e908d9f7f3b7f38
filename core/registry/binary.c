/* Loads an operator binary.
 *
 * The file is read once, and all checks use that copy, so a file that changes meanwhile does no harm. Content that passed
 * the checks is written to a private file, named by a hash of the content, and loaded from there. The loader identifies
 * files by name and inode, and would return the old code for a new file under an old name. Content that was loaded before is
 * not loaded again. A binary that passed all checks is never unmapped: kernels may still run, and threads may hold pointers.
 *
 * The private files stay, for debuggers, which read symbols from them; files that were not used for a week are removed.
 * Where no directory can hold code (mounted noexec, read-only), the content is in a memory file. Its descriptor stays open,
 * because the loader knows the memory file by the descriptor's number. */
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

enum { MAX_UNUSED_SECONDS = 7 * 24 * 3600 };

/* A binary that was loaded. The list of them only grows; binary_mutex protects it. */
typedef struct loaded_binary {
    struct loaded_binary *next;
    const dv_library_decl *decl;
    size_t size;
    char id[33];
} loaded_binary;
static loaded_binary *loaded_binaries;
/* Recursive, since an initialiser of a binary runs during its load, and may fork or load another binary. */
static pthread_mutex_t binary_mutex = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static pthread_once_t binary_once = PTHREAD_ONCE_INIT;

static void binary_before_fork(void)
{
    pthread_mutex_lock(&binary_mutex);
} /* locks the mutex, so that no child inherits it locked by another thread */
static void binary_after_fork(void) { pthread_mutex_unlock(&binary_mutex); }
static void binary_after_fork_child(void)
{
    binary_mutex = (pthread_mutex_t)PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
} /* the mutex is initialised anew, since the thread that owns it in the parent does not exist in the child */
static void binary_register_fork_handlers(void)
{
    pthread_atfork(binary_before_fork, binary_after_fork, binary_after_fork_child);
}

typedef struct file_content {
    unsigned char *data;
    size_t size;
    char id[33];
} file_content;

/* ---- Content ------------------------------------------------------------------------------------------------------------- */

/* Sets c->id to the 128-bit FNV-1a hash of the content, in hex. */
static void binary_hash_content(file_content *c)
{
    const unsigned __int128 prime = ((unsigned __int128)1 << 88) + 0x13b;
    unsigned __int128 h = ((unsigned __int128)0x6c62272e07bb0142u << 64) + 0x62b821756295c58du;
    for (size_t i = 0; i < c->size; i++)
        h = (h ^ c->data[i]) * prime;
    snprintf(c->id, sizeof c->id, "%016llx%016llx", (unsigned long long)(h >> 64), (unsigned long long)h);
}

static int binary_fail_io(const char *failed_action, const char *path)
{
    return dv_fail(DV_EIO, "%s: cannot %s: %s", path, failed_action, strerror(errno));
}

/* Reads n bytes at an offset of the file, fewer at its end. Returns their number; -1 with errno set. */
static ssize_t binary_read_at(int fd, unsigned char *data, size_t n, size_t offset)
{
    size_t done = 0;
    while (done < n) {
        const ssize_t more = pread(fd, data + done, n - done, (off_t)(offset + done));
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

typedef struct open_file {
    int fd;
    const char *path;
} open_file;

/* Reads n bytes at an offset, as dv__elf_find_extent() needs it. Bytes beyond the end of a file that has become shorter are
 * zeros, which later checks find. Fails with DV_EIO. */
static int binary_read_part_or_zeros(void *user, uint64_t offset, void *out, size_t n)
{
    const open_file *s = user;
    memset(out, 0, n);
    return binary_read_at(s->fd, out, n, (size_t)offset) < 0 ? binary_fail_io("read", s->path) : DV_OK;
}

/* Reads the part of an open file that its ELF headers name. Fails if the headers are not those of a binary. The caller frees
 * c->data with dv__free() after success and after failure. */
static int binary_read_open_file(int fd, const char *path, file_content *c)
{
    struct stat st;
    size_t n;
    c->data = NULL;
    c->size = 0;
    if (fstat(fd, &st))
        return binary_fail_io("read", path);
    if (!S_ISREG(st.st_mode))
        return dv_fail(DV_EIO, "%s: not a file", path);
    const int status = dv__elf_find_extent(binary_read_part_or_zeros, &(open_file){ fd, path }, (size_t)st.st_size, path, &n);
    if (status)
        return status;
    if (!(c->data = dv__alloc(n)))
        return DV_ENOMEM;
    const ssize_t size = binary_read_at(fd, c->data, n, 0);
    c->size = size < 0 ? 0 : (size_t)size;
    return size < 0 ? binary_fail_io("read", path) : DV_OK;
}

/* Writes all bytes to a file. Returns 0; -1 with errno set on failure. */
static int binary_write_all(int fd, const unsigned char *data, size_t size)
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

/* Opens a directory in `parent` that only this user can enter and nobody else can replace, and makes it if it is missing.
 * path: receives its path. Returns a descriptor; -1: `parent` does not allow such a directory. */
static int binary_open_private_dir(const char *parent, char *path, size_t capacity)
{
    struct stat st;
    if (!parent || *parent != '/' || dv_folder_check(parent, 0) ||
        (size_t)snprintf(path, capacity, "%s/dovetail-%lu", parent, (unsigned long)geteuid()) >= capacity)
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

/* Removes the files of an open directory that were not used for MAX_UNUSED_SECONDS. */
static void binary_remove_unused_files(int dir)
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
            now - st.st_mtime > MAX_UNUSED_SECONDS)
            unlinkat(dir, e->d_name, 0);
    closedir(list);
}

/* True if the directory has a file of this user with exactly this content; then its modification time is set, so that it
 * counts as used. Files of another owner do not count, because the owner could change them afterwards. */
static bool binary_try_find_and_touch_copy(int dir, const char *name, const file_content *c)
{
    struct stat st;
    file_content old;
    const int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return false;
    bool same = !fstat(fd, &st) && st.st_uid == geteuid() && !(st.st_mode & 022);
    same = !binary_read_open_file(fd, name, &old) && same && old.size == c->size && !memcmp(old.data, c->data, c->size);
    dv__free(old.data);
    same = same && !futimens(fd, NULL);
    close(fd);
    return same;
}

/* Writes the content to a temporary file and renames it to `name`. Returns 0; -1 on failure, when no file is left. */
static int binary_store_copy(int dir, const char *name, const file_content *c)
{
    static unsigned counter; /* protected by binary_mutex */
    char temporary_name[64];
    snprintf(temporary_name, sizeof temporary_name, "new-%ld-%u", (long)getpid(), counter++);
    unlinkat(dir, temporary_name, 0);
    const int fd = openat(dir, temporary_name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0700);
    if (fd < 0)
        return -1;
    const int bad = binary_write_all(fd, c->data, c->size);
    if (close(fd) || bad || renameat(dir, temporary_name, dir, name)) {
        unlinkat(dir, temporary_name, 0);
        return -1;
    }
    binary_remove_unused_files(dir);
    return 0;
}

/* Loads the content from a private file in a directory below `base`. Returns dlopen()'s handle; NULL on failure. */
static void *binary_load_from_file(const char *base, const file_content *c)
{
    char path[4096], name[64];
    void *handle = NULL;
    const int dir = binary_open_private_dir(base, path, sizeof path - sizeof name);
    if (dir < 0)
        return NULL;
    snprintf(name, sizeof name, "%s.so", c->id);
    if (binary_try_find_and_touch_copy(dir, name, c) || !binary_store_copy(dir, name, c)) {
        const size_t n = strlen(path);
        snprintf(path + n, sizeof path - n, "/%s", name);
        handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (!handle)
            unlinkat(dir, name, 0);
    }
    close(dir);
    return handle;
}

/* Loads the content from a file in memory. Returns dlopen()'s handle; NULL on failure. */
static void *binary_load_from_memfd(const file_content *c)
{
    char path[64];
    const int fd = memfd_create(c->id, MFD_CLOEXEC);
    if (fd < 0)
        return NULL;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    void *handle = binary_write_all(fd, c->data, c->size) ? NULL : dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!handle)
        close(fd);
    return handle;
}

/* ---- Loading ------------------------------------------------------------------------------------------------------------- */

/* Loads the content from a private file in the first of several directories that allows it, else from a memory file. Returns
 * dlopen()'s handle; NULL: failed, with a message. */
static void *binary_dlopen_content(const file_content *c, const char *where)
{
    char why[1024] = "";
    const char *bases[] = { getenv("TMPDIR"), "/tmp", getenv("XDG_RUNTIME_DIR") };
    dlerror();
    for (size_t i = 0; i <= sizeof bases / sizeof *bases; i++) {
        void *handle = i < sizeof bases / sizeof *bases ? binary_load_from_file(bases[i], c) : binary_load_from_memfd(c);
        if (handle)
            return handle;
        const char *e = dlerror(); /* the message is "path: undefined symbol: f"; the path is left out */
        if (e && !*why) {
            const char *colon = strstr(e, ": ");
            snprintf(why, sizeof why, "%s", colon && strchr(e, '/') && strchr(e, '/') < colon ? colon + 2 : e);
        }
    }
    dv_fail(DV_EBINARY, "%s: not a usable operator binary: %s", where, *why ? why : "no private directory to load it from");
    return NULL;
}

/* For dv__elf_for_each_needed(): loads a needed library that the binary searches beside itself ($ORIGIN), as in a wheel that
 * auditwheel repaired. The loader would not find the library beside the private copy of the binary, but it uses one that is
 * loaded already. */
static void binary_preload_library_beside(void *user, const char *library_name, const char *search_path)
{
    static const char *const origins[] = { "$ORIGIN", "${ORIGIN}" };
    const char *binary = user, *slash = strrchr(binary, '/');
    char path[PATH_MAX];
    for (const char *at = search_path; *at; at += strcspn(at, ":"), at += *at == ':')
        for (size_t i = 0; i < 2; i++) {
            const size_t n = strlen(origins[i]), length = strcspn(at, ":");
            if (length < n || strncmp(at, origins[i], n) || (length > n && at[n] != '/'))
                continue;
            const int made = snprintf(
                path, sizeof path, "%.*s%.*s/%s", (int)(slash - binary), binary, (int)(length - n), at + n, library_name);
            if (made > 0 && (size_t)made < sizeof path && !access(path, R_OK) && dlopen(path, RTLD_NOW | RTLD_LOCAL))
                return;
        }
}

/* Checks and loads a binary whose content is not loaded yet. Requires binary_mutex. where: begins messages; absolute_path:
 * the file's path. *out: the descriptor. Returns a status. */
static int binary_check_and_load(const file_content *c, const char *where, char *absolute_path, const dv_library_decl **out)
{
    dv__segment segments[64];
    struct link_map *map;
    int status = dv__elf_check(c->data, c->size, where);
    if (!status)
        status = dv__digest_check(c->data, where);
    if (status)
        return status;
    loaded_binary *entry = dv__calloc(1, sizeof *entry);
    if (!entry)
        return DV_ENOMEM;
    dv__elf_for_each_needed(c->data, c->size, binary_preload_library_beside, absolute_path);
    void *handle = binary_dlopen_content(c, where);
    if (!handle) {
        dv__free(entry);
        return DV_EBINARY;
    }
    entry->decl = dlsym(handle, "dovetail_library_1");
    if (!entry->decl || dlinfo(handle, RTLD_DI_LINKMAP, &map))
        status = dv_fail(DV_EBINARY, "%s: not a usable operator binary: the loader finds no dovetail_library_1", where);
    else
        status = dv__loaded_library_check_abi(entry->decl, where, segments,
            dv__elf_list_loaded_segments(c->data, (const char *)map->l_addr, segments, sizeof segments / sizeof *segments));
    if (status) {
        dlclose(handle);
        dv__free(entry);
        return status;
    }
    memcpy(entry->id, c->id, sizeof entry->id);
    entry->size = c->size;
    entry->next = loaded_binaries;
    loaded_binaries = entry;
    *out = entry->decl;
    return DV_OK;
}

/* Reads and hashes the binary at `path`. The caller frees c->data with dv__free() after success and after failure. Returns a
 * status. */
static int binary_read_and_hash_file(const char *path, file_content *c)
{
    c->data = NULL;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return binary_fail_io("open", path);
    const int status = binary_read_open_file(fd, path, c);
    close(fd);
    if (!status)
        binary_hash_content(c);
    return status;
}

int dv_file_content_hash(const char *path, char out[33])
{
    file_content c;
    DV__REQUIRE(path, "path");
    DV__REQUIRE(out, "pointer for the hash");
    const int status = binary_read_and_hash_file(path, &c);
    if (!status)
        memcpy(out, c.id, sizeof c.id);
    dv__free(c.data);
    return status;
}

int dv_file_digest(const char *path, uint64_t *at, unsigned char digest_bytes[DV__DIGEST_SIZE])
{
    file_content c;
    int status = binary_read_and_hash_file(path, &c);
    if (!status)
        status = dv__elf_check(c.data, c.size, path);
    if (!status)
        status = dv__digest_make(c.data, path, at, digest_bytes);
    dv__free(c.data);
    return status;
}

int dv__binary_open(const char *path, dv__binary *out)
{
    file_content c;
    memset(out, 0, sizeof *out);
    char absolute[PATH_MAX];
    if (!realpath(path, absolute))
        return binary_fail_io("open", path);
    int status = binary_read_and_hash_file(path, &c);
    if (!status && !(out->path = dv__strdup(absolute)))
        status = DV_ENOMEM;
    if (status)
        goto fail;
    pthread_once(&binary_once, binary_register_fork_handlers);
    pthread_mutex_lock(&binary_mutex);
    for (const loaded_binary *l = loaded_binaries; l && !out->decl; l = l->next)
        if (l->size == c.size && !strcmp(l->id, c.id))
            out->decl = l->decl;
    status = out->decl ? DV_OK : binary_check_and_load(&c, path, absolute, &out->decl);
    pthread_mutex_unlock(&binary_mutex);
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
