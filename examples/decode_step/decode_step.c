/* decode_step.c: the step of decode_step.py in C: tensors that lie in a file, and shipped operators.
 *
 *     decode_step HOME FOLDER GROUPS OF_GROUPS CHOICES CHOSEN THREADS ROUNDS
 *
 * reads FOLDER/tensors.txt and maps tensors.bin, writes found.bin and out.bin, and prints the best time in seconds. */
#define _GNU_SOURCE
#include <dovetail.h>
#include <fcntl.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>

enum { DIMS = 4, TENSORS = 64, MADE = 512, OPERATORS = 32 };

/* A tensor with its shape and strides. */
struct view {
    dv_tensor t;
    int64_t shape[DIMS], strides[DIMS];
};
struct named {
    char name[32];
    struct view view;
};

static struct named tensors[TENSORS];
static int tensor_count, made_count, view_count;
static dv_tensor *made[MADE]; /* results of this step */
static struct view views[MADE];

static void fail(const char *what)
{
    fprintf(stderr, "decode_step: %s: %s\n", what, dv_last_error());
    exit(1);
}

static const dv_tensor *in(const char *name)
{
    for (int i = 0; i < tensor_count; i++)
        if (strcmp(tensors[i].name, name) == 0)
            return &tensors[i].view.t;
    fail(name);
    return NULL;
}

/* Calls dovetail::<name>; results that it allocates live until the end of the step. Returns the first. */
static const dv_tensor *call(const char *name, size_t results, const dv_value *args, size_t n)
{
    static struct {
        const char *name;
        dv_operator *op;
    } found[OPERATORS];
    dv_value out[3] = { dv_default(), dv_default(), dv_default() };
    char full[64];
    int i = 0;
    while (found[i].name && strcmp(found[i].name, name) != 0)
        i++;
    if (!found[i].name) {
        snprintf(full, sizeof full, "%s%s", strchr(name, ':') ? "" : "dovetail::", name);
        if (dv_find(full, &found[i].op))
            fail(name);
        found[i].name = name;
    }
    if (dv_call(found[i].op, args, n, out, results, NULL))
        fail(name);
    for (size_t r = 0; r < results; r++)
        made[made_count++] = (dv_tensor *)out[r].as.tensor;
    return results ? out[0].as.tensor : NULL;
}
#define CALL(NAME, RESULTS, ...) \
    call(NAME, RESULTS, (const dv_value[]){ __VA_ARGS__ }, sizeof((const dv_value[]){ __VA_ARGS__ }) / sizeof(dv_value))
#define T(TENSOR) dv_from_tensor(TENSOR)
#define I(NAME) dv_from_tensor(in(NAME))

/* The same elements in another shape. */
static const dv_tensor *shaped(const dv_tensor *t, int ndim, ...)
{
    struct view *const v = &views[view_count++];
    va_list dims;
    va_start(dims, ndim);
    for (int i = 0; i < ndim; i++)
        v->shape[i] = va_arg(dims, int64_t);
    va_end(dims);
    if (dv_tensor_init(&v->t, t->data, t->dtype, t->device, ndim, v->shape, NULL, v->strides))
        fail("a shape");
    return &v->t;
}
/* Elements from to from + n of dim `dim`, in place. */
static const dv_tensor *slice(const dv_tensor *t, int dim, int64_t from, int64_t n)
{
    struct view *const v = &views[view_count++];
    v->t = *t;
    memcpy(v->shape, t->shape, (size_t)t->ndim * sizeof *v->shape);
    memcpy(v->strides, t->strides, (size_t)t->ndim * sizeof *v->strides);
    v->shape[dim] = n;
    v->t.data = (char *)t->data + from * t->strides[dim] * (t->dtype.bits / 8);
    v->t.shape = v->shape;
    v->t.strides = v->strides;
    return &v->t;
}
/* Element i of dim `dim`, in place: the dim goes. */
static const dv_tensor *element(const dv_tensor *t, int dim, int64_t i)
{
    struct view *const v = &views[view_count];
    slice(t, dim, i, 1);
    v->t.ndim--;
    for (int d = dim; d < v->t.ndim; d++) {
        v->shape[d] = v->shape[d + 1];
        v->strides[d] = v->strides[d + 1];
    }
    return &v->t;
}
static int64_t last(const dv_tensor *t) { return t->shape[t->ndim - 1]; }

