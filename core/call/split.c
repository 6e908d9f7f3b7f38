/* Runs a kernel once, or on slices.
 *
 * A kernel with .split = grain lets the runtime cut tensors along the leading parallel dims. One step is one index of those
 * dims. A slice has at least grain steps, except at the end of a dim. Inner dims that fit into a slice stay whole, one dim
 * (cut_dim) is cut into equal ranges, and a slice has one index of each dim before cut_dim. If the parallel dims are one *s,
 * whose rank no kernel can depend on, and are contiguous in every cut tensor, they are first joined into one dim. The slices
 * depend on shapes and grain only: an input whose layout the kernel does not accept counts as contiguous, and each slice copies
 * its own part of it. */
#include "call/split.h"

#include "base/memory.h"
#include "call/host_tensor.h"
#include "call/memory.h"
#include "call/thread_pool.h"
#include "call/services.h"

#include <stdio.h>

/* A tensor that each slice gets only a part of. */
typedef struct split_slot {
    size_t slot;
    size_t field; /* index of the slot's field in the struct binding */
    const dv_tensor *t;
    const dv_tensor *original; /* the tensor of which t is a deferred copy: each slice copies its own part; NULL: t has memory */
} split_slot;

typedef struct split_plan {
    dv__call *call;
    const dv__kernel *kernel;
    const char *frame;
    int32_t ndim;                                /* number of leading parallel dims, along which tensors may be cut */
    int64_t sizes[DV_MAX_NDIM];                  /* sizes of these dims; if is_flattened, sizes[0] is their product */
    bool is_flattened;                           /* the leading dims are joined into one */
    int32_t cut_dim;                             /* the dim that is cut into ranges */
    int64_t slice_size, nslices_of_dim, nslices; /* size of a slice in cut_dim; number of ranges of cut_dim; number of slices */
    split_slot *slots;
    size_t nslots, scratch_size; /* number of cut tensors; bytes for the views of one slice */
    int64_t workspace;
    void *stream;
} split_plan;

static int64_t split_ceildiv(int64_t a, int64_t b) { return a / b + (a % b != 0); }

/* True if the leading dims of a tensor can be joined into one dim with one stride. Dims of size one have any stride. */
static bool split_can_flatten(const dv_tensor *t, int32_t nleading)
{
    bool any = false;
    int64_t expected = 0;
    for (int32_t i = nleading; i-- > 0;) {
        if (t->shape[i] == 1)
            continue;
        if (any && t->strides[i] != expected)
            return false;
        any = true;
        expected = t->strides[i] * t->shape[i];
    }
    return true;
}

/* Finds the tensors to cut, and the leading parallel dims. Returns false if the call cannot be split: no tensor is cut, a
 * slot is a list or a result of unknown size, or elements are smaller than a byte. */
static bool split_try_find_cut_tensors(split_plan *plan)
{
    dv__call *c = plan->call;
    const dv__binding *b = plan->kernel->binding;
    plan->is_flattened = dv__contract_can_flatten_split(c->op->contract, &c->solution);
    for (size_t f = 0; f < b->n; f++) {
        const size_t slot = b->fields[f].slot;
        int32_t leading;
        if (!dv__contract_try_get_split_dims(c->op->contract, &c->solution, slot, &leading))
            return false;
        if (!leading)
            continue;
        const dv_field_row *row = dv_field_at(b->fields[f].type);
        const dv_tensor *t = c->tensors[slot];
        if (row->value == DV_VALUE_TENSORS)
            return false;
        if (row->value != DV_VALUE_TENSOR || !t)
            continue;
        if (slot >= c->signature->nargs && c->outs[slot - c->signature->nargs].origin == DV__RESULT_PENDING)
            return false;
        if (leading > t->ndim || t->dtype.bits * t->dtype.lanes % 8)
            return false;
        plan->is_flattened = plan->is_flattened && split_can_flatten(t, leading);
        if (!plan->nslots) {
            plan->ndim = leading;
            memcpy(plan->sizes, t->shape, sizeof *t->shape * (size_t)leading);
        }
        plan->slots[plan->nslots++] = (split_slot){ slot, f, t, NULL };
        plan->scratch_size += sizeof(dv_tensor) + 2 * sizeof(int64_t) * (size_t)t->ndim;
    }
    return plan->nslots > 0;
}

/* Chooses the dim to cut and the size of slices, so that this dim has at most about 1024 slices. Returns false if one slice
 * is enough. */
