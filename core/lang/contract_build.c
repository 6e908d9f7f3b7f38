/* Functions that add steps, conditions and messages to a contract's program, for the other contract_build_*.c files. */
#include "lang/contract_build.h"

#include <stdio.h>

enum { OPERANDS, SLOT };
const dv__opcode_row dv__operation_rows[] = {
#define OP(id, name, reads, ...) { name, reads == SLOT },
#include "lang/ops.def"
};

/* Stores an error in b->status, unless an earlier one is there. Returns the status that was passed. */
static int builder_set_first_error(dv__builder *b, int status)
{
    if (!b->status)
        b->status = status;
    return status;
}

/* Returns zeroed memory from the program's arena. NULL: memory is out, which b->status says too. */
static void *builder_alloc(dv__builder *b, size_t size)
{
    void *p = dv__arena_alloc(b->arena, size);
    if (!p)
        builder_set_first_error(b, DV_ENOMEM);
    return p;
}

/* Grows *(void **)array so that element n fits. Returns false if memory is out, or if there was an error before. */
static bool builder_try_reserve_entry(dv__builder *b, void *array, uint32_t n, size_t element_size)
{
    return !b->status && !builder_set_first_error(b, dv__arena_reserve_next(b->arena, array, n, element_size));
}

/* ---- Registers and literals ---------------------------------------------------------------------------------------------- */

/* Adds a register to the program and returns its number. Sets b->status to an error if there are too many. */
dv__operand dv__builder_add_register(dv__builder *b, enum dv__type_kind type)
{
    dv__program *p = b->p;
    if (p->nregisters == DV__MAX_REGISTERS)
        builder_set_first_error(b,
            dv__fail_at_column(
                DV_ELIMIT, b->c->text, b->c->text, "the contract needs more than %d registers", DV__MAX_REGISTERS));
    if (!builder_try_reserve_entry(b, &p->types, p->nregisters, sizeof *p->types) ||
        !builder_try_reserve_entry(b, &b->writer_step, p->nregisters, sizeof *b->writer_step))
        return 0;
    p->types[p->nregisters] = (uint8_t)type;
    b->writer_step[p->nregisters] = -1;
    return (dv__operand)p->nregisters++;
}

/* Returns the type of a register or literal. After an error: INT. */
enum dv__type_kind dv__builder_operand_type(const dv__builder *b, dv__operand operand)
{
    if (b->status)
        return DV__TYPE_INT;
    return (enum dv__type_kind)(operand < 0 ? b->p->constant_types[-1 - operand] : b->p->types[operand]);
}

/* True if two literals of this type are certainly equal: strings and dims are compared by address. */
static bool literal_is_equal(enum dv__type_kind type, const dv__reg *a, const dv__reg *b)
{
    switch (type) {
    case DV__TYPE_STRING:
    case DV__TYPE_DIMS: return a->n == b->n && (!a->n || a->sizes == b->sizes);
    case DV__TYPE_NUMBER: return a->is_real == b->is_real && a->i == b->i;
    case DV__TYPE_DTYPE: return dv_dtype_key(a->dtype) == dv_dtype_key(b->dtype);
    default: return a->i == b->i;
    }
}

/* Returns the operand of a literal; an equal literal is reused. */
dv__operand dv__builder_add_literal(dv__builder *b, enum dv__type_kind type, dv__reg value)
{
    dv__program *p = b->p;
    for (uint32_t i = 0; i < p->nconstants; i++)
        if (p->constant_types[i] == type && literal_is_equal(type, &p->constants[i], &value))
            return (dv__operand)(-1 - (int32_t)i);
    if (!builder_try_reserve_entry(b, &p->constants, p->nconstants, sizeof *p->constants) ||
        !builder_try_reserve_entry(b, &p->constant_types, p->nconstants, sizeof *p->constant_types))
        return DV__ALWAYS;
    p->constants[p->nconstants] = value;
    p->constant_types[p->nconstants] = (uint8_t)type;
    return (dv__operand)(-1 - (int32_t)p->nconstants++);
}

dv__operand dv__builder_int_literal(dv__builder *b, int64_t i)
{
    return dv__builder_add_literal(b, DV__TYPE_INT, (dv__reg){ .i = i });
}

