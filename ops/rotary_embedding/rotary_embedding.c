/* rotary_embedding.c: turns pairs of elements of each head by an angle that grows with the token's position.
 *
 * cos_sin_cache holds for each position rot_dim / 2 cosines and then as many sines. The pairs are (i, i + rot_dim / 2) in the
 * neox style and (2i, 2i + 1) in the other; elements of a head past rot_dim stay. For each token the cosines and sines are made
 * float once, and serve all of its heads. */
#include "../numbers.h"
#include <dovetail_math.h>

/* Of one token: cosines, then sines (less than zero to turn back), with room for a block more. Steps move cos and sin on. */
struct turn { void *cos, *sin; };

#define STEPS(F, T)                                                         \
    DV_INLINE void neox_##F(T *const *out, const T *const *in, void *with)  \
    {                                                                       \
        struct turn *const w = with;                                        \
        const T *const c = w->cos, *const s = w->sin;                       \
        DV_BLOCK_LOOP                                                       \
        {                                                                   \
            const T x = in[0][i], y = in[1][i];                             \
            out[0][i] = x * c[i] - y * s[i];                                \
            out[1][i] = y * c[i] + x * s[i];                                \
        }                                                                   \
        w->cos = (T *)w->cos + DV_BLOCK;                                    \
        w->sin = (T *)w->sin + DV_BLOCK;                                    \
    }                                                                       \
    DV_INLINE void pairs_##F(T *const *out, const T *const *in, void *with) \
    {                                                                       \
        struct turn *const w = with;                                        \
        const T *const c = w->cos, *const s = w->sin;                       \
        for (int i = 0; i < DV_BLOCK / 2; i++) {                            \
            const T x = in[0][2 * i], y = in[0][2 * i + 1];                 \
            out[0][2 * i] = x * c[i] - y * s[i];                            \
            out[0][2 * i + 1] = y * c[i] + x * s[i];                        \
        }                                                                   \
        w->cos = (T *)w->cos + DV_BLOCK / 2;                                \
        w->sin = (T *)w->sin + DV_BLOCK / 2;                                \
    }
STEPS(f32, float)
STEPS(f64, double)

struct heads {
    const dv_tensor *in;
    dv_tensor *out;
    int64_t size;
}; /* size: elements of a head; out may be in */

static dv_tensor at(const dv_tensor *t, int64_t element)
{
    dv_tensor view = *t;
    view.data = (char *)t->data + element * (t->dtype.bits / 8);
    return view;
}

/* All heads of one token. */
DV_INLINE void turn_token(struct heads h, int64_t token, int64_t width, const struct turn *w, int64_t rot, bool neox)
{
    const size_t item = h.in->dtype.bits / 8;
    for (int64_t head = token * width; head < (token + 1) * width; head += h.size) {
        struct turn now = *w;
        const dv_tensor x = at(h.in, head), y = at(h.in, head + rot / 2);
        dv_tensor x_out = at(h.out, head), y_out = at(h.out, head + rot / 2);
        if (neox)
            dv_blocks(x.dtype, rot / 2, DV_OUT(&x_out, &y_out), DV_IN(&x, &y), &now, neox_f32, neox_f64);
        else
            dv_blocks(x.dtype, rot, DV_OUT(&x_out), DV_IN(&x), &now, pairs_f32, pairs_f64);
        if (x_out.data != x.data && h.size > rot)
            memcpy((char *)x_out.data + (size_t)rot * item, (const char *)x.data + (size_t)rot * item,
                (size_t)(h.size - rot) * item);
    }
}

#define LOOK_UP(T, GET)                                                   \
    for (int64_t i = 0; i < half; i++) {                                  \
        ((T *)w->cos)[i] = (T)GET(cache->data, at_cos + i);               \
        ((T *)w->sin)[i] = sign * (T)GET(cache->data, at_cos + half + i); \
    }                                                                     \
    break
