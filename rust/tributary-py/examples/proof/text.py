"""The task "text": a byte-level transformer reads the sources of Python's standard library.

The sources are those of the interpreter that runs. Which files are for validation follows from a hash
of their paths in the library, so that all ranks, and all runs on one machine, have the same.
"""

import hashlib
import sysconfig
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

LEFT_OUT = {"site-packages", "dist-packages", "test", "tests", "idlelib", "lib2to3"}


class Size(NamedTuple):
    width: int
    layers: int
    heads: int
    context: int
    batch: int
    validation: int  # batches


SIZES = {"full": Size(512, 8, 8, 256, 32, 16), "tiny": Size(32, 1, 2, 32, 8, 4)}


def is_validation(path: str) -> bool:
    """Of one file in twenty."""
    return hashlib.sha256(path.encode()).digest()[0] % 20 == 0


def sources(root: Path) -> tuple[bytes, bytes]:
    """All bytes to train with, and all to validate with."""
    found: tuple[list[bytes], list[bytes]] = ([], [])
    for path in sorted(path.relative_to(root) for path in root.rglob("*.py")):
        if not LEFT_OUT.intersection(path.parts):
            found[is_validation(path.as_posix())].append((root / path).read_bytes())
    return b"\n".join(found[0]), b"\n".join(found[1])


class Block(nn.Module):
    def __init__(self, size: Size) -> None:
        super().__init__()
        self.heads, width = size.heads, size.width
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Any) -> Any:
        batch, length, width = x.shape
        qkv = self.qkv(self.first(x)).view(batch, length, 3, self.heads, width // self.heads)
        y = attention(*qkv.permute(2, 0, 3, 1, 4))
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(nn.functional.gelu(self.up(self.second(x))))


def attention(q: Any, k: Any, v: Any) -> Any:
    """Of each position to those up to itself."""
    if hasattr(nn.functional, "scaled_dot_product_attention"):
        return nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    length = q.shape[-2]
    later = torch.ones(length, length, dtype=torch.bool, device=q.device).triu(1)
    score = (q @ k.transpose(-2, -1)) * q.shape[-1] ** -0.5
    return score.masked_fill(later, float("-inf")).softmax(-1) @ v


class Transformer(nn.Module):
    def __init__(self, size: Size) -> None:
        super().__init__()
        self.byte, self.place = nn.Embedding(256, size.width), nn.Embedding(size.context, size.width)
        self.blocks = nn.Sequential(*(Block(size) for _ in range(size.layers)))
        self.norm, self.head = nn.LayerNorm(size.width), nn.Linear(size.width, 256)
        for block in self.blocks:  # so that the depth does not widen what is added up
            for layer in (block.out, block.down):
                nn.init.normal_(layer.weight, std=0.02 / (2 * size.layers) ** 0.5)
        for table in (self.byte, self.place):
            nn.init.normal_(table.weight, std=0.1)

    def forward(self, x: Any) -> Any:
        x = self.byte(x) + self.place.weight[: x.shape[1]]
        return self.head(self.norm(self.blocks(x)))


class Text:
    #: Of SGD, found with dense averages.
    learning_rate, clip = 0.6, 0.1

    def __init__(self, size: str, device: Any) -> None:
        self.size = SIZES[size]
        train, validation = sources(Path(sysconfig.get_path("stdlib")))
        self.description = f"{len(train)} bytes to train, {len(validation)} to validate"
        self.train = torch.frombuffer(bytearray(train), dtype=torch.uint8).to(device)
        held = torch.frombuffer(bytearray(validation), dtype=torch.uint8).to(device)
        one = torch.Generator(device).manual_seed(0)
        self.validation = [self.draw(held, one) for _ in range(self.size.validation)]

    def model(self) -> nn.Module:
        return Transformer(self.size)

    def batch(self, generator: Any) -> tuple[Any, Any]:
        return self.draw(self.train, generator)

    def draw(self, data: Any, generator: Any) -> tuple[Any, Any]:
        """Bytes, and the one that follows each."""
        size, device = self.size, data.device
        starts = torch.randint(
            len(data) - size.context, (size.batch, 1), generator=generator, device=device
        )
        found = data[starts + torch.arange(size.context + 1, device=device)].long()
        return found[:, :-1], found[:, 1:]
