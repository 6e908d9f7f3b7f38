/* Programs that show a failure, in C and in Python. They need nothing of the checker: memory between guard pages, the arguments
 * with their contents, the call, and the question whose answer is wrong. Most of a program comes from the pieces in programs/;
 * what depends on the case is written here. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "programs.h"

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

/* A path as a word of the shell. */
static void put_path(const char *path, FILE *to)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-=,:+";
    const bool quoted = path[strspn(path, plain)] != 0;
    fputs(quoted ? "'" : "", to);
    for (; *path; path++)
        fputs(*path == '\'' ? "'\\''" : (char[]){ *path, 0 }, to);
    fputs(quoted ? "'" : "", to);
}

char *check_repro_name(const check_job *job)
{
    const char *space = strstr(job->op->name, "::"), *row = job->row ? job->row->name : "";
    char *out = NULL;
    size_t size;
    FILE *to = open_memstream(&out, &size);
    if (to) {
        fprintf(to, "%s.%s%s%s", space ? space + 2 : job->op->name, job->property->name, *row ? "." : "", row);
        fclose(to);
    }
    return out;
}

/* The binary as a command names it in any folder: one that a source is built to, in the current one. */
static void put_binary(const check_job *job, FILE *to)
{
    char *full = job->op->sources || !job->op->path ? NULL : realpath(job->op->path, NULL);
    put_path(full ? full : file_of(job->op->path), to);
    free(full);
}

/* How to build and run it: its name stands in both commands. */
static void put_run(const check_job *job, bool python, FILE *to)
{
    char *name = check_repro_name(job);
    fputs(python ? "python " : "cc -std=c11 ", to);
    put_path(name ? name : "", to);
    fputs(python ? ".py " : ".c $(dovetail --cflags --libs) -lm -pthread -o repro && ./repro ", to);
    free(name);
}

static void put_comment(const check_job *job, const char *begin, const char *line, bool python, FILE *to)
{
    fprintf(to, "%s%s of %s%s%s:\n%s", begin, job->property->name, job->op->name, job->row ? ", row " : "",
        job->row ? job->row->name : "", line);
    put_words(job->result->message, to);
    fprintf(to, "\n%s", line);
    check_repro_case(job, to);
    fprintf(to, "\n%s\n", line);
    if (job->op->sources) {
        fprintf(to, "%s    dovetail build ", line);
        for (const char *const *flag = job->op->flags; flag && *flag; flag++) {
            put_path(*flag, to);
            fputs(" ", to);
        }
        for (const char *const *source = job->op->sources; *source; source++) {
            char *full = realpath(*source, NULL);
            fputs(source > job->op->sources ? " " : "", to);
            put_path(full ? full : *source, to);
            free(full);
        }
        fputs(" -o ", to);
        put_path(file_of(job->op->path), to);
        fputs("\n", to);
    }
    fprintf(to, "%s    ", line);
    put_run(job, python, to);
    put_binary(job, to);
    fprintf(to, "\n%s\n%sIt ends with a signal or with 1 while the fault is there, with 0 when it is gone.", line, line);
}

