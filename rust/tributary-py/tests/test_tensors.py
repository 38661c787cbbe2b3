"""What is a tensor, and how long its memory lives."""

import array
import ctypes
import gc
import unittest
import weakref
from typing import Any
from unittest import mock

import tributary
from tributary import ArgumentError, Communicator, Status

from .ranks import Exporter, floats, run

try:
    import numpy
except ModuleNotFoundError:
    numpy = None  # type: ignore[assignment]


class Buffer(bytearray):
    """One that a weak reference can see."""


def alone() -> Communicator:
    return tributary.Group(1, backend="host").split()[0]


class Tensors(unittest.TestCase):
    def refuse(self, text: str, tensor: object, **options: object) -> None:
        with self.assertRaisesRegex(ArgumentError, text) as caught:
            alone().allreduce(tensor, **options)  # type: ignore[arg-type]
        self.assertEqual(caught.exception.status, Status.INVALID_BUFFER)

    def test_buffers(self) -> None:
        def rank(comm: Communicator) -> list[float]:
            data, fixed = bytearray([1, 2]), (ctypes.c_float * 2)(0.5, 1)
            comm.allreduce(data).wait()
            comm.allreduce(memoryview(fixed)).wait()
            return list(data) + list(fixed)

        self.assertEqual(run(2, rank), [[2, 4, 1, 2]] * 2)

    @unittest.skipIf(numpy is None, "numpy is not installed")
    def test_numpy(self) -> None:
        def rank(comm: Communicator) -> list[float]:
            data = numpy.full((2, 2), comm.rank + 1, numpy.float16)
            comm.allreduce(data).wait()
            scalar = numpy.array(comm.rank, numpy.int64)
            comm.allreduce(scalar, "max").wait()
            empty = numpy.zeros((0, 3))
            comm.allreduce(empty).wait()
            return [*data.ravel().tolist(), int(scalar)]

        self.assertEqual(run(2, rank), [[3, 3, 3, 3, 1]] * 2)
        grid = numpy.zeros((4, 4), numpy.float32)
        self.refuse(r"`tensor` is not contiguous: shape \[4, 2\], strides \[4, 1\]", grid[:, :2])
        self.refuse(r"is not contiguous: shape \[4, 4\], strides \[1, 4\]", grid.T)
        grid.flags.writeable = False
        self.refuse("`tensor` is read-only; expected memory that the call can write", grid)
        self.refuse('elements of the format "Zd"; expected f16', numpy.zeros(2, complex))
        self.refuse('elements of the format ">f"', numpy.zeros(2, ">f4"))
        out = numpy.zeros((4, 4), numpy.float32)
        alone().allreduce(grid, out=out).wait()  # what is only read may be read-only

    def test_read_only(self) -> None:
        self.refuse(r"allreduce on rank 0 \(host device 0\): `tensor` is read-only", bytes(3))
        self.refuse("`out` is read-only", bytearray(3), out=bytes(3))
        alone().allreduce(bytes(3), out=bytearray(3)).wait()

    def test_what_is_no_tensor(self) -> None:
        self.refuse("`tensor` is a float; expected a tensor", 1.5)
        self.refuse("`tensor` is a list; expected a tensor", [1.5])
        self.refuse("`out` has 1 elements of f32; expected 2 of f32", floats(1, 2), out=floats(1))
        self.refuse(
            "`out` has 2 elements of f64; expected 2 of f32",
            floats(1, 2),
            out=array.array("d", [1, 2]),
        )

    def test_dlpack(self) -> None:
        def rank(comm: Communicator) -> list[list[float]]:
            plain = Exporter(floats(0, 1, 2), offset=4, shape=[2])
            newer = Exporter(floats(0, 1), version=1, shape=[1, 2], strides=[17, 1])
            bf16 = Exporter(array.array("H", [0x3F80, 0x4000]), dtype=(4, 16, 1))
            for tensor in (plain, newer, bf16):
                work = comm.allreduce(tensor)
                self.assertEqual(tensor.live, 1)
                work.wait()
                self.assertEqual((tensor.live, tensor.streams), (0, [None]))
            return [list(plain.data), list(newer.data), list(bf16.data)]

        self.assertEqual(run(2, rank), [[[0, 2, 4], [0, 2], [0x4000, 0x4080]]] * 2)

    def test_what_is_written_may_not_be_a_copy(self) -> None:
        comm = alone()
        tensor = Exporter(floats(1, 2), version=1)
        comm.allreduce(tensor).wait()
        self.assertEqual(tensor.asked, {"max_version": (1, 0), "copy": False})
        comm.allreduce(tensor, out=floats(0, 0)).wait()
        self.assertEqual(tensor.asked, {"max_version": (1, 0)})
        copied = Exporter(floats(1, 2), version=1, flags=2)
        self.refuse("`tensor`: __dlpack__ returned a copy", copied)
        self.assertEqual(copied.live, 0)
        out = floats(0, 0)
        comm.allreduce(copied, out=out).wait()
        self.assertEqual((list(out), copied.live), ([1, 2], 0))

    def test_a_capsule_is_consumed(self) -> None:
        for version in (0, 1):
            tensor = Exporter(floats(1, 2), version=version)
            capsule = tensor.__dlpack__()
            lender = mock.Mock(
                spec=["__dlpack__", "__dlpack_device__"],
                __dlpack__=lambda capsule=capsule, **_: capsule,
                __dlpack_device__=tensor.__dlpack_device__,
            )
            alone().allreduce(lender).wait()
            self.assertIn("used_dltensor", repr(capsule))
            self.assertEqual(tensor.live, 0)
            self.refuse("returned no capsule of a tensor", lender)
            del capsule, lender
            gc.collect()
            self.assertEqual(tensor.live, 0, "given back once")

    def test_an_array_of_pointers_is_refused(self) -> None:
        class Buffer(ctypes.Structure):
            _fields_ = [
                ("buf", ctypes.c_void_p),
                ("obj", ctypes.c_void_p),
                ("len", ctypes.c_ssize_t),
                ("itemsize", ctypes.c_ssize_t),
                ("readonly", ctypes.c_int),
                ("ndim", ctypes.c_int),
                ("format", ctypes.c_char_p),
                ("shape", ctypes.POINTER(ctypes.c_ssize_t)),
                ("strides", ctypes.POINTER(ctypes.c_ssize_t)),
                ("suboffsets", ctypes.POINTER(ctypes.c_ssize_t)),
                ("internal", ctypes.c_void_p),
            ]

        view = ctypes.pythonapi.PyMemoryView_FromBuffer
        view.restype, view.argtypes = ctypes.py_object, [ctypes.POINTER(Buffer)]
        element = ctypes.c_float(1)
        rows = (ctypes.c_void_p * 2)(*[ctypes.addressof(element)] * 2)
        for suboffset in (0, -1):
            entries = [(ctypes.c_ssize_t * 1)(n) for n in (2, 8, suboffset)]
            address = ctypes.addressof(rows)
            buffer = Buffer(address, None, 16, 8, 0, 1, b"d", *entries, None)
            tensor = view(buffer)
            if suboffset == 0:
                self.refuse(r"`tensor` is an array of pointers \(its buffer has suboffsets", tensor)
            else:
                alone().broadcast(tensor).wait()

    def test_a_parameter_is_taken_without_its_gradient(self) -> None:
        class Parameter:
            """As torch has it."""

            requires_grad = True
            inner = Exporter(floats(1, 2))

            def __dlpack_device__(self) -> tuple[int, int]:
                return self.inner.__dlpack_device__()

            def __dlpack__(self, **_: object) -> object:
                raise BufferError("Can't export tensors that require gradient")

            def detach(self) -> Exporter:
                return self.inner

        parameter = Parameter()
        alone().broadcast(parameter).wait()
        self.assertEqual(parameter.inner.streams, [None])
        parameter.requires_grad = False
        self.refuse("__dlpack__ failed: BufferError: Can't export", parameter)

    def test_lengths_that_no_memory_has(self) -> None:
        data = floats(1, 2, 3, 4)
        for shape in ([-1], [1 << 40, 1 << 40], [1 << 62], [2, -1, 4]):
            strides = [1] * len(shape)
            for tensor in (Exporter(data, shape=shape), Exporter(data, shape=shape, strides=strides)):
                self.refuse(r"`tensor` has the shape \[.*expected lengths of 0 or more", tensor)
        alone().allreduce(Exporter(data, shape=[1 << 40, 0, 1 << 40], strides=[1, 1, 1])).wait()

    def test_what_a_tensor_raises_names_the_argument(self) -> None:
        class Meta:
            def __dlpack_device__(self) -> tuple[int, int]:
                raise ValueError("Unknown device type meta")

            __dlpack__ = None

        class Gpu:
            __cuda_array_interface__: Any = 7

        text = r"allreduce on rank 0 \(host device 0\): `tensor` cannot say where its memory is: "
        self.refuse(text + "ValueError: Unknown device type meta", Meta())
        self.refuse(text + "TypeError", Gpu())
        Gpu.__cuda_array_interface__ = {"shape": "x", "typestr": 4, "data": None}
        self.refuse(text + "TypeError", Gpu())

        class Stopped(Gpu):
            @property
            def __cuda_array_interface__(self) -> Any:
                raise KeyboardInterrupt

        self.assertRaises(KeyboardInterrupt, alone().allreduce, Stopped())

    def test_a_buffer_that_is_gone(self) -> None:
        view = memoryview(bytearray(4))
        view.release()
        self.refuse("`tensor` exports no buffer: ValueError: operation forbidden on released", view)

    def test_dlpack_that_is_refused(self) -> None:
        data = floats(1, 2, 3, 4)
        self.refuse("is read-only", Exporter(data, version=1, flags=1))
        newer = Exporter(data, version=2)
        self.refuse("DLPack 2; expected version 1", newer)
        self.assertEqual(newer.live, 0)
        self.refuse(r"code 6, 8 bits, 1 lanes", Exporter(data, dtype=(6, 8, 1)))
        self.refuse(r"code 2, 32 bits, 2 lanes", Exporter(data, dtype=(2, 32, 2)))
        self.refuse("not contiguous", Exporter(data, shape=[2], strides=[2]))
        self.refuse(
            "is in memory of a GPU; expected memory of the host", Exporter(data, device=(2, 0))
        )
        self.refuse("DLPack's type 10; expected", Exporter(data, device=(10, 0)))

    def test_cuda_array_interface_is_not_for_host(self) -> None:
        class Gpu:
            __cuda_array_interface__ = {
                "shape": (2,),
                "typestr": "<f4",
                "data": (4096, False),
                "version": 3,
                "stream": 1,
            }

        self.refuse("is in memory of a GPU", Gpu())
        Gpu.__cuda_array_interface__ = {"shape": (2,), "typestr": "<c8", "data": (4096, False)}
        self.refuse('type "<c8"', Gpu())

    def test_a_queued_tensor_lives_until_its_call_has_run(self) -> None:
        seen: list[weakref.ref[Buffer]] = []
        go = tributary.Group(2, backend="host")
        first, second = go.split()
        data = Buffer([1, 2])
        seen.append(weakref.ref(data))
        work = first.allreduce(data)
        with self.assertRaises(BufferError):
            data.append(3)  # it may not move, either
        del data, work
        gc.collect()
        self.assertIsNotNone(seen[0](), "rank 1 has not made the call")
        other = bytearray([10, 20])
        second.allreduce(other).wait()
        self.assertEqual(other, bytearray([11, 22]))
        first.wait(timeout=10)  # any wait or later call lets go what has run
        self.assertIsNone(seen[0]())

    def test_streams(self) -> None:
        comm = alone()
        stream, other = tributary.Stream(0, backend="host"), tributary.Stream(1, backend="host")
        work = comm.allreduce(floats(1), stream=stream)
        self.assertTrue(stream.wait(timeout=10))
        self.assertTrue(work.done())
        with self.assertRaisesRegex(
            ArgumentError, "`stream` is of host device 1; expected one of host device 0"
        ):
            comm.allreduce(floats(1), stream=other)
        for wrong in (7, "x"):
            with self.assertRaisesRegex(
                ArgumentError, "expected a tributary.Stream of host device 0"
            ) as caught:
                comm.allreduce(floats(1), stream=wrong)  # type: ignore[arg-type]
            self.assertEqual(caught.exception.status, Status.INVALID_STREAM)
        with self.assertRaisesRegex(ArgumentError, "not one of CUDA"):
            stream.__cuda_stream__()

    def test_events_order_streams(self) -> None:
        first, second = tributary.Group(2, backend="host").split()
        one, two = (tributary.Stream(0, backend="host") for _ in range(2))
        data, other = floats(1), floats(2)
        work = first.allreduce(data, stream=one)
        work.wait_on(two)
        event = two.record()
        self.assertFalse(event.query())
        self.assertFalse(event.wait(timeout=0.05))
        second.allreduce(other).wait()
        self.assertTrue(event.wait(timeout=10))
        later = two.record()
        self.assertTrue(later.wait(timeout=10))
        self.assertGreaterEqual(later.elapsed_since(event), 0)
        self.assertEqual(later.elapsed_since(later), 0)
        self.assertEqual(data[0], 3)
