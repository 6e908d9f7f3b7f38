/* Rows that call aclnn operators, on the stand-in. After each test the stand-in must have seen no fault, and nothing may be left.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <pthread.h>

#include "dovetail.h"
#include "dovetail_ascend.h"
#include "stand_in.h"

/* ---- operators, as an author writes them ---- */

struct binary {
    const dv_tensor *self, *other;
    dv_tensor *result;
};
DV_OPERATOR(add_custom, struct binary, (self, other, result), .schema = "add_custom(Tensor self, Tensor other) -> Tensor",
    .contract = "self[*s]:T, other[*s]:T -> [*s]:T",
    .kernels = DV_KERNELS(DV_ACLNN("f32 f16", "AddCustom", "self, other, result")));
/* a constant, and views */
struct add {
    const dv_tensor *self, *other;
    dv_tensor *z;
};
DV_OPERATOR(add, struct add, (self, other, z), .schema = "add(Tensor self, Tensor other) -> Tensor z",
    .contract = "self[*s]:T, other[*s]:T -> z[*s]:T; strided(self); strided(other); strided(z)",
    .kernels = DV_KERNELS(DV_ACLNN("f32", "Add", "self, other, scalar(2), z")));
DV_OPERATOR(nowhere, struct binary, (self, other, result), .schema = "nowhere(Tensor self, Tensor other) -> Tensor",
    .contract = "self[*s]:T, other[*s]:T -> [*s]:T", .kernels = DV_KERNELS(DV_ACLNN("f32", "Nowhere", "")));

struct scale_ {
    dv_tensor *x;
    double by;
};
DV_OPERATOR(scale_, struct scale_, (x, by), .schema = "scale_(Tensor(a!) x, float by) -> Tensor(a!)", .contract = "x[*s]:f32",
    .kernels = DV_KERNELS(DV_ACLNN("f32", "InplaceScale", "")));

struct mixed {
    const dv_tensor *x, *y;
    dv_tensors more;
    int64_t n;
    double eps, slope;
    bool flag;
    dv_string mode;
    dv_ints ints;
    dv_floats floats;
    dv_bools bools;
    dv_scalar scalar;
    dv_dtype dtype;
    dv_opt_int k;
    dv_tensor *out;
};
DV_OPERATOR(mixed, struct mixed, (x, y, more, n, eps, slope, flag, mode, ints, floats, bools, scalar, dtype, k, out),
    .schema = "mixed(Tensor x, Tensor? y, Tensor[] more, int n, float eps, float slope, bool flag, str mode, int[] ints, float[] "
              "floats, "
              "bool[] bools, Scalar scalar, ScalarType dtype, int? k) -> Tensor out",
    .contract = "x[*s]:T, y[*s]:T, more{i}[*s]:T -> out[*s]:T",
    .kernels = DV_KERNELS(DV_ACLNN("f32", "Mixed",
        "x, y, more, n, eps, float(slope), flag, mode, ints, floats, bools, scalar, dtype, 1.5, 2.5, double(n), float(4.5), eps, "
        "6.5, "
        "7.5, float(8.5), k or -9, -3, out")));

struct wrong {
    const dv_tensor *self, *other;
    dv_opt_int n;
    dv_opt_ints sizes;
    dv_opt_string mode;
    dv_opt_dtype to;
    dv_tensor *result;
};
#define WRONG_ROWS(X)                                                                                                            \
    X(misspelled, "self, othr, result", DV_ENOENT, "column 22: expected an argument or result of misspelled::misspelled(",       \
        "or a constant, found 'othr'")                                                                                           \
    X(wrong_commas, "self,, other", DV_ESYNTAX, "column 21: expected a value, found ','")                                        \
    X(wrong_separator, "self other", DV_ESYNTAX, "expected ',' or ')', found 'other'")                                           \
    X(wrong_end, "self, other, result) + (1", DV_ESYNTAX, "expected function(list)")                                             \
    X(wrong_size, "self, other, 9223372036854775808, result", DV_ESYNTAX, "an integer that fits 64 bits")                        \
    X(wrong_float_size, "self, other, 1e400, result", DV_ESYNTAX, "expected a number that fits a double, found 1e400")           \
    X(wrong_long, HUNDRED ", foo", DV_ENOENT, "kernel aclnnAddCustom(self, self", "...: column", "or a constant, found 'foo'")   \
    X(wrong_tensor, "self or 3, other, result", DV_ESYNTAX,                                                                      \
        "expected nothing (a tensor that is None is a null pointer) after 'self or', found an integer")                          \
    X(wrong_result, "self, other, result or none", DV_ESYNTAX, "expected nothing (a tensor")                                     \
    X(wrong_int, "self, other, n or \"abc\", result", DV_ESYNTAX, "expected an integer after 'n or', found a text")              \
    X(wrong_float, "self, other, n or 1.5, result", DV_ESYNTAX, "expected an integer after 'n or', found a float")               \
    X(wrong_none, "self, other, n or none, result", DV_ESYNTAX, "expected an integer after 'n or', found none")                  \
    X(wrong_list, "self, other, sizes or 3, result", DV_ESYNTAX, "expected none after 'sizes or', found an integer")             \
    X(wrong_text, "self, other, mode or 3, result", DV_ESYNTAX, "expected a text or none after 'mode or', found an integer")     \
    X(wrong_dtype, "self, other, to or 0, result", DV_ESYNTAX, "expected a dtype, such as f32, after 'to or', found an integer") \
    X(wrong_dtype_name, "self, other, to or f31, result", DV_ESYNTAX, "after 'to or', found no constant")                        \
    X(wrong_chain, "self, other, n or 1 or 2, result", DV_ESYNTAX, "expected")                                                   \
    X(wrong_sum, "self, other, n + 1, result", DV_ESYNTAX, "expected a name, a constant, a converter or 'name or constant'")     \
    X(wrong_converter, "self, other, float(mode or \"a\"), result", DV_ESYNTAX, "float() takes a number")                        \
    X(wrong_integer, "self, other, int64_t(1.5), result", DV_ESYNTAX, "int64_t() takes an integer, a bool or a Scalar")          \
    X(wrong_minus, "self, other, -\"a\", result", DV_ESYNTAX, "expected a name, a constant")                                     \
    X(wrong_word, "self, other, int(n), result", DV_ESYNTAX, "expected float(x), double(x)", "found 'int' of 1")                 \
    X(unwritten, "self, other", DV_EINVAL, "the result 'result' is not in the list, so nobody writes it")                        \
    X(too_many, HUNDRED ", " HUNDRED ", result", DV_ELIMIT, "more than 128 parameters")
