"""Types: those that C's shims carry, and those that are passed through Python; values at their limits, None, empty and nested; limits of size and number."""

import gc
import subprocess
import sys

import numpy
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from conftest import one
from test_call import resident

import dovetail
from dovetail.torch import register, unregister

HEADER = """#include <dovetail_op.h>
static inline double *numbers(const dv_tensor *out) { return out->data; }
static inline double first(const dv_tensor *t) { return t ? (double)((const float *)t->data)[0] : -1; }
"""

# ---- by Python: Scalar, complex, SymBool, Generator ----------------------------------------------------------------------------

PYTHON = HEADER + """
struct packed { const dv_tensor *x; dv_scalar s; dv_opt_scalar os; dv_scalars ss; dv_opt_scalars oss; dv_complex c; dv_opt_complex oc;
                dv_complexes cs; bool sb; dv_string text; dv_tensor *out; };
static double *put(double *o, dv_scalar s)
{
    *o++ = s.kind;
    *o++ = s.kind == DV_SCALAR_INT ? (double)s.as.i : s.kind == DV_SCALAR_BOOL ? s.as.b : s.kind == DV_SCALAR_FLOAT ? s.as.f : s.as.c.re;
    *o++ = s.kind == DV_SCALAR_COMPLEX ? s.as.c.im : s.kind == DV_SCALAR_INT ? (double)(s.as.i & 0xffff) : 0;
    return o;
}
static int packed(dv_context *ctx, const struct packed *a)
{
    (void)ctx;
    double *o = numbers(a->out);
    o = put(o, a->s);
    *o++ = a->os.has;
    o = put(o, a->os.has ? a->os.value : (dv_scalar){ 0 });
    *o++ = (double)a->ss.size;
    o = put(o, a->ss.size ? a->ss.data[a->ss.size - 1] : (dv_scalar){ 0 });
    *o++ = a->oss.has ? (double)a->oss.value.size : -1;
    *o++ = a->c.re, *o++ = a->c.im;
    *o++ = a->oc.has, *o++ = a->oc.value.im;
    *o++ = (double)a->cs.size;
    *o++ = a->cs.size ? a->cs.data[a->cs.size - 1].im : -1;
    *o++ = a->sb;
    *o++ = (double)a->text.size;
    return DV_OK;
}
DV_OPERATOR(packed, struct packed, (x, s, os, ss, oss, c, oc, cs, sb, text, out),
    .schema = "packed(Tensor x, Scalar s, Scalar? os, Scalar[] ss, Scalar[]? oss, complex c, complex? oc, complex[] cs, SymBool sb, *, str text='ab') -> Tensor out",
    .contract = "x[...]:f32 -> out[20]:f64", .kernels = DV_KERNELS(DV_KERNEL(struct packed, "cpu", "f32", packed)));

struct scaled { const dv_tensor *x; dv_scalar alpha; dv_tensor *out; };
static int scaled(dv_context *ctx, const struct scaled *a)
{
    const double by = a->alpha.kind == DV_SCALAR_INT ? (double)a->alpha.as.i : a->alpha.as.f;
    if (a->alpha.kind != DV_SCALAR_INT && a->alpha.kind != DV_SCALAR_FLOAT)
        return dv_error(ctx, DV_EKERNEL, "alpha of kind %u", a->alpha.kind);
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++)
        numbers(a->out)[i] = ((const double *)a->x->data)[i] * by;
    return DV_OK;
}
DV_OPERATOR(scaled, struct scaled, (x, alpha, out), .schema = "scaled.Scalar(Tensor x, Scalar alpha=2) -> Tensor out",
    .contract = "x[*s]:f64 -> out[*s]:f64; parallel(*s)", .gradient = "x: scaled(grad, alpha)",
    .kernels = DV_KERNELS(DV_KERNEL(struct scaled, "cpu", "f64", scaled)));

struct fill_ { dv_tensor *x; dv_scalar value; };
static int fill_(dv_context *ctx, const struct fill_ *a)
{
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++)
        ((float *)a->x->data)[i] = (float)a->value.as.i;
    return DV_OK;
}
DV_OPERATOR(fill_, struct fill_, (x, value), .schema = "fill_(Tensor(a!) x, Scalar value) -> Tensor(a!)", .contract = "x[*s]:f32 -> [*s]:f32",
    .kernels = DV_KERNELS(DV_KERNEL(struct fill_, "cpu", "f32", fill_)));

DV_LIBRARY(types_python, &dv_op_packed, &dv_op_scaled, &dv_op_fill_);
"""
NAMES = ("kind value more has okind ovalue omore nss sskind ssvalue ssmore noss re im hasc oim ncs csim sb text").split()


