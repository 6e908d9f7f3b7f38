/* The declaration of an operator, read from its JSON (dv_operator_json()): its kernels, and how the contract's program uses
 * arguments and names. The program is a list of steps; each step reads registers ("in") and writes one ("to"). */
#include <math.h>
#include <string.h>
#include <stdlib.h>

#include "check.h"

/* ---- The operator ---- */

/* Fills op->kernels with the CPU kernels. If there are none, adds the decomposition, or an entry "contract" if all results are
 * views that the contract alone makes. Returns 0, or -1 if memory is out. */
static int op_read_cpu_kernels(check_op *op)
{
    const check_json *kernels = check_json_find_member(op->json, "kernels");
    op->kernels = calloc(check_json_count_elements(kernels) + 1, sizeof *op->kernels);
    if (!op->kernels)
        return -1;
    int32_t index = 0;
    for (const check_json *k = kernels ? kernels->child : NULL; k; k = k->next) {
        const char *key = check_json_find_string(k, "key");
        if (!key || strcmp(key, "CPU")) {
            if (key && strcmp(key, "Meta"))
                op->other_device = check_json_find_string(k, "device");
            continue;
        }
        const check_json *split = check_json_find_member(k, "split");
        op->kernels[op->nkernels++] = (check_kernel){ .name = check_json_find_string(k, "name"),
            .provider = check_json_find_string(k, "provider"),
            .dtypes = check_json_find_string(k, "dtypes"),
            .isa = check_json_find_string(k, "isa"),
            .when = check_json_find_string(k, "when"),
            .layout_requirement = check_json_find_string(k, "takes"),
            .hook_index = ++index,
            .is_available = check_json_is_true(k, "isa_available"),
            .is_reference = check_json_is_true(k, "reference"),
            .split = split ? split->int_value : 0 };
    }
    const check_json *native = check_json_find_member(op->json, "native");
    if (!op->nkernels && native && native->kind == CHECK_JSON_OBJECT)
        op->kernels[op->nkernels++] = (check_kernel){ .name = "decomposition", .hook_index = -1, .is_available = true };
    bool views = op->nresults;
    for (size_t r = op->nargs; r < op->nargs + op->nresults; r++)
        views &= op->slots[r].alias >= 0 && !(op->slots[op->slots[r].alias].flags & DV_SLOT_WRITES);
    if (!op->nkernels && op->contract && views)
        op->kernels[op->nkernels++] = (check_kernel){
            .name = "contract", .hook_index = 0, .is_available = true
        }; /* the contract alone makes the results */
    return 0;
}

/* True if the operator has this tag. */
static bool op_has_tag(const check_op *op, const char *tag)
{
    const check_json *tags = check_json_find_member(op->json, "tags");
    for (const check_json *t = tags ? tags->child : NULL; t; t = t->next)
        if (t->text && !strcmp(t->text, tag))
            return true;
    return false;
}

/* True if a step of the program has this operation. */
static bool op_is_step_of(const check_json *step, const char *operation)
{
    const char *op = check_json_find_string(step, "op");
    return op && !strcmp(op, operation);
}

/* True if an operand of a step is this register. */
static bool op_is_operand_register(const check_json *operand, int64_t register_index)
{
    return operand->kind == CHECK_JSON_INT && operand->int_value == register_index;
}

/* Adds to *literals the literals that steps compare a register with: strings and ints that are tested for equality, and numbers.
 */
