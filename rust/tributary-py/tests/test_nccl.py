"""One NCCL in the process, whichever came first. Needs a build with nccl, and no GPU."""

import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import tributary
from tributary import info

CODE = """
import ctypes, sys
first = sys.argv[1:] and ctypes.CDLL(sys.argv[1])
import tributary.info
print([line for line in tributary.info.lines() if line.startswith("NCCL is ")])
"""


@unittest.skipIf(all(one["name"] != "nccl" for one in tributary.backends()), "nccl was not built")
class Nccl(unittest.TestCase):
    def loaded(self, *first: str) -> str:
        command = [sys.executable, "-c", CODE, *first]
        return subprocess.run(
            command, check=True, capture_output=True, text=True, timeout=120
        ).stdout.strip()

    def test_that_of_a_framework_is_taken(self) -> None:
        (line,) = [line for line in info.lines() if line.startswith("NCCL is ")]
        self.assertEqual(self.loaded(), f"[{line!r}]")
        with tempfile.TemporaryDirectory() as folder:
            other = Path(folder) / "of-a-framework.so"
            shutil.copyfile(line.removeprefix("NCCL is "), other)
            # The file's name does not matter, and it is loaded with RTLD_LOCAL, as torch's.
            self.assertEqual(self.loaded(str(other)), "[]")
