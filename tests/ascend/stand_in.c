/* libascendcl.so's stand-in (stand_in.h). Nothing that was made is ever freed, so that use after destruction is seen as such. */
#include "stand_in.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define API STAND_IN

enum { MOST_TEXT = 1 << 18, MOST_ARGS = STAND_IN_MOST };
enum kind { TENSOR = 1, TENSORS, SCALAR, SCALARS, INTS, FLOATS, BOOLS, EXECUTOR, STREAM };
static const char *const kinds[] = { "", "aclTensor", "aclTensorList", "aclScalar", "aclScalarList", "aclIntArray",
    "aclFloatArray", "aclBoolArray", "aclOpExecutor", "aclrtStream" };
enum { FAILED = 507899, BAD = 161002 };

/* Every object begins so. */
typedef struct object {
    struct object *next;
    enum kind kind;
    bool alive, owned; /* owned: by a list */
    int id;
} object;

struct aclTensor {
    object o;
    int64_t sizes[8], strides[8], storage;
    size_t ndim;
    int32_t dtype, format;
    char *data;
};
struct aclTensorList {
    object o;
    size_t n;
    struct aclTensor *all[MOST_ARGS];
};
struct aclScalar {
    object o;
    int32_t dtype;
    double value;
};
struct aclScalarList {
    object o;
    size_t n;
    struct aclScalar *all[MOST_ARGS];
};
struct aclIntArray {
    object o;
    size_t n;
    int64_t values[MOST_ARGS];
};
struct aclFloatArray {
    object o;
    size_t n;
    float values[MOST_ARGS];
};
struct aclBoolArray {
    object o;
    size_t n;
    bool values[MOST_ARGS];
};
struct aclOpExecutor {
    object o;
    const char *op;
    void (*run)(const stand_in_values *v);
    const object *args[MOST_ARGS]; /* descriptors that must live until the launch */
    size_t nargs;
    const struct aclTensor *tensors[MOST_ARGS];
    size_t ntensors, nnumbers;
    double sum;
    uint64_t workspace;
    bool launched, repeatable, wrong;
};

/* Memory of the device: the address that programs see cannot be touched; the CPU's view of it is elsewhere. */
typedef struct memory {
    struct memory *next;
    char *device, *cpu;
    size_t size, room;
    bool alive;
    int id;
} memory;

typedef struct work {
    struct work *next;
    const char *op;
    void (*run)(const stand_in_values *v);
    struct aclTensor tensors[MOST_ARGS];
    bool absent[MOST_ARGS];
    size_t ntensors;
    double sum;
    char *workspace;
    uint64_t size;
    void (*kernel)(uint32_t block, const void *args); /* what a launcher launched */
    uint32_t blocks;
    _Alignas(16) char args[128];
    void *to; /* a copy, in place of an operator */
    const void *from;
    size_t bytes;
    int32_t kind; /* 1: to the device, 2: from it, 3: on it */
} work;

typedef struct stream {
    object o;
    pthread_t thread;
    pthread_cond_t changed;
    work *first, **last;
    bool running, stop;
    int waiting;
} stream;

static struct {
    pthread_mutex_t lock;
    object *objects;
    memory *memories;
    int counts[16], nmemories, fail_in;
    bool hold, failed, capture;
    void *expected;
    char faults[MOST_TEXT], trace[MOST_TEXT];
    stream standard; /* the NULL stream */
    bool has_standard;
} all = { .lock = PTHREAD_MUTEX_INITIALIZER };
static _Thread_local char message[512];
static _Thread_local int32_t last_error;

/* ---- Words ---- */

static void add(char *to, const char *format, va_list args)
{
    const size_t used = strlen(to);
    vsnprintf(to + used, MOST_TEXT - used, format, args);
    strncat(to, "\n", MOST_TEXT - strlen(to) - 1);
}

__attribute__((format(printf, 1, 2))) static void fault(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    add(all.faults, format, args);
    va_end(args);
}

__attribute__((format(printf, 1, 2))) static void trace(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    add(all.trace, format, args);
    va_end(args);
}

__attribute__((format(printf, 2, 3))) static int32_t error(int32_t status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    return status;
}

