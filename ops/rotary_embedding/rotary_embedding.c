/* rotary_embedding.c: turns pairs of elements of each head by an angle that grows with the token's position.
 *
 * cos_sin_cache holds for each position rot_dim / 2 cosines and then as many sines. The pairs are (i, i + rot_dim / 2) in the
 * neox style and (2i, 2i + 1) in the other; elements of a head past rot_dim stay. For each token the cosines and sines are made
 * float once, and serve all of its heads. */
#include "../lines.h"

/* The heads of one token, with the cosines and sines of its position. to may be from. */
#define TURN(F, T)                                                                                                              \
    DV_INLINE void turn_##F(T *to, const T *from, int64_t width, int64_t size, int64_t half, const T *c, const T *s, bool neox) \
    {                                                                                                                           \
        const int64_t second = neox ? half : 1;                                                                                 \
        for (const T *const end = from + width; from < end; from += size, to += size) {                                         \
            if (neox)                                                                                                           \
                EACH_PAIR(T, i)                                                                                                 \
            else                                                                                                                \
                EACH_PAIR(T, 2 * i)                                                                                             \
            for (int64_t i = 2 * half; to != from && i < size; i++)                                                             \
                to[i] = from[i];                                                                                                \
        }                                                                                                                       \
    }
#define EACH_PAIR(T, AT)                               \
    DV__VECTOR_LOOP(i, half)                           \
    {                                                  \
        const T x = from[AT], y = from[(AT) + second]; \
        to[AT] = x * c[i] - y * s[i];                  \
        to[(AT) + second] = y * c[i] + x * s[i];       \
    }
TURN(f32, float)
TURN(f64, double)

/* The same for 16-bit types, where the halves of a head are whole vectors, which are registers: without a line of floats between.
 */
DV_INLINE void turn_lanes(const dv_isa_functions *isa, const struct elements *to, const struct elements *from, int64_t size,
    int64_t half, const float *c, const float *s)
{
    dv_lanes x, y, turned;
    for (int64_t head = 0; head < from->n; head += size) {
        for (int64_t i = 0; i < half; i += 16) {
            get_lanes(isa, &x, from, head + i, 0);
            get_lanes(isa, &y, from, head + half + i, 0);
            turned = x * LANES(c + i) - y * LANES(s + i);
            put_lanes(isa, to, head + i, &turned);
            turned = y * LANES(c + i) + x * LANES(s + i);
            put_lanes(isa, to, head + half + i, &turned);
        }
        if (to->data != from->data)
            memcpy(to->data + (head + 2 * half) * to->item, from->data + (head + 2 * half) * to->item,
                (size_t)((size - 2 * half) * to->item));
    }
}

struct heads {
    const dv_tensor *in;
    dv_tensor *out;
    int64_t size;
}; /* size: elements of a head; out may be in */

