/* Functions that add steps, conditions and messages to a contract's program, for contract_build_value.c and
 * contract_build_match.c. */
#include "lang/contract_build.h"

#include <stdio.h>

const char *dv__op_name(enum dv__op op)
{
#define NAME(id, name) name,
    static const char *const names[] = { DV__OPS(NAME) };
    return names[op];
}

const char *dv__rtype_name(enum dv__rtype type)
{
    static const char *const names[] = { DV__RTYPES(NAME) };
#undef NAME
    return names[type];
}

static int failed(dv__builder *b, int status)
{
    if (!b->status)
        b->status = status;
    return status;
}

static void *alloc(dv__builder *b, size_t size)
{
    void *p = dv__arena_alloc(b->arena, size);
    if (!p)
        failed(b, DV_ENOMEM);
    return p;
}

static bool grow(dv__builder *b, void *array, uint32_t n, size_t size)
{
    return !b->status && !failed(b, dv__arena_grow(b->arena, array, n, size));
}

/* ---- Registers and literals -------------------------------------------------------------------------------------------- */

dv__operand dv__new_register(dv__builder *b, enum dv__rtype type)
{
    dv__program *p = b->p;
    if (p->nregisters == DV__MAX_REGISTERS)
        failed(b, dv__fail_at(DV_ELIMIT, b->c->text, b->c->text, "the contract needs more than %d registers", DV__MAX_REGISTERS));
    if (!grow(b, &p->types, p->nregisters, sizeof *p->types) || !grow(b, &b->made_by, p->nregisters, sizeof *b->made_by))
        return 0;
    p->types[p->nregisters] = (uint8_t)type;
    b->made_by[p->nregisters] = -1;
    return (dv__operand)p->nregisters++;
}

enum dv__rtype dv__type_of(const dv__builder *b, dv__operand x)
{
    if (b->status)
        return DV__RTYPE_INT;
    return (enum dv__rtype)(x < 0 ? b->p->constant_types[-1 - x] : b->p->types[x]);
}

static bool same_literal(enum dv__rtype type, const dv__reg *a, const dv__reg *b)
{
    switch (type) {
    case DV__RTYPE_STRING:
    case DV__RTYPE_DIMS: return a->n == b->n && (!a->n || a->sizes == b->sizes);
    case DV__RTYPE_NUMBER: return a->real == b->real && a->i == b->i;
    case DV__RTYPE_DTYPE: return dv_dtype_key(a->dtype) == dv_dtype_key(b->dtype);
    default: return a->i == b->i;
    }
}

dv__operand dv__literal(dv__builder *b, enum dv__rtype type, dv__reg value)
{
    dv__program *p = b->p;
    for (uint32_t i = 0; i < p->nconstants; i++)
        if (p->constant_types[i] == type && same_literal(type, &p->constants[i], &value))
            return (dv__operand)(-1 - (int32_t)i);
    if (!grow(b, &p->constants, p->nconstants, sizeof *p->constants) ||
        !grow(b, &p->constant_types, p->nconstants, sizeof *p->constant_types))
        return DV__ALWAYS;
    p->constants[p->nconstants] = value;
    p->constant_types[p->nconstants] = (uint8_t)type;
    return (dv__operand)(-1 - (int32_t)p->nconstants++);
}

dv__operand dv__int(dv__builder *b, int64_t i) { return dv__literal(b, DV__RTYPE_INT, (dv__reg){ .i = i }); }

dv__operand dv__dtype_literal(dv__builder *b, uint32_t key)
{
    return dv__literal(b, DV__RTYPE_DTYPE, (dv__reg){ .dtype = dv_dtype_from_key(key) });
}

/* ---- Steps ------------------------------------------------------------------------------------------------------------- */

