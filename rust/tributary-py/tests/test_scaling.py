"""A training on GPUs with torch's GradScaler, in which gradients overflow on one rank: both ranks skip
the step. Needs two GPUs.
"""

import itertools
import json
import unittest
from typing import Any

try:
    import torch  # which the modules below take
except ModuleNotFoundError as error:
    raise unittest.SkipTest(f"a GradScaler is not tested: {error}") from None

from .pairs import needs_two_gpus, pair
from .scaling import BAD, SCALE, STEPS

GOOD = [step not in BAD for step in range(STEPS)]


def column(points: list[dict[str, Any]], key: str) -> list[Any]:
    return [point[key] for point in points]


def changed(points: list[dict[str, Any]], key: str) -> list[bool]:
    """In each step."""
    return [one != other for one, other in itertools.pairwise(column(points, key))]


@needs_two_gpus
class Scaling(unittest.TestCase):
    def train(self, method: str) -> list[list[dict[str, Any]]]:
        """What each rank has seen."""
        with pair("tests.scaling", method) as ranks:
            said = [rank.communicate(timeout=120)[0] for rank in ranks]
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
