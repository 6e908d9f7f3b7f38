/* The plan: the cases of a kernel, as a covering array (Kuhn, Kacker, Lei: Practical Combinatorial Testing, NIST SP 800-142).
 *
 * Everything that a case can vary is a *factor* with a few *levels*. Factors are the size class of a name; the rank of variadic
 * dims and where they have 1s; a dtype; the presence of an optional tensor; a string or number; the layout and the contents of a
 * tensor. Each pair of levels of two factors ends in one of four states: a case covers it; core proves that no call has both
 * (plan_is_proved_infeasible()); each case with it would exceed --max-elements; or it is counted as uncovered. The seed decides
 * only the sizes between those of vectors.
 *
 * A level masks the others if it keeps a kernel from its usual computation: no elements, NaN, a wrong index, a number past 2^31.
 * A case with such a level covers only pairs with that level. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

enum {
    MAX_LEVELS = 24,
    MAX_FACTORS = 96,
    MAX_RANK = 4,
    HIGH_RANK = 17,
    LONG_LIST_LENGTH = CHECK_MAX_LIST,
    MAX_TRIES_PER_PAIR = 10,
    MAX_TRIES = 12000,
    MAX_FAILED_CHOICES = 24,
    NUM_SIMPLE_CASES = 6,
    MIN_CASES = 64,
    MAX_WORK_PER_ELEMENT = 10,
    NONE = -1,
    SMALL_SIZES = 128,
    LARGE_SIZE = 65536,
    MAX_NAMES_SEARCHED = 3,
    MAX_SEARCH_TRIES = 4000,
    MAX_SOLUTIONS = 4,
    MAX_PLAN_NAMES = CHECK_MAX_NAMES + 2 * CHECK_MAX_VARIADICS,
    MAX_PLAN_SIZES = MAX_PLAN_NAMES + CHECK_MAX_ARGS /* the names, then the arguments */
};

/* ---- Classes of sizes ------------------------------------------------------------------------------------------------------ */

enum {
    SIZE_ZERO,
    SIZE_ONE,
    SIZE_FEW,
    SIZE_BEFORE_VECTOR,
    SIZE_VECTOR,
    SIZE_AFTER_VECTOR,
    SIZE_OTHER,
    SIZE_PAST_4096,
    SIZE_PAST_32768,
    NUM_SIZE_CLASSES
};
static struct {
    const char *name;
    int64_t of[4]; /* up to four sizes of the class; for SIZE_OTHER the plan's seed decides them */
    int64_t low, high;
} size_classes[NUM_SIZE_CLASSES] = {
    [SIZE_ZERO] = { "0", { 0, 0, 0, 0 }, 0, 0 },
    [SIZE_ONE] = { "1", { 1, 1, 1, 1 }, 1, 1 },
    [SIZE_FEW] = { "2 to 6", { 3, 2, 5, 4 }, 2, 6 },
    [SIZE_BEFORE_VECTOR] = { "7, 15, 31", { 7, 15, 31, 63 }, 0, -1 },
    [SIZE_VECTOR] = { "8, 16, 32", { 8, 16, 32, 64 }, 0, -1 },
    [SIZE_AFTER_VECTOR] = { "9, 17, 33", { 9, 17, 33, 65 }, 0, -1 },
    [SIZE_OTHER] = { "another", { 0, 0, 0, 0 }, 10, 4096 },
    [SIZE_PAST_4096] = { "past 4096", { 4099, 4097, 8192, 6007 }, 4097, 32768 },
    [SIZE_PAST_32768] = { "past 32768", { 65537, 66049, 65792, 70001 }, 32769, INT64_MAX },
};
/* Values to try for int arguments, most of them beyond 32 bits. Arguments that the contract reads get only the first
 * NUM_EXTREME_SIZES values, because they may be sizes. */
static const int64_t extreme_ints[] = { INT64_C(1) << 31, INT64_C(1) << 32, -(INT64_C(1) << 32), (INT64_C(1) << 32) + 1, -3, 1000,
    INT64_MIN, INT64_MAX, INT32_MIN };
enum { NUM_EXTREME_INTS = sizeof extreme_ints / sizeof *extreme_ints, NUM_EXTREME_SIZES = NUM_EXTREME_INTS - 3 };

/* Sets the four members of size class SIZE_OTHER, numbers between multiples of the vector length, from the plan's seed. */
static void plan_set_other_sizes(uint64_t seed)
{
    static const int64_t first[4] = { 11, 13, 37, 94 }, low[4] = { 10, 12, 34, 66 }, high[4] = { 11, 14, 40, 110 };
    check_random r = { seed };
    for (int k = 0; k < 4; k++)
        size_classes[SIZE_OTHER].of[k] = seed == 1 ? first[k] : check_random_between(&r, low[k], high[k]);
}

/* True if a size is one of the four listed members of a size class. */
static bool plan_is_listed_member_of_class(int size_class, int64_t size)
{
    bool result = false;
    for (size_t k = 0; k < 4; k++)
        result |= size_classes[size_class].of[k] == size;
    return result;
}

/* ---- Factors --------------------------------------------------------------------------------------------------------------- */

enum { MIXED_LIST_LENGTH = 3 }; /* number of tensors in a list of which some are empty and some are not */
enum factor_kind {
    FACTOR_DIM,
    FACTOR_RANK,
    FACTOR_VARIADIC_SIZE,
    FACTOR_ONES,
    FACTOR_DTYPE,
    FACTOR_FREE_RANK,
    FACTOR_FREE_SIZE,
    FACTOR_FREE_DTYPE,
    FACTOR_SAME_SHAPE,
    FACTOR_PRESENT,
    FACTOR_LENGTH,
    FACTOR_SCALAR,
    FACTOR_LAYOUT,
    FACTOR_CONTENTS,
    FACTOR_FILL_MODE
};
enum ones_position { ONES_NONE, ONES_LEADING, ONES_TRAILING, ONES_BOTH_ENDS, ONES_INTERIOR, ONES_COUNT };
/* Fill mode of a case: which special contents its tensors have. From FILL_MODE_WRONG_INDEX on, the last element of one index
 * tensor is invalid; mode - FILL_MODE_WRONG_INDEX selects the invalid index. */
enum fill_mode {
    FILL_MODE_PLAIN,
    FILL_MODE_SCALED,
    FILL_MODE_SPECIAL,
    FILL_MODE_EXTREME,
    FILL_MODE_WRONG_INDEX,
    NUM_WRONG_INDICES = 7
};

typedef struct factor {
    enum factor_kind kind;
    uint32_t index, nlevels, max_levels; /* index: of the factor's name in check_op.names, or of its argument; max_levels:
                                            capacity reserved in pair_states */
    int64_t levels[MAX_LEVELS];
} factor;

/* State of a pair of levels. */
enum pair_state { PAIR_OPEN, PAIR_COVERED, PAIR_EXCLUDED, PAIR_INFEASIBLE, PAIR_TOO_LARGE, PAIR_UNCOVERED };

typedef struct planner {
    const check_op *op;
    const check_kernel *kernel;
    check_plan *plan;
    check_random random;
    factor factors[MAX_FACTORS];
    int nfactors;
    check_value scalar_levels[CHECK_MAX_ARGS][MAX_LEVELS]; /* values of scalar levels; an int value with `count` > 0 stands for
                                                              any size of class count - 1 */
    size_t pair_offsets[MAX_FACTORS][MAX_FACTORS];         /* index in pair_states of the first pair of factors a < b */
    uint8_t *pair_states;
    size_t npairs;
    uint32_t ntries, turn, max_cases; /* ntries: attempts so far; turn: counter of made cases, which rotates choices; max_cases:
                                         limit on the plan's cases */
    uint32_t nscaled;                 /* number of planned cases with FILL_MODE_SCALED */
    uint32_t layout_counts[CHECK_MAX_ARGS][CHECK_LAYOUT_COUNT]; /* by argument and layout: number of planned cases whose tensor
                                                                   has this layout, in any variant */
    size_t nsolutions; /* number of size assignments that the fallback search found; 0: the search did not run */
    int64_t solutions[MAX_SOLUTIONS][CHECK_MAX_NAMES];
    size_t nextra_sizes; /* number of op->extra_sizes in use as sizes; 0 until all pairs are tried */
    uint32_t reached_counts[MAX_PLAN_SIZES][NUM_SIZE_CLASSES + 1]
                           [CHECK_MAX_EXTRA_SIZES]; /* by size index, class and member: number of planned cases without a masking
                                                       level in which the name or argument has that size */
    uint32_t
        size_copied_from[MAX_PLAN_NAMES]; /* by name: 1 + index of the name whose size it copies; 0: it has a size of its own */
    uint32_t mixed_list_position; /* in each list of tensors: 1 + position of the one tensor that is empty, or of the one that is
                                     not; 0: all tensors of a list are alike */
    bool mixed_tensor_is_empty;
    uint32_t failed_choices; /* number of consecutive level choices for which dv_infer() accepted no case */
} planner;

/* Returns the size class of a size; NUM_SIZE_CLASSES for a number of the source that is a member of no class; NONE if no class
 * contains the size. */
static int64_t plan_get_size_class(const planner *p, int64_t size)
{
    for (int c = 0; c < NUM_SIZE_CLASSES; c++)
        if (plan_is_listed_member_of_class(c, size))
            return c;
    for (size_t k = 0; k < p->nextra_sizes; k++)
        if (p->op->extra_sizes[k] == size)
            return NUM_SIZE_CLASSES;
    for (int c = 0; c < NUM_SIZE_CLASSES; c++)
        if (size >= size_classes[c].low && size <= size_classes[c].high)
            return c;
    return NONE;
}

/* Returns a size of a size class. rotation: selects one of the class's members, in turn. */
static int64_t plan_get_size_of_class(const planner *p, int64_t size_class, uint32_t rotation)
{
    for (size_t k = 0; k < p->nextra_sizes && size_class == NUM_SIZE_CLASSES; k++)
        if (plan_get_size_class(p, p->op->extra_sizes[(rotation + k) % p->nextra_sizes]) == NUM_SIZE_CLASSES)
            return p->op->extra_sizes[(rotation + k) % p->nextra_sizes];
    return size_classes[size_class < NUM_SIZE_CLASSES ? size_class : SIZE_FEW].of[rotation % 4];
}

/* Returns the rotation >= first_rotation for plan_get_size_of_class() whose size the fewest planned cases have given this name or
 * argument. Returns first_rotation for classes below SIZE_BEFORE_VECTOR and above SIZE_OTHER. */
static uint32_t plan_find_rotation_to_rarest_size(
    const planner *p, size_t size_index, int64_t size_class, uint32_t first_rotation)
{
    const uint32_t members = size_class == NUM_SIZE_CLASSES            ? (uint32_t)p->nextra_sizes
        : size_class >= SIZE_BEFORE_VECTOR && size_class <= SIZE_OTHER ? 4
                                                                       : 0;
    uint32_t best = first_rotation;
    for (uint32_t k = 1; k < members; k++) {
        const uint32_t *const n = p->reached_counts[size_index][size_class];
        if (n[(first_rotation + k) % members] < n[best % members] &&
            (size_class < NUM_SIZE_CLASSES ||
                plan_get_size_class(p, p->op->extra_sizes[(first_rotation + k) % members]) == NUM_SIZE_CLASSES))
            best = first_rotation + k;
    }
    return best;
}

/* Returns the first unused case of the plan. Each new case is built there before it is accepted, so that a report can show a case
 * during which the process fails. */
static check_case *plan_get_next_case(const planner *p) { return &p->plan->cases[p->plan->ncases]; }

/* Appends a factor without levels and returns it. `index` is that of a name or an argument. If MAX_FACTORS exist, returns a dummy
 * that nothing reads. */
static factor *plan_add_factor(planner *p, enum factor_kind kind, size_t index)
{
    static factor none;
    factor *f = p->nfactors < MAX_FACTORS ? &p->factors[p->nfactors++] : &none;
    *f = (factor){ .kind = kind, .index = (uint32_t)index };
    return f;
}

/* Adds a level to a factor. Does nothing if the factor has the level or MAX_LEVELS levels. */
static void plan_add_level(factor *f, int64_t level)
{
    for (uint32_t k = 0; k < f->nlevels; k++)
        if (f->levels[k] == level)
            return;
    if (f->nlevels < MAX_LEVELS)
        f->levels[f->nlevels++] = level;
}

/* Adds a factor whose levels are the integers from low to high. */
static void plan_add_integer_range_factor(planner *p, enum factor_kind kind, size_t index, int64_t low, int64_t high)
{
    factor *f = plan_add_factor(p, kind, index);
    for (int64_t i = low; i <= high; i++)
        plan_add_level(f, i);
}

/* Adds a factor whose levels are all size classes. */
static void plan_add_size_factor(planner *p, enum factor_kind kind, size_t index)
{
    factor *f = plan_add_factor(p, kind, index);
    for (int64_t c = 0; c < NUM_SIZE_CLASSES; c++)
        plan_add_level(f, c);
}

/* Adds as levels the dtypes that a kernel's .dtypes lists for one dtype variable. "f32 bf16" is for the contract's first
 * variable; "T=f32, U=i32 i64" names the variables. */
static void plan_add_kernel_dtype_levels(
    factor *f, const check_kernel *kernel, const char *dtype_variable, bool is_first_variable)
{
    char word[32];
    bool is_named = is_first_variable;
    dv_dtype d;
    for (const char *s = kernel && kernel->dtypes ? kernel->dtypes : ""; *s;) {
        s += strspn(s, " ,");
        const size_t size = strcspn(s, " ,=");
        snprintf(word, sizeof word, "%.*s", (int)size, s);
        s += size;
        if (s[strspn(s, " ")] == '=') {
            is_named = !strcmp(word, dtype_variable);
            s += strspn(s, " ") + 1;
        } else if (*word && is_named && !dv_dtype_parse(word, &d)) {
            plan_add_level(f, dv_dtype_key(d));
        }
    }
}

/* Adds a factor whose levels are dtypes: those that the kernel lists, else those that the contract lists, else those of any
 * kernel, else common ones. */
static void plan_add_dtype_factor(
    planner *p, enum factor_kind kind, size_t index, const check_json *dtype_variable, bool is_first_variable)
{
    static const char *const common[] = { "f32", "f64", "bf16", "f16", "i64", "i32", "i16", "i8", "u8", "bool", "c64", "c128" };
    const check_json *in = check_json_find_member(dtype_variable, "in");
    const char *name = dtype_variable ? check_json_find_string(dtype_variable, "name") : "";
    dv_dtype d;
    factor *f = plan_add_factor(p, kind, index);
    plan_add_kernel_dtype_levels(f, p->kernel, name, is_first_variable);
    for (size_t k = 0; !p->kernel && in && in->kind == CHECK_JSON_NULL && k < p->op->nkernels;
        k++) /* the contract allows any dtype: dtypes that some kernel lists are used */
        plan_add_kernel_dtype_levels(f, &p->op->kernels[k], name, is_first_variable);
    for (const check_json *x = f->nlevels || !in ? NULL : in->child; x; x = x->next)
        if (!dv_dtype_parse(x->text, &d))
            plan_add_level(f, dv_dtype_key(d));
    for (size_t k = 0; !f->nlevels && kind == FACTOR_FREE_DTYPE && k < p->op->nkernels; k++)
        plan_add_kernel_dtype_levels(f, &p->op->kernels[k], name, is_first_variable);
    for (size_t k = 0, none = !f->nlevels; none && k < (p->op->contract ? sizeof common / sizeof *common : 1); k++)
        if (!dv_dtype_parse(common[k], &d))
            plan_add_level(f, dv_dtype_key(d));
}

/* ---- Arguments that are no tensors ---- */

/* Adds a level for a new argument value of this type, and returns the value for the caller to fill in. If the factor is full,
 * returns a dummy. */
static check_value *plan_add_scalar_level(planner *p, factor *f, uint32_t value_type)
{
    static check_value none;
    check_value *v = f->nlevels < MAX_LEVELS ? &p->scalar_levels[f->index][f->nlevels] : &none;
    plan_add_level(f, f->nlevels);
    *v = (check_value){ .type = value_type };
    return v;
}

/* Adds a string as a level of the factor. */
static void plan_add_string_level(planner *p, factor *f, const char *s)
{
    snprintf(plan_add_scalar_level(p, f, DV_VALUE_STRING)->string, CHECK_MAX_STRING, "%s", s);
}

/* A string argument that is longer than a kernel's buffer is likely to be. */
static const char long_string[] = "a_word_of_eighty_letters_for_which_a_kernel_may_have_no_room_in_a_buffer_of_its_own";

/* Writes to `out` strings to try for an argument: those that the contract compares it with, or, if there are none, string
 * literals of the kernel's source. Returns their number, at most `capacity`. */
