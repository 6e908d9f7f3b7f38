/* Fusion: translates a program's steps to the fused program, which calls evaluate (contract_fused.h). */
#include "lang/contract_build.h"
#include "lang/contract_fused.h"

/* How a register got its value, in the steps that are fused so far. */
struct value_source {
    dv__operand *
        destination; /* where the writing step stores its destination register: the step may write to a copy's register instead */
    dv__fused_step *load; /* of a tensor or a shape: the LOAD step, which can load more properties of the tensor; else NULL */
    dv__operand guard;    /* the guard under which the step runs */
    uint32_t scope;       /* fuser.scope at that step */
};

struct fuser {
    const dv__contract *c;
    dv__program *p;
    dv__fused_step *fused_steps;
    uint32_t n, scope;    /* number of fused steps; number of the current section or block body */
    uint16_t *step_begin; /* by step: index of its first fused step */
    uint16_t *nreaders;   /* by register: the number of steps that read it and are not dropped */
    bool *is_dead;        /* by step: nothing but messages reads its result */
    struct value_source *sources;
    dv__operand guard, unused_register; /* the guard of the current steps; a register that nothing reads */
    dv__fused_step *skip_step,
        *last_step; /* SKIP_UNLESS of the current guard, or NULL; the last step under the same guard, or NULL */
    uint32_t block_depth;
};

/* ---- Counting readers ---------------------------------------------------------------------------------------------------- */

/* Counts one more reader of a register. Literals are not counted. */
static void fuse_count_read(struct fuser *k, dv__operand operand)
{
    if (operand >= 0)
        k->nreaders[operand]++;
}

/* Counts the registers that results, costs, case conditions and sums over lists read. */
static void fuse_count_result_reads(struct fuser *k)
{
    const dv__contract *c = k->c;
    const dv__program *p = k->p;
    for (uint32_t i = 0; i < p->nresults; i++) {
        const dv__program_result *r = &p->results[i];
        const dv__operand all[] = { r->guard, r->dtype, r->device, r->shape, r->strides, r->offset, r->list_count.value };
        for (uint32_t j = 0; j < sizeof all / sizeof *all; j++)
            fuse_count_read(k, all[j]);
    }
    fuse_count_read(k, p->workspace.value);
    fuse_count_read(k, p->flops.value);
    fuse_count_read(k, p->bytes.value);
    for (uint32_t g = 0; g < c->ngroups; g++)
        for (uint32_t i = 0; i < c->groups[g].n; i++)
            fuse_count_read(k, p->is_selected[g][i]);
    for (uint32_t i = 0; i < p->nsteps; i++)
        for (uint32_t j = 0; j < p->steps[i].ncarry; j++) {
            fuse_count_read(k, p->steps[i].carry[j].from);
            fuse_count_read(k, p->steps[i].carry[j].next);
        }
}

/* Counts the registers that steps read, and marks steps as dead whose result nothing reads. Goes from the last step to the
 * first, because readers come after the writer. */
static void fuse_count_step_reads(struct fuser *k)
{
    for (uint32_t i = k->p->nsteps; i-- > 0;) {
        const dv__step *s = &k->p->steps[i];
        const bool acts = dv__step_is_block(s) || s->op == DV__OP_CHECK || s->op == DV__OP_COPY || s->op == DV__OP_UNBACKED ||
            s->error;
        k->is_dead[i] = s->flags & DV__STEP_MESSAGE_ONLY || (!acts && !k->nreaders[s->to]);
        if (k->is_dead[i])
            continue;
        fuse_count_read(k, s->guard);
        for (uint32_t j = 0; j < s->ninputs; j++)
            fuse_count_read(k, dv__step_get_operands(s)[j]);
    }
}

/* ---- Steps --------------------------------------------------------------------------------------------------------------- */

/* Appends a fused step with the inputs of s, or empty for s NULL. Returns it. */
static dv__fused_step *fuse_append_step(struct fuser *k, int op, const dv__step *s)
{
    dv__fused_step *q = &k->fused_steps[k->n++];
    memset(q, 0, sizeof *q);
    q->op = (uint8_t)op;
    q->to = q->device = q->dtype = q->shape = q->rank = k->unused_register;
    q->step = s;
    if (s) {
        q->a = s->in[0], q->b = s->in[1], q->c = s->in[2];
        q->slot = s->slot;
        if (s->to >= 0)
            q->to = s->to;
    }
    k->last_step = q;
    return q;
}

