"""Communicators for the ranks that torch already knows."""

import os
from typing import Any, Protocol, Unpack

import torch
import torch.distributed as dist

from .._native import Communicator, UniqueId
from .._types import Options

#: Of an id.
_BYTES = 128
#: With its number, a name of this process that no other has, also in a container or after a fork.
_RANDOM = os.urandom(16)


class _Meeting(Protocol):
    """What ranks can do before they have a communicator."""

    rank: int
    size: int

    def share(self, token: bytes) -> bytes:
        """The token of rank 0."""

    def count(self, here: bool) -> int:
        """On how many ranks `here` is true."""


class _InGroup:
    def __init__(self, group: Any, place: torch.device) -> None:
        self.group, self.place = group, place
        self.rank, self.size = int(group.rank()), int(group.size())

    def share(self, token: bytes) -> bytes:
        tensor = torch.tensor(list(token), dtype=torch.uint8, device=self.place)
        self.group.broadcast(tensor, 0).wait()
        return bytes(tensor.tolist())

    def count(self, here: bool) -> int:
        tensor = torch.tensor([here], dtype=torch.int32, device=self.place)
        self.group.allreduce(tensor).wait()
        return int(tensor.item())


class _InStore:
    def __init__(self, store: Any, key: str, rank: int, size: int) -> None:
        self.store, self.key, self.rank, self.size = store, key, rank, size

    def share(self, token: bytes) -> bytes:
        if self.rank == 0:
            self.store.set(self.key, token.hex())
        return bytes.fromhex(self.store.get(self.key).decode())

    def count(self, here: bool) -> int:
        self.store.set(f"{self.key}/{self.rank}", str(int(here)))
        return sum(int(self.store.get(f"{self.key}/{rank}")) for rank in range(self.size))


def communicator(
    process_group: Any = None, *, device: Any = None, **options: Unpack[Options]
) -> Communicator:
    """A communicator of the ranks of ``process_group`` (by default torch's default group).

    All ranks call it. ``device`` is this rank's: by default the current GPU where the backend is
    nccl, and a CPU where it is host. The id goes through a broadcast of the group. Other keywords
    are those of `tributary.Group`.
    """
    group = dist.group.WORLD if process_group is None else process_group
    if group is None:
        raise RuntimeError(
            "tributary.torch.communicator: there is no process group; call "
            "torch.distributed.init_process_group first, or use communicator_from_store or "
            "Communicator.from_env"
        )
    place = _place(device, options)
    return _meet(_InGroup(group, place), place, options)


def communicator_from_store(
    store: Any,
    rank: int,
    size: int,
    *,
    key: str = "tributary",
    device: Any = None,
    **options: Unpack[Options],
) -> Communicator:
    """A communicator of ``size`` ranks that share a ``store`` of torch (TCPStore, HashStore, ...).

    All ranks call it, with a ``key`` that the store does not have yet: the id is written there once.
    """
    return _meet(_InStore(store, key, rank, size), _place(device, options), options)


def _meet(meeting: _Meeting, place: torch.device, options: Any) -> Communicator:
    """Rank 0 makes the id. If a rank cannot go on, all hear of that, and none waits for it."""
    rank, size, process = meeting.rank, meeting.size, os.getpid().to_bytes(8, "big") + _RANDOM
    failed: BaseException | None = None
    token = bytes(_BYTES)
    if rank == 0:
        try:
            token = bytes(UniqueId.create(backend=options["backend"]))
        except BaseException as error:
            failed = error
    token = meeting.share(token + process)
    if options["backend"] == "host" and token[_BYTES:] != process:
        failed = RuntimeError(
            f"tributary.torch: rank {rank} of {size} is in another process than rank 0; the ranks of "
            "the host backend, which CPU tensors use, are threads of one process: use GPUs"
        )
    others = meeting.count(failed is not None)
    if failed is not None:
        raise failed
    if others:
        raise RuntimeError(
            f"tributary.torch: rank {rank} of {size} has no communicator, because {others} other "
            "ranks cannot have one; see their errors"
        )
    ordinal = place.index if place.type == "cuda" else rank
    return Communicator(UniqueId(token[:_BYTES]), rank, size, device=ordinal, **options)


def _place(device: Any, options: Any) -> torch.device:
    """The device of this rank's tensors. Chooses the backend where ``options`` do not."""
    if device is None:
        gpu = options.get("backend") != "host" and torch.cuda.is_available()
        device = "cuda" if gpu else "cpu"
    place = torch.device(device)
    if place.type not in ("cpu", "cuda"):
        raise ValueError(
            f"tributary.torch: `device` is {place}; expected a CPU, for the host backend, or a GPU "
            "of CUDA, for nccl"
        )
    options.setdefault("backend", "nccl" if place.type == "cuda" else "host")
    if place.type == "cuda" and place.index is None:
        place = torch.device("cuda", torch.cuda.current_device())
    return place
