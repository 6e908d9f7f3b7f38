/* The checker: what its files share. It sits above core's public API, and is linked into the command.
 *
 * A *case* is one call of an operator: its arguments as flat data without pointers, so that it can be copied through shared
 * memory, made smaller, and printed as a program. A *row* is one kernel row (or the native form). A *property* is one thing that
 * must hold; it is one file and one line in CHECK_PROPERTIES, and knows how to try one case. A *job* is one property of one row
 * of one operator; it runs in a forked child (worker.c), which generates cases from the contract (generate.c), tries them until
 * one fails, and leaves its result in shared memory. The parent then has the failing case made smaller (shrink.c), again in
 * children. Nothing of an operator's code ever runs in the parent: what crashes is a result.
 *
 * A result is pass, fail, or "not checked, because ...". A property that cannot be sure says the last. */
#ifndef DV_CHECK_H
#define DV_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "dovetail_test.h"

/* ---- JSON (json.c): the document of dv_operator_json() ------------------------------------------------------------------- */

enum check_json_kind { CHECK_NULL, CHECK_FALSE, CHECK_TRUE, CHECK_INT, CHECK_REAL, CHECK_TEXT, CHECK_ARRAY, CHECK_OBJECT };
typedef struct check_json {
    enum check_json_kind kind;
    const char *key;                       /* of an object's member */
    const char *text;                      /* TEXT */
    int64_t i;                             /* INT; of REAL: truncated */
    double f;                              /* INT, REAL */
    const struct check_json *child, *next; /* elements or members in order */
} check_json;
/* NULL: not JSON, or out of memory. Never freed: an operator's document lives as long as the process. */
const check_json *check_json_parse(const char *text);
const check_json *check_json_get(const check_json *object, const char *key); /* NULL: no such member, or no object */
const check_json *check_json_at(const check_json *array, size_t i);          /* NULL past the end */
size_t check_json_size(const check_json *j);
const char *check_json_text(const check_json *object, const char *key); /* NULL: no such text */
bool check_json_true(const check_json *object, const char *key);
bool check_json_is(const check_json *expr, const char *kind); /* an expression of this kind: ["dim", ...] */

/* ---- A case (case.c) ----------------------------------------------------------------------------------------------------- */

enum { CHECK_DIMS = 8, CHECK_ARGS = 48, CHECK_TENSORS = 48, CHECK_LIST = 8, CHECK_STRING = 24, CHECK_RESULTS = 32 };

/* X(layout, what a report says): how a tensor's elements lie. */
#define CHECK_LAYOUTS(X)                                    \
    X(CONTIGUOUS, "contiguous")                             \
    X(TRANSPOSED, "transposed")                             \
    X(SLICED, "sliced: every second element of each dim")   \
    X(EXPANDED, "expanded: one dim with stride 0")          \
    X(PADDED, "padded: a gap after each row")               \
    X(REVERSED, "reversed: one dim with a negative stride") \
    X(FAR, "far: the elements of one dim lie 2^31 elements apart")
enum check_layout {
#define CHECK__LAYOUT(name, text) CHECK_##name,
    CHECK_LAYOUTS(CHECK__LAYOUT)
#undef CHECK__LAYOUT
        CHECK_LAYOUT_COUNT
};

/* What the elements are. Integers are in [low, high], real numbers too, drawn from the case's seed; simple: 1, 2, 3, ... in
 * range. */
enum check_fill {
    CHECK_RANDOM,
    CHECK_SIMPLE,
    CHECK_SPECIAL, /* NaN, infinities, zeros, extremes among them */
    CHECK_LAST,    /* integers: zero, and the last one is the end of the range that is farther from it */
};
typedef struct check_tensor {
    bool present; /* false: None */
    uint8_t layout, fill;
    bool outer; /* the layout changes the first dim that it can, not the last */
    dv_dtype dtype;
    int32_t ndim;
    int64_t shape[CHECK_DIMS];
    double low, high;
} check_tensor;

