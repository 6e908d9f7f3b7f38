/* Dtypes: names, promote() with the rules of torch.result_type, and accumulate().
 *
 * result_type sorts its operands: tensors with dims, then 0-d tensors, then numbers. An operand of a lower sort changes the dtype
 * only if it is of a higher kind (bool < integer < real < complex). A dtype variable has the highest sort among the tensors with
 * that dtype. */
#include "lang/contract_internal.h"

#include "base/near.h"

#include <stdio.h>
#include <strings.h>

/* ---- Names --------------------------------------------------------------------------------------------------------------- */

bool dv__dtype_lookup(const char *name, uint32_t *key)
{
    const dv_dtype_row *row = dv_dtype_named(name);
    *key = row ? dv_dtype_key(row->dtype) : 0;
    return row;
}

/* The dtype with this other spelling, such as float32 or F32; or NULL. */
static const dv_dtype_row *spelt(const char *name)
{
    const dv_dtype_row *row;
    for (size_t i = 0; (row = dv_dtype_at(i)); i++)
        if (!strcasecmp(row->name, name) || dv__has_word(row->names, name, strlen(name)))
            break;
    return row;
}

bool dv__looks_like_dtype(const char *name)
{
    const char *behind = name + strspn(name, "abcdefghijklmnopqrstuvwxyz");
    return (behind > name && *behind >= '0' && *behind <= '9') || spelt(name);
}

const char *dv__dtype_hint(const char *name, char *buffer, size_t size)
{
    dv__near near = { .wanted = name };
    const dv_dtype_row *row = spelt(name);
    const size_t n = strlen(name);
    buffer[0] = 0;
    if (!dv__looks_like_dtype(name) || dv_dtype_named(name))
        return buffer;
    if (row)
        return snprintf(buffer, size, "; did you mean '%s'?", row->name), buffer;
    for (size_t i = 0; (row = dv_dtype_at(i)); i++)
        if (!strncmp(row->name, name, n) && row->name[n] == '_') /* f8 */
            dv__near_as(&near, name, row->name);
    for (int by_name = 0; by_name < 2; by_name++)
        for (size_t i = 0; (row = dv_dtype_at(i)); i++)
            dv__near_as(&near, by_name ? row->name : dv_dtype_long_name(row->dtype), row->name);
    while (near.n && near.best[near.n - 1].distance > near.best[0].distance)
        near.n--;
    return dv__near_print(&near, buffer, size);
}

/* ---- Promotion ----------------------------------------------------------------------------------------------------------- */

enum kind { KIND_BOOL, KIND_INT, KIND_FLOAT, KIND_COMPLEX, KIND_UINT /* u16 and wider: promotes with reals only */, KIND_OTHER };

static enum kind kind_of(uint32_t t)
{
    const dv_dtype d = dv_dtype_from_key(t);
    switch (d.lanes == 1 && d.bits >= 8 ? d.code : UINT8_MAX) {
    case 0: return KIND_INT;
    case 1: return d.bits == 8 ? KIND_INT : KIND_UINT;
    case 2:
    case 4: return KIND_FLOAT;
    case 5: return KIND_COMPLEX;
    case 6: return KIND_BOOL;
    default: return KIND_OTHER;
    }
}

static uint32_t bits_of(uint32_t t) { return t >> 8 & 255; }
static uint32_t wider(uint32_t a, uint32_t b) { return bits_of(a) >= bits_of(b) ? a : b; }

static uint32_t complex_of(uint32_t real)
{
    return real == DV_DTYPE_f64 ? DV_DTYPE_c128 : real == DV_DTYPE_f16 ? DV_DTYPE_c32 : DV_DTYPE_c64;
}

/* torch.promote_types; 0 when it refuses. */
static uint32_t promote_types(uint32_t a, uint32_t b)
{
    if (a == b)
        return a;
    enum kind ka = kind_of(a), kb = kind_of(b);
    if (ka == KIND_OTHER || kb == KIND_OTHER)
        return 0;
    if (ka == KIND_UINT || kb == KIND_UINT)
        return ka == KIND_FLOAT ? a : kb == KIND_FLOAT ? b : 0;
    if (ka > kb) {
        const uint32_t t = a;
        const enum kind k = ka;
        a = b, b = t, ka = kb, kb = k;
    }
    if (ka == KIND_FLOAT && kb == KIND_COMPLEX)
        return wider(b, complex_of(a));
    if (ka != kb)
        return b;
    if (ka == KIND_FLOAT && bits_of(a) == 16 && bits_of(b) == 16)
        return DV_DTYPE_f32;
    if (a == DV_DTYPE_u8 || b == DV_DTYPE_u8) {
        const uint32_t other = a == DV_DTYPE_u8 ? b : a;
        return other == DV_DTYPE_i8 ? DV_DTYPE_i16 : other;
    }
    return wider(a, b);
}

enum sort { SORT_DIMS, SORT_ZERO, SORT_NUMBER, NSORTS };
struct result { uint32_t types[NSORTS]; /* 0: none */ };

static bool add(struct result *r, enum sort sort, uint32_t type)
{
    r->types[sort] = r->types[sort] ? promote_types(r->types[sort], type) : type;
    return r->types[sort] != 0;
}

static uint32_t combine(uint32_t higher, uint32_t lower)
{
    if (!higher || !lower)
        return higher ? higher : lower;
    const enum kind kh = kind_of(higher), kl = kind_of(lower);
    if (kh == KIND_COMPLEX)
        return higher;
    if (kh == KIND_FLOAT)
        return kl == KIND_COMPLEX ? complex_of(higher) : higher;
    if (kh == KIND_BOOL || kl == KIND_FLOAT || kl == KIND_COMPLEX)
        return promote_types(higher, lower);
    return higher;
}

uint32_t dv__promote(const uint32_t *keys, const int64_t *sorts, uint32_t n, uint32_t *tried)
{
    struct result r = { { 0, 0, 0 } };
    bool ok = true;
    uint32_t i = 0;
    for (; i < n && ok; i++)
        if (sorts[i] >= 0 && sorts[i] < NSORTS)
            ok = add(&r, (enum sort)sorts[i], keys[i]);
    if (tried)
        *tried = i;
    return ok ? combine(r.types[SORT_DIMS], combine(r.types[SORT_ZERO], r.types[SORT_NUMBER])) : 0;
}

uint32_t dv__accumulate(uint32_t key)
{
    const enum kind kind = kind_of(key);
    return kind == KIND_BOOL || kind == KIND_INT || kind == KIND_UINT ? DV_DTYPE_i64 : key;
}
