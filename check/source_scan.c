/* Sizes that matter to a kernel, found in its source: integers that the code compares with, divides by or uses as sizes of
 * arrays, each with its neighbours. A kernel that behaves differently at n == 37, or from 37 on, is called with 36, 37 and 38;
 * one that works in chunks of 4096 also with a third chunk. The file also reads strings that an argument may be compared with. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

enum { MIN_SIZE = 3, LARGE_SIZE = 1024, MAX_SIZE = 1 << 16 };

char *check_new_file_contents(const char *path, size_t *size)
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

/* Returns the end of a comment, preprocessor line or quoted text that begins at `begin`; `begin` if none does. */
static const char *source_get_end_of_comment_or_string(const char *begin)
{
    const char quote = *begin;
    if (!strncmp(begin, "//", 2) || *begin == '#')
        return begin + strcspn(begin, "\n");
    if (!strncmp(begin, "/*", 2)) {
        const char *end = strstr(begin + 2, "*/");
        return end ? end + 2 : begin + strlen(begin);
    }
    if (quote != '"' && quote != '\'')
        return begin;
    for (begin++; *begin && *begin != quote; begin++)
        begin += *begin == '\\' && begin[1];
    return begin + (*begin != 0);
}

/* Appends a size to op->extra_sizes, unless it is there, is below MIN_SIZE, or the list is full. */
static void source_append_new_size(check_op *op, int64_t size)
{
    for (size_t i = 0; i < op->nextra_sizes; i++)
        if (op->extra_sizes[i] == size)
            return;
    if (op->nextra_sizes < CHECK_MAX_EXTRA_SIZES && size >= MIN_SIZE)
        op->extra_sizes[op->nextra_sizes++] = size;
}

void check_add_extra_size(check_op *op, int64_t size)
{
    for (int64_t by = -1; by <= 1 && size >= MIN_SIZE && size <= MAX_SIZE; by++)
        source_append_new_size(op, size + by);
}

/* True if a number in C code, after character_before and before text_after, is likely to be a size: an operand of a comparison or
 * division, or the size of an array. */
static bool source_is_number_used_as_size(char character_before, const char *text_after)
{
    text_after += strspn(text_after, " )");
    return (character_before && strchr("<>=%/&[", character_before)) || (*text_after && strchr("<>%", *text_after)) ||
        !strncmp(text_after, "==", 2);
}

/* Appends a text of `length` characters to `out`, if it consists of letters, digits, underscores and inner dashes, is shorter
 * than CHECK_MAX_WORD_BYTES, and is not there yet. *nwords: number of entries. */
static void source_append_new_word(
    const char *word, size_t length, char (*out)[CHECK_MAX_WORD_BYTES], size_t capacity, size_t *nwords)
{
    bool is_valid = length && length < CHECK_MAX_WORD_BYTES;
    for (size_t i = 0; i < length && is_valid; i++)
        is_valid = isalnum((unsigned char)word[i]) || word[i] == '_' || (word[i] == '-' && i);
    for (size_t i = 0; i < *nwords && is_valid; i++)
        is_valid = strlen(out[i]) != length || memcmp(out[i], word, length);
    if (is_valid && *nwords < capacity)
        snprintf(out[(*nwords)++], CHECK_MAX_WORD_BYTES, "%.*s", (int)length, word);
}

/* Returns the end of DV_OPERATOR(...) or another DV_ macro call that begins at `begin`; `begin` if none does. Strings in it are
 * for the runtime, not for a kernel. */
static const char *source_get_end_of_declaration(const char *begin)
{
    const char *after = begin + strspn(begin, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789");
    int depth = 0;
    if (strncmp(begin, "DV_", 3) || *after != '(')
        return begin;
    for (begin = after; *begin; begin++) {
        const char *end = source_get_end_of_comment_or_string(begin);
        depth += end > begin ? 0 : (*begin == '(') - (*begin == ')');
        if (!depth && end == begin)
            return begin + 1;
        begin = end > begin ? end - 1 : begin;
    }
    return begin;
}

size_t check_list_source_strings(const char *path, char (*out)[CHECK_MAX_WORD_BYTES], size_t capacity)
{
    size_t n = 0;
    char *const text = check_new_file_contents(path, &(size_t){ 0 });
    for (const char *p = text ? text : "", *end; *p; p = end) {
        end = source_get_end_of_comment_or_string(p);
        if (*p == '"' && end > p + 1)
            source_append_new_word(p + 1, (size_t)(end - p) - 2, out, capacity, &n);
        else if (end == p)
            end = source_get_end_of_declaration(p);
        if (end == p && (isalpha((unsigned char)*p) || *p == '_'))
            while (isalnum((unsigned char)*end) || *end == '_')
                end++;
        else if (end == p)
            end++;
    }
    free(text);
    return n;
}

void check_add_source_sizes(check_op *op, const char *path)
{
    char before = 0; /* last character before p that is no space */
    char *const text = check_new_file_contents(path, &(size_t){ 0 });
    for (const char *p = text ? text : ""; *p;) {
        const char *after = source_get_end_of_comment_or_string(p);
        char *end;
        if (*p == '#' && !strncmp(p + 1 + strspn(p + 1, " "), "define ", 7)) { /* the replacement text of a macro is code */
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
            const bool is_integer = !strchr(".eEpPxX", *end) || !*end; /* a number with a fraction or exponent is real */
            for (p = end; isalnum((unsigned char)*p) || *p == '.'; p++)
                continue;
            const bool is_size = is_integer && source_is_number_used_as_size(before, p);
            before = '0';
            if (is_size)
                check_add_extra_size(op, x);
            if (is_size && x >= LARGE_SIZE && x <= MAX_SIZE)
                source_append_new_size(op, 2 * x + 1);
        }
    }
    free(text);
}
