"""Calls with unknown parts (dv_infer_partial()) against the same calls fully known: random contracts, random calls, and random parts of
them hidden."""
import json
import random
import subprocess

import pytest

from contracts import Generator
from program import Refused, Run
from test_program import PROGRAM, describe, type_of

ANY = [-2**63, 2**63 - 1, 1, 0]


def has(r, i):
    return r[0] <= i <= r[1] and i % r[2] == r[3]


def within(a, b):
    """All numbers of one range are in the other."""
    if a[0] == a[1]:
        return has(b, a[0])
    return a[0] >= b[0] and a[1] <= b[1] and a[2] % b[2] == 0 and a[3] % b[2] == b[3]


def fits(known, value):
    """What is known of a result or name, and a value: a dtype, a size, a run, a dict of a result."""
    if isinstance(value, str):
        return known["dtype"] in ("", value)
    if isinstance(value, int):
        return has(known["value"], value)
    if isinstance(value, list):
        return has(known["value"], len(value)) and (not known["sizes"] or all(map(has, known["sizes"], value)))
    if value["kind"] == "absent":
        return has(known["present"], 0)
    if value["kind"] == "list":
        return has(known["present"], 1) and has(known["value"], len(value["of"])) and all(map(fits, known.get("of", []), value["of"]))
    return (has(known["present"], 1) and fits(known, value["shape"]) and fits(known, value["dtype"]) and
            known["device"] in ("", value["device"].split(":")[0]))


def is_known(known, value):
    if value["kind"] == "absent":
        return known["present"][:2] == [0, 0]
    if value["kind"] == "list":
        return known["value"][:2] == [len(value["of"])] * 2 and all(map(is_known, known["of"], value["of"]))
    return (known["present"][:2] == [1, 1] and [s[0] for s in known["sizes"]] == [s[1] for s in known["sizes"]] == value["shape"] and
            known["value"][:2] == [len(value["shape"])] * 2 and known["dtype"] == value["dtype"] and known["device"] != "")


def narrower(a, b):
    """a says at least what b says."""
    if not within(a["present"], b["present"]):
        return False
    if not all(map(narrower, a.get("of", []), b.get("of", []))):
        return False
    return a["present"][1] == 0 or (within(a["value"], b["value"]) and b["dtype"] in ("", a["dtype"]) and b["device"] in ("", a["device"]) and (not b["sizes"] or all(map(within, a["sizes"], b["sizes"]))))


def words(call):
    """The arguments' texts: a list of tensors is one."""
    out, depth = [""], 0
    for c in call:
        depth += (c == "{") - (c == "}")
        if c == " " and not depth:
            out.append("")
        else:
            out[-1] += c
    return out


def hide_in_tensor(rng, text, share):
    dtype, _, rest = text.partition("[")
    if not rest:
        return text
    sizes, _, device = rest.partition("]")
    if rng.random() < share / 2:
        sizes = "*"
    elif sizes != "*":
        sizes = ",".join("?" if rng.random() < share else n for n in sizes.split(",")) if sizes else sizes
    if rng.random() < share / 3:
        dtype = "?"
    if rng.random() < share / 4:
        device = "@?"
    return f"{dtype}[{sizes}]{device}"


def hide(rng, call, share):
    """Parts of a call are unknown; of one that has unknown parts, more."""
    out = []
    for word in words(call):
        if rng.random() < share / 5:
            word = "?"
        elif word.startswith("{"):
            word = "{" + " ".join(hide_in_tensor(rng, t, share) for t in word[1:-1].split(" ") if t) + "}"
        elif not word.startswith(("(", "'")):
            word = hide_in_tensor(rng, word, share)
        out.append(word)
    return " ".join(out)


def whole(program, names, values):
    """The result and the values of the names of a fully known call; None: it is refused."""
    try:
        run = Run(program, names, values)
        result = run.result(len(names))
        return result, {v["register"]: run.registers[v["register"]] for v in program["variables"] if v["kind"] != "device"}
    except Refused:
        return None


def partly(text):
    out = subprocess.run([PROGRAM, "--partly"], input=text, capture_output=True, text=True)
    assert out.returncode == 0, out.stderr
    return list(map(json.loads, out.stdout.splitlines()))


def check(seed, contracts, calls):
    rng, generator = random.Random(seed), Generator(seed)
    pairs = [generator.contract() for _ in range(contracts)]
    text, asked = "", []
    for (schema, contract), row in zip(pairs, describe(pairs)):
        if "error" in row:
            continue
        text += f"{schema}|{contract}\n"
        arguments = [(a["name"], type_of(schema, a["name"])) for a in row["schema"]["args"]]
        for call, values in generator.calls(contract, arguments, calls):
            expected = whole(row["contract"]["program"], [n for n, _ in arguments], values)
            some = hide(rng, call, .25)
            for form in (call, some, hide(rng, some, .5)):
                text += f"  {form}\n"
                asked.append((f"{schema}\n  {contract}\n  {form}\n  of {call}", form == call, expected))
    said = partly(text)
    assert len(said) == len(asked)
    wrong, counts = [], {"right": 0, "refused": 0, "wholly known": 0, "hidden": 0}
    before = None
    for (where, nothing_hidden, expected), known in zip(asked, said):
        error = "error" in known
        if expected and error:
            wrong.append(f"{where}\n    refused: {known['error']}")
        elif expected and nothing_hidden and not is_known(known["results"][0], expected[0]):
            wrong.append(f"{where}\n    expected {expected[0]}\n    found {known['results'][0]}")
        elif expected and not (fits(known["results"][0], expected[0]) and all(
                fits(known["names"][i], v) for i, v in expected[1].items() if isinstance(v, (int, str, list)))):
            wrong.append(f"{where}\n    expected {expected}\n    found {known}")
        elif not expected and nothing_hidden and not error:
            wrong.append(f"{where}\n    is not refused: {known}")
        if before and not nothing_hidden:
            if error and "error" not in before:
                wrong.append(f"{where}\n    refused, but with more known it is not: {known['error']}")
            elif not error and "error" not in before and not all(map(narrower, before["results"] + before["names"], known["results"] + known["names"])):
                wrong.append(f"{where}\n    more known\n    {before}\n    less known\n    {known}")
        before = known
        counts["right"] += expected is not None
        counts["refused"] += error
        counts["hidden"] += not nothing_hidden and not error
        counts["wholly known"] += not nothing_hidden and expected is not None and not error and is_known(known["results"][0], expected[0])
    assert not wrong, f"{len(wrong)} of {len(asked)}\n" + "\n".join(wrong[:10])
    return counts


def test_random_calls():
    counts = check(1, 500, 6)
    assert counts["right"] > 800 and counts["refused"] > 1000 and counts["hidden"] > 700 and counts["wholly known"] > 200, counts


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 6))
def test_many_random_calls(seed):
    check(seed, 1500, 8)
