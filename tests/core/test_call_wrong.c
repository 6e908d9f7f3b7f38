/* Calls that must be refused, each with a message that names the operator, what is wrong, what was expected and what was found.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "call_ops.h"
#include "contract_call.h"

/* Arguments and results as contract_call.h writes them; results "": to be made. */
static const struct {
    const char *op, *args, *results;
    int status;
    const char *fragments[3];
} rows[] = {
    /* how many */
    { "swiglu", "f32[4]", "", DV_EINVAL, { "tc::swiglu", "argument 'up'", "missing" } },
    { "swiglu", "", "", DV_EINVAL, { "argument 'gate'", "missing" } },
    { "swiglu", "f32[4] f32[4] f32[4]", "", DV_EINVAL, { "at most 2 arguments, found 3", "swiglu(Tensor gate, Tensor up)" } },
    { "swiglu", "f32[4] f32[4]", "f32[4] f32[4]", DV_EINVAL,
        { "expected 1 results (one for each return of the schema), found 2" } },
    { "maybe", "f32[4]", "f32[4]", DV_EINVAL, { "expected 2 results (one for each return of the schema), found 1" } },
    { "scale_", "", "", DV_EINVAL, { "argument 'x'", "missing" } },
    { "transposed", "f32[4,5] 0", "", DV_EINVAL, { "argument 'dim1'", "no default" } },
    /* types */
    { "swiglu", "f32[4] 3", "", DV_ETYPE, { "argument 'up'", "expected Tensor, found int (3)" } },
    { "swiglu", "f32[4] 1.5", "", DV_ETYPE, { "expected Tensor, found float (1.5)" } },
    { "swiglu", "f32[4] True", "", DV_ETYPE, { "expected Tensor, found bool (True)" } },
    { "swiglu", "f32[4] 'up'", "", DV_ETYPE, { "expected Tensor, found str" } },
    { "swiglu", "f32[4] -", "", DV_ETYPE, { "argument 'up'", "expected Tensor, found None" } },
    { "swiglu", "f32[4] (1,2)", "", DV_ETYPE, { "expected Tensor, found int[]" } },
    { "swiglu", "f32[4] {f32[4]}", "", DV_ETYPE, { "expected Tensor, found Tensor[]" } },
    { "swiglu", "f32[4] :f32", "", DV_ETYPE, { "expected Tensor, found ScalarType" } },
    { "scale_", "f32[4] 's'", "", DV_ETYPE, { "argument 'by'", "expected float, found str" } },
    { "scale_", "f32[4] -", "", DV_ETYPE, { "expected float, found None" } },
    { "scale_", "f32[4] f32[]", "", DV_ETYPE, { "expected float, found Tensor" } },
    { "scale_", "f32[4] (1)", "", DV_ETYPE, { "expected float, found int[]" } },
    { "pick", "f32[4] True", "", DV_ETYPE, { "argument 'k'", "expected int, found bool (True)" } },
    { "pick", "f32[4] 1.0", "", DV_ETYPE, { "expected int, found float (1)" } },
    { "pick", "f32[4] -", "", DV_ETYPE, { "expected int, found None" } },
    { "maybe", "f32[4] 1", "", DV_ETYPE, { "argument 'second'", "expected bool, found int (1)" } },
    { "maybe", "f32[4] 0.0", "", DV_ETYPE, { "expected bool, found float" } },
    { "cat", "f32[4]", "", DV_ETYPE, { "argument 'xs'", "expected Tensor[], found Tensor" } },
    { "cat", "{f32[4] -}", "", DV_ETYPE, { "argument 'xs[1]'", "expected Tensor, found None" } },
    { "cat", "(1,2)", "", DV_ETYPE, { "expected Tensor[], found int[]" } },
    { "every", "f32[4] {} () () - 1 2.0 True 3", "", DV_ETYPE, { "argument 's'", "expected str, found int (3)" } },
    { "every", "f32[4] {} () () - 1 2.0 True 's' 's'", "", DV_ETYPE, { "argument 'scalar'", "expected Scalar, found str" } },
    { "every", "f32[4] {} () () - 1 2.0 True 's' 1 True", "", DV_ETYPE, { "argument 'z'", "expected complex, found bool" } },
    { "every", "f32[4] {} () () - 1 2.0 True 's' 1 1 3", "", DV_ETYPE, { "argument 'dtype'", "expected ScalarType, found int" } },
    { "every", "f32[4] {} () () - 1 2.0 True 's' 1 1 :f32 0", "", DV_ETYPE,
        { "argument 'device'", "expected Device, found int" } },
    { "every", "f32[4] () () () 3", "", DV_ETYPE, { "argument 'bias'", "expected Tensor?, found int" } },
    { "every", "f32[4] {} (1) (1)", "", DV_ETYPE, { "argument 'strings'", "expected str[], found int[]" } },
    { "every", "f32[4] {} {f32[1]} ()", "", DV_ETYPE, { "argument 'scalars'", "expected Scalar[], found Tensor[]" } },
    /* lists of fixed size */
    { "every", "f32[4] {} () () - 1 2.0 True 's' 1 1 :f32 -", "", DV_ETYPE, { "argument 'device'", "found None" } },
    { "fixed", "f32[4] (1,2)", "", DV_ETYPE, { "argument 'sizes'", "expected a list of 3 elements, found 2" } },
    { "fixed", "f32[4] (1,2,3,4)", "", DV_ETYPE, { "expected a list of 3 elements, found 4" } },
    { "fixed", "f32[4] ()", "", DV_ETYPE, { "expected a list of 3 elements, found 0" } },
    { "fixed", "f32[4] True", "", DV_ETYPE, { "expected int[3], found bool" } },
    { "fixed", "f32[4] 1.5", "", DV_ETYPE, { "expected int[3], found float" } },
    { "fixed", "f32[4] -", "", DV_ETYPE, { "expected int[3], found None" } },
    { "fixed", "f32[4] 1 (1,2,3)", "", DV_ETYPE, { "argument 'pair'", "expected a list of 2 elements, found 3" } },
    /* shapes, dtypes and devices: the contract's messages */
    { "swiglu", "f32[4,6] f32[4,5]", "", DV_ESHAPE, { "tc::swiglu: argument 'up'", "[4, 6]", "found [4, 5]" } },
    { "swiglu", "f32[4] f64[4]", "", DV_EDTYPE, { "argument 'up'", "expected dtype f32", "found f64" } },
    { "swiglu", "i32[4] i32[4]", "", DV_EDTYPE, { "argument 'gate'", "found i32" } },
    { "swiglu", "f32[4] f32[4]@cuda", "", DV_EDEVICE, { "argument", "cpu", "cuda" } },
    { "swiglu", "f32[4] f32[4]@meta", "", DV_EDEVICE, { "argument", "meta" } },
    { "swiglu", "f32[4]@vulkan f32[4]@vulkan", "", DV_ENOKERNEL, { "tc::swiglu: no kernel for", "CPU" } },
    { "swiglu", "f32[4]@npu f32[4]@npu", "", DV_ENOKERNEL, { "no kernel for PrivateUse1", "CPU" } },
    { "swiglu", "f64[4] f64[4]", "", DV_ENOKERNEL,
        { "no kernel fits", "swiglu_f32: it is for f32, and argument 'gate' is f64" } },
    { "cat", "{f32[2,3] f32[2,4]} 0", "", DV_ESHAPE, { "argument 'xs[1]'", "found [2, 4]" } },
    { "cat", "{f32[2,3] f32[2,4]} 1", "", DV_ENOKERNEL, { "cat_f32: its condition dim == 0 does not hold" } },
    { "fail_with", "f32[4] 100", "", DV_EINVAL, { "how < 100" } },
    { "transposed", "f32[4,5] 0 2", "", DV_EINVAL, { "from -2 to 1, found 2" } },
    { "bare", "f32[4]", "", DV_EINVAL, { "result 'out'", "must be given", "neither a contract nor a shape function" } },
    { "copy_all", "{f32[4]}", "", DV_ENOTSUP, { "no contract describes it: it must be given" } },
    { "copy_all", "{f32[4]}", "f32[4]", DV_ETYPE, { "result 'out'", "expected Tensor[], found Tensor" } },
    { "copy_all", "{f32[4]}", "{f32[4] -}", DV_ETYPE, { "result 'out[1]'", "expected Tensor, found None" } },
    { "copy_all", "{f32[4]}", "{f32[4] f32[4]}", DV_EINVAL, { "1 tensors into 2" } },
    /* given results */
    { "swiglu", "f32[4] f32[4]", "f32[5]", DV_ESHAPE, { "result", "4", "5" } },
    { "swiglu", "f32[4] f32[4]", "f32[2,2]", DV_ESHAPE, { "result" } },
    { "swiglu", "f32[4] f32[4]", "f64[4]", DV_EDTYPE, { "f32", "f64" } },
    { "swiglu", "f32[4] f32[4]", "f32[4]@cuda", DV_EDEVICE, { "cuda" } },
    { "swiglu", "f32[4] f32[4]", "f32[4]/(0)", DV_EALIAS, { "result 'out'", "overlaps itself" } },
    { "swiglu", "f32[4] f32[4]", "3", DV_ETYPE, { "result 'out'", "expected Tensor, found int (3)" } },
    { "swiglu", "f32[4] f32[4]", "-", DV_EINVAL, { "result 'out'", "found None" } },
    { "scale_", "f32[4]", "f32[4]", DV_EALIAS, { "is argument 'x' itself" } },
    { "transposed", "f32[4,5] 0 1", "f32[5,4]", DV_EALIAS, { "is a view of an argument" } },
    { "repeat", "f32[4] 2", "f32[9]", DV_ESHAPE, { "expected size 8 in dim 0, found 9" } },
    { "repeat", "f32[4] 2", "f32[8,1]", DV_ESHAPE, { "expected 1 dims, found 2" } },
    { "repeat", "f32[4] 2", "i32[8]", DV_EDTYPE, { "expected f32, found i32" } },
    { "nonzero", "f32[4]", "f32[2,1]", DV_EDTYPE, { "expected i64, found f32" } },
    { "nonzero", "f32[4]", "i64[4,1]/(2,1)", DV_EINVAL, { "must be contiguous" } },
    /* what is written */
    { "scale_", "f32[4]/(0)", "", DV_EALIAS, { "argument 'x'", "would be written, but overlaps itself" } },
    { "scale_", "f32[2,3]/(1,1)", "", DV_EALIAS, { "overlaps itself" } },
    { "fill_all", "{f32[4] f32[4]/(0)} 1.0", "", DV_EALIAS, { "argument 'xs[1]'", "overlaps itself" } },
    /* what a kernel does wrong */
    { "fail_with", "f32[4] 1", "", DV_EINVAL, { "tc::fail_with: how is 1" } },
    { "fail_with", "f32[4] 2", "", DV_EKERNEL, { "tc::fail_with: fail_run failed with EKERNEL and no message" } },
    { "fail_with", "f32[4] 3", "", DV_EKERNEL, { "fail_run returned 7, which is not a status" } },
    { "fail_with", "f32[4] 4", "", DV_EINVAL, { "tc::fail_with: the first" } },
    { "fail_with", "f32[4] 5", "", DV_EINVAL, { "an error that is not returned" } },
    { "fail_with", "f32[4] 6", "", DV_EINVAL, { "piece ", " failed" } },
    { "fail_with", "f32[4] 7", "", DV_ENOMEM, { "out of memory: dv_alloc of " } },
    { "fail_with", "f32[4] 8", "", DV_EINVAL, { "power of two, found 3" } },
    { "fail_with", "f32[4] 9", "", DV_ENOENT, { "the host of this call provides no objects, 'layer.0' neither" } },
    { "fail_with", "f32[4] 10", "", DV_EINVAL, { "the kernel does not decide the size of this result" } },
    { "fail_with", "f32[4] 11", "", DV_EKERNEL, { "returned -999, which is not a status" } },
    { "fail_with", "f32[4] 12", "", DV_EINVAL, { "dv_alloc: called in a chunk of dv_parallel_for", "before the loop" } },
    { "fail_with", "f32[4] 13", "", DV_EINVAL, { "piece 0 failed" } },
};

