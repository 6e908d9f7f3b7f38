/* The state of one call, shared by its stages. The struct is on the stack of dv_call() and is not cleared: each stage sets
 * the members that it owns. A file of this folder uses only files before it in the list CALL of tools/check_layers.py. */
#ifndef DV_CALL_CALL_STATE_H
#define DV_CALL_CALL_STATE_H

#include <assert.h>
#include <stdatomic.h>

#include "dovetail_test.h"
#include "registry/registry.h"
#include "tensor/tensor.h"

enum { DV__MAX_RETURNS = 32, DV__MAX_STACK_VALUES = 64, DV__MAX_STACK_FRAME_SIZE = 2048, DV__MAX_CALL_MESSAGE_SIZE = 2048 };

/* True if the host has this entry and its pointer is not NULL. A host built with an older header has a shorter struct. */
#define DV__HOST_HAS(h, entry) ((h) && (h)->size >= offsetof(dv_host, entry) + sizeof((h)->entry) && (h)->entry)
static inline const dv_test_hooks *dv__test_hooks(const dv_host *h) { return DV__HOST_HAS(h, test) ? h->test : NULL; }
/* True if the test hooks of the host select a kernel or forbid slices. Such a call is not cached. */
static inline bool dv__has_kernel_test_override(const dv_host *host)
{
    const dv_test_hooks *test = dv__test_hooks(host);
    return test && (test->kernel_number || test->no_split);
}
static inline uint32_t dv__host_flags(const dv_host *h) { return h ? h->flags : 0; }

/* Source of a result's value. */
enum dv__result_origin {
    DV__RESULT_ABSENT,         /* the result is None: the contract's selected case has no such result */
    DV__RESULT_GIVEN,          /* the result is a tensor that the caller passed for it */
    DV__RESULT_ALLOCATED,      /* the result is a new tensor, which the host allocated before the kernel */
    DV__RESULT_ALIAS,          /* the result is an argument itself */
    DV__RESULT_PENDING,        /* the result is a tensor whose size the kernel sets by dv_set_output() */
    DV__RESULT_SCALAR,         /* the result is an int, float or bool, in dv__result.value */
    DV__RESULT_LIST,           /* the result is a list of tensors that the caller passed */
    DV__RESULT_ALLOCATED_LIST, /* the result is a list of new tensors of the host. This library allocates the array of pointers:
                                * the caller frees it after a successful call, dv__transfer_or_free_results() after a failed one
                                */
};

typedef struct dv__result {
    enum dv__result_origin origin;
    dv_tensor *tensor; /* the result's tensor, with origin GIVEN, ALLOCATED or ALIAS */
    dv_tensor
        *made; /* the tensor that the host made for this result: passed to the caller on success, freed on failure; NULL: none */
    dv_tensor descriptor;     /* the metadata that dv_set_output() fills: with origin PENDING, and for shape functions */
    dv_value value;           /* the result's value, with origin SCALAR, LIST or ALLOCATED_LIST */
    bool output_was_set;      /* true once dv_set_output() was called for the result */
    const int64_t *max_sizes; /* with origin PENDING: the upper bound of each size; NULL: not known */
    dv_tensor *passed;        /* with origin PENDING: the tensor that the caller passed for this result; NULL: none */
    bool is_view;             /* with origin ALLOCATED: the result shares an argument's memory, so the kernel need not fill it */
} dv__result;

/* A contiguous copy of a tensor whose layout the kernel does not accept. */
typedef struct dv__staging_copy {
    dv_tensor copy;
    struct dv__staging_copy *next;
    const dv_tensor *original;
    dv_tensor *host_tensor; /* the tensor of the host that holds the copy; NULL: the copy has memory of this library */
    void *test_memory;      /* the copy's memory, if the test hooks' alloc() gave it; NULL: the memory follows this struct */
    bool copy_in, copy_back;
    bool is_deferred;  /* true while copy.data is NULL; stays true if is_cut */
    bool is_cut;       /* true if each slice copies its own part, so that the copy never gets memory */
    void *late_memory; /* memory that the copy got in the end, if it was deferred; NULL: none */
    int64_t dims[];
} dv__staging_copy;

/* Who makes a nested call. 0: the host makes the call. */
enum dv__nested_flags {
    DV__NESTED_IN_KERNEL = 1, /* a kernel makes the call. The kernel's thread may not hold the host's lock (Python's GIL), so no
                             function of the host is called, and this library allocates CPU memory */
    DV__NESTED_TEMPORARY = 2, /* a decomposition makes the call, and the results are its temporaries */
};

