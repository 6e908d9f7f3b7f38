/* What a failed check says: the operator, the argument, what was expected and what came. Only failures come here, so it looks
 * again at the patterns for who bound what, and nothing has to be recorded while solving. */
#include "lang/contract_internal.h"

#include <stdio.h>

static bool pattern_took_part(const dv__env *v, const dv__pattern *t)
{
    return dv__when_holds(t->when, v->s) && t->presence != DV__ABSENT && dv__is_present(&v->args[t->slot]);
}

/* Replays the search: the first pattern where it stands alone, else the first whose expression could be solved for it. */
const char *dv__binder_of(const dv__env *v, bool run, int ref)
{
    const dv__contract *c = v->c;
    for (uint32_t i = 0; i < c->npatterns; i++) {
        const dv__pattern *t = &c->patterns[i];
        for (uint32_t k = 0; k < t->dims.n && pattern_took_part(v, t); k++) {
            const dv__item *item = &t->dims.items[k];
            const bool alone = run ? item->kind == DV__ITEM_RUN : item->kind == DV__ITEM_VAR || item->kind == DV__ITEM_ELEMENT;
            if (alone && item->ref == ref)
                return t->name;
        }
    }
    for (uint32_t i = 0; i < c->ndefinitions && !run; i++)
        if (c->definitions[i].var == ref && dv__when_holds(c->definitions[i].when, v->s))
            return NULL;
    for (uint32_t i = 0; i < c->npatterns && !run; i++)
        for (uint32_t k = 0; k < c->patterns[i].dims.n && pattern_took_part(v, &c->patterns[i]); k++)
            if (c->patterns[i].dims.items[k].kind == DV__ITEM_EXPR && c->patterns[i].dims.items[k].needs.dims >> ref & 1)
                return c->patterns[i].name;
    return NULL;
}

static void say_binders(dv__words *w, const dv__env *v, dv__needs needs)
{
    const char *separator = " (";
    for (uint32_t i = 0; i < v->c->nruns; i++) {
        const char *who = needs.runs >> i & 1 ? dv__binder_of(v, true, (int)i) : NULL;
        if (who)
            dv__say(w, "%s'*%s' is bound by '%s'", separator, v->c->runs[i], who), separator = ", ";
    }
    for (uint32_t i = 0; i < v->c->ndims; i++) {
        const char *who = needs.dims >> i & 1 ? dv__binder_of(v, false, (int)i) : NULL;
        if (who)
            dv__say(w, "%s'%s' is bound by '%s'", separator, v->c->dims[i].name, who), separator = ", ";
    }
    dv__say(w, "%s", *separator == ',' ? ")" : "");
}

void dv__say_variables(dv__words *w, const dv__env *v, dv__needs needs)
{
    const char *separator = "";
    for (uint32_t i = 0; i < v->c->nruns; i++)
        if (needs.runs & v->s->bound_runs & 1u << i) {
            dv__say(w, "%s*%s = ", separator, v->c->runs[i]);
            dv__say_sizes(w, v->s->runs[i].sizes, v->s->runs[i].ndim);
            separator = ", ";
        }
    for (uint32_t i = 0; i < v->c->ndims; i++)
        if (needs.dims & v->s->bound_dims & 1ull << i)
            dv__say(w, "%s%s = %lld", separator, v->c->dims[i].name, (long long)v->s->dims[i]), separator = ", ";
    for (uint32_t i = 0; i < v->c->ndtypes; i++)
        if (needs.dtypes & v->s->bound_dtypes & 1u << i)
            dv__say(w, "%s%s = %s", separator, v->c->dtypes[i].name, dv_dtype_name(v->s->dtypes[i])), separator = ", ";
}

