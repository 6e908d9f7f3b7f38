/* Is this the content of an operator binary that the loader can be given? */
#ifndef DV_REGISTRY_ELF_CHECK_H
#define DV_REGISTRY_ELF_CHECK_H

#include "dovetail.h"

/* A 64-bit ELF shared object for this processor, whole: every header, segment and section, the dynamic section and all tables
 * that it names (symbols, strings, hashes, relocations, initialisers) lie inside the file, symbols and relocations point inside
 * the image; and it exports dovetail_library_1. DV_EBINARY or, for other majors, DV_EABI; the message begins with where. Not
 * promised: that the code inside does what it should. */
int dv__elf_check(const unsigned char *data, size_t size, const char *where);

/* The same for the beginning of a file of this size (zeros after its end): what is not such a binary is refused before it is
 * read.
 */
enum { DV__ELF_START = 64 };
int dv__elf_check_start(const unsigned char start[DV__ELF_START], size_t size, const char *where);

/* Readable memory of a loaded binary whose content passed the check: its segments at base. Gives how many (at most room). */
typedef struct dv__span {
    const char *start;
    size_t size;
} dv__span;
size_t dv__elf_spans(const unsigned char *data, const char *base, dv__span *spans, size_t room);

/* The ABI check of a descriptor. With spans (n > 0), everything that it points to must lie inside them: a binary with corrupt
 * relocations is refused instead of followed. */
int dv__decl_check(const struct dv_library_decl *decl, const char *where, const dv__span *spans, size_t nspans);

#endif
