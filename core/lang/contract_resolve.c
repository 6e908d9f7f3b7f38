/* Names get meanings and trees get types. Patterns create variables: a name in the dims or the dtype of an input that is not an argument
 * of the schema is a size, a run or a dtype variable; everywhere else a name must exist. */
#include "lang/contract_internal.h"

#include <stdio.h>

/* What a tree is resolved against. Predicates of rows have a text of their own and may not create anything. */
struct resolver { const dv__contract *c; const char *text; };

static int resolve(const struct resolver *r, dv__expr *e);

/* ---- Element types by name ------------------------------------------------------------------------------------------------ */

static const struct { const char *name; uint32_t key; } dtype_names[] = {
#define ROW(name, code, bits) { #name, DV_DTYPE_##name },
    DV_DTYPES(ROW)
#undef ROW
};
enum { NDTYPES = sizeof dtype_names / sizeof *dtype_names };

bool dv__dtype_lookup(const char *name, uint32_t *key)
{
    for (int i = 0; i < NDTYPES; i++)
        if (!strcmp(dtype_names[i].name, name)) {
            *key = dtype_names[i].key;
            return true;
        }
    return false;
}

/* ---- Finding ------------------------------------------------------------------------------------------------------------- */

static int find_dim(const dv__contract *c, const char *name)
{
    for (uint32_t i = 0; i < c->ndims; i++)
        if (!strcmp(c->dims[i].name, name))
            return (int)i;
    return -1;
}

static int find_run(const dv__contract *c, const char *name)
{
    for (uint32_t i = 0; i < c->nruns; i++)
        if (!strcmp(c->runs[i], name))
            return (int)i;
    return -1;
}

static int find_dtype_var(const dv__contract *c, const char *name)
{
    for (uint32_t i = 0; i < c->ndtypes; i++)
        if (!strcmp(c->dtypes[i].name, name))
            return (int)i;
    return -1;
}

static enum dv__ctype type_of_argument(const dv__type *t)
{
    if (t->kind == DV__TYPE_OPTIONAL)
        return type_of_argument(t->elems[0]);
    switch (t->kind) {
    case DV__TYPE_TENSOR: return DV__CTYPE_TENSOR;
    case DV__TYPE_INT:
    case DV__TYPE_SYMINT: return DV__CTYPE_INT;
    case DV__TYPE_FLOAT:
    case DV__TYPE_SYMFLOAT:
    case DV__TYPE_SCALAR: return DV__CTYPE_NUMBER;
    case DV__TYPE_BOOL:
    case DV__TYPE_SYMBOOL: return DV__CTYPE_BOOL;
    case DV__TYPE_STR: return DV__CTYPE_STRING;
    case DV__TYPE_SCALAR_TYPE: return DV__CTYPE_DTYPE;
    case DV__TYPE_LIST: {
        const enum dv__ctype element = type_of_argument(t->elems[0]);
        return element == DV__CTYPE_TENSOR ? DV__CTYPE_TENSORS : element == DV__CTYPE_INT ? DV__CTYPE_INTS : DV__CTYPE_OTHER;
    }
    default: return DV__CTYPE_OTHER;
    }
}

static const char *type_text(unsigned type)
{
    static const char *const texts[] = { "nothing", "an integer", "a number", "a boolean", "a string", "a dtype", "a run of dims",
        "a list of integers", "a tensor", "a list of tensors", "an argument that only present() can ask about" };
    return texts[type];
}

/* ---- Trees ---------------------------------------------------------------------------------------------------------------- */

static int wrong(const struct resolver *r, const dv__expr *e, const char *format, ...) __attribute__((format(printf, 3, 4)));
static int wrong(const struct resolver *r, const dv__expr *e, const char *format, ...)
{
    char what[512];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    return dv__fail_at(DV_ECONTRACT, r->text, e->at, "%s", what);
}

static int expect(const struct resolver *r, const dv__expr *e, enum dv__ctype wanted)
{
    const bool number = wanted == DV__CTYPE_NUMBER && e->type == DV__CTYPE_INT;
    if (e->type == wanted || number)
        return DV_OK;
    return wrong(r, e, "expected %s, found %s", type_text(wanted), type_text(e->type));
}

static int resolve_as(const struct resolver *r, dv__expr *e, enum dv__ctype wanted)
{
    const int status = resolve(r, e);
    return status ? status : expect(r, e, wanted);
}

