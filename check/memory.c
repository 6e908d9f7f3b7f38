/* Memory that knows its bounds.
 *
 * One large range of addresses is reserved. Each tensor of a call gets pages of its own in it, with inaccessible pages on both
 * sides, and is placed against one of the two; in another run against the other. Inputs are made read-only once they are filled.
 * So are their sizes, strides, lists and words: a kernel that takes a tensor for one of more dims, or a list for a longer one, is
 * caught as well. The workspace and what a kernel gets from dv_alloc() come from here too, by the host's hooks; malloc()'s memory
 * is in heap.c. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "check.h"

enum {
    PAGE = 4096,
    GUARD = 16 * PAGE,
    REGIONS = 4096,
    MANY = 64, /* regions. With more, scratch memory that was returned is used again */
    GAP = 0xc3,
    FAR_BYTES = 1 << 28,
    SPAN = 1 << 18,
    CHUNK = 1 << 24,
    STAY = 1 << 26,
    STACK = 1 << 16,
    LEFT = 1 << 16
};
/* Tensors are in the middle, so that an index that wraps at 2^32 elements stays inside the range. */
static const size_t AREA = (size_t)1 << 36, BEGIN = (size_t)1 << 35;

/* SIZES and STRIDES: index is of the tensor, or OF_RESULT + that of the result. LISTED: what a list or a string argument points
 * to. */
enum use { ARGUMENT, RESULT, TEMPORARY, WORKSPACE, KERNEL, SCRATCH, STAND_IN, SIZES, STRIDES, LISTED };
enum { OF_RESULT = CHECK_TENSORS };
typedef struct region {
    uintptr_t begin, end;  /* pages */
    uintptr_t data, first; /* lowest byte; first element */
    size_t bytes, margin;  /* margin: for far memory, the reserved bytes before it */
    enum use use;
    size_t index;  /* of the tensor in the case, of the result, of the argument */
    bool sealed;   /* its pages are not to be written */
    bool returned; /* the scratch of a piece that has returned: its pages are inaccessible */
} region;

typedef struct made_tensor {
    dv_tensor t, as_made;
    int index;
    bool view;
    struct made_tensor *next;
    int64_t own[]; /* of a temporary: its sizes, then its strides */
} made_tensor;

/* Where tensors of earlier calls were. */
enum { EARLIER = 1024, NEAR = 64 };
static struct {
    size_t n;
    struct range { uintptr_t begin, end; } of[EARLIER];
} earlier;

/* The host, and everything of the call that runs. */
static struct machine {
    dv_host host;
    dv_test_hooks hooks; /* of host */
    check_call *call;
    const check_case *c;
    uintptr_t area, used, mapped;
    uintptr_t far; /* where the first far memory was, or where the last ends: qemu keeps some bytes for each page ever mapped */
    region regions[REGIONS];
    size_t nregions, nkept; /* nkept: as many of them, up to `mapped`, are still as the last call left them */
    made_tensor *made;
    bool in_kernel;
    check_values values;
    pthread_mutex_t lock;
    uint8_t left[LEFT]; /* the first bytes that the last piece of a call with used_scratch left in its memory */
    size_t nleft;
} machine = { .lock = PTHREAD_MUTEX_INITIALIZER };

