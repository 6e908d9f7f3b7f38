/* The checker: declarations shared by its files. It sits above core's public API and is linked into the command.
 *
 * - A *case* is one call of an operator: its arguments as flat data without pointers, so that it can be copied through shared
 *   memory, shrunk, and printed as a program.
 * - A *kernel* is one entry of DV_KERNELS, or the decomposition of an operator without kernels.
 * - A *property* is a condition that must hold. It has one file, one line in CHECK_PROPERTIES, and a function that tries one
 *   case.
 * - A *job* is one property of one kernel of one operator. It runs in a forked child, a worker (worker.c), which tries the
 *   cases of a plan (plan.c) until one fails, and leaves its result in shared memory. Further workers shrink the failing case
 *   (shrink.c).
 *
 * No code of an operator ever runs in the parent process: a crash is a result. A result is pass, fail, or "not checked, because
 * ...". A property that cannot be sure gives the last. */
#ifndef DV_CHECK_H
#define DV_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "dovetail_test.h"

/* ---- JSON (json.c): the document of dv_operator_json() ------------------------------------------------------------------- */

enum check_json_kind {
    CHECK_JSON_NULL,
    CHECK_JSON_FALSE,
    CHECK_JSON_TRUE,
    CHECK_JSON_INT,
    CHECK_JSON_REAL,
    CHECK_JSON_STRING,
    CHECK_JSON_ARRAY,
    CHECK_JSON_OBJECT
};
typedef struct check_json {
    enum check_json_kind kind;
    const char *key;                       /* key of this member of an object; NULL for array elements and the root */
    const char *text;                      /* STRING */
    int64_t int_value;                     /* value of an INT; for a REAL its integer part */
    double real_value;                     /* value of an INT or REAL */
    const struct check_json *child, *next; /* child: first element or member; next: next sibling */
} check_json;
/* Parses a JSON text and returns its root. Returns NULL if the text is not JSON or memory is out. The tree is never freed: an
 * operator's document lives as long as the process. */
const check_json *check_json_parse(const char *text);
const check_json *check_json_find_member(const check_json *object,
    const char *key); /* returns the member of an object with this key; NULL if there is none or `object` is no object */
const check_json *check_json_find_element(
    const check_json *array, size_t i); /* returns element i of an array; NULL past the end */
size_t check_json_count_elements(const check_json *j);
const char *check_json_find_string(const check_json *object,
    const char *key); /* returns the text of the member with this key; NULL if it is absent or no string */
/* True if the member with this key is the JSON value true; false also if it is absent. */
bool check_json_is_true(const check_json *object, const char *key);
bool check_json_is_expr(const check_json *expr,
    const char
        *kind); /* true if expr is an expression of this kind: an array whose first element is the word, as in ["str", ...] */

/* ---- A case (case.c; case_fill.c: elements; case_print.c: text; case_values.c: values for dv_call()) ---- */

enum {
    CHECK_MAX_DIMS = 20,
    CHECK_MAX_ARGS = 48,
    CHECK_MAX_TENSORS = 48,
    CHECK_MAX_LIST = 9,
    CHECK_MAX_STRING = 96,
    CHECK_MAX_RESULTS = 32
};

/* X(layout, names of its variants in reports): how the elements of a tensor lie in memory. Each layout has CHECK_LAYOUT_VARIANTS
 * variants. Only variant 0 is used for a tensor that has fewer than two dims with more than one element. */
enum { CHECK_LAYOUT_VARIANTS = 3 };
#define CHECK_LAYOUTS(X)                                                                                                     \
    X(CONTIGUOUS, "contiguous", "contiguous", "contiguous")                                                                  \
    X(TRANSPOSED, "transposed", "transposed: the two dims before the last are swapped", "transposed: the last two dims")     \
    X(SLICED, "sliced: every second element of each dim", "sliced: every second element of each row",                        \
        "sliced: every second row")                                                                                          \
    X(EXPANDED, "expanded: one dim with stride 0", "expanded: one dim with stride 0", "expanded: all dims with stride 0")    \
    X(PADDED, "padded: a gap after each row", "padded: a gap of two rows after each row", "padded: a gap after each matrix") \
    X(REVERSED, "reversed: one dim with a negative stride", "reversed: one dim with a negative stride",                      \
        "reversed: all dims with negative strides")                                                                          \
    X(WIDE_STRIDE, "far: the elements of one dim lie 2^31 elements apart",                                                   \
        "far: the elements of one dim lie 2^31 elements apart", "far: the elements of one dim lie 2^31 elements apart")
enum check_layout {
#define CHECK__LAYOUT(name, ...) CHECK_LAYOUT_##name,
    CHECK_LAYOUTS(CHECK__LAYOUT)
#undef CHECK__LAYOUT
        CHECK_LAYOUT_COUNT
};

/* Ways to fill a tensor with elements. CHECK_FILL_RANDOM: each element is drawn from [low, high] with the case's seed. */
enum check_fill {
    CHECK_FILL_RANDOM,
    CHECK_FILL_SEQUENCE,
    CHECK_FILL_SPECIAL_VALUES, /* float elements include NaN, infinities, zeros and extreme numbers. If seed % 4 is
                                  CHECK_SEED_LONE_SPECIAL, exactly one element is NaN or infinite; higher bits of the seed choose
                                  it and its position */
    CHECK_FILL_LAST_EXTREME,  /* integers: all 0 (or low, if 0 is out of range), and the last element is the bound that is farther
                                 from 0. Floats: all in [low, low + 4], and the last element is high */
    CHECK_FILL_RANGE_BOUNDS,  /* integers: every second element is low, high or -1; the others are random */
    CHECK_FILL_HALVES,        /* floats: random multiples of 1/2, on which rounding functions must break ties */
    CHECK_FILL_INCREASING,    /* strictly increasing in row-major order, unless the dtype is too narrow to tell neighbours
                                 apart */
    CHECK_FILL_NONDECREASING, /* floats: nondecreasing multiples of 1/4 in row-major order, with many equal neighbours */
    CHECK_FILL_COUNT_WRAPS, /* bool: true where each index is below the largest multiple of 256 in its dim (dims below 256: any),
                               so that an 8-bit counter of true elements wraps to 0 */
    CHECK_FILL_RANGE_ENDS,  /* integers: every second element is an end of [low, high] or just past an 8- or 16-bit range; the
                               others are random. Floats: low and high by turns */
    CHECK_FILL_BINADES,     /* floats: log-uniform magnitudes from 2^-8 to high, with random signs */
    CHECK_FILL_OFFSETS,     /* integers: offsets, nondecreasing along the last dim, mostly from low to high */
    CHECK_FILL_LENGTHS,     /* integers: segment lengths, which are the n differences of n + 1 offsets */
    CHECK_FILL_PERMUTATION, /* integers: each row of the last dim is a permutation of 0 to its size - 1 */
    CHECK_FILL_LOW_PAYLOAD_NAN,   /* floats: random, and about a fifth are the NaN whose fraction has only the lowest bit set */
    CHECK_FILL_FIRST_INFINITE,    /* floats: random, but the first element is infinite */
    CHECK_FILL_NEGATIVE_INFINITY, /* floats: all elements are -infinity, which is below any finite start value of a maximum */
    CHECK_FILL_COUNT,
};
enum { CHECK_SEED_LONE_SPECIAL = 2, CHECK_LONE_VALUES = 3, CHECK_LONE_VARIANTS = 9 };
typedef struct check_tensor {
    bool present; /* false: None */
    uint8_t layout, fill;
    uint8_t layout_variant; /* variant of the layout, from 0 to CHECK_LAYOUT_VARIANTS - 1 */
    dv_dtype dtype;
    int32_t ndim;
    int64_t shape[CHECK_MAX_DIMS];
    bool high_is_last_index; /* true: `high` is that size - 1, its last valid index; false: `high` is the size. Used only with
                                high_size_code */
    int32_t high_size_code;  /* which size of the case sets `high`, as a code that contents_get_referenced_size() decodes; 0:
                                `high` is fixed */
    double low, high;
} check_tensor;

/* Value of one argument. The arguments of a case are in the schema's order. A tensor argument refers to `count` elements of
 * check_case.tensors from `first_tensor` on. */
typedef struct check_value {
    uint32_t type;  /* enum dv_value_type; DV_VALUE_DEFAULT: the argument is not passed, so it has the schema's default */
    uint32_t count; /* number of elements of a list; 1 for a tensor */
    uint32_t first_tensor;
    union {
        int64_t i;
        double f;
        bool b;
        dv_dtype dtype;
        dv_device device;
        int32_t number;
        dv_complex c;
    } as;
    int64_t ints[CHECK_MAX_LIST];  /* elements of INTS and BOOLS; for SCALARS the enum dv_scalar_kind of each element */
    double floats[CHECK_MAX_LIST]; /* elements of FLOATS and SCALARS */
    char string[CHECK_MAX_STRING]; /* text of a STRING; for STRINGS all strings, each ended by a 0 byte */
} check_value;
const char *check_value_get_string(
    const check_value *v, uint32_t index); /* returns the string with this index of a value of type STRINGS */

/* Values that a case gives the contract's names, with one array for each kind of name, in the order of check_op.names. Variadic
 * dims have at most CHECK_MAX_DIMS sizes. */
enum { CHECK_MAX_NAMES = 64, CHECK_MAX_VARIADICS = 16, CHECK_MAX_CASE_GROUPS = 8 };
typedef struct check_shape {
    int32_t ndim;
    int64_t sizes[CHECK_MAX_DIMS];
} check_shape;
typedef struct check_names {
    int64_t dims[CHECK_MAX_NAMES];
    check_shape variadics[CHECK_MAX_VARIADICS];
    dv_dtype dtypes[CHECK_MAX_VARIADICS];
    bool is_bound[CHECK_MAX_NAMES +
        2 * CHECK_MAX_VARIADICS];                 /* by index of check_op.names: true if the name has a value in this call */
    int32_t selected_case[CHECK_MAX_CASE_GROUPS]; /* by group of alternative cases of the contract: index of the selected case */
} check_names;

