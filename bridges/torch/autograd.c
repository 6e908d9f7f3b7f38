/* Kernels on the Autograd keys. A call that needs no gradient and has only plain tensors runs the operator directly, without a
 * second dispatch. All other calls go to Python (dovetail.torch.autograd). In a process without Python, these calls go to the
 * dispatcher below the Autograd keys, and a call that needs a gradient fails: no gradient is dropped silently. */
#include "autograd.h"

#include <stdio.h>

/* Returns true if predicate() does so for some tensor among the arguments, also in lists; later tensors are then skipped. Returns
 * true, too, if a list cannot be read. */
static bool autograd_has_argument_tensor_where(const struct dv__torch_op *op, const uint64_t *stack,
    bool (*predicate)(const struct dv__torch_op *op, const struct dv__torch_slot *s, const void *handle, void *user), void *user)
{
    for (size_t i = 0; i < op->nargs; i++) {
        const struct dv__torch_slot *s = &op->slots[i];
        const bool list = s->field == DV_FIELD_TENSORS;
        if ((s->field != DV_FIELD_TENSOR && !list) || ((s->info.flags & DV_SLOT_OPTIONAL) && !stack[i]))
            continue;
        const uint64_t cell = (s->info.flags & DV_SLOT_OPTIONAL) ? *(const uint64_t *)(uintptr_t)stack[i] : stack[i];
        size_t n = 1;
        if (list && op->t->torch_list_size((void *)(uintptr_t)cell, &n))
            return true;
        for (size_t k = 0; k < n; k++) {
            uint64_t item = cell;
            if (list && op->t->torch_list_get_item((void *)(uintptr_t)cell, k, &item))
                return true;
            if (list && (s->info.flags & DV_SLOT_ELEMENT_OPTIONAL) && item)
                item = *(const uint64_t *)(uintptr_t)item;
            if (item && predicate(op, s, (const void *)(uintptr_t)item, user))
                return true;
        }
    }
    return false;
}

/* Replaces *path_in_out by the path that this tensor requires, if that is slower. Returns true if the path is decided: it is
 * DISPATCHER, and no other tensor can change it. */
static bool autograd_try_decide_path_by_tensor(
    const struct dv__torch_op *op, const struct dv__torch_slot *s, const void *handle, void *path_in_out)
{
    enum dv__torch_path *path = path_in_out;
    const enum dv__torch_path found = dv__torch_choose_path(handle, s->info.flags & DV_SLOT_WRITES);
    (void)op;
    if (found > *path)
        *path = found;
    return *path == DV__TORCH_PATH_DISPATCHER;
}

/* Returns the fastest path that all arguments, the thread and the operator allow. */
static enum dv__torch_path autograd_choose_path(const struct dv__torch_op *op, const uint64_t *stack)
{
    enum dv__torch_path path = DV__TORCH_PATH_KERNEL;
    if (op->views || atomic_load(&op->overridden) || !dv__torch_is_thread_plain() ||
        autograd_has_argument_tensor_where(op, stack, autograd_try_decide_path_by_tensor, &path))
        return DV__TORCH_PATH_DISPATCHER;
    return path;
}

static bool autograd_tensor_requires_grad(
    const struct dv__torch_op *op, const struct dv__torch_slot *s, const void *handle, void *unused)
{
    (void)s, (void)unused;
    return op->t->requires_grad(*(const void *const *)handle);
}

/* Runs a call that is not plain in a process without Python: torch's dispatcher calls the kernel below the Autograd keys. Throws
 * if a gradient is needed. */
static void autograd_run_without_python(const struct dv__torch_op *op, uint64_t *stack)
{
    const struct dv__torch_shims *t = op->t;
    char name[256];
    if (t->aoti_torch_grad_mode_is_enabled() &&
        autograd_has_argument_tensor_where(op, stack, autograd_tensor_requires_grad, NULL)) {
        dv__torch_release_arguments(op, stack, op->nargs);
        snprintf(
            name, sizeof name, "%s: a gradient is wanted, which needs Python: call it in a no-grad or inference mode", op->name);
        t->aoti_torch_check(false, op->name, "dovetail", 0, name);
    }
    snprintf(name, sizeof name, "%.*s", (int)strcspn(op->name, "."), op->name);
    t->exclude_key(t->autograd_key, true);
    const int32_t failed = t->torch_call_dispatcher(name, op->overload, stack,
        DV_TORCH_ABI); /* torch_call_dispatcher() takes ownership of the arguments, also when it fails */
    t->exclude_key(t->autograd_key, false);
    if (failed)
        t->aoti_torch_check(false, op->name, "dovetail", 0, dv__torch_get_last_error(t));
}

void dv__torch_call_on_autograd_key(const struct dv__torch_op *op, uint64_t *stack)
{
    const enum dv__torch_path path = autograd_choose_path(op, stack);
    const dv__torch_python_fn enter = dv__torch_get_python_fn();
    if (path == DV__TORCH_PATH_KERNEL)
        dv__torch_call(op, stack, op->nargs);
    else if (enter)
        enter(op, path == DV__TORCH_PATH_AUTOGRAD && !atomic_load(&op->gradient) ? DV__TORCH_PATH_DISPATCHER : path, stack,
            op->nargs);
    else
        autograd_run_without_python(op, stack);
}
