#!/usr/bin/env python3
"""benches/limits.py on tables that are made up: python3 tests/limits_test.py"""
from __future__ import annotations

import importlib.util
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
spec = importlib.util.spec_from_file_location("limits", ROOT / "benches/limits.py")
assert spec is not None and spec.loader is not None
limits = importlib.util.module_from_spec(spec)
sys.modules["limits"] = limits
spec.loader.exec_module(limits)

KIB = 1024


def sweep(*rows: str) -> list[str]:
    """trib_sweep's rows: "collective variant way KiB in-place ours NCCL", of 3 ranks."""
    lines = []
    for row in rows:
        kind, variant, way, kib, place, ours, nccl = row.split()
        lines.append(f"{kind} {variant} {way} 3 {int(kib) * KIB - 4} f32 sum {place} | "
                     f"{ours} 9.9 1.0 1.0 1.0 0 | {nccl} 9.9 1.0 1.0 1.0 | 0.5")
    return lines


def pushed(*rows: str) -> list[str]:
    """trib_push's rows: "collective KiB ours NCCL", in graphs the same."""
    lines = []
    for row in rows:
        *name, kib, ours, nccl = row.split()
        times = f"{ours} 9 7 9 {nccl} 9 {ours} 9 {nccl} 9"
        lines.append(f"{' '.join(name):14} {int(kib) * KIB} {times} 0")
    return lines


def pulled(*rows: str) -> list[str]:
    """trib_pull's rows: "MiB side ours", in bursts and in graphs the same; _ for a blank."""
    lines = []
    for row in rows:
        mib, side, ours = row.split()
        lines.append(f"{mib:>5}  {side.replace('_', ' '):18} {ours} 9.9 {ours} 9.9 0")
    return lines


class Limits(unittest.TestCase):
    def of(self, kind: str, swept: list[str], push: list[str]) -> list[tuple[int, bool]]:
        """Of 3 ranks: one_shot, push, pull_above, pull and staged, and whether each was measured."""
        rows = [*limits.read_sweep("new.txt", 3, swept), *limits.read_push("push.txt", 3, push)]
        return [tuple(limit) for limit in limits.limits_of(rows, kind, 3).values()]

    def test_pull_ends_where_any_row_is_behind(self) -> None:
        swept = sweep("reduce_scatter one_shot eager 1024 no 5 9",
                      "reduce_scatter one_shot eager 2048 no 8 9",
                      "reduce_scatter one_shot graph 4096 no 8 9",
                      "reduce_scatter one_shot graph 4096 yes 9 9",
                      "reduce_scatter default graph 2048 no 19 9",
                      "reduce_scatter push graph 2048 no 19 9")
        self.assertEqual(self.of("reduce_scatter", swept, [])[2:4], [(0, True), (2048, True)])

    def test_pull_begins_behind_a_hole_and_one_size_alone_is_none(self) -> None:
        swept = sweep("broadcast one_shot eager 512 no 5 9",
                      "broadcast one_shot eager 1024 no 9 8",
                      "broadcast one_shot eager 2048 no 8 9",
                      "broadcast one_shot eager 4096 no 8 9",
                      "broadcast one_shot eager 8192 no 9 8")
        self.assertEqual(self.of("broadcast", swept, [])[2:4], [(1024, True), (4096, True)])

    def test_pull_that_is_never_ahead_serves_nothing(self) -> None:
        swept = sweep("allgather one_shot eager 512 no 9 8")
        self.assertEqual(self.of("allgather", swept, [])[3], (0, True))

    def test_what_shows_no_end_takes_the_estimate(self) -> None:
        swept = sweep("allreduce two_shot graph 1024 no 5 9",
                      "allreduce one_shot graph 1024 no 19 9")
        self.assertEqual(self.of("allreduce", swept, [])[2:4], [(0, True), (65536, False)])
        self.assertEqual(self.of("alltoall", [], [])[1:4],
                         [(768, False), (0, False), (16384, False)])

    def test_one_shot_ends_where_the_lines_cross(self) -> None:
        push = pushed("allreduce 256 4 9", "allreduce 512 8 9", "two shot 256 6 9", "two shot 512 6 9")
        self.assertEqual(self.of("allreduce", [], push)[0], (384, True))

    def test_push_ends_behind_nccl_or_pull(self) -> None:
        push = pushed("allgather 256 4 9", "allgather 512 8 9", "allgather 1024 10 9")
        self.assertEqual(self.of("allgather", [], push)[1], (512, True))
        swept = sweep("allgather one_shot graph 512 no 7 9")
        self.assertEqual(self.of("allgather", swept, push)[1], (256, True))

    def test_what_is_staged_is_ahead_of_nccl_in_place_as_well(self) -> None:
        lines = pulled("1 staged 9", "1 NCCL 8", "1 NCCL_in_place 9.5", "2 staged 9", "2 NCCL 10",
                       "2 NCCL_in_place 11", "4 staged 10", "4 NCCL 12", "4 NCCL_in_place 12",
                       "8 staged 20", "8 NCCL 22", "8 NCCL_in_place 20")
        rows = list(limits.read_pull("pull.txt", 3, lines))
        found = limits.limits_of(rows, "allreduce", 3)
        self.assertEqual([tuple(found[name]) for name in ("staged_above", "staged")],
                         [(1024, True), (4096, True)])
        self.assertEqual(tuple(found["pull_above"]), (0, False))

    def test_the_check_sees_a_change(self) -> None:
        header = (ROOT / "csrc/nccl/limits.h").read_text()
        with tempfile.TemporaryDirectory() as folder:
            changed = pathlib.Path(folder, "limits.h")
            for text, status in ((header, 0), (header.replace("[2] = {0,", "[2] = {1,"), 1)):
                changed.write_text(text)
                command = [sys.executable, str(ROOT / "benches/limits.py"), "--check", str(changed)]
                found = subprocess.run(command, check=False, capture_output=True)
                self.assertEqual(found.returncode, status, found.stderr)


if __name__ == "__main__":
    unittest.main()
