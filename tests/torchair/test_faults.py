"""Converters with one fault each. The oracle must find every one: the graph that torchair makes is validated against the prototypes, executed, and
compared with eager calls. Without a fault it finds none."""
import json
import re

import stand_in  # before torch; skips where torchair is not installed
import pytest
import torch
import torchair

import dovetail
import dovetail.torchair
from dovetail.torchair import source

OPERATORS = r"""
#include <dovetail_op.h>
struct mix {
    const dv_tensor *x, *w, *b; dv_tensors more; int64_t axis, times; double scale; bool flag; dv_string mode; dv_dtype to; dv_ints dims; dv_opt_float limit;
    dv_tensor *y, *z;
};
static int mix(dv_context *ctx, const struct mix *a)
{
    const float *x = a->x->data, *w = a->w->data, *b = a->b ? a->b->data : NULL;
    float *y = a->y->data, *z = a->z->data;
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->y); i < n; i++) {
        y[i] = x[i] - 3 * w[i] + (b ? b[i] : 0);
        for (size_t k = 0; k < a->more.size; k++)
            y[i] += (float)(k + 2) * ((const float *)a->more.data[k]->data)[i];
        y[i] = (y[i] + (float)a->axis) * (float)a->scale + (float)(10 * a->times);
        for (size_t k = 0; k < a->dims.size; k++)
            y[i] = 2 * y[i] + (float)a->dims.data[k];
        y[i] = a->flag ? -y[i] : y[i];
        y[i] = a->mode.size == 4 ? y[i] : y[i] + 7;
        y[i] += a->to.bits == 16 ? 5 : 0;
        y[i] = a->limit.has && y[i] > (float)a->limit.value ? (float)a->limit.value : y[i];
        z[i] = y[i] * x[i];
    }
    return DV_OK;
}
DV_OPERATOR(mix, struct mix, (x, w, b, more, axis, times, scale, flag, mode, to, dims, limit, y, z),
    .schema = "fault_mix(Tensor x, Tensor w, Tensor? b, Tensor[] more, *, int axis=1, int times=2, float scale=0.5, bool flag=False, str mode=\"same\", "
              "ScalarType to=float, int[] dims=[1, 2], float? limit=None) -> (Tensor y, Tensor z)",
    .contract = "x[*s]:f32, w[*s]:f32, b[*s]:f32, more{i}[*s]:f32 -> y[*s]:f32, z[*s]:f32",
    .kernels = DV_KERNELS(DV_KERNEL(struct mix, "cpu", "f32", mix)));

struct step { const dv_tensor *x; dv_tensor *m, *v; double rate; dv_tensor *norm; };
static int step(dv_context *ctx, const struct step *a)
{
    const float *x = a->x->data;
    float *m = a->m->data, *v = a->v->data, *norm = a->norm->data;
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++) {
        m[i] += (float)a->rate * x[i];
        v[i] = v[i] * 0.5f + x[i] * x[i];
        norm[i] = m[i] + v[i];
    }
    return DV_OK;
}
DV_OPERATOR(step, struct step, (x, m, v, rate, norm), .schema = "fault_step(Tensor x, Tensor(a!) m, Tensor(b!) v, float rate=0.25) -> Tensor norm",
    .contract = "x[*s]:f32, m[*s]:f32, v[*s]:f32 -> norm[*s]:f32", .kernels = DV_KERNELS(DV_KERNEL(struct step, "cpu", "f32", step)));

struct cut { const dv_tensor *x; int64_t size; dv_mut_tensors out; };
static int cut(dv_context *ctx, const struct cut *a)
{
    const float *x = a->x->data;
    (void)ctx;
    for (size_t k = 0; k < a->out.size; k++)
        for (int64_t i = 0, n = dv_numel(a->out.data[k]); i < n; i++)
            ((float *)a->out.data[k]->data)[i] = *x++;
    return DV_OK;
}
DV_OPERATOR(cut, struct cut, (x, size, out), .schema = "fault_cut(Tensor x, int size) -> Tensor[] out",
    .contract = "x[n]:f32 -> out{i < ceildiv(n, size)}[min(size, n - i*size)]:f32; size > 0",
    .kernels = DV_KERNELS(DV_KERNEL(struct cut, "cpu", "f32", cut)));

struct scaled { const dv_tensor *x, *w; double by; dv_tensor *y; };
static int scaled(dv_context *ctx, const struct scaled *a)
{
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->y); i < n; i++)
        ((float *)a->y->data)[i] = ((const float *)a->x->data)[i] * ((const float *)a->w->data)[i] * (float)a->by;
    return DV_OK;
}
DV_OPERATOR(scaled, struct scaled, (x, w, by, y), .schema = "fault_scaled(Tensor x, Tensor w, float by=2.5) -> Tensor y",
    .contract = "x[*s]:f32, w[*s]:f32 -> y[*s]:f32", .gradient = "x: fault_scaled(grad, w, by); w: fault_scaled(grad, x, by)",
    .kernels = DV_KERNELS(DV_KERNEL(struct scaled, "cpu", "f32", scaled)));
DV_LIBRARY(faults, &dv_op_mix, &dv_op_step, &dv_op_cut, &dv_op_scaled);
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    folder = tmp_path_factory.mktemp("faults")
    (folder / "faults.c").write_text(OPERATORS)
    library = dovetail.load(folder / "faults.c")
    before = dict(stand_in.PROTOTYPES)
    stand_in.known(library)
    yield library
    library.close()
    stand_in.PROTOTYPES.clear()
    stand_in.PROTOTYPES.update(before)


def mix():
    f = torch.ops.faults.fault_mix
    x, w, b, p, q = torch.arange(30.0).reshape(5, 6).unbind()
    return lambda x, w, b, p, q: (*f(x, w, b, [p, q]), *f(x, w, None, [q], axis=3, times=1, scale=0.25, flag=True, mode="other", to=torch.half, dims=[4],
                                                          limit=9.0)), [x, w, b, p, q]


def step():
    def f(x, m, v):
        m, v = m * 2, v + 1
        norm = torch.ops.faults.fault_step(x, m, v, 0.5)
        return norm, m + 0, v + 0, torch.ops.faults.fault_step(x, m, v)
    return f, [torch.arange(4.0), torch.ones(4), torch.arange(4.0) + 5]


def cut():
    return lambda x: [y * (k + 1) for k, y in enumerate(torch.ops.faults.fault_cut(x, 3))], [torch.arange(8.0)]


CASES = {"fault_mix": mix, "fault_step": step, "fault_cut": cut, "fault_scaled": None}  # None: forward and backward


def gradients(compiled):
    """Forward and backward are compiled; autograd runs between them."""
    op = torch.ops.faults.fault_scaled
    run = torch.compile(lambda x, w: op(x, w), fullgraph=True, backend=compiled) if compiled else lambda x, w: op(x, w)
    x, w = torch.arange(4.0).requires_grad_(), (torch.arange(4.0) + 2).requires_grad_()
    y = run(x, w)
    y.backward(torch.ones(4))
    return [y.detach(), x.grad, w.grad]


def oracle(name):
    """Raises where the graph is not what eager computes."""
    backend = torchair.get_npu_backend(compiler_config=torchair.CompilerConfig())
    torch._dynamo.reset()
    stand_in.GRAPHS.clear()
    if not CASES[name]:
        found, expected = gradients(backend), gradients(None)
    else:
        f, inputs = CASES[name]()
        found = torch.compile(f, backend=backend, fullgraph=True)(*[x.clone() for x in inputs])
        expected = f(*[x.clone() for x in inputs])
    torch.testing.assert_close(list(found), list(expected))
    assert any(source.node_name(name) in graph for graph in stand_in.GRAPHS)


def register(library, name, change=None):
    """The converter that dovetail.torchair makes, with a change of its text: (what, by what), which must be there."""
    op, = [o for op in library.operators().values() for o in op.overloads if o.name == f"faults::{name}"]
    for i, (overload, _) in enumerate(dovetail.torchair._overloads(op)):
        text = source.converter(json.loads(op.json()), overload if i else None)
        if change:
            assert len(re.findall(change[0], text)) == 1, text
            text = re.sub(change[0], change[1], text)
        exec(compile(source.PREAMBLE + "\n\n" + text, "<converter>", "exec"), {"__name__": "converter"})


@pytest.mark.parametrize("name", CASES)
def test_no_fault(library, name):
    register(library, name)
    oracle(name)


NODE, VALUES, MADE = "node Fault", "Tensor-likes are not close|do not match", ""  # found in the node; in the results; by torchair or by either
FAULTS = {
    "two inputs exchanged": ("fault_mix", r"'x': x, 'w': w", "'x': w, 'w': x", VALUES),
    "an input of another name": ("fault_mix", r"'w': w", "'weight': w", NODE),
    "inputs in another order": ("fault_mix", r"'x': x, 'w': w", "'w': w, 'x': x", NODE),
    "an optional input left out": ("fault_mix", r" 'b': b,", "", NODE),
    "an optional input always absent": ("fault_mix", r"'b': b", "'b': None", VALUES),
    "a required input absent": ("fault_mix", r"'w': w", "'w': None", NODE),
    "a list turned round": ("fault_mix", r"'more': more", "'more': more[::-1]", VALUES),
    "a list cut": ("fault_mix", r"'more': more", "'more': more[:1]", VALUES),
    "a list as one input": ("fault_mix", r"'more': more", "'more': more[0] if more else None", NODE),
    "an attribute left out": ("fault_mix", r"'axis': \(.*?\), 'times'", "'times'", VALUES),
    "an attribute of another name": ("fault_mix", r"'axis': ", "'dim': ", NODE),
    "an integer as a float": ("fault_mix", r"'axis': \(attr.Int", "'axis': (attr.Float", NODE),
    "an integer as a text": ("fault_mix", r"'axis': \(attr.Int, (.*?), operator.index\)", r"'axis': (attr.Str, \1, str)", NODE),
    "two attributes exchanged": ("fault_mix", r"times, operator.index", "axis, operator.index", VALUES),
    "a float cut to an integer": ("fault_mix", r"scale, _float", "scale, int", VALUES),
    "a flag inverted": ("fault_mix", r"flag, bool", "not flag, bool", VALUES),
    "a text in capitals": ("fault_mix", r"mode, str", "mode.upper() + '!', str", VALUES),
    "a dtype as torch's number": ("fault_mix", r"'to': \(attr.DataType, (.*?), torch_type_to_ge_type\)", r"'to': (attr.Int, \1, lambda t: 6)", NODE),
    "another dtype": ("fault_mix", r"to, torch_type_to_ge_type", "torch.half, torch_type_to_ge_type", VALUES),
    "a list of integers turned round": ("fault_mix", r"dims, operator.index", "dims[::-1], operator.index", VALUES),
    "a list of integers as floats": ("fault_mix", r"'dims': \(attr.ListInt, (.*?), operator.index\)", r"'dims': (attr.ListFloat, \1, float)", NODE),
    "another default": ("fault_mix", r"axis=1", "axis=0", VALUES),
    "a default that is not None": ("fault_mix", r"limit=None", "limit=3.0", VALUES),
    "outputs exchanged": ("fault_mix", r"'y', 'z'", "'z', 'y'", NODE),
    "an output missing": ("fault_mix", r"'y', 'z'", "'y'", NODE + "|"),
    "results turned round": ("fault_mix", r"_last\(out, 2\)", "_last(out[::-1], 2)", VALUES),
    "one of two results": ("fault_mix", r"_last\(out, 2\)", "_last(out, 1)", MADE),
    "another node": ("fault_scaled", r"'FaultScaled'", "'FaultMix'", NODE),
    "a written input is no output": ("fault_step", r"\['m', 'v', ", "['v', ", MADE),
    "the outputs of written inputs exchanged": ("fault_step", r"\['m', 'v', ", "['v', 'm', ", NODE),
    "the output of a written input renamed": ("fault_step", r"\['m', 'v', ", "['m', 'v_out', ", MADE),
    "the first output as the result": ("fault_step", r"_last\(out, 1\)", "out[0]", VALUES),
    "the input has its value after the write": ("fault_step", r"'x': x", "'x': m", VALUES),
    "a list result of another length": ("fault_cut", r"len\(meta_outputs\)", "2", MADE),
    "a list result turned round": ("fault_cut", r"_last\(out, 1\)", "_last(out, 1)[::-1]", VALUES),
    "an attribute of the forward and backward node": ("fault_scaled", r"by, _float", "by + 1, _float", VALUES),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found(library, fault):
    name, what, by, where = FAULTS[fault]
    register(library, name, (what, by))
    try:
        with pytest.raises(Exception, match=where):
            oracle(name)
    finally:
        register(library, name)
