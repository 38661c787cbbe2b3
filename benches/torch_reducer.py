#!/usr/bin/env python3
"""How much of a reducer's communication a backward pass of ResNet-50 hides, beside PyTorch's DDP.

    TRIBUTARY_LIBRARY=libtributary.so torchrun --nproc-per-node 2 torch_reducer.py [--batch 64]

One process a GPU. A step is zeroing of the gradients, forward, backward and SGD. The rows: no
communication; DDP over NCCL; the reducer with gradients that lie in its buckets, and with copies.
Times are milliseconds between CUDA events around each step, of the slowest rank. The rows take turns,
some steps each, since a GPU's clock drifts by more than what a row differs from another. "grown": by
how much a step takes longer than without communication, the mean of the differences of the medians of
each round, with its 95 % confidence interval; it has the communication that nothing hides, and what
the backward pass loses to the communication beside it. "alone": the same communication without a
backward pass (a reducer's: its step as a CUDA graph, without Python's part). "exposed": for how long
the stream of the backward pass waits in finish, on the rank that comes last (the others wait for that
one), and "hidden" the share of "alone" for which it does not. Each reducer averages known gradients
once, exactly, and those of its first step are compared with DDP's.
"""

import ctypes
import os
import statistics

import torch
import torch.distributed as dist
from torch import nn

from torch_measure import measure
from torch_resnet50 import inputs, parser, resnet50, use_tensor_cores

TRIB_F32, VIEWS, LEARN_ORDER = 3, 1 << 1, 1 << 3


class Tensor(ctypes.Structure):  # trib_tensor
    _fields_ = [("data", ctypes.c_void_p), ("count", ctypes.c_size_t),
                ("dtype", ctypes.c_int32), ("reserved", ctypes.c_uint32)]


class Id(ctypes.Structure):  # trib_id
    _fields_ = [("bytes", ctypes.c_uint8 * 128)]


class ReducerOptions(ctypes.Structure):  # trib_reducer_options
    _fields_ = [("size", ctypes.c_uint32), ("flags", ctypes.c_uint32),
                ("bucket_bytes", ctypes.c_uint64), ("first_bytes", ctypes.c_uint64),
                ("device_weight", ctypes.c_void_p), ("sparse", ctypes.c_void_p),
                ("order", ctypes.c_void_p), ("buckets", ctypes.c_void_p),
                ("nbuckets", ctypes.c_uint64)]


def load():
    trib = ctypes.CDLL(os.environ.get("TRIBUTARY_LIBRARY", "libtributary.so"))
    trib.trib_last_detail.restype = ctypes.c_char_p
    for name, arguments in {
            "trib_comm_create": [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32, ctypes.c_int32,
                                 ctypes.c_int32, ctypes.c_void_p],
            "trib_reducer_create": [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p,
                                    ctypes.c_size_t, ctypes.c_void_p],
            "trib_reducer_view": [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t],
            "trib_reducer_ready": [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p],
            "trib_reducer_finish": [ctypes.c_void_p, ctypes.c_void_p],
            "trib_reducer_destroy": [ctypes.c_void_p],
            "trib_comm_destroy": [ctypes.c_void_p]}.items():
        getattr(trib, name).argtypes = arguments
    return trib


def arguments():
    options = parser(__doc__.splitlines()[0])
    options.add_argument("--bucket-mib", type=int, default=0, help="0: the default")
    options.add_argument("--first-kib", type=int, default=0,
                         help="of the first bucket and the last; 0: the default")
    return options.parse_args()


class Memory:
    """Floats of the library's as PyTorch takes them, without a copy."""

    def __init__(self, address, shape):
        self.__cuda_array_interface__ = {"data": (address, False), "shape": tuple(shape),
                                         "typestr": "<f4", "version": 3}


class Reduced:
    """Gradients that a reducer averages while the backward pass makes the others."""

    def __init__(self, trib, comm, model, flags, asked):
        self.trib, self.reducer = trib, ctypes.c_void_p()
        self.learns = bool(flags & LEARN_ORDER)
        self.parameters = [p for p in model.parameters()][::-1]
        for p in self.parameters:
            p.grad = torch.zeros_like(p)
        options = ReducerOptions(ctypes.sizeof(ReducerOptions), flags, asked.bucket_mib << 20,
                                 asked.first_kib << 10)
        tensors = (Tensor * len(self.parameters))(
            *(Tensor(p.grad.data_ptr(), p.numel(), TRIB_F32) for p in self.parameters))
        self.check(trib.trib_reducer_create(ctypes.byref(self.reducer), comm, tensors,
                                            len(tensors), ctypes.byref(options)))
        if flags & VIEWS:
            self.find_views()
        self.hooks = [p.register_post_accumulate_grad_hook(lambda _, i=i: self.ready(i))
                      for i, p in enumerate(self.parameters)]

    def check(self, status):
        if status != 0:
            raise RuntimeError(self.trib.trib_last_detail().decode())

    def find_views(self):
        for i, p in enumerate(self.parameters):
            view = ctypes.c_void_p()
            self.check(self.trib.trib_reducer_view(ctypes.byref(view), self.reducer, i))
            flat = torch.as_tensor(Memory(view.value, [p.numel()]), device="cuda")
            p.grad = flat.as_strided(p.shape, p.stride())

    def ready(self, i):
        self.check(self.trib.trib_reducer_ready(self.reducer, i,
                                                torch.cuda.current_stream().cuda_stream))

    def finish(self):
        self.check(self.trib.trib_reducer_finish(self.reducer,
                                                 torch.cuda.current_stream().cuda_stream))
        if self.learns:  # by the first step, whose end moves the views
            self.find_views()
        self.learns = False

    def check_average(self):
        rank, size = dist.get_rank(), dist.get_world_size()
        for i, p in enumerate(self.parameters):
            p.grad.fill_((i % 7 + 1) * (rank + 1))
        self.step_alone()
        for i, p in enumerate(self.parameters):
            assert (p.grad == (i % 7 + 1) * (size + 1) / 2).all(), f"gradient {i} is not the average"

    def step_alone(self):
        for i in range(len(self.parameters)):
            self.ready(i)
        self.finish()

    def alone(self):
        """A step with gradients that are all ready, as a graph."""
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            self.step_alone()
        return graph.replay

    def close(self):
        torch.cuda.synchronize()
        for hook in self.hooks:
            hook.remove()
        for p in self.parameters:
            p.grad = None
        self.check(self.trib.trib_reducer_destroy(self.reducer))


