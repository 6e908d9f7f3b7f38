/* Fallback search of a plan: tries all sizes in ascending order. */
#include <string.h>

#include "plan.h"

enum { SMALL_SIZES = 128, LARGE_SIZE = 65536, MAX_NAMES_SEARCHED = 3, MAX_SEARCH_TRIES = 4000 };

/* Writes to `sizes` the sizes that the fallback search tries: 0 to 128, then powers of two and their neighbours up to 65537, then
 * the contract's numbers. Returns their number. */
static size_t plan_search_list_search_sizes(const check_op *op, int64_t *sizes)
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
static void plan_search_add_solution_near_sizes(
    planner *p, const size_t *names, const int64_t *sizes, int nnames, int64_t other_size)
{
    static check_case c;
    int want[MAX_FACTORS];
    check_plan_level_want_small_sizes(p, want);
    for (size_t k = 0; k < CHECK_MAX_NAMES; k++)
        p->solutions[p->nsolutions][k] = other_size;
    for (int k = 0; k < nnames; k++)
        p->solutions[p->nsolutions][p->op->names[names[k]].value_index] = sizes[k];
    const size_t before = p->nsolutions;
    p->turn = (uint32_t)before;
    p->nsolutions = before + 1;
    const bool accepted = check_plan_case_make_and_classify(p, want, NONE, NONE, true, &c) == CHECK_VERDICT_ACCEPTED;
    p->nsolutions = before;
    for (size_t k = 0; k < before && accepted; k++)
        if (!memcmp(p->solutions[k], c.names.dims, sizeof c.names.dims))
            return;
    if (accepted)
        memcpy(p->solutions[p->nsolutions++], c.names.dims, sizeof c.names.dims);
}

/* Calls plan_search_add_solution_near_sizes() for each assignment of sizes[0 to largest_index] to the names in which some name
 * has sizes[largest_index]. *tries counts the calls; it stops at MAX_SEARCH_TRIES. */
static void plan_search_add_solutions_near_combinations(
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
            plan_search_add_solution_near_sizes(p, names, chosen, nnames, 2);
        }
        for (k = 0; k < nnames && ++at[k] > largest_index; k++)
            at[k] = 0;
    }
}

void check_plan_search_accepted_sizes(planner *p)
{
    int64_t sizes[SMALL_SIZES + 1 + 4 * CHECK_MAX_EXTRA_SIZES];
    size_t names[CHECK_MAX_NAMES], n = 0;
    const size_t nsizes = plan_search_list_search_sizes(p->op, sizes);
    for (size_t k = 0; k < p->op->nnames && n < CHECK_MAX_NAMES; k++)
        if (p->op->names[k].kind == CHECK_NAME_DIM)
            names[n++] = k;
    for (size_t i = 0; i < nsizes && n > 1 && p->nsolutions < MAX_SOLUTIONS; i++)
        plan_search_add_solution_near_sizes(p, names, NULL, 0, sizes[i]);
    for (int together = 1; together <= MAX_NAMES_SEARCHED; together++) {
        uint32_t tries = 0;
        for (size_t largest = 0; largest < nsizes; largest++)
            for (size_t i = 0; i < n; i++)
                for (size_t j = together > 1 ? i + 1 : n - 1; j < n; j++)
                    for (size_t k = together > 2 ? j + 1 : n - 1; k < n; k++)
                        plan_search_add_solutions_near_combinations(
                            p, (size_t[]){ names[i], names[j], names[k] }, together, sizes, largest, &tries);
    }
    p->turn = 0;
}
