"""Statuses of C as exceptions: a class for each family."""

from enum import IntEnum


class Status(IntEnum):
    """The numbers of the header. A newer library may raise others."""

    INVALID_ARGUMENT = 1
    INVALID_BUFFER = 2
    INVALID_STREAM = 3
    INVALID_USAGE = 4
    UNSUPPORTED = 5
    UNKNOWN_NAME = 6
    MISMATCH = 7
    NON_FINITE = 8
    ABORTED = 10
    CLOSED = 11
    TIMEOUT = 12
    OUT_OF_MEMORY = 20
    NO_DEVICE = 21
    CUDA = 30
    NCCL = 31
    SYSTEM = 32
    INTERNAL = 90


class Error(RuntimeError):
    """What the library refuses, or what has failed.

    ``status`` is its number, one of `Status`; ``detail`` names the argument, operation, rank and
    device, what was expected, what was found, and what to do.
    """

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(status, detail)
        self.status = status
        self.detail = detail

    def __str__(self) -> str:
        from ._native import describe_status

        return f"{describe_status(self.status)[0]}: {self.detail}"


Error.__module__ = "tributary"


class ArgumentError(Error, ValueError):
    """A mistake of the caller's (1-9). Nothing was queued, and nothing has changed."""

    __module__ = "tributary"


class StateError(Error):
    """The communicator was aborted, is closed, or has missed a deadline (10-19)."""

    __module__ = "tributary"


class DeadlineError(StateError, TimeoutError):
    """A deadline has passed: TRIB_ERR_TIMEOUT."""

    __module__ = "tributary"


class ResourceError(Error):
    """There is no memory, or no such device (20-29)."""

    __module__ = "tributary"


class BackendError(Error):
    """A call of CUDA, NCCL or the operating system has failed (30-39)."""

    __module__ = "tributary"


class InternalError(Error):
    """A defect of the library; please report it (90-99)."""

    __module__ = "tributary"


_FAMILIES = {0: ArgumentError, 1: StateError, 2: ResourceError, 3: BackendError, 9: InternalError}


def make(status: int, detail: str) -> Error:
    """The exception of a status, for the native module."""
    if status == Status.TIMEOUT:
        return DeadlineError(status, detail)
    return _FAMILIES.get(status // 10, Error)(status, detail)
