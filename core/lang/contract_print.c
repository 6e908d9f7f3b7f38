/* Prints a contract as text, and as JSON for bridges (docs/json.md). */
#include "lang/contract_internal.h"

/* ---- The order of solving, in words ------------------------------------------------------------------------------------ */

/* "binds m, k" and "checks T", collected while a pattern is walked. */
struct walk { dv__text binds, checks, waits; };

static void add_name(dv__text *t, const char *star, const char *name)
{
    dv__text_add(t, "%s%s%s", t->size ? ", " : "", star, name);
}

static void walk_pattern(const dv__contract *c, const dv__pattern *t, dv__needs *bound, struct walk *w)
{
    for (uint32_t i = 0; i < t->dims.n; i++) {
        const dv__item *item = &t->dims.items[i];
        if (item->kind == DV__ITEM_ELEMENT_RUN) {
            add_name(bound->runs >> item->ref & 1 ? &w->checks : &w->binds, "", item->text);
            bound->runs |= 1u << item->ref;
        } else if (item->kind == DV__ITEM_VAR || item->kind == DV__ITEM_ELEMENT) {
            add_name(bound->dims >> item->ref & 1 ? &w->checks : &w->binds, "",
                item->kind == DV__ITEM_ELEMENT ? item->text : c->dims[item->ref].name);
            bound->dims |= 1ull << item->ref;
        } else if (item->kind == DV__ITEM_RUN) {
            add_name(bound->runs >> item->ref & 1 ? &w->checks : &w->binds, "*", c->runs[item->ref].name);
            bound->runs |= 1u << item->ref;
        } else if (item->aside >= 0 && !dv__needs_within(item->needs, *bound)) {
            add_name(&w->waits, "", item->text);
        } else {
            add_name(&w->checks, "", item->text);
        }
    }
    if (t->dtype.kind == DV__DTYPE_VAR) {
        add_name(bound->dtypes >> t->dtype.ref & 1 ? &w->checks : &w->binds, "", c->dtypes[t->dtype.ref].name);
        bound->dtypes |= 1u << t->dtype.ref;
    } else if (t->dtype.kind != DV__DTYPE_ANY) {
        add_name(&w->checks, "", "its dtype");
    }
}

static void say_walk(struct walk *w, dv__text *to)
{
    const struct {
        const char *verb;
        dv__text *names;
    } parts[] = { { "binds", &w->binds }, { "checks", &w->checks }, { "puts aside", &w->waits } };
    const char *separator = " ";
    for (int i = 0; i < 3; i++) {
        to->failed |= parts[i].names->failed;
        if (parts[i].names->size)
            dv__text_add(to, "%s%s %s", separator, parts[i].verb, parts[i].names->data), separator = "; ";
        dv__text_deinit(parts[i].names);
    }
    dv__text_puts(to, *separator == ' ' ? " checks nothing\n" : "\n");
}

static void say_when(const dv__contract *c, dv__when w, dv__text *to)
{
    if (w.group >= 0)
        dv__text_add(to, "when %s: ", c->groups[w.group].cases[w.index].text);
}

static void begin_step(const dv__contract *c, dv__when w, dv__text *to)
{
    dv__text_puts(to, "    ");
    say_when(c, w, to);
}

static dv__needs pattern_needs(const dv__pattern *t)
{
    dv__needs n = { 0, 0, 0 };
    for (uint32_t i = 0; i < t->dims.n; i++)
        n = dv__needs_or(n, t->dims.items[i].needs);
    if (t->dtype.kind == DV__DTYPE_VAR)
        n.dtypes |= 1u << t->dtype.ref;
    return n;
}

/* A line for each step of solving, when every optional argument is there. In a pattern of a case, the variables of
 * unconditional patterns and of earlier patterns of the same case are bound. */
