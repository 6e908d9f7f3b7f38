/* A line of schema, then a contract, then after a zero byte what the arguments are made of. A contract that parses can be printed
 * and solved with any arguments of the schema's types without undefined behaviour, and every failure has a message. */
#include <stdio.h>
#include <stdlib.h>

#include "lang/contract.h"

static void require(bool condition, const char *what, const char *text)
{
    if (condition)
        return;
    fprintf(stderr, "%s: %s\n%s\n", what, text, dv_last_error());
    abort();
}

/* ---- Arguments from bytes -------------------------------------------------------------------------------------------- */

struct source { const uint8_t *at, *end; };
static unsigned byte(struct source *s) { return s->at < s->end ? *s->at++ : 0; }

static int64_t number(struct source *s)
{
    static const int64_t palette[] = { 0, 1, 2, 3, 4, 5, 7, 8, 16, -1, -2, 1000, (int64_t)1 << 32, INT64_MAX, INT64_MIN,
        INT64_MAX / 2 };
    return palette[byte(s) % 16];
}

static int64_t size(struct source *s)
{
    const int64_t n = number(s);
    return n < 0 ? 6 : n;
}

static const char *const strings[] = { "BSND", "TND", "PA_BSND", "silu", "a", "b", "", "x" };
static const uint32_t dtypes[] = { DV_DTYPE_f32, DV_DTYPE_f32, DV_DTYPE_bf16, DV_DTYPE_f16, DV_DTYPE_i64, DV_DTYPE_i32,
    DV_DTYPE_u8, DV_DTYPE_f64, DV_DTYPE_bool, DV_DTYPE_c64, DV_DTYPE_u16, DV_DTYPE_f8_e4m3fn, DV_DTYPE_f4_e2m1fn, DV_DTYPE_i8 };

struct room {
    dv_tensor tensors[64];
    int64_t sizes[64][16], ints[64][8];
    const dv_tensor *lists[16][4];
    unsigned ntensors, nints, nlists;
};
static uint64_t elements[64];

static const dv_tensor *tensor(struct source *s, struct room *room)
{
    if (room->ntensors == 64)
        return NULL;
    int64_t *shape = room->sizes[room->ntensors], *strides = shape + 8, count = 1;
    dv_tensor *t = &room->tensors[room->ntensors++];
    memset(t, 0, sizeof *t);
    t->ndim = (int32_t)(byte(s) % 6);
    t->dtype = dv_dtype_from_key(dtypes[byte(s) % (sizeof dtypes / sizeof *dtypes)]);
    t->device.type = byte(s) % 16 == 15 ? DV_CUDA : DV_CPU;
    t->shape = shape;
    t->strides = strides;
    for (int32_t i = t->ndim - 1; i >= 0; i--) {
        shape[i] = size(s);
        strides[i] = count;
        if (__builtin_mul_overflow(count, shape[i] > 1 ? shape[i] : 1, &count))
            count = INT64_MAX;
    }
    if (count <= 64)
        t->data = elements;
    return t;
}

static dv_value value(const dv__type *type, struct source *s, struct room *room)
{
    switch (type->kind) {
    case DV__TYPE_OPTIONAL: return byte(s) % 3 ? value(type->elems[0], s, room) : dv_none();
    case DV__TYPE_TENSOR: return dv_from_tensor(tensor(s, room));
    case DV__TYPE_INT:
    case DV__TYPE_SYMINT: return dv_from_int(number(s));
    case DV__TYPE_FLOAT: return dv_from_float((double)number(s) / 3);
    case DV__TYPE_BOOL: return dv_from_bool(byte(s) & 1);
    case DV__TYPE_STRING: return dv_from_string(strings[byte(s) % 8]);
    case DV__TYPE_SCALAR: return byte(s) & 1 ? dv_from_int(number(s)) : dv_from_float((double)number(s));
    case DV__TYPE_DTYPE: return dv_from_dtype(dv_dtype_from_key(dtypes[byte(s) % 10]));
    case DV__TYPE_LIST: {
        const unsigned n = byte(s) % 5;
        const dv__type *element = type->elems[0]->kind == DV__TYPE_OPTIONAL ? type->elems[0]->elems[0] : type->elems[0];
        if (element->kind == DV__TYPE_TENSOR && room->nlists < 16) {
            const dv_tensor **list = room->lists[room->nlists++];
            for (unsigned i = 0; i < n && i < 4; i++)
                list[i] = element == type->elems[0] || byte(s) % 3 ? tensor(s, room) : NULL;
            return dv_from_tensors(list, n < 4 ? n : 4);
        }
        if (room->nints < 64) {
            int64_t *list = room->ints[room->nints++];
            for (unsigned i = 0; i < n; i++)
                list[i] = number(s);
            return dv_from_ints(list, n);
        }
        return dv_none();
    }
    default: return dv_none();
    }
}

