import glob

from dovetail.setuptools import BuildExtension, Extension
from setuptools import find_packages, setup

setup(
    name="custom_pypto",
    version="1.0",
    packages=find_packages(include=["custom_pypto*"]),
    ext_modules=[Extension("custom_pypto.custom_pypto_lib", sorted(glob.glob("custom_pypto/csrc/*.c")))],
    cmdclass={"build_ext": BuildExtension},
)
