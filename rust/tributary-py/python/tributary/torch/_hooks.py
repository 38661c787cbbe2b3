"""Communication hooks of DistributedDataParallel: dense averages.

The id of a hook's communicator goes by a broadcast of DDP's own process group, and not by a store. The
group has just the ranks, which may be some of all; the broadcast needs no name, for it has its place in
the order of the group's calls, and it has the group's timeout. In a store every hook would take a key
that none has had; `communicator_from_store` leaves that to whoever has a store and no group.
"""

import math
import weakref
from typing import Any

import torch

from .._errors import Error
from .._native import Communicator, Work
from ._meeting import communicator


class Hook:
    """What DDP calls for each bucket of gradients, from `dense`, `weighted` or `sparse`.

    DDP keeps it as long as the model. It ends with DDP's process group, unless it was given its
    communicator: not before the model is deleted, even if the group was destroyed. If it fails on one
    rank, the communicator is aborted, so that the backward pass of every other rank raises, too, and
    none waits.
    """

    def __init__(self, model: Any, comm: Communicator | None) -> None:
        #: The gradients of DDP's buckets lie there.
        self.device = next(p.device for p in model.parameters() if p.requires_grad)
        self.comm = comm or communicator(model.process_group, device=self.device)
        self._futures: list[tuple[Any, Any]] = []
        self._on_gpu = self.device.type == "cuda"
        self._prepare(model)
        if comm is None:
            end = weakref.finalize(model.process_group, _end, weakref.ref(self))
            end.atexit = False  # the library closes what is open at an exit
        # Not a method: DDP looks at the names and types of its arguments.
        model.register_comm_hook(self, lambda hook, bucket: hook(bucket))

    def __call__(self, bucket: Any) -> Any:
        """Reduce one bucket. Its future has a result once the last bucket of the step is here."""
        future = torch.futures.Future(devices=[self.device] if self._on_gpu else None)
        try:
            if bucket.index() == 0:
                self._futures.clear()
                self._begin()
            self._futures.append((future, bucket.buffer()))
            with torch.no_grad():
                self._queue(bucket)
                if bucket.is_last():
                    self._finish()
        except BaseException as error:
            rank = self.comm.rank
            self.comm.abort(f"the hook of DDP on rank {rank} failed: {type(error).__name__}: {error}")
            raise
        return future

    def _set_results(self) -> None:
        for future, buffer in self._futures:
            future.set_result(buffer)
        self._futures.clear()

    def _prepare(self, model: Any) -> None:
        """Before the hook is registered."""

    def _begin(self) -> None:
        """Before the first bucket of a step."""

    def _queue(self, bucket: Any) -> None:
        """For each bucket."""
        raise NotImplementedError

    def _finish(self) -> None:
        """After the last bucket of a step: sets the results of all."""
        raise NotImplementedError


def _end(reference: "weakref.ref[Hook]") -> None:
    hook = reference()
    if hook is not None:
        try:
            hook.comm.close()
        except Error as error:
            hook.comm.abort(f"the process group of DDP has ended: {error}")


class Dense(Hook):
    """Averages of all ranks, from `dense`."""

    def _prepare(self, model: Any) -> None:
        #: Of the newest bucket: it is behind all others, and tells of their failures, too.
        self._work: Work | None = None
        # Beside the backward pass, which goes on meanwhile.
        self._stream = torch.cuda.Stream(self.device) if self._on_gpu else None

    def _begin(self) -> None:
        self._settle()  # on a GPU, the step before

    def _settle(self) -> None:
        work, self._work = self._work, None
        if work is not None:
            work.wait()

    def _queue(self, bucket: Any) -> None:
        if self._stream is not None:
            self._stream.wait_stream(torch.cuda.current_stream(self.device))
        self._work = self._reduce(bucket.buffer())

    def _reduce(self, buffer: Any) -> Work:
        return self.comm.allreduce(buffer, "avg", stream=self._stream)

    def _finish(self) -> None:
        if self._stream is None:
            self._settle()
            self._set_results()
        else:
            with torch.cuda.stream(self._stream):  # of which the futures take an event
                self._set_results()


class Weighted(Dense):
    """Weighted averages, from `weighted`."""

    #: This rank's weight, from the next backward pass on: a number, or one float on its device.
    weight: Any = 1.0

    def _begin(self) -> None:
        super()._begin()
        self._now = self.weight  # one for all buckets
        if isinstance(self._now, (int, float)) and not 0 <= self._now < math.inf:
            raise ValueError(
                f"tributary.torch.weighted on rank {self.comm.rank}: `weight` is {self._now}; "
                "expected a number of 0 or more"
            )

    def _reduce(self, buffer: Any) -> Work:
        return self.comm.weighted_average([buffer], self._now, stream=self._stream)


def dense(model: Any, *, comm: Communicator | None = None) -> Dense:
    """Let Tributary average the gradients of ``model``, a DistributedDataParallel.

    All ranks call it, before the first backward pass. Without ``comm`` a communicator of the ranks
    of the model's process group is made.
    """
    return Dense(model, comm)


def weighted(model: Any, weight: Any = 1.0, *, comm: Communicator | None = None) -> Weighted:
    """The same with weighted averages: sum(weight * gradient) / sum(weight).

    Set ``hook.weight`` before each backward pass, to the number of samples in the batch, for
    example. A rank with weight 0 contributes nothing, and receives.
    """
    hook = Weighted(model, comm)
    hook.weight = weight
    return hook