static int resolve_name(const struct resolver *r, dv__expr *e)
{
    const dv__contract *c = r->c;
    const int slot = dv__schema_arg(c->schema, e->name), dim = find_dim(c, e->name), dtype = find_dtype_var(c, e->name);
    uint32_t key;
    if (e->role == DV__ROLE_ELEMENT)
        return wrong(r, e, "%s{i} may only stand alone in the pattern of a list", e->name);
    if (slot >= 0) {
        e->role = DV__ROLE_ARG;
        e->ref = slot;
        e->type = (uint8_t)type_of_argument(c->schema->args[slot].type);
    } else if (dim >= 0) {
        e->role = DV__ROLE_DIM;
        e->ref = dim;
        e->type = DV__CTYPE_INT;
        if (c->dims[dim].element)
            return wrong(r, e, "'%s' is another size for each tensor of the list: expected total(%s)", e->name, e->name);
    } else if (dtype >= 0) {
        e->role = DV__ROLE_DTYPE_VAR;
        e->ref = dtype;
        e->type = DV__CTYPE_DTYPE;
    } else if (dv__dtype_lookup(e->name, &key)) {
        e->role = DV__ROLE_DTYPE;
        e->i = (int64_t)key;
        e->type = DV__CTYPE_DTYPE;
    } else if (find_run(c, e->name) >= 0) {
        return wrong(r, e, "'%s' is a run of dims: expected *%s", e->name, e->name);
    } else {
        return wrong(r, e, "unknown name '%s': no input has such a size or dtype, and the schema no such argument", e->name);
    }
    return DV_OK;
}

static int resolve_star(const struct resolver *r, dv__expr *e)
{
    const int slot = dv__schema_arg(r->c->schema, e->name), run = find_run(r->c, e->name);
    e->type = DV__CTYPE_RUN;
    if (slot >= 0) {
        e->role = DV__ROLE_LIST;
        e->ref = slot;
        const enum dv__ctype type = type_of_argument(r->c->schema->args[slot].type);
        return type == DV__CTYPE_INTS ? DV_OK : wrong(r, e, "'*%s' needs a list of integers, found %s", e->name, type_text(type));
    }
    e->role = DV__ROLE_RUN;
    e->ref = run;
    return run >= 0 ? DV_OK : wrong(r, e, "unknown run '*%s': no input has it", e->name);
}

static const struct function { const char *name, *operands; enum dv__ctype result; } functions[] = {
#define ROW(id, name, result, operands) { name, operands, DV__CTYPE_##result },
    DV__FUNCTIONS(ROW)
#undef ROW
};

static const char *operand_text(char letter)
{
    switch (letter) {
    case 'i': return "an integer";
    case 'n': return "a number";
    case 'b': return "a boolean";
    case 'd': return "a dtype";
    case 'D': return "a dtype, a tensor or a number argument";
    case 'r': return "a run of dims";
    case 't': return "a tensor argument";
    case 'R': return "a tensor argument or a run of dims";
    case 'L': return "a list";
    case 'I': return "an int[] argument";
    case 'x': return "an integer or an int[] argument";
    case 'o': return "an optional argument";
    default: return "a size written with {i}";
    }
}

static bool operand_fits(const struct resolver *r, char letter, const dv__expr *e)
{
    const bool argument = e->kind == DV__EXPR_NAME && e->role == DV__ROLE_ARG;
    switch (letter) {
    case 'i': return e->type == DV__CTYPE_INT;
    case 'n': return e->type == DV__CTYPE_INT || e->type == DV__CTYPE_NUMBER;
    case 'b': return e->type == DV__CTYPE_BOOL;
    case 'd': return e->type == DV__CTYPE_DTYPE;
    case 'D': return e->type == DV__CTYPE_DTYPE || e->type == DV__CTYPE_TENSOR
        || (argument && (e->type == DV__CTYPE_NUMBER || e->type == DV__CTYPE_INT || e->type == DV__CTYPE_BOOL));
    case 'r': return e->type == DV__CTYPE_RUN;
    case 't': return e->type == DV__CTYPE_TENSOR;
    case 'R': return e->type == DV__CTYPE_TENSOR || e->type == DV__CTYPE_TENSORS || e->type == DV__CTYPE_RUN;
    case 'L': return e->type == DV__CTYPE_TENSORS || e->type == DV__CTYPE_INTS;
    case 'I': return e->type == DV__CTYPE_INTS;
    case 'x': return e->type == DV__CTYPE_INT || e->type == DV__CTYPE_INTS;
    case 'o': return argument && r->c->schema->args[e->ref].type->kind == DV__TYPE_OPTIONAL;
    default: return true;
    }
}

/* total(n): the only place where a per-tensor size is named without {i}. */
static int resolve_total(const struct resolver *r, dv__expr *e)
{
    dv__expr *name = e->args[0];
    const int dim = name->kind == DV__EXPR_NAME ? find_dim(r->c, name->name) : -1;
    if (dim < 0 || !r->c->dims[dim].element)
        return wrong(r, name, "expected %s in total()", operand_text('e'));
    name->role = DV__ROLE_ELEMENT;
    name->ref = dim;
    name->type = DV__CTYPE_INT;
    return DV_OK;
}

static int resolve_if(const struct resolver *r, dv__expr *e)
{
    int status = resolve_as(r, e->args[0], DV__CTYPE_BOOL);
    if (!status)
        status = resolve(r, e->args[1]);
    if (!status)
        status = resolve(r, e->args[2]);
    if (status)
        return status;
    const unsigned a = e->args[1]->type, b = e->args[2]->type;
    if ((a != b && (a != DV__CTYPE_INT || b != DV__CTYPE_NUMBER) && (a != DV__CTYPE_NUMBER || b != DV__CTYPE_INT)) || a >= DV__CTYPE_RUN)
        return wrong(r, e->args[2], "expected values of one type in if(), found %s and %s", type_text(a), type_text(b));
    e->type = (uint8_t)(a == b ? a : DV__CTYPE_NUMBER);
    return DV_OK;
}