static void describe_steps(const dv__contract *c, dv__text *to)
{
    dv__needs always = { 0, 0, 0 };
    for (uint32_t i = 0; i < c->npatterns; i++) {
        const dv__pattern *t = &c->patterns[i];
        struct walk w;
        dv__needs bound = always;
        memset(&w, 0, sizeof w);
        for (uint32_t k = 0; k < i && t->when.group >= 0; k++)
            if (c->patterns[k].when.group == t->when.group && c->patterns[k].when.index == t->when.index)
                bound = dv__needs_or(bound, pattern_needs(&c->patterns[k]));
        begin_step(c, t->when, to);
        dv__text_puts(to, t->text);
        walk_pattern(c, t, &bound, &w);
        say_walk(&w, to);
        if (t->when.group < 0)
            always = bound;
    }
    for (uint32_t i = 0; i < c->nasides; i++) {
        const dv__aside *a = &c->asides[i];
        if (a->pattern < 0) {
            begin_step(c, c->definitions[a->item].when, to);
            dv__text_add(to, "%s\n", c->definitions[a->item].text);
            continue;
        }
        const dv__pattern *t = &c->patterns[a->pattern];
        const dv__item *item = &t->dims.items[a->item];
        const uint64_t unknown = item->needs.dims & ~always.dims;
        if (t->when.group >= 0)
            continue;
        begin_step(c, t->when, to);
        dv__text_add(to, "%s of '%s' is %s%s\n", item->text, t->name, unknown ? "solved for " : "checked",
            unknown ? c->dims[__builtin_ctzll(unknown)].name : "");
        always.dims |= unknown;
    }
    for (uint32_t i = 0; i < c->nconstraints; i++) {
        begin_step(c, c->constraints[i].when, to);
        dv__text_add(to, "%s is checked%s\n", c->constraints[i].text,
            c->constraints[i].values >= 0 ? " for every element in check mode" : "");
    }
}

static void describe_expr(dv__text *to, const char *name, const dv__expr *e)
{
    if (!e)
        return;
    dv__text_add(to, "  %s = ", name);
    dv__expr_print(e, to);
    dv__text_puts(to, "\n");
}

/* What holds in all cases on one line, the rest on one for each. */
static void describe_named(const dv__contract *c, dv__text *to, const char *what, const dv__named *list, uint32_t n)
{
    bool any = false;
    for (uint32_t i = 0; i < n; i++)
        if (list[i].when.group < 0) {
            dv__text_add(to, "%s%s%s%s", any ? ", " : "  ", any ? "" : what, list[i].run ? "*" : "", list[i].name);
            any = true;
        }
    if (any)
        dv__text_puts(to, "\n");
    for (uint32_t i = 0; i < n; i++)
        if (list[i].when.group >= 0) {
            dv__text_puts(to, "  ");
            say_when(c, list[i].when, to);
            dv__text_add(to, "%s%s%s\n", what, list[i].run ? "*" : "", list[i].name);
        }
}

static const char *const takes_names[] = { "contiguous", "last_contiguous", "strided" };

static const char *slot_name(const dv__contract *c, size_t slot)
{
    return slot < c->schema->nargs ? c->schema->args[slot].name : c->schema->returns[slot - c->schema->nargs].name;
}

void dv__contract_describe(const dv__contract *c, dv__text *to)
{
    dv__text_puts(to, "  solved in this order:\n");
    describe_steps(c, to);
    for (uint32_t i = 0; i < c->ndtypes; i++) {
        if (!c->dtypes[i].allowed)
            continue;
        dv__text_add(to, "  %s is one of", c->dtypes[i].name);
        for (uint32_t k = 0; k < c->dtypes[i].nallowed; k++)
            dv__text_add(to, " %s", dv_dtype_name(dv_dtype_from_key(c->dtypes[i].allowed[k])));
        dv__text_puts(to, "\n");
    }
    if (c->noutputs)
        dv__text_puts(to, "  then the results:\n");
    for (uint32_t i = 0; i < c->noutputs; i++) {
        const dv__pattern *t = &c->outputs[i];
        dv__text_puts(to, "    ");
        say_when(c, t->when, to);
        if (t->is_argument >= 0)
            dv__text_add(to, "the argument '%s' itself\n", c->schema->args[t->is_argument].name);
        else
            dv__text_add(to, "%s%s\n", t->text, t->unbacked ? " (upper bounds: the kernel says the size)" : "");
    }
    describe_named(c, to, "parallel over ", c->parallel, c->nparallel);
    describe_named(c, to, "a sum over ", c->sums, c->nsums);
    for (size_t slot = 0; slot < c->schema->nargs + c->schema->nreturns; slot++) {
        if (c->takes[slot].kind)
            dv__text_add(to, "  takes '%s' %s\n", slot_name(c, slot), takes_names[c->takes[slot].kind]);
        if (c->takes[slot].align_log2)
            dv__text_add(to, "  takes '%s' aligned to %d bytes\n", slot_name(c, slot), 1 << c->takes[slot].align_log2);
    }
    for (size_t slot = 0; slot < c->schema->nargs; slot++)
        if (c->unused[slot])
            dv__text_add(to, "  no result depends on '%s'\n", slot_name(c, slot));
    describe_expr(to, "workspace", c->workspace);
    describe_expr(to, "flops", c->flops);
    describe_expr(to, "bytes", c->bytes);
    describe_expr(to, "rtol", c->rtol);
    describe_expr(to, "atol", c->atol);
    describe_expr(to, "rounded", c->rounded);
}

