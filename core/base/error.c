/* The thread's error message: a thread-local buffer, so that failing never allocates. A message that is too long is
 * truncated. The text is always valid UTF-8, because hosts refuse other text. */
#include "base/error.h"
#include "base/strbuf.h"

#include <stdio.h>

static _Thread_local char error_message[DV__ERROR_SIZE];
static _Thread_local unsigned long error_count;

unsigned long dv__error_count(void) { return error_count; }

const char *dv_last_error(void) { return error_message; }
void dv_clear_error(void) { error_message[0] = 0; }

const char *dv_status_name(int status)
{
    switch (status) {
#define STATUS_CASE(name, number, text) \
    case number: return #name;
        DV_STATUSES(STATUS_CASE)
#undef STATUS_CASE
    default: return "unknown status";
    }
}

#define STRINGIFY_(x) #x
/* clang-format off */
#define STRINGIFY(x) STRINGIFY_(x)
/* clang-format on */
const char *dv_version(void)
{
    return STRINGIFY(DV_VERSION_MAJOR) "." STRINGIFY(DV_VERSION_MINOR) "." STRINGIFY(DV_VERSION_PATCH);
}

/* Replaces bytes that are not UTF-8 by '?', the rest of a truncated character included. */
static void error_replace_invalid_utf8(char *text)
{
    for (size_t n = strlen(text); n;) {
        const size_t size = dv__utf8_valid_char_size(text, n), advance = size ? size : 1;
        if (!size)
            *text = '?';
        text += advance;
        n -= advance;
    }
}

int dv__vfail(int status, const char *format, va_list args)
{
    char formatted[DV__ERROR_SIZE]; /* a second buffer, since the arguments may point into error_message */
    vsnprintf(formatted, sizeof formatted, format, args);
    error_replace_invalid_utf8(formatted);
    memcpy(error_message, formatted, strlen(formatted) + 1);
    error_count++;
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

int dv__fail_null_argument(const char *function, const char *argument_noun)
{
    return dv_fail(DV_EINVAL, "%s: no %s given: found NULL", function, argument_noun);
}

bool dv__error_has_context(const char *text, const char *context)
{
    const size_t n = strlen(context);
    for (const char *at = text, *end; at; at = end && !memchr(at, ' ', (size_t)(end - at)) ? end + 2 : NULL) {
        if (!strncmp(at, context, n) && !strncmp(at + n, ": ", 2))
            return true;
        end = strstr(at, ": ");
    }
    return false;
}

int dv__fail_add_context(int status, const char *format, ...)
{
    char context[DV__ERROR_SIZE];
    va_list args;
    va_start(args, format);
    vsnprintf(context, sizeof context, format, args);
    va_end(args);
    return dv__error_has_context(error_message, context) ? status : dv_fail(status, "%s: %s", context, error_message);
}

int dv__fail_at_column(int status, const char *text, const char *position, const char *format, ...)
{
    char what[DV__ERROR_SIZE / 2];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    const char *line = position, *end = position;
    while (line > text && line[-1] != '\n')
        line--;
    while (*end && *end != '\n')
        end++;
    const long column = (long)(position - line);
    const char *from = column > 100 ? position - 100 : line; /* a window of a long line */
    if (end - from > 200)
        end = from + 200;
    return dv_fail(status, "column %ld: %s\n    %.*s\n    %*s^", (long)(position - text) + 1, what, (int)(end - from), from,
        (int)(position - from), "");
}
