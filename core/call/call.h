/* One call, from values to results: what its stages share.
 *
 * values.c   the caller's values, completed with defaults and checked against the schema
 * call.c     dispatch: guards, keys, tables; boxed kernels
 * run.c      contract, results, kernel row, frame, kernel
 * again.c    calls like one before, which need nothing of the above again
 * results.c  what each result must be, and where it comes from
 * memory.c   overlaps; contiguous copies and copying back; workspace
 * split.c    slices along parallel dims
 * pool.c     threads
 * services.c what a kernel can ask for
 * native.c   native forms, gradients, tangents
 * frame.c    calls from a struct; explain.c: why a row was taken; infer.c: shapes only
 *
 * The struct lives on the stack of dv_call() and is not cleared: each stage sets what it owns. */
#ifndef DV_CALL_CALL_H
#define DV_CALL_CALL_H

#include <assert.h>
#include <stdatomic.h>

#include "base/error.h"
#include "registry/registry.h"
#include "tensor/tensor.h"

enum { DV__MAX_RETURNS = 32, DV__STACK_VALUES = 64, DV__STACK_FRAME = 2048, DV__MESSAGE = 2048 };

/* Which entry of a host may be called: a host of an older header is shorter. */
#define DV__HOST(h, entry) ((h) && (h)->size >= offsetof(dv_host, entry) + sizeof((h)->entry) && (h)->entry)
static inline uint32_t dv__host_flags(const dv_host *h) { return h ? h->flags : 0; }

/* Where a result comes from. */
enum dv__origin {
    DV__RESULT_ABSENT,  /* in this case of the contract: None */
    DV__RESULT_GIVEN,   /* the caller's tensor */
    DV__RESULT_MADE,    /* the host's */
    DV__RESULT_ALIAS,   /* an argument */
    DV__RESULT_PENDING, /* the kernel makes it with dv_set_output() */
    DV__RESULT_SCALAR,  /* int, float, bool: in value */
    DV__RESULT_LIST,    /* a given list of tensors */
};

typedef struct dv__result {
    enum dv__origin origin;
    dv_tensor *tensor;     /* GIVEN, MADE, ALIAS */
    dv_tensor *made;       /* by the host for this result: the caller's on success, given back on failure; NULL: nothing */
    dv_tensor header;      /* PENDING, and for shape functions: what dv_set_output() fills */
    dv_value value;        /* SCALAR, LIST */
    bool set;              /* dv_set_output() was called */
    const int64_t *bounds; /* PENDING: the largest sizes; NULL: not known */
    dv_tensor *given;      /* PENDING: the caller's tensor for it, or NULL */
    bool view;             /* MADE: shares an argument's memory, and nothing needs to fill it */
} dv__result;

/* A contiguous stand-in for a tensor, with its own memory. */
typedef struct dv__temp {
    dv_tensor t;
    struct dv__temp *next;
    const dv_tensor *original;
    dv_tensor *hosts; /* the host's tensor; NULL: own memory */
    void *lent;       /* memory of the host's alloc; NULL: it follows this struct */
    bool copy_in, copy_back;
    int64_t dims[];
} dv__temp;

/* Bytes that a tensor can touch. empty: begin == end. */
typedef struct dv__span {
    uintptr_t begin, end;
    bool contiguous;
} dv__span;

/* How a call came about. */
enum dv__inner {
    DV__INNER_KERNEL = 1,    /* from inside a kernel: its thread may have given the host's lock back, so the host's hooks are not
                                called, and memory on the cpu is our own */
    DV__INNER_TEMPORARY = 2, /* its results are temporaries of a native form */
};

enum dv__stage { DV__STAGE_KERNEL, DV__STAGE_SHAPE };