static void op_add_compared_literals(const check_json *steps, int64_t register_index, check_literals *literals)
{
    for (const check_json *s = steps ? steps->child : NULL; s; s = s->next) {
        const check_json *in = check_json_find_member(s, "in"), *a = in ? in->child : NULL, *b = a ? a->next : NULL;
        const bool equal = op_is_step_of(s, "eq") || op_is_step_of(s, "ne"),
                   order = op_is_step_of(s, "lt") || op_is_step_of(s, "le") || op_is_step_of(s, "gt") || op_is_step_of(s, "ge");
        if (!b || (!equal && !order) || op_is_operand_register(a, register_index) == op_is_operand_register(b, register_index))
            continue;
        const check_json *other = op_is_operand_register(a, register_index) ? b : a;
        if ((check_json_is_expr(other, "int") || check_json_is_expr(other, "number")) &&
            literals->ncomparison_constants < CHECK_MAX_BOUNDS)
            literals->comparison_constants[literals->ncomparison_constants++] = other->child->next->real_value;
        if (!equal)
            continue;
        if ((check_json_is_expr(other, "str") || check_json_is_expr(other, "int")) &&
            literals->nequality_values < CHECK_MAX_LITERALS)
            literals->equality_values[literals->nequality_values++] = other->child->next;
    }
}

/* True if some step uses the register as the index of a dim. */
static bool op_is_used_as_dim_index(const check_json *steps, int64_t register_index)
{
    bool result = false;
    for (const check_json *s = steps->child; s; s = s->next) {
        const check_json *in = check_json_find_member(s, "in");
        result |= (op_is_step_of(s, "axis") || op_is_step_of(s, "is_axis")) && in && in->child &&
            op_is_operand_register(in->child, register_index);
    }
    return result;
}

/* For a step that tests elements one by one, sets op->is_sorted or op->is_bounded of its tensor argument. A step that compares
 * each element with the one before, as sorted(x) does, sets is_sorted. */
static void op_read_element_fact(check_op *op, const check_json *steps, const check_json *step)
{
    const check_json *in = check_json_find_member(step, "in"), *x = in ? in->child : NULL;
    for (const check_json *s = steps->child; s && x; s = s->next) {
        const check_json *slot = check_json_find_member(s, "slot"), *to = check_json_find_member(s, "to");
        if (op_is_step_of(s, "tensor") && slot && to && op_is_operand_register(x, to->int_value) && slot->int_value >= 0 &&
            slot->int_value < CHECK_MAX_ARGS) {
            if (check_json_find_member(step, "before"))
                op->is_sorted[slot->int_value] = true;
            else
                op->is_bounded[slot->int_value] = true;
        }
    }
}

/* Fills op->literals from steps that read arguments. compute_result_shape: the steps compute the shape of a result. */
static void op_read_argument_uses(check_op *op, const check_json *steps, bool compute_result_shape)
{
    for (const check_json *s = steps ? steps->child : NULL; s; s = s->next) {
        const check_json *slot = check_json_find_member(s, "slot"), *to = check_json_find_member(s, "to");
        op->has_element_facts |= op_is_step_of(s, "each_value");
        if (op_is_step_of(s, "each_value"))
            op_read_element_fact(op, steps, s);
        if (!op_is_step_of(s, "argument") || !slot || slot->int_value < 0 || slot->int_value >= CHECK_MAX_ARGS)
            continue;
        op->literals[slot->int_value].is_read = true;
        op->literals[slot->int_value].decides_shape |= compute_result_shape;
        op->literals[slot->int_value].is_dim_index |= op_is_used_as_dim_index(steps, to->int_value);
        op_add_compared_literals(steps, to->int_value, &op->literals[slot->int_value]);
    }
}

/* Adds the sizes x for which a register with value factor * x + offset reaches a number that it is compared with. */
static void op_add_sizes_at_bounds(check_op *op, int64_t register_index, double factor, double offset)
{
    check_literals found = { 0 };
    op_add_compared_literals(check_json_find_member(op->program, "solve"), register_index, &found);
    for (size_t k = 0; k < found.ncomparison_constants; k++) {
        const double bound = (found.comparison_constants[k] - offset) / factor;
        if (bound > 0 && bound < INT32_MAX)
            check_add_extra_size(op, (int64_t)bound);
    }
}

/* Returns the value of an int literal; NaN for other operands. */
static double op_get_int_literal(const check_json *operand)
{
    return check_json_is_expr(operand, "int") ? operand->child->next->real_value : NAN;
}

/* Adds the sizes at which a step's product or sum of sizes reaches a number that it is compared with. The other size of the step
 * is taken as 1 or as equal. */
