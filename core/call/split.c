/* Runs a kernel once, or on slices.
 *
 * A row with split = grain lets the runtime cut along the leading parallel dims. One step is one index of those dims. The steps
 * are cut into boxes of at least grain steps: the dims that fit into a box stay whole, one dim is cut at multiples of what fills
 * a box, and those before it are taken one index at a time. When no kernel can know how many dims there are (they come from one
 * run *s) and every tensor that is cut has them contiguous, they are first made one dim. All this depends on the shape and the
 * grain alone. */
#include "call/split.h"

#include "base/memory.h"
#include "call/host.h"
#include "call/pool.h"
#include "call/services.h"

#include <stdio.h>

typedef struct cut_slot {
    size_t slot;
    size_t field;
    const dv_tensor *t;
} cut_slot; /* field: its place in the binding */

typedef struct splitter {
    dv__call *call;
    const dv__row *row;
    const char *frame;
    int32_t ndim;               /* leading dims */
    int64_t sizes[DV_MAX_NDIM]; /* of them; flat: [0] is all */
    bool flat;
    int32_t at;                  /* the dim that is cut */
    int64_t step, parts, pieces; /* size of a box along it; boxes along it; boxes in all */
    cut_slot *cuts;
    size_t ncuts, scratch; /* bytes for the slice's tensors */
    int64_t workspace;
    void *stream;
} splitter;

static int64_t ceildiv(int64_t a, int64_t b) { return a / b + (a % b != 0); }

/* Can the leading dims be traversed as one? Dims of size one do not matter. */
static bool is_one_run(const dv_tensor *t, int32_t leading)
{
    bool any = false;
    int64_t expected = 0;
    for (int32_t i = leading; i-- > 0;) {
        if (t->shape[i] == 1)
            continue;
        if (any && t->strides[i] != expected)
            return false;
        any = true;
        expected = t->strides[i] * t->shape[i];
    }
    return true;
}

/* Which slots are cut. Fails if one of them is a list. */
static bool find_cuts(splitter *sp)
{
    dv__call *c = sp->call;
    const dv__binding *b = sp->row->binding;
    sp->flat = dv__contract_split_flattens(c->op->contract, &c->solution);
    for (size_t f = 0; f < b->n; f++) {
        const size_t slot = b->fields[f].slot;
        int32_t leading;
        if (!dv__contract_split(c->op->contract, &c->solution, slot, &leading))
            return false;
        if (!leading)
            continue;
        const dv_field_row *row = dv_field_at(b->fields[f].type);
        const dv_tensor *t = c->tensors[slot];
        if (row->value == DV_VALUE_TENSORS)
            return false;
        if (row->value != DV_VALUE_TENSOR || !t)
            continue;
        if (slot >= c->plan->nargs && c->outs[slot - c->plan->nargs].origin == DV__RESULT_PENDING)
            return false;
        if (leading > t->ndim || t->dtype.bits * t->dtype.lanes % 8)
            return false;
        sp->flat = sp->flat && is_one_run(t, leading);
        if (!sp->ncuts) {
            sp->ndim = leading;
            memcpy(sp->sizes, t->shape, sizeof *t->shape * (size_t)leading);
        }
        sp->cuts[sp->ncuts++] = (cut_slot){ slot, f, t };
        sp->scratch += sizeof(dv_tensor) + 2 * sizeof(int64_t) * (size_t)t->ndim;
    }
    return sp->ncuts > 0;
}

/* Where to cut; false: it stays whole. */
static bool plan_cuts(splitter *sp)
{
    const int64_t grain = sp->row->split;
    int64_t inner = 1;
    for (int32_t i = 0; i < sp->ndim; i++)
        inner *= sp->sizes[i];
    if (inner <= grain)
        return false;
    if (sp->flat) {
        sp->sizes[0] = inner;
        sp->at = 0;
        inner = 1;
    } else {
        for (sp->at = 0; inner > grain; sp->at++) /* the first dim of which one index has at most the steps of a box */
            inner /= sp->sizes[sp->at];
        sp->at--;
        assert(sp->at >= 0);
    }
    const int64_t size = sp->sizes[sp->at];
    sp->step = ceildiv(grain, inner);
    const int64_t many = size / sp->step / 1024; /* no more boxes than any machine needs */
    if (many > 1)
        sp->step *= many;
    sp->parts = ceildiv(size, sp->step);
    sp->pieces = sp->parts;
    for (int32_t i = 0; i < sp->at; i++)
        sp->pieces *= sp->sizes[i];
    return sp->pieces > 1;
}

/* The slice's view of a tensor, in scratch. */
static dv_tensor *cut(const splitter *sp, const dv_tensor *t, const int64_t *origin, int64_t count, char **scratch)
{
    dv_tensor *view = (dv_tensor *)(void *)*scratch;
    int64_t *shape = (int64_t *)(void *)(view + 1), *strides = shape + t->ndim;
    *scratch += sizeof(dv_tensor) + 2 * sizeof(int64_t) * (size_t)t->ndim;
    const int32_t lost = sp->flat ? sp->ndim - 1 : 0; /* dims that became one */
    *view = *t;
    view->ndim = t->ndim - lost;
    memcpy(shape, t->shape + lost, sizeof *shape * (size_t)view->ndim);
    memcpy(strides, t->strides + lost, sizeof *strides * (size_t)view->ndim);
    if (sp->flat)
        for (int32_t i = 0; i < sp->ndim; i++) /* the stride of the last dim that moves */
            if (t->shape[i] != 1)
                strides[0] = t->strides[i];
    view->shape = shape;
    view->strides = strides;
    int64_t offset = 0;
    for (int32_t i = 0; i <= sp->at; i++) {
        shape[i] = i == sp->at ? count : 1;
        offset += origin[i] * strides[i];
    }
    view->data = (char *)t->data + offset * dv_dtype_bytes(t->dtype, 1);
    return view;
}