static const dv_tensor *linear(const dv_tensor *x, const char *weight) { return CALL("linear", 1, T(x), I(weight)); }
static const dv_tensor *norm(const dv_tensor *x, const char *weight)
{
    return CALL("rms_norm", 1, T(x), I(weight), dv_from_float(1e-6));
}
static const dv_tensor *turn(const dv_tensor *x, bool neox)
{
    return CALL("apply_rotary", 1, T(x), I("positions"), I("angles"), dv_from_bool(neox));
}
/* x [sequences, heads, k] times a matrix [n, k] for each head: [sequences, heads, n]. */
static const dv_tensor *by_head(const dv_tensor *x, const dv_tensor *weight)
{
    static dv_operator *op;
    dv_tensor *out;
    const int64_t heads = weight->shape[0], shape[] = { x->shape[0], heads, weight->shape[1] };
    const int views_before = view_count;
    if (dv_tensor_new(x->dtype, 3, shape, &out) || (!op && dv_find("dovetail::linear", &op)))
        fail("by_head");
    made[made_count++] = out;
    for (int64_t h = 0; h < heads; h++) {
        dv_value result = T(element(out, 1, h));
        if (dv_call(op, (const dv_value[]){ T(element(x, 1, h)), T(element(weight, 0, h)) }, 2, &result, 1, NULL))
            fail("by_head");
        view_count = views_before;
    }
    return out;
}

struct sizes { int64_t groups, of_groups, choices, chosen; };

/* One step. Returns the result; *chosen is [sequences, 1, 1, chosen]. */
static const dv_tensor *step(const struct sizes *z, const dv_tensor **chosen)
{
    const dv_tensor *const x = in("x");
    const int64_t b = x->shape[0], rope = last(in("ropes")), width = last(in("latents")), index = last(in("index_keys"));
    const int64_t heads = in("w_key")->shape[0], nope = last(in("w_key")), index_heads = in("w_index_weight")->shape[0];

    const dv_tensor *n = norm(x, "norm_in"), *const low = norm(linear(n, "w_query_down"), "norm_query");
    const dv_tensor *const query = shaped(linear(low, "w_query"), 3, b, heads, nope + rope);
    const dv_tensor *const absorbed = by_head(slice(query, 2, 0, nope), in("w_key"));
    const dv_tensor *const query_rope = turn(slice(query, 2, nope, rope), false);
    const dv_tensor *const latent = shaped(linear(n, "w_latent"), 3, b, (int64_t)1, width + rope);
    const dv_tensor *const index_query = turn(shaped(linear(low, "w_index_query"), 3, b, index_heads, index), true);
    const dv_tensor *const flat = CALL(
        "layer_norm", 1, T(linear(n, "w_index_key")), I("norm_index"), I("bias_index"), dv_from_float(1e-6));
    const dv_tensor *const index_key = turn(shaped(flat, 3, b, (int64_t)1, index), true);
    const dv_tensor *const key = norm(slice(latent, 2, 0, width), "norm_latent");
    const dv_tensor *const key_rope = turn(slice(latent, 2, width, rope), false);
    CALL("paged_kv_write", 0, T(key), T(index_key), I("latents"), I("index_keys"), I("slots"));
    CALL("paged_kv_write", 0, T(key_rope), T(slice(key_rope, 2, 0, 0)), I("ropes"), T(slice(in("ropes"), 3, 0, 0)), I("slots"));

    const dv_tensor *const weight = shaped(linear(n, "w_index_weight"), 3, b, (int64_t)1, index_heads);
    *chosen = CALL("lightning_indexer", 2, T(shaped(index_query, 4, b, (int64_t)1, index_heads, index)), I("index_keys"),
        T(weight), dv_none(), I("lengths"), I("block_table"), dv_from_string("BSND"), dv_from_string("PA_BSND"),
        dv_from_int(z->chosen));
    const dv_tensor *const attended = CALL("sparse_flash_attention", 3, T(shaped(absorbed, 4, b, (int64_t)1, heads, width)),
        I("latents"), I("latents"), T(*chosen), dv_from_float(1 / sqrt((double)(nope + rope))), I("block_table"), dv_none(),
        I("lengths"), T(shaped(query_rope, 4, b, (int64_t)1, heads, rope)), I("ropes"), dv_default(), dv_from_string("BSND"),
        dv_from_string("PA_BSND"));
    const dv_tensor *const mixed = by_head(shaped(attended, 3, b, heads, width), in("w_value"));
    const dv_tensor *const out = linear(shaped(mixed, 2, b, heads * last(mixed)), "w_out");
    const dv_tensor *const sum = CALL("base::add.Tensor", 1, T(x), T(out));
    n = norm(sum, "norm_out");

    const dv_tensor *const weights = CALL("grouped_topk", 2, T(linear(n, "w_router")), dv_from_int(z->choices),
        dv_from_bool(true), dv_from_int(z->groups), dv_from_int(z->of_groups), dv_from_string("sigmoid"), dv_from_float(2.5),
        I("router_bias"));
    const dv_tensor *const ids = made[made_count - 1];
    const dv_tensor *const routed = CALL("fused_experts", 1, T(n), I("w_up"), I("w_down"), T(weights), T(ids));
    const dv_tensor *const shared = linear(CALL("silu_and_mul", 1, T(linear(n, "w_shared_up"))), "w_shared_down");
    return CALL("base::add.Tensor", 1, T(CALL("base::add.Tensor", 1, T(sum), T(routed))), T(shared));
}

