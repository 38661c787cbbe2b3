#!/usr/bin/env python3
"""What PyTorch's users do today for sparse gradients: torch.topk, two all_gathers, index_add_.

    torchrun --nproc-per-node 4 torch_sparse.py [--count 1048576,25557032] [--density 0.01]

Beside it stand the dense all_reduce in fp32 and bf16. Times are microseconds between CUDA events
around each call; of each call the slowest rank, then median and 99th percentile over the calls.
"""

import argparse

import torch
import torch.distributed as dist

from torch_measure import measure


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", default="1048576,25557032,268435456")
    parser.add_argument("--density", default="0.001,0.01,0.05")
    parser.add_argument("--iterations", type=int, default=30)
    parser.add_argument("--warmup", type=int, default=5)
    return parser.parse_args()


class TopK:
    """Top-k with error feedback, as it is usually written."""

    def __init__(self, gradient, k):
        size = dist.get_world_size()
        self.gradient, self.k = gradient, k
        self.residual = torch.zeros_like(gradient)
        self.result = torch.empty_like(gradient)
        self.values = gradient.new_empty(k * size)
        self.indices = torch.empty(k * size, dtype=torch.int32, device=gradient.device)

    def select(self):
        acc = self.gradient + self.residual
        index = torch.topk(acc.abs(), self.k, sorted=False).indices
        value = acc[index]
        self.residual.copy_(acc)
        self.residual[index] = 0
        return index.int(), value

    def call(self):
        index, value = self.select()
        dist.all_gather_into_tensor(self.values, value)
        dist.all_gather_into_tensor(self.indices, index)
        self.result.zero_().index_add_(0, self.indices, self.values)


def main():
    options = arguments()
    dist.init_process_group("nccl")
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.cuda.set_device(rank % torch.cuda.device_count())

    def show(what, count, density, call):
        median, p99 = measure(call, options)
        if rank == 0:
            print(f"{what:<16} {count:>10} {density:>8g} | {median:>10.1f} {p99:>10.1f}", flush=True)

    if rank == 0:
        print(f"# torch {torch.__version__}, NCCL {torch.cuda.nccl.version()}, {size} ranks, "
              f"{torch.cuda.get_device_name()}")
        print(f"{'what':<16} {'count':>10} {'density':>8} | {'median us':>10} {'p99':>10}")
    for count in map(int, options.count.split(",")):
        for dtype in torch.float32, torch.bfloat16:
            buffer = torch.randn(count, device="cuda", dtype=dtype)
            show(f"dense {str(dtype)[6:]}", count, 1, lambda: dist.all_reduce(buffer))
            del buffer
        for density in map(float, options.density.split(",")):
            path = TopK(torch.randn(count, device="cuda"), max(1, int(count * density)))
            show("topk alone", count, density,
                 lambda: torch.topk(path.gradient.abs(), path.k, sorted=False))
            show("select, residual", count, density, path.select)
            show("whole call", count, density, path.call)
            del path
            torch.cuda.empty_cache()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
