/* The registry: an index of operators sorted by name (of equal names the newest last), and the list of libraries.
 *
 * A registration has two steps: first all that can fail (checks, attachments, spare tables), then a commit that only links
 * and publishes. registry_reserve_spare_tables() keeps the invariant that an operator has a spare table for each removal
 * that may follow. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "registry/registry_internal.h"

static pthread_mutex_t registry_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t registry_once = PTHREAD_ONCE_INIT;
static dv_library *libraries;
static dv_operator **operators;
static size_t noperators, index_capacity;
static uint64_t last_seq;

static void registry_before_fork(void) { pthread_mutex_lock(&registry_mutex); }
static void registry_after_fork(void) { pthread_mutex_unlock(&registry_mutex); }
static void registry_register_fork_handlers(void)
{
    pthread_atfork(registry_before_fork, registry_after_fork, registry_after_fork);
}

void dv__registry_lock(void)
{
    pthread_once(&registry_once, registry_register_fork_handlers);
    pthread_mutex_lock(&registry_mutex);
}

void dv__registry_unlock(void) { pthread_mutex_unlock(&registry_mutex); }
uint64_t dv__registry_next_seq(void) { return ++last_seq; }
const dv_library *dv__registry_find_newest_library(void) { return libraries; }

/* ---- The index ---- */

