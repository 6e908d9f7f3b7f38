/* Programs that show a failure: in C and in Python. They need nothing of the checker: memory between guard pages, the arguments
 * with their contents, the call, and the question whose answer is wrong. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "repro.h"

bool check_repro_possible(const check_job *job)
{
    const check_result *r = job->result;
    return r->outcome == CHECK_FAIL && (job->said_python || (r->has_case && r->how.show != CHECK_SHOW_NOTHING));
}

void check_repro_case(const check_job *job, FILE *to)
{
    check_case_print(job->op, &job->result->failing, to);
    if (!job->result->has_before)
        return;
    fputs(", after a call with ", to);
    check_case_print(job->op, &job->result->before, to);
}

/* ---- What both need ---- */

/* The call before, as if it were the failing one: for its arguments. */
static check_job *before_of(const check_job *job)
{
    static check_job before;
    static check_result result;
    before = *job;
    before.result = &result;
    result = *job->result;
    result.failing = result.before;
    return &before;
}

static int32_t row_of(const check_job *job) { return job->row ? job->row->index : 0; }

enum { FAR_BYTES = 1 << 28 }; /* as in memory.c */

static const char *file_of(const char *path)
{
    const char *slash = path ? strrchr(path, '/') : NULL;
    return slash ? slash + 1 : path ? path : "my_ops.so";
}

/* One line of words; "*" and "/" cannot end a comment. */
static void put_words(const char *s, FILE *to)
{
    for (; *s; s++)
        fputc((*s == '*' && s[1] == '/') || *s == '\n' || *s == '"' ? ' ' : *s, to);
}

static void put_comment(const check_job *job, const char *begin, const char *line, const char *run, FILE *to)
{
    fprintf(to, "%s%s of %s%s%s:\n%s", begin, job->property->name, job->op->name, job->row ? ", row " : "",
        job->row ? job->row->name : "", line);
    put_words(job->result->message, to);
    fprintf(to, "\n%s", line);
    check_repro_case(job, to);
    fprintf(to, "\n%s\n", line);
    if (job->op->source)
        fprintf(to, "%s    dovetail build %s -o %s\n", line, job->op->source, file_of(job->op->path));
    fprintf(to, "%s    %s%s\n%s\n", line, run, file_of(job->op->path), line);
    fprintf(to, "%sIt ends with a signal or with 1 while the fault is there, with 0 when it is gone.", line);
}

/* How many contents a program needs of each tensor. */
static int sets_of(const check_job *job)
{
    return job->result->how.show == CHECK_SHOW_SAME ? 2 : job->result->how.show == CHECK_SHOW_THREADS ? 4 : 1;
}

/* Contents of a tensor's memory, from the lowest element to the highest; NULL: there are none. The caller frees it. Set 0 is the
 * case's own. */
static unsigned char *contents(const check_case *c, size_t i, int set, int64_t *n, int64_t *first)
{
    const check_tensor *t = &c->tensors[i];
    int64_t strides[CHECK_DIMS], low, high;
    check_strides(t, strides, &low, &high);
    const int64_t size = dv_dtype_bytes(t->dtype, 1);
    unsigned char *bytes = calloc((size_t)(high - low + 2), (size_t)size);
    *n = high - low + 1;
    *first = -low;
    if (bytes)
        check_fill_tensor(t, c->seed + i + 1000 * (uint64_t)set, bytes + *first * size, strides);
    return bytes;
}

static bool writes(const check_job *job, size_t tensor)
{
    return job->op->slots[check_tensor_argument(&job->result->failing, tensor)].flags & DV_SLOT_WRITES;
}

/* The name of tensor i in a program: x, xs_1. */
static void put_name(const check_job *job, size_t i, FILE *to)
{
    const check_case *c = &job->result->failing;
    const size_t slot = check_tensor_argument(c, i);
    if (c->args[slot].type == DV_VALUE_TENSORS)
        fprintf(to, "%s_%zu", job->op->slots[slot].name, i - c->args[slot].first);
    else
        fprintf(to, "%s_", job->op->slots[slot].name);
}

/* ---- C ---- */

static const char c_head[] = "#define _GNU_SOURCE\n"
                             "#include <dovetail.h>\n"
                             "#include <fenv.h>\n"
                             "#include <locale.h>\n"
                             "#include <malloc.h>\n"
                             "#include <math.h>\n"
                             "#include <stdio.h>\n"
                             "#include <stdlib.h>\n"
                             "#include <string.h>\n"
                             "#include <sys/mman.h>\n"
                             "#include <unistd.h>\n"
                             "\n";

static const char c_memory[] =
    "enum { PAGE = 4096, GUARD = 16 * PAGE };\n"
    "static unsigned char poison = 0xa5; /* what undefined memory holds */\n"
    "static int kernel_ran, guarding, at_end = AT_END, allocations, fail_at; /* which allocation fails: 0 none */\n"
    "static _Thread_local int again; /* the same memory as before, in the same order */\n"
    "static _Thread_local int which; /* of the contents that arguments can have */\n"
    "\n"
    "typedef struct buffer { unsigned char *pages, *data; size_t room, bytes; int heap, freed, locked, fixed; } buffer;\n"
    "static _Thread_local buffer buffers[4096];\n"
    "static _Thread_local size_t nbuffers;\n"
    "\n"
    "static unsigned char *new_pages(size_t room)\n"
    "{\n"
    "    unsigned char *p = mmap(NULL, room + 2 * GUARD, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);\n"
    "    if (p == MAP_FAILED || (room && mprotect(p + GUARD, room, PROT_READ | PROT_WRITE)))\n"
    "        exit(2);\n"
    "    return p + GUARD;\n"
    "}\n"
    "\n"
    "/* Memory one end of which touches pages that nobody may touch. */\n"
    "static void *guarded(size_t bytes, size_t alignment, int fill)\n"
    "{\n"
    "    const size_t room = bytes ? (bytes + alignment + PAGE - 1) / PAGE * PAGE : 0;\n"
    "    buffer *b = &buffers[nbuffers++ % 4096];\n"
    "    if (!again || !b->pages || b->room != room)\n"
    "        *b = (buffer){ .pages = new_pages(room), .room = room };\n"
    "    else if (b->locked)\n"
    "        mprotect(b->pages, b->room, PROT_READ | PROT_WRITE);\n"
    "    b->bytes = bytes;\n"
    "    b->locked = b->fixed = b->freed = b->heap = 0;\n"
    "    b->data = b->pages;\n"
    "    if (at_end && bytes)\n"
    "        b->data += (room - bytes) / alignment * alignment;\n"
    "    memset(b->pages, 0xc3, b->room);\n"
    "    memset(b->data, fill, bytes);\n"
    "    return b->data;\n"
    "}\n"
    "\n"
    "static void protect(const void *data, int how)\n"
    "{\n"
    "    for (size_t i = 0; i < nbuffers; i++)\n"
    "        if (buffers[i].data == data && buffers[i].bytes) {\n"
    "            mprotect(buffers[i].pages, buffers[i].room, how);\n"
    "            buffers[i].locked = how != (PROT_READ | PROT_WRITE);\n"
    "        }\n"
    "}\n"
    "\n"
    "/* A copy that nobody may write: sizes, strides, lists. */\n"
    "static const void *fixed(const void *data, size_t bytes, size_t alignment)\n"
    "{\n"
    "    void *p = guarded(bytes, alignment, 0);\n"
    "    memcpy(p, data, bytes);\n"
    "    protect(p, PROT_READ);\n"
    "    buffers[(nbuffers - 1) % 4096].fixed = 1;\n"
    "    return p;\n"
    "}\n"
    "\n"
    "typedef struct result { dv_tensor t; const int64_t *dims; size_t bytes; void *made; } result;\n"
    "/* Of more bytes than there may be, of elements of a size; NULL: there is no such memory. */\n"
    "static void *(*far_memory)(size_t bytes, size_t size, int protection, int fill);\n"
    "enum { FAR_BYTES = 1 << 28 };\n"
    "\n"
    "static result *new_result(dv_dtype dtype, dv_device device, int32_t ndim, const int64_t *shape, const int64_t *strides)\n"
    "{\n"
    "    result *r = guarded(sizeof *r, 16, 0);\n"
    "    const size_t bytes = (size_t)ndim * sizeof *shape;\n"
    "    r->dims = fixed(shape, bytes, sizeof *shape);\n"
    "    r->t = (dv_tensor){ NULL, device, ndim, dtype, r->dims, fixed(strides, bytes, sizeof *strides), 0 };\n"
    "    return r;\n"
    "}\n"
    "static int new_tensor(const dv_host *host, int index, dv_dtype dtype, dv_device device, int32_t ndim, const int64_t "
    "*shape,\n"
    "    const int64_t *strides, dv_tensor **out)\n"
    "{\n"
    "    int64_t elements = 1;\n"
    "    (void)host, (void)index;\n"
    "    if (++allocations == fail_at)\n"
    "        return dv_fail(DV_ENOMEM, \"out of memory\");\n"
    "    result *r = new_result(dtype, device, ndim, shape, strides);\n"
    "    for (int32_t i = 0; i < ndim; i++)\n"
    "        elements = !shape[i] || !elements ? 0 : elements + (shape[i] - 1) * strides[i];\n"
    "    const size_t size = (size_t)(dtype.bits >= 8 ? dtype.bits / 8 : 1);\n"
    "    r->bytes = (size_t)dv_dtype_bytes(dtype, elements);\n"
    "    r->made = r->bytes < FAR_BYTES || !far_memory ? guarded(r->bytes, size, poison) :\n"
    "        far_memory(r->bytes, size, PROT_READ | PROT_WRITE, poison);\n"
    "    r->t.data = r->made;\n"
    "    *out = &r->t;\n"
    "    return DV_OK;\n"
    "}\n"
    "static int new_view(const dv_host *host, int index, const dv_tensor *base, int32_t ndim, const int64_t *shape, const "
    "int64_t *strides,\n"
    "    int64_t offset, dv_tensor **out)\n"
    "{\n"
    "    result *r = new_result(base->dtype, base->device, ndim, shape, strides);\n"
    "    (void)host, (void)index;\n"
    "    r->made = (char *)base->data + offset * dv_dtype_bytes(base->dtype, 1);\n"
    "    r->t.data = r->made;\n"
    "    *out = &r->t;\n"
    "    return DV_OK;\n"
    "}\n"
    "static void keep_tensor(const dv_host *host, dv_tensor *t) { (void)host, (void)t; }\n"
    "static void *lend(const dv_host *host, int use, int slot, size_t bytes, size_t alignment)\n"
    "{\n"
    "    (void)host, (void)use, (void)slot;\n"
    "    return ++allocations == fail_at ? NULL : guarded(bytes, alignment, poison);\n"
    "}\n"
    "static void keep(const dv_host *host, void *p) { (void)host, (void)p; }\n"
    "static void before_kernel(const dv_host *host) { (void)host, kernel_ran = guarding = 1; }\n"
    "static void after_kernel(const dv_host *host) { (void)host, guarding = 0; }\n"
    "\n"
    "static const dv_device cpu = { DV_CPU, 0 };\n";