@pytest.fixture
def python(fresh):
    library = fresh(PYTHON, register_it=False)
    with pytest.raises(RuntimeError, match="types_python::packed: argument 's': torch's C shims carry no Scalar"):
        register(library)
    assert not register(library, strict=False).skipped
    return torch.ops.types_python


def packed(ops, **changed):
    arguments = dict(x=torch.ones(2), s=1, os=None, ss=[], oss=None, c=0j, oc=None, cs=[], sb=False)
    return dict(zip(NAMES, ops.packed(**{**arguments, **changed}).tolist()))


@pytest.mark.parametrize("changed, expected", [
    ({}, {"kind": 1, "value": 1, "has": 0, "nss": 0, "noss": -1, "hasc": 0, "ncs": 0, "sb": 0, "text": 2}),
    ({"s": 2**63 - 1}, {"kind": 1, "value": 2.0**63, "more": 0xffff}),
    ({"s": -(2**63)}, {"kind": 1, "value": -(2.0**63), "more": 0}),
    ({"s": 2.5, "os": -1e300}, {"kind": 2, "value": 2.5, "has": 1, "okind": 2, "ovalue": -1e300}),
    ({"s": float("inf"), "os": 5e-324}, {"value": float("inf"), "ovalue": 5e-324}),
    ({"s": True, "os": False}, {"kind": 3, "value": 1, "has": 1, "okind": 3, "ovalue": 0}),
    ({"s": 1 - 2j, "os": 0}, {"kind": 4, "value": 1, "more": -2, "has": 1, "okind": 1, "ovalue": 0}),
    ({"ss": [1, 2.5, True, 3j]}, {"nss": 4, "sskind": 4, "ssvalue": 0, "ssmore": 3}),
    ({"ss": [1] * 1000 + [-7], "oss": []}, {"nss": 1001, "sskind": 1, "ssvalue": -7, "noss": 0}),
    ({"c": complex("-inf+1e-300j"), "oc": 2j}, {"re": -float("inf"), "im": 1e-300, "hasc": 1, "oim": 2}),
    ({"c": 3, "oc": 0j, "cs": [1, 2j, 1 - 5j]}, {"re": 3, "im": 0, "hasc": 1, "oim": 0, "ncs": 3, "csim": -5}),
    ({"sb": True, "text": "é\0x"}, {"sb": 1, "text": 4}),
])
def test_what_the_shims_do_not_carry_goes_by_python(python, changed, expected):
    found = packed(python, **changed)
    assert {k: found[k] for k in expected} == expected


def test_a_nan_scalar_is_a_nan(python):
    assert packed(python, s=float("nan"))["value"] != packed(python, s=1)["value"] and packed(python, s=float("nan"))["kind"] == 2


def test_errors_by_python_are_the_same(python):
    with pytest.raises(RuntimeError, match=r"types_python::packed: argument 's': expected a number of 64 bits, found 9223372036854775808"):
        packed(python, s=2**63)
    with pytest.raises(RuntimeError, match="types_python::packed: argument 'x': expected dtype f32, found f64"):
        packed(python, x=torch.ones(1, dtype=torch.float64))
    with pytest.raises(RuntimeError, match="types_python::scaled.Scalar: alpha of kind 4"):
        python.scaled(torch.ones(1, dtype=torch.float64), 1j)


def test_all_that_follows_from_a_declaration_follows_by_python_too(python):
    x = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    for alpha in (2, 0.5):
        torch.library.opcheck(python.scaled.Scalar, (x, alpha))
        assert torch.equal(python.scaled(x, alpha), x * alpha)
    assert torch.equal(python.scaled(x), x * 2)
    assert torch.autograd.gradcheck(lambda x: python.scaled(x, 0.5), (x,)) and torch.autograd.gradgradcheck(lambda x: python.scaled(x, 3), (x,))
    compiled = torch.compile(lambda x, a: python.scaled(x.sin(), a) + 1, fullgraph=True, backend="aot_eager", dynamic=True)
    for n, a in ((2, 2), (5, 0.25)):
        y = torch.randn(n, dtype=torch.float64, requires_grad=True)
        (grad,) = torch.autograd.grad(compiled(y, a).sum(), y)
        assert torch.allclose(grad, y.cos() * a)