static int resolve_call(const struct resolver *r, dv__expr *e)
{
    int fn = 0;
    while (fn < DV__FN_COUNT && strcmp(functions[fn].name, e->name) != 0)
        fn++;
    if (fn == DV__FN_COUNT)
        return wrong(r, e, "unknown function '%s': expected one of min, max, abs, ceildiv, if, len, rank, numel, size, stride, total, axis, "
            "present, absent, dtype, itemsize, shape, broadcast, reduced, swap, permute, promote, accumulate", e->name);
    const char *operands = functions[fn].operands;
    const size_t letters = strlen(operands);
    const bool many = operands[letters - 1] == '+';
    const uint32_t least = (uint32_t)(many ? letters - 1 : letters);
    if (e->n < least || (e->n > least && !many))
        return wrong(r, e, "expected %s%u operand%s of %s(), found %u", many ? "at least " : "", least, least == 1 ? "" : "s", e->name, e->n);
    e->ref = fn;
    e->type = (uint8_t)functions[fn].result;
    if (fn == DV__FN_TOTAL)
        return resolve_total(r, e);
    if (fn == DV__FN_IF)
        return resolve_if(r, e);
    for (uint32_t i = 0; i < e->n; i++) {
        const char letter = operands[i < least ? i : least - 1];
        const int status = resolve(r, e->args[i]);
        if (status)
            return status;
        if (!operand_fits(r, letter, e->args[i]))
            return wrong(r, e->args[i], "expected %s in %s(), found %s", operand_text(letter), e->name, type_text(e->args[i]->type));
    }
    return DV_OK;
}

static int resolve_arithmetic(const struct resolver *r, dv__expr *e)
{
    e->type = DV__CTYPE_INT;
    for (uint32_t i = 0; i < e->n; i++) {
        const int status = resolve_as(r, e->args[i], DV__CTYPE_NUMBER);
        if (status)
            return status;
        if (e->args[i]->type == DV__CTYPE_NUMBER)
            e->type = DV__CTYPE_NUMBER;
    }
    if (e->type == DV__CTYPE_NUMBER && (e->kind == DV__EXPR_FLOORDIV || e->kind == DV__EXPR_MOD))
        return wrong(r, e, "'%s' is for integers", e->kind == DV__EXPR_MOD ? "%" : "//");
    return DV_OK;
}

static bool is_number(const dv__expr *e) { return e->type == DV__CTYPE_INT || e->type == DV__CTYPE_NUMBER; }

static int resolve_comparison(const struct resolver *r, dv__expr *e)
{
    int status = DV_OK;
    for (uint32_t i = 0; i < e->n && !status; i++)
        status = resolve(r, e->args[i]);
    if (status)
        return status;
    e->type = DV__CTYPE_BOOL;
    const bool ordered = e->kind == DV__EXPR_LT || e->kind == DV__EXPR_LE || e->kind == DV__EXPR_GT || e->kind == DV__EXPR_GE;
    const dv__expr *a = e->args[0];
    for (uint32_t i = 1; i < e->n; i++) {
        const dv__expr *b = e->args[i];
        if (is_number(a) && is_number(b))
            continue;
        if (ordered)
            return wrong(r, is_number(a) ? b : a, "expected a number, found %s", type_text(is_number(a) ? b->type : a->type));
        if (a->type != b->type)
            return wrong(r, b, "expected %s, found %s: they can never be equal", type_text(a->type), type_text(b->type));
        if (a->type == DV__CTYPE_TENSOR || a->type == DV__CTYPE_TENSORS || a->type == DV__CTYPE_INTS || a->type == DV__CTYPE_OTHER)
            return wrong(r, b, "%s cannot be compared", type_text(a->type));
    }
    return DV_OK;
}

