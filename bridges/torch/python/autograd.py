"""The behaviour of an operator on torch's Autograd key: gradients, forward mode, writes and views.

Most calls do not reach this code: the C kernel on that key (autograd.c) calls the operator directly when all arguments are plain and no
gradient is needed. The other calls are handled as torch's own operators: decide at this level, then continue below it with the key set
that the dispatcher would have, so that functorch's levels, modes and subclasses see the operator like torch's own.
"""
import functools
import threading

import torch
from torch.autograd import forward_ad

from . import native
from .._formula import Gradient, Tangent, is_list
from .formula import TORCH
from .gradient import Function, Missing, NativeForm, is_tensor
from .private import operators as _torch

# The keys after the Autograd keys, without the two whose fallback only continues to the next key.
_BELOW = _torch._after_autograd_keyset.remove(_torch.DispatchKey.ADInplaceOrView).remove(_torch.DispatchKey.BackendSelect)

_AUTOGRAD = _torch.DispatchKey.Autograd

_VIEWS = {"MULTI_OUTPUT_NODE": "one of several results of a function (as of unbind or split)", "IN_CUSTOM_FUNCTION": "made in an autograd.Function",
          "NO_GRAD_MODE": "made in no_grad mode", "INFERENCE_MODE": "made in inference mode"}  # by torch's CreationMeta

_now = threading.local()  # .below: state of the current call for a Function's forward; .done: the same for its jvp


