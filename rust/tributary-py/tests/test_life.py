"""Lives, aborts, deadlines, and threads."""

import gc
import json
import math
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tributary
from tributary import ArgumentError, Communicator, DeadlineError, Error, StateError, Status

from .ranks import floats, run


class Life(unittest.TestCase):
    def test_ids(self) -> None:
        unique = tributary.UniqueId.create(backend="host")
        self.assertEqual(pickle.loads(pickle.dumps(unique)), unique)
        self.assertEqual(len(bytes(unique)), 128)
        self.assertNotIn(bytes(unique).hex(), repr(unique))
        with self.assertRaisesRegex(ArgumentError, "3 bytes; expected 128"):
            tributary.UniqueId(b"abc")
        found = []

        def rank(i: int) -> None:
            with tributary.Communicator(unique, i, 2, name="pair", timeout=20) as comm:
                data = floats(i + 1)
                comm.allreduce(data).wait()
                found.append((comm.rank, comm.size, comm.device, comm.backend, comm.name, data[0]))

        threads = [threading.Thread(target=rank, args=(i,)) for i in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(sorted(found), [(i, 2, i, "host", "pair", 3) for i in range(2)])

    def test_options(self) -> None:
        for wrong, text in [
            ({"colour": 1}, "there is no keyword `colour`"),
            ({"timeout": "x"}, "Group: `timeout` is 'x': TypeError: must be real number"),
            ({"max_ctas": -1}, "Group: `max_ctas` is -1: OverflowError"),
            ({"max_ctas": 1 << 40}, "Group: `max_ctas` is 1099511627776: OverflowError"),
        ]:
            with self.assertRaisesRegex(TypeError, text):
                tributary.Group(1, **wrong)  # type: ignore[arg-type]
        with self.assertRaisesRegex(ArgumentError, "`timeout` is -1 seconds"):
            tributary.Group(1, timeout=-1)
        for size in (0, -1, 1 << 31, 1 << 80):
            with self.assertRaisesRegex(ArgumentError, f"Group: {size} ranks; expected 1 or more"):
                tributary.Group(size)
        with self.assertRaisesRegex(ArgumentError, "UNKNOWN_NAME.*mpi"):
            tributary.Group(1, backend="mpi")
        with self.assertRaisesRegex(ArgumentError, '`cta_policy` is "none"'):
            tributary.Group(1, cta_policy="none")  # type: ignore[arg-type]
        with self.assertRaisesRegex(ArgumentError, '`windows` is "open"'):
            tributary.Group(1, windows="open")  # type: ignore[arg-type]
        for windows in ("abortable", "unabortable", None):
            tributary.Group(1, backend="host", windows=windows)
        with self.assertRaisesRegex(ArgumentError, "0 ranks"):
            tributary.Group(0)
        tributary.Group(1, backend="host", call_timeout=math.inf, close_timeout=0)

    def test_split_and_shrink(self) -> None:
        all_are_here = threading.Barrier(4)

        def rank(comm: Communicator) -> list[float]:
            half = comm.split(comm.rank % 2, key=-comm.rank)
            assert half is not None
            data = floats(comm.rank)
            half.allreduce(data).wait()
            self.assertIsNone(comm.split(None))
            all_are_here.wait(timeout=20)  # the first that shrinks ends `comm`
            found = [half.rank, half.size, data[0]]
            if comm.rank == 3:
                return found
            rest = comm.shrink([3], timeout=20)
            rest.allreduce(data).wait()
            return [*found, rest.size, data[0]]

        self.assertEqual(
            run(4, rank), [[1, 2, 2, 3, 8], [1, 2, 4, 3, 8], [0, 2, 2, 3, 8], [0, 2, 4]]
        )

    def test_closing(self) -> None:
        def rank(comm: Communicator) -> None:
            comm.close()
            with self.assertRaisesRegex(StateError, "TRIB_ERR_CLOSED") as caught:
                comm.allreduce(floats(1))
            self.assertEqual(caught.exception.status, Status.CLOSED)

        run(2, rank)

    def test_what_is_closed_may_be_closed_again(self) -> None:
        with tributary.Group(1, backend="host").split()[0] as comm:
            comm.close()
            comm.close()
        self.assertRaisesRegex(StateError, "CLOSED", comm.allreduce, floats(1))

    def test_a_negative_color_is_no_color(self) -> None:
        comm = tributary.Group(1, backend="host").split()[0]
        for color in (-1, -2):
            with self.assertRaisesRegex(ArgumentError, f"`color` is {color}; expected 0 or more"):
                comm.split(color)
        self.assertIsNone(comm.split(None))

    def test_a_work_outlives_its_communicator(self) -> None:
        comm = tributary.Group(1, backend="host").split()[0]
        data = floats(1)
        work = comm.allreduce(data)
        del comm
        work.wait(timeout=10)

    def test_background_work_ends(self) -> None:
        tributary.Group(2, backend="host").abort_handle().abort()
        gc.collect()
        tributary.quiesce(timeout=20)

    def test_dump(self) -> None:
        comm = tributary.Group(1, backend="host", name="dumped").split()[0]
        comm.allreduce(floats(1)).wait()
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "dump.json"
            tributary.dump(path)
            found = json.loads(path.read_text())
            self.assertIn("dumped", path.read_text())
            self.assertEqual(found["reason"], "request")
            with self.assertRaisesRegex(tributary.BackendError, "TRIB_ERR_SYSTEM"):
                tributary.dump(folder)

    def test_nothing_is_adopted_on_host(self) -> None:
        with self.assertRaisesRegex(ArgumentError, "nccl"):
            Communicator.adopt(0, backend="host")

    def test_a_forked_child_cannot_use_what_its_parent_made(self) -> None:
        comm, other = tributary.Group(2, backend="host").split()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python 3.12 warns of threads, which is right
            child = os.fork()
        if child == 0:
            try:
                comm.allreduce(floats(1))
            except ArgumentError as error:
                os._exit(40 + error.status)
            os._exit(1)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 44)
        comm.status()
        del other

    def test_a_process_may_end_while_calls_wait(self) -> None:
        code = """
import array, threading, tributary
first, second = tributary.Group(2, backend="host").split()
work = first.allreduce(array.array("f", [1]))
threading.Thread(target=work.wait, daemon=True).start()
raise SystemExit(5)
"""
        ended = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60)
        self.assertEqual((ended.returncode, ended.stderr), (5, b""))

    def test_an_exception_on_one_rank_ends_the_others(self) -> None:
        def rank(comm: Communicator) -> None:
            if comm.rank == 1:
                raise KeyError("lost")
            with self.assertRaisesRegex(StateError, "rank 1 left with KeyError: 'lost'"):
                comm.allreduce(floats(1)).wait()

        with self.assertRaises(KeyError) as caught:
            run(2, rank)
        self.assertEqual(caught.exception.__notes__, ["on rank 1 of 2"])

    def test_a_context_that_an_exception_leaves_aborts(self) -> None:
        def rank(comm: Communicator) -> None:
            if comm.rank == 0:
                with self.assertRaises(ZeroDivisionError):
                    with comm:
                        raise ZeroDivisionError("in the middle")
            else:
                with self.assertRaisesRegex(
                    StateError, "rank 0 left with ZeroDivisionError: in the middle"
                ):
                    comm.allreduce(floats(1)).wait()

        run(2, rank)


