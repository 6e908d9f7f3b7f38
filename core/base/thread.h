/* Variables of a thread that every call reads. In a shared library each access to an ordinary one is a function call; these come from
 * the small static block that the loader reserves for libraries, so they are for a few words only: larger things hang on a pointer. */
#ifndef DV_BASE_THREAD_H
#define DV_BASE_THREAD_H

#if defined(__GNUC__) || defined(__clang__)
#define DV__THREAD_WORD _Thread_local __attribute__((tls_model("initial-exec")))
#else
#define DV__THREAD_WORD _Thread_local
#endif

#endif