typedef struct check_case {
    uint64_t seed;       /* seed from which the elements of all tensors are computed */
    uint32_t plan_index; /* index of the case in its plan; also the seed of choices that no other field decides */
    uint32_t nargs, ntensors;
    bool is_invalid; /* true: the case violates the contract on purpose, and `names` is unused */
    check_names names;
    check_value args[CHECK_MAX_ARGS];
    check_tensor tensors[CHECK_MAX_TENSORS];
} check_case;

/* Returns the dim of a CHECK_LAYOUT_WIDE_STRIDE tensor whose stride is 2^31 elements: the first possible dim for layout variant
 * 0, else the last. Returns -1 if no dim has 2 to 8 elements. */
int32_t check_find_wide_stride_dim(const check_tensor *t);
/* True if the tensor has at least two dims with more than one element, so that the variants of its layout differ. */
bool check_has_layout_variants(const check_tensor *t);
/* Returns the variant of a tensor's layout; 0 if the tensor has too few long dims for variants. */
int32_t check_get_layout_variant(const check_tensor *t);
/* Computes the strides of a tensor, in elements, from its shape and layout. Sets *low and *high to the offsets of its lowest and
 * highest element from the first element. For an empty tensor *high < *low. */
void check_compute_strides(const check_tensor *t, int64_t *strides, int64_t *low, int64_t *high);
int64_t check_tensor_numel(const check_tensor *t); /* returns the product of the sizes, also for a tensor that is None */
/* True if each tensor that is not None has from 1 to max_numel elements. */
bool check_has_small_tensors(const check_case *c, int64_t max_numel);
/* Computes the elements of a tensor from its fill and the seed, and writes them with these strides; element 0 is written at
 * `first`. */
void check_fill_tensor(const check_tensor *t, uint64_t seed, void *first, const int64_t *strides);
/* Returns a new block with the elements of a tensor in its layout, from the lowest address to the highest. *first_index: receives
 * the index in the block of the tensor's first element; *nelements: number of elements of the block. The caller frees the block.
 * Returns NULL if the block exceeds 1 MB, elements have fewer than 8 bits, or memory is out. */
unsigned char *check_new_tensor_contents(const check_case *c, size_t tensor, int64_t *nelements, int64_t *first_index);
/* Returns the slot of the argument that owns tensor number `tensor` of the case; SIZE_MAX if no argument does. */
size_t check_find_tensor_slot(const check_case *c, size_t tensor);
struct check_op;
/* Prints the number x to out, and returns out. x is element `index` of `data`, or a component of it; 64-bit integers are read
 * from `data`, so that all digits are exact. Other numbers are printed as check_format_real() prints them. */
char *check_format_number(double x, const void *data, int64_t index, dv_dtype dtype, char *out, size_t size);
/* Prints x to out, and returns out: the shortest text that reads back as x in the component dtype of `dtype`, or "NaN". */
char *check_format_real(double x, dv_dtype dtype, char *out, size_t size);
void check_print_case(const struct check_op *op, const check_case *c,
    FILE *to); /* prints the arguments that are passed, as "x: f32[3, 4], dim: 1" */
/* Prints one element of a case's tensor to out, as "NaN". element_number: its position in row-major order. Returns false if the
 * dtype cannot be printed, memory is out, or the tensor has at most 4 elements, all of which the report prints anyway. */
bool check_try_format_element(const check_case *c, size_t tensor, int64_t element_number, char *out, size_t size);
int64_t check_case_max_numel(
    const check_case *c); /* returns the number of elements of the case's largest tensor; 0 if there is none */
bool check_uses_min_alignment(const check_case *c); /* true for about half of all cases: tensors that end at a guard page are
                                                       placed so that they are aligned to their element size only */

/* check_format_result_name() prints "result 'out'" or "result 0" to buffer and returns buffer. check_format_element_index()
 * prints "2, 0, 1", the index of the element with this number in row-major order. */
const char *check_format_result_name(const struct check_op *op, size_t result, char *buffer, size_t size);
void check_format_element_index(int32_t ndim, const int64_t *shape, int64_t element_number, char *out, size_t size);

/* Returns 2 and replaces a complex dtype by the dtype of its components; returns 1 for other dtypes, which stay unchanged. */
int check_get_component_count_and_dtype(dv_dtype *dtype_to_replace);
/* check_element_put() stores a double as element i of data, check_element_get() reads one, for every dtype but the complex ones.
 * Integers are exact up to 2^53. */
void check_element_put(void *data, int64_t i, dv_dtype dtype, double x);
double check_element_get(const void *data, int64_t i, dv_dtype dtype);
double check_get_unit_roundoff(
    dv_dtype dtype); /* returns half a unit in the last place of 1: 2^-24 for f32; 1 for a dtype that is no float */
/* Return the ends of the range of an integer dtype; 0 and 1 for bool. Of 64 bits the largest integer is rounded up. */
double check_get_max_integer(dv_dtype dtype);
double check_get_min_integer(dv_dtype dtype);
/* True if x lies in the range of an integer dtype; x may have a fraction. */
bool check_is_in_integer_range(dv_dtype dtype, double x);
/* True if an element has fewer bits than a byte, so that neighbours share bytes. */
static inline bool check_is_sub_byte_dtype(dv_dtype dtype) { return dtype.bits * dtype.lanes < 8; }
bool check_is_float_dtype(dv_dtype dtype);
bool check_is_complex_dtype(dv_dtype dtype);
bool check_is_integer_dtype(dv_dtype dtype); /* true for signed and unsigned integers and for bool */

/* Arguments of a case as dv_value, for dv_call(). The struct points into itself, so it must not be copied. */
typedef struct check_values {
    dv_value values[CHECK_MAX_ARGS];
    dv_tensor tensors[CHECK_MAX_TENSORS];
    int64_t strides[CHECK_MAX_TENSORS][CHECK_MAX_DIMS];
    const dv_tensor *list_tensors[CHECK_MAX_TENSORS];
    bool bools[CHECK_MAX_ARGS][CHECK_MAX_LIST];
    dv_string strings[CHECK_MAX_ARGS][CHECK_MAX_LIST];
    dv_scalar scalars[CHECK_MAX_ARGS][CHECK_MAX_LIST];
} check_values;
/* check_values_init_without_data() converts a case's arguments. Their tensors get an address that cannot be read (NULL on Meta),
 * which is enough for dv_infer(). *v points to lists and strings of *c; nothing is freed. check_is_inaccessible_data() is true
 * for addresses in that reserved range. */
bool check_is_inaccessible_data(const void *address);
void check_values_init_without_data(check_values *v, const check_case *c, dv_device device);

/* ---- An operator (operator.c) -------------------------------------------------------------------------------------------- */

typedef struct check_kernel {
    const char *name, *provider, *dtypes, *isa, *when,
        *layout_requirement; /* fields of DV_KERNELS; NULL where a kernel does not set one */
    int32_t hook_index; /* dv_test_hooks.kernel_number of a call that must use this kernel; -1: the decomposition; 0: the contract
                           alone */
    bool is_available, is_reference;
    int64_t split;
} check_kernel;

/* A name of the contract. `register_index`: register of the contract's program that holds its value (dv_partial_get()).
 * `value_index`: its index in the check_names array of its kind. */
enum check_name_kind { CHECK_NAME_DIM, CHECK_NAME_VARIADIC, CHECK_NAME_DTYPE };
typedef struct check_name {
    const char *text;
    enum check_name_kind kind;
    uint32_t register_index, value_index;
} check_name;

/* How the contract's program uses the value of one argument, and the literals that it compares the value with. */
enum {
    CHECK_MAX_LITERALS = 16,
    CHECK_MAX_BOUNDS = 8,
    CHECK_MAX_EXTRA_SIZES = 24,
    CHECK_MAX_SOURCE_WORDS = 6,
    CHECK_MAX_WORD_BYTES = 24
};
typedef struct check_literals {
    bool is_read, decides_shape; /* is_read: the program reads the value; decides_shape: the shape of a result depends on it */
    bool is_dim_index;           /* the value is the index of a dim, as in softmax's dim */
    bool decides_inference;      /* shapes, dtypes or the contract's selected case depend on the value, which is not only checked
                                    against bounds */
    size_t nequality_values;
    const check_json *equality_values[CHECK_MAX_LITERALS]; /* literals (strings and ints) that the program tests the value against
                                                              with == or != */
    size_t ncomparison_constants;                          /* number of entries of comparison_constants */
    double comparison_constants[CHECK_MAX_BOUNDS]; /* numbers with which the program compares the value: == != < <= > >= */
} check_literals;

