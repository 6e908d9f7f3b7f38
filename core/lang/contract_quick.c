/* Translates a program's steps to quick steps, which calls run (contract_quick.h). */
#include "lang/contract_build.h"
#include "lang/contract_quick.h"

/* How a register came about. */
struct made {
    dv__operand *dest; /* the register that its step writes: instead of copying, the step may write to the copy's register */
    dv__quick *facts;  /* of a tensor or a shape: the step that reads it from its tensor */
    dv__operand guard;
    uint32_t scope;
};

struct quickener {
    const dv__contract *c;
    dv__program *p;
    dv__quick *q;
    uint32_t n, scope;
    uint16_t *at;    /* of each step: where it is in q */
    uint16_t *reads; /* for each register, how many of the executed steps read it */
    bool *dead;
    struct made *made;
    dv__operand guard, spare; /* the guard of the steps behind `open` */
    dv__quick *open, *last;   /* last: the step before this one, under the same guard; or NULL */
    uint32_t depth;
};

/* ---- What is read --------------------------------------------------------------------------------------------------------- */

static void count_read(struct quickener *k, dv__operand x)
{
    if (x >= 0)
        k->reads[x]++;
}

static void count_results(struct quickener *k)
{
    const dv__contract *c = k->c;
    const dv__program *p = k->p;
    for (uint32_t i = 0; i < p->nresults; i++) {
        const dv__result *r = &p->results[i];
        const dv__operand all[] = { r->guard, r->dtype, r->device, r->shape, r->strides, r->offset, r->count.value };
        for (uint32_t j = 0; j < sizeof all / sizeof *all; j++)
            count_read(k, all[j]);
    }
    count_read(k, p->workspace.value);
    count_read(k, p->flops.value);
    count_read(k, p->bytes.value);
    for (uint32_t g = 0; g < c->ngroups; g++)
        for (uint32_t i = 0; i < c->groups[g].n; i++)
            count_read(k, p->taken[g][i]);
    for (uint32_t i = 0; i < p->nsteps; i++)
        for (uint32_t j = 0; j < p->steps[i].ncarry; j++) {
            count_read(k, p->steps[i].carry[j].from);
            count_read(k, p->steps[i].carry[j].next);
        }
}

static bool is_block(const dv__step *s) { return s->op == DV__OP_EACH || s->op == DV__OP_EACH_VALUE; }

/* From the last step to the first, because readers of a register come after its writer. */
static void count_reads(struct quickener *k)
{
    for (uint32_t i = k->p->nsteps; i-- > 0;) {
        const dv__step *s = &k->p->steps[i];
        const bool acts = is_block(s) || s->op == DV__OP_CHECK || s->op == DV__OP_COPY || s->op == DV__OP_UNBACKED || s->fault;
        k->dead[i] = s->flags & DV__STEP_SAY || (!acts && !k->reads[s->to]);
        if (k->dead[i])
            continue;
        count_read(k, s->guard);
        for (uint32_t j = 0; j < s->nin; j++)
            count_read(k, s->many ? s->many[j] : s->in[j]);
    }
}

/* ---- Steps ---------------------------------------------------------------------------------------------------------------- */

static dv__quick *put(struct quickener *k, enum dv__quick_op op, const dv__step *s)
{
    dv__quick *q = &k->q[k->n++];
    memset(q, 0, sizeof *q);
    q->op = (uint8_t)op;
    q->to = q->device = q->dtype = q->shape = q->rank = k->spare;
    q->step = s;
    if (s) {
        q->a = s->in[0], q->b = s->in[1], q->c = s->in[2];
        q->slot = s->slot;
        if (s->to >= 0)
            q->to = s->to;
    }
    k->last = q;
    return q;
}

static void note_made(struct quickener *k, dv__operand x, dv__operand *dest, dv__quick *facts)
{
    k->made[x] = (struct made){ dest, facts, k->guard, k->scope };
}

static const struct made *made_here(const struct quickener *k, dv__operand x)
{
    return x >= 0 && k->made[x].dest && k->made[x].scope == k->scope && k->made[x].guard == k->guard ? &k->made[x] : NULL;
}

static void close_guard(struct quickener *k)
{
    if (k->open)
        k->open->slot = (int32_t)(&k->q[k->n] - k->open) - 1;
    k->open = k->last = NULL;
    k->guard = DV__ALWAYS;
}

