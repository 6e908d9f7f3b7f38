#!/bin/sh
# `make demo`: from nothing to an operator in C, NumPy and PyTorch, and a picture cropped and pasted. Exit code 1 if any result is wrong.
set -eu
exec python "$(dirname "$0")/demo.py" "$@"
