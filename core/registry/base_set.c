/* Finds the operators that formulas name: "f" in the library of the formula, then in the base set; "ns::f" in namespace ns.
 * The base set is a library like others, with the namespace "base". The first formula that needs the base set loads it from
 * this library's folder. */
#include <assert.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#include "registry/registry_internal.h"

/* ---- The base set ---- */

static pthread_mutex_t base_mutex = PTHREAD_MUTEX_INITIALIZER;
static _Atomic(dv_library *)
    unclaimed_base_set; /* the base set that a formula loaded; NULL: none, or a dv_load() has returned it since */

static bool base_set_is_registered(void)
{
    bool found = false;
    dv__registry_lock();
    for (const dv_library *lib = dv__registry_find_newest_library(); lib && !found; lib = lib->next)
        found = lib->kind == DV_LIBRARY_DEF && !strcmp(lib->ns, "base");
    dv__registry_unlock();
    return found;
}

/* Makes the path of the base set, <folder of this library>/../ops/base.so; in a statically linked program, relative to the
 * program's folder. The caller frees *out. Fails with DV_ENOENT. */
static int base_set_make_path(char **out)
{
    *out = NULL;
    Dl_info info;
    if (!dladdr((const void *)(uintptr_t)&dv__find_base_operator, &info) || !info.dli_fname)
        return dv_fail(DV_ENOENT, "the base set of operators cannot be found: where libdovetail lies is unknown");
    char self[4096];
    const char *from = info.dli_fname;
    if (!strchr(from, '/')) { /* in a static program dladdr() gives the path by which it was started */
        const ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
        if (n > 0) {
            self[n] = 0;
            from = self;
        }
    }
    const char *slash = strrchr(from, '/');
    dv__strbuf path = { 0 };
    dv__strbuf_printf(&path, "%.*s/../ops/base.so", slash ? (int)(slash - from) : 1, slash ? from : ".");
    return dv__strbuf_detach(&path, out);
}

/* Loads the base set, unless a library of that namespace is loaded. Returns DV_ENOENT if its file does not exist: formulas
 * may then name operators that are not found. */
static int base_set_load_if_missing(void)
{
    if (base_set_is_registered())
        return DV_OK;
    char *path;
    int status = base_set_make_path(&path);
    if (status)
        return status;
    assert(path);
    pthread_mutex_lock(&base_mutex);
    if (!base_set_is_registered()) {
        dv_library *lib; /* never unloaded, since any formula may use it */
        if (access(path, F_OK))
            status = dv_fail(DV_ENOENT, "the base set of operators is not at %s", path);
        else if (!(status = dv_load(path, &lib)))
            atomic_store(&unclaimed_base_set, lib);
    }
    pthread_mutex_unlock(&base_mutex);
    dv__free(path);
    return status;
}

dv_library *dv__take_unclaimed_base_set(const char *content_id)
{
    dv_library *lib = atomic_load(&unclaimed_base_set);
    return lib && !strcmp(lib->binary.id, content_id) && atomic_compare_exchange_strong(&unclaimed_base_set, &lib, NULL) ? lib
                                                                                                                         : NULL;
}

int dv__find_base_operator(const char *name, dv_operator **out)
{
    *out = NULL;
    const int status = base_set_load_if_missing();
    if (status)
        return status;
    dv__strbuf full = { 0 };
    char *full_name;
    dv__strbuf_printf(&full, "base::%s", name);
    if (dv__strbuf_detach(&full, &full_name))
        return DV_ENOMEM;
    const int found = dv_find(full_name, out);
    dv__free(full_name);
    return found;
}

/* ---- Looking up ---- */

typedef struct formula_lookup {
    const dv_library *lib;
    const dv_operator *self; /* the operator of a decomposition, which the lookup skips; NULL for other formulas */
    dv_operator **refs;      /* references to the operators whose schemas were returned */
    size_t nrefs;
} formula_lookup;

static void lookup_unref_operators(formula_lookup *l)
{
    for (size_t i = 0; i < l->nrefs; i++)
        dv_operator_unref(l->refs[i]);
    dv__free(l->refs);
}

/* Adds a reference to an operator that formulas call, unless the lookup has one. Returns DV_OK or DV_ENOMEM. */
static int lookup_ref_operator_once(formula_lookup *l, dv_operator *op)
{
    for (size_t i = 0; i < l->nrefs; i++)
        if (l->refs[i] == op)
            return DV_OK;
    dv_operator **grown = dv__realloc(l->refs, (l->nrefs + 1) * sizeof *grown);
    if (!grown)
        return DV_ENOMEM;
    l->refs = grown;
    l->refs[l->nrefs++] = dv_operator_ref(op);
    return DV_OK;
}

