"""What users see stays as it was while the code is rebuilt: the texts of `dovetail info`, `info --json` (without the program) and `explain`
for the shipped operators, and the answers of random contracts, in C and with unknown sizes.

The files beside this one hold what is expected: one for each shipped binary, and digests of the contracts' answers. Where a change is wanted,
`python tests/frozen/test_frozen.py` writes them again; the commit says which words or answers changed, and why."""
import hashlib
import json
import os
import pathlib
import random
import re
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(ROOT / "tests/lang"), str(ROOT / "tests/parity")]
from contracts import Generator  # noqa: E402
from parity import sites  # noqa: E402
from test_partial import hide  # noqa: E402
from test_program import describe, type_of  # noqa: E402

BUILD = pathlib.Path(os.environ.get("DOVETAIL_BUILD", ROOT / "build"))
SHIPPED = sorted(p.stem for p in (ROOT / "ops").iterdir() if (p / "cases.txt").exists())
CONTRACTS, CALLS, SEED = 1500, 4, 36


def said(*words):
    """What the command prints, on a processor without vector instructions, with no path of this machine."""
    r = subprocess.run([BUILD / "bin/dovetail", *map(str, words)], capture_output=True, text=True, env=os.environ | {"DOVETAIL_ISA": "base"})
    return (r.stdout + r.stderr).replace(f"{BUILD}/", "").replace(f"{ROOT}/", "")


def shipped(name):
    """All texts about the operators of a shipped binary."""
    binary = BUILD / f"ops/{name}.so"
    document = json.loads(said("info", "--json", binary))
    for operator in document["operators"]:
        operator["contract"].pop("program")
    names = {operator["name"] for operator in document["operators"]}
    text = said("info", binary) + json.dumps(document, indent=1, ensure_ascii=False) + "\n"
    for call, _ in sites():
        if call.partition("(")[0] in names:
            text += f"---- {call}\n" + said("explain", binary, call)
    return re.sub(r'(declared in |"file": ")[./]*ops/', r"\1ops/", re.sub(r"(ops/\w+/\w+\.\w+)(:\d+|\",\n +\"line\": \d+)", r"\1", text))


def digest(text):
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def answers(option, pairs, calls):
    """The lines that test_contract prints for the calls of each contract."""
    text = "".join(f"{s}|{c}\n" + "".join(f"  {call}\n" for call in of) for (s, c), of in zip(pairs, calls))
    r = subprocess.run([BUILD / "bin/test_contract", option], input=text, capture_output=True, text=True)
    lines = iter(r.stdout.splitlines())
    assert r.returncode == 0, r.stderr
    return ["\n".join(next(lines) for _ in of) for of in calls]


def contracts():
    """A line for each random contract: digests of its description or error, of its calls' answers, and of those with unknown parts."""
    generator, rng = Generator(SEED), random.Random(SEED)
    pairs = [(schema, " ".join(contract.split())) for schema, contract in (generator.contract() for _ in range(CONTRACTS))]
    rows, calls = describe(pairs), []
    for (schema, contract), row in zip(pairs, rows):
        arguments = [(a["name"], type_of(schema, a["name"])) for a in row["schema"]["args"]] if "error" not in row else []
        calls.append([call for call, _ in generator.calls(contract, arguments, CALLS)] if arguments else [])
        row.get("contract", {}).pop("program", None)
    accepted = [i for i, of in enumerate(calls) if of]
    known = dict(zip(accepted, answers("--answer", [pairs[i] for i in accepted], [calls[i] for i in accepted])))
    some = [[hide(rng, call, .3) for call in calls[i]] for i in accepted]
    unknown = dict(zip(accepted, answers("--partly", [pairs[i] for i in accepted], some)))
    assert len(accepted) > CONTRACTS / 3
    return [f"{digest(json.dumps(row))} {digest(known.get(i, ''))} {digest(unknown.get(i, ''))} {schema} | {contract}\n"
            for i, ((schema, contract), row) in enumerate(zip(pairs, rows))]


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped(name):
    assert shipped(name) == (HERE / f"shipped/{name}.txt").read_text()


def test_all_are_frozen():
    assert SHIPPED == sorted(p.stem for p in (HERE / "shipped").glob("*.txt"))


def test_contracts():
    """Each contract is accepted or refused as before, and its calls have the same shapes and messages."""
    expected = (HERE / "contracts.txt").read_text().splitlines(keepends=True)
    wrong = [f"expected {e}found    {g}" for e, g in zip(expected, contracts(), strict=True) if e != g]
    assert not wrong, f"{len(wrong)} of {len(expected)}:\n" + "".join(wrong[:5])


if __name__ == "__main__":
    (HERE / "shipped").mkdir(exist_ok=True)
    for old in (HERE / "shipped").glob("*.txt"):
        old.unlink()
    for name in SHIPPED:
        (HERE / f"shipped/{name}.txt").write_text(shipped(name))
    (HERE / "contracts.txt").write_text("".join(contracts()))
