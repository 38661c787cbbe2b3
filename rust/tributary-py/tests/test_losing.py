"""A training on GPUs that loses a rank: the other one ends, and says why. Needs two GPUs."""

import json
import unittest
from typing import Any

try:
    import torch  # which the modules below take
except ModuleNotFoundError as error:
    raise unittest.SkipTest(f"a rank that is lost is not tested: {error}") from None

from .losing import CALL_SECONDS, LAST
from .pairs import needs_two_gpus, pair


@needs_two_gpus
class Losing(unittest.TestCase):
    def lose(self, method: str, way: str) -> tuple[dict[str, Any], int]:
        """What rank 0 says, and the process that rank 1 was."""
        with pair("tests.losing", method, way) as ranks:
            said = ranks[0].communicate(timeout=90)[0]
        ranks[1].communicate()
        self.assertTrue(said, f"rank 0 ended without a word: {ranks[0].returncode}")
        found: dict[str, Any] = json.loads(said.splitlines()[-1])
        self.assertEqual(found["lost"], [1], found)
        # Dense hooks do not wait: the next step, or the one after it, tells.
        self.assertIn(found["steps"], range(LAST, LAST + 3), found)
        return found, ranks[1].pid

    def test_killed(self) -> None:
        for method in ("dense", "sparse"):
            with self.subTest(method):
                found, process = self.lose(method, "KILL")
                expected = rf"rank 1 \(process {process} on .* was killed by signal 9"
                self.assertRegex(found["error"], expected)
                self.assertLess(found["waited"], CALL_SECONDS, "by the deadline, not by the death")

    def test_stopped(self) -> None:
        for method in ("dense", "sparse"):
            with self.subTest(method):
                found, process = self.lose(method, "STOP")
                self.assertRegex(found["error"], rf"rank 1 \(process {process} on .* does not answer")
                self.assertLess(found["waited"], 5 * CALL_SECONDS)


if __name__ == "__main__":
    unittest.main()
