/* Sizes of a plan: classes of sizes, and which of their members a case gets. */
#include "plan.h"

struct size_class check_size_classes[NUM_SIZE_CLASSES] = {
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
void check_plan_size_set_others(uint64_t seed)
{
    static const int64_t first[4] = { 11, 13, 37, 94 }, low[4] = { 10, 12, 34, 66 }, high[4] = { 11, 14, 40, 110 };
    check_random r = { seed };
    for (int k = 0; k < 4; k++)
        check_size_classes[SIZE_OTHER].of[k] = seed == 1 ? first[k] : check_random_between(&r, low[k], high[k]);
}

/* True if a size is one of the four listed members of a size class. */
static bool plan_size_is_listed_member_of_class(int size_class, int64_t size)
{
    bool result = false;
    for (size_t k = 0; k < 4; k++)
        result |= check_size_classes[size_class].of[k] == size;
    return result;
}

int64_t check_plan_size_get_class(const planner *p, int64_t size)
{
    for (int c = 0; c < NUM_SIZE_CLASSES; c++)
        if (plan_size_is_listed_member_of_class(c, size))
            return c;
    for (size_t k = 0; k < p->nextra_sizes; k++)
        if (p->op->extra_sizes[k] == size)
            return NUM_SIZE_CLASSES;
    for (int c = 0; c < NUM_SIZE_CLASSES; c++)
        if (size >= check_size_classes[c].low && size <= check_size_classes[c].high)
            return c;
    return NONE;
}

int64_t check_plan_size_get_of_class(const planner *p, int64_t size_class, uint32_t rotation)
{
    for (size_t k = 0; k < p->nextra_sizes && size_class == NUM_SIZE_CLASSES; k++)
        if (check_plan_size_get_class(p, p->op->extra_sizes[(rotation + k) % p->nextra_sizes]) == NUM_SIZE_CLASSES)
            return p->op->extra_sizes[(rotation + k) % p->nextra_sizes];
    return check_size_classes[size_class < NUM_SIZE_CLASSES ? size_class : SIZE_FEW].of[rotation % 4];
}

uint32_t check_plan_size_find_rarest_rotation(const planner *p, size_t size_index, int64_t size_class, uint32_t first_rotation)
{
    const uint32_t members = size_class == NUM_SIZE_CLASSES            ? (uint32_t)p->nextra_sizes
        : size_class >= SIZE_BEFORE_VECTOR && size_class <= SIZE_OTHER ? 4
                                                                       : 0;
    uint32_t best = first_rotation;
    for (uint32_t k = 1; k < members; k++) {
        const uint32_t *const n = p->reached_counts[size_index][size_class];
        if (n[(first_rotation + k) % members] < n[best % members] &&
            (size_class < NUM_SIZE_CLASSES ||
                check_plan_size_get_class(p, p->op->extra_sizes[(first_rotation + k) % members]) == NUM_SIZE_CLASSES))
            best = first_rotation + k;
    }
    return best;
}

bool check_plan_size_is_extreme_int(int64_t number)
{
    for (size_t k = 0; k < NUM_EXTREME_INTS; k++)
        if (number == extreme_ints[k])
            return true;
    return false;
}
