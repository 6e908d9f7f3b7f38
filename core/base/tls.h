/* DV__TLS_ACCESSOR: marks a function that returns the address of a thread-local variable. In a shared library each access of
 * such a variable calls a function of the loader. The address is constant within a thread, so the compiler may reuse the
 * accessor's result. The initial-exec model needs no such call, but has too little space in libraries that are loaded later for
 * this library's thread-local variables. */
#ifndef DV_BASE_TLS_H
#define DV_BASE_TLS_H

#if defined(__GNUC__) || defined(__clang__)
#define DV__TLS_ACCESSOR __attribute__((const, noinline))
#else
#define DV__TLS_ACCESSOR
#endif

#endif