typedef struct check_op {
    dv_operator *op;
    const char *name;               /* full name, as "ns::op.overload" */
    const char *path;               /* path of the operator's binary; NULL: the operator is not from a file */
    const char *const *sources;     /* source files that were built for the check, ended by NULL; NULL: a binary was given */
    const char *const *build_flags; /* arguments of `dovetail build` for these sources, ended by NULL; NULL: none */
    const char *module;             /* Python module given by --torch; NULL: the operator is Dovetail's, not PyTorch's */
    const char
        *given_contract; /* contract given by --contract for an operator of PyTorch, from which inputs are made; NULL: none */
    size_t nargs, nresults;
    dv_slot_info slots[CHECK_MAX_ARGS + CHECK_MAX_RESULTS];
    const check_json *json, *contract,
        *program; /* json: the declaration (dv_operator_json()); contract, program: parts of it, NULL without a contract */
    check_name names[CHECK_MAX_NAMES + 2 * CHECK_MAX_VARIADICS];
    size_t nnames;
    check_literals literals[CHECK_MAX_ARGS];
    int64_t extra_sizes[CHECK_MAX_EXTRA_SIZES]; /* further sizes to try: numbers that the contract or the kernel's source compares
                                                   with */
    size_t nextra_sizes,
        ncontract_sizes; /* ncontract_sizes: number of leading extra_sizes that come from the contract, not the source */
    char source_words[CHECK_MAX_SOURCE_WORDS]
                     [CHECK_MAX_WORD_BYTES]; /* string arguments to try: string literals of the kernel's source */
    size_t nsource_words;
    bool is_sorted[CHECK_MAX_ARGS];  /* by argument: true if the contract requires sorted(x) of its elements */
    bool is_bounded[CHECK_MAX_ARGS]; /* by argument: true if the contract bounds each of its elements, as 0 <= x.values < n */
    bool is_unused[CHECK_MAX_ARGS];  /* by argument: true if the contract declares it unused, so that no result depends on it */
    bool has_element_facts;          /* true if the contract states facts on elements of tensors, as x.values > 0 */
    check_kernel *kernels; /* kernels for the CPU; if there are none, one entry for the decomposition, or for a contract whose
                              results are all views */
    size_t nkernels;
    const char *other_device;             /* name of another device that has kernels; NULL: none */
    bool is_nondeterministic;             /* has the tag nondeterministic_seeded or nondeterministic_bitwise */
    bool is_seeded;                       /* has the tag nondeterministic_seeded: results are reproducible for one seed */
    double rtol, atol, rounded_tolerance; /* tolerances of the contract; rtol and atol are -1 and rounded_tolerance is 0 where it
                                             declares none */
    bool has_shape_function;
    const char *unsupported_reason; /* reason why the operator cannot be checked; NULL: it can */
    bool is_torch_operator; /* the operator is PyTorch's: only a schema and perhaps a contract are known (op may be NULL) */
    const char *load_error; /* error message of a binary that does not load and is listed by its file name; NULL: it loaded */
} check_op;
/* Fills *op from the declaration of operator o. Returns 0, or -1 with the message in dv_last_error(). Memory of *op is never
 * freed. */
int check_op_init(check_op *op, dv_operator *declared);
/* Returns the contents of a file, ended by a 0 byte, and sets *size to its bytes. The caller frees the block. Returns NULL if the
 * file cannot be read. */
char *check_new_file_contents(const char *path, size_t *size);
extern const char *check_command_path; /* path of this process's program, to run it again; the command sets it */
/* Returns the text of a file of check/programs/ that is embedded in the command; NULL if none has this name. */
const char *check_find_program_text(const char *name);
/* Writes the two files that measure line coverage (coverage.c): a header, with which an operator's source must be built, and an
 * empty map. Processes with DOVETAIL_COVERAGE in their environment mark in the map what they reach. Returns false if a file
 * cannot be written. */
bool check_try_write_coverage_files(const char *header_path, const char *map_path);
/* Prints to `out` the source lines that no case reached, in functions that ran: "41, 60-63", or "a.c: 41; b.c: 60-63" for several
 * sources. `out` is "" if every line was reached or coverage is unknown. `unreached_loop` receives the last loop whose body never
 * ran, in a function that ran, as "line 41" or "line 41 of a.c"; else "". sources: ended by NULL. */
void check_print_unreached_lines(const char *binary, const char *map_path, const char *const *sources, char *out, size_t capacity,
    char *unreached_loop, size_t unreached_loop_capacity);
/* Code of an operator's binary that caused a fault: the faulting instruction, or the call that led to it. */
typedef struct check_fault_origin {
    char object[256];      /* path of the loaded binary; "" if it is unknown */
    uint64_t file_address; /* address of the instruction relative to the start of that binary */
} check_fault_origin;

/* Prints the source line of a fault to out, as "scale.c:12". sources: NULL-terminated list of files whose lines are preferred
 * where code of several files is inlined; NULL: no preference. Returns false if the line is unknown, as for a binary without line
 * numbers. */
bool check_try_format_origin_line(const check_fault_origin *origin, const char *const *sources, char *out, size_t size);
/* Adds x - 1, x and x + 1 to op->extra_sizes, the further sizes that cases try, if x is from 3 to 65536. Sizes that are in the
 * list are not added again, and a full list stays as it is. */
void check_add_extra_size(check_op *op, int64_t size);
/* Adds each size that a C file compares with, and its neighbours, to op->extra_sizes. */
void check_add_source_sizes(check_op *op, const char *path);
/* Copies string literals of a C file outside of declarations to out, as candidates for string arguments. Returns their number, at
 * most `capacity`. */
size_t check_list_source_strings(const char *path, char (*out)[CHECK_MAX_WORD_BYTES], size_t capacity);

bool check_is_tensor_argument(const check_op *op, size_t slot); /* true for a tensor and for a list of tensors */
/* Returns the contract's name with this kind and text; NULL if the contract has no such name. */
const check_name *check_op_find_name(const check_op *op, enum check_name_kind kind, const char *text);
/* Returns a pointer to the size that a case gives a name; for variadic dims to the first of their sizes. Returns NULL for the
 * name of a dtype. In check_op.names all names of sizes come before those of dtypes. */
int64_t *check_name_find_sizes(const check_name *name, check_case *c);
/* True if another name of the contract, or a fact on elements, is computed from the sizes of this name. */
bool check_name_has_dependents(const check_op *op, const check_name *name);

/* ---- Arguments that fit together (fit.c) --------------------------------------------------------------------------------- */

/* Changes the tensors, numbers and names of case c so that they fit the contract, by partial inference (dv_partial). A value that
 * does not fit becomes the nearest one that does. previous: an earlier case; values in which c differs from it are kept where
 * possible. Without `previous`, c's names are kept where possible, and c->plan_index decides whether numbers or sizes come first.
 * element_ranges: receives the range of each tensor's elements; NULL: contents of c are narrowed to these ranges. Returns false,
 * with dv_last_error(), if nothing fits. */
bool check_try_fit_case(const check_op *op, check_case *c, const check_case *previous, dv_range *element_ranges);
typedef struct check_fit_order {
    const check_name *names[2];
    bool ints_first; /* true: int arguments are fixed before the sizes of names */
} check_fit_order;
/* Does the same as check_try_fit_case(), with names and ints fixed in a given order. */
bool check_try_fit_case_in_order(const check_op *op, check_case *c, const check_fit_order *order, dv_range *element_ranges);
/* Sets shape_is_free[i] and dtype_is_free[i] for each tensor i of the case whose shape or dtype depends on no name of the
 * contract. Also sets the dtype of the tensors whose dtype is not free. */
void check_flag_free_tensors(const check_op *op, check_case *c, bool *shape_is_free, bool *dtype_is_free);
/* Returns a partial inference in which all arguments are unknown, except the one in `slot`, which has known_value (NULL: that one
 * is unknown, too). The caller frees it. Returns NULL if core has no facts about such a call, or no call with that value exists.
 */
dv_partial *check_new_partial_inference(const check_op *op, size_t slot, const check_value *known_value);
/* Returns *v; if *v is DV_VALUE_DEFAULT and the contract reads the argument, returns the schema's default value. */
check_value check_get_value_or_default(const check_op *op, size_t slot, const check_value *v);
/* Moves low and high of a tensor into the allowed range; an empty range changes nothing. */
void check_clamp_element_range(check_tensor *t, dv_range allowed);
void check_set_tensor_list_length(check_case *c, size_t slot,
    uint32_t length); /* sets the number of tensors in the list argument of this slot, as far as the case has capacity */

/* ---- Contents of index-like arguments (index_contents.c) ---- */

/* True if the tensor is present and of an integer dtype other than bool, so that its elements may be indices. */
bool check_can_hold_indices(const check_tensor *t);
/* True if the tensor's fill computes each element from its position: offsets, lengths or a permutation. */
bool check_has_positional_fill(const check_tensor *t);
/* Returns element i, in row-major order, of a tensor for which check_has_positional_fill() is true. */
double check_get_positional_element(const check_tensor *t, uint64_t seed, int64_t element_number);
/* Updates `high` of each tensor with a high_size_code from the current size that the code names. */
void check_update_bounds_from_sizes(check_case *c);
/* Makes the integer tensor *t, number `tensor` of the case, hold indices below one of the case's sizes that is larger than high
 * + 1. rotation: selects one of several such sizes. *t stays unchanged if there is none. */
void check_set_index_below_size(const check_case *c, size_t tensor, uint32_t rotation, check_tensor *t);
/* Copies a case that the kernel refused to `out`, and gives its integer tensors other contents; k is the number of the attempt,
 * from 0. Returns false if the case has no integer tensor, or no attempts are left. */
bool check_try_make_contents_variant(const check_op *op, const check_case *refused, uint32_t attempt, check_case *out);
/* Records that the kernel accepted the contents of the last check_try_make_contents_variant(), so that they are tried first for
 * later refused cases. */
void check_note_accepted_contents(void);

/* ---- The plan: the cases of a kernel (plan.c) ---- */