static int resolve(const struct resolver *r, dv__expr *e)
{
    int status = DV_OK;
    switch (e->kind) {
    case DV__EXPR_INT: e->type = DV__CTYPE_INT; return DV_OK;
    case DV__EXPR_FLOAT: e->type = DV__CTYPE_NUMBER; return DV_OK;
    case DV__EXPR_STRING: e->type = DV__CTYPE_STRING; return DV_OK;
    case DV__EXPR_BOOL: e->type = DV__CTYPE_BOOL; return DV_OK;
    case DV__EXPR_NAME: return resolve_name(r, e);
    case DV__EXPR_STAR: return resolve_star(r, e);
    case DV__EXPR_CALL: return resolve_call(r, e);
    case DV__EXPR_ATTR:
        status = resolve_as(r, e->args[0], DV__CTYPE_TENSOR);
        e->type = DV__CTYPE_NUMBER;
        if (!status && strcmp(e->name, "values") != 0)
            status = wrong(r, e, "unknown attribute '.%s': expected .values", e->name);
        return status;
    case DV__EXPR_INDEX:
        status = resolve_as(r, e->args[0], DV__CTYPE_INTS);
        e->type = DV__CTYPE_INT;
        return status ? status : resolve_as(r, e->args[1], DV__CTYPE_INT);
    case DV__EXPR_NEG:
    case DV__EXPR_ADD:
    case DV__EXPR_SUB:
    case DV__EXPR_MUL:
    case DV__EXPR_DIV:
    case DV__EXPR_FLOORDIV:
    case DV__EXPR_MOD: return resolve_arithmetic(r, e);
    case DV__EXPR_NOT:
    case DV__EXPR_AND:
    case DV__EXPR_OR:
        e->type = DV__CTYPE_BOOL;
        for (uint32_t i = 0; i < e->n && !status; i++)
            status = resolve_as(r, e->args[i], DV__CTYPE_BOOL);
        return status;
    case DV__EXPR_NONE:
        return wrong(r, e, "None has no place here: ask with present() or absent()");
    case DV__EXPR_LIST:
    case DV__EXPR_KEYWORD:
        return wrong(r, e, "contracts have no lists and no keyword operands");
    default: return resolve_comparison(r, e);
    }
}

int dv__contract_resolve_expr(const dv__contract *c, const char *text, dv__expr *e, enum dv__ctype wanted, const char *what)
{
    const struct resolver r = { c, text };
    const int status = resolve(&r, e);
    if (status || e->type == wanted || (wanted == DV__CTYPE_NUMBER && e->type == DV__CTYPE_INT))
        return status;
    return wrong(&r, e, "expected %s for %s, found %s", type_text(wanted), what, type_text(e->type));
}

dv__needs dv__contract_needs(const dv__contract *c, const dv__expr *e)
{
    dv__needs n = { 0, 0, 0 };
    if (e->role == DV__ROLE_DIM || e->role == DV__ROLE_ELEMENT)
        n.dims = 1ull << e->ref;
    else if (e->role == DV__ROLE_RUN)
        n.runs = 1u << e->ref;
    else if (e->role == DV__ROLE_DTYPE_VAR)
        n.dtypes = 1u << e->ref;
    for (uint32_t i = 0; i < e->n; i++)
        n = dv__needs_or(n, dv__contract_needs(c, e->args[i]));
    return n;
}

const char *dv__contract_text_of(dv__contract *c, const dv__expr *e)
{
    dv__text t = { 0 };
    char *s = NULL;
    dv__expr_print(e, &t);
    if (dv__text_take(&t, &s))
        return NULL;
    const char *copy = dv__arena_strndup(&c->arena, s, strlen(s));
    dv__free(s);
    return copy;
}

/* ---- Variables ------------------------------------------------------------------------------------------------------------- */

/* One name, one meaning. */
static int check_free(const struct resolver *r, const dv__expr *e, const char *as)
{
    const dv__contract *c = r->c;
    uint32_t key;
    const char *already = dv__schema_arg(c->schema, e->name) >= 0 ? "an argument" : dv__dtype_lookup(e->name, &key) ? "a dtype"
        : find_dim(c, e->name) >= 0 ? "a size" : find_run(c, e->name) >= 0 ? "a run of dims" : find_dtype_var(c, e->name) >= 0 ? "a dtype variable" : NULL;
    return already ? wrong(r, e, "'%s' is %s: it cannot be %s too", e->name, already, as) : DV_OK;
}

static int add_dim(dv__contract *c, const dv__expr *e, bool element, const char *as, int *out)
{
    const struct resolver r = { c, c->text };
    const int status = check_free(&r, e, as);
    if (status)
        return status;
    if (c->ndims == DV__MAX_DIM_VARS)
        return dv__fail_at(DV_ELIMIT, c->text, e->at, "more than %d sizes", DV__MAX_DIM_VARS);
    *out = (int)c->ndims;
    c->dims[c->ndims++] = (dv__dim_var){ .name = e->name, .at = e->at, .element = element };
    return DV_OK;
}

static int add_run(dv__contract *c, const dv__expr *e)
{
    const struct resolver r = { c, c->text };
    const int status = check_free(&r, e, "a run of dims");
    if (status)
        return status;
    if (c->nruns == DV__MAX_RUNS)
        return dv__fail_at(DV_ELIMIT, c->text, e->at, "more than %d runs of dims", DV__MAX_RUNS);
    c->runs[c->nruns++] = e->name;
    return DV_OK;
}

/* Make variables of the names in an input's dim. */
static int create_in(dv__contract *c, const dv__expr *e)
{
    int status = DV_OK, dim;
    if (e->kind == DV__EXPR_NAME && e->role == DV__ROLE_NONE && dv__schema_arg(c->schema, e->name) < 0 && find_dim(c, e->name) < 0)
        return add_dim(c, e, false, "a size", &dim);
    if (e->kind == DV__EXPR_STAR && dv__schema_arg(c->schema, e->name) < 0 && find_run(c, e->name) < 0)
        return add_run(c, e);
    for (uint32_t i = 0; i < e->n && !status; i++)
        status = create_in(c, e->args[i]);
    return status;
}

