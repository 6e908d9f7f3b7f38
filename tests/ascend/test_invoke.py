"""invoke.c against the compiler: functions of random signatures get through it what a plain call gives them; for aarch64 under qemu where it is."""
import pathlib
import random
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TYPES = {"int64_t": "i", "int32_t": "i", "int8_t": "i", "bool": "b", "const char *": "p", "float": "f", "double": "d"}


def program(count, seed):
    rng = random.Random(seed)
    functions, checks = [], []
    for n in range(count):
        size = rng.choice([0, 1, 5, 8, 13, 20, 40, 128]) if n % 2 else rng.randrange(0, 30)
        only = rng.choice([list(TYPES), list(TYPES), ["float", "double"], ["int64_t", "int8_t"], ["float", "const char *"]])
        types = [rng.choice(only) for _ in range(size)]
        parameters, same, words = [], [], []
        for i, t in enumerate(types):
            kind = TYPES[t]
            value = {"i": rng.randrange(-128, 128), "b": rng.randrange(2), "p": rng.randrange(1 << 40), "f": rng.randrange(-99, 99) + 0.5,
                     "d": rng.random() - 0.5}[kind]
            if t == "int64_t":
                value = rng.randrange(-2**62, 2**62)
            parameters.append(f"{t} a{i}")
            literal = f"(const char *)(uintptr_t){value}" if kind == "p" else f"INT64_C({value})" if kind == "i" else repr(value)
            same.append(f"a{i} == ({t}){literal}")
            words.append(f"FLOAT({value!r})" if kind == "f" else f"DOUBLE({value!r})" if kind == "d" else f"INT({value})")
        functions.append(f"static int32_t f{n}({', '.join(parameters) or 'void'})\n{{ return {' && '.join(same) or '1'} ? {n % 7 + 1} : 0; }}\n")
        checks.append(f"    {{ const dv__argument_word w[] = {{ {', '.join(words + ['INT(0)'])} }};\n"
                      f"      if (dv__invoke_function((dv__any_function)f{n}, w, {size}) != {n % 7 + 1}) bad++, printf(\"%s\\n\", \"({', '.join(types)})\"); }}\n")
    return """#include <stdio.h>
#include <string.h>
#include "ascend.h"
static uint64_t bits_of_double(double d) { uint64_t b; memcpy(&b, &d, 8); return b; }
static uint64_t bits_of_float(float f) { uint64_t b = 0xdeadbeef00000000u; memcpy(&b, &f, 4); return b; }
#define INT(v) { (uint64_t)INT64_C(v), false }
#define DOUBLE(v) { bits_of_double(v), true }
#define FLOAT(v) { bits_of_float((float)(v)), true }
""" + "".join(functions) + "int main(void)\n{\n    int bad = 0;\n" + "".join(checks) + f'    printf("{count} signatures, %d wrong\\n", bad);\n    return bad != 0;\n}}\n'


TARGETS = {"x86_64": (["gcc", "clang"], []), "aarch64": (["aarch64-linux-gnu-gcc"], ["qemu-aarch64", "-L", "/usr/aarch64-linux-gnu"])}


@pytest.mark.parametrize("optimise", ["-O0", "-O2"])
@pytest.mark.parametrize("target, compiler", [(t, c) for t, (compilers, _) in TARGETS.items() for c in compilers])
def test_every_mixture_of_integers_and_floats(tmp_path, target, compiler, optimise):
    run = TARGETS[target][1]
    for tool in [compiler, *run[:1]]:
        if not shutil.which(tool):
            pytest.skip(f"no {tool} here")
    (tmp_path / "t.c").write_text(program(200, f"{target} {optimise}"))
    subprocess.run([compiler, "-std=c11", optimise, f"-I{ROOT}/include", f"-I{ROOT}/bridges/ascend", tmp_path / "t.c", ROOT / "bridges/ascend/invoke.c",
                    "-o", tmp_path / "t"], check=True)
    r = subprocess.run([*run, tmp_path / "t"], capture_output=True, text=True)
    assert r.stdout == "200 signatures, 0 wrong\n" and r.returncode == 0, r.stdout[-2000:]
