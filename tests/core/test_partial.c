/* Calls of which not everything is known: dv_infer_partial(), dv_partial_...(). tests/lang/test_partial.py has random ones. */
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

struct mixed {
    const dv_tensor *x, *w;
    dv_tensors xs;
    int64_t k;
    dv_string mode;
    dv_tensor *out;
};
DV_OPERATOR(mixed, struct mixed, (x, w, xs, k, mode, out),
    .schema = "mixed(Tensor x, Tensor? w, Tensor[] xs, int k, str mode) -> Tensor out",
    .contract = "x[*s n]:T, w[n m]:T, xs{i}[r{i} n]:U -> out[*s size(x, k) total(r)]:T; T in f32 f16; n % 8 == 0; k >= 0; mode "
                "in \"A\" \"B\"");
struct six {
    const dv_tensor *x, *y;
    dv_ints order;
    dv_tensor *a, *b, *c, *d;
};
DV_OPERATOR(six, struct six, (x, y, order, a, b, c, d),
    .schema = "six(Tensor x, Tensor y, int[] order) -> (Tensor a, Tensor b, Tensor c, Tensor d)",
    .contract = "x[*s]:T, y[*t]:U -> a[broadcast(*s, *t)]:promote(T, U), b[swap(*s, 0, -1)]:accumulate(T), "
                "c[permute(*s, order)]:T, d[reduced(*s, order, True)]:T");
struct split_copy {
    const dv_tensor *x;
    int64_t size;
    dv_mut_tensors parts;
};
DV_OPERATOR(split_copy, struct split_copy, (x, size, parts), .schema = "split_copy(Tensor x, int size) -> Tensor[] parts",
    .contract = "x[n *s]:T -> parts{i < ceildiv(n, size)}[min(size, n - i*size) *s]:T; size > 0");
struct joined {
    dv_tensors xs;
    const dv_tensor *y;
};
DV_OPERATOR(joined, struct joined, (xs, y), .schema = "joined(Tensor[] xs, Tensor y) -> ()",
    .contract = "xs{i}[n{i} m]:T, y[total(n) k]");
struct by_case {
    const dv_tensor *x;
    dv_string mode;
    dv_tensor *out;
};
DV_OPERATOR(by_case, struct by_case, (x, mode, out), .schema = "by_case(Tensor x, str mode) -> Tensor out",
    .contract = "when mode == \"A\": x[n]:f32, parallel(n) -> out[n]:f32 / \"B\": x[n]:f32, sum(n) -> out[]:f32");
struct around {
    const dv_tensor *x, *ids;
    int64_t dim;
    dv_tensor *out;
};
DV_OPERATOR(around, struct around, (x, ids, dim, out), .schema = "around(Tensor x, Tensor ids, int dim) -> Tensor out",
    .contract = "x[*a n *b]:f32, ids[k / 3]:i64 -> out[*a *b]:f32; rank(*a) == axis(dim, x); k % 2 == 0; 0 <= ids.values < 2*n; "
                "n > ids.values");
struct tiled {
    const dv_tensor *x;
    int64_t times;
    dv_tensor *out;
};
static int tiled_shape(dv_context *ctx, const struct tiled *a)
{
    const int64_t n = dv_numel(a->x) * a->times;
    return a->times < 0 ? dv_error(ctx, DV_EINVAL, "times is negative") : dv_set_output(ctx, a->out, a->x->dtype, 1, &n);
}
DV_OPERATOR(tiled, struct tiled, (x, times, out), .schema = "tiled(Tensor x, int times) -> Tensor out",
    .contract = "x[*s]:T -> out[...]", .shape = (dv_shape_fn)(void (*)(void))tiled_shape);
struct picked {
    const dv_tensor *x, *ids;
    int64_t n;
};
#define PICKED(name, fact)                                                                               \
    DV_OPERATOR(name, struct picked, (x, ids, n), .schema = #name "(Tensor x, Tensor ids, int n) -> ()", \
        .contract = "x[e]:f32, ids[m]:i64; " fact)
