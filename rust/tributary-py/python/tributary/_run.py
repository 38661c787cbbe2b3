"""A thread for each rank."""

import threading
from collections.abc import Callable
from typing import TypeVar

from ._native import Communicator

T = TypeVar("T")


def run(ranks: list[Communicator], function: Callable[[Communicator], T]) -> list[T]:
    """Call ``function(comm)`` for each of ``ranks`` at once, and return the results by rank.

    The first exception aborts the others, and is raised here. Empties ``ranks``, so that a rank
    that has returned leaves its communicator, unless the function keeps it.
    """
    results: dict[int, T] = {}
    failures: list[BaseException] = []
    handles = [comm.abort_handle() for comm in ranks]
    size = len(ranks)

    def one(comm: Communicator) -> None:
        rank = comm.rank
        try:
            results[rank] = function(comm)
        except BaseException as error:
            failures.append(error)
            comm.abort(f"rank {rank} left with {_describe(error)}")
            error.add_note(f"on rank {rank} of {size}")

    threads = [
        threading.Thread(target=one, args=(comm,), name=f"rank {comm.rank}") for comm in ranks
    ]
    ranks.clear()
    started: list[threading.Thread] = []
    try:
        for thread in threads:
            thread.start()
            started.append(thread)
        for thread in started:
            thread.join()
    except BaseException as error:  # KeyboardInterrupt, or no memory for a thread
        for handle in handles:
            handle.abort(f"the thread that waits for the ranks left with {_describe(error)}")
        for thread in started:
            thread.join()
        raise
    try:
        if failures:
            raise failures[0]
    finally:
        failures.clear()  # else the exception would be kept by its own traceback, and keep the ranks
    return [results[rank] for rank in range(size)]


def _describe(error: BaseException) -> str:
    """Its words, also of one that has none: the other ranks must hear of it."""
    try:
        words = str(error)
    except Exception:
        return type(error).__name__
    return f"{type(error).__name__}: {words}"
