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
            error.add_note(f"on rank {rank} of {size}")
            failures.append(error)
            comm.abort(f"rank {rank} left with {type(error).__name__}: {error}")

    threads = [
        threading.Thread(target=one, args=(comm,), name=f"rank {comm.rank}") for comm in ranks
    ]
    ranks.clear()
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            thread.join()
    except BaseException as error:  # KeyboardInterrupt
        for handle in handles:
            handle.abort(f"the thread that waits for the ranks left with {type(error).__name__}")
        for thread in threads:
            thread.join()
        raise
    if failures:
        raise failures[0]
    return [results[rank] for rank in range(size)]
