"""One NCCL in the process.

Two copies of NCCL would each take memory of the GPUs, and neither would know of the other's
kernels. The native module names NCCL by its SONAME, libnccl.so.2, and the dynamic linker takes for that name
the library that the process has already, from wherever it came, also if it was loaded with
RTLD_LOCAL. So:

* If torch was imported first, its NCCL is there, and is the one.
* Otherwise the NCCL that torch would bring is loaded here, before the native module: that of
  NVIDIA's wheel. torch, imported later, finds it in turn. Without this step the linker would take
  the system's, which may be older than what torch was built with.
* Otherwise that of the environment (conda), or the system's.
"""

import ctypes
import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path

SONAME = "libnccl.so.2"


def load() -> None:
    """Load NCCL, if the native module needs it and the process has none."""
    if not _is_needed() or _is_loaded():
        return
    found = next((str(path) for path in _places() if path.is_file()), SONAME)
    try:
        ctypes.CDLL(found)
    except OSError as error:
        raise ImportError(
            f"tributary was built with the backend nccl, and NCCL cannot be loaded: {error}. "
            "Install NVIDIA's wheel nvidia-nccl-cu13 (nvidia-nccl-cu12 for a build with CUDA 12) in this "
            f"environment, or put the folder of {SONAME} into LD_LIBRARY_PATH; TRIBUTARY_NCCL=OFF "
            "builds without it"
        ) from error


def _is_needed() -> bool:
    """Whether the native module was built with the nccl backend."""
    module = importlib.util.find_spec("tributary._native")
    if module is None or module.origin is None:
        return False
    return SONAME.encode() in Path(module.origin).read_bytes()


def _is_loaded() -> bool:
    try:
        ctypes.CDLL(SONAME, mode=os.RTLD_LAZY | os.RTLD_NOLOAD)
    except OSError:
        return False
    return True


def _places() -> Iterator[Path]:
    if importlib.util.find_spec("nvidia") is not None:
        wheel = importlib.util.find_spec("nvidia.nccl")
        for folder in (wheel.submodule_search_locations or []) if wheel else []:
            yield Path(folder) / "lib" / SONAME
    yield Path(sys.prefix) / "lib" / SONAME


load()
