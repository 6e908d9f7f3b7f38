/* Call sites: what is printed parses to the same, over all types that a schema has; texts that are refused; inferring and
 * calling. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "call_ops.h"
#include "failing.h"

struct odd_types {
    dv_tensors xs;
    dv_complexes zs;
    dv_dtypes dtypes;
    dv_devices devices;
    dv_floats floats;
    dv_opt_complex z;
    dv_opt_strings names;
    dv_opt_layout layout;
    dv_opt_memory_format format;
    int64_t *n;
};
static int odd_types_run(dv_context *ctx, const struct odd_types *a)
{
    (void)ctx;
    *a->n = (int64_t)a->xs.size;
    return DV_OK;
}
DV_OPERATOR(odd_types, struct odd_types, (xs, zs, dtypes, devices, floats, z, names, layout, format, n),
    .schema = "odd_types(Tensor?[] xs, complex[] zs, ScalarType[] dtypes, Device[] devices, float[3] floats=0.5, "
              "complex? z=None, str[]? names=None, Layout? layout=None, MemoryFormat? format=None) -> int n",
    .kernels = DV_KERNELS(DV_KERNEL(struct odd_types, "cpu", NULL, odd_types_run)));
DV_LIBRARY_FRAGMENT(tc, tc_site, &dv_op_odd_types);

static uint64_t state_of_draw = 7;
static uint32_t draw(uint32_t n)
{
    state_of_draw = state_of_draw * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(state_of_draw >> 33) % n;
}
#define ONE_OF(list) (list)[draw(sizeof(list) / sizeof *(list))]

static double number(void)
{
    static const double some[] = { 0, -0.0, 1, -1, 0.1, 1e300, -1e-300, 3, 1.0 / 3, (double)INFINITY, -(double)INFINITY, 5e-324 };
    return ONE_OF(some);
}
static int64_t integer(void)
{
    static const int64_t some[] = { 0, 1, -1, 7, INT64_MAX, INT64_MIN };
    return ONE_OF(some);
}

/* Room for the values of one call. */
static char bytes[200][16];
static dv_tensor headers[40];
static int64_t dims[40][8];
static _Alignas(16) char lists[40][256];
static size_t nbytes, nheaders, nlists;

static dv_string string(void)
{
    char *s = bytes[nbytes++];
    const size_t n = draw(8);
    for (size_t i = 0; i < n; i++)
        s[i] = draw(3) ? "a \"\\\n\x7f='[],(e1.j"[draw(17)] : (char)draw(127);
    return (dv_string){ s, n };
}
static const dv_tensor *tensor(void)
{
    static const uint32_t keys[] = { DV_DTYPE_f32, DV_DTYPE_i64, DV_DTYPE_bf16, DV_DTYPE_bool, DV_DTYPE_f8_e4m3fn };
    static const int32_t devices[] = { DV_CPU, DV_CUDA, DV_META };
    dv_tensor *t = &headers[nheaders];
    int64_t *d = dims[nheaders++], step = 1;
    *t = (dv_tensor){ .device = { ONE_OF(devices), 0 }, .ndim = (int32_t)draw(4), .dtype = dv_dtype_from_key(ONE_OF(keys)) };
    t->device.id = t->device.type == DV_CUDA ? (int32_t)draw(3) : 0;
    for (int32_t i = t->ndim; i-- > 0;) {
        d[i] = draw(4);
        d[4 + i] = draw(3) ? step : (int64_t)draw(9) - 4;
        step *= d[i] ? d[i] : 1;
    }
    t->shape = d;
    t->strides = d + 4;
    return t;
}
static dv_dtype dtype(void)
{
    static const uint32_t keys[] = { DV_DTYPE_f32, DV_DTYPE_u1, DV_DTYPE_c128, DV_DTYPE_f4_e2m1fn };
    return dv_dtype_from_key(ONE_OF(keys));
}
static dv_device device(void)
{
    const dv_device d = { draw(2) ? DV_CPU : DV_CUDA, (int32_t)draw(3) };
    return d;
}
static dv_scalar scalar(void)
{
    dv_scalar s;
    memset(&s, 0, sizeof s);
    switch (draw(4)) {
    case 0: s.kind = DV_SCALAR_INT, s.as.i = integer(); break;
    case 1: s.kind = DV_SCALAR_FLOAT, s.as.f = number(); break;
    case 2: s.kind = DV_SCALAR_BOOL, s.as.b = draw(2); break;
    default: s.kind = DV_SCALAR_COMPLEX, s.as.c = (dv_complex){ number(), number() };
    }
    return s;
}

