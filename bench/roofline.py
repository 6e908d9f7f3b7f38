"""docs/figures/PROCESSOR.svg: each case of bench_ops.py beneath the limits of the machine, drawn by run.py --write.

Across: operations for each byte; up: operations a second. A case cannot be above the line of its arithmetic, nor above that of its memory.
"""
import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt

COLOURS = {"f32": "#1f77b4", "bf16": "#d62728", "f16": "#2ca02c", "i8": "#9467bd"}
HEIGHT = 6.2  # inches of a panel


def dtype_of(case):
    return next(name for name in COLOURS if name in case.replace(",", " ").split())


def roofs(rows, limits, threads):
    """({kind: GFLOP/s}, {memory: GB/s}): the best that was seen."""
    peaks, speeds = {}, {}
    at = limits["threads"].index(threads)
    for what, figures in limits["limits"].items():
        kind, where = what.split(",")[0], what.split(":")[0].split(",")[0]
        into, key = (speeds, where) if what.endswith("GB/s") else (peaks, kind)
        into[key] = max(into.get(key, 0), figures[at])
    for row in rows:
        if row["threads"] == threads:
            peaks[row["peak"]], speeds[row["memory"]] = max(peaks[row["peak"]], row["gflops"]), max(speeds[row["memory"]], row["gb"])
    return peaks, speeds


def place(axes, points):
    """Puts a number beside each point, where no other one and no point is."""
    size = axes.transData.transform
    taken = [tuple(size((x, y))) for x, y, *_ in points]
    for (x, y, label, colour), (px, py) in zip(points, taken.copy()):
        spots = [(px + dx, py + dy) for r in (9, 14, 20, 28, 38) for dx, dy in ((r, 0), (-r, 0), (0, r), (0, -r), (r, r), (-r, r), (r, -r), (-r, -r))]
        crowd = lambda spot: min(max(abs(spot[0] - a) / 10, abs(spot[1] - b) / 8) for a, b in taken if (a, b) != (px, py))
        spot = next((spot for spot in spots if crowd(spot) >= 1), max(spots, key=crowd))
        taken.append(spot)
        (at_x, at_y) = axes.transData.inverted().transform(spot)
        axes.text(at_x, at_y, str(label), fontsize=6.5, color=colour, ha="center", va="center")
        if max(abs(spot[0] - px), abs(spot[1] - py)) > 9:
            axes.plot([x, at_x], [y, at_y], lw=0.3, color=colour)


def draw(rows, path):
    """Whether there was something to draw."""
    limits = next((row for row in rows if "limits" in row and "case" not in row), None)
    rows = [row for row in rows if "case" in row]
    if not rows or not limits:
        return False
    plt.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "dovetail", "font.size": 8, "font.family": "DejaVu Sans"})
    threads = sorted({row["threads"] for row in rows})
    cases = list(dict.fromkeys(row["case"] for row in rows))
    figure, panels = plt.subplots(len(threads), 1, figsize=(11, HEIGHT * len(threads)), squeeze=False)
    figure.subplots_adjust(left=0.06, right=0.68, top=0.97, bottom=0.06 / len(threads) + 0.01, hspace=0.14)
    left, right = min(row["flops"] / row["bytes"] for row in rows) / 1.6, max(row["flops"] / row["bytes"] for row in rows) * 2
    for n, axes in zip(threads, panels[:, 0]):
        peaks, speeds = roofs(rows, limits, n)
        some = [row for row in rows if row["threads"] == n]
        axes.set(xscale="log", yscale="log", xlim=(left, right), ylim=(min(row["flops"] / row["ours"] / 1e3 for row in some) / 1.6, max(peaks.values()) * 1.8),
                 xlabel="operations for each byte", ylabel="operations a second, in 1e9", title=f"{n} thread{'s' * (n > 1)}")
        axes.minorticks_off()
        axes.grid(True, lw=0.3, color="#dddddd")
        for kind, peak in peaks.items():
            axes.plot([peak / max(speeds.values()), right], [peak, peak], color=COLOURS[kind], lw=1)
            axes.text(right / 1.05, peak * 1.05, f"{kind}: {peak:.0f} GFLOP/s", ha="right", color=COLOURS[kind])
        for where, style, aside, align in (("cache", "--", 0.87, "right"), ("DRAM", "-", 1.15, "left")):
            end = max(peaks.values()) / speeds[where]
            axes.plot([left, end], [left * speeds[where], end * speeds[where]], style, color="#555555", lw=1)
            axes.text(0.7 * end * aside, 0.7 * max(peaks.values()), f"{where}: {speeds[where]:.0f} GB/s", color="#555555", ha=align, va="center")
        points = [(row["flops"] / row["bytes"], row["flops"] / row["ours"] / 1e3, cases.index(row["case"]) + 1, COLOURS[dtype_of(row["case"])]) for row in some]
        axes.scatter([p[0] for p in points], [p[1] for p in points], s=7, c=[p[3] for p in points], zorder=3)
        place(axes, points)
    for i, case in enumerate(cases):
        figure.text(0.695, 0.97 - (i + 1) * 0.94 / (len(cases) + 1), f"{i + 1}  {case}", fontsize=6.5, color=COLOURS[dtype_of(case)], va="center")
    figure.savefig(path, metadata={"Date": None, "Creator": None})
    plt.close(figure)
    path.write_text("\n".join(line.strip() for line in path.read_text().splitlines()) + "\n")
    return True