def test_writing_by_python(python):
    x = torch.zeros(3)
    y = python.fill_(x, 7)
    assert y.data_ptr() == x.data_ptr() and x.tolist() == [7, 7, 7] and x._version == 1
    leaf = torch.zeros(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="leaf"):
        python.fill_(leaf, 1)
    assert leaf.tolist() == [0, 0, 0]


def test_a_packed_operator_goes_with_its_operator(fresh):
    library = fresh(PYTHON.replace("types_python", "types_gone"), register_it=False)
    x = torch.ones(2, dtype=torch.float64)
    for _ in range(2):
        register(library, strict=False)
        held = torch.ops.types_gone.scaled.Scalar
        assert held(x, 3).tolist() == [3, 3]
        unregister(library)
        with pytest.raises(RuntimeError, match="types_gone::scaled.Scalar: its library was unloaded"):
            held(x, 3)


# ---- random numbers ------------------------------------------------------------------------------------------------------------

RANDOM = HEADER + """
struct draw { const dv_tensor *x; const dv_generator *g; dv_tensor *out; };
static int draw(dv_context *ctx, const struct draw *a)
{
    uint64_t seed, offset;
    for (int64_t i = 0; i < dv_numel(a->out); i++) {
        const int status = dv_random(ctx, a->g, 4, &seed, &offset);
        if (status)
            return status;
        numbers(a->out)[i] = (double)((seed ^ offset * 0x9e3779b97f4a7c15u) >> 12);
    }
    return DV_OK;
}
DV_OPERATOR(draw, struct draw, (x, g, out), .schema = "draw(Tensor x, *, Generator? generator=None) -> Tensor out", .contract = "x[n]:f32 -> out[n]:f64",
    .kernels = DV_KERNELS(DV_KERNEL(struct draw, "cpu", "f32", draw)));
DV_LIBRARY(types_random, &dv_op_draw);
""".replace("*g;", "*generator;").replace("a->g,", "a->generator,").replace("(x, g, out)", "(x, generator, out)")


def drawn(f, seed, **kwargs):
    torch.manual_seed(seed)
    return f(torch.empty(3), **kwargs).tolist()


def test_torchs_seed_governs_random_numbers(fresh):
    library = fresh(RANDOM, register_it=False)
    register(library, strict=False)
    draw = torch.ops.types_random.draw
    assert drawn(draw, 1) == drawn(draw, 1) != drawn(draw, 2)
    assert len(set(drawn(draw, 1))) == 3
    torch.manual_seed(1)
    assert draw(torch.empty(3)).tolist() != draw(torch.empty(3)).tolist()


def test_a_generator_is_drawn_from(fresh):
    library = fresh(RANDOM, register_it=False)
    register(library, strict=False)
    draw = torch.ops.types_random.draw
    made = lambda seed: torch.Generator().manual_seed(seed)  # noqa: E731
    before = torch.get_rng_state()
    g = made(5)
    one, two = draw(torch.empty(3), generator=g).tolist(), draw(torch.empty(3), generator=g).tolist()
    assert one != two and one == draw(torch.empty(3), generator=made(5)).tolist() != draw(torch.empty(3), generator=made(6)).tolist()
    assert torch.equal(before, torch.get_rng_state())  # the default one was left alone


def test_a_generator_is_carried_by_the_shims_from_2_13_on(fresh):
    library = fresh(RANDOM, register_it=False)
    if tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 13):
        assert list(register(library).operators) == ["types_random::draw"]
    else:
        with pytest.raises(RuntimeError, match="no Generator before torch 2.13"):
            register(library)


# ---- by the shims: what test_call's `everything` has not --------------------------------------------------------------------------

