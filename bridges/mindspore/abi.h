/* C declarations of the C++ types that MindSpore's CPU kernel for `ops.Custom(func_type="aot")` passes and returns, by the
 * Itanium ABI. std::string is libstdc++'s from before C++11, with which MindSpore's wheels are built. Source:
 * mindspore/ccsrc/utils/custom_aot_extra.h of MindSpore 2.10. */
#ifndef DOVETAIL_MINDSPORE_ABI_H
#define DOVETAIL_MINDSPORE_ABI_H

#include <stddef.h>
#include <stdint.h>

/* std::vector<T>: addresses of the first element, past the last, and past the capacity; from operator new, which is malloc(). */
typedef struct ms_sizes { int64_t *begin, *end, *capacity_end; } ms_sizes;    /* std::vector<int64_t> */
typedef struct ms_shapes { ms_sizes *begin, *end, *capacity_end; } ms_shapes; /* std::vector<std::vector<int64_t>> */
typedef struct ms_types { int32_t *begin, *end, *capacity_end; } ms_types;    /* std::vector<TypeId> */

/* The header before the characters of a std::string, which points to its characters. other_users: the number of other strings
 * that share the characters. */
typedef struct ms_text {
    size_t size, capacity;
    int32_t other_users;
} ms_text;

/* A std::string that a function returns. C++ returns an object with a destructor in the caller's memory; C does so for a struct
 * of more than 16 bytes, by the same registers on x86-64 and aarch64. `rest` only makes the struct large enough, and is never
 * written. */
typedef struct ms_returned_text {
    char *characters;
    void *rest[2];
} ms_returned_text;

/* Indices of functions in the virtual table of MindSpore's class AotExtra. */
enum { MS_ATTRIBUTE_INT = 4, MS_ATTRIBUTE_TEXT = 6 };

/* The mangled name of libstdc++'s std::__throw_runtime_error(const char *text), which throws a std::runtime_error. */
#define MS_THROW "_ZSt21__throw_runtime_errorPKc"

#endif