/* A shape with a list of fixed size and an optional one. */
struct fixed {
    const dv_tensor *x;
    dv_ints sizes;
    dv_opt_ints pair;
    dv_tensor *out;
};
static int fixed_run(dv_context *ctx, const struct fixed *a)
{
    (void)ctx;
    return a->sizes.size == 3 ? DV_OK : DV_EKERNEL;
}
DV_OPERATOR(fixed, struct fixed, (x, sizes, pair, out),
    .schema = "fixed(Tensor x, int[3] sizes=1, int[2]? pair=None) -> Tensor out", .contract = "x[*s]:T -> out[*s]:T",
    .kernels = DV_KERNELS(DV_KERNEL(struct fixed, "cpu", NULL, fixed_run)));
DV_LIBRARY_FRAGMENT(tc, tc_fixed, &dv_op_fixed);

/* Memory for the tensors of a call, each its own. */
static _Alignas(64) char memory[16][1024];
static void give_memory(call *c, size_t *used)
{
    for (size_t i = 0; i < c->n; i++) {
        if (c->values[i].type == DV_VALUE_TENSOR && !c->values[i].as.tensor->data)
            tensor_of(&c->values[i])->data = memory[(*used)++];
        for (size_t k = 0; c->values[i].type == DV_VALUE_TENSORS && k < c->values[i].as.tensors.size; k++)
            if (c->values[i].as.tensors.data[k])
                ((dv_tensor *)(uintptr_t)c->values[i].as.tensors.data[k])->data = memory[(*used)++];
    }
}