PICKED(below, "0 <= ids.values < n");
PICKED(equal, "ids.values == n");
PICKED(twice_below, "2*ids.values + 1 < n; ids.values >= n - e");
PICKED(either, "ids.values in 3 7 or ids.values == n");
PICKED(neither, "not (ids.values < n)");
PICKED(inside, "n <= ids.values < e");
PICKED(close_to, "abs(e - n) <= 10; n*e < 1000");
DV_LIBRARY_FRAGMENT(tc, tc_partial, &dv_op_below, &dv_op_equal, &dv_op_twice_below, &dv_op_either, &dv_op_neither, &dv_op_inside,
    &dv_op_close_to, &dv_op_tiled, &dv_op_mixed, &dv_op_six, &dv_op_split_copy, &dv_op_joined, &dv_op_around, &dv_op_by_case);

static bool is(dv_range r, int64_t least, int64_t most) { return r.least == least && r.most == most; }

static const dv_value unknown = { .type = DV_VALUE_UNKNOWN };

/* ndim -1: not known. A dtype of 0 bits too. */
static dv_tensor *part_of(dv_tensor *t, uint32_t dtype, int32_t ndim, const int64_t *shape)
{
    *t = (dv_tensor){ .ndim = ndim, .shape = shape, .dtype = dv_dtype_from_key(dtype) };
    return t;
}

static void results(void **state)
{
    (void)state;
    dv_tensor x, y;
    dv_partial_spec out, four[4];
    const int64_t open[] = { -1, 4 }, five[] = { 1, 5 };
    dv_value args[3] = { dv_from_tensor(part_of(&x, DV_DTYPE_f32, 2, open)), unknown };
    CALL_OK(dv_infer_partial(find("swiglu"), args, 2, &out, 1));
    assert_true(is(out.present, 1, 1) && is(out.value, 2, 2) && is(out.sizes[0], 0, INT64_MAX) && is(out.sizes[1], 4, 4));
    assert_true(out.dtype.bits == 32 && !out.device.type);
    args[1] = dv_from_tensor(part_of(&y, DV_DTYPE_f32, 2, five));
    CALL_FAILS(DV_ESHAPE, "expected shape [?, 4] ('*s' is bound by 'gate'), found [1, 5]",
        dv_infer_partial(find("swiglu"), args, 2, &out, 1));
    const int64_t three[] = { 3, 1 };
    args[1] = dv_from_tensor(part_of(&y, DV_DTYPE_f16, 2, three));
    args[2] = dv_from_ints((const int64_t[]){ 1, 0 }, 2);
    CALL_OK(dv_infer_partial(find("six"), args, 3, four, 4));
    assert_true(is(four[0].sizes[0], 3, 3) && is(four[0].sizes[1], 4, 4) && four[0].dtype.bits == 32);
    assert_true(is(four[1].sizes[0], 4, 4) && is(four[1].sizes[1], 1, 3) && is(four[2].sizes[0], 4, 4));
    assert_true(is(four[3].value, 2, 2) && is(four[3].sizes[0], 1, 1) && is(four[3].sizes[1], 1, 1));
    args[1] = dv_from_tensor(part_of(&y, DV_DTYPE_f16, 2, five));
    CALL_FAILS(DV_ESHAPE, "do not broadcast", dv_infer_partial(find("six"), args, 3, four, 4));
}

static void nothing_is_refused_that_can_be(void **state)
{
    (void)state;
    dv_partial_spec out;
    const dv_value args[5] = { unknown, unknown, unknown, unknown, unknown };
    CALL_OK(dv_infer_partial(find("mixed"), args, 5, &out, 1));
    assert_true(is(out.present, 1, 1) && is(out.value, 2, DV_MAX_NDIM) && !out.dtype.bits);
    const dv_value none[5] = { unknown, dv_none(), unknown, dv_from_int(-1), unknown };
    CALL_FAILS(DV_EINVAL, "k >= 0", dv_infer_partial(find("mixed"), none, 5, &out, 1));
}

static dv_partial_spec exactly(int64_t i)
{
    dv_partial_spec k = dv_partial_spec_unknown();
    k.value.least = k.value.most = i;
    return k;
}

static dv_partial *mixed_of_two(dv_tensor *tensors, const dv_tensor **list)
{
    dv_partial *p;
    const dv_value args[5] = { unknown, dv_from_tensor(part_of(&tensors[0], 0, -1, NULL)), dv_from_tensors(list, 2), unknown,
        unknown };
    list[0] = part_of(&tensors[1], 0, -1, NULL);
    list[1] = part_of(&tensors[2], 0, -1, NULL);
    CALL_OK(dv_partial_new(find("mixed"), args, 5, &p));
    return p;
}

