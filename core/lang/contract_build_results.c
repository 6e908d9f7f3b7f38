/* Builds the steps of results and costs, each in a separate section that depends only on the variables. */
#include "lang/contract_build.h"

/* Returns the message part "result 'out': ", or "result 'outs[1]': " in a returned list. */
static dv__message_part *result_make_message_subject(dv__builder *b, const dv__pattern *t)
{
    const bool is_in_list = b->list_index_reg != DV__NEVER;
    dv__message_part *p = *t->name ? dv__message(b, "result '%s", t->name)
                                   : dv__message(b, "result %d", (int)t->slot - (int)b->c->schema->nargs);
    return dv__message(b, "%m%m%s", p, is_in_list ? dv__message(b, "[%r]", b->list_index_reg) : NULL, *t->name ? "': " : ": ");
}

/* Emits a check whose message begins with the result's name. */
static void result_emit_check(
    dv__builder *b, const dv__pattern *t, dv__operand holds, dv__operand guard, int status, dv__message_part *message)
{
    if (dv__condition_can_fail(b, holds, guard))
        dv__emit_check(b, holds, guard, status, dv__message(b, "%m%m", result_make_message_subject(b, t), message));
}

/* Returns the error of a step, whose message begins with the result's name. */
static const dv__step_error *result_error_new(dv__builder *b, const dv__pattern *t, int status, dv__message_part *message)
{
    return dv__step_error_new(b, status, dv__message(b, "%m%m", result_make_message_subject(b, t), message));
}

/* Emits the load of the argument that a result is like, a view of, or the same as; for a list, of its tensor at the result's
 * index. Returns the register. */
static dv__operand result_emit_source_tensor(
    dv__builder *b, const dv__pattern *t, int32_t slot, dv__operand g, const char *purpose)
{
    const dv__operand is_present = dv__emit_present(b, slot);
    if (dv__type_get_contract_kind(b->c->schema->args[slot].type) == DV__TYPE_TENSORS)
        return dv__emit_list_result_input(b, slot, g);
    result_emit_check(b, t, is_present, g, DV_EINVAL,
        dv__message(b, "expected a tensor in '%s'%s, found None", b->c->schema->args[slot].name, purpose));
    return dv__emit_load(b, DV__OP_TENSOR, DV__TYPE_TENSOR, dv__emit_and(b, g, is_present), slot);
}

/* ---- Shapes -------------------------------------------------------------------------------------------------------------- */

/* Emits the check that a computed size of a result is not negative. */
static void result_emit_nonnegative_check(
    dv__builder *b, const dv__pattern *t, const dv__dim_item *item, dv__operand size, dv__operand g)
{
    dv__var_set needs = item->vars;
    for (uint32_t i = 0; i < b->c->ndims; i++)
        if (t->index_name && b->c->dims[i].index_name) /* here n would be printed as total(n), not as n{i} */
            needs.dims &= ~(1ull << i);
    const dv__operand is_valid = dv__emit_op2(b, DV__OP_GE, DV__TYPE_INT, g, size, dv__builder_int_literal(b, 0));
    result_emit_check(b, t, is_valid, g, DV_ESHAPE,
        dv__message(b, "expected a size, found %s = %r%m", item->text, size,
            dv__message_add_variables(b, needs, dv__message_join_new(b, " with ", ""))));
}

/* True if a result's size can be negative, so that a check is needed. A size that an argument's pattern binds cannot be
 * negative. */
static bool dim_item_can_be_negative(const dv__builder *b, const dv__dim_item *item)
{
    return item->kind == DV__DIM_COMPUTED || item->kind == DV__DIM_COMPUTED_VARIADIC ||
        (item->kind == DV__DIM_VAR && (b->c->dims[item->ref].defined || b->c->dims[item->ref].is_unbacked));
}