/* Tensors larger than memory, or with elements that far apart. */
static const char c_far[] =
    "\n"
    "#include <signal.h>\n"
    "#include <sys/time.h>\n"
    "\n"
    "enum { CHUNK = 1 << 24 };\n"
    "\n"
    "/* To be read: zeros. To be written: the same few pages again and again, but for the last ones. On both sides are as many "
    "addresses as\n"
    " * an index of 32 bits can be wrong by. */\n"
    "static void *map_far(size_t bytes, size_t size, int protection, int fill)\n"
    "{\n"
    "    const size_t room = (bytes + PAGE - 1) / PAGE * PAGE, margin = (size << 31) + GUARD;\n"
    "    char *p = mmap(NULL, room + 2 * margin, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0), *end = p + "
    "margin + room;\n"
    "    void *chunk = mmap(NULL, CHUNK, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);\n"
    "    if (p == MAP_FAILED || chunk == MAP_FAILED || mprotect(p + margin, room, protection))\n"
    "        exit(2);\n"
    "    for (char *q = p + margin; protection & PROT_WRITE && q < end; q += CHUNK) /* of shared pages, an old size of 0 maps "
    "them once more */\n"
    "        if (mremap(chunk, 0, end - q < CHUNK ? (size_t)(end - q) : CHUNK, MREMAP_MAYMOVE | MREMAP_FIXED, q) == MAP_FAILED)\n"
    "            exit(2);\n"
    "    munmap(chunk, CHUNK);\n"
    "    if (protection & PROT_WRITE) {\n"
    "        if (mmap(end - GUARD, GUARD, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)\n"
    "            exit(2);\n"
    "        memset(end - GUARD, fill, GUARD);\n"
    "    }\n"
    "    return end - bytes;\n"
    "}\n"
    "\n"
    "/* Only where there are elements it may be touched. */\n"
    "static inline void put_far(const dv_tensor *t, const void *elements, int protection)\n"
    "{\n"
    "    const int64_t n = dv_numel(t), size = dv_dtype_bytes(t->dtype, 1);\n"
    "    for (int64_t i = 0; i < 2 * n; i++) { /* first all are written */\n"
    "        int64_t at = 0, rest = i % n;\n"
    "        for (int32_t d = t->ndim; d-- > 0; rest /= t->shape[d])\n"
    "            at += rest % t->shape[d] * t->strides[d];\n"
    "        char *p = (char *)t->data + at * size;\n"
    "        if (mprotect(p - (uintptr_t)p % PAGE, PAGE, i < n ? PROT_READ | PROT_WRITE : protection))\n"
    "            exit(2);\n"
    "        if (i < n)\n"
    "            memcpy(p, (const char *)elements + i * size, (size_t)size);\n"
    "    }\n"
    "}\n"
    "\n"
    "static void is_slow(int number)\n"
    "{\n"
    "    (void)number;\n"
    "    _exit(0); /* what fails here fails at once */\n"
    "}\n"
    "\n"
    "static inline int end_is_poison(const result *r)\n"
    "{\n"
    "    int n = 0;\n"
    "    while (n < 256 && ((const unsigned char *)r->made)[r->bytes - 1 - (size_t)n] == poison)\n"
    "        n++;\n"
    "    return n == 256;\n"
    "}\n";

static const char c_beside[] =
    "\n"
    "/* Was a byte of its pages written that does not belong to it? */\n"
    "static int beside(const buffer *b)\n"
    "{\n"
    "    for (size_t k = 0; k < b->room && !b->freed; k++)\n"
    "        if ((b->pages + k < b->data || b->pages + k >= b->data + b->bytes) && b->pages[k] != 0xc3)\n"
    "            return 1;\n"
    "    return 0;\n"
    "}\n";

/* The kernel's malloc(). */
static const char c_heap[] = "\n"
                             "extern void *__libc_malloc(size_t size);\n"
                             "extern void *__libc_calloc(size_t count, size_t size);\n"
                             "extern void *__libc_realloc(void *p, size_t size);\n"
                             "extern void __libc_free(void *p);\n"
                             "\n"
                             "static buffer *of_kernel(const void *p)\n"
                             "{\n"
                             "    for (size_t i = 0; i < nbuffers; i++)\n"
                             "        if (buffers[i].data == p && buffers[i].heap)\n"
                             "            return &buffers[i];\n"
                             "    return NULL;\n"
                             "}\n"
                             "void *malloc(size_t size)\n"
                             "{\n"
                             "    if (!guarding)\n"
                             "        return __libc_malloc(size);\n"
                             "    if (++allocations == fail_at)\n"
                             "        return NULL;\n"
                             "    void *p = guarded(size, 16, poison);\n"
                             "    buffers[nbuffers - 1].heap = 1;\n"
                             "    return p;\n"
                             "}\n"
                             "void *calloc(size_t count, size_t size)\n"
                             "{\n"
                             "    void *p = guarding ? malloc(count * size) : __libc_calloc(count, size);\n"
                             "    return guarding && p ? memset(p, 0, count * size) : p;\n"
                             "}\n"
                             "void free(void *p)\n"
                             "{\n"
                             "    buffer *b = of_kernel(p);\n"
                             "    if (!b) {\n"
                             "        __libc_free(p);\n"
                             "        return;\n"
                             "    }\n"
                             "    if (b->freed || beside(b))\n"
                             "        _exit(1); /* freed twice, or a byte beside it was written */\n"
                             "    b->freed = 1;\n"
                             "    mprotect(b->pages, b->room, PROT_NONE);\n"
                             "}\n"
                             "void *realloc(void *p, size_t size)\n"
                             "{\n"
                             "    const buffer *b = of_kernel(p);\n"
                             "    if (!b && (p || !guarding))\n"
                             "        return __libc_realloc(p, size);\n"
                             "    void *q = malloc(size);\n"
                             "    if (b && q)\n"
                             "        memcpy(q, p, b->bytes < size ? b->bytes : size);\n"
                             "    if (q)\n"
                             "        free(p);\n"
                             "    return q;\n"
                             "}\n"
                             "\n"
                             "static inline int kept_blocks(void)\n"
                             "{\n"
                             "    int n = 0;\n"
                             "    for (size_t i = 0; i < nbuffers; i++)\n"
                             "        n += buffers[i].heap && !buffers[i].freed;\n"
                             "    return n;\n"
                             "}\n";