#define LIST(TYPE, member, make)                                  \
    v.type = DV_VALUE_##TYPE;                                     \
    v.as.member.data = (void *)lists[nlists];                     \
    v.as.member.size = n;                                         \
    for (size_t i = 0; i < n; i++) {                              \
        __typeof__(v.as.member.data[0]) one = make;               \
        memcpy(lists[nlists] + i * sizeof one, &one, sizeof one); \
    }                                                             \
    nlists++;                                                     \
    break

static dv_value value(const dv_slot_info *slot)
{
    dv_value v = dv_none();
    const size_t n = slot->fixed_size >= 0 ? (size_t)slot->fixed_size : draw(4);
    if (slot->default_text && !draw(4))
        return dv_default();
    if ((slot->flags & DV_SLOT_OPTIONAL && !draw(3)) || slot->type == DV_FIELD_GENERATOR)
        return v;
    switch (slot->type) {
    case DV_FIELD_TENSOR: return dv_from_tensor(tensor());
    case DV_FIELD_INT: return dv_from_int(integer());
    case DV_FIELD_FLOAT: return dv_from_float(number());
    case DV_FIELD_BOOL: return dv_from_bool(draw(2));
    case DV_FIELD_STRING: v.type = DV_VALUE_STRING, v.as.s = string(); break;
    case DV_FIELD_COMPLEX: v.type = DV_VALUE_COMPLEX, v.as.c = (dv_complex){ number(), number() }; break;
    case DV_FIELD_DTYPE: return dv_from_dtype(dtype());
    case DV_FIELD_DEVICE: v.type = DV_VALUE_DEVICE, v.as.device = device(); break;
    case DV_FIELD_LAYOUT: v.type = DV_VALUE_LAYOUT, v.as.layout.value = (int32_t)draw(3); break;
    case DV_FIELD_MEMORY_FORMAT: v.type = DV_VALUE_MEMORY_FORMAT, v.as.memory_format.value = (int32_t)draw(5); break;
    case DV_FIELD_SCALAR: {
        const dv_scalar s = scalar();
        v = s.kind == DV_SCALAR_INT    ? dv_from_int(s.as.i)
            : s.kind == DV_SCALAR_BOOL ? dv_from_bool(s.as.b)
                                       : dv_from_float(number());
        if (s.kind == DV_SCALAR_COMPLEX)
            v.type = DV_VALUE_COMPLEX, v.as.c = s.as.c;
        break;
    }
    case DV_FIELD_TENSORS: LIST(TENSORS, tensors, draw(4) || !(slot->flags & DV_SLOT_ELEMENT_OPTIONAL) ? tensor() : NULL);
    case DV_FIELD_INTS: LIST(INTS, ints, integer());
    case DV_FIELD_FLOATS: LIST(FLOATS, floats, number());
    case DV_FIELD_BOOLS: LIST(BOOLS, bools, draw(2) != 0);
    case DV_FIELD_STRINGS: LIST(STRINGS, strings, string());
    case DV_FIELD_SCALARS: LIST(SCALARS, scalars, scalar());
    case DV_FIELD_COMPLEXES: LIST(COMPLEXES, complexes, ((dv_complex){ number(), number() }));
    case DV_FIELD_DTYPES: LIST(DTYPES, dtypes, dtype());
    case DV_FIELD_DEVICES: LIST(DEVICES, devices, device());
    default: fail_msg("a type that this test does not know: %u", slot->type);
    }
    return v;
}