/* Emits the shape of a result or, if are_sizes is false, the strides of a view. Returns the register. */
static dv__operand result_emit_dims(dv__builder *b, const dv__pattern *t, const dv__dims *dims, dv__operand guard, bool are_sizes)
{
    dv__operand in[255] = { 0 };
    if (dims->n == 1 && dims->items->kind == DV__DIM_VARIADIC)
        return dv__variadic_register(b->c, dims->items->ref);
    if (dims->n > 255)
        b->status = dv__fail_at_column(DV_ELIMIT, b->c->text, t->at, "more than 255 dims");
    for (uint32_t i = 0; i < dims->n && !b->status; i++) {
        const dv__dim_item *item = &dims->items[i];
        b->message_text = item->text;
        in[i] = dv__emit_expr(b, item->e, guard);
        if (are_sizes && dim_item_can_be_negative(b, item))
            result_emit_nonnegative_check(b, t, item,
                item->e->type == DV__TYPE_DIMS ? dv__emit_op1(b, DV__OP_FIRST_NEGATIVE, DV__TYPE_INT, guard, in[i]) : in[i],
                guard);
    }
    if (dims->n == 1 && dims->items->e->type == DV__TYPE_DIMS)
        return in[0];
    const dv__step_error *too_many_error = result_error_new(
        b, t, DV_ESHAPE, dv__message(b, "expected at most %d dims", DV_MAX_NDIM));
    return dv__emit_op(b, DV__OP_PACK, DV__TYPE_DIMS, guard, dims->n, in, 0, too_many_error);
}

/* ---- Views --------------------------------------------------------------------------------------------------------------- */

/* Emits the entry of dims at an index. Returns its register. */
static dv__operand result_emit_size_at(dv__builder *b, dv__operand dims, dv__operand index, dv__operand guard)
{
    return dv__emit_op2(b, DV__OP_SIZE_AT, DV__TYPE_INT, guard, dims, index);
}

/* Emits the check that dim is from -rank to rank - 1, and the dim counted from 0. Returns the latter's register. */
static dv__operand result_emit_axis(dv__builder *b, const dv__pattern *t, dv__operand dim, dv__operand rank, dv__operand guard)
{
    const dv__operand below = dv__emit_op1(b, DV__OP_NEG, DV__TYPE_INT, guard, rank);
    const dv__operand fits = dv__emit_and(b, dv__emit_op2(b, DV__OP_GE, DV__TYPE_INT, guard, dim, below),
        dv__emit_op2(b, DV__OP_LT, DV__TYPE_INT, guard, dim, rank));
    const dv__message_scope scope = dv__message_scope_begin(b);
    const dv__operand most = dv__emit_op2(b, DV__OP_SUB, DV__TYPE_INT, guard, rank, dv__builder_int_literal(b, 1));
    dv__message_scope_end(b, scope);
    result_emit_check(b, t, fits, guard, DV_EINVAL, dv__message(b, "expected a dim from %r to %r, found %r", below, most, dim));
    const dv__operand negative = dv__emit_op2(b, DV__OP_LT, DV__TYPE_INT, guard, dim, dv__builder_int_literal(b, 0));
    return dv__emit_select(b, guard, negative, dv__emit_op2(b, DV__OP_ADD, DV__TYPE_INT, guard, dim, rank), dim);
}

