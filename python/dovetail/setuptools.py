"""Operators in a setup.py, beside everything else that setuptools builds. (`dovetail new` makes a project that needs no setup.py.)

    from dovetail.setuptools import BuildExtension, Extension
    from setuptools import find_packages, setup

    setup(name="custom_ops", version="1.0", packages=find_packages(), cmdclass={"build_ext": BuildExtension},
          ext_modules=[Extension("custom_ops_lib", ["csrc/add.c"])])

`import custom_ops_lib` then has the operators of csrc/add.c.
"""
import pathlib
import shutil
import subprocess

import setuptools
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError

from . import backend, command


class Extension(setuptools.Extension):
    """Sources, and arguments (extra_compile_args), of `dovetail build`."""


class BuildExtension(build_ext):
    """Makes a package of each Extension: its binary, and a module with its operators. Other extensions are setuptools' own."""

    @classmethod
    def with_options(cls, **options):
        """For setup files that choose between builders: there is one here."""
        return cls

    def _package(self, ext):
        return pathlib.Path(self.get_ext_fullpath(ext.name)).parent / ext.name.rpartition(".")[2]

    def build_extension(self, ext):
        if not isinstance(ext, Extension):
            return super().build_extension(ext)
        package = self._package(ext)
        package.mkdir(parents=True, exist_ok=True)
        binary = package / f"{package.name}.so"
        if subprocess.run([command(), "build", "-o", binary, *ext.extra_compile_args, *ext.sources]).returncode:
            raise CompileError(f"dovetail build of {ext.name} failed")
        (package / "__init__.py").write_text(backend.init(f"Operators of {ext.name}", self.distribution.get_version()))
        (package / "__init__.pyi").write_text(backend.stub_of(binary))

    def copy_extensions_to_source(self):
        """For `build_ext --inplace` and `pip install -e`: setuptools has built all in its own folder, and copies single files."""
        for ext in [e for e in self.extensions if isinstance(e, Extension)]:
            self.inplace = False
            built = self._package(ext)
            self.inplace = True
            shutil.copytree(built, self._package(ext), dirs_exist_ok=True)
            self.extensions.remove(ext)
        super().copy_extensions_to_source()
