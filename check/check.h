/* The checker: declarations shared by its files. It sits above core's public API, and is linked into the command.
 *
 * A *case* is one call of an operator: its arguments as flat data without pointers, so that it can be copied through shared
 * memory, made smaller, and printed as a program. A *row* is one kernel row (or the native form). A *property* is a condition
 * that must hold; it has one file and one line in CHECK_PROPERTIES, and a function that tries one case. A *job* is one property
 * of one row of one operator; it runs in a forked child (worker.c), which generates cases from the contract (generate.c), tries
 * them until one fails, and leaves its result in shared memory. The parent then has the failing case made smaller (shrink.c),
 * again in children. Nothing of an operator's code ever runs in the parent: what crashes is a result.
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
bool check_json_is(const check_json *x, const char *kind); /* an array that begins with this word: ["str", ...] */

/* ---- A case (case.c) ----------------------------------------------------------------------------------------------------- */

enum { CHECK_DIMS = 20, CHECK_ARGS = 48, CHECK_TENSORS = 48, CHECK_LIST = 9, CHECK_STRING = 96, CHECK_RESULTS = 32 };

/* X(layout, names of its forms in reports): the layout of a tensor's elements. A layout has CHECK_FORMS forms. A tensor with
 * fewer than two dims of more than one element has form 0 only. */
enum { CHECK_FORMS = 3 };
#define CHECK_LAYOUTS(X)                                                                                                     \
    X(CONTIGUOUS, "contiguous", "contiguous", "contiguous")                                                                  \
    X(TRANSPOSED, "transposed", "transposed: the two dims before the last are swapped", "transposed: the last two dims")     \
    X(SLICED, "sliced: every second element of each dim", "sliced: every second element of each row",                        \
        "sliced: every second row")                                                                                          \
    X(EXPANDED, "expanded: one dim with stride 0", "expanded: one dim with stride 0", "expanded: all dims with stride 0")    \
    X(PADDED, "padded: a gap after each row", "padded: a gap of two rows after each row", "padded: a gap after each matrix") \
    X(REVERSED, "reversed: one dim with a negative stride", "reversed: one dim with a negative stride",                      \
        "reversed: all dims with negative strides")                                                                          \
    X(FAR, "far: the elements of one dim lie 2^31 elements apart", "far: the elements of one dim lie 2^31 elements apart",   \
        "far: the elements of one dim lie 2^31 elements apart")
enum check_layout {
#define CHECK__LAYOUT(name, ...) CHECK_##name,
    CHECK_LAYOUTS(CHECK__LAYOUT)
#undef CHECK__LAYOUT
        CHECK_LAYOUT_COUNT
};

/* The contents of a tensor. Integers and real numbers are drawn from [low, high] with the case's seed; simple: 1, 2, 3, ... in
 * range. */
enum check_fill {
    CHECK_RANDOM,
    CHECK_SIMPLE,
    CHECK_SPECIAL, /* includes NaN, infinities, zeros and extremes; if the seed is CHECK_LONE modulo 4: one NaN or infinity,
                      and the seed's next bits say which, and whether it is the first element, the last or any */
    CHECK_LAST, /* integers: all zero, except that the last one is the bound of the range farther from zero; real numbers: within
                   4 of the lower bound, except that the last one is the upper one */
    CHECK_EXTREMES,   /* integers: half of them the bounds of the range, and -1 */
    CHECK_HALVES,     /* real numbers: multiples of 1/2, where rounding has to choose a side */
    CHECK_ASCENDING,  /* real numbers: each larger than the one before, as far as the type can tell them apart */
    CHECK_RISING,     /* real numbers: multiples of 1/4, none smaller than the one before, many equal */
    CHECK_COUNTED,    /* bool: true as far as 256 divides along each dim of 256 or more, so that a count of 8 bits is 0 */
    CHECK_SPREAD,     /* integers: the ends of the range and numbers past which a narrow type ends, then any, in turn */
    CHECK_BINADES,    /* real numbers: as many in each binade from 2^-8 to the upper bound, of both signs */
    CHECK_OFFSETS,    /* integers: nondecreasing along the last dim, mostly from the lower bound to the upper */
    CHECK_LENGTHS,    /* integers: segment lengths: n differences of n + 1 such offsets */
    CHECK_PERMUTED,   /* integers: along the last dim a permutation of 0 to its size - 1 */
    CHECK_SIGNALLING, /* real numbers: some are the NaN whose only set bit of the fraction is the last one */
    CHECK_INFINITE,   /* real numbers: the first is an infinity */
    CHECK_LOWEST,     /* real numbers: all are -infinity, below what a maximum may begin with */
};
enum { CHECK_LONE = 2, CHECK_LONE_KINDS = 3, CHECK_LONE_WAYS = 9 };
typedef struct check_tensor {
    bool present; /* false: None */
    uint8_t layout, fill;
    uint8_t form; /* of the layout, below CHECK_FORMS */
    dv_dtype dtype;
    int32_t ndim;
    int64_t shape[CHECK_DIMS];
    bool below;   /* with span: high is the last index below that size, not the size */
    int32_t span; /* size that `high` follows, as a code (contents.c); 0: none */
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
    int64_t ints[CHECK_LIST];  /* INTS, BOOLS; SCALARS: enum dv_scalar_kind of each */
    double floats[CHECK_LIST]; /* FLOATS, SCALARS */
    char string[CHECK_STRING]; /* STRING; STRINGS: one behind the other, each with its end */
} check_value;
const char *check_string_of(const check_value *v, uint32_t k); /* number k of STRINGS */
dv_scalar check_scalar_of(const check_value *v, uint32_t k);   /* number k of SCALARS */

/* The values of the contract's names, each kind in the order of check_op.names. A run is at most CHECK_DIMS sizes. */
enum { CHECK_NAMES = 64, CHECK_RUNS = 16, CHECK_GROUPS = 8 };
typedef struct check_shape {
    int32_t n;
    int64_t d[CHECK_DIMS];
} check_shape;
typedef struct check_names {
    int64_t dims[CHECK_NAMES];
    check_shape runs[CHECK_RUNS];
    dv_dtype dtypes[CHECK_RUNS];
    bool bound[CHECK_NAMES + 2 * CHECK_RUNS]; /* has the call this name? in the order of check_op.names */
    int32_t taken[CHECK_GROUPS];              /* the case of each group */
} check_names;

