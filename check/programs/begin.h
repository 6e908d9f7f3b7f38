#pragma once
#include "memory.h"

/* The library, the operator, and a process whose memory holds the poison. */

static dv_operator *begin(int argc, char **argv)
{
    dv_library *lib;
    dv_operator *op;
    if (!getenv("GLIBC_TUNABLES")) { /* so that malloc()'s memory holds the poison: no cache */
        setenv("GLIBC_TUNABLES", "glibc.malloc.tcache_count=0", 1);
        execv("/proc/self/exe", argv);
    }
    dv_set_threads(1);
    if (dv_load(argc > 1 ? argv[1] : BINARY, &lib) || dv_find(OPERATOR, &op))
        exit((fprintf(stderr, "%s\n", dv_last_error()), 2));
    return op;
}