dv__operand dv__builder_dtype_literal(dv__builder *b, uint32_t key)
{
    return dv__builder_add_literal(b, DV__TYPE_DTYPE, (dv__reg){ .dtype = dv_dtype_from_key(key) });
}

/* ---- Steps --------------------------------------------------------------------------------------------------------------- */

/* Appends a step without inputs and result. Returns it for the caller to fill in. NULL: an error, which is in b->status. */
dv__step *dv__emit_step(dv__builder *b, enum dv__opcode op, dv__operand guard)
{
    dv__program *p = b->p;
    if (p->nsteps == DV__MAX_STEPS)
        builder_set_first_error(
            b, dv__fail_at_column(DV_ELIMIT, b->c->text, b->c->text, "the contract needs more than %d steps", DV__MAX_STEPS));
    if (!builder_try_reserve_entry(b, &p->steps, p->nsteps, sizeof *p->steps))
        return NULL;
    dv__step *s = &p->steps[p->nsteps++];
    memset(s, 0, sizeof *s);
    s->op = (uint8_t)op;
    s->guard = guard;
    s->to = s->index = s->first = DV__ALWAYS;
    return s;
}

/* Marks a register, and those that compute it, as read by the program itself and not only by messages. */
static void builder_mark_read_by_program(dv__builder *b, dv__operand reg)
{
    const int32_t i = reg < 0 || b->status ? -1 : b->writer_step[reg];
    dv__step *s = i < 0 ? NULL : &b->p->steps[i];
    if (!s || !(s->flags & DV__STEP_MESSAGE_ONLY))
        return;
    s->flags &= (uint8_t)~DV__STEP_MESSAGE_ONLY;
    builder_mark_read_by_program(b, s->guard);
    for (uint32_t k = 0; k < s->ninputs; k++)
        builder_mark_read_by_program(b, dv__step_get_operands(s)[k]);
}

/* Returns the step that writes a register. NULL: a literal, a variable or a register of a block. */
static const dv__step *builder_find_writer(const dv__builder *b, dv__operand reg)
{
    return reg < 0 || b->status || b->writer_step[reg] < 0 ? NULL : &b->p->steps[b->writer_step[reg]];
}

/* Returns an earlier step with the same operation, inputs, slot and error, which runs at least where the guard holds. NULL:
 * there is none. */
static dv__step *builder_find_equal_step(dv__builder *b, enum dv__opcode op, enum dv__type_kind type, dv__operand guard,
    uint32_t n, const dv__operand *in, int32_t slot, const dv__step_error *error)
{
    for (uint32_t i = b->p->nsteps; i-- > b->reusable_begin_step;) {
        dv__step *s = &b->p->steps[i];
        if (s->op != op || s->type != type || s->ninputs != n || s->slot != slot || s->flags & DV__STEP_IN_BLOCK || s->to < 0 ||
            (n && memcmp(dv__step_get_operands(s), in, n * sizeof *in) != 0) || b->writer_step[s->to] != (int32_t)i)
            continue;
        if (!b->is_in_message && error && s->error != error)
            continue; /* a step that can fail is reused only with the same error */
        if (s->guard == guard || dv__condition_implies(b, guard, s->guard, 6))
            return s;
    }
    return NULL;
}

dv__operand dv__emit_op(dv__builder *b, enum dv__opcode op, enum dv__type_kind type, dv__operand guard, uint32_t n,
    const dv__operand *in, int32_t slot, const dv__step_error *error)
{
    if (b->status || guard == DV__NEVER)
        return DV__NEVER;
    dv__step *s = builder_find_equal_step(b, op, type, guard, n, in, slot, error);
    if (s) {
        if (!b->is_in_message)
            builder_mark_read_by_program(b, s->to);
        return s->to;
    }
    const bool compares = op >= DV__OP_EQ && op <= DV__OP_GE;
    const dv__operand to = dv__builder_add_register(b, compares ? DV__TYPE_BOOL : type);
    dv__operand *many = n > 4 ? builder_alloc(b, n * sizeof *in) : NULL;
    s = dv__emit_step(b, op, guard);
    if (!s || b->status)
        return DV__NEVER;
    s->type = (uint8_t)type;
    s->to = to;
    s->ninputs = (uint8_t)n;
    s->slot = slot;
    s->error = b->is_in_message ? NULL : error;
    s->flags = b->is_in_message ? DV__STEP_MESSAGE_ONLY : 0;
    if (n)
        memcpy(many ? many : s->in, in, n * sizeof *in);
    s->operands = many;
    b->writer_step[to] = (int32_t)b->p->nsteps - 1;
    if (!b->is_in_message) {
        builder_mark_read_by_program(b, guard);
        for (uint32_t i = 0; i < n; i++)
            builder_mark_read_by_program(b, in[i]);
    }
    return to;
}

