/* The plan: the cases of a kernel, as a covering array (Kuhn, Kacker, Lei: Practical Combinatorial Testing, NIST SP 800-142).
 *
 * Everything that a case can vary is a *factor* with a few *levels*. Factors are the size class of a name; the rank of variadic
 * dims and where they have 1s; a dtype; the presence of an optional tensor; a string or number; the layout and the contents of a
 * tensor. Each pair of levels of two factors ends in one of four states: a case covers it; core proves that no call has both
 * (check_plan_proof_is_infeasible()); each case with it would exceed --max-elements; or it is counted as uncovered. The seed
 * decides only the sizes between those of vectors.
 *
 * A level masks the others if it keeps a kernel from its usual computation: no elements, NaN, a wrong index, a number past 2^31.
 * A case with such a level covers only pairs with that level. */
#include <stdlib.h>
#include <string.h>

#include "plan.h"

enum { MAX_TRIES_PER_PAIR = 10, MAX_TRIES = 12000, MAX_FAILED_CHOICES = 24, MIN_CASES = 64 };

/* Counts in p->reached_counts that a planned case gives a name or argument this size. */
static void plan_count_reached_size(planner *p, size_t size_index, int64_t value)
{
    for (int c = SIZE_BEFORE_VECTOR; c < NUM_SIZE_CLASSES; c++)
        for (int k = 0; k < 4; k++)
            p->reached_counts[size_index][c][k] += check_size_classes[c].of[k] == value;
    for (size_t k = 0; k < p->nextra_sizes; k++)
        p->reached_counts[size_index][NUM_SIZE_CLASSES][k] += p->op->extra_sizes[k] == value;
}

/* Adds the case at check_plan_case_get_next() to the plan. newly_covered: number of pairs that it is the first to cover. */
static void plan_append_case(planner *p, const int *wanted_levels, uint32_t newly_covered)
{
    const check_case *c = check_plan_case_get_next(p);
    bool masked = check_plan_case_has_empty_input_or_results(p, c);
    for (int k = 0; k < p->nfactors; k++)
        masked |= wanted_levels[k] >= 0 && check_plan_level_is_masking(p, k, wanted_levels[k]);
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
    p->nscaled += check_plan_level_get_wanted(p, wanted_levels, FACTOR_FILL_MODE, 0) == FILL_MODE_SCALED;
}

/* True if a level is a size class whose members exceed 1000. */
static bool plan_is_large_size_level(const planner *p, int factor_index, int level_index)
{
    const int64_t size_class = check_plan_level_get_size_class(p, factor_index, level_index);
    return size_class >= 0 && check_plan_size_get_of_class(p, size_class, 0) > 1000;
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
    const bool masked = (fixed_a >= 0 && check_plan_level_is_masking(p, fixed_a, wanted_levels[fixed_a])) ||
        (fixed_b >= 0 && check_plan_level_is_masking(p, fixed_b, wanted_levels[fixed_b]));
    const bool both = masked && check_plan_level_is_masking(p, fixed_a, wanted_levels[fixed_a]) &&
        check_plan_level_is_masking(p, fixed_b, wanted_levels[fixed_b]);
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
                (!check_plan_level_is_masking(p, k, l) || (both && (!contents || p->factors[k].kind == FACTOR_CONTENTS))) &&
                !(large && check_plan_level_get_size_class(p, k, l) > SIZE_FEW) &&
                !(large && (p->factors[k].kind == FACTOR_RANK || p->factors[k].kind == FACTOR_FREE_RANK) &&
                    p->factors[k].levels[l] > 2);
            for (int g = 0; g < p->nfactors && is_allowed && !at_random; g++)
                if (g != k && wanted_levels[g] >= 0 &&
                    check_plan_pair_can_combine_levels(
                        p, k < g ? k : g, k < g ? l : wanted_levels[g], k < g ? g : k, k < g ? wanted_levels[g] : l))
                    score += *check_plan_pair_get_state(p, k, l, g, wanted_levels[g]) == PAIR_OPEN ? 256 : 0;
            if (is_allowed && score > best_score) {
                best_score = score;
                best = l;
            }
        }
        wanted_levels[k] = best;
    }
    const bool scaled = check_plan_level_get_wanted(p, wanted_levels, FACTOR_FILL_MODE, 0) == FILL_MODE_SCALED && p->turn % 2;
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
                if ((check_plan_level_is_size(f->kind) && f->levels[l] == sizes[i % NUM_SIMPLE_CASES]) ||
                    (f->kind == FACTOR_ONES && f->levels[l] == ONES_NONE) ||
                    ((f->kind == FACTOR_RANK || f->kind == FACTOR_FREE_RANK) && f->levels[l] == 1 + i % 2) ||
                    (f->kind == FACTOR_PRESENT && f->levels[l] == (i % 4 != 2)) ||
                    (f->kind == FACTOR_LENGTH && f->levels[l] == 1 + i % 3) || (f->kind >= FACTOR_LAYOUT && !f->levels[l]) ||
                    (f->kind == FACTOR_SCALAR && !l && i % 2) || (f->kind == FACTOR_SAME_SHAPE && f->levels[l] == 1))
                    want[k] = (int)l;
        }
        if (check_plan_case_make_and_classify(p, want, NONE, NONE, false, check_plan_case_get_next(p)) ==
            CHECK_VERDICT_ACCEPTED) {
            check_plan_level_set_found(p, want, check_plan_case_get_next(p), found);
            if (i >= 2 * NUM_SIMPLE_CASES || !check_plan_case_has_empty_input_or_results(p, check_plan_case_get_next(p)))
                plan_append_case(p, want, check_plan_pair_count_and_mark_new(p, found, false));
        }
        p->turn++;
    }
}

