#include "outs.h"
#include "tensors.h"

/* Tensor AXIS lies in the memory of tensor SLOT, which is written unless both are one: it begins AT elements behind its first. */

static bool together;
static char *memory, *before; /* what both have, and a copy */

static void share(void)
{
    dv_tensor *to = tensor(SLOT), *from = tensor(AXIS);
    const int64_t size = dv_dtype_bytes(to->dtype, 1), n = dv_numel(to), end = AT + dv_numel(from), low = AT < 0 ? AT : 0,
                  high = end > n ? end : n;
    memory = guarded((size_t)((high - low) * size), (size_t)size, 0);
    char *const first = memory - low * size, *const second = memory + (AT - low) * size;
    memcpy(first, to->data, (size_t)(n * size));
    memcpy(second, from->data, (size_t)((end - AT) * size));
    free(before);
    before = malloc((size_t)((high - low) * size));
    if (!before)
        exit(2);
    memcpy(before, memory, (size_t)((high - low) * size));
    if (together) {
        to->data = first;
        from->data = second;
    } else {
        to->data = memcpy(guarded((size_t)(n * size), (size_t)size, 0), first, (size_t)(n * size)); /* it may be read-only */
    }
}

/* Elements of the tensor that is read, and not in the one that is written. */
static int changed_beside(void)
{
    const dv_tensor *to = tensor(SLOT), *from = tensor(AXIS);
    const int64_t size = dv_dtype_bytes(to->dtype, 1), n = dv_numel(to), end = AT + dv_numel(from), low = AT < 0 ? AT : 0;
    return memcmp(memory, before, (size_t)(-low * size)) ||
        (end > n && memcmp(memory + (n - low) * size, before + (n - low) * size, (size_t)((end - n) * size)));
}

static int question(dv_operator *op, dv_value *results)
{
    static outs a, b;
    change = share;
    if (call(op, ROW, results))
        return fprintf(stderr, "%s\n", dv_last_error()), 0;
    take(&a, results);
    together = true;
    if (call(op, ROW, results))
        return fprintf(stderr, "%s\n", dv_last_error()), 0;
    take(&b, results);
    if (differ(&a, &b, -1, 0, ATOL) || changed_beside())
        return 1;
    return puts("the fault does not show"), 0;
}