/* Emits COPY: where the guard holds, the variable `to` gets the value of `from`. */
void dv__emit_copy(dv__builder *b, dv__operand to, dv__operand from, dv__operand guard)
{
    dv__step *s = guard == DV__NEVER ? NULL : dv__emit_step(b, DV__OP_COPY, guard);
    if (!s)
        return;
    s->to = to;
    s->type = (uint8_t)dv__builder_operand_type(b, to);
    s->ninputs = 1;
    s->in[0] = from;
    builder_mark_read_by_program(b, from);
    builder_mark_read_by_program(b, guard);
}

dv__operand dv__emit_op1(dv__builder *b, enum dv__opcode op, enum dv__type_kind type, dv__operand guard, dv__operand x)
{
    return dv__emit_op(b, op, type, guard, 1, &x, 0, NULL);
}

dv__operand dv__emit_op2(
    dv__builder *b, enum dv__opcode op, enum dv__type_kind type, dv__operand guard, dv__operand x, dv__operand y)
{
    return dv__emit_op(b, op, type, guard, 2, (dv__operand[]){ x, y }, 0, NULL);
}

dv__operand dv__emit_op3(
    dv__builder *b, enum dv__opcode op, enum dv__type_kind type, dv__operand guard, dv__operand x, dv__operand y, dv__operand z)
{
    return dv__emit_op(b, op, type, guard, 3, (dv__operand[]){ x, y, z }, 0, NULL);
}

dv__operand dv__emit_load(dv__builder *b, enum dv__opcode op, enum dv__type_kind type, dv__operand guard, int32_t slot)
{
    return dv__emit_op(b, op, type, guard, 0, NULL, slot, NULL);
}

/* ---- Conditions ---------------------------------------------------------------------------------------------------------- */

/* True if s is a step with this operation. False for NULL. */
static bool step_is(const dv__step *s, enum dv__opcode op) { return s && s->op == op; }

/* True if x and y certainly never hold in one call. depth: levels of operands to look at. */
static bool conditions_are_disjoint(const dv__builder *b, dv__operand x, dv__operand y, int depth)
{
    const dv__step *s = builder_find_writer(b, x), *t = builder_find_writer(b, y);
    if (x == DV__NEVER || y == DV__NEVER)
        return true;
    if (!depth)
        return false;
    if ((step_is(t, DV__OP_NOT) && dv__condition_implies(b, x, t->in[0], depth - 1)) ||
        (step_is(s, DV__OP_NOT) && dv__condition_implies(b, y, s->in[0], depth - 1)))
        return true;
    return (step_is(s, DV__OP_AND) &&
               (conditions_are_disjoint(b, s->in[0], y, depth - 1) || conditions_are_disjoint(b, s->in[1], y, depth - 1))) ||
        (step_is(t, DV__OP_AND) &&
            (conditions_are_disjoint(b, x, t->in[0], depth - 1) || conditions_are_disjoint(b, x, t->in[1], depth - 1)));
}

/* True if y certainly holds wherever x does. depth: levels of operands to look at; with too few the answer may be false. */
bool dv__condition_implies(const dv__builder *b, dv__operand x, dv__operand y, int depth)
{
    if (x == y || x == DV__NEVER || y == DV__ALWAYS)
        return true;
    if (!depth || y == DV__NEVER)
        return false;
    const dv__step *s = builder_find_writer(b, x), *t = builder_find_writer(b, y);
    if (step_is(s, DV__OP_PRESENT) && step_is(t, DV__OP_PRESENT) &&
        s->slot == t->slot) /* each section loads arguments into registers of its own */
        return true;
    depth--;
    if (step_is(t, DV__OP_AND) && dv__condition_implies(b, x, t->in[0], depth) && dv__condition_implies(b, x, t->in[1], depth))
        return true;
    if (step_is(t, DV__OP_OR) && (dv__condition_implies(b, x, t->in[0], depth) || dv__condition_implies(b, x, t->in[1], depth)))
        return true;
    if (step_is(s, DV__OP_AND) && (dv__condition_implies(b, s->in[0], y, depth) || dv__condition_implies(b, s->in[1], y, depth)))
        return true;
    if (step_is(s, DV__OP_OR) && dv__condition_implies(b, s->in[0], y, depth) && dv__condition_implies(b, s->in[1], y, depth))
        return true;
    if (step_is(t, DV__OP_NOT) && conditions_are_disjoint(b, x, t->in[0], depth))
        return true;
    return step_is(s, DV__OP_NOT) && step_is(t, DV__OP_NOT) && dv__condition_implies(b, t->in[0], s->in[0], depth);
}