typedef struct dv__call {
    dv_operator *op;
    const dv__plan *plan;
    const dv_value *args; /* plan->nargs of them, all there */
    dv_value *results;    /* the caller's: written at the end, on success */
    const dv_host *host;
    uint32_t inner; /* enum dv__inner */
    dv_device device;
    dv__arena arena; /* converted values */
    dv__temp *temps;

    /* The first error wins, whichever thread sets it: failing goes 0 -> 1 once, and then message and status are its. */
    atomic_int failing;
    atomic_int status;

    int decision;           /* the policy's: 1 its kernels, 0 the native form, -1 not asked yet */
    const dv_value *passed; /* what the caller passed, to be remembered */
    size_t npassed;

    enum dv__stage stage;
    bool in_kernel; /* between before_kernel and after_kernel */
    bool whole;     /* it was not split */
    int64_t workspace;
    int64_t most;                /* elements of the largest tensor */
    atomic_uint_fast64_t random; /* 0, or 1 + where the random numbers of a split call begin */
    uint64_t random_seed;

    dv__solution solution;
    size_t nouts; /* 0 until dv__begin_results(): nothing of outs may be read before */
    dv__result outs[DV__MAX_RETURNS];
    const dv_tensor *tensors[DV__MAX_SLOTS]; /* what the kernel sees in each slot that is one tensor; NULL: None */
    dv__span spans[DV__MAX_SLOTS];           /* of the same slots */
    dv_tensors lists[DV__MAX_SLOTS];         /* the same of slots that are lists of tensors */
    bool any_given, all_contiguous;          /* results; tensors */
    dv_value values[DV__STACK_VALUES];       /* args, when they had to be completed */
    char message[DV__MESSAGE];
} dv__call;

/* The row that the host asks for, of the outermost call: its `row`. */
static inline int32_t dv__asked_row(const dv__call *c) { return !c->inner && DV__HOST(c->host, row) ? c->host->row : 0; }

/* One slice of a call, or all of it. Its context is what the kernel sees. */
typedef struct dv__slice {
    dv_context ctx;
    dv__call *call;
    struct dv__block *blocks; /* dv_alloc() */
    int64_t index;            /* -1: not split */
    uint64_t random_used;
} dv__slice;

/* ---- values.c ---- */

/* Complete and check the arguments into c->args and find the keys of the devices that they are on. */
int dv__bind_values(dv__call *c, const dv_value *args, size_t nargs, uint32_t *keys);
void dv__print_value_type(const dv_value *v, char *out, size_t size);
DV__PRINTF(4, 5) int dv__fail_argument(const dv__call *c, int status, size_t slot, const char *format, ...);
/* A list of the right type: its length and elements. */
int dv__check_list(dv__call *c, size_t slot, dv_value *v);
int dv__check_tensor(const dv__call *c, size_t slot, const dv_tensor *t);             /* it is sound (tensor/tensor.h) */
const char *dv__slot_name(const dv__call *c, size_t slot, char *buffer, size_t size); /* "argument x", "result 0" */

/* ---- call.c ---- */

int dv__call_values(
    dv_operator *op, const dv_value *args, size_t nargs, dv_value *results, size_t nresults, const dv_host *host, uint32_t inner);
int dv__call_init(dv__call *c, dv_operator *op, dv_value *results, size_t nresults, const dv_host *host, uint32_t inner);
/* The end of every call that was begun, whatever became of it: on success the results become the caller's, on failure what the
 * host made for them is given back; stand-ins and converted values are freed. Gives the status. */
int dv__call_end(dv__call *c, int status);
/* The entry for these keys, of those below a key (DV_KEY_RUNTIME_COUNT: of all); never a fallthrough. DV_ENOKERNEL. */
int dv__call_entry(const dv__call *c, uint32_t keys, int below, const dv__entry **out);

/* ---- run.c ---- */