/* One argument in the schema's order. Tensors stand in the case's tensors, from `first` on. */
typedef struct check_value {
    uint32_t type;  /* enum dv_value_type; DEFAULT: the schema's default */
    uint32_t count; /* of a list; of a tensor 1 */
    uint32_t first;
    union {
        int64_t i;
        double f;
        bool b;
        dv_dtype dtype;
        dv_device device;
        int32_t number;
        dv_complex c;
    } as;
    int64_t ints[CHECK_LIST];  /* INTS, BOOLS */
    double floats[CHECK_LIST]; /* FLOATS, SCALARS */
    char string[CHECK_STRING];
} check_value;

/* Sizes, runs and dtypes that the contract's names stand for, in the order of its JSON: from these the tensors' shapes follow. A
 * run is at most CHECK_DIMS sizes. */
enum { CHECK_NAMES = 64, CHECK_RUNS = 16 };
typedef struct check_shape {
    int32_t n;
    int64_t d[CHECK_DIMS];
} check_shape;
typedef struct check_names {
    int64_t dims[CHECK_NAMES];
    check_shape runs[CHECK_RUNS];
    dv_dtype dtypes[CHECK_RUNS];
    int64_t elements[CHECK_LIST][4];         /* n{i} of the first four such names, for each tensor of a list */
    check_shape element_runs[CHECK_LIST][2]; /* *s{i} of the first two */
} check_names;

typedef struct check_case {
    uint64_t seed; /* of the tensors' contents */
    uint32_t nargs, ntensors;
    bool broken; /* made to lie outside the contract: names say nothing */
    check_names names;
    check_value args[CHECK_ARGS];
    check_tensor tensors[CHECK_TENSORS];
} check_case;

/* The dim of a tensor whose elements can lie far apart; -1: none. */
int32_t check_far_dim(const check_tensor *t);
/* Strides in elements for this layout, and the extent of the memory: elements in [*low, *high] around the first one (high < low:
 * none). */
void check_strides(const check_tensor *t, int64_t *strides, int64_t *low, int64_t *high);
int64_t check_numel(const check_tensor *t);
/* Write the contents of elements into memory in which the first element is at `first`. */
void check_fill_tensor(const check_tensor *t, uint64_t seed, void *first, const int64_t *strides);
/* The argument that a tensor of the case belongs to, and its name: "x", "xs[1]". */
size_t check_tensor_argument(const check_case *c, size_t tensor);
struct check_op;
void check_case_print(const struct check_op *op, const check_case *c, FILE *to); /* "x: f32[3, 4], dim: 1" */
int64_t check_case_largest(const check_case *c);                                 /* elements of the largest tensor */

/* "result 'out'", "result 0"; "2, 0, 1", the index of an element of a tensor with this shape. */
const char *check_result_name(const struct check_op *op, size_t r, char *buffer, size_t size);
void check_index_print(int32_t ndim, const int64_t *shape, int64_t element, char *out, size_t size);

/* Real numbers as every float dtype has them: the kernel's bits from a double, and back. Integers and bool are exact to 2^53. */
void check_put(void *data, int64_t i, dv_dtype dtype, double x);
double check_get(const void *data, int64_t i, dv_dtype dtype);
double check_unit(dv_dtype dtype); /* half a unit in the last place: 2^-24 for f32; 1 for what is not a float */
bool check_is_float(dv_dtype dtype);
bool check_is_integer(dv_dtype dtype); /* bool too */

/* A case's values with memory lent by the caller: what dv_call() takes. Points into itself: never copied. */
typedef struct check_values {
    dv_value values[CHECK_ARGS];
    dv_tensor tensors[CHECK_TENSORS];
    int64_t strides[CHECK_TENSORS][CHECK_DIMS];
    const dv_tensor *lists[CHECK_TENSORS];
    bool bools[CHECK_ARGS][CHECK_LIST];
    dv_scalar scalars[CHECK_ARGS][CHECK_LIST];
} check_values;
/* Tensors get an address that nobody may touch, on Meta NULL: enough for dv_infer(). */
bool check_is_untouchable(const void *address);
void check_values_make(check_values *v, const check_case *c, dv_device device);

