"""Tensors, streams and graphs of GPUs, over a fake of CUDA and NCCL: gpu_fake.sh builds it.

Device memory is ordinary memory there, so that a test can read it.
"""

import ctypes
import gc
import os
import sys
import threading
import types
import unittest
import weakref
from pathlib import Path
from typing import Any
from unittest import mock

import tributary
from tributary import ArgumentError, Communicator, Reducer, SparseAllReduce, Status, Symmetric

from .ranks import Exporter, floats

FAKE = os.environ.get("TRIBUTARY_TEST_FAKE")
if FAKE:
    cuda = ctypes.CDLL(str(Path(FAKE) / "libtributary.so"))
    driver = ctypes.CDLL(str(Path(FAKE) / "libcuda.so.1"))
    cuda.fake_after.restype = cuda.fake_join.restype = ctypes.c_void_p
    cuda.fake_after.argtypes = [ctypes.c_void_p]
EVENT = 3  # FAKE_EVENT: no event completes


def word(outcome: tributary.Outcome) -> int:
    interface = outcome.__cuda_array_interface__
    assert interface["shape"] == (1,) and interface["typestr"] == "<i4"
    return ctypes.c_int32.from_address(interface["data"][0]).value


class Memory:
    """Floats on a GPU, without a protocol."""

    def __init__(self, device: int, *values: float) -> None:
        address = ctypes.c_void_p()
        assert cuda.cudaSetDevice(device) == 0
        assert cuda.cudaMalloc(ctypes.byref(address), ctypes.c_size_t(4 * max(1, len(values)))) == 0
        assert address.value is not None
        self.address = address.value
        self.data = (ctypes.c_float * len(values)).from_address(self.address)
        self.data[:] = list(values)

    def __del__(self) -> None:
        cuda.cudaFree(ctypes.c_void_p(self.address))


class Gpu(Memory):
    """Numba's protocol."""

    stream: int | None = None

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        data = (self.address, False)
        shape = (len(self.data),)
        return {"shape": shape, "typestr": "<f4", "data": data, "version": 3, "stream": self.stream}


class Lent:
    """DLPack's: memory of a GPU in an exporter of the tests."""

    def __init__(self, device: int, *values: float) -> None:
        self.memory = Memory(device, *values)
        self.exporter = Exporter(floats(*values), device=(2, device))
        self.exporter.data = mock.Mock(buffer_info=lambda: (self.memory.address, len(values)))

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.exporter.device

    def __dlpack__(self, **options: Any) -> object:
        return self.exporter.__dlpack__(**options)


def alone() -> Communicator:
    return tributary.Group(1, backend="nccl").split()[0]


def stream() -> tributary.Stream:
    return tributary.Stream(0, backend="nccl")


