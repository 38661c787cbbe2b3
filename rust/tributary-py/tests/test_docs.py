"""The examples in the documentation."""

import doctest
import importlib.util
import subprocess
import sys
import unittest
from pathlib import Path
from typing import Any

import tributary
from tributary import info


def load_tests(
    loader: unittest.TestLoader, tests: unittest.TestSuite, _: Any
) -> unittest.TestSuite:
    suite = doctest.DocTestSuite(tributary)
    # One for each class that has an example, and one for the module.
    if suite.countTestCases() < 8:
        raise AssertionError(f"{suite.countTestCases()} examples were found; expected at least 8")
    tests.addTests(suite)
    return tests


def run(*arguments: str) -> str:
    command = [sys.executable, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout


class Examples(unittest.TestCase):
    @unittest.skipIf(importlib.util.find_spec("numpy") is None, "numpy is not installed")
    def test_quickstart(self) -> None:
        found = run(str(Path(__file__).parents[1] / "examples" / "quickstart.py"))
        self.assertEqual(sorted(found.splitlines()), [f"rank {rank} has 1.5" for rank in range(4)])


class Info(unittest.TestCase):
    def test_report(self) -> None:
        found = run("-m", "tributary.info")
        self.assertEqual(found.splitlines(), info.lines())
        for expected in (
            f"tributary {tributary.__version__}",
            "backend host: ",
            "backend nccl: ",
            "topka",
        ):
            self.assertIn(expected, found)
        copies = [line for line in info.lines() if line.startswith("NCCL is ")]
        self.assertLessEqual(len(copies), 1)