/* One name after the other. */
static void names(void **state)
{
    (void)state;
    dv_tensor tensors[3];
    const dv_tensor *list[2];
    dv_partial_spec k;
    dv_partial *p = mixed_of_two(tensors, list);
    CALL_OK(dv_partial_get(p, DV_PARTIAL_NAME, 0, 0, &k)); /* n */
    assert_true(k.value.least == 0 && k.value.step == 8 && !k.value.rest);
    k = exactly(12);
    CALL_FAILS(DV_EINVAL, "", dv_partial_set(p, DV_PARTIAL_NAME, 0, 0, &k));
    const dv_range no_ranges[] = { { 0, 99, -3, 0 }, { 0, 99, 8, -3 }, { 0, 99, 8, 19 }, { 0, 99, INT64_MIN, INT64_MIN } };
    for (size_t i = 0; i < 4; i++) {
        k = dv_partial_spec_unknown();
        k.value = no_ranges[i];
        CALL_FAILS(DV_EINVAL, "expected a step of at least 0", dv_partial_set(p, DV_PARTIAL_NAME, 0, 0, &k));
    }
    for (int64_t huge = INT64_MAX; huge > INT64_MAX - 3; huge--) { /* steps that large may be forgotten */
        k = dv_partial_spec_unknown();
        k.value = (dv_range){ 0, INT64_MAX, huge, 8 };
        CALL_OK(dv_partial_set(p, DV_PARTIAL_NAME, 0, 0, &k));
        CALL_OK(dv_partial_get(p, DV_PARTIAL_NAME, 0, 0, &k));
        assert_true(k.value.least <= 8 && k.value.most >= 8 && 8 % k.value.step == k.value.rest);
    }
    dv_partial_free(p);
    p = mixed_of_two(tensors, list);
    k = dv_partial_spec_unknown();
    k.value = (dv_range){ 16, 16, 0, 0 }; /* without a step */
    CALL_OK(dv_partial_set(p, DV_PARTIAL_NAME, 0, 0, &k));
    k = exactly(16);
    CALL_OK(dv_partial_set(p, DV_PARTIAL_NAME, 0, 0, &k));
    CALL_OK(dv_partial_get(p, DV_PARTIAL_ARGUMENT, 1, 0, &k)); /* w[n m] */
    assert_true(is(k.value, 2, 2) && is(k.sizes[0], 16, 16) && is(k.sizes[1], 0, INT64_MAX));
    CALL_OK(dv_partial_get(p, DV_PARTIAL_ARGUMENT, 2, 1, &k)); /* xs[1] */
    assert_true(is(k.value, 2, 2) && is(k.sizes[1], 16, 16));
    for (int64_t i = 0; i < 2; i++) {
        k.sizes[0].least = k.sizes[0].most = 3 + i;
        CALL_OK(dv_partial_set(p, DV_PARTIAL_ARGUMENT, 2, (size_t)i, &k));
    }
    k = exactly(1);
    CALL_OK(dv_partial_set(p, DV_PARTIAL_NAME, 3, 0, &k)); /* s: its number of dims */
    CALL_OK(dv_partial_get(p, DV_PARTIAL_RESULT, 0, 0, &k));
    assert_true(is(k.value, 3, 3) && is(k.sizes[2], 7, 7));
    CALL_OK(dv_partial_get(p, DV_PARTIAL_ARGUMENT, 3, 0, &k)); /* k */
    assert_true(is(k.value, 0, 1));
    CALL_OK(dv_partial_get(p, DV_PARTIAL_ARGUMENT, 0, 0, &k));
    assert_true(is(k.value, 2, 2) && is(k.sizes[1], 16, 16));
    k = dv_partial_spec_unknown();
    k.string = (dv_string){ "C", 1 };
    CALL_FAILS(DV_EINVAL, "mode in", dv_partial_set(p, DV_PARTIAL_ARGUMENT, 4, 0, &k));
    char mode[] = "A"; /* it is copied */
    k.string = (dv_string){ mode, 1 };
    CALL_OK(dv_partial_set(p, DV_PARTIAL_ARGUMENT, 4, 0, &k));
    *mode = 'Z';
    CALL_OK(dv_partial_get(p, DV_PARTIAL_ARGUMENT, 4, 0, &k));
    assert_string_equal(k.string.data, "A");
    CALL_FAILS(DV_EINVAL, "expected name from 0 to 5, found 99", dv_partial_get(p, DV_PARTIAL_NAME, 99, 0, &k));
    CALL_FAILS(
        DV_EINVAL, "argument 'xs': expected an element below 2, found 2", dv_partial_get(p, DV_PARTIAL_ARGUMENT, 2, 2, &k));
    dv_partial_free(p);
}

