"""Models of torch with the same parameters and data in every run, and comparisons."""

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples" / "proof"))

from ranks import alone as alone  # noqa: E402

torch.set_num_threads(1)


def numbers(seed: int, *shape: int) -> Any:
    """Of a generator of their own: threads share torch's."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def layers(inner: int, outer: int) -> Any:
    made = torch.nn.Sequential(
        torch.nn.Linear(6, inner), torch.nn.Tanh(), torch.nn.Linear(inner, outer)
    )
    with torch.no_grad():
        for i, parameter in enumerate(made.parameters()):
            parameter.copy_(numbers(i, *parameter.shape) / 3)
    return made


def model() -> Any:
    return layers(6, 1)


def wide() -> Any:
    """Of several buckets: DDP's first one has 1 MiB."""
    return layers(40000, 8)


def step(ddp: Any, rank: int, number: int, scale: float = 1.0) -> list[Any]:
    """A forward and a backward pass; the gradients."""
    ddp.zero_grad(set_to_none=True)
    (scale * ddp(numbers(100 * number + rank, 4, 6)).square().mean()).backward()
    return [parameter.grad.clone() for parameter in ddp.parameters()]


def sums(steps: Iterable[list[Any]]) -> list[Any]:
    return [sum(all_) for all_ in zip(*steps, strict=True)]


def close(found: list[Any], expected: list[Any]) -> None:
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)
