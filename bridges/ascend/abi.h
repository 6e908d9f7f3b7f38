/* The part of CANN that the bridge uses, without CANN's headers: opaque structs, numbers of enumerations, functions (acl.def),
 * element types (dtypes.def). Sources: acl/acl_base_rt.h and acl/acl_rt.h as torch-npu 2.13 ships them; the functions of
 * aclnn/acl_meta.h as op_plugin/utils/op_api_common_base.h of the same wheel declares them. tests/ascend compares all of them
 * with those headers. */
#ifndef DOVETAIL_ASCEND_ABI_H
#define DOVETAIL_ASCEND_ABI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct aclTensor;
struct aclTensorList;
struct aclScalar;
struct aclScalarList;
struct aclIntArray;
struct aclFloatArray;
struct aclBoolArray;
struct aclOpExecutor;

enum { DV_ACL_FORMAT_NCHW = 0, DV_ACL_FORMAT_ND = 2, DV_ACL_FORMAT_NCDHW = 30, DV_ACL_FORMAT_NCL = 47 };
enum { DV_ACL_MEM_MALLOC_HUGE_FIRST = 0, DV_ACL_MEMCPY_DEVICE_TO_DEVICE = 3 };
enum { DV_ACL_MODEL_RI_CAPTURE_STATUS_NONE = 0, DV_ACL_RT_THREAD_LEVEL = 0 };

enum dv_acl_dtype { /* DV_ACL_f32 and so on */
#define DTYPE(name, number) DV_ACL_##name = number,
#include "dtypes.def"
#undef DTYPE
};

typedef struct dv_acl {
#define ACL(library, need, result, name, parameters) result(*name) parameters;
#include "acl.def"
#undef ACL
} dv_acl;

/* The second phase of every aclnn operator. The first phase, ...GetWorkspaceSize(..., uint64_t *size, aclOpExecutor **executor),
 * gives its size and executor. Returns 0, or CANN's error number. */
typedef int32_t (*dv_aclnn_launch_fn)(void *workspace, uint64_t size, struct aclOpExecutor *executor, void *stream);

#endif
