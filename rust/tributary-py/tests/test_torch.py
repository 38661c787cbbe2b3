"""`tributary.torch` without DDP, on CPU tensors: ranks are threads of this process, over host."""

import doctest
import subprocess
import sys
import tempfile
import threading
import unittest
from collections.abc import Callable
from typing import Any
from unittest import mock

import tributary
from tributary import Communicator, StateError

from .ranks import run

try:
    import torch
    import torch.distributed as dist

    import tributary.torch as ours
except ModuleNotFoundError as error:
    raise unittest.SkipTest(f"tributary.torch is not tested: {error}") from None

from .models import alone, close, model, step


class Average(unittest.TestCase):
    def gradients(self, comm: Communicator, **options: Any) -> list[Any]:
        plain = model()
        step(plain, comm.rank, 0)
        ours.average_gradients(plain, comm, **options)
        return [parameter.grad for parameter in plain.parameters()]

    def expected(self, *weights: float) -> list[Any]:
        each = [step(model(), rank, 0) for rank in range(len(weights))]
        total = sum(weights)
        return [
            sum(weight * one for weight, one in zip(weights, all_, strict=True)) / total
            for all_ in zip(*each, strict=True)
        ]

    def test_of_all_ranks(self) -> None:
        for found in run(3, self.gradients):
            close(found, self.expected(1, 1, 1))
        weights = (1.0, 0.0, 3.0)
        for found in run(3, lambda comm: self.gradients(comm, weight=weights[comm.rank])):
            close(found, self.expected(*weights))

    def test_parameters_without_a_gradient(self) -> None:
        def rank(comm: Communicator, find_unused: bool) -> list[float | None]:
            plain = torch.nn.ParameterList(torch.nn.Parameter(torch.zeros(1)) for _ in range(3))
            plain[0].grad = torch.ones(1)
            if comm.rank == 1:
                plain[1].grad = torch.ones(1)
            ours.average_gradients(plain, comm, find_unused=find_unused)
            return [None if p.grad is None else p.grad.item() for p in plain]

        self.assertEqual(run(2, lambda comm: rank(comm, False)), [[1, 0.5, 0]] * 2)
        self.assertEqual(run(2, lambda comm: rank(comm, True)), [[1, 0.5, None]] * 2)

    def test_of_other_layouts(self) -> None:
        def rank(comm: Communicator) -> bool:
            plain = torch.nn.Conv2d(2, 2, 2).to(memory_format=torch.channels_last)
            numbers = torch.arange(16.0).view(2, 2, 2, 2) * (comm.rank + 1)
            plain.weight.grad = numbers.to(memory_format=torch.channels_last)
            ours.average_gradients(plain, comm)
            expected = torch.arange(16.0).view(2, 2, 2, 2) * 1.5
            return bool(torch.equal(plain.weight.grad, expected))

        self.assertEqual(run(2, rank), [True, True])

        def rows(comm: Communicator) -> None:
            plain = torch.nn.Embedding(3, 2, sparse=True)
            plain(torch.tensor([1])).sum().backward()
            ours.average_gradients(plain, comm)

        with self.assertRaisesRegex(TypeError, "rank 0 of 1: the gradient of 'weight' has the layout"):
            run(1, rows)

    def test_after_an_error_gradients_are_as_before(self) -> None:
        def rank(comm: Communicator) -> list[float | None]:
            plain = torch.nn.ParameterList(torch.nn.Parameter(torch.zeros(1)) for _ in range(2))
            plain[0].grad = torch.ones(1)
            if comm.rank == 1:
                comm.abort("rank 1 has seen enough")
            with self.assertRaisesRegex(StateError, "seen enough"):
                ours.average_gradients(plain, comm)
            return [None if p.grad is None else p.grad.item() for p in plain]

        self.assertEqual(run(2, rank), [[1, None]] * 2)


class Meeting(unittest.TestCase):
    def threads(self, function: Callable[[int], object]) -> None:
        both = [threading.Thread(target=function, args=(rank,)) for rank in range(2)]
        for thread in both:
            thread.start()
        for thread in both:
            thread.join(timeout=60)

    def test_by_a_store(self) -> None:
        store, found = dist.HashStore(), {}

        def rank(number: int) -> None:
            comm = ours.communicator_from_store(store, number, 2, device="cpu")
            data = torch.ones(1)
            comm.allreduce(data).wait(timeout=20)
            found[number] = (comm.rank, int(data), comm.backend)

        self.threads(rank)
        self.assertEqual(found, {0: (0, 2, "host"), 1: (1, 2, "host")})

    def test_what_rank_0_cannot_make_no_rank_waits_for(self) -> None:
        store, found = dist.HashStore(), {}

        def rank(number: int) -> None:
            backend = "mpi" if number == 0 else "host"
            try:
                ours.communicator_from_store(store, number, 2, device="cpu", backend=backend)
            except Exception as error:
                found[number] = f"{type(error).__name__}: {error}"

        self.threads(rank)
        self.assertRegex(found[0], "ArgumentError: TRIB_ERR_UNKNOWN_NAME: .*mpi")
        self.assertRegex(found[1], "RuntimeError: .*rank 1 of 2 has no .*1 other ranks cannot")

    def test_several_processes_on_host_are_refused_on_all_ranks(self) -> None:
        code = """
import sys, torch.distributed as dist, tributary.torch
dist.init_process_group("gloo", init_method="file://" + sys.argv[1], rank=int(sys.argv[2]), world_size=2)
try:
    tributary.torch.communicator(device="cpu")
except RuntimeError as error:
    print(error)
"""
        with tempfile.TemporaryDirectory() as folder:
            ranks = [
                subprocess.Popen(
                    [sys.executable, "-c", code, f"{folder}/store", str(rank)],
                    stdout=subprocess.PIPE,
                    text=True,
                )
                for rank in range(2)
            ]
            first, second = (rank.communicate(timeout=60)[0] for rank in ranks)
        self.assertIn("rank 0 of 2 has no communicator, because 1 other ranks cannot", first)
        self.assertIn("rank 1 of 2 is in another process than rank 0", second)

    def test_by_a_process_group(self) -> None:
        comm = ours.communicator(alone(), device="cpu")
        self.assertEqual((comm.rank, comm.size, comm.backend), (0, 1, "host"))

    def test_mistakes(self) -> None:
        with self.assertRaisesRegex(RuntimeError, "no process group; call .*init_process_group"):
            ours.communicator()
        with self.assertRaisesRegex(ValueError, "`device` is meta; expected a CPU"):
            ours.communicator_from_store(dist.HashStore(), 0, 1, device="meta")


class Package(unittest.TestCase):
    def test_the_example(self) -> None:
        found = doctest.testmod(ours)
        self.assertEqual(found.failed, 0)
        self.assertGreaterEqual(found.attempted, 3)

    def test_the_rest_of_the_package_needs_no_torch(self) -> None:
        code = "import sys, tributary, tributary.info; sys.exit('torch' in sys.modules)"
        self.assertEqual(subprocess.run([sys.executable, "-c", code], timeout=60).returncode, 0)


class Jobs(unittest.TestCase):
    def test_a_process_alone_needs_no_communicator(self) -> None:
        alone = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}
        with mock.patch.dict("os.environ", alone):
            comm = tributary.Communicator.from_env(backend="host")
            self.assertEqual((comm.rank, comm.size, comm.backend), (0, 1, "host"))
            plain = model()
            before = step(plain, 0, 0)
            ours.average_gradients(plain)
            close([parameter.grad for parameter in plain.parameters()], before)
