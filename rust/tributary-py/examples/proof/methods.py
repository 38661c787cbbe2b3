"""How gradients are averaged: what is compared.

A method is `dense`, `ddp`, `bf16`, `powersgd`, or ALGORITHM-DENSITY: a sparse hook with momentum
correction, which means that momentum belongs to the hook, and the optimizer has none.
"""

from collections.abc import Callable, Iterable
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
#: Of PowerSGD: its rank, its first steps, which are dense, and how many times less its matrices must be.
RANK, DENSE_STEPS, RATE = 4, 10, 2


class Method(NamedTuple):
    """One that is attached to a model in DDP."""

    hook: Any  # of tributary.torch, or None
    momentum: float  # of the optimizer
    sent: Callable[[], int]  # bytes that this rank has sent
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


def low_rank(shapes: Iterable[Any]) -> int:
    """The elements that PowerSGD averages in a step, for gradients of these shapes.

    As torch's powerSGD_hook has it: of a matrix the columns of P and of Q, or the matrix itself where
    these are not much less. A bias is a matrix of one column; DDP's buckets change nothing.
    """
    count = 0
    for shape in shapes:
        rows, columns = shape[0], shape[1:].numel()
        both = min(rows, columns, RANK) * (rows + columns)
        count += both if RATE * both < rows * columns else rows * columns
    return count


def attach_torch(name: str, ddp: Any, momentum: float) -> Method:
    shapes = [parameter.shape for parameter in ddp.parameters()]
    dense = 4 * sum(shape.numel() for shape in shapes)
    first, later = dense, dense  # bytes of a step
    if name == "bf16":
        ddp.register_comm_hook(None, default_hooks.bf16_compress_hook)
        first = later = dense // 2
    if name == "powersgd":
        state = powersgd.PowerSGDState(
            None,
            matrix_approximation_rank=RANK,
            start_powerSGD_iter=DENSE_STEPS,
            min_compression_rate=RATE,
        )
        ddp.register_comm_hook(state, powersgd.powerSGD_hook)
        later = 4 * low_rank(shapes)
    sent = [0]

    def begin_step(step: int) -> None:
        sent[0] += ring(first if step < DENSE_STEPS else later, ddp.process_group.size())

    return Method(None, momentum, lambda: sent[0], "computed for a ring", begin_step)


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
