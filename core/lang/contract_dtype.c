/* Dtypes: names, promote() with the rules of torch.result_type, and accumulate().
 *
 * result_type gives its operands a priority: tensors with dims, then 0-d tensors, then numbers. An operand of a lower priority
 * changes the dtype only if it is of a higher kind (bool < integer < real < complex). A dtype variable has the highest priority
 * among the tensors with that dtype. */
#include "lang/contract_internal.h"

#include "base/suggest.h"

#include <stdio.h>
#include <strings.h>

/* ---- Names --------------------------------------------------------------------------------------------------------------- */

/* Finds the key of the dtype with this name. Returns false, and the key 0, if there is none. */
bool dv__try_find_dtype_key(const char *name, uint32_t *key)
{
    const dv_dtype_row *row = dv_dtype_named(name);
    *key = row ? dv_dtype_key(row->dtype) : 0;
    return row;
}

/* Returns the dtype with this name or other spelling, such as float32 or F32. NULL: there is none. */
static const dv_dtype_row *dtype_find_by_any_name(const char *name)
{
    const dv_dtype_row *row;
    for (size_t i = 0; (row = dv_dtype_at(i)); i++)
        if (!strcasecmp(row->name, name) || dv__has_word(row->names, name, strlen(name)))
            break;
    return row;
}

/* True for lower-case letters and a digit (f31), a dtype's name in capitals, and PyTorch's names (float32). Such a name is
 * refused as a variable's. */
bool dv__name_looks_like_dtype(const char *name)
{
    const char *end = name + strspn(name, "abcdefghijklmnopqrstuvwxyz");
    return (end > name && *end >= '0' && *end <= '9') || dtype_find_by_any_name(name);
}

/* Prints "; did you mean 'f32'?" for a name that looks like a dtype but is none, else "". Returns buffer. */
const char *dv__dtype_print_hint(const char *name, char *buffer, size_t size)
{
    dv__suggestions suggestions = { .wanted = name };
    const dv_dtype_row *row = dtype_find_by_any_name(name);
    const size_t n = strlen(name);
    buffer[0] = 0;
    if (!dv__name_looks_like_dtype(name) || dv_dtype_named(name))
        return buffer;
    if (row)
        return snprintf(buffer, size, "; did you mean '%s'?", row->name), buffer;
    for (size_t i = 0; (row = dv_dtype_at(i)); i++)
        if (!strncmp(row->name, name, n) && row->name[n] == '_') /* f8 */
            dv__suggest_add_shown_as(&suggestions, name, row->name);
    for (int by_name = 0; by_name < 2; by_name++)
        for (size_t i = 0; (row = dv_dtype_at(i)); i++)
            dv__suggest_add_shown_as(&suggestions, by_name ? row->name : dv_dtype_long_name(row->dtype), row->name);
    while (suggestions.n && suggestions.best_matches[suggestions.n - 1].distance > suggestions.best_matches[0].distance)
        suggestions.n--;
    return dv__suggest_print(&suggestions, buffer, size);
}

/* ---- Promotion ----------------------------------------------------------------------------------------------------------- */

enum dtype_category {
    CATEGORY_BOOL,
    CATEGORY_INT,
    CATEGORY_FLOAT,
    CATEGORY_COMPLEX,
    CATEGORY_WIDE_UINT /* u16, u32, u64: these promote with reals only */,
    CATEGORY_OTHER
};

/* Returns the category of a dtype for promotion; OTHER for dtypes below 8 bits and vectors. */
static enum dtype_category dtype_key_get_category(uint32_t key)
{
    const dv_dtype d = dv_dtype_from_key(key);
    switch (d.lanes == 1 && d.bits >= 8 ? d.code : UINT8_MAX) {
    case 0: return CATEGORY_INT;
    case 1: return d.bits == 8 ? CATEGORY_INT : CATEGORY_WIDE_UINT;
    case 2:
    case 4: return CATEGORY_FLOAT;
    case 5: return CATEGORY_COMPLEX;
    case 6: return CATEGORY_BOOL;
    default: return CATEGORY_OTHER;
    }
}

static uint32_t dtype_key_get_bits(uint32_t key) { return key >> 8 & 255; }
/* Returns the dtype key with more bits, or a if both have as many. */
static uint32_t dtype_keys_get_wider(uint32_t a, uint32_t b) { return dtype_key_get_bits(a) >= dtype_key_get_bits(b) ? a : b; }

