/* A stand-in for CANN, for tests only: libascendcl.so and operators' libraries, which run on the CPU and check every descriptor,
 * order and lifetime. Streams run late, on threads of their own. What is found wrong is a line of stand_in_faults(). */
#ifndef STAND_IN_H
#define STAND_IN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#define STAND_IN __attribute__((visibility("default")))

struct aclOpExecutor;
struct aclTensor;
struct aclTensorList;
struct aclScalar;
struct aclIntArray;
struct aclFloatArray;
struct aclBoolArray;

/* ---- for tests ---- */

STAND_IN const char *stand_in_faults(void); /* a line for each fault since the start or the last clear */
STAND_IN const char *stand_in_trace(void);  /* what was called, with names in the place of addresses */
STAND_IN void stand_in_clear(void);         /* both */
STAND_IN void stand_in_end(void);       /* adds a fault for everything that is left: descriptors, executors, memory, streams */
STAND_IN void stand_in_hold(bool hold); /* streams run only while somebody waits for them */
STAND_IN void stand_in_fail(int n);     /* the n-th call from now on that can fail does; 0: none */
STAND_IN bool stand_in_failed(void);    /* has it failed? */
STAND_IN void stand_in_expect(void *stream);        /* launches on another stream are faults; NULL: any */
STAND_IN void stand_in_capture(bool on);            /* all streams are being captured */
STAND_IN void *stand_in_memory(const void *device); /* where the CPU may look at device memory; NULL: not device memory */
STAND_IN const void *stand_in_address(const struct aclTensor *t); /* returns the address on the device */
STAND_IN const struct aclTensor *stand_in_element(
    const struct aclTensorList *l, size_t i); /* returns the i-th tensor; NULL: i is past the end */
STAND_IN const int64_t *stand_in_ints(const struct aclIntArray *a, size_t *n);

/* ---- for the libraries of operators ---- */

typedef struct stand_in_tensor {
    int64_t sizes[8], strides[8];
    size_t ndim;
    int32_t dtype;
    float *data; /* the first element, for the CPU; NULL: the parameter was a null pointer */
} stand_in_tensor;

enum { STAND_IN_MOST = 64 };
typedef struct stand_in_values {
    stand_in_tensor tensors[STAND_IN_MOST];
    size_t ntensors;
    double sum; /* of all numbers, with weights by their place */
} stand_in_values;

/* Begin an executor; then one call for each parameter, in order; then done. */
STAND_IN struct aclOpExecutor *stand_in_begin(const char *op, void (*run)(const stand_in_values *v));
STAND_IN void stand_in_take_tensor(struct aclOpExecutor *e, const char *name, const struct aclTensor *t, bool optional);
STAND_IN void stand_in_take_tensors(struct aclOpExecutor *e, const char *name, const struct aclTensorList *l);
STAND_IN void stand_in_take_scalar(struct aclOpExecutor *e, const char *name, const struct aclScalar *s);
STAND_IN void stand_in_take_ints(struct aclOpExecutor *e, const char *name, const struct aclIntArray *a);
STAND_IN void stand_in_take_floats(struct aclOpExecutor *e, const char *name, const struct aclFloatArray *a);
STAND_IN void stand_in_take_bools(struct aclOpExecutor *e, const char *name, const struct aclBoolArray *a);
STAND_IN void stand_in_take_number(struct aclOpExecutor *e, const char *name, double value);
STAND_IN void stand_in_take_text(struct aclOpExecutor *e, const char *name, const char *text);
STAND_IN int32_t stand_in_done(struct aclOpExecutor *e, uint64_t workspace, uint64_t *size, struct aclOpExecutor **out);
STAND_IN int32_t stand_in_launch(const char *op, void *workspace, uint64_t size, struct aclOpExecutor *e, void *stream);

/* ---- for launchers of AscendC kernels: op<<<blocks, l2ctrl, stream>>>(args) ---- */

STAND_IN void stand_in_kernel(const char *op, uint32_t blocks, void *l2ctrl, void *stream,
    void (*kernel)(uint32_t block, const void *args), const void *args, size_t size);
STAND_IN void *stand_in_touch(const char *op, const void *p, size_t bytes); /* in a kernel: where the CPU finds this memory */

#ifdef __cplusplus
}
#endif
#endif
