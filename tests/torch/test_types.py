"""Types: what C's shims carry and what goes by Python; values at their limits, None, empty and nested; limits of size and number."""

import pytest
import torch

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


def test_a_twin_goes_with_its_operator(fresh):
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
