/* Describes a contract for readers (the order of solving, in words, for `dovetail info`), and prints its JSON for bridges
 * (docs/json.md). The contract's source text is not reprinted. */
#include "lang/contract_internal.h"

/* ---- The order of solving, in words -------------------------------------------------------------------------------------- */

/* The names that a pattern binds, checks and defers, each a list separated by commas. */
struct pattern_summary { dv__strbuf binds, checks, deferred_names; };

/* Appends a name to a list that is separated by commas. */
static void describe_add_name(dv__strbuf *list, const char *star, const char *name)
{
    dv__strbuf_printf(list, "%s%s%s", list->size ? ", " : "", star, name);
}

/* Collects what a pattern binds, checks and defers, and adds what it binds to *bound. */
static void describe_summarize_pattern(
    const dv__contract *c, const dv__pattern *t, dv__var_set *bound, struct pattern_summary *summary)
{
    for (uint32_t i = 0; i < t->dims.n; i++) {
        const dv__dim_item *item = &t->dims.items[i];
        if (item->kind == DV__DIM_PER_TENSOR_VARIADIC) {
            describe_add_name(bound->variadics >> item->ref & 1 ? &summary->checks : &summary->binds, "", item->text);
            bound->variadics |= 1u << item->ref;
        } else if (item->kind == DV__DIM_VAR || item->kind == DV__DIM_PER_TENSOR) {
            describe_add_name(bound->dims >> item->ref & 1 ? &summary->checks : &summary->binds, "",
                item->kind == DV__DIM_PER_TENSOR ? item->text : c->dims[item->ref].name);
            bound->dims |= 1ull << item->ref;
        } else if (item->kind == DV__DIM_VARIADIC) {
            describe_add_name(
                bound->variadics >> item->ref & 1 ? &summary->checks : &summary->binds, "*", c->variadics[item->ref].name);
            bound->variadics |= 1u << item->ref;
        } else if (item->deferred_bit >= 0 && !dv__var_set_is_subset(item->vars, *bound)) {
            describe_add_name(&summary->deferred_names, "", item->text);
        } else {
            describe_add_name(&summary->checks, "", item->text);
        }
    }
    if (t->dtype.kind == DV__DTYPE_SPEC_VAR) {
        describe_add_name(
            bound->dtypes >> t->dtype.ref & 1 ? &summary->checks : &summary->binds, "", c->dtypes[t->dtype.ref].name);
        bound->dtypes |= 1u << t->dtype.ref;
    } else if (t->dtype.kind != DV__DTYPE_SPEC_ANY) {
        describe_add_name(&summary->checks, "", "its dtype");
    }
}

/* Prints " binds m, k; checks T" and a line break, and frees the summary. */
static void describe_print_summary(struct pattern_summary *summary, dv__strbuf *to)
{
    const struct {
        const char *verb;
        dv__strbuf *names;
    } parts[] = { { "binds", &summary->binds }, { "checks", &summary->checks }, { "defers", &summary->deferred_names } };
    const char *separator = " ";
    for (int i = 0; i < 3; i++) {
        to->failed |= parts[i].names->failed;
        if (parts[i].names->size)
            dv__strbuf_printf(to, "%s%s %s", separator, parts[i].verb, parts[i].names->data), separator = "; ";
        dv__strbuf_deinit(parts[i].names);
    }
    dv__strbuf_append_str(to, *separator == ' ' ? " checks nothing\n" : "\n");
}

/* Prints "when <condition>: "; nothing outside of cases. */
static void describe_print_case(const dv__contract *c, dv__case_ref when, dv__strbuf *to)
{
    if (when.group >= 0)
        dv__strbuf_printf(to, "when %s: ", c->groups[when.group].cases[when.index].text);
}

/* Begins the line of a step of solving, with its case. */
static void describe_begin_step(const dv__contract *c, dv__case_ref when, dv__strbuf *to)
{
    dv__strbuf_append_str(to, "    ");
    describe_print_case(c, when, to);
}

/* Returns the set of variables in a pattern's dims and dtype. */
static dv__var_set pattern_collect_vars(const dv__pattern *t)
{
    dv__var_set n = { 0, 0, 0 };
    for (uint32_t i = 0; i < t->dims.n; i++)
        n = dv__var_set_union(n, t->dims.items[i].vars);
    if (t->dtype.kind == DV__DTYPE_SPEC_VAR)
        n.dtypes |= 1u << t->dtype.ref;
    return n;
}

