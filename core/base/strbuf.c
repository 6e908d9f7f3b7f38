#include "base/strbuf.h"

#include <stdio.h>

#include "base/memory.h"

/* Makes space for nmore bytes and a final NUL. Returns false if an allocation has failed, now or before. */
static bool strbuf_try_reserve(dv__strbuf *t, size_t nmore)
{
    if (t->failed)
        return false;
    if (t->capacity - t->size > nmore)
        return true;
    size_t capacity = t->capacity ? t->capacity * 2 : 128;
    while (capacity - t->size <= nmore)
        capacity *= 2;
    char *data = dv__realloc(t->data, capacity);
    if (!data) {
        t->failed = true;
        return false;
    }
    t->data = data;
    t->capacity = capacity;
    return true;
}

void dv__strbuf_append(dv__strbuf *t, const char *s, size_t n)
{
    if (!strbuf_try_reserve(t, n))
        return;
    memcpy(t->data + t->size, s, n);
    t->size += n;
    t->data[t->size] = 0;
}

void dv__strbuf_append_str(dv__strbuf *t, const char *s) { dv__strbuf_append(t, s, strlen(s)); }

void dv__json_write_key(dv__strbuf *t, const char *key)
{
    if (t->size && !strchr("[{ ", t->data[t->size - 1])) /* a key ends with a space */
        dv__strbuf_append_str(t, ", ");
    if (key)
        dv__strbuf_printf(t, "\"%s\": ", key);
}

void dv__json_write_member(dv__strbuf *t, const char *key, const char *s)
{
    dv__json_write_key(t, key);
    if (s)
        dv__json_write_string(t, s, strlen(s));
    else
        dv__strbuf_append_str(t, "null");
}

void dv__strbuf_printf(dv__strbuf *t, const char *format, ...)
{
    va_list args, args_copy;
    va_start(args, format);
    va_copy(args_copy, args);
    const int n = vsnprintf(NULL, 0, format, args);
    if (n >= 0 && strbuf_try_reserve(t, (size_t)n)) {
        vsnprintf(t->data + t->size, (size_t)n + 1, format, args_copy);
        t->size += (size_t)n;
    }
    va_end(args_copy);
    va_end(args);
}

bool dv__has_word(const char *words, const char *word, size_t word_size)
{
    for (size_t n; *words; words += n, words += *words == ' ')
        if ((n = strcspn(words, " ")) == word_size && !memcmp(words, word, word_size))
            return true;
    return false;
}

size_t dv__utf8_valid_char_size(const char *text, size_t text_size)
{
    const unsigned char *s = (const unsigned char *)text;
    const size_t size = s[0] < 0x80 ? 1 : s[0] < 0xc2 ? 0 : s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : s[0] < 0xf5 ? 4 : 0;
    if (size > text_size)
        return 0;
    for (size_t i = 1; i < size; i++)
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    const bool overlong = (s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xf0 && s[1] < 0x90);
    const bool surrogate = s[0] == 0xed && s[1] >= 0xa0, beyond = s[0] == 0xf4 && s[1] >= 0x90;
    return overlong || surrogate || beyond ? 0 : size;
}

void dv__json_write_string(dv__strbuf *t, const char *s, size_t n)
{
    dv__strbuf_append(t, "\"", 1);
    for (size_t i = 0; i < n; i++) {
        const unsigned char c = (unsigned char)s[i];
        const size_t size = dv__utf8_valid_char_size(s + i, n - i);
        if (size > 1) {
            dv__strbuf_append(t, s + i, size);
            i += size - 1;
        } else if (!size)
            dv__strbuf_printf(t, "\\udc%02x", c);
        else if (c == '"' || c == '\\')
            dv__strbuf_printf(t, "\\%c", c);
        else if (c == '\n')
            dv__strbuf_append(t, "\\n", 2);
        else if (c < 0x20 || c == 0x7f)
            dv__strbuf_printf(t, "\\u%04x", c);
        else
            dv__strbuf_append(t, s + i, 1);
    }
    dv__strbuf_append(t, "\"", 1);
}

void dv__strbuf_deinit(dv__strbuf *t)
{
    dv__free(t->data);
    memset(t, 0, sizeof *t);
}

int dv__strbuf_detach(dv__strbuf *t, char **out)
{
    *out = NULL;
    dv__strbuf_append(t, "", 0);
    if (t->failed) {
        dv__strbuf_deinit(t);
        return dv_fail(DV_ENOMEM, "out of memory");
    }
    *out = t->data;
    memset(t, 0, sizeof *t);
    return DV_OK;
}