static void wrong(void **state)
{
    (void)state;
    static call args, results;
    static char before[sizeof memory];
    int failed = 0;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        size_t used = 0;
        call_parse(&args, rows[i].args);
        call_parse(&results, rows[i].results);
        give_memory(&args, &used);
        give_memory(&results, &used);
        dv_operator *op = find(rows[i].op);
        if (!*rows[i].results) {
            results.n = dv_operator_nresults(op);
            for (size_t r = 0; r < results.n; r++)
                results.values[r] = dv_default();
        }
        static dv_value kept[80];
        memcpy(kept, results.values, results.n * sizeof *kept);
        memcpy(before, memory, sizeof memory);
        dv_clear_error();
        const int status = dv_call(op, args.values, args.n, results.values, results.n, NULL);
        bool said = status == rows[i].status && !memcmp(kept, results.values, results.n * sizeof *kept);
        for (int k = 0; k < 3 && rows[i].fragments[k]; k++)
            said = said && strstr(dv_last_error(), rows[i].fragments[k]);
        if (!said) {
            print_error("row %zu, %s(%s): expected %s and '%s', found %s: %s\n", i, rows[i].op, rows[i].args,
                dv_status_name(rows[i].status), rows[i].fragments[0], dv_status_name(status), dv_last_error());
            failed++;
        }
        if (!strstr(dv_last_error(), "tc::"))
            fail_msg("row %zu does not name the operator: %s", i, dv_last_error());
    }
    assert_int_equal(failed, 0);
}

