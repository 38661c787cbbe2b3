"""Memory of all ranks, which each of them reaches."""

import array
import ctypes
import importlib.util
import unittest
from typing import Any

import tributary
from tributary import ArgumentError, StateError, Status, Symmetric

from .ranks import floats, run


def view_of(memory: Any) -> memoryview:
    """Types know of its buffer since Python 3.12."""
    return memoryview(memory)


def content(memory: Symmetric) -> list[float]:
    with view_of(memory) as view:
        return list(view)


class Use(unittest.TestCase):
    def test_a_tensor_of_calls(self) -> None:
        def rank(comm: tributary.Communicator) -> tuple[list[float], list[float], list[float]]:
            memory = Symmetric.of(comm, floats(comm.rank, 4))
            comm.allreduce(memory, "max", variant="symmetric").wait()
            out, found = Symmetric(comm, 2), [content(memory)]
            comm.allreduce(memory, out=out, variant="symmetric").wait()
            found.append(content(out))
            plain = floats(0, 0)
            comm.broadcast(memory, 1, out=plain, variant="symmetric").wait()
            memory.free()
            out.free()
            return found[0], found[1], list(plain)

        for found in run(3, rank):
            self.assertEqual(found, ([2, 4], [6, 12], [2, 4]))

    def test_blocks_of_all_ranks(self) -> None:
        def rank(comm: tributary.Communicator) -> tuple[list[float], list[float], list[float]]:
            memory = Symmetric.of(comm, floats(comm.rank, 4))
            all_of, one, mine = floats(0, 0, 0, 0), floats(0), floats(0, 0)
            comm.allgather(memory, all_of, variant="symmetric").wait()
            comm.reduce_scatter(memory, one, variant="symmetric").wait()
            comm.alltoall(memory, mine, variant="symmetric").wait()
            memory.free()
            return list(all_of), list(one), list(mine)

        first, second = run(2, rank)
        self.assertEqual(first, ([0, 4, 1, 4], [1], [0, 1]))
        self.assertEqual(second, ([0, 4, 1, 4], [8], [4, 4]))

    def test_the_variant_asks_for_it(self) -> None:
        def rank(comm: tributary.Communicator) -> None:
            with self.assertRaises(ArgumentError) as caught:
                comm.allreduce(floats(1), variant="symmetric")
            self.assertEqual(caught.exception.status, Status.INVALID_BUFFER)
            with self.assertRaises(ArgumentError) as caught:
                comm.allgather(floats(1), floats(0, 0), variant="symmetric")
            self.assertEqual(caught.exception.status, Status.INVALID_BUFFER)
            comm.status()

        run(2, rank)

    def test_peers_reach_it(self) -> None:
        def rank(comm: tributary.Communicator) -> list[float]:
            memory = Symmetric(comm, 3, "u8")
            self.assertEqual((memory.count, memory.dtype, memory.nbytes), (3, "u8", 3))
            self.assertEqual((memory.address % 256, memory.peer(comm.rank)), (0, memory.address))
            ctypes.memset(memory.peer((comm.rank + 1) % 3), comm.rank + 10, 3)
            comm.barrier().wait()
            with self.assertRaisesRegex(ArgumentError, "`rank` is 3"):
                memory.peer(3)
            found = content(memory)
            memory.free()
            return found

        self.assertEqual(run(3, rank), [[12] * 3, [10] * 3, [11] * 3])

    def test_every_type(self) -> None:
        def rank(comm: tributary.Communicator) -> None:
            for code in "fdbBiIqQ":
                memory = Symmetric.of(comm, array.array(code, [1, 2]))
                with view_of(memory) as view:
                    self.assertEqual((view.format, view.shape, view.readonly), (code, (2,), False))
                    self.assertEqual(view.strides, (array.array(code).itemsize,))
                    self.assertEqual(view.tolist(), [1, 2])
                memory.free()
            brain = Symmetric(comm, 4, "bf16")
            self.assertEqual(brain.nbytes, 8)
            with self.assertRaisesRegex(BufferError, "bf16"):
                view_of(brain)
            ctypes.memset(brain.address, 0, brain.nbytes)
            comm.allreduce(brain, variant="symmetric").wait()  # of which no protocol is asked

        run(2, rank)

    @unittest.skipIf(importlib.util.find_spec("numpy") is None, "numpy is not installed")
    def test_an_array_of_numpy(self) -> None:
        import numpy

        def rank(comm: tributary.Communicator) -> list[float]:
            memory = Symmetric(comm, 4)
            view = numpy.asarray(memory)
            view[:] = comm.rank + 1
            comm.allreduce(view[:2], variant="symmetric").wait()  # its memory is the same
            found: list[float] = view.tolist()
            return found

        self.assertEqual(run(2, rank), [[3, 3, 1, 1], [3, 3, 2, 2]])

    def test_only_gpus_have_the_interface(self) -> None:
        memory = run(1, lambda comm: Symmetric(comm, 4))[0]
        self.assertFalse(hasattr(memory, "__cuda_array_interface__"))
        self.assertEqual(
            repr(memory), "<tributary.Symmetric of 4 f32, rank 0 of 1 on host device 0>"
        )