static bool split_try_choose_slices(split_plan *plan)
{
    const int64_t grain = plan->kernel->split;
    int64_t steps = 1;
    for (int32_t i = 0; i < plan->ndim; i++)
        steps *= plan->sizes[i];
    if (steps <= grain)
        return false;
    if (plan->is_flattened) {
        plan->sizes[0] = steps;
        plan->cut_dim = 0;
        steps = 1;
    } else {
        for (plan->cut_dim = 0; steps > grain;
            plan->cut_dim++) /* ends after the first dim of which one index has at most `grain` steps */
            steps /= plan->sizes[plan->cut_dim];
        plan->cut_dim--;
        assert(plan->cut_dim >= 0);
    }
    const int64_t size = plan->sizes[plan->cut_dim];
    plan->slice_size = split_ceildiv(grain, steps);
    const int64_t excess = size / plan->slice_size /
        1024; /* larger slices: at most about 1024 along the dim are enough for any machine */
    if (excess > 1)
        plan->slice_size *= excess;
    plan->nslices_of_dim = split_ceildiv(size, plan->slice_size);
    plan->nslices = plan->nslices_of_dim;
    for (int32_t i = 0; i < plan->cut_dim; i++)
        plan->nslices *= plan->sizes[i];
    return plan->nslices > 1;
}

/* Copies indices [begin, end) of the joined dims d to nleading - 1 of a tensor, each with all inner dims, to contiguous memory.
 * data: the first element of these dims. Returns the memory behind the copy. */
static char *split_copy_range(
    const dv_tensor *t, int32_t nleading, int32_t d, const char *data, int64_t begin, int64_t end, char *to)
{
    const int64_t item_size = dv_dtype_bytes(t->dtype, 1), stride = t->strides[d] * item_size;
    int64_t inner = 1, shape[DV_MAX_NDIM], strides[DV_MAX_NDIM], step = 1;
    for (int32_t i = d + 1; i < nleading; i++)
        inner *= t->shape[i];
    if (begin % inner) { /* the end of the first index of dim d */
        const int64_t first = begin / inner * inner, stop = end < first + inner ? end : first + inner;
        to = split_copy_range(t, nleading, d + 1, data + begin / inner * stride, begin - first, stop - first, to);
        begin = stop;
    }
    if (end / inner > begin / inner) { /* whole indices */
        dv_tensor from = *t, copy = *t;
        from.ndim = copy.ndim = t->ndim - d;
        from.strides = t->strides + d;
        from.data = (char *)(uintptr_t)data + begin / inner * stride;
        for (int32_t i = t->ndim; i-- > d; step *= shape[i - d]) {
            shape[i - d] = i == d ? end / inner - begin / inner : t->shape[i];
            strides[i - d] = step;
        }
        from.shape = copy.shape = shape;
        copy.strides = strides;
        copy.data = to;
        dv__copy_elements(&copy, &from);
        to += step * item_size;
        begin = end / inner * inner;
    }
    return begin == end
        ? to
        : split_copy_range(t, nleading, d + 1, data + begin / inner * stride, 0, end - begin, to); /* a part of the last index */
}

/* Allocates memory for a slice's part of a deferred copy, and copies the part from `original`. view: gives shape and contiguous
 * strides; only view->data is set. first_index: the slice's first index in each leading dim. The memory is freed with the slice.
 * Returns a status. */
static int split_copy_part(
    dv__slice *s, const split_plan *plan, const dv_tensor *original, const int64_t *first_index, dv_tensor *view)
{
    if (!(view->data = dv__slice_alloc(s, -1, (size_t)dv_dtype_bytes(view->dtype, dv_numel(view)), 64)))
        return DV_ENOMEM;
    const int64_t item_size = dv_dtype_bytes(view->dtype, 1);
    const char *data = original->data;
    if (plan->is_flattened) {
        split_copy_range(original, plan->ndim, 0, data, *first_index, *first_index + view->shape[0], view->data);
        return DV_OK;
    }
    dv_tensor from = *original;
    for (int32_t i = 0; i <= plan->cut_dim; i++)
        data += first_index[i] * original->strides[i] * item_size;
    from.data = (char *)(uintptr_t)data;
    from.shape = view->shape;
    dv__copy_elements(view, &from);
    return DV_OK;
}

/* Returns a slice's view of a tensor, made in the memory at *scratch, which is advanced. first_index: the slice's first
 * index in each dim; cut_dim_size: its size in cut_dim. The view of a deferred copy has no data yet. */
