#!/usr/bin/env python3
"""Draw the kept figures: benches/results/*.txt and *.json become *.svg beside them.

    pip install matplotlib==3.11.2
    benches/plot.py [--out FOLDER]
    benches/plot.py --proof text.json --out FOLDER      # only the curves of results of examples/proof

The same files give the same bytes. Colours are of middle lightness and the background is
transparent, so that a picture reads on a light page and on a dark one.
"""

import argparse
import collections
import json
import pathlib

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt

RESULTS = pathlib.Path(__file__).resolve().parent / "results"
TEXT = "#7a828e"
DENSE, PYTORCH, SEPARATE, IN_PLACE = "#8d96a3", "#c2703d", "#3f86c9", "#3aa17e"

matplotlib.rcParams.update({
    "svg.hashsalt": "tributary",
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Verdana", "Arial"],
    "font.size": 9,
    "text.color": TEXT,
    "axes.labelcolor": TEXT,
    "axes.titlecolor": TEXT,
    "axes.edgecolor": TEXT,
    "xtick.color": TEXT,
    "ytick.color": TEXT,
})

Bar = collections.namedtuple("Bar", "label microseconds colour")


# ------------------------------------------------------------------------------------ reading

def read_sparse(name):
    """trib_sparse's table: microseconds by (count, algorithm, mode).

    Density 1 is the plain dense allreduce of NCCL; it is kept as ("nccl", its type)."""
    medians = {}
    for line in (RESULTS / name).read_text().splitlines():
        if line.startswith(("#", "algorithm")):
            continue
        algorithm, mode, count, density, _, median = line.split()[:6]
        if density == "1":
            algorithm = "nccl"
        medians[int(count), algorithm, mode] = float(median)
    return medians


def read_torch(name):
    """torch_sparse.py's table: microseconds by (count, what)."""
    medians = {}
    for line in (RESULTS / name).read_text().splitlines():
        if line.startswith(("#", "what")):
            continue
        left, right = line.split("|")
        *what, count, _ = left.split()
        medians[int(count), " ".join(what)] = float(right.split()[0])
    return medians


# ------------------------------------------------------------------------------------ drawing

def elements(count):
    return f"{count / 1e6:.3g}M elements"


def time(microseconds):
    return f"{microseconds:,.0f} µs"


def bare(axes):
    """No frame and no grid: the numbers stand beside the bars."""
    axes.patch.set_alpha(0)
    for side in axes.spines.values():
        side.set_visible(False)
    axes.tick_params(length=0)


def draw_bars(axes, title, bars):
    """Horizontal bars, the first on top; a line marks the length of the second. A bar more than
    twice as long as the next is cut short, and a gap says so."""
    longest, second = sorted((bar.microseconds for bar in bars), reverse=True)[:2]
    cut = 1.15 * second if longest > 2 * second else longest
    right = (1.3 if cut == longest else 1.45) * cut
    for row, bar in enumerate(bars):
        axes.barh(row, min(bar.microseconds, cut), height=0.72, color=bar.colour)
        if bar.microseconds > cut:
            axes.barh(row, 0.03 * cut, left=1.02 * cut, height=0.72, color=bar.colour)
        axes.text(right, row, time(bar.microseconds), ha="right", va="center")
    axes.axvline(bars[1].microseconds, color=TEXT, linewidth=1, linestyle=(0, (2, 3)))
    axes.set_title(title, loc="left", fontsize=10)
    axes.set_yticks(range(len(bars)), [bar.label for bar in bars])
    axes.set_xticks([])
    axes.set_xlim(0, right)
    axes.set_ylim(len(bars) - 0.5, -0.5)
    bare(axes)


def draw_legend(figure, entries):
    handles = [plt.Rectangle((0, 0), 1, 1, color=colour) for _, colour in entries]
    figure.legend(handles, [label for label, _ in entries], loc="outside lower left",
                  ncols=len(entries), frameon=False, handlelength=1, handleheight=1)


def save(figure, path):
    figure.savefig(path, transparent=True, metadata={"Date": None, "Creator": None})
    plt.close(figure)
    # matplotlib ends lines with blanks.
    path.write_text("\n".join(line.rstrip() for line in path.read_text().splitlines()) + "\n")
    print(f"{path.name}: {path.stat().st_size / 1000:.0f} KB")


# ------------------------------------------------------------------------------------ pictures

def sparse_panels(path, height, machine, bars, legend):
    """Whole sparse calls on one machine, a panel for each count. `bars` are (label, key, colour): a
    key of read_sparse or read_torch, less its count."""
    torch = read_torch(f"{machine}-torch.txt")
    times = {**torch, **read_sparse(f"{machine}-sparse.txt")}
    counts = sorted({count for count, _ in torch})
    figure, panels = plt.subplots(1, len(counts), figsize=(9.6, height), layout="constrained")
    for axes, count in zip(panels, counts):
        draw_bars(axes, elements(count),
                  [Bar(label, times[(count, *key)], colour) for label, key, colour in bars])
    for axes in panels[1:]:
        axes.set_yticklabels([])
    draw_legend(figure, legend)
    save(figure, path)