static size_t plan_list_candidate_strings(const planner *p, size_t slot, const char **out, size_t capacity)
{
    const check_literals *literals = &p->op->literals[slot];
    size_t words = 0;
    for (size_t k = 0; k < literals->nequality_values && words < capacity; k++)
        if (literals->equality_values[k]->kind == CHECK_JSON_STRING &&
            strlen(literals->equality_values[k]->text) < CHECK_MAX_WORD_BYTES)
            out[words++] = literals->equality_values[k]->text;
    for (size_t k = 0; k < p->op->nsource_words && !literals->nequality_values && words < capacity; k++)
        out[words++] = p->op->source_words[k];
    return words;
}

/* Adds lists of zero to three strings as levels. Strings of plan_list_candidate_strings() are preferred. */
static void plan_add_string_list_levels(planner *p, factor *f, const dv_slot_info *slot_info)
{
    static const char *const others[] = { "a", "", "bc" };
    const bool fixed = slot_info->fixed_size > 1 && slot_info->fixed_size <= CHECK_MAX_LIST;
    const char *words[CHECK_MAX_SOURCE_WORDS + 1];
    const size_t known = plan_list_candidate_strings(p, f->index, words, CHECK_MAX_SOURCE_WORDS), n = known ? known : 3;
    for (uint32_t k = 0; k < (known ? 8 : 6); k++) {
        check_value *v = plan_add_scalar_level(p, f, DV_VALUE_STRINGS);
        char *to = v->string;
        v->count = fixed ? (uint32_t)slot_info->fixed_size : k % 4;
        for (uint32_t i = 0; i < v->count; i++)
            to += snprintf(to, CHECK_MAX_WORD_BYTES, "%s", known ? words[(k / 4 + k + i) % n] : others[(k / 4 + i) % n]) + 1;
    }
    if (!known && !fixed) {
        check_value *v = plan_add_scalar_level(p, f, DV_VALUE_STRINGS);
        v->count = 1;
        snprintf(v->string, CHECK_MAX_STRING, "%s", long_string);
    }
}

/* Adds nnumbers ints as levels of the factor. */
static void plan_add_int_levels(planner *p, factor *f, const int64_t *numbers, size_t nnumbers)
{
    for (size_t k = 0; k < nnumbers; k++)
        plan_add_scalar_level(p, f, DV_VALUE_INT)->as.i = numbers[k];
}
#define PLAN_ADD_INT_LEVELS(p, f, ...) \
    plan_add_int_levels(p, f, (const int64_t[]){ __VA_ARGS__ }, sizeof((const int64_t[]){ __VA_ARGS__ }) / sizeof(int64_t))

/* Adds a float as a level of the factor, unless it is one already. */
static void plan_add_float_level(planner *p, factor *f, double x)
{
    for (uint32_t k = 0; k < f->nlevels; k++)
        if (p->scalar_levels[f->index][k].type == DV_VALUE_FLOAT &&
            !(p->scalar_levels[f->index][k].as.f < x || p->scalar_levels[f->index][k].as.f > x))
            return;
    plan_add_scalar_level(p, f, DV_VALUE_FLOAT)->as.f = x;
}

/* Adds float levels: the numbers that the contract compares with, numbers between each two of them, one below and one above, and
 * common ones. The middle between two numbers is not used: at 0.5 a kernel that computes with p in place of 1 - p is right. 1.7
 * is not exact in f32, so it detects an f64 kernel that rounds to f32. */
static void plan_add_float_levels(planner *p, factor *f, const check_literals *literals)
{
    static const double others[] = { 0.25, 1, 1.7, 0, -0.5, 16 };
    double at[CHECK_MAX_BOUNDS + 1];
    size_t n = 0;
    for (size_t k = 0; k < literals->ncomparison_constants; k++) {
        size_t to = n;
        for (; to && at[to - 1] > literals->comparison_constants[k]; to--)
            at[to] = at[to - 1];
        at[to] = literals->comparison_constants[k];
        n++;
    }
    for (size_t k = 0; k < n; k++) {
        plan_add_float_level(p, f, at[k]);
        for (int i = 1; i < 4 && k + 1 < n; i += 2)
            plan_add_float_level(p, f, at[k] + (at[k + 1] - at[k]) * i / 4);
    }
    for (size_t k = 0; k < sizeof others / sizeof *others; k++)
        plan_add_float_level(p, f, others[k]);
    if (n)
        plan_add_float_level(p, f, at[0] - 1), plan_add_float_level(p, f, at[n - 1] + 1);
}

/* Adds lists of ints, floats, bools or scalars of different lengths as levels. Partial inference later changes a list whose
 * length or numbers the contract ties to sizes. */
static void plan_add_number_list_levels(planner *p, factor *f, const dv_slot_info *slot_info, uint32_t value_type)
{
    static const int64_t numbers[] = { 0, 1, 2, -1, 1, 0, 3, 2, 4, 1, -1, 8, 5, 3 };
    const bool fixed = slot_info->fixed_size > 1 && slot_info->fixed_size <= CHECK_MAX_LIST,
               read = p->op->literals[f->index].is_read && value_type == DV_VALUE_INTS;
    const uint32_t n = fixed ? (read ? 1 : 6) : (read ? 5 : 7); /* fewer lists suffice if the contract decides the numbers */
    for (uint32_t k = 0; k < n; k++) {
        check_value *v = plan_add_scalar_level(p, f, value_type);
        v->count = fixed ? (uint32_t)slot_info->fixed_size : k + 1 == n ? LONG_LIST_LENGTH : k % 4;
        for (uint32_t i = 0; i < v->count; i++) {
            const int64_t number = numbers[(2 * k + i) % (sizeof numbers / sizeof *numbers)];
            v->ints[i] = value_type == DV_VALUE_BOOLS ? (k + i) % 2 : number;
            v->floats[i] = (double)number / 2;
            if (value_type == DV_VALUE_SCALARS) { /* scalars of the kinds int, float and bool in turn */
                v->ints[i] = DV_SCALAR_INT + (k / 2 + i) % 3;
                v->floats[i] = v->ints[i] == DV_SCALAR_FLOAT ? v->floats[i]
                    : v->ints[i] == DV_SCALAR_INT            ? (double)number
                                                             : (double)((k + i) % 2);
            }
        }
    }
}

/* Adds the factor of a non-tensor argument. Its levels depend on the argument's type: the default, None, values that the contract
 * compares with, and typical values. */
static void plan_add_scalar_factor(planner *p, size_t slot)
{
    static const char *const asked[] = { "f32", "f64", "bool", "i32", "bf16" };
    const dv_slot_info *s = &p->op->slots[slot];
    const check_literals *literals = &p->op->literals[slot];
    factor *f = plan_add_factor(p, FACTOR_SCALAR, slot);
    if (s->default_value.type != DV_VALUE_DEFAULT)
        plan_add_scalar_level(p, f, DV_VALUE_DEFAULT);
    if (s->flags & DV_SLOT_OPTIONAL && s->default_value.type != DV_VALUE_NONE)
        plan_add_scalar_level(p, f, DV_VALUE_NONE);
    for (size_t k = 0; k < literals->nequality_values; k++) {
        bool is_repeated = false;
        for (size_t i = 0; i < k; i++)
            is_repeated |= literals->equality_values[i]->kind == literals->equality_values[k]->kind &&
                literals->equality_values[i]->int_value == literals->equality_values[k]->int_value &&
                !(literals->equality_values[k]->text &&
                    strcmp(literals->equality_values[i]->text, literals->equality_values[k]->text));
        if (!is_repeated && literals->equality_values[k]->kind == CHECK_JSON_STRING)
            plan_add_string_level(p, f, literals->equality_values[k]->text);
        else if (!is_repeated && (literals->equality_values[k]->int_value < -1 || literals->equality_values[k]->int_value > 3))
            plan_add_scalar_level(p, f, DV_VALUE_INT)->as.i = literals->equality_values[k]->int_value;
    }
    switch (s->type) {
    case DV_FIELD_INT:
        PLAN_ADD_INT_LEVELS(p, f, 1, 0, 2, -1, 3, extreme_ints[0]);
        if (!literals->is_read || literals->is_dim_index) {
            PLAN_ADD_INT_LEVELS(p, f, 8, 6);
            break;
        }
        PLAN_ADD_INT_LEVELS(p, f, 278, 4, 5); /* the argument may be a size; 278 has factors for which a ratio is not exact */
        for (uint32_t c = SIZE_BEFORE_VECTOR; c <= (literals->decides_shape ? SIZE_PAST_32768 : SIZE_OTHER); c++)
            plan_add_scalar_level(p, f, DV_VALUE_INT)->count = 1 + c;
        break;
    case DV_FIELD_FLOAT: plan_add_float_levels(p, f, literals); break;
    case DV_FIELD_BOOL:
        plan_add_scalar_level(p, f, DV_VALUE_BOOL), plan_add_scalar_level(p, f, DV_VALUE_BOOL)->as.b = true;
        break;
    case DV_FIELD_STRING:
        for (size_t k = 0; k < p->op->nsource_words && !literals->is_read; k++)
            plan_add_string_level(p, f, p->op->source_words[k]);
        plan_add_string_level(p, f, "a");
        if (!literals->is_read) {
            plan_add_string_level(p, f, "");
            plan_add_string_level(p, f, long_string);
        }
        break;
    case DV_FIELD_STRINGS: plan_add_string_list_levels(p, f, s); break;
    case DV_FIELD_SCALAR:
        PLAN_ADD_INT_LEVELS(p, f, 1, 0, -1, 3), plan_add_float_level(p, f, 0.25), plan_add_float_level(p, f, -1.5),
            plan_add_float_level(p, f, 3);
        plan_add_scalar_level(p, f, DV_VALUE_BOOL)->as.b = true;
        plan_add_scalar_level(p, f, DV_VALUE_COMPLEX)->as.c = (dv_complex){ 0.5, -2 };
        break;
    case DV_FIELD_COMPLEX:
        for (int k = 0; k < 4; k++)
            plan_add_scalar_level(p, f, DV_VALUE_COMPLEX)->as.c = (dv_complex){ 1 - k, k % 2 - 0.5 };
        break;
    case DV_FIELD_DTYPE:
        for (size_t k = 0; k < sizeof asked / sizeof *asked; k++)
            dv_dtype_parse(asked[k], &plan_add_scalar_level(p, f, DV_VALUE_DTYPE)->as.dtype);
        break;
    case DV_FIELD_DEVICE: plan_add_scalar_level(p, f, DV_VALUE_DEVICE)->as.device = (dv_device){ DV_CPU, 0 }; break;
    case DV_FIELD_GENERATOR: plan_add_scalar_level(p, f, DV_VALUE_NONE); break;
    case DV_FIELD_INTS: plan_add_number_list_levels(p, f, s, DV_VALUE_INTS); break;
    case DV_FIELD_FLOATS: plan_add_number_list_levels(p, f, s, DV_VALUE_FLOATS); break;
    case DV_FIELD_BOOLS: plan_add_number_list_levels(p, f, s, DV_VALUE_BOOLS); break;
    case DV_FIELD_SCALARS: plan_add_number_list_levels(p, f, s, DV_VALUE_SCALARS); break;
    default: { /* rare types get one level: zero, or an empty list, which fits every element type */
        const dv_field_row *row = dv_field_at(s->type);
        plan_add_scalar_level(p, f, row->form == DV_FORM_LIST ? DV_VALUE_INTS : row->value);
    }
    }
}

/* True if an argument is a tensor or a list of tensors. */
static bool plan_is_tensor_argument(const check_op *op, size_t slot)
{
    return op->slots[slot].type == DV_FIELD_TENSOR || op->slots[slot].type == DV_FIELD_TENSORS;
}

/* True if a tensor argument, or the tensors of a list argument, may be None. */
static bool plan_is_optional_tensor(const check_op *op, size_t slot)
{
    return op->slots[slot].flags & (op->slots[slot].type == DV_FIELD_TENSOR ? DV_SLOT_OPTIONAL : DV_SLOT_ELEMENT_OPTIONAL);
}

/* ---- From levels to a case ------------------------------------------------------------------------------------------------- */

/* Returns the wanted level of the factor with this kind and index. NONE: the plan has no such factor, or wants no particular
 * level. */
static int64_t plan_get_wanted_level(const planner *p, const int *wanted_levels, enum factor_kind kind, size_t index)
{
    for (int k = 0; k < p->nfactors; k++)
        if (p->factors[k].kind == kind && p->factors[k].index == index)
            return wanted_levels[k] < 0 ? NONE : p->factors[k].levels[wanted_levels[k]];
    return NONE;
}

/* True if a number is one of extreme_ints. */
static bool plan_is_extreme_int(int64_t number)
{
    for (size_t k = 0; k < NUM_EXTREME_INTS; k++)
        if (number == extreme_ints[k])
            return true;
    return false;
}

/* Fills a list of ints that the contract reads with numbers near sizes of the case: dims, their neighbours and halves. Often the
 * first half of the list is small and the second large, as in the corners of a box. */
static void plan_set_ints_near_sizes(planner *p, const check_case *c, check_value *v)
{
    for (uint32_t i = 0; i < CHECK_MAX_LIST; i++) { /* all elements are set; the contract decides the length later */
        const check_name *name = p->op->nnames ? &p->op->names[(p->turn + i) % p->op->nnames] : NULL;
        const int64_t size = !name || name->kind == CHECK_NAME_DTYPE ? 3
            : name->kind == CHECK_NAME_VARIADIC ? c->names.variadics[name->value_index].sizes[i % CHECK_MAX_DIMS]
                                                : c->names.dims[name->value_index];
        const int64_t small[] = { 0, 1, 0, -1, 2, 0 }, large[] = { size, size - 1, size / 2, size + 1, 278, size + 7 };
        const uint64_t k = check_random_next(&p->random) % 6;
        v->ints[i] = p->turn % 3 == 2 ? (k % 2 ? small : large)[k] : (i % 4 < 2 ? small : large)[p->turn % 3 ? k : k % 3];
    }
}

/* Returns the index of the level for the list of numbers in `slot`. Returns the level whose list has MIXED_LIST_LENGTH elements
 * if lists of tensors in this case have partly empty tensors, since contracts often tie the lengths: scales[len(xs)]. Else
 * returns default_level. */
static int64_t plan_choose_level_for_list_length(const planner *p, size_t slot, int64_t default_level)
{
    for (int f = 0; f < p->nfactors && p->mixed_list_position; f++)
        for (uint32_t k = 0; p->factors[f].kind == FACTOR_SCALAR && p->factors[f].index == slot && k < p->factors[f].nlevels; k++)
            if (p->scalar_levels[slot][k].count == MIXED_LIST_LENGTH)
                return k;
    return default_level;
}

/* Sets the numbers, strings and lists of a case to the wanted levels, and which optional tensors are None. Shapes and dtypes of
 * tensors are not set. An argument without a wanted level stays as it is. others_small: sizes without a wanted level are small.
 */
static void plan_set_arguments_except_shapes(planner *p, const int *wanted_levels, bool others_small, check_case *c)
{
    c->nargs = (uint32_t)p->op->nargs;
    for (size_t i = 0; i < c->nargs; i++) {
        check_value *v = &c->args[i];
        const int64_t level = plan_get_wanted_level(p, wanted_levels, FACTOR_SCALAR, i),
                      length = plan_get_wanted_level(p, wanted_levels, FACTOR_LENGTH, i);
        if (!plan_is_tensor_argument(p->op, i)) {
            if (level >= 0)
                *v = p->scalar_levels[i][plan_choose_level_for_list_length(p, i, level)];
            if (v->type == DV_VALUE_INT && v->count) {
                const int64_t size_class = (int64_t)v->count - 1;
                const uint32_t member = plan_find_rotation_to_rarest_size(
                    p, MAX_PLAN_NAMES + i, size_class, p->turn + (uint32_t)i);
                v->count = 0;
                v->as.i = plan_get_size_of_class(p, size_class, others_small && size_class <= SIZE_OTHER ? 0 : member);
            }
            if (v->type == DV_VALUE_INT && v->as.i == extreme_ints[0])
                v->as.i = extreme_ints[p->turn % (p->op->literals[i].is_read ? NUM_EXTREME_SIZES : NUM_EXTREME_INTS)];
            if (v->type == DV_VALUE_INTS && p->op->literals[i].is_read)
                plan_set_ints_near_sizes(p, c, v);
            continue;
        }
        const uint32_t free_tensors = CHECK_MAX_TENSORS - c->ntensors;
        v->type = p->op->slots[i].type == DV_FIELD_TENSOR ? DV_VALUE_TENSOR : DV_VALUE_TENSORS;
        v->count = v->type == DV_VALUE_TENSOR ? 1
            : p->mixed_list_position          ? MIXED_LIST_LENGTH
            : length < 0                      ? 1
                                              : (uint32_t)length;
        v->count = v->count > free_tensors ? free_tensors : v->count;
        v->first_tensor = c->ntensors;
        c->ntensors += v->count;
        for (uint32_t k = 0; k < v->count; k++)
            c->tensors[v->first_tensor + k].present = plan_get_wanted_level(p, wanted_levels, FACTOR_PRESENT, i) != 0 || k % 2;
    }
}

