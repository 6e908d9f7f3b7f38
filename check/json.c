/* A reader for the library's own JSON: a malformed document is refused as a whole. Nodes are allocated one by one and never
 * freed. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

typedef struct reader {
    const char *p;
    int depth;
    bool failed;
} reader;

static void *keep(reader *r, size_t size)
{
    void *p = calloc(1, size);
    r->failed |= !p;
    return p;
}

static void skip(reader *r) { r->p += strspn(r->p, " \t\r\n"); }

static bool take(reader *r, char c)
{
    skip(r);
    if (*r->p != c)
        return false;
    r->p++;
    return true;
}

static size_t put_utf8(char *to, unsigned long code)
{
    if (code < 0x80)
        return to[0] = (char)code, 1;
    if (code < 0x800)
        return to[0] = (char)(0xc0 | code >> 6), to[1] = (char)(0x80 | (code & 63)), 2;
    return to[0] = (char)(0xe0 | code >> 12), to[1] = (char)(0x80 | (code >> 6 & 63)), to[2] = (char)(0x80 | (code & 63)), 3;
}

/* After the opening quote. */
static const char *string(reader *r)
{
    size_t room = 1; /* escapes only shrink */
    for (const char *p = r->p; *p && *p != '"'; p += *p == '\\' && p[1] ? 2 : 1)
        room += 2;
    char *text = keep(r, room);
    size_t n = 0;
    while (text && *r->p && *r->p != '"') {
        if (*r->p != '\\') {
            text[n++] = *r->p++;
            continue;
        }
        const char c = *++r->p;
        if (c == 'u') {
            char digits[5] = { 0 };
            memcpy(digits, r->p + 1, strnlen(r->p + 1, 4));
            n += put_utf8(text + n, strtoul(digits, NULL, 16));
            r->p += 1 + strlen(digits);
        } else if (c) {
            static const char from[] = "nrtbf", to[] = "\n\r\t\b\f";
            const char *at = strchr(from, c);
            text[n++] = at ? to[at - from] : c;
            r->p++;
        }
    }
    r->failed |= *r->p != '"';
    r->p += !r->failed;
    return text;
}

static check_json *value(reader *r, const char *key);

static void members(reader *r, check_json *parent, char end)
{
    const check_json **tail = &parent->child;
    if (take(r, end))
        return;
    do {
        const char *key = NULL;
        if (end == '}') {
            r->failed |= !take(r, '"');
            key = r->failed ? NULL : string(r);
            r->failed |= !take(r, ':');
        }
        check_json *v = r->failed ? NULL : value(r, key);
        if (!v)
            return;
        *tail = v;
        tail = &v->next;
    } while (take(r, ','));
    r->failed |= !take(r, end);
}

static void number(reader *r, check_json *j)
{
    char *end, *end_of_int;
    errno = 0;
    j->f = strtod(r->p, &end);
    j->i = strtoll(r->p, &end_of_int, 10);
    j->kind = end == end_of_int ? CHECK_INT : CHECK_REAL;
    r->failed |= end == r->p;
    r->p = end;
}

static bool word(reader *r, const char *w)
{
    const size_t n = strlen(w);
    if (strncmp(r->p, w, n))
        return false;
    r->p += n;
    return true;
}

static check_json *value(reader *r, const char *key)
{
    check_json *j = ++r->depth > 400 ? NULL : keep(r, sizeof *j);
    r->failed |= !j;
    if (!j)
        return NULL;
    j->key = key;
    skip(r);
    if (take(r, '{'))
        j->kind = CHECK_OBJECT, members(r, j, '}');
    else if (take(r, '['))
        j->kind = CHECK_ARRAY, members(r, j, ']');
    else if (take(r, '"'))
        j->kind = CHECK_TEXT, j->text = string(r);
    else if (word(r, "true"))
        j->kind = CHECK_TRUE;
    else if (word(r, "false"))
        j->kind = CHECK_FALSE;
    else if (!word(r, "null"))
        number(r, j);
    r->depth--;
    return r->failed ? NULL : j;
}

const check_json *check_json_parse(const char *text)
{
    reader r = { .p = text };
    const check_json *j = value(&r, NULL);
    skip(&r);
    return *r.p ? NULL : j;
}

const check_json *check_json_get(const check_json *object, const char *key)
{
    for (const check_json *m = object && object->kind == CHECK_OBJECT ? object->child : NULL; m; m = m->next)
        if (!strcmp(m->key, key))
            return m;
    return NULL;
}

const check_json *check_json_at(const check_json *array, size_t i)
{
    const check_json *e = array ? array->child : NULL;
    while (e && i--)
        e = e->next;
    return e;
}

size_t check_json_size(const check_json *j)
{
    size_t n = 0;
    for (const check_json *e = j ? j->child : NULL; e; e = e->next)
        n++;
    return n;
}

const char *check_json_text(const check_json *object, const char *key)
{
    const check_json *m = check_json_get(object, key);
    return m && m->kind == CHECK_TEXT ? m->text : NULL;
}

bool check_json_true(const check_json *object, const char *key)
{
    const check_json *m = check_json_get(object, key);
    return m && m->kind == CHECK_TRUE;
}

bool check_json_is(const check_json *expr, const char *kind)
{
    return expr && expr->kind == CHECK_ARRAY && expr->child && expr->child->kind == CHECK_TEXT &&
        !strcmp(expr->child->text, kind);
}
