/* Sizes that matter to a kernel, by its source: the whole numbers that its code compares with, divides by or takes as sizes of
 * arrays, each with its neighbours. A kernel that does something else at n == 37, or from 37 on, is called with 36, 37 and 38;
 * one that works in chunks of 4096, also with a third chunk. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

enum { LEAST = 3, LARGE = 1024, MOST = 1 << 16 };

char *check_read(const char *path, size_t *size)
{
    FILE *f = fopen(path, "r");
    const long n = f && !fseek(f, 0, SEEK_END) ? ftell(f) : -1;
    char *bytes = n >= 0 && !fseek(f, 0, SEEK_SET) ? malloc((size_t)n + 1) : NULL;
    *size = bytes ? fread(bytes, 1, (size_t)n, f) : 0;
    if (bytes)
        bytes[*size] = 0;
    if (f)
        fclose(f);
    return bytes;
}

/* The end of a comment or of a quoted text that begins here; p: neither does. */
static const char *skip(const char *p)
{
    const char quote = *p;
    if (!strncmp(p, "//", 2) || *p == '#')
        return p + strcspn(p, "\n");
    if (!strncmp(p, "/*", 2)) {
        const char *end = strstr(p + 2, "*/");
        return end ? end + 2 : p + strlen(p);
    }
    if (quote != '"' && quote != '\'')
        return p;
    for (p++; *p && *p != quote; p++)
        p += *p == '\\' && p[1];
    return p + (*p != 0);
}

static void add(check_op *op, int64_t x)
{
    for (size_t i = 0; i < op->nspecial; i++)
        if (op->special[i] == x)
            return;
    if (op->nspecial < CHECK_SPECIALS && x >= LEAST)
        op->special[op->nspecial++] = x;
}

void check_add_special(check_op *op, int64_t x)
{
    for (int64_t by = -1; by <= 1 && x >= LEAST && x <= MOST; by++)
        add(op, x + by);
}

/* Does a number between these characters count? */
static bool is_limit(char before, const char *after)
{
    after += strspn(after, " )");
    return (before && strchr("<>=%/&[", before)) || (*after && strchr("<>%", *after)) || !strncmp(after, "==", 2);
}

static void add_word(const char *word, size_t size, char (*out)[CHECK_WORD], size_t room, size_t *n)
{
    bool plain = size && size < CHECK_WORD;
    for (size_t i = 0; i < size && plain; i++)
        plain = isalnum((unsigned char)word[i]) || word[i] == '_' || (word[i] == '-' && i);
    for (size_t i = 0; i < *n && plain; i++)
        plain = strlen(out[i]) != size || memcmp(out[i], word, size);
    if (plain && *n < room)
        snprintf(out[(*n)++], CHECK_WORD, "%.*s", (int)size, word);
}

/* The end of DV_OPERATOR(...) or another macro of declarations that begins here: its strings are for the runtime. */
static const char *skip_declaration(const char *p)
{
    const char *after = p + strspn(p, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789");
    int depth = 0;
    if (strncmp(p, "DV_", 3) || *after != '(')
        return p;
    for (p = after; *p; p++) {
        const char *end = skip(p);
        depth += end > p ? 0 : (*p == '(') - (*p == ')');
        if (!depth && end == p)
            return p + 1;
        p = end > p ? end - 1 : p;
    }
    return p;
}

size_t check_source_words(const char *path, char (*out)[CHECK_WORD], size_t room)
{
    size_t n = 0;
    char *const text = check_read(path, &(size_t){ 0 });
    for (const char *p = text ? text : "", *end; *p; p = end) {
        end = skip(p);
        if (*p == '"' && end > p + 1)
            add_word(p + 1, (size_t)(end - p) - 2, out, room, &n);
        else if (end == p)
            end = skip_declaration(p);
        if (end == p && (isalpha((unsigned char)*p) || *p == '_'))
            while (isalnum((unsigned char)*end) || *end == '_')
                end++;
        else if (end == p)
            end++;
    }
    free(text);
    return n;
}

void check_constants(check_op *op, const char *path)
{
    char before = 0; /* the last character that is no space */
    char *const text = check_read(path, &(size_t){ 0 });
    for (const char *p = text ? text : ""; *p;) {
        const char *after = skip(p);
        char *end;
        if (*p == '#' && !strncmp(p + 1 + strspn(p + 1, " "), "define ", 7)) { /* its text is code */
            p = strstr(p, "define ") + 7;
            p += strspn(p, " ");
            while (isalnum((unsigned char)*p) || *p == '_')
                p++;
            before = '=';
        } else if (after > p) {
            p = after;
        } else if (isspace((unsigned char)*p)) {
            p++;
        } else if (isalpha((unsigned char)*p) || *p == '_') {
            while (isalnum((unsigned char)*p) || *p == '_')
                p++;
            before = 'a';
        } else if (!isdigit((unsigned char)*p)) {
            before = *p++;
        } else {
            const long long x = strtoll(p, &end, 0);
            const bool whole = !strchr(".eEpPxX", *end) || !*end; /* else it is a real number */
            for (p = end; isalnum((unsigned char)*p) || *p == '.'; p++)
                continue;
            const bool counts = whole && is_limit(before, p);
            before = '0';
            if (counts)
                check_add_special(op, x);
            if (counts && x >= LARGE && x <= MOST)
                add(op, 2 * x + 1);
        }
    }
    free(text);
}