static void cases(void **state)
{
    (void)state;
    dv_partial_spec k;
    dv_partial *p;
    const dv_value args[2] = { unknown, unknown };
    CALL_OK(dv_partial_new(find("by_case"), args, 2, &p));
    CALL_OK(dv_partial_get(p, DV_PARTIAL_CASE, 0, 0, &k));
    assert_true(k.value.least == 0 && k.value.most == 1);
    k = dv_partial_spec_unknown();
    k.string = (dv_string){ "A", 1 };
    CALL_OK(dv_partial_set(p, DV_PARTIAL_ARGUMENT, 1, 0, &k));
    CALL_OK(dv_partial_get(p, DV_PARTIAL_CASE, 0, 0, &k));
    assert_true(k.value.least == 1 && k.value.most == 1);
    CALL_OK(dv_partial_get(p, DV_PARTIAL_CASE, 0, 1, &k));
    assert_true(k.value.least == 0 && k.value.most == 0);
    CALL_FAILS(DV_EINVAL, "there is no case 9 of group 0", dv_partial_get(p, DV_PARTIAL_CASE, 0, 9, &k));
    CALL_FAILS(DV_EINVAL, "there is no case 0 of group 1", dv_partial_get(p, DV_PARTIAL_CASE, 1, 0, &k));
    CALL_FAILS(DV_EINVAL, "only arguments and names can be set", dv_partial_set(p, DV_PARTIAL_CASE, 0, 0, &k));
    dv_partial_free(p);
}

/* What is known of a list that is returned, and sums over a list both ways. */
static void lists(void **state)
{
    (void)state;
    const int64_t shape[] = { -1, 2 };
    dv_tensor x;
    dv_partial *p;
    dv_partial_spec k;
    const dv_value args[2] = { dv_from_tensor(part_of(&x, DV_DTYPE_f32, 2, shape)), dv_from_int(3) };
    CALL_OK(dv_partial_new(find("split_copy"), args, 2, &p));
    CALL_OK(dv_partial_get(p, DV_PARTIAL_RESULT, 0, 0, &k));
    assert_true(k.flags == DV_SPEC_LIST && k.value.least == 0);
    CALL_OK(dv_partial_get(p, DV_PARTIAL_ELEMENT, 0, 1, &k));
    assert_true(is(k.present, 0, 1) && is(k.value, 2, 2) && k.sizes[0].most == 3 && is(k.sizes[1], 2, 2) && k.dtype.bits == 32);
    k = exactly(7);
    CALL_OK(dv_partial_set(p, DV_PARTIAL_NAME, 0, 0, &k));
    CALL_OK(dv_partial_get(p, DV_PARTIAL_RESULT, 0, 0, &k));
    assert_true(is(k.value, 3, 3));
    CALL_OK(dv_partial_get(p, DV_PARTIAL_ELEMENT, 0, 2, &k));
    assert_true(is(k.present, 1, 1) && is(k.sizes[0], 1, 1));
    CALL_OK(dv_partial_get(p, DV_PARTIAL_ELEMENT, 0, 3, &k));
    assert_true(is(k.present, 0, 0));
    CALL_FAILS(DV_EINVAL, "expected result from 0 to 0, found 1", dv_partial_get(p, DV_PARTIAL_ELEMENT, 1, 0, &k));
    dv_partial_free(p);
}