/* Returns the complex dtype whose parts have this real dtype; c64 for bf16 and f32. */
static uint32_t real_dtype_get_complex(uint32_t real)
{
    return real == DV_DTYPE_f64 ? DV_DTYPE_c128 : real == DV_DTYPE_f16 ? DV_DTYPE_c32 : DV_DTYPE_c64;
}

/* Returns the common dtype of two tensors with dims, as torch.promote_types() does; 0: there is none. */
static uint32_t dtype_keys_promote(uint32_t a, uint32_t b)
{
    if (a == b)
        return a;
    enum dtype_category ka = dtype_key_get_category(a), kb = dtype_key_get_category(b);
    if (ka == CATEGORY_OTHER || kb == CATEGORY_OTHER)
        return 0;
    if (ka == CATEGORY_WIDE_UINT || kb == CATEGORY_WIDE_UINT)
        return ka == CATEGORY_FLOAT ? a : kb == CATEGORY_FLOAT ? b : 0;
    if (ka > kb) {
        const uint32_t t = a;
        const enum dtype_category k = ka;
        a = b, b = t, ka = kb, kb = k;
    }
    if (ka == CATEGORY_FLOAT && kb == CATEGORY_COMPLEX)
        return dtype_keys_get_wider(b, real_dtype_get_complex(a));
    if (ka != kb)
        return b;
    if (ka == CATEGORY_FLOAT && dtype_key_get_bits(a) == 16 && dtype_key_get_bits(b) == 16)
        return DV_DTYPE_f32;
    if (a == DV_DTYPE_u8 || b == DV_DTYPE_u8) {
        const uint32_t other = a == DV_DTYPE_u8 ? b : a;
        return other == DV_DTYPE_i8 ? DV_DTYPE_i16 : other;
    }
    return dtype_keys_get_wider(a, b);
}

/* By priority: the common dtype of the operands so far; 0: no operand. */
struct promote_state { uint32_t types[DV__PRIORITY_ABSENT]; };

/* Adds an operand. Returns false if it has no common dtype with earlier operands of its priority. */
static bool promote_state_try_add(struct promote_state *state, enum dv__promote_priority priority, uint32_t key)
{
    state->types[priority] = state->types[priority] ? dtype_keys_promote(state->types[priority], key) : key;
    return state->types[priority] != 0;
}

/* Returns the dtype of operands of a higher and a lower priority, 0: no operands. The lower one counts only if it is of a
 * higher kind. 0 if they have no common dtype. */
static uint32_t promote_combine_priorities(uint32_t higher, uint32_t lower)
{
    if (!higher || !lower)
        return higher ? higher : lower;
    const enum dtype_category kh = dtype_key_get_category(higher), kl = dtype_key_get_category(lower);
    if (kh == CATEGORY_COMPLEX)
        return higher;
    if (kh == CATEGORY_FLOAT)
        return kl == CATEGORY_COMPLEX ? real_dtype_get_complex(higher) : higher;
    if (kh == CATEGORY_BOOL || kl == CATEGORY_FLOAT || kl == CATEGORY_COMPLEX)
        return dtype_keys_promote(higher, lower);
    return higher;
}

uint32_t dv__dtype_promoted_key(const uint32_t *keys, const int64_t *priorities, uint32_t n, uint32_t *nvisited)
{
    struct promote_state r = { { 0, 0, 0 } };
    bool ok = true;
    uint32_t i = 0;
    for (; i < n && ok; i++)
        if (priorities[i] >= 0 && priorities[i] < DV__PRIORITY_ABSENT)
            ok = promote_state_try_add(&r, (enum dv__promote_priority)priorities[i], keys[i]);
    if (nvisited)
        *nvisited = i;
    return ok ? promote_combine_priorities(r.types[DV__PRIORITY_DIMENSIONED],
                    promote_combine_priorities(r.types[DV__PRIORITY_ZERO_DIM], r.types[DV__PRIORITY_NUMBER]))
              : 0;
}

/* Returns the key of the dtype of a sum: i64 for bools and integers, else the same key. */
uint32_t dv__dtype_key_of_sum(uint32_t key)
{
    const enum dtype_category kind = dtype_key_get_category(key);
    return kind == CATEGORY_BOOL || kind == CATEGORY_INT || kind == CATEGORY_WIDE_UINT ? DV_DTYPE_i64 : key;
}
