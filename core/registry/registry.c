/* The one registry: an index of operators sorted by name (of equal names the newest last), and the list of libraries.
 *
 * Adding has two steps: first all that can fail (checks, attachments, spare tables), then a commit that only links and publishes.
 * prepare() keeps the invariant that an operator has a spare table for each removal that may follow. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "registry/internal.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static dv_library *libraries;
static dv_operator **operators;
static size_t noperators, room;
static uint64_t last_seq;

static void before_fork(void) { pthread_mutex_lock(&lock); }
static void after_fork(void) { pthread_mutex_unlock(&lock); }
static void at_start(void) { pthread_atfork(before_fork, after_fork, after_fork); }

void dv__registry_lock(void)
{
    pthread_once(&once, at_start);
    pthread_mutex_lock(&lock);
}

void dv__registry_unlock(void) { pthread_mutex_unlock(&lock); }
uint64_t dv__registry_next_seq(void) { return ++last_seq; }
const dv_library *dv__registry_libraries(void) { return libraries; }

/* ---- The index ---- */

/* The first operator whose name is not less than this one. */
static size_t lower_bound(const char *name)
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

static bool is_at(size_t i, const char *name) { return i < noperators && !strcmp(operators[i]->name, name); }

static size_t past(size_t i, const char *name)
{
    while (is_at(i, name))
        i++;
    return i;
}

dv_operator *dv__registry_get(const char *name)
{
    const size_t begin = lower_bound(name), end = past(begin, name);
    return begin < end ? operators[end - 1] : NULL;
}

