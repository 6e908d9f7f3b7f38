/* Digest of an operator binary's loaded bytes, which detects accidental damage before the loader runs the binary's code.
 *
 * DV_LIBRARY() of dovetail_op.h reserves an ELF note for it. `dovetail build` fills the note in. A binary whose note is empty or
 * missing (another linker, an older header) has no digest and loads without this check. */
#ifndef DV_REGISTRY_DIGEST_H
#define DV_REGISTRY_DIGEST_H

#include "dovetail.h"

enum {
    DV__DIGEST_SIZE = 16
}; /* size in bytes of the note's content: the digest, then its bitwise complement, both little-endian */

/* Checks the digest of content that passed dv__elf_check(). DV_OK: the digest matches, or the binary has none. DV_EBINARY:
 * the content does not match the digest, or the note is damaged; the message begins with `where`. */
int dv__digest_check(const unsigned char *data, const char *where);

/* Computes the content of the digest note, for a binary's content that passed dv__elf_check(). *note_offset: where
 * digest_bytes belong in the file. DV_EBINARY: the binary has no note, or the note is damaged. */
int dv__digest_make(
    const unsigned char *data, const char *where, uint64_t *note_offset, unsigned char digest_bytes[DV__DIGEST_SIZE]);

/* Returns XXH64 of n bytes. */
uint64_t dv__xxh64(const unsigned char *data, size_t n, uint64_t seed);

#endif