static dv_tensor *split_make_slice_view(
    const split_plan *plan, const dv_tensor *t, const int64_t *first_index, int64_t cut_dim_size, char **scratch)
{
    dv_tensor *view = (dv_tensor *)(void *)*scratch;
    int64_t *shape = (int64_t *)(void *)(view + 1), *strides = shape + t->ndim;
    *scratch += sizeof(dv_tensor) + 2 * sizeof(int64_t) * (size_t)t->ndim;
    const int32_t ndropped = plan->is_flattened ? plan->ndim - 1 : 0; /* number of dims that the joined dim replaces */
    *view = *t;
    view->ndim = t->ndim - ndropped;
    memcpy(shape, t->shape + ndropped, sizeof *shape * (size_t)view->ndim);
    memcpy(strides, t->strides + ndropped, sizeof *strides * (size_t)view->ndim);
    if (plan->is_flattened)
        for (int32_t i = 0; i < plan->ndim; i++) /* strides[0]: that of the last joined dim with more than one index */
            if (t->shape[i] != 1)
                strides[0] = t->strides[i];
    view->shape = shape;
    view->strides = strides;
    int64_t offset = 0;
    for (int32_t i = 0; i <= plan->cut_dim; i++) {
        shape[i] = i == plan->cut_dim ? cut_dim_size : 1;
        offset += first_index[i] * strides[i];
    }
    view->data = t->data ? (char *)t->data + offset * dv_dtype_bytes(t->dtype, 1) : NULL;
    return view;
}

static int split_alloc_workspace(dv__slice *s, int64_t bytes)
{
    if (!bytes)
        return DV_OK;
    s->ctx.workspace = dv__slice_alloc(s, DV_MEMORY_WORKSPACE, (size_t)bytes, 64);
    s->ctx.workspace_size = (size_t)bytes;
    return s->ctx.workspace ? DV_OK : DV_ENOMEM;
}

/* Runs the kernel function for one slice: copies the struct to `frame`, replaces its cut tensors by views made in `scratch`,
 * and sets the context. */
static int split_run_slice(dv__slice *s, const split_plan *plan, char *frame, char *scratch, int64_t slice_index)
{
    int64_t origin[DV_MAX_NDIM] = { 0 };
    int64_t rest = slice_index / plan->nslices_of_dim;
    const int64_t part = slice_index % plan->nslices_of_dim;
    origin[plan->cut_dim] = part * plan->slice_size;
    for (int32_t i = plan->cut_dim; i-- > 0; rest /= plan->sizes[i])
        origin[i] = rest % plan->sizes[i];
    const int64_t left = plan->sizes[plan->cut_dim] - origin[plan->cut_dim],
                  count = left < plan->slice_size ? left : plan->slice_size;
    const dv__binding *b = plan->kernel->binding;
    memcpy(frame, plan->frame, b->frame_size);
    assert(rest == 0 && count > 0);
    for (size_t i = 0; i < plan->nslots; i++) {
        dv_tensor *const view = split_make_slice_view(plan, plan->slots[i].t, origin, count, &scratch);
        *(dv_tensor **)(void *)(frame + b->fields[plan->slots[i].field].offset) = view;
        const int status = plan->slots[i].original ? split_copy_part(s, plan, plan->slots[i].original, origin, view) : DV_OK;
        if (status)
            return status;
    }
    s->index = slice_index;
    s->ctx.stream = plan->stream;
    s->ctx.origin = origin;
    s->ctx.origin_ndim = plan->is_flattened ? 1 : plan->ndim;
    const int status = split_alloc_workspace(s, plan->workspace);
    return status ? status : plan->kernel->run(&s->ctx, frame);
}

static int split_run_slice_task(void *plan_arg, int64_t slice_index)
{
    const split_plan *sp = plan_arg;
    dv__slice s;
    _Alignas(16) char small[2048], *memory = small;
    const size_t frame_size = (sp->kernel->binding->frame_size + 15) & ~(size_t)15;
    if (atomic_load_explicit(&sp->call->has_error, memory_order_relaxed))
        return DV_EKERNEL; /* another slice failed and records the message */
    dv__slice_init(&s, sp->call);
    if (frame_size + sp->scratch_size > sizeof small && !(memory = dv__slice_alloc(&s, -1, frame_size + sp->scratch_size, 16)))
        return DV_ENOMEM;
    const int status = split_run_slice(&s, sp, memory, memory + frame_size, slice_index);
    dv__slice_deinit(&s);
    return status;
}

static int split_alloc_device_workspace(const dv__call *c, int64_t bytes, dv_tensor **out)
{
    const dv_dtype u8 = { 1, 8, 1 };
    const int64_t one = 1;
    return bytes ? dv__new_result_tensor(c, -1, u8, c->device, 1, &bytes, &one, out) : DV_OK;
}

