"""The tags of a declaration."""
import torch

import dovetail
from conftest import one
from dovetail.torch.operator import give_tags

SOURCE = one("tagged").replace(".contract =", '.tags = "needs_fixed_stride_order, nondeterministic_seeded autocast_f32 something_else", .contract =')
WANTED = {torch.Tag.needs_fixed_stride_order, torch.Tag.nondeterministic_seeded, torch.Tag.pt2_compliant_tag}


def test_every_tag_that_torch_knows_arrives(fresh):
    _, registration = fresh(SOURCE, "tagged")
    overloads = [getattr(torch.ops.tagged.f, n) for n in torch.ops.tagged.f.overloads()]
    assert overloads and all(WANTED <= set(o.tags) for o in overloads)
    assert "something_else" in registration.operators["tagged::f"].declaration["tags"]


def test_where_libtorch_takes_no_tags(fresh):
    """torch 2.10 and 2.11 define operators without tags: they are given from Python."""
    fresh(SOURCE, "tagged")
    f = torch.ops.tagged.f.default
    f._tags, f._nondeterministic_seeded = [], False
    give_tags(f, ["needs_fixed_stride_order", "nondeterministic_seeded", "of_a_later_torch"])
    assert set(f.tags) == WANTED and len(f.tags) == 3 and f._nondeterministic_seeded


def test_compliance_is_the_default():
    assert dovetail.ops.swiglu and torch.Tag.pt2_compliant_tag in torch.ops.dovetail.swiglu.default.tags