/* Records the source of a register's value, under the current guard and scope. */
static void fuse_set_source(struct fuser *k, dv__operand reg, dv__operand *destination, dv__fused_step *load)
{
    k->sources[reg] = (struct value_source){ destination, load, k->guard, k->scope };
}

/* Returns the source of an operand's value, if it was computed under the current guard and scope. NULL: elsewhere, or a
 * literal. */
static const struct value_source *fuse_find_source(const struct fuser *k, dv__operand operand)
{
    return operand >= 0 && k->sources[operand].destination && k->sources[operand].scope == k->scope &&
            k->sources[operand].guard == k->guard
        ? &k->sources[operand]
        : NULL;
}

/* Ends the steps of the current guard: SKIP_UNLESS gets their number. */
static void fuse_close_skip(struct fuser *k)
{
    if (k->skip_step)
        k->skip_step->slot = (int32_t)(&k->fused_steps[k->n] - k->skip_step) - 1;
    k->skip_step = k->last_step = NULL;
    k->guard = DV__ALWAYS;
}

/* Begins steps with a guard, by a SKIP_UNLESS if it is another guard than that of the step before. */
static void fuse_open_skip(struct fuser *k, dv__operand guard)
{
    if (guard == k->guard)
        return;
    fuse_close_skip(k);
    if (guard != DV__ALWAYS) {
        k->skip_step = fuse_append_step(k, DV__FUSED_SKIP_UNLESS, NULL);
        k->skip_step->a = guard;
        k->last_step = NULL;
    }
    k->guard = guard;
}

/* Fuses DEVICE_OF, DTYPE_OF or SHAPE: one more destination of the step that loads the tensor, or a new LOAD_TENSOR. */
static void fuse_load_property(struct fuser *k, const dv__step *s)
{
    const struct value_source *m = fuse_find_source(k, s->in[0]);
    dv__fused_step *facts = m ? m->load : NULL;
    const enum dv__opcode op = (enum dv__opcode)s->op;
    dv__operand *destination = NULL;
    if (facts)
        destination = op == DV__OP_DEVICE_OF ? &facts->device : op == DV__OP_DTYPE_OF ? &facts->dtype : &facts->shape;
    if (!facts || *destination != k->unused_register) {
        facts = fuse_append_step(k, DV__FUSED_LOAD_TENSOR, s);
        facts->to = k->unused_register;
        destination = op == DV__OP_DEVICE_OF ? &facts->device : op == DV__OP_DTYPE_OF ? &facts->dtype : &facts->shape;
    } else {
        k->nreaders[s->in[0]]--;
    }
    *destination = s->to;
    fuse_set_source(k, s->to, destination, op == DV__OP_SHAPE ? facts : NULL);
}

/* Fuses RANK: one more destination of the step that loads the tensor, or a step of its own. */
static void fuse_rank_step(struct fuser *k, const dv__step *s)
{
    const struct value_source *m = fuse_find_source(k, s->in[0]);
    if (m && m->load && m->load->rank == k->unused_register) {
        m->load->rank = s->to;
        k->nreaders[s->in[0]]--;
        fuse_set_source(k, s->to, &m->load->rank, NULL);
        return;
    }
    dv__fused_step *q = fuse_append_step(k, DV__OP_RANK, s);
    fuse_set_source(k, s->to, &q->to, NULL);
}

/* Marks a variable as bound: once for the whole program if it is bound in every call, else by a step. */
static void fuse_mark_bound(struct fuser *k, dv__operand variable)
{
    const dv__contract *c = k->c;
    if (k->block_depth || k->guard != DV__ALWAYS) {
        if ((uint32_t)variable < c->ndims + c->nvariadics + c->ndtypes)
            fuse_append_step(k, DV__FUSED_SET_BOUND, NULL)->to = variable;
        return;
    }
    dv__var_set *binds = &k->p->always_bound;
    if ((uint32_t)variable < c->ndims)
        binds->dims |= 1ull << variable;
    else if ((uint32_t)variable < c->ndims + c->nvariadics)
        binds->variadics |= 1u << ((uint32_t)variable - c->ndims);
    else if ((uint32_t)variable < c->ndims + c->nvariadics + c->ndtypes)
        binds->dtypes |= 1u << ((uint32_t)variable - c->ndims - c->nvariadics);
}

