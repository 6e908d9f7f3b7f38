/* Inside libdovetail_ascend. A call goes: row.c (the functions of the row's name, once), argument.c (values to CANN's objects),
 * invoke.c (the first phase, with arguments of any types), launch.c (workspace, and the second phase in the framework's order). A
 * launcher of an AscendC kernel has one phase: argument.c (values to addresses and numbers), launch.c, invoke.c.
 */
#ifndef DOVETAIL_ASCEND_INSIDE_H
#define DOVETAIL_ASCEND_INSIDE_H

#include <dovetail.h>
#include <dovetail_ascend.h>

#include "abi.h"

/* ---- library.c ---- */

extern dv_acl dv__acl;  /* all REQUIRED functions are set, once dv__acl_open() has succeeded */
int dv__acl_open(void); /* again: nothing */
typedef void (*dv__function)(void);
dv__function dv__acl_find(const char *name); /* in the libraries of operators, vendors' first; NULL: nowhere */
const char *dv__acl_places(void);            /* where they were searched, for messages */
const char *dv__acl_message(void);           /* CANN's newest message of this thread, or "no message" */

/* ---- row.c ---- */

typedef struct dv__aclnn_function {
    const struct dv__aclnn_function *next;
    dv__function sizes; /* aclnnAddCustomGetWorkspaceSize */
    dv_aclnn_launch launch;
    char name[]; /* "aclnnAddCustom" */
} dv__aclnn_function;

/* The two functions of a name: looked up once, and never freed. */
int dv__aclnn_function_of(const char *name, const dv__aclnn_function **out);

/* ---- invoke.c ---- */

typedef struct dv__word {
    uint64_t bits;
    bool fp; /* a double, or a float in the low half */
} dv__word;
enum { DV__MAX_WORDS = DV_MOST_ROW_ITEMS + 2 }; /* all of a list, and two more that every function of a kind has */
int32_t dv__invoke(dv__function f, const dv__word *words, size_t n);

/* ---- argument.c ---- */

/* CANN's objects of one call: destroyed together, in any order. */
typedef struct dv__object {
    int32_t (*destroy)(const void *p);
    const void *p;
} dv__object;
typedef struct dv__objects {
    size_t n;
    dv__object all[DV_MOST_ROW_ITEMS];
} dv__objects;
void dv__objects_destroy(dv__objects *o);

/* Fill one word for each parameter of the row's list. What was made is in objects, also on failure. */
int dv__aclnn_arguments(const dv_ascend_framework *f, const dv_running *call, dv__word *words, dv__objects *objects);
/* The same for a launcher, whose parameters are one more than the list: (blockDim, l2ctrl, stream, the rest of the list). */
int dv__launcher_arguments(
    const dv_ascend_framework *f, const dv_running *call, void *stream, dv__word *words, dv__objects *objects);

/* ---- launch.c ---- */

int dv__aclnn_run(dv_context *ctx);
int dv__launcher_run(dv_context *ctx, dv__function launcher);
void dv__late(char *out, size_t room); /* the newest failure of a task whose call had returned, told or not; "": none */

/* ---- host.c ---- */

extern const dv_ascend_framework dv__no_framework;
/* The framework's entry, or the default's. */
#define DV__FRAMEWORK(f, entry) \
    ((f)->size >= offsetof(dv_ascend_framework, entry) + sizeof((f)->entry) && (f)->entry ? (f)->entry : dv__no_framework.entry)
const dv_ascend_framework *dv__framework(void);
const dv_ascend_framework *dv__framework_of(const dv_host *host); /* returns the framework for calls of a host */

#endif