static void sums(void **state)
{
    (void)state;
    const int64_t any[] = { -1, -1 }, three[] = { 3, 4 }, wrong[] = { 3, 5 };
    dv_tensor tensors[2], last;
    const dv_tensor *list[] = { part_of(&tensors[0], DV_DTYPE_f32, 2, any), part_of(&tensors[1], DV_DTYPE_f32, 2, three) };
    const dv_value args[2] = { dv_from_tensors(list, 2), dv_from_tensor(part_of(&last, DV_DTYPE_f32, 2, any)) };
    dv_partial *p;
    dv_partial_spec k = exactly(10);
    CALL_OK(dv_partial_new(find("joined"), args, 2, &p));
    CALL_OK(dv_partial_set(p, DV_PARTIAL_NAME, 0, 0, &k)); /* total(n), of xs{i}[n{i} m] */
    CALL_OK(dv_partial_get(p, DV_PARTIAL_ARGUMENT, 0, 0, &k));
    assert_true(is(k.sizes[0], 7, 7) && is(k.sizes[1], 4, 4));
    k = exactly(2);
    CALL_FAILS(DV_EINVAL, "name 'n': expected a value of 10, found 2", dv_partial_set(p, DV_PARTIAL_NAME, 0, 0, &k));
    dv_partial_free(p);
    tensors[0].shape = wrong; /* the message names the tensor */
    CALL_FAILS(DV_ESHAPE, "argument 'xs[1]': expected shape [n{i}, 5] ('m' is bound by 'xs'), found [3, 4]",
        dv_partial_new(find("joined"), args, 2, &p));
}

/* A dim that is counted from the end, a size by division, and the range of elements. */
static void axes_and_elements(void **state)
{
    (void)state;
    enum { X, IDS, DIM, N = 0, K, A, B };
    dv_partial_spec k;
    dv_partial *p;
    const dv_value args[3] = { unknown, unknown, unknown };
    CALL_OK(dv_partial_new(find("around"), args, 3, &p));
    k = exactly(-2);
    CALL_OK(dv_partial_set(p, DV_PARTIAL_ARGUMENT, DIM, 0, &k));
    CALL_OK(dv_partial_get(p, DV_PARTIAL_ARGUMENT, X, 0, &k));
    assert_int_equal(k.value.least, 2);
    k = exactly(3);
    CALL_OK(dv_partial_set(p, DV_PARTIAL_NAME, A, 0, &k));
    CALL_OK(dv_partial_get(p, DV_PARTIAL_NAME, B, 0, &k));
    assert_true(is(k.value, 1, 1));
    k = exactly(12);
    CALL_OK(dv_partial_set(p, DV_PARTIAL_NAME, K, 0, &k));
    CALL_OK(dv_partial_get(p, DV_PARTIAL_ARGUMENT, IDS, 0, &k));
    assert_true(is(k.sizes[0], 4, 4));
    CALL_OK(dv_partial_get(p, DV_PARTIAL_VALUES, IDS, 0, &k));
    assert_int_equal(k.value.least, 0);
    k = exactly(5);
    CALL_OK(dv_partial_set(p, DV_PARTIAL_NAME, N, 0, &k));
    CALL_OK(dv_partial_get(p, DV_PARTIAL_VALUES, IDS, 0, &k));
    assert_true(is(k.value, 0, 4));
    CALL_OK(dv_partial_get(p, DV_PARTIAL_VALUES, X, 0, &k));
    assert_true(is(k.value, INT64_MIN, INT64_MAX));
    CALL_FAILS(DV_EINVAL, "argument 'dim': expected a tensor", dv_partial_get(p, DV_PARTIAL_VALUES, DIM, 0, &k));
    CALL_FAILS(DV_EINVAL, "the values of argument 1", dv_partial_set(p, DV_PARTIAL_VALUES, IDS, 0, &k));
    dv_partial_free(p);
    const dv_value four[3] = { unknown, unknown, dv_from_int(4) };
    CALL_OK(dv_partial_new(find("around"), four, 3, &p));
    CALL_OK(dv_partial_get(p, DV_PARTIAL_ARGUMENT, X, 0, &k));
    assert_int_equal(k.value.least, 5);
    dv_partial_free(p);
}