/* ---- An operator (tree.c) ------------------------------------------------------------------------------------------------ */

typedef struct check_row {
    const char *name, *provider, *dtypes, *isa, *when, *takes; /* NULL: not given */
    int32_t index;                                             /* for dv_test_hooks.row; -1: the native form */
    bool available, reference;
    int64_t split;
} check_row;

typedef struct check_op {
    dv_operator *op;
    const char *name;   /* "ns::op.overload" */
    const char *path;   /* of its binary; NULL: it is not from a file */
    const char *source; /* of the C file that the binary was built from; NULL: it was a binary */
    size_t nargs, nresults;
    dv_slot_info slots[CHECK_ARGS + CHECK_RESULTS];
    const check_json *json, *contract; /* contract NULL: none */
    check_row *rows;                   /* those of the CPU; without one, the native form */
    size_t nrows;
    bool random; /* tagged as nondeterministic */
    bool shape_function;
    const char *too_large; /* why it cannot be checked at all; NULL: it can */
    bool foreign;          /* torch's: what is here is its schema and contract at most (op may be NULL) */
    const char *refused;   /* a binary that does not load stands here by its file's name, and this is why; NULL: it loaded */
} check_op;
/* Read what was declared. 0, or -1 with the message in dv_last_error(). Lives as long as the process. */
int check_op_init(check_op *op, dv_operator *o);
size_t check_op_slot(const check_op *op, const char *name); /* SIZE_MAX: no argument of this name */

/* Where an expression of the contract is evaluated: in a case that is being made. */
typedef struct check_env {
    const check_op *op;
    check_case *c;
    uint32_t element; /* which tensor of a list is in hand: what n{i} and *s{i} are */
} check_env;
/* The value of an expression; false: it is not known. Booleans are 0 and 1. */
bool check_eval(const check_env *e, const check_json *expr, int64_t *out);
bool check_holds(const check_env *e, const check_json *which); /* [group, case] of the contract: was it taken? null: always */
bool check_eval_dims(const check_env *e, const check_json *dims, check_shape *out); /* of a pattern: several expressions */
bool check_eval_dtype(const check_env *e, const check_json *expr, dv_dtype *out);
int check_name_index(const check_json *names, const char *name); /* -1: not among them */

/* ---- Cases (generate.c) -------------------------------------------------------------------------------------------------- */

/* Case number i of a row, drawn from seed: the same every time. False: no case was found that dv_infer() accepts. Runs shape
 * functions: in children only. */
bool check_generate(const check_op *op, const check_row *row, uint64_t seed, uint32_t i, check_case *out);
/* A case that lies just outside: number i of those made from an accepted one; false: there are no more. what: which word of the
 * contract or schema is broken. */
bool check_break(const check_op *op, const check_case *accepted, uint32_t i, check_case *out, char *what, size_t size);
/* By dv_infer(), which looks at no contents. UNFIT: it may not be run all the same: it is too large, or its contents are not what
 * the contract says. */
enum check_verdict { CHECK_ACCEPTED, CHECK_REFUSED, CHECK_UNFIT };
enum check_verdict check_judge(const check_op *op, const check_case *c);
bool check_accepts(const check_op *op, const check_case *c);
/* Tensors' shapes and dtypes anew from the case's names and arguments; false: they do not go together. */
bool check_rebuild(const check_op *op, check_case *c);

/* Make an accepted case one in which a tensor has more than 2^31 elements, by contract name number k; *wide: so has what is
 * written. Not for check_judge(). False: that cannot be done; *end: there are no more names. */
bool check_enlarge(const check_op *op, check_case *c, uint32_t k, bool *wide, bool *end);