/* Prints a line for each step of solving, as if every optional argument is given. In a pattern of a case, the variables of
 * unconditional patterns and of earlier patterns of the same case are bound. */
static void describe_solving_steps(const dv__contract *c, dv__strbuf *to)
{
    dv__var_set always = { 0, 0, 0 };
    for (uint32_t i = 0; i < c->npatterns; i++) {
        const dv__pattern *t = &c->patterns[i];
        struct pattern_summary w;
        dv__var_set bound = always;
        memset(&w, 0, sizeof w);
        for (uint32_t k = 0; k < i && t->when.group >= 0; k++)
            if (c->patterns[k].when.group == t->when.group && c->patterns[k].when.index == t->when.index)
                bound = dv__var_set_union(bound, pattern_collect_vars(&c->patterns[k]));
        describe_begin_step(c, t->when, to);
        dv__strbuf_append_str(to, t->text);
        describe_summarize_pattern(c, t, &bound, &w);
        describe_print_summary(&w, to);
        if (t->when.group < 0)
            always = bound;
    }
    for (uint32_t i = 0; i < c->ndeferred; i++) {
        const dv__deferred_item *a = &c->deferred[i];
        if (a->pattern < 0) {
            describe_begin_step(c, c->definitions[a->item].when, to);
            dv__strbuf_printf(to, "%s\n", c->definitions[a->item].text);
            continue;
        }
        const dv__pattern *t = &c->patterns[a->pattern];
        const dv__dim_item *item = &t->dims.items[a->item];
        const uint64_t unknown = item->vars.dims & ~always.dims;
        if (t->when.group >= 0)
            continue;
        describe_begin_step(c, t->when, to);
        dv__strbuf_printf(to, "%s of '%s' is %s%s\n", item->text, t->name, unknown ? "solved for " : "checked",
            unknown ? c->dims[__builtin_ctzll(unknown)].name : "");
        always.dims |= unknown;
    }
    for (uint32_t i = 0; i < c->nconstraints; i++) {
        describe_begin_step(c, c->constraints[i].when, to);
        dv__strbuf_printf(to, "%s is checked%s\n", c->constraints[i].text,
            c->constraints[i].values_slot >= 0 ? " for every element in check mode" : "");
    }
}

/* Prints the line " name = expression"; nothing for NULL. */
static void describe_named_expr(dv__strbuf *to, const char *name, const dv__expr *e)
{
    if (!e)
        return;
    dv__strbuf_printf(to, "  %s = ", name);
    dv__expr_print(e, to);
    dv__strbuf_append_str(to, "\n");
}

/* Prints names of parallel() or sum() after a heading: those outside of cases on one line, each of the others on its own
 * line. */
static void describe_dim_facts(const dv__contract *c, dv__strbuf *to, const char *heading, const dv__dim_fact *facts, uint32_t n)
{
    bool any = false;
    for (uint32_t i = 0; i < n; i++)
        if (facts[i].when.group < 0) {
            dv__strbuf_printf(
                to, "%s%s%s%s", any ? ", " : "  ", any ? "" : heading, facts[i].is_variadic ? "*" : "", facts[i].name);
            any = true;
        }
    if (any)
        dv__strbuf_append_str(to, "\n");
    for (uint32_t i = 0; i < n; i++)
        if (facts[i].when.group >= 0) {
            dv__strbuf_append_str(to, "  ");
            describe_print_case(c, facts[i].when, to);
            dv__strbuf_printf(to, "%s%s%s\n", heading, facts[i].is_variadic ? "*" : "", facts[i].name);
        }
}

static const char *const accepted_layout_names[] = { "contiguous", "last_contiguous", "strided" };

/* Returns the name of the argument or return in a slot. */
static const char *contract_get_slot_name(const dv__contract *c, size_t slot)
{
    return slot < c->schema->nargs ? c->schema->args[slot].name : c->schema->returns[slot - c->schema->nargs].name;
}

