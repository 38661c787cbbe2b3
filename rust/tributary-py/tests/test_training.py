"""Sparse allreduces, and reducers."""

import array
import ctypes
import gc
import math
import threading
import unittest
from typing import Any

import tributary
from tributary import (
    ArgumentError,
    Communicator,
    Outcome,
    Reducer,
    SparseAllReduce,
    StateError,
    Status,
)

from .ranks import floats, run


class Sparse(unittest.TestCase):
    def test_residuals(self) -> None:
        def rank(comm: Communicator) -> list[list[float]]:
            sparse = SparseAllReduce(comm, 4, algorithm="topka", k=1)
            self.assertEqual((sparse.count, sparse.dtype, sparse.k), (4, "f32", 1))
            result, residual = floats(*[0] * 4), floats(*[0] * 4)
            found = []
            for gradient in (floats(1, -8, 2, 0), floats(1, 3, 2, 0)):
                sparse.allreduce(gradient, result).wait()
                sparse.residual(residual).wait()
                found += [list(result), list(residual)]
            statistics = sparse.statistics()
            self.assertEqual((statistics["algorithm"], statistics["calls_applied"]), ("topka", 2))
            self.assertIsNone(statistics["residual_norm"])
            sparse.reset().wait()
            sparse.residual(residual).wait()
            self.assertEqual(list(residual), [0] * 4)
            return found

        expected = [[0, -16, 0, 0], [1, 0, 2, 0], [0, 0, 8, 0], [2, 3, 0, 0]]
        self.assertEqual(run(2, rank), [expected] * 2)

    def test_every_algorithm_sends_what_one_density_says(self) -> None:
        def rank(comm: Communicator) -> None:
            for algorithm in tributary.sparse_algorithms():
                sparse = SparseAllReduce(
                    comm, 64, "f64", algorithm=algorithm, density=1, average=True
                )
                data = array.array("d", [comm.rank * i for i in range(64)])
                sparse.allreduce(data).wait()
                self.assertEqual(list(data), [0.5 * i for i in range(64)], algorithm)

        run(2, rank)

    def test_what_is_not_finite_is_not_applied(self) -> None:
        def rank(comm: Communicator) -> list[float]:
            sparse = SparseAllReduce(comm, 2, algorithm="topka", k=1)
            bad, result = floats(1, [2.0, float("inf")][comm.rank]), floats(7, 7)
            with self.assertRaisesRegex(ArgumentError, "lower the loss scale") as caught:
                sparse.allreduce(bad, result).wait()
            self.assertEqual(caught.exception.status, Status.NON_FINITE)
            self.assertRaisesRegex(ArgumentError, "NON_FINITE", sparse.status)
            self.assertEqual(list(result), [0, 0])
            sparse.allreduce(floats(0, 1), result).wait()
            sparse.status()
            return list(result)

        self.assertEqual(run(2, rank), [[0, 2]] * 2)

    def test_momentum_and_checkpoint(self) -> None:
        def rank(comm: Communicator) -> None:
            def make() -> SparseAllReduce:
                return SparseAllReduce(comm, 3, algorithm="topka", k=1, momentum=0.5, masking=False)

            first, gradient = make(), floats(4, 2, 1)
            out, again = floats(0, 0, 0), floats(0, 0, 0)
            first.allreduce(gradient, out).wait()
            saved = first.export_state()
            first.allreduce(gradient, out).wait()
            second = make()
            second.import_state(saved)
            second.allreduce(gradient, again).wait()
            # u = 4 + 0.5 * 4 was sent before: acc is (6, 5, 2.5).
            self.assertEqual((list(out), out), ([12, 0, 0], again))
            second.import_state(saved, add=True)
            with self.assertRaisesRegex(ArgumentError, "sparse_import|export"):
                second.import_state(b"x" * 100, add=True)

        run(2, rank)

    def test_entries_and_options(self) -> None:
        def rank(comm: Communicator) -> None:
            sparse = SparseAllReduce(comm, 4, algorithm="topka", k=1, entries=True)
            room = sparse.capacity
            index, value, count = (
                array.array("I", [0] * room),
                floats(*[0] * room),
                array.array("I", [0]),
            )
            gradient = floats(0, 5, 0, 1) if comm.rank == 0 else floats(7, 0, 0, 1)
            sparse.allreduce_entries(gradient, index, value, count).wait()
            self.assertEqual((count[0], list(index)[:2], list(value)[:2]), (2, [0, 1], [7, 5]))
            with self.assertRaisesRegex(
                ArgumentError, f"`index` has 1 elements of u32; expected {room} of u32"
            ):
                sparse.allreduce_entries(gradient, array.array("I", [0]), value, count)
            sparse.set_k(2)
            self.assertEqual(sparse.k, 2)
            sparse.set_density(0.25)
            self.assertEqual(sparse.k, 1)
            place = SparseAllReduce(comm, 2, algorithm="topka", k=1, in_place=True)
            with self.assertRaisesRegex(ArgumentError, "expected another tensor"):
                place.allreduce(floats(1, 2))
            held, out = floats(1, 2), floats(0, 0)
            place.allreduce(held, out).wait()
            self.assertEqual((list(held), list(out)), ([1, 0], [0, 4]))

        run(2, rank)

    def test_mistakes(self) -> None:
        def rank(comm: Communicator) -> None:
            with self.assertRaisesRegex(ArgumentError, "UNKNOWN_NAME"):
                SparseAllReduce(comm, 4, algorithm="best")
            with self.assertRaisesRegex(TypeError, "no keyword `densty`"):
                SparseAllReduce(comm, 4, densty=0.1)  # type: ignore[call-arg]
            with self.assertRaisesRegex(ArgumentError, '`dtype` is "float"; expected one of f16'):
                SparseAllReduce(comm, 4, "float")  # type: ignore[arg-type]
            with self.assertRaisesRegex(ArgumentError, "MISMATCH"):
                SparseAllReduce(comm, 4 + comm.rank)
            with self.assertRaisesRegex(TypeError, "`k` is -1: OverflowError"):
                SparseAllReduce(comm, 4, k=-1)
            for keyword in ("density", "decay", "clip_norm"):  # 0 is C's word for its default
                for number in (0, -1.0, float("nan")):
                    options: Any = {keyword: number}
                    with self.assertRaisesRegex(ArgumentError, f"`{keyword}` is .*above 0"):
                        SparseAllReduce(comm, 4, **options)
            with self.assertRaisesRegex(ArgumentError, "`k` and `density` are both given"):
                SparseAllReduce(comm, 4, k=1, density=0.5)
            sparse = SparseAllReduce(comm, 4)
            with self.assertRaisesRegex(
                ArgumentError, "`gradient` has 3 elements of f32; expected 4 of f32"
            ):
                sparse.allreduce(floats(1, 2, 3))

        run(2, rank)

    def test_a_state_keeps_its_communicator(self) -> None:
        def rank(comm: Communicator) -> SparseAllReduce:
            return SparseAllReduce(comm, 4, algorithm="topka", k=1)

        states = run(1, rank)
        gc.collect()
        result = floats(0, 0, 0, 0)
        states[0].allreduce(floats(1, 2, 3, 4), result).wait()
        self.assertEqual(list(result), [0, 0, 0, 4])


