"""Ranks on the host backend, and tensors that say what DLPack lets them say."""

import array
import ctypes
from collections.abc import Callable
from typing import Any, TypeVar

import tributary

T = TypeVar("T")


def run(size: int, function: Callable[[tributary.Communicator], T], **options: Any) -> list[T]:
    """`function` on a thread for each rank."""
    return tributary.Group(size, backend="host", **options).run(function)


def floats(*values: float) -> "array.array[float]":
    return array.array("f", values)


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class _Plain(ctypes.Structure):
    _fields_ = [("tensor", _Tensor), ("manager", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class _Versioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    ]


# With the GIL, as the protocol has it.
_DESTRUCTOR = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)
_is_valid = ctypes.pythonapi.PyCapsule_IsValid
_is_valid.restype, _is_valid.argtypes = ctypes.c_int, [ctypes.c_void_p, ctypes.c_char_p]
_capsule = ctypes.pythonapi.PyCapsule_New
_capsule.restype, _capsule.argtypes = (
    ctypes.py_object,
    [ctypes.c_void_p, ctypes.c_char_p, _DESTRUCTOR],
)


class Exporter:
    """A tensor in host memory that is exported through DLPack, with what a test wants it to say.

    `live` counts what was exported and has not been given back: by the deleter, if the capsule was
    consumed, else by the capsule's destructor.
    """

    def __init__(
        self,
        data: "array.array[Any]",
        *,
        dtype: tuple[int, int, int] = (2, 32, 1),
        shape: list[int] | None = None,
        strides: list[int] | None = None,
        device: tuple[int, int] = (1, 0),
        offset: int = 0,
        version: int = 0,
        flags: int = 0,
    ) -> None:
        self.data, self.dtype, self.device = data, dtype, device
        self.version, self.flags = version, flags
        shape = [len(data)] if shape is None else shape
        self.shape = (ctypes.c_int64 * len(shape))(*shape)
        self.strides = None if strides is None else (ctypes.c_int64 * len(strides))(*strides)
        self.offset = offset
        self.live = 0
        self.streams: list[Any] = []
        self.asked: dict[str, Any] = {}
        self._destructor, self._deleter = _DESTRUCTOR(self._destroyed), _DESTRUCTOR(self._deleted)
        self._managed: Any = None

    def _destroyed(self, capsule: int) -> None:
        self.live -= _is_valid(capsule, b"dltensor") | _is_valid(capsule, b"dltensor_versioned")

    def _deleted(self, _: int) -> None:
        self.live -= 1

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device

    def __dlpack__(self, **options: Any) -> object:
        if self.version == 0 and {"max_version", "copy"} & options.keys():
            raise TypeError("older than version 1")
        self.asked = options
        self.streams.append(options.get("stream"))
        tensor = _Tensor(
            self.data.buffer_info()[0],
            *self.device,
            len(self.shape),
            *self.dtype,
            self.shape,
            self.strides,
            self.offset,
        )
        deleter = ctypes.cast(self._deleter, ctypes.c_void_p)
        if self.version == 0:
            self._managed, name = _Plain(tensor, None, deleter), b"dltensor"
        else:
            self._managed = _Versioned(self.version, 0, None, deleter, self.flags, tensor)
            name = b"dltensor_versioned"
        self.live += 1
        return _capsule(ctypes.addressof(self._managed), name, self._destructor)
