#!/usr/bin/env python3
"""How good is `dovetail check`? Correct operators get one small fault each, and the checker has to find it.

    python3 tools/mutants.py [-n COUNT] [--seed SEED] [--kind KIND] [--file PART] [--quick] [--json FILE]
    python3 tools/mutants.py --again FILE [--json FILE]   # those that survived in what --json wrote
    python3 tools/mutants.py --table FILE ...        # what --json wrote, as the tables of docs/check-reference.md, which it replaces

A mutant is an operator's source with one edit: of its code (a bound, a comparison, a size, an initialisation, a rounding, ...) or of
its declaration (a fact, a dtype, a `!`, a gradient's factor, ...). COUNT of them are drawn, so that each kind of each file has its turn.
A mutant is killed when the checker reports a failure of what passes in the original; not tried, when the check has not ended after five
minutes. Not counted are those that do not compile, those whose machine code is that of the original, and those in
tools/mutants_equivalent.txt, each with the reason. Prints the tables, and the survivors."""
import argparse
import collections
import concurrent.futures
import functools
import hashlib
import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
COMMAND = pathlib.Path(os.environ.get("DOVETAIL_BUILD", ROOT / "build")) / "bin" / "dovetail"
EQUIVALENT = ROOT / "tools" / "mutants_equivalent.txt"
PAGE, BEGIN, END = ROOT / "docs" / "check-reference.md", "<!-- make mutants -->\n", "<!-- end -->\n"  # where the tables stand
MOST_OPERATORS = 2  # of those that an edit affects

Mutant = collections.namedtuple("Mutant", "path kind line before after text operators")

# ---- Edits of C code: (kind, pattern, replacements). The first group of a pattern is replaced, else all of it ----

SIMPLE = r"[\w.\->]+(?:\[[\w ]+\])?"
CODE = [
    ("bound", r"for \([^;]*; [^;]*?( < | > )", [" <= ", " >= "]),
    ("bound", rf"for \([^;]*; [\w]+ <=? ({SIMPLE});", [r"\1 - 1", r"\1 + 1"]),
    ("bound", r"for \((?:int|int64_t|int32_t|size_t) \w+ = (0)\b", ["1"]),
    ("compare", r"(?<=[\w)\]])( <=? | >=? )(?=[\w(*-])", {" < ": " <= ", " <= ": " < ", " > ": " >= ", " >= ": " > "}),
    ("compare", r" == | != ", {" == ": " != ", " != ": " == "}),
    ("compare", r" && | \|\| ", {" && ": " || ", " || ": " && "}),
    ("arithmetic", r"(?<=[\w)\]])( \+ | - | \* | / | % )(?=[\w(*])", {" + ": " - ", " - ": " + ", " * ": " + ", " / ": " * ", " % ": " / "}),
    ("arithmetic", r" \+= | -= ", {" += ": " -= ", " -= ": " += "}),
    ("constant", r"(?<![\w.\[x])([0-9]+)(?![\w.])", [r"(\1 + 1)"]),
    ("constant", r"(?<![\w.])([0-9]+\.[0-9]+f?)(?!\w)", [r"(\1 * 1.01f)"]),
    ("index", r"(?:shape|strides|in|out|data)\[([0-9])\]", {"0": "1", "1": "0", "2": "1", "3": "2"}),
    ("narrow index", r"\b(int64_t)(?= \w+ = )", ["int32_t"]),
    ("narrow index", r"\((int64_t|size_t)\)(?=[\w(])", ["int32_t"]),
    ("narrow index", r"\b(double)(?= \w+ = )", ["float"]),
    ("initialisation dropped", r"(?<!\()\b(?:float|double|int64_t|int) \w+( = (?:0|1|\{ 0 \}));", [""]),
    ("initialisation dropped", r"^ +(memset\([^;]*);", ["(void)0"]),
    ("statement dropped", r"^ +((?:[\w.\->]+(?:\[[^;]*?\])? [-+*|]?= |memcpy\(|free\(|put\()[^;={]*);", ["(void)0"]),
    ("check dropped", r"\bif \((.*)\)$", ["0 && (\\1)", "!(\\1)"]),
    ("arguments swapped", rf"(?<=\()({SIMPLE}, {SIMPLE})(?=[,)])", "swap"),
    ("arguments swapped", r"\ba->(\w+)->data", "field"),
    ("truncation", r"\bdv_put_f64\([^,]*, [^,]*, (?:t|dv_dtype_key\([^;]*?\)), (.*)\);", [r"cut(\1)"]),
    ("truncation", r"\b(lrintf?|roundf?|rintf?)\(", ["truncf"]),
]
HERE = "#line here"  # what an edit adds is on lines of its own, so that the declarations keep theirs
CUT = """#include <dovetail_elementwise.h>
static inline double cut(double x) /* towards zero, to the 8 bits of a bf16 */
{
    return dv__f64_from_bits(dv__bits_of_f64(x) & ~(((uint64_t)1 << 45) - 1));
}
#line here
"""
TRUNCATED = f"""#include <dovetail_op.h>
#define dv_f32_to_bf16(x) ((uint16_t)(dv__bits_of_f32(x) >> 16))
#include <dovetail_elementwise.h>
{HERE}"""

