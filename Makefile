# The short front of the build: CMake and Ninja do the work. Each target sets up what it needs, also on a fresh machine.
BUILD ?= build
SAN = -DDOVETAIL_SANITIZE
PY = "$(CURDIR)/.venv/bin/python"
export PATH := $(CURDIR)/$(BUILD)/bin:$(CURDIR)/.venv/bin:$(PATH)
export PYTHONPATH := $(CURDIR)/$(BUILD)/python
export DOVETAIL_BUILD := $(CURDIR)/$(BUILD)
JOBS := $(shell nproc)

.PHONY: all format setup build demo test quick mutants test-c test-python test-asan test-tsan test-slow test-aarch64 analyze fuzz bench check test-torch test-torch-newest test-vllm test-mindspore test-torchair test-ascend test-pypto part-vllm part-mindspore part-torchair part-ascend test-hosts parity clean

all: build

setup:
	@tools/setup.sh build

build: setup
	@cmake -G Ninja -B $(BUILD) -S . -DDOVETAIL_PYTHON=ON -DPython_EXECUTABLE=$(PY) >$(BUILD).log 2>&1 || { cat $(BUILD).log; exit 1; }
	@ninja -C $(BUILD) --quiet

# From nothing to an operator in C, NumPy and PyTorch; ends with a table. Pictures go to out/demo/.
demo: build
	@tools/demo/demo.sh

test: build check test-c test-python

quick: build check test-c # under a minute: the C tests, and the Python tests marked as quick
	@$(PY) tools/run_tests.py "quick and not slow"

check: build # the layers of core/, files that need each other, the phrases of tools/phrases.txt, the form of C files
	@$(PY) tools/check_layers.py
	@$(PY) tools/check_circles.py $(BUILD)
	@$(PY) tools/check_phrases.py
	@git ls-files -co --exclude-standard '*.c' '*.h' | grep -v -e core/tensor/dlpack.h -e cli/templates/ | xargs .venv/bin/clang-format --dry-run -Werror

test-c: build
	@ctest --test-dir $(BUILD) --output-on-failure -j $(JOBS)

test-python: build
	@$(PY) tools/run_tests.py "not slow"

# ---- the wider suites, which .ci/run adds ----

test-slow: build # packaging in fresh environments, long oracles
	@$(PY) tools/run_tests.py slow

test-asan:
	@tools/setup.sh wide
	@cmake -G Ninja -B build-asan -S . $(SAN)=address,undefined -DCMAKE_C_COMPILER=clang -DCMAKE_CXX_COMPILER=clang++ >/dev/null && ninja -C build-asan --quiet
	@ctest --test-dir build-asan --output-on-failure -j $(JOBS)

test-tsan:
	@tools/setup.sh wide
	@cmake -G Ninja -B build-tsan -S . $(SAN)=thread -DCMAKE_C_COMPILER=clang -DCMAKE_CXX_COMPILER=clang++ >/dev/null && ninja -C build-tsan --quiet
	@ctest --test-dir build-tsan --output-on-failure -j $(JOBS)

test-aarch64: build # cross-built with Debian's compiler; under qemu: the C tests, the command, the C examples, the wheel
	@tools/setup.sh aarch64
	@cmake -G Ninja -B build-aarch64 -S . -DCMAKE_TOOLCHAIN_FILE=tools/aarch64.cmake >/dev/null && ninja -C build-aarch64 --quiet
	@tools/test_aarch64.sh build-aarch64 -j $(JOBS)

# gcc's static analyzer over core/: a finding is an error. It loses sight of a struct that another function fills, and takes that for
# uninitialized memory: this one warning is off. Assertions are on: they tell it what it cannot see in another file.
analyze:
	@tools/setup.sh build
	@cmake -G Ninja -B build-analyze -S . -DDOVETAIL_TESTS=OFF -DCMAKE_BUILD_TYPE=Debug -DCMAKE_C_COMPILER=gcc \
		-DCMAKE_C_FLAGS="-fanalyzer -Wno-analyzer-use-of-uninitialized-value" >/dev/null
	@ninja -C build-analyze --quiet dovetail_static

fuzz: # each fuzz target from the committed corpora: the same inputs every time, or new ones for FUZZ_SECONDS
	@tools/setup.sh wide
	@cmake -G Ninja -B build-fuzz -S . -DDOVETAIL_FUZZ=ON -DDOVETAIL_TESTS=OFF $(SAN)=address,undefined -DCMAKE_C_COMPILER=clang >/dev/null && ninja -C build-fuzz --quiet
	@tools/fuzz.sh build-fuzz $(FUZZ_SECONDS)

# tests/torch on another torch, in an environment of its own: make test-torch TORCH=2.10.0, or the part that TESTS names
TORCH ?= newest
MUTANTS ?= 300
SEED ?= 1
TESTS ?= tests/torch
test-torch: build
	@$(PY) tools/torch_versions.py test $(TORCH) $(TESTS)

# tests/HOST with that framework, in an environment of its own
test-vllm test-mindspore test-torchair test-ascend test-pypto: test-%: build
	@tools/test_host.sh $*

part-vllm part-mindspore part-torchair part-ascend: part-%: build # what every run of CI tests of a host
	@tools/test_host.sh $* --part

test-hosts: build # the four above, or those of HOSTS, and parity: 9 GB of environments
	@tools/test_hosts.sh $(HOSTS)

# what CI adds: one test for each feature, on the newest torch
test-torch-newest: build
	@$(PY) tools/torch_versions.py test newest tests/torch/test_versions.py tests/torch/test_shims.py

parity: build # every operator in every host whose environment exists, compared with C: docs/hosts.md
	@$(PY) tests/parity/parity.py all

mutants: build # how many small faults of correct operators `dovetail check` finds: MUTANTS of them, drawn by SEED
	@$(PY) tools/mutants.py -n $(MUTANTS) --seed $(SEED) -j $(JOBS)

bench: build # every figure of docs/performance.md, side by side with its peer, in one run
	@$(PY) bench/run.py

format: # bring every C file to the form of .clang-format
	@git ls-files -co --exclude-standard '*.c' '*.h' | grep -v -e core/tensor/dlpack.h -e cli/templates/ | xargs .venv/bin/clang-format -i

clean:
	rm -rf build build-* build*.log out