int dv__run_kernel_unsplit(dv__call *c, const dv__kernel *kernel, const void *frame, int64_t workspace, void *stream)
{
    dv__slice s;
    dv_tensor *device_memory = NULL;
    int status;
    c->kernel = kernel;
    dv__slice_init(&s, c);
    s.ctx.stream = stream;
    if (dv__is_cpu_memory(c->device.type)) {
        status = split_alloc_workspace(&s, workspace);
    } else if (!(status = split_alloc_device_workspace(c, workspace, &device_memory)) && device_memory) {
        s.ctx.workspace = device_memory->data;
        s.ctx.workspace_size = (size_t)workspace;
    }
    if (!status)
        status = kernel->run(&s.ctx, frame);
    dv__slice_deinit(&s);
    dv__free_host_tensor(c, device_memory);
    return status;
}

/* Returns the size in bytes of a CPU core's last-level cache, from Linux's /sys. At most 32 MB, since cores share larger
 * caches. sysconf() is not used: it adds up the caches of all cores. */
static int64_t split_last_level_cache_size(void)
{
    enum { MAX_CACHE_SIZE = 1 << 25 };
    static atomic_llong known;
    long long size = atomic_load_explicit(&known, memory_order_relaxed);
    for (int level = 3; !size && level > 1; level--) {
        char path[64];
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/size", level);
        FILE *file = fopen(path, "re");
        if (file && fscanf(file, "%lldK", &size) == 1)
            size *= 1024;
        if (file)
            fclose(file);
    }
    if (size <= 0 || size > MAX_CACHE_SIZE)
        size = MAX_CACHE_SIZE;
    atomic_store_explicit(&known, size, memory_order_relaxed);
    return size;
}

/* True if the results and the written arguments in CPU memory have at least as many bytes as the last-level cache. */
static bool split_written_bytes_exceed_cache(const dv__call *c)
{
    int64_t bytes = 0;
    for (size_t i = 0; i < c->signature->nargs + c->nouts; i++) {
        const dv_tensor *t = i >= c->signature->nargs || c->signature->slots[i].flags & DV__SLOT_WRITES ? c->tensors[i] : NULL;
        if (t && dv__is_cpu_memory(t->device.type))
            bytes += dv_numel(t) * t->dtype.bits * t->dtype.lanes / 8;
    }
    return bytes >= split_last_level_cache_size();
}

/* Fills the deferred copies and runs the kernel once. Returns a status. */
static int split_run_whole(dv__call *c, const dv__kernel *kernel, const void *frame, int64_t workspace, void *stream)
{
    const int status = dv__staging_fill_deferred(c);
    return status ? status : dv__run_kernel_unsplit(c, kernel, frame, workspace, stream);
}

int dv__run_kernel_in_slices_if_possible(
    dv__call *c, const dv__kernel *kernel, const void *frame, int64_t workspace, void *stream)
{
    enum { MIN_CACHE_ELEMENTS = 1 << 20 }; /* calls whose largest tensor has fewer elements never exceed the last-level cache */
    c->ran_unsplit = true;
    c->exceeds_cache = c->max_numel >= MIN_CACHE_ELEMENTS && split_written_bytes_exceed_cache(c);
    if (kernel->split <= 0 || kernel->split >= c->max_numel || !c->op->contract || !dv__is_cpu_memory(c->device.type) ||
        (dv__test_hooks(c->host) && c->host->test->no_split))
        return split_run_whole(c, kernel, frame, workspace, stream);
    split_slot cuts[DV__MAX_SLOTS];
    split_plan sp;
    memset(&sp, 0, offsetof(split_plan, sizes));
    sp.call = c;
    sp.kernel = kernel;
    sp.frame = frame;
    sp.slots = cuts;
    sp.nslots = sp.scratch_size = 0;
    sp.workspace = workspace;
    sp.stream = stream;
    if (!split_try_find_cut_tensors(&sp) || !split_try_choose_slices(&sp))
        return split_run_whole(c, kernel, frame, workspace, stream);
    c->ran_unsplit = false;
    for (size_t i = 0; i < sp.nslots; i++)
        cuts[i].original = dv__staging_find_original_and_mark_cut(c, cuts[i].t);
    const int status = dv__staging_fill_deferred(c);
    if (status)
        return status;
    return dv__pool_run_tasks(c->host, sp.nslices, split_run_slice_task, &sp);
}
