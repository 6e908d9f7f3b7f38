/* Variables of a thread that every call reads. The model is the compiler's own: one initial-exec variable would put all of the library's
 * thread storage (25 KB: messages, entries of calls) into the static block, of which a program that loads the library has some 2 KB
 * left ("cannot allocate memory in static TLS block"). First the large ones must hang on pointers. */
#ifndef DV_BASE_THREAD_H
#define DV_BASE_THREAD_H

#define DV__THREAD_WORD _Thread_local

#endif