enum { CHECK_MAX_CASES = 200, CHECK_DEFAULT_MAX_ELEMENTS = 400000 };
/* Reasons for which a planned case is no longer tried. */
enum check_drop_reason {
    CHECK_NOT_DROPPED,
    CHECK_DROPPED_SLOW,        /* the case takes longer than --case-ms */
    CHECK_DROPPED_AS_SLOW,     /* the case has as much work as earlier cases that were too slow */
    CHECK_DROPPED_SLOW_LARGER, /* the case is too slow only because its property enlarges it */
};
typedef struct check_plan {
    uint32_t ncases;
    uint32_t infeasible_pairs, oversized_pairs,
        uncovered_pairs; /* numbers of pairs of levels that no case covers: impossible by the contract; only in cases above
                            --max-elements; not reached */
    uint32_t newly_covered_pairs[CHECK_MAX_CASES]; /* number of pairs of levels that each case is the first to cover */
    char uncovered_example[140];                   /* an example of an uncovered pair; or "N cases" if the plan became full */
    char last_refusal[512];                        /* error message of the last case that dv_infer() refused */
    int64_t smallest_too_large_numel;              /* number of elements of the smallest case that fits the contract but exceeds
                                                      --max-elements; 0: none */
    bool has_seen_endless_case; /* true once a case of the plan was found to be endless, so that the proof is not repeated */
    double min_slow_work;     /* check_estimate_work_with_ints() from which a case above --case-ms counts as slow, not endless; 0:
                                 unknown */
    bool has_stray_view_case; /* true: stray_view_case is set to a case that fits the contract, but whose result would be a view
                                 outside of its argument */
    check_case stray_view_case;
    volatile uint8_t dropped[CHECK_MAX_CASES]; /* enum check_drop_reason */
    check_case cases[CHECK_MAX_CASES];
} check_plan;
/* Fills *plan with cases that cover all pairs of levels of two factors (plan.c). The seed decides only a few sizes;
 * check_copy_case_with_seed() sets the seed of contents. wanted_cases: number of cases, which then differ as much as possible; 0:
 * as many as the pairs need. Runs shape functions, so it is called only in a worker process. The plan is empty, with
 * dv_last_error(), if dv_infer() accepts no case. */
void check_plan_make_cases(
    const check_op *op, const check_kernel *kernel, uint32_t wanted_cases, uint64_t seed, check_plan *plan);
/* Copies a planned case to `out` with a seed of contents that is derived from `seed` and the index of the case. */
void check_copy_case_with_seed(const check_case *planned, uint64_t seed, check_case *out);
void check_count_plan_progress(void); /* called for each planned case, so that a time limit sees progress (job.c) */

/* ---- The work of a call (work.c) ---- */

bool check_has_endless_int(const check_op *op,
    const check_case *c); /* true if an int argument is at least 2^31 - 1 or at most -2^31, so that a loop up to it may not end in
                             time; numbers that the contract compares with do not count */
double check_estimate_work(
    const check_op *op, const check_case *c); /* returns the product of the sizes of all dim names, where 0 counts as 1; variadic
                                                 dims enter once, by the largest product of one name's dims */
double check_estimate_work_with_ints(const check_op *op,
    const check_case
        *c); /* returns check_estimate_work() times each int argument, or element of a list of ints, that exceeds 1 */

/* ---- Cases (case_variants.c) ---- */

/* Copies an accepted case to `out` and changes one thing so that it violates the contract or schema. number: selects the change,
 * from 0. violated_rule: receives the part of the contract or schema that is violated. Returns false if there is no change with
 * this number. */
bool check_try_make_invalid_case(
    const check_op *op, const check_case *accepted, uint32_t number, check_case *out, char *violated_rule, size_t size);
/* Copies an accepted case to `out` and sets the last element of one tensor to a number that the contract forbids. Returns false
 * if the contract bounds no tensor's elements. */
bool check_try_make_forbidden_case(const check_op *op, const check_case *accepted, check_case *out);
/* Returns whether the contract accepts a case. CHECK_VERDICT_TOO_LARGE: a tensor exceeds check_max_elements.
 * CHECK_VERDICT_BAD_CONTENTS: dv_infer() accepts the case, but its elements violate facts of the contract, so it must not run.
 * The message of a refusal is in dv_last_error(). */
extern int64_t check_max_elements; /* limit on the number of elements of a tensor, set by --max-elements */
enum check_verdict { CHECK_VERDICT_ACCEPTED, CHECK_VERDICT_REFUSED, CHECK_VERDICT_BAD_CONTENTS, CHECK_VERDICT_TOO_LARGE };
enum check_verdict check_classify_case(const check_op *op, const check_case *c);
/* True if dv_infer() refuses a case only because a view of its result leaves the argument's memory, and no int argument decides
 * where the view lies. */
bool check_is_refused_for_stray_view(const check_op *op, const check_case *c);
/* True if check_classify_case() returns CHECK_VERDICT_ACCEPTED. */
bool check_is_accepted(const check_op *op, const check_case *c);

/* Enlarges contract name number attempt / 4 of an accepted case until a tensor has more than 2^31 elements. attempt % 4 selects a
 * variant. 1: int arguments that the contract reads get that size. 2: all other dims become 1. 3: integer tensors get small
 * elements, and other dims are at least 4. *output_is_oversized: true if a written tensor or result is that large.
 * *no_more_names: true if the contract has no name of that number. Returns false if the case cannot be made.
 * check_classify_case() must not be called with the result. */
bool check_try_enlarge_case_past_2_31(
    const check_op *op, check_case *c, uint32_t attempt, bool *output_is_oversized, bool *no_more_names);

/* State of the pseudo-random generator (random.c). Any state is a valid seed. */
typedef struct check_random { uint64_t state; } check_random;
uint64_t check_random_next(check_random *r); /* returns 64 random bits and advances the state */
int64_t check_random_between(
    check_random *r, int64_t low, int64_t high); /* returns a random integer from low to high, both included */

/* ---- Guarded memory and calls (guarded_call.c; guarded_contents.c: elements; guarded_location.c: addresses) ---- */

/* Side of a buffer that lies at a guard page: its end (AFTER) or its start (BEFORE). */
enum check_guard_side { CHECK_GUARD_AFTER, CHECK_GUARD_BEFORE };

/* Kinds of memory whose contents are undefined before the kernel writes them. */
enum check_undefined_memory {
    CHECK_NO_MEMORY,
    CHECK_DV_ALLOC_MEMORY,
    CHECK_MALLOC_MEMORY,
    CHECK_WORKSPACE_MEMORY,
    CHECK_SCRATCH_MEMORY,
    CHECK_RESULT_MEMORY
};

typedef struct check_guarded_call {
    const check_op *op;
    const check_kernel *kernel;
    enum check_guard_side guard_side;
    bool
        always_ends_at_guard; /* tensors end exactly at the guard page, even if that aligns them better than their element size */
    uint8_t poison_byte;      /* byte that fills results, workspace and malloc() blocks before the kernel writes them */
    enum check_undefined_memory other_memory; /* kind of memory that is filled with other_poison_byte instead */
    uint8_t other_poison_byte;
    uint8_t stack_poison_byte; /* byte that fills the stack below the caller, where the kernel's variables will be */
    uint8_t
        number_poison_byte; /* byte that fills number results, and the `value` of absent optional arguments, before the call */
    size_t poisoned_stack_bytes;     /* number of bytes of the stack that are filled before the call */
    int initial_errno;               /* value of errno when the kernel begins */
    bool use_identity_matrices;      /* real square matrices get 1 on the diagonal and 0 elsewhere */
    size_t replaced_tensor_plus_1;   /* 1 + index of the tensor whose elements are replaced by other valid ones; 0: no tensor */
    bool keep_first_element;         /* the first element of the replaced tensor keeps its value */
    double relative_perturbation;    /* real elements are changed up or down by this relative amount, as 1e-6; 0: unchanged */
    double integer_step;             /* number added to integers without bounds, unless the sum is out of range */
    const check_case *contents_from; /* another case whose elements the tensors get, converted to their own dtypes and layouts;
                                        NULL: their own elements */
    uint32_t host_flags;             /* enum dv_host_flags of the host */
    bool ignore_split;               /* a kernel with .split is called once for the whole call, not for each slice */
    int32_t watched_slot;            /* slot of the argument whose struct field watch_field() observes (dv_test_hooks.watch) */
    void *(*watch_field)(const dv_host *host, void *frame, size_t size, size_t field_offset, size_t field_size);
    bool keep_scratch_contents; /* dv_parallel_scratch() memory keeps what an earlier chunk or call left in it, in place of
                                   poison_byte */
    bool pass_generator_values; /* each Generator argument gets a value; false: they are None */
    int (*parallel_for)(const dv_host *host, int64_t begin, int64_t end, int64_t grain, dv_range_fn fn,
        void *arg); /* dv_host.parallel_for of the call; NULL: core's own threads */
    /* Called at each parallel loop of the kernel, whose body is fn. NULL: not called. */
    void (*loop)(const dv_host *host, int64_t begin, int64_t end, int64_t grain, void (*fn)(void));
    /* Set by check_guarded_call_run(): */
    int status;             /* status that dv_call() returned */
    bool kernel_declined;   /* true: the kernel does not accept this case (.when, .dtypes), so it did not run */
    bool kernel_ran;        /* false: the call failed before the kernel function was called */
    bool allocated_scratch; /* true: the kernel called dv_parallel_scratch() */
    bool used_given_generator, used_default_generator; /* random numbers were drawn from a Generator argument; from the default
                                                          generator although one was passed */
    size_t used_stack_bytes; /* number of bytes of the stack that the kernel changed, at most poisoned_stack_bytes */
    dv_value results[CHECK_MAX_RESULTS];
    const dv_tensor *list_tensors[CHECK_MAX_TENSORS]; /* tensors of list results */
} check_guarded_call;
/* Makes a case's tensors in guarded memory, inputs read-only, and calls the operator once. Results are valid until the next call.
 * An access out of bounds ends the process: the fault handler (fault.c) records slot, offset and direction. */
void check_guarded_call_run(check_guarded_call *call, const check_case *c);
/* True if some guarded call of this process could not get memory for its tensors; the status of such a call says nothing about
 * the kernel. */
bool check_guarded_call_lacked_memory(void);
/* True if elements of the tensor can be replaced by other valid ones: real numbers, and integers for which the contract allows
 * several values and no order. */
