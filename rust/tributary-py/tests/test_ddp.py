"""Hooks of DDP, on CPU tensors: ranks are threads of this process, over host.

The host backend connects no processes, and DDP wants one for each rank; so each thread has a DDP of
one rank, whose hook reduces over all threads.
"""

import contextlib
import gc
import threading
import unittest
from collections.abc import Callable
from typing import Any
from unittest import mock

from tributary import Communicator, StateError

from .ranks import run

try:
    import torch
    from torch.nn.parallel import DistributedDataParallel

    import tributary.torch as ours
    from tributary.torch import _sparse
except ModuleNotFoundError as error:
    raise unittest.SkipTest(f"tributary.torch is not tested: {error}") from None

from .models import alone, close, model, numbers, step, sums, wide


class Wrapped:
    """Models in DDP.

    What ranks have in common goes through the hooks alone, so each rank has a process group of its
    own. torch makes and frees groups and reducers without the GIL, and two threads must not do so at
    once: one thread makes them at a time, and `clear` frees them when the ranks have ended.
    """

    def __init__(self) -> None:
        self.lock, self.all = threading.Lock(), list[Any]()

    def make(self, plain: Any, **options: Any) -> Any:
        with self.lock:
            group = alone()
            made = DistributedDataParallel(plain, process_group=group, bucket_cap_mb=0.5, **options)
            self.all.append((made, group))
        return made

    def clear(self) -> None:
        self.all.clear()


