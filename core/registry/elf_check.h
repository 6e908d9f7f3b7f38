/* Checks that the content of a file is an operator binary which the system's loader can load safely. */
#ifndef DV_REGISTRY_ELF_CHECK_H
#define DV_REGISTRY_ELF_CHECK_H

#include "dovetail.h"

/* Checks that a file is a complete 64-bit ELF shared object for this processor and exports dovetail_library_1. All headers,
 * segments, sections and tables of the dynamic section must lie inside the file. Symbols and relocations must point inside the
 * image. Machine code is not checked. Fails with DV_EBINARY, or with DV_EABI for another major version. where: begins the
 * message. */
int dv__elf_check(const unsigned char *data, size_t size, const char *where);

/* Finds the end of the last part of a file that its ELF headers name. *end_offset: the end; later bytes need not be read. A
 * file that is not a shared object of this processor fails before its content is read. read(): copies n bytes from an offset
 * in the file, or returns a status. */
typedef int (*dv__elf_read)(void *user, uint64_t at, void *to, size_t n);
int dv__elf_find_extent(dv__elf_read read, void *user, size_t size, const char *where, size_t *end_offset);

/* Lists the readable segments of a binary that passed dv__elf_check() and is loaded at `base`. Returns the number of listed
 * segments, at most `capacity`. */
typedef struct dv__segment {
    const char *start;
    size_t size;
} dv__segment;
size_t dv__elf_list_loaded_segments(const unsigned char *data, const char *base, dv__segment *segments, size_t capacity);

/* Calls fn for each needed library (DT_NEEDED) of a binary whose content passed dv__elf_check(). fn's `search`: the folders
 * that the binary names for its libraries, separated by ':'; "" if it names none. */
typedef void (*dv__elf_needed_fn)(void *user, const char *name, const char *search);
void dv__elf_for_each_needed(const unsigned char *data, size_t size, dv__elf_needed_fn fn, void *user);

/* Checks the ABI of a loaded binary's descriptor. All that the descriptor points to must lie inside the segments, so that no
 * pointer of a corrupt relocation is followed. nsegments 0: pointers are not checked. Fails with DV_EABI or DV_EBINARY. */
int dv__loaded_library_check_abi(
    const struct dv_library_decl *decl, const char *message_prefix, const dv__segment *segments, size_t nsegments);

#endif