typedef struct check_case {
    uint64_t seed;   /* of the tensors' contents */
    uint32_t number; /* in its plan: decides what nothing else decides */
    uint32_t nargs, ntensors;
    bool broken; /* made to violate the contract: the names are unused */
    check_names names;
    check_value args[CHECK_ARGS];
    check_tensor tensors[CHECK_TENSORS];
} check_case;

/* Returns the dim of a tensor along which elements can be placed far apart: form 0: the first, else the last. -1: none. */
int32_t check_far_dim(const check_tensor *t);
/* True if the tensor has several dims of more than one element, so that the forms of a layout differ. */
bool check_has_forms(const check_tensor *t);
/* Strides in elements for this layout, and the extent of the memory: elements in [*low, *high] around the first one (high < low:
 * none). */
void check_strides(const check_tensor *t, int64_t *strides, int64_t *low, int64_t *high);
int64_t check_numel(const check_tensor *t);
/* Write the contents of elements into memory in which the first element is at `first`. */
void check_fill_tensor(const check_tensor *t, uint64_t seed, void *first, const int64_t *strides);
/* The argument that a tensor of the case belongs to, and its name: "x", "xs[1]". */
size_t check_tensor_argument(const check_case *c, size_t tensor);
struct check_op;
/* x, which is element i of data (a part of it, of complex numbers): integers with all digits. */
void check_print_number(double x, const void *data, int64_t i, dv_dtype dtype, int digits, char *out, size_t size);
void check_case_print(const struct check_op *op, const check_case *c, FILE *to); /* "x: f32[3, 4], dim: 1" */
/* Prints an element of a tensor as text, such as "NaN", to out. element: its number in row-major order. False: it cannot be
 * printed, or the report prints all elements of this small tensor anyway. */
bool check_element_print(const check_case *c, size_t tensor, int64_t element, char *out, size_t size);
int64_t check_case_largest(const check_case *c); /* elements of the largest tensor */
bool check_arguments_apart(const check_case *c); /* arguments that end at guard pages are aligned no better than their elements */

/* "result 'out'", "result 0"; "2, 0, 1", the index of an element of a tensor with this shape. */
const char *check_result_name(const struct check_op *op, size_t r, char *buffer, size_t size);
void check_index_print(int32_t ndim, const int64_t *shape, int64_t element, char *out, size_t size);

/* How many numbers an element is, 2 for complex ones, and the dtype of one. */
int check_numbers_in(dv_dtype *dtype);
/* Convert a double to an element of any float dtype, and back. Integers and bool are exact to 2^53. Not complex numbers. */
void check_put(void *data, int64_t i, dv_dtype dtype, double x);
double check_get(const void *data, int64_t i, dv_dtype dtype);
double check_unit(dv_dtype dtype); /* half a unit in the last place: 2^-24 for f32; 1 for what is not a float */
bool check_is_float(dv_dtype dtype);
bool check_is_complex(dv_dtype dtype);
bool check_is_integer(dv_dtype dtype); /* bool too */

/* A case's values for dv_call(), with memory of the caller. It points into itself, so it cannot be copied. */
typedef struct check_values {
    dv_value values[CHECK_ARGS];
    dv_tensor tensors[CHECK_TENSORS];
    int64_t strides[CHECK_TENSORS][CHECK_DIMS];
    const dv_tensor *lists[CHECK_TENSORS];
    bool bools[CHECK_ARGS][CHECK_LIST];
    dv_string strings[CHECK_ARGS][CHECK_LIST];
    dv_scalar scalars[CHECK_ARGS][CHECK_LIST];
} check_values;
/* Tensors get an inaccessible address (NULL on Meta), which is enough for dv_infer(). */
bool check_is_untouchable(const void *address);
void check_values_make(check_values *v, const check_case *c, dv_device device);

/* ---- An operator (operator.c) -------------------------------------------------------------------------------------------- */

typedef struct check_row {
    const char *name, *provider, *dtypes, *isa, *when, *takes; /* NULL: not given */
    int32_t index;                                             /* for dv_test_hooks.row; -1: the native form */
    bool available, reference;
    int64_t split;
} check_row;

/* A name of the contract: name `index` of dv_partial_get(), and value `at` of its kind in check_names. */
enum check_name_kind { CHECK_NAME_DIM, CHECK_NAME_RUN, CHECK_NAME_DTYPE };
typedef struct check_name {
    const char *text;
    enum check_name_kind kind;
    uint32_t index, at;
} check_name;

/* What the contract's program does with an argument: does it read its value, and what does it compare it with? */
enum { CHECK_LITERALS = 16, CHECK_BOUNDS = 8, CHECK_SPECIALS = 24, CHECK_WORDS = 6, CHECK_WORD = 24 };
typedef struct check_literals {
    bool read, sizes; /* sizes: the shape of a result follows from it */
    bool axis;        /* it is the number of a dim */
    size_t n;
    const check_json *of[CHECK_LITERALS]; /* strings and integers that it is or is not equal to */
    size_t nbounds;
    double bounds[CHECK_BOUNDS]; /* numbers that it is compared with in any way */
} check_literals;

typedef struct check_op {
    dv_operator *op;
    const char *name;           /* "ns::op.overload" */
    const char *path;           /* its binary's path; NULL: not from a file */
    const char *const *sources; /* the source files of its library, ended by NULL; NULL: a binary was given */
    const char *const *flags;   /* arguments of `dovetail build` for the sources, ended by NULL; NULL: none */
    size_t nargs, nresults;
    dv_slot_info slots[CHECK_ARGS + CHECK_RESULTS];
    const check_json *json, *contract, *program; /* the last two NULL: there is no contract */
    check_name names[CHECK_NAMES + 2 * CHECK_RUNS];
    size_t nnames;
    check_literals literals[CHECK_ARGS];
    int64_t special[CHECK_SPECIALS];     /* more sizes to try: numbers that the contract and the kernel's code compare with */
    size_t nspecial, nbounds;            /* nbounds: the first ones, of the contract */
    char words[CHECK_WORDS][CHECK_WORD]; /* strings to try: words of the kernel's code */
    size_t nwords;
    bool sorted[CHECK_ARGS]; /* by argument: the contract requires sorted elements of the tensor */
    bool unused[CHECK_ARGS]; /* by argument: the contract says that no result depends on it */
    bool looks_inside;       /* the contract has facts on the elements of tensors */
    check_row *rows;         /* CPU rows; without any, the native form */
    size_t nrows;
    const char *device;         /* another that it has rows for; NULL: none */
    bool random;                /* tagged as nondeterministic */
    bool seeded;                /* with the same seed it is not */
    double rtol, atol, rounded; /* that the contract declares; -1: none; rounded: 0 */
    bool shape_function;
    const char *too_large; /* why it cannot be checked; NULL: it can */
    bool foreign;          /* an operator of torch: it has only a schema and perhaps a contract (op may be NULL) */
    const char *refused;   /* for a binary that does not load, which is listed by its file's name: the reason; else NULL */
} check_op;
/* Read the declaration of an operator. 0, or -1 with the message in dv_last_error(). Never freed. */
int check_op_init(check_op *op, dv_operator *o);
/* The whole file, with a 0 behind it; NULL: it cannot be read. */
char *check_read(const char *path, size_t *size);
/* The text of a file of programs/; NULL: there is none of that name. */
const char *check_program(const char *name);
/* coverage.c. Write the header that an operator's source is built with, and the file in which processes that have
 * DOVETAIL_COVERAGE in their environment mark what they reach. False: not written. */