# ---- Edits of declarations: of the strings after a member's name ----

DECLARATION = {
    "contract": [
        ("fact dropped", r"(; (?!T in|I in|J in|parallel|sum\(|flops|bytes|strided|last_contiguous|align)[^;\"]+)(?=[;\"])", [""]),
        ("fact added", r"(parallel|sum)\((\*?\w+)\)", "other name"),
        ("dtype", r" in (?:\w+ )*?(f32|f64|f16|bf16|i64|i32|i8|u8|bool) ?(?=[;\"\w])", [""]),
        ("dtype", r" in ((?:(?:f32|f64|f16|bf16|i32) ?)+)(?=[;\"])", [r"\1 i32"]),
        ("dim", r"\[\*?\w+ (\w+)\]", ["1"]),
        ("dim", r"\[(\w+ \w+)\]", "swap words"),
        ("cost", r"(?:flops|workspace) = ([0-9]+)", [r"(\1 / 2)"]),
    ],
    "schema": [
        ("! dropped", r"Tensor(\(\w!\))", [""]),
        ("optional", r"Tensor(\??)(?= \w)(?=.*->)", {"": "?", "?": ""}),
    ],
    "gradient": [
        ("gradient", r"\w+: ([^;\"]+)(?=[;\"])", [r"2 * (\1)", r"-(\1)"]),
        ("gradient", r"(\w+: [^;\"]+; )(?=\w+:)", [""]),
        ("gradient", r" \+ | - | \* | / ", {" + ": " - ", " - ": " + ", " * ": " / ", " / ": " * "}),
        ("gradient", r"(?<=\()(\w+, \w+)(?=[,)])", "swap"),
        ("gradient", r"\bgrads?(?:\[[0-9]\])?", {"grads[0]": "grads[1]", "grads[1]": "grads[0]", "grad": "zeros_like(grad)"}),
    ],
    "native": [
        ("decomposition", r" \+ | - | \* | / ", {" + ": " - ", " - ": " + ", " * ": " / ", " / ": " * "}),
        ("decomposition", r"(?<=\()(\w+, \w+)(?=[,)])", "swap"),
        ("decomposition", r"\[(-1|0)\]", {"-1": "0", "0": "-1"}),
    ],
    "kernels": [
        ("dtype", r"\"cpu\", \"((?:f32|f64|f16|bf16)[^\"]*)\"", [r"\1 i32", "f32"]),
    ],
}
VALUE = {"arithmetic", "constant", "truncation", "compare", "narrow index"}  # of an operator without an opinion these are another operator


def replacements(how, m, group, fields):
    old = m.group(group)
    if isinstance(how, dict):
        return [how[old]] if old in how else []
    if how == "swap":
        a, b = old.split(", ")
        return [f"{b}, {a}"] if a != b and a != "ctx" and not a.isdigit() else []
    if how == "swap words":
        a, b = old.split(" ")
        return [f"{b} {a}"] if a != b else []
    if how == "field":
        return [f for f in fields.get(old, [])][:1]
    if how == "other name":
        names = sorted(set(re.findall(r"(?<=[\[ ])\*?[a-z]\w*(?=[\] ])", m.string)) - {m.group(2), "in", "parallel", "sum"})
        return [f"{m.group(1)}({n})" for n in names[:2]]
    return [m.expand(new) for new in how]


def edits(table, text, base, skip, fields):
    """(kind, begin, end, new) of each edit of this text, which is at `base` of the file."""
    for kind, pattern, how in table:
        for m in re.finditer(pattern, text, re.M):
            group = 1 if m.re.groups and how != "other name" else 0
            begin, end = m.span(group)
            if not any(a < end and begin < b or a <= begin < b for a, b in skip):
                for new in replacements(how, m, group, fields):
                    yield kind, base + begin, base + end, new


def spans(text, of):
    return [m.span() for m in re.finditer(of, text, re.M | re.S)]


# ---- What belongs to which operator ----