/* Makes up to MAX_TRIES_PER_PAIR cases until one covers this pair of levels. If none does, marks the pair as infeasible, too
 * large or uncovered. */
static void plan_cover_pair(planner *p, int factor_a, int level_a, int factor_b, int level_b)
{
    int want[MAX_FACTORS], found[MAX_FACTORS];
    uint8_t *of = check_plan_pair_get_state(p, factor_a, level_a, factor_b, level_b);
    bool was_too_large = false;
    for (int i = 0; i < MAX_TRIES_PER_PAIR && *of == PAIR_OPEN && p->ntries < MAX_TRIES && p->plan->ncases < p->max_cases;
        i++, p->ntries++) {
        want[factor_a] = level_a;
        want[factor_b] = level_b;
        const bool random = i > (p->failed_choices < MAX_FAILED_CHOICES ? MAX_TRIES_PER_PAIR / 2 : 0);
        plan_choose_other_levels(p, factor_a, factor_b, want, random);
        const bool others_small = i % 2 || plan_is_large_size_level(p, factor_a, level_a) ||
            plan_is_large_size_level(p, factor_b, level_b);
        const enum check_verdict verdict = check_plan_case_make_and_classify(
            p, want, factor_a, factor_b, others_small, check_plan_case_get_next(p));
        was_too_large |= verdict == CHECK_VERDICT_TOO_LARGE;
        p->turn++;
        p->failed_choices = verdict == CHECK_VERDICT_ACCEPTED && !random ? 0 : p->failed_choices + !random;
        if (verdict == CHECK_VERDICT_ACCEPTED) {
            check_plan_level_set_found(p, want, check_plan_case_get_next(p), found);
            const uint32_t met = check_plan_pair_count_and_mark_new(p, found, true);
            if (found[factor_a] == level_a && found[factor_b] == level_b && (met || i + 2 >= MAX_TRIES_PER_PAIR)) {
                check_plan_pair_count_and_mark_new(p, found, false);
                plan_append_case(p, want, met + (*of != PAIR_COVERED));
                *of = PAIR_COVERED; /* no case was found in which no third level masks the pair, so this one is accepted */
            } else if (met > 8) {
                plan_append_case(p, want, check_plan_pair_count_and_mark_new(p, found, false));
            }
        }
        if (i == 1 && *of == PAIR_OPEN && check_plan_proof_is_infeasible(p, factor_a, level_a, factor_b, level_b))
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
        if (*check_plan_pair_get_state(p, open[i].a, open[i].la, open[i].b, open[i].lb) == PAIR_OPEN)
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
    const bool accepted = check_plan_case_make_and_classify(p, wanted_levels, fixed_a, fixed_b, others_small,
                              check_plan_case_get_next(p)) == CHECK_VERDICT_ACCEPTED &&
        (p->mixed_list_position || !check_plan_case_has_empty_input_or_results(p, check_plan_case_get_next(p)));
    p->turn++;
    if (accepted) {
        check_plan_level_set_found(p, wanted_levels, check_plan_case_get_next(p), found);
        plan_append_case(p, wanted_levels, check_plan_pair_count_and_mark_new(p, found, false));
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
    const int at = check_plan_level_find_index(p, factor_index, level);
    return at < 0 ? 0 : at;
}

/* True if some planned case gives two names the same size, and the size exceeds 8. */
static bool plan_has_case_with_equal_sizes(const planner *p, size_t name_a, size_t name_b)
{
    bool are = false;
    for (uint32_t i = 0; i < p->plan->ncases && !are; i++) {
        const check_names *n = &p->plan->cases[i].names;
        const int64_t size = n->dims[p->op->names[name_a].value_index];
        are = n->is_bound[name_a] && n->is_bound[name_b] && size > check_size_classes[SIZE_VECTOR].of[0] &&
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
                const int64_t size_class = check_plan_level_get_size_class(p, f, (int)l);
                const size_t size = plan_get_size_index(&p->factors[f]);
                if (p->factors[f].kind == FACTOR_FREE_SIZE || size_class < SIZE_BEFORE_VECTOR || size_class > SIZE_AFTER_VECTOR ||
                    p->reached_counts[size][size_class][check_plan_size_find_rarest_rotation(p, size, size_class, 0) % 4])
                    break;
                want[f] = (int)l;
                plan_try_add_unmasked_case(p, f, NONE, want, false);
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
            if (check_plan_level_get_size_class(p, f, last) != NUM_SIZE_CLASSES)
                break;
            if (p->factors[f].kind == FACTOR_FREE_SIZE ||
                p->reached_counts[plan_get_size_index(&p->factors[f])][NUM_SIZE_CLASSES][k])
                continue;
            want[f] = last;
            if (fill_mode_factor >= 0)
                want[fill_mode_factor] = plan_find_level_index_or_first(p, fill_mode_factor, FILL_MODE_PLAIN);
            while ((p->turn + p->factors[f].index) % p->nextra_sizes !=
                k) /* at this turn check_plan_size_get_of_class() returns extra size k */
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
        if (check_plan_case_make_and_classify(p, want, NONE, NONE, i % 2, check_plan_case_get_next(p)) == CHECK_VERDICT_ACCEPTED)
            plan_append_case(p, want, 0);
        p->turn++;
    }
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

/* Adds all cases to the plan, in the order in which they will run. wanted_cases: number of cases; 0: as many as the pairs need.
 */
static void plan_add_all_cases(planner *p, uint32_t wanted_cases)
{
    check_plan_pair_mark_excluded(p);
    plan_add_simple_cases(p);
    plan_cover_equal_sizes(p);
    plan_cover_broadcasts(p);
    plan_add_partly_empty_lists(p);
    plan_cover_all_pairs(p);
    plan_cover_vector_lengths(p);
    plan_add_random_cases(p, wanted_cases ? wanted_cases : MIN_CASES);
    if (p->op->nextra_sizes) { /* numbers of the source come last, so that they displace no other case */
        check_plan_factor_add_source_sizes(p);
        check_plan_pair_mark_excluded(p);
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
    check_plan_factor_add_all(p);
    return check_plan_pair_try_alloc_states(p);
}

void check_plan_make_cases(const check_op *op, const check_kernel *kernel, uint32_t wanted_cases, uint64_t seed, check_plan *plan)
{
    static planner p;
    static int64_t solved[MAX_SOLUTIONS][CHECK_MAX_NAMES];
    size_t nsolved = 0;
    check_plan_size_set_others(seed);
    for (int i = 0; i < 2; i++) {
        p = (planner){ .op = op, .kernel = kernel, .plan = plan, .max_cases = CHECK_MAX_CASES - 1, .nsolutions = nsolved };
        if (wanted_cases && FEW_OF * wanted_cases < p.max_cases)
            p.max_cases = FEW_OF * wanted_cases;
        memcpy(p.solutions, solved, sizeof solved);
        if (!plan_try_init_factors_and_pairs(&p))
            return;
        plan_add_all_cases(&p, wanted_cases);
        if (!i && !plan->ncases && op->contract)
            check_plan_search_accepted_sizes(&p);
        nsolved = p.nsolutions;
        memcpy(solved, p.solutions, sizeof solved);
        if (i || !nsolved)
            check_plan_pair_count_by_state(&p);
        free(p.pair_states);
        if (!nsolved)
            break;
    }
    plan_move_endless_int_cases_last(op, plan);
    if (wanted_cases && wanted_cases < plan->ncases)
        check_plan_reduce_to_wanted(op, plan, wanted_cases);
}