class Aborts(unittest.TestCase):
    def test_from_another_thread(self) -> None:
        for wait_in_comm in (False, True):
            with self.subTest(wait_in_comm=wait_in_comm):
                first, second = tributary.Group(2, backend="host").split()
                handle = first.abort_handle()
                work = first.allreduce(floats(1))
                timer = threading.Timer(0.1, handle.abort, ["seen enough"])
                timer.start()
                with self.assertRaisesRegex(StateError, "ABORTED.*seen enough") as caught:
                    first.wait() if wait_in_comm else work.wait()
                self.assertEqual(caught.exception.status, Status.ABORTED)
                self.assertTrue(handle.raised())
                self.assertRaisesRegex(StateError, "seen enough", second.status)
                self.assertRaisesRegex(StateError, "seen enough", handle.status)
                del first, second, work
                self.assertIn(handle.state()[0], ("aborting", "aborted", "reclaimed"))
                timer.join()

    def test_defer(self) -> None:
        comm, other = tributary.Group(2, backend="host", call_timeout=0.2).split()
        comm.abort_handle().defer(0.6)
        start = time.monotonic()
        with self.assertRaises(DeadlineError):
            comm.allreduce(floats(1)).wait()
        self.assertGreater(time.monotonic() - start, 0.55)
        del other