class Autograd:
    def __init__(self, operator):
        self.operator = op = operator
        self.tensors = [i for i, a in enumerate(op.slots) if is_tensor(a["type"])]
        self.lists = [i for i, a in enumerate(op.slots) if is_list(a["type"])]
        self.positional = sum(not a.kwarg_only for a in op.arguments)
        self.keywords = [a.name for a in op.arguments[self.positional:]]
        declared, tree = (op.name, op.slots, op.results), op.declaration["gradient"]
        self.rule = Gradient(TORCH, *declared, tree) if tree else NativeForm(op) if op.native and not op.writes else Missing(op)
        self.refuses = bool(op.writes) and not tree  # a needed gradient is an error here, not later in backward
        targets = set(self.rule.targets)
        self.differentiable = [i for i in self.tensors + self.lists if op.slots[i]["name"] in targets]
        self.wanting = [i for i in self.tensors + self.lists if self.refuses or i in self.differentiable or i in op.writes]
        self.views = op.is_view
        self.tangent = Tangent(TORCH, *declared, op.declaration["tangent"]) if op.declaration["tangent"] else None
        self._vjp = self.registration = self.direct = None

    def attach(self, registration):
        """Make the Autograd key call this object, by the C kernel. torch's Python dispatcher, which compilers turn on, calls it directly: on the
        way through C, symbolic sizes would become numbers."""
        self.registration = registration
        self.set_direct(None if self.refuses or self.views or self.operator.writes else self.first)
        self.operator.overload.py_impl(_AUTOGRAD)(self.python)

    @functools.cached_property
    def function(self):
        """Made when a gradient is first wanted: writing its source takes milliseconds, and most operators are never differentiated."""
        return Function(self.operator, self.rule, self.forward, self.jvp)

    def first(self, *values):
        """The first call that is plain except for a needed gradient: later ones do not come here."""
        direct = self.function.direct()
        if self.registration is not None:
            self.set_direct(direct)
            if not self.operator.overridden:
                self.operator.shorten(direct)
        return direct(*values)

    def set_direct(self, direct):
        native.bridge.dv_torch_set_autograd(self.registration, self.operator.name.encode(), id(self), direct and id(direct))
        self.direct = direct  # C has its address

    def detach(self):
        if self.registration is not None:
            native.bridge.dv_torch_set_autograd(self.registration, self.operator.name.encode(), None, None)
            self.operator.overload.py_kernels.pop(_AUTOGRAD, None)
            self.operator.overload._dispatch_cache.clear()
            self.registration = None

    # ---- one call

    def python(self, /, *args, **kwargs):
        """As torch.library calls a kernel."""
        return self(*self.operator.bind(args, kwargs))

    def __call__(self, *values):
        op = self.operator
        if self.views:
            return self.view(values)
        if op.writes and not torch.is_inference_mode_enabled():
            self.check_inference(values)
        duals = self.duals(values) if forward_ad._current_level >= 0 and _torch._is_fwd_grad_enabled() else None
        wanted = False
        if torch.is_grad_enabled():
            wanted = self.wants(values)
            if op.writes and wanted:
                self.check_leaves(values)
        keys = _torch.key_extractor(self.all_tensors(values), _BELOW)
        if not wanted and not duals:
            out = self.below(keys, values[:self.positional], dict(zip(self.keywords, values[self.positional:])))
            self.count(values)  # after the write, as torch does: modes below compare the saved version
            return out
        if self.refuses:
            op.refuse_gradient(values)
        if op.writes:
            self.check_views(values)
        _now.below = keys, torch.is_grad_enabled(), _torch._is_fwd_grad_enabled(), duals
        with _torch.enable_single_level_autograd_function():
            return self.function.apply(*values)

    def wants(self, values):
        """True if an argument that has a gradient, or is written, requires one."""
        for i in self.wanting:
            v = values[i]
            if isinstance(v, torch.Tensor) and v.requires_grad:
                return True
            if isinstance(v, (list, tuple)) and any(x is not None and x.requires_grad for x in v):
                return True
        return False

    def all_tensors(self, values):
        found = [values[i] for i in self.tensors if values[i] is not None]
        for i in self.lists:
            found += [x for x in values[i] or () if x is not None]
        return found

    def forward(self, /, *args, **kwargs):
        """Called in the Function's forward. The Function has turned gradients off for this level. The levels below get the setting from before."""
        (keys, backward_mode, forward_mode, duals), _now.below = _now.below, None
        with torch.set_grad_enabled(backward_mode), forward_ad._set_fwd_grad_enabled(forward_mode):
            out = self.below(keys, args, kwargs)
        if duals:
            _now.done = duals, out  # for jvp(), which torch calls next
        return out

    def below(self, keys, args, kwargs):
        """The Function, or count(), raises the version counters."""
        op, kernel = self.operator, functools.partial(self.operator.overload.redispatch, keys)
        with _torch._AutoDispatchBelowADInplaceOrView() if op.writes else _torch._AutoDispatchBelowAutograd():
            return op.call_kernel(kernel, args, kwargs) if op.kernels_came_before else kernel(*args, **kwargs)

    def count(self, values):
        for _, x in self.written(values):
            torch.autograd.graph.increment_version(x)

    def written(self, values):
        """(name of its argument, tensor) for each that is written."""
        for i in self.operator.writes:
            for x in values[i] if isinstance(values[i], (list, tuple)) else (values[i],):
                if x is not None:
                    yield self.operator.slots[i]["name"], x

    def check_inference(self, values):
        """torch's own rule and message. Its increment_version() skips such tensors."""
        for name, x in self.written(values):
            if x.is_inference():
                raise RuntimeError(f"{self.operator.name}: argument '{name}': Inplace update to inference tensor outside InferenceMode is not "
                                   "allowed. You can make a clone to get a normal tensor before doing inplace update.")

    def check_leaves(self, values):
        """Raises RuntimeError for a written argument that autograd forbids to write in place, before anything is written. torch applies this rule to a
        Function's outputs, after the write (check_inplace() in VariableTypeUtils.h)."""
        for name, x in self.written(values):
            why = "a leaf that requires grad cannot be written to in place" if x.requires_grad and x.is_leaf else self.why_no_view(x)
            if why:
                raise RuntimeError(f"{self.operator.name}: argument '{name}': {why}")

    @staticmethod
    def why_no_view(x):
        """Returns why autograd cannot track a write to the view x. None: it can, or x is no view."""
        if not x._is_view():
            return None
        made = _torch._get_creation_meta(x).name
        if made != "DEFAULT":
            return f"a view that is {_VIEWS.get(made, made)} cannot be written to in place: PyTorch's autograd cannot track that. Write to a clone of it"
        if x.requires_grad and x._base.is_leaf:
            return "a view of a leaf that requires grad cannot be written to in place"
        return None

    def check_views(self, values):
        """Raises RuntimeError for a written view that autograd cannot track. torch rewrites the history of a view's base for one output only, the
        Function's first input."""
        written = list(self.written(values))
        several = len(written) > 1 or any(r.alias_info is None for r in self.operator.returns)
        if several or any(i in self.lists for i in self.operator.writes):
            for name, x in written:
                if x._is_view():
                    what = "has other results too" if several else "takes it in a list"
                    raise RuntimeError(f"{self.operator.name}: argument '{name}': a view cannot be written to where a gradient is wanted and the operator "
                                       f"{what}: PyTorch's autograd cannot track that. Write to a tensor that is no view, or call it under torch.no_grad()")

    # ---- views: torch's own, which track what they are views of

    def view(self, values):
        try:
            results = self.operator.contract.infer(values)
        except (RuntimeError, IndexError) as e:
            if str(e).startswith(self.operator.name):
                raise
            raise RuntimeError(f"{self.operator.name}: {e}") from e
        return self.operator.returned(results)

    # ---- forward mode

    def unpack(self, v):
        """(primal, tangent): the tangent is None if missing, or a list for a list."""
        if isinstance(v, torch.Tensor):
            return _torch._unpack_dual(v, level=forward_ad._current_level)
        if isinstance(v, (list, tuple)) and any(isinstance(x, torch.Tensor) for x in v):
            both = [(None, None) if x is None else self.unpack(x) for x in v]
            tangents = [t for _, t in both]
            return [p for p, _ in both], tangents if any(t is not None for t in tangents) else None
        return v, None

    def duals(self, values):
        """(values, primals, tangents) if any argument has a tangent, else None."""
        unpacked = [self.unpack(v) for v in values]
        if all(t is None for _, t in unpacked):
            return None
        if self.operator.writes:
            raise NotImplementedError(f"{self.operator.name}: forward-mode derivatives of an operator that writes to its arguments are not supported")
        return values, *zip(*unpacked)

    def jvp(self, ctx, *unused):
        """The Function's jvp: a tangent for each of its outputs. Levels below may have separate tangents."""
        (duals, out), _now.done = _now.done, None
        results = [out] if len(self.operator.results) == 1 else list(out)
        if not any(_differentiable(x) for r in results for x in (r if isinstance(r, list) else [r])):
            found = [None] * len(results)
        else:
            with forward_ad._set_fwd_grad_enabled(True):
                found = self.tangents(*duals, results)
        flat = []
        for r, t in zip(results, found):
            if isinstance(r, list):
                flat += [x if _differentiable(e) else None for e, x in zip(r, t or [None] * len(r))]
            else:
                flat.append(t if _differentiable(r) else None)
        return flat[0] if len(flat) == 1 else tuple(flat)

    def tangents(self, values, primals, tangents, results):
        """Tangents of the results: by the declared formula, else by the decomposition, else from the gradient's formula."""
        op = self.operator
        if self.tangent:
            filled = [_zeros_like(p) if t is None and a["name"] in self.tangent.used else t for a, p, t in zip(op.slots, primals, tangents)]
            return self.tangent(primals, filled, results)
        if op.native:
            duals = op.native(dict(zip(op.names, values)))
            return [None if not isinstance(d, torch.Tensor) else self.unpack(d)[1] for d in duals]
        if isinstance(self.rule, Gradient):
            return self.transposed(primals, tangents, results)
        raise NotImplementedError(f"{op.name}: an argument has a forward-mode tangent, and the operator declares no tangent, no decomposition and "
                                  "no gradient to make it from")

    def transposed(self, primals, tangents, results):
        """The gradient is linear in u, the gradient of the results: so the tangents are the derivative of <gradient(u), tangents> by u."""
        op, again = self.operator, torch.is_grad_enabled()
        if any(is_list(s["type"]) for s in [*op.slots, *op.results]):
            raise NotImplementedError(f"{op.name}: its tangent cannot be made from its gradient, because it has lists of tensors: declare a tangent")
        if self._vjp is None:
            self._vjp = self.rule.vjp()
        with torch.enable_grad(), _torch.enable_inplace_requires_grad(True):
            u = [torch.zeros_like(r).requires_grad_() if i in self.rule.grads else _zeros_like(r) for i, r in enumerate(results)]
            gradients = self._vjp(*primals, *results, *u)
            pairs = [(gradients.get(a["name"]), t) for a, t in zip(op.slots, tangents) if t is not None]
            pairs = [(g, t) for g, t in pairs if g is not None]
            if any(not g.requires_grad for g, _ in pairs):
                raise NotImplementedError(f"{op.name}: its tangent cannot be made from its gradient, which is not differentiable: declare a tangent")
            by = [x for i, x in enumerate(u) if i in self.rule.grads]
            found = iter(torch.autograd.grad([g for g, _ in pairs], by, [t for _, t in pairs], allow_unused=True, create_graph=again)
                         if pairs else [None] * len(by))
        return [next(found) if i in self.rule.grads else None for i in range(len(results))]


def _differentiable(x):
    return isinstance(x, torch.Tensor) and (x.is_floating_point() or x.is_complex())


def _zeros_like(x):
    return torch.zeros_like(x) if isinstance(x, torch.Tensor) else x
