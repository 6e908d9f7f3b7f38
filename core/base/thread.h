/* Variables of a thread that every call reads. In a shared library each use of one is a call of the loader's function, so they
 * are reached through a function that the compiler may call once and remember: its result is the same all through a thread. (The
 * initial-exec model would need no call, but then the whole block of the library's thread variables, error text included, would
 * have to fit into the little room that the loader keeps for libraries that are loaded later: it does not.) */
#ifndef DV_BASE_THREAD_H
#define DV_BASE_THREAD_H

#if defined(__GNUC__) || defined(__clang__)
#define DV__OF_THREAD __attribute__((const, noinline))
#else
#define DV__OF_THREAD
#endif

#endif
