#!/bin/sh
# Runs the examples.
set -e
cd "$(dirname "$0")/examples"
for example in test_*.py; do
    python3 "$example"
done
