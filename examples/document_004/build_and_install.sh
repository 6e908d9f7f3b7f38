#!/bin/sh
# Makes the wheel in dist/, and installs it.
set -e
cd "$(dirname "$0")"
rm -rf build dist
python3 setup.py bdist_wheel
python3 -m pip install --no-deps --force-reinstall dist/*.whl