/* Emits shape and strides of view(x).permute(dims), with the check that dims is a permutation. Sets the registers in *r. */
static void result_emit_view_permute(dv__builder *b, const dv__pattern *t, dv__program_result *r, dv__operand rank, dv__operand g)
{
    const dv__expr *list = t->view_transform->args[0];
    const dv__operand is_present = dv__emit_present(b, list->ref);
    const dv__operand order = dv__emit_load(b, DV__OP_ARGUMENT, DV__TYPE_DIMS, dv__emit_and(b, g, is_present), list->ref);
    const dv__operand n = dv__emit_op1(b, DV__OP_RANK, DV__TYPE_INT, g, order);
    const dv__operand fits = dv__emit_op2(b, DV__OP_EQ, DV__TYPE_INT, g, n, rank);
    result_emit_check(b, t, is_present, g, DV_EINVAL, dv__message(b, "expected %r dims in '%s'", rank, list->name));
    result_emit_check(b, t, fits, g, DV_EINVAL, dv__message(b, "expected %r dims in '%s'", rank, list->name));
    const dv__operand are_axes_valid = dv__emit_op2(b, DV__OP_ARE_AXES, DV__TYPE_BOOL, g, order, rank);
    const dv__operand are_axes_distinct = dv__emit_op2(b, DV__OP_DISTINCT_AXES, DV__TYPE_BOOL, g, order, rank);
    result_emit_check(b, t, dv__emit_and(b, are_axes_valid, are_axes_distinct), g, DV_EINVAL,
        dv__message(b, "'%s' is not a permutation: found [%r]", list->name, order));
    r->transform[0] = order;
    r->shape = dv__emit_op2(b, DV__OP_PERMUTE, DV__TYPE_DIMS, g, r->shape, order);
    r->strides = dv__emit_op2(b, DV__OP_PERMUTE, DV__TYPE_DIMS, g, r->strides, order);
}

/* Applies swap(a, b), permute(dims), narrow(dim, start, length) or select(dim, index) to the shape and strides in *view, which
 * must hold those of the viewed tensor. Sets view->offset for narrow and select. */
static void result_emit_view_transform(dv__builder *b, const dv__pattern *pattern, dv__program_result *view, dv__operand guard)
{
    const dv__expr *e = pattern->view_transform;
    const dv__operand rank = dv__emit_op1(b, DV__OP_RANK, DV__TYPE_INT, guard, view->shape), zero = dv__builder_int_literal(b, 0),
                      one = dv__builder_int_literal(b, 1);
    b->message_text = pattern->text;
    if (e->ref == DV__VIEW_PERMUTE) {
        result_emit_view_permute(b, pattern, view, rank, guard);
        return;
    }
    if (e->ref != DV__VIEW_SWAP)
        result_emit_check(b, pattern, dv__emit_op2(b, DV__OP_GT, DV__TYPE_INT, guard, rank, zero), guard, DV_ESHAPE,
            dv__message(b, "expected at least one dim in '%s'", b->c->schema->args[pattern->viewed_slot].name));
    const dv__operand n = dv__emit_op2(b, DV__OP_MAX, DV__TYPE_INT, guard, rank, one);
    const dv__operand dim = result_emit_axis(b, pattern, dv__emit_expr(b, e->args[0], guard), n, guard);
    view->transform[0] = dim;
    if (e->ref == DV__VIEW_SWAP) {
        const dv__operand other = result_emit_axis(b, pattern, dv__emit_expr(b, e->args[1], guard), n, guard);
        view->transform[1] = other;
        view->shape = dv__emit_op3(b, DV__OP_SWAP, DV__TYPE_DIMS, guard, view->shape, dim, other);
        view->strides = dv__emit_op3(b, DV__OP_SWAP, DV__TYPE_DIMS, guard, view->strides, dim, other);
        return;
    }
    const dv__operand size = result_emit_size_at(b, view->shape, dim, guard);
    dv__operand start = dv__emit_expr(b, e->args[1], guard);
    if (e->ref == DV__VIEW_SELECT)
        start = result_emit_axis(b, pattern, start, size, guard);
    view->transform[1] = start;
    dv__message_part *too_large = dv__message(b, "expected a size in bytes that fits 64 bits, found shape [%r]", view->shape);
    const dv__operand in[] = { start, result_emit_size_at(b, view->strides, dim, guard) };
    if (e->ref == DV__VIEW_NARROW) {
        const dv__operand length = dv__emit_expr(b, e->args[2], guard);
        view->transform[2] = length;
        dv__operand fits = dv__emit_op2(b, DV__OP_GE, DV__TYPE_INT, guard, start, zero);
        fits = dv__emit_and(b, fits, dv__emit_op2(b, DV__OP_GE, DV__TYPE_INT, guard, length, zero));
        fits = dv__emit_and(b, fits, dv__emit_op2(b, DV__OP_LE, DV__TYPE_INT, guard, start, size));
        const dv__operand remaining = dv__emit_op2(b, DV__OP_SUB, DV__TYPE_INT, fits, size, start);
        fits = dv__emit_and(b, fits, dv__emit_op2(b, DV__OP_LE, DV__TYPE_INT, fits, length, remaining));
        result_emit_check(b, pattern, fits, guard, DV_ESHAPE,
            dv__message(b, "expected start and length inside %r, found %r and %r", size, start, length));
        view->shape = dv__emit_op3(b, DV__OP_REPLACE, DV__TYPE_DIMS, guard, view->shape, dim, length);
    } else {
        view->shape = dv__emit_op2(b, DV__OP_DROP, DV__TYPE_DIMS, guard, view->shape, dim);
        view->strides = dv__emit_op2(b, DV__OP_DROP, DV__TYPE_DIMS, guard, view->strides, dim);
    }
    view->offset = dv__emit_op(b, DV__OP_MUL, DV__TYPE_INT, guard, 2, in, 0, result_error_new(b, pattern, DV_ESHAPE, too_large));
}

