/* From a declaration to an operator. The declaration may be in a binary that an older or newer header made: its fields are read
 * with DV__GET, and everything kept is copied, since an operator may outlive its library. */
#include "registry/internal.h"

/* ---- Names ---- */

int dv__declared_name(const char *ns, const dv_operator_decl *decl, char **out)
{
    *out = NULL;
    dv__text name = { 0 };
    const char *schema = DV__GET(decl, dv_operator_decl, schema, NULL);
    if (schema && !strchr(schema, '(')) { /* a library of kernels need only name the operator: "f.out" */
        const char *colons = strstr(schema, "::");
        if (colons && ((size_t)(colons - schema) != strlen(ns) || strncmp(schema, ns, strlen(ns)) != 0))
            return dv_fail(DV_ESCHEMA, "operator %s: the library adds to namespace %s", schema, ns);
        dv__text_add(&name, "%s::%s", ns, colons ? colons + 2 : schema);
    } else if (schema) {
        dv__schema *parsed;
        const int status = dv__schema_parse(schema, &parsed);
        if (status)
            return dv__fail_in(status, "operator %s::%s: schema", ns, decl->name ? decl->name : "?");
        dv__text_add(&name, "%s::%s%s%s", ns, parsed->name, *parsed->overload ? "." : "", parsed->overload);
        dv__schema_free(parsed);
    } else {
        if (!decl->name)
            return dv_fail(DV_ESCHEMA, "library %s: an operator has neither a schema nor a name", ns);
        dv__text_add(&name, "%s::%s", ns, decl->name);
    }
    return dv__text_take(&name, out);
}