CARRIED = HEADER + """
struct lists { const dv_tensor *x; dv_opt_tensors a, b; dv_opt_floats f; dv_opt_bools bo; dv_opt_strings st; dv_dtypes dt; dv_devices dev; dv_ints pair;
               dv_opt_device od; dv_tensor *out; };
static int lists(dv_context *ctx, const struct lists *a)
{
    double *o = numbers(a->out), holes = 0;
    (void)ctx;
    *o++ = a->a.has ? (double)a->a.value.size : -1;
    *o++ = a->a.has && a->a.value.size ? first(a->a.value.data[a->a.value.size - 1]) : -1;
    *o++ = a->b.has ? (double)a->b.value.size : -1;
    for (size_t i = 0; a->b.has && i < a->b.value.size; i++)
        holes += !a->b.value.data[i];
    *o++ = holes;
    *o++ = a->f.has ? (double)a->f.value.size : -1;
    *o++ = a->f.has && a->f.value.size ? a->f.value.data[0] : -1;
    *o++ = a->bo.has ? (double)a->bo.value.size : -1;
    *o++ = a->st.has ? (double)a->st.value.size : -1;
    *o++ = a->st.has && a->st.value.size ? (double)a->st.value.data[0].size : -1;
    *o++ = (double)a->dt.size;
    *o++ = a->dt.size ? a->dt.data[a->dt.size - 1].bits : -1;
    *o++ = (double)a->dev.size;
    *o++ = a->dev.size ? a->dev.data[a->dev.size - 1].type : -1;
    *o++ = a->dev.size ? a->dev.data[a->dev.size - 1].id : -1;
    *o++ = (double)a->pair.data[0], *o++ = (double)a->pair.data[1];
    *o++ = a->od.has ? a->od.value.type : -1;
    return DV_OK;
}
DV_OPERATOR(lists, struct lists, (x, a, b, f, bo, st, dt, dev, pair, od, out),
    .schema = "lists(Tensor x, ScalarType[] dt, Device[] dev, Tensor[]? a=None, Tensor?[]? b=None, float[]? f=None, bool[]? bo=None, str[]? st=None, "
              "int[2] pair=1, Device? od=None) -> Tensor out",
    .contract = "x[...]:f32, a{i}[...]:f32, b{i}[...]:f32 -> out[17]:f64", .kernels = DV_KERNELS(DV_KERNEL(struct lists, "cpu", "f32", lists)));

struct results { const dv_tensor *x; int64_t i; double f; bool b; dv_tensor *out, *more; int64_t *n; double *g; bool *c; };
static int results(dv_context *ctx, const struct results *a)
{
    (void)ctx;
    memcpy(a->out->data, a->x->data, (size_t)dv_numel(a->x) * 4);
    if (a->more)
        memcpy(a->more->data, a->x->data, (size_t)dv_numel(a->x) * 4);
    *a->n = a->i, *a->g = a->f, *a->c = a->b;
    return DV_OK;
}
DV_OPERATOR(results, struct results, (x, i, f, b, out, more, n, g, c),
    .schema = "results(Tensor x, SymInt i, float f, bool b) -> (Tensor out, Tensor more, SymInt n, float g, bool c)",
    .contract = "when b: x[*s]:f32 -> out[*s]:f32, more[*s]:f32 / not b: x[*s]:f32 -> out[*s]:f32, more absent",
    .kernels = DV_KERNELS(DV_KERNEL(struct results, "cpu", "f32", results)));

struct all_ { dv_mut_tensors xs; };
static int all_(dv_context *ctx, const struct all_ *a)
{
    (void)ctx;
    for (size_t i = 0; i < a->xs.size; i++)
        ((float *)a->xs.data[i]->data)[0] += 1;
    return DV_OK;
}
DV_OPERATOR(all_, struct all_, (xs), .schema = "all_(Tensor(a!)[] xs) -> ()", .contract = "xs{i}[...]:f32",
    .kernels = DV_KERNELS(DV_KERNEL(struct all_, "cpu", "f32", all_)));

DV_LIBRARY(types_carried, &dv_op_lists, &dv_op_results, &dv_op_all_);
"""
LISTS = ("na a nb holes nf f nbo nst st ndt dt ndev dev devid p0 p1 od").split()


@pytest.fixture
def carried(fresh):
    fresh(CARRIED)
    return torch.ops.types_carried


X, DEEP = torch.ones(1), ["é" * 1000, "", "a\0b"]