/* Emits shape, strides and offset of a result that is a view. Sets the registers in *r. */
static void result_emit_view(dv__builder *b, const dv__pattern *t, dv__program_result *r, dv__operand g)
{
    const dv__operand x = result_emit_source_tensor(b, t, t->viewed_slot, g, " for view()");
    r->shape = dv__emit_op1(b, DV__OP_SHAPE, DV__TYPE_DIMS, g, x);
    r->strides = dv__emit_op1(b, DV__OP_STRIDES, DV__TYPE_DIMS, g, x);
    if (t->view_transform) {
        result_emit_view_transform(b, t, r, g);
    } else {
        const dv__operand source_shape = r->shape;
        r->shape = result_emit_dims(b, t, &t->dims, g, true);
        const dv__operand n = dv__emit_op1(b, DV__OP_RANK, DV__TYPE_INT, g, r->shape);
        if (t->has_strides) {
            result_emit_check(b, t, dv__emit_op2(b, DV__OP_EQ, DV__TYPE_INT, g, n, dv__builder_int_literal(b, t->strides.n)), g,
                DV_ESHAPE, dv__message(b, "expected %r strides, found %d", n, (int)t->strides.n));
            r->strides = result_emit_dims(b, t, &t->strides, g, false);
        } else {
            const dv__operand rank = dv__emit_op1(b, DV__OP_RANK, DV__TYPE_INT, g, source_shape);
            result_emit_check(b, t, dv__emit_op2(b, DV__OP_EQ, DV__TYPE_INT, g, n, rank), g, DV_ESHAPE,
                dv__message(b, "a view with other dims than '%s' needs strides[...]", b->c->schema->args[t->viewed_slot].name));
        }
    }
    b->message_text = t->text;
    if (t->offset)
        r->offset = dv__emit_expr(b, t->offset, g);
}

/* ---- Results ------------------------------------------------------------------------------------------------------------- */

/* Emits the device of a result: the inputs' common device, the CPU, or the value of a Device argument. Returns the register. */
static dv__operand result_emit_device(dv__builder *b, const dv__pattern *t)
{
    const dv__operand same = dv__device_register(b->c);
    if (t->device_spec == DV__DEVICE_SPEC_CPU)
        return dv__builder_add_literal(b, DV__TYPE_DEVICE, (dv__reg){ .device = { DV_CPU, 0 } });
    if (t->device_spec != DV__DEVICE_SPEC_ARGUMENT)
        return same;
    const dv__operand is_present = dv__emit_present(b, t->device_slot);
    return dv__emit_select(
        b, DV__ALWAYS, is_present, dv__emit_load(b, DV__OP_ARGUMENT, DV__TYPE_DEVICE, is_present, t->device_slot), same);
}