dv__step *dv__append(dv__builder *b, enum dv__op op, dv__operand guard)
{
    dv__program *p = b->p;
    if (p->nsteps == DV__MAX_STEPS)
        failed(b, dv__fail_at(DV_ELIMIT, b->c->text, b->c->text, "the contract needs more than %d steps", DV__MAX_STEPS));
    if (!grow(b, &p->steps, p->nsteps, sizeof *p->steps))
        return NULL;
    dv__step *s = &p->steps[p->nsteps++];
    memset(s, 0, sizeof *s);
    s->op = (uint8_t)op;
    s->guard = guard;
    s->to = s->index = s->first = DV__ALWAYS;
    return s;
}

static const dv__operand *operands(const dv__step *s) { return s->many ? s->many : s->in; }

/* Not only messages read it from now on. */
static void use(dv__builder *b, dv__operand x)
{
    const int32_t i = x < 0 || b->status ? -1 : b->made_by[x];
    dv__step *s = i < 0 ? NULL : &b->p->steps[i];
    if (!s || !(s->flags & DV__STEP_SAY))
        return;
    s->flags &= (uint8_t)~DV__STEP_SAY;
    use(b, s->guard);
    for (uint32_t k = 0; k < s->nin; k++)
        use(b, operands(s)[k]);
}

static const dv__step *maker(const dv__builder *b, dv__operand x)
{
    return x < 0 || b->status || b->made_by[x] < 0 ? NULL : &b->p->steps[b->made_by[x]];
}

static dv__step *find_equal(dv__builder *b, enum dv__op op, enum dv__rtype type, dv__operand guard, uint32_t n,
    const dv__operand *in, int32_t slot, const dv__fault *fault)
{
    for (uint32_t i = b->p->nsteps; i-- > b->fresh;) {
        dv__step *s = &b->p->steps[i];
        if (s->op != op || s->type != type || s->nin != n || s->slot != slot || s->flags & DV__STEP_DEAD || s->to < 0 ||
            (n && memcmp(operands(s), in, n * sizeof *in) != 0) || b->made_by[s->to] != (int32_t)i)
            continue;
        if (!b->quiet && fault && s->fault != fault)
            continue; /* what can fail does so in its place */
        if (s->guard == guard || dv__implies(b, guard, s->guard, 6))
            return s;
    }
    return NULL;
}

dv__operand dv__emit(dv__builder *b, enum dv__op op, enum dv__rtype type, dv__operand guard, uint32_t n, const dv__operand *in,
    int32_t slot, const dv__fault *fault)
{
    if (b->status || guard == DV__NEVER)
        return DV__NEVER;
    dv__step *s = find_equal(b, op, type, guard, n, in, slot, fault);
    if (s) {
        if (!b->quiet)
            use(b, s->to);
        return s->to;
    }
    const bool compares = op >= DV__OP_EQ && op <= DV__OP_GE;
    const dv__operand to = dv__new_register(b, compares ? DV__RTYPE_BOOL : type);
    dv__operand *many = n > 4 ? alloc(b, n * sizeof *in) : NULL;
    s = dv__append(b, op, guard);
    if (!s || b->status)
        return DV__NEVER;
    s->type = (uint8_t)type;
    s->to = to;
    s->nin = (uint8_t)n;
    s->slot = slot;
    s->fault = b->quiet ? NULL : fault;
    s->flags = b->quiet ? DV__STEP_SAY : 0;
    if (n)
        memcpy(many ? many : s->in, in, n * sizeof *in);
    s->many = many;
    b->made_by[to] = (int32_t)b->p->nsteps - 1;
    if (!b->quiet) {
        use(b, guard);
        for (uint32_t i = 0; i < n; i++)
            use(b, in[i]);
    }
    return to;
}

void dv__assign(dv__builder *b, dv__operand to, dv__operand from, dv__operand guard)
{
    dv__step *s = guard == DV__NEVER ? NULL : dv__append(b, DV__OP_COPY, guard);
    if (!s)
        return;
    s->to = to;
    s->type = (uint8_t)dv__type_of(b, to);
    s->nin = 1;
    s->in[0] = from;
    use(b, from);
    use(b, guard);
}

dv__operand dv__op1(dv__builder *b, enum dv__op op, enum dv__rtype type, dv__operand guard, dv__operand x)
{
    return dv__emit(b, op, type, guard, 1, &x, 0, NULL);
}