static void round_trip(void **state)
{
    (void)state;
    static const char *const names[] = { "every", "odd_types", "cat", "swiglu", "fill_all", "maybe" };
    dv_value args[40];
    for (int round = 0; round < 20000; round++) {
        dv_operator *op = find(ONE_OF(names));
        nbytes = nheaders = nlists = 0;
        const size_t n = dv_operator_nargs(op);
        dv_slot_info slot;
        for (size_t i = 0; i < n; i++) {
            CALL_OK(dv_operator_slot(op, i, &slot));
            args[i] = value(&slot);
        }
        dv_site *site, *again;
        char *text, *second;
        CALL_OK(dv_site_new(op, args, n, &site));
        CALL_OK(dv_site_print(site, &text));
        if (dv_site_parse(text, &again))
            fail_msg("round %d: %s\n%s", round, text, dv_last_error());
        CALL_OK(dv_site_print(again, &second));
        if (strcmp(text, second) != 0)
            fail_msg("round %d: printed\n%s\nparsed and printed\n%s", round, text, second);
        assert_true(dv_site_operator(again) == op && dv_site_ntensors(again) == dv_site_ntensors(site));
        for (size_t i = 0; i < n; i++) {
            const dv_value *a = &dv_site_args(site)[i], *b = &dv_site_args(again)[i];
            assert_int_equal(a->type, b->type);
            if (a->type == DV_VALUE_FLOAT)
                assert_memory_equal(&a->as.f, &b->as.f, sizeof a->as.f);
            if (a->type == DV_VALUE_INT)
                assert_true(a->as.i == b->as.i);
            if (a->type == DV_VALUE_STRING) {
                assert_true(a->as.s.size == b->as.s.size);
                assert_memory_equal(a->as.s.data, b->as.s.data, a->as.s.size);
            }
        }
        dv_free(text);
        dv_free(second);
        dv_site_free(site);
        dv_site_free(again);
    }
}

