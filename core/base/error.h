/* The thread's error message, and messages that show a column of a text. */
#ifndef DV_BASE_ERROR_H
#define DV_BASE_ERROR_H

#include "dovetail.h"

enum { DV__ERROR_SIZE = 4096 };

unsigned long dv__errors(void); /* how many errors this thread has recorded: did a function that failed leave a message? */
int dv__vfail(int status, const char *format, va_list args);

/* "column 7: expected ..., found ...", then the line of text and a caret under the column. at points into text. */
DV__PRINTF(4, 5) int dv__fail_at(int status, const char *text, const char *at, const char *format, ...);

/* Returns DV_EINVAL from the calling public function if its argument is NULL, with the message "dv_find: no name given: found
 * NULL". */
#define DV__REQUIRE(argument, what)               \
    do {                                          \
        if (!(argument))                          \
            return dv__fail_null(__func__, what); \
    } while (0)
int dv__fail_null(const char *function, const char *what);

/* True if "context: " is among the prefixes of a message already. Without this test each level of a recursion would add the
 * prefix again, until the message is full. */
bool dv__error_is_in(const char *text, const char *context);

/* Prepends "context: " to the current message, unless it is among the prefixes already. Returns status. Example:
 * dv__fail_in(status, "operator my::f: contract"). */
DV__PRINTF(2, 3) int dv__fail_in(int status, const char *format, ...);

#endif