typedef struct check_random { uint64_t state; } check_random;
uint64_t check_next(check_random *r);
int64_t check_between(check_random *r, int64_t low, int64_t high); /* both included */

/* ---- Guarded memory and calls (memory.c) --------------------------------------------------------------------------------- */

/* Which end of a buffer touches a guard page. */
enum check_end { CHECK_AT_END, CHECK_AT_BEGIN };

typedef struct check_call {
    const check_op *op;
    const check_row *row;
    enum check_end end;
    uint8_t poison; /* what outputs, workspace and malloc's memory hold before */
    uint32_t flags; /* enum dv_host_flags */
    bool whole;     /* a row with .split is not cut */
    int (*parallel_for)(
        const dv_host *host, int64_t begin, int64_t end, int64_t grain, dv_range_fn fn, void *arg); /* NULL: core's threads */
    /* Out: */
    int status;        /* of dv_call() */
    bool not_this_row; /* the row does not fit this case */
    bool kernel_ran;   /* else it was refused before */
    dv_value results[CHECK_RESULTS];
    const dv_tensor *listed[CHECK_TENSORS]; /* the tensors of results that are lists */
} check_call;
/* Make the case's tensors in guarded memory, inputs read-only, and call the operator. Results stay until the next call. Faults
 * end the process (worker.c) with the slot, offset and direction recorded. */
void check_call_run(check_call *call, const check_case *c);
/* Tensor i of the case as the last call left it. */
const dv_tensor *check_call_tensor(size_t i);
/* Result r as the kernel left it, with *made as the host made it (a kernel that writes to the header shows); NULL: it is an
 * argument, a view, absent, or no tensor. */
const dv_tensor *check_call_result(const check_call *call, size_t r, const dv_tensor **made);
/* Bytes of a written argument that are no element and were changed; *offset is from the first element. */
bool check_call_gaps_changed(const check_case *c, size_t tensor, int64_t *offset);
/* Bytes just behind a workspace or dv_alloc() memory, where alignment leaves room before the guard page; what is filled. */
bool check_call_slack_changed(char *what, size_t size);
/* The memory that an address is in, or nearest to: for the handler of faults. */
typedef struct check_place {
    char what[96]; /* "argument 'x'", "result 0", "the workspace" */
    bool input, inside, heap, freed;
    bool far;                  /* it is where only sparse memory reaches */
    bool between;              /* inside, and no element: they lie far apart */
    bool header;               /* no elements: sizes, strides, what a list points to */
    int64_t offset, low, high; /* in bytes from the first element; its memory is [low, high) */
} check_place;
bool check_in_kernel(void);
/* In the call that runs the contract's workspace has 0 bytes, and no argument is None: a null pointer is the workspace's. */
bool check_call_without_workspace(void);
bool check_memory_find(const void *address, check_place *out); /* false: none of ours */
/* Results as they came, and the arguments: for check_outs_take(). */
const dv_tensor *check_call_tensors(void);

/* ---- Calls in plain memory (plain.c): many, fast, from any thread, on parts of tensors ----------------------------------- */

/* Copies of what a call wrote: results that are tensors of their own, and written arguments, each contiguous. */
typedef struct check_out {
    size_t slot;
    dv_tensor t;
    int64_t dims[2 * CHECK_DIMS];
} check_out;
typedef struct check_outs {
    size_t n, size, room;
    bool incomplete; /* too large, or too many dims: it compares with nothing */
    check_out of[CHECK_RESULTS + CHECK_TENSORS];
    char *memory;
} check_outs;
/* The array of a result that is a list is ours to free: it goes on in `room`, of CHECK_TENSORS. False: too many. */
bool check_keep_lists(const check_op *op, dv_value *results, const dv_tensor **room);
void check_outs_take(check_outs *o, const check_op *op, const check_case *c, const dv_value *results, const dv_tensor *tensors);
/* Where two differ, in words: "element [1, 2] of result 'out' is 3 and then 4"; false: nowhere, bit for bit. */
bool check_outs_differ(const check_op *op, const check_outs *a, const check_outs *b, char *words, size_t size);
/* The same, but for rounding. */
bool check_outs_far(const check_op *op, const check_outs *a, const check_outs *b, char *words, size_t size);
double check_out_largest(const check_out *o); /* of the finite elements' magnitudes */
void check_out_element(const check_op *op, const check_out *o, int64_t element, char *words, size_t size);

