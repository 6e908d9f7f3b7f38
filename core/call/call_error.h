/* Error messages of a call. */
#ifndef DV_CALL_CALL_ERROR_H
#define DV_CALL_CALL_ERROR_H

#include <stdarg.h>

#include "call/call_state.h"

/* Prints the type of a value for a message, and the value if it is one int, float or bool: "Tensor", "int[]", "int (3)",
 * "None". */
void dv__print_value_type(const dv_value *v, char *out, size_t size);
enum { DV__NO_ELEMENT = -1 }; /* as element_index: the message is about the whole slot */
/* Prints "argument 'x'", "argument 'xs[1]'" or "result 0" to buffer, and returns buffer. */
const char *dv__print_slot_name(const dv__call *c, size_t slot, int64_t element_index, char *buffer, size_t size);
/* Sets the message "op: argument 'xs[1]': ..." and returns status. */
DV__PRINTF(5, 6)
int dv__fail_slot_element(const dv__call *c, int status, size_t slot, int64_t element_index, const char *format, ...);
#define dv__fail_slot(c, status, slot, ...) dv__fail_slot_element(c, status, slot, DV__NO_ELEMENT, __VA_ARGS__)
/* Prepends "op: argument 'x': " to the thread's message, unless the message has it already. Returns status. */
int dv__fail_add_slot_context(const dv__call *c, int status, size_t slot, int64_t element_index);
/* Sets the message "op: argument 'x': expected <the slot's declared type><provider_text>, found <type of v>" and returns
 * status. provider_text: who gave the value, as " from the boxed kernel"; "": the caller. */
int dv__fail_slot_type(const dv__call *c, int status, size_t slot, const dv_value *v, const char *provider_text);
/* Fails if the metadata of a tensor is invalid (dv__tensor_check()). */
int dv__check_slot_tensor(const dv__call *c, size_t slot, int64_t element_index, const dv_tensor *t);

/* Records an error of a kernel in the call, from any thread. The first error of a call stays; later ones are dropped.
 * Returns status. */
DV__PRINTF(3, 4) int dv__call_record_error(dv__call *c, int status, const char *format, ...);
int dv__call_vrecord_error(dv__call *c, int status, const char *format, va_list args);
/* Ends a kernel or boxed function that returned `status`. If an error was recorded in the call, sets the thread's message to
 * it and returns the recorded status. Without a recorded error DV_OK is returned as it is, and another status gets a message
 * that names `kernel_name`. */
int dv__call_report_recorded_error(dv__call *c, int status, const char *kernel_name);

#endif