/* Facts on elements, with an integer argument that is given or set. */
static void elements(void **state)
{
    (void)state;
    static const struct {
        const char *op;
        int64_t n, least, most;
    } rows[] = {
        { "below", 4, 0, 3 },
        { "below", 0, 1, 0 }, /* none */
        { "equal", -3, -3, -3 },
        { "twice_below", 10, 4, 4 },
        { "twice_below", 100, 94, 49 },
        { "either", 5, 3, 7 },
        { "either", 9, 3, 9 },
        { "neither", 2, 2, INT64_MAX },
        { "inside", 2, 2, 5 },
        { "inside", 6, 1, 0 },
    };
    const int64_t six[] = { 6 };
    dv_tensor x;
    part_of(&x, DV_DTYPE_f32, 1, six);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int given = 0; given < 2; given++) {
            const dv_value args[3] = { dv_from_tensor(&x), unknown, given ? dv_from_int(rows[i].n) : unknown };
            dv_partial *p;
            dv_partial_spec k = exactly(rows[i].n);
            CALL_OK(dv_partial_new(find(rows[i].op), args, 3, &p));
            if (!given)
                CALL_OK(dv_partial_set(p, DV_PARTIAL_ARGUMENT, 2, 0, &k));
            CALL_OK(dv_partial_get(p, DV_PARTIAL_VALUES, 1, 0, &k));
            if (rows[i].least > rows[i].most)
                assert_true(k.value.least > k.value.most);
            else
                assert_true(is(k.value, rows[i].least, rows[i].most));
            dv_partial_free(p);
        }
}

/* What cannot be set, and what the message shows as not known. */
static void contradictions(void **state)
{
    (void)state;
    const int64_t many[] = { 300000 }, six[] = { 6 };
    dv_tensor x;
    dv_partial *p;
    dv_partial_spec k = exactly(3);
    const dv_value args[3] = { dv_from_tensor(part_of(&x, DV_DTYPE_f32, 1, many)), unknown, unknown };
    CALL_FAILS(DV_EINVAL, "found n = ?, e = 300000", dv_partial_new(find("close_to"), args, 3, &p));
    part_of(&x, DV_DTYPE_f32, 1, six);
    CALL_OK(dv_partial_new(find("below"), args, 3, &p));
    CALL_FAILS(
        DV_EINVAL, "argument 'x': expected a number of dims of 1, found 3", dv_partial_set(p, DV_PARTIAL_ARGUMENT, 0, 0, &k));
    CALL_FAILS(DV_EINVAL, "name 'e': expected a value of 6, found 3", dv_partial_set(p, DV_PARTIAL_NAME, 0, 0, &k));
    k = dv_partial_spec_unknown();
    k.sizes[0] = (dv_range){ 7, 9, 1, 0 };
    CALL_FAILS(DV_EINVAL, "expected size 0 to be 6, found 7 to 9", dv_partial_set(p, DV_PARTIAL_ARGUMENT, 0, 0, &k));
    k = dv_partial_spec_unknown();
    k.dtype = dv_dtype_from_key(DV_DTYPE_i8);
    CALL_FAILS(DV_EINVAL, "argument 'ids': its dtype does not fit", dv_partial_set(p, DV_PARTIAL_ARGUMENT, 1, 0, &k));
    CALL_FAILS(DV_EINVAL, "argument 'n': expected an element below 1, found 2", dv_partial_get(p, DV_PARTIAL_ARGUMENT, 2, 2, &k));
    CALL_FAILS(DV_EINVAL, "expected argument from 0 to 2, found 3", dv_partial_get(p, DV_PARTIAL_ARGUMENT, 3, 0, &k));
    CALL_FAILS(DV_EINVAL, "enum dv_partial_of, found 77", dv_partial_get(p, (enum dv_partial_of)77, 0, 0, &k));
    dv_partial_free(p);
}

static void strides(void **state)
{
    (void)state;
    const int64_t open[] = { -1, 0, 4 }, given[] = { 1, 9, 100 }, five[] = { 5, 1, 4 };
    dv_tensor x;
    dv_partial *p;
    dv_partial_spec k;
    dv_value args[3] = { dv_from_tensor(part_of(&x, DV_DTYPE_f32, 3, open)), unknown };
    CALL_OK(dv_partial_new(find("swiglu"), args, 2, &p));
    CALL_OK(dv_partial_get(p, DV_PARTIAL_STRIDES, 0, 0, &k));
    assert_true(is(k.value, 3, 3) && is(k.sizes[0], 4, 4) && is(k.sizes[1], 4, 4) && is(k.sizes[2], 1, 1));
    CALL_FAILS(DV_EINVAL, "expected result from 0 to 0, found 1", dv_partial_get(p, DV_PARTIAL_STRIDES, 1, 0, &k));
    dv_partial_free(p);
    part_of(&x, DV_DTYPE_f32, 3, five)->strides = given;
    args[1] = dv_from_int(0);
    args[2] = dv_from_int(2);
    CALL_OK(dv_partial_new(find("transposed"), args, 3, &p));
    CALL_OK(dv_partial_get(p, DV_PARTIAL_STRIDES, 0, 0, &k));
    assert_true(is(k.sizes[0], 100, 100) && is(k.sizes[1], 9, 9) && is(k.sizes[2], 1, 1));
    dv_partial_free(p);
    const int64_t rows[] = { -1, 6 };
    args[0] = dv_from_tensor(part_of(&x, DV_DTYPE_f32, 2, rows));
    args[1] = dv_from_int(2);
    CALL_OK(dv_partial_new(find("split_copy"), args, 2, &p));
    CALL_OK(dv_partial_get(p, DV_PARTIAL_STRIDES, 0, 1, &k));
    assert_true(is(k.sizes[0], 6, 6) && is(k.sizes[1], 1, 1));
    dv_partial_free(p);
}

