#!/usr/bin/env python3
"""Make csrc/nccl/limits.h from kept figures: up to which size push serves a call, pull, or NCCL.

    benches/limits.py > csrc/nccl/limits.h           # from the files of KEPT
    benches/limits.py --check csrc/nccl/limits.h     # is it that still?
    benches/limits.py FILE... > csrc/nccl/limits.h   # from other tables

A table is the output of trib_push, of trib_pull, or of trib_sweep with the variants one_shot
and two_shot. benches/README.md has the commands.

A kernel is ahead at a size if its median is below NCCL's in every row: eager and in a graph, in and
out of place, on each machine. It serves up to the last of consecutive sizes at which it is ahead,
and nothing is read between two sizes: NCCL's times jump there. Those of push in one shot and in two
do not: the one ends where the lines through their medians cross, at the nearest quarter of a power
of two. Where nothing larger was measured, or nothing at all, a larger number of ESTIMATES holds, and
the header says so. Pull's allreduces have a second limit, for buffers that go through its scratch.
"""
from __future__ import annotations

import argparse
import collections
import pathlib
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator
from typing import NamedTuple

RESULTS = pathlib.Path(__file__).resolve().parent / "results"
PUSHED = ("h200x2-push.txt", "h100x2-push.txt", "h200x4-push.txt")
PULLED = ("h200x2-pull.txt", "h200x3-pull.txt", "h200x4-pull.txt")
# Sweeps of commits whose pull served, without a variant, whatever push had no memory for.
SWEPT = ("h200x2-kinds.txt", "h100x2-kinds.txt", "h100x3-kinds.txt", "h100x4-kinds.txt")
KEPT = PUSHED + PULLED + SWEPT

RANKS = (2, 3, 4)
KINDS = ("allreduce", "reduce_scatter", "allgather", "alltoall", "broadcast")
BLOCKS = ("reduce_scatter", "allgather", "alltoall")  # the longer buffer has a block for each rank
COPIES = ("allgather", "alltoall", "broadcast")
MIB = 1024

# KiB by kind, for 2, 3 and 4 ranks: by hand, before there were tables.
ESTIMATES = {
    "one_shot": {"allreduce": (768, 384, 256)},
    "push": {"allreduce": (2048, 8192, 8192), "reduce_scatter": (4096, 1536, 2048),
             "allgather": (2048, 768, 1024), "alltoall": (2048, 768, 1024),
             "broadcast": (1024, 256, 256)},
    "pull": {"allreduce": (256 * MIB, 64 * MIB, 16 * MIB),
             "reduce_scatter": (256 * MIB, 4 * MIB, 256 * MIB),
             "allgather": (256 * MIB, 256 * MIB, 256 * MIB),
             "alltoall": (256 * MIB, 16 * MIB, 256 * MIB), "broadcast": (64 * MIB, 0, 0)},
    "staged": {"allreduce": (1024 * MIB, 16 * MIB, 8 * MIB)},
}


class Row(NamedTuple):
    """`side` against NCCL: microseconds of a call with a longer buffer of `kib`."""

    kind: str
    ranks: int
    side: str  # push, two shot (of push), pull, staged (of pull)
    kib: int
    way: str  # which rows of two sides belong together: the file, and eager or graph
    ours: float
    nccl: float


class Limit(NamedTuple):
    kib: int
    measured: bool


# ------------------------------------------------------------------------------------ reading

