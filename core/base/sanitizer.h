/* DV__SANITIZED: 1 if this file is compiled with a sanitizer, which makes frames larger and code slower. gcc defines macros for
 * sanitizers, clang has features. */
#ifndef DV_BASE_SANITIZER_H
#define DV_BASE_SANITIZER_H

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define DV__SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define DV__SANITIZED 1
#endif
#endif
#ifndef DV__SANITIZED
#define DV__SANITIZED 0
#endif

#endif