def sparse_beside_dense(path):
    """On two GPUs, beside NCCL's dense allreduce and PyTorch's top-k of the same run."""
    bars = [("dense f32", ("nccl", "f32"), DENSE),
            ("dense bf16", ("nccl", "bf16"), DENSE),
            ("PyTorch top-k", ("whole call",), PYTORCH)]
    for algorithm in ("auto", "topka", "chunked", "shared"):
        bars.append((algorithm, (algorithm, "separate"), SEPARATE))
        bars.append(("", (algorithm, "in_place"), IN_PLACE))
    sparse_panels(path, 3.5, "h200x2", bars,
                  [("NCCL, dense (dots: bf16)", DENSE), ("PyTorch, top-k 1 %", PYTORCH),
                   ("Tributary, 1 %, separate", SEPARATE), ("Tributary, 1 %, in place", IN_PLACE)])


def sparse_beside_torch(path):
    """On four GPUs, beside the same by PyTorch's operations."""
    bars = [("dense f32", ("dense float32",), DENSE),
            ("dense bf16", ("dense bfloat16",), DENSE),
            ("PyTorch top-k", ("whole call",), PYTORCH)]
    for algorithm in ("topka", "chunked", "shared"):
        bars.append((algorithm, (algorithm, "separate"), SEPARATE))
    sparse_panels(path, 2.5, "h200x4", bars,
                  [("PyTorch, dense (dots: bf16)", DENSE), ("PyTorch, top-k 1 %", PYTORCH),
                   ("Tributary, top-k 1 %, separate", SEPARATE)])


def one_sweep(rows):
    """The rows of a sweep that one curve can show: allreduce, f32 sums, out of place, each timed."""
    wanted = {"collective": "allreduce", "dtype": "f32", "op": "sum", "in_place": False,
              "variant": "default", "way": "each"}
    rows = [row for row in rows
            if all(row.get(key, value) == value for key, value in wanted.items())]
    return sorted(rows, key=lambda row: row["bytes"])


def size(position, _):
    for unit in ("B", "KiB", "MiB", "GiB"):
        if position < 1024 or unit == "GiB":
            return f"{position:.4g} {unit}"
        position /= 1024


def dense_beside_peer(source, path):
    """trib_sweep's JSON: time and bus bandwidth of an allreduce over sizes, beside the peer's."""
    rows = one_sweep(json.loads(source.read_text()))
    sizes, peer = [row["bytes"] for row in rows], rows[0]["peer"]
    peer = "NCCL" if peer == "nccl" else peer
    figure, panels = plt.subplots(1, 2, figsize=(9.6, 3), layout="constrained")
    for axes, key, title in zip(panels, ("median_us", "busbw"), ("time, µs", "bus bandwidth, GB/s")):
        axes.plot(sizes, [row["peer_" + key] for row in rows], color=PYTORCH, linewidth=4,
                  alpha=0.6, label=peer)
        axes.plot(sizes, [row[key] for row in rows], color=SEPARATE, linewidth=1.6,
                  label="Tributary")
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter(size)
        axes.set_title(title, loc="left", fontsize=10)
        bare(axes)
        axes.spines["bottom"].set_visible(True)
        axes.spines["left"].set_visible(True)
    panels[0].set_yscale("log")
    panels[0].legend(frameon=False)
    save(figure, path)


# The colours of methods of other makers, and of sparse ones by their density.
METHODS = {"dense": DENSE, "ddp": TEXT, "bf16": "#b59a3c", "powersgd": PYTORCH}
DENSITIES = {"0.01": SEPARATE, "0.001": IN_PLACE}
DASHES = {"topka": "-", "chunked": "--", "oktopk": ":", "shared": "-."}


def draw_curve(axes, run, key):
    """Validation loss over steps or seconds, without the first point, which is far above the others."""
    algorithm, _, density = run["method"].partition("-")
    points = [point for point in run["points"][1:] if point["loss"] is not None]
    first = run["method"] != "dense" or run["seed"] == 1  # one line in the legend
    axes.plot([point[key] for point in points], [point["loss"] for point in points],
              color=DENSITIES.get(density, METHODS.get(algorithm, TEXT)),
              linestyle=DASHES.get(algorithm, "-"), linewidth=1.4,
              label=run["method"] if first else None)


def proof_curves(source, path):
    """proof.py's JSON: validation loss over steps, and over the seconds of training."""
    file = json.loads(source.read_text())
    figure, panels = plt.subplots(1, 2, figsize=(9.6, 3.6), layout="constrained", sharey=True)
    for axes, key, title in zip(panels, ("step", "seconds"), ("steps", "seconds of training")):
        for run in file["runs"]:
            draw_curve(axes, run, key)
        axes.set_title(f"validation loss over {title}", loc="left", fontsize=10)
        bare(axes)
        axes.spines["bottom"].set_visible(True)
        axes.spines["left"].set_visible(True)
    panels[0].set_yscale("log" if file["setting"]["task"] == "digits" else "linear")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right center", frameon=False)
    save(figure, path)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, default=RESULTS)
    parser.add_argument("--proof", type=pathlib.Path, action="append", help="results of proof.py")
    options = parser.parse_args()
    out = options.out
    if options.proof:
        for source in options.proof:
            proof_curves(source, out / source.with_suffix(".svg").name)
        return
    sparse_beside_dense(out / "h200x2-sparse.svg")
    sparse_beside_torch(out / "h200x4-torch.svg")
    for source in sorted(RESULTS.glob("*sweep.json")):
        dense_beside_peer(source, out / source.with_suffix(".svg").name)
    for source in sorted(RESULTS.glob("*proof-*.json")):
        proof_curves(source, out / source.with_suffix(".svg").name)


if __name__ == "__main__":
    main()
