/* The two functions that a row names, in a table that only grows. What the row's list means the runtime has found at load. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ascend.h"

enum { BUCKETS = 256 };
static struct {
    pthread_mutex_t lock;
    const dv__aclnn_function *buckets[BUCKETS];
} table = { .lock = PTHREAD_MUTEX_INITIALIZER };

static size_t bucket_of(const char *name)
{
    uint32_t h = 2166136261u;
    for (; *name; name++)
        h = (h ^ (unsigned char)*name) * 16777619u;
    return h % BUCKETS;
}

static int make(const char *name, dv__aclnn_function **out)
{
    char sizes[512];
    const size_t size = strlen(name) + 1;
    dv__aclnn_function *f = calloc(1, sizeof *f + size);
    if (!f)
        return dv_fail(DV_ENOMEM, "out of memory");
    snprintf(sizes, sizeof sizes, "%sGetWorkspaceSize", name);
    memcpy(f->name, name, size);
    f->sizes = dv__acl_find(sizes);
    f->launch = (dv_aclnn_launch)dv__acl_find(name);
    if (f->sizes && f->launch)
        return *out = f, DV_OK;
    const int status = dv_fail(
        DV_ENOENT, "no function %s in the libraries of CANN: %s", f->sizes ? name : sizes, dv__acl_places());
    free(f);
    return status;
}

int dv__aclnn_function_of(const char *name, const dv__aclnn_function **out)
{
    const dv__aclnn_function **bucket = &table.buckets[bucket_of(name)], *f;
    dv__aclnn_function *made = NULL;
    int status = DV_OK;
    pthread_mutex_lock(&table.lock);
    for (f = *bucket; f && strcmp(f->name, name); f = f->next)
        ;
    if (!f && !(status = make(name, &made))) {
        made->next = *bucket;
        f = *bucket = made;
    }
    pthread_mutex_unlock(&table.lock);
    *out = f;
    return status;
}