/* Returns the index of the first operator whose name is not less than `name`. */
static size_t index_first_not_less(const char *name)
{
    size_t low = 0, high = noperators;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (strcmp(operators[middle]->name, name) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool index_has_name_at(size_t i, const char *name) { return i < noperators && !strcmp(operators[i]->name, name); }

/* Returns the index after the last operator of this name. first: the index of the first one. */
static size_t index_end_of_equal_names(size_t first, const char *name)
{
    while (index_has_name_at(first, name))
        first++;
    return first;
}

dv_operator *dv__registry_find_newest(const char *name)
{
    const size_t begin = index_first_not_less(name), end = index_end_of_equal_names(begin, name);
    return begin < end ? operators[end - 1] : NULL;
}

/* The index is sorted, and '.' is less than every letter and digit: "f" stands before "f.out". */
dv_operator *dv__registry_find_overload(const char *ns, size_t ns_size, const char *name, size_t overload_index)
{
    const size_t n = strlen(name);
    const bool one = strchr(name, '.') != NULL;
    for (size_t k = 0; k < noperators; k++) {
        const char *full = operators[k]->name;
        if (strncmp(full, ns, ns_size) != 0 || strncmp(full + ns_size, "::", 2) != 0 || strncmp(full + ns_size + 2, name, n) != 0)
            continue;
        const char end = full[ns_size + 2 + n];
        const bool newest = !index_has_name_at(k + 1, full);
        if ((!end || (end == '.' && !one)) && newest && !overload_index--)
            return operators[k];
    }
    return NULL;
}

bool dv__registry_has_namespace(const char *ns, size_t ns_size)
{
    for (size_t k = 0; k < noperators; k++)
        if (!strncmp(operators[k]->name, ns, ns_size) && !strncmp(operators[k]->name + ns_size, "::", 2))
            return true;
    return false;
}

void dv__registry_suggest_names_of(dv__suggestions *suggestions, const char *ns)
{
    const size_t n = strlen(ns);
    for (size_t k = 0; k < noperators; k++)
        if (!strncmp(operators[k]->name, ns, n) && !strncmp(operators[k]->name + n, "::", 2))
            dv__suggest_add(suggestions, operators[k]->name + n + 2);
}

/* Grows the array of all operators so that nmore more fit. Returns DV_OK or DV_ENOMEM. */
static int index_reserve(size_t nmore)
{
    if (index_capacity - noperators >= nmore)
        return DV_OK;
    const size_t more = (noperators + nmore) * 2;
    dv_operator **grown = dv__realloc(operators, more * sizeof *grown);
    if (!grown)
        return DV_ENOMEM;
    operators = grown;
    index_capacity = more;
    return DV_OK;
}

/* Frees the index's memory if the index is empty. */
static void index_free_if_empty(void)
{
    if (noperators)
        return;
    dv__free(operators);
    operators = NULL;
    index_capacity = 0;
}

static void index_insert(dv_operator *op)
{
    const size_t at = index_end_of_equal_names(index_first_not_less(op->name), op->name);
    memmove(&operators[at + 1], &operators[at], (noperators++ - at) * sizeof *operators);
    operators[at] = op;
}

static void index_remove(const dv_operator *op)
{
    for (size_t i = index_first_not_less(op->name); i < noperators; i++)
        if (operators[i] == op) {
            memmove(&operators[i], &operators[i + 1], (--noperators - i) * sizeof *operators);
            break;
        }
    index_free_if_empty();
}

/* ---- Tables ---- */

static size_t registry_count_fallbacks(void)
{
    size_t n = 0;
    for (const dv_library *lib = libraries; lib; lib = lib->next)
        for (int key = 0; key < DV_KEY_RUNTIME_COUNT; key++)
            n += lib->fallbacks[key].is_set;
    return n;
}

/* Allocates spare tables before an operator gets more attachments, kernels and fallbacks: one table to publish now, and one
 * for each later removal. Fails with DV_ENOMEM; the published table is unchanged then. */
static int registry_reserve_spare_tables(dv_operator *op, size_t more_attachments, size_t more_kernels, size_t more_fallbacks)
{
    dv__registry_record *r = op->registry_record;
    const size_t needed = r->nattached + more_attachments + registry_count_fallbacks() + more_fallbacks + 1;
    const size_t nkernels = r->nkernels + more_kernels;
    size_t fit = 0;
    for (dv__spare_table **at = &r->spares, *t; (t = *at);) {
        if (t->capacity < nkernels) {
            /* A table that is too small is kept until enough larger tables are allocated, since a failure below must change
             * nothing. */
            at = &t->next;
            continue;
        }
        fit++;
        at = &t->next;
    }
    for (; fit < needed; fit++) {
        dv__spare_table *t = dv__calloc(1, sizeof *t + nkernels * sizeof t->kernels[0]);
        if (!t)
            return DV_ENOMEM;
        t->capacity = nkernels;
        t->next = r->spares;
        r->spares = t;
    }
    for (dv__spare_table **at = &r->spares, *t; (t = *at);) {
        if (t->capacity < nkernels) {
            *at = t->next;
            dv__free(t);
        } else {
            at = &t->next;
        }
    }
    return DV_OK;
}

/* Computes the operator's dispatch table in a spare one and publishes it. The old table is freed with the operator. Cannot
 * fail. */
static void registry_publish_new_table(dv_operator *op)
{
    dv__spare_table *t = op->registry_record->spares;
    op->registry_record->spares = t->next;
    dv__dispatch_table_fill(t, op);
    t->table.retired = (dv__dispatch_table *)atomic_load_explicit(&op->table, memory_order_relaxed);
    atomic_store_explicit(&op->table, &t->table, memory_order_release);
}

/* ---- Attachments ---- */

void dv__attachment_free(dv__attachment *a)
{
    if (!a)
        return;
    dv__arena_deinit(&a->arena);
    dv__free(a);
}

/* Makes the attachment of a named registration to an operator, not yet linked. fail_if_unfit: fail if a vendor's kernels do
 * not fit the operator; otherwise the reason is stored in (*out)->problem. Returns a status. */
static int attachment_new(
    dv_operator *op, const dv__named_registration *named_registration, bool fail_if_unfit, dv__attachment **out)
{
    *out = NULL;
    dv__attachment *a = dv__calloc(1, sizeof *a);
    if (!a)
        return DV_ENOMEM;
    a->named_registration = named_registration;
    a->sequence_number = named_registration->sequence_number;
    a->key = named_registration->key;
    a->fn = named_registration->fn;
    a->user = named_registration->user;
    a->kind = named_registration->decl       ? DV__ATTACH_KERNELS
        : named_registration->is_fallthrough ? DV__ATTACH_FALLTHROUGH
                                             : DV__ATTACH_BOXED;
    int status = named_registration->decl
        ? dv__kernels_make(op, named_registration->decl, named_registration->library->provider, true, &a->arena, &a->kernels)
        : DV_OK;
    if (status && status != DV_ENOMEM && !fail_if_unfit) {
        const char *why = dv_last_error();
        a->kernels = (dv__kernel_set){ NULL, 0 };
        a->problem = dv__arena_strndup(&a->arena, why, strlen(why));
        status = a->problem ? DV_OK : DV_ENOMEM;
    }
    if (status) {
        dv__attachment_free(a);
        return status;
    }
    *out = a;
    return DV_OK;
}

/* Links an attachment into the operator's list, which is sorted by sequence number, newest first. */
static void attachment_link(dv_operator *op, dv__attachment *a)
{
    dv__attachment **at = &op->registry_record->attached;
    while (*at && (*at)->sequence_number > a->sequence_number)
        at = &(*at)->next;
    a->next = *at;
    *at = a;
    op->registry_record->nattached++;
    op->registry_record->nkernels += a->kernels.nkernels;
}

/* Moves a library's attachments from the operator's list to its list of retired ones, since a call may still use them.
 * Returns true if the library had any. */
static bool attachments_try_retire_library(dv_operator *op, const dv_library *lib)
{
    bool any = false;
    for (dv__attachment **at = &op->registry_record->attached, *a; (a = *at);) {
        if (!a->named_registration || a->named_registration->library != lib) {
            at = &a->next;
            continue;
        }
        *at = a->next;
        op->registry_record->nattached--;
        op->registry_record->nkernels -= a->kernels.nkernels;
        a->named_registration = NULL;
        a->next = op->registry_record->retired;
        op->registry_record->retired = a;
        any = true;
    }
    return any;
}

static void attachment_free_list(dv__attachment *list)
{
    for (dv__attachment *a = list, *next; a; a = next) {
        next = a->next;
        dv__attachment_free(a);
    }
}

/* ---- Checks ---- */

static bool registry_texts_are_equal(const char *a, const char *b) { return !strcmp(a ? a : "", b ? b : ""); }

/* True if a and b are different versions of one library, which may be loaded at once. */
static bool registry_are_versions_of_one_library(const dv_library *a, const dv_library *b)
{
    const bool same = a->kind == b->kind && !strcmp(a->ns, b->ns) &&
        (a->kind == DV_LIBRARY_DEF || registry_texts_are_equal(a->provider, b->provider));
    return same && !registry_texts_are_equal(a->version, b->version);
}

/* Fails with DV_EEXIST if the same library is loaded already, or another one defines the namespace of this one. */
static int registry_check_new_library(const dv_library *lib)
{
    for (const dv_library *other = libraries; other; other = other->next) {
        if (lib->is_from_file && other->is_from_file && !strcmp(lib->binary.id, other->binary.id))
            return dv_fail(DV_EEXIST, "the same binary is already loaded as %s", other->label);
        if (lib->decl && lib->decl == other->decl)
            return dv_fail(DV_EEXIST, "it is already loaded");
        if (lib->kind == DV_LIBRARY_DEF && other->kind == DV_LIBRARY_DEF && !strcmp(lib->ns, other->ns) &&
            !registry_are_versions_of_one_library(lib, other))
            return dv_fail(DV_EEXIST,
                "namespace %s is already defined by library %s; unload that one first, give this one another version "
                "(DV_LIBRARY_VERSION), or make it a fragment",
                lib->ns, other->label);
    }
    return DV_OK;
}

static int registry_check_new_operator(const dv_library *lib, const dv_operator *op)
{
    for (size_t i = index_first_not_less(op->name); index_has_name_at(i, op->name); i++)
        if (!registry_are_versions_of_one_library(lib, operators[i]->registry_record->owner))
            return dv_fail(DV_EEXIST, "operator %s is already defined by library %s, as %s", op->name,
                operators[i]->registry_record->owner->label, operators[i]->schema->text);
    return DV_OK;
}

/* ---- Adding ---- */

/* Attaches to a new operator all named registrations of its name. After a failure some are attached: the caller frees the
 * operator. Returns a status. */
static int registry_attach_named_registrations(dv_operator *op)
{
    for (const dv_library *lib = libraries; lib; lib = lib->next)
        for (const dv__named_registration *named_registration = lib->named_registrations; named_registration;
            named_registration = named_registration->next) {
            if (strcmp(named_registration->name, op->name) != 0)
                continue;
            dv__attachment *a;
            const int status = attachment_new(op, named_registration, false, &a);
            if (status)
                return status;
            attachment_link(op, a);
        }
    return DV_OK;
}

static int registry_prepare_new_operator(dv_library *lib, dv_operator *op)
{
    int status = registry_check_new_operator(lib, op);
    if (status || (status = registry_attach_named_registrations(op)) || (status = registry_reserve_spare_tables(op, 0, 0, 0)))
        return status;
    op->registry_record->owner = lib;
    return DV_OK;
}

/* Numbers the operator's own kernels as the newest, publishes its table, and adds it to the index. Cannot fail. */
static void registry_publish_new_operator(dv_operator *op)
{
    op->registry_record->sequence_number = dv__registry_next_seq();
    for (dv__attachment *a = op->registry_record->attached; a; a = a->next)
        if (!a->named_registration)
            a->sequence_number = op->registry_record->sequence_number;
    /* The operator's own kernels are now the newest: move them to the front of the list. */
    for (dv__attachment **at = &op->registry_record->attached, *a; (a = *at); at = &a->next)
        if (!a->named_registration) {
            *at = a->next;
            a->next = op->registry_record->attached;
            op->registry_record->attached = a;
            break;
        }
    registry_publish_new_table(op);
    atomic_store(&op->alive, true);
    index_insert(op);
}

/* An attachment that was made for a named registration, but is not linked to its operator yet. */
typedef struct dv__pending_attachment {
    struct dv__pending_attachment *next;
    struct dv__pending_attachment
        *same_operator; /* the pending attachment to the same operator that was made before; NULL: none */
    dv_operator *op;
    dv__attachment *a;
} pending_attachment;

/* Frees a list of pending attachments; with_attachments: also the attachments, after a failure. */
static void pending_free_all(pending_attachment *g, bool with_attachments)
{
    for (pending_attachment *next; g; g = next) {
        next = g->next;
        g->op->pending = NULL;
        if (with_attachments)
            dv__attachment_free(g->a);
        dv__free(g);
    }
}

/* Makes the pending attachments of a named registration to all operators of its name. Fails if the registration does not fit
 * the newest of these operators; older versions only get it if it fits. */
static int registry_prepare_named_registration(const dv__named_registration *named_registration, pending_attachment **pending)
{
    const size_t begin = index_first_not_less(named_registration->name),
                 end = index_end_of_equal_names(begin, named_registration->name);
    for (size_t i = begin; i < end; i++) {
        size_t attachments = 1, nkernels = 0; /* numbers of attachments and kernels that the same library adds to this operator,
                                                 those that are pending included */
        for (const pending_attachment *g = operators[i]->pending; g; g = g->same_operator) {
            attachments++;
            nkernels += g->a->kernels.nkernels;
        }
        pending_attachment *g = dv__calloc(1, sizeof *g);
        if (!g)
            return DV_ENOMEM;
        g->next = *pending;
        g->op = operators[i];
        g->same_operator = g->op->pending;
        *pending = g->op->pending = g;
        int status = attachment_new(operators[i], named_registration, i == end - 1, &g->a);
        if (!status)
            status = registry_reserve_spare_tables(operators[i], attachments, nkernels + g->a->kernels.nkernels, 0);
        if (status) {
            dv__attachment_free(g->a);
            *pending = g->next;
            g->op->pending = g->same_operator;
            dv__free(g);
            return status;
        }
    }
    return DV_OK;
}

static void registry_link_pending_and_publish(pending_attachment *pending)
{
    for (pending_attachment *g = pending; g; g = g->next)
        attachment_link(g->op, g->a);
    for (pending_attachment *g = pending; g; g = g->next)
        if (!g->same_operator) /* same_operator is NULL for one pending attachment of each operator */
            registry_publish_new_table(g->op);
    pending_free_all(pending, false);
}

static int registry_compare_operator_names(const void *a, const void *b)
{
    const dv_operator *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

/* Fails with DV_EEXIST if the library declares two operators of one name. */
static int registry_check_no_duplicate_names(const dv_library *lib)
{
    const size_t n = lib->noperators;
    int status = DV_OK;
    dv_operator **sorted = dv__alloc((n + 1) * sizeof *sorted);
    if (!sorted)
        return DV_ENOMEM;
    for (size_t i = 0; i < n; i++)
        sorted[i] = lib->operators[i];
    qsort(sorted, n, sizeof *sorted, registry_compare_operator_names);
    for (size_t i = 1; i < n && !status; i++)
        if (!strcmp(sorted[i - 1]->name, sorted[i]->name))
            status = dv_fail(DV_EEXIST, "operator %s is declared twice", sorted[i]->name);
    dv__free(sorted);
    return status;
}

int dv__registry_add(dv_library *lib)
{
    pending_attachment *pending = NULL;
    dv__registry_lock();
    int status = registry_check_new_library(lib);
    if (!status)
        status = registry_check_no_duplicate_names(lib);
    if (!status)
        status = index_reserve(lib->noperators);
    for (size_t i = 0; i < lib->noperators && !status; i++)
        status = registry_prepare_new_operator(lib, lib->operators[i]);
    for (dv__named_registration *named_registration = lib->named_registrations; named_registration && !status;
        named_registration = named_registration->next)
        named_registration->sequence_number = dv__registry_next_seq();
    for (const dv__named_registration *named_registration = lib->named_registrations; named_registration && !status;
        named_registration = named_registration->next)
        status = registry_prepare_named_registration(named_registration, &pending);
    if (status) {
        pending_free_all(pending, true);
        index_free_if_empty();
        dv__registry_unlock();
        return status;
    }
    lib->next = libraries;
    libraries = lib;
    for (size_t i = 0; i < lib->noperators; i++)
        registry_publish_new_operator(lib->operators[i]);
    registry_link_pending_and_publish(pending);
    dv__registry_unlock();
    return DV_OK;
}

int dv__registry_add_operator(dv_library *lib, dv_operator *op)
{
    dv__registry_lock();
    int status = index_reserve(1);
    if (!status && lib->noperators == lib->capacity) {
        const size_t more = lib->capacity ? lib->capacity * 2 : 8;
        dv_operator **grown = dv__realloc(lib->operators, more * sizeof *grown);
        status = grown ? DV_OK : DV_ENOMEM;
        if (grown) {
            lib->operators = grown;
            lib->capacity = more;
        }
    }
    if (!status)
        status = registry_prepare_new_operator(lib, op);
    if (!status) {
        lib->operators[lib->noperators++] = op;
        registry_publish_new_operator(op);
    }
    index_free_if_empty();
    dv__registry_unlock();
    return status;
}

int dv__registry_add_named(dv_library *lib, dv__named_registration *named_registration)
{
    pending_attachment *pending = NULL;
    dv__registry_lock();
    int status = DV_OK;
    for (const dv__named_registration *other = lib->named_registrations; other && !status; other = other->next)
        if (other->key == named_registration->key && !strcmp(other->name, named_registration->name))
            status = dv_fail(DV_EEXIST, "operator %s already has a kernel for %s from this library", named_registration->name,
                dv_key_name(named_registration->key));
    named_registration->sequence_number = dv__registry_next_seq();
    if (!status)
        status = registry_prepare_named_registration(named_registration, &pending);
    if (status) {
        pending_free_all(pending, true);
    } else {
        named_registration->next = lib->named_registrations;
        lib->named_registrations = named_registration;
        registry_link_pending_and_publish(pending);
    }
    dv__registry_unlock();
    return status;
}

int dv__registry_add_fallback(dv_library *lib, int key, dv_boxed_fn fn, void *user)
{
    dv__registry_lock();
    int status = DV_OK;
    for (const dv_library *other = libraries; other && !status; other = other->next)
        if (other->fallbacks[key].is_set)
            status = dv_fail(DV_EEXIST, "there is already a fallback for %s, from library %s", dv_key_name(key), other->label);
    for (size_t i = 0; i < noperators && !status; i++)
        status = registry_reserve_spare_tables(operators[i], 0, 0, 1);
    if (!status) {
        lib->fallbacks[key].is_set = true;
        lib->fallbacks[key].fn = fn;
        lib->fallbacks[key].user = user;
        for (size_t i = 0; i < noperators; i++)
            registry_publish_new_table(operators[i]);
    }
    dv__registry_unlock();
    return status;
}

/* ---- Taking away ---- */

static bool registry_library_has_fallback(const dv_library *lib)
{
    for (int key = 0; key < DV_KEY_RUNTIME_COUNT; key++)
        if (lib->fallbacks[key].is_set)
            return true;
    return false;
}

void dv__registry_remove(dv_library *lib)
{
    dv__registry_lock();
    for (dv_library **at = &libraries; *at; at = &(*at)->next)
        if (*at == lib) {
            *at = lib->next;
            break;
        }
    for (size_t i = 0; i < lib->noperators; i++) {
        atomic_store(&lib->operators[i]->alive, false);
        lib->operators[i]->registry_record->owner = NULL;
        index_remove(lib->operators[i]);
    }
    const bool all = registry_library_has_fallback(lib);
    for (size_t i = 0; i < noperators; i++)
        if (attachments_try_retire_library(operators[i], lib) || all)
            registry_publish_new_table(operators[i]);
    dv__registry_unlock();
}

/* ---- Looking up ---- */

/* Returns DV_ENOENT, with a list of overloads, if the operator exists with other overloads than the requested one; else
 * DV_OK. */
static int registry_fail_if_only_overload_differs(const char *name, size_t base_name_size, const char *overload)
{
    dv__strbuf t = { 0 };
    for (size_t i = 0; i < noperators; i++) {
        const char *other = operators[i]->name;
        if (strncmp(other, name, base_name_size) != 0 || (other[base_name_size] && other[base_name_size] != '.') ||
            (i && !strcmp(other, operators[i - 1]->name)))
            continue;
        dv__strbuf_printf(&t, "%s%s", t.size ? ", " : "", other[base_name_size] ? other + base_name_size + 1 : "the default one");
    }
    if (!t.size)
        return DV_OK;
    if (*overload)
        dv_fail(DV_ENOENT, "operator %.*s has no overload '%s'; there are: %s", (int)base_name_size, name, overload, t.data);
    else
        dv_fail(DV_ENOENT, "operator %.*s has no overload without a name; there are: %s", (int)base_name_size, name, t.data);
    dv__strbuf_deinit(&t);
    return DV_ENOENT;
}

/* Returns DV_ENOENT, with a list of namespaces, if no operator has the name's namespace; else DV_OK. */
static int registry_fail_if_no_namespace(const char *name, size_t namespace_size)
{
    dv__strbuf t = { 0 };
    const char *last = "";
    size_t last_size = 0;
    bool found = false;
    for (size_t i = 0; i < noperators; i++) {
        const char *ns = operators[i]->name;
        const size_t n = (size_t)(strstr(ns, "::") - ns);
        if (n == last_size && !strncmp(ns, last, n))
            continue;
        last = ns;
        last_size = n;
        found = found || (n == namespace_size && !strncmp(ns, name, n));
        dv__strbuf_printf(&t, "%s%.*s", t.size ? ", " : "", (int)n, ns);
    }
    if (!found)
        dv_fail(DV_ENOENT, "operator %s not found: no library of namespace %.*s is loaded; namespaces: %s", name,
            (int)namespace_size, name, t.size ? t.data : "none");
    dv__strbuf_deinit(&t);
    return found ? DV_OK : DV_ENOENT;
}

static int registry_fail_unknown_name(const char *name)
{
    char hint[512];
    dv__suggestions suggestions = { .wanted = name };
    for (size_t i = 0; i < noperators; i++)
        dv__suggest_add(&suggestions, operators[i]->name);
    return dv_fail(DV_ENOENT, "operator %s not found%s", name, dv__suggest_print(&suggestions, hint, sizeof hint));
}

/* Returns DV_ENOENT; the message names missing overloads, namespaces or similar names. Requires the lock. */
static int registry_fail_not_found(const char *name)
{
    const char *colons = strstr(name, "::");
    if (!colons) {
        char hint[512];
        dv__suggestions suggestions = { .wanted = name };
        for (size_t i = 0; i < noperators; i++)
            if (!strcmp(strstr(operators[i]->name, "::") + 2, name))
                dv__suggest_add(&suggestions, operators[i]->name);
        return dv_fail(
            DV_ENOENT, "operator %s not found: expected 'ns::name'%s", name, dv__suggest_print(&suggestions, hint, sizeof hint));
    }
    const char *dot = strchr(colons, '.');
    const size_t size = dot ? (size_t)(dot - name) : strlen(name);
    int status = registry_fail_if_only_overload_differs(name, size, dot ? dot + 1 : "");
    if (!status)
        status = registry_fail_if_no_namespace(name, (size_t)(colons - name));
    return status ? status : registry_fail_unknown_name(name);
}

int dv__fail_operator_not_found(const char *name)
{
    dv__registry_lock();
    const int status = registry_fail_not_found(name);
    dv__registry_unlock();
    return status;
}

int dv_find(const char *name, dv_operator **out)
{
    DV__REQUIRE(out, "pointer for the result");
    *out = NULL;
    DV__REQUIRE(name, "name");
    dv__registry_lock();
    dv_operator *op = dv__registry_find_newest(name);
    const int status = op ? DV_OK : registry_fail_not_found(name);
    *out = op ? dv_operator_ref(op) : NULL;
    dv__registry_unlock();
    return status;
}

static const dv_library *registry_get_owner(const dv_operator *op)
{
    return (op->functional_form_of ? op->functional_form_of : op)->registry_record->owner;
}

int dv__find_for_operator(const dv_operator *caller, const char *name, dv_operator **out)
{
    *out = NULL;
    dv__registry_lock();
    const dv_library *owner = registry_get_owner(caller);
    for (size_t i = 0; owner && i < owner->noperators && !*out; i++)
        if (!strcmp(owner->operators[i]->name, name))
            *out = dv_operator_ref(owner->operators[i]);
    dv__registry_unlock();
    return *out ? DV_OK : dv_find(name, out);
}

int dv_operator_binary(const dv_operator *op, char **path, char content[33])
{
    DV__REQUIRE(path, "pointer for the path");
    *path = NULL;
    DV__REQUIRE(op, "operator");
    DV__REQUIRE(content, "pointer for the hash");
    dv__registry_lock();
    const dv_library *owner = registry_get_owner(op);
    int status = owner && owner->is_from_file ? DV_OK : dv_fail(DV_ENOENT, "%s: it is of no file that is loaded", op->name);
    if (!status && !(*path = dv__strdup(owner->binary.path)))
        status = DV_ENOMEM;
    if (!status)
        memcpy(content, owner->binary.id, sizeof owner->binary.id);
    dv__registry_unlock();
    return status;
}

int dv_for_each_operator(int (*fn)(void *user, dv_operator *op), void *user)
{
    DV__REQUIRE(fn, "function");
    dv__registry_lock();
    const size_t n = noperators;
    dv_operator **all = dv__alloc(n * sizeof *all);
    for (size_t i = 0; i < n && all; i++)
        all[i] = dv_operator_ref(operators[i]);
    dv__registry_unlock();
    if (!all)
        return DV_ENOMEM;
    int status = DV_OK;
    for (size_t i = 0; i < n; i++) {
        if (!status)
            status = fn(user, all[i]);
        dv_operator_unref(all[i]);
    }
    dv__free(all);
    return status;
}

/* ---- The life of an operator ---- */

dv_operator *dv_operator_ref(dv_operator *op)
{
    if (op)
        atomic_fetch_add_explicit(&op->refs, 1, memory_order_relaxed);
    return op;
}

void dv_operator_unref(dv_operator *op)
{
    if (op && atomic_fetch_sub_explicit(&op->refs, 1, memory_order_acq_rel) == 1)
        dv__operator_free(op);
}

void dv__registry_record_free(dv__registry_record *record, const dv__dispatch_table *published_table)
{
    for (dv__dispatch_table *t = (dv__dispatch_table *)published_table, *next; t; t = next) {
        next = t->retired;
        dv__free(t);
    }
    if (!record)
        return;
    for (dv__spare_table *t = record->spares, *next; t; t = next) {
        next = t->next;
        dv__free(t);
    }
    attachment_free_list(record->attached);
    attachment_free_list(record->retired);
    dv__free(record);
}
