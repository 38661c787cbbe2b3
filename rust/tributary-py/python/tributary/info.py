"""What this installation has: ``python -m tributary.info``."""

import importlib.metadata
import importlib.util
import os
import platform
import sys
from pathlib import Path

import tributary


def lines() -> list[str]:
    """The report, a line each."""
    found = [
        f"tributary {tributary.__version__}, Python {sys.version.split()[0]}, {platform.platform()}",
        f"in {Path(tributary.__file__).parent}",
    ]
    for backend in tributary.backends():
        name, version, devices = backend["name"], backend["version"], backend["devices"]
        shown = f"NCCL {_nccl_version(version)}" if name == "nccl" else "in the library"
        found.append(
            f"backend {name}: {shown}; {devices} {'GPUs' if name == 'nccl' else 'ranks at most'}; "
            f"{'several processes' if backend['processes'] else 'one process'}; "
            f"{'CUDA graphs' if backend['graphs'] else 'no CUDA graphs'}"
        )
    if all(backend["name"] != "nccl" for backend in tributary.backends()):
        found.append(
            "backend nccl: not built: it needs a CUDA compiler and NCCL when the package is built"
        )
    found.extend(f"NCCL is {path}" for path in _loaded("libnccl.so"))
    found.append(f"sparse algorithms: {', '.join(tributary.sparse_algorithms())}")
    found.append(f"torch: {_torch()}")
    found.extend(f"environment: {setting}" for setting in _settings())
    return found


def _torch() -> str:
    """It is not imported for that."""
    if importlib.util.find_spec("torch") is None:
        return "not installed; tributary.torch needs it, and nothing else does"
    try:
        return importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return "installed"


def _settings() -> list[str]:
    """What changes the library's and NCCL's ways. No secrets: reports are sent to others."""
    names = sorted(name for name in os.environ if name.startswith(("TRIBUTARY_", "NCCL_")))
    return [f"{name}={'...' if 'SECRET' in name else os.environ[name]}" for name in names]


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
