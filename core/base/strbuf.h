/* A growing string. Appending does not report failure; dv__strbuf_detach() does, for all additions. */
#ifndef DV_BASE_STRBUF_H
#define DV_BASE_STRBUF_H

#include "dovetail.h"

typedef struct dv__strbuf {
    char *data;
    size_t size, capacity;
    bool failed;
} dv__strbuf; /* zero-initialise */

DV__PRINTF(2, 3) void dv__strbuf_printf(dv__strbuf *t, const char *format, ...);
void dv__strbuf_append(dv__strbuf *t, const char *s, size_t n);
void dv__strbuf_append_str(dv__strbuf *t, const char *s);
/* Appends a JSON string with its quotes. Bytes that are not UTF-8 become \udcXX, as by Python's surrogateescape. */
void dv__json_write_string(dv__strbuf *t, const char *s, size_t n);
/* Begins the next member of a JSON object, or with key NULL the next element of a list. Appends a comma unless it is the
 * first, then the key. */
void dv__json_write_key(dv__strbuf *t, const char *key);
void dv__json_write_member(dv__strbuf *t, const char *key, const char *s); /* appends the key and the string s; s NULL: null */
void dv__strbuf_deinit(dv__strbuf *t);
/* Gives the text to the caller, who frees it with dv__free(). *out: never NULL after DV_OK. Fails with DV_ENOMEM if any append
 * failed. Leaves t empty. */
int dv__strbuf_detach(dv__strbuf *t, char **out);

/* True if `word` is one of the words, which are separated by spaces. */
bool dv__has_word(const char *words, const char *word, size_t word_size);

/* Returns the length in bytes of the UTF-8 character at the beginning of text, which has n > 0 bytes; 0: not valid UTF-8. */
size_t dv__utf8_valid_char_size(const char *text, size_t text_size);

#endif
