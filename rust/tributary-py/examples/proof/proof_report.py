#!/usr/bin/env python3
"""What a file of proof.py says, in words and a table.

    python proof_report.py text.json
    python proof_report.py text-3000.json --dense text.json      # judged by the dense of another file
    python proof_report.py text.json --network text-sockets.json # and its times over another network

The final losses of `dense` with several seeds are the yardstick: their mean, and their spread, which is
from the lowest to the highest. Another method is inside it, above it (worse) or below it (better).
"reaches" is the first validation at which a method's loss was at most the mean of dense.
"""

import argparse
import json
import statistics
import sys
from pathlib import Path
from typing import Any, NamedTuple


class File(NamedTuple):
    """Of proof.py."""

    name: str
    setting: dict[str, Any]
    runs: list[dict[str, Any]]


def read(path: Path) -> File:
    return File(path.name, **json.loads(path.read_text()))


def check(file: File, other: File, *keys: str) -> None:
    """Refuse two files that differ in these settings."""
    differ = [key for key in keys if file.setting[key] != other.setting[key]]
    if differ:
        raise SystemExit(f"{other.name} and {file.name} do not fit: other {', '.join(differ)}")


def place_of(file: File) -> str:
    """What times depend on."""
    setting = file.setting
    network = " ".join(f"{key}={value}" for key, value in setting["environment"].items())
    return (
        f"{setting['ranks']} ranks of {setting['device']}, torch {setting['torch']}, "
        f"{network or 'no NCCL variables'}"
    )


def plan_of(file: File) -> str:
    plan = file.setting["plan"]
    return ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in plan.items())


class Dense(NamedTuple):
    """The yardstick."""

    low: float
    mean: float
    high: float
    deviation: float
    seeds: int
    step_ms: float

    def judge(self, loss: float | None) -> str:
        if loss is None:
            return "diverged"
        if loss > self.high:
            return f"outside: {loss - self.high:.4f} above"
        if loss < self.low:
            return f"outside: {self.low - loss:.4f} below, which is better"
        return "inside"


def dense_of(runs: list[dict[str, Any]]) -> Dense | None:
    """None without at least two seeds that have ended with a loss."""
    rows = [run for run in runs if run["method"] == "dense" and run["final_loss"] is not None]
    if len(rows) < 2:
        return None
    losses = [row["final_loss"] for row in rows]
    return Dense(
        min(losses),
        statistics.mean(losses),
        max(losses),
        statistics.stdev(losses),
        len(losses),
        statistics.median(row["step_ms"] for row in rows),
    )


def reached(run: dict[str, Any], loss: float) -> dict[str, Any] | None:
    """The first validation with such a loss."""
    for point in run["points"]:
        if point["loss"] is not None and point["loss"] <= loss:
            return dict(point)
    return None


def reaches(run: dict[str, Any], loss: float) -> str:
    point = reached(run, loss)
    return "never" if point is None else f"step {point['step']}, {point['seconds']:.1f} s"


def sent(run: dict[str, Any], since: int) -> str:
    """Megabytes of a step, from the point at that place in the list to the last one."""
    first, last = run["points"][since], run["points"][-1]
    if last["bytes_sent"] is None:
        return ""
    bytes_ = last["bytes_sent"] - first["bytes_sent"]
    return f"{bytes_ / (last['step'] - first['step']) / 1e6:.4g}"


#: How bytes are known; said once in a row. Older files have none of PowerSGD.
MARK = {
    "counted": "",
    "counted buffers, in a ring": "ring",
    "computed for a ring": "computed",
    "not known": "not known",
}


def row_of(run: dict[str, Any], dense: Dense | None) -> list[str]:
    loss = run["final_loss"]
    return [
        f"{run['method']}, seed {run['seed']}",
        "not finite" if loss is None else f"{loss:.4f}",
        f"{run['points'][-1]['accuracy']:.3f}",
        "" if dense is None or run["method"] == "dense" else dense.judge(loss),
        "" if dense is None else reaches(run, dense.mean),
        f"{run['step_ms']:.2f}",
        f"{run['seconds']:.1f}",
        f"{sent(run, 0)} {MARK[run['bytes_source']]}".strip(),
        sent(run, -2),
        "yes" if run["ranks_equal"] else "NO",
    ]


HEAD = [
    "method",
    "final loss",
    "accuracy",
    "beside dense",
    "reaches dense's mean",
    "step, ms",
    "all steps, s",
    "MB sent a step and rank",
    "in the last interval",
    "ranks equal, bit for bit",
]