void dv__contract_describe(const dv__contract *c, dv__strbuf *to)
{
    dv__strbuf_append_str(to, "  solved in this order:\n");
    describe_solving_steps(c, to);
    for (uint32_t i = 0; i < c->ndtypes; i++) {
        if (!c->dtypes[i].allowed)
            continue;
        dv__strbuf_printf(to, "  %s is one of", c->dtypes[i].name);
        for (uint32_t k = 0; k < c->dtypes[i].nallowed; k++)
            dv__strbuf_printf(to, " %s", dv_dtype_name(dv_dtype_from_key(c->dtypes[i].allowed[k])));
        dv__strbuf_append_str(to, "\n");
    }
    if (c->nresult_patterns)
        dv__strbuf_append_str(to, "  then the results:\n");
    for (uint32_t i = 0; i < c->nresult_patterns; i++) {
        const dv__pattern *t = &c->result_patterns[i];
        dv__strbuf_append_str(to, "    ");
        describe_print_case(c, t->when, to);
        if (t->aliased_slot >= 0)
            dv__strbuf_printf(to, "the argument '%s' itself\n", c->schema->args[t->aliased_slot].name);
        else
            dv__strbuf_printf(to, "%s%s\n", t->text, t->is_unbacked ? " (upper bounds: the kernel says the size)" : "");
    }
    describe_dim_facts(c, to, "parallel over ", c->parallel_dims, c->nparallel_dims);
    describe_dim_facts(c, to, "a sum over ", c->summed_dims, c->nsummed_dims);
    for (size_t slot = 0; slot < c->schema->nargs + c->schema->nreturns; slot++) {
        if (c->accepted_layouts[slot].kind)
            dv__strbuf_printf(
                to, "  takes '%s' %s\n", contract_get_slot_name(c, slot), accepted_layout_names[c->accepted_layouts[slot].kind]);
        if (c->accepted_layouts[slot].align_log2)
            dv__strbuf_printf(to, "  takes '%s' aligned to %d bytes\n", contract_get_slot_name(c, slot),
                1 << c->accepted_layouts[slot].align_log2);
    }
    for (size_t slot = 0; slot < c->schema->nargs; slot++)
        if (c->is_argument_unused[slot])
            dv__strbuf_printf(to, "  no result depends on '%s'\n", contract_get_slot_name(c, slot));
    describe_named_expr(to, "workspace", c->workspace);
    describe_named_expr(to, "flops", c->flops);
    describe_named_expr(to, "bytes", c->bytes);
    describe_named_expr(to, "rtol", c->rtol);
    describe_named_expr(to, "atol", c->atol);
    describe_named_expr(to, "rounded", c->rounded);
}

/* ---- Places of parallel dims -------------------------------------------------------------------------------------------
 * For hosts that cut a call along a dim, or add one: which tensors have it where, and whether the contract asks more of it. */

/* The uses of sizes and variadics in a contract, apart from patterns where they stand alone. */
struct dim_uses {
    dv__var_set size_vars; /* variables whose value the contract uses in more than patterns where they stand alone */
    uint32_t rank_vars;    /* variadics whose number of dims the contract uses */
};

/* Adds the uses of size(x, d) and the like: the variables in the dims of x's patterns. is_rank_only: of rank(x), which uses
 * only the number of dims. */
static void dim_uses_add_tensor_dims(const dv__contract *c, int32_t slot, bool is_rank_only, struct dim_uses *uses)
{
    for (uint32_t i = 0; i < c->npatterns; i++)
        for (uint32_t k = 0; c->patterns[i].slot == slot && k < c->patterns[i].dims.n; k++) {
            const dv__var_set needs = c->patterns[i].dims.items[k].vars;
            uses->rank_vars |= needs.variadics;
            uses->size_vars = is_rank_only ? uses->size_vars : dv__var_set_union(uses->size_vars, needs);
        }
}

/* Adds the uses of variables in an expression. e NULL: none. */
static void dim_uses_add_expr(const dv__contract *c, const dv__expr *e, struct dim_uses *uses)
{
    for (uint32_t i = 0; e && i < e->n; i++) {
        const char letter = dv__expr_get_operand_letter(e, i);
        const bool rank = letter == 'R', size = letter == 's' || letter == 'S';
        if (rank && e->args[i]->role == DV__ROLE_VARIADIC)
            uses->rank_vars |= 1u << e->args[i]->ref;
        else if ((rank || size) && e->args[i]->role == DV__ROLE_ARGUMENT)
            dim_uses_add_tensor_dims(c, e->args[i]->ref, rank, uses);
        else
            dim_uses_add_expr(c, e->args[i], uses);
    }
    if (e && !e->n)
        uses->size_vars = dv__var_set_union(uses->size_vars, dv__expr_collect_vars(c, e));
}