int dv__run_rows(dv__call *c, const dv__entry *entry);
int dv__run_native(dv__call *c);                 /* native.c: args are bound and solved */
int dv__run_views(dv__call *c, bool *all_views); /* an operator whose results are all views needs no kernel */
int dv__run_contract(dv__call *c);               /* outputs only: on Meta */
int dv__solve(dv__call *c);                      /* contract, or without one that all tensors are on one device */
/* The first row that fits, or NULL. *status: a predicate could not be evaluated. */
const dv__row *dv__choose_row(dv__call *c, const dv__entry *entry, int *status);
/* Why a row does not fit, in words; NULL: it fits. */
const char *dv__row_reason(dv__call *c, const dv__row *row, char *buffer, size_t size);
int dv__no_row(dv__call *c, const dv__entry *entry); /* DV_ENOKERNEL with all reasons */
/* A C shape function says what the results are: there is no contract, or it leaves them to one ([...]). */
bool dv__uses_shape(const dv_operator *op);
void dv__begin_results(dv__call *c); /* every result is absent, and nothing is made */
int dv__make_results(dv__call *c);
void dv__fill_frame(dv__call *c, const dv__binding *b, char *frame);
/* The call's error becomes the thread's message. */
int dv__report(dv__call *c, int status, const char *who);

int dv__run_shape(dv__call *c);      /* what the shape function says of each result, into c->outs[].header */
int dv__too_many(const dv__call *c); /* more slots than a call has room for: DV_ELIMIT */

/* ---- memory.c ---- */

/* Find the tensors, arguments or results, and what they span. */
int dv__gather_args(dv__call *c);
int dv__gather_results(dv__call *c);
int dv__check_overlaps(dv__call *c);
/* Make stand-ins for tensors that the row does not take as they are; then fill them; then, after the kernel, copy back. */
int dv__make_temps(dv__call *c, const dv__row *row);
int dv__copy_in(dv__call *c);
int dv__copy_back(dv__call *c);
void dv__free_temps(dv__call *c);
int dv__new_tensor(const dv__call *c, int index, dv_dtype dtype, dv_device device, int32_t ndim, const int64_t *shape,
    const int64_t *strides, dv_tensor **out);
/* What the host's function said of the tensor in *out: it is there, or the status is not DV_OK. */
int dv__made_by_host(const dv__call *c, int status, dv_tensor **out);
void dv__free_tensor(const dv__call *c, dv_tensor *t);
int dv__host_copy(const dv_host *host, const dv_tensor *dst, const dv_tensor *src);

/* ---- split.c ---- */

/* Run the row's kernel over the whole or in slices. */
int dv__run_kernel(dv__call *c, const dv__row *row, const void *frame, int64_t workspace, void *stream);

/* The kernel over everything at once. */
int dv__run_whole(dv__call *c, const dv__row *row, const void *frame, int64_t workspace, void *stream);

/* ---- again.c ---- */

/* If this call is like one that this thread remembers: make it, set *status, and return true. Else only c->decision is set. */
bool dv__call_again(dv__call *c, dv_operator *op, const dv_value *args, size_t nargs, dv_value *results, size_t nresults,
    const dv_host *host, int *status);
/* Remember a call that has just gone well, before its results are published. from: the table's entry that gave the row. */
void dv__remember(dv__call *c, const dv_value *args, size_t nargs, const dv__entry *from, const dv__row *row, int64_t workspace);

/* ---- services.c ---- */

void dv__slice_init(dv__slice *s, dv__call *c);
void dv__slice_deinit(dv__slice *s);
/* Memory that is freed with the slice: NULL with the call's error set. use: enum dv_memory_use, or -1 for what no kernel sees. */
void *dv__slice_alloc(dv__slice *s, int use, size_t bytes, size_t alignment);
DV__PRINTF(3, 4) int dv__call_error(dv__call *c, int status, const char *format, ...);
extern const dv_services dv__services;

/* ---- pool.c ---- */

/* Run fn(arg, i) for i in [0, n), each once, on the host's threads or the pool's, and wait. The first non-zero return stops what
 * has not begun and is returned. Inside another dv__parallel() it runs here. */
typedef int (*dv__piece_fn)(void *arg, int64_t i);
int dv__parallel(const dv_host *host, int64_t n, dv__piece_fn fn, void *arg);

/* ---- frame.c ---- */

int dv__call_named(
    const char *name, void *frame, size_t frame_size, const dv_field_decl *const *fields, const dv_host *host, uint32_t inner);

#endif
