/* The functions that a kernel calls through its context. A context is the first member of a slice, which points to its call.
 *
 * Errors may come from any thread; the rest belongs to the kernel's own thread, except parallel_for and random. */
#include "call/services.h"

#include "base/memory.h"
#include "call/fail.h"
#include "call/frame.h"
#include "call/host.h"
#include "call/pool.h"

static dv__slice *slice_of(dv_context *ctx) { return (dv__slice *)(void *)ctx; }

/* ---- Errors ---- */

static int error(dv_context *ctx, int status, const char *format, va_list args)
{
    return dv__vcall_error(slice_of(ctx)->call, status, format, args);
}

/* ---- Memory ---- */

struct dv__block {
    struct dv__block *next;
    void *lent; /* allocated and freed by the host; NULL: the memory follows this struct */
};

void *dv__slice_alloc(dv__slice *s, int use, size_t bytes, size_t alignment)
{
    const dv_test_hooks *test = dv__test_hooks(s->call->host);
    const bool hosts = use >= 0 && test && test->alloc;
    if (alignment & (alignment - 1)) {
        dv__call_error(s->call, DV_EINVAL, "dv_alloc: the alignment must be a power of two, found %zu", alignment);
        return NULL;
    }
    if (alignment < _Alignof(max_align_t))
        alignment = _Alignof(max_align_t);
    const size_t head = (sizeof(struct dv__block) + alignment - 1) & ~(alignment - 1);
    struct dv__block *b = bytes > SIZE_MAX - head ? NULL : dv__alloc_aligned(hosts ? head : head + bytes, alignment);
    void *lent = b && hosts ? s->call->host->test->alloc(s->call->host, use, -1, bytes, alignment) : NULL;
    if (!b || (hosts && !lent)) {
        dv__free_aligned(b);
        dv__call_error(s->call, DV_ENOMEM, "out of memory: dv_alloc of %zu bytes", bytes);
        return NULL;
    }
    b->next = s->blocks;
    b->lent = lent;
    s->blocks = b;
    return hosts ? lent : (char *)b + head;
}

static void *alloc(dv_context *ctx, size_t bytes, size_t alignment)
{
    dv__slice *const s = slice_of(ctx);
    if (s->in_pieces) {
        dv__call_error(s->call, DV_EINVAL,
            "dv_alloc: called in a piece of dv_parallel_for, which may run in another thread: allocate before the loop, or "
            "run it by dv_parallel_scratch");
        return NULL;
    }
    return dv__slice_alloc(s, DV_MEMORY_KERNEL, bytes, alignment);
}

/* ---- Threads ---- */

enum { MOST_PIECES = 256 }; /* enough for any machine to share evenly */

typedef struct pieces {
    dv_range_fn fn;
    dv_scratch_fn fn_with_scratch;
    void *arg;
    int64_t begin, n;
    uint64_t size;
    dv__call *call;
    size_t bytes;            /* of scratch */
    _Atomic(void *) *blocks; /* n places of scratch */
} pieces;

/* Divide [begin, begin + size) into n parts whose sizes differ by at most one: the begin of part i. */
static int64_t part(const pieces *p, int64_t i)
{
    const uint64_t n = (uint64_t)p->n, k = (uint64_t)i, each = p->size / n, more = p->size % n;
    return (int64_t)((uint64_t)p->begin + k * each + (k < more ? k : more));
}

static int run_piece(void *arg, int64_t i)
{
    const pieces *p = arg;
    return p->fn(p->arg, part(p, i), part(p, i + 1));
}

