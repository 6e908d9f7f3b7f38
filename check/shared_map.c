/* Memory that workers share with the checker. */
#include <errno.h>
#include <sys/mman.h>

#include "worker.h"

/* Blocks of memory that workers share with the checker, mapped before the workers are forked. */
enum { MAX_SHARED_MAPS = 2 * CHECK_MAX_PLANS + 8 };
static struct shared_map {
    char *at; /* start of the block; NULL: a free entry */
    size_t bytes;
} shared_maps[MAX_SHARED_MAPS];

void *check_shared_map_new_zeroed(size_t bytes)
{
    size_t i = 0;
    while (i < MAX_SHARED_MAPS && shared_maps[i].at)
        i++;
    if (i == MAX_SHARED_MAPS)
        return errno = ENOMEM, NULL;
    void *p = check_map_shared_memory(bytes);
    if (p)
        shared_maps[i] = (struct shared_map){ p, (bytes + 4095) / 4096 * 4096 };
    return p;
}

void check_shared_map_free(const void *memory)
{
    for (size_t i = 0; i < MAX_SHARED_MAPS; i++)
        if (shared_maps[i].at == memory) {
            munmap(shared_maps[i].at, shared_maps[i].bytes);
            shared_maps[i].at = NULL;
        }
}

check_result *check_map_shared_result(void) { return check_shared_map_new_zeroed(sizeof(check_result)); }

void check_shared_map_protect(const check_job *job)
{
    char *const result = (char *)job->result, *const plan = (char *)job->plan;
    for (size_t i = 0; i < MAX_SHARED_MAPS; i++) {
        char *const at = shared_maps[i].at, *const end = at + shared_maps[i].bytes;
        if (!at || (at == plan && job->property->check_without_cases))
            continue;
        if (at == plan) {
            mprotect(at, shared_maps[i].bytes, PROT_READ);
        } else if (result >= at && result < end) {
            mprotect(at, (size_t)(result - at), PROT_NONE);
            mprotect(result + sizeof(check_result_slot), (size_t)(end - result) - sizeof(check_result_slot), PROT_NONE);
        } else {
            mprotect(at, shared_maps[i].bytes, PROT_NONE);
        }
    }
}