/* Emits the steps that describe one result in one case. Sets the kind and the registers in *r. */
static void result_emit_description(dv__builder *b, const dv__pattern *t, dv__program_result *r)
{
    const dv__operand g = DV__ALWAYS; /* a section is evaluated only where its case is selected */
    b->message_argument = NULL;
    b->message_text = t->text;
    r->kind = t->presence == DV__PRESENCE_ABSENT ? DV__PROGRAM_RESULT_ABSENT
        : t->aliased_slot >= 0                   ? DV__PROGRAM_RESULT_ALIAS
        : t->dims.is_any_shape                   ? DV__PROGRAM_RESULT_SHAPE_FN
        : t->viewed_slot >= 0                    ? DV__PROGRAM_RESULT_VIEW
        : t->like_slot >= 0                      ? DV__PROGRAM_RESULT_LIKE
                                                 : DV__PROGRAM_RESULT_NEW;
    r->source_slot = t->aliased_slot >= 0 ? t->aliased_slot : t->viewed_slot >= 0 ? t->viewed_slot : t->like_slot;
    r->dtype = r->device = r->shape = r->strides = r->offset = r->transform[0] = r->transform[1] = r->transform[2] = DV__NEVER;
    if (r->kind == DV__PROGRAM_RESULT_ALIAS)
        result_emit_source_tensor(b, t, t->aliased_slot, g, "");
    if (r->kind == DV__PROGRAM_RESULT_ABSENT || r->kind == DV__PROGRAM_RESULT_ALIAS || r->kind == DV__PROGRAM_RESULT_SHAPE_FN)
        return;
    r->device = result_emit_device(b, t);
    r->dtype = dv__emit_expr(b, t->dtype.alternatives[0], g);
    if (r->kind == DV__PROGRAM_RESULT_VIEW) {
        result_emit_view(b, t, r, g);
        return;
    }
    r->shape = result_emit_dims(b, t, &t->dims, g, true);
    if (r->kind == DV__PROGRAM_RESULT_LIKE) {
        const dv__operand x = result_emit_source_tensor(b, t, t->like_slot, g, " for like()");
        const dv__operand rank = dv__emit_op1(
            b, DV__OP_RANK, DV__TYPE_INT, g, dv__emit_op1(b, DV__OP_SHAPE, DV__TYPE_DIMS, g, x));
        const dv__operand n = dv__emit_op1(b, DV__OP_RANK, DV__TYPE_INT, g, r->shape);
        result_emit_check(b, t, dv__emit_op2(b, DV__OP_EQ, DV__TYPE_INT, g, n, rank), g, DV_ESHAPE,
            dv__message(b, "expected as many dims as '%s' has, %r, for like(), found %r", b->c->schema->args[t->like_slot].name,
                rank, n));
    }
}

/* Begins a section. Its steps reuse no results of earlier steps, since a call may evaluate the section alone. */
static void builder_open_section(dv__builder *b, dv__section *section)
{
    b->reusable_begin_step = section->begin = b->p->nsteps;
    section->value = DV__ALWAYS;
}

/* Emits the number of tensors of a returned list, in a separate section. Sets r->list_count and r->index; DV__NEVER: the result
 * is not a list. */
