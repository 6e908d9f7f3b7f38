/* What MindSpore's CPU kernel for `ops.Custom(func_type="aot")` calls, for C: C++ types by the Itanium ABI, with libstdc++'s
 * strings of before C++11, which MindSpore's wheels are built with. Source: mindspore/ccsrc/utils/custom_aot_extra.h of
 * MindSpore 2.10. */
#ifndef DOVETAIL_MINDSPORE_ABI_H
#define DOVETAIL_MINDSPORE_ABI_H

#include <stddef.h>
#include <stdint.h>

/* std::vector<T>: first, past the last, past the room; from operator new, which is malloc(). */
typedef struct ms_sizes { int64_t *begin, *end, *room; } ms_sizes;    /* std::vector<int64_t> */
typedef struct ms_shapes { ms_sizes *begin, *end, *room; } ms_shapes; /* std::vector<std::vector<int64_t>> */
typedef struct ms_types { int32_t *begin, *end, *room; } ms_types;    /* std::vector<TypeId> */

/* std::string: a pointer to its characters, which come after this. users: how many others share them. */
typedef struct ms_text {
    size_t size, room;
    int32_t users;
} ms_text;

/* A std::string that a function returns: C++ returns what has a destructor in memory that the caller gives, C what is larger than
 * 16 bytes, by the same registers on x86-64 and aarch64 (so too the vectors above). The rest is not written. */
typedef struct ms_returned_text {
    char *characters;
    void *rest[2];
} ms_returned_text;

/* AotExtra's virtual functions, in order. */
enum { MS_ATTRIBUTE_INT = 4, MS_ATTRIBUTE_TEXT = 6 };

/* std::__throw_runtime_error(const char *text), of libstdc++: throws a std::runtime_error. */
#define MS_THROW "_ZSt21__throw_runtime_errorPKc"

#endif
