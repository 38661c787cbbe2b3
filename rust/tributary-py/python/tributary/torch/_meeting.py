"""Communicators for the ranks that torch already knows."""

from collections.abc import Callable
from typing import Any, Unpack

import torch
import torch.distributed as dist

from .._native import Communicator, UniqueId
from .._types import Options

_BYTES = 128


def communicator(
    process_group: Any = None, *, device: Any = None, **options: Unpack[Options]
) -> Communicator:
    """A communicator of the ranks of ``process_group`` (by default torch's default group).

    All ranks call it. ``device`` is this rank's: by default the current GPU where the backend is
    nccl, and a CPU where it is host. The id goes through one broadcast of the group. Other keywords
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

    def share(token: bytes) -> bytes:
        tensor = torch.tensor(list(token), dtype=torch.uint8, device=place)
        group.broadcast(tensor, 0).wait()
        return bytes(tensor.tolist())

    return _meet(share, group.rank(), group.size(), place, options)


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
    place = _place(device, options)

    def share(token: bytes) -> bytes:
        if rank == 0:
            store.set(key, token.hex())
        return bytes.fromhex(store.get(key).decode())

    return _meet(share, rank, size, place, options)


def _meet(
    share: Callable[[bytes], bytes], rank: int, size: int, place: torch.device, options: Any
) -> Communicator:
    """Rank 0 makes the id. If it cannot, the others hear of that, and do not wait for it."""
    failed: BaseException | None = None
    token = bytes(1 + _BYTES)
    if rank == 0:
        try:
            token = b"\1" + bytes(UniqueId.create(backend=options.get("backend")))
        except BaseException as error:
            failed = error
    token = share(token)
    if failed is not None:
        raise failed
    if token[:1] != b"\1":
        raise RuntimeError(
            f"tributary.torch: rank {rank} of {size} has no communicator, because rank 0 could not "
            "make its id; see the error of rank 0"
        )
    ordinal = place.index if place.type == "cuda" else rank
    return Communicator(UniqueId(token[1:]), rank, size, device=ordinal, **options)


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
