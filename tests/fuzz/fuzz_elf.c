/* For any bytes: the binary is refused, or its tables lie inside it. */
#include <stdlib.h>

#include "registry/elf_check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *exact = malloc(size ? size : 1); /* so that reading past the end is seen */
    dv__segment segments[8];
    if (!exact)
        return 0;
    if (size)
        memcpy(exact, data, size);
    const int status = dv__elf_check(exact, size, "fuzz.so");
    if (status == DV_OK && dv__elf_list_loaded_segments(exact, NULL, segments, 8) == 0)
        abort(); /* what it exports must be readable */
    free(exact);
    return 0;
}