/* Does this call fail, as a test asked? */
static bool fails(const char *what)
{
    const bool now = all.fail_in && !--all.fail_in;
    if (now) {
        all.failed = true;
        error(FAILED, "EZ9999: the stand-in was told to fail in %s", what);
    }
    return now;
}

static void lock(void) { pthread_mutex_lock(&all.lock); }
static void unlock(void) { pthread_mutex_unlock(&all.lock); }

const char *stand_in_faults(void) { return all.faults; }
const char *stand_in_trace(void) { return all.trace; }
void stand_in_clear(void)
{
    lock();
    *all.faults = *all.trace = 0;
    memset(all.counts, 0, sizeof all.counts);
    for (memory *m = all.memories; m; m = m->next)
        m->id = 0;
    all.nmemories = 0;
    unlock();
}
void stand_in_fail(int n) { all.fail_in = n, all.failed = false; }
bool stand_in_failed(void) { return all.failed; }
void stand_in_expect(void *s) { all.expected = s; }
void stand_in_capture(bool on) { all.capture = on; }

/* ---- Objects ---- */

static void *make(enum kind kind, size_t size)
{
    object *o = calloc(1, size);
    if (!o)
        abort();
    o->kind = kind;
    o->alive = true;
    o->id = ++all.counts[kind];
    o->next = all.objects;
    all.objects = o;
    return o;
}

static const object *find(const void *p)
{
    for (const object *o = all.objects; o; o = o->next)
        if (o == p)
            return o;
    return NULL;
}

/* Is p a live object of this kind? Otherwise a fault is noted. */
static bool is(const void *p, enum kind kind, const char *where)
{
    const object *o = find(p);
    if (!p)
        fault("%s: a null pointer in the place of an %s", where, kinds[kind]);
    else if (!o)
        fault("%s: not an %s: no object", where, kinds[kind]);
    else if (o->kind != kind)
        fault("%s: expected an %s, found an %s", where, kinds[kind], kinds[o->kind]);
    else if (!o->alive)
        fault("%s: the %s was destroyed before", where, kinds[kind]);
    return o && o->kind == kind && o->alive;
}

static int32_t destroy(const void *p, enum kind kind)
{
    char where[64];
    snprintf(where, sizeof where, "destroying an %s", kinds[kind]);
    lock();
    if (is(p, kind, where)) {
        object *o = (object *)(uintptr_t)p;
        if (o->owned)
            fault("%s: it belongs to a list", where);
        o->alive = false;
        trace("destroy %s %d", kinds[kind], o->id);
    }
    unlock();
    return 0;
}

void stand_in_end(void)
{
    lock();
    for (const object *o = all.objects; o; o = o->next)
        if (o->alive && !o->owned &&
            (o->kind != EXECUTOR || !((const struct aclOpExecutor *)o)->launched ||
                ((const struct aclOpExecutor *)o)->repeatable))
            fault("at the end: %s %d was never %s", kinds[o->kind], o->id,
                o->kind == EXECUTOR ? "launched or destroyed" : "destroyed");
    for (const memory *m = all.memories; m; m = m->next)
        if (m->alive)
            fault("at the end: %zu bytes of device memory were never freed", m->size);
    unlock();
}

/* ---- Memory ---- */

static memory *memory_of(const void *p)
{
    for (memory *m = all.memories; m; m = m->next)
        if (m->alive && (const char *)p >= m->device && (const char *)p < m->device + (m->size ? m->size : 1))
            return m;
    return NULL;
}

void *stand_in_memory(const void *p)
{
    lock();
    const memory *m = memory_of(p);
    void *cpu = m ? m->cpu + ((const char *)p - m->device) : NULL;
    unlock();
    return cpu;
}

API int32_t aclrtMalloc(void **out, size_t size, int32_t policy);
API int32_t aclrtMalloc(void **out, size_t size, int32_t policy)
{
    (void)policy;
    lock();
    if (fails("aclrtMalloc") || !size) {
        unlock();
        return size ? FAILED : error(BAD, "EE1001: aclrtMalloc of 0 bytes");
    }
    memory *m = calloc(1, sizeof *m);
    const int file = memfd_create("stand_in", 0);
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), room = (size + page - 1) & ~(page - 1);
    if (!m || file < 0 || ftruncate(file, (off_t)room))
        abort();
    m->device = mmap(NULL, room, PROT_NONE, MAP_SHARED, file, 0);
    m->cpu = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    m->size = size;
    m->room = room;
    m->alive = true;
    m->next = all.memories;
    all.memories = m;
    memset(m->cpu, 0xee, room);
    *out = m->device;
    unlock();
    return 0;
}