static void texts(void **state)
{
    (void)state;
    static const struct {
        const char *text, *expected; /* as printed, or a part of the message */
        int status;
    } rows[] = {
        { "tc::swiglu(f32[4], up = f32 [ 4 ])", "tc::swiglu(gate=f32[4], up=f32[4])", 0 },
        { " tc::swiglu ( up=f32[2,3] @ [1,2], gate=f32[2,3]:cuda:1 ) ",
            "tc::swiglu(gate=f32[2, 3] : cuda:1, up=f32[2, 3] @ [1, 2])", 0 },
        { "tc::scale_(f32[])", "tc::scale_(x=f32[], by=2.0)", 0 },
        { "tc::scale_(f32[], 3)", "tc::scale_(x=f32[], by=3.0)", 0 },
        { "tc::scale_(f32[2,1]=0..8)", "tc::scale_(x=f32[2, 1] = 0..8, by=2.0)", 0 },
        { "tc::scale_(f32[2] = [-.5, 1e9])", "tc::scale_(x=f32[2] = [-0.5, 1000000000.0], by=2.0)", 0 },
        { "tc::scale_(f32[2] : cpu = 3)", "tc::scale_(x=f32[2] = 3, by=2.0)", 0 },
        { "tc::scale_(f32[2] = 8..0)", "a range of real numbers that ends above its beginning", DV_ESYNTAX },
        { "tc::scale_(f32[99999999999, 99999999999])", "tc::scale_: argument 'x': the number of elements overflows", DV_ESHAPE },
        { "tc::every(f32[2], [], [1], [], sizes=[1, 2, 3], s=a-b.c/d:e)", "s=\"a-b.c/d:e\"", 0 },
        { "tc::scale_(i64[2] = [9007199254740993, -9223372036854775808])", "x=i64[2] = [9007199254740993, -9223372036854775808]",
            0 },
        { "tc::scale_(c64[2] = [1.5+2.0j, 1])", "x=c64[2] = [1.5+2.0j, 1]", 0 },
        { "tc::scale_(bool[3] = [true, 0, 1])", "x=bool[3] = [true, 0, 1]", 0 },
        { "tc::scale_(u8[3] = 250..256)", "x=u8[3] = 250..256", 0 },
        { "tc::scale_(u8[3] = 250..257)", "column 25: expected an integer from 0 to 255, found '257)'", DV_ESYNTAX },
        { "tc::scale_(f32[2] = [1e38, 1e39])", "column 28: expected a number that f32 can hold, found '1e39])'", DV_ESYNTAX },
        { "tc::scale_(f16[2] = 65504)", "x=f16[2] = 65504", 0 },
        { "tc::scale_(f16[2] = -70000)", "expected a number that f16 can hold", DV_ESYNTAX },
        { "tc::scale_(f8_e4m3fn[2] = [450, -448])", "x=f8_e4m3fn[2] = [450, -448]", 0 },
        { "tc::scale_(f8_e4m3fn[2] = 470)", "expected a number that f8_e4m3fn can hold", DV_ESYNTAX },
        { "tc::scale_(f8_e4m3fn[2] = inf)", "expected a number that f8_e4m3fn can hold", DV_ESYNTAX },
        { "tc::scale_(f8_e4m3fn[2] = nan)", "x=f8_e4m3fn[2] = nan", 0 },
        { "tc::scale_(f8_e5m2[2] = -inf)", "x=f8_e5m2[2] = -inf", 0 },
        { "tc::scale_(f8_e8m0fnu[2] = 0)", "expected a number that f8_e8m0fnu can hold", DV_ESYNTAX },
        { "tc::scale_(f8_e8m0fnu[2] = -1)", "expected a number that f8_e8m0fnu can hold", DV_ESYNTAX },
        { "tc::scale_(f8_e4m3fn[2] = 1e-30)", "x=f8_e4m3fn[2] = 1e-30", 0 },
        { "tc::scale_(f32[2] = inf)", "x=f32[2] = inf", 0 },
        { "tc::scale_(i8[2] = 300)", "column 20: expected an integer from -128 to 127, found '300)'", DV_ESYNTAX },
        { "tc::scale_(i4[2] = [7, 8])", "column 24: expected an integer from -8 to 7, found '8])'", DV_ESYNTAX },
        { "tc::scale_(u64[2] = -1)", "expected an integer from 0 to 9223372036854775807, found '-1)'", DV_ESYNTAX },
        { "tc::scale_(i8[2] = 1.5)", "expected an integer", DV_ESYNTAX },
        { "tc::scale_(i64[2] = nan)", "expected an integer", DV_ESYNTAX },
        { "tc::scale_(i64[2] = 9223372036854775808)", "expected an integer of 64 bits", DV_ESYNTAX },
        { "tc::scale_(f32[2] = 1.0+2.0j)", "expected a real number", DV_ESYNTAX },
        { "tc::scale_(c64[2] = 0..1.0j)", "a range of real numbers", DV_ESYNTAX },
        { "tc::scale_(f32[2] = [1])", "as many values as elements", DV_ESYNTAX },
        { "tc::scale_(f32[2] = 0..)", "expected a number", DV_ESYNTAX },
        { "tc::scale_(f32[], 1e400)", "column 19: expected a number that fits a double", DV_ESYNTAX },
        { "tc::scale_(f32[], -1e400)", "expected a number that fits a double", DV_ESYNTAX },
        { "tc::fill_all([f32[1], f32[2]], value=1e20)", "tc::fill_all(xs=[f32[1], f32[2]], value=1e+20)", 0 },
        { "tc::swiglu(f32[4], up=f32[4]", "column 29: expected ',' or ')', found the end", DV_ESYNTAX },
        { "tc::swiglu(f32[4], uq=f32[4])", "column 20: expected an argument's name, found 'uq=f32[4])'", DV_ESYNTAX },
        { "tc::swiglu(f32[4], gate=f32[4])", "given twice", DV_ESYNTAX },
        { "tc::swiglu(f32[4], f32[4], f32[4])", "there are no more arguments", DV_ESYNTAX },
        { "tc::swiglu(f32[4])", "argument 'up': missing", DV_EINVAL },
        { "tc::swiglu(f32[4], 3)", "argument 'up': column 20: expected an element type such as f32", DV_ESYNTAX },
        { "tc::swiglu(f32[4], f32[-4])", "negative size -4", DV_ESHAPE },
        { "tc::swiglu(f32[4], f32[4] @ [1, 1])", "as many strides as sizes", DV_ESYNTAX },
        { "tc::scale_(f32[], \"x\")", "argument 'by': column 19: expected a number", DV_ESYNTAX },
        { "tc::scale_(f32[], true)) x", "the end, found ') x'", DV_ESYNTAX },
        /* lists as Python writes tuples */
        { "tc::every(f32[2], (f32[1], none,), (1, 2.5), (), sizes=(1, 2, 3), mask=(true, false))",
            "list=[f32[1], none], scalars=[1, 2.5], strings=[]", 0 },
        { "tc::every(f32[2] @ (3), [], (1,), (a, \"(\"), sizes=(1,2,3))",
            "x=f32[2] @ [3], list=[], scalars=[1], strings=[\"a\", \"(\"]", 0 },
        { "tc::scale_(f32[2] = (1, 2))", "x=f32[2] = [1, 2]", 0 },
        { "tc::every(f32[2], [], (1], [], sizes=[1, 2, 3])", "column 25: expected ',' or ')', found '], [], sizes=[1, 2, '",
            DV_ESYNTAX },
        { "tc::every(f32[2], [], [1), [], sizes=[1, 2, 3])", "expected ',' or ']', found '), [], sizes=[1, 2, '", DV_ESYNTAX },
        { "tc::every(f32[2], [], [1,,2], [], sizes=[1, 2, 3])", "expected a number", DV_ESYNTAX },
        { "tc::every(f32[2], [,], [], [], sizes=[1, 2, 3])", "expected an element type", DV_ESYNTAX },
        { "tc::every(f32[2], [], [], [], sizes=1, 2, 3)", "expected", DV_ESYNTAX },
        /* words that mean a value, for a str */
        { "tc::every(f32[2], [], [], [], s=none)",
            "argument 's': expected str, found None; the text is written \"none\", with its quotes", DV_ETYPE },
        { "tc::every(f32[2], [], [], [], s=None)", "written \"None\", with its quotes", DV_ETYPE },
        { "tc::every(f32[2], [], [], [], s=\"none\", opt_string=\"None\")", "s=\"none\"", 0 },
        { "tc::every(f32[2], [], [], [], s=none_of_these)", "s=\"none_of_these\"", 0 },
        { "tc::every(f32[2], [], [], [], opt_string=none)", "opt_string=none", 0 },
        { "tc::every(f32[2], [], [], [], s=default)", "s=\"mode\"", 0 },
        { "tc::every(f32[2], [], [], [], s=true)", "s=\"true\"", 0 },
        { "tc::every(f32[2], [], [], [], s=3)", "argument 's': column 33: expected a word, or a string in quotes, found '3)'",
            DV_ESYNTAX },
        { "tc::every(f32[2], [], [], [none, None, true])", "strings=[\"none\", \"None\", \"true\"]", 0 },
        { "tc::every(f32[2], [], [], [1])", "expected a word, or a string in quotes", DV_ESYNTAX },
        { "tc::no_such(f32[])", "tc::no_such", DV_ENOENT },
        { "tc::swiglu", "expected '('", DV_ESYNTAX },
        { "", "expected '('", DV_ESYNTAX },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        dv_site *site;
        char *text = NULL;
        int status = dv_site_parse(rows[i].text, &site);
        if (!status)
            status = dv_site_print(site, &text);
        if (status != rows[i].status || !strstr(status ? dv_last_error() : text, rows[i].expected))
            fail_msg("%s: %s: %s", rows[i].text, dv_status_name(status), status ? dv_last_error() : text);
        dv_free(text);
        dv_site_free(site);
    }
    dv_site *site;
    CALL_FAILS(DV_EINVAL, "NULL", dv_site_parse(NULL, &site));
    CALL_FAILS(DV_EINVAL, "NULL", dv_site_new(NULL, NULL, 0, &site));
    CALL_FAILS(DV_EINVAL, "no operator given", dv_site_parse_for(NULL, "tc::repeat(f32[2], 4)", &site));
    dv_operator *op;
    CALL_OK(dv_find("tc::repeat", &op));
    CALL_FAILS(DV_EINVAL, "no text given", dv_site_parse_for(op, NULL, &site));
    CALL_FAILS(DV_ESYNTAX, "expected '('", dv_site_parse_for(op, "tc::repeat", &site));
    CALL_OK(dv_site_parse_for(op, "of::another(f32[2], 4)", &site));
    assert_ptr_equal(dv_site_operator(site), op);
    dv_site_free(site);
    dv_operator_unref(op);
}

