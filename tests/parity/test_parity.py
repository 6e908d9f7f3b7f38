"""The parity run in the hosts that every environment has; that it finds faults; and that docs/hosts.md is the table of such a run."""
import copy
import re

import parity
import pytest
import torch

import dovetail


@pytest.fixture(scope="module")
def wanted():
    return parity.reference()


@pytest.mark.parametrize("name", ["numpy", "torch"])
def test_the_host_gives_what_c_gives(name):
    outcomes = parity.run([name])[name]["outcomes"]
    faults = {call: o["fault"] for call, o in outcomes.items() if "fault" in o}
    assert not faults
    assert sum("results" in o for o in outcomes.values()) > 80 and sum("message" in o for o in outcomes.values()) > 80
    assert all(not o.get("results") for o in outcomes.values())  # to the bit
    assert not [call for call, o in outcomes.items() if "refused" in o]
    if name == "torch":
        assert sum("gradient" in o for o in outcomes.values()) > 40


@pytest.mark.slow
def test_every_call_with_inductor():
    outcomes = parity.run(["compile"])["compile"]["outcomes"]
    assert not {call: o["fault"] for call, o in outcomes.items() if "fault" in o}
    assert sum("results" in o for o in outcomes.values()) > 80


def test_compiled_calls(wanted):
    """Some, without Inductor."""
    host = parity.Compiled()
    host.backend = "aot_eager"
    some = [call for call in wanted if call.startswith(("kinds::", "dovetail::rms_norm(", "dovetail::advance_step.tensors", "dovetail::rotary_embedding"))]
    outcomes = [parity.compare(host, call, wanted[call]) for call in some]
    assert len(outcomes) > 20 and sum("refused" in o for o in outcomes) == sum(call.startswith("kinds::noise") for call in some)


@pytest.mark.parametrize("fault", ["bit", "shape", "gradient", "inferred", "message"])
def test_a_difference_is_found(wanted, fault):
    right, wrong = "dovetail::swiglu(f32[2, 65] = -4..4, f32[2, 65] = -4..4)", "dovetail::rms_norm(bool[2, 5], f64[5])"
    want, host = copy.deepcopy(wanted), parity.Torch()
    assert parity.compare(host, right, want[right]) == {"results": 0, "inferred": 0, "gradient": 0} and parity.compare(host, wrong, want[wrong]) == {"message": 0}

    def other(tensor):  # the sign of the first element
        data = bytearray.fromhex(tensor[2])
        data[3] ^= 0x80
        tensor[2] = data.hex()
    if fault == "bit":
        other(want[right]["after"][0])
    elif fault == "shape":
        want[right]["after"][0][1] = [65, 2]
    elif fault == "gradient":
        other(want[right]["gradients"][0][0])
    elif fault == "inferred":
        want[right]["infer"][0][0] = "f64"
    else:
        want[wrong]["error"] += "!"
    with pytest.raises(parity.Differs):
        parity.compare(host, wrong if fault == "message" else right, want[wrong if fault == "message" else right])


def test_every_shipped_operator_is_called(wanted):
    shipped = {o.name for library in dovetail.libraries() for f in library.operators().values() for o in f.overloads if o.name.startswith("dovetail::")}
    assert len(shipped) > 40 and shipped <= {call.partition("(")[0] for call in wanted}


def test_the_page_has_a_row_for_each_operator_and_no_fault(wanted):
    page = parity.PAGE.read_text().partition(parity.BEGIN)[2].partition(parity.END)[0]
    rows = dict(re.findall(r"^\| `(\w+::[\w.]+)` \|(.*)\|$", page, re.M))
    assert rows.keys() == {call.partition("(")[0] for call in wanted} and "fault" not in page
    cells = [c for row in rows.values() for c in row.split("|")]
    assert len(cells) == len(parity.HOSTS) * len(rows) and sum("#reasons" in c for c in cells) <= len(cells) / 10


@pytest.mark.parametrize("error, fault", [
    (NotImplementedError("kinds::twice: not yet"), True), (NotImplementedError("Missing `as_proxy()` implementation for some arg/kwarg\nmore"), False),
    (NotImplementedError("kinds::twice: a primitive's results are tensors, this operator's are Tensor[]"), True)])  # MindSpore's reason
def test_what_is_not_implemented_is_a_fault(monkeypatch, wanted, error, fault):
    call = "kinds::twice([f64[3], f64[3]])"

    def refuse(*given):
        raise error
    monkeypatch.setattr(parity.Compiled, "call", refuse)
    monkeypatch.setattr(parity, "reference", lambda all_of_them, spelled: {call: wanted[call]})
    outcome, = parity.run(["compile"])["compile"]["outcomes"].values()
    assert list(outcome) == ["fault" if fault else "refused"]


def test_a_generator_of_another_seed_is_found(monkeypatch, wanted):
    host, call = parity.Torch(), "kinds::noise(f64[5])"
    assert parity.compare(host, call, wanted[call])["results"] == 0
    monkeypatch.setattr(host, "drawn", lambda seed: 8)
    with pytest.raises(parity.Differs):
        parity.compare(host, call, wanted[call])


def test_the_reasons_of_the_page():
    """A closed list."""
    _, _, said = parity.PAGE.read_text().partition("### Reasons\n\n")
    lines = [f"{n}. {says}" for n, (*_, says) in enumerate(parity.REASONS, 1)]
    assert said.partition(parity.END)[0].splitlines() == lines
    assert {int(n) for n in re.findall(r"\[(\d+)\]\(#reasons\)", parity.PAGE.read_text())} == {*range(1, len(lines) + 1)}


def refused_by_torch(n):
    return next(pattern for i, (_, pattern, _) in enumerate(r for r in parity.REASONS if r[0] == parity.TORCH) if i == n)


def test_torch_refuses_its_own_operators_too():
    """What parity.REASONS has of PyTorch is PyTorch's: an operator of torch.library is refused in the same words."""
    library = torch.library.Library("parity_own", "DEF")
    library.define("noise(Tensor x, Generator? generator=None) -> Tensor")
    library.impl("noise", lambda x, generator=None: x.clone(), "CPU")
    torch.library.register_fake("parity_own::noise", lambda x, generator=None: torch.empty_like(x))
    generator = torch.Generator()
    with pytest.raises(Exception, match=f"(?s){refused_by_torch(1)}"):
        torch.compile(lambda x: torch.ops.parity_own.noise(x, generator=generator), fullgraph=True, backend="eager")(torch.ones(3))


@pytest.mark.slow
def test_inductor_refuses_its_own_operators_too():
    library = torch.library.Library("parity_own_writes", "DEF")
    library.define("norm(Tensor x, Tensor(a!)? residual) -> Tensor")
    library.impl("norm", lambda x, residual: x.clone(), "CPU")
    torch.library.register_fake("parity_own_writes::norm", lambda x, residual: torch.empty_like(x))
    with pytest.raises(Exception, match=f"(?s){refused_by_torch(0)}"):
        torch.compile(lambda x: torch.ops.parity_own_writes.norm(x, None), fullgraph=True)(torch.ones(3))