/* True if `name` in namespace ns means the operator full_name. "f" means every overload of f; "f.out" means that overload
 * only. */
static bool lookup_name_covers_operator(const char *full_name, const char *ns, size_t ns_size, const char *name)
{
    const size_t n = strlen(name);
    return !strncmp(full_name, ns, ns_size) && !strncmp(full_name + ns_size, "::", 2) &&
        !strncmp(full_name + ns_size + 2, name, n) &&
        (!full_name[ns_size + 2 + n] || (full_name[ns_size + 2 + n] == '.' && !strchr(name, '.')));
}

/* Returns overload number overload_index that `name` means in the formula's library; NULL: there are not so many. Skips the
 * operator whose decomposition is parsed. */
static dv_operator *lookup_find_in_library(const formula_lookup *l, const char *name, size_t overload_index)
{
    const size_t ns_size = strlen(l->lib->ns);
    for (size_t k = 0; k < l->lib->noperators; k++)
        if (l->lib->operators[k] != l->self &&
            lookup_name_covers_operator(l->lib->operators[k]->name, l->lib->ns, ns_size, name) && !overload_index--)
            return l->lib->operators[k];
    return NULL;
}

static int lookup_find_in_registry(
    formula_lookup *l, const char *ns, size_t ns_size, const char *name, size_t overload_index, const dv__schema **out)
{
    dv__registry_lock();
    dv_operator *op = dv__registry_find_overload(ns, ns_size, name, overload_index);
    const int status = op ? lookup_ref_operator_once(l, op) : DV_OK;
    if (op && !status)
        *out = op->schema;
    dv__registry_unlock();
    return status;
}

/* Fails with DV_ENOENT: neither this library nor the base set has an operator of this name. Similar names are suggested. */
static int lookup_fail_unknown(formula_lookup *l, const char *name)
{
    char hint[512];
    dv__suggestions suggestions = { .wanted = name };
    for (size_t k = 0; k < l->lib->noperators; k++)
        dv__suggest_add(&suggestions, strstr(l->lib->operators[k]->name, "::") + 2);
    dv__registry_lock();
    dv__registry_suggest_names_of(&suggestions, "base");
    dv__suggest_print(&suggestions, hint, sizeof hint);
    dv__registry_unlock();
    return dv_fail(DV_ENOENT, "no operator '%s' in this library or in the base set%s", name, hint);
}

/* Finds the schema of overload number overload_index of "ns::f". *out NULL: there are not so many. An unknown name fails
 * only if its namespace exists, or is the namespace of the formula's own library. */
static int lookup_find_in_namespace(
    formula_lookup *l, const char *name, const char *colons, size_t overload_index, const dv__schema **out)
{
    const size_t ns_size = (size_t)(colons - name);
    if (ns_size == strlen(l->lib->ns) && !strncmp(name, l->lib->ns, ns_size)) {
        const dv_operator *op = lookup_find_in_library(l, colons + 2, overload_index);
        if (op || overload_index)
            *out = op ? op->schema : NULL;
        else if (l->self && lookup_name_covers_operator(l->self->name, l->lib->ns, ns_size, colons + 2))
            return dv_fail(DV_ESCHEMA, "a decomposition cannot call its own operator");
        else if (l->lib->kind == DV_LIBRARY_DEF)
            return dv_fail(DV_ENOENT, "operator %s is not defined by this library", name);
        if (op || overload_index)
            return DV_OK;
    }
    int status = ns_size == 4 && !strncmp(name, "base", 4) && strcmp(l->lib->ns, "base") != 0 ? base_set_load_if_missing()
                                                                                              : DV_OK;
    if (status && status != DV_ENOENT)
        return status;
    status = lookup_find_in_registry(l, name, ns_size, colons + 2, overload_index, out);
    if (status || *out || overload_index)
        return status;
    dv__registry_lock();
    const bool exists = dv__registry_has_namespace(name, ns_size);
    dv__registry_unlock();
    return exists ? dv__fail_operator_not_found(name) : DV_OK;
}

/* Finds the schema of overload number overload_index of the operator that a formula names. *out NULL: there are not so many.
 * Fails if the name is unknown. */