/* "[4, 2*n, *s]": sizes as far as they are known, else as they are written. */
void dv__say_items(dv__words *w, const dv__env *v, const dv__dims *dims)
{
    const dv__needs bound = dv__solution_bound(v->s);
    dv__say(w, "[");
    for (uint32_t i = 0; i < dims->n; i++) {
        const dv__item *item = &dims->items[i];
        const char *separator = w->data[w->n - 1] == '[' ? "" : ", "; /* a run may be empty */
        int64_t size;
        dv__sizes run;
        if (item->kind == DV__ITEM_ELEMENT || !dv__needs_within(item->needs, bound)) {
            dv__say(w, "%s%s", separator, item->text);
        } else if (item->e->type == DV__CTYPE_INT) {
            if (dv__eval_int(v, item->e, &size))
                dv__say(w, "%s%s", separator, item->text);
            else
                dv__say(w, "%s%lld", separator, (long long)size);
        } else if (dv__eval_sizes(v, item->e, &run)) {
            dv__say(w, "%s%s", separator, item->text);
        } else {
            for (int32_t k = 0; k < run.n; k++)
                dv__say(w, "%s%lld", w->data[w->n - 1] == '[' ? "" : ", ", (long long)run.data[k]);
        }
    }
    dv__say(w, "]");
}

static void say_argument(dv__words *w, const dv__env *v, const dv__pattern *t, int element)
{
    dv__say(w, "%s: argument '%s%s", v->c->name, t->name, element < 0 ? "'" : "");
    if (element >= 0)
        dv__say(w, "[%d]'", element);
    dv__say(w, ": ");
}

/* item: the one that did not fit, or NULL: the number of dims. */
int dv__wrong_shape(const dv__env *v, const dv__pattern *t, int element, const dv__item *item, const dv_tensor *x)
{
    dv__words w = { 0 };
    say_argument(&w, v, t, element);
    dv__say(&w, "expected shape ");
    dv__say_items(&w, v, &t->dims);
    if (item) {
        if (item->kind == DV__ITEM_EXPR)
            dv__say(&w, " with %s", item->text);
        say_binders(&w, v, item->needs);
    }
    dv__say(&w, ", found ");
    dv__say_sizes(&w, x->shape, x->ndim);
    return dv_fail(DV_ESHAPE, "%s", w.data);
}

int dv__wrong_length(const dv__env *v, const dv__pattern *t, const dv__item *item, int64_t found)
{
    dv__words w = { 0 };
    dv__say_items(&w, v, &t->dims);
    w.data[w.n - 1] = ' '; /* without the brackets */
    dv__say(&w, "elements");
    say_binders(&w, v, item->needs);
    return dv_fail(DV_EINVAL, "%s: argument '%s': expected %s, found %lld", v->c->name, t->name, w.data + 1, (long long)found);
}

static void say_dtypes(dv__words *w, const uint32_t *keys, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        dv__say(w, "%s%s", !i ? "" : i + 1 < n ? ", " : " or ", dv_dtype_name(dv_dtype_from_key(keys[i])));
}

static const char *dtype_binder(const dv__env *v, int ref)
{
    for (uint32_t i = 0; i < v->c->npatterns; i++)
        if (v->c->patterns[i].dtype.kind == DV__DTYPE_VAR && v->c->patterns[i].dtype.ref == ref &&
            pattern_took_part(v, &v->c->patterns[i]))
            return v->c->patterns[i].name;
    return "?";
}