/* ---- Places of parallel dims -------------------------------------------------------------------------------------------
 * For hosts that cut a call along a dim, or add one: which tensors have it where, and whether the contract asks more of it. */

struct asked {
    dv__needs size; /* the names whose sizes matter beyond the patterns in which these stand alone */
    uint32_t ranks; /* the runs of which only the number of dims does */
};

/* A tensor in rank(x) or numel(x): what stands for the names in its patterns. */
static void ask_of_tensor(const dv__contract *c, int32_t slot, bool rank, struct asked *to)
{
    for (uint32_t i = 0; i < c->npatterns; i++)
        for (uint32_t k = 0; c->patterns[i].slot == slot && k < c->patterns[i].dims.n; k++) {
            const dv__needs needs = c->patterns[i].dims.items[k].needs;
            to->ranks |= needs.runs;
            to->size = rank ? to->size : dv__needs_or(to->size, needs);
        }
}

static void ask(const dv__contract *c, const dv__expr *e, struct asked *to)
{
    const int32_t fn = e && e->kind == DV__EXPR_CALL ? e->ref : -1;
    const bool rank = fn == DV__FN_RANK || fn == DV__FN_AXIS,
               size = fn == DV__FN_NUMEL || fn == DV__FN_SIZE || fn == DV__FN_STRIDE || fn == DV__FN_SHAPE;
    for (uint32_t i = 0; e && i < e->n; i++)
        if (rank && e->args[i]->role == DV__ROLE_RUN)
            to->ranks |= 1u << e->args[i]->ref;
        else if ((rank || size) && e->args[i]->role == DV__ROLE_ARG)
            ask_of_tensor(c, e->args[i]->ref, rank, to);
        else
            ask(c, e->args[i], to);
    if (e && !e->n)
        to->size = dv__needs_or(to->size, dv__contract_needs(c, e));
}

static void ask_of_pattern(const dv__contract *c, const dv__pattern *t, struct asked *to)
{
    for (uint32_t i = 0; i < t->dims.n; i++)
        if (t->kind == DV__PATTERN_INTS || (t->dims.items[i].kind != DV__ITEM_VAR && t->dims.items[i].kind != DV__ITEM_RUN))
            ask(c, t->dims.items[i].e, to);
    for (uint32_t i = 0; i < t->strides.n; i++)
        ask(c, t->strides.items[i].e, to);
    ask(c, t->offset, to);
    ask(c, t->transform, to);
    ask(c, t->count, to);
}

static struct asked ask_all(const dv__contract *c)
{
    struct asked to = { { 0, 0, 0 }, 0 };
    for (uint32_t i = 0; i < c->npatterns; i++)
        ask_of_pattern(c, &c->patterns[i], &to);
    for (uint32_t i = 0; i < c->noutputs; i++)
        ask_of_pattern(c, &c->outputs[i], &to);
    for (uint32_t g = 0; g < c->ngroups; g++)
        for (uint32_t i = 0; i < c->groups[g].n; i++)
            ask(c, c->groups[g].cases[i].e, &to);
    for (uint32_t i = 0; i < c->nruns; i++) {
        to.ranks |= (uint32_t)(c->run_ranks[i].e != NULL) << i;
        ask(c, c->run_ranks[i].e, &to);
    }
    for (uint32_t i = 0; i < c->ndefinitions; i++)
        ask(c, c->definitions[i].e, &to);
    for (uint32_t i = 0; i < c->nconstraints; i++)
        ask(c, c->constraints[i].e, &to);
    for (uint32_t i = 0; i < c->nunbacked; i++) {
        ask(c, c->unbacked[i].min, &to);
        ask(c, c->unbacked[i].max, &to);
    }
    return to;
}

/* ---- JSON ---------------------------------------------------------------------------------------------------------------- */