/* Fuses COPY: the only reader of a value renames the writer's destination; otherwise a MOVE is appended. */
static void fuse_copy_step(struct fuser *k, const dv__step *s)
{
    const struct value_source *m = fuse_find_source(k, s->in[0]);
    if (m && k->nreaders[s->in[0]] == 1)
        *m->destination = s->to;
    else
        fuse_append_step(k, DV__FUSED_MOVE, s);
    fuse_mark_bound(k, s->to);
}

/* Returns the step directly before `reader`, if it has this operation and writes reg, and only `reader` reads reg. NULL
 * otherwise. */
static dv__fused_step *fuse_find_previous_writer(const struct fuser *k, dv__fused_step *reader, int op, dv__operand reg)
{
    dv__fused_step *before = reader > k->fused_steps ? reader - 1 : reader;
    return before->op == op && before->to == reg && fuse_find_source(k, reg) && k->nreaders[reg] == 1 ? before : NULL;
}

/* True if a fused step is a comparison that has a _CHECK form. */
static bool fused_step_is_comparison(const dv__fused_step *q)
{
    return q->op >= DV__FUSED_EQ && q->op <= DV__FUSED_SAME_DEVICE && !((q->op - DV__FUSED_EQ) & 1);
}

/* True if step q is the `and` of the two comparisons before it, and only the check of register `checked` reads them. Each
 * comparison can then become a check. */
static bool fuse_is_checked_and_of_comparisons(const struct fuser *k, const dv__fused_step *q, dv__operand checked)
{
    if (!q || q->op != DV__OP_AND || q->to != checked || k->nreaders[checked] != 1 || q - k->fused_steps < 2 ||
        !fused_step_is_comparison(q - 1) || !fused_step_is_comparison(q - 2))
        return false;
    const dv__operand x = q[-2].to, y = q[-1].to;
    return ((q->a == x && q->b == y) || (q->a == y && q->b == x)) && fuse_find_source(k, x) && fuse_find_source(k, y) &&
        k->nreaders[x] == 1 && k->nreaders[y] == 1;
}

/* Fuses CHECK: merges it with the comparison before it, or with what the comparison reads; otherwise a CHECK is appended. */
static void fuse_add_check_step(struct fuser *k, const dv__step *s)
{
    dv__fused_step *q = k->last_step, *at;
    if (fuse_is_checked_and_of_comparisons(k, q, s->in[0])) {
        q[-2].op++, q[-1].op++;
        k->last_step = q - 1;
        k->n--;
        return;
    }
    if (!q || !fused_step_is_comparison(q) || q->to != s->in[0] || k->nreaders[s->in[0]] != 1) {
        fuse_append_step(k, DV__OP_CHECK, s);
        return;
    }
    q->op++;
    if (q->op == DV__FUSED_GE_CHECK && (at = fuse_find_previous_writer(k, q, DV__OP_FIRST_NEGATIVE, q->a)) && q->b < 0 &&
        !k->p->constants[-1 - q->b].i) {
        at->op = DV__FUSED_NONNEGATIVE_CHECK;
    } else if (q->op == DV__FUSED_EQ_CHECK &&
        ((at = fuse_find_previous_writer(k, q, DV__FUSED_SIZE_AT, q->a)) ||
            (at = fuse_find_previous_writer(k, q, DV__FUSED_SIZE_AT, q->b)))) {
        at->op = DV__FUSED_SIZE_AT_CHECK;
        at->b = at->to == q->a ? q->b : q->a;
    } else {
        return;
    }
    k->last_step = at;
    k->n--;
}