static const int64_t n4[] = { 4 };

static void used(void **state)
{
    (void)state;
    dv_site *site;
    dv_result_spec spec;
    CALL_OK(dv_site_parse("tc::cat(xs=[f32[2, 3], f32[4, 3]])", &site));
    assert_int_equal(dv_site_ntensors(site), 2);
    CALL_OK(dv_site_infer(site, &spec, 1));
    assert_true(spec.ndim == 2 && spec.shape[0] == 6 && spec.shape[1] == 3);
    dv_tensor *a = floats(1, n4, 1, 1), *b = floats(1, n4, 5, 1);
    const dv_tensor *both[2] = { a, b };
    dv_value result = dv_default();
    CALL_OK(dv_site_call(site, both, 2, &result, 1, NULL)); /* other sizes than the site's: the contract checks them */
    assert_true(at(result.as.tensor, 7) == 8);
    dv_tensor_unref(tensor_of(&result));
    result = dv_default();
    CALL_FAILS(DV_EINVAL, "takes 2 tensors, found 1", dv_site_call(site, both, 1, &result, 1, NULL));
    dv_site_free(site);
    CALL_OK(dv_site_parse("tc::repeat(f32[2, 3], 4)", &site)); /* a shape function, without memory */
    CALL_OK(dv_site_infer(site, &spec, 1));
    assert_true(spec.ndim == 1 && spec.shape[0] == 24);
    dv_site_free(site);
    CALL_OK(dv_site_parse("tc::scale_(f32[4], by=-1)", &site));
    CALL_OK(dv_site_call(site, both, 1, &result, 1, NULL));
    assert_true(at(a, 0) == -1 && result.as.tensor == a);
    dv_site_free(site);
    dv_tensor_unref(a);
    dv_tensor_unref(b);
}