/* Makes a shape of this rank with 1s at ones_position, and one dim of size_class. small_rotation and class_rotation select the
 * other dims' sizes and the member of size_class. ndim and shape receive the result. */
static void plan_make_shape(planner *p, int64_t rank, int64_t size_class, int64_t ones_position, uint32_t small_rotation,
    uint32_t class_rotation, bool others_small, int32_t *ndim, int64_t *shape)
{
    int32_t large = -1;
    const bool high = rank > MAX_RANK;
    *ndim = (int32_t)(rank < 0 ? 2 : rank);
    for (int32_t i = 0; i < CHECK_MAX_DIMS; i++)
        shape[i] = size_class == SIZE_ONE || (high && (i % 6 || size_class > SIZE_OTHER)) ? 1
            : others_small || high                                                        ? 2
                                   : plan_get_size_of_class(p, SIZE_FEW, small_rotation + (uint32_t)i);
    for (int32_t i = 0; i < *ndim; i++) {
        const bool first = i == 0, last = i + 1 == *ndim;
        const bool one = first ? ones_position == ONES_LEADING || ones_position == ONES_BOTH_ENDS
            : last             ? ones_position == ONES_TRAILING || ones_position == ONES_BOTH_ENDS
                               : ones_position == ONES_INTERIOR;
        if (one && *ndim > 1)
            shape[i] = 1;
        else if (large < 0 || small_rotation % 3)
            large = i;
    }
    if (size_class >= 0 && size_class != SIZE_FEW && size_class != SIZE_ONE && large >= 0)
        shape[large] = plan_get_size_of_class(p, size_class, others_small && size_class <= SIZE_OTHER ? 0 : class_rotation);
}

/* Returns the integer y nearest to x for which "y OPERATOR bound" holds. */
static int64_t plan_get_nearest_satisfying(int64_t x, const char *operator, int64_t bound)
{
    const int64_t low = !strcmp(operator, ">")               ? bound + 1
        : !strcmp(operator, ">=") || !strcmp(operator, "==") ? bound
                                                             : INT64_MIN;
    const int64_t high = !strcmp(operator, "<")              ? bound - 1
        : !strcmp(operator, "<=") || !strcmp(operator, "==") ? bound
                                                             : INT64_MAX;
    return x < low ? low : x > high ? high : x;
}

/* Changes the dim or the int argument of this name so that the comparison holds: "name % number == 0" for operator "%", else
 * "name OPERATOR number". Does nothing if there is no such name. */
static void plan_satisfy_comparison(const planner *p, const char *name, const char *operator, int64_t number, check_case *c)
{
    const check_name *dim = check_op_find_name(p->op, CHECK_NAME_DIM, name);
    size_t slot = 0;
    while (!dim && slot < p->op->nargs && strcmp(p->op->slots[slot].name, name) != 0)
        slot++;
    if (!dim && (slot == p->op->nargs || p->op->slots[slot].type != DV_FIELD_INT))
        return;
    check_value *const v = dim ? NULL : &c->args[slot];
    const int64_t x = dim         ? c->names.dims[dim->value_index]
        : v->type == DV_VALUE_INT ? v->as.i
                                  : p->op->slots[slot].default_value.as.i;
    const int64_t y = *operator == '%' ? (x + number - 1) / number * number : plan_get_nearest_satisfying(x, operator, number);
    if (dim)
        c->names.dims[dim->value_index] = y;
    else if (y != x)
        *v = (check_value){ .type = DV_VALUE_INT, .as.i = y };
}

/* Changes names and int arguments so that the kernel's .when condition holds, as far as it consists of comparisons with a number,
 * such as "n % 8 == 0". The kernel would not run otherwise. For "a or b" only one side is satisfied, selected by p->turn. */
static void plan_satisfy_kernel_condition(const planner *p, check_case *c)
{
    const char *when = p->kernel && p->kernel->when ? p->kernel->when : "";
    const bool all = strchr(when, '(');
    char name[32], operator[3];
    uint32_t sides = 1, side = 0;
    int of;
    for (const char *s = when; (s = strstr(s, " or ")); s += 4)
        sides++;
    for (const char *s = when; *s; s += strcspn(s, " "), s += strspn(s, " (")) {
        side += !strncmp(s, "or ", 3);
        if (!all && side != p->turn % sides)
            continue;
        if (sscanf(s, "%31[A-Za-z0-9_] %% %d == 0", name, &of) == 2 && of > 0)
            plan_satisfy_comparison(p, name, "%", of, c);
        else if (sscanf(s, "%31[A-Za-z0-9_] %2[=<>] %d", name, operator, &of) == 3)
            plan_satisfy_comparison(p, name, operator, of, c);
    }
}

/* Sets the sizes and dtypes of the contract's names to the wanted levels. */
static void plan_set_name_values(planner *p, const int *wanted_levels, bool others_small, check_case *c)
{
    for (size_t k = 0; k < p->op->nnames; k++) {
        const check_name *name = &p->op->names[k];
        const uint32_t turn = p->turn + (uint32_t)k;
        const int64_t size_class = plan_get_wanted_level(
                          p, wanted_levels, name->kind == CHECK_NAME_VARIADIC ? FACTOR_VARIADIC_SIZE : FACTOR_DIM, k),
                      d = plan_get_wanted_level(p, wanted_levels, FACTOR_DTYPE, k);
        const uint32_t member = plan_find_rotation_to_rarest_size(p, k, size_class, turn);
        if (name->kind == CHECK_NAME_DTYPE && d >= 0)
            c->names.dtypes[name->value_index] = dv_dtype_from_key((uint32_t)d);
        else if (name->kind == CHECK_NAME_VARIADIC)
            plan_make_shape(p, plan_get_wanted_level(p, wanted_levels, FACTOR_RANK, k), size_class,
                plan_get_wanted_level(p, wanted_levels, FACTOR_ONES, k), turn, member, others_small,
                &c->names.variadics[name->value_index].ndim, c->names.variadics[name->value_index].sizes);
        else if (name->kind == CHECK_NAME_DIM)
            c->names.dims[name->value_index] = plan_get_size_of_class(
                p, size_class < 0 ? SIZE_FEW : size_class, others_small && size_class <= SIZE_OTHER ? 0 : member);
    }
    for (size_t k = 0; k < p->op->nnames; k++)
        if (p->size_copied_from[k])
            c->names.dims[p->op->names[k].value_index] = c->names.dims[p->op->names[p->size_copied_from[k] - 1].value_index];
    if (p->nsolutions)
        memcpy(c->names.dims, p->solutions[p->turn % p->nsolutions], sizeof c->names.dims);
}

/* Returns the dtype of a tensor whose dtype no name of the contract decides. In every second case the tensors of one list get
 * different dtypes. */
static dv_dtype plan_get_free_tensor_dtype(const planner *p, const int *wanted_levels, size_t slot, size_t list_index)
{
    for (int k = 0; k < p->nfactors; k++)
        if (p->factors[k].kind == FACTOR_FREE_DTYPE && p->factors[k].index == slot && wanted_levels[k] >= 0)
            return dv_dtype_from_key((uint32_t)p->factors[k]
                    .levels[((size_t)wanted_levels[k] + (p->turn % 2 ? list_index : 0)) % p->factors[k].nlevels]);
    return dv_dtype_from_key(DV_DTYPE_f32);
}

/* Sets shape and dtype of each tensor; names of the contract replace those that they decide later. */
static void plan_set_free_tensors(planner *p, const int *wanted_levels, bool others_small, check_case *c)
{
    for (size_t i = 0; i < c->ntensors; i++) {
        check_tensor *t = &c->tensors[i];
        const size_t slot = check_find_tensor_slot(c, i), element = i - c->args[slot].first_tensor;
        const bool mixed = p->mixed_list_position && c->args[slot].type == DV_VALUE_TENSORS;
        const bool empty = mixed && (p->mixed_list_position == element + 1) == p->mixed_tensor_is_empty;
        const int64_t rank = plan_get_wanted_level(p, wanted_levels, FACTOR_FREE_RANK, slot),
                      size_class = plan_get_wanted_level(p, wanted_levels, FACTOR_FREE_SIZE, slot);
        t->dtype = plan_get_free_tensor_dtype(p, wanted_levels, slot, element);
        plan_make_shape(p, mixed && rank == 0 ? 1 : rank, mixed ? SIZE_FEW : size_class, ONES_NONE,
            p->turn + (uint32_t)(slot + element), p->turn + (uint32_t)(slot + element), others_small, &t->ndim, t->shape);
        for (int32_t d = 0; d < CHECK_MAX_DIMS && empty;
            d++) /* all dims become 0; other names of the pattern decide later which of them stay, as in xs{i}[*a n{i} *b] */
            t->shape[d] = 0;
        if (i && !p->mixed_list_position && plan_get_wanted_level(p, wanted_levels, FACTOR_SAME_SHAPE, 0) == 1) {
            t->ndim = c->tensors[0].ndim;
            t->dtype = p->op->contract ? t->dtype : c->tensors[0].dtype;
            memcpy(t->shape, c->tensors[0].shape, sizeof t->shape);
        }
    }
}

/* ---- Contents ---- */

/* True if a tensor has an integer dtype other than bool, so that its elements may be indices. */
static bool plan_can_hold_indices(const check_tensor *t)
{
    return check_is_integer_dtype(t->dtype) && dv_dtype_key(t->dtype) != DV_DTYPE_bool;
}

/* True if a result or a written argument of the case has this dtype, so that its integers are not only indices. */
static bool plan_has_output_of_dtype(const planner *p, const check_case *c, dv_dtype dtype)
{
    static dv_result_spec specs[CHECK_MAX_RESULTS];
    static check_values v;
    check_values_init_without_data(&v, c, (dv_device){ DV_CPU, 0 });
    const size_t n = dv_infer(p->op->op, v.values, c->nargs, specs, p->op->nresults) ? 0 : p->op->nresults;
    for (size_t r = 0; r < n; r++)
        if (specs[r].ndim >= 0 && dv_dtype_key(specs[r].dtype) == dv_dtype_key(dtype))
            return true;
    for (size_t i = 0; i < c->ntensors; i++)
        if (p->op->slots[check_find_tensor_slot(c, i)].flags & DV_SLOT_WRITES &&
            dv_dtype_key(c->tensors[i].dtype) == dv_dtype_key(dtype))
            return true;
    return false;
}

/* Sets fill and range of a tensor so that its last element is an invalid index, selected by wrong_kind, and the others are valid.
 * The kinds are -1, the size of a dim, and numbers farther outside. */
static void plan_make_last_index_wrong(planner *p, const check_case *c, int64_t wrong_kind, check_tensor *t)
{
    const int bits = t->dtype.bits - (t->dtype.code != 1);
    const int64_t most = bits >= 63 ? INT64_MAX >> 1 : (INT64_C(1) << bits) - 1;
    int64_t sizes[64] = { 0 };
    size_t n = 0;
    for (size_t i = 0; i < c->ntensors; i++)
        for (int32_t d = 0; d < c->tensors[i].ndim && c->tensors[i].present && n < 64; d++)
            sizes[n++] = c->tensors[i].shape[d];
    const int64_t size = sizes[n ? p->turn % n : 0], low = t->dtype.code == 1 ? 0 : -most;
    const int64_t kinds[NUM_WRONG_INDICES] = { -size - 1, 1000, -1000, size, -1, INT64_MAX, INT64_MIN };
    const int64_t last = kinds[wrong_kind];
    t->fill = CHECK_FILL_LAST_EXTREME;
    t->low = last > 0 ? 0 : (double)(last < low ? low : last);
    t->high = last < 0 ? 0 : (double)(last > most ? most : last);
}

/* Sets fill and range of a tensor for a level of FACTOR_CONTENTS. Integers by level: small (mostly valid indices), negative,
 * large, bounds of the dtype, numbers with the largest sums and products. Real numbers by level: around 0; positive, so that sums
 * do not cancel; wide, sometimes multiples of 1/2 or log-uniform. */
static void plan_set_fill_and_range(const planner *p, const check_case *c, int64_t contents_level, check_tensor *t)
{
    static const struct {
        double low, high;
    } ranges[2][4] = { { { -2, 2 }, { 0.25, 2 }, { -20, 20 }, { -2, 2 } }, { { 0, 1 }, { 0, 3 }, { -9, 3 }, { -5, 100 } } };
    const bool integer = check_is_integer_dtype(t->dtype);
    t->fill = CHECK_FILL_RANDOM;
    t->low = ranges[integer][contents_level % 4].low;
    t->high = ranges[integer][contents_level % 4].high;
    if (dv_dtype_key(t->dtype) == DV_DTYPE_bool) {
        t->low = contents_level == 2;
        t->high = contents_level != 1;
        t->fill = contents_level == 2 && p->turn % 2 ? CHECK_FILL_COUNT_WRAPS : CHECK_FILL_RANDOM;
    } else if (!integer && contents_level % 4 == 2 && p->turn % 2) {
        t->fill = CHECK_FILL_HALVES;
        t->high = p->turn % 4 == 3 ? 2 : t->high; /* few distinct values: many elements are equal, and both zeros occur */
        t->low = -t->high;
    } else if (!integer && contents_level % 4 == 2 && p->turn % 4 == 2) {
        t->fill = CHECK_FILL_BINADES;
        t->high = 128;
        t->low = -t->high;
    } else if (integer && contents_level >= 4 && (t->dtype.bits < 64 || plan_has_output_of_dtype(p, c, t->dtype))) {
        t->fill = contents_level == 4 ? CHECK_FILL_RANGE_BOUNDS : CHECK_FILL_RANDOM;
        t->low = t->dtype.code == 1 ? 0 : -(double)(UINT64_C(1) << (t->dtype.bits - 1));
        t->high = (t->dtype.code == 1 ? 2.0 : 1.0) * (double)(UINT64_C(1) << (t->dtype.bits - 1)) - 1;
        if (contents_level == 5 && p->turn % 2 &&
            t->dtype.bits >= 32) { /* neighbouring integers that a float or double rounds to one number */
            t->low = t->dtype.bits == 32 ? 0x1p30 : 0x1p58;
            t->high = t->low + 64;
        } else if (contents_level ==
            5) { /* 8-bit dtypes get odd numbers, too, since sums of powers of two are exact in a float */
            const double odd_offset = t->dtype.bits == 8 && p->turn % 2 ? 7 : 0;
            *(t->dtype.code == 1 ? &t->low : &t->high) = t->dtype.code == 1 ? t->high - odd_offset : t->low + odd_offset;
        }
    }
    if (t->dtype.code == 1 && t->low < 0)
        t->low = 0;
}

/* Sets fill and range of a tensor for FILL_MODE_SCALED. Successive cases rotate through: close together and far from 0, where a
 * variance cancels; near 300 or -300, where exp() or the square of an f16 overflows; log-uniform; within 20 of 0; small but for
 * the last element; subnormal in 16-bit dtypes. Elsewhere not all elements are near 0, because a division by such numbers exceeds
 * the tolerance. */
static void plan_set_scaled_fill(const planner *p, size_t tensor_index, check_tensor *t)
{
    static const double fill_centers[] = { -10500, 0, 300, -300, 0, 0, 0 }, max_magnitudes[] = { 0x1p10, 0x1p7, 0x1p14, 0x1p17 };
    enum {
        SCALE_COUNT = sizeof fill_centers / sizeof *fill_centers,
        SCALE_CLOSE = 0,
        SCALE_WIDE = 1,
        SCALE_LAST = 5,
        SCALE_TINY,
        MIN_LONG_ROW = 64
    };
    const double least = check_is_float_dtype(t->dtype) ? -check_get_max_finite(t->dtype) / 2 : fill_centers[SCALE_CLOSE];
    const size_t scaled_number = p->nscaled;
    size_t k = (scaled_number + tensor_index * (1 + scaled_number / SCALE_COUNT)) % SCALE_COUNT;
    const dv_dtype_row *row = dv_dtype_find(t->dtype);
    const double around = k == SCALE_CLOSE ? 2 : 20;
    if (scaled_number % 2 &&
        check_tensor_numel(t) > MIN_LONG_ROW) /* the last element then lies after all whole blocks of a vectorized loop */
        k = SCALE_LAST;
    else if (scaled_number % 4 == 2 && check_tensor_numel(t) > MIN_LONG_ROW)
        k = SCALE_WIDE;
    t->fill = k == SCALE_LAST ? CHECK_FILL_LAST_EXTREME : CHECK_FILL_RANDOM;
    const double middle = fmax(fill_centers[k], least);
    t->low = k == SCALE_LAST ? -2 : middle - around;
    t->high = k == SCALE_LAST ? (scaled_number & 2 ? 300 : 1000) : middle + around;
    if (k == SCALE_WIDE) {
        const double most = fmin(max_magnitudes[scaled_number / 4 % 4], -least);
        t->fill = CHECK_FILL_BINADES;
        t->low = -most;
        t->high = most;
    }
    if (k == SCALE_TINY && check_is_float_dtype(t->dtype) && t->dtype.bits <= 16 && row->bias < 64) {
        t->high = ldexp(1, 1 - row->bias);
        t->low = -t->high;
    }
}

