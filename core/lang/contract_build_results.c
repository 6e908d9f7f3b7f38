/* Builds the steps of results and costs, each in a separate section that depends only on the variables. */
#include "lang/contract_build.h"

/* "result 'out': ", "result 'outs[1]': " */
static dv__part *result_label(dv__builder *b, const dv__pattern *t)
{
    dv__part *p = *t->name ? dv__part_text(b, "result '%s", t->name)
                           : dv__part_text(b, "result %d", (int)t->slot - (int)b->c->schema->nargs);
    if (b->index != DV__NEVER)
        p = dv__then(dv__then(dv__then(p, dv__part_text(b, "[")), dv__show(b, b->index)), dv__part_text(b, "]"));
    return dv__then(p, dv__part_text(b, *t->name ? "': " : ": "));
}

static void check_result(dv__builder *b, const dv__pattern *t, dv__operand holds, dv__operand guard, int status, dv__part *what)
{
    if (dv__may_fail(b, holds, guard))
        dv__check(b, holds, guard, status, dv__then(result_label(b, t), what));
}

static const dv__fault *result_fault(dv__builder *b, const dv__pattern *t, int status, dv__part *what)
{
    return dv__fault_new(b, status, dv__then(result_label(b, t), what));
}

/* The argument that a result is like, or a view of. */
static dv__operand tensor_in(dv__builder *b, const dv__pattern *t, int32_t slot, dv__operand g, const char *what)
{
    const dv__operand there = dv__present(b, slot);
    if (dv__type_of_argument(b->c->schema->args[slot].type) == DV__CTYPE_TENSORS)
        return dv__own_tensor(b, slot, g);
    check_result(b, t, there, g, DV_EINVAL,
        dv__part_text(b, "expected a tensor in '%s'%s, found None", b->c->schema->args[slot].name, what));
    return dv__load(b, DV__OP_TENSOR, DV__RTYPE_TENSOR, dv__and(b, g, there), slot);
}

/* ---- Shapes -------------------------------------------------------------------------------------------------------------- */

static void check_size(dv__builder *b, const dv__pattern *t, const dv__item *item, dv__operand size, dv__operand g)
{
    dv__part *p = dv__then(dv__part_text(b, "expected a size, found %s = ", item->text), dv__show(b, size));
    dv__needs needs = item->needs;
    for (uint32_t i = 0; i < b->c->ndims; i++)
        if (t->index && b->c->dims[i].index) /* n is total(n), not n{i} */
            needs.dims &= ~(1ull << i);
    dv__part *with = dv__variables(b, needs, dv__join(b, " with ", ""));
    const dv__operand fine = dv__op2(b, DV__OP_GE, DV__RTYPE_INT, g, size, dv__int(b, 0));
    check_result(b, t, fine, g, DV_ESHAPE, with && with->then ? dv__then(p, with) : p);
}

/* Can it be negative? Sizes bound by a pattern cannot. */
static bool may_be_negative(const dv__builder *b, const dv__item *item)
{
    return item->kind == DV__ITEM_EXPR || item->kind == DV__ITEM_RUNS ||
        (item->kind == DV__ITEM_VAR && (b->c->dims[item->ref].defined || b->c->dims[item->ref].unbacked));
}

static dv__operand make_dims(dv__builder *b, const dv__pattern *t, const dv__dims *dims, dv__operand g, bool sizes)
{
    dv__operand in[255] = { 0 };
    if (dims->n == 1 && dims->items->kind == DV__ITEM_RUN)
        return dv__run_register(b->c, dims->items->ref);
    if (dims->n > 255)
        b->status = dv__fail_at(DV_ELIMIT, b->c->text, t->at, "more than 255 dims");
    for (uint32_t i = 0; i < dims->n && !b->status; i++) {
        const dv__item *item = &dims->items[i];
        b->where = item->text;
        in[i] = dv__value(b, item->e, g);
        if (sizes && may_be_negative(b, item))
            check_size(
                b, t, item, item->e->type == DV__CTYPE_RUN ? dv__op1(b, DV__OP_NEGATIVE, DV__RTYPE_INT, g, in[i]) : in[i], g);
    }
    if (dims->n == 1 && dims->items->e->type == DV__CTYPE_RUN)
        return in[0];
    const dv__fault *many = result_fault(b, t, DV_ESHAPE, dv__part_text(b, "expected at most %d dims", DV_MAX_NDIM));
    return dv__emit(b, DV__OP_PACK, DV__RTYPE_DIMS, g, dims->n, in, 0, many);
}

