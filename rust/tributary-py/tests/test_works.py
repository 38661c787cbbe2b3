"""What a work promises: its order, its outcome, its memory."""

import gc
import os
import signal
import subprocess
import sys
import threading
import time
import unittest
import warnings
import weakref
from collections.abc import Callable
from unittest import mock

import tributary
from tributary import ArgumentError, Communicator, SparseAllReduce, Status, Stream, Work

from .ranks import floats, run


class Buffer(bytearray):
    """One that a weak reference can see."""


def alone() -> Communicator:
    return tributary.Group(1, backend="host").split()[0]


class Blocked:
    """A stream of host device 0 that waits for a rank until `go`."""

    def __init__(self) -> None:
        self.stream = Stream(0, backend="host")
        self.first, self.second = tributary.Group(2, backend="host").split()
        self.first.barrier(stream=self.stream)

    def go(self) -> None:
        self.second.barrier().wait(timeout=20)


class Order(unittest.TestCase):
    def ordered(self, work: Work, blocked: Blocked) -> None:
        """`work` is behind what blocks the stream, and so is what waits for it."""
        other = Stream(0, backend="host")
        work.wait_on(other)
        event = other.record()
        self.assertFalse(event.wait(timeout=0.1))
        blocked.go()
        self.assertTrue(event.wait(timeout=20))

    def test_of_a_group(self) -> None:
        blocked, group = Blocked(), tributary.Group(2, backend="host")
        streams = [blocked.stream, Stream(1, backend="host")]
        works = group.allreduce([floats(1), floats(2)], streams=streams)
        self.ordered(works[0], blocked)
        works[1].wait(timeout=20)

    def test_of_a_communicator_that_is_gone(self) -> None:
        blocked = Blocked()
        work = blocked.first.allreduce(floats(1), stream=blocked.stream)
        second = blocked.second
        blocked.go()
        done = second.allreduce(floats(1))
        done.wait(timeout=20)
        # Behind both there is now nothing that could fail, and a second block.
        again = Blocked()
        comm = alone()
        again.stream, stream = Stream(0, backend="host"), again.stream
        work = comm.allreduce(floats(1), stream=stream)
        ended = threading.Thread(target=again.go)
        self.addCleanup(ended.join)
        other = Stream(0, backend="host")
        del comm  # waits some seconds for the work, and gives up
        work.wait_on(other)
        event = other.record()
        self.assertFalse(event.wait(timeout=0.1))
        ended.start()
        self.assertTrue(event.wait(timeout=20))


class Outcomes(unittest.TestCase):
    def refused(self, work: Work, text: str, status: Status) -> None:
        for _ in range(2):
            with self.assertRaisesRegex(ArgumentError, text) as caught:
                work.wait(timeout=20)
            self.assertEqual(caught.exception.status, status)

    def test_a_failure_is_not_lost_with_the_object_that_was_called(self) -> None:
        def sparse(comm: Communicator) -> Work:
            state = SparseAllReduce(comm, 2, algorithm="topka", k=1)
            return state.allreduce(floats(1, float("inf")), floats(0, 0))

        def weighted(comm: Communicator) -> Work:
            return comm.weighted_average([floats(1)], -1.0)

        def reducer(comm: Communicator) -> Work:
            made = tributary.Reducer(comm, [floats(float("nan"))], sparse={"algorithm": "topka"})
            made.ready(0)
            return made.finish()

        for call in (sparse, weighted, reducer):
            with self.subTest(call.__name__):
                work = call(alone())
                gc.collect()
                self.refused(work, "NON_FINITE", Status.NON_FINITE)

    def test_later_calls_change_nothing_of_it(self) -> None:
        sparse, result = SparseAllReduce(alone(), 2, algorithm="topka", k=1), floats(0, 0)
        good = sparse.allreduce(floats(1, 2), result)
        good.wait()
        bad = sparse.allreduce(floats(1, float("inf")), result)
        self.refused(bad, "NON_FINITE", Status.NON_FINITE)
        good.wait()
        sparse.allreduce(floats(1, 2), result).wait()
        self.refused(bad, "NON_FINITE", Status.NON_FINITE)

    def test_of_one_of_several_calls_that_have_all_run(self) -> None:
        """Each tells its own, and not that of the calls before and behind it."""
        comm, nan = alone(), float("nan")
        sparse, gradient = SparseAllReduce(comm, 1, algorithm="topka", k=1), floats(1)
        reducer = tributary.Reducer(comm, [gradient], sparse={"algorithm": "topka"})

        def step(value: float) -> Work:
            comm.wait(timeout=20)  # the step before uses the gradient until here
            gradient[0] = value
            reducer.ready(0)
            return reducer.finish()

        calls: dict[str, Callable[[float], Work]] = {
            "sparse": lambda value: sparse.allreduce(floats(value), floats(0)),
            "reducer": step,
            "weighted": lambda value: comm.weighted_average([floats(1)], value),
        }
        for name, call in calls.items():
            with self.subTest(name):
                values = (1.0, nan, 2.0, nan, nan, 3.0)
                works = [call(value) for value in values]
                comm.wait(timeout=20)
                for value, work in zip(values, works, strict=True):
                    if value == value:
                        work.wait(timeout=20)
                    else:
                        self.refused(work, "NON_FINITE", Status.NON_FINITE)
                if name != "weighted":  # which says so: it cannot tell
                    call(nan)
                    call(4.0).wait(timeout=20)

    def test_of_a_batch_that_an_exception_has_left(self) -> None:
        comm = alone()
        with self.assertRaises(ZeroDivisionError):
            with comm.batch() as work:
                comm.allreduce(floats(1))
                raise ZeroDivisionError
        self.refused(work, "an exception left it, so nothing of it", Status.INVALID_USAGE)