/* How many contents a program needs of each tensor. */
static int sets_of(const check_job *job)
{
    const enum check_show show = job->result->how.show;
    return show == CHECK_SHOW_SAME || show == CHECK_SHOW_SCRATCH ? 2 : show == CHECK_SHOW_THREADS ? 4 : 1;
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

/* Are its contents a formula, since as numbers they would make a long program? */
static bool by_formula(const check_job *job, const check_tensor *t)
{
    enum { MANY = 1024 };
    const bool drawn = t->fill == CHECK_RANDOM || t->fill == CHECK_SIMPLE;
    return job->result->how.show != CHECK_SHOW_NOTHING && t->present && drawn && t->layout == CHECK_CONTIGUOUS &&
        check_numel(t) > MANY && t->dtype.code != 5 && t->dtype.bits >= 8 && fabs(t->low) < 0x1p53 && fabs(t->high) < 0x1p53;
}

static bool any_by_formula(const check_job *job)
{
    const check_result *r = job->result;
    bool any = false;
    for (size_t i = 0; i < r->failing.ntensors; i++)
        any |= by_formula(job, &r->failing.tensors[i]);
    for (size_t i = 0; i < r->before.ntensors && r->has_before; i++)
        any |= by_formula(job, &r->before.tensors[i]);
    return any;
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

/* ---- Programs from pieces ---- */

/* The file of programs/ that asks: in C always, in Python only where Python can show it. */
static const char *const questions[CHECK_SHOW_COUNT] = {
    [CHECK_SHOW_CRASH] = "crash",
    [CHECK_SHOW_LISTS] = "lists",
    [CHECK_SHOW_FAR] = "far",
    [CHECK_SHOW_ACCEPT] = "accept",
    [CHECK_SHOW_REFUSE] = "refuse",
    [CHECK_SHOW_HALF] = "half",
    [CHECK_SHOW_POISON] = "poison",
    [CHECK_SHOW_STACK] = "stack",
    [CHECK_SHOW_HEADER] = "header",
    [CHECK_SHOW_BOUNDS] = "bounds",
    [CHECK_SHOW_GAPS] = "gaps",
    [CHECK_SHOW_HEAP] = "heap",
    [CHECK_SHOW_FAKE] = "fake",
    [CHECK_SHOW_LOOK] = "look",
    [CHECK_SHOW_ENVIRONMENT] = "environment",
    [CHECK_SHOW_ROWS] = "rows",
    [CHECK_SHOW_BIAS] = "bias",
    [CHECK_SHOW_LAYOUT] = "layout",
    [CHECK_SHOW_SHARED] = "shared",
    [CHECK_SHOW_SAME] = "same",
    [CHECK_SHOW_SCRATCH] = "scratch",
    [CHECK_SHOW_KEPT] = "kept",
    [CHECK_SHOW_ERRNO] = "errno",
    [CHECK_SHOW_PIECES] = "pieces",
    [CHECK_SHOW_THREADS] = "threads",
    [CHECK_SHOW_PARTS] = "parts",
    [CHECK_SHOW_SUM] = "sum",
    [CHECK_SHOW_LEAKS] = "leaks",
    [CHECK_SHOW_FAILING] = "failing",
    [CHECK_SHOW_SLOPE] = "slope",
    [CHECK_SHOW_FORM] = "form",
    [CHECK_SHOW_NEEDS] = "needs",
    [CHECK_SHOW_TANGENT] = "tangent",
    [CHECK_SHOW_LOW] = "low",
    [CHECK_SHOW_COST] = "cost",
    [CHECK_SHOW_FLOPS] = "flops",
};

enum { NPIECES = sizeof programs / sizeof *programs };

/* A piece that is made for the case; programs/sample has one of the same name, with which the others compile. A piece that uses
 * it includes what comes before it, for it includes nothing itself. */
typedef struct made_piece {
    const char *name;
    void (*put)(const check_job *job, FILE *to);
} made_piece;

/* A program on its way: each piece stands in it once, after those that it includes. */
typedef struct program {
    const check_job *job;
    const made_piece *made;
    FILE *to;
    bool put_made[8], put[NPIECES];
} program;

static int find_piece(const char *name)
{
    for (int i = 0; i < NPIECES; i++)
        if (!strcmp(programs[i].path, name))
            return i;
    return -1;
}

const char *check_program(const char *name)
{
    const int at = find_piece(name);
    return at < 0 ? NULL : programs[at].data;
}

static bool put_piece(program *p, const char *name);

/* `#include "NAME"` and `from NAME import ...` of a piece become the piece; other lines stay. */
static void put_line(program *p, const char *line, int n)
{
    char name[40];
    if (!strncmp(line, "#pragma once\n", 13))
        return;
    if (sscanf(line, "#include \"%35[^\"]", name) == 1 && put_piece(p, name))
        return;
    if (sscanf(line, "from %35s", name) == 1 && put_piece(p, strcat(name, ".py")))
        return;
    fprintf(p->to, "%.*s\n", n, line);
}

static bool put_piece(program *p, const char *name)
{
    for (int i = 0; p->made[i].name; i++)
        if (!strcmp(p->made[i].name, name)) {
            if (!p->put_made[i])
                p->made[i].put(p->job, p->to);
            return p->put_made[i] = true;
        }
    const int at = find_piece(name);
    if (at < 0 || p->put[at])
        return at >= 0;
    p->put[at] = true;
    for (const char *line = programs[at].data, *end; (end = strchr(line, '\n')); line = end + 1)
        put_line(p, line, (int)(end - line));
    return true;
}

static const char *question_of(const check_job *job, const char *language, char name[40])
{
    const char *of = questions[job->result->how.show];
    snprintf(name, 40, "%s%s", of ? of : "", language);
    return name;
}

static bool has_question(const check_job *job, const char *language)
{
    char name[40];
    return find_piece(question_of(job, language, name)) >= 0;
}

static void put_question(program *p, const char *language)
{
    char name[40];
    put_piece(p, question_of(p->job, language, name));
}

/* ---- C ---- */

static void put_c_number(double x, FILE *to)
{
    if (isnan(x))
        fputs("NAN", to);
    else if (isinf(x))
        fputs(x < 0 ? "-INFINITY" : "INFINITY", to);
    else
        fprintf(to, "%a", x);
}

static void put_scalar(const check_value *v, FILE *to)
{
    switch (v->type) {
    case DV_VALUE_DEFAULT: fputs("dv_default()", to); break;
    case DV_VALUE_INT:
        fprintf(to, v->as.i == INT64_MIN ? "dv_from_int(INT64_MIN)" : "dv_from_int(INT64_C(%lld))", (long long)v->as.i);
        break;
    case DV_VALUE_FLOAT:
        fputs("dv_from_float(", to);
        put_c_number(v->as.f, to);
        fputs(")", to);
        break;
    case DV_VALUE_BOOL: fprintf(to, "dv_from_bool(%s)", v->as.b ? "true" : "false"); break;
    case DV_VALUE_STRING: fprintf(to, "dv_from_string(fixed(\"%s\", sizeof \"%s\", 1))", v->string, v->string); break;
    case DV_VALUE_DTYPE:
        fprintf(to, "dv_from_dtype((dv_dtype){ %u, %u, %u })", v->as.dtype.code, v->as.dtype.bits, v->as.dtype.lanes);
        break;
    case DV_VALUE_COMPLEX:
        fputs("(dv_value){ .type = DV_VALUE_COMPLEX, .as.c = { ", to);
        put_c_number(v->as.c.re, to);
        fputs(", ", to);
        put_c_number(v->as.c.im, to);
        fputs(" } }", to);
        break;
    case DV_VALUE_DEVICE: fputs("(dv_value){ .type = DV_VALUE_DEVICE, .as.device = { DV_CPU, 0 } }", to); break;
    case DV_VALUE_LAYOUT: fprintf(to, "(dv_value){ .type = DV_VALUE_LAYOUT, .as.layout.value = %d }", (int)v->as.number); break;
    case DV_VALUE_MEMORY_FORMAT:
        fprintf(to, "(dv_value){ .type = DV_VALUE_MEMORY_FORMAT, .as.memory_format.value = %d }", (int)v->as.number);
        break;
    default: fputs("dv_none()", to); break;
    }
}

static void put_strings(size_t i, const check_value *v, FILE *to)
{
    fprintf(to, "    static _Thread_local dv_string list%zu[%u];\n", i, v->count + 1);
    for (uint32_t k = 0; k < v->count; k++) {
        const char *s = check_string_of(v, k);
        fprintf(to, "    list%zu[%u] = dv_from_string(fixed(\"%s\", sizeof \"%s\", 1)).as.s;\n", i, k, s, s);
    }
    fprintf(to,
        "    args[%zu] = (dv_value){ .type = DV_VALUE_STRINGS, .as.strings = { fixed(list%zu, %u * sizeof *list%zu, "
        "sizeof(void *)), %u } }",
        i, i, v->count, i, v->count);
}

static void put_scalar_of_list(dv_scalar s, FILE *to)
{
    if (s.kind == DV_SCALAR_INT)
        fprintf(to, "{ .kind = DV_SCALAR_INT, .as.i = %lld }", (long long)s.as.i);
    else if (s.kind == DV_SCALAR_BOOL)
        fprintf(to, "{ .kind = DV_SCALAR_BOOL, .as.b = %d }", s.as.b);
    else
        fputs("{ .kind = DV_SCALAR_FLOAT, .as.f = ", to), put_c_number(s.as.f, to), fputs(" }", to);
}

/* The whole assignment of argument i. */
static void put_list(size_t i, const check_value *v, FILE *to)
{
    if (v->type == DV_VALUE_STRINGS) {
        put_strings(i, v, to);
        return;
    }
    const bool ints = v->type == DV_VALUE_INTS, bools = v->type == DV_VALUE_BOOLS, scalars = v->type == DV_VALUE_SCALARS;
    const char *type = ints ? "int64_t" : bools ? "bool" : scalars ? "dv_scalar" : "double";
    fprintf(to, "    static const %s list%zu[%u] = { ", type, i, v->count + 1);
    for (uint32_t k = 0; k < v->count; k++) {
        fputs(k ? ", " : "", to);
        if (ints || bools)
            fprintf(to, "%lld", (long long)v->ints[k]);
        else if (scalars)
            put_scalar_of_list(check_scalar_of(v, k), to);
        else
            put_c_number(v->floats[k], to);
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

/* Whole numbers; of 64 bits no double has the last ones. */
static void put_whole(const check_tensor *t, const unsigned char *bytes, int64_t i, const char *unsigned_ends, FILE *to)
{
    const int64_t x = t->dtype.bits == 64 ? ((const int64_t *)(const void *)bytes)[i] : (int64_t)check_get(bytes, i, t->dtype);
    if (t->dtype.code == 1 && t->dtype.bits == 64)
        fprintf(to, "%" PRIu64 "%s", (uint64_t)x, unsigned_ends);
    else if (x == INT64_MIN)
        fprintf(to, "%" PRId64 " - 1", -INT64_MAX);
    else
        fprintf(to, "%" PRId64, x);
}

/* Real numbers of the types that a language has; those with a NaN that is not its own are bytes. */
static bool is_real(const check_tensor *t, uint32_t other)
{
    const uint32_t key = dv_dtype_key(t->dtype);
    return (key == DV_DTYPE_f32 || key == DV_DTYPE_f64 || key == other) && t->fill != CHECK_SIGNALLING;
}

/* Elements as the nearest C type has them; others as bytes. */
static void put_elements(const check_tensor *t, const unsigned char *bytes, int64_t n, FILE *to)
{
    const bool real = is_real(t, DV_DTYPE_f64), whole = check_is_integer(t->dtype);
    const int64_t count = real || whole ? n : n * dv_dtype_bytes(t->dtype, 1);
    for (int64_t i = 0; i < count; i++) {
        fputs(i % 16 == 0 && i ? ",\n        " : i ? ", " : "", to);
        if (whole)
            put_whole(t, bytes, i, "u", to);
        else if (real)
            put_c_number(check_get(bytes, i, t->dtype), to);
        else
            fprintf(to, "0x%02x", bytes[i]);
    }
}

static const char *c_type(const check_tensor *t)
{
    static const char *const signed_types[] = { "int8_t", "int16_t", "int32_t", "int64_t" };
    static const char *const unsigned_types[] = { "uint8_t", "uint16_t", "uint32_t", "uint64_t" };
    const int bits = t->dtype.bits, at = bits <= 8 ? 0 : bits == 16 ? 1 : bits == 32 ? 2 : 3;
    if (is_real(t, DV_DTYPE_f64))
        return bits == 32 ? "float" : "double";
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

/* Memory of n elements with the contents, in the block of a tensor. */
static void put_c_guarded(const check_job *job, size_t i, const int64_t *strides, int64_t n, int64_t first, FILE *to)
{
    const check_case *c = &job->result->failing;
    const check_tensor *t = &c->tensors[i];
    const int64_t size = dv_dtype_bytes(t->dtype, 1);
    put_c_dims(t, strides, to);
    fprintf(to, "        const size_t bytes = %lld;\n", (long long)(n * size));
    fprintf(
        to, "        char *data = lent(bytes, %lld, 0, ARGUMENTS_APART);\n", (long long)(t->dtype.code == 5 ? size / 2 : size));
    if (by_formula(job, t))
        fprintf(to,
            "        fill_drawn(data, %lld, (dv_dtype){ %u, %u, %u }, UINT64_C(%llu) + 1000 * (uint64_t)which, %d, %a, %a);\n",
            (long long)n, t->dtype.code, t->dtype.bits, t->dtype.lanes, (unsigned long long)(c->seed + i),
            t->fill == CHECK_SIMPLE, t->low, t->high);
    else
        fputs("        memcpy(data, elements[which], bytes);\n", to);
    fprintf(to, "        protect(data, %s);\n", writes(job, i) ? "PROT_READ | PROT_WRITE" : "PROT_READ");
    put_c_header(job, i, "data", first * size, to);
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
    if (by_formula(job, t)) {
        n = check_numel(t);
        first = 0;
        fprintf(to, ": %s */\n", dv_dtype_name(t->dtype));
        put_c_guarded(job, i, strides, n, first, to);
        return;
    }
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
    put_c_guarded(job, i, strides, n, first, to);
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
            v->type == DV_VALUE_SCALARS || v->type == DV_VALUE_STRINGS;
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

static void put_c_names(const check_job *job, FILE *to)
{
    const check_result *r = job->result;
    fprintf(to, "#define BINARY \"%s\"\n#define OPERATOR \"%s\"\n", file_of(job->op->path), job->op->name);
    fprintf(to, "enum { ROW = %d, OTHER_ROW = %d, AT_END = %d, APART = %d, ARGUMENTS_APART = %d };\n", (int)row_of(job),
        (int)r->how.other_row, r->how.end == CHECK_AT_END, r->failing.seed & 2 && r->how.show != CHECK_SHOW_FAR,
        check_arguments_apart(&r->failing) && !r->how.ends_at_guard && r->how.show != CHECK_SHOW_FAR);
}

bool check_repro_c(const check_job *job, FILE *to)
{
    static const made_piece made[] = { { "names.h", put_c_names }, { "case.h", put_c_makers }, { "tables.h", put_c_tables },
        { "tensors.h", put_c_tensors }, { "axes.h", put_c_axes }, { "wants.h", put_c_wants }, { NULL, NULL } };
    const bool before = job->result->has_before && job->result->how.show != CHECK_SHOW_KEPT; /* which makes that call itself */
    program p = { .job = job, .made = made, .to = to };
    if (job->said_python)
        return false;
    put_comment(job, "/* ", " * ", false, to);
    fputs(" */\n", to);
    put_piece(&p, any_by_formula(job) ? "drawn.h" : "memory.h");
    put_question(&p, ".c");
    put_piece(&p, "begin.h");
    if (before)
        put_piece(&p, "before.h");
    fprintf(to,
        "\nint main(int argc, char **argv)\n{\n    static dv_value results[NRESULTS + 1];\n"
        "    dv_operator *op = begin(argc, argv);\n%s    return question(op, results);\n}\n",
        before ? "    call_before(op, results);\n" : "");
    return true;
}

/* ---- Python ---- */

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

static void put_python_number(double x, FILE *to)
{
    if (isnan(x) || isinf(x))
        fprintf(to, "%snumpy.%s", x < 0 ? "-" : "", isnan(x) ? "nan" : "inf");
    else
        fprintf(to, fabs(x) < 1e16 && x == rint(x) ? "%.1f" : "%.17g", x); /* never an integer: -0 has no sign there */
}

static void put_python_elements(const check_tensor *t, const unsigned char *bytes, int64_t n, FILE *to)
{
    const bool real = is_real(t, DV_DTYPE_f16), whole = check_is_integer(t->dtype);
    fputs(real || whole ? "[" : "b\"", to);
    for (int64_t i = 0; i < (real || whole ? n : n * dv_dtype_bytes(t->dtype, 1)); i++) {
        if (!real && !whole)
            fprintf(to, "\\x%02x", bytes[i]);
        else if (whole)
            put_whole(t, bytes, i, "", to), fputs(", ", to);
        else
            put_python_number(check_get(bytes, i, t->dtype), to), fputs(", ", to);
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
    if (by_formula(job, t))
        fprintf(to, "drawn(%s, %lld, %llu, %s, %.17g, %.17g)", numpy_dtype(t->dtype, buffer, sizeof buffer), (long long)n,
            (unsigned long long)(c->seed + i), t->fill == CHECK_SIMPLE ? "True" : "False", t->low, t->high);
    else if (bytes)
        put_python_elements(t, bytes, n, to);
    fprintf(to, ", %s)", writes(job, i) || job->result->how.show == CHECK_SHOW_SAME ? "True" : "False");
    free(bytes);
}

static void put_python_value(const check_job *job, const check_value *v, FILE *to)
{
    switch (v->type) {
    case DV_VALUE_TENSOR: put_python_tensor(job, v->first, to); return;
    case DV_VALUE_INT: fprintf(to, "%lld", (long long)v->as.i); return;
    case DV_VALUE_FLOAT: put_python_number(v->as.f, to); return;
    case DV_VALUE_BOOL: fputs(v->as.b ? "True" : "False", to); return;
    case DV_VALUE_COMPLEX:
        fputs("complex(", to);
        put_python_number(v->as.c.re, to);
        fputs(", ", to);
        put_python_number(v->as.c.im, to);
        fputs(")", to);
        return;
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
        else if (v->type == DV_VALUE_STRINGS)
            fprintf(to, "\"%s\"", check_string_of(v, k));
        else if (v->type == DV_VALUE_SCALARS && v->ints[k] == DV_SCALAR_INT)
            fprintf(to, "%lld", (long long)v->floats[k]);
        else if (v->type == DV_VALUE_SCALARS && v->ints[k] == DV_SCALAR_BOOL)
            fputs(v->floats[k] > 0 ? "True" : "False", to);
        else
            put_python_number(v->floats[k], to);
        fputs(", ", to);
    }
    fputs("]", to);
}

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
    fprintf(to, "def %s():\n    return {", function);
    for (size_t i = 0; i < c->nargs; i++) {
        if (c->args[i].type == DV_VALUE_DEFAULT)
            continue;
        fprintf(to, "\n        \"%s\": ", job->op->slots[i].name);
        put_python_value(job, &c->args[i], to);
        fputs(",", to);
    }
    fputs("}\n\n\n", to);
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
    fputs("{", to);
    for (size_t i = 0; i < c->nargs; i++) {
        if (c->args[i].type == DV_VALUE_DEFAULT)
            continue;
        fprintf(to, "\"%s\": ", job->op->slots[i].name);
        put_python_value(job, &c->args[i], to);
        fputs(", ", to);
    }
    fputs("}", to);
}

static void put_python_names(const check_job *job, FILE *to)
{
    const check_how *how = &job->result->how;
    fprintf(to, "AT_END, APART, ROW, OTHER_ROW, RTOL, ATOL = %s, %s, %d, %d, %.17g, float(\"%.17g\")\n",
        how->end == CHECK_AT_END ? "True" : "False",
        check_arguments_apart(&job->result->failing) && !how->ends_at_guard ? "True" : "False", (int)row_of(job),
        (int)how->other_row, how->rtol, how->atol);
    fprintf(to, "BINARY, OPERATOR = \"%s\", \"%s\"\n", file_of(job->op->path), job->op->name);
    put_python_tables(job, to);
}

static void put_python_case(const check_job *job, FILE *to)
{
    fputs(any_ml_dtypes(job->result) ? "import ml_dtypes\n\n\n" : "\n\n", to);
    put_results(job, to);
    put_python_arguments(job, "arguments", to);
}

static void put_python_before(const check_job *job, FILE *to)
{
    check_job *before = before_of(job);
    for (size_t i = 0; i < before->result->failing.ntensors; i++) /* a copy that Python's host makes would be out of reach */
        before->result->failing.tensors[i].layout = CHECK_CONTIGUOUS;
    fputs("\n\n", to);
    put_python_arguments(before, "other_arguments", to);
}

bool check_repro_python(const check_job *job, FILE *to)
{
    static const made_piece made[] = { { "names.py", put_python_names }, { "case.py", put_python_case }, { NULL, NULL } };
    program p = { .job = job, .made = made, .to = to };
    if (job->said_python)
        return fputs(job->said_python, to) >= 0;
    if (!has_question(job, ".py"))
        return false;
    const bool of_results = job->result->how.show == CHECK_SHOW_POISON || job->result->how.show == CHECK_SHOW_HEADER;
    for (size_t r = 0; r < job->op->nresults && of_results; r++)
        if (job->op->slots[job->op->nargs + r].type == DV_FIELD_TENSORS)
            return false; /* NumPy's memory, not the program's: lists cannot be given */
    put_comment(job, "# ", "# ", true, to);
    fputs("\n", to);
    put_piece(&p, "memory.py"); /* it starts the process anew: before anything is loaded */
    if (any_by_formula(job))
        put_piece(&p, "drawn.py");
    if (job->result->has_before) {
        put_piece(&p, "call.py");
        put_python_before(job, to);
        put_piece(&p, "before.py");
    }
    put_question(&p, ".py");
    return true;
}