bool check_can_replace_elements(const check_tensor *t);
/* Returns argument tensor i as it is after the last guarded call. */
const dv_tensor *check_get_last_tensor(size_t tensor);
/* Iterator over the tensors that the host allocated for results of the last call, including those in lists. Start with { 0 };
 * check_result_iterator_try_next() returns false after the last tensor. Results that are arguments, views or absent are skipped.
 */
typedef struct check_result_iterator {
    size_t result, element, next;
    const dv_tensor *t, *as_allocated; /* t: the tensor after the call; as_allocated: its struct as the host made it, to detect a
                                          kernel that changes sizes or strides */
} check_result_iterator;
bool check_result_iterator_try_next(const check_guarded_call *call, check_result_iterator *iterator);
/* Prints "result 'out'" or "element 1 of result 'outs'" to buffer, and returns buffer. */
const char *check_format_result_tensor(
    const check_guarded_call *call, const check_result_iterator *iterator, char *buffer, size_t size);
/* Returns words to append to a message if the faulting address held a tensor of an earlier call (was_earlier); else "". */
const char *check_get_earlier_tensor_note(bool was_earlier);
/* True if the last call changed bytes between the elements of a written argument. *offset: receives their distance in bytes from
 * the first element. */
bool check_has_write_between_elements(const check_case *c, size_t tensor, int64_t *offset);
/* True if the last guarded call changed an element of tensor number `tensor`, which it may write. */
bool check_has_written_argument(size_t tensor);
/* Returns the address of the first byte in [begin, end) that is not `expected`; NULL if all bytes are. */
const uint8_t *check_find_first_unequal_byte(uintptr_t begin, uintptr_t end, uint8_t expected);
/* True if the last call changed the unused bytes between a workspace or dv_alloc() block and its guard page, which alignment
 * leaves. description: receives the name of that memory. */
bool check_has_write_next_to_memory(char *description, size_t size);
/* Memory of the checker that contains an address, or is nearest to it; for messages of the fault handler. */
typedef struct check_memory_location {
    char description[96]; /* name of the memory, as "argument 'x'", "result 0" or "the workspace" */
    bool is_readonly, is_inside, is_heap, is_freed;
    bool is_in_sparse_range;  /* the address lies in a reserved range that only sparse tensors use */
    bool is_between_elements; /* the address lies between two elements of a tensor whose strides leave gaps */
    bool is_metadata;         /* the memory holds sizes, strides or list pointers, not elements */
    bool is_earlier_tensor;   /* an argument or result of an earlier call was at this address */
    bool is_in_result_list;   /* the memory belongs to a list result, which a Python program cannot pass */
    int64_t offset, low,
        high; /* offset: of the address, in bytes from the first element; the memory is [low, high) on the same scale */
} check_memory_location;
bool check_is_in_kernel(void); /* true while a guarded call runs the kernel */
/* True if the running call has a workspace of 0 bytes and no argument is None, so that a null pointer can only be the workspace.
 */
bool check_has_empty_workspace(void);
bool check_try_find_nearest_memory(const void *address,
    check_memory_location
        *out); /* describes the memory at or near an address; returns false if no memory of the checker is near */
/* Returns the array of argument tensors of the last guarded call, for check_outputs_copy(). */
const dv_tensor *check_get_last_argument_tensors(void);

/* ---- Outputs (output.c) ---- */

/* Contiguous copies of everything that a call wrote: number results, newly made result tensors, and written arguments. */
typedef struct check_output {
    size_t slot, element;  /* element: index in a list of tensors, else 0 */
    bool is_number_result; /* the result is an int, float or bool, stored in t as a tensor without dims */
    dv_tensor t;
    int64_t dims[2 * CHECK_MAX_DIMS];
} check_output;
typedef struct check_outputs {
    size_t noutputs, used_bytes, capacity_bytes;
    bool is_incomplete; /* some output is missing in `items`, because it has too many bytes or dims, or `items` is full.
                           Comparisons skip such outputs */
    check_output items[CHECK_MAX_RESULTS + CHECK_MAX_TENSORS];
    char *memory;
} check_outputs;
/* Moves the tensor pointers of list results to `tensors`, an array of CHECK_MAX_TENSORS, and frees the lists' own arrays. Returns
 * false if there are more tensors. */
bool check_try_move_result_lists(const check_op *op, dv_value *results, const dv_tensor **tensors);
/* Reserves memory whose pages are mapped when they are touched. The caller unmaps it. Returns NULL if that fails. */
char *check_reserve_memory(size_t bytes);
/* Replaces the outputs in *o by copies of what a call wrote. tensors: argument tensors of the call. An output that does not fit
 * sets o->is_incomplete. *o must be zeroed before its first use; its memory is then used again, and never freed. */
void check_outputs_copy(
    check_outputs *o, const check_op *op, const check_case *c, const dv_value *results, const dv_tensor *tensors);
/* True if the outputs of two calls differ in shape or in any bit, apart from bits of NaN. difference: receives the first
 * difference, as "element [1, 2] of result 'out' is 3 and then 4". */
bool check_outputs_differ(const check_op *op, const check_outputs *a, const check_outputs *b, char *difference, size_t size);
/* True if the outputs of two calls differ by more than the operator's tags allow. With nondeterministic_bitwise, real numbers may
 * differ as in another order of additions, and integers are not compared. For other operators the function equals
 * check_outputs_differ(). difference: receives the first difference. */
bool check_outputs_differ_unordered(
    const check_op *op, const check_case *c, const check_outputs *a, const check_outputs *b, char *difference, size_t size);
/* True if the outputs of two calls differ in shape, or by more than the rounding of sums in another order. difference: receives
 * the first difference. */
bool check_outputs_differ_beyond_rounding(
    const check_op *op, const check_outputs *a, const check_outputs *b, char *difference, size_t size);
double check_output_get_max_magnitude(
    const check_output *o); /* returns the largest magnitude among the finite elements of an output */
double check_output_get_number(
    const check_output *o, int64_t index, int component); /* returns one element as a double; component: 0 real, 1 imaginary */
/* Prints a component of one element to out, as check_format_number() does, and returns out. */
char *check_output_format_number(const check_output *o, int64_t index, int component, char *out, size_t size);
/* True if element a_index of output a and element b_index of output b differ by more than the tolerance. *component: receives 0
 * or 1, the component that differs. NaN equals NaN. */
bool check_output_elements_differ(
    const check_output *a, int64_t a_index, const check_output *b, int64_t b_index, double tolerance, int *component);
const char *check_output_format_name(const check_op *op, const check_output *o, char *buffer,
    size_t size); /* prints "result 'out'" or "argument 'x'" to buffer and returns buffer */
/* Prints "element [1, 2] of result 'out'" to out. element_number: position in row-major order. */
void check_output_format_element_name(const check_op *op, const check_output *o, int64_t element_number, char *out, size_t size);

/* ---- Unguarded calls (unguarded_call.c): many, fast, from any thread, on slices of tensors ---- */

typedef struct check_saved_argument {
    char *data;
    const char *copy;
    size_t bytes;
} check_saved_argument;
typedef struct check_unguarded_call {
    dv_host host;
    dv_test_hooks hooks; /* test hooks, to which `host` points */
    const check_op *op;
    const check_case *c;
    check_values values;
    int64_t slice_shapes[CHECK_MAX_TENSORS][CHECK_MAX_DIMS]; /* shapes of the argument tensors, if the call is one of a slice */
    dv_value results[CHECK_MAX_RESULTS];
    const dv_tensor *list_tensors[CHECK_MAX_TENSORS]; /* tensors of list results */
    int status;
    bool kernel_ran, is_incomplete; /* is_incomplete: the checker's memory was too small, so that the results say nothing */
    size_t allocations, failing_allocation; /* allocations: number of the host's allocations in the call; failing_allocation:
                                               number of the one that must fail, from 1; 0: none */
    size_t mallocs, failing_malloc; /* mallocs, failing_malloc: as allocations and failing_allocation, for malloc() calls of the
                                       kernel if counts_mallocs is set */
    bool counts_mallocs;
    check_saved_argument
        saved[CHECK_MAX_TENSORS];        /* written arguments and copies of their contents, from which each call restores them */
    char *argument_memory, *host_memory; /* argument_memory: holds the arguments; host_memory: holds results, workspace and
                                            dv_alloc() blocks, and is reused by each call */
    size_t argument_memory_used, host_memory_used;
} check_unguarded_call;
/* Prepares an unguarded call of a case: fills its arguments. Results, workspace and dv_alloc() will get zeroed memory. Returns
 * false if memory is out. */
bool check_unguarded_call_try_init(
    check_unguarded_call *call, const check_op *op, const check_kernel *kernel, const check_case *c);
/* Prepares a call with contiguous copies of a slice of another call's arguments: indices [begin, end) of dim axes[i] of tensor i,
 * or all of the tensor if axes[i] is -1. Returns false if memory is out. */
bool check_unguarded_call_try_init_slice(
    check_unguarded_call *call, const check_unguarded_call *whole_call, const int *axes, int64_t begin, int64_t end);
/* Prepares a call in which two contiguous tensors of one dtype share memory: tensor `read` begins `distance` elements after
 * tensor `written`. Returns false if memory is out. */
bool check_unguarded_call_try_init_overlap(check_unguarded_call *call, const check_op *op, const check_kernel *kernel,
    const check_case *c, size_t written, size_t read, int64_t distance);
/* True if the call changed argument memory before the first or after the last element of this contiguous written tensor. */
bool check_unguarded_has_stray_write(const check_unguarded_call *call, size_t tensor);
/* Restores written arguments and calls the operator. call->status: status of dv_call(). Results are valid until the next call. */
void check_unguarded_call_run(check_unguarded_call *call);

/* ---- malloc() while a kernel runs (guarded_heap.c): guarded as well ---- */