typedef struct check_written {
    char *data;
    const char *copy;
    size_t bytes;
} check_written;
typedef struct check_plain {
    dv_host host;
    dv_test_hooks hooks; /* of host */
    const check_op *op;
    const check_case *c;
    check_values values;
    int64_t shapes[CHECK_TENSORS][CHECK_DIMS]; /* of parts */
    dv_value results[CHECK_RESULTS];
    const dv_tensor *listed[CHECK_TENSORS]; /* the tensors of results that are lists */
    int status;
    bool kernel_ran, incomplete;     /* its memory was too small */
    size_t allocations, fail_at;     /* how many there were; the number of the one that fails, from 1; 0: none */
    size_t mallocs, malloc_fails_at; /* the same of malloc() while the kernel runs, if counts_mallocs */
    bool counts_mallocs;
    check_written written[CHECK_TENSORS]; /* what calls write, and what it holds before each */
    char *memory, *lent;                  /* of the arguments; of what a call gets, taken anew by each */
    size_t used, lent_used;
} check_plain;
/* Arguments with their contents; results, workspace and dv_alloc() get zeroed memory. False: no memory. */
bool check_plain_make(check_plain *p, const check_op *op, const check_row *row, const check_case *c);
/* Instead of whole tensors, [low, high) along axes[i] of tensor i (-1: all of it), contiguous, of the arguments of `whole`. */
bool check_plain_part(check_plain *p, const check_plain *whole, const int *axes, int64_t low, int64_t high);
void check_plain_call(check_plain *p);

/* ---- malloc() while a kernel runs (heap.c): guarded as well -------------------------------------------------------------- */

void check_heap_begin(enum check_end end, uint8_t poison);
void check_heap_end(void);
void check_heap_zeroed(void); /* from now on malloc() outside of guarded calls gives zeroed memory */
/* Count how often malloc() and its like are asked from now on, and refuse the refuse-th time (0: never); end it, and say how
 * often. */
void check_heap_count(size_t refuse);
size_t check_heap_counted(void);
bool check_heap_find(const void *address, check_place *out);
bool check_heap_slack_changed(char *what, size_t size); /* as check_call_slack_changed() */
bool check_heap_wrong_free(void); /* it aborted because a block was freed twice, or an address that malloc() never returned */

/* ---- Tolerances (tolerance.c) ---------------------------------------------------------------------------------------- */

/* How far two right results of a case can lie apart: |a - b| <= atol + rtol * |b|. alone: b is the only opinion. 0, 0: exact. */
typedef struct check_tolerance { double rtol, atol; } check_tolerance;
check_tolerance check_tolerance_of(const check_case *c, dv_dtype dtype, int64_t elements, bool alone);
/* How far apart elements may be that were computed in another order; largest: of what they are computed from. */
double check_rounding(dv_dtype dtype, double largest);
double check_largest(dv_dtype dtype); /* the largest finite number of a float dtype */

/* ---- Properties ---------------------------------------------------------------------------------------------------------- */