bool check_coverage_begin(const char *header, const char *map);
/* Lists the source lines that no case reached, in functions that ran: "41, 60-63"; of several files "a.c: 41; b.c: 60-63". "":
 * none, or unknown. loop receives the last loop of a function that ran, if no case reached the loop's body: "line 41", "line 41
 * of a.c"; else "". sources: ended by NULL. */
void check_unreached(
    const char *binary, const char *map, const char *const *sources, char *out, size_t room, char *loop, size_t loop_room);
/* Instruction of an operator's binary that raised a fault, or the call that led to it. */
typedef struct check_origin {
    char object[256]; /* path of the loaded binary; "": unknown */
    uint64_t at;      /* address of the instruction in that file */
} check_origin;

/* Prints the source line of a fault to out: "scale.c:12". sources (or NULL), ended by NULL: the files whose lines are preferred
 * where code of several files is inlined. False: the line is unknown, as for a binary without line numbers. */
bool check_origin_line(const check_origin *origin, const char *const *sources, char *out, size_t size);
/* A size to try, with its neighbours. */
void check_add_special(check_op *op, int64_t x);
/* The same for the sizes that a C file compares with. */
void check_constants(check_op *op, const char *path);
/* Its words, outside of declarations: what a string argument is compared with; how many. */
size_t check_source_words(const char *path, char (*out)[CHECK_WORD], size_t room);
size_t check_op_slot(const check_op *op, const char *name); /* SIZE_MAX: no argument of this name */

/* The name of this kind; NULL: there is none. */
const check_name *check_op_name(const check_op *op, enum check_name_kind kind, const char *text);
/* The size in the case that belongs to a name, of a run the first; NULL: the name is of a dtype. Names of sizes come first. */
int64_t *check_name_size(const check_name *name, check_case *c);
/* Do facts on elements, or other names, depend on the sizes of this one? */
bool check_name_decides(const check_op *op, const check_name *name);

/* ---- Arguments that fit together (fit.c) --------------------------------------------------------------------------------- */

/* Make the tensors, numbers and names of a case fit the contract, by partial inference: each stays what it is or becomes
 * something near that is possible. First come those that are not as in `from`; names count only where they are not. from NULL:
 * names come first, those of `order` before the others; numbers before or after sizes as the case's number says. elements:
 * room for what facts leave to the elements of each tensor; NULL: the contents are narrowed to it. False: nothing fits
 * (dv_last_error()). */
bool check_fit(const check_op *op, check_case *c, const check_case *from, dv_range *elements);
typedef struct check_order {
    const check_name *names[2];
    bool numbers; /* before sizes */
} check_order;
bool check_fit_in_order(const check_op *op, check_case *c, const check_order *order, dv_range *elements);
/* Which tensors of a case have shapes and dtypes that no name decides; the other dtypes are set. */
void check_free(const check_op *op, check_case *c, bool *shapes, bool *dtypes);
/* A call of which nothing is known but the value of an argument that the contract does not read (but NULL: nothing). NULL: core
 * says nothing of such a call, or that no such call exists. */
dv_partial *check_unknown(const check_op *op, size_t slot, const check_value *but);
/* A value, of a default that the contract reads the default itself. */
check_value check_default_of(const check_op *op, size_t slot, const check_value *v);
void check_narrow(check_tensor *t, dv_range elements);
void check_set_count(check_case *c, size_t list, uint32_t n); /* how many tensors a list has */

/* ---- Contents of index-like arguments (contents.c) ------------------------------------------------------------------------ */

/* True if the tensor's fill computes each element from its position: offsets, lengths or permutations. */
bool check_is_placed(const check_tensor *t);
/* Returns element i of a tensor for which check_is_placed() is true. */
double check_placed(const check_tensor *t, uint64_t seed, int64_t i);
/* Returns element j of a permutation of 0 to n - 1; the seed gives the offset. */
int64_t check_permuted(int64_t n, int64_t j, uint64_t seed);
/* Sets the upper bound of each tensor with a span to the size that the span names. */
void check_follow_spans(check_case *c);
/* Turns an integer tensor into indices below a size of the case that is larger than high + 1. turn selects one of several such
 * sizes. Without one, the tensor is unchanged. */
void check_index_below_size(const check_case *c, size_t tensor, uint32_t turn, check_tensor *t);
/* Copies a refused case to `out` with other contents of its integer tensors, for attempt k. False: the case has no integer
 * tensor, or no attempts are left. */
bool check_contents_try(const check_op *op, const check_case *refused, uint32_t k, check_case *out);
/* Records that the kernel accepted the contents of the last check_contents_try(), so that later refused cases try them first. */
void check_contents_accepted(void);

/* ---- The plan: the cases of a row (plan.c) ------------------------------------------------------------------------------- */

enum { CHECK_MOST_CASES = 200, CHECK_MOST_ELEMENTS = 400000 };
/* Cases that take longer than a case may; and those after them that have as much work. */
enum check_dropped { CHECK_KEPT, CHECK_SLOW, CHECK_AS_SLOW };
typedef struct check_plan {
    uint32_t n;
    uint32_t infeasible, cut, not_met; /* pairs of levels of two factors; cut: larger than --max-elements */
    uint32_t met[CHECK_MOST_CASES];    /* that the cases meet first */
    char example[140];                 /* of those cut or not met; or how many cases there are, where they ended first */
    char refusal[512];                 /* of the last case that was not accepted */
    int64_t too_large; /* elements of the smallest that fits and is larger than --max-elements; 0: there is none */
    bool endless;      /* a case does not end: it was seen, and need not be seen again */
    double slow_work;  /* work (check_work_with_numbers) from which a case that takes too long is slow, not endless; 0: unknown */
    bool has_stray;    /* a case that fits, but has a view outside of its argument, which is refused */
    check_case stray;
    volatile uint8_t dropped[CHECK_MOST_CASES]; /* enum check_dropped */
    check_case cases[CHECK_MOST_CASES];
} check_plan;
/* The seed decides a few sizes; tensors get their contents from check_seeded(). Runs shape functions: in children only. wanted:
 * how many cases are tried, chosen for the most different ones; 0: as many as the pairs need. No case: none was found that
 * dv_infer() accepts (dv_last_error()). */
