/* Inside libdovetail_ascend. A call of an aclnn kernel takes these steps: row.c finds the two functions of the kernel's name,
 * once. argument.c makes CANN's objects from the call's values. invoke.c calls the first phase, with arguments of any types.
 * launch.c gets a workspace and enqueues the second phase in the framework's order. A launcher of an AscendC kernel has one
 * phase: argument.c makes addresses and numbers, launch.c enqueues the call, and invoke.c makes it.
 */
#ifndef DOVETAIL_ASCEND_INSIDE_H
#define DOVETAIL_ASCEND_INSIDE_H

#include <dovetail.h>
#include <dovetail_ascend.h>

#include "abi.h"

/* ---- library.c ---- */

extern dv_acl
    dv__acl; /* CANN's functions; once dv__acl_open_once() has succeeded, all REQUIRED ones are set, others may be NULL */
int dv__acl_open_once(void); /* opens CANN's libraries and fills dv__acl; a call after a success does nothing; returns a status */
typedef void (*dv__any_function)(void);
dv__any_function dv__acl_find_function(const char *name); /* returns a function of the libraries of operators, of which vendors'
                                                             libraries come first; NULL: no library has the function */
const char *dv__acl_get_search_log(
    void); /* returns the paths that were searched and what was found there, as text for messages */
const char *dv__acl_get_last_message(
    void); /* returns CANN's newest error message of this thread, or the text "no message from CANN" */

/* ---- row.c ---- */

typedef struct dv__aclnn_function {
    const struct dv__aclnn_function *next;
    dv__any_function get_workspace_size; /* the first phase, such as aclnnAddCustomGetWorkspaceSize() */
    dv_aclnn_launch_fn launch;
    char name[]; /* such as "aclnnAddCustom" */
} dv__aclnn_function;

/* Finds the two functions of an aclnn operator by the name of its second phase, such as "aclnnAddCustom". *out is made once for a
 * name and never freed. Returns a status: DV_ENOENT if the libraries lack a function. */
int dv__aclnn_find_function(const char *name, const dv__aclnn_function **out);

/* ---- invoke.c ---- */

typedef struct dv__argument_word {
    uint64_t bits;
    bool is_floating; /* `bits` holds a double, or a float in the low half; it is passed in a register for floats */
} dv__argument_word;
enum {
    DV__MAX_ARGUMENT_WORDS = DV_MAX_FOREIGN_ARGS + 2
}; /* the longest list of parameters, and two more that aclnn functions or launchers have besides the list */
int32_t dv__invoke_function(dv__any_function f, const dv__argument_word *words, size_t nwords);

/* ---- argument.c ---- */

/* CANN's objects that were made for one call, and how each is destroyed. dv__acl_objects_destroy() destroys all of them. */
typedef struct dv__acl_object {
    int32_t (*destroy)(const void *p);
    const void *p;
} dv__acl_object;
typedef struct dv__acl_objects {
    size_t n;
    dv__acl_object entries[DV_MAX_FOREIGN_ARGS];
} dv__acl_objects;
void dv__acl_objects_destroy(dv__acl_objects *o);

/* Fills one word for each parameter of the kernel's list. `objects` receives the objects that were made, also after a failure.
 * Returns a status. */
int dv__aclnn_fill_arguments(
    const dv_ascend_framework *f, const dv_running_call *call, dv__argument_word *words, dv__acl_objects *objects);
/* Fills the words for a launcher, which has two parameters more than the list: (blockDim, l2ctrl, stream, the rest of the list).
 * `objects` receives the objects that were made, also after a failure. Returns a status. */
int dv__launcher_fill_arguments(
    const dv_ascend_framework *f, const dv_running_call *call, void *stream, dv__argument_word *words, dv__acl_objects *objects);

/* ---- launch.c ---- */

int dv__aclnn_run_kernel(dv_context *ctx);
int dv__launcher_run_kernel(dv_context *ctx, dv__any_function launcher);
void dv__print_late_failure(char *message_out, size_t capacity); /* writes to message_out the failure of a task that failed
                                                          after its call had returned, whether it was reported or not; "": none */

/* ---- host.c ---- */

extern const dv_ascend_framework dv__default_framework;
/* Gives the framework's function for an entry, or the default's if the framework has none. */
#define DV__FRAMEWORK_ENTRY(f, entry)                                                                  \
    ((f)->size >= offsetof(dv_ascend_framework, entry) + sizeof((f)->entry) && (f)->entry ? (f)->entry \
                                                                                          : dv__default_framework.entry)
const dv_ascend_framework *dv__get_framework(
    void); /* returns the framework that dv_ascend_open() has set; NULL: the library is not open */
const dv_ascend_framework *dv__exchange_framework(
    const dv_ascend_framework *new_framework); /* sets the framework, and returns the one that was set before */
const dv_ascend_framework *dv__find_framework_of_host(
    const dv_host *host); /* returns the framework for calls of this host: MindSpore's own, or the one that is set */

#endif