static const char c_call[] =
    "\n"
    "/* NULL: the host's. */\n"
    "static int (*loop)(const dv_host *host, int64_t begin, int64_t end, int64_t grain, dv_range_fn fn, void *arg);\n"
    "static void (*change)(void); /* of the arguments, before a call */\n"
    "static uint32_t flags;\n"
    "\n"
    "static dv_host host_of(int row)\n"
    "{\n"
    "    return (dv_host){ .size = sizeof(dv_host), .name = \"repro\", .new_tensor = new_tensor, .free_tensor = keep_tensor, "
    ".new_view = new_view,\n"
    "        .alloc = lend, .free = keep, .before_kernel = before_kernel, .after_kernel = after_kernel, .parallel_for = loop,\n"
    "        .flags = flags, .row = row };\n"
    "}\n"
    "\n"
    "static int call(dv_operator *op, int row, dv_value *results)\n"
    "{\n"
    "    const dv_host host = host_of(row);\n"
    "    for (int i = 0; i < NRESULTS; i++)\n"
    "        results[i] = dv_default();\n"
    "    make_arguments();\n"
    "    if (change)\n"
    "        change();\n"
    "    mallopt(M_PERTURB, poison);\n"
    "    kernel_ran = allocations = 0;\n"
    "    alarm(20); /* it must end */\n"
    "    const int status = dv_call(op, args, NARGS, results, NRESULTS, &host);\n"
    "    alarm(0);\n"
    "    return status;\n"
    "}\n";

/* What failed did so after a call with other arguments. */
static const char c_before[] = "\n"
                               "static void call_before(dv_operator *op, dv_value *results)\n"
                               "{\n"
                               "    const dv_host host = host_of(ROW);\n"
                               "    for (int i = 0; i < NRESULTS; i++)\n"
                               "        results[i] = dv_default();\n"
                               "    make_other_arguments();\n"
                               "    dv_call(op, args, NARGS, results, NRESULTS, &host);\n"
                               "    for (size_t i = 0; i < nbuffers; i++)\n"
                               "        if (!buffers[i].heap) { /* all that was lent for the call is gone */\n"
                               "            mprotect(buffers[i].pages, buffers[i].room, PROT_NONE);\n"
                               "            buffers[i].freed = buffers[i].locked = 1;\n"
                               "        }\n"
                               "}\n";

static const char c_main[] = "\n"
                             "int main(int argc, char **argv)\n"
                             "{\n"
                             "    static dv_value results[NRESULTS + 1];\n"
                             "    dv_library *lib;\n"
                             "    dv_operator *op;\n"
                             "    if (!getenv(\"GLIBC_TUNABLES\")) { /* so that malloc()'s memory holds the poison: no cache */\n"
                             "        setenv(\"GLIBC_TUNABLES\", \"glibc.malloc.tcache_count=0\", 1);\n"
                             "        execv(\"/proc/self/exe\", argv);\n"
                             "    }\n"
                             "    dv_set_threads(1);\n"
                             "    if (dv_load(argc > 1 ? argv[1] : BINARY, &lib) || dv_find(OPERATOR, &op))\n"
                             "        return fprintf(stderr, \"%s\\n\", dv_last_error()), 2;\n";

static void put_scalar(const check_value *v, FILE *to)
{
    switch (v->type) {
    case DV_VALUE_DEFAULT: fputs("dv_default()", to); break;
    case DV_VALUE_INT:
        fprintf(to, v->as.i == INT64_MIN ? "dv_from_int(INT64_MIN)" : "dv_from_int(INT64_C(%lld))", (long long)v->as.i);
        break;
    case DV_VALUE_FLOAT: fprintf(to, "dv_from_float(%a)", v->as.f); break;
    case DV_VALUE_BOOL: fprintf(to, "dv_from_bool(%s)", v->as.b ? "true" : "false"); break;
    case DV_VALUE_STRING: fprintf(to, "dv_from_string(fixed(\"%s\", sizeof \"%s\", 1))", v->string, v->string); break;
    case DV_VALUE_DTYPE:
        fprintf(to, "dv_from_dtype((dv_dtype){ %u, %u, %u })", v->as.dtype.code, v->as.dtype.bits, v->as.dtype.lanes);
        break;
    case DV_VALUE_COMPLEX:
        fprintf(to, "(dv_value){ .type = DV_VALUE_COMPLEX, .as.c = { %a, %a } }", v->as.c.re, v->as.c.im);
        break;
    case DV_VALUE_DEVICE: fputs("(dv_value){ .type = DV_VALUE_DEVICE, .as.device = { DV_CPU, 0 } }", to); break;
    case DV_VALUE_LAYOUT: fprintf(to, "(dv_value){ .type = DV_VALUE_LAYOUT, .as.layout.value = %d }", (int)v->as.number); break;
    case DV_VALUE_MEMORY_FORMAT:
        fprintf(to, "(dv_value){ .type = DV_VALUE_MEMORY_FORMAT, .as.memory_format.value = %d }", (int)v->as.number);
        break;
    default: fputs("dv_none()", to); break;
    }
}

/* The whole assignment of argument i. */
static void put_list(size_t i, const check_value *v, FILE *to)
{
    const bool ints = v->type == DV_VALUE_INTS, bools = v->type == DV_VALUE_BOOLS, scalars = v->type == DV_VALUE_SCALARS;
    const char *type = ints ? "int64_t" : bools ? "bool" : scalars ? "dv_scalar" : "double";
    fprintf(to, "    static const %s list%zu[%u] = { ", type, i, v->count + 1);
    for (uint32_t k = 0; k < v->count; k++) {
        fputs(k ? ", " : "", to);
        if (ints || bools)
            fprintf(to, "%lld", (long long)v->ints[k]);
        else
            fprintf(to, scalars ? "{ .kind = DV_SCALAR_FLOAT, .as.f = %a }" : "%a", v->floats[k]);
    }
    fprintf(to,
        " };\n    args[%zu] = (dv_value){ .type = DV_VALUE_%s, .as.%s = { fixed(list%zu, %u * sizeof *list%zu, sizeof *list%zu), "
        "%u } }",
        i,
        ints          ? "INTS"
            : bools   ? "BOOLS"
            : scalars ? "SCALARS"
                      : "FLOATS",
        ints          ? "ints"
            : bools   ? "bools"
            : scalars ? "scalars"
                      : "floats",
        i, v->count, i, i, v->count);
}

/* Elements as the nearest C type has them; others as bytes. */
static void put_elements(const check_tensor *t, const unsigned char *bytes, int64_t n, FILE *to)
{
    const uint32_t key = dv_dtype_key(t->dtype);
    const bool real = key == DV_DTYPE_f32 || key == DV_DTYPE_f64, whole = check_is_integer(t->dtype);
    const int64_t count = real || whole ? n : n * dv_dtype_bytes(t->dtype, 1);
    for (int64_t i = 0; i < count; i++) {
        const double x = real || whole ? check_get(bytes, i, t->dtype) : 0;
        fputs(i % 16 == 0 && i ? ",\n        " : i ? ", " : "", to);
        if (whole)
            fprintf(to, "%.0f", x);
        else if (real && isnan(x))
            fputs("NAN", to);
        else if (real && isinf(x))
            fputs(x < 0 ? "-INFINITY" : "INFINITY", to);
        else if (real)
            fprintf(to, "%a", x);
        else
            fprintf(to, "0x%02x", bytes[i]);
    }
}

static const char *c_type(const check_tensor *t)
{
    static const char *const signed_types[] = { "int8_t", "int16_t", "int32_t", "int64_t" };
    static const char *const unsigned_types[] = { "uint8_t", "uint16_t", "uint32_t", "uint64_t" };
    const int bits = t->dtype.bits, at = bits <= 8 ? 0 : bits == 16 ? 1 : bits == 32 ? 2 : 3;
    if (dv_dtype_key(t->dtype) == DV_DTYPE_f32)
        return "float";
    if (dv_dtype_key(t->dtype) == DV_DTYPE_f64)
        return "double";
    return !check_is_integer(t->dtype) ? "uint8_t" : t->dtype.code == 0 ? signed_types[at] : unsigned_types[at];
}