def word(outcome: Outcome) -> int:
    interface = outcome.__array_interface__
    assert interface["shape"] == (1,) and interface["typestr"] == "<i4"
    return ctypes.c_int32.from_address(interface["data"][0]).value


class Reducers(unittest.TestCase):
    def test_steps(self) -> None:
        def rank(comm: Communicator) -> None:
            gradients = [floats(0), array.array("d", [0, 0]), floats(0, 0, 0)]
            reducer = Reducer(comm, gradients, learn_order=True, bucket_bytes=8, first_bytes=4)
            for step in range(3):
                for gradient in gradients:
                    for i in range(len(gradient)):
                        gradient[i] = step + 2 * comm.rank + i
                for i in (2, 0, 1):
                    reducer.ready(i)
                reducer.finish().wait()
                reducer.status()
                for gradient in gradients:
                    self.assertEqual(list(gradient), [step + 1 + i for i in range(len(gradient))])
            self.assertEqual(reducer.buckets, 3)
            for i in range(3):  # each on a stream of its own, which nobody else keeps
                reducer.ready(i, stream=tributary.Stream(comm.device, backend="host"))
            reducer.finish().wait()
            self.assertEqual(reducer.export_state(), b"")
            self.assertRaisesRegex(ArgumentError, "without options.sparse", reducer.statistics)
            with self.assertRaisesRegex(ArgumentError, "INVALID"):
                reducer.ready(3)

        run(2, rank)

    def test_in_place(self) -> None:
        def rank(comm: Communicator) -> None:
            memory = floats(1, 2, 3, 4, 5)
            view = memoryview(memory)
            gradients = [view[3:], view[:3]]
            reducer = Reducer(comm, gradients, average=False, in_place=[2], order=(1, 0))
            self.assertEqual(reducer.buckets, 1)
            for i in (1, 0):
                reducer.ready(i)
            reducer.finish().wait()
            self.assertEqual(list(memory), [2, 4, 6, 8, 10])
            with self.assertRaisesRegex(ValueError, "`order` has 1 numbers; expected 2"):
                Reducer(comm, gradients, order=[0])
            with self.assertRaisesRegex(ArgumentError, r"options.order\[1\] is 0"):
                Reducer(comm, gradients, order=[0, 0])

        run(2, rank)

    def test_not_applied_in_place(self) -> None:
        def rank(comm: Communicator) -> list[float]:
            memory = floats(1, math.nan if comm.rank == 1 else 2)
            reducer = Reducer(
                comm, [memory], in_place=[1], sparse={"algorithm": "topka", "density": 0.5}
            )
            reducer.ready(0)
            with self.assertRaisesRegex(ArgumentError, "not finite"):
                reducer.finish().wait()
            return list(memory)

        self.assertEqual(run(2, rank), [[0, 0]] * 2)

    def test_sums_and_weights(self) -> None:
        def rank(comm: Communicator) -> list[float]:
            total, mean, weight = (
                floats(comm.rank + 1),
                floats(8 * comm.rank),
                floats([1, 3][comm.rank]),
            )
            sums = Reducer(comm, [total], average=False)
            sums.ready(0)
            sums.finish().wait()
            means = Reducer(comm, [mean], weight=weight)
            means.ready(0)
            means.finish().wait()
            return [total[0], mean[0]]

        self.assertEqual(run(2, rank), [[3, 6]] * 2)

    def test_ready_from_many_threads(self) -> None:
        def rank(comm: Communicator) -> None:
            gradients = [floats(*[comm.rank] * 10) for _ in range(16)]
            reducer = Reducer(comm, gradients, bucket_bytes=100, first_bytes=40)

            def some(first: int) -> None:
                for i in range(first, 16, 4):
                    reducer.ready(i)

            for _ in range(20):
                threads = [threading.Thread(target=some, args=(first,)) for first in range(4)]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
                reducer.finish().wait()
            self.assertEqual(gradients, [floats(*[0.5] * 10)] * 16)

        run(2, rank)

    def test_sparse_and_checkpoint(self) -> None:
        def rank(comm: Communicator) -> None:
            gradient = floats(3, 1, 0, 0)
            reducer = Reducer(
                comm, [gradient], average=False, sparse={"algorithm": "topka", "density": 0.25}
            )
            reducer.ready(0)
            reducer.finish().wait()
            self.assertEqual(list(gradient), [6, 0, 0, 0])
            found = reducer.statistics()
            self.assertEqual((found["algorithm"], found["calls_applied"], found["k"]), ("topka", 1, 1))
            self.assertGreater(found["bytes_sent"], 0)
            saved = reducer.export_state()
            reducer.set_density(0.5)
            reducer.import_state(saved)
            gradient[:] = floats(0, 1, 0, float("nan") if comm.rank else 0)
            reducer.ready(0)
            with self.assertRaisesRegex(ArgumentError, "NON_FINITE"):
                reducer.finish().wait()
            self.assertEqual(word(reducer.outcome), 0)
            gradient[:] = floats(0, 1, 0, 0)
            reducer.ready(0)
            reducer.finish().wait()
            self.assertEqual(word(reducer.outcome), 1)
            self.assertFalse(hasattr(reducer.outcome, "__cuda_array_interface__"))
            self.assertEqual(list(gradient), [0, 4, 0, 0])

        run(2, rank)

    def test_a_step_that_is_dropped_in_the_middle_ends_the_communicator(self) -> None:
        both_are_here = threading.Barrier(2)

        def rank(comm: Communicator) -> None:
            gradient = floats(1)
            reducer = Reducer(comm, [gradient])
            both_are_here.wait(timeout=20)
            if comm.rank == 0:
                reducer.ready(0)
                del reducer
                gc.collect()
            else:
                with self.assertRaisesRegex(StateError, "dropped in the middle of a step"):
                    reducer.ready(0)
                    reducer.finish().wait()
                self.assertEqual(gradient[0], 1)

        run(2, rank)
