/* The message is in a thread-local buffer, so failing never allocates. A message that is too long is truncated. The text is
 * always valid UTF-8, because hosts refuse anything else. */
#include "base/error.h"
#include "base/text.h"

#include <stdio.h>

static _Thread_local char message[DV__ERROR_SIZE];
static _Thread_local unsigned long errors;

unsigned long dv__errors(void) { return errors; }

const char *dv_last_error(void) { return message; }
void dv_clear_error(void) { message[0] = 0; }

const char *dv_status_name(int status)
{
    switch (status) {
#define NAME(name, number, text) \
    case number: return #name;
        DV_STATUSES(NAME)
#undef NAME
    default: return "unknown status";
    }
}

#define TEXT_(x) #x
/* clang-format off */
#define TEXT(x) TEXT_(x)
/* clang-format on */
const char *dv_version(void) { return TEXT(DV_VERSION_MAJOR) "." TEXT(DV_VERSION_MINOR) "." TEXT(DV_VERSION_PATCH); }

/* Bytes that are not UTF-8 become '?', and so does the rest of a truncated character. */
static void make_utf8(char *text)
{
    for (size_t n = strlen(text); n;) {
        const size_t size = dv__utf8_size(text, n), step = size ? size : 1;
        if (!size)
            *text = '?';
        text += step;
        n -= step;
    }
}

int dv__vfail(int status, const char *format, va_list args)
{
    char fresh[DV__ERROR_SIZE]; /* the arguments may point into message */
    vsnprintf(fresh, sizeof fresh, format, args);
    make_utf8(fresh);
    memcpy(message, fresh, strlen(fresh) + 1);
    errors++;
    return status;
}

int dv_fail(int status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    dv__vfail(status, format, args);
    va_end(args);
    return status;
}

int dv__fail_null(const char *function, const char *what)
{
    return dv_fail(DV_EINVAL, "%s: no %s given: found NULL", function, what);
}

bool dv__error_is_in(const char *text, const char *context)
{
    const size_t n = strlen(context);
    for (const char *at = text, *end; at; at = end && !memchr(at, ' ', (size_t)(end - at)) ? end + 2 : NULL) {
        if (!strncmp(at, context, n) && !strncmp(at + n, ": ", 2))
            return true;
        end = strstr(at, ": ");
    }
    return false;
}

int dv__fail_in(int status, const char *format, ...)
{
    char context[DV__ERROR_SIZE];
    va_list args;
    va_start(args, format);
    vsnprintf(context, sizeof context, format, args);
    va_end(args);
    return dv__error_is_in(message, context) ? status : dv_fail(status, "%s: %s", context, message);
}

int dv__fail_at(int status, const char *text, const char *at, const char *format, ...)
{
    char what[DV__ERROR_SIZE / 2];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    const char *line = at, *end = at;
    while (line > text && line[-1] != '\n')
        line--;
    while (*end && *end != '\n')
        end++;
    const long column = (long)(at - line);
    const char *from = column > 100 ? at - 100 : line; /* a window of a long line */
    if (end - from > 200)
        end = from + 200;
    return dv_fail(
        status, "column %ld: %s\n    %.*s\n    %*s^", (long)(at - text) + 1, what, (int)(end - from), from, (int)(at - from), "");
}
