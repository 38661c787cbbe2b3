"""One training on one rank: the same for every method, but for the way gradients are averaged."""

import hashlib
import math
import statistics
import time
from typing import Any, NamedTuple

import torch
from torch import nn

from methods import attach


class Plan(NamedTuple):
    """What all methods have in common."""

    steps: int
    every: int  # steps from one validation to the next
    learning_rate: float
    momentum: float
    warmup: int  # steps in which the learning rate rises
    clip: float  # of the norm of each parameter's gradient on each rank, before it is averaged
    density_warmup: int  # steps of each stage; 0: none


def learning_rate(plan: Plan, step: int) -> float:
    """Rises from nearly 0, then falls to a tenth, along lines."""
    if step < plan.warmup:
        return plan.learning_rate * (step + 1) / plan.warmup
    return plan.learning_rate * (1 - 0.9 * (step - plan.warmup) / (plan.steps - plan.warmup))


def clip(model: nn.Module, limit: float) -> None:
    """Clip what each backward pass makes, before DDP and its hooks see it."""
    for parameter in model.parameters():
        parameter.register_hook(lambda gradient: gradient * (limit / gradient.norm().clamp(limit)))


def loss_of(ddp: Any, batch: tuple[Any, Any]) -> tuple[Any, Any]:
    """And the share of right guesses."""
    inputs, labels = batch
    with torch.autocast(inputs.device.type, torch.bfloat16, enabled=inputs.is_cuda):
        found = ddp(inputs).flatten(0, -2)
    labels = labels.flatten()
    loss = nn.functional.cross_entropy(found.float(), labels)
    return loss, (found.argmax(-1) == labels).float().mean()


def validate(model: nn.Module, batches: list[tuple[Any, Any]]) -> tuple[float, float]:
    """Mean loss and accuracy. Every rank does it, so that none runs ahead."""
    with torch.no_grad():
        both = [torch.stack(loss_of(model, batch)) for batch in batches]
    loss, accuracy = torch.stack(both).mean(0).tolist()
    return loss, accuracy


def finish(device: Any) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def digest(model: nn.Module) -> str:
    """Of all bits of all parameters."""
    found = hashlib.sha256()
    for parameter in model.parameters():
        found.update(parameter.detach().cpu().contiguous().numpy().tobytes())
    return found.hexdigest()


def step_seconds(blocks: list[tuple[float, int]]) -> float:
    """The median of blocks of steps, without the first, in which much is made once."""
    return statistics.median(seconds / steps for seconds, steps in blocks[1:] or blocks)


class Training:
    """Of a model in DDP with a method."""

    def __init__(self, task: Any, plan: Plan, method: Any, ddp: Any, generator: Any) -> None:
        self.task, self.plan, self.method, self.ddp = task, plan, method, ddp
        self.generator = generator
        self.device = next(ddp.parameters()).device
        self.optimizer = torch.optim.SGD(
            ddp.parameters(), lr=plan.learning_rate, momentum=method.momentum
        )
        self.points: list[dict[str, float | None]] = []
        self.blocks: list[tuple[float, int]] = []  # seconds and steps between validations

    def step(self, number: int) -> None:
        self.method.begin_step(number)
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(self.plan, number)
        self.optimizer.zero_grad(set_to_none=True)
        loss_of(self.ddp, self.task.batch(self.generator))[0].backward()
        # After a sparse step that was not applied, gradients are 0, and SGD without momentum does nothing.
        self.optimizer.step()

    def point(self, step: int) -> None:
        loss, accuracy = validate(self.ddp.module, self.task.validation)
        self.points.append(
            {
                "step": step,
                "seconds": self.seconds(),
                "loss": loss if math.isfinite(loss) else None,
                "accuracy": accuracy,
                "bytes_sent": self.method.sent(),
            }
        )

    def run(self) -> None:
        self.point(0)
        for first in range(0, self.plan.steps, self.plan.every):
            last = min(first + self.plan.every, self.plan.steps)
            finish(self.device)
            began = time.perf_counter()
            for number in range(first, last):
                self.step(number)
            finish(self.device)
            self.blocks.append((time.perf_counter() - began, last - first))
            self.point(last)

    def seconds(self) -> float:
        """Of all steps so far, without validations."""
        return sum(seconds for seconds, _ in self.blocks)


def train(task: Any, plan: Plan, name: str, seed: int, rank: Any) -> dict[str, Any]:
    """The row of this rank. `rank` has its number, its communicator, and how it wraps a model."""
    ddp = rank.wrap(task.model, seed)
    clip(ddp.module, plan.clip)
    method = attach(name, ddp, rank.comm, plan.momentum, plan.density_warmup)
    generator = torch.Generator(rank.device).manual_seed(1000 * seed + rank.number)
    training = Training(task, plan, method, ddp, generator)
    training.run()
    row = {
        "points": training.points,
        "final_loss": training.points[-1]["loss"],
        "step_ms": 1e3 * step_seconds(training.blocks),
        "seconds": training.seconds(),
        "bytes_source": method.source,
        "parameters": sum(parameter.numel() for parameter in ddp.parameters()),
        "digest": digest(ddp),
    }
    if method.hook is not None and rank.comm is None:
        method.hook.comm.close()
    return row