struct check_job;
typedef struct check_property {
    const char *name;
    const char *promise; /* what holds when it passes, one line */
    bool each_row;       /* else once an operator */
    uint32_t faults;     /* enum check_fault_kind bits: crashes that are this property's to report */
    /* Why it does not apply; NULL: it does. May be NULL. */
    const char *(*applies)(const check_op *op, const check_row *row);
    /* Try one accepted case; on failure check_fail(). c is the case in hand itself: check_in_hand() with another one replaces it.
     * May be NULL when whole is given. */
    void (*attempt)(struct check_job *job, const check_case *c);
    /* Without cases. NULL: the cases are generated. */
    void (*whole)(struct check_job *job);
    /* Why passing all cases is no pass; NULL: it is one. May be NULL. */
    const char *(*incomplete)(const check_op *op, const check_row *row);
    bool needs_sound_row; /* says nothing of a row that fails runs or memory, or gives other results when called again */
    bool outside;         /* check_run() passes it over: torch */
} check_property;

/* X(property): in the order in which they are checked. property_<name>.c defines `const check_property check_property_<name>`. */
#define CHECK_PROPERTIES(X) \
    X(binding)              \
    X(runs)                 \
    X(memory)               \
    X(shapes)               \
    X(fake)                 \
    X(values)               \
    X(gradient)             \
    X(parallel)             \
    X(leaks)                \
    X(tags)                 \
    X(torch)
#define CHECK__DECLARE(name) extern const check_property check_property_##name;
CHECK_PROPERTIES(CHECK__DECLARE)
#undef CHECK__DECLARE
extern const check_property *const check_properties[]; /* NULL at the end */

/* ---- Workers (worker.c) -------------------------------------------------------------------------------------------------- */

/* How a kernel can end a process. */
enum check_fault_kind {
    CHECK_FAULT_MEMORY = 1, /* out of bounds, or a write to an input */
    CHECK_FAULT_CRASH = 2,  /* any other signal, exit() */
    CHECK_FAULT_TIME = 4,   /* it does not end */
    CHECK_FAULT_LOOK = 8,   /* a shape function looks into a tensor */
};

/* What a program must do to show a failure: X(name, what fails). */
enum check_show {
    CHECK_SHOW_NOTHING,     /* there is no program for it */
    CHECK_SHOW_CRASH,       /* the call ends the process, or does not end */
    CHECK_SHOW_LISTS,       /* CRASH, by sizes, strides, or what lists and strings point to */
    CHECK_SHOW_FAR,         /* CRASH, by memory of more than 2^31 elements; or the end of such a result stays unwritten */
    CHECK_SHOW_ACCEPT,      /* the call must succeed */
    CHECK_SHOW_REFUSE,      /* dv_infer() refuses; the call must too, with a message */
    CHECK_SHOW_HALF,        /* a call that is refused leaves what it writes as it was */
    CHECK_SHOW_POISON,      /* results are the same whatever undefined memory holds */
    CHECK_SHOW_HEADER,      /* results keep the addresses that they were made with */
    CHECK_SHOW_BOUNDS,      /* bytes beside a buffer stay as they were */
    CHECK_SHOW_GAPS,        /* bytes between the elements of a written argument stay as they were */
    CHECK_SHOW_HEAP,        /* CRASH or BOUNDS, of memory of malloc() */
    CHECK_SHOW_FAKE,        /* results are as dv_infer() says */
    CHECK_SHOW_LOOK,        /* dv_infer() on tensors that nobody may touch */
    CHECK_SHOW_ENVIRONMENT, /* rounding mode, control bits and locale stay as they were */
    CHECK_SHOW_ROWS,        /* this row and other_row give the same within tolerance */
    CHECK_SHOW_LAYOUT,      /* contiguous tensors give the same within tolerance */
    CHECK_SHOW_SAME,        /* the same call gives the same, whatever is called between, and elsewhere within tolerance */
    CHECK_SHOW_PIECES,      /* so it does when the pieces of its loops run in another order, and on more threads */
    CHECK_SHOW_THREADS,     /* so it does when several threads call it */
    CHECK_SHOW_PARTS,       /* slices give slices of the whole within tolerance */
    CHECK_SHOW_SUM,         /* results of two parts add up to the whole within tolerance */
    CHECK_SHOW_LEAKS,       /* nothing grows from call to call */
    CHECK_SHOW_FAILING, /* each allocation fails in turn: an error that says something and nothing is kept, or the same results */
    CHECK_SHOW_SLOPE,   /* the gradient of a tensor is that of finite differences */
    CHECK_SHOW_FORM,    /* the gradient can be computed and has the argument's shape, and element type if axis is not 0 */
    CHECK_SHOW_NEEDS,   /* the gradient of a tensor is the same when others are not wanted */
    CHECK_SHOW_TANGENT, /* the tangents of results are those of finite differences */
    CHECK_SHOW_LOW,     /* the gradient of a tensor is that in f64 at the same numbers, within tolerance */
    CHECK_SHOW_COST,    /* flops and bytes are numbers, and bytes no fewer than the results have */
    CHECK_SHOW_FLOPS,   /* flops are not far from what is counted */
    CHECK_SHOW_COUNT
};