/* Gives integers that the contract bounds, such as indices, a fill that covers all allowed values evenly, with both ends and the
 * limits of narrow dtypes. */
static void plan_set_range_ends_fill(dv_range allowed, check_tensor *t)
{
    const double most = ldexp(1, t->dtype.bits - (t->dtype.code != 1)) - 1;
    t->fill = CHECK_FILL_RANGE_ENDS;
    t->low = allowed.least == INT64_MIN ? t->low : (double)allowed.least;
    t->high = fmin((double)allowed.most, most);
}

/* Gives a tensor that the contract requires to be sorted a sorted fill. Integers rise from the lower to the upper allowed bound;
 * real numbers rise with or without equal neighbours. A tensor whose last element is a too large index stays unchanged. */
static void plan_set_sorted_fill(const planner *p, dv_range allowed, check_tensor *t)
{
    if (!check_is_integer_dtype(t->dtype)) {
        t->fill = p->turn % 2 ? CHECK_FILL_NONDECREASING : CHECK_FILL_INCREASING;
        return;
    }
    if (t->fill == CHECK_FILL_LAST_EXTREME && t->high > 0)
        return;
    t->fill = CHECK_FILL_OFFSETS;
    t->low = allowed.least > INT32_MIN ? (double)allowed.least : fmin(t->low, t->high);
    t->high = allowed.most < INT32_MAX ? (double)allowed.most : fmax(t->low, t->high);
}

/* Replaces CHECK_FILL_HALVES by random numbers if another tensor is expanded, so that one number occurs many times. Sums of
 * products would otherwise tie exactly, and an argmax over them would depend on the order of additions. */
static void plan_avoid_tied_sums(check_case *c)
{
    for (size_t i = 0; i < c->ntensors; i++)
        for (size_t k = 0; k < c->ntensors; k++)
            if (k != i && c->tensors[i].present && !check_is_integer_dtype(c->tensors[i].dtype) &&
                c->tensors[i].layout == CHECK_LAYOUT_EXPANDED && c->tensors[k].fill == CHECK_FILL_HALVES)
                c->tensors[k].fill = CHECK_FILL_RANDOM;
}

/* Sets layout and contents of each tensor to the wanted levels. allowed_ranges: range of elements that the contract allows for
 * each tensor. cover_range_ends: integers with a bounded range cover all of it. */
static void plan_set_layouts_and_contents(
    planner *p, const int *wanted_levels, const dv_range *allowed_ranges, bool cover_range_ends, check_case *c)
{
    const int64_t fill_mode = plan_get_wanted_level(p, wanted_levels, FACTOR_FILL_MODE, 0);
    size_t indices = 0, index = 0;
    for (size_t i = 0; i < c->ntensors; i++)
        indices += c->tensors[i].present && plan_can_hold_indices(&c->tensors[i]);
    c->seed = fill_mode == FILL_MODE_EXTREME;
    for (size_t i = 0; i < c->ntensors; i++) {
        check_tensor *t = &c->tensors[i];
        const size_t slot = check_find_tensor_slot(c, i), element = i - c->args[slot].first_tensor;
        const int64_t layout = plan_get_wanted_level(p, wanted_levels, FACTOR_LAYOUT, slot),
                      contents = plan_get_wanted_level(p, wanted_levels, FACTOR_CONTENTS, slot);
        t->layout = layout <= 0 ? CHECK_LAYOUT_CONTIGUOUS : (uint8_t)((layout + (int64_t)element) % CHECK_LAYOUT_WIDE_STRIDE);
        if (p->op->slots[slot].flags & DV_SLOT_WRITES && t->layout == CHECK_LAYOUT_EXPANDED)
            t->layout = CHECK_LAYOUT_SLICED;
        t->layout_variant = (uint8_t)(t->layout ? p->layout_counts[slot][t->layout] % CHECK_LAYOUT_VARIANTS : 0);
        plan_set_fill_and_range(p, c, contents < 0 ? 0 : contents, t);
        if (contents == 1 && p->turn % 2 && plan_can_hold_indices(t))
            check_set_index_below_size(c, i, p->turn / 2, t);
        if (!check_is_integer_dtype(t->dtype) && fill_mode == FILL_MODE_SCALED)
            plan_set_scaled_fill(p, i, t);
        if (!check_is_integer_dtype(t->dtype) && (fill_mode == FILL_MODE_SPECIAL || fill_mode == FILL_MODE_EXTREME) &&
            (p->turn % 2 || i == p->turn / 2 % c->ntensors))
            t->fill = CHECK_FILL_SPECIAL_VALUES;
        if (cover_range_ends && contents == 2 && plan_can_hold_indices(t) && p->op->contract &&
            allowed_ranges[i].most < INT64_MAX && allowed_ranges[i].least <= allowed_ranges[i].most)
            plan_set_range_ends_fill(allowed_ranges[i], t);
        if (t->present && plan_can_hold_indices(t) && index++ == p->turn % indices && fill_mode >= FILL_MODE_WRONG_INDEX)
            plan_make_last_index_wrong(p, c, fill_mode - FILL_MODE_WRONG_INDEX, t);
        if (p->op->is_sorted[slot])
            plan_set_sorted_fill(p, allowed_ranges[i], t);
        if (p->op->contract)
            check_clamp_element_range(t, allowed_ranges[i]);
    }
    plan_avoid_tied_sums(c);
}

double check_estimate_work(const check_op *op, const check_case *c)
{
    double dims = 1, most = 1;
    for (size_t k = 0; k < op->nnames; k++) {
        const check_name *name = &op->names[k];
        const check_shape *variadic = &c->names.variadics[name->value_index];
        double n = 1;
        for (int32_t d = 0; name->kind == CHECK_NAME_VARIADIC && c->names.is_bound[k] && d < variadic->ndim; d++)
            n *= (double)variadic->sizes[d];
        if (name->kind == CHECK_NAME_DIM && c->names.is_bound[k])
            dims *= (double)c->names.dims[name->value_index];
        most = n > most ? n : most;
    }
    return dims * most;
}

double check_estimate_work_with_ints(const check_op *op, const check_case *c)
{
    double work = check_estimate_work(op, c);
    for (size_t i = 0; i < c->nargs; i++)
        work *= c->args[i].type == DV_VALUE_INT && c->args[i].as.i > 1 ? (double)c->args[i].as.i : 1;
    for (size_t i = 0; i < c->nargs; i++)
        for (uint32_t k = 0; c->args[i].type == DV_VALUE_INTS && k < c->args[i].count; k++)
            work *= c->args[i].ints[k] > 1 ? (double)c->args[i].ints[k] : 1;
    return work;
}

/* Builds a case with the wanted levels, as far as the contract allows them, and returns check_classify_case() of it. The names of
 * first_factor and second_factor (or NONE) are fixed first. others_small: all sizes without a wanted level are small. */
static enum check_verdict plan_make_and_classify_case(
    planner *p, const int *wanted_levels, int first_factor, int second_factor, bool others_small, check_case *c)
{
    dv_range facts[CHECK_MAX_TENSORS];
    check_fit_order order = { 0 };
    check_count_plan_progress();
    memset(c, 0, sizeof *c);
    c->plan_index = p->turn;
    plan_set_name_values(p, wanted_levels, others_small, c);
    plan_set_arguments_except_shapes(p, wanted_levels, others_small, c);
    plan_satisfy_kernel_condition(p, c);
    plan_set_free_tensors(p, wanted_levels, others_small, c);
    for (int k = 0; k < 2; k++) {
        const int of = k ? second_factor : first_factor;
        if (of >= 0 && p->factors[of].kind <= FACTOR_ONES)
            order.names[k] = &p->op->names[p->factors[of].index];
        order.ints_first |= of >= 0 && p->factors[of].kind == FACTOR_SCALAR;
    }
    if (!check_try_fit_case_in_order(p->op, c, &order, facts))
        return CHECK_VERDICT_REFUSED;
    enum check_verdict verdict = CHECK_VERDICT_TOO_LARGE;
    if (check_estimate_work(p->op, c) <= MAX_WORK_PER_ELEMENT * (double)check_max_elements) {
        plan_set_layouts_and_contents(p, wanted_levels, facts, true, c);
        verdict = check_classify_case(p->op, c);
    }
    if (verdict == CHECK_VERDICT_TOO_LARGE &&
        (!p->plan->smallest_too_large_numel || check_case_max_numel(c) < p->plan->smallest_too_large_numel))
        p->plan->smallest_too_large_numel = check_case_max_numel(c);
    if (verdict == CHECK_VERDICT_BAD_CONTENTS) { /* the contract forbids such large numbers: smaller ones are used */
        plan_set_layouts_and_contents(p, wanted_levels, facts, false, c);
        verdict = check_classify_case(p->op, c);
    }
    if (verdict == CHECK_VERDICT_REFUSED && !p->plan->has_stray_view_case && check_is_refused_for_stray_view(p->op, c)) {
        p->plan->has_stray_view_case = true;
        p->plan->stray_view_case = *c;
        p->plan->stray_view_case.is_invalid = true;
    }
    return verdict;
}

/* ---- From a case to its levels --------------------------------------------------------------------------------------------- */

/* Returns the size class of a shape's largest dim; SIZE_ZERO if any dim is 0; NONE for a shape without dims. */
static int64_t plan_get_size_class_of_shape(const planner *p, int32_t ndim, const int64_t *shape)
{
    int64_t most = ndim ? 1 : NONE;
    bool empty = false;
    for (int32_t i = 0; i < ndim; i++) {
        most = shape[i] > most ? shape[i] : most;
        empty |= !shape[i];
    }
    return empty ? SIZE_ZERO : most < 0 ? NONE : plan_get_size_class(p, most);
}

/* Returns where a shape has dims of size 1, as enum ones_position. NONE: the shape has fewer than two dims, or all of them are 1.
 */
static int64_t plan_get_ones_position(int32_t ndim, const int64_t *shape)
{
    bool inner = false, all = true;
    for (int32_t i = 0; i < ndim; i++) {
        inner |= i && i + 1 < ndim && shape[i] == 1;
        all &= shape[i] == 1;
    }
    if (ndim < 2 || all)
        return NONE;
    return shape[0] == 1       ? shape[ndim - 1] == 1 ? ONES_BOTH_ENDS : ONES_LEADING
        : shape[ndim - 1] == 1 ? ONES_TRAILING
        : inner                ? ONES_INTERIOR
                               : ONES_NONE;
}

/* True if two argument values count as one level. Lists of ints that the contract reads need only equal lengths; all extreme ints
 * are one level. */
static bool plan_is_same_scalar_level(const check_value *a, const check_value *b, bool contract_reads)
{
    return (contract_reads && a->type == DV_VALUE_INTS && b->type == DV_VALUE_INTS && a->count == b->count) ||
        !memcmp(a, b, sizeof *a) ||
        (a->type == DV_VALUE_INT && b->type == DV_VALUE_INT && a->as.i == extreme_ints[0] && plan_is_extreme_int(b->as.i));
}

/* Returns the level that a case has for a factor. Returns NONE if the factor does not occur in the case, as for the layout of a
 * tensor that is None. */
static int64_t plan_get_level_of_case(const planner *p, const int *wanted_levels, int factor_index, const check_case *c)
{
    const factor *f = &p->factors[factor_index];
    const check_name *name = &p->op->names[f->kind <= FACTOR_DTYPE ? f->index : 0];
    const check_value *v = &c->args[f->kind > FACTOR_DTYPE ? f->index : 0];
    const bool of_tensor = f->kind >= FACTOR_FREE_RANK && f->kind != FACTOR_SAME_SHAPE && f->kind != FACTOR_SCALAR &&
        f->kind != FACTOR_FILL_MODE;
    const check_tensor *t = &c->tensors[of_tensor ? v->first_tensor : 0];
    const bool there = of_tensor && v->count && t->present;
    if (f->kind <= FACTOR_DTYPE && !c->names.is_bound[f->index])
        return NONE;
    if (of_tensor && !there && f->kind != FACTOR_PRESENT && f->kind != FACTOR_LENGTH)
        return NONE;
    switch (f->kind) {
    case FACTOR_DIM: return plan_get_size_class(p, c->names.dims[name->value_index]);
    case FACTOR_RANK: return c->names.variadics[name->value_index].ndim;
    case FACTOR_VARIADIC_SIZE:
        return plan_get_size_class_of_shape(
            p, c->names.variadics[name->value_index].ndim, c->names.variadics[name->value_index].sizes);
    case FACTOR_ONES:
        return plan_get_ones_position(c->names.variadics[name->value_index].ndim, c->names.variadics[name->value_index].sizes);
    case FACTOR_DTYPE: return dv_dtype_key(c->names.dtypes[name->value_index]);
    case FACTOR_FREE_RANK: return t->ndim;
    case FACTOR_FREE_SIZE: return plan_get_size_class_of_shape(p, t->ndim, t->shape);
    case FACTOR_FREE_DTYPE: return dv_dtype_key(t->dtype);
    case FACTOR_PRESENT: return v->count ? t->present : NONE;
    case FACTOR_LENGTH: return v->count;
    case FACTOR_SCALAR:
        for (uint32_t l = 0; l < f->nlevels; l++)
            if (p->scalar_levels[f->index][l].type == DV_VALUE_INT && p->scalar_levels[f->index][l].count
                    ? v->type == DV_VALUE_INT && plan_get_size_class(p, v->as.i) + 1 == p->scalar_levels[f->index][l].count
                    : plan_is_same_scalar_level(&p->scalar_levels[f->index][l], v, p->op->literals[f->index].is_read))
                return l;
        return NONE;
    case FACTOR_LAYOUT: return t->layout;
    default: return wanted_levels[factor_index] < 0 ? NONE : f->levels[wanted_levels[factor_index]];
    }
}

/* Returns the index of a level in the factor's list of levels; NONE if the factor has no such level. */
static int plan_find_level_index(const planner *p, int factor_index, int64_t level)
{
    int at = NONE;
    for (uint32_t l = 0; l < p->factors[factor_index].nlevels; l++)
        at = p->factors[factor_index].levels[l] == level ? (int)l : at;
    return at;
}

/* Sets found_levels[k] to the index of the level that the case has for factor k; NONE if it has none of the factor's levels. */
static void plan_set_found_levels(const planner *p, const int *wanted_levels, const check_case *c, int *found_levels)
{
    for (int k = 0; k < p->nfactors; k++) {
        const int64_t level = plan_get_level_of_case(p, wanted_levels, k, c);
        found_levels[k] = level >= 0 ? plan_find_level_index(p, k, level) : NONE;
    }
}

/* True if an argument tensor is empty, or all result tensors are. */
static bool plan_has_empty_input_or_results(const planner *p, const check_case *c)
{
    static dv_result_spec specs[CHECK_MAX_RESULTS];
    static check_values v;
    bool empty = false, any = false, all = true;
    check_values_init_without_data(&v, c, (dv_device){ DV_CPU, 0 });
    const size_t n = dv_infer(p->op->op, v.values, c->nargs, specs, p->op->nresults) ? 0 : p->op->nresults;
    for (size_t r = 0; r < n; r++) {
        bool none = false;
        for (int32_t d = 0; d < specs[r].ndim; d++)
            none |= !specs[r].shape[d];
        any |= specs[r].ndim >= 0;
        all &= specs[r].ndim < 0 || none;
    }
    for (size_t i = 0; i < c->ntensors; i++)
        empty |= c->tensors[i].present && !check_tensor_numel(&c->tensors[i]);
    return empty || (any && all);
}

/* True if the levels of factors of this kind are size classes. */
static bool plan_is_size_factor(enum factor_kind kind)
{
    return kind == FACTOR_DIM || kind == FACTOR_VARIADIC_SIZE || kind == FACTOR_FREE_SIZE;
}

/* Returns the size class that a level of a factor stands for; NONE if the level is no size class. */
static int64_t plan_get_size_class_of_level(const planner *p, int factor_index, int level_index)
{
    const factor *f = &p->factors[factor_index];
    if (level_index < 0 || (f->kind != FACTOR_SCALAR && !plan_is_size_factor(f->kind)))
        return NONE;
    if (f->kind == FACTOR_SCALAR)
        return p->scalar_levels[f->index][level_index].type == DV_VALUE_INT
            ? (int64_t)p->scalar_levels[f->index][level_index].count - 1
            : NONE;
    return f->levels[level_index];
}