@pytest.mark.parametrize("changed, expected", [
    ({}, {"na": -1, "nb": -1, "nf": -1, "nbo": -1, "nst": -1, "ndt": 0, "ndev": 0, "p0": 1, "p1": 1, "od": -1}),
    ({"a": [], "b": [], "f": [], "bo": [], "st": []}, {"na": 0, "nb": 0, "nf": 0, "nbo": 0, "nst": 0}),
    ({"a": [X, X * 3]}, {"na": 2, "a": 3}),
    ({"b": [None, X, None]}, {"nb": 3, "holes": 2}),
    ({"b": [None] * 500 + [X]}, {"nb": 501, "holes": 500}),
    ({"f": [1e308, float("nan")], "bo": [True] * 9}, {"nf": 2, "f": 1e308, "nbo": 9}),
    ({"st": DEEP}, {"nst": 3, "st": 2000}),
    ({"dt": [torch.int8, torch.complex128]}, {"ndt": 2, "dt": 128}),
    ({"dev": ["cpu", "cuda:3"], "od": "meta"}, {"ndev": 2, "dev": 2, "devid": 3, "od": 1000}),
    ({"dev": [torch.device("cuda", 127)]}, {"devid": 127}),
    ({"pair": 7}, {"p0": 7, "p1": 7}),
    ({"pair": [2**53, -(2**53)]}, {"p0": 2**53, "p1": -(2**53)}),
])
def test_lists_and_optionals_in_each_other(carried, changed, expected):
    found = dict(zip(LISTS, carried.lists(X, **{"dt": [], "dev": [], **changed}).tolist()))
    assert {k: found[k] for k in expected} == expected


@pytest.mark.parametrize("i, f, b", [(2**63 - 1, 5e-324, True), (-(2**63), float("-inf"), False), (0, -0.0, True)])
def test_results_of_every_kind(carried, i, f, b):
    out, more, n, g, c = carried.results(X, i, f, b)
    assert torch.equal(out, X) and (torch.equal(more, X) if b else more is None)
    assert (n, c) == (i, b) and type(c) is bool and str(g) == str(f)


OPTIONAL = """#include <dovetail_op.h>
struct halves { const dv_tensor *x; bool more; dv_tensor *out, *rest; };
static int halves(dv_context *ctx, const struct halves *a)
{
    (void)ctx;
    const float *x = a->x->data;
    for (int64_t i = 0; i < dv_numel(a->x); i++)
        ((float *)a->out->data)[i] = 2 * x[i];
    for (int64_t i = 0; a->rest && i < dv_numel(a->x); i++)
        ((float *)a->rest->data)[i] = 3 * x[i];
    return DV_OK;
}
DV_OPERATOR(halves, struct halves, (x, more, out, rest), .schema = "halves(Tensor x, bool more=False) -> (Tensor out, Tensor? rest)",
    .contract = "x[*s]:f32 -> out[*s]:f32; when more: -> rest[*s]:f32 / else: -> rest absent",
    .gradient = "x: if(more, 2*grads[0] + 3*grads[1], 2*grads[0])", .kernels = DV_KERNELS(DV_KERNEL(struct halves, "cpu", "f32", halves)));
DV_LIBRARY(types_optional, &dv_op_halves);
"""


@pytest.mark.parametrize("more", [False, True])
def test_an_optional_result_may_be_absent(load, more):
    lib, x = load(OPTIONAL), torch.arange(4.0)
    for one in (x.numpy(), x):
        out, rest = lib.halves(one, more)
        assert out.tolist() == [0, 2, 4, 6] and (rest.tolist() == [0, 3, 6, 9] if more else rest is None)
    op = torch.ops.types_optional.halves
    for device in ("meta", "cpu"):
        with FakeTensorMode():
            out, rest = op(torch.empty(4, device=device), more)
        assert out.shape == (4,) and (rest.shape == (4,) if more else rest is None)

    def total(a):
        out, rest = op(a, more)
        return out.sum() if rest is None else (out + rest).sum()

    for f in (total, torch.compile(total, fullgraph=True, dynamic=True)):
        assert torch.func.grad(total)(x).tolist() == [5.0 if more else 2.0] * 4
        y = x.clone().requires_grad_()
        f(y).backward()
        assert y.grad.tolist() == [5.0 if more else 2.0] * 4
    torch.library.opcheck(op.default, (x.clone().requires_grad_(), more))


