/* Checks that the content of a file is an operator binary which the system's loader can load safely. */
#ifndef DV_REGISTRY_ELF_CHECK_H
#define DV_REGISTRY_ELF_CHECK_H

#include "dovetail.h"

/* Check for a complete 64-bit ELF shared object for this processor: every header, segment and section, the dynamic section and
 * all tables that it names (symbols, strings, hashes, relocations, initialisers) lie inside the file, symbols and relocations
 * point inside the image; and it exports dovetail_library_1. DV_EBINARY or, for other majors, DV_EABI; the message begins with
 * `where`. The code inside is not checked. */
int dv__elf_check(const unsigned char *data, size_t size, const char *where);

/* The same check of only the beginning of a file of this size (zeros after its end), to refuse other files before they are read.
 */
enum { DV__ELF_START = 64 };
int dv__elf_check_start(const unsigned char start[DV__ELF_START], size_t size, const char *where);

/* The readable segments, loaded at base, of a binary whose content passed the check. Returns their number (at most room). */
typedef struct dv__span {
    const char *start;
    size_t size;
} dv__span;
size_t dv__elf_spans(const unsigned char *data, const char *base, dv__span *spans, size_t room);

/* The ABI check of a descriptor. With spans (n > 0), everything that it points to must lie inside them: a binary with corrupt
 * relocations is refused instead of followed. */
int dv__decl_check(const struct dv_library_decl *decl, const char *where, const dv__span *spans, size_t nspans);

#endif
