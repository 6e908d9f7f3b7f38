"""Fixtures; what they are made of is in cli_helpers.py."""
import pytest
from cli_helpers import ROOT, Dovetail


@pytest.fixture
def dovetail(tmp_path):
    return Dovetail(tmp_path)


@pytest.fixture
def project(dovetail):
    """A folder my_ops made by `dovetail new`."""
    dovetail("new", "my_ops")
    return Dovetail(dovetail.folder / "my_ops")


@pytest.fixture(scope="session")
def source():
    return (ROOT / "cli" / "templates" / "my_ops.c").read_text()
