/* Thread-local variables that every call reads. In a shared library each access calls a function of the loader, so they are
 * accessed through a function whose result the compiler may reuse: it is constant within a thread. (The initial-exec model would
 * need no call, but the loader reserves little space for libraries that are loaded later, and this library's thread-local
 * variables, with the error text, do not fit.) */
#ifndef DV_BASE_THREAD_H
#define DV_BASE_THREAD_H

#if defined(__GNUC__) || defined(__clang__)
#define DV__OF_THREAD __attribute__((const, noinline))
#else
#define DV__OF_THREAD
#endif

#endif