static int create_element(dv__contract *c, const dv__pattern *t, dv__item *item)
{
    const struct resolver r = { c, c->text };
    dv__expr *e = item->e;
    int dim = find_dim(c, e->name), status;
    if (t->kind != DV__PATTERN_LIST)
        return wrong(&r, e, "%s{i} is for lists of tensors, and '%s' is none", e->name, t->name);
    if (dim >= 0)
        return wrong(&r, e, "'%s' has a meaning already: %s{i} needs a name of its own", e->name, e->name);
    status = add_dim(c, e, true, "a size of each tensor", &dim);
    if (status)
        return status;
    e->ref = dim;
    e->type = DV__CTYPE_INT;
    return DV_OK;
}

static int create_dtype_var(dv__contract *c, dv__expr *e)
{
    uint32_t key;
    const int slot = dv__schema_arg(c->schema, e->name);
    if (dv__dtype_lookup(e->name, &key) || find_dtype_var(c, e->name) >= 0)
        return DV_OK;
    if (slot >= 0 && type_of_argument(c->schema->args[slot].type) == DV__CTYPE_DTYPE)
        return DV_OK;
    const struct resolver r = { c, c->text };
    const int status = check_free(&r, e, "a dtype variable");
    if (status)
        return status;
    if (c->ndtypes == DV__MAX_DTYPE_VARS)
        return dv__fail_at(DV_ELIMIT, c->text, e->at, "more than %d dtype variables", DV__MAX_DTYPE_VARS);
    c->dtypes[c->ndtypes++] = (dv__dtype_var){ e->name, e->at, NULL, 0 };
    return DV_OK;
}

/* ---- Patterns --------------------------------------------------------------------------------------------------------------- */

static int add_aside(dv__contract *c, int pattern, int item, const char *at, int8_t *bit)
{
    if (c->nasides == DV__MAX_ASIDES)
        return dv__fail_at(DV_ELIMIT, c->text, at, "more than %d computed dims", DV__MAX_ASIDES);
    c->asides[c->nasides] = (dv__aside){ (int16_t)pattern, (int16_t)item };
    *bit = (int8_t)c->nasides++;
    return DV_OK;
}

/* pattern: its index for inputs, -1 for outputs. */
static int resolve_item(dv__contract *c, dv__item *item, int pattern, int index)
{
    const struct resolver r = { c, c->text };
    dv__expr *e = item->e;
    if (e->role == DV__ROLE_ELEMENT && pattern < 0)
        return wrong(&r, e, "%s{i} is for the patterns of inputs: expected total(%s)", e->name, e->name);
    if (e->role != DV__ROLE_ELEMENT) {
        const int status = resolve(&r, e);
        if (status)
            return status;
        if (e->type != DV__CTYPE_INT && e->type != DV__CTYPE_RUN)
            return wrong(&r, e, e->type == DV__CTYPE_INTS ? "expected a dim, found %s: a run of its elements is written *%s"
                : "expected a dim, found %s", type_text(e->type), e->name ? e->name : "");
    }
    item->text = e->role == DV__ROLE_ELEMENT ? dv__arena_strndup(&c->arena, e->at, strcspn(e->at, "}") + 1) : dv__contract_text_of(c, e);
    item->needs = dv__contract_needs(c, e);
    if (!item->text)
        return DV_ENOMEM;
    item->ref = (int16_t)e->ref;
    item->kind = e->role == DV__ROLE_ELEMENT ? DV__ITEM_ELEMENT : e->role == DV__ROLE_DIM ? DV__ITEM_VAR
        : e->kind == DV__EXPR_INT ? DV__ITEM_INT : e->role == DV__ROLE_RUN ? DV__ITEM_RUN
        : e->type == DV__CTYPE_RUN ? DV__ITEM_RUNS : DV__ITEM_EXPR;
    item->value = e->i;
    if (e->kind == DV__EXPR_NEG && e->args[0]->kind == DV__EXPR_INT && e->args[0]->i)
        return wrong(&r, e, "expected a size, found the negative %s", item->text);
    if (item->kind == DV__ITEM_EXPR && pattern >= 0 && item->needs.dims)
        return add_aside(c, pattern, index, e->at, &item->aside);
    return DV_OK;
}

static int resolve_dims(dv__contract *c, dv__dims *dims, int pattern)
{
    for (uint32_t i = 0; i < dims->n; i++) {
        const int status = resolve_item(c, &dims->items[i], pattern, (int)i);
        if (status)
            return status;
        dims->singles += dims->items[i].e->type == DV__CTYPE_INT;
    }
    return DV_OK;
}

static int resolve_dtype(dv__contract *c, dv__dtype_spec *spec)
{
    const struct resolver r = { c, c->text };
    for (uint32_t i = 0; i < spec->n; i++) {
        dv__expr *e = spec->alternatives[i];
        const int status = resolve_as(&r, e, DV__CTYPE_DTYPE);
        if (status)
            return status;
        if (spec->n > 1 && e->role != DV__ROLE_DTYPE)
            return wrong(&r, e, "expected dtypes around '|', found '%s'", e->name ? e->name : "an expression");
        if (spec->n == 1 && e->role == DV__ROLE_DTYPE)
            spec->kind = DV__DTYPE_ONE, spec->one = (uint32_t)e->i;
        else if (spec->n == 1 && e->role == DV__ROLE_DTYPE_VAR)
            spec->kind = DV__DTYPE_VAR, spec->ref = (int16_t)e->ref;
    }
    return DV_OK;
}

