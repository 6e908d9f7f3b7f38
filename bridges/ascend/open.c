/* dv_ascend_open(): opens CANN's libraries, so that kernels for NPUs can be called. */
#include <pthread.h>

#include "ascend.h"

int dv_ascend_open(const dv_ascend_framework *f)
{
    static const dv_aclnn aclnn = { sizeof aclnn, 0, dv__aclnn_run_kernel, dv__launcher_run_kernel };
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&lock);
    int status = dv__acl_open_once();
    if (!status && !dv__exchange_framework(f ? f : &dv__default_framework) &&
        (status = dv_register_query_extension("dovetail.aclnn", &aclnn)))
        dv__exchange_framework(NULL);
    pthread_mutex_unlock(&lock);
    return status;
}
