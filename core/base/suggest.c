#include "base/suggest.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { MAX_NAME_LENGTH = 96 };

/* Returns the Levenshtein distance of two names; SIZE_MAX if one is longer than MAX_NAME_LENGTH. */
static size_t suggest_edit_distance(const char *a, const char *b)
{
    const size_t n = strlen(a), m = strlen(b);
    if (n > MAX_NAME_LENGTH || m > MAX_NAME_LENGTH)
        return SIZE_MAX;
    size_t row[MAX_NAME_LENGTH + 1];
    for (size_t j = 0; j <= m; j++)
        row[j] = j;
    for (size_t i = 1; i <= n; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= m; j++) {
            const size_t above = row[j], change = diagonal + (a[i - 1] != b[j - 1]);
            const size_t least = above < row[j - 1] ? above + 1 : row[j - 1] + 1;
            diagonal = above;
            row[j] = change < least ? change : least;
        }
    }
    return row[m];
}

void dv__suggest_add(dv__suggestions *suggestions, const char *name) { dv__suggest_add_shown_as(suggestions, name, name); }

void dv__suggest_add_shown_as(dv__suggestions *suggestions, const char *name, const char *shown_name)
{
    suggestions->seen++;
    size_t d = suggest_edit_distance(suggestions->wanted, name);
    const size_t n = strlen(suggestions->wanted), m = strlen(name);
    if (n >= 3 && m >= 3 && (strstr(name, suggestions->wanted) || strstr(suggestions->wanted, name)))
        d = d < 3 ? d : 3;
    if (d > 2 + n / 4)
        return;
    size_t at = suggestions->n;
    while (at > 0 && suggestions->best_matches[at - 1].distance > d)
        at--;
    for (size_t i = 0; i < suggestions->n; i++)
        if (!strcmp(suggestions->best_matches[i].name, shown_name))
            return;
    if (at == DV__MAX_SUGGESTIONS)
        return;
    if (suggestions->n < DV__MAX_SUGGESTIONS)
        suggestions->n++;
    memmove(&suggestions->best_matches[at + 1], &suggestions->best_matches[at],
        (suggestions->n - 1 - at) * sizeof suggestions->best_matches[0]);
    suggestions->best_matches[at].name = shown_name;
    suggestions->best_matches[at].distance = d;
}

const char *dv__suggest_print(const dv__suggestions *suggestions, char *buffer, size_t size)
{
    size_t used = 0;
    buffer[0] = 0;
    for (size_t i = 0; i < suggestions->n && used < size; i++) {
        const int n = snprintf(
            buffer + used, size - used, "%s'%s'", i ? ", " : "; did you mean ", suggestions->best_matches[i].name);
        used += n > 0 ? (size_t)n : 0;
    }
    if (suggestions->n && used < size)
        snprintf(buffer + used, size - used, "?");
    return buffer;
}