/* Variables first, in all inputs, so that an earlier pattern may use a later one's. */
static int create_variables(dv__contract *c)
{
    int status = DV_OK;
    for (uint32_t i = 0; i < c->npatterns; i++) {
        dv__pattern *t = &c->patterns[i];
        for (uint32_t k = 0; k < t->dims.n && !status; k++) {
            dv__item *item = &t->dims.items[k];
            status = item->e->role == DV__ROLE_ELEMENT ? create_element(c, t, item) : create_in(c, item->e);
        }
        for (uint32_t k = 0; k < t->dtype.n && !status; k++)
            if (t->dtype.alternatives[k]->kind == DV__EXPR_NAME)
                status = create_dtype_var(c, t->dtype.alternatives[k]);
        if (status)
            return status;
    }
    for (uint32_t i = 0; i < c->ndefinitions; i++) {
        dv__definition *d = &c->definitions[i];
        const dv__expr name = { .kind = DV__EXPR_NAME, .name = d->name, .at = d->at };
        int dim = find_dim(c, d->name);
        if (dim < 0)
            status = add_dim(c, &name, false, "a definition", &dim);
        if (status)
            return status;
        d->var = (int16_t)dim;
        c->dims[dim].defined = true;
    }
    for (uint32_t i = 0; i < c->nunbacked; i++) {
        const dv__expr name = { .kind = DV__EXPR_NAME, .name = c->unbacked[i].name, .at = c->unbacked[i].at };
        int dim;
        status = add_dim(c, &name, false, "an unbacked size", &dim);
        if (status)
            return status;
        c->unbacked[i].var = (int16_t)dim;
        c->dims[dim].unbacked = true;
    }
    return DV_OK;
}

static int resolve_inputs(dv__contract *c)
{
    for (uint32_t i = 0; i < c->npatterns; i++) {
        dv__pattern *t = &c->patterns[i];
        int status = resolve_dims(c, &t->dims, (int)i);
        if (!status)
            status = resolve_dtype(c, &t->dtype);
        if (status)
            return status;
        if (t->kind == DV__PATTERN_INTS && !t->dims.any && (t->dims.n != 1 || t->dims.singles != 1))
            return dv__fail_at(DV_ECONTRACT, c->text, t->at, "'%s' is a list of integers: its pattern has one dim, its length", t->name);
    }
    for (uint32_t i = 0; i < c->ndefinitions; i++) {
        dv__definition *d = &c->definitions[i];
        int status = dv__contract_resolve_expr(c, c->text, d->e, DV__CTYPE_INT, "a definition");
        if (!status)
            status = add_aside(c, -1, (int)i, d->at, &d->aside);
        if (status)
            return status;
        d->needs = dv__contract_needs(c, d->e);
    }
    return DV_OK;
}

/* ---- Outputs ---------------------------------------------------------------------------------------------------------------- */

/* A call of a function on an argument, for what like(x) and view(x) leave unsaid. */
static dv__expr *call_on(dv__contract *c, enum dv__function fn, int slot, const char *at)
{
    dv__expr *call = DV__ARENA_NEW(&c->arena, dv__expr), *arg = DV__ARENA_NEW(&c->arena, dv__expr);
    dv__expr **args = DV__ARENA_ARRAY(&c->arena, dv__expr *, 1);
    if (!call || !arg || !args)
        return NULL;
    arg->kind = DV__EXPR_NAME;
    arg->name = c->schema->args[slot].name;
    arg->at = call->at = at;
    call->kind = DV__EXPR_CALL;
    call->name = functions[fn].name;
    call->args = args;
    call->n = call->depth = 1;
    args[0] = arg;
    return call;
}

static int complete_output(dv__contract *c, dv__pattern *t)
{
    const int source = t->view_of >= 0 ? t->view_of : t->like;
    if (t->presence == DV__ABSENT || t->is_argument >= 0 || source < 0)
        return DV_OK;
    if (!t->dims.given && !t->transform) {
        int status = dv__contract_grow(c, &t->dims.items, 0, sizeof *t->dims.items);
        if (status)
            return status;
        memset(t->dims.items, 0, sizeof *t->dims.items);
        t->dims.items[0].aside = -1;
        t->dims.items[0].e = call_on(c, DV__FN_SHAPE, source, t->at);
        t->dims.n = 1;
        if (!t->dims.items[0].e)
            return DV_ENOMEM;
    }
    if (!t->dtype.n) {
        const int status = dv__contract_grow(c, &t->dtype.alternatives, 0, sizeof *t->dtype.alternatives);
        if (status)
            return status;
        t->dtype.alternatives[0] = call_on(c, DV__FN_DTYPE, source, t->at);
        t->dtype.kind = DV__DTYPE_EXPR;
        t->dtype.n = 1;
        if (!t->dtype.alternatives[0])
            return DV_ENOMEM;
    }
    return DV_OK;
}

