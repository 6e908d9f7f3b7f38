#include "base/text.h"

#include <stdio.h>

#include "base/memory.h"

static bool grow(dv__text *t, size_t n)
{
    if (t->failed)
        return false;
    if (t->room - t->size > n)
        return true;
    size_t room = t->room ? t->room * 2 : 128;
    while (room - t->size <= n)
        room *= 2;
    char *data = dv__realloc(t->data, room);
    if (!data) {
        t->failed = true;
        return false;
    }
    t->data = data;
    t->room = room;
    return true;
}

void dv__text_put(dv__text *t, const char *s, size_t n)
{
    if (!grow(t, n))
        return;
    memcpy(t->data + t->size, s, n);
    t->size += n;
    t->data[t->size] = 0;
}

void dv__text_puts(dv__text *t, const char *s) { dv__text_put(t, s, strlen(s)); }

void dv__json_key(dv__text *t, const char *key)
{
    if (t->size && !strchr("[{ ", t->data[t->size - 1])) /* a key ends with a space */
        dv__text_puts(t, ", ");
    if (key)
        dv__text_add(t, "\"%s\": ", key);
}

void dv__json_text(dv__text *t, const char *key, const char *s)
{
    dv__json_key(t, key);
    if (s)
        dv__text_json(t, s, strlen(s));
    else
        dv__text_puts(t, "null");
}

void dv__text_add(dv__text *t, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    const int n = vsnprintf(NULL, 0, format, args);
    if (n >= 0 && grow(t, (size_t)n)) {
        vsnprintf(t->data + t->size, (size_t)n + 1, format, again);
        t->size += (size_t)n;
    }
    va_end(again);
    va_end(args);
}

bool dv__has_word(const char *words, const char *name, size_t size)
{
    for (size_t n; *words; words += n, words += *words == ' ')
        if ((n = strcspn(words, " ")) == size && !memcmp(words, name, size))
            return true;
    return false;
}

size_t dv__utf8_size(const char *text, size_t n)
{
    const unsigned char *s = (const unsigned char *)text;
    const size_t size = s[0] < 0x80 ? 1 : s[0] < 0xc2 ? 0 : s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : s[0] < 0xf5 ? 4 : 0;
    if (size > n)
        return 0;
    for (size_t i = 1; i < size; i++)
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    const bool overlong = (s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xf0 && s[1] < 0x90);
    const bool surrogate = s[0] == 0xed && s[1] >= 0xa0, beyond = s[0] == 0xf4 && s[1] >= 0x90;
    return overlong || surrogate || beyond ? 0 : size;
}

void dv__text_json(dv__text *t, const char *s, size_t n)
{
    dv__text_put(t, "\"", 1);
    for (size_t i = 0; i < n; i++) {
        const unsigned char c = (unsigned char)s[i];
        const size_t size = dv__utf8_size(s + i, n - i);
        if (size > 1) {
            dv__text_put(t, s + i, size);
            i += size - 1;
        } else if (!size)
            dv__text_add(t, "\\udc%02x", c);
        else if (c == '"' || c == '\\')
            dv__text_add(t, "\\%c", c);
        else if (c == '\n')
            dv__text_put(t, "\\n", 2);
        else if (c < 0x20 || c == 0x7f)
            dv__text_add(t, "\\u%04x", c);
        else
            dv__text_put(t, s + i, 1);
    }
    dv__text_put(t, "\"", 1);
}

void dv__text_deinit(dv__text *t)
{
    dv__free(t->data);
    memset(t, 0, sizeof *t);
}

int dv__text_take(dv__text *t, char **out)
{
    *out = NULL;
    dv__text_put(t, "", 0);
    if (t->failed) {
        dv__text_deinit(t);
        return dv_fail(DV_ENOMEM, "out of memory");
    }
    *out = t->data;
    memset(t, 0, sizeof *t);
    return DV_OK;
}
