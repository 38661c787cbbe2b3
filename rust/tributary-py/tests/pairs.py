"""Two processes of a training, a rank and a GPU each.

torchrun would end the others by itself, once it sees that a process is gone; so these processes have
no launcher.
"""

import subprocess
import sys
import tempfile
import unittest
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
import tributary

ROOT = Path(__file__).resolve().parents[1]


def has_nccl() -> bool:
    return any(one["name"] == "nccl" for one in tributary.backends())


needs_two_gpus = unittest.skipIf(
    torch.cuda.device_count() < 2 or not has_nccl(), "needs two GPUs, and nccl"
)


@contextmanager
def pair(module: str, *arguments: str) -> Iterator[list[subprocess.Popen[str]]]:
    """``python -m MODULE STORE RANK ARGUMENTS`` of both ranks, which have ended behind it."""
    with tempfile.TemporaryDirectory() as folder:
        ranks = [
            subprocess.Popen(
                [sys.executable, "-m", module, f"{folder}/store", rank, *arguments],
                stdout=subprocess.PIPE,
                text=True,
                cwd=ROOT,
            )
            for rank in ("0", "1")
        ]
        try:
            yield ranks
        finally:
            for rank in ranks:
                rank.kill()
                rank.wait()