/* A loop over [begin, end) in as many pieces as the grain says; none: it is empty. fn tells the test hooks which loop it is. */
static pieces cut(dv_context *ctx, int64_t begin, int64_t end, int64_t grain, void (*fn)(void), void *arg)
{
    pieces p = {
        .arg = arg, .begin = begin, .size = end > begin ? (uint64_t)end - (uint64_t)begin : 0, .call = slice_of(ctx)->call
    };
    const dv_test_hooks *test = dv__test_hooks(p.call->host);
    if (test && test->loop)
        test->loop(p.call->host, begin, end, grain, fn);
    const uint64_t each = test && test->whole ? UINT64_MAX : grain < 1 ? 1 : (uint64_t)grain, n = p.size / each;
    p.n = !p.size ? 0 : n < 1 ? 1 : n > MOST_PIECES ? MOST_PIECES : (int64_t)n;
    return p;
}

static int run_loop(dv_context *ctx, dv__piece_fn run, pieces *p)
{
    dv__slice *const s = slice_of(ctx);
    const bool outer = !s->in_pieces; /* not a loop in a piece */
    if (!p->n)
        return DV_OK;
    if (outer)
        s->in_pieces = true;
    const int status = dv__parallel(p->call->host, p->n, run, p);
    if (outer)
        s->in_pieces = false;
    return status;
}

static int parallel_for(dv_context *ctx, int64_t begin, int64_t end, int64_t grain, dv_range_fn fn, void *arg)
{
    pieces p = cut(ctx, begin, end, grain, (void (*)(void))fn, arg);
    p.fn = fn;
    return run_loop(ctx, run_piece, &p);
}

static void *new_scratch(const pieces *p)
{
    const dv_host *host = p->call->host;
    const dv_test_hooks *test = dv__test_hooks(host);
    void *block = test && test->alloc ? test->alloc(host, DV_MEMORY_SCRATCH, -1, p->bytes, 64)
                                      : dv__alloc_aligned(p->bytes ? p->bytes : 1, 64);
    if (!block)
        dv__call_error(p->call, DV_ENOMEM, "out of memory: %zu bytes for a piece of a loop", p->bytes);
    return block;
}

static int run_tested_piece(void *arg, int64_t i)
{
    const pieces *p = arg;
    void *block = new_scratch(p);
    const int status = block ? p->fn_with_scratch(p->arg, part(p, i), part(p, i + 1), block) : DV_ENOMEM;
    if (block)
        p->call->host->test->free(p->call->host, block);
    return status;
}

/* A piece takes what is in the first place that no other piece has: memory, or NULL for none yet. There are as many places as
 * pieces, so one is free. */
static int run_piece_with_scratch(void *arg, int64_t i)
{
    static char taken;
    const pieces *p = arg;
    int64_t k = 0;
    void *block;
    while ((block = atomic_exchange(&p->blocks[k], &taken)) == &taken)
        k = (k + 1) % p->n;
    if (!block)
        block = new_scratch(p);
    const int status = block ? p->fn_with_scratch(p->arg, part(p, i), part(p, i + 1), block) : DV_ENOMEM;
    atomic_store(&p->blocks[k], block);
    return status;
}

static int parallel_scratch(dv_context *ctx, int64_t begin, int64_t end, int64_t grain, size_t bytes, dv_scratch_fn fn, void *arg)
{
    _Atomic(void *) blocks[MOST_PIECES];
    pieces p = cut(ctx, begin, end, grain, (void (*)(void))fn, arg);
    const dv_test_hooks *test = dv__test_hooks(p.call->host);
    p.fn_with_scratch = fn;
    p.bytes = bytes;
    p.blocks = blocks;
    for (int64_t k = 0; k < p.n; k++)
        atomic_init(&blocks[k], NULL);
    const int status = run_loop(ctx, test && test->alloc ? run_tested_piece : run_piece_with_scratch, &p);
    for (int64_t k = 0; k < p.n; k++)
        dv__free_aligned(atomic_load(&blocks[k]));
    return status;
}

/* ---- Results ---- */

static dv__result *find_result(dv__call *c, const dv_tensor *out, size_t *index)
{
    for (size_t r = 0; r < c->plan->nreturns; r++)
        if (out == &c->outs[r].header && (c->stage == DV__STAGE_SHAPE || c->outs[r].origin == DV__RESULT_PENDING)) {
            *index = r;
            return &c->outs[r];
        }
    return NULL;
}