/* ---- Views --------------------------------------------------------------------------------------------------------------- */

static dv__operand at(dv__builder *b, dv__operand dims, dv__operand i, dv__operand g)
{
    return dv__op2(b, DV__OP_AT, DV__RTYPE_INT, g, dims, i);
}

static dv__operand axis_of(dv__builder *b, const dv__pattern *t, dv__operand dim, dv__operand n, dv__operand g)
{
    const dv__operand below = dv__op1(b, DV__OP_NEG, DV__RTYPE_INT, g, n);
    const dv__operand fits = dv__and(
        b, dv__op2(b, DV__OP_GE, DV__RTYPE_INT, g, dim, below), dv__op2(b, DV__OP_LT, DV__RTYPE_INT, g, dim, n));
    const dv__hush hush = dv__quietly(b);
    const dv__operand most = dv__op2(b, DV__OP_SUB, DV__RTYPE_INT, g, n, dv__int(b, 1));
    dv__aloud(b, hush);
    dv__part *p = dv__then(dv__part_text(b, "expected a dim from "), dv__show(b, below));
    p = dv__then(dv__then(p, dv__part_text(b, " to ")), dv__show(b, most));
    check_result(b, t, fits, g, DV_EINVAL, dv__then(dv__then(p, dv__part_text(b, ", found ")), dv__show(b, dim)));
    const dv__operand negative = dv__op2(b, DV__OP_LT, DV__RTYPE_INT, g, dim, dv__int(b, 0));
    return dv__select(b, g, negative, dv__op2(b, DV__OP_ADD, DV__RTYPE_INT, g, dim, n), dim);
}

static void permute(dv__builder *b, const dv__pattern *t, dv__result *r, dv__operand rank, dv__operand g)
{
    const dv__expr *list = t->transform->args[0];
    const dv__operand there = dv__present(b, list->ref);
    const dv__operand order = dv__load(b, DV__OP_ARGUMENT, DV__RTYPE_DIMS, dv__and(b, g, there), list->ref);
    const dv__operand n = dv__op1(b, DV__OP_RANK, DV__RTYPE_INT, g, order);
    const dv__operand fits = dv__op2(b, DV__OP_EQ, DV__RTYPE_INT, g, n, rank);
    dv__part *p = dv__then(dv__part_text(b, "expected "), dv__show(b, rank));
    check_result(b, t, there, g, DV_EINVAL, dv__then(p, dv__part_text(b, " dims in '%s'", list->name)));
    p = dv__then(dv__part_text(b, "expected "), dv__show(b, rank));
    check_result(b, t, fits, g, DV_EINVAL, dv__then(p, dv__part_text(b, " dims in '%s'", list->name)));
    const dv__operand are = dv__op2(b, DV__OP_ARE_AXES, DV__RTYPE_BOOL, g, order, rank);
    const dv__operand once = dv__op2(b, DV__OP_DISTINCT_AXES, DV__RTYPE_BOOL, g, order, rank);
    p = dv__then(dv__part_text(b, "'%s' is not a permutation: found [", list->name), dv__show(b, order));
    check_result(b, t, dv__and(b, are, once), g, DV_EINVAL, dv__then(p, dv__part_text(b, "]")));
    r->transform[0] = order;
    r->shape = dv__op2(b, DV__OP_PERMUTE, DV__RTYPE_DIMS, g, r->shape, order);
    r->strides = dv__op2(b, DV__OP_PERMUTE, DV__RTYPE_DIMS, g, r->strides, order);
}

