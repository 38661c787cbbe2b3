"""A training on GPUs with torch's GradScaler, in which gradients overflow on one rank: both ranks skip
the step. Needs two GPUs.
"""

import itertools
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from typing import Any

import tributary

try:
    import torch
except ModuleNotFoundError as error:
    raise unittest.SkipTest(f"a GradScaler is not tested: {error}") from None

from .scaling import BAD, SCALE, STEPS

ROOT = Path(__file__).resolve().parents[1]
GOOD = [step not in BAD for step in range(STEPS)]


def has_nccl() -> bool:
    return any(one["name"] == "nccl" for one in tributary.backends())


def column(points: list[dict[str, Any]], key: str) -> list[Any]:
    return [point[key] for point in points]


def changed(points: list[dict[str, Any]], key: str) -> list[bool]:
    """In each step."""
    return [one != other for one, other in itertools.pairwise(column(points, key))]


@unittest.skipIf(torch.cuda.device_count() < 2 or not has_nccl(), "needs two GPUs, and nccl")
class Scaling(unittest.TestCase):
    def train(self, method: str) -> list[list[dict[str, Any]]]:
        """What each rank has seen."""
        with tempfile.TemporaryDirectory() as folder:
            ranks = [
                subprocess.Popen(
                    [sys.executable, "-m", "tests.scaling", f"{folder}/store", rank, method],
                    stdout=subprocess.PIPE,
                    text=True,
                    cwd=ROOT,
                )
                for rank in ("0", "1")
            ]
            try:
                said = [rank.communicate(timeout=120)[0] for rank in ranks]
            finally:
                for rank in ranks:
                    rank.kill()
                    rank.wait()
        self.assertEqual([rank.returncode for rank in ranks], [0, 0], said)
        return [json.loads(one.splitlines()[-1]) for one in said]

    def check(self, both: list[list[dict[str, Any]]]) -> None:
        finite = [column(points, "finite")[1:] for points in both]
        self.assertEqual(finite, [[True] * STEPS, GOOD])
        scales = [SCALE]
        for good in GOOD:
            scales.append(scales[-1] if good else scales[-1] / 2)
        for points in both:
            self.assertEqual(column(points, "scale"), scales)
            self.assertEqual(changed(points, "parameters"), GOOD)
        self.assertEqual(*(column(points, "parameters") for points in both))

    def test_dense(self) -> None:
        self.check(self.train("dense"))

    def test_sparse(self) -> None:
        both = self.train("sparse")
        self.check(both)
        for points in both:
            self.assertEqual(column(points, "applied")[1:], GOOD)
            self.assertEqual(changed(points, "residuals"), GOOD)


if __name__ == "__main__":
    unittest.main()