enum { MAX_IMPLIES_DEPTH = 8 };

/* True if a condition's register has a value wherever the guard holds. */
static bool condition_is_defined_under(const dv__builder *b, dv__operand condition, dv__operand guard)
{
    const dv__step *s = builder_find_writer(b, condition);
    return !s || dv__condition_implies(b, guard, s->guard, MAX_IMPLIES_DEPTH);
}

dv__operand dv__emit_and(dv__builder *b, dv__operand x, dv__operand y) { return dv__emit_and_under(b, DV__ALWAYS, x, y); }
dv__operand dv__emit_or(dv__builder *b, dv__operand x, dv__operand y) { return dv__emit_or_under(b, DV__ALWAYS, x, y); }

/* Emits x and y where the guard holds. Returns the condition: x, y or DV__NEVER where that is the same. */
dv__operand dv__emit_and_under(dv__builder *b, dv__operand guard, dv__operand x, dv__operand y)
{
    if (b->status)
        return DV__NEVER;
    if (dv__condition_implies(b, x, y, MAX_IMPLIES_DEPTH))
        return x;
    if (condition_is_defined_under(b, y, guard) && dv__condition_implies(b, y, x, MAX_IMPLIES_DEPTH))
        return y;
    if (conditions_are_disjoint(b, x, y, MAX_IMPLIES_DEPTH))
        return DV__NEVER;
    return dv__emit_op2(b, DV__OP_AND, DV__TYPE_BOOL, guard, x, y);
}

/* Emits the negation of x where the guard holds. Returns the condition. */
dv__operand dv__emit_not(dv__builder *b, dv__operand x, dv__operand guard)
{
    const dv__step *s = b->status ? NULL : builder_find_writer(b, x);
    if (x == DV__ALWAYS || x == DV__NEVER)
        return x == DV__ALWAYS ? DV__NEVER : DV__ALWAYS;
    return step_is(s, DV__OP_NOT) ? s->in[0] : dv__emit_op1(b, DV__OP_NOT, DV__TYPE_BOOL, guard, x);
}

/* Emits x or y where the guard holds. Returns the condition: x, y or DV__ALWAYS where that is the same. */
dv__operand dv__emit_or_under(dv__builder *b, dv__operand guard, dv__operand x, dv__operand y)
{
    if (b->status)
        return DV__NEVER;
    const bool both = condition_is_defined_under(b, y, guard);
    if (both && dv__condition_implies(b, x, y, MAX_IMPLIES_DEPTH))
        return y;
    if (dv__condition_implies(b, y, x, MAX_IMPLIES_DEPTH))
        return x;
    const dv__step *s = builder_find_writer(b, x), *t = builder_find_writer(b, y);
    if ((step_is(t, DV__OP_NOT) && dv__condition_implies(b, t->in[0], x, MAX_IMPLIES_DEPTH)) ||
        (step_is(s, DV__OP_NOT) && dv__condition_implies(b, s->in[0], y, MAX_IMPLIES_DEPTH)))
        return DV__ALWAYS;
    for (int i = 0; step_is(t, DV__OP_AND) && i < 2; i++) { /* x or (not x and q) equals x or q */
        const dv__step *n = builder_find_writer(b, t->in[i]);
        if (step_is(n, DV__OP_NOT) && dv__condition_implies(b, n->in[0], x, MAX_IMPLIES_DEPTH))
            return dv__emit_or_under(b, guard, x, t->in[1 - i]);
    }
    for (int i = 0; both && step_is(s, DV__OP_AND) && i < 2; i++) {
        const dv__step *n = builder_find_writer(b, s->in[i]);
        if (step_is(n, DV__OP_NOT) && dv__condition_implies(b, n->in[0], y, MAX_IMPLIES_DEPTH))
            return dv__emit_or_under(b, guard, y, s->in[1 - i]);
    }
    return dv__emit_op2(b, DV__OP_OR, DV__TYPE_BOOL, guard, x, y);
}