enum { SWAP, PERMUTE, NARROW, SELECT }; /* as contract_resolve.c numbers them */

/* swap(a, b), permute(dims), narrow(dim, start, length), select(dim, index) of a tensor's shape and strides. */
static void transform(dv__builder *b, const dv__pattern *t, dv__result *r, dv__operand g)
{
    const dv__expr *e = t->transform;
    const dv__operand rank = dv__op1(b, DV__OP_RANK, DV__RTYPE_INT, g, r->shape), zero = dv__int(b, 0), one = dv__int(b, 1);
    b->where = t->text;
    if (e->ref == PERMUTE) {
        permute(b, t, r, rank, g);
        return;
    }
    if (e->ref != SWAP)
        check_result(b, t, dv__op2(b, DV__OP_GT, DV__RTYPE_INT, g, rank, zero), g, DV_ESHAPE,
            dv__part_text(b, "expected at least one dim in '%s'", b->c->schema->args[t->view_of].name));
    const dv__operand n = dv__op2(b, DV__OP_MAX, DV__RTYPE_INT, g, rank, one);
    const dv__operand dim = axis_of(b, t, dv__value(b, e->args[0], g), n, g);
    r->transform[0] = dim;
    if (e->ref == SWAP) {
        const dv__operand other = axis_of(b, t, dv__value(b, e->args[1], g), n, g);
        r->transform[1] = other;
        r->shape = dv__op3(b, DV__OP_SWAP, DV__RTYPE_DIMS, g, r->shape, dim, other);
        r->strides = dv__op3(b, DV__OP_SWAP, DV__RTYPE_DIMS, g, r->strides, dim, other);
        return;
    }
    const dv__operand size = at(b, r->shape, dim, g);
    dv__operand start = dv__value(b, e->args[1], g);
    if (e->ref == SELECT)
        start = axis_of(b, t, start, size, g);
    r->transform[1] = start;
    dv__part *shape = dv__then(
        dv__part_text(b, "expected a size in bytes that fits 64 bits, found shape ["), dv__show(b, r->shape));
    const dv__operand in[] = { start, at(b, r->strides, dim, g) };
    if (e->ref == NARROW) {
        const dv__operand length = dv__value(b, e->args[2], g);
        r->transform[2] = length;
        dv__operand fits = dv__op2(b, DV__OP_GE, DV__RTYPE_INT, g, start, zero);
        fits = dv__and(b, fits, dv__op2(b, DV__OP_GE, DV__RTYPE_INT, g, length, zero));
        fits = dv__and(b, fits, dv__op2(b, DV__OP_LE, DV__RTYPE_INT, g, start, size));
        const dv__operand room = dv__op2(b, DV__OP_SUB, DV__RTYPE_INT, fits, size, start);
        fits = dv__and(b, fits, dv__op2(b, DV__OP_LE, DV__RTYPE_INT, fits, length, room));
        dv__part *p = dv__then(dv__part_text(b, "expected start and length inside "), dv__show(b, size));
        p = dv__then(dv__then(p, dv__part_text(b, ", found ")), dv__show(b, start));
        p = dv__then(dv__then(p, dv__part_text(b, " and ")), dv__show(b, length));
        check_result(b, t, fits, g, DV_ESHAPE, p);
        r->shape = dv__op3(b, DV__OP_REPLACE, DV__RTYPE_DIMS, g, r->shape, dim, length);
    } else {
        r->shape = dv__op2(b, DV__OP_DROP, DV__RTYPE_DIMS, g, r->shape, dim);
        r->strides = dv__op2(b, DV__OP_DROP, DV__RTYPE_DIMS, g, r->strides, dim);
    }
    r->offset = dv__emit(
        b, DV__OP_MUL, DV__RTYPE_INT, g, 2, in, 0, result_fault(b, t, DV_ESHAPE, dv__then(shape, dv__part_text(b, "]"))));
}