/* True if the level sets an int argument that decides a result's shape to 0. */
static bool plan_is_zero_shape_argument(const planner *p, int factor_index, int level_index)
{
    const factor *f = &p->factors[factor_index];
    const check_value *v = f->kind == FACTOR_SCALAR && level_index >= 0 ? &p->scalar_levels[f->index][level_index] : NULL;
    return v && p->op->literals[f->index].decides_shape && v->type == DV_VALUE_INT && !v->as.i && !v->count;
}

/* True if a level keeps a kernel from its usual computation (no elements, NaN, a wrong index, an extreme int), so that it hides
 * the effect of other levels. */
static bool plan_is_masking_level(const planner *p, int factor_index, int level_index)
{
    const int64_t level = level_index < 0 ? 0 : p->factors[factor_index].levels[level_index];
    switch (p->factors[factor_index].kind) {
    case FACTOR_DIM:
    case FACTOR_VARIADIC_SIZE:
    case FACTOR_FREE_SIZE: return level_index >= 0 && level == SIZE_ZERO;
    case FACTOR_SCALAR:
        return level_index >= 0 && p->scalar_levels[p->factors[factor_index].index][level_index].type == DV_VALUE_INT &&
            plan_is_extreme_int(p->scalar_levels[p->factors[factor_index].index][level_index].as.i);
    case FACTOR_FILL_MODE: return level != FILL_MODE_PLAIN;
    case FACTOR_CONTENTS: return level >= 3; /* the integers may be invalid indices */
    default: return false;
    }
}

/* ---- Pairs ----------------------------------------------------------------------------------------------------------------- */

/* Returns a pointer to the state (enum pair_state) of a pair of levels, in either order of the factors. */
static uint8_t *plan_get_pair_state(const planner *p, int factor_a, int level_a, int factor_b, int level_b)
{
    if (factor_a > factor_b)
        return plan_get_pair_state(p, factor_b, level_b, factor_a, level_a);
    return &p->pair_states[p->pair_offsets[factor_a][factor_b] + (size_t)level_a * p->factors[factor_b].max_levels +
        (size_t)level_b];
}

/* True if a level is tried together with wrong indices. Layouts and positions of 1s are not, and of the size classes only 1, a
 * few and another are. */
static bool plan_is_tried_with_wrong_index(const planner *p, int factor_index, int level_index)
{
    const int64_t size_class = plan_get_size_class_of_level(p, factor_index, level_index);
    return p->factors[factor_index].kind != FACTOR_LAYOUT && p->factors[factor_index].kind != FACTOR_ONES &&
        (size_class < 0 || size_class == SIZE_ONE || size_class == SIZE_FEW || size_class == SIZE_OTHER);
}

/* True if two levels, given in the order of their factors, can occur in one case. Returns false if they contradict each other, as
 * rank 0 and a size, or are left out on purpose. */
static bool plan_can_combine_levels(const planner *p, int factor_a, int level_a, int factor_b, int level_b)
{
    const factor *f = &p->factors[factor_a], *g = &p->factors[factor_b];
    const int64_t level = f->levels[level_a], other = g->levels[level_b];
    const bool of_name = f->kind <= FACTOR_ONES && g->kind <= FACTOR_ONES,
               of_tensor = f->kind >= FACTOR_FREE_RANK && g->kind >= FACTOR_FREE_RANK;
    if ((g->kind == FACTOR_FILL_MODE && other >= FILL_MODE_WRONG_INDEX &&
            !plan_is_tried_with_wrong_index(p, factor_a, level_a)) ||
        (f->kind == FACTOR_FILL_MODE && level >= FILL_MODE_WRONG_INDEX && !plan_is_tried_with_wrong_index(p, factor_b, level_b)))
        return false;
    if (f->index != g->index || (!of_name && !of_tensor) || f->kind == FACTOR_SAME_SHAPE || g->kind == FACTOR_SAME_SHAPE ||
        f->kind == FACTOR_FILL_MODE || g->kind == FACTOR_FILL_MODE)
        return true;
    if ((f->kind == FACTOR_PRESENT || f->kind == FACTOR_LENGTH) && !level)
        return false;
    if ((g->kind == FACTOR_PRESENT || g->kind == FACTOR_LENGTH) && !other)
        return false;
    if ((f->kind == FACTOR_RANK && g->kind == FACTOR_VARIADIC_SIZE) ||
        (f->kind == FACTOR_FREE_RANK && g->kind == FACTOR_FREE_SIZE))
        return level > 0 && (level <= MAX_RANK || (other != SIZE_PAST_4096 && other != SIZE_PAST_32768));
    if (f->kind == FACTOR_RANK && g->kind == FACTOR_ONES)
        return level >= 2 && level <= MAX_RANK &&
            (other != ONES_INTERIOR || level >= 3); /* in a shape of rank HIGH_RANK most dims are 1 anyway */
    if (f->kind == FACTOR_VARIADIC_SIZE && g->kind == FACTOR_ONES)
        return level != SIZE_ONE;
    return true;
}

/* True if the last level of a factor is a size class, so that the factor is one of sizes, and it can get one more level. */
static bool plan_last_level_is_size_class(const planner *p, int factor_index)
{
    return plan_get_size_class_of_level(p, factor_index, (int)p->factors[factor_index].nlevels - 1) >= 0 &&
        p->factors[factor_index].nlevels < MAX_LEVELS;
}

/* Allocates pair_states for all pairs of levels, all PAIR_OPEN. Returns false if memory is out. */
static bool plan_try_alloc_pair_states(planner *p)
{
    for (int k = 0; k < p->nfactors;
        k++) /* factors of sizes get one more level after all pairs are tried: numbers of the source */
        p->factors[k].max_levels = p->factors[k].nlevels + (plan_last_level_is_size_class(p, k) && p->op->nextra_sizes);
    for (int a = 0; a < p->nfactors; a++)
        for (int b = a + 1; b < p->nfactors; b++) {
            p->pair_offsets[a][b] = p->npairs;
            p->npairs += (size_t)p->factors[a].max_levels * p->factors[b].max_levels;
        }
    p->pair_states = calloc(p->npairs + 1, 1);
    return p->pair_states;
}

/* Marks each pair that plan_can_combine_levels() refuses as PAIR_EXCLUDED. */
static void plan_mark_excluded_pairs(planner *p)
{
    for (int a = 0; a < p->nfactors; a++)
        for (int b = a + 1; b < p->nfactors; b++)
            for (int la = 0; la < (int)p->factors[a].nlevels; la++)
                for (int lb = 0; lb < (int)p->factors[b].nlevels; lb++)
                    if (!plan_can_combine_levels(p, a, la, b, lb))
                        *plan_get_pair_state(p, a, la, b, lb) = PAIR_EXCLUDED;
}

/* Marks the pairs that the next case of the plan covers, by its levels found_levels, and returns how many are new. only_count:
 * the pairs are counted, not marked. A case with an empty tensor for which no level is responsible covers none. */
static uint32_t plan_count_and_mark_new_pairs(planner *p, const int *found_levels, bool only_count)
{
    bool masked[MAX_FACTORS], masks_size = false;
    int nmasked = 0, ncontents = 0;
    uint32_t n = 0;
    for (int k = 0; k < p->nfactors; k++) {
        nmasked += masked[k] = plan_is_masking_level(p, k, found_levels[k]);
        ncontents += masked[k] && p->factors[k].kind == FACTOR_CONTENTS;
        masks_size |= masked[k] && plan_is_size_factor(p->factors[k].kind);
    }
    const bool empty = !masks_size && plan_has_empty_input_or_results(p, plan_get_next_case(p));
    for (int k = 0; k < p->nfactors && empty; k++)
        if (!masked[k] && plan_is_zero_shape_argument(p, k, found_levels[k])) {
            masked[k] = masks_size = true;
            nmasked++;
        }
    if (empty && !masks_size)
        return 0;
    for (int a = 0; a < p->nfactors; a++)
        for (int b = a + 1; b < p->nfactors; b++) {
            const bool contents = p->factors[a].kind == FACTOR_CONTENTS && p->factors[b].kind == FACTOR_CONTENTS;
            if (found_levels[a] < 0 || found_levels[b] < 0 || (contents && nmasked > ncontents) ||
                (nmasked && !(masked[a] && masked[b]) && !(nmasked == 1 && (masked[a] || masked[b]))))
                continue;
            uint8_t *of = plan_get_pair_state(p, a, found_levels[a], b, found_levels[b]);
            if (*of != PAIR_COVERED && *of != PAIR_EXCLUDED) {
                n++;
                *of = only_count ? *of : PAIR_COVERED;
            }
        }
    return n;
}

/* ---- Proofs ---------------------------------------------------------------------------------------------------------------- */

/* Constraint on a name or an argument, in the form of dv_partial_set(). */
typedef struct level_constraint {
    enum dv_partial_of kind;
    size_t index;
    dv_partial_spec constraint;
} level_constraint;

/* Returns the range of integers from low to high. */
static dv_range plan_make_range(int64_t low, int64_t high) { return (dv_range){ low, high, 1, 0 }; }

/* Sets *out_range to one of the ranges that together contain all sizes of a size class: one range, or one for each member.
 * constraint_number: which of them, from 0. Returns false past the last. */
static bool plan_try_get_size_class_constraint(const planner *p, int64_t size_class, int constraint_number, dv_range *out_range)
{
    const bool range = size_class < NUM_SIZE_CLASSES && size_classes[size_class].high > size_classes[size_class].low;
    const int64_t member = range ? 0 : plan_get_size_of_class(p, size_class, (uint32_t)constraint_number);
    if (size_class == NUM_SIZE_CLASSES
            ? constraint_number >= (int)p->nextra_sizes
            : constraint_number > 3 || (constraint_number && (range || member == size_classes[size_class].of[0])))
        return false;
    *out_range = range ? plan_make_range(size_classes[size_class].low, size_classes[size_class].high)
                       : plan_make_range(member, member);
    return true;
}

/* Adds one of several constraints to *unknown_spec, which is dv_partial_spec_unknown() before the call. Each shape with this
 * rank, size class or position of 1s satisfies at least one of them. constraint_number: which one, from 0. Returns false past the
 * last.
 */
static bool plan_try_constrain_unknown_shape(
    const planner *p, enum factor_kind kind, int64_t level, int constraint_number, dv_partial_spec *unknown_spec)
{
    if (kind == FACTOR_RANK || kind == FACTOR_FREE_RANK) {
        unknown_spec->value = plan_make_range(level, level);
        return !constraint_number;
    }
    for (int32_t n = kind == FACTOR_ONES ? 2 : 1; n <= HIGH_RANK; n = n == MAX_RANK ? HIGH_RANK : n + 1) {
        unknown_spec->value = plan_make_range(n, n);
        if (kind == FACTOR_ONES && level != ONES_INTERIOR && !constraint_number--) {
            if (level == ONES_LEADING || level == ONES_BOTH_ENDS)
                unknown_spec->sizes[0] = plan_make_range(1, 1);
            if (level == ONES_TRAILING || level == ONES_BOTH_ENDS)
                unknown_spec->sizes[n - 1] = plan_make_range(1, 1);
            return true;
        }
        for (int32_t d = 0; kind != FACTOR_ONES && d<n; d += n> MAX_RANK
                ? n - 1
                : 1) /* for HIGH_RANK only the first and last dim are constrained */
            for (int j = 0; plan_try_get_size_class_constraint(p, level, j, &unknown_spec->sizes[d]); j++)
                if (!constraint_number--)
                    return true;
                else
                    unknown_spec->sizes[d] = dv_partial_spec_unknown().sizes[d];
        for (int32_t d = 1; kind == FACTOR_ONES && level == ONES_INTERIOR && d + 1 < n; d++)
            if (!constraint_number--) {
                unknown_spec->sizes[d] = plan_make_range(1, 1);
                return true;
            }
    }
    return false;
}

/* Sets *constraint to one of several constraints. Each call with the level satisfies at least one of them. constraint_number:
 * which one, from 0. Returns false past the last. *is_expressible: false if partial inference cannot express the level, so that
 * nothing is proved. */
static bool plan_try_get_level_constraint(const planner *p, int factor_index, int level_index, int constraint_number,
    level_constraint *constraint, bool *is_expressible)
{
    const factor *f = &p->factors[factor_index];
    const int64_t level = f->levels[level_index];
    const bool of_name = f->kind <= FACTOR_DTYPE;
    *constraint = (level_constraint){ of_name ? DV_PARTIAL_NAME : DV_PARTIAL_ARGUMENT,
        of_name ? p->op->names[f->index].register_index : f->index, dv_partial_spec_unknown() };
    *is_expressible = true;
    switch (f->kind) {
    case FACTOR_DIM: return plan_try_get_size_class_constraint(p, level, constraint_number, &constraint->constraint.value);
    case FACTOR_RANK:
    case FACTOR_VARIADIC_SIZE:
    case FACTOR_ONES: return plan_try_constrain_unknown_shape(p, f->kind, level, constraint_number, &constraint->constraint);
    case FACTOR_FREE_RANK:
    case FACTOR_FREE_SIZE:
        *is_expressible = p->op->slots[f->index].type == DV_FIELD_TENSOR;
        return plan_try_constrain_unknown_shape(p, f->kind, level, constraint_number, &constraint->constraint);
    case FACTOR_DTYPE: constraint->constraint.dtype = dv_dtype_from_key((uint32_t)level); return !constraint_number;
    case FACTOR_FREE_DTYPE:
        *is_expressible = p->op->slots[f->index].type == DV_FIELD_TENSOR;
        constraint->constraint.dtype = dv_dtype_from_key((uint32_t)level);
        return !constraint_number;
    case FACTOR_PRESENT:
        *is_expressible = p->op->slots[f->index].type == DV_FIELD_TENSOR;
        constraint->constraint.present = plan_make_range(level, level);
        return !constraint_number;
    case FACTOR_LENGTH: constraint->constraint.value = plan_make_range(level, level); return !constraint_number;
    case FACTOR_SCALAR: {
        const check_value v = check_get_value_or_default(p->op, f->index, &p->scalar_levels[f->index][level]);
        if (plan_get_size_class_of_level(p, factor_index, level_index) >= 0)
            return plan_try_get_size_class_constraint(
                p, plan_get_size_class_of_level(p, factor_index, level_index), constraint_number, &constraint->constraint.value);
        *is_expressible = p->op->literals[f->index].is_read &&
            (v.type == DV_VALUE_INT || v.type == DV_VALUE_BOOL || v.type == DV_VALUE_STRING);
        if (v.type == DV_VALUE_INT && v.as.i == extreme_ints[0]) {
            constraint->constraint.value = plan_make_range(
                extreme_ints[constraint_number % NUM_EXTREME_INTS], extreme_ints[constraint_number % NUM_EXTREME_INTS]);
            return constraint_number < NUM_EXTREME_INTS;
        }
        constraint->constraint.value = v.type == DV_VALUE_STRING ? constraint->constraint.value
            : v.type == DV_VALUE_BOOL                            ? plan_make_range(v.as.b, v.as.b)
                                                                 : plan_make_range(v.as.i, v.as.i);
        if (v.type == DV_VALUE_STRING)
            constraint->constraint.string = dv_from_string(p->scalar_levels[f->index][level].type == DV_VALUE_DEFAULT
                    ? p->op->slots[f->index].default_value.as.s.data
                    : p->scalar_levels[f->index][level].string)
                                                .as.s;
        return !constraint_number;
    }
    default: *is_expressible = false; return false;
    }
}

/* True if partial inference proves that no call satisfies a constraint together with those already set in `calls`. */
static bool plan_is_refuted(dv_partial *calls, const level_constraint *constraint)
{
    return dv_partial_set(calls, constraint->kind, constraint->index, 0, &constraint->constraint);
}

/* True if partial inference proves that no call has both levels. factor_b NONE: that no call has level_a. */
static bool plan_is_proved_infeasible(const planner *p, int factor_a, int level_a, int factor_b, int level_b)
{
    level_constraint one, two;
    dv_partial *calls = NULL;
    bool is_answered = true, refuted = p->op->contract;
    for (int i = 0; refuted && plan_try_get_level_constraint(p, factor_a, level_a, i, &one, &is_answered) && is_answered; i++) {
        calls = calls ? calls : check_new_partial_inference(p->op, 0, NULL);
        if (!calls || plan_is_refuted(calls, &one)) {
            refuted = calls;
            continue;
        }
        refuted = factor_b >= 0;
        for (int k = 0; refuted && plan_try_get_level_constraint(p, factor_b, level_b, k, &two, &is_answered) && is_answered; k++)
            refuted = plan_is_refuted(calls, &two);
        refuted &= is_answered;
        dv_partial_free(calls);
        calls = NULL;
    }
    dv_partial_free(calls);
    return refuted && is_answered;
}

/* ---- The array ------------------------------------------------------------------------------------------------------------- */