static void put_c_dims(const check_tensor *t, const int64_t *strides, FILE *to)
{
    fputs("        static const int64_t dims[] = { ", to);
    for (int32_t d = 0; d < t->ndim; d++)
        fprintf(to, "%lld, ", (long long)t->shape[d]);
    for (int32_t d = 0; d < t->ndim; d++)
        fprintf(to, "%lld, ", (long long)strides[d]);
    fputs("0 };\n", to);
}

/* from: what its first element is in. */
static void put_c_header(const check_job *job, size_t i, const char *from, int64_t first, FILE *to)
{
    const check_tensor *t = &job->result->failing.tensors[i];
    fputs("        ", to);
    put_name(job, i, to);
    fprintf(to,
        " = (dv_tensor){ (char *)%s + %lld, cpu, %d, { %u, %u, %u }, fixed(dims, %d * sizeof *dims, sizeof *dims),\n"
        "            fixed(dims + %d, %d * sizeof *dims, sizeof *dims), 0 };\n",
        from, (long long)first, (int)t->ndim, t->dtype.code, t->dtype.bits, t->dtype.lanes, (int)t->ndim, (int)t->ndim,
        (int)t->ndim);
}

/* One that is larger than memory, of zeros, or whose elements lie far apart. */
static void put_c_far(const check_job *job, size_t i, const int64_t *strides, int64_t bytes, FILE *to)
{
    const check_case *c = &job->result->failing;
    const check_tensor *t = &c->tensors[i];
    const bool apart = t->layout == CHECK_FAR;
    const char *protection = writes(job, i) ? "PROT_READ | PROT_WRITE" : "PROT_READ";
    char from[120];
    fprintf(to, "    { /* %s */\n", dv_dtype_name(t->dtype));
    put_c_dims(t, strides, to);
    snprintf(from, sizeof from, "map_far((size_t)%lld, %d, %s, 0)", (long long)bytes, (int)dv_dtype_bytes(t->dtype, 1),
        apart ? "PROT_NONE" : protection);
    put_c_header(job, i, from, 0, to);
    if (apart) {
        check_tensor plain = *t;
        int64_t low, high, near[CHECK_DIMS];
        plain.layout = CHECK_CONTIGUOUS;
        check_strides(&plain, near, &low, &high);
        unsigned char *elements = calloc((size_t)high + 1, (size_t)dv_dtype_bytes(t->dtype, 1));
        if (elements)
            check_fill_tensor(&plain, c->seed + i, elements, near);
        fprintf(to, "        static const %s elements[] = { ", c_type(t));
        if (elements)
            put_elements(t, elements, high + 1, to);
        fputs(" };\n        put_far(&", to);
        put_name(job, i, to);
        fprintf(to, ", elements, %s);\n", protection);
        free(elements);
    }
    fputs("    }\n", to);
}

static void put_c_tensor(const check_job *job, size_t i, FILE *to)
{
    const check_case *c = &job->result->failing;
    const check_tensor *t = &c->tensors[i];
    int64_t strides[CHECK_DIMS], low, high, n, first;
    const int64_t size = dv_dtype_bytes(t->dtype, 1);
    check_strides(t, strides, &low, &high);
    if ((high - low + 1) * size >= FAR_BYTES) {
        put_c_far(job, i, strides, (high - low + 1) * size, to);
        return;
    }
    fputs("    { /* ", to);
    put_name(job, i, to);
    const bool as_bytes = !strcmp(c_type(t), "uint8_t") && !check_is_integer(t->dtype);
    const int64_t count = as_bytes ? (high - low + 1) * size : high - low + 1;
    fprintf(to, ": %s */\n        static const %s elements[][%lld] = {", dv_dtype_name(t->dtype), c_type(t),
        (long long)(count > 0 ? count : 1));
    for (int set = 0; set < sets_of(job); set++) {
        unsigned char *bytes = contents(c, i, set, &n, &first);
        fputs(" { ", to);
        if (bytes && n)
            put_elements(t, bytes, n, to);
        else
            fputs("0", to);
        fputs(" },", to);
        free(bytes);
    }
    fputs(" };\n", to);
    put_c_dims(t, strides, to);
    fprintf(to, "        const size_t bytes = %lld;\n", (long long)(n * size));
    fprintf(to, "        char *data = guarded(bytes, %lld, 0);\n        memcpy(data, elements[which], bytes);\n",
        (long long)(t->dtype.code == 5 ? size / 2 : size));
    fprintf(to, "        protect(data, %s);\n", writes(job, i) ? "PROT_READ | PROT_WRITE" : "PROT_READ");
    put_c_header(job, i, "data", first * size, to);
    fputs("    }\n", to);
}

static void put_c_variables(const check_job *job, const char *indent, FILE *to)
{
    const check_case *c = &job->result->failing;
    for (size_t i = 0; i < c->ntensors; i++)
        if (c->tensors[i].present) {
            fprintf(to, "%sstatic _Thread_local dv_tensor ", indent);
            put_name(job, i, to);
            fputs(";\n", to);
        }
}

/* What a function that makes them does. */
static void put_c_arguments(const check_job *job, FILE *to)
{
    const check_case *c = &job->result->failing;
    if (job->result->how.show == CHECK_SHOW_FAR)
        fputs("    far_memory = map_far;\n", to);
    for (size_t i = 0; i < c->ntensors; i++)
        if (c->tensors[i].present)
            put_c_tensor(job, i, to);
    for (size_t i = 0; i < c->nargs; i++) {
        const check_value *v = &c->args[i];
        if (v->type == DV_VALUE_TENSORS) {
            fprintf(to, "    static _Thread_local const dv_tensor *list%zu[%u];\n", i, v->count + 1);
            for (uint32_t k = 0; k < v->count; k++) {
                fprintf(to, "    list%zu[%u] = %s", i, k, c->tensors[v->first + k].present ? "&" : "NULL");
                if (c->tensors[v->first + k].present)
                    put_name(job, v->first + k, to);
                fputs(";\n", to);
            }
        }
        const bool list = v->type == DV_VALUE_INTS || v->type == DV_VALUE_BOOLS || v->type == DV_VALUE_FLOATS ||
            v->type == DV_VALUE_SCALARS;
        if (list)
            put_list(i, v, to);
        else
            fprintf(to, "    args[%zu] = ", i);
        if (v->type == DV_VALUE_TENSORS) {
            fprintf(
                to, "dv_from_tensors(fixed(list%zu, %u * sizeof *list%zu, sizeof *list%zu), %u)", i, v->count, i, i, v->count);
        } else if (v->type == DV_VALUE_TENSOR && c->tensors[v->first].present) {
            fputs("dv_from_tensor(&", to);
            put_name(job, v->first, to);
            fputs(")", to);
        } else if (!list) {
            put_scalar(v, to);
        }
        fprintf(to, "; /* %s */\n", job->op->slots[i].name);
    }
}

static void put_c_makers(const check_job *job, FILE *to)
{
    put_c_variables(job, "", to);
    fprintf(to,
        "enum { NARGS = %u, NRESULTS = %zu };\nstatic _Thread_local dv_value args[NARGS + 1];\n\nstatic void "
        "make_arguments(void)\n{\n",
        job->result->failing.nargs, job->op->nresults);
    put_c_arguments(job, to);
    fputs("}\n", to);
    if (!job->result->has_before)
        return;
    fputs("\nstatic void make_other_arguments(void)\n{\n", to);
    put_c_variables(before_of(job), "    ", to);
    put_c_arguments(before_of(job), to);
    fputs("}\n", to);
}

/* What programs of more than one call know of arguments and results. */
static void put_c_tables(const check_job *job, FILE *to)
{
    const check_op *op = job->op;
    const check_case *c = &job->result->failing;
    const check_how *how = &job->result->how;
    fprintf(to, "\nenum { SLOT = %d, AXIS = %d, AT = %lld, SIZE = %lld, NTENSORS = %u };\n", (int)how->slot, (int)how->axis,
        (long long)how->at, (long long)how->size, c->ntensors);
    fprintf(to, "#define RTOL %a\n#define ATOL %s", how->rtol, isinf(how->atol) ? "INFINITY\n" : "");
    if (!isinf(how->atol))
        fprintf(to, "%a\n", how->atol);
    fputs("static const char is_written[] = { ", to);
    for (size_t i = 0; i < op->nargs; i++)
        fprintf(to, "%d, ", (op->slots[i].flags & DV_SLOT_WRITES) != 0);
    fputs("0 };\nstatic const char is_argument[] = { ", to);
    for (size_t r = 0; r < op->nresults; r++)
        fprintf(to, "%d, ", op->slots[op->nargs + r].alias >= 0);
    fputs("0 };\n", to);
}