def table(head: list[str], rows: list[list[str]]) -> list[str]:
    """In Markdown, with columns that are even as text."""
    widths = [max(map(len, column)) for column in zip(head, *rows)]
    lines = [head, ["-" * width for width in widths], *rows]
    return [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths)) + " |"
        for line in lines
    ]


def judged_by(file: File, by: File) -> list[str]:
    """Which dense, if it is not the file's own."""
    if by is file:
        return []
    place = place_of(by)
    beware = "" if place == place_of(file) else " Its times are not of here."
    return [f"Judged by dense of {by.name}: {place}; {plan_of(by)}.{beware}", ""]


def verdicts(runs: list[dict[str, Any]], dense: Dense | None) -> list[str]:
    """Who is inside the spread, and who is not."""
    if dense is None:
        return ["dense has fewer than two seeds: nothing is judged."]
    lines = [
        f"dense: mean {dense.mean:.4f}, spread {dense.low:.4f} to {dense.high:.4f}, standard "
        f"deviation {dense.deviation:.4f}, {dense.seeds} seeds, {dense.step_ms:.2f} ms a step"
    ]
    for run in runs:
        if run["method"] != "dense":
            faster = dense.step_ms / run["step_ms"]
            lines.append(f"{run['method']}: {dense.judge(run['final_loss'])}; {faster:.2f} x dense's "
                         "speed")
    return lines


TIMES_HEAD = ["method", "steps", "step here, ms", "there, ms", "all here, s", "all there, s"]


def time_row(method: str, steps: int | None, here: float, there: float) -> list[str]:
    """Of so many steps, as if each took the milliseconds of the median one."""
    times = ["", ""] if steps is None else [f"{steps * ms / 1e3:.1f}" for ms in (here, there)]
    return [method, "never" if steps is None else str(steps), f"{here:.2f}", f"{there:.2f}", *times]


def step_ms(file: File) -> dict[str, float]:
    """Of each method, the median of its seeds."""
    found: dict[str, list[float]] = {}
    for run in file.runs:
        found.setdefault(run["method"], []).append(run["step_ms"])
    return {method: statistics.median(times) for method, times in found.items()}


def time_rows(file: File, by: File, dense: Dense, network: File) -> list[list[str]]:
    """Of dense with all its steps, and of the methods that `network` has, too."""
    there, rows = step_ms(network), []
    if "dense" in there:
        steps = by.setting["plan"]["steps"]
        rows.append(time_row("dense", steps, dense.step_ms, there["dense"]))
    for run in file.runs:
        method = run["method"]
        if method != "dense" and method in there:
            point = reached(run, dense.mean)
            steps = None if point is None else point["step"]
            rows.append(time_row(method, steps, run["step_ms"], there[method]))
    return rows


def times(file: File, by: File, network: File) -> list[str]:
    """Until dense's mean final loss: here, and over another network."""
    check(file, network, "task", "size", "ranks")
    dense = dense_of(by.runs)
    if dense is None:
        return []
    return [
        "### Time to dense's mean final loss",
        "",
        f"Here: {place_of(file)}. There, with the step times of {network.name}: {place_of(network)}.",
        "",
        *table(TIMES_HEAD, time_rows(file, by, dense, network)),
        "",
    ]


def report(file: File, by: File, network: File | None = None) -> str:
    """Judged by the dense of `by`, which may be the same file."""
    check(file, by, "task", "size", "data", "ranks")
    dense = dense_of(by.runs)
    parameters = file.runs[0]["parameters"] if file.runs else 0
    return "\n".join(
        [
            f"## {file.setting['task']}, {place_of(file)}",
            "",
            f"{parameters:,} parameters; {file.setting['data']}; {plan_of(file)}.",
            "",
            *table(HEAD, [row_of(run, dense) for run in file.runs]),
            "",
            *judged_by(file, by),
            *(f"* {line}" for line in verdicts(file.runs, dense)),
            "",
            *([] if network is None else times(file, by, network)),
        ]
    )


def main(given: list[str]) -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("files", type=Path, nargs="+", metavar="FILE")
    parser.add_argument("--dense", type=Path, metavar="FILE", help="whose dense is the yardstick")
    parser.add_argument("--network", type=Path, metavar="FILE", help="step times over another one")
    options = parser.parse_args(given)
    network = read(options.network) if options.network else None
    for path in options.files:
        file = read(path)
        print(report(file, read(options.dense) if options.dense else file, network))


if __name__ == "__main__":
    main(sys.argv[1:])