#define OF_F32(data, i) ((const float *)data)[i]
#define OF_F64(data, i) ((const double *)data)[i]
#define OF_BF16(data, i) dv_bf16_to_f32(((const uint16_t *)data)[i])
#define OF_F16(data, i) dv_f16_to_f32(((const uint16_t *)data)[i])
#define LOOK_UP_ALL(T)                       \
    switch (dv_dtype_key(cache->dtype)) {    \
    case DV_DTYPE_f32: LOOK_UP(T, OF_F32);   \
    case DV_DTYPE_f64: LOOK_UP(T, OF_F64);   \
    case DV_DTYPE_bf16: LOOK_UP(T, OF_BF16); \
    case DV_DTYPE_f16: LOOK_UP(T, OF_F16);   \
    }

/* Cosines and sines of one position. */
static void look_up_f32(const struct turn *restrict w, const dv_tensor *restrict cache, int64_t at_cos, int64_t half, float sign)
{
    LOOK_UP_ALL(float)
}
static void look_up_f64(const struct turn *restrict w, const dv_tensor *restrict cache, int64_t at_cos, int64_t half, double sign)
{
    LOOK_UP_ALL(double)
}
static void look_up(const struct turn *w, const dv_tensor *cache, int64_t position, bool f64, bool inverse)
{
    const int64_t rot = cache->shape[1];
    if (f64)
        look_up_f64(w, cache, position * rot, rot / 2, inverse ? -1 : 1);
    else
        look_up_f32(w, cache, position * rot, rot / 2, inverse ? -1 : 1);
}

/* Positions are checked before anything is written. */
static int check_positions(dv_context *ctx, const dv_tensor *positions, const dv_tensor *cache)
{
    for (int64_t i = 0, n = dv_numel(positions); i < n; i++)
        if (get_int(positions, i) < 0 || get_int(positions, i) >= cache->shape[0])
            return dv_error(ctx, DV_EINVAL, "argument 'positions': position %lld is outside 'cos_sin_cache', which has %lld",
                (long long)get_int(positions, i), (long long)cache->shape[0]);
    return DV_OK;
}

struct turning {
    const dv_tensor *positions, *cache;
    struct heads heads;
    bool neox, inverse;
};

DV_INLINE int turn_all(dv_context *ctx, const struct turning *a)
{
    const int64_t tokens = dv_numel(a->positions), rot = a->cache->shape[1];
    const int64_t room = (rot / 2 + DV_BLOCK) * (int64_t)sizeof(double);
    char *const memory = dv_alloc(ctx, (size_t)room * 2, 64);
    if (!memory)
        return DV_ENOMEM;
    memset(memory, 0, (size_t)room * 2);
    for (int64_t i = 0; i < tokens; i++) {
        const struct turn w = { memory, memory + room };
        look_up(&w, a->cache, get_int(a->positions, i), a->heads.in->dtype.bits == 64, a->inverse);
        turn_token(a->heads, i, dv_numel(a->heads.in) / tokens, &w, rot, a->neox);
    }
    return DV_OK;
}
DV_ISAS(struct turning, turn_all)

/* ---- in place ------------------------------------------------------------------------------------------------------------ */

struct rotary_embedding {
    const dv_tensor *positions;
    dv_tensor *query, *key;
    int64_t head_size;
    const dv_tensor *cos_sin_cache;
    bool is_neox;
};

/* Element by element, in double. */
static int reference(dv_context *ctx, const dv_tensor *positions, const dv_tensor *cache, struct heads h, bool neox, bool inverse)
{
    const uint32_t t = dv_dtype_key(h.in->dtype), u = dv_dtype_key(cache->dtype);
    const int64_t tokens = dv_numel(positions), n = dv_numel(h.in), rot = cache->shape[1], half = rot / 2;
    const int status = check_positions(ctx, positions, cache);
    for (int64_t k = 0; k < n && !status; k += h.size) {
        const int64_t position = get_int(positions, k / (n / tokens));
        for (int64_t i = 0; i < half; i++) {
            const int64_t p = k + (neox ? i : 2 * i), q = k + (neox ? i + half : 2 * i + 1);
            const double c = dv_get_f64(cache->data, position * rot + i, u);
            const double s = dv_get_f64(cache->data, position * rot + half + i, u) * (inverse ? -1 : 1);
            const double x = dv_get_f64(h.in->data, p, t), y = dv_get_f64(h.in->data, q, t);
            dv_put_f64(h.out->data, p, t, x * c - y * s);
            dv_put_f64(h.out->data, q, t, y * c + x * s);
        }
        for (int64_t i = k + rot; i < k + h.size; i++)
            dv_put_f64(h.out->data, i, t, dv_get_f64(h.in->data, i, t));
    }
    return status;
}