/* And of tensors by number. */
static void put_c_tensors(const check_job *job, FILE *to)
{
    const check_case *c = &job->result->failing;
    fputs("\nstatic inline dv_tensor *tensor(int i)\n{\n    switch (i) {\n", to);
    for (size_t i = 0; i < c->ntensors; i++)
        if (c->tensors[i].present) {
            fprintf(to, "    case %zu: return &", i);
            put_name(job, i, to);
            fputs(";\n", to);
        }
    fputs("    default: return NULL;\n    }\n}\n", to);
}

static void put_c_axes(const check_job *job, FILE *to)
{
    fputs("static const int axes[] = { ", to);
    for (size_t i = 0; i < job->result->failing.ntensors; i++)
        fprintf(to, "%d, ", job->result->how.axes[i]);
    fputs("-1 }; /* along which each is cut */\n", to);
}

/* Whose gradients are asked for, and which tensor is looked at. */
static void put_c_wants(const check_job *job, FILE *to)
{
    const check_case *c = &job->result->failing;
    const size_t tensor = (size_t)job->result->how.tensor, slot = check_tensor_argument(c, tensor);
    const bool tangent = job->result->how.show == CHECK_SHOW_TANGENT;
    bool wants[CHECK_ARGS] = { false };
    fprintf(to, "enum { TENSOR = %zu, TENSOR_SLOT = %zu };\n#define TENSOR_AT ((size_t)%zu)\nstatic const %s[] = { ", tensor,
        slot, tensor - c->args[slot].first, tangent ? "int slot_of" : "bool wants");
    for (size_t i = 0; i < c->ntensors; i++) {
        const size_t of = check_tensor_argument(c, i);
        wants[of] |= c->tensors[i].present && (c->tensors[i].dtype.code == 2 || c->tensors[i].dtype.code == 4);
        if (tangent)
            fprintf(to, "%zu, ", of);
    }
    for (size_t i = 0; i < c->nargs && !tangent; i++)
        fprintf(to, "%d, ", wants[i]);
    fputs("0 };\n", to);
}

/* Those of one call; for others see repro_text.c. After op is known: `return` 1 where the fault shows. */
static const char *const c_questions[CHECK_SHOW_COUNT] = {
    [CHECK_SHOW_CRASH] = "    if (call(op, ROW, results))\n"
                         "        fprintf(stderr, \"%s\\n\", dv_last_error());\n",
    [CHECK_SHOW_ACCEPT] = "    static dv_result_spec specs[NRESULTS + 1];\n"
                          "    make_arguments();\n"
                          "    if (!dv_infer(op, args, NARGS, specs, NRESULTS) && call(op, ROW, results))\n"
                          "        return fprintf(stderr, \"accepted, and then: %s\\n\", dv_last_error()), 1;\n",
    [CHECK_SHOW_REFUSE] = "    static dv_result_spec specs[NRESULTS + 1];\n"
                          "    make_arguments();\n"
                          "    if (!dv_infer(op, args, NARGS, specs, NRESULTS))\n"
                          "        return 0;\n"
                          "    if (!call(op, ROW, results) || kernel_ran)\n"
                          "        return fprintf(stderr, \"dv_infer() refuses this, and it was run\\n\"), 1;\n"
                          "    if (!strstr(dv_last_error(), OPERATOR) || strstr(dv_last_error(), \"no message\"))\n"
                          "        return fprintf(stderr, \"an error that says nothing: %s\\n\", dv_last_error()), 1;\n",
    [CHECK_SHOW_POISON] =
        "    static unsigned char *first[NRESULTS + 1];\n"
        "    for (int turn = 0; turn < 2; turn++) {\n"
        "        poison = turn ? 0x5a : 0xa5;\n"
        "        if (call(op, ROW, results))\n"
        "            return fprintf(stderr, \"%s\\n\", dv_last_error()), 0;\n"
        "        for (int i = 0; i < NRESULTS; i++) {\n"
        "            const result *r = results[i].type == DV_VALUE_TENSOR ? (const void *)results[i].as.tensor : NULL;\n"
        "            if (r && !turn && (first[i] = malloc(r->bytes + 1)))\n"
        "                memcpy(first[i], r->t.data, r->bytes);\n"
        "            if (r && turn && memcmp(first[i], r->t.data, r->bytes))\n"
        "                return fprintf(stderr, \"result %d depends on what undefined memory held\\n\", i), 1;\n"
        "        }\n"
        "    }\n",
    [CHECK_SHOW_HEADER] =
        "    if (call(op, ROW, results))\n"
        "        return fprintf(stderr, \"%s\\n\", dv_last_error()), 0;\n"
        "    for (int i = 0; i < NRESULTS; i++) {\n"
        "        const result *r = results[i].type == DV_VALUE_TENSOR ? (const void *)results[i].as.tensor : NULL;\n"
        "        if (r && (r->t.data != r->made || r->t.shape != r->dims))\n"
        "            return fprintf(stderr, \"the kernel changed the header of result %d\\n\", i), 1;\n"
        "    }\n",
    [CHECK_SHOW_BOUNDS] =
        "    call(op, ROW, results);\n"
        "    for (size_t i = 0; i < nbuffers; i++)\n"
        "        if (beside(&buffers[i]))\n"
        "            return fprintf(stderr, \"a byte beside a buffer of %zu bytes was written\\n\", buffers[i].bytes), 1;\n",
    [CHECK_SHOW_GAPS] =
        "    call(op, ROW, results);\n"
        "    for (int i = 0; i < NARGS; i++)\n"
        "        if (args[i].type == DV_VALUE_TENSOR && gap_written(args[i].as.tensor))\n"
        "            return fprintf(stderr, \"a byte between the elements of argument %d was written\\n\", i), 1;\n",
    [CHECK_SHOW_FAKE] = "    static dv_result_spec specs[NRESULTS + 1];\n"
                        "    make_arguments();\n"
                        "    if (dv_infer(op, args, NARGS, specs, NRESULTS) || call(op, ROW, results))\n"
                        "        return fprintf(stderr, \"%s\\n\", dv_last_error()), 0;\n"
                        "    for (int i = 0; i < NRESULTS; i++) {\n"
                        "        const dv_tensor *t = results[i].type == DV_VALUE_TENSOR ? results[i].as.tensor : NULL;\n"
                        "        if (!t != (specs[i].ndim < 0) || (t && (t->ndim != specs[i].ndim || dv_dtype_key(t->dtype) != "
                        "dv_dtype_key(specs[i].dtype) ||\n"
                        "            memcmp(t->shape, specs[i].shape, sizeof *t->shape * (size_t)t->ndim))))\n"
                        "            return fprintf(stderr, \"result %d is not as dv_infer() says\\n\", i), 1;\n"
                        "    }\n",
    [CHECK_SHOW_LOOK] = "    static dv_result_spec specs[NRESULTS + 1];\n"
                        "    (void)call;\n"
                        "    (void)results;\n"
                        "    make_arguments();\n"
                        "    for (size_t i = 0; i < nbuffers; i++) /* a fake tensor has sizes and no contents */\n"
                        "        if (!buffers[i].fixed)\n"
                        "            mprotect(buffers[i].pages, buffers[i].room, PROT_NONE);\n"
                        "    if (dv_infer(op, args, NARGS, specs, NRESULTS))\n"
                        "        fprintf(stderr, \"%s\\n\", dv_last_error());\n",
    [CHECK_SHOW_ENVIRONMENT] =
        "    fenv_t before, after;\n"
        "    static char locale[1000];\n"
        "    snprintf(locale, sizeof locale, \"%s\", setlocale(LC_ALL, NULL));\n"
        "    fegetenv(&before);\n"
        "    (void)call(op, ROW, results);\n"
        "    fegetenv(&after);\n"
        "    if (before.__control_word != after.__control_word || (before.__mxcsr ^ after.__mxcsr) & 0xffc0)\n"
        "        return fputs(\"the floating-point environment is not as it was\\n\", stderr), 1;\n"
        "    if (strcmp(locale, setlocale(LC_ALL, NULL)))\n"
        "        return fputs(\"the locale is not as it was\\n\", stderr), 1;\n",
};