void check_heap_forget_faults(void); /* clears recorded overruns and overlapping copies; called before each call */
/* Makes malloc() return guarded blocks filled with `poison`, until check_heap_guard_end(). Without memory for them it stays as it
 * is. */
void check_heap_guard_begin(enum check_guard_side guarded_side, uint8_t poison);
void check_heap_guard_end(void);
void check_heap_zero_unguarded(void);  /* makes malloc() return zeroed memory outside of guarded calls */
void check_heap_overwrite_freed(void); /* makes free() overwrite the block outside of guarded calls */
/* Starts counting calls of malloc() and its family, and makes call number failing_call fail (from 1; 0: none).
 * check_heap_count_end() stops counting and returns the count. */
void check_heap_count_begin(size_t failing_call);
size_t check_heap_count_end(void);
/* Describes the malloc() block at or nearest to an address. Returns false if the address lies outside of guarded blocks. */
bool check_heap_try_find_location(const void *address, check_memory_location *out);
bool check_heap_has_write_next_to_block(
    char *description, size_t size);       /* true if the kernel wrote next to a malloc() block; describes the block */
size_t check_heap_count_live_blocks(void); /* returns the number of malloc() blocks that kernels have not freed */
size_t check_heap_get_overlap_bytes(
    void); /* returns the size in bytes of the last kernel's memcpy() between overlapping memory; 0: there was none */
bool check_heap_has_wrong_free(void); /* true if a kernel freed a block twice, or an address that malloc() never returned */

/* ---- Tolerances (tolerance.c) ---------------------------------------------------------------------------------------- */

/* Tolerance between two right values a and b of an element: |a - b| <= atol + rtol * |b|. 0 and 0: the values must be equal.
 * equal_terms_factor: factor by which a sum of equal terms may differ more, since all its roundings have one sign. */
/* Returns the tolerance for results of a case with this dtype. numel: number of elements of the result. single_reference: b is
 * the only reference, so that its own rounding is allowed, too. */
typedef struct check_tolerance { double rtol, atol, equal_terms_factor; } check_tolerance;
check_tolerance check_get_tolerance(
    const check_op *op, const check_case *c, dv_dtype dtype, int64_t numel, bool single_reference);
/* Returns the absolute tolerance between results whose sums were added in another order. largest: magnitude of the largest input;
 * 0 is returned for integers. */
double check_get_reorder_tolerance(const check_op *op, dv_dtype dtype, double largest);
double check_get_max_finite(dv_dtype dtype); /* returns the largest finite number of a float dtype */

/* ---- Properties ---------------------------------------------------------------------------------------------------------- */

struct check_job;
typedef struct check_property {
    const char *name;
    const char *description;  /* what is true of an operator that passes, in one line */
    bool per_kernel;          /* the property is checked for each kernel; false: once for each operator */
    uint32_t reported_faults; /* enum check_fault_kind bits: the kinds of faults that this property reports as its failures */
    /* Returns the reason for which the property does not apply to a kernel; NULL if it applies. The pointer may be NULL: it
     * always applies. */
    const char *(*find_inapplicable_reason)(const check_op *op, const check_kernel *kernel);
    /* Tries one accepted case, and calls check_fail() if the property does not hold. c is the job's current case;
     * check_set_current_case() replaces it. The pointer may be NULL if check_without_cases is set. */
    void (*test_case)(struct check_job *job, const check_case *c);
    /* Checks a kernel or operator without a plan. NULL: test_case() is called for the cases of a plan. */
    void (*check_without_cases)(struct check_job *job);
    /* Returns the reason for which a kernel is "not checked" although no case failed; NULL if it passes. The pointer may be NULL:
     * it passes. */
    const char *(*find_incomplete_reason)(const check_op *op, const check_kernel *kernel);
    bool is_unchecked_if_kernel_unsound; /* failures of a kernel that also fails runs or memory, or is nondeterministic, become
                                          * "not checked"
                                          */
    bool runs_in_python;                 /* check_run_jobs() makes no job for the property: only torch, which runs in Python */
} check_property;

/* X(property), in the order in which properties are checked. property_<name>.c defines `const check_property
 * check_property_<name>`. */
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
extern const check_property *const check_properties[]; /* all properties in this order, ended by NULL (properties.c) */

/* ---- Jobs (job.c: in the process of a job; schedule.c: all jobs; load.c: binaries) ---- */

/* Kinds of faults: ways in which a kernel can end a process. The values are bits. */
enum check_fault_kind {
    CHECK_FAULT_MEMORY = 1,    /* the kernel accesses memory out of bounds, or writes to an input */
    CHECK_FAULT_CRASH = 2,     /* any other signal, or exit() */
    CHECK_FAULT_TIMEOUT = 4,   /* the kernel does not end */
    CHECK_FAULT_FAKE_READ = 8, /* the shape function reads elements of a tensor */
};

enum check_outcome { CHECK_OUTCOME_PASS, CHECK_OUTCOME_FAIL, CHECK_OUTCOME_UNCHECKED };
extern const char *const check_outcomes[]; /* name of each enum check_outcome: "pass", "fail", "not checked" */

/* Largest error of a kernel's results of one dtype, in units in the last place (ulp). */
enum { CHECK_MAX_ACCURACIES = 4 };
typedef struct check_accuracy {
    dv_dtype dtype; /* dtype of the results; bits 0: the entry is unused */
    double max_error_ulp;
} check_accuracy;

/* A parallel loop of a kernel, by dv_parallel_for() or dv_parallel_scratch(), identified by its function. */
enum { CHECK_MAX_LOOPS = 16 };
typedef struct check_loop {
    void (*fn)(void);     /* the loop's function; NULL: the entry is unused */
    int64_t steps, grain; /* steps and grain of the loop's last execution */
    uint32_t last_case,
        last_split_case; /* index of the last case that ran the loop; of the last one that ran it in several chunks */
    uint32_t split_cases,
        split_attempts;       /* number of cases that ran the loop in several chunks; number of attempts to make such a case */
    bool never_had_two_steps; /* true: the loop had one step in every case, so that it can have only one chunk */
} check_loop;

/* Result of a job. The worker writes it to memory that it shares with the checker. */
typedef struct check_result {
    enum check_outcome outcome;
    uint32_t tried_cases, refused_cases; /* number of cases tried; number of those that the kernel refused with a message */
    uint32_t tried_nonempty_cases,
        accepted_nonempty_cases; /* number of tried cases in which no tensor is empty; number of those that the kernel accepted */
    uint32_t fault_kind;         /* enum check_fault_kind of the fault that ended the worker; 0: none */
    uint64_t progress_count; /* counter that increases while the worker makes progress; the supervisor's time limits watch it */
    bool forked_after_call;  /* the kernel runs in a process forked after a call of it, so that its threads are missing and it may
                                wait for them */
    double repeat_seconds, elapsed_seconds; /* processor time and elapsed time of one repeated attempt, in seconds */
    int32_t helper_pid;     /* pid of a process that the worker waits for, which has its time limit and ends with it; 0: none */
    int32_t cpu_limit_ms;   /* processor time in ms that the worker may use from this step on; 0: no limit */
    bool worker_started;    /* true once the supervisor has forked the worker */
    bool timer_was_blocked; /* true: the supervisor had to end an endless loop, because the worker's own timer did not */
    bool forked_in_call;    /* true: the kernel forked, and its call also returned in the new process */
    bool left_child; /* true: after the kernel's call a child process that it had started still ran, so the worker ended itself */
    char kind[40];   /* short name of the failure, as "read past the end"; it must stay the same while the case is shrunk */
    char message[1024];            /* message of the failure, or the reason for "not checked" */
    uint32_t also_reported_faults; /* enum check_fault_kind bits: faults of these kinds also are failures of this property from
                                      now on */
    char fault_condition[80];  /* condition that is appended to the messages of such faults: "when the first dv_alloc() fails" */
    char last_refusal[512];    /* message with which the kernel last refused a case */
    check_fault_origin origin; /* code that caused the fault */
    char omitted[160];         /* for a passed job: what was not checked, and why; "": nothing */
    char
        ignored_arguments[160]; /* set by property values: names of arguments on which no result seems to depend, perhaps hints */
    check_loop loops[CHECK_MAX_LOOPS];             /* loops that property parallel has seen in the kernel */
    bool ran_loop_in_chunks;                       /* set by property parallel: some case ran a loop in several chunks */
    check_accuracy accuracy[CHECK_MAX_ACCURACIES]; /* set by property values: largest errors of the results, by dtype, against the
                                                      decomposition in f64 */
    uint32_t covered_pairs, infeasible_pairs, oversized_pairs,
        uncovered_pairs; /* numbers of pairs of levels of the plan, as in check_plan; covered_pairs: by cases that were tried */
    char uncovered_example[140];
    double cpu_seconds;        /* processor time of the job in seconds, without the time for shrinking */
    char dropped_cases[200];   /* for a passed job: which cases were not tried, and why; "": all were */
    bool nothing_checked;      /* no call of the kernel was checked: no arguments were found, the kernel refused them all, or no
                                  process started. The whole check then fails */
    bool not_started;          /* no process could be started for the job; nothing_checked is set, too */
    bool has_preceding_case;   /* the failure needs a call of preceding_case before it */
    check_case current_case;   /* case that is tried now, or that failed */
    check_case preceding_case; /* case of the call before it, if has_preceding_case */
    uint32_t plan_index, cases_begun; /* index of the current case in the plan; number of cases begun */
    uint64_t seed;                    /* seed of the current case's contents */
    bool has_case, worker_completed;
} check_result;

