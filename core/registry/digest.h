/* Digest of an operator binary's loaded bytes, which detects accidental damage before the loader runs the binary's code.
 *
 * DV_LIBRARY() of dovetail_op.h reserves an ELF note for it. `dovetail build` fills the note in. A binary whose note is empty or
 * missing (another linker, an older header) has no digest and loads without this check. */
#ifndef DV_REGISTRY_DIGEST_H
#define DV_REGISTRY_DIGEST_H

#include "dovetail.h"

enum { DV__STAMP = 16 }; /* bytes of the note that hold the digest: the digest itself, then its complement, little-endian */

/* Checks the digest of content that passed dv__elf_check(). DV_OK: the digest matches, or there is none. DV_EBINARY: the content
 * does not match the digest, or the note is damaged; the message begins with `where`. */
int dv__digest_check(const unsigned char *data, const char *where);

/* Computes the bytes of the note for content that passed dv__elf_check(). *at: their offset in the content. DV_EBINARY: there is
 * no note, or it is damaged. */
int dv__digest_make(const unsigned char *data, const char *where, uint64_t *at, unsigned char stamp[DV__STAMP]);

/* Returns XXH64 of n bytes. */
uint64_t dv__xxh64(const unsigned char *data, size_t n, uint64_t seed);

#endif
