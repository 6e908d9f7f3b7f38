/* Stub of CANN's libnnopbase.so for the libraries that CANN's tools made for packages (test_packages.py). Each function prints
 * its arguments, one word for each position in a node. Names, orders and lengths are those that the libraries use; the file
 * contains nothing of CANN. */
#include "stand_in.h"

#include <stdio.h>
#include <string.h>

#define API __attribute__((visibility("default")))
#define CALL(result, name, ...)   \
    API result name(__VA_ARGS__); \
    API result name(__VA_ARGS__)

static char executor[64];

static void print_tensor(const char *what, unsigned index, const struct aclTensor *t)
{
    printf("%s %u %p\n", what, index, t ? stand_in_address(t) : NULL);
}

static void print_list(const char *what, unsigned index, const struct aclTensorList *l)
{
    for (size_t i = 0; l && stand_in_element(l, i); i++)
        print_tensor(what, index, stand_in_element(l, i));
}

CALL(uint32_t, NnopbaseCreateExecutorSpace, void **out) { return *out = executor, 0; }
CALL(void *, NnopbaseGetExecutor, void *space, const char *op, char *inputs, uint32_t ninputs, char *outputs, uint32_t noutputs,
    char *attributes, uint32_t nattributes)
{
    (void)space, (void)inputs, (void)outputs, (void)attributes;
    printf("node %s %u %u %u\n", op, ninputs, noutputs, nattributes);
    return executor;
}
CALL(uint32_t, NnopbaseAddInput, void *e, const struct aclTensor *t, uint32_t i)
{
    return print_tensor("input", i, t), (void)e, 0;
}
CALL(uint32_t, NnopbaseAddOutput, void *e, const struct aclTensor *t, uint32_t i)
{
    return print_tensor("output", i, t), (void)e, 0;
}
CALL(uint32_t, NnopbaseAddOutputShapeDependTensor, void *e, const struct aclTensor *t, uint32_t i)
{
    return print_tensor("output", i, t), (void)e, 0;
}
CALL(uint32_t, NnopbaseAddDynamicInput, void *e, const struct aclTensorList *l, uint32_t i)
{
    return print_list("input", i, l), (void)e, 0;
}
CALL(uint32_t, NnopbaseAddDynamicOutput, void *e, const struct aclTensorList *l, uint32_t i)
{
    return print_list("output", i, l), (void)e, 0;
}
CALL(uint32_t, NnopbaseAddAttrWithDtype, void *e, void *value, size_t size, size_t index, int32_t dtype)
{
    int64_t n = 0;
    float f = 0;
    double d = 0;
    (void)e;
    memcpy(&n, value, size < sizeof n ? size : sizeof n);
    memcpy(&f, value, sizeof f < size ? sizeof f : size);
    memcpy(&d, value, sizeof d < size ? sizeof d : size);
    printf("attribute %zu %d %zu %lld %.9g %.9g %.*s\n", index, (int)dtype, size, (long long)n, (double)f, d,
        size > 8 ? (int)size : 0, (char *)value);
    return 0;
}
CALL(uint32_t, NnopbaseAddIntArrayAttr, void *e, const struct aclIntArray *a, size_t index)
{
    size_t n;
    const int64_t *values = stand_in_ints(a, &n);
    (void)e;
    printf("attribute %zu ints", index);
    for (size_t i = 0; i < n; i++)
        printf(" %lld", (long long)values[i]);
    puts("");
    return 0;
}
CALL(uint32_t, NnopbaseAddParamName, void *e, uint32_t i, const char *name, bool input)
{
    return (void)e, (void)i, (void)name, (void)input, 0;
}
CALL(uint32_t, NnopbaseAddSupportList, void *e, void *list, uint32_t *numbers, size_t n)
{
    return (void)e, (void)list, (void)numbers, (void)n, 0;
}
CALL(uint32_t, NnopbaseAddTilingId, void *e, void *id) { return (void)e, (void)id, 0; }
CALL(uint32_t, NnopbaseAddOpTypeId, void *e, uint32_t id) { return (void)e, (void)id, 0; }
CALL(uint32_t, NnopbaseMatchArgs, void *e, uint64_t *workspace) { return (void)e, (void)workspace, 0; }
CALL(uint32_t, NnopbaseSetMatchArgsFlag, void *e) { return (void)e, 0; }
CALL(uint64_t, NnopbaseMsprofSysTime, void) { return 0; }
CALL(uint32_t, NnopbaseReportApiInfo, uint64_t begin, void *id) { return (void)begin, (void)id, 0; }
CALL(uint32_t, NnopbaseRunForWorkspace, void *e, uint64_t *size) { return (void)e, *size = 512, 0; }
CALL(uint32_t, NnopbaseRunWithWorkspace, void *e, void *stream, void *workspace, uint64_t size)
{
    printf("run %d %d %llu\n", e == executor, stream && stand_in_memory(workspace), (unsigned long long)size);
    return 0;
}
API void log_error(int code, const char *text) __asm__("_Z14NnopbaseOpLogEiPKc");
void log_error(int code, const char *text) { printf("log %d %s\n", code, text); }
