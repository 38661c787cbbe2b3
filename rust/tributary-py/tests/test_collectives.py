"""Every collective, on three ranks, with values that floats hold exactly."""

import array
import unittest

import tributary
from tributary import Communicator
from tributary._types import Op

from .ranks import floats, run


class Collectives(unittest.TestCase):
    def test_allreduce_in_place_and_out(self) -> None:
        def rank(comm: Communicator) -> tuple[list[float], list[float], list[float]]:
            data, out = floats(comm.rank, 10), floats(0, 0)
            comm.allreduce(data, out=out).wait()
            before = list(data)
            comm.allreduce(data, "max").wait()
            return before, list(out), list(data)

        for i, (before, out, most) in enumerate(run(3, rank)):
            self.assertEqual((before, out, most), ([i, 10], [3, 30], [2, 10]))

    def test_every_op_and_type(self) -> None:
        expected: dict[Op, int] = {"sum": 12, "prod": 48, "min": 2, "max": 6, "avg": 4}

        def rank(comm: Communicator) -> dict[tuple[Op, str], float]:
            found: dict[tuple[Op, str], float] = {}
            for op in expected:
                for kind in "bBiIqQfd":
                    data = array.array(kind, [2 * (comm.rank + 1)])
                    comm.allreduce(data, op).wait()
                    found[op, kind] = data[0]
            return found

        for found in run(3, rank):
            self.assertEqual(len(found), 40)
            for (op, kind), value in found.items():
                self.assertEqual(value, expected[op], f"{op} of {kind}")

    def test_factor(self) -> None:
        def rank(comm: Communicator) -> list[list[float]]:
            first, second, third = floats(1, 2), floats(1, 2), floats(4)
            comm.allreduce(first, factor=comm.rank + 1).wait()
            comm.allreduce(second, factor=floats(0.5)).wait()
            comm.allreduce_list([third], factor=0.25).wait()
            return [list(first), list(second), list(third)]

        for found in run(2, rank):
            self.assertEqual(found, [[3, 6], [1, 2], [2]])

    def test_variant(self) -> None:
        def rank(comm: Communicator) -> None:
            data = floats(1)
            comm.allreduce(data, variant="auto").wait()
            self.assertEqual(list(data), [2])
            with self.assertRaisesRegex(tributary.ArgumentError, "two_shot"):
                comm.allreduce(data, variant="two_shot")
            with self.assertRaisesRegex(tributary.ArgumentError, "three_shot"):
                comm.allreduce(data, variant="three_shot")  # type: ignore[arg-type]

        run(2, rank)

    def test_unstaged(self) -> None:
        def rank(comm: Communicator) -> None:
            data, one = floats(1, 1), floats(0)
            comm.allreduce(data, unstaged=True).wait()
            comm.broadcast(data, 1, unstaged=True).wait()
            comm.reduce_scatter(data, one, unstaged=True).wait()
            comm.allgather(one, data, unstaged=True).wait()
            comm.alltoall(data, unstaged=True).wait()
            self.assertEqual(list(data), [4, 4])  # nothing is staged on host

        run(2, rank)

    def test_broadcast_and_reduce(self) -> None:
        def rank(comm: Communicator) -> list[list[float]]:
            first, second = floats(comm.rank, 7), floats(comm.rank, 1)
            out = floats(0, 0)
            comm.broadcast(first, root=2).wait()
            comm.reduce(second, root=1).wait()
            comm.broadcast(second, 1, out=out).wait()
            return [list(first), list(second), list(out)]

        for i, found in enumerate(run(3, rank)):
            self.assertEqual(found, [[2, 7], [3, 3] if i == 1 else [i, 1], [3, 3]])

    def test_allgather_and_reduce_scatter(self) -> None:
        def rank(comm: Communicator) -> list[list[float]]:
            r, n = comm.rank, comm.size
            all_, same = floats(*[0] * 2 * n), floats(*[r] * 2 * n)
            comm.allgather(floats(r, 10 * r), all_).wait()
            comm.allgather(None, same).wait()
            part, whole = floats(0), floats(*range(n))
            comm.reduce_scatter(whole, part).wait()
            comm.reduce_scatter(whole).wait()
            return [list(all_), list(same), list(part), [whole[r]]]

        for i, found in enumerate(run(3, rank)):
            self.assertEqual(found, [[0, 0, 1, 10, 2, 20], [0, 0, 1, 1, 2, 2], [3 * i], [3 * i]])

    def test_alltoall_gather_scatter(self) -> None:
        def rank(comm: Communicator) -> list[list[float]]:
            r, n = comm.rank, comm.size
            data, out = floats(*[10 * r + i for i in range(n)]), floats(*[0] * n)
            comm.alltoall(data, out).wait()
            comm.alltoall(data).wait()
            root = r == 1
            gathered = floats(*[0] * n) if root else None
            comm.gather(floats(r), gathered, root=1).wait()
            mine = floats(0)
            comm.scatter(gathered, mine, root=1).wait()
            return [list(out), list(data), list(gathered or []), list(mine)]

        for i, found in enumerate(run(3, rank)):
            column = [i, 10 + i, 20 + i]
            self.assertEqual(found, [column, column, [0, 1, 2] if i == 1 else [], [i]])

    def test_send_recv_and_batch(self) -> None:
        def rank(comm: Communicator) -> list[float]:
            right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
            got = floats(0)
            with comm.batch() as work:
                inner = comm.send(floats(comm.rank), right)
                comm.recv(got, left)
                with self.assertRaisesRegex(tributary.ArgumentError, "its batch has not ended"):
                    inner.wait()
            work.wait()
            inner.wait()
            return list(got)

        self.assertEqual(run(3, rank), [[2], [0], [1]])

    def test_a_batch_that_an_exception_leaves_queues_nothing(self) -> None:
        def rank(comm: Communicator) -> list[float]:
            data = floats(1)
            with self.assertRaisesRegex(ZeroDivisionError, "enough"):
                with comm.batch() as work:
                    comm.allreduce(data)
                    raise ZeroDivisionError("enough")
            with self.assertRaisesRegex(tributary.ArgumentError, "nothing of it was queued"):
                work.wait()
            self.assertEqual(data[0], 1)
            comm.allreduce(data).wait()
            return list(data)

        self.assertEqual(run(2, rank), [[2], [2]])

    def test_v_forms(self) -> None:
        def rank(comm: Communicator) -> list[list[int]]:
            r = comm.rank
            all_ = array.array("i", [0] * 4)
            comm.allgatherv(array.array("i", [r] * (r + 1)), all_, [1, 2], [3, 0]).wait()
            got = array.array("i", [0] * 4)
            mine = array.array("i", [10 * r + i + 1 for i in range(3)])
            if r == 0:
                comm.alltoallv(mine, got, [1, 2], [1, 1], recv_offsets=[3, 0]).wait()
            else:
                comm.alltoallv(mine, got, [1, 1], [2, 1]).wait()
            return [list(all_), list(got)]

        self.assertEqual(
            run(2, rank), [[[1, 1, 0, 0], [11, 0, 0, 1]], [[1, 1, 0, 0], [2, 3, 12, 0]]]
        )

    def test_barrier_waits_for_all(self) -> None:
        arrived: list[int] = []

        def rank(comm: Communicator) -> int:
            if comm.rank == 1:
                comm.recv(floats(0), 0).wait()
            arrived.append(comm.rank)
            if comm.rank == 0:
                comm.send(floats(0), 1).wait()
            comm.barrier().wait()
            return len(arrived)

        self.assertEqual(run(2, rank), [2, 2])

    def test_lists_and_weighted_average(self) -> None:
        def rank(comm: Communicator) -> list[list[float]]:
            a, b, c = floats(comm.rank), array.array("d", [1, comm.rank]), array.array("i", [4])
            comm.allreduce_list([a, b, c]).wait()
            comm.broadcast_list([c, a], root=1).wait()
            d, total = floats(8 * comm.rank), floats(0)
            comm.weighted_average([d], [1, 3][comm.rank], total=total).wait()
            e = floats(comm.rank)
            comm.weighted_average([e], floats(0.5)).wait()
            self.assertEqual(comm.counters()["lists_committed"], 4)
            return [list(a), list(b), list(c), list(d), list(total), list(e)]

        for found in run(2, rank):
            self.assertEqual(found, [[1], [2, 1], [8], [6], [4], [0.5]])

    def test_a_weight_that_is_no_number_writes_nothing(self) -> None:
        def rank(comm: Communicator) -> list[float]:
            data = floats(comm.rank)
            work = comm.weighted_average([data], [1, float("nan")][comm.rank])
            with self.assertRaisesRegex(tributary.ArgumentError, "NON_FINITE.*look at the weights"):
                work.wait()
            self.assertEqual(data[0], comm.rank)
            comm.weighted_average([data], 1).wait()
            return list(data)

        self.assertEqual(run(2, rank), [[0.5], [0.5]])

    def test_groups(self) -> None:
        group = tributary.Group([4, 2], backend="host")
        self.assertEqual((group.size, group.devices, group.backend), (2, [4, 2], "host"))
        data, outs = [floats(1), floats(2)], [floats(0), floats(0)]
        for work in group.allreduce(data, outs=outs):
            work.wait()
        for work in group.broadcast(data, root=1):
            work.wait()
        lists = [[floats(1), floats(2)], [floats(3), floats(4)]]
        streams = [tributary.Stream(device, backend="host") for device in (4, 2)]
        group.allreduce_list(lists, "avg", streams=streams)
        group.wait(streams, timeout=10)
        self.assertEqual(
            [outs, data, lists], [[floats(3)] * 2, [floats(2)] * 2, [[floats(2), floats(3)]] * 2]
        )
        for work in group.broadcast_list(lists, root=0):
            work.wait()
        group.status()
        with self.assertRaisesRegex(tributary.ArgumentError, "`tensors` has 1 entries; expected 2"):
            group.allreduce([floats(1)])
        with self.assertRaisesRegex(
            tributary.ArgumentError, "2 elements of f32, but that of rank 0 1"
        ):
            group.allreduce([floats(1), floats(1, 2)])
        self.assertEqual(len(group.split()), 2)
        with self.assertRaisesRegex(tributary.ArgumentError, "has been split"):
            group.status()