/* Cosines of one position, then its sines. */
static void look_up_f64(double *to, const dv_tensor *cache, int64_t position, int64_t half, bool inverse)
{
    load(to, cache, position * 2 * half, 2 * half);
    for (int64_t i = half; inverse && i < 2 * half; i++)
        to[i] = -to[i];
}
DV_INLINE void look_up_f32(
    const dv_isa_functions *isa, float *to, const dv_tensor *cache, int64_t position, int64_t half, bool inverse)
{
    if (cache->dtype.bits == 64)
        for (int64_t i = 0; i < 2 * half; i++)
            to[i] = (float)((const double *)cache->data)[position * 2 * half + i];
    else
        load_line(isa, to, cache, position * 2 * half, 2 * half, 0);
    for (int64_t i = half; inverse && i < 2 * half; i++)
        to[i] = -to[i];
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

/* t: the dtype of the heads, if it is not f64. */
DV_INLINE int turn_floats(dv_context *ctx, const struct turning *a, const dv_isa_functions *isa, uint32_t t)
{
    const struct heads *const h = &a->heads;
    const int64_t tokens = dv_numel(a->positions), half = a->cache->shape[1] / 2, width = tokens ? dv_numel(h->in) / tokens : 0;
    float *const c = dv_alloc(ctx, (size_t)(line_room(2 * half) + 1) * sizeof *c, 64);
    float *const line = dv_alloc(ctx, (size_t)(line_room(width) + 1) * sizeof *line, 64);
    if (!c || !line)
        return DV_ENOMEM;
    float *const s = c + half;
    for (int64_t token = 0; token < tokens; token++) {
        const struct elements from = elements_of(h->in, t, token * width, width),
                              to = elements_of(h->out, t, token * width, width);
        look_up_f32(isa, c, a->cache, get_int(a->positions, token), half, a->inverse);
        if (t == DV_DTYPE_f32) {
            turn_f32((float *)(void *)to.data, (const float *)(const void *)from.data, width, h->size, half, c, s, a->neox);
        } else if (IS_X16(isa) && a->neox && half % 16 == 0) {
            turn_lanes(isa, &to, &from, h->size, half, c, s);
        } else {
            load_line(isa, line, h->in, token * width, width, 0);
            turn_f32(line, line, width, h->size, half, c, s, a->neox);
            store_line(isa, h->out, token * width, line, width);
        }
    }
    return DV_OK;
}
static int turn_doubles(dv_context *ctx, const struct turning *a)
{
    const struct heads *const h = &a->heads;
    const int64_t tokens = dv_numel(a->positions), half = a->cache->shape[1] / 2, width = tokens ? dv_numel(h->in) / tokens : 0;
    double *const c = dv_alloc(ctx, (size_t)(2 * half + 1) * sizeof *c, 64);
    if (!c)
        return DV_ENOMEM;
    for (int64_t token = 0; token < tokens; token++) {
        look_up_f64(c, a->cache, get_int(a->positions, token), half, a->inverse);
        turn_f64((double *)h->out->data + token * width, (const double *)h->in->data + token * width, width, h->size, half, c,
            c + half, a->neox);
    }
    return DV_OK;
}
DV_INLINE int turn_all(dv_context *ctx, const struct turning *a, const dv_isa_functions *isa)
{
    if (a->heads.in->dtype.bits == 64)
        return turn_doubles(ctx, a);
#define FLOATS_OF(T) turn_floats(ctx, a, isa, T)
    BY_DTYPE(isa, a->heads.in, FLOATS_OF);
}
DV_ISA_VARIANTS(struct turning, turn_all)

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

static int rotary_embedding(
    dv_context *ctx, const struct rotary_embedding *a, int (*turn)(dv_context *ctx, const struct turning *a))
{
    struct turning t = { a->positions, a->cos_sin_cache, { a->query, a->query, a->head_size }, a->is_neox, false };
    int status = check_positions(ctx, a->positions, a->cos_sin_cache);
    if (!status)
        status = turn(ctx, &t);
    if (status || !a->key)
        return status;
    t.heads = (struct heads){ a->key, a->key, a->head_size };
    return turn(ctx, &t);
}
DV_ISA_VARIANTS_OF(struct rotary_embedding, rotary_embedding, turn_all)

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
    .kernels = DV_KERNELS(DV_BF16_KERNEL(struct rotary_embedding, rotary_embedding, .split = 16)
                              DV_ISA_KERNELS(struct rotary_embedding, rotary_embedding, FLOATS, .split = 16),
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
static int apply_rotary(dv_context *ctx, const struct apply_rotary *a, int (*turn)(dv_context *ctx, const struct turning *a))
{
    const struct turning t = { a->positions, a->cos_sin_cache, { a->x, a->out, a->x->shape[a->x->ndim - 1] }, a->is_neox,
        a->inverse };
    const int status = check_positions(ctx, a->positions, a->cos_sin_cache);
    return status ? status : turn(ctx, &t);
}
DV_ISA_VARIANTS_OF(struct apply_rotary, apply_rotary, turn_all)

/* The decomposition, in parts: all tokens in one dim, the cosines and sines of each, the halves of the heads. */
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
    .kernels = DV_KERNELS(DV_BF16_KERNEL(struct apply_rotary, apply_rotary, .split = 16)
                              DV_ISA_KERNELS(struct apply_rotary, apply_rotary, FLOATS, .split = 16),
        DV_KERNEL(struct apply_rotary, "cpu", FLOATS, apply_rotary_reference, .flags = DV_KERNEL_REFERENCE)));

DV_LIBRARY_FRAGMENT(dovetail, rotary_embedding, &dv_op_rotary_embedding, &dv_op_apply_rotary);
