/* The rest of libascendcl.so, as much as torch_npu needs to start, allocate, copy and record events; and the names that it links
 * to and that nothing here calls. */
#include "stand_in.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define API STAND_IN
#define CALL(name, ...)            \
    API int32_t name(__VA_ARGS__); \
    API int32_t name(__VA_ARGS__)

int32_t aclrtSynchronizeStream(void *stream);
int32_t aclrtCreateStream(void **out);

CALL(aclInit, const char *config) { return (void)config, 0; }
CALL(aclFinalize, void) { return 0; }
CALL(aclrtGetDevice, int32_t *out) { return *out = 0; }
CALL(aclrtGetDeviceCount, uint32_t *out) { return *out = 1, 0; }
CALL(aclrtResetDevice, int32_t device) { return (void)device, 0; }
CALL(aclrtGetCurrentContext, void **out) { return *out = &aclInit == NULL ? NULL : (void *)out, 0; }
CALL(aclrtSetCurrentContext, void *context) { return (void)context, 0; }
CALL(aclGetDeviceCapability, uint32_t device, int32_t what, int64_t *out) { return (void)device, (void)what, *out = 8, 0; }
CALL(aclrtDeviceCanAccessPeer, int32_t *out, int32_t a, int32_t b) { return (void)a, (void)b, *out = 0; }
CALL(aclrtDeviceGetBareTgid, int32_t *out) { return *out = 1, 0; }
CALL(aclrtGetMemInfo, int32_t what, size_t *free_bytes, size_t *total)
{
    (void)what;
    *free_bytes = *total = (size_t)8 << 30;
    return 0;
}
CALL(aclrtGetSysParamOpt, int32_t what, int64_t *out) { return (void)what, *out = 0; }
CALL(aclrtCtxGetSysParamOpt, int32_t what, int64_t *out) { return (void)what, *out = 0; }
CALL(aclrtSetSysParamOpt, int32_t what, int64_t value) { return (void)what, (void)value, 0; }
CALL(aclrtCtxSetSysParamOpt, int32_t what, int64_t value) { return (void)what, (void)value, 0; }
int32_t aclrtMalloc(void **out, size_t size, int32_t policy);
CALL(aclrtMallocAlign32, void **out, size_t size, int32_t policy) { return aclrtMalloc(out, size, policy); }
API const char *aclrtGetSocName(void);
API const char *aclrtGetSocName(void) { return "Ascend910B1"; }

CALL(aclrtMallocHost, void **out, size_t size) { return *out = malloc(size + 1), *out ? 0 : 1; }
CALL(aclrtFreeHost, void *p) { return free(p), 0; }
CALL(aclrtMemset, void *p, size_t room, int32_t value, size_t size)
{
    void *cpu = stand_in_memory(p);
    return cpu && size <= room ? (memset(cpu, value, size), 0) : 1;
}
CALL(aclrtCreateStreamWithConfig, void **out, uint32_t priority, uint32_t flags)
{
    return (void)priority, (void)flags, aclrtCreateStream(out);
}

typedef struct attributes { uint32_t device, where, page, reserved[4]; } attributes;
CALL(aclrtPointerGetAttributes, const void *p, attributes *out)
{
    return *out = (attributes){ .where = stand_in_memory(p) ? 1 : 2 }, 0;
}

/* An event remembers its stream, and is never freed: a queue may still hold it; waiting for it waits for everything on that
 * stream, which is more than is asked. */
typedef struct event { void *stream; } event;
CALL(aclrtCreateEventExWithFlag, void **out, uint32_t flag) { return (void)flag, *out = calloc(1, sizeof(event)), *out ? 0 : 1; }
CALL(aclrtCreateEventWithFlag, void **out, uint32_t flag) { return aclrtCreateEventExWithFlag(out, flag); }
CALL(aclrtDestroyEvent, void *p) { return (void)p, 0; }
CALL(aclrtRecordEvent, event *e, void *stream) { return e->stream = stream, 0; }
CALL(aclrtResetEvent, event *e, void *stream) { return (void)stream, e->stream = NULL, 0; }
CALL(aclrtSynchronizeEvent, event *e) { return aclrtSynchronizeStream(e->stream); }
CALL(aclrtStreamWaitEvent, void *stream, event *e) { return (void)stream, aclrtSynchronizeStream(e->stream); }
CALL(aclrtQueryEventStatus, event *e, int32_t *status) { return *status = !aclrtSynchronizeStream(e->stream), 0; }
CALL(aclrtEventElapsedTime, float *ms, event *a, event *b) { return (void)a, (void)b, *ms = 1, 0; }

/* clang-format off */
#define NAMES(X) \
    X(MsprofGetHashId) X(MsprofRegisterCallback) X(MsprofReportAdditionalInfo) X(MsprofReportApi) \
    X(MsprofReportCompactInfo) X(MsprofSysCycleTime) X(aclAppLog) X(aclCreateDataBuffer) X(aclCreateTensorDesc) \
    X(aclDestroyDataBuffer) X(aclDestroyTensorDesc) X(aclGetTensorDescDimV2) X(aclGetTensorDescFormat) \
    X(aclGetTensorDescNumDims) X(aclGetTensorDescType) X(aclSetTensorDescName) X(aclSetTensorFormat) \
    X(aclSetTensorPlaceMent) X(aclSetTensorShape) X(aclmdlFinalizeDump) X(aclmdlInitDump) X(aclmdlSetDump) \
    X(aclopCompileAndExecute) X(aclopCreateAttr) X(aclopDestroyAttr) X(aclopSetAttrBool) X(aclopSetAttrDataType) \
    X(aclopSetAttrFloat) X(aclopSetAttrInt) X(aclopSetAttrListBool) X(aclopSetAttrListFloat) X(aclopSetAttrListInt) \
    X(aclopSetAttrListListInt) X(aclopSetAttrString) X(aclrtBinaryGetFunction) X(aclrtBinaryLoadFromData) \
    X(aclrtDeviceEnablePeerAccess) X(aclrtFreePhysical) X(aclrtGetFunctionAddr) X(aclrtMallocPhysical) X(aclrtMapMem) \
    X(aclrtMemExportToShareableHandle) X(aclrtMemImportFromShareableHandle) X(aclrtMemSetPidToShareableHandle) \
    X(aclrtProcessReport) X(aclrtReleaseMemAddress) X(aclrtReserveMemAddress) X(aclrtUnmapMem) X(rtDevBinaryRegister) \
    X(rtFunctionRegister) X(rtGetC2cCtrlAddr) X(rtKernelLaunch) X(aclrtDestroyStreamForce) X(aclrtSetOpExecuteTimeOut) \
    X(aclrtSetDeviceSatMode) X(aclSetCompileopt)
/* clang-format on */
#define NAME(name) \
    CALL(name, void) { return 0; }
NAMES(NAME)
