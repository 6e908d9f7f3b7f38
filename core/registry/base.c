/* Look up the names in formulas: in the formula's own library, in the base set, and "ns::name" in that namespace. The base set is
 * a library like others, in the namespace "base"; the first formula that needs it loads it from beside this library. */
#include <assert.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#include "registry/internal.h"

/* ---- The base set ---- */

static pthread_mutex_t loading = PTHREAD_MUTEX_INITIALIZER;
static _Atomic(dv_library *) loaded_here; /* the base set, if nobody has asked for it by dv_load() yet */

static bool base_is_registered(void)
{
    bool found = false;
    dv__registry_lock();
    for (const dv_library *lib = dv__registry_libraries(); lib && !found; lib = lib->next)
        found = lib->kind == DV_LIBRARY_DEF && !strcmp(lib->ns, "base");
    dv__registry_unlock();
    return found;
}

/* <folder of this library>/../ops/base.so; in a statically linked program, relative to the program's folder. */
static int base_path(char **out)
{
    *out = NULL;
    Dl_info info;
    if (!dladdr((const void *)(uintptr_t)&dv__find_base, &info) || !info.dli_fname)
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
    dv__text path = { 0 };
    dv__text_add(&path, "%.*s/../ops/base.so", slash ? (int)(slash - from) : 1, slash ? from : ".");
    return dv__text_take(&path, out);
}

/* DV_ENOENT: the file does not exist; formulas are then kept unresolved. */
static int load_base(void)
{
    if (base_is_registered())
        return DV_OK;
    char *path;
    int status = base_path(&path);
    if (status)
        return status;
    assert(path);
    pthread_mutex_lock(&loading);
    if (!base_is_registered()) {
        dv_library *lib; /* stays loaded: it is everybody's */
        if (access(path, F_OK))
            status = dv_fail(DV_ENOENT, "the base set of operators is not at %s", path);
        else if (!(status = dv_load(path, &lib)))
            atomic_store(&loaded_here, lib);
    }
    pthread_mutex_unlock(&loading);
    dv__free(path);
    return status;
}

dv_library *dv__take_base(const char *content)
{
    dv_library *lib = atomic_load(&loaded_here);
    return lib && !strcmp(lib->binary.id, content) && atomic_compare_exchange_strong(&loaded_here, &lib, NULL) ? lib : NULL;
}

int dv__find_base(const char *name, dv_operator **out)
{
    *out = NULL;
    const int status = load_base();
    if (status)
        return status;
    dv__text full = { 0 };
    char *full_name;
    dv__text_add(&full, "base::%s", name);
    if (dv__text_take(&full, &full_name))
        return DV_ENOMEM;
    const int found = dv_find(full_name, out);
    dv__free(full_name);
    return found;
}

/* ---- Looking up ---- */

typedef struct lookup {
    const dv_library *lib;
    const dv_operator *self; /* excluded: a native form cannot call its own operator */
    dv_operator **held;      /* references to the operators whose schemas were returned */
    size_t nheld;
} lookup;

static void release(lookup *l)
{
    for (size_t i = 0; i < l->nheld; i++)
        dv_operator_unref(l->held[i]);
    dv__free(l->held);
}

static int hold(lookup *l, dv_operator *op)
{
    for (size_t i = 0; i < l->nheld; i++)
        if (l->held[i] == op)
            return DV_OK;
    dv_operator **grown = dv__realloc(l->held, (l->nheld + 1) * sizeof *grown);
    if (!grown)
        return DV_ENOMEM;
    l->held = grown;
    l->held[l->nheld++] = dv_operator_ref(op);
    return DV_OK;
}

/* "f" is every overload of f, the one without a name first; "f.out" is that one. */
static bool overload_of(const char *full, const char *ns, size_t ns_size, const char *name)
{
    const size_t n = strlen(name);
    return !strncmp(full, ns, ns_size) && !strncmp(full + ns_size, "::", 2) && !strncmp(full + ns_size + 2, name, n) &&
        (!full[ns_size + 2 + n] || (full[ns_size + 2 + n] == '.' && !strchr(name, '.')));
}

static dv_operator *own(const lookup *l, const char *name, size_t i)
{
    const size_t ns_size = strlen(l->lib->ns);
    for (size_t k = 0; k < l->lib->noperators; k++)
        if (l->lib->operators[k] != l->self && overload_of(l->lib->operators[k]->name, l->lib->ns, ns_size, name) && !i--)
            return l->lib->operators[k];
    return NULL;
}

static int registered(lookup *l, const char *ns, size_t ns_size, const char *name, size_t i, const dv__schema **out)
{
    dv__registry_lock();
    dv_operator *op = dv__registry_overload(ns, ns_size, name, i);
    const int status = op ? hold(l, op) : DV_OK;
    if (op && !status)
        *out = op->schema;
    dv__registry_unlock();
    return status;
}

static int unknown(lookup *l, const char *name)
{
    char hint[512];
    dv__near near = { .wanted = name };
    for (size_t k = 0; k < l->lib->noperators; k++)
        dv__near_add(&near, strstr(l->lib->operators[k]->name, "::") + 2);
    dv__registry_lock();
    dv__registry_near(&near, "base");
    dv__near_print(&near, hint, sizeof hint);
    dv__registry_unlock();
    return dv_fail(DV_ENOENT, "no operator '%s' in this library or in the base set%s", name, hint);
}

