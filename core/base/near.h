/* Similar names to suggest in a message: by the number of letters to change; a shared prefix or part also counts. */
#ifndef DV_BASE_NEAR_H
#define DV_BASE_NEAR_H

#include <stddef.h>

/* The names most similar to wanted, best first. Zero-initialise. The names are borrowed until the message is printed. */
enum { DV__NEAR_MAX = 5 };
typedef struct dv__near {
    const char *wanted;
    struct {
        const char *name;
        size_t distance;
    } best[DV__NEAR_MAX];
    size_t n, seen;
} dv__near;
void dv__near_add(dv__near *near, const char *name);
void dv__near_as(dv__near *near, const char *name, const char *shown); /* compared by name; the message has shown */
/* "; did you mean 'a', 'b'?" or "" when no name is similar. */
const char *dv__near_print(const dv__near *near, char *buffer, size_t size);

#endif