API int32_t aclrtFree(void *p);
API int32_t aclrtFree(void *p)
{
    lock();
    memory *m = memory_of(p);
    if (!m || m->device != p)
        fault("aclrtFree: not the address of live device memory");
    else /* the addresses stay taken, so that they never come back */
        m->alive = false, munmap(m->cpu, m->room);
    unlock();
    return m ? 0 : error(BAD, "EE1001: aclrtFree");
}

API int32_t aclrtMemcpy(void *to, size_t room, const void *from, size_t size, int32_t kind);
API int32_t aclrtMemcpy(void *to, size_t room, const void *from, size_t size, int32_t kind)
{
    void *d = stand_in_memory(to), *s = stand_in_memory(from);
    const bool ok = size <= room && (kind == 1 ? d && !s : kind == 2 ? !d && s : kind == 3 ? d && s : !d && !s);
    if (!ok) {
        lock();
        fault("aclrtMemcpy: kind %d does not fit the addresses", kind);
        unlock();
        return error(BAD, "EE1001: aclrtMemcpy");
    }
    memcpy(d ? d : to, s ? s : from, size);
    return 0;
}

/* ---- Streams ---- */

static void check_memory(const work *w, const char *what, const void *p, uint64_t bytes)
{
    const memory *m = memory_of(p);
    if (bytes && !m)
        fault("%s: its %s is not device memory, or was freed before the kernel ran", w->op, what);
    else if (bytes && (const char *)p + bytes > m->device + m->size)
        fault("%s: its %s ends %td bytes past the memory", w->op, what, (const char *)p + bytes - m->device - (ptrdiff_t)m->size);
}

static size_t bytes_of(int32_t dtype)
{
    switch (dtype) {
    case 9:
    case 10:
    case 11:
    case 16: return 8;
    case 17: return 16;
    case 1:
    case 27:
    case 6:
    case 7: return 2;
    case 2:
    case 4:
    case 12:
    case 34:
    case 35:
    case 36:
    case 37: return 1;
    default: return 4;
    }
}

static void *view(const void *p)
{
    const memory *m = memory_of(p);
    return m ? m->cpu + ((const char *)p - m->device) : NULL;
}

/* With the lock. The kernel runs without it. */
static void run(const work *w)
{
    static stand_in_values v;
    if (w->to) {
        void *to = w->kind == 2 ? w->to : view(w->to);
        const void *from = w->kind == 1 ? w->from : view(w->from);
        if (to && from)
            memmove(to, from, w->bytes);
        else
            fault("a copy: its memory was freed before it ran");
        return;
    }
    if (w->kernel) {
        unlock(); /* it asks for memory */
        for (uint32_t block = 0; block < w->blocks; block++)
            w->kernel(block, w->args);
        lock();
        trace("run %s", w->op);
        return;
    }
    memset(&v, 0, sizeof v);
    v.sum = w->sum;
    bool ok = true;
    const size_t before = strlen(all.faults);
    check_memory(w, "workspace", w->workspace, w->size);
    for (size_t i = 0; i < w->ntensors; i++) {
        const struct aclTensor *t = &w->tensors[i];
        stand_in_tensor *to = &v.tensors[v.ntensors++];
        if (w->absent[i])
            continue;
        check_memory(w, "tensor", t->data, (uint64_t)t->storage * bytes_of(t->dtype));
        to->ndim = t->ndim;
        memcpy(to->sizes, t->sizes, sizeof to->sizes);
        memcpy(to->strides, t->strides, sizeof to->strides);
        to->dtype = t->dtype;
        to->data = view(t->data);
    }
    ok = strlen(all.faults) == before;
    if (ok && w->size)
        memset(view(w->workspace), 0x5a, w->size);
    if (ok)
        w->run(&v);
    trace("run %s", w->op);
}

