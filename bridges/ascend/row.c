/* The table of the two functions of each aclnn operator that a kernel names. The table only grows. The meaning of a kernel's list
 * of parameters was found when its library was loaded. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ascend.h"

enum { FUNCTION_BUCKETS = 256 };
static struct {
    pthread_mutex_t lock;
    const dv__aclnn_function *buckets[FUNCTION_BUCKETS];
} function_table = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* Returns the index of the name's hash bucket. */
static size_t function_hash_to_bucket(const char *name)
{
    uint32_t h = 2166136261u;
    for (; *name; name++)
        h = (h ^ (unsigned char)*name) * 16777619u;
    return h % FUNCTION_BUCKETS;
}

/* Makes the entry for a name from the functions of CANN's libraries. Returns a status: DV_ENOENT if one of the two is missing. */
static int function_look_up(const char *name, dv__aclnn_function **out)
{
    char sizes[512];
    const size_t size = strlen(name) + 1;
    dv__aclnn_function *f = calloc(1, sizeof *f + size);
    if (!f)
        return dv_fail(DV_ENOMEM, "out of memory");
    snprintf(sizes, sizeof sizes, "%sGetWorkspaceSize", name);
    memcpy(f->name, name, size);
    f->get_workspace_size = dv__acl_find_function(sizes);
    f->launch = (dv_aclnn_launch_fn)dv__acl_find_function(name);
    if (f->get_workspace_size && f->launch)
        return *out = f, DV_OK;
    const int status = dv_fail(
        DV_ENOENT, "no function %s in the libraries of CANN: %s", f->get_workspace_size ? name : sizes, dv__acl_get_search_log());
    free(f);
    return status;
}

int dv__aclnn_find_function(const char *name, const dv__aclnn_function **out)
{
    const dv__aclnn_function **bucket = &function_table.buckets[function_hash_to_bucket(name)], *f;
    dv__aclnn_function *new_function = NULL;
    int status = DV_OK;
    pthread_mutex_lock(&function_table.lock);
    for (f = *bucket; f && strcmp(f->name, name); f = f->next)
        ;
    if (!f && !(status = function_look_up(name, &new_function))) {
        new_function->next = *bucket;
        f = *bucket = new_function;
    }
    pthread_mutex_unlock(&function_table.lock);
    *out = f;
    return status;
}
