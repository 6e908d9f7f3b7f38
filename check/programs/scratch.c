#include "outs.h"
#include "order.h"

/* What the last piece left in its memory, which the next pieces get. */
static struct {
    void *memory;
    size_t bytes, n;
    unsigned char data[1 << 16];
} left;

static void *lend_used(const dv_host *host, int use, int slot, size_t bytes, size_t alignment)
{
    void *p = lend(host, use, slot, bytes, alignment);
    if (!p || use != DV_MEMORY_SCRATCH)
        return p;
    memcpy(p, left.data, bytes < left.n ? bytes : left.n);
    left.memory = p;
    left.bytes = bytes;
    return p;
}

static void keep_used(const dv_host *host, void *p)
{
    if (p == left.memory) {
        left.n = left.bytes < sizeof left.data ? left.bytes : sizeof left.data;
        memcpy(left.data, p, left.n);
    }
    keep(host, p);
}

static int question(dv_operator *op, dv_value *results)
{
    static outs first;
    if (call_again(op, ROW, results))
        return fprintf(stderr, "%s\n", dv_last_error()), 0;
    take(&first, results);
    loop = in_order;
    alloc = lend_used;
    take_back = keep_used;
    which = 1; /* other contents */
    call_again(op, ROW, results);
    which = 0;
    if (differs_again(&first, op, ROW, results))
        return 1;
    return puts("the fault does not show"), 0;
}