static void op_add_sizes_at_step_bounds(check_op *op, const check_json *step)
{
    const check_json *in = check_json_find_member(step, "in"), *a = in ? in->child : NULL, *b = a ? a->next : NULL,
                     *to = check_json_find_member(step, "to");
    if (!to || !b || (!op_is_step_of(step, "mul") && !op_is_step_of(step, "add")))
        return;
    const bool product = op_is_step_of(step, "mul");
    const double number = isnan(op_get_int_literal(a)) ? op_get_int_literal(b) : op_get_int_literal(a);
    if (!isnan(number)) {
        op_add_sizes_at_bounds(op, to->int_value, product && number > 0 ? number : 1, product ? 0 : number);
        return;
    }
    op_add_sizes_at_bounds(op, to->int_value, 1, product ? 0 : 1);
    if (!product)
        op_add_sizes_at_bounds(op, to->int_value, 2, 0);
}

/* Adds to op->extra_sizes the sizes at which sizes of names, and products and sums of them, reach numbers that the program
 * compares them with. */
static void op_add_sizes_at_all_bounds(check_op *op)
{
    const check_json *variables = check_json_find_member(op->program, "variables"),
                     *solve = check_json_find_member(op->program, "solve");
    for (const check_json *v = variables ? variables->child : NULL; v; v = v->next) {
        const check_json *at = check_json_find_member(v, "register");
        const char *kind = check_json_find_string(v, "kind");
        if (at && kind && !strcmp(kind, "dim"))
            op_add_sizes_at_bounds(op, at->int_value, 1, 0);
    }
    for (const check_json *s = solve ? solve->child : NULL; s; s = s->next)
        op_add_sizes_at_step_bounds(op, s);
}

enum { MAX_REGISTERS = 4096 };

/* True if an operand (NULL: none) is one of the registers whose flag in `registers` is set. */
static bool op_is_operand_in_registers(const check_json *operand, const bool *registers, size_t nregisters)
{
    return operand && operand->kind == CHECK_JSON_INT && (size_t)operand->int_value < nregisters && registers[operand->int_value];
}

/* True if a step, or a step that it repeats, uses one of the registers whose flag in `registers` is set. */
static bool op_step_uses_register(const check_json *step, const bool *registers, size_t nregisters)
{
    const check_json *in = check_json_find_member(step, "in"), *steps = check_json_find_member(step, "steps");
    for (const check_json *x = in ? in->child : NULL; x; x = x->next)
        if (op_is_operand_in_registers(x, registers, nregisters))
            return true;
    for (const check_json *s = steps ? steps->child : NULL; s; s = s->next)
        if (op_step_uses_register(s, registers, nregisters))
            return true;
    return false;
}

/* True if one of the flagged registers decides which case is selected, whether a result exists, or a result's shape, dtype or
 * strides. The flagged registers depend on an argument. */
static bool op_registers_decide_selection(const check_op *op, const bool *depends_on_argument, size_t nregisters)
{
    const check_json *selected = check_json_find_member(op->program, "taken"),
                     *results = check_json_find_member(op->program, "results");
    for (const check_json *group = selected ? selected->child : NULL; group; group = group->next)
        for (const check_json *x = group->child; x; x = x->next)
            if (op_is_operand_in_registers(x, depends_on_argument, nregisters))
                return true;
    for (const check_json *r = results ? results->child : NULL; r; r = r->next)
        if (op_is_operand_in_registers(check_json_find_member(r, "guard"), depends_on_argument, nregisters) ||
            op_step_uses_register(r, depends_on_argument, nregisters))
            return true;
    return false;
}

/* True if the contract uses a register only to check bounds, as `0 <= p <= 1` does, so that no shape, dtype or selected case
 * depends on it. */
