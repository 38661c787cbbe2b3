"""ResNet-50 and its data, for the programs here that measure steps of a training."""

import argparse

import torch
from torch import nn


class Bottleneck(nn.Module):
    def __init__(self, wide, mid, out, stride):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(wide, mid, 1, bias=False), nn.BatchNorm2d(mid), nn.ReLU(inplace=True),
            nn.Conv2d(mid, mid, 3, stride, 1, bias=False), nn.BatchNorm2d(mid),
            nn.ReLU(inplace=True), nn.Conv2d(mid, out, 1, bias=False), nn.BatchNorm2d(out))
        self.short = nn.Identity() if wide == out else nn.Sequential(
            nn.Conv2d(wide, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x):
        return torch.relu(self.body(x) + self.short(x))


def resnet50():
    """He et al. 2015, table 1; the stride in the 3 x 3 convolution. 25,557,032 parameters."""
    torch.manual_seed(1)
    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True),
              nn.MaxPool2d(3, 2, 1)]
    wide = 64
    for blocks, mid, stride in (3, 64, 1), (4, 128, 2), (6, 256, 2), (3, 512, 2):
        for block in range(blocks):
            layers.append(Bottleneck(wide, mid, 4 * mid, stride if block == 0 else 1))
            wide = 4 * mid
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000)]
    return nn.Sequential(*layers).cuda().to(memory_format=torch.channels_last)


def inputs(batch, rank):
    """Images and labels at random, of a rank's own."""
    generator = torch.Generator("cuda").manual_seed(rank)
    images = torch.randn(batch, 3, 224, 224, device="cuda", generator=generator)
    labels = torch.randint(1000, [batch], device="cuda", generator=generator)
    return images.to(memory_format=torch.channels_last), labels


def use_tensor_cores():
    """TF32, and the fastest convolutions."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.benchmark = True


def parser(description):
    """Of the options that all of these programs have; torch_measure reads the last two."""
    options = argparse.ArgumentParser(description=description)
    options.add_argument("--batch", type=int, default=64)
    options.add_argument("--rounds", type=int, default=12)
    options.add_argument("--iterations", type=int, default=10, help="steps of a row in a round")
    options.add_argument("--warmup", type=int, default=2)
    return options