/* The elements that the text says, at their places, also in lists and with strides of any sign. */
static void with_memory(void **state)
{
    (void)state;
    dv_site *site;
    char *text, *again;
    CALL_OK(dv_site_parse("tc::cat([f32[2, 2] @ [-1, 2] = [1, 2, 3, 4], f32[1, 2] = 7, f32[0, 2], f32[9, 2] = -3..-2])", &site));
    CALL_OK(dv_site_print(site, &text));
    CALL_OK(dv_site_alloc(site));
    CALL_OK(dv_site_alloc(site)); /* nothing more */
    CALL_OK(dv_site_print(site, &again));
    assert_string_equal(text, again);
    const dv_tensors xs = dv_site_args(site)[0].as.tensors;
    const float *const x = xs.data[0]->data;
    assert_true(x[0] == 1 && x[2] == 2 && x[-1] == 3 && x[1] == 4);
    assert_true(at(xs.data[1], 0) == 7 && at(xs.data[1], 1) == 7);
    for (int i = 0; i < 18; i++)
        assert_true(at(xs.data[3], i) >= -3 && at(xs.data[3], i) < -2);
    dv_value result = dv_default();
    CALL_OK(dv_call(dv_site_operator(site), dv_site_args(site), 1, &result, 1, NULL));
    assert_true(at(result.as.tensor, 1) == 2 && at(result.as.tensor, 2) == 3 && at(result.as.tensor, 4) == 7);
    dv_tensor_unref(tensor_of(&result));
    dv_free(text);
    dv_free(again);
    dv_site_free(site);
    CALL_OK(dv_site_parse("tc::every(i64[2] = [9007199254740993, -1], [c64[2] = [1, 2.5-3.0j], f32[2] = inf, u8[99] = 250..256], "
                          "[1], [], sizes=[1, 2, 3])",
        &site));
    CALL_OK(dv_site_alloc(site));
    const int64_t *const i = dv_site_args(site)[0].as.tensor->data;
    const dv_tensors list = dv_site_args(site)[1].as.tensors;
    const float *const c = list.data[0]->data, *const inf = list.data[1]->data;
    assert_true(i[0] == INT64_C(9007199254740993) && i[1] == -1);
    assert_true(c[0] == 1 && c[1] == 0 && c[2] == 2.5F && c[3] == -3);
    assert_true(inf[0] > 1e38F && inf[1] > 1e38F);
    for (int k = 0; k < 99; k++)
        assert_true(((const uint8_t *)list.data[2]->data)[k] >= 250);
    dv_site_free(site);
    CALL_OK(dv_site_parse("tc::scale_(f32[2] : cuda)", &site));
    CALL_FAILS(DV_EDEVICE, "tc::scale_: a call site allocates tensors on the CPU, this one is on cuda", dv_site_alloc(site));
    dv_site_free(site);
}

static int parse_and_print(void *text)
{
    dv_site *site;
    char *out = NULL;
    int status = dv_site_parse(text, &site);
    if (!status)
        status = dv_site_print(site, &out);
    if (!status)
        status = dv_site_alloc(site);
    dv_free(out);
    dv_site_free(site);
    return status;
}
static void memory_runs_out(void **state)
{
    (void)state;
    failing_each(parse_and_print,
        "tc::every(f32[2] = [1, 2], [f32[1] = 0..3, none], [1, 2.5], [\"a\", \"b\"], sizes=[1, 2, 3], s=\"text\")");
}

static dv_library *more;
static int setup(void **state) { return load_tc(state) || dv_load_static(&dv_library_tc_site, &more); }
static int teardown(void **state)
{
    dv_library_free(more);
    return unload_tc(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(round_trip),
        cmocka_unit_test(texts),
        cmocka_unit_test(used),
        cmocka_unit_test(with_memory),
        cmocka_unit_test(memory_runs_out),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