static void *serve(void *arg)
{
    stream *s = arg;
    lock();
    while (!s->stop || s->first) {
        if (!s->first || (all.hold && !s->waiting && !s->stop)) {
            pthread_cond_wait(&s->changed, &all.lock);
            continue;
        }
        work *w = s->first;
        s->running = true;
        if (!s->waiting) { /* late */
            unlock();
            usleep(300);
            lock();
        }
        run(w);
        s->first = w->next;
        if (!s->first)
            s->last = &s->first;
        free(w);
        s->running = false;
        pthread_cond_broadcast(&s->changed);
    }
    unlock();
    return NULL;
}

static void start(stream *s)
{
    s->last = &s->first;
    pthread_cond_init(&s->changed, NULL);
    if (pthread_create(&s->thread, NULL, serve, s))
        abort();
}

/* With the lock. */
static stream *stream_of(void *p, const char *where)
{
    if (!p) {
        if (!all.has_standard)
            start(&all.standard), all.has_standard = true;
        return &all.standard;
    }
    return is(p, STREAM, where) ? p : NULL;
}

static void push(stream *s, work *w)
{
    *s->last = w;
    s->last = &w->next;
    pthread_cond_broadcast(&s->changed);
}

void stand_in_hold(bool hold)
{
    lock();
    all.hold = hold;
    for (object *o = all.objects; o; o = o->next)
        if (o->kind == STREAM)
            pthread_cond_broadcast(&((stream *)o)->changed);
    unlock();
}

API int32_t aclrtSetDevice(int32_t device);
API int32_t aclrtSetDevice(int32_t device) { return device == 0 ? 0 : error(BAD, "EE1001: there is no device %d", device); }

API int32_t aclrtCreateStream(void **out);
API int32_t aclrtCreateStream(void **out)
{
    lock();
    const bool bad = fails("aclrtCreateStream");
    if (!bad) {
        stream *s = make(STREAM, sizeof *s);
        start(s);
        *out = s;
    }
    unlock();
    return bad ? FAILED : 0;
}

API int32_t aclrtSynchronizeStream(void *p);
API int32_t aclrtSynchronizeStream(void *p)
{
    lock();
    stream *s = stream_of(p, "aclrtSynchronizeStream");
    if (s) {
        s->waiting++;
        pthread_cond_broadcast(&s->changed);
        while (s->first)
            pthread_cond_wait(&s->changed, &all.lock);
        s->waiting--;
    }
    unlock();
    return s ? 0 : error(BAD, "EE1001: no such stream");
}

API int32_t aclrtSynchronizeDevice(void);
API int32_t aclrtSynchronizeDevice(void)
{
    for (object *o = all.objects; o; o = o->next) /* the list only grows, at its head */
        if (o->kind == STREAM && o->alive)
            aclrtSynchronizeStream(o);
    return aclrtSynchronizeStream(NULL);
}

API int32_t aclrtDestroyStream(void *p);
API int32_t aclrtDestroyStream(void *p)
{
    lock();
    stream *s = p && is(p, STREAM, "aclrtDestroyStream") ? p : NULL;
    if (s) {
        if (s->first)
            fault("aclrtDestroyStream: work is left on it");
        s->o.alive = false;
        s->stop = true;
        pthread_cond_broadcast(&s->changed);
    }
    unlock();
    if (s)
        pthread_join(s->thread, NULL);
    return s ? 0 : error(BAD, "EE1001: no such stream");
}

API int32_t aclrtMemcpyAsync(void *to, size_t room, const void *from, size_t size, int32_t kind, void *p);
API int32_t aclrtMemcpyAsync(void *to, size_t room, const void *from, size_t size, int32_t kind, void *p)
{
    lock();
    stream *s = stream_of(p, "aclrtMemcpyAsync");
    work *w = calloc(1, sizeof *w);
    const bool ok = s && w && size <= room && kind >= 1 && kind <= 3 && !view(to) == (kind == 2) && !view(from) == (kind == 1) &&
        !fails("aclrtMemcpyAsync");
    if (ok) {
        w->op = "copy", w->kind = kind, w->to = to, w->from = from, w->bytes = size;
        push(s, w);
    } else {
        free(w);
    }
    unlock();
    return ok ? 0 : error(BAD, "EE1001: aclrtMemcpyAsync");
}