/* Counts in p->reached_counts that a planned case gives a name or argument this size. */
static void plan_count_reached_size(planner *p, size_t size_index, int64_t value)
{
    for (int c = SIZE_BEFORE_VECTOR; c < NUM_SIZE_CLASSES; c++)
        for (int k = 0; k < 4; k++)
            p->reached_counts[size_index][c][k] += size_classes[c].of[k] == value;
    for (size_t k = 0; k < p->nextra_sizes; k++)
        p->reached_counts[size_index][NUM_SIZE_CLASSES][k] += p->op->extra_sizes[k] == value;
}

/* Adds the case at plan_get_next_case() to the plan. newly_covered: number of pairs that it is the first to cover. */
static void plan_append_case(planner *p, const int *wanted_levels, uint32_t newly_covered)
{
    const check_case *c = plan_get_next_case(p);
    bool masked = plan_has_empty_input_or_results(p, c);
    for (int k = 0; k < p->nfactors; k++)
        masked |= wanted_levels[k] >= 0 && plan_is_masking_level(p, k, wanted_levels[k]);
    for (size_t k = 0; k < p->op->nnames && !masked; k++) {
        const check_name *name = &p->op->names[k];
        for (int32_t d = 0;
            name->kind == CHECK_NAME_VARIADIC && c->names.is_bound[k] && d < c->names.variadics[name->value_index].ndim; d++)
            plan_count_reached_size(p, k, c->names.variadics[name->value_index].sizes[d]);
        if (name->kind == CHECK_NAME_DIM && c->names.is_bound[k])
            plan_count_reached_size(p, k, c->names.dims[name->value_index]);
    }
    for (size_t i = 0; i < c->nargs && !masked; i++)
        if (c->args[i].type == DV_VALUE_INT)
            plan_count_reached_size(p, MAX_PLAN_NAMES + i, c->args[i].as.i);
    for (size_t i = 0; i < c->ntensors; i++)
        p->layout_counts[check_find_tensor_slot(c, i)][c->tensors[i].layout] += c->tensors[i].present &&
            check_has_layout_variants(&c->tensors[i]);
    p->plan->newly_covered_pairs[p->plan->ncases++] = newly_covered;
    p->nscaled += plan_get_wanted_level(p, wanted_levels, FACTOR_FILL_MODE, 0) == FILL_MODE_SCALED;
}

/* True if a level is a size class whose members exceed 1000. */
static bool plan_is_large_size_level(const planner *p, int factor_index, int level_index)
{
    const int64_t size_class = plan_get_size_class_of_level(p, factor_index, level_index);
    return size_class >= 0 && plan_get_size_of_class(p, size_class, 0) > 1000;
}

/* True if a level is a list of LONG_LIST_LENGTH tensors. Such lists are made only to cover their own pairs. */
static bool plan_is_long_list_level(const planner *p, int factor_index, int level_index)
{
    return level_index >= 0 && p->factors[factor_index].kind == FACTOR_LENGTH &&
        p->factors[factor_index].levels[level_index] == LONG_LIST_LENGTH;
}

/* Changes wanted levels so that dtype variables have equal dtypes in every third case, and variadic dims equal ranks in every
 * fourth. A kernel may have a fast path for equal ones. Factors fixed_a and fixed_b keep their levels. */
static void plan_equalize_dtypes_or_ranks(const planner *p, int fixed_a, int fixed_b, int *wanted_levels)
{
    static const enum factor_kind kinds[] = { FACTOR_DTYPE, FACTOR_RANK };
    for (uint32_t i = 0; i < 2; i++) {
        int source_factor = fixed_a >= 0 && p->factors[fixed_a].kind == kinds[i] ? fixed_a
            : fixed_b >= 0 && p->factors[fixed_b].kind == kinds[i]               ? fixed_b
                                                                                 : NONE;
        for (int k = 0; k < p->nfactors && p->turn % (3 + i) == 0; k++) {
            if (p->factors[k].kind != kinds[i])
                continue;
            source_factor = source_factor < 0 ? k : source_factor;
            for (uint32_t l = 0; l < p->factors[k].nlevels && k != fixed_a && k != fixed_b; l++)
                wanted_levels[k] = p->factors[k].levels[l] == p->factors[source_factor].levels[wanted_levels[source_factor]]
                    ? (int)l
                    : wanted_levels[k];
        }
    }
}

/* Sets wanted_levels of all factors except fixed_a and fixed_b (or NONE), in a random order of factors: for each the level with
 * the most open pairs. at_random: any level. Masking levels, long lists and large sizes are chosen only if a fixed level allows
 * them. */
static void plan_choose_other_levels(planner *p, int fixed_a, int fixed_b, int *wanted_levels, bool at_random)
{
    int order[MAX_FACTORS];
    const bool large = (fixed_a >= 0 && plan_is_large_size_level(p, fixed_a, wanted_levels[fixed_a])) ||
        (fixed_b >= 0 && plan_is_large_size_level(p, fixed_b, wanted_levels[fixed_b]));
    const bool masked = (fixed_a >= 0 && plan_is_masking_level(p, fixed_a, wanted_levels[fixed_a])) ||
        (fixed_b >= 0 && plan_is_masking_level(p, fixed_b, wanted_levels[fixed_b]));
    const bool both = masked && plan_is_masking_level(p, fixed_a, wanted_levels[fixed_a]) &&
        plan_is_masking_level(p, fixed_b, wanted_levels[fixed_b]);
    const bool contents = both && p->factors[fixed_a].kind == FACTOR_CONTENTS && p->factors[fixed_b].kind == FACTOR_CONTENTS;
    for (int k = 0; k < p->nfactors; k++) {
        const int other = (int)(check_random_next(&p->random) % (uint64_t)(k + 1));
        order[k] = order[other];
        order[other] = k;
        wanted_levels[k] = k == fixed_a || k == fixed_b ? wanted_levels[k] : NONE;
    }
    for (int i = 0; i < p->nfactors; i++) {
        const int k = order[i];
        int best = 0;
        uint64_t best_score = 0;
        if (k == fixed_a || k == fixed_b)
            continue;
        for (int l = 0; l < (int)p->factors[k].nlevels; l++) {
            uint64_t score = 1 + check_random_next(&p->random) % 256;
            const bool is_allowed = !plan_is_large_size_level(p, k, l) && !plan_is_long_list_level(p, k, l) &&
                (!plan_is_masking_level(p, k, l) || (both && (!contents || p->factors[k].kind == FACTOR_CONTENTS))) &&
                !(large && plan_get_size_class_of_level(p, k, l) > SIZE_FEW) &&
                !(large && (p->factors[k].kind == FACTOR_RANK || p->factors[k].kind == FACTOR_FREE_RANK) &&
                    p->factors[k].levels[l] > 2);
            for (int g = 0; g < p->nfactors && is_allowed && !at_random; g++)
                if (g != k && wanted_levels[g] >= 0 &&
                    plan_can_combine_levels(
                        p, k < g ? k : g, k < g ? l : wanted_levels[g], k < g ? g : k, k < g ? wanted_levels[g] : l))
                    score += *plan_get_pair_state(p, k, l, g, wanted_levels[g]) == PAIR_OPEN ? 256 : 0;
            if (is_allowed && score > best_score) {
                best_score = score;
                best = l;
            }
        }
        wanted_levels[k] = best;
    }
    const bool scaled = plan_get_wanted_level(p, wanted_levels, FACTOR_FILL_MODE, 0) == FILL_MODE_SCALED && p->turn % 2;
    for (int k = 0; k < p->nfactors && scaled;
        k++) /* number arguments get their first level, since they could scale the contents back to usual magnitudes */
        if (p->factors[k].kind == FACTOR_SCALAR && k != fixed_a && k != fixed_b)
            wanted_levels[k] = 0;
    plan_equalize_dtypes_or_ranks(p, fixed_a, fixed_b, wanted_levels);
}

/* Adds the first NUM_SIMPLE_CASES cases: small, contiguous, without masking levels, for properties that examine few cases in
 * detail. */
static void plan_add_simple_cases(planner *p)
{
    static const int64_t sizes[NUM_SIMPLE_CASES] = { SIZE_FEW, SIZE_FEW, SIZE_OTHER, SIZE_AFTER_VECTOR, SIZE_FEW, SIZE_VECTOR };
    int want[MAX_FACTORS], found[MAX_FACTORS];
    for (uint32_t i = 0; i < 4 * NUM_SIMPLE_CASES && p->plan->ncases < NUM_SIMPLE_CASES && p->plan->ncases < p->max_cases; i++) {
        plan_choose_other_levels(p, NONE, NONE, want, true);
        for (int k = 0; k < p->nfactors; k++) {
            const factor *f = &p->factors[k];
            for (uint32_t l = 0; l < f->nlevels; l++)
                if ((plan_is_size_factor(f->kind) && f->levels[l] == sizes[i % NUM_SIMPLE_CASES]) ||
                    (f->kind == FACTOR_ONES && f->levels[l] == ONES_NONE) ||
                    ((f->kind == FACTOR_RANK || f->kind == FACTOR_FREE_RANK) && f->levels[l] == 1 + i % 2) ||
                    (f->kind == FACTOR_PRESENT && f->levels[l] == (i % 4 != 2)) ||
                    (f->kind == FACTOR_LENGTH && f->levels[l] == 1 + i % 3) || (f->kind >= FACTOR_LAYOUT && !f->levels[l]) ||
                    (f->kind == FACTOR_SCALAR && !l && i % 2) || (f->kind == FACTOR_SAME_SHAPE && f->levels[l] == 1))
                    want[k] = (int)l;
        }
        if (plan_make_and_classify_case(p, want, NONE, NONE, false, plan_get_next_case(p)) == CHECK_VERDICT_ACCEPTED) {
            plan_set_found_levels(p, want, plan_get_next_case(p), found);
            if (i >= 2 * NUM_SIMPLE_CASES || !plan_has_empty_input_or_results(p, plan_get_next_case(p)))
                plan_append_case(p, want, plan_count_and_mark_new_pairs(p, found, false));
        }
        p->turn++;
    }
}

/* Makes up to MAX_TRIES_PER_PAIR cases until one covers this pair of levels. If none does, marks the pair as infeasible, too
 * large or uncovered. */
static void plan_cover_pair(planner *p, int factor_a, int level_a, int factor_b, int level_b)
{
    int want[MAX_FACTORS], found[MAX_FACTORS];
    uint8_t *of = plan_get_pair_state(p, factor_a, level_a, factor_b, level_b);
    bool was_too_large = false;
    for (int i = 0; i < MAX_TRIES_PER_PAIR && *of == PAIR_OPEN && p->ntries < MAX_TRIES && p->plan->ncases < p->max_cases;
        i++, p->ntries++) {
        want[factor_a] = level_a;
        want[factor_b] = level_b;
        const bool random = i > (p->failed_choices < MAX_FAILED_CHOICES ? MAX_TRIES_PER_PAIR / 2 : 0);
        plan_choose_other_levels(p, factor_a, factor_b, want, random);
        const bool others_small = i % 2 || plan_is_large_size_level(p, factor_a, level_a) ||
            plan_is_large_size_level(p, factor_b, level_b);
        const enum check_verdict verdict = plan_make_and_classify_case(
            p, want, factor_a, factor_b, others_small, plan_get_next_case(p));
        was_too_large |= verdict == CHECK_VERDICT_TOO_LARGE;
        p->turn++;
        p->failed_choices = verdict == CHECK_VERDICT_ACCEPTED && !random ? 0 : p->failed_choices + !random;
        if (verdict == CHECK_VERDICT_ACCEPTED) {
            plan_set_found_levels(p, want, plan_get_next_case(p), found);
            const uint32_t met = plan_count_and_mark_new_pairs(p, found, true);
            if (found[factor_a] == level_a && found[factor_b] == level_b && (met || i + 2 >= MAX_TRIES_PER_PAIR)) {
                plan_count_and_mark_new_pairs(p, found, false);
                plan_append_case(p, want, met + (*of != PAIR_COVERED));
                *of = PAIR_COVERED; /* no case was found in which no third level masks the pair, so this one is accepted */
            } else if (met > 8) {
                plan_append_case(p, want, plan_count_and_mark_new_pairs(p, found, false));
            }
        }
        if (i == 1 && *of == PAIR_OPEN && plan_is_proved_infeasible(p, factor_a, level_a, factor_b, level_b))
            *of = PAIR_INFEASIBLE;
    }
    if (*of == PAIR_OPEN)
        *of = was_too_large ? PAIR_TOO_LARGE : PAIR_UNCOVERED;
}

typedef struct level_pair { int a, la, b, lb; } level_pair;

/* Calls plan_cover_pair() for all open pairs in random order, so that a plan that becomes full neglects no factor. */
static void plan_cover_all_pairs(planner *p)
{
    level_pair *open = calloc(p->npairs + 1, sizeof *open);
    size_t n = 0;
    for (int a = 0; a < p->nfactors && open; a++)
        for (int b = a + 1; b < p->nfactors; b++)
            for (int la = 0; la < (int)p->factors[a].nlevels; la++)
                for (int lb = 0; lb < (int)p->factors[b].nlevels; lb++) {
                    const size_t other = check_random_next(&p->random) % (n + 1);
                    open[n] = open[other];
                    open[other] = (level_pair){ a, la, b, lb };
                    n++;
                }
    for (size_t i = 0; i < n && p->plan->ncases < p->max_cases; i++)
        if (*plan_get_pair_state(p, open[i].a, open[i].la, open[i].b, open[i].lb) == PAIR_OPEN)
            plan_cover_pair(p, open[i].a, open[i].la, open[i].b, open[i].lb);
    free(open);
}

/* Adds one case with wanted_levels of factors fixed_a and fixed_b (or NONE) and random unmasked levels of the others. Returns
 * false, without a new case, if the contract refuses it or it has an empty tensor or only empty results. In a case of partly
 * empty lists empty tensors are allowed. */
static bool plan_try_add_unmasked_case(planner *p, int fixed_a, int fixed_b, int *wanted_levels, bool others_small)
{
    int found[MAX_FACTORS];
    plan_choose_other_levels(p, fixed_a, fixed_b, wanted_levels, true);
    const bool accepted = plan_make_and_classify_case(p, wanted_levels, fixed_a, fixed_b, others_small, plan_get_next_case(p)) ==
            CHECK_VERDICT_ACCEPTED &&
        (p->mixed_list_position || !plan_has_empty_input_or_results(p, plan_get_next_case(p)));
    p->turn++;
    if (accepted) {
        plan_set_found_levels(p, wanted_levels, plan_get_next_case(p), found);
        plan_append_case(p, wanted_levels, plan_count_and_mark_new_pairs(p, found, false));
    }
    return accepted;
}

/* Returns the index of the factor with this kind and index of a name or argument; NONE if the plan has no such factor. */
static int plan_find_factor_index(const planner *p, enum factor_kind kind, size_t index)
{
    for (int k = 0; k < p->nfactors; k++)
        if (p->factors[k].kind == kind && p->factors[k].index == index)
            return k;
    return NONE;
}

/* Returns the index of a level in the factor's list of levels; 0 if the factor has no such level. */
static int plan_find_level_index_or_first(const planner *p, int factor_index, int64_t level)
{
    const int at = plan_find_level_index(p, factor_index, level);
    return at < 0 ? 0 : at;
}

/* True if some planned case gives two names the same size, and the size exceeds 8. */
static bool plan_has_case_with_equal_sizes(const planner *p, size_t name_a, size_t name_b)
{
    bool are = false;
    for (uint32_t i = 0; i < p->plan->ncases && !are; i++) {
        const check_names *n = &p->plan->cases[i].names;
        const int64_t size = n->dims[p->op->names[name_a].value_index];
        are = n->is_bound[name_a] && n->is_bound[name_b] && size > size_classes[SIZE_VECTOR].of[0] &&
            size == n->dims[p->op->names[name_b].value_index];
    }
    return are;
}

/* Adds cases in which two names have equal sizes, until each two names for which that is possible have had one. A kernel may
 * confuse two dims, or have a fast path for squares. A case may make several disjoint pairs of names equal. */
static void plan_cover_equal_sizes(planner *p)
{
    for (size_t a = 0; a < p->op->nnames; a++)
        for (size_t b = a + 1; b < p->op->nnames; b++)
            for (int i = 0; i < MAX_TRIES_PER_PAIR && p->plan->ncases < p->max_cases; i++) {
                int want[MAX_FACTORS];
                const int f = plan_find_factor_index(p, FACTOR_DIM, a), g = plan_find_factor_index(p, FACTOR_DIM, b);
                if (f < 0 || g < 0 || plan_has_case_with_equal_sizes(p, a, b))
                    break;
                want[f] = plan_find_level_index_or_first(p, f, SIZE_OTHER);
                want[g] = plan_find_level_index_or_first(p, g, SIZE_OTHER);
                p->size_copied_from[b] = (uint32_t)a + 1;
                for (size_t c = 0; c < p->op->nnames && i < MAX_TRIES_PER_PAIR / 2; c++)
                    for (size_t d = c + 1; d < p->op->nnames && c != a && c != b && !p->size_copied_from[c]; d++)
                        if (d != a && !p->size_copied_from[d] && plan_find_factor_index(p, FACTOR_DIM, c) >= 0 &&
                            plan_find_factor_index(p, FACTOR_DIM, d) >= 0 && !plan_has_case_with_equal_sizes(p, c, d)) {
                            p->size_copied_from[d] = (uint32_t)c + 1;
                            break;
                        }
                plan_try_add_unmasked_case(p, f, g, want, i % 2);
                memset(p->size_copied_from, 0, sizeof p->size_copied_from);
            }
}