static void result_emit_list_length(dv__builder *b, const dv__pattern *t, dv__program_result *r)
{
    builder_open_section(b, &r->list_count);
    r->list_count.value = r->index = b->list_index_reg = DV__NEVER;
    if (t->kind == DV__PATTERN_LIST && t->list_count) {
        const dv__operand n = dv__emit_expr(b, t->list_count, DV__ALWAYS);
        const dv__operand is_valid = dv__emit_op2(b, DV__OP_GE, DV__TYPE_INT, DV__ALWAYS, n, dv__builder_int_literal(b, 0));
        result_emit_check(b, t, is_valid, DV__ALWAYS, DV_ESHAPE,
            dv__message(b, "expected a number of tensors, found %r%m", n,
                dv__message_add_variables(b, t->list_count_vars, dv__message_join_new(b, " with ", ""))));
        r->list_count.value = n;
    } else if (t->kind == DV__PATTERN_LIST && t->presence != DV__PRESENCE_ABSENT) {
        r->list_count.value = dv__emit_list_result_length(b, t);
    }
    r->list_count.end = b->p->nsteps;
    if (r->list_count.value != DV__NEVER)
        r->index = dv__builder_add_register(b, DV__TYPE_INT);
    b->list_index_reg = r->index;
}

/* Emits the section of a workspace, flops or bytes. e NULL: not declared, the section's value is DV__ALWAYS. */
static void cost_emit_section(dv__builder *b, dv__section *section, const dv__expr *e, const char *name)
{
    builder_open_section(b, section);
    b->message_argument = NULL;
    b->message_text = name;
    if (e && e == b->c->workspace) {
        section->value = dv__emit_expr(b, e, DV__ALWAYS);
        const dv__operand is_valid = dv__emit_op2(
            b, DV__OP_GE, DV__TYPE_INT, DV__ALWAYS, section->value, dv__builder_int_literal(b, 0));
        if (dv__condition_can_fail(b, is_valid, DV__ALWAYS))
            dv__emit_check(
                b, is_valid, DV__ALWAYS, DV_ESHAPE, dv__message(b, "workspace: expected a size, found %r", section->value));
    } else if (e) {
        section->value = dv__emit_real_expr(b, e, DV__ALWAYS);
    }
    section->end = b->p->nsteps;
}

/* Emits the sections of all results, then of workspace, flops and bytes. */
void dv__build_results(dv__builder *b)
{
    dv__program *p = b->p;
    p->results = DV__ARENA_ARRAY(b->arena, dv__program_result, b->c->nresult_patterns);
    if (!p->results) {
        b->status = DV_ENOMEM;
        return;
    }
    for (uint32_t i = 0; i < b->c->nresult_patterns && !b->status; i++) {
        const dv__pattern *t = &b->c->result_patterns[i];
        dv__program_result *r = &p->results[p->nresults++];
        memset(r, 0, sizeof *r);
        r->pattern = t;
        r->slot = t->slot;
        r->guard = dv__case_get_condition(b, t->when);
        b->message_argument = NULL;
        b->message_text = t->text;
        b->list_pattern = t;
        result_emit_list_length(b, t, r);
        builder_open_section(b, &r->section);
        result_emit_description(b, t, r);
        r->section.end = p->nsteps;
    }
    cost_emit_section(b, &p->workspace, b->c->workspace, "workspace");
    cost_emit_section(b, &p->flops, b->c->flops, "flops");
    cost_emit_section(b, &p->bytes, b->c->bytes, "bytes");
}

/* ---- Programs ------------------------------------------------------------------------------------------------------------ */

/* Returns a new builder of program p, which has only the two literals DV__ALWAYS and DV__NEVER. NULL: memory is out. The caller
 * calls builder_free(). */
static dv__builder *builder_new(const dv__contract *c, dv__program *p, dv__arena *arena)
{
    dv__builder *b = dv__calloc(1, sizeof *b);
    if (!b)
        return NULL;
    memset(p, 0, sizeof *p);
    b->c = c;
    b->p = p;
    b->arena = arena;
    b->message_values_exist = DV__ALWAYS;
    for (uint32_t i = 0; i < c->ndeferred; i++)
        b->deferred[i].is_pending = DV__NEVER;
    dv__builder_add_literal(b, DV__TYPE_BOOL, (dv__reg){ .i = 1 }); /* DV__ALWAYS */
    dv__builder_add_literal(b, DV__TYPE_BOOL, (dv__reg){ .i = 0 }); /* DV__NEVER */
    return b;
}