int dv__wrong_dtype(const dv__env *v, const dv__pattern *t, int element, const dv_tensor *x)
{
    dv__words w = { 0 };
    dv_dtype expected;
    say_argument(&w, v, t, element);
    dv__say(&w, "expected dtype ");
    switch (t->dtype.kind) {
    case DV__DTYPE_VAR: {
        const dv__dtype_var *var = &v->c->dtypes[t->dtype.ref];
        if (v->s->bound_dtypes >> t->dtype.ref & 1) {
            dv__say(&w, "%s ('%s' is bound by '%s')", dv_dtype_name(v->s->dtypes[t->dtype.ref]), var->name,
                dtype_binder(v, t->dtype.ref));
        } else {
            say_dtypes(&w, var->allowed, var->nallowed);
            dv__say(&w, " (%s)", var->name);
        }
        break;
    }
    case DV__DTYPE_ONE: say_dtypes(&w, &t->dtype.one, 1); break;
    case DV__DTYPE_SET:
        for (uint32_t i = 0; i < t->dtype.n; i++)
            dv__say(&w, "%s%s", !i ? "" : i + 1 < t->dtype.n ? ", " : " or ", t->dtype.alternatives[i]->name);
        break;
    default:
        if (!dv__eval_dtype(v, t->dtype.alternatives[0], &expected))
            dv__say(&w, "%s", dv_dtype_name(expected));
        break;
    }
    dv__say(&w, ", found %s", dv_dtype_name(x->dtype));
    return dv_fail(DV_EDTYPE, "%s", w.data);
}

static void say_device(dv__words *w, dv_device d)
{
    dv__say(w, "%s", dv_device_name(d.type));
    if (d.type != DV_CPU && d.type != DV_META)
        dv__say(w, ":%d", (int)d.id);
}

int dv__wrong_device(const dv__env *v, const dv__pattern *t, int element, dv_device expected, const dv_tensor *x)
{
    dv__words w = { 0 };
    const char *first = NULL;
    for (uint32_t i = 0; i < v->c->npatterns && !first && t->on == DV__ON_SAME; i++)
        if (v->c->patterns[i].on == DV__ON_SAME && v->c->patterns[i].kind != DV__PATTERN_INTS &&
            pattern_took_part(v, &v->c->patterns[i]))
            first = v->c->patterns[i].name;
    say_argument(&w, v, t, element);
    dv__say(&w, "expected a tensor on ");
    say_device(&w, expected);
    if (first)
        dv__say(&w, " as '%s' is", first);
    dv__say(&w, ", found one on ");
    say_device(&w, x->device);
    return dv_fail(DV_EDEVICE, "%s", w.data);
}

static const char *case_text(const dv__env *v, dv__when when)
{
    return when.group < 0 ? NULL : v->c->groups[when.group].cases[when.index].text;
}

int dv__wrong_presence(const dv__env *v, const dv__pattern *t, const char *expected, const char *found)
{
    const char *text = case_text(v, t->when);
    return dv_fail(DV_EINVAL, "%s: argument '%s': expected %s%s%s, found %s", v->c->name, t->name, expected, text ? " when " : "",
        text ? text : "", found);
}

/* The argument is described in other cases only, of which this is one. */
int dv__wrong_case(const dv__env *v, const dv__pattern *other)
{
    const int group = other->when.group;
    return dv_fail(DV_EINVAL, "%s: argument '%s': expected None when %s, found a value", v->c->name, other->name,
        v->c->groups[group].cases[v->s->cases[group]].text);
}

static void say_arguments(dv__words *w, const dv__env *v, const dv__expr *e)
{
    if (e->role == DV__ROLE_ARG) {
        const dv_value *value = &v->args[e->ref];
        char one[120];
        if (value->type == DV_VALUE_INT)
            snprintf(one, sizeof one, "%s = %lld", e->name, (long long)value->as.i);
        else if (value->type == DV_VALUE_FLOAT)
            snprintf(one, sizeof one, "%s = %g", e->name, value->as.f);
        else if (value->type == DV_VALUE_BOOL)
            snprintf(one, sizeof one, "%s = %s", e->name, value->as.b ? "True" : "False");
        else if (value->type == DV_VALUE_STRING)
            snprintf(one, sizeof one, "%s = \"%.*s\"", e->name, (int)(value->as.s.size > 40 ? 40 : value->as.s.size),
                value->as.s.data);
        else if (value->type == DV_VALUE_TENSOR)
            snprintf(one, sizeof one, "%s of rank %d", e->name, (int)value->as.tensor->ndim);
        else
            snprintf(one, sizeof one, "%s = %s", e->name, dv__is_present(value) ? "a value" : "None");
        if (!strstr(w->data, one))
            dv__say(w, "%s%s", w->n ? ", " : "", one);
    }
    for (uint32_t i = 0; i < e->n; i++)
        if (e->kind != DV__EXPR_ATTR)
            say_arguments(w, v, e->args[i]);
}

