/* Text, colour and messages. */
#include "cli.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

bool cli_json_output;
static FILE *document; /* stream of the JSON document; NULL: stdout */
static int color_when; /* 0 auto, 1 always, -1 never */

void cli_begin_json_output(void)
{
    enum { MIN_DESCRIPTOR = 900 }; /* above those that a constructor may close because it takes them for its own */
    cli_json_output = true;
    if (document)
        return;
    int fd = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, MIN_DESCRIPTOR);
    if (fd < 0)
        fd = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    document = fd < 0 ? NULL : fdopen(fd, "w");
    if (!document) {
        if (fd >= 0)
            close(fd);
    } else if (dup2(STDERR_FILENO, STDOUT_FILENO) < 0) { /* stderr is closed */
        const int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
        dup2(null, STDOUT_FILENO);
        close(null);
    }
}

int cli_get_document_descriptor(void) { return document ? fileno(document) : STDOUT_FILENO; }

void cli_print_document(const char *json) { fprintf(document ? document : stdout, "%s\n", json); }

bool cli_try_flush_output(void)
{
    FILE *to = document ? document : stdout;
    fflush(stdout); /* beside a document, this is only what libraries print */
    return !fflush(to) && !ferror(to);
}

void *cli_realloc_array(void *old, size_t n, size_t element_size)
{
    void *p = n > SIZE_MAX / element_size ? NULL : realloc(old, n > 0 ? n * element_size : 1);
    if (!p) {
        fputs("dovetail: error: out of memory\n", stderr);
        _exit(CLI_FAILED);
    }
    return p;
}

void cli_text_append(cli_text *t, const char *data, size_t size)
{
    if (t->capacity - t->size <= size) {
        t->capacity = (t->size + size + 64) * 2;
        t->data = cli_realloc_array(t->data, t->capacity, 1);
    }
    memcpy(t->data + t->size, data, size);
    t->size += size;
    t->data[t->size] = 0;
}

void cli_text_append_str(cli_text *t, const char *s) { cli_text_append(t, s, strlen(s)); }

/* Appends a formatted text, as vprintf() formats it. */
static void text_append_va(cli_text *t, const char *format, va_list args)
{
    va_list args_copy;
    va_copy(args_copy, args);
    const int n = vsnprintf(NULL, 0, format, args_copy);
    va_end(args_copy);
    char *s = cli_realloc_array(NULL, (size_t)n + 1, 1);
    vsnprintf(s, (size_t)n + 1, format, args);
    cli_text_append(t, s, (size_t)n);
    free(s);
}

void cli_text_appendf(cli_text *t, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    text_append_va(t, format, args);
    va_end(args);
}

char *cli_format(const char *format, ...)
{
    cli_text t = { 0 };
    va_list args;
    va_start(args, format);
    text_append_va(&t, format, args);
    va_end(args);
    return t.data;
}

void cli_text_free(cli_text *t)
{
    free(t->data);
    memset(t, 0, sizeof *t);
}

/* Returns the number of bytes of the UTF-8 sequence at s; 0: no valid sequence begins there. */
static size_t utf8_get_sequence_size(const unsigned char *s)
{
    if (s[0] < 0x80)
        return 1;
    const size_t n = s[0] >= 0xc2 && s[0] < 0xe0 ? 2 : (s[0] & 0xf0) == 0xe0 ? 3 : s[0] >= 0xf0 && s[0] < 0xf5 ? 4 : 0;
    for (size_t i = 1; i < n; i++)
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) || (s[0] == 0xf0 && s[1] < 0x90) ||
        (s[0] == 0xf4 && s[1] > 0x8f))
        return 0; /* refuse overlong forms, surrogates and code points past U+10FFFF */
    return n;
}

void cli_text_append_json(cli_text *t, const char *text)
{
    const unsigned char *s = (const unsigned char *)text;
    cli_text_append_str(t, "\"");
    while (*s) {
        const size_t n = utf8_get_sequence_size(s);
        if (*s == '"' || *s == '\\')
            cli_text_appendf(t, "\\%c", *s);
        else if (*s == '\n')
            cli_text_append_str(t, "\\n");
        else if (*s < 0x20 || *s == 0x7f)
            cli_text_appendf(t, "\\u%04x", *s);
        else if (!n)
            cli_text_append_str(t, "\\ufffd");
        else
            cli_text_append(t, (const char *)s, n);
        s += n ? n : 1;
    }
    cli_text_append_str(t, "\"");
}