@unittest.skipUnless(FAKE, "needs the fake of CUDA and NCCL: gpu_fake.sh")
class Gpus(unittest.TestCase):
    def tearDown(self) -> None:
        cuda.cudaSetDevice(0)  # memory in a cycle is freed by a thread that has chosen a device
        gc.collect()

    def test_tensors(self) -> None:
        def rank(comm: Communicator) -> list[list[float]]:
            first, second = Gpu(comm.device, comm.rank, 1), Lent(comm.device, comm.rank, 2)
            comm.allreduce(first).wait()
            comm.allreduce(second, "avg").wait()
            many = [Gpu(comm.device, 1), Gpu(comm.device, 2, 3)]
            comm.allreduce_list(many).wait()
            return [list(one.data) for one in (first, second.memory, *many)]

        found = tributary.Group(2, backend="nccl").run(rank)
        self.assertEqual(found, [[[1, 2], [0.5, 2], [2], [4, 6]]] * 2)

    def test_memory_of_another_place_is_refused(self) -> None:
        comm = alone()
        for tensor, text in [
            (floats(1), "`tensor` is in memory of the host; expected memory of this rank's GPU"),
            (Exporter(floats(1)), "`tensor` is in memory of the host"),
            (Gpu(1, 1.0), "device 1"),
            (Lent(1, 1.0), "device 1"),
        ]:
            with self.assertRaisesRegex(ArgumentError, text) as caught:
                comm.allreduce(tensor)
            self.assertEqual(caught.exception.status, Status.INVALID_BUFFER)

    def test_symmetric_memory(self) -> None:
        comm, source = alone(), Gpu(0, 1, 2)
        memory = Symmetric.of(comm, source)
        interface = memory.__cuda_array_interface__
        self.assertEqual((interface["shape"], interface["typestr"]), ((2,), "<f4"))
        self.assertEqual(interface["data"], (memory.address, False))
        with self.assertRaises(BufferError):
            memoryview(memory)  # type: ignore[arg-type,unused-ignore]
        comm.allreduce(memory, out=source, variant="auto").wait()
        self.assertEqual(list(source.data), [1, 2])
        with self.assertRaises(ArgumentError) as caught:
            comm.allreduce(source, variant="symmetric")
        self.assertEqual(caught.exception.status, Status.INVALID_BUFFER)
        comm.allreduce(memory, variant="symmetric").wait()
        memory.free()

    def test_a_communicator_of_the_caller_is_adopted(self) -> None:
        unique, results = ctypes.create_string_buffer(128), {}
        self.assertEqual(cuda.ncclGetUniqueId(unique), 0)

        def one(rank: int) -> None:
            theirs, data = cuda.fake_join(unique, rank, 2), Gpu(rank, rank + 1)
            with Communicator.adopt(theirs, timeout=20) as comm:
                comm.allreduce(data).wait(timeout=20)
                results[comm.rank] = (comm.size, comm.device, data.data[0])

        threads = [threading.Thread(target=one, args=(rank,)) for rank in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(results, {0: (2, 0, 3), 1: (2, 1, 3)})

    def test_training(self) -> None:
        def rank(comm: Communicator) -> list[list[float]]:
            sparse = SparseAllReduce(comm, 3, algorithm="topka", k=1)
            gradient, result = Gpu(comm.device, 1, 5, 2), Gpu(comm.device, 0, 0, 0)
            sparse.allreduce(gradient, result).wait()
            mean = Gpu(comm.device, comm.rank)
            reducer = Reducer(comm, [mean])
            reducer.ready(0)
            before = word(reducer.outcome)
            reducer.finish().wait()
            self.assertEqual([before, word(reducer.outcome)], [0, 1])
            self.assertFalse(hasattr(reducer.outcome, "__array_interface__"))
            return [list(result.data), list(mean.data)]

        found = tributary.Group(2, backend="nccl").run(rank)
        self.assertEqual(found, [[[0, 10, 0], [0.5]]] * 2)


@unittest.skipUnless(FAKE, "needs the fake of CUDA and NCCL: gpu_fake.sh")
class Streams(unittest.TestCase):
    def used(self, **options: Any) -> int:
        """The stream that DLPack was told of, which is that of the call."""
        tensor = Lent(0, 1.0)
        alone().allreduce(tensor, **options).wait()
        (told,) = tensor.exporter.streams
        return int(told)

    def test_every_kind(self) -> None:
        own = stream()
        self.assertEqual(self.used(stream=own), own.handle)
        self.assertEqual(self.used(stream=own.handle), own.handle)
        self.assertEqual(
            self.used(stream=types.SimpleNamespace(cuda_stream=own.handle)), own.handle
        )
        self.assertEqual(self.used(stream=types.SimpleNamespace(ptr=own.handle)), own.handle)
        self.assertEqual(own.__cuda_stream__(), (0, own.handle))
        kind = type("Protocol", (), {"__cuda_stream__": own.__cuda_stream__})
        self.assertEqual(self.used(stream=kind()), own.handle)
        self.assertEqual(self.used(), 1, "the legacy default stream, as DLPack calls it")
        for wrong, text in [
            ("x", "expected a tributary.Stream, the address"),
            (2, "per-thread default stream"),
        ]:
            with self.assertRaisesRegex(ArgumentError, text) as caught:
                self.used(stream=wrong)
            self.assertEqual(caught.exception.status, Status.INVALID_STREAM)

    def test_that_of_torch_is_the_default(self) -> None:
        own, asked = stream(), []

        def current_stream(device: int) -> types.SimpleNamespace:
            asked.append(device)
            return types.SimpleNamespace(cuda_stream=own.handle)

        module = mock.Mock()
        module.cuda.current_stream = current_stream
        with mock.patch.dict(sys.modules, torch=module):
            module.cuda.is_initialized.return_value = False
            self.assertEqual((self.used(), asked), (1, []))
            module.cuda.is_initialized.return_value = True
            self.assertEqual((self.used(), asked), (own.handle, [0]))

    def test_a_tensor_of_another_stream_is_waited_for(self) -> None:
        comm, first, second = alone(), stream(), stream()
        tensor = Gpu(0, 1.0)
        tensor.stream = first.handle
        comm.allreduce(tensor, stream=second).wait()
        self.assertEqual(cuda.fake_after(second.handle), first.handle)

    def test_events_of_different_backends_are_not_compared(self) -> None:
        gpu, host = stream().record(), tributary.Stream(0, backend="host").record()
        self.assertTrue(gpu.wait(10) and host.wait(10))
        self.assertEqual(gpu.elapsed_since(gpu), 0)
        for end, start in ((gpu, host), (host, gpu)):
            with self.assertRaisesRegex(ArgumentError, "expected two of one backend"):
                end.elapsed_since(start)

    def test_memory_lives_until_the_event(self) -> None:
        comm = alone()
        tensor = Gpu(0, 1.0)
        seen = weakref.ref(tensor)
        cuda.fake_hold(EVENT, True)
        try:
            work = comm.allreduce(tensor)
            self.assertFalse(work.done())
            with self.assertRaises(tributary.DeadlineError):
                work.wait(timeout=0.05)
            del tensor, work
            gc.collect()
            comm.barrier()
            self.assertIsNotNone(seen())
        finally:
            cuda.fake_hold(EVENT, False)
        comm.barrier()
        self.assertIsNone(seen())

    def test_what_a_graph_captures_has_no_end(self) -> None:
        comm, own, tensor = alone(), stream(), Gpu(0, 1.0)
        handle = ctypes.c_void_p(own.handle)
        self.assertEqual(cuda.cudaStreamBeginCapture(handle, 0), 0)
        work = comm.allreduce(tensor, stream=own)
        with self.assertRaisesRegex(ArgumentError, "a CUDA graph has captured it"):
            work.wait()
        graph = ctypes.c_void_p()
        self.assertEqual(cuda.cudaStreamEndCapture(handle, ctypes.byref(graph)), 0)
        self.assertEqual(cuda.cudaGraphDestroy(graph), 0)
        comm.allreduce(tensor, stream=own).wait()