/* ---- Overlaps: pairs of views of one buffer ---- */

static void overlaps(void **state)
{
    (void)state;
    static float buffer[64];
    const dv_device cpu = { DV_CPU, 0 };
    const dv_dtype f32 = dv_dtype_from_key(DV_DTYPE_f32);
    const int64_t n8[] = { 8 }, one[] = { 1 }, two[] = { 2 };
    static const struct {
        int64_t a, b, c;
        const int stride_b;
        bool swap, swap_aliased, swiglu;
        const char *fragment;
    } places[] = {
        /* where x, y (and out) begin; are they refused? */
        { 0, 8, 16, 1, false, false, false, NULL },
        { 0, 7, 16, 1, true, false, false, "argument 'x': would be written, but overlaps argument 'y'" },
        { 0, 0, 16, 1, true, false, false, "overlaps argument 'y'" },
        { 8, 1, 16, 1, true, false, false, "overlaps argument 'y'" },
        { 0, 16, 8, 2, false, false, false, NULL },
        { 0, 8, 4, 1, false, false, true, "result 'out': would be written, but overlaps argument 'gate'" },
        { 0, 16, 16, 1, false, false, true, "overlaps argument 'up'" },
        { 0, 16, 17, 2, false, false, true, "overlaps argument 'up'" },
    };
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        dv_tensor x, y, out;
        CALL_OK(dv_tensor_init(&x, buffer + places[i].a, f32, cpu, 1, n8, one, NULL));
        CALL_OK(dv_tensor_init(&y, buffer + places[i].b, f32, cpu, 1, n8, places[i].stride_b == 2 ? two : one, NULL));
        CALL_OK(dv_tensor_init(&out, buffer + places[i].c, f32, cpu, 1, n8, one, NULL));
        const dv_value args[2] = { dv_from_tensor(&x), dv_from_tensor(&y) };
        dv_value result = dv_from_tensor(&out);
        for (int again = 0; again < 2; again++) { /* what a thread remembers changes nothing */
            assert_int_equal(dv_call(find("swap_"), args, 2, NULL, 0, NULL), places[i].swap ? DV_EALIAS : DV_OK);
            if (places[i].swap)
                assert_non_null(strstr(dv_last_error(), places[i].fragment));
            assert_int_equal(dv_call(find("swap_aliased"), args, 2, NULL, 0, NULL), places[i].swap_aliased ? DV_EALIAS : DV_OK);
            const bool bad = places[i].swiglu;
            assert_int_equal(dv_call(find("swiglu"), args, 2, &result, 1, NULL), bad ? DV_EALIAS : DV_OK);
            if (bad)
                assert_non_null(strstr(dv_last_error(), places[i].fragment));
        }
    }
    dv_tensor x, y;
    CALL_OK(dv_tensor_init(&x, buffer, f32, cpu, 1, n8, two, NULL)); /* interleaved: apart */
    CALL_OK(dv_tensor_init(&y, buffer + 1, f32, cpu, 1, n8, two, NULL));
    const dv_value args[2] = { dv_from_tensor(&x), dv_from_tensor(&y) };
    CALL_OK(dv_call(find("swap_"), args, 2, NULL, 0, NULL));
    const dv_tensor *list[2] = { &x, &x };
    const dv_value all[2] = { dv_from_tensors(list, 2), dv_from_float(1) };
    CALL_FAILS(DV_EALIAS, "argument 'xs[0]': would be written, but overlaps argument 'xs[1]'",
        dv_call(find("fill_all"), all, 2, NULL, 0, NULL));
}