static int rotary_embedding_reference(dv_context *ctx, const struct rotary_embedding *a)
{
    const int status = reference(
        ctx, a->positions, a->cos_sin_cache, (struct heads){ a->query, a->query, a->head_size }, a->is_neox, false);
    return status || !a->key
        ? status
        : reference(ctx, a->positions, a->cos_sin_cache, (struct heads){ a->key, a->key, a->head_size }, a->is_neox, false);
}

#define IN_PLACE(ISA)                                                                                                   \
    static int rotary_embedding_##ISA(dv_context *ctx, const struct rotary_embedding *a)                                \
    {                                                                                                                   \
        struct turning t = { a->positions, a->cos_sin_cache, { a->query, a->query, a->head_size }, a->is_neox, false }; \
        int status = check_positions(ctx, a->positions, a->cos_sin_cache);                                              \
        if (!status)                                                                                                    \
            status = turn_all_##ISA(ctx, &t);                                                                           \
        if (status || !a->key)                                                                                          \
            return status;                                                                                              \
        t.heads = (struct heads){ a->key, a->key, a->head_size };                                                       \
        return turn_all_##ISA(ctx, &t);                                                                                 \
    }
#ifdef DV_TARGET_AVX2
IN_PLACE(avx512)
IN_PLACE(avx2)
#endif
IN_PLACE(base)

#define FLOATS "f32 f64 bf16 f16"

/* query and key as apply_rotary takes them, turned, and back: g is the tensor, x its argument. */
#define TURNED(g, x, inverse)                                                                           \
    "reshape(apply_rotary(reshape(" g ", [positions.numel, " x ".shape[-1] // head_size, head_size]), " \
    "reshape(positions, [-1]), cos_sin_cache, is_neox, " inverse "), " x ".shape)"
DV_OPERATOR(rotary_embedding, struct rotary_embedding, (positions, query, key, head_size, cos_sin_cache, is_neox),
    .schema = "rotary_embedding(Tensor positions, Tensor(a!) query, Tensor(b!)? key, int head_size, Tensor cos_sin_cache, bool "
              "is_neox) -> ()",
    .contract = "positions[*p]:i64|i32, query[*p q]:T, key[*p k]:T, cos_sin_cache[m r]:U; T in " FLOATS "; U in " FLOATS "; "
                "head_size > 0; q % head_size == 0; k % head_size == 0; r % 2 == 0; r <= head_size; parallel(*p)",
    .native = "query: " TURNED("query", "query", "False") "; key: if(present(key), " TURNED("key", "key", "False") ", None)",
    .gradient = "query: " TURNED("grads[0]", "query", "True") "; key: if(present(key), " TURNED(
        "grads[1]", "key", "True") ", None); "
                                   "positions, cos_sin_cache: non_differentiable",
    .doc =
        "Turns the heads of query, and of key if there is one, in place, by the angles of each token's position: vLLM's operator "
        "of this name. query and key are [tokens..., heads * head_size].",
    .kernels = DV_KERNELS(DV_ISA_ROWS(struct rotary_embedding, rotary_embedding, FLOATS, .split = 16),
        DV_KERNEL(struct rotary_embedding, "cpu", FLOATS, rotary_embedding_reference, .flags = DV_KERNEL_REFERENCE)));

/* ---- a new tensor, differentiable ---------------------------------------------------------------------------------------- */

struct apply_rotary {
    const dv_tensor *x, *positions, *cos_sin_cache;
    bool is_neox, inverse;
    dv_tensor *out;
};

