/* Registering a library, and the pool of trampolines.
 *
 * A boxed kernel gets no pointer of ours, so each operator takes a C function of its own from a pool that the preprocessor made;
 * the function's number leads to the operator. A number goes back to the end of the queue when its library is unregistered, so
 * that it is used again as late as possible.
 */
#include "autograd.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

enum { CAPACITY = 4096 };

static _Atomic(const struct dv__torch_op *) operators[CAPACITY]; /* what was here stays until the number is used again */

#define TRAMPOLINE(n)                                                                                \
    static void trampoline_##n(uint64_t *stack, uint64_t nargs, uint64_t nresults)                   \
    {                                                                                                \
        (void)nresults;                                                                              \
        dv__torch_call(atomic_load_explicit(&operators[0x##n], memory_order_acquire), stack, nargs); \
    }
#define NAME(n) trampoline_##n,
/* clang-format off */
#define HEX(X, n) X(n##0) X(n##1) X(n##2) X(n##3) X(n##4) X(n##5) X(n##6) X(n##7) X(n##8) X(n##9) X(n##a) X(n##b) X(n##c) X(n##d) X(n##e) X(n##f)
#define HEX2(X, n) HEX(X, n##0) HEX(X, n##1) HEX(X, n##2) HEX(X, n##3) HEX(X, n##4) HEX(X, n##5) HEX(X, n##6) HEX(X, n##7) \
    HEX(X, n##8) HEX(X, n##9) HEX(X, n##a) HEX(X, n##b) HEX(X, n##c) HEX(X, n##d) HEX(X, n##e) HEX(X, n##f)
#define HEX3(X) HEX2(X, 0) HEX2(X, 1) HEX2(X, 2) HEX2(X, 3) HEX2(X, 4) HEX2(X, 5) HEX2(X, 6) HEX2(X, 7) \
    HEX2(X, 8) HEX2(X, 9) HEX2(X, a) HEX2(X, b) HEX2(X, c) HEX2(X, d) HEX2(X, e) HEX2(X, f)
/* clang-format on */
HEX3(TRAMPOLINE)
static const dv_torch_boxed trampolines[CAPACITY] = { HEX3(NAME) };

/* The free numbers: first those never used, then a queue of those given back. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static size_t unused, queue_first, queue_size;
static uint16_t queue[CAPACITY];

static int take_number(const char *name, size_t *out)
{
    int status = DV_OK;
    pthread_mutex_lock(&lock);
    if (unused < CAPACITY) {
        *out = unused++;
    } else if (queue_size) {
        *out = queue[queue_first];
        queue_first = (queue_first + 1) % CAPACITY;
        queue_size--;
    } else {
        status = dv_fail(DV_ELIMIT, "%s: all %d trampolines into torch are in use: unregister a library first", name, CAPACITY);
    }
    pthread_mutex_unlock(&lock);
    return status;
}

static void give_number(size_t n)
{
    pthread_mutex_lock(&lock);
    queue[(queue_first + queue_size++) % CAPACITY] = (uint16_t)n;
    pthread_mutex_unlock(&lock);
}

size_t dv_torch_capacity(void) { return CAPACITY; }

/* The same numbers again, for the kernels on the Autograd keys. */
#define AUTOGRAD(n)                                                                               \
    static void autograd_##n(uint64_t *stack, uint64_t nargs, uint64_t nresults)                  \
    {                                                                                             \
        (void)nargs, (void)nresults;                                                              \
        dv__torch_autograd(atomic_load_explicit(&operators[0x##n], memory_order_acquire), stack); \
    }
#define AUTOGRAD_NAME(n) autograd_##n,
HEX3(AUTOGRAD)
static const dv_torch_boxed autograd[CAPACITY] = { HEX3(AUTOGRAD_NAME) };

/* ---- one library --------------------------------------------------------------------------------------------------------- */

/* The dispatch keys that we give kernels for: X(key, device). The CPU's is always there: its message says which rows there are.
 */
/* clang-format off */
#define KEYS(X) X(CPU, DV_CPU) X(CUDA, DV_CUDA) X(PrivateUse1, DV_NPU)
/* clang-format on */
enum { KEY_COUNT = 3, MAX_TAGS = 32 };
static const struct {
    const char *key;
    int32_t device;
} keys[KEY_COUNT] = {
#define KEY(key, device) { #key, device },
    KEYS(KEY)
#undef KEY
};

struct entry {
    size_t number;
    const char *name;
    bool twin, autograd;
    bool has_out; /* an out= overload, of the operator or of its twin */
    char *out;    /* of a twin: dv_torch_out_schema() */
    struct dv__torch_op *op;
};

/* torch's library objects for one namespace. */
struct space {
    char *ns;
    void *definitions, *kernels[KEY_COUNT];
    void *elsewhere; /* kernels for every device that has none, and for calls without tensors */
};

struct dv_torch_library {
    const struct dv__torch_shims *t;
    struct space own, twins; /* the second is opened for the first twin */
    void *autograd;          /* kernels on the Autograd keys; NULL: there are none */
    size_t n;
    struct entry entries[];
};

static int host_failed(const struct dv__torch_shims *t, const char *name, const char *doing)
{
    return dv_fail(DV_EHOST, "%s: torch refused %s: %s", name, doing, dv__torch_what(t));
}

/* Does the schema have an argument or result of this type? Matched as a word: names may contain it. */
static bool has_type(const char *schema, const char *type)
{
    const size_t size = strlen(type);
    for (const char *p = strstr(schema, type); p; p = strstr(p + 1, type))
        if (p > schema && (p[-1] == ' ' || p[-1] == '(') && strchr(" ?[,)", p[size]))
            return true;
    return false;
}

/* DV_ENOTSUP names the first argument or result that the shims do not carry, or of a twin, that nothing can stand for. */
static int describe(const struct dv__torch_shims *t, dv_operator *op, bool twin, struct dv__torch_op *to)
{
    const char *schema = dv_operator_schema(op);
    to->nargs = dv_operator_nargs(op);
    to->nresults = dv_operator_nresults(op);
    to->name = dv_operator_name(op);
    const char *dot = strchr(to->name, '.');
    to->overload = dot ? dot + 1 : "";
    for (size_t i = 0; i < to->nargs + to->nresults; i++) {
        dv_slot_info info;
        const int status = dv_operator_slot(op, i, &info);
        if (status)
            return status;
        const bool result = i >= to->nargs;
        const char *why = dv__torch_cannot_carry(t, &info, result);
        const uint8_t packed = twin && why && !result ? dv__torch_packs_as((uint8_t)info.type) : 0;
        if (why && !packed)
            return dv_fail(DV_ENOTSUP, "%s: %s '%s': %s", to->name, result ? "result" : "argument", info.name, why);
        to->slots[i] = (struct dv__torch_slot){ .name = info.name,
            .field = packed ? packed : (uint8_t)info.type,
            .packed = packed ? (uint8_t)info.type : 0,
            .optional = info.flags & DV_SLOT_OPTIONAL,
            .element_optional = info.flags & DV_SLOT_ELEMENT_OPTIONAL,
            .writes = result || info.flags & DV_SLOT_WRITES,
            .alias = result ? info.alias : -1 };
        to->views |= result && info.alias >= 0 && !to->slots[info.alias].writes;
        to->mutates |= !result && info.flags & DV_SLOT_WRITES;
    }
    /* A SymBool looks like a bool to a frame, but not to the shims. */
    if (!twin && has_type(schema, "SymBool"))
        return dv_fail(DV_ENOTSUP, "%s: torch's C shims carry no SymBool: use bool", to->name);
    return DV_OK;
}

static void add_tag(const char *name, size_t size, int32_t *tags, int32_t *n)
{
    const int32_t tag = size && *n < MAX_TAGS ? dv__torch_tag(name, size) : -1;
    for (int32_t i = 0; i < *n; i++)
        if (tags[i] == tag)
            return;
    if (tag >= 0)
        tags[(*n)++] = tag;
}

/* How many bytes at p are "($0! -> )": what torch prints of an annotation without a name, `Tensor! x`. */
static size_t nameless_write(const char *p)
{
    const size_t digits = strncmp(p, "($", 2) ? 0 : strspn(p + 2, "0123456789");
    return digits && !strncmp(p + 2 + digits, "! -> )", 6) ? 2 + digits + 6 : 0;
}

/* A canonical schema is as torch prints it, and some of that torch cannot read: the default of a Device without quotes, and
 * "($0! -> )" for "!". The caller frees what is returned; NULL: out of memory. */
static char *readable_schema(const char *schema)
{
    char *quoted = malloc(2 * strlen(schema) + 1), *to = quoted;
    for (const char *p = schema; quoted && *p;) {
        const size_t nameless = nameless_write(p);
        if (nameless) {
            *to++ = '!';
            p += nameless;
            continue;
        }
        size_t name = strncmp(p, "Device ", 7) ? strncmp(p, "Device? ", 8) ? 0 : 8 : 7;
        if (name && (p == schema || !strchr("( ", p[-1])))
            name = 0;
        if (name)
            name += strcspn(p + name, "=,)");
        if (!name || p[name] != '=' || p[name + 1] == '"' || !strncmp(p + name + 1, "None", 4)) {
            *to++ = *p++;
            continue;
        }
        const size_t value = strcspn(p + name + 1, ",)");
        to += sprintf(to, "%.*s\"%.*s\"", (int)name + 1, p, (int)value, p + name + 1);
        p += name + 1 + value;
    }
    if (quoted)
        *to = 0;
    return quoted;
}

/* more: a tag besides those declared, or "". */
static int define(const struct dv__torch_shims *t, void *definitions, dv_operator *op, const char *schema, const char *more)
{
    char *readable = readable_schema(schema);
    if (!readable)
        return dv_fail(DV_ENOMEM, "out of memory");
    int32_t tags[MAX_TAGS], n = 0;
    add_tag("pt2_compliant_tag", strlen("pt2_compliant_tag"), tags, &n);
    add_tag(more, strlen(more), tags, &n);
    for (const char *p = dv_operator_tags(op); *p;) {
        const size_t size = strcspn(p, " ,");
        add_tag(p, size, tags, &n);
        p += size + (p[size] != 0);
    }
    const int32_t failed = n && t->torch_library_def_with_tags ? t->torch_library_def_with_tags(definitions, readable, tags, n)
                                                               : t->aoti_torch_library_def(definitions, readable);
    free(readable);
    return failed ? host_failed(t, dv_operator_name(op), "the schema") : DV_OK;
}

/* torch frees what it knows of an operator with its last registration, and whoever still holds the operator reads freed memory.
 * So each name gets one kernel that stays for ever, under a dispatch key that no tensor of ours has: later calls fail with
 * torch's message. */
static const struct dv__torch_shims *keeper;
static struct kept {
    struct kept *next;
    char name[];
} *kept_names;

static void refuse(uint64_t *stack, uint64_t nargs, uint64_t nresults)
{
    (void)stack, (void)nargs, (void)nresults;
    keeper->aoti_torch_check(false, "dovetail", "dovetail", 0, "dovetail: no kernel for this kind of tensor");
}

/* The library that keeps names of this namespace: the last one that was used, or a new one. None is ever deleted. */
static int open_keeper(const struct dv__torch_shims *t, const char *ns, void **out)
{
    static void *library;
    static char of[128];
    if (!library || strcmp(of, ns)) {
        if (t->aoti_torch_library_init_impl(ns, "FPGA", "dovetail", 0, &library))
            return host_failed(t, ns, "the namespace");
        snprintf(of, sizeof of, "%s", strlen(ns) < sizeof of ? ns : "");
    }
    *out = library;
    return DV_OK;
}

static int keep_locked(const struct dv__torch_shims *t, const char *ns, const char *name, const char *local)
{
    void *library = NULL;
    for (const struct kept *k = kept_names; k; k = k->next)
        if (!strcmp(k->name, name))
            return DV_OK;
    const int status = open_keeper(t, ns, &library);
    if (status)
        return status;
    struct kept *k = malloc(sizeof *k + strlen(name) + 1);
    if (!k)
        return dv_fail(DV_ENOMEM, "out of memory");
    memcpy(k->name, name, strlen(name) + 1);
    if (t->torch_library_impl(library, local, refuse, DV_TORCH_ABI)) {
        free(k);
        return host_failed(t, name, "the kernel");
    }
    keeper = t;
    k->next = kept_names;
    kept_names = k;
    return DV_OK;
}

static int keep(const struct dv__torch_shims *t, const char *ns, const char *name, const char *local)
{
    pthread_mutex_lock(&lock);
    const int status = keep_locked(t, ns, name, local);
    pthread_mutex_unlock(&lock);
    return status;
}

/* ---- out= ---------------------------------------------------------------------------------------------------------------- */

/* An operator that writes nothing and returns fresh tensors gets an overload that writes to given ones, with ATen's names and
 * rules: `f.out(Tensor x, *, Tensor(a!) out) -> Tensor(a!)`. It has no trampoline of its own: its calls have more arguments. */
static bool is_functional(const struct dv__torch_op *o)
{
    const char *schema = dv_operator_schema(o->op);
    const size_t name = strcspn(schema, "(.");
    if (o->mutates || !o->nresults || o->nresults > 'z' - 'a' || schema[name - 1] == '_' || strstr(schema, "Tensor(") ||
        strstr(schema, "..."))
        return false;
    for (size_t i = o->nargs; i < o->nargs + o->nresults; i++)
        if (o->slots[i].field != DV_FIELD_TENSOR || o->slots[i].optional)
            return false;
    return true;
}

static bool has_argument(const struct dv__torch_op *o, const char *name)
{
    for (size_t i = 0; i < o->nargs; i++)
        if (!strcmp(o->slots[i].name, name))
            return true;
    return false;
}

/* One result is written to `out`; several to their names, where all have one that no argument has, else to out0, out1... */
static void name_out(const struct dv__torch_op *o, size_t i, char *buffer, size_t size)
{
    bool named = true;
    for (size_t k = o->nargs; k < o->nargs + o->nresults; k++)
        named &= *o->slots[k].name && !has_argument(o, o->slots[k].name);
    if (o->nresults == 1)
        snprintf(buffer, size, "out");
    else if (named)
        snprintf(buffer, size, "%s", o->slots[o->nargs + i].name);
    else
        snprintf(buffer, size, "out%zu", i);
}

/* "ns::f.out", "ns::f.overload_out" */
static void name_overload(const struct dv__torch_op *o, char *buffer, size_t size)
{
    snprintf(buffer, size, "%s%sout", o->name, strchr(o->name, '.') ? "_" : ".");
}

/* The overload's schema; NULL without an error set: an argument has the name, or memory is out. The caller frees it. */
static char *out_schema(const struct dv__torch_op *o, const char *overload)
{
    const char *schema = dv_operator_schema(o->op), *begin = strchr(schema, '('), *end = NULL;
    for (const char *p = begin; (p = strstr(p, ") -> ")); p++)
        end = p;
    bool starred = false, clash = false;
    for (size_t i = 0; i < o->nargs; i++) {
        dv_slot_info info;
        starred |= !dv_operator_slot(o->op, i, &info) && info.flags & DV_SLOT_KWARG_ONLY;
    }
    char *text = NULL, name[128];
    size_t size;
    FILE *f = open_memstream(&text, &size);
    if (!f)
        return NULL;
    fprintf(f, "%s%.*s%s", overload, (int)(end - begin), begin, starred ? "" : o->nargs ? ", *" : "*");
    for (size_t i = 0; i < o->nresults; i++) {
        name_out(o, i, name, sizeof name);
        clash |= has_argument(o, name);
        fprintf(f, ", Tensor(%c!) %s", 'a' + (char)i, name);
    }
    fprintf(f, ") -> %s", o->nresults == 1 ? "" : "(");
    for (size_t i = 0; i < o->nresults; i++)
        fprintf(f, "%sTensor(%c!)", i ? ", " : "", 'a' + (char)i);
    fputs(o->nresults == 1 ? "" : ")", f);
    if (!fclose(f) && !clash)
        return text;
    free(text);
    return NULL;
}

static const char *local_name(const char *name) { return strstr(name, "::") ? strstr(name, "::") + 2 : name; }

/* May a call have no tensor at all? Then torch finds only a kernel for all devices. */
static bool may_have_no_tensor(const struct dv__torch_op *o)
{
    for (size_t i = 0; i < o->nargs; i++)
        if (o->slots[i].field == DV_FIELD_TENSOR && !o->slots[i].optional)
            return false;
    return true;
}

/* The trampoline as the kernel of every device that has none. */
static int implement_elsewhere(const struct dv__torch_shims *t, const struct space *space, const char *name, size_t number)
{
    return t->torch_library_impl(space->elsewhere, local_name(name), trampolines[number], DV_TORCH_ABI)
        ? host_failed(t, name, "the kernel")
        : DV_OK;
}

/* Is this the name of the operator itself or of its twin, not of an out= overload? */
static bool is_operator(const struct dv__torch_op *o, const char *name)
{
    const size_t prefix = strncmp(name, DV_TORCH_TWINS, strlen(DV_TORCH_TWINS)) ? 0 : strlen(DV_TORCH_TWINS);
    return !strcmp(name + prefix, o->name);
}

/* name: "ns::f.overload", of the operator, of its out= overload, or of its twin */
static int implement(
    const struct dv__torch_shims *t, const struct space *space, const struct dv__torch_op *o, const char *name, size_t number)
{
    const char *local = local_name(name);
    int status = keep(t, space->ns, name, local);
    for (int k = 0; !status && k < KEY_COUNT; k++)
        if (keys[k].device == DV_CPU || dv_operator_has_rows(o->op, keys[k].device))
            if (t->torch_library_impl(space->kernels[k], local, trampolines[number], DV_TORCH_ABI))
                status = host_failed(t, name, "the kernel");
    return !status && is_operator(o, name) && may_have_no_tensor(o) ? implement_elsewhere(t, space, name, number) : status;
}

/* The schema of the out= overload, with its name; NULL: there is none. */
static char *schema_of_out(const dv_library *lib, const struct dv__torch_op *o, char *overload, size_t size)
{
    name_overload(o, overload, size);
    for (size_t i = 0; i < dv_library_size(lib); i++)
        if (!strcmp(dv_operator_name(dv_library_operator(lib, i)), overload))
            return NULL; /* the author's own */
    return is_functional(o) ? out_schema(o, overload) : NULL;
}

static int add_out(dv_torch_library *reg, const dv_library *lib, struct entry *e)
{
    const struct dv__torch_op *o = e->op;
    char overload[256], *schema = schema_of_out(lib, o, overload, sizeof overload);
    if (!schema)
        return DV_OK;
    int status = define(reg->t, reg->own.definitions, o->op, schema, "out_variant");
    free(schema);
    e->has_out = !status;
    return status ? status : implement(reg->t, &reg->own, o, overload, e->number);
}

static int open_space(const struct dv__torch_shims *t, const char *prefix, const char *ns, struct space *s)
{
    const size_t size = strlen(prefix) + strlen(ns) + 1;
    if (s->ns)
        return DV_OK;
    if (!(s->ns = malloc(size)))
        return dv_fail(DV_ENOMEM, "out of memory");
    snprintf(s->ns, size, "%s%s", prefix, ns);
    if (t->aoti_torch_library_init_fragment(s->ns, "dovetail", 0, &s->definitions))
        return host_failed(t, s->ns, "the namespace");
    for (int k = 0; k < KEY_COUNT; k++)
        if (t->aoti_torch_library_init_impl(s->ns, keys[k].key, "dovetail", 0, &s->kernels[k]))
            return host_failed(t, s->ns, "the namespace");
    if (t->aoti_torch_library_init_impl(s->ns, "CompositeExplicitAutograd", "dovetail", 0, &s->elsewhere))
        return host_failed(t, s->ns, "the namespace");
    return DV_OK;
}

static void close_space(const struct dv__torch_shims *t, struct space *s)
{
    for (int k = 0; k < KEY_COUNT; k++)
        if (s->kernels[k])
            t->aoti_torch_delete_library_object(s->kernels[k]);
    if (s->elsewhere)
        t->aoti_torch_delete_library_object(s->elsewhere);
    if (s->definitions)
        t->aoti_torch_delete_library_object(s->definitions);
    free(s->ns);
}

/* A twin under this name of the operator or of its out= overload: Python defines that itself. */
static int define_twin(dv_torch_library *reg, const struct dv__torch_op *o, const char *of, size_t number, bool out)
{
    char *schema = dv__torch_twin_schema(o, local_name(of), out), *name = NULL;
    int status = DV_OK;
    if (!schema || asprintf(&name, "%s%s", DV_TORCH_TWINS, of) < 0)
        status = dv_fail(DV_ENOMEM, "out of memory");
    if (!status)
        status = define(reg->t, reg->twins.definitions, o->op, schema, "");
    if (!status)
        status = implement(reg->t, &reg->twins, o, name, number);
    free(name);
    free(schema);
    return status ? status : keep(reg->t, reg->own.ns, of, local_name(of));
}

static int add_twin(dv_torch_library *reg, const dv_library *lib, struct entry *e)
{
    char overload[256];
    int status = open_space(reg->t, DV_TORCH_TWINS, reg->own.ns, &reg->twins);
    if (!status)
        status = define_twin(reg, e->op, e->name, e->number, false);
    if (!status && (e->out = schema_of_out(lib, e->op, overload, sizeof overload)))
        status = define_twin(reg, e->op, overload, e->number, e->has_out = true);
    return status;
}

static bool has_generator(const struct dv__torch_op *o)
{
    for (size_t i = 0; i < o->nargs; i++)
        if (o->slots[i].field == DV_FIELD_GENERATOR)
            return true;
    return false;
}

/* Give the operator its trampoline, its schema and its kernels. */
static int add(dv_torch_library *reg, const dv_library *lib, dv_operator *op, uint32_t flags)
{
    const size_t slots = dv_operator_nargs(op) + dv_operator_nresults(op);
    struct dv__torch_op *o = calloc(1, sizeof *o + slots * sizeof *o->slots);
    if (!o)
        return dv_fail(DV_ENOMEM, "out of memory");
    struct entry *e = &reg->entries[reg->n];
    int status = describe(reg->t, op, false, o);
    e->twin = status == DV_ENOTSUP && flags & DV_TORCH_TWIN_UNSUPPORTED;
    if (e->twin) {
        o->mutates = false;
        status = describe(reg->t, op, true, o);
    }
    if (!status)
        status = take_number(o->name, &e->number);
    if (status) {
        free(o);
        return status == DV_ENOTSUP && flags & DV_TORCH_SKIP_UNSUPPORTED ? DV_OK : status;
    }
    o->t = reg->t;
    o->op = dv_operator_ref(op);
    e->name = o->name;
    e->op = o;
    reg->n++; /* from here on dv_torch_unregister() knows it */
    atomic_store_explicit(&operators[e->number], o, memory_order_release);
    if (e->twin)
        return add_twin(reg, lib, e);
    status = define(reg->t, reg->own.definitions, op, dv_operator_schema(op), "");
    if (!status)
        status = implement(reg->t, &reg->own, o, o->name, e->number);
    e->autograd = reg->autograd && !has_generator(o); /* python.c cannot make one from its handle */
    if (!status && e->autograd &&
        reg->t->torch_library_impl(reg->autograd, local_name(o->name), autograd[e->number], DV_TORCH_ABI))
        status = host_failed(reg->t, o->name, "the kernel");
    return status ? status : add_out(reg, lib, e);
}

int dv_torch_register(dv_library *lib, uint32_t flags, dv_torch_library **out)
{
    *out = NULL;
    const struct dv__torch_shims *t = dv__torch_shims();
    if (!t)
        return dv_torch_available();
    const size_t n = dv_library_size(lib);
    dv_torch_library *reg = calloc(1, sizeof *reg + n * sizeof *reg->entries);
    if (!reg)
        return dv_fail(DV_ENOMEM, "out of memory");
    reg->t = t;
    int status = open_space(t, "", dv_library_name(lib), &reg->own);
    if (!status && !(flags & DV_TORCH_NO_AUTOGRAD) && t->exclude_key && t->torch_call_dispatcher && t->requires_grad &&
        t->aoti_torch_library_init_impl(reg->own.ns, "Autograd", "dovetail", 0, &reg->autograd))
        status = host_failed(t, reg->own.ns, "the namespace");
    for (size_t i = 0; !status && i < n; i++)
        status = add(reg, lib, dv_library_operator(lib, i), flags);
    if (status) {
        char message[1024];
        snprintf(message, sizeof message, "%s", dv_last_error());
        dv_torch_unregister(reg);
        return dv_fail(status, "%s", message);
    }
    *out = reg;
    return DV_OK;
}

void dv_torch_unregister(dv_torch_library *reg)
{
    if (!reg)
        return;
    close_space(reg->t, &reg->own);
    close_space(reg->t, &reg->twins);
    if (reg->autograd)
        reg->t->aoti_torch_delete_library_object(reg->autograd);
    for (size_t i = 0; i < reg->n; i++) {
        give_number(reg->entries[i].number);
        free(reg->entries[i].out);
    }
    free(reg);
}

static const struct entry *find(const dv_torch_library *reg, const char *name)
{
    for (size_t i = 0; i < reg->n; i++)
        if (!strcmp(reg->entries[i].name, name))
            return &reg->entries[i];
    return NULL;
}

bool dv_torch_has(const dv_torch_library *reg, const char *name)
{
    const struct entry *e = find(reg, name);
    return e && !e->twin;
}

bool dv_torch_has_twin(const dv_torch_library *reg, const char *name)
{
    const struct entry *e = find(reg, name);
    return e && e->twin;
}

const char *dv_torch_out_schema(const dv_torch_library *reg, const char *name)
{
    const struct entry *e = find(reg, name);
    return e ? e->out : NULL;
}

bool dv_torch_has_autograd(const dv_torch_library *reg, const char *name)
{
    const struct entry *e = find(reg, name);
    return e && e->autograd;
}

void dv_torch_set_autograd(dv_torch_library *reg, const char *name, void *python, void *gradient)
{
    const struct entry *e = find(reg, name);
    if (e) {
        atomic_store(&e->op->python, python);
        atomic_store(&e->op->gradient, gradient);
    }
}

static int native_of_twin(const dv_torch_library *reg, const struct entry *e, const char *of)
{
    char name[512];
    snprintf(name, sizeof name, "%s%s", DV_TORCH_TWINS, of);
    return implement_elsewhere(reg->t, &reg->twins, name, e->number);
}

int dv_torch_set_native(dv_torch_library *reg, const char *name, void *python)
{
    const struct entry *e = find(reg, name);
    if (!e)
        return DV_OK;
    const bool first = python && !atomic_load(&e->op->native);
    atomic_store(&e->op->native, python);
    if (!first)
        return DV_OK;
    char overload[256];
    int status = DV_OK;
    name_overload(e->op, overload, sizeof overload);
    if (!may_have_no_tensor(e->op)) /* else it is there */
        status = e->twin ? native_of_twin(reg, e, e->name) : implement_elsewhere(reg->t, &reg->own, e->name, e->number);
    if (!status && e->has_out)
        status = e->twin ? native_of_twin(reg, e, overload) : implement_elsewhere(reg->t, &reg->own, overload, e->number);
    return status;
}

void dv_torch_set_overridden(dv_torch_library *reg, const char *name, bool yes)
{
    const struct entry *e = find(reg, name);
    if (e)
        atomic_store(&e->op->overridden, yes);
}

const struct dv__torch_op *dv_torch_operator(const dv_torch_library *reg, const char *name)
{
    const struct entry *e = find(reg, name);
    return e ? e->op : NULL;
}
