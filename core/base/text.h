/* A growing string. Appending does not report failure; dv__text_take() does, for all additions. */
#ifndef DV_BASE_TEXT_H
#define DV_BASE_TEXT_H

#include "dovetail.h"

typedef struct dv__text {
    char *data;
    size_t size, room;
    bool failed;
} dv__text; /* zero-initialise */

DV__PRINTF(2, 3) void dv__text_add(dv__text *t, const char *format, ...);
void dv__text_put(dv__text *t, const char *s, size_t n);
void dv__text_puts(dv__text *t, const char *s);
void dv__text_json(dv__text *t, const char *s,
    size_t n); /* as a JSON string, with its quotes; bytes that are not UTF-8 as \udcXX, as Python's surrogateescape */
/* The next member of a JSON object, or with NULL the next element of a list: a comma unless it is the first, then the key. */
void dv__json_key(dv__text *t, const char *key);
void dv__json_text(dv__text *t, const char *key, const char *s); /* and its value, a string; NULL: null */
void dv__text_deinit(dv__text *t);
/* The caller's string (to be freed with dv__free), never NULL on DV_OK; DV_ENOMEM if any addition failed. Leaves t empty. */
int dv__text_take(dv__text *t, char **out);

/* Is the word in this list, separated by spaces? */
bool dv__has_word(const char *words, const char *name, size_t size);

/* The length of the UTF-8 character at the beginning of text (of n > 0 bytes); 0: not valid UTF-8. */
size_t dv__utf8_size(const char *text, size_t n);

#endif