/* Adds the registers of the contract's variables, all unbound; their order is that of dv__variadic_register() and so on. */
static void builder_add_variable_registers(dv__builder *b)
{
    const dv__contract *c = b->c;
    for (uint32_t i = 0; i < c->ndims; i++)
        dv__builder_add_register(b, DV__TYPE_INT), b->dim_bound[i] = DV__NEVER;
    for (uint32_t i = 0; i < c->nvariadics; i++)
        dv__builder_add_register(b, DV__TYPE_DIMS), b->variadic_bound[i] = DV__NEVER;
    for (uint32_t i = 0; i < c->ndtypes; i++)
        dv__builder_add_register(b, DV__TYPE_DTYPE), b->dtype_bound[i] = DV__NEVER;
    dv__builder_add_register(b, DV__TYPE_DEVICE);
    b->device_bound = DV__NEVER;
}

/* Marks all variables as bound: the prover has checked those that results need, and predicates test theirs first. */
static void builder_mark_all_bound(dv__builder *b)
{
    for (uint32_t i = 0; i < b->c->ndims; i++)
        b->dim_bound[i] = DV__ALWAYS;
    for (uint32_t i = 0; i < b->c->nvariadics; i++)
        b->variadic_bound[i] = DV__ALWAYS;
    for (uint32_t i = 0; i < b->c->ndtypes; i++)
        b->dtype_bound[i] = DV__ALWAYS;
}

static void builder_free(dv__builder *b)
{
    dv__strbuf_deinit(&b->text);
    dv__free(b);
}

/* Builds the contract's program, proves it and adds the fused program. Fails with DV_ECONTRACT if the proof does, or with
 * DV_ELIMIT. */
int dv__contract_build(dv__contract *c)
{
    dv__program *p = DV__ARENA_NEW(&c->arena, dv__program);
    dv__builder *b = p ? builder_new(c, p, &c->arena) : NULL;
    if (!b)
        return DV_ENOMEM;
    c->program = p;
    builder_add_variable_registers(b);
    dv__build_patterns(b);
    if (!b->status)
        dv__build_deferred_checks(b);
    if (!b->status)
        dv__build_facts(b);
    p->solve_end_step = p->nsteps;
    int status = b->status ? b->status : dv__contract_prove(b);
    if (!status) {
        builder_mark_all_bound(b);
        dv__build_results(b);
        status = b->status ? b->status : dv__program_fuse(c, p, &c->arena);
    }
    builder_free(b);
    return status;
}

/* Builds the program of a kernel's predicate, which runs after the contract's program and reads the same variables. */
int dv__predicate_build(const dv__contract *c, dv__predicate *predicate, const dv__expr *e, dv__arena *arena)
{
    dv__program *p = &predicate->program;
    dv__builder *b = builder_new(c, p, arena);
    if (!b)
        return DV_ENOMEM;
    for (uint32_t i = 0; i < c->program->nregisters;
        i++) /* the predicate runs after the contract's program, in the same registers */
        dv__builder_add_register(b, (enum dv__type_kind)c->program->types[i]);
    memcpy(p->is_selected, c->program->is_selected, sizeof p->is_selected);
    builder_mark_all_bound(b);
    b->message_text = "a kernel's predicate";
    builder_open_section(b, &predicate->section);
    predicate->section.value = dv__emit_expr(b, e, DV__ALWAYS);
    predicate->section.end = p->nsteps;
    predicate->vars = dv__expr_collect_vars(c, e);
    p->workspace = predicate->section; /* so that fusion keeps the steps that compute the predicate's value */
    const int status = b->status ? b->status : dv__program_fuse(c, p, arena);
    builder_free(b);
    return status;
}