static void make_view(dv__builder *b, const dv__pattern *t, dv__result *r, dv__operand g)
{
    const dv__operand x = tensor_in(b, t, t->view_of, g, " for view()");
    r->shape = dv__op1(b, DV__OP_SHAPE, DV__RTYPE_DIMS, g, x);
    r->strides = dv__op1(b, DV__OP_STRIDES, DV__RTYPE_DIMS, g, x);
    if (t->transform) {
        transform(b, t, r, g);
    } else {
        const dv__operand whole = r->shape;
        r->shape = make_dims(b, t, &t->dims, g, true);
        const dv__operand n = dv__op1(b, DV__OP_RANK, DV__RTYPE_INT, g, r->shape);
        dv__part *p;
        if (t->has_strides) {
            p = dv__then(dv__part_text(b, "expected "), dv__show(b, n));
            check_result(b, t, dv__op2(b, DV__OP_EQ, DV__RTYPE_INT, g, n, dv__int(b, t->strides.n)), g, DV_ESHAPE,
                dv__then(p, dv__part_text(b, " strides, found %u", t->strides.n)));
            r->strides = make_dims(b, t, &t->strides, g, false);
        } else {
            p = dv__part_text(b, "a view with other dims than '%s' needs strides[...]", b->c->schema->args[t->view_of].name);
            const dv__operand rank = dv__op1(b, DV__OP_RANK, DV__RTYPE_INT, g, whole);
            check_result(b, t, dv__op2(b, DV__OP_EQ, DV__RTYPE_INT, g, n, rank), g, DV_ESHAPE, p);
        }
    }
    b->where = t->text;
    if (t->offset)
        r->offset = dv__value(b, t->offset, g);
}

/* ---- Results ------------------------------------------------------------------------------------------------------------- */

static dv__operand result_device(dv__builder *b, const dv__pattern *t)
{
    const dv__operand same = dv__device_register(b->c);
    if (t->on == DV__ON_CPU)
        return dv__literal(b, DV__RTYPE_DEVICE, (dv__reg){ .device = { DV_CPU, 0 } });
    if (t->on != DV__ON_ARGUMENT)
        return same;
    const dv__operand there = dv__present(b, t->on_slot);
    return dv__select(b, DV__ALWAYS, there, dv__load(b, DV__OP_ARGUMENT, DV__RTYPE_DEVICE, there, t->on_slot), same);
}

static void make_result(dv__builder *b, const dv__pattern *t, dv__result *r)
{
    const dv__operand g = DV__ALWAYS; /* a section is run only where its case was taken */
    b->who = NULL;
    b->where = t->text;
    r->kind = t->presence == DV__ABSENT ? DV__RESULT_ABSENT
        : t->is_argument >= 0           ? DV__RESULT_ARGUMENT
        : t->dims.any                   ? DV__RESULT_FUNCTION
        : t->view_of >= 0               ? DV__RESULT_VIEW
        : t->like >= 0                  ? DV__RESULT_LIKE
                                        : DV__RESULT_NEW;
    r->of = t->is_argument >= 0 ? t->is_argument : t->view_of >= 0 ? t->view_of : t->like;
    r->dtype = r->device = r->shape = r->strides = r->offset = r->transform[0] = r->transform[1] = r->transform[2] = DV__NEVER;
    if (r->kind == DV__RESULT_ARGUMENT)
        tensor_in(b, t, t->is_argument, g, "");
    if (r->kind == DV__RESULT_ABSENT || r->kind == DV__RESULT_ARGUMENT || r->kind == DV__RESULT_FUNCTION)
        return;
    r->device = result_device(b, t);
    r->dtype = dv__value(b, t->dtype.alternatives[0], g);
    if (r->kind == DV__RESULT_VIEW) {
        make_view(b, t, r, g);
        return;
    }
    r->shape = make_dims(b, t, &t->dims, g, true);
    if (r->kind == DV__RESULT_LIKE) {
        const dv__operand x = tensor_in(b, t, t->like, g, " for like()");
        const dv__operand rank = dv__op1(b, DV__OP_RANK, DV__RTYPE_INT, g, dv__op1(b, DV__OP_SHAPE, DV__RTYPE_DIMS, g, x));
        const dv__operand n = dv__op1(b, DV__OP_RANK, DV__RTYPE_INT, g, r->shape);
        dv__part *p = dv__part_text(b, "expected as many dims as '%s' has, ", b->c->schema->args[t->like].name);
        p = dv__then(dv__then(p, dv__show(b, rank)), dv__part_text(b, ", for like(), found "));
        check_result(b, t, dv__op2(b, DV__OP_EQ, DV__RTYPE_INT, g, n, rank), g, DV_ESHAPE, dv__then(p, dv__show(b, n)));
    }
}