static int slice_workspace(dv__slice *s, int64_t bytes)
{
    if (!bytes)
        return DV_OK;
    s->ctx.workspace = dv__slice_alloc(s, DV_MEMORY_WORKSPACE, (size_t)bytes, 64);
    s->ctx.workspace_size = (size_t)bytes;
    return s->ctx.workspace ? DV_OK : DV_ENOMEM;
}

static int run_slice(dv__slice *s, const splitter *sp, char *frame, char *scratch, int64_t index)
{
    int64_t origin[DV_MAX_NDIM] = { 0 };
    int64_t rest = index / sp->parts;
    const int64_t part = index % sp->parts;
    origin[sp->at] = part * sp->step;
    for (int32_t i = sp->at; i-- > 0; rest /= sp->sizes[i])
        origin[i] = rest % sp->sizes[i];
    const int64_t left = sp->sizes[sp->at] - origin[sp->at], count = left < sp->step ? left : sp->step;
    const dv__binding *b = sp->row->binding;
    memcpy(frame, sp->frame, b->frame_size);
    for (size_t i = 0; i < sp->ncuts; i++)
        *(dv_tensor **)(void *)(frame + b->fields[sp->cuts[i].field].offset) = cut(sp, sp->cuts[i].t, origin, count, &scratch);
    assert(rest == 0 && count > 0);
    s->index = index;
    s->ctx.stream = sp->stream;
    s->ctx.origin = origin;
    s->ctx.origin_ndim = sp->flat ? 1 : sp->ndim;
    const int status = slice_workspace(s, sp->workspace);
    return status ? status : sp->row->run(&s->ctx, frame);
}

static int run_piece(void *arg, int64_t index)
{
    const splitter *sp = arg;
    dv__slice s;
    _Alignas(16) char small[2048], *memory = small;
    const size_t frame_size = (sp->row->binding->frame_size + 15) & ~(size_t)15;
    if (atomic_load_explicit(&sp->call->failing, memory_order_relaxed))
        return DV_EKERNEL; /* the message is there, or about to be */
    dv__slice_init(&s, sp->call);
    if (frame_size + sp->scratch > sizeof small && !(memory = dv__slice_alloc(&s, -1, frame_size + sp->scratch, 16)))
        return DV_ENOMEM;
    const int status = run_slice(&s, sp, memory, memory + frame_size, index);
    dv__slice_deinit(&s);
    return status;
}

static int device_workspace(const dv__call *c, int64_t bytes, dv_tensor **out)
{
    const dv_dtype u8 = { 1, 8, 1 };
    const int64_t one = 1;
    return bytes ? dv__new_tensor(c, -1, u8, c->device, 1, &bytes, &one, out) : DV_OK;
}

int dv__run_whole(dv__call *c, const dv__row *row, const void *frame, int64_t workspace, void *stream)
{
    dv__slice s;
    dv_tensor *device_memory = NULL;
    int status;
    c->row = row;
    dv__slice_init(&s, c);
    s.ctx.stream = stream;
    if (dv__host_memory(c->device.type)) {
        status = slice_workspace(&s, workspace);
    } else if (!(status = device_workspace(c, workspace, &device_memory)) && device_memory) {
        s.ctx.workspace = device_memory->data;
        s.ctx.workspace_size = (size_t)workspace;
    }
    if (!status)
        status = row->run(&s.ctx, frame);
    dv__slice_deinit(&s);
    dv__free_tensor(c, device_memory);
    return status;
}

/* Bytes of the last cache that a core reaches, as Linux says; sysconf() counts those of all cores together. Of one that many
 * cores share, a program can hope for no more than 32 MB. */
static int64_t last_cache(void)
{
    enum { MOST = 1 << 25 };
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
    if (size <= 0 || size > MOST)
        size = MOST;
    atomic_store_explicit(&known, size, memory_order_relaxed);
    return size;
}

static bool is_large(const dv__call *c)
{
    int64_t bytes = 0;
    for (size_t i = 0; i < c->plan->nargs + c->nouts; i++) {
        const dv_tensor *t = i >= c->plan->nargs || c->plan->slots[i].flags & DV__SLOT_WRITES ? c->tensors[i] : NULL;
        if (t && dv__host_memory(t->device.type))
            bytes += dv_numel(t) * t->dtype.bits * t->dtype.lanes / 8;
    }
    return bytes >= last_cache();
}

int dv__run_kernel(dv__call *c, const dv__row *row, const void *frame, int64_t workspace, void *stream)
{
    enum { NONE_IS_SMALLER = 1 << 20 }; /* elements: of no cache that is the last */
    c->whole = true;
    c->large = c->most >= NONE_IS_SMALLER && is_large(c);
    if (row->split <= 0 || row->split >= c->most || !c->op->contract || !dv__host_memory(c->device.type) ||
        (dv__test_hooks(c->host) && c->host->test->whole))
        return dv__run_whole(c, row, frame, workspace, stream);
    cut_slot cuts[DV__MAX_SLOTS];
    splitter sp;
    memset(&sp, 0, offsetof(splitter, sizes));
    sp.call = c;
    sp.row = row;
    sp.frame = frame;
    sp.cuts = cuts;
    sp.ncuts = sp.scratch = 0;
    sp.workspace = workspace;
    sp.stream = stream;
    if (!find_cuts(&sp) || !plan_cuts(&sp))
        return dv__run_whole(c, row, frame, workspace, stream);
    c->whole = false;
    return dv__parallel(c->host, sp.pieces, run_piece, &sp);
}