void check_plan_make(const check_op *op, const check_row *row, uint32_t wanted, uint64_t seed, check_plan *plan);
void check_seeded(const check_case *planned, uint64_t seed, check_case *out);
void check_plan_goes_on(void);                               /* told by the plan for each case: it makes progress */
bool check_is_huge(const check_op *op, const check_case *c); /* has it a number so large that a loop to it does not end? */
double check_work(
    const check_op *op, const check_case *c); /* how often a loop over all names goes round; runs often share dims */
double check_work_with_numbers(const check_op *op, const check_case *c); /* over the numbers too: they may be sizes */

/* ---- Cases (generate.c) -------------------------------------------------------------------------------------------------- */

/* A case just outside the contract: number i of those made from an accepted case; false: no more. what: the part of the contract
 * or schema that it violates. */
bool check_break(const check_op *op, const check_case *accepted, uint32_t i, check_case *out, char *what, size_t size);
/* An accepted case, but the last element of one tensor is a number that the contract forbids; false: there is none. */
bool check_forbid(const check_op *op, const check_case *accepted, check_case *out);
/* Is the case accepted by dv_infer(), which reads no contents? TOO_LARGE, UNFIT: it is not asked, or it is, but must not run: its
 * contents violate the contract. */
extern int64_t check_most_elements; /* of a tensor */
enum check_verdict { CHECK_ACCEPTED, CHECK_REFUSED, CHECK_UNFIT, CHECK_TOO_LARGE };
enum check_verdict check_judge(const check_op *op, const check_case *c);
/* Is a case that fits refused only because a view of its result is not inside the argument, though no number says where it is? */
bool check_is_stray(const check_op *op, const check_case *c);
bool check_accepts(const check_op *op, const check_case *c);

/* Make an accepted case one in which a tensor has more than 2^31 elements, by contract name number k / 4. With k % 4 == 1
 * integers that the contract reads are as large, since they may be positions; with 2 all other dims are 1, so that the name has
 * such a size itself; with 3 integer tensors have small elements, so that what they select is soon visited, and
 * other dims are at least 4. *wide: so has
 * what is written. Not for check_judge(). False: that cannot be done; *end: there are no more names. */
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
    bool ends_at_guard;         /* arguments end exactly at the upper guard page, even if that aligns them better than elements */
    uint8_t poison;             /* the initial contents of outputs, workspace and malloc's memory */
    uint8_t stack;              /* those of the stack, where the kernel's variables will be */
    uint8_t fill;               /* those of number results, and of absent optionals' `value` */
    size_t deep;                /* so many bytes of the stack are filled, and how many of them change is told */
    int error;                  /* errno before the kernel */
    bool identity;              /* square matrices of real numbers are 1 on the diagonal and 0 elsewhere */
    size_t replaced;            /* 1 + a tensor whose elements are others, if check_can_replace(); 0: none */
    bool but_first;             /* except its first element */
    double moved;               /* the elements of real numbers are changed by this relative amount, up or down */
    const check_case *contents; /* the case whose elements the tensors have, in their own types and layouts; NULL: their own */
    uint32_t flags;             /* enum dv_host_flags */
    bool whole;                 /* a row with .split is not cut */
    bool used_scratch;          /* memory of a piece holds what the last piece left, of this call or of another */
    bool generators;            /* each Generator is given */
    int (*parallel_for)(
        const dv_host *host, int64_t begin, int64_t end, int64_t grain, dv_range_fn fn, void *arg); /* NULL: core's threads */
    /* Told of each loop of a kernel; may be NULL. */
    void (*loop)(const dv_host *host, int64_t begin, int64_t end, int64_t grain, void (*fn)(void));
    /* Out: */
    int status;                    /* of dv_call() */
    bool not_this_row;             /* the row does not fit this case */
    bool kernel_ran;               /* else it was refused before */
    bool lent_scratch;             /* memory of dv_parallel_scratch() */
    bool took_given, took_default; /* random numbers: of a Generator that is given; of the default one though one is */
    size_t depth;                  /* of the kernel's stack in bytes, at most `deep` */
    dv_value results[CHECK_RESULTS];
    const dv_tensor *listed[CHECK_TENSORS]; /* the tensors of results that are lists */
} check_call;
/* Make the case's tensors in guarded memory, inputs read-only, and call the operator. Results stay until the next call. Faults
 * end the process (worker.c) with the slot, offset and direction recorded. */
void check_call_run(check_call *call, const check_case *c);
/* True if the tensor's elements can be replaced by others that the contract allows. */
bool check_can_replace(const check_tensor *t);
/* Tensor i of the case after the last call. */
const dv_tensor *check_call_tensor(size_t i);
/* The tensors that the host made for the last call's results, one after the other, those of lists too: begin with { 0 }; false:
 * no more. Not arguments, views, and what is absent. */