/* A check to repeat, as parsed from a key (--case KEY; key.c). */
typedef struct check_repeat {
    const check_property *property;
    const check_op *op;         /* operator to check; NULL: each */
    const check_kernel *kernel; /* kernel to check; NULL: each, or the property is not per kernel */
    char kernel_name[100];      /* name of the kernel, or for property torch of the test; "": each */
    bool repeats_one_case;      /* true: only repeated_case is called; false: all cases of the plan are */
    bool has_preceding_case;    /* true: a call of preceding_case comes before the repeated one */
    enum check_guard_side preceding_guard_side;
    check_case repeated_case, preceding_case;
} check_repeat;

/* A job: one property of one kernel, or of the whole operator. */
enum { CHECK_REPEATS = 3, CHECK_CASE_MS = 2000 };
typedef struct check_job {
    check_plan *plan; /* cases of the kernel, shared with its other jobs; NULL: the property uses no plan */
    const check_op *op;
    const check_kernel *kernel; /* kernel to check; NULL: the property is checked once for the operator */
    const check_property *property;
    uint64_t seed, last_seed;    /* first and last seed of the contents; each case is tried with every seed */
    uint32_t max_cases;          /* limit on the number of cases; 0: all of the plan */
    double cpu_seconds_per_seed; /* limit of processor time in seconds for the cases of one seed */
    int case_ms;                 /* limit of processor time for one case in ms, as --case-ms sets it */
    int retry_ms;                /* processor time in ms after which a repeated case counts as endless; 0: an eighth of case_ms */
    check_result *result;        /* result, in memory shared with the worker */
    const check_case *preceding_case;           /* case to call before each attempt; NULL: none */
    enum check_guard_side preceding_guard_side; /* guard side of that call's arguments */
    const check_repeat *repeat;                 /* given check to repeat; NULL: all cases of the plan are tried */
    const struct check_property
        *found_by; /* property whose calls showed a fault that this job's property reports; NULL: its own calls did */
    char *key;     /* key that repeats the failing case (key.c); NULL: only all cases of the plan repeat the failure */
    int repeats;   /* number of repetitions that failed, of CHECK_REPEATS; 0: unknown */
    const char *external_case,
        *external_python; /* case and program of a failure that Python found, in place of result->current_case; NULL: none */
    int64_t external_numel;
    bool finished;
} check_job;

/* Reports a failure of the job. Only its first failure counts. kind: a few words that name the fault, such as "read past the
 * end". */
DV__PRINTF(3, 4) void check_fail(check_job *job, const char *kind, const char *format, ...);
DV__PRINTF(2, 3)
void check_report_unchecked(check_job *job, const char *format,
    ...); /* sets the outcome "not checked" with this reason, unless the job has failed or has a reason */
/* Sets the text that tells what a passed job did not check, and replaces a former one; NULL: nothing was omitted. */
void check_set_omitted(check_job *job, const char *text);
/* Counts the current case as refused by the kernel, and keeps the message in dv_last_error(). */
void check_count_refusal(check_job *job);
bool check_has_intact_descriptors(
    void); /* true if stdin, stdout, stderr and the output pipe of this worker still are the files that it began with */
int check_get_stdout_bytes(void); /* returns the number of bytes written to stdout so far, at most the capacity of its pipe */
/* Forks a process that the OS kills when its parent ends. Returns as fork() does: -1 with errno. */
int check_fork(void);
/* Returns zeroed memory that forked processes share with this one; NULL, with errno, if that fails. The caller unmaps it. */
void *check_map_shared_memory(size_t bytes);
/* From now on neither this process nor its descendants can send a signal to process `pid`: a filter of system calls (seccomp(2))
 * refuses the call. When a process's parent dies, its new parent is for a moment the checker, until PR_SET_PDEATHSIG ends the
 * process; a kernel that kills its parent again and again would kill the checker in that moment. The filter cannot be removed,
 * and refuses no signal to all processes (kill(-1)) or to a group. Does nothing on a system without such filters. */
void check_deny_signals_to(pid_t pid);
/* Ends this process if it is a copy that a kernel forked, or if a kernel has left a child process that still runs: else such
 * children would accumulate, one for each call. Called after each call of a kernel. */
void check_exit_if_kernel_left_process(void);
/* Makes `job` the current job of this process. in_process: this process is the checker's own (--in-process), so that it gets no
 * limits and keeps its descriptors. */
void check_job_begin(check_job *job, bool in_process);
check_job *check_job_get_current(void); /* returns the current job of this process */
extern int check_case_limit_ms;         /* processor time in ms that one case may use in this process */
extern int check_current_case_ms;       /* limit of processor time for one case in ms, as --case-ms sets it */
/* Limits the processor time that this process may use from now on to ms milliseconds; 0: no limit. Past the limit SIGPROF, or
 * else the supervisor, ends the process. */
void check_set_cpu_limit(int ms);
/* Redirects stdin and stderr to /dev/null, and stdout to a pipe without blocking. A kernel never waits for a reader; output
 * beyond the pipe's capacity is lost. */
void check_redirect_output(void);
/* Makes a copy of c the job's current case, which failures from now on name. */
void check_set_current_case(check_job *job, const check_case *c);

/* check_try_run_forked() calls fn(job, c) in a forked process that is killed after a second, and returns true if the process
 * exited by itself. Only what fn reports in the job's result is kept. check_try_run_isolated() does the same, but with
 * --in-process calls fn in this process. check_try_run_forbidden_isolated() calls check_try_run_isolated() with the case that
 * check_try_make_forbidden_case() makes of c, and returns true if there is such a case. */
typedef void check_case_fn(check_job *job, const check_case *c);
bool check_try_run_forked(check_job *job, const check_case *c, check_case_fn *fn);
bool check_try_run_isolated(check_job *job, const check_case *c, check_case_fn *fn);
bool check_try_run_forbidden_isolated(check_job *job, const check_case *c, check_case_fn *fn);

/* check_holds_for_other_contents: returns true if fn(job, other, argument) is true for some case `other` that differs from c in
 * the elements of tensors: zeros, NaN, large numbers and others (switching_contents.c). check_holds_for_other_cases: the same for
 * the cases of a whole plan, and for other elements in some of them. Each call of fn has a forked process: variables that fn sets
 * are lost. Both return false also if memory is out. */
typedef bool check_predicate(check_job *job, const check_case *c, size_t argument);
bool check_holds_for_other_contents(check_job *job, const check_case *c, check_predicate *fn, size_t argument);
bool check_holds_for_other_cases(check_job *job, check_predicate *fn, size_t argument);

/* Type of a function that is called for a job ten times a second while it runs, and once when it is finished. done: number of
 * finished jobs of `all`. */
typedef void check_progress(void *user, size_t done, size_t all, const check_job *job);

typedef struct check_options {
    uint64_t seed, last_seed;
    double max_seconds; /* limit of elapsed seconds for the whole check; 0: none */
    uint32_t max_cases; /* limit on cases for each property of each kernel; 0: as many as the plan needs */
    int case_ms;        /* processor time in ms that one case may take */
    uint32_t max_workers;
    const check_repeat *repeat;              /* the only check to run (--case KEY); NULL: all that are selected */
    const char *only_properties;             /* names of the properties to check, as "memory,shapes"; NULL: all */
    const check_property *const *properties; /* properties to check, ended by NULL; NULL: check_properties */
    bool (*interrupted)(void);               /* called ten times a second; ends the whole check if it returns true. May be NULL */
    check_progress *progress;                /* called with the progress of each job; may be NULL */
    void *user_data;                         /* first argument of progress() */
} check_options;
/* True if options->only_properties is NULL or lists the property with this name. */
bool check_is_selected_property(const check_options *options, const char *name);

/* Loads a binary in a contained process first, because code of a library runs at load. If that shows no fault, loads it here by
 * dv_load(). is_interrupted (or NULL): ends the wait when it returns true. Returns a status, with the message in dv_last_error().
 */
int check_load(const char *path, bool (*is_interrupted)(void), dv_library **lib);

typedef struct check_report check_report;
/* Checks operators in worker processes. *jobs_out: receives all jobs in the order of operators, kernels, properties; the caller
 * frees it with free(). A failing property is no error. After an interrupt the remaining jobs are "not checked". Properties with
 * is_external get no jobs. Returns 0, or -1 with errno. */
int check_run_jobs(const check_op *ops, size_t nops, const check_options *options, check_job **jobs_out, size_t *njobs_out);
/* Tries a case again in a new worker (retry.c). shared: receives the result, in shared memory. Returns true if it fails with the
 * same kind as the job. */
bool check_case_fails_again(const check_job *job, const check_case *c, check_result *shared);
/* Checks operators in this process, without supervisor, limits or fault handlers, so that a debugger stops at the fault.
 * Parameters and result are those of check_run_jobs(). */
int check_run_jobs_in_process(
    const check_op *ops, size_t nops, const check_options *options, check_job **jobs_out, size_t *njobs_out);
/* Replaces the failing case of a job by the smallest one found that fails in the same way (shrink.c). Returns true if no step
 * helps any more, or the failure cannot be repeated; false if the time was up before. */
bool check_try_shrink_case_fully(check_job *job);
/* Sets job->key and job->repeats, the number of repetitions that fail; called after check_try_shrink_case_fully(). The key stays
 * NULL if no case fails alone. */
void check_job_set_key(check_job *job);
check_result *check_map_shared_result(
    void); /* returns a zeroed result in memory shared with workers (shared_map.c); NULL, with errno, if that fails */

/* Reports a failure if a call whose arguments share memory, as the schema allows, gives other results than one with copies of
 * them (property values; overlap.c). */
void check_overlapping_arguments(check_job *job, const check_case *drawn);
/* Reports a failure if the same call in wider dtypes gives numbers that rounding does not explain. Also reports a call in f64
 * that is no more precise than one in f32 (property values; wider_dtypes.c). */
