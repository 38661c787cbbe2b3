"""Collective operations of data-parallel training, dense and sparse.

Ranks that work together form a communicator. On the backend "nccl" a rank is a GPU, of one process
or of several; on "host" it is a thread of this process, so that all can be tried without a GPU.

>>> import array
>>> def train(comm):
...     gradient = array.array("f", [comm.rank] * 3)
...     comm.allreduce(gradient, "avg").wait()
...     return list(gradient)
>>> Group(4, backend="host").run(train)[0]
[1.5, 1.5, 1.5]

Tensors are anything with DLPack (torch, CuPy, JAX), ``__cuda_array_interface__`` or a buffer
(numpy, bytearray, array). Calls are queued on a stream, and return a `Work`, which keeps their
tensors alive.
``python -m tributary.info`` says what is there.
"""

from . import _nccl as _nccl  # before the native module, which needs it
from ._errors import (
    ArgumentError,
    BackendError,
    DeadlineError,
    Error,
    InternalError,
    ResourceError,
    StateError,
    Status,
)
from ._native import (
    AbortHandle,
    Communicator,
    Event,
    Group,
    Outcome,
    Reducer,
    SparseAllReduce,
    Stream,
    Symmetric,
    UniqueId,
    Work,
    backends,
    dump,
    library_version,
    quiesce,
    sparse_algorithms,
)

__all__ = [
    "AbortHandle",
    "ArgumentError",
    "BackendError",
    "Communicator",
    "DeadlineError",
    "Error",
    "Event",
    "Group",
    "InternalError",
    "Outcome",
    "Reducer",
    "ResourceError",
    "SparseAllReduce",
    "StateError",
    "Status",
    "Stream",
    "Symmetric",
    "UniqueId",
    "Work",
    "backends",
    "dump",
    "library_version",
    "quiesce",
    "sparse_algorithms",
]
__version__ = "{}.{}.{}".format(*(library_version() // step % 100 for step in (10000, 100, 1)))