def test_handles_on_the_stack_are_freed(carried, python):
    """Results, elements of lists, boxes of optionals, strings, on the way there and after an error on the way."""
    bad = torch.ones(1, dtype=torch.float64)

    def work():
        carried.lists(X, [torch.int8], ["cpu"], [X, X], [None, X], [1.0], [True], DEEP, [1, 2], "cpu")
        carried.results(X, 1, 2.0, True), carried.results(X, 1, 2.0, False)
        carried.all_([torch.ones(1), torch.ones(2)])
        packed(python, ss=[1.5] * 50, oss=[1j], cs=[1j] * 50, os=2)
        for f in (lambda: carried.lists(bad, [torch.int8], ["cpu"], [X], [None, X], None, None, DEEP), lambda: carried.results(bad, 1, 2.0, True), lambda: carried.all_([X, X]),
                  lambda: packed(python, x=bad, ss=[1] * 50)):
            with pytest.raises(RuntimeError):
                f()

    for _ in range(300):
        work()
    gc.collect()
    before = resident()
    for _ in range(1000):
        work()
    gc.collect()
    assert resident() - before < 1_000_000  # one 64-byte handle for each of a round's 60 would be 4 MB


# ---- limits --------------------------------------------------------------------------------------------------------------------

def many(n, m):
    """An operator of n tensors and m results: result i is the sum of all arguments, times i."""
    arguments, results = [f"a{i}" for i in range(n)], [f"r{i}" for i in range(m)]
    fields = ", ".join(arguments + results)
    return f"""#include <dovetail_op.h>
struct f {{ const dv_tensor {", ".join("*" + a for a in arguments)}; dv_tensor {", ".join("*" + r for r in results)}; }};
static int f(dv_context *ctx, const struct f *a)
{{
    const dv_tensor *const in[] = {{ {", ".join("a->" + x for x in arguments)} }};
    dv_tensor *const out[] = {{ {", ".join("a->" + x for x in results)} }};
    float sum = 0;
    (void)ctx;
    for (int i = 0; i < {n}; i++)
        sum += ((const float *)in[i]->data)[0];
    for (int i = 0; i < {m}; i++)
        ((float *)out[i]->data)[0] = sum * (float)i;
    return DV_OK;
}}
DV_OPERATOR(f, struct f, ({fields}), .schema = "f({", ".join("Tensor " + a for a in arguments)}) -> ({", ".join("Tensor " + r for r in results)})",
    .contract = "{", ".join(a + "[1]:f32" for a in arguments)} -> {", ".join(r + "[1]:f32" for r in results)}",
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f32", f)));
DV_LIBRARY(types_many, &dv_op_f);"""


@pytest.mark.parametrize("n, m", [(64 - 32, 32), (63, 1), (1, 32)])
def test_many_arguments_and_results(fresh, n, m):
    fresh(many(n, m))
    inputs = [torch.tensor([float(i)]) for i in range(n)]
    found = torch.ops.types_many.f(*inputs)
    total = n * (n - 1) / 2
    assert [x.item() for x in (found if m > 1 else [found])] == [total * i for i in range(m)]
    with FakeTensorMode():
        assert len(torch.ops.types_many.f(*(torch.empty(1) for _ in range(n)))) == m
    with pytest.raises(RuntimeError, match=f"types_many::f: argument 'a{n - 1}': expected"):
        torch.ops.types_many.f(*inputs[:-1], torch.ones(2))


def test_lists_of_ten_thousand_tensors(ops, carried):
    xs = [torch.tensor([float(i)]) for i in range(10_000)]
    assert torch.equal(ops.cat(xs), torch.arange(10_000.0))
    assert ops.everything(xs[0], None, xs, [None] * 10_000, 1, None, 1.0, None, True, None, "", None, list(range(10_000)), None, [], [], ["x"] * 10_000,
                          torch.int8, None, "cpu").tolist()[2:6] == [10_000, 9_999, 10_000, -1]
    written = [torch.zeros(1) for _ in range(1000)]
    carried.all_(written)
    assert all(x.item() == 1 and x._version == 1 for x in written)
    with pytest.raises(RuntimeError, match="torch_ops::cat: .*xs.*9999.*expected"):
        ops.cat(xs[:-1] + [torch.ones(1, dtype=torch.float64)])


def test_strings_of_every_kind(ops):
    x = torch.ones(2, 2)
    with pytest.raises(RuntimeError, match="the kernel says: wörld €"):
        ops.fail_if(x, 1, "wörld €")
    with pytest.raises(RuntimeError, match="the kernel says: before$"):  # the kernel reads it as C's strings are read
        ops.fail_if(x, 1, "before\0after")
    with pytest.raises(RuntimeError, match="the kernel says: %s %n"):
        ops.fail_if(x, 1, "%s %n")
    with pytest.raises(RuntimeError, match="torch_ops::fail_if: the kernel says: xxxx"):
        ops.fail_if(x, 1, "x" * 100_000)