class Life(unittest.TestCase):
    def test_ranks_that_differ(self) -> None:
        def rank(comm: tributary.Communicator) -> list[int]:
            found = []
            for counts in ([1, 2], [1, 0]):
                with self.assertRaises(ArgumentError) as caught:
                    Symmetric(comm, counts[comm.rank])
                found.append(caught.exception.status)
            comm.status()
            return found

        mismatch, invalid = Status.MISMATCH, Status.INVALID_ARGUMENT
        self.assertEqual(run(2, rank), [[mismatch, mismatch], [mismatch, invalid]])

    def test_what_is_in_use_is_not_freed(self) -> None:
        def rank(comm: tributary.Communicator) -> None:
            memory = Symmetric.of(comm, floats(1, 2))
            view = view_of(memory)
            with self.assertRaisesRegex(ArgumentError, "1 buffers or works use it"):
                memory.free()
            view.release()
            work = comm.allreduce(memory)
            with self.assertRaisesRegex(ArgumentError, "wait for the works"):
                memory.free()
            work.wait()
            memory.free()
            uses: list[Any] = [memory.free, lambda: view_of(memory), lambda: memory.peer(0)]
            for use in [*uses, lambda: comm.allreduce(memory)]:
                with self.assertRaisesRegex(ArgumentError, "was freed"):
                    use()
            comm.status()

        run(2, rank)

    def test_other_ranks_free_the_same(self) -> None:
        def rank(comm: tributary.Communicator) -> None:
            both = [Symmetric(comm, 2), Symmetric(comm, 2)]
            with self.assertRaises(ArgumentError) as caught:
                both[comm.rank].free()
            self.assertEqual(caught.exception.status, Status.MISMATCH)
            for memory in both:
                memory.free()

        run(2, rank)

    def test_it_is_freed_behind_calls_whose_works_are_gone(self) -> None:
        def rank(comm: tributary.Communicator) -> None:
            memory = Symmetric.of(comm, floats(7))
            comm.allreduce(memory)
            comm.wait()
            memory.free()

        run(2, rank)

    def test_it_outlives_a_close(self) -> None:
        def rank(comm: tributary.Communicator) -> Symmetric:
            memory = Symmetric.of(comm, floats(comm.rank, 7))
            comm.close()
            self.assertNotEqual(memory.peer(1 - comm.rank), memory.address)
            with self.assertRaises(StateError):
                memory.free()
            return memory

        self.assertEqual([content(memory) for memory in run(2, rank)], [[0, 7], [1, 7]])

    def test_and_an_abort(self) -> None:
        def rank(comm: tributary.Communicator) -> Symmetric:
            memory = Symmetric.of(comm, floats(7))
            comm.abort("on purpose")
            with self.assertRaisesRegex(StateError, "on purpose"):
                comm.allreduce(memory)
            return memory

        self.assertEqual(content(run(1, rank)[0]), [7])

    def test_not_in_a_batch(self) -> None:
        def rank(comm: tributary.Communicator) -> None:
            with self.assertRaisesRegex(ArgumentError, "batch"), comm.batch():
                Symmetric(comm, 2)

        run(1, rank)