/* A call that is remembered, then the same with one thing changed that must be noticed. */
static void remembered(void **state)
{
    (void)state;
    static float buffer[64];
    const dv_device cpu = { DV_CPU, 0 };
    const dv_dtype f32 = dv_dtype_from_key(DV_DTYPE_f32), i32 = dv_dtype_from_key(DV_DTYPE_i32);
    const int64_t n8[] = { 8 }, n7[] = { 7 }, one[] = { 1 }, zero[] = { 0 };
    dv_tensor good[3], t[3];
    for (int i = 0; i < 3; i++)
        CALL_OK(dv_tensor_init(&good[i], buffer + 8 * i, f32, cpu, 1, n8, one, NULL));
    const dv_value args[2] = { dv_from_tensor(&t[0]), dv_from_tensor(&t[1]) };
    dv_value result = dv_from_tensor(&t[2]);
    dv_operator *op = find("swiglu");
    for (int change = 0; change < 20; change++) {
        memcpy(t, good, sizeof t);
        for (int k = 0; k < 3; k++)
            CALL_OK(dv_call(op, args, 2, &result, 1, NULL));
        dv_tensor *one_of = &t[change % 3];
        switch (change / 3) {
        case 0: one_of->shape = n7; break;
        case 1: one_of->dtype = i32; break;
        case 2: one_of->device.type = DV_CUDA; break;
        case 3: one_of->data = NULL; break;
        case 4: one_of->ndim = 0; break;
        case 5:
            if (change % 3 == 2)
                one_of->strides = zero; /* a result that overlaps itself */
            else
                t[2].data = (char *)one_of->data + 4;
            break;
        default: t[2].data = (char *)t[0].data - 4 * (change - 17); break;
        }
        if (!dv_call(op, args, 2, &result, 1, NULL))
            fail_msg("change %d was not noticed", change);
    }
    memcpy(t, good, sizeof t);
    CALL_OK(dv_call(op, args, 2, &result, 1, NULL));
    CALL_FAILS(DV_EINVAL, "missing", dv_call(op, args, 1, &result, 1, NULL));
    CALL_FAILS(DV_EINVAL, "expected 1 results", dv_call(op, args, 2, &result, 0, NULL));
    /* scalars: a predicate that was true */
    dv_value two[2] = { dv_from_tensor(&t[0]), dv_from_int(4) }, out = dv_default();
    CALL_OK(dv_set_isa("base"));
    for (int k = 0; k < 3; k++) {
        CALL_OK(dv_call(find("pick"), two, 2, &out, 1, NULL));
        assert_string_equal(picked, "pick_f32_big");
    }
    two[1] = dv_from_int(3);
    CALL_OK(dv_call(find("pick"), two, 2, &out, 1, NULL));
    assert_string_equal(picked, "pick_f32");
    CALL_OK(dv_set_isa(NULL));
    CALL_OK(dv_call(find("pick"), two, 2, &out, 1, NULL));
    assert_string_equal(picked, !strcmp(dv_get_isa(), "base") ? "pick_f32" : PICK_ISA);
    two[1] = dv_from_bool(true);
    CALL_FAILS(DV_ETYPE, "found bool", dv_call(find("pick"), two, 2, &out, 1, NULL));
    dv_tensor_unref(tensor_of(&out));
    /* the policy, a new kernel, an unloaded library */
    dv_value x[1] = { dv_from_tensor(&t[0]) }, y = dv_from_tensor(&t[2]);
    buffer[0] = 3;
    for (int k = 0; k < 3; k++)
        CALL_OK(dv_call(find("composed"), x, 1, &y, 1, NULL));
    assert_true(buffer[16] == -1);
    CALL_OK(dv_policy_set_thread("none"));
    CALL_OK(dv_call(find("composed"), x, 1, &y, 1, NULL));
    assert_true(buffer[16] == 7);
    CALL_OK(dv_policy_set_thread(NULL));
    CALL_OK(dv_call(find("composed"), x, 1, &y, 1, NULL));
    assert_true(buffer[16] == -1);
}