/* Returns the fused operation for a step's operation and type; the operation itself if there is no fused one. */
static int step_get_fused_opcode(const dv__step *s)
{
    switch ((enum dv__opcode)s->op) {
    case DV__OP_TENSOR: return DV__FUSED_LOAD_ARGUMENT;
    case DV__OP_SIZE_AT: return s->in[1] < 0 ? DV__FUSED_SIZE_AT : s->op;
    case DV__OP_ARGUMENT: return s->type == DV__TYPE_INT ? DV__FUSED_LOAD_INT : s->op;
    case DV__OP_SAME_DEVICE: return DV__FUSED_SAME_DEVICE;
#define ARITHMETIC(id, ...) \
    case DV__OP_##id: return s->type == DV__TYPE_INT ? DV__FUSED_##id : s->op;
#define COMPARISON(id, ...)                                      \
    case DV__OP_##id:                                            \
        if (s->type == DV__TYPE_INT || s->type == DV__TYPE_BOOL) \
            return DV__FUSED_##id;                               \
        break;
#include "lang/ops.def"
    default: return s->op;
    }
    const bool is_dtype = s->type == DV__TYPE_DTYPE, is_dims = s->type == DV__TYPE_DIMS;
    return s->op != DV__OP_EQ ? s->op : is_dtype ? DV__FUSED_SAME_DTYPE : is_dims ? DV__FUSED_SAME_DIMS : s->op;
}

/* Fuses one step that is no block and is not dropped. */
static void fuse_one_step(struct fuser *k, const dv__step *s)
{
    switch ((enum dv__opcode)s->op) {
    case DV__OP_DEVICE_OF:
    case DV__OP_DTYPE_OF:
    case DV__OP_SHAPE: fuse_load_property(k, s); return;
    case DV__OP_RANK: fuse_rank_step(k, s); return;
    case DV__OP_COPY: fuse_copy_step(k, s); return;
    case DV__OP_CHECK: fuse_add_check_step(k, s); return;
    default: break;
    }
    dv__fused_step *q = fuse_append_step(k, step_get_fused_opcode(s), s);
    if (q->op == DV__FUSED_SIZE_AT)
        q->slot = (int32_t)k->p->constants[-1 - s->in[1]].i;
    if (s->to >= 0)
        fuse_set_source(k, s->to, &q->to, q->op == DV__FUSED_LOAD_ARGUMENT ? q : NULL);
}

/* ---- Sequences of steps -------------------------------------------------------------------------------------------------- */

/* Returns the index of the first step after `after` that is not dropped; at most `end`. */
static uint32_t fuse_find_next_live_step_index(const struct fuser *k, uint32_t after, uint32_t end)
{
    for (after++; after < end && k->is_dead[after];)
        after++;
    return after;
}

/* Finds the check of a test, whether shapes broadcast or dtypes promote, that can be dropped: the operation itself follows the
 * check, and tests too. *check_step: the check's index. Returns false if the test is needed. */
static bool fuse_try_find_check_of_redundant_test(const struct fuser *k, uint32_t test, uint32_t end, uint32_t *check_step)
{
    const dv__step *s = &k->p->steps[test];
    if ((s->op != DV__OP_CAN_BROADCAST && s->op != DV__OP_CAN_PROMOTE) || k->nreaders[s->to] != 1)
        return false;
    const uint32_t j = fuse_find_next_live_step_index(k, test, end),
                   m = j < end ? fuse_find_next_live_step_index(k, j, end) : end;
    if (m == end)
        return false;
    const dv__step *c = &k->p->steps[j], *t = &k->p->steps[m];
    *check_step = j;
    return c->op == DV__OP_CHECK && c->in[0] == s->to && c->guard == s->guard && t->op == s->op + 1 && t->guard == s->guard &&
        t->ninputs == s->ninputs && !memcmp(dv__step_get_operands(t), dv__step_get_operands(s), s->ninputs * sizeof *s->in);
}

/* True if a section of the program begins at this step. */
static bool step_index_begins_section(const dv__program *p, uint32_t step)
{
    bool is = step == p->after_simple || step == p->solve_end_step || step == p->workspace.begin || step == p->flops.begin ||
        step == p->bytes.begin;
    for (uint32_t k = 0; k < p->nresults && !is; k++)
        is = step == p->results[k].section.begin || step == p->results[k].list_count.begin;
    return is;
}

