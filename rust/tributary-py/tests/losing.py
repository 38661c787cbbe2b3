"""One rank of a training on two GPUs, in which rank 1 is lost in the fifth step: test_losing.py.

    python -m tests.losing STORE RANK dense|sparse KILL|STOP

Rank 0 prints as JSON what ended it, or nothing if the training went on.
"""

import json
import os
import signal
import sys
import time
from typing import Any

import torch
import torch.distributed as dist
import tributary.torch as ours
from torch.nn.parallel import DistributedDataParallel

from .models import numbers, wide

CALL_SECONDS = 3.0
STEPS, LAST = 50, 5


def make(method: str, rank: int) -> tuple[Any, Any]:
    """A model in DDP, and its hook's communicator."""
    device = torch.device("cuda", rank)
    ddp = DistributedDataParallel(wide().to(device), device_ids=[rank])
    comm = ours.communicator(device=device, call_timeout=CALL_SECONDS)
    if method == "dense":
        ours.dense(ddp, comm=comm)
    else:
        ours.sparse(ddp, comm=comm, density=0.01, algorithm="topka", momentum=0.9)
    return ddp, comm


def train(ddp: Any, rank: int, way: str, times: list[float]) -> None:
    optimizer = torch.optim.SGD(ddp.parameters(), lr=1e-3)
    for step in range(STEPS):
        if rank == 1 and step == LAST:
            os.kill(os.getpid(), signal.Signals[f"SIG{way}"])
        optimizer.zero_grad()
        ddp(numbers(100 * step + rank, 4, 6).to(ddp.device)).square().mean().backward()
        optimizer.step()
        times.append(time.monotonic())


def main(store: str, rank: int, method: str, way: str) -> None:
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", init_method=f"file://{store}", rank=rank, world_size=2)
    ddp, comm = make(method, rank)
    times: list[float] = []
    try:
        train(ddp, rank, way, times)
    except Exception as error:
        waited = time.monotonic() - times[-1]
        found = {"error": f"{type(error).__name__}: {error}", "steps": len(times), "waited": waited}
        print(json.dumps({**found, "lost": comm.lost()}), flush=True)
    os._exit(0)  # torch's own communicator would wait for the rank that is lost


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4])