static int by_hand(void *user, dv_operator *op, const dv_value *args, size_t nargs, dv_value *r, size_t nr, const dv_host *host)
{
    (void)op, (void)args, (void)nargs, (void)r, (void)nr, (void)host;
    ++*(int *)user;
    return DV_OK;
}

static void registrations_are_noticed(void **state)
{
    (void)state;
    static float buffer[16];
    const int64_t n8[] = { 8 }, one[] = { 1 };
    const dv_device cpu = { DV_CPU, 0 };
    dv_tensor a, b;
    dv_library *lib;
    int calls = 0;
    CALL_OK(dv_tensor_init(&a, buffer, dv_dtype_from_key(DV_DTYPE_f32), cpu, 1, n8, one, NULL));
    CALL_OK(dv_tensor_init(&b, buffer + 8, dv_dtype_from_key(DV_DTYPE_f32), cpu, 1, n8, one, NULL));
    dv_value x[1] = { dv_from_tensor(&a) }, y = dv_from_tensor(&b);
    for (int k = 0; k < 3; k++)
        CALL_OK(dv_call(find("twice"), x, 1, &y, 1, NULL));
    CALL_OK(dv_library_new(DV_LIBRARY_IMPL, "tc", DV_KEY_CPU, &lib));
    CALL_OK(dv_library_impl(lib, "twice", DV_KEY_NONE, by_hand, &calls));
    CALL_OK(dv_call(find("twice"), x, 1, &y, 1, NULL));
    assert_int_equal(calls, 1);
    dv_library_free(lib);
    CALL_OK(dv_call(find("twice"), x, 1, &y, 1, NULL));
    assert_int_equal(calls, 1);
    dv_operator *op = dv_operator_ref(find("twice"));
    for (int k = 0; k < 3; k++)
        CALL_OK(dv_call(op, x, 1, &y, 1, NULL));
    dv_library_free(tc);
    CALL_FAILS(DV_EUNLOADED, "tc::twice: the operator's library was unloaded", dv_call(op, x, 1, &y, 1, NULL));
    dv_operator_unref(op);
    load_tc(state);
    CALL_OK(dv_call(find("twice"), x, 1, &y, 1, NULL));
    CALL_FAILS(DV_EINVAL, "NULL", dv_call(NULL, x, 1, &y, 1, NULL));
    CALL_FAILS(DV_EINVAL, "array is NULL", dv_call(find("twice"), NULL, 1, &y, 1, NULL));
    CALL_FAILS(DV_EINVAL, "array is NULL", dv_call(find("twice"), x, 1, NULL, 1, NULL));
    const dv_value odd = { .type = 77 }, null_tensor = { .type = DV_VALUE_TENSOR };
    CALL_FAILS(DV_ETYPE, "type 77", dv_call(find("twice"), &odd, 1, &y, 1, NULL));
    CALL_FAILS(DV_ETYPE, "found NULL", dv_call(find("twice"), &null_tensor, 1, &y, 1, NULL));
    a.data = NULL;
    CALL_FAILS(DV_EINVAL, "without memory", dv_call(find("twice"), x, 1, &y, 1, NULL));
}

static dv_library *fixed_library;
static int setup(void **state) { return load_tc(state) || dv_load_static(&dv_library_tc_fixed, &fixed_library); }
static int teardown(void **state)
{
    dv_library_free(fixed_library);
    return unload_tc(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong),
        cmocka_unit_test(overlaps),
        cmocka_unit_test(remembered),
        cmocka_unit_test(registrations_are_noticed),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