static bool op_is_register_only_bounded(const check_op *op, int64_t register_index)
{
    static const char *const bounding[] = { "to_number", "lt", "le", "gt", "ge", "and", "or", "check" };
    const check_json *solve = check_json_find_member(op->program, "solve");
    bool depends[MAX_REGISTERS] = { false };
    if ((size_t)register_index >= MAX_REGISTERS)
        return false;
    depends[register_index] = true;
    for (const check_json *s = solve ? solve->child : NULL; s; s = s->next) {
        const check_json *to = check_json_find_member(s, "to");
        size_t k = 0;
        if (!op_step_uses_register(s, depends, MAX_REGISTERS) &&
            !op_is_operand_in_registers(check_json_find_member(s, "guard"), depends, MAX_REGISTERS))
            continue;
        while (k < sizeof bounding / sizeof *bounding && !op_is_step_of(s, bounding[k]))
            k++;
        if (k == sizeof bounding / sizeof *bounding || (to && (size_t)to->int_value >= MAX_REGISTERS))
            return false;
        if (to)
            depends[to->int_value] = true;
    }
    return !op_registers_decide_selection(op, depends, MAX_REGISTERS);
}

/* Sets decides_inference of each argument that decides shapes, dtypes or the selected case, not only whether a call is accepted.
 */
static void op_set_decides_inference(check_op *op)
{
    const check_json *solve = check_json_find_member(op->program, "solve");
    for (size_t i = 0; i < op->nargs; i++)
        op->literals[i].decides_inference = op->literals[i].decides_shape;
    for (const check_json *s = solve ? solve->child : NULL; s; s = s->next) {
        const check_json *slot = check_json_find_member(s, "slot"), *to = check_json_find_member(s, "to");
        if (op_is_step_of(s, "argument") && slot && slot->int_value >= 0 && slot->int_value < CHECK_MAX_ARGS)
            op->literals[slot->int_value].decides_inference |= !to ||
                (op->slots[slot->int_value].type != DV_FIELD_INT && op->slots[slot->int_value].type != DV_FIELD_FLOAT) ||
                !op_is_register_only_bounded(op, to->int_value);
    }
}

bool check_name_has_dependents(const check_op *op, const check_name *name)
{
    bool depends[MAX_REGISTERS] = { false }; /* flags of the registers that depend on the name */
    const check_json *solve = check_json_find_member(op->program, "solve");
    depends[name->register_index] = true;
    for (const check_json *s = solve ? solve->child : NULL; s; s = s->next) {
        const check_json *to = check_json_find_member(s, "to");
        if (!op_step_uses_register(s, depends, MAX_REGISTERS) ||
            op_is_step_of(s, "rank")) /* the rank of variadic dims does not depend on their sizes */
            continue;
        if (op_is_step_of(s, "each_value") || op_is_step_of(s, "unbacked"))
            return true;
        for (size_t k = 0; k < op->nnames && to; k++)
            if (op->names[k].register_index == to->int_value && to->int_value != name->register_index)
                return true;
        if (to && (size_t)to->int_value < MAX_REGISTERS)
            depends[to->int_value] = true;
    }
    return false;
}

/* True if the contract declares this name unbacked: the kernel chooses its size. */
static bool op_is_unbacked_name(const check_op *op, const char *name)
{
    const check_json *unbacked = check_json_find_member(op->contract, "unbacked");
    for (const check_json *u = unbacked ? unbacked->child : NULL; u; u = u->next)
        if (!strcmp(u->text, name))
            return true;
    return false;
}

/* Fills op->names with the names of the contract, except unbacked ones, whose size the kernel chooses. */
static void op_read_names(check_op *op)
{
    static const char *const kinds[] = { "dim", "run", "dtype" };
    uint32_t n[3] = { 0 };
    const check_json *variables = check_json_find_member(op->program, "variables");
    for (const check_json *v = variables ? variables->child : NULL; v; v = v->next) {
        if (op_is_unbacked_name(op, check_json_find_string(v, "name"))) /* the kernel chooses its size */
            continue;
        for (uint32_t kind = 0; kind < 3; kind++)
            if (!strcmp(check_json_find_string(v, "kind"), kinds[kind]))
                op->names[op->nnames++] = (check_name){ .text = check_json_find_string(v, "name"),
                    .kind = (enum check_name_kind)kind,
                    .register_index = (uint32_t)check_json_find_member(v, "register")->int_value,
                    .value_index = n[kind]++ };
    }
}