/* Only for sizes of which every second element is there. */
static const char c_gaps[] =
    "\n"
    "static int gap_written(const dv_tensor *t)\n"
    "{\n"
    "    const int64_t size = dv_dtype_bytes(t->dtype, 1);\n"
    "    int64_t last = 0;\n"
    "    for (int32_t d = 0; d < t->ndim; d++)\n"
    "        last += (t->shape[d] - 1) * t->strides[d];\n"
    "    for (int64_t at = 0; at <= last; at++) {\n"
    "        int64_t rest = at; /* strides are from large to small: an element's place is taken apart */\n"
    "        int inside = 1;\n"
    "        for (int32_t d = 0; d < t->ndim; d++) {\n"
    "            const int64_t index = t->strides[d] ? rest / t->strides[d] : 0;\n"
    "            inside &= index < t->shape[d];\n"
    "            rest -= index * t->strides[d];\n"
    "        }\n"
    "        for (int64_t k = 0; k < size && (rest || !inside); k++)\n"
    "            if (((const unsigned char *)t->data)[at * size + k])\n"
    "                return 1;\n"
    "    }\n"
    "    return 0;\n"
    "}\n";

static const char *c_question(enum check_show show)
{
    const char *more = check_repro_texts[show].question;
    return more ? more
                : c_questions[show == CHECK_SHOW_LISTS ? CHECK_SHOW_CRASH
                          : show == CHECK_SHOW_HEAP    ? CHECK_SHOW_BOUNDS
                                                       : show];
}

static bool cuts(enum check_show show) { return show == CHECK_SHOW_LAYOUT || show == CHECK_SHOW_PARTS || show == CHECK_SHOW_SUM; }
static bool of_gradient(enum check_show show) { return show >= CHECK_SHOW_SLOPE && show <= CHECK_SHOW_LOW; }

bool check_repro_c(const check_job *job, FILE *to)
{
    const check_result *r = job->result;
    if (job->said_python)
        return false;
    const enum check_show show = r->how.show;
    const check_repro_text *text = &check_repro_texts[show];
    const char *run = "cc -std=c11 repro.c $(dovetail --cflags --libs) -lm -pthread -o repro && ./repro ";
    put_comment(job, "/* ", " * ", run, to);
    fprintf(to, " */\n%s#define BINARY \"%s\"\n#define OPERATOR \"%s\"\n", c_head, file_of(job->op->path), job->op->name);
    fprintf(to, "enum { ROW = %d, OTHER_ROW = %d, AT_END = %d };\n", (int)row_of(job), (int)r->how.other_row,
        r->how.end == CHECK_AT_END);
    fprintf(to, "\n%s%s", c_memory, show == CHECK_SHOW_FAR ? c_far : "");
    put_c_makers(job, to);
    const bool heap = show == CHECK_SHOW_HEAP || show == CHECK_SHOW_FAILING;
    if (heap || show == CHECK_SHOW_BOUNDS)
        fputs(c_beside, to);
    if (heap)
        fputs(c_heap, to);
    if (show == CHECK_SHOW_GAPS)
        fputs(c_gaps, to);
    fprintf(to, "%s%s", c_call, r->has_before ? c_before : "");
    if (text->question && show != CHECK_SHOW_LEAKS)
        put_c_tables(job, to);
    if (cuts(show) || of_gradient(show))
        put_c_tensors(job, to);
    if (cuts(show))
        put_c_axes(job, to);
    if (of_gradient(show))
        put_c_wants(job, to);
    for (size_t i = 0; text->needs[i]; i++)
        fputs(text->needs[i], to);
    fprintf(to, "%s%s%s    return puts(\"the fault does not show\"), 0;\n}\n", c_main,
        r->has_before ? "    call_before(op, results);\n" : "", c_question(show));
    return true;
}

/* ---- Python ---- */

static const char python_memory[] =
    "import ctypes\n"
    "import mmap\n"
    "import os\n"
    "import pathlib\n"
    "import signal\n"
    "import sys\n"
    "\n"
    "POISON = int(os.environ.setdefault(\"MALLOC_PERTURB_\", \"165\"))  # what undefined memory holds\n"
    "if \"GLIBC_TUNABLES\" not in os.environ:\n"
    "    os.environ[\"GLIBC_TUNABLES\"] = \"glibc.malloc.tcache_count=0\"\n"
    "    os.execv(sys.executable, [sys.executable, *sys.argv])\n"
    "\n"
    "import dovetail\n"
    "import numpy\n"
    "\n"
    "libc = ctypes.CDLL(None)\n"
    "kept, tensors = [], []\n"
    "\n"
    "\n"
    "def guarded(size, fill=0xc3):\n"
    "    \"\"\"Bytes one end of which touches a page that nobody may touch.\"\"\"\n"
    "    page, room = mmap.PAGESIZE, -(-size // mmap.PAGESIZE) * mmap.PAGESIZE\n"
    "    pages = mmap.mmap(-1, room + 32 * page)\n"
    "    kept.append(pages)\n"
    "    address = ctypes.addressof(ctypes.c_char.from_buffer(pages))\n"
    "    for at in (address, address + 16 * page + room):\n"
    "        libc.mprotect(ctypes.c_void_p(at), ctypes.c_size_t(16 * page), 0)\n"
    "    memory = numpy.frombuffer(pages, numpy.uint8, size, 16 * page + (room - size if AT_END else 0))\n"
    "    memory[:] = fill\n"
    "    return memory\n"
    "\n"
    "\n"
    "def tensor(dtype, shape, strides, first, elements, writable):\n"
    "    \"\"\"Strides and the first element's place are counted in elements.\"\"\"\n"
    "    data = numpy.array(elements, dtype) if not isinstance(elements, bytes) else numpy.frombuffer(elements, dtype)\n"
    "    memory = guarded(data.nbytes)\n"
    "    memory[:] = data.view(numpy.uint8)\n"
    "    address, page = memory.ctypes.data, mmap.PAGESIZE\n"
    "    flat = memory.view(dtype)\n"
    "    if not writable and data.nbytes:\n"
    "        start = address // page * page\n"
    "        libc.mprotect(ctypes.c_void_p(start), ctypes.c_size_t(address + data.nbytes - start), 1)\n"
    "        flat.flags.writeable = False\n"
    "    size = flat.dtype.itemsize\n"
    "    made = numpy.lib.stride_tricks.as_strided(flat[first:], shape, [s * size for s in strides], writeable=writable)\n"
    "    tensors.append((made, memory))\n"
    "    return made\n"
    "\n"
    "\n"
    "def result(dtype, shape):\n"
    "    size = int(numpy.prod(shape, dtype=numpy.int64)) * numpy.dtype(dtype).itemsize\n"
    "    return guarded(size, POISON).view(dtype).reshape(shape)\n";

static bool needs_ml_dtypes(dv_dtype d) { return d.code == 4 || d.code >= 7; }

static const char *numpy_dtype(dv_dtype d, char *out, size_t size)
{
    snprintf(out, size, needs_ml_dtypes(d) ? "ml_dtypes.%s" : "\"%s\"", dv_dtype_long_name(d));
    return out;
}

static void put_tuple(const int64_t *list, int32_t n, FILE *to)
{
    fputs("(", to);
    for (int32_t i = 0; i < n; i++)
        fprintf(to, "%lld, ", (long long)list[i]);
    fputs(")", to);
}

static void put_python_elements(const check_tensor *t, const unsigned char *bytes, int64_t n, FILE *to)
{
    const uint32_t key = dv_dtype_key(t->dtype);
    const bool real = key == DV_DTYPE_f32 || key == DV_DTYPE_f64 || key == DV_DTYPE_f16, whole = check_is_integer(t->dtype);
    fputs(real || whole ? "[" : "b\"", to);
    for (int64_t i = 0; i < (real || whole ? n : n * dv_dtype_bytes(t->dtype, 1)); i++) {
        const double x = real || whole ? check_get(bytes, i, t->dtype) : 0;
        if (!real && !whole)
            fprintf(to, "\\x%02x", bytes[i]);
        else if (whole)
            fprintf(to, "%.0f, ", x);
        else if (isnan(x) || isinf(x))
            fprintf(to, "%snumpy.%s, ", x < 0 ? "-" : "", isnan(x) ? "nan" : "inf");
        else
            fprintf(to, "%.17g, ", x);
    }
    fputs(real || whole ? "]" : "\"", to);
}

static void put_python_tensor(const check_job *job, size_t i, FILE *to)
{
    const check_case *c = &job->result->failing;
    const check_tensor *t = &c->tensors[i];
    int64_t strides[CHECK_DIMS], low, high, n, first;
    char buffer[40];
    if (!t->present) {
        fputs("None", to);
        return;
    }
    unsigned char *bytes = contents(c, i, 0, &n, &first);
    check_strides(t, strides, &low, &high);
    fprintf(to, "tensor(%s, ", numpy_dtype(t->dtype, buffer, sizeof buffer));
    put_tuple(t->shape, t->ndim, to);
    fputs(", ", to);
    put_tuple(strides, t->ndim, to);
    fprintf(to, ", %lld, ", (long long)first);
    if (bytes)
        put_python_elements(t, bytes, n, to);
    fprintf(to, ", %s)", writes(job, i) || job->result->how.show == CHECK_SHOW_SAME ? "True" : "False");
    free(bytes);
}