class Deadlines(unittest.TestCase):
    def test_of_a_call(self) -> None:
        def rank(comm: Communicator) -> list[int]:
            if comm.rank == 1:
                time.sleep(1)
                return []
            with self.assertRaisesRegex(DeadlineError, "rank 1") as caught:
                comm.allreduce(floats(1)).wait()
            self.assertIsInstance(caught.exception, TimeoutError)
            self.assertEqual(caught.exception.status, Status.TIMEOUT)
            return comm.lost()

        self.assertEqual(run(2, rank, call_timeout=0.2), [[1], []])

    def test_of_a_wait(self) -> None:
        first, second = tributary.Group(2, backend="host").split()
        data = floats(1)
        work = first.allreduce(data)
        start = time.monotonic()
        with self.assertRaisesRegex(DeadlineError, "rank 1"):
            work.wait(timeout=0.1)
        with self.assertRaisesRegex(DeadlineError, "rank 1"):
            first.wait(timeout=0.2)
        self.assertGreater(time.monotonic() - start, 0.29)
        first.status()  # as before
        second.allreduce(floats(2)).wait(timeout=10)
        work.wait(timeout=10)
        self.assertEqual(data[0], 3)

    def test_set_call_timeout(self) -> None:
        comm, other = tributary.Group(2, backend="host").split()
        comm.set_call_timeout(0.1)
        with self.assertRaises(DeadlineError):
            comm.allreduce(floats(1)).wait(timeout=20)
        del other


