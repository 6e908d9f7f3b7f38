/* The state of one call, shared by its stages. The struct is on the stack of dv_call() and is not cleared: each stage sets the
 * members that it owns. The files of this folder have an order, and each uses only those before it (tools/check_layers.py):
 * state, fail, frame, values, host, pool, services, results, memory, split, evaluate, native, functional, again, rows, call,
 * infer, gradient, site. */
#ifndef DV_CALL_STATE_H
#define DV_CALL_STATE_H

#include <assert.h>
#include <stdatomic.h>

#include "dovetail_test.h"
#include "registry/registry.h"
#include "tensor/tensor.h"

enum { DV__MAX_RETURNS = 32, DV__STACK_VALUES = 64, DV__STACK_FRAME = 2048, DV__MESSAGE = 2048 };

/* May this entry of the host be called? The struct of a host built with an older header is shorter. */
#define DV__HOST(h, entry) ((h) && (h)->size >= offsetof(dv_host, entry) + sizeof((h)->entry) && (h)->entry)
static inline const dv_test_hooks *dv__test_hooks(const dv_host *h) { return DV__HOST(h, test) ? h->test : NULL; }
/* Do the hooks of a test choose how the row runs? Then no call before says how this one does. */
static inline bool dv__test_chooses(const dv_host *h)
{
    const dv_test_hooks *test = dv__test_hooks(h);
    return test && (test->row || test->whole);
}
static inline uint32_t dv__host_flags(const dv_host *h) { return h ? h->flags : 0; }

/* Where a result comes from. */
enum dv__origin {
    DV__RESULT_ABSENT,    /* in this case of the contract: None */
    DV__RESULT_GIVEN,     /* the caller's tensor */
    DV__RESULT_MADE,      /* the host's */
    DV__RESULT_ALIAS,     /* an argument */
    DV__RESULT_PENDING,   /* the kernel makes it with dv_set_output() */
    DV__RESULT_SCALAR,    /* int, float, bool: in value */
    DV__RESULT_LIST,      /* a given list of tensors */
    DV__RESULT_MADE_LIST, /* a list of the host's tensors; the array is our own until the caller has it */
};

typedef struct dv__result {
    enum dv__origin origin;
    dv_tensor *tensor;     /* GIVEN, MADE, ALIAS */
    dv_tensor *made;       /* made by the host for this result: passed to the caller on success, freed on failure; NULL: none */
    dv_tensor header;      /* PENDING, and for shape functions: what dv_set_output() fills */
    dv_value value;        /* SCALAR, LIST, MADE_LIST */
    bool set;              /* dv_set_output() was called */
    const int64_t *bounds; /* PENDING: the largest sizes; NULL: not known */
    dv_tensor *given;      /* PENDING: the caller's tensor for it, or NULL */
    bool view;             /* MADE: shares an argument's memory, so the kernel need not fill it */
} dv__result;

/* A contiguous stand-in for a tensor, with its own memory. */
typedef struct dv__temp {
    dv_tensor t;
    struct dv__temp *next;
    const dv_tensor *original;
    dv_tensor *hosts; /* the host's tensor; NULL: own memory */
    void *lent;       /* memory from the host's alloc; NULL: it follows this struct */
    bool copy_in, copy_back;
    int64_t dims[];
} dv__temp;

/* How a call came about. */
enum dv__inner {
    DV__INNER_KERNEL = 1,    /* a call from inside a kernel: its thread may have released the host's lock, so the host's functions
                                are not called, and CPU memory is allocated by the library */
    DV__INNER_TEMPORARY = 2, /* its results are temporaries of a native form */
};

/* Makes a call from inside another one: from a formula or a kernel that calls an operator. */
typedef int (*dv__enter_fn)(
    dv_operator *op, const dv_value *args, size_t nargs, dv_value *results, size_t nresults, const dv_host *host, uint32_t inner);

enum dv__stage { DV__STAGE_KERNEL, DV__STAGE_SHAPE };

typedef struct dv__call {
    dv_operator *op;
    const dv__plan *plan;
    const dv_value *args; /* plan->nargs of them, all there */
    dv_value *results;    /* the caller's: written at the end, on success */
    const dv_host *host;
    uint32_t inner; /* enum dv__inner */
    dv__enter_fn enter;
    dv_device device;
    dv__arena arena; /* converted values */
    dv__temp *temps;

    /* The first error is kept, from any thread: the thread that changes failing from 0 to 1 sets message and status. */
    atomic_int failing;
    atomic_int status;

    int decision;           /* the policy's decision: 1 the operator's kernels, 0 the native form, -1 not known yet */
    const dv_value *passed; /* what the caller passed, to be remembered */
    size_t npassed;
    struct dv__memory *place; /* where this thread would remember the call (again.c); NULL: it is not remembered */
    uint64_t look;

    enum dv__stage stage;
    const dv__row *row; /* that runs; set before it does */
    bool in_kernel;     /* between before_kernel and after_kernel */
    bool whole;         /* it was not split */
    bool large;         /* what it writes is larger than the last cache */
    bool infers;        /* no kernel runs, so tensors need no memory */
    int64_t workspace;
    int64_t most;                /* elements of the largest tensor */
    atomic_uint_fast64_t random; /* 0, or 1 + where the random numbers of a split call begin */
    uint64_t random_seed;

    dv__solution solution;
    size_t nouts; /* 0 until dv__begin_results(): outs may not be read before */
    dv__result outs[DV__MAX_RETURNS];
    const dv_tensor *tensors[DV__MAX_SLOTS]; /* what the kernel sees in each slot that is one tensor; NULL: None */
    dv__span spans[DV__MAX_SLOTS];           /* of the same slots; of what the caller gave since dv__bind_values() */
    dv_tensors lists[DV__MAX_SLOTS];         /* the same of slots that are lists of tensors */
    bool any_given;                          /* a result */
    bool all_contiguous;                     /* all tensors, and all are known */
    dv_value values[DV__STACK_VALUES];       /* args, when they had to be completed */
    char message[DV__MESSAGE];
} dv__call;

static inline void dv__call_begin(dv__call *c, dv_operator *op, dv_value *results, const dv_host *host, uint32_t inner)
{
    c->op = op;
    c->plan = op->plan;
    c->results = results;
    c->host = host;
    c->inner = inner;
    c->arena.blocks = NULL;
    c->temps = NULL;
    c->nouts = 0;
    c->in_kernel = c->infers = c->large = false;
    c->stage = DV__STAGE_KERNEL;
    atomic_init(&c->failing, 0);
    atomic_init(&c->status, 0);
    atomic_init(&c->random, 0);
}

/* The row that the host asks for, of the outermost call: its `row`. */
static inline int32_t dv__asked_row(const dv__call *c)
{
    const dv_test_hooks *test = c->inner ? NULL : dv__test_hooks(c->host);
    return test ? test->row : 0;
}

#endif