API int32_t aclrtGetLastError(int32_t level);
API int32_t aclrtGetLastError(int32_t level)
{
    const int32_t status = level ? BAD : last_error;
    last_error = 0;
    return status;
}

API const char *aclGetRecentErrMsg(void);
API const char *aclGetRecentErrMsg(void) { return message; }

API int32_t aclmdlRICaptureGetInfo(void *p, int32_t *status, void **model);
API int32_t aclmdlRICaptureGetInfo(void *p, int32_t *status, void **model)
{
    (void)p;
    *status = all.capture;
    *model = NULL;
    return 0;
}

/* ---- Descriptors ---- */

static const char *name_of_dtype(int32_t dtype)
{
    static const char *const names[] = { "f32", "f16", "i8", "i32", "u8", "5", "i16", "u16", "u32", "i64", "u64", "f64", "bool" };
    return dtype >= 0 && dtype < 13 ? names[dtype] : dtype == 27 ? "bf16" : dtype == 16 ? "c64" : "another type";
}

static void list(char *to, const int64_t *values, size_t n)
{
    *to = 0;
    for (size_t i = 0; i < n; i++)
        sprintf(to + strlen(to), "%s%lld", i ? ", " : "", (long long)values[i]);
}

static void check_tensor(const struct aclTensor *t, const int64_t *storage, uint64_t nstorage)
{
    int64_t need = 1, have = 1;
    for (size_t i = 0; i < t->ndim; i++)
        need = t->sizes[i] && need ? need + (t->sizes[i] - 1) * t->strides[i] : 0;
    for (uint64_t i = 0; i < nstorage; i++)
        have *= storage[i];
    if (have < need)
        fault("aclCreateTensor: a storage of %lld elements, the view reaches %lld", (long long)have, (long long)need);
    if (need && !memory_of(t->data))
        fault("aclCreateTensor: the address is not device memory");
    if (t->dtype < 0 || t->dtype > 41)
        fault("aclCreateTensor: dtype %d", t->dtype);
}

API struct aclTensor *aclCreateTensor(const int64_t *sizes, uint64_t ndim, int32_t dtype, const int64_t *strides, int64_t offset,
    int32_t format, const int64_t *storage, uint64_t nstorage, void *data);
API struct aclTensor *aclCreateTensor(const int64_t *sizes, uint64_t ndim, int32_t dtype, const int64_t *strides, int64_t offset,
    int32_t format, const int64_t *storage, uint64_t nstorage, void *data)
{
    char shape[256], steps[256];
    lock();
    if (ndim > 8 || fails("aclCreateTensor")) {
        unlock();
        return NULL;
    }
    struct aclTensor *t = make(TENSOR, sizeof *t);
    for (size_t i = 0; i < ndim; i++)
        t->sizes[i] = sizes[i], t->strides[i] = strides[i];
    t->ndim = ndim;
    t->dtype = dtype;
    t->format = format;
    t->data = data ? (char *)data + offset * (int64_t)bytes_of(dtype) : NULL;
    t->storage = 1;
    for (size_t i = 0; i < ndim; i++)
        t->storage = sizes[i] && t->storage ? t->storage + (sizes[i] - 1) * strides[i] : 0;
    check_tensor(t, storage, nstorage);
    memory *m = memory_of(t->data);
    if (m && !m->id)
        m->id = ++all.nmemories;
    list(shape, sizes, ndim);
    list(steps, strides, ndim);
    trace("create aclTensor %d: %s[%s] strides [%s] format %d at memory %d + %td", t->o.id, name_of_dtype(dtype), shape, steps,
        format, m ? m->id : 0, m ? t->data - m->device : 0);
    unlock();
    return t;
}

