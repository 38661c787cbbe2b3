"""The task "digits": a small convolutional network reads handwritten digits.

The images are those of the Rust example `train`, whose data folder has their origin and licence.
"""

import gzip
from pathlib import Path
from typing import Any

import torch
from torch import nn

DATA = Path(__file__).resolve().parents[3] / "tributary/examples/train/data/digits.csv.gz"
SIZES = {"full": (32, 128, 64), "tiny": (8, 32, 16)}  # channels, hidden units, images a batch


class Digits:
    #: Of SGD, found with dense averages.
    learning_rate, clip = 0.1, 0.5

    def __init__(self, size: str, device: Any) -> None:
        self.channels, self.hidden, self.count = SIZES[size]
        lines = gzip.decompress(DATA.read_bytes()).decode().split()
        rows = torch.tensor([[int(n) for n in line.split(",")] for line in lines], device=device)
        images, labels = (rows[:, :64].view(-1, 1, 8, 8) - 5) / 6, rows[:, 64]
        held = torch.arange(len(rows), device=device) % 5 == 0
        self.images, self.labels = images[~held], labels[~held]
        self.validation = [(images[held], labels[held])]
        self.description = f"{len(self.images)} images to train, {len(rows) // 5 + 1} to validate"

    def model(self) -> nn.Module:
        wide = 2 * self.channels
        return nn.Sequential(
            nn.Conv2d(1, self.channels, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(self.channels, wide, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(16 * wide, self.hidden),
            nn.ReLU(),
            nn.Linear(self.hidden, 10),
        )

    def batch(self, generator: Any) -> tuple[Any, Any]:
        images = self.images
        chosen = torch.randint(
            len(images), (self.count,), generator=generator, device=images.device
        )
        return images[chosen], self.labels[chosen]