class Row:
    """A way to train, and how long its steps took."""

    def __init__(self, name, model, data, finish=None, alone=None):
        self.name, self.model, self.data, self.alone = name, model, data, alone
        self.finish, self.waits_in_finish = finish or (lambda: None), finish is not None
        self.optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
        self.medians, self.p99s, self.waits = [], [], []
        self.step()
        self.gradient = torch.cat([p.grad.flatten() for p in model.parameters()])

    def step(self):
        images, labels = self.data
        self.optimizer.zero_grad(set_to_none=False)
        nn.functional.cross_entropy(self.model(images), labels).backward()
        self.waits.append([torch.cuda.Event(enable_timing=True) for _ in range(2)])
        self.waits[-1][0].record()
        self.finish()
        self.waits[-1][1].record()
        self.optimizer.step()

    def exposed(self):
        """Milliseconds that a step waits in finish, the median of the last rank's."""
        waits = torch.tensor([a.elapsed_time(b) for a, b in self.waits], device="cuda")
        dist.all_reduce(waits, op=dist.ReduceOp.MIN)
        return waits.median().item()

    def measure(self, options):
        median, p99 = measure(self.step, options)
        self.medians.append(median / 1e3)
        self.p99s.append(p99 / 1e3)

    def text(self, base, options):
        text = (f"{self.name:<28} | {statistics.median(self.medians):>8.3f} "
                f"{statistics.median(self.p99s):>8.3f}")
        if self.alone is None:
            return text
        differences = [mine - its for mine, its in zip(self.medians, base.medians)]
        grown = statistics.mean(differences)
        interval = 1.96 * statistics.stdev(differences) / len(differences) ** 0.5
        text += f" | {grown:>+8.3f} +- {interval:.3f}"
        alone = measure(self.alone(), options)[0] / 1e3
        if not self.waits_in_finish:
            return text + f" | {alone:>8.3f}"
        exposed = self.exposed()
        return text + f" | {alone:>8.3f} {exposed:>8.3f} {100 * (1 - exposed / alone):>7.1f} %"


def connect(trib, rank, size):
    """A communicator of all processes."""
    identity, comm = Id(), ctypes.c_void_p()
    if rank == 0 and trib.trib_id_create(ctypes.byref(identity), b"nccl") != 0:
        raise RuntimeError(trib.trib_last_detail().decode())
    shared = torch.tensor(list(identity.bytes), dtype=torch.uint8, device="cuda")
    dist.broadcast(shared, 0)
    identity = Id((ctypes.c_uint8 * 128)(*shared.tolist()))
    if trib.trib_comm_create(ctypes.byref(comm), ctypes.byref(identity), rank, size,
                             torch.cuda.current_device(), None) != 0:
        raise RuntimeError(trib.trib_last_detail().decode())
    return comm


def main():
    options = arguments()
    dist.init_process_group("nccl")
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.cuda.set_device(rank % torch.cuda.device_count())
    use_tensor_cores()
    trib = load()
    comm, data = connect(trib, rank, size), inputs(options.batch, rank)
    flat = torch.zeros(25557032, device="cuda")
    ddp = nn.parallel.DistributedDataParallel(resnet50(), gradient_as_bucket_view=True)
    base = Row("no communication", resnet50(), data)
    rows = [base, Row("DDP over NCCL", ddp, data,
                      alone=lambda: lambda: dist.all_reduce(flat, op=dist.ReduceOp.AVG))]
    reducers = []
    for name, flags in ("reducer, views", VIEWS), ("reducer, copies", 0), (
            "reducer, views, learnt order", VIEWS | LEARN_ORDER):
        model = resnet50()
        reducers.append(Reduced(trib, comm, model, flags, options))
        rows.append(Row(name, model, data, reducers[-1].finish, reducers[-1].alone))
    apart = [((row.gradient - rows[1].gradient).norm() / rows[1].gradient.norm()).item()
             for row in rows]
    for reducer in reducers:
        reducer.check_average()
    for _ in range(options.rounds):
        for row in rows:
            row.measure(options)
    if rank == 0:
        print(f"# torch {torch.__version__}, NCCL {torch.cuda.nccl.version()}, {size} ranks, "
              f"{torch.cuda.get_device_name()}, {options.batch} images a rank, "
              f"{options.rounds} rounds of {options.iterations} steps")
        print("# gradients of the first step from DDP's:", *(f"{of:.1e}" for of in apart))
        print(f"{'a step':<28} | {'median':>8} {'p99':>8} | {'grown':>18} | {'alone':>8} {'exposed':>8} "
              f"{'hidden':>7}   (ms)")
    for row in rows:
        text = row.text(base, options)
        if rank == 0:
            print(text, flush=True)
    for reducer in reducers:
        reducer.close()
    torch.cuda.synchronize()
    trib.trib_comm_destroy(comm)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
