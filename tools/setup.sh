#!/bin/sh
# Everything that Dovetail's build and tests need on a fresh machine: Debian packages where something is missing (as root, or with
# sudo), and a Python environment in .venv. Does nothing, quickly, when all is there.
#   tools/setup.sh build    compiler, CMake, Ninja, Python environment
#   tools/setup.sh wide     also clang with its sanitizers, for the wider suites
#   tools/setup.sh aarch64  also a cross-compiler, qemu, and for aarch64 cmocka, Python and NumPy in build-aarch64/sysroot
set -eu
cd "$(dirname "$0")/.."
case $PWD in *" "*)
    echo "note: the path of this folder has a space. PyTorch's torch.compile cannot link in such a path, so its parts of the demo and the tests fail" >&2 ;;
esac

need=""
have() { command -v "$1" >/dev/null 2>&1; }
want() { have "$1" || need="$need $2"; }
want gcc gcc
want make make
want cmake cmake
want ninja ninja-build
want git git
want patch patch
have python3 && python3 -c 'import venv, ensurepip' 2>/dev/null || need="$need python3 python3-venv"
[ -f /usr/include/cmocka.h ] || need="$need libcmocka-dev"
have python3 && python3 -c 'import sysconfig, os, sys; sys.exit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))' ||
    need="$need python3-dev"
have g++ || need="$need g++" # the headers are also tested as C++, and Inductor compiles with it
if [ "${1:-build}" = wide ]; then
    want clang clang
    want qemu-x86_64 qemu-user # a processor without AVX2 or AVX-512
fi
if [ "${1:-build}" = aarch64 ]; then
    want aarch64-linux-gnu-gcc gcc-aarch64-linux-gnu
    want aarch64-linux-gnu-g++ g++-aarch64-linux-gnu # a test plays a framework of C++
    want qemu-aarch64 qemu-user
    [ -d /usr/aarch64-linux-gnu/include ] || need="$need libc6-dev-arm64-cross"
fi
install() {
    [ -n "$*" ] || return 0
    echo "installing: $*"
    sudo=""
    [ "$(id -u)" = 0 ] || sudo=sudo
    $sudo apt-get update -qq
    DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}
install $need
if [ "${1:-build}" = wide ] && [ -z "$(find "$(clang -print-resource-dir)" -name 'libclang_rt.fuzzer*' -print -quit 2>/dev/null)" ]; then
    install "libclang-rt-$(clang -dumpversion | cut -d. -f1)-dev"
fi

# The environment is right when the list that made it is the list that we have.
if ! cmp -s tools/requirements.txt .venv/requirements.txt; then
    echo "making the Python environment .venv (torch is 200 MB: about a minute)"
    [ -x .venv/bin/python ] || python3 -m venv .venv
    .venv/bin/python -m pip install -q --disable-pip-version-check -r tools/requirements.txt
    cp tools/requirements.txt .venv/requirements.txt
fi

# Debian's packages for aarch64, unpacked: this machine's own package lists stay as they are. NumPy as published.
if [ "${1:-build}" = aarch64 ] && [ ! -d build-aarch64/sysroot/numpy ]; then
    lists=$(pwd)/build-aarch64/apt
    mkdir -p "$lists/partial"
    options="-oAPT::Architecture=arm64 -oAPT::Architectures=arm64 -oDir::State::Lists=$lists -oDir::Cache::pkgcache= -oDir::Cache::srcpkgcache= -oAPT::Sandbox::User="
    apt-get $options update -qq
    (cd "$lists" && apt-get $options download -qq libcmocka-dev libcmocka0 \
        libpython3.11-dev python3.11-minimal libpython3.11-minimal libpython3.11-stdlib libffi8 zlib1g libexpat1)
    for package in "$lists"/*.deb; do dpkg -x "$package" build-aarch64/sysroot; done
    .venv/bin/python -m pip install -q --disable-pip-version-check --only-binary=:all: --no-deps --python-version 3.11 --target build-aarch64/sysroot/numpy \
        --platform manylinux_2_28_aarch64 --platform manylinux_2_27_aarch64 --platform manylinux2014_aarch64 numpy ml_dtypes
fi