/* True if some planned case has two variadic dims that differ only in their first size, which is 1 for broadcast_name and larger
 * for other_name. */
static bool plan_has_case_with_broadcast(const planner *p, size_t broadcast_name, size_t other_name)
{
    bool are = false;
    for (uint32_t i = 0; i < p->plan->ncases && !are; i++) {
        const check_names *n = &p->plan->cases[i].names;
        const check_shape *s = &n->variadics[p->op->names[broadcast_name].value_index],
                          *t = &n->variadics[p->op->names[other_name].value_index];
        are = n->is_bound[broadcast_name] && n->is_bound[other_name] && s->ndim > 1 && s->ndim == t->ndim && s->sizes[0] == 1 &&
            t->sizes[0] > 1;
        for (int32_t d = 1; d < s->ndim && are; d++)
            are = s->sizes[d] == t->sizes[d] && s->sizes[d] > 1;
    }
    return are;
}

/* Adds, for each two variadic dims, a case in which the first is broadcast against the second along its first dim. */
static void plan_cover_broadcasts(planner *p)
{
    for (size_t a = 0; a < p->op->nnames; a++)
        for (size_t b = 0; b < p->op->nnames; b++)
            for (int i = 0; i < MAX_TRIES_PER_PAIR && p->plan->ncases < p->max_cases && a != b; i++) {
                int want[MAX_FACTORS];
                const int f = plan_find_factor_index(p, FACTOR_ONES, a), g = plan_find_factor_index(p, FACTOR_ONES, b);
                if (f < 0 || g < 0 || plan_has_case_with_broadcast(p, a, b))
                    break;
                want[f] = plan_find_level_index_or_first(p, f, ONES_LEADING);
                want[g] = plan_find_level_index_or_first(p, g, ONES_NONE);
                p->turn = (p->turn + 11) / 12 *
                    12; /* a turn for which plan_equalize_dtypes_or_ranks() gives both the same rank and dtype */
                plan_try_add_unmasked_case(p, f, g, want, i % 2);
            }
}

/* Adds cases with lists of three tensors: one is empty and two are not, then the opposite, for each position. */
static void plan_add_partly_empty_lists(planner *p)
{
    bool lists = false;
    for (int f = 0; f < p->nfactors; f++)
        lists |= p->factors[f].kind == FACTOR_LENGTH;
    for (uint32_t k = 0; k < 2 * MIXED_LIST_LENGTH && lists && p->plan->ncases < p->max_cases; k++) {
        int want[MAX_FACTORS];
        p->mixed_list_position = k % MIXED_LIST_LENGTH + 1;
        p->mixed_tensor_is_empty = k < MIXED_LIST_LENGTH;
        plan_try_add_unmasked_case(p, NONE, NONE, want, false);
        p->mixed_list_position = 0;
    }
}

/* Returns the first index of planner.reached_counts for the name or int argument of a size factor. */
static size_t plan_get_size_index(const factor *f) { return f->index + (size_t)(f->kind == FACTOR_SCALAR ? MAX_PLAN_NAMES : 0); }

/* Adds cases until each name, and each int argument that may be a size, has had 8, 16, 32, 64 and their neighbours. Stops when
 * the plan is full. */
static void plan_cover_vector_lengths(planner *p)
{
    for (int f = 0; f < p->nfactors; f++)
        for (uint32_t l = 0; l < p->factors[f].nlevels; l++)
            for (int i = 0; i < MAX_TRIES_PER_PAIR && p->plan->ncases < p->max_cases; i++) {
                int want[MAX_FACTORS];
                const int64_t size_class = plan_get_size_class_of_level(p, f, (int)l);
                const size_t size = plan_get_size_index(&p->factors[f]);
                if (p->factors[f].kind == FACTOR_FREE_SIZE || size_class < SIZE_BEFORE_VECTOR || size_class > SIZE_AFTER_VECTOR ||
                    p->reached_counts[size][size_class][plan_find_rotation_to_rarest_size(p, size, size_class, 0) % 4])
                    break;
                want[f] = (int)l;
                plan_try_add_unmasked_case(p, f, NONE, want, false);
            }
}

/* Adds to each size factor the level NUM_SIZE_CLASSES, which stands for numbers of the contract and source, unless no call can
 * have it. */
static void plan_add_source_size_levels(planner *p)
{
    p->nextra_sizes = p->op->nextra_sizes;
    for (int k = 0; k < p->nfactors; k++)
        if (p->factors[k].max_levels > p->factors[k].nlevels &&
            plan_get_size_class(p, plan_get_size_of_class(p, NUM_SIZE_CLASSES, 0)) == NUM_SIZE_CLASSES) {
            if (p->factors[k].kind == FACTOR_SCALAR)
                plan_add_scalar_level(p, &p->factors[k], DV_VALUE_INT)->count = 1 + NUM_SIZE_CLASSES;
            else
                p->factors[k].levels[p->factors[k].nlevels++] = NUM_SIZE_CLASSES;
            if (p->op->contract && plan_is_proved_infeasible(p, k, (int)p->factors[k].nlevels - 1, NONE, 0))
                p->factors[k].nlevels--;
        }
}

/* Adds an unmasked case for each size factor and each op->extra_sizes number in [first_extra, end_extra), unless some planned
 * case gives the name or argument that size. */
static void plan_cover_extra_sizes(planner *p, size_t first_extra, size_t end_extra)
{
    const int fill_mode_factor = plan_find_factor_index(p, FACTOR_FILL_MODE, 0);
    for (int f = 0; f < p->nfactors; f++)
        for (size_t k = first_extra; k < end_extra && p->plan->ncases < p->max_cases; k++) {
            int want[MAX_FACTORS];
            const int last = (int)p->factors[f].nlevels - 1;
            if (plan_get_size_class_of_level(p, f, last) != NUM_SIZE_CLASSES)
                break;
            if (p->factors[f].kind == FACTOR_FREE_SIZE ||
                p->reached_counts[plan_get_size_index(&p->factors[f])][NUM_SIZE_CLASSES][k])
                continue;
            want[f] = last;
            if (fill_mode_factor >= 0)
                want[fill_mode_factor] = plan_find_level_index_or_first(p, fill_mode_factor, FILL_MODE_PLAIN);
            while ((p->turn + p->factors[f].index) % p->nextra_sizes !=
                k) /* at this turn plan_get_size_of_class() returns extra size k */
                p->turn++;
            plan_try_add_unmasked_case(p, f, fill_mode_factor, want, false);
        }
}

/* Adds cases with random unmasked levels, without large sizes or long lists, until the plan has min_cases or max_cases cases.
 * Makes at most 4 * min_cases attempts. */
static void plan_add_random_cases(planner *p, uint32_t min_cases)
{
    int want[MAX_FACTORS];
    for (uint32_t i = 0; i < 4 * min_cases && p->plan->ncases < min_cases && p->plan->ncases < p->max_cases; i++) {
        plan_choose_other_levels(p, NONE, NONE, want, true);
        if (plan_make_and_classify_case(p, want, NONE, NONE, i % 2, plan_get_next_case(p)) == CHECK_VERDICT_ACCEPTED)
            plan_append_case(p, want, 0);
        p->turn++;
    }
}

bool check_has_endless_int(const check_op *op, const check_case *c)
{
    bool result = false;
    for (size_t i = 0; i < c->nargs; i++) {
        const int64_t number = c->args[i].as.i;
        bool named = false;
        for (size_t k = 0; k < op->literals[i].nequality_values; k++)
            named |= op->literals[i].equality_values[k]->int_value == number;
        result |= c->args[i].type == DV_VALUE_INT && (number >= INT32_MAX || number <= INT32_MIN) && !named;
    }
    return result;
}

/* Moves the cases for which check_has_endless_int() is true to the end of the plan, because a call that does not end stops later
 * ones. */
static void plan_move_endless_int_cases_last(const check_op *op, check_plan *plan)
{
    static check_case large_cases[CHECK_MAX_CASES];
    uint32_t met[CHECK_MAX_CASES], n = 0, last = 0;
    for (uint32_t i = 0; i < plan->ncases; i++)
        if (check_has_endless_int(op, &plan->cases[i])) {
            met[last] = plan->newly_covered_pairs[i];
            large_cases[last++] = plan->cases[i];
        } else {
            plan->newly_covered_pairs[n] = plan->newly_covered_pairs[i];
            plan->cases[n++] = plan->cases[i];
        }
    memcpy(&plan->newly_covered_pairs[n], met, last * sizeof *met);
    memcpy(&plan->cases[n], large_cases, last * sizeof *large_cases);
}

/* True if partial inference proves that no call has this level's value of a non-tensor argument, as a string where only None is
 * accepted. */
static bool plan_is_refused_scalar_level(const planner *p, const factor *f, uint32_t level_index)
{
    dv_partial *any = check_new_partial_inference(p->op, 0, NULL);
    dv_partial *one = any && f->kind == FACTOR_SCALAR
        ? check_new_partial_inference(p->op, f->index, &p->scalar_levels[f->index][level_index])
        : NULL;
    const bool refused = any && f->kind == FACTOR_SCALAR && !one;
    dv_partial_free(any);
    dv_partial_free(one);
    return refused;
}

/* Removes each level of each factor for which it is proved that no call has it. Each factor keeps at least one level. */
static void plan_drop_infeasible_levels(planner *p)
{
    for (int k = 0; k < p->nfactors; k++)
        for (uint32_t l = 0; l < p->factors[k].nlevels;)
            if (p->factors[k].nlevels > 1 &&
                (plan_is_proved_infeasible(p, k, (int)l, NONE, 0) || plan_is_refused_scalar_level(p, &p->factors[k], l))) {
                factor *f = &p->factors[k];
                f->nlevels--;
                if (f->kind == FACTOR_SCALAR)
                    memmove(&p->scalar_levels[f->index][l], &p->scalar_levels[f->index][l + 1],
                        (f->nlevels - l) * sizeof(check_value));
                else
                    memmove(&f->levels[l], &f->levels[l + 1], (f->nlevels - l) * sizeof *f->levels);
            } else {
                l++;
            }
}

/* Removes from factor f each dtype that the tensors of a list argument cannot have. check_try_fit_case() decides, because core
 * has no facts about tensors in lists. base_case: a case with small sizes in which the dtype is tried. */
static void plan_drop_refused_list_dtypes(planner *p, const check_case *base_case, size_t slot, factor *f)
{
    static check_case c;
    const size_t first = base_case->args[slot].first_tensor;
    uint32_t n = 0;
    for (uint32_t l = 0; l < f->nlevels; l++) {
        c = *base_case;
        c.tensors[first].dtype = dv_dtype_from_key((uint32_t)f->levels[l]);
        if (check_try_fit_case(p->op, &c, NULL, NULL) && dv_dtype_key(c.tensors[first].dtype) == f->levels[l])
            f->levels[n++] = f->levels[l];
    }
    f->nlevels = n ? n : f->nlevels;
}

/* Adds the factors of one tensor argument: presence, list length and layout, and shape and dtype if no name decides them
 * (has_free_shape, has_free_dtype). base_case: a case with small sizes. */
static void plan_add_tensor_factors(
    planner *p, const check_case *base_case, size_t slot, bool has_free_shape, bool has_free_dtype)
{
    const check_op *op = p->op;
    const bool list = op->slots[slot].type == DV_FIELD_TENSORS, written = op->slots[slot].flags & DV_SLOT_WRITES;
    if (plan_is_optional_tensor(op, slot))
        plan_add_integer_range_factor(p, FACTOR_PRESENT, slot, 0, 1);
    if (list)
        plan_add_integer_range_factor(p, FACTOR_LENGTH, slot, 0, 3),
            plan_add_level(&p->factors[p->nfactors - 1], LONG_LIST_LENGTH);
    if (has_free_shape) {
        plan_add_integer_range_factor(p, FACTOR_FREE_RANK, slot, 0, MAX_RANK - 1);
        plan_add_size_factor(p, FACTOR_FREE_SIZE, slot);
    }
    if (has_free_dtype)
        plan_add_dtype_factor(p, FACTOR_FREE_DTYPE, slot, NULL, true);
    if (has_free_dtype && list && op->contract && base_case->args[slot].count)
        plan_drop_refused_list_dtypes(p, base_case, slot, &p->factors[p->nfactors - 1]);
    factor *f = plan_add_factor(p, FACTOR_LAYOUT, slot);
    for (int64_t l = 0; l < CHECK_LAYOUT_WIDE_STRIDE; l++)
        if (!written || l != CHECK_LAYOUT_EXPANDED)
            plan_add_level(f, l);
}

/* True if some dtype factor has an integer dtype as a level. */
static bool plan_has_integer_dtype_level(const planner *p)
{
    bool may = false;
    for (int k = 0; k < p->nfactors; k++)
        for (uint32_t l = 0;
            l < p->factors[k].nlevels && (p->factors[k].kind == FACTOR_DTYPE || p->factors[k].kind == FACTOR_FREE_DTYPE); l++)
            may |= check_is_integer_dtype(dv_dtype_from_key((uint32_t)p->factors[k].levels[l]));
    return may;
}

/* Sets the wanted levels to small sizes and rank 2, and to the first level for other factors. */
static void plan_want_small_sizes(const planner *p, int *wanted_levels)
{
    memset(wanted_levels, 0, MAX_FACTORS * sizeof *wanted_levels);
    for (int k = 0; k < p->nfactors; k++)
        for (uint32_t l = 0; l < p->factors[k].nlevels; l++)
            if ((plan_is_size_factor(p->factors[k].kind) && p->factors[k].levels[l] == SIZE_FEW) ||
                (p->factors[k].kind == FACTOR_RANK && p->factors[k].levels[l] == 2))
                wanted_levels[k] = (int)l;
}

/* Adds all factors of the operator with their levels, and removes levels that no call can have. */
static void plan_add_all_factors(planner *p)
{
    static check_case c;
    static bool shapes[CHECK_MAX_TENSORS], dtypes[CHECK_MAX_TENSORS];
    const check_op *op = p->op;
    const check_json *variables = check_json_find_member(op->contract, "dtypes"), *d = variables ? variables->child : NULL;
    size_t nfree = 0, first_dtype = op->nnames;
    for (size_t k = 0; k < op->nnames; k++) {
        if (op->names[k].kind == CHECK_NAME_DIM)
            plan_add_size_factor(p, FACTOR_DIM, k);
        if (op->names[k].kind == CHECK_NAME_VARIADIC) {
            plan_add_integer_range_factor(p, FACTOR_RANK, k, 0, MAX_RANK);
            plan_add_level(&p->factors[p->nfactors - 1], HIGH_RANK);
            plan_add_size_factor(p, FACTOR_VARIADIC_SIZE, k);
            plan_add_integer_range_factor(p, FACTOR_ONES, k, 0, ONES_COUNT - 1);
        }
        if (op->names[k].kind == CHECK_NAME_DTYPE) {
            first_dtype = k < first_dtype ? k : first_dtype;
            plan_add_dtype_factor(p, FACTOR_DTYPE, k, d, k == first_dtype);
            d = d ? d->next : NULL;
        }
    }
    for (size_t i = 0; i < op->nargs; i++)
        if (!plan_is_tensor_argument(op, i))
            plan_add_scalar_factor(p, i);
    int want[MAX_FACTORS];
    plan_want_small_sizes(p, want);
    memset(&c, 0, sizeof c);
    plan_set_arguments_except_shapes(p, want, false, &c);
    plan_set_name_values(p, want, false, &c);
    plan_satisfy_kernel_condition(p, &c);
    plan_set_free_tensors(p, want, false, &c);
    check_flag_free_tensors(op, &c, shapes, dtypes);
    for (size_t i = 0; i < op->nargs; i++) {
        const size_t t = c.args[i].first_tensor;
        if (!plan_is_tensor_argument(op, i))
            continue;
        plan_add_tensor_factors(p, &c, i, shapes[t], dtypes[t]);
        nfree += shapes[t];
    }
    if (nfree > 1)
        plan_add_integer_range_factor(p, FACTOR_SAME_SHAPE, 0, 0, 1);
    const bool literal = plan_has_integer_dtype_level(p);
    bool integers = literal, reals = false;
    for (size_t i = 0; i < c.ntensors; i++) {
        integers |= check_is_integer_dtype(c.tensors[i].dtype);
        reals |= !check_is_integer_dtype(c.tensors[i].dtype);
    }
    for (size_t i = 0; i < op->nargs; i++)
        if (plan_is_tensor_argument(op, i))
            plan_add_integer_range_factor(
                p, FACTOR_CONTENTS, i, 0, literal || check_is_integer_dtype(c.tensors[c.args[i].first_tensor].dtype) ? 5 : 2);
    factor *fill_mode_factor = plan_add_factor(p, FACTOR_FILL_MODE, 0);
    plan_add_level(fill_mode_factor, FILL_MODE_PLAIN);
    for (int64_t k = FILL_MODE_SCALED; k <= FILL_MODE_EXTREME && reals; k++)
        plan_add_level(fill_mode_factor, k);
    for (int64_t k = 0; k < NUM_WRONG_INDICES && integers; k++)
        plan_add_level(fill_mode_factor, FILL_MODE_WRONG_INDEX + k);
    if (op->contract)
        plan_drop_infeasible_levels(p);
}