class Hooks(unittest.TestCase):
    def setUp(self) -> None:
        self.wrapped = Wrapped()
        self.addCleanup(self.wrapped.clear)

    def train(
        self, hook: Callable[[Any, Communicator], object], make: Callable[[], Any] = wide
    ) -> list[list[list[Any]]]:
        """The gradients of 3 steps on each of two ranks."""

        def rank(comm: Communicator) -> list[list[Any]]:
            ddp = self.wrapped.make(make())
            hook(ddp, comm)
            return [step(ddp, comm.rank, i) for i in range(3)]

        return run(2, rank)

    def mean(self, make: Callable[[], Any], number: int) -> list[Any]:
        """The averages of step `number`, without DDP."""
        both = [step(make(), rank, number) for rank in range(2)]
        return [(one + other) / 2 for one, other in zip(*both, strict=True)]

    def total(self, make: Callable[[], Any], steps: int) -> list[Any]:
        return sums(self.mean(make, i) for i in range(steps))

    def test_dense_is_what_ddp_does(self) -> None:
        buckets: list[int] = []
        real = ours.Dense._queue

        def counted(hook: Any, bucket: Any) -> None:
            buckets.append(bucket.index())
            real(hook, bucket)

        with mock.patch.object(ours.Dense, "_queue", counted):
            found = self.train(lambda ddp, comm: ours.dense(ddp, comm=comm))
        self.assertGreater(max(buckets), 0, "DDP had one bucket only")
        for i in range(3):
            for rank in found:
                close(rank[i], self.mean(wide, i))

    def test_sparse_with_density_1_is_what_ddp_does(self) -> None:
        """Also after the first step, when DDP has filled its buckets anew."""

        def hook(ddp: Any, comm: Communicator) -> None:
            ours.sparse(ddp, density=1.0, algorithm="topka", bucket_bytes=1 << 20, comm=comm)

        found = self.train(hook)
        for i in range(3):
            for rank in found:
                close(rank[i], self.mean(wide, i))

    def test_sparse_loses_nothing(self) -> None:
        """What was not sent in 4 steps comes with the fifth, whatever the buckets were."""

        def rank(comm: Communicator) -> list[list[Any]]:
            ddp = self.wrapped.make(wide())
            hook = ours.sparse(ddp, density=0.05, algorithm="topka", comm=comm)
            found = [step(ddp, comm.rank, i) for i in range(4)]
            hook.set_density(1.0)
            return [*found, step(ddp, comm.rank, 4)]

        expected = self.total(wide, 5)
        for found in run(2, rank):
            sent = sum(int(gradient.count_nonzero()) for gradient in found[1])
            self.assertLess(9 * sent, sum(gradient.numel() for gradient in found[1]))
            close(sums(found), expected)

    def test_places_move_into_the_buckets(self) -> None:
        """Nothing is copied from the fourth step on; the density stays, and statistics go on."""
        copies, real = threading.local(), _sparse._copy_all

        def counted(to: Any, of: Any) -> None:
            copies.n += 1
            real(to, of)

        def rank(comm: Communicator) -> list[tuple[int, int, int]]:
            ddp = self.wrapped.make(wide(), gradient_as_bucket_view=comm.rank == 1)
            hook = ours.sparse(ddp, density=0.5, algorithm="topka", comm=comm)
            hook.set_density(0.05)
            found = []
            for i in range(6):
                copies.n = 0
                step(ddp, comm.rank, i)
                all_ = hook.statistics()
                found.append((copies.n, all_["calls_applied"], all_["total_selected"]))
            return found

        with mock.patch.object(_sparse, "_copy_all", counted):
            both = run(2, rank)
        for found in both:
            self.assertTrue(all(n > 0 for n, _, _ in found[:3]), found)
            self.assertEqual([n for n, _, _ in found[3:]], [0, 0, 0])
            calls = [0, *(calls for _, calls, _ in found)]
            each = [after - before for before, after in zip(calls, calls[1:])]  # a bucket, a call
            self.assertEqual(each, [each[0]] * 3 + [each[3]] * 3)
            self.assertGreater(each[3], 1)
            self.assertLess(found[5][2] - found[4][2], 1.1 * found[0][2])

    def test_no_sync_accumulates(self) -> None:
        def accumulate(ddp: Any, sync: Any, rank: int) -> list[Any]:
            with sync:
                ddp(numbers(rank, 4, 6)).sum().backward()
            ddp(numbers(10 + rank, 4, 6)).sum().backward()
            return [parameter.grad for parameter in ddp.parameters()]

        def rank(comm: Communicator) -> list[Any]:
            ddp = self.wrapped.make(model())
            ours.dense(ddp, comm=comm)
            return accumulate(ddp, ddp.no_sync(), comm.rank)

        both = [accumulate(model(), contextlib.nullcontext(), rank) for rank in range(2)]
        for found in run(2, rank):
            close(found, [all_ / 2 for all_ in sums(both)])

    def test_weighted(self) -> None:
        def rank(comm: Communicator) -> list[list[Any]]:
            ddp = self.wrapped.make(wide())
            hook = ours.weighted(ddp, comm.rank, comm=comm)  # rank 0 only receives
            found = [step(ddp, comm.rank, 0)]
            hook.weight = [3.0, 1.0][comm.rank]
            return [*found, step(ddp, comm.rank, 1)]

        alone = [[step(wide(), number, i) for number in range(2)] for i in range(2)]
        for first, second in run(2, rank):
            close(first, alone[0][1])
            close(second, [(3 * a + b) / 4 for a, b in zip(*alone[1], strict=True)])

    def skipped(self, comm: Communicator, scaler: Any, is_lost: Callable[[Any], Any]) -> None:
        """A step that is not finite on rank 1, between two that are; also after the places' move."""
        for moved in (False, True):
            self.skipped_once(comm, scaler, is_lost, moved)

    def skipped_once(
        self, comm: Communicator, scaler: Any, is_lost: Callable[[Any], Any], moved: bool
    ) -> None:
        ddp = self.wrapped.make(wide())
        hook = ours.sparse(
            ddp, density=0.05, algorithm="topka", momentum=0.5, scaler=scaler, comm=comm
        )
        for i in range(5 if moved else 1):
            step(ddp, comm.rank, i)
        self.assertTrue(hook.applied)
        before = hook.state_dict()["state"]
        found = step(ddp, comm.rank, 1, scale=float("inf") if comm.rank == 1 else 1.0)
        self.assertFalse(hook.applied)
        self.assertTrue(all(bool(is_lost(gradient).all()) for gradient in found))
        self.assertTrue(torch.equal(hook.state_dict()["state"], before))
        found = step(ddp, comm.rank, 2)
        self.assertTrue(hook.applied)
        self.assertTrue(all(bool(gradient.isfinite().all()) for gradient in found))
        self.assertTrue(any(bool(gradient.count_nonzero()) for gradient in found))
        self.assertFalse(torch.equal(hook.state_dict()["state"], before))

    def test_a_step_that_is_not_finite_is_skipped_on_all_ranks(self) -> None:
        run(2, lambda comm: self.skipped(comm, None, lambda gradient: gradient == 0))

    def test_a_scaler_sees_a_step_that_is_not_finite(self) -> None:
        class Scaler:
            def get_scale(self) -> float:
                return 4.0

        run(2, lambda comm: self.skipped(comm, Scaler(), torch.isnan))

    def test_residuals_outlive_a_change_of_the_scale(self) -> None:
        class Scaler:
            scale = 1024.0

            def get_scale(self) -> float:
                return self.scale

        def rank(comm: Communicator) -> list[Any]:
            ddp, scaler = self.wrapped.make(model()), Scaler()
            hook = ours.sparse(ddp, density=0.1, algorithm="topka", scaler=scaler, comm=comm)
            found = [[g / 1024 for g in step(ddp, comm.rank, 0, scale=1024)]]
            scaler.scale = 2.0
            hook.set_density(1.0)
            found.append([g / 2 for g in step(ddp, comm.rank, 1, scale=2)])
            return sums(found)

        expected = self.total(model, 2)
        for found in run(2, rank):
            close(found, expected)

    def test_checkpoint(self) -> None:
        def rank(comm: Communicator) -> None:
            def make() -> tuple[Any, Any]:
                ddp = self.wrapped.make(model())
                return ddp, ours.sparse(ddp, density=0.1, algorithm="topka", momentum=0.9, comm=comm)

            ddp, hook = make()
            for i in range(5):
                step(ddp, comm.rank, i)
            saved = hook.state_dict()
            expected = step(ddp, comm.rank, 1)
            other, again = make()
            again.load_state_dict(saved)  # its places are not in DDP's buckets, those of `hook` are
            self.assertTrue(torch.equal(again.state_dict()["state"], saved["state"]))
            for i in range(4):
                step(other, comm.rank, i)
            again.load_state_dict(saved)
            self.assertTrue(torch.equal(again.state_dict()["state"], saved["state"]))
            found = step(other, comm.rank, 1)
            self.assertTrue(all(map(torch.equal, found, expected)))
            saved["names"][0] = "another"
            with self.assertRaisesRegex(ValueError, r"differs in the parameters \['another', '0.we"):
                again.load_state_dict(saved)

        run(2, rank)

    def test_a_failure_on_one_rank_is_an_error_on_all(self) -> None:
        class Broken:
            def get_scale(self) -> float:
                raise ZeroDivisionError("no scale")

        made = threading.Barrier(2)

        def rank(comm: Communicator) -> str:
            ddp = self.wrapped.make(model())
            ours.sparse(ddp, scaler=Broken() if comm.rank == 1 else None, comm=comm)
            made.wait(timeout=20)
            try:
                step(ddp, comm.rank, 0)
            except Exception as error:
                return f"{type(error).__name__}: {error}"
            return "nothing"

        first, second = run(2, rank)
        self.assertRegex(first, "the hook of DDP on rank 1 failed: ZeroDivisionError: no scale")
        self.assertRegex(second, "ZeroDivisionError: no scale")

    def test_a_wrong_weight(self) -> None:
        def rank(comm: Communicator) -> str:
            ddp = self.wrapped.make(model())
            ours.weighted(ddp, -1.0 if comm.rank == 0 else 1.0, comm=comm)
            try:
                step(ddp, comm.rank, 0)
            except Exception as error:
                return str(error)
            return "nothing"

        first, second = run(2, rank)
        self.assertRegex(first, "weighted on rank 0: `weight` is -1.0; expected a number of 0")
        self.assertRegex(second, "the hook of DDP on rank 0 failed: ValueError")

    def test_it_ends_with_the_process_group(self) -> None:
        ddp = self.wrapped.make(model())
        hook = ours.dense(ddp)
        step(ddp, 0, 0)
        hook.comm.status()
        del ddp
        self.wrapped.clear()
        gc.collect()
        with self.assertRaisesRegex(StateError, "CLOSED"):
            hook.comm.allreduce(torch.ones(1))

    def test_narrow_gradients(self) -> None:
        """DDP's own start over gloo has no bf16 everywhere: buckets as it makes them."""

        class Bucket:
            def __init__(self, plain: Any) -> None:
                self.all = list(plain.parameters())
                self.flat = torch.cat([p.grad.flatten() for p in self.all])

            def index(self) -> int:
                return 0

            def is_last(self) -> bool:
                return True

            def buffer(self) -> Any:
                return self.flat

            def parameters(self) -> Any:
                return self.all

            def gradients(self) -> Any:
                parts = self.flat.split([p.numel() for p in self.all])
                return [part.view(p.shape) for part, p in zip(parts, self.all, strict=True)]

        def rank(comm: Communicator, dtype: Any, kind: str) -> list[float]:
            plain = torch.nn.Linear(2, 1).to(dtype)
            for parameter in plain.parameters():
                parameter.grad = torch.full_like(parameter, 2.0 * comm.rank + 1)

            class Model(torch.nn.Module):  # type: ignore[misc,unused-ignore]
                def __init__(self) -> None:
                    super().__init__()
                    self.module = plain

                def register_comm_hook(self, state: Any, hook: Any) -> None:
                    self.future = hook(state, Bucket(plain))

            ddp = Model()
            ours.dense(ddp, comm=comm) if kind == "dense" else ours.sparse(ddp, comm=comm, density=1.0)
            found = ddp.future.wait()
            self.assertEqual(found.dtype, dtype)
            return list(found.tolist())

        for dtype in (torch.bfloat16, torch.float16, torch.float64):
            for kind in ("dense", "sparse"):
                with self.subTest(dtype=dtype, kind=kind):
                    found = run(2, lambda comm: rank(comm, dtype, kind))  # noqa: B023
                    self.assertEqual(found, [[2.0] * 3] * 2)
