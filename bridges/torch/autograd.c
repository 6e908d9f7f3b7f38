/* Most calls need no gradient and have only plain tensors: then the operator runs directly, without a second dispatch. Other
 * calls go to Python (dovetail.torch.autograd). In a process without Python they go to the operator below the Autograd keys, and
 * a required gradient is an error; it is never dropped silently.
 */
#include "autograd.h"

#include <stdio.h>

static _Atomic(dv__torch_python) python;

static void set_python(dv__torch_python to) { atomic_store(&python, to); }

dv__torch_python dv__torch_into_python(void) { return atomic_load(&python); }

const struct dv__torch_exchange *dv_torch_exchange(void)
{
    static const struct dv__torch_exchange exchange = { set_python, dv__torch_release, dv__torch_release_arguments,
        dv__torch_box };
    return &exchange;
}

/* Calls each() for every tensor among the arguments, until it returns true. */
static bool any_tensor(const struct dv__torch_op *op, const uint64_t *stack,
    bool (*each)(const struct dv__torch_op *op, const struct dv__torch_slot *s, const void *handle, void *with), void *with)
{
    for (size_t i = 0; i < op->nargs; i++) {
        const struct dv__torch_slot *s = &op->slots[i];
        const bool list = s->field == DV_FIELD_TENSORS;
        if ((s->field != DV_FIELD_TENSOR && !list) || (s->optional && !stack[i]))
            continue;
        const uint64_t cell = s->optional ? *(const uint64_t *)(uintptr_t)stack[i] : stack[i];
        size_t n = 1;
        if (list && op->t->torch_list_size((void *)(uintptr_t)cell, &n))
            return true;
        for (size_t k = 0; k < n; k++) {
            uint64_t item = cell;
            if (list && op->t->torch_list_get_item((void *)(uintptr_t)cell, k, &item))
                return true;
            if (list && s->element_optional && item)
                item = *(const uint64_t *)(uintptr_t)item;
            if (item && each(op, s, (const void *)(uintptr_t)item, with))
                return true;
        }
    }
    return false;
}

static bool worst_way(const struct dv__torch_op *op, const struct dv__torch_slot *s, const void *handle, void *with)
{
    enum dv__torch_way *way = with;
    const enum dv__torch_way found = dv__torch_way_of(handle, s->writes);
    (void)op;
    if (found > *way)
        *way = found;
    return *way == DV__TORCH_OTHER;
}

static enum dv__torch_way way_of(const struct dv__torch_op *op, const uint64_t *stack)
{
    enum dv__torch_way way = DV__TORCH_PLAIN;
    if (op->views || atomic_load(&op->overridden) || !dv__torch_thread_is_plain() || any_tensor(op, stack, worst_way, &way))
        return DV__TORCH_OTHER;
    return way;
}

static bool requires_grad(const struct dv__torch_op *op, const struct dv__torch_slot *s, const void *handle, void *with)
{
    (void)s, (void)with;
    return op->t->requires_grad(*(const void *const *)handle);
}

static void without_python(const struct dv__torch_op *op, uint64_t *stack)
{
    const struct dv__torch_shims *t = op->t;
    char name[256];
    if (t->aoti_torch_grad_mode_is_enabled() && any_tensor(op, stack, requires_grad, NULL)) {
        dv__torch_release_arguments(op, stack, op->nargs);
        snprintf(
            name, sizeof name, "%s: a gradient is wanted, which needs Python: call it in a no-grad or inference mode", op->name);
        t->aoti_torch_check(false, op->name, "dovetail", 0, name);
    }
    snprintf(name, sizeof name, "%.*s", (int)strcspn(op->name, "."), op->name);
    t->exclude_key(t->autograd_key, true);
    const int32_t failed = t->torch_call_dispatcher(
        name, op->overload, stack, DV_TORCH_ABI); /* takes the arguments in every case */
    t->exclude_key(t->autograd_key, false);
    if (failed)
        t->aoti_torch_check(false, op->name, "dovetail", 0, dv__torch_what(t));
}

void dv__torch_autograd(const struct dv__torch_op *op, uint64_t *stack)
{
    const enum dv__torch_way way = way_of(op, stack);
    const dv__torch_python enter = atomic_load(&python);
    if (way == DV__TORCH_PLAIN)
        dv__torch_call(op, stack, op->nargs);
    else if (enter)
        enter(op, way == DV__TORCH_GRADIENT && !atomic_load(&op->gradient) ? DV__TORCH_OTHER : way, stack, op->nargs);
    else
        without_python(op, stack);
}