class Source:
    """A C file in pieces, each of which defines names and uses others."""

    def __init__(self, path):
        self.path, self.text = path, (ROOT / path).read_text()
        begins = [m.start() for m in re.finditer(r"^(?=[^\s{})/*])", self.text, re.M)] + [len(self.text)]
        listed = set(re.findall(r"&dv_op_(\w+)", self.text))
        self.pieces = []
        for begin, end in zip(begins, begins[1:]):
            text = self.text[begin:end]
            names = set(re.findall(r"^(?:#define |struct |static .*?|DV_INLINE .*?|DV_OPERATOR\()(\w+)(?= \{|\()", text, re.M)) | set(re.findall(r"^#define (\w+)", text))
            prefixes = set(re.findall(r"(\w+_)##", text)) if text.startswith("#define") else set()
            called = re.match(r"[A-Z_]+\((\w+)", text)
            operator = called[1] if called and called[1] in listed else None
            schema = re.search(r"\.schema\s*=\s*\"([\w.]+)\(", text)
            self.pieces.append((begin, end, names, prefixes, operator, schema[1] if schema else operator))
        self.words = [set(re.findall(r"\w+", self.text[p[0]:p[1]])) for p in self.pieces]
        self.fields = {}  # of one struct: other tensors
        for m in re.finditer(r"^    (?:const )?dv_tensor (\*\w+(?:, \*\w+)+);", self.text, re.M):
            names = re.findall(r"\w+", m[1])
            for name, other in zip(names, names[1:] + names[:1]):
                self.fields.setdefault(name, []).append(other)

    def uses(self, words, piece):
        _, _, names, prefixes, operator, _ = self.pieces[piece]
        return bool(words & (names | {operator})) or any(w.startswith(p) or w + "_" == p for p in prefixes for w in words)

    def operators(self, at):
        """The schema names of the operators that what stands here affects, and whether one has an opinion on its values."""
        seen = [i for i, p in enumerate(self.pieces) if p[0] <= at < p[1]]
        for piece in seen:  # those that use it, nearest first: the list grows
            seen += [i for i, words in enumerate(self.words) if i not in seen and self.uses(words, piece)]
        def text(i):
            return self.text[self.pieces[i][0]:self.pieces[i][1]]
        found = [i for i in seen if self.pieces[i][4]]
        judged = {i for i in found if re.search(r"\.native|REFERENCE|TWO_ROWS|\.gradient|^FUNCTION", text(i))}
        everything = " ".join(map(text, found))  # a reference kernel that is alone is compared with nothing but its gradient
        opinion = bool(re.search(r"\.native|TWO_ROWS", everything)) or "REFERENCE" in everything and bool(re.search(r"\.gradient|DV_KERNEL\(.*DV_KERNEL\(", self.text, re.S))
        return [self.pieces[i][5] for i in sorted(found, key=lambda i: i not in judged)], opinion


def at_line(after, text):
    """Number the lines after what an edit added at the include."""
    return after.replace(HERE, f"#line {text.count(chr(10), 0, text.index('#include <dovetail_elementwise.h>')) + 2}") if HERE in after else after


def mutants_of(path):
    source = Source(path)
    text = source.text
    comments, strings = spans(text, r"/\*.*?\*/|^#include[^\n]*|^DV_LIBRARY.*?;|^struct.*?^\};"), spans(text, r'"[^"\n]*"')
    body = r"^DV_OPERATOR\(.*?;$"
    found = list(edits(CODE, text, 0, comments + strings + spans(text, body), source.fields))
    for begin, end in spans(text, body):
        for m in re.finditer(r"\.(\w+)\s*=\s*((?:\s*(?:\"[^\"]*\"|[A-Z_]+(?![\w(])))+|DV_KERNELS.*)", text[begin:end], re.S):
            if m[1] in DECLARATION:
                found += edits(DECLARATION[m[1]], m[2], begin + m.start(2), [], source.fields)
    for m in re.finditer(r'^#define [A-Z_]+ +"[^"]*"', text, re.M):
        found += edits(DECLARATION["contract"][3:4], m[0].replace('"', ' in ', 1), m.start() - 3, [], source.fields)
    found += [("truncation", m.start(), m.end(), TRUNCATED) for m in re.finditer("#include <dovetail_elementwise.h>", text) if "dv_for_each_block(" in text or "DV_ELEMENTWISE(" in text]
    seen = set()
    for kind, begin, end, new in found:
        operators, opinion = source.operators(re.search(r"dv_for_each_block\(|DV_ELEMENTWISE\(", text).start() if new == TRUNCATED else begin)
        if not operators or (kind in VALUE and not opinion) or (begin, end, new) in seen:
            continue
        seen.add((begin, end, new))
        number, after = text.count("\n", 0, begin), text[:begin] + new + text[end:]
        lines = [t.splitlines()[number].strip() for t in (text, after)]
        if "cut(" in new:
            after = after.replace("#include <dovetail_elementwise.h>\n", CUT, 1)
        yield Mutant(path, kind, number + 1, lines[0], lines[1], at_line(after, text), operators[:MOST_OPERATORS])


