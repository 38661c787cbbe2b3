"""Averages of gradients for loops without DistributedDataParallel."""

import threading
from typing import Any

import torch
import torch.distributed as dist

from .._native import Communicator
from ._meeting import communicator

_lock = threading.Lock()
_made: dict[str, Communicator] = {}


def average_gradients(
    model: Any,
    comm: Communicator | None = None,
    *,
    weight: Any = None,
    find_unused: bool = False,
) -> None:
    """Average the gradients of ``model`` over all ranks, in place. Call it after ``backward``.

    Without ``comm`` the process has one communicator for all such calls: of torch's default process
    group if there is one, else of the job that torchrun, mpirun or srun have started.
    With ``weight`` a weighted average: sum(weight * gradient) / sum(weight).

    A parameter without a gradient counts as zeros, and gets the average. With ``find_unused`` the
    ranks first ask each other, and what has a gradient on no rank stays without one.

    Returns when the averages are there. After an error the gradients are as before.
    """
    named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    if not named:
        return
    comm = comm or _default(named[0][1].device)
    _check(named, comm)
    parameters = [parameter for _, parameter in named]
    with torch.no_grad():
        if find_unused:
            parameters = _used(parameters, comm)
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
        # Of a model in channels_last, for example; all ranks have the same layouts.
        dense = [gradient.contiguous() for gradient in gradients]
        if weight is None:
            comm.allreduce_list(dense, "avg").wait()
        else:
            comm.weighted_average(dense, weight).wait()
        for parameter, gradient, average in zip(parameters, gradients, dense):
            if average is not gradient:
                gradient.copy_(average)
            parameter.grad = gradient


def _check(named: list[tuple[str, Any]], comm: Communicator) -> None:
    for name, parameter in named:
        if parameter.grad is not None and parameter.grad.layout != torch.strided:
            raise TypeError(
                f"average_gradients on rank {comm.rank} of {comm.size}: the gradient of {name!r} has "
                f"the layout {parameter.grad.layout}; expected torch.strided (an embedding with "
                "sparse=False)"
            )


def _used(parameters: list[Any], comm: Communicator) -> list[Any]:
    """Those that have a gradient on some rank."""
    has = [parameter.grad is not None for parameter in parameters]
    mask = torch.tensor(has, dtype=torch.uint8, device=parameters[0].device)
    comm.allreduce(mask, "max").wait()
    return [parameter for parameter, used in zip(parameters, mask.tolist()) if used]


def _default(device: torch.device) -> Communicator:
    """The communicator of this process, made by the first call on each backend."""
    backend = "nccl" if device.type == "cuda" else "host"
    with _lock:
        if backend not in _made:
            if dist.is_available() and dist.is_initialized():
                _made[backend] = communicator(device=device)
            else:
                _made[backend] = Communicator.from_env(backend=backend)
        return _made[backend]