class Threads(unittest.TestCase):
    def test_a_communicator_in_use_is_an_error(self) -> None:
        first, second = tributary.Group(2, backend="host").split()
        data = floats(1)
        work = first.allreduce(data)
        waiter = threading.Thread(target=first.wait)
        waiter.start()
        deadline = time.monotonic() + 10
        refused: Error | None = None
        while refused is None and time.monotonic() < deadline:
            try:
                first.counters()
            except ArgumentError as error:
                refused = error
        self.assertIsNotNone(refused)
        assert refused is not None
        self.assertEqual(refused.status, Status.INVALID_USAGE)
        self.assertRegex(
            str(refused),
            r"counters: the communicator of rank 0 \(host device 0\) is in use by another thread",
        )
        second.allreduce(floats(2)).wait(timeout=10)
        work.wait(timeout=10)  # which takes no turn
        waiter.join(timeout=10)
        self.assertFalse(waiter.is_alive())
        first.counters()
        self.assertEqual(data[0], 3)

    def test_many_threads_wait_for_one_work(self) -> None:
        first, second = tributary.Group(2, backend="host").split()
        work = first.allreduce(floats(1))
        passed: list[int] = []

        def wait() -> None:
            work.wait(timeout=20)
            passed.append(1)

        threads = [threading.Thread(target=wait) for _ in range(4)]
        for thread in threads:
            thread.start()
        second.allreduce(floats(1)).wait(timeout=10)
        for thread in threads:
            thread.join(timeout=10)
        self.assertEqual(len(passed), 4)

    def test_many_threads_queue_on_one_communicator(self) -> None:
        """Each call is made or refused, and nothing else happens."""
        comm = tributary.Group(1, backend="host").split()[0]
        made: list[int] = []
        other: list[BaseException] = []

        def queue() -> None:
            for _ in range(300):
                data = floats(1)
                try:
                    comm.allreduce(data).wait(timeout=20)
                    made.append(1)
                except ArgumentError as error:
                    if "in use by another thread" not in error.detail:
                        other.append(error)

        threads = [threading.Thread(target=queue) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(other, [])
        self.assertEqual(comm.counters()["calls"], len(made))
        self.assertGreater(len(made), 0)

    def test_a_batch_and_calls_of_other_threads(self) -> None:
        """A call of another thread is of the batch, beside it, or refused."""
        comm = tributary.Group(1, backend="host").split()[0]
        over = threading.Event()
        other: list[BaseException] = []
        made = [0, 0]

        def attempt(which: int, call: Callable[[], object]) -> None:
            while not over.is_set():
                try:
                    call()
                    made[which] += 1
                except ArgumentError as error:
                    if "in use by another thread" not in error.detail:
                        other.append(error)

        def batch() -> None:
            with comm.batch():
                comm.allreduce(floats(1))

        def call() -> None:
            comm.allreduce(floats(1))

        threads = [
            threading.Thread(target=attempt, args=(i, f)) for i, f in enumerate((batch, call))
        ]
        for thread in threads:
            thread.start()
        time.sleep(0.5)
        until = time.monotonic() + 30  # on a machine that has other work
        while min(made) == 0 and time.monotonic() < until:
            time.sleep(0.01)
        over.set()
        for thread in threads:
            thread.join()
        self.assertGreater(min(made), 0)
        self.assertEqual(other, [])

    def test_keyboard_interrupt(self) -> None:
        # A program that a shell has started in the background ignores the signal.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        self.addCleanup(signal.signal, signal.SIGINT, before)
        for name in ("work", "comm", "stream", "event"):
            with self.subTest(name):
                first, second = tributary.Group(2, backend="host").split()
                stream = tributary.Stream(0, backend="host")
                work = first.allreduce(floats(1), stream=stream)
                event = stream.record()
                waits: dict[str, Callable[[], object]] = {
                    "work": lambda: work.wait(60),
                    "comm": lambda: first.wait(stream, 60),
                    "stream": lambda: stream.wait(60),
                    "event": lambda: event.wait(60),
                }
                timer = threading.Timer(0.1, os.kill, [os.getpid(), signal.SIGINT])
                timer.start()
                start = time.monotonic()
                self.assertRaises(KeyboardInterrupt, waits[name])
                self.assertLess(time.monotonic() - start, 5)
                timer.join()
                first.status()  # nothing has ended
                first.abort()
                del second


class Errors(unittest.TestCase):
    def test_families(self) -> None:
        from tributary import _errors
        from tributary._native import describe_status

        families = {
            0: ArgumentError,
            1: StateError,
            2: tributary.ResourceError,
            3: tributary.BackendError,
        }
        for status in range(1, 100):
            name = describe_status(status)[0]
            known = status in set(Status)
            self.assertEqual(known, name != "TRIB_ERR_?", name)
            if known:
                self.assertEqual(name, f"TRIB_ERR_{Status(status).name}")
                error = _errors.make(status, "a detail")
                self.assertIsInstance(error, families.get(status // 10, tributary.InternalError))
                self.assertEqual(
                    (error.status, error.detail, str(error)),
                    (status, "a detail", f"{name}: a detail"),
                )
                self.assertEqual(pickle.loads(pickle.dumps(error)).args, error.args)
        self.assertIsInstance(_errors.make(4711, "new"), Error)

    def test_arguments(self) -> None:
        def rank(comm: Communicator) -> None:
            who = rf"on rank {comm.rank} \(host device {comm.rank}\): "
            data = floats(1, 2, 3)
            wrong: Any = "mean"
            calls: list[tuple[str, Callable[[], object]]] = [
                (
                    "allreduce " + who + '`op` is "mean"; expected "sum"',
                    lambda: comm.allreduce(data, wrong),
                ),
                (
                    "reduce_scatter " + who + "`tensor` has 3 elements; expected a multiple of 2",
                    lambda: comm.reduce_scatter(data),
                ),
                (
                    "gather " + who + "`out` is None; expected a tensor on the root",
                    lambda: comm.gather(data, root=comm.rank),
                ),
                (
                    r"allgatherv " + who + r"`counts` has 1 entries; expected 2",
                    lambda: comm.allgatherv(data, data, [3]),
                ),
                (
                    r"`counts\[1\]` is 2 at offset 2, but `out` has 3",
                    lambda: comm.allgatherv(data, data, [2, 2]),
                ),
                ("`root`", lambda: comm.broadcast(data, root=7)),
                ("`peer`", lambda: comm.send(data, 9)),
                (r"`tensors\[1\]` is a int", lambda: comm.allreduce_list([data, 1])),
                (
                    "`factor` has 3 elements of f32; expected 1 of f32",
                    lambda: comm.allreduce(data, factor=data),
                ),
            ]
            for text, call in calls:
                with self.assertRaisesRegex(ArgumentError, text):
                    call()
            comm.allreduce(data).wait()
            self.assertEqual(list(data), [2, 4, 6])

        run(2, rank)