dv__operand dv__op2(dv__builder *b, enum dv__op op, enum dv__rtype type, dv__operand guard, dv__operand x, dv__operand y)
{
    return dv__emit(b, op, type, guard, 2, (dv__operand[]){ x, y }, 0, NULL);
}

dv__operand dv__op3(
    dv__builder *b, enum dv__op op, enum dv__rtype type, dv__operand guard, dv__operand x, dv__operand y, dv__operand z)
{
    return dv__emit(b, op, type, guard, 3, (dv__operand[]){ x, y, z }, 0, NULL);
}

dv__operand dv__load(dv__builder *b, enum dv__op op, enum dv__rtype type, dv__operand guard, int32_t slot)
{
    return dv__emit(b, op, type, guard, 0, NULL, slot, NULL);
}

/* ---- Conditions -------------------------------------------------------------------------------------------------------- */

static bool is(const dv__step *s, enum dv__op op) { return s && s->op == op; }

/* Never both. */
static bool disjoint(const dv__builder *b, dv__operand x, dv__operand y, int depth)
{
    const dv__step *s = maker(b, x), *t = maker(b, y);
    if (x == DV__NEVER || y == DV__NEVER)
        return true;
    if (!depth)
        return false;
    if ((is(t, DV__OP_NOT) && dv__implies(b, x, t->in[0], depth - 1)) ||
        (is(s, DV__OP_NOT) && dv__implies(b, y, s->in[0], depth - 1)))
        return true;
    return (is(s, DV__OP_AND) && (disjoint(b, s->in[0], y, depth - 1) || disjoint(b, s->in[1], y, depth - 1))) ||
        (is(t, DV__OP_AND) && (disjoint(b, x, t->in[0], depth - 1) || disjoint(b, x, t->in[1], depth - 1)));
}

bool dv__implies(const dv__builder *b, dv__operand x, dv__operand y, int depth)
{
    if (x == y || x == DV__NEVER || y == DV__ALWAYS)
        return true;
    if (!depth || y == DV__NEVER)
        return false;
    const dv__step *s = maker(b, x), *t = maker(b, y);
    if (is(s, DV__OP_PRESENT) && is(t, DV__OP_PRESENT) && s->slot == t->slot) /* sections do not share registers */
        return true;
    depth--;
    if (is(t, DV__OP_AND) && dv__implies(b, x, t->in[0], depth) && dv__implies(b, x, t->in[1], depth))
        return true;
    if (is(t, DV__OP_OR) && (dv__implies(b, x, t->in[0], depth) || dv__implies(b, x, t->in[1], depth)))
        return true;
    if (is(s, DV__OP_AND) && (dv__implies(b, s->in[0], y, depth) || dv__implies(b, s->in[1], y, depth)))
        return true;
    if (is(s, DV__OP_OR) && dv__implies(b, s->in[0], y, depth) && dv__implies(b, s->in[1], y, depth))
        return true;
    if (is(t, DV__OP_NOT) && disjoint(b, x, t->in[0], depth))
        return true;
    return is(s, DV__OP_NOT) && is(t, DV__OP_NOT) && dv__implies(b, t->in[0], s->in[0], depth);
}

enum { DEPTH = 8 };

/* Does it have a value wherever the guard holds? */
static bool defined(const dv__builder *b, dv__operand x, dv__operand guard)
{
    const dv__step *s = maker(b, x);
    return !s || dv__implies(b, guard, s->guard, DEPTH);
}

dv__operand dv__and(dv__builder *b, dv__operand x, dv__operand y) { return dv__both(b, DV__ALWAYS, x, y); }
dv__operand dv__or(dv__builder *b, dv__operand x, dv__operand y) { return dv__either(b, DV__ALWAYS, x, y); }