API struct aclTensorList *aclCreateTensorList(const struct aclTensor *const *tensors, uint64_t n);
API struct aclTensorList *aclCreateTensorList(const struct aclTensor *const *tensors, uint64_t n)
{
    lock();
    struct aclTensorList *l = n > MOST_ARGS || fails("aclCreateTensorList") ? NULL : make(TENSORS, sizeof *l);
    for (size_t i = 0; l && i < n; i++)
        if (is(tensors[i], TENSOR, "aclCreateTensorList")) {
            l->all[l->n] = (struct aclTensor *)(uintptr_t)tensors[i];
            l->all[l->n++]->o.owned = true;
        }
    if (l)
        trace("create aclTensorList %d of %zu", l->o.id, l->n);
    unlock();
    return l;
}

const void *stand_in_address(const struct aclTensor *t) { return t->data; }
const struct aclTensor *stand_in_element(const struct aclTensorList *l, size_t i) { return i < l->n ? l->all[i] : NULL; }
const int64_t *stand_in_ints(const struct aclIntArray *a, size_t *n) { return *n = a->n, a->values; }

API struct aclScalar *aclCreateScalar(void *value, int32_t dtype);
API struct aclScalar *aclCreateScalar(void *value, int32_t dtype)
{
    lock();
    struct aclScalar *s = fails("aclCreateScalar") ? NULL : make(SCALAR, sizeof *s);
    if (s) {
        s->dtype = dtype;
        s->value = dtype == 9 ? (double)*(int64_t *)value
            : dtype == 11     ? *(double *)value
            : dtype == 12     ? *(bool *)value
            : dtype == 0      ? (double)*(float *)value
            : dtype == 3      ? *(int32_t *)value
                              : -1;
        trace("create aclScalar %d: %s %g", s->o.id, name_of_dtype(dtype), s->value);
    }
    unlock();
    return s;
}

API struct aclScalarList *aclCreateScalarList(const struct aclScalar *const *scalars, uint64_t n);
API struct aclScalarList *aclCreateScalarList(const struct aclScalar *const *scalars, uint64_t n)
{
    lock();
    struct aclScalarList *l = n > MOST_ARGS || fails("aclCreateScalarList") ? NULL : make(SCALARS, sizeof *l);
    for (size_t i = 0; l && i < n; i++)
        if (is(scalars[i], SCALAR, "aclCreateScalarList")) {
            l->all[l->n] = (struct aclScalar *)(uintptr_t)scalars[i];
            l->all[l->n++]->o.owned = true;
        }
    unlock();
    return l;
}

