/* Makes operators from declarations. A declaration may be compiled with an older or newer header, so its fields are read with
 * DV__DECL_GET. Its data is copied, since an operator may outlive its library. */
#include "registry/registry_internal.h"

/* ---- Names ---- */

int dv__operator_make_full_name(const char *ns, const dv_operator_decl *decl, char **out)
{
    *out = NULL;
    dv__strbuf name = { 0 };
    const char *schema = DV__DECL_GET(decl, dv_operator_decl, schema, NULL);
    if (schema && !strchr(schema, '(')) { /* in a library of kernels the schema may be the operator's name only: "f.out" */
        const char *colons = strstr(schema, "::");
        if (colons && ((size_t)(colons - schema) != strlen(ns) || strncmp(schema, ns, strlen(ns)) != 0))
            return dv_fail(DV_ESCHEMA, "operator %s: the library adds to namespace %s", schema, ns);
        dv__strbuf_printf(&name, "%s::%s", ns, colons ? colons + 2 : schema);
    } else if (schema) {
        dv__schema *parsed;
        const int status = dv__schema_parse(schema, &parsed);
        if (status)
            return dv__fail_add_context(status, "operator %s::%s: schema", ns, decl->name ? decl->name : "?");
        dv__strbuf_printf(&name, "%s::%s%s%s", ns, parsed->name, *parsed->overload ? "." : "", parsed->overload);
        dv__schema_free(parsed);
    } else {
        if (!decl->name)
            return dv_fail(DV_ESCHEMA, "library %s: an operator has neither a schema nor a name", ns);
        dv__strbuf_printf(&name, "%s::%s", ns, decl->name);
    }
    return dv__strbuf_detach(&name, out);
}

