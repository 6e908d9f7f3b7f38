/* The planner: what the files of the plan share. plan.c makes the cases in the order in which they run; plan_factor.c says what
 * they can vary, plan_case.c and plan_contents.c make a case from levels, plan_level.c reads the levels of a case, plan_pair.c
 * counts the pairs of levels that cases cover. plan.c explains the words factor, level, pair
 * and mask. */
#ifndef DV_CHECK_PLAN_H
#define DV_CHECK_PLAN_H

#include "check.h"

enum {
    NONE = -1,
    MAX_LEVELS = 24,
    MAX_FACTORS = 96,
    MAX_RANK = 4,
    HIGH_RANK = 17,
    LONG_LIST_LENGTH = CHECK_MAX_LIST,
    NUM_SIMPLE_CASES = 6,
    MAX_SOLUTIONS = 4,
    MAX_PLAN_NAMES = CHECK_MAX_NAMES + 2 * CHECK_MAX_VARIADICS,
    MAX_PLAN_SIZES = MAX_PLAN_NAMES + CHECK_MAX_ARGS /* the names, then the arguments */
};

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
extern struct size_class {
    const char *name;
    int64_t of[4]; /* up to four sizes of the class; for SIZE_OTHER the plan's seed decides them */
    int64_t low, high;
} check_size_classes[NUM_SIZE_CLASSES];
/* Values to try for int arguments, most of them beyond 32 bits. Arguments that the contract reads get only the first
 * NUM_EXTREME_SIZES values, because they may be sizes. */
static const int64_t extreme_ints[] = { INT64_C(1) << 31, INT64_C(1) << 32, -(INT64_C(1) << 32), (INT64_C(1) << 32) + 1, -3, 1000,
    INT64_MIN, INT64_MAX, INT32_MIN };
enum { NUM_EXTREME_INTS = sizeof extreme_ints / sizeof *extreme_ints, NUM_EXTREME_SIZES = NUM_EXTREME_INTS - 3 };

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

/* ---- Sizes (plan_size.c) ---- */

/* Sets the four members of size class SIZE_OTHER, numbers between multiples of the vector length, from the plan's seed. */
void check_plan_size_set_others(uint64_t seed);
/* Returns the size class of a size; NUM_SIZE_CLASSES for a number of the source that is a member of no class; NONE if no class
 * contains the size. */
int64_t check_plan_size_get_class(const planner *p, int64_t size);
/* Returns a size of a size class. rotation: selects one of the class's members, in turn. */
int64_t check_plan_size_get_of_class(const planner *p, int64_t size_class, uint32_t rotation);
/* Returns the rotation >= first_rotation for check_plan_size_get_of_class() whose size the fewest planned cases have given this
 * name or argument. Returns first_rotation for classes below SIZE_BEFORE_VECTOR and above SIZE_OTHER. */
uint32_t check_plan_size_find_rarest_rotation(const planner *p, size_t size_index, int64_t size_class, uint32_t first_rotation);
/* True if a number is one of extreme_ints. */
bool check_plan_size_is_extreme_int(int64_t number);

/* ---- Factors (plan_factor.c) ---- */

/* Adds all factors of the operator with their levels, and removes levels that no call can have. */
void check_plan_factor_add_all(planner *p);
/* Adds to each size factor the level NUM_SIZE_CLASSES, which stands for numbers of the contract and source, unless no call can
 * have it. */
void check_plan_factor_add_source_sizes(planner *p);

/* ---- Cases (plan_case.c) ---- */

/* Returns the first unused case of the plan, which the plan owns. Each new case is built there before it is accepted, so that a
 * report can show a case during which the process fails. */
check_case *check_plan_case_get_next(const planner *p);
/* Sets the numbers, strings and lists of a case to the wanted levels, and which optional tensors are None. Shapes and dtypes of
 * tensors are not set. An argument without a wanted level stays as it is. others_small: sizes without a wanted level are small.
 */
void check_plan_case_set_arguments_except_shapes(planner *p, const int *wanted_levels, bool others_small, check_case *c);
/* Changes names and int arguments so that the kernel's .when condition holds, as far as it consists of comparisons with a number,
 * such as "n % 8 == 0". The kernel would not run otherwise. For "a or b" only one side is satisfied, selected by p->turn. */
void check_plan_case_satisfy_kernel_condition(const planner *p, check_case *c);
/* Sets the sizes and dtypes of the contract's names to the wanted levels. */
void check_plan_case_set_name_values(planner *p, const int *wanted_levels, bool others_small, check_case *c);
/* Sets shape and dtype of each tensor; names of the contract replace those that they decide later. */
void check_plan_case_set_free_tensors(planner *p, const int *wanted_levels, bool others_small, check_case *c);
/* Builds a case with the wanted levels, as far as the contract allows them, and returns check_classify_case() of it. The names of
 * first_factor and second_factor (or NONE) are fixed first. others_small: all sizes without a wanted level are small. */
