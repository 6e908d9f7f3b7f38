/* Pairs of levels, and their states: which a case covers, and which are left. */
#include <stdlib.h>

#include "plan.h"

uint8_t *check_plan_pair_get_state(const planner *p, int factor_a, int level_a, int factor_b, int level_b)
{
    if (factor_a > factor_b)
        return check_plan_pair_get_state(p, factor_b, level_b, factor_a, level_a);
    return &p->pair_states[p->pair_offsets[factor_a][factor_b] + (size_t)level_a * p->factors[factor_b].max_levels +
        (size_t)level_b];
}

/* True if a level is tried together with wrong indices. Layouts and positions of 1s are not, and of the size classes only 1, a
 * few and another are. */
static bool plan_pair_is_tried_with_wrong_index(const planner *p, int factor_index, int level_index)
{
    const int64_t size_class = check_plan_level_get_size_class(p, factor_index, level_index);
    return p->factors[factor_index].kind != FACTOR_LAYOUT && p->factors[factor_index].kind != FACTOR_ONES &&
        (size_class < 0 || size_class == SIZE_ONE || size_class == SIZE_FEW || size_class == SIZE_OTHER);
}

bool check_plan_pair_can_combine_levels(const planner *p, int factor_a, int level_a, int factor_b, int level_b)
{
    const factor *f = &p->factors[factor_a], *g = &p->factors[factor_b];
    const int64_t level = f->levels[level_a], other = g->levels[level_b];
    const bool of_name = f->kind <= FACTOR_ONES && g->kind <= FACTOR_ONES,
               of_tensor = f->kind >= FACTOR_FREE_RANK && g->kind >= FACTOR_FREE_RANK;
    if ((g->kind == FACTOR_FILL_MODE && other >= FILL_MODE_WRONG_INDEX &&
            !plan_pair_is_tried_with_wrong_index(p, factor_a, level_a)) ||
        (f->kind == FACTOR_FILL_MODE && level >= FILL_MODE_WRONG_INDEX &&
            !plan_pair_is_tried_with_wrong_index(p, factor_b, level_b)))
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
static bool plan_pair_last_level_is_size_class(const planner *p, int factor_index)
{
    return check_plan_level_get_size_class(p, factor_index, (int)p->factors[factor_index].nlevels - 1) >= 0 &&
        p->factors[factor_index].nlevels < MAX_LEVELS;
}

bool check_plan_pair_try_alloc_states(planner *p)
{
    for (int k = 0; k < p->nfactors;
        k++) /* factors of sizes get one more level after all pairs are tried: numbers of the source */
        p->factors[k].max_levels = p->factors[k].nlevels + (plan_pair_last_level_is_size_class(p, k) && p->op->nextra_sizes);
    for (int a = 0; a < p->nfactors; a++)
        for (int b = a + 1; b < p->nfactors; b++) {
            p->pair_offsets[a][b] = p->npairs;
            p->npairs += (size_t)p->factors[a].max_levels * p->factors[b].max_levels;
        }
    p->pair_states = calloc(p->npairs + 1, 1);
    return p->pair_states;
}

void check_plan_pair_mark_excluded(planner *p)
{
    for (int a = 0; a < p->nfactors; a++)
        for (int b = a + 1; b < p->nfactors; b++)
            for (int la = 0; la < (int)p->factors[a].nlevels; la++)
                for (int lb = 0; lb < (int)p->factors[b].nlevels; lb++)
                    if (!check_plan_pair_can_combine_levels(p, a, la, b, lb))
                        *check_plan_pair_get_state(p, a, la, b, lb) = PAIR_EXCLUDED;
}

uint32_t check_plan_pair_count_and_mark_new(planner *p, const int *found_levels, bool only_count)
{
    bool masked[MAX_FACTORS], masks_size = false;
    int nmasked = 0, ncontents = 0;
    uint32_t n = 0;
    for (int k = 0; k < p->nfactors; k++) {
        nmasked += masked[k] = check_plan_level_is_masking(p, k, found_levels[k]);
        ncontents += masked[k] && p->factors[k].kind == FACTOR_CONTENTS;
        masks_size |= masked[k] && check_plan_level_is_size(p->factors[k].kind);
    }
    const bool empty = !masks_size && check_plan_case_has_empty_input_or_results(p, check_plan_case_get_next(p));
    for (int k = 0; k < p->nfactors && empty; k++)
        if (!masked[k] && check_plan_level_is_zero_shape_argument(p, k, found_levels[k])) {
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
            uint8_t *of = check_plan_pair_get_state(p, a, found_levels[a], b, found_levels[b]);
            if (*of != PAIR_COVERED && *of != PAIR_EXCLUDED) {
                n++;
                *of = only_count ? *of : PAIR_COVERED;
            }
        }
    return n;
}

/* Writes an uncovered pair in words to the plan's uncovered_example: "as n past 4096 with m past 32768". */
static void plan_pair_set_uncovered_example(planner *p, int factor_a, int level_a, int factor_b, int level_b)
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
            check_plan_level_get_size_class(p, of[i], l[i]) >= 0
                ? check_plan_level_get_size_class(p, of[i], l[i]) < NUM_SIZE_CLASSES
                    ? check_size_classes[check_plan_level_get_size_class(p, of[i], l[i])].name
                    : "of the source"
                : f->kind == FACTOR_ONES ? ones[level_value]
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

void check_plan_pair_count_by_state(planner *p)
{
    check_plan *plan = p->plan;
    bool open = false;
    for (int a = 0; a < p->nfactors; a++)
        for (int b = a + 1; b < p->nfactors; b++)
            for (int la = 0; la < (int)p->factors[a].nlevels; la++)
                for (int lb = 0; lb < (int)p->factors[b].nlevels; lb++) {
                    const uint8_t state = *check_plan_pair_get_state(p, a, la, b, lb);
                    open |= state == PAIR_OPEN;
                    plan->infeasible_pairs += state == PAIR_INFEASIBLE;
                    plan->oversized_pairs += state == PAIR_TOO_LARGE;
                    plan->uncovered_pairs += state == PAIR_UNCOVERED || state == PAIR_OPEN;
                    if ((state == PAIR_TOO_LARGE || state == PAIR_UNCOVERED) &&
                        (!*plan->uncovered_example || (state == PAIR_UNCOVERED && plan->uncovered_pairs == 1)))
                        plan_pair_set_uncovered_example(p, a, la, b, lb);
                }
    if (open)
        snprintf(plan->uncovered_example, sizeof plan->uncovered_example, "%u cases", plan->ncases);
}
