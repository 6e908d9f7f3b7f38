"""Fixtures; what they are made of is in cli_helpers.py."""
import pytest
from cli_helpers import ROOT, Dovetail


@pytest.fixture
def dovetail(tmp_path):
    return Dovetail(tmp_path)


@pytest.fixture
def project(dovetail, source):
    """A folder my_ops made by `dovetail new`, with the operators of loops.txt in place of the template's."""
    dovetail("new", "my_ops")
    (dovetail.folder / "my_ops" / "my_ops.c").write_text(source)
    return Dovetail(dovetail.folder / "my_ops")


@pytest.fixture(scope="session")
def source():
    return (ROOT / "tests" / "cli" / "loops.txt").read_text()