static int the_argument(const dv__expr *e, int found) /* -1: none, -2: several */
{
    if (e->role == DV__ROLE_ARG)
        found = found == -1 || found == e->ref ? e->ref : -2;
    for (uint32_t i = 0; i < e->n; i++)
        found = the_argument(e->args[i], found);
    return found;
}

int dv__wrong_constraint(const dv__env *v, const dv__constraint *k)
{
    dv__words w = { 0 }, variables = { 0 };
    const int argument = the_argument(k->e, -1);
    say_arguments(&w, v, k->e);
    dv__say_variables(&variables, v, k->needs);
    if (variables.n)
        dv__say(&w, "%s%s", w.n ? ", " : "", variables.data);
    say_binders(&w, v, k->needs);
    char who[160] = "";
    if (argument >= 0)
        snprintf(who, sizeof who, "argument '%s': ", v->c->schema->args[argument].name);
    const char *text = case_text(v, k->when);
    return dv_fail(DV_EINVAL, "%s: %sexpected %s%s%s, found %s", v->c->name, who, k->text, text ? " when " : "", text ? text : "",
        w.n ? w.data : "otherwise");
}

int dv__no_case(const dv__env *v, const dv__group *g)
{
    dv__words w = { 0 }, found = { 0 };
    const dv__expr *subject = g->subject;
    if (!subject)
        return dv_fail(DV_EINVAL, "%s: no case holds of: when %s", v->c->name, g->cases[0].text);
    for (uint32_t i = 0, n = 0; i < g->n; i++)
        for (uint32_t k = 1; g->cases[i].e && k < g->cases[i].e->n; k++, n++) {
            const dv__expr *e = g->cases[i].e->args[k];
            const bool last = i + 1 == g->n && k + 1 == g->cases[i].e->n;
            dv__say(&w, "%s", !n ? "" : last ? " or " : ", ");
            if (e->kind == DV__EXPR_STRING)
                dv__say(&w, "\"%s\"", e->name);
            else if (e->kind == DV__EXPR_INT)
                dv__say(&w, "%lld", (long long)e->i);
            else
                dv__say(&w, "%s", e->name ? e->name : e->i ? "True" : "False");
        }
    int argument = subject->role == DV__ROLE_ARG               ? subject->ref
        : subject->n && subject->args[0]->role == DV__ROLE_ARG ? subject->args[0]->ref
                                                               : -1;
    int64_t rank;
    dv_dtype type;
    const dv_string string = subject->role == DV__ROLE_ARG ? v->args[subject->ref].as.s : (dv_string){ "", 0 };
    if (subject->type == DV__CTYPE_STRING && v->args[subject->ref].type == DV_VALUE_STRING)
        dv__say(&found, "\"%.*s\"", (int)(string.size > 60 ? 60 : string.size), string.data);
    else if (subject->type == DV__CTYPE_INT && !dv__eval_int(v, subject, &rank))
        dv__say(&found, "%lld", (long long)rank);
    else if (subject->type == DV__CTYPE_DTYPE && !dv__eval_dtype(v, subject, &type))
        dv__say(&found, "%s", dv_dtype_name(type));
    else
        dv__say(&found, "None");
    return dv_fail(DV_EINVAL, "%s: argument '%s': expected %s%s, found %s", v->c->name,
        argument >= 0 ? v->c->schema->args[argument].name : "?", subject->type == DV__CTYPE_INT ? "rank " : "", w.data,
        found.data);
}