static void open_guard(struct quickener *k, dv__operand guard)
{
    if (guard == k->guard)
        return;
    close_guard(k);
    if (guard != DV__ALWAYS) {
        k->open = put(k, DV__QUICK_UNLESS, NULL);
        k->open->a = guard;
        k->last = NULL;
    }
    k->guard = guard;
}

/* A tensor's device, dtype or shape: one more result of the step that has the tensor. */
static void put_fact(struct quickener *k, const dv__step *s)
{
    const struct made *m = made_here(k, s->in[0]);
    dv__quick *facts = m ? m->facts : NULL;
    const enum dv__op op = (enum dv__op)s->op;
    dv__operand *dest = NULL;
    if (facts)
        dest = op == DV__OP_DEVICE_OF ? &facts->device : op == DV__OP_DTYPE_OF ? &facts->dtype : &facts->shape;
    if (!facts || *dest != k->spare) {
        facts = put(k, DV__QUICK_TENSOR_HAS, s);
        facts->to = k->spare;
        dest = op == DV__OP_DEVICE_OF ? &facts->device : op == DV__OP_DTYPE_OF ? &facts->dtype : &facts->shape;
    } else {
        k->reads[s->in[0]]--;
    }
    *dest = s->to;
    note_made(k, s->to, dest, op == DV__OP_SHAPE ? facts : NULL);
}

static void put_rank(struct quickener *k, const dv__step *s)
{
    const struct made *m = made_here(k, s->in[0]);
    if (m && m->facts && m->facts->rank == k->spare) {
        m->facts->rank = s->to;
        k->reads[s->in[0]]--;
        note_made(k, s->to, &m->facts->rank, NULL);
        return;
    }
    dv__quick *q = put(k, DV__QUICK_RANK, s);
    note_made(k, s->to, &q->to, NULL);
}

/* Mark a variable as bound: once for the whole program if it is bound in every call. */
static void note_variable(struct quickener *k, dv__operand to)
{
    const dv__contract *c = k->c;
    if (k->depth || k->guard != DV__ALWAYS) {
        if ((uint32_t)to < c->ndims + c->nruns + c->ndtypes)
            put(k, DV__QUICK_BOUND, NULL)->to = to;
        return;
    }
    dv__needs *binds = &k->p->binds;
    if ((uint32_t)to < c->ndims)
        binds->dims |= 1ull << to;
    else if ((uint32_t)to < c->ndims + c->nruns)
        binds->runs |= 1u << ((uint32_t)to - c->ndims);
    else if ((uint32_t)to < c->ndims + c->nruns + c->ndtypes)
        binds->dtypes |= 1u << ((uint32_t)to - c->ndims - c->nruns);
}

static void put_copy(struct quickener *k, const dv__step *s)
{
    const struct made *m = made_here(k, s->in[0]);
    if (m && k->reads[s->in[0]] == 1)
        *m->dest = s->to;
    else
        put(k, DV__QUICK_COPY, s);
    note_variable(k, s->to);
}

/* Is q the only reader of the step before it? */
static dv__quick *read_once(const struct quickener *k, dv__quick *q, enum dv__quick_op op, dv__operand x)
{
    dv__quick *before = q > k->q ? q - 1 : q;
    return before->op == op && before->to == x && made_here(k, x) && k->reads[x] == 1 ? before : NULL;
}

static bool compares(const dv__quick *q)
{
    return q->op >= DV__QUICK_EQ && q->op <= DV__QUICK_SAME_DEVICE && !((q->op - DV__QUICK_EQ) & 1);
}

/* Two comparisons joined by `and`, read only by a check: make each comparison a check. */
static bool is_range(const struct quickener *k, const dv__quick *q, dv__operand checked)
{
    if (!q || q->op != DV__QUICK_AND || q->to != checked || k->reads[checked] != 1 || q - k->q < 2 || !compares(q - 1) ||
        !compares(q - 2))
        return false;
    const dv__operand x = q[-2].to, y = q[-1].to;
    return ((q->a == x && q->b == y) || (q->a == y && q->b == x)) && made_here(k, x) && made_here(k, y) && k->reads[x] == 1 &&
        k->reads[y] == 1;
}