/* Writes an uncovered pair in words to the plan's uncovered_example: "as n past 4096 with m past 32768". */
static void plan_set_uncovered_example(planner *p, int factor_a, int level_a, int factor_b, int level_b)
{
    static const char *const ones[ONES_COUNT] = { "without a 1", "with a leading 1", "with a trailing 1", "with a 1 at both ends",
        "with a 1 inside" };
    char words[2][64];
    const int of[] = { factor_a, factor_b }, l[] = { level_a, level_b };
    for (int i = 0; i < 2; i++) {
        const factor *f = &p->factors[of[i]];
        const int64_t level_value = f->levels[l[i]];
        const char *name = f->kind <= FACTOR_DTYPE ? p->op->names[f->index].text
            : f->kind == FACTOR_FILL_MODE          ? "elements"
                                                   : p->op->slots[f->index].name;
        char level[24] = "", *const out = words[i];
        if (f->kind == FACTOR_RANK || f->kind == FACTOR_FREE_RANK)
            snprintf(level, sizeof level, "of %d dims", (int)level_value);
        if (f->kind == FACTOR_LENGTH)
            snprintf(level, sizeof level, "of %d", (int)level_value);
        snprintf(out, sizeof words[i], "%.30s %s", name,
            plan_get_size_class_of_level(p, of[i], l[i]) >= 0 ? plan_get_size_class_of_level(p, of[i], l[i]) < NUM_SIZE_CLASSES
                    ? size_classes[plan_get_size_class_of_level(p, of[i], l[i])].name
                    : "of the source"
                : f->kind == FACTOR_ONES                      ? ones[level_value]
                : f->kind == FACTOR_DTYPE || f->kind == FACTOR_FREE_DTYPE
                ? dv_dtype_name(dv_dtype_from_key((uint32_t)level_value))
                : f->kind == FACTOR_PRESENT                                 ? level_value ? "given" : "None"
                : f->kind == FACTOR_LAYOUT                                  ? level_value ? "in another layout" : "contiguous"
                : f->kind == FACTOR_SAME_SHAPE                              ? "of one shape"
                : f->kind == FACTOR_SCALAR                                  ? "of one value"
                : f->kind == FACTOR_CONTENTS || f->kind == FACTOR_FILL_MODE ? "of one kind"
                                                                            : level);
    }
    snprintf(p->plan->uncovered_example, sizeof p->plan->uncovered_example, "as %s with %s", words[0], words[1]);
}

/* Sets the plan's counts of infeasible, oversized and uncovered pairs, and its uncovered_example. */
static void plan_count_pairs_by_state(planner *p)
{
    check_plan *plan = p->plan;
    bool open = false;
    for (int a = 0; a < p->nfactors; a++)
        for (int b = a + 1; b < p->nfactors; b++)
            for (int la = 0; la < (int)p->factors[a].nlevels; la++)
                for (int lb = 0; lb < (int)p->factors[b].nlevels; lb++) {
                    const uint8_t state = *plan_get_pair_state(p, a, la, b, lb);
                    open |= state == PAIR_OPEN;
                    plan->infeasible_pairs += state == PAIR_INFEASIBLE;
                    plan->oversized_pairs += state == PAIR_TOO_LARGE;
                    plan->uncovered_pairs += state == PAIR_UNCOVERED || state == PAIR_OPEN;
                    if ((state == PAIR_TOO_LARGE || state == PAIR_UNCOVERED) &&
                        (!*plan->uncovered_example || (state == PAIR_UNCOVERED && plan->uncovered_pairs == 1)))
                        plan_set_uncovered_example(p, a, la, b, lb);
                }
    if (open)
        snprintf(plan->uncovered_example, sizeof plan->uncovered_example, "%u cases", plan->ncases);
}

/* ---- Fallback search: tries all sizes in ascending order ---- */

/* Writes to `sizes` the sizes that the fallback search tries: 0 to 128, then powers of two and their neighbours up to 65537, then
 * the contract's numbers. Returns their number. */
static size_t plan_list_search_sizes(const check_op *op, int64_t *sizes)
{
    size_t n = 0;
    while (n <= SMALL_SIZES)
        sizes[n] = (int64_t)n, n++;
    for (int64_t power = 2 * SMALL_SIZES; power <= LARGE_SIZE; power *= 2)
        for (int by = -1; by <= 1; by++)
            sizes[n++] = power + by;
    for (size_t k = 0; k < op->ncontract_sizes; k++)
        sizes[n++] = op->extra_sizes[k];
    return n;
}

/* Makes a case in which `nnames` names have these sizes and all others other_size. If the contract accepts it, perhaps with sizes
 * nearby, appends its sizes to p->solutions, unless they are there. */
static void plan_add_solution_near_sizes(planner *p, const size_t *names, const int64_t *sizes, int nnames, int64_t other_size)
{
    static check_case c;
    int want[MAX_FACTORS];
    plan_want_small_sizes(p, want);
    for (size_t k = 0; k < CHECK_MAX_NAMES; k++)
        p->solutions[p->nsolutions][k] = other_size;
    for (int k = 0; k < nnames; k++)
        p->solutions[p->nsolutions][p->op->names[names[k]].value_index] = sizes[k];
    const size_t before = p->nsolutions;
    p->turn = (uint32_t)before;
    p->nsolutions = before + 1;
    const bool accepted = plan_make_and_classify_case(p, want, NONE, NONE, true, &c) == CHECK_VERDICT_ACCEPTED;
    p->nsolutions = before;
    for (size_t k = 0; k < before && accepted; k++)
        if (!memcmp(p->solutions[k], c.names.dims, sizeof c.names.dims))
            return;
    if (accepted)
        memcpy(p->solutions[p->nsolutions++], c.names.dims, sizeof c.names.dims);
}

/* Calls plan_add_solution_near_sizes() for each assignment of sizes[0 to largest_index] to the names in which some name has
 * sizes[largest_index]. *tries counts the calls; it stops at MAX_SEARCH_TRIES. */
static void plan_add_solutions_near_combinations(
    planner *p, const size_t *names, int nnames, const int64_t *sizes, size_t largest_index, uint32_t *tries)
{
    size_t at[MAX_NAMES_SEARCHED] = { 0 };
    for (int k = 0; k < nnames && *tries < MAX_SEARCH_TRIES && p->nsolutions < MAX_SOLUTIONS;) {
        int64_t chosen[MAX_NAMES_SEARCHED];
        size_t most = 0;
        for (k = 0; k < nnames; k++) {
            chosen[k] = sizes[at[k]];
            most = at[k] > most ? at[k] : most;
        }
        if (most == largest_index) {
            ++*tries;
            plan_add_solution_near_sizes(p, names, chosen, nnames, 2);
        }
        for (k = 0; k < nnames && ++at[k] > largest_index; k++)
            at[k] = 0;
    }
}

/* Fallback search: fills p->solutions with up to MAX_SOLUTIONS size assignments that the contract accepts. Tries equal sizes of
 * all names, then sizes of each name alone, of each two and of each three. */
static void plan_search_accepted_sizes(planner *p)
{
    int64_t sizes[SMALL_SIZES + 1 + 4 * CHECK_MAX_EXTRA_SIZES];
    size_t names[CHECK_MAX_NAMES], n = 0;
    const size_t nsizes = plan_list_search_sizes(p->op, sizes);
    for (size_t k = 0; k < p->op->nnames && n < CHECK_MAX_NAMES; k++)
        if (p->op->names[k].kind == CHECK_NAME_DIM)
            names[n++] = k;
    for (size_t i = 0; i < nsizes && n > 1 && p->nsolutions < MAX_SOLUTIONS; i++)
        plan_add_solution_near_sizes(p, names, NULL, 0, sizes[i]);
    for (int together = 1; together <= MAX_NAMES_SEARCHED; together++) {
        uint32_t tries = 0;
        for (size_t largest = 0; largest < nsizes; largest++)
            for (size_t i = 0; i < n; i++)
                for (size_t j = together > 1 ? i + 1 : n - 1; j < n; j++)
                    for (size_t k = together > 2 ? j + 1 : n - 1; k < n; k++)
                        plan_add_solutions_near_combinations(
                            p, (size_t[]){ names[i], names[j], names[k] }, together, sizes, largest, &tries);
    }
    p->turn = 0;
}

/* ---- Few cases of a plan --------------------------------------------------------------------------------------------------- */

enum { FEATURES = 4096, FEW_OF = 3 /* a small plan is chosen from a plan with this many times as many cases */ };

/* Returns how many features of a case are not in seen_features yet, and adds them. A feature is the hash of one name's size, one
 * tensor's dtype, layout or fill, or one argument's value. only_count: adds none. */
static uint32_t plan_count_and_add_new_features(const check_op *op, const check_case *c, bool *seen_features, bool only_count)
{
    uint32_t keys[4 * CHECK_MAX_ARGS + 6 * CHECK_MAX_TENSORS + 4 * CHECK_MAX_NAMES], n = 0, added = 0;
#define FEATURE(kind, of, value)                                                                                           \
    keys[n++] = (uint32_t)((((uint64_t)(kind) * 64 + (uint64_t)(of)) * UINT64_C(0x9e3779b97f4a7c15) + (uint64_t)(value)) * \
            UINT64_C(0xd1342543de82ef95) >>                                                                                \
        40)
    for (size_t k = 0; k < op->nnames && k < CHECK_MAX_NAMES; k++) {
        const check_name *name = &op->names[k];
        const check_shape *run = &c->names.variadics[name->value_index];
        int64_t most = 0;
        for (int32_t d = 0; name->kind == CHECK_NAME_VARIADIC && d < run->ndim; d++)
            most = run->sizes[d] > most ? run->sizes[d] : most;
        if (c->names.is_bound[k])
            FEATURE(1, k,
                name->kind == CHECK_NAME_DIM            ? c->names.dims[name->value_index]
                    : name->kind == CHECK_NAME_VARIADIC ? most
                                                        : 0);
        if (c->names.is_bound[k] && name->kind == CHECK_NAME_VARIADIC)
            FEATURE(2, k, run->ndim);
    }
    for (size_t i = 0; i < c->nargs && i < CHECK_MAX_ARGS; i++) {
        uint64_t value = c->args[i].type * UINT64_C(31) + c->args[i].count;
        for (size_t b = 0; !plan_is_tensor_argument(op, i) && b < sizeof c->args[i]; b++)
            value = value * 31 + ((const unsigned char *)&c->args[i])[b];
        FEATURE(3, i, value);
    }
    for (size_t i = 0; i < c->ntensors; i++) {
        const check_tensor *t = &c->tensors[i];
        FEATURE(4, i, t->present ? dv_dtype_key(t->dtype) + 1 : 0);
        if (t->present && (t->layout == CHECK_LAYOUT_CONTIGUOUS || check_has_layout_variants(t)))
            FEATURE(5, i, t->layout * CHECK_LAYOUT_VARIANTS + t->layout_variant);
        if (t->present)
            FEATURE(6, i, t->fill);
    }
#undef FEATURE
    for (uint32_t k = 0; k < n; k++) {
        bool *const is = &seen_features[keys[k] % FEATURES];
        added += !*is;
        *is |= !only_count;
    }
    return added;
}

/* True if a case has a masking level: an empty tensor, special values as NaN, a wrong index or an int past 2^31. */
static bool plan_is_masked_case(const check_op *op, const check_case *c)
{
    bool masked = check_has_endless_int(op, c);
    for (size_t i = 0; i < c->ntensors; i++) {
        const check_tensor *t = &c->tensors[i];
        masked |= t->present &&
            (!check_tensor_numel(t) || t->fill == CHECK_FILL_SPECIAL_VALUES ||
                (t->fill == CHECK_FILL_LAST_EXTREME && check_is_integer_dtype(t->dtype)));
    }
    return masked;
}

/* Reduces a plan to wanted_cases cases: the first ones, then greedily the case with the most features that no chosen case has. */
static void plan_reduce_to_wanted(const check_op *op, check_plan *plan, uint32_t wanted_cases)
{
    static bool set[FEATURES];
    static bool left[CHECK_MAX_CASES];
    uint32_t n = 0;
    memset(set, 0, sizeof set);
    memset(left, 0, sizeof left);
    for (uint32_t chosen = 0; chosen < wanted_cases; chosen++) {
        uint32_t best = chosen, most = 0;
        for (uint32_t i = 0; i < plan->ncases && chosen >= NUM_SIMPLE_CASES; i++) {
            const uint32_t score = left[i] ? 0
                                           : 1 +
                    plan_count_and_add_new_features(op, &plan->cases[i], set, true) *
                        (plan_is_masked_case(op, &plan->cases[i]) ? 1 : 3);
            best = score > most ? i : best;
            most = score > most ? score : most;
        }
        left[best] = true;
        plan_count_and_add_new_features(op, &plan->cases[best], set, false);
    }
    for (uint32_t i = 0; i < plan->ncases; i++) {
        if (!left[i]) {
            plan->uncovered_pairs += plan->newly_covered_pairs[i];
            continue;
        }
        plan->newly_covered_pairs[n] = plan->newly_covered_pairs[i];
        memmove(&plan->cases[n++], &plan->cases[i], sizeof *plan->cases);
    }
    plan->ncases = n;
    snprintf(plan->uncovered_example, sizeof plan->uncovered_example, "%u cases", n);
}

/* Adds all cases to the plan, in the order in which they will run. wanted_cases: number of cases; 0: as many as the pairs need.
 */
static void plan_add_all_cases(planner *p, uint32_t wanted_cases)
{
    plan_mark_excluded_pairs(p);
    plan_add_simple_cases(p);
    plan_cover_equal_sizes(p);
    plan_cover_broadcasts(p);
    plan_add_partly_empty_lists(p);
    plan_cover_all_pairs(p);
    plan_cover_vector_lengths(p);
    plan_add_random_cases(p, wanted_cases ? wanted_cases : MIN_CASES);
    if (p->op->nextra_sizes) { /* numbers of the source come last, so that they displace no other case */
        plan_add_source_size_levels(p);
        plan_mark_excluded_pairs(p);
        plan_cover_extra_sizes(p, 0, p->op->ncontract_sizes); /* numbers of the contract come before those of the source */
        plan_cover_all_pairs(p);
        plan_cover_extra_sizes(p, p->op->ncontract_sizes, p->op->nextra_sizes);
    }
}

/* Seeds p->random by the operator's name, adds the factors and allocates the pair states. Returns false if memory is out. */
static bool plan_try_init_factors_and_pairs(planner *p)
{
    for (const char *s = p->op->name; *s; s++)
        p->random.state = p->random.state * 31 + (unsigned char)*s;
    plan_add_all_factors(p);
    return plan_try_alloc_pair_states(p);
}

void check_plan_make_cases(const check_op *op, const check_kernel *kernel, uint32_t wanted_cases, uint64_t seed, check_plan *plan)
{
    static planner p;
    static int64_t solved[MAX_SOLUTIONS][CHECK_MAX_NAMES];
    size_t nsolved = 0;
    plan_set_other_sizes(seed);
    for (int i = 0; i < 2; i++) {
        p = (planner){ .op = op, .kernel = kernel, .plan = plan, .max_cases = CHECK_MAX_CASES - 1, .nsolutions = nsolved };
        if (wanted_cases && FEW_OF * wanted_cases < p.max_cases)
            p.max_cases = FEW_OF * wanted_cases;
        memcpy(p.solutions, solved, sizeof solved);
        if (!plan_try_init_factors_and_pairs(&p))
            return;
        plan_add_all_cases(&p, wanted_cases);
        if (!i && !plan->ncases && op->contract)
            plan_search_accepted_sizes(&p);
        nsolved = p.nsolutions;
        memcpy(solved, p.solutions, sizeof solved);
        if (i || !nsolved)
            plan_count_pairs_by_state(&p);
        free(p.pair_states);
        if (!nsolved)
            break;
    }
    plan_move_endless_int_cases_last(op, plan);
    if (wanted_cases && wanted_cases < plan->ncases)
        plan_reduce_to_wanted(op, plan, wanted_cases);
}
