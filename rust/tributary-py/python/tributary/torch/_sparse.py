"""A communication hook of DistributedDataParallel: sparse allreduces with error feedback."""

import ctypes
import math
from typing import Any, Unpack

import torch

from .._errors import ArgumentError, Status
from .._native import Communicator, Reducer, Work
from .._types import SparseOptions
from ._hooks import Hook

_VERSION = 1

#: Of `statistics`: what grows from step to step.
_SUMS = (
    "calls",
    "calls_applied",
    "calls_non_finite",
    "total_selected",
    "total_applied",
    "words_sent",
    "words_received",
    "bytes_sent",
    "bytes_received",
    "fallbacks",
)


class Sparse(Hook):
    """Sparse averages, from `sparse`.

    A `tributary.Reducer` reduces them, of which each parameter has a place: at first in memory of the
    hook's own, to which gradients are copied and from which averages are copied back. Once DDP has
    filled its buckets alike in two steps, the places are in its buckets, which are reduced where they
    are. If DDP takes other memory later, it is copied again. A model with a parameter of f16 or bf16,
    whose residuals are in f32, keeps to memory of the hook's own. So residuals belong to parameters, whatever the buckets
    are; and a step is applied with all its buckets, or not at all. The move is made as a checkpoint
    is: thresholds and schedules of an algorithm begin anew.

    A step is not applied if a gradient of some rank is not finite. Then no residual has changed, and
    on all ranks all gradients are 0; or NaN if the hook knows a GradScaler, which skips the step.
    """

    def __init__(
        self,
        model: Any,
        comm: Communicator | None,
        options: SparseOptions,
        scaler: Any,
        bucket_bytes: int | None,
    ) -> None:
        self._options, self._scaler, self._bucket_bytes = options, scaler, bucket_bytes
        self._scale = 1.0
        #: Of the step: the flat buffer of a bucket, its parameters, and what is copied back to it.
        self._buckets: list[tuple[Any, list[int], Any]] = []
        #: The parameters of each bucket, of the step before; and of those in which the places are.
        self._last: list[list[int]] = []
        self._placed: list[list[int]] = []
        self._density: float | None = None
        #: Of the reducers before this one.
        self._before: dict[str, Any] = dict.fromkeys(_SUMS, 0)
        #: Of the newest step, until somebody has asked whether it was applied.
        self._work: Work | None = None
        self._applied = True
        super().__init__(model, comm)

    def _prepare(self, model: Any) -> None:
        ignored = getattr(model, "parameters_to_ignore", ())
        named = [
            (name, parameter)
            for name, parameter in model.module.named_parameters()
            if parameter.requires_grad and name not in ignored
        ]
        self.names = [name for name, _ in named]
        # The parameters are kept, for the numbers of objects that are gone are used again.
        self._parameters = [parameter for _, parameter in named]
        self._index = {id(parameter): i for i, parameter in enumerate(self._parameters)}
        self._own = [
            torch.zeros(parameter.numel(), dtype=_wide(parameter.dtype), device=parameter.device)
            for parameter in self._parameters
        ]
        self._make_reducer()

    def _make_reducer(self) -> None:
        """Of the places. All ranks make it."""
        if self._placed:
            order = [i for at in self._placed for i in at]
            buckets = list(map(len, self._placed))
        else:  # that of a backward pass, about
            order, buckets = list(reversed(range(len(self._own)))), None
        self._reducer = Reducer(
            self.comm,
            self._own,
            sparse=self._options,
            bucket_bytes=self._bucket_bytes,
            order=order,
            in_place=buckets,
        )
        if self._on_gpu:
            self._outcome = torch.as_tensor(self._reducer.outcome, device=self.device)

    @property
    def applied(self) -> bool:
        """Whether the newest step was applied. Waits for it, which a loop need not do."""
        self._settle()
        return self._applied

    def _settle(self) -> None:
        work, self._work = self._work, None
        if work is None:
            return
        try:
            work.wait()
            self._applied = True
        except ArgumentError as error:
            if error.status != Status.NON_FINITE:
                raise
            self._applied = False

    def _begin(self) -> None:
        self._settle()  # on a GPU, the step before
        self._buckets.clear()
        self._scale = 1.0 if self._scaler is None else float(self._scaler.get_scale())

    def _queue(self, bucket: Any) -> None:
        at = [self._index[id(parameter)] for parameter in bucket.parameters()]
        own = self._places(at)
        gradients: Any = ()
        if not self._is_placed(bucket, at):
            # Flat, as the bucket has them one behind the other: few calls of torch, not some for each.
            gradients = bucket.buffer().split([flat.numel() for flat in own])
            _copy_all(own, gradients)
        if self._scale != 1.0:
            torch._foreach_mul_(own, 1.0 / self._scale)
        stream = torch.cuda.current_stream(self.device) if self._on_gpu else None
        for i in at:
            self._reducer.ready(i, stream=stream)
        self._buckets.append((bucket.buffer(), at, gradients))

    def _finish(self) -> None:
        self._work = self._reducer.finish()
        if not self._on_gpu:
            self._settle()
        for buffer, at, gradients in self._buckets:
            if gradients:
                _copy_all(gradients, self._places(at))
            if self._scale != 1.0:
                buffer.mul_(self._scale)
        self._fill_lost()
        layout = [at for _, at, _ in self._buckets]
        if layout == self._last != self._placed and self._can_be_placed(layout):
            self._place()
        self._last = layout
        self._buckets.clear()
        self._set_results()

    def _places(self, at: list[int]) -> list[Any]:
        return [self._own[i] for i in at]

    def _is_placed(self, bucket: Any, at: list[int]) -> bool:
        """Are the places of its parameters in the bucket itself?"""
        # What the first place is in lives as long as it, so DDP has no other memory there.
        return at in self._placed and self._own[at[0]].data_ptr() == bucket.buffer().data_ptr()

    def _can_be_placed(self, layout: list[list[int]]) -> bool:
        """Has every parameter a place in a bucket, whose elements are as wide as the place's?"""
        return sum(map(len, layout)) == len(self._own) and all(
            buffer.dtype == self._own[at[0]].dtype for buffer, at, _ in self._buckets
        )

    def _place(self) -> None:
        """Give every parameter a place in DDP's buckets, from the next step on.

        All ranks do so after the same step, for DDP has the same buckets on all. A rank whose DDP
        takes other memory later copies again.
        """
        self._settle()
        if self._on_gpu:  # what is queued on this stream still uses what the reducer has
            torch.cuda.current_stream(self.device).synchronize()
        state, self._before = self._reducer.export_state(), self.statistics()
        del self._reducer  # there is room for one
        if self._on_gpu:
            del self._outcome
        for buffer, at, _ in self._buckets:
            parts = buffer.split([place.numel() for place in self._places(at)])
            for i, part in zip(at, parts):
                self._own[i] = part
        self._placed = self._last
        self._make_reducer()
        if self._density is not None:
            self._reducer.set_density(self._density)
        self._reducer.import_state(state)

    def _fill_lost(self) -> None:
        """All gradients of a step that was not applied. In place they are 0 already."""
        if self._placed and self._scaler is None:
            return
        # Known on the stream, so that the host need not wait.
        lost = self._outcome == 0 if self._on_gpu else torch.tensor([not self._applied])
        for buffer, _, _ in self._buckets:
            buffer.masked_fill_(lost, 0.0 if self._scaler is None else math.nan)

    def set_density(self, density: float) -> None:
        """From the next step on. All ranks call it, between steps."""
        self._density = density
        self._reducer.set_density(density)

    def statistics(self) -> dict[str, Any]:
        """Of the steps that have run, over all buckets: entries, and bytes that this rank sent."""
        found = self._reducer.statistics()
        sums = {name: self._before[name] + found[name] for name in _SUMS}
        if found["calls"] == 0:  # what is of the newest call is of one before the move
            found.update(self._before)
        return {**found, **sums}

    def state_dict(self) -> dict[str, Any]:
        """This rank's residuals and velocities, for a checkpoint of its own. Between steps."""
        return {
            "version": _VERSION,
            "rank": self.comm.rank,
            "size": self.comm.size,
            "names": list(self.names),
            "counts": [own.numel() for own in self._own],
            "state": torch.frombuffer(bytearray(self._reducer.export_state()), dtype=torch.uint8),
        }

    def load_state_dict(self, state: dict[str, Any], *, add: bool = False) -> None:
        """Take over a `state_dict` of a hook of the same parameters, of any number of ranks and any
        options. All ranks call it; with ``add`` this rank alone adds it to what it has, as for the
        residuals of ranks that are gone."""
        mine = dict(zip(self.names, (own.numel() for own in self._own)))
        found = dict(zip(state["names"], state["counts"]))
        if state["version"] != _VERSION or list(found.items()) != list(mine.items()):
            differ = [name for name in {**found, **mine} if found.get(name) != mine.get(name)]
            raise ValueError(
                f"load_state_dict of a sparse hook on rank {self.comm.rank}: the state is of version "
                f"{state['version']}, and differs in the parameters {differ[:5] or 'in their order'}; "
                f"expected version {_VERSION}, and parameters of the same names, counts and order"
            )
        data = state["state"].cpu().contiguous()
        self._reducer.import_state(ctypes.string_at(data.data_ptr(), data.numel()), add=add)