/* A check of the previous steps' results is merged into those steps. */
static void put_check(struct quickener *k, const dv__step *s)
{
    dv__quick *q = k->last, *at;
    if (is_range(k, q, s->in[0])) {
        q[-2].op++, q[-1].op++;
        k->last = q - 1;
        k->n--;
        return;
    }
    if (!q || !compares(q) || q->to != s->in[0] || k->reads[s->in[0]] != 1) {
        put(k, DV__QUICK_CHECK, s);
        return;
    }
    q->op++;
    if (q->op == DV__QUICK_GE_CHECK && (at = read_once(k, q, DV__QUICK_NEGATIVE, q->a)) && q->b < 0 &&
        !k->p->constants[-1 - q->b].i) {
        at->op = DV__QUICK_SIZES_CHECK;
    } else if (q->op == DV__QUICK_EQ_CHECK &&
        ((at = read_once(k, q, DV__QUICK_AT, q->a)) || (at = read_once(k, q, DV__QUICK_AT, q->b)))) {
        at->op = DV__QUICK_AT_IS;
        at->b = at->to == q->a ? q->b : q->a;
    } else {
        return;
    }
    k->last = at;
    k->n--;
}

static int comparison(const dv__step *s)
{
    const bool ints = s->type == DV__RTYPE_INT || s->type == DV__RTYPE_BOOL;
    if (ints)
        return DV__QUICK_EQ + 2 * (s->op - DV__OP_EQ);
    if (s->op != DV__OP_EQ)
        return DV__QUICK_STEP;
    return s->type == DV__RTYPE_DTYPE ? DV__QUICK_SAME_DTYPE : s->type == DV__RTYPE_DIMS ? DV__QUICK_SAME_DIMS : DV__QUICK_STEP;
}

static int quick_op(const dv__step *s)
{
    const bool ints = s->type == DV__RTYPE_INT;
    switch ((enum dv__op)s->op) {
    case DV__OP_TENSOR: return DV__QUICK_ARGUMENT_HAS;
    case DV__OP_AT: return s->in[1] < 0 ? DV__QUICK_AT : DV__QUICK_AT_ANY;
    case DV__OP_STRIDES: return DV__QUICK_STRIDES;
    case DV__OP_PACK:
    case DV__OP_BROADCAST:
    case DV__OP_REDUCED:
    case DV__OP_SWAP:
    case DV__OP_PERMUTE:
    case DV__OP_REPLACE:
    case DV__OP_DROP: return DV__QUICK_DIMS;
    case DV__OP_ARGUMENT: return ints ? DV__QUICK_INT : DV__QUICK_STEP;
    case DV__OP_PRESENT: return DV__QUICK_PRESENT;
#define SIMPLE(id, statement) \
    case DV__OP_##id: return DV__QUICK_##id;
        DV__SIMPLE_OPS(SIMPLE)
#define ON_INTS(id, test) \
    case DV__OP_##id: return ints ? DV__QUICK_##id : DV__QUICK_STEP;
        DV__INT_OPS(ON_INTS)
    case DV__OP_SAME_DEVICE: return DV__QUICK_SAME_DEVICE;
    case DV__OP_EQ:
    case DV__OP_NE:
    case DV__OP_LT:
    case DV__OP_LE:
    case DV__OP_GT:
    case DV__OP_GE: return comparison(s);
    default: return DV__QUICK_STEP;
    }
}

static void put_step(struct quickener *k, const dv__step *s)
{
    switch ((enum dv__op)s->op) {
    case DV__OP_DEVICE_OF:
    case DV__OP_DTYPE_OF:
    case DV__OP_SHAPE: put_fact(k, s); return;
    case DV__OP_RANK: put_rank(k, s); return;
    case DV__OP_COPY: put_copy(k, s); return;
    case DV__OP_CHECK: put_check(k, s); return;
    default: break;
    }
    dv__quick *q = put(k, (enum dv__quick_op)quick_op(s), s);
    if (q->op == DV__QUICK_AT)
        q->slot = (int32_t)k->p->constants[-1 - s->in[1]].i;
    if (q->op != DV__QUICK_STEP && q->op != DV__QUICK_DIMS && s->to >= 0)
        note_made(k, s->to, &q->to, q->op == DV__QUICK_ARGUMENT_HAS ? q : NULL);
}

/* ---- Sequences ------------------------------------------------------------------------------------------------------------ */

static uint32_t next_live(const struct quickener *k, uint32_t i, uint32_t end)
{
    for (i++; i < end && k->dead[i];)
        i++;
    return i;
}

/* A test whether shapes broadcast or dtypes promote is dropped if the operation itself follows the check: the operation tests
 * too. */