class Memory(unittest.TestCase):
    def queued(self, comm: Communicator, stream: Stream) -> "weakref.ref[Buffer]":
        data = Buffer(4)
        comm.allreduce(data, stream=stream)
        return weakref.ref(data)

    def test_a_stream_that_waits_keeps_nothing_of_others(self) -> None:
        blocked, comm = Blocked(), alone()
        stuck = self.queued(blocked.first, blocked.stream)
        stream = Stream(0, backend="host")
        seen = self.queued(comm, stream)
        self.assertTrue(stream.wait(timeout=20))
        comm.allreduce(bytearray(1)).wait(timeout=20)
        self.assertIsNone(seen())
        self.assertIsNotNone(stuck())
        blocked.go()
        blocked.second.allreduce(bytearray(4)).wait(timeout=20)

    def test_the_last_call_of_a_training_keeps_nothing_after_a_wait(self) -> None:
        first, second = tributary.Group(2, backend="host").split()
        waits: dict[str, Callable[[], None]] = {
            "quiesce": lambda: tributary.quiesce(timeout=20),
            "Communicator.wait": lambda: first.wait(timeout=20),
            "close": lambda: first.close(timeout=20),
        }
        for name, wait in waits.items():
            with self.subTest(name):
                stream = Stream(0, backend="host")
                seen = self.queued(first, stream)
                self.assertIsNotNone(seen())
                other = second.allreduce(bytearray(4))
                self.assertTrue(stream.wait(timeout=20))
                wait()
                self.assertIsNone(seen())
                del other


class Forks(unittest.TestCase):
    def test_a_child_may_drop_what_its_parents_thread_was_using(self) -> None:
        """As a worker of a data loader may, that was forked in the middle of a step."""
        blocked = Blocked()
        states = [SparseAllReduce(alone(), 2)]
        comm = alone()
        states.append(SparseAllReduce(comm, 2))
        comm_wait = threading.Thread(target=comm.wait, args=(blocked.stream, 20))
        comm_wait.start()
        time.sleep(0.23)  # in the middle of one of its slices, of 50 ms
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python 3.12 warns of threads, which is right
            child = os.fork()
        if child == 0:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(10)
            states.clear()
            gc.collect()
            os._exit(7)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 7)
        blocked.go()
        comm_wait.join(timeout=20)


class Interrupts(unittest.TestCase):
    def test_the_wait_of_a_group(self) -> None:
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        self.addCleanup(signal.signal, signal.SIGINT, before)
        blocked, group = Blocked(), tributary.Group(1, backend="host")
        timer = threading.Timer(0.1, os.kill, [os.getpid(), signal.SIGINT])
        timer.start()
        start = time.monotonic()
        self.assertRaises(KeyboardInterrupt, group.wait, [blocked.stream], 20)
        self.assertLess(time.monotonic() - start, 10)
        timer.join()
        with self.assertRaises(tributary.DeadlineError):
            group.wait([blocked.stream], timeout=0.12)
        blocked.go()
        group.wait([blocked.stream], timeout=20)

    def test_a_long_end_of_the_interpreter_while_threads_wait(self) -> None:
        code = """
import array, threading, time, tributary
class Slow:
    def __del__(self, sleep=time.sleep):
        sleep(0.3)
first, second = tributary.Group(2, backend="host").split()
work = first.allreduce(array.array("f", [1]))
threading.Thread(target=work.wait, daemon=True).start()
threading.Thread(target=first.wait, daemon=True).start()
slow = Slow()
raise SystemExit(5)
"""
        ended = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60)
        self.assertEqual((ended.returncode, ended.stderr), (5, b""))


class Seen:
    """What rank 0 hears of rank 1, which leaves with an exception."""

    def __init__(self, error: Exception | None) -> None:
        self.error, self.words = error, "nothing"

    def rank(self, comm: Communicator) -> None:
        if comm.rank == 1 and self.error is not None:
            raise self.error
        try:
            comm.allreduce(floats(1)).wait(timeout=20)
        except tributary.StateError as error:
            self.words = error.detail


class Runs(unittest.TestCase):
    def test_an_exception_without_words_ends_the_others_too(self) -> None:
        class Mute(Exception):
            def __str__(self) -> str:
                raise ValueError("no words")

        seen = Seen(Mute())
        self.assertRaises(Mute, run, 2, seen.rank)
        self.assertRegex(seen.words, "rank 1 left with Mute")

    def test_a_thread_that_cannot_start_ends_those_that_have(self) -> None:
        started = threading.Thread.start
        counted: list[int] = []

        def start(thread: threading.Thread) -> None:
            counted.append(1)
            if len(counted) == 2:
                raise RuntimeError("can't start new thread")
            started(thread)

        seen = Seen(None)
        with mock.patch.object(threading.Thread, "start", start):
            with self.assertRaisesRegex(RuntimeError, "can't start new thread"):
                run(2, seen.rank)
        self.assertRegex(seen.words, "waits for the ranks left with RuntimeError: can't start")

    def test_a_caught_exception_keeps_no_communicator(self) -> None:
        class Leaves(Exception):
            pass

        def rank(comm: Communicator) -> None:
            raise Leaves

        gc.disable()
        self.addCleanup(gc.enable)
        handle = []

        def kept(comm: Communicator) -> None:
            handle.append(comm.abort_handle())
            rank(comm)

        try:
            run(1, kept)
        except Leaves:
            pass
        self.assertNotEqual(handle[0].state()[0], "live")
        tributary.quiesce(timeout=20)
        self.assertEqual(handle[0].state()[0], "reclaimed")