dv__operand dv__both(dv__builder *b, dv__operand guard, dv__operand x, dv__operand y)
{
    if (b->status)
        return DV__NEVER;
    if (dv__implies(b, x, y, DEPTH))
        return x;
    if (defined(b, y, guard) && dv__implies(b, y, x, DEPTH))
        return y;
    if (disjoint(b, x, y, DEPTH))
        return DV__NEVER;
    return dv__op2(b, DV__OP_AND, DV__RTYPE_BOOL, guard, x, y);
}

dv__operand dv__not(dv__builder *b, dv__operand x, dv__operand guard)
{
    const dv__step *s = b->status ? NULL : maker(b, x);
    if (x == DV__ALWAYS || x == DV__NEVER)
        return x == DV__ALWAYS ? DV__NEVER : DV__ALWAYS;
    return is(s, DV__OP_NOT) ? s->in[0] : dv__op1(b, DV__OP_NOT, DV__RTYPE_BOOL, guard, x);
}

dv__operand dv__either(dv__builder *b, dv__operand guard, dv__operand x, dv__operand y)
{
    if (b->status)
        return DV__NEVER;
    const bool both = defined(b, y, guard);
    if (both && dv__implies(b, x, y, DEPTH))
        return y;
    if (dv__implies(b, y, x, DEPTH))
        return x;
    const dv__step *s = maker(b, x), *t = maker(b, y);
    if ((is(t, DV__OP_NOT) && dv__implies(b, t->in[0], x, DEPTH)) || (is(s, DV__OP_NOT) && dv__implies(b, s->in[0], y, DEPTH)))
        return DV__ALWAYS;
    for (int i = 0; is(t, DV__OP_AND) && i < 2; i++) { /* x or (not x and q) */
        const dv__step *n = maker(b, t->in[i]);
        if (is(n, DV__OP_NOT) && dv__implies(b, n->in[0], x, DEPTH))
            return dv__either(b, guard, x, t->in[1 - i]);
    }
    for (int i = 0; both && is(s, DV__OP_AND) && i < 2; i++) {
        const dv__step *n = maker(b, s->in[i]);
        if (is(n, DV__OP_NOT) && dv__implies(b, n->in[0], y, DEPTH))
            return dv__either(b, guard, y, s->in[1 - i]);
    }
    return dv__op2(b, DV__OP_OR, DV__RTYPE_BOOL, guard, x, y);
}

dv__operand dv__select(dv__builder *b, dv__operand guard, dv__operand c, dv__operand x, dv__operand y)
{
    if (c == DV__ALWAYS || c == DV__NEVER || x == y)
        return c == DV__NEVER ? y : x;
    return dv__op3(b, DV__OP_SELECT, dv__type_of(b, x), guard, c, x, y);
}

dv__operand dv__add_ints(dv__builder *b, dv__operand guard, dv__operand x, dv__operand y)
{
    if (b->status)
        return DV__NEVER;
    if (x < 0 && y < 0)
        return dv__int(b, b->p->constants[-1 - x].i + b->p->constants[-1 - y].i);
    if ((x < 0 && !b->p->constants[-1 - x].i) || (y < 0 && !b->p->constants[-1 - y].i))
        return x < 0 ? y : x;
    return dv__op2(b, DV__OP_ADD, DV__RTYPE_INT, guard, x, y);
}

dv__operand dv__bound(dv__builder *b, dv__needs needs)
{
    dv__operand all = DV__ALWAYS;
    for (dv__variable v; dv__next_variable(b, &needs, &v);)
        all = dv__and(b, all, v.bound);
    return all;
}

bool dv__next_variable(const dv__builder *b, dv__needs *left, dv__variable *out)
{
    if (left->dims) {
        const int i = __builtin_ctzll(left->dims);
        *out = (dv__variable){ b->c->dims[i].name, b->dims[i] };
        left->dims &= left->dims - 1;
    } else if (left->runs) {
        const int i = __builtin_ctz(left->runs);
        *out = (dv__variable){ b->c->runs[i].name, b->runs[i] };
        left->runs &= left->runs - 1;
    } else if (left->dtypes) {
        const int i = __builtin_ctz(left->dtypes);
        *out = (dv__variable){ b->c->dtypes[i].name, b->dtypes[i] };
        left->dtypes &= left->dtypes - 1;
    } else {
        return false;
    }
    return true;
}