static void open_section(dv__builder *b, dv__section *s)
{
    b->fresh = s->begin = b->p->nsteps;
    s->value = DV__ALWAYS;
}

/* How many tensors a list has, in a section of its own. */
static void make_count(dv__builder *b, const dv__pattern *t, dv__result *r)
{
    open_section(b, &r->count);
    r->count.value = r->index = b->index = DV__NEVER;
    if (t->kind == DV__PATTERN_LIST && t->count) {
        const dv__operand n = dv__value(b, t->count, DV__ALWAYS);
        dv__part *p = dv__then(dv__part_text(b, "expected a number of tensors, found "), dv__show(b, n));
        dv__part *with = dv__variables(b, t->count_needs, dv__join(b, " with ", ""));
        check_result(b, t, dv__op2(b, DV__OP_GE, DV__RTYPE_INT, DV__ALWAYS, n, dv__int(b, 0)), DV__ALWAYS, DV_ESHAPE,
            with && with->then ? dv__then(p, with) : p);
        r->count.value = n;
    } else if (t->kind == DV__PATTERN_LIST && t->presence != DV__ABSENT) {
        r->count.value = dv__own_count(b, t);
    }
    r->count.end = b->p->nsteps;
    if (r->count.value != DV__NEVER)
        r->index = dv__new_register(b, DV__RTYPE_INT);
    b->index = r->index;
}

static void make_cost(dv__builder *b, dv__section *s, const dv__expr *e, const char *where)
{
    open_section(b, s);
    b->who = NULL;
    b->where = where;
    if (e && e == b->c->workspace) {
        s->value = dv__value(b, e, DV__ALWAYS);
        const dv__operand fine = dv__op2(b, DV__OP_GE, DV__RTYPE_INT, DV__ALWAYS, s->value, dv__int(b, 0));
        if (dv__may_fail(b, fine, DV__ALWAYS))
            dv__check(b, fine, DV__ALWAYS, DV_ESHAPE,
                dv__then(dv__part_text(b, "workspace: expected a size, found "), dv__show(b, s->value)));
    } else if (e) {
        s->value = dv__real_value(b, e, DV__ALWAYS);
    }
    s->end = b->p->nsteps;
}

void dv__build_results(dv__builder *b)
{
    dv__program *p = b->p;
    p->results = DV__ARENA_ARRAY(b->arena, dv__result, b->c->noutputs);
    if (!p->results) {
        b->status = DV_ENOMEM;
        return;
    }
    for (uint32_t i = 0; i < b->c->noutputs && !b->status; i++) {
        const dv__pattern *t = &b->c->outputs[i];
        dv__result *r = &p->results[p->nresults++];
        memset(r, 0, sizeof *r);
        r->pattern = t;
        r->slot = t->slot;
        r->guard = dv__case_taken(b, t->when);
        b->who = NULL;
        b->where = t->text;
        b->list = t;
        make_count(b, t, r);
        open_section(b, &r->section);
        make_result(b, t, r);
        r->section.end = p->nsteps;
    }
    make_cost(b, &p->workspace, b->c->workspace, "workspace");
    make_cost(b, &p->flops, b->c->flops, "flops");
    make_cost(b, &p->bytes, b->c->bytes, "bytes");
}