#define TEN "self, self, self, self, self, self, self, self, self, self"
#define HUNDRED TEN "," TEN "," TEN "," TEN "," TEN "," TEN "," TEN "," TEN "," TEN "," TEN
#define WRONG(NAME, ROW, ...)                                                                                               \
    DV_OPERATOR(NAME, struct wrong, (self, other, n, sizes, mode, to, result),                                              \
        .schema = #NAME "(Tensor self, Tensor other, int? n=None, int[]? sizes=None, str? mode=None, ScalarType? to=None) " \
                        "-> Tensor",                                                                                        \
        .contract = "self[*s]:T, other[*s]:T -> [*s]:T", .kernels = DV_KERNELS(DV_ACLNN("f32", "AddCustom", ROW)));         \
    DV_LIBRARY(NAME, &dv_op_##NAME);
WRONG_ROWS(WRONG)
#define WRONG_NAMES(X)                                                                              \
    X(no_name, "", "expected the name of a function after 'aclnn', found ''")                       \
    X(name_twice, "aclnnAddCustom", "DV_ACLNN adds the first 'aclnn' itself: expected 'AddCustom'") \
    X(name_of_digits, "1x", "expected the name of a function after 'aclnn', found '1x'")            \
    X(with_isa, "AddCustom", "isa: only kernels for the CPU have an instruction set, this one is for npu", .isa = "avx2")
#define WRONG_NAME(NAME, FUNCTION, MESSAGE, ...)                                                                             \
    DV_OPERATOR(NAME, struct wrong_name, (self, other, result), .schema = #NAME "(Tensor self, Tensor other) -> Tensor",     \
        .contract = "self[*s]:T, other[*s]:T -> [*s]:T", .kernels = DV_KERNELS(DV_ACLNN("f32", FUNCTION, "", __VA_ARGS__))); \
    DV_LIBRARY(NAME, &dv_op_##NAME);
struct wrong_name {
    const dv_tensor *self, *other;
    dv_tensor *result;
};
WRONG_NAMES(WRONG_NAME)

struct unbacked {
    const dv_tensor *x;
    dv_tensor *y;
};

DV_OPERATOR(unbacked, struct unbacked, (x, y), .schema = "unbacked(Tensor x) -> Tensor y",
    .contract = "x[n]:T -> y[m]:T; m unbacked in 0..n", .kernels = DV_KERNELS(DV_ACLNN("f32", "AddCustom", "x, x, y")));
DV_LIBRARY(unbacked, &dv_op_unbacked);

/* ---- launchers of AscendC kernels, which are functions of the CPU here ---- */

/* Document 002's header. Each block computes three elements. */
extern void MyCustomOpKernelEntry(
    uint32_t blockDims, void *l2ctrl, void *aclStream, uint8_t *input, uint8_t *output, int32_t param1, int32_t param2);

struct my_custom_op_args {
    uint8_t *input, *output;
    int32_t param1, param2;
};

static void my_custom_op_block(uint32_t block, const void *p)
{
    const struct my_custom_op_args *a = p;
    const float *x = stand_in_touch("my_custom_op_impl", a->input + block * 12, 12);
    float *y = stand_in_touch("my_custom_op_impl", a->output + block * 12, 12);
    for (int i = 0; x && y && i < 3; i++)
        y[i] = (float)a->param1 * x[i] + (float)a->param2;
}

void MyCustomOpKernelEntry(
    uint32_t blockDims, void *l2ctrl, void *aclStream, uint8_t *input, uint8_t *output, int32_t param1, int32_t param2)
{
    const struct my_custom_op_args a = { input, output, param1, param2 };
    stand_in_kernel("my_custom_op_impl", blockDims, l2ctrl, aclStream, my_custom_op_block, &a, sizeof a);
}

struct my_custom_op {
    int64_t param1, param2;
    const dv_tensor *input;
    dv_tensor *output;
};
DV_ASCENDC_LAUNCHER(MyCustomOpKernelEntry)
DV_OPERATOR(my_custom_op, struct my_custom_op, (param1, param2, input, output),
    .schema = "my_custom_op(int param1, int param2, Tensor input, Tensor(a!) output) -> ()",
    .contract = "input[*s]:T, output[*s]:T; -2147483648 <= param1 <= 2147483647; -2147483648 <= param2 <= 2147483647",
    .kernels = DV_KERNELS(DV_ASCENDC("f32", MyCustomOpKernelEntry, 8, "input, output, param1, param2")));

/* Integers and floats mixed, more than there are registers; None; one block for each element. */
struct every_number {
    uint8_t *x, *y, *out;
    double numbers[12];
};

static void every_number_block(uint32_t block, const void *p)
{
    const struct every_number *a = p;
    const float *x = stand_in_touch("every_number", a->x + block * 4, 4);
    const float *y = a->y ? stand_in_touch("every_number", a->y + block * 4, 4) : NULL;
    float *out = stand_in_touch("every_number", a->out + block * 4, 4);
    if (!x || !out)
        return;
    *out = *x + (y ? 1000 * *y : 0);
    for (int i = 0; i < 12; i++)
        *out += (float)(a->numbers[i] * (i + 1));
}

static void launch_every_number(uint32_t blocks, void *l2ctrl, void *stream, uint8_t *x, float a, double b, uint8_t *y, bool flag,
    int64_t n, int8_t narrow, float c, double d, double e, double f, float g, double h, float i, uint8_t *out)
{
    const struct every_number args = { x, y, out,
        { (double)a, b, flag, (double)n, narrow, (double)c, d, e, f, (double)g, h, (double)i } };
    stand_in_kernel("every_number", blocks, l2ctrl, stream, every_number_block, &args, sizeof args);
}

struct numbers {
    const dv_tensor *x, *y;
    dv_opt_int blocks, n;
    double a, b;
    bool flag;
    dv_tensor *out;
};
DV_ASCENDC_LAUNCHER(launch_every_number)
DV_OPERATOR(numbers, struct numbers, (x, y, blocks, n, a, b, flag, out),
    .schema = "numbers(Tensor x, Tensor? y, int? blocks, int? n, float a, float b, bool flag) -> Tensor out",
    .contract = "x[*s]:T, y[*s]:T -> out[*s]:T",
    .kernels = DV_KERNELS(DV_ASCENDC("f32", launch_every_number, blocks or 24,
        "x, float(a), b, y, flag, n or -9, -3, float(b), 2.5, 3.5, 4.5, float(5.5), 6.5, float(n or 7), out")));

/* Not linked: the file builds without CANN. */
extern void NotLinked(uint32_t blockDims, void *l2ctrl, void *aclStream, uint8_t *x, uint8_t *out) __attribute__((weak));
DV_ASCENDC_LAUNCHER(NotLinked)
struct unary {
    const dv_tensor *x;
    dv_tensor *out;
};
#define BLOCKS 4
DV_OPERATOR(not_linked, struct unary, (x, out), .schema = "not_linked(Tensor x) -> Tensor out",
    .contract = "x[*s]:T -> out[*s]:T", .kernels = DV_KERNELS(DV_ASCENDC("f32", NotLinked, BLOCKS, "x, out")));
struct wrong_launch {
    const dv_tensor *x;
    dv_opt_int n;
    dv_string mode;
    dv_scalar by;
    double f;
    dv_ints sizes;
    dv_tensor *out;
};
/* None where the launcher takes a number. */
struct no_blocks {
    const dv_tensor *x;
    dv_opt_int blocks;
    dv_opt_dtype to;
    dv_tensor *out;
};
DV_OPERATOR(no_blocks, struct no_blocks, (x, blocks, to, out),
    .schema = "no_blocks(Tensor x, int? blocks, ScalarType? to) -> Tensor out", .contract = "x[*s]:T -> out[*s]:T",
    .kernels = DV_KERNELS(DV_ASCENDC("f32", MyCustomOpKernelEntry, blocks, "x, out, to")));
#define BLOCK_COUNT "blockDim: expected an integer from 1 to 4294967295"
#define WRONG_LAUNCHES(X)                                                                                          \
    X(with_text, 8, "x, out, mode", DV_ENOTSUP, "a launcher takes tensors and numbers only, found 'mode', a text") \
    X(with_constant, 8, "x, out, \"a\"", DV_ENOTSUP, "a launcher takes tensors and numbers only, found a text")    \
    X(with_list, 8, "x, out, sizes", DV_ENOTSUP, "numbers only, found 'sizes', a list: leave it out of the list")  \
    X(with_scalar, 8, "x, out, by", DV_ENOTSUP, "a launcher takes no Scalar: convert it (float(x), ")              \
    X(with_scalar_constant, 8, "x, out, scalar(1)", DV_ENOTSUP, "a launcher takes no Scalar")                      \
    X(blocks_tensor, x, "x, out", DV_ESYNTAX, BLOCK_COUNT " or an argument of type int, found 'x', a tensor")      \
    X(blocks_result, out, "x, out", DV_ESYNTAX, BLOCK_COUNT, "found 'out', a tensor")                              \
    X(blocks_float, f, "x, out", DV_ESYNTAX, BLOCK_COUNT, "found 'f', a float")                                    \
    X(blocks_scalar, by, "x, out", DV_ESYNTAX, BLOCK_COUNT, "found 'by', a Scalar")                                \
    X(blocks_half, 1.5, "x, out", DV_ESYNTAX, BLOCK_COUNT, "found a float")                                        \
    X(blocks_none, none, "x, out", DV_ESYNTAX, BLOCK_COUNT, "found none")                                          \
    X(blocks_0, 0, "x, out", DV_ESYNTAX, BLOCK_COUNT ", found 0")                                                  \
    X(blocks_many, 4294967296, "x, out", DV_ESYNTAX, BLOCK_COUNT ", found 4294967296")                             \
    X(blocks_or_0, n or 0, "x, out", DV_ESYNTAX, BLOCK_COUNT ", found 0")
#define WRONG_LAUNCH(NAME, BLOCKS_, LIST, ...)                                                         \
    DV_OPERATOR(NAME, struct wrong_launch, (x, n, mode, by, f, sizes, out),                            \
        .schema = #NAME "(Tensor x, int? n, str mode, Scalar by, float f, int[] sizes) -> Tensor out", \
        .contract = "x[*s]:T, sizes[k] -> out[*s]:T",                                                  \
        .kernels = DV_KERNELS(DV_ASCENDC("f32", MyCustomOpKernelEntry, BLOCKS_, LIST)));               \
    DV_LIBRARY(NAME, &dv_op_##NAME);
WRONG_LAUNCHES(WRONG_LAUNCH)
DV_OPERATOR(no_launch, struct my_custom_op, (param1, param2, input, output),
    .schema = "no_launch(int param1, int param2, Tensor input, Tensor(a!) output) -> ()", .contract = "input[*s]:T, output[*s]:T",
    .kernels = DV_KERNELS(DV_ASCENDC("f32", MyCustomOpKernelEntry, 8, "input, outptu, param1, param2")));
DV_LIBRARY(no_launch, &dv_op_no_launch);

DV_LIBRARY(npu_ops, &dv_op_add_custom, &dv_op_add, &dv_op_nowhere, &dv_op_scale_, &dv_op_mixed, &dv_op_my_custom_op,
    &dv_op_numbers, &dv_op_not_linked, &dv_op_no_blocks);

/* ---- helpers ---- */

static const dv_device npu = { DV_NPU, 0 };
static const dv_host *host;

static dv_operator *find(const char *name)
{
    char full[64];
    dv_operator *op;
    snprintf(full, sizeof full, "npu_ops::%s", name);
    if (dv_find(full, &op))
        fail_msg("%s", dv_last_error());
    dv_operator_unref(op); /* the library keeps it */
    return op;
}

#define OK(status)                           \
    do {                                     \
        if (status)                          \
            fail_msg("%s", dv_last_error()); \
    } while (0)
#define FAILS(status, code, ...)                                              \
    do {                                                                      \
        assert_int_equal(status, code);                                       \
        const char *const words[] = { __VA_ARGS__ };                          \
        for (size_t w_ = 0; w_ < sizeof words / sizeof *words; w_++)          \
            if (!strstr(dv_last_error(), words[w_]))                          \
                fail_msg("expected '%s' in: %s", words[w_], dv_last_error()); \
    } while (0)

static dv_tensor *tensor(
    dv_device device, uint32_t dtype, int32_t ndim, const int64_t *shape, const int64_t *strides, float start, float step)
{
    int64_t dense[8];
    dv_tensor *t;
    for (int32_t i = ndim; i-- > 0;)
        dense[i] = i == ndim - 1 ? 1 : dense[i + 1] * shape[i + 1];
    OK(host->new_tensor(host, -1, dv_dtype_from_key(dtype), device, ndim, shape, strides ? strides : dense, &t));
    for (int64_t i = 0; dtype == DV_DTYPE_f32 && device.type == DV_NPU && i < dv_numel(t); i++) {
        int64_t offset = 0, rest = i;
        for (int32_t k = ndim; k-- > 0; rest /= shape[k])
            offset += rest % shape[k] * t->strides[k];
        ((float *)stand_in_memory(t->data))[offset] = start + step * (float)i;
    }
    return t;
}

static dv_tensor *floats(int32_t ndim, const int64_t *shape, float start, float step)
{
    return tensor(npu, DV_DTYPE_f32, ndim, shape, NULL, start, step);
}

static float at(const dv_tensor *t, int64_t i) { return ((const float *)stand_in_memory(t->data))[i]; }
static void drop(const dv_tensor *t) { host->free_tensor(host, (dv_tensor *)(uintptr_t)t); }

static int open_all(void **state)
{
    (void)state;
    dv_library *lib;
    if (dv_ascend_open(NULL) || dv_load_static(&dv_library_npu_ops, &lib))
        return fprintf(stderr, "%s\n", dv_last_error());
    return !(host = dv_ascend_host());
}

static int begin(void **state)
{
    (void)state;
    stand_in_clear();
    stand_in_fail(0);
    stand_in_expect(NULL);
    stand_in_hold(false);
    return dv_ascend_open(NULL);
}

static int end(void **state)
{
    (void)state;
    if (dv_ascend_close())
        fprintf(stderr, "%s\n", dv_last_error());
    stand_in_end();
    if (*stand_in_faults())
        fprintf(stderr, "FAULT: %s", stand_in_faults());
    return *stand_in_faults() != 0;
}

static const int64_t n46[] = { 4, 6 }, n64[] = { 6, 4 }, n5[] = { 5 };

static int call_two(const char *name, const dv_tensor *x, const dv_tensor *y, dv_value *result)
{
    const dv_value args[2] = { dv_from_tensor(x), dv_from_tensor(y) };
    return dv_call(find(name), args, 2, result, 1, host);
}

/* ---- tests ---- */

static void one_call(void **state)
{
    (void)state;
    dv_tensor *x = floats(2, n46, 0, 1), *y = floats(2, n46, 100, 2);
    dv_value result = dv_default();
    OK(call_two("add_custom", x, y, &result));
    OK(dv_ascend_wait(0));
    for (int i = 0; i < 24; i++)
        assert_float_equal(at(result.as.tensor, i), 100 + 3 * (float)i, 0);
    assert_string_equal(stand_in_trace(),
        "create aclTensor 1: f32[4, 6] strides [6, 1] format 2 at memory 1 + 0\n"
        "create aclTensor 2: f32[4, 6] strides [6, 1] format 2 at memory 2 + 0\n"
        "create aclTensor 3: f32[4, 6] strides [6, 1] format 2 at memory 3 + 0\n"
        "aclnnAddCustomGetWorkspaceSize\n  x: aclTensor 1\n  y: aclTensor 2\n  z: aclTensor 3\n  -> workspace 1000\n"
        "aclnnAddCustom\ndestroy aclTensor 1\ndestroy aclTensor 2\ndestroy aclTensor 3\nrun aclnnAddCustom\n");
    drop(x), drop(y), drop(result.as.tensor);
}

static void views(void **state)
{
    (void)state;
    const int64_t turned[] = { 1, 4 };
    dv_tensor *x = tensor(npu, DV_DTYPE_f32, 2, n46, turned, 0, 1), *y = floats(2, n46, 0, 1), *out = floats(2, n64, 0, 0);
    dv_tensor cut = *y;
    const int64_t two[] = { 2, 3 }, steps[] = { 12, 2 };
    cut.shape = two, cut.strides = steps, cut.data = (float *)y->data + 1;
    dv_tensor to = *out;
    to.shape = two;
    dv_tensor other = *x;
    other.shape = two;
    dv_value result = dv_from_tensor(&to);
    OK(call_two("add", &other, &cut, &result));
    OK(dv_ascend_wait(0));
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < 3; k++) /* x is 6 i + k at [i, k] */
            assert_float_equal(at(out, i * 4 + k), (float)(6 * i + k) + 2 * (float)(12 * i + 2 * k + 1), 0);
    assert_non_null(strstr(stand_in_trace(), "f32[2, 3] strides [12, 2] format 2 at memory 2 + 4\n"));
    assert_non_null(strstr(stand_in_trace(), "f32[2, 3] strides [1, 4] format 2 at memory 1 + 0\n"));
    drop(x), drop(y), drop(out);
}

static void empty_and_0d(void **state)
{
    (void)state;
    const int64_t none[] = { 0, 3 };
    dv_tensor *x = floats(0, NULL, 3, 0), *e = floats(2, none, 0, 0);
    dv_value result = dv_default(), nothing = dv_default();
    OK(call_two("add_custom", x, x, &result));
    OK(call_two("add_custom", e, e, &nothing));
    OK(dv_ascend_wait(0));
    assert_float_equal(at(result.as.tensor, 0), 6, 0);
    drop(x), drop(e), drop(result.as.tensor), drop(nothing.as.tensor);
}

static void written(void **state)
{
    (void)state;
    dv_tensor *x = floats(1, n5, 1, 1);
    const dv_value args[2] = { dv_from_tensor(x), dv_from_float(0.5) };
    dv_value result = dv_default();
    OK(dv_call(find("scale_"), args, 2, &result, 1, host));
    OK(dv_ascend_wait(0));
    assert_ptr_equal(result.as.tensor, x);
    assert_float_equal(at(x, 4), 2.5, 0);
    drop(x);
}

static void formats(void **state)
{
    (void)state;
    const int64_t n5d[] = { 1, 2, 1, 2, 1 };
    static const char *const wanted[] = { "f32[] strides [] format 2 ", "f32[1] strides [1] format 2 ",
        "f32[1, 2] strides [2, 1] format 2 ", "f32[1, 2, 1] strides [2, 1, 1] format 47 ",
        "f32[1, 2, 1, 2] strides [4, 2, 2, 1] format 0 ", "f32[1, 2, 1, 2, 1] strides [4, 2, 2, 1, 1] format 30 " };
    for (int32_t n = 0; n <= 5; n++) {
        dv_tensor *x = floats(n, n5d, 1, 0);
        dv_value result = dv_default();
        OK(call_two("add_custom", x, x, &result));
        assert_non_null(strstr(stand_in_trace(), wanted[n]));
        drop(x), drop(result.as.tensor);
    }
}

static int call_mixed(const dv_tensor *x, const dv_tensor *y, bool k, dv_value *result)
{
    const dv_tensor *more[] = { x, x, x };
    const int64_t ints[] = { 5, -6 };
    const double fs[] = { 0.5, 1.25, -2 };
    const bool bs[] = { true, false, true };
    const dv_floats fl = { fs, 3 };
    const dv_bools bl = { bs, 3 };
    dv_value args[14] = { dv_from_tensor(x), dv_from_tensor(y), dv_from_tensors(more, 3), dv_from_int(11), dv_from_float(0.125),
        dv_from_float(0.25), dv_from_bool(true), dv_from_string("fast"), dv_from_ints(ints, 2), dv_none(), dv_none(),
        dv_from_float(-7.5), dv_from_dtype(dv_dtype_from_key(DV_DTYPE_bf16)), k ? dv_from_int(INT64_C(1) << 40) : dv_none() };
    args[9].type = DV_VALUE_FLOATS, args[9].as.floats = fl;
    args[10].type = DV_VALUE_BOOLS, args[10].as.bools = bl;
    return dv_call(find("mixed"), args, 14, result, 1, host);
}

static void every_type(void **state)
{
    (void)state;
    dv_tensor *x = floats(2, n46, 0, 0.5f), *y = floats(2, n46, 1, 0);
    const double k[] = { -9, 1099511627776. };
    for (int i = 0; i < 2; i++) {
        const double numbers[] = { 11, 0.125, 0.25, 1, 4, 5, -6, 0.5, 1.25, -2, 1, 0, 1, -7.5, 27, 1.5, 2.5, 11, 4.5, 0.125, 6.5,
            7.5, 8.5, k[i], -3 };
        double sum = 0;
        for (size_t n = 0; n < sizeof numbers / sizeof *numbers; n++)
            sum += numbers[n] * (double)(n + 1);
        dv_value result = dv_default();
        OK(call_mixed(x, i ? y : NULL, i, &result));
        OK(dv_ascend_wait(0));
        float expected = (float)sum;
        expected += 1; /* x[2] */
        if (i)
            expected += 1;
        for (int m = 0; m < 3; m++)
            expected += 1;
        assert_float_equal(at(result.as.tensor, 2), expected, 0);
        drop(result.as.tensor);
    }
    assert_non_null(strstr(stand_in_trace(), "  y: null\n"));
    assert_non_null(strstr(stand_in_trace(), "  mode: \"fast\"\n"));
    drop(x), drop(y);
}

/* Nothing runs before somebody waits: three operators with workspaces of different sizes, one after the other on one stream. */
static void late(void **state)
{
    (void)state;
    dv_tensor *x = floats(2, n46, 1, 0), *z = floats(2, n46, 5, 0), *last = floats(2, n46, 0, 0);
    dv_value result = dv_from_tensor(z), same = dv_default(), to = dv_from_tensor(last);
    const dv_value by[2] = { dv_from_tensor(z), dv_from_float(10) };
    stand_in_hold(true);
    OK(call_two("add_custom", x, x, &result));
    OK(dv_call(find("scale_"), by, 2, &same, 1, host));
    OK(call_two("add_custom", z, x, &to));
    assert_float_equal(at(z, 0), 5, 0);
    assert_null(strstr(stand_in_trace(), "run "));
    OK(dv_ascend_wait(0));
    assert_float_equal(at(z, 7), 20, 0);
    assert_float_equal(at(last, 7), 21, 0);
    drop(x), drop(z), drop(last);
}

/* Tensors that are given back at once stay until the kernel has run. */
static void dropped(void **state)
{
    (void)state;
    dv_tensor *x = floats(2, n46, 1, 0);
    dv_value result = dv_default();
    stand_in_hold(true);
    OK(call_two("add_custom", x, x, &result));
    drop(x), drop(result.as.tensor);
    OK(dv_ascend_close());
    dv_tensor *y = floats(2, n46, 1, 0), *z = floats(2, n46, 1, 0);
    result = dv_from_tensor(z);
    OK(call_two("add", y, y, &result)); /* no workspace: only closing waits for it */
    OK(dv_ascend_close());
    drop(y), drop(z);
}

/* Each allocation, descriptor, phase and launch fails in turn: an error, no fault, nothing left. */
static void every_failure(void **state)
{
    (void)state;
    dv_tensor *x = floats(2, n46, 1, 0);
    int n = 1;
    for (;; n++) {
        dv_value result = dv_default();
        stand_in_fail(n);
        const int status = call_mixed(x, x, true, &result);
        if (!stand_in_failed()) {
            OK(status);
            drop(result.as.tensor);
            break;
        }
        FAILS(status, dv_last_error()[0] == 'A' ? DV_EHOST : status, "the stand-in was told to fail");
        assert_true(status == DV_EKERNEL || status == DV_EHOST);
        assert_int_equal(result.type, DV_VALUE_DEFAULT);
    }
    stand_in_fail(0);
    assert_true(n > 10);
    drop(x);
}

static void wrong_rows(void **state)
{
    (void)state;
    dv_library *lib = NULL;
#define REFUSED(NAME, ROW, CODE, ...) \
    FAILS(dv_load_static(&dv_library_##NAME, &lib), CODE, "operator " #NAME "::" #NAME ": kernel aclnnAddCustom(", __VA_ARGS__);
    WRONG_ROWS(REFUSED)
#define REFUSED_NAME(NAME, FUNCTION, MESSAGE, ...)                                            \
    FAILS(dv_load_static(&dv_library_##NAME, &lib), *MESSAGE == 'i' ? DV_EINVAL : DV_ESYNTAX, \
        "operator " #NAME "::" #NAME ": kernel aclnn" FUNCTION "(", MESSAGE);
    WRONG_NAMES(REFUSED_NAME)
    FAILS(dv_load_static(&dv_library_unbacked, &lib), DV_ENOTSUP,
        "unbacked::unbacked: kernel aclnnAddCustom(x, x, y): the contract has an unbacked size");
}

static void refusals(void **state)
{
    (void)state;
    const dv_device cpu = { DV_CPU, 0 };
    dv_tensor *x = floats(2, n46, 1, 0), *c = tensor(cpu, DV_DTYPE_f32, 0, NULL, NULL, 0, 0);
    dv_tensor *bad = tensor(npu, DV_DTYPE_f8_e4m3, 2, n46, NULL, 0, 0);
    dv_value result = dv_default();
    FAILS(call_two("nowhere", x, x, &result), DV_ENOENT, "npu_ops::nowhere", "no function aclnnNowhereGetWorkspaceSize",
        "missing/op_api/lib (not there)", "libopapi.so (open)");
    stand_in_capture(true);
    FAILS(call_two("add_custom", x, x, &result), DV_ENOTSUP, "npu_ops::add_custom: a graph is being captured", "aclnnAddCustom");
    stand_in_capture(false);
    stand_in_fail(5); /* the result's memory, three descriptors, then this */
    FAILS(call_two("add_custom", x, x, &result), DV_EKERNEL,
        "npu_ops::add_custom: aclnnAddCustomGetWorkspaceSize failed with 507899",
        "EZ9999: the stand-in was told to fail in GetWorkspaceSize", "self: f32[4, 6]");
    stand_in_fail(3);
    FAILS(call_two("add_custom", x, x, &result), DV_EKERNEL,
        "npu_ops::add_custom: argument 'other': aclCreateTensor failed: EZ9999");
    stand_in_fail(4);
    FAILS(call_two("add_custom", x, x, &result), DV_EKERNEL,
        "npu_ops::add_custom: result 'result': aclCreateTensor failed: EZ9999");
    stand_in_fail(0);
    drop(x), drop(c), drop(bad);
}

/* ---- a framework: its own stream, workspace and queue ---- */

static struct {
    dv_ascend_framework f; /* first */
    pthread_t thread;
    pthread_mutex_t lock;
    int (*tasks[16])(void *arg);
    void *args[16];
    size_t n, ran;
    void *stream, *memory;
    int64_t asked;
    int32_t format;
    int refuse;
} fw = { .lock = PTHREAD_MUTEX_INITIALIZER };

static int fw_stream(const dv_ascend_framework *f, dv_device device, void **out)
{
    assert_ptr_equal(f, &fw.f);
    assert_int_equal(device.type, DV_NPU);
    *out = fw.stream;
    return DV_OK;
}

static int fw_workspace(const dv_ascend_framework *f, void *stream, uint64_t bytes, void **out)
{
    (void)f, (void)stream;
    assert_true(bytes <= 50000);
    fw.asked += (int64_t)bytes;
    *out = fw.memory;
    return DV_OK;
}

static int fw_enqueue(const dv_ascend_framework *f, void *stream, const char *name, int (*task)(void *arg), void *arg)
{
    (void)f, (void)stream, (void)name;
    if (fw.refuse)
        return dv_fail(DV_EHOST, "the queue is closed for %s", name);
    fw.tasks[fw.n] = task;
    fw.args[fw.n++] = arg;
    return DV_OK;
}

static int fw_format(const dv_ascend_framework *f, const dv_host *h, const dv_tensor *t, int32_t *out)
{
    (void)f;
    assert_ptr_equal(h, host);
    *out = t->ndim == 2 ? fw.format : 2;
    return DV_OK;
}

static void *fw_run(void *arg)
{
    (void)arg;
    for (; fw.ran < fw.n; fw.ran++)
        fw.tasks[fw.ran](fw.args[fw.ran]);
    return NULL;
}

static void fw_drain(void)
{
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, fw_run, NULL), 0);
    pthread_join(thread, NULL);
}

int32_t aclrtCreateStream(void **out);
int32_t aclrtDestroyStream(void *stream);
int32_t aclrtSynchronizeStream(void *stream);
int32_t aclrtMalloc(void **out, size_t size, int32_t policy);
int32_t aclrtFree(void *p);

/* The second phase runs on another thread, after the calls have returned. */
static void framework(void **state)
{
    (void)state;
    fw.f = (dv_ascend_framework){ sizeof fw.f, 0, "a test", fw_stream, fw_workspace, fw_enqueue, fw_format };
    fw.format = 2;
    assert_int_equal(aclrtCreateStream(&fw.stream), 0);
    assert_int_equal(aclrtMalloc(&fw.memory, 50000, 0), 0);
    stand_in_expect(fw.stream);
    OK(dv_ascend_open(&fw.f));

    dv_tensor *x = floats(2, n46, 1, 0), *one = floats(1, n5, 3, 0), *z = floats(2, n46, 0, 0);
    dv_value result = dv_from_tensor(z), same = dv_default();
    const dv_value by[2] = { dv_from_tensor(z), dv_from_float(10) };
    OK(call_two("add_custom", x, x, &result));
    OK(dv_call(find("scale_"), by, 2, &same, 1, host));
    assert_int_equal(fw.n, 2);
    assert_null(strstr(stand_in_trace(), "destroy"));
    fw_drain();
    assert_int_equal(aclrtSynchronizeStream(fw.stream), 0);
    assert_float_equal(at(z, 3), 20, 0);
    assert_int_equal(fw.asked, 1000 + 50000);

    fw.format = 29;
    FAILS(call_two("add_custom", x, x, &result), DV_ENOTSUP, "npu_ops::add_custom: argument 'self'", "the private format 29");
    fw.format = 2;
    fw.refuse = 1;
    FAILS(call_two("add_custom", x, x, &result), DV_EHOST, "the queue is closed for aclnnAddCustom");
    fw.refuse = 0;

    OK(call_two("add_custom", x, x, &result)); /* its launch fails when the call has returned */
    stand_in_fail(1);
    fw_drain();
    stand_in_fail(0);
    FAILS(call_two("add_custom", x, x, &result), DV_EKERNEL,
        "an earlier call failed: npu_ops::add_custom: aclnnAddCustom failed with 507899 after its call had returned: EZ9999");
    OK(call_two("add_custom", x, x, &result));
    fw_drain();
    assert_int_equal(aclrtSynchronizeStream(fw.stream), 0);

    stand_in_expect(NULL);
    drop(x), drop(one), drop(z);
    assert_int_equal(aclrtFree(fw.memory), 0);
    assert_int_equal(aclrtDestroyStream(fw.stream), 0);
}

static int call_my_custom_op(int64_t param1, int64_t param2, const dv_tensor *input, const dv_tensor *output)
{
    const dv_value args[4] = { dv_from_int(param1), dv_from_int(param2), dv_from_tensor(input), dv_from_tensor(output) };
    return dv_call(find("my_custom_op"), args, 4, NULL, 0, host);
}

/* Two sets of numbers wait on one stream, with an aclnn operator between them. */
static void launcher(void **state)
{
    (void)state;
    dv_tensor *x = floats(2, n46, 0, 1), *y = floats(2, n46, 0, 0), *z = floats(2, n46, 0, 0);
    dv_value sum = dv_from_tensor(z);
    stand_in_hold(true);
    OK(call_my_custom_op(10, 20, x, y));
    OK(call_two("add_custom", y, y, &sum));
    OK(call_my_custom_op(-2, 3, z, x));
    assert_float_equal(at(y, 0), 0, 0);
    assert_null(strstr(stand_in_trace(), "run "));
    OK(dv_ascend_wait(0));
    for (int i = 0; i < 24; i++) {
        assert_float_equal(at(y, i), 10 * (float)i + 20, 0);
        assert_float_equal(at(x, i), -2 * 2 * (10 * (float)i + 20) + 3, 0);
    }
    assert_non_null(strstr(stand_in_trace(), "my_custom_op_impl<<<8>>>\n"));
    FAILS(call_my_custom_op(INT64_C(1) << 31, 0, x, y), DV_EINVAL, "param1");
    drop(x), drop(y), drop(z);
}

static int call_numbers(const dv_tensor *x, const dv_tensor *y, dv_value blocks, dv_value n, dv_value *result)
{
    const dv_value args[7] = { dv_from_tensor(x), dv_from_tensor(y), blocks, n, dv_from_float(0.25), dv_from_float(1.5),
        dv_from_bool(true) };
    return dv_call(find("numbers"), args, 7, result, 1, host);
}

static void launchers_numbers(void **state)
{
    (void)state;
    const float rest = 0.25f + 2 * 1.5f + 3 + 5 * -3 + 6 * 1.5f + 7 * 2.5f + 8 * 3.5f + 9 * 4.5f + 10 * 5.5f + 11 * 6.5f;
    dv_tensor *x = floats(2, n46, 0, 1), *y = floats(2, n46, 1, 1);
    dv_value result = dv_default(), other = dv_default();
    stand_in_hold(true);
    OK(call_numbers(x, y, dv_none(), dv_none(), &result));
    OK(call_numbers(x, NULL, dv_from_int(5), dv_from_int(100), &other));
    OK(dv_ascend_wait(0));
    assert_float_equal(at(result.as.tensor, 23), 23 + 1000 * 24 + rest + 4 * -9 + 12 * 7, 0);
    assert_float_equal(at(other.as.tensor, 4), 4 + rest + 4 * 100 + 12 * 100, 0);
    assert_non_null(strstr(stand_in_trace(), "every_number<<<24>>>\nevery_number<<<5>>>\n"));
    drop(result.as.tensor), drop(other.as.tensor), drop(x), drop(y);
}

static void launchers_refusals(void **state)
{
    (void)state;
    dv_library *lib = NULL;
    const int64_t turned[] = { 1, 4 };
    dv_tensor *x = floats(2, n46, 0, 1), *y = floats(2, n46, 0, 0), *t = tensor(npu, DV_DTYPE_f32, 2, n46, turned, 0, 1);
    dv_value result = dv_default();
    const dv_value one = dv_from_tensor(x);
    FAILS(dv_load_static(&dv_library_no_launch, &lib), DV_ENOENT,
        "operator no_launch::no_launch: kernel MyCustomOpKernelEntry(8, ",
        "column 33: expected an argument or result of no_launch::no_launch(", "found 'outptu'");
    FAILS(dv_call(find("not_linked"), &one, 1, &result, 1, host), DV_ENOENT,
        "npu_ops::not_linked: no launcher NotLinked in this binary", "my_kernel.cce");
#define REFUSED_LAUNCH(NAME, BLOCKS_, LIST, CODE, ...) FAILS(dv_load_static(&dv_library_##NAME, &lib), CODE, __VA_ARGS__);
    WRONG_LAUNCHES(REFUSED_LAUNCH)
#undef REFUSED_LAUNCH
    const dv_value three[3] = { one, dv_none(), dv_none() }, four[3] = { one, dv_from_int(4), dv_none() };
    FAILS(dv_call(find("no_blocks"), three, 3, &result, 1, host), DV_ENOTSUP, "argument 'blocks': it is None",
        "write 'blocks or 8'");
    FAILS(dv_call(find("no_blocks"), four, 3, &result, 1, host), DV_ENOTSUP, "argument 'to': it is None", "write 'to or f32'");
    const int64_t wrong[] = { 0, -1, INT64_C(1) << 32 };
    for (int i = 0; i < 3; i++)
        FAILS(call_numbers(x, NULL, dv_from_int(wrong[i]), dv_none(), &result), DV_EINVAL,
            "npu_ops::numbers: argument 'blocks': blockDim: expected an integer from 1 to 4294967295, found");
    FAILS(call_my_custom_op(1, 1, t, y), DV_ENOTSUP,
        "a copy between layouts needs a framework"); /* so the launcher never sees it */
    stand_in_capture(true);
    FAILS(call_my_custom_op(1, 1, x, y), DV_ENOTSUP, "npu_ops::my_custom_op: a graph is being captured", "MyCustomOpKernelEntry");
    stand_in_capture(false);
    stand_in_fail(1);
    FAILS(call_my_custom_op(1, 1, x, y), DV_EKERNEL,
        "npu_ops::my_custom_op: MyCustomOpKernelEntry failed with 507899: EZ9999: the stand-in was told to fail in "
        "my_custom_op_impl");
    stand_in_fail(0);
    assert_null(strstr(stand_in_trace(), "<<<"));
    stand_in_fail(1);
    MyCustomOpKernelEntry(8, NULL, NULL, x->data, y->data, 1, 1); /* somebody else's failure is not the next call's */
    stand_in_fail(0);
    OK(call_my_custom_op(1, 1, x, y));
    drop(x), drop(y), drop(t);
}

/* In the framework's order, on its stream, on another thread. */
static void launcher_in_framework(void **state)
{
    (void)state;
    fw.f = (dv_ascend_framework){ sizeof fw.f, 0, "a test", fw_stream, fw_workspace, fw_enqueue, fw_format };
    fw.format = 2;
    fw.n = fw.ran = 0;
    assert_int_equal(aclrtCreateStream(&fw.stream), 0);
    stand_in_expect(fw.stream);
    OK(dv_ascend_open(&fw.f));
    dv_tensor *x = floats(2, n46, 1, 1), *y = floats(2, n46, 0, 0);
    OK(call_my_custom_op(10, 20, x, y));
    OK(call_my_custom_op(3, 4, y, x));
    assert_int_equal(fw.n, 2);
    assert_null(strstr(stand_in_trace(), "<<<"));
    fw_drain();
    assert_int_equal(aclrtSynchronizeStream(fw.stream), 0);
    assert_float_equal(at(x, 5), 3 * (10 * 6 + 20) + 4, 0);
    fw.format = 29;
    FAILS(call_my_custom_op(1, 1, x, y), DV_ENOTSUP, "npu_ops::my_custom_op: argument 'input'", "the private format 29");
    fw.format = 2;
    OK(call_my_custom_op(1, 1, x, y)); /* its launch fails when the call has returned */
    stand_in_fail(1);
    fw_drain();
    stand_in_fail(0);
    FAILS(call_my_custom_op(1, 1, x, y), DV_EKERNEL,
        "an earlier call failed: npu_ops::my_custom_op: MyCustomOpKernelEntry failed with 507899 after its call had returned");
    stand_in_expect(NULL);
    drop(x), drop(y);
    assert_int_equal(aclrtDestroyStream(fw.stream), 0);
}

static void *many(void *arg)
{
    dv_tensor *x = floats(2, n46, 1, 0), *y = floats(2, n46, 2, 0);
    int *bad = arg;
    for (int i = 0; i < 100; i++) {
        dv_value result = dv_from_tensor(y);
        *bad += call_two(i % 3 ? "add" : "add_custom", x, x, &result) != DV_OK;
    }
    *bad += dv_ascend_wait(0) != DV_OK || at(y, 1) != 2; /* the last is add_custom */
    drop(x), drop(y);
    return NULL;
}

static void threads(void **state)
{
    (void)state;
    pthread_t t[4];
    int bad[4] = { 0 };
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&t[i], NULL, many, &bad[i]), 0);
    for (int i = 0; i < 4; i++) /* a failed assertion leaves this function, and no thread may go on then */
        pthread_join(t[i], NULL);
    for (int i = 0; i < 4; i++)
        assert_int_equal(bad[i], 0);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, begin, end)
    const struct CMUnitTest tests[] = { TEST(one_call), TEST(views), TEST(empty_and_0d), TEST(written), TEST(formats),
        TEST(every_type), TEST(late), TEST(dropped), TEST(every_failure), TEST(wrong_rows), TEST(refusals), TEST(framework),
        TEST(launcher), TEST(launchers_numbers), TEST(launchers_refusals), TEST(launcher_in_framework), TEST(threads) };
    return cmocka_run_group_tests(tests, open_all, NULL);
}