static void json_slot(dv__text *to, const char *key, int32_t slot)
{
    if (slot < 0)
        dv__text_add(to, ", \"%s\": null", key);
    else
        dv__text_add(to, ", \"%s\": %d", key, (int)slot);
}

static void json_case(dv__text *to, dv__when w)
{
    if (w.group < 0)
        dv__text_puts(to, ", \"case\": null");
    else
        dv__text_add(to, ", \"case\": [%d, %d]", w.group, w.index);
}

static void json_dtype_vars(dv__text *to, const dv__contract *c)
{
    dv__text_puts(to, ", \"dtypes\": [");
    for (uint32_t i = 0; i < c->ndtypes; i++) {
        dv__json_key(to, NULL);
        dv__text_puts(to, "{");
        dv__json_text(to, "name", c->dtypes[i].name);
        dv__json_key(to, "in");
        for (uint32_t k = 0; k < c->dtypes[i].nallowed; k++)
            dv__text_add(to, "%s\"%s\"", k ? ", " : "[", dv_dtype_name(dv_dtype_from_key(c->dtypes[i].allowed[k])));
        dv__text_puts(to, c->dtypes[i].nallowed ? "], \"carriers\": [" : "null, \"carriers\": [");
        for (uint32_t k = 0; k < c->npatterns; k++)
            if (c->patterns[k].dtype.kind == DV__DTYPE_VAR && c->patterns[k].dtype.ref == (int16_t)i) {
                dv__json_key(to, NULL);
                dv__text_add(to, "%d", (int)c->patterns[k].slot);
            }
        dv__text_puts(to, "]}");
    }
    dv__text_puts(to, "]");
}

static void json_variables(dv__text *to, const dv__contract *c)
{
    dv__text_puts(to, ", \"dims\": [");
    for (uint32_t i = 0; i < c->ndims; i++)
        dv__json_text(to, NULL, c->dims[i].name);
    dv__text_puts(to, "], \"elements\": [");
    for (uint32_t i = 0; i < c->ndims; i++)
        if (c->dims[i].index)
            dv__json_text(to, NULL, c->dims[i].name);
    dv__text_puts(to, "], \"runs\": [");
    for (uint32_t i = 0; i < c->nruns; i++)
        dv__json_text(to, NULL, c->runs[i].name);
    dv__text_puts(to, "], \"element_runs\": [");
    for (uint32_t i = 0; i < c->nruns; i++)
        if (c->runs[i].index)
            dv__json_text(to, NULL, c->runs[i].name);
    dv__text_puts(to, "]");
    json_dtype_vars(to, c);
}

/* Where a tensor has the name, if it has it alone and once. */
static void json_place(dv__text *to, const dv__contract *c, const dv__pattern *t, const dv__named *name)
{
    uint32_t at = 0, n = 0;
    for (uint32_t i = t->dims.n; i-- > 0;)
        if (t->dims.items[i].kind == (name->run ? DV__ITEM_RUN : DV__ITEM_VAR) && t->dims.items[i].ref == name->ref)
            at = i, n++;
    if (n != 1 || t->kind == DV__PATTERN_INTS || t->is_argument >= 0 || t->presence == DV__ABSENT || t->transform)
        return;
    dv__text after = { 0 };
    bool known = true;
    int axis = 0;
    for (uint32_t i = 0; i < at; i++) {
        const dv__item *item = &t->dims.items[i];
        known &= item->kind != DV__ITEM_RUNS && item->kind != DV__ITEM_ELEMENT_RUN;
        if (item->kind == DV__ITEM_RUN)
            dv__json_text(&after, NULL, c->runs[item->ref].name);
        else
            axis++;
    }
    dv__json_key(to, NULL);
    dv__text_add(to, "{\"slot\": %d", (int)t->slot);
    json_case(to, t->when);
    json_slot(to, "axis", known ? axis : -1);
    dv__text_add(to, ", \"after\": [%s]}", after.size ? after.data : "");
    to->failed |= after.failed;
    dv__text_deinit(&after);
}

