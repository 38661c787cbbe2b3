#!/usr/bin/env python3
"""Steps of ResNet-50 in DDP: by PyTorch over NCCL, and by the hooks of tributary.torch.

    torchrun --nproc-per-node 2 torch_hooks.py [--batch 64] [--density 0.01] [--algorithm topka,chunked]

One process a GPU; the package tributary-ccl is installed. A step is zeroing of the gradients, forward,
backward and SGD; with a sparse hook momentum is the hook's. Times are milliseconds between CUDA events
around each step, of the slowest rank. The rows take turns, some steps each, since a GPU's clock drifts
by more than what a row differs from another. "of DDP" is the mean, over the rounds, of a row's median
over that of DDP in the same round, with its 95 % confidence interval: 0.98 is 2 % faster. "apart": how
far the gradients of the first step are from DDP's, as a share of their norm: about 0 for dense ones.

Over loopback sockets instead of NVLink:

    NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1 NCCL_NET=Socket NCCL_SOCKET_IFNAME=lo torchrun ...
"""

import os
import statistics

import torch
import torch.distributed as dist
from torch import nn

import tributary.torch
from torch_measure import measure
from torch_resnet50 import inputs, parser, resnet50, use_tensor_cores

MOMENTUM = 0.9

# Where NCCL is, and which: it does not change what is measured.
PLACES = ("NCCL_HOME", "NCCL_ROOT", "NCCL_VERSION")


def arguments():
    options = parser(__doc__.splitlines()[0])
    options.add_argument("--density", type=float, default=0.01)
    options.add_argument("--algorithm", default="topka,chunked", help="of sparse hooks")
    return options.parse_args()


class Row:
    """A way to average gradients, and how long its steps took."""

    def __init__(self, name, hook, momentum, data):
        self.name, self.data = name, data
        self.model = nn.parallel.DistributedDataParallel(
            resnet50(), gradient_as_bucket_view=True, broadcast_buffers=False)
        self.hook = hook(self.model)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-4, momentum=momentum)
        self.medians, self.p99s = [], []
        self.step()
        self.gradient = torch.cat([p.grad.flatten() for p in self.model.parameters()])

    def step(self):
        images, labels = self.data
        self.optimizer.zero_grad(set_to_none=False)
        nn.functional.cross_entropy(self.model(images), labels).backward()
        self.optimizer.step()

    def measure(self, options):
        median, p99 = measure(self.step, options)
        self.medians.append(median / 1e3)
        self.p99s.append(p99 / 1e3)

    def text(self, base):
        ratios = [mine / its for mine, its in zip(self.medians, base.medians)]
        interval = 1.96 * statistics.stdev(ratios) / len(ratios) ** 0.5
        apart = ((self.gradient - base.gradient).norm() / base.gradient.norm()).item()
        return (f"{self.name:<24} | {statistics.median(self.medians):>8.3f} "
                f"{statistics.median(self.p99s):>8.3f} | {statistics.mean(ratios):>7.4f} "
                f"+- {interval:.4f} | {apart:.1e}")


def make_rows(options, data):
    def sparse(algorithm):
        return lambda model: tributary.torch.sparse(
            model, algorithm=algorithm, density=options.density, momentum=MOMENTUM)

    rows = [Row("DDP over NCCL", lambda model: None, MOMENTUM, data),
            Row("dense hook", tributary.torch.dense, MOMENTUM, data)]
    return rows + [Row(f"sparse hook, {algorithm}", sparse(algorithm), 0.0, data)
                   for algorithm in options.algorithm.split(",")]


def main():
    options = arguments()
    if options.rounds < 2:
        raise SystemExit("--rounds: an interval needs at least 2")
    dist.init_process_group("nccl")
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.cuda.set_device(rank % torch.cuda.device_count())
    use_tensor_cores()
    rows = make_rows(options, inputs(options.batch, rank))
    for _ in range(options.rounds):
        for row in rows:
            row.measure(options)
    if rank == 0:
        network = [f"{name}={value}" for name, value in sorted(os.environ.items())
                   if name.startswith("NCCL_") and name not in PLACES]
        print(f"# torch {torch.__version__}, NCCL {torch.cuda.nccl.version()}, {size} ranks, "
              f"{torch.cuda.get_device_name()}, {options.batch} images a rank, density "
              f"{options.density}, {options.rounds} rounds of {options.iterations} steps", *network)
        print(f"{'a step':<24} | {'median':>8} {'p99':>8} | {'of DDP':>17} | apart   (ms)")
        for row in rows:
            print(row.text(rows[0]), flush=True)
    for row in rows:
        if row.hook is not None:
            row.hook.comm.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