static int lookup_find_overload_schema(void *user, const char *name, size_t overload_index, const dv__schema **out)
{
    formula_lookup *l = user;
    *out = NULL;
    const char *colons = strstr(name, "::");
    if (colons)
        return lookup_find_in_namespace(l, name, colons, overload_index, out);
    if (lookup_find_in_library(l, name, 0)) {
        const dv_operator *op = lookup_find_in_library(l, name, overload_index);
        *out = op ? op->schema : NULL;
        return DV_OK;
    }
    if (!strcmp(l->lib->ns, "base"))
        return overload_index ? DV_OK : lookup_fail_unknown(l, name);
    int status = base_set_load_if_missing();
    if (status == DV_ENOENT)
        return DV_OK; /* without a base set, formulas stay as written */
    if (status)
        return status;
    status = lookup_find_in_registry(l, "base", 4, name, overload_index, out);
    return status || *out || overload_index ? status : lookup_fail_unknown(l, name);
}

/* ---- Lists whose length the contract fixes ---- */

static int formula_fail_list_length(const dv_operator *op, const char *formula_kind, size_t result_index,
    const char *expected_noun, long long expected_length, long long found)
{
    const char *name = op->schema->returns[result_index].name;
    char number[24];
    snprintf(number, sizeof number, "%zu", result_index);
    return dv_fail(DV_ESCHEMA, "operator %s: %s: result '%s': expected %s %lld, found %lld", op->name, formula_kind,
        *name ? name : number, expected_noun, expected_length, found);
}

/* Fails if the expression has a constant index beyond the length that the contract fixes for a list: grad[2], result[2] of a
 * list of two tensors. Tests all subexpressions. */
static int formula_check_list_indices(const dv_operator *op, const char *formula_kind, const dv__expr *e)
{
    const dv__expr *list = e && e->kind == DV__EXPR_SUBSCRIPT ? e->args[0] : NULL;
    int status = DV_OK;
    if (list && list->kind == DV__EXPR_NAME && (list->role == DV__ROLE_GRAD || list->role == DV__ROLE_RESULT) &&
        e->args[1]->kind == DV__EXPR_INT && (size_t)list->ref >= op->schema->nargs) {
        const size_t r = (size_t)list->ref - op->schema->nargs;
        const int64_t n = dv__contract_const_list_length(op->contract, r), index = e->args[1]->i;
        if (n >= 0 && (index < -n || index >= n))
            return formula_fail_list_length(op, formula_kind, r, "an index below", n, index);
    }
    for (uint32_t i = 0; e && i < e->n && !status; i++)
        status = formula_check_list_indices(op, formula_kind, e->args[i]);
    return status;
}

static int formula_check_clause_indices(const dv_operator *op, const char *formula_kind, const dv__formula *f)
{
    int status = DV_OK;
    for (size_t i = 0; f && i < f->n && !status; i++)
        status = formula_check_list_indices(op, formula_kind, f->clauses[i].value);
    return status;
}

/* Checks the lengths of lists in an operator's formulas against those that the contract gives. Returns a status. */
static int formula_check_list_lengths(const dv_operator *op)
{
    for (size_t r = 0; op->decomposition && r < op->decomposition->n; r++) {
        const dv__expr *e = op->decomposition->results[r];
        const int64_t n = dv__contract_const_list_length(op->contract, r);
        if (n >= 0 && e && e->kind == DV__EXPR_LIST && e->n != n)
            return formula_fail_list_length(op, "native", r, "as many tensors as the contract gives,", n, e->n);
    }
    const int status = formula_check_clause_indices(op, "gradient", op->gradient);
    return status ? status : formula_check_clause_indices(op, "tangent", op->tangent);
}

int dv__operator_parse_formulas(const dv_library *lib, dv_operator *op)
{
    formula_lookup l = { .lib = lib };
    int status = DV_OK;
    if (op->text.native) {
        l.self = op;
        status = dv__decomposition_parse(
            op->text.native, op->name, op->schema, lookup_find_overload_schema, &l, &op->arena, &op->decomposition);
        l.self = NULL;
    }
    if (!status && op->text.gradient)
        status = dv__gradient_parse(
            op->text.gradient, op->name, op->schema, lookup_find_overload_schema, &l, &op->arena, &op->gradient);
    if (!status && op->text.tangent)
        status = dv__tangent_parse(
            op->text.tangent, op->name, op->schema, lookup_find_overload_schema, &l, &op->arena, &op->tangent);
    lookup_unref_operators(&l);
    return status || !op->contract ? status : formula_check_list_lengths(op);
}