static void json_places(dv__text *to, const dv__contract *c)
{
    const struct asked asked = ask_all(c);
    dv__text_puts(to, ", \"places\": [");
    for (uint32_t i = 0; i < c->nparallel + c->nsums; i++) {
        const dv__named *name = i < c->nparallel ? &c->parallel[i] : &c->sums[i - c->nparallel];
        const bool size = (name->run ? asked.size.runs : asked.size.dims) >> name->ref & 1,
                   rank = name->run && asked.ranks >> name->ref & 1;
        dv__json_key(to, NULL);
        dv__text_puts(to, "{");
        dv__json_text(to, "name", name->name);
        json_case(to, name->when);
        dv__json_text(to, "asked", size ? "size" : rank ? "rank" : NULL);
        dv__text_puts(to, ", \"at\": [");
        for (uint32_t k = 0; k < c->npatterns; k++)
            json_place(to, c, &c->patterns[k], name);
        for (uint32_t k = 0; k < c->noutputs; k++)
            json_place(to, c, &c->outputs[k], name);
        dv__text_puts(to, "]}");
    }
    dv__text_puts(to, "]");
}

static void json_number(dv__text *to, const char *key, const dv__expr *e)
{
    if (e)
        dv__text_add(to, ", \"%s\": %.15g", key, e->f);
    else
        dv__text_add(to, ", \"%s\": null", key);
}

static void json_takes(dv__text *to, const dv__contract *c)
{
    dv__text_puts(to, ", \"takes\": [");
    for (size_t slot = 0; slot < c->schema->nargs + c->schema->nreturns; slot++)
        if (c->takes[slot].kind || c->takes[slot].align_log2) {
            dv__json_key(to, NULL);
            dv__text_add(to, "{\"slot\": %zu, \"kind\": \"%s\", \"align\": %d}", slot, takes_names[c->takes[slot].kind],
                1 << c->takes[slot].align_log2);
        }
    dv__text_puts(to, "]");
}

static void json_named(dv__text *to, const char *key, const dv__named *list, uint32_t n)
{
    dv__text_add(to, ", \"%s\": [", key);
    for (uint32_t i = 0; i < n; i++)
        dv__text_add(to, "%s[\"%s\", \"%s\"]", i ? ", " : "", list[i].run ? "run" : "dim", list[i].name);
    dv__text_puts(to, "]");
}

void dv__contract_json(const dv__contract *c, dv__text *to)
{
    dv__text_puts(to, "{");
    dv__json_text(to, "text", c->text);
    json_variables(to, c);
    dv__text_puts(to, ", \"unbacked\": [");
    for (uint32_t i = 0; i < c->nunbacked; i++)
        dv__json_text(to, NULL, c->unbacked[i].name);
    dv__text_puts(to, "]");
    json_named(to, "parallel", c->parallel, c->nparallel);
    json_named(to, "sum", c->sums, c->nsums);
    json_places(to, c);
    json_takes(to, c);
    dv__text_puts(to, ", \"unused\": [");
    for (size_t slot = 0; slot < c->schema->nargs; slot++)
        if (c->unused[slot])
            dv__json_text(to, NULL, slot_name(c, slot));
    dv__text_puts(to, "]");
    json_number(to, "rtol", c->rtol);
    json_number(to, "atol", c->atol);
    json_number(to, "rounded", c->rounded);
    dv__text_puts(to, ", \"program\": ");
    dv__program_json(c, to);
    dv__text_puts(to, "}");
}

void dv__contract_own_outputs(const dv__contract *c, dv__text *to)
{
    const char *from = c->text;
    for (uint32_t i = 0; i < c->noutputs; i++) {
        const dv__pattern *t = &c->outputs[i];
        if (t->is_argument < 0 || t->at == c->text) /* this pattern is not printed: a contract cannot begin with an output */
            continue;
        dv__text_put(to, from, (size_t)(t->at - from));
        from = t->at + strlen(t->text);
        const char *next = from + strspn(from, " \t\r\n");
        while (to->size && strchr(" \t\r\n", to->data[to->size - 1]))
            to->size--;
        if (*next == ',')
            from = next + 1;
        else if (to->size && to->data[to->size - 1] == ',')
            to->size--;
        else
            dv__text_puts(to, " ()");
    }
    dv__text_puts(to, from);
}

void dv__contract_index(const dv__contract *c, size_t slot, dv__text *to)
{
    for (uint32_t i = 0; i < c->npatterns; i++)
        if (c->patterns[i].slot == (int32_t)slot && c->patterns[i].kind == DV__PATTERN_LIST && c->patterns[i].index) {
            dv__text_add(to, "{%s}", c->patterns[i].index);
            return;
        }
}