static void shape_functions(void **state)
{
    (void)state;
    const int64_t shape[] = { 2, 3 }, given[] = { 3, 1 };
    dv_tensor x;
    dv_partial *p;
    dv_partial_spec k = exactly(4);
    part_of(&x, DV_DTYPE_f32, 2, shape);
    x.strides = given;
    const dv_value args[2] = { dv_from_tensor(&x), unknown };
    CALL_OK(dv_partial_new(find("tiled"), args, 2, &p));
    CALL_OK(dv_partial_get(p, DV_PARTIAL_RESULT, 0, 0, &k));
    assert_true(is(k.present, 1, 1) && k.value.most > 1); /* its device and its other argument are unknown */
    dv_partial_free(p);
    x.device.type = DV_CPU;
    CALL_OK(dv_partial_new(find("tiled"), args, 2, &p));
    k = exactly(4);
    CALL_OK(dv_partial_set(p, DV_PARTIAL_ARGUMENT, 1, 0, &k));
    CALL_OK(dv_partial_get(p, DV_PARTIAL_RESULT, 0, 0, &k));
    assert_true(is(k.value, 1, 1) && is(k.sizes[0], 24, 24) && k.dtype.bits == 32 && k.device.type == DV_CPU);
    dv_partial_free(p);
    const dv_value wrong[2] = { dv_from_tensor(&x), dv_from_int(-1) };
    CALL_OK(dv_partial_new(find("tiled"), wrong, 2, &p));
    CALL_FAILS(DV_EINVAL, "times is negative", dv_partial_get(p, DV_PARTIAL_RESULT, 0, 0, &k));
    dv_partial_free(p);
}

/* A size that is set before the number of dims is known; bytes beyond 64 bits. */
static void sizes(void **state)
{
    (void)state;
    dv_partial *p;
    dv_partial_spec k = dv_partial_spec_unknown();
    const dv_value args[3] = { unknown, unknown, unknown };
    CALL_OK(dv_partial_new(find("six"), args, 3, &p));
    k.sizes[0] = k.sizes[2] = (dv_range){ 5, 5, 1, 0 };
    CALL_OK(dv_partial_set(p, DV_PARTIAL_ARGUMENT, 0, 0, &k));
    k = dv_partial_spec_unknown();
    k.sizes[2] = (dv_range){ 6, 6, 1, 0 }; /* not 5: there is no such dim */
    CALL_OK(dv_partial_set(p, DV_PARTIAL_ARGUMENT, 0, 0, &k));
    CALL_OK(dv_partial_get(p, DV_PARTIAL_ARGUMENT, 0, 0, &k));
    assert_int_equal(k.value.most, 2);
    k = exactly(2);
    CALL_OK(dv_partial_set(p, DV_PARTIAL_ARGUMENT, 0, 0, &k));
    CALL_OK(dv_partial_get(p, DV_PARTIAL_ARGUMENT, 0, 0, &k));
    assert_true(is(k.sizes[0], 5, 5) && is(k.sizes[1], 0, INT64_MAX));
    CALL_OK(dv_partial_get(p, DV_PARTIAL_RESULT, 1, 0, &k)); /* swapped */
    assert_true(is(k.sizes[1], 5, 5));
    dv_partial_free(p);
    const int64_t large[] = { INT64_C(1) << 40, -1 };
    dv_tensor x;
    const dv_value two[2] = { dv_from_tensor(part_of(&x, DV_DTYPE_f64, 2, large)), unknown };
    CALL_OK(dv_partial_new(find("swiglu"), two, 2, &p));
    k = dv_partial_spec_unknown();
    k.sizes[1] = (dv_range){ INT64_C(1) << 20, INT64_MAX, 1, 0 };
    CALL_FAILS(DV_EINVAL, "no call fits", dv_partial_set(p, DV_PARTIAL_ARGUMENT, 0, 0, &k));
    k.sizes[1].least = INT64_C(1) << 19;
    CALL_OK(dv_partial_set(p, DV_PARTIAL_ARGUMENT, 0, 0, &k));
    dv_partial_free(p);
    const int64_t rows[] = { INT64_C(1) << 40, 1 }, columns[] = { 1, INT64_C(1) << 30 };
    dv_tensor y;
    dv_partial_spec four[4];
    const dv_value wide[3] = { dv_from_tensor(part_of(&x, DV_DTYPE_f32, 2, rows)),
        dv_from_tensor(part_of(&y, DV_DTYPE_f32, 2, columns)), dv_from_ints((const int64_t[]){ 1, 0 }, 2) };
    CALL_FAILS(
        DV_EINVAL, "no call fits", dv_infer_partial(find("six"), wide, 3, four, 4)); /* the result that they broadcast to */
}

