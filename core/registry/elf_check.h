/* Checks that the content of a file is an operator binary which the system's loader can load safely. */
#ifndef DV_REGISTRY_ELF_CHECK_H
#define DV_REGISTRY_ELF_CHECK_H

#include "dovetail.h"

/* Check for a complete 64-bit ELF shared object for this processor: every header, segment and section, the dynamic section and
 * all tables that it names (symbols, strings, hashes, relocations, initialisers) lie inside the file, symbols and relocations
 * point inside the image; and it exports dovetail_library_1. DV_EBINARY or, for other majors, DV_EABI; the message begins with
 * `where`. The code inside is not checked. */
int dv__elf_check(const unsigned char *data, size_t size, const char *where);

/* How much of a file of this size is the binary: up to the end of the last thing that its headers name. What follows need not be
 * read, and another kind of file is refused before it is read. read() gives n bytes at a place inside the file, or a status. */
typedef int (*dv__elf_read)(void *user, uint64_t at, void *to, size_t n);
int dv__elf_extent(dv__elf_read read, void *user, size_t size, const char *where, size_t *out);

/* The readable segments, loaded at base, of a binary whose content passed the check. Returns their number (at most room). */
typedef struct dv__span {
    const char *start;
    size_t size;
} dv__span;
size_t dv__elf_spans(const unsigned char *data, const char *base, dv__span *spans, size_t room);

/* Calls fn for each needed library (DT_NEEDED) of a binary whose content passed dv__elf_check(). search: the folders that the
 * binary names for its libraries, separated by ':'; "" if it names none. */
typedef void (*dv__elf_needed_fn)(void *user, const char *name, const char *search);
void dv__elf_needed(const unsigned char *data, size_t size, dv__elf_needed_fn fn, void *user);

/* The ABI check of a descriptor. With spans (n > 0), everything that it points to must lie inside them: a binary with corrupt
 * relocations is refused instead of followed. */
int dv__decl_check(const struct dv_library_decl *decl, const char *where, const dv__span *spans, size_t nspans);

#endif
