/* Libraries: registrations that are added and removed together, from a binary, from a linked descriptor, or by hand. */
#include "base/error.h"
#include "registry/registry_internal.h"

#include <assert.h>

static int library_check_namespace(const char *ns)
{
    bool good = ns && *ns && !(*ns >= '0' && *ns <= '9');
    for (const char *p = ns; good && *p; p++)
        good = (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') || (*p >= '0' && *p <= '9') || *p == '_';
    return good ? DV_OK : dv_fail(DV_EINVAL, "a namespace is letters, digits and '_', not '%s'", ns ? ns : "(null)");
}

static void library_free_named_registration(dv__named_registration *w)
{
    if (!w)
        return;
    dv__free(w->name);
    dv__free(w);
}

/* Frees a library that is not in the registry, with its named registrations and its references to operators. */
static void library_free_unregistered(dv_library *lib)
{
    for (size_t i = 0; i < lib->noperators; i++)
        dv_operator_unref(lib->operators[i]);
    dv__free(lib->operators);
    for (dv__named_registration *w = lib->named_registrations, *next; w; w = next) {
        next = w->next;
        library_free_named_registration(w);
    }
    if (lib->is_from_file)
        dv__binary_deinit(&lib->binary);
    dv__free(lib->ns);
    dv__free(lib->version);
    dv__free(lib->provider);
    dv__free(lib->label);
    dv__free(lib);
}

static int library_copy_text(const char *text, char **out)
{
    *out = text ? dv__strdup(text) : NULL;
    return text && !*out ? DV_ENOMEM : DV_OK;
}

/* Makes a library without operators, which is not registered yet. path: for its label in messages. Returns a status. */
static int library_alloc_empty(
    int kind, const char *ns, int key, const char *version, const char *provider, const char *path, dv_library **out)
{
    *out = NULL;
    int status = library_check_namespace(ns);
    if (status)
        return status;
    if (kind < DV_LIBRARY_DEF || kind > DV_LIBRARY_IMPL)
        return dv_fail(DV_EINVAL, "library %s: unknown kind %d; expected DEF, FRAGMENT or IMPL", ns, kind);
    dv_library *lib = dv__calloc(1, sizeof *lib);
    if (!lib)
        return DV_ENOMEM;
    lib->kind = kind;
    lib->key = key;
    dv__strbuf label = { 0 };
    dv__strbuf_append_str(&label, ns);
    if (kind != DV_LIBRARY_DEF && provider)
        dv__strbuf_printf(&label, " (%s)", provider);
    if (version)
        dv__strbuf_printf(&label, " %s", version);
    if (path)
        dv__strbuf_printf(&label, " from %s", path);
    if (dv__strbuf_detach(&label, &lib->label) || library_copy_text(ns, &lib->ns) || library_copy_text(version, &lib->version) ||
        library_copy_text(provider, &lib->provider)) {
        library_free_unregistered(lib);
        return DV_ENOMEM;
    }
    *out = lib;
    return DV_OK;
}

/* ---- From a descriptor ---- */

static size_t library_count_operators(const dv_library_decl *decl)
{
    size_t n = 0;
    while (decl->operators && decl->operators[n])
        n++;
    return n;
}

static int library_make_declared_operators(dv_library *lib)
{
    const size_t n = library_count_operators(lib->decl);
    if (!(lib->operators = dv__calloc(n, sizeof *lib->operators)))
        return DV_ENOMEM;
    lib->capacity = n;
    for (size_t i = 0; i < n; i++) {
        const int status = dv__operator_declare(lib, lib->decl->operators[i], &lib->operators[i]);
        if (status)
            return status;
        lib->noperators++;
    }
    for (size_t i = 0; i < n; i++) {
        const int status = dv__operator_parse_formulas(lib, lib->operators[i]);
        if (status)
            return status;
    }
    return DV_OK;
}

/* Makes a named registration for each declaration of a library of kernels, in a list that begins with the last declaration.
 * Declarations that come later count as newer. Returns a status. */
static int library_make_named_registrations(dv_library *lib)
{
    for (size_t i = 0, n = library_count_operators(lib->decl); i < n; i++) {
        dv__named_registration *w = dv__calloc(1, sizeof *w);
        if (!w)
            return DV_ENOMEM;
        w->library = lib;
        w->decl = lib->decl->operators[i];
        w->key = DV_KEY_NONE;
        w->next = lib->named_registrations;
        lib->named_registrations = w;
        int status = dv__operator_make_full_name(lib->ns, w->decl, &w->name);
        if (!status)
            status = dv__vendor_decl_check(w->name, w->decl);
        if (status)
            return status;
    }
    return DV_OK;
}

/* Makes a library from a descriptor and adds it to the registry. owned_binary: the binary of the descriptor, which the
 * library or a failure frees; NULL: linked. Returns a status. */
static int library_make_and_register(const dv_library_decl *decl, dv__binary *owned_binary, dv_library **out)
{
    *out = NULL;
    const char *path = owned_binary ? owned_binary->path : NULL;
    const char *provider = DV__DECL_GET(decl, dv_library_decl, provider, NULL);
    dv_library *lib;
    int status = library_alloc_empty(
        (int)decl->kind, decl->name, DV_KEY_NONE, DV__DECL_GET(decl, dv_library_decl, version, NULL), provider, path, &lib);
    if (status) {
        if (owned_binary)
            dv__binary_deinit(owned_binary);
        return status;
    }
    assert(lib);
    lib->decl = decl;
    if (owned_binary) {
        lib->binary = *owned_binary;
        lib->is_from_file = true;
    }
    status = lib->kind == DV_LIBRARY_IMPL ? library_make_named_registrations(lib) : library_make_declared_operators(lib);
    if (!status)
        status = dv__registry_add(lib);
    if (status) {
        dv__fail_add_context(status, "library %s", lib->label);
        library_free_unregistered(lib);
        return status;
    }
    *out = lib;
    return DV_OK;
}

int dv_load(const char *path, dv_library **out)
{
    DV__REQUIRE(out, "pointer for the result");
    *out = NULL;
    DV__REQUIRE(path, "path");
    dv__binary binary;
    int status = dv__policy_init();
    if (status || (status = dv__binary_open(path, &binary)))
        return status;
    if ((*out = dv__take_unclaimed_base_set(binary.id))) {
        dv__binary_deinit(&binary);
        return DV_OK;
    }
    return library_make_and_register(binary.decl, &binary, out);
}

int dv_load_static(const struct dv_library_decl *decl, dv_library **out)
{
    DV__REQUIRE(out, "pointer for the result");
    *out = NULL;
    int status = dv__policy_init();
    if (status || (status = dv__static_library_check_abi(decl, "dv_load_static")))
        return status;
    return library_make_and_register(decl, NULL, out);
}

/* ---- By hand ---- */

static int library_fail_null(const char *function) { return dv_fail(DV_EINVAL, "%s: no library given: found NULL", function); }

int dv_library_new(int kind, const char *ns, int key, dv_library **out)
{
    if (!out)
        return dv_fail(DV_EINVAL, "dv_library_new: no pointer for the result: found NULL");
    *out = NULL;
    if (key != DV_KEY_NONE && (key < 0 || key >= DV_KEY_COUNT))
        return dv_fail(DV_EINVAL, "library %s: %d is not a dispatch key", ns ? ns : "(null)", key);
    if (key != DV_KEY_NONE && kind != DV_LIBRARY_IMPL)
        return dv_fail(DV_EINVAL, "library %s: only an IMPL library has a dispatch key", ns ? ns : "(null)");
    dv_library *lib;
    int status = dv__policy_init();
    if (status || (status = library_alloc_empty(kind, ns, key, NULL, NULL, NULL, &lib)))
        return status;
    if ((status = dv__registry_add(lib))) {
        dv__fail_add_context(status, "library %s", lib->label);
        library_free_unregistered(lib);
        return status;
    }
    *out = lib;
    return DV_OK;
}

int dv_library_define(dv_library *lib, const char *schema, const char *tags, dv_operator **borrowed_out)
{
    if (borrowed_out)
        *borrowed_out = NULL;
    if (!lib)
        return library_fail_null("dv_library_define");
    if (lib->kind == DV_LIBRARY_IMPL)
        return dv_fail(
            DV_EINVAL, "library %s: operators are defined by a DEF or FRAGMENT library, not by an IMPL one", lib->label);
    if (!schema)
        return dv_fail(DV_EINVAL, "library %s: the schema is NULL", lib->label);
    dv_operator *op;
    int status = dv__operator_new(lib->ns, schema, tags, &op);
    if (status)
        return status;
    if ((status = dv__registry_add_operator(lib, op))) {
        dv_operator_unref(op);
        return status;
    }
    if (borrowed_out)
        *borrowed_out = op;
    return DV_OK;
}

/* Makes the full name "ns::f" or "ns::f.out" from a name with or without namespace. The caller frees *out. Fails if the
 * namespace is not the library's. */
static int library_make_full_name(const dv_library *lib, const char *name, char **out)
{
    *out = NULL;
    const char *colons = name ? strstr(name, "::") : NULL;
    if (!name || !*name)
        return dv_fail(DV_EINVAL, "library %s: the operator's name is missing", lib->label);
    if (colons && (strlen(lib->ns) != (size_t)(colons - name) || strncmp(name, lib->ns, (size_t)(colons - name)) != 0))
        return dv_fail(DV_EINVAL, "operator %s: its namespace is not that of library %s", name, lib->label);
    dv__strbuf text = { 0 };
    dv__strbuf_printf(&text, "%s::%s", lib->ns, colons ? colons + 2 : name);
    return dv__strbuf_detach(&text, out);
}

/* Registers a boxed kernel or a fallthrough for a key of the operator `name`; DV_KEY_NONE means the key of the library.
 * Returns a status. */
static int library_register_impl(dv_library *lib, const char *name, int key, bool is_fallthrough, dv_boxed_fn fn, void *user)
{
    if (!lib)
        return library_fail_null("dv_library_impl");
    if (key == DV_KEY_NONE)
        key = lib->key;
    if (key == DV_KEY_NONE)
        return dv_fail(DV_EINVAL, "operator %s: a kernel needs a dispatch key: library %s has none of its own",
            name ? name : "(null)", lib->label);
    if (key < 0 || key >= DV_KEY_COUNT)
        return dv_fail(DV_EINVAL, "operator %s: %d is not a dispatch key", name ? name : "(null)", key);
    if (lib->key != DV_KEY_NONE && key != lib->key)
        return dv_fail(DV_EINVAL, "operator %s: library %s is for %s only, not for %s", name ? name : "(null)", lib->label,
            dv_key_name(lib->key), dv_key_name(key));
    if (!is_fallthrough && !fn)
        return dv_fail(DV_EINVAL, "operator %s: the kernel for %s is NULL", name ? name : "(null)", dv_key_name(key));
    dv__named_registration *w = dv__calloc(1, sizeof *w);
    if (!w)
        return DV_ENOMEM;
    w->library = lib;
    w->key = key;
    w->is_fallthrough = is_fallthrough;
    w->fn = fn;
    w->user = user;
    int status = library_make_full_name(lib, name, &w->name);
    if (!status)
        status = dv__registry_add_named(lib, w);
    if (status)
        library_free_named_registration(w);
    return status;
}

int dv_library_impl(dv_library *lib, const char *name, int key, dv_boxed_fn fn, void *user)
{
    return library_register_impl(lib, name, key, false, fn, user);
}

int dv_library_impl_fallthrough(dv_library *lib, const char *name, int key)
{
    return library_register_impl(lib, name, key, true, NULL, NULL);
}

int dv_library_fallback(dv_library *lib, int key, dv_boxed_fn fn, void *user)
{
    if (!lib)
        return library_fail_null("dv_library_fallback");
    if (key < 0 || key >= DV_KEY_RUNTIME_COUNT)
        return dv_fail(DV_EINVAL, "library %s: a fallback is for one runtime key, not for %s", lib->label, dv_key_name(key));
    return dv__registry_add_fallback(lib, key, fn, user);
}

void dv_library_free(dv_library *lib)
{
    if (!lib)
        return;
    dv__registry_remove(lib);
    library_free_unregistered(lib);
}

/* ---- Asking ---- */

const char *dv_library_name(const dv_library *lib) { return lib ? lib->ns : ""; }
const char *dv_library_path(const dv_library *lib) { return lib && lib->is_from_file ? lib->binary.path : NULL; }
const char *dv_library_content_hash(const dv_library *lib) { return lib && lib->is_from_file ? lib->binary.id : NULL; }

size_t dv_library_noperators(const dv_library *lib)
{
    if (!lib)
        return 0;
    dv__registry_lock();
    const size_t n = lib->noperators;
    dv__registry_unlock();
    return n;
}

dv_operator *dv_library_operator(const dv_library *lib, size_t i)
{
    if (!lib)
        return NULL;
    dv__registry_lock();
    dv_operator *op = i < lib->noperators ? lib->operators[i] : NULL;
    dv__registry_unlock();
    return op;
}

int dv_library_find(const dv_library *lib, const char *name, dv_operator **out)
{
    DV__REQUIRE(out, "pointer for the result");
    *out = NULL;
    DV__REQUIRE(lib, "library");
    DV__REQUIRE(name, "name");
    char *full;
    int status = library_make_full_name(lib, name, &full);
    if (status)
        return status;
    assert(full);
    char hint[512];
    dv__suggestions suggestions = { .wanted = full };
    dv__registry_lock();
    for (size_t i = 0; i < lib->noperators && !*out; i++) {
        if (!strcmp(lib->operators[i]->name, full))
            *out = dv_operator_ref(lib->operators[i]);
        else
            dv__suggest_add(&suggestions, lib->operators[i]->name);
    }
    if (!*out)
        status = dv_fail(DV_ENOENT, "operator %s is not defined by library %s (%zu operators)%s", full, lib->label,
            lib->noperators, dv__suggest_print(&suggestions, hint, sizeof hint));
    dv__registry_unlock();
    dv__free(full);
    return status;
}