enum check_outcome { CHECK_PASS, CHECK_FAIL, CHECK_NOT };

/* How a failure can be shown. */
typedef struct check_how {
    enum check_show show;
    enum check_end end;         /* of the call that failed */
    int32_t other_row;          /* ROWS: its number, as in dv_test_hooks.row */
    double rtol, atol;          /* tolerance: |a - b| <= atol + rtol * |b| */
    int32_t slot;               /* ROWS, LAYOUT, PARTS, SUM: the result or written argument that differs */
    int32_t tensor;             /* of the gradient's failures: which of the case's */
    int32_t axis;               /* PARTS: along which the result is cut */
    int8_t axes[CHECK_TENSORS]; /* PARTS, SUM: along which each tensor is cut, -1: it is not. LAYOUT: -1 */
    int64_t at, size;           /* PARTS, SUM: where, of how many */
} check_how;

enum { CHECK_MADE = 4 };
typedef struct check_made {
    bool present;
    dv_dtype dtype;
    int32_t ndim;
    int64_t shape[CHECK_DIMS];
} check_made;

/* What a child leaves in shared memory. */
typedef struct check_result {
    enum check_outcome outcome;
    uint32_t cases, refused; /* tried; of these refused by the kernel with a message */
    uint32_t fault;          /* enum check_fault_kind; 0: none */
    uint64_t step;           /* grows while the child gets on: for time limits */
    char kind[40];           /* of a failure: what must stay the same while the case is made smaller */
    char message[1024];      /* of a failure; or why it is not checked */
    uint32_t own;            /* enum check_fault_kind bits: from here on crashes are this property's as well, shown so, ... */
    enum check_show own_show;
    char during[80];             /* ... because they come when this is done: "when the first dv_alloc() fails" */
    check_how how;               /* of a failure */
    check_made made[CHECK_MADE]; /* the first results, as dv_infer() says; those that are views or arguments are not present */
    char note[512];              /* the last message of a kernel that refused a case */
    char left_out[160];          /* of a pass: what was not looked at, and why */
    bool has_before;             /* it fails after a call with another case */
    check_case failing;          /* the case in hand */
    check_case before;           /* the other one */
    bool has_case, done;
} check_result;

/* A property of a row. */
typedef struct check_job {
    const check_op *op;
    const check_row *row; /* NULL: once an operator */
    const check_property *property;
    uint64_t seed;
    uint32_t cases;                      /* how many to try */
    double seconds;                      /* of processor time, for all cases */
    check_result *result;                /* shared with the child */
    check_how how;                       /* a property says how a failure from here on is shown */
    const char *said_case, *said_python; /* of a failure that was found outside: NULL, or what stands for result->failing */
    int64_t said_elements;
} check_job;

/* In a child. The first failure counts. kind: a few words that name the fault, such as "read past the end". */
DV__PRINTF(3, 4) void check_fail(check_job *job, const char *kind, const char *format, ...);
DV__PRINTF(2, 3) void check_not(check_job *job, const char *format, ...); /* not checked, because */
/* If it passes: what was not looked at. Each time in place of what was said before; NULL: nothing was left out. */
void check_left_out(check_job *job, const char *what);
/* Count this case as refused by the kernel. */
void check_refused(check_job *job);
/* The case in hand is another than the one that was drawn: it is what a failure from here on is about. */
void check_in_hand(check_job *job, const check_case *c);