typedef struct check_fresh {
    size_t result, element, next;
    const dv_tensor *t, *made; /* after the call; as the host made it (which reveals a kernel that changes the header) */
} check_fresh;
bool check_call_fresh(const check_call *call, check_fresh *of);
/* "result 'out'", "element 1 of result 'outs'" */
const char *check_fresh_name(const check_call *call, const check_fresh *of, char *buffer, size_t size);
/* The end of a message about an address where a tensor of an earlier call was; "" where none was. */
const char *check_earlier(bool is);
/* Were bytes of a written argument changed that are not part of an element? *offset is relative to the first element. */
bool check_call_gaps_changed(const check_case *c, size_t tensor, int64_t *offset);
/* Did the last call change an element of a tensor that it may write? */
bool check_call_changed(size_t tensor);
/* The first byte in [begin, end) that is another; NULL: there is none. */
const uint8_t *check_first_other(uintptr_t begin, uintptr_t end, uint8_t than);
/* Bytes just behind a workspace or dv_alloc() memory, where alignment leaves room before the guard page; what is filled. */
bool check_call_slack_changed(char *what, size_t size);
/* Find the memory that contains an address, or the nearest, for the fault handler. */
typedef struct check_place {
    char what[96]; /* "argument 'x'", "result 0", "the workspace" */
    bool input, inside, heap, freed;
    bool far;                  /* it is where only sparse memory reaches */
    bool between;              /* inside the tensor, but not an element, since elements are far apart */
    bool header;               /* not elements: sizes, strides, or the target of a list's pointer */
    bool earlier;              /* a tensor of an earlier call was there */
    bool in_list;              /* of a result that is a list, which Python cannot be given */
    int64_t offset, low, high; /* in bytes from the first element; its memory is [low, high) */
} check_place;
bool check_in_kernel(void);
/* In the running call the contract's workspace has 0 bytes and no argument is None, so a null pointer is the workspace. */
bool check_call_without_workspace(void);
bool check_memory_find(const void *address, check_place *out); /* false: none of ours */
/* The results of the call, and the arguments: for check_outs_take(). */
const dv_tensor *check_call_tensors(void);

/* ---- Calls in plain memory (plain.c): many, fast, from any thread, on parts of tensors ----------------------------------- */

/* Copies of what a call wrote: results that are numbers or tensors of their own, and written arguments, each contiguous. */
typedef struct check_out {
    size_t slot, element; /* element: of a list */
    bool number;          /* an int, float or bool: t has no dims */
    dv_tensor t;
    int64_t dims[2 * CHECK_DIMS];
} check_out;
typedef struct check_outs {
    size_t n, size, room;
    bool incomplete; /* too large, or too many dims: not compared */
    check_out of[CHECK_RESULTS + CHECK_TENSORS];
    char *memory;
} check_outs;
/* The array of a result that is a list is ours to free: it goes on in `room`, of CHECK_TENSORS. False: too many. */
bool check_keep_lists(const check_op *op, dv_value *results, const dv_tensor **room);
void check_outs_take(check_outs *o, const check_op *op, const check_case *c, const dv_value *results, const dv_tensor *tensors);
/* Describe the first difference: "element [1, 2] of result 'out' is 3 and then 4"; false: equal bit for bit. */
bool check_outs_differ(const check_op *op, const check_outs *a, const check_outs *b, char *words, size_t size);
/* Describes the first difference as check_outs_differ() does, with the tolerance of an operator tagged nondeterministic_bitwise.
 * Real numbers may differ by rounding and integers in any way, because threads may add numbers, or take places, in any order. */
bool check_outs_disagree(
    const check_op *op, const check_case *c, const check_outs *a, const check_outs *b, char *words, size_t size);
/* The same, but for rounding. */
bool check_outs_far(const check_op *op, const check_outs *a, const check_outs *b, char *words, size_t size);
double check_out_largest(const check_out *o);                      /* of the finite elements' magnitudes */
double check_out_rounding(const check_op *op, const check_out *o); /* check_rounding() of its elements */
double check_out_number(const check_out *o, int64_t i, int part);  /* a complex element has two */
/* Is element i of one far from element k of the other, and which of its numbers? */
bool check_out_far(const check_out *a, int64_t i, const check_out *b, int64_t k, double tolerance, int *part);
const char *check_out_name(const check_op *op, const check_out *o, char *buffer, size_t size); /* "result 'out'" */
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
    size_t allocations, fail_at;     /* the number of allocations; the number of the one that fails, from 1; 0: none */
    size_t mallocs, malloc_fails_at; /* the same of malloc() while the kernel runs, if counts_mallocs */
    bool counts_mallocs;
    check_written written[CHECK_TENSORS]; /* written memory, and its contents before each call */
    char *memory, *lent;                  /* memory of the arguments; memory for allocations, reused by each call */
    size_t used, lent_used;
} check_plain;
/* Arguments with their contents; results, workspace and dv_alloc() get zeroed memory. False: no memory. */
bool check_plain_make(check_plain *p, const check_op *op, const check_row *row, const check_case *c);
/* Instead of whole tensors, [low, high) along axes[i] of tensor i (-1: all of it), contiguous, of the arguments of `whole`. */
bool check_plain_part(check_plain *p, const check_plain *whole, const int *axes, int64_t low, int64_t high);
/* With one memory for two tensors of a dtype: the one that is read begins `by` elements behind the one that is written. All are
 * contiguous. */
bool check_plain_make_shared(
    check_plain *p, const check_op *op, const check_row *row, const check_case *c, size_t written, size_t read, int64_t by);
/* Did the call change its memory outside of its elements? */
bool check_plain_wrote_beside(const check_plain *p, size_t tensor);
void check_plain_call(check_plain *p);

/* ---- malloc() while a kernel runs (heap.c): guarded as well -------------------------------------------------------------- */

void check_heap_clear(void); /* before a call: forgets the faults of the call before */
void check_heap_begin(enum check_end end, uint8_t poison);
void check_heap_end(void);
void check_heap_zeroed(void);  /* from now on malloc() outside of guarded calls gives zeroed memory */
void check_heap_spoiled(void); /* from now on what is freed outside of guarded calls is overwritten */
/* Begin to count calls of malloc() and its family, and fail number `refuse` (0: none). End counting, and return the count. */
void check_heap_count(size_t refuse);
size_t check_heap_counted(void);
bool check_heap_find(const void *address, check_place *out);
bool check_heap_slack_changed(char *what, size_t size); /* as check_call_slack_changed() */
size_t check_heap_kept(void);                           /* how many blocks of kernels are not freed */
size_t check_heap_overlapping(void); /* bytes of a memcpy() of the last kernel whose memory overlaps; 0: there was none */
bool check_heap_wrong_free(void);    /* it aborted because a block was freed twice, or an address that malloc() never returned */

/* ---- Tolerances (tolerance.c) ---------------------------------------------------------------------------------------- */

/* The tolerance between two right results of a case: |a - b| <= atol + rtol * |b|. alone: b is the only opinion. 0, 0: exact. */
/* alike: the roundings of a sum of equal terms go one way, which moved arguments do not show: so many times as far. */
typedef struct check_tolerance { double rtol, atol, alike; } check_tolerance;
check_tolerance check_tolerance_of(const check_op *op, const check_case *c, dv_dtype dtype, int64_t elements, bool alone);
/* The tolerance for elements that were computed in another order; largest: the largest of the inputs. */
double check_rounding(const check_op *op, dv_dtype dtype, double largest);
double check_largest(dv_dtype dtype); /* the largest finite number of a float dtype */

