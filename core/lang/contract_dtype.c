/* Dtypes: promote() with the rules of torch.result_type, accumulate(), and dtype expressions in general.
 *
 * result_type sorts its operands: tensors with dims, then 0-d tensors, then numbers. A lower sort changes the dtype of a higher
 * one only when it is of a higher kind (bool < integer < real < complex). A dtype variable is of the highest sort of the tensors
 * that carry it. */
#include "lang/contract_internal.h"

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

static uint32_t type_of_number(const dv_value *value)
{
    switch (value->type) {
    case DV_VALUE_INT: return DV_DTYPE_i64;
    case DV_VALUE_BOOL: return DV_DTYPE_bool;
    case DV_VALUE_COMPLEX: return DV_DTYPE_c64;
    default: return DV_DTYPE_f32;
    }
}

/* The highest sort of the tensors that carry this variable. */
static enum sort sort_of_variable(const dv__env *v, int ref)
{
    enum sort best = SORT_ZERO;
    for (uint32_t i = 0; i < v->c->npatterns; i++) {
        const dv__pattern *t = &v->c->patterns[i];
        if (t->dtype.kind != DV__DTYPE_VAR || t->dtype.ref != ref || !dv__when_holds(t->when, v->s))
            continue;
        const dv_tensor *tensor = dv__tensor_of(v, t->slot);
        if (tensor && tensor->ndim)
            best = SORT_DIMS;
    }
    return best;
}

static int eval_promote(const dv__env *v, const dv__expr *e, dv_dtype *out)
{
    struct result r = { { 0, 0, 0 } };
    uint32_t seen[8], nseen = 0; /* for the message */
    bool ok = true;
    for (uint32_t i = 0; i < e->n && ok; i++) {
        const dv__expr *operand = e->args[i];
        dv_dtype type = { 0, 0, 0 };
        enum sort sort = SORT_DIMS;
        if (operand->role == DV__ROLE_ARG && operand->type == DV__CTYPE_TENSOR) {
            const dv_tensor *t = dv__tensor_of(v, operand->ref);
            if (!t)
                continue;
            type = t->dtype;
            sort = t->ndim ? SORT_DIMS : SORT_ZERO;
        } else if (operand->role == DV__ROLE_ARG && operand->type != DV__CTYPE_DTYPE) {
            if (!dv__is_present(&v->args[operand->ref]))
                continue;
            type = dv_dtype_from_key(type_of_number(&v->args[operand->ref]));
            sort = SORT_NUMBER;
        } else {
            const int status = dv__eval_dtype(v, operand, &type);
            if (status)
                return status;
            if (operand->role == DV__ROLE_DTYPE_VAR)
                sort = sort_of_variable(v, operand->ref);
        }
        seen[nseen] = dv_dtype_key(type);
        nseen += nseen < 7;
        ok = add(&r, sort, dv_dtype_key(type));
    }
    const uint32_t key = ok ? combine(r.types[SORT_DIMS], combine(r.types[SORT_ZERO], r.types[SORT_NUMBER])) : 0;
    if (!key) {
        dv__words types = { 0 };
        for (uint32_t i = 0; i < nseen; i++)
            dv__say(&types, "%s%s", i ? ", " : "", dv_dtype_name(dv_dtype_from_key(seen[i])));
        return dv__wrong(v, DV_EDTYPE, "these dtypes have no common one: %s", nseen ? types.data : "none");
    }
    *out = dv_dtype_from_key(key);
    return DV_OK;
}

int dv__eval_dtype(const dv__env *v, const dv__expr *e, dv_dtype *out)
{
    if (e->role == DV__ROLE_DTYPE_VAR) {
        *out = v->s->dtypes[e->ref];
        if (!(v->s->bound_dtypes >> e->ref & 1))
            return dv__wrong(v, DV_EDTYPE, "no argument that is present has dtype %s", e->name);
        return DV_OK;
    }
    if (e->role == DV__ROLE_DTYPE) {
        *out = dv_dtype_from_key((uint32_t)e->i);
        return DV_OK;
    }
    if (e->role == DV__ROLE_ARG) {
        const dv_value *value = &v->args[e->ref];
        *out = value->as.dtype;
        return value->type == DV_VALUE_DTYPE ? DV_OK
                                             : dv_fail(DV_EINVAL, "%s: argument '%s': expected a dtype, found %s", v->c->name,
                                                   e->name, dv__is_present(value) ? "another type" : "None");
    }
    if (e->ref == DV__FN_PROMOTE)
        return eval_promote(v, e, out);
    if (e->ref == DV__FN_ACCUMULATE) {
        const int status = dv__eval_dtype(v, e->args[0], out);
        const enum kind kind = kind_of(dv_dtype_key(*out));
        if (!status && (kind == KIND_BOOL || kind == KIND_INT || kind == KIND_UINT))
            *out = dv_dtype_from_key(DV_DTYPE_i64);
        return status;
    }
    if (e->ref == DV__FN_IF) {
        bool yes;
        const int status = dv__eval_bool(v, e->args[0], &yes);
        return status ? status : dv__eval_dtype(v, e->args[yes ? 1 : 2], out);
    }
    const dv_tensor *t = dv__tensor_of(v, e->args[0]->ref); /* dtype(x) */
    if (!t)
        return dv_fail(
            DV_EINVAL, "%s: argument '%s': expected a tensor for %s, found None", v->c->name, e->args[0]->name, v->where);
    *out = t->dtype;
    return DV_OK;
}