/* swap(d0, d1), permute(dims), narrow(dim, start, length), select(dim, index) */
static int resolve_transform(dv__contract *c, dv__expr *e)
{
    static const struct { const char *name; uint32_t n; } transforms[] = { { "swap", 2 }, { "permute", 1 }, { "narrow", 3 }, { "select", 2 } };
    const struct resolver r = { c, c->text };
    for (int i = 0; i < 4; i++) {
        if (e->kind != DV__EXPR_CALL || strcmp(e->name, transforms[i].name) != 0)
            continue;
        if (e->n != transforms[i].n)
            return wrong(&r, e, "expected %u operands of %s() in a view, found %u", transforms[i].n, e->name, e->n);
        e->ref = i;
        for (uint32_t k = 0; k < e->n; k++) {
            const int status = resolve_as(&r, e->args[k], i == 1 ? DV__CTYPE_INTS : DV__CTYPE_INT);
            if (status)
                return status;
        }
        return DV_OK;
    }
    return wrong(&r, e, "expected swap(d0, d1), permute(dims), narrow(dim, start, length) or select(dim, index) in view()");
}

static int resolve_output(dv__contract *c, dv__pattern *t)
{
    int status = complete_output(c, t);
    if (!status)
        status = resolve_dims(c, &t->dims, -1);
    if (!status)
        status = resolve_dims(c, &t->strides, -1);
    if (!status)
        status = resolve_dtype(c, &t->dtype);
    if (!status && t->transform)
        status = resolve_transform(c, t->transform);
    if (!status && t->offset)
        status = dv__contract_resolve_expr(c, c->text, t->offset, DV__CTYPE_INT, "an offset");
    if (status)
        return status;
    const bool said = t->dims.any || t->presence == DV__ABSENT || t->is_argument >= 0;
    if (!said && t->dtype.kind == DV__DTYPE_ANY)
        return dv__fail_at(DV_ECONTRACT, c->text, t->at, "an output needs a dtype: expected ':' and a dtype after '%s'", t->text);
    if (t->dtype.kind == DV__DTYPE_SET)
        return dv__fail_at(DV_ECONTRACT, c->text, t->at, "an output has one dtype, found '%s'", t->text);
    for (uint32_t i = 0; i < t->dims.n; i++)
        for (uint32_t u = 0; u < c->nunbacked; u++)
            t->unbacked |= (t->dims.items[i].needs.dims >> c->unbacked[u].var & 1) != 0;
    if (t->has_strides && (t->strides.singles != t->strides.n || !t->dims.given))
        return dv__fail_at(DV_ECONTRACT, c->text, t->at, "strides[...] need dims, and have one stride for each");
    return DV_OK;
}

/* The argument that a return Tensor(a!) is, or -1. */
static int aliased_argument(const dv__schema *s, const dv__argument *ret)
{
    if (!ret->alias || !ret->alias->write || !ret->alias->nbefore || ret->type->kind != DV__TYPE_TENSOR)
        return -1;
    for (size_t i = 0; i < s->nargs; i++) {
        const dv__alias *a = s->args[i].alias;
        if (a && a->write && a->nbefore && !strcmp(a->before[0], ret->alias->before[0]) && s->args[i].type->kind == DV__TYPE_TENSOR)
            return (int)i;
    }
    return -1;
}

/* Returns that are arguments need no pattern: they get one here. */
static int add_aliased_outputs(dv__contract *c)
{
    const dv__schema *s = c->schema;
    for (size_t i = 0; i < s->nreturns; i++) {
        const int argument = aliased_argument(s, &s->returns[i]);
        bool found = false;
        for (uint32_t k = 0; k < c->noutputs; k++)
            if (c->outputs[k].slot == (int32_t)(s->nargs + i)) {
                c->outputs[k].is_argument = argument;
                found = true;
            }
        if (argument < 0 || found)
            continue;
        const int status = dv__contract_grow(c, &c->outputs, c->noutputs, sizeof *c->outputs);
        if (status)
            return status;
        dv__pattern *t = &c->outputs[c->noutputs++];
        memset(t, 0, sizeof *t);
        t->when.group = -1;
        t->slot = (int32_t)(s->nargs + i);
        t->name = s->returns[i].name;
        t->at = c->text;
        t->text = s->args[argument].name;
        t->like = t->view_of = -1;
        t->is_argument = argument;
        t->dims.any = true;
    }
    return DV_OK;
}

/* ---- Facts -------------------------------------------------------------------------------------------------------------------- */

static int find_values(const struct resolver *r, const dv__expr *e, int32_t *slot)
{
    if (e->kind == DV__EXPR_ATTR) {
        if (*slot >= 0 && *slot != e->args[0]->ref)
            return wrong(r, e, "a constraint can speak of the values of one tensor only");
        *slot = e->args[0]->ref;
    }
    int status = DV_OK;
    for (uint32_t i = 0; i < e->n && !status; i++)
        status = find_values(r, e->args[i], slot);
    return status;
}

