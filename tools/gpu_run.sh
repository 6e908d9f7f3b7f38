#!/bin/sh
# All that needs a GPU, in one offline command of at most 9 minutes: for a bare machine with nvcc, CMake, Ninja and a PyTorch for CUDA.
#   tools/gpu_run.sh            results in $OUT (default: out/gpu): one log for each step, figures.json, summary
# Without a GPU every step runs on the CPU as far as it can, and what cannot run says so: that is the rehearsal.
# PYTHON: the Python that has PyTorch (default: python3). Nothing is fetched, and nothing outside of $OUT and $BUILD is written.
set -u
cd "$(dirname "$0")/.."
OUT=${OUT:-out/gpu} PYTHON=${PYTHON:-python3}
mkdir -p "$OUT"
OUT=$(cd "$OUT" && pwd) BUILD=${BUILD:-$OUT/build}
begin=$(date +%s) failed=0
: >"$OUT/summary"

say() { echo "$*" | tee -a "$OUT/summary"; }

# step NAME SECONDS COMMAND...: no step may take more than its seconds, nor run when the 9 minutes are used up
step() {
    name=$1 most=$2 left=$((540 - ($(date +%s) - begin)))
    shift 2
    [ "$left" -lt "$most" ] && most=$left
    if [ "$most" -lt 5 ]; then
        say "$name: left out, no time is left"
        failed=1
        return 1
    fi
    if timeout -k 5 "$most" "$@" >"$OUT/$name.log" 2>&1; then
        say "$name: ok, $(tail -1 "$OUT/$name.log")"
    else
        say "$name: FAILED with $? after $(($(date +%s) - begin)) s; the end of $name.log:"
        tail -25 "$OUT/$name.log"
        failed=1
        return 1
    fi
}

build() {
    cmake -G Ninja -B "$BUILD" -S . -DDOVETAIL_PYTHON=ON -DDOVETAIL_TESTS=OFF -DPython_EXECUTABLE="$(command -v "$PYTHON")" &&
        ninja -C "$BUILD"
}

if [ "${1:-}" = build-only ]; then
    build
    exit
fi
if [ -z "${DOVETAIL_BUILD:-}" ]; then # else what is built already is taken
    step build 240 sh "$0" build-only || exit 1
    DOVETAIL_BUILD=$BUILD
fi
export DOVETAIL_BUILD PYTHONPATH="$DOVETAIL_BUILD/python" PATH="$DOVETAIL_BUILD/bin:$PATH" XDG_CACHE_HOME="$OUT/cache"
step machine 60 "$PYTHON" -c 'import torch, platform
gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU: a rehearsal on the CPU"
print("Python", platform.python_version(), "torch", torch.__version__, gpu)' || exit 1
step example 120 "$PYTHON" -m pytest -q -rs tests/torch/test_cuda.py
step check 90 env DOVETAIL_PYTHON="$(command -v "$PYTHON")" sh -c 'dovetail build examples/cuda/negate.c examples/cuda/negate.cu -o "$0" && dovetail check "$0" --only torch' \
    "$OUT/negate_ops.so"
step native 100 "$PYTHON" tools/gpu_figures.py native
step streams 60 "$PYTHON" tools/gpu_figures.py streams
step figures 90 "$PYTHON" tools/gpu_figures.py figures "$OUT/figures.json"
rm -rf "$OUT/cache"
say "$(($(date +%s) - begin)) s"
exit $failed
