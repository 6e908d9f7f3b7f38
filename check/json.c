/* Parser of JSON for documents of dv_operator_json() and of this command (RFC 8259). A malformed document is refused as a whole.
 * Nodes are allocated one by one and never freed. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

typedef struct json_reader {
    const char *p;
    int depth;
    bool failed;
} json_reader;

/* Allocates zeroed memory. Returns NULL and sets r->failed if memory is out. */
static void *json_alloc_zeroed(json_reader *r, size_t size)
{
    void *p = calloc(1, size);
    r->failed |= !p;
    return p;
}

/* Skips white space. */
static void json_skip_space(json_reader *r) { r->p += strspn(r->p, " \t\r\n"); }

/* Skips white space and consumes `expected` if it is the next character. Returns whether it was. */
static bool json_try_accept_char(json_reader *r, char expected)
{
    json_skip_space(r);
    if (*r->p != expected)
        return false;
    r->p++;
    return true;
}

/* Writes a code point below 2^16 as UTF-8 to `to`, without a 0 byte. Returns the number of bytes, 1 to 3. */
static size_t json_write_utf8(char *to, unsigned long code_point)
{
    if (code_point < 0x80)
        return to[0] = (char)code_point, 1;
    if (code_point < 0x800)
        return to[0] = (char)(0xc0 | code_point >> 6), to[1] = (char)(0x80 | (code_point & 63)), 2;
    return to[0] = (char)(0xe0 | code_point >> 12), to[1] = (char)(0x80 | (code_point >> 6 & 63)),
           to[2] = (char)(0x80 | (code_point & 63)), 3;
}

/* Parses a string after its opening quote. Returns its text; sets r->failed if it does not end or memory is out. */
static const char *json_parse_string(json_reader *r)
{
    size_t capacity = 1; /* an escape is never shorter than its UTF-8 text */
    for (const char *p = r->p; *p && *p != '"'; p += *p == '\\' && p[1] ? 2 : 1)
        capacity += 2;
    char *text = json_alloc_zeroed(r, capacity);
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
            n += json_write_utf8(text + n, strtoul(digits, NULL, 16));
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

static check_json *json_parse_value(json_reader *r, const char *key);

/* Parses the members or elements of `parent` up to the closing bracket. Sets r->failed if they are malformed. */
static void json_parse_members(json_reader *r, check_json *parent, char closing_bracket)
{
    const check_json **tail = &parent->child;
    if (json_try_accept_char(r, closing_bracket))
        return;
    do {
        const char *key = NULL;
        if (closing_bracket == '}') {
            r->failed |= !json_try_accept_char(r, '"');
            key = r->failed ? NULL : json_parse_string(r);
            r->failed |= !json_try_accept_char(r, ':');
        }
        check_json *v = r->failed ? NULL : json_parse_value(r, key);
        if (!v)
            return;
        *tail = v;
        tail = &v->next;
    } while (json_try_accept_char(r, ','));
    r->failed |= !json_try_accept_char(r, closing_bracket);
}

/* Parses a number into *j: INT if it has no fraction or exponent, else REAL. Sets r->failed if there is none. */
static void json_parse_number(json_reader *r, check_json *j)
{
    char *end, *end_of_int;
    errno = 0;
    j->real_value = strtod(r->p, &end);
    j->int_value = strtoll(r->p, &end_of_int, 10);
    j->kind = end == end_of_int ? CHECK_JSON_INT : CHECK_JSON_REAL;
    r->failed |= end == r->p;
    r->p = end;
}

/* Consumes a word such as "true" if it is next. Returns whether it was. */
static bool json_try_accept_word(json_reader *r, const char *word)
{
    const size_t n = strlen(word);
    if (strncmp(r->p, word, n))
        return false;
    r->p += n;
    return true;
}

/* Parses any value and returns its node, with this key. Returns NULL and sets r->failed if it is malformed, nested more than 400
 * deep, or memory is out. */
static check_json *json_parse_value(json_reader *r, const char *key)
{
    check_json *j = ++r->depth > 400 ? NULL : json_alloc_zeroed(r, sizeof *j);
    r->failed |= !j;
    if (!j)
        return NULL;
    j->key = key;
    json_skip_space(r);
    if (json_try_accept_char(r, '{'))
        j->kind = CHECK_JSON_OBJECT, json_parse_members(r, j, '}');
    else if (json_try_accept_char(r, '['))
        j->kind = CHECK_JSON_ARRAY, json_parse_members(r, j, ']');
    else if (json_try_accept_char(r, '"'))
        j->kind = CHECK_JSON_STRING, j->text = json_parse_string(r);
    else if (json_try_accept_word(r, "true"))
        j->kind = CHECK_JSON_TRUE;
    else if (json_try_accept_word(r, "false"))
        j->kind = CHECK_JSON_FALSE;
    else if (!json_try_accept_word(r, "null"))
        json_parse_number(r, j);
    r->depth--;
    return r->failed ? NULL : j;
}

const check_json *check_json_parse(const char *text)
{
    json_reader r = { .p = text };
    const check_json *j = json_parse_value(&r, NULL);
    json_skip_space(&r);
    return *r.p ? NULL : j;
}

const check_json *check_json_find_member(const check_json *object, const char *key)
{
    for (const check_json *m = object && object->kind == CHECK_JSON_OBJECT ? object->child : NULL; m; m = m->next)
        if (!strcmp(m->key, key))
            return m;
    return NULL;
}

const check_json *check_json_find_element(const check_json *array, size_t i)
{
    const check_json *e = array ? array->child : NULL;
    while (e && i--)
        e = e->next;
    return e;
}

size_t check_json_count_elements(const check_json *j)
{
    size_t n = 0;
    for (const check_json *e = j ? j->child : NULL; e; e = e->next)
        n++;
    return n;
}

const char *check_json_find_string(const check_json *object, const char *key)
{
    const check_json *m = check_json_find_member(object, key);
    return m && m->kind == CHECK_JSON_STRING ? m->text : NULL;
}

bool check_json_is_true(const check_json *object, const char *key)
{
    const check_json *m = check_json_find_member(object, key);
    return m && m->kind == CHECK_JSON_TRUE;
}

bool check_json_is_expr(const check_json *expr, const char *kind)
{
    return expr && expr->kind == CHECK_JSON_ARRAY && expr->child && expr->child->kind == CHECK_JSON_STRING &&
        !strcmp(expr->child->text, kind);
}