/* In another namespace, an unknown name is an error only if that namespace exists. */
static int elsewhere(lookup *l, const char *name, const char *colons, size_t i, const dv__schema **out)
{
    const size_t ns_size = (size_t)(colons - name);
    if (ns_size == strlen(l->lib->ns) && !strncmp(name, l->lib->ns, ns_size)) {
        const dv_operator *op = own(l, colons + 2, i);
        if (op || i)
            *out = op ? op->schema : NULL;
        else if (l->self && overload_of(l->self->name, l->lib->ns, ns_size, colons + 2))
            return dv_fail(DV_ESCHEMA, "a native form cannot call the operator itself");
        else if (l->lib->kind == DV_LIBRARY_DEF)
            return dv_fail(DV_ENOENT, "operator %s is not defined by this library", name);
        if (op || i)
            return DV_OK;
    }
    int status = ns_size == 4 && !strncmp(name, "base", 4) && strcmp(l->lib->ns, "base") != 0 ? load_base() : DV_OK;
    if (status && status != DV_ENOENT)
        return status;
    status = registered(l, name, ns_size, colons + 2, i, out);
    if (status || *out || i)
        return status;
    dv__registry_lock();
    const bool exists = dv__registry_has_namespace(name, ns_size);
    dv__registry_unlock();
    return exists ? dv__operator_not_found(name) : DV_OK;
}

static int look_up(void *user, const char *name, size_t i, const dv__schema **out)
{
    lookup *l = user;
    *out = NULL;
    const char *colons = strstr(name, "::");
    if (colons)
        return elsewhere(l, name, colons, i, out);
    if (own(l, name, 0)) {
        const dv_operator *op = own(l, name, i);
        *out = op ? op->schema : NULL;
        return DV_OK;
    }
    if (!strcmp(l->lib->ns, "base"))
        return i ? DV_OK : unknown(l, name);
    int status = load_base();
    if (status == DV_ENOENT)
        return DV_OK; /* without a base set, formulas are kept as written */
    if (status)
        return status;
    status = registered(l, "base", 4, name, i, out);
    return status || *out || i ? status : unknown(l, name);
}

/* ---- Lists whose length the contract fixes ---- */

static int wrong_length(const dv_operator *op, const char *formula, size_t r, const char *expected, long long n, long long found)
{
    const char *name = op->schema->returns[r].name;
    char number[24];
    snprintf(number, sizeof number, "%zu", r);
    return dv_fail(DV_ESCHEMA, "operator %s: %s: result '%s': expected %s %lld, found %lld", op->name, formula,
        *name ? name : number, expected, n, found);
}

/* grad[2], result[2] of a list that has two tensors. */
static int check_places(const dv_operator *op, const char *formula, const dv__expr *e)
{
    const dv__expr *list = e && e->kind == DV__EXPR_INDEX ? e->args[0] : NULL;
    int status = DV_OK;
    if (list && list->kind == DV__EXPR_NAME && (list->role == DV__ROLE_GRAD || list->role == DV__ROLE_RESULT) &&
        e->args[1]->kind == DV__EXPR_INT && (size_t)list->ref >= op->schema->nargs) {
        const size_t r = (size_t)list->ref - op->schema->nargs;
        const int64_t n = dv__contract_length(op->contract, r), place = e->args[1]->i;
        if (n >= 0 && (place < -n || place >= n))
            return wrong_length(op, formula, r, "an index below", n, place);
    }
    for (uint32_t i = 0; e && i < e->n && !status; i++)
        status = check_places(op, formula, e->args[i]);
    return status;
}

static int check_clauses(const dv_operator *op, const char *formula, const dv__formula *f)
{
    int status = DV_OK;
    for (size_t i = 0; f && i < f->n && !status; i++)
        status = check_places(op, formula, f->clauses[i].value);
    return status;
}

static int check_lists(const dv_operator *op)
{
    for (size_t r = 0; op->native && r < op->native->n; r++) {
        const dv__expr *e = op->native->results[r];
        const int64_t n = dv__contract_length(op->contract, r);
        if (n >= 0 && e && e->kind == DV__EXPR_LIST && e->n != n)
            return wrong_length(op, "native", r, "as many tensors as the contract gives,", n, e->n);
    }
    const int status = check_clauses(op, "gradient", op->gradient);
    return status ? status : check_clauses(op, "tangent", op->tangent);
}

int dv__operator_formulas(const dv_library *lib, dv_operator *op)
{
    lookup l = { .lib = lib };
    int status = DV_OK;
    if (op->text.native) {
        l.self = op;
        status = dv__native_parse(op->text.native, op->name, op->schema, look_up, &l, &op->arena, &op->native);
        l.self = NULL;
    }
    if (!status && op->text.gradient)
        status = dv__gradient_parse(op->text.gradient, op->name, op->schema, look_up, &l, &op->arena, &op->gradient);
    if (!status && op->text.tangent)
        status = dv__tangent_parse(op->text.tangent, op->name, op->schema, look_up, &l, &op->arena, &op->tangent);
    release(&l);
    return status || !op->contract ? status : check_lists(op);
}