/* Makes a call from inside another one: from a formula or a kernel that calls an operator. */
typedef int (*dv__nested_call_fn)(dv_operator *op, const dv_value *args, size_t nargs, dv_value *results, size_t nresults,
    const dv_host *host, uint32_t nested_flags);

enum dv__stage { DV__STAGE_KERNEL, DV__STAGE_SHAPE };

typedef struct dv__call {
    dv_operator *op;
    const dv__signature *signature;
    const dv_value *args; /* signature->nargs values, with defaults filled in and converted to the schema's types */
    dv_value *results;    /* the caller's array: written at the end, on success only */
    const dv_host *host;
    uint32_t nested_flags; /* enum dv__nested_flags */
    dv__nested_call_fn nested_call;
    dv_device device;
    dv__arena arena; /* memory of converted values and other data of the call */
    dv__staging_copy *staging_copies;

    /* The first error of a call is recorded, on whichever thread it occurs: the thread that changes has_error from 0 to 1
     * sets message and status. */
    atomic_int has_error;
    atomic_int status;

    int policy_decision;         /* the policy's decision: 1 the operator's kernels, 0 the decomposition, -1 not known yet */
    const dv_value *passed_args; /* the values as the caller passed them, for the call cache */
    size_t npassed_args;
    struct dv__call_cache_entry *cache_slot; /* the entry of the call cache in which this call may be stored (call_cache.c); NULL:
                                                the call is not cached */
    uint64_t call_key;

    enum dv__stage stage;
    const dv__kernel *kernel; /* the running kernel; set before the kernel function is called */
    bool in_kernel;           /* true from the host's before_kernel() to its after_kernel() */
    bool ran_unsplit;         /* true if the kernel function was called once, for the whole call */
    bool exceeds_cache;       /* true if results and written arguments have at least as many bytes as the last-level cache */
    bool shapes_only;         /* true if no kernel runs, so that tensors need no memory */
    int64_t workspace;
    int64_t max_numel;                 /* number of elements of the largest tensor */
    atomic_uint_fast64_t random_state; /* state of a split call's random numbers. 0: none reserved; 1: a slice reserves them;
                                        * UINT64_MAX: the reservation failed; else 2 + the reserved offset */
    uint64_t random_seed;

    dv__solution solution;
    size_t nouts; /* number of valid entries in `outs`: 0 before dv__mark_results_absent() */
    dv__result outs[DV__MAX_RETURNS];
    const dv_tensor *tensors[DV__MAX_SLOTS]; /* by slot: the tensor that the kernel gets; NULL: None, or no tensor */
    dv__span spans[DV__MAX_SLOTS];           /* by slot: the addresses of the caller's tensor; set by dv__bind_values() */
    dv_tensors lists[DV__MAX_SLOTS];         /* by slot: the list of tensors that the kernel gets */
    bool has_given_result;                   /* true if the caller passed a tensor or a list for some result */
    bool all_contiguous; /* true if every tensor of the call is contiguous; false if a result's size depends on data */
    dv_value values[DV__MAX_STACK_VALUES]; /* memory of args, if defaults or conversions were needed for at most
                                              DV__MAX_STACK_VALUES arguments */
    char message[DV__MAX_CALL_MESSAGE_SIZE];
} dv__call;

/* Sets the members of a new call that every call has, before its arguments are bound. */
static inline void dv__call_set_initial_state(
    dv__call *c, dv_operator *op, dv_value *results, const dv_host *host, uint32_t nested_flags)
{
    c->op = op;
    c->signature = op->signature;
    c->results = results;
    c->host = host;
    c->nested_flags = nested_flags;
    c->arena.blocks = NULL;
    c->staging_copies = NULL;
    c->nouts = 0;
    c->in_kernel = c->shapes_only = c->exceeds_cache = false;
    c->stage = DV__STAGE_KERNEL;
    atomic_init(&c->has_error, 0);
    atomic_init(&c->status, 0);
    atomic_init(&c->random_state, 0);
}

/* Returns the number of the kernel that the test hooks request for this call, as dv_test_hooks.kernel_number has it. 0: no
 * request; nested calls have none. */
static inline int32_t dv__requested_kernel_number(const dv__call *c)
{
    const dv_test_hooks *test = c->nested_flags ? NULL : dv__test_hooks(c->host);
    return test ? test->kernel_number : 0;
}

#endif