static int check_bounds(dv__call *c, size_t r, const dv__result *out, dv_dtype dtype, int32_t ndim, const int64_t *shape)
{
    if (dv_dtype_key(dtype) != dv_dtype_key(out->header.dtype))
        return dv__call_error(
            c, DV_EDTYPE, "dv_set_output: result %zu is %s, not %s", r, dv_dtype_name(out->header.dtype), dv_dtype_name(dtype));
    if (ndim != out->header.ndim)
        return dv__call_error(c, DV_ESHAPE, "dv_set_output: result %zu has %d dims, not %d", r, (int)out->header.ndim, (int)ndim);
    for (int32_t i = 0; i < ndim; i++)
        if (shape[i] < 0 || shape[i] > out->bounds[i])
            return dv__call_error(c, DV_ESHAPE, "dv_set_output: dim %d of result %zu is at most %lld, not %lld", (int)i, r,
                (long long)out->bounds[i], (long long)shape[i]);
    return DV_OK;
}

static int use_given(dv__call *c, size_t r, dv__result *out, int32_t ndim, const int64_t *shape)
{
    bool same = out->given->ndim == ndim;
    for (int32_t i = 0; i < ndim && same; i++)
        same = out->given->shape[i] == shape[i];
    if (!same)
        return dv__call_error(c, DV_ESHAPE,
            "dv_set_output: the given tensor for result %zu has another shape than the result turned out to have", r);
    out->header = *out->given;
    return DV_OK;
}

/* The host allocates with its lock held, as it does before the kernel. */
static int make_pending(dv__call *c, size_t r, dv__result *out, dv_dtype dtype, int32_t ndim, const int64_t *shape)
{
    int64_t strides[DV_MAX_NDIM];
    int status = dv__shape_check(dtype, ndim, shape, strides);
    if (!status) {
        if (c->in_kernel && !(c->inner & DV__INNER_KERNEL) && DV__HOST(c->host, after_kernel))
            c->host->after_kernel(c->host);
        status = dv__new_tensor(c, (int)r, dtype, c->device, ndim, shape, strides, &out->made);
        if (c->in_kernel && !(c->inner & DV__INNER_KERNEL) && DV__HOST(c->host, before_kernel))
            c->host->before_kernel(c->host);
    }
    if (status)
        return dv__call_error(c, status, "%s", dv_last_error());
    out->header = *out->made;
    return DV_OK;
}

static int set_output(dv_context *ctx, dv_tensor *t, dv_dtype dtype, int32_t ndim, const int64_t *shape)
{
    dv__call *c = slice_of(ctx)->call;
    size_t r = 0;
    if (ndim < 0 || ndim > DV_MAX_NDIM || (ndim && !shape))
        return dv__call_error(c, DV_ESHAPE, "dv_set_output: %d dims", (int)ndim);
    dv__result *out = find_result(c, t, &r);
    if (!out)
        return dv__call_error(c, DV_EINVAL, "dv_set_output: the kernel does not decide the size of this result");
    if (out->set)
        return dv__call_error(c, DV_EINVAL, "dv_set_output: result %zu was set already", r);
    int status;
    if (c->stage == DV__STAGE_SHAPE) {
        int64_t *dims = DV__ARENA_ARRAY(&c->arena, int64_t, 2 * (size_t)ndim + 1);
        if (!dims)
            return dv__call_error(c, DV_ENOMEM, "%s", dv_last_error());
        if (ndim)
            memcpy(dims, shape, sizeof *dims * (size_t)ndim);
        if ((status = dv__shape_check(dtype, ndim, shape, dims + ndim)))
            return dv__call_error(c, status, "%s", dv_last_error());
        out->header.dtype = dtype;
        out->header.ndim = ndim;
        out->header.shape = dims;
        out->header.strides = dims + ndim;
    } else if ((status = check_bounds(c, r, out, dtype, ndim, shape)) ||
        (status = out->given ? use_given(c, r, out, ndim, shape) : make_pending(c, r, out, dtype, ndim, shape))) {
        return status;
    }
    out->set = true;
    return DV_OK;
}