enum check_verdict check_plan_case_make_and_classify(
    planner *p, const int *wanted_levels, int first_factor, int second_factor, bool others_small, check_case *c);
/* True if an argument tensor is empty, or all result tensors are. */
bool check_plan_case_has_empty_input_or_results(const planner *p, const check_case *c);

/* ---- Contents (plan_contents.c) ---- */

/* Sets layout and contents of each tensor to the wanted levels. allowed_ranges: range of elements that the contract allows for
 * each tensor. cover_range_ends: integers with a bounded range cover all of it. */
void check_plan_contents_set_with_layouts(
    planner *p, const int *wanted_levels, const dv_range *allowed_ranges, bool cover_range_ends, check_case *c);

/* ---- Levels (plan_level.c) ---- */

/* Returns the wanted level of the factor with this kind and index. NONE: the plan has no such factor, or wants no particular
 * level. */
int64_t check_plan_level_get_wanted(const planner *p, const int *wanted_levels, enum factor_kind kind, size_t index);
/* Sets the wanted levels to small sizes and rank 2, and to the first level for other factors. */
void check_plan_level_want_small_sizes(const planner *p, int *wanted_levels);
/* True if the levels of factors of this kind are size classes. */
bool check_plan_level_is_size(enum factor_kind kind);
/* Returns the index of a level in the factor's list of levels; NONE if the factor has no such level. */
int check_plan_level_find_index(const planner *p, int factor_index, int64_t level);
/* Sets found_levels[k] to the index of the level that the case has for factor k; NONE if it has none of the factor's levels. */
void check_plan_level_set_found(const planner *p, const int *wanted_levels, const check_case *c, int *found_levels);
/* Returns the size class that a level of a factor stands for; NONE if the level is no size class. */
int64_t check_plan_level_get_size_class(const planner *p, int factor_index, int level_index);
/* True if the level sets an int argument that decides a result's shape to 0. */
bool check_plan_level_is_zero_shape_argument(const planner *p, int factor_index, int level_index);
/* True if a level keeps a kernel from its usual computation (no elements, NaN, a wrong index, an extreme int), so that it hides
 * the effect of other levels. */
bool check_plan_level_is_masking(const planner *p, int factor_index, int level_index);

/* ---- Pairs (plan_pair.c) ---- */

/* Returns a pointer to the state (enum pair_state) of a pair of levels, in either order of the factors. */
uint8_t *check_plan_pair_get_state(const planner *p, int factor_a, int level_a, int factor_b, int level_b);
/* True if two levels, given in the order of their factors, can occur in one case. Returns false if they contradict each other, as
 * rank 0 and a size, or are left out on purpose. */
bool check_plan_pair_can_combine_levels(const planner *p, int factor_a, int level_a, int factor_b, int level_b);
/* Allocates pair_states for all pairs of levels, all PAIR_OPEN. The caller frees it. Returns false if memory is
 * out. */
bool check_plan_pair_try_alloc_states(planner *p);
/* Marks each pair that check_plan_pair_can_combine_levels() refuses as PAIR_EXCLUDED. */
void check_plan_pair_mark_excluded(planner *p);
/* Marks the pairs that the next case of the plan covers, by its levels found_levels, and returns how many are new. only_count:
 * the pairs are counted, not marked. A case with an empty tensor for which no level is responsible covers none. */
uint32_t check_plan_pair_count_and_mark_new(planner *p, const int *found_levels, bool only_count);
/* Sets the plan's counts of infeasible, oversized and uncovered pairs, and its uncovered_example. */
void check_plan_pair_count_by_state(planner *p);

/* ---- Proofs (plan_proof.c) ---- */

/* True if partial inference proves that no call has both levels. factor_b NONE: that no call has level_a. */
bool check_plan_proof_is_infeasible(const planner *p, int factor_a, int level_a, int factor_b, int level_b);

/* ---- Search (plan_search.c) ---- */

/* Fallback search: fills p->solutions with up to MAX_SOLUTIONS size assignments that the contract accepts. Tries equal sizes of
 * all names, then sizes of each name alone, of each two and of each three. */
void check_plan_search_accepted_sizes(planner *p);

/* ---- Fewer cases (plan_reduce.c) ---- */

enum { FEW_OF = 3 }; /* a small plan is chosen from a plan with this many times as many cases */
/* Reduces a plan to wanted_cases cases: the first ones, then greedily the case with the most features that no chosen case has. */
void check_plan_reduce_to_wanted(const check_op *op, check_plan *plan, uint32_t wanted_cases);

#endif