/* place: of a return that is a list; else -1. */
static void result(const dv__contract *c, dv__solution *s, const dv_value *args, size_t i, int64_t place, const dv_tensor *given,
    const char *text)
{
    const int32_t used = s->pool_count;
    dv__result_metadata out;
    dv_clear_error();
    if (place < 0 ? dv__contract_eval_result(c, args, s, i, &out) : dv__contract_eval_list_result(c, args, s, i, place, &out)) {
        require(*dv_last_error() != 0, "output: no message", text);
        return;
    }
    require(out.ndim >= -1 && out.ndim <= DV_MAX_NDIM && s->pool_count <= DV__SHAPE_POOL_SIZE, "output: a wrong rank", text);
    for (int32_t d = 0; d < out.ndim; d++)
        require(out.shape[d] >= 0, "output: a negative size", text);
    if (given)
        dv__contract_check_out(c, args, s, i, place, given);
    s->pool_count = used;
}

static void call(const dv__contract *c, const dv__schema *schema, struct source *source, const char *text)
{
    static struct room room;
    static dv_value args[64];
    static dv__solution s;
    int64_t bytes;
    double real;
    int32_t leading;
    if (schema->nargs > 64)
        return;
    room.ntensors = room.nints = room.nlists = 0;
    for (size_t i = 0; i < schema->nargs; i++)
        args[i] = value(schema->args[i].type, source, &room);
    memset(&s, 0xa5, sizeof s);
    dv_clear_error();
    if (dv__contract_solve(c, args, &s, byte(source) & 1)) {
        require(*dv_last_error() != 0, "solve: no message", text);
        return;
    }
    for (size_t i = 0; i < schema->nreturns; i++) {
        int64_t count;
        dv_clear_error();
        if (dv__contract_eval_list_length(c, args, &s, i, &count)) {
            require(*dv_last_error() != 0, "count: no message", text);
            continue;
        }
        for (int64_t place = count < 0 ? -1 : 0; place < (count > 4 ? 4 : count) || place < 0; place++)
            result(c, &s, args, i, place, room.ntensors ? &room.tensors[0] : NULL, text);
    }
    dv__contract_eval_workspace(c, args, &s, &bytes);
    dv__contract_eval_flops(c, args, &s, &real);
    dv__contract_eval_bytes(c, args, &s, &real);
    for (size_t slot = 0; slot < schema->nargs + schema->nreturns; slot++)
        dv__contract_try_get_split_dims(c, &s, slot, &leading);
    dv__contract_can_flatten_split(c, &s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    char *text = malloc(n + 1);
    dv__schema *schema = NULL;
    dv__contract *c = NULL;
    if (!text)
        return 0;
    memcpy(text, data, n);
    text[n] = 0;
    char *contract = strchr(text, '\n');
    if (contract) {
        struct source source;
        *contract++ = 0;
        source.at = (const uint8_t *)contract + strlen(contract);
        source.end = (const uint8_t *)text + n;
        if (source.at < source.end)
            source.at++;
        if (!dv__schema_parse(text, &schema)) {
            dv_clear_error();
            if (dv__contract_parse(contract, "fuzz::f", schema, &c)) {
                require(!c && *dv_last_error() != 0, "parse: no message", text);
            } else {
                dv__strbuf words = { 0 };
                dv__contract_describe(c, &words);
                dv__contract_json(c, &words);
                dv__strbuf_deinit(&words);
                for (int i = 0; i < 4; i++)
                    call(c, schema, &source, contract);
            }
        }
    }
    dv__contract_free(c);
    dv__schema_free(schema);
    free(text);
    return 0;
}