def _copy_all(to: Any, of: Any) -> None:
    """Each tensor to another of its shape, in as few launches as this torch can."""
    if hasattr(torch, "_foreach_copy_"):
        torch._foreach_copy_(to, of)
    else:
        for one, other in zip(to, of):
            one.copy_(other)


def _wide(dtype: Any) -> Any:
    return torch.float64 if dtype == torch.float64 else torch.float32


def sparse(
    model: Any,
    *,
    comm: Communicator | None = None,
    scaler: Any = None,
    bucket_bytes: int | None = None,
    **options: Unpack[SparseOptions],
) -> Sparse:
    """Let Tributary average the gradients of ``model``, a DistributedDataParallel, sparsely.

    Each rank sends the largest of its gradients and residuals, and keeps the rest as residuals of
    the next step. All ranks call it, before the first backward pass. Keywords are those of
    `tributary.SparseAllReduce`: ``density``, ``algorithm``, ``momentum`` and others.

    With a GradScaler pass ``scaler``: residuals are kept unscaled, so that they outlive a change of
    the scale. With ``find_unused_parameters`` DDP drops what this sends for a parameter that no rank
    has used in a step. ``bucket_bytes`` is for the first steps, and for a model with parameters of f16 or
    bf16: then buckets are not DDP's.
    """
    return Sparse(model, comm, options, scaler, bucket_bytes)
