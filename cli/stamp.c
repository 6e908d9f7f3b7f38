/* Digest of an operator binary's loaded bytes, written into the binary: dv_load() refuses a file that does not match it. */
#include "cli.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

int cli_write_digest(const char *path, int writable_fd)
{
    uint64_t at;
    unsigned char stamp[16];
    if (dv_file_digest(path, &at, stamp))
        return ENOEXEC;
    return pwrite(writable_fd, stamp, sizeof stamp, (off_t)at) == (ssize_t)sizeof stamp ? 0 : errno ? errno : EIO;
}

/* Copies an open file to memory, with its mode. Returns a descriptor of the copy, or -1 with errno set. */
static int digest_copy_to_memory_file(int from)
{
    struct stat s;
    int error = fstat(from, &s) ? errno : S_ISDIR(s.st_mode) ? EISDIR : S_ISREG(s.st_mode) ? 0 : EINVAL;
    const int fd = error ? -1 : memfd_create("dovetail", MFD_CLOEXEC);
    if (!error && (fd < 0 || fchmod(fd, s.st_mode & 0777)))
        error = errno;
    error = error ? error : cli_copy_file(from, fd);
    if (error && fd >= 0)
        close(fd);
    errno = error;
    return error ? -1 : fd;
}

/* Renews the digest in a copy of the file `name` of an open folder, and replaces the file by the copy. path: for messages. */
static int digest_renew_in_folder(int folder, const char *name, const char *path)
{
    const int from = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    const int copy = from < 0 ? -1 : digest_copy_to_memory_file(from);
    if (copy < 0)
        cli_fail("'%s': %s", path, strerror(errno));
    if (from >= 0)
        close(from);
    if (copy < 0)
        return CLI_FAILED;
    char *in_memory = cli_format("/proc/self/fd/%d", copy);
    const size_t n = strlen(in_memory);
    const int stamped = cli_write_digest(in_memory, copy), error = stamped ? stamped : cli_replace_file(copy, folder, name);
    if (stamped == ENOEXEC) { /* the library's message, with the file's name in place of the copy's */
        const char *message = dv_last_error();
        cli_fail("%s%s", path, strncmp(message, in_memory, n) ? message : message + n);
    } else if (error) {
        cli_fail("cannot write '%s': %s", path, strerror(error));
    }
    free(in_memory);
    close(copy);
    return error ? CLI_FAILED : CLI_OK;
}

int cli_renew_digest(const char *path)
{
    char *real = realpath(path, NULL); /* a link is followed: the file that it names is renewed */
    if (!real)
        return cli_fail("'%s': %s", path, strerror(errno));
    char *slash = strrchr(real, '/');
    *slash = 0;
    const int folder = cli_open_folder(slash == real ? "/" : real);
    const int status = folder < 0 ? cli_fail("'%s': %s", path, strerror(errno)) : digest_renew_in_folder(folder, slash + 1, path);
    if (folder >= 0)
        close(folder);
    free(real);
    return status;
}
