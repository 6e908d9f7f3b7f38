/* What fails in a call, in words. */
#ifndef DV_CALL_FAIL_H
#define DV_CALL_FAIL_H

#include <stdarg.h>

#include "call/state.h"

#define DV__ONE_MORE(name, ctype, member) +1
enum { DV__VALUE_TYPES = 2 DV_VALUES(DV__ONE_MORE) }; /* types of values, DEFAULT and NONE among them */
#undef DV__ONE_MORE
void dv__print_value_type(const dv_value *v, char *out, size_t size);
enum { DV__WHOLE = -1 }; /* not one element of a list */
/* "argument 'x'", "argument 'xs[1]'", "result 0" */
const char *dv__slot_name(const dv__call *c, size_t slot, int64_t element, char *buffer, size_t size);
DV__PRINTF(5, 6) int dv__fail_element(const dv__call *c, int status, size_t slot, int64_t element, const char *format, ...);
#define dv__fail_argument(c, status, slot, ...) dv__fail_element(c, status, slot, DV__WHOLE, __VA_ARGS__)
int dv__fail_in_slot(const dv__call *c, int status, size_t slot, int64_t element); /* put the place before the current message */
/* "expected Tensor<from>, found <v>" */
int dv__fail_type(const dv__call *c, int status, size_t slot, const dv_value *v, const char *from);
int dv__check_tensor(const dv__call *c, size_t slot, int64_t element, const dv_tensor *t); /* it is sound (tensor/tensor.h) */

/* Record an error of a kernel, from any thread; the first one is kept. Returns the status. */
DV__PRINTF(3, 4) int dv__call_error(dv__call *c, int status, const char *format, ...);
int dv__vcall_error(dv__call *c, int status, const char *format, va_list args);
/* Copy the call's error to this thread's message. */
int dv__report(dv__call *c, int status, const char *who);

#endif
