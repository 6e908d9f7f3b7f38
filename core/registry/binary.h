/* Operator binaries on disk. A binary is checked before the system's loader reads it, and mapped from a private copy named by
 * content. */
#ifndef DV_REGISTRY_BINARY_H
#define DV_REGISTRY_BINARY_H

#include "dovetail.h"

typedef struct dv__binary {
    const struct dv_library_decl *decl; /* the binary's descriptor, mapped until the process ends */
    char id[33];                        /* 128 bits of a hash of the content, in hex */
    char *path;                         /* absolute form of the path that the caller passed; freed by dv__binary_deinit() */
} dv__binary;

/* Checks and loads a binary. Every message names the file. DV_EIO: the file cannot be read. DV_EBINARY: the file is no ELF
 * shared object of this architecture, is truncated (the loader would end the process by SIGBUS), or lacks
 * dovetail_library_1. DV_EABI: the binary was made for another major version. DV_EABI also: a struct of its declaration has
 * non-zero fields that this runtime does not know, or is smaller than in version 1.0. After DV_OK the descriptor's tables
 * are safe to read. */
int dv__binary_open(const char *path, dv__binary *out);
void dv__binary_deinit(dv__binary *b);

/* Checks the ABI of a descriptor that is linked into the process. Fails with DV_EABI or
 * DV_EBINARY. */
int dv__static_library_check_abi(const struct dv_library_decl *decl, const char *message_prefix);

/* True if a declaration's struct has this field. A binary compiled with an older header has a shorter struct. */
#define DV__DECL_HAS(p, T, field) ((p)->size >= offsetof(T, field) + sizeof((p)->field))

#endif
