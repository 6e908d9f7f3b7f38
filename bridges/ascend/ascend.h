/* Inside libdovetail_ascend. A call goes: row.c (what the row's list means, once), argument.c (values to CANN's objects),
 * invoke.c (the first phase, with arguments of any types), launch.c (workspace, and the second phase in the framework's order).
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

/* How a parameter is passed. */
enum dv__pass {
    DV__PASS_NULL,
    DV__PASS_TENSOR,
    DV__PASS_TENSORS,
    DV__PASS_SCALAR,
    DV__PASS_SCALARS,
    DV__PASS_INTS,
    DV__PASS_FLOATS,
    DV__PASS_BOOLS,
    DV__PASS_INT,    /* int64_t; also what is narrower */
    DV__PASS_DOUBLE, /* double */
    DV__PASS_FLOAT,  /* float */
    DV__PASS_BOOL,   /* bool */
    DV__PASS_TEXT,   /* char * */
    DV__PASS_DTYPE   /* aclDataType */
};

typedef struct dv__parameter {
    enum dv__pass pass;
    int slot;          /* of the operator; -1: a constant */
    dv_value constant; /* where slot is -1, or where the argument is None; DV_VALUE_DEFAULT: no such constant */
    const char *name;  /* for messages: the argument's, or the text of the constant */
} dv__parameter;

enum { DV__MAX_PARAMETERS = 128 };

typedef struct dv__aclnn_row {
    const struct dv__aclnn_row *next;
    dv_operator *op;    /* a reference, so that its address stays its own */
    const char *text;   /* the row's name, a copy */
    const char *name;   /* "aclnnAddCustom" */
    dv__function sizes; /* aclnnAddCustomGetWorkspaceSize */
    dv_aclnn_launch launch;
    size_t n;
    dv__parameter parameters[];
} dv__aclnn_row;

/* The parsed row of a running call: parsed once, and never freed. */
int dv__aclnn_row_of(const dv_running *call, const dv__aclnn_row **out);

/* ---- invoke.c ---- */

typedef struct dv__word {
    uint64_t bits;
    bool fp; /* a double, or a float in the low half */
} dv__word;
enum { DV__MAX_WORDS = DV__MAX_PARAMETERS + 2 };
int32_t dv__invoke(dv__function f, const dv__word *words, size_t n);

/* ---- argument.c ---- */

/* CANN's objects of one call: destroyed together, in any order. */
typedef struct dv__object {
    int32_t (*destroy)(const void *p);
    const void *p;
} dv__object;
typedef struct dv__objects {
    size_t n;
    dv__object all[DV__MAX_PARAMETERS];
} dv__objects;
void dv__objects_destroy(dv__objects *o);

/* Fill one word for each parameter. What was made is in objects, also on failure. */
int dv__aclnn_arguments(
    const dv_ascend_framework *f, const dv_running *call, const dv__aclnn_row *row, dv__word *words, dv__objects *objects);

/* ---- launch.c ---- */

int dv__aclnn_run(dv_context *ctx);

/* ---- host.c ---- */

extern const dv_ascend_framework dv__no_framework;
/* The framework's entry, or the default's. */
#define DV__FRAMEWORK(f, entry) \
    ((f)->size >= offsetof(dv_ascend_framework, entry) + sizeof((f)->entry) && (f)->entry ? (f)->entry : dv__no_framework.entry)
const dv_ascend_framework *dv__framework(void);

#endif
