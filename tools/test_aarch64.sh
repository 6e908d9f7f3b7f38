#!/bin/sh
# tools/test_aarch64.sh BUILD [CTEST'S OPTIONS]: runs a build for aarch64 under qemu: the C tests; the command builds, explains and checks a
# new operator, and finds a planted fault; the C examples; the wheel, in which each shipped operator is called and some rows are checked. qemu
# runs a program in this machine's file system: compilers that it starts are this machine's.
set -eu
cd "$(dirname "$0")/.."
build=$(pwd)/$1
shift
run() { qemu-aarch64 -L /usr/aarch64-linux-gnu -E LD_LIBRARY_PATH="$build/sysroot/usr/lib/aarch64-linux-gnu" "$@"; }
expect() { # expect WHAT TEXT: of standard input
    text=$(cat)
    echo "$text" | grep -qF -- "$2" || { echo "$text"; echo "$text" | grep -A3 "because$" || :; echo "$1: expected '$2'"; exit 1; }
    echo "$1: ok"
}
ctest --test-dir "$build" --output-on-failure "$@"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp -r cli/templates/my_ops.c "$work"
run "$build/bin/dovetail" build --cc aarch64-linux-gnu-gcc "$work/my_ops.c" -o "$work/my_ops.so" | expect "dovetail build" my_ops.so
run "$build/bin/dovetail" explain "$work/my_ops.so" my_ops::swiglu 'f32[4, 8]' 'f32[4, 8]' | expect "dovetail explain" swiglu_row_base

# All properties but torch, which is this machine's. Emulated calls are slow: a case may take long, and how many cases of `parallel` (its
# threads above all) fit into their second is chance.
checked=binding,runs,memory,shapes,fake,values,gradient,leaks
run "$build/bin/dovetail" check --case-ms 20000 --only $checked "$work/my_ops.so" | expect "dovetail check" ", 0 failed, 1 not checked"
run "$build/bin/dovetail" check --case-ms 20000 --only parallel "$work/my_ops.so" | expect "dovetail check of threads" ", 0 failed,"
run "$build/bin/dovetail" build --cc aarch64-linux-gnu-gcc tests/faulty/tail_past_end/fault.c -o "$work/fault.so" >/dev/null
run "$build/bin/dovetail" check --only memory "$work/fault.so" | expect "dovetail check of a fault" "past the end"

aarch64-linux-gnu-gcc -DDV_STATIC -Iinclude examples/embed/embed.c examples/embed/square.c -L"$build/lib" -ldovetail -lm -o "$work/embed"
run -E LD_LIBRARY_PATH="$build/lib" "$work/embed" | expect "examples/embed" "1 4 9 16"
aarch64-linux-gnu-gcc -Iinclude examples/dispatch/dispatch.c -L"$build/lib" -ldovetail -o "$work/dispatch"
run -E LD_LIBRARY_PATH="$build/lib" "$work/dispatch" | expect "examples/dispatch" "autograd: demo::twice, call 1"
run "$build/bin/dovetail" build --cc aarch64-linux-gnu-gcc examples/vendor/acme.c -o "$work/acme.so" >/dev/null
run "$build/bin/dovetail" explain "$work/my_ops.so" "$work/acme.so" my_ops::swiglu 'f32[8]' 'f32[8]' | expect "examples/vendor" acme_swiglu_f32
aarch64-linux-gnu-gcc -Iinclude examples/decode_step/decode_step.c -L"$build/lib" -ldovetail -lm -lpthread -o "$work/decode_step" # its tensors need torch

# Rows for this machine's vectors against the reference rows.
for name in swiglu rms_norm softmax linear; do
    run "$build/bin/dovetail" check --quick --case-ms 20000 --only values "$build/ops/$name.so" | expect "dovetail check of $name" ", 0 failed, 0 not checked"
done

# The wheel, cross-built in this build's folder, and all calls of all operators in it, in NumPy, by Debian's Python for aarch64.
sysroot=$build/sysroot
_PYTHON_HOST_PLATFORM=linux-aarch64 .venv/bin/python -m pip wheel -q --no-deps --no-build-isolation . -w "$work/dist" -Cbuild-dir="$build" \
    -Ccmake.define.CMAKE_TOOLCHAIN_FILE="$(pwd)/tools/aarch64.cmake" -Ccmake.define.DOVETAIL_TESTS=ON \
    -Ccmake.define.Python_INCLUDE_DIR="$sysroot/usr/include/python3.11"
.venv/bin/auditwheel show "$work"/dist/dovetail-*-cp311-abi3-linux_aarch64.whl 2>&1 | tr '\n' ' ' | expect "the wheel" 'platform tag: "manylinux_'
.venv/bin/python -m zipfile -e "$work"/dist/*.whl "$work/site"
python() {
    run -E LD_LIBRARY_PATH="$sysroot/usr/lib/aarch64-linux-gnu:$sysroot/lib/aarch64-linux-gnu" -E PYTHONHOME="$sysroot/usr" \
        -E PYTHONPATH="$work/site:$sysroot/numpy" "$sysroot/usr/bin/python3.11" "$@"
}
python tools/shipped_calls.py "$work/aarch64.json"
.venv/bin/python tools/shipped_calls.py "$work/here.json"
.venv/bin/python tools/shipped_calls.py --compare "$work/aarch64.json" "$work/here.json" | expect "the wheel's operators, with this machine's results" " operators: the same"