static void misuse(void **state)
{
    (void)state;
    dv_partial_spec out;
    dv_partial *p;
    CALL_FAILS(DV_ENOTSUP, "no contract", dv_infer_partial(find("bare"), &unknown, 1, &out, 1));
    CALL_FAILS(DV_EINVAL, "NULL", dv_infer_partial(NULL, NULL, 0, &out, 1));
    CALL_FAILS(DV_EINVAL, "NULL", dv_infer_partial(find("swiglu"), NULL, 0, NULL, 1));
    CALL_FAILS(DV_EINVAL, "missing", dv_infer_partial(find("swiglu"), &unknown, 1, &out, 1));
    CALL_FAILS(DV_EINVAL, "expected 1 results", dv_infer_partial(find("swiglu"), &unknown, 1, &out, 2));
    CALL_FAILS(DV_EINVAL, "NULL", dv_partial_new(find("swiglu"), NULL, 0, NULL));
    CALL_FAILS(DV_EINVAL, "at most 2", dv_partial_new(find("swiglu"), &unknown, 3, &p));
    dv_tensor deep = { .ndim = DV_MAX_NDIM + 1 };
    const dv_value args[2] = { dv_from_tensor(&deep), unknown };
    CALL_FAILS(DV_EINVAL, "at most 64", dv_partial_new(find("swiglu"), args, 2, &p));
    dv_partial_free(NULL);
}

static int without_memory(void *nothing)
{
    (void)nothing;
    dv_tensor tensors[3];
    const dv_tensor *list[2] = { part_of(&tensors[1], 0, -1, NULL), part_of(&tensors[2], 0, -1, NULL) };
    const dv_value args[5] = { unknown, dv_from_tensor(part_of(&tensors[0], 0, -1, NULL)), dv_from_tensors(list, 2), unknown,
        unknown };
    dv_partial_spec k = exactly(16), out;
    dv_partial *p;
    int status = dv_partial_new(find("mixed"), args, 5, &p);
    if (!status)
        status = dv_partial_set(p, DV_PARTIAL_NAME, 0, 0, &k);
    if (!status)
        status = dv_partial_get(p, DV_PARTIAL_RESULT, 0, 0, &out);
    dv_partial_free(p);
    return status;
}

static void memory_runs_out(void **state)
{
    (void)state;
    assert_true(failing_each(without_memory, NULL) > 8);
}

static dv_library *more;
static int setup(void **state) { return load_tc(state) || dv_load_static(&dv_library_tc_partial, &more); }
static int teardown(void **state)
{
    dv_library_free(more);
    return unload_tc(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(results),
        cmocka_unit_test(nothing_is_refused_that_can_be),
        cmocka_unit_test(names),
        cmocka_unit_test(cases),
        cmocka_unit_test(lists),
        cmocka_unit_test(sums),
        cmocka_unit_test(axes_and_elements),
        cmocka_unit_test(elements),
        cmocka_unit_test(contradictions),
        cmocka_unit_test(strides),
        cmocka_unit_test(shape_functions),
        cmocka_unit_test(sizes),
        cmocka_unit_test(misuse),
        cmocka_unit_test(memory_runs_out),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