static bool reserve(struct machine *m)
{
    if (m->area)
        return true;
    void *p = mmap(NULL, AREA, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        return false;
    m->area = (uintptr_t)p;
    m->used = m->area + BEGIN;
    return true;
}

static void *as_pointer(uintptr_t p) { return (void *)p; }

/* [begin, end) is inaccessible again. Low pages stay, for the next to get them: to map fresh ones takes longest of all. */
static void close_pages(const struct machine *m, uintptr_t begin, uintptr_t end)
{
    const uintptr_t stay = m->area + BEGIN + STAY, middle = end < stay ? end : begin > stay ? begin : stay;
    if (middle > begin)
        mprotect(as_pointer(begin), middle - begin, PROT_NONE);
    if (end > middle)
        mmap(as_pointer(middle), end - middle, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

/* What the last call left from here on is inaccessible again. */
static void drop_kept(struct machine *m)
{
    if (m->mapped > m->used)
        close_pages(m, m->used, m->mapped);
    m->mapped = m->used;
    m->nkept = m->nregions;
}

/* Before a call. The memory of the last one is kept: where the next needs the same pages, they need not be mapped again. */
static void reset(struct machine *m)
{
    for (made_tensor *t = m->made, *next; t; t = next) {
        next = t->next;
        free(t);
    }
    m->made = NULL;
    m->nkept = m->nkept > m->nregions ? m->nkept : m->nregions;
    m->mapped = m->mapped > m->used ? m->mapped : m->used;
    for (size_t i = m->nregions; i-- > 0;)
        if (m->regions[i].margin) {
            munmap(as_pointer(m->regions[i].begin - m->regions[i].margin),
                m->regions[i].end - m->regions[i].begin + 2 * m->regions[i].margin);
            m->far = m->regions[i].begin - m->regions[i].margin;
            m->nkept = i;
        }
    for (size_t i = 0; i < m->nregions; i++)
        if (m->regions[i].use == ARGUMENT || m->regions[i].use == RESULT)
            earlier.of[earlier.n++ % EARLIER] = (struct range){ m->regions[i].data, m->regions[i].data + m->regions[i].bytes };
    m->used = m->area + BEGIN;
    m->nregions = 0;
}

/* Is it far from this memory, and where arguments and results of earlier calls were? */
static bool was_of_earlier_call(const region *r, uintptr_t at)
{
    bool was = false;
    for (size_t i = 0; i < EARLIER && i < earlier.n; i++)
        was |= at >= earlier.of[i].begin && at < earlier.of[i].end;
    return was && (at + NEAR < r->data || at >= r->data + r->bytes + NEAR);
}

const char *check_earlier(bool is) { return is ? ", where an argument or result of an earlier call was" : ""; }

/* ---- Far memory: more addresses than bytes ---- */

enum access {
    NOWHERE,
    ZEROS,
    ONE_CHUNK
}; /* ZEROS: to be read; ONE_CHUNK: the same pages again and again, but for the last bytes */

/* All of [begin, end) is the same few pages. */
static bool map_chunks(uintptr_t begin, uintptr_t end)
{
    void *chunk = mmap(NULL, CHUNK, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    bool done = chunk != MAP_FAILED;
    for (uintptr_t p = begin; p < end && done; p += CHUNK) /* of shared pages, an old size of 0 maps them once more */
        done = mremap(chunk, 0, end - p < CHUNK ? end - p : CHUNK, MREMAP_MAYMOVE | MREMAP_FIXED, as_pointer(p)) != MAP_FAILED;
    if (chunk != MAP_FAILED)
        munmap(chunk, CHUNK);
    return done;
}

/* Against the upper guard page, and before it as many addresses as an index of 32 bits can be wrong by. */
static region *lend_far(struct machine *m, size_t bytes, size_t size, enum use use, size_t index, enum access access)
{
    const size_t pages = (bytes + PAGE - 1) / PAGE * PAGE, margin = (size << 31) + GUARD;
    struct rlimit limit;
    if (!getrlimit(RLIMIT_AS, &limit)) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_AS, &limit);
    }
    if (m->nregions == REGIONS)
        return NULL;
    void *p = mmap(as_pointer(m->far), pages + 2 * margin, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    m->far = (uintptr_t)p + pages + 2 * margin;
    region *r = &m->regions[m->nregions++];
    *r = (region){ .begin = (uintptr_t)p + margin,
        .end = (uintptr_t)p + margin + pages,
        .bytes = bytes,
        .margin = margin,
        .use = use,
        .index = index };
    r->data = r->first = r->end - bytes;
    if (access == ZEROS && mprotect(as_pointer(r->begin), pages, PROT_READ))
        return NULL;
    const void *last = as_pointer(r->end - GUARD);
    if (access == ONE_CHUNK &&
        (!map_chunks(r->begin, r->end) ||
            mmap((void *)(uintptr_t)last, GUARD, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
                MAP_FAILED))
        return NULL;
    return r;
}

/* Of a tensor whose elements lie far apart along one dim: the pages where they are. */
static bool open_elements(const region *r, const check_tensor *t, const int64_t *strides, int protection)
{
    const int32_t dim = check_far_dim(t);
    const int64_t size = dv_dtype_bytes(t->dtype, 1), bytes = check_numel(t) / t->shape[dim] * size;
    for (int64_t k = 0; k < t->shape[dim]; k++) {
        const uintptr_t at = r->first + (uintptr_t)(k * strides[dim] * size), page = at / PAGE * PAGE;
        if (mprotect(as_pointer(page), at - page + (size_t)bytes, protection))
            return false;
    }
    return true;
}

static bool make_far_argument(struct machine *m, size_t i, size_t bytes, bool written)
{
    const check_tensor *t = &m->c->tensors[i];
    const bool apart = t->layout == CHECK_FAR && check_far_dim(t) >= 0;
    region *r = lend_far(m, bytes, (size_t)dv_dtype_bytes(t->dtype, 1), ARGUMENT, i,
        apart         ? NOWHERE
            : written ? ONE_CHUNK
                      : ZEROS);
    if (!r)
        return false;
    m->values.tensors[i].data = as_pointer(r->first);
    if (!apart)
        return true;
    if (!open_elements(r, t, m->values.strides[i], PROT_READ | PROT_WRITE))
        return false;
    check_fill_tensor(t, m->c->seed + i, as_pointer(r->first), m->values.strides[i]);
    return written || open_elements(r, t, m->values.strides[i], PROT_READ);
}

/* ---- Near memory ---- */

static uintptr_t after(const region *r) { return (r->end + GUARD + SPAN - 1) / SPAN * SPAN; }

/* Addresses for so many bytes. *kept: with the pages of the last call there. NULL: too much. */
static region *place(struct machine *m, size_t bytes, size_t alignment, enum use use, size_t index, region *kept)
{
    region *r = NULL;
    pthread_mutex_lock(&m->lock);
    /* What a kernel asks for is aligned as it asks, and in half of the cases no better; nor is an argument aligned better than
     * its elements in half of the cases, where the end of its memory would align it, unless the call says otherwise. */
    bool apart = m->call->end == CHECK_AT_END &&
        (use >= WORKSPACE && use <= SCRATCH ? m->c->seed & 2
                                            : use == ARGUMENT && !m->call->ends_at_guard && check_arguments_apart(m->c));
    for (size_t i = 0; i < m->nregions && apart; i++)
        apart = !m->regions[i].margin; /* one of few such calls: its bounds matter more */
    const size_t pages = (bytes + (apart ? 2 : 1) * alignment - 1 + PAGE - 1) / PAGE * PAGE;
    if (m->nregions < REGIONS && bytes < AREA && m->used + 2 * GUARD + SPAN + pages < m->area + AREA) {
        const uintptr_t begin = m->used + GUARD, end = begin + (bytes ? pages : 0);
        region one = { .begin = begin, .end = end, .bytes = bytes, .use = use, .index = index };
        r = &m->regions[m->nregions];
        *kept = *r;
        if (m->nregions >= m->nkept || r->begin != begin || after(r) != after(&one))
            drop_kept(m);
        else if (r->end != end && r->end > begin)
            close_pages(m, begin, r->end);
        if (m->nregions >= m->nkept || r->end != end)
            *kept = (region){ .begin = 0 };
        *r = one;
        r->data = m->call->end == CHECK_AT_END ? (end - bytes) / alignment * alignment : begin;
        r->first = r->data -= apart && r->data / alignment % 2 == 0 && r->data - alignment >= begin ? alignment : 0;
        m->nregions++;
        m->used = after(r);
    }
    pthread_mutex_unlock(&m->lock);
    return r;
}

/* Each byte of it is `inside`, and GAP around it. */
static bool open_pages(region *r, const region *kept, int inside)
{
    if (r->bytes && (!kept->begin || kept->sealed) && mprotect(as_pointer(r->begin), r->end - r->begin, PROT_READ | PROT_WRITE)) {
        r->end = r->begin;
        return false;
    }
    memset(as_pointer(r->begin), GAP, r->data - r->begin);
    memset(as_pointer(r->data), inside, r->bytes);
    if (r->bytes)
        memset(as_pointer(r->data + r->bytes), GAP, r->end - r->data - r->bytes);
    return true;
}

static bool seal(region *r)
{
    r->sealed = r->bytes && !mprotect(as_pointer(r->begin), r->end - r->begin, PROT_READ);
    return r->sealed || !r->bytes;
}

/* The same bytes are there, from the last call, and could not be written. */
static bool has_kept(region *r, const region *kept, const void *data)
{
    r->sealed = kept->sealed && !kept->returned && kept->data == r->data && kept->bytes == r->bytes &&
        !memcmp(as_pointer(r->data), data, r->bytes);
    return r->sealed;
}

/* New memory, poisoned. NULL: too much. */
static region *lend(struct machine *m, size_t bytes, size_t alignment, enum use use, size_t index)
{
    region kept, *r = place(m, bytes, alignment, use, index, &kept);
    return r && open_pages(r, &kept, m->call->poison) ? r : NULL;
}

/* A read-only copy. NULL: too large. */
static const void *lend_copy(struct machine *m, const void *data, size_t bytes, size_t alignment, enum use use, size_t index)
{
    region kept, *r = place(m, bytes, alignment, use, index, &kept);
    if (r && !has_kept(r, &kept, data)) {
        if (!open_pages(r, &kept, GAP))
            return NULL;
        if (bytes)
            memcpy(as_pointer(r->data), data, bytes);
        seal(r);
    }
    return r ? as_pointer(r->data) : NULL;
}

/* ---- The host ---- */

static made_tensor *new_header(
    struct machine *m, int index, dv_dtype dtype, dv_device device, int32_t ndim, const int64_t *shape, const int64_t *strides)
{
    const size_t bytes = sizeof *shape * (size_t)ndim, of = OF_RESULT + (size_t)index;
    const bool temporary = index < 0; /* which a native form makes: kernels of the base set see it, and no row under check */
    made_tensor *t = calloc(1, sizeof *t + (temporary ? 2 * bytes : 0));
    const int64_t *sizes = !t ? NULL : temporary ? t->own : lend_copy(m, shape, bytes, sizeof *shape, SIZES, of);
    const int64_t *steps = !sizes ? NULL : temporary ? t->own + ndim : lend_copy(m, strides, bytes, sizeof *strides, STRIDES, of);
    if (!steps) {
        free(t);
        return NULL;
    }
    if (temporary && ndim) {
        memcpy(t->own, shape, bytes);
        memcpy(t->own + ndim, strides, bytes);
    }
    t->t = (dv_tensor){ .device = device, .ndim = ndim, .dtype = dtype, .shape = sizes, .strides = steps };
    t->index = index;
    t->next = m->made;
    m->made = t;
    return t;
}

static int new_tensor(const dv_host *host, int index, dv_dtype dtype, dv_device device, int32_t ndim, const int64_t *shape,
    const int64_t *strides, dv_tensor **out)
{
    struct machine *m = &machine;
    int64_t last = 0, n = 1;
    (void)host;
    for (int32_t i = 0; i < ndim; i++) {
        last += (shape[i] - 1) * strides[i];
        n *= shape[i];
    }
    const int64_t bytes = n ? dv_dtype_bytes(dtype, last + 1) : 0;
    made_tensor *t = new_header(m, index, dtype, device, ndim, shape, strides);
    const size_t alignment = dtype.bits >= 8 ? dtype.bits / 8u : 1;
    const enum use use = index < 0 ? TEMPORARY : RESULT;
    region *r = !t          ? NULL
        : bytes < FAR_BYTES ? lend(m, (size_t)bytes, alignment, use, (size_t)index)
                            : lend_far(m, (size_t)bytes, (size_t)dv_dtype_bytes(dtype, 1), use, (size_t)index, ONE_CHUNK);
    if (!r)
        return dv_fail(DV_ENOMEM, "out of memory: %lld bytes", (long long)bytes);
    if (r->margin)
        memset(as_pointer(r->data + r->bytes - GUARD), m->call->poison, GUARD);
    t->t.data = as_pointer(r->data);
    t->as_made = t->t;
    *out = &t->t;
    return DV_OK;
}

static int new_view(const dv_host *host, int index, const dv_tensor *base, int32_t ndim, const int64_t *shape,
    const int64_t *strides, int64_t offset, dv_tensor **out)
{
    (void)host;
    made_tensor *t = new_header(&machine, index, base->dtype, base->device, ndim, shape, strides);
    if (!t)
        return dv_fail(DV_ENOMEM, "out of memory");
    t->t.data = (char *)base->data + offset * dv_dtype_bytes(base->dtype, 1);
    t->as_made = t->t;
    t->view = true;
    *out = &t->t;
    return DV_OK;
}

static void free_tensor(const dv_host *host, dv_tensor *t) /* with the next call */
{
    (void)host;
    (void)t;
}

static void *lend_to_kernel(const dv_host *host, int use, int slot, size_t bytes, size_t alignment)
{
    (void)host;
    static const enum use uses[] = { [DV_MEMORY_STAND_IN] = STAND_IN,
        [DV_MEMORY_WORKSPACE] = WORKSPACE,
        [DV_MEMORY_KERNEL] = KERNEL,
        [DV_MEMORY_SCRATCH] = SCRATCH };
    struct machine *m = &machine;
    region *r = bytes < FAR_BYTES ? lend(m, bytes, alignment < PAGE ? alignment : PAGE, uses[use], (size_t)slot) : NULL;
    if (r && r->use == SCRATCH) {
        m->call->lent_scratch = true;
        if (m->call->used_scratch)
            memcpy(as_pointer(r->data), m->left, bytes < m->nleft ? bytes : m->nleft);
    }
    return r ? as_pointer(r->data) : NULL;
}

static bool slack_changed(const region *r, const uint8_t **at)
{
    *at = check_first_other(r->begin, r->data, GAP);
    *at = *at ? *at : check_first_other(r->data + r->bytes, r->end, GAP);
    return *at;
}

/* Most memory is free with the next call. That of a piece is now, and where there is much of it, that of a slice, unless it has
 * to tell of a fault: it becomes inaccessible, or the next to be lent. */
static void take_back(const dv_host *host, void *p)
{
    struct machine *m = &machine;
    const uint8_t *at;
    (void)host;
    pthread_mutex_lock(&m->lock);
    const size_t n = m->nregions;
    const uintptr_t used = m->used;
    for (size_t i = n; i-- > 0;) {
        region *r = &m->regions[i];
        if ((r->use != SCRATCH && n <= MANY) || r->data != (uintptr_t)p || r->returned)
            continue;
        if (slack_changed(r, &at))
            break;
        if (m->call->used_scratch && r->use == SCRATCH) {
            m->nleft = r->bytes < LEFT ? r->bytes : LEFT;
            memcpy(m->left, as_pointer(r->data), m->nleft);
        }
        r->sealed = (i < n - 1 || n <= MANY) && !mprotect(as_pointer(r->begin), r->end - r->begin, PROT_NONE);
        r->returned = true;
        break;
    }
    while (m->nregions > MANY && m->regions[m->nregions - 1].returned)
        m->used = m->regions[--m->nregions].begin - GUARD;
    if (m->nregions < n) {
        m->nkept = n;
        m->mapped = used;
    }
    pthread_mutex_unlock(&m->lock);
}

/* What lies below on the stack, where the kernel's variables will be. */
__attribute__((noinline)) static void fill_stack(uint8_t poison)
{
    uint8_t below[STACK];
    memset(below, poison, sizeof below);
    __asm__ volatile("" ::"r"(below) : "memory"); /* it is used */
}

/* The same, for so many bytes; and how many of them another call has changed: it reaches as deep. */
__attribute__((noinline)) static size_t use_stack(size_t bytes, bool look)
{
    unsigned char *const below = __builtin_alloca(bytes);
    size_t same = 0;
    __asm__ volatile("" ::"r"(below) : "memory");
    if (!look)
        memset(below, GAP, bytes);
    while (look && same < bytes && below[same] == GAP)
        same++;
    __asm__ volatile("" ::"r"(below) : "memory");
    return bytes - same;
}

/* Prepares the kernel's memory. A kernel that calls dv_set_output() is left and entered once more meanwhile. */
static void before_kernel(const dv_host *host)
{
    (void)host;
    drop_kept(&machine);
    if (machine.call->deep)
        use_stack(machine.call->deep, false);
    machine.call->kernel_ran = machine.in_kernel = true;
    check_heap_begin(machine.call->end, machine.call->poison);
    errno = machine.call->error;
    fill_stack(machine.call->stack); /* last: a jump, so that it begins where the kernel does */
}

static void after_kernel(const dv_host *host)
{
    (void)host;
    machine.in_kernel = false;
    check_heap_end();
    if (machine.call->deep) {
        const size_t depth = use_stack(machine.call->deep, true);
        machine.call->depth = depth > machine.call->depth ? depth : machine.call->depth;
    }
}

/* ---- Calls ---- */

/* The contents last written into the memory of tensor i: one case runs several times, and drawing its elements takes longest. */
static struct contents {
    check_tensor of;
    uint64_t seed;
    unsigned char *bytes;
    size_t size;
} contents[CHECK_TENSORS];

/* Multiplies each element by 1 + by or 1 - by. by 0: makes an identity matrix of each square one. Elements that several indices
 * share stay as they are, unless by is 0. */
static void move(const check_tensor *t, void *first, const int64_t *strides, double by)
{
    const bool square = t->ndim > 1 && t->shape[t->ndim - 1] == t->shape[t->ndim - 2];
    int64_t index[CHECK_DIMS] = { 0 };
    check_random r = { 1 };
    dv_dtype dtype = t->dtype;
    const int parts = check_numbers_in(&dtype);
    for (int64_t n = check_numel(t); n-- > 0;) {
        int64_t at = 0;
        bool again = false; /* an element that several indices have */
        for (int32_t d = 0; d < t->ndim; d++) {
            at += index[d] * strides[d];
            again |= index[d] && !strides[d];
        }
        for (int64_t k = at * parts; k < (at + 1) * parts && by > 0 && !again; k++) {
            const double x = check_get(first, k, dtype);
            check_put(first, k, dtype, check_next(&r) & 1 ? x + by * x : x - by * x);
        }
        if (!(by > 0) && square)
            check_put(first, at, t->dtype, index[t->ndim - 1] == index[t->ndim - 2]);
        for (int32_t d = t->ndim; d-- > 0 && ++index[d] == t->shape[d];)
            index[d] = 0;
    }
}

bool check_can_replace(const check_tensor *t)
{
    return check_is_float(t->dtype) ||
        (check_is_integer(t->dtype) && t->dtype.bits >= 8 && t->low < t->high && !check_is_placed(t));
}

/* Replaces each element by another one: real numbers by 2.5 or -0.5 times their value, at random, and integers by an end of their
 * range. */
static void replace(const check_tensor *t, void *first, const int64_t *strides)
{
    int64_t index[CHECK_DIMS] = { 0 };
    if (check_is_float(t->dtype)) {
        move(t, first, strides, 1.5);
        return;
    }
    for (int64_t n = check_numel(t); n-- > 0;) {
        int64_t at = 0;
        for (int32_t d = 0; d < t->ndim; d++)
            at += index[d] * strides[d];
        check_put(first, at, t->dtype, check_get(first, at, t->dtype) > t->low ? t->low : t->high);
        for (int32_t d = t->ndim; d-- > 0 && ++index[d] == t->shape[d];)
            index[d] = 0;
    }
}

/* The elements of a tensor with the same shape. False: no memory. */
static bool copy_elements(const check_tensor *from, uint64_t seed, const check_tensor *t, void *first, const int64_t *strides)
{
    int64_t own[CHECK_DIMS], low, high, index[CHECK_DIMS] = { 0 };
    check_strides(from, own, &low, &high);
    const int64_t size = dv_dtype_bytes(from->dtype, 1);
    char *bytes = malloc((size_t)((high - low + 1) * size) + 1), *origin = bytes ? bytes - low * size : NULL;
    dv_dtype own_part = from->dtype, part = t->dtype;
    const int parts = check_numbers_in(&own_part);
    check_numbers_in(&part);
    if (bytes)
        check_fill_tensor(from, seed, origin, own);
    for (int64_t n = bytes ? check_numel(t) : 0; n-- > 0;) {
        int64_t at = 0, to = 0;
        for (int32_t d = 0; d < t->ndim; d++) {
            at += index[d] * own[d];
            to += index[d] * strides[d];
        }
        if (dv_dtype_key(from->dtype) == dv_dtype_key(t->dtype))
            memcpy((char *)first + to * size, origin + at * size, (size_t)size);
        for (int k = 0; dv_dtype_key(from->dtype) != dv_dtype_key(t->dtype) && k < parts; k++)
            check_put(first, to * parts + k, part, check_get(origin, at * parts + k, own_part));
        for (int32_t d = t->ndim; d-- > 0 && ++index[d] == t->shape[d];)
            index[d] = 0;
    }
    free(bytes);
    return bytes != NULL;
}

static bool fill(struct machine *m, size_t i, region *r, const region *kept)
{
    struct contents *k = &contents[i];
    const check_tensor *t = &m->c->tensors[i];
    const check_case *as = m->call->contents;
    const bool known = !as && k->bytes && k->seed == m->c->seed + i && k->size == r->bytes && !memcmp(&k->of, t, sizeof *t);
    const bool replaced = m->call->replaced == i + 1;
    const bool moved = ((m->call->moved > 0 || m->call->identity) && check_is_float(t->dtype)) ||
        (m->call->moved > 0 && check_is_complex(t->dtype)) || (replaced && check_can_replace(t));
    if (known && !moved && has_kept(r, kept, k->bytes))
        return true;
    if (!open_pages(r, kept, GAP))
        return false;
    if (known) {
        memcpy(as_pointer(r->data), k->bytes, r->bytes);
    } else if (as) {
        if (!copy_elements(&as->tensors[i], as->seed + i, t, as_pointer(r->first), m->values.strides[i]))
            return false;
    } else {
        check_fill_tensor(t, m->c->seed + i, as_pointer(r->first), m->values.strides[i]);
        free(k->bytes);
        *k = (struct contents){ .of = *t, .seed = m->c->seed + i, .bytes = malloc(r->bytes + 1), .size = r->bytes };
        if (k->bytes)
            memcpy(k->bytes, as_pointer(r->data), r->bytes);
    }
    if (replaced && moved) {
        const double first = check_get(as_pointer(r->first), 0, t->dtype);
        replace(t, as_pointer(r->first), m->values.strides[i]);
        if (m->call->but_first)
            check_put(as_pointer(r->first), 0, t->dtype, first);
    } else if (moved) {
        move(t, as_pointer(r->first), m->values.strides[i], m->call->moved);
    }
    return true;
}

/* True: done. */
static bool make_argument(struct machine *m, size_t i)
{
    const check_tensor *t = &m->c->tensors[i];
    const bool written = m->call->op->slots[check_tensor_argument(m->c, i)].flags & DV_SLOT_WRITES;
    int64_t low, high, *strides = m->values.strides[i];
    const int64_t size = dv_dtype_bytes(t->dtype, 1);
    if (!t->present)
        return true;
    check_strides(t, strides, &low, &high);
    if ((high - low + 1) * size >= FAR_BYTES)
        return make_far_argument(m, i, (size_t)((high - low + 1) * size), written);
    region kept,
        *r = place(m, (size_t)((high - low + 1) * size), (size_t)(t->dtype.code == 5 ? size / 2 : size), ARGUMENT, i, &kept);
    if (!r)
        return false;
    r->first = r->data + (uintptr_t)(-low * size);
    m->values.tensors[i].data = as_pointer(r->first);
    return fill(m, i, r, &kept) && (written || r->sealed || seal(r));
}

/* Its sizes and strides. True: done. */
static bool make_header(struct machine *m, size_t i)
{
    dv_tensor *t = &m->values.tensors[i];
    const size_t bytes = sizeof *t->shape * (size_t)t->ndim;
    const int64_t *sizes = lend_copy(m, t->shape, bytes, sizeof *sizes, SIZES, i);
    const int64_t *steps = sizes ? lend_copy(m, t->strides, bytes, sizeof *steps, STRIDES, i) : NULL;
    t->shape = sizes;
    t->strides = steps;
    return steps != NULL;
}

/* What a list or a string argument points to. True: done. */
static bool make_list(struct machine *m, size_t slot)
{
    dv_value *v = &m->values.values[slot];
    switch (v->type) {
    case DV_VALUE_TENSORS:
        v->as.tensors.data = lend_copy(
            m, v->as.tensors.data, v->as.tensors.size * sizeof *v->as.tensors.data, sizeof(void *), LISTED, slot);
        return v->as.tensors.data;
    case DV_VALUE_INTS:
        v->as.ints.data = lend_copy(m, v->as.ints.data, v->as.ints.size * sizeof *v->as.ints.data, sizeof(int64_t), LISTED, slot);
        return v->as.ints.data;
    case DV_VALUE_FLOATS:
        v->as.floats.data = lend_copy(
            m, v->as.floats.data, v->as.floats.size * sizeof *v->as.floats.data, sizeof(double), LISTED, slot);
        return v->as.floats.data;
    case DV_VALUE_BOOLS:
        v->as.bools.data = lend_copy(m, v->as.bools.data, v->as.bools.size, 1, LISTED, slot);
        return v->as.bools.data;
    case DV_VALUE_SCALARS:
        v->as.scalars.data = lend_copy(
            m, v->as.scalars.data, v->as.scalars.size * sizeof *v->as.scalars.data, sizeof(double), LISTED, slot);
        return v->as.scalars.data;
    case DV_VALUE_STRINGS:
        for (size_t k = 0; k < v->as.strings.size; k++) {
            dv_string *s = &m->values.strings[slot][k];
            if (!(s->data = lend_copy(m, s->data, s->size + 1, 1, LISTED, slot)))
                return false;
        }
        v->as.strings.data = lend_copy(
            m, v->as.strings.data, v->as.strings.size * sizeof *v->as.strings.data, sizeof(void *), LISTED, slot);
        return v->as.strings.data;
    case DV_VALUE_STRING: /* with its end */
        v->as.s.data = lend_copy(m, v->as.s.data, v->as.s.size + 1, 1, LISTED, slot);
        return v->as.s.data;
    default: return true;
    }
}

static const unsigned char generator_given;

static int note_generator(const dv_host *host, const dv_generator *generator, uint64_t count, uint64_t *seed, uint64_t *offset)
{
    (void)host;
    (void)count;
    *(generator ? &machine.call->took_given : &machine.call->took_default) = true;
    *seed = 1;
    *offset = 0;
    return DV_OK;
}

void check_call_run(check_call *call, const check_case *c)
{
    struct machine *m = &machine;
    const int32_t row = call->row ? call->row->index : 0;
    m->call = call;
    m->c = c;
    call->kernel_ran = call->not_this_row = call->took_given = call->took_default = false;
    call->depth = 0;
    check_heap_clear();
    for (size_t r = 0; r < CHECK_RESULTS; r++)
        call->results[r] = dv_default();
    call->status = dv_fail(DV_ENOMEM, "no memory for the arguments");
    if (!reserve(m))
        return;
    reset(m);
    check_values_make(&m->values, c, (dv_device){ DV_CPU, 0 });
    for (size_t i = 0; i < c->ntensors; i++)
        if (!make_argument(m, i) || !make_header(m, i))
            return;
    for (size_t i = 0; i < c->nargs; i++)
        if (!make_list(m, i))
            return;
    for (size_t i = 0; i < c->nargs && call->generators; i++)
        if (call->op->slots[i].type == DV_FIELD_GENERATOR)
            m->values.values[i] = (dv_value){ .type = DV_VALUE_GENERATOR,
                .as.generator = (const dv_generator *)&generator_given };
    m->hooks = (dv_test_hooks){
        .row = row, .whole = call->whole, .alloc = lend_to_kernel, .free = take_back, .loop = call->loop, .fill = call->fill
    };
    m->host = (dv_host){ .size = sizeof m->host,
        .flags = call->flags,
        .name = "dovetail check",
        .new_tensor = new_tensor,
        .free_tensor = free_tensor,
        .new_view = new_view,
        .before_kernel = before_kernel,
        .after_kernel = after_kernel,
        .parallel_for = call->parallel_for,
        .random = call->generators ? note_generator : NULL,
        .test = &m->hooks };
    call->status = dv_call(call->op->op, m->values.values, c->nargs, call->results, call->op->nresults, &m->host);
    check_after_kernel();
    if (!check_keep_lists(call->op, call->results, call->listed))
        call->status = DV_ELIMIT;
    call->not_this_row = call->status == DV_ENOKERNEL && !call->kernel_ran && row;
}

const dv_tensor *check_call_tensors(void) { return machine.values.tensors; }

const dv_tensor *check_call_tensor(size_t i) { return &machine.values.tensors[i]; }

bool check_call_fresh(const check_call *call, check_fresh *of)
{
    for (; of->result < call->op->nresults; of->result++, of->next = 0) {
        const dv_value *v = &call->results[of->result];
        const bool list = v->type == DV_VALUE_TENSORS;
        const size_t n = list ? v->as.tensors.size : v->type == DV_VALUE_TENSOR;
        while (of->next < n) {
            const dv_tensor *t = list ? v->as.tensors.data[of->next] : v->as.tensor;
            of->element = of->next++;
            for (const made_tensor *m = machine.made; m; m = m->next)
                if (t == &m->t && !m->view) {
                    of->t = t;
                    of->made = &m->as_made;
                    return true;
                }
        }
    }
    return false;
}

const char *check_fresh_name(const check_call *call, const check_fresh *of, char *buffer, size_t size)
{
    const bool list = call->results[of->result].type == DV_VALUE_TENSORS;
    const int n = list ? snprintf(buffer, size, "element %zu of ", of->element) : 0;
    check_result_name(call->op, of->result, buffer + n, size - (size_t)n);
    return buffer;
}

static const region *region_of(enum use use, size_t index)
{
    for (size_t i = 0; i < machine.nregions; i++)
        if (machine.regions[i].use == use && machine.regions[i].index == index)
            return &machine.regions[i];
    return NULL;
}

/* Mark the bytes of elements. */
static void mark(const check_tensor *t, const int64_t *strides, int64_t size, int64_t low, bool *is_element)
{
    int64_t index[CHECK_DIMS] = { 0 };
    for (int64_t n = check_numel(t); n-- > 0;) {
        int64_t at = -low;
        for (int32_t d = 0; d < t->ndim; d++)
            at += index[d] * strides[d];
        memset(is_element + at * size, true, (size_t)size);
        for (int32_t d = t->ndim; d-- > 0 && ++index[d] == t->shape[d];)
            index[d] = 0;
    }
}

bool check_call_gaps_changed(const check_case *c, size_t tensor, int64_t *offset)
{
    const region *r = region_of(ARGUMENT, tensor);
    const check_tensor *t = &c->tensors[tensor];
    int64_t strides[CHECK_DIMS], low, high;
    if (!r || !r->bytes || (t->layout != CHECK_SLICED && t->layout != CHECK_PADDED))
        return false;
    bool *is_element = calloc(r->bytes, 1), changed = false;
    const int64_t size = dv_dtype_bytes(t->dtype, 1);
    check_strides(t, strides, &low, &high);
    if (is_element)
        mark(t, strides, size, low, is_element);
    for (size_t i = 0; is_element && i < r->bytes && !changed; i++)
        if (!is_element[i] && ((const uint8_t *)as_pointer(r->data))[i] != GAP) {
            *offset = (int64_t)i + low * size;
            changed = true;
        }
    free(is_element);
    return changed;
}

bool check_call_changed(size_t tensor)
{
    const region *r = region_of(ARGUMENT, tensor);
    const struct contents *k = &contents[tensor];
    return !r || !k->bytes || r->bytes != k->size || memcmp(as_pointer(r->data), k->bytes, k->size) != 0;
}

static void describe(const region *r, check_place *out)
{
    const check_op *op = machine.call->op;
    const bool header = r->use == SIZES || r->use == STRIDES, of_result = r->use == RESULT || (header && r->index >= OF_RESULT);
    const bool of_tensor = r->use == ARGUMENT || (header && !of_result);
    const size_t slot = of_tensor ? check_tensor_argument(machine.c, r->index)
        : of_result               ? op->nargs + r->index - (header ? OF_RESULT : 0)
                                  : r->index;
    const bool list = slot < op->nargs && machine.c->args[slot].type == DV_VALUE_TENSORS && of_tensor;
    const char *part = r->use == SIZES ? "the sizes of "
        : r->use == STRIDES            ? "the strides of "
        : r->use == STAND_IN           ? "the contiguous copy of "
        : r->use == LISTED             ? "the list or string of "
                                       : "";
    out->header = header || r->use == LISTED;
    out->in_list = r->use == RESULT && op->slots[slot].type == DV_FIELD_TENSORS;
    switch (r->use) {
    case WORKSPACE: snprintf(out->what, sizeof out->what, "the workspace"); return;
    case KERNEL: snprintf(out->what, sizeof out->what, "memory of dv_alloc()"); return;
    case SCRATCH:
        snprintf(out->what, sizeof out->what, "the scratch of a piece%s", r->returned ? " that has returned" : "");
        return;
    case TEMPORARY: snprintf(out->what, sizeof out->what, "a temporary of the native form"); return;
    case STAND_IN:
    case ARGUMENT:
    case RESULT:
    case SIZES:
    case STRIDES:
    case LISTED: break;
    }
    const char *name = slot < op->nargs + op->nresults ? op->slots[slot].name : "";
    const char *kind = slot < op->nargs ? "argument" : "result";
    if (list)
        snprintf(out->what, sizeof out->what, "%sargument '%s[%zu]'", part, name, r->index - machine.c->args[slot].first);
    else if (*name)
        snprintf(out->what, sizeof out->what, "%s%s '%s'", part, kind, name);
    else
        snprintf(out->what, sizeof out->what, "%sresult %zu", part, slot - op->nargs);
    out->input = out->header || (r->use == ARGUMENT && !(op->slots[slot].flags & DV_SLOT_WRITES));
}

const uint8_t *check_first_other(uintptr_t begin, uintptr_t end, uint8_t than)
{
    const uint8_t *p = as_pointer(begin), *const last = as_pointer(end);
    if (begin >= end || (*p == than && !memcmp(p, p + 1, end - begin - 1))) /* each as the one before it */
        return NULL;
    while (p < last && *p == than)
        p++;
    return p;
}

bool check_call_slack_changed(char *what, size_t size)
{
    for (size_t i = 0; i < machine.nregions; i++) {
        const region *r = &machine.regions[i];
        const uint8_t *p;
        if (!r->bytes || r->margin || r->use == ARGUMENT || r->use >= SIZES || r->returned)
            continue;
        if (slack_changed(r, &p)) {
            check_place place = { .what = "" };
            describe(r, &place);
            snprintf(what, size, "%s, which has %zu bytes: byte %lld%s", place.what, r->bytes,
                (long long)((int64_t)(uintptr_t)p - (int64_t)r->data), check_earlier(was_of_earlier_call(r, (uintptr_t)p)));
            return true;
        }
    }
    return check_heap_slack_changed(what, size);
}

static uintptr_t element_size(const region *argument)
{
    return (uintptr_t)dv_dtype_bytes(machine.c->tensors[argument->index].dtype, 1);
}

bool check_in_kernel(void) { return machine.in_kernel; }

bool check_call_without_workspace(void)
{
    const check_json *workspace = machine.call ? check_json_get(machine.call->op->program, "workspace") : NULL;
    if (!workspace || workspace->kind == CHECK_NULL || !machine.call->kernel_ran)
        return false;
    for (size_t i = 0; i < machine.c->ntensors; i++)
        if (!machine.c->tensors[i].present)
            return false;
    for (size_t i = 0; i < machine.nregions; i++)
        if (machine.regions[i].use == WORKSPACE)
            return false;
    return true;
}

bool check_memory_find(const void *address, check_place *out)
{
    const uintptr_t p = (uintptr_t)address;
    const region *best = NULL;
    uintptr_t nearest = UINTPTR_MAX;
    memset(out, 0, sizeof *out);
    if (check_heap_find(address, out))
        return true;
    bool ours = machine.area && p >= machine.area && p < machine.area + AREA;
    for (size_t i = 0; i < machine.nregions && !ours; i++) {
        const region *r = &machine.regions[i];
        ours = r->margin && p >= r->begin - r->margin && p < r->end + r->margin;
    }
    if (!ours || !machine.call)
        return false;
    for (size_t i = 0; i < machine.nregions; i++)
        for (int wrapped = 0; wrapped < 3; wrapped++) { /* also by an index that lost 2^32 elements */
            const region *r = &machine.regions[i];
            const uintptr_t by = wrapped && r->use == ARGUMENT ? element_size(r) << 32 : 0;
            const uintptr_t at = wrapped == 1 ? p - by : p + by;
            const uintptr_t distance = at < r->data ? r->data - at : at < r->data + r->bytes ? 0 : at - (r->data + r->bytes) + 1;
            if (distance < nearest)
                nearest = distance, best = r;
        }
    const bool inside = best && p >= best->data && p < best->data + best->bytes;
    if (!best)
        return false;
    describe(best, out);
    out->inside = inside;
    out->freed = best->returned;
    out->far = best->margin != 0;
    out->between = inside && best->margin && best->use == ARGUMENT && machine.c->tensors[best->index].layout == CHECK_FAR;
    out->earlier = was_of_earlier_call(best, p);
    out->offset = (int64_t)p - (int64_t)best->first;
    out->low = (int64_t)best->data - (int64_t)best->first;
    out->high = out->low + (int64_t)best->bytes;
    return true;
}
