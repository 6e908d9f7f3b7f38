/* Operator binaries on disk: checked before the loader sees them, and mapped from a private copy named by content. */
#ifndef DV_REGISTRY_BINARY_H
#define DV_REGISTRY_BINARY_H

#include "dovetail.h"

typedef struct dv__binary {
    const struct dv_library_decl *decl; /* mapped until the process ends */
    char id[33];                        /* 128 bits of a hash of the content, in hex */
    char *path;                         /* as the caller gave it, made absolute; dv__free'd by dv__binary_deinit */
} dv__binary;

/* DV_EIO: cannot be read. DV_EBINARY: not an ELF shared object of this architecture, truncated (a short file would end the
 * process by SIGBUS in the loader), or without dovetail_library_1. DV_EABI: it exports another major version (the message names
 * it); or a struct of the declaration has non-zero fields that this runtime does not know, or is smaller than in version 1.0.
 * Every message names the file. The descriptor's tables are checked so that reading them is safe. */
int dv__binary_open(const char *path, dv__binary *out);
void dv__binary_deinit(dv__binary *b);

/* The ABI check alone, for descriptors that are linked in. where: for messages. */
int dv__library_decl_check(const struct dv_library_decl *decl, const char *where);

/* Read a field of a declaration that may be from an older header: zero if it is past the struct's end. */
#define DV__HAS(p, T, field) ((p)->size >= offsetof(T, field) + sizeof((p)->field))

#endif