def kib_of(size: float) -> int:
    """Of bytes. Blocks of 3 ranks make some bytes less of a size."""
    return -int(-size // 1024)


def read_push(name: str, ranks: int, lines: Iterable[str]) -> Iterator[Row]:
    """trib_push: medians and 99th percentiles, eager, with events, NCCL's, in graphs, NCCL's."""
    for line in lines:
        found = re.match(r"(two shot|\w+) +(\d+) +([\d. ]+)$", line)
        if found is None:
            continue
        two = found[1] == "two shot"
        kind, side = ("allreduce", "two shot") if two else (found[1], "push")
        medians = [float(word) for word in found[3].split()][:10:2]
        size = kib_of(int(found[2]))
        yield Row(kind, ranks, side, size, f"{name} eager", medians[0], medians[2])
        yield Row(kind, ranks, side, size, f"{name} graph", medians[3], medians[4])


def beside(side: str) -> list[str]:
    """The rows of NCCL that a side of trib_pull is measured by. What is staged takes the same in place."""
    if side == "staged":
        return ["NCCL", "NCCL in place"]
    return [side.replace("two shot", "NCCL")] if side.startswith("two shot") else []


def read_pull(name: str, ranks: int, lines: Iterable[str]) -> Iterator[Row]:
    """trib_pull: of allreduces, a line for each side with median and p99, eager and in graphs."""
    medians = {}
    for line in lines:
        found = re.match(r" *([\d.]+)  (\w[\w ]*?)  +([\d. ]+)$", line)
        if found is not None:
            words = found[3].split()
            medians[kib_of(float(found[1]) * 2**20), found[2]] = float(words[0]), float(words[2])
    for (size, side), ours in medians.items():
        for nccl in beside(side):
            what = "staged" if side == "staged" else "pull"
            for way, mine, its in zip(("eager", "graph"), ours, medians[size, nccl]):
                yield Row("allreduce", ranks, what, size, f"{name} {way} {side} {nccl}", mine, its)


def is_pushed(kind: str, ranks: int, kib: int) -> bool:
    """Had push memory for it in the commits of SWEPT? 8 MiB had two lanes of two buffers with a slot for each
    rank. A copy's chunks are half empty, and two shots take two shares."""
    slot = 8 * MIB / (4 * ranks)
    part = kib / ranks if kind in BLOCKS else kib
    needed = part * 2 / ranks if kind == "allreduce" else part * 2 if kind in COPIES else part
    return needed <= slot


def read_sweep(name: str, ranks: int, lines: Iterable[str]) -> Iterator[Row]:
    """trib_sweep: rows of variants by name, and of no variant in the files of SWEPT."""
    for line in lines:
        words = line.replace("|", " ").split()
        if len(words) != 20 or words[0] not in KINDS or words[5] != "f32":
            continue
        kind, variant, way, size = words[0], words[1], words[2], kib_of(int(words[4]))
        pulled = "two_shot" if kind == "allreduce" else "one_shot"
        if name in SWEPT:
            pulled = "" if is_pushed(kind, ranks, size) else "default"
        if variant == pulled:
            way = f"{name} {way} in place {words[7]}"
            yield Row(kind, ranks, "pull", size, way, float(words[8]), float(words[14]))


def read(path: pathlib.Path) -> list[Row]:
    """Any of the three, by its first line."""
    lines = path.read_text().splitlines()
    swept = re.match(r"# tributary .* (\d+) ranks", lines[0])
    if swept is not None:
        return list(read_sweep(path.name, int(swept[1]), lines))
    alone = re.match(r"(\d+) x ", lines[0])
    if alone is None:
        sys.exit(f"{path}: no table of trib_push, trib_pull or trib_sweep")
    reads = read_push if "bursts of" in lines[0] else read_pull
    return list(reads(path.name, int(alone[1]), lines))


# ------------------------------------------------------------------------------------ deciding

def by_size(rows: Iterable[Row]) -> dict[int, list[Row]]:
    sizes = collections.defaultdict(list)
    for row in rows:
        sizes[row.kib].append(row)
    return dict(sorted(sizes.items()))


def ratio(rows: list[Row]) -> float:
    """Of NCCL's time, in the mean."""
    return sum(row.ours / row.nccl for row in rows) / len(rows)


def are_ahead(rows: list[Row]) -> bool:
    return all(row.ours < row.nccl for row in rows)


def faster_shots(rows: list[Row]) -> list[Row]:
    """Push makes an allreduce in one shot or in two: the faster one of each way of each size."""
    best: dict[tuple[int, str], Row] = {}
    for row in rows:
        key = row.kib, row.way
        best[key] = min(best.get(key, row), row, key=lambda row: row.ours)
    return list(best.values())


def estimate(what: str, kind: str, ranks: int) -> int:
    return ESTIMATES[what].get(kind, (0, 0, 0))[RANKS.index(ranks)]


def in_quarters(kib: float) -> int:
    """The nearest of the sizes 4, 5, 6, 7 times a power of two."""
    step = 1
    while kib >= 8 * step:
        step *= 2
    return round(kib / step) * step


def one_shot_limit(rows: list[Row], ranks: int) -> Limit:
    """Where push's two shots become faster than its one: of all ways together."""
    one = by_size(row for row in rows if row.side == "push")
    two = by_size(row for row in rows if row.side == "two shot")
    before, lead = 0, 0.0
    for size in sorted(one.keys() & two.keys()):
        ways = {row.way: row.ours for row in two[size]}
        behind = sum(row.ours - ways[row.way] for row in one[size] if row.way in ways)
        if behind > 0 and before > 0:
            return Limit(in_quarters(before + (size - before) * lead / (lead + behind)), True)
        before, lead = size, -behind
    return Limit(estimate("one_shot", "allreduce", ranks), False)


def push_limit(rows: list[Row], kind: str, ranks: int) -> Limit:
    """Up to where it is ahead of NCCL, and further ahead of it than pull."""
    pushed = by_size(faster_shots([row for row in rows if row.side not in ("pull", "staged")]))
    pulled = by_size(row for row in rows if row.side == "pull")
    most = 0
    for size, those in pushed.items():
        if not are_ahead(those) or (size in pulled and ratio(pulled[size]) < ratio(those)):
            return Limit(most, True)
        most = size
    guess = estimate("push", kind, ranks)
    return Limit(max(most, guess), most >= guess)


def pull_limits(rows: list[Row], kind: str, ranks: int, side: str = "pull") -> tuple[Limit, Limit]:
    """From behind which size and up to which it is ahead: the most sizes in a row."""
    sizes = by_size(row for row in rows if row.side == side)
    above, most, longest = 0, 0, 0
    behind, run = 0, 0
    for size, those in sizes.items():
        behind, run = (behind, run + 1) if are_ahead(those) else (size, 0)
        if run > longest:
            above, most, longest = behind, size, run
    guess = estimate(side, kind, ranks)
    if sizes and most < max(sizes):
        return Limit(above, True), Limit(most, True)
    return Limit(above, bool(sizes)), Limit(max(most, guess), most >= guess)


# ------------------------------------------------------------------------------------ writing

HEAD = """\
/* Up to which size what serves a call, over NVLink. Made by benches/limits.py, never by hand, from
 * these of benches/results:
 *
{sources}
 *
 * What is estimated lies beyond all sizes that were measured, or nobody has measured any. */
#ifndef TRI_NCCL_LIMITS_H
#define TRI_NCCL_LIMITS_H

#include "csrc/backend.h"
#include "csrc/nccl/push_inside.h"

/* KiB: {fields} */
static const struct tri_nccl_limits tri_nccl_limits[TRI_KINDS][TRI_PUSH_RANKS + 1] = {{
{table}
}};

#endif
"""


def limits_of(rows: list[Row], kind: str, ranks: int) -> dict[str, Limit]:
    rows = [row for row in rows if row.kind == kind and row.ranks == ranks]
    above, pull = pull_limits(rows, kind, ranks)
    nothing = Limit(0, True), Limit(0, True)
    staged = pull_limits(rows, kind, ranks, "staged") if kind == "allreduce" else nothing
    one_shot = one_shot_limit(rows, ranks) if kind == "allreduce" else Limit(0, True)
    return {"one_shot": one_shot, "push": push_limit(rows, kind, ranks), "pull_above": above,
            "pull": pull, "staged_above": staged[0], "staged": staged[1]}


def lines_of(rows: list[Row]) -> Iterator[str]:
    for kind in KINDS:
        for ranks in RANKS:
            limits = limits_of(rows, kind, ranks)
            guessed = [name for name, limit in limits.items() if not limit.measured]
            if guessed:
                yield f"    /* estimated: {', '.join(guessed)} */"
            numbers = ", ".join(str(limit.kib) for limit in limits.values())
            yield f"    [TRI_{kind.upper()}][{ranks}] = {{{numbers}}},"


def write(paths: list[pathlib.Path]) -> str:
    rows = [row for path in paths for row in read(path)]
    sources = textwrap.fill(", ".join(path.name for path in paths), 96,
                            initial_indent=" *     ", subsequent_indent=" *     ",
                            break_on_hyphens=False)
    return HEAD.format(sources=sources, fields=", ".join(limits_of(rows, "allreduce", 2)),
                       table="\n".join(lines_of(rows)))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", type=pathlib.Path, metavar="HEADER")
    parser.add_argument("files", type=pathlib.Path, nargs="*", help="tables (those of KEPT)")
    options = parser.parse_args()
    text = write(options.files or [RESULTS / name for name in KEPT])
    if options.check is None:
        sys.stdout.write(text)
    elif options.check.read_text() != text:
        sys.exit(f"{options.check} is not what benches/limits.py makes: run it again")


if __name__ == "__main__":
    main()