void check_wider_dtypes(check_job *job, const check_case *c);
/* Copies a case to `out` with f32 in place of f16 and bf16. Returns false if the case has no such tensor, or the contract refuses
 * the copy (wider_dtypes.c). */
bool check_try_widen_16_bit_floats(const check_op *op, const check_case *c, check_case *out);
/* Copies a case to `out` with one element of one tensor that is NaN or an infinity, or with -infinity everywhere
 * (lone_special.c). The other elements are near 0 but not 0: a kernel may round them to 0, and infinity times 0 is NaN. Where
 * tensors have one element each, every second case has infinities in all of them, since no order of a sum matters there. Returns
 * false if there is no such tensor or the case is large. */
bool check_try_make_lone_special_case(const check_op *op, const check_case *c, check_case *out);
/* True if some tensor of the case is filled with NaN or infinities on purpose (lone_special.c). */
bool check_has_special_values(const check_case *c);
/* Reports a failure if results seem to depend on an argument not at all, or on only the first element of a tensor (property
 * values; dependence.c). */
void check_dependence(check_job *job, const check_case *c);
/* Reports a failure if some result depends on an argument that the contract declares unused (property values; dependence.c). */
void check_unused_arguments(check_job *job, const check_case *c);
/* Reports a failure if the kernel reads an argument's field of its struct in none of many cases (unread_arguments.c). */
void check_unread_arguments(check_job *job, const check_case *c);
/* Reports a failure if the kernel treats a dim of one size differently from the dim at smaller and larger sizes (property values;
 * size_independence.c). */
void check_size_independence(check_job *job, const check_case *c);
/* A size of a case that can be varied: that of a name of the contract, or an int argument. */
typedef struct check_varied_size {
    const check_name *name;    /* name that has the size; NULL: the size is an int argument */
    int32_t index_in_variadic; /* for variadic dims *s: index of the dim in *s */
    size_t argument_slot;      /* slot of the argument, if `name` is NULL */
} check_varied_size;
/* Copies a case to *resized_case with another size (parallel_slices.c). *wanted_size: set before the call, and
 * replaced by the nearest size that the contract allows. axes: receives for each tensor the dim that has the size; -1: none; -2:
 * the tensor changes in another way. Returns false if the contract refuses the copy. */
bool check_try_resize_case(const check_op *op, const check_case *original_case, const check_varied_size *varied_size,
    int64_t *wanted_size, check_case *resized_case, int *axes);

/* ---- Containment (contain.c) --------------------------------------------------------------------------------------------- */

/* Causes for which a contained process ended. */
enum check_end_cause {
    CHECK_ENDED_ITSELF,        /* the worker exited, or a signal ended it: see `status` */
    CHECK_ENDED_IDLE_LIMIT,    /* the supervisor killed the worker: it slept longer than max_idle_seconds */
    CHECK_ENDED_STOPPED,       /* the supervisor killed the worker: it was stopped (SIGSTOP) for that long */
    CHECK_ENDED_CPU_LIMIT,     /* the supervisor killed the worker: it used more processor time than check_result.cpu_limit_ms */
    CHECK_ENDED_PROCESS_LIMIT, /* the supervisor killed the worker: it started too many processes */
    CHECK_ENDED_SUPERVISOR_KILLED,  /* the supervisor of the worker was killed */
    CHECK_ENDED_SUPERVISOR_STOPPED, /* the supervisor of the worker was stopped */
    CHECK_ENDED_BY_OOM_KILLER,      /* the system's OOM killer ended the worker */
    CHECK_ENDED_NOT_BEGUN, /* the supervisor was killed, because it did not start the worker in time, as if fork() did not return
                            */
    CHECK_ENDED_NOT_STARTED, /* the worker was not started: `status` is the errno */
};
typedef struct check_contained_end {
    enum check_end_cause cause;
    int status;              /* status of the worker as waitpid() gives it */
    double cpu_seconds;      /* processor time of the worker in seconds */
    uint32_t processes_left; /* number of processes that the worker left running */
} check_contained_end;

enum { CHECK_MAX_CONTAINED = 64 };
typedef struct check_contained {
    int pid, fd;       /* pid: process id of the supervisor; fd: socket that is readable when the supervisor has ended */
    int stopped_polls; /* number of consecutive polls that found the supervisor stopped */
    const check_result *result;
    double start_seconds; /* monotonic time of the start, in seconds */
} check_contained;
typedef void check_contained_fn(void *user);

/* Marks all open descriptors as private, so that contained processes close them, and makes this process a subreaper. Must be
 * called once, before code of an operator is loaded. */
void check_contain_init(void);
/* Marks a descriptor as one that contained processes close; is_private_now == false: as one that they keep. */
void check_mark_descriptor_private(int fd, bool is_private_now);
/* Starts fn(user) in a contained process, under a supervisor. r: result in shared memory, in which the process counts its
 * progress. max_idle_seconds: time that it may sleep. Returns false, with errno, if it was not started. */
bool check_contained_try_start(check_contained *c, check_result *r, double max_idle_seconds, check_contained_fn *fn, void *user);
/* True if the contained process has ended. Then none of its descendants is left, *e has the cause, and *c can be used again. */
bool check_contained_has_ended(check_contained *c, check_contained_end *e);
/* Kills all contained processes and all other descendants of this process. Takes less than a second. */
void check_kill_all_descendants(void);
double check_get_monotonic_seconds(void); /* returns the time of the monotonic clock in seconds */
/* Returns the processor time that this process has used, in seconds. Limits of it end the same cases on a busy machine as on an
 * idle one. */
double check_get_cpu_seconds(void);

/* ---- Repeating a failure (key.c) ----------------------------------------------------------------------------------------- */

/* Returns the key of a check as new text, which the caller frees; NULL if its call cannot be written as a call site. */
char *check_repeat_new_key(const check_repeat *repeat);
/* Parses a key into *out. The values of the contract's names follow from the arguments. Returns DV_OK, or another status with the
 * column and what was expected in dv_last_error(). */
int check_key_parse(const char *text, const check_op *ops, size_t nops, check_repeat *out);
/* Returns, as new text that the caller frees, the key that repeats a job's failure: of its failing case, else of all cases of its
 * plan. */
char *check_job_new_key(const check_job *job);
/* Prints a text as one word of a shell command in one line, quoted if necessary: with a newline in it as $'a\nb', which dash
 * lacks. */
void check_print_shell_text(const char *s, FILE *to);
/* Prints the command that repeats a job's failure: "dovetail check my_ops.so --case '...'". more: further options to insert, each
 * after a space. */
void check_job_print_command(const check_job *job, const char *more, FILE *to);
void check_print_build_arguments(
    const check_op *op, FILE *to); /* prints flags and source files of the operator's build, each after a space */
void check_job_print_case(
    const check_job *job, FILE *to); /* prints the job's current case, as "x: f32[3], after a call with x: f32[5]" */

/* ---- Programs of a call (emit.c) ----------------------------------------------------------------------------------------- */

/* Print to `to` a program, in C or Python, that makes a call and prints its results. repeat_command: the command that repeats the
 * failure, for a comment in the program. script_path: the file that `to` is written to, which the comment names. Return false if
 * the tensors are too large, or a call site cannot hold them; `to` then holds a part of the program. */
bool check_try_emit_c(const check_repeat *repeat, const char *repeat_command, const char *script_path, FILE *to);
bool check_try_emit_python(const check_repeat *repeat, const char *repeat_command, const char *script_path, FILE *to);

/* ---- PyTorch (property_torch.c) ------------------------------------------------------------------------------------------ */

/* Fills *out with an operator that represents one of PyTorch. schema: as torch prints it, with a name for each result; contract:
 * given by the user, or NULL. Returns 0, or -1 with dv_last_error(). */
int check_op_init_torch(const char *schema, const char *contract, check_op *out);
/* Returns the request for a Python process with torch: one JSON document with each operator, its file, and cases that its
 * contract accepts. Operators of which a job has failed are left out; "" if no operator is left. The caller frees the text.
 * Returns NULL, with errno, if memory is out. */
char *check_torch_new_request(
    const check_op *ops, size_t nops, const check_job *jobs, size_t njobs, const check_options *options);
/* Adds the answer of the Python process to *jobs as jobs of the property torch, with a kernel for each test. answer NULL: there
 * is none, for the reason `why`. Returns 0, or -1 if the answer cannot be read. */
int check_torch_add_results(const check_op *ops, size_t nops, const check_options *options, const char *answer, const char *why,
    check_job **jobs, size_t *njobs);

/* ---- Reports (report.c) -------------------------------------------------------------------------------------------------- */

/* Returns a job of this operator for which no call was checked (nothing_checked); NULL if there is none. With such a job the
 * whole check has failed, since it says nothing about the operator. */
const check_job *check_report_find_unchecked_job(const check_op *op, const check_job *jobs, size_t njobs);
/* True if the check succeeded: nothing failed, no operator has a job with nothing_checked, and some job passed or --case repeated
 * a refused call. */
bool check_report_is_ok(const check_op *ops, size_t nops, const check_job *jobs, size_t njobs);
/* Returns the text to print before the name of job->kernel: ", kernel ", or ", test " for property torch; "" for a job of the
 * whole operator. */
const char *check_get_kernel_label(const check_job *job);
/* Print a report of all jobs: as a table and messages, as JUnit XML, or as JSON. seconds: elapsed time of the whole check. */
void check_report_print_table(const check_op *ops, size_t nops, const check_job *jobs, size_t njobs, bool color, FILE *to);
void check_report_print_junit(const check_op *ops, size_t nops, const check_job *jobs, size_t njobs, FILE *to);
void check_report_print_json(const check_op *ops, size_t nops, const check_job *jobs, size_t njobs, const check_options *options,
    double seconds, FILE *to);
void check_print_json_string(FILE *to, const char *s); /* prints a text as a JSON string; NULL prints "" */

#endif