static void put_python_value(const check_job *job, const check_value *v, FILE *to)
{
    switch (v->type) {
    case DV_VALUE_TENSOR: put_python_tensor(job, v->first, to); return;
    case DV_VALUE_INT: fprintf(to, "%lld", (long long)v->as.i); return;
    case DV_VALUE_FLOAT: fprintf(to, "%.17g", v->as.f); return;
    case DV_VALUE_BOOL: fputs(v->as.b ? "True" : "False", to); return;
    case DV_VALUE_COMPLEX: fprintf(to, "complex(%.17g, %.17g)", v->as.c.re, v->as.c.im); return;
    case DV_VALUE_STRING: fprintf(to, "\"%s\"", v->string); return;
    case DV_VALUE_DTYPE: fprintf(to, "\"%s\"", dv_dtype_name(v->as.dtype)); return;
    case DV_VALUE_DEVICE: fputs("\"cpu\"", to); return;
    case DV_VALUE_LAYOUT: fputs("\"strided\"", to); return;
    case DV_VALUE_MEMORY_FORMAT: fputs("\"contiguous_format\"", to); return;
    case DV_VALUE_NONE: fputs("None", to); return;
    default: break;
    }
    fputs("[", to);
    for (uint32_t k = 0; k < v->count; k++) {
        if (v->type == DV_VALUE_TENSORS)
            put_python_tensor(job, v->first + k, to);
        else if (v->type == DV_VALUE_INTS)
            fprintf(to, "%lld", (long long)v->ints[k]);
        else if (v->type == DV_VALUE_BOOLS)
            fputs(v->ints[k] ? "True" : "False", to);
        else
            fprintf(to, "%.17g", v->floats[k]);
        fputs(", ", to);
    }
    fputs("]", to);
}

static const char *const python_questions[] = {
    [CHECK_SHOW_CRASH] = "call()\n",
    [CHECK_SHOW_ACCEPT] = "try:\n"
                          "    call()\n"
                          "except dovetail.DovetailError as error:\n"
                          "    sys.exit(f\"accepted, and then: {error}\")\n",
    [CHECK_SHOW_REFUSE] = "try:\n"
                          "    call()\n"
                          "except (dovetail.DovetailError, TypeError) as error:\n"
                          "    if op.name.split(\".\")[0].split(\"::\")[1] not in str(error) or \"no message\" in str(error):\n"
                          "        sys.exit(f\"an error that says nothing: {error}\")\n"
                          "else:\n"
                          "    sys.exit(\"this is outside of what the contract accepts, and it was run\")\n",
    [CHECK_SHOW_POISON] = "found = b\"\".join(r.tobytes() for r in call().values())\n"
                          "if POISON != 165:\n"
                          "    sys.stdout.buffer.write(found)\n"
                          "else:  # the same in a process whose undefined memory holds something else\n"
                          "    import subprocess\n"
                          "    env = {**os.environ, \"MALLOC_PERTURB_\": \"90\"}\n"
                          "    other = subprocess.run([sys.executable, *sys.argv], env=env, stdout=subprocess.PIPE).stdout\n"
                          "    if other != found:\n"
                          "        sys.exit(\"the result depends on what undefined memory held\")\n",
    [CHECK_SHOW_HALF] = "args = arguments()\n"
                        "before = [a.tobytes() for a, memory in tensors]\n"
                        "try:\n"
                        "    call(args)\n"
                        "except dovetail.DovetailError as error:\n"
                        "    if before != [a.tobytes() for a, memory in tensors]:\n"
                        "        sys.exit(f\"an argument was written, and then: {error}\")\n",
    [CHECK_SHOW_GAPS] = "args = arguments()\n"
                        "call(args)\n"
                        "for name in WRITTEN.values():\n"
                        "    for a, memory in [(a, memory) for a, memory in tensors if a is args[name]]:\n"
                        "        a[...] = 0\n"
                        "        if memory.any():\n"
                        "            sys.exit(f\"bytes between the elements of {name} were written\")\n",
    [CHECK_SHOW_ENVIRONMENT] =
        "import locale\n"
        "\n"
        "\n"
        "def environment():\n"
        "    \"\"\"The rounding mode, whether denormals are flushed to zero, the locale.\"\"\"\n"
        "    return libc.fegetround(), float(numpy.float32(1e-40) * numpy.float32(0.5)), locale.setlocale(locale.LC_ALL)\n"
        "\n"
        "\n"
        "before = environment()\n"
        "call()\n"
        "after = environment()\n"
        "if before != after:\n"
        "    sys.exit(f\"the environment was {before} and is {after}\")\n",
    [CHECK_SHOW_ROWS] = "found = call(None, ())  # results in the order of dims that the contract says\n"
                        "dovetail.set_row(OTHER_ROW)\n"
                        "words = differ(found, call(None, ()), SLOT, RTOL, ATOL)\n"
                        "if words:\n"
                        "    sys.exit(f\"this row and the other one give {words}\")\n",
    [CHECK_SHOW_LAYOUT] = "found = call(None, ())\n"
                          "words = differ(found, call(part(arguments(), None, None), ()), SLOT, RTOL, ATOL)\n"
                          "if words:\n"
                          "    sys.exit(f\"as it is and contiguous it gives {words}\")\n",
    [CHECK_SHOW_PARTS] =
        "whole = call()\n"
        "for low, high in ((0, AT), (AT, SIZE)):\n"
        "    found = call(part(arguments(), low, high), ())\n"
        "    expected = {k: a[(slice(None),) * AXIS + (slice(low, high),)] for k, a in whole.items() if k[0] == SLOT}\n"
        "    words = differ(expected, found, SLOT, 0, ATOL)\n"
        "    if words:\n"
        "        sys.exit(f\"[{low}, {high}) of the whole and of the slice alone: {words}\")\n",
    [CHECK_SHOW_SUM] =
        "whole, a, b = call(), call(part(arguments(), 0, AT), ()), call(part(arguments(), AT, SIZE), ())\n"
        "words = differ({k: a[k].astype(\"float64\") + b[k].astype(\"float64\") for k in a}, whole, SLOT, 0, ATOL)\n"
        "if words:\n"
        "    sys.exit(f\"the sum of two parts and the whole: {words}\")\n",
    [CHECK_SHOW_SAME] = "args, out = arguments(), results()\n"
                        "own = [(a, a.copy()) for a, memory in tensors]\n"
                        "\n"
                        "\n"
                        "def again(other=False):\n"
                        "    \"\"\"The same call in the same memory, or with other contents.\"\"\"\n"
                        "    for a, contents in own:\n"
                        "        a[...] = contents * -0.5 + 0.125 if other and a.dtype.kind not in \"iub\" else contents\n"
                        "    return call(args, out)\n"
                        "\n"
                        "\n"
                        "again(True)\n"
                        "first = again()\n"
                        "words = None\n"
                        "for turn in range(8):  # elsewhere, at either end of its pages\n"
                        "    AT_END = not AT_END\n"
                        "    words = words or differ(first, call(arguments()), None, 0, ATOL)\n"
                        "again(True)\n"
                        "words = words or differ(first, again())\n"
                        "if words:\n"
                        "    sys.exit(f\"the same call gives {words}\")\n",
    [CHECK_SHOW_LEAKS] =
        "import gc\n"
        "\n"
        "\n"
        "class mallinfo2(ctypes.Structure):\n"
        "    NAMES = \"arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost\"\n"
        "    _fields_ = [(name, ctypes.c_size_t) for name in NAMES.split()]\n"
        "\n"
        "\n"
        "def look():\n"
        "    heap = 0\n"
        "    gc.collect()\n"
        "    if hasattr(libc, \"mallinfo2\"):\n"
        "        libc.mallinfo2.restype = mallinfo2\n"
        "        found = libc.mallinfo2()\n"
        "        heap = found.uordblks + found.hblkhd\n"
        "    pages = int(pathlib.Path(\"/proc/self/statm\").read_text().split()[0])\n"
        "    return len(os.listdir(\"/proc/self/fd\")), len(os.listdir(\"/proc/self/task\")), heap, pages\n"
        "\n"
        "\n"
        "args, out, CALLS = arguments(), results(), 250\n"
        "held = []\n"
        "for stretch in range(6):\n"
        "    for _ in range(CALLS):\n"
        "        try:\n"
        "            call(args, out)\n"
        "        except dovetail.DovetailError:\n"
        "            pass\n"
        "    held.append(look())\n"
        "for k, kind in enumerate((\"file descriptors\", \"threads\", \"bytes of malloc()\", \"pages of mappings\")):\n"
        "    grown = [b[k] - a[k] for a, b in zip(held[1:], held[2:])]\n"
        "    if min(grown) >= (CALLS if kind == \"bytes of malloc()\" else CALLS // 2):\n"
        "        sys.exit(f\"{kind} leak: in each {CALLS} calls {grown}\")\n",
};

