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
    assert [call for call, o in outcomes.items() if "refused" in o] == (["kinds::noise(f64[5])"] if name == "torch" else [])
    if name == "torch":
        assert sum("gradient" in o for o in outcomes.values()) > 40


def test_compiled_calls(wanted):
    """Some; `make parity` has all, with Inductor."""
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
    assert len(cells) == 7 * len(rows) and sum("#reasons" in c for c in cells) <= len(cells) / 10


def test_torch_refuses_its_own_operators_too():
    """What parity.Compiled.refusals has is PyTorch's: an operator of torch.library is refused in the same words."""
    library = torch.library.Library("parity_own", "DEF")
    library.define("noise(Tensor x, Generator? generator=None) -> Tensor")
    library.impl("noise", lambda x, generator=None: x.clone(), "CPU")
    torch.library.register_fake("parity_own::noise", lambda x, generator=None: torch.empty_like(x))
    generator = torch.Generator()
    with pytest.raises(Exception, match=parity.Compiled.refusals[0]):
        torch.compile(lambda x: torch.ops.parity_own.noise(x, generator=generator), fullgraph=True, backend="eager")(torch.ones(3))


@pytest.mark.slow
def test_inductor_refuses_its_own_operators_too():
    library = torch.library.Library("parity_own_writes", "DEF")
    library.define("norm(Tensor x, Tensor(a!)? residual) -> Tensor")
    library.impl("norm", lambda x, residual: x.clone(), "CPU")
    torch.library.register_fake("parity_own_writes::norm", lambda x, residual: torch.empty_like(x))
    with pytest.raises(Exception, match=re.escape(parity.Compiled.refusals[1])):
        torch.compile(lambda x: torch.ops.parity_own_writes.norm(x, None), fullgraph=True)(torch.ones(3))
