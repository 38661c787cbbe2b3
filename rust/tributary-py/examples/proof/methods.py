"""How gradients are averaged: what is compared.

A method is `dense`, `ddp`, `bf16`, `powersgd`, or ALGORITHM-DENSITY: a sparse hook with momentum
correction, which means that momentum belongs to the hook, and the optimizer has none.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import tributary
import tributary.torch
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as powersgd

OF_TORCH = ("ddp", "bf16", "powersgd")
SPARSE = tuple(
    f"{algorithm}-{density}"
    for density in (0.01, 0.001)
    for algorithm in ("topka", "chunked", "oktopk", "shared")
)
#: By backend. Gloo's processes have no communicator of host, whose ranks are threads, and no bf16.
OF_BACKEND = {
    "nccl": ("dense", *OF_TORCH, *SPARSE),
    "gloo": ("ddp", "powersgd"),
    "host": ("dense", *SPARSE),
}


class Method(NamedTuple):
    """One that is attached to a model in DDP."""

    hook: Any  # of tributary.torch, or None
    momentum: float  # of the optimizer
    sent: Callable[[], int | None]  # bytes that this rank has sent, if that can be known
    source: str  # of that number
    begin_step: Callable[[int], None] = lambda step: None


def check(name: str, backend: str) -> None:
    """Before a run of hours, and not in the middle."""
    algorithm, _, density = name.partition("-")
    if density and backend in ("nccl", "host"):
        if algorithm in tributary.sparse_algorithms() and 0 < float(density) <= 1:
            return
    elif name in OF_BACKEND[backend]:
        return
    raise SystemExit(f"no method {name} on {backend}; expected one of {OF_BACKEND[backend]}")


def attach(name: str, ddp: Any, comm: Any, momentum: float, density_warmup: int) -> Method:
    """Before the first backward pass of `ddp`."""
    if name in OF_TORCH:
        return attach_torch(name, ddp, momentum)
    if name == "dense":
        return attach_dense(tributary.torch.dense(ddp, comm=comm), momentum)
    algorithm, _, density = name.partition("-")
    return attach_sparse(ddp, comm, algorithm, float(density), momentum, density_warmup)


def ring(bytes_: int, size: int) -> int:
    """What a rank of a ring sends for an allreduce of so many bytes."""
    return 2 * bytes_ * (size - 1) // size


def attach_torch(name: str, ddp: Any, momentum: float) -> Method:
    if name == "bf16":
        ddp.register_comm_hook(None, default_hooks.bf16_compress_hook)
    if name == "powersgd":
        state = powersgd.PowerSGDState(
            None, matrix_approximation_rank=4, start_powerSGD_iter=10, min_compression_rate=2
        )
        ddp.register_comm_hook(state, powersgd.powerSGD_hook)
        return Method(None, momentum, lambda: None, "not known")
    width, steps = {"ddp": 4, "bf16": 2}[name], [0]
    count = sum(parameter.numel() for parameter in ddp.parameters())

    def begin_step(step: int) -> None:
        steps[0] += 1

    return Method(
        None,
        momentum,
        lambda: steps[0] * ring(width * count, ddp.process_group.size()),
        "computed for a ring",
        begin_step,
    )


def attach_dense(hook: Any, momentum: float) -> Method:
    comm = hook.comm
    return Method(
        hook,
        momentum,
        lambda: ring(comm.counters()["bytes"], comm.size),
        "counted buffers, in a ring",
    )


def attach_sparse(
    ddp: Any, comm: Any, algorithm: str, density: float, momentum: float, warmup: int
) -> Method:
    hook = tributary.torch.sparse(
        ddp, comm=comm, algorithm=algorithm, density=density, momentum=momentum
    )

    def begin_step(step: int) -> None:
        if warmup and step % warmup == 0:
            now = warmed(density, step // warmup)
            if step == 0 or now != warmed(density, step // warmup - 1):
                hook.set_density(now)

    return Method(hook, 0.0, lambda: hook.statistics()["bytes_sent"], "counted", begin_step)


def warmed(density: float, stage: int) -> float:
    """Of Deep Gradient Compression: 25 %, 6.25 %, ... (Lin et al. 2018, section 3.4)."""
    return max(density, 0.25 / 4.0**stage)