static int refuse_values(const struct resolver *r, const dv__expr *e)
{
    int32_t slot = -1;
    const int status = find_values(r, e, &slot);
    return status ? status : slot >= 0 ? wrong(r, e, "the values of tensors can be spoken of in constraints only") : DV_OK;
}

/* rank(*a) == e, either way round */
static void note_run_rank(dv__contract *c, const dv__constraint *k)
{
    if (k->e->kind != DV__EXPR_EQ || k->when.group >= 0)
        return;
    for (int side = 0; side < 2; side++) {
        const dv__expr *rank = k->e->args[side];
        if (rank->kind != DV__EXPR_CALL || rank->ref != DV__FN_RANK || rank->args[0]->role != DV__ROLE_RUN)
            continue;
        dv__run_rank *r = &c->run_ranks[rank->args[0]->ref];
        dv__expr *other = k->e->args[1 - side];
        const dv__needs needs = dv__contract_needs(c, other);
        if (r->e || needs.runs >> rank->args[0]->ref & 1)
            continue;
        r->e = other;
        r->text = k->text;
        r->needs = needs;
        return;
    }
}

static int resolve_constraints(dv__contract *c)
{
    const struct resolver r = { c, c->text };
    for (uint32_t i = 0; i < c->nconstraints; i++) {
        dv__constraint *k = &c->constraints[i];
        int status = dv__contract_resolve_expr(c, c->text, k->e, DV__CTYPE_BOOL, "a fact");
        if (!status)
            status = find_values(&r, k->e, &k->values);
        if (status)
            return status;
        k->needs = dv__contract_needs(c, k->e);
        note_run_rank(c, k);
    }
    return DV_OK;
}

static int resolve_named(dv__contract *c, dv__named *list, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        const int ref = list[i].run ? find_run(c, list[i].name) : find_dim(c, list[i].name);
        if (ref < 0)
            return dv__fail_at(DV_ECONTRACT, c->text, list[i].at, "expected a size or a run of an input, found '%s%s'", list[i].run ? "*" : "", list[i].name);
        list[i].ref = (int16_t)ref;
        for (uint32_t k = 0; k < i; k++)
            if (list[k].run == list[i].run && list[k].ref == ref)
                return dv__fail_at(DV_ECONTRACT, c->text, list[i].at, "'%s' is said twice", list[i].name);
    }
    return DV_OK;
}

static int resolve_facts(dv__contract *c)
{
    const struct { dv__expr *e; enum dv__ctype type; const char *what; } costs[] = {
        { c->workspace, DV__CTYPE_INT, "workspace" }, { c->flops, DV__CTYPE_NUMBER, "flops" }, { c->bytes, DV__CTYPE_NUMBER, "bytes" },
    };
    const struct resolver r = { c, c->text };
    int status = resolve_named(c, c->parallel, c->nparallel);
    if (!status)
        status = resolve_named(c, c->sums, c->nsums);
    for (size_t i = 0; i < sizeof costs / sizeof *costs && !status; i++)
        if (costs[i].e) {
            status = dv__contract_resolve_expr(c, c->text, costs[i].e, costs[i].type, costs[i].what);
            if (!status)
                status = refuse_values(&r, costs[i].e);
        }
    for (uint32_t i = 0; i < c->nunbacked && !status; i++) {
        status = dv__contract_resolve_expr(c, c->text, c->unbacked[i].min, DV__CTYPE_INT, "a bound");
        if (!status)
            status = dv__contract_resolve_expr(c, c->text, c->unbacked[i].max, DV__CTYPE_INT, "a bound");
    }
    return status;
}

int dv__contract_resolve(dv__contract *c)
{
    const struct resolver r = { c, c->text };
    int status = create_variables(c);
    if (!status)
        status = resolve_inputs(c);
    for (uint32_t g = 0; g < c->ngroups && !status; g++)
        for (uint32_t i = 0; i < c->groups[g].n && !status; i++)
            if (c->groups[g].cases[i].e)
                status = dv__contract_resolve_expr(c, c->text, c->groups[g].cases[i].e, DV__CTYPE_BOOL, "a case");
    if (!status)
        status = resolve_constraints(c);
    if (!status)
        status = add_aliased_outputs(c);
    for (uint32_t i = 0; i < c->noutputs && !status; i++)
        status = resolve_output(c, &c->outputs[i]);
    if (!status)
        status = resolve_facts(c);
    /* Values of tensors are known to kernels only. */
    for (uint32_t i = 0; i < c->npatterns && !status; i++)
        for (uint32_t k = 0; k < c->patterns[i].dims.n && !status; k++)
            status = refuse_values(&r, c->patterns[i].dims.items[k].e);
    for (uint32_t i = 0; i < c->noutputs && !status; i++)
        for (uint32_t k = 0; k < c->outputs[i].dims.n && !status; k++)
            status = refuse_values(&r, c->outputs[i].dims.items[k].e);
    return status;
}