static bool any_ml_dtypes(const check_result *r)
{
    const check_case *c = &r->failing;
    for (size_t i = 0; i < CHECK_MADE; i++)
        if (r->made[i].present && needs_ml_dtypes(r->made[i].dtype))
            return true;
    for (size_t i = 0; i < c->ntensors; i++)
        if (c->tensors[i].present && needs_ml_dtypes(c->tensors[i].dtype))
            return true;
    return false;
}

static const char python_call[] =
    "def call(args=None, out=None):\n"
    "    \"\"\"What it writes: {(slot, number): a copy}.\"\"\"\n"
    "    signal.alarm(20)  # it must end\n"
    "    args = arguments() if args is None else args\n"
    "    out = results() if out is None else out\n"
    "    given = op(**args, **({\"out\": out if len(out) > 1 else out[0]} if out else {}))\n"
    "    signal.alarm(0)\n"
    "    given = given if isinstance(given, tuple) else (given,)\n"
    "    written = {(NARGS + i, 0): r for i, r in enumerate(given) if r is not None}\n"
    "    for slot, name in WRITTEN.items():\n"
    "        listed = args[name] if isinstance(args[name], list) else [args[name]]\n"
    "        written.update({(slot, k): a for k, a in enumerate(listed) if a is not None})\n"
    "    return {key: numpy.array(a) for key, a in written.items()}\n"
    "\n"
    "\n"
    "def differ(a, b, slot=None, rtol=-1, atol=0):\n"
    "    \"\"\"Words, where two calls wrote what differs: in a bit (rtol < 0), or by more than this.\"\"\"\n"
    "    for key in [key for key in a if slot is None or key[0] == slot]:\n"
    "        x, y = a[key], b[key]\n"
    "        if rtol >= 0 and x.shape == y.shape:\n"
    "            wide = \"complex128\" if x.dtype.kind == \"c\" else \"float64\"\n"
    "            if numpy.allclose(x.astype(wide), y.astype(wide), rtol, atol, equal_nan=True):\n"
    "                continue\n"
    "        elif x.shape == y.shape and x.tobytes() == y.tobytes():\n"
    "            continue\n"
    "        return f\"{x} and {y}\"\n"
    "    return None\n"
    "\n"
    "\n"
    "def part(args, low, high):\n"
    "    \"\"\"[low, high) of each tensor along its axis, contiguous.\"\"\"\n"
    "    def cut(a, axis):\n"
    "        return None if a is None else numpy.array(a if axis < 0 else a[(slice(None),) * axis + (slice(low, high),)], "
    "order=\"C\")\n"
    "\n"
    "    def one(v, axes):\n"
    "        return [cut(a, axis) for a, axis in zip(v, axes)] if isinstance(v, list) else cut(v, axes[0])\n"
    "    return {name: one(v, AXES[name]) if name in AXES else v for name, v in args.items()}\n"
    "\n"
    "\n";

/* Results lie in guarded memory too, where the host may give them. */
static void put_results(const check_job *job, FILE *to)
{
    char buffer[40];
    fputs("def results():\n    return (", to);
    for (size_t r = 0; r < job->op->nresults; r++) {
        const check_made *m = &job->result->made[r];
        if (r < CHECK_MADE && m->present) {
            fprintf(to, "result(%s, ", numpy_dtype(m->dtype, buffer, sizeof buffer));
            put_tuple(m->shape, m->ndim, to);
            fputs("), ", to);
        } else {
            fputs("None, ", to);
        }
    }
    fputs(")\n\n\n", to);
}

static void put_python_arguments(const check_job *job, const char *function, FILE *to)
{
    const check_case *c = &job->result->failing;
    fprintf(to, "def %s():\n    return dict(", function);
    for (size_t i = 0; i < c->nargs; i++) {
        if (c->args[i].type == DV_VALUE_DEFAULT)
            continue;
        fprintf(to, "\n        %s=", job->op->slots[i].name);
        put_python_value(job, &c->args[i], to);
        fputs(",", to);
    }
    fputs(")\n\n\n", to);
}

static void put_call(const check_job *job, FILE *to)
{
    put_results(job, to);
    put_python_arguments(job, "arguments", to);
    fputs(python_call, to);
    if (!job->result->has_before)
        return;
    check_job *before = before_of(job);
    for (size_t i = 0; i < before->result->failing.ntensors; i++) /* a copy that Python's host makes would be out of reach */
        before->result->failing.tensors[i].layout = CHECK_CONTIGUOUS;
    put_python_arguments(before, "other_arguments", to);
    fputs(
        "call(other_arguments(), ())\n"
        "for pages in kept:  # all that was lent for the call is gone\n"
        "    libc.mprotect(ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(pages))), ctypes.c_size_t(len(pages)), 0)\n"
        "tensors.clear()\n",
        to);
}

/* Names of written arguments by slot, and along which dim each tensor is cut. */
static void put_python_tables(const check_job *job, FILE *to)
{
    const check_case *c = &job->result->failing;
    const check_how *how = &job->result->how;
    fprintf(to, "NARGS, SLOT, AXIS, AT, SIZE = %u, %d, %d, %lld, %lld\nWRITTEN = {", c->nargs, (int)how->slot, (int)how->axis,
        (long long)how->at, (long long)how->size);
    for (size_t i = 0; i < c->nargs; i++)
        if (job->op->slots[i].flags & DV_SLOT_WRITES && c->args[i].type != DV_VALUE_DEFAULT)
            fprintf(to, "%zu: \"%s\", ", i, job->op->slots[i].name);
    fputs("}\nAXES = {", to);
    for (size_t i = 0; i < c->nargs; i++) {
        if (c->args[i].type != DV_VALUE_TENSOR && c->args[i].type != DV_VALUE_TENSORS)
            continue;
        fprintf(to, "\"%s\": (", job->op->slots[i].name);
        for (uint32_t k = 0; k < c->args[i].count; k++)
            fprintf(to, "%d, ", how->axes[c->args[i].first + k]);
        fputs("), ", to);
    }
    fputs("}\n", to);
}

void check_repro_arguments(const check_job *job, FILE *to)
{
    const check_case *c = &job->result->failing;
    fputs("dict(", to);
    for (size_t i = 0; i < c->nargs; i++) {
        if (c->args[i].type == DV_VALUE_DEFAULT)
            continue;
        fprintf(to, "%s=", job->op->slots[i].name);
        put_python_value(job, &c->args[i], to);
        fputs(", ", to);
    }
    fputs(")", to);
}

static const char *python_question(const check_job *job)
{
    enum check_show show = job->result->how.show;
    show = show == CHECK_SHOW_HEADER ? CHECK_SHOW_POISON : show; /* the array stays unwritten */
    return (size_t)show < sizeof python_questions / sizeof *python_questions ? python_questions[show] : NULL;
}

bool check_repro_python(const check_job *job, FILE *to)
{
    const check_result *r = job->result;
    if (job->said_python)
        return fputs(job->said_python, to) >= 0;
    if (!python_question(job))
        return false;
    put_comment(job, "# ", "# ", "python repro.py ", to);
    fprintf(to, "\n%s%s\n\nAT_END, ROW, OTHER_ROW, RTOL, ATOL = %s, %d, %d, %.17g, float(\"%.17g\")\n", python_memory,
        any_ml_dtypes(r) ? "\nimport ml_dtypes\n" : "", r->how.end == CHECK_AT_END ? "True" : "False", (int)row_of(job),
        (int)r->how.other_row, r->how.rtol, r->how.atol);
    put_python_tables(job, to);
    fprintf(to,
        "try:\n    library = dovetail.load(sys.argv[1] if len(sys.argv) > 1 else \"%s\")\n    op = dovetail.find(\"%s\")\n",
        file_of(job->op->path), job->op->name);
    fputs("except Exception as error:\n    print(error, file=sys.stderr)\n    "
          "sys.exit(2)\ndovetail.set_threads(1)\ndovetail.set_row(ROW)\n\n\n",
        to);
    put_call(job, to);
    fputs(python_question(job), to);
    return true;
}