/* Emits `condition ? x : y` and returns its register. */
dv__operand dv__emit_select(dv__builder *b, dv__operand guard, dv__operand condition, dv__operand x, dv__operand y)
{
    if (condition == DV__ALWAYS || condition == DV__NEVER || x == y)
        return condition == DV__NEVER ? y : x;
    return dv__emit_op3(b, DV__OP_SELECT, dv__builder_operand_type(b, x), guard, condition, x, y);
}

/* Emits x + y and returns its register. Literals are added up at once. */
dv__operand dv__emit_add(dv__builder *b, dv__operand guard, dv__operand x, dv__operand y)
{
    if (b->status)
        return DV__NEVER;
    if (x < 0 && y < 0)
        return dv__builder_int_literal(b, b->p->constants[-1 - x].i + b->p->constants[-1 - y].i);
    if ((x < 0 && !b->p->constants[-1 - x].i) || (y < 0 && !b->p->constants[-1 - y].i))
        return x < 0 ? y : x;
    return dv__emit_op2(b, DV__OP_ADD, DV__TYPE_INT, guard, x, y);
}

/* Returns the condition that all variables of a set are bound. */
dv__operand dv__emit_all_bound(dv__builder *b, dv__var_set vars)
{
    dv__operand all = DV__ALWAYS;
    for (dv__var_binding v; dv__var_set_try_take_next(b, &vars, &v);)
        all = dv__emit_and(b, all, v.bound);
    return all;
}

/* Moves one variable from *left to *out. Returns false if *left is empty. */
bool dv__var_set_try_take_next(const dv__builder *b, dv__var_set *left, dv__var_binding *out)
{
    if (left->dims) {
        const int i = __builtin_ctzll(left->dims);
        *out = (dv__var_binding){ b->c->dims[i].name, b->dim_bound[i] };
        left->dims &= left->dims - 1;
    } else if (left->variadics) {
        const int i = __builtin_ctz(left->variadics);
        *out = (dv__var_binding){ b->c->variadics[i].name, b->variadic_bound[i] };
        left->variadics &= left->variadics - 1;
    } else if (left->dtypes) {
        const int i = __builtin_ctz(left->dtypes);
        *out = (dv__var_binding){ b->c->dtypes[i].name, b->dtype_bound[i] };
        left->dtypes &= left->dtypes - 1;
    } else {
        return false;
    }
    return true;
}

/* Adds a proof obligation: where the premise holds, the conclusion does too. */
void dv__obligation_add(
    dv__builder *b, dv__operand premise, dv__operand conclusion, const char *position_in_text, const dv__message_part *message)
{
    if (builder_try_reserve_entry(b, &b->obligations, b->nobligations, sizeof *b->obligations))
        b->obligations[b->nobligations++] = (dv__obligation){ premise, conclusion, position_in_text, message };
}

/* ---- Messages ------------------------------------------------------------------------------------------------------------ */

const dv__operand *dv__builder_copy_operands(dv__builder *b, const dv__operand *in, uint32_t n)
{
    dv__operand *copy = builder_alloc(b, n * sizeof *in);
    if (copy)
        memcpy(copy, in, n * sizeof *in);
    return copy;
}

dv__message_part *dv__message_part_new(dv__builder *b, enum dv__message_part_kind kind)
{
    dv__message_part *p = builder_alloc(b, sizeof *p);
    if (p)
        p->kind = (uint8_t)kind;
    return p;
}

/* Moves b->text to a new part and empties it. NULL: b->text is empty. */
static dv__message_part *message_move_text_to_part(dv__builder *b)
{
    dv__message_part *p = b->text.size ? dv__message_part_new(b, DV__PART_TEXT) : NULL;
    if (b->text.failed || (p && !(p->text = dv__arena_strndup(b->arena, b->text.data, b->text.size))))
        builder_set_first_error(b, DV_ENOMEM);
    b->text.size = 0;
    return p;
}