typedef struct check_options {
    uint64_t seed;
    double seconds; /* for everything; 0: no limit */
    uint32_t cases; /* for each property of each row */
    int case_ms;    /* of processor time that one case may take */
    uint32_t workers;
    const char *only;                        /* "memory,shapes": NULL: all */
    const check_property *const *properties; /* NULL: check_properties */
    bool (*interrupted)(void);               /* asked ten times a second: true ends everything (NULL: never) */
} check_options;
bool check_wanted(const check_options *options, const char *name);

typedef struct check_report check_report;
/* Check operators, telling of each finished job; results are in the order of operators, rows, properties. 0, or -1 with
 * errno (EINTR: options->interrupted). */
int check_run(const check_op *ops, size_t nops, const check_options *options,
    void (*progress)(void *user, size_t done, size_t all, const check_job *job), void *user, check_job **jobs, size_t *njobs);
/* Try one case again in a child of its own; true: it fails in the same way. */
bool check_again(const check_job *job, const check_case *c, check_result *shared);
void check_shrink(check_job *job);    /* the failing case of its result becomes the smallest that was found */
check_result *check_shared(size_t n); /* n zeroed results in memory that children share; NULL with errno */

/* ---- Programs that show a failure (repro.c) ------------------------------------------------------------------------------ */

/* Can there be one? For failures with a case and a way to show them. */
bool check_repro_possible(const check_job *job);
void check_repro_case(const check_job *job, FILE *to); /* "x: f32[3], after a call with x: f32[5]" */
/* A C program and a Python script: each ends with a signal or with status 1 while the fault is there, with 0 when it is not, and
 * with 2 when the binary cannot be loaded. The binary is their first argument. */
bool check_repro_c(const check_job *job, FILE *to);      /* false: what is wrong cannot be seen from C */
bool check_repro_python(const check_job *job, FILE *to); /* false: from Python */

/* The arguments of the job's failing case as Python: "dict(x=tensor(\"float32\", (2, ), (1, ), 0, [1, 2, ], False), dim=1, )".
 * What is at its default is left out. */
void check_repro_arguments(const check_job *job, FILE *to);

/* ---- PyTorch (property_torch.c) ------------------------------------------------------------------------------------------ */

/* An operator that stands for torch's: schema as torch prints it, with a name for each result, contract NULL or as the user gave
 * it. 0, or -1 with dv_last_error(). */
int check_foreign(const char *schema, const char *contract, check_op *out);
/* What a Python with torch is asked: one JSON document with each operator, its file, and cases that its contract accepts; not
 * those of which a job has failed; "" when none is left. The caller frees it; NULL with errno. */
char *check_torch_question(const check_op *ops, size_t nops, const check_job *jobs, size_t njobs, const check_options *options);
/* Its answer as jobs of the property torch, a row for each of its checks, after those in *jobs; NULL: there is none, because of
 * why. 0, or -1 when the answer cannot be read. */
int check_torch_answer(const check_op *ops, size_t nops, const char *answer, const char *why, check_job **jobs, size_t *njobs);

/* ---- Reports (report.c) -------------------------------------------------------------------------------------------------- */

void check_report_table(const check_op *ops, size_t nops, const check_job *jobs, size_t njobs, bool color, FILE *to);
void check_report_junit(const check_op *ops, size_t nops, const check_job *jobs, size_t njobs, FILE *to);
void check_report_json(const check_op *ops, size_t nops, const check_job *jobs, size_t njobs, const check_options *options,
    double seconds, FILE *to);
void check_put_text(FILE *to, const char *s); /* as a JSON string; NULL is "" */

#endif