void dv__claim_that(dv__builder *b, dv__operand given, dv__operand holds, const char *at, const dv__part *message)
{
    if (grow(b, &b->claims, b->nclaims, sizeof *b->claims))
        b->claims[b->nclaims++] = (dv__claim){ given, holds, at, message };
}

/* ---- Messages ---------------------------------------------------------------------------------------------------------- */

const dv__operand *dv__keep(dv__builder *b, const dv__operand *in, uint32_t n)
{
    dv__operand *kept = alloc(b, n * sizeof *in);
    if (kept)
        memcpy(kept, in, n * sizeof *in);
    return kept;
}

dv__part *dv__part_new(dv__builder *b, enum dv__part_kind kind)
{
    dv__part *p = alloc(b, sizeof *p);
    if (p)
        p->kind = (uint8_t)kind;
    return p;
}

dv__part *dv__part_text(dv__builder *b, const char *format, ...)
{
    char room[400], *text = room;
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(room, sizeof room, format, args);
    va_end(args);
    if (n >= (int)sizeof room && (text = alloc(b, (size_t)n + 1))) {
        va_start(args, format);
        vsnprintf(text, (size_t)n + 1, format, args);
        va_end(args);
    }
    dv__part *p = n > 0 && text ? dv__part_new(b, DV__PART_TEXT) : NULL;
    if (p && !(p->text = dv__arena_strndup(b->arena, text, (size_t)n)))
        failed(b, DV_ENOMEM);
    return p;
}

dv__part *dv__show(dv__builder *b, dv__operand x)
{
    dv__part *p = dv__part_new(b, DV__PART_SHOW);
    if (p)
        p->a = x;
    return p;
}

dv__part *dv__if_part(dv__builder *b, dv__operand condition, dv__part *then, dv__part *other)
{
    if (condition == DV__ALWAYS || condition == DV__NEVER)
        return condition == DV__ALWAYS ? then : other;
    dv__part *p = dv__part_new(b, DV__PART_IF);
    if (p)
        p->a = condition, p->then = then, p->other = other;
    return p;
}

dv__part *dv__then(dv__part *first, dv__part *next)
{
    if (!first)
        return next;
    dv__part *last = first;
    while (last->next)
        last = last->next;
    last->next = next;
    return first;
}

dv__part *dv__join(dv__builder *b, const char *open, const char *close)
{
    dv__part *p = dv__part_new(b, DV__PART_JOIN);
    if (p)
        p->text = open, p->close = close;
    return p;
}

void dv__join_add(dv__builder *b, dv__part *join, dv__part *part)
{
    dv__part *all = part ? dv__part_new(b, DV__PART_ALL) : NULL;
    if (all && join) {
        all->then = part;
        join->then = dv__then(join->then, all);
    }
}

const dv__fault *dv__fault_new(dv__builder *b, int status, dv__part *message)
{
    dv__fault *f = alloc(b, sizeof *f);
    if (f)
        f->status = status, f->message = message;
    return f;
}

dv__part *dv__part_place(dv__builder *b)
{
    return b->who ? dv__part_text(b, "argument '%s': %s: ", b->who, b->where) : dv__part_text(b, "%s: ", b->where);
}

bool dv__may_fail(dv__builder *b, dv__operand condition, dv__operand guard)
{
    if (b->status || guard == DV__NEVER || condition == DV__ALWAYS)
        return false;
    if (b->quiet)
        b->valid = dv__and(b, b->valid, dv__or(b, dv__not(b, guard, DV__ALWAYS), condition));
    return !b->quiet;
}

void dv__check(dv__builder *b, dv__operand condition, dv__operand guard, int status, dv__part *message)
{
    const dv__fault *fault = dv__fault_new(b, status, message);
    dv__step *s = dv__append(b, DV__OP_CHECK, guard);
    if (!s)
        return;
    s->nin = 1;
    s->in[0] = condition;
    s->fault = fault;
    use(b, condition);
    use(b, guard);
}
