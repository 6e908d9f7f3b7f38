#include "base/near.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { LONGEST = 96 };

static size_t distance(const char *a, const char *b)
{
    const size_t n = strlen(a), m = strlen(b);
    if (n > LONGEST || m > LONGEST)
        return SIZE_MAX;
    size_t row[LONGEST + 1];
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

void dv__near_add(dv__near *near, const char *name) { dv__near_as(near, name, name); }

void dv__near_as(dv__near *near, const char *name, const char *shown)
{
    near->seen++;
    size_t d = distance(near->wanted, name);
    const size_t n = strlen(near->wanted), m = strlen(name);
    if (n >= 3 && m >= 3 && (strstr(name, near->wanted) || strstr(near->wanted, name)))
        d = d < 3 ? d : 3;
    if (d > 2 + n / 4)
        return;
    size_t at = near->n;
    while (at > 0 && near->best[at - 1].distance > d)
        at--;
    for (size_t i = 0; i < near->n; i++)
        if (!strcmp(near->best[i].name, shown))
            return;
    if (at == DV__NEAR_MAX)
        return;
    if (near->n < DV__NEAR_MAX)
        near->n++;
    memmove(&near->best[at + 1], &near->best[at], (near->n - 1 - at) * sizeof near->best[0]);
    near->best[at].name = shown;
    near->best[at].distance = d;
}

const char *dv__near_print(const dv__near *near, char *buffer, size_t size)
{
    size_t used = 0;
    buffer[0] = 0;
    for (size_t i = 0; i < near->n && used < size; i++) {
        const int n = snprintf(buffer + used, size - used, "%s'%s'", i ? ", " : "; did you mean ", near->best[i].name);
        used += n > 0 ? (size_t)n : 0;
    }
    if (near->n && used < size)
        snprintf(buffer + used, size - used, "?");
    return buffer;
}
