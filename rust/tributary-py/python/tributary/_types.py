"""Types for type checkers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypedDict, Union

if TYPE_CHECKING:
    from ._native import Stream


class _HasCudaStream(Protocol):
    """A stream of torch."""

    @property
    def cuda_stream(self) -> int: ...


class _HasPtr(Protocol):
    """A stream of CuPy."""

    @property
    def ptr(self) -> int: ...


class _HasProtocol(Protocol):
    """A stream of another library of CUDA."""

    def __cuda_stream__(self) -> tuple[int, int]: ...


#: An object with DLPack, ``__cuda_array_interface__`` or a buffer. That it is contiguous, and
#: writable where it is written, is checked when a call is made.
Tensor = Any
#: The address of a CUDA stream, too.
AnyStream = Union["Stream", _HasCudaStream, _HasPtr, _HasProtocol, int]
Scalar = Any
Op = Literal["sum", "prod", "min", "max", "avg"]
Variant = Literal["auto", "nccl", "push", "one_shot", "two_shot", "symmetric", "window"]
DType = Literal["f16", "bf16", "f32", "f64", "i8", "u8", "i32", "u32", "i64", "u64"]
#: Seconds; None is the default, math.inf none at all.
Seconds = Union[float, None]


class Options(TypedDict, total=False):
    """Of a communicator: all ranks pass the same."""

    backend: str | None
    timeout: Seconds
    close_timeout: Seconds
    call_timeout: Seconds
    match_calls: bool
    compared: bool
    timed: bool
    recorded: bool
    side_channel: bool
    min_ctas: int
    max_ctas: int
    cta_policy: Literal["default", "efficiency", "zero"] | None
    peer_bytes: int | None
    windows: Literal["abortable", "unabortable"] | None
    network: str | None
    name: str | None


class SparseOptions(TypedDict, total=False):
    """Of a sparse allreduce: all ranks pass the same."""

    algorithm: str | None
    density: float | None
    k: int | None
    average: bool
    entries: bool
    in_place: bool
    f32_result: bool
    masking: bool
    decay: float | None
    wire: Literal["bf16"] | None
    chunk: int | None
    constants: Literal["vgg", "lstm", "bert"] | None
    norm_every: int | None
    momentum: float | None
    clip_norm: float | None


class ReducerOptions(TypedDict, total=False):
    """Of a reducer: all ranks pass the same."""

    average: bool
    order: Sequence[int] | None
    learn_order: bool
    in_place: Sequence[int] | None
    weight: Tensor
    bucket_bytes: int | None
    first_bytes: int | None
    sparse: SparseOptions | None
