"""Where ranks are: threads of this process over host, or processes that torchrun has started."""

import gc
import os
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
import tributary
from torch.nn.parallel import DistributedDataParallel


class Rank(NamedTuple):
    number: int
    device: Any
    comm: Any  # None: hooks make their own, of DDP's process group
    wrap: Callable[[Callable[[], Any], int], Any]  # a model that is made with a seed, in DDP


class Processes:
    """A rank is this process, under torchrun."""

    def __init__(self, backend: str) -> None:
        if "RANK" not in os.environ:
            raise SystemExit(
                f"--backend {backend} takes a process for each rank: start it by torchrun, or take "
                "--backend host, whose ranks are threads"
            )
        if backend != "nccl":  # torch's PowerSGD hook waits for a GPU wherever there is one
            os.environ["CUDA_VISIBLE_DEVICES"] = ""
        dist.init_process_group(backend, timeout=timedelta(seconds=120))
        self.number, self.size = dist.get_rank(), dist.get_world_size()
        self.device = torch.device("cpu")
        if backend == "nccl":
            self.device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", self.number)))
            torch.cuda.set_device(self.device)
            torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
        else:
            torch.set_num_threads(1)

    def wrap(self, make: Callable[[], Any], seed: int) -> Any:
        torch.manual_seed(seed)
        on = [self.device.index] if self.device.type == "cuda" else None
        return DistributedDataParallel(make().to(self.device), device_ids=on)

    def run(self, function: Callable[[Rank], Any]) -> list[Any]:
        """What `function` returns on all ranks."""
        mine = function(Rank(self.number, self.device, None, self.wrap))
        gc.collect()
        all_: list[Any] = [None] * self.size
        dist.all_gather_object(all_, mine)
        return all_

    def close(self) -> None:
        dist.destroy_process_group()


def alone() -> Any:
    """A process group of this process alone, of gloo."""
    store = dist.HashStore()
    gloo = dist.ProcessGroupGloo(store, 0, 1, timedelta(seconds=30))
    if isinstance(gloo, dist.ProcessGroup):
        return gloo
    # In newer versions of torch a group has a backend for each type of device.
    group, kind = dist.ProcessGroup(store, 0, 1), dist.ProcessGroup.BackendType.GLOO
    group._set_default_backend(kind)
    group._register_backend(torch.device("cpu"), kind, gloo)
    return group


class Threads:
    """Ranks are threads. Each has a DDP of one rank, whose hook averages over all threads.

    torch makes and frees DDP without the GIL, and not twice at once: so one thread at a time makes
    one, and they are freed when the ranks have ended.
    """

    def __init__(self, size: int) -> None:
        torch.set_num_threads(1)
        self.number, self.size, self.device = 0, size, torch.device("cpu")
        self.lock, self.all = threading.Lock(), list[Any]()

    def wrap(self, make: Callable[[], Any], seed: int) -> Any:
        with self.lock:
            torch.manual_seed(seed)
            group = alone()
            made = DistributedDataParallel(make(), process_group=group)
            self.all.append((made, group))
        return made

    def run(self, function: Callable[[Rank], Any]) -> list[Any]:
        def rank(comm: Any) -> Any:
            return function(Rank(comm.rank, self.device, comm, self.wrap))

        try:
            return tributary.Group(self.size, backend="host").run(rank)
        finally:
            self.all.clear()

    def close(self) -> None:
        """Nothing is left."""