dv__message_part *dv__message(dv__builder *b, const char *format, ...)
{
    dv__message_part *all = NULL;
    va_list args;
    va_start(args, format);
    for (const char *at = format, *next; *at; at = next + 2) {
        next = strchr(at, '%');
        dv__strbuf_append(&b->text, at, next ? (size_t)(next - at) : strlen(at));
        if (!next)
            break;
        if (next[1] == 's') {
            dv__strbuf_append_str(&b->text, va_arg(args, const char *));
        } else if (next[1] == 'd') {
            dv__strbuf_printf(&b->text, "%d", va_arg(args, int));
        } else {
            const bool is_register = next[1] == 'r';
            const dv__operand x = is_register ? (dv__operand)va_arg(args, int) : DV__NEVER;
            dv__message_part *p = is_register ? dv__message_part_new(b, DV__PART_REGISTER) : va_arg(args, dv__message_part *);
            if (p && is_register)
                p->a = x;
            all = dv__message_append(all, message_move_text_to_part(b));
            all = dv__message_append(all, p);
        }
    }
    va_end(args);
    all = dv__message_append(all, message_move_text_to_part(b));
    return all;
}

/* Returns a part that is printed as `then` where the condition holds, else as `other`. Either may be NULL: nothing. */
dv__message_part *dv__message_if(dv__builder *b, dv__operand condition, dv__message_part *then, dv__message_part *other)
{
    if (condition == DV__ALWAYS || condition == DV__NEVER)
        return condition == DV__ALWAYS ? then : other;
    dv__message_part *p = dv__message_part_new(b, DV__PART_IF);
    if (p)
        p->a = condition, p->then = then, p->other = other;
    return p;
}

dv__message_part *dv__message_append(dv__message_part *first, dv__message_part *next)
{
    if (!first)
        return next;
    dv__message_part *last = first;
    while (last->next)
        last = last->next;
    last->next = next;
    return first;
}

/* Returns an empty JOIN part. In a message its parts are separated by commas; open and close stand around them unless all are
 * empty. */
dv__message_part *dv__message_join_new(dv__builder *b, const char *open, const char *close)
{
    dv__message_part *p = dv__message_part_new(b, DV__PART_JOIN);
    if (p)
        p->text = open, p->close = close;
    return p;
}

/* Adds a part to a JOIN part, where it counts as one entry. */
void dv__message_join_add(dv__builder *b, dv__message_part *join, dv__message_part *part)
{
    dv__message_part *all = part ? dv__message_part_new(b, DV__PART_GROUP) : NULL;
    if (all && join) {
        all->then = part;
        join->then = dv__message_append(join->then, all);
    }
}

/* Returns the error of a step: the status and message of a call that fails there. */
const dv__step_error *dv__step_error_new(dv__builder *b, int status, dv__message_part *message)
{
    dv__step_error *f = builder_alloc(b, sizeof *f);
    if (f)
        f->status = status, f->message = message;
    return f;
}

dv__message_part *dv__message_make_item_prefix(dv__builder *b)
{
    return b->message_argument ? dv__message(b, "argument '%s': %s: ", b->message_argument, b->message_text)
                               : dv__message(b, "%s: ", b->message_text);
}

/* True if a condition may be false where the guard holds, so that a check is needed. In a message scope the condition is only
 * added to b->message_values_exist, and false is returned. */
bool dv__condition_can_fail(dv__builder *b, dv__operand condition, dv__operand guard)
{
    if (b->status || guard == DV__NEVER || condition == DV__ALWAYS)
        return false;
    if (b->is_in_message)
        b->message_values_exist = dv__emit_and(
            b, b->message_values_exist, dv__emit_or(b, dv__emit_not(b, guard, DV__ALWAYS), condition));
    return !b->is_in_message;
}

/* Emits a CHECK: a call fails with the status and message if the condition is false where the guard holds. */
void dv__emit_check(dv__builder *b, dv__operand condition, dv__operand guard, int status, dv__message_part *message)
{
    const dv__step_error *error = dv__step_error_new(b, status, message);
    dv__step *s = dv__emit_step(b, DV__OP_CHECK, guard);
    if (!s)
        return;
    s->ninputs = 1;
    s->in[0] = condition;
    s->error = error;
    builder_mark_read_by_program(b, condition);
    builder_mark_read_by_program(b, guard);
}
