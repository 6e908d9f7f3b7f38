"""A pytest plugin: a test for each operator and property that `dovetail check` knows.

    pytest --dovetail my_ops.so

or, for every run, in the ini file:

    [pytest]
    dovetail_check = my_ops.so

An installed package brings it along; elsewhere: `-p dovetail.pytest`.
"""
import os

import pytest


def pytest_addoption(parser):
    group = parser.getgroup("dovetail", "dovetail check")
    group.addoption("--dovetail", metavar="TARGET", action="append", default=[],
                    help="check the operators of this binary, C file, folder or package: a test for each property")
    group.addoption("--dovetail-only", metavar="PROPERTY,...", help="only these properties")
    group.addoption("--dovetail-seed", metavar="N", help="draw other cases")
    group.addoption("--dovetail-time", metavar="SECONDS", help="begin nothing new after this time")
    parser.addini("dovetail_check", "what to check in every run, as with --dovetail", type="args", default=[])


@pytest.hookimpl(tryfirst=True)  # so that -k and -m choose among these as well
def pytest_collection_modifyitems(session, config, items):
    # Paths of the ini file are relative to it.
    named = [path if os.path.exists(path := str(config.rootpath / target)) else target for target in config.getini("dovetail_check")]
    for target in dict.fromkeys([*named, *config.getoption("dovetail")]):
        items.extend(Target.from_parent(session, name=os.path.basename(target), nodeid=os.path.basename(target), target=target).collect())


class Target(pytest.Collector):
    """The target: a file, a folder or a package."""

    def __init__(self, *, target, **options):
        super().__init__(**options)
        self.target = target

    def collect(self):
        from . import DovetailError, check
        option = self.config.getoption
        try:
            report = check(self.target, only=option("dovetail_only"), seed=option("dovetail_seed"), time=option("dovetail_time"))
        except DovetailError as error:
            raise pytest.UsageError(f"--dovetail {self.target}: {error}") from None
        for found in report:
            part = found.kernel or found.test
            yield Property.from_parent(self, name=f"{found.operator}::{found.property}" + (f"[{part}]" if part else ""), found=found)


class Property(pytest.Item):
    def __init__(self, *, found, **options):
        super().__init__(**options)
        self.found = found

    def runtest(self):
        if self.found.failed or self.found.no_arguments:
            raise Failure
        if not self.found.passed:
            pytest.skip(f"not checked, because {self.found.message}")

    def repr_failure(self, excinfo, style=None):
        if not isinstance(excinfo.value, Failure):
            return super().repr_failure(excinfo, style)
        case = f"\nsmallest case found: {self.found.case}" if self.found.case else ""
        line = f"\nreproduce: {self.found.reproduce}" if self.found.reproduce else ""
        return self.found.message + case + line

    def reportinfo(self):
        return self.parent.target, None, self.name


class Failure(Exception):
    """A property that does not hold."""
