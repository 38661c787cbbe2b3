"""What this installation has: ``python -m tributary.info``."""

import os
import sys
from pathlib import Path

import tributary


def lines() -> list[str]:
    """The report, a line each."""
    found = [f"tributary {tributary.__version__}, Python {sys.version.split()[0]}"]
    for backend in tributary.backends():
        name, version, devices = backend["name"], backend["version"], backend["devices"]
        shown = f"NCCL {_nccl_version(version)}" if name == "nccl" else "in the library"
        found.append(
            f"backend {name}: {shown}; {devices} {'GPUs' if name == 'nccl' else 'ranks at most'}"
        )
    if all(backend["name"] != "nccl" for backend in tributary.backends()):
        found.append(
            "backend nccl: not built: it needs a CUDA compiler and NCCL when the package is built"
        )
    found.extend(f"NCCL is {path}" for path in _loaded("libnccl.so"))
    found.append(f"sparse algorithms: {', '.join(tributary.sparse_algorithms())}")
    return found


def _nccl_version(version: int) -> str:
    return f"{version // 10000}.{version // 100 % 100}.{version % 100}"


def _loaded(name: str) -> list[str]:
    """The files of a library that this process has; more than one is a mistake."""
    maps = Path("/proc/self/maps")
    if not maps.exists():
        return []
    paths = {line.split(maxsplit=5)[-1].strip() for line in maps.read_text().splitlines()}
    return sorted(path for path in paths if os.path.basename(path).startswith(name))


if __name__ == "__main__":
    print("\n".join(lines()))