/* Adds the uses of variables in a pattern, except where they stand alone as a dim. */
static void dim_uses_add_pattern(const dv__contract *c, const dv__pattern *t, struct dim_uses *uses)
{
    for (uint32_t i = 0; i < t->dims.n; i++)
        if (t->kind == DV__PATTERN_LIST_LENGTH ||
            (t->dims.items[i].kind != DV__DIM_VAR && t->dims.items[i].kind != DV__DIM_VARIADIC))
            dim_uses_add_expr(c, t->dims.items[i].e, uses);
    for (uint32_t i = 0; i < t->strides.n; i++)
        dim_uses_add_expr(c, t->strides.items[i].e, uses);
    dim_uses_add_expr(c, t->offset, uses);
    dim_uses_add_expr(c, t->view_transform, uses);
    dim_uses_add_expr(c, t->list_count, uses);
}

/* Returns the uses of variables in the whole contract. */
static struct dim_uses dim_uses_collect(const dv__contract *c)
{
    struct dim_uses to = { { 0, 0, 0 }, 0 };
    for (uint32_t i = 0; i < c->npatterns; i++)
        dim_uses_add_pattern(c, &c->patterns[i], &to);
    for (uint32_t i = 0; i < c->nresult_patterns; i++)
        dim_uses_add_pattern(c, &c->result_patterns[i], &to);
    for (uint32_t g = 0; g < c->ngroups; g++)
        for (uint32_t i = 0; i < c->groups[g].n; i++)
            dim_uses_add_expr(c, c->groups[g].cases[i].e, &to);
    for (uint32_t i = 0; i < c->nvariadics; i++) {
        to.rank_vars |= (uint32_t)(c->variadic_ranks[i].e != NULL) << i;
        dim_uses_add_expr(c, c->variadic_ranks[i].e, &to);
    }
    for (uint32_t i = 0; i < c->ndefinitions; i++)
        dim_uses_add_expr(c, c->definitions[i].e, &to);
    for (uint32_t i = 0; i < c->nconstraints; i++)
        dim_uses_add_expr(c, c->constraints[i].e, &to);
    for (uint32_t i = 0; i < c->nunbacked; i++) {
        dim_uses_add_expr(c, c->unbacked[i].min, &to);
        dim_uses_add_expr(c, c->unbacked[i].max, &to);
    }
    return to;
}

/* ---- JSON ---------------------------------------------------------------------------------------------------------------- */

/* Writes a member with a slot; a negative slot is null. */
static void contract_json_slot(dv__strbuf *to, const char *key, int32_t slot)
{
    if (slot < 0)
        dv__strbuf_printf(to, ", \"%s\": null", key);
    else
        dv__strbuf_printf(to, ", \"%s\": %d", key, (int)slot);
}

/* Writes the member "case": [group, index]; null outside of cases. */
static void contract_json_case(dv__strbuf *to, dv__case_ref when)
{
    if (when.group < 0)
        dv__strbuf_append_str(to, ", \"case\": null");
    else
        dv__strbuf_printf(to, ", \"case\": [%d, %d]", when.group, when.index);
}

/* Writes the member "dtypes": each dtype variable with its allowed dtypes and the arguments that have this dtype. */
static void contract_json_dtype_vars(dv__strbuf *to, const dv__contract *c)
{
    dv__strbuf_append_str(to, ", \"dtypes\": [");
    for (uint32_t i = 0; i < c->ndtypes; i++) {
        dv__json_write_key(to, NULL);
        dv__strbuf_append_str(to, "{");
        dv__json_write_member(to, "name", c->dtypes[i].name);
        dv__json_write_key(to, "in");
        for (uint32_t k = 0; k < c->dtypes[i].nallowed; k++)
            dv__strbuf_printf(to, "%s\"%s\"", k ? ", " : "[", dv_dtype_name(dv_dtype_from_key(c->dtypes[i].allowed[k])));
        dv__strbuf_append_str(to, c->dtypes[i].nallowed ? "], \"carriers\": [" : "null, \"carriers\": [");
        for (uint32_t k = 0; k < c->npatterns; k++)
            if (c->patterns[k].dtype.kind == DV__DTYPE_SPEC_VAR && c->patterns[k].dtype.ref == (int16_t)i) {
                dv__json_write_key(to, NULL);
                dv__strbuf_printf(to, "%d", (int)c->patterns[k].slot);
            }
        dv__strbuf_append_str(to, "]}");
    }
    dv__strbuf_append_str(to, "]");
}