def test_dims_up_to_torchs_limit(ops, fresh):
    fresh(one("types_dims"))
    f = torch.ops.types_dims.f
    assert f(torch.tensor(2.0)).shape == () and f(torch.tensor(2.0)).item() == 3
    for n in (1, 25, 64):
        assert f(torch.zeros([1] * n)).shape == (1,) * n
    with pytest.raises(RuntimeError, match="types_dims::f: argument 'x': .*65"):
        f(torch.zeros([1] * 65))
    with pytest.raises(RuntimeError, match="torch_ops::like: at most 8 dims"):
        ops.like(torch.zeros([1] * 9))


def test_sizes_near_the_limit_of_64_bits(ops, fresh):
    fresh(one("types_huge"))
    f = torch.ops.types_huge.f
    with pytest.raises(RuntimeError, match="types_huge::f: argument 'x': its sizes and strides reach beyond what an address can hold"):
        f(torch.empty(0, dtype=torch.float32).as_strided((0, 2**62), (1, 1)))
    for shape in ((2**62,), (2**31, 2**31), (2**40,)):  # memory that is not there: an error of torch's allocator, or ours, with the name
        with pytest.raises(RuntimeError, match="types_huge::f"):
            f(torch.empty(1).expand(shape))
    with pytest.raises(RuntimeError, match="torch_ops::cat"):
        ops.cat([torch.empty(1).expand(2**62), torch.empty(1).expand(2**62), torch.empty(1).expand(2**62)])
    with FakeTensorMode(), pytest.raises(RuntimeError):
        f(torch.empty(2**62, 4))


RETURNS_A_LIST = HEADER + """
struct f { const dv_tensor *x; dv_mut_tensors out; };
static int f(dv_context *ctx, const struct f *a) { (void)ctx, (void)a; return DV_OK; }
DV_OPERATOR(f, struct f, (x, out), .schema = "f(Tensor x) -> Tensor[] out", .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", NULL, f)));
DV_LIBRARY(types_returns, &dv_op_f);
"""


def test_a_returned_list_is_refused(fresh, load):
    with pytest.raises(RuntimeError, match="types_returns::f: result 'out': a list of tensors cannot be made"):
        fresh(RETURNS_A_LIST)
    with pytest.warns(UserWarning, match="not registered in torch: types_returns::f"):
        library = load(RETURNS_A_LIST)
    with pytest.raises(RuntimeError, match="types_returns::f: result 'out'"):
        register(library)
    with pytest.raises(RuntimeError, match="not registered in torch: types_returns::f: .*a list of tensors cannot be made"):
        library.f(torch.ones(2))


OVERLOADS = HEADER + """
struct f { const dv_tensor *x; dv_tensor *out; };
static int once(dv_context *ctx, const struct f *a) { (void)ctx; *(float *)a->out->data = *(const float *)a->x->data; return DV_OK; }
static int twice(dv_context *ctx, const struct f *a) { (void)ctx; *(float *)a->out->data = *(const float *)a->x->data * 2; return DV_OK; }
DV_OPERATOR(once, struct f, (x, out), .schema = "f(Tensor x) -> Tensor out", .contract = "x[1]:f32 -> out[1]:f32",
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f32", once)));
DV_OPERATOR(twice, struct f, (x, out), .schema = "f.twice(Tensor x) -> Tensor out", .contract = "x[1]:f32 -> out[1]:f32",
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f32", twice)));
DV_LIBRARY(types_overloads, &dv_op_once, &dv_op_twice);
"""


def test_an_overload_that_torch_refuses_is_not_replaced_by_another(load):
    x = torch.ones(1)
    with torch.library._scoped_library("types_overloads", "FRAGMENT") as theirs:
        theirs.define("f(Tensor x) -> Tensor")
        with pytest.warns(UserWarning, match="not registered in torch: types_overloads::f: torch refused the schema"):
            library = load(OVERLOADS)
        f = library.f
        assert f(numpy.ones(1, "float32")) == 1 and f.twice(x) == 2
        for call in (f, f.overloads[0], torch.compile(f), torch.compile(lambda x: f(x) + 1, backend="eager")):
            with pytest.raises(RuntimeError, match="not registered in torch: types_overloads::f: torch refused the schema"):
                call(x)
        library.close()  # first: torch aborts where the library of an overload goes after that of another, also without Dovetail