static void fuse_all_steps(struct fuser *k, uint32_t begin, uint32_t end);

/* Fuses a block and its body. The block's fused step gets the number of the body's fused steps. */
static void fuse_block_step(struct fuser *k, uint32_t block)
{
    const dv__step *step = &k->p->steps[block];
    dv__fused_step *q = fuse_append_step(k, step->op, step), *open = k->skip_step;
    const dv__operand guard = k->guard;
    k->skip_step = NULL;
    k->block_depth++;
    fuse_all_steps(k, block + 1, block + 1 + (uint32_t)step->body_size);
    k->block_depth--;
    q->slot = (int32_t)(&k->fused_steps[k->n] - q) - 1;
    k->skip_step = open;
    k->guard = guard;
}

/* Fuses the steps from begin to end, in a scope of their own. */
static void fuse_all_steps(struct fuser *k, uint32_t begin, uint32_t end)
{
    k->scope++;
    k->guard = DV__ALWAYS;
    k->last_step = NULL;
    for (uint32_t i = begin; i < end; i++) {
        const dv__step *s = &k->p->steps[i];
        uint32_t check;
        if (!k->block_depth && step_index_begins_section(k->p, i)) {
            fuse_close_skip(k);
            k->scope++;
        }
        k->step_begin[i] = (uint16_t)k->n;
        if (k->is_dead[i])
            continue;
        fuse_open_skip(k, s->guard);
        if (fuse_try_find_check_of_redundant_test(k, i, end, &check)) {
            for (; i < check; i++)
                k->step_begin[i + 1] = (uint16_t)k->n;
        } else if (dv__step_is_block(s)) {
            fuse_block_step(k, i);
            i += (uint32_t)s->body_size;
            k->scope++;
            k->last_step = NULL;
        } else {
            fuse_one_step(k, s);
        }
    }
    fuse_close_skip(k);
    k->step_begin[end] = (uint16_t)k->n;
}

/* Lets steps that load a tensor which nothing reads any more write to the unused register. */
static void fuse_drop_unused_tensors(struct fuser *k)
{
    for (uint32_t i = 0; i < k->n; i++)
        if (k->fused_steps[i].op == DV__FUSED_LOAD_ARGUMENT && !k->nreaders[k->fused_steps[i].to])
            k->fused_steps[i].to = k->unused_register;
}

/* Builds the fused program of p. Returns DV_OK or DV_ENOMEM. */
int dv__program_fuse(const dv__contract *c, dv__program *p, dv__arena *arena)
{
    struct fuser k = { .c = c, .p = p, .guard = DV__ALWAYS, .unused_register = (dv__operand)p->nregisters };
    const size_t capacity = 3 * (size_t)p->nsteps + 1;
    k.fused_steps = dv__calloc(capacity, sizeof *k.fused_steps);
    k.nreaders = dv__calloc(p->nregisters + 1u, sizeof *k.nreaders);
    k.is_dead = dv__calloc(p->nsteps + 1u, sizeof *k.is_dead);
    k.sources = dv__calloc(p->nregisters + 1u, sizeof *k.sources);
    k.step_begin = DV__ARENA_ARRAY(arena, uint16_t, p->nsteps + 1u);
    int status = k.fused_steps && k.nreaders && k.is_dead && k.sources && k.step_begin ? DV_OK : DV_ENOMEM;
    if (!status) {
        fuse_count_result_reads(&k);
        fuse_count_step_reads(&k);
        fuse_all_steps(&k, 0, p->nsteps);
        fuse_drop_unused_tensors(&k);
        p->fused = DV__ARENA_ARRAY(arena, dv__fused_step, k.n + 1u);
        p->fused_step_index = k.step_begin;
        status = p->fused ? DV_OK : DV_ENOMEM;
    }
    if (!status)
        memcpy(p->fused, k.fused_steps, k.n * sizeof *k.fused_steps);
    dv__free(k.fused_steps);
    dv__free(k.nreaders);
    dv__free(k.is_dead);
    dv__free(k.sources);
    return status;
}