/* In the order of the index "f" comes before "f.out": '.' is less than every letter and digit. */
dv_operator *dv__registry_overload(const char *ns, size_t ns_size, const char *name, size_t i)
{
    const size_t n = strlen(name);
    const bool one = strchr(name, '.') != NULL;
    for (size_t k = 0; k < noperators; k++) {
        const char *full = operators[k]->name;
        if (strncmp(full, ns, ns_size) != 0 || strncmp(full + ns_size, "::", 2) != 0 || strncmp(full + ns_size + 2, name, n) != 0)
            continue;
        const char end = full[ns_size + 2 + n];
        const bool newest = !is_at(k + 1, full);
        if ((!end || (end == '.' && !one)) && newest && !i--)
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

void dv__registry_near(dv__near *near, const char *ns)
{
    const size_t n = strlen(ns);
    for (size_t k = 0; k < noperators; k++)
        if (!strncmp(operators[k]->name, ns, n) && !strncmp(operators[k]->name + n, "::", 2))
            dv__near_add(near, operators[k]->name + n + 2);
}

static int reserve_index(size_t n)
{
    if (room - noperators >= n)
        return DV_OK;
    const size_t more = (noperators + n) * 2;
    dv_operator **grown = dv__realloc(operators, more * sizeof *grown);
    if (!grown)
        return DV_ENOMEM;
    operators = grown;
    room = more;
    return DV_OK;
}

/* An empty index keeps no memory. */
static void give_back_index(void)
{
    if (noperators)
        return;
    dv__free(operators);
    operators = NULL;
    room = 0;
}

static void insert(dv_operator *op)
{
    const size_t at = past(lower_bound(op->name), op->name);
    memmove(&operators[at + 1], &operators[at], (noperators++ - at) * sizeof *operators);
    operators[at] = op;
}

static void take_out(const dv_operator *op)
{
    for (size_t i = lower_bound(op->name); i < noperators; i++)
        if (operators[i] == op) {
            memmove(&operators[i], &operators[i + 1], (--noperators - i) * sizeof *operators);
            break;
        }
    give_back_index();
}

/* ---- Tables ---- */

static size_t count_fallbacks(void)
{
    size_t n = 0;
    for (const dv_library *lib = libraries; lib; lib = lib->next)
        for (int key = 0; key < DV_KEY_RUNTIME_COUNT; key++)
            n += lib->fallbacks[key].set;
    return n;
}

/* Allocate spare tables for an operator before it gets this many more attachments, rows and fallbacks: one to publish now, and
 * one for each later removal. On failure the operator is unchanged. */
static int prepare(dv_operator *op, size_t attachments, size_t rows, size_t fallbacks)
{
    dv__registration *r = op->registration;
    const size_t needed = r->nattached + attachments + count_fallbacks() + fallbacks + 1;
    const size_t nrows = r->nrows + rows;
    size_t fit = 0;
    for (dv__spare_table **at = &r->spares, *t; (t = *at);) {
        if (t->room < nrows) {
            /* These tables are too small now. Keep them until enough larger ones are allocated, since a failure below must change
             * nothing. */
            at = &t->next;
            continue;
        }
        fit++;
        at = &t->next;
    }
    for (; fit < needed; fit++) {
        dv__spare_table *t = dv__calloc(1, sizeof *t + nrows * sizeof t->rows[0]);
        if (!t)
            return DV_ENOMEM;
        t->room = nrows;
        t->next = r->spares;
        r->spares = t;
    }
    for (dv__spare_table **at = &r->spares, *t; (t = *at);) {
        if (t->room < nrows) {
            *at = t->next;
            dv__free(t);
        } else {
            at = &t->next;
        }
    }
    return DV_OK;
}

static void publish(dv_operator *op)
{
    dv__spare_table *t = op->registration->spares;
    op->registration->spares = t->next;
    dv__table_fill(t, op);
    t->table.retired = (dv__table *)atomic_load_explicit(&op->table, memory_order_relaxed);
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

/* A vendor's rows that do not fit are an error when the vendor's library is loaded second; when the operator is defined second,
 * they are only noted. */
static int attachment_new(dv_operator *op, const dv__wish *wish, bool must_fit, dv__attachment **out)
{
    *out = NULL;
    dv__attachment *a = dv__calloc(1, sizeof *a);
    if (!a)
        return DV_ENOMEM;
    a->wish = wish;
    a->seq = wish->seq;
    a->key = wish->key;
    a->fn = wish->fn;
    a->user = wish->user;
    a->kind = wish->decl ? DV__ATTACH_ROWS : wish->fallthrough ? DV__ATTACH_FALLTHROUGH : DV__ATTACH_BOXED;
    int status = wish->decl ? dv__rows_make(op, wish->decl, wish->library->provider, true, &a->arena, &a->rows) : DV_OK;
    if (status && status != DV_ENOMEM && !must_fit) {
        const char *why = dv_last_error();
        a->rows = (dv__row_set){ NULL, 0 };
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

/* Newest first. */
static void attach(dv_operator *op, dv__attachment *a)
{
    dv__attachment **at = &op->registration->attached;
    while (*at && (*at)->seq > a->seq)
        at = &(*at)->next;
    a->next = *at;
    *at = a;
    op->registration->nattached++;
    op->registration->nrows += a->rows.n;
}

/* The memory of a removed attachment is kept: a call may be using it. */
static bool detach(dv_operator *op, const dv_library *lib)
{
    bool any = false;
    for (dv__attachment **at = &op->registration->attached, *a; (a = *at);) {
        if (!a->wish || a->wish->library != lib) {
            at = &a->next;
            continue;
        }
        *at = a->next;
        op->registration->nattached--;
        op->registration->nrows -= a->rows.n;
        a->wish = NULL;
        a->next = op->registration->retired;
        op->registration->retired = a;
        any = true;
    }
    return any;
}

static void free_attachments(dv__attachment *list)
{
    for (dv__attachment *a = list, *next; a; a = next) {
        next = a->next;
        dv__attachment_free(a);
    }
}

/* ---- Checks ---- */

static bool same_text(const char *a, const char *b) { return !strcmp(a ? a : "", b ? b : ""); }

/* Several versions of one library may be loaded at once. */
static bool other_version(const dv_library *a, const dv_library *b)
{
    const bool same = a->kind == b->kind && !strcmp(a->ns, b->ns) &&
        (a->kind == DV_LIBRARY_DEF || same_text(a->provider, b->provider));
    return same && !same_text(a->version, b->version);
}

static int check_library(const dv_library *lib)
{
    for (const dv_library *other = libraries; other; other = other->next) {
        if (lib->loaded && other->loaded && !strcmp(lib->binary.id, other->binary.id))
            return dv_fail(DV_EEXIST, "the same binary is already loaded as %s", other->label);
        if (lib->decl && lib->decl == other->decl)
            return dv_fail(DV_EEXIST, "it is already loaded");
        if (lib->kind == DV_LIBRARY_DEF && other->kind == DV_LIBRARY_DEF && !strcmp(lib->ns, other->ns) &&
            !other_version(lib, other))
            return dv_fail(DV_EEXIST,
                "namespace %s is already defined by library %s; unload that one first, give this one another version "
                "(DV_LIBRARY_VERSION), or make it a fragment",
                lib->ns, other->label);
    }
    return DV_OK;
}

static int check_operator(const dv_library *lib, const dv_operator *op)
{
    for (size_t i = lower_bound(op->name); is_at(i, op->name); i++)
        if (!other_version(lib, operators[i]->registration->owner))
            return dv_fail(DV_EEXIST, "operator %s is already defined by library %s, as %s", op->name,
                operators[i]->registration->owner->label, operators[i]->schema->text);
    return DV_OK;
}

/* ---- Adding ---- */

/* Attach the waiting wishes to a new operator. On failure it keeps those attached so far, since the operator will be freed. */
static int grant_waiting(dv_operator *op)
{
    for (const dv_library *lib = libraries; lib; lib = lib->next)
        for (const dv__wish *wish = lib->wishes; wish; wish = wish->next) {
            if (strcmp(wish->name, op->name) != 0)
                continue;
            dv__attachment *a;
            const int status = attachment_new(op, wish, false, &a);
            if (status)
                return status;
            attach(op, a);
        }
    return DV_OK;
}

static int prepare_operator(dv_library *lib, dv_operator *op)
{
    int status = check_operator(lib, op);
    if (status || (status = grant_waiting(op)) || (status = prepare(op, 0, 0, 0)))
        return status;
    op->registration->owner = lib;
    return DV_OK;
}

static void commit_operator(dv_operator *op)
{
    op->registration->seq = dv__registry_next_seq();
    for (dv__attachment *a = op->registration->attached; a; a = a->next)
        if (!a->wish)
            a->seq = op->registration->seq;
    /* The operator's own rows are now the newest: move them to the front of the list. */
    for (dv__attachment **at = &op->registration->attached, *a; (a = *at); at = &a->next)
        if (!a->wish) {
            *at = a->next;
            a->next = op->registration->attached;
            op->registration->attached = a;
            break;
        }
    publish(op);
    atomic_store(&op->alive, true);
    insert(op);
}

/* The attachment that a wish becomes, not yet linked. */
typedef struct dv__grant {
    struct dv__grant *next;
    struct dv__grant *same; /* the preceding grant for the same operator; NULL: none */
    dv_operator *op;
    dv__attachment *a;
} grant;

static void free_grants(grant *g, bool with_attachments)
{
    for (grant *next; g; g = next) {
        next = g->next;
        g->op->granted = NULL;
        if (with_attachments)
            dv__attachment_free(g->a);
        dv__free(g);
    }
}

/* A wish must fit the newest operator of its name; older versions take it if it fits. */
static int prepare_wish(const dv__wish *wish, grant **grants)
{
    const size_t begin = lower_bound(wish->name), end = past(begin, wish->name);
    for (size_t i = begin; i < end; i++) {
        size_t attachments = 1, rows = 0; /* rows that the same library has already attached to this operator count too */
        for (const grant *g = operators[i]->granted; g; g = g->same) {
            attachments++;
            rows += g->a->rows.n;
        }
        grant *g = dv__calloc(1, sizeof *g);
        if (!g)
            return DV_ENOMEM;
        g->next = *grants;
        g->op = operators[i];
        g->same = g->op->granted;
        *grants = g->op->granted = g;
        int status = attachment_new(operators[i], wish, i == end - 1, &g->a);
        if (!status)
            status = prepare(operators[i], attachments, rows + g->a->rows.n, 0);
        if (status) {
            dv__attachment_free(g->a);
            *grants = g->next;
            g->op->granted = g->same;
            dv__free(g);
            return status;
        }
    }
    return DV_OK;
}

static void commit_grants(grant *grants)
{
    for (grant *g = grants; g; g = g->next)
        attach(g->op, g->a);
    for (grant *g = grants; g; g = g->next)
        if (!g->same) /* once for each operator */
            publish(g->op);
    free_grants(grants, false);
}

static int compare_names(const void *a, const void *b)
{
    const dv_operator *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

static int check_twice(const dv_library *lib)
{
    const size_t n = lib->noperators;
    int status = DV_OK;
    dv_operator **sorted = dv__alloc((n + 1) * sizeof *sorted);
    if (!sorted)
        return DV_ENOMEM;
    for (size_t i = 0; i < n; i++)
        sorted[i] = lib->operators[i];
    qsort(sorted, n, sizeof *sorted, compare_names);
    for (size_t i = 1; i < n && !status; i++)
        if (!strcmp(sorted[i - 1]->name, sorted[i]->name))
            status = dv_fail(DV_EEXIST, "operator %s is declared twice", sorted[i]->name);
    dv__free(sorted);
    return status;
}

int dv__registry_add(dv_library *lib)
{
    grant *grants = NULL;
    dv__registry_lock();
    int status = check_library(lib);
    if (!status)
        status = check_twice(lib);
    if (!status)
        status = reserve_index(lib->noperators);
    for (size_t i = 0; i < lib->noperators && !status; i++)
        status = prepare_operator(lib, lib->operators[i]);
    for (dv__wish *wish = lib->wishes; wish && !status; wish = wish->next)
        wish->seq = dv__registry_next_seq();
    for (const dv__wish *wish = lib->wishes; wish && !status; wish = wish->next)
        status = prepare_wish(wish, &grants);
    if (status) {
        free_grants(grants, true);
        give_back_index();
        dv__registry_unlock();
        return status;
    }
    lib->next = libraries;
    libraries = lib;
    for (size_t i = 0; i < lib->noperators; i++)
        commit_operator(lib->operators[i]);
    commit_grants(grants);
    dv__registry_unlock();
    return DV_OK;
}

int dv__registry_add_operator(dv_library *lib, dv_operator *op)
{
    dv__registry_lock();
    int status = reserve_index(1);
    if (!status && lib->noperators == lib->room) {
        const size_t more = lib->room ? lib->room * 2 : 8;
        dv_operator **grown = dv__realloc(lib->operators, more * sizeof *grown);
        status = grown ? DV_OK : DV_ENOMEM;
        if (grown) {
            lib->operators = grown;
            lib->room = more;
        }
    }
    if (!status)
        status = prepare_operator(lib, op);
    if (!status) {
        lib->operators[lib->noperators++] = op;
        commit_operator(op);
    }
    give_back_index();
    dv__registry_unlock();
    return status;
}

int dv__registry_add_wish(dv_library *lib, dv__wish *wish)
{
    grant *grants = NULL;
    dv__registry_lock();
    int status = DV_OK;
    for (const dv__wish *other = lib->wishes; other && !status; other = other->next)
        if (other->key == wish->key && !strcmp(other->name, wish->name))
            status = dv_fail(
                DV_EEXIST, "operator %s already has a kernel for %s from this library", wish->name, dv_key_name(wish->key));
    wish->seq = dv__registry_next_seq();
    if (!status)
        status = prepare_wish(wish, &grants);
    if (status) {
        free_grants(grants, true);
    } else {
        wish->next = lib->wishes;
        lib->wishes = wish;
        commit_grants(grants);
    }
    dv__registry_unlock();
    return status;
}

int dv__registry_add_fallback(dv_library *lib, int key, dv_boxed_fn fn, void *user)
{
    dv__registry_lock();
    int status = DV_OK;
    for (const dv_library *other = libraries; other && !status; other = other->next)
        if (other->fallbacks[key].set)
            status = dv_fail(DV_EEXIST, "there is already a fallback for %s, from library %s", dv_key_name(key), other->label);
    for (size_t i = 0; i < noperators && !status; i++)
        status = prepare(operators[i], 0, 0, 1);
    if (!status) {
        lib->fallbacks[key].set = true;
        lib->fallbacks[key].fn = fn;
        lib->fallbacks[key].user = user;
        for (size_t i = 0; i < noperators; i++)
            publish(operators[i]);
    }
    dv__registry_unlock();
    return status;
}

/* ---- Taking away ---- */

static bool has_fallback(const dv_library *lib)
{
    for (int key = 0; key < DV_KEY_RUNTIME_COUNT; key++)
        if (lib->fallbacks[key].set)
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
        lib->operators[i]->registration->owner = NULL;
        take_out(lib->operators[i]);
    }
    const bool all = has_fallback(lib);
    for (size_t i = 0; i < noperators; i++)
        if (detach(operators[i], lib) || all)
            publish(operators[i]);
    dv__registry_unlock();
}

/* ---- Looking up ---- */

static int list_overloads(const char *name, size_t size, const char *overload)
{
    dv__text t = { 0 };
    for (size_t i = 0; i < noperators; i++) {
        const char *other = operators[i]->name;
        if (strncmp(other, name, size) != 0 || (other[size] && other[size] != '.') ||
            (i && !strcmp(other, operators[i - 1]->name)))
            continue;
        dv__text_add(&t, "%s%s", t.size ? ", " : "", other[size] ? other + size + 1 : "the default one");
    }
    if (!t.size)
        return DV_OK;
    if (*overload)
        dv_fail(DV_ENOENT, "operator %.*s has no overload '%s'; there are: %s", (int)size, name, overload, t.data);
    else
        dv_fail(DV_ENOENT, "operator %.*s has no overload without a name; there are: %s", (int)size, name, t.data);
    dv__text_deinit(&t);
    return DV_ENOENT;
}

static int list_namespaces(const char *name, size_t size)
{
    dv__text t = { 0 };
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
        found = found || (n == size && !strncmp(ns, name, n));
        dv__text_add(&t, "%s%.*s", t.size ? ", " : "", (int)n, ns);
    }
    if (!found)
        dv_fail(DV_ENOENT, "operator %s not found: no library of namespace %.*s is loaded; namespaces: %s", name, (int)size, name,
            t.size ? t.data : "none");
    dv__text_deinit(&t);
    return found ? DV_OK : DV_ENOENT;
}

static int list_near(const char *name)
{
    char hint[512];
    dv__near near = { .wanted = name };
    for (size_t i = 0; i < noperators; i++)
        dv__near_add(&near, operators[i]->name);
    return dv_fail(DV_ENOENT, "operator %s not found%s", name, dv__near_print(&near, hint, sizeof hint));
}

/* Under the lock. */
static int not_found(const char *name)
{
    const char *colons = strstr(name, "::");
    if (!colons) {
        char hint[512];
        dv__near near = { .wanted = name };
        for (size_t i = 0; i < noperators; i++)
            if (!strcmp(strstr(operators[i]->name, "::") + 2, name))
                dv__near_add(&near, operators[i]->name);
        return dv_fail(DV_ENOENT, "operator %s not found: expected 'ns::name'%s", name, dv__near_print(&near, hint, sizeof hint));
    }
    const char *dot = strchr(colons, '.');
    const size_t size = dot ? (size_t)(dot - name) : strlen(name);
    int status = list_overloads(name, size, dot ? dot + 1 : "");
    if (!status)
        status = list_namespaces(name, (size_t)(colons - name));
    return status ? status : list_near(name);
}

int dv__operator_not_found(const char *name)
{
    dv__registry_lock();
    const int status = not_found(name);
    dv__registry_unlock();
    return status;
}

int dv_find(const char *name, dv_operator **out)
{
    DV__REQUIRE(out, "place for the result");
    *out = NULL;
    DV__REQUIRE(name, "name");
    dv__registry_lock();
    dv_operator *op = dv__registry_get(name);
    const int status = op ? DV_OK : not_found(name);
    *out = op ? dv_operator_ref(op) : NULL;
    dv__registry_unlock();
    return status;
}

static const dv_library *owner_of(const dv_operator *op) { return (op->functional ? op->functional : op)->registration->owner; }

int dv__find_from(const dv_operator *from, const char *name, dv_operator **out)
{
    *out = NULL;
    dv__registry_lock();
    const dv_library *own = owner_of(from);
    for (size_t i = 0; own && i < own->noperators && !*out; i++)
        if (!strcmp(own->operators[i]->name, name))
            *out = dv_operator_ref(own->operators[i]);
    dv__registry_unlock();
    return *out ? DV_OK : dv_find(name, out);
}

int dv_operator_binary(const dv_operator *op, char **path, char content[33])
{
    DV__REQUIRE(path, "place for the path");
    *path = NULL;
    DV__REQUIRE(op, "operator");
    DV__REQUIRE(content, "room for the hash");
    dv__registry_lock();
    const dv_library *own = owner_of(op);
    int status = own && own->loaded ? DV_OK : dv_fail(DV_ENOENT, "%s: it is of no file that is loaded", op->name);
    if (!status && !(*path = dv__strdup(own->binary.path)))
        status = DV_ENOMEM;
    if (!status)
        memcpy(content, own->binary.id, sizeof own->binary.id);
    dv__registry_unlock();
    return status;
}

int dv_each_operator(int (*fn)(void *user, dv_operator *op), void *user)
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

void dv__registration_free(dv__registration *r, const dv__table *current)
{
    for (dv__table *t = (dv__table *)current, *next; t; t = next) {
        next = t->retired;
        dv__free(t);
    }
    if (!r)
        return;
    for (dv__spare_table *t = r->spares, *next; t; t = next) {
        next = t->next;
        dv__free(t);
    }
    free_attachments(r->attached);
    free_attachments(r->retired);
    dv__free(r);
}