/* Sets op->is_unused of each argument that the contract declares unused. */
static void op_read_unused_arguments(check_op *op)
{
    const check_json *unused = check_json_find_member(op->contract, "unused");
    for (const check_json *u = unused ? unused->child : NULL; u; u = u->next)
        for (size_t i = 0; i < op->nargs; i++)
            op->is_unused[i] |= !strcmp(u->text, op->slots[i].name);
}

/* Returns the number that is the object's member with this key; `otherwise` if it is absent or null. */
static double op_get_number_or_default(const check_json *object, const char *key, double otherwise)
{
    const check_json *j = check_json_find_member(object, key);
    return j && j->kind != CHECK_JSON_NULL ? j->real_value : otherwise;
}

int check_op_init(check_op *op, dv_operator *declared)
{
    char *text;
    memset(op, 0, sizeof *op);
    op->op = declared;
    op->name = dv_operator_name(declared);
    op->nargs = dv_operator_nargs(declared);
    op->nresults = dv_operator_nresults(declared);
    if (op->nargs > CHECK_MAX_ARGS || op->nresults > CHECK_MAX_RESULTS)
        op->unsupported_reason = "it has more arguments or results than the checker handles";
    for (size_t i = 0; !op->unsupported_reason && i < op->nargs + op->nresults; i++)
        if (dv_operator_slot(declared, i, &op->slots[i]))
            return -1;
    if (dv_operator_json(declared, &text))
        return -1;
    op->json = check_json_parse(text);
    dv_free(text);
    if (!op->json)
        return dv_fail(DV_EINVAL, "%s: its JSON cannot be read", op->name), -1;
    const check_json *contract = check_json_find_member(op->json, "contract");
    op->contract = contract && contract->kind == CHECK_JSON_OBJECT ? contract : NULL;
    const bool is_never_reproducible = op_has_tag(op, "nondeterministic_bitwise");
    op->is_seeded = op_has_tag(op, "nondeterministic_seeded") && !is_never_reproducible;
    op->is_nondeterministic = op->is_seeded || is_never_reproducible;
    op->has_shape_function = check_json_is_true(op->json, "shape_function");
    op->program = check_json_find_member(op->contract, "program");
    op->rtol = op_get_number_or_default(op->contract, "rtol", -1);
    op->atol = op_get_number_or_default(op->contract, "atol", -1);
    op->rounded_tolerance = op_get_number_or_default(op->contract, "rounded", 0);
    op_read_names(op);
    op_read_unused_arguments(op);
    op_read_argument_uses(op, check_json_find_member(op->program, "solve"), false);
    op_add_sizes_at_all_bounds(op);
    op->ncontract_sizes = op->nextra_sizes;
    const check_json *results = check_json_find_member(op->program, "results");
    for (const check_json *r = results ? results->child : NULL; r; r = r->next)
        op_read_argument_uses(op, check_json_find_member(r, "steps"), true);
    op_set_decides_inference(op);
    return op_read_cpu_kernels(op);
}

bool check_is_tensor_argument(const check_op *op, size_t slot)
{
    return op->slots[slot].type == DV_FIELD_TENSOR || op->slots[slot].type == DV_FIELD_TENSORS;
}

const check_name *check_op_find_name(const check_op *op, enum check_name_kind kind, const char *text)
{
    for (size_t k = 0; k < op->nnames; k++)
        if (op->names[k].kind == kind && !strcmp(op->names[k].text, text))
            return &op->names[k];
    return NULL;
}

int64_t *check_name_find_sizes(const check_name *name, check_case *c)
{
    return name->kind == CHECK_NAME_VARIADIC ? c->names.variadics[name->value_index].sizes
        : name->kind == CHECK_NAME_DIM       ? &c->names.dims[name->value_index]
                                             : NULL;
}