void cli_text_append_shell_word(cli_text *t, const char *s)
{
    if (*s && !s[strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./,:@%")]) {
        cli_text_append_str(t, s);
        return;
    }
    cli_text_append_str(t, "'");
    for (; *s; s++)
        cli_text_append(t, *s == '\'' ? "'\\''" : s, *s == '\'' ? 4 : 1);
    cli_text_append_str(t, "'");
}

/* Appends the content of an open regular file to `out`, and closes the file. Returns 0 or errno. A negative fd: returns the errno
 * of the open() that failed. */
static int output_read_and_close(int fd, cli_text *out)
{
    struct stat s;
    int failed = fd < 0 || fstat(fd, &s) ? errno : S_ISDIR(s.st_mode) ? EISDIR : S_ISREG(s.st_mode) ? 0 : EINVAL;
    char buffer[16384];
    cli_text_append(out, "", 0);
    for (ssize_t n = 1; n && !failed;) {
        if ((n = read(fd, buffer, sizeof buffer)) > 0)
            cli_text_append(out, buffer, (size_t)n);
        failed = n < 0 && errno != EINTR ? errno : 0;
    }
    if (fd >= 0)
        close(fd);
    return failed;
}

int cli_read_file(const char *path, cli_text *out)
{
    return output_read_and_close(
        open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC), out); /* O_NONBLOCK: the open() of a pipe without a writer must not wait */
}

int cli_read_trusted_file(const char *path, cli_text *out)
{
    struct stat s;
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0 && (fstat(fd, &s) || s.st_uid != geteuid() || s.st_mode & (S_IWGRP | S_IWOTH))) {
        close(fd);
        fd = -1;
        errno = EPERM;
    }
    return output_read_and_close(fd, out);
}

int cli_set_color(const char *mode)
{
    if (strcmp(mode, "auto") && strcmp(mode, "always") && strcmp(mode, "never"))
        return CLI_USAGE;
    color_when = *mode == 'n' ? -1 : mode[1] == 'l';
    return CLI_OK;
}

bool cli_has_color(FILE *to)
{
    if (color_when)
        return color_when > 0;
    const char *no = getenv("NO_COLOR"), *term = getenv("TERM");
    return !(no && *no) && isatty(fileno(to)) && !(term && !strcmp(term, "dumb"));
}

const char *cli_get_escape_code(FILE *to, enum cli_style style)
{
    static const char *const escapes[] = { "\033[0m", "\033[1m", "\033[2m", "\033[1;31m", "\033[32m", "\033[33m", "\033[34m" };
    return cli_has_color(to) ? escapes[style] : "";
}

/* Prints "dovetail: error: " and a formatted message to stderr; with --json, also a JSON document with the message to stdout. */
static void output_print_error(const char *format, va_list args)
{
    cli_text t = { 0 };
    text_append_va(&t, format, args);
    fflush(stdout);
    fprintf(stderr, "%sdovetail:%s %serror:%s %s\n", cli_get_escape_code(stderr, CLI_BOLD),
        cli_get_escape_code(stderr, CLI_STYLE_NONE), cli_get_escape_code(stderr, CLI_RED),
        cli_get_escape_code(stderr, CLI_STYLE_NONE), t.data);
    if (cli_json_output) {
        cli_text json = { 0 };
        cli_text_append_str(&json, "{\"ok\": false, \"error\": ");
        cli_text_append_json(&json, t.data);
        cli_text_append_str(&json, "}");
        cli_print_document(json.data);
        cli_text_free(&json);
    }
    cli_text_free(&t);
}

int cli_fail(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    output_print_error(format, args);
    va_end(args);
    return CLI_FAILED;
}

const char *cli_skip_error_prefix(const char *message)
{
    static const char prefix[] = "dovetail: error: ";
    return message + (strncmp(message, prefix, sizeof prefix - 1) ? 0 : sizeof prefix - 1);
}

int cli_fail_usage(const cli_verb *verb, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    output_print_error(format, args);
    va_end(args);
    if (verb)
        fprintf(stderr, "usage: dovetail %s %s\n", verb->name, verb->usage);
    fprintf(stderr, "Try 'dovetail%s%s --help'.\n", verb ? " " : "", verb ? verb->name : "");
    return CLI_USAGE;
}

void cli_print_note(const char *format, ...)
{
    cli_text t = { 0 };
    va_list args;
    va_start(args, format);
    text_append_va(&t, format, args);
    va_end(args);
    fflush(stdout);
    fprintf(
        stderr, "%sdovetail:%s %s\n", cli_get_escape_code(stderr, CLI_BOLD), cli_get_escape_code(stderr, CLI_STYLE_NONE), t.data);
    cli_text_free(&t);
}

void cli_format_bytes(char out[16], double n)
{
    static const char *const units[] = { "B", "KB", "MB", "GB", "TB" };
    size_t u = 0;
    for (; n >= 1024 && u < 4; u++)
        n /= 1024;
    snprintf(out, 16, u ? "%.1f %s" : "%.0f %s", n, units[u]);
}

double cli_get_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}