static void load_tensors(const char *folder)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/tensors.bin", folder);
    const int file = open(path, O_RDWR);
    struct stat status;
    if (file < 0 || fstat(file, &status))
        fail(path);
    char *const memory = mmap(NULL, (size_t)status.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    snprintf(path, sizeof path, "%s/tensors.txt", folder);
    FILE *const list = fopen(path, "r");
    if (memory == MAP_FAILED || !list)
        fail(path);
    char type[16];
    long long at, dim;
    int ndim;
    for (struct named *t = tensors; fscanf(list, "%31s %15s %lld %d", t->name, type, &at, &ndim) == 4; t++, tensor_count++) {
        dv_dtype dtype;
        for (int i = 0; i < ndim && fscanf(list, "%lld", &dim) == 1; i++)
            t->view.shape[i] = dim;
        if (dv_dtype_parse(type, &dtype) ||
            dv_tensor_init(&t->view.t, memory + at, dtype, (dv_device){ DV_CPU, 0 }, ndim, t->view.shape, NULL, t->view.strides))
            fail(t->name);
    }
    fclose(list);
}
static void save(const char *folder, const char *name, const dv_tensor *t)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *const file = fopen(path, "w");
    if (!file || fwrite(t->data, t->dtype.bits / 8, (size_t)dv_numel(t), file) != (size_t)dv_numel(t) || fclose(file))
        fail(path);
}

int main(int argc, char **argv)
{
    static const char *const files[] = { "base", "fused_experts", "layer_norm", "lightning_indexer", "linear", "paged_kv_write",
        "rms_norm", "rotary_embedding", "silu_and_mul", "sparse_flash_attention" };
    double best = 1e9;
    if (argc != 9)
        return fprintf(stderr, "usage: decode_step HOME FOLDER GROUPS OF_GROUPS CHOICES CHOSEN THREADS ROUNDS\n"), 2;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char path[4096];
        dv_library *library;
        snprintf(path, sizeof path, "%s/ops/%s.so", argv[1], files[i]);
        if (dv_load(path, &library))
            fail(path);
    }
    const struct sizes z = { atoll(argv[3]), atoll(argv[4]), atoll(argv[5]), atoll(argv[6]) };
    dv_set_threads(atoi(argv[7]));
    load_tensors(argv[2]);
    const int rounds = atoi(argv[8]);
    for (int round = 0; round <= rounds; round++) { /* the first one is not measured */
        struct timespec from, to;
        const dv_tensor *chosen;
        clock_gettime(CLOCK_MONOTONIC, &from);
        const dv_tensor *const out = step(&z, &chosen);
        clock_gettime(CLOCK_MONOTONIC, &to);
        const double seconds = (double)(to.tv_sec - from.tv_sec) + 1e-9 * (double)(to.tv_nsec - from.tv_nsec);
        best = round && seconds < best ? seconds : best;
        if (round == rounds) {
            save(argv[2], "found.bin", chosen);
            save(argv[2], "out.bin", out);
        }
        while (made_count)
            dv_tensor_unref(made[--made_count]);
        view_count = 0;
    }
    printf("%.9f\n", best);
    return 0;
}
