/* Writes the digest of an operator binary's loaded bytes into the binary: dv_load() refuses a file that does not match it. */
#include "cli.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

int cli_stamp(const char *path, int fd)
{
    uint64_t at;
    unsigned char stamp[16];
    if (dv_file_stamp(path, &at, stamp))
        return ENOEXEC;
    return pwrite(fd, stamp, sizeof stamp, (off_t)at) == (ssize_t)sizeof stamp ? 0 : errno ? errno : EIO;
}

/* A copy of a file in memory, with its mode; -1 with errno set. */
static int copy_to_memory(const char *path)
{
    struct stat s;
    cli_text content = { 0 };
    int fd = -1, error = stat(path, &s) ? errno : cli_read_file(path, &content);
    if (!error && ((fd = memfd_create("dovetail", MFD_CLOEXEC)) < 0 || fchmod(fd, s.st_mode & 0777)))
        error = errno;
    for (size_t done = 0; !error && done < content.size;) {
        const ssize_t n = write(fd, content.data + done, content.size - done);
        if (n < 0 && errno != EINTR)
            error = errno;
        done += n > 0 ? (size_t)n : 0;
    }
    cli_text_free(&content);
    if (error && fd >= 0)
        close(fd);
    errno = error;
    return error ? -1 : fd;
}

int cli_restamp(const char *path)
{
    char *real = realpath(path, NULL); /* a link stays one: what it names is renewed */
    int status = CLI_FAILED, error = errno, copy = -1, folder = -1;
    if (!real || (copy = copy_to_memory(real)) < 0) {
        cli_fail("'%s': %s", path, strerror(real ? errno : error));
        goto done;
    }
    char *in_memory = cli_format("/proc/self/fd/%d", copy), *slash = strrchr(real, '/');
    error = cli_stamp(in_memory, copy);
    if (error == ENOEXEC) { /* the library's message, with the file's name in place of the copy's */
        const char *message = dv_last_error();
        const size_t n = strlen(in_memory);
        cli_fail("%s%s", path, strncmp(message, in_memory, n) ? message : message + n);
    }
    free(in_memory);
    if (error == ENOEXEC)
        goto done;
    if (!error) {
        *slash = 0;
        folder = cli_open_folder(slash == real ? "/" : real);
        error = folder < 0 ? errno : cli_replace(copy, folder, slash + 1);
    }
    status = error ? cli_fail("cannot write '%s': %s", path, strerror(error)) : CLI_OK;
done:
    if (folder >= 0)
        close(folder);
    if (copy >= 0)
        close(copy);
    free(real);
    return status;
}