/* Writes the members with the names of all variables. */
static void contract_json_variables(dv__strbuf *to, const dv__contract *c)
{
    dv__strbuf_append_str(to, ", \"dims\": [");
    for (uint32_t i = 0; i < c->ndims; i++)
        dv__json_write_member(to, NULL, c->dims[i].name);
    dv__strbuf_append_str(to, "], \"elements\": [");
    for (uint32_t i = 0; i < c->ndims; i++)
        if (c->dims[i].index_name)
            dv__json_write_member(to, NULL, c->dims[i].name);
    dv__strbuf_append_str(to, "], \"runs\": [");
    for (uint32_t i = 0; i < c->nvariadics; i++)
        dv__json_write_member(to, NULL, c->variadics[i].name);
    dv__strbuf_append_str(to, "], \"element_runs\": [");
    for (uint32_t i = 0; i < c->nvariadics; i++)
        if (c->variadics[i].index_name)
            dv__json_write_member(to, NULL, c->variadics[i].name);
    dv__strbuf_append_str(to, "]");
    contract_json_dtype_vars(to, c);
}

/* Writes the position of a dim in a tensor, if the tensor's pattern has the dim alone and once. */
static void contract_json_dim_position(dv__strbuf *to, const dv__contract *c, const dv__pattern *t, const dv__dim_fact *fact)
{
    uint32_t at = 0, n = 0;
    for (uint32_t i = t->dims.n; i-- > 0;)
        if (t->dims.items[i].kind == (fact->is_variadic ? DV__DIM_VARIADIC : DV__DIM_VAR) && t->dims.items[i].ref == fact->ref)
            at = i, n++;
    if (n != 1 || t->kind == DV__PATTERN_LIST_LENGTH || t->aliased_slot >= 0 || t->presence == DV__PRESENCE_ABSENT ||
        t->view_transform)
        return;
    dv__strbuf after = { 0 };
    bool known = true;
    int axis = 0;
    for (uint32_t i = 0; i < at; i++) {
        const dv__dim_item *item = &t->dims.items[i];
        known &= item->kind != DV__DIM_COMPUTED_VARIADIC && item->kind != DV__DIM_PER_TENSOR_VARIADIC;
        if (item->kind == DV__DIM_VARIADIC)
            dv__json_write_member(&after, NULL, c->variadics[item->ref].name);
        else
            axis++;
    }
    dv__json_write_key(to, NULL);
    dv__strbuf_printf(to, "{\"slot\": %d", (int)t->slot);
    contract_json_case(to, t->when);
    contract_json_slot(to, "axis", known ? axis : -1);
    dv__strbuf_printf(to, ", \"after\": [%s]}", after.size ? after.data : "");
    to->failed |= after.failed;
    dv__strbuf_deinit(&after);
}

/* Writes the member "places": for each parallel or summed dim its position in each tensor, and whether the contract uses its
 * size or rank elsewhere. */
static void contract_json_dim_positions(dv__strbuf *to, const dv__contract *c)
{
    const struct dim_uses asked = dim_uses_collect(c);
    dv__strbuf_append_str(to, ", \"places\": [");
    for (uint32_t i = 0; i < c->nparallel_dims + c->nsummed_dims; i++) {
        const dv__dim_fact *name = i < c->nparallel_dims ? &c->parallel_dims[i] : &c->summed_dims[i - c->nparallel_dims];
        const bool size = (name->is_variadic ? asked.size_vars.variadics : asked.size_vars.dims) >> name->ref & 1,
                   rank = name->is_variadic && asked.rank_vars >> name->ref & 1;
        dv__json_write_key(to, NULL);
        dv__strbuf_append_str(to, "{");
        dv__json_write_member(to, "name", name->name);
        contract_json_case(to, name->when);
        dv__json_write_member(to, "asked", size ? "size" : rank ? "rank" : NULL);
        dv__strbuf_append_str(to, ", \"at\": [");
        for (uint32_t k = 0; k < c->npatterns; k++)
            contract_json_dim_position(to, c, &c->patterns[k], name);
        for (uint32_t k = 0; k < c->nresult_patterns; k++)
            contract_json_dim_position(to, c, &c->result_patterns[k], name);
        dv__strbuf_append_str(to, "]}");
    }
    dv__strbuf_append_str(to, "]");
}