static bool is_tested_again(const struct quickener *k, uint32_t i, uint32_t end, uint32_t *check)
{
    const dv__step *s = &k->p->steps[i];
    if ((s->op != DV__OP_BROADCASTS && s->op != DV__OP_PROMOTES) || k->reads[s->to] != 1)
        return false;
    const uint32_t j = next_live(k, i, end), m = j < end ? next_live(k, j, end) : end;
    if (m == end)
        return false;
    const dv__step *c = &k->p->steps[j], *t = &k->p->steps[m];
    *check = j;
    return c->op == DV__OP_CHECK && c->in[0] == s->to && c->guard == s->guard && t->op == s->op + 1 && t->guard == s->guard &&
        t->nin == s->nin && !memcmp(t->many ? t->many : t->in, s->many ? s->many : s->in, s->nin * sizeof *s->in);
}

static bool is_barrier(const dv__program *p, uint32_t i)
{
    bool is = i == p->after_plain || i == p->solve_end || i == p->workspace.begin || i == p->flops.begin || i == p->bytes.begin;
    for (uint32_t k = 0; k < p->nresults && !is; k++)
        is = i == p->results[k].section.begin || i == p->results[k].count.begin;
    return is;
}

static void put_range(struct quickener *k, uint32_t begin, uint32_t end);

static void put_block(struct quickener *k, uint32_t i)
{
    const dv__step *s = &k->p->steps[i];
    dv__quick *q = put(k, DV__QUICK_EACH, s), *open = k->open;
    const dv__operand guard = k->guard;
    k->open = NULL;
    k->depth++;
    put_range(k, i + 1, i + 1 + (uint32_t)s->body);
    k->depth--;
    q->slot = (int32_t)(&k->q[k->n] - q) - 1;
    k->open = open;
    k->guard = guard;
}

static void put_range(struct quickener *k, uint32_t begin, uint32_t end)
{
    k->scope++;
    k->guard = DV__ALWAYS;
    k->last = NULL;
    for (uint32_t i = begin; i < end; i++) {
        const dv__step *s = &k->p->steps[i];
        uint32_t check;
        if (!k->depth && is_barrier(k->p, i)) {
            close_guard(k);
            k->scope++;
        }
        k->at[i] = (uint16_t)k->n;
        if (k->dead[i])
            continue;
        open_guard(k, s->guard);
        if (is_tested_again(k, i, end, &check)) {
            for (; i < check; i++)
                k->at[i + 1] = (uint16_t)k->n;
        } else if (is_block(s)) {
            put_block(k, i);
            i += (uint32_t)s->body;
            k->scope++;
            k->last = NULL;
        } else {
            put_step(k, s);
        }
    }
    close_guard(k);
    k->at[end] = (uint16_t)k->n;
}

/* Tensors that nobody reads any more. */
static void spare_tensors(struct quickener *k)
{
    for (uint32_t i = 0; i < k->n; i++)
        if (k->q[i].op == DV__QUICK_ARGUMENT_HAS && !k->reads[k->q[i].to])
            k->q[i].to = k->spare;
}

int dv__quicken(const dv__contract *c, dv__program *p, dv__arena *arena)
{
    struct quickener k = { .c = c, .p = p, .guard = DV__ALWAYS, .spare = (dv__operand)p->nregisters };
    const size_t most = 3 * (size_t)p->nsteps + 1;
    k.q = dv__calloc(most, sizeof *k.q);
    k.reads = dv__calloc(p->nregisters + 1u, sizeof *k.reads);
    k.dead = dv__calloc(p->nsteps + 1u, sizeof *k.dead);
    k.made = dv__calloc(p->nregisters + 1u, sizeof *k.made);
    k.at = DV__ARENA_ARRAY(arena, uint16_t, p->nsteps + 1u);
    int status = k.q && k.reads && k.dead && k.made && k.at ? DV_OK : DV_ENOMEM;
    if (!status) {
        count_results(&k);
        count_reads(&k);
        put_range(&k, 0, p->nsteps);
        spare_tensors(&k);
        p->quick = DV__ARENA_ARRAY(arena, dv__quick, k.n + 1u);
        p->quick_at = k.at;
        status = p->quick ? DV_OK : DV_ENOMEM;
    }
    if (!status)
        memcpy(p->quick, k.q, k.n * sizeof *k.q);
    dv__free(k.q);
    dv__free(k.reads);
    dv__free(k.dead);
    dv__free(k.made);
    return status;
}