int dv__vendor_check(const char *name, const dv_operator_decl *decl)
{
    enum { ANY, DECLARER };
#define TEXT(field, who)                                                 \
    if (who == DECLARER && DV__GET(decl, dv_operator_decl, field, NULL)) \
        return dv_fail(DV_ESCHEMA,                                       \
            "operator %s: a library of kernels cannot say '%s': the library that declares the operator does", name, #field);
    DV_OPERATOR_TEXTS(TEXT)
#undef TEXT
    const dv_kernel_decl *const *kernels = DV__GET(decl, dv_operator_decl, kernels, NULL);
    if (!kernels || !kernels[0])
        return dv_fail(DV_ESCHEMA, "operator %s: a library of kernels brings no kernel for it", name);
    return DV_OK;
}

static int keep(dv_operator *op, const char *text, const char **out)
{
    *out = NULL;
    if (!text)
        return DV_OK;
    *out = dv__arena_strndup(&op->arena, text, strlen(text));
    return *out ? DV_OK : DV_ENOMEM;
}

/* ---- Schema ---- */

static int parse_schema(const char *ns, const char *text, dv__schema **out)
{
    const int status = dv__schema_parse_in(ns, text, out);
    if (status)
        return dv__fail_in(status, "schema");
    if (!strcmp((*out)->ns, ns))
        return DV_OK;
    dv_fail(DV_ESCHEMA, "schema: the namespace is '%s' in the schema but '%s' in the library", (*out)->ns, ns);
    dv__schema_free(*out);
    *out = NULL;
    return DV_ESCHEMA;
}

static int set_schema(dv_operator *op, const char *ns, const char *text)
{
    int status = parse_schema(ns, text, &op->schema);
    if (status)
        return status;
    dv__text name = { 0 };
    dv__text_add(&name, "%s::%s%s%s", ns, op->schema->name, *op->schema->overload ? "." : "", op->schema->overload);
    char *full = NULL;
    status = dv__text_take(&name, &full);
    if (status)
        return status;
    dv__free(op->name);
    op->name = full;
    if ((status = dv__schema_validate(op->schema)))
        return status;
    return dv__plan_make(op->schema, &op->arena, &op->plan);
}

/* ---- Operators ---- */

static int operator_alloc(const char *ns, const char *name, dv_operator **out)
{
    *out = NULL;
    dv_operator *op = dv__calloc(1, sizeof *op);
    if (!op)
        return DV_ENOMEM;
    atomic_init(&op->refs, 1);
    atomic_init(&op->alive, false);
    atomic_init(&op->table, NULL);
    atomic_init(&op->enabled, 0);
    atomic_init(&op->disabled, 0);
    atomic_init(&op->policy, 0);
    op->registration = dv__calloc(1, sizeof *op->registration);
    dv__text text = { 0 };
    dv__text_add(&text, "%s::%s", ns, name);
    if (!op->registration || dv__text_take(&text, &op->name)) {
        dv__text_deinit(&text);
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
    dv_operator_unref(op->functional);
    dv__registration_free(op->registration, atomic_load(&op->table));
    dv__contract_free(op->contract);
    dv__schema_free(op->schema);
    dv__arena_deinit(&op->arena);
    dv__free(op->name);
    dv__free(op);
}

/* The part of a schema before its "(", for messages about a schema that does not parse. */
static size_t head(const char *schema) { return strcspn(schema, "( \t\n"); }

int dv__operator_new(const char *ns, const char *schema, const char *tags, dv_operator **out)
{
    *out = NULL;
    dv_operator *op;
    char *name = dv__strndup(schema, head(schema));
    int status = name ? operator_alloc(ns, name, &op) : DV_ENOMEM;
    dv__free(name);
    if (status)
        return status;
    status = set_schema(op, ns, schema);
    if (!status)
        status = keep(op, tags, &op->text.tags);
    if (status) {
        dv__fail_in(status, "operator %s", op->name);
        dv__operator_free(op);
        return status;
    }
    *out = op;
    return DV_OK;
}

static int declared_schema(dv_operator *op, const char *ns, const dv_operator_decl *decl)
{
    const char *mutates = DV__GET(decl, dv_operator_decl, mutates, NULL);
    if (decl->schema && mutates)
        return dv_fail(
            DV_ESCHEMA, "'mutates' is for operators without a schema; here the schema says what is written: %s", decl->schema);
    if (decl->schema)
        return set_schema(op, ns, decl->schema);
    if (!decl->name || !decl->fields)
        return dv_fail(DV_ESCHEMA, "there is neither a schema nor a struct to infer one from");
    char *text;
    int status = dv__schema_infer(decl->name, decl->fields, mutates, &text);
    if (status)
        return status;
    if ((status = set_schema(op, ns, text)))
        dv__fail_in(status, "the schema inferred from its struct");
    dv__free(text);
    return status;
}

static int declared_texts(dv_operator *op, const dv_operator_decl *decl)
{
    int status = DV_OK;
#define KEEP(field, who) \
    if (!status)         \
        status = keep(op, DV__GET(decl, dv_operator_decl, field, NULL), &op->text.field);
    DV_OPERATOR_TEXTS(KEEP)
#undef KEEP
    op->line = DV__GET(decl, dv_operator_decl, line, 0);
    op->shape = DV__GET(decl, dv_operator_decl, shape, NULL);
    return status;
}

static int own_rows(dv_operator *op, const dv_library *lib, const dv_operator_decl *decl)
{
    dv__attachment *own = dv__calloc(1, sizeof *own);
    if (!own)
        return DV_ENOMEM;
    own->kind = DV__ATTACH_ROWS;
    own->key = DV_KEY_NONE;
    op->registration->attached = own;
    const int status = dv__rows_make(op, decl, lib->provider ? lib->provider : lib->ns, false, &own->arena, &own->rows);
    op->registration->nrows = own->rows.n;
    return status;
}

static int declare(dv_operator *op, const dv_library *lib, const dv_operator_decl *decl)
{
    int status = declared_texts(op, decl);
    if (status || (status = declared_schema(op, lib->ns, decl)))
        return status;
    const size_t frame_size = DV__GET(decl, dv_operator_decl, frame_size, 0);
    if ((status = dv__binding_make(op->name, op->schema, decl->fields, frame_size, false, &op->arena, &op->binding)))
        return status;
    if (op->text.contract && (status = dv__contract_parse(op->text.contract, op->name, op->schema, &op->contract)))
        return status;
    return own_rows(op, lib, decl);
}

int dv__operator_declare(const dv_library *lib, const dv_operator_decl *decl, dv_operator **out)
{
    *out = NULL;
    dv_operator *op;
    int status = operator_alloc(lib->ns, decl->name ? decl->name : "?", &op);
    if (status)
        return status;
    if ((status = declare(op, lib, decl))) {
        if (strncmp(dv_last_error(), "operator ", 9) != 0) /* some layers name the operator themselves */
            dv__fail_in(status, "operator %s", op->name);
        dv__operator_free(op);
        return status;
    }
    *out = op;
    return DV_OK;
}

/* ---- Rows ---- */

static int row_texts(dv__row *row, const dv_kernel_decl *k, const char *provider, dv__arena *arena)
{
    const struct {
        const char *from;
        const char **to;
    } texts[] = {
        { k->name ? k->name : "a kernel", &row->name },
        { k->provider      ? k->provider
                : provider ? provider
                           : "",
            &row->provider },
        { k->device, &row->device },
        { k->dtypes ? k->dtypes : "", &row->dtypes_text },
        { k->isa ? k->isa : "", &row->isa_text },
        { k->when ? k->when : "", &row->when_text },
        { k->takes ? k->takes : "", &row->takes_text },
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        if (!(*texts[i].to = dv__arena_strndup(arena, texts[i].from, strlen(texts[i].from))))
            return DV_ENOMEM;
    return DV_OK;
}

static int row_device(dv__row *row)
{
    dv_device device;
    const int status = dv_device_parse(row->device, &device);
    if (status)
        return dv__fail_in(status, "device");
    if (strchr(row->device, ':'))
        return dv_fail(
            DV_EDEVICE, "device: a row is for all devices of a type, expected 'cpu', 'cuda' or 'npu', found '%s'", row->device);
    row->device_type = device.type;
    if (device.type == DV_META || dv__backend_of(device.type) == DV_KEY_NONE)
        return dv_fail(DV_EDEVICE, "device: expected one that runs kernels ('cpu', 'cuda', 'npu'), found '%s'", row->device);
    return DV_OK;
}

static int row_takes(const dv_operator *op, dv__row *row, const dv_kernel_decl *k, dv__arena *arena)
{
    const size_t n = op->schema->nargs + op->schema->nreturns;
    dv__takes *takes = DV__ARENA_ARRAY(arena, dv__takes, n);
    if (!takes)
        return DV_ENOMEM;
    const int status = op->contract ? dv__contract_takes(op->contract, k->takes, takes)
                                    : dv__schema_takes(k->takes, op->schema, takes);
    if (status)
        return status;
    row->takes_all_contiguous = true;
    for (size_t i = 0; i < n; i++)
        if (takes[i].kind != DV__TAKES_CONTIGUOUS || takes[i].align_log2)
            row->takes_all_contiguous = false;
    row->takes = takes;
    return DV_OK;
}

/* Dtypes and predicates refer to the contract's variables. */
static int row_conditions(const dv_operator *op, dv__row *row, const dv_kernel_decl *k, dv__arena *arena)
{
    int status;
    if (k->dtypes) {
        if (!op->contract)
            return dv_fail(DV_ECONTRACT, "dtypes: '%s' needs a contract that has a dtype variable", k->dtypes);
        dv__dtype_sets *sets;
        if ((status = dv__dtype_sets_parse(k->dtypes, op->contract, arena, &sets)))
            return status;
        row->dtypes = sets;
    }
    if (k->when) {
        if (!op->contract)
            return dv_fail(DV_ECONTRACT, "when: '%s' needs a contract", k->when);
        dv__predicate *when;
        if ((status = dv__predicate_parse(k->when, op->contract, arena, &when)))
            return status;
        row->when = when;
    }
    return DV_OK;
}

static int row_isa(const dv__row *row, const dv_kernel_decl *k)
{
    return !k->isa || row->device_type == DV_CPU
        ? DV_OK
        : dv_fail(DV_EINVAL, "isa: only rows for the CPU have an instruction set, this one is for %s", row->device);
}

static int row_split(const dv_operator *op, const dv__row *row, const dv_kernel_decl *k)
{
    if (k->split && row->device_type != DV_CPU)
        return dv_fail(DV_EINVAL, "only rows for the CPU are split, this one is for %s", row->device);
    if (k->split && !(op->contract && dv__contract_may_split(op->contract)))
        return dv_fail(DV_ECONTRACT,
            "no dims of a parallel(...) begin all results and every tensor that has them (a list may not have them): it cannot "
            "be cut");
    return DV_OK;
}

static int row_make(const dv_operator *op, const dv_kernel_decl *k, const char *provider, dv__arena *arena, dv__row *row)
{
    if (!k->device)
        return dv_fail(DV_EDEVICE, "device: expected 'cpu', 'cuda' or 'npu', found none");
    int status = row_texts(row, k, provider, arena);
    if (status || (status = row_device(row)) || (status = row_takes(op, row, k, arena)) ||
        (status = row_conditions(op, row, k, arena)) || (status = row_isa(row, k)))
        return status;
    if ((status = row_split(op, row, k)))
        return dv__fail_in(status, "split");
    if (k->flags & DV_KERNEL_LIST && (status = dv__row_list_parse(row->name, op->schema, arena, &row->list)))
        return status;
    if (row->list && op->contract && dv__contract_is_unbacked(op->contract))
        return dv_fail(DV_ENOTSUP, "the contract has an unbacked size, and such a function does not say how large a result is");
    row->priority = k->priority;
    row->isas = dv__isa_parse(k->isa);
    row->run = k->run;
    row->split = k->split;
    row->flags = k->flags;
    return DV_OK;
}

/* "operator ns::f: kernel k: ...", without repeating the operator if the message names it already. */
static int fail_row(int status, const dv_operator *op, const dv_kernel_decl *k)
{
    const char *message = dv_last_error();
    const size_t n = strlen(op->name);
    if (!strncmp(message, "operator ", 9) && !strncmp(message + 9, op->name, n) && !strncmp(message + 9 + n, ": ", 2))
        message += 9 + n + 2;
    const char *name = k->name ? k->name : "without a name";
    const bool is_long = strlen(name) > 80; /* a row's list is in its name, and the reason must not be cut */
    return dv_fail(status, "operator %s: kernel %.*s%s: %s", op->name, is_long ? 60 : 80, name, is_long ? "..." : "", message);
}

int dv__rows_make(
    const dv_operator *op, const dv_operator_decl *decl, const char *provider, bool vendor, dv__arena *arena, dv__row_set *out)
{
    *out = (dv__row_set){ NULL, 0 };
    const dv_kernel_decl *const *kernels = DV__GET(decl, dv_operator_decl, kernels, NULL);
    size_t n = 0;
    while (kernels && kernels[n])
        n++;
    if (!n)
        return DV_OK;
    dv__binding *binding = op->binding;
    int status = !vendor ? DV_OK
                         : dv__binding_make(op->name, op->schema, decl->fields, DV__GET(decl, dv_operator_decl, frame_size, 0),
                               false, arena, &binding);
    if (status)
        return status;
    dv__row *rows = DV__ARENA_ARRAY(arena, dv__row, n);
    const dv__row **pointers = DV__ARENA_ARRAY(arena, const dv__row *, n);
    if (!rows || !pointers)
        return DV_ENOMEM;
    size_t used = 0;
    for (size_t i = 0; i < n; i++) {
        if (!kernels[i]->run)
            continue;
        dv__row *row = &rows[used];
        if ((status = row_make(op, kernels[i], provider, arena, row)))
            return fail_row(status, op, kernels[i]);
        row->binding = binding;
        row->vendor = vendor;
        pointers[used++] = row;
    }
    *out = (dv__row_set){ pointers, used };
    return DV_OK;
}