#define ARRAY(Name, KIND, T, format, cast)                                                                             \
    API struct acl##Name##Array *aclCreate##Name##Array(const T *values, uint64_t n);                                  \
    API struct acl##Name##Array *aclCreate##Name##Array(const T *values, uint64_t n)                                   \
    {                                                                                                                  \
        char text[1024] = "";                                                                                          \
        lock();                                                                                                        \
        struct acl##Name##Array *a = n > MOST_ARGS || fails("aclCreate" #Name "Array") ? NULL : make(KIND, sizeof *a); \
        if (a) {                                                                                                       \
            a->n = n;                                                                                                  \
            if (n)                                                                                                     \
                memcpy(a->values, values, n * sizeof *values);                                                         \
            for (size_t i = 0; i < n; i++)                                                                             \
                snprintf(text + strlen(text), sizeof text - strlen(text), " " format, (cast)a->values[i]);             \
            trace("create acl" #Name "Array %d:%s", a->o.id, text);                                                    \
        }                                                                                                              \
        unlock();                                                                                                      \
        return a;                                                                                                      \
    }
ARRAY(Int, INTS, int64_t, "%lld", long long)
ARRAY(Float, FLOATS, float, "%g", double)
ARRAY(Bool, BOOLS, bool, "%d", int)

#define DESTROY(Name, KIND)                                  \
    API int32_t aclDestroy##Name(const struct acl##Name *p); \
    API int32_t aclDestroy##Name(const struct acl##Name *p) { return destroy(p, KIND); }
DESTROY(Tensor, TENSOR)
DESTROY(Scalar, SCALAR)
DESTROY(IntArray, INTS)
DESTROY(FloatArray, FLOATS)
DESTROY(BoolArray, BOOLS)

#define DESTROY_LIST(Name, KIND)                             \
    API int32_t aclDestroy##Name(const struct acl##Name *p); \
    API int32_t aclDestroy##Name(const struct acl##Name *p)  \
    {                                                        \
        lock();                                              \
        for (size_t i = 0; find(p) && i < p->n; i++)         \
            p->all[i]->o.alive = false;                      \
        unlock();                                            \
        return destroy(p, KIND);                             \
    }
DESTROY_LIST(TensorList, TENSORS)
DESTROY_LIST(ScalarList, SCALARS)

/* ---- Executors ---- */

struct aclOpExecutor *stand_in_begin(const char *op, void (*body)(const stand_in_values *v))
{
    lock();
    struct aclOpExecutor *e = make(EXECUTOR, sizeof *e);
    e->op = op;
    e->run = body;
    trace("%sGetWorkspaceSize", op);
    unlock();
    return e;
}

/* With the lock. A parameter that is a descriptor; false if it is none. */
static bool take(struct aclOpExecutor *e, const char *name, const void *p, enum kind kind)
{
    char where[128];
    snprintf(where, sizeof where, "%s: parameter %s", e->op, name);
    if (!is(p, kind, where)) {
        e->wrong = true;
        return false;
    }
    e->args[e->nargs++] = p;
    trace("  %s: %s %d", name, kinds[kind], ((const object *)p)->id);
    return true;
}

static void number(struct aclOpExecutor *e, double value) { e->sum += value * (double)++e->nnumbers; }

void stand_in_take_tensor(struct aclOpExecutor *e, const char *name, const struct aclTensor *t, bool optional)
{
    lock();
    if (!t && optional)
        trace("  %s: null", name);
    const bool there = !(!t && optional) && take(e, name, t, TENSOR);
    e->tensors[e->ntensors++] = there ? t : NULL;
    unlock();
}

void stand_in_take_tensors(struct aclOpExecutor *e, const char *name, const struct aclTensorList *l)
{
    lock();
    if (take(e, name, l, TENSORS))
        for (size_t i = 0; i < l->n; i++)
            e->tensors[e->ntensors++] = l->all[i];
    unlock();
}

void stand_in_take_scalar(struct aclOpExecutor *e, const char *name, const struct aclScalar *s)
{
    lock();
    if (take(e, name, s, SCALAR))
        number(e, s->value);
    unlock();
}

#define TAKE_ARRAY(lower, Name, KIND)                                                                       \
    void stand_in_take_##lower(struct aclOpExecutor *e, const char *name, const struct acl##Name##Array *a) \
    {                                                                                                       \
        lock();                                                                                             \
        if (take(e, name, a, KIND))                                                                         \
            for (size_t i = 0; i < a->n; i++)                                                               \
                number(e, (double)a->values[i]);                                                            \
        unlock();                                                                                           \
    }
TAKE_ARRAY(ints, Int, INTS)
TAKE_ARRAY(floats, Float, FLOATS)
TAKE_ARRAY(bools, Bool, BOOLS)

void stand_in_take_number(struct aclOpExecutor *e, const char *name, double value)
{
    lock();
    trace("  %s: %g", name, value);
    number(e, value);
    unlock();
}

void stand_in_take_text(struct aclOpExecutor *e, const char *name, const char *text)
{
    char copy[256] = "(null)"; /* without the lock: a crash here must not stop the others */
    if (text)
        strncpy(copy, text, sizeof copy - 1);
    lock();
    trace("  %s: \"%s\"", name, copy);
    number(e, (double)strlen(copy));
    unlock();
}

int32_t stand_in_done(struct aclOpExecutor *e, uint64_t workspace, uint64_t *size, struct aclOpExecutor **out)
{
    *size = workspace;
    *out = NULL;
    lock();
    if (e->wrong || fails("GetWorkspaceSize")) {
        e->o.alive = false;
        unlock();
        return e->wrong ? error(BAD, "EZ1001: a parameter of %s is wrong", e->op) : FAILED;
    }
    e->workspace = workspace;
    *out = e;
    trace("  -> workspace %llu", (unsigned long long)workspace);
    unlock();
    return 0;
}

API int32_t aclSetAclOpExecutorRepeatable(struct aclOpExecutor *e);
API int32_t aclSetAclOpExecutorRepeatable(struct aclOpExecutor *e)
{
    lock();
    const bool ok = is(e, EXECUTOR, "aclSetAclOpExecutorRepeatable") && !e->launched;
    if (ok)
        e->repeatable = true;
    unlock();
    return ok ? 0 : BAD;
}

API int32_t aclDestroyAclOpExecutor(struct aclOpExecutor *e);
API int32_t aclDestroyAclOpExecutor(struct aclOpExecutor *e)
{
    lock();
    if (find(e) && !e->repeatable)
        fault("aclDestroyAclOpExecutor: the executor of %s is not repeatable", e->op);
    unlock();
    return destroy(e, EXECUTOR);
}

static bool check_launch(const char *op, void *workspace, uint64_t size, struct aclOpExecutor *e, void *on)
{
    char where[128];
    snprintf(where, sizeof where, "%s: its executor", op);
    if (!is(e, EXECUTOR, where))
        return false;
    const size_t before = strlen(all.faults);
    if (e->launched && !e->repeatable)
        fault("%s: the executor was used twice", op);
    if (strcmp(e->op, op))
        fault("%s: the executor is one of %s", op, e->op);
    if (size != e->workspace)
        fault("%s: a workspace of %llu bytes, the first phase asked for %llu", op, (unsigned long long)size,
            (unsigned long long)e->workspace);
    if (all.expected && on != all.expected)
        fault("%s: launched on another stream than the current one", op);
    for (size_t i = 0; i < e->nargs; i++)
        if (!e->args[i]->alive)
            fault("%s: %s %d was destroyed before the launch", op, kinds[e->args[i]->kind], e->args[i]->id);
    const memory *m = size ? memory_of(workspace) : NULL;
    if (size && !m)
        fault("%s: the workspace is not device memory", op);
    else if (m && (char *)workspace + size > m->device + m->size)
        fault("%s: the workspace has room for %zu bytes of %llu", op, (size_t)(m->device + m->size - (char *)workspace),
            (unsigned long long)size);
    return strlen(all.faults) == before;
}

int32_t stand_in_launch(const char *op, void *workspace, uint64_t size, struct aclOpExecutor *e, void *on)
{
    lock();
    char where[128];
    snprintf(where, sizeof where, "%s: its stream", op);
    stream *s = stream_of(on, where);
    bool ok = check_launch(op, workspace, size, e, on) && s;
    if (ok && fails(op)) {
        e->launched = true;
        unlock();
        return FAILED;
    }
    if (ok) {
        work *w = calloc(1, sizeof *w);
        if (!w)
            abort();
        e->launched = true;
        w->op = op, w->run = e->run, w->sum = e->sum, w->workspace = workspace, w->size = size, w->ntensors = e->ntensors;
        for (size_t i = 0; i < e->ntensors; i++)
            if (!(w->absent[i] = !e->tensors[i]))
                w->tensors[i] = *e->tensors[i];
        trace("%s", op);
        push(s, w);
    }
    unlock();
    return ok ? 0 : error(BAD, "EZ1001: %s was called wrongly", op);
}

/* ---- Launchers ---- */

void *stand_in_touch(const char *op, const void *p, size_t bytes)
{
    const work w = { .op = op };
    lock();
    const size_t before = strlen(all.faults);
    check_memory(&w, "memory", p, bytes);
    void *cpu = strlen(all.faults) == before ? view(p) : NULL;
    unlock();
    return cpu;
}

void stand_in_kernel(const char *op, uint32_t blocks, void *l2ctrl, void *on, void (*kernel)(uint32_t block, const void *args),
    const void *args, size_t size)
{
    char where[128];
    snprintf(where, sizeof where, "%s: its stream", op);
    lock();
    stream *s = stream_of(on, where);
    work *w = calloc(1, sizeof *w);
    if (!w || size > sizeof w->args)
        abort();
    if (l2ctrl)
        fault("%s: l2ctrl is not null", op);
    if (all.expected && on != all.expected)
        fault("%s: launched on another stream than the current one", op);
    if (s && fails(op))
        last_error = FAILED;
    if (s && !last_error) {
        w->op = op, w->kernel = kernel, w->blocks = blocks;
        memcpy(w->args, args, size);
        trace("%s<<<%u>>>", op, blocks);
        push(s, w);
    } else {
        free(w);
    }
    unlock();
}