def draw(mutants, count, seed):
    """Each kind of each file in turn."""
    random.Random(seed).shuffle(mutants)
    turns = collections.defaultdict(list)
    for m in mutants:
        turns[m.path, m.kind].append(m)
    ranked = sorted(((i, hashlib.sha1(repr((seed, key)).encode()).digest(), m) for key, ms in turns.items() for i, m in enumerate(ms)), key=lambda x: x[:2])
    return [m for *_, m in ranked[:count]]


# ---- Trying one ----

def run(*words):
    env = os.environ | {"DOVETAIL_PYTHON": ""}
    return subprocess.run(list(map(str, words)), capture_output=True, text=True, timeout=300, cwd=ROOT, env=env)


def build(text, folder, path):
    folder = folder / pathlib.Path(path).stem  # the same path for each mutant, so that the same code is the same binary
    folder.mkdir(exist_ok=True)
    for header in (ROOT / path).parent.parent.glob("*.h"):
        shutil.copy(header, folder.parent)
    source, out = folder / pathlib.Path(path).name, folder / "mutant.so"
    source.write_text(text)
    out.unlink(missing_ok=True)
    done = run(COMMAND, "build", source, "-o", out)
    return source, out, done.stderr + done.stdout


# What is cheap comes first: a mutant that a round kills is not tried in the next. The last two together are the whole check.
CHEAP, DEAR = "binding,runs,memory,shapes,fake,values,gradient,leaks,tags", "parallel,undefined"
ROUNDS = [("--quick", CHEAP), ("", CHEAP), ("", DEAR)]


def failures(file, name, seed, quick, properties):
    """{property: the first message} of what fails."""
    found, options = {}, ["--json", "--seed", seed, "--op", name, "--only", properties] + [quick] * bool(quick)
    done = run(COMMAND, "check", *options, file)
    if not done.stdout.startswith("{"):
        return {"binding": (done.stderr or "no report").strip()}
    for r in json.loads(done.stdout)["results"]:
        if r["result"] == "fail":
            found.setdefault(r["property"], f"{r['operator']}: {r['message']}")
        elif r.get("no_arguments"):
            found.setdefault("no arguments", r["reason"])
    return found


def attempt(m, folder, seed, original, rounds):
    """(its result, {property: message}); a failure counts where the original passes."""
    source, out, said = build(m.text, folder, m.path)
    if not out.exists():
        compiler = re.search(r"error: (?!.*(?:operator|library) )", said) and not re.search(r"dovetail: error: .*(operator|library) ", said)
        return ("not compiled", {}) if compiler else ("killed", {"binding": said.strip()})
    if out.read_bytes() == original.read_bytes():
        return "same code", {}
    try:
        for quick, properties in rounds:
            for name in m.operators:
                if found := failures(out if quick else source, name, seed, quick, properties):
                    tried = ",".join(sorted(set(found) - {"no arguments"}) or ["binding"])
                    alarms = right(original if quick else ROOT / m.path, name, seed, quick, tried)
                    return ("not tried", alarms) if alarms else ("killed", found)
    except subprocess.TimeoutExpired:
        return "not tried", {}
    return "survived", {}


right = functools.cache(failures)  # of the originals