/* ---- Calling other operators ---- */

static int call(dv_context *ctx, const char *name, void *frame, size_t frame_size, const dv_field_decl *const *fields)
{
    dv__call *c = slice_of(ctx)->call;
    const int status = dv__call_named(name, frame, frame_size, fields, c->host, c->inner | DV__INNER_KERNEL, c->enter);
    return status ? dv__call_error(c, status, "%s", dv_last_error()) : DV_OK;
}

/* ---- Random numbers ---- */

/* The embedded default: one seed, and a count of the numbers used so far. */
static atomic_uint_fast64_t seed_of_process = UINT64_C(0x646f766574616969), given_out;

int dv_set_seed(uint64_t seed)
{
    atomic_store(&seed_of_process, seed);
    atomic_store(&given_out, 0);
    return DV_OK;
}

static int reserve(dv__call *c, const dv_generator *generator, uint64_t count, uint64_t *seed, uint64_t *offset)
{
    count = (count + 3) & ~UINT64_C(3); /* Philox makes four at a time */
    if (DV__HOST(c->host, random)) {
        const int status = c->host->random(c->host, generator, count, seed, offset);
        return status ? dv__call_error(c, status, "%s", dv_last_error()) : DV_OK;
    }
    if (generator)
        return dv__call_error(
            c, DV_ENOTSUP, "dv_random: the embedded default has one random state; a generator needs a host that knows it");
    *seed = atomic_load(&seed_of_process);
    *offset = atomic_fetch_add(&given_out, count);
    return DV_OK;
}