def test_a_warning_that_is_an_error_does_not_end_the_import_of_torch(tmp_path):
    (tmp_path / "aten.c").write_text(OVERLOADS.replace("types_overloads", "aten").replace('"f(', '"relu(').replace('"f.', '"relu.'))
    code = "import dovetail; library = dovetail.load('aten.c'); import torch; print(torch.ones(2).sum().item(), library.relu)"
    r = subprocess.run([sys.executable, "-W", "error::UserWarning", "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert r.returncode == 0 and r.stdout.startswith("2.0") and "UserWarning: dovetail: not registered in torch: aten::relu" in r.stderr, r.stderr


TWO_OPERATORS = HEADER + """
struct f { const dv_tensor *x; FIELD dv_tensor *out; };
static int f(dv_context *ctx, const struct f *a) { (void)ctx; *(float *)a->out->data = *(const float *)a->x->data; return DV_OK; }
DV_OPERATOR(f, struct f, FIELDS, .schema = "f(Tensor x PARAMETER) -> Tensor out", .contract = "x[1]:T -> out[1]:T",
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f32", f)));
DV_OPERATOR(g, struct f, FIELDS, .schema = "g(Tensor x PARAMETER) -> Tensor out", .contract = "x[1]:T -> out[1]:T",
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f32", f)));
DV_LIBRARY(types_taken, &dv_op_f, &dv_op_g);
"""


@pytest.mark.parametrize("field, fields, parameter", [("", "(x, out)", ""), ("dv_scalar a;", "(x, a, out)", ", Scalar a=1")])  # Python defines the second
def test_an_operator_that_torch_refuses_does_not_hide_the_others(load, field, fields, parameter):
    with torch.library._scoped_library("types_taken", "FRAGMENT") as theirs:
        theirs.define("f(Tensor x) -> Tensor")
        with pytest.warns(UserWarning, match="not registered in torch: types_taken::f: torch refused the schema"):
            library = load(TWO_OPERATORS.replace("FIELDS", fields).replace("FIELD", field).replace(" PARAMETER", parameter))
        with pytest.raises(RuntimeError, match="types_taken::f: torch refused the schema"):
            register(library)
        with pytest.raises(RuntimeError, match="not registered in torch: types_taken::f: torch refused the schema"):
            library.f(torch.ones(1))
        assert library.f(numpy.full(1, 3, "float32"))[0] == 3 and library.g(torch.ones(1)).item() == 1
    assert torch.ops.types_taken.g(torch.ones(1)).item() == 1


DEFAULTS = """
#include <dovetail_op.h>
struct f { const dv_tensor *x; dv_scalars more; dv_complex c; dv_complexes cs; dv_device to; dv_string s; dv_tensor *out; };
static int f(dv_context *ctx, const struct f *a)
{
    double *o = a->out->data;
    (void)ctx;
    o[0] = a->c.im, o[1] = a->cs.data[1].im, o[2] = a->to.type, o[3] = (double)a->s.size;
    return DV_OK;
}
DV_OPERATOR(f, struct f, (x, more, c, cs, to, s, out),
    .schema = "f(Tensor x, *, Scalar[] more, complex c=-2.5j, complex[] cs=[1j, 2e-3j], Device to=\\"cpu\\", str s=\\"a Device d=x, 0.+1.j, \\") -> Tensor out",
    .contract = "x[]:f32 -> out[4]:f64", .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f32", f)));
DV_LIBRARY(defaults_torch_prints, &dv_op_f);
"""


def test_defaults_that_torch_prints_as_it_cannot_read_them(tmp_path):
    """A Device without quotes, and imaginary numbers; also where the operator is packed in Python (Scalar[])."""
    (tmp_path / "defaults.c").write_text(DEFAULTS)
    dovetail.load(tmp_path / "defaults.c")
    f, wanted = torch.ops.defaults_torch_prints.f, [-2.5, 2e-3, 1, 22]
    assert f(torch.ones(()), more=[1]).tolist() == wanted and f(torch.ones(()), more=[1], c=1 + 3j).tolist() == [3, *wanted[1:]]
    assert torch.compile(lambda x: f(x, more=[1, 2.5]), backend="aot_eager", fullgraph=True)(torch.ones(())).tolist() == wanted
