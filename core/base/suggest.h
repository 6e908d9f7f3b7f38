/* Suggestions of similar names for messages. A name is similar if few letters differ (edit distance), or if one name
 * contains the other one. */
#ifndef DV_BASE_SUGGEST_H
#define DV_BASE_SUGGEST_H

#include <stddef.h>

/* The names most similar to wanted, best first. Zero-initialise. The names are borrowed until the message is printed. */
enum { DV__MAX_SUGGESTIONS = 5 };
typedef struct dv__suggestions {
    const char *wanted;
    struct {
        const char *name;
        size_t distance;
    } best_matches[DV__MAX_SUGGESTIONS];
    size_t n, seen;
} dv__suggestions;
void dv__suggest_add(dv__suggestions *suggestions, const char *name);
/* Adds a candidate if its name is similar enough and among the DV__MAX_SUGGESTIONS best. name: compared with the wanted
 * name; shown_name: printed in the message instead. */
void dv__suggest_add_shown_as(dv__suggestions *suggestions, const char *name, const char *shown_name);
/* Prints "; did you mean 'a', 'b'?" to buffer, or "" if no name is similar. Returns buffer. */
const char *dv__suggest_print(const dv__suggestions *suggestions, char *buffer, size_t size);

#endif