/* ---- The whole ------------------------------------------------------------------------------------------------------------ */

static dv__builder *builder_new(const dv__contract *c, dv__program *p, dv__arena *arena)
{
    dv__builder *b = dv__calloc(1, sizeof *b);
    if (!b)
        return NULL;
    memset(p, 0, sizeof *p);
    b->c = c;
    b->p = p;
    b->arena = arena;
    b->valid = DV__ALWAYS;
    for (uint32_t i = 0; i < c->nasides; i++)
        b->asides[i].pending = DV__NEVER;
    dv__literal(b, DV__RTYPE_BOOL, (dv__reg){ .i = 1 }); /* DV__ALWAYS */
    dv__literal(b, DV__RTYPE_BOOL, (dv__reg){ .i = 0 }); /* DV__NEVER */
    return b;
}

static void add_variables(dv__builder *b)
{
    const dv__contract *c = b->c;
    for (uint32_t i = 0; i < c->ndims; i++)
        dv__new_register(b, DV__RTYPE_INT), b->dims[i] = DV__NEVER;
    for (uint32_t i = 0; i < c->nruns; i++)
        dv__new_register(b, DV__RTYPE_DIMS), b->runs[i] = DV__NEVER;
    for (uint32_t i = 0; i < c->ndtypes; i++)
        dv__new_register(b, DV__RTYPE_DTYPE), b->dtypes[i] = DV__NEVER;
    dv__new_register(b, DV__RTYPE_DEVICE);
    b->device = DV__NEVER;
}

/* All variables count as bound: the prover has checked those that results need, and predicates test theirs first. */
static void bind_everything(dv__builder *b)
{
    for (uint32_t i = 0; i < b->c->ndims; i++)
        b->dims[i] = DV__ALWAYS;
    for (uint32_t i = 0; i < b->c->nruns; i++)
        b->runs[i] = DV__ALWAYS;
    for (uint32_t i = 0; i < b->c->ndtypes; i++)
        b->dtypes[i] = DV__ALWAYS;
}

int dv__contract_build(dv__contract *c)
{
    dv__program *p = DV__ARENA_NEW(&c->arena, dv__program);
    dv__builder *b = p ? builder_new(c, p, &c->arena) : NULL;
    if (!b)
        return DV_ENOMEM;
    c->program = p;
    add_variables(b);
    dv__build_patterns(b);
    if (!b->status)
        dv__build_settle(b);
    if (!b->status)
        dv__build_constraints(b);
    p->solve_end = p->nsteps;
    int status = b->status ? b->status : dv__contract_prove(b);
    if (!status) {
        bind_everything(b);
        dv__build_results(b);
        status = b->status ? b->status : dv__quicken(c, p, &c->arena);
    }
    dv__free(b);
    return status;
}

int dv__predicate_build(const dv__contract *c, dv__predicate *to, const dv__expr *e, dv__arena *arena)
{
    dv__program *p = &to->program;
    dv__builder *b = builder_new(c, p, arena);
    if (!b)
        return DV_ENOMEM;
    for (uint32_t i = 0; i < c->program->nregisters; i++) /* it runs after the contract's program, in the same registers */
        dv__new_register(b, (enum dv__rtype)c->program->types[i]);
    memcpy(p->taken, c->program->taken, sizeof p->taken);
    bind_everything(b);
    b->where = "a row's predicate";
    open_section(b, &to->section);
    to->section.value = dv__value(b, e, DV__ALWAYS);
    to->section.end = p->nsteps;
    to->needs = dv__contract_needs(c, e);
    p->workspace = to->section; /* counts as a reader of its value */
    const int status = b->status ? b->status : dv__quicken(c, p, arena);
    dv__free(b);
    return status;
}
