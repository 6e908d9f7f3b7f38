/* The thread's error message, and messages that show a column of a text. */
#ifndef DV_BASE_ERROR_H
#define DV_BASE_ERROR_H

#include "dovetail.h"

enum { DV__ERROR_SIZE = 4096 };

/* Returns how many messages this thread has set. An unchanged number shows that a failed function has set no message. */
unsigned long dv__error_count(void);
/* Sets the thread's message from a format and its arguments, as dv_fail() does. Returns status. */
int dv__vfail(int status, const char *format, va_list args);

/* Sets the message "column 7: expected ..., found ...", then the line of text and a caret under the column. position: points into
 * text. Returns status. */
DV__PRINTF(4, 5) int dv__fail_at_column(int status, const char *text, const char *position, const char *format, ...);

/* Returns DV_EINVAL from the calling public function if its argument is NULL, with the message "dv_find: no name given: found
 * NULL". */
#define DV__REQUIRE(argument, what)                        \
    do {                                                   \
        if (!(argument))                                   \
            return dv__fail_null_argument(__func__, what); \
    } while (0)
/* Sets the message "<function>: no <argument_noun> given: found NULL" and returns DV_EINVAL. */
int dv__fail_null_argument(const char *function, const char *argument_noun);

/* True if "context: " is among the prefixes of a message already. Without this test each level of a recursion would add the
 * prefix again, until the message is full. */
bool dv__error_has_context(const char *text, const char *context);

/* Prepends "context: " to the current message, unless the message has this prefix already. Returns status. Example:
 * dv__fail_add_context(status, "operator my::f: contract"). */
DV__PRINTF(2, 3) int dv__fail_add_context(int status, const char *format, ...);

#endif