def equivalent():
    """{(path, before, after): reason}"""
    lines = EQUIVALENT.read_text().splitlines() if EQUIVALENT.exists() else []
    return {tuple(line.split("\t")[:3]): line.split("\t")[3] for line in lines if line and line[0] != "#"}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", type=int, default=400, help="how many mutants")
    parser.add_argument("--seed", type=int, default=1, help="which are drawn; and the checker's seed")
    parser.add_argument("--kind", help="only this kind")
    parser.add_argument("--file", default="", help="only files with this in their path")
    parser.add_argument("--json", help="write every mutant with its result")
    parser.add_argument("--quick", action="store_true", help="only the first round; --again tries those that are left in the others")
    parser.add_argument("--again", help="those that survived in this file of --json")
    parser.add_argument("--table", nargs="+", help="write the tables of docs/check-reference.md from these files of --json")
    parser.add_argument("-j", type=int, default=2, help="how many at once")
    args = parser.parse_args()
    if args.table:
        return write_tables([r for path in args.table for r in json.loads(pathlib.Path(path).read_text())])
    paths = [p for p in sorted(ROOT.glob("ops/*/*.c")) if p.parent.name != "base" and ".kernels" in p.read_text()] + [ROOT / "tests/check" / n for n in ("healthy.c", "right_gradients.c")]
    paths = [str(p.relative_to(ROOT)) for p in paths if args.file in str(p)]
    everything = [m for p in paths for m in mutants_of(p) if not args.kind or m.kind == args.kind]
    mutants, known, begin = draw(everything, args.n, args.seed), equivalent(), time.time()
    if args.again:
        again = {(r["path"], r["line"], r["after"]) for r in json.loads(pathlib.Path(args.again).read_text()) if judged(r, known) == "survived"}
        mutants = [m for m in everything if (m.path, m.line, m.after) in again]
    rounds = ROUNDS[1:] if args.again else ROUNDS[:1] if args.quick else ROUNDS
    with tempfile.TemporaryDirectory(prefix="mutants-") as temp, concurrent.futures.ThreadPoolExecutor(args.j) as pool:
        os.environ["XDG_CACHE_HOME"] = temp
        folders = [pathlib.Path(temp) / str(i) for i in range(args.j)]
        for folder in folders:
            folder.mkdir()
            for p in {m.path for m in mutants}:
                source, out, said = build((ROOT / p).read_text(), folder, p)
                out.rename(source.with_suffix(".so")) if out.exists() else sys.exit(f"{p} does not build: {said}")

        def one(m):
            if (m.path, m.before, m.after) in known:
                return "equivalent", {}
            folder = folders.pop()
            try:
                return attempt(m, folder, args.seed, folder / pathlib.Path(m.path).stem / (pathlib.Path(m.path).stem + ".so"), rounds)
            finally:
                folders.append(folder)
        results = []
        for m, (result, found) in zip(mutants, pool.map(one, mutants)):
            results.append(m._asdict() | {"text": None, "result": result, "found": found})
            if judged(results[-1], known) == "survived":
                print(f"survived: {m.path}:{m.line}: {m.kind} ({', '.join(m.operators)})\n    {m.before}\n    {m.after}", flush=True)
            if args.json:
                pathlib.Path(args.json).write_text(json.dumps(results, indent=1))
    print(tables(results), f"\n{len(results)} of {len(everything)} mutants, {time.time() - begin:.0f} s")


def judged(r, known):
    """Its result: not compiled, too, where the declaration cannot be read; equivalent by the list of those that are as right as the original."""
    if re.search(r"(contract|native|gradient): column [0-9]+: expected (?!Tensor|a size)", r["found"].get("binding", "")):
        return "not compiled"
    return "equivalent" if r["result"] == "same code" or (r["result"] == "survived" and (r["path"], r["before"], r["after"]) in known) else r["result"]


def tables(results):
    known, kinds, kills, alone = equivalent(), collections.defaultdict(collections.Counter), collections.defaultdict(collections.Counter), collections.Counter()
    for r in {(r["path"], r["line"], r["after"]): r for r in results}.values():  # what is later counts
        for kind in (r["kind"], "all"):
            kinds[kind][judged(r, known)] += 1
            kills[kind].update(list(r["found"]) if judged(r, known) == "killed" else [])
        if len(r["found"]) == 1 and judged(r, known) == "killed":
            alone.update(list(r["found"]))
    kills["all"].update(dict.fromkeys((CHEAP + "," + DEAR).split(","), 0))
    lines = ["| kind | made | not built | not tried | equivalent | killed | survived | by (mutants) |", "|---|---|---|---|---|---|---|---|"]
    for kind, n in sorted(kinds.items(), key=lambda k: (k[0] == "all", k[0])):
        share = f" ({100 * n['killed'] / max(n['killed'] + n['survived'], 1):.1f} %)" if kind == "all" else ""
        by = ", ".join(f"{name} {count}" for name, count in kills[kind].most_common() if count)
        lines.append(f"| {kind} | {n.total()} | {n['not compiled']} | {n['not tried']} | {n['equivalent']} | {n['killed']}{share} | {n['survived']} | {by} |")
    lines += ["", "| property | kills | only it kills |", "|---|---|---|"]
    lines += [f"| `{name}` | {n} | {alone[name]} |" for name, n in sorted(kills["all"].items(), key=lambda k: -k[1])]
    return "\n".join(lines) + "\n"


def write_tables(results):
    text = PAGE.read_text()
    begin, end = text.index(BEGIN) + len(BEGIN), text.index(END)
    PAGE.write_text(text[:begin] + tables(results) + text[end:])


if __name__ == "__main__":
    main()