static int apply_rotary_reference(dv_context *ctx, const struct apply_rotary *a)
{
    return reference(
        ctx, a->positions, a->cos_sin_cache, (struct heads){ a->x, a->out, a->x->shape[a->x->ndim - 1] }, a->is_neox, a->inverse);
}
#define APPLY(ISA)                                                                                                            \
    static int apply_rotary_##ISA(dv_context *ctx, const struct apply_rotary *a)                                              \
    {                                                                                                                         \
        const struct turning t = { a->positions, a->cos_sin_cache, { a->x, a->out, a->x->shape[a->x->ndim - 1] }, a->is_neox, \
            a->inverse };                                                                                                     \
        const int status = check_positions(ctx, a->positions, a->cos_sin_cache);                                              \
        return status ? status : turn_all_##ISA(ctx, &t);                                                                     \
    }
#ifdef DV_TARGET_AVX2
APPLY(avx512)
APPLY(avx2)
#endif
APPLY(base)

/* The native form, in parts: all tokens in one dim, the cosines and sines of each, the halves of the heads. */
#define ROT "cos_sin_cache.shape[1]"
#define X "reshape(x, [positions.numel, x.shape[-2], x.shape[-1]])"
#define TABLE "unsqueeze(index_select(cos_sin_cache, 0, reshape(positions, [-1])), 1)"
#define COS "narrow(" TABLE ", 2, 0, " ROT " // 2)"
#define SIN "(narrow(" TABLE ", 2, " ROT " // 2, " ROT " // 2) * if(inverse, -1, 1))"
#define X0 "narrow(" X ", 2, 0, " ROT " // 2)"
#define X1 "narrow(" X ", 2, " ROT " // 2, " ROT " // 2)"
#define REST "narrow(" X ", 2, " ROT ", x.shape[-1] - " ROT ")"
#define PAIRS "reshape(narrow(" X ", 2, 0, " ROT "), [positions.numel, x.shape[-2], " ROT " // 2, 2])"
#define P0 "narrow(" PAIRS ", 3, 0, 1)"
#define P1 "narrow(" PAIRS ", 3, 1, 1)"

DV_OPERATOR(apply_rotary, struct apply_rotary, (x, positions, cos_sin_cache, is_neox, inverse, out),
    .schema =
        "apply_rotary(Tensor x, Tensor positions, Tensor cos_sin_cache, bool is_neox=True, bool inverse=False) -> Tensor out",
    .contract = "x[*p h d]:T, positions[*p]:i64|i32, cos_sin_cache[m r]:U -> out[*p h d]:T; T in " FLOATS "; U in " FLOATS "; "
                "r % 2 == 0; r <= d; parallel(*p)",
    .native = "if(is_neox, reshape(cat([type_as(" X0 " * " COS " - " X1 " * " SIN ", x), type_as(" X1 " * " COS " + " X0 " * " SIN
              ", x), " REST "], 2), x.shape), "
              "reshape(cat([type_as(reshape(cat([" P0 " * unsqueeze(" COS ", 3) - " P1 " * unsqueeze(" SIN ", 3), " P1
              " * unsqueeze(" COS ", 3) + " P0 " * unsqueeze(" SIN ", 3)], 3), [positions.numel, x.shape[-2], " ROT
              "]), x), " REST "], 2), x.shape))",
    .gradient =
        "x: apply_rotary(grad, positions, cos_sin_cache, is_neox, not inverse); positions, cos_sin_cache: non_differentiable",
    .doc =
        "x with its heads turned by the angles of each token's position; inverse turns back. x is [tokens..., heads, head size].",
    .kernels = DV_KERNELS(DV_ISA_ROWS(struct apply_rotary, apply_rotary, FLOATS, .split = 16),
        DV_KERNEL(struct apply_rotary, "cpu", FLOATS, apply_rotary_reference, .flags = DV_KERNEL_REFERENCE)));

DV_LIBRARY_FRAGMENT(dovetail, rotary_embedding, &dv_op_rotary_embedding, &dv_op_apply_rotary);