/* ---- Properties ---------------------------------------------------------------------------------------------------------- */

struct check_job;
typedef struct check_property {
    const char *name;
    const char *promise; /* what holds when it passes, one line */
    bool each_row;       /* else once an operator */
    uint32_t faults;     /* enum check_fault_kind bits: the crashes that this property reports */
    /* Why it does not apply; NULL: it does. May be NULL. */
    const char *(*applies)(const check_op *op, const check_row *row);
    /* Try one accepted case; on failure call check_fail(). c is the current case itself: check_in_hand() with another case
     * replaces it. May be NULL if whole is set. */
    void (*attempt)(struct check_job *job, const check_case *c);
    /* Check the row without cases. NULL: cases are generated. */
    void (*whole)(struct check_job *job);
    /* Why the row is not checked although all cases passed; NULL: it passes. May be NULL. */
    const char *(*incomplete)(const check_op *op, const check_row *row);
    bool needs_sound_row; /* not checked for a row that fails runs or memory, or is nondeterministic */
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
    X(undefined)            \
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

/* How a program reproduces a failure: X(name, the failing check). */
enum check_show {
    CHECK_SHOW_NOTHING,     /* there is no program for it */
    CHECK_SHOW_CRASH,       /* the call ends the process, or does not end */
    CHECK_SHOW_LISTS,       /* CRASH, by sizes, strides, or what lists and strings point to */
    CHECK_SHOW_FAR,         /* CRASH, by memory of more than 2^31 elements; or the end of such a result stays unwritten */
    CHECK_SHOW_ACCEPT,      /* the call must succeed */
    CHECK_SHOW_REFUSE,      /* dv_infer() refuses; the call must too, with a message */
    CHECK_SHOW_HALF,        /* a refused call leaves its written tensors unchanged */
    CHECK_SHOW_POISON,      /* results do not depend on the contents of undefined memory */
    CHECK_SHOW_STACK,       /* nor on those of the stack, of number results, and of absent optionals */
    CHECK_SHOW_HEADER,      /* results keep the addresses that they were made with */
    CHECK_SHOW_BOUNDS,      /* bytes beside a buffer stay as they were */
    CHECK_SHOW_GAPS,        /* bytes between the elements of a written argument stay as they were */
    CHECK_SHOW_HEAP,        /* CRASH or BOUNDS, of memory of malloc() */
    CHECK_SHOW_FAKE,        /* results are as dv_infer() says */
    CHECK_SHOW_LOOK,        /* dv_infer() on inaccessible tensors */
    CHECK_SHOW_ENVIRONMENT, /* rounding mode, control bits, signal mask and locale stay as they were */
    CHECK_SHOW_ROWS,        /* this row and other_row give the same within tolerance */
    CHECK_SHOW_BIAS,        /* this row's errors against other_row do not all go one way */
    CHECK_SHOW_LAYOUT,      /* contiguous tensors give the same within tolerance */
    CHECK_SHOW_SHARED,  /* so do copies, instead of a tensor (axis) in the memory of another (slot), `at` elements behind it */
    CHECK_SHOW_SAME,    /* the same call gives the same result after other calls, and within tolerance at other addresses */
    CHECK_SHOW_SCRATCH, /* it does so when pieces get memory as pieces of another call left it */
    CHECK_SHOW_KEPT,    /* it does so after a call with another number */
    CHECK_SHOW_ERRNO,   /* with another errno before it */
    CHECK_SHOW_PIECES,  /* the same, with the pieces of its loops in another order and on more threads */
    CHECK_SHOW_THREADS, /* so it does when several threads call it */
    CHECK_SHOW_PARTS,   /* slices give slices of the whole within tolerance */
    CHECK_SHOW_SUM,     /* results of two parts add up to the whole within tolerance */
    CHECK_SHOW_LEAKS,   /* nothing grows from call to call */
    CHECK_SHOW_FAILING, /* each allocation fails in turn: the call returns an error with a message and leaks nothing, or gives the
                           same results */
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
extern const char *const check_outcomes[]; /* "pass", "fail", "not checked" */

/* How a failure can be shown. */
typedef struct check_how {
    enum check_show show;
    enum check_end end;         /* of the call that failed */
    bool ends_at_guard;         /* check_call.ends_at_guard of that call */
    int32_t other_row;          /* ROWS: its number, as in dv_test_hooks.row */
    double rtol, atol;          /* tolerance: |a - b| <= atol + rtol * |b| */
    int32_t slot;               /* ROWS, LAYOUT, PARTS, SUM: the result or written argument that differs */
    int32_t tensor;             /* for failures of gradient: the index of the case's tensor */
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

/* The largest error of results of a dtype, in units in the last place (ulp). */
enum { CHECK_ACCURACY = 4 };
typedef struct check_accuracy {
    dv_dtype dtype; /* bits 0: unused */
    double ulp;
} check_accuracy;

/* A loop of dv_parallel_for() or dv_parallel_scratch(), known by its function. */
enum { CHECK_LOOPS = 16 };
typedef struct check_loop {
    void (*fn)(void);     /* NULL: unused */
    int64_t steps, grain; /* of its last run */
    uint32_t seen, at;    /* the last case that had it; and had it in several pieces */
    uint32_t cut, tried;  /* how many cases had it in several pieces; how often one was to be made so large */
    bool one;             /* it had never more than one step, so it has one piece by its nature */
} check_loop;

/* What a child leaves in shared memory. */
typedef struct check_result {
    enum check_outcome outcome;
    uint32_t cases, refused;      /* cases tried; and how many of them the kernel refused with a message */
    uint32_t full, full_accepted; /* cases in which no tensor is empty; and how many of them the kernel accepted */
    uint32_t fault;               /* enum check_fault_kind; 0: none */
    uint64_t step;                /* counter that increases while the child makes progress, for time limits */
    bool apart; /* forked from a process that had called the kernel: the kernel's threads are missing, and it may wait for them */
    double took;        /* processor time of one repeated attempt, in seconds */
    int32_t helper;     /* pid of a process that the child waits for: its time counts, and it is killed, too; 0: none */
    int32_t limit_ms;   /* processor time in ms that the child may use from this step on; 0: no limit */
    bool held;          /* the supervisor ended the child's loop, because the child's own timer did not */
    bool copied;        /* the kernel forked, and its call also returned in the new process */
    char kind[40];      /* for a failure: what must stay the same while the case is made smaller */
    char message[1024]; /* of a failure; or why it is not checked */
    uint32_t own; /* enum check_fault_kind bits: from now on this property also reports these crashes, and shows them in this way,
                     ... */
    enum check_show own_show;
    char during[80];                         /* ... with this condition in the message: "when the first dv_alloc() fails" */
    check_how how;                           /* of a failure */
    check_made made[CHECK_MADE];             /* the first results as inferred by dv_infer(); views and arguments are left out */
    char note[512];                          /* the last message of a kernel that refused a case */
    check_origin origin;                     /* origin of a fault */
    char left_out[160];                      /* for a pass: what was not checked, and why */
    char ignored[160];                       /* of values: arguments, perhaps hints, on which no result seems to depend */
    check_loop loops[CHECK_LOOPS];           /* of parallel */
    bool in_pieces;                          /* of parallel: some case had several */
    check_accuracy accuracy[CHECK_ACCURACY]; /* of values, against the native form in f64 */
    uint32_t met, infeasible, cut, not_met;  /* of its plan; met: by cases that were tried */
    char example[140];
    double used;        /* processor time in seconds, without what made a failing case smaller */
    char dropped[200];  /* for a pass: which cases were not tried, and why */
    bool unmade;        /* not checked because no arguments were found, or none that the kernel takes: its author can mend that */
    bool unstarted;     /* no process could be started for the job; unmade is set, too */
    bool has_before;    /* it fails after a call with another case */
    check_case failing; /* the current case */
    check_case before;  /* the other one */
    uint32_t at, next;  /* the current case in the plan; how many were begun */
    uint64_t seed;      /* of its contents */
    bool has_case, done;
} check_result;

/* A property of a row. */
typedef struct check_job {
    check_plan *plan; /* its row's cases, shared with the others of the row; NULL: the property takes none */
    const check_op *op;
    const check_row *row; /* NULL: once an operator */
    const check_property *property;
    uint64_t seed, last_seed; /* first and last seed of the contents */
    uint32_t cases;           /* how many to try */
    double seconds;           /* processor time for all cases of a seed */
    int again_ms;             /* processor time in ms after which a repeated case counts as endless; 0: an eighth of --case-ms */
    check_result *result;     /* shared with the child */
    check_how how;            /* set by a property: how failures from now on are reproduced */
    const char *said_case, *said_python; /* for a failure found outside of cases: NULL, or the replacement of result->failing */
    int64_t said_elements;
    bool finished;
} check_job;

/* Report a failure, in a child. Only the first one counts. kind: a few words that name the fault, such as "read past the end". */
DV__PRINTF(3, 4) void check_fail(check_job *job, const char *kind, const char *format, ...);
DV__PRINTF(2, 3) void check_not(check_job *job, const char *format, ...); /* not checked, because */
/* Set what was not checked, for a pass. Replaces the former text; NULL: nothing was left out. */
void check_left_out(check_job *job, const char *what);
/* Count this case as refused by the kernel. */
void check_refused(check_job *job);
bool check_descriptors_kept(void); /* true if the descriptors that this worker began with are unchanged */
int check_printed(void);           /* returns the bytes written to stdout so far, at most its pipe's capacity */
/* Forks a process of the checker. The OS kills the child when its parent ends. Returns as fork(): -1 with errno. */
int check_fork(void);
/* Ends this process if the kernel forked it. Called after each call of a kernel. */
void check_after_kernel(void);
/* Replaces the current case: failures from now on refer to this one. */
void check_in_hand(check_job *job, const check_case *c);
void check_in_hand_with_results(check_job *job, const check_case *c); /* another case, of other sizes */

/* Calls fn(job, c) in a process of its own, which ends after a second. Returns true if the process exited; what counts is only
 * what is reported there. check_apart_forbidden: the same for the case that check_forbid() makes of c, if there is one: did it
 * run? */
typedef void check_case_fn(check_job *job, const check_case *c);
bool check_apart(check_job *job, const check_case *c, check_case_fn *fn);
bool check_apart_forbidden(check_job *job, const check_case *c, check_case_fn *fn);

/* Told of a job ten times a second while it runs, and once when it is finished. done: how many of all are. */
typedef void check_progress(void *user, size_t done, size_t all, const check_job *job);

typedef struct check_options {
    uint64_t seed, last_seed;
    double seconds; /* for everything; 0: no limit */
    uint32_t cases; /* for each property of each row; 0: as many as the plan needs */
    int case_ms;    /* processor time that one case may take */
    uint32_t workers;
    const char *only;                        /* "memory,shapes": NULL: all */
    const check_property *const *properties; /* NULL: check_properties */
    bool (*interrupted)(void);               /* asked ten times a second: true ends everything (NULL: never) */
    check_progress *progress;                /* may be NULL */
    void *user;                              /* its first argument */
} check_options;
bool check_wanted(const check_options *options, const char *name);

/* Loads a binary in a contained process first, because code of a library runs at load. If no fault is found, loads it here by
 * dv_load(). interrupted (or NULL): ends the wait when it returns true. Returns a status, with the message in dv_last_error(). */
int check_load(const char *path, bool (*interrupted)(void), dv_library **lib);

typedef struct check_report check_report;
/* Check operators; results are in the order of operators, rows, properties. What an interrupt left is "not checked". 0, or -1
 * with errno. */
int check_run(const check_op *ops, size_t nops, const check_options *options, check_job **jobs, size_t *njobs);
/* Try one case again in a new child; true: it fails in the same way. */
bool check_again(const check_job *job, const check_case *c, check_result *shared);
/* Replaces the failing case of the job's result by the smallest one found. False: the time was up while steps still helped. */
bool check_shrink(check_job *job);
check_result *check_shared(void); /* returns a zeroed result in memory shared with children; NULL with errno */

/* Checks that a call whose arguments share memory, as the schema allows, leaves the results of a call with copies of them
 * (property values; overlap.c). */
void check_overlaps(check_job *job, const check_case *drawn);
/* Checks that the same call in wider dtypes gives the same numbers up to rounding (property values; dtypes.c). Also checks that a
 * call in f64 is more precise than one in f32. */
void check_other_dtypes(check_job *job, const check_case *c);
/* Copies a case to `out` with f32 in the place of floats of 16 bits (dtypes.c). False: there are none, or the contract does not
 * accept it. */
bool check_widen_16_bits(const check_op *op, const check_case *c, check_case *out);
/* Copies a case to `out` with one element of one tensor that is NaN or an infinity, or all -infinity; false: there is none, or
 * the case is large (property_values.c). The others are near 0: an infinity times what one row rounds to 0 and another does not
 * may be either. Where tensors have one element each, every second case has infinities in all: there is no sum whose order
 * matters. */
bool check_with_lone_special(const check_op *op, const check_case *c, check_case *out);
/* Checks that results depend on each argument that may have another value, and on more than a tensor's first element (property
 * values; depends.c). */
void check_dependence(check_job *job, const check_case *c);
/* Checks that no result depends on an argument that the contract calls unused (the same). */
void check_unused(check_job *job, const check_case *c);
/* Checks that the kernel treats a dim of one size as it treats the dim at smaller and larger sizes (property values; sizes.c). */
void check_sizes(check_job *job, const check_case *c);
/* A size of a case that can be another: of a name, or an int argument. */
typedef struct check_varied {
    const check_name *name; /* NULL: of an argument */
    int32_t axis;           /* of a run: which of its dims */
    size_t slot;            /* without a name: the argument */
} check_varied;
/* Copies a case to *c with another size. *size: the wanted size, then the nearest one that the contract allows. axes: receives
 * the dim of each tensor that has the size; -1: none; -2: it changes in another way. False: the contract refuses it
 * (property_parallel.c). */
bool check_resize(const check_op *op, const check_case *whole, const check_varied *of, int64_t *size, check_case *c, int *axes);

/* ---- Containment (contain.c) --------------------------------------------------------------------------------------------- */

/* Cause of the end of a contained process. */
enum check_end_cause {
    CHECK_ENDED_ITSELF,         /* the child exited, or a signal ended it: see `status` */
    CHECK_ENDED_WAITING,        /* killed: it slept for longer than its patience */
    CHECK_ENDED_STOPPED,        /* killed: it was stopped for that long */
    CHECK_ENDED_LOOPING,        /* killed: it used more processor time than check_result.limit_ms */
    CHECK_ENDED_CROWDED,        /* killed: it started too many processes */
    CHECK_ENDED_PARENT_KILLED,  /* its supervisor was killed */
    CHECK_ENDED_PARENT_STOPPED, /* its supervisor was stopped */
    CHECK_ENDED_UNSTARTED,      /* the process was not started: `status` is the errno */
};
typedef struct check_ending {
    enum check_end_cause cause;
    int status;    /* as from waitpid() */
    double used;   /* processor time in seconds */
    uint32_t left; /* number of processes that it left running */
} check_ending;

enum { CHECK_CONTAINED = 64 };
typedef struct check_contained {
    int pid, fd; /* pid: of the supervisor; fd: socket, readable when the supervisor has ended */
    int stopped; /* polls in a row that found the supervisor stopped */
} check_contained;
typedef void check_contained_fn(void *user);

/* Records the open descriptors, which contained processes close, and makes this process a subreaper. Call it once, before code of
 * an operator is loaded. */
void check_contain_begin(void);
/* Adds a descriptor to those that contained processes close; is == false: removes it. */
void check_descriptor_private(int fd, bool is);
/* Starts fn(user) in a contained process. r: shared memory in which this process counts its progress. patience: seconds that it
 * may sleep. False: not started, with errno. */
bool check_contain(check_contained *c, const check_result *r, double patience, check_contained_fn *fn, void *user);
/* True if the contained process has ended. Then none of its descendants is left, *e has the cause, and *c can be used again. */
bool check_contained_ended(check_contained *c, check_ending *e);
/* Kills all contained processes and all other descendants of this process. Takes less than a second. */
void check_contained_end_all(void);
double check_now(void);  /* seconds of the monotonic clock */
double check_used(void); /* seconds of processor time of this process: on a busy machine the same cases are tried */

/* ---- Programs that show a failure (repro.c) ------------------------------------------------------------------------------ */

/* Can a program reproduce it? Only failures with a case and a known check. */
bool check_repro_possible(const check_job *job);
/* What its file is called, without the ending: "f.memory.f_f32"; the heads of programs name it. The caller frees it. */
char *check_repro_name(const check_job *job);
void check_repro_case(const check_job *job, FILE *to); /* "x: f32[3], after a call with x: f32[5]" */
/* A C program and a Python script: each ends with a signal or with status 1 while the fault is there, with 0 when it is not, and
 * with 2 when the binary cannot be loaded. The binary is their first argument. */
bool check_repro_c(const check_job *job, FILE *to);      /* false: the failure cannot be reproduced in C */
bool check_repro_python(const check_job *job, FILE *to); /* false: from Python */

/* The arguments of the job's failing case as Python: "{\"x\": tensor(\"float32\", (2, ), (1, ), 0, [1, 2, ], False), \"dim\": 1,
 * }". What is at its default is left out. */
void check_repro_arguments(const check_job *job, FILE *to);

/* ---- PyTorch (property_torch.c) ------------------------------------------------------------------------------------------ */

/* Make an operator that represents one of torch: schema as torch prints it, with a name for each result; contract NULL or given
 * by the user. 0, or -1 with dv_last_error(). */
int check_foreign(const char *schema, const char *contract, check_op *out);
/* The question for a Python with torch: one JSON document with each operator, its file, and cases that its contract accepts,
 * without operators of which a job has failed; "" if none is left. The caller frees it; NULL with errno. */
char *check_torch_question(const check_op *ops, size_t nops, const check_job *jobs, size_t njobs, const check_options *options);
/* Add its answer to *jobs as jobs of the property torch, a row for each check. NULL: no answer, for the reason `why`. 0, or -1 if
 * the answer cannot be read. */
int check_torch_answer(const check_op *ops, size_t nops, const char *answer, const char *why, check_job **jobs, size_t *njobs);

/* ---- Reports (report.c) -------------------------------------------------------------------------------------------------- */

/* A job for which no arguments were found; NULL: there is none. The run has failed then: it says nothing of the operator. */
const check_job *check_report_unmade(const check_op *op, const check_job *jobs, size_t njobs);
void check_report_table(const check_op *ops, size_t nops, const check_job *jobs, size_t njobs, bool color, FILE *to);
void check_report_junit(const check_op *ops, size_t nops, const check_job *jobs, size_t njobs, FILE *to);
void check_report_json(const check_op *ops, size_t nops, const check_job *jobs, size_t njobs, const check_options *options,
    double seconds, FILE *to);
void check_put_text(FILE *to, const char *s); /* as a JSON string; NULL is "" */

#endif
