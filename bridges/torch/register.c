/* Registers a library's operators in torch, and owns the pool of trampolines.
 *
 * A boxed kernel gets no user pointer, so each operator uses its own C function, a trampoline, from a pool that the
 * preprocessor generates. The trampoline's number identifies the operator. When a library is unregistered, the numbers of its
 * operators go to the end of a queue, so that they are used again as late as possible. */
#include "autograd.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

enum { MAX_OPERATORS = 4096 };

static _Atomic(const struct dv__torch_op *)
    trampoline_operators[MAX_OPERATORS]; /* by trampoline number; an unregistered operator stays until its number is used again */

#define DEFINE_TRAMPOLINE(n)                                                                                    \
    static void trampoline_##n(uint64_t *stack, uint64_t nargs, uint64_t nresults)                              \
    {                                                                                                           \
        (void)nresults;                                                                                         \
        dv__torch_call(atomic_load_explicit(&trampoline_operators[0x##n], memory_order_acquire), stack, nargs); \
    }
#define TRAMPOLINE_NAME(n) trampoline_##n,
/* clang-format off */
#define HEX(X, n) X(n##0) X(n##1) X(n##2) X(n##3) X(n##4) X(n##5) X(n##6) X(n##7) X(n##8) X(n##9) X(n##a) X(n##b) X(n##c) X(n##d) X(n##e) X(n##f)
#define HEX2(X, n) HEX(X, n##0) HEX(X, n##1) HEX(X, n##2) HEX(X, n##3) HEX(X, n##4) HEX(X, n##5) HEX(X, n##6) HEX(X, n##7) \
    HEX(X, n##8) HEX(X, n##9) HEX(X, n##a) HEX(X, n##b) HEX(X, n##c) HEX(X, n##d) HEX(X, n##e) HEX(X, n##f)
#define HEX3(X) HEX2(X, 0) HEX2(X, 1) HEX2(X, 2) HEX2(X, 3) HEX2(X, 4) HEX2(X, 5) HEX2(X, 6) HEX2(X, 7) \
    HEX2(X, 8) HEX2(X, 9) HEX2(X, a) HEX2(X, b) HEX2(X, c) HEX2(X, d) HEX2(X, e) HEX2(X, f)
/* clang-format on */
HEX3(DEFINE_TRAMPOLINE)
static const dv_torch_boxed trampolines[MAX_OPERATORS] = { HEX3(TRAMPOLINE_NAME) };

/* Free numbers of trampolines: a queue of returned numbers, and the numbers from next_unused on. A thread may still be in a
 * call of an unregistered operator, so a returned number waits until MIN_REST others are returned after it. The next operator
 * that takes the number replaces and frees the old operator. */
enum { MIN_REST = MAX_OPERATORS / 4 };
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static size_t next_unused, free_queue_first, free_queue_size;
static uint16_t free_queue[MAX_OPERATORS];

/* Takes a trampoline that no operator uses. *number_out: its number. Fails with DV_ELIMIT if all are in use. Returns a status. */
static int trampoline_take_free_number(const char *name_for_message, size_t *number_out)
{
    int status = DV_OK;
    pthread_mutex_lock(&lock);
    if (next_unused < MAX_OPERATORS && free_queue_size <= MIN_REST) {
        *number_out = next_unused++;
    } else if (free_queue_size) {
        *number_out = free_queue[free_queue_first];
        free_queue_first = (free_queue_first + 1) % MAX_OPERATORS;
        free_queue_size--;
    } else {
        status = dv_fail(DV_ELIMIT, "%s: all %d trampolines into torch are in use: unregister a library first", name_for_message,
            MAX_OPERATORS);
    }
    pthread_mutex_unlock(&lock);
    return status;
}

/* Puts a trampoline's number at the end of the queue of free numbers. */
static void trampoline_release_number(size_t number)
{
    pthread_mutex_lock(&lock);
    free_queue[(free_queue_first + free_queue_size++) % MAX_OPERATORS] = (uint16_t)number;
    pthread_mutex_unlock(&lock);
}

size_t dv_torch_capacity(void) { return MAX_OPERATORS; }

/* A second C function for each trampoline number: the kernel on the Autograd keys. */
#define DEFINE_AUTOGRAD(n)                                                                                               \
    static void autograd_##n(uint64_t *stack, uint64_t nargs, uint64_t nresults)                                         \
    {                                                                                                                    \
        (void)nargs, (void)nresults;                                                                                     \
        dv__torch_call_on_autograd_key(atomic_load_explicit(&trampoline_operators[0x##n], memory_order_acquire), stack); \
    }
#define AUTOGRAD_NAME(n) autograd_##n,
HEX3(DEFINE_AUTOGRAD)
static const dv_torch_boxed autograd_trampolines[MAX_OPERATORS] = { HEX3(AUTOGRAD_NAME) };

/* ---- one library --------------------------------------------------------------------------------------------------------- */

/* The dispatch keys that get kernels: X(key, device). The CPU's key always gets one, whose error message lists the operator's
 * kernels. */
/* clang-format off */
#define DISPATCH_KEYS(X) X(CPU, DV_CPU) X(CUDA, DV_CUDA) X(PrivateUse1, DV_NPU)
/* clang-format on */
enum { DISPATCH_KEY_COUNT = 3, MAX_TAGS = 32 };
static const struct {
    const char *key;
    int32_t device;
} dispatch_keys[DISPATCH_KEY_COUNT] = {
#define DISPATCH_KEY_ROW(key, device) { #key, device },
    DISPATCH_KEYS(DISPATCH_KEY_ROW)
#undef DISPATCH_KEY_ROW
};

struct registered_op {
    size_t number; /* the operator's trampoline number; valid if `op` is not NULL */
    const char *name;
    char *refusal; /* the reason why the operator was left out, owned; NULL: the operator was registered */
    bool is_packed, autograd;
    bool has_out_overload; /* an out= overload of the operator, or of its packed operator, is defined in torch */
    char *out;             /* the schema that dv_torch_get_out_schema() returns, owned; NULL unless is_packed */
    struct dv__torch_op *op;
};

/* torch's library objects for one namespace. */
struct torch_namespace {
    char *ns;
    void *definitions, *kernels[DISPATCH_KEY_COUNT];
    void *fallback_kernels; /* kernels for devices without their own, and for calls without tensors */
};

struct dv_torch_library {
    const struct dv__torch_shims *t;
    struct torch_namespace own,
        packed_namespace; /* the library's namespace, and that of packed operators, which the first packed operator opens */
    void *autograd;       /* torch's library object for kernels on the Autograd keys; NULL: none are registered */
    size_t n;
    struct registered_op entries[];
};

/* Sets the error "name: torch refused refused_part: ..." with libtorch's message. Returns DV_EHOST. */
static int register_fail_refused(const struct dv__torch_shims *t, const char *name, const char *refused_part)
{
    return dv_fail(DV_EHOST, "%s: torch refused %s: %s", name, refused_part, dv__torch_get_last_error(t));
}

/* True if the schema has an argument or result of this type. The type is matched as a word, since names may contain it. */
static bool schema_has_type(const char *schema, const char *type)
{
    const size_t size = strlen(type);
    for (const char *p = strstr(schema, type); p; p = strstr(p + 1, type))
        if (p > schema && (p[-1] == ' ' || p[-1] == '(') && strchr(" ?[,)", p[size]))
            return true;
    return false;
}

/* Fills torch_op's names, slots and flags from the declaration. as_packed: for a packed operator, with other types where
 * libtorch's shims cannot carry an argument. Fails with DV_ENOTSUP, and names the slot, for a type that cannot be passed. */
static int register_describe_slots(
    const struct dv__torch_shims *t, dv_operator *op, bool as_packed, struct dv__torch_op *torch_op)
{
    const char *schema = dv_operator_schema(op);
    torch_op->nargs = dv_operator_nargs(op);
    torch_op->nresults = dv_operator_nresults(op);
    torch_op->name = dv_operator_name(op);
    const char *dot = strchr(torch_op->name, '.');
    torch_op->overload = dot ? dot + 1 : "";
    for (size_t i = 0; i < torch_op->nargs + torch_op->nresults; i++) {
        dv_slot_info *info = &torch_op->slots[i].info;
        const int status = dv_operator_slot(op, i, info);
        if (status)
            return status;
        const bool result = i >= torch_op->nargs;
        const char *why = dv__torch_get_unsupported_reason(t, info, result);
        const uint8_t packed = as_packed && why && !result ? dv__torch_get_packed_type((uint8_t)info->type) : 0;
        if (why && !packed)
            return dv_fail(DV_ENOTSUP, "%s: %s '%s': %s", torch_op->name, result ? "result" : "argument", info->name, why);
        torch_op->slots[i].field = packed ? packed : (uint8_t)info->type;
        torch_op->returns_list |= result && info->type == DV_FIELD_TENSORS;
        torch_op->views |= result && info->alias >= 0 && !(torch_op->slots[info->alias].info.flags & DV_SLOT_WRITES);
        torch_op->mutates |= !result && info->flags & DV_SLOT_WRITES;
        info->flags |= result ? DV_SLOT_WRITES : 0;
    }
    /* Dovetail treats a SymBool as a bool, but libtorch's shims do not carry it. */
    if (!as_packed && schema_has_type(schema, "SymBool"))
        return dv_fail(DV_ENOTSUP, "%s: torch's C shims carry no SymBool: use bool", torch_op->name);
    return DV_OK;
}

/* Adds torch's number of a tag to an array of at most MAX_TAGS. A tag that is in the array, or that this torch does not know, is
 * left out. */
static void register_add_tag_once(const char *name, size_t name_size, int32_t *tags, int32_t *ntags)
{
    const int32_t tag = name_size && *ntags < MAX_TAGS ? dv__torch_find_tag_number(name, name_size) : -1;
    for (int32_t i = 0; i < *ntags; i++)
        if (tags[i] == tag)
            return;
    if (tag >= 0)
        tags[(*ntags)++] = tag;
}

/* Returns the length of "($0! -> )" at the start of text, which torch prints for an annotation without a name, `Tensor! x`; 0:
 * text begins otherwise. */
static size_t schema_measure_nameless_write(const char *text)
{
    const size_t digits = strncmp(text, "($", 2) ? 0 : strspn(text + 2, "0123456789");
    return digits && !strncmp(text + 2 + digits, "! -> )", 6) ? 2 + digits + 6 : 0;
}

/* Returns the length of the real part of a complex default that begins at text: of "0.+", or of "0." before "-". 0: no such
 * default begins there. */
static size_t schema_measure_real_part(const char *schema, const char *text)
{
    if (text == schema || !strchr("=[ ", text[-1]) || strncmp(text, "0.", 2) || (text[2] != '+' && text[2] != '-'))
        return 0;
    const size_t size = strspn(text + 2, "0123456789.e+-");
    return text[2 + size] == 'j' && strchr(",)]", text[3 + size]) ? 2 + (text[2] == '+') : 0;
}

/* Returns the length of the string at the start of text, with its quotes; 0: no string begins there. */
static size_t schema_measure_string(const char *text)
{
    const char *end = text;
    if (*text != '"')
        return 0;
    for (end++; *end && *end != '"'; end++)
        end += *end == '\\' && end[1];
    return (size_t)(end - text) + (*end == '"');
}

void dv_torch_print_parsable_schema(const char *schema, char *to)
{
    for (const char *p = schema; *p;) {
        const size_t nameless = schema_measure_nameless_write(p);
        if (nameless) {
            *to++ = '!';
            p += nameless;
            continue;
        }
        const size_t string = schema_measure_string(p);
        if (string) {
            memcpy(to, p, string);
            to += string;
            p += string;
            continue;
        }
        p += schema_measure_real_part(schema, p);
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
    *to = 0;
}

/* Defines an operator in torch from its schema, with its declared tags and pt2_compliant_tag. further_tag: one more tag, or "".
 * Returns a status. */
static int register_define(
    const struct dv__torch_shims *t, void *definitions, dv_operator *op, const char *schema, const char *further_tag)
{
    char *readable = malloc(2 * strlen(schema) + 1);
    if (!readable)
        return dv_fail(DV_ENOMEM, "out of memory");
    dv_torch_print_parsable_schema(schema, readable);
    int32_t tags[MAX_TAGS], n = 0;
    register_add_tag_once("pt2_compliant_tag", strlen("pt2_compliant_tag"), tags, &n);
    register_add_tag_once(further_tag, strlen(further_tag), tags, &n);
    for (const char *p = dv_operator_tags(op); *p;) {
        const size_t size = strcspn(p, " ,");
        register_add_tag_once(p, size, tags, &n);
        p += size + (p[size] != 0);
    }
    const int32_t failed = n && t->torch_library_def_with_tags ? t->torch_library_def_with_tags(definitions, readable, tags, n)
                                                               : t->aoti_torch_library_def(definitions, readable);
    free(readable);
    return failed ? register_fail_refused(t, dv_operator_name(op), "the schema") : DV_OK;
}

/* Permanent kernels. torch frees an operator's data with the operator's last registration, and code that still holds the operator
 * would read freed memory. So each name gets one permanent kernel, on a dispatch key (FPGA) that no tensor has. Calls after the
 * unregistration then fail with torch's message. */
static const struct dv__torch_shims *permanent_shims;
static struct permanent_kernel {
    struct permanent_kernel *next;
    char name[];
} *permanent_kernels;

/* The kernel function of every permanent kernel: always throws a c10::Error. */
static void permanent_kernel_throw(uint64_t *stack, uint64_t nargs, uint64_t nresults)
{
    (void)stack, (void)nargs, (void)nresults;
    permanent_shims->aoti_torch_check(false, "dovetail", "dovetail", 0, "dovetail: no kernel for this kind of tensor");
}

/* Finds the torch library that holds a namespace's permanent kernels: the last used one, or a new one. Such libraries are never
 * deleted. Returns a status. */
static int permanent_library_open(const struct dv__torch_shims *t, const char *ns, void **library_out)
{
    static void *library;
    static char of[128];
    if (!library || strcmp(of, ns)) {
        if (t->aoti_torch_library_init_impl(ns, "FPGA", "dovetail", 0, &library))
            return register_fail_refused(t, ns, "the namespace");
        snprintf(of, sizeof of, "%s", strlen(ns) < sizeof of ? ns : "");
    }
    *library_out = library;
    return DV_OK;
}

/* Does the work of permanent_kernel_add(), with the lock held. */
static int permanent_kernel_add_locked(const struct dv__torch_shims *t, const char *ns, const char *name, const char *local_name)
{
    void *library = NULL;
    for (const struct permanent_kernel *k = permanent_kernels; k; k = k->next)
        if (!strcmp(k->name, name))
            return DV_OK;
    const int status = permanent_library_open(t, ns, &library);
    if (status)
        return status;
    struct permanent_kernel *k = malloc(sizeof *k + strlen(name) + 1);
    if (!k)
        return dv_fail(DV_ENOMEM, "out of memory");
    memcpy(k->name, name, strlen(name) + 1);
    if (t->torch_library_impl(library, local_name, permanent_kernel_throw, DV_TORCH_ABI)) {
        free(k);
        return register_fail_refused(t, name, "the kernel");
    }
    permanent_shims = t;
    k->next = permanent_kernels;
    permanent_kernels = k;
    return DV_OK;
}

/* Registers the permanent kernel of the operator `name`, unless it has one. local_name: the name without namespace. Returns a
 * status. */
static int permanent_kernel_add(const struct dv__torch_shims *t, const char *ns, const char *name, const char *local_name)
{
    pthread_mutex_lock(&lock);
    const int status = permanent_kernel_add_locked(t, ns, name, local_name);
    pthread_mutex_unlock(&lock);
    return status;
}

/* ---- out= ---------------------------------------------------------------------------------------------------------------- */

/* True if Dovetail can give the operator an out= overload: the operator writes no argument and returns new tensors only. The
 * overload has ATen's names and rules: `f.out(Tensor x, *, Tensor(a!) out) -> Tensor(a!)`; with a list among the results,
 * `f.out(..., *, Tensor(a!)[] out) -> ()`. Operator and overload share one trampoline: calls of the overload have more arguments.
 */
static bool op_can_have_out_overload(const struct dv__torch_op *o)
{
    const char *schema = dv_operator_schema(o->op);
    const size_t name = strcspn(schema, "(.");
    if (o->mutates || !o->nresults || o->nresults > 'z' - 'a' || schema[name - 1] == '_' || strstr(schema, "Tensor(") ||
        strstr(schema, "..."))
        return false;
    for (size_t i = o->nargs; i < o->nargs + o->nresults; i++)
        if ((o->slots[i].field != DV_FIELD_TENSOR && o->slots[i].field != DV_FIELD_TENSORS) ||
            (o->slots[i].info.flags & DV_SLOT_OPTIONAL))
            return false;
    return true;
}

/* True if the operator has an argument of this name. */
static bool op_has_argument_named(const struct dv__torch_op *o, const char *name)
{
    for (size_t i = 0; i < o->nargs; i++)
        if (!strcmp(o->slots[i].info.name, name))
            return true;
    return false;
}

/* Writes to buffer the name of the out= argument for a result. A single result is written to "out". Several results are written
 * to their own names if all have names that no argument has, else to "out0", "out1" and so on. */
static void out_print_argument_name(const struct dv__torch_op *o, size_t result_index, char *buffer, size_t size)
{
    bool named = true;
    for (size_t k = o->nargs; k < o->nargs + o->nresults; k++)
        named &= *o->slots[k].info.name && !op_has_argument_named(o, o->slots[k].info.name);
    if (o->nresults == 1)
        snprintf(buffer, size, "out");
    else if (named)
        snprintf(buffer, size, "%s", o->slots[o->nargs + result_index].info.name);
    else
        snprintf(buffer, size, "out%zu", result_index);
}

/* Writes the full name of an operator's out= overload, "ns::f.out" or "ns::f.overload_out", to buffer. */
static void out_overload_print_full_name(const struct dv__torch_op *o, char *buffer, size_t size)
{
    snprintf(buffer, size, "%s%sout", o->name, strchr(o->name, '.') ? "_" : ".");
}

/* Returns the schema of the out= overload as text, which the caller frees. NULL, without an error set: an argument has the name
 * of an out= argument, or memory is out. */
static char *out_overload_make_schema(const struct dv__torch_op *o, const char *full_name)
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
    fprintf(f, "%s%.*s%s", full_name, (int)(end - begin), begin, starred ? "" : o->nargs ? ", *" : "*");
    for (size_t i = 0; i < o->nresults; i++) {
        out_print_argument_name(o, i, name, sizeof name);
        clash |= op_has_argument_named(o, name);
        fprintf(f, ", Tensor(%c!)%s %s", 'a' + (char)i, o->slots[o->nargs + i].field == DV_FIELD_TENSORS ? "[]" : "", name);
    }
    const size_t returned = o->returns_list ? 0 : o->nresults;
    fprintf(f, ") -> %s", returned == 1 ? "" : "(");
    for (size_t i = 0; i < returned; i++)
        fprintf(f, "%sTensor(%c!)", i ? ", " : "", 'a' + (char)i);
    fputs(returned == 1 ? "" : ")", f);
    if (!fclose(f) && !clash)
        return text;
    free(text);
    return NULL;
}

/* Returns the part of "ns::name" after "::", or the whole name. */
static const char *name_without_namespace(const char *name) { return strstr(name, "::") ? strstr(name, "::") + 2 : name; }

/* True if a call may pass no tensor at all: every tensor argument is optional or a list. For such a call torch finds only a
 * kernel for all devices. */
static bool op_can_be_called_without_tensor(const struct dv__torch_op *o)
{
    for (size_t i = 0; i < o->nargs; i++)
        if (o->slots[i].field == DV_FIELD_TENSOR && !(o->slots[i].info.flags & DV_SLOT_OPTIONAL))
            return false;
    return true;
}

/* Registers the trampoline as the kernel of devices without a kernel of their own, and of calls without tensors. Returns a
 * status. */
static int register_fallback_kernel(
    const struct dv__torch_shims *t, const struct torch_namespace *space, const char *name, size_t trampoline_number)
{
    return t->torch_library_impl(
               space->fallback_kernels, name_without_namespace(name), trampolines[trampoline_number], DV_TORCH_ABI)
        ? register_fail_refused(t, name, "the kernel")
        : DV_OK;
}

/* True if `name` is the full name of the operator itself or of its packed operator, not of an out= overload. */
static bool op_or_packed_is_named(const struct dv__torch_op *o, const char *name)
{
    const size_t prefix = strncmp(name, DV_TORCH_PACKED_PREFIX, strlen(DV_TORCH_PACKED_PREFIX)) ? 0
                                                                                                : strlen(DV_TORCH_PACKED_PREFIX);
    return !strcmp(name + prefix, o->name);
}

/* Registers the operator's trampoline as the kernel of `name` on each dispatch key for which the operator has kernels. name:
 * "ns::f.overload" of the operator, of its out= overload, or of its packed operator. Returns a status. */
static int register_kernels(const struct dv__torch_shims *t, const struct torch_namespace *space, const struct dv__torch_op *o,
    const char *name, size_t trampoline_number)
{
    const char *local = name_without_namespace(name);
    int status = permanent_kernel_add(t, space->ns, name, local);
    for (int k = 0; !status && k < DISPATCH_KEY_COUNT; k++)
        if (dispatch_keys[k].device == DV_CPU || dv_operator_has_kernels(o->op, dispatch_keys[k].device))
            if (t->torch_library_impl(space->kernels[k], local, trampolines[trampoline_number], DV_TORCH_ABI))
                status = register_fail_refused(t, name, "the kernel");
    return !status && op_or_packed_is_named(o, name) && op_can_be_called_without_tensor(o)
        ? register_fallback_kernel(t, space, name, trampoline_number)
        : status;
}

/* Writes the full name of an operator's out= overload to name_buffer. Returns the overload's schema, which the caller frees.
 * NULL: the operator can have no such overload, or the library declares the overload itself. */
static char *out_overload_make_name_and_schema(
    const dv_library *lib, const struct dv__torch_op *o, char *name_buffer, size_t size)
{
    out_overload_print_full_name(o, name_buffer, size);
    for (size_t i = 0; i < dv_library_noperators(lib); i++)
        if (!strcmp(dv_operator_name(dv_library_operator(lib, i)), name_buffer))
            return NULL; /* the author's own */
    return op_can_have_out_overload(o) ? out_overload_make_schema(o, name_buffer) : NULL;
}

/* Defines the operator's out= overload and registers its kernels, if the operator can have one. Returns a status. */
static int register_out_overload(dv_torch_library *reg, const dv_library *lib, struct registered_op *e)
{
    const struct dv__torch_op *o = e->op;
    char overload[256], *schema = out_overload_make_name_and_schema(lib, o, overload, sizeof overload);
    if (!schema)
        return DV_OK;
    int status = register_define(reg->t, reg->own.definitions, o->op, schema, o->returns_list ? "" : "out_variant");
    free(schema);
    e->has_out_overload = !status;
    return status ? status : register_kernels(reg->t, &reg->own, o, overload, e->number);
}

/* Opens torch's library objects for the namespace prefix + ns, unless they are open. Returns a status; after a failure
 * torch_namespace_close() must be called too. */
static int torch_namespace_open(
    const struct dv__torch_shims *t, const char *prefix, const char *ns, struct torch_namespace *namespace_out)
{
    const size_t size = strlen(prefix) + strlen(ns) + 1;
    if (namespace_out->ns)
        return DV_OK;
    if (!(namespace_out->ns = malloc(size)))
        return dv_fail(DV_ENOMEM, "out of memory");
    snprintf(namespace_out->ns, size, "%s%s", prefix, ns);
    if (t->aoti_torch_library_init_fragment(namespace_out->ns, "dovetail", 0, &namespace_out->definitions))
        return register_fail_refused(t, namespace_out->ns, "the namespace");
    for (int k = 0; k < DISPATCH_KEY_COUNT; k++)
        if (t->aoti_torch_library_init_impl(namespace_out->ns, dispatch_keys[k].key, "dovetail", 0, &namespace_out->kernels[k]))
            return register_fail_refused(t, namespace_out->ns, "the namespace");
    if (t->aoti_torch_library_init_impl(
            namespace_out->ns, "CompositeExplicitAutograd", "dovetail", 0, &namespace_out->fallback_kernels))
        return register_fail_refused(t, namespace_out->ns, "the namespace");
    return DV_OK;
}

/* Deletes torch's library objects of a namespace, also if only some are open, and so removes their operators and kernels from
 * torch. */
static void torch_namespace_close(const struct dv__torch_shims *t, struct torch_namespace *opened)
{
    for (int k = 0; k < DISPATCH_KEY_COUNT; k++)
        if (opened->kernels[k])
            t->aoti_torch_delete_library_object(opened->kernels[k]);
    if (opened->fallback_kernels)
        t->aoti_torch_delete_library_object(opened->fallback_kernels);
    if (opened->definitions)
        t->aoti_torch_delete_library_object(opened->definitions);
    free(opened->ns);
}

/* Defines the packed operator (packed.c) of an operator, or of its out= overload. Python defines the operator itself.
 * unpacked_name: the full name of that operator or overload. Returns a status. */
static int register_define_packed(dv_torch_library *reg, const struct dv__torch_op *o, const char *unpacked_name,
    size_t trampoline_number, bool is_out_overload)
{
    char *schema = dv__torch_make_packed_schema(o, name_without_namespace(unpacked_name), is_out_overload), *name = NULL;
    int status = DV_OK;
    if (!schema || asprintf(&name, "%s%s", DV_TORCH_PACKED_PREFIX, unpacked_name) < 0)
        status = dv_fail(DV_ENOMEM, "out of memory");
    if (!status)
        status = register_define(reg->t, reg->packed_namespace.definitions, o->op, schema, "");
    if (!status)
        status = register_kernels(reg->t, &reg->packed_namespace, o, name, trampoline_number);
    free(name);
    free(schema);
    return status ? status : permanent_kernel_add(reg->t, reg->own.ns, unpacked_name, name_without_namespace(unpacked_name));
}

/* Defines the packed operator of e, and the packed form of its out= overload if it can have one. Returns a status. */
static int register_packed_operator(dv_torch_library *reg, const dv_library *lib, struct registered_op *e)
{
    char overload[256];
    int status = torch_namespace_open(reg->t, DV_TORCH_PACKED_PREFIX, reg->own.ns, &reg->packed_namespace);
    if (!status)
        status = register_define_packed(reg, e->op, e->name, e->number, false);
    if (!status && (e->out = out_overload_make_name_and_schema(lib, e->op, overload, sizeof overload)))
        status = register_define_packed(reg, e->op, overload, e->number, e->has_out_overload = true);
    return status;
}

/* True if an argument of the operator is a Generator. */
static bool op_has_generator_argument(const struct dv__torch_op *o)
{
    for (size_t i = 0; i < o->nargs; i++)
        if (o->slots[i].field == DV_FIELD_GENERATOR)
            return true;
    return false;
}

/* Ends the registration of an operator that failed with `status`. With DV_TORCH_SKIP_UNSUPPORTED, and if torch or its shims
 * refused the operator, stores the reason in e->refusal and returns DV_OK. Otherwise returns status. */
static int register_skip_or_fail(struct registered_op *e, const dv_operator *op, int status, uint32_t flags)
{
    if ((status != DV_ENOTSUP && status != DV_EHOST) || !(flags & DV_TORCH_SKIP_UNSUPPORTED))
        return status;
    e->name = dv_operator_name(op);
    e->refusal = strdup(dv_last_error());
    return e->refusal ? DV_OK : dv_fail(DV_ENOMEM, "out of memory");
}

/* Registers one operator in torch: its trampoline, schema, kernels and out= overload, or its packed operator. Returns a status.
 */
static int register_operator(dv_torch_library *reg, const dv_library *lib, dv_operator *op, uint32_t flags)
{
    const size_t slots = dv_operator_nargs(op) + dv_operator_nresults(op);
    struct dv__torch_op *o = calloc(1, sizeof *o + slots * sizeof *o->slots);
    if (!o)
        return dv_fail(DV_ENOMEM, "out of memory");
    struct registered_op *e =
        &reg->entries[reg->n++]; /* the entry is counted at once, so that dv_torch_unregister() frees it after a failure */
    int status = register_describe_slots(reg->t, op, false, o);
    e->is_packed = status == DV_ENOTSUP && flags & DV_TORCH_PACK_UNSUPPORTED;
    if (e->is_packed) {
        o->mutates = false;
        status = register_describe_slots(reg->t, op, true, o);
    }
    if (!status)
        status = trampoline_take_free_number(o->name, &e->number);
    if (status) {
        free(o);
        return register_skip_or_fail(e, op, status, flags);
    }
    o->t = reg->t;
    o->op = dv_operator_ref(op);
    e->name = o->name;
    e->op = o;
    const struct dv__torch_op *old = atomic_exchange_explicit(&trampoline_operators[e->number], o, memory_order_acq_rel);
    if (old)
        dv_operator_unref(old->op);
    free((void *)(uintptr_t)(const void *)old);
    if (e->is_packed)
        return register_packed_operator(reg, lib, e);
    status = register_define(reg->t, reg->own.definitions, op, dv_operator_schema(op), "");
    if (status)
        return register_skip_or_fail(e, op, status, flags);
    status = register_kernels(reg->t, &reg->own, o, o->name, e->number);
    e->autograd = reg->autograd &&
        !op_has_generator_argument(o); /* host/python.c cannot make a Python Generator from libtorch's handle */
    if (!status && e->autograd &&
        reg->t->torch_library_impl(reg->autograd, name_without_namespace(o->name), autograd_trampolines[e->number], DV_TORCH_ABI))
        status = register_fail_refused(reg->t, o->name, "the kernel");
    return status ? status : register_out_overload(reg, lib, e);
}

int dv_torch_register(dv_library *lib, uint32_t flags, dv_torch_library **out)
{
    *out = NULL;
    const struct dv__torch_shims *t = dv__torch_get_shims();
    if (!t)
        return dv_torch_available();
    const size_t n = dv_library_noperators(lib);
    dv_torch_library *registered = calloc(1, sizeof *registered + n * sizeof *registered->entries);
    if (!registered)
        return dv_fail(DV_ENOMEM, "out of memory");
    registered->t = t;
    int status = torch_namespace_open(t, "", dv_library_name(lib), &registered->own);
    if (!status && !(flags & DV_TORCH_NO_AUTOGRAD) && t->exclude_key && t->torch_call_dispatcher && t->requires_grad &&
        t->aoti_torch_library_init_impl(registered->own.ns, "Autograd", "dovetail", 0, &registered->autograd))
        status = register_fail_refused(t, registered->own.ns, "the namespace");
    for (size_t i = 0; !status && i < n; i++)
        status = register_operator(registered, lib, dv_library_operator(lib, i), flags);
    if (status) {
        char message[1024];
        snprintf(message, sizeof message, "%s", dv_last_error());
        dv_torch_unregister(registered);
        return dv_fail(status, "%s", message);
    }
    *out = registered;
    return DV_OK;
}

void dv_torch_unregister(dv_torch_library *reg)
{
    if (!reg)
        return;
    torch_namespace_close(reg->t, &reg->own);
    torch_namespace_close(reg->t, &reg->packed_namespace);
    if (reg->autograd)
        reg->t->aoti_torch_delete_library_object(reg->autograd);
    for (size_t i = 0; i < reg->n; i++) {
        if (reg->entries[i].op)
            trampoline_release_number(reg->entries[i].number);
        free(reg->entries[i].out);
        free(reg->entries[i].refusal);
    }
    free(reg);
}

/* Returns the entry of the operator "ns::name.overload", even if it was left out; NULL: the library has no such operator. */
static const struct registered_op *registration_find_entry(const dv_torch_library *reg, const char *name)
{
    for (size_t i = 0; i < reg->n; i++)
        if (!strcmp(reg->entries[i].name, name))
            return &reg->entries[i];
    return NULL;
}

const char *dv_torch_skip_reason(const dv_torch_library *reg, const char *name)
{
    const struct registered_op *e = registration_find_entry(reg, name);
    return e ? e->refusal : NULL;
}

/* Returns the entry of the operator "ns::name.overload"; NULL: the library has no such operator, or it was left out. */
static const struct registered_op *registration_find_accepted(const dv_torch_library *reg, const char *name)
{
    const struct registered_op *e = registration_find_entry(reg, name);
    return e && !e->refusal ? e : NULL;
}

bool dv_torch_has_packed(const dv_torch_library *reg, const char *name)
{
    const struct registered_op *e = registration_find_accepted(reg, name);
    return e && e->is_packed;
}

const char *dv_torch_get_out_schema(const dv_torch_library *reg, const char *name)
{
    const struct registered_op *e = registration_find_accepted(reg, name);
    return e ? e->out : NULL;
}

bool dv_torch_has_autograd_kernel(const dv_torch_library *reg, const char *name)
{
    const struct registered_op *e = registration_find_accepted(reg, name);
    return e && e->autograd;
}

void dv_torch_set_autograd(dv_torch_library *reg, const char *name, void *python, void *gradient)
{
    const struct registered_op *e = registration_find_accepted(reg, name);
    if (e) {
        atomic_store(&e->op->python, python);
        atomic_store(&e->op->gradient, gradient);
    }
}

/* Registers the fallback kernel of the packed operator whose unpacked name is given. Returns a status. */
static int register_packed_fallback_kernel(const dv_torch_library *reg, const struct registered_op *e, const char *unpacked_name)
{
    char name[512];
    snprintf(name, sizeof name, "%s%s", DV_TORCH_PACKED_PREFIX, unpacked_name);
    return register_fallback_kernel(reg->t, &reg->packed_namespace, name, e->number);
}

int dv_torch_set_decomposition(dv_torch_library *reg, const char *name, void *python)
{
    const struct registered_op *e = registration_find_accepted(reg, name);
    if (!e)
        return DV_OK;
    const bool first = python && !atomic_load(&e->op->decomposition);
    atomic_store(&e->op->decomposition, python);
    if (!first)
        return DV_OK;
    char overload[256];
    int status = DV_OK;
    out_overload_print_full_name(e->op, overload, sizeof overload);
    if (!op_can_be_called_without_tensor(e->op)) /* else register_kernels() has registered the fallback kernel */
        status = e->is_packed ? register_packed_fallback_kernel(reg, e, e->name)
                              : register_fallback_kernel(reg->t, &reg->own, e->name, e->number);
    if (!status && e->has_out_overload)
        status = e->is_packed ? register_packed_fallback_kernel(reg, e, overload)
                              : register_fallback_kernel(reg->t, &reg->own, overload, e->number);
    return status;
}

void dv_torch_set_overridden(dv_torch_library *reg, const char *name, bool is_overridden)
{
    const struct registered_op *e = registration_find_accepted(reg, name);
    if (e)
        atomic_store(&e->op->overridden, is_overridden);
}

const struct dv__torch_op *dv_torch_find_operator(const dv_torch_library *reg, const char *name)
{
    const struct registered_op *e = registration_find_accepted(reg, name);
    return e ? e->op : NULL;
}