int dv__vendor_decl_check(const char *name, const dv_operator_decl *decl)
{
    enum { ANY, DECLARER };
#define CHECK_TEXT(field, who)                                                \
    if (who == DECLARER && DV__DECL_GET(decl, dv_operator_decl, field, NULL)) \
        return dv_fail(DV_ESCHEMA,                                            \
            "operator %s: a library of kernels cannot say '%s': the library that declares the operator does", name, #field);
    DV_OPERATOR_TEXTS(CHECK_TEXT)
#undef CHECK_TEXT
    const dv_kernel_decl *const *kernels = DV__DECL_GET(decl, dv_operator_decl, kernels, NULL);
    if (!kernels || !kernels[0])
        return dv_fail(DV_ESCHEMA, "operator %s: a library of kernels brings no kernel for it", name);
    return DV_OK;
}

static int declare_copy_text(dv_operator *op, const char *text, const char **out)
{
    *out = NULL;
    if (!text)
        return DV_OK;
    *out = dv__arena_strndup(&op->arena, text, strlen(text));
    return *out ? DV_OK : DV_ENOMEM;
}

/* ---- Schema ---- */

static int declare_parse_schema_in_namespace(const char *ns, const char *text, dv__schema **out)
{
    const int status = dv__schema_parse_in_namespace(ns, text, out);
    if (status)
        return dv__fail_add_context(status, "schema");
    if (!strcmp((*out)->ns, ns))
        return DV_OK;
    dv_fail(DV_ESCHEMA, "schema: the namespace is '%s' in the schema but '%s' in the library", (*out)->ns, ns);
    dv__schema_free(*out);
    *out = NULL;
    return DV_ESCHEMA;
}

/* Parses and validates the operator's schema, and sets its full name and signature. Returns a status. */
static int declare_set_schema_and_name(dv_operator *op, const char *ns, const char *text)
{
    int status = declare_parse_schema_in_namespace(ns, text, &op->schema);
    if (status)
        return status;
    dv__strbuf name = { 0 };
    dv__strbuf_printf(&name, "%s::%s%s%s", ns, op->schema->name, *op->schema->overload ? "." : "", op->schema->overload);
    char *full = NULL;
    status = dv__strbuf_detach(&name, &full);
    if (status)
        return status;
    dv__free(op->name);
    op->name = full;
    if ((status = dv__schema_validate(op->schema)))
        return status;
    return dv__signature_make(op->schema, &op->arena, &op->signature);
}

/* ---- Operators ---- */

/* Allocates an operator with one reference, the name "ns::name" and no schema yet. Returns a status. */
static int declare_alloc_operator(const char *ns, const char *name, dv_operator **out)
{
    *out = NULL;
    dv_operator *op = dv__calloc(1, sizeof *op);
    if (!op)
        return DV_ENOMEM;
    atomic_init(&op->refs, 1);
    atomic_init(&op->alive, false);
    atomic_init(&op->table, NULL);
    atomic_init(&op->enabled_calls, 0);
    atomic_init(&op->disabled_calls, 0);
    atomic_init(&op->policy_cache, 0);
    op->registry_record = dv__calloc(1, sizeof *op->registry_record);
    dv__strbuf text = { 0 };
    dv__strbuf_printf(&text, "%s::%s", ns, name);
    if (!op->registry_record || dv__strbuf_detach(&text, &op->name)) {
        dv__strbuf_deinit(&text);
        dv__operator_free(op);
        return DV_ENOMEM;
    }
    *out = op;
    return DV_OK;
}

void dv__operator_free(dv_operator *op)
{
    if (!op)
        return;
    dv_operator_unref(op->functional_form_of);
    dv__registry_record_free(op->registry_record, atomic_load(&op->table));
    dv__contract_free(op->contract);
    dv__schema_free(op->schema);
    dv__arena_deinit(&op->arena);
    dv__free(op->name);
    dv__free(op);
}

/* Returns the length of the part of a schema before its "(", for messages about a schema that cannot be parsed. */
static size_t declare_schema_name_size(const char *schema) { return strcspn(schema, "( \t\n"); }

int dv__operator_new(const char *ns, const char *schema, const char *tags, dv_operator **out)
{
    *out = NULL;
    dv_operator *op;
    char *name = dv__strndup(schema, declare_schema_name_size(schema));
    int status = name ? declare_alloc_operator(ns, name, &op) : DV_ENOMEM;
    dv__free(name);
    if (status)
        return status;
    status = declare_set_schema_and_name(op, ns, schema);
    if (!status)
        status = declare_copy_text(op, tags, &op->text.tags);
    if (status) {
        dv__fail_add_context(status, "operator %s", op->name);
        dv__operator_free(op);
        return status;
    }
    *out = op;
    return DV_OK;
}

/* Sets schema and name from the declared schema, or from one that is inferred from the struct. Returns a status. */
static int declare_set_or_infer_schema(dv_operator *op, const char *ns, const dv_operator_decl *decl)
{
    const char *mutates = DV__DECL_GET(decl, dv_operator_decl, mutates, NULL);
    if (decl->schema && mutates)
        return dv_fail(
            DV_ESCHEMA, "'mutates' is for operators without a schema; here the schema says what is written: %s", decl->schema);
    if (decl->schema)
        return declare_set_schema_and_name(op, ns, decl->schema);
    if (!decl->name || !decl->fields)
        return dv_fail(DV_ESCHEMA, "there is neither a schema nor a struct to infer one from");
    char *text;
    int status = dv__schema_infer(decl->name, decl->fields, mutates, &text);
    if (status)
        return status;
    if ((status = declare_set_schema_and_name(op, ns, text)))
        dv__fail_add_context(status, "the schema inferred from its struct");
    dv__free(text);
    return status;
}

static int declare_copy_all_texts(dv_operator *op, const dv_operator_decl *decl)
{
    int status = DV_OK;
#define COPY_TEXT(field, who) \
    if (!status)              \
        status = declare_copy_text(op, DV__DECL_GET(decl, dv_operator_decl, field, NULL), &op->text.field);
    DV_OPERATOR_TEXTS(COPY_TEXT)
#undef COPY_TEXT
    op->line = DV__DECL_GET(decl, dv_operator_decl, line, 0);
    op->shape = DV__DECL_GET(decl, dv_operator_decl, shape, NULL);
    return status;
}

/* Attaches the kernels of the operator's own declaration. Returns a status. */
static int declare_attach_own_kernels(dv_operator *op, const dv_library *lib, const dv_operator_decl *decl)
{
    dv__attachment *attachment = dv__calloc(1, sizeof *attachment);
    if (!attachment)
        return DV_ENOMEM;
    attachment->kind = DV__ATTACH_KERNELS;
    attachment->key = DV_KEY_NONE;
    op->registry_record->attached = attachment;
    const int status = dv__kernels_make(
        op, decl, lib->provider ? lib->provider : lib->ns, false, &attachment->arena, &attachment->kernels);
    op->registry_record->nkernels = attachment->kernels.nkernels;
    return status;
}

static int declare_fill_operator(dv_operator *op, const dv_library *lib, const dv_operator_decl *decl)
{
    int status = declare_copy_all_texts(op, decl);
    if (status || (status = declare_set_or_infer_schema(op, lib->ns, decl)))
        return status;
    const size_t frame_size = DV__DECL_GET(decl, dv_operator_decl, frame_size, 0);
    if ((status = dv__binding_make(op->name, op->schema, decl->fields, frame_size, false, &op->arena, &op->binding)))
        return status;
    if (op->text.contract && (status = dv__contract_parse(op->text.contract, op->name, op->schema, &op->contract)))
        return status;
    return declare_attach_own_kernels(op, lib, decl);
}

int dv__operator_declare(const dv_library *lib, const dv_operator_decl *decl, dv_operator **out)
{
    *out = NULL;
    dv_operator *op;
    int status = declare_alloc_operator(lib->ns, decl->name ? decl->name : "?", &op);
    if (status)
        return status;
    if ((status = declare_fill_operator(op, lib, decl))) {
        if (strncmp(dv_last_error(), "operator ", 9) != 0) /* a message that begins with "operator " names the operator already */
            dv__fail_add_context(status, "operator %s", op->name);
        dv__operator_free(op);
        return status;
    }
    *out = op;
    return DV_OK;
}

/* ---- Kernels ---- */

/* Copies a kernel's texts to the arena. Returns DV_OK or DV_ENOMEM. */
static int declare_copy_kernel_texts(dv__kernel *kernel, const dv_kernel_decl *k, const char *provider, dv__arena *arena)
{
    const struct {
        const char *from;
        const char **to;
    } texts[] = {
        { k->name ? k->name : "a kernel", &kernel->name },
        { k->provider      ? k->provider
                : provider ? provider
                           : "",
            &kernel->provider },
        { k->device, &kernel->device },
        { k->dtypes ? k->dtypes : "", &kernel->dtypes_text },
        { k->isa ? k->isa : "", &kernel->isa_text },
        { k->when ? k->when : "", &kernel->when_text },
        { k->takes ? k->takes : "", &kernel->takes_text },
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        if (!(*texts[i].to = dv__arena_strndup(arena, texts[i].from, strlen(texts[i].from))))
            return DV_ENOMEM;
    return DV_OK;
}

static int declare_parse_kernel_device(dv__kernel *kernel)
{
    dv_device device;
    const int status = dv_device_parse(kernel->device, &device);
    if (status)
        return dv__fail_add_context(status, "device");
    if (strchr(kernel->device, ':'))
        return dv_fail(DV_EDEVICE, "device: a kernel is for all devices of a type, expected 'cpu', 'cuda' or 'npu', found '%s'",
            kernel->device);
    kernel->device_type = device.type;
    if (device.type == DV_META || dv__backend_key_of_device(device.type) == DV_KEY_NONE)
        return dv_fail(DV_EDEVICE, "device: expected one that runs kernels ('cpu', 'cuda', 'npu'), found '%s'", kernel->device);
    return DV_OK;
}

/* Parses the layouts that a kernel accepts for each slot: those of `takes`, else those of the contract. Returns a status. */
static int declare_parse_kernel_layouts(const dv_operator *op, dv__kernel *kernel, const dv_kernel_decl *k, dv__arena *arena)
{
    const size_t n = op->schema->nargs + op->schema->nreturns;
    dv__accepted_layout *takes = DV__ARENA_ARRAY(arena, dv__accepted_layout, n);
    if (!takes)
        return DV_ENOMEM;
    const int status = op->contract ? dv__contract_parse_accepted(op->contract, k->takes, takes)
                                    : dv__schema_parse_accepted(k->takes, op->schema, takes);
    if (status)
        return status;
    kernel->takes_all_contiguous = true;
    for (size_t i = 0; i < n; i++)
        if (takes[i].kind != DV__ACCEPT_CONTIGUOUS || takes[i].align_log2)
            kernel->takes_all_contiguous = false;
    kernel->takes = takes;
    return DV_OK;
}

/* Parses the dtypes and the predicate of a kernel, which refer to the variables of the operator's contract. Returns a
 * status. */
static int declare_parse_kernel_conditions(const dv_operator *op, dv__kernel *kernel, const dv_kernel_decl *k, dv__arena *arena)
{
    int status;
    if (k->dtypes) {
        if (!op->contract)
            return dv_fail(DV_ECONTRACT, "dtypes: '%s' needs a contract that has a dtype variable", k->dtypes);
        dv__dtype_sets *sets;
        if ((status = dv__dtype_sets_parse(k->dtypes, op->contract, arena, &sets)))
            return status;
        kernel->dtypes = sets;
    }
    if (k->when) {
        if (!op->contract)
            return dv_fail(DV_ECONTRACT, "when: '%s' needs a contract", k->when);
        dv__predicate *when;
        if ((status = dv__predicate_parse(k->when, op->contract, arena, &when)))
            return status;
        kernel->when = when;
    }
    return DV_OK;
}

static int declare_check_kernel_isa(const dv__kernel *kernel, const dv_kernel_decl *k)
{
    return !k->isa || kernel->device_type == DV_CPU
        ? DV_OK
        : dv_fail(DV_EINVAL, "isa: only kernels for the CPU have an instruction set, this one is for %s", kernel->device);
}

static int declare_check_kernel_split(const dv_operator *op, const dv__kernel *kernel, const dv_kernel_decl *k)
{
    if (k->split && kernel->device_type != DV_CPU)
        return dv_fail(DV_EINVAL, "only kernels for the CPU are split, this one is for %s", kernel->device);
    if (k->split && !(op->contract && dv__contract_can_split(op->contract)))
        return dv_fail(DV_ECONTRACT,
            "no dims of a parallel(...) begin all results and every tensor that has them (a list may not have them): it cannot "
            "be cut");
    return DV_OK;
}

/* Fills a kernel from its declaration: texts, device, layouts, conditions and functions. Returns a status. */
static int declare_fill_kernel(
    const dv_operator *op, const dv_kernel_decl *k, const char *provider, dv__arena *arena, dv__kernel *kernel)
{
    if (!k->device)
        return dv_fail(DV_EDEVICE, "device: expected 'cpu', 'cuda' or 'npu', found none");
    int status = declare_copy_kernel_texts(kernel, k, provider, arena);
    if (status || (status = declare_parse_kernel_device(kernel)) ||
        (status = declare_parse_kernel_layouts(op, kernel, k, arena)) ||
        (status = declare_parse_kernel_conditions(op, kernel, k, arena)) || (status = declare_check_kernel_isa(kernel, k)))
        return status;
    if ((status = declare_check_kernel_split(op, kernel, k)))
        return dv__fail_add_context(status, "split");
    if (k->flags & DV_KERNEL_FOREIGN && (status = dv__foreign_call_parse(kernel->name, op->schema, arena, &kernel->foreign_call)))
        return status;
    if (kernel->foreign_call && op->contract && dv__contract_has_unbacked_size(op->contract))
        return dv_fail(DV_ENOTSUP, "the contract has an unbacked size, and such a function does not say how large a result is");
    kernel->priority = k->priority;
    kernel->isas = dv__isa_mask_of_names(k->isa);
    kernel->run = k->run;
    kernel->split = k->split;
    kernel->flags = k->flags;
    return DV_OK;
}

/* Changes the thread's message to "operator ns::f: kernel k: <message>", without a second "operator ns::f: ". Returns
 * status. */
static int declare_fail_kernel(int status, const dv_operator *op, const dv_kernel_decl *k)
{
    const char *message = dv_last_error();
    const size_t n = strlen(op->name);
    if (!strncmp(message, "operator ", 9) && !strncmp(message + 9, op->name, n) && !strncmp(message + 9 + n, ": ", 2))
        message += 9 + n + 2;
    const char *name = k->name ? k->name : "without a name";
    const bool is_long = strlen(name) >
        80; /* a foreign kernel's name includes its argument list; it is shortened so that the reason is not cut off */
    return dv_fail(status, "operator %s: kernel %.*s%s: %s", op->name, is_long ? 60 : 80, name, is_long ? "..." : "", message);
}

int dv__kernels_make(const dv_operator *op, const dv_operator_decl *decl, const char *provider, bool is_vendor, dv__arena *arena,
    dv__kernel_set *out)
{
    *out = (dv__kernel_set){ NULL, 0 };
    const dv_kernel_decl *const *decls = DV__DECL_GET(decl, dv_operator_decl, kernels, NULL);
    size_t n = 0;
    while (decls && decls[n])
        n++;
    if (!n)
        return DV_OK;
    dv__binding *binding = op->binding;
    int status = !is_vendor ? DV_OK
                            : dv__binding_make(op->name, op->schema, decl->fields,
                                  DV__DECL_GET(decl, dv_operator_decl, frame_size, 0), false, arena, &binding);
    if (status)
        return status;
    dv__kernel *kernels = DV__ARENA_ARRAY(arena, dv__kernel, n);
    const dv__kernel **pointers = DV__ARENA_ARRAY(arena, const dv__kernel *, n);
    if (!kernels || !pointers)
        return DV_ENOMEM;
    size_t used = 0;
    for (size_t i = 0; i < n; i++) {
        if (!decls[i]->run)
            continue;
        dv__kernel *kernel = &kernels[used];
        if ((status = declare_fill_kernel(op, decls[i], provider, arena, kernel)))
            return declare_fail_kernel(status, op, decls[i]);
        kernel->binding = binding;
        kernel->is_from_vendor = is_vendor;
        pointers[used++] = kernel;
    }
    *out = (dv__kernel_set){ pointers, used };
    return DV_OK;
}
