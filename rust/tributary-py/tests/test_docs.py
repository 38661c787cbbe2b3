"""The examples in the documentation."""

import doctest
import importlib.util
import os
import subprocess
import sys
import unittest
from pathlib import Path
from typing import Any
from unittest import mock

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
    def test_settings_without_secrets(self) -> None:
        settings = {"TRIBUTARY_SECRET": "5eed", "TRIBUTARY_DEBUG": "0", "NCCL_DEBUG": "WARN"}
        with mock.patch.dict(os.environ, settings):
            found = [line for line in info.lines() if line.startswith("environment: ")]
        for setting in ("TRIBUTARY_SECRET=...", "TRIBUTARY_DEBUG=0", "NCCL_DEBUG=WARN"):
            self.assertIn(f"environment: {setting}", found)

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
        torch = importlib.util.find_spec("torch")
        self.assertIn("torch: not installed" if torch is None else "torch: ", found)
        copies = [line for line in info.lines() if line.startswith("NCCL is ")]
        self.assertLessEqual(len(copies), 1)