/* SplitMix64's mixing function, so that seeds of neighbouring slices are unrelated. */
static uint64_t mix(uint64_t z)
{
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* Slices run in any order and must not depend on it: the whole call reserves once, before it is split, and each slice counts for
 * itself with a seed of its own. */
static int random_numbers(dv_context *ctx, const dv_generator *generator, uint64_t count, uint64_t *seed, uint64_t *offset)
{
    dv__slice *s = slice_of(ctx);
    if (s->index < 0)
        return reserve(s->call, generator, count, seed, offset);
    dv__call *c = s->call;
    uint64_t base = 0;
    /* One slice reserves; the others wait for it, which is short. 0: nobody yet; 1: being reserved; 2 + the offset: done. */
    uint_fast64_t state = 0;
    if (atomic_compare_exchange_strong(&c->random, &state, 1)) {
        const int status = reserve(c, generator, UINT64_C(1) << 32, &c->random_seed, &base);
        atomic_store(&c->random, status ? UINT64_MAX : base + 2);
    }
    while ((state = atomic_load(&c->random)) == 1)
        ;
    if (state == UINT64_MAX)
        return atomic_load(&c->status);
    *seed = c->random_seed ^ mix((uint64_t)s->index + 1);
    *offset = state - 2 + s->random_used;
    s->random_used += (count + 3) & ~UINT64_C(3);
    return DV_OK;
}

/* ---- The rest ---- */

static const void *object(dv_context *ctx, const char *name)
{
    dv__call *c = slice_of(ctx)->call;
    const void *found = NULL;
    if (!DV__HOST(c->host, object)) {
        dv__call_error(c, DV_ENOENT, "dv_object: the host of this call provides no objects, '%s' neither", name);
        return NULL;
    }
    const int status = c->host->object(c->host, name, &found);
    if (status || !found) {
        dv__call_error(
            c, status ? status : DV_ENOENT, "dv_object: the host %s has no '%s'", c->host->name ? c->host->name : "", name);
        return NULL;
    }
    return found;
}

/* What dv_query() answers beside its own words: a list that only grows, newest first. */
typedef struct extension {
    const struct extension *next;
    const void *what;
    char name[];
} extension;
static _Atomic(const extension *) extensions;

int dv_extend(const char *name, const void *what)
{
    if (!name || !*name || !what)
        return dv_fail(
            DV_EINVAL, "dv_extend: expected a name and what it stands for, found %s", name && *name ? "NULL" : "no name");
    const size_t size = strlen(name) + 1;
    extension *e = dv__alloc(sizeof *e + size);
    if (!e)
        return DV_ENOMEM;
    memcpy(e->name, name, size);
    e->what = what;
    e->next = atomic_load(&extensions);
    while (!atomic_compare_exchange_weak(&extensions, &e->next, e))
        ;
    return DV_OK;
}

/* Arguments and results before contiguous copies took the place of some. */
static const dv_value *own_values(dv__call *c)
{
    const size_t n = c->plan->nargs;
    dv_value *values = DV__ARENA_ARRAY(&c->arena, dv_value, n + c->plan->nreturns);
    if (values && n)
        memcpy(values, c->args, n * sizeof *values);
    for (size_t r = 0; values && r < c->plan->nreturns; r++) {
        const dv__result *out = &c->outs[r];
        if (out->origin == DV__RESULT_LIST || out->origin == DV__RESULT_MADE_LIST || out->origin == DV__RESULT_SCALAR)
            values[n + r] = out->value;
        else if (out->tensor)
            values[n + r] = dv_from_tensor(out->tensor);
        else /* a remembered call, which makes no copies */
            values[n + r] = c->tensors[n + r] ? dv_from_tensor(c->tensors[n + r]) : dv_none();
    }
    return values;
}

static const dv_running *running(dv__slice *s)
{
    dv__call *c = s->call;
    if (s->index >= 0 || c->stage != DV__STAGE_KERNEL)
        return NULL;
    dv_running *r = DV__ARENA_ARRAY(&c->arena, dv_running, 1);
    const dv_value *values = own_values(c);
    if (!r || !values)
        return NULL;
    *r = (dv_running){ sizeof *r, 0, c->op, c->row->name, c->host, values, c->tensors, c->lists, c->row->list };
    return r;
}

static const void *query(dv_context *ctx, const char *name)
{
    if (!strcmp(name, "dovetail.version"))
        return dv_version();
    if (!strcmp(name, "dovetail.call"))
        return running(slice_of(ctx));
    for (const extension *e = atomic_load(&extensions); e; e = e->next)
        if (!strcmp(name, e->name))
            return e->what;
    return NULL;
}

static const dv_services all_services = { sizeof(dv_services), 0, error, alloc, parallel_for, set_output, call, random_numbers,
    object, query, parallel_scratch };

/* ---- Slices ---- */

void dv__slice_init(dv__slice *s, dv__call *c)
{
    const uint32_t flags = dv__host_flags(c->host);
    s->ctx.size = sizeof s->ctx;
    s->ctx.flags = (flags & DV_HOST_DETERMINISTIC ? DV_CTX_DETERMINISTIC : 0) | (flags & DV_HOST_CHECK ? DV_CTX_CHECK : 0) |
        (c->large ? DV_CTX_LARGE : 0);
    s->ctx.services = &all_services;
    s->ctx.workspace = NULL;
    s->ctx.workspace_size = 0;
    s->ctx.stream = NULL;
    s->ctx.device = c->device;
    s->ctx.origin = NULL;
    s->ctx.origin_ndim = 0;
    s->ctx.reserved = 0;
    s->call = c;
    s->blocks = NULL;
    s->index = -1;
    s->random_used = 0;
    s->in_pieces = false;
}

void dv__slice_deinit(dv__slice *s)
{
    for (struct dv__block *b = s->blocks, *next; b; b = next) {
        next = b->next;
        if (b->lent)
            s->call->host->test->free(s->call->host, b->lent);
        dv__free_aligned(b);
    }
    s->blocks = NULL;
}