/* Writes a member with the value of a literal; NULL gives null. */
static void contract_json_optional_number(dv__strbuf *to, const char *key, const dv__expr *e)
{
    if (e)
        dv__strbuf_printf(to, ", \"%s\": %.15g", key, e->f);
    else
        dv__strbuf_printf(to, ", \"%s\": null", key);
}

/* Writes the member "takes": the slots whose accepted layout is not the default. */
static void contract_json_accepted_layouts(dv__strbuf *to, const dv__contract *c)
{
    dv__strbuf_append_str(to, ", \"takes\": [");
    for (size_t slot = 0; slot < c->schema->nargs + c->schema->nreturns; slot++)
        if (c->accepted_layouts[slot].kind || c->accepted_layouts[slot].align_log2) {
            dv__json_write_key(to, NULL);
            dv__strbuf_printf(to, "{\"slot\": %zu, \"kind\": \"%s\", \"align\": %d}", slot,
                accepted_layout_names[c->accepted_layouts[slot].kind], 1 << c->accepted_layouts[slot].align_log2);
        }
    dv__strbuf_append_str(to, "]");
}

/* Writes a member with the names of parallel() or sum() facts. */
static void contract_json_dim_facts(dv__strbuf *to, const char *key, const dv__dim_fact *facts, uint32_t n)
{
    dv__strbuf_printf(to, ", \"%s\": [", key);
    for (uint32_t i = 0; i < n; i++)
        dv__strbuf_printf(to, "%s[\"%s\", \"%s\"]", i ? ", " : "", facts[i].is_variadic ? "run" : "dim", facts[i].name);
    dv__strbuf_append_str(to, "]");
}

void dv__contract_json(const dv__contract *c, dv__strbuf *to)
{
    dv__strbuf_append_str(to, "{");
    dv__json_write_member(to, "text", c->text);
    contract_json_variables(to, c);
    dv__strbuf_append_str(to, ", \"unbacked\": [");
    for (uint32_t i = 0; i < c->nunbacked; i++)
        dv__json_write_member(to, NULL, c->unbacked[i].name);
    dv__strbuf_append_str(to, "]");
    contract_json_dim_facts(to, "parallel", c->parallel_dims, c->nparallel_dims);
    contract_json_dim_facts(to, "sum", c->summed_dims, c->nsummed_dims);
    contract_json_dim_positions(to, c);
    contract_json_accepted_layouts(to, c);
    dv__strbuf_append_str(to, ", \"unused\": [");
    for (size_t slot = 0; slot < c->schema->nargs; slot++)
        if (c->is_argument_unused[slot])
            dv__json_write_member(to, NULL, contract_get_slot_name(c, slot));
    dv__strbuf_append_str(to, "]");
    contract_json_optional_number(to, "rtol", c->rtol);
    contract_json_optional_number(to, "atol", c->atol);
    contract_json_optional_number(to, "rounded", c->rounded);
    dv__strbuf_append_str(to, ", \"program\": ");
    dv__program_json(c, to);
    dv__strbuf_append_str(to, "}");
}

void dv__contract_print_new_results(const dv__contract *c, dv__strbuf *to)
{
    const char *from = c->text;
    for (uint32_t i = 0; i < c->nresult_patterns; i++) {
        const dv__pattern *t = &c->result_patterns[i];
        if (t->aliased_slot < 0 ||
            t->at == c->text) /* t->at == c->text: the parser added this pattern, which is not in the text */
            continue;
        dv__strbuf_append(to, from, (size_t)(t->at - from));
        from = t->at + strlen(t->text);
        const char *next = from + strspn(from, " \t\r\n");
        while (to->size && strchr(" \t\r\n", to->data[to->size - 1]))
            to->size--;
        if (*next == ',')
            from = next + 1;
        else if (to->size && to->data[to->size - 1] == ',')
            to->size--;
        else
            dv__strbuf_append_str(to, " ()");
    }
    dv__strbuf_append_str(to, from);
}

void dv__contract_print_list_index(const dv__contract *c, size_t slot, dv__strbuf *to)
{
    for (uint32_t i = 0; i < c->npatterns; i++)
        if (c->patterns[i].slot == (int32_t)slot && c->patterns[i].kind == DV__PATTERN_LIST && c->patterns[i].index_name) {
            dv__strbuf_printf(to, "{%s}", c->patterns[i].index_name);
            return;
        }
}
